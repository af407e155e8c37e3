/* Drawn items whose rows lie one item after another in the same chunks, as a pack of samples brings them. */
#ifndef RV_STORE_SPREAD_H
#define RV_STORE_SPREAD_H

#include "store/trajectory.h"

/* Gives draws[0 .. n) their rows: `first` describes item 0, and each further item's slices lie behind those of the item before it.
 * Sets trajectory, chunk and base_row only, with references of their own. Items of one chunk whose slices are equally long share a
 * template; any others get a trajectory each. RV_INVALID_ARGUMENT as for rv_trajectory_new, or where a chunk has too few rows;
 * no draw then holds anything. */
rv_code rv_draws_spread(rv_layouts *layouts, const rv_trajectory_desc *first, rv_draw *draws, size_t n, rv_error *err);

#endif
