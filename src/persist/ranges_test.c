/* What is taken is nobody else's until it is given back, what is given back is taken again, and little is lost between. */
#include "persist/ranges.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"

enum { STEP = 1 << 22 };

/* The order of the file: without gaps, never two idle ones beside each other, and counted. */
static void check(const rv_ranges *ranges)
{
  size_t end = 0, idle = 0, listed = 0;
  bool before = false;
  RV_LIST_EACH(link, &ranges->order)
  {
    const rv_range *range = RV_CONTAINER(link, rv_range, beside);
    assert_int_equal(range->begin, end);
    assert_true(range->size > 0 && range->size % RV_RANGE_UNIT == 0);
    assert_false(before && range->idle);
    before = range->idle;
    end += range->size;
    if (range->idle) idle += range->size;
  }
  assert_int_equal(end, ranges->end);
  assert_true(end <= ranges->limit);
  assert_int_equal(idle, ranges->idle);
  for (size_t i = 0; i < RV_SIZE_CLASSES; i++) {
    assert_int_equal(rv_list_empty(&ranges->classes[i]), (ranges->some[i / 64] >> i % 64 & 1) == 0);
    RV_LIST_EACH(link, &ranges->classes[i])
    {
      const rv_range *range = RV_CONTAINER(link, rv_range, alike);
      assert_true(range->idle);
      listed += range->size;
    }
  }
  assert_int_equal(listed, idle);
}

static void what_is_taken_overlaps_nothing_and_comes_back(void **state)
{
  (void)state;
  enum { PLACES = 300, LIMIT = 6 * STEP };
  rv_ranges ranges;
  rv_ranges_init(&ranges, LIMIT + 5, STEP);
  rv_random random;
  rv_random_init(&random, 11);
  rv_range *places[PLACES] = {NULL};
  size_t refused = 0, taken = 0, held = 0;
  for (int i = 0; i < 20000; i++) {
    size_t at = rv_random_next(&random) % PLACES, bits = rv_random_next(&random) % 23;
    if (places[at] != NULL) {
      held -= places[at]->size;
      rv_ranges_give(&ranges, places[at]);
      places[at] = NULL;
    } else {
      size_t size = 1 + rv_random_next(&random) % ((size_t)1 << bits);
      errno = 0;
      places[at] = rv_ranges_take(&ranges, size);
      if (places[at] == NULL) {
        assert_int_equal(errno, ENOSPC);
        refused++;
      } else {
        assert_true(places[at]->size >= size);
        held += places[at]->size;
        taken++;
      }
    }
    assert_int_equal(held + ranges.idle, ranges.end);
    if (i % 50 == 0) check(&ranges);
  }
  assert_true(taken > 5000 && refused > 0);
  for (size_t at = 0; at < PLACES; at++)
    if (places[at] != NULL) rv_ranges_give(&ranges, places[at]);
  check(&ranges);
  assert_int_equal(ranges.idle, ranges.end);
  rv_range *all = rv_ranges_take(&ranges, LIMIT); /* it is in one piece again */
  assert_non_null(all);
  assert_null(rv_ranges_take(&ranges, 1));
  rv_ranges_fini(&ranges);
}

/* The file's end after many have come and gone, where so many bytes are in use all the time. */
static size_t end_after(size_t in_use, size_t least, size_t most)
{
  enum { MOST_PLACES = 1 << 16 };
  static rv_range *places[MOST_PLACES];
  rv_ranges ranges;
  rv_ranges_init(&ranges, SIZE_MAX / 2, STEP);
  rv_random random;
  rv_random_init(&random, least);
  size_t n = 0, held = 0, through = 0;
  while (through < 20 * in_use) {
    while (held > in_use) {
      size_t at = rv_random_next(&random) % n;
      held -= places[at]->size;
      rv_ranges_give(&ranges, places[at]);
      places[at] = places[--n];
    }
    size_t size = least + rv_random_next(&random) % (most - least + 1);
    assert_true(n < MOST_PLACES);
    places[n] = rv_ranges_take(&ranges, size);
    assert_non_null(places[n]);
    held += places[n++]->size;
    through += size;
  }
  size_t end = ranges.end;
  check(&ranges);
  rv_ranges_fini(&ranges);
  return end;
}

static void what_comes_and_goes_in_no_order_needs_half_as_much_again_at_most(void **state)
{
  (void)state;
  enum { IN_USE = 16 * STEP };
  static const size_t sizes[][2] = {{5000, 5000}, {2000, 3000}, {1200, 70000}, {65536, 65536}, {1000, 600000}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    size_t end = end_after(IN_USE, sizes[i][0], sizes[i][1]);
    if (end > IN_USE + IN_USE / 2)
      fail_msg("sizes from %zu to %zu: %zu bytes in use, the file has %zu", sizes[i][0], sizes[i][1], (size_t)IN_USE, end);
  }
}

static void a_fresh_file_is_written_in_order(void **state)
{
  (void)state;
  rv_ranges ranges;
  rv_ranges_init(&ranges, 64 * (size_t)STEP, STEP);
  size_t end = 0;
  for (int i = 0; i < 2000; i++) {
    const rv_range *range = rv_ranges_take(&ranges, 16000);
    assert_int_equal(range->begin, end);
    end += range->size;
  }
  rv_ranges_fini(&ranges);
}

static void what_is_idle_at_the_end_can_be_cut(void **state)
{
  (void)state;
  rv_ranges ranges;
  rv_ranges_init(&ranges, 3 * (size_t)STEP, STEP);
  rv_range *first = rv_ranges_take(&ranges, 1000);
  rv_ranges_cut(&ranges, 5000);
  check(&ranges);
  assert_in_range(ranges.end, 5000, 5000 + RV_RANGE_UNIT);
  rv_ranges_cut(&ranges, 0); /* not what is in use */
  check(&ranges);
  assert_int_equal(ranges.end, first->size);
  rv_ranges_give(&ranges, first);
  rv_ranges_cut(&ranges, 0);
  assert_int_equal(ranges.end, 0);
  assert_non_null(rv_ranges_take(&ranges, 3 * (size_t)STEP));
  check(&ranges);
  rv_ranges_fini(&ranges);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_taken_overlaps_nothing_and_comes_back),
      cmocka_unit_test(what_comes_and_goes_in_no_order_needs_half_as_much_again_at_most),
      cmocka_unit_test(a_fresh_file_is_written_in_order),
      cmocka_unit_test(what_is_idle_at_the_end_can_be_cut),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
