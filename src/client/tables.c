#include "client/tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/client.h"
#include "client/paths.h"
#include "client/unary_call.h"
#include "store/same_config.h"
#include "wire/unary.h"

#define RECENT_NS INT64_C(1000000000)
#define ASK_AGAIN_NS (RECENT_NS / 2)

struct rv_tables {
  atomic_uint refs;
  atomic_uint_least64_t losses; /* of connections, when it was asked for last */
  int64_t recent_until_ns;      /* the client's mutex */
  rv_server_info *info;
};

static rv_tables *ref(rv_tables *tables)
{
  atomic_fetch_add_explicit(&tables->refs, 1, memory_order_relaxed);
  return tables;
}

void rv_tables_unref(rv_tables *tables)
{
  if (tables == NULL || atomic_fetch_sub_explicit(&tables->refs, 1, memory_order_acq_rel) != 1) return;
  rv_server_info_free(tables->info);
  free(tables);
}

/* ---- what is known ---- */

uint64_t rv_client_losses(const rv_client *client)
{
  return atomic_load_explicit(&client->connected, memory_order_acquire) ? rv_channel_losses(client->channel) : 0;
}

bool rv_tables_are_present(const rv_tables *tables, const rv_client *client)
{
  return atomic_load_explicit(&tables->losses, memory_order_acquire) == rv_client_losses(client);
}

rv_tables *rv_client_known_tables(rv_client *client)
{
  rv_mutex_lock(&client->mutex);
  rv_tables *tables = client->tables != NULL ? ref(client->tables) : NULL;
  rv_mutex_unlock(&client->mutex);
  return tables;
}

rv_tables *rv_client_present_tables(rv_client *client)
{
  rv_tables *tables = rv_client_known_tables(client);
  if (tables == NULL || rv_tables_are_present(tables, client)) return tables;
  rv_tables_unref(tables);
  return NULL;
}

void rv_client_forget_tables(rv_client *client)
{
  rv_mutex_lock(&client->mutex);
  rv_tables *tables = client->tables;
  client->tables = NULL;
  client->tables_forgets++;
  client->tables_ask_at_ns = 0;
  rv_mutex_unlock(&client->mutex);
  rv_tables_unref(tables);
}

/* ---- what a server said ---- */

/* What is looked at here. A state that is the same has not always the same tables: one that the last checkpoint does not know is what its
 * server was told when it came again. */
static bool same_table(const rv_table_info *a, const rv_table_info *b)
{
  return rv_same_text(a->name, b->name) && rv_same_selector(&a->sampler, &b->sampler) &&
         rv_same_selector(&a->remover, &b->remover) && rv_same_signature(&a->signature, &b->signature) &&
         a->max_size == b->max_size && a->max_times_sampled == b->max_times_sampled &&
         rv_same_limiter(&a->rate_limiter, &b->rate_limiter);
}

static bool same_state(const rv_tables *a, const rv_tables *b)
{
  if (a == NULL || memcmp(a->info->state_id, b->info->state_id, sizeof a->info->state_id) != 0) return false;
  bool same = a->info->num_tables == b->info->num_tables;
  for (size_t i = 0; same && i < a->info->num_tables; i++) same = same_table(&a->info->tables[i], &b->info->tables[i]);
  return same;
}

rv_tables_asked rv_client_before_asking(rv_client *client)
{
  rv_tables_asked asked = {.losses = rv_client_losses(client), .at_ns = rv_monotonic_ns(&client->env)};
  rv_mutex_lock(&client->mutex);
  asked.forgets = client->tables_forgets;
  rv_mutex_unlock(&client->mutex);
  return asked;
}

rv_code rv_client_learn_tables(rv_client *client, rv_tables_asked asked, rv_span server_info, rv_tables **out, rv_error *err)
{
  rv_tables *tables = malloc(sizeof *tables);
  if (tables == NULL) return rv_fail_memory(err, sizeof *tables);
  atomic_init(&tables->refs, 1);
  atomic_init(&tables->losses, asked.losses);
  rv_code code = rv_server_info_parse(server_info, &tables->info, err);
  if (code != RV_OK) {
    free(tables);
    return code;
  }
  rv_mutex_lock(&client->mutex);
  rv_tables *old = client->tables;
  if (same_state(old, tables)) {
    old = tables;
    atomic_store_explicit(&client->tables->losses, asked.losses, memory_order_release);
  } else {
    client->tables = tables;
  }
  client->tables->recent_until_ns = asked.at_ns + (asked.forgets == client->tables_forgets ? RECENT_NS : 0);
  if (out != NULL) *out = ref(client->tables);
  rv_mutex_unlock(&client->mutex);
  rv_tables_unref(old);
  return RV_OK;
}

rv_code rv_client_tables(rv_client *client, rv_patience *patience, rv_tables **out, rv_error *err)
{
  rv_tables_asked asked = rv_client_before_asking(client);
  rv_writer_buf request;
  rv_writer_buf_init(&request);
  rv_buf *owner;
  rv_span response;
  rv_code code = rv_client_unary(client, RV_PATH_SERVER_INFO, &request, RV_UNARY_REPEAT, patience, &owner, &response, err);
  if (code != RV_OK) return code;
  code = rv_client_learn_tables(client, asked, response, out, err);
  rv_buf_unref(owner);
  return code;
}

/* ---- asking without waiting ---- */

typedef struct look {
  rv_unary_call call;
  rv_client *client; /* which is not freed before its calls have ended */
  rv_tables_asked asked;
  rv_task task;
} look;

static void on_answer(rv_unary_call *call)
{
  look *looks = RV_CONTAINER(call, look, call);
  rv_client *client = looks->client;
  if (call->code == RV_OK) {
    rv_client_learn_tables(client, looks->asked, call->response, NULL, NULL);
    rv_buf_unref(call->owner);
  }
  int64_t again_ns = call->again_ns; /* it has more to do than it can */
  free(looks);
  rv_mutex_lock(&client->mutex);
  client->looks_at_tables = false;
  if (again_ns > 0) client->tables_ask_at_ns = rv_monotonic_ns(&client->env) + again_ns;
  rv_mutex_unlock(&client->mutex);
}

static void start_look(rv_task *task)
{
  look *looks = RV_CONTAINER(task, look, task);
  looks->asked = rv_client_before_asking(looks->client);
  rv_unary_call_start(&looks->call);
}

static rv_task *new_look(rv_client *client)
{
  look *looks = calloc(1, sizeof *looks);
  if (looks == NULL) return NULL;
  looks->call =
      (rv_unary_call){.channel = client->channel, .path = RV_PATH_SERVER_INFO, .deadline_ns = INT64_MAX, .done = on_answer};
  rv_pieces_init(&looks->call.request);
  looks->client = client;
  looks->task.run = start_look;
  return &looks->task;
}

/* Under the mutex. Out of memory: it will be tried again. */
static rv_task *look_if_due(rv_client *client, int64_t recent_ns, int64_t now)
{
  if (recent_ns > RECENT_NS - ASK_AGAIN_NS || client->looks_at_tables || now < client->tables_ask_at_ns) return NULL;
  rv_task *task = new_look(client);
  client->looks_at_tables = task != NULL;
  client->tables_ask_at_ns = now + ASK_AGAIN_NS;
  return task;
}

rv_tables *rv_client_recent_tables(rv_client *client)
{
  int64_t now = rv_monotonic_ns(&client->env), recent_ns = 0;
  rv_mutex_lock(&client->mutex);
  rv_tables *tables = client->tables;
  if (tables != NULL && rv_tables_are_present(tables, client)) recent_ns = tables->recent_until_ns - now;
  tables = recent_ns > 0 ? ref(tables) : NULL;
  rv_task *due = look_if_due(client, recent_ns, now);
  rv_mutex_unlock(&client->mutex);
  if (due != NULL) rv_loop_post(client->loop, due);
  return tables;
}

/* ---- one table ---- */

static void list_names(const rv_server_info *info, char *out, size_t capacity)
{
  size_t used = 0;
  out[0] = '\0';
  for (size_t i = 0; i < info->num_tables && used < capacity; i++) {
    int n = snprintf(out + used, capacity - used, "%s\"%s\"", i == 0 ? "" : ", ", info->tables[i].name);
    used += n > 0 ? (size_t)n : 0;
  }
}

rv_code rv_tables_find(const rv_tables *tables, const char *table, const rv_table_info **out, rv_error *err)
{
  for (size_t i = 0; i < tables->info->num_tables; i++) {
    *out = &tables->info->tables[i];
    if (strcmp((*out)->name, table) == 0) return RV_OK;
  }
  *out = NULL;
  char names[320];
  list_names(tables->info, names, sizeof names);
  return rv_fail(err, RV_NOT_FOUND, "table \"%s\" was not found; the server has %s", table, names[0] != '\0' ? names : "none");
}
