/* Who reads, writes or removes a checkpoint, and processes that were forked meanwhile. */
#include <errno.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "persist/checkpoint_mark.h"
#include "persist/checkpoint_others.h"
#include "persist/stores_testing.h"

/* In the place of the system's: a directory in which something is open is not removed, which NFS has under another name as long as it is. */
int rmdir(const char *path)
{
  char at[64], open_file[512];
  for (int file = 0; file < 256; file++) {
    snprintf(at, sizeof at, "/proc/self/fd/%d", file);
    ssize_t size = readlink(at, open_file, sizeof open_file);
    if (size <= (ssize_t)strlen(path) || strncmp(open_file, path, strlen(path)) != 0) continue;
    errno = ENOTEMPTY;
    return -1;
  }
  return (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}

/* ---- children ---- */

typedef struct child {
  pid_t pid;
  int end;
} child;

/* Lives, with all that this process has open, until it is told to end. */
static child fork_child(void)
{
  int ends[2];
  char byte;
  assert_int_equal(pipe(ends), 0);
  child made = {.pid = fork(), .end = ends[1]};
  assert_true(made.pid >= 0);
  if (made.pid == 0) {
    close(ends[1]);
    _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
  }
  close(ends[0]);
  return made;
}

static void end_child(const child *of)
{
  int status;
  close(of->end);
  assert_int_equal(waitpid(of->pid, &status, 0), of->pid);
}

static bool fork_once(void *context, const rv_checkpoint_progress *progress)
{
  child *made = context;
  (void)progress;
  if (made->pid == 0) *made = fork_child();
  return true;
}

/* One that is in the way of a checkpoint, as of another process. */
static int lock_by_another(const char *path)
{
  char mark[300];
  snprintf(mark, sizeof mark, "%s/" RV_OURS_FILE, path);
  int file = open(mark, O_RDWR | O_CLOEXEC);
  assert_true(file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0);
  return file;
}

/* ---- tests ---- */

static void nothing_is_open_in_a_directory_when_it_is_removed(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  rv_partial crashed;
  rv_error err;
  rv_checkpointer *one = checkpointer_of(f, 1, NULL);
  must(rv_partial_begin(f->root, &f->env, &rv_files_of_system, &crashed, &err), &err);
  close(crashed.lock); /* as a process that died */
  const rv_checkpoint_watch watch = {.size = sizeof watch, .go_on = give_up};
  add_rows(rv_store_table(store, 0), 1, 0);
  assert_int_equal(rv_checkpointer_save(one, store, &watch, NULL, &err), RV_CANCELLED);
  assert_int_equal(count_entries(f->root), 0); /* neither what was left behind nor what was given up */
  free(save_with(one, store));
  free(save_with(one, store));
  assert_int_equal(count_entries(f->root), 1);
  free(crashed.path);
  rv_checkpointer_unref(one);
  rv_store_unref(store);
}

static void one_that_is_being_read_stays_until_a_later_save_and_is_told_of(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  rv_error err;
  int hold;
  rv_checkpointer *one = checkpointer_of(f, 1, NULL);
  char *first = save_with(one, store);
  must(rv_checkpoint_hold(first, &f->env, NULL, &hold, &err), &err);
  free(save_with(one, store));
  assert_true(is_there(first, "DONE"));
  logged(f, first);
  logged(f, "an older checkpoint stays until a later save");
  rv_checkpoint_mark_release(hold);
  free(save_with(one, store));
  assert_int_not_equal(access(first, F_OK), 0);
  assert_int_equal(rv_checkpoint_hold(first, &f->env, NULL, &hold, &err), RV_NOT_FOUND);
  rv_checkpointer_unref(one);
  rv_store_unref(store);
  free(first);
}

static void a_child_that_was_forked_while_one_was_saved_does_not_keep_it(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  fill(store);
  rv_error err;
  bool taken;
  child made = {0};
  const rv_checkpoint_watch watch = {.size = sizeof watch, .go_on = fork_once, .context = &made};
  rv_checkpointer *one = checkpointer_of(f, 1, NULL);
  char *first = NULL;
  must(rv_checkpointer_save(one, store, &watch, &first, &err), &err);
  assert_true(made.pid > 0);
  int mark = rv_checkpoint_mark_try(first, &taken);
  assert_false(taken);
  rv_checkpoint_mark_release(mark);
  free(save_with(one, store));
  assert_int_not_equal(access(first, F_OK), 0);
  end_child(&made);
  rv_checkpointer_unref(one);
  rv_store_unref(store);
  free(first);
}

static void a_child_that_was_forked_while_one_was_read_does_not_keep_it(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  rv_error err;
  int hold;
  rv_checkpointer *one = checkpointer_of(f, 1, NULL);
  char *first = save_with(one, store);
  must(rv_checkpoint_hold(first, &f->env, NULL, &hold, &err), &err);
  child made = fork_child();
  rv_checkpoint_mark_release(hold);
  free(save_with(one, store));
  assert_int_not_equal(access(first, F_OK), 0);
  end_child(&made);
  rv_checkpointer_unref(one);
  rv_store_unref(store);
  free(first);
}

static void a_child_that_was_forked_while_an_older_one_was_removed_keeps_nothing(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  rv_error err;
  rv_checkpointer *one = checkpointer_of(f, 1, NULL);
  bool taken;
  char *first = save_with(one, store);
  int mark = rv_checkpoint_mark_try(first, &taken), hold;
  assert_true(mark >= 0);
  child made = fork_child();
  rv_checkpoint_mark_release(mark); /* it was left there after all */
  must(rv_checkpoint_hold(first, &f->env, NULL, &hold, &err), &err);
  assert_true(hold >= 0);
  rv_checkpoint_mark_release(hold);
  end_child(&made);
  rv_checkpointer_unref(one);
  rv_store_unref(store);
  free(first);
}

/* As by a child of a server that was killed just when it had given the checkpoint its name. */
static void one_that_stays_locked_is_read_after_a_while_and_that_is_told(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  fill(store);
  rv_error err;
  char *first = save(f, store), *made = NULL;
  f->env.monotonic_ns = later; /* each look at the clock is a second later */
  rv_checkpointer *patient = checkpointer_of(f, 1, NULL), *other = NULL;
  int lock = lock_by_another(first);
  rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = TABLES};
  must(rv_checkpointer_restore(patient, &config, NULL, &back, NULL, &err), &err);
  logged(f, "is read without a lock: for 10 s another process has had it");
  logged(f, first);
  same_stores(store, back);
  char elsewhere[200];
  snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", f->top);
  const rv_checkpointer_config to = {.size = sizeof to, .path = elsewhere, .env = &f->env};
  must(rv_checkpointer_new(&to, &other, &err), &err);
  must(rv_checkpoint_export(first, other, NULL, &made, &err), &err);
  assert_true(is_there(made, "DONE"));
  close(lock);
  rv_checkpointer_unref(other);
  rv_checkpointer_unref(patient);
  rv_store_unref(back);
  rv_store_unref(store);
  free(made);
  free(first);
}

static void waiting_for_one_that_is_locked_can_be_given_up(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  rv_error err;
  const rv_checkpoint_watch watch = {.size = sizeof watch, .go_on = give_up};
  char *first = save(f, store);
  int lock = lock_by_another(first);
  rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = TABLES};
  assert_int_equal(rv_checkpointer_restore(f->checkpointer, &config, &watch, &back, NULL, &err), RV_CANCELLED);
  assert_null(back);
  assert_non_null(strstr(err.message, first));
  assert_non_null(strstr(err.message, "locked by another process"));
  assert_int_equal(rv_checkpoint_export(first, f->checkpointer, &watch, NULL, &err), RV_CANCELLED);
  assert_non_null(strstr(err.message, "locked by another process"));
  close(lock);
  rv_store_unref(store);
  free(first);
}

/* It could be removed, else, while somebody reads it. */
static void one_that_this_process_has_no_descriptor_for_counts_as_held(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  struct rlimit few, before;
  bool taken;
  char *first = save(f, store);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  few = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
  int mark = rv_checkpoint_mark_try(first, &taken);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
  assert_true(mark < 0 && taken);
  mark = rv_checkpoint_mark_try(first, &taken);
  assert_true(mark >= 0 && !taken);
  rv_checkpoint_mark_release(mark);
  rv_store_unref(store);
  free(first);
}

/* The number is told where the system has it: it shows this process's own locks then. */
static void another_process_that_holds_one_is_told_by_its_number(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  char who[RV_WHO_MAX] = "", number[32];
  char *first = save(f, store), *second = save(f, store);
  assert_false(rv_checkpoint_has_others(f->root, NULL, who));
  int own = rv_checkpoint_mark_share(second), ends[2];
  assert_true(own >= 0 && rv_checkpoint_has_others(f->root, NULL, who));
  const bool told = strcmp(who, "another server of this process") == 0;
  assert_false(rv_checkpoint_has_others(f->root, second, who));
  rv_checkpoint_mark_release(own);

  char byte = 0;
  assert_int_equal(pipe(ends), 0);
  pid_t holder = fork();
  if (holder == 0) {
    bool held = rv_checkpoint_mark_share(first) >= 0 && write(ends[1], &byte, 1) == 1;
    pause();
    _exit(held ? 0 : 1);
  }
  assert_int_equal(read(ends[0], &byte, 1), 1);
  assert_true(rv_checkpoint_has_others(f->root, NULL, who));
  snprintf(number, sizeof number, "another process (%ld)", (long)holder);
  if (told) assert_string_equal(who, number);
  kill(holder, SIGKILL);
  assert_int_equal(waitpid(holder, NULL, 0), holder);
  assert_false(rv_checkpoint_has_others(f->root, NULL, who));
  close(ends[0]);
  close(ends[1]);
  rv_store_unref(store);
  free(first);
  free(second);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(nothing_is_open_in_a_directory_when_it_is_removed),
      TEST(one_that_is_being_read_stays_until_a_later_save_and_is_told_of),
      TEST(a_child_that_was_forked_while_one_was_saved_does_not_keep_it),
      TEST(a_child_that_was_forked_while_one_was_read_does_not_keep_it),
      TEST(a_child_that_was_forked_while_an_older_one_was_removed_keeps_nothing),
      TEST(one_that_stays_locked_is_read_after_a_while_and_that_is_told),
      TEST(one_that_this_process_has_no_descriptor_for_counts_as_held),
      TEST(another_process_that_holds_one_is_told_by_its_number),
      TEST(waiting_for_one_that_is_locked_can_be_given_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
