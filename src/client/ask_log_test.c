/* When samples were asked for: what is handed out is never older than the log says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include "client/ask_log.h"

#define APART RV_ASKS_APART_NS

static void each_sample_was_asked_for_by_its_request(void **state)
{
  (void)state;
  rv_ask_log log = {0};
  assert_true(rv_ask_log_from(&log, 0) == INT64_MAX);
  rv_ask_log_add(&log, 10, APART);
  rv_ask_log_add(&log, 30, 2 * APART);
  assert_int_equal(rv_ask_log_from(&log, 0), APART);
  assert_int_equal(rv_ask_log_from(&log, 9), APART);
  assert_int_equal(rv_ask_log_from(&log, 10), 2 * APART);
  assert_int_equal(rv_ask_log_from(&log, 29), 2 * APART);
  assert_true(rv_ask_log_from(&log, 30) == INT64_MAX);
  rv_ask_log_add(&log, 31, 2 * APART + 1);
  assert_int_equal(rv_ask_log_from(&log, 30), 2 * APART + 1);
}

static void with_too_little_room_samples_count_as_older(void **state)
{
  (void)state;
  rv_ask_log log = {0};
  for (int i = 1; i <= 3 * RV_ASKS_KEPT; i++) {
    rv_ask_log_add(&log, i, APART * i);
    assert_int_equal(rv_ask_log_from(&log, 0), APART);
  }
  for (int i = 1; i < 3 * RV_ASKS_KEPT; i++) assert_true(rv_ask_log_from(&log, i) <= APART * (i + 1));
}

/* A row of batches, each of which lets a sixteenth of the window be asked for. */
static void many_small_requests_do_not_make_samples_old(void **state)
{
  (void)state;
  enum { WINDOW = 1024, BATCH = 64 };
  const int64_t trip = 5000000, second = 1000000000;
  rv_ask_log log = {0};
  int64_t now = 0, handed_out = 0;
  rv_ask_log_add(&log, WINDOW, now);
  for (; now < 10 * second; now += trip, handed_out += BATCH) {
    assert_true(now - rv_ask_log_from(&log, handed_out) < second / 4); /* 80 ms, and what is counted together */
    rv_ask_log_add(&log, handed_out + BATCH + WINDOW, now);
  }
}

static void numbers_that_are_asked_for_again_count_as_asked_for_before(void **state)
{
  (void)state;
  rv_ask_log log = {0};
  rv_ask_log_add(&log, 10, APART);
  rv_ask_log_add(&log, 8, 2 * APART);
  assert_int_equal(rv_ask_log_from(&log, 7), APART);
  rv_ask_log_add(&log, 12, 3 * APART);
  assert_int_equal(rv_ask_log_from(&log, 9), APART);
  assert_int_equal(rv_ask_log_from(&log, 10), 3 * APART);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_sample_was_asked_for_by_its_request),
      cmocka_unit_test(with_too_little_room_samples_count_as_older),
      cmocka_unit_test(many_small_requests_do_not_make_samples_old),
      cmocka_unit_test(numbers_that_are_asked_for_again_count_as_asked_for_before),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
