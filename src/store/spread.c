#include "store/spread.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/chunk_parts.h"
#include "store/trajectory_parts.h"

enum { FEW_SLICES = 32 };

/* Are the last item's rows there? Those of the first are known to be, and the others lie between. */
static rv_code check_room(const rv_trajectory *trajectory, size_t n, rv_error *err)
{
  for (uint32_t i = 0; i < trajectory->num_slices; i++) {
    const rv_slice *slice = &trajectory->slices[i];
    int64_t rows = rv_chunk_num_rows(slice->chunk, slice->tensor), needed;
    if (__builtin_mul_overflow((int64_t)n, slice->length, &needed) || needed > rows - slice->offset)
      return rv_fail(err, RV_INVALID_ARGUMENT, "%zu items of %d rows from row %d of a chunk that has %lld", n, (int)slice->length,
                     (int)slice->offset, (long long)rows);
  }
  return RV_OK;
}

static bool is_even(const rv_trajectory *trajectory)
{
  for (uint32_t i = 1; i < trajectory->num_slices; i++)
    if (trajectory->slices[i].length != trajectory->slices[0].length) return false;
  return trajectory->num_chunks == 1;
}

static rv_code share_template(const rv_trajectory *trajectory, rv_draw *draws, size_t n, rv_error *err)
{
  rv_trajectory *template;
  rv_code code = rv_template_new(trajectory, &template, err);
  if (code != RV_OK) return code;
  rv_chunk *chunk = trajectory->chunks[0];
  int64_t base = rv_trajectory_base(trajectory), length = trajectory->slices[0].length;
  rv_chunk_ref_many(chunk, n);
  if (n > 1) rv_trajectory_ref_many(template, n - 1);
  for (size_t i = 0; i < n; i++) {
    draws[i].trajectory = template;
    draws[i].chunk = chunk;
    draws[i].base_row = base + (int64_t)i * length;
  }
  return RV_OK;
}

static rv_code make_each(rv_layouts *layouts, const rv_trajectory_desc *first, uint32_t num_slices, rv_draw *draws, size_t n,
                         rv_error *err)
{
  rv_slice few[FEW_SLICES], *slices = num_slices <= FEW_SLICES ? few : malloc(num_slices * sizeof *slices);
  if (slices == NULL) return rv_fail_memory(err, num_slices * sizeof *slices);
  memcpy(slices, first->slices, num_slices * sizeof *slices);
  rv_trajectory_desc desc = *first;
  desc.slices = slices;
  rv_code code = RV_OK;
  size_t made = 0;
  for (; made < n; made++) {
    code = rv_trajectory_new(layouts, &desc, &draws[made].trajectory, err);
    if (code != RV_OK) break;
    draws[made].chunk = NULL;
    draws[made].base_row = 0;
    if (made + 1 < n)
      for (uint32_t i = 0; i < num_slices; i++) slices[i].offset += slices[i].length;
  }
  if (code != RV_OK)
    for (size_t i = 0; i < made; i++) rv_draw_release(&draws[i]);
  if (slices != few) free(slices);
  return code;
}

rv_code rv_draws_spread(rv_layouts *layouts, const rv_trajectory_desc *first, rv_draw *draws, size_t n, rv_error *err)
{
  rv_trajectory *trajectory;
  rv_code code = rv_trajectory_new(layouts, first, &trajectory, err);
  if (code != RV_OK) return code;
  code = check_room(trajectory, n, err);
  if (code == RV_OK)
    code = is_even(trajectory) ? share_template(trajectory, draws, n, err)
                               : make_each(layouts, first, trajectory->num_slices, draws, n, err);
  rv_trajectory_unref(trajectory);
  return code;
}
