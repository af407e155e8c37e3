/* What checkpoints may take from a journal, and what they may not. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "persist/dir_names.h"
#include "persist/journal_parts.h"
#include "persist/journal_testing.h"
#include "persist/saver.h"

/* ---- a disk whose directories cannot be forced ---- */

static char no_sync[160]; /* the directory that cannot; "": none */

/* In the place of the C library's. */
int fsync(int file)
{
  struct stat own, other;
  if (no_sync[0] != '\0' && fstat(file, &own) == 0 && stat(no_sync, &other) == 0 && own.st_ino == other.st_ino &&
      own.st_dev == other.st_dev) {
    errno = EIO;
    return -1;
  }
  return (int)syscall(SYS_fsync, file);
}

/* In the place of the C library's: only root looks into lost+found, and it may be root who runs this. */
int access(const char *path, int mode)
{
  if (strstr(path, "/lost+found/") == NULL) return (int)syscall(SYS_faccessat, AT_FDCWD, path, mode);
  errno = EACCES;
  return -1;
}

static atomic_bool slow_disk;

/* In the place of the C library's: a slow disk takes longer than a checkpoint waits before it looks whether it is to go on. */
int fdatasync(int file)
{
  const struct timespec while_others_wait = {.tv_nsec = 100000000};
  if (atomic_load(&slow_disk)) nanosleep(&while_others_wait, NULL);
  return (int)syscall(SYS_fdatasync, file);
}

static int64_t a_minute_from_now(const fixture *f)
{
  return rv_monotonic_ns(&f->env) + INT64_C(60000000000);
}

/* Instead of a test that hangs. */
static void wait_until(const fixture *f, int64_t give_up, const char *what)
{
  if (rv_monotonic_ns(&f->env) > give_up) fail_msg("%s did not come within a minute", what);
  sched_yield();
}

/* Newest first. */
static rv_checkpoint_list checkpoints_of(const disk *d)
{
  rv_error err;
  rv_checkpoint_list list;
  must(rv_checkpoint_list_read(d->checkpoints, &list, &err), &err);
  return list;
}

static void same_after_a_crash(const disk *d, const journaled *j, const rv_table_config *config)
{
  disk copy = copy_of(d, "crashed");
  journaled again = open_with(&copy, (how){.mode = 0}, config, 1);
  same_stores(j->store, again.store);
  close_all(&again);
  disk_fini(&copy);
}

static void keep_three(disk *d)
{
  rv_error err;
  rv_checkpointer_unref(d->checkpointer);
  rv_checkpointer_config config = {.size = sizeof config, .path = d->checkpoints, .keep = 3, .env = &d->f->env};
  must(rv_checkpointer_new(&config, &d->checkpointer, &err), &err);
}

static void a_checkpoint_that_a_power_cut_may_take_away_takes_nothing_with_it(void **state)
{
  rv_error err;
  char command[400];
  char *path = NULL;
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 5, 0);
  snprintf(no_sync, sizeof no_sync, "%s", d.checkpoints);
  rv_code code = rv_checkpointer_save(d.checkpointer, j.store, NULL, &path, &err);
  no_sync[0] = '\0';
  assert_int_not_equal(code, RV_OK);
  assert_null(path);
  assert_non_null(strstr(err.message, "a power cut may take it away"));
  rv_checkpoint_list list = checkpoints_of(&d);
  assert_int_equal(list.count, 2);
  same_after_a_crash(&d, &j, &config);
  snprintf(command, sizeof command, "rm -r '%s/%s'", d.checkpoints, list.entries[0].name);
  assert_int_equal(system(command), 0);
  same_after_a_crash(&d, &j, &config);
  rv_checkpoint_list_fini(&list);
  must(rv_checkpointer_save(d.checkpointer, j.store, NULL, NULL, &err), &err); /* and the next one is as any other */
  list = checkpoints_of(&d);
  assert_int_equal(list.count, 1);
  rv_checkpoint_list_fini(&list);
  same_after_a_crash(&d, &j, &config);
  close_all(&j);
  disk_fini(&d);
}

static void a_checkpoint_that_cannot_be_asked_what_it_needs_keeps_all_segments(void **state)
{
  rv_error err;
  char command[700];
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(*state, "first");
  keep_three(&d);
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 5, 0);
  sync_all(&j);
  rv_checkpoint_list list = checkpoints_of(&d);
  assert_int_equal(list.count, 1);
  /* a directory can be opened, but not read */
  snprintf(command, sizeof command, "cd '%s/%s' && mv JOURNAL kept && mkdir JOURNAL", d.checkpoints, list.entries[0].name);
  assert_int_equal(system(command), 0);
  must(rv_checkpointer_save(d.checkpointer, j.store, NULL, NULL, &err), &err);
  logged(d.f, "all its segments stay");
  snprintf(command, sizeof command, "cd '%s/%s' && rmdir JOURNAL && mv kept JOURNAL", d.checkpoints, list.entries[0].name);
  assert_int_equal(system(command), 0);
  rv_checkpoint_list_fini(&list);
  list = checkpoints_of(&d);
  assert_int_equal(list.count, 2);
  snprintf(command, sizeof command, "rm -r '%s/%s'", d.checkpoints, list.entries[0].name); /* what keeping is for */
  assert_int_equal(system(command), 0);
  same_after_a_crash(&d, &j, &config);
  rv_checkpoint_list_fini(&list);
  close_all(&j);
  disk_fini(&d);
}

static void a_directory_that_is_somebody_elses_keeps_no_segments(void **state)
{
  char command[400];
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  snprintf(command, sizeof command, "mkdir -p '%s/lost+found/JOURNAL'", d.checkpoints); /* which cannot be read, either */
  assert_int_equal(system(command), 0);
  add_rows(rv_store_table(j.store, 0), 500, 0);
  sync_all(&j);
  free(save_with(d.checkpointer, j.store));
  rv_journal_stats stats = {.size = sizeof stats};
  rv_journal_get_stats(j.journal, &stats);
  assert_true(stats.disk_bytes < 1000);
  same_after_a_crash(&d, &j, &config);
  close_all(&j);
  disk_fini(&d);
}

static void a_copy_elsewhere_takes_nothing_from_the_journal(void **state)
{
  rv_error err;
  rv_saver *saver = NULL;
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(*state, "first"), other = disk_of(*state, "other");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 5, 0);
  must(rv_checkpointer_save(other.checkpointer, j.store, NULL, NULL, &err), &err);
  add_rows(rv_store_table(j.store, 0), 2, 9);
  sync_all(&j);
  same_after_a_crash(&d, &j, &config);
  const rv_saver_config elsewhere = {.size = sizeof elsewhere, .store = j.store, .checkpointer = other.checkpointer};
  assert_int_equal(rv_saver_new(&elsewhere, &saver, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "give the checkpointer that it was recovered with"));
  close_all(&j);
  disk_fini(&other);
  disk_fini(&d);
}

static void refused(rv_code code, const rv_error *err, const char *base)
{
  assert_int_equal(code, RV_FAILED_PRECONDITION);
  assert_non_null(strstr(err->message, base));
  assert_non_null(strstr(err->message, "Give another directory"));
}

static void nobody_else_takes_the_place_of_the_checkpoint_that_a_journal_goes_on_from(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(*state, "first"), other = disk_of(*state, "other"), third = disk_of(*state, "third");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1), k = open_with(&other, (how){.mode = 0}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 3, 0);
  char *base = save_with(d.checkpointer, j.store);
  add_rows(rv_store_table(j.store, 0), 2, 9);
  sync_all(&j);
  rv_store *plain = new_store(&config, 1), *old = rv_store_ref(j.store);
  refused(rv_checkpointer_save(d.checkpointer, plain, NULL, NULL, &err), &err, base);
  refused(rv_checkpointer_save(d.checkpointer, k.store, NULL, NULL, &err), &err, base);
  refused(rv_checkpoint_export(base, d.checkpointer, NULL, NULL, &err), &err, base);
  close_all(&j);
  refused(rv_checkpointer_save(d.checkpointer, old, NULL, NULL, &err), &err, base);
  free(save_with(third.checkpointer, old)); /* a copy */
  j = open_with(&d, (how){.mode = 0}, &config, 1);
  refused(rv_checkpointer_save(d.checkpointer, old, NULL, NULL, &err), &err, base); /* which another store goes on from now */
  assert_int_equal(count_entries(d.checkpoints), 1);
  same_stores(old, j.store);
  same_after_a_crash(&d, &j, &config);
  rv_store_unref(plain);
  rv_store_unref(old);
  close_all(&k);
  close_all(&j);
  free(base);
  disk_fini(&third);
  disk_fini(&other);
  disk_fini(&d);
}

/* ---- two servers, each with a journal of its own, over one directory ---- */

typedef struct second_server {
  const disk *d;
  const rv_table_config *config;
  bool while_saving, begun;
  journaled j;
} second_server;

/* Begins while the first one restores, or saves, what is large. */
static bool begin_second(void *context, const rv_checkpoint_progress *progress)
{
  second_server *second = context;
  if (second->begun || second->while_saving != (progress->total_items >= 0)) return true;
  second->begun = true;
  second->j = open_with(second->d, (how){.mode = 0}, second->config, 1);
  add_rows(rv_store_table(second->j.store, 0), 100, 0);
  sync_all(&second->j);
  return true;
}

static void of_two_servers_over_one_directory_neither_takes_the_others_checkpoint(bool while_saving, fixture *f)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 10000);
  disk first = disk_of(f, "first"), second = disk_of(f, "second");
  rv_store *plain = new_store(&config, 1);
  add_rows(rv_store_table(plain, 0), 3000, 0);
  free(save_with(first.checkpointer, plain)); /* of earlier days, without a journal */
  rv_store_unref(plain);
  snprintf(second.checkpoints, sizeof second.checkpoints, "%s", first.checkpoints);
  const rv_checkpointer_config shared = {.size = sizeof shared, .path = first.checkpoints, .env = &f->env};
  rv_checkpointer_unref(second.checkpointer);
  must(rv_checkpointer_new(&shared, &second.checkpointer, &err), &err);
  second_server other = {.d = &second, .config = &config, .while_saving = while_saving};
  const rv_checkpoint_watch watch = {.size = sizeof watch, .go_on = begin_second, .context = &other};
  const rv_store_config store = {.size = sizeof store, .tables = &config, .num_tables = 1, .env = &f->env};
  const rv_journal_config journal = {.size = sizeof journal, .path = first.journal, .mode = RV_JOURNAL_ALWAYS, .env = &f->env};
  journaled j;
  rv_code code = rv_journal_recover(&journal, first.checkpointer, &store, &watch, &j.store, &j.journal, &err);
  assert_true(other.begun);
  assert_int_equal(code, RV_FAILED_PRECONDITION);
  assert_non_null(strstr(err.message, "Give another directory"));
  free(save_with(second.checkpointer, other.j.store)); /* it goes on as if nothing had been */
  add_rows(rv_store_table(other.j.store, 0), 50, 9000);
  close_all(&other.j);
  j = open_with(&second, (how){.mode = 0}, &config, 1);
  assert_int_equal(size_of(j.store, 0), 3150);
  close_all(&j);
  disk_fini(&second);
  disk_fini(&first);
}

static void a_server_that_restores_while_another_begins_does_not_take_its_checkpoint(void **state)
{
  of_two_servers_over_one_directory_neither_takes_the_others_checkpoint(false, *state);
}

static void a_server_that_saves_while_another_begins_does_not_take_its_checkpoint(void **state)
{
  of_two_servers_over_one_directory_neither_takes_the_others_checkpoint(true, *state);
}

static void checkpoints_that_are_kept_do_not_call_for_more(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(*state, "first");
  keep_three(&d);
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 500, 0);
  sync_all(&j);
  assert_true(rv_journal_fresh_bytes(j.journal) > 4000);
  must(rv_checkpointer_save(d.checkpointer, j.store, NULL, NULL, &err), &err);
  for (int opened = 0; opened < 2; opened++) { /* also when it begins again */
    rv_journal_stats stats = {.size = sizeof stats};
    rv_journal_get_stats(j.journal, &stats);
    assert_true(stats.disk_bytes > 4000);
    assert_true(rv_journal_fresh_bytes(j.journal) < 1000);
    close_all(&j);
    j = open_with(&d, (how){.mode = 0}, &config, 1);
  }
  add_rows(rv_store_table(j.store, 0), 500, 0);
  sync_all(&j);
  close_all(&j);
  j = open_with(&d, (how){.mode = 0}, &config, 1);
  assert_true(rv_journal_fresh_bytes(j.journal) > 4000);
  close_all(&j);
  disk_fini(&d);
}

static void a_checkpoint_that_waits_for_the_journal_says_how_many_items_it_has(void **state)
{
  rv_error err;
  fixture *f = *state;
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(f, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 5, 0);
  sync_all(&j);
  rv_checkpoint_list list = checkpoints_of(&d);
  const size_t first = list.count > 0 ? (size_t)list.entries[0].wall_ns : 0;
  rv_checkpoint_list_fini(&list);
  atomic_store(&slow_disk, true);
  rv_saver *saver;
  const rv_saver_config saved = {
      .size = sizeof saved, .store = j.store, .checkpointer = d.checkpointer, .env = &f->env, .every_ms = 1};
  must(rv_saver_new(&saved, &saver, &err), &err);
  const int64_t give_up = a_minute_from_now(f);
  for (bool there = false; !there; wait_until(f, give_up, "another checkpoint")) {
    list = checkpoints_of(&d);
    there = list.count > 0 && list.entries[0].done && (size_t)list.entries[0].wall_ns != first;
    rv_checkpoint_list_fini(&list);
  }
  rv_saver_free(saver);
  atomic_store(&slow_disk, false);
  assert_non_null(strstr(f->log, "checkpoint: 5 items saved"));
  assert_null(strstr(f->log, "checkpoint: 0 items saved"));
  close_all(&j);
  disk_fini(&d);
}

static void a_bound_whose_multiples_do_not_fit_is_refused(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(*state, "first");
  journaled j;
  assert_int_equal(try_open(&d, (how){.max_queued_bytes = SIZE_MAX / 4 + 1}, &config, 1, &j, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "max_queued_bytes"));
  j = open_with(&d, (how){.max_queued_bytes = SIZE_MAX / 4}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 5, 0);
  close_all(&j);
  disk_fini(&d);
}

/* ---- a volume of the journal's own that is full ---- */

/* No file can be made as long as what takes the room is there. */
static int create_without_room(void *context, const char *path)
{
  const char *large = context;
  if (large[0] == '\0' || access(large, F_OK) != 0) return rv_files_of_system.create(NULL, path);
  errno = ENOSPC;
  return -1;
}

/* All but the newest. */
static void remove_older_checkpoints(const disk *d)
{
  char command[400];
  rv_checkpoint_list list = checkpoints_of(d);
  for (size_t i = 1; i < list.count; i++) {
    snprintf(command, sizeof command, "rm -r '%s/%s'", d->checkpoints, list.entries[i].name);
    assert_int_equal(system(command), 0);
  }
  rv_checkpoint_list_fini(&list);
}

static bool a_few_times(void *context, const rv_checkpoint_progress *progress)
{
  int *left = context;
  return progress->items > 0 || --*left > 0;
}

/* Three checkpoints, each of which has segments of its own; *first is the oldest of those. */
static journaled with_three_checkpoints(disk *d, const rv_files *files, const rv_table_config *config, char *first, size_t size)
{
  rv_error err;
  char name[RV_JOURNAL_NAME_MAX];
  keep_three(d);
  journaled j = open_with(d, (how){.files = files}, config, 1);
  last_segment_name(d, name);
  for (int64_t i = 0; i < 2; i++) {
    add_rows(rv_store_table(j.store, 0), 5, 10 * i);
    must(rv_checkpointer_save(d->checkpointer, j.store, NULL, NULL, &err), &err);
  }
  add_rows(rv_store_table(j.store, 0), 5, 20);
  sync_all(&j);
  assert_true(is_there(d->journal, name));
  snprintf(first, size, "%s/%s", d->journal, name);
  return j;
}

static void a_journal_without_room_begins_when_checkpoints_that_needed_it_are_removed(void **state)
{
  rv_error err;
  char first[256] = "";
  rv_table_config config = rv_table_config_default("replay", 1000);
  rv_files files = rv_files_of_system;
  files.create = create_without_room;
  files.context = first;
  disk d = disk_of(*state, "first");
  journaled j = with_three_checkpoints(&d, &files, &config, first, sizeof first), again;
  close_all(&j);
  size_t there = count_entries(d.journal);
  assert_int_equal(try_open(&d, (how){.files = &files}, &config, 1, &j, &err), RV_RESOURCE_EXHAUSTED);
  assert_int_equal(count_entries(d.journal), there); /* all are needed */
  remove_older_checkpoints(&d);
  must(try_open(&d, (how){.files = &files}, &config, 1, &again, &err), &err);
  assert_int_equal(size_of(again.store, 0), 15);
  same_after_a_crash(&d, &again, &config);
  close_all(&again);
  disk_fini(&d);
}

static bool end_here(void *context, const rv_checkpoint_progress *progress)
{
  (void)context;
  (void)progress;
  _exit(0);
}

static void a_journal_begins_where_a_checkpoint_that_a_killed_server_left_half_written_takes_all_the_room(void **state)
{
  rv_error err;
  char left[400] = "";
  const rv_checkpoint_watch watch = {.size = sizeof watch, .go_on = end_here};
  rv_table_config config = rv_table_config_default("replay", 1000);
  rv_files files = rv_files_of_system;
  files.create = create_without_room;
  files.context = left;
  disk d = disk_of(*state, "first");
  int status;
  pid_t server = fork();
  if (server == 0) {
    journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
    add_rows(rv_store_table(j.store, 0), 5, 0);
    sync_all(&j);
    rv_checkpointer_save(d.checkpointer, j.store, &watch, NULL, &err);
    _exit(1);
  }
  assert_int_equal(waitpid(server, &status, 0), server);
  assert_int_equal(status, 0);
  rv_dir_names names;
  must(rv_dir_names_read(d.checkpoints, &names, &err), &err);
  for (size_t i = 0; i < names.count; i++)
    if (names.names[i][0] == '.') snprintf(left, sizeof left, "%s/%s", d.checkpoints, names.names[i]);
  rv_dir_names_fini(&names);
  assert_true(left[0] != '\0');
  journaled j;
  must(try_open(&d, (how){.files = &files}, &config, 1, &j, &err), &err);
  assert_int_equal(size_of(j.store, 0), 5);
  close_all(&j);
  disk_fini(&d);
}

static void a_journal_begins_where_a_checkpoint_that_a_killed_server_left_half_removed_takes_all_the_room(void **state)
{
  rv_error err;
  char left[400] = "", first[256], command[900];
  rv_table_config config = rv_table_config_default("replay", 1000);
  rv_files files = rv_files_of_system;
  files.create = create_without_room;
  files.context = left;
  disk d = disk_of(*state, "first");
  journaled j = with_three_checkpoints(&d, &files, &config, first, sizeof first);
  close_all(&j);
  rv_checkpoint_list list = checkpoints_of(&d);
  snprintf(left, sizeof left, "%s/%s", d.checkpoints, list.entries[2].name);
  rv_checkpoint_list_fini(&list);
  snprintf(command, sizeof command, "rm '%s/" RV_DONE_FILE "' '%s/" RV_LINK_FILE "'", left, left);
  assert_int_equal(system(command), 0);
  must(try_open(&d, (how){.files = &files}, &config, 1, &j, &err), &err);
  assert_int_equal(size_of(j.store, 0), 15);
  list = checkpoints_of(&d);
  assert_int_equal(list.count, 2);
  rv_checkpoint_list_fini(&list);
  close_all(&j);
  disk_fini(&d);
}

static void a_checkpoint_of_a_journal_without_room_is_saved_when_those_that_needed_it_are_removed(void **state)
{
  rv_error err;
  char first[256] = "";
  int left = 20;
  const rv_checkpoint_watch watch = {.size = sizeof watch, .go_on = a_few_times, .context = &left};
  rv_table_config config = rv_table_config_default("replay", 1000);
  rv_files files = rv_files_of_system;
  files.create = create_without_room;
  files.context = first;
  disk d = disk_of(*state, "first");
  journaled j = with_three_checkpoints(&d, &files, &config, first, sizeof first);
  assert_int_equal(rv_checkpointer_save(d.checkpointer, j.store, &watch, NULL, &err), RV_CANCELLED);
  assert_non_null(strstr(err.message, "No space left on device"));
  remove_older_checkpoints(&d);
  must(rv_checkpointer_save(d.checkpointer, j.store, NULL, NULL, &err), &err);
  assert_false(is_there(d.journal, strrchr(first, '/') + 1));
  same_after_a_crash(&d, &j, &config);
  close_all(&j);
  disk_fini(&d);
}

/* ---- a journal that is ending ---- */

static atomic_bool disk_is_held, disk_is_waited_for;

static int held_sync(void *context, int file)
{
  while (atomic_load(&disk_is_held)) {
    atomic_store(&disk_is_waited_for, true);
    sched_yield();
  }
  return rv_files_of_system.sync(context, file);
}

static void *end(void *journal)
{
  rv_journal_unref(journal);
  return NULL;
}

static void a_journal_that_waits_for_the_disk_to_end_is_not_used_by_who_saves_then(void **state)
{
  rv_error err;
  pthread_t thread;
  rv_table_config config = rv_table_config_default("replay", 1000);
  rv_files files = rv_files_of_system;
  files.sync = held_sync;
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.files = &files}, &config, 1);
  rv_store *store = rv_store_ref(j.store);
  atomic_store(&disk_is_held, true);
  add_rows(rv_store_table(j.store, 0), 5, 0);
  const int64_t give_up = a_minute_from_now(d.f);
  while (!atomic_load(&disk_is_waited_for)) wait_until(d.f, give_up, "what is to be written");
  assert_int_equal(pthread_create(&thread, NULL, end, j.journal), 0);
  while (atomic_load(&j.journal->refs) > 0)
    wait_until(d.f, give_up, "the journal's end"); /* it cannot go before the disk has taken what there is */
  assert_null(rv_journal_of(store));
  assert_int_equal(rv_checkpointer_save(d.checkpointer, store, NULL, NULL, &err), RV_FAILED_PRECONDITION);
  atomic_store(&disk_is_held, false);
  assert_int_equal(pthread_join(thread, NULL), 0);
  j.journal = NULL;
  close_all(&j);
  j = open_with(&d, (how){.mode = 0}, &config, 1);
  same_stores(store, j.store);
  rv_store_unref(store);
  close_all(&j);
  disk_fini(&d);
}

int main(void)
{
#define WITH_DISK(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      WITH_DISK(a_checkpoint_that_a_power_cut_may_take_away_takes_nothing_with_it),
      WITH_DISK(a_checkpoint_that_cannot_be_asked_what_it_needs_keeps_all_segments),
      WITH_DISK(a_directory_that_is_somebody_elses_keeps_no_segments),
      WITH_DISK(a_copy_elsewhere_takes_nothing_from_the_journal),
      WITH_DISK(nobody_else_takes_the_place_of_the_checkpoint_that_a_journal_goes_on_from),
      WITH_DISK(a_server_that_restores_while_another_begins_does_not_take_its_checkpoint),
      WITH_DISK(a_server_that_saves_while_another_begins_does_not_take_its_checkpoint),
      WITH_DISK(checkpoints_that_are_kept_do_not_call_for_more),
      WITH_DISK(a_checkpoint_that_waits_for_the_journal_says_how_many_items_it_has),
      WITH_DISK(a_bound_whose_multiples_do_not_fit_is_refused),
      WITH_DISK(a_journal_without_room_begins_when_checkpoints_that_needed_it_are_removed),
      WITH_DISK(a_journal_begins_where_a_checkpoint_that_a_killed_server_left_half_written_takes_all_the_room),
      WITH_DISK(a_journal_begins_where_a_checkpoint_that_a_killed_server_left_half_removed_takes_all_the_room),
      WITH_DISK(a_checkpoint_of_a_journal_without_room_is_saved_when_those_that_needed_it_are_removed),
      WITH_DISK(a_journal_that_waits_for_the_disk_to_end_is_not_used_by_who_saves_then),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
