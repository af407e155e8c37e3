#include "persist/warm_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PARTS = 20000, MOST_BYTES = 6000 };

static uint8_t *parts[PARTS];

static size_t size_of(size_t i)
{
  return 1 + i * 2654435761U % MOST_BYTES;
}

static bool holds(const uint8_t *part, size_t size, uint8_t byte)
{
  return part[0] == byte && memcmp(part, part + 1, size - 1) == 0;
}

/* The thread only touches pages: what malloc gave and what was written there stays. */
static void what_is_allocated_meanwhile_keeps_what_was_written(void **state)
{
  (void)state;
  rv_warm_memory warm;
  rv_warm_memory_init(&warm);
  for (size_t i = 0; i < PARTS; i++) {
    rv_warm_memory_need(&warm, size_of(i));
    parts[i] = malloc(size_of(i));
    assert_non_null(parts[i]);
    memset(parts[i], (int)(i & 255), size_of(i));
    if (i % 3 != 2) continue;
    free(parts[i - 1]);
    parts[i - 1] = NULL;
  }
  rv_warm_memory_fini(&warm);
  for (size_t i = 0; i < PARTS; i++) {
    if (parts[i] != NULL) assert_true(holds(parts[i], size_of(i), (uint8_t)(i & 255)));
    free(parts[i]);
  }
}

static void it_may_end_before_anything_was_needed_and_at_any_time(void **state)
{
  (void)state;
  for (size_t needs = 0; needs < 4 * RV_WARM_BLOCKS; needs++) {
    rv_warm_memory warm;
    rv_warm_memory_init(&warm);
    for (size_t i = 0; i < needs; i++) rv_warm_memory_need(&warm, 100 << 10);
    rv_warm_memory_fini(&warm);
  }
}

static void little_is_allocated_without_a_thread(void **state)
{
  (void)state;
  rv_warm_memory warm;
  rv_warm_memory_init(&warm);
  for (size_t i = 0; i < 100; i++) rv_warm_memory_need(&warm, 5000);
  assert_int_equal(warm.made, 0);
  assert_false(warm.taker.threaded);
  rv_warm_memory_fini(&warm);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_allocated_meanwhile_keeps_what_was_written),
                                     cmocka_unit_test(it_may_end_before_anything_was_needed_and_at_any_time),
                                     cmocka_unit_test(little_is_allocated_without_a_thread)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
