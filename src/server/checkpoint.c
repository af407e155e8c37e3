#include "base/error.h"
#include "server/server.h"

rv_code rv_answer_checkpoint(rv_server *server, rv_span request, rv_pieces *response, rv_error *err)
{
  (void)server, (void)request, (void)response;
  return rv_fail(err, RV_INVALID_ARGUMENT, "no Checkpointer is configured: this server does not write checkpoints");
}
