/* What a remote writer's items wait for, in words. */
#include <stdio.h>
#include <string.h>

#include "client/writer.h"

/* Asked when a caller has run out of time already: so long, no longer. */
#define ASK_SERVER_MS 80

static bool lets_insert(const rv_table_info *info)
{
  const rv_rate_limiter_config *limiter = &info->rate_limiter;
  return info->current_size + 1 <= limiter->min_size_to_sample ||
         (double)(info->inserts + 1) * limiter->samples_per_insert - (double)info->samples <= limiter->max_diff;
}

static void explain_table(const rv_table_info *info, char *out, size_t capacity)
{
  if (lets_insert(info)) {
    snprintf(out, capacity, "; table \"%s\" would let an insert through", info->name);
    return;
  }
  const rv_rate_limiter_config *limiter = &info->rate_limiter;
  snprintf(out, capacity,
           "; table \"%s\" waits for samples: %lld inserts and %lld samples so far, with samples_per_insert %g and max_diff %g",
           info->name, (long long)info->inserts, (long long)info->samples, limiter->samples_per_insert, limiter->max_diff);
}

static void ask_server(rv_writer *writer, const char *table, char *out, size_t capacity)
{
  rv_wait wait = {.timeout_ms = ASK_SERVER_MS};
  rv_server_info *info;
  if (rv_client_server_info(writer->client, &wait, &info, NULL) != RV_OK) return;
  for (size_t i = 0; i < info->num_tables; i++) {
    if (strcmp(info->tables[i].name, table) == 0) explain_table(&info->tables[i], out, capacity);
  }
  rv_server_info_free(info);
}

void rv_writer_describe_remote(rv_writer *writer, char *out, size_t capacity)
{
  char table[128] = "", limiter[256] = "";
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
    ask_server(writer, table, limiter, sizeof limiter);
  snprintf(out, capacity, "%zu %s not confirmed by the server (%.200s)%s", count, count == 1 ? "item is" : "items are",
           stream.state, limiter);
}
