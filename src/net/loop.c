#include "net/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/error.h"
#include "base/thread.h"

/* How often the deferred tasks and flushes that follow from each other are run before the sockets get their turn again. */
enum { ROUNDS = 8 };

/* With more than 1,024 sockets ready libuv asks for their events again and again, 48 times, before anything else has its turn, and before
 * the system hears which sockets are to be watched for what. So after so many events the inbox and the timers are looked at, and after so
 * many those sockets. */
enum { EVENTS_A_LOOK = 16, EVENTS_A_ROUND = 1024 };

#define TRIM_NS INT64_C(1000000000)
enum { CREW = 2 /* threads, the loop's own included */ };

void rv_task_init(rv_task *task, void (*run)(rv_task *task))
{
  task->run = run;
  rv_list_init(&task->link);
}

#ifdef RV_CHECK_LOCKS
void rv_loop_check(const rv_loop *loop, const char *function)
{
  if (pthread_equal(loop->thread, pthread_self()) != 0 ? loop->has_turn : rv_loop_is_current(loop)) return;
  fprintf(stderr, "%s was called from another thread than its loop's; use rv_loop_post\n", function);
  abort();
}
#endif

void rv_loop_defer(rv_loop *loop, rv_task *task)
{
  RV_LOOP_CHECK(loop);
  if (rv_list_empty(&task->link)) rv_list_push_back(&loop->deferred, &task->link);
}

void rv_loop_defer_flush(rv_loop *loop, rv_task *task)
{
  RV_LOOP_CHECK(loop);
  if (rv_list_empty(&task->link)) rv_list_push_back(&loop->flushing, &task->link);
}

void rv_loop_turn(rv_loop *loop, rv_task *task)
{
  RV_LOOP_CHECK(loop);
  if (rv_list_empty(&task->link)) rv_list_push_back(&loop->turns, &task->link);
}

void rv_loop_watch_later(rv_loop *loop, rv_task *task)
{
  if (rv_list_empty(&task->link)) rv_list_push_back(&loop->unwatched, &task->link);
}

static bool run_first(rv_link *list)
{
  rv_link *node = rv_list_pop_front(list);
  if (node == NULL) return false;
  rv_task *task = RV_CONTAINER(node, rv_task, link);
  task->run(task);
  return true;
}

static void run_all(rv_link *list)
{
  rv_link batch;
  rv_list_init(&batch);
  rv_list_splice(&batch, list);
  while (run_first(&batch)) continue;
}

static void take_inbox(rv_loop *loop)
{
  rv_link batch;
  rv_list_init(&batch);
  rv_mutex_lock(&loop->lock);
  loop->asleep = false;
  rv_list_splice(&batch, &loop->inbox);
  rv_mutex_unlock(&loop->lock);
  run_all(&batch);
}

/* Runs what was deferred, then lets connections send. */
static void settle(rv_loop *loop)
{
  int most = rv_loop_has_guest(loop) ? 1 : ROUNDS; /* what a guest leaves is what he cannot do */
  for (int round = 0; round < most; round++) {
    for (int inner = 0; inner < ROUNDS && !rv_list_empty(&loop->deferred); inner++) run_all(&loop->deferred);
    if (rv_list_empty(&loop->flushing)) break;
    run_all(&loop->flushing);
  }
}

static void run_inbox(rv_loop *loop)
{
  take_inbox(loop);
  settle(loop);
}

/* One turn for each of those who wait for one now. */
static void run_turns(rv_loop *loop)
{
  rv_link batch;
  rv_list_init(&batch);
  rv_list_splice(&batch, &loop->turns);
  while (run_first(&batch)) settle(loop);
}

/* They stay listed until the system hears of them. */
static void look_at_unwatched(rv_loop *loop)
{
  rv_link batch;
  rv_list_init(&batch);
  rv_list_splice(&batch, &loop->unwatched);
  for (rv_link *node; (node = rv_list_pop_front(&batch)) != NULL; settle(loop)) {
    rv_list_push_back(&loop->unwatched, node);
    rv_task *task = RV_CONTAINER(node, rv_task, link);
    task->run(task);
  }
}

static void fire_timers(rv_loop *loop)
{
  if (loop->timers == NULL) return;
  int64_t now = rv_monotonic_ns(&loop->env);
  while (loop->timers != NULL && loop->timers->at_ns <= now) {
    rv_timer *timer = loop->timers;
    rv_timer_stop(timer);
    timer->fire(timer);
  }
}

void rv_loop_event_done(rv_loop *loop)
{
  settle(loop);
  if (run_first(&loop->turns)) settle(loop);
  if (++loop->events % EVENTS_A_LOOK != 0) return;
  run_inbox(loop);
  fire_timers(loop);
  settle(loop);
  if (loop->events % EVENTS_A_ROUND == 0) look_at_unwatched(loop);
}

/* ---- being behind ---- */

enum { NS_A_MS = 1000000, CLOCKS_DIFFER_NS = 5 * NS_A_MS }; /* libuv's `now` may be the system's coarse one */

int64_t rv_loop_since_ns(rv_loop *loop)
{
  int64_t polled = (int64_t)uv_now(&loop->uv) * NS_A_MS;
  if (polled == loop->polled_ns) return loop->since_ns;
  bool waited = polled - loop->waits_from_ns > CLOCKS_DIFFER_NS;
  loop->since_ns = waited ? polled : loop->polled_ns;
  loop->polled_ns = polled;
  return loop->since_ns;
}

bool rv_loop_is_late(rv_loop *loop, int64_t since_ns)
{
  int64_t now = (int64_t)uv_hrtime();
  if (now - since_ns <= RV_LATE_NS) {
    loop->late_from_ns = INT64_MAX;
    return false;
  }
  if (loop->late_from_ns == INT64_MAX) loop->late_from_ns = now;
  return now - loop->late_from_ns > RV_LATE_FOR_NS;
}

static void on_alarm(uv_timer_t *alarm)
{
  rv_loop *loop = alarm->data;
  rv_loop_enter(loop);
  loop->alarm_at = INT64_MAX;
  fire_timers(loop);
}

/* One that is set earlier stays: it is set anew when it has fired. Calls come and end more often than their deadlines do. */
static void set_alarm(rv_loop *loop)
{
  int64_t at = loop->timers != NULL ? loop->timers->at_ns : INT64_MAX;
  if (at >= loop->alarm_at) return;
  loop->alarm_at = at;
  int64_t left = at - rv_monotonic_ns(&loop->env);
  uv_update_time(&loop->uv);
  uv_timer_start(&loop->alarm, on_alarm, left <= 0 ? 0 : (uint64_t)((left + 999999) / 1000000), 0);
}

static void close_all(rv_loop *loop)
{
  while (!rv_list_empty(&loop->connections)) {
    rv_link *link = loop->connections.next;
    rv_list_remove(link);
    loop->close_connection(link);
  }
  uv_close((uv_handle_t *)&loop->wake, NULL);
  uv_close((uv_handle_t *)&loop->before_sleep, NULL);
  uv_close((uv_handle_t *)&loop->after_sleep, NULL);
  uv_close((uv_handle_t *)&loop->busy, NULL);
  uv_close((uv_handle_t *)&loop->alarm, NULL);
}

/* Its table of descriptors is as large as the next power of two, and grows by realloc. */
bool rv_loop_can_watch(const rv_loop *loop, int fd)
{
  if ((unsigned)fd < loop->uv.nwatchers) return true;
  void *volatile room = malloc(((size_t)fd + 3) * 2 * sizeof(void *)); /* volatile: or the compiler leaves both calls out */
  bool fine = room != NULL;
  free(room);
  return fine;
}

void rv_loop_enter(rv_loop *loop)
{
  if (loop->has_turn) return;
  atomic_store_explicit(&loop->wants_turn, true, memory_order_relaxed);
  rv_mutex_lock(&loop->turn);
  atomic_store_explicit(&loop->wants_turn, false, memory_order_relaxed);
  loop->has_turn = true;
}

static void on_busy(uv_idle_t *busy)
{
  (void)busy;
}

static void on_before_sleep(uv_prepare_t *prepare)
{
  rv_loop *loop = prepare->data;
  rv_loop_enter(loop);
  run_inbox(loop);
  run_turns(loop);
  set_alarm(loop);
  loop->events = 0;
  while (rv_list_pop_front(&loop->unwatched) != NULL) continue; /* libuv tells the system of them now */
  bool done = rv_list_empty(&loop->deferred) && rv_list_empty(&loop->flushing) && rv_list_empty(&loop->turns);
  rv_mutex_lock(&loop->lock);
  bool posted = !rv_list_empty(&loop->inbox), stopping = loop->stopping;
  loop->asleep = done && !posted && !stopping;
  rv_mutex_unlock(&loop->lock);
  if (!done || posted)
    uv_idle_start(&loop->busy, on_busy);
  else
    uv_idle_stop(&loop->busy);
  loop->waits_from_ns = (int64_t)uv_hrtime();
  if (done && !posted && stopping) {
    close_all(loop);
    return;
  }
  loop->has_turn = false;
  rv_mutex_unlock(&loop->turn);
}

static void on_after_sleep(uv_check_t *check)
{
  rv_loop_enter(check->data);
  run_inbox(check->data);
}

static void on_wake(uv_async_t *wake)
{
  (void)wake;
}

/* Under the lock, which a thread that is cancelled would keep. */
static void wake_from_sleep(rv_loop *loop)
{
  int ignored, cancel_state;
  loop->asleep = false;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
  uv_async_send(&loop->wake);
  pthread_setcancelstate(cancel_state, &ignored);
}

void rv_loop_post(rv_loop *loop, rv_task *task)
{
  rv_mutex_lock(&loop->lock);
  rv_list_push_back(&loop->inbox, &task->link);
  /* Under the lock: the loop closes `wake` only after it has seen, under the lock, that nothing is posted. */
  if (loop->asleep) wake_from_sleep(loop);
  rv_mutex_unlock(&loop->lock);
}

bool rv_loop_is_current(const rv_loop *loop)
{
  if (pthread_equal(loop->thread, pthread_self()) != 0) return true;
  return atomic_load_explicit(&loop->has_guest, memory_order_acquire) &&
         pthread_equal(atomic_load_explicit(&loop->guest, memory_order_relaxed), pthread_self()) != 0;
}

/* ---- guests ---- */

bool rv_loop_has_rest(const rv_loop *loop)
{
  return !rv_list_empty(&loop->deferred) || !rv_list_empty(&loop->flushing) || !rv_list_empty(&loop->turns);
}

bool rv_loop_settle_visit(rv_loop *loop)
{
  settle(loop);
  return rv_loop_has_rest(loop) || (loop->timers != NULL && loop->timers->at_ns < loop->alarm_at);
}

void rv_loop_wake(rv_loop *loop)
{
  rv_mutex_lock(&loop->lock);
  if (loop->asleep) wake_from_sleep(loop);
  rv_mutex_unlock(&loop->lock);
}

typedef struct call_and_wait {
  rv_task task;
  void (*run)(void *argument);
  void *argument;
  rv_mutex lock;
  rv_cond done;
  bool is_done;
} call_and_wait;

static void run_call(rv_task *task)
{
  call_and_wait *call = RV_CONTAINER(task, call_and_wait, task);
  call->run(call->argument);
  rv_mutex_lock(&call->lock);
  call->is_done = true;
  rv_cond_signal(&call->done);
  rv_mutex_unlock(&call->lock);
}

void rv_loop_call(rv_loop *loop, void (*run)(void *argument), void *argument)
{
  if (rv_loop_is_current(loop)) {
    run(argument);
    return;
  }
  call_and_wait call = {.run = run, .argument = argument};
  rv_task_init(&call.task, run_call);
  rv_mutex_init(&call.lock, RV_RANK_WAIT, "loop call");
  rv_cond_init(&call.done);
  rv_loop_post(loop, &call.task);
  rv_mutex_lock(&call.lock);
  while (!call.is_done) rv_cond_wait(&call.done, &call.lock);
  rv_mutex_unlock(&call.lock);
  rv_cond_fini(&call.done);
  rv_mutex_fini(&call.lock);
}

static void *run_loop(void *argument)
{
  rv_loop *loop = argument;
  rv_mutex_lock(&loop->lock); /* rv_loop_new holds it until `thread` is set */
  rv_mutex_unlock(&loop->lock);
  uv_run(&loop->uv, UV_RUN_DEFAULT);
  rv_loop_enter(loop);
  do run_inbox(loop), run_turns(loop); /* what closing has left */
  while (!rv_list_empty(&loop->turns));
  uv_run(&loop->uv, UV_RUN_DEFAULT);
  if (loop->has_turn) rv_mutex_unlock(&loop->turn);
  return NULL;
}

static rv_code start_thread(rv_loop *loop, const char *name, rv_error *err)
{
  rv_mutex_lock(&loop->lock);
  int failed = rv_thread_start(&loop->thread, name == NULL ? "rv-io" : name, run_loop, loop);
  rv_mutex_unlock(&loop->lock);
  if (failed == 0) return RV_OK;
  return rv_fail(err, RV_RESOURCE_EXHAUSTED, "an I/O thread could not be started: %s; raise the limit of threads",
                 strerror(failed));
}

/* ---- spares ---- */

size_t rv_loop_waiting_bytes(rv_loop *loop)
{
  return atomic_load_explicit(&loop->held_bytes, memory_order_relaxed) + rv_loop_unsent_bytes(loop);
}

size_t rv_loop_unsent_bytes(rv_loop *loop)
{
  return atomic_load_explicit(&loop->unsent_bytes, memory_order_relaxed);
}

size_t rv_loop_lent_bytes(rv_loop *loop)
{
  return atomic_load_explicit(&loop->lent_bytes, memory_order_relaxed);
}

void rv_loop_count_unconfirmed(rv_loop *loop, size_t change)
{
  atomic_fetch_add_explicit(&loop->unconfirmed_bytes, change, memory_order_relaxed);
}

size_t rv_loop_unconfirmed_bytes(const rv_loop *loop)
{
  return atomic_load_explicit(&loop->unconfirmed_bytes, memory_order_relaxed);
}

size_t rv_loop_count_awaited(rv_loop *loop, size_t change)
{
  return atomic_fetch_add_explicit(&loop->awaited_bytes, change, memory_order_relaxed) + change;
}

size_t rv_loop_count_fetching(rv_loop *loop, size_t change)
{
  return atomic_fetch_add_explicit(&loop->fetching, change, memory_order_relaxed) + change;
}

rv_spares *rv_loop_spares(rv_loop *loop)
{
  return loop->spares;
}

rv_crew *rv_loop_crew(rv_loop *loop)
{
  if (!rv_core_is_spare(&loop->core)) return NULL;
  if (loop->crew == NULL && rv_crew_new(CREW, &loop->crew, NULL) != RV_OK) loop->crew = NULL;
  return loop->crew;
}

static void trim_later(rv_loop *loop)
{
  rv_timer_start(&loop->trim_spares, rv_monotonic_ns(&loop->env) + TRIM_NS);
}

static void on_trim(rv_timer *timer)
{
  if (rv_spares_trim(timer->loop->spares, rv_monotonic_ns(&timer->loop->env))) trim_later(timer->loop);
}

static void on_watch(rv_task *task)
{
  trim_later(RV_CONTAINER(task, rv_loop, watch_spares));
}

static void watch(void *context)
{
  rv_loop *loop = context;
  rv_loop_post(loop, &loop->watch_spares);
}

static void init_spares(rv_loop *loop)
{
  rv_task_init(&loop->watch_spares, on_watch);
  rv_timer_init(&loop->trim_spares, loop, on_trim);
  rv_spares_watch(loop->spares, watch, loop);
}

static void init_handles(rv_loop *loop)
{
  uv_prepare_init(&loop->uv, &loop->before_sleep);
  uv_check_init(&loop->uv, &loop->after_sleep);
  uv_idle_init(&loop->uv, &loop->busy);
  uv_timer_init(&loop->uv, &loop->alarm);
  loop->before_sleep.data = loop->after_sleep.data = loop->alarm.data = loop;
  uv_prepare_start(&loop->before_sleep, on_before_sleep);
  uv_check_start(&loop->after_sleep, on_after_sleep);
}

static void destroy(rv_loop *loop)
{
  while (loop->timers != NULL) rv_timer_stop(loop->timers);
  rv_buf_unref(loop->spare_block);
  rv_spares_close(loop->spares);
  rv_arena_maps_unref(loop->arena_maps);
  rv_crew_free(loop->crew);
  free(loop->scratch);
  rv_mutex_fini(&loop->lock);
  rv_mutex_fini(&loop->turn);
  if (loop->knock >= 0) close(loop->knock);
  free(loop);
}

/* For its first loop of a process libuv makes a pipe for signals, beside what the loop has open by then, and calls abort() where it gets
 * none. Which loop is the first it does not tell, so that each finds out by pipes of its own whether there is room: two, and not more
 * than any loop needs. What other threads open before libuv does is beyond it. */
static int init_uv(uv_loop_t *uv)
{
  int first[2], second[2], reason = 0;
  reason = uv_pipe(first, 0, 0);
  if (reason != 0) return reason;
  reason = uv_pipe(second, 0, 0);
  if (reason != 0) {
  } else {
    close(second[0]);
    close(second[1]);
  }
  close(first[0]);
  close(first[1]);
  return reason != 0 ? uv_translate_sys_error(reason) : uv_loop_init(uv);
}

rv_code rv_loop_new(const rv_env *env, const char *name, rv_loop **out, rv_error *err)
{
  rv_loop *loop = calloc(1, sizeof *loop);
  if (loop == NULL) return rv_fail_memory(err, sizeof *loop);
  rv_env_fill(&loop->env, env);
  loop->alarm_at = loop->late_from_ns = INT64_MAX;
  rv_list_init(&loop->deferred);
  rv_list_init(&loop->flushing);
  rv_list_init(&loop->turns);
  rv_list_init(&loop->unwatched);
  rv_list_init(&loop->connections);
  rv_list_init(&loop->inbox);
  rv_mutex_init(&loop->lock, RV_RANK_LOOP, "loop inbox");
  rv_mutex_init(&loop->turn, RV_RANK_TURN, "loop turn");
  loop->knock = -1;
  loop->scratch = malloc(RV_LOOP_SCRATCH);
  loop->spares = rv_spares_new(RV_LOOP_SPARE_BYTES);
  if (loop->scratch == NULL || loop->spares == NULL) {
    destroy(loop);
    return rv_fail_memory(err, RV_LOOP_SCRATCH);
  }
  int rc = init_uv(&loop->uv);
  if (rc == 0) {
    rc = uv_async_init(&loop->uv, &loop->wake, on_wake);
    if (rc != 0) uv_loop_close(&loop->uv);
  }
  if (rc != 0) {
    destroy(loop);
    return rv_fail(err, RV_RESOURCE_EXHAUSTED, "an event loop could not be made: %s; raise the limit of open files",
                   uv_strerror(rc));
  }
  init_handles(loop);
  init_spares(loop);
  rv_landing_round_init(&loop->landing, &loop->env, loop->spares);
  rv_code code = start_thread(loop, name, err);
  if (code != RV_OK) {
    close_all(loop);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    uv_loop_close(&loop->uv);
    destroy(loop);
    return code;
  }
  *out = loop;
  return RV_OK;
}

void rv_loop_free(rv_loop *loop)
{
  if (loop == NULL) return;
  rv_mutex_lock(&loop->lock);
  loop->stopping = true;
  uv_async_send(&loop->wake);
  rv_mutex_unlock(&loop->lock);
  pthread_join(loop->thread, NULL);
  int rc = uv_loop_close(&loop->uv);
  if (rc != 0) rv_log(&loop->env, RV_LOG_ERROR, "an event loop was closed with handles still open: %s", uv_strerror(rc));
  destroy(loop);
}
