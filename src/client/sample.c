#include "client/sample.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/error.h"

struct rv_sample {
  atomic_uint refs;
  rv_draw draw;
  rv_sample_info info;
};

void rv_sample_info_of_draw(const rv_draw *draw, rv_sample_info *out)
{
  *out = (rv_sample_info){.key = draw->key,
                          .probability = draw->probability,
                          .table_size = draw->table_size,
                          .priority = draw->priority,
                          .times_sampled = draw->times_sampled,
                          .rate_limited = draw->rate_limited,
                          .inserted_at_ns = draw->inserted_at_ns};
}

rv_code rv_sample_new(rv_draw *owned_draw, rv_sample **out, rv_error *err)
{
  rv_sample *sample = malloc(sizeof *sample);
  if (sample == NULL) {
    rv_draw_release(owned_draw);
    return rv_fail_memory(err, sizeof *sample);
  }
  atomic_init(&sample->refs, 1);
  sample->draw = *owned_draw;
  rv_sample_info_of_draw(owned_draw, &sample->info);
  *out = sample;
  return RV_OK;
}

rv_code rv_sample_new_shared(const rv_draw *draw, rv_sample **out, rv_error *err)
{
  rv_draw copy = *draw;
  rv_trajectory_ref(copy.trajectory);
  if (copy.chunk != NULL) rv_chunk_ref(copy.chunk);
  return rv_sample_new(&copy, out, err);
}

rv_sample *rv_sample_ref(rv_sample *sample)
{
  atomic_fetch_add_explicit(&sample->refs, 1, memory_order_relaxed);
  return sample;
}

void rv_sample_unref(rv_sample *sample)
{
  if (sample == NULL || atomic_fetch_sub_explicit(&sample->refs, 1, memory_order_acq_rel) != 1) return;
  rv_draw_release(&sample->draw);
  free(sample);
}

const rv_sample_info *rv_sample_get_info(const rv_sample *sample)
{
  return &sample->info;
}

size_t rv_sample_num_columns(const rv_sample *sample)
{
  return sample->draw.trajectory->num_columns;
}

/* ---- columns ---- */

rv_code rv_sample_column_fill(rv_sample_column *out, const rv_trajectory_column *column, int64_t length, bool squeezed,
                              size_t num_items, rv_error *err)
{
  const rv_chunk_column *spec = column->spec;
  size_t rows, bytes;
  if (__builtin_mul_overflow((size_t)length, num_items, &rows) || __builtin_mul_overflow(rows, spec->row_bytes, &bytes))
    return rv_fail(err, RV_RESOURCE_EXHAUSTED, "%zu items of %lld rows of %zu bytes are more than fits in memory", num_items,
                   (long long)length, spec->row_bytes);
  *out = (rv_sample_column){
      .dtype = spec->dtype, .rank = spec->rank, .shape = spec->shape, .length = length, .squeezed = squeezed, .bytes = bytes};
  return RV_OK;
}

static rv_code find_column(const rv_sample *sample, size_t column, const rv_trajectory_column **out, rv_error *err)
{
  const rv_trajectory *trajectory = sample->draw.trajectory;
  if (column >= trajectory->num_columns)
    return rv_fail(err, RV_OUT_OF_RANGE, "column %zu: the item has %u columns", column, (unsigned)trajectory->num_columns);
  *out = &trajectory->columns[column];
  return RV_OK;
}

rv_code rv_sample_get_column(const rv_sample *sample, size_t column, rv_sample_column *out, rv_error *err)
{
  const rv_trajectory_column *found = NULL;
  rv_code code = find_column(sample, column, &found, err);
  return code == RV_OK ? rv_sample_column_fill(out, found, found->length, found->squeeze, 1, err) : code;
}

rv_code rv_sample_copy(rv_sample *sample, size_t column, void *out, size_t size, rv_error *err)
{
  rv_sample_column shown;
  rv_code code = rv_sample_get_column(sample, column, &shown, err);
  if (code != RV_OK) return code;
  if (size != shown.bytes)
    return rv_fail(err, RV_INVALID_ARGUMENT, "column %zu takes %zu bytes, not %zu", column, shown.bytes, size);
  return size > 0 ? rv_draw_copy_column(&sample->draw, (uint32_t)column, out, err) : RV_OK;
}

const void *rv_sample_view(rv_sample *sample, size_t column)
{
  rv_sample_column shown;
  if (rv_sample_get_column(sample, column, &shown, NULL) != RV_OK) return NULL;
  if (shown.bytes == 0) return &sample->info; /* nothing to read there, but not NULL */
  const rv_trajectory_column *found = &sample->draw.trajectory->columns[column];
  const uint8_t *begin = NULL, *end = NULL;
  for (uint32_t i = 0; i < found->num_slices; i++) {
    rv_slice slice = rv_draw_slice(&sample->draw, found->first_slice + i);
    if (slice.length == 0) continue;
    size_t stride;
    const uint8_t *rows = rv_chunk_rows_in_place(slice.chunk, slice.tensor, slice.offset, slice.length, &stride);
    bool follows = begin == NULL || rows == end;
    if (rows == NULL || !follows || (slice.length > 1 && stride != found->spec->row_bytes)) return NULL;
    if (begin == NULL) begin = rows;
    end = rows + (size_t)slice.length * found->spec->row_bytes;
  }
  return begin;
}
