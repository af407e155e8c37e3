#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "wire/cut.h"
#include "wire/draw_ranges.h"
#include "wire/messages.h"
#include "wire/put.h"

/* Chunks smaller than this are copied: a reference costs more. */
enum { SHARE_BYTES = 4096, FEW_PLANS = 8 };

/* What an entry will hold, with all sizes known, so that it is written once and in place. */
typedef struct entry_plan {
  rv_cut_room room;
  rv_cut few[FEW_PLANS], *cuts; /* of the chunks [first, next); unused where a chunk goes whole */
  size_t capacity;
  uint32_t first, next;
  size_t bytes; /* of the chunks with their headers */
} entry_plan;

static void put_item(rv_writer_buf *out, const rv_draw *draw, const char *table, const rv_draw_ranges *ranges)
{
  size_t item = rv_put_open(out, 1);
  rv_put_varint(out, 1, draw->key);
  rv_put_string(out, 2, table);
  rv_put_double(out, 5, draw->priority);
  rv_put_int32(out, 6, draw->times_sampled);
  rv_put_time(out, 7, draw->inserted_at_ns);
  size_t trajectory = rv_put_open(out, 8);
  for (uint32_t i = 0; i < draw->trajectory->num_columns; i++) {
    const rv_trajectory_column *column = &draw->trajectory->columns[i];
    size_t mark = rv_put_open(out, 1);
    for (uint32_t j = column->first_slice; j < column->first_slice + column->num_slices; j++) {
      rv_slice slice = rv_draw_slice(draw, j);
      const rv_draw_range *range = &ranges->ranges[rv_draw_ranges_chunk(ranges, j)];
      int64_t offset = slice.offset - range->first;
      if (slice.length == 0) /* points at no row, and must not point outside those that are sent */
        offset = offset < 0 ? 0 : offset > range->end - range->first ? range->end - range->first : offset;
      rv_wire_slice wire = {.chunk_key = rv_chunk_get_meta(range->chunk)->key,
                            .offset = (int32_t)offset,
                            .length = slice.length,
                            .index = (int32_t)slice.tensor};
      rv_put_slice(out, &wire);
    }
    rv_put_varint(out, 2, column->squeeze);
    rv_put_close(out, mark);
  }
  rv_put_close(out, trajectory);
  rv_put_close(out, item);
}

static void put_info(rv_writer_buf *out, const rv_draw *draw, const char *table, const rv_draw_ranges *ranges)
{
  size_t info = rv_put_open(out, 1);
  put_item(out, draw, table, ranges);
  rv_put_double(out, 2, draw->probability);
  rv_put_varint(out, 3, (uint64_t)draw->table_size);
  rv_put_varint(out, 4, draw->rate_limited);
  rv_put_close(out, info);
}

/* ---- planning ---- */

static rv_code reserve(entry_plan *plan, size_t count, rv_error *err)
{
  if (count < plan->capacity) return RV_OK;
  size_t capacity = plan->capacity * 2;
  rv_cut *grown = malloc(capacity * sizeof *grown);
  if (grown == NULL) return rv_fail_memory(err, capacity * sizeof *grown);
  memcpy(grown, plan->cuts, count * sizeof *grown);
  if (plan->cuts != plan->few) free(plan->cuts);
  plan->cuts = grown;
  plan->capacity = capacity;
  return RV_OK;
}

static rv_code chunk_size(entry_plan *plan, const rv_draw_range *range, rv_cut *cut, size_t *size, rv_error *err)
{
  if (range->whole) {
    const uint8_t *wire = NULL;
    (void)rv_chunk_wire(range->chunk, &wire, size);
    return RV_OK;
  }
  const rv_cut_order order = {
      .key = rv_chunk_get_meta(range->chunk)->key, .column = SIZE_MAX, .first = range->first, .count = range->end - range->first};
  rv_code code = rv_cut_plan(&plan->room, range->chunk, &order, cut, err);
  *size = cut->size;
  return code;
}

static rv_code plan_chunks(entry_plan *plan, const rv_draw_ranges *ranges, uint32_t first, size_t max_bytes, rv_error *err)
{
  rv_cut_room_init(&plan->room);
  plan->cuts = plan->few;
  plan->capacity = FEW_PLANS;
  plan->first = plan->next = first;
  plan->bytes = 0;
  for (; plan->next < ranges->num_chunks; plan->next++) {
    rv_code code = reserve(plan, plan->next - first, err);
    if (code != RV_OK) return code;
    rv_cut *cut = &plan->cuts[plan->next - first];
    size_t size = 0;
    code = chunk_size(plan, &ranges->ranges[plan->next], cut, &size, err);
    if (code != RV_OK) return code;
    size += 1 + rv_varint_size(size);
    if (plan->next > first && (size > max_bytes || plan->bytes > max_bytes - size)) {
      if (!ranges->ranges[plan->next].whole) rv_cut_drop(&plan->room, cut);
      return RV_OK;
    }
    plan->bytes += size;
  }
  return RV_OK;
}

static void plan_fini(entry_plan *plan)
{
  rv_cut_room_fini(&plan->room);
  if (plan->cuts != plan->few) free(plan->cuts);
}

/* ---- writing ---- */

static rv_code write_whole(rv_pieces *out, rv_chunk *chunk, rv_writer_buf *scratch, rv_error *err)
{
  const uint8_t *wire = NULL;
  size_t size = 0;
  rv_buf *owner = rv_chunk_wire(chunk, &wire, &size);
  rv_put_header(scratch, 2, size);
  rv_code code = rv_writer_buf_flush(scratch, out, err);
  if (code != RV_OK) return code;
  if (rv_chunk_is_spilled(chunk)) {
    code = rv_chunk_hold_wire(chunk, &wire, &size, &owner, err);
    if (code != RV_OK) return code;
    code = rv_pieces_give(out, owner, wire, size);
  } else {
    code = size < SHARE_BYTES ? rv_pieces_copy(out, wire, size) : rv_pieces_share(out, owner, wire, size);
  }
  return code == RV_OK ? RV_OK : rv_fail_memory(err, size);
}

static rv_code write_chunks(rv_pieces *out, entry_plan *plan, const rv_draw_ranges *ranges, rv_writer_buf *scratch, rv_error *err)
{
  rv_code code = RV_OK;
  for (uint32_t i = plan->first; code == RV_OK && i < plan->next; i++) {
    const rv_draw_range *range = &ranges->ranges[i];
    if (range->whole) {
      code = write_whole(out, range->chunk, scratch, err);
      continue;
    }
    rv_cut *cut = &plan->cuts[i - plan->first];
    rv_put_header(scratch, 2, cut->size);
    code = rv_cut_write(out, &plan->room, cut, scratch, err);
  }
  return code;
}

/* Its header is written before what is in `scratch` already. */
static rv_code write_entry_header(rv_pieces *out, size_t size, rv_error *err)
{
  enum { ENTRIES = 1 << 3 | RV_WIRE_BYTES };
  uint8_t header[11] = {ENTRIES};
  size_t n = 1;
  for (; size >= 0x80; size >>= 7) header[n++] = (uint8_t)(size | 0x80);
  header[n++] = (uint8_t)size;
  return rv_pieces_copy(out, header, n) == RV_OK ? RV_OK : rv_fail_memory(err, n);
}

static rv_code write_entry(rv_pieces *out, entry_plan *plan, const rv_draw *draw, const char *table, const rv_draw_ranges *ranges,
                           rv_error *err)
{
  rv_writer_buf scratch;
  rv_writer_buf_init(&scratch);
  if (plan->first == 0) put_info(&scratch, draw, table, ranges);
  bool end = plan->next == ranges->num_chunks;
  rv_code code = write_entry_header(out, scratch.size + plan->bytes + (end ? 2 : 0), err);
  if (code == RV_OK) code = write_chunks(out, plan, ranges, &scratch, err);
  if (code == RV_OK) {
    rv_put_varint(&scratch, 3, end);
    code = rv_writer_buf_flush(&scratch, out, err);
  }
  rv_writer_buf_fini(&scratch);
  return code;
}

rv_code rv_sample_entry_serialize(rv_pieces *out, const rv_draw *draw, const char *table, uint32_t first_chunk, size_t max_bytes,
                                  uint32_t *next_chunk, rv_error *err)
{
  rv_draw_ranges ranges;
  rv_code code = rv_draw_ranges_init(&ranges, draw, err);
  if (code != RV_OK) return code;
  entry_plan plan;
  code = plan_chunks(&plan, &ranges, first_chunk, max_bytes, err);
  if (code == RV_OK) code = write_entry(out, &plan, draw, table, &ranges, err);
  if (code == RV_OK) *next_chunk = plan.next;
  rv_draw_name_lost(draw, code, err);
  plan_fini(&plan);
  rv_draw_ranges_fini(&ranges);
  return code;
}
