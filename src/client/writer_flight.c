/* Items between create_item and their end: counts, bounds, failures. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "client/writer.h"

static size_t num_flights(const rv_writer *writer)
{
  return atomic_load_explicit(&writer->num_flights, memory_order_relaxed);
}

static size_t bytes_in_flight(const rv_writer *writer)
{
  return atomic_load_explicit(&writer->bytes_in_flight, memory_order_relaxed);
}

enum { COUNT_EVERY = 256 << 10 };

/* The loop's count is many writers', so it is not told of each item. */
static void count_unconfirmed(rv_writer *writer, size_t bytes)
{
  size_t counted = writer->counted_bytes, differs = bytes > counted ? bytes - counted : counted - bytes;
  if (differs == 0 || (differs < COUNT_EVERY && bytes > 0) || writer->client->store != NULL) return;
  rv_loop_count_unconfirmed(writer->client->loop, bytes - counted);
  writer->counted_bytes = bytes;
}

/* Under the mutex, so that plain stores are enough; whoever reads without it that flights have ended comes after their ends. */
static void set_in_flight(rv_writer *writer, size_t flights, size_t bytes)
{
  count_unconfirmed(writer, bytes);
  atomic_store_explicit(&writer->bytes_in_flight, bytes, memory_order_relaxed);
  atomic_store_explicit(&writer->num_flights, flights, memory_order_release);
}

static rv_code fail_bound(rv_writer *writer, size_t bytes, rv_error *err)
{
  char unconnected[384];
  bool connected = rv_writer_explain_unconnected(writer, unconnected, sizeof unconnected) == 0;
  return rv_fail(err, RV_RESOURCE_EXHAUSTED,
                 "%zu items with %zu bytes are in flight and the bounds are %u items and %zu bytes (%zu more were to come)%s",
                 num_flights(writer), bytes_in_flight(writer), (unsigned)writer->config.max_in_flight_items,
                 writer->config.max_in_flight_bytes, bytes, connected ? "; flush, or slow down" : unconnected);
}

/* With nothing in flight anything is let through, however large, or it could never leave. */
static bool is_over(const rv_writer *writer, size_t bytes)
{
  if (num_flights(writer) == 0) return false;
  size_t in_flight = bytes_in_flight(writer), bound = writer->config.max_in_flight_bytes;
  return in_flight > bound || bytes > bound - in_flight;
}

rv_code rv_writer_room(rv_writer *writer, size_t bytes, rv_error *err)
{
  return is_over(writer, bytes) ? fail_bound(writer, bytes, err) : RV_OK;
}

rv_code rv_writer_admits(rv_writer *writer, size_t items, rv_error *err)
{
  size_t flights = num_flights(writer), bound = writer->config.max_in_flight_items;
  bool too_many = flights > 0 && (items > bound || flights > bound - items);
  return too_many || is_over(writer, 0) ? fail_bound(writer, 0, err) : RV_OK;
}

/* Under the mutex, which makes a plain load and store of them. */
static unsigned unsettled(rv_written *chunk)
{
  return atomic_load_explicit(&chunk->in_flight, memory_order_relaxed);
}

/* Whoever reads 0 without the mutex comes after what was read of the chunk before. */
static void set_unsettled(rv_written *chunk, unsigned items)
{
  atomic_store_explicit(&chunk->in_flight, items, memory_order_release);
}

rv_code rv_flight_begin(rv_writer *writer, rv_flight *flight, rv_error *err)
{
  const rv_parts *parts = &writer->parts;
  size_t bytes = flight->own_bytes;
  rv_mutex_lock(&writer->mutex);
  for (uint32_t i = 0; i < parts->num_chunks; i++) bytes += unsettled(parts->chunks[i]) == 0 ? parts->chunks[i]->bytes : 0;
  bool too_many = num_flights(writer) >= writer->config.max_in_flight_items;
  if (!writer->admitted && (too_many || is_over(writer, bytes))) {
    rv_mutex_unlock(&writer->mutex);
    return fail_bound(writer, bytes, err);
  }
  for (uint32_t i = 0; i < parts->num_chunks; i++) set_unsettled(parts->chunks[i], unsettled(parts->chunks[i]) + 1);
  set_in_flight(writer, num_flights(writer) + 1, bytes_in_flight(writer) + bytes);
  writer->created++;
  rv_list_push_back(&writer->flights, &flight->link);
  rv_mutex_unlock(&writer->mutex);
  flight->writer = writer;
  flight->num_chunks = parts->num_chunks;
  for (uint32_t i = 0; i < parts->num_chunks; i++) flight->chunks[i] = rv_written_ref(parts->chunks[i]);
  return RV_OK;
}

static void note_failure(rv_writer *writer, const rv_flight *flight, rv_code code, const char *message)
{
  writer->failed++;
  bool is_first = atomic_fetch_add_explicit(&writer->failures, 1, memory_order_relaxed) == 0;
  bool is_first_refused = code != RV_CANCELLED && writer->num_refused++ == 0;
  if (!is_first && !is_first_refused) return;
  rv_error failure;
  rv_fail(&failure, code, "an item for table \"%.100s\" was not inserted: %s", flight->table->name, message);
  if (is_first_refused) writer->refused = failure;
  if (!is_first) return;
  writer->failure = failure;
  atomic_store_explicit(&writer->failure_untold, true, memory_order_relaxed);
}

size_t rv_flight_take_off(rv_flight *flight)
{
  rv_writer *writer = flight->writer;
  size_t bytes = flight->own_bytes;
  for (uint32_t i = 0; i < flight->num_chunks; i++) {
    rv_written *chunk = flight->chunks[i];
    unsigned others = unsettled(chunk) - 1;
    if (others == 0) bytes += chunk->bytes;
    set_unsettled(chunk, others);
  }
  size_t left = num_flights(writer) - 1;
  if (!writer->closing) rv_list_remove(&flight->link);
  set_in_flight(writer, left, bytes_in_flight(writer) - bytes);
  return left;
}

bool rv_writer_is_to_wake(rv_writer *writer, size_t left)
{
  if (writer->closing && writer->client->store == NULL) return false; /* its end does, once */
  bool failure = writer->wakes_at_failure && atomic_load_explicit(&writer->failure_untold, memory_order_relaxed);
  if (!writer->closing && (writer->wake_at < 0 || ((int64_t)left > writer->wake_at && !failure))) return false;
  writer->wake_at = -1; /* once */
  return true;
}

bool rv_flight_end(rv_flight *flight, rv_code code, const char *message, bool *done)
{
  rv_writer *writer = flight->writer;
  rv_mutex_lock(&writer->mutex);
  bool closing = writer->closing;
  if (code == RV_OK) {
    writer->confirmed++;
  } else if (!closing) {
    note_failure(writer, flight, code, message);
  }
  if (rv_writer_is_to_wake(writer, rv_flight_take_off(flight))) rv_gate_open(&writer->gate);
  if (done != NULL) *done = true;
  rv_mutex_unlock(&writer->mutex);
  return !closing || done == NULL;
}

void rv_flight_undo(rv_flight *flight)
{
  rv_mutex_lock(&flight->writer->mutex);
  rv_flight_take_off(flight);
  flight->writer->created--;
  rv_mutex_unlock(&flight->writer->mutex);
}

void rv_flight_fini(rv_flight *flight)
{
  for (uint32_t i = 0; i < flight->num_chunks; i++) rv_written_unref(flight->chunks[i]);
  flight->num_chunks = 0;
}

/* Under the mutex: this failure, and how many others, so that nothing is left to tell. */
static rv_code tell(rv_writer *writer, const rv_error *failure, size_t others, rv_error *err)
{
  writer->num_refused = 0;
  rv_code code = rv_error_copy(err, failure);
  if (others == 0 || err == NULL) return code;
  size_t length = strlen(err->message);
  snprintf(err->message + length, sizeof err->message - length, " (and %zu more)", others);
  return code;
}

rv_code rv_writer_failure(rv_writer *writer, bool again, rv_error *err)
{
  rv_code code = RV_OK;
  if (atomic_load_explicit(&writer->failures, memory_order_relaxed) == 0) return RV_OK;
  rv_mutex_lock(&writer->mutex);
  size_t failures = atomic_load_explicit(&writer->failures, memory_order_relaxed);
  bool untold = atomic_exchange_explicit(&writer->failure_untold, false, memory_order_relaxed);
  if (failures > 0 && (again || untold)) code = tell(writer, &writer->failure, failures - 1, err);
  rv_mutex_unlock(&writer->mutex);
  return code;
}

rv_code rv_writer_take_failure(rv_writer *writer, rv_error *err)
{
  rv_code code = RV_OK;
  if (!rv_client_is_here(writer->client)) return RV_OK; /* a forked child, as below */
  rv_mutex_lock(&writer->mutex);
  if (writer->num_refused > 0) {
    code = tell(writer, &writer->refused, writer->num_refused - 1, err);
    atomic_store_explicit(&writer->failure_untold, false, memory_order_relaxed);
  }
  rv_mutex_unlock(&writer->mutex);
  return code;
}

size_t rv_writer_discard_failed(rv_writer *writer)
{
  if (!rv_client_is_here(writer->client)) return 0; /* a forked child: the thread that had the mutex is not there */
  rv_mutex_lock(&writer->mutex);
  size_t failures = atomic_exchange_explicit(&writer->failures, 0, memory_order_relaxed);
  atomic_store_explicit(&writer->failure_untold, false, memory_order_relaxed);
  writer->num_refused = 0;
  rv_mutex_unlock(&writer->mutex);
  return failures;
}
