/* What a remote writer's items wait for, in words. */
#include <stdio.h>
#include <string.h>

#include "client/explain.h"
#include "client/writer.h"

#define SILENCE_NS INT64_C(10000000000)

static bool is_connected(const rv_insert_stream_status *stream)
{
  return strncmp(stream->state, "connected", strlen("connected")) == 0;
}

/* Whoever only appends waits for nothing, and so nobody would tell him why nothing arrives. Items that end are noticed by their number, which
 * costs less than to look at the clock each time. */
void rv_writer_notice_silence(rv_writer *writer)
{
  rv_silence *silence = &writer->silence;
  size_t flights = atomic_load_explicit(&writer->num_flights, memory_order_relaxed);
  bool heard = flights <= silence->num_flights;
  silence->num_flights = flights;
  if (heard) *silence = (rv_silence){.num_flights = flights};
  if (heard || silence->told) return;
  int64_t now = rv_monotonic_ns(&writer->client->env);
  if (!silence->began) silence->since_ns = now;
  silence->began = true;
  if (now - silence->since_ns < SILENCE_NS) return;
  rv_insert_stream_status stream;
  rv_insert_stream_get_status(writer->stream, &stream);
  if (is_connected(&stream)) return; /* its table lets nothing in, say, which is what tables are for */
  silence->told = true;
  char what[RV_ERROR_MESSAGE_MAX];
  rv_writer_describe_remote(writer, what, sizeof what);
  rv_log(&writer->client->env, RV_LOG_WARNING, "a writer has had no item confirmed for %.0f s and is not connected: %s",
         (double)(now - silence->since_ns) * 1e-9, what);
}

size_t rv_writer_explain_unconnected(rv_writer *writer, char *out, size_t capacity)
{
  out[0] = '\0';
  if (writer->stream == NULL) return 0;
  rv_insert_stream_status stream;
  rv_insert_stream_get_status(writer->stream, &stream);
  if (!is_connected(&stream)) snprintf(out, capacity, "; the writer is %.300s", stream.state);
  return strlen(out);
}

void rv_writer_describe_remote(rv_writer *writer, char *out, size_t capacity)
{
  char table[128] = "", limiter[400] = "";
  rv_mutex_lock(&writer->mutex);
  size_t count = atomic_load_explicit(&writer->num_flights, memory_order_relaxed);
  bool known = writer->tables_known;
  if (!rv_list_empty(&writer->flights)) {
    const rv_flight *oldest = RV_CONTAINER(writer->flights.next, rv_flight, link);
    snprintf(table, sizeof table, "%.127s", oldest->table->name);
  }
  rv_mutex_unlock(&writer->mutex);
  rv_insert_stream_status stream;
  rv_insert_stream_get_status(writer->stream, &stream);
  if (!known) {
    char items[40] = "waits";
    if (count > 0) snprintf(items, sizeof items, count == 1 ? "%zu item waits" : "%zu items wait", count);
    snprintf(out, capacity, "%s until the server has told what its tables expect; %s", items, stream.state);
    return;
  }
  if (writer->ask_server && table[0] != '\0' && is_connected(&stream))
    rv_explain_table(writer->client, table, true, limiter, sizeof limiter);
  snprintf(out, capacity, "%s%s%zu %s not confirmed by the server (%.360s)", limiter, limiter[0] != '\0' ? "; " : "", count,
           count == 1 ? "item is" : "items are", stream.state);
}
