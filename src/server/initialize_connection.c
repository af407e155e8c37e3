/* InitializeConnection: how a Reverb sampler asks whether it shares a process with the server, to be given a pointer. It never
 * is: an empty message (address 0), then OK. */
#include <stdlib.h>

#include "base/error.h"
#include "server/server.h"
#include "wire/unary.h"

typedef struct initialize_connection {
  rv_server_stream stream;
} initialize_connection;

static void on_message(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  initialize_connection *self = user;
  (void)buf;
  if (!rv_server_stream_is_open(&self->stream)) return;
  int64_t pid;
  rv_span table;
  rv_error err;
  rv_code code = rv_initialize_connection_parse((rv_span){.data = data, .size = size}, &pid, &table, &err);
  if (code != RV_OK) {
    rv_server_stream_finish(&self->stream, code, err.message);
    return;
  }
  rv_pieces empty;
  rv_pieces_init(&empty);
  rv_call_send(call, &empty);
  rv_server_stream_finish(&self->stream, RV_OK, "");
}

static void on_half_close(rv_call *call, void *user)
{
  initialize_connection *self = user;
  (void)call;
  rv_server_stream_finish(&self->stream, RV_INTERNAL, "the stream ended before its first request");
}

static void on_close(rv_call *call, void *user, rv_code code, const char *message)
{
  initialize_connection *self = user;
  (void)call, (void)code, (void)message;
  rv_server_stream_closed(&self->stream);
}

static const rv_call_events initialize_connection_events = {
    .on_message = on_message, .on_half_close = on_half_close, .on_close = on_close};

static void sweep(rv_server_stream *stream, rv_sweep kind)
{
  rv_server_stream_swept(stream, kind); /* a drain does not wait for it */
}

static void destroy(rv_server_stream *stream)
{
  free(RV_CONTAINER(stream, initialize_connection, stream));
}

static const rv_server_stream_ops initialize_connection_ops = {.sweep = sweep, .destroy = destroy};

rv_code rv_begin_initialize_connection(rv_server *server, rv_call *call, const rv_method *method, const rv_call_events **events,
                                       void **user, rv_error *err)
{
  (void)method;
  initialize_connection *self = calloc(1, sizeof *self);
  if (self == NULL) return rv_fail_memory(err, sizeof *self);
  rv_code code = rv_server_stream_begin(&self->stream, &initialize_connection_ops, server, call, err);
  if (code != RV_OK) {
    free(self);
    return code;
  }
  *events = &initialize_connection_events;
  *user = self;
  return RV_OK;
}
