#include "base/crc32c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"

/* The vectors of RFC 3720, B.4. */
static void the_checksums_of_the_standard_come_out(void **state)
{
  (void)state;
  uint8_t zeros[32] = {0}, ones[32], up[32], down[32];
  memset(ones, 0xFF, sizeof ones);
  for (uint8_t i = 0; i < 32; i++) {
    up[i] = i;
    down[i] = (uint8_t)(31 - i);
  }
  assert_int_equal(rv_crc32c(0, "123456789", 9), 0xE3069283);
  assert_int_equal(rv_crc32c(0, zeros, 32), 0x8A9136AA);
  assert_int_equal(rv_crc32c(0, ones, 32), 0x62A8AB43);
  assert_int_equal(rv_crc32c(0, up, 32), 0x46DD794E);
  assert_int_equal(rv_crc32c(0, down, 32), 0x113FDB5C);
  assert_int_equal(rv_crc32c(0, NULL, 0), 0);
}

static void both_ways_agree_for_any_length_and_in_pieces(void **state)
{
  (void)state;
  uint8_t bytes[8192];
  rv_random random;
  rv_random_init(&random, 1);
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)rv_random_next(&random);
  for (size_t size = 0; size < sizeof bytes - 9; size += size < 1024 ? 1 : 61) {
    const uint8_t *from = bytes + size % 9;
    uint32_t whole = rv_crc32c(0, from, size);
    assert_int_equal(whole, rv_crc32c_plain(0, from, size));
    assert_int_equal(whole, rv_crc32c(rv_crc32c(0, from, size / 3), from + size / 3, size - size / 3));
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_checksums_of_the_standard_come_out),
                                     cmocka_unit_test(both_ways_agree_for_any_length_and_in_pieces)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
