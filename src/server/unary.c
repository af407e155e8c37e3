/* Unary calls: one request, one answer. Each method is a function from bytes to bytes (rv_method.answer). */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "server/server.h"

typedef struct unary {
  rv_server_stream stream;
  const rv_method *method;
  bool begun; /* the method was called: it is not put off any more */
  /* of one that takes its turns: what was asked, and a reference to the stream */
  rv_buf *request;
  rv_span body;
  rv_progress progress;
  char *peer; /* NULL: not asked yet, or memory was out for it */
  rv_task turn_task;
  /* of an answer that waits until what it says is on the disk */
  const rv_table *table; /* that it is about; NULL: none */
  rv_pieces response;
  rv_journal_waiter waiter;
  rv_task task;
  bool waits; /* one reference to the stream */
} unary;

static void send_response(unary *self)
{
  if (!rv_server_stream_is_open(&self->stream)) return;
  rv_call_send(self->stream.call, &self->response);
  rv_server_stream_finish(&self->stream, RV_OK, "");
}

/* On the journal's thread. */
static void on_written(rv_journal_waiter *waiter)
{
  unary *self = RV_CONTAINER(waiter, unary, waiter);
  rv_loop_post(self->stream.loop, &self->task);
}

static void on_task(rv_task *task)
{
  unary *self = RV_CONTAINER(task, unary, task);
  self->waits = false;
  send_response(self);
  rv_server_stream_unref(&self->stream);
}

/* Whoever has gone while his change was made ends no wait any more. */
static bool wait_for_disk(unary *self)
{
  rv_journal *journal = self->stream.server->journal;
  if (!rv_server_stream_is_open(&self->stream)) return false;
  if (journal == NULL || !self->method->changes || !rv_journal_is_always(journal)) return false;
  if (self->peer == NULL && self->stream.call != NULL) self->peer = strdup(rv_call_peer(self->stream.call));
  self->waiter = (rv_journal_waiter){.done = on_written,
                                     .ticket = rv_journal_ticket(journal),
                                     .table = self->table,
                                     .peer = self->peer != NULL ? self->peer : "unknown",
                                     .wanted = 1,
                                     .is_change = true};
  self->task.run = on_task;
  self->waits = true;
  rv_server_stream_ref(&self->stream);
  if (rv_journal_wait(journal, &self->waiter)) return true;
  self->waits = false;
  rv_server_stream_unref(&self->stream); /* the call holds another */
  return false;
}

static void stop_waiting(unary *self)
{
  if (!self->waits || !rv_journal_cancel(self->stream.server->journal, &self->waiter)) return;
  self->waits = false;
  rv_server_stream_unref(&self->stream); /* the caller holds another */
}

/* Calls the method; true: it is to be called again. */
static bool answer(unary *self, const char *peer, rv_span body)
{
  self->begun = true;
  rv_error err = {.code = RV_OK, .message = ""};
  const rv_request request = {.server = self->stream.server,
                              .caller = self->stream.caller,
                              .peer = peer,
                              .body = body,
                              .progress = &self->progress,
                              .gone = !rv_server_stream_is_open(&self->stream),
                              .table = &self->table};
  rv_code code = self->method->answer(&request, &self->response, &err);
  if (code != RV_OK)
    rv_server_stream_finish(&self->stream, code, err.message);
  else if (self->progress.more)
    return true;
  else if (!wait_for_disk(self))
    send_response(self);
  return false;
}

static void put_off(unary *self, bool late)
{
  rv_error err;
  rv_code code = rv_service_put_off(self->stream.server, self->stream.call, late, &err);
  rv_server_stream_finish(&self->stream, code, err.message);
}

/* What has waited for its first turn: meanwhile the connection was asked to take what waits for it. */
static bool may_begin(unary *self)
{
  if (!rv_server_stream_is_open(&self->stream)) return false;
  bool late = rv_service_is_late(self->method, self->stream.call);
  if (!late && !rv_service_has_unread(self->method, self->stream.call)) return true;
  put_off(self, late);
  return false;
}

static void on_turn_task(rv_task *task)
{
  unary *self = RV_CONTAINER(task, unary, turn_task);
  if ((self->begun || may_begin(self)) && answer(self, self->peer != NULL ? self->peer : "unknown", self->body)) {
    rv_loop_turn(self->stream.loop, &self->turn_task);
    return;
  }
  rv_buf_unref(self->request);
  self->request = NULL;
  rv_server_stream_unref(&self->stream);
}

static void take_turns(unary *self, rv_buf *request)
{
  self->request = rv_buf_ref(request);
  rv_call_count_kept(self->stream.call, self->body.size);
  self->peer = strdup(rv_call_peer(self->stream.call));
  rv_server_stream_ref(&self->stream);
  rv_loop_turn(self->stream.loop, &self->turn_task);
}

/* A connection may bring many calls at once, so what they are put off for is looked at here: what those before made of it is known. */
static void on_message(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  unary *self = user;
  if (!rv_server_stream_is_open(&self->stream) || self->waits || self->request != NULL) return;
  self->body = (rv_span){.data = data, .size = size};
  if (rv_service_is_late(self->method, call))
    put_off(self, true);
  else if (rv_service_has_unread(self->method, call) || answer(self, rv_call_peer(call), self->body))
    take_turns(self, buf);
}

static void on_half_close(rv_call *call, void *user)
{
  unary *self = user;
  (void)call;
  if (!self->waits && self->request == NULL)
    rv_server_stream_finish(&self->stream, RV_INVALID_ARGUMENT, "the call ended without a request message");
}

static void on_close(rv_call *call, void *user, rv_code code, const char *message)
{
  unary *self = user;
  (void)call, (void)code, (void)message;
  stop_waiting(self);
  rv_server_stream_closed(&self->stream);
}

static const rv_call_events unary_events = {.on_message = on_message, .on_half_close = on_half_close, .on_close = on_close};

static void sweep(rv_server_stream *stream, rv_sweep kind)
{
  if (kind != RV_SWEEP_DRAIN) rv_server_stream_swept(stream, kind);
}

static void destroy(rv_server_stream *stream)
{
  unary *self = RV_CONTAINER(stream, unary, stream);
  if (self->progress.drop != NULL) self->progress.drop(self->progress.state);
  rv_pieces_fini(&self->response);
  free(self->peer);
  free(self);
}

static const rv_server_stream_ops unary_ops = {.sweep = sweep, .destroy = destroy};
static const rv_server_stream_ops open_ops = {.sweep = sweep, .destroy = destroy, .open_to_all = true};

rv_code rv_begin_unary(rv_server *server, rv_call *call, const rv_method *method, const rv_call_events **events, void **user,
                       rv_error *err)
{
  unary *self = calloc(1, sizeof *self);
  if (self == NULL) return rv_fail_memory(err, sizeof *self);
  self->method = method;
  rv_pieces_init(&self->response);
  rv_task_init(&self->turn_task, on_turn_task);
  rv_code code = rv_server_stream_begin(&self->stream, method->open_to_all ? &open_ops : &unary_ops, server, call, err);
  if (code != RV_OK) {
    free(self);
    return code;
  }
  *events = &unary_events;
  *user = self;
  rv_error refused;
  if (rv_server_stream_check(&self->stream, method, &refused) != RV_OK)
    rv_server_stream_finish(&self->stream, refused.code, refused.message);
  return RV_OK;
}
