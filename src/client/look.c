/* The verbs that look in: server_info, items, get. */
#include <stdlib.h>
#include <string.h>

#include "client/await.h"
#include "client/paths.h"
#include "client/receive.h"
#include "client/sample.h"
#include "wire/unary.h"

/* ---- server_info ---- */

static rv_code local_info(rv_store *store, rv_server_info **out, rv_error *err)
{
  size_t num_tables = rv_store_num_tables(store);
  rv_server_info *info = calloc(1, sizeof *info);
  if (info == NULL) return rv_fail_memory(err, sizeof *info);
  info->tables = calloc(num_tables, sizeof *info->tables);
  if (info->tables == NULL) {
    free(info);
    return rv_fail_memory(err, num_tables * sizeof *info->tables);
  }
  rv_store_state_id(store, info->state_id);
  for (size_t i = 0; i < num_tables; i++) {
    rv_code code = rv_table_get_info(rv_store_table(store, i), &info->tables[i], err);
    if (code != RV_OK) {
      rv_server_info_free(info);
      return code;
    }
    info->num_tables++;
  }
  rv_store_memory_info(store, &info->memory);
  *out = info;
  return RV_OK;
}

rv_code rv_client_server_info(rv_client *client, const rv_wait *wait, rv_server_info **out, rv_error *err)
{
  rv_code code = rv_client_check(client, err);
  if (code != RV_OK) return code;
  if (client->store != NULL) return local_info(client->store, out, err);
  rv_patience patience;
  rv_client_begin_patience(client, &patience, wait, NULL, NULL);
  rv_writer_buf request;
  rv_writer_buf_init(&request);
  rv_tables_asked asked = rv_client_before_asking(client);
  rv_buf *owner;
  rv_span response;
  code = rv_client_unary(client, RV_PATH_SERVER_INFO, &request, RV_UNARY_REPEAT, &patience, &owner, &response, err);
  if (code != RV_OK) return code;
  code = rv_client_learn_tables(client, asked, response, NULL, err);
  if (code == RV_OK) code = rv_server_info_parse(response, out, err);
  rv_buf_unref(owner);
  return code;
}

/* ---- items ---- */

static rv_code remote_items(rv_client *client, const char *table, uint64_t *cursor, rv_item_info *out, size_t capacity,
                            size_t *count, const rv_wait *wait, rv_error *err)
{
  rv_patience patience;
  rv_client_begin_patience(client, &patience, wait, NULL, NULL);
  rv_items_request items = {
      .table = {.data = (const uint8_t *)table, .size = strlen(table)}, .cursor = *cursor, .capacity = capacity};
  rv_writer_buf request;
  rv_writer_buf_init(&request);
  rv_items_request_serialize(&request, &items);
  rv_buf *owner;
  rv_span response;
  rv_code code = rv_client_unary(client, RV_PATH_ITEMS, &request, RV_UNARY_REPEAT, &patience, &owner, &response, err);
  if (code != RV_OK) return code;
  code = rv_items_response_parse(response, cursor, out, capacity, count, err);
  rv_buf_unref(owner);
  return code;
}

rv_code rv_client_items(rv_client *client, const char *table, uint64_t *cursor, rv_item_info *out, size_t capacity, size_t *count,
                        const rv_wait *wait, rv_error *err)
{
  *count = 0;
  rv_code code = rv_client_check_table(client, table, err);
  if (code == RV_OK && capacity == 0) code = rv_fail(err, RV_INVALID_ARGUMENT, "a page of items needs room for at least one");
  if (code != RV_OK) return code;
  if (client->store == NULL) return remote_items(client, table, cursor, out, capacity, count, wait, err);
  rv_table *local;
  code = rv_client_find_table(client, table, &local, err);
  return code == RV_OK ? rv_table_items(local, cursor, out, capacity, count, err) : code;
}

/* ---- get ---- */

static rv_code remote_get(rv_client *client, const char *table, uint64_t key, const rv_wait *wait, rv_draw *out, rv_error *err)
{
  rv_patience patience;
  rv_client_begin_patience(client, &patience, wait, NULL, NULL);
  rv_writer_buf request;
  rv_writer_buf_init(&request);
  rv_get_request_serialize(&request, table, key);
  rv_buf *owner;
  rv_span response;
  rv_code code = rv_client_unary(client, RV_PATH_GET, &request, RV_UNARY_REPEAT, &patience, &owner, &response, err);
  if (code != RV_OK) return code;
  code = rv_receive_one(client, owner, response, out, err);
  rv_buf_unref(owner);
  return code;
}

rv_code rv_client_get(rv_client *client, const char *table, uint64_t key, const rv_wait *wait, rv_sample **out, rv_error *err)
{
  rv_code code = rv_client_check_table(client, table, err);
  if (code != RV_OK) return code;
  rv_draw draw;
  if (client->store == NULL) {
    code = remote_get(client, table, key, wait, &draw, err);
  } else {
    rv_table *local;
    code = rv_client_find_table(client, table, &local, err);
    if (code == RV_OK) code = rv_table_get(local, key, &draw, err);
  }
  return code == RV_OK ? rv_sample_new(&draw, out, err) : code;
}
