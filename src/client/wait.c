#include "client/wait.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/lock.h"
#include "base/park.h"

#define MILLISECOND INT64_C(1000000)
#define ASK_NS (90 * MILLISECOND)
#define LOOK_NS (500 * MILLISECOND) /* at the clock, where nobody is asked: the store's may be another than the kernel's */
#define FIRST_LOG_NS (10000 * MILLISECOND)

/* Questions after a large answer: both threads were woken for it again and again. */
enum { RESTS = 64 };

/* A gate's state. */
enum { CLOSED = 0, OPEN = 1, AWAITED = 2, AWAITED_AT_LOOP = 3 };

/* ---- rv_cancel ---- */

struct rv_cancel {
  rv_mutex mutex; /* guards `waiting`; gates are poked under it */
  rv_link waiting;
  atomic_bool fired;
};

typedef struct waiting_gate {
  rv_link link;
  rv_gate *gate;
} waiting_gate;

rv_code rv_cancel_new(rv_cancel **out, rv_error *err)
{
  rv_cancel *cancel = malloc(sizeof *cancel);
  if (cancel == NULL) return rv_fail_memory(err, sizeof *cancel);
  rv_mutex_init(&cancel->mutex, RV_RANK_CLIENT, "cancel");
  rv_list_init(&cancel->waiting);
  atomic_init(&cancel->fired, false);
  *out = cancel;
  return RV_OK;
}

/* Wakes the waiting thread without opening the gate. */
static void poke(rv_gate *gate)
{
  int state = AWAITED;
  atomic_thread_fence(memory_order_seq_cst);
  if (atomic_compare_exchange_strong_explicit(&gate->state, &state, CLOSED, memory_order_acq_rel, memory_order_relaxed)) {
    rv_unpark(&gate->state);
  } else if (state == AWAITED_AT_LOOP &&
             atomic_compare_exchange_strong_explicit(&gate->state, &state, CLOSED, memory_order_acq_rel, memory_order_relaxed)) {
    rv_loop_knock(gate->loop);
  }
}

void rv_cancel_fire(rv_cancel *cancel)
{
  atomic_store_explicit(&cancel->fired, true, memory_order_release);
  rv_mutex_lock(&cancel->mutex);
  RV_LIST_EACH(link, &cancel->waiting) poke(RV_CONTAINER(link, waiting_gate, link)->gate);
  rv_mutex_unlock(&cancel->mutex);
}

void rv_cancel_free(rv_cancel *cancel)
{
  if (cancel == NULL) return;
  rv_mutex_fini(&cancel->mutex);
  free(cancel);
}

bool rv_cancel_fired(const rv_cancel *cancel)
{
  return cancel != NULL && atomic_load_explicit(&cancel->fired, memory_order_acquire);
}

static void listen_to(rv_cancel *cancel, waiting_gate *waiting, rv_gate *gate)
{
  waiting->gate = gate;
  if (cancel == NULL) return;
  rv_mutex_lock(&cancel->mutex);
  rv_list_push_back(&cancel->waiting, &waiting->link);
  rv_mutex_unlock(&cancel->mutex);
}

static void stop_listening(rv_cancel *cancel, waiting_gate *waiting)
{
  if (cancel == NULL) return;
  rv_mutex_lock(&cancel->mutex);
  rv_list_remove(&waiting->link);
  rv_mutex_unlock(&cancel->mutex);
}

/* ---- patience ---- */

void rv_patience_begin(rv_patience *patience, const rv_env *env, const rv_wait *wait,
                       void (*describe)(void *context, char *out, size_t capacity), void *context)
{
  patience->env = env;
  patience->wait = wait != NULL ? *wait : (rv_wait){.timeout_ms = RV_DEFAULT_TIMEOUT_MS};
  patience->begun_ns = rv_monotonic_ns(env);
  patience->deadline_ns = INT64_MAX;
  int64_t timeout_ms = patience->wait.timeout_ms;
  if (timeout_ms >= 0 && timeout_ms < (INT64_MAX - patience->begun_ns) / MILLISECOND)
    patience->deadline_ns = patience->begun_ns + timeout_ms * MILLISECOND;
  patience->log_ns = patience->begun_ns + FIRST_LOG_NS;
  patience->asked_ns = patience->begun_ns;
  patience->interrupted = false;
  patience->describe = describe;
  patience->context = context;
  patience->closed = NULL;
  patience->memory = NULL;
}

rv_wait rv_patience_rest(const rv_patience *patience)
{
  rv_wait rest = patience->wait;
  if (patience->deadline_ns == INT64_MAX) return rest;
  int64_t left = patience->deadline_ns - rv_monotonic_ns(patience->env);
  if (rest.given_ms == 0) rest.given_ms = rest.timeout_ms;
  rest.timeout_ms = left <= 0 ? 0 : (left + MILLISECOND - 1) / MILLISECOND;
  return rest;
}

static void describe(rv_patience *patience, char *out, size_t capacity)
{
  out[0] = '\0';
  if (patience->describe != NULL) patience->describe(patience->context, out, capacity);
  if (out[0] == '\0') snprintf(out, capacity, "waits for an answer");
}

/* Once it was, it is: whoever waits next in the same call is told so, too. */
static bool is_interrupted(rv_patience *patience, int64_t now)
{
  if (patience->interrupted) return true;
  if (patience->wait.interrupted == NULL || now - patience->asked_ns < ASK_NS) return false;
  patience->asked_ns = now;
  return patience->wait.interrupted(patience->wait.context);
}

rv_code rv_patience_late(rv_patience *patience, rv_error *err)
{
  char what[RV_ERROR_MESSAGE_MAX - 64];
  int64_t ms = patience->wait.given_ms != 0 ? patience->wait.given_ms : patience->wait.timeout_ms;
  describe(patience, what, sizeof what);
  return rv_fail(err, RV_DEADLINE_EXCEEDED, "timed out after %.10g s: %s", (double)ms * 1e-3, what);
}

static rv_code check_at(rv_patience *patience, int64_t now, rv_error *err)
{
  char what[RV_ERROR_MESSAGE_MAX - 64];
  bool interrupted = patience->interrupted = is_interrupted(patience, now);
  if (interrupted || rv_cancel_fired(patience->wait.cancel)) {
    describe(patience, what, sizeof what);
    return rv_fail(err, RV_CANCELLED, "%s by the caller: %s", interrupted ? "interrupted" : "cancelled", what);
  }
  if (patience->closed != NULL && atomic_load_explicit(patience->closed, memory_order_acquire))
    return rv_fail(err, RV_CANCELLED, "the client was closed meanwhile, by another thread or a signal handler");
  if (now >= patience->deadline_ns) return rv_patience_late(patience, err);
  if (now >= patience->log_ns) {
    describe(patience, what, sizeof what);
    double waited = (double)(now - patience->begun_ns) * 1e-9;
    rv_log(patience->env, RV_LOG_WARNING, "a call has been waiting for %.0f s: %s", waited, what);
    patience->log_ns = now + 6 * FIRST_LOG_NS;
  }
  return RV_OK;
}

rv_code rv_patience_check(rv_patience *patience, rv_error *err)
{
  return check_at(patience, rv_monotonic_ns(patience->env), err);
}

/* ---- gates ----
 * The state is all there is: whoever opens a gate does not look at it again, so that whoever it let through may free it. */

void rv_gate_init(rv_gate *gate)
{
  atomic_init(&gate->state, CLOSED);
  gate->channel = NULL;
  gate->loop = NULL;
  gate->fd = -1;
  gate->rests = 0;
}

void rv_gate_init_at(rv_gate *gate, rv_loop *loop, rv_channel *channel)
{
  rv_gate_init(gate);
  gate->channel = channel;
  gate->loop = loop;
}

void rv_gate_open(rv_gate *gate)
{
  rv_loop *loop = gate->loop; /* before: see above */
  int before = atomic_exchange_explicit(&gate->state, OPEN, memory_order_acq_rel);
  if (before == AWAITED) rv_unpark(&gate->state);
  if (before == AWAITED_AT_LOOP) rv_loop_knock(loop);
}

static bool take(rv_gate *gate)
{
  int state = OPEN;
  return atomic_compare_exchange_strong_explicit(&gate->state, &state, CLOSED, memory_order_acq_rel, memory_order_acquire);
}

static void stand_up(rv_gate *gate)
{
  if (gate->fd < 0) return;
  gate->fd = -1;
  rv_loop_stand(gate->loop);
}

/* As wait_slice, by a guest who sits at his loop. Where nothing comes within a slice others may have his seat. */
static bool wait_at_loop(rv_gate *gate, const rv_cancel *cancel, int64_t ns)
{
  int state = CLOSED;
  if (!atomic_compare_exchange_strong_explicit(&gate->state, &state, AWAITED_AT_LOOP, memory_order_acq_rel, memory_order_acquire))
    return take(gate);
  atomic_thread_fence(memory_order_seq_cst);
  bool readable = !rv_cancel_fired(cancel) && rv_loop_wait_at(gate->loop, gate->fd, ns);
  if (atomic_exchange_explicit(&gate->state, CLOSED, memory_order_acq_rel) == OPEN) return true;
  rv_guest_read outcome = readable ? rv_channel_receive(gate->channel, gate->fd) : RV_GUEST_CANNOT;
  if (outcome == RV_GUEST_READ_MUCH) gate->rests = RESTS;
  if (outcome != RV_GUEST_READ) stand_up(gate);
  return take(gate);
}

/* Waits for the gate, for a poke, or until ns have passed; true: it was open, and is closed again. */
static bool wait_slice(rv_gate *gate, const rv_cancel *cancel, int64_t ns)
{
  int state = CLOSED;
  if (ns > 0 && gate->fd >= 0) return wait_at_loop(gate, cancel, ns);
  if (!atomic_compare_exchange_strong_explicit(&gate->state, &state, AWAITED, memory_order_acq_rel, memory_order_acquire))
    return take(gate);
  atomic_thread_fence(memory_order_seq_cst); /* with that of poke: it sees AWAITED, or here it has fired */
  if (!rv_cancel_fired(cancel)) rv_park(&gate->state, AWAITED, ns);
  return atomic_exchange_explicit(&gate->state, CLOSED, memory_order_acq_rel) == OPEN;
}

static void tell_blocking(rv_patience *patience)
{
  if (patience->wait.blocking != NULL) patience->wait.blocking(patience->wait.context);
  patience->wait.blocking = NULL;
}

/* With others who wait there the loop's thread is busy enough, and better at it than any of them. */
bool rv_gate_visit(rv_gate *gate, rv_task *task, rv_patience *patience)
{
  tell_blocking(patience);
  if (gate->rests > 0) gate->rests--;
  if (gate->rests > 0 || !rv_loop_sit(gate->loop)) return false;
  bool visited = rv_channel_visit(gate->channel, task, &gate->fd);
  if (gate->fd < 0) rv_loop_stand(gate->loop);
  return visited;
}

void rv_gate_ask(rv_gate *gate, rv_task *task, rv_patience *patience)
{
  if (!rv_gate_visit(gate, task, patience)) rv_loop_post(gate->loop, task);
}

void rv_gate_wait_forever(rv_gate *gate)
{
  while (!wait_slice(gate, NULL, INT64_MAX)) continue;
  stand_up(gate);
}

static int64_t earlier(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

rv_code rv_gate_wait_until(rv_gate *gate, rv_patience *patience, int64_t at_ns, bool *opened, rv_error *err)
{
  rv_cancel *cancel = patience->wait.cancel;
  waiting_gate waiting;
  rv_code code = RV_OK;
  *opened = !rv_cancel_fired(cancel) && take(gate);
  if (*opened) {
    stand_up(gate);
    return RV_OK;
  }
  tell_blocking(patience);
  listen_to(cancel, &waiting, gate);
  bool at_limit = patience->memory != NULL && rv_memory_limit(patience->memory) < SIZE_MAX;
  int64_t slice = patience->wait.interrupted != NULL || at_limit ? ASK_NS : LOOK_NS;
  int64_t ns = 0; /* first a look at the gate */
  for (;;) {
    *opened = wait_slice(gate, cancel, ns);
    if (*opened && !rv_cancel_fired(cancel)) break;
    if (patience->memory != NULL) rv_memory_serve(patience->memory);
    int64_t now = rv_monotonic_ns(patience->env);
    code = check_at(patience, now, err);
    if (code != RV_OK || now >= at_ns) break;
    int64_t until = earlier(earlier(patience->deadline_ns, patience->log_ns), at_ns);
    ns = earlier(slice, until - now);
  }
  stop_listening(cancel, &waiting);
  stand_up(gate);
  if (code != RV_OK && *opened) rv_gate_open(gate); /* whoever looks again finds what it was opened for */
  return code;
}

rv_code rv_gate_wait(rv_gate *gate, rv_patience *patience, rv_error *err)
{
  bool opened;
  return rv_gate_wait_until(gate, patience, INT64_MAX, &opened, err);
}
