/* Event loops where files run out. By itself: what libuv makes for the first loop of a process is there for all that follow. */
#include "net/echo_testing.h"
#include "net/loop.h"

#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILES = 64, PLENTY = 16, MADE = 0, REFUSED = 3, WRONG = 4 };

/* The first loop of a process of its own, which has so many descriptors left. */
static int make_first_loop(int left)
{
  const struct rlimit limit = {FILES, FILES};
  int opened[FILES], count = 0, fd;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return WRONG;
  while ((fd = open("/dev/null", O_RDONLY)) >= 0) opened[count++] = fd;
  while (left > 0 && count > 0) {
    close(opened[--count]);
    left--;
  }
  rv_loop *loop = NULL;
  rv_error error = {0};
  rv_code code = rv_loop_new(NULL, "loop", &loop, &error);
  if (code == RV_OK) {
    rv_loop_free(loop);
    return MADE;
  }
  bool told = strstr(error.message, "an event loop could not be made: too many open files") != NULL;
  return code == RV_RESOURCE_EXHAUSTED && told ? REFUSED : WRONG;
}

static void a_first_loop_without_enough_descriptors_is_an_error_however_few_there_are(void **state)
{
  (void)state;
  int refused = 0;
  for (int left = 0; left <= PLENTY; left++) {
    pid_t child = fork();
    if (child == 0) _exit(make_first_loop(left));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status)) fail_msg("%d left: signal %d", left, WTERMSIG(status));
    if (WEXITSTATUS(status) == REFUSED)
      refused++;
    else if (WEXITSTATUS(status) != MADE)
      fail_msg("%d left: status %d", left, WEXITSTATUS(status));
    if (left == 0) assert_int_equal(WEXITSTATUS(status), REFUSED);
    if (left == PLENTY) assert_int_equal(WEXITSTATUS(status), MADE);
  }
  assert_in_range(refused, 3, PLENTY);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_first_loop_without_enough_descriptors_is_an_error_however_few_there_are)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
