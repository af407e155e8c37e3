#include "server/server.h"
#include "wire/unary.h"

rv_code rv_answer_set_rate_limiter(rv_server *server, rv_span request, rv_pieces *response, rv_error *err)
{
  rv_span name;
  rv_rate_limiter_config limiter;
  rv_table *table;
  rv_code code = rv_set_rate_limiter_parse(request, &name, &limiter, err);
  if (code == RV_OK) code = rv_server_find_table(server, name, &table, err);
  if (code == RV_OK) code = rv_rate_limiter_check(&limiter, err);
  if (code == RV_OK) code = rv_table_set_rate_limiter(table, &limiter, err);
  (void)response; /* an empty message */
  return code;
}
