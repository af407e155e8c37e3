/* Is the peer of a quiet connection still there? Every third of the peer timeout is a look: a peer that gave no sign of life since the
 * last one is asked, and one that gave none since it was asked is given up. From its last sign to that are at most three looks.
 *
 * Asked are Reverie's own ends, with a PING; of others TCP knows whether their system answers. A sign of life is also that
 * the socket empties: over a slow line a PING may have to wait behind megabytes. */
#include "base/env.h"
#include "net/session.h"

enum { LOOKS = 3 };

static bool has_been_heard(rv_session *session)
{
  size_t unsent = rv_socket_unsent(session->transport.fd);
  bool heard = session->heard || unsent < session->unsent;
  session->unsent = unsent;
  session->heard = false;
  return heard;
}

static void ask(rv_session *session)
{
  session->asked = true;
  if (!session->greeting.answers_pings) return;
  rv_session_check(session, nghttp2_submit_ping(session->http, NGHTTP2_FLAG_NONE, NULL));
  rv_session_touch(session);
}

static void give_up(rv_session *session)
{
  /* This thread may itself have stood still, and the answer be in the socket. */
  rv_session_receive(session);
  if (session->heard || session->lost) return;
  rv_socket_reset_when_closed(session->transport.fd);
  rv_session_lose(session, "nothing came from the other end for %g s, %s", (double)session->peer_timeout_ns * 1e-9,
                  session->greeting.answers_pings ? "not even the answer to a PING" : "not even an acknowledgement");
}

static void on_pulse(rv_timer *timer)
{
  rv_session *session = RV_CONTAINER(timer, rv_session, pulse);
  if (session->state != RV_SESSION_OPEN || session->lost) return;
  int64_t look_ns = session->peer_timeout_ns / LOOKS;
  bool heard = has_been_heard(session), forever = session->peer_timeout_ns == INT64_MAX;
  if (!heard) {
    session->transport.ops->rest(&session->transport);
    rv_session_count_waiting(session);
  }
  if (heard || forever)
    session->asked = false;
  else if (!session->asked)
    ask(session);
  else if (session->greeting.answers_pings || rv_socket_is_unheard(session->transport.fd, look_ns))
    give_up(session);
  if (!session->lost) rv_half_messages_weigh(session);
  if (!session->lost) rv_pulse_start(session);
}

void rv_pulse_init(rv_session *session)
{
  rv_timer_init(&session->pulse, session->loop, on_pulse);
}

void rv_pulse_start(rv_session *session)
{
  bool forever = session->peer_timeout_ns == INT64_MAX; /* then it only rests */
  int64_t wait_ns = (forever ? RV_DEFAULT_PEER_TIMEOUT_NS : session->peer_timeout_ns) / LOOKS;
  rv_timer_start(&session->pulse, rv_monotonic_ns(&session->loop->env) + wait_ns);
}
