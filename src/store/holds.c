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

/* Strings may have joined a segment since it was measured. */
static void measure(rv_books *books, rv_hold *hold)
{
  size_t memory = rv_chunk_memory(hold->chunk);
  books->chunk_memory += memory - hold->memory;
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

static rv_hold *find_hold(const rv_books *books, const rv_chunk *chunk)
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
  return rv_map_put(&books->by_chunk, address(hold->chunk), hold->index) == RV_OK ? RV_OK
                                                                                  : rv_fail_memory(err, sizeof(rv_map_entry));
}

void rv_books_unmark(rv_books *books, rv_hold *hold)
{
  uint64_t mark = mark_of(books, hold->index);
  if (!atomic_compare_exchange_strong_explicit(&hold->chunk->held, &mark, 0, memory_order_relaxed, memory_order_relaxed))
    rv_map_remove(&books->by_chunk, address(hold->chunk));
}

static rv_code add_hold(rv_books *books, rv_chunk *chunk, rv_hold **out, rv_error *err)
{
  rv_hold *hold = malloc(sizeof *hold);
  if (hold == NULL) return rv_fail_memory(err, sizeof *hold);
  *hold = (rv_hold){.chunk = chunk, .first = RV_NO_SLOT};
  rv_list_init(&hold->loose);
  rv_list_init(&hold->sparse);
  if (chunk->is_segment) hold->sparse_below = rv_segment_capacity(chunk) / 2;
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
  measure(books, hold);
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
  *out = find_hold(books, chunk);
  if (*out == NULL) return add_hold(books, chunk, out, err);
  if (chunk->has_strings) measure(books, *out);
  return RV_OK;
}

rv_hold *rv_books_find_hold(const rv_books *books, const rv_chunk *chunk)
{
  return find_hold(books, chunk);
}

void rv_books_forget_sparse(rv_books *books, rv_hold *hold)
{
  if (rv_list_empty(&hold->sparse)) return;
  rv_list_remove(&hold->sparse);
  books->num_sparse--;
}

void rv_books_drop_if_unused(rv_books *books, rv_hold *hold, rv_garbage *garbage)
{
  if (hold->items > 0 || hold->open) return;
  rv_books_forget_sparse(books, hold);
  rv_books_unmark(books, hold);
  books->present_holds--;
  if (uncount_episode(books, hold->chunk->meta.episode_id)) books->episodes_gone++;
  books->chunk_memory -= hold->memory;
  give_place(books, hold->index);
  hold->next_garbage = garbage->holds;
  garbage->holds = hold;
}
