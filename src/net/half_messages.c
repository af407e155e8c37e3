/* Messages of which a part has come: what a server's connections have of them together is bounded, by the memory that there is just now.
 *
 * Beyond an eighth of it those end, at a connection's look (pulse.c), of which nothing has come since the last look, and then those of
 * which hardly anything has. Who sends much at once is not slow: beyond a quarter, and beyond two of the largest messages, one ends at
 * the next bytes of it while more than half of it, and much, is missing. So those come whole that have come far, and beyond twice as
 * much whichever more comes of ends. */
#include "base/env.h"
#include "base/machine_memory.h"
#include "net/call.h"

enum { SHARE = 8, HARDLY = 256 /* parts of what is there */ };
#define WEIGH_NS INT64_C(1000000000) /* in less it says little how much has come */

void rv_half_messages_init(rv_half_messages *half, size_t largest, size_t (*memory_limit)(void *context), void *context)
{
  half->memory = rv_machine_memory_allowed();
  half->largest = largest < UINT32_MAX ? largest : UINT32_MAX;
  half->memory_limit = memory_limit;
  half->context = context;
}

/* So little is never too much: the least stores take messages of some size, too. */
static size_t most_of(const rv_half_messages *half)
{
  static const size_t least = (size_t)16 << 20;
  size_t limit = half->memory_limit != NULL ? half->memory_limit(half->context) : 0;
  size_t memory = limit > 0 && limit < half->memory ? limit : half->memory;
  return memory / SHARE > least ? memory / SHARE : least;
}

bool rv_half_message_must_end(const rv_call *call)
{
  const rv_session *session = call->session;
  const rv_half_messages *half = session->half;
  if (half == NULL || call->half_bytes == 0) return false;
  size_t bytes = atomic_load_explicit(&half->bytes, memory_order_relaxed) - session->counted_half + session->half_bytes;
  size_t most = most_of(half);
  if (most < half->largest) most = half->largest;
  if (bytes / 2 <= most) return false;
  size_t missing = rv_message_reader_missing(&call->reader);
  return bytes / 4 > most || (missing > call->half_bytes && missing >= RV_LOOP_SCRATCH);
}

/* ---- slow ones ---- */

static bool has_too_much(rv_session *session)
{
  rv_session_count_waiting(session);
  return atomic_load(&session->half->bytes) > most_of(session->half);
}

static bool is_slow(const rv_call *call, size_t parts)
{
  size_t have = call->half_bytes;
  return have > 0 && have >= call->half_seen && have - call->half_seen <= have / parts;
}

/* Each call is looked at once, at the list's front; one that ends is not in it any more, whichever ends it. */
static void end_slow_ones(rv_session *session, size_t parts)
{
  size_t calls = 0;
  RV_LIST_EACH(node, &session->calls) calls++;
  for (; calls > 0 && !rv_list_empty(&session->calls) && has_too_much(session); calls--) {
    rv_call *call = RV_CONTAINER(rv_list_pop_front(&session->calls), rv_call, link);
    rv_list_push_back(&session->calls, &call->link);
    if (is_slow(call, parts)) rv_call_end_half_message(call, "hardly anything comes of this one");
  }
}

void rv_half_messages_weigh(rv_session *session)
{
  int64_t now = rv_monotonic_ns(&session->loop->env);
  if (session->half == NULL || now - session->weighed_ns < WEIGH_NS) return;
  session->weighed_ns = now;
  if (session->half_bytes > 0 && has_too_much(session)) {
    rv_session_receive(session); /* this thread may itself have stood still, and more be in the socket */
    end_slow_ones(session, SIZE_MAX);
    end_slow_ones(session, HARDLY);
  }
  RV_LIST_EACH(node, &session->calls)
  {
    rv_call *call = RV_CONTAINER(node, rv_call, link);
    call->half_seen = call->half_bytes;
  }
}
