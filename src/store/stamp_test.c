#include "store/testing.h"

#include "store/stamp.h"

static void times_keep_to_the_system_clock(void **state)
{
  (void)state;
  rv_env env;
  rv_env_fill(&env, NULL);
  rv_stamp stamp;
  rv_stamp_init(&stamp, &env);
  int64_t last = 0;
  for (int i = 0; i < 2000000; i++) {
    int64_t before = i % 1000 == 0 ? rv_wall_ns(&env) : 0, now = rv_stamp_now(&stamp, &env);
    if (before == 0) continue;
    int64_t after = rv_wall_ns(&env);
    /* a tenth of a millisecond: the counter's speed was measured over little more than that */
    assert_true(now >= before - 100000 && now <= after + 100000);
    assert_true(now >= last - 200000);
    last = now;
  }
}

static int64_t fixed_ns(void *context)
{
  return ++*(int64_t *)context;
}

static void a_clock_of_the_embedders_own_is_asked_every_time(void **state)
{
  (void)state;
  int64_t time = 1000;
  rv_env own = {.size = sizeof own, .context = &time, .wall_ns = fixed_ns}, env;
  rv_env_fill(&env, &own);
  rv_stamp stamp;
  rv_stamp_init(&stamp, &env);
  for (int64_t i = 0; i < 1000; i++) assert_int_equal(rv_stamp_now(&stamp, &env), 1001 + i);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(times_keep_to_the_system_clock),
      cmocka_unit_test(a_clock_of_the_embedders_own_is_asked_every_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
