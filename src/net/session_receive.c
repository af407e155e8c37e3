/* What a connection receives: fed to nghttp2 at once, or, where it is part of a large message, read into that message's buffer. A turn of the loop has a
 * bound, and so has what waits to be sent in answer before more is taken. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "net/call.h"
#include "net/session.h"
#include "net/session_parts.h"

enum {
  READ_TURN = 4 << 20,      /* bytes a connection may read before others get their turn */
  FRAME_COSTS = 1024,       /* bytes of a turn, besides its own: small frames take a hundred times as long */
  BULK_READ = 16 << 10,     /* so much at a time is part of something large */
  DIRECT_READ = 4 << 10,    /* from here on receiving into a message's own buffer is worth a second piece */
  FED_AT_ONCE = 4 << 10,    /* by a server, before it looks how much there is to answer */
  CREDIT_EVERY = 256 << 10, /* of a turn: then the peer is told what it may send on, so that both ends work at a time */
  BEHIND_DIRECT = 4 << 10   /* what follows is received with it: the next frame's header, or all of something small */
};

/* ---- feeding ---- */

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
    if (!session->lost && rv_session_has_much_to_send(session)) break;
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

/* ---- in place ---- */

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
  if (!rv_session_fill_gaps(session)) rv_session_lose(session, "%s", rv_session_problem(session, ECONNRESET));
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
  if (session->lost || !rv_session_has_much_to_send(session)) return !session->lost;
  if (!session->write_blocked && session->state == RV_SESSION_OPEN) rv_session_send_all(session);
  return !session->lost && !(rv_session_has_much_to_send(session) && (session->server || session->write_blocked));
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
    rv_session_lose(session, "%s", rv_session_problem(session, (int)-n));
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
    if (!session->lost && !session->write_blocked && session->state == RV_SESSION_OPEN) rv_session_send_some(session, 1);
  }
  end_gaps(session);
  bool rest = more && transport->ops->pending(transport);
  session->emptied = session->kept == NULL && !full && !rest;
  if (session->emptied) session->emptied_ns = (int64_t)uv_hrtime();
  if (turn >= BULK_READ && !full && !session->lost && session->acknowledges)
    session->acknowledges = rv_socket_acknowledge(session->transport.fd);
  if (rest && !session->stalled) rv_session_read_soon(session);
  rv_session_touch(session);
  return turn;
}

void rv_session_read_on(rv_task *task)
{
  rv_session *session = RV_CONTAINER(task, rv_session, read_task);
  session->reads_on = false;
  if (session->state != RV_SESSION_GONE && (session->poll_events & UV_READABLE) != 0)
    rv_session_receive(session);
  else
    session->stalled = true; /* it goes on when less waits to be sent: the socket need not know of what is there */
  rv_session_unref(session);
}

void rv_session_read_rest(rv_session *session)
{
  bool full;
  for (int i = 0; i < 16 && !session->lost; i++) {
    feed_kept(session, true);
    if (read_some(session, &full) <= 0) break;
  }
  end_gaps(session);
}
