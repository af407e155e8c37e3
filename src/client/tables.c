#include "client/tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/client.h"
#include "client/paths.h"
#include "wire/unary.h"

struct rv_tables {
  atomic_uint refs;
  rv_server_info *info;
};

rv_tables *rv_tables_ref(rv_tables *tables)
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

rv_tables *rv_client_known_tables(rv_client *client)
{
  rv_mutex_lock(&client->mutex);
  rv_tables *tables = client->tables != NULL ? rv_tables_ref(client->tables) : NULL;
  rv_mutex_unlock(&client->mutex);
  return tables;
}

void rv_client_forget_tables(rv_client *client)
{
  rv_mutex_lock(&client->mutex);
  rv_tables *tables = client->tables;
  client->tables = NULL;
  rv_mutex_unlock(&client->mutex);
  rv_tables_unref(tables);
}

/* What can change while a server runs, of what is looked at here. */
static bool same_settings(const rv_table_info *a, const rv_table_info *b)
{
  const rv_rate_limiter_config *x = &a->rate_limiter, *y = &b->rate_limiter;
  return a->max_size == b->max_size && a->max_times_sampled == b->max_times_sampled &&
         x->samples_per_insert == y->samples_per_insert && x->min_size_to_sample == y->min_size_to_sample &&
         x->min_diff == y->min_diff && x->max_diff == y->max_diff;
}

static bool same_state(const rv_tables *a, const rv_tables *b)
{
  if (a == NULL || memcmp(a->info->state_id, b->info->state_id, sizeof a->info->state_id) != 0) return false;
  bool same = a->info->num_tables == b->info->num_tables;
  for (size_t i = 0; same && i < a->info->num_tables; i++) same = same_settings(&a->info->tables[i], &b->info->tables[i]);
  return same;
}

rv_code rv_client_learn_tables(rv_client *client, rv_span server_info, rv_tables **out, rv_error *err)
{
  rv_tables *tables = malloc(sizeof *tables);
  if (tables == NULL) return rv_fail_memory(err, sizeof *tables);
  atomic_init(&tables->refs, 1);
  rv_code code = rv_server_info_parse(server_info, &tables->info, err);
  if (code != RV_OK) {
    free(tables);
    return code;
  }
  rv_mutex_lock(&client->mutex);
  rv_tables *old = client->tables;
  if (same_state(old, tables)) {
    old = tables;
  } else {
    client->tables = tables;
  }
  if (out != NULL) *out = rv_tables_ref(client->tables);
  rv_mutex_unlock(&client->mutex);
  rv_tables_unref(old);
  return RV_OK;
}

rv_code rv_client_tables(rv_client *client, bool refresh, rv_patience *patience, rv_tables **out, rv_error *err)
{
  *out = refresh ? NULL : rv_client_known_tables(client);
  if (*out != NULL) return RV_OK;
  rv_writer_buf request;
  rv_writer_buf_init(&request);
  rv_buf *owner;
  rv_span response;
  rv_code code = rv_client_unary(client, RV_PATH_SERVER_INFO, &request, RV_UNARY_REPEAT, patience, &owner, &response, err);
  if (code != RV_OK) return code;
  code = rv_client_learn_tables(client, response, out, err);
  rv_buf_unref(owner);
  return code;
}

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
  char names[320];
  list_names(tables->info, names, sizeof names);
  return rv_fail(err, RV_NOT_FOUND, "table \"%s\" was not found; the server has %s", table, names[0] != '\0' ? names : "none");
}
