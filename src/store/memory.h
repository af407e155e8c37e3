/* How many bytes a store's chunks and books take, and how many they may: the store's account (docs/architecture.md, Memory).
 *
 * A chunk is counted once, from when its store first sees it (a stream has received it, a table holds it) until its last reference goes,
 * whoever has that: tables, streams, a sample on its way. Books are what tables need besides, as each says now and then. At a
 * sixteenth below the limit inserts that would make tables grow wait, at the limit also those of tables that are full, where an item goes for
 * each that comes; for these only what tables have counts, not what is on its way to them. */
#ifndef RV_STORE_MEMORY_H
#define RV_STORE_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <stdint.h>

#include "reverie/status.h"

typedef struct rv_table rv_table;

typedef struct rv_memory {
  atomic_size_t limit;     /* SIZE_MAX: none */
  rv_table *const *tables; /* the store's: who waits for room waits in one of them */
  size_t num_tables;
  atomic_size_t bytes;            /* and one more while the store is there: whoever takes the last away frees the account */
  atomic_size_t on_the_way;       /* of them: of what came and is no item's yet, or that its stream keeps for items to come */
  atomic_size_t wanted;           /* the least that an insert into a table that grows waits for; SIZE_MAX: none does */
  atomic_size_t wanted_when_full; /* the same for tables that are full */
  atomic_bool serving;            /* a thread looks whether it has it */
  atomic_bool spills;             /* cold chunks go to a file (cold.h) */
  atomic_bool has_spill;          /* somebody takes them there */
  atomic_int spill_fault;         /* errno of what keeps them from it; 0: nothing does */
  atomic_bool all_spilled;        /* memory was short, and nothing found that may move there */
  atomic_bool told_lost;          /* the log was told that chunks cannot be read there (compact.c) */
  atomic_int claimed;             /* by whom: see rv_memory_begin_claiming; 0: nobody */
  atomic_uint ask_ahead;          /* batches whose rows are asked for before they are read from the spill's file (gather.c) */
  atomic_size_t spilled;          /* bytes that lie there: not in `bytes` */
  atomic_size_t writers;          /* of this process: each fills segments of its own */
  atomic_size_t least_bound;      /* the lowest in bytes that any of the tables has had for itself; SIZE_MAX: none had one */
} rv_memory;

/* limit 0: none. The caller's until rv_memory_release; chunks may still be counted then. */
rv_code rv_memory_new(size_t limit, rv_memory **out, rv_error *err);
void rv_memory_release(rv_memory *memory);

static inline size_t rv_memory_limit(const rv_memory *memory)
{
  return atomic_load_explicit(&memory->limit, memory_order_relaxed);
}
/* 0: none. Those who wait are looked at again, and tables hear of it. With no lock held. */
void rv_memory_set_limit(rv_memory *memory, size_t limit);

static inline void rv_memory_add(rv_memory *memory, size_t bytes)
{
  atomic_fetch_add_explicit(&memory->bytes, bytes, memory_order_relaxed);
}
void rv_memory_take_away(rv_memory *memory, size_t bytes);
static inline size_t rv_memory_used(const rv_memory *memory)
{
  return atomic_load_explicit(&memory->bytes, memory_order_relaxed) - 1;
}

/* A table has this bound. */
void rv_memory_note_bound(rv_memory *memory, size_t max_bytes);
/* The most that one piece may take which items of any table may come to need. */
static inline size_t rv_memory_most_at_once(const rv_memory *memory)
{
  size_t limit = rv_memory_limit(memory), least = atomic_load_explicit(&memory->least_bound, memory_order_relaxed);
  return (limit < least ? limit : least) / 64;
}

/* A writer of this process fills segments from now on, or no longer. */
static inline void rv_memory_begin_writer(rv_memory *memory)
{
  atomic_fetch_add_explicit(&memory->writers, 1, memory_order_relaxed);
}
static inline void rv_memory_end_writer(rv_memory *memory)
{
  atomic_fetch_sub_explicit(&memory->writers, 1, memory_order_relaxed);
}
/* The most that the segments of one may take which are not full: they are there before their rows are, and stay when these have gone, so all
 * writers' together are to be a small part of what any table may have. */
static inline size_t rv_memory_writer_share(const rv_memory *memory)
{
  size_t writers = atomic_load_explicit(&memory->writers, memory_order_relaxed);
  return rv_memory_most_at_once(memory) / (writers > 0 ? writers : 1);
}

/* Chunks may move elsewhere from now on: those that come are made so that they can. */
static inline void rv_memory_begin_spilling(rv_memory *memory)
{
  atomic_store(&memory->spills, true);
}
/* False: somebody else spills already, and has not ended it. */
static inline bool rv_memory_take_spill(rv_memory *memory)
{
  return !atomic_exchange(&memory->has_spill, true);
}
static inline void rv_memory_give_spill(rv_memory *memory)
{
  atomic_store(&memory->has_spill, false);
}
static inline bool rv_memory_spills(const rv_memory *memory)
{
  return atomic_load_explicit(&memory->spills, memory_order_relaxed);
}

/* Chunks that are kept (rv_chunk_keep) are not moved while references are made of those; whoever does that waits for a move, which is short, and nobody for
 * him. */
enum { RV_CLAIMED_BY_LOADER = 1, RV_CLAIMED_BY_MOVER };
void rv_memory_begin_claiming(rv_memory *memory);
/* False: not now. */
static inline bool rv_memory_try_moving(rv_memory *memory)
{
  int nobody = 0;
  return atomic_compare_exchange_strong(&memory->claimed, &nobody, RV_CLAIMED_BY_MOVER);
}
static inline void rv_memory_end_claiming(rv_memory *memory) /* or moving */
{
  atomic_store(&memory->claimed, 0);
}

/* Is it short, and makes somebody room? */
static inline bool rv_memory_awaits_spill(const rv_memory *memory)
{
  return rv_memory_used(memory) > rv_memory_limit(memory) / 16 * 15 && atomic_load(&memory->has_spill) &&
         !atomic_load(&memory->all_spilled) && atomic_load(&memory->spill_fault) == 0;
}

/* What waits to get in must not stop the tables for ever: a quarter of the limit is its share, and the rest theirs whatever is on the way. */
enum { RV_MEMORY_WAY = 4 };
static inline size_t rv_memory_for_the_way(const rv_memory *memory)
{
  return rv_memory_limit(memory) / RV_MEMORY_WAY;
}
static inline void rv_memory_begin_way(rv_memory *memory, size_t bytes)
{
  atomic_fetch_add_explicit(&memory->on_the_way, bytes, memory_order_relaxed);
}
static inline void rv_memory_end_way(rv_memory *memory, size_t bytes)
{
  atomic_fetch_sub_explicit(&memory->on_the_way, bytes, memory_order_relaxed);
}
static inline size_t rv_memory_on_the_way(const rv_memory *memory)
{
  return atomic_load_explicit(&memory->on_the_way, memory_order_relaxed);
}

/* What stays free while tables grow, for those that are full: with each item that comes to them one goes, but a little later. */
enum { RV_MEMORY_MARGIN = 16 };

/* May a table take so many bytes more? `full`: an item goes from it for each that comes. An insert waits where it may not, and is looked at again when
 * it may. */
bool rv_memory_ask(rv_memory *memory, size_t more, bool full);

/* An insert waits for room, or it is just being looked whether it still does. */
static inline bool rv_memory_is_awaited(const rv_memory *memory)
{
  return atomic_load(&memory->wanted) != SIZE_MAX || atomic_load(&memory->wanted_when_full) != SIZE_MAX ||
         atomic_load(&memory->serving);
}
void rv_memory_serve_waiting(rv_memory *memory);
/* Whoever waits asks again: who was waited for may have been taken back, so that it is not awaited any more. As rv_memory_serve. */
void rv_memory_ask_again(rv_memory *memory);
/* Lets those go on who wait for room, where there is some. With no lock held that is a table's, or comes after it. Whoever leaves a table calls
 * it; so does who drops chunks elsewhere. */
static inline void rv_memory_serve(rv_memory *memory)
{
  if (rv_memory_is_awaited(memory)) rv_memory_serve_waiting(memory);
}

/* Why nothing more goes to the spill's file; "": nothing keeps it. */
void rv_memory_spill_fault(const rv_memory *memory, char *out, size_t capacity);
/* "waits for memory (3.9 of 4.0 GiB used)", and what a spill has to do with it */
void rv_memory_explain(const rv_memory *memory, char *out, size_t capacity);
/* "3.9 GiB" */
void rv_memory_format(size_t bytes, char *out, size_t capacity);

#endif
