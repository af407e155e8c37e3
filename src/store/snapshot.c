#include "store/snapshot.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/fetches.h"
#include "store/changes_parts.h"
#include "store/chunk_parts.h"
#include "store/snapshot_parts.h"

enum { SLICE = 32, OUT = 256, SLACK_BLOCKS = 16 };

/* ---- beginning ---- */

static void fill_head(const rv_table *table, rv_snapshot *snapshot)
{
  const rv_table_config *config = &table->config;
  snapshot->head = (rv_snapshot_head){.name = table->name,
                                      .sampler = config->sampler,
                                      .remover = config->remover,
                                      .max_size = config->max_size,
                                      .max_bytes = config->max_bytes,
                                      .max_times_sampled = config->max_times_sampled,
                                      .signature = table->signature,
                                      .limiter = table->limiter,
                                      .num_items = (int64_t)table->books.slab.count,
                                      .num_deleted_episodes = table->books.episodes_gone,
                                      .num_unique_samples = table->num_unique_samples};
}

/* Where the items differ each says its own. */
static void note_naming(rv_table *table, rv_snapshot *snapshot)
{
  snapshot->head.naming = rv_naming_of_all(table);
  if (snapshot->head.naming != 0) return;
  snapshot->naming = table->naming;
  snapshot->named_since = table->naming_since;
}

/* Room for the slots there are, made without the lock; there may be more by the time it is taken again. */
static rv_code make_room(rv_snapshot *snapshot, size_t slots, rv_error *err)
{
  free(snapshot->kept);
  snapshot->num_blocks = slots / RV_KEPT_BLOCK + SLACK_BLOCKS;
  snapshot->kept = calloc(snapshot->num_blocks, sizeof *snapshot->kept);
  return snapshot->kept != NULL ? RV_OK : rv_fail_memory(err, snapshot->num_blocks * sizeof *snapshot->kept);
}

static rv_code begin(rv_snapshot *snapshot, rv_error *err)
{
  rv_table *table = snapshot->table;
  rv_turn turn;
  for (size_t slots = 0;;) {
    rv_code code = make_room(snapshot, slots, err);
    if (code != RV_OK) return code;
    rv_turn_begin(&turn, table);
    slots = table->books.slab.used;
    bool busy = table->snapshot != NULL, enough = slots <= snapshot->num_blocks << RV_KEPT_SHIFT;
    code = rv_changes_reserve(table, 1, 0, err);
    if (!busy && enough && code == RV_OK) {
      if (table->log != NULL)
        rv_changes_put(table, RV_CHANGE_SNAPSHOT, atomic_load_explicit(&table->log->shared->snapshot, memory_order_relaxed), 0,
                       0);
      fill_head(table, snapshot);
      snapshot->books = &table->books;
      snapshot->cursor = table->books.slab.oldest;
      snapshot->last_sequence = table->books.slab.sequence;
      if (snapshot->head.num_items > 0) note_naming(table, snapshot);
      table->snapshot = snapshot;
    }
    rv_turn_leave(&turn);
    if (busy)
      return rv_fail(err, RV_FAILED_PRECONDITION, "table \"%s\": another checkpoint of it is being taken; wait for that one",
                     table->name);
    if (enough || code != RV_OK) return code;
  }
}

rv_code rv_snapshot_new(rv_table *table, rv_snapshot **out, rv_error *err)
{
  rv_snapshot *snapshot = calloc(1, sizeof *snapshot);
  if (snapshot == NULL) return rv_fail_memory(err, sizeof *snapshot);
  snapshot->table = table;
  snapshot->slice = malloc(SLICE * sizeof *snapshot->slice);
  snapshot->out = malloc(OUT * sizeof *snapshot->out);
  snapshot->out_records = calloc(OUT, sizeof *snapshot->out_records);
  bool whole = snapshot->slice != NULL && snapshot->out != NULL && snapshot->out_records != NULL;
  rv_code code = whole ? begin(snapshot, err) : rv_fail_memory(err, OUT * sizeof *snapshot->out);
  if (code != RV_OK) {
    rv_snapshot_free(snapshot);
    return code;
  }
  *out = snapshot;
  return RV_OK;
}

void rv_snapshot_write_early(rv_snapshot *snapshot, rv_snapshot_put put, void *context)
{
  snapshot->put_early = put;
  snapshot->put_context = context;
}

const rv_snapshot_head *rv_snapshot_get_head(const rv_snapshot *snapshot)
{
  return &snapshot->head;
}

/* ---- what others keep for it, under the lock ---- */

static bool is_ahead(const rv_snapshot *snapshot, const rv_item *item)
{
  uint64_t sequence = rv_item_sequence(item);
  return sequence >= snapshot->next_sequence && sequence <= snapshot->last_sequence;
}

static rv_kept_values *kept_at(const rv_snapshot *snapshot, uint32_t slot)
{
  rv_kept_values *block = slot >> RV_KEPT_SHIFT < snapshot->num_blocks ? snapshot->kept[slot >> RV_KEPT_SHIFT] : NULL;
  return block == NULL ? NULL : &block[slot & (RV_KEPT_BLOCK - 1)];
}

void rv_snapshot_keep_values(rv_snapshot *snapshot, uint32_t slot)
{
  const rv_item *item = rv_slab_at(&snapshot->books->slab, slot);
  if (!is_ahead(snapshot, item) || snapshot->failed) return;
  rv_kept_values *values = kept_at(snapshot, slot);
  if (values == NULL) {
    rv_kept_values *block = malloc(RV_KEPT_BLOCK * sizeof *block);
    if (block == NULL) {
      snapshot->failed = true;
      return;
    }
    for (size_t i = 0; i < RV_KEPT_BLOCK; i++) block[i].times_sampled = -1;
    snapshot->kept[slot >> RV_KEPT_SHIFT] = block;
    values = kept_at(snapshot, slot);
  }
  if (values->times_sampled < 0) *values = (rv_kept_values){.priority = item->priority, .times_sampled = item->times_sampled};
}

/* The item as it was, with references of its own. */
static void fill_item(const rv_snapshot *snapshot, uint32_t slot, rv_snapshot_item *out)
{
  const rv_item *item = rv_slab_at(&snapshot->books->slab, slot);
  const rv_kept_values *values = kept_at(snapshot, slot);
  out->record = NULL;
  bool loose = item->template_number == RV_LOOSE, kept = values != NULL && values->times_sampled >= 0;
  out->sequence = rv_item_sequence(item);
  out->draw = (rv_draw){.key = item->key,
                        .priority = kept ? values->priority : item->priority,
                        .times_sampled = kept ? values->times_sampled : item->times_sampled,
                        .inserted_at_ns = item->inserted_at_ns,
                        .trajectory = rv_trajectory_ref(rv_books_trajectory(snapshot->books, item)),
                        .naming = out->sequence >= snapshot->named_since ? snapshot->naming : 0,
                        .chunk = loose ? NULL : rv_chunk_ref(((const rv_hold *)item->data)->chunk),
                        .base_row = loose ? 0 : item->base_row};
}

void rv_snapshot_keep_item(rv_snapshot *snapshot, uint32_t slot)
{
  const rv_item *item = rv_slab_at(&snapshot->books->slab, slot);
  if (slot == snapshot->cursor) snapshot->cursor = item->next;
  if (!is_ahead(snapshot, item) || snapshot->failed) return;
  rv_gone_block *block = snapshot->gone;
  if (block == NULL || block->count == RV_GONE_BLOCK) {
    block = malloc(sizeof *block);
    if (block != NULL) {
      block->count = 0;
      block->next = snapshot->gone;
      snapshot->gone = block;
    }
  }
  snapshot->failed = block == NULL || item->template_number == RV_UNATTACHED;
  if (!snapshot->failed) fill_item(snapshot, slot, &block->items[block->count++]);
}

void rv_snapshot_take_books(rv_snapshot *snapshot, rv_books *owned_books)
{
  snapshot->own = snapshot->books = owned_books;
  snapshot->table->snapshot = NULL;
}

/* ---- walking ---- */

/* Fetches the count of references that the item's copy takes: one item after the other, each would be waited for. */
RV_FETCHES void fetch_counts(const rv_item *item)
{
  if (item->template_number == RV_UNATTACHED) return;
  if (item->template_number == RV_LOOSE)
    __builtin_prefetch(((const rv_loose *)item->data)->trajectory, 1);
  else
    __builtin_prefetch(&((const rv_hold *)item->data)->chunk->refs, 1);
}

/* One slice, and all that went meanwhile. */
static rv_gone_block *walk(rv_snapshot *snapshot)
{
  rv_table *table = snapshot->table;
  rv_turn turn;
  rv_turn_begin(&turn, table);
  const rv_slab *slab = &snapshot->books->slab;
  uint32_t slots[SLICE], slot = snapshot->cursor;
  size_t n = 0;
  while (n < SLICE && slot != RV_NO_SLOT) {
    const rv_item *item = rv_slab_at(slab, slot);
    if (rv_item_sequence(item) > snapshot->last_sequence) slot = RV_NO_SLOT;
    if (slot == RV_NO_SLOT) break;
    __builtin_prefetch(item->data);
    slots[n++] = slot;
    slot = item->next;
  }
  for (size_t i = 0; i < n; i++) fetch_counts(rv_slab_at(slab, slots[i]));
  for (size_t i = 0; i < n; i++) fill_item(snapshot, slots[i], &snapshot->slice[i]);
  rv_gone_block *gone = snapshot->gone;
  snapshot->gone = NULL;
  snapshot->cursor = slot;
  snapshot->next_sequence = slot == RV_NO_SLOT ? UINT64_MAX : rv_item_sequence(rv_slab_at(slab, slot));
  if (slot == RV_NO_SLOT && table->snapshot == snapshot) table->snapshot = NULL;
  rv_turn_leave(&turn);
  snapshot->slice_count = n;
  snapshot->slice_at = 0;
  snapshot->horizon = snapshot->next_sequence;
  return gone;
}

/* ---- those that went, by their place in the order: the walker's own ---- */

static void sift_up(rv_snapshot_item *heap, size_t at)
{
  rv_snapshot_item moving = heap[at];
  for (; at > 0 && heap[(at - 1) / 2].sequence > moving.sequence; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
  heap[at] = moving;
}

static void sift_down(rv_snapshot_item *heap, size_t count)
{
  rv_snapshot_item moving = heap[0];
  size_t at = 0;
  for (size_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && heap[child + 1].sequence < heap[child].sequence) child++;
    if (heap[child].sequence >= moving.sequence) break;
    heap[at] = heap[child];
  }
  heap[at] = moving;
}

static bool heap_has_room(rv_snapshot *snapshot, size_t more)
{
  if (snapshot->heap_capacity - snapshot->heap_count >= more) return true;
  size_t capacity = 2 * (snapshot->heap_count + more);
  rv_snapshot_item *grown = realloc(snapshot->heap, capacity * sizeof *grown);
  if (grown == NULL) return false;
  snapshot->heap = grown;
  snapshot->heap_capacity = capacity;
  return true;
}

static void free_gone(rv_gone_block *gone)
{
  while (gone != NULL) {
    rv_gone_block *next = gone->next;
    for (size_t i = 0; i < gone->count; i++) rv_draw_release(&gone->items[i].draw);
    free(gone);
    gone = next;
  }
}

static rv_code put_early(rv_snapshot *snapshot, rv_snapshot_item *item, rv_error *err)
{
  if (snapshot->put_early == NULL || item->sequence < snapshot->horizon) return RV_OK; /* its turn comes at once */
  rv_code code = snapshot->put_early(snapshot->put_context, &item->draw, &item->record, err);
  if (code == RV_OK) rv_draw_release(&item->draw);
  return code;
}

static rv_code join(rv_snapshot *snapshot, rv_gone_block *owned_gone, rv_error *err)
{
  rv_code code = RV_OK;
  while (owned_gone != NULL) {
    if (!heap_has_room(snapshot, owned_gone->count)) {
      free_gone(owned_gone);
      return rv_fail_memory(err, snapshot->heap_capacity * sizeof *snapshot->heap);
    }
    for (size_t i = 0; i < owned_gone->count; i++) {
      if (code == RV_OK) code = put_early(snapshot, &owned_gone->items[i], err);
      snapshot->heap[snapshot->heap_count++] = owned_gone->items[i];
      sift_up(snapshot->heap, snapshot->heap_count - 1);
    }
    rv_gone_block *next = owned_gone->next;
    free(owned_gone);
    owned_gone = next;
  }
  return code;
}

static bool heap_is_next(const rv_snapshot *snapshot)
{
  if (snapshot->heap_count == 0 || snapshot->heap[0].sequence >= snapshot->horizon) return false;
  return snapshot->slice_at == snapshot->slice_count || snapshot->heap[0].sequence < snapshot->slice[snapshot->slice_at].sequence;
}

static rv_snapshot_item pop(rv_snapshot *snapshot)
{
  rv_snapshot_item first = snapshot->heap[0];
  snapshot->heap[0] = snapshot->heap[--snapshot->heap_count];
  if (snapshot->heap_count > 0) sift_down(snapshot->heap, snapshot->heap_count);
  return first;
}

static bool has_some(const rv_snapshot *snapshot)
{
  return snapshot->slice_at < snapshot->slice_count || heap_is_next(snapshot);
}

static void release_out(rv_snapshot *snapshot)
{
  for (size_t i = 0; i < snapshot->out_count; i++) {
    rv_draw_release(&snapshot->out[i]);
    rv_buf_unref(snapshot->out_records[i]);
  }
  snapshot->out_count = 0;
}

rv_code rv_snapshot_next(rv_snapshot *snapshot, const rv_draw **items, size_t *count, rv_error *err)
{
  release_out(snapshot);
  *count = 0;
  while (!has_some(snapshot) && snapshot->horizon != UINT64_MAX) {
    rv_code code = join(snapshot, walk(snapshot), err);
    if (code != RV_OK) return code;
  }
  /* settled by now where the walk is over, and looked at once more by then where it is not */
  if (snapshot->horizon == UINT64_MAX && snapshot->failed)
    return rv_fail(err, RV_RESOURCE_EXHAUSTED, "table \"%s\": out of memory for what changed while it was being saved",
                   snapshot->head.name);
  while (snapshot->out_count < OUT && has_some(snapshot)) {
    rv_snapshot_item item = heap_is_next(snapshot) ? pop(snapshot) : snapshot->slice[snapshot->slice_at++];
    snapshot->out_records[snapshot->out_count] = item.record;
    snapshot->out[snapshot->out_count++] = item.draw;
  }
  *items = snapshot->out;
  *count = snapshot->out_count;
  return RV_OK;
}

rv_buf *const *rv_snapshot_records(const rv_snapshot *snapshot)
{
  return snapshot->out_records;
}

rv_code rv_snapshot_gather(rv_snapshot *snapshot, rv_error *err)
{
  rv_turn turn;
  rv_turn_begin(&turn, snapshot->table);
  rv_gone_block *gone = snapshot->gone;
  snapshot->gone = NULL;
  rv_turn_leave(&turn);
  return join(snapshot, gone, err);
}

/* ---- ending ---- */

static void detach(rv_snapshot *snapshot)
{
  rv_turn turn;
  rv_turn_begin(&turn, snapshot->table);
  if (snapshot->table->snapshot == snapshot) snapshot->table->snapshot = NULL;
  rv_turn_leave(&turn);
}

void rv_snapshot_free(rv_snapshot *snapshot)
{
  if (snapshot == NULL) return;
  rv_memory *memory = snapshot->table->memory;
  detach(snapshot);
  free_gone(snapshot->gone);
  release_out(snapshot);
  for (; snapshot->slice_at < snapshot->slice_count; snapshot->slice_at++)
    rv_draw_release(&snapshot->slice[snapshot->slice_at].draw);
  for (size_t i = 0; i < snapshot->heap_count; i++) {
    rv_draw_release(&snapshot->heap[i].draw);
    rv_buf_unref(snapshot->heap[i].record);
  }
  for (size_t i = 0; i < snapshot->num_blocks && snapshot->kept != NULL; i++) free(snapshot->kept[i]);
  if (snapshot->own != NULL) rv_books_fini(snapshot->own);
  free(snapshot->own);
  free(snapshot->kept);
  free(snapshot->slice);
  free(snapshot->heap);
  free(snapshot->out);
  free(snapshot->out_records);
  free(snapshot);
  rv_memory_serve(memory);
}
