#include "store/restore.h"

#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "store/table_parts.h"

static rv_code check(const rv_table *table, const rv_restored_item *item, rv_error *err)
{
  if ((int64_t)table->books.slab.count >= table->config.max_size)
    return rv_fail(err, RV_FAILED_PRECONDITION, "more items than its max_size, which is %lld", (long long)table->config.max_size);
  if (rv_books_find(&table->books, item->key) != RV_NO_SLOT)
    return rv_fail(err, RV_FAILED_PRECONDITION, "two items have the key %llu", (unsigned long long)item->key);
  if (item->times_sampled < 0)
    return rv_fail(err, RV_INVALID_ARGUMENT, "item %llu was sampled %d times, which is impossible", (unsigned long long)item->key,
                   (int)item->times_sampled);
  return RV_OK;
}

rv_code rv_restored_into_books(rv_turn *turn, const rv_restored_item *from, uint32_t *slot, rv_error *err)
{
  rv_books *books = &turn->table->books;
  rv_code code = rv_books_take(books, from->key, false, slot, err);
  if (code != RV_OK) return code;
  rv_item *item = rv_slab_at(&books->slab, *slot);
  item->priority = from->priority;
  item->times_sampled = from->times_sampled;
  item->inserted_at_ns = from->inserted_at_ns;
  code = rv_books_attach(books, *slot, from->trajectory, &turn->garbage, err);
  if (code != RV_OK) rv_books_give(books, *slot);
  return code;
}

static rv_code take_in(rv_turn *turn, const rv_restored_item *from, uint64_t naming, rv_error *err)
{
  rv_table *table = turn->table;
  rv_code code = check(table, from, err);
  if (code != RV_OK) return code;
  uint32_t slot;
  uint64_t before = table->books.slab.sequence;
  code = rv_restored_into_books(turn, from, &slot, err);
  if (code != RV_OK) return code;
  int64_t removed = 0; /* none: there was room */
  code = rv_table_admit(turn, slot, &removed, err);
  if (code == RV_OK) rv_naming_inserted(table, naming, before);
  return code;
}

rv_code rv_table_restore_item(rv_table *table, const rv_restored_item *item, uint64_t naming, rv_error *err)
{
  rv_code code = rv_priority_check(table, item->priority, err);
  if (code != RV_OK) {
    rv_error_prefix(err, "item %llu", (unsigned long long)item->key);
    return code;
  }
  rv_turn turn;
  rv_turn_begin(&turn, table);
  code = take_in(&turn, item, naming, err);
  rv_turn_leave(&turn);
  if (code != RV_OK) rv_error_prefix(err, "table \"%s\"", table->name);
  return code;
}

/* ---- counters ---- */

/* So much that it can go on counting. */
static bool is_possible(int64_t count)
{
  return count >= 0 && count <= INT64_MAX / 4;
}

/* What the counters say is there, and what is: samples wait for items that they believe in. */
static void correct_items(rv_restored_counters *counters, int64_t items, char *out, size_t capacity)
{
  bool possible = is_possible(counters->inserts) && is_possible(counters->samples) && counters->deletes >= 0;
  if (possible && counters->inserts - counters->deletes == items) return;
  snprintf(out, capacity, "its limiter counts %lld inserts, %lld deletes and %lld samples, with %lld items",
           (long long)counters->inserts, (long long)counters->deletes, (long long)counters->samples, (long long)items);
  if (!possible || counters->samples < 0) counters->samples = 0;
  if (!possible || counters->inserts < items) counters->inserts = items;
  counters->deletes = counters->inserts - items;
}

/* Neither an insert nor a sample may proceed: samples are counted until an insert may. */
static void correct_standstill(rv_rate_limiter *limiter, char *out, size_t capacity)
{
  if (rv_rate_limiter_can_insert(limiter, 1) || rv_rate_limiter_can_sample(limiter, 1)) return;
  double samples = ((double)limiter->inserts + 1) * limiter->config.samples_per_insert - limiter->config.max_diff;
  snprintf(out, capacity, "with %lld inserts and %lld samples its limiter lets neither an insert nor a sample through",
           (long long)limiter->inserts, (long long)limiter->samples);
  limiter->samples = samples > 0 && samples < 0x1p62 ? (int64_t)ceil(samples) : 0;
  if (!rv_rate_limiter_can_insert(limiter, 1)) rv_rate_limiter_reset(limiter);
}

void rv_table_restore_counters(rv_table *table, const rv_restored_counters *given, char *corrected, size_t capacity)
{
  rv_restored_counters counters = *given;
  corrected[0] = '\0';
  rv_turn turn;
  rv_turn_begin(&turn, table);
  int64_t items = (int64_t)table->books.slab.count;
  correct_items(&counters, items, corrected, capacity);
  rv_rate_limiter_restore(&table->limiter, counters.inserts, counters.samples, counters.deletes, NULL);
  correct_standstill(&table->limiter, corrected, capacity);
  if (table->limiter.inserts - table->limiter.deletes != items) {
    table->limiter.inserts = items;
    table->limiter.deletes = 0;
  }
  if (counters.num_deleted_episodes > 0 && is_possible(counters.num_deleted_episodes))
    table->books.episodes_gone = counters.num_deleted_episodes;
  if (counters.num_unique_samples > 0 && is_possible(counters.num_unique_samples))
    table->num_unique_samples = counters.num_unique_samples;
  if (counters.naming != 0) {
    table->naming = counters.naming;
    table->naming_since = 0;
  }
  rv_turn_leave(&turn);
}
