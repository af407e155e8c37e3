#include "persist/in_file.h"

#include <errno.h>
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

/* From here on the disk cannot be read (the linker puts this in the place of the system's). */
static off_t broken_from;

ssize_t __real_read(int file, void *out, size_t size);

ssize_t __wrap_read(int file, void *out, size_t size)
{
  off_t left = broken_from - lseek(file, 0, SEEK_CUR);
  if (broken_from == 0 || (off_t)size <= left) return __real_read(file, out, size);
  if (left > 0) return __real_read(file, out, (size_t)left);
  errno = EIO;
  return -1;
}

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

/* Else what is wrong with the file before that place would be told at times, and at times not. */
static void what_was_read_before_an_error_is_given_first(void **state)
{
  (void)state;
  static const off_t places[] = {4096, MIB, MIB + 4096, 4 * MIB + 8192};
  for (size_t i = 0; i < 2 * sizeof places / sizeof *places; i++) {
    write_file(i % 2 == 0 ? 5 * MIB : 2 * MIB - 1);
    broken_from = places[i / 2];
    off_t expected = i % 2 == 0 || broken_from < 2 * MIB ? broken_from : 2 * MIB - 1;
    rv_in_file *file;
    rv_error err;
    const uint8_t *data;
    size_t size = 1, total = 0;
    assert_int_equal(rv_in_file_new(path, &file, &err), RV_OK);
    rv_code code = RV_OK;
    while (code == RV_OK && size > 0) {
      code = rv_in_file_next(file, &data, &size, &err);
      total += code == RV_OK ? size : 0;
    }
    assert_int_equal(total, expected);
    for (int again = 0; again < 3 && expected == broken_from; again++) {
      assert_int_not_equal(code, RV_OK);
      assert_non_null(strstr(err.message, path));
      code = rv_in_file_next(file, &data, &size, &err);
    }
    rv_in_file_free(file);
    broken_from = 0;
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(all_of_a_file_comes_in_its_order_and_then_nothing, set_up, tear_down),
      cmocka_unit_test_setup_teardown(whoever_has_enough_may_go_at_any_piece, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_was_read_before_an_error_is_given_first, set_up, tear_down),
      cmocka_unit_test(a_file_that_cannot_be_read_is_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
