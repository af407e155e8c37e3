#include "client/unary_call.h"

#include <stdlib.h>

#include "base/error.h"

enum { PUSHBACK_MOST_MS = 60000 };

static void on_message(rv_call *net_call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  (void)net_call;
  rv_unary_call *call = user;
  if (call->owner != NULL) return; /* a second answer to one request: on_close says so */
  call->owner = rv_buf_ref(buf);
  call->response = (rv_span){.data = data, .size = size};
}

/* The server's wish, in milliseconds; gRFC A6. */
static int64_t pushback_of(rv_call *net_call)
{
  const char *text = rv_call_metadata(net_call, "grpc-retry-pushback-ms");
  char *end = NULL;
  long ms = text != NULL ? strtol(text, &end, 10) : 0;
  if (text == NULL || end == text || *end != '\0' || ms <= 0) return 0;
  return (int64_t)(ms < PUSHBACK_MOST_MS ? ms : PUSHBACK_MOST_MS) * 1000000;
}

static void on_close(rv_call *net_call, void *user, rv_code code, const char *message)
{
  rv_unary_call *call = user;
  call->call = NULL;
  call->again_ns = code == RV_RESOURCE_EXHAUSTED ? pushback_of(net_call) : 0;
  call->code = code;
  if (code == RV_OK && call->owner == NULL)
    call->code = rv_fail(&call->error, RV_INTERNAL, "the server ended %s without an answer", call->path);
  else if (code != RV_OK)
    rv_fail(&call->error, code, "%s", message != NULL && message[0] != '\0' ? message : rv_code_name(code));
  if (call->code != RV_OK) {
    rv_buf_unref(call->owner);
    call->owner = NULL;
  }
  call->done(call);
}

static const rv_call_events events = {.on_message = on_message, .on_close = on_close};

void rv_unary_call_start(rv_unary_call *call)
{
  call->owner = NULL;
  call->again_ns = 0;
  rv_call_config config = {.path = call->path, .deadline_ns = call->deadline_ns, .wait_for_ready = call->wait_for_ready};
  call->call = rv_channel_call(call->channel, &config, &events, call);
  if (call->call == NULL) {
    call->code = rv_fail_memory(&call->error, sizeof *call);
    rv_pieces_fini(&call->request);
    call->done(call);
    return;
  }
  rv_call_send(call->call, &call->request);
  rv_call_half_close(call->call);
}

void rv_unary_call_stop(rv_unary_call *call)
{
  if (call->call != NULL) rv_call_cancel(call->call);
}
