/* What is checked of a table's settings before they change is looked for without the table's lock. The linker puts a function of the test's in the
 * place of the search for standstills (CMakeLists.txt). */
#include "store/table_parts.h"
#include "store/testing.h"

#include "store/standstill.h"

static struct {
  rv_table *table;
  int searches;
  void (*meanwhile)(void); /* done in the first of them */
} watched;

bool __real_rv_standstill_find(const rv_table_config *table, rv_standstill *found);
bool __wrap_rv_standstill_find(const rv_table_config *table, rv_standstill *found);
bool __wrap_rv_standstill_find(const rv_table_config *table, rv_standstill *found)
{
  if (watched.table != NULL) {
    if (!rv_mutex_trylock(&watched.table->mutex)) fail_msg("the table's lock is held while standstills are looked for");
    rv_mutex_unlock(&watched.table->mutex);
    void (*meanwhile)(void) = watched.meanwhile;
    watched.meanwhile = NULL;
    watched.searches++;
    if (meanwhile != NULL) meanwhile();
  }
  return __real_rv_standstill_find(table, found);
}

static rv_store *store_of_few(void)
{
  rv_table_config config = rv_table_config_default("t", 10);
  rv_store *store = store_of(&config);
  watched.table = rv_store_table(store, 0);
  watched.searches = 0;
  return store;
}

static void drop(rv_store *store)
{
  watched.table = NULL;
  rv_store_unref(store);
}

static void bound_to_five(void)
{
  rv_error err;
  rv_bounds_change change = {.bounds = rv_table_bounds_unchanged()};
  change.bounds.max_size = 5;
  while (!change.done) must(rv_table_change_bounds(watched.table, &change, &err), &err);
}

static void ask_for_eight(void)
{
  rv_error err;
  rv_rate_limiter_config eight = rv_rate_limiter_min_size(8);
  must(rv_table_set_rate_limiter(watched.table, &eight, &err), &err);
}

static void close_table(void)
{
  rv_table_close(watched.table);
}

static void a_limiter_is_checked_without_the_lock(void **state)
{
  (void)state;
  rv_store *store = store_of_few();
  rv_error err;
  rv_rate_limiter_config limiter = rv_rate_limiter_sample_to_insert_ratio(3, 2, 3);
  must(rv_table_set_rate_limiter(watched.table, &limiter, &err), &err);
  assert_int_equal(watched.searches, 1);
  drop(store);
}

static void bounds_are_checked_without_the_lock(void **state)
{
  (void)state;
  rv_store *store = store_of_few();
  bound_to_five();
  assert_int_equal(watched.searches, 1);
  drop(store);
}

static void a_limiter_is_checked_against_bounds_that_came_meanwhile(void **state)
{
  (void)state;
  rv_store *store = store_of_few();
  rv_error err;
  rv_rate_limiter_config eight = rv_rate_limiter_min_size(8);
  watched.meanwhile = bound_to_five;
  assert_int_equal(rv_table_set_rate_limiter(watched.table, &eight, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "table \"t\": rate_limiter: min_size_to_sample is 8"));
  assert_non_null(strstr(err.message, "max_size = 5"));
  drop(store);
}

static void bounds_are_checked_against_a_limiter_that_came_meanwhile(void **state)
{
  (void)state;
  rv_store *store = store_of_few();
  rv_error err;
  rv_bounds_change change = {.bounds = rv_table_bounds_unchanged()};
  change.bounds.max_size = 5;
  watched.meanwhile = ask_for_eight;
  assert_int_equal(rv_table_change_bounds(watched.table, &change, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "min_size_to_sample is 8"));
  rv_table_info info = info_of(watched.table);
  assert_int_equal(info.max_size, 10);
  rv_table_info_fini(&info);
  drop(store);
}

static void a_table_that_closes_meanwhile_is_not_changed(void **state)
{
  (void)state;
  rv_store *store = store_of_few();
  rv_error err;
  rv_rate_limiter_config eight = rv_rate_limiter_min_size(8);
  watched.meanwhile = close_table;
  assert_int_equal(rv_table_set_rate_limiter(watched.table, &eight, &err), RV_CANCELLED);
  drop(store);
}

static void who_has_no_place_for_a_sentence_is_told_the_code(void **state)
{
  (void)state;
  rv_store *store = store_of_few();
  rv_rate_limiter_config eight = rv_rate_limiter_min_size(8);
  watched.meanwhile = close_table;
  assert_int_equal(rv_table_set_rate_limiter(watched.table, &eight, NULL), RV_CANCELLED);
  drop(store);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_limiter_is_checked_without_the_lock),
      cmocka_unit_test(bounds_are_checked_without_the_lock),
      cmocka_unit_test(a_limiter_is_checked_against_bounds_that_came_meanwhile),
      cmocka_unit_test(bounds_are_checked_against_a_limiter_that_came_meanwhile),
      cmocka_unit_test(a_table_that_closes_meanwhile_is_not_changed),
      cmocka_unit_test(who_has_no_place_for_a_sentence_is_told_the_code),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
