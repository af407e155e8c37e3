#include "server/server.h"
#include "wire/unary.h"

/* Part by part: what goes because of a lower max_size may be many items. */
rv_code rv_answer_set_bounds(const rv_request *request, rv_pieces *response, rv_error *err)
{
  rv_span name;
  rv_table *table;
  rv_bounds_change change = {.number = request->progress->number};
  (void)response; /* an empty message */
  rv_code code = rv_set_bounds_parse(request->body, &name, &change.bounds, err);
  if (code != RV_OK) return code;
  code = rv_request_find_table(request, name, RV_RIGHT_ADMIN, &table, err);
  if (code == RV_OK) code = rv_table_change_bounds(table, &change, err);
  *request->progress = (rv_progress){.number = change.number, .more = code == RV_OK && !change.done};
  if (!request->progress->more)
    rv_server_audit(request->server, request->caller, request->peer, "changed the bounds of table", name, code);
  return code;
}
