/* When samples were asked for: what is handed out is never older than the log says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include "client/ask_log.h"

static void each_sample_was_asked_for_by_its_request(void **state)
{
  (void)state;
  rv_ask_log log = {0};
  assert_true(rv_ask_log_from(&log, 0) == INT64_MAX);
  rv_ask_log_add(&log, 10, 100);
  rv_ask_log_add(&log, 30, 200);
  assert_int_equal(rv_ask_log_from(&log, 0), 100);
  assert_int_equal(rv_ask_log_from(&log, 9), 100);
  assert_int_equal(rv_ask_log_from(&log, 10), 200);
  assert_int_equal(rv_ask_log_from(&log, 29), 200);
  assert_true(rv_ask_log_from(&log, 30) == INT64_MAX);
}

static void with_too_little_room_samples_count_as_older(void **state)
{
  (void)state;
  rv_ask_log log = {0};
  for (int i = 1; i <= 3 * RV_ASKS_KEPT; i++) {
    rv_ask_log_add(&log, i, 100 * i);
    assert_int_equal(rv_ask_log_from(&log, 0), 100);
  }
  for (int i = 1; i < 3 * RV_ASKS_KEPT; i++) assert_in_range(rv_ask_log_from(&log, i), 100, 100 * (i + 1));
  assert_int_equal(rv_ask_log_from(&log, 3 * RV_ASKS_KEPT - 1), 100 * 3 * RV_ASKS_KEPT);
}

static void numbers_that_are_asked_for_again_count_as_asked_for_before(void **state)
{
  (void)state;
  rv_ask_log log = {0};
  rv_ask_log_add(&log, 10, 100);
  rv_ask_log_add(&log, 8, 200);
  assert_int_equal(rv_ask_log_from(&log, 7), 100);
  rv_ask_log_add(&log, 12, 300);
  assert_int_equal(rv_ask_log_from(&log, 9), 100);
  assert_int_equal(rv_ask_log_from(&log, 10), 300);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_sample_was_asked_for_by_its_request),
      cmocka_unit_test(with_too_little_room_samples_count_as_older),
      cmocka_unit_test(numbers_that_are_asked_for_again_count_as_asked_for_before),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
