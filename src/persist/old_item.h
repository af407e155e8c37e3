/* Items of checkpoints from before January 2021: chunk keys and a range of steps in place of a trajectory. */
#ifndef RV_PERSIST_OLD_ITEM_H
#define RV_PERSIST_OLD_ITEM_H

#include "store/trajectory.h"
#include "wire/messages.h"

typedef struct rv_old_item {
  uint64_t *chunk_keys; /* owned */
  size_t num_chunks;    /* 0: the item has the form of today */
  int32_t offset, length;
} rv_old_item;

rv_code rv_old_item_parse(rv_span message, rv_old_item *out, rv_error *err);
void rv_old_item_fini(rv_old_item *item);
/* One column for each tensor of the first chunk: `length` rows from row `offset` of all chunks, one behind the other. `find` as for
 * rv_wire_item_trajectory. */
rv_code rv_old_item_trajectory(const rv_old_item *item, uint64_t key, rv_layouts *layouts,
                               rv_chunk *(*find)(void *context, uint64_t key), void *context, rv_trajectory **out, rv_error *err);

#endif
