#include "base/error.h"
#include "server/server.h"
#include "wire/messages.h"
#include "wire/unary.h"

rv_code rv_answer_get(const rv_request *request, rv_pieces *response, rv_error *err)
{
  rv_span name;
  uint64_t key;
  rv_table *table;
  rv_draw draw;
  rv_code code = rv_get_request_parse(request->body, &name, &key, err);
  if (code == RV_OK) code = rv_request_find_table(request, name, RV_RIGHT_READ, &table, err);
  if (code == RV_OK) code = rv_table_get(table, key, &draw, err);
  if (code != RV_OK) return code;
  uint32_t next = 0;
  code = rv_sample_entry_serialize(response, &draw, rv_table_name(table), 0, SIZE_MAX, &next, err);
  if (code == RV_OK) code = rv_sample_response_put_naming(response, draw.naming, err);
  if (code == RV_DATA_LOSS) rv_error_prefix(err, "table \"%s\"", rv_table_name(table));
  rv_draw_release(&draw);
  return code;
}
