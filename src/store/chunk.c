#include "store/chunk.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/refs.h"
#include "base/small_copies.h"
#include "store/chunk_parts.h"
#include "store/memory.h"

size_t rv_chunk_books_size(size_t size, size_t num_columns, size_t num_sizes)
{
  size_t lanes, columns, shapes, total;
  if (__builtin_mul_overflow(num_columns, sizeof(rv_lane), &lanes) ||
      __builtin_mul_overflow(num_columns, sizeof(rv_chunk_column), &columns) ||
      __builtin_mul_overflow(num_sizes, sizeof(int64_t), &shapes) || __builtin_add_overflow(size, lanes, &total) ||
      __builtin_add_overflow(total, columns, &total) || __builtin_add_overflow(total, shapes, &total))
    return 0;
  return total;
}

int64_t *rv_chunk_books_init(rv_chunk *chunk, size_t size, size_t num_columns, const rv_chunk_meta *meta, bool is_segment)
{
  atomic_init(&chunk->refs, 1);
  atomic_init(&chunk->held, 0);
  atomic_init(&chunk->logged, 0);
  atomic_init(&chunk->written, 0);
  atomic_init(&chunk->more_holds, 0);
  atomic_init(&chunk->num_sparse, 0);
  atomic_init(&chunk->account, NULL);
  atomic_init(&chunk->counted, 0);
  chunk->spilled = 0;
  atomic_init(&chunk->kept, 0);
  chunk->steps = NULL;
  chunk->num_columns = (uint32_t)num_columns;
  chunk->is_segment = is_segment;
  chunk->has_strings = chunk->in_owner = chunk->decodes = false;
  chunk->meta = *meta;
  chunk->lanes = (rv_lane *)(void *)((uint8_t *)chunk + size);
  chunk->columns = (rv_chunk_column *)(void *)(chunk->lanes + num_columns);
  return (int64_t *)(void *)(chunk->columns + num_columns);
}

rv_chunk *rv_chunk_ref(rv_chunk *chunk)
{
  atomic_fetch_add_explicit(&chunk->refs, 1, memory_order_relaxed);
  return chunk;
}

void rv_chunk_ref_many(rv_chunk *chunk, size_t n)
{
  atomic_fetch_add_explicit(&chunk->refs, n, memory_order_relaxed);
}

void rv_chunk_unref_many(rv_chunk *chunk, size_t n)
{
  if (!rv_refs_drop(&chunk->refs, n)) return;
  rv_memory *account = atomic_load_explicit(&chunk->account, memory_order_relaxed);
  size_t counted = rv_chunk_counted(chunk), spilled = chunk->spilled;
  free(chunk->steps);
  if (chunk->is_segment)
    rv_segment_free(chunk);
  else
    rv_encoded_free(chunk);
  if (account == NULL) return;
  if (spilled > 0) atomic_fetch_sub_explicit(&account->spilled, spilled, memory_order_relaxed);
  rv_memory_take_away(account, counted);
}

bool rv_chunk_unref_unless_last(rv_chunk *chunk)
{
  return rv_refs_drop_unless_last(&chunk->refs);
}

void rv_chunk_unref(rv_chunk *chunk)
{
  if (chunk != NULL) rv_chunk_unref_many(chunk, 1);
}

const rv_chunk_meta *rv_chunk_get_meta(const rv_chunk *chunk)
{
  return &chunk->meta;
}

rv_chunk_meta rv_chunk_load_meta(const rv_chunk *chunk)
{
  const rv_chunk_meta *meta = &chunk->meta;
  return (rv_chunk_meta){.key = meta->key,
                         .episode_id = meta->episode_id,
                         .first_step = meta->first_step,
                         .last_step = __atomic_load_n(&meta->last_step, __ATOMIC_RELAXED),
                         .sparse = __atomic_load_n(&meta->sparse, __ATOMIC_RELAXED)};
}

void rv_chunk_set_last_step(rv_chunk *segment, int32_t last_step, bool sparse)
{
  __atomic_store_n(&segment->meta.last_step, last_step, __ATOMIC_RELAXED);
  __atomic_store_n(&segment->meta.sparse, sparse, __ATOMIC_RELAXED);
}

/* ---- steps ---- */

rv_code rv_segment_keep_steps(rv_chunk *segment, rv_error *err)
{
  size_t bytes = (size_t)rv_segment_capacity(segment) * sizeof *segment->steps; /* a capacity is below 2^31 */
  segment->steps = malloc(bytes);
  return segment->steps == NULL ? rv_fail_memory(err, bytes) : RV_OK;
}

/* A chunk without gaps has one row a step. A slice of no rows may begin behind the last one. */
int64_t rv_chunk_row_step(const rv_chunk *chunk, int64_t row)
{
  if (chunk->steps != NULL) return row < rv_chunk_num_rows(chunk, 0) ? chunk->steps[row] : -1;
  rv_chunk_meta meta = rv_chunk_load_meta(chunk);
  return meta.sparse && row > 0 ? -1 : (int64_t)meta.first_step + row;
}

static int32_t step_at(int32_t first, int64_t rows)
{
  int64_t step = first + rows;
  return step > INT32_MAX ? INT32_MAX : (int32_t)step;
}

/* Rows that were moved: each may come from elsewhere in the episode. */
static void bound_steps(const int32_t *steps, int64_t count, rv_chunk_meta *meta)
{
  int32_t lowest = INT32_MAX, highest = -1;
  bool sparse = false;
  for (int64_t i = 0; i < count; i++) {
    if (steps[i] < 0) return;
    if (steps[i] < lowest) lowest = steps[i];
    if (steps[i] > highest) highest = steps[i];
    sparse |= i > 0 && steps[i] != (int64_t)steps[i - 1] + 1;
  }
  if (count == 0) return;
  meta->first_step = lowest;
  meta->last_step = highest;
  meta->sparse = sparse;
}

/* Where no step is without a row, the rows' own steps are known; else all that can be said is the chunk's. */
rv_chunk_meta rv_chunk_meta_of_rows(const rv_chunk *chunk, int64_t first, int64_t count)
{
  rv_chunk_meta meta = rv_chunk_load_meta(chunk);
  if (chunk->steps != NULL) {
    bound_steps(chunk->steps + first, count, &meta);
  } else if (!meta.sparse) {
    meta.first_step = step_at(meta.first_step, first);
    meta.last_step = count > 0 ? step_at(meta.first_step, count - 1) : meta.first_step;
  }
  return meta;
}

/* ---- looking in ---- */

size_t rv_chunk_num_columns(const rv_chunk *chunk)
{
  return chunk->num_columns;
}
const rv_chunk_column *rv_chunk_get_column(const rv_chunk *chunk, size_t column)
{
  return &chunk->columns[column];
}

int64_t rv_chunk_num_rows(const rv_chunk *chunk, size_t column)
{
  return atomic_load_explicit(&chunk->lanes[column].published, memory_order_acquire);
}

size_t rv_chunk_memory(const rv_chunk *chunk)
{
  if (!chunk->is_segment) return rv_encoded_memory(chunk);
  size_t steps = chunk->steps == NULL ? 0 : (size_t)rv_segment_capacity(chunk) * sizeof *chunk->steps;
  return rv_segment_memory(chunk) + steps;
}

void rv_chunk_count_new(rv_chunk *chunk, rv_memory *memory)
{
  if (rv_chunk_counted(chunk) > 0) return;
  size_t bytes = rv_chunk_memory(chunk);
  atomic_store_explicit(&chunk->account, memory, memory_order_relaxed);
  atomic_store_explicit(&chunk->counted, bytes, memory_order_relaxed);
  rv_memory_add(memory, bytes);
}

void rv_chunk_count(rv_chunk *chunk, rv_memory *memory)
{
  rv_memory *account = atomic_load_explicit(&chunk->account, memory_order_relaxed);
  if (account == NULL &&
      atomic_compare_exchange_strong_explicit(&chunk->account, &account, memory, memory_order_relaxed, memory_order_relaxed))
    account = memory;
  size_t bytes = rv_chunk_memory(chunk) - chunk->spilled;
  if (rv_chunk_counted(chunk) == bytes) return; /* mostly it was counted before, and is as it was */
  size_t before = atomic_exchange_explicit(&chunk->counted, bytes, memory_order_relaxed);
  if (bytes > before)
    rv_memory_add(account, bytes - before);
  else if (bytes < before)
    rv_memory_take_away(account, before - bytes); /* two threads that looked at the same time */
}

void rv_chunk_keep(rv_chunk *chunk)
{
  rv_chunk_ref(chunk);
  atomic_fetch_add(&chunk->kept, 1);
}

void rv_chunk_end_keeping(rv_chunk *chunk)
{
  atomic_fetch_sub(&chunk->kept, 1);
  rv_chunk_unref(chunk);
}

bool rv_chunk_movable(const rv_chunk *chunk, const uint8_t **bytes, size_t *size)
{
  if (chunk->spilled > 0) return false;
  bool movable = chunk->is_segment ? rv_segment_movable(chunk, bytes, size) : rv_encoded_movable(chunk, bytes, size);
  return movable && *size >= RV_COLD_LEAST;
}

void rv_chunk_move(rv_chunk *chunk, rv_cold_place *owned_place, rv_moved *old)
{
  rv_memory *account = atomic_load_explicit(&chunk->account, memory_order_relaxed); /* a table holds it, so it has one */
  size_t size = owned_place->buf.size;
  if (chunk->is_segment)
    rv_segment_move(chunk, owned_place, old);
  else
    rv_encoded_move(chunk, owned_place, old);
  chunk->spilled = size;
  atomic_fetch_sub_explicit(&chunk->counted, size, memory_order_relaxed);
  atomic_fetch_add_explicit(&account->spilled, size, memory_order_relaxed);
  rv_memory_take_away(account, size);
}

size_t rv_chunk_counted(const rv_chunk *chunk)
{
  return atomic_load_explicit(&chunk->counted, memory_order_relaxed);
}

bool rv_chunk_same_columns(const rv_chunk *a, const rv_chunk *b)
{
  if (a->num_columns != b->num_columns) return false;
  for (uint32_t i = 0; i < a->num_columns; i++) {
    const rv_chunk_column *x = &a->columns[i], *y = &b->columns[i];
    if (x->dtype != y->dtype || x->rank != y->rank) return false;
    for (uint32_t d = 0; d < x->rank; d++)
      if (x->shape[d] != y->shape[d]) return false;
  }
  return true;
}

/* RV_OUT_OF_RANGE unless [first, first + count) of the column is published. */
static rv_code check_rows(const rv_chunk *chunk, size_t column, int64_t first, int64_t count, rv_error *err)
{
  if (column >= chunk->num_columns)
    return rv_fail(err, RV_OUT_OF_RANGE, "tensor %zu of a chunk that has %u", column, (unsigned)chunk->num_columns);
  int64_t rows = rv_chunk_num_rows(chunk, column);
  if (first < 0 || count < 0 || first > rows || count > rows - first)
    return rv_fail(err, RV_OUT_OF_RANGE, "%lld rows from row %lld of a chunk's tensor that has %lld", (long long)count,
                   (long long)first, (long long)rows);
  return RV_OK;
}

rv_code rv_chunk_copy_rows(rv_chunk *chunk, size_t column, int64_t first, int64_t count, void *out, rv_error *err)
{
  rv_code code = check_rows(chunk, column, first, count, err);
  if (code != RV_OK) return code;
  const rv_lane *lane = &chunk->lanes[column];
  if (lane->base != NULL) {
    rv_copy_strided(out, lane->row_bytes, lane->base + (size_t)first * lane->stride, lane->stride, lane->row_bytes,
                    (size_t)count);
    return RV_OK;
  }
  if (count == 0 || lane->row_bytes == 0) return RV_OK;
  if (chunk->spilled > 0 && rv_chunk_is_raw(chunk, column)) return rv_chunk_read_rows(chunk, column, first, count, out, err);
  rv_buf *rows = NULL;
  code = rv_chunk_decode(chunk, column, &rows, err);
  if (code != RV_OK) return code;
  memcpy(out, rows->data + (size_t)first * lane->row_bytes, (size_t)count * lane->row_bytes);
  rv_buf_unref(rows);
  return RV_OK;
}

/* Callers look through the pointer with the element's type. */
static bool aligned(const rv_chunk *chunk, size_t column)
{
  size_t size = rv_dtype_size(chunk->columns[column].dtype);
  return size <= 1 || (uintptr_t)chunk->lanes[column].base % (size > 8 ? 8 : size) == 0;
}

const void *rv_chunk_rows_in_place(rv_chunk *chunk, size_t column, int64_t first, int64_t count, size_t *stride)
{
  if (check_rows(chunk, column, first, count, NULL) != RV_OK) return NULL;
  const rv_lane *lane = &chunk->lanes[column];
  if (lane->base == NULL || (!chunk->is_segment && !aligned(chunk, column))) return NULL;
  *stride = lane->stride;
  return lane->base + (size_t)first * lane->stride;
}
