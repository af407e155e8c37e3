/* Several inserts at once are what they would be one after another. */
#include "store/table_parts.h"
#include "store/testing.h"

enum { MOST = RV_INSERTS_AT_ONCE };

typedef struct group {
  rv_insert inserts[MOST], *pointers[MOST];
  rv_submitted submitted[MOST];
  int completed[MOST], num_completed;
} group;

static void on_complete(rv_waiter *waiter)
{
  group *g = waiter->context;
  g->completed[g->num_completed++] = (int)(RV_CONTAINER(waiter, rv_insert, waiter) - g->inserts);
}

static void put(rv_store *store, group *g, size_t i, uint64_t key, double priority)
{
  g->inserts[i] = (rv_insert){.key = key, .priority = priority, .trajectory = single(store, (int64_t)key, key / 4)};
  g->inserts[i].waiter = (rv_waiter){.complete = on_complete, .context = g, .deadline_ns = INT64_MAX};
  g->pointers[i] = &g->inserts[i];
}

static void drop(group *g, size_t n)
{
  for (size_t i = 0; i < n; i++) rv_trajectory_unref(g->inserts[i].trajectory);
}

static void assert_same_items(rv_table *a, rv_table *b)
{
  rv_error err;
  rv_item_info x[64], y[64];
  size_t nx, ny;
  uint64_t cx = 0, cy = 0;
  must(rv_table_items(a, &cx, x, 64, &nx, &err), &err);
  must(rv_table_items(b, &cy, y, 64, &ny, &err), &err);
  assert_int_equal(nx, ny);
  for (size_t i = 0; i < nx; i++) {
    assert_int_equal(x[i].key, y[i].key);
    assert_true(x[i].priority == y[i].priority);
  }
}

static void they_end_as_one_after_another_would(void **state)
{
  (void)state;
  for (uint64_t seed = 1; seed <= 20; seed++) {
    rv_random random;
    rv_random_init(&random, seed);
    rv_table_config config = rv_table_config_default("t", 40);
    config.remover.kind = seed % 2 == 0 ? RV_SELECTOR_FIFO : RV_SELECTOR_MIN_HEAP;
    rv_store *one = store_of(&config), *many = store_of(&config);
    for (int round = 0; round < 200; round++) {
      group g = {.num_completed = 0};
      size_t n = 1 + rv_random_below(&random, MOST);
      for (size_t i = 0; i < n; i++) {
        uint64_t key = rv_random_below(&random, 90);
        put(many, &g, i, key, rv_random_unit(&random));
        assert_int_equal(insert_value(one, rv_store_table(one, 0), key, g.inserts[i].priority, (int64_t)key), RV_OK);
      }
      assert_int_equal(rv_table_insert_many(rv_store_table(many, 0), g.pointers, n, g.submitted), n);
      for (size_t i = 0; i < n; i++) {
        assert_int_equal(g.submitted[i], RV_SUBMIT_DONE);
        assert_int_equal(g.inserts[i].waiter.code, RV_OK);
      }
      drop(&g, n);
      assert_same_items(rv_store_table(one, 0), rv_store_table(many, 0));
    }
    rv_store_unref(one);
    rv_store_unref(many);
  }
}

static void those_behind_a_refused_one_are_left_alone(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("t", 40);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  group g = {.num_completed = 0};
  for (size_t i = 0; i < 6; i++) put(store, &g, i, i, i == 2 || i == 3 ? __builtin_nan("") : 1);
  assert_int_equal(rv_table_insert_many(table, g.pointers, 6, g.submitted), 3);
  assert_int_equal(g.inserts[1].waiter.code, RV_OK);
  assert_int_equal(g.inserts[2].waiter.code, RV_INVALID_ARGUMENT);
  assert_int_equal(rv_table_insert_many(table, g.pointers + 3, 3, g.submitted), 1);
  assert_int_equal(rv_table_insert_many(table, g.pointers + 4, 2, g.submitted), 2);
  rv_table_info info = info_of(table);
  assert_int_equal(info.current_size, 4);
  rv_table_info_fini(&info);
  rv_table_close(table);
  assert_int_equal(rv_table_insert_many(table, g.pointers, 2, g.submitted), 1);
  assert_int_equal(g.inserts[0].waiter.code, RV_CANCELLED);
  drop(&g, 6);
  rv_store_unref(store);
}

static void what_the_limiter_holds_back_waits_in_order(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("t", 5);
  config.sampler.kind = RV_SELECTOR_FIFO;
  config.max_times_sampled = 1;
  config.rate_limiter = rv_rate_limiter_queue(5);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  group g = {.num_completed = 0};
  for (size_t i = 0; i < 9; i++) put(store, &g, i, i, 1);
  assert_int_equal(rv_table_insert_many(table, g.pointers, 9, g.submitted), 9);
  for (size_t i = 0; i < 9; i++) assert_int_equal(g.submitted[i], i < 5 ? RV_SUBMIT_DONE : RV_SUBMIT_PENDING);
  rv_draw draws[3];
  rv_sampling sampling = {.want = 3, .draws = draws, .waiter = {.deadline_ns = INT64_MAX}};
  assert_int_equal(rv_table_sample(table, &sampling), RV_SUBMIT_DONE);
  rv_draws_release(draws, sampling.count);
  assert_int_equal(g.num_completed, 3);
  for (int i = 0; i < 3; i++) assert_int_equal(g.completed[i], 5 + i);
  assert_true(rv_waiter_cancel(&g.inserts[8].waiter));
  drop(&g, 9);
  rv_store_unref(store);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(they_end_as_one_after_another_would),
      cmocka_unit_test(those_behind_a_refused_one_are_left_alone),
      cmocka_unit_test(what_the_limiter_holds_back_waits_in_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
