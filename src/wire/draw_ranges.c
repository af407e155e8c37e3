#include "wire/draw_ranges.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/map.h"
#include "store/chunk_parts.h"

enum { FEW_CHUNKS = 8, FEW_SLICES = 32, LINEAR_CHUNKS = 16, CUT_MIN_BYTES = 512 };

/* ---- each slice's chunk ---- */

static uint64_t key_of(const rv_chunk *chunk)
{
  return (uint64_t)(uintptr_t)chunk;
}

static rv_code map_chunks(rv_map *map, const rv_draw_ranges *ranges, rv_error *err)
{
  for (uint32_t i = 0; i < ranges->num_chunks; i++)
    if (rv_map_put(map, key_of(ranges->ranges[i].chunk), i) != RV_OK)
      return rv_fail_memory(err, ranges->num_chunks * sizeof(rv_map_entry));
  return RV_OK;
}

static uint32_t look_along(const rv_draw_ranges *ranges, const rv_chunk *chunk)
{
  uint32_t i = 0;
  while (i + 1 < ranges->num_chunks && ranges->ranges[i].chunk != chunk) i++;
  return i;
}

static rv_code assign_slices(rv_draw_ranges *ranges, const rv_trajectory *trajectory, rv_error *err)
{
  rv_map map;
  rv_map_init(&map, 0); /* keys are addresses: nobody else chooses them */
  bool mapped = ranges->num_chunks > LINEAR_CHUNKS;
  rv_code code = mapped ? map_chunks(&map, ranges, err) : RV_OK;
  uint32_t last = 0;
  for (uint32_t i = 0; code == RV_OK && i < trajectory->num_slices; i++) {
    const rv_chunk *chunk = trajectory->slices[i].chunk;
    if (ranges->ranges[last].chunk != chunk) {
      uint32_t *found = mapped ? rv_map_get(&map, key_of(chunk)) : NULL;
      last = found != NULL ? *found : look_along(ranges, chunk);
    }
    ranges->slice_chunk[i] = last;
  }
  rv_map_fini(&map);
  return code;
}

/* ---- ranges ---- */

static void widen(rv_draw_range *range, const rv_slice *slice)
{
  if (slice->length <= 0) return;
  int64_t end = (int64_t)slice->offset + slice->length;
  if (range->end == 0) {
    range->first = slice->offset;
    range->end = end;
    return;
  }
  if (slice->offset < range->first) range->first = slice->offset;
  if (end > range->end) range->end = end;
}

static bool all_raw(const rv_chunk *chunk)
{
  for (size_t i = 0; i < rv_chunk_num_columns(chunk); i++)
    if (!rv_chunk_is_raw(chunk, i)) return false;
  return true;
}

/* A chunk that came encoded is cut only where that saves at least half of a chunk worth the trouble. */
static void decide(rv_draw_range *range)
{
  const uint8_t *wire = NULL;
  size_t wire_size = 0;
  int64_t rows = rv_chunk_num_rows(range->chunk, 0);
  if (range->end == 0) range->end = rows > 0 ? 1 : 0; /* only slices of no rows: any row will do */
  if (rv_chunk_wire(range->chunk, &wire, &wire_size) == NULL) return;
  range->whole = wire_size < CUT_MIN_BYTES || (range->end - range->first) * 2 > rows || !all_raw(range->chunk);
  if (range->whole) range->first = 0;
}

static rv_code make_room(rv_draw_ranges *out, const rv_trajectory *trajectory, rv_error *err)
{
  size_t size = out->num_chunks * sizeof *out->ranges;
  if (out->num_chunks > FEW_CHUNKS) out->ranges = malloc(size);
  if (out->ranges == NULL) return rv_fail_memory(err, size);
  out->slice_chunk = NULL;
  if (out->num_chunks < 2) return RV_OK;
  size = trajectory->num_slices * sizeof *out->slice_chunk;
  out->slice_chunk = trajectory->num_slices > FEW_SLICES ? malloc(size) : out->few_slices;
  if (out->slice_chunk != NULL) return RV_OK;
  rv_draw_ranges_fini(out);
  return rv_fail_memory(err, size);
}

rv_code rv_draw_ranges_init(rv_draw_ranges *out, const rv_draw *draw, rv_error *err)
{
  const rv_trajectory *trajectory = draw->trajectory;
  bool template = draw->chunk != NULL;
  out->num_chunks = template ? 1 : trajectory->num_chunks;
  out->ranges = out->few;
  rv_code code = make_room(out, trajectory, err);
  if (code != RV_OK) return code;
  for (uint32_t i = 0; i < out->num_chunks; i++)
    out->ranges[i] = (rv_draw_range){.chunk = template ? draw->chunk : trajectory->chunks[i]};
  if (out->slice_chunk != NULL) code = assign_slices(out, trajectory, err);
  if (code != RV_OK) {
    rv_draw_ranges_fini(out);
    return code;
  }
  for (uint32_t i = 0; i < trajectory->num_slices; i++) {
    rv_slice slice = rv_draw_slice(draw, i);
    widen(&out->ranges[rv_draw_ranges_chunk(out, i)], &slice);
  }
  for (uint32_t i = 0; i < out->num_chunks; i++) decide(&out->ranges[i]);
  return RV_OK;
}

void rv_draw_ranges_fini(rv_draw_ranges *ranges)
{
  if (ranges->ranges != ranges->few) free(ranges->ranges);
  if (ranges->slice_chunk != ranges->few_slices) free(ranges->slice_chunk);
}
