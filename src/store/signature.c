#include "store/signature.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tensor/codec.h"

/* ---- copying ---- */

static bool add_size(size_t *total, size_t count, size_t size)
{
  size_t bytes;
  return !__builtin_mul_overflow(count, size, &bytes) && !__builtin_add_overflow(*total, bytes, total);
}

static bool copy_size(const rv_signature *from, size_t *total)
{
  *total = sizeof(rv_signature);
  if (from == NULL) return true;
  if (!add_size(total, from->num_specs, sizeof(rv_spec)) || !add_size(total, from->structure.size, 1)) return false;
  for (size_t i = 0; i < from->num_specs; i++) {
    const rv_spec *spec = &from->specs[i];
    if (spec->rank > 0 && !add_size(total, (size_t)spec->rank, sizeof(int64_t))) return false;
    if (!add_size(total, (spec->name == NULL ? 0 : strlen(spec->name)) + 1, 1)) return false;
  }
  return true;
}

rv_signature *rv_signature_copy(const rv_signature *from)
{
  size_t total;
  if (!copy_size(from, &total)) return NULL;
  rv_signature *copy = malloc(total);
  if (copy == NULL) return NULL;
  rv_spec *specs = (rv_spec *)(void *)(copy + 1);
  *copy = (rv_signature){.specs = specs};
  if (from == NULL) return copy;
  int64_t *sizes = (int64_t *)(void *)(specs + from->num_specs);
  for (size_t i = 0; i < from->num_specs; i++) {
    specs[i] = from->specs[i];
    specs[i].shape = sizes;
    if (specs[i].rank <= 0) continue;
    memcpy(sizes, from->specs[i].shape, (size_t)specs[i].rank * sizeof *sizes);
    sizes += specs[i].rank;
  }
  char *text = (char *)sizes;
  for (size_t i = 0; i < from->num_specs; i++) {
    const char *name = from->specs[i].name == NULL ? "" : from->specs[i].name;
    size_t length = strlen(name) + 1;
    specs[i].name = memcpy(text, name, length);
    text += length;
  }
  if (from->structure.size > 0) memcpy(text, from->structure.data, from->structure.size);
  copy->specs = specs;
  copy->num_specs = from->num_specs;
  copy->structure = (rv_bytes){text, from->structure.size};
  return copy;
}

rv_code rv_signature_check(const rv_signature *signature, rv_error *err)
{
  if (signature->num_specs > UINT16_MAX + 1)
    return rv_fail(err, RV_INVALID_ARGUMENT, "the signature has %zu columns; at most 65,536 are possible", signature->num_specs);
  for (size_t i = 0; i < signature->num_specs; i++) {
    const rv_spec *spec = &signature->specs[i];
    if (rv_dtype_size(spec->dtype) == 0)
      return rv_fail(err, RV_INVALID_ARGUMENT, "signature of column %zu \"%s\": dtype number %d is none that Reverie knows", i,
                     spec->name == NULL ? "" : spec->name, (int)spec->dtype);
    if (spec->rank < -1 || spec->rank > RV_MAX_RANK + 1)
      return rv_fail(err, RV_INVALID_ARGUMENT, "signature of column %zu \"%s\": rank %d; -1 (unknown) to %d are possible", i,
                     spec->name == NULL ? "" : spec->name, (int)spec->rank, RV_MAX_RANK + 1);
    if (spec->rank > 0 && spec->shape == NULL) {
      rv_code code = rv_fail_no_shape(err, (uint32_t)spec->rank);
      rv_error_prefix(err, "signature of column %zu \"%s\"", i, spec->name == NULL ? "" : spec->name);
      return code;
    }
    for (int32_t d = 0; d < spec->rank; d++)
      if (spec->shape[d] < -1)
        return rv_fail(err, RV_INVALID_ARGUMENT, "signature of column %zu \"%s\": dimension %d has size %lld; -1 means any", i,
                       spec->name == NULL ? "" : spec->name, (int)d, (long long)spec->shape[d]);
  }
  return RV_OK;
}

/* ---- sentences ---- */

static size_t put(char *out, size_t capacity, size_t at, const char *text)
{
  size_t length = strlen(text);
  if (at < capacity) snprintf(out + at, capacity - at, "%s", text);
  return at + length;
}

const char *rv_format_spec(char *out, size_t capacity, rv_dtype dtype, int32_t rank, const int64_t *shape)
{
  size_t at = put(out, capacity, 0, rv_dtype_name(dtype));
  if (rank < 0) {
    put(out, capacity, at, "[...]");
    return out;
  }
  at = put(out, capacity, at, "[");
  for (int32_t d = 0; d < rank; d++) {
    char size[24];
    snprintf(size, sizeof size, shape[d] < 0 ? "%s?" : "%s%lld", d == 0 ? "" : ",", (long long)shape[d]);
    at = put(out, capacity, at, size);
  }
  put(out, capacity, at, "]");
  return out;
}

/* ---- fitting ---- */

/* Does [length (if >= 0), ...row] fit? */
static bool shape_fits(const rv_spec *spec, int64_t length, const rv_chunk_column *row)
{
  if (spec->rank < 0) return true;
  uint32_t lead = length >= 0 ? 1 : 0;
  if ((uint32_t)spec->rank != row->rank + lead) return false;
  if (lead == 1 && spec->shape[0] >= 0 && spec->shape[0] != length) return false;
  for (uint32_t d = 0; d < row->rank; d++)
    if (spec->shape[lead + d] >= 0 && spec->shape[lead + d] != row->shape[d]) return false;
  return true;
}

static bool column_fits(const rv_spec *spec, const rv_trajectory_column *column, bool exactly)
{
  if (spec->dtype != column->spec->dtype) return false;
  if (!column->squeeze && shape_fits(spec, column->length, column->spec)) return true;
  return (column->squeeze || !exactly) && shape_fits(spec, -1, column->spec);
}

/* As which of the two that would fit is it meant? Who gives rows does not see the length that an item has. */
static bool is_meant_as_row(const rv_spec *spec, const rv_trajectory_column *column, bool exactly)
{
  return column->squeeze || (!exactly && spec->rank != (int32_t)column->spec->rank + 1);
}

static rv_code misfit(const rv_spec *spec, const char *table, uint32_t index, const rv_trajectory_column *column, bool exactly,
                      rv_error *err)
{
  const bool as_row = is_meant_as_row(spec, column, exactly);
  char want[128], got[128];
  int64_t shape[RV_MAX_RANK + 1];
  uint32_t rank = 0;
  if (!as_row) shape[rank++] = column->length;
  for (uint32_t d = 0; d < column->spec->rank && rank <= RV_MAX_RANK; d++) shape[rank++] = column->spec->shape[d];
  bool one_row =
      !column->squeeze && column->length == 1 && spec->dtype == column->spec->dtype && shape_fits(spec, -1, column->spec);
  bool convert = spec->dtype != column->spec->dtype && spec->dtype != RV_STRING && column->spec->dtype != RV_STRING &&
                 shape_fits(spec, as_row ? -1 : column->length, column->spec);
  char remedy[80] = "";
  if (one_row) snprintf(remedy, sizeof remedy, "; squeeze its one row (history[-1], not history[-1:])");
  if (convert) snprintf(remedy, sizeof remedy, "; convert it first (NumPy: .astype(\"%s\"))", rv_dtype_name(spec->dtype));
  return rv_fail(err, RV_INVALID_ARGUMENT,
                 "table \"%s\": signature of column %u \"%s\" is %s, got %s, which is inconsistent with it%s", table,
                 (unsigned)index, spec->name, rv_format_spec(want, sizeof want, spec->dtype, spec->rank, spec->shape),
                 rv_format_spec(got, sizeof got, column->spec->dtype, (int32_t)rank, shape), remedy);
}

/* `"action", "obs"`, as far as there is room. */
static const char *name_columns(char *out, size_t capacity, const rv_signature *signature)
{
  size_t at = 0;
  out[0] = '\0';
  for (size_t i = 0; i < signature->num_specs; i++) {
    const char *name = signature->specs[i].name;
    at = put(out, capacity, at, i == 0 ? "\"" : ", \"");
    at = put(out, capacity, at, name == NULL ? "" : name);
    at = put(out, capacity, at, "\"");
  }
  return out;
}

static rv_code fits(const rv_signature *signature, const char *table, const rv_trajectory_column *columns, uint32_t num_columns,
                    bool exactly, rv_error *err)
{
  if (signature->num_specs == 0) return RV_OK;
  if (signature->num_specs != num_columns) {
    char names[200];
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "table \"%s\": its signature has %zu columns (%s), got %u, which is inconsistent with it", table,
                   signature->num_specs, name_columns(names, sizeof names, signature), (unsigned)num_columns);
  }
  for (uint32_t i = 0; i < num_columns; i++)
    if (!column_fits(&signature->specs[i], &columns[i], exactly))
      return misfit(&signature->specs[i], table, i, &columns[i], exactly, err);
  return RV_OK;
}

rv_code rv_signature_fits(const rv_signature *signature, const char *table, const rv_trajectory_column *columns,
                          uint32_t num_columns, rv_error *err)
{
  return fits(signature, table, columns, num_columns, false, err);
}

rv_code rv_signature_fits_exactly(const rv_signature *signature, const char *table, const rv_trajectory_column *columns,
                                  uint32_t num_columns, rv_error *err)
{
  return fits(signature, table, columns, num_columns, true, err);
}
