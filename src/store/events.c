/* What extensions are told, and what they may change. */
#include "store/changes_parts.h"
#include "store/chunk_parts.h"

enum { LOOK_STEPS = 4, EDIT_STEPS = 12 }; /* small steps that they are worth */

struct rv_edit {
  rv_table *table;
  int steps;
};

void rv_table_note(rv_turn *turn, rv_event_kind kind, const rv_item *item, double priority, double old_priority)
{
  rv_table *table = turn->table;
  if (table->num_extensions == 0) return;
  if (table->num_events == RV_EVENTS_MAX) rv_table_tell(turn);
  rv_event *event = &table->events[table->num_events++];
  *event = (rv_event){.kind = kind, .episode_step = -1};
  if (item == NULL) return;
  int64_t row;
  const rv_chunk *chunk = rv_books_first_chunk(&table->books, item, &row);
  event->key = item->key;
  event->priority = priority;
  event->old_priority = old_priority;
  event->episode_id = chunk->meta.episode_id;
  event->episode_step = chunk->meta.episode_id == RV_NO_EPISODE ? -1 : rv_chunk_row_step(chunk, row);
  event->times_sampled = item->times_sampled;
  turn->budget--;
}

void rv_table_tell(rv_turn *turn)
{
  rv_table *table = turn->table;
  rv_edit edit = {.table = table};
  size_t n = table->num_events;
  table->num_events = 0;
  for (size_t i = 0; i < table->num_extensions; i++) {
    rv_extension_tell(&table->extensions[i], table->events, n, &edit);
    table->extensions_go_on |= table->extensions[i].ops->go_on != NULL;
  }
  turn->budget -= edit.steps;
}

void rv_table_let_extensions_go_on(rv_turn *turn)
{
  rv_table *table = turn->table;
  rv_edit edit = {.table = table};
  table->extensions_go_on = false;
  for (size_t i = 0; i < table->num_extensions; i++) table->extensions_go_on |= rv_extension_go_on(&table->extensions[i], &edit);
  turn->budget -= 1 + edit.steps;
}

rv_code rv_edit_set_priority(rv_edit *edit, uint64_t key, double priority)
{
  rv_table *table = edit->table;
  edit->steps += EDIT_STEPS;
  if (!rv_priority_fine(table, priority)) return RV_INVALID_ARGUMENT;
  uint32_t slot = rv_books_find(&table->books, key);
  if (slot == RV_NO_SLOT) return RV_NOT_FOUND;
  rv_code code = rv_changes_reserve(table, 1 + RV_CHANGE_STEP, 0, NULL);
  return code == RV_OK ? rv_table_set_priority(table, slot, priority, NULL) : code;
}

rv_code rv_edit_priority(rv_edit *edit, uint64_t key, double *priority)
{
  edit->steps += LOOK_STEPS;
  uint32_t slot = rv_books_find(&edit->table->books, key);
  if (slot == RV_NO_SLOT) return RV_NOT_FOUND;
  *priority = rv_slab_at(&edit->table->books.slab, slot)->priority;
  return RV_OK;
}
