#include "store/row_plan.h"

#include <string.h>

#include "base/small_copies.h"

/* The lane of a column that is one run of rows in place; else NULL. */
static const rv_lane *lane_of(const rv_trajectory *template, const rv_chunk *like, uint32_t c)
{
  const rv_trajectory_column *column = &template->columns[c];
  const rv_lane *lane = &like->lanes[template->slices[column->first_slice].tensor];
  return column->num_slices == 1 && lane->base != NULL ? lane : NULL;
}

/* Rows are counted in the first tensor that lies beside others; where there is none, in the first. */
static void choose_first(rv_row_plan *plan, const rv_trajectory *template, const rv_chunk *like)
{
  for (uint32_t c = 0; c < template->num_columns && c < RV_PLAN_COLUMNS; c++) {
    const rv_lane *lane = lane_of(template, like, c);
    bool alone = lane != NULL && lane->stride == lane->row_bytes;
    if (lane == NULL || (plan->any && alone)) continue;
    plan->any = true;
    plan->first = template->slices[template->columns[c].first_slice].tensor;
    plan->stride = lane->stride;
    if (!alone) return;
  }
}

/* Only rows that could be shuffled are asked for it, which takes a look at each tensor of the chunk, under the table's lock. */
static size_t bytes_beside(const rv_chunk *chunk, size_t stride)
{
  size_t bytes = 0;
  if (stride > RV_SHUFFLE_STRIDE || chunk->num_columns > RV_SHUFFLE_STRIDE) return 0;
  for (uint32_t t = 0; t < chunk->num_columns; t++)
    if (chunk->lanes[t].stride == stride && chunk->lanes[t].row_bytes < stride) bytes += chunk->lanes[t].row_bytes;
  return bytes;
}

static bool plan_column(rv_row_plan *plan, const rv_trajectory *template, const rv_chunk *like, uint32_t c)
{
  const rv_trajectory_column *column = &template->columns[c];
  const rv_slice *slice = &template->slices[column->first_slice];
  const rv_lane *lane = lane_of(template, like, c);
  if (lane == NULL) return false;
  if (lane->stride != plan->stride) return false;
  /* columns that each lie by themselves are further apart in a larger segment */
  if (lane->stride == lane->row_bytes && slice->tensor != plan->first) return false;
  ptrdiff_t offset = lane->base - rv_row_plan_base(plan, like);
  plan->column[c].tensor = slice->tensor;
  plan->column[c].offset = offset;
  plan->column[c].delta = offset + (ptrdiff_t)slice->offset * (ptrdiff_t)lane->stride;
  plan->column[c].row_bytes = lane->row_bytes;
  plan->column[c].length = column->length;
  plan->item_bytes += lane->row_bytes * (size_t)column->length;
  if (column->length > plan->longest) plan->longest = column->length;
  return true;
}

void rv_row_plan_make(rv_row_plan *plan, const rv_trajectory *template, const rv_chunk *like)
{
  plan->any = plan->whole = false;
  plan->num_columns = template->num_columns;
  plan->num_tensors = like->num_columns;
  plan->stride = plan->item_bytes = 0;
  plan->longest = 0;
  if (!like->is_segment || template->num_chunks > 0) return;
  choose_first(plan, template, like);
  plan->beside_bytes = bytes_beside(like, plan->stride);
  bool whole = template->num_columns <= RV_PLAN_COLUMNS;
  for (uint32_t c = 0; c < template->num_columns && c < RV_PLAN_COLUMNS; c++) {
    plan->column[c].planned = plan_column(plan, template, like, c);
    whole &= plan->column[c].planned && template->columns[c].spec->dtype != RV_STRING;
  }
  plan->whole = whole && plan->item_bytes > 0;
}

bool rv_row_plan_fits(const rv_row_plan *plan, const rv_chunk *chunk)
{
  if (!plan->any || !chunk->is_segment || chunk->num_columns != plan->num_tensors) return false;
  const uint8_t *base = rv_row_plan_base(plan, chunk);
  if (base == NULL) return false;
  for (uint32_t c = 0; c < plan->num_columns && c < RV_PLAN_COLUMNS; c++) {
    if (!plan->column[c].planned) continue;
    const rv_lane *lane = &chunk->lanes[plan->column[c].tensor];
    if (lane->stride != plan->stride || lane->base - base != plan->column[c].offset) return false;
  }
  return bytes_beside(chunk, plan->stride) == plan->beside_bytes;
}

#define COPY_EACH(bytes)                                                                                                         \
  case bytes: _Pragma("GCC unroll 8") for (size_t i = 0; i < n; i++) memcpy(to + i * bytes, items[i] + delta, bytes); return

static void copy_singles(const uint8_t *const *items, size_t n, ptrdiff_t delta, size_t row_bytes, uint8_t *restrict to)
{
  switch (row_bytes) {
    RV_COMMON_SIZES(COPY_EACH);
    COPY_EACH(64);
  default: break;
  }
  for (size_t i = 0; i < n; i++) rv_copy_odd(to + i * row_bytes, items[i] + delta, row_bytes);
}

/* Without the first rows of each item, which are there already. */
static void copy_column(const rv_row_plan *plan, uint32_t c, size_t copied, const uint8_t *const *items, size_t n, uint8_t *to)
{
  const size_t row_bytes = plan->column[c].row_bytes, length = (size_t)plan->column[c].length;
  const ptrdiff_t delta = plan->column[c].delta + (ptrdiff_t)(copied * plan->stride);
  if (length == 1) {
    copy_singles(items, n, delta, row_bytes, to);
    return;
  }
  to += copied * row_bytes;
  for (size_t i = 0; i < n; i++)
    rv_copy_strided(to + i * row_bytes * length, row_bytes, items[i] + delta, plan->stride, row_bytes, length - copied);
}

void rv_row_plan_copy(const rv_row_plan *plan, const rv_row_shuffle *shuffle, const uint8_t *const *items, size_t n,
                      uint8_t *const *outs)
{
  size_t copied = rv_row_shuffle_copy(shuffle, items, n, outs);
  for (uint32_t c = 0; c < plan->num_columns && c < RV_PLAN_COLUMNS; c++)
    if (plan->column[c].planned && outs[c] != NULL && (size_t)plan->column[c].length > copied)
      copy_column(plan, c, copied, items, n, outs[c]);
}
