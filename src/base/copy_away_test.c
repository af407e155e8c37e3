#include "base/copy_away.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BYTES = 1200, BEFORE = 64 };

static void every_size_from_and_to_every_place_is_copied_and_nothing_else(void **state)
{
  (void)state;
  uint8_t from[BYTES + BEFORE], to[BYTES + 2 * BEFORE], expected[sizeof to];
  for (size_t i = 0; i < sizeof from; i++) from[i] = (uint8_t)(i * 31 + i / 255);
  for (size_t size = 0; size <= BYTES; size += size < 70 || (size > 440 && size < 660) ? 1 : 37) {
    for (size_t place = 0; place < 17; place++) {
      size_t at = BEFORE + place, begin = place * 5 % 17;
      memset(to, 0xEE, sizeof to);
      memset(expected, 0xEE, sizeof expected);
      memcpy(expected + at, from + begin, size);
      rv_copy_away(to + at, from + begin, size);
      assert_memory_equal(to, expected, sizeof to);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_size_from_and_to_every_place_is_copied_and_nothing_else)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
