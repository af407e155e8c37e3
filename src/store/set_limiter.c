/* Another rate limiter for a table that is in use.
 *
 * Whether inserts and samples could come to wait for each other is looked for through thousands of steps (standstill.h), so it is done without the
 * table's lock, against the bounds as they were; where these are others by then, once more. */
#include "base/error.h"
#include "store/changes_parts.h"
#include "store/table_parts.h"

/* The table's lock is held before and after, and not while the limiter is checked. */
static rv_code check(rv_turn *turn, const rv_rate_limiter_config *limiter, rv_error *err)
{
  rv_table *table = turn->table;
  for (int tried = 0; tried < RV_SETTINGS_TRIED; tried++) {
    rv_table_config limited = table->config;
    limited.rate_limiter = *limiter;
    rv_turn_end(turn);
    rv_code code = rv_rate_limiter_check_table(&limited, err);
    rv_turn_begin(turn, table);
    if (table->config.max_size == limited.max_size && table->config.max_times_sampled == limited.max_times_sampled) return code;
  }
  return rv_fail(err, RV_ABORTED, "somebody else goes on changing the table's bounds, which it is checked against; try again");
}

static rv_code set(rv_turn *turn, const rv_rate_limiter_config *limiter, rv_error *err)
{
  rv_table *table = turn->table;
  rv_code code = check(turn, limiter, err);
  rv_error refused;
  if (rv_table_is_closed(table, &refused) != RV_OK || rv_changes_allow(table, &refused) != RV_OK) /* while it was checked */
    return rv_error_copy(err, &refused);
  if (code == RV_OK) code = rv_changes_reserve(table, 1, 1, err);
  if (code == RV_OK) code = rv_rate_limiter_configure(&table->limiter, limiter, err);
  if (code == RV_OK && table->log != NULL) rv_changes_put_limiter(table, limiter);
  if (code != RV_OK) rv_error_prefix(err, "table \"%s\": rate_limiter", table->name);
  return code;
}

rv_code rv_table_set_rate_limiter(rv_table *table, const rv_rate_limiter_config *config, rv_error *err)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  rv_code code = rv_table_is_closed(table, err);
  if (code == RV_OK) code = rv_changes_allow(table, err);
  if (code == RV_OK) code = set(&turn, config, err);
  rv_turn_finish(&turn);
  return code;
}
