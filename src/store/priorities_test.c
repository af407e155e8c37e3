#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/priorities.h"

enum { LONGEST = 37 };

static void fill(double *priorities, size_t n)
{
  const double plain[] = {0, 1, DBL_MIN, DBL_TRUE_MIN, DBL_MAX, 0.5};
  for (size_t i = 0; i < n; i++) priorities[i] = plain[i % (sizeof plain / sizeof *plain)];
}

static void plain_ones_are_known_at_any_length(void **state)
{
  (void)state;
  double priorities[LONGEST];
  for (size_t n = 0; n <= LONGEST; n++) {
    fill(priorities, n);
    assert_true(rv_priorities_are_plain(priorities, n, true));
    assert_true(rv_priorities_are_plain(priorities, n, false));
  }
}

static void one_that_is_odd_is_found_wherever_it_stands(void **state)
{
  (void)state;
  const double odd[] = {INFINITY, -INFINITY, NAN, -NAN, -1, -DBL_TRUE_MIN, -DBL_MAX, -0.0};
  double priorities[LONGEST];
  for (size_t k = 0; k < sizeof odd / sizeof *odd; k++)
    for (size_t n = 1; n <= LONGEST; n++)
      for (size_t at = 0; at < n; at++) {
        fill(priorities, n);
        priorities[at] = odd[k];
        assert_false(rv_priorities_are_plain(priorities, n, true));
        assert_int_equal(rv_priorities_are_plain(priorities, n, false), isfinite(odd[k]) != 0);
      }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plain_ones_are_known_at_any_length),
      cmocka_unit_test(one_that_is_odd_is_found_wherever_it_stands),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
