#include "base/copy_ahead.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { BYTES = 20000, BEFORE = 64 };

typedef void copy(uint8_t *to, const uint8_t *from, size_t size, const uint8_t *next, size_t next_size);

static copy *const ways[] = {rv_copy_ahead, rv_copy_ahead_narrow};

/* Whatever comes next, and however much of it: it is only fetched. */
static void every_size_is_copied_and_nothing_else(void **state)
{
  copy *const *the = *state;
  static uint8_t from[BYTES + BEFORE], to[BYTES + 2 * BEFORE], expected[sizeof to];
  for (size_t i = 0; i < sizeof from; i++) from[i] = (uint8_t)(i * 31 + i / 255);
  for (size_t size = 0; size <= BYTES; size += size < 200 ? 1 : size / 7) {
    for (size_t place = 0; place < 9; place++) {
      size_t at = BEFORE + place, begin = place * 5 % 17;
      memset(to, 0xEE, sizeof to);
      memset(expected, 0xEE, sizeof expected);
      memcpy(expected + at, from + begin, size);
      (*the)(to + at, from + begin, size, place % 3 == 0 ? NULL : from + begin, place % 3 == 1 ? size : 2 * size + 1);
      assert_memory_equal(to, expected, sizeof to);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_prestate(every_size_is_copied_and_nothing_else, (void *)(uintptr_t)&ways[0]),
      cmocka_unit_test_prestate(every_size_is_copied_and_nothing_else, (void *)(uintptr_t)&ways[1]),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
