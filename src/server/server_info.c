#include <stdlib.h>

#include "base/error.h"
#include "server/server.h"
#include "wire/unary.h"

rv_code rv_answer_server_info(const rv_request *request, rv_pieces *response, rv_error *err)
{
  rv_server *server = request->server; /* the message has no fields */
  rv_server_info info = {.num_tables = 0};
  size_t num_tables = rv_store_num_tables(server->store);
  info.tables = calloc(num_tables, sizeof *info.tables);
  if (info.tables == NULL) return rv_fail_memory(err, num_tables * sizeof *info.tables);
  rv_store_state_id(server->store, info.state_id);
  rv_code code = RV_OK;
  while (code == RV_OK && info.num_tables < num_tables) {
    rv_table_info *table = &info.tables[info.num_tables];
    table->size = sizeof *table;
    code = rv_table_get_info(rv_store_table(server->store, info.num_tables), table, err);
    if (code == RV_OK) info.num_tables++;
  }
  rv_store_memory_info(server->store, &info.memory);
  rv_mutex_lock(&server->lock);
  for (size_t i = 0; i < server->num_loops; i++)
    info.memory.connection_bytes += (int64_t)rv_loop_waiting_bytes(server->loops[i].loop);
  rv_mutex_unlock(&server->lock);
  if (code == RV_OK) {
    rv_writer_buf body;
    rv_writer_buf_init(&body);
    rv_server_info_serialize(&body, &info);
    code = rv_server_put(response, &body, err);
  }
  for (size_t i = 0; i < info.num_tables; i++) rv_table_info_fini(&info.tables[i]);
  free(info.tables);
  return code;
}
