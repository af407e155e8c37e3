#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tensor/delta.h"
#include "tensor/literal.h"
#include "wire/cut.h"

enum { STRING_OVERHEAD = 24 }; /* what Reverb counts for a string beside its bytes in data_uncompressed_size */

void rv_cut_room_init(rv_cut_room *room)
{
  room->columns = room->few;
  room->count = 0;
  room->capacity = sizeof room->few / sizeof room->few[0];
}

static void column_fini(rv_cut_column *column)
{
  rv_buf_unref(column->copy);
  rv_pieces_fini(&column->content);
}

static void forget_from(rv_cut_room *room, size_t first)
{
  while (room->count > first) column_fini(&room->columns[--room->count]);
}

void rv_cut_room_fini(rv_cut_room *room)
{
  forget_from(room, 0);
  if (room->columns != room->few) free(room->columns);
}

void rv_cut_drop(rv_cut_room *room, const rv_cut *cut)
{
  forget_from(room, cut->first_column);
}

static rv_code reserve(rv_cut_room *room, size_t more, rv_error *err)
{
  if (room->capacity - room->count >= more) return RV_OK;
  size_t capacity = room->capacity * 2 > room->count + more ? room->capacity * 2 : room->count + more;
  rv_cut_column *grown = malloc(capacity * sizeof *grown);
  if (grown == NULL) return rv_fail_memory(err, capacity * sizeof *grown);
  memcpy(grown, room->columns, room->count * sizeof *grown);
  if (room->columns != room->few) free(room->columns);
  room->columns = grown;
  room->capacity = capacity;
  return RV_OK;
}

/* Finds the rows where they lie, or copies those that are published into zeros. */
static rv_code find_rows(rv_cut_column *column, rv_chunk *chunk, size_t index, int64_t first, int64_t count, rv_error *err)
{
  int64_t have = rv_chunk_num_rows(chunk, index) - first;
  rv_encoded encoded;
  const bool is_here = have >= count && !rv_chunk_is_spilled(chunk);
  const uint8_t *raw = is_here && rv_chunk_encoded(chunk, index, &encoded) ? rv_encoded_raw(&encoded) : NULL;
  if (raw != NULL) { /* at any alignment, which rows_in_place does not give */
    column->rows = raw + (size_t)first * column->spec->row_bytes;
    column->stride = column->spec->row_bytes;
    return RV_OK;
  }
  if (have >= count) {
    column->rows = rv_chunk_rows_in_place(chunk, index, first, count, &column->stride);
    if (column->rows != NULL || column->bytes == 0) return RV_OK;
    have = count;
  }
  if (column->bytes == 0) return RV_OK;
  if (have < 0) have = 0;
  const size_t stride = column->spec->row_bytes, there = (size_t)have * stride;
  column->copy = rv_buf_new(column->bytes);
  if (column->copy == NULL) return rv_fail_memory(err, column->bytes);
  column->copy->size = column->bytes;
  column->rows = column->copy->data;
  column->stride = stride;
  memset(column->copy->data + there, 0, column->bytes - there);
  return have > 0 ? rv_chunk_copy_rows(chunk, index, first, have, column->copy->data, err) : RV_OK;
}

static size_t string_bytes(const rv_cut_column *column, size_t num_rows)
{
  size_t per_row = column->spec->row_bytes / sizeof(rv_bytes), total = 0;
  for (size_t row = 0; row < num_rows; row++)
    for (size_t i = 0; i < per_row; i++) {
      rv_bytes value;
      memcpy(&value, (const char *)column->rows + row * column->stride + i * sizeof value, sizeof value);
      total += value.size + STRING_OVERHEAD;
    }
  return total;
}

static size_t dims_size(const rv_chunk_column *spec, int64_t num_rows)
{
  size_t size = 0;
  for (uint32_t i = 0; i <= spec->rank; i++) {
    int64_t n = i == 0 ? num_rows : spec->shape[i - 1];
    size_t dim = n == 0 ? 0 : 1 + rv_varint_size((uint64_t)n);
    size += 2 + dim;
  }
  return size;
}

static rv_code plan_content(rv_cut_column *column, const rv_cut_order *order, bool snappy, rv_error *err)
{
  const rv_chunk_column *spec = column->spec;
  bool delta = order->delta && order->count > 1 && rv_delta_applies(spec->dtype, spec->rank + 1);
  if (spec->dtype != RV_STRING && !snappy && !delta) {
    if (column->bytes > RV_BLOCK_MAX_BYTES)
      return rv_fail(err, RV_INVALID_ARGUMENT, "%zu bytes in one chunk's tensor; use fewer rows a chunk", column->bytes);
    column->content_size = rv_literal_size(column->bytes);
    return RV_OK;
  }
  rv_code code = rv_encode(&column->content, spec->dtype, spec->rank, spec->shape, column->rows, column->stride,
                           (size_t)order->count, delta, snappy, err);
  column->content_size = column->content.bytes;
  return code;
}

static rv_code plan_column(rv_cut_room *room, rv_cut *cut, size_t index, const rv_cut_order *order, rv_error *err)
{
  rv_cut_column *column = &room->columns[room->count++];
  *column = (rv_cut_column){.spec = rv_chunk_get_column(cut->chunk, index)};
  rv_pieces_init(&column->content);
  if (__builtin_mul_overflow(column->spec->row_bytes, (size_t)order->count, &column->bytes) || column->bytes > INT64_MAX)
    return rv_fail(err, RV_INVALID_ARGUMENT, "%lld rows of %zu bytes in one chunk", (long long)order->count,
                   column->spec->row_bytes);
  rv_code code = find_rows(column, cut->chunk, index, order->first, order->count, err);
  if (code != RV_OK) return code;
  bool snappy = index < order->snappy.size && order->snappy.data[index] != 0;
  code = plan_content(column, order, snappy, err);
  if (code != RV_OK) return code;
  size_t dims = dims_size(column->spec, order->count);
  column->tensor_size = 1 + rv_varint_size((uint64_t)column->spec->dtype) + 1 + rv_varint_size(dims) + dims + 1 +
                        rv_varint_size(column->content_size) + column->content_size;
  cut->data_size += 1 + rv_varint_size(column->tensor_size) + column->tensor_size;
  cut->uncompressed += column->spec->dtype == RV_STRING ? string_bytes(column, (size_t)order->count) : column->bytes;
  return RV_OK;
}

static size_t varint_field_size(uint64_t value)
{
  return value == 0 ? 0 : 1 + rv_varint_size(value);
}

static size_t range_size(const rv_chunk_meta *meta)
{
  return varint_field_size(meta->episode_id) + varint_field_size((uint64_t)(int64_t)meta->first_step) +
         varint_field_size((uint64_t)(int64_t)meta->last_step) + varint_field_size(meta->sparse);
}

rv_code rv_cut_plan(rv_cut_room *room, rv_chunk *chunk, const rv_cut_order *order, rv_cut *out, rv_error *err)
{
  size_t num_columns = order->column == SIZE_MAX ? rv_chunk_num_columns(chunk) : 1;
  size_t from = order->column == SIZE_MAX ? 0 : order->column;
  *out = (rv_cut){.chunk = chunk,
                  .key = order->key,
                  .meta = rv_chunk_meta_of_rows(chunk, order->first, order->count),
                  .first = order->first,
                  .count = order->count,
                  .delta = order->delta,
                  .first_column = room->count,
                  .num_columns = num_columns};
  out->meta.key = order->key;
  rv_code code = reserve(room, num_columns, err);
  for (size_t i = 0; code == RV_OK && i < num_columns; i++) {
    code = plan_column(room, out, from + i, order, err);
    if (code == RV_OK && out->data_size > INT32_MAX)
      code = rv_fail(err, RV_INVALID_ARGUMENT, "a chunk takes more than 2 GiB when sent; use fewer rows a chunk");
  }
  if (code != RV_OK) {
    rv_cut_drop(room, out);
    return code;
  }
  size_t range = range_size(&out->meta);
  out->size = varint_field_size(out->key) + 1 + rv_varint_size(range) + range + varint_field_size(out->delta) + 1 +
              rv_varint_size(out->data_size) + out->data_size + varint_field_size(num_columns) +
              varint_field_size(out->uncompressed);
  return RV_OK;
}
