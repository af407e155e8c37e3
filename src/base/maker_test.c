#include "base/maker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* In a child: what it finds, as the number with which it ends. */
static int in_child(int (*look)(rv_maker *maker), rv_maker *maker)
{
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) _exit(look(maker));
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static int look(rv_maker *maker)
{
  return rv_maker_is_this_process(maker);
}

static int look_in_grandchild(rv_maker *maker)
{
  return in_child(look, maker);
}

static int make_own(rv_maker *maker)
{
  rv_maker_fini(maker);
  rv_maker_init(maker);
  return rv_maker_is_this_process(maker) && in_child(look, maker) == 0;
}

static void a_child_is_told_from_who_made_it(void **state)
{
  (void)state;
  rv_maker maker;
  rv_maker_init(&maker);
  assert_true(rv_maker_is_this_process(&maker));
  assert_int_equal(in_child(look, &maker), 0);
  assert_int_equal(in_child(look_in_grandchild, &maker), 0);
  assert_int_equal(in_child(make_own, &maker), 1);
  assert_true(rv_maker_is_this_process(&maker));
  rv_maker_fini(&maker);
}

static void without_a_page_the_kernel_says_so(void **state)
{
  (void)state;
  rv_maker maker;
  rv_maker_init(&maker);
  rv_maker_fini(&maker);
  assert_true(rv_maker_is_this_process(&maker));
  assert_int_equal(in_child(look, &maker), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_child_is_told_from_who_made_it),
      cmocka_unit_test(without_a_page_the_kernel_says_so),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
