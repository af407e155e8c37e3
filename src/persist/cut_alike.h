/* An item's columns may all be cut into slices of the same lengths: Reverb's timestep dataset takes apart no others. Where a file has their rows in
 * other pieces, slices are cut again, so that they are cut alike there, too. */
#ifndef RV_PERSIST_CUT_ALIKE_H
#define RV_PERSIST_CUT_ALIKE_H

#include "persist/chunk_log.h"

/* Room that is used again for each item. Begins zeroed. */
typedef struct rv_cutting {
  rv_wire_slice *slices;
  size_t capacity;
  int32_t *ends; /* rows at which slices end, in order: twice as many as there are slices */
  size_t ends_capacity;
} rv_cutting;

void rv_cutting_fini(rv_cutting *cutting);

/* Are all columns of the trajectory cut alike? */
bool rv_trajectory_is_cut_alike(const rv_trajectory *trajectory);

/* Makes them so, unless that takes more than 65,536 slices: `slices` are those of column 0, then those of column 1 and so on, and have as many rows in each; num_slices[column]. */
rv_code rv_cut_alike(rv_cutting *cutting, rv_slice_list *slices, uint32_t *num_slices, uint32_t num_columns, rv_error *err);

#endif
