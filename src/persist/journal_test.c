/* What was confirmed is there again after a crash, once. */
#include "persist/journal_testing.h"

#include "base/error.h"
#include "base/random.h"
#include "persist/journal_parts.h"
#include "store/changes_parts.h"
#include "store/table_parts.h"

/* ---- doing something of everything ---- */

static void something(rv_store *store, rv_random *random)
{
  rv_error err;
  uint64_t keys[8];
  double priorities[8];
  size_t unknown, n = 1 + rv_random_below(random, 8);
  rv_table *table = rv_store_table(store, rv_random_below(random, 2));
  for (size_t i = 0; i < 8; i++) keys[i] = rv_random_below(random, 200), priorities[i] = (double)rv_random_below(random, 100);
  switch (rv_random_below(random, 11)) {
  case 0: must(rv_table_mutate(table, NULL, 0, keys, n, NULL, &unknown, &err), &err); break;
  case 1: must(rv_table_update_priorities(table, keys, priorities, n, NULL, &unknown, &err), &err); break;
  case 2:
    if (rv_table_can_sample(table, 1)) draw_some(table, 1 + rv_random_below(random, 60));
    break;
  case 3: {
    rv_chunk *chunk = wire_chunk(rv_random_next(random), 50 + n, 100, 20, n % 2 == 0, n % 3 == 0);
    for (uint64_t i = 0; i < n; i++) {
      rv_slice slices[] = {{chunk, 0, (int32_t)i, 5}, {chunk, 1, (int32_t)i, 1}};
      uint32_t num_slices[] = {1, 1};
      bool squeeze[] = {false, true};
      insert_trajectory(store, table, keys[i], priorities[i], slices, num_slices, squeeze, 2);
    }
    rv_chunk_unref(chunk);
    break;
  }
  case 4:
    if (rv_random_below(random, 60) == 0) must(rv_table_reset(table, &err), &err);
    break;
  case 10:
    if (rv_random_below(random, 8) == 0) {
      rv_bounds_change change = {.bounds = rv_table_bounds_unchanged()};
      change.bounds.max_size = 20 + (int64_t)rv_random_below(random, 600);
      change.bounds.max_times_sampled = (int32_t)rv_random_below(random, 4);
      if (rv_random_below(random, 2) == 0) change.bounds.max_bytes = (int64_t)rv_random_below(random, 3) << 18;
      while (!change.done) must(rv_table_change_bounds(table, &change, &err), &err);
    }
    break;
  case 5:
  case 6: must(insert_value(store, table, keys[0], priorities[0], (int64_t)rv_random_below(random, 1000)), &err); break;
  default: add_rows(table, 1 + rv_random_below(random, 50), (int64_t)rv_random_below(random, 1000)); break;
  }
}

static void configure_plain(rv_table_config tables[TABLES])
{
  configure(tables);
  tables[0].rate_limiter = rv_rate_limiter_min_size(1);
}

static uint64_t seed_of_test(void)
{
  const char *given = getenv("RV_TEST_SEED");
  uint64_t seed = given == NULL ? 20261121 : strtoull(given, NULL, 10);
  print_message("seed %llu\n", (unsigned long long)seed);
  return seed;
}

/* ---- recovering ---- */

static void what_was_synced_is_there_again_whatever_happened_and_checkpoints_in_between(void **state)
{
  rv_error err;
  rv_random random;
  rv_table_config tables[TABLES];
  configure_plain(tables);
  rv_random_init(&random, seed_of_test());
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, tables, TABLES);
  for (int round = 0; round < 12; round++) {
    char name[16];
    for (int i = 0; i < 60; i++) something(j.store, &random);
    if (round % 4 == 1) must(rv_checkpointer_save(d.checkpointer, j.store, NULL, NULL, &err), &err);
    for (int i = 0; i < 30; i++) something(j.store, &random);
    sync_all(&j);
    snprintf(name, sizeof name, "copy%d", round);
    disk copy = copy_of(&d, name);
    journaled again = open_with(&copy, (how){.mode = 0}, tables, TABLES);
    same_stores(j.store, again.store);
    close_all(&j); /* the copy goes on */
    disk_fini(&d);
    d = copy;
    j = again;
  }
  close_all(&j);
  disk_fini(&d);
}

static void a_journal_that_was_closed_has_everything(void **state)
{
  for (int mode = RV_JOURNAL_PERIODIC; mode <= RV_JOURNAL_ALWAYS; mode++) {
    rv_table_config tables[TABLES];
    configure_plain(tables);
    disk d = disk_of(*state, mode == RV_JOURNAL_ALWAYS ? "always" : "periodic");
    journaled j = open_with(&d, (how){.mode = (rv_journal_mode)mode, .period_ms = 3600000}, tables, TABLES);
    fill(j.store);
    rv_store *kept = rv_store_ref(j.store);
    close_all(&j);
    j = open_with(&d, (how){.mode = (rv_journal_mode)mode}, tables, TABLES);
    same_stores(kept, j.store);
    rv_store_unref(kept);
    close_all(&j);
    disk_fini(&d);
  }
}

static void numbered(rv_store *store, uint64_t key, uint64_t writer, uint64_t number)
{
  rv_error err;
  rv_insert insert = {.key = key, .priority = 1, .writer = {writer, 7}, .number = number, .trajectory = single(store, 5, 1)};
  insert.waiter.deadline_ns = INT64_MAX;
  assert_int_equal(rv_table_insert(rv_store_table(store, 0), &insert), RV_SUBMIT_DONE);
  must(insert.waiter.code, &insert.waiter.error);
  rv_trajectory_unref(insert.trajectory);
  (void)err;
}

static size_t numbers_of(const journaled *j, uint64_t writer, uint64_t *last)
{
  const rv_journal_writer *found = NULL;
  *last = 0;
  while ((found = rv_journal_recovered_writer(j->journal, found)) != NULL)
    if (found->id[0] == writer) break;
  if (found == NULL) return SIZE_MAX;
  rv_done_place place = {0};
  for (rv_done_run run; rv_done_set_next(&found->done, &place, &run);) *last = run.last;
  return found->done.count;
}

/* What a limiter that came while max_size went down could once leave. */
static void bounds_below_what_the_limiter_waits_for_keep_no_journal_from_being_replayed(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  rv_table *table = rv_store_table(j.store, 0);
  add_rows(table, 400, 0);
  const rv_rate_limiter_config limiter = rv_rate_limiter_min_size(300);
  must(rv_table_set_rate_limiter(table, &limiter, &err), &err);
  table->limiter.config.min_size_to_sample = 1; /* which is not written down */
  rv_bounds_change change = {.bounds = rv_table_bounds_unchanged()};
  change.bounds.max_size = 10;
  while (!change.done) must(rv_table_change_bounds(table, &change, &err), &err);
  close_all(&j);
  j = open_with(&d, (how){.mode = 0}, &config, 1);
  rv_table_info info = info_of(rv_store_table(j.store, 0));
  assert_int_equal(info.current_size, 10);
  assert_int_equal(info.max_size, 10);
  rv_table_info_fini(&info);
  close_all(&j);
  disk_fini(&d);
}

/* What a version could write down that did not find every such limiter. */
static void a_limiter_that_is_refused_now_keeps_no_journal_from_being_replayed(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  config.max_times_sampled = 1;
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  rv_table *table = rv_store_table(j.store, 0);
  const rv_rate_limiter_config before = rv_rate_limiter_min_size(3);
  const rv_rate_limiter_config stands = {.samples_per_insert = 2, .min_size_to_sample = 1, .min_diff = 2.25, .max_diff = 4};
  must(rv_table_set_rate_limiter(table, &before, &err), &err);
  rv_turn turn;
  rv_turn_begin(&turn, table);
  must(rv_changes_reserve(table, 1, 1, &err), &err);
  rv_changes_put_limiter(table, &stands);
  rv_turn_end(&turn);
  add_rows(table, 5, 0);
  close_all(&j);
  assert_int_equal(try_open(&d, (how){.mode = 0}, &config, 1, &j, NULL), RV_OK); /* also for who wants no sentence */
  rv_table_info info = info_of(rv_store_table(j.store, 0));
  assert_int_equal(info.current_size, 5);
  assert_int_equal(info.rate_limiter.min_size_to_sample, 3);
  assert_true(info.rate_limiter.max_diff > 4);
  rv_table_info_fini(&info);
  logged(*state, "table \"replay\": a rate limiter that was set is impossible, and the one before it stays: ");
  close_all(&j);
  disk_fini(&d);
}

static void which_items_of_which_writer_are_in_is_known_again_across_checkpoints(void **state)
{
  rv_error err;
  uint64_t last, before[2], after[2];
  const uint64_t gone[2] = {3, 7}, quiet[2] = {4, 7};
  rv_table_config config = rv_table_config_default("replay", 100);
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  for (uint64_t i = 1; i <= 5; i++) numbered(j.store, i, 1, i);
  numbered(j.store, 1, 1, 6); /* an update is an item of the writer's, too */
  numbered(j.store, 20, 1, 8);
  numbered(j.store, 21, 3, 1);
  rv_journal_note_writer(j.journal, quiet, false);
  must(rv_checkpointer_save(d.checkpointer, j.store, NULL, NULL, &err), &err);
  rv_journal_note_writer(j.journal, gone, true);
  numbered(j.store, 22, 2, 1);
  sync_all(&j);
  rv_store_state_id(j.store, before);
  disk copy = copy_of(&d, "copy");
  journaled again = open_with(&copy, (how){.mode = 0}, &config, 1);
  rv_store_state_id(again.store, after);
  assert_memory_equal(before, after, sizeof before); /* writers see that it is the same store */
  assert_int_equal(numbers_of(&again, 1, &last), 2); /* 1 to 6, 8 */
  assert_int_equal(last, 8);
  assert_int_equal(numbers_of(&again, 2, &last), 1);
  assert_int_equal(numbers_of(&again, 3, &last), SIZE_MAX);
  assert_int_equal(numbers_of(&again, 4, &last), 0);
  close_all(&again);
  close_all(&j);
  disk_fini(&copy);
  disk_fini(&d);
}

static void segments_that_a_checkpoint_covers_go(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  rv_journal_stats stats = {.size = sizeof stats};
  add_rows(rv_store_table(j.store, 0), 500, 0);
  sync_all(&j);
  rv_journal_get_stats(j.journal, &stats);
  int64_t before = stats.disk_bytes;
  assert_true(before > 4000);
  assert_int_equal(stats.errors, 0);
  assert_int_equal(stats.changes, 500);
  assert_true(stats.fsyncs >= 2);
  must(rv_checkpointer_save(d.checkpointer, j.store, NULL, NULL, &err), &err);
  rv_journal_get_stats(j.journal, &stats);
  assert_true(stats.disk_bytes < 1000);
  rv_segment_list list;
  must(rv_segment_list_read(d.journal, &list, &err), &err);
  assert_int_equal(list.count, 1);
  rv_segment_list_fini(&list);
  rv_store *kept = rv_store_ref(j.store);
  close_all(&j);
  j = open_with(&d, (how){.mode = 0}, &config, 1);
  same_stores(kept, j.store);
  rv_store_unref(kept);
  close_all(&j);
  disk_fini(&d);
}

/* ---- writers of whom too much would have to be remembered ---- */

static size_t recovered_of(const disk *d, const rv_table_config *config, uint64_t writer, const char *name)
{
  uint64_t last;
  disk copy = copy_of(d, name);
  journaled again = open_with(&copy, (how){.mode = 0}, config, 1);
  size_t runs = numbers_of(&again, writer, &last);
  close_all(&again);
  disk_fini(&copy);
  return runs;
}

static void a_writer_that_was_forgotten_stays_so_whatever_it_still_does(void **state)
{
  rv_error err;
  const uint64_t id[2] = {1, 7};
  rv_table_config config = rv_table_config_default("replay", 100);
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = RV_JOURNAL_PERIODIC, .period_ms = 3600000}, &config, 1);
  uint64_t number = 0;
  rv_journal_note_writer(j.journal, id, false);
  for (size_t i = 0; i <= RV_DONE_RUNS_MAX; i++) numbered(j.store, 1, 1, number += 2);
  for (size_t i = 0; i < 10; i++) numbered(j.store, 1, 1, number += 2);
  sync_all(&j);
  assert_int_equal(recovered_of(&d, &config, 1, "same"), SIZE_MAX);
  numbered(j.store, 1, 1, number += 2);
  sync_all(&j);
  assert_int_equal(recovered_of(&d, &config, 1, "later"), SIZE_MAX);
  must(rv_checkpointer_save(d.checkpointer, j.store, NULL, NULL, &err), &err);
  numbered(j.store, 1, 1, number += 2);
  sync_all(&j);
  assert_int_equal(recovered_of(&d, &config, 1, "checkpoint"), SIZE_MAX);
  rv_journal_note_writer(j.journal, id, false); /* a new session */
  numbered(j.store, 1, 1, 1);
  sync_all(&j);
  assert_int_equal(recovered_of(&d, &config, 1, "anew"), 1);
  numbered(j.store, 1, 1, 3);
  rv_journal_note_writer(j.journal, id, true); /* over, with an item of it in the same cycle */
  sync_all(&j);
  assert_int_equal(recovered_of(&d, &config, 1, "over"), SIZE_MAX);
  must(rv_checkpointer_save(d.checkpointer, j.store, NULL, NULL, &err), &err);
  assert_int_equal(recovered_of(&d, &config, 1, "still"), SIZE_MAX);
  close_all(&j);
  disk_fini(&d);
}

/* ---- waiting ---- */

/* The most bytes of chunks that a recovery of the segment that is written to has to remember at a time. */
static size_t chunk_bytes_at_most(const disk *d, size_t *all)
{
  char name[RV_JOURNAL_NAME_MAX];
  uint8_t *bytes, kind;
  size_t now = 0, most = 0, sum = 0;
  rv_group_header group;
  last_segment_name(d, name);
  size_t size = read_bytes(d->journal, name, &bytes);
  for (size_t at = RV_JOURNAL_SEGMENT_HEADER; at < size; at += RV_JOURNAL_GROUP_HEADER + group.bytes) {
    rv_span body;
    bool broken = false;
    assert_true(rv_group_header_get(bytes + at, size - at, &group));
    rv_span records = {bytes + at + RV_JOURNAL_GROUP_HEADER, group.bytes};
    while (rv_journal_record_next(&records, &kind, &body, &broken)) {
      if (kind == RV_RECORD_FORGET_CHUNKS) now = 0;
      if (kind == RV_RECORD_CHUNK) now += body.size, sum += body.size;
      if (now > most) most = now;
    }
  }
  free(bytes);
  if (all != NULL) *all = sum;
  return most;
}

static void a_recovery_remembers_a_bounded_part_of_the_chunks(void **state)
{
  enum { ITEMS = 50, ROWS = 100, BOUND = 5000 };
  rv_table_config config = rv_table_config_default("replay", 2);
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){0}, &config, 1);
  j.journal->encoder.max_chunk_bytes = BOUND;
  size_t largest = 0;
  for (uint64_t i = 0; i < ITEMS; i++) {
    rv_chunk *chunk = wire_chunk(900 + i, i, (int64_t)i, ROWS, false, false);
    if (rv_chunk_memory(chunk) > largest) largest = rv_chunk_memory(chunk);
    rv_slice slices[] = {{chunk, 0, 0, ROWS}};
    /* items that share a chunk, which is forgotten between them or not */
    for (uint64_t k = 0; k < 3; k++)
      insert_trajectory(j.store, rv_store_table(j.store, 0), 1 + 3 * i + k, 1, slices, (uint32_t[]){1}, (bool[]){false}, 1);
    rv_chunk_unref(chunk);
  }
  sync_all(&j);
  assert_true(chunk_bytes_at_most(&d, NULL) <= BOUND + largest);
  disk copy = copy_of(&d, "copy");
  journaled again = open_with(&copy, (how){0}, &config, 1);
  same_stores(j.store, again.store);
  close_all(&again);
  close_all(&j);
  disk_fini(&copy);
  disk_fini(&d);
}

/* Writers take turns with items that overlap: what they need again of all their chunks is twice what is remembered. */
static void chunks_that_items_go_on_needing_are_not_written_again_and_again(void **state)
{
  enum { WRITERS = 20, WINDOW = 5, STEPS = 40, ROWS = 100 };
  rv_table_config config = rv_table_config_default("replay", WRITERS);
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){0}, &config, 1);
  rv_chunk *window[WRITERS][WINDOW] = {{NULL}};
  size_t distinct = 0, all;
  for (uint64_t step = 0; step < STEPS; step++) {
    for (uint64_t w = 0; w < WRITERS; w++) {
      uint64_t key = 900 + WRITERS * step + w;
      rv_chunk *chunk = wire_chunk(key, w, (int64_t)key, ROWS, false, false);
      const uint8_t *wire;
      size_t size;
      (void)rv_chunk_wire(chunk, &wire, &size);
      distinct += size;
      if (key == 900) j.journal->encoder.usual_chunk_bytes = j.journal->encoder.max_chunk_bytes = WRITERS * WINDOW * size / 2;
      rv_chunk_unref(window[w][step % WINDOW]);
      window[w][step % WINDOW] = chunk;
      rv_slice slices[WINDOW];
      uint32_t n = step < WINDOW ? (uint32_t)step + 1 : WINDOW;
      for (uint32_t i = 0; i < n; i++) slices[i] = (rv_slice){window[w][i], 0, 0, ROWS};
      insert_trajectory(j.store, rv_store_table(j.store, 0), key, 1, slices, &n, (bool[]){false}, 1);
    }
  }
  sync_all(&j);
  (void)chunk_bytes_at_most(&d, &all);
  print_message("%zu bytes of chunks, %zu written\n", distinct, all);
  assert_in_range(all, distinct, 5 * distinct / 2);
  disk copy = copy_of(&d, "copy");
  journaled again = open_with(&copy, (how){0}, &config, 1);
  same_stores(j.store, again.store);
  close_all(&again);
  disk_fini(&copy);
  /* and where items need none of them any more, recoveries have little to remember again */
  for (uint64_t key = 0; key < STEPS * WRITERS; key++) {
    rv_chunk *chunk = wire_chunk(1000000 + key, 1, (int64_t)key, ROWS, false, false);
    const rv_slice slice = {chunk, 0, 0, ROWS};
    insert_trajectory(j.store, rv_store_table(j.store, 0), 1000000 + key, 1, &slice, (uint32_t[]){1}, (bool[]){false}, 1);
    rv_chunk_unref(chunk);
  }
  sync_all(&j);
  assert_int_equal(j.journal->encoder.max_chunk_bytes, j.journal->encoder.usual_chunk_bytes);
  for (size_t i = 0; i < WRITERS * WINDOW; i++) rv_chunk_unref(window[i / WINDOW][i % WINDOW]);
  close_all(&j);
  disk_fini(&d);
}

typedef struct called {
  rv_journal_waiter waiter;
  atomic_int times;
} called;

static void on_written(rv_journal_waiter *waiter)
{
  atomic_fetch_add(&RV_CONTAINER(waiter, called, waiter)->times, 1);
}

static void who_waits_is_called_once_when_it_is_written(void **state)
{
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = RV_JOURNAL_PERIODIC, .period_ms = 3600000}, &config, 1);
  called c = {.waiter = {.done = on_written}};
  atomic_init(&c.times, 0);
  add_rows(rv_store_table(j.store, 0), 3, 0);
  c.waiter.ticket = rv_journal_ticket(j.journal);
  assert_false(rv_journal_is_written(j.journal, c.waiter.ticket)); /* the period is an hour */
  rv_journal_stats stats = {.size = sizeof stats};
  rv_journal_get_stats(j.journal, &stats);
  assert_true(stats.queued_bytes > 0 && stats.lag_ns > 0);
  bool waits = rv_journal_wait(j.journal, &c.waiter);
  sync_all(&j);
  assert_true(rv_journal_is_written(j.journal, c.waiter.ticket));
  sync_all(&j); /* a cycle later everybody was called */
  assert_int_equal(atomic_load(&c.times), waits ? 1 : 0);
  assert_false(rv_journal_wait(j.journal, &c.waiter));
  assert_false(rv_journal_cancel(j.journal, &c.waiter));
  close_all(&j);
  disk_fini(&d);
}

int main(void)
{
#define WITH_DISK(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      WITH_DISK(what_was_synced_is_there_again_whatever_happened_and_checkpoints_in_between),
      WITH_DISK(a_journal_that_was_closed_has_everything),
      WITH_DISK(bounds_below_what_the_limiter_waits_for_keep_no_journal_from_being_replayed),
      WITH_DISK(a_limiter_that_is_refused_now_keeps_no_journal_from_being_replayed),
      WITH_DISK(which_items_of_which_writer_are_in_is_known_again_across_checkpoints),
      WITH_DISK(segments_that_a_checkpoint_covers_go),
      WITH_DISK(a_writer_that_was_forgotten_stays_so_whatever_it_still_does),
      WITH_DISK(a_recovery_remembers_a_bounded_part_of_the_chunks),
      WITH_DISK(chunks_that_items_go_on_needing_are_not_written_again_and_again),
      WITH_DISK(who_waits_is_called_once_when_it_is_written),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
