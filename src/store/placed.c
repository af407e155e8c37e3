#include "store/placed.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/pages.h"
#include "store/chunk_parts.h"
#include "store/forms.h"
#include "store/signature.h"
#include "store/table_parts.h"

enum { FIRST_BYTES = 1 << 14, MOST_ROWS = 1 << 15 };

/* ---- forms ---- */

static rv_code make_template(rv_table *table, const rv_form *form, const rv_placed_column *columns, uint32_t num_columns,
                             rv_trajectory **out, rv_error *err)
{
  rv_template_column *all = malloc(num_columns * sizeof *all);
  if (all == NULL) return rv_fail_memory(err, num_columns * sizeof *all);
  for (uint32_t i = 0; i < num_columns; i++)
    all[i] = (rv_template_column){.row = form->specs[columns[i].tensor],
                                  .tensor = columns[i].tensor,
                                  .first = columns[i].first,
                                  .length = columns[i].length,
                                  .squeeze = columns[i].squeeze};
  rv_code code = rv_template_of(table->layouts, all, num_columns, out, err);
  free(all);
  if (code != RV_OK) return code;
  code = rv_signature_fits_exactly(table->signature, table->name, (*out)->columns, num_columns, err);
  if (code != RV_OK) rv_trajectory_unref(*out);
  return code;
}

rv_code rv_placed_form_new(rv_table *table, const rv_spec *specs, uint32_t num_specs, const rv_placed_column *columns,
                           uint32_t num_columns, rv_form **out, rv_error *err)
{
  size_t num_sizes = 0;
  for (uint32_t i = 0; i < num_specs; i++) num_sizes += (size_t)specs[i].rank;
  size_t bytes = sizeof(rv_form) + num_specs * sizeof(rv_spec) + num_sizes * sizeof(int64_t);
  rv_form *form = malloc(bytes);
  if (form == NULL) return rv_fail_memory(err, bytes);
  *form = (rv_form){.refs = 1, .num_columns = num_specs};
  form->specs = (rv_spec *)(void *)(form + 1);
  int64_t *sizes = (int64_t *)(void *)(form->specs + num_specs);
  for (uint32_t i = 0; i < num_specs; i++) {
    form->specs[i] = (rv_spec){.name = "", .dtype = specs[i].dtype, .rank = specs[i].rank, .shape = sizes};
    for (int32_t d = 0; d < specs[i].rank; d++) *sizes++ = specs[i].shape[d];
  }
  rv_code code = make_template(table, form, columns, num_columns, &form->template, err);
  if (code != RV_OK) {
    free(form);
    return code;
  }
  for (uint32_t i = 0; i < num_specs; i++) {
    size_t elements, row_bytes;
    rv_shape_elements(specs[i].dtype, (uint32_t)specs[i].rank, specs[i].shape, &elements, &row_bytes, NULL); /* it could before */
    form->row_bytes += row_bytes;
  }
  code = rv_table_is_bounded(table)
             ? rv_table_check_bytes(table, form->row_bytes * (size_t)rv_trajectory_box_of(form->template)->span, "an item", err)
             : RV_OK;
  if (code != RV_OK) {
    rv_trajectory_unref(form->template);
    free(form);
    return code;
  }
  *out = form;
  return RV_OK;
}

void rv_placed_form_free(rv_table *table, rv_form *form)
{
  if (form == NULL) return;
  rv_turn turn;
  rv_turn_begin(&turn, table);
  rv_form_unref(table, form, &turn.garbage);
  rv_turn_end(&turn);
}

/* ---- segments ---- */

void rv_placed_begin(rv_table *table, size_t streams)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  rv_table_add_streams(&turn, streams);
  rv_turn_end(&turn);
}

void rv_placed_end(rv_table *table, size_t streams)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  table->num_streams -= streams;
  rv_table_divide_share(table);
  rv_turn_end(&turn);
}

size_t rv_placed_share(const rv_table *table)
{
  return rv_table_share(table);
}

size_t rv_placed_most_rows(const rv_table *table, const rv_form *form)
{
  size_t rows = rv_table_share(table) / (form->row_bytes == 0 ? 1 : form->row_bytes);
  return rows > SIZE_MAX / 2 ? SIZE_MAX : 2 * rows;
}

/* With c rows a segment, a table of m rows repeats m / c of `repeated`, and of each stream about c rows are not in use: in all
 * least where c^2 = repeated * m / streams. Where rows are small their books count more. */
size_t rv_placed_segment_rows(rv_table *table, const rv_form *form, size_t streams, size_t repeated)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  size_t max_size = (size_t)table->config.max_size;
  size_t most = rv_table_share(table);
  rv_turn_leave(&turn);
  size_t share = max_size / streams, rows = 1, row = form->row_bytes == 0 ? 1 : form->row_bytes;
  size_t square = share * repeated; /* max_size is below 2^31 */
  while (rows < MOST_ROWS && rows * rows < square) rows++;
  size_t enough = FIRST_BYTES / row;
  if (rows < enough) rows = enough < share / 16 ? enough : (rows > share / 16 ? rows : share / 16);
  if (rows > RV_HUGE_PAGE / row) rows = RV_HUGE_PAGE / row;
  if (rows > most / row) rows = most / row;
  return rows == 0 ? 1 : rows;
}

/* Its items have one row of each column, not a stack of them. */
static bool is_by_rows(const rv_form *form)
{
  for (uint32_t c = 0; c < form->template->num_columns; c++)
    if (form->template->columns[c].length > 1) return false;
  return true;
}

rv_code rv_placed_segment_new(rv_table *table, rv_form *form, size_t capacity, rv_chunk **out, rv_error *err)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  *out = rv_form_take_spare(table, form, &turn.garbage, capacity);
  rv_chunk_meta meta = rv_rows_meta(table, (int64_t)capacity);
  rv_turn_end(&turn);
  if (*out != NULL) return RV_OK;
  const rv_segment_source source = {.by_rows = is_by_rows(form)};
  return rv_segment_new_from(form->specs, form->num_columns, capacity, &meta, &source, out, err);
}

void rv_placed_segment_close(rv_table *table, rv_chunk *owned_segment)
{
  if (owned_segment == NULL) return;
  rv_turn turn;
  rv_turn_begin(&turn, table);
  rv_hold *hold = rv_books_find_hold(&table->books, owned_segment);
  if (hold == NULL) {
    rv_turn_leave(&turn);
    rv_chunk_unref(owned_segment);
    return;
  }
  rv_chunk_unref(owned_segment); /* the hold has its own, so that the table may use the segment again when that goes */
  rv_books_leave(&table->books, hold, &turn.garbage);
  rv_turn_end(&turn);
}

bool rv_placed_outgrows_caches(rv_table *table)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  bool outgrows = rv_table_outgrows_caches(table);
  rv_turn_leave(&turn);
  return outgrows;
}

/* ---- items ---- */

rv_code rv_placed_hold(rv_table *table, const rv_place *place, rv_hold **out, rv_error *err)
{
  rv_code code = rv_books_hold(&table->books, place->segment, out, err);
  if (code != RV_OK || (*out)->open) return code;
  rv_books *books = &table->books;
  (*out)->own = true;
  rv_books_forget_sparse(books, *out);
  rv_books_open(books, *out);
  rv_table_note_placed(table, *out);
  return RV_OK;
}

rv_code rv_placed_check_priorities(const rv_table *table, const double *priorities, const bool *where, size_t n, rv_error *err)
{
  for (size_t i = 0; priorities != NULL && i < n; i++) {
    if (rv_priority_fine(table, priorities[i]) || (where != NULL && !where[i])) continue;
    rv_code code = rv_priority_check(table, priorities[i], err);
    rv_error_prefix(err, "row %zu", i);
    return code;
  }
  return RV_OK;
}

rv_submitted rv_table_insert_placed(rv_table *table, rv_form *form, rv_rows *rows)
{
  rv_waiter *waiter = &rows->waiter;
  waiter->table = table;
  waiter->kind = RV_OPERATION_ROWS;
  waiter->state = RV_WAITER_DONE;
  rows->done = rows->begun = 0;
  rows->end = rows->n;
  rows->form = form;
  rows->prepared = NULL;
  waiter->code = RV_OK;
  if (rows->n == 0) return RV_SUBMIT_DONE;
  rv_turn turn;
  rv_turn_begin(&turn, table);
  waiter->code = rv_table_is_closed(table, &waiter->error);
  if (waiter->code != RV_OK) {
    rv_turn_end(&turn);
    return RV_SUBMIT_DONE;
  }
  form->refs++;
  return rv_turn_submit(&turn, waiter, RV_OPERATION_ROWS);
}
