#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/machine_memory.h"

enum { MOST_FILES = 8 };

/* A folder like /sys/fs/cgroup, and a file like /proc/self/cgroup in it. */
typedef struct tree {
  char root[32], groups[64];
  char *made[MOST_FILES]; /* paths of files, in folders of their own; owned */
  size_t num_made;
} tree;

static void write_file(const char *path, const char *text)
{
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
}

static int set_up(void **state)
{
  tree *t = calloc(1, sizeof *t);
  assert_non_null(t);
  snprintf(t->root, sizeof t->root, "/tmp/reverie-groups-XXXXXX");
  assert_non_null(mkdtemp(t->root));
  snprintf(t->groups, sizeof t->groups, "%s/self", t->root);
  *state = t;
  return 0;
}

/* Removes a folder and those above it, up to the root, as far as they are empty. */
static void remove_folders(const tree *t, char *path)
{
  for (;;) {
    *strrchr(path, '/') = '\0';
    if (strcmp(path, t->root) == 0 || rmdir(path) != 0) return;
  }
}

static int tear_down(void **state)
{
  tree *t = *state;
  for (size_t i = 0; i < t->num_made; i++) unlink(t->made[i]);
  for (size_t i = t->num_made; i > 0; i--) {
    remove_folders(t, t->made[i - 1]);
    free(t->made[i - 1]);
  }
  unlink(t->groups);
  assert_int_equal(rmdir(t->root), 0);
  free(t);
  return 0;
}

/* A file below the root, with the folders that it needs. */
static void put(tree *t, const char *name, const char *text)
{
  assert_true(t->num_made < MOST_FILES);
  char *path = NULL;
  assert_true(asprintf(&path, "%s/%s", t->root, name) > 0);
  t->made[t->num_made++] = path;
  for (char *at = strchr(path + strlen(t->root) + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
    *at = '\0';
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    *at = '/';
  }
  write_file(path, text);
}

static size_t limit_of(tree *t, const char *groups)
{
  write_file(t->groups, groups);
  return rv_machine_memory_of_groups(t->groups, t->root);
}

static void a_group_has_its_own_limit_and_those_of_the_groups_above(void **state)
{
  tree *t = *state;
  put(t, "memory.max", "max\n");
  put(t, "a/memory.max", "3000000\n");
  put(t, "a/b/memory.max", "max\n");
  put(t, "c/memory.max", "2000\n");
  assert_int_equal(limit_of(t, "0::/a/b\n"), 3000000);
  assert_int_equal(limit_of(t, "0::/a\n"), 3000000);
  assert_int_equal(limit_of(t, "0::/c\n"), 2000);
  assert_true(limit_of(t, "0::/\n") == SIZE_MAX);
}

static void in_a_container_the_root_has_the_limit(void **state)
{
  tree *t = *state;
  put(t, "memory.max", "1073741824\n");
  assert_int_equal(limit_of(t, "0::/system.slice/docker-0123.scope\n"), 1073741824);
  assert_int_equal(limit_of(t, "0::/\n"), 1073741824);
}

static void the_older_kind_counts_where_memory_is_among_its_controllers(void **state)
{
  tree *t = *state;
  put(t, "memory/job/memory.limit_in_bytes", "5000\n");
  put(t, "memory/memory.limit_in_bytes", "9223372036854771712\n");
  assert_int_equal(limit_of(t, "9:name=systemd:/\n5:cpu,memory,pids:/job\n0::/\n"), 5000);
  assert_int_equal(limit_of(t, "4:memory:/job/step\n"), 5000);
  assert_int_equal(limit_of(t, "4:memory:/other\n"), 9223372036854771712U);
  assert_true(limit_of(t, "5:cpu,memoryless:/job\n") == SIZE_MAX);
}

static void where_both_kinds_are_there_the_newer_lies_beside_the_older(void **state)
{
  tree *t = *state;
  put(t, "unified/job/memory.max", "7000\n");
  assert_int_equal(limit_of(t, "5:cpu:/job\n0::/job/step\n"), 7000);
  put(t, "memory/job/memory.limit_in_bytes", "6000\n");
  assert_int_equal(limit_of(t, "5:memory:/job\n0::/job/step\n"), 6000);
}

static void what_cannot_be_read_is_no_limit(void **state)
{
  tree *t = *state;
  put(t, "memory.max", "\n");
  put(t, "a/memory.max", "much\n");
  assert_true(limit_of(t, "0::/a\n") == SIZE_MAX);
  assert_true(limit_of(t, "") == SIZE_MAX);
  assert_true(limit_of(t, "nonsense\n7\n7:\n0::\n") == SIZE_MAX);
  assert_true(rv_machine_memory_of_groups("/nowhere/cgroup", t->root) == SIZE_MAX);
}

static void this_process_may_use_some_memory_and_no_more_than_there_is(void **state)
{
  (void)state;
  assert_in_range(rv_machine_memory_allowed(), 1 << 20, rv_machine_memory());
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_group_has_its_own_limit_and_those_of_the_groups_above, set_up, tear_down),
      cmocka_unit_test_setup_teardown(in_a_container_the_root_has_the_limit, set_up, tear_down),
      cmocka_unit_test_setup_teardown(the_older_kind_counts_where_memory_is_among_its_controllers, set_up, tear_down),
      cmocka_unit_test_setup_teardown(where_both_kinds_are_there_the_newer_lies_beside_the_older, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_cannot_be_read_is_no_limit, set_up, tear_down),
      cmocka_unit_test(this_process_may_use_some_memory_and_no_more_than_there_is),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
