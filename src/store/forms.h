/* Kinds of rows that are inserted without a trajectory (rv_rows). A table remembers the few it met last, each with an open
 * segment. Under the table's lock, but for rv_form_new. */
#ifndef RV_STORE_FORMS_H
#define RV_STORE_FORMS_H

#include "store/table_parts.h"

/* Do the rows look like that? Numbers of rows and data are checked too. */
bool rv_form_is_of(const rv_form *form, const rv_rows *rows);
/* Checks the columns, also against the table's signature; without the lock. The caller owns a reference. */
rv_code rv_form_new(rv_table *table, const rv_rows *rows, rv_form **out, rv_error *err);
/* The caller gets a reference, or NULL. */
rv_form *rv_forms_find(rv_table *table, const rv_rows *rows);
void rv_forms_add(rv_table *table, rv_form *form, rv_garbage *garbage);
void rv_form_unref(rv_table *table, rv_form *form, rv_garbage *garbage);

/* How many bytes of segments come with the form's next row: 0 where the open one has room. */
size_t rv_form_comes(const rv_table *table, const rv_form *form);
/* An open segment with room for at least one row. */
rv_code rv_form_open(rv_table *table, rv_form *form, rv_garbage *garbage, rv_error *err);
/* Counts `items` more that use the form's template; form->number is its number. */
rv_code rv_form_use_template(rv_table *table, rv_form *form, uint32_t items, rv_error *err);
/* A segment that was used before; NULL: make one of *capacity rows. */
rv_chunk *rv_form_take_segment(rv_table *table, rv_form *form, size_t *capacity);
/* The same, where the caller knows how many rows it wants. */
rv_chunk *rv_form_take_spare(rv_table *table, const rv_form *form, size_t capacity);
/* The identity of a chunk of rows that belong to no episode. */
rv_chunk_meta rv_rows_meta(rv_table *table, int64_t rows);

#endif
