#include <stdlib.h>

#include "base/error.h"
#include "wire/messages.h"

enum { FEW = 32 };

static rv_code find(const rv_wire_item *item, const rv_wire_slice *wire, rv_find_chunk find_chunk, void *context,
                    rv_chunk_place *out, rv_error *err)
{
  if (find_chunk(context, wire->chunk_key, out)) return RV_OK;
  return rv_fail(err, RV_INTERNAL,
                 "item %llu refers to chunk %llu, which is not there: send a chunk before the items that use it",
                 (unsigned long long)item->key, (unsigned long long)wire->chunk_key);
}

/* Of a joined chunk, whose rows have others on both sides. */
static rv_code check_rows(const rv_wire_slice *wire, const rv_chunk_place *place, uint32_t column, rv_error *err)
{
  if (wire->offset >= 0 && wire->length >= 0 && (int64_t)wire->offset + wire->length <= place->rows) return RV_OK;
  return rv_fail(err, RV_INVALID_ARGUMENT, "column %u: %d rows from row %d of a chunk that has %lld", (unsigned)column,
                 (int)wire->length, (int)wire->offset, (long long)place->rows);
}

/* Does it go on where the one before it ends? */
static bool goes_on(const rv_slice *before, const rv_slice *slice)
{
  return slice->chunk == before->chunk && slice->tensor == before->tensor && slice->offset == before->offset + before->length;
}

/* The item's slices over the chunks where they are, those that go on joined; *num_slices of each column. */
static rv_code resolve(const rv_wire_item *item, rv_find_chunk find_chunk, void *context, rv_slice *slices, uint32_t *num_slices,
                       rv_error *err)
{
  const rv_wire_slice *wire = item->slices, *last = NULL;
  rv_chunk_place place;
  for (uint32_t column = 0; column < item->num_columns; column++) {
    const rv_slice *first = slices;
    for (uint32_t i = 0; i < item->num_slices[column]; i++, last = wire++) {
      rv_code code = RV_OK;
      if (last == NULL || last->chunk_key != wire->chunk_key) code = find(item, wire, find_chunk, context, &place, err);
      if (code == RV_OK && place.is_joined) code = check_rows(wire, &place, column, err);
      if (code != RV_OK) return code;
      *slices = (rv_slice){.chunk = place.chunk, .tensor = (uint32_t)wire->index, .offset = wire->offset, .length = wire->length};
      if (place.is_joined) slices->offset += (int32_t)place.first;
      if (place.is_joined && slices > first && goes_on(slices - 1, slices))
        slices[-1].length += slices->length;
      else
        slices++;
    }
    num_slices[column] = (uint32_t)(slices - first);
  }
  return RV_OK;
}

rv_code rv_wire_item_trajectory(const rv_wire_item *item, rv_layouts *layouts, rv_layout *like, rv_find_chunk find_chunk,
                                void *context, rv_trajectory **out, rv_error *err)
{
  rv_slice few[FEW], *slices = few;
  uint32_t few_numbers[FEW], *num_slices = few_numbers;
  if (item->total_slices > FEW || item->num_columns > FEW) {
    size_t bytes = item->total_slices * sizeof *slices + item->num_columns * sizeof *num_slices;
    slices = malloc(bytes);
    if (slices == NULL) return rv_fail_memory(err, bytes);
    num_slices = (uint32_t *)(void *)(slices + item->total_slices);
  }
  rv_code code = resolve(item, find_chunk, context, slices, num_slices, err);
  if (code == RV_OK) {
    const rv_trajectory_desc desc = {
        .slices = slices, .num_slices = num_slices, .squeeze = item->squeeze, .num_columns = item->num_columns, .like = like};
    code = rv_trajectory_new(layouts, &desc, out, err);
  }
  if (slices != few) free(slices);
  return code;
}
