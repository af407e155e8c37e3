/* The server's end of a call: checking the request, headers and trailers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "net/call.h"
#include "net/grpc.h"
#include "net/pair.h"
#include "net/percent.h"

enum { MAX_PAIRS = RV_MAX_PAIRS + 5, MESSAGE_CAPACITY = 2048 };

static size_t add_pairs(const rv_call *call, nghttp2_nv *nv)
{
  size_t count = 0;
  const char *name, *value;
  for (size_t at = 0; count < RV_MAX_PAIRS && rv_metadata_store_next(&call->to_send, &at, &name, &value);)
    nv[count++] = rv_pair(name, value, NGHTTP2_NV_FLAG_NONE);
  return count;
}

static size_t add_headers(const rv_call *call, nghttp2_nv *nv)
{
  size_t count = 0;
  nv[count++] = rv_pair(":status", "200", RV_PAIR_CONSTANT);
  nv[count++] = rv_pair("content-type", "application/grpc", RV_PAIR_CONSTANT);
  nv[count++] = rv_pair("grpc-accept-encoding", "identity", RV_PAIR_CONSTANT);
  return count + add_pairs(call, nv + count);
}

static size_t add_trailers(const rv_call *call, nghttp2_nv *nv, char number[4], char message[MESSAGE_CAPACITY])
{
  size_t count = 0;
  snprintf(number, 4, "%u", (unsigned)call->code & 31U);
  nv[count++] = rv_pair("grpc-status", number, NGHTTP2_NV_FLAG_NO_COPY_NAME);
  if (call->message != NULL && call->message[0] != '\0') {
    rv_percent_encode(call->message, message, MESSAGE_CAPACITY);
    nv[count++] = rv_pair("grpc-message", message, NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_INDEX);
  }
  return count;
}

static void check(rv_call *call, int rc)
{
  rv_session_check(call->session, rc);
  rv_session_touch(call->session);
}

void rv_call_submit_headers(rv_call *call)
{
  if (call->headers_sent || call->over) return;
  nghttp2_nv nv[MAX_PAIRS];
  size_t count = add_headers(call, nv);
  call->headers_sent = true;
  check(call, nghttp2_submit_response(call->session->http, call->stream_id, nv, count, &rv_session_data_provider));
  rv_metadata_store_fini(&call->to_send); /* what is set from now on goes with the trailers */
}

void rv_call_submit_trailers(rv_call *call)
{
  if (call->trailers_submitted || call->over) return;
  nghttp2_nv nv[MAX_PAIRS];
  char number[4], message[MESSAGE_CAPACITY];
  call->trailers_submitted = true;
  if (call->headers_sent) {
    size_t count = add_trailers(call, nv, number, message);
    count += add_pairs(call, nv + count);
    check(call, nghttp2_submit_trailer(call->session->http, call->stream_id, nv, count));
    return;
  }
  size_t count = add_headers(call, nv);
  count += add_trailers(call, nv + count, number, message);
  call->headers_sent = true;
  check(call, nghttp2_submit_response(call->session->http, call->stream_id, nv, count, NULL));
}

static void set_status(rv_call *call, rv_code code, const char *message)
{
  free(call->message);
  call->code = code;
  call->message = message == NULL || message[0] == '\0' ? NULL : strdup(message);
}

void rv_call_reject(rv_call *call, rv_code code, const char *message)
{
  if (call->over) return;
  rv_call_drop_queued(call);
  call->no_more = true;
  if (call->stream_id != 0 && !call->trailers_submitted) {
    set_status(call, code, message);
    rv_call_submit_trailers(call);
  }
  rv_call_end(call, code, message, RV_NO_RESET, false);
}

static void reject_http(rv_call *call, const char *status)
{
  nghttp2_nv nv[] = {rv_pair(":status", status, RV_PAIR_CONSTANT)};
  check(call, nghttp2_submit_response(call->session->http, call->stream_id, nv, 1, NULL));
  rv_call_end(call, RV_UNKNOWN, NULL, RV_NO_RESET, false);
}

/* true: the request may be answered. */
static bool check_request(rv_call *call)
{
  char text[256];
  const char *type = rv_call_metadata(call, "content-type"), *encoding = rv_call_metadata(call, "grpc-encoding");
  const char *timeout = rv_call_metadata(call, "grpc-timeout");
  if (strcmp(call->method, "POST") != 0) {
    reject_http(call, "405");
  } else if (call->headers_too_large) {
    snprintf(text, sizeof text, "the request's headers are larger than %d bytes; send less metadata", RV_MAX_HEADER_LIST);
    rv_call_reject(call, RV_RESOURCE_EXHAUSTED, text);
  } else if (call->headers_lost) {
    rv_call_reject(call, RV_RESOURCE_EXHAUSTED, "the server is out of memory for the request's headers");
  } else if (type == NULL || !rv_grpc_is_content_type(type)) {
    reject_http(call, "415");
  } else if (encoding != NULL && strcmp(encoding, "identity") != 0) {
    snprintf(text, sizeof text, "messages in encoding \"%.40s\" are not read here; supported encodings: identity", encoding);
    rv_call_reject(call, RV_UNIMPLEMENTED, text);
  } else if (timeout != NULL && !rv_grpc_timeout_parse(timeout, &call->deadline_ns)) {
    snprintf(text, sizeof text, "grpc-timeout \"%.40s\" is not a timeout; write up to 8 digits and one of H, M, S, m, u, n",
             timeout);
    rv_call_reject(call, RV_INVALID_ARGUMENT, text);
  } else {
    return true;
  }
  return false;
}

void rv_call_request_headers(rv_call *call, bool end_stream)
{
  rv_session *session = call->session;
  if (!check_request(call)) return;
  call->started_ns = rv_monotonic_ns(&call->loop->env);
  if (call->deadline_ns != INT64_MAX) call->deadline_ns += call->started_ns;
  const rv_call_events *events = NULL;
  void *user = NULL;
  const char *path = call->path == NULL ? "" : call->path;
  bool known = session->owner != NULL && session->events->on_request(session->owner, call, path, &events, &user);
  if (!known) {
    char text[256];
    snprintf(text, sizeof text, "the server has no method \"%.180s\"", path);
    rv_call_reject(call, RV_UNIMPLEMENTED, text);
    return;
  }
  call->events = events;
  call->user = user;
  if (call->over) return;
  rv_call_start_deadline(call);
  if (end_stream) rv_call_peer_done(call);
}

/* ---- net.h ---- */

void rv_call_finish(rv_call *call, rv_code code, const char *message)
{
  RV_LOOP_CHECK(call->loop);
  if (!call->server || call->over || call->no_more) return;
  call->no_more = true;
  call->session->answer_bytes += call->sendq.bytes;
  set_status(call, code, message);
  if (call->sendq.bytes == 0)
    rv_call_submit_trailers(call);
  else
    rv_call_wake_source(call);
}

void rv_call_set_header(rv_call *call, const char *name, const char *value)
{
  if (!call->server || call->trailers_submitted || call->over) return;
  size_t name_size = strlen(name), value_size = strlen(value);
  if (nghttp2_check_header_name((const uint8_t *)name, name_size) == 0 || name[0] == ':' ||
      nghttp2_check_header_value((const uint8_t *)value, value_size) == 0) {
    rv_log(&call->loop->env, RV_LOG_ERROR,
           "response header \"%.60s\" was not sent: its name or value has characters HTTP/2 forbids", name);
    return;
  }
  if (!rv_metadata_store_add(&call->to_send, name, name_size, value, value_size))
    rv_log(&call->loop->env, RV_LOG_ERROR, "response header \"%.60s\" was not sent: out of memory", name);
}

void rv_call_send_headers(rv_call *call)
{
  if (call->server && !call->no_more) rv_call_submit_headers(call);
}
