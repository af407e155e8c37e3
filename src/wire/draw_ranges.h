/* Which rows of each of its chunks a drawn item uses, and where its slices point when only those are sent. */
#ifndef RV_WIRE_DRAW_RANGES_H
#define RV_WIRE_DRAW_RANGES_H

#include "store/trajectory.h"

typedef struct rv_draw_range {
  rv_chunk *chunk;
  int64_t first, end; /* the rows to send */
  bool whole;         /* the chunk goes as it came */
} rv_draw_range;

/* Ranges of all chunks, in the order of first appearance, and each slice's chunk. */
typedef struct rv_draw_ranges {
  rv_draw_range few[8], *ranges;
  uint32_t few_slices[32], *slice_chunk; /* per slice: index into ranges; NULL where all are 0 */
  uint32_t num_chunks;
} rv_draw_ranges;

/* The same draw gives the same ranges each time it is asked. */
rv_code rv_draw_ranges_init(rv_draw_ranges *out, const rv_draw *draw, rv_error *err);
void rv_draw_ranges_fini(rv_draw_ranges *ranges);
static inline uint32_t rv_draw_ranges_chunk(const rv_draw_ranges *ranges, uint32_t slice)
{
  return ranges->slice_chunk == NULL ? 0 : ranges->slice_chunk[slice];
}

#endif
