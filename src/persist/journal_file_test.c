#include "persist/journal_file.h"

#include "base/random.h"
#include "persist/disk_testing.h"
#include "persist/journal_read.h"

enum { MOST = 5 << 19, GROUPS = 40 };

typedef struct world {
  test_disk disk;
  rv_random random;
  uint8_t *bytes;
} world;

static int set_up(void **state)
{
  world *w = calloc(1, sizeof *w);
  test_disk_init(&w->disk);
  rv_random_init(&w->random, 7);
  w->bytes = malloc(MOST + 8);
  for (size_t i = 0; i < MOST; i += 8) {
    uint64_t value = rv_random_next(&w->random);
    memcpy(w->bytes + i, &value, sizeof value);
  }
  *state = w;
  return 0;
}

static void remove_segments(world *w)
{
  for (uint64_t segment = 1; segment <= 2 * GROUPS; segment++) {
    char name[RV_JOURNAL_NAME_MAX], path[128];
    rv_segment_name(segment, name);
    strcat(strcat(strcpy(path, w->disk.directory), "/"), name);
    unlink(path);
  }
}

static int tear_down(void **state)
{
  world *w = *state;
  remove_segments(w);
  test_disk_fini(&w->disk);
  free(w->bytes);
  free(w);
  return 0;
}

/* A group's records: so many of the bytes, from somewhere. Small ones, large ones, and those that just fill pages. */
typedef struct group {
  size_t from, size;
} group;

static void choose(world *w, group *groups)
{
  static const size_t pages[] = {0, 4096, 4096 - 48, 4096 - 48 - 64, 1 << 16, 1 << 20, (1 << 20) - 48 - 64, 1 << 21};
  for (size_t i = 0; i < GROUPS; i++) {
    groups[i].size = i % 3 == 0   ? (size_t)(rv_random_next(&w->random) % 5000)
                     : i % 3 == 1 ? (size_t)(rv_random_next(&w->random) % (MOST / 2))
                                  : pages[rv_random_next(&w->random) % (sizeof pages / sizeof *pages)];
    groups[i].from = (size_t)(rv_random_next(&w->random) % (MOST - groups[i].size));
  }
}

/* Two pieces each. */
static rv_code put(world *w, rv_journal_file *file, const group *of, int *number, rv_error *err)
{
  rv_piece pieces[2] = {{.data = w->bytes + of->from, .size = of->size / 3},
                        {.data = w->bytes + of->from + of->size / 3, .size = of->size - of->size / 3}};
  rv_pieces records = {.piece = pieces, .count = 2, .bytes = of->size};
  return rv_journal_file_put(file, &records, 1, number, err);
}

/* As the journal does it: what was not on the disk goes into a segment of its own, together. Returns how often that was. */
static size_t write_groups(world *w, const group *groups)
{
  rv_journal_file file;
  size_t gave_up = 0;
  rv_journal_file_init(&file, &w->disk.files, w->disk.directory, (uint64_t[2]){1, 2}, 99, 0, 1, 1);
  for (size_t done = 0, together; done < GROUPS; done += together) {
    together = 1 + done % 4;
    if (together > GROUPS - done) together = GROUPS - done;
    for (bool written = false; !written;) {
      rv_error err = {.code = RV_OK};
      int number = 0;
      rv_code code = file.file < 0 ? rv_journal_file_begin(&file, false, 0, &number, &err) : RV_OK;
      for (size_t i = done; i < done + together && code == RV_OK; i++) code = put(w, &file, &groups[i], &number, &err);
      if (code == RV_OK) code = rv_journal_file_sync(&file, &number, &err);
      written = code == RV_OK;
      if (written) continue;
      assert_int_equal(number, EIO);
      rv_journal_file_give_up(&file);
      gave_up++;
    }
  }
  rv_journal_file_fini(&file);
  return gave_up;
}

static void must_be_read(world *w, const group *groups)
{
  rv_segment_list list;
  rv_journal_reader *reader = NULL;
  rv_error err = {.code = RV_OK};
  assert_int_equal(rv_segment_list_read(w->disk.directory, &list, &err), RV_OK);
  assert_int_equal(rv_journal_reader_new(w->disk.directory, &list, 0, &reader, &err), RV_OK);
  for (size_t i = 0; i <= GROUPS; i++) {
    rv_journal_found found;
    rv_group_header header;
    rv_span records;
    rv_journal_gap gap;
    assert_int_equal(rv_journal_reader_next(reader, &found, &header, &records, &gap, &err), RV_OK);
    assert_int_equal(found, i < GROUPS ? RV_FOUND_GROUP : RV_FOUND_END);
    if (i == GROUPS) break;
    assert_int_equal(header.number, i + 1);
    assert_int_equal(records.size, groups[i].size);
    assert_memory_equal(records.data, w->bytes + groups[i].from, groups[i].size);
  }
  assert_int_equal(rv_journal_reader_cut(reader), 0);
  rv_journal_reader_free(reader);
  rv_segment_list_fini(&list);
}

static size_t write_and_read(world *w)
{
  group groups[GROUPS];
  choose(w, groups);
  size_t gave_up = write_groups(w, groups);
  must_be_read(w, groups);
  remove_segments(w);
  return gave_up;
}

static void groups_of_any_size_are_read_as_they_were_put(void **state)
{
  world *w = *state;
  for (size_t i = 0; i < 5; i++) assert_int_equal(write_and_read(w), 0);
  w->disk.only_cache = true;
  assert_int_equal(write_and_read(w), 0);
}

/* Where the tests are built on a file system that cannot, nothing shows. */
static void what_is_large_goes_past_the_cache(void **state)
{
  world *w = *state;
  write_and_read(w);
  if (test_disk_passes_cache(&w->disk, RV_PAST_CACHE_ALIGNED)) assert_true(w->disk.past_cache > GROUPS / 3);
}

static void a_file_system_of_the_network_gets_all_through_the_cache(void **state)
{
  world *w = *state;
  w->disk.kind = TEST_DISK_NFS;
  write_and_read(w);
  assert_int_equal(w->disk.past_cache, 0);
}

static void a_disk_that_takes_a_part_gets_the_rest(void **state)
{
  world *w = *state;
  static const size_t parts[] = {100 * 1000, 512, 8192, (1 << 20) - 512};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    w->disk.takes = parts[i];
    assert_int_equal(write_and_read(w), 0);
  }
}

/* Of a hundred writes and more: the first ones, and each seventh. */
static void whichever_write_fails_every_group_is_there_once(void **state)
{
  world *w = *state;
  bool failed = true;
  w->disk.number = EIO;
  for (w->disk.fails_at = 1; failed; w->disk.fails_at += w->disk.fails_at < 20 ? 1 : 7) {
    w->disk.writes = 0;
    failed = write_and_read(w) > 0;
  }
  assert_true(w->disk.fails_at > GROUPS);
}

static void write_segment(const world *w, uint64_t segment, const uint8_t *bytes, size_t size)
{
  char name[RV_JOURNAL_NAME_MAX], path[128];
  rv_segment_name(segment, name);
  strcat(strcat(strcpy(path, w->disk.directory), "/"), name);
  int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  assert_int_equal(write(file, bytes, size), (ssize_t)size);
  close(file);
}

static void must_come_to_an_end(const world *w)
{
  enum { MOST_STEPS = 10 };
  rv_segment_list list;
  rv_journal_reader *reader = NULL;
  rv_error err = {.code = RV_OK};
  rv_journal_found found = RV_FOUND_GAP;
  assert_int_equal(rv_segment_list_read(w->disk.directory, &list, &err), RV_OK);
  assert_int_equal(rv_journal_reader_new(w->disk.directory, &list, 0, &reader, &err), RV_OK);
  for (int step = 0; step < MOST_STEPS && found != RV_FOUND_END; step++) {
    rv_group_header header;
    rv_span records;
    rv_journal_gap gap;
    assert_int_equal(rv_journal_reader_next(reader, &found, &header, &records, &gap, &err), RV_OK);
  }
  assert_int_equal(found, RV_FOUND_END);
  rv_journal_reader_free(reader);
  rv_segment_list_fini(&list);
}

/* Groups are numbered from 1, and none says of itself that it was on the disk before it was written: whoever wrote that, with checksums that
 * are right, is no journal. */
static void numbers_that_no_journal_has_are_read_to_an_end(void **state)
{
  world *w = *state;
  uint8_t bytes[RV_JOURNAL_SEGMENT_HEADER + RV_JOURNAL_GROUP_HEADER] = {0};
  const rv_group_header all_on_disk = {.number = 5, .synced = UINT64_MAX};
  for (uint64_t segment = 1; segment <= 2; segment++) {
    const rv_segment_header before_the_first = {.segment = segment, .first_group = 0, .salt = 99};
    rv_segment_header_put(&before_the_first, bytes);
    write_segment(w, segment, bytes, RV_JOURNAL_SEGMENT_HEADER);
  }
  must_come_to_an_end(w);
  memset(bytes, 0, RV_JOURNAL_SEGMENT_HEADER); /* what it begins with is told by its groups then */
  rv_group_header_put(&all_on_disk, bytes + RV_JOURNAL_SEGMENT_HEADER);
  for (uint64_t segment = 1; segment <= 2; segment++) write_segment(w, segment, bytes, sizeof bytes);
  must_come_to_an_end(w);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(groups_of_any_size_are_read_as_they_were_put, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_is_large_goes_past_the_cache, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_file_system_of_the_network_gets_all_through_the_cache, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_disk_that_takes_a_part_gets_the_rest, set_up, tear_down),
      cmocka_unit_test_setup_teardown(whichever_write_fails_every_group_is_there_once, set_up, tear_down),
      cmocka_unit_test_setup_teardown(numbers_that_no_journal_has_are_read_to_an_end, set_up, tear_down)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
