/* Items into tables of this process: nothing is encoded, nothing is copied, and an item that the limiter holds back waits in the
 * table. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "client/writer.h"

typedef struct local_item {
  rv_insert insert;
  rv_flight flight;
  bool done; /* under the writer's mutex */
  rv_written *chunks[];
} local_item;

static void free_item(local_item *item)
{
  if (item->insert.trajectory != NULL) rv_trajectory_unref(item->insert.trajectory);
  rv_flight_fini(&item->flight);
  free(item);
}

/* Whoever lets the table go on calls this, on its own thread. */
static void on_complete(rv_waiter *waiter)
{
  local_item *item = waiter->context;
  if (rv_flight_end(&item->flight, waiter->code, waiter->error.message, &item->done)) free_item(item);
}

static rv_code make_trajectory(rv_writer *writer, rv_trajectory **out, rv_error *err)
{
  const rv_parts *parts = &writer->parts;
  rv_trajectory_desc desc = {
      .slices = parts->slices, .num_slices = parts->column_slices, .squeeze = parts->squeeze, .num_columns = parts->num_columns};
  return rv_trajectory_new(writer->client->layouts, &desc, out, err);
}

rv_code rv_writer_insert_local(rv_writer *writer, rv_writer_table *table, double priority, uint64_t *key, rv_error *err)
{
  size_t size = sizeof(local_item) + writer->parts.num_chunks * sizeof(rv_written *);
  local_item *item = calloc(1, size);
  if (item == NULL) return rv_fail_memory(err, size);
  item->flight.chunks = item->chunks;
  item->flight.table = table;
  item->flight.own_bytes = size;
  rv_list_init(&item->flight.link);
  rv_code code = make_trajectory(writer, &item->insert.trajectory, err);
  if (code == RV_OK) code = rv_flight_begin(writer, &item->flight, err);
  if (code != RV_OK) {
    free_item(item);
    return code;
  }
  rv_insert *insert = &item->insert;
  insert->waiter = (rv_waiter){.complete = on_complete, .context = item, .deadline_ns = INT64_MAX, .peer = "in process"};
  insert->priority = priority;
  insert->naming = writer->naming;
  /* Keys of the table's own are found faster; but an item that has to wait has none yet. */
  insert->choose_key = key == NULL;
  if (key != NULL) insert->key = *key = rv_writer_local_item_key(writer);
  if (rv_table_insert(table->local, insert) == RV_SUBMIT_PENDING) return RV_OK; /* on_complete frees it, or has */
  code = insert->waiter.code;
  if (code == RV_OK) {
    rv_flight_end(&item->flight, RV_OK, "", NULL);
  } else {
    rv_flight_undo(&item->flight);
    rv_error_copy(err, &insert->waiter.error);
  }
  free_item(item);
  return code;
}

static local_item *item_of(rv_link *link)
{
  return RV_CONTAINER(RV_CONTAINER(link, rv_flight, link), local_item, flight);
}

static bool is_done(rv_writer *writer, const local_item *item)
{
  rv_mutex_lock(&writer->mutex);
  bool done = item->done;
  rv_mutex_unlock(&writer->mutex);
  return done;
}

void rv_writer_close_local(rv_writer *writer)
{
  rv_mutex_lock(&writer->mutex);
  writer->closing = true; /* from here on nobody else unlinks or frees */
  rv_mutex_unlock(&writer->mutex);
  while (!rv_list_empty(&writer->flights)) { /* the newest first, so that what went in is what came first */
    rv_link *link = writer->flights.prev;
    rv_list_remove(link);
    local_item *item = item_of(link);
    if (!rv_waiter_cancel(&item->insert.waiter)) {
      while (!is_done(writer, item)) rv_gate_wait_forever(&writer->gate); /* it is being completed just now */
    }
    free_item(item);
  }
}

void rv_writer_describe_local(rv_writer *writer, char *out, size_t capacity)
{
  char why[256] = "";
  rv_mutex_lock(&writer->mutex);
  size_t count = atomic_load_explicit(&writer->num_flights, memory_order_relaxed);
  if (!rv_list_empty(&writer->flights)) rv_waiter_explain(&item_of(writer->flights.next)->insert.waiter, why, sizeof why);
  rv_mutex_unlock(&writer->mutex);
  snprintf(out, capacity, "%zu %s in flight; the oldest: %s", count, count == 1 ? "item is" : "items are",
           why[0] != '\0' ? why : "it is being inserted");
}
