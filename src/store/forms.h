/* Kinds of rows that are inserted without a trajectory (rv_rows). A table remembers the few it met last, each with an open
 * segment. Under the table's lock, but for rv_form_new. */
#ifndef RV_STORE_FORMS_H
#define RV_STORE_FORMS_H

#include "base/pages.h"
#include "store/table_parts.h"

enum {
  RV_ROWS_STEP_BYTES = 1 << 15,        /* copied in one step */
  RV_ROWS_STEP_STRING_BYTES = 1 << 14, /* where they have strings: these are dearer, one by one */
  RV_MOST_SEGMENT_BYTES = RV_HUGE_PAGE
};

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
    if (rank > 0 && column->shape == NULL) return false;
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
void rv_forms_add(rv_turn *turn, rv_form *form);
void rv_form_unref(rv_table *table, rv_form *form, rv_garbage *garbage);

/* How many bytes of segments come with the form's next row: 0 where the open one has room. */
size_t rv_form_comes(const rv_table *table, const rv_form *form);
/* How many of the rows from `first` on, `most_rows` at most and one at least, are `most_bytes` together with their strings; *bytes: what these are. */
size_t rv_form_rows_within(const rv_form *form, const rv_rows *rows, size_t first, size_t most_rows, size_t most_bytes,
                           size_t *bytes);
/* What a row takes with its strings. */
size_t rv_form_bytes_of_row(const rv_form *form, const rv_rows *rows, size_t row);
/* At most so many strings, of all rows that are not in yet, are looked at under the table's lock. */
enum { RV_STRINGS_LOOKED_AT = 256 };
static inline bool rv_form_has_many_strings(const rv_form *form, const rv_rows *rows)
{
  return form->has_strings && form->row_bytes / sizeof(rv_bytes) > RV_STRINGS_LOOKED_AT / (rows->n - rows->done);
}
/* A segment of more bytes with its strings takes no more rows. */
static inline size_t rv_form_most_with_strings(const rv_table *table)
{
  size_t share = rv_table_share(table);
  return share < RV_MOST_SEGMENT_BYTES ? share : RV_MOST_SEGMENT_BYTES;
}
/* Closes the open segment, though it has room for more rows. */
void rv_form_leave(rv_table *table, rv_form *form, rv_garbage *garbage);
/* The same where the strings of its rows have made it that large. */
static inline void rv_form_leave_full(rv_table *table, rv_form *form, rv_garbage *garbage)
{
  if (form->has_strings && form->epoch == table->books.epoch && form->hold != NULL &&
      form->hold->memory > rv_form_most_with_strings(table))
    rv_form_leave(table, form, garbage);
}
/* An open segment with room for at least one row. */
rv_code rv_form_open(rv_table *table, rv_form *form, rv_garbage *garbage, rv_error *err);
/* Counts `items` more that use the form's template; form->number is its number. */
rv_code rv_form_use_template(rv_table *table, rv_form *form, uint32_t items, rv_error *err);
/* How many rows its next segment has, and the largest of its segments. */
size_t rv_form_next_rows(const rv_table *table, const rv_form *form);
size_t rv_form_most_rows(const rv_table *table, const rv_form *form);
/* A segment that was used before; NULL: make one of *capacity rows. */
rv_chunk *rv_form_take_segment(rv_table *table, rv_form *form, rv_garbage *garbage, size_t *capacity);
/* The same, where the caller knows how many rows it wants. */
rv_chunk *rv_form_take_spare(rv_table *table, const rv_form *form, rv_garbage *garbage, size_t capacity);
/* The identity of a chunk of rows that belong to no episode. */
rv_chunk_meta rv_rows_meta(rv_table *table, int64_t rows);

#endif
