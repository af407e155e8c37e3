/* Other bounds for a table that is in use.
 *
 * A lower max_size is come down to in steps of a few items, each under one hold of the lock: as many go as the bound comes down by. So a
 * table never has more items than its bound of that moment: whoever inserts meanwhile takes one away, as ever, and what is saved or
 * written down is a table as it may be. */
#include "base/error.h"
#include "store/changes_parts.h"
#include "store/chunk_parts.h"

enum { STEP = 32, STEPS_A_CALL = 32 };

static rv_code check(const rv_table *table, const rv_table_bounds *bounds, rv_error *err)
{
  if (bounds->max_size < 1 || bounds->max_size > INT32_MAX)
    return rv_fail(err, RV_INVALID_ARGUMENT, "max_size is %lld; give 1 to 2147483647", (long long)bounds->max_size);
  return rv_rate_limiter_check_size(&table->limiter.config, bounds->max_size, bounds->max_times_sampled, err);
}

static void fill_in(const rv_table *table, rv_table_bounds *bounds)
{
  if (bounds->max_size == RV_UNCHANGED) bounds->max_size = table->config.max_size;
  if (bounds->max_times_sampled == RV_UNCHANGED) bounds->max_times_sampled = table->config.max_times_sampled;
}

/* The bounds as they now are, for who writes down. */
static void note(rv_table *table)
{
  if (table->log != NULL)
    rv_changes_put(table, RV_CHANGE_BOUNDS, (uint64_t)table->config.max_size, 0, table->config.max_times_sampled);
}

static rv_code begin(rv_table *table, rv_bounds_change *change, rv_error *err)
{
  fill_in(table, &change->bounds);
  rv_code code = check(table, &change->bounds, err);
  if (code == RV_OK) code = rv_changes_reserve(table, 1, 0, err);
  if (code != RV_OK) return code;
  change->number = ++table->bounds_changes;
  table->config.max_times_sampled = change->bounds.max_times_sampled;
  int64_t count = (int64_t)table->books.slab.count;
  table->config.max_size = change->bounds.max_size > count ? change->bounds.max_size : count;
  rv_books_set_max_size(&table->books, table->config.max_size);
  note(table);
  return RV_OK;
}

/* Removes a few items by the remover, and lowers the bound to what is left. */
static rv_code come_down(rv_turn *turn, int64_t max_size, rv_error *err)
{
  rv_table *table = turn->table;
  int64_t count = (int64_t)table->books.slab.count, removed = 0;
  int64_t next = count - STEP > max_size ? count - STEP : max_size;
  rv_code code = rv_changes_reserve(table, STEP + 1, 0, err);
  if (code != RV_OK) return code;
  for (; count - removed > next; removed++) {
    double unused;
    rv_table_remove(turn, rv_pick_select(&table->remover, &table->books.slab, &table->random, &unused));
  }
  rv_rate_limiter_deleted(&table->limiter, removed);
  table->config.max_size = next;
  note(table);
  return RV_OK;
}

rv_code rv_table_change_bounds(rv_table *table, rv_bounds_change *change, rv_error *err)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  rv_code code = RV_OK;
  for (int step = 0; code == RV_OK && step < STEPS_A_CALL; step++) {
    if (step > 0) rv_turn_pause(&turn);
    code = rv_table_is_closed(table, err);
    if (code == RV_OK) code = rv_changes_allow(table, err);
    if (code != RV_OK) break;
    if (change->number == 0) {
      code = begin(table, change, err);
      if (code != RV_OK) rv_error_prefix(err, "table \"%s\"", table->name);
    } else if (change->number != table->bounds_changes) {
      code = rv_fail(err, RV_ABORTED, "table \"%s\": somebody else has changed its bounds meanwhile; theirs hold", table->name);
    } else {
      code = come_down(&turn, change->bounds.max_size, err);
    }
    if (code == RV_OK && table->config.max_size == change->bounds.max_size) {
      change->done = true;
      break;
    }
  }
  rv_turn_finish(&turn);
  return code;
}
