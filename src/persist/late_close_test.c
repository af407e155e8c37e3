#include "persist/late_close.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "persist/disk_testing.h"

enum { EXT4 = 0xEF53 };

static uint32_t local_kind(void *context, int file)
{
  (void)context, (void)file;
  return EXT4;
}

static uint32_t remote_kind(void *context, int file)
{
  (void)context, (void)file;
  return TEST_DISK_NFS;
}

typedef struct world {
  char path[64];
  int dir;
  rv_files local, remote;
} world;

static int set_up(void **state)
{
  static world w;
  strcpy(w.path, "/tmp/reverie-late-close-XXXXXX");
  if (mkdtemp(w.path) == NULL) return -1;
  w.dir = open(w.path, O_RDONLY | O_DIRECTORY);
  w.local = w.remote = rv_files_of_system;
  w.local.file_system = local_kind;
  w.remote.file_system = remote_kind;
  *state = &w;
  return w.dir < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
  world *w = *state;
  close(w->dir);
  return rmdir(w->path); /* nothing may be left in it */
}

static void make_file(const world *w, const char *name, off_t bytes)
{
  int file = openat(w->dir, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
  assert_true(file >= 0);
  assert_int_equal(ftruncate(file, bytes), 0);
  close(file);
}

/* Files of the directory that this process has open although they were removed. */
static size_t count_removed(const world *w)
{
  size_t count = 0;
  DIR *files = opendir("/proc/self/fd");
  assert_non_null(files);
  for (struct dirent *entry; (entry = readdir(files)) != NULL;) {
    char target[256];
    ssize_t size = readlinkat(dirfd(files), entry->d_name, target, sizeof target - 1);
    if (size < 0) continue;
    target[size] = '\0';
    if (strncmp(target, w->path, strlen(w->path)) == 0 && strstr(target, " (deleted)") != NULL) count++;
  }
  closedir(files);
  return count;
}

static void remove_held(const world *w, rv_late_close *late, const char *name)
{
  make_file(w, name, RV_LATE_CLOSE_BYTES);
  rv_late_close_hold(late, w->dir, name);
  assert_int_equal(unlinkat(w->dir, name, 0), 0);
}

static void what_is_removed_is_closed_once_settled(void **state)
{
  const world *w = *state;
  rv_late_close late;
  rv_late_close_init(&late, &w->local);
  for (int round = 0; round < 3; round++) {
    remove_held(w, &late, "a");
    remove_held(w, &late, "b");
    assert_int_equal(count_removed(w), 2);
    rv_late_close_begin(&late);
    rv_late_close_settle(&late);
    assert_int_equal(count_removed(w), 0);
  }
  rv_late_close_settle(&late);
}

static void what_was_held_and_not_begun_is_closed_as_well(void **state)
{
  const world *w = *state;
  rv_late_close late;
  rv_late_close_init(&late, &w->local);
  remove_held(w, &late, "a");
  rv_late_close_settle(&late);
  assert_int_equal(count_removed(w), 0);
}

static void a_file_system_of_the_network_keeps_no_name_for_what_is_open(void **state)
{
  const world *w = *state;
  rv_late_close late;
  rv_late_close_init(&late, &w->remote);
  remove_held(w, &late, "a");
  assert_int_equal(count_removed(w), 0);
  rv_late_close_begin(&late);
  rv_late_close_settle(&late);
}

static void more_files_than_can_be_held_are_closed_too(void **state)
{
  const world *w = *state;
  rv_late_close late;
  rv_late_close_init(&late, &w->local);
  for (int i = 0; i < 2 * RV_LATE_CLOSE_FILES; i++) {
    char name[8];
    snprintf(name, sizeof name, "%d", i);
    remove_held(w, &late, name);
  }
  assert_int_equal(count_removed(w), RV_LATE_CLOSE_FILES);
  rv_late_close_hold(&late, w->dir, "not there");
  rv_late_close_begin(&late);
  rv_late_close_settle(&late);
  assert_int_equal(count_removed(w), 0);
}

static void what_takes_no_time_to_free_is_not_held(void **state)
{
  const world *w = *state;
  rv_late_close late;
  rv_late_close_init(&late, &w->local);
  make_file(w, "small", RV_LATE_CLOSE_BYTES - 1);
  make_file(w, "needed elsewhere", RV_LATE_CLOSE_BYTES);
  assert_int_equal(linkat(w->dir, "needed elsewhere", w->dir, "there", 0), 0);
  rv_late_close_hold(&late, w->dir, "small");
  rv_late_close_hold(&late, w->dir, "needed elsewhere");
  assert_int_equal(late.count, 0);
  assert_int_equal(unlinkat(w->dir, "small", 0), 0);
  assert_int_equal(unlinkat(w->dir, "needed elsewhere", 0), 0);
  rv_late_close_hold(&late, w->dir, "there"); /* its last name */
  assert_int_equal(unlinkat(w->dir, "there", 0), 0);
  assert_int_equal(count_removed(w), 1);
  rv_late_close_begin(&late);
  rv_late_close_settle(&late);
  assert_int_equal(count_removed(w), 0);
}

/* It has no thread to wait for, and its descriptors may be others' by now. */
static void a_forked_child_waits_for_nothing_and_closes_nothing(void **state)
{
  const world *w = *state;
  rv_late_close late;
  rv_late_close_init(&late, &w->local);
  remove_held(w, &late, "a");
  size_t here = count_removed(w);
  pid_t child = fork();
  if (child == 0) {
    alarm(60);
    late.threaded = true; /* as if it were forked while the thread closes */
    rv_late_close_settle(&late);
    _exit(count_removed(w) == here ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  rv_late_close_begin(&late);
  rv_late_close_settle(&late);
  assert_int_equal(count_removed(w), 0);
}

int main(void)
{
#ifdef __linux__
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(what_is_removed_is_closed_once_settled, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_was_held_and_not_begun_is_closed_as_well, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_file_system_of_the_network_keeps_no_name_for_what_is_open, set_up, tear_down),
      cmocka_unit_test_setup_teardown(more_files_than_can_be_held_are_closed_too, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_takes_no_time_to_free_is_not_held, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_forked_child_waits_for_nothing_and_closes_nothing, set_up, tear_down)};
  return cmocka_run_group_tests(tests, NULL, NULL);
#else
  return 0;
#endif
}
