#include "client/column.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/signature.h"
#include "tensor/codec.h"

#define MAX_ROW_BYTES ((size_t)1 << 30)

rv_code rv_column_new(uint32_t number, uint32_t keep, uint32_t chunk_length, rv_column **out, rv_error *err)
{
  rv_column *column = calloc(1, sizeof *column);
  if (column == NULL) return rv_fail_memory(err, sizeof *column);
  column->number = number;
  column->keep = keep;
  column->last_row = -1;
  rv_chunk_rule_init(&column->rule, chunk_length, keep);
  *out = column;
  return RV_OK;
}

/* It is of rows of the column's dtype and shape. */
static void drop_spare(rv_column *column)
{
  if (column->spare != NULL) rv_chunk_unref(column->spare);
  column->spare = NULL;
}

void rv_column_free(rv_column *column)
{
  if (column == NULL) return;
  drop_spare(column);
  rv_written_free_spares(column);
  rv_chunk_stamp_fini(&column->stamp);
  free(column->spans);
  free(column->shape);
  free(column->name);
  free(column);
}

const char *rv_column_label(const rv_column *column, char out[RV_LABEL_MAX])
{
  if (column->name == NULL) {
    snprintf(out, RV_LABEL_MAX, "column %u", (unsigned)column->number);
  } else {
    snprintf(out, RV_LABEL_MAX, "column %.140s", column->name);
  }
  return out;
}

rv_code rv_column_fix(rv_column *column, const rv_tensor *value, rv_error *err)
{
  char label[RV_LABEL_MAX];
  size_t elements, bytes;
  if (rv_dtype_size(value->dtype) == 0)
    return rv_fail(err, RV_INVALID_ARGUMENT, "%s: %d is no dtype", rv_column_label(column, label), (int)value->dtype);
  if (value->rank > RV_MAX_RANK)
    return rv_fail(err, RV_INVALID_ARGUMENT, "%s: a cell of %u dimensions; at most %d are possible",
                   rv_column_label(column, label), (unsigned)value->rank, RV_MAX_RANK);
  rv_code code = rv_shape_elements(value->dtype, value->rank, value->shape, &elements, &bytes, err);
  if (code == RV_OK && bytes > MAX_ROW_BYTES)
    code = rv_fail(err, RV_INVALID_ARGUMENT, "a cell of %zu bytes; at most %zu are possible", bytes, MAX_ROW_BYTES);
  if (code != RV_OK) {
    rv_error_prefix(err, "%s", rv_column_label(column, label));
    return code;
  }
  int64_t *shape = NULL;
  if (value->rank > 0) {
    shape = malloc(value->rank * sizeof *shape);
    if (shape == NULL) return rv_fail_memory(err, value->rank * sizeof *shape);
    memcpy(shape, value->shape, value->rank * sizeof *shape);
  }
  free(column->shape);
  column->shape = shape;
  column->spec = (rv_chunk_column){.dtype = value->dtype, .rank = value->rank, .shape = shape, .row_bytes = bytes};
  column->known = column->tentative = true;
  return RV_OK;
}

void rv_column_unfix(rv_column *column)
{
  if (!column->tentative) return;
  column->known = column->tentative = false;
  drop_spare(column);
}

void rv_column_set_aside(rv_column *column)
{
  if (!column->known) return;
  column->set_aside = true;
  column->spec_aside = column->spec;
  column->shape_aside = column->shape;
  column->shape = NULL;
  column->known = false;
  drop_spare(column);
}

void rv_column_bring_back(rv_column *column)
{
  if (!column->set_aside) return;
  free(column->shape);
  column->shape = column->shape_aside;
  column->spec = column->spec_aside;
  column->known = true;
  column->set_aside = false;
}

void rv_column_forget_aside(rv_column *column, int64_t row)
{
  if (!column->set_aside) return;
  rv_column_expire(column, row);
  drop_spare(column); /* what has just expired may have left one */
  free(column->shape_aside);
  column->trial = (rv_trial){.snappy = false};
  column->set_aside = false;
}

rv_code rv_column_check(const rv_column *column, const rv_tensor *value, rv_error *err)
{
  const rv_chunk_column *spec = &column->spec;
  bool same = value->rank == spec->rank;
  for (uint32_t d = 0; same && d < spec->rank; d++) same = value->shape[d] == spec->shape[d];
  if (same && value->dtype == spec->dtype) return RV_OK;
  char label[RV_LABEL_MAX], want[96], got[96];
  int32_t rank = value->rank > RV_MAX_RANK ? -1 : (int32_t)value->rank;
  return rv_fail(err, RV_INVALID_ARGUMENT, "%s for %s: got %s, its first row was %s",
                 value->dtype != spec->dtype ? "wrong dtype" : "incompatible shape", rv_column_label(column, label),
                 rv_format_spec(got, sizeof got, value->dtype, rank, value->shape),
                 rv_format_spec(want, sizeof want, spec->dtype, (int32_t)spec->rank, spec->shape));
}

rv_spec rv_column_spec(const rv_column *column)
{
  return (rv_spec){.name = column->name == NULL ? "" : column->name,
                   .dtype = column->spec.dtype,
                   .rank = (int32_t)column->spec.rank,
                   .shape = column->spec.shape};
}

/* ---- rows ---- */

rv_code rv_column_reserve(rv_column *column, rv_error *err)
{
  if (column->head + column->num_spans < column->capacity) return RV_OK;
  if (column->head >= 8 && column->head >= column->num_spans) {
    memmove(column->spans, column->spans + column->head, column->num_spans * sizeof *column->spans);
    column->head = 0;
    return RV_OK;
  }
  size_t capacity = column->capacity == 0 ? 8 : 2 * column->capacity;
  rv_row_span *spans = realloc(column->spans, capacity * sizeof *spans);
  if (spans == NULL) return rv_fail_memory(err, capacity * sizeof *spans);
  column->spans = spans;
  column->capacity = capacity;
  return RV_OK;
}

void rv_column_add_row(rv_column *column, int64_t row)
{
  uint32_t offset = column->open_rows++;
  column->last_row = row;
  if (column->num_spans > 0) {
    rv_row_span *last = &column->spans[column->head + column->num_spans - 1];
    if (last->chunk == column->open && last->first + last->count == row && last->offset + last->count == offset) {
      last->count++;
      return;
    }
  }
  rv_written_pin(column->open);
  column->spans[column->head + column->num_spans++] =
      (rv_row_span){.first = row, .count = 1, .offset = offset, .tensor = column->tensor, .chunk = column->open};
}

void rv_column_expire(rv_column *column, int64_t row)
{
  while (column->num_spans > 0) {
    rv_row_span *oldest = &column->spans[column->head];
    if (oldest->first + oldest->count > row) return;
    column->first_row = oldest->first + oldest->count;
    rv_written_unpin(oldest->chunk);
    column->head++;
    column->num_spans--;
  }
  column->head = 0;
}

const rv_row_span *rv_column_find(const rv_column *column, int64_t row)
{
  if (column->num_spans == 0) return NULL;
  const rv_row_span *spans = column->spans + column->head;
  size_t low = 0, high = column->num_spans; /* the span is in [low, high) */
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (spans[middle].first + spans[middle].count <= row) {
      low = middle + 1;
    } else if (spans[middle].first > row) {
      high = middle;
    } else {
      return &spans[middle];
    }
  }
  return NULL;
}
