/* What random selectors draw is what they promise: chi-square tests with fixed seeds, which fail by chance once in a million; and
 * no drift after very many updates (RV_TEST_UPDATES sets how many). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "store/selectors/selector.h"

/* Pearson's statistic over cells of at least five expected draws (the others together), as a standard normal deviate (Wilson and
 * Hilferty 1931). */
static double deviate(const uint64_t *seen, const double *probability, size_t cells, double draws)
{
  double statistic = 0, rest_seen = 0, rest_expected = 0, used = 0;
  for (size_t i = 0; i < cells; i++) {
    double expected = probability[i] * draws;
    if (probability[i] == 0) assert_int_equal(seen[i], 0);
    if (expected < 5) {
      rest_seen += (double)seen[i];
      rest_expected += expected;
      continue;
    }
    statistic += ((double)seen[i] - expected) * ((double)seen[i] - expected) / expected;
    used++;
  }
  if (rest_expected >= 5) {
    statistic += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
    used++;
  }
  double freedom = used - 1;
  if (freedom < 1) return 0;
  return (cbrt(statistic / freedom) - (1 - 2 / (9 * freedom))) / sqrt(2 / (9 * freedom));
}

static void assert_distributed(const uint64_t *seen, const double *probability, size_t cells, double draws)
{
  double z = deviate(seen, probability, cells, draws);
  print_message("chi-square of %zu cells: %.2f standard deviations\n", cells, z);
  assert_true(z < 4.75); /* p > 1e-6 */
}

enum { SLOTS = 2000, DRAWS = 400000, BATCH = 100 };

static double weight(const rv_selector_config *config, double priority)
{
  if (config->kind == RV_SELECTOR_UNIFORM) return 1;
  return priority > 0 ? pow(priority, config->priority_exponent) : 0;
}

/* Inserts, removes and updates a lot, then draws; one by one and in batches. */
static void check(const rv_selector_config *config, uint64_t seed, bool batches)
{
  print_message("kind %d exponent %g seed %llu\n", (int)config->kind, config->priority_exponent, (unsigned long long)seed);
  rv_random random;
  rv_random_init(&random, seed);
  rv_selector *selector;
  assert_int_equal(rv_selector_new(config, NULL, SLOTS, &selector, NULL), RV_OK);
  double *probability = calloc(SLOTS, sizeof *probability), *priority = calloc(SLOTS, sizeof *priority);
  uint64_t *seen = calloc(SLOTS, sizeof *seen);
  bool *present = calloc(SLOTS, sizeof *present);
  for (int i = 0; i < 20 * SLOTS; i++) {
    uint32_t slot = rv_random_below(&random, SLOTS);
    double p = rv_random_below(&random, 5) == 0 ? 0 : exp2(rv_random_unit(&random) * 10 - 5);
    if (!present[slot]) {
      assert_int_equal(rv_selector_insert(selector, slot, slot, p, NULL), RV_OK);
    } else if (rv_random_below(&random, 3) == 0) {
      rv_selector_remove(selector, slot);
      present[slot] = false;
      continue;
    } else {
      assert_int_equal(rv_selector_update(selector, slot, p, NULL), RV_OK);
    }
    present[slot] = true;
    priority[slot] = p;
  }
  double total = 0;
  for (uint32_t slot = 0; slot < SLOTS; slot++) total += present[slot] ? weight(config, priority[slot]) : 0;
  for (uint32_t slot = 0; slot < SLOTS; slot++) probability[slot] = present[slot] ? weight(config, priority[slot]) / total : 0;
  uint32_t slots[BATCH];
  double told[BATCH];
  for (int drawn = 0; drawn < DRAWS; drawn += BATCH) {
    if (batches) assert_int_equal(rv_selector_select_many(selector, &random, BATCH, slots, told), BATCH);
    for (int i = 0; i < BATCH; i++) {
      if (!batches) slots[i] = rv_selector_select(selector, &random, &told[i]);
      seen[slots[i]]++;
      assert_true(fabs(told[i] - probability[slots[i]]) < 1e-12);
    }
  }
  assert_distributed(seen, probability, SLOTS, DRAWS);
  rv_selector_free(selector);
  free(probability);
  free(priority);
  free(seen);
  free(present);
}

static void uniform_draws_are_uniform(void **state)
{
  (void)state;
  const rv_selector_config config = {.kind = RV_SELECTOR_UNIFORM};
  for (uint64_t seed = 1; seed <= 3; seed++) check(&config, seed, seed % 2 == 0);
}

static void prioritized_draws_are_proportional_to_the_power_of_priorities(void **state)
{
  (void)state;
  const double exponents[] = {0, 0.3, 0.6, 1, 2, -1};
  for (size_t e = 0; e < 6; e++)
    for (uint64_t seed = 1; seed <= 2; seed++) {
      const rv_selector_config config = {.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = exponents[e]};
      check(&config, 10 * e + seed, seed % 2 == 0);
    }
}

static void priorities_that_are_all_zero_are_drawn_uniformly(void **state)
{
  (void)state;
  const rv_selector_config config = {.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 0.6};
  rv_selector *selector;
  assert_int_equal(rv_selector_new(&config, NULL, 50000, &selector, NULL), RV_OK);
  for (uint32_t slot = 0; slot < 50000; slot++) assert_int_equal(rv_selector_insert(selector, slot, slot, 0, NULL), RV_OK);
  for (uint32_t slot = 0; slot < 50000; slot++)
    if (slot % 500 != 7) rv_selector_remove(selector, slot);
  enum { LEFT = 100 };
  rv_random random;
  rv_random_init(&random, 4);
  uint64_t seen[LEFT] = {0};
  double probability[LEFT], told;
  for (int i = 0; i < LEFT; i++) probability[i] = 1.0 / LEFT;
  for (int i = 0; i < 100000; i++) {
    uint32_t slot = rv_selector_select(selector, &random, &told);
    assert_int_equal(slot % 500, 7);
    assert_true(told == 1.0 / LEFT);
    seen[slot / 500]++;
  }
  assert_distributed(seen, probability, LEFT, 100000);
  assert_int_equal(rv_selector_update(selector, 507, 1e-300, NULL), RV_OK); /* one that is positive, however little */
  for (int i = 0; i < 1000; i++) {
    assert_int_equal(rv_selector_select(selector, &random, &told), 507);
    assert_true(told == 1);
  }
  rv_selector_free(selector);
}

/* The sums after very many updates are those of a selector that never saw any. */
static void prioritized_does_not_drift(void **state)
{
  (void)state;
  enum { N = 4000, AT_ONCE = 50 };
  const char *setting = getenv("RV_TEST_UPDATES");
  long long updates = setting != NULL ? atoll(setting) : 2000000;
  const rv_selector_config config = {.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 0.7};
  rv_selector *old, *fresh;
  assert_int_equal(rv_selector_new(&config, NULL, N, &old, NULL), RV_OK);
  assert_int_equal(rv_selector_new(&config, NULL, N, &fresh, NULL), RV_OK);
  rv_random random;
  rv_random_init(&random, 8);
  static double priority[N];
  for (uint32_t slot = 0; slot < N; slot++)
    assert_int_equal(rv_selector_insert(old, slot, slot, priority[slot] = 1, NULL), RV_OK);
  uint32_t slots[AT_ONCE];
  double priorities[AT_ONCE];
  for (long long done = 0; done < updates; done += AT_ONCE) {
    double size = done % 1000 == 0 ? 1e30 : 1; /* such as leave their rounding behind in a sum that is adjusted */
    for (int i = 0; i < AT_ONCE; i++) {
      slots[i] = rv_random_below(&random, N);
      priorities[i] = priority[slots[i]] = rv_random_unit(&random) * size;
    }
    assert_int_equal(rv_selector_update_many(old, slots, priorities, AT_ONCE, NULL, NULL), RV_OK);
  }
  for (uint32_t slot = 0; slot < N; slot++) {
    priority[slot] = rv_random_unit(&random);
    assert_int_equal(rv_selector_update(old, slot, priority[slot], NULL), RV_OK);
    assert_int_equal(rv_selector_insert(fresh, slot, slot, priority[slot], NULL), RV_OK);
  }
  long double total = 0;
  for (uint32_t slot = 0; slot < N; slot++) total += powl(priority[slot], 0.7L);
  double worst = 0;
  rv_random same = random;
  for (int i = 0; i < 20000; i++) {
    double of_old, of_fresh;
    uint32_t slot = rv_selector_select(old, &random, &of_old);
    assert_int_equal(slot, rv_selector_select(fresh, &same, &of_fresh));
    assert_true(of_old == of_fresh); /* to the last bit */
    double error = fabs((double)(of_old / (powl(priority[slot], 0.7L) / total) - 1));
    if (error > worst) worst = error;
  }
  print_message("after %lld updates the worst relative error of a probability is %.2g\n", updates, worst);
  assert_true(worst < 1e-13);
  rv_selector_free(old);
  rv_selector_free(fresh);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(uniform_draws_are_uniform),
      cmocka_unit_test(prioritized_draws_are_proportional_to_the_power_of_priorities),
      cmocka_unit_test(priorities_that_are_all_zero_are_drawn_uniformly),
      cmocka_unit_test(prioritized_does_not_drift),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
