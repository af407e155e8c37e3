#include "persist/out_file.h"

#include <stdio.h>
#include <sys/stat.h>

#include "base/random.h"
#include "persist/disk_testing.h"

enum { PIECE = 1 << 20, MOST = 5 * PIECE };

typedef struct world {
  test_disk disk;
  char path[80];
} world;

static int set_up(void **state)
{
  world *w = calloc(1, sizeof *w);
  test_disk_init(&w->disk);
  snprintf(w->path, sizeof w->path, "%s/file", w->disk.directory);
  *state = w;
  return 0;
}

static int tear_down(void **state)
{
  world *w = *state;
  unlink(w->path);
  test_disk_fini(&w->disk);
  free(w);
  return 0;
}

static uint8_t *some_bytes(size_t size)
{
  uint8_t *bytes = malloc(size + 8);
  rv_random random;
  rv_random_init(&random, size + 1);
  for (size_t i = 0; i < size; i += 8) {
    uint64_t value = rv_random_next(&random);
    memcpy(bytes + i, &value, sizeof value);
  }
  return bytes;
}

/* In parts of about `part` bytes. */
static rv_code write_whole(world *w, const uint8_t *bytes, size_t size, size_t part, rv_error *err)
{
  rv_out_file *file = NULL;
  rv_code code = rv_out_file_new(w->path, &w->disk.files, &file, err);
  if (code != RV_OK) return code;
  for (size_t at = 0; at < size && code == RV_OK; at += part)
    code = rv_out_file_put(file, bytes + at, size - at < part ? size - at : part, err);
  if (code == RV_OK) code = rv_out_file_finish(file, err);
  rv_out_file_free(file);
  return code;
}

static void must_hold(const world *w, const uint8_t *bytes, size_t size)
{
  struct stat info;
  assert_int_equal(stat(w->path, &info), 0);
  assert_int_equal(info.st_size, size);
  uint8_t *got = malloc(size + 1);
  FILE *file = fopen(w->path, "rb");
  assert_non_null(file);
  assert_int_equal(fread(got, 1, size, file), size);
  fclose(file);
  assert_memory_equal(got, bytes, size);
  free(got);
}

static void write_and_compare(world *w, size_t size, size_t part)
{
  rv_error err = {.code = RV_OK};
  uint8_t *bytes = some_bytes(size);
  if (write_whole(w, bytes, size, part, &err) != RV_OK) fail_msg("%s", err.message);
  must_hold(w, bytes, size);
  free(bytes);
  unlink(w->path);
}

static void what_was_put_is_in_the_file_whatever_its_size(void **state)
{
  static const size_t sizes[] = {0,         1,         4095,          4096,          4097,
                                 PIECE - 1, PIECE,     PIECE + 1,     PIECE + 4096,  2 * PIECE,
                                 MOST,      MOST - 17, 3 * PIECE + 1, 2 * PIECE - 1, 2 * PIECE + 8192};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    write_and_compare(*state, sizes[i], 65540);
    write_and_compare(*state, sizes[i], MOST);
  }
}

/* Where the tests are built on a file system that cannot, nothing shows. */
static void large_pieces_go_past_the_cache(void **state)
{
  world *w = *state;
  write_and_compare(w, MOST, 65540);
  if (test_disk_passes_cache(&w->disk, PIECE)) assert_int_equal(w->disk.past_cache, MOST / PIECE);
}

static void a_file_system_that_only_has_the_cache_gets_it_through_that(void **state)
{
  world *w = *state;
  w->disk.only_cache = true;
  write_and_compare(w, MOST, 65540);
  write_and_compare(w, PIECE, 65540);
  write_and_compare(w, 40 * (size_t)PIECE, PIECE);
  assert_int_equal(w->disk.past_cache, 0);
}

static void a_file_system_of_the_network_gets_it_through_the_cache(void **state)
{
  world *w = *state;
  w->disk.kind = TEST_DISK_NFS;
  write_and_compare(w, MOST, 65540);
  write_and_compare(w, 41 * (size_t)PIECE, PIECE);
  assert_int_equal(w->disk.past_cache, 0);
}

/* Whether it takes O_DIRECT or not: gigabytes that wait for the disk would hold up whoever else writes there. */
static void what_stays_in_the_cache_is_on_its_way_to_the_disk_before_the_end(void **state)
{
  world *w = *state;
  w->disk.uses_cache = true;
  write_and_compare(w, 64 * (size_t)PIECE, PIECE);
  assert_true(w->disk.most_waiting <= 41 * (size_t)PIECE);
}

static void a_disk_that_takes_a_part_gets_the_rest(void **state)
{
  world *w = *state;
  static const size_t parts[] = {100 * 1000, 512, PIECE - 512, PIECE - 1, 8192};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    w->disk.takes = parts[i];
    write_and_compare(w, 2 * PIECE + 5000, 65540);
  }
}

static void an_interrupted_write_goes_on(void **state)
{
  world *w = *state;
  w->disk.number = EINTR;
  for (w->disk.fails_at = 1; w->disk.fails_at < 6; w->disk.fails_at++) {
    w->disk.writes = 0;
    write_and_compare(w, 3 * PIECE + 1, 65540);
  }
}

/* Whichever piece it was, and although the next ones are put while it is written. */
static void a_write_that_fails_is_told_with_the_files_name(void **state)
{
  world *w = *state;
  w->disk.number = ENOSPC;
  uint8_t *bytes = some_bytes(MOST + 1);
  for (w->disk.fails_at = 1; w->disk.fails_at <= MOST / PIECE + 1; w->disk.fails_at++) {
    rv_error err = {.code = RV_OK};
    w->disk.writes = 0;
    assert_int_equal(write_whole(w, bytes, MOST + 1, 65540, &err), RV_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.message, w->path));
    assert_non_null(strstr(err.message, "No space left"));
    unlink(w->path);
  }
  free(bytes);
}

static ssize_t write_nothing(void *context, int file, const struct iovec *pieces, int count)
{
  (void)context, (void)file, (void)pieces, (void)count;
  return 0;
}

/* Such as FUSE's, where whoever is behind it says so. */
static void a_file_system_that_takes_nothing_and_says_no_error_is_full(void **state)
{
  world *w = *state;
  uint8_t *bytes = some_bytes(MOST);
  w->disk.files.write = write_nothing;
  for (size_t size = 1; size <= MOST; size += MOST - 1) {
    rv_error err = {.code = RV_OK};
    assert_int_equal(write_whole(w, bytes, size, 65540, &err), RV_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.message, w->path));
    unlink(w->path);
  }
  free(bytes);
}

/* The system tells each file once what became of its pages: whoever waits for them and passes over the answer has it from nobody else. What
 * it says is the file system's own, or the device's. */
static void what_could_not_be_written_from_the_cache_is_told_whatever_the_error(void **state)
{
  world *w = *state;
  static const int numbers[] = {EIO, ENODATA, ETIMEDOUT, ENOTCONN, EINVAL};
  const size_t size = 41 * (size_t)PIECE;
  uint8_t *bytes = some_bytes(size);
  w->disk.only_cache = true;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    rv_error err = {.code = RV_OK};
    w->disk.wait_fails = numbers[i];
    assert_int_not_equal(write_whole(w, bytes, size, PIECE, &err), RV_OK);
    assert_non_null(strstr(err.message, w->path));
    assert_non_null(strstr(err.message, strerror(numbers[i])));
    unlink(w->path);
  }
  free(bytes);
}

static void a_file_system_that_cannot_begin_early_has_all_forced_at_the_end(void **state)
{
  world *w = *state;
  w->disk.only_cache = true;
  w->disk.push_fails = ENOSYS;
  write_and_compare(w, 41 * (size_t)PIECE, PIECE);
}

static void a_file_that_is_given_up_ends_with_what_is_on_its_way(void **state)
{
  world *w = *state;
  uint8_t *bytes = some_bytes(MOST);
  for (size_t size = PIECE; size <= MOST; size += PIECE) {
    rv_error err = {.code = RV_OK};
    rv_out_file *file = NULL;
    assert_int_equal(rv_out_file_new(w->path, &w->disk.files, &file, &err), RV_OK);
    assert_int_equal(rv_out_file_put(file, bytes, size, &err), RV_OK);
    rv_out_file_free(file);
    unlink(w->path);
  }
  free(bytes);
}

static void a_file_that_is_there_is_not_written_over(void **state)
{
  world *w = *state;
  rv_error err = {.code = RV_OK};
  assert_int_equal(write_whole(w, (const uint8_t *)"first", 5, 5, &err), RV_OK);
  assert_int_not_equal(write_whole(w, (const uint8_t *)"second", 6, 6, &err), RV_OK);
  assert_non_null(strstr(err.message, w->path));
  must_hold(w, (const uint8_t *)"first", 5);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(what_was_put_is_in_the_file_whatever_its_size, set_up, tear_down),
      cmocka_unit_test_setup_teardown(large_pieces_go_past_the_cache, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_file_system_that_only_has_the_cache_gets_it_through_that, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_file_system_of_the_network_gets_it_through_the_cache, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_stays_in_the_cache_is_on_its_way_to_the_disk_before_the_end, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_disk_that_takes_a_part_gets_the_rest, set_up, tear_down),
      cmocka_unit_test_setup_teardown(an_interrupted_write_goes_on, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_write_that_fails_is_told_with_the_files_name, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_file_system_that_takes_nothing_and_says_no_error_is_full, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_could_not_be_written_from_the_cache_is_told_whatever_the_error, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_file_system_that_cannot_begin_early_has_all_forced_at_the_end, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_file_that_is_given_up_ends_with_what_is_on_its_way, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_file_that_is_there_is_not_written_over, set_up, tear_down)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
