#include <stdlib.h>

#include "base/error.h"
#include "wire/messages.h"

enum { FEW_SLICES = 32 };

static rv_code resolve(const rv_wire_item *item, rv_chunk *(*find)(void *context, uint64_t key), void *context, rv_slice *slices,
                       rv_error *err)
{
  const rv_wire_slice *last = NULL;
  for (uint32_t i = 0; i < item->total_slices; i++) {
    const rv_wire_slice *wire = &item->slices[i];
    rv_chunk *chunk = last != NULL && last->chunk_key == wire->chunk_key ? slices[i - 1].chunk : find(context, wire->chunk_key);
    if (chunk == NULL)
      return rv_fail(err, RV_INTERNAL,
                     "item %llu refers to chunk %llu, which is not there: send a chunk before the items that use it",
                     (unsigned long long)item->key, (unsigned long long)wire->chunk_key);
    slices[i] = (rv_slice){.chunk = chunk, .tensor = (uint32_t)wire->index, .offset = wire->offset, .length = wire->length};
    last = wire;
  }
  return RV_OK;
}

rv_code rv_wire_item_trajectory(const rv_wire_item *item, rv_layouts *layouts, rv_layout *like,
                                rv_chunk *(*find)(void *context, uint64_t key), void *context, rv_trajectory **out, rv_error *err)
{
  rv_slice few[FEW_SLICES], *slices = few;
  if (item->total_slices > FEW_SLICES) slices = malloc(item->total_slices * sizeof *slices);
  if (slices == NULL) return rv_fail_memory(err, item->total_slices * sizeof *slices);
  rv_code code = resolve(item, find, context, slices, err);
  if (code == RV_OK) {
    const rv_trajectory_desc desc = {.slices = slices,
                                     .num_slices = item->num_slices,
                                     .squeeze = item->squeeze,
                                     .num_columns = item->num_columns,
                                     .like = like};
    code = rv_trajectory_new(layouts, &desc, out, err);
  }
  if (slices != few) free(slices);
  return code;
}
