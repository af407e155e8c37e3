/* Room in memory for what comes: a table's own bound is kept by its remover, as its number of items is; at the store's inserts wait. */
#include <stdint.h>

#include "base/error.h"
#include "store/changes_parts.h"
#include "store/chunk_parts.h"
#include "store/replay.h"

enum {
  EVICTED_AT_ONCE = 16,
  EVICTION_STEPS = 8, /* small steps that an item's going is worth */
  NEARLY = 16 /* with less than this part of its bound left a table is full: how much goes with an item is not its to choose */
};

rv_room rv_table_evict(rv_turn *turn, size_t bound, rv_error *err)
{
  rv_table *table = turn->table;
  rv_books *books = &table->books;
  if (rv_changes_reserve(table, EVICTED_AT_ONCE, 0, err) != RV_OK) return RV_ROOM_FAILED;
  bool sparse = false; /* what the others leave behind is won back before more of them go */
  int gone = 0;
  while (gone < EVICTED_AT_ONCE && !sparse && books->leaving == NULL && books->slab.count > 0 &&
         rv_books_of_items(books) > bound) {
    double unused;
    rv_table_remove(turn, rv_pick_select(&table->remover, &books->slab, &table->random, &unused));
    gone++;
    sparse = rv_table_is_sparse(table) && !table->compacting;
  }
  rv_rate_limiter_deleted(&table->limiter, gone);
  turn->budget = sparse || books->leaving != NULL ? 0 : turn->budget - gone * EVICTION_STEPS;
  return RV_ROOM_SOON;
}

rv_room rv_table_make_room(rv_turn *turn, size_t comes, size_t opens, size_t uncounted, rv_error *err)
{
  rv_table *table = turn->table;
  const rv_books *books = &table->books;
  size_t most = rv_table_may_hold(table, opens), bound = most > comes ? most - comes : 0, held = rv_books_of_items(books);
  if (held > bound && books->slab.count > 0) return rv_table_evict(turn, bound, err);
  bool full = (int64_t)books->slab.count >= table->config.max_size || (most < SIZE_MAX && held > bound - bound / NEARLY);
  table->waits_for_memory = !rv_memory_ask(table->memory, uncounted, full);
  return table->waits_for_memory ? RV_ROOM_NONE : RV_ROOM_THERE;
}

rv_room rv_table_make_room_behind(rv_turn *turn, size_t comes, rv_error *err)
{
  rv_table *table = turn->table;
  size_t most = rv_table_may_hold(table, 0), bound = most > comes ? most - comes : 0;
  bool some = table->books.slab.count > 0 && rv_books_of_items(&table->books) > bound;
  return some ? rv_table_evict(turn, bound, err) : RV_ROOM_THERE;
}

size_t rv_table_fits(const rv_table *table)
{
  size_t most = rv_table_max_bytes(table), limit = rv_memory_limit(table->memory);
  return limit - limit / RV_MEMORY_MARGIN < most ? limit - limit / RV_MEMORY_MARGIN : most;
}

rv_code rv_table_check_bytes(const rv_table *table, size_t bytes, const char *what, rv_error *err)
{
  size_t most = rv_table_fits(table);
  if (bytes <= most) return RV_OK;
  const char *name = most == rv_table_max_bytes(table) ? "max_bytes" : "the store's memory_limit";
  char have[32], may[32];
  rv_memory_format(bytes, have, sizeof have);
  rv_memory_format(most, may, sizeof may);
  return rv_fail(err, RV_INVALID_ARGUMENT, "table \"%s\": %s takes %s and never fits: %s leaves room for %s", table->name, what,
                 have, name, may);
}

/* ---- how much comes ---- */

void rv_chunk_comes(const rv_table *table, const rv_chunk *chunk, size_t *comes, size_t *uncounted)
{
  if (rv_books_find_hold(&table->books, chunk) != NULL) return;
  size_t bytes = rv_chunk_memory(chunk);
  *comes += bytes + sizeof(rv_hold);
  *uncounted += sizeof(rv_hold) + (rv_chunk_counted(chunk) > 0 ? 0 : bytes);
}

void rv_insert_comes(rv_table *table, const rv_trajectory *trajectory, size_t *comes, size_t *uncounted)
{
  *comes = *uncounted = rv_item_memory(trajectory);
  for (uint32_t i = 0; i < trajectory->num_chunks; i++) rv_chunk_comes(table, trajectory->chunks[i], comes, uncounted);
}

rv_code rv_insert_check_bytes(const rv_table *table, const rv_trajectory *trajectory, rv_error *err)
{
  size_t bytes = rv_item_memory(trajectory);
  for (uint32_t i = 0; i < trajectory->num_chunks; i++) bytes += rv_chunk_memory(trajectory->chunks[i]) + sizeof(rv_hold);
  return rv_table_check_bytes(table, bytes, "an item with its chunks", err);
}

/* ---- those who wait ---- */

rv_memory *rv_table_memory(const rv_table *table)
{
  return table->memory;
}

void rv_table_serve_memory(rv_table *table)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  if (table->waits_for_memory)
    rv_turn_finish(&turn);
  else
    rv_turn_leave(&turn);
}

/* ---- bounds that change ---- */

static void note_bounded(rv_table *table)
{
  bool bounded = rv_table_max_bytes(table) < SIZE_MAX || rv_memory_limit(table->memory) < SIZE_MAX;
  atomic_store_explicit(&table->bounded, bounded, memory_order_relaxed);
  if (!bounded) table->waits_for_memory = false;
  rv_table_divide_share(table);
}

void rv_table_set_max_bytes(rv_table *table, int64_t max_bytes)
{
  table->config.max_bytes = max_bytes;
  atomic_store_explicit(&table->max_bytes, max_bytes > 0 ? (size_t)max_bytes : SIZE_MAX, memory_order_relaxed);
  rv_memory_note_bound(table->memory, rv_table_max_bytes(table));
  note_bounded(table);
}

void rv_table_learn_memory_limit(rv_table *table)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  note_bounded(table);
  rv_table_leave_all_large(&turn);
  rv_turn_finish(&turn);
}

void rv_table_replay_max_bytes(rv_table *table, int64_t max_bytes)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  rv_table_set_max_bytes(table, max_bytes);
  rv_table_leave_all_large(&turn);
  rv_turn_end(&turn);
}

void rv_table_count_books(rv_table *table)
{
  size_t bytes =
      sizeof *table + rv_books_memory(&table->books) + rv_pick_memory(&table->sampler) + rv_pick_memory(&table->remover);
  if (bytes > table->counted_books)
    rv_memory_add(table->memory, bytes - table->counted_books);
  else if (bytes < table->counted_books)
    rv_memory_take_away(table->memory, table->counted_books - bytes);
  table->counted_books = bytes;
  table->counted_shrinking = rv_books_shrinking(&table->books);
  table->counted_places = rv_books_places(&table->books);
  table->counted_epoch = table->books.epoch;
}
