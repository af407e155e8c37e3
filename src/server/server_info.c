#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "server/server.h"
#include "wire/unary.h"

/* Inserts that are in the table, and changes that were made, whose confirmations wait for the disk. */
static void add_unwritten(rv_journal *journal, const rv_table *table, rv_table_info *info)
{
  size_t room = RV_WAITING_SHOWN - info->num_waiting, inserts;
  size_t count = rv_journal_list_waiting(journal, table, info->waiting + info->num_waiting, room, &inserts);
  info->num_waiting += count < room ? count : room;
  info->num_waiting_inserts += (int64_t)inserts;
}

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
    rv_table *of = rv_store_table(server->store, info.num_tables);
    code = rv_table_get_info(of, table, err);
    if (code == RV_OK && server->journal != NULL) add_unwritten(server->journal, of, table);
    if (code == RV_OK) info.num_tables++;
  }
  rv_store_memory_info(server->store, &info.memory);
  if (server->journal != NULL) {
    rv_journal_stats stats = {.size = sizeof stats};
    rv_journal_get_stats(server->journal, &stats);
    info.journal_lag_ns = stats.lag_ns;
    memcpy(info.journal_fault, stats.fault, sizeof info.journal_fault);
  }
  rv_mutex_lock(&server->lock);
  for (size_t i = 0; i < server->num_loops; i++) {
    rv_loop *loop = server->loops[i].loop;
    info.memory.connection_bytes += (int64_t)(rv_loop_waiting_bytes(loop) + rv_loop_lent_bytes(loop));
  }
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
