/* The verbs that change a table: mutate, update_priorities, reset, set_rate_limiter, set_bounds, set_memory_limit; and checkpoint. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/await.h"
#include "client/paths.h"
#include "wire/unary.h"

/* A call whose answer is empty or not needed. */
static rv_code tell(rv_client *client, const char *path, rv_writer_buf *request, rv_unary_mode mode, const rv_wait *wait,
                    rv_error *err)
{
  rv_patience patience;
  rv_client_begin_patience(client, &patience, wait, NULL, NULL);
  rv_buf *owner;
  rv_span response;
  rv_code code = rv_client_unary(client, path, request, mode, &patience, &owner, &response, err);
  rv_client_note_change(client);
  if (code == RV_OK) rv_buf_unref(owner);
  return code;
}

/* ---- mutate ---- */

static rv_code remote_mutate(rv_client *client, const char *table, const rv_key_priority *updates, size_t num_updates,
                             const uint64_t *deletes, size_t num_deletes, uint64_t *unknown, size_t *num_unknown,
                             const rv_wait *wait, rv_error *err)
{
  rv_patience patience;
  rv_client_begin_patience(client, &patience, wait, NULL, NULL);
  rv_writer_buf request;
  rv_writer_buf_init(&request);
  rv_mutate_request_serialize(&request, table, updates, num_updates, deletes, num_deletes);
  /* A deletion that is repeated would call its own keys unknown. */
  rv_unary_mode mode = num_deletes == 0 ? RV_UNARY_REPEAT : RV_UNARY_ONCE;
  rv_buf *owner;
  rv_span response;
  rv_code code = rv_client_unary(client, RV_PATH_MUTATE, &request, mode, &patience, &owner, &response, err);
  rv_client_note_change(client);
  if (code != RV_OK) return code;
  code = rv_mutate_response_parse(response, unknown, num_updates + num_deletes, num_unknown, err);
  rv_buf_unref(owner);
  return code;
}

rv_code rv_client_mutate(rv_client *client, const char *table, const rv_key_priority *updates, size_t num_updates,
                         const uint64_t *deletes, size_t num_deletes, uint64_t *unknown, size_t *num_unknown, const rv_wait *wait,
                         rv_error *err)
{
  size_t ignored;
  if (num_unknown == NULL) num_unknown = &ignored;
  *num_unknown = 0;
  rv_code code = rv_client_check_table(client, table, err);
  if (code != RV_OK) return code;
  if (client->store == NULL)
    return remote_mutate(client, table, updates, num_updates, deletes, num_deletes, unknown, num_unknown, wait, err);
  rv_table *local;
  code = rv_client_find_table(client, table, &local, err);
  if (code != RV_OK) return code;
  return rv_table_mutate(local, updates, num_updates, deletes, num_deletes, unknown, num_unknown, err);
}

static rv_code remote_update(rv_client *client, const char *table, const uint64_t *keys, const double *priorities, size_t n,
                             uint64_t *unknown, size_t *num_unknown, const rv_wait *wait, rv_error *err)
{
  if (n > SIZE_MAX / sizeof(rv_key_priority)) return rv_fail_memory(err, SIZE_MAX);
  rv_key_priority *updates = malloc(n * sizeof *updates);
  if (updates == NULL && n > 0) return rv_fail_memory(err, n * sizeof *updates);
  for (size_t i = 0; i < n; i++) updates[i] = (rv_key_priority){.key = keys[i], .priority = priorities[i]};
  rv_code code = remote_mutate(client, table, updates, n, NULL, 0, unknown, num_unknown, wait, err);
  free(updates);
  return code;
}

rv_code rv_client_update_priorities(rv_client *client, const char *table, const uint64_t *keys, const double *priorities,
                                    size_t n, uint64_t *unknown, size_t *num_unknown, const rv_wait *wait, rv_error *err)
{
  size_t ignored;
  if (num_unknown == NULL) num_unknown = &ignored;
  *num_unknown = 0;
  rv_code code = rv_client_check_table(client, table, err);
  if (code != RV_OK) return code;
  if (client->store == NULL) return remote_update(client, table, keys, priorities, n, unknown, num_unknown, wait, err);
  rv_table *local;
  code = rv_client_find_table(client, table, &local, err);
  return code == RV_OK ? rv_table_update_priorities(local, keys, priorities, n, unknown, num_unknown, err) : code;
}

/* ---- reset, set_rate_limiter, checkpoint ---- */

rv_code rv_client_reset(rv_client *client, const char *table, const rv_wait *wait, rv_error *err)
{
  rv_code code = rv_client_check_table(client, table, err);
  if (code != RV_OK) return code;
  if (client->store == NULL) {
    rv_writer_buf request;
    rv_writer_buf_init(&request);
    rv_reset_request_serialize(&request, table);
    return tell(client, RV_PATH_RESET, &request, RV_UNARY_ONCE, wait, err);
  }
  rv_table *local;
  code = rv_client_find_table(client, table, &local, err);
  return code == RV_OK ? rv_table_reset(local, err) : code;
}

rv_code rv_client_set_rate_limiter(rv_client *client, const char *table, const rv_rate_limiter_config *limiter,
                                   const rv_wait *wait, rv_error *err)
{
  rv_code code = rv_client_check_table(client, table, err);
  if (code == RV_OK && limiter == NULL) code = rv_fail(err, RV_INVALID_ARGUMENT, "no rate limiter was given");
  if (code == RV_OK) code = rv_rate_limiter_check(limiter, err);
  if (code != RV_OK) return code;
  if (client->store == NULL) {
    rv_writer_buf request;
    rv_writer_buf_init(&request);
    rv_set_rate_limiter_serialize(&request, table, limiter);
    code = tell(client, RV_PATH_SET_RATE_LIMITER, &request, RV_UNARY_REPEAT, wait, err);
    rv_client_forget_tables(client);
    return code;
  }
  rv_table *local;
  code = rv_client_find_table(client, table, &local, err);
  return code == RV_OK ? rv_table_set_rate_limiter(local, limiter, err) : code;
}

static void describe_bounds(void *context, char *out, size_t capacity)
{
  snprintf(out, capacity, "takes the items that are too many out of table \"%s\"", (const char *)context);
}

rv_code rv_client_set_bounds(rv_client *client, const char *table, const rv_table_bounds *bounds, const rv_wait *wait,
                             rv_error *err)
{
  rv_code code = rv_client_check_table(client, table, err);
  if (code == RV_OK && bounds->size < sizeof *bounds)
    code = rv_fail(err, RV_INVALID_ARGUMENT, "the bounds' size is %zu; begin with rv_table_bounds_unchanged", bounds->size);
  if (code != RV_OK) return code;
  rv_bounds_change change = {.bounds = *bounds};
  if (client->store == NULL) {
    rv_writer_buf request;
    rv_writer_buf_init(&request);
    rv_set_bounds_serialize(&request, table, &change.bounds);
    code = tell(client, RV_PATH_SET_BOUNDS, &request, RV_UNARY_REPEAT, wait, err);
    rv_client_forget_tables(client);
    return code;
  }
  rv_table *local;
  code = rv_client_find_table(client, table, &local, err);
  rv_patience patience;
  rv_client_begin_patience(client, &patience, wait, describe_bounds, (void *)(uintptr_t)table);
  while (code == RV_OK && !change.done) {
    code = rv_table_change_bounds(local, &change, err);
    if (code == RV_OK && !change.done) code = rv_patience_check(&patience, err);
  }
  return code;
}

rv_code rv_client_set_memory_limit(rv_client *client, size_t bytes, const rv_wait *wait, rv_error *err)
{
  rv_code code = rv_client_check(client, err);
  if (code != RV_OK) return code;
  if (client->store == NULL) {
    rv_writer_buf request;
    rv_writer_buf_init(&request);
    rv_set_memory_limit_serialize(&request, bytes);
    return tell(client, RV_PATH_SET_MEMORY_LIMIT, &request, RV_UNARY_REPEAT, wait, err);
  }
  rv_memory_set_limit(rv_store_memory(client->store), bytes);
  return RV_OK;
}

static rv_code copy_path(rv_span path, char **out, rv_error *err)
{
  char *copy = malloc(path.size + 1);
  if (copy == NULL) return rv_fail_memory(err, path.size + 1);
  memcpy(copy, path.data, path.size);
  copy[path.size] = '\0';
  *out = copy;
  return RV_OK;
}

rv_code rv_client_checkpoint(rv_client *client, char **path, const rv_wait *wait, rv_error *err)
{
  rv_code code = rv_client_check(client, err);
  if (code != RV_OK) return code;
  if (client->store != NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT, "a store in process has no checkpointer; ask the server that serves it");
  rv_patience patience;
  rv_client_begin_patience(client, &patience, wait, NULL, NULL);
  rv_writer_buf request;
  rv_writer_buf_init(&request);
  rv_buf *owner;
  rv_span response, text;
  code = rv_client_unary(client, RV_PATH_CHECKPOINT, &request, RV_UNARY_FAIL_FAST, &patience, &owner, &response, err);
  if (code != RV_OK) return code;
  code = rv_checkpoint_response_parse(response, &text, err);
  if (code == RV_OK) code = copy_path(text, path, err);
  rv_buf_unref(owner);
  return code;
}
