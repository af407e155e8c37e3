/* What a start depends on: who has the journal, and which tables and checkpoints are there. */
#include "persist/journal_testing.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include "persist/checkpoint_files.h"
#include "store/table.h"

static void one_process_has_a_journal_at_a_time(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1), second;
  assert_int_equal(try_open(&d, (how){.mode = 0}, &config, 1, &second, &err), RV_FAILED_PRECONDITION);
  assert_non_null(strstr(err.message, "another process has the journal"));
  close_all(&j);
  j = open_with(&d, (how){.mode = 0}, &config, 1);
  close_all(&j);
  disk_fini(&d);
}

/* A server that is killed, and a child that it forked and that lives on. */
static void a_child_of_a_killed_server_does_not_keep_the_journal(void **state)
{
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(*state, "first");
  int ready[2], end[2], status;
  char byte;
  assert_int_equal(pipe(ready) | pipe(end), 0);
  pid_t server = fork();
  assert_true(server >= 0);
  if (server == 0) {
    close(end[1]);
    journaled own = open_with(&d, (how){.mode = 0}, &config, 1);
    add_rows(rv_store_table(own.store, 0), 3, 0);
    sync_all(&own);
    pid_t child = fork();
    if (child == 0) {
      close(ready[1]);
      _exit(read(end[0], &byte, 1) == 0 ? 0 : 1);
    }
    if (child < 0 || write(ready[1], "r", 1) != 1) _exit(1);
    for (;;) pause();
  }
  close(ready[1]);
  assert_int_equal(read(ready[0], &byte, 1), 1);
  rv_error err;
  journaled j;
  assert_int_equal(try_open(&d, (how){.mode = 0}, &config, 1, &j, &err), RV_FAILED_PRECONDITION); /* it lives */
  kill(server, SIGKILL);
  assert_int_equal(waitpid(server, &status, 0), server);
  j = open_with(&d, (how){.mode = 0}, &config, 1);
  assert_int_equal(size_of(j.store, 0), 3);
  close(end[1]); /* now the child ends, too */
  close(end[0]);
  close(ready[0]);
  close_all(&j);
  disk_fini(&d);
}

static void a_table_that_was_added_keeps_what_was_confirmed_into_it(void **state)
{
  rv_table_config tables[] = {rv_table_config_default("first", 1000), rv_table_config_default("added", 1000)};
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, tables, 1);
  add_rows(rv_store_table(j.store, 0), 3, 0);
  close_all(&j);
  j = open_with(&d, (how){.mode = 0}, tables, 2);
  add_rows(rv_store_table(j.store, 0), 2, 10);
  add_rows(rv_store_table(j.store, 1), 4, 20);
  sync_all(&j);
  disk copy = copy_of(&d, "copy");
  journaled again = open_with(&copy, (how){.mode = 0}, tables, 2);
  assert_int_equal(size_of(again.store, 1), 4);
  same_stores(j.store, again.store);
  close_all(&again);
  close_all(&j);
  disk_fini(&copy);
  disk_fini(&d);
}

/* The checkpoint has no settings of it: without its own, what is configured by then would take items away. */
static void a_table_that_was_added_keeps_its_bounds_and_limiter_until_a_checkpoint_has_them(void **state)
{
  fixture *f = *state;
  rv_table_config tables[] = {rv_table_config_default("first", 1000), rv_table_config_default("added", 1000)};
  disk d = disk_of(f, "first");
  journaled j = open_with(&d, (how){.mode = 0}, tables, 1);
  close_all(&j);
  tables[1].max_times_sampled = 9;
  tables[1].rate_limiter = rv_rate_limiter_min_size(3);
  j = open_with(&d, (how){.mode = 0}, tables, 2);
  add_rows(rv_store_table(j.store, 1), 40, 20);
  close_all(&j);
  tables[1] = rv_table_config_default("added", 10);
  tables[1].rate_limiter = rv_rate_limiter_min_size(5);
  for (int starts = 0; starts < 3; starts++) {
    f->log[0] = '\0';
    j = open_with(&d, (how){.mode = 0}, tables, 2);
    rv_table_info info = info_of(rv_store_table(j.store, 1));
    assert_int_equal(info.current_size, 40);
    assert_int_equal(info.max_size, 1000);
    assert_int_equal(info.max_times_sampled, 9);
    assert_int_equal(info.max_bytes, 0);
    assert_int_equal(info.rate_limiter.min_size_to_sample, 3);
    rv_table_info_fini(&info);
    logged(f, "table \"added\": ");
    logged(f, "max_size 1000 (configured: 10), max_times_sampled 9 (configured: 0), min_size_to_sample 3 (configured: 5)\n");
    if (starts == 1) free(save_with(d.checkpointer, j.store));
    close_all(&j);
  }
  disk_fini(&d);
}

static void salvage_that_passes_over_where_a_table_goes_on_says_what_is_lost(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  char name[RV_JOURNAL_NAME_MAX];
  uint8_t *bytes;
  uint64_t before[2], after[2];
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  sync_all(&j);
  add_rows(rv_store_table(j.store, 0), 3, 0);
  rv_store_state_id(j.store, before);
  close_all(&j);
  last_segment_name(&d, name);
  size_t size = read_bytes(d.journal, name, &bytes), at = group_with(bytes, size, 0, RV_RECORD_SNAPSHOT);
  assert_true(at > 0);
  bytes[at] ^= 1;
  write_bytes(d.journal, name, bytes, size);
  free(bytes);
  assert_int_equal(try_open(&d, (how){.mode = 0}, &config, 1, &j, &err), RV_DATA_LOSS);
  j = open_with(&d, (how){.salvage = true}, &config, 1);
  logged(*state, "table \"replay\" go on from the checkpoint was not found");
  rv_store_state_id(j.store, after);
  assert_memory_not_equal(before, after, sizeof before);
  close_all(&j);
  disk_fini(&d);
}

static void a_journal_that_is_not_there_stops_the_start_and_keeps_the_checkpoint(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  char command[700];
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 3, 0);
  must(rv_checkpointer_save(d.checkpointer, j.store, NULL, NULL, &err), &err);
  add_rows(rv_store_table(j.store, 0), 2, 10);
  close_all(&j);
  size_t checkpoints = count_entries(d.checkpoints);
  snprintf(command, sizeof command, "mv %s %s.away", d.journal, d.journal); /* not mounted */
  assert_int_equal(system(command), 0);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(try_open(&d, (how){.mode = 0}, &config, 1, &j, &err), RV_DATA_LOSS);
    assert_non_null(strstr(err.message, d.journal));
    assert_non_null(strstr(err.message, "salvage"));
    assert_int_equal(count_entries(d.checkpoints), checkpoints);
  }
  /* To where nothing is: a start that failed leaves no directory behind that was not there. */
  snprintf(command, sizeof command, "cp -r %s.away %s", d.journal, d.journal);
  assert_int_equal(system(command), 0);
  j = open_with(&d, (how){.mode = 0}, &config, 1);
  assert_int_equal(size_of(j.store, 0), 5);
  close_all(&j);
  snprintf(command, sizeof command, "rm -r %s", d.journal);
  assert_int_equal(system(command), 0);
  j = open_with(&d, (how){.salvage = true}, &config, 1);
  assert_int_equal(size_of(j.store, 0), 3);
  logged(*state, "what happened after the checkpoint is lost");
  close_all(&j);
  j = open_with(&d, (how){.mode = 0}, &config, 1); /* once is enough */
  close_all(&j);
  disk_fini(&d);
}

/* ---- salvage that comes to nothing ---- */

/* Two segments with changes; the first of them, which the checkpoint goes on with, is moved away. */
static journaled lose_a_segment(const disk *d, const rv_table_config *config)
{
  char command[900], name[RV_JOURNAL_NAME_MAX];
  journaled j = open_with(d, (how){.mode = 0}, config, 1);
  sync_all(&j);
  last_segment_name(d, name);
  add_rows(rv_store_table(j.store, 0), 3, 0);
  close_all(&j);
  j = open_with(d, (how){.mode = 0}, config, 1);
  add_rows(rv_store_table(j.store, 0), 2, 10);
  sync_all(&j);
  close_all(&j);
  snprintf(command, sizeof command, "mv %s/%s %s/away", d->journal, name, d->dir);
  assert_int_equal(system(command), 0);
  rv_error err;
  assert_int_equal(try_open(d, (how){.mode = 0}, config, 1, &j, &err), RV_DATA_LOSS);
  snprintf(command, sizeof command, "echo 'mv %s/away %s/%s' > %s/put_back", d->dir, d->journal, name, d->dir);
  assert_int_equal(system(command), 0);
  return j;
}

static void put_it_back(const disk *d)
{
  char command[300];
  snprintf(command, sizeof command, "sh %s/put_back", d->dir);
  assert_int_equal(system(command), 0);
}

static int fail_to_rename(void *context, const char *from, const char *to)
{
  (void)context;
  (void)from;
  (void)to;
  errno = EIO;
  return -1;
}

static int be_killed(void *context, const char *from, const char *to)
{
  (void)context;
  (void)from;
  (void)to;
  _exit(0);
}

static void rename_with(disk *d, int (*rename)(void *context, const char *from, const char *to))
{
  static rv_files files;
  rv_error err;
  const rv_checkpointer_config config = {.size = sizeof config, .path = d->checkpoints, .env = &d->f->env};
  files = rv_files_of_system;
  if (rename != NULL) files.rename = rename;
  rv_checkpointer_unref(d->checkpointer);
  must(rv_checkpointer_new_with(&config, &files, &d->checkpointer, &err), &err);
}

/* All that was confirmed is there, and what comes next lasts, too. */
static void nothing_is_lost(const disk *d, const rv_table_config *config)
{
  journaled j = open_with(d, (how){.mode = 0}, config, 1);
  assert_int_equal(size_of(j.store, 0), 5);
  add_rows(rv_store_table(j.store, 0), 4, 20);
  sync_all(&j);
  disk copy = copy_of(d, "copy");
  journaled again = open_with(&copy, (how){.mode = 0}, config, 1);
  same_stores(j.store, again.store);
  close_all(&again);
  close_all(&j);
  disk_fini(&copy);
}

static void salvage_that_fails_changes_nothing(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(*state, "first");
  journaled j = lose_a_segment(&d, &config);
  size_t segments = count_entries(d.journal), checkpoints = count_entries(d.checkpoints);
  rename_with(&d, fail_to_rename);
  assert_int_not_equal(try_open(&d, (how){.salvage = true}, &config, 1, &j, &err), RV_OK);
  assert_int_equal(count_entries(d.journal), segments);
  assert_int_equal(count_entries(d.checkpoints), checkpoints);
  rename_with(&d, NULL);
  put_it_back(&d);
  nothing_is_lost(&d, &config);
  disk_fini(&d);
}

static void salvage_that_is_killed_takes_nothing_from_a_segment_that_is_put_back(void **state)
{
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(*state, "first");
  journaled j = lose_a_segment(&d, &config);
  for (int times = 0; times < 2; times++) {
    int status;
    pid_t server = fork();
    assert_true(server >= 0);
    if (server == 0) {
      rv_error err;
      rename_with(&d, be_killed);
      try_open(&d, (how){.salvage = true}, &config, 1, &j, &err);
      _exit(1);
    }
    assert_int_equal(waitpid(server, &status, 0), server);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  put_it_back(&d);
  nothing_is_lost(&d, &config);
  disk_fini(&d);
}

static void what_came_after_salvage_is_not_left_out_silently_for_an_older_checkpoint(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  char command[900];
  disk d = disk_of(*state, "first");
  journaled j = lose_a_segment(&d, &config);
  snprintf(command, sizeof command, "cp -r %s %s.old && cp -r %s %s.old", d.checkpoints, d.checkpoints, d.journal, d.journal);
  assert_int_equal(system(command), 0);
  j = open_with(&d, (how){.salvage = true}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 4, 20);
  sync_all(&j);
  close_all(&j);
  snprintf(command, sizeof command, "rm -r %s && mv %s.old %s && cp -n %s.old/* %s", d.checkpoints, d.checkpoints, d.checkpoints,
           d.journal, d.journal);
  assert_int_equal(system(command), 0);
  put_it_back(&d);
  assert_int_equal(try_open(&d, (how){.mode = 0}, &config, 1, &j, &err), RV_DATA_LOSS);
  assert_non_null(strstr(err.message, "segments of another journal"));
  assert_non_null(strstr(err.message, "4 changes in them"));
  j = open_with(&d, (how){.salvage = true}, &config, 1);
  assert_int_equal(size_of(j.store, 0), 5);
  logged(*state, "4 changes are lost, which stand in segments of another journal");
  close_all(&j);
  j = open_with(&d, (how){.mode = 0}, &config, 1);
  assert_int_equal(size_of(j.store, 0), 5);
  close_all(&j);
  disk_fini(&d);
}

/* The journal's directory is empty, salvage begins another journal in it and is killed, and then the checkpoints are gone, too. */
static void what_a_journal_has_is_not_taken_for_nothing_beside_another_one(void **state)
{
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 1000);
  char command[900];
  int status;
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 5, 0);
  close_all(&j);
  snprintf(command, sizeof command, "mkdir %s/away && mv %s/*.journal %s/away", d.dir, d.journal, d.dir);
  assert_int_equal(system(command), 0);
  pid_t server = fork();
  if (server == 0) {
    rename_with(&d, be_killed);
    try_open(&d, (how){.salvage = true}, &config, 1, &j, &err);
    _exit(1);
  }
  assert_int_equal(waitpid(server, &status, 0), server);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  snprintf(command, sizeof command, "mv %s/away/* %s && rm -r %s", d.dir, d.journal, d.checkpoints);
  assert_int_equal(system(command), 0);
  assert_int_equal(try_open(&d, (how){.mode = 0}, &config, 1, &j, &err), RV_DATA_LOSS);
  assert_non_null(strstr(err.message, "has 5 changes, but there is no checkpoint"));
  disk_fini(&d);
}

static void a_fallback_checkpoint_goes_on_without_the_journal_that_it_came_from(void **state)
{
  rv_error err;
  fixture *f = *state;
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(f, "first"), other = disk_of(f, "other");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 3, 0);
  char *made = save_with(d.checkpointer, j.store);
  close_all(&j);
  disk_fini(&other);
  rv_checkpointer_config with_fallback = {
      .size = sizeof with_fallback, .path = other.checkpoints, .fallback_path = made, .env = &f->env};
  must(rv_checkpointer_new(&with_fallback, &other.checkpointer, &err), &err);
  j = open_with(&other, (how){.mode = 0}, &config, 1);
  assert_int_equal(size_of(j.store, 0), 3);
  close_all(&j);
  free(made);
  disk_fini(&other);
  disk_fini(&d);
}

static void a_start_without_the_journal_is_refused_until_somebody_gives_it_up(void **state)
{
  rv_error err;
  rv_store *store = NULL;
  rv_table_config config = rv_table_config_default("replay", 1000);
  const rv_store_config plain = {.size = sizeof plain, .tables = &config, .num_tables = 1};
  char command[700];
  disk d = disk_of(*state, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  add_rows(rv_store_table(j.store, 0), 3, 0);
  char *saved = save_with(d.checkpointer, j.store);
  add_rows(rv_store_table(j.store, 0), 2, 10);
  close_all(&j);
  assert_int_equal(rv_checkpointer_restore(d.checkpointer, &plain, NULL, &store, NULL, &err), RV_FAILED_PRECONDITION);
  assert_non_null(strstr(err.message, saved));
  assert_non_null(strstr(err.message, "remove the file JOURNAL"));
  j = open_with(&d, (how){.mode = 0}, &config, 1); /* nothing was changed */
  assert_int_equal(size_of(j.store, 0), 5);
  close_all(&j);
  snprintf(command, sizeof command, "rm '%s/JOURNAL'", saved);
  assert_int_equal(system(command), 0);
  must(rv_checkpointer_restore(d.checkpointer, &plain, NULL, &store, NULL, &err), &err);
  assert_int_equal(size_of(store, 0), 3);
  free(save_with(d.checkpointer, store));
  assert_int_equal(try_open(&d, (how){.mode = 0}, &config, 1, &j, &err), RV_FAILED_PRECONDITION); /* which has 2 changes more */
  rv_store_unref(store);
  free(saved);
  disk_fini(&d);
}

static void a_directory_of_both_journal_and_checkpoints_is_refused(void **state)
{
  rv_error err;
  fixture *f = *state;
  rv_table_config config = rv_table_config_default("replay", 1000);
  journaled j;
  disk d = disk_of(f, "first");
  snprintf(d.journal, sizeof d.journal, "%s/checkpoints/", d.dir);
  assert_int_equal(try_open(&d, (how){.mode = 0}, &config, 1, &j, &err), RV_INVALID_ARGUMENT);
  assert_int_not_equal(access(d.dir, F_OK), 0); /* nothing was made */
  assert_int_equal(mkdir(d.dir, 0777), 0);
  assert_int_equal(mkdir(d.checkpoints, 0777), 0);
  snprintf(d.journal, sizeof d.journal, "%s/link", d.dir);
  assert_int_equal(symlink(d.checkpoints, d.journal), 0);
  assert_int_equal(try_open(&d, (how){.mode = 0}, &config, 1, &j, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "give each its own"));
  disk_fini(&d);
}

static void set_max_size(rv_store *store, int64_t max_size)
{
  rv_error err;
  rv_bounds_change change = {.bounds = rv_table_bounds_unchanged()};
  change.bounds.max_size = max_size;
  while (!change.done) must(rv_table_change_bounds(rv_store_table(store, 0), &change, &err), &err);
}

static void more_tables_than_a_journal_is_recovered_with_are_refused_before_it_is_made(void **state)
{
  enum { MOST = 65536 };
  rv_error err = {.message = ""};
  rv_table_config *tables = malloc((MOST + 1) * sizeof *tables);
  assert_non_null(tables);
  for (size_t i = 0; i <= MOST; i++) tables[i] = rv_table_config_default("replay", 1);
  disk d = disk_of(*state, "first");
  journaled j;
  assert_int_equal(try_open(&d, (how){.mode = 0}, tables, MOST + 1, &j, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "has 65537 tables"));
  assert_non_null(strstr(err.message, "65536 at most"));
  assert_int_not_equal(access(d.journal, F_OK), 0);
  assert_int_equal(rv_journal_check_tables(MOST, &err), RV_OK);
  disk_fini(&d);
  free(tables);
}

static void settings_of_the_journal_that_differ_from_the_configuration_are_told(void **state)
{
  fixture *f = *state;
  const char *line =
      "table \"replay\": what was changed while it was in use lasts, and differs from its configuration: max_size 77 "
      "(configured: 1000)\n";
  rv_table_config config = rv_table_config_default("replay", 1000);
  disk d = disk_of(f, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  close_all(&j);
  j = open_with(&d, (how){.mode = 0}, &config, 1);
  assert_null(strstr(f->log, "configur"));
  set_max_size(j.store, 77);
  close_all(&j);
  j = open_with(&d, (how){.mode = 0}, &config, 1);
  logged(f, line);
  free(save_with(d.checkpointer, j.store));
  set_max_size(j.store, 1000);
  close_all(&j);
  f->log[0] = '\0';
  j = open_with(&d, (how){.mode = 0}, &config, 1);
  logged(f, "table \"replay\": what was changed while it was in use lasts, and is as configured\n");
  close_all(&j);
  disk_fini(&d);
}

static void a_start_without_checkpoint_and_journal_says_so_or_is_refused(void **state)
{
  rv_error err;
  fixture *f = *state;
  rv_table_config config = rv_table_config_default("replay", 1000);
  char line[700];
  disk d = disk_of(f, "first"), other = disk_of(f, "other");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  snprintf(line, sizeof line, "begins empty: %s was not there, and %s was not there;", d.checkpoints, d.journal);
  logged(f, line);
  add_rows(rv_store_table(j.store, 0), 3, 0);
  close_all(&j);
  f->log[0] = '\0';
  j = open_with(&d, (how){.mode = 0}, &config, 1);
  assert_int_equal(size_of(j.store, 0), 3);
  assert_null(strstr(f->log, "begins empty"));
  close_all(&j);
  disk_fini(&other);
  const rv_checkpointer_config required = {.size = sizeof required, .path = other.checkpoints, .required = true, .env = &f->env};
  must(rv_checkpointer_new(&required, &other.checkpointer, &err), &err);
  assert_int_equal(try_open(&other, (how){.mode = 0}, &config, 1, &j, &err), RV_FAILED_PRECONDITION);
  assert_non_null(strstr(err.message, other.checkpoints));
  assert_int_not_equal(access(other.dir, F_OK), 0); /* nor was the journal's directory made */
  disk_fini(&other);
  disk_fini(&d);
}

int main(void)
{
#define WITH_DISK(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      WITH_DISK(one_process_has_a_journal_at_a_time),
      WITH_DISK(a_child_of_a_killed_server_does_not_keep_the_journal),
      WITH_DISK(a_table_that_was_added_keeps_what_was_confirmed_into_it),
      WITH_DISK(a_table_that_was_added_keeps_its_bounds_and_limiter_until_a_checkpoint_has_them),
      WITH_DISK(salvage_that_passes_over_where_a_table_goes_on_says_what_is_lost),
      WITH_DISK(a_journal_that_is_not_there_stops_the_start_and_keeps_the_checkpoint),
      WITH_DISK(a_directory_of_both_journal_and_checkpoints_is_refused),
      WITH_DISK(more_tables_than_a_journal_is_recovered_with_are_refused_before_it_is_made),
      WITH_DISK(settings_of_the_journal_that_differ_from_the_configuration_are_told),
      WITH_DISK(a_start_without_checkpoint_and_journal_says_so_or_is_refused),
      WITH_DISK(a_start_without_the_journal_is_refused_until_somebody_gives_it_up),
      WITH_DISK(salvage_that_fails_changes_nothing),
      WITH_DISK(salvage_that_is_killed_takes_nothing_from_a_segment_that_is_put_back),
      WITH_DISK(what_came_after_salvage_is_not_left_out_silently_for_an_older_checkpoint),
      WITH_DISK(what_a_journal_has_is_not_taken_for_nothing_beside_another_one),
      WITH_DISK(a_fallback_checkpoint_goes_on_without_the_journal_that_it_came_from),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
