#include <stdlib.h>

#include "base/error.h"
#include "server/server.h"
#include "wire/unary.h"

enum { PAGE_MAX = 10000, PAGE_DEFAULT = 1000 };

rv_code rv_answer_items(const rv_request *request, rv_pieces *response, rv_error *err)
{
  rv_items_request parsed;
  rv_table *table;
  rv_code code = rv_items_request_parse(request->body, &parsed, err);
  if (code == RV_OK) code = rv_request_find_table(request, parsed.table, RV_RIGHT_READ, &table, err);
  if (code != RV_OK) return code;
  size_t capacity = parsed.capacity == 0 ? PAGE_DEFAULT : parsed.capacity > PAGE_MAX ? PAGE_MAX : (size_t)parsed.capacity;
  rv_item_info *items = malloc(capacity * sizeof *items);
  if (items == NULL) return rv_fail_memory(err, capacity * sizeof *items);
  uint64_t cursor = parsed.cursor;
  size_t count = 0;
  code = rv_table_items(table, &cursor, items, capacity, &count, err);
  if (code == RV_OK) {
    rv_writer_buf body;
    rv_writer_buf_init(&body);
    rv_items_response_serialize(&body, cursor, items, count);
    code = rv_server_put(response, &body, err);
  }
  free(items);
  return code;
}
