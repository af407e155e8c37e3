#include "client/sample.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { OWN_BYTES_MAX = 16384, OWN_COLUMNS_MAX = 64, PINNED_FACTOR = 4, ALIGNMENT = 16 };

struct rv_sample {
  atomic_uint refs;
  bool has_rows; /* of its own: then the draw holds no chunk */
  rv_draw draw;
  rv_sample_info info;
  _Alignas(ALIGNMENT) uint8_t rows[]; /* column by column, each aligned */
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

static rv_code make(rv_draw *owned_draw, size_t row_bytes, rv_sample **out, rv_error *err)
{
  rv_sample *sample = malloc(sizeof *sample + row_bytes);
  if (sample == NULL) {
    rv_draw_release(owned_draw);
    return rv_fail_memory(err, sizeof *sample + row_bytes);
  }
  atomic_init(&sample->refs, 1);
  sample->has_rows = false;
  sample->draw = *owned_draw;
  rv_sample_info_of_draw(owned_draw, &sample->info);
  *out = sample;
  return RV_OK;
}

rv_code rv_sample_new(rv_draw *owned_draw, rv_sample **out, rv_error *err)
{
  return make(owned_draw, 0, out, err);
}

/* ---- rows of its own ---- */

static size_t column_bytes(const rv_trajectory_column *column)
{
  return column->spec->row_bytes * (size_t)column->length;
}

static size_t aligned(size_t bytes)
{
  return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

/* What the rows take if the sample is to have them itself; SIZE_MAX: it is not. */
static size_t own_bytes(const rv_draw *draw)
{
  const rv_trajectory *trajectory = draw->trajectory;
  if (draw->chunk == NULL || trajectory->num_columns > OWN_COLUMNS_MAX) return SIZE_MAX;
  size_t bytes = 0;
  for (uint32_t i = 0; i < trajectory->num_columns; i++) {
    const rv_trajectory_column *column = &trajectory->columns[i];
    if (column->spec->dtype == RV_STRING || column->spec->row_bytes > OWN_BYTES_MAX || column->length > OWN_BYTES_MAX)
      return SIZE_MAX;
    bytes += aligned(column_bytes(column));
    if (bytes > OWN_BYTES_MAX) return SIZE_MAX;
  }
  return bytes <= rv_chunk_memory(draw->chunk) / PINNED_FACTOR ? bytes : SIZE_MAX;
}

static uint8_t *own_rows(rv_sample *sample, size_t column)
{
  size_t at = 0;
  for (size_t i = 0; i < column; i++) at += aligned(column_bytes(&sample->draw.trajectory->columns[i]));
  return sample->rows + at;
}

rv_code rv_sample_new_received(rv_draw *owned_draw, rv_sample **out, rv_error *err)
{
  size_t bytes = own_bytes(owned_draw);
  rv_sample *sample = NULL;
  rv_code code = make(owned_draw, bytes == SIZE_MAX ? 0 : bytes, &sample, err);
  if (code != RV_OK) return code;
  uint8_t *at = sample->rows;
  rv_draw *draw = &sample->draw;
  for (uint32_t i = 0; bytes != SIZE_MAX && i < draw->trajectory->num_columns; i++) {
    code = rv_draw_copy_column(draw, i, at, err);
    if (code != RV_OK) {
      rv_sample_unref(sample);
      return code;
    }
    at += aligned(column_bytes(&draw->trajectory->columns[i]));
  }
  if (bytes != SIZE_MAX) {
    rv_chunk_unref(draw->chunk);
    draw->chunk = NULL;
    sample->has_rows = true;
  }
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

rv_layout *rv_sample_layout(const rv_sample *sample)
{
  return sample->draw.trajectory->layout;
}

uint64_t rv_sample_naming(const rv_sample *sample)
{
  return sample->draw.naming;
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
  if (sample->has_rows && size > 0) memcpy(out, own_rows(sample, column), size);
  return size > 0 && !sample->has_rows ? rv_draw_copy_column(&sample->draw, (uint32_t)column, out, err) : RV_OK;
}

/* Such memory is this process's alone: a child that is forked later would not find the rows there. */
static bool is_lendable(const rv_chunk *chunk)
{
  const uint8_t *wire;
  size_t size;
  const rv_buf *owner = rv_chunk_wire(chunk, &wire, &size);
  return owner != NULL && rv_buf_is_lendable(owner);
}

const void *rv_sample_view(rv_sample *sample, size_t column)
{
  rv_sample_column shown;
  if (rv_sample_get_column(sample, column, &shown, NULL) != RV_OK) return NULL;
  if (shown.bytes == 0) return &sample->info; /* nothing to read there, but not NULL */
  if (sample->has_rows) return own_rows(sample, column);
  const rv_trajectory_column *found = &sample->draw.trajectory->columns[column];
  const uint8_t *begin = NULL, *end = NULL;
  for (uint32_t i = 0; i < found->num_slices; i++) {
    rv_slice slice = rv_draw_slice(&sample->draw, found->first_slice + i);
    if (slice.length == 0) continue;
    size_t stride;
    const uint8_t *rows = rv_chunk_rows_in_place(slice.chunk, slice.tensor, slice.offset, slice.length, &stride);
    bool follows = begin == NULL || rows == end;
    if (rows == NULL || !follows || is_lendable(slice.chunk) || (slice.length > 1 && stride != found->spec->row_bytes))
      return NULL;
    if (begin == NULL) begin = rows;
    end = rows + (size_t)slice.length * found->spec->row_bytes;
  }
  return begin;
}
