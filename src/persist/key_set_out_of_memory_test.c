#include "base/failing_testing.h"
#include "persist/key_set.h"

static void without_memory_it_stays_as_it_was(void **state)
{
  (void)state;
  rv_key_set set;
  rv_key_set_init(&set, 7);
  fail_allocation(0);
  assert_int_equal(rv_key_set_add(&set, 1), RV_RESOURCE_EXHAUSTED);
  assert_true(allocation_failed());
  uint64_t key = 1;
  for (size_t slots = 0; slots == 0 || set.count < slots / 4 * 3; slots = (size_t)1 << set.bits)
    assert_int_equal(rv_key_set_add(&set, key++), RV_OK);
  fail_allocation(0);
  assert_int_equal(rv_key_set_add(&set, key), RV_RESOURCE_EXHAUSTED);
  assert_true(allocation_failed());
  for (uint64_t i = 1; i < key; i++) assert_true(rv_key_set_may_have(&set, i));
  assert_int_equal(rv_key_set_add(&set, key), RV_OK);
  for (uint64_t i = 1; i <= key; i++) rv_key_set_remove(&set, i);
  assert_int_equal(set.count, 0);
  rv_key_set_clear(&set);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(without_memory_it_stays_as_it_was)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
