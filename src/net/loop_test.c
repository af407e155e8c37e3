#include "net/echo_testing.h"
#include "net/loop.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/env.h"
#include "base/random.h"

static rv_loop *make_loop(const rv_env *env)
{
  rv_loop *loop = NULL;
  rv_error error = {0};
  if (rv_loop_new(env, "a loop with a long name", &loop, &error) != RV_OK) fail_msg("%s", error.message);
  return loop;
}

typedef struct counted_task {
  rv_task task;
  unsigned *expected; /* of this poster; on the loop's thread */
  unsigned number;
  atomic_uint *done;
} counted_task;

static void run_counted(rv_task *task)
{
  counted_task *counted = RV_CONTAINER(task, counted_task, task);
  assert_int_equal(*counted->expected, counted->number);
  ++*counted->expected;
  atomic_fetch_add(counted->done, 1);
}

enum { POSTERS = 4, POSTS = 20000 };

typedef struct poster {
  rv_loop *loop;
  counted_task *tasks;
  unsigned expected;
  atomic_uint *done;
} poster;

static void *post_many(void *argument)
{
  poster *self = argument;
  for (unsigned i = 0; i < POSTS; i++) {
    self->tasks[i] = (counted_task){.task = {.run = run_counted}, .expected = &self->expected, .number = i, .done = self->done};
    rv_loop_post(self->loop, &self->tasks[i].task);
  }
  return NULL;
}

static void tasks_posted_by_many_threads_all_run_in_their_order(void **state)
{
  (void)state;
  rv_loop *loop = make_loop(NULL);
  atomic_uint done = 0;
  poster self[POSTERS];
  pthread_t thread[POSTERS];
  for (int i = 0; i < POSTERS; i++) {
    self[i] = (poster){.loop = loop, .tasks = calloc(POSTS, sizeof(counted_task)), .done = &done};
    pthread_create(&thread[i], NULL, post_many, &self[i]);
  }
  for (int i = 0; i < POSTERS; i++) pthread_join(thread[i], NULL);
  rv_loop_free(loop); /* runs what is queued */
  assert_int_equal(atomic_load(&done), POSTERS * POSTS);
  for (int i = 0; i < POSTERS; i++) free(self[i].tasks);
}

static void set_true(void *argument)
{
  *(bool *)argument = true;
}

static void note_thread(void *argument)
{
  rv_loop *loop = *(rv_loop **)argument;
  assert_true(rv_loop_is_current(loop));
  sigset_t masked;
  pthread_sigmask(SIG_SETMASK, NULL, &masked);
  assert_int_equal(sigismember(&masked, SIGINT), 1);
  assert_int_equal(sigismember(&masked, SIGTERM), 1);
  bool nested = false;
  rv_loop_call(loop, set_true, &nested);
  assert_true(nested);
}

static void a_call_runs_on_the_loop_with_signals_masked(void **state)
{
  (void)state;
  rv_loop *loop = make_loop(NULL);
  assert_false(rv_loop_is_current(loop));
  rv_loop_call(loop, note_thread, &loop);
  sigset_t mine;
  pthread_sigmask(SIG_SETMASK, NULL, &mine);
  assert_int_equal(sigismember(&mine, SIGINT), 0);
  rv_loop_free(loop);
}

enum { TIMERS = 500 };

typedef struct timers timers;

typedef struct one_timer {
  rv_timer timer;
  timers *all;
} one_timer;

struct timers {
  rv_loop *loop;
  one_timer one[TIMERS];
  int64_t last_ns;
  int fired, stopped;
  rv_mutex lock;
  rv_cond changed;
};

static void fire(rv_timer *timer)
{
  timers *shared = RV_CONTAINER(timer, one_timer, timer)->all;
  assert_true(timer->at_ns >= shared->last_ns);
  shared->last_ns = timer->at_ns;
  rv_mutex_lock(&shared->lock);
  shared->fired++;
  rv_cond_signal(&shared->changed);
  rv_mutex_unlock(&shared->lock);
}

static void start_timers(void *argument)
{
  timers *all = argument;
  rv_env env;
  rv_env_default(&env);
  int64_t now = rv_monotonic_ns(&env);
  rv_random random;
  rv_random_init(&random, 7);
  for (int i = 0; i < TIMERS; i++) {
    all->one[i].all = all;
    rv_timer_init(&all->one[i].timer, all->loop, fire);
    rv_timer_start(&all->one[i].timer, now + rv_random_below(&random, 30000000));
  }
  for (int i = 0; i < TIMERS; i += 5) rv_timer_start(&all->one[i].timer, now + rv_random_below(&random, 30000000)); /* moved */
  for (int i = 0; i < TIMERS; i += 3) {
    rv_timer_stop(&all->one[i].timer);
    rv_timer_stop(&all->one[i].timer);
    all->stopped++;
  }
}

static void timers_fire_in_order_and_stopped_ones_do_not(void **state)
{
  (void)state;
  timers *all = calloc(1, sizeof *all);
  rv_mutex_init(&all->lock, RV_RANK_CLIENT, "timers");
  rv_cond_init(&all->changed);
  all->loop = make_loop(NULL);
  rv_loop_call(all->loop, start_timers, all);
  rv_mutex_lock(&all->lock);
  while (all->fired < TIMERS - all->stopped) rv_cond_wait(&all->changed, &all->lock);
  rv_mutex_unlock(&all->lock);
  rv_loop_free(all->loop);
  assert_int_equal(all->fired, TIMERS - all->stopped);
  rv_cond_fini(&all->changed);
  rv_mutex_fini(&all->lock);
  free(all);
}

/* ---- turns ---- */

enum { WORKERS = 5, PIECES = 200, EVENTS = 4000 };

typedef struct worker {
  rv_task task;
  rv_loop *loop;
  int done;
  const struct worker *all;
  atomic_int *finished;
} worker;

/* A piece of work; nobody is more than one piece ahead of anybody. */
static void work(rv_task *task)
{
  worker *self = RV_CONTAINER(task, worker, task);
  self->done++;
  for (int i = 0; i < WORKERS; i++) assert_in_range(self->all[i].done + 1, self->done, self->done + 2);
  if (self->done < PIECES)
    rv_loop_turn(self->loop, &self->task);
  else
    atomic_fetch_add(self->finished, 1);
}

static void begin_work(void *argument)
{
  worker *all = argument;
  for (int i = 0; i < WORKERS; i++) {
    rv_loop_turn(all[i].loop, &all[i].task);
    rv_loop_turn(all[i].loop, &all[i].task); /* it waits already */
  }
}

static void who_wants_turns_gets_them_by_turns_and_holds_up_no_task(void **state)
{
  (void)state;
  rv_loop *loop = make_loop(NULL);
  atomic_int finished = 0;
  worker all[WORKERS];
  for (int i = 0; i < WORKERS; i++) {
    all[i] = (worker){.loop = loop, .all = all, .finished = &finished};
    rv_task_init(&all[i].task, work);
  }
  rv_loop_call(loop, begin_work, all);
  while (atomic_load(&finished) < WORKERS) {
    bool called = false;
    rv_loop_call(loop, set_true, &called);
    assert_true(called);
  }
  for (int i = 0; i < WORKERS; i++) assert_int_equal(all[i].done, PIECES);
  rv_loop_free(loop);
}

/* Sockets that are always ready: their events follow one another, and the loop does not come to wait. */
typedef struct crowd {
  rv_loop *loop;
  int event, seen_turn, seen_post, seen_timer, looks;
  rv_task turn, post, look;
  rv_timer timer;
} crowd;

static void see_turn(rv_task *task)
{
  crowd *all = RV_CONTAINER(task, crowd, turn);
  all->seen_turn = all->event;
}
static void see_post(rv_task *task)
{
  crowd *all = RV_CONTAINER(task, crowd, post);
  all->seen_post = all->event;
}
static void see_look(rv_task *task)
{
  crowd *all = RV_CONTAINER(task, crowd, look);
  all->looks++;
}
static void see_timer(rv_timer *timer)
{
  crowd *all = RV_CONTAINER(timer, crowd, timer);
  all->seen_timer = all->event;
}

static void run_crowd(void *argument)
{
  crowd *all = argument;
  rv_task_init(&all->turn, see_turn);
  rv_task_init(&all->post, see_post);
  rv_task_init(&all->look, see_look);
  rv_timer_init(&all->timer, all->loop, see_timer);
  rv_loop_turn(all->loop, &all->turn);
  rv_loop_post(all->loop, &all->post);
  rv_loop_watch_later(all->loop, &all->look);
  rv_timer_start(&all->timer, 0);
  for (all->event = 1; all->event <= EVENTS; all->event++) rv_loop_event_done(all->loop);
}

static void however_many_sockets_are_ready_others_are_served_between_them(void **state)
{
  (void)state;
  crowd all = {.loop = make_loop(NULL)};
  rv_loop_call(all.loop, run_crowd, &all);
  assert_int_equal(all.seen_turn, 1);
  assert_in_range(all.seen_post, 1, 16);
  assert_in_range(all.seen_timer, 1, 16);
  assert_int_equal(all.looks, EVENTS / 1024); /* again and again, for as long as the loop does not wait */
  rv_loop_free(all.loop);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tasks_posted_by_many_threads_all_run_in_their_order),
      cmocka_unit_test(a_call_runs_on_the_loop_with_signals_masked),
      cmocka_unit_test(timers_fire_in_order_and_stopped_ones_do_not),
      cmocka_unit_test(who_wants_turns_gets_them_by_turns_and_holds_up_no_task),
      cmocka_unit_test(however_many_sockets_are_ready_others_are_served_between_them),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
