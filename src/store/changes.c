#include "store/changes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/changes_parts.h"
#include "store/chunk_parts.h"
#include "store/trajectory_parts.h"

enum { PRESSING = 4 /* a quarter of the bound: the collector need not wait for its time */ };

/* ---- room ---- */

rv_code rv_changes_make_room(rv_table *table, size_t changes, size_t extras, rv_error *err)
{
  rv_changes *own = table->log;
  size_t left = own->list.last == NULL ? 0 : RV_CHANGE_BLOCK - own->list.last->count;
  size_t extras_left = own->list.last_extra == NULL ? 0 : RV_EXTRA_BLOCK - own->list.last_extra->count;
  if (left < changes && own->spare == NULL) own->spare = malloc(sizeof *own->spare);
  if (extras_left < extras && own->spare_extra == NULL) own->spare_extra = malloc(sizeof *own->spare_extra);
  bool fine = (left >= changes || own->spare != NULL) && (extras_left >= extras || own->spare_extra != NULL);
  return fine ? RV_OK : rv_fail_memory(err, sizeof(rv_extra_block));
}

static rv_change *next_change(rv_changes *own)
{
  rv_change_list *list = &own->list;
  if (list->last == NULL || list->last->count == RV_CHANGE_BLOCK) {
    rv_change_block *block = own->spare;
    own->spare = NULL;
    block->next = NULL;
    block->count = 0;
    *(list->last == NULL ? &list->blocks : &list->last->next) = block;
    list->last = block;
  }
  return &list->last->changes[list->last->count++];
}

static rv_change_extra *next_extra(rv_changes *own)
{
  rv_change_list *list = &own->list;
  if (list->last_extra == NULL || list->last_extra->count == RV_EXTRA_BLOCK) {
    rv_extra_block *block = own->spare_extra;
    own->spare_extra = NULL;
    block->next = NULL;
    block->count = 0;
    *(list->last_extra == NULL ? &list->extras : &list->last_extra->next) = block;
    list->last_extra = block;
  }
  rv_change_extra *extra = &list->last_extra->extras[list->last_extra->count++];
  *extra = (rv_change_extra){.number = 0};
  return extra;
}

static void count(rv_changes *own, size_t bytes)
{
  rv_change_log *log = own->shared;
  if (own->list.bytes == 0) own->fresh = true;
  own->list.bytes += bytes;
  size_t all = atomic_fetch_add_explicit(&log->bytes, bytes, memory_order_relaxed) + bytes;
  if (!own->pressed && all > log->max_bytes / PRESSING) own->pressed = own->fresh = true;
}

/* ---- appending ---- */

void rv_changes_put(rv_table *table, rv_change_kind kind, uint64_t key, double priority, int32_t times_sampled)
{
  *next_change(table->log) =
      (rv_change){.key = key, .priority = priority, .times_sampled = times_sampled, .kind = (uint32_t)kind};
  count(table->log, sizeof(rv_change));
}

/* What the extra keeps in memory until it is written down, where nobody else does. */
static size_t kept_by(const rv_draw *draw)
{
  const rv_trajectory *trajectory = draw->trajectory;
  const rv_trajectory_box *box = rv_trajectory_box_of_const(trajectory);
  size_t bytes = box->bytes;
  const rv_trajectory_sums *sums = rv_trajectory_get_sums(trajectory);
  if (sums != NULL) return bytes + sums->shares + box->memory;
  if (draw->chunk != NULL && draw->chunk->is_segment && !draw->chunk->has_strings) return bytes; /* nearly all rows */
  for (uint32_t i = 0; i < trajectory->num_slices; i++) {
    const rv_slice slice = rv_draw_slice(draw, i);
    bytes += rv_slice_share(&slice);
  }
  return draw->chunk != NULL ? bytes : bytes + box->memory; /* else the trajectory is the table's template */
}

void rv_changes_put_insert(rv_table *table, const rv_item *item)
{
  rv_changes *own = table->log;
  rv_trajectory *trajectory = rv_books_trajectory(&table->books, item);
  bool loose = item->template_number == RV_LOOSE;
  rv_change_extra *extra = next_extra(own);
  extra->writer[0] = own->writer[0];
  extra->writer[1] = own->writer[1];
  extra->number = own->number;
  extra->draw = (rv_draw){.key = item->key,
                          .priority = item->priority,
                          .times_sampled = item->times_sampled,
                          .inserted_at_ns = item->inserted_at_ns,
                          .trajectory = rv_trajectory_ref(trajectory),
                          .chunk = loose ? NULL : rv_chunk_ref(((const rv_hold *)item->data)->chunk),
                          .base_row = loose ? 0 : item->base_row,
                          .naming = own->naming};
  count(own, sizeof *extra + kept_by(&extra->draw));
  rv_changes_put(table, RV_CHANGE_INSERT, item->key, item->priority, item->times_sampled);
}

void rv_changes_put_done(rv_table *table)
{
  rv_changes *own = table->log;
  rv_change_extra *extra = next_extra(own);
  extra->writer[0] = own->writer[0];
  extra->writer[1] = own->writer[1];
  extra->number = own->number;
  count(own, sizeof *extra);
  rv_changes_put(table, RV_CHANGE_DONE, 0, 0, 0);
}

void rv_changes_put_limiter(rv_table *table, const rv_rate_limiter_config *config)
{
  next_extra(table->log)->limiter = *config;
  count(table->log, sizeof(rv_change_extra));
  rv_changes_put(table, RV_CHANGE_LIMITER, 0, 0, 0);
}

/* ---- saying why not ---- */

void rv_changes_explain(const rv_changes *changes, char *out, size_t capacity)
{
  int fault = atomic_load_explicit(&changes->shared->fault, memory_order_relaxed);
  size_t bytes = atomic_load_explicit(&changes->shared->bytes, memory_order_relaxed);
  char why[128] = "the disk is slower than what comes in";
  if (fault != 0) snprintf(why, sizeof why, "%s", rv_system_error(fault));
  snprintf(out, capacity, "waits for the journal (%zu KiB are not on the disk yet: %s)", bytes >> 10, why);
}

rv_code rv_changes_refuse(rv_table *table, rv_error *err)
{
  const rv_change_log *log = table->log->shared;
  if (atomic_load_explicit(&log->bytes, memory_order_relaxed) < 4 * log->max_bytes) return RV_OK;
  char why[256];
  rv_changes_explain(table->log, why, sizeof why);
  return rv_fail(err, RV_RESOURCE_EXHAUSTED, "table \"%s\" takes no change now: it %s; try again when the disk takes more",
                 table->name, why);
}

/* ---- for who writes down ---- */

void rv_change_list_fini(rv_change_list *list)
{
  while (list->blocks != NULL) {
    rv_change_block *next = list->blocks->next;
    free(list->blocks);
    list->blocks = next;
  }
  while (list->extras != NULL) {
    rv_extra_block *next = list->extras->next;
    for (size_t i = 0; i < list->extras->count; i++)
      if (list->extras->extras[i].draw.trajectory != NULL) rv_draw_release(&list->extras->extras[i].draw);
    free(list->extras);
    list->extras = next;
  }
  *list = (rv_change_list){.bytes = 0};
}

rv_code rv_table_keep_changes(rv_table *table, rv_change_log *log, rv_error *err)
{
  rv_changes *made = calloc(1, sizeof *made);
  if (made == NULL) return rv_fail_memory(err, sizeof *made);
  made->shared = log;
  rv_turn turn;
  rv_turn_begin(&turn, table);
  bool taken = table->log != NULL;
  if (!taken) {
    table->log = made;
    table->replaces_without_changes = table->replaces;
    table->replaces = false; /* an item that goes is written down, too */
  }
  rv_turn_leave(&turn);
  if (!taken) return RV_OK;
  free(made);
  return rv_fail(err, RV_FAILED_PRECONDITION, "table \"%s\" has a journal already; a store has one at a time", table->name);
}

void rv_table_drop_changes(rv_table *table)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  rv_changes *own = table->log;
  table->log = NULL;
  if (own != NULL) table->replaces = table->replaces_without_changes;
  rv_turn_finish(&turn); /* who waited for the journal waits no more */
  if (own == NULL) return;
  rv_change_list_fini(&own->list);
  free(own->spare);
  free(own->spare_extra);
  free(own);
}

void rv_table_take_changes(rv_table *table, rv_change_list *out)
{
  *out = (rv_change_list){.bytes = 0};
  rv_turn turn;
  rv_turn_begin(&turn, table);
  rv_changes *own = table->log;
  if (own != NULL) {
    *out = own->list;
    own->list = (rv_change_list){.bytes = 0};
    own->fresh = own->pressed = false;
  }
  rv_turn_leave(&turn);
}

void rv_table_serve_changes(rv_table *table)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  bool blocked = table->log != NULL && table->log->blocked;
  if (blocked) table->log->blocked = false;
  if (blocked)
    rv_turn_finish(&turn);
  else
    rv_turn_leave(&turn);
}
