#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <sys/resource.h>

#include "base/spare_core.h"

/* In the place of the system's. */
static int64_t put_aside;
static bool says_nothing;

int __wrap_getrusage(int who, struct rusage *used);
int __wrap_getrusage(int who, struct rusage *used)
{
  (void)who;
  used->ru_nivcsw = (long)put_aside;
  return says_nothing ? -1 : 0;
}

/* Of so many pieces of work: how many are shared? A thread that is `disturbed` is put aside before every tenth. */
static int shared_of(rv_spare_core *core, int pieces, bool disturbed)
{
  int shared = 0;
  for (int i = 0; i < pieces; i++) {
    if (disturbed && i % 10 == 0) put_aside++;
    shared += rv_core_is_spare(core);
  }
  return shared;
}

static void who_is_never_put_aside_shares_nearly_all(void **state)
{
  (void)state;
  rv_spare_core core = {0};
  put_aside = 7;
  says_nothing = false;
  assert_false(rv_core_is_spare(&core)); /* nothing is known yet */
  assert_true(shared_of(&core, 10000, false) > 9000);
}

static void who_is_put_aside_shares_nothing(void **state)
{
  (void)state;
  rv_spare_core core = {0};
  says_nothing = false;
  assert_int_equal(shared_of(&core, 100000, true), 0);
}

static void it_is_seen_when_others_come_and_when_they_go(void **state)
{
  (void)state;
  rv_spare_core core = {0};
  says_nothing = false;
  for (int i = 0; i < 3; i++) {
    assert_true(shared_of(&core, 20000, false) > 10000);
    assert_true(shared_of(&core, 20000, true) < 1000);
  }
}

static void where_the_system_does_not_say_nothing_is_shared(void **state)
{
  (void)state;
  rv_spare_core core = {0};
  says_nothing = true;
  assert_int_equal(shared_of(&core, 10000, false), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(who_is_never_put_aside_shares_nearly_all),
      cmocka_unit_test(who_is_put_aside_shares_nothing),
      cmocka_unit_test(it_is_seen_when_others_come_and_when_they_go),
      cmocka_unit_test(where_the_system_does_not_say_nothing_is_shared),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
