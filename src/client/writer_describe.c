/* What a remote writer's items wait for, in words. */
#include <stdio.h>
#include <string.h>

#include "client/explain.h"
#include "client/writer.h"

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
  if (writer->ask_server && table[0] != '\0' && strncmp(stream.state, "connected", strlen("connected")) == 0)
    rv_explain_table(writer->client, table, true, limiter, sizeof limiter);
  snprintf(out, capacity, "%s%s%zu %s not confirmed by the server (%.200s)", limiter, limiter[0] != '\0' ? "; " : "", count,
           count == 1 ? "item is" : "items are", stream.state);
}
