/* The lowest and highest priority of many items, by those who ask and wait for nothing else: never inside the true ones, and exact once things are
 * quiet; and nobody who asks looks at all items. */
#include "store/testing.h"

#include "base/random.h"
#include "store/table_parts.h"

enum { N = 150000, SEEN_AT_ONCE = 32768 };

static double priorities[N];
static uint64_t keys[N];

/* A negative sign mirrors what is high and what is low. */
static rv_store *open_table(rv_selector_kind sampler, double sign)
{
  rv_table_config config = rv_table_config_default("t", N);
  config.sampler = (rv_selector_config){.kind = sampler, .priority_exponent = sampler == RV_SELECTOR_PRIORITIZED ? 0.6 : 0};
  rv_store *store = store_of(&config);
  rv_random random;
  rv_random_init(&random, 3);
  int64_t *values = calloc(N, sizeof *values), shape = N;
  for (int i = 0; i < N; i++) priorities[i] = sign * (1 + rv_random_unit(&random));
  rv_tensor column = {.dtype = RV_INT64, .rank = 1, .shape = &shape, .data = values};
  rv_rows rows = {.columns = &column, .num_columns = 1, .n = N, .priorities = priorities, .keys = keys};
  rows.waiter.deadline_ns = INT64_MAX;
  assert_int_equal(rv_table_insert_rows(rv_store_table(store, 0), &rows), RV_SUBMIT_DONE);
  free(values);
  return store;
}

static void update(rv_table *table, int i, double priority)
{
  rv_error err;
  size_t unknown;
  must(rv_table_update_priorities(table, &keys[i], &priority, 1, NULL, &unknown, &err), &err);
  assert_int_equal(unknown, 0);
  priorities[i] = priority;
}

static void find_true(double *lowest, double *highest)
{
  *lowest = *highest = priorities[0];
  for (int i = 1; i < N; i++) {
    if (priorities[i] < *lowest) *lowest = priorities[i];
    if (priorities[i] > *highest) *highest = priorities[i];
  }
}

static bool is_exact(rv_table *table)
{
  double lowest, highest;
  find_true(&lowest, &highest);
  rv_table_info info = info_of(table);
  assert_true(info.min_priority <= lowest && info.max_priority >= highest);
  bool exact = info.min_priority == lowest && info.max_priority == highest;
  rv_table_info_fini(&info);
  return exact;
}

static void find_out(rv_selector_kind sampler, double sign)
{
  rv_store *store = open_table(sampler, sign);
  rv_table *table = rv_store_table(store, 0);
  update(table, 7, sign * 10);
  assert_true(is_exact(table));
  update(table, 7, sign * 1.5);
  int asked = 1;
  while (!is_exact(table)) {
    assert_true(table->extremes.num_seen <= (uint32_t)(asked * SEEN_AT_ONCE)); /* one who asks waits for no more */
    assert_true(asked++ < N / SEEN_AT_ONCE + 1);
  }
  assert_true(asked > 1);
  rv_store_unref(store);
}

static void what_went_is_found_out_by_several_who_ask(void **state)
{
  (void)state;
  find_out(RV_SELECTOR_PRIORITIZED, 1);
}

/* It would be a number inside the true ones, and one that no item has. */
static void a_heap_is_not_taken_at_its_word_for_the_end_that_it_does_not_know(void **state)
{
  (void)state;
  find_out(RV_SELECTOR_MIN_HEAP, 1);
  find_out(RV_SELECTOR_MAX_HEAP, -1);
}

/* Items on either side of where it has been looked change, go to the extremes and come back. */
static void changes_while_it_is_looked_are_seen(void **state)
{
  (void)state;
  rv_store *store = open_table(RV_SELECTOR_PRIORITIZED, 1);
  rv_table *table = rv_store_table(store, 0);
  rv_random random;
  rv_random_init(&random, 4);
  for (int round = 0; round < 60; round++) {
    update(table, (int)rv_random_below(&random, N), 20 + round); /* an extreme that goes at once */
    for (int i = 0; i < 300; i++) update(table, (int)rv_random_below(&random, N), 1 + rv_random_unit(&random));
    for (int i = 0; i < N; i++)
      if (priorities[i] >= 20) update(table, i, 1 + rv_random_unit(&random));
    is_exact(table);
  }
  int asked = 0;
  while (!is_exact(table)) assert_true(asked++ < 2 * (N / SEEN_AT_ONCE + 1));
  rv_store_unref(store);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_went_is_found_out_by_several_who_ask),
      cmocka_unit_test(a_heap_is_not_taken_at_its_word_for_the_end_that_it_does_not_know),
      cmocka_unit_test(changes_while_it_is_looked_are_seen),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
