/* Large rows, and large batches of rows, are copied before the table is entered: by several threads where that pays, into a segment
 * that the form lends to one caller at a time. */
#ifndef RV_STORE_PREPARE_H
#define RV_STORE_PREPARE_H

#include "store/table_parts.h"

/* Are these rows copied so? */
bool rv_rows_are_large(const rv_form *form, const rv_rows *rows);
/* Copies them; all, or as many as are bounded at one time. Ends the turn and begins it again. The rows' form is set. */
rv_code rv_rows_prepare(rv_turn *turn, rv_rows *rows, rv_error *err);
/* The copy of row `rows->done`: its segment and place there, and how many rows follow it there; NULL: it was not copied. */
rv_chunk *rv_rows_prepared(const rv_rows *rows, int64_t *first, size_t *left);
/* Drops what the rows still hold. */
void rv_rows_unprepare(rv_rows *rows);

#endif
