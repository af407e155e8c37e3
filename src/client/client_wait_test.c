#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "client/wait.h"

/* A clock that jumps ten seconds at each look. */
static int64_t now_ns;
static int64_t jumping(void *context)
{
  (void)context;
  return now_ns += INT64_C(10000000000);
}

static char logged[512];
static int num_logged;
static void keep_line(void *context, rv_log_level level, const char *line)
{
  (void)context, (void)level;
  snprintf(logged, sizeof logged, "%s", line);
  num_logged++;
}

static rv_env env_of_tests(bool jumps)
{
  rv_env env, given = {.size = sizeof given, .log = keep_line, .log_level = RV_LOG_WARNING};
  if (jumps) given.monotonic_ns = jumping;
  rv_env_fill(&env, &given);
  return env;
}

static void describe(void *context, char *out, size_t capacity)
{
  snprintf(out, capacity, "waits for %s", (const char *)context);
}

static void an_open_gate_lets_one_wait_through(void **state)
{
  (void)state;
  rv_env env = env_of_tests(false);
  rv_gate gate;
  rv_gate_init(&gate);
  rv_patience patience;
  rv_wait wait = {.timeout_ms = 0};
  rv_patience_begin(&patience, &env, &wait, describe, "rain");
  rv_gate_open(&gate);
  rv_gate_open(&gate);
  rv_error err;
  assert_int_equal(rv_gate_wait(&gate, &patience, &err), RV_OK);
  assert_int_equal(rv_gate_wait(&gate, &patience, &err), RV_DEADLINE_EXCEEDED);
  assert_non_null(strstr(err.message, "waits for rain"));
}

static void a_long_wait_is_logged(void **state)
{
  (void)state;
  rv_env env = env_of_tests(true);
  num_logged = 0;
  rv_gate gate;
  rv_gate_init(&gate);
  rv_patience patience;
  rv_wait wait = {.timeout_ms = 60000};
  rv_patience_begin(&patience, &env, &wait, describe, "rain");
  rv_error err;
  assert_int_equal(rv_gate_wait(&gate, &patience, &err), RV_DEADLINE_EXCEEDED);
  assert_int_equal(num_logged, 1);
  assert_non_null(strstr(logged, "waits for rain"));
}

static void a_timeout_says_what_the_caller_gave(void **state)
{
  (void)state;
  static const struct {
    rv_wait wait;
    const char *said;
  } cases[] = {{{.timeout_ms = 3000}, "timed out after 3 s: waits for rain"},
               {{.timeout_ms = 2999, .given_ms = 3000}, "timed out after 3 s: waits for rain"},
               {{.timeout_ms = 0, .given_ms = 250}, "timed out after 0.25 s: waits for rain"},
               {{.timeout_ms = 0}, "timed out after 0 s: waits for rain"},
               {{.timeout_ms = 2000000}, "timed out after 2000 s: waits for rain"},
               {{.timeout_ms = 1234567001}, "timed out after 1234567.001 s: waits for rain"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    rv_env env = env_of_tests(true);
    rv_patience patience;
    rv_error err;
    rv_patience_begin(&patience, &env, &cases[i].wait, describe, "rain");
    assert_int_equal(rv_patience_late(&patience, &err), RV_DEADLINE_EXCEEDED);
    assert_string_equal(err.message, cases[i].said);
  }
}

static bool after_three(void *context)
{
  int *asked = context;
  return ++*asked == 3;
}

static void an_interrupted_wait_ends(void **state)
{
  (void)state;
  rv_env env = env_of_tests(false);
  rv_gate gate;
  rv_gate_init(&gate);
  rv_patience patience;
  int asked = 0;
  rv_wait wait = {.timeout_ms = RV_FOREVER, .interrupted = after_three, .context = &asked};
  rv_patience_begin(&patience, &env, &wait, NULL, NULL);
  rv_error err;
  assert_int_equal(rv_gate_wait(&gate, &patience, &err), RV_CANCELLED);
  assert_int_equal(asked, 3);
}

/* Whoever waits again in the same call, for something else, is not to wait longer. */
static void what_is_interrupted_stays_so(void **state)
{
  (void)state;
  rv_env env = env_of_tests(false);
  rv_gate gates[2];
  rv_patience patience;
  int asked = 2; /* the next answer is yes, and those after it are no */
  const rv_wait wait = {.timeout_ms = RV_FOREVER, .interrupted = after_three, .context = &asked};
  rv_patience_begin(&patience, &env, &wait, NULL, NULL);
  rv_error err;
  for (int i = 0; i < 2; i++) {
    rv_gate_init(&gates[i]);
    assert_int_equal(rv_gate_wait(&gates[i], &patience, &err), RV_CANCELLED);
  }
  assert_int_equal(asked, 3);
}

static void count(void *context)
{
  ++*(int *)context;
}

static void a_caller_is_told_before_it_waits_and_only_then(void **state)
{
  (void)state;
  rv_env env = env_of_tests(false);
  rv_gate gate;
  rv_gate_init(&gate);
  rv_patience patience;
  int told = 0;
  rv_wait wait = {.timeout_ms = 1, .blocking = count, .context = &told};
  rv_patience_begin(&patience, &env, &wait, NULL, NULL);
  rv_error err;
  rv_gate_open(&gate);
  assert_int_equal(rv_gate_wait(&gate, &patience, &err), RV_OK);
  assert_int_equal(told, 0);
  assert_int_equal(rv_gate_wait(&gate, &patience, &err), RV_DEADLINE_EXCEEDED);
  assert_int_equal(told, 1);
}

static void *fire(void *context)
{
  rv_cancel_fire(context);
  return NULL;
}

static void a_cancellation_ends_a_wait_and_every_later_one(void **state)
{
  (void)state;
  rv_env env = env_of_tests(false);
  rv_error err;
  rv_gate gate;
  rv_gate_init(&gate);
  rv_cancel *cancel;
  assert_int_equal(rv_cancel_new(&cancel, &err), RV_OK);
  rv_patience patience;
  rv_wait wait = {.timeout_ms = RV_FOREVER, .cancel = cancel};
  rv_patience_begin(&patience, &env, &wait, NULL, NULL);
  pthread_t thread;
  pthread_create(&thread, NULL, fire, cancel);
  assert_int_equal(rv_gate_wait(&gate, &patience, &err), RV_CANCELLED);
  pthread_join(thread, NULL);
  assert_int_equal(rv_gate_wait(&gate, &patience, &err), RV_CANCELLED);
  rv_gate_open(&gate); /* not even then, but the gate stays open */
  assert_int_equal(rv_gate_wait(&gate, &patience, &err), RV_CANCELLED);
  rv_gate_wait_forever(&gate);
  rv_cancel_free(cancel);
}

static void *open_gate(void *context)
{
  rv_gate_open(context);
  return NULL;
}

static void a_gate_may_be_opened_by_another_thread(void **state)
{
  (void)state;
  rv_env env = env_of_tests(false);
  rv_error err;
  for (int i = 0; i < 200; i++) {
    rv_gate gate;
    rv_gate_init(&gate);
    rv_patience patience;
    rv_patience_begin(&patience, &env, NULL, NULL, NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, open_gate, &gate);
    assert_int_equal(rv_gate_wait(&gate, &patience, &err), RV_OK);
    memset(&gate, 0xff, sizeof gate); /* at once: whoever opened it is through with it */
    pthread_join(thread, NULL);
  }
}

static void waiting_until_a_time_ends_without_an_error(void **state)
{
  (void)state;
  rv_env env = env_of_tests(false);
  rv_error err;
  rv_gate gate;
  rv_gate_init(&gate);
  rv_patience patience;
  rv_patience_begin(&patience, &env, NULL, NULL, NULL);
  bool opened = true;
  assert_int_equal(rv_gate_wait_until(&gate, &patience, rv_monotonic_ns(&env) + 1000000, &opened, &err), RV_OK);
  assert_false(opened);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(an_open_gate_lets_one_wait_through),
                                     cmocka_unit_test(a_long_wait_is_logged),
                                     cmocka_unit_test(a_timeout_says_what_the_caller_gave),
                                     cmocka_unit_test(an_interrupted_wait_ends),
                                     cmocka_unit_test(what_is_interrupted_stays_so),
                                     cmocka_unit_test(a_caller_is_told_before_it_waits_and_only_then),
                                     cmocka_unit_test(a_cancellation_ends_a_wait_and_every_later_one),
                                     cmocka_unit_test(a_gate_may_be_opened_by_another_thread),
                                     cmocka_unit_test(waiting_until_a_time_ends_without_an_error)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
