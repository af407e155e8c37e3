/* Large buffers kept for their next use: memory that is given back to the system and touched again costs more than what is written to
 * it. Thread-safe.
 *
 * At most so many bytes lie idle. What was not needed between two trims goes at the second, so that after a busy time nothing is left. */
#ifndef RV_BASE_SPARES_H
#define RV_BASE_SPARES_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/buf.h"

typedef struct rv_spares rv_spares;

/* Smaller ones malloc has at hand; larger ones are not kept. */
enum { RV_SPARE_MIN = 16 << 10, RV_SPARE_MAX = 1 << 20 };

/* Keeps at most `max_bytes`. NULL when memory is out. */
rv_spares *rv_spares_new(size_t max_bytes);
/* From now on it keeps at most so many. */
void rv_spares_set_max(rv_spares *spares, size_t max_bytes);
/* The owner's end: what lies idle is freed, and what is still in use when it comes back. NULL is fine. */
void rv_spares_close(rv_spares *spares);
/* Called, on any thread and under a lock, when the first buffer comes back since rv_spares_trim returned false, or while it trims: from then on trims
 * are due each second. It may post to a loop, and do little else. */
void rv_spares_watch(rv_spares *spares, void (*watch)(void *context), void *context);
/* Frees what was not needed since the last trim. true: some are left, or their arena has something idle. */
bool rv_spares_trim(rv_spares *spares, int64_t now_ns);
/* As rv_buf_new, on a cache line and with at most an eighth more room; comes back by itself at its last unref; a child
 * that was forked frees it then. */
rv_buf *rv_spares_take(rv_spares *spares, size_t capacity);
/* From now on rv_spares_take_lendable takes memory of this arena; once, by one thread, also while others take. A trim of them trims it,
 * too (rv_arena_trim). */
void rv_spares_use_arena(rv_spares *spares, rv_arena *arena);
/* That arena, as long as the spares are there; NULL: none. */
rv_arena *rv_spares_arena(rv_spares *spares);
/* The same for bytes that other processes may read: where there is an arena, while it has room, and where at most an eighth more is lost, they lie
 * there, and their owner is the buffer. */
rv_buf *rv_spares_take_lendable(rv_spares *spares, size_t capacity);
/* Of a buffer of spares whose user alone reads it: its bytes begin so much later, until it comes back. */
void rv_buf_begin_later(rv_buf *buf, size_t bytes);
/* Of one that lies in an arena: it does not come back, and its bytes stay as they are (rv_arena_abandon). By who has a reference. */
void rv_buf_abandon(rv_buf *buf);
/* Do its bytes lie in an arena? A child that was forked finds none there. */
bool rv_buf_is_lendable(const rv_buf *buf);
/* Of such a buffer: there is memory behind all of it, of this process's (rv_memory_file_reserve), whoever writes to it first. False: there is none. */
bool rv_buf_reserve_memory(rv_buf *buf);
/* Of such a buffer: where its block lies in the arena's file. */
uint64_t rv_buf_arena_offset(const rv_buf *buf);

#endif
