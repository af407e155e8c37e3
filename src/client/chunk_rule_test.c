#include "client/chunk_rule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Steps through `steps` steps of a writer that makes an item of the last `length` steps after every `period` of them. Returns the
 * longest that an item waited, in steps; *chunks is how many chunks there were. */
static uint32_t simulate(uint32_t keep, uint32_t length, uint32_t period, uint32_t steps, uint32_t *chunks)
{
  rv_chunk_rule rule;
  rv_chunk_rule_init(&rule, 0, keep);
  uint32_t room = 0, rows = 0, oldest_wait = 0, longest_wait = 0, waiting = 0;
  *chunks = 0;
  for (uint32_t step = 1; step <= steps; step++) {
    if (rows == 0) room = rv_chunk_rule_room(&rule, 100);
    rows++;
    waiting += waiting > 0;
    if (step % period == 0 && step >= length) {
      rv_chunk_rule_saw_run(&rule, length);
      if (waiting == 0) waiting = 1;
      oldest_wait = waiting - 1;
      if (rv_chunk_rule_cuts(&rule, rows)) room = rows;
    }
    if (rows < room) continue;
    oldest_wait = waiting > 0 ? waiting - 1 : 0;
    if (oldest_wait > longest_wait) longest_wait = oldest_wait;
    waiting = 0;
    rv_chunk_rule_saw_chunk(&rule, rows);
    rows = 0;
    ++*chunks;
  }
  return longest_wait;
}

static void short_items_never_wait(void **state)
{
  (void)state;
  uint32_t chunks;
  for (uint32_t length = 1; length <= 15; length++)
    for (uint32_t period = 1; period <= 20; period++) assert_int_equal(simulate(100, length, period, 1000, &chunks), 0);
}

static void items_at_intervals_find_chunks_of_the_interval(void **state)
{
  (void)state;
  uint32_t chunks;
  assert_int_equal(simulate(100, 80, 80, 8000, &chunks), 0);
  assert_true(chunks < 110); /* 100 but for the first, which grow */
  assert_int_equal(simulate(100, 80, 40, 8000, &chunks), 0);
  assert_true(chunks < 210);
}

static void long_items_after_every_step_wait_for_an_eighth_of_their_length_at_most(void **state)
{
  (void)state;
  uint32_t chunks;
  assert_true(simulate(100, 80, 1, 8000, &chunks) < 10);
  assert_true(chunks < 8000 / 10 + 50);
}

static void a_fixed_length_is_kept(void **state)
{
  (void)state;
  rv_chunk_rule rule;
  rv_chunk_rule_init(&rule, 7, 100);
  assert_int_equal(rv_chunk_rule_room(&rule, 8), 7);
  assert_false(rv_chunk_rule_cuts(&rule, 6));
  rv_chunk_rule_saw_run(&rule, 90);
  assert_int_equal(rv_chunk_rule_room(&rule, 8), 7);
}

static void a_chunk_holds_at_least_one_row_and_no_more_bytes_than_it_should(void **state)
{
  (void)state;
  rv_chunk_rule rule;
  rv_chunk_rule_init(&rule, 0, 1U << 30);
  rv_chunk_rule_saw_chunk(&rule, 1U << 29);
  assert_int_equal(rv_chunk_rule_room(&rule, (size_t)1 << 30), 1);
  assert_int_equal(rv_chunk_rule_room(&rule, 1024), 1024);
  assert_true(rv_chunk_rule_room(&rule, 0) <= INT32_MAX);
  rv_chunk_rule_init(&rule, 1000, 1000);
  assert_int_equal(rv_chunk_rule_room(&rule, (size_t)1 << 25), 2);
}

/* Their blocks stay with them as they are. */
static void large_rows_have_no_more_room_than_they_used(void **state)
{
  (void)state;
  enum { LARGE = 40000 };
  rv_chunk_rule rule;
  rv_chunk_rule_init(&rule, 0, 3);
  rv_chunk_rule_saw_run(&rule, 3);
  for (int i = 0; i < 20; i++) { /* an item after each step */
    if (i > 1) assert_int_equal(rv_chunk_rule_room(&rule, LARGE), 1);
    rv_chunk_rule_saw_chunk(&rule, 1);
    rv_chunk_rule_saw_cut(&rule, 1);
    rv_chunk_rule_saw_run(&rule, 1 + (uint32_t)i % 3);
  }
  assert_true(rv_chunk_rule_room(&rule, 100) > 1);
  rv_chunk_rule_saw_chunk(&rule, 1); /* no item came when it was full */
  assert_true(rv_chunk_rule_room(&rule, LARGE) > 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(short_items_never_wait),
      cmocka_unit_test(items_at_intervals_find_chunks_of_the_interval),
      cmocka_unit_test(long_items_after_every_step_wait_for_an_eighth_of_their_length_at_most),
      cmocka_unit_test(a_fixed_length_is_kept),
      cmocka_unit_test(a_chunk_holds_at_least_one_row_and_no_more_bytes_than_it_should),
      cmocka_unit_test(large_rows_have_no_more_room_than_they_used),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
