#include "base/error.h"
#include "server/server.h"
#include "store/memory.h"
#include "wire/unary.h"

/* It concerns all tables: who may change it is admin of each. */
rv_code rv_answer_set_memory_limit(const rv_request *request, rv_pieces *response, rv_error *err)
{
  const rv_span all = {.data = NULL};
  uint64_t bytes;
  (void)response; /* an empty message */
  rv_code code = rv_set_memory_limit_parse(request->body, &bytes, err);
  if (code == RV_OK && bytes > SIZE_MAX)
    code = rv_fail(err, RV_INVALID_ARGUMENT, "memory_limit is more than this machine can address");
  if (code == RV_OK) code = rv_caller_check(request->caller, RV_RIGHT_ADMIN, all, err);
  if (code == RV_OK) rv_memory_set_limit(rv_store_memory(request->server->store), (size_t)bytes);
  rv_server_audit(request->server, request->caller, request->peer, "changed the memory limit", all, code);
  return code;
}
