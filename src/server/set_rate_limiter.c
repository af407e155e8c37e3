#include "server/server.h"
#include "wire/unary.h"

rv_code rv_answer_set_rate_limiter(const rv_request *request, rv_pieces *response, rv_error *err)
{
  rv_span name;
  rv_rate_limiter_config limiter;
  rv_table *table;
  (void)response; /* an empty message */
  rv_code code = rv_set_rate_limiter_parse(request->body, &name, &limiter, err);
  if (code != RV_OK) return code;
  code = rv_request_find_table(request, name, RV_RIGHT_ADMIN, &table, err);
  if (code == RV_OK) code = rv_rate_limiter_check(&limiter, err);
  if (code == RV_OK) code = rv_table_set_rate_limiter(table, &limiter, err);
  rv_server_audit(request->server, request->caller, request->peer, "changed the rate limiter of table", name, code);
  return code;
}
