/* How a caller of the client blocks: on a gate that another thread opens, for as long as its rv_wait allows.
 *
 * A gate is an event that resets itself: rv_gate_open may be called from any thread and under any lock, once or many times,
 * before or while somebody waits; the wait that it ends closes it again. What the gate is opened for is the caller's own state,
 * looked at again after each wait:
 *
 *   rv_patience patience;                       // one for the whole call, however often it waits
 *   rv_patience_begin(&patience, env, wait, describe, context);
 *   while (!done(thing)) {                      // under the thing's own lock
 *     rv_code code = rv_gate_wait(&thing->gate, &patience, err);   // with no lock held
 *     if (code != RV_OK) return code;           // RV_DEADLINE_EXCEEDED or RV_CANCELLED; the thing itself goes on
 *   }
 */
#ifndef RV_CLIENT_WAIT_H
#define RV_CLIENT_WAIT_H

#include <stdatomic.h>

#include "base/env.h"
#include "base/list.h"
#include "base/park.h"
#include "net/guest.h"
#include "reverie/client.h"
#include "store/memory.h"

/* One thread waits at a time. */
typedef struct rv_gate {
  atomic_int state;
  /* Where what opens it comes by; NULL: from elsewhere. */
  rv_channel *channel;
  rv_loop *loop;
  /* The waiter's: the socket that he waits at next, as the loop's guest (net/guest.h), -1: he sleeps; and for so many questions he is none, since
   * answers are large. */
  int fd, rests;
} rv_gate;

void rv_gate_init(rv_gate *gate);
/* One that an answer opens which comes by the channel; both outlast it. */
void rv_gate_init_at(rv_gate *gate, rv_loop *loop, rv_channel *channel);
void rv_gate_open(rv_gate *gate);

/* What a call to a server elsewhere may take although its caller does not want to wait: the way there and back. */
#define RV_ROUND_TRIP_NS INT64_C(1000000000)

/* A caller's patience: when it began, until when it lasts, whom it listens to. */
typedef struct rv_patience {
  const rv_env *env;
  rv_wait wait;
  int64_t begun_ns, deadline_ns; /* monotonic; deadline INT64_MAX: for ever */
  int64_t log_ns;                /* when the log is told next */
  int64_t asked_ns;              /* when `interrupted` was asked last */
  bool interrupted;              /* and whether it said yes */
  /* Writes what the call does: "waits for 3 more items in table \"replay\" (...)", at most `capacity` bytes with the NUL. No lock
   * is held. May be NULL. */
  void (*describe)(void *context, char *out, size_t capacity);
  void *context;
  const atomic_bool *closed; /* the client, meanwhile; NULL: nobody closes it */
  rv_memory *
      memory; /* of the store that is waited for, which is looked at now and then: what is freed outside of its tables tells nobody; or NULL */
} rv_patience;

/* `wait` NULL: RV_DEFAULT_TIMEOUT_MS. */
void rv_patience_begin(rv_patience *patience, const rv_env *env, const rv_wait *wait,
                       void (*describe)(void *context, char *out, size_t capacity), void *context);
/* The caller gave so much time that a moment more may be spent on asking a server what it waited for. */
static inline bool rv_patience_is_long(const rv_patience *patience)
{
  int64_t ms = patience->wait.given_ms != 0 ? patience->wait.given_ms : patience->wait.timeout_ms;
  return ms < 0 || ms >= 100;
}
/* What is left of it, for the next of several waits of one call. */
rv_wait rv_patience_rest(const rv_patience *patience);
/* RV_DEADLINE_EXCEEDED: time is up, as the clock says or whoever was asked; the sentence says after how much, and what was waited for. */
rv_code rv_patience_late(rv_patience *patience, rv_error *err);
/* RV_OK while it lasts; else RV_DEADLINE_EXCEEDED or RV_CANCELLED with a sentence that says what was waited for. Does not wait;
 * `interrupted` is asked. */
rv_code rv_patience_check(rv_patience *patience, rv_error *err);
/* By who then waits for the gate, made by rv_gate_init_at, without anything in between: runs the task that asks for the answer, on the loop. */
void rv_gate_ask(rv_gate *gate, rv_task *task, rv_patience *patience);
/* The same where that needs nobody else, or else nothing and false. The task may be NULL: he only waits at the socket. */
bool rv_gate_visit(rv_gate *gate, rv_task *task, rv_patience *patience);
/* Waits until the gate opens (and closes it): RV_OK. Otherwise as rv_patience_check. An open gate wins over a deadline that has
 * passed, not over a cancellation. */
rv_code rv_gate_wait(rv_gate *gate, rv_patience *patience, rv_error *err);
/* The same, but waits no longer than until `at_ns` (monotonic): RV_OK then too, with *opened false. */
rv_code rv_gate_wait_until(rv_gate *gate, rv_patience *patience, int64_t at_ns, bool *opened, rv_error *err);
/* Not to be stopped: for what is certain to come at once. */
void rv_gate_wait_forever(rv_gate *gate);
bool rv_cancel_fired(const rv_cancel *cancel); /* NULL: false */

#endif
