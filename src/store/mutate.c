/* Priorities change, items go by key, everything goes at once. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/changes_parts.h"
#include "store/priorities.h"
#include "store/snapshot_parts.h"

enum {
  BATCH = 256,     /* keys updated in one hold of the lock */
  DELETE_COST = 8, /* a key deleted counts as so many */
  MANY_DELETES = 1024
};

struct rv_mutation {
  rv_turn turn;
  uint64_t *unknown; /* may be NULL */
  size_t num_unknown;
  size_t in_hold;        /* what was done since the lock was taken, in updates */
  rv_change_block *room; /* to write down in, where others may come in between */
};

/* ---- room for what is written down, so that nothing is done by halves for want of memory ---- */

static rv_code make_room(rv_mutation *mutation, size_t changes, rv_error *err)
{
  for (size_t n = 0; n <= changes; n += RV_CHANGE_BLOCK) {
    rv_change_block *block = malloc(sizeof *block);
    if (block == NULL) return rv_fail_memory(err, sizeof *block);
    block->next = mutation->room;
    mutation->room = block;
  }
  return RV_OK;
}

static void drop_room(rv_mutation *mutation)
{
  while (mutation->room != NULL) {
    rv_change_block *next = mutation->room->next;
    free(mutation->room);
    mutation->room = next;
  }
}

static rv_code reserve(rv_mutation *mutation, size_t changes, rv_error *err)
{
  rv_changes *own = mutation->turn.table->log;
  if (own != NULL && own->spare == NULL && mutation->room != NULL) {
    own->spare = mutation->room;
    mutation->room = own->spare->next;
  }
  return rv_changes_reserve(mutation->turn.table, changes, 0, err);
}

/* Takes the table's lock, to make so many changes in one hold or in several. */
static rv_code enter(rv_mutation *mutation, rv_table *table, size_t changes, bool one_hold, rv_error *err)
{
  rv_turn_begin(&mutation->turn, table);
  rv_code code = RV_OK;
  if (table->log != NULL && (!one_hold || changes > RV_CHANGE_STEP)) {
    rv_turn_leave(&mutation->turn);
    code = make_room(mutation, changes, err);
    rv_turn_begin(&mutation->turn, table);
  }
  if (code == RV_OK) code = rv_table_is_closed(table, err);
  if (code == RV_OK) code = rv_changes_allow(table, err);
  return code == RV_OK && mutation->room == NULL ? rv_changes_reserve(table, changes, 0, err) : code;
}

static void not_there(rv_mutation *mutation, uint64_t key)
{
  if (mutation->unknown != NULL) mutation->unknown[mutation->num_unknown] = key;
  mutation->num_unknown++;
}

/* Before so much more. */
static void hold_on(rv_mutation *mutation, size_t updates)
{
  if (mutation->in_hold + updates > BATCH || mutation->turn.budget <= 0) { /* what extensions do counts, too */
    mutation->in_hold = 0;
    rv_turn_pause(&mutation->turn);
  }
  mutation->in_hold += updates;
}

static rv_code delete_keys(rv_mutation *mutation, const uint64_t *keys, size_t n, bool with_pauses, rv_error *err)
{
  rv_table *table = mutation->turn.table;
  for (size_t i = 0; i < n; i++) {
    if (with_pauses) hold_on(mutation, DELETE_COST);
    rv_code code = reserve(mutation, 1, err);
    if (code != RV_OK) return code;
    uint32_t slot = rv_books_find(&table->books, keys[i]);
    if (slot == RV_NO_SLOT) {
      not_there(mutation, keys[i]);
      continue;
    }
    rv_table_remove(&mutation->turn, slot);
    rv_rate_limiter_deleted(&table->limiter, 1);
  }
  return RV_OK;
}

/* What the selectors take is settled beforehand; only selectors of somebody else's may still refuse. */
static bool may_refuse(const rv_table *table)
{
  return table->config.sampler.kind == RV_SELECTOR_CUSTOM || table->config.remover.kind == RV_SELECTOR_CUSTOM;
}

/* ---- updates that cannot fail ---- */

/* NULL: there is none. Where rv_books_find looks first, without its call. */
static inline rv_item *find(const rv_books *books, uint64_t key, uint32_t *slot)
{
  *slot = rv_books_slot_named(books, key);
  if (*slot < books->slab.used) {
    rv_item *item = rv_slab_at(&books->slab, *slot);
    if (item->key == key && item->template_number != RV_FREE_SLOT) return item;
  }
  *slot = rv_books_find(books, key);
  return *slot == RV_NO_SLOT ? NULL : rv_slab_at(&books->slab, *slot);
}

/* At most BATCH keys, under one hold of the lock. */
static void update_batch(rv_mutation *mutation, const uint64_t *keys, const double *priorities, size_t n)
{
  rv_table *table = mutation->turn.table;
  rv_books *books = &table->books;
  uint32_t slots[BATCH];
  double given[BATCH], old[BATCH];
  size_t found = 0;
  if (table->num_extensions > 0) rv_table_tell_before(&mutation->turn, n);
  for (size_t i = 0; i < n; i++) {
    uint32_t slot;
    rv_item *item = find(books, keys[i], &slot);
    if (item == NULL) {
      not_there(mutation, keys[i]);
      continue;
    }
    slots[found] = slot;
    old[found] = item->priority;
    given[found++] = priorities[i];
    rv_extremes_change(&table->extremes, slot, item->priority, priorities[i]);
    rv_snapshot_changes(table, slot);
    item->priority = priorities[i];
    rv_changes_note(table, RV_CHANGE_UPDATE, item);
  }
  rv_pick_update_many(&table->sampler, slots, given, found);
  rv_pick_update_many(&table->remover, slots, given, found);
  /* told when all are set: what extensions then edit must stand */
  for (size_t i = 0; i < found && table->num_extensions > 0; i++)
    rv_table_note(&mutation->turn, RV_EVENT_UPDATE, rv_slab_at(&books->slab, slots[i]), given[i], old[i]);
  table->updates += (int64_t)found;
}

static rv_code update_keys(rv_mutation *mutation, const uint64_t *keys, const double *priorities, size_t n, rv_error *err)
{
  const size_t most = mutation->turn.table->num_extensions > 0 ? RV_EVENTS_MAX : BATCH;
  for (size_t begin = 0; begin < n; begin += most) {
    size_t count = n - begin < most ? n - begin : most;
    hold_on(mutation, count);
    rv_code code = reserve(mutation, count, err);
    if (code != RV_OK) return code;
    update_batch(mutation, keys + begin, priorities + begin, count);
  }
  return RV_OK;
}

static rv_code update_pairs(rv_mutation *mutation, const rv_key_priority *updates, size_t n, rv_error *err)
{
  uint64_t keys[BATCH];
  double priorities[BATCH];
  for (size_t begin = 0; begin < n; begin += BATCH) {
    size_t count = n - begin < BATCH ? n - begin : BATCH;
    for (size_t i = 0; i < count; i++) {
      keys[i] = updates[begin + i].key;
      priorities[i] = updates[begin + i].priority;
    }
    rv_code code = update_keys(mutation, keys, priorities, count, err);
    if (code != RV_OK) return code;
  }
  return RV_OK;
}

/* ---- updates that a registered selector may refuse ---- */

static int compare_keys(const void *a, const void *b)
{
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

typedef struct rv_undo {
  uint64_t *deletes; /* sorted */
  uint32_t *slots;
  double *old, *new;
  size_t n;
} rv_undo;

static rv_code undo_init(rv_undo *undo, size_t num_updates, const uint64_t *deletes, size_t num_deletes, rv_error *err)
{
  *undo = (rv_undo){.deletes = malloc(num_deletes * sizeof *deletes + 1),
                    .slots = malloc(num_updates * sizeof *undo->slots + 1),
                    .old = malloc(num_updates * sizeof *undo->old + 1),
                    .new = malloc(num_updates * sizeof *undo->new + 1)};
  if (undo->deletes == NULL || undo->slots == NULL || undo->old == NULL || undo->new == NULL)
    return rv_fail_memory(err, (num_deletes + num_updates) * sizeof *deletes);
  if (num_deletes == 0) return RV_OK;
  memcpy(undo->deletes, deletes, num_deletes * sizeof *deletes);
  qsort(undo->deletes, num_deletes, sizeof *deletes, compare_keys);
  return RV_OK;
}

static void undo_fini(rv_undo *undo)
{
  free(undo->deletes);
  free(undo->slots);
  free(undo->old);
  free(undo->new);
}

static void undo_all(rv_mutation *mutation, rv_undo *undo)
{
  while (undo->n-- > 0) {
    reserve(mutation, 1, NULL); /* there is room for all */
    rv_table_set_priority(mutation->turn.table, undo->slots[undo->n], undo->old[undo->n], NULL);
  }
}

/* Updates first, those of keys that will be deleted left out, so that a refusal can be undone. */
static rv_code try_updates(rv_mutation *mutation, rv_undo *undo, const rv_key_priority *updates, size_t num_updates,
                           size_t num_deletes, rv_error *err)
{
  rv_table *table = mutation->turn.table;
  for (size_t i = 0; i < num_updates; i++) {
    uint64_t key = updates[i].key;
    uint32_t slot = rv_books_find(&table->books, key);
    if (slot == RV_NO_SLOT || (num_deletes > 0 && bsearch(&key, undo->deletes, num_deletes, sizeof key, compare_keys) != NULL))
      continue;
    undo->slots[undo->n] = slot;
    undo->old[undo->n] = rv_slab_at(&table->books.slab, slot)->priority;
    undo->new[undo->n] = updates[i].priority;
    rv_code code = reserve(mutation, 1, err);
    if (code == RV_OK) code = rv_table_set_priority(table, slot, updates[i].priority, err);
    if (code != RV_OK) {
      undo_all(mutation, undo);
      rv_error_prefix(err, "table \"%s\": key %llu", table->name, (unsigned long long)key);
      return code;
    }
    undo->n++;
  }
  for (size_t i = 0; i < undo->n; i++)
    rv_table_note(&mutation->turn, RV_EVENT_UPDATE, rv_slab_at(&table->books.slab, undo->slots[i]), undo->new[i], undo->old[i]);
  table->updates += (int64_t)undo->n;
  return RV_OK;
}

static rv_code mutate_with_undo(rv_mutation *mutation, const rv_key_priority *updates, size_t num_updates,
                                const uint64_t *deletes, size_t num_deletes, rv_error *err)
{
  rv_table *table = mutation->turn.table;
  rv_undo undo;
  rv_code code = undo_init(&undo, num_updates, deletes, num_deletes, err);
  if (code == RV_OK)
    code = enter(mutation, table, 2 * num_updates + num_deletes, true, err); /* an update may be taken back */
  else
    rv_turn_begin(&mutation->turn, table);
  if (code == RV_OK) code = try_updates(mutation, &undo, updates, num_updates, num_deletes, err);
  if (code == RV_OK) code = delete_keys(mutation, deletes, num_deletes, false, err);
  if (code == RV_OK) {
    for (size_t i = 0; i < num_updates; i++)
      if (rv_books_find(&table->books, updates[i].key) == RV_NO_SLOT) not_there(mutation, updates[i].key);
  }
  undo_fini(&undo);
  return code;
}

/* ---- the verbs ---- */

rv_code rv_table_check_update(const rv_table *table, uint64_t key, double priority, rv_error *err)
{
  if (rv_priority_fine(table, priority)) return RV_OK;
  rv_code code = rv_priority_check(table, priority, err);
  rv_error_prefix(err, "key %llu", (unsigned long long)key);
  return code;
}

bool rv_table_can_mutate_in_parts(const rv_table *table)
{
  return !may_refuse(table);
}

rv_code rv_table_mutate(rv_table *table, const rv_key_priority *updates, size_t num_updates, const uint64_t *deletes,
                        size_t num_deletes, uint64_t *unknown, size_t *num_unknown, rv_error *err)
{
  *num_unknown = 0;
  for (size_t i = 0; i < num_updates; i++) {
    rv_code code = rv_table_check_update(table, updates[i].key, updates[i].priority, err);
    if (code != RV_OK) return code;
  }
  rv_mutation mutation = {.turn.table = table, .unknown = unknown};
  rv_code code;
  if (may_refuse(table)) {
    code = mutate_with_undo(&mutation, updates, num_updates, deletes, num_deletes, err);
  } else {
    code = enter(&mutation, table, num_updates + num_deletes, num_updates + DELETE_COST * num_deletes <= BATCH, err);
    if (code == RV_OK) code = delete_keys(&mutation, deletes, num_deletes, true, err);
    if (code == RV_OK) code = update_pairs(&mutation, updates, num_updates, err);
  }
  rv_turn_finish(&mutation.turn);
  drop_room(&mutation);
  if (num_deletes >= MANY_DELETES) rv_table_compact(table, num_deletes); /* as much as these deletions made room for */
  if (code == RV_OK) *num_unknown = mutation.num_unknown;
  return code;
}

rv_code rv_mutation_new(rv_table *table, size_t changes, rv_mutation **out, rv_error *err)
{
  rv_mutation *mutation = calloc(1, sizeof *mutation);
  if (mutation == NULL) return rv_fail_memory(err, sizeof *mutation);
  rv_code code = enter(mutation, table, changes, false, err);
  rv_turn_finish(&mutation->turn);
  if (code != RV_OK) {
    rv_mutation_free(mutation);
    return code;
  }
  *out = mutation;
  return RV_OK;
}

static void go_on(rv_mutation *mutation, uint64_t *unknown)
{
  rv_table *table = mutation->turn.table;
  mutation->unknown = unknown;
  mutation->num_unknown = mutation->in_hold = 0;
  rv_turn_begin(&mutation->turn, table);
}

rv_code rv_mutation_delete(rv_mutation *mutation, const uint64_t *keys, size_t n, uint64_t *unknown, size_t *num_unknown,
                           rv_error *err)
{
  go_on(mutation, unknown);
  rv_code code = delete_keys(mutation, keys, n, true, err);
  rv_turn_finish(&mutation->turn);
  if (n >= MANY_DELETES) rv_table_compact(mutation->turn.table, n);
  *num_unknown = mutation->num_unknown;
  return code;
}

rv_code rv_mutation_update(rv_mutation *mutation, const rv_key_priority *updates, size_t n, uint64_t *unknown,
                           size_t *num_unknown, rv_error *err)
{
  go_on(mutation, unknown);
  rv_code code = update_pairs(mutation, updates, n, err);
  rv_turn_finish(&mutation->turn);
  *num_unknown = mutation->num_unknown;
  return code;
}

void rv_mutation_free(rv_mutation *mutation)
{
  if (mutation == NULL) return;
  drop_room(mutation);
  free(mutation);
}

rv_code rv_table_update_priorities(rv_table *table, const uint64_t *keys, const double *priorities, size_t n, uint64_t *unknown,
                                   size_t *num_unknown, rv_error *err)
{
  *num_unknown = 0;
  if (may_refuse(table)) {
    rv_key_priority *updates = malloc(n * sizeof *updates + 1);
    if (updates == NULL) return rv_fail_memory(err, n * sizeof *updates);
    for (size_t i = 0; i < n; i++) updates[i] = (rv_key_priority){.key = keys[i], .priority = priorities[i]};
    rv_code code = rv_table_mutate(table, updates, n, NULL, 0, unknown, num_unknown, err);
    free(updates);
    return code;
  }
  bool fine = rv_priorities_are_plain(priorities, n, table->weighs);
  for (size_t i = 0; i < n && !fine; i++) {
    rv_code code = rv_table_check_update(table, keys[i], priorities[i], err);
    if (code != RV_OK) return code;
  }
  rv_mutation mutation = {.unknown = unknown};
  rv_code code = enter(&mutation, table, n, n <= BATCH, err);
  if (code == RV_OK) code = update_keys(&mutation, keys, priorities, n, err);
  if (code == RV_OK) *num_unknown = mutation.num_unknown;
  rv_turn_finish(&mutation.turn);
  drop_room(&mutation);
  return code;
}

rv_code rv_table_reset(rv_table *table, rv_error *err)
{
  rv_turn turn;
  rv_books *old = malloc(sizeof *old);
  if (old == NULL) return rv_fail_memory(err, sizeof *old);
  rv_blocks blocks = {NULL};
  bool kept = false; /* a snapshot has the old books now */
  rv_turn_begin(&turn, table);
  rv_code code = rv_table_is_closed(table, err);
  if (code == RV_OK) code = rv_changes_allow(table, err);
  if (code == RV_OK && table->num_events > 0) rv_table_tell(&turn);
  if (code == RV_OK) code = rv_changes_reserve(table, 1, 0, err);
  if (code == RV_OK) {
    if (table->log != NULL) rv_changes_put(table, RV_CHANGE_RESET, 0, 0, 0);
    *old = table->books;
    kept = table->snapshot != NULL;
    if (kept) rv_snapshot_take_books(table->snapshot, old);
    /* the list's head moved with the copy, and nobody looks at it any more */
    rv_table_new_books(table, table->books.epoch + 1, table->books.key_count, table->books.slab.sequence);
    rv_pick_clear(&table->sampler, &blocks);
    rv_pick_clear(&table->remover, &blocks);
    rv_rate_limiter_reset(&table->limiter);
    table->num_unique_samples = table->updates = 0;
    for (size_t i = 0; i < RV_MAX_MARKS; i++) table->marks[i].slot = RV_NO_SLOT;
    table->compact_into = NULL;
    rv_table_note(&turn, RV_EVENT_RESET, NULL, 0, 0);
  }
  rv_turn_finish(&turn);
  if (code == RV_OK && !kept) rv_books_fini(old);
  rv_blocks_free(&blocks);
  if (!kept) free(old);
  rv_memory_serve(table->memory);
  return code;
}
