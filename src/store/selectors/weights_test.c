#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "store/selectors/weights.h"

static double weigh(double exponent, double priority)
{
  double weight = -1;
  rv_weigh(exponent, &priority, &weight, 1);
  return weight;
}

static void priority_zero_weighs_nothing_whatever_the_exponent(void **state)
{
  (void)state;
  const double exponents[] = {0, 0.3, 1, 2, 1e308, -1, -1e308};
  for (size_t i = 0; i < sizeof exponents / sizeof exponents[0]; i++) {
    assert_true(weigh(exponents[i], 0.0) == 0);
    assert_true(weigh(exponents[i], -0.0) == 0);
    assert_true(weigh(exponents[i], 5e-324) > 0);
    assert_true(weigh(exponents[i], 1) == 1);
  }
}

static void weights_stay_between_bounds_whose_sum_is_finite(void **state)
{
  (void)state;
  assert_true(weigh(2, 1e300) == RV_WEIGHT_MAX);
  assert_true(weigh(1, DBL_MAX) == RV_WEIGHT_MAX);
  assert_true(weigh(1e308, 1.5) == RV_WEIGHT_MAX);
  assert_true(weigh(-1, 5e-324) == RV_WEIGHT_MAX);
  assert_true(weigh(-1, HUGE_VAL) == RV_WEIGHT_MIN);
  assert_true(weigh(2, 1e-300) == RV_WEIGHT_MIN);
  assert_true(weigh(1e308, 0.5) == RV_WEIGHT_MIN);
  assert_true(weigh(1, 5e-324) == RV_WEIGHT_MIN);
  assert_true(isfinite(RV_WEIGHT_MAX * 0x1p32));
}

static void powers_are_those_of_the_mathematics_library(void **state)
{
  (void)state;
  rv_random random;
  rv_random_init(&random, 1);
  for (int i = 0; i < 200000; i++) {
    double priority = exp2(rv_random_unit(&random) * 200 - 100);
    double exponent = rv_random_unit(&random) * 4;
    double expected = pow(priority, exponent);
    double weight = weigh(exponent, priority);
    assert_true(fabs(weight / expected - 1) <= (2 + fabs(log2(expected))) * DBL_EPSILON);
  }
  assert_true(fabs(weigh(0.25, 5e-324) / pow(5e-324, 0.25) - 1) < 1e-12); /* below the normal numbers */
}

static void many_weigh_what_each_weighs_alone_and_in_place(void **state)
{
  (void)state;
  enum { N = 333 };
  const double exponents[] = {0, 0.6, 1};
  rv_random random;
  rv_random_init(&random, 2);
  for (size_t e = 0; e < 3; e++) {
    double priorities[N], weights[N];
    for (int i = 0; i < N; i++) priorities[i] = i % 7 == 0 ? 0 : rv_random_unit(&random) * 1000;
    rv_weigh(exponents[e], priorities, weights, N);
    for (int i = 0; i < N; i++) assert_true(weights[i] == weigh(exponents[e], priorities[i]));
    rv_weigh(exponents[e], priorities, priorities, N);
    assert_memory_equal(priorities, weights, sizeof weights);
  }
}

/* The same bits come out on every processor and from every build, so that a seed draws the same everywhere. */
static void weights_are_the_same_bits_everywhere(void **state)
{
  (void)state;
  enum { N = 1000 };
  static double priorities[N], weights[N];
  rv_random random;
  rv_random_init(&random, 3);
  for (int i = 0; i < N; i++) {
    int exponent = (int)rv_random_below(&random, 40) - 20;
    priorities[i] = ldexp(rv_random_unit(&random) + 0x1p-53, exponent);
  }
  uint64_t hash = 0;
  const double exponents[] = {0.6, 0.7, 3};
  for (size_t e = 0; e < 3; e++) {
    rv_weigh(exponents[e], priorities, weights, N);
    for (int i = 0; i < N; i++) {
      uint64_t bits;
      memcpy(&bits, &weights[i], sizeof bits);
      hash = (hash ^ bits) * UINT64_C(0x9E3779B97F4A7C15);
    }
  }
  assert_int_equal(hash, UINT64_C(0x246311a4dadb4a0c));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(priority_zero_weighs_nothing_whatever_the_exponent),
      cmocka_unit_test(weights_stay_between_bounds_whose_sum_is_finite),
      cmocka_unit_test(powers_are_those_of_the_mathematics_library),
      cmocka_unit_test(weights_are_the_same_bits_everywhere),
      cmocka_unit_test(many_weigh_what_each_weighs_alone_and_in_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
