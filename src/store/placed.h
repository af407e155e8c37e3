/* Items over rows that their writer has placed itself, in segments of its own: rows that several items may share, such as an
 * observation that is one transition's next and the following one's own.
 *
 * All items of a form look alike: the same rows of each column, counted from a base row. So an insert is a segment and a base
 * row, and nothing is allocated for it. */
#ifndef RV_STORE_PLACED_H
#define RV_STORE_PLACED_H

#include "store/waiter.h"

/* A kind of items of one table. */
typedef struct rv_form rv_form;

/* Rows [first, first + length) of a segment's tensor, counted from the base row; squeezed: it is one, without a time
 * dimension. */
typedef struct rv_placed_column {
  uint32_t tensor, first, length;
  bool squeeze;
} rv_placed_column;

/* Items with these columns over segments with tensors like `specs` (no strings). Some column begins at the base row.
 * RV_INVALID_ARGUMENT: they do not fit the table's signature. */
rv_code rv_placed_form_new(rv_table *table, const rv_spec *specs, uint32_t num_specs, const rv_placed_column *columns,
                           uint32_t num_columns, rv_form **out, rv_error *err);
/* The writer lets it go; items stay. NULL is fine. */
void rv_placed_form_free(rv_table *table, rv_form *form);

/* A writer fills so many segments side by side from now on, or no longer: what they may take together is divided among all. */
void rv_placed_begin(rv_table *table, size_t streams);
void rv_placed_end(rv_table *table, size_t streams);
/* That part in bytes; where it changes, rows are to be asked for anew. Without the lock. */
size_t rv_placed_share(const rv_table *table);
/* A segment of more rows is of a time when the part was larger: its writer takes another. */
size_t rv_placed_most_rows(const rv_table *table, const rv_form *form);
/* How many rows a segment should have of a writer that fills `streams` of them side by side, all into one table, and begins
 * each with `repeated` rows that the one before has too: few cost memory by what is repeated, many by what is not yet, or no
 * longer, in use. */
size_t rv_placed_segment_rows(rv_table *table, const rv_form *form, size_t streams, size_t repeated);
/* An empty segment of about so many rows, the caller's reference: one of the table's that died, where there is one. */
rv_code rv_placed_segment_new(rv_table *table, rv_form *form, size_t capacity, rv_chunk **out, rv_error *err);
/* No more rows come into it. Takes the reference; NULL is fine. */
void rv_placed_segment_close(rv_table *table, rv_chunk *owned_segment);

/* Are the table's rows more than the caches keep until somebody samples them? */
bool rv_placed_outgrows_caches(rv_table *table);

/* RV_INVALID_ARGUMENT: the table refuses one of them; the sentence says which. NULL: all 1. Those of rows for which `where` (NULL: for none) is
 * false are not looked at. */
rv_code rv_placed_check_priorities(const rv_table *table, const double *priorities, const bool *where, size_t n, rv_error *err);
/* Inserts rows->n items of the form, whose priorities were checked: of `rows`, n, placed, priorities, keys and naming are
 * read. The rows are published, in segments that are not closed. */
rv_submitted rv_table_insert_placed(rv_table *table, rv_form *form, rv_rows *rows);

#endif
