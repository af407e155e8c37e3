#include "base/random_lanes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 100, SEED = 20261122 };

static void every_processor_draws_the_same(void **state)
{
  (void)state;
  static const uint32_t bounds[] = {1, 3, 1000, 100000, UINT32_C(0xC0000000), UINT32_MAX};
  rv_random_lanes_steps steps[3];
  size_t num_steps = rv_random_lanes_steps_here(steps);
  assert_true(num_steps >= 1);
  for (size_t k = 0; k < num_steps; k++) {
    print_message("%s, seed %d\n", steps[k].name, SEED);
    rv_random_lanes lanes, used;
    rv_random_lanes_init(&lanes, SEED);
    rv_random_lanes_init(&used, SEED);
    for (size_t n = 0; n <= MOST; n++)
      for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++) {
        uint32_t plain[MOST + 1], got[MOST + 1];
        memset(plain, 0xEE, sizeof plain);
        memset(got, 0xEE, sizeof got);
        steps[num_steps - 1].below(&lanes, bounds[b], plain, n);
        steps[k].below(&used, bounds[b], got, n);
        assert_memory_equal(got, plain, sizeof got); /* nothing is written behind the n-th, either */
        assert_memory_equal(&used, &lanes, sizeof lanes);
      }
  }
}

/* Each of `parts` equal parts of [0, below) is drawn about as often: chi-square with parts - 1 degrees of freedom, its 99.99 % point. */
static void check_parts(uint32_t below, uint32_t parts, double limit)
{
  enum { BATCH = 256, BATCHES = 4000 };
  static uint32_t drawn[BATCH];
  double counts[8] = {0}, expected = (double)BATCH * BATCHES / parts, chi = 0;
  rv_random_lanes lanes;
  rv_random_lanes_init(&lanes, SEED);
  for (size_t k = 0; k < BATCHES; k++) {
    rv_random_lanes_below(&lanes, below, drawn, BATCH);
    for (size_t i = 0; i < BATCH; i++) {
      assert_true(drawn[i] < below);
      counts[drawn[i] / (below / parts)]++;
    }
  }
  for (uint32_t i = 0; i < parts; i++) chi += (counts[i] - expected) * (counts[i] - expected) / expected;
  print_message("below %u: chi-square %g\n", (unsigned)below, chi);
  assert_true(chi < limit);
}

static void numbers_are_uniform(void **state)
{
  (void)state;
  check_parts(7, 7, 27.9);
  check_parts(100000, 8, 29.9);
}

static void numbers_are_uniform_where_a_quarter_is_drawn_again(void **state)
{
  (void)state;
  check_parts(UINT32_C(0xC0000000), 3, 18.5);
  check_parts(UINT32_C(0xC0000000), 6, 25.8);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_processor_draws_the_same),
      cmocka_unit_test(numbers_are_uniform),
      cmocka_unit_test(numbers_are_uniform_where_a_quarter_is_drawn_again),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
