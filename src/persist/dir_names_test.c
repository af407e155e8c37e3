#include "persist/dir_names.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int fails_at = -1; /* entry; -1: none */

/* In the place of the system's. */
struct dirent *readdir(DIR *dir)
{
  struct dirent *(*next)(DIR *) = NULL;
  *(void **)&next = dlsym(RTLD_NEXT, "readdir");
  if (fails_at >= 0 && fails_at-- == 0) {
    errno = EIO;
    return NULL;
  }
  return next(dir);
}

static char root[40];

static int set_up(void **state)
{
  (void)state;
  strcpy(root, "/tmp/rv_names.XXXXXX");
  assert_non_null(mkdtemp(root));
  for (int i = 0; i < 3; i++) {
    char path[60];
    snprintf(path, sizeof path, "%s/%d", root, i);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
  }
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  for (int i = 0; i < 3; i++) {
    char path[60];
    snprintf(path, sizeof path, "%s/%d", root, i);
    unlink(path);
  }
  return rmdir(root);
}

static void every_name_is_there_once(void **state)
{
  (void)state;
  rv_dir_names names;
  rv_error err;
  bool seen[3] = {false};
  assert_int_equal(rv_dir_names_read(root, &names, &err), RV_OK);
  assert_int_equal(names.count, 3);
  for (size_t i = 0; i < 3; i++) seen[atoi(names.names[i])] = true;
  assert_true(seen[0] && seen[1] && seen[2]);
  rv_dir_names_fini(&names);
}

static void what_is_not_there_has_no_names_and_what_is_no_directory_is_refused_by_name(void **state)
{
  (void)state;
  rv_dir_names names;
  rv_error err;
  char path[60];
  snprintf(path, sizeof path, "%s/none", root);
  assert_int_equal(rv_dir_names_read(path, &names, &err), RV_OK);
  assert_int_equal(names.count, 0);
  snprintf(path, sizeof path, "%s/1", root);
  assert_int_not_equal(rv_dir_names_read(path, &names, &err), RV_OK);
  assert_non_null(strstr(err.message, path));
}

static void a_listing_that_breaks_off_is_an_error_and_not_fewer_names(void **state)
{
  (void)state;
  for (int entry = 0; entry < 6; entry++) { /* three files, ".", ".." and the end */
    rv_dir_names names;
    rv_error err;
    fails_at = entry;
    assert_int_not_equal(rv_dir_names_read(root, &names, &err), RV_OK);
    assert_non_null(strstr(err.message, root));
    assert_int_equal(names.count, 0);
  }
  fails_at = -1;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_name_is_there_once),
      cmocka_unit_test(what_is_not_there_has_no_names_and_what_is_no_directory_is_refused_by_name),
      cmocka_unit_test(a_listing_that_breaks_off_is_an_error_and_not_fewer_names),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
