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
  rv_done_set_init(&set, NULL);
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
  rv_done_set_init(&set, NULL);
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
  rv_done_set_init(&set, NULL);
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
  rv_done_set_init(&set, NULL);
  for (uint64_t i = 0; i < RV_DONE_RUNS_MAX; i++) assert_int_equal(rv_done_set_add(&set, 2 * i, NULL), RV_OK);
  assert_int_equal(rv_done_set_add(&set, 2 * (uint64_t)RV_DONE_RUNS_MAX, &err), RV_RESOURCE_EXHAUSTED);
  assert_int_equal(set.count, RV_DONE_RUNS_MAX);
  assert_int_equal(rv_done_set_add(&set, 1, NULL), RV_OK); /* fills a gap */
  assert_int_equal(set.count, RV_DONE_RUNS_MAX - 1);
  rv_done_set_fini(&set);
}

static void put(rv_done_set *set, bool *flags, uint64_t number)
{
  flags[number] = true;
  assert_int_equal(rv_done_set_add(set, number, NULL), RV_OK);
}

/* Its runs are those of the flags, one after another, and it counts them. */
static void check_runs(const rv_done_set *set, const bool *flags, uint64_t count)
{
  rv_done_place place = {0};
  rv_done_run run;
  size_t runs = 0;
  for (uint64_t n = 0; n < count; n++) {
    assert_int_equal(rv_done_set_has(set, n), flags[n]);
    if (!flags[n]) continue;
    assert_true(rv_done_set_next(set, &place, &run));
    assert_int_equal(run.first, n);
    while (n + 1 < count && flags[n + 1]) n++;
    assert_int_equal(run.last, n);
    runs++;
  }
  assert_false(rv_done_set_next(set, &place, &run));
  assert_int_equal(set->count, runs);
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
  rv_done_set_init(&set, NULL);
  for (int i = 0; i < 3 * N; i++) {
    uint32_t n = rv_random_below(&random, N);
    put(&set, flags, n);
    uint32_t other = rv_random_below(&random, N);
    if (rv_done_set_has(&set, other) != flags[other]) fail_msg("seed %d: number %u", (int)seed, other);
  }
  check_runs(&set, flags, N);
  rv_done_set_fini(&set);
}

/* Blocks are split, joined, and emptied from either end. */
static void many_runs_agree_with_a_plain_array_of_flags(void **state)
{
  (void)state;
  enum { N = 40000, DROPPED = 1000 };
  static bool flags[N];
  rv_random random;
  rv_random_init(&random, 8);
  rv_done_set set, copy;
  rv_done_set_init(&set, NULL);
  for (int n = N - 1; n > N / 2; n -= 2) put(&set, flags, (uint64_t)n);                      /* descending, */
  for (int n = 1; n < N / 4; n += 2) put(&set, flags, (uint64_t)n);                          /* ascending, */
  for (int i = 0; i < N / 4; i++) put(&set, flags, N / 4 + rv_random_below(&random, N / 4)); /* and in no order */
  check_runs(&set, flags, N);
  for (int i = 0; i < N; i++) put(&set, flags, rv_random_below(&random, N)); /* most gaps close */
  check_runs(&set, flags, N);
  rv_done_set_init(&copy, NULL);
  assert_int_equal(rv_done_set_copy(&copy, &set, NULL), RV_OK);
  check_runs(&copy, flags, N);
  size_t before = set.count;
  uint64_t last = rv_done_set_drop_first(&set, DROPPED);
  assert_int_equal(set.count, before - DROPPED);
  for (uint64_t n = 0; n <= last; n++) flags[n] = false;
  check_runs(&set, flags, N);
  rv_done_set_fini(&set);
  rv_done_set_fini(&copy);
}

/* What all sets of an account have is bounded, but each may have some; and it is given back. */
static void an_account_bounds_what_sets_have_together(void **state)
{
  (void)state;
  enum { SETS = RV_DONE_RUNS_ALL / RV_DONE_RUNS_MAX + 1 };
  static rv_done_set sets[SETS], last;
  atomic_size_t account = 0;
  size_t runs = 0;
  for (int i = 0; i < SETS; i++) {
    rv_done_set_init(&sets[i], &account);
    uint64_t n = 0;
    while (rv_done_set_append(&sets[i], 2 * n, 2 * n, NULL) == RV_OK) n++;
    runs += n;
  }
  assert_int_equal(runs, RV_DONE_RUNS_ALL);
  assert_int_equal(atomic_load(&account), runs);
  rv_done_set_init(&last, &account);
  uint64_t n = 0;
  while (rv_done_set_add(&last, 2 * n, NULL) == RV_OK) n++;
  assert_int_equal(n, RV_DONE_RUNS_OWN);
  assert_true(rv_done_set_is_full(&last));
  assert_int_equal(rv_done_set_add(&last, 1, NULL), RV_OK); /* fills a gap */
  rv_done_set_fini(&sets[0]);
  assert_false(rv_done_set_is_full(&last));
  for (int i = 1; i < SETS; i++) rv_done_set_fini(&sets[i]);
  rv_done_set_fini(&last);
  assert_int_equal(atomic_load(&account), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_in_order_take_one_run),
      cmocka_unit_test(a_gap_that_is_filled_joins_its_neighbours),
      cmocka_unit_test(the_ends_of_the_numbers_do_not_overflow),
      cmocka_unit_test(more_gaps_than_the_bound_are_refused_and_change_nothing),
      cmocka_unit_test(any_order_agrees_with_a_plain_array_of_flags),
      cmocka_unit_test(many_runs_agree_with_a_plain_array_of_flags),
      cmocka_unit_test(an_account_bounds_what_sets_have_together),
  };
  return cmocka_run_group_tests_name("done_set", tests, NULL, NULL);
}
