#include "store/replay.h"

#include "store/changes_parts.h"
#include "store/table_parts.h"

/* What was written down may end between an insert and the delete that made room for it. */
static rv_code come_down(rv_turn *turn, rv_error *err)
{
  rv_table *table = turn->table;
  rv_code code = RV_OK;
  while ((int64_t)table->books.slab.count > table->config.max_size && (code = rv_changes_reserve(table, 1, 0, err)) == RV_OK) {
    double unused;
    rv_table_remove(turn, rv_pick_select(&table->remover, &table->books.slab, &table->random, &unused));
    rv_rate_limiter_deleted(&table->limiter, 1);
  }
  return code;
}

rv_code rv_table_replay_come_down(rv_table *table, rv_error *err)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  rv_code code = come_down(&turn, err);
  rv_turn_leave(&turn);
  return code;
}

static rv_code add(rv_turn *turn, const rv_restored_item *from, uint64_t naming, rv_error *err)
{
  rv_table *table = turn->table;
  uint32_t slot;
  uint64_t before = table->books.slab.sequence;
  rv_code code = come_down(turn, err);
  if (code == RV_OK) code = rv_restored_into_books(turn, from, &slot, err);
  if (code != RV_OK) return code;
  code = rv_table_show(turn, slot, err);
  if (code != RV_OK) return code;
  rv_naming_inserted(table, naming, before);
  rv_rate_limiter_inserted(&table->limiter, 1);
  return RV_OK;
}

rv_code rv_table_replay_insert(rv_table *table, const rv_restored_item *item, uint64_t naming, rv_error *err)
{
  rv_code code = rv_priority_check(table, item->priority, err);
  if (code != RV_OK) return code;
  rv_turn turn;
  rv_turn_begin(&turn, table);
  uint32_t slot = rv_books_find(&table->books, item->key);
  code = slot == RV_NO_SLOT ? add(&turn, item, naming, err) : rv_table_set_priority(table, slot, item->priority, err);
  rv_turn_leave(&turn);
  return code;
}

rv_code rv_table_replay_delete(rv_table *table, uint64_t key)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  uint32_t slot = rv_books_find(&table->books, key);
  if (slot != RV_NO_SLOT) {
    rv_table_remove(&turn, slot);
    rv_rate_limiter_deleted(&table->limiter, 1);
  }
  rv_turn_leave(&turn);
  return slot == RV_NO_SLOT ? RV_NOT_FOUND : RV_OK;
}

rv_code rv_table_replay_update(rv_table *table, uint64_t key, double priority, rv_error *err)
{
  rv_code code = rv_priority_check(table, priority, err);
  if (code != RV_OK) return code;
  rv_turn turn;
  rv_turn_begin(&turn, table);
  uint32_t slot = rv_books_find(&table->books, key);
  code = slot == RV_NO_SLOT ? RV_NOT_FOUND : rv_table_set_priority(table, slot, priority, err);
  rv_turn_leave(&turn);
  return code;
}

rv_code rv_table_replay_sample(rv_table *table, uint64_t key, int32_t times_sampled)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  uint32_t slot = rv_books_find(&table->books, key);
  if (slot != RV_NO_SLOT) {
    rv_item *item = rv_slab_at(&table->books.slab, slot);
    if (item->times_sampled == 0) table->num_unique_samples++;
    item->times_sampled = times_sampled;
  }
  rv_rate_limiter_sampled(&table->limiter, 1); /* also of an item that is gone: it was drawn */
  rv_turn_leave(&turn);
  return slot == RV_NO_SLOT ? RV_NOT_FOUND : RV_OK;
}

void rv_table_replay_bounds(rv_table *table, int64_t max_size, int32_t max_times_sampled)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  table->config.max_size = max_size;
  table->config.max_times_sampled = max_times_sampled;
  rv_books_set_max_size(&table->books, max_size);
  rv_turn_leave(&turn);
}

void rv_table_replay_end(rv_table *table, char *corrected, size_t capacity)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  rv_restored_counters counters = {
      .inserts = table->limiter.inserts, .samples = table->limiter.samples, .deletes = table->limiter.deletes};
  rv_turn_leave(&turn);
  rv_table_restore_counters(table, &counters, corrected, capacity);
}
