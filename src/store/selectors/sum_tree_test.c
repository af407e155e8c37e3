#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/selectors/sum_tree_steps.h"

/* States whose next number is the lowest and the highest there is. */
static rv_random lowest(void)
{
  return (rv_random){{0, 1, 1, 0}};
}
static rv_random highest(void)
{
  return (rv_random){{0, 1, 1, UINT64_MAX}};
}

static void an_empty_tree_has_no_weight(void **state)
{
  (void)state;
  rv_sum_tree tree;
  rv_sum_tree_init(&tree, 100);
  assert_true(rv_sum_tree_total(&tree) == 0);
  assert_int_equal(rv_sum_tree_reserve(&tree, 0, NULL), RV_OK);
  assert_true(rv_sum_tree_total(&tree) == 0);
  rv_sum_tree_fini(&tree);
}

static void the_total_is_the_sum_as_the_tree_grows_by_levels(void **state)
{
  (void)state;
  const uint32_t slots[] = {0, 7, 8, 63, 64, 511, 512, 4095, 4096, 40000, 262143, 262144, 300001};
  for (uint64_t expected = 0; expected < 1000000; expected = expected * 9 + 1) {
    rv_sum_tree tree;
    rv_sum_tree_init(&tree, expected);
    double sum = 0;
    for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
      assert_int_equal(rv_sum_tree_reserve(&tree, slots[i], NULL), RV_OK);
      assert_true(rv_sum_tree_total(&tree) == sum);
      rv_sum_tree_set(&tree, slots[i], (double)(i + 1));
      sum += (double)(i + 1);
      assert_true(rv_sum_tree_total(&tree) == sum);
    }
    rv_blocks garbage = {0};
    rv_sum_tree_clear(&tree, &garbage);
    rv_blocks_free(&garbage);
    assert_true(rv_sum_tree_total(&tree) == 0);
    assert_int_equal(rv_sum_tree_reserve(&tree, 9, NULL), RV_OK);
    rv_sum_tree_set(&tree, 9, 3);
    assert_true(rv_sum_tree_total(&tree) == 3);
    rv_sum_tree_fini(&tree);
  }
}

static void a_batch_of_changes_leaves_the_tree_as_single_ones_do(void **state)
{
  (void)state;
  enum { SLOTS = 30000, BATCH = 700 };
  rv_sum_tree one, many;
  rv_sum_tree_init(&one, SLOTS);
  rv_sum_tree_init(&many, SLOTS);
  assert_int_equal(rv_sum_tree_reserve(&one, SLOTS - 1, NULL), RV_OK);
  assert_int_equal(rv_sum_tree_reserve(&many, SLOTS - 1, NULL), RV_OK);
  rv_random random;
  rv_random_init(&random, 5);
  uint32_t slots[BATCH];
  double weights[BATCH];
  for (int round = 0; round < 50; round++) {
    size_t n = rv_random_below(&random, BATCH + 1);
    uint32_t range = round % 3 == 0 ? 20 : SLOTS; /* the same slot often, so that order matters */
    for (size_t i = 0; i < n; i++) {
      slots[i] = rv_random_below(&random, range);
      weights[i] = rv_random_unit(&random);
      rv_sum_tree_set(&one, slots[i], weights[i]);
    }
    rv_sum_tree_set_many(&many, slots, weights, n);
    for (uint32_t slot = 0; slot < SLOTS; slot++) assert_true(rv_sum_tree_get(&one, slot) == rv_sum_tree_get(&many, slot));
    assert_true(rv_sum_tree_total(&one) == rv_sum_tree_total(&many));
  }
  rv_sum_tree_fini(&one);
  rv_sum_tree_fini(&many);
}

/* The slots that a tree draws and their probabilities, after changes in batches and alone, by the steps of one processor. */
static void grow_change_and_draw(const rv_sum_tree_steps *steps, uint32_t num_slots, uint32_t *drawn, double *chances, size_t n)
{
  rv_sum_tree tree;
  rv_sum_tree_init(&tree, num_slots / 2);
  tree.steps = steps;
  rv_random random;
  rv_random_init(&random, num_slots);
  enum { BATCH = 300 };
  for (uint32_t slot = 0; slot < num_slots; slot++) {
    assert_int_equal(rv_sum_tree_reserve(&tree, slot, NULL), RV_OK);
    if (slot % 5 != 0) rv_sum_tree_set(&tree, slot, rv_random_unit(&random) * exp2((double)rv_random_below(&random, 60)));
  }
  for (int round = 0; round < 20; round++) {
    uint32_t slots[BATCH];
    double weights[BATCH];
    size_t count = rv_random_below(&random, BATCH + 1);
    for (size_t i = 0; i < count; i++) {
      slots[i] = rv_random_below(&random, num_slots);
      weights[i] = rv_random_below(&random, 4) == 0 ? -0.0 : rv_random_unit(&random);
    }
    rv_sum_tree_set_many(&tree, slots, weights, count);
  }
  rv_sum_tree_draw(&tree, &random, n, drawn, chances);
  chances[n] = rv_sum_tree_total(&tree);
  rv_sum_tree_fini(&tree);
}

static void every_processor_comes_to_the_same_sums_and_draws(void **state)
{
  (void)state;
  enum { DRAWS = 1000 };
  static uint32_t drawn[DRAWS], first_drawn[DRAWS];
  static double chances[DRAWS + 1], first_chances[DRAWS + 1];
  const uint32_t sizes[] = {5, 8, 9, 64, 500, 4097, 70000, 300000};
  const rv_sum_tree_steps *steps[3];
  size_t kinds = rv_sum_tree_steps_here(steps);
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    grow_change_and_draw(&rv_sum_tree_steps_plain, sizes[s], first_drawn, first_chances, DRAWS);
    for (size_t k = 0; k < kinds; k++) {
      grow_change_and_draw(steps[k], sizes[s], drawn, chances, DRAWS);
      assert_memory_equal(drawn, first_drawn, sizeof drawn);
      assert_memory_equal(chances, first_chances, sizeof chances);
    }
  }
}

/* A node's last end may lie above or below what its own children come to, and a draw may fall between: all steps then take the last
 * child that has a weight. */
static void every_processor_takes_the_last_weight_beyond_the_end(void **state)
{
  (void)state;
  const rv_sum_tree_steps *steps[3];
  size_t kinds = rv_sum_tree_steps_here(steps);
  for (size_t k = 0; k < kinds; k++) {
    rv_sum_tree tree;
    rv_sum_tree_init(&tree, 1000);
    tree.steps = steps[k];
    assert_int_equal(rv_sum_tree_reserve(&tree, 999, NULL), RV_OK);
    for (uint32_t slot = 0; slot < 700; slot++) rv_sum_tree_set(&tree, slot, 1);
    double beyond[2] = {700, 1e9}, chances[2];
    uint32_t slots[2];
    steps[k]->draw(&tree, 2, beyond, slots, chances);
    for (int i = 0; i < 2; i++) assert_int_equal(slots[i], 699);
    rv_sum_tree_fini(&tree);
  }
}

static void rounding_never_leads_to_a_weight_of_zero(void **state)
{
  (void)state;
  rv_random random;
  rv_random_init(&random, 6);
  for (int round = 0; round < 20000; round++) {
    rv_sum_tree tree;
    uint32_t slots = 1 + rv_random_below(&random, 200);
    rv_sum_tree_init(&tree, slots);
    assert_int_equal(rv_sum_tree_reserve(&tree, slots - 1, NULL), RV_OK);
    for (uint32_t slot = 0; slot < slots; slot++)
      if (rv_random_below(&random, 3) == 0) {
        int size = (int)rv_random_below(&random, 120) - 60;
        rv_sum_tree_set(&tree, slot, rv_random_unit(&random) * exp2(round % 2 == 0 ? size : size * 15));
      }
    if (rv_sum_tree_total(&tree) > 0) {
      uint32_t drawn[3];
      double chances[3];
      rv_random ends[3] = {lowest(), highest(), random};
      for (int i = 0; i < 3; i++) {
        rv_sum_tree_draw(&tree, &ends[i], 1, &drawn[i], &chances[i]);
        assert_true(drawn[i] < slots);
        assert_true(rv_sum_tree_get(&tree, drawn[i]) > 0);
        assert_true(chances[i] == rv_sum_tree_get(&tree, drawn[i]) / rv_sum_tree_total(&tree));
      }
    }
    rv_sum_tree_fini(&tree);
  }
}

static void weights_far_apart_do_not_spoil_each_other(void **state)
{
  (void)state;
  rv_sum_tree tree;
  rv_sum_tree_init(&tree, 10000);
  assert_int_equal(rv_sum_tree_reserve(&tree, 9999, NULL), RV_OK);
  for (uint32_t slot = 0; slot < 10000; slot++) rv_sum_tree_set(&tree, slot, 1);
  for (int round = 0; round < 1000; round++) {
    rv_sum_tree_set(&tree, (uint32_t)round, 0x1p960);
    rv_sum_tree_set(&tree, (uint32_t)round, 1);
  }
  assert_true(rv_sum_tree_total(&tree) == 10000); /* an adjusted sum would have lost all of it */
  rv_sum_tree_fini(&tree);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_empty_tree_has_no_weight),
      cmocka_unit_test(the_total_is_the_sum_as_the_tree_grows_by_levels),
      cmocka_unit_test(a_batch_of_changes_leaves_the_tree_as_single_ones_do),
      cmocka_unit_test(every_processor_comes_to_the_same_sums_and_draws),
      cmocka_unit_test(every_processor_takes_the_last_weight_beyond_the_end),
      cmocka_unit_test(rounding_never_leads_to_a_weight_of_zero),
      cmocka_unit_test(weights_far_apart_do_not_spoil_each_other),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
