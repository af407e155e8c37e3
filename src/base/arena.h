/* Blocks of memory that other processes of this machine may read: they lie in one file (memory_file.h) as large as the machine's memory,
 * of which only what is used takes any. Thread-safe.
 *
 * Blocks are whole pages, for buffers large enough that this wastes little. What is given back is used again first; what is more than a little
 * of it goes back to the system, the longest runs first, and what nobody needs for a minute goes bit by bit. The file is mapped piece by piece, a segment
 * at a time, by whoever needs one. */
#ifndef RV_BASE_ARENA_H
#define RV_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reverie/status.h"

typedef struct rv_arena rv_arena;

enum { RV_ARENA_SEGMENT = 256 << 20 };

/* Of at most `size` bytes; 0: as much as the machine has. RV_UNAVAILABLE: this system or its limits do not let it be. */
rv_code rv_arena_new(size_t size, rv_arena **out, rv_error *err);
/* One for each owner; the last unref unmaps it, when no block is left. NULL is fine. */
rv_arena *rv_arena_ref(rv_arena *arena);
void rv_arena_unref(rv_arena *arena);

/* What a block takes beyond its size. */
size_t rv_arena_waste(size_t size);
/* `size` bytes of anything, for an owner whom rv_arena_find tells; NULL: no room. Each holds the arena until it is given back. A child that was
 * forked finds no memory there; it may give back and trim, and nothing happens. */
void *rv_arena_take(rv_arena *arena, size_t size, void *owner);
/* The same; *bare: no memory is behind it until it is touched. */
void *rv_arena_take_telling(rv_arena *arena, size_t size, void *owner, bool *bare);
void rv_arena_give_back(rv_arena *arena, void *block);
/* The same of one for which no memory was found, and that nobody wrote to. */
void rv_arena_give_back_bare(rv_arena *arena, void *block);
/* Leaves the block's bytes as they are for good, since another process may read them; it holds the arena no more, and is not used again. */
void rv_arena_abandon(rv_arena *arena, const void *block);
/* The owner of the block in which these bytes lie, and where they do in the file; NULL: they lie elsewhere. The caller holds the block. */
void *rv_arena_find(rv_arena *arena, const void *data, size_t size, uint64_t *offset);
/* So many bytes more than usual may lie idle: those who take and give back have ups and downs of that size. */
void rv_arena_keep_idle(rv_arena *arena, size_t bytes);
/* Due each second while it returns true, that some lies idle which the system takes back: a part of what nobody has needed since the last call
 * gives its memory back, so that after a little more than a quiet minute all has. By several users' calls no more goes than by one's. */
bool rv_arena_trim(rv_arena *arena, int64_t now_ns);
/* Bytes that blocks take, and bytes that lie idle and still take memory. */
void rv_arena_usage(rv_arena *arena, size_t *used, size_t *idle);

/* The file, for other processes (arena_map.h) to read; the arena's. */
int rv_arena_file(const rv_arena *arena);
/* The same for writing, to all that lies there: for a process that is trusted with that. */
int rv_arena_file_to_write(const rv_arena *arena);

#endif
