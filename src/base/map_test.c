#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/map.h"
#include "base/random.h"

static void an_empty_map_takes_no_memory_and_finds_nothing(void **state)
{
  (void)state;
  rv_map map;
  rv_map_init(&map, 7);
  assert_null(rv_map_get(&map, 0));
  assert_false(rv_map_remove(&map, 0));
  assert_int_equal(rv_map_memory(&map), 0);
  rv_map_fini(&map);
}

static void a_key_put_twice_keeps_the_last_value(void **state)
{
  (void)state;
  rv_map map;
  rv_map_init(&map, 7);
  assert_int_equal(rv_map_put(&map, 42, 1), RV_OK);
  assert_int_equal(rv_map_put(&map, 42, 2), RV_OK);
  assert_int_equal(map.count, 1);
  assert_int_equal(*rv_map_get(&map, 42), 2);
  assert_true(rv_map_remove(&map, 42));
  assert_null(rv_map_get(&map, 42));
  rv_map_fini(&map);
}

/* Against the plainest model: an array indexed by a small key, spread over the 64 bits. */
static void it_agrees_with_an_array_whatever_happens(void **state)
{
  (void)state;
  enum { KEYS = 60000, OPERATIONS = 400000 };
  for (uint64_t seed = 1; seed <= 4; seed++) {
    rv_random random;
    rv_random_init(&random, seed);
    print_message("seed %llu\n", (unsigned long long)seed);
    uint32_t *model = calloc(KEYS, sizeof *model);
    size_t count = 0;
    rv_map map;
    rv_map_init(&map, rv_random_next(&random));
    uint32_t remove_share = 30;
    for (int i = 0; i < OPERATIONS; i++) {
      if (i % 20000 == 0) remove_share = 10 + rv_random_below(&random, 80); /* so that it grows and shrinks */
      uint32_t small = rv_random_below(&random, KEYS);
      uint64_t key = seed % 2 == 0 ? small : (uint64_t)small * UINT64_C(0x9E3779B97F4A7C15);
      if (rv_random_below(&random, 100) < remove_share) {
        assert_int_equal(rv_map_remove(&map, key), model[small] != 0);
        count -= model[small] != 0;
        model[small] = 0;
      } else {
        assert_int_equal(rv_map_put(&map, key, (uint32_t)i + 1), RV_OK);
        count += model[small] == 0;
        model[small] = (uint32_t)i + 1;
      }
      assert_int_equal(map.count, count);
      uint32_t other = rv_random_below(&random, KEYS);
      uint32_t *found = rv_map_get(&map, seed % 2 == 0 ? other : (uint64_t)other * UINT64_C(0x9E3779B97F4A7C15));
      assert_int_equal(found != NULL ? *found : 0, model[other]);
    }
    for (uint32_t small = 0; small < KEYS; small++) {
      uint32_t *found = rv_map_get(&map, seed % 2 == 0 ? small : (uint64_t)small * UINT64_C(0x9E3779B97F4A7C15));
      assert_int_equal(found != NULL ? *found : 0, model[small]);
    }
    rv_map_fini(&map);
    free(model);
  }
}

static void memory_is_given_back_after_mass_removal(void **state)
{
  (void)state;
  enum { N = 200000 };
  rv_map map;
  rv_map_init(&map, 3);
  for (uint64_t key = 0; key < N; key++) assert_int_equal(rv_map_put(&map, key, (uint32_t)key), RV_OK);
  size_t full = rv_map_memory(&map);
  assert_true(full >= N * sizeof(rv_map_entry));
  for (uint64_t key = 0; key < N - 10; key++) assert_true(rv_map_remove(&map, key));
  assert_true(rv_map_memory(&map) < full / 100);
  for (uint64_t key = N - 10; key < N; key++) assert_int_equal(*rv_map_get(&map, key), key);
  rv_map_fini(&map);
  assert_int_equal(rv_map_memory(&map), 0);
}

static void a_rebuilding_is_over_before_the_next_begins(void **state)
{
  (void)state;
  rv_map map;
  rv_map_init(&map, 3);
  size_t slots = 0;
  for (uint64_t key = 0; key < 300000; key++) {
    bool moving = map.old.single != NULL || map.old.block != NULL;
    assert_int_equal(rv_map_put(&map, key, 0), RV_OK);
    if (map.now.mask != slots) assert_false(moving);
    slots = map.now.mask;
  }
  for (uint64_t key = 0; key < 300000; key++) {
    bool moving = map.old.single != NULL || map.old.block != NULL;
    assert_true(rv_map_remove(&map, key));
    if (map.now.mask != slots) assert_false(moving);
    slots = map.now.mask;
  }
  rv_map_fini(&map);
}

/* Slots looked at for one key, from its place in the array. */
static size_t longest_run(const rv_map *map)
{
  size_t longest = 0, run = 0;
  for (size_t i = 0; i <= map->now.mask; i++) {
    const rv_map_entry *entry = map->now.single != NULL ? &map->now.single[i] : NULL;
    if (entry == NULL && map->now.block[i >> 9] != NULL) entry = &map->now.block[i >> 9][i & 511];
    run = entry != NULL && entry->used == 1 ? run + 1 : 0;
    if (run > longest) longest = run;
  }
  return longest;
}

static void keys_chosen_to_collide_do_not(void **state)
{
  (void)state;
  enum { N = 40000 };
  for (int pattern = 0; pattern < 6; pattern++) {
    rv_map map;
    rv_map_init(&map, UINT64_C(0xDEC0DE) + (uint64_t)pattern);
    for (uint64_t i = 0; i < N; i++) {
      uint64_t key = i;
      if (pattern == 1) key = i << 48;
      if (pattern == 2) key = i << 32;
      if (pattern == 3) key = i * (UINT64_C(1) << 40) + (i & 1);
      if (pattern == 4) key = ~i;
      if (pattern == 5) key = (i & 0xFF) << 56 | (i >> 8) << 8; /* only few bits of each end differ */
      assert_int_equal(rv_map_put(&map, key, (uint32_t)i), RV_OK);
    }
    assert_true(longest_run(&map) < 300);
    rv_map_fini(&map);
  }
}

static void two_seeds_order_the_same_keys_differently(void **state)
{
  (void)state;
  rv_map a, b;
  rv_map_init(&a, 1);
  rv_map_init(&b, 2);
  for (uint64_t key = 0; key < 12; key++) {
    assert_int_equal(rv_map_put(&a, key, 0), RV_OK);
    assert_int_equal(rv_map_put(&b, key, 0), RV_OK);
  }
  size_t equal = 0;
  for (size_t i = 0; i <= a.now.mask; i++) equal += a.now.single[i].used == 1 && a.now.single[i].key == b.now.single[i].key;
  assert_true(equal < 8);
  rv_map_fini(&a);
  rv_map_fini(&b);
}

static void a_map_copied_away_is_freed_in_slices(void **state)
{
  (void)state;
  rv_map map;
  rv_map_init(&map, 3);
  for (uint64_t key = 0; key < 100000; key++) assert_int_equal(rv_map_put(&map, key, (uint32_t)key), RV_OK);
  rv_map away = map;
  rv_map_init(&map, 4);
  assert_null(rv_map_get(&map, 5));
  size_t slices = 1;
  while (rv_map_fini_some(&away, 4)) slices++;
  assert_true(slices >= 8);
  rv_map_fini(&away);
  rv_map_fini(&map);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_empty_map_takes_no_memory_and_finds_nothing), cmocka_unit_test(a_key_put_twice_keeps_the_last_value),
      cmocka_unit_test(it_agrees_with_an_array_whatever_happens),       cmocka_unit_test(memory_is_given_back_after_mass_removal),
      cmocka_unit_test(a_rebuilding_is_over_before_the_next_begins),    cmocka_unit_test(keys_chosen_to_collide_do_not),
      cmocka_unit_test(two_seeds_order_the_same_keys_differently),      cmocka_unit_test(a_map_copied_away_is_freed_in_slices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
