/* Where memory is out while the journal encodes, it encodes again, and says the same of writers as if nothing had happened; a recovery that
 * finds none changes nothing on the disk. */
#include <limits.h>

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

typedef struct recovery {
  disk d;
  rv_table_config tables[2];
  rv_store *before; /* what must come back; NULL: nothing */
  rv_segment_list kept;
} recovery;

/* What an attempt leaves behind: all of it, or the segments that were not there before; a hundred of them would make the next slow. */
static void clean_up(const recovery *r)
{
  rv_error err;
  rv_segment_list now;
  char name[RV_JOURNAL_NAME_MAX], path[300], command[200];
  if (r->before == NULL) {
    snprintf(command, sizeof command, "rm -rf %s", r->d.dir);
    assert_int_equal(system(command), 0);
    return;
  }
  must(rv_segment_list_read(r->d.journal, &now, &err), &err);
  for (size_t i = 0; i < now.count; i++) {
    bool kept = false;
    for (size_t j = 0; j < r->kept.count; j++) kept |= now.entries[i].number == r->kept.entries[j].number;
    rv_segment_name(now.entries[i].number, name);
    snprintf(path, sizeof path, "%s/%s", r->d.journal, name);
    if (!kept) assert_int_equal(unlink(path), 0);
  }
  rv_segment_list_fini(&now);
}

static rv_code recover_once(void *context)
{
  recovery *r = context;
  rv_error err;
  journaled j;
  rv_code code = try_open(&r->d, (how){.mode = RV_JOURNAL_ALWAYS}, r->tables, 2, &j, &err);
  long left = atomic_exchange(&until_failure, LONG_MAX); /* what the journal does from here on is another test's */
  if (code != RV_OK && code != RV_RESOURCE_EXHAUSTED) fail_msg("%s: %s", rv_code_name(code), err.message);
  assert_true((code == RV_OK) == (j.store != NULL) && (code == RV_OK) == (j.journal != NULL));
  if (code == RV_OK) {
    if (r->before != NULL) same_stores(r->before, j.store);
    close_all(&j);
  }
  clean_up(r);
  until_failure = left;
  return code;
}

static recovery recovery_of(fixture *f, const char *name)
{
  recovery r = {.d = disk_of(f, name)};
  r.tables[0] = rv_table_config_default("rows", 100);
  r.tables[1] = rv_table_config_default("items", 100);
  r.tables[1].sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
  return r;
}

static void a_journal_is_begun_whole_or_not_at_all(void **state)
{
  recovery r = recovery_of(*state, "begun");
  int allocations = with_each_failure(recover_once, &r);
  print_message("%d allocations\n", allocations);
  assert_true(allocations > 20);
  disk_fini(&r.d);
}

static void a_recovery_makes_the_store_whole_or_not_at_all(void **state)
{
  const uint64_t writer[2] = {1, 7};
  recovery r = recovery_of(*state, "recovered");
  rv_error err;
  size_t unknown;
  journaled j = open_with(&r.d, (how){.mode = RV_JOURNAL_ALWAYS}, r.tables, 2);
  rv_table *rows = rv_store_table(j.store, 0), *items = rv_store_table(j.store, 1);
  for (int part = 0; part < 2; part++) { /* the second is in the journal alone */
    int64_t values[20] = {part};
    rv_rows added;
    add_values(rows, &added, values, 20, NULL);
    for (uint64_t i = 1; i < 6; i++)
      assert_int_equal(insert_value(j.store, items, 10 * (uint64_t)part + i, 1, (int64_t)i), RV_OK);
    const rv_key_priority update = {10 * (uint64_t)part + 2, 3};
    const uint64_t gone = 10 * (uint64_t)part + 3;
    must(rv_table_mutate(items, &update, 1, &gone, 1, NULL, &unknown, &err), &err);
    rv_draw draws[4];
    rv_sampling sampling = {.want = 4, .draws = draws};
    rv_table_sample(items, &sampling);
    rv_draws_release(draws, sampling.count);
    rv_journal_note_writer(j.journal, writer, false);
    numbered(j.store, 50 + (uint64_t)part, writer, 1 + (uint64_t)part);
    if (part == 0) free(save_with(r.d.checkpointer, j.store));
  }
  sync_all(&j);
  r.before = j.store;
  rv_journal_unref(j.journal);
  must(rv_segment_list_read(r.d.journal, &r.kept, &err), &err);
  int allocations = with_each_failure(recover_once, &r);
  print_message("%d allocations\n", allocations);
  assert_true(allocations > 40);
  rv_segment_list_fini(&r.kept);
  rv_store_unref(r.before);
  disk_fini(&r.d);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(no_item_is_named_as_done_before_it_is_written_whichever_allocation_fails, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(a_journal_is_begun_whole_or_not_at_all, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_recovery_makes_the_store_whole_or_not_at_all, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
