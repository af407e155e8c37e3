/* Items into the insert stream.
 *
 * An item passes up to three places: `waiting`, on the writer's thread, until its chunks are complete; `unchecked`, until the server has told what
 * its tables expect; the stream. Each is left in order, so items reach the server in the order in which they were created. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/writer.h"
#include "store/signature.h"

typedef struct remote_item {
  rv_stream_item stream; /* its link: in whichever of the three places */
  rv_flight flight;
  double priority;
  uint32_t num_ready;            /* of the chunks, how many are known to be complete */
  uint32_t num_columns;          /* to be checked; 0: they have been */
  rv_trajectory_column *columns;
  rv_written *chunks[];
} remote_item;

static remote_item *item_of(rv_link *link)
{
  return RV_CONTAINER(RV_CONTAINER(link, rv_stream_item, link), remote_item, stream);
}

static void free_item(remote_item *item)
{
  rv_stream_item_fini(&item->stream);
  rv_flight_fini(&item->flight);
  free(item->columns);
  free(item);
}

static void on_complete(rv_stream_item *stream_item, rv_code code, const char *message)
{
  remote_item *item = RV_CONTAINER(stream_item, remote_item, stream);
  rv_flight_end(&item->flight, code, message, NULL);
  free_item(item);
}

/* ---- making one ---- */

static rv_code serialize(rv_writer *writer, remote_item *item, rv_error *err)
{
  rv_parts *parts = &writer->parts;
  if (parts->wire_room < parts->num_slices) {
    rv_wire_slice *wire = realloc(parts->wire, parts->slice_room * sizeof *wire);
    if (wire == NULL) return rv_fail_memory(err, parts->slice_room * sizeof *wire);
    parts->wire = wire;
    parts->wire_room = parts->slice_room;
  }
  for (size_t i = 0; i < parts->num_slices; i++) {
    const rv_slice *slice = &parts->slices[i];
    parts->wire[i] = (rv_wire_slice){
        .chunk_key = parts->owners[i]->key, .offset = slice->offset, .length = slice->length, .index = (int32_t)slice->tensor};
  }
  const char *table = item->flight.table->name;
  rv_wire_item wire = {.key = item->flight.key,
                       .table = {(const uint8_t *)table, strlen(table)},
                       .priority = item->priority,
                       .slices = parts->wire,
                       .num_slices = parts->column_slices,
                       .squeeze = parts->squeeze,
                       .num_columns = parts->num_columns,
                       .total_slices = (uint32_t)parts->num_slices};
  return rv_stream_item_init(&item->stream, &wire, NULL, 0, err);
}

/* For a check that comes later. The specs belong to the writer's columns, which outlive the item. */
static rv_code keep_columns(rv_writer *writer, remote_item *item, rv_error *err)
{
  if (item->flight.table->info != NULL || writer->config.no_validation) return RV_OK;
  size_t bytes = writer->parts.num_columns * sizeof *item->columns;
  item->columns = malloc(bytes);
  if (item->columns == NULL) return rv_fail_memory(err, bytes);
  memcpy(item->columns, writer->parts.columns, bytes);
  item->num_columns = writer->parts.num_columns;
  return RV_OK;
}

static void cut_for_item(rv_writer *writer)
{
  for (uint32_t i = 0; i < writer->parts.num_chunks; i++) {
    rv_written *chunk = writer->parts.chunks[i];
    if (!chunk->complete && rv_chunk_rule_cuts(chunk->rule, chunk->rows)) rv_writer_complete_chunk(writer, chunk);
  }
}

rv_code rv_writer_insert_remote(rv_writer *writer, rv_writer_table *table, double priority, uint64_t *key, rv_error *err)
{
  size_t size = sizeof(remote_item) + writer->parts.num_chunks * sizeof(rv_written *);
  remote_item *item = calloc(1, size);
  if (item == NULL) return rv_fail_memory(err, size);
  item->flight.chunks = item->chunks;
  item->flight.table = table;
  item->flight.key = rv_writer_random_key(writer);
  item->priority = priority;
  rv_list_init(&item->flight.link);
  rv_code code = serialize(writer, item, err);
  item->flight.own_bytes = size + item->stream.body_size;
  if (code == RV_OK) code = keep_columns(writer, item, err);
  if (code == RV_OK) code = rv_flight_begin(writer, &item->flight, err);
  if (code != RV_OK) {
    free_item(item);
    return code;
  }
  item->stream.complete = on_complete;
  if (key != NULL) *key = item->flight.key;
  for (uint32_t i = 0; i < item->flight.num_chunks; i++) rv_written_pin(item->chunks[i]);
  rv_list_push_back(&writer->waiting, &item->stream.link);
  writer->num_waiting++;
  cut_for_item(writer);
  rv_writer_dispatch(writer);
  return RV_OK;
}

/* ---- from waiting on ---- */

static bool is_ready(remote_item *item)
{
  while (item->num_ready < item->flight.num_chunks && item->chunks[item->num_ready]->complete) item->num_ready++;
  return item->num_ready == item->flight.num_chunks;
}

static rv_code encode(rv_writer *writer, remote_item *item, rv_error *err)
{
  uint32_t n = item->flight.num_chunks;
  rv_stream_chunk **chunks = malloc(n * sizeof(rv_stream_chunk *));
  if (chunks == NULL) return rv_fail_memory(err, n * sizeof(rv_stream_chunk *));
  for (uint32_t i = 0; i < n; i++) {
    rv_code code = rv_written_encode(item->chunks[i], writer->config.delta_encoded, (int)writer->config.compression, err);
    if (code != RV_OK) {
      free(chunks);
      return code;
    }
  }
  for (uint32_t i = 0; i < n; i++) chunks[i] = rv_stream_chunk_ref(item->chunks[i]->encoded);
  item->stream.chunks = chunks;
  item->stream.num_chunks = n;
  return RV_OK;
}

/* Pins that keep the server from dropping a chunk while items that need it are on this side of the stream. */
static void pin_encoded(const remote_item *item)
{
  for (uint32_t i = 0; i < item->stream.num_chunks; i++)
    atomic_fetch_add_explicit(&item->stream.chunks[i]->pins, 1, memory_order_relaxed);
}

static void unpin_encoded(const remote_item *item)
{
  for (uint32_t i = 0; i < item->stream.num_chunks; i++) rv_stream_chunk_unpin(item->stream.chunks[i]);
}

/* Items from the writer's thread, each with its pins on `written` still held. */
static void hand_over(rv_writer *writer, rv_link *items)
{
  rv_mutex_lock(&writer->mutex);
  bool known = writer->tables_known;
  if (!known) {
    RV_LIST_EACH(link, items) pin_encoded(item_of(link));
    rv_list_splice(&writer->unchecked, items);
  }
  rv_mutex_unlock(&writer->mutex);
  if (known) rv_insert_stream_add(writer->stream, items);
}

void rv_writer_dispatch(rv_writer *writer)
{
  while (!rv_list_empty(&writer->waiting)) {
    remote_item *item = item_of(writer->waiting.next);
    if (!is_ready(item)) break;
    rv_list_remove(&item->stream.link);
    writer->num_waiting--;
    /* The item may be gone once it is handed over: what it pins must be known by then. */
    uint32_t n = item->flight.num_chunks;
    rv_written *few[32], **chunks = n <= 32 ? few : malloc(n * sizeof(rv_written *));
    rv_error err;
    rv_code code = chunks == NULL ? rv_fail_memory(&err, n * sizeof(rv_written *)) : encode(writer, item, &err);
    if (code != RV_OK) {
      for (uint32_t i = 0; i < n; i++) rv_written_unpin(item->chunks[i]);
      on_complete(&item->stream, code, err.message);
    } else {
      memcpy(chunks, item->chunks, n * sizeof(rv_written *));
      rv_link items;
      rv_list_init(&items);
      rv_list_push_back(&items, &item->stream.link);
      hand_over(writer, &items);
      for (uint32_t i = 0; i < n; i++) rv_written_unpin(chunks[i]);
    }
    if (chunks != few) free(chunks);
  }
}

void rv_writer_complete_for_items(rv_writer *writer, size_t keep)
{
  size_t n = writer->num_waiting > keep ? writer->num_waiting - keep : 0;
  for (rv_link *link = writer->waiting.next; n > 0; link = link->next, n--) {
    remote_item *item = item_of(link);
    for (uint32_t i = 0; i < item->flight.num_chunks; i++) {
      if (!item->chunks[i]->complete) rv_writer_complete_chunk(writer, item->chunks[i]);
    }
  }
  rv_writer_dispatch(writer);
}

/* ---- once the tables are known ---- */

static rv_code check(const remote_item *item, const rv_tables *tables, rv_error *err)
{
  if (item->num_columns == 0 || tables == NULL) return RV_OK;
  const rv_table_info *info;
  rv_code code = rv_tables_find(tables, item->flight.table->name, &info, err);
  if (code != RV_OK) return code;
  code = rv_writer_priority_fits(info, item->priority, err);
  if (code != RV_OK) return code;
  return rv_signature_fits(&info->signature, info->name, item->columns, item->num_columns, err);
}

void rv_writer_release_unchecked(rv_writer *writer, const rv_tables *tables)
{
  rv_link items;
  rv_list_init(&items);
  for (;;) {
    rv_mutex_lock(&writer->mutex);
    rv_list_splice(&items, &writer->unchecked);
    if (rv_list_empty(&items)) writer->tables_known = true; /* only now may later items go straight to the stream */
    rv_mutex_unlock(&writer->mutex);
    rv_link *link = rv_list_pop_front(&items);
    if (link == NULL) return;
    for (; link != NULL; link = rv_list_pop_front(&items)) {
      remote_item *item = item_of(link);
      rv_error err;
      rv_code code = check(item, tables, &err);
      if (code == RV_OK) {
        rv_insert_stream_add_one(writer->stream, &item->stream); /* the loop's thread is this one: it cannot complete meanwhile */
        unpin_encoded(item);
      } else {
        unpin_encoded(item);
        on_complete(&item->stream, code, err.message);
      }
    }
  }
}

/* ---- the end ---- */

static void drop(rv_link *items, bool waiting)
{
  rv_link *link;
  while ((link = rv_list_pop_front(items)) != NULL) {
    remote_item *item = item_of(link);
    if (waiting) {
      for (uint32_t i = 0; i < item->flight.num_chunks; i++) rv_written_unpin(item->chunks[i]);
    } else {
      unpin_encoded(item);
    }
    on_complete(&item->stream, RV_CANCELLED, "the writer was freed");
  }
}

void rv_writer_close_remote(rv_writer *writer)
{
  rv_writer_stop_fetching(writer);
  rv_mutex_lock(&writer->mutex);
  writer->closing = true;
  rv_mutex_unlock(&writer->mutex);
  rv_insert_stream_free(writer->stream);
  drop(&writer->unchecked, false);
  drop(&writer->waiting, true);
}
