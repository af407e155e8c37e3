#include "server/server.h"
#include "wire/unary.h"

rv_code rv_answer_reset(rv_server *server, rv_span request, rv_pieces *response, rv_error *err)
{
  rv_span name;
  rv_table *table;
  rv_code code = rv_reset_request_parse(request, &name, err);
  if (code == RV_OK) code = rv_server_find_table(server, name, &table, err);
  if (code == RV_OK) code = rv_table_reset(table, err);
  (void)response; /* an empty message */
  return code;
}
