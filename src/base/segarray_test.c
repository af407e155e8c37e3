#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/segarray.h"

/* Overrides the C library's, so that the nth block from now can be refused; -1: none. */
static int blocks_left = -1;

void *aligned_alloc(size_t alignment, size_t size)
{
  if (blocks_left == 0) return NULL;
  if (blocks_left > 0) blocks_left--;
  void *memory = NULL;
  return posix_memalign(&memory, alignment, size) == 0 ? memory : NULL;
}

static void elements_never_move_when_a_full_block_was_expected(void **state)
{
  (void)state;
  rv_segarray array;
  rv_segarray_init(&array, sizeof(uint32_t), 0xFF, 1000000);
  assert_int_equal(rv_segarray_grow(&array, 1, NULL), RV_OK);
  uint32_t *first = RV_SEGARRAY_AT(&array, uint32_t, 0);
  assert_int_equal((uintptr_t)first % 64, 0);
  assert_int_equal(*first, UINT32_MAX);
  for (uint32_t n = 1; n <= 20000; n++) {
    assert_int_equal(rv_segarray_grow(&array, n, NULL), RV_OK);
    *RV_SEGARRAY_AT(&array, uint32_t, n - 1) = n;
  }
  assert_ptr_equal(first, RV_SEGARRAY_AT(&array, uint32_t, 0));
  for (uint32_t n = 1; n <= 20000; n++) assert_int_equal(*RV_SEGARRAY_AT(&array, uint32_t, n - 1), n);
  rv_segarray_fini(&array);
}

static void a_small_array_takes_little_memory_and_may_outgrow_what_was_expected(void **state)
{
  (void)state;
  rv_segarray array;
  rv_segarray_init(&array, sizeof(uint64_t), 0, 3);
  for (uint64_t n = 1; n <= 3; n++) {
    assert_int_equal(rv_segarray_grow(&array, n, NULL), RV_OK);
    *RV_SEGARRAY_AT(&array, uint64_t, n - 1) = n;
  }
  assert_true(rv_segarray_memory(&array) < 512);
  for (uint64_t n = 4; n <= 10000; n++) {
    assert_int_equal(rv_segarray_grow(&array, n, NULL), RV_OK);
    assert_int_equal(*RV_SEGARRAY_AT(&array, uint64_t, n - 1), 0);
    *RV_SEGARRAY_AT(&array, uint64_t, n - 1) = n;
  }
  for (uint64_t n = 1; n <= 10000; n++) assert_int_equal(*RV_SEGARRAY_AT(&array, uint64_t, n - 1), n);
  rv_segarray_fini(&array);
}

static void cleared_blocks_are_the_callers_to_free(void **state)
{
  (void)state;
  rv_segarray a, b;
  rv_segarray_init(&a, 8, 0, 0);
  rv_segarray_init(&b, 8, 0, 0);
  assert_int_equal(rv_segarray_grow(&a, 3 * RV_SEGMENT_LENGTH, NULL), RV_OK);
  assert_int_equal(rv_segarray_grow(&b, 2 * RV_SEGMENT_LENGTH, NULL), RV_OK);
  rv_blocks garbage = {0};
  rv_segarray_clear(&a, &garbage);
  rv_segarray_clear(&b, &garbage);
  rv_segarray_clear(&b, &garbage); /* nothing left */
  assert_int_equal(a.length, 0);
  assert_int_equal(rv_segarray_grow(&a, 1, NULL), RV_OK); /* as good as new */
  assert_int_equal(*RV_SEGARRAY_AT(&a, uint64_t, 0), 0);
  assert_true(rv_blocks_free_some(&garbage, 3));
  assert_false(rv_blocks_free_some(&garbage, 100));
  rv_segarray_fini(&a);
  rv_segarray_fini(&b);
}

static void memory_that_is_not_there_is_an_error_and_keeps_what_was(void **state)
{
  (void)state;
  rv_segarray array;
  rv_segarray_init(&array, 8, 0, 100000);
  blocks_left = 2;
  rv_error err = {0};
  assert_int_equal(rv_segarray_grow(&array, 3 * RV_SEGMENT_LENGTH, &err), RV_RESOURCE_EXHAUSTED);
  assert_int_equal(array.length, 2 * RV_SEGMENT_LENGTH);
  blocks_left = -1;
  assert_int_equal(rv_segarray_grow(&array, 3 * RV_SEGMENT_LENGTH, &err), RV_OK);
  rv_segarray_fini(&array);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(elements_never_move_when_a_full_block_was_expected),
      cmocka_unit_test(a_small_array_takes_little_memory_and_may_outgrow_what_was_expected),
      cmocka_unit_test(cleared_blocks_are_the_callers_to_free),
      cmocka_unit_test(memory_that_is_not_there_is_an_error_and_keeps_what_was),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
