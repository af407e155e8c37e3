/* Rows come in: each an item of its own, many at a time, without a trajectory and without an allocation. */
#include <limits.h>

#include "base/error.h"
#include "base/small_copies.h"
#include "store/changes_parts.h"
#include "store/chunk_parts.h"
#include "store/forms.h"
#include "store/placed.h"
#include "store/prepare.h"
#include "store/table_parts.h"

enum {
  BYTES_A_STEP = 256, /* as dear as one small step */
  STRINGS_A_STEP = 2,
  HOLD_STEPS = 8 /* small steps that a chunk is worth which the table did not hold */
};

static const uint8_t *row_of(const rv_rows *rows, size_t column, size_t row_bytes)
{
  return (const uint8_t *)rows->columns[column].data + rows->done * row_bytes;
}

/* ---- one step ---- */

static rv_code copy_strings(rv_books *books, const rv_rows *rows, rv_form *form, size_t k, rv_error *err)
{
  rv_code code = RV_OK;
  for (uint32_t c = 0; c < form->num_columns && code == RV_OK; c++)
    code = rv_segment_fill(form->hold->chunk, c, form->fill, row_of(rows, c, form->column_bytes[c]), k, err);
  rv_books_measure(books, form->hold);
  return code;
}

static rv_code copy_rows(rv_table *table, const rv_rows *rows, rv_form *form, size_t k, rv_error *err)
{
  if (form->has_strings) return copy_strings(&table->books, rows, form, k, err);
  const rv_lane *lane = form->hold->chunk->lanes, *end = lane + form->num_columns;
  const rv_tensor *column = rows->columns;
  size_t fill = (size_t)form->fill, done = rows->done;
  bool streamed = false;
  for (; lane < end; lane++, column++) {
    size_t size = lane->row_bytes, stride = lane->stride;
    uint8_t *to = (uint8_t *)(uintptr_t)lane->base + fill * stride;
    const uint8_t *from = (const uint8_t *)column->data + done * size;
    if (size >= RV_PAST_CACHES_LEAST && rv_table_outgrows_caches(table)) {
      rv_stream_past_caches(to, from, size * k); /* such columns are runs of rows */
      streamed = true;
    } else if (k == 1) {
      rv_copy_small(to, from, size);
    } else {
      rv_copy_strided(to, stride, from, size, size, k);
    }
  }
  if (streamed) rv_past_caches_settle();
  return RV_OK;
}

/* Where the next rows lie, copied in: at most `k` of them. They are read by nobody before rv_segment_publish. */
static rv_code place_rows(rv_turn *turn, rv_rows *rows, size_t *k, rv_hold **hold, int64_t *first, rv_error *err)
{
  rv_table *table = turn->table;
  rv_form *form = rows->form;
  if (rows->placed != NULL) {
    const rv_place *place = &rows->placed[rows->done];
    *k = 1;
    *first = place->base;
    return rv_placed_hold(table, place, hold, err);
  }
  size_t prepared;
  rv_chunk *segment = rv_rows_prepared(rows, first, &prepared);
  if (segment != NULL) {
    if (*k > prepared) *k = prepared;
    rv_code held = rv_books_hold(&table->books, segment, hold, err);
    if (held == RV_OK) (*hold)->own = true;
    return held;
  }
  rv_code code = rv_form_open(table, form, &turn->garbage, err);
  if (code != RV_OK) return code;
  size_t left = (size_t)(form->capacity - form->fill);
  if (*k > left) *k = left;
  if (*k > 1 && *k * form->row_bytes > RV_ROWS_STEP_BYTES) *k = RV_ROWS_STEP_BYTES / form->row_bytes + 1;
  *hold = form->hold;
  *first = form->fill;
  turn->budget -= (int)(*k * form->row_bytes / (form->has_strings ? STRINGS_A_STEP * sizeof(rv_bytes) : BYTES_A_STEP));
  return copy_rows(table, rows, form, *k, err);
}

static void publish(rv_form *form, size_t k)
{
  form->fill += (int64_t)k;
  int64_t rows = form->fill;
  rv_lane *lane = form->hold->chunk->lanes, *end = lane + form->num_columns;
  for (; lane < end; lane++) atomic_store_explicit(&lane->published, rows, memory_order_release);
}

/* The step's items, one after another; *added is how many are in, whatever the result. */
static rv_code add_items(rv_turn *turn, rv_rows *rows, rv_hold *hold, int64_t first, size_t k, size_t *added, int64_t *removed,
                         rv_error *err)
{
  rv_table *table = turn->table;
  rv_books *books = &table->books;
  int64_t now = rv_stamp_now(&table->stamp, table->env);
  uint16_t number = rows->form->number;
  for (*added = 0; *added < k; ++*added) {
    size_t row = rows->done + *added;
    uint32_t slot;
    rv_code code = rv_books_take(books, 0, true, &slot, err);
    if (code != RV_OK) {
      rv_books_unuse_template(books, number, 1);
      return code;
    }
    rv_item *item = rv_slab_at(&books->slab, slot);
    uint64_t key = item->key;
    item->priority = rows->priorities == NULL ? 1.0 : rows->priorities[row];
    item->times_sampled = 0;
    item->inserted_at_ns = now;
    rv_books_link_compact(books, slot, hold, first + (int64_t)*added, number);
    code = rv_table_admit(turn, slot, removed, err);
    if (code != RV_OK) return code;
    if (rows->keys != NULL) rows->keys[row] = key;
  }
  return RV_OK;
}

static bool is_full(const rv_table *table)
{
  return table->replaces && (int64_t)table->books.slab.count == table->config.max_size;
}

/* Makes items of k rows that lie in the hold. */
static rv_code take_in(rv_turn *turn, rv_rows *rows, rv_hold *hold, int64_t first, size_t k, size_t *added, int64_t *removed,
                       rv_error *err)
{
  rv_table *table = turn->table;
  rv_form *form = rows->form;
  rv_code code = rv_form_use_template(table, form, (uint32_t)k, err);
  if (code != RV_OK) return code;
  bool was_open = hold->open;
  rv_books_open(&table->books, hold); /* it must outlast the step even if the remover takes every item */
  if (is_full(table)) {
    rv_rows_replace(turn, rows, hold, first, k);
    *added = k;
    *removed = (int64_t)k;
  } else {
    code = add_items(turn, rows, hold, first, k, added, removed, err);
    /* an item that was refused has given its use back already */
    if (code != RV_OK && k - *added > 1) rv_books_unuse_template(&table->books, form->number, (uint32_t)(k - *added - 1));
  }
  if (!was_open) rv_books_close(&table->books, hold);
  if (hold == form->hold && first == form->fill) publish(form, *added);
  if (!was_open) rv_books_note_sparse(&table->books, hold);
  return code;
}

/* Replaces the oldest items by rows that their writer has placed, each in a hold of its own; what is added is removed, too. */
static rv_code take_in_placed(rv_turn *turn, rv_rows *rows, size_t k, size_t *added, rv_error *err)
{
  rv_hold *holds[RV_ROWS_STEP];
  size_t n = 0;
  rv_code code = RV_OK;
  while (n < k && (code = rv_placed_hold(turn->table, &rows->placed[rows->done + n], &holds[n], err)) == RV_OK) n++;
  if (n == 0) return code;
  rv_code used = rv_form_use_template(turn->table, rows->form, (uint32_t)n, err);
  if (used != RV_OK) return used;
  rv_rows_replace_placed(turn, rows, holds, n);
  *added = n;
  return code;
}

/* Where the next row goes, if that is known before its turn. */
static const rv_chunk *next_segment(const rv_rows *rows)
{
  int64_t first;
  size_t left;
  return rows->placed != NULL ? rows->placed[rows->done].segment : rv_rows_prepared(rows, &first, &left);
}

/* Do the next row, and all that were copied with it, fit at all? The bound may have become lower since they came. */
static rv_code check_row(const rv_table *table, const rv_rows *rows, rv_error *err)
{
  size_t begin;
  const rv_prepared *part = rv_rows_part(rows, &begin);
  if (part != NULL && part->largest <= rv_table_fits(table)) return RV_OK;
  return rv_table_check_bytes(table, rv_form_bytes_of_row(rows->form, rows, rows->done), "a row", err);
}

/* Room in memory for the next of *k rows, with strings of so many bytes; a segment that is new to the table comes with one row alone. */
static rv_room make_room(rv_turn *turn, const rv_rows *rows, size_t strings, size_t *k, rv_error *err)
{
  const rv_table *table = turn->table;
  if (check_row(table, rows, err) != RV_OK) return RV_ROOM_FAILED;
  const rv_chunk *segment = next_segment(rows);
  size_t comes = 0, opens = 0, uncounted = 0;
  if (segment == NULL) {
    opens = rv_form_comes(table, rows->form);
    comes = uncounted = opens + strings; /* with many strings it does not stay open */
  } else if (rv_books_find_hold(&table->books, segment) == NULL) {
    comes = rv_chunk_memory(segment);
    opens = rows->placed != NULL ? comes : 0;
    uncounted = rv_chunk_counted(segment) > 0 ? 0 : comes;
    *k = 1;
  } else if (rows->placed != NULL) {
    size_t held = 1;
    while (held < *k && rv_books_find_hold(&table->books, rows->placed[rows->done + held].segment) != NULL) held++;
    *k = held;
  }
  size_t books = *k * sizeof(rv_item) + (comes > strings ? sizeof(rv_hold) : 0);
  rv_room room = rv_table_make_room(turn, comes + books, opens, uncounted + books, err);
  if (room == RV_ROOM_FAILED) rv_error_prefix(err, "table \"%s\": row %zu", table->name, rows->done);
  return room;
}

bool rv_rows_step(rv_turn *turn, rv_rows *rows)
{
  rv_table *table = turn->table;
  rv_error *err = &rows->waiter.error;
  size_t k = rows->end - rows->done < RV_ROWS_STEP ? rows->end - rows->done : RV_ROWS_STEP, added = 0;
  int64_t allowed = rv_rate_limiter_inserts_allowed(&table->limiter, (int64_t)k), removed = 0, first;
  if (allowed <= 0 || !rv_changes_have_room(table, 1)) return false;
  k = (size_t)allowed;
  size_t strings = 0;
  if (rows->form->has_strings && rows->prepared == NULL && (k > 1 || rv_table_is_bounded(table))) {
    size_t bytes, most = rv_form_most_with_strings(table);
    k = rv_form_rows_within(rows->form, rows, rows->done, k, most < RV_ROWS_STEP_STRING_BYTES ? most : RV_ROWS_STEP_STRING_BYTES,
                            &bytes);
    strings = bytes - k * rows->form->row_bytes;
  }
  rv_room room = rv_table_is_bounded(table) ? make_room(turn, rows, strings, &k, err) : RV_ROOM_THERE;
  if (room == RV_ROOM_SOON || room == RV_ROOM_NONE) return room == RV_ROOM_SOON;
  if (room == RV_ROOM_FAILED) {
    rv_turn_complete(turn, &rows->waiter, err->code);
    return true;
  }
  /* up to the bound first, so that from there on every slot has an item */
  int64_t left = table->config.max_size - (int64_t)table->books.slab.count;
  if (table->replaces && left > 0 && (int64_t)k > left) k = (size_t)left;
  uint64_t before = table->books.slab.sequence;
  uint32_t holds = table->books.present_holds;
  rv_hold *hold = NULL;
  rv_changes_from(table, rows->naming, NULL, 0);
  rv_code code = rv_changes_reserve(table, 2 * k, k, err);
  if (code == RV_OK && rows->placed != NULL && is_full(table)) {
    code = take_in_placed(turn, rows, k, &added, err);
    removed = (int64_t)added;
  } else if (code == RV_OK) {
    code = place_rows(turn, rows, &k, &hold, &first, err);
    if (code == RV_OK) code = take_in(turn, rows, hold, first, k, &added, &removed, err);
  }
  if (table->books.present_holds > holds) turn->budget -= HOLD_STEPS * (int)(table->books.present_holds - holds);
  if (hold != NULL && hold->items == 0) rv_books_drop_if_unused(&table->books, hold, &turn->garbage);
  rv_form_leave_full(table, rows->form, &turn->garbage);
  if (added > 0) rv_naming_inserted(table, rows->naming, before);
  rows->done += added;
  turn->budget -= (int)(k + (strings < INT_MAX / 2 ? strings : INT_MAX / 2) / BYTES_A_STEP);
  rv_rate_limiter_inserted(&table->limiter, (int64_t)added);
  rv_rate_limiter_deleted(&table->limiter, removed);
  table->rates.inserts += (int64_t)added;
  if (code != RV_OK) rv_error_prefix(err, "table \"%s\": row %zu", table->name, rows->done);
  if (code != RV_OK || rows->done == rows->end) rv_turn_complete(turn, &rows->waiter, code);
  return true;
}

void rv_rows_end(rv_table *table, rv_rows *rows, rv_garbage *garbage)
{
  if (rows->form != NULL) rv_form_unref(table, rows->form, garbage);
  rv_rows_unprepare(rows, garbage);
  rows->form = NULL;
}

/* ---- submitting ---- */

/* The form and, where rows are large, their copies; the lock is let go in between. */
static rv_code make_ready(rv_turn *turn, rv_rows *rows, rv_error *err)
{
  rv_table *table = turn->table;
  bool is_new = rows->form == NULL;
  rv_turn_end(turn);
  rv_code code = is_new ? rv_form_new(table, rows, &rows->form, err) : RV_OK;
  bool large = code == RV_OK && rv_rows_are_large(table, rows->form, rows);
  if (large && rv_table_is_bounded(table)) {
    code = rv_table_check_bytes(table, rv_form_bytes_of_row(rows->form, rows, rows->done), "a row", err);
    if (code != RV_OK && rows->n > 1) rv_error_prefix(err, "table \"%s\": row %zu", table->name, rows->done);
  }
  rv_turn_begin(turn, table);
  if (is_new && rows->form != NULL) rv_forms_add(turn, rows->form);
  return large && code == RV_OK ? rv_rows_prepare(turn, rows, err) : code;
}

/* The steady state, all at once. */
static bool add_at_once(rv_turn *turn, rv_rows *rows)
{
  rv_table *table = turn->table;
  size_t n = rows->n;
  if (n > RV_ROWS_STEP || rows->done > 0) return false;
  rv_form *form = rv_form_at_once(table, n);
  if (form == NULL || !rv_form_is_of(form, rows) || !rv_rate_limiter_can_insert(&table->limiter, (int64_t)n)) return false;
  int64_t begun_ns = rv_rates_begin(table);
  rows->form = form;
  copy_rows(table, rows, form, n, NULL);
  table->books.templates.entry[form->number].items += (uint32_t)n;
  rv_naming_inserted(table, rows->naming, table->books.slab.sequence);
  rv_rows_replace(turn, rows, form->hold, form->fill, n);
  publish(form, n);
  rows->form = NULL;
  rows->done = n;
  rv_rate_limiter_inserted(&table->limiter, (int64_t)n);
  rv_rate_limiter_deleted(&table->limiter, (int64_t)n);
  table->rates.inserts += (int64_t)n;
  if (begun_ns != 0) rv_rates_worked(table, true, begun_ns);
  return true;
}

/* All rows that are left, or, where these are many, as many as are copied at one time. */
static rv_submitted insert_piece(rv_table *table, rv_rows *rows)
{
  rv_waiter *waiter = &rows->waiter;
  waiter->state = RV_WAITER_DONE;
  rows->begun = rows->done;
  rows->end = rows->n;
  rows->form = NULL;
  rows->prepared = NULL;
  rv_turn turn;
  rv_turn_begin(&turn, table);
  if (add_at_once(&turn, rows)) {
    rv_turn_end(&turn);
    return RV_SUBMIT_DONE;
  }
  rows->form = rv_forms_find(table, rows);
  if (rows->form == NULL || rv_form_has_many_strings(rows->form, rows) || rv_rows_are_large(table, rows->form, rows))
    waiter->code = make_ready(&turn, rows, &waiter->error);
  if (waiter->code == RV_OK && !table->closed) return rv_turn_submit(&turn, waiter, RV_OPERATION_ROWS);
  rv_rows_end(table, rows, &turn.garbage);
  if (waiter->code == RV_OK) waiter->code = rv_table_is_closed(table, &waiter->error);
  rv_turn_end(&turn);
  return RV_SUBMIT_DONE;
}

rv_submitted rv_table_insert_rows_left(rv_table *table, rv_rows *rows)
{
  rv_submitted submitted;
  do submitted = insert_piece(table, rows);
  while (submitted == RV_SUBMIT_DONE && rv_rows_are_left(rows));
  return submitted;
}

rv_submitted rv_table_insert_rows(rv_table *table, rv_rows *rows)
{
  rv_waiter *waiter = &rows->waiter;
  waiter->table = table;
  waiter->kind = RV_OPERATION_ROWS;
  waiter->state = RV_WAITER_DONE;
  rows->done = 0;
  rows->placed = NULL;
  waiter->code = rows->n > INT64_MAX / 2
                     ? rv_fail(&waiter->error, RV_INVALID_ARGUMENT, "table \"%s\": %zu rows", table->name, rows->n)
                     : rv_placed_check_priorities(table, rows->priorities, NULL, rows->n, &waiter->error);
  return rv_rows_are_left(rows) ? rv_table_insert_rows_left(table, rows) : RV_SUBMIT_DONE;
}
