/* Large rows, and large batches of rows, are copied before the table is entered: by several threads where that pays, into a segment
 * that the form lends to one caller at a time. */
#ifndef RV_STORE_PREPARE_H
#define RV_STORE_PREPARE_H

#include "store/table_parts.h"

/* Are the rows that are left copied so? Of many strings not under the lock (rv_form_has_many_strings). */
bool rv_rows_are_large(const rv_table *table, const rv_form *form, const rv_rows *rows);
/* Copies those that are not in yet; all, or as many as are bounded at one time, which are then this piece. Ends the turn and begins it again. The
 * rows' form is set. */
rv_code rv_rows_prepare(rv_turn *turn, rv_rows *rows, rv_error *err);
/* The copies among which row `rows->done` is, and which row these begin with; NULL: it was not copied. */
const rv_prepared *rv_rows_part(const rv_rows *rows, size_t *begin);
/* Its copy: segment and place there, and how many rows follow it there; NULL: it was not copied. */
rv_chunk *rv_rows_prepared(const rv_rows *rows, int64_t *first, size_t *left);
/* Drops what the rows still hold; under the lock, so that what nobody else has joins the garbage. */
void rv_rows_unprepare(rv_rows *rows, rv_garbage *garbage);

#endif
