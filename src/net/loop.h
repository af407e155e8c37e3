/* A loop's inside, for net alone: what connections need of it beside net.h. */
#ifndef RV_NET_LOOP_H
#define RV_NET_LOOP_H

#include <pthread.h>
#include <uv.h>

#include "base/arena_map.h"
#include "base/lock.h"
#include "base/spare_core.h"
#include "base/spares.h"
#include "net/address.h"
#include "net/landing.h"
#include "net/net.h"

/* Received bytes of all connections of a loop land here first; big messages have buffers of their own. */
enum { RV_LOOP_SCRATCH = 64 << 10 };

#define RV_LATE_NS INT64_C(250000000)
#define RV_LATE_FOR_NS INT64_C(250000000)

/* Memory that lies idle for the next large message; a second after it was last of use it is freed. */
enum { RV_LOOP_SPARE_BYTES = 8 << 20 };

struct rv_loop {
  rv_env env;
  uv_loop_t uv;
  uv_async_t wake;
  uv_prepare_t before_sleep;
  uv_check_t after_sleep;
  uv_idle_t busy; /* runs while somebody waits for a turn: then the loop only looks at its sockets */
  uv_timer_t alarm;
  int64_t alarm_at;  /* what the alarm is set to; INT64_MAX: not set */
  rv_timer *timers;  /* the earliest that runs, with the others below it (timer.c); NULL: none */
  rv_link deferred;  /* rv_task: to run before the loop sleeps */
  rv_link flushing;  /* rv_task: connections with something to send; after all that is deferred */
  rv_link turns;     /* rv_task: more work for somebody who has had a turn, first come, first served */
  rv_link unwatched; /* rv_task: sockets whose wishes the system is told of when the loop next waits */
  unsigned events;   /* of sockets since it last waited */
  /* How far behind it is (rv_loop_since_ns); all by the system's monotonic clock, as libuv's. */
  int64_t waits_from_ns, polled_ns, since_ns, late_from_ns;
  rv_link connections; /* closed when the loop ends */
  void (*close_connection)(rv_link *link);
  rv_buf *spare_block;                  /* one block of an rv_output, kept for the next */
  rv_spares *spares;                    /* for large messages, and what writers put large rows into */
  rv_arena_maps *arena_maps;            /* of servers, by its clients' connections; NULL: there are none yet */
  char takes_none[RV_ADDRESS_TEXT_MAX]; /* the address where a server was last asked in vain to take descriptors */
  rv_landing_round landing;             /* of its servers' connections */
  rv_task watch_spares;
  rv_timer trim_spares;
  rv_crew *crew;                   /* NULL: nobody has needed it */
  rv_spare_core core;              /* for it */
  uint8_t *scratch;                /* RV_LOOP_SCRATCH bytes */
  rv_gaps gaps;                    /* of the message that a connection is receiving just now */
  atomic_size_t held_bytes;        /* of all its connections: half received, or waiting for paused calls */
  atomic_size_t unsent_bytes;      /* of theirs, too: not yet taken by a socket */
  atomic_size_t lent_bytes;        /* of theirs, too: of messages that stay because clients read in them */
  atomic_size_t unconfirmed_bytes; /* of writers' */
  atomic_size_t awaited_bytes;     /* of large batches */
  atomic_size_t fetching;          /* samplers' streams */
  size_t num_wide;                 /* servers' open calls with RV_BORROWED_WINDOW */

  /* Held by whoever does the loop's work: its thread, but while that waits for the system, or a guest (guest.h). Guards all above, but what is
   * libuv's, which is the thread's. */
  rv_mutex turn;
  bool has_turn; /* the loop's thread */
  /* guest.c: */
  atomic_bool wants_turn; /* the loop's thread waits for it: nobody else takes it before */
  atomic_bool has_guest;
  _Atomic(pthread_t) guest; /* who has the turn, where a guest has it */
  int guests_cancel_state;
  atomic_bool has_sitter;
  int knock; /* an eventfd that the sitter looks at; -1: there has been no guest */

  pthread_t thread;
  rv_mutex lock; /* guards the rest */
  rv_link inbox;
  bool asleep; /* a post must wake it */
  bool stopping;
};

/* Aborts, in builds that check locks, when the caller is not on the loop's thread. */
#ifdef RV_CHECK_LOCKS
#define RV_LOOP_CHECK(loop) rv_loop_check(loop, __func__)
void rv_loop_check(const rv_loop *loop, const char *function);
#else
#define RV_LOOP_CHECK(loop) ((void)0)
#endif

/* By the loop's thread, whatever libuv calls: from here on it has the turn, until it waits for the system again. */
void rv_loop_enter(rv_loop *loop);
/* What is just done is done by a guest: what only libuv can do stays for the loop's thread. */
static inline bool rv_loop_has_guest(rv_loop *loop)
{
  return atomic_load_explicit(&loop->has_guest, memory_order_relaxed);
}
static inline bool rv_loop_has_sitter(rv_loop *loop)
{
  return atomic_load_explicit(&loop->has_sitter, memory_order_relaxed) && loop->knock >= 0;
}
/* From begin to end this thread does the loop's work. false: the loop's thread is at it, or has something to do. */
bool rv_loop_begin_visit(rv_loop *loop);
void rv_loop_end_visit(rv_loop *loop);
/* For guest.c. Something waits to be done that is in no inbox. */
bool rv_loop_has_rest(const rv_loop *loop);
/* Does what a visit has led to; true: the loop's thread is to be woken for the rest. */
bool rv_loop_settle_visit(rv_loop *loop);
void rv_loop_wake(rv_loop *loop);
/* false: libuv would find no memory to watch this descriptor, and end the process. Asked before each uv_poll_start of a new one. */
bool rv_loop_can_watch(const rv_loop *loop, int fd);
/* As rv_loop_defer, after all that is deferred. */
void rv_loop_defer_flush(rv_loop *loop, rv_task *task);
/* What a socket's event ends with: what it has caused is done and sent before the next socket is looked at, and one of those who wait
 * for a turn gets it. However many sockets are ready, none waits for all others, and what is sent is still in the cache. */
void rv_loop_event_done(rv_loop *loop);
/* What sockets have that were empty when they were last read came after this moment: when the loop last asked which are readable, or,
 * where it is so busy that it did not wait for an answer, when it asked the time before. For what is done at a socket's event. */
int64_t rv_loop_since_ns(rv_loop *loop);
/* Of what it does now, which came after that moment: true when that is long ago (RV_LATE_NS), and was for everything that the loop was asked
 * about for a while (RV_LATE_FOR_NS). So it is not when a thread was merely held up. */
bool rv_loop_is_late(rv_loop *loop, int64_t since_ns);
/* The task looks at its socket itself, should the loop not come to wait, and so to watch it as is wished, for long. */
void rv_loop_watch_later(rv_loop *loop, rv_task *task);

#endif
