/* One row into a table that is full: what a program does that steps one environment, and nearly all that it does. */
#include "base/small_copies.h"
#include "store/forms.h"
#include "store/replace.h"

/* Copied in and published: in no item yet. */
static void put_row(const rv_table *table, const rv_tensor *columns, rv_form *form)
{
  int64_t fill = form->fill++;
  rv_lane *first = form->hold->chunk->lanes, *end = first + form->num_columns;
  const rv_tensor *column = columns;
  bool streamed = false;
  for (rv_lane *lane = first; lane < end; lane++, column++) {
    size_t size = lane->row_bytes;
    uint8_t *to = (uint8_t *)(uintptr_t)lane->base + (size_t)fill * lane->stride;
    if (size >= RV_PAST_CACHES_LEAST && rv_table_outgrows_caches(table)) {
      rv_stream_past_caches(to, column->data, size);
      streamed = true;
    } else {
      rv_copy_small(to, column->data, size);
    }
  }
  if (streamed) rv_past_caches_settle();
  for (rv_lane *lane = first; lane < end; lane++) atomic_store_explicit(&lane->published, fill + 1, memory_order_release);
}

/* The row becomes an item in the place of the oldest one. False: that one is not a row like this one, or somebody must look at it before
 * it goes. */
static bool replace_oldest(rv_turn *turn, rv_row *row, const rv_form *form, int64_t at)
{
  rv_table *table = turn->table;
  rv_books *books = &table->books;
  rv_slab *slab = &books->slab;
  uint32_t slot = slab->oldest;
  rv_item *item = rv_slab_at(slab, slot);
  if (!rv_replace_unseen(table) || !rv_replace_is_plain(item, form->number, rv_replace_named_bits(books), books->key_tag | slot))
    return false;
  __builtin_prefetch((const char *)item + RV_REPLACE_AHEAD * sizeof *item, 1);
  double priority = row->priority;
  if (item->priority != priority) rv_extremes_change(&table->extremes, slot, item->priority, priority);
  rv_hold *old = item->data, *hold = form->hold;
  row->key = rv_replace_key(books->key_tag, ++books->key_count, books->slot_bits, slot);
  rv_replace_renew(item, hold, (int32_t)at, row->key, priority, rv_stamp_now(&table->stamp, table->env), ++slab->sequence);
  rv_replace_move(slab, old, hold, slot, item, slot, item);
  rv_replace_count(books, old, hold, 1, rv_trajectory_box_of(form->template)->span, &turn->garbage);
  if (!table->sampler.uniform) rv_pick_update(&table->sampler, slot, priority, NULL);
  return true;
}

static void replace_any(rv_turn *turn, rv_row *row, rv_form *form, int64_t at)
{
  rv_rows rows;
  rows.form = form;
  rows.priorities = &row->priority;
  rows.keys = &row->key;
  rows.done = 0;
  turn->table->books.templates.entry[form->number].items++;
  rv_rows_replace(turn, &rows, form->hold, at, 1);
}

bool rv_table_add_row(rv_table *table, rv_row *row)
{
  if (!rv_priority_fine(table, row->priority)) return false;
  rv_turn turn;
  rv_turn_begin(&turn, table);
  rv_form *form = rv_form_at_once(table, 1);
  bool added =
      form != NULL && rv_form_is_of_row(form, row->columns, row->num_columns) && rv_rate_limiter_can_insert(&table->limiter, 1);
  if (added) {
    int64_t begun_ns = rv_rates_begin(table), at = form->fill;
    put_row(table, row->columns, form);
    rv_naming_inserted(table, row->naming, table->books.slab.sequence);
    if (!replace_oldest(&turn, row, form, at)) replace_any(&turn, row, form, at);
    rv_rate_limiter_inserted(&table->limiter, 1);
    rv_rate_limiter_deleted(&table->limiter, 1);
    table->rates.inserts++;
    if (begun_ns != 0) rv_rates_worked(table, true, begun_ns);
  }
  rv_turn_end(&turn);
  return added;
}
