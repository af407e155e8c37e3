/* Other bounds for a table that is in use.
 *
 * A lower max_size is come down to in steps of a few items, each under one hold of the lock: as many go as the bound comes down by. So a
 * table never has more items than its bound of that moment: whoever inserts meanwhile takes one away, as ever, and what is saved or
 * written down is a table as it may be.
 *
 * A lower max_bytes holds at once, for how much a table takes depends on how its chunks came, and one that was restored may take more than
 * its bound anyhow: then, too, items go in steps, and whoever inserts meanwhile takes away what is too much before. */
#include "base/error.h"
#include "store/changes_parts.h"
#include "store/same_config.h"

enum { STEP = 32, STEPS_A_CALL = 32 };

static rv_code check(const rv_table_config *with, const rv_table_bounds *bounds, rv_error *err)
{
  if (bounds->max_size < 1 || bounds->max_size > INT32_MAX)
    return rv_fail(err, RV_INVALID_ARGUMENT, "max_size is %lld; give 1 to 2147483647", (long long)bounds->max_size);
  if (bounds->max_bytes < 0)
    return rv_fail(err, RV_INVALID_ARGUMENT, "max_bytes is %lld; give a number of bytes, or 0 for no bound",
                   (long long)bounds->max_bytes);
  return rv_rate_limiter_check_table(with, err);
}

rv_table_bounds rv_table_bounds_unchanged(void)
{
  return (rv_table_bounds){
      .size = sizeof(rv_table_bounds), .max_size = RV_UNCHANGED, .max_bytes = RV_UNCHANGED, .max_times_sampled = RV_UNCHANGED};
}

static void fill_in(const rv_table *table, rv_table_bounds *bounds)
{
  if (bounds->max_size == RV_UNCHANGED) bounds->max_size = table->config.max_size;
  if (bounds->max_bytes == RV_UNCHANGED) bounds->max_bytes = table->config.max_bytes;
  if (bounds->max_times_sampled == RV_UNCHANGED) bounds->max_times_sampled = table->config.max_times_sampled;
}

/* How the table would be with them. */
static rv_table_config config_with(const rv_table *table, const rv_table_bounds *bounds)
{
  rv_table_config bounded = table->config;
  bounded.rate_limiter = table->limiter.config;
  bounded.max_size = bounds->max_size;
  bounded.max_times_sampled = bounds->max_times_sampled;
  return bounded;
}

/* Fills in what is to stay, and checks all together. The table's lock is held before and after, and not meanwhile: the limiter's check may be long
 * (standstill.h). Where somebody changed what it depends on, it is made once more. */
static rv_code fill_in_and_check(rv_turn *turn, const rv_table_bounds *given, rv_table_bounds *bounds, rv_error *err)
{
  rv_table *table = turn->table;
  for (int tried = 0; tried < RV_SETTINGS_TRIED; tried++) {
    *bounds = *given;
    fill_in(table, bounds);
    rv_table_config with = config_with(table, bounds);
    rv_turn_end(turn);
    rv_code code = check(&with, bounds, err);
    rv_turn_begin(turn, table);
    rv_table_bounds now = *given;
    fill_in(table, &now);
    rv_table_config then = config_with(table, &now);
    if (rv_same_limiter(&then.rate_limiter, &with.rate_limiter) && now.max_size == bounds->max_size &&
        now.max_bytes == bounds->max_bytes && now.max_times_sampled == bounds->max_times_sampled)
      return code;
  }
  return rv_fail(err, RV_ABORTED, "somebody else goes on changing its rate limiter or its bounds; try again");
}

/* The bounds as they now are, for who writes down. */
static void note(rv_table *table)
{
  if (table->log != NULL)
    rv_changes_put(table, RV_CHANGE_BOUNDS, (uint64_t)table->config.max_size, 0, table->config.max_times_sampled);
}

rv_code rv_table_note_settings(rv_table *table, rv_error *err)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  rv_code code = rv_changes_reserve(table, 3, 1, err);
  if (code == RV_OK && table->log != NULL) {
    note(table);
    rv_changes_put(table, RV_CHANGE_MAX_BYTES, (uint64_t)table->config.max_bytes, 0, 0);
    rv_changes_put_limiter(table, &table->limiter.config);
  }
  rv_turn_leave(&turn);
  return code;
}

static rv_code begin(rv_turn *turn, const rv_table_bounds *bounds, uint64_t *number, rv_error *err)
{
  rv_table *table = turn->table;
  rv_code code = rv_changes_reserve(table, 2, 0, err);
  if (code != RV_OK) return code;
  *number = ++table->bounds_changes;
  table->config.max_times_sampled = bounds->max_times_sampled;
  int64_t count = (int64_t)table->books.slab.count;
  table->config.max_size = bounds->max_size > count ? bounds->max_size : count;
  rv_books_set_max_size(&table->books, table->config.max_size);
  note(table);
  if (bounds->max_bytes == table->config.max_bytes) return RV_OK;
  rv_table_set_max_bytes(table, bounds->max_bytes);
  if (table->log != NULL) rv_changes_put(table, RV_CHANGE_MAX_BYTES, (uint64_t)table->config.max_bytes, 0, 0);
  rv_spares_leave_large(turn);
  return RV_OK;
}

/* Removes a few items by the remover, and lowers the bound to what is left. */
static rv_code come_down(rv_turn *turn, int64_t max_size, rv_error *err)
{
  rv_table *table = turn->table;
  const rv_rate_limiter_config *limiter = &table->limiter.config;
  if (limiter->min_size_to_sample > max_size) /* it came since this began, when more items were allowed */
    return rv_fail(
        err, RV_ABORTED,
        "table \"%s\": somebody else has changed its rate limiter meanwhile, and min_size_to_sample is %lld, more than "
        "max_size = %lld; it stays at %lld",
        table->name, (long long)limiter->min_size_to_sample, (long long)max_size, (long long)table->config.max_size);
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

static bool takes_too_much(const rv_table *table)
{
  return table->books.slab.count > 0 && rv_books_of_items(&table->books) > rv_table_may_hold(table, 0);
}

static rv_code go_on(rv_turn *turn, int64_t max_size, rv_error *err)
{
  rv_table *table = turn->table;
  if (table->config.max_size > max_size) return come_down(turn, max_size, err);
  return rv_table_evict(turn, rv_table_may_hold(table, 0), err) == RV_ROOM_FAILED ? RV_RESOURCE_EXHAUSTED : RV_OK;
}

rv_code rv_table_change_bounds(rv_table *table, rv_bounds_change *change, rv_error *err)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  rv_table_bounds bounds = change->bounds;
  bool in_bytes = bounds.max_bytes != RV_UNCHANGED; /* else what was restored or written down may take more than its bound */
  rv_code code = RV_OK;
  if (change->number != 0) {
    fill_in(table, &bounds);
  } else {
    code = rv_table_is_closed(table, err);
    if (code == RV_OK) code = rv_changes_allow(table, err);
    if (code == RV_OK) {
      code = fill_in_and_check(&turn, &change->bounds, &bounds, err);
      if (code != RV_OK) rv_error_prefix(err, "table \"%s\"", table->name);
    }
  }
  bool leaves = false; /* segments that have become large, before items go for them */
  for (int step = 0; code == RV_OK && step < STEPS_A_CALL; step++) {
    if (step > 0) rv_turn_pause(&turn);
    code = rv_table_is_closed(table, err);
    if (code == RV_OK) code = rv_changes_allow(table, err);
    if (code != RV_OK) break;
    if (change->number == 0) {
      code = begin(&turn, &bounds, &change->number, err);
      if (code != RV_OK) rv_error_prefix(err, "table \"%s\"", table->name);
    } else if (change->number != table->bounds_changes) {
      code = rv_fail(err, RV_ABORTED, "table \"%s\": somebody else has changed its bounds meanwhile; theirs hold", table->name);
    } else if (!leaves) {
      code = go_on(&turn, bounds.max_size, err);
    }
    leaves = code == RV_OK && in_bytes && rv_table_leave_large(&turn);
    if (code == RV_OK && !leaves && table->config.max_size == bounds.max_size && !(in_bytes && takes_too_much(table))) {
      change->done = true;
      break;
    }
  }
  rv_turn_finish(&turn);
  return code;
}
