#include "client/step_change.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "store/signature.h"

static bool is_like(const rv_tensor *value, const rv_spec *spec)
{
  if (value->dtype != spec->dtype || value->rank != (uint32_t)spec->rank) return false;
  for (uint32_t d = 0; d < value->rank; d++)
    if (value->shape[d] != spec->shape[d]) return false;
  return true;
}

static bool can_be_stored(const rv_tensor *value)
{
  return rv_dtype_size(value->dtype) > 0 && value->rank <= RV_MAX_RANK && (value->rank == 0 || value->shape != NULL);
}

/* Returns the number of the first column that is another; num_cells: none is. */
static uint32_t find_column(const rv_writer *writer, const rv_cell *cells, size_t num_cells, rv_spec *before)
{
  for (uint32_t i = 0; i < num_cells; i++) {
    if (!can_be_stored(&cells[i].value)) break;
    if (rv_writer_column_spec(writer, i, before) == RV_OK && !is_like(&cells[i].value, before)) return i;
  }
  return (uint32_t)num_cells;
}

bool rv_step_change_find(const rv_writer *writer, const rv_cell *cells, size_t num_cells, size_t num_before, rv_step_change *out)
{
  if (num_before == 0) return false;
  rv_spec before = {.dtype = RV_DTYPE_INVALID};
  const uint32_t column = num_cells == num_before ? find_column(writer, cells, num_cells, &before) : 0;
  if (column == num_cells) return false;
  *out =
      (rv_step_change){.first = rv_writer_num_rows(writer), .num_columns = num_cells, .num_before = num_before, .column = column};
  if (num_cells != num_before) return true;
  const rv_tensor *value = &cells[column].value;
  out->other_dtype = value->dtype != before.dtype;
  rv_format_spec(out->spec, sizeof out->spec, value->dtype, (int32_t)value->rank, value->shape);
  rv_format_spec(out->spec_before, sizeof out->spec_before, before.dtype, before.rank, before.shape);
  return true;
}

/* "column 0 \"image\"", or without a name. Returns out. */
static const char *label(const rv_step_change *change, const rv_step_names *names, char out[RV_LABEL_MAX])
{
  const char *name = change->column < names->count ? names->name[change->column] : NULL;
  if (name == NULL)
    snprintf(out, RV_LABEL_MAX, "column %u", (unsigned)change->column);
  else
    snprintf(out, RV_LABEL_MAX, "column %u \"%.130s\"", (unsigned)change->column, name);
  return out;
}

rv_code rv_step_change_fail_within_chunk(const rv_step_change *change, uint32_t steps, uint32_t length,
                                         const rv_step_names *names, rv_error *err)
{
  const unsigned left = (unsigned)(length - steps);
  char text[RV_LABEL_MAX];
  if (change->num_columns != change->num_before)
    return rv_fail(
        err, RV_INVALID_ARGUMENT,
        "the step has %zu columns, which is inconsistent with the %zu of the steps before it; columns may change where "
        "a chunk begins, %u more of those steps on (chunk_length %u)",
        change->num_columns, change->num_before, left, (unsigned)length);
  return rv_fail(err, RV_INVALID_ARGUMENT,
                 "%s for %s: got %s, the steps before it have %s; a column may change where a chunk begins, %u more of "
                 "those steps on (chunk_length %u)",
                 change->other_dtype ? "wrong dtype" : "incompatible shape", label(change, names, text), change->spec,
                 change->spec_before, left, (unsigned)length);
}

rv_code rv_step_change_fail_across(const rv_step_change *change, uint32_t num_timesteps, int64_t num_rows,
                                   const rv_step_names *names, rv_error *err)
{
  const int64_t alike = num_rows - change->first;
  char text[RV_LABEL_MAX];
  if (change->num_columns != change->num_before)
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "the last %u steps are inconsistent: the number of their columns is %zu before step %" PRId64
                   ", and %zu from it on; the steps of an item have the same columns, so make it of the last %" PRId64
                   " at most, or before the columns change",
                   (unsigned)num_timesteps, change->num_before, change->first, change->num_columns, alike);
  return rv_fail(err, RV_INVALID_ARGUMENT,
                 "Error in %s: the last %u steps have %s in it: %s before step %" PRId64
                 ", and %s from it on; the rows of an item's column have one dtype and shape, so make it of the last %" PRId64
                 " at most, or before the column changes",
                 label(change, names, text), (unsigned)num_timesteps,
                 change->other_dtype ? "different dtypes" : "incompatible shapes", change->spec_before, change->first,
                 change->spec, alike);
}
