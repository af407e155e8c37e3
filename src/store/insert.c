/* Items come in: one with a trajectory at a time, or an update where the key is known. */
#include <inttypes.h>

#include "base/error.h"
#include "store/changes_parts.h"
#include "store/snapshot_parts.h"

rv_code rv_priority_check(const rv_table *table, double priority, rv_error *err)
{
  if (rv_priority_fine(table, priority)) return RV_OK;
  rv_code code = priority == priority ? rv_pick_accepts(&table->sampler, priority, err)
                                      : rv_fail(err, RV_INVALID_ARGUMENT, "priority must not be NaN; give a number");
  if (code == RV_OK) code = rv_pick_accepts(&table->remover, priority, err);
  rv_error_prefix(err, "table \"%s\"", table->name);
  return code;
}

static void drop(rv_turn *turn, uint32_t slot)
{
  rv_books_take_back(&turn->table->books, slot, &turn->garbage);
  rv_books_give(&turn->table->books, slot);
}

rv_code rv_table_show(rv_turn *turn, uint32_t slot, rv_error *err)
{
  rv_table *table = turn->table;
  rv_item *item = rv_slab_at(&table->books.slab, slot);
  rv_code code = rv_pick_insert(&table->sampler, slot, item->key, item->priority, err);
  if (code != RV_OK) {
    drop(turn, slot);
    return code;
  }
  code = rv_pick_insert(&table->remover, slot, item->key, item->priority, err);
  if (code != RV_OK) {
    rv_pick_remove(&table->sampler, slot);
    drop(turn, slot);
    return code;
  }
  rv_extremes_add(&table->extremes, slot, item->priority);
  rv_table_note(turn, RV_EVENT_INSERT, item, item->priority, item->priority);
  return RV_OK;
}

rv_code rv_table_admit(rv_turn *turn, uint32_t slot, int64_t *removed, rv_error *err)
{
  rv_table *table = turn->table;
  rv_code code = rv_table_show(turn, slot, err);
  if (code != RV_OK) return code;
  if (table->log != NULL) rv_changes_put_insert(table, rv_slab_at(&table->books.slab, slot));
  while ((int64_t)table->books.slab.count > table->config.max_size) {
    double unused;
    uint32_t gone = rv_pick_select(&table->remover, &table->books.slab, &table->random, &unused);
    rv_table_remove(turn, gone);
    ++*removed;
  }
  return RV_OK;
}

void rv_table_remove(rv_turn *turn, uint32_t slot)
{
  rv_table *table = turn->table;
  rv_item *item = rv_slab_at(&table->books.slab, slot);
  rv_table_tell_before(turn, 1);
  rv_table_note(turn, RV_EVENT_DELETE, item, item->priority, item->priority);
  rv_changes_note(table, RV_CHANGE_DELETE, item);
  rv_snapshot_leaves(table, slot);
  if (item->marked) rv_marks_leave(table, slot);
  rv_extremes_remove(&table->extremes, slot, item->priority);
  rv_pick_remove(&table->sampler, slot);
  rv_pick_remove(&table->remover, slot);
  rv_books_detach(&table->books, slot, &turn->garbage);
  rv_books_give(&table->books, slot);
  if (table->books.slab.count == 0) rv_extremes_clear(&table->extremes);
}

rv_code rv_table_set_priority(rv_table *table, uint32_t slot, double priority, rv_error *err)
{
  rv_item *item = rv_slab_at(&table->books.slab, slot);
  rv_code code = rv_pick_update(&table->sampler, slot, priority, err);
  if (code != RV_OK) return code;
  code = rv_pick_update(&table->remover, slot, priority, err);
  if (code != RV_OK) {
    rv_pick_update(&table->sampler, slot, item->priority, NULL);
    return code;
  }
  rv_extremes_change(&table->extremes, slot, item->priority, priority);
  rv_snapshot_changes(table, slot);
  item->priority = priority;
  rv_changes_note(table, RV_CHANGE_UPDATE, item);
  return RV_OK;
}

/* ---- one item ---- */

static rv_code check_insert(rv_table *table, const rv_insert *insert, rv_error *err)
{
  if (insert->trajectory == NULL || insert->trajectory->num_chunks == 0)
    return rv_fail(err, RV_INVALID_ARGUMENT, "table \"%s\": an item needs a trajectory that refers to chunks", table->name);
  if (insert->times_sampled < 0)
    return rv_fail(err, RV_INVALID_ARGUMENT, "table \"%s\": times_sampled is %d; an item starts with 0 or more", table->name,
                   (int)insert->times_sampled);
  rv_code code = rv_priority_check(table, insert->priority, err);
  if (code == RV_OK) code = rv_table_check_layout(table, insert->trajectory, err);
  return code == RV_OK && rv_table_is_bounded(table) ? rv_insert_check_bytes(table, insert->trajectory, err) : code;
}

static rv_code update(rv_turn *turn, rv_insert *insert, uint32_t slot)
{
  rv_table *table = turn->table;
  rv_item *item = rv_slab_at(&table->books.slab, slot);
  rv_table_tell_before(turn, 1);
  double old = item->priority;
  if (insert->may_not_update && insert->priority != old)
    return rv_fail(&insert->waiter.error, RV_PERMISSION_DENIED,
                   "an item with the key %" PRIu64 " is there already, and giving it another priority takes the right \"update\"",
                   insert->key);
  rv_code code = rv_table_set_priority(table, slot, insert->priority, &insert->waiter.error);
  if (code != RV_OK) return code;
  insert->updated = true;
  table->updates++;
  if (table->log != NULL && insert->number != 0) rv_changes_put_done(table);
  rv_table_note(turn, RV_EVENT_UPDATE, item, insert->priority, old);
  return RV_OK;
}

static rv_code add(rv_turn *turn, rv_insert *insert)
{
  rv_table *table = turn->table;
  rv_error *err = &insert->waiter.error;
  uint32_t slot;
  uint64_t before = table->books.slab.sequence;
  rv_code code = rv_books_take(&table->books, insert->key, insert->choose_key, &slot, err);
  if (code != RV_OK) return code;
  rv_item *item = rv_slab_at(&table->books.slab, slot);
  uint64_t key = item->key;
  item->priority = insert->priority;
  item->times_sampled = insert->times_sampled;
  item->inserted_at_ns = rv_stamp_now(&table->stamp, table->env);
  code = insert->loose != NULL ? rv_books_attach_linked(&table->books, slot, insert->loose, err)
                               : rv_books_attach(&table->books, slot, insert->trajectory, &turn->garbage, err);
  if (code != RV_OK) {
    rv_books_give(&table->books, slot);
    return code;
  }
  insert->loose = NULL;
  int64_t removed = 0;
  code = rv_table_admit(turn, slot, &removed, err);
  if (code != RV_OK) return code;
  insert->key = key;
  rv_naming_inserted(table, insert->naming, before);
  rv_rate_limiter_inserted(&table->limiter, 1);
  rv_rate_limiter_deleted(&table->limiter, removed);
  table->rates.inserts++;
  return RV_OK;
}

/* Small steps that an item is worth: eight of a group of sixteen in one hold, about 4 us; and beyond a few chunks more for each. */
enum { INSERT_STEPS = 32, FEW_CHUNKS = 4 };

static int steps_of(const rv_insert *insert)
{
  const rv_trajectory *trajectory = insert->trajectory;
  uint32_t chunks = insert->loose != NULL || trajectory->num_chunks <= FEW_CHUNKS ? 0 : trajectory->num_chunks - FEW_CHUNKS;
  uint32_t slices = trajectory->num_slices <= RV_TEMPLATE_SLICES ? trajectory->num_slices : 0; /* of more none is looked at */
  return INSERT_STEPS + (int)(chunks * RV_LINK_STEPS + slices / 8);
}

/* The error says whose it is. */
static rv_room room_in(const rv_turn *turn, rv_room room, rv_error *err)
{
  if (room == RV_ROOM_FAILED) rv_error_prefix(err, "table \"%s\"", turn->table->name);
  return room;
}

static rv_room make_room(rv_turn *turn, rv_insert *insert)
{
  rv_error *err = &insert->waiter.error;
  size_t comes, uncounted;
  rv_insert_comes(turn->table, insert->trajectory, &comes, &uncounted);
  if (rv_table_check_bytes(turn->table, comes, "an item with its chunks", err) != RV_OK) return RV_ROOM_FAILED; /* now it would */
  return room_in(turn, rv_table_make_room(turn, comes, 0, uncounted, err), err);
}

/* ---- an item of many chunks, a few of them in one step ---- */

static void begin_looking(rv_insert *insert)
{
  insert->linked = insert->looked_at = 0;
  insert->comes = insert->uncounted = rv_item_memory(insert->trajectory);
}

static rv_room look_at_some(rv_turn *turn, rv_insert *insert)
{
  const rv_trajectory *trajectory = insert->trajectory;
  uint32_t end = trajectory->num_chunks - insert->looked_at < RV_LOOKS_AT_ONCE ? trajectory->num_chunks
                                                                               : insert->looked_at + RV_LOOKS_AT_ONCE;
  turn->budget -= RV_LOOKS_AT_ONCE;
  for (; insert->looked_at < end; insert->looked_at++)
    rv_chunk_comes(turn->table, trajectory->chunks[insert->looked_at], &insert->comes, &insert->uncounted);
  return RV_ROOM_SOON;
}

/* Before any is linked, for then they are counted. */
static rv_room make_room_for_all(rv_turn *turn, rv_insert *insert)
{
  rv_error *err = &insert->waiter.error;
  if (rv_table_check_bytes(turn->table, insert->bytes, "an item with its chunks", err) != RV_OK) return RV_ROOM_FAILED;
  if (insert->looked_at < insert->trajectory->num_chunks) return look_at_some(turn, insert);
  return room_in(turn, rv_table_make_room(turn, insert->comes, 0, insert->uncounted, err), err);
}

/* RV_ROOM_THERE: all are linked, and there is room for the item. */
static rv_room link_some(rv_turn *turn, rv_insert *insert)
{
  rv_table *table = turn->table;
  rv_loose *loose = insert->loose;
  rv_error *err = &insert->waiter.error;
  if (insert->epoch != table->books.epoch) { /* those that it was linked in are gone */
    begin_looking(insert);
    insert->epoch = table->books.epoch;
  }
  if (insert->linked == 0 && rv_table_is_bounded(table)) {
    rv_room room = make_room_for_all(turn, insert);
    if (room != RV_ROOM_THERE) return room;
  }
  if (insert->linked == loose->num_links)
    return rv_table_is_bounded(table)
               ? room_in(turn, rv_table_make_room_behind(turn, rv_item_memory(insert->trajectory), err), err)
               : RV_ROOM_THERE;
  turn->budget -= RV_LINKS_AT_ONCE * RV_LINK_STEPS;
  return room_in(turn, rv_books_link_some(&table->books, loose, &insert->linked, err) == RV_OK ? RV_ROOM_SOON : RV_ROOM_FAILED,
                 err);
}

void rv_insert_end(rv_turn *turn, rv_insert *insert)
{
  rv_loose *loose = insert->loose;
  if (loose == NULL) return;
  const uint32_t linked = insert->epoch == turn->table->books.epoch ? insert->linked : 0;
  rv_books_leave_loose(&turn->table->books, loose, linked, &turn->garbage);
  insert->loose = NULL;
}

bool rv_insert_step(rv_turn *turn, rv_insert *insert)
{
  rv_table *table = turn->table;
  if (!rv_rate_limiter_can_insert(&table->limiter, 1)) return false;
  turn->budget -= steps_of(insert);
  if (!rv_changes_have_room(table, 1)) return false;
  uint32_t slot = insert->choose_key ? RV_NO_SLOT : rv_books_find(&table->books, insert->key);
  rv_room room = RV_ROOM_THERE;
  if (slot == RV_NO_SLOT && insert->loose != NULL)
    room = link_some(turn, insert);
  else if (slot == RV_NO_SLOT && rv_table_is_bounded(table))
    room = make_room(turn, insert);
  if (room == RV_ROOM_SOON || room == RV_ROOM_NONE) return room == RV_ROOM_SOON;
  if (room == RV_ROOM_FAILED) {
    rv_turn_complete(turn, &insert->waiter, insert->waiter.error.code);
    return true;
  }
  rv_changes_from(table, insert->naming, insert->writer, insert->number);
  rv_code code = rv_changes_reserve(table, 2, 1, &insert->waiter.error);
  if (code == RV_OK) code = slot != RV_NO_SLOT ? update(turn, insert, slot) : add(turn, insert);
  if (code != RV_OK) rv_error_prefix(&insert->waiter.error, "table \"%s\"", table->name);
  rv_turn_complete(turn, &insert->waiter, code);
  return true;
}

static rv_code make_loose(const rv_table *table, rv_insert *insert, rv_error *err)
{
  const rv_trajectory *trajectory = insert->trajectory;
  rv_code code = rv_loose_new(insert->trajectory, &insert->loose, err);
  if (code != RV_OK) {
    rv_error_prefix(err, "table \"%s\"", table->name);
    return code;
  }
  begin_looking(insert);
  insert->bytes = rv_item_memory(trajectory);
  for (uint32_t i = 0; i < trajectory->num_chunks; i++) insert->bytes += rv_chunk_memory(trajectory->chunks[i]) + sizeof(rv_hold);
  return RV_OK;
}

static bool begin(rv_table *table, rv_insert *insert)
{
  rv_waiter *waiter = &insert->waiter;
  waiter->table = table;
  insert->updated = false;
  insert->loose = NULL;
  insert->epoch = 0;
  waiter->code = check_insert(table, insert, &waiter->error);
  if (waiter->code == RV_OK && rv_trajectory_is_long(insert->trajectory))
    waiter->code = make_loose(table, insert, &waiter->error);
  waiter->state = RV_WAITER_DONE;
  return waiter->code == RV_OK;
}

rv_submitted rv_table_insert(rv_table *table, rv_insert *insert)
{
  rv_waiter *waiter = &insert->waiter;
  if (!begin(table, insert)) return RV_SUBMIT_DONE;
  rv_turn turn;
  rv_turn_begin(&turn, table);
  waiter->code = rv_table_is_closed(table, &waiter->error);
  if (waiter->code == RV_OK) return rv_turn_submit(&turn, waiter, RV_OPERATION_INSERT);
  rv_insert_end(&turn, insert);
  rv_turn_end(&turn);
  return RV_SUBMIT_DONE;
}

/* ---- several ---- */

/* The next items that a Fifo remover takes away, with all that forgetting them needs. */
static void prefetch_oldest(const rv_table *table, size_t n)
{
  const rv_books *books = &table->books;
  const rv_hold *holds[RV_INSERTS_AT_ONCE];
  size_t num_holds = 0;
  uint32_t slot = books->slab.oldest;
  for (size_t i = 0; i < n && slot != RV_NO_SLOT; i++) {
    const rv_item *item = rv_slab_at(&books->slab, slot);
    slot = item->next;
    if (slot != RV_NO_SLOT) __builtin_prefetch(rv_slab_at(&books->slab, slot), 1);
    if (books->by_key.count > 0) rv_map_prefetch(&books->by_key, item->key);
    if (item->template_number == RV_LOOSE) continue;
    holds[num_holds++] = item->data;
    __builtin_prefetch(item->data, 1);
  }
  for (size_t i = 0; i < num_holds; i++) {
    __builtin_prefetch(holds[i]->chunk, 1);
    __builtin_prefetch((const char *)holds[i]->chunk + 64, 1);
  }
}

static void prefetch(const rv_table *table, rv_insert *const *inserts, size_t n)
{
  for (size_t i = 0; i < n; i++) rv_map_prefetch(&table->books.by_key, inserts[i]->key);
  bool full = (int64_t)(table->books.slab.count + n) > table->config.max_size;
  if (full && table->config.remover.kind == RV_SELECTOR_FIFO) prefetch_oldest(table, n);
}

size_t rv_table_insert_many(rv_table *table, rv_insert *const *inserts, size_t n, rv_submitted *submitted)
{
  if (n > RV_INSERTS_AT_ONCE) n = RV_INSERTS_AT_ONCE;
  size_t fine = 0;
  while (fine < n && begin(table, inserts[fine])) fine++;
  size_t taken = fine < n ? fine + 1 : n;
  for (size_t i = 0; i < taken; i++) submitted[i] = RV_SUBMIT_DONE;
  if (fine == 0) return taken;
  rv_turn turn;
  rv_turn_begin(&turn, table);
  if (table->books.spare_holds == NULL)
    table->books.spare_holds = atomic_exchange_explicit(&table->left_holds, NULL, memory_order_acq_rel);
  prefetch(table, inserts, fine);
  size_t placed = 0;
  for (size_t i = 0; i < fine; i++) {
    rv_waiter *waiter = &inserts[i]->waiter;
    waiter->code = rv_table_is_closed(table, &waiter->error);
    if (waiter->code == RV_OK) submitted[placed++] = rv_turn_place(&turn, waiter, RV_OPERATION_INSERT);
    if (submitted[i] == RV_SUBMIT_DONE && waiter->code != RV_OK) {
      taken = i + 1;
      break;
    }
    if (turn.budget <= 0 && i + 1 < fine) rv_turn_pause(&turn);
  }
  for (; placed < fine; placed++) rv_insert_end(&turn, inserts[placed]); /* they were begun */
  rv_turn_end_grown(&turn);
  return taken;
}
