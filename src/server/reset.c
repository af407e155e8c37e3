#include "server/server.h"
#include "wire/unary.h"

rv_code rv_answer_reset(const rv_request *request, rv_pieces *response, rv_error *err)
{
  rv_span name;
  rv_table *table;
  (void)response; /* an empty message */
  rv_code code = rv_reset_request_parse(request->body, &name, err);
  if (code != RV_OK) return code;
  code = rv_request_find_table(request, name, RV_RIGHT_ADMIN, &table, err);
  if (code == RV_OK) code = rv_table_reset(table, err);
  rv_server_audit(request->server, request->caller, request->peer, "reset table", name, code);
  return code;
}
