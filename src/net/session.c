#include "net/session.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/error.h"
#include "net/call.h"
#include "net/guest.h"

enum {
  READ_TURN = 4 << 20, /* bytes a connection may read before others get their turn */
  FRAME_COSTS = 1024,  /* bytes of a turn, besides its own: small frames take a hundred times as long */
  WRITE_TURN = 4 << 20,
  BULK_READ = 16 << 10,     /* so much at a time is part of something large */
  DIRECT_READ = 4 << 10,    /* from here on receiving into a message's own buffer is worth a second piece */
  FED_AT_ONCE = 4 << 10,    /* by a server, before it looks how much there is to answer */
  CREDIT_EVERY = 256 << 10, /* of a turn: then the peer is told what it may send on, so that both ends work at a time */
  BEHIND_DIRECT = 4 << 10   /* what follows is received with it: the next frame's header, or all of something small */
};

rv_session *rv_session_ref(rv_session *session)
{
  session->refs++;
  return session;
}

void rv_session_unref(rv_session *session)
{
  if (--session->refs == 0) free(session);
}

void rv_session_disown(rv_session *session)
{
  session->owner = NULL;
}

void rv_session_touch(rv_session *session)
{
  if (session->state != RV_SESSION_GONE) rv_loop_defer_flush(session->loop, &session->flush_task);
}

size_t rv_session_room(const rv_session *session)
{
  if (!session->ready || session->shutting_down || session->lost || session->state != RV_SESSION_OPEN) return 0;
  if (nghttp2_session_check_request_allowed(session->http) == 0) return 0;
  size_t most = nghttp2_session_get_remote_settings(session->http, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
  return most > session->num_streams ? most - session->num_streams : 0;
}

bool rv_session_is_spent(const rv_session *session)
{
  return nghttp2_session_get_next_stream_id(session->http) > INT32_MAX;
}

/* ---- the end ---- */

static void end_calls(rv_session *session, const char *message)
{
  while (!rv_list_empty(&session->calls)) {
    rv_call *call = RV_CONTAINER(session->calls.next, rv_call, link);
    if (session->server)
      rv_call_end(call, RV_CANCELLED, message, RV_NO_RESET, false);
    else
      rv_call_end(call, RV_UNAVAILABLE, message, RV_NO_RESET, true);
  }
}

void rv_session_lose(rv_session *session, const char *format, ...)
{
  if (session->lost || session->state == RV_SESSION_GONE) return;
  session->lost = true;
  if (session->reason[0] == '\0') {
    char text[sizeof session->reason];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *what = session->server ? "the connection from" : "the connection to";
    if (session->server || session->ready)
      snprintf(session->reason, sizeof session->reason, "%s %.80s was lost: %.120s", what,
               session->server ? session->peer : session->address, text);
    else
      snprintf(session->reason, sizeof session->reason, "%s", text);
  }
  end_calls(session, session->reason);
  rv_session_touch(session);
}

void rv_session_check(rv_session *session, int http_code)
{
  if (http_code < 0 && nghttp2_is_fatal(http_code)) rv_session_lose(session, "%s", nghttp2_strerror(http_code));
}

static void recount(atomic_size_t *all, size_t *counted, size_t bytes)
{
  if (bytes == *counted) return;
  atomic_fetch_add_explicit(all, bytes - *counted, memory_order_relaxed); /* modulo 2^N */
  *counted = bytes;
}

void rv_session_count_waiting(rv_session *session)
{
  rv_loop *loop = session->loop;
  bool gone = session->state == RV_SESSION_GONE;
  if (session->half != NULL) recount(&session->half->bytes, &session->counted_half, gone ? 0 : session->half_bytes);
  recount(&loop->held_bytes, &session->counted_held, gone ? 0 : session->held_bytes);
  recount(&loop->unsent_bytes, &session->counted_unsent, gone ? 0 : session->queued_bytes + session->output.bytes);
  recount(&loop->lent_bytes, &session->counted_lent, gone ? 0 : session->transport.lent);
}

static void on_poll_closed(uv_handle_t *handle)
{
  rv_session *session = handle->data;
  rv_session_unref(session);
}

static void close_now(rv_session *session)
{
  session->state = RV_SESSION_GONE;
  rv_timer_stop(&session->timer);
  rv_timer_stop(&session->pulse);
  rv_list_remove(&session->flush_task.link);
  rv_list_remove(&session->look_task.link);
  rv_list_remove(&session->link);
  rv_list_remove(&session->owner_link);
  end_calls(session, session->reason);
  if (rv_loop_has_sitter(session->loop)) rv_loop_knock(session->loop); /* the system closes nothing that somebody waits at */
  uv_poll_stop(&session->poll);
  uv_close((uv_handle_t *)&session->poll, on_poll_closed); /* before the descriptor's number can be another's */
  if (session->write_blocked && !session->transport.write_awaits_readable) rv_socket_reset_when_closed(session->transport.fd);
  session->transport.ops->close(&session->transport);
  nghttp2_session_del(session->http);
  session->http = NULL;
  rv_buf_unref(session->kept);
  session->kept = NULL;
  rv_output_fini(&session->output);
  rv_session_count_waiting(session);
  if (session->owner != NULL) session->events->on_gone(session->owner, session, session->ready, session->reason);
}

static void close_with_loop(rv_link *link)
{
  rv_session *session = RV_CONTAINER(link, rv_session, link);
  rv_session_lose(session, "its event loop has ended");
  close_now(session);
}

static void on_timer(rv_timer *timer)
{
  rv_session *session = RV_CONTAINER(timer, rv_session, timer);
  const bool waits = !session->ready && !session->shutting_down && session->state == RV_SESSION_OPEN;
  if (waits) rv_session_receive(session); /* this thread may itself have stood still */
  if (session->lost || (waits && session->ready)) return;
  rv_socket_reset_when_closed(session->transport.fd);
  if (session->ready || session->server)
    rv_session_lose(session, session->ready ? "the peer does not read" : "the peer did not begin to speak HTTP/2 within %g s",
                    (double)RV_HANDSHAKE_NS * 1e-9);
  else
    rv_session_lose(
        session,
        "the peer at %.120s accepts connections but does not answer as an HTTP/2 (gRPC) server; is it a Reverie or Reverb "
        "server, and not overloaded?",
        session->address);
}

void rv_session_shut_down(rv_session *session)
{
  if (session->shutting_down || session->lost || session->state != RV_SESSION_OPEN) return;
  session->shutting_down = true;
  static const char why[] = "Server shutdown";
  rv_session_check(session,
                   nghttp2_submit_goaway(session->http, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session->http),
                                         NGHTTP2_NO_ERROR, session->server ? (const uint8_t *)why : NULL,
                                         session->server ? sizeof why - 1 : 0));
  rv_session_touch(session);
}

void rv_session_finish(rv_session *session, rv_code code, const char *message)
{
  if (session->lost || session->state != RV_SESSION_OPEN) return;
  while (!rv_list_empty(&session->calls)) {
    rv_call *call = RV_CONTAINER(session->calls.next, rv_call, link);
    if (session->server)
      rv_call_reject(call, code, message);
    else
      rv_call_end(call, code, message, NGHTTP2_CANCEL, false);
  }
  rv_session_shut_down(session);
  rv_timer_start(&session->timer, rv_monotonic_ns(&session->loop->env) + RV_LINGER_NS);
}

/* All is written: waits for the peer to close, so that closing does not destroy what is still on its way to it. */
static void linger(rv_session *session)
{
  session->state = RV_SESSION_LINGERING;
  if (session->reason[0] == '\0' && !session->shutting_down && session->error[0] != '\0')
    snprintf(session->reason, sizeof session->reason, "the peer at %.80s broke the HTTP/2 protocol: %s", session->address,
             session->error);
  if (session->reason[0] == '\0') snprintf(session->reason, sizeof session->reason, "the connection was closed");
  end_calls(session, session->reason);
  session->transport.ops->shut_down(&session->transport);
  rv_timer_start(&session->timer, rv_monotonic_ns(&session->loop->env) + RV_LINGER_NS);
}

/* ---- sending ---- */

static bool gather(rv_session *session)
{
  while (session->output.bytes < RV_OUTPUT_HIGH) {
    const uint8_t *data = NULL;
    ssize_t n = nghttp2_session_mem_send(session->http, &data);
    if (session->lost) return false;
    if (n == 0) return true;
    if (n < 0 || !rv_output_copy(&session->output, data, (size_t)n)) {
      rv_session_lose(session, "sending failed: %s", n < 0 ? nghttp2_strerror((int)n) : "out of memory");
      return false;
    }
  }
  return true;
}

static void read_rest(rv_session *session);

static const char *problem_of(const rv_session *session, int error)
{
  return session->transport.problem != NULL ? session->transport.problem : strerror(error);
}

static void write_failed(rv_session *session, int error)
{
  read_rest(session); /* the peer may have said why */
  rv_session_lose(session, "%s", problem_of(session, error));
}

/* Until the socket takes no more, nothing is left, or `most` bytes are sent. */
static void send_some(rv_session *session, size_t most)
{
  bool was_blocked = session->write_blocked;
  session->write_blocked = false;
  for (size_t sent = 0; gather(session) && session->output.bytes > 0;) {
    ssize_t n = rv_output_write(&session->output, &session->transport);
    if (n == -EAGAIN) {
      session->write_blocked = true;
      return;
    }
    if (n < 0) {
      write_failed(session, (int)-n);
      return;
    }
    session->heard = session->heard || was_blocked; /* room comes with what the peer takes */
    sent += (size_t)n;
    if (sent >= most) {
      rv_session_touch(session);
      return;
    }
  }
}

static void send_all(rv_session *session)
{
  send_some(session, WRITE_TURN);
}

static void on_poll(uv_poll_t *poll, int status, int events);

/* More waits to be sent than what comes next should add to. */
static bool has_much_to_send(const rv_session *session)
{
  size_t most = session->server ? RV_SERVER_OUTBOUND_FRAMES : RV_OUTBOUND_FRAMES;
  return nghttp2_session_get_outbound_queue_size(session->http) > most;
}

static void read_soon(rv_session *session)
{
  if (session->lost || session->reads_on) return;
  session->reads_on = true;
  rv_session_ref(session);
  rv_loop_post(session->loop, &session->read_task);
}

static void choose_events(rv_session *session)
{
  rv_session_count_waiting(session);
  const rv_transport *transport = &session->transport;
  bool stuck = session->write_blocked && has_much_to_send(session), flooded = stuck && !transport->write_awaits_readable;
  if (!stuck && (session->kept != NULL || session->stalled)) read_soon(session);
  bool write = (session->write_blocked && !transport->write_awaits_readable) || transport->read_awaits_writable;
  int events = (flooded ? 0 : UV_READABLE) | (write ? UV_WRITABLE : 0);
  if (events == session->poll_events) return;
  if (rv_loop_has_guest(session->loop)) {
    rv_session_touch(session);
    return;
  }
  session->poll_events = events;
  uv_poll_start(&session->poll, events, on_poll);
  rv_loop_watch_later(session->loop, &session->look_task);
}

/* A client that has not even said over which transport it can be answered. */
static bool is_mute(const rv_session *session)
{
  return session->server && session->write_blocked && session->transport.write_awaits_readable && session->greeting.have == 0;
}

static void flush(rv_task *task)
{
  rv_session *session = RV_CONTAINER(task, rv_session, flush_task);
  if (session->state == RV_SESSION_OPEN && !session->lost) {
    if (session->room_changed) {
      session->room_changed = false;
      if (session->owner != NULL) session->events->on_room(session->owner, session);
    }
    send_all(session);
    if (session->shutting_down && is_mute(session)) rv_session_lose(session, "the server stops, and the peer had said nothing");
  }
  if (session->lost && rv_loop_has_guest(session->loop)) {
    rv_session_touch(session);
    return;
  }
  if (session->lost) {
    close_now(session);
    return;
  }
  if (session->state == RV_SESSION_OPEN && session->output.bytes == 0 && nghttp2_session_want_read(session->http) == 0 &&
      nghttp2_session_want_write(session->http) == 0)
    linger(session);
  choose_events(session);
}

/* ---- receiving ---- */

static const char *kind_of_greeting(const uint8_t *greeting)
{
  if (memcmp(greeting, "HTTP/", 5) == 0) return "it answers in HTTP/1";
  if (greeting[0] == 0x15 && greeting[1] == 3) return "it expects TLS";
  return "its first bytes are something else";
}

/* A server that does not begin with SETTINGS is none; with fewer than five bytes it cannot be said what it is. */
static bool check_greeting(rv_session *session, const uint8_t *data, size_t size)
{
  rv_greeting *greeting = &session->greeting;
  bool fine = rv_greeting_take(greeting, data, size);
  if (fine || session->server || greeting->have < 5) return true;
  rv_session_lose(session, "the peer at %.100s does not speak HTTP/2 (gRPC): %s; is it a Reverie or Reverb server?",
                  session->address, kind_of_greeting(greeting->head));
  return false;
}

static void feed(rv_session *session, const uint8_t *data, size_t size)
{
  if (size == 0 || session->lost || session->deaf || session->state != RV_SESSION_OPEN) return;
  if (!session->greeting.over && !check_greeting(session, data, size)) return;
  session->frame_heard = false;
  ssize_t n = nghttp2_session_mem_recv(session->http, data, size);
  if (n >= 0 || session->lost) return;
  session->deaf = true;
  rv_timer_start(&session->timer, rv_monotonic_ns(&session->loop->env) + RV_LINGER_NS); /* it may not read what it is told */
  if (n == NGHTTP2_ERR_FLOODED || n == NGHTTP2_ERR_CALLBACK_FAILURE || n == NGHTTP2_ERR_TOO_MANY_CONTINUATIONS) {
    int rc = nghttp2_session_terminate_session(session->http, NGHTTP2_ENHANCE_YOUR_CALM);
    if (session->reason[0] == '\0')
      snprintf(session->reason, sizeof session->reason, "the peer sent more than it may (%s)", nghttp2_strerror((int)n));
    rv_session_check(session, rc);
  } else if (n == NGHTTP2_ERR_BAD_CLIENT_MAGIC) {
    int rc = nghttp2_session_terminate_session(session->http, NGHTTP2_PROTOCOL_ERROR);
    snprintf(session->reason, sizeof session->reason, "the client does not speak HTTP/2");
    rv_session_check(session, rc);
  } else {
    rv_session_lose(session, "%s", nghttp2_strerror((int)n));
  }
}

/* Returns how much of it was taken: where it brings too much to be answered, the rest is for later. */
static size_t feed_some(rv_session *session, const uint8_t *data, size_t size)
{
  size_t at = 0, most = session->server ? FED_AT_ONCE : size;
  while (at < size) {
    size_t n = size - at < most ? size - at : most;
    feed(session, data + at, n);
    at += n;
    if (!session->lost && has_much_to_send(session)) break;
  }
  return at;
}

static void keep(rv_session *session, const uint8_t *data, size_t size)
{
  session->kept = rv_buf_copy(data, size);
  session->kept_at = 0;
  if (session->kept == NULL) rv_session_lose(session, "out of memory");
}

static void feed_kept(rv_session *session, bool all)
{
  rv_buf *kept = session->kept;
  if (kept == NULL) return;
  const uint8_t *rest = kept->data + session->kept_at;
  size_t size = kept->size - session->kept_at;
  if (!all) {
    session->kept_at += feed_some(session, rest, size);
    if (session->kept_at < kept->size) return;
  } else {
    feed(session, rest, size);
  }
  session->kept = NULL;
  rv_buf_unref(kept);
}

/* ---- receiving in place ---- */

/* Where the frame in progress carries a large message, it is received in place. What nghttp2 ignores of a frame nobody hears of: then how much
 * is left of it is not known here, and what comes may be frames that end the call and free its buffer while they are read out of it. */
static rv_call *direct_call(const rv_session *session)
{
  if (!session->frame_heard || session->frame_padded || session->frame_left < DIRECT_READ) return NULL;
  if (session->state != RV_SESSION_OPEN) return NULL;
  return nghttp2_session_get_stream_user_data(session->http, session->frame_stream);
}

static size_t direct_room(const rv_session *session, rv_call *call, uint8_t **at)
{
  if (call == NULL) return 0;
  size_t room = rv_message_reader_room(&call->reader, at);
  if (room > session->frame_left) room = session->frame_left;
  return room >= DIRECT_READ ? room : 0;
}

/* A message whose buffer stays where it is until it is whole. */
static bool may_have_gaps(const rv_call *call)
{
  return call->events != NULL && call->events->takes_gaps && call->reader.buf->capacity >= call->reader.size;
}

bool rv_session_give_back(rv_session *session)
{
  if (session->gapped == NULL) return !session->recalled;
  if (!session->transport.ops->give_back(&session->transport)) session->recalled = true;
  session->loop->gaps.count = 0;
  rv_buf_unref(session->gapped);
  session->gapped = NULL;
  return !session->recalled;
}

bool rv_session_fill_gaps(rv_session *session)
{
  if (session->gapped != NULL) rv_gaps_fill(&session->loop->gaps);
  return rv_session_give_back(session);
}

/* What nobody has used from where it is lent is copied; if it is lent no more, there is nothing that could be. */
static void end_gaps(rv_session *session)
{
  if (!rv_session_fill_gaps(session)) rv_session_lose(session, "%s", problem_of(session, ECONNRESET));
}

/* Reads what there is; what is left out of it is the message's in progress, and no other has gaps. */
static ssize_t read_into(rv_session *session, rv_call *call, const struct iovec *vec, int count)
{
  rv_transport *transport = &session->transport;
  rv_gaps *gaps = &session->loop->gaps;
  bool leaves = call != NULL && may_have_gaps(call);
  if (leaves && session->gapped != call->reader.buf) rv_session_fill_gaps(session);
  transport->gaps = leaves ? gaps : NULL;
  ssize_t n = transport->ops->read(transport, vec, count);
  if (session->gapped == NULL && gaps->count > 0) session->gapped = rv_buf_ref(call->reader.buf);
  return n;
}

/* Where what comes next is there already, that becomes the message's buffer. */
static void land(rv_session *session, rv_call *call)
{
  size_t before, behind;
  if (call == NULL || !rv_message_reader_may_move(&call->reader, &before, &behind)) return;
  rv_buf *block = session->transport.ops->land(&session->transport, before, behind);
  if (block != NULL) rv_message_reader_move(&call->reader, block);
}

/* One read. Bytes received, or as the transport says. Behind what is received in place, and right after it, there is little room:
 * the next frame, and the next message, are to be received in place too. */
static ssize_t read_some(rv_session *session, bool *full)
{
  uint8_t *scratch = session->loop->scratch, *direct = NULL;
  rv_call *call = direct_call(session);
  land(session, call);
  size_t room = direct_room(session, call, &direct);
  size_t behind = room >= RV_LOOP_SCRATCH || session->receives_bulk ? BEHIND_DIRECT : RV_LOOP_SCRATCH;
  struct iovec vec[2] = {{.iov_base = direct, .iov_len = room}, {.iov_base = scratch, .iov_len = behind}};
  ssize_t n = room > 0 ? read_into(session, call, vec, 2) : read_into(session, NULL, vec + 1, 1);
  *full = n > 0 && (size_t)n == room + behind;
  session->receives_bulk = *full && (room >= RV_LOOP_SCRATCH || (room > 0 && session->receives_bulk));
  if (n <= 0) return n;
  session->heard = true;
  size_t size = (size_t)n, first = size < room ? size : room;
  if (first > 0) feed(session, direct, first);
  size_t taken = feed_some(session, scratch, size - first);
  if (taken < size - first) keep(session, scratch + taken, size - first - taken);
  return n;
}

/* What it takes brings answers. They are sent as they come up, so that a peer that reads is never waited for; from one that does not, no more is
 * taken. Of a client's calls those that wait for the peer's MAX_CONCURRENT_STREAMS are to be sent as well, and only what comes makes them
 * fewer. Not within what is being fed: sending may fail, and then reads the rest. */
static bool may_take_more(rv_session *session)
{
  if (session->lost || !has_much_to_send(session)) return !session->lost;
  if (!session->write_blocked && session->state == RV_SESSION_OPEN) send_all(session);
  return !session->lost && !(has_much_to_send(session) && (session->server || session->write_blocked));
}

static void lose_at_end(rv_session *session, ssize_t n)
{
  if (n == 0 && !session->server && !session->ready)
    rv_session_lose(session,
                    "the peer at %.100s closed the connection before it spoke HTTP/2 (gRPC); does it expect TLS, or is it no "
                    "Reverie or Reverb server?",
                    session->address);
  else if (n == 0)
    rv_session_lose(session, "the peer closed it");
  else
    rv_session_lose(session, "%s", problem_of(session, (int)-n));
}

static bool turn_is_over(const rv_session *session, size_t bytes)
{
  return bytes + session->turn_frames * FRAME_COSTS >= READ_TURN;
}

size_t rv_session_receive(rv_session *session)
{
  rv_transport *transport = &session->transport;
  size_t turn = 0, told = 0;
  bool full = true, more;
  if (session->emptied && session->server) {
    int64_t since = rv_loop_since_ns(session->loop);
    session->since_ns = since > session->emptied_ns ? since : session->emptied_ns;
  }
  session->turn_frames = 0;
  session->stalled = false;
  while ((more = full || session->kept != NULL || transport->ops->pending(transport)) && !turn_is_over(session, turn) &&
         !session->recalled) {
    session->stalled = !may_take_more(session);
    if (session->stalled) break;
    if (session->kept != NULL) {
      feed_kept(session, false);
      continue;
    }
    ssize_t n = read_some(session, &full);
    if (n > 0) turn += (size_t)n;
    if (n <= 0 && n != -EAGAIN) lose_at_end(session, n);
    if (n <= 0) break;
    if (turn - told < CREDIT_EVERY) continue;
    told = turn;
    if (!session->lost && !session->write_blocked && session->state == RV_SESSION_OPEN) send_some(session, 1);
  }
  end_gaps(session);
  bool rest = more && transport->ops->pending(transport);
  session->emptied = session->kept == NULL && !full && !rest;
  if (session->emptied) session->emptied_ns = (int64_t)uv_hrtime();
  if (turn >= BULK_READ && !full && !session->lost && session->acknowledges)
    session->acknowledges = rv_socket_acknowledge(session->transport.fd);
  if (rest && !session->stalled) read_soon(session);
  rv_session_touch(session);
  return turn;
}

static void read_on(rv_task *task)
{
  rv_session *session = RV_CONTAINER(task, rv_session, read_task);
  session->reads_on = false;
  if (session->state != RV_SESSION_GONE && (session->poll_events & UV_READABLE) != 0)
    rv_session_receive(session);
  else
    session->stalled = true; /* it goes on when less waits to be sent: the socket need not know of what is there */
  rv_session_unref(session);
}

static void read_rest(rv_session *session)
{
  bool full;
  for (int i = 0; i < 16 && !session->lost; i++) {
    feed_kept(session, true);
    if (read_some(session, &full) <= 0) break;
  }
  end_gaps(session);
}

static void look(rv_task *task)
{
  rv_session *session = RV_CONTAINER(task, rv_session, look_task);
  if ((session->poll_events & UV_READABLE) != 0) rv_session_receive(session);
  rv_session_touch(session);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
  rv_session *session = poll->data;
  rv_loop *loop = session->loop;
  rv_loop_enter(loop);
  if (session->state == RV_SESSION_GONE) return;
  if (status < 0) session->poll_events = 0; /* libuv has stopped the handle; reading tells the error */
  bool read = (events & UV_READABLE) != 0 || ((events & UV_WRITABLE) != 0 && session->transport.read_awaits_writable);
  if (status < 0 || read) rv_session_receive(session);
  if ((events & UV_WRITABLE) != 0) rv_session_touch(session);
  rv_loop_event_done(loop); /* the session may be gone */
}

/* ---- the beginning ---- */

static rv_code start(rv_session *session, const rv_session_config *config, rv_error *err)
{
  session->http = rv_session_http_new(session, config->max_streams > 0 ? config->max_streams : RV_DEFAULT_MAX_STREAMS);
  if (session->http == NULL) return rv_fail_memory(err, 32 << 10);
  bool can = rv_loop_can_watch(session->loop, session->transport.fd);
  int rc = can ? uv_poll_init(&session->loop->uv, &session->poll, session->transport.fd) : UV_ENOMEM;
  if (rc != 0) {
    nghttp2_session_del(session->http);
    return rv_fail(err, RV_RESOURCE_EXHAUSTED, "a connection could not be watched: %s", uv_strerror(rc));
  }
  session->poll.data = session;
  return RV_OK;
}

static rv_code choose_transport(const rv_session_config *config, int owned_fd, rv_transport *out, rv_error *err)
{
  rv_transport_init_socket(out, owned_fd);
  if (config->tls != NULL) return rv_transport_init_tls(out, owned_fd, config->tls, config->host, err);
  if (config->ring_host != NULL) rv_transport_init_undecided(out, owned_fd, config->ring_host, &config->loop->landing);
  if (config->owned_rings == NULL || rv_transport_init_rings(out, owned_fd, config->owned_rings)) return RV_OK;
  rv_rings_unmap(config->owned_rings);
  return rv_fail_memory(err, 0);
}

rv_code rv_session_new(const rv_session_config *config, int owned_fd, rv_session **out, rv_error *err)
{
  rv_transport transport;
  rv_code code = choose_transport(config, owned_fd, &transport, err);
  rv_session *session = code == RV_OK ? calloc(1, sizeof *session) : NULL;
  if (code == RV_OK && session == NULL) code = rv_fail_memory(err, sizeof *session);
  if (code != RV_OK) {
    transport.ops->close(&transport);
    return code;
  }
  session->loop = config->loop;
  session->events = config->events;
  session->owner = config->owner;
  session->server = config->server;
  session->half = config->half;
  session->encrypted = config->tls != NULL;
  session->max_message_bytes = config->max_message_bytes > 0 ? config->max_message_bytes : RV_DEFAULT_MAX_MESSAGE;
  session->refs = 1; /* of the poll handle */
  session->transport = transport;
  session->emptied = true;
  session->emptied_ns = (int64_t)uv_hrtime();
  session->acknowledges = true;
  rv_list_init(&session->calls);
  rv_list_init(&session->owner_link);
  rv_task_init(&session->flush_task, flush);
  rv_task_init(&session->look_task, look);
  rv_task_init(&session->read_task, read_on);
  rv_timer_init(&session->timer, session->loop, on_timer);
  int64_t timeout_ms = config->peer_timeout_ms;
  session->peer_timeout_ns = timeout_ms == 0                                      ? RV_DEFAULT_PEER_TIMEOUT_NS
                             : timeout_ms < 0 || timeout_ms > INT64_MAX / 1000000 ? INT64_MAX
                                                                                  : timeout_ms * 1000000;
  rv_greeting_init(&session->greeting, config->server);
  rv_pulse_init(session);
  rv_socket_probe(owned_fd, session->peer_timeout_ns);
  rv_output_init(&session->output, &session->loop->spare_block);
  rv_socket_peer(owned_fd, session->peer);
  session->machine = config->machine;
  snprintf(session->address, sizeof session->address, "%s", config->address != NULL ? config->address : session->peer);
  code = start(session, config, err);
  if (code != RV_OK) {
    transport.ops->close(&session->transport);
    free(session);
    return code;
  }
  session->loop->close_connection = close_with_loop;
  rv_list_push_back(&session->loop->connections, &session->link);
  int64_t patience = session->server                         ? RV_HANDSHAKE_NS
                     : session->peer_timeout_ns != INT64_MAX ? session->peer_timeout_ns
                                                             : RV_DEFAULT_PEER_TIMEOUT_NS;
  rv_timer_start(&session->timer, rv_monotonic_ns(&session->loop->env) + patience);
  choose_events(session);
  rv_session_touch(session);
  *out = session;
  return RV_OK;
}
