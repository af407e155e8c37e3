/* The client's end of a call: the request's headers, and what the response's mean. */
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "net/call.h"
#include "net/grpc.h"
#include "net/pair.h"
#include "net/percent.h"
#include "reverie/version.h"

enum { MAX_PAIRS = RV_MAX_PAIRS + 10 };

static size_t add_headers(const rv_call *call, nghttp2_nv *nv, char timeout[RV_GRPC_TIMEOUT_CAPACITY])
{
  size_t count = 0;
  nv[count++] = rv_pair(":method", "POST", RV_PAIR_CONSTANT);
  nv[count++] = rv_pair(":scheme", call->session->encrypted ? "https" : "http", RV_PAIR_CONSTANT);
  nv[count++] = rv_pair(":path", call->path, NGHTTP2_NV_FLAG_NO_COPY_NAME);
  bool local = strncmp(call->session->address, "unix:", 5) == 0;
  nv[count++] = rv_pair(":authority", local ? "localhost" : call->session->address, NGHTTP2_NV_FLAG_NO_COPY_NAME);
  nv[count++] = rv_pair("te", "trailers", RV_PAIR_CONSTANT);
  nv[count++] = rv_pair("content-type", "application/grpc", RV_PAIR_CONSTANT);
  nv[count++] = rv_pair("user-agent", "reverie/" RV_VERSION, RV_PAIR_CONSTANT);
  nv[count++] = rv_pair("grpc-accept-encoding", "identity", RV_PAIR_CONSTANT);
  if (call->deadline_ns != INT64_MAX) {
    rv_grpc_timeout_format(call->deadline_ns - rv_monotonic_ns(&call->loop->env), timeout);
    nv[count++] = rv_pair("grpc-timeout", timeout, NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_INDEX);
  }
  const char *name, *value;
  for (size_t at = 0; count < MAX_PAIRS && rv_metadata_store_next(&call->to_send, &at, &name, &value);)
    nv[count++] = rv_pair(name, value, NGHTTP2_NV_FLAG_NONE);
  return count;
}

void rv_call_start(rv_call *call, rv_session *session)
{
  nghttp2_nv nv[MAX_PAIRS];
  char timeout[RV_GRPC_TIMEOUT_CAPACITY];
  call->session = rv_session_ref(session);
  rv_list_remove(&call->link);
  rv_list_push_back(&session->calls, &call->link);
  size_t count = add_headers(call, nv, timeout);
  int32_t id = nghttp2_submit_request(session->http, NULL, nv, count, &rv_session_data_provider, call);
  if (id < 0) {
    char text[160];
    snprintf(text, sizeof text, "the call could not be started: %s", nghttp2_strerror(id));
    rv_call_end(call, id == NGHTTP2_ERR_NOMEM ? RV_RESOURCE_EXHAUSTED : RV_UNAVAILABLE, text, RV_NO_RESET, false);
    rv_session_check(session, id);
    return;
  }
  call->stream_id = id;
  session->num_streams++;
  rv_session_touch(session);
  if (rv_session_is_spent(session) && session->owner != NULL) session->events->on_goaway(session->owner, session);
}

/* Our half of the stream is still open: the server has said its last word, so nothing more is sent. */
static uint32_t reset_if_open(const rv_call *call)
{
  return nghttp2_session_get_stream_local_close(call->session->http, call->stream_id) == 0 ? NGHTTP2_NO_ERROR : RV_NO_RESET;
}

static void end_by_status(rv_call *call, const char *status)
{
  char text[RV_ERROR_MESSAGE_MAX] = "";
  const char *message = rv_call_metadata(call, "grpc-message");
  rv_code code = rv_grpc_code_parse(status);
  if (message != NULL) rv_percent_decode(message, text, sizeof text);
  if (code == RV_OK && !rv_message_reader_is_between(&call->reader)) {
    code = RV_INTERNAL;
    snprintf(text, sizeof text, "the response of %.120s ended in the middle of a message", call->session->address);
  }
  call->peer_done = true;
  call->has_status = true;
  rv_call_end(call, code, text, reset_if_open(call), true);
}

/* The server's first headers are not those of a gRPC response. */
static void end_by_http(rv_call *call, const char *type)
{
  char text[RV_ERROR_MESSAGE_MAX];
  const char *address = call->session->address;
  if (call->http_status != 200)
    snprintf(text, sizeof text, "the server at %.120s answered with HTTP status %d; is it a Reverie or Reverb server?", address,
             call->http_status);
  else
    snprintf(text, sizeof text,
             "the server at %.120s answered with content-type \"%.60s\", which is not gRPC; is it a Reverie or Reverb "
             "server?",
             address, type == NULL ? "" : type);
  rv_call_end(call, rv_grpc_code_of_http(call->http_status), text, NGHTTP2_CANCEL, false);
}

void rv_call_response_headers(rv_call *call, bool end_stream)
{
  if (!call->headers_received && call->http_status >= 100 && call->http_status < 200) {
    call->http_status = 0;
    return;
  }
  if (call->headers_too_large) {
    rv_call_end(call, RV_RESOURCE_EXHAUSTED, "the response's headers are larger than 16384 bytes", NGHTTP2_CANCEL, false);
    return;
  }
  if (call->headers_lost) {
    rv_call_end(call, RV_RESOURCE_EXHAUSTED, "out of memory for the response's headers", NGHTTP2_CANCEL, false);
    return;
  }
  const char *status = rv_call_metadata(call, "grpc-status"), *type = rv_call_metadata(call, "content-type");
  if (!call->headers_received) {
    call->headers_received = true;
    bool grpc = call->http_status == 200 && type != NULL && rv_grpc_is_content_type(type);
    if (!grpc && status == NULL) {
      end_by_http(call, type);
      return;
    }
    if (!end_stream) {
      if (call->events->on_headers != NULL) call->events->on_headers(call, call->user);
      return;
    }
  }
  if (status != NULL)
    end_by_status(call, status);
  else
    rv_call_response_done(call);
}

void rv_call_response_done(rv_call *call)
{
  char text[200];
  snprintf(text, sizeof text, "the server at %.120s ended the call without a status", call->session->address);
  call->peer_done = true;
  rv_call_end(call, RV_UNKNOWN, text, reset_if_open(call), true);
}

void rv_call_reset_by_peer(rv_call *call, uint32_t error_code)
{
  char text[256];
  const char *address = call->session->address;
  if (error_code == NGHTTP2_REFUSED_STREAM && call->session->shutting_down && call->session->reason[0] != '\0')
    snprintf(text, sizeof text, "%s", call->session->reason);
  else if (error_code == NGHTTP2_REFUSED_STREAM && call->session->shutting_down)
    snprintf(text, sizeof text, "the server at %.120s is shutting down and did not take the call", address);
  else
    snprintf(text, sizeof text, "the server at %.120s reset the call: %s", address, nghttp2_http2_strerror(error_code));
  rv_call_end(call, rv_grpc_code_of_reset(error_code), text, RV_NO_RESET, true);
}
