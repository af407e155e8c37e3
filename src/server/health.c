/* grpc.health.v1: Check and Watch. Known services are "", Reverb's and Reverie's own; all have the server's health. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "server/server.h"

typedef enum serving_status { SERVING = 1, NOT_SERVING = 2, SERVICE_UNKNOWN = 3 } serving_status;

static rv_code parse_service(rv_span message, rv_span *service, rv_error *err)
{
  rv_reader reader;
  rv_field field;
  *service = (rv_span){.data = NULL, .size = 0};
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field))
    if (field.number == 1 && field.type == RV_WIRE_BYTES) *service = field.bytes;
  if (reader.broken || !rv_utf8_valid(*service)) return rv_fail(err, RV_INVALID_ARGUMENT, "the request is no HealthCheckRequest");
  return RV_OK;
}

static bool is_known(rv_span service)
{
  static const char *const known[] = {"", "deepmind.reverb.ReverbService", "reverie.Reverie"};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (strlen(known[i]) == service.size && (service.size == 0 || memcmp(known[i], service.data, service.size) == 0)) return true;
  return false;
}

static serving_status health(rv_server *server)
{
  return atomic_load(&server->draining) || rv_store_is_closed(server->store) ? NOT_SERVING : SERVING;
}

static rv_code put_status(rv_pieces *response, serving_status status, rv_error *err)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  rv_put_varint(&body, 1, (uint64_t)status);
  return rv_server_put(response, &body, err);
}

rv_code rv_answer_health_check(const rv_request *request, rv_pieces *response, rv_error *err)
{
  rv_span service;
  rv_code code = parse_service(request->body, &service, err);
  if (code != RV_OK) return code;
  if (!is_known(service))
    return rv_fail(err, RV_NOT_FOUND, "no service \"%.*s\" here", service.size > 128 ? 128 : (int)service.size,
                   (const char *)service.data);
  return put_status(response, health(request->server), err);
}

/* ---- Watch ---- */

enum { WATCHES_MAX = 10000 };

typedef struct watch {
  rv_server_stream stream;
  rv_timer timer; /* until it has asked */
  bool asked, known;
} watch;

static void tell(watch *self, serving_status status)
{
  rv_pieces response;
  rv_error err;
  rv_pieces_init(&response);
  if (put_status(&response, status, &err) == RV_OK)
    rv_call_send(self->stream.call, &response);
  else
    rv_server_stream_finish(&self->stream, err.code, err.message);
  rv_pieces_fini(&response);
}

/* From now on it lasts as long as the caller likes. */
static rv_code count_in(watch *self, rv_error *err)
{
  rv_server *server = self->stream.server;
  rv_mutex_lock(&server->lock);
  self->asked = server->num_watches < WATCHES_MAX;
  server->num_watches += self->asked;
  rv_mutex_unlock(&server->lock);
  if (!self->asked)
    return rv_fail(err, RV_RESOURCE_EXHAUSTED, "%d calls of Watch, the most there may be, are open; call Check", WATCHES_MAX);
  rv_timer_stop(&self->timer);
  rv_server_stream_keep(&self->stream);
  return RV_OK;
}

static void on_timer(rv_timer *timer)
{
  watch *self = RV_CONTAINER(timer, watch, timer);
  char message[80];
  snprintf(message, sizeof message, "the request of a Watch did not come within %d s; send it with the call",
           RV_HEALTH_MS / 1000);
  rv_server_stream_finish(&self->stream, RV_DEADLINE_EXCEEDED, message);
}

static void on_message(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  watch *self = user;
  (void)call, (void)buf;
  if (!rv_server_stream_is_open(&self->stream) || self->asked) return;
  rv_span service;
  rv_error err;
  rv_code code = parse_service((rv_span){.data = data, .size = size}, &service, &err);
  if (code == RV_OK) code = count_in(self, &err);
  if (code != RV_OK) {
    rv_server_stream_finish(&self->stream, code, err.message);
    return;
  }
  self->known = is_known(service);
  tell(self, self->known ? health(self->stream.server) : SERVICE_UNKNOWN);
}

static void on_half_close(rv_call *call, void *user)
{
  watch *self = user;
  (void)call;
  if (!self->asked) rv_server_stream_finish(&self->stream, RV_INVALID_ARGUMENT, "the call ended without a request message");
}

static void on_close(rv_call *call, void *user, rv_code code, const char *message)
{
  watch *self = user;
  (void)call, (void)code, (void)message;
  rv_server_stream_closed(&self->stream);
}

static const rv_call_events watch_events = {.on_message = on_message, .on_half_close = on_half_close, .on_close = on_close};

/* A watcher stays to the end of the drain: it is there to see it. */
static void sweep(rv_server_stream *stream, rv_sweep kind)
{
  watch *self = RV_CONTAINER(stream, watch, stream);
  if (!rv_server_stream_is_open(stream)) return;
  if (kind != RV_SWEEP_DRAIN)
    rv_server_stream_swept(stream, kind);
  else if (self->asked && self->known)
    tell(self, NOT_SERVING);
}

static void destroy(rv_server_stream *stream)
{
  watch *self = RV_CONTAINER(stream, watch, stream);
  rv_timer_stop(&self->timer);
  if (self->asked) {
    rv_mutex_lock(&stream->server->lock);
    stream->server->num_watches--;
    rv_mutex_unlock(&stream->server->lock);
  }
  free(self);
}

static const rv_server_stream_ops watch_ops = {.sweep = sweep, .destroy = destroy, .lingers = true, .open_to_all = true};

rv_code rv_begin_health_watch(rv_server *server, rv_call *call, const rv_method *method, const rv_call_events **events,
                              void **user, rv_error *err)
{
  (void)method;
  watch *self = calloc(1, sizeof *self);
  rv_code code =
      self == NULL ? rv_fail_memory(err, sizeof *self) : rv_server_stream_begin(&self->stream, &watch_ops, server, call, err);
  if (code != RV_OK) {
    free(self);
    return code;
  }
  rv_timer_init(&self->timer, self->stream.loop, on_timer);
  rv_timer_start(&self->timer, rv_monotonic_ns(&server->env) + RV_HEALTH_MS * INT64_C(1000000));
  *events = &watch_events;
  *user = self;
  return RV_OK;
}
