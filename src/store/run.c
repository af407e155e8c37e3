#include "store/run.h"

#include "store/chunk_parts.h"
#include "store/trajectory_parts.h"

static bool is_in_rows(const rv_chunk *chunk, const rv_gap *gap)
{
  for (uint32_t i = 0; i < chunk->num_columns; i++) {
    const rv_lane *lane = &chunk->lanes[i];
    if (lane->base == NULL || lane->stride != lane->row_bytes) continue;
    const uint8_t *end = lane->base + (size_t)rv_chunk_num_rows(chunk, i) * lane->row_bytes;
    if (gap->to >= lane->base && gap->to + gap->size <= end) return true;
  }
  return false;
}

/* One slice a column, of the draw's own chunk, in place, and the next item's right behind it. */
static bool lies_together(const rv_trajectory *template, const rv_chunk *chunk, int64_t step)
{
  for (uint32_t c = 0; c < template->num_columns; c++) {
    const rv_trajectory_column *column = &template->columns[c];
    if (column->num_slices != 1) return false;
    const rv_slice *slice = &template->slices[column->first_slice];
    const rv_lane *lane = &chunk->lanes[slice->tensor];
    if (slice->chunk != NULL || slice->length != step || column->length != step) return false;
    if (lane->base == NULL || lane->stride != lane->row_bytes || lane->row_bytes != column->spec->row_bytes) return false;
  }
  return true;
}

bool rv_draws_are_run(const rv_draw *draws, size_t n, const rv_gaps *gaps)
{
  if (n == 0) return false;
  const rv_trajectory *template = draws[0].trajectory;
  const rv_chunk *chunk = draws[0].chunk;
  if (chunk == NULL || template->num_columns == 0) return false;
  const int64_t step = template->columns[0].length;
  if (!lies_together(template, chunk, step)) return false;
  for (size_t i = 1; i < n; i++)
    if (draws[i].trajectory != template || draws[i].chunk != chunk || draws[i].base_row != draws[i - 1].base_row + step)
      return false;
  for (size_t i = 0; i < gaps->count; i++)
    if (!is_in_rows(chunk, &gaps->gap[i])) return false;
  return true;
}

void rv_run_copy(rv_crew *crew, const rv_draw *draws, size_t n, uint32_t column, const rv_gaps *gaps, bool past_caches,
                 uint8_t *out)
{
  const rv_trajectory_column *spec = &draws[0].trajectory->columns[column];
  const rv_slice *slice = &draws[0].trajectory->slices[spec->first_slice];
  const rv_lane *lane = &draws[0].chunk->lanes[slice->tensor];
  const uint8_t *first = lane->base + (size_t)(draws[0].base_row + slice->offset) * lane->row_bytes;
  rv_gaps_copy_together(crew, gaps, past_caches, out, first, n * (size_t)slice->length * lane->row_bytes);
}
