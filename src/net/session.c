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
#include "net/session_parts.h"

enum { WRITE_TURN = 4 << 20 };

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

const char *rv_session_problem(const rv_session *session, int error)
{
  return session->transport.problem != NULL ? session->transport.problem : strerror(error);
}

static void write_failed(rv_session *session, int error)
{
  rv_session_read_rest(session); /* the peer may have said why */
  rv_session_lose(session, "%s", rv_session_problem(session, error));
}

void rv_session_send_some(rv_session *session, size_t most)
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

void rv_session_send_all(rv_session *session)
{
  rv_session_send_some(session, WRITE_TURN);
}

static void on_poll(uv_poll_t *poll, int status, int events);

bool rv_session_has_much_to_send(const rv_session *session)
{
  size_t most = session->server ? RV_SERVER_OUTBOUND_FRAMES : RV_OUTBOUND_FRAMES;
  return nghttp2_session_get_outbound_queue_size(session->http) > most;
}

void rv_session_read_soon(rv_session *session)
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
  bool stuck = session->write_blocked && rv_session_has_much_to_send(session),
       flooded = stuck && !transport->write_awaits_readable;
  if (!stuck && (session->kept != NULL || session->stalled)) rv_session_read_soon(session);
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
    rv_session_send_all(session);
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

/* ---- events ---- */

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
  rv_task_init(&session->read_task, rv_session_read_on);
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
