/* What salvage goes on with behind a gap: nothing that fits only without what is lost. */
#include "persist/journal_parts.h"
#include "persist/journal_testing.h"

/* One byte of the last group of the last segment that has such a record. */
static void damage_group_with(const disk *d, rv_journal_record kind)
{
  char name[RV_JOURNAL_NAME_MAX];
  uint8_t *bytes;
  last_segment_name(d, name);
  size_t size = read_bytes(d->journal, name, &bytes), at = 0;
  for (size_t next; (next = group_with(bytes, size, at, kind)) > 0;) at = next;
  assert_true(at > 0);
  bytes[at] ^= 1;
  write_bytes(d->journal, name, bytes, size);
  free(bytes);
}

static void set_max_size(rv_table *table, int64_t max_size)
{
  rv_error err;
  rv_bounds_change change = {.bounds = rv_table_bounds_unchanged()};
  change.bounds.max_size = max_size;
  while (!change.done) must(rv_table_change_bounds(table, &change, &err), &err);
}

static void a_limiter_for_bounds_that_are_lost_is_left_out(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 10);
  const rv_rate_limiter_config limiter = rv_rate_limiter_min_size(50);
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  rv_table *table = rv_store_table(j.store, 0);
  add_rows(table, 3, 0);
  sync_all(&j);
  set_max_size(table, 100);
  sync_all(&j);
  must(rv_table_set_rate_limiter(table, &limiter, &err), &err);
  sync_all(&j);
  add_rows(table, 2, 10);
  close_all(&j);
  damage_group_with(&d, RV_RECORD_BOUNDS);
  assert_int_equal(try_open(&d, (how){.mode = 0}, &config, 1, &j, &err), RV_DATA_LOSS);
  assert_non_null(strstr(err.message, "1 groups with 1 changes cannot be read, and without them 1 of the"));
  assert_int_equal(try_open(&d, (how){.salvage = true}, &config, 1, &j, NULL), RV_OK); /* also for who wants no sentence */
  logged(*state, "table \"replay\": a rate limiter that was set does not fit without what is missing: ");
  logged(*state, "1 set a rate limiter that does not fit without what is missing");
  rv_table_info info = info_of(rv_store_table(j.store, 0));
  assert_int_equal(info.current_size, 5);
  assert_int_equal(info.max_size, 10);
  assert_int_equal(info.rate_limiter.min_size_to_sample, 1);
  rv_table_info_fini(&info);
  close_all(&j);
  disk_fini(&d);
}

static void a_link_that_is_damaged_is_told_with_what_helps_and_salvage_says_what_it_costs(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  char *saved = NULL;
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 3, 0);
  must(rv_checkpointer_save(d.checkpointer, j.store, NULL, &saved, &err), &err);
  add_rows(rv_store_table(j.store, 0), 2, 10);
  close_all(&j);
  write_bytes(saved, RV_LINK_FILE, "journal?", 8);
  assert_int_equal(try_open(&d, (how){.mode = 0}, &config, 1, &j, &err), RV_DATA_LOSS);
  assert_non_null(strstr(err.message, RV_LINK_FILE " is damaged"));
  assert_non_null(strstr(err.message, "start once with salvage"));
  j = open_with(&d, (how){.salvage = true}, &config, 1);
  assert_int_equal(size_of(j.store, 0), 3);
  logged(*state, "is damaged; its 2 changes are lost");
  close_all(&j);
  free(saved);
  disk_fini(&d);
}

/* ---- rows ---- */

static void put_rows(rv_chunk *segment, int64_t first, int64_t end)
{
  rv_error err;
  for (int64_t i = first; i < end; i++) {
    rv_tensor number = {.dtype = RV_INT64, .data = &i};
    must(rv_segment_put(segment, 0, i, &number, &err), &err);
  }
  rv_segment_publish(segment, 0, end);
}

static void insert_rows(const journaled *j, uint64_t key, rv_chunk *segment, int32_t first, int32_t rows)
{
  const rv_slice slice = {segment, 0, first, rows};
  const uint32_t num_slices = 1;
  const bool squeeze = false;
  insert_trajectory(j->store, rv_store_table(j->store, 0), key, 1, &slice, &num_slices, &squeeze, 1);
  sync_all(j);
}

static rv_chunk *segment_of(uint64_t key)
{
  rv_error err;
  const rv_chunk_meta meta = {.key = key, .episode_id = 3, .last_step = 19};
  rv_spec spec = {.name = "", .dtype = RV_INT64};
  rv_chunk *segment;
  must(rv_segment_new(&spec, 1, 20, &meta, &segment, &err), &err);
  return segment;
}

/* The journal writes rows of a segment under the segment's key, and when it has forgotten what it wrote, others under the same. */
static void no_item_gets_rows_that_were_written_before_what_is_lost(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  rv_chunk *segment = segment_of(12345), *other = segment_of(54321);
  rv_draw draw;
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  sync_all(&j);
  j.journal->encoder.max_chunks = 2; /* nothing is under way that would look at it */
  put_rows(segment, 0, 5);
  insert_rows(&j, 1, segment, 0, 5);
  put_rows(other, 0, 1);
  insert_rows(&j, 9, other, 0, 1);
  put_rows(segment, 5, 10);
  insert_rows(&j, 2, segment, 5, 5);
  insert_rows(&j, 3, segment, 6, 3);
  put_rows(segment, 10, 15);
  insert_rows(&j, 4, segment, 10, 5);
  rv_chunk_unref(other);
  rv_chunk_unref(segment);
  close_all(&j);
  damage_group_with(&d, RV_RECORD_FORGET_CHUNKS);
  assert_int_equal(try_open(&d, (how){.mode = 0}, &config, 1, &j, &err), RV_DATA_LOSS);
  j = open_with(&d, (how){.salvage = true}, &config, 1);
  static const struct {
    uint64_t key;
    int64_t first;
  } whole[] = {{1, 0}, {4, 10}};
  for (size_t i = 0; i < 2; i++) {
    int64_t rows[5];
    must(rv_table_get(rv_store_table(j.store, 0), whole[i].key, &draw, &err), &err);
    must(rv_draw_copy_column(&draw, 0, rows, &err), &err);
    for (int64_t row = 0; row < 5; row++) assert_int_equal(rows[row], whole[i].first + row);
    rv_draw_release(&draw);
  }
  assert_int_equal(rv_table_get(rv_store_table(j.store, 0), 3, &draw, &err), RV_NOT_FOUND);
  logged(*state, "1 items are lost with their rows");
  close_all(&j);
  disk_fini(&d);
}

/* Its own are there; those of the one that had its key before went with that. */
static void an_item_has_its_own_rows_where_it_is_lost_that_one_with_its_key_went(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  const uint64_t key = 1;
  size_t unknown;
  rv_chunk *segment = segment_of(12345);
  rv_draw draw;
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  put_rows(segment, 0, 5);
  insert_rows(&j, key, segment, 0, 5);
  must(rv_table_mutate(rv_store_table(j.store, 0), NULL, 0, &key, 1, NULL, &unknown, &err), &err);
  sync_all(&j);
  put_rows(segment, 5, 10);
  insert_rows(&j, key, segment, 5, 5);
  rv_chunk_unref(segment);
  close_all(&j);
  damage_group_with(&d, RV_RECORD_DELETE);
  assert_int_equal(try_open(&d, (how){.mode = 0}, &config, 1, &j, &err), RV_DATA_LOSS);
  j = open_with(&d, (how){.salvage = true}, &config, 1);
  int64_t rows[5];
  assert_int_equal(size_of(j.store, 0), 1);
  must(rv_table_get(rv_store_table(j.store, 0), key, &draw, &err), &err);
  must(rv_draw_copy_column(&draw, 0, rows, &err), &err);
  for (int64_t row = 0; row < 5; row++) assert_int_equal(rows[row], 5 + row);
  rv_draw_release(&draw);
  close_all(&j);
  disk_fini(&d);
}

int main(void)
{
#define WITH_DISK(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      WITH_DISK(a_limiter_for_bounds_that_are_lost_is_left_out),
      WITH_DISK(a_link_that_is_damaged_is_told_with_what_helps_and_salvage_says_what_it_costs),
      WITH_DISK(no_item_gets_rows_that_were_written_before_what_is_lost),
      WITH_DISK(an_item_has_its_own_rows_where_it_is_lost_that_one_with_its_key_went),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
