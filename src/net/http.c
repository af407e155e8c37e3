/* nghttp2's callbacks: they find the call by its stream and hand on. A stream whose call is over has no call; what still comes
 * for it is ignored. */
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "net/call.h"
#include "net/percent.h"

static rv_call *find_call(rv_session *session, int32_t stream_id)
{
  return nghttp2_session_get_stream_user_data(session->http, stream_id);
}

/* ---- receiving ---- */

static int on_begin_frame(nghttp2_session *http, const nghttp2_frame_hd *hd, void *user_data)
{
  (void)http;
  rv_session *session = user_data;
  session->turn_frames++;
  session->frame_stream = hd->stream_id;
  session->frame_left = hd->type == NGHTTP2_DATA ? hd->length : 0;
  session->frame_padded = (hd->flags & NGHTTP2_FLAG_PADDED) != 0;
  session->frame_heard = false;
  return session->lost ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_begin_headers(nghttp2_session *http, const nghttp2_frame *frame, void *user_data)
{
  rv_session *session = user_data;
  if (!session->server || frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
  rv_call *call = rv_call_new(session->loop, true);
  if (call == NULL) { /* the rest of the stream has no call, and is ignored */
    rv_session_check(session, nghttp2_submit_rst_stream(http, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_ENHANCE_YOUR_CALM));
    return session->lost ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
  }
  call->session = rv_session_ref(session);
  call->stream_id = frame->hd.stream_id;
  rv_list_push_back(&session->calls, &call->link);
  nghttp2_session_set_stream_user_data(http, frame->hd.stream_id, call);
  return 0;
}

static bool keep_pseudo_header(rv_call *call, const char *name, const char *value)
{
  if (strcmp(name, ":path") == 0) {
    if (call->path == NULL) call->path = strdup(value);
    return call->path != NULL;
  }
  if (strcmp(name, ":method") == 0) snprintf(call->method, sizeof call->method, "%.7s", value);
  if (strcmp(name, ":status") == 0)
    call->http_status = value[0] >= '1' && value[0] <= '9' && strlen(value) == 3 && strspn(value, "0123456789") == 3
                            ? (value[0] - '0') * 100 + (value[1] - '0') * 10 + (value[2] - '0')
                            : 0;
  return true;
}

static int on_header(nghttp2_session *http, const nghttp2_frame *frame, const uint8_t *name, size_t name_size,
                     const uint8_t *value, size_t value_size, uint8_t flags, void *user_data)
{
  (void)http, (void)flags;
  rv_session *session = user_data;
  rv_call *call = find_call(session, frame->hd.stream_id);
  if (call == NULL) return 0;
  call->header_bytes += name_size + value_size + 32; /* as HPACK counts them */
  if (call->header_bytes > RV_HEADER_LIST_FATAL) {
    snprintf(session->reason, sizeof session->reason, "the peer sent more than %d bytes of headers for one call",
             RV_HEADER_LIST_FATAL);
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  if (call->header_bytes > RV_MAX_HEADER_LIST) {
    call->headers_too_large = true;
    return 0;
  }
  bool kept = name_size > 0 && name[0] == ':'
                  ? keep_pseudo_header(call, (const char *)name, (const char *)value)
                  : rv_metadata_store_add(&call->received, (const char *)name, name_size, (const char *)value, value_size);
  call->headers_lost = call->headers_lost || !kept;
  return 0;
}

static void on_settings(rv_session *session, const nghttp2_frame *frame)
{
  if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0) return;
  if (session->ready) {
    session->room_changed = !session->server;
    return;
  }
  session->ready = true;
  rv_timer_stop(&session->timer);
  rv_pulse_start(session);
  if (!session->server && session->owner != NULL) session->events->on_ready(session->owner, session);
}

static void on_headers(rv_session *session, const nghttp2_frame *frame)
{
  rv_call *call = find_call(session, frame->hd.stream_id);
  if (call == NULL) return;
  bool end_stream = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
  if (!session->server)
    rv_call_response_headers(call, end_stream);
  else if (frame->headers.cat == NGHTTP2_HCAT_REQUEST)
    rv_call_request_headers(call, end_stream);
  else if (end_stream)
    rv_call_peer_done(call);
}

static void on_goaway(rv_session *session, const nghttp2_frame *frame)
{
  if (frame->goaway.error_code != NGHTTP2_NO_ERROR && session->reason[0] == '\0') {
    snprintf(session->reason, sizeof session->reason, "the peer at %.80s closed the connection: %s%s%.*s", session->address,
             nghttp2_http2_strerror(frame->goaway.error_code), frame->goaway.opaque_data_len > 0 ? ", " : "",
             frame->goaway.opaque_data_len < 80 ? (int)frame->goaway.opaque_data_len : 80,
             frame->goaway.opaque_data_len > 0 ? (const char *)frame->goaway.opaque_data : "");
    rv_make_readable(session->reason);
  }
  if (session->server) return; /* it only says that the server will open no more streams */
  bool first = !session->shutting_down;
  session->shutting_down = true;
  if (first && session->owner != NULL) session->events->on_goaway(session->owner, session);
}

static void on_data(rv_session *session, const nghttp2_frame *frame)
{
  if ((frame->hd.flags & (NGHTTP2_FLAG_END_STREAM | NGHTTP2_FLAG_PADDED)) == 0) return;
  rv_call *call = find_call(session, frame->hd.stream_id);
  if (call == NULL) return;
  if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0)
    rv_call_peer_done(call);
  else
    rv_call_top_up(call); /* for the padding, of which on_data_chunk does not hear */
}

static int on_frame_recv(nghttp2_session *http, const nghttp2_frame *frame, void *user_data)
{
  (void)http;
  rv_session *session = user_data;
  switch (frame->hd.type) {
  case NGHTTP2_SETTINGS: on_settings(session, frame); break;
  case NGHTTP2_HEADERS: on_headers(session, frame); break;
  case NGHTTP2_GOAWAY: on_goaway(session, frame); break;
  case NGHTTP2_DATA: on_data(session, frame); break;
  default: break;
  }
  return session->lost ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_data_chunk(nghttp2_session *http, uint8_t flags, int32_t stream_id, const uint8_t *data, size_t size,
                         void *user_data)
{
  (void)flags;
  rv_session *session = user_data;
  session->useful = true;
  session->frame_left = size < session->frame_left ? session->frame_left - size : 0;
  session->frame_heard = true;
  if (nghttp2_session_consume_connection(http, size) != 0) return NGHTTP2_ERR_CALLBACK_FAILURE;
  rv_call *call = find_call(session, stream_id);
  if (call != NULL) rv_call_received(call, data, size);
  return session->lost ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_stream_close(nghttp2_session *http, int32_t stream_id, uint32_t error_code, void *user_data)
{
  (void)http;
  rv_session *session = user_data;
  rv_call *call = find_call(session, stream_id);
  if (call != NULL) call->stream_id = 0;
  if (session->server) {
    if (call != NULL) rv_call_end(call, RV_CANCELLED, "the client cancelled the call", RV_NO_RESET, false);
    return 0;
  }
  if (session->num_streams > 0) session->num_streams--;
  session->room_changed = true;
  rv_session_touch(session);
  if (call != NULL) rv_call_reset_by_peer(call, error_code);
  if (session->num_streams == 0 && rv_session_is_spent(session)) rv_session_shut_down(session);
  return 0;
}

static int on_error(nghttp2_session *http, int code, const char *message, size_t size, void *user_data)
{
  (void)http, (void)code;
  rv_session *session = user_data;
  snprintf(session->error, sizeof session->error, "%.*s", size < 120 ? (int)size : 120, message);
  rv_make_readable(session->error); /* it may have a header of the peer's */
  return 0;
}

/* ---- sending ---- */

static ssize_t on_read_length(nghttp2_session *http, uint8_t frame_type, int32_t stream_id, int32_t session_window,
                              int32_t stream_window, uint32_t max_frame, void *user_data)
{
  (void)http, (void)frame_type, (void)session_window, (void)stream_window, (void)max_frame;
  const rv_call *call = find_call(user_data, stream_id);
  /* nghttp2 sizes a buffer by this, which it keeps: connections that send only small messages stay small. */
  return call != NULL && call->sendq.bytes > 16384 ? RV_SEND_FRAME : 16384;
}

static ssize_t read_source(nghttp2_session *http, int32_t stream_id, uint8_t *to, size_t size, uint32_t *flags,
                           nghttp2_data_source *source, void *user_data)
{
  (void)http, (void)to, (void)source;
  rv_session *session = user_data;
  rv_call *call = find_call(session, stream_id);
  if (call == NULL) return NGHTTP2_ERR_DEFERRED; /* a reset is on its way */
  if (session->output.bytes >= RV_OUTPUT_HIGH) return NGHTTP2_ERR_PAUSE;
  if (size > call->sendq.bytes) size = call->sendq.bytes;
  if (size == 0 && !call->no_more) {
    call->data_deferred = true;
    return NGHTTP2_ERR_DEFERRED;
  }
  if (size > 0) *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (size == call->sendq.bytes && call->no_more) {
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (call->server) {
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      rv_call_submit_trailers(call);
    }
  }
  return session->lost ? NGHTTP2_ERR_CALLBACK_FAILURE : (ssize_t)size;
}

const nghttp2_data_provider rv_session_data_provider = {.read_callback = read_source};

static int on_send_data(nghttp2_session *http, nghttp2_frame *frame, const uint8_t *header, size_t size,
                        nghttp2_data_source *source, void *user_data)
{
  (void)http, (void)source;
  rv_session *session = user_data;
  rv_call *call = find_call(session, frame->hd.stream_id);
  if (session->lost) return NGHTTP2_ERR_CALLBACK_FAILURE;
  if (call == NULL) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  if (!rv_output_copy(&session->output, header, 9) || !rv_sendq_move(&call->sendq, size, &session->output)) {
    rv_session_lose(session, "out of memory");
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  if (session->server) {
    session->queued_bytes -= size;
    if (call->no_more) session->answer_bytes -= size;
  }
  if (call->was_full && call->sendq.bytes < RV_LOW_WATER) {
    call->was_full = false;
    rv_call_due(call, RV_DUE_WRITABLE);
  }
  return 0;
}

static int on_frame_send(nghttp2_session *http, const nghttp2_frame *frame, void *user_data)
{
  rv_session *session = user_data;
  if (!session->server || frame->hd.type != NGHTTP2_HEADERS || (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return 0;
  rv_call *call = find_call(session, frame->hd.stream_id);
  if (call != NULL) rv_call_end(call, RV_OK, NULL, RV_NO_RESET, false);
  /* A client that has not half-closed would keep its end open: this tells it that nobody listens. */
  if (nghttp2_session_get_stream_remote_close(http, frame->hd.stream_id) == 0)
    rv_session_check(session, nghttp2_submit_rst_stream(http, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR));
  return session->lost ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

/* ---- making one ---- */

static nghttp2_session_callbacks *make_callbacks(void)
{
  nghttp2_session_callbacks *callbacks;
  if (nghttp2_session_callbacks_new(&callbacks) != 0) return NULL;
  nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
  nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
  nghttp2_session_callbacks_set_error_callback2(callbacks, on_error);
  nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, on_read_length);
  nghttp2_session_callbacks_set_send_data_callback(callbacks, on_send_data);
  nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_send);
  return callbacks;
}

static nghttp2_option *make_options(void)
{
  nghttp2_option *option;
  if (nghttp2_option_new(&option) != 0) return NULL;
  nghttp2_option_set_no_auto_window_update(option, 1);
  nghttp2_option_set_no_closed_streams(option, 1);
  nghttp2_option_set_max_outbound_ack(option, RV_OUTBOUND_ACKS);
  nghttp2_option_set_stream_reset_rate_limit(option, RV_RESET_BURST, RV_RESETS_PER_SECOND);
  return option;
}

static int greet(rv_session *session, nghttp2_session *http, size_t max_streams)
{
  nghttp2_settings_entry entry[6];
  size_t count = 0;
  entry[count++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, RV_STREAM_WINDOW};
  entry[count++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_FRAME_SIZE, RV_MAX_FRAME};
  entry[count++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, RV_MAX_HEADER_LIST};
  entry[count++] = (nghttp2_settings_entry){RV_SETTING_SIGNS_OF_LIFE, 1};
  uint32_t streams = max_streams > INT32_MAX ? INT32_MAX : (uint32_t)max_streams;
  if (session->server)
    entry[count++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, streams};
  else
    entry[count++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_ENABLE_PUSH, 0};
  int rc = nghttp2_submit_settings(http, NGHTTP2_FLAG_NONE, entry, count);
  return rc != 0 ? rc : nghttp2_session_set_local_window_size(http, NGHTTP2_FLAG_NONE, 0, RV_CONNECTION_WINDOW);
}

nghttp2_session *rv_session_http_new(rv_session *session, size_t max_streams)
{
  nghttp2_session *http = NULL;
  nghttp2_session_callbacks *callbacks = make_callbacks();
  nghttp2_option *option = make_options();
  if (callbacks != NULL && option != NULL) {
    int rc = session->server ? nghttp2_session_server_new2(&http, callbacks, session, option)
                             : nghttp2_session_client_new2(&http, callbacks, session, option);
    if (rc != 0) http = NULL;
  }
  nghttp2_session_callbacks_del(callbacks);
  nghttp2_option_del(option);
  if (http != NULL && greet(session, http, max_streams) != 0) {
    nghttp2_session_del(http);
    http = NULL;
  }
  return http;
}
