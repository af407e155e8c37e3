#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"
#include "persist/key_set.h"

static void an_empty_set_takes_no_memory_and_has_nothing(void **state)
{
  (void)state;
  rv_key_set set;
  rv_key_set_init(&set, 7);
  assert_false(rv_key_set_may_have(&set, 0));
  rv_key_set_prefetch(&set, 0);
  rv_key_set_remove(&set, 0);
  assert_null(set.slots);
  rv_key_set_clear(&set);
}

static void a_key_added_twice_is_in_until_it_is_removed_twice(void **state)
{
  (void)state;
  rv_key_set set;
  rv_key_set_init(&set, 7);
  assert_int_equal(rv_key_set_add(&set, 42), RV_OK);
  assert_int_equal(rv_key_set_add(&set, 42), RV_OK);
  rv_key_set_remove(&set, 42);
  assert_true(rv_key_set_may_have(&set, 42));
  rv_key_set_remove(&set, 42);
  assert_false(rv_key_set_may_have(&set, 42));
  assert_int_equal(set.count, 0);
  rv_key_set_clear(&set);
}

/* Against the plainest model: how often each of some keys is in. */
static void it_has_what_was_added_and_hardly_anything_else(void **state)
{
  (void)state;
  enum { KEYS = 60000, OPERATIONS = 400000 };
  for (uint64_t seed = 1; seed <= 4; seed++) {
    rv_random random;
    rv_random_init(&random, seed);
    print_message("seed %llu\n", (unsigned long long)seed);
    uint8_t *times = calloc(KEYS, 1);
    assert_non_null(times);
    size_t count = 0, wrong = 0, asked = 0;
    rv_key_set set;
    rv_key_set_init(&set, rv_random_next(&random));
    uint32_t remove_share = 30;
    for (int i = 0; i < OPERATIONS; i++) {
      if (i % 20000 == 0) remove_share = 10 + rv_random_below(&random, 80); /* so that it gets full and empty */
      uint32_t small = rv_random_below(&random, KEYS);
      uint64_t key = seed % 2 == 0 ? small : (uint64_t)small * UINT64_C(0x9E3779B97F4A7C15);
      if (rv_random_below(&random, 100) < remove_share) {
        if (times[small] > 0) {
          rv_key_set_remove(&set, key);
          times[small]--;
          count--;
        }
      } else if (times[small] < 3) {
        assert_int_equal(rv_key_set_add(&set, key), RV_OK);
        times[small]++;
        count++;
      }
      assert_int_equal(set.count, count);
      bool has = rv_key_set_may_have(&set, key);
      if (times[small] > 0) assert_true(has);
      asked += times[small] == 0;
      wrong += times[small] == 0 && has;
    }
    for (uint32_t small = 0; small < KEYS; small++) {
      bool has = rv_key_set_may_have(&set, seed % 2 == 0 ? small : (uint64_t)small * UINT64_C(0x9E3779B97F4A7C15));
      if (times[small] > 0) assert_true(has);
      asked += times[small] == 0;
      wrong += times[small] == 0 && has;
    }
    assert_in_range(asked, 10000, SIZE_MAX); /* about one in 100,000 of them is told to be taken */
    assert_in_range(wrong, 0, 60);
    rv_key_set_clear(&set);
    free(times);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_empty_set_takes_no_memory_and_has_nothing),
      cmocka_unit_test(a_key_added_twice_is_in_until_it_is_removed_twice),
      cmocka_unit_test(it_has_what_was_added_and_hardly_anything_else),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
