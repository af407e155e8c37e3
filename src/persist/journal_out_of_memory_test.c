/* Where memory is out while the journal encodes, it encodes again, and says the same of writers as if nothing had happened. */
#include "base/failing_testing.h"
#include "persist/journal_testing.h"

static void numbered(rv_store *store, uint64_t key, const uint64_t writer[2], uint64_t number)
{
  rv_insert insert = {
      .key = key, .priority = 1, .writer = {writer[0], writer[1]}, .number = number, .trajectory = single(store, 5, 1)};
  insert.waiter.deadline_ns = INT64_MAX;
  assert_int_equal(rv_table_insert(rv_store_table(store, 0), &insert), RV_SUBMIT_DONE);
  must(insert.waiter.code, &insert.waiter.error);
  rv_trajectory_unref(insert.trajectory);
}

/* Whether the segment that is written to names any number of a writer as done before the items of this test; how many items it has. */
static size_t inserts_behind_writers(const disk *d)
{
  char name[RV_JOURNAL_NAME_MAX];
  uint8_t *bytes;
  size_t inserts = 0;
  rv_group_header group;
  last_segment_name(d, name);
  size_t size = read_bytes(d->journal, name, &bytes);
  for (size_t at = RV_JOURNAL_SEGMENT_HEADER; at < size; at += RV_JOURNAL_GROUP_HEADER + group.bytes) {
    uint8_t kind;
    rv_span body;
    bool broken = false;
    assert_true(rv_group_header_get(bytes + at, size - at, &group));
    rv_span records = {bytes + at + RV_JOURNAL_GROUP_HEADER, group.bytes};
    while (rv_journal_record_next(&records, &kind, &body, &broken)) {
      if (kind == RV_RECORD_WRITER) assert_int_equal(body.size, RV_JOURNAL_ID);
      if (kind == RV_RECORD_INSERT) inserts++;
    }
  }
  free(bytes);
  return inserts;
}

static void no_item_is_named_as_done_before_it_is_written_whichever_allocation_fails(void **state)
{
  const uint64_t writer[2] = {1, 7};
  rv_table_config config = rv_table_config_default("replay", 100);
  disk d = disk_of(*state, "first");
  bool failed = true;
  long n = 0;
  for (; failed && n < 1000; n++) {
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s", d.dir);
    assert_int_equal(system(command), 0);
    journaled j = open_with(&d, (how){.mode = RV_JOURNAL_PERIODIC, .period_ms = 3600000}, &config, 1);
    sync_all(&j);
    rv_journal_note_writer(j.journal, writer, false);
    for (uint64_t i = 1; i <= 3; i++) numbered(j.store, i, writer, i);
    until_failure = n; /* of the journal's thread: this one only waits */
    sync_all(&j);
    failed = until_failure < 0;
    until_failure = -1;
    assert_int_equal(inserts_behind_writers(&d), 3);
    close_all(&j);
  }
  print_message("%ld allocations\n", n);
  assert_true(n > 4 && !failed);
  disk_fini(&d);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(no_item_is_named_as_done_before_it_is_written_whichever_allocation_fails, set_up,
                                      tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
