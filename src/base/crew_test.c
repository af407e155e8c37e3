#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/crew.h"
#include "base/env.h"

enum { STEPS = 5000 };

typedef struct counted {
  atomic_uint done[STEPS];
  atomic_uint others; /* steps that some other thread than the caller did */
  pthread_t caller;
  bool wait_for_others;
  atomic_bool unmasked;
} counted;

static void wait_for_others(const counted *c)
{
  rv_env env;
  rv_env_default(&env);
  const int64_t give_up = rv_monotonic_ns(&env) + INT64_C(60000000000);
  while (atomic_load(&c->others) == 0) {
    if (rv_monotonic_ns(&env) > give_up) fail_msg("no helper takes part");
    sched_yield();
  }
}

static void count(void *context, size_t i)
{
  counted *c = context;
  atomic_fetch_add(&c->done[i], 1);
  if (!pthread_equal(pthread_self(), c->caller)) {
    sigset_t set;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    if (!sigismember(&set, SIGINT)) atomic_store(&c->unmasked, true);
    atomic_fetch_add(&c->others, 1);
  } else if (c->wait_for_others) {
    wait_for_others(c);
  }
}

static counted *new_counted(bool wait_for_others)
{
  counted *c = calloc(1, sizeof *c);
  assert_non_null(c);
  c->caller = pthread_self();
  c->wait_for_others = wait_for_others;
  return c;
}

static void assert_each_once(const counted *c, size_t n)
{
  for (size_t i = 0; i < STEPS; i++) assert_int_equal(c->done[i], i < n ? 1 : 0);
}

static void every_step_is_done_once_and_helpers_take_part_with_signals_masked(void **state)
{
  (void)state;
  rv_crew *crew;
  assert_int_equal(rv_crew_new(3, &crew, NULL), RV_OK);
  for (int round = 0; round < 20; round++) {
    counted *c = new_counted(round == 0); /* later ones may go without help */
    rv_crew_run(crew, STEPS, STEPS, count, c);
    assert_each_once(c, STEPS);
    assert_false(atomic_load(&c->unmasked));
    free(c);
  }
  rv_crew_free(crew);
}

/* The first loop is a crew's first with help, the second the first without. Far apart helpers sleep in between, at once they are awake
 * after the first few. */
static void helpers_take_part_in_loops_that_come_at_once_and_far_apart(void **state)
{
  (void)state;
  const struct timespec far = {.tv_nsec = 5000000};
  for (int apart = 0; apart < 2; apart++) {
    rv_crew *crew;
    assert_int_equal(rv_crew_new(2, &crew, NULL), RV_OK);
    for (int round = 0; round < 3; round++) {
      counted *c = new_counted(round != 1);
      rv_crew_run(crew, STEPS, STEPS, count, c);
      assert_each_once(c, STEPS);
      if (round != 1) assert_true(atomic_load(&c->others) > 0);
      free(c);
      if (apart == 1) nanosleep(&far, NULL);
    }
    for (int round = 0; round < 300; round++) {
      counted *c = new_counted(false);
      rv_crew_run(crew, STEPS, STEPS, count, c);
      assert_each_once(c, STEPS);
      free(c);
    }
    rv_crew_free(crew);
  }
}

static void take_long_if_helping(void *context, size_t i)
{
  counted *c = context;
  bool helping = !pthread_equal(pthread_self(), c->caller);
  if (helping) {
    atomic_fetch_add(&c->others, 1);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  } else if (i == 0) {
    wait_for_others(c);
  }
  atomic_fetch_add(&c->done[i], 1);
}

static void a_loop_ends_when_the_slowest_helper_has_returned(void **state)
{
  (void)state;
  rv_crew *crew;
  assert_int_equal(rv_crew_new(3, &crew, NULL), RV_OK);
  counted *c = new_counted(true);
  rv_crew_run(crew, 8, 8, take_long_if_helping, c);
  assert_each_once(c, 8);
  free(c);
  rv_crew_free(crew);
}

static void a_crew_of_one_and_no_crew_leave_all_to_the_caller(void **state)
{
  (void)state;
  rv_crew *crew;
  assert_int_equal(rv_crew_new(1, &crew, NULL), RV_OK);
  rv_crew *crews[] = {crew, NULL};
  for (int i = 0; i < 2; i++) {
    counted *c = new_counted(false);
    rv_crew_run(crews[i], STEPS - 1, STEPS - 1, count, c);
    assert_each_once(c, STEPS - 1);
    assert_int_equal(c->others, 0);
    free(c);
  }
  rv_crew_free(crew);
}

static void *run_many(void *crew)
{
  for (int round = 0; round < 200; round++) {
    counted *c = new_counted(false);
    rv_crew_run(crew, 50, 50, count, c);
    assert_each_once(c, 50);
    free(c);
  }
  return NULL;
}

static void callers_at_the_same_time_all_get_their_steps_done(void **state)
{
  (void)state;
  rv_crew *crew;
  pthread_t threads[4];
  assert_int_equal(rv_crew_new(3, &crew, NULL), RV_OK);
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_many, crew), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  rv_crew_free(crew);
}

static void a_forked_child_works_alone(void **state)
{
  (void)state;
  rv_crew *crew;
  assert_int_equal(rv_crew_new(2, &crew, NULL), RV_OK);
  counted *c = new_counted(true);
  rv_crew_run(crew, STEPS, STEPS, count, c);
  free(c);
  pid_t child = fork();
  if (child == 0) {
    counted *own = new_counted(false);
    rv_crew_run(crew, STEPS, STEPS, count, own);
    bool fine = own->others == 0;
    for (size_t i = 0; i < STEPS; i++) fine = fine && own->done[i] == 1;
    rv_crew_free(crew);
    _exit(fine ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  rv_crew_free(crew);
}

static void more_threads_than_are_sensible_are_refused(void **state)
{
  (void)state;
  rv_crew *crew;
  rv_error err;
  assert_int_equal(rv_crew_new(65, &crew, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_crew_new(0, &crew, &err), RV_OK);
  assert_in_range(rv_crew_max_threads(crew), 1, 4);
  rv_crew_free(crew);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_step_is_done_once_and_helpers_take_part_with_signals_masked),
      cmocka_unit_test(helpers_take_part_in_loops_that_come_at_once_and_far_apart),
      cmocka_unit_test(a_loop_ends_when_the_slowest_helper_has_returned),
      cmocka_unit_test(a_crew_of_one_and_no_crew_leave_all_to_the_caller),
      cmocka_unit_test(callers_at_the_same_time_all_get_their_steps_done),
      cmocka_unit_test(a_forked_child_works_alone),
      cmocka_unit_test(more_threads_than_are_sensible_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
