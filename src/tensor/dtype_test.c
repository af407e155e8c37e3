#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tensor/codec.h"

static void every_dtype_has_a_size_and_a_name_that_leads_back(void **state)
{
  (void)state;
  int known = 0;
  for (int i = -3; i < 200; i++) {
    rv_dtype dtype = (rv_dtype)i;
    if (rv_dtype_size(dtype) == 0) {
      assert_string_equal(rv_dtype_name(dtype), "invalid");
      continue;
    }
    known++;
    assert_int_equal(rv_dtype_from_name(rv_dtype_name(dtype)), dtype);
  }
  assert_int_equal(known, 25);
  assert_int_equal(rv_dtype_from_name("invalid"), RV_DTYPE_INVALID);
  assert_int_equal(rv_dtype_from_name(NULL), RV_DTYPE_INVALID);
  assert_int_equal(rv_dtype_size(RV_STRING), sizeof(rv_bytes));
  assert_int_equal(rv_dtype_size(RV_COMPLEX128), 16);
}

static void shapes_that_cannot_be_are_refused(void **state)
{
  (void)state;
  size_t elements = 0, bytes = 0;
  rv_error err;
  const int64_t good[] = {3, 4, 5};
  assert_int_equal(rv_shape_elements(RV_FLOAT32, 3, good, &elements, &bytes, &err), RV_OK);
  assert_int_equal(elements, 60);
  assert_int_equal(bytes, 240);
  assert_int_equal(rv_shape_elements(RV_FLOAT32, 0, NULL, &elements, &bytes, &err), RV_OK);
  assert_int_equal(elements, 1);
  const int64_t empty[] = {7, 0, 3};
  assert_int_equal(rv_shape_elements(RV_INT64, 3, empty, &elements, &bytes, &err), RV_OK);
  assert_int_equal(elements, 0);
  assert_int_equal(bytes, 0);
  const int64_t negative[] = {2, -1};
  assert_int_equal(rv_shape_elements(RV_INT64, 2, negative, &elements, &bytes, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "dimension 1"));
  const int64_t huge[] = {INT64_MAX / 4, 3};
  assert_int_equal(rv_shape_elements(RV_INT8, 2, huge, &elements, &bytes, &err), RV_OK);
  assert_int_equal(rv_shape_elements(RV_INT64, 2, huge, &elements, &bytes, &err), RV_INVALID_ARGUMENT);
  const int64_t hidden[] = {0, INT64_MAX, INT64_MAX};
  assert_int_equal(rv_shape_elements(RV_INT8, 3, hidden, &elements, &bytes, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_shape_elements(RV_INT8, 2, NULL, &elements, &bytes, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "give 2 sizes"));
  int64_t ones[RV_MAX_RANK + 2];
  for (int i = 0; i < RV_MAX_RANK + 2; i++) ones[i] = 1;
  assert_int_equal(rv_shape_elements(RV_INT8, RV_MAX_RANK + 1, ones, &elements, &bytes, &err), RV_OK);
  assert_int_equal(rv_shape_elements(RV_INT8, RV_MAX_RANK + 2, ones, &elements, &bytes, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_shape_elements((rv_dtype)20, 1, ones, &elements, &bytes, &err), RV_INVALID_ARGUMENT);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_dtype_has_a_size_and_a_name_that_leads_back),
      cmocka_unit_test(shapes_that_cannot_be_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
