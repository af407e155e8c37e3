/* The steady state of a replay buffer: the table is full, its oldest item goes with each row that comes. The new item then takes the old
 * one's slot, and its place in the sampler, so that of the work of an insert and a delete almost nothing is left.
 *
 * To the sampler this is an update of the slot's priority: a uniform one has nothing to do, a heap puts it behind its equals as a new item
 * would be, the sum of a prioritized one changes by the difference. A registered sampler sees keys, and extensions see events: for them
 * rows take the long way (rv_table_admit). */
#include "store/chunk_parts.h"
#include "store/table_parts.h"

/* The oldest item becomes the newest, in its slot. */
static rv_item *renew_oldest(rv_slab *slab, uint32_t *out)
{
  uint32_t slot = slab->oldest;
  rv_item *item = rv_slab_at(slab, slot);
  if (slot != slab->newest) {
    slab->oldest = item->next;
    rv_slab_at(slab, item->next)->prev = RV_NO_SLOT;
    rv_slab_at(slab, slab->newest)->next = slot;
    item->prev = slab->newest;
    item->next = RV_NO_SLOT;
    slab->newest = slot;
  }
  uint64_t sequence = ++slab->sequence;
  item->sequence_low = (uint32_t)sequence;
  item->sequence_high = (unsigned)(sequence >> 32) & 0x7FFFU;
  *out = slot;
  return item;
}

/* Takes the item off what it referred to. True: it used the same template as the rows do. */
static inline bool unlink_item(rv_turn *turn, uint32_t slot, rv_item *item, uint16_t number)
{
  rv_books *books = &turn->table->books;
  if (item->template_number != number) {
    rv_books_detach(books, slot, &turn->garbage);
    return false;
  }
  rv_hold *hold = item->data;
  *(item->hold_prev != RV_NO_SLOT ? &rv_slab_at(&books->slab, item->hold_prev)->hold_next : &hold->first) = item->hold_next;
  if (item->hold_next != RV_NO_SLOT) rv_slab_at(&books->slab, item->hold_next)->hold_prev = item->hold_prev;
  hold->items--;
  hold->live_rows--;
  rv_books_note_sparse(books, hold);
  if (hold->items == 0) rv_books_drop_if_unused(books, hold, &turn->garbage);
  return true;
}

static inline void link_item(rv_books *books, uint32_t slot, rv_item *item, rv_hold *hold, int64_t row, uint16_t number)
{
  item->data = hold;
  item->base_row = (int32_t)row;
  item->template_number = number;
  item->hold_prev = RV_NO_SLOT;
  item->hold_next = hold->first;
  if (hold->first != RV_NO_SLOT) rv_slab_at(&books->slab, hold->first)->hold_prev = slot;
  hold->first = slot;
  hold->items++;
  hold->live_rows++;
}

void rv_rows_replace(rv_turn *turn, rv_rows *rows, rv_hold *hold, int64_t first, size_t k)
{
  rv_table *table = turn->table;
  rv_books *books = &table->books;
  uint32_t slots[RV_ROWS_STEP], same = 0;
  double priorities[RV_ROWS_STEP];
  uint16_t number = rows->form->number;
  int64_t now = rv_wall_ns(table->env);
  for (size_t i = 0; i < k; i++) {
    rv_item *item = rv_slab_at(&books->slab, books->slab.oldest);
    double priority = rows->priorities == NULL ? 1.0 : rows->priorities[rows->done + i];
    if (item->next != RV_NO_SLOT) __builtin_prefetch(rv_slab_at(&books->slab, item->next), 1);
    if (item->marked) {
      rv_marks_leave(table, books->slab.oldest);
      item->marked = 0;
    }
    if (item->priority != priority) {
      rv_bound_remove(&table->lowest, item->priority);
      rv_bound_remove(&table->highest, item->priority);
      rv_bound_add(&table->lowest, priority, true);
      rv_bound_add(&table->highest, priority, false);
    }
    item = renew_oldest(&books->slab, &slots[i]);
    same += unlink_item(turn, slots[i], item, number) ? 1 : 0;
    link_item(books, slots[i], item, hold, first + (int64_t)i, number);
    uint64_t key = rv_books_renew_key(books, slots[i], item->key);
    item->key = key;
    item->priority = priorities[i] = priority;
    item->times_sampled = 0;
    item->inserted_at_ns = now;
    if (rows->keys != NULL) rows->keys[rows->done + i] = key;
  }
  if (same > 0) rv_books_unuse_template(books, number, same);
  if (table->config.sampler.kind != RV_SELECTOR_UNIFORM) rv_pick_update_many(&table->sampler, slots, priorities, k);
  table->changes += k;
}
