#include "persist/old_item.h"

#include <stdlib.h>

#include "base/error.h"
#include "wire/parse.h"

enum { MAX_SLICES = 1 << 24 };

static bool parse_range(rv_span message, rv_old_item *out)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_VARINT)) out->offset = rv_field_int32(&field);
    if (rv_field_is(&field, 2, RV_WIRE_VARINT)) out->length = rv_field_int32(&field);
  }
  return !reader.broken;
}

rv_code rv_old_item_parse(rv_span message, rv_old_item *out, rv_error *err)
{
  *out = (rv_old_item){0};
  size_t most = 0;
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  bool good = true;
  while (good && rv_reader_next(&reader, &field)) {
    if (field.number == 3) most += rv_field_count_values(&field, RV_WIRE_VARINT);
    if (rv_field_is(&field, 4, RV_WIRE_BYTES)) good = parse_range(field.bytes, out);
  }
  if (!good || reader.broken) return rv_fail_parse(err, "PrioritizedItem");
  if (most == 0) return RV_OK;
  out->chunk_keys = malloc(most * sizeof *out->chunk_keys);
  if (out->chunk_keys == NULL) return rv_fail_memory(err, most * sizeof *out->chunk_keys);
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    uint64_t key;
    size_t state = 0;
    if (field.number != 3) continue;
    while (out->num_chunks < most && rv_field_next_value(&reader, &field, RV_WIRE_VARINT, &state, &key))
      out->chunk_keys[out->num_chunks++] = key;
  }
  if (!reader.broken) return RV_OK;
  rv_old_item_fini(out);
  return rv_fail_parse(err, "PrioritizedItem");
}

void rv_old_item_fini(rv_old_item *item)
{
  free(item->chunk_keys);
  *item = (rv_old_item){0};
}

/* Slices of the first column; the others have the same with other tensors. Returns how many. */
static uint32_t cut(const rv_old_item *item, rv_chunk *const *chunks, rv_slice *out)
{
  int64_t skip = item->offset, left = item->length;
  uint32_t n = 0;
  for (size_t i = 0; i < item->num_chunks && left > 0; i++) {
    int64_t rows = rv_chunk_num_rows(chunks[i], 0);
    if (skip >= rows) {
      skip -= rows;
      continue;
    }
    int64_t count = rows - skip < left ? rows - skip : left;
    out[n++] = (rv_slice){.chunk = chunks[i], .offset = (int32_t)skip, .length = (int32_t)count};
    skip = 0;
    left -= count;
  }
  return left > 0 ? 0 : n;
}

static rv_code build(const rv_slice *first, uint32_t n, uint32_t columns, rv_layouts *layouts, rv_trajectory **out, rv_error *err)
{
  size_t total = (size_t)n * columns;
  rv_slice *slices = malloc(total * sizeof *slices);
  uint32_t *num_slices = malloc(columns * sizeof *num_slices);
  bool *squeeze = calloc(columns, sizeof *squeeze);
  rv_code code = RV_OK;
  if (slices == NULL || num_slices == NULL || squeeze == NULL) {
    code = rv_fail_memory(err, total * sizeof *slices);
  } else {
    for (size_t i = 0; i < total; i++) {
      slices[i] = first[i % n];
      slices[i].tensor = (uint32_t)(i / n);
    }
    for (uint32_t c = 0; c < columns; c++) num_slices[c] = n;
    const rv_trajectory_desc desc = {.slices = slices, .num_slices = num_slices, .squeeze = squeeze, .num_columns = columns};
    code = rv_trajectory_new(layouts, &desc, out, err);
  }
  free(slices);
  free(num_slices);
  free(squeeze);
  return code;
}

static rv_code find_all(const rv_old_item *item, uint64_t key, rv_chunk *(*find)(void *context, uint64_t key), void *context,
                        rv_chunk **out, rv_error *err)
{
  for (size_t i = 0; i < item->num_chunks; i++) {
    out[i] = find(context, item->chunk_keys[i]);
    if (out[i] == NULL)
      return rv_fail(err, RV_INTERNAL, "item %llu refers to chunk %llu, which is not there", (unsigned long long)key,
                     (unsigned long long)item->chunk_keys[i]);
  }
  return RV_OK;
}

rv_code rv_old_item_trajectory(const rv_old_item *item, uint64_t key, rv_layouts *layouts,
                               rv_chunk *(*find)(void *context, uint64_t key), void *context, rv_trajectory **out, rv_error *err)
{
  rv_chunk **chunks = calloc(item->num_chunks, sizeof *chunks);
  rv_slice *first = calloc(item->num_chunks, sizeof *first);
  rv_code code = chunks == NULL || first == NULL ? rv_fail_memory(err, item->num_chunks * sizeof *first)
                                                 : find_all(item, key, find, context, chunks, err);
  if (code == RV_OK) {
    uint32_t n = item->offset < 0 ? 0 : cut(item, chunks, first), columns = (uint32_t)rv_chunk_num_columns(chunks[0]);
    if (n == 0)
      code = rv_fail(err, RV_INVALID_ARGUMENT, "item %llu: its chunks do not have rows [%d, %d + %d)", (unsigned long long)key,
                     (int)item->offset, (int)item->offset, (int)item->length);
    else if ((uint64_t)n * columns > MAX_SLICES)
      code = rv_fail(err, RV_INVALID_ARGUMENT, "item %llu: %u chunks of %u columns are too many", (unsigned long long)key, n,
                     columns);
    else
      code = build(first, n, columns, layouts, out, err);
  }
  free(chunks);
  free(first);
  return code;
}
