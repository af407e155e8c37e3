#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/log_budget.h"

enum { EACH = 3, ALL = 5, PERIOD = 100 };

static size_t written(rv_log_budget *budget, uint64_t who, int64_t now_ns, size_t lines)
{
  char more[RV_LOG_MORE];
  size_t count = 0;
  for (size_t i = 0; i < lines; i++) count += rv_log_budget_take(budget, who, now_ns, more);
  return count;
}

static void one_who_causes_many_lines_leaves_room_for_those_of_others(void **state)
{
  (void)state;
  rv_log_budget budget = {.most = ALL, .most_each = EACH, .period_ns = PERIOD};
  assert_int_equal(written(&budget, 7, PERIOD, 1000), EACH);
  assert_int_equal(written(&budget, 8, PERIOD, 1), 1);
  assert_int_equal(written(&budget, 7, PERIOD, 1000), 0);
  assert_int_equal(written(&budget, 9, PERIOD, 1000), ALL - EACH - 1);
  assert_int_equal(written(&budget, 10, PERIOD, 1), 0);
}

static void what_was_left_out_is_told_by_the_first_line_of_a_later_period(void **state)
{
  (void)state;
  char more[RV_LOG_MORE];
  rv_log_budget budget = {.most = ALL, .most_each = EACH, .period_ns = PERIOD};
  assert_int_equal(written(&budget, 7, PERIOD, 10), EACH);
  assert_int_equal(written(&budget, 8, PERIOD, 10), ALL - EACH);
  assert_true(rv_log_budget_take(&budget, 7, 2 * PERIOD, more));
  assert_string_equal(more, " (before it 15 more that are not in the log)");
  assert_int_equal(written(&budget, 7, 2 * PERIOD, 10), EACH - 1);
  assert_int_equal(rv_log_budget_settle(&budget, 3 * PERIOD), 0);
  assert_int_equal(rv_log_budget_settle(&budget, 4 * PERIOD), 10 - (EACH - 1));
}

static void where_it_does_not_matter_who_it_is_one_may_have_all(void **state)
{
  (void)state;
  rv_log_budget budget = {.most = 100, .period_ns = PERIOD};
  assert_int_equal(written(&budget, 7, PERIOD, 1000), 100);
  assert_int_equal(written(&budget, 8, PERIOD, 1), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_who_causes_many_lines_leaves_room_for_those_of_others),
      cmocka_unit_test(what_was_left_out_is_told_by_the_first_line_of_a_later_period),
      cmocka_unit_test(where_it_does_not_matter_who_it_is_one_may_have_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
