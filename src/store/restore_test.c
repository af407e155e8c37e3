#include "store/restore.h"

#include "store/testing.h"

static rv_code restore(rv_store *store, uint64_t key, double priority, int32_t times_sampled, int64_t value, rv_error *err)
{
  rv_restored_item item = {.key = key,
                           .priority = priority,
                           .times_sampled = times_sampled,
                           .inserted_at_ns = 1000 + value,
                           .trajectory = single(store, value, 1)};
  rv_code code = rv_table_restore_item(rv_store_table(store, 0), &item, 0, err);
  rv_trajectory_unref(item.trajectory);
  return code;
}

static void restored_items_keep_key_priority_times_and_order(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("replay", 10);
  config.rate_limiter = rv_rate_limiter_queue(3); /* is not asked */
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  rv_error err;
  for (int i = 0; i < 10; i++) must(restore(store, (uint64_t)(100 - i), i, i, i, &err), &err);
  rv_item_info items[20];
  uint64_t cursor = 0;
  size_t count;
  must(rv_table_items(table, &cursor, items, 20, &count, &err), &err);
  assert_int_equal(count, 10);
  for (int i = 0; i < 10; i++) {
    assert_int_equal(items[i].key, 100 - i);
    assert_true(items[i].priority == i);
    assert_int_equal(items[i].times_sampled, i);
    assert_int_equal(items[i].inserted_at_ns, 1000 + i);
  }
  rv_store_unref(store);
}

static void what_cannot_be_is_refused(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("replay", 2);
  config.sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
  rv_store *store = store_of(&config);
  rv_error err;
  must(restore(store, 1, 1, 0, 1, &err), &err);
  assert_int_equal(restore(store, 1, 1, 0, 1, &err), RV_FAILED_PRECONDITION);
  assert_non_null(strstr(err.message, "two items have the key 1"));
  assert_int_equal(restore(store, 2, -1, 0, 1, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(restore(store, 2, 1, -1, 1, &err), RV_INVALID_ARGUMENT);
  must(restore(store, 2, 1, 0, 2, &err), &err);
  assert_int_equal(restore(store, 3, 1, 0, 3, &err), RV_FAILED_PRECONDITION);
  assert_non_null(strstr(err.message, "table \"replay\": more items than its max_size, which is 2"));
  rv_store_unref(store);
}

static rv_table_info with_counters(rv_store *store, int64_t inserts, int64_t samples, int64_t deletes, char text[200])
{
  rv_restored_counters counters = {
      .inserts = inserts, .samples = samples, .deletes = deletes, .num_deleted_episodes = 7, .num_unique_samples = 5};
  rv_table_restore_counters(rv_store_table(store, 0), &counters, text, 200);
  return info_of(rv_store_table(store, 0));
}

static void counters_come_back(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("replay", 10);
  rv_store *store = store_of(&config);
  rv_error err;
  char text[200];
  must(restore(store, 1, 1, 0, 1, &err), &err);
  rv_table_info info = with_counters(store, 20, 11, 19, text);
  assert_string_equal(text, "");
  assert_int_equal(info.inserts, 20);
  assert_int_equal(info.samples, 11);
  assert_int_equal(info.deletes, 19);
  assert_int_equal(info.num_deleted_episodes, 7);
  assert_int_equal(info.num_unique_samples, 5);
  rv_table_info_fini(&info);
  rv_store_unref(store);
}

/* In Reverb such counters let a sample through that finds no item, which ends the process, or keep everybody waiting. */
static void counters_that_do_not_fit_the_items_are_corrected(void **state)
{
  (void)state;
  const int64_t wrong[][3] = {
      {20, 3, 0}, {0, 0, 0}, {-5, -1, -9}, {5, 2, 10}, {INT64_MAX, INT64_MAX, 0}, {INT64_MIN, 1, INT64_MAX}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    rv_table_config config = rv_table_config_default("replay", 10);
    rv_store *store = store_of(&config);
    rv_error err;
    char text[200];
    must(restore(store, 1, 1, 0, 1, &err), &err);
    must(restore(store, 2, 1, 0, 1, &err), &err);
    rv_table_info info = with_counters(store, wrong[i][0], wrong[i][1], wrong[i][2], text);
    assert_int_equal(info.inserts - info.deletes, 2);
    assert_true(info.samples >= 0);
    assert_true(strlen(text) > 10);
    rv_table_info_fini(&info);
    rv_store_unref(store);
  }
}

static void counts_that_could_not_go_on_are_left_out(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("replay", 10);
  rv_store *store = store_of(&config);
  rv_error err;
  char text[200];
  must(restore(store, 1, 1, 0, 1, &err), &err);
  const rv_restored_counters most = {.inserts = 1, .num_deleted_episodes = INT64_MAX, .num_unique_samples = INT64_MAX};
  rv_table_restore_counters(rv_store_table(store, 0), &most, text, sizeof text);
  rv_draw draw;
  rv_sampling sampling = {.want = 1, .draws = &draw};
  sampling.waiter.deadline_ns = INT64_MAX;
  assert_int_equal(rv_table_sample(rv_store_table(store, 0), &sampling), RV_SUBMIT_DONE);
  rv_draw_release(&draw);
  rv_table_info info = info_of(rv_store_table(store, 0));
  assert_int_equal(info.num_unique_samples, 1);
  assert_int_equal(info.num_deleted_episodes, 0);
  rv_table_info_fini(&info);
  rv_store_unref(store);
}

static void a_limiter_never_stands_still_after_restoring(void **state)
{
  (void)state;
  rv_random random;
  rv_random_init(&random, 3);
  for (int i = 0; i < 2000; i++) {
    double ratio = 0.1 + 3 * rv_random_unit(&random), buffer = 1.01 * (ratio > 1 ? ratio : 1);
    rv_table_config config = rv_table_config_default("replay", 10);
    config.rate_limiter = rv_rate_limiter_sample_to_insert_ratio(ratio, 1 + rv_random_below(&random, 3), buffer);
    rv_store *store;
    rv_error err;
    rv_store_config whole = {.size = sizeof whole, .tables = &config, .num_tables = 1};
    if (rv_store_new(&whole, &store, &err) != RV_OK) continue;
    char text[200];
    int64_t n = rv_random_below(&random, 4), inserts = n + rv_random_below(&random, 1000);
    for (int64_t k = 0; k < n; k++) must(restore(store, (uint64_t)k, 1, 0, k, &err), &err);
    rv_table_info info = with_counters(store, inserts, rv_random_below(&random, 3000), inserts - n, text);
    rv_table *table = rv_store_table(store, 0);
    assert_true(rv_table_can_insert(table, 1) || (n > 0 && rv_table_can_sample(table, 1)));
    rv_table_info_fini(&info);
    rv_store_unref(store);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(restored_items_keep_key_priority_times_and_order),
      cmocka_unit_test(what_cannot_be_is_refused),
      cmocka_unit_test(counters_come_back),
      cmocka_unit_test(counters_that_do_not_fit_the_items_are_corrected),
      cmocka_unit_test(counts_that_could_not_go_on_are_left_out),
      cmocka_unit_test(a_limiter_never_stands_still_after_restoring),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
