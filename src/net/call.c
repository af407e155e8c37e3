/* What both ends of a call share: queues, pausing, deadlines, and the end. */
#include "net/call.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/error.h"

rv_code rv_check_max_message(size_t max_message_bytes, rv_error *err)
{
  if (max_message_bytes == 0 || max_message_bytes >= RV_LEAST_MAX_MESSAGE) return RV_OK;
  return rv_fail(err, RV_INVALID_ARGUMENT, "max_message_bytes is %zu; give at least %zu, or 0 for the default of 256 MiB",
                 max_message_bytes, RV_LEAST_MAX_MESSAGE);
}

/* Bytes of messages one connection may have us hold, over all its calls: several of the largest. */
static size_t held_limit(const rv_session *session)
{
  size_t most = session->max_message_bytes;
  return most > (SIZE_MAX >> 3) ? SIZE_MAX : most * 4 > ((size_t)1 << 30) ? most * 4 : (size_t)1 << 30;
}

/* ---- messages that wait ---- */

/* Beside its bytes; a message may have none. */
enum { HELD_BOOKS = sizeof(rv_buf) + sizeof(rv_buf *) };

static void remember(rv_call *call, size_t bytes)
{
  call->held_bytes += bytes;
  call->session->held_bytes += bytes;
}

static void forget(rv_call *call, size_t bytes)
{
  call->held_bytes -= bytes;
  if (call->session != NULL) call->session->held_bytes -= bytes;
}

static void count_half(rv_call *call)
{
  size_t bytes = call->paused ? 0 : rv_message_reader_have(&call->reader);
  if (call->session != NULL) call->session->half_bytes += bytes - call->half_bytes; /* modulo 2^N */
  call->half_bytes = bytes;
}

static void drop_half(rv_call *call)
{
  rv_message_reader_fini(&call->reader);
  count_half(call);
}

static bool hold(rv_call *call, rv_buf *owned_message)
{
  rv_held *held = &call->held;
  if (held->count == held->capacity) {
    size_t capacity = held->capacity == 0 ? 8 : held->capacity * 2;
    rv_buf **ring = malloc(capacity * sizeof(rv_buf *));
    if (ring == NULL) {
      rv_buf_unref(owned_message);
      return false;
    }
    for (size_t i = 0; i < held->count; i++) ring[i] = held->message[(held->head + i) % held->capacity];
    free(held->message);
    *held = (rv_held){.message = ring, .count = held->count, .capacity = capacity};
  }
  remember(call, HELD_BOOKS);
  held->message[(held->head + held->count++) % held->capacity] = owned_message;
  return true;
}

static rv_buf *take_held(rv_call *call)
{
  rv_held *held = &call->held;
  forget(call, HELD_BOOKS);
  rv_buf *message = held->message[held->head];
  held->head = (held->head + 1) % held->capacity;
  held->count--;
  return message;
}

static void drop_received(rv_call *call)
{
  while (call->held.count > 0) rv_buf_unref(take_held(call));
  drop_half(call);
  forget(call, call->held_bytes);
}

void rv_call_drop_queued(rv_call *call)
{
  if (call->server && call->session != NULL) {
    call->session->queued_bytes -= call->sendq.bytes;
    if (call->no_more) call->session->answer_bytes -= call->sendq.bytes;
  }
  rv_sendq_fini(&call->sendq);
}

static bool wants_messages(const rv_call *call)
{
  return !(call->server && (call->no_more || call->over));
}

static void hand_over(rv_call *call, rv_buf *owned_message)
{
  forget(call, RV_MESSAGE_PREFIX + owned_message->size);
  call->delivering = call->delivered = true;
  call->message_at_hand = owned_message;
  call->events->on_message(call, call->user, owned_message, owned_message->data, owned_message->size);
  call->message_at_hand = NULL;
  call->delivering = false;
  rv_buf_unref(owned_message);
}

static void tell_half_close(rv_call *call)
{
  if (!call->server || !call->peer_done || call->half_close_told || call->held.count > 0 || call->paused || call->over) return;
  call->half_close_told = true;
  if (call->events->on_half_close != NULL) call->events->on_half_close(call, call->user);
}

static void deliver(rv_call *call)
{
  if (call->delivering) return;
  while (call->held.count > 0 && !call->paused && wants_messages(call)) hand_over(call, take_held(call));
  tell_half_close(call);
  rv_call_top_up(call);
}

/* Bytes that the peer may still send on the stream. Padding counts, which nobody here hears of, so nghttp2 is asked; it goes by the settings that
 * the peer has acknowledged, the peer by those it was sent. */
static int64_t credit_of(const rv_call *call)
{
  nghttp2_session *http = call->session->http;
  int64_t credit = nghttp2_session_get_stream_local_window_size(http, call->stream_id);
  int64_t acknowledged = nghttp2_session_get_local_settings(http, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE);
  return credit < 0 ? RV_STREAM_WINDOW : credit + RV_STREAM_WINDOW - acknowledged; /* < 0: the stream is not open yet */
}

/* What a paused call of a server's holds is the server's memory, lent or not: so only a few of each loop may bring so much, until they end. They
 * are the first that have brought half a window, and messages that may have been lent, at whatever pace. */
static void widen(rv_call *call, int64_t credit)
{
  rv_loop *loop = call->loop;
  if (!call->server || call->is_wide || call->no_more || !call->brings_large) return;
  if (!call->session->transport.borrows || credit > RV_STREAM_WINDOW / 2 || loop->num_wide == RV_MOST_WIDE) return;
  call->is_wide = true;
  loop->num_wide++;
}

static int64_t window_of(const rv_call *call)
{
  bool wide = call->server ? call->is_wide : call->session->transport.borrows;
  return wide ? RV_BORROWED_WINDOW : RV_STREAM_WINDOW;
}

void rv_call_top_up(rv_call *call)
{
  if (call->paused || call->over || call->peer_done || call->stream_id == 0) return;
  int64_t credit = credit_of(call);
  widen(call, credit);
  int64_t window = window_of(call), missing = (int64_t)rv_message_reader_missing(&call->reader), want = window;
  if (missing > want) want = missing < INT64_C(1) << 30 ? missing : INT64_C(1) << 30;
  int64_t more = want - credit;
  if (more < window / 2) return;
  int rc = nghttp2_submit_window_update(call->session->http, NGHTTP2_FLAG_NONE, call->stream_id, (int32_t)more);
  rv_session_touch(call->session);
  rv_session_check(call->session, rc); /* the call may be over */
}

static void give_up(rv_call *call, rv_code code, const char *text)
{
  if (call->server)
    rv_call_reject(call, code, text);
  else
    rv_call_end(call, code, text, NGHTTP2_CANCEL, false);
}

/* What has come, or the rest of it, is not delivered. */
static void refuse(rv_call *call, rv_code code, const char *format, ...) RV_PRINTF(3, 4);
static void refuse(rv_call *call, rv_code code, const char *format, ...)
{
  char text[RV_ERROR_MESSAGE_MAX];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (!call->server || !call->delivered || call->events->on_refused == NULL) {
    give_up(call, code, text);
    return;
  }
  drop_received(call);
  call->events->on_refused(call, call->user, code, text);
}

static size_t max_message_of(const rv_call *call)
{
  return call->most_bytes > 0 ? call->most_bytes : call->session->max_message_bytes;
}

static void refuse_message(rv_call *call, rv_message_reader_result result)
{
  const char *who = call->server ? "server" : "client";
  size_t most = max_message_of(call);
  if (result == RV_READER_TOO_LARGE && call->most_bytes > 0)
    refuse(call, RV_RESOURCE_EXHAUSTED, "a message of %lu bytes is larger than this method takes (%zu)",
           (unsigned long)call->reader.size, most);
  else if (result == RV_READER_TOO_LARGE)
    refuse(call, RV_RESOURCE_EXHAUSTED,
           "a message of %lu bytes is larger than this %s takes (%zu); send smaller ones or raise max_message_bytes",
           (unsigned long)call->reader.size, who, most);
  else if (result == RV_READER_COMPRESSED)
    refuse(call, call->server ? RV_UNIMPLEMENTED : RV_INTERNAL,
           "the message is compressed, which this %s does not read; supported encodings: identity", who);
  else if (result == RV_READER_BAD_FLAG)
    refuse(call, RV_INTERNAL, "the message begins with flag %u, which gRPC does not know", (unsigned)call->reader.prefix[0]);
  else /* what came before it may have happened, though it was not answered yet: then it is not RESOURCE_EXHAUSTED */
    refuse(call, call->server && call->delivered ? RV_UNAVAILABLE : RV_RESOURCE_EXHAUSTED,
           "out of memory for a message of %lu bytes", (unsigned long)call->reader.size);
}

void rv_call_received(rv_call *call, const uint8_t *data, size_t size)
{
  rv_session *session = call->session;
  if (!wants_messages(call) || call->over || session->recalled) return;
  remember(call, size);
  if (session->held_bytes > held_limit(session)) {
    /* That others of the connection wait is no fault of an item: what came in an insert stream may come again. */
    const bool comes_again = call->server && call->events->on_refused != NULL;
    refuse(call, comes_again ? RV_UNAVAILABLE : RV_RESOURCE_EXHAUSTED,
           "this connection has %zu bytes of messages waiting, and no more are kept; read or send slower", session->held_bytes);
    return;
  }
  while (size > 0 && !call->over && wants_messages(call) && !session->recalled) {
    rv_buf *message = NULL;
    rv_message_reader_result result = rv_message_reader_take(&call->reader, &data, &size, max_message_of(call), &message);
    if (result == RV_READER_MORE) break;
    if (result != RV_READER_MESSAGE) {
      refuse_message(call, result);
      return;
    }
    call->half_seen = 0;
    call->brings_large = call->brings_large || message->size >= RV_SPARE_MIN;
    /* what the peer took back before it sent this is over before this is heard */
    bool later = session->num_closing > 0;
    bool at_once = !call->paused && call->held.count == 0 && !later;
    if (!at_once && message == session->gapped && !rv_session_fill_gaps(session)) {
      rv_buf_unref(message); /* the connection is about to be lost */
      return;
    }
    if (at_once) {
      hand_over(call, message);
    } else if (!hold(call, message)) {
      refuse_message(call, RV_READER_NO_MEMORY);
      return;
    }
    if (later) rv_call_due(call, RV_DUE_DELIVER);
  }
  count_half(call);
  if (rv_half_message_must_end(call))
    rv_call_end_half_message(call, "this one has to make room");
  else
    rv_call_top_up(call);
}

void rv_call_end_half_message(rv_call *call, const char *why)
{
  rv_session *session = call->session;
  if (wants_messages(call))
    refuse(call, RV_UNAVAILABLE,
           "the server's connections have %zu bytes of messages that have come in part, too many for its memory, and %s; send it "
           "again",
           atomic_load(&session->half->bytes), why);
  else
    drop_half(call);                 /* nobody waits for it */
  rv_session_count_waiting(session); /* now, or others end for the same bytes */
}

void rv_call_peer_done(rv_call *call)
{
  call->peer_done = true;
  if (!call->server) {
    rv_call_response_done(call);
  } else if (wants_messages(call) && !rv_message_reader_is_between(&call->reader)) {
    rv_call_reject(call, RV_INTERNAL, "the request ended in the middle of a message");
  } else {
    tell_half_close(call);
  }
}

/* ---- life ---- */

static void on_deadline(rv_timer *timer)
{
  rv_call *call = RV_CONTAINER(timer, rv_call, timer);
  int64_t ms = (call->deadline_ns - call->started_ns + 999999) / 1000000;
  char text[RV_ERROR_MESSAGE_MAX], state[400] = "";
  if (call->channel != NULL && call->session == NULL) rv_channel_state(call->channel, state, sizeof state);
  snprintf(text, sizeof text, "Deadline Exceeded: the call was not over within %lld ms%s%s", (long long)ms,
           state[0] != '\0' ? "; " : "", state);
  if (call->server)
    rv_call_reject(call, RV_DEADLINE_EXCEEDED, text);
  else
    rv_call_end(call, RV_DEADLINE_EXCEEDED, text, NGHTTP2_CANCEL, false);
}

static void run_due(rv_task *task);

rv_call *rv_call_new(rv_loop *loop, bool server)
{
  rv_call *call = calloc(1, sizeof *call);
  if (call == NULL) return NULL;
  call->loop = loop;
  call->server = server;
  call->deadline_ns = INT64_MAX;
  rv_message_reader_init(&call->reader);
  call->reader.spares = loop->spares;
  call->reader.lends = server;
  rv_list_init(&call->link);
  rv_list_init(&call->channel_link);
  rv_task_init(&call->task, run_due);
  rv_timer_init(&call->timer, loop, on_deadline);
  return call;
}

void rv_call_free(rv_call *call)
{
  drop_received(call);
  rv_timer_stop(&call->timer);
  rv_list_remove(&call->link);
  rv_list_remove(&call->channel_link);
  rv_list_remove(&call->task.link);
  rv_call_drop_queued(call);
  free(call->held.message);
  rv_metadata_store_fini(&call->received);
  rv_metadata_store_fini(&call->to_send);
  if (call->session != NULL) rv_session_unref(call->session);
  free(call->path);
  free(call->message);
  free(call);
}

void rv_call_start_deadline(rv_call *call)
{
  if (call->deadline_ns != INT64_MAX) rv_timer_start(&call->timer, call->deadline_ns);
}

void rv_call_due(rv_call *call, unsigned due)
{
  call->due |= due;
  rv_loop_defer(call->loop, &call->task);
}

static void run_due(rv_task *task)
{
  rv_call *call = RV_CONTAINER(task, rv_call, task);
  unsigned due = call->due;
  call->due = 0;
  if (call->events != NULL && (due & RV_DUE_WRITABLE) != 0 && !call->over && call->events->on_writable != NULL)
    call->events->on_writable(call, call->user);
  if (call->events != NULL && (due & RV_DUE_DELIVER) != 0) deliver(call);
  if (!call->over || call->held.count > 0) return; /* held: it is paused */
  if (call->closing) call->session->num_closing--;
  if (call->events != NULL) call->events->on_close(call, call->user, call->code, call->message == NULL ? "" : call->message);
  rv_call_free(call);
}

void rv_call_end(rv_call *call, rv_code code, const char *message, uint32_t reset, bool deliver_rest)
{
  if (call->over) return;
  int rc = 0;
  call->over = true;
  call->code = code;
  char *copy = message == NULL || message[0] == '\0' ? NULL : strdup(message);
  free(call->message);
  call->message = copy;
  rv_timer_stop(&call->timer);
  rv_list_remove(&call->link);
  if (call->stream_id != 0 && call->session->http != NULL) {
    nghttp2_session_set_stream_user_data(call->session->http, call->stream_id, NULL);
    if (reset != RV_NO_RESET) rc = nghttp2_submit_rst_stream(call->session->http, NGHTTP2_FLAG_NONE, call->stream_id, reset);
    rv_session_touch(call->session);
  }
  call->stream_id = 0;
  rv_call_drop_queued(call);
  if (call->is_small) call->session->num_small--;
  if (call->is_wide) call->loop->num_wide--;
  call->is_small = call->is_wide = false;
  if (call->server && !call->closing) {
    call->closing = true;
    call->session->num_closing++;
  }
  if (!deliver_rest)
    drop_received(call);
  else
    drop_half(call);
  rv_call_due(call, RV_DUE_DELIVER | RV_DUE_CLOSE);
  if (rc != 0) rv_session_check(call->session, rc);
}

/* ---- net.h ---- */

rv_loop *rv_call_loop(rv_call *call)
{
  return call->loop;
}

const rv_gaps *rv_call_gaps(const rv_call *call)
{
  const rv_session *session = call->session;
  return session->gapped != NULL && session->gapped == call->message_at_hand ? &session->loop->gaps : NULL;
}

bool rv_call_fill_gaps(rv_call *call)
{
  return rv_session_fill_gaps(call->session);
}

bool rv_call_give_back(rv_call *call)
{
  return rv_session_give_back(call->session);
}

bool rv_call_has_status(const rv_call *call)
{
  return call->has_status;
}
void rv_call_drop_metadata(rv_call *call)
{
  rv_metadata_store_fini(&call->received);
}

void rv_call_take_at_most(rv_call *call, size_t most)
{
  if (most < call->session->max_message_bytes) call->most_bytes = most;
}

bool rv_call_keep_small(rv_call *call, size_t most, size_t at_once, int64_t lasts_ms)
{
  rv_call_drop_metadata(call);
  if (call->session->num_small >= at_once) return false;
  call->session->num_small++;
  call->is_small = true;
  rv_call_take_at_most(call, most);
  int64_t end = call->started_ns + lasts_ms * 1000000;
  if (lasts_ms > 0 && end < call->deadline_ns) call->deadline_ns = end; /* which begins to count when on_call has returned */
  return true;
}

void rv_call_count_kept(rv_call *call, size_t bytes)
{
  if (call->session == NULL) return;
  remember(call, bytes);
}

const char *rv_call_metadata(rv_call *call, const char *name)
{
  return rv_metadata_store_get(&call->received, name);
}
const char *rv_call_peer(rv_call *call)
{
  return call->session == NULL ? "unknown" : call->session->peer;
}
bool rv_call_is_late(rv_call *call)
{
  return call->session != NULL && rv_loop_is_late(call->loop, call->session->since_ns);
}
size_t rv_call_answers_unsent(const rv_call *call)
{
  return call->session != NULL ? call->session->answer_bytes : 0;
}
const char *rv_call_peer_name(rv_call *call)
{
  rv_session *session = call->session;
  return session == NULL || session->transport.ops == NULL ? "" : session->transport.ops->peer_name(&session->transport);
}
bool rv_call_is_over(const rv_call *call)
{
  return call->over;
}

size_t rv_call_queued(const rv_call *call)
{
  return call->sendq.bytes;
}

void rv_call_wake_source(rv_call *call)
{
  if (!call->data_deferred) return;
  call->data_deferred = false;
  int rc = nghttp2_session_resume_data(call->session->http, call->stream_id);
  rv_session_touch(call->session);
  rv_session_check(call->session, rc);
}

void rv_call_send(rv_call *call, rv_pieces *pieces)
{
  RV_LOOP_CHECK(call->loop);
  if (call->over || call->no_more) {
    rv_pieces_fini(pieces);
    return;
  }
  size_t bytes = RV_MESSAGE_PREFIX + pieces->bytes;
  if (!rv_sendq_push(&call->sendq, pieces)) {
    rv_pieces_fini(pieces);
    bool large = bytes > UINT32_MAX; /* else what an answer is about may have happened: not RESOURCE_EXHAUSTED */
    char text[RV_ERROR_MESSAGE_MAX];
    snprintf(text, sizeof text, "a message of %zu bytes could not be queued: %s", bytes - RV_MESSAGE_PREFIX,
             large ? "gRPC's messages are smaller than 4 GiB" : "out of memory");
    give_up(call, large || !call->server ? RV_RESOURCE_EXHAUSTED : RV_UNAVAILABLE, text);
    return;
  }
  if (call->server) {
    call->session->queued_bytes += bytes;
    rv_session_count_waiting(call->session);
  }
  if (call->sendq.bytes >= RV_LOW_WATER) call->was_full = true;
  if (call->server && !call->headers_sent)
    rv_call_submit_headers(call);
  else
    rv_call_wake_source(call);
}

void rv_call_half_close(rv_call *call)
{
  RV_LOOP_CHECK(call->loop);
  if (call->server || call->over || call->no_more) return;
  call->no_more = true;
  rv_call_wake_source(call);
}

bool rv_call_hand_on(rv_call *call, const rv_call_events *events, void *user)
{
  RV_LOOP_CHECK(call->loop);
  if (call->server || call->over || call->no_more || call->peer_done) return false;
  call->events = events;
  call->user = user;
  return true;
}

void rv_call_cancel(rv_call *call)
{
  RV_LOOP_CHECK(call->loop);
  if (call->over) {
    if (call->held.count == 0) return; /* on_close is on its way */
    drop_received(call);               /* it waits for its messages to be taken: nobody wants them */
    call->code = RV_CANCELLED;
    rv_call_due(call, RV_DUE_CLOSE);
    return;
  }
  rv_call_end(call, RV_CANCELLED, "the call was cancelled", NGHTTP2_CANCEL, false);
}

void rv_call_pause(rv_call *call)
{
  call->paused = true;
  count_half(call);
}

void rv_call_resume(rv_call *call)
{
  RV_LOOP_CHECK(call->loop);
  if (!call->paused) return;
  call->paused = false;
  count_half(call);
  rv_call_due(call, RV_DUE_DELIVER);
}
