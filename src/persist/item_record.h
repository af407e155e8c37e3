/* Items as records of files: PrioritizedItem, with the chunks they need written before them. */
#ifndef RV_PERSIST_ITEM_RECORD_H
#define RV_PERSIST_ITEM_RECORD_H

#include "persist/cut_alike.h"

/* Room that is used again for each item. Begins zeroed. */
typedef struct rv_item_scratch {
  rv_slice_list slices;
  rv_cutting cutting;
  uint32_t *num_slices; /* per column of the item at hand */
  bool *squeeze;
  uint32_t columns_capacity;
} rv_item_scratch;

void rv_item_scratch_fini(rv_item_scratch *scratch);

/* Fetches from memory what putting the item will look for in the log, of its first slices, without waiting for it. */
void rv_item_record_prefetch(const rv_chunk_log *log, const rv_draw *draw);
/* The disk is told to bring what of it lies in a spill's file and is to be written. */
void rv_item_record_ask(const rv_chunk_log *log, const rv_draw *draw);

/* Has the log write what the item needs and is not written yet, and appends the item. `table` may be empty, and naming is left out
 * where it is 0. */
rv_code rv_item_record_put(rv_item_scratch *scratch, rv_chunk_log *log, const char *table, uint64_t naming, const rv_draw *draw,
                           rv_writer_buf *out, rv_error *err);

#endif
