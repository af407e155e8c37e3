#include "base/small_copies.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST = 150, PIECES = 11 };

/* So many bytes and not one more, so that whoever reads or writes beyond them is seen to. */
static uint8_t *bytes_of(size_t size, unsigned first)
{
  uint8_t *bytes = malloc(size > 0 ? size : 1);
  assert_non_null(bytes);
  for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)(first + i * 7);
  return bytes;
}

static void every_size_is_copied_and_nothing_beside_it(void **state)
{
  (void)state;
  for (size_t size = 0; size <= MOST; size++) {
    uint8_t *from = bytes_of(size, 1), *small = bytes_of(size, 2), *odd = bytes_of(size, 3);
    rv_copy_small(small, from, size);
    rv_copy_odd(odd, from, size);
    assert_memory_equal(small, from, size);
    assert_memory_equal(odd, from, size);
    free(from);
    free(small);
    free(odd);
  }
}

/* What lies between the pieces stays as it was. */
static void check_strided(size_t size, size_t from_gap, size_t to_gap)
{
  const size_t from_stride = size + from_gap, to_stride = size + to_gap;
  const size_t from_bytes = (PIECES - 1) * from_stride + size, to_bytes = (PIECES - 1) * to_stride + size;
  uint8_t *from = bytes_of(from_bytes, 5), *to = bytes_of(to_bytes, 9), *before = bytes_of(to_bytes, 9);
  rv_copy_strided(to, to_stride, from, from_stride, size, PIECES);
  for (size_t i = 0; i < PIECES; i++) {
    assert_memory_equal(to + i * to_stride, from + i * from_stride, size);
    if (i + 1 < PIECES) assert_memory_equal(to + i * to_stride + size, before + i * to_stride + size, to_gap);
  }
  free(from);
  free(to);
  free(before);
}

static void pieces_go_from_one_stride_to_another(void **state)
{
  (void)state;
  for (size_t size = 0; size <= MOST; size++) {
    check_strided(size, 0, 0);
    check_strided(size, 5, 0);
    check_strided(size, 0, 3);
    check_strided(size, 8, 16);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_size_is_copied_and_nothing_beside_it),
                                     cmocka_unit_test(pieces_go_from_one_stride_to_another)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
