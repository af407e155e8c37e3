/* Every write, fsync and the like fails in turn: nothing that was confirmed is lost or doubled, and the journal goes on. */
#include "persist/journal_testing.h"

#include <errno.h>
#include <limits.h>

#include "base/error.h"

/* ---- files that fail ---- */

typedef struct faulty {
  atomic_long until;  /* calls that succeed before the first that fails; negative: none fails */
  atomic_long faults; /* so many in a row fail */
  atomic_long calls;
  int number; /* errno; 0: a write that is cut short */
} faulty;

static bool fails(faulty *f)
{
  atomic_fetch_add(&f->calls, 1);
  long left = atomic_load(&f->until);
  if (left < 0) return false;
  if (left > 0) {
    atomic_fetch_sub(&f->until, 1);
    return false;
  }
  if (atomic_fetch_sub(&f->faults, 1) <= 1) atomic_store(&f->until, -1);
  errno = f->number;
  return f->number != 0;
}

static int faulty_create(void *context, const char *path)
{
  return fails(context) ? -1 : rv_files_of_system.create(NULL, path);
}
static ssize_t faulty_write(void *context, int file, const struct iovec *pieces, int count)
{
  faulty *f = context;
  bool due = atomic_load(&f->until) == 0;
  if (fails(f)) return -1;
  if (!due) return rv_files_of_system.write(NULL, file, pieces, count);
  struct iovec half = {pieces[0].iov_base, pieces[0].iov_len / 2 + 1};
  return rv_files_of_system.write(NULL, file, &half, 1);
}
static int faulty_sync(void *context, int file)
{
  return fails(context) ? -1 : rv_files_of_system.sync(NULL, file);
}
static int faulty_sync_directory(void *context, const char *path)
{
  return fails(context) ? -1 : rv_files_of_system.sync_directory(NULL, path);
}
static int faulty_truncate(void *context, int file, off_t size)
{
  return fails(context) ? -1 : rv_files_of_system.truncate(NULL, file, size);
}
static int faulty_remove(void *context, const char *path)
{
  return fails(context) ? -1 : rv_files_of_system.remove(NULL, path);
}

static rv_files files_of(faulty *f)
{
  return (rv_files){.create = faulty_create,
                    .file_system = rv_files_of_system.file_system,
                    .write = faulty_write,
                    .push = rv_files_of_system.push,
                    .sync = faulty_sync,
                    .sync_directory = faulty_sync_directory,
                    .truncate = faulty_truncate,
                    .remove = faulty_remove,
                    .context = f};
}

/* A journal, with one table, on a disk whose calls fail when the test says so. */
typedef struct faulty_disk {
  faulty faults;
  rv_files files;
  rv_table_config config;
  disk d;
  journaled j;
  rv_table *table;
} faulty_disk;

static void faulty_init(faulty *f, long many, int number)
{
  f->number = number;
  atomic_init(&f->until, -1);
  atomic_init(&f->faults, many);
  atomic_init(&f->calls, 0);
}

/* Of its first calls none fails. */
static void open_faulty(faulty_disk *on, fixture *f, how as, long many, int number)
{
  faulty_init(&on->faults, many, number);
  on->files = files_of(&on->faults);
  as.files = &on->files;
  on->config = rv_table_config_default("replay", 100000);
  on->d = disk_of(f, "first");
  on->j = open_with(&on->d, as, &on->config, 1);
  on->table = rv_store_table(on->j.store, 0);
}

static void close_faulty(faulty_disk *on)
{
  close_all(&on->j);
  disk_fini(&on->d);
}

/* What a kill would leave now, as a store. */
static journaled recovered_copy(const faulty_disk *on)
{
  disk copy = copy_of(&on->d, "copy");
  journaled again = open_with(&copy, (how){.mode = 0}, &on->config, 1);
  disk_fini(&copy);
  return again;
}

/* ---- every call in turn ---- */

enum { STEPS = 6 };

/* Inserts, confirmed one by one, with a checkpoint between; what is on the disk is looked at after each confirmation. */
static long run_with_faults(fixture *fixed, long first, long many, int number)
{
  rv_error err;
  faulty_disk on;
  char command[200];
  snprintf(command, sizeof command, "rm -rf %s/first", fixed->top);
  assert_int_equal(system(command), 0);
  open_faulty(&on, fixed, (how){.mode = 0}, many, number);
  atomic_store(&on.faults.calls, 0);
  atomic_store(&on.faults.until, first);
  for (uint64_t step = 1; step <= STEPS; step++) {
    must(insert_value(on.j.store, on.table, step, 1, (int64_t)step), &err);
    sync_all(&on.j); /* it is confirmed */
    if (step == STEPS / 2) must(rv_checkpointer_save(on.d.checkpointer, on.j.store, NULL, NULL, &err), &err);
    if (step != STEPS / 2 && step != STEPS) continue;
    journaled again = recovered_copy(&on);
    same_stores(on.j.store, again.store);
    close_all(&again);
  }
  long calls = atomic_load(&on.faults.calls);
  close_faulty(&on);
  return calls;
}

static void each_call_in_turn(fixture *fixed, long many, int number)
{
  long calls = run_with_faults(fixed, -1, 0, number);
  assert_true(calls > 3 * STEPS / 2);
  for (long first = 0; first < calls; first++) run_with_faults(fixed, first, many, number);
}

static void nothing_confirmed_is_lost_or_doubled_whichever_call_fails_with_an_io_error(void **state)
{
  each_call_in_turn(*state, 1, EIO);
}
static void nothing_confirmed_is_lost_or_doubled_whichever_call_finds_the_disk_full_for_a_while(void **state)
{
  each_call_in_turn(*state, 4, ENOSPC);
}
static void nothing_confirmed_is_lost_or_doubled_whichever_write_is_cut_short(void **state)
{
  each_call_in_turn(*state, 1, 0);
}

static void a_journal_that_cannot_begin_says_why_and_the_next_try_succeeds(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  faulty f;
  faulty_init(&f, 1, EACCES);
  rv_files files = files_of(&f);
  disk d = disk_of(*state, "first");
  journaled j;
  rv_code code = RV_UNKNOWN;
  for (long first = 0; first < 3; first++) {
    atomic_store(&f.faults, 1);
    atomic_store(&f.until, first);
    code = try_open(&d, (how){.files = &files}, &config, 1, &j, &err);
    assert_int_equal(code, RV_PERMISSION_DENIED);
    assert_non_null(strstr(err.message, ".journal"));
  }
  atomic_store(&f.until, -1);
  j = open_with(&d, (how){.files = &files}, &config, 1);
  close_all(&j);
  disk_fini(&d);
}

/* ---- a disk that takes nothing for long ---- */

typedef struct waiting {
  rv_insert insert;
  atomic_bool done;
} waiting;

static void on_done(rv_waiter *waiter)
{
  atomic_store(&RV_CONTAINER(waiter, waiting, insert.waiter)->done, true);
}

static void while_the_disk_is_full_inserts_wait_in_bounds_and_go_on_when_it_is_not(void **state)
{
  rv_error err;
  char why[256];
  faulty_disk on;
  open_faulty(&on, *state, (how){.max_queued_bytes = 10000}, LONG_MAX, ENOSPC);
  atomic_store(&on.faults.until, 0);
  waiting last = {.insert = {.priority = 1, .trajectory = single(on.j.store, 5, 1)}};
  atomic_init(&last.done, false);
  last.insert.waiter.deadline_ns = INT64_MAX;
  last.insert.waiter.complete = on_done;
  uint64_t inserted = 0;
  do {
    last.insert.key = ++inserted;
    assert_true(inserted < 10000);
  } while (rv_table_insert(on.table, &last.insert) == RV_SUBMIT_DONE);
  rv_journal_stats stats = {.size = sizeof stats};
  do rv_journal_get_stats(on.j.journal, &stats);
  while (stats.fault[0] == '\0');
  assert_non_null(strstr(stats.fault, "No space left on device"));
  assert_true(stats.queued_bytes < 12000);
  assert_int_equal(rv_waiter_explain(&last.insert.waiter, why, sizeof why), RV_WAIT_JOURNAL);
  assert_non_null(strstr(why, "No space left on device"));
  assert_int_equal(rv_journal_sync(on.j.journal, 1, &err), RV_DEADLINE_EXCEEDED);
  assert_non_null(strstr(err.message, "No space left on device"));
  assert_int_equal(size_of(on.j.store, 0), (int64_t)inserted - 1); /* looking goes on */
  atomic_store(&on.faults.until, -1);
  sync_all(&on.j);
  while (!atomic_load(&last.done)) sync_all(&on.j);
  sync_all(&on.j);
  logged(*state, "journal: it can be written again");
  journaled again = recovered_copy(&on);
  assert_int_equal(size_of(again.store, 0), (int64_t)inserted);
  same_stores(on.j.store, again.store);
  close_all(&again);
  rv_trajectory_unref(last.insert.trajectory);
  close_faulty(&on);
}

typedef struct waiting_row {
  rv_rows rows;
  atomic_bool done;
} waiting_row;

static void on_row_done(rv_waiter *waiter)
{
  atomic_store(&RV_CONTAINER(waiter, waiting_row, rows.waiter)->done, true);
}

static rv_submitted add_text(rv_table *table, waiting_row *row, const rv_tensor *column)
{
  row->rows = (rv_rows){.columns = column, .num_columns = 1, .n = 1};
  row->rows.waiter.deadline_ns = INT64_MAX;
  row->rows.waiter.complete = on_row_done;
  return rv_table_insert_rows(table, &row->rows);
}

static void strings_count_with_all_their_bytes_towards_what_waits_for_the_disk(void **state)
{
  enum { TEXT_BYTES = 100000 };
  faulty_disk on;
  open_faulty(&on, *state, (how){.max_queued_bytes = TEXT_BYTES}, LONG_MAX, ENOSPC);
  atomic_store(&on.faults.until, 0);
  waiting_row first, second;
  atomic_init(&first.done, false);
  atomic_init(&second.done, false);
  char *text = calloc(1, TEXT_BYTES);
  rv_bytes bytes = {text, TEXT_BYTES};
  int64_t shape = 1;
  rv_tensor column = {.dtype = RV_STRING, .rank = 1, .shape = &shape, .data = &bytes};
  assert_int_equal(add_text(on.table, &first, &column), RV_SUBMIT_DONE);
  assert_int_equal(add_text(on.table, &second, &column), RV_SUBMIT_PENDING);
  atomic_store(&on.faults.until, -1);
  while (!atomic_load(&second.done)) sync_all(&on.j);
  sync_all(&on.j);
  journaled again = recovered_copy(&on);
  same_stores(on.j.store, again.store);
  close_all(&again);
  close_faulty(&on);
  free(text);
}

/* What a periodic journal may lose is what came in a period, however long the disk takes nothing. */
static void while_a_periodic_journal_cannot_be_written_inserts_wait(void **state)
{
  char why[256];
  faulty_disk on;
  open_faulty(&on, *state, (how){.mode = RV_JOURNAL_PERIODIC, .period_ms = 1}, LONG_MAX, ENOSPC);
  atomic_store(&on.faults.until, 0);
  waiting last = {.insert = {.key = 1, .priority = 1, .trajectory = single(on.j.store, 5, 1)}};
  atomic_init(&last.done, false);
  last.insert.waiter.deadline_ns = INT64_MAX;
  last.insert.waiter.complete = on_done;
  assert_int_equal(rv_table_insert(on.table, &last.insert), RV_SUBMIT_DONE);
  rv_journal_stats stats = {.size = sizeof stats};
  do rv_journal_get_stats(on.j.journal, &stats);
  while (stats.fault[0] == '\0');
  last.insert.key = 2;
  assert_int_equal(rv_table_insert(on.table, &last.insert), RV_SUBMIT_PENDING);
  assert_int_equal(rv_waiter_explain(&last.insert.waiter, why, sizeof why), RV_WAIT_JOURNAL);
  assert_non_null(strstr(why, "No space left on device"));
  atomic_store(&on.faults.until, -1);
  while (!atomic_load(&last.done)) sync_all(&on.j);
  assert_int_equal(last.insert.waiter.code, RV_OK);
  assert_int_equal(size_of(on.j.store, 0), 2);
  rv_trajectory_unref(last.insert.trajectory);
  close_faulty(&on);
}

static void whoever_asks_while_the_disk_fails_does_not_have_it_tried_more_often(void **state)
{
  rv_error err;
  const int64_t pauses_ns = INT64_C(310000000); /* the first five: 10, 20, 40, 80 and 160 ms */
  faulty_disk on;
  open_faulty(&on, *state, (how){.mode = 0}, LONG_MAX, EIO);
  rv_journal_stats stats = {.size = sizeof stats};
  rv_env env;
  rv_env_fill(&env, NULL);
  int64_t begun_ns = rv_monotonic_ns(&env);
  atomic_store(&on.faults.until, 0);
  must(insert_value(on.j.store, on.table, 1, 1, 1), &err);
  do {
    assert_int_equal(rv_journal_sync(on.j.journal, 0, &err), RV_DEADLINE_EXCEEDED);
    rv_journal_get_stats(on.j.journal, &stats);
  } while (stats.errors < 6);
  assert_true(rv_monotonic_ns(&env) - begun_ns >= pauses_ns);
  atomic_store(&on.faults.until, -1);
  sync_all(&on.j);
  close_faulty(&on);
}

static void a_journal_that_is_closed_while_the_disk_is_full_ends_and_says_what_is_missing(void **state)
{
  rv_error err;
  faulty_disk on;
  open_faulty(&on, *state, (how){.mode = 0}, LONG_MAX, ENOSPC);
  must(insert_value(on.j.store, on.table, 1, 1, 1), &err);
  sync_all(&on.j);
  atomic_store(&on.faults.until, 0);
  must(insert_value(on.j.store, on.table, 2, 1, 2), &err);
  close_all(&on.j);
  logged(*state, "are not on the disk");
  on.j = open_with(&on.d, (how){.mode = 0}, &on.config, 1);
  assert_int_equal(size_of(on.j.store, 0), 1); /* what was confirmed */
  close_faulty(&on);
}

static void a_journal_that_is_closed_while_the_disk_fails_for_a_moment_has_all_on_it(void **state)
{
  rv_error err;
  faulty_disk on;
  open_faulty(&on, *state, (how){.mode = RV_JOURNAL_PERIODIC}, 12, EIO);
  must(insert_value(on.j.store, on.table, 1, 1, 1), &err);
  sync_all(&on.j);
  atomic_store(&on.faults.until, 0);
  must(insert_value(on.j.store, on.table, 2, 1, 2),
       &err); /* confirmed: no more than the period may be lost, and that to a crash */
  close_all(&on.j);
  assert_int_equal(atomic_load(&on.faults.until), -1);
  on.j = open_with(&on.d, (how){.mode = 0}, &on.config, 1);
  assert_int_equal(size_of(on.j.store, 0), 2);
  close_faulty(&on);
}

/* ---- checkpoints, while the disk takes nothing ---- */

static atomic_llong ahead_ns; /* of the system's clock */

static int64_t clock_ahead(void *context)
{
  rv_env system;
  (void)context;
  rv_env_fill(&system, NULL);
  return rv_monotonic_ns(&system) + atomic_load(&ahead_ns);
}

typedef struct saving {
  faulty_disk *on;
  bool full; /* the disk, from the first item on that is saved */
  int looks; /* while it waits for the journal */
} saving;

/* A second passes each time that it waits; an hour is enough of it. */
static bool until_the_disk_is_full(void *context, const rv_checkpoint_progress *progress)
{
  rv_error err;
  saving *all = context;
  if (progress->items > 0 && !all->full) {
    all->full = true;
    atomic_store(&all->on->faults.until, 0);
    must(insert_value(all->on->j.store, all->on->table, 2, 1, 2), &err);
  }
  if (progress->items > 0) return true;
  atomic_fetch_add(&ahead_ns, INT64_C(1000000000));
  return ++all->looks < 3600;
}

static void a_checkpoint_that_waits_for_a_journal_without_room_gives_its_own_back(void **state)
{
  fixture *f = *state;
  rv_error err;
  faulty_disk on;
  saving all = {.on = &on};
  const rv_checkpoint_watch watch = {.size = sizeof watch, .go_on = until_the_disk_is_full, .context = &all};
  f->env.monotonic_ns = clock_ahead;
  open_faulty(&on, f, (how){.mode = 0}, LONG_MAX, ENOSPC);
  must(insert_value(on.j.store, on.table, 1, 1, 1), &err);
  sync_all(&on.j);
  assert_int_equal(rv_checkpointer_save(on.d.checkpointer, on.j.store, &watch, NULL, &err), RV_RESOURCE_EXHAUSTED);
  assert_true(all.full);
  assert_non_null(strstr(err.message, "No space left on device"));
  assert_int_equal(count_entries(on.d.checkpoints), 1); /* the one before; nothing half written */
  all.looks = 0;                                        /* and one that cannot begin says why, too */
  assert_int_equal(rv_checkpointer_save(on.d.checkpointer, on.j.store, &watch, NULL, &err), RV_RESOURCE_EXHAUSTED);
  assert_non_null(strstr(err.message, "No space left on device"));
  assert_int_equal(count_entries(on.d.checkpoints), 1);
  atomic_store(&on.faults.until, -1);
  sync_all(&on.j);
  must(rv_checkpointer_save(on.d.checkpointer, on.j.store, NULL, NULL, &err), &err);
  journaled again = recovered_copy(&on);
  assert_int_equal(size_of(again.store, 0), 2);
  same_stores(on.j.store, again.store);
  close_all(&again);
  close_faulty(&on);
}

static bool until_a_fault_is_known(void *context, const rv_checkpoint_progress *progress)
{
  rv_journal_stats stats = {.size = sizeof stats};
  (void)progress;
  rv_journal_get_stats(context, &stats);
  return stats.fault[0] == '\0';
}

/* A call for a round that may have nothing to write, such as a sync's, has nothing that waits. */
static void what_waits_for_the_disk_is_known_to_wait_whoever_called_for_the_journal_before(void **state)
{
  fixture *f = *state;
  rv_error err;
  faulty_disk on;
  f->env.monotonic_ns = clock_ahead;
  open_faulty(&on, f, (how){.mode = 0}, LONG_MAX, EIO);
  const rv_checkpoint_watch watch = {.size = sizeof watch, .go_on = until_a_fault_is_known, .context = on.j.journal};
  atomic_store(&on.faults.until, 0);
  assert_int_not_equal(rv_checkpointer_save(on.d.checkpointer, on.j.store, &watch, NULL, &err), RV_OK);
  assert_int_equal(rv_journal_sync(on.j.journal, 0, &err), RV_DEADLINE_EXCEEDED);
  must(insert_value(on.j.store, on.table, 1, 1, 1), &err);
  const int64_t hour_ns = INT64_C(3600000000000);
  atomic_fetch_add(&ahead_ns, hour_ns);
  rv_journal_stats stats = {.size = sizeof stats};
  rv_journal_get_stats(on.j.journal, &stats);
  assert_true(stats.lag_ns >= hour_ns);
  atomic_store(&on.faults.until, -1);
  sync_all(&on.j);
  do rv_journal_get_stats(on.j.journal, &stats);
  while (stats.lag_ns != 0);
  close_faulty(&on);
}

static void a_checkpoint_whose_time_runs_out_at_a_full_disk_says_what_it_waited_for(void **state)
{
  rv_error err;
  faulty_disk on;
  open_faulty(&on, *state, (how){.mode = 0}, LONG_MAX, ENOSPC);
  const rv_checkpoint_watch watch = {.size = sizeof watch, .go_on = until_a_fault_is_known, .context = on.j.journal};
  atomic_store(&on.faults.until, 0);
  assert_int_equal(rv_checkpointer_save(on.d.checkpointer, on.j.store, &watch, NULL, &err), RV_CANCELLED);
  assert_non_null(strstr(err.message, "No space left on device"));
  atomic_store(&on.faults.until, -1);
  close_faulty(&on);
}

/* ---- what is recovered ---- */

typedef struct forced {
  char first[RV_JOURNAL_NAME_MAX]; /* to be forced before anything is written */
  bool file, directory, too_late;
} forced;

static int noted_create(void *context, const char *path)
{
  forced *noted = context;
  if (!noted->file || !noted->directory) noted->too_late = true;
  return rv_files_of_system.create(NULL, path);
}
static int noted_sync(void *context, int file)
{
  forced *noted = context;
  char name[64], path[256] = "";
  snprintf(name, sizeof name, "/proc/self/fd/%d", file);
  if (readlink(name, path, sizeof path - 1) > 0 && strstr(path, noted->first) != NULL) noted->file = true;
  return rv_files_of_system.sync(NULL, file);
}
static int noted_sync_directory(void *context, const char *path)
{
  ((forced *)context)->directory = true;
  return rv_files_of_system.sync_directory(NULL, path);
}

static void what_is_recovered_is_forced_to_the_disk_before_anything_builds_on_it(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  must(insert_value(j.store, rv_store_table(j.store, 0), 1, 1, 1), &err);
  close_all(&j);
  forced noted = {.file = false};
  last_segment_name(&d, noted.first);
  rv_files files = rv_files_of_system;
  files.create = noted_create;
  files.sync = noted_sync;
  files.sync_directory = noted_sync_directory;
  files.context = &noted;
  j = open_with(&d, (how){.files = &files}, &config, 1);
  assert_true(noted.file && noted.directory && !noted.too_late);
  close_all(&j);
  disk_fini(&d);
}

static void what_is_recovered_and_cannot_be_forced_to_the_disk_is_not_confirmed(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  must(insert_value(j.store, rv_store_table(j.store, 0), 1, 1, 1), &err);
  close_all(&j);
  faulty f;
  faulty_init(&f, 1, EIO);
  rv_files files = files_of(&f);
  for (long first = 0; first < 2; first++) { /* the segment, the directory */
    size_t there = count_entries(d.journal);
    atomic_store(&f.faults, 1);
    atomic_store(&f.until, first);
    assert_int_not_equal(try_open(&d, (how){.files = &files}, &config, 1, &j, &err), RV_OK);
    assert_int_equal(count_entries(d.journal), there);
  }
  j = open_with(&d, (how){.mode = 0}, &config, 1);
  assert_int_equal(size_of(j.store, 0), 1);
  close_all(&j);
  disk_fini(&d);
}

int main(void)
{
#define WITH_DISK(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      WITH_DISK(nothing_confirmed_is_lost_or_doubled_whichever_call_fails_with_an_io_error),
      WITH_DISK(nothing_confirmed_is_lost_or_doubled_whichever_call_finds_the_disk_full_for_a_while),
      WITH_DISK(nothing_confirmed_is_lost_or_doubled_whichever_write_is_cut_short),
      WITH_DISK(a_journal_that_cannot_begin_says_why_and_the_next_try_succeeds),
      WITH_DISK(while_the_disk_is_full_inserts_wait_in_bounds_and_go_on_when_it_is_not),
      WITH_DISK(a_checkpoint_that_waits_for_a_journal_without_room_gives_its_own_back),
      WITH_DISK(a_checkpoint_whose_time_runs_out_at_a_full_disk_says_what_it_waited_for),
      WITH_DISK(what_waits_for_the_disk_is_known_to_wait_whoever_called_for_the_journal_before),
      WITH_DISK(what_is_recovered_is_forced_to_the_disk_before_anything_builds_on_it),
      WITH_DISK(what_is_recovered_and_cannot_be_forced_to_the_disk_is_not_confirmed),
      WITH_DISK(strings_count_with_all_their_bytes_towards_what_waits_for_the_disk),
      WITH_DISK(while_a_periodic_journal_cannot_be_written_inserts_wait),
      WITH_DISK(whoever_asks_while_the_disk_fails_does_not_have_it_tried_more_often),
      WITH_DISK(a_journal_that_is_closed_while_the_disk_is_full_ends_and_says_what_is_missing),
      WITH_DISK(a_journal_that_is_closed_while_the_disk_fails_for_a_moment_has_all_on_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
