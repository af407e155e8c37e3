/* Why items cannot stand in one batch, in a sentence. */
#ifndef RV_STORE_UNEQUAL_H
#define RV_STORE_UNEQUAL_H

#include "store/table.h"

/* Padding makes them one: every column has rows of the same dtype and number of dimensions. */
bool rv_layouts_can_be_padded(const rv_layout *a, const rv_layout *b);

/* RV_FAILED_PRECONDITION for items of both layouts, which are not the same: `table "t": its items cannot stand in one batch: column 1 "reward"
 * is int64[] in some and float64[] in others; ...`, with what helps against that. The signature, for the column's name, may be NULL. */
rv_code rv_fail_unequal(rv_error *err, const char *table, const rv_signature *signature, const rv_layout *a, const rv_layout *b);

#endif
