#include "client/unary_call.h"

#include "base/error.h"

static void on_message(rv_call *net_call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  (void)net_call;
  rv_unary_call *call = user;
  if (call->owner != NULL) return; /* a second answer to one request: on_close says so */
  call->owner = rv_buf_ref(buf);
  call->response = (rv_span){.data = data, .size = size};
}

static void on_close(rv_call *net_call, void *user, rv_code code, const char *message)
{
  (void)net_call;
  rv_unary_call *call = user;
  call->call = NULL;
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
