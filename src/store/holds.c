/* The chunks that a table holds, and the episodes that they come from. */
#include <stdlib.h>

#include "base/error.h"
#include "store/books.h"
#include "store/chunk_parts.h"

static uint64_t address(const rv_chunk *chunk)
{
  return (uint64_t)(uintptr_t)chunk;
}
/* ---- where a chunk's hold is ----
 *
 * Most chunks are held by one table, so the chunk itself says where: the first table that takes it writes its tag and the hold's
 * index there, and nobody else does until it has cleared that again. Other tables have a map. What the chunk says is only believed
 * where the hold confirms it, so that tables which drew the same tag do not mistake each other's. */

static uint64_t mark_of(const rv_books *books, uint32_t index)
{
  return (uint64_t)books->hold_tag << 32 | index;
}

static rv_hold **place_at(const rv_books *books, uint32_t index)
{
  return RV_SEGARRAY_AT(&books->holds, rv_hold *, index);
}

static bool lies_elsewhere(const rv_books *books, const rv_hold *hold)
{
  return books->keeps_cold && rv_chunk_is_spilled(hold->chunk);
}

static rv_sparse_holds *sparse_holds_of(rv_books *books, const rv_hold *hold)
{
  return lies_elsewhere(books, hold) ? &books->spilled_sparse : &books->sparse;
}

/* Strings may have joined a segment since it was measured. */
void rv_books_measure(rv_books *books, rv_hold *hold)
{
  rv_chunk_count(hold->chunk, books->memory);
  size_t memory = rv_chunk_memory(hold->chunk);
  books->chunk_memory += memory - hold->memory;
  if (hold->open) books->open_memory += memory - hold->memory;
  if (!rv_list_empty(&hold->sparse)) sparse_holds_of(books, hold)->memory += memory - hold->memory;
  if (lies_elsewhere(books, hold)) books->spilled_memory += memory - hold->memory;
  hold->memory = memory;
}

static rv_code count_episode(rv_books *books, uint64_t episode, rv_error *err)
{
  uint32_t *count = rv_map_get(&books->episodes, episode);
  if (count != NULL) {
    ++*count;
    return RV_OK;
  }
  return rv_map_put(&books->episodes, episode, 1) == RV_OK ? RV_OK : rv_fail_memory(err, sizeof(rv_map_entry));
}

/* True: that was its last hold. */
static bool uncount_episode(rv_books *books, uint64_t episode)
{
  if (--*rv_map_get(&books->episodes, episode) > 0) return false;
  rv_map_remove(&books->episodes, episode);
  return true;
}

/* Free places are numbered oddly, which no address is. */
static rv_code take_place(rv_books *books, uint32_t *index, rv_error *err)
{
  if (books->free_hold != RV_NO_SLOT) {
    *index = books->free_hold;
    books->free_hold = (uint32_t)((uintptr_t)*place_at(books, *index) >> 1);
    return RV_OK;
  }
  rv_code code = rv_segarray_grow(&books->holds, (uint64_t)books->num_holds + 1, err);
  if (code == RV_OK) *index = books->num_holds++;
  return code;
}

static void give_place(rv_books *books, uint32_t index)
{
  *place_at(books, index) = (rv_hold *)((uintptr_t)books->free_hold << 1 | 1U);
  books->free_hold = index;
}

rv_hold *rv_books_find_hold(const rv_books *books, const rv_chunk *chunk)
{
  uint64_t mark = atomic_load_explicit(&chunk->held, memory_order_relaxed);
  uint32_t index = (uint32_t)mark;
  if (mark >> 32 == books->hold_tag && index < books->num_holds) {
    rv_hold *hold = *place_at(books, index);
    if (((uintptr_t)hold & 1U) == 0 && hold->chunk == chunk) return hold;
  }
  if (books->by_chunk.count == 0) return NULL;
  const uint32_t *found = rv_map_get(&books->by_chunk, address(chunk));
  rv_hold *hold = found == NULL ? NULL : *place_at(books, *found);
  return hold != NULL && ((uintptr_t)hold & 1U) == 0 && hold->chunk == chunk ? hold : NULL;
}

static rv_code note_hold(rv_books *books, rv_hold *hold, rv_error *err)
{
  uint64_t none = 0;
  if (atomic_compare_exchange_strong_explicit(&hold->chunk->held, &none, mark_of(books, hold->index), memory_order_relaxed,
                                              memory_order_relaxed))
    return RV_OK;
  if (rv_map_put(&books->by_chunk, address(hold->chunk), hold->index) != RV_OK) return rv_fail_memory(err, sizeof(rv_map_entry));
  atomic_fetch_add_explicit(&hold->chunk->more_holds, 1, memory_order_relaxed);
  return RV_OK;
}

/* Either the map has the chunk, or the chunk's mark is this hold's, and nobody else's to change. */
void rv_books_unmark(rv_books *books, rv_hold *hold)
{
  if (books->by_chunk.count > 0 && rv_map_remove(&books->by_chunk, address(hold->chunk)))
    atomic_fetch_sub_explicit(&hold->chunk->more_holds, 1, memory_order_relaxed);
  else
    atomic_store_explicit(&hold->chunk->held, 0, memory_order_relaxed);
}

/* ---- what is worth compacting ---- */

enum { TINY_ROW = 128, BOOKS_BYTES = 512 }; /* about what a chunk and its hold take beside the rows */

/* Rows move where they then take less than half of what the chunk does; compressed ones may take more than they did. Where items die in
 * no order, what is left of a segment shrinks by the same part in every while: segments between half and full are 1.4 times their live
 * rows, between three quarters and full 1.15 times, for at most three rows that are moved where one is won. Tiny rows that
 * came over the wire (joined.h) would take ten times their bytes by themselves: one is moved where three are won, of others one where one is. */
static int64_t sparse_below(const rv_books *books, const rv_chunk *chunk)
{
  int64_t rows = chunk->is_segment ? rv_segment_capacity(chunk) : rv_chunk_num_rows(chunk, 0);
  if (rows < 3) return 0;
  size_t memory = rv_chunk_memory(chunk);
  if (memory < 2 * BOOKS_BYTES) return 0;
  int64_t half = (rows + 1) / 2;
  if (chunk->is_segment && rv_segment_is_joined(chunk)) return rv_segment_row_bytes(chunk) <= TINY_ROW ? rows / 4 : half;
  if (chunk->is_segment) return books->oldest_first ? half : rows - rows / 4;
  size_t row = chunk->has_strings ? memory / (size_t)rows : 0;
  for (uint32_t i = 0; i < chunk->num_columns; i++) row += chunk->lanes[i].row_bytes;
  if (row == 0 || row > SIZE_MAX / 2) return 0;
  size_t pays = (memory - BOOKS_BYTES) / (2 * row);
  return pays < (size_t)half ? (int64_t)pays : half;
}

/* A chunk that came from elsewhere may have rows that no item ever wants. Its items come soon after it does, so it is looked at when
 * a few more have come. */
static void note_recent(rv_books *books, const rv_hold *hold)
{
  uint32_t *place = &books->recent[books->next_recent++ % RV_RECENT_HOLDS], index = *place;
  *place = hold->index;
  if (index >= books->num_holds) return;
  rv_hold *earlier = *place_at(books, index);
  if (((uintptr_t)earlier & 1U) == 0) rv_books_note_sparse(books, earlier);
}

void rv_books_add_sparse(rv_books *books, rv_hold *hold)
{
  rv_sparse_holds *holds = sparse_holds_of(books, hold);
  rv_list_push_back(&holds->list, &hold->sparse);
  holds->num++;
  holds->memory += hold->memory;
  atomic_fetch_add_explicit(&hold->chunk->num_sparse, 1, memory_order_relaxed);
}

void rv_books_forget_sparse(rv_books *books, rv_hold *hold)
{
  if (rv_list_empty(&hold->sparse)) return;
  rv_sparse_holds *holds = sparse_holds_of(books, hold);
  rv_list_remove(&hold->sparse);
  holds->num--;
  holds->memory -= hold->memory;
  atomic_fetch_sub_explicit(&hold->chunk->num_sparse, 1, memory_order_relaxed);
}

/* Where half of the rows have gone one is read and written again for each that is won. */
static int64_t spilled_sparse_below(const rv_books *books, const rv_chunk *chunk, int64_t below)
{
  return chunk->is_segment && !rv_segment_is_joined(chunk) && !books->oldest_first ? below - below / 3 : below;
}

void rv_books_note_spilled(rv_books *books, rv_hold *hold)
{
  books->spilled_memory += hold->memory;
  hold->sparse_below = spilled_sparse_below(books, hold->chunk, hold->sparse_below);
  rv_books_note_sparse(books, hold);
}

/* ---- holding ---- */

/* NULL: out of memory. */
static rv_hold *take_memory(rv_books *books)
{
  rv_hold *spare = books->spare_holds;
  if (spare == NULL) return malloc(sizeof *spare);
  books->spare_holds = spare->next_garbage;
  return spare;
}

static rv_code add_hold(rv_books *books, rv_chunk *chunk, rv_hold **out, rv_error *err)
{
  rv_hold *hold = take_memory(books);
  if (hold == NULL) return rv_fail_memory(err, sizeof *hold);
  *hold = (rv_hold){.chunk = chunk, .first = RV_NO_SLOT};
  rv_list_init(&hold->loose);
  rv_list_init(&hold->sparse);
  rv_list_init(&hold->cold);
  rv_list_init(&hold->placed);
  hold->sparse_below = sparse_below(books, chunk);
  if (lies_elsewhere(books, hold)) hold->sparse_below = spilled_sparse_below(books, chunk, hold->sparse_below);
  rv_code code = take_place(books, &hold->index, err);
  if (code != RV_OK) goto no_place;
  code = count_episode(books, chunk->meta.episode_id, err);
  if (code != RV_OK) goto no_episode;
  code = note_hold(books, hold, err);
  if (code != RV_OK) {
    uncount_episode(books, chunk->meta.episode_id);
    goto no_episode;
  }
  *place_at(books, hold->index) = hold;
  books->present_holds++;
  rv_chunk_ref(chunk);
  rv_books_measure(books, hold);
  if ((!chunk->is_segment || rv_segment_is_joined(chunk)) && hold->sparse_below > 0) note_recent(books, hold);
  rv_books_note_cold(books, hold);
  *out = hold;
  return RV_OK;
no_episode:
  give_place(books, hold->index);
no_place:
  free(hold);
  return code;
}

rv_code rv_books_hold(rv_books *books, rv_chunk *chunk, rv_hold **out, rv_error *err)
{
  *out = rv_books_find_hold(books, chunk);
  if (*out == NULL) return add_hold(books, chunk, out, err);
  if (chunk->has_strings) rv_books_measure(books, *out);
  return RV_OK;
}

void rv_books_drop_if_unused(rv_books *books, rv_hold *hold, rv_garbage *garbage)
{
  if (hold->items > 0 || hold->open) return;
  rv_books_forget_sparse(books, hold);
  rv_list_remove(&hold->cold);
  rv_books_unmark(books, hold);
  books->present_holds--;
  const uint64_t episode = hold->chunk->meta.episode_id;
  if (uncount_episode(books, episode) && episode != RV_NO_EPISODE) books->episodes_gone++;
  books->chunk_memory -= hold->memory;
  if (lies_elsewhere(books, hold)) books->spilled_memory -= hold->memory;
  give_place(books, hold->index);
  hold->next_garbage = garbage->holds;
  garbage->holds = hold;
}

void rv_books_leave(rv_books *books, rv_hold *hold, rv_garbage *garbage)
{
  rv_books_close(books, hold);
  rv_books_note_sparse(books, hold);
  rv_books_drop_if_unused(books, hold, garbage);
}
