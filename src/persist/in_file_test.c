#include "persist/in_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/crc32c.h"

enum { MIB = 1 << 20 };

static char path[64];

static int set_up(void **state)
{
  (void)state;
  strcpy(path, "/tmp/reverie-in-file-XXXXXX");
  int file = mkstemp(path);
  return file < 0 ? -1 : close(file);
}

static int tear_down(void **state)
{
  (void)state;
  return unlink(path);
}

static uint32_t write_file(size_t size)
{
  uint8_t *data = malloc(size + 1);
  assert_non_null(data);
  for (size_t i = 0; i < size; i++) data[i] = (uint8_t)(i * 7 + i / 4093);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, size, file), size);
  fclose(file);
  uint32_t sum = rv_crc32c(0, data, size);
  free(data);
  return sum;
}

static void all_of_a_file_comes_in_its_order_and_then_nothing(void **state)
{
  (void)state;
  static const size_t sizes[] = {0, 1, 4095, 4096, MIB - 1, MIB, MIB + 1, 2 * MIB, 3 * MIB + 4096, 9 * MIB + 5};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    uint32_t expected = write_file(sizes[i]), sum = 0;
    rv_in_file *file;
    rv_error err;
    const uint8_t *data;
    size_t size, total = 0;
    assert_int_equal(rv_in_file_new(path, &file, &err), RV_OK);
    do {
      assert_int_equal(rv_in_file_next(file, &data, &size, &err), RV_OK);
      sum = size > 0 ? rv_crc32c(sum, data, size) : sum;
      total += size;
    } while (size > 0);
    assert_int_equal(total, sizes[i]);
    assert_int_equal(sum, expected);
    for (int again = 0; again < 3; again++) {
      assert_int_equal(rv_in_file_next(file, &data, &size, &err), RV_OK);
      assert_int_equal(size, 0);
    }
    rv_in_file_free(file);
  }
}

static void whoever_has_enough_may_go_at_any_piece(void **state)
{
  (void)state;
  write_file(9 * MIB);
  for (int pieces = 0; pieces < 10; pieces++) {
    rv_in_file *file;
    rv_error err;
    const uint8_t *data;
    size_t size;
    assert_int_equal(rv_in_file_new(path, &file, &err), RV_OK);
    for (int i = 0; i < pieces; i++) assert_int_equal(rv_in_file_next(file, &data, &size, &err), RV_OK);
    rv_in_file_free(file);
  }
}

static void a_file_that_cannot_be_read_is_named(void **state)
{
  (void)state;
  rv_in_file *file;
  rv_error err;
  const uint8_t *data;
  size_t size;
  assert_int_equal(rv_in_file_new("/tmp/there-is-no-such/file", &file, &err), RV_NOT_FOUND);
  assert_non_null(strstr(err.message, "/tmp/there-is-no-such/file"));
  assert_int_equal(rv_in_file_new("/tmp", &file, &err), RV_OK); /* a directory: the system says so when it is read */
  assert_int_not_equal(rv_in_file_next(file, &data, &size, &err), RV_OK);
  assert_non_null(strstr(err.message, "/tmp"));
  rv_in_file_free(file);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(all_of_a_file_comes_in_its_order_and_then_nothing, set_up, tear_down),
      cmocka_unit_test_setup_teardown(whoever_has_enough_may_go_at_any_piece, set_up, tear_down),
      cmocka_unit_test(a_file_that_cannot_be_read_is_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
