#include "net/echo_testing.h"

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

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tasks_posted_by_many_threads_all_run_in_their_order),
      cmocka_unit_test(a_call_runs_on_the_loop_with_signals_masked),
      cmocka_unit_test(timers_fire_in_order_and_stopped_ones_do_not),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
