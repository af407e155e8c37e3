#include <stdlib.h>

#include "base/error.h"
#include "server/server.h"
#include "wire/unary.h"

static rv_code mutate(const rv_request *asked, const rv_mutate_request *request, rv_pieces *response, rv_error *err)
{
  rv_table *table;
  rv_code code = rv_request_find_table(asked, request->table, RV_RIGHT_UPDATE, &table, err);
  if (code != RV_OK) return code;
  size_t keys = request->num_updates + request->num_deletes, num_unknown = 0;
  uint64_t *unknown = malloc((keys == 0 ? 1 : keys) * sizeof *unknown);
  if (unknown == NULL) return rv_fail_memory(err, keys * sizeof *unknown);
  code = rv_table_mutate(table, request->updates, request->num_updates, request->deletes, request->num_deletes, unknown,
                         &num_unknown, err);
  if (code == RV_OK) {
    rv_writer_buf body;
    rv_writer_buf_init(&body);
    rv_mutate_response_serialize(&body, unknown, num_unknown);
    code = rv_server_put(response, &body, err);
    if (code != RV_OK)
      code = rv_fail(err, RV_UNAVAILABLE, "table \"%s\" was changed, but the server is out of memory for the answer",
                     rv_table_name(table));
  }
  free(unknown);
  return code;
}

rv_code rv_answer_mutate(const rv_request *request, rv_pieces *response, rv_error *err)
{
  rv_mutate_request parsed;
  rv_code code = rv_mutate_request_parse(request->body, &parsed, err);
  if (code != RV_OK) return code;
  code = mutate(request, &parsed, response, err);
  rv_mutate_request_fini(&parsed);
  return code;
}
