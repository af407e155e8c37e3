/* The steady state of a replay buffer: the table is full, its oldest item goes with each row that comes. The new item then takes
 * the old one's slot, and its place in the sampler, so that of the work of an insert and a delete almost nothing is left.
 *
 * To the sampler this is an update of the slot's priority: a uniform one has nothing to do, a heap puts it behind its equals as a
 * new item would be, the sum of a prioritized one changes by the difference. A registered sampler sees keys, and extensions see
 * events: for them rows take the long way (rv_table_admit). */
#include "store/replace.h"

#include "base/fetches.h"
#include "store/snapshot_parts.h"

/* A step's rows on their way into the places of items. */
typedef struct rv_replacing {
  rv_turn *turn;
  rv_table *table;
  rv_slab *slab;
  rv_hold *hold;
  int64_t first_row, now_ns;
  const double *given; /* NULL: all 1 */
  uint64_t *keys;      /* NULL: not wanted */
  uint16_t number;     /* of the rows' template */
  int64_t span;        /* rows that each of its items reaches */
  uint32_t same;       /* items that went and used it too */
  uint32_t slots[RV_ROWS_STEP];
  double priorities[RV_ROWS_STEP];
} rv_replacing;

/* ---- the common case: rows of one segment, oldest first ---- */

/* Replaces the items of one run, at most k, for rows i, i + 1, ...; returns how many. Everything the loop needs stands in locals:
 * it is most of what inserting costs. */
static size_t replace_run(rv_replacing *work, size_t i, size_t k)
{
  rv_slab *slab = work->slab;
  rv_books *books = &work->table->books;
  if (!rv_replace_unseen(work->table)) return 0;
  const uint64_t tag = books->key_tag, named = rv_replace_named_bits(books);
  const unsigned slot_bits = books->slot_bits;
  const uint16_t number = work->number;
  const int64_t now_ns = work->now_ns;
  const double *given = work->given;
  rv_hold *const hold = work->hold;
  uint64_t *keys = work->keys, count = books->key_count, sequence = slab->sequence;
  uint32_t slot = slab->oldest, first_slot = slot, last_slot = slot;
  rv_item *first = rv_slab_at(slab, slot), *item = first, *last = first;
  rv_hold *const old = first->data;
  int32_t row = (int32_t)(work->first_row + (int64_t)i);
  const size_t begin = i, end = i + k;
  for (; i < end; i++, row++) {
    if (item->data != old || !rv_replace_is_plain(item, number, named, tag | slot)) break;
    /* slots that came one after another go one after another; where they do not, or a block ends, nothing is lost */
    __builtin_prefetch((const char *)item + RV_REPLACE_AHEAD * sizeof *item, 1);
    double priority = given == NULL ? 1.0 : given[i];
    if (item->priority != priority) rv_extremes_change(&work->table->extremes, slot, item->priority, priority);
    uint64_t key = rv_replace_key(tag, ++count, slot_bits, slot);
    work->slots[i] = slot;
    work->priorities[i] = priority;
    if (keys != NULL) keys[i] = key;
    rv_replace_renew(item, hold, row, key, priority, now_ns, ++sequence);
    last_slot = slot;
    last = item;
    uint32_t next = item->next;
    if (next != item->hold_prev) {
      i++;
      break;
    }
    if (next == slot + 1 && next % RV_SLAB_LENGTH != 0) { /* mostly: it is read before it is known that it is the next */
      slot++;
      item++;
    } else {
      slot = next;
      item = rv_slab_at(slab, slot);
    }
  }
  if (i == begin) return 0;
  books->key_count = count;
  slab->sequence = sequence;
  rv_replace_move(slab, old, hold, first_slot, first, last_slot, last);
  rv_replace_count(books, old, hold, (uint32_t)(i - begin), work->span, &work->turn->garbage);
  work->same += (uint32_t)(i - begin);
  return i - begin;
}

/* ---- any other item ---- */

static void replace_one(rv_replacing *work, size_t i)
{
  rv_table *table = work->table;
  rv_books *books = &table->books;
  uint32_t slot = work->slab->oldest;
  rv_item *item = rv_slab_at(work->slab, slot);
  rv_snapshot_leaves(table, slot);
  if (item->marked) {
    rv_marks_leave(table, slot);
    item->marked = 0;
  }
  rv_books_forget_key(books, item->key, slot);
  rv_books_detach(books, slot, &work->turn->garbage);
  rv_slab_renew(work->slab, slot);
  rv_item_set_sequence(item, ++work->slab->sequence);
  double priority = work->given == NULL ? 1.0 : work->given[i];
  if (item->priority != priority) rv_extremes_change(&table->extremes, slot, item->priority, priority);
  work->slots[i] = slot;
  work->priorities[i] = item->priority = priority;
  item->key = rv_books_make_key(books, slot);
  if (work->keys != NULL) work->keys[i] = item->key;
  item->inserted_at_ns = work->now_ns;
  item->times_sampled = 0;
  rv_books_link_compact(books, slot, work->hold, work->first_row + (int64_t)i, work->number);
}

/* ---- a step's rows ---- */

static void begin(rv_replacing *work, rv_turn *turn, const rv_rows *rows)
{
  rv_table *table = turn->table;
  work->turn = turn;
  work->table = table;
  rv_books_forget_old_names(&table->books);
  work->slab = &table->books.slab;
  work->now_ns = rv_stamp_now(&table->stamp, table->env);
  work->given = rows->priorities == NULL ? NULL : rows->priorities + rows->done;
  work->keys = rows->keys == NULL ? NULL : rows->keys + rows->done;
  work->number = rows->form->number;
  work->span = rv_trajectory_box_of(rows->form->template)->span;
  work->same = 0;
}

static void end(rv_replacing *work, size_t k)
{
  rv_table *table = work->table;
  table->books.templates.entry[work->number].items -= work->same; /* the new ones use it */
  if (table->config.sampler.kind == RV_SELECTOR_UNIFORM) {
    /* nothing depends on priorities */
  } else if (k == 1) {
    rv_pick_update(&table->sampler, work->slots[0], work->priorities[0], NULL);
  } else {
    rv_pick_update_many(&table->sampler, work->slots, work->priorities, k);
  }
}

void rv_rows_replace(rv_turn *turn, rv_rows *rows, rv_hold *hold, int64_t first, size_t k)
{
  rv_replacing work;
  begin(&work, turn, rows);
  work.hold = hold;
  work.first_row = first;
  for (size_t i = 0; i < k;) {
    size_t n = replace_run(&work, i, k - i);
    if (n == 0) {
      replace_one(&work, i);
      n = 1;
    }
    i += n;
  }
  end(&work, k);
}

/* The items that go, but for the first, and what they are linked to. */
RV_FETCHES void fetch_oldest(const rv_slab *slab, size_t k)
{
  uint32_t slot = slab->oldest;
  for (size_t i = 0; i < k && slot != RV_NO_SLOT; i++) {
    const rv_item *item = rv_slab_at(slab, slot);
    __builtin_prefetch(item->data, 1);
    if (item->template_number != RV_LOOSE && item->hold_next != RV_NO_SLOT)
      __builtin_prefetch(rv_slab_at(slab, item->hold_next), 1);
    slot = item->next;
  }
}

void rv_rows_replace_placed(rv_turn *turn, rv_rows *rows, rv_hold *const *holds, size_t k)
{
  rv_replacing work;
  begin(&work, turn, rows);
  fetch_oldest(work.slab, k);
  const rv_place *placed = rows->placed + rows->done;
  for (size_t i = 0; i < k; i++) {
    work.hold = holds[i];
    work.first_row = placed[i].base - (int64_t)i;
    if (replace_run(&work, i, 1) == 0) replace_one(&work, i);
  }
  end(&work, k);
}
