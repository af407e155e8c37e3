#include "base/off_streams.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory_file.h"

/* With stdin and stdout closed; what the test prints is told to stderr. */
static int set_up(void **state)
{
  static int kept[2];
  for (int i = 0; i < 2; i++) {
    kept[i] = fcntl(i, F_DUPFD_CLOEXEC, 10);
    assert_true(kept[i] >= 0);
    close(i);
  }
  *state = kept;
  return 0;
}

static int tear_down(void **state)
{
  const int *kept = *state;
  for (int i = 0; i < 2; i++) {
    dup2(kept[i], i);
    close(kept[i]);
  }
  return 0;
}

static void a_file_leaves_the_number_of_a_closed_stream(void **state)
{
  (void)state;
  int file = rv_off_streams(open("/dev/zero", O_RDONLY | O_CLOEXEC));
  char byte = 1;
  assert_true(file > STDERR_FILENO);
  assert_int_equal(read(file, &byte, 1), 1);
  assert_int_equal(byte, 0);
  assert_true((fcntl(file, F_GETFD) & FD_CLOEXEC) != 0);
  assert_int_equal(fcntl(0, F_GETFD), -1); /* closed again */
  assert_int_equal(rv_off_streams(file), file);
  close(file);
}

static void what_could_not_be_opened_stays_so(void **state)
{
  (void)state;
  assert_int_equal(rv_off_streams(open("/nowhere/at/all", O_RDONLY | O_CLOEXEC)), -1);
  assert_int_equal(errno, ENOENT);
}

static void memory_is_no_stream(void **state)
{
  (void)state;
  int file = rv_memory_file_new("reverie-test", 4096);
  if (file == -ENOTSUP) return;
  int again = rv_memory_file_again(file);
  assert_true(file > STDERR_FILENO);
  assert_true(again > STDERR_FILENO);
  close(again);
  close(file);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_file_leaves_the_number_of_a_closed_stream, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_could_not_be_opened_stays_so, set_up, tear_down),
      cmocka_unit_test_setup_teardown(memory_is_no_stream, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
