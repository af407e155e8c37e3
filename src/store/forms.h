/* Kinds of rows that are inserted without a trajectory (rv_rows). A table remembers the few it met last, each with an open
 * segment. Under the table's lock, but for rv_form_new. */
#ifndef RV_STORE_FORMS_H
#define RV_STORE_FORMS_H

#include "store/table_parts.h"

enum { RV_ROWS_STEP_BYTES = 1 << 15 }; /* copied in one step */

/* Do the rows look like that? Numbers of rows and data are checked too. */
bool rv_form_is_of(const rv_form *form, const rv_rows *rows);
/* The same of one row without a leading dimension. */
static inline bool rv_form_is_of_row(const rv_form *form, const rv_tensor *columns, size_t num_columns)
{
  if (form->num_columns != num_columns) return false;
  for (size_t c = 0; c < num_columns; c++) {
    const rv_tensor *column = &columns[c];
    const rv_spec *spec = &form->specs[c];
    uint32_t rank = column->rank;
    if (column->dtype != spec->dtype || rank != (uint32_t)spec->rank || (column->data == NULL && form->column_bytes[c] > 0))
      return false;
    for (uint32_t d = 0; d < rank; d++)
      if (column->shape[d] != spec->shape[d]) return false;
  }
  return true;
}
/* The steady state: nobody waits, the table is full, its oldest items may be replaced, and n rows like those that came last find room in
 * their segment. The form of these; NULL: something is not so, and the long way finds out what, and does the same. */
static inline rv_form *rv_form_at_once(rv_table *table, size_t n)
{
  const rv_books *books = &table->books;
  rv_form *form = table->forms[0];
  if (!table->replaces || table->closed || (int64_t)books->slab.count != table->config.max_size || form == NULL ||
      !rv_list_empty(&table->inserts) || !rv_list_empty(&table->samples))
    return NULL;
  if (form->epoch != books->epoch || form->hold == NULL || (size_t)(form->capacity - form->fill) < n || form->has_strings ||
      n * form->row_bytes > RV_ROWS_STEP_BYTES)
    return NULL;
  const rv_template *template = &books->templates.entry[form->number];
  return template->trajectory == form->template && template->items > 0 ? form : NULL;
}
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
