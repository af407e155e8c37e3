#include "persist/cut_alike.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { SLICES_MAX = 1 << 16 };

void rv_cutting_fini(rv_cutting *cutting)
{
  free(cutting->slices);
  free(cutting->ends);
  *cutting = (rv_cutting){0};
}

bool rv_trajectory_is_cut_alike(const rv_trajectory *trajectory)
{
  const rv_trajectory_column *columns = trajectory->columns;
  const rv_slice *first = &trajectory->slices[columns[0].first_slice];
  for (uint32_t c = 1; c < trajectory->num_columns; c++) {
    if (columns[c].num_slices != columns[0].num_slices) return false;
    const rv_slice *slices = &trajectory->slices[columns[c].first_slice];
    for (uint32_t i = 0; i < columns[c].num_slices; i++)
      if (slices[i].length != first[i].length) return false;
  }
  return true;
}

static bool are_alike(const rv_wire_slice *slices, const uint32_t *num_slices, uint32_t num_columns)
{
  const rv_wire_slice *column = slices;
  for (uint32_t c = 0; c < num_columns; column += num_slices[c++]) {
    if (num_slices[c] != num_slices[0]) return false;
    for (uint32_t i = 0; i < num_slices[c]; i++)
      if (column[i].length != slices[i].length) return false;
  }
  return true;
}

static void *at_least(void *array, size_t *capacity, size_t count, size_t size, rv_error *err)
{
  if (count <= *capacity) return array;
  void *grown = realloc(array, count * size);
  if (grown == NULL)
    rv_fail_memory(err, count * size);
  else
    *capacity = count;
  return grown;
}

/* Where a column's slices end, among the ends of those before it; how many there are now. */
static size_t add_ends(const rv_wire_slice *slices, uint32_t n, const int32_t *ends, size_t count, int32_t *out)
{
  size_t i = 0, merged = 0;
  int32_t end = 0;
  for (uint32_t k = 0; k < n; k++) {
    end += slices[k].length;
    while (i < count && ends[i] < end) out[merged++] = ends[i++];
    if (i < count && ends[i] == end) i++;
    if (slices[k].length > 0) out[merged++] = end;
  }
  return merged;
}

static rv_wire_slice *cut_column(const rv_wire_slice *slices, const int32_t *ends, size_t count, rv_wire_slice *out)
{
  int32_t done = 0, cut = 0; /* rows of the column, and of the slice at hand */
  for (size_t i = 0; i < count; i++, out++) {
    while (cut == slices->length) {
      slices++;
      cut = 0;
    }
    *out = *slices;
    out->offset += cut;
    out->length = ends[i] - done;
    cut += out->length;
    done = ends[i];
  }
  return out;
}

rv_code rv_cut_alike(rv_cutting *cutting, rv_slice_list *slices, uint32_t *num_slices, uint32_t num_columns, rv_error *err)
{
  if (are_alike(slices->slices, num_slices, num_columns)) return RV_OK;
  int32_t *ends = at_least(cutting->ends, &cutting->ends_capacity, 2 * slices->count, sizeof *ends, err);
  if (ends == NULL) return RV_RESOURCE_EXHAUSTED;
  cutting->ends = ends;
  int32_t *merged = ends + slices->count;
  size_t count = 0;
  const rv_wire_slice *column = slices->slices;
  for (uint32_t c = 0; c < num_columns; column += num_slices[c++]) {
    count = add_ends(column, num_slices[c], ends, count, merged);
    memcpy(ends, merged, count * sizeof *ends);
  }
  if (count == 0 || count > SLICES_MAX / num_columns) return RV_OK; /* of no rows; of so many columns that are cut so often */
  rv_wire_slice *cut = at_least(cutting->slices, &cutting->capacity, num_columns * count, sizeof *cut, err);
  if (cut == NULL) return RV_RESOURCE_EXHAUSTED;
  cutting->slices = cut;
  column = slices->slices;
  for (uint32_t c = 0; c < num_columns; column += num_slices[c], num_slices[c++] = (uint32_t)count)
    cut = cut_column(column, ends, count, cut);
  const rv_slice_list before = *slices;
  *slices = (rv_slice_list){.slices = cutting->slices, .count = num_columns * count, .capacity = cutting->capacity};
  cutting->slices = before.slices;
  cutting->capacity = before.capacity;
  return RV_OK;
}
