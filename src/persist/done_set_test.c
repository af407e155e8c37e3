#include "persist/done_set.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"

static void numbers_in_order_take_one_run(void **state)
{
  (void)state;
  rv_done_set set;
  rv_done_set_init(&set);
  for (uint64_t n = 1; n <= 100000; n++) assert_int_equal(rv_done_set_add(&set, n, NULL), RV_OK);
  assert_int_equal(set.count, 1);
  assert_false(rv_done_set_has(&set, 0));
  assert_true(rv_done_set_has(&set, 1));
  assert_true(rv_done_set_has(&set, 100000));
  assert_false(rv_done_set_has(&set, 100001));
  rv_done_set_fini(&set);
}

static void a_gap_that_is_filled_joins_its_neighbours(void **state)
{
  (void)state;
  rv_done_set set;
  rv_done_set_init(&set);
  assert_int_equal(rv_done_set_add(&set, 5001, NULL), RV_OK);
  assert_int_equal(rv_done_set_add(&set, 5003, NULL), RV_OK);
  assert_int_equal(set.count, 2);
  assert_false(rv_done_set_has(&set, 5002));
  assert_int_equal(rv_done_set_add(&set, 5002, NULL), RV_OK);
  assert_int_equal(set.count, 1);
  rv_done_set_fini(&set);
}

static void the_ends_of_the_numbers_do_not_overflow(void **state)
{
  (void)state;
  rv_done_set set;
  rv_done_set_init(&set);
  assert_int_equal(rv_done_set_add(&set, UINT64_MAX, NULL), RV_OK);
  assert_int_equal(rv_done_set_add(&set, 0, NULL), RV_OK);
  assert_int_equal(rv_done_set_add(&set, UINT64_MAX - 1, NULL), RV_OK);
  assert_int_equal(set.count, 2);
  assert_true(rv_done_set_has(&set, 0));
  assert_true(rv_done_set_has(&set, UINT64_MAX));
  assert_false(rv_done_set_has(&set, 1));
  rv_done_set_fini(&set);
}

static void more_gaps_than_the_bound_are_refused_and_change_nothing(void **state)
{
  (void)state;
  rv_done_set set;
  rv_error err;
  rv_done_set_init(&set);
  for (uint64_t i = 0; i < RV_DONE_RUNS_MAX; i++) assert_int_equal(rv_done_set_add(&set, 2 * i, NULL), RV_OK);
  assert_int_equal(rv_done_set_add(&set, 2 * (uint64_t)RV_DONE_RUNS_MAX, &err), RV_RESOURCE_EXHAUSTED);
  assert_int_equal(set.count, RV_DONE_RUNS_MAX);
  assert_int_equal(rv_done_set_add(&set, 1, NULL), RV_OK); /* fills a gap */
  assert_int_equal(set.count, RV_DONE_RUNS_MAX - 1);
  rv_done_set_fini(&set);
}

static void any_order_agrees_with_a_plain_array_of_flags(void **state)
{
  (void)state;
  enum { N = 2000 };
  const uint64_t seed = 7;
  rv_random random;
  rv_random_init(&random, seed);
  bool flags[N] = {false};
  rv_done_set set;
  rv_done_set_init(&set);
  for (int i = 0; i < 3 * N; i++) {
    uint32_t n = rv_random_below(&random, N);
    flags[n] = true;
    assert_int_equal(rv_done_set_add(&set, n, NULL), RV_OK);
    uint32_t other = rv_random_below(&random, N);
    if (rv_done_set_has(&set, other) != flags[other]) fail_msg("seed %d: number %u", (int)seed, other);
  }
  for (size_t i = 1; i < set.count; i++) assert_true(set.runs[i - 1].last + 1 < set.runs[i].first);
  rv_done_set_fini(&set);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_in_order_take_one_run),
      cmocka_unit_test(a_gap_that_is_filled_joins_its_neighbours),
      cmocka_unit_test(the_ends_of_the_numbers_do_not_overflow),
      cmocka_unit_test(more_gaps_than_the_bound_are_refused_and_change_nothing),
      cmocka_unit_test(any_order_agrees_with_a_plain_array_of_flags),
  };
  return cmocka_run_group_tests_name("done_set", tests, NULL, NULL);
}
