#include "persist/adler32.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"

enum { MOST = 1 << 16 };

static void known_sums_come_out(void **state)
{
  (void)state;
  assert_int_equal(rv_adler32(1, NULL, 0), 1);
  assert_int_equal(rv_adler32(1, "Wikipedia", 9), 0x11E60398);
  assert_int_equal(rv_adler32(0x11E60398, NULL, 0), 0x11E60398);
}

/* Zlib's is the plain one: any length, place and pieces, with the largest bytes and sums, too. */
static void both_ways_agree_for_any_length_and_in_pieces(void **state)
{
  (void)state;
  uint8_t *bytes = malloc(MOST + 64);
  assert_non_null(bytes);
  rv_random random;
  rv_random_init(&random, 1);
  for (size_t round = 0; round < 400; round++) {
    bool most = round % 3 == 0;
    for (size_t i = 0; i < MOST + 64; i += 8) {
      uint64_t value = most ? UINT64_MAX : rv_random_next(&random);
      memcpy(bytes + i, &value, sizeof value);
    }
    size_t size = round < 200 ? round : (size_t)(rv_random_next(&random) % MOST), part = size / 3;
    const uint8_t *from = bytes + round % 33;
    uint32_t begin = most ? 65520U << 16 | 65520U : 1, whole = rv_adler32(begin, from, size);
    assert_int_equal(whole, rv_adler32_plain(begin, from, size));
    assert_int_equal(whole, rv_adler32(rv_adler32(begin, from, part), from + part, size - part));
  }
  free(bytes);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(known_sums_come_out),
                                     cmocka_unit_test(both_ways_agree_for_any_length_and_in_pieces)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
