/* What is opened to be read without waiting, and what is told of the rest. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include "base/plain_file.h"

static char folder[64], path[100];

static int set_up(void **state)
{
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/reverie-plain-XXXXXX");
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/it", folder);
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  unlink(path);
  return rmdir(folder);
}

static void expect_instead(const char *at, const char *what)
{
  const char *instead;
  assert_int_equal(rv_plain_file_open(at, &instead), -1);
  assert_non_null(instead);
  assert_string_equal(instead, what);
}

static void a_file_is_opened(void **state)
{
  (void)state;
  const char *instead;
  char read_back[8] = "";
  FILE *file = fopen(path, "w");
  fputs("what", file);
  fclose(file);
  int fd = rv_plain_file_open(path, &instead);
  assert_true(fd >= 0);
  assert_null(instead);
  assert_int_equal(read(fd, read_back, sizeof read_back), 4);
  assert_string_equal(read_back, "what");
  close(fd);
}

static void what_is_not_there_is_told_by_its_error(void **state)
{
  (void)state;
  const char *instead;
  assert_int_equal(rv_plain_file_open(path, &instead), -1);
  assert_int_equal(errno, ENOENT);
  assert_null(instead);
}

static void a_pipe_that_nobody_writes_to_is_not_waited_for(void **state)
{
  (void)state;
  assert_int_equal(mkfifo(path, 0600), 0);
  expect_instead(path, "a pipe");
}

static void a_directory_is_no_file(void **state)
{
  (void)state;
  expect_instead(folder, "a directory");
}

static void a_device_is_no_file(void **state)
{
  (void)state;
  expect_instead("/dev/zero", "a device");
}

static void a_socket_is_no_file(void **state)
{
  (void)state;
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
  assert_int_equal(bind(fd, (const struct sockaddr *)&name, sizeof name), 0);
  expect_instead(path, "a socket");
  close(fd);
}

int main(void)
{
#define PLAIN_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      PLAIN_TEST(a_file_is_opened),
      PLAIN_TEST(what_is_not_there_is_told_by_its_error),
      PLAIN_TEST(a_pipe_that_nobody_writes_to_is_not_waited_for),
      PLAIN_TEST(a_directory_is_no_file),
      PLAIN_TEST(a_device_is_no_file),
      PLAIN_TEST(a_socket_is_no_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
