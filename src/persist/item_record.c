#include "persist/item_record.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { PREFETCHED = 8 /* columns of an item */ };

void rv_item_scratch_fini(rv_item_scratch *scratch)
{
  free(scratch->slices.slices);
  rv_cutting_fini(&scratch->cutting);
  free(scratch->num_slices);
  free(scratch->squeeze);
  *scratch = (rv_item_scratch){0};
}

static rv_code make_room_for_columns(rv_item_scratch *scratch, uint32_t columns, rv_error *err)
{
  if (columns <= scratch->columns_capacity) return RV_OK;
  uint32_t *num_slices = realloc(scratch->num_slices, columns * sizeof *num_slices);
  if (num_slices != NULL) scratch->num_slices = num_slices;
  bool *squeeze = realloc(scratch->squeeze, columns * sizeof *squeeze);
  if (squeeze != NULL) scratch->squeeze = squeeze;
  if (num_slices == NULL || squeeze == NULL) return rv_fail_memory(err, columns * sizeof *num_slices);
  scratch->columns_capacity = columns;
  return RV_OK;
}

void rv_item_record_prefetch(const rv_chunk_log *log, const rv_draw *draw)
{
  const rv_trajectory *trajectory = draw->trajectory;
  for (uint32_t i = 0; i < trajectory->num_columns && i < PREFETCHED; i++)
    if (trajectory->columns[i].num_slices > 0)
      rv_chunk_log_prefetch(log, rv_draw_slice(draw, trajectory->columns[i].first_slice).chunk);
}

void rv_item_record_ask(const rv_chunk_log *log, const rv_draw *draw)
{
  if (draw->chunk != NULL) rv_chunk_log_ask(log, draw->chunk);
  for (uint32_t i = 0; i < draw->trajectory->num_chunks; i++) rv_chunk_log_ask(log, draw->trajectory->chunks[i]);
}

rv_code rv_item_record_put(rv_item_scratch *scratch, rv_chunk_log *log, const char *table, uint64_t naming, const rv_draw *draw,
                           rv_writer_buf *out, rv_error *err)
{
  const rv_trajectory *trajectory = draw->trajectory;
  rv_code code = make_room_for_columns(scratch, trajectory->num_columns, err);
  scratch->slices.count = 0;
  for (uint32_t i = 0; i < trajectory->num_columns && code == RV_OK; i++) {
    const rv_trajectory_column *column = &trajectory->columns[i];
    size_t before = scratch->slices.count;
    for (uint32_t k = 0; k < column->num_slices && code == RV_OK; k++) {
      rv_slice slice = rv_draw_slice(draw, column->first_slice + k);
      code = rv_chunk_log_put(log, &slice, &scratch->slices, err);
      if (code == RV_OK && scratch->slices.count > RV_ITEM_SLICES_MAX)
        code = rv_fail(err, RV_INVALID_ARGUMENT, "an item of more than %d slices cannot be written", RV_ITEM_SLICES_MAX);
    }
    scratch->num_slices[i] = (uint32_t)(scratch->slices.count - before);
    scratch->squeeze[i] = column->squeeze;
  }
  rv_draw_name_lost(draw, code, err);
  if (code == RV_DATA_LOSS) rv_error_prefix(err, "table \"%s\"", table);
  if (code == RV_OK && rv_trajectory_is_cut_alike(trajectory))
    code = rv_cut_alike(&scratch->cutting, &scratch->slices, scratch->num_slices, trajectory->num_columns, err);
  if (code != RV_OK) return code;
  const rv_wire_item item = {.key = draw->key,
                             .table = {(const uint8_t *)table, strlen(table)},
                             .priority = draw->priority,
                             .times_sampled = draw->times_sampled,
                             .inserted_at_ns = draw->inserted_at_ns,
                             .naming = naming,
                             .slices = scratch->slices.slices,
                             .num_slices = scratch->num_slices,
                             .squeeze = scratch->squeeze,
                             .num_columns = trajectory->num_columns,
                             .total_slices = (uint32_t)scratch->slices.count};
  rv_wire_item_serialize(out, &item);
  return out->failed ? rv_fail_memory(err, out->size) : RV_OK;
}
