/* Checkpoint: the server's saver does it, in a thread of its own; the call waits for its turn there. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "server/server.h"
#include "wire/unary.h"

typedef struct checkpoint_call {
  rv_server_stream stream; /* one more reference while the saver has the request */
  rv_saver_request request;
  rv_task task;
  bool asked;
  char *peer;   /* for the log, also when the caller has gone; NULL: memory was out for it */
  rv_code code; /* of the saver, and what follows */
  char *path;   /* NULL: memory was out for it */
  char message[RV_ERROR_MESSAGE_MAX];
} checkpoint_call;

/* ---- the answer ---- */

static rv_code send_path(checkpoint_call *call, rv_error *err)
{
  rv_writer_buf body;
  rv_pieces response;
  if (call->path == NULL) return rv_fail_memory(err, 0);
  rv_utf8_repair(call->path); /* the message's text; whoever gets something else refuses the answer */
  rv_writer_buf_init(&body);
  rv_pieces_init(&response);
  rv_checkpoint_response_serialize(&body, call->path);
  rv_code code = rv_server_put(&response, &body, err);
  if (code == RV_OK) rv_call_send(call->stream.call, &response);
  rv_pieces_fini(&response);
  return code;
}

static void audit(const checkpoint_call *call, rv_code code)
{
  rv_server_audit(call->stream.server, call->stream.caller, call->peer != NULL ? call->peer : "unknown", "saved a checkpoint",
                  (rv_span){.data = NULL}, code);
}

/* On the call's loop. */
static void on_task(rv_task *task)
{
  checkpoint_call *call = RV_CONTAINER(task, checkpoint_call, task);
  rv_error err;
  audit(call, call->code);
  if (rv_server_stream_is_open(&call->stream)) {
    rv_code code = call->code == RV_OK ? send_path(call, &err) : rv_fail(&err, call->code, "%s", call->message);
    rv_server_stream_finish(&call->stream, code, code == RV_OK ? "" : err.message);
  }
  rv_server_stream_unref(&call->stream);
}

/* On the saver's thread. */
static void on_done(rv_saver_request *request, rv_code code, const char *path_or_message)
{
  checkpoint_call *call = RV_CONTAINER(request, checkpoint_call, request);
  call->code = code;
  if (code == RV_OK)
    call->path = strdup(path_or_message);
  else
    strncpy(call->message, path_or_message, sizeof call->message - 1);
  rv_loop_post(call->stream.loop, &call->task);
}

/* ---- the call ---- */

static void on_message(rv_call *net_call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  checkpoint_call *call = user;
  (void)net_call, (void)buf, (void)data, (void)size; /* a CheckpointRequest is empty */
  if (!rv_server_stream_is_open(&call->stream) || call->asked) return;
  rv_error err;
  if (rv_caller_check(call->stream.caller, RV_RIGHT_ADMIN, (rv_span){.data = NULL}, &err) != RV_OK) {
    audit(call, err.code);
    rv_server_stream_finish(&call->stream, err.code, err.message);
    return;
  }
  rv_saver *saver = call->stream.server->saver;
  if (saver == NULL) {
    audit(call, RV_INVALID_ARGUMENT);
    rv_server_stream_finish(&call->stream, RV_INVALID_ARGUMENT,
                            "no Checkpointer is configured: this server does not write checkpoints; start reverie-server with "
                            "--checkpoints DIRECTORY, a Server with a checkpointer");
    return;
  }
  call->asked = true;
  rv_server_stream_ref(&call->stream);
  rv_saver_ask(saver, &call->request);
}

static void on_half_close(rv_call *net_call, void *user)
{
  checkpoint_call *call = user;
  (void)net_call;
  if (!call->asked) rv_server_stream_finish(&call->stream, RV_INVALID_ARGUMENT, "the call ended without a request message");
}

static void on_close(rv_call *net_call, void *user, rv_code code, const char *message)
{
  checkpoint_call *call = user;
  (void)net_call, (void)code, (void)message;
  rv_server_stream_closed(&call->stream);
}

static const rv_call_events checkpoint_events = {.on_message = on_message, .on_half_close = on_half_close, .on_close = on_close};

static void sweep(rv_server_stream *stream, rv_sweep kind)
{
  if (kind != RV_SWEEP_DRAIN) rv_server_stream_swept(stream, kind);
}

static void destroy(rv_server_stream *stream)
{
  checkpoint_call *call = RV_CONTAINER(stream, checkpoint_call, stream);
  free(call->path);
  free(call->peer);
  free(call);
}

static const rv_server_stream_ops checkpoint_ops = {.sweep = sweep, .destroy = destroy};

rv_code rv_begin_checkpoint(rv_server *server, rv_call *net_call, const rv_method *method, const rv_call_events **events,
                            void **user, rv_error *err)
{
  (void)method;
  checkpoint_call *call = calloc(1, sizeof *call);
  if (call == NULL) return rv_fail_memory(err, sizeof *call);
  call->request.done = on_done;
  call->peer = strdup(rv_call_peer(net_call));
  call->task.run = on_task;
  rv_code code = rv_server_stream_begin(&call->stream, &checkpoint_ops, server, net_call, err);
  if (code != RV_OK) {
    free(call->peer);
    free(call);
    return code;
  }
  *events = &checkpoint_events;
  *user = call;
  return RV_OK;
}
