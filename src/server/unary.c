/* Unary calls: one request, one answer. Each method is a function from bytes to bytes (rv_method.answer). */
#include <stdlib.h>

#include "base/error.h"
#include "server/server.h"

typedef struct unary {
  rv_server_stream stream;
  const rv_method *method;
} unary;

static void on_message(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  unary *self = user;
  (void)buf;
  if (!rv_server_stream_is_open(&self->stream)) return;
  rv_pieces response;
  rv_pieces_init(&response);
  rv_error err = {.code = RV_OK, .message = ""};
  rv_code code = self->method->answer(self->stream.server, (rv_span){.data = data, .size = size}, &response, &err);
  if (code == RV_OK) rv_call_send(call, &response);
  rv_pieces_fini(&response);
  rv_server_stream_finish(&self->stream, code, err.message);
}

static void on_half_close(rv_call *call, void *user)
{
  unary *self = user;
  (void)call;
  rv_server_stream_finish(&self->stream, RV_INVALID_ARGUMENT, "the call ended without a request message");
}

static void on_close(rv_call *call, void *user, rv_code code, const char *message)
{
  unary *self = user;
  (void)call, (void)code, (void)message;
  rv_server_stream_closed(&self->stream);
}

static const rv_call_events unary_events = {.on_message = on_message, .on_half_close = on_half_close, .on_close = on_close};

static void sweep(rv_server_stream *stream, rv_sweep kind)
{
  if (kind == RV_SWEEP_END) rv_server_stream_finish(stream, RV_UNAVAILABLE, "Cancelling all calls: the server is shutting down");
}

static void destroy(rv_server_stream *stream)
{
  free(RV_CONTAINER(stream, unary, stream));
}

static const rv_server_stream_ops unary_ops = {.sweep = sweep, .destroy = destroy};

rv_code rv_begin_unary(rv_server *server, rv_call *call, const rv_method *method, const rv_call_events **events, void **user,
                       rv_error *err)
{
  unary *self = calloc(1, sizeof *self);
  if (self == NULL) return rv_fail_memory(err, sizeof *self);
  self->method = method;
  rv_code code = rv_server_stream_begin(&self->stream, &unary_ops, server, call, err);
  if (code != RV_OK) {
    free(self);
    return code;
  }
  *events = &unary_events;
  *user = self;
  return RV_OK;
}
