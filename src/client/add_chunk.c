#include "client/add_chunk.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/spares.h"

enum {
  CHUNK_BYTES =
      RV_SPARE_MAX - (16 << 10), /* its segment, with what lies between columns, is memory that is kept and may be lent */
  CHUNK_ROWS_MAX = 65536,
  TRIAL_BYTES = 4096
};

static rv_code row_bytes(const rv_tensor *column, size_t *bytes, rv_error *err)
{
  size_t elements;
  return rv_shape_elements(column->dtype, column->rank - 1, column->shape + 1, &elements, bytes, err);
}

/* What rows take that are all alike; *strings: others of their columns are to be measured one by one. */
static rv_code measure_alike(const rv_add *add, size_t *bytes, bool *strings, rv_error *err)
{
  *bytes = 0;
  *strings = false;
  for (size_t i = 0; i < add->num_columns; i++) {
    const rv_tensor *column = &add->columns[i];
    size_t elements, all;
    rv_code code = rv_shape_elements(column->dtype, column->rank, column->shape, &elements, &all, err);
    if (code == RV_OK && all > 0 && column->data == NULL) code = rv_fail(err, RV_INVALID_ARGUMENT, "it has no data");
    if (code != RV_OK) {
      rv_error_prefix(err, "column %zu", i);
      return code;
    }
    *strings = *strings || column->dtype == RV_STRING;
    if (column->dtype != RV_STRING && __builtin_add_overflow(*bytes, all / add->n, bytes)) *bytes = SIZE_MAX;
  }
  return RV_OK;
}

/* SIZE_MAX: more than can be counted. */
static size_t string_bytes(const rv_add *add, size_t row)
{
  size_t bytes = 0, size;
  for (size_t i = 0; i < add->num_columns; i++) {
    const rv_tensor *column = &add->columns[i];
    if (column->dtype != RV_STRING || row_bytes(column, &size, NULL) != RV_OK) continue;
    size_t elements = size / sizeof(rv_bytes);
    const rv_bytes *strings = column->data;
    for (size_t j = row * elements; j < (row + 1) * elements; j++)
      if (__builtin_add_overflow(bytes, strings[j].size, &bytes)) return SIZE_MAX;
  }
  return bytes;
}

rv_code rv_add_rows_of_chunk(const rv_add *add, size_t first, size_t *rows, rv_error *err)
{
  size_t alike, left = add->n - first;
  bool strings;
  rv_code code = measure_alike(add, &alike, &strings, err);
  if (code != RV_OK) return code;
  size_t most = alike < CHUNK_BYTES ? CHUNK_BYTES / (alike + 1) : 1, room = CHUNK_BYTES;
  if (most > CHUNK_ROWS_MAX) most = CHUNK_ROWS_MAX;
  size_t chunks = (left + most - 1) / most;
  most = (left + chunks - 1) / chunks; /* no small one is left at the end */
  *rows = strings ? 0 : most;
  for (size_t bytes; *rows < most; room -= bytes, ++*rows) {
    bytes = string_bytes(add, first + *rows);
    if (__builtin_add_overflow(bytes, alike, &bytes) || bytes > room) break;
  }
  if (*rows == 0) *rows = 1;
  return RV_OK;
}

/* ---- the chunk ---- */

static rv_code new_segment(const rv_add *add, size_t count, const rv_chunk_meta *meta, rv_spares *spares, rv_chunk **out,
                           rv_error *err)
{
  rv_spec *specs = calloc(add->num_columns, sizeof *specs);
  if (specs == NULL) return rv_fail_memory(err, add->num_columns * sizeof *specs);
  for (size_t i = 0; i < add->num_columns; i++)
    specs[i] = (rv_spec){.name = "",
                         .dtype = add->columns[i].dtype,
                         .rank = (int32_t)add->columns[i].rank - 1,
                         .shape = add->columns[i].shape + 1};
  rv_code code = rv_segment_new_from(specs, add->num_columns, count, meta, &(rv_segment_source){.spares = spares}, out, err);
  free(specs);
  return code;
}

static rv_code fill_column(rv_chunk *segment, size_t index, const rv_tensor *column, size_t first, size_t count, rv_error *err)
{
  size_t bytes, stride;
  rv_code code = row_bytes(column, &bytes, err);
  if (code != RV_OK) return code;
  const uint8_t *from = bytes > 0 ? (const uint8_t *)column->data + first * bytes : NULL;
  if (column->dtype == RV_STRING) {
    for (size_t i = 0; i < count && code == RV_OK; i++) {
      rv_tensor row = {
          .dtype = RV_STRING, .rank = column->rank - 1, .shape = column->shape + 1, .data = bytes > 0 ? from + i * bytes : NULL};
      code = rv_segment_put(segment, index, (int64_t)i, &row, err);
    }
  } else if (bytes > 0) {
    uint8_t *to = rv_segment_row(segment, index, 0, &stride);
    for (size_t i = 0; i < count; i++) memcpy(to + i * stride, from + i * bytes, bytes);
  }
  if (code == RV_OK) rv_segment_publish(segment, index, (int64_t)count);
  return code;
}

/* Which columns are worth compressing: a byte each. */
static uint8_t *choose_compression(const rv_add *add, size_t first, size_t count)
{
  uint8_t *snappy = calloc(add->num_columns, 1);
  for (size_t i = 0; snappy != NULL && i < add->num_columns; i++) {
    const rv_tensor *column = &add->columns[i];
    size_t bytes;
    if (column->dtype == RV_STRING || row_bytes(column, &bytes, NULL) != RV_OK || bytes * count < TRIAL_BYTES) continue;
    snappy[i] = rv_compression_pays((const uint8_t *)column->data + first * bytes, bytes * count);
  }
  return snappy;
}

static rv_code serialize(const rv_add *add, rv_chunk *segment, size_t first, size_t count, uint64_t key, rv_pieces *out,
                         rv_error *err)
{
  uint8_t *snappy = choose_compression(add, first, count);
  if (snappy == NULL) return rv_fail_memory(err, add->num_columns);
  rv_chunk_encoding encoding = {
      .key = key, .column = SIZE_MAX, .count = (int64_t)count, .snappy = {.data = snappy, .size = add->num_columns}};
  rv_code code = rv_chunk_serialize(out, segment, &encoding, err);
  free(snappy);
  return code;
}

rv_code rv_add_chunk_new(const rv_add *add, size_t first, size_t count, rv_random *random, rv_spares *spares,
                         rv_stream_chunk **out, rv_error *err)
{
  rv_chunk_meta meta = {.key = rv_random_next(random), .episode_id = RV_NO_EPISODE, .last_step = (int32_t)(count - 1)};
  rv_chunk *segment;
  rv_code code = new_segment(add, count, &meta, spares, &segment, err);
  if (code != RV_OK) return code;
  for (size_t i = 0; i < add->num_columns && code == RV_OK; i++)
    code = fill_column(segment, i, &add->columns[i], first, count, err);
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  if (code == RV_OK) code = serialize(add, segment, first, count, meta.key, &pieces, err);
  if (code == RV_OK) code = rv_stream_chunk_new(meta.key, &pieces, 1, NULL, out, err);
  rv_pieces_fini(&pieces);
  rv_chunk_unref(segment);
  return code;
}

/* ---- layout and items ---- */

rv_code rv_add_layout_init(rv_add_layout *layout, const rv_add *add, rv_error *err)
{
  layout->specs = calloc(add->num_columns + 1, sizeof *layout->specs);
  layout->columns = calloc(add->num_columns + 1, sizeof *layout->columns);
  if (layout->specs == NULL || layout->columns == NULL) {
    rv_add_layout_fini(layout);
    return rv_fail_memory(err, add->num_columns * (sizeof *layout->specs + sizeof *layout->columns));
  }
  for (size_t i = 0; i < add->num_columns; i++) {
    const rv_tensor *column = &add->columns[i];
    layout->specs[i] = (rv_chunk_column){.dtype = column->dtype, .rank = column->rank - 1, .shape = column->shape + 1};
    layout->columns[i] = (rv_trajectory_column){.squeeze = true, .length = 1, .spec = &layout->specs[i]};
  }
  return RV_OK;
}

void rv_add_layout_fini(rv_add_layout *layout)
{
  free(layout->specs);
  free(layout->columns);
}

rv_code rv_add_item_maker_init(rv_add_item_maker *maker, const rv_add *add, uint64_t chunk_key, rv_error *err)
{
  uint32_t n = (uint32_t)add->num_columns;
  maker->item = (rv_wire_item){.table = {.data = (const uint8_t *)add->table, .size = strlen(add->table)},
                               .slices = calloc(n, sizeof(rv_wire_slice)),
                               .num_slices = calloc(n, sizeof(uint32_t)),
                               .squeeze = calloc(n, sizeof(bool)),
                               .num_columns = n,
                               .naming = add->naming,
                               .total_slices = n};
  if (maker->item.slices == NULL || maker->item.num_slices == NULL || maker->item.squeeze == NULL) {
    return rv_fail_memory(err, n * (sizeof(rv_wire_slice) + sizeof(uint32_t) + sizeof(bool)));
  }
  for (uint32_t i = 0; i < n; i++) {
    maker->item.slices[i] = (rv_wire_slice){.chunk_key = chunk_key, .length = 1, .index = (int32_t)i};
    maker->item.num_slices[i] = 1;
    maker->item.squeeze[i] = true;
  }
  return RV_OK;
}

void rv_add_item_maker_fini(rv_add_item_maker *maker)
{
  free(maker->item.slices);
  free(maker->item.num_slices);
  free(maker->item.squeeze);
}

const rv_wire_item *rv_add_item_make(rv_add_item_maker *maker, uint64_t key, double priority, size_t row)
{
  maker->item.key = key;
  maker->item.priority = priority;
  for (uint32_t i = 0; i < maker->item.num_columns; i++) maker->item.slices[i].offset = (int32_t)row;
  return &maker->item;
}
