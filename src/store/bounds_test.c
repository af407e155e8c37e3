/* Bounds that change while a table is used. */
#include "store/testing.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/env.h"

enum { MOST = 6000, ROUNDS = 4000, FOREIGN = 500 };

static rv_table_bounds other_bounds(int64_t max_size, int32_t max_times_sampled)
{
  rv_table_bounds bounds = rv_table_bounds_unchanged();
  bounds.max_size = max_size;
  bounds.max_times_sampled = max_times_sampled;
  return bounds;
}

static void change_to(rv_table *table, int64_t max_size, int32_t max_times_sampled)
{
  rv_error err;
  rv_bounds_change change = {.bounds = other_bounds(max_size, max_times_sampled)};
  while (!change.done) must(rv_table_change_bounds(table, &change, &err), &err);
}

static int64_t max_size_of(rv_table *table)
{
  rv_table_info info = info_of(table);
  int64_t max_size = info.max_size;
  assert_true(info.current_size <= max_size);
  assert_int_equal(info.current_size, info.inserts - info.deletes);
  rv_table_info_fini(&info);
  return max_size;
}

/* ---- against a list: a Fifo table's keys in the order of insertion ---- */

typedef struct model {
  uint64_t keys[2 * MOST];
  size_t count, max_size;
} model;

static void forget_oldest(model *m)
{
  while (m->count > m->max_size) memmove(m->keys, m->keys + 1, --m->count * sizeof *m->keys);
}

static size_t find(const model *m, uint64_t key)
{
  size_t i = 0;
  while (i < m->count && m->keys[i] != key) i++;
  return i;
}

static void append(model *m, uint64_t key)
{
  if (find(m, key) < m->count) return; /* an update */
  m->keys[m->count++] = key;
  forget_oldest(m);
}

static void compare(rv_table *table, const model *m)
{
  rv_error err;
  rv_item_info page[256];
  uint64_t cursor = 0;
  size_t seen = 0, count;
  do {
    must(rv_table_items(table, &cursor, page, 256, &count, &err), &err);
    for (size_t i = 0; i < count; i++) assert_int_equal(page[i].key, m->keys[seen + i]);
    seen += count;
  } while (cursor != 0);
  assert_int_equal(seen, m->count);
  assert_int_equal(max_size_of(table), m->max_size);
}

static void add_some(rv_table *table, model *m, rv_random *random)
{
  int64_t values[120];
  uint64_t keys[120];
  rv_rows rows;
  size_t n = 1 + rv_random_below(random, 120);
  for (size_t i = 0; i < n; i++) values[i] = (int64_t)i;
  assert_int_equal(add_values(table, &rows, values, n, keys), RV_SUBMIT_DONE);
  must(rows.waiter.code, &rows.waiter.error);
  for (size_t i = 0; i < n; i++) append(m, keys[i]);
}

/* Keys that the table has made, with any bound, and those that came from elsewhere, are found as long as their items are there. */
static void look_some_up(rv_table *table, model *m, rv_random *random)
{
  rv_error err;
  uint64_t gone;
  size_t unknown = 0;
  double priority = 2;
  for (int i = 0; i < 10 && m->count > 0; i++) {
    size_t at = rv_random_below(random, (uint32_t)m->count);
    uint64_t key = m->keys[at];
    must(rv_table_update_priorities(table, &key, &priority, 1, &gone, &unknown, &err), &err);
    assert_int_equal(unknown, 0);
    if (i % 3 != 0) continue;
    must(rv_table_mutate(table, NULL, 0, &key, 1, &gone, &unknown, &err), &err);
    assert_int_equal(unknown, 0);
    must(rv_table_update_priorities(table, &key, &priority, 1, &gone, &unknown, &err), &err);
    assert_int_equal(unknown, 1);
    memmove(m->keys + at, m->keys + at + 1, (--m->count - at) * sizeof *m->keys);
  }
}

static void a_table_whose_bounds_change_has_the_newest_items_and_finds_all_of_them(void **state)
{
  (void)state;
  const char *given = getenv("RV_TEST_SEED");
  uint64_t seed = given == NULL ? 20261122 : strtoull(given, NULL, 10);
  print_message("seed %llu\n", (unsigned long long)seed);
  rv_random random;
  rv_random_init(&random, seed);
  rv_table_config config = rv_table_config_default("replay", 5);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  rv_error err;
  model *m = calloc(1, sizeof *m);
  m->max_size = 5;
  for (int i = 0; i < ROUNDS; i++) {
    switch (rv_random_below(&random, 8)) {
    case 0: look_some_up(table, m, &random); break;
    case 1:
      if (rv_random_below(&random, 4) != 0) break;
      m->max_size = 1 + rv_random_below(&random, rv_random_below(&random, 3) == 0 ? MOST : 100);
      change_to(table, (int64_t)m->max_size, RV_UNCHANGED);
      forget_oldest(m);
      break;
    case 2:
    case 3:
    case 4: {
      uint64_t key = rv_random_below(&random, FOREIGN);
      must(insert_value(store, table, key, 1, (int64_t)key), &err);
      append(m, key);
      break;
    }
    default: add_some(table, m, &random); break;
    }
    if (i % 20 == 0) compare(table, m);
  }
  compare(table, m);
  free(m);
  rv_store_unref(store);
}

/* ---- the rest of what is promised ---- */

static size_t draw_all(rv_table *table, size_t n)
{
  rv_draw draws[64];
  rv_sampling sampling = {.want = n, .partial = true, .draws = draws};
  sampling.waiter.deadline_ns = INT64_MAX;
  if (rv_table_sample(table, &sampling) == RV_SUBMIT_PENDING) assert_true(rv_waiter_cancel(&sampling.waiter));
  for (size_t i = 0; i < sampling.count; i++) rv_draw_release(&draws[i]);
  return sampling.count;
}

static void an_item_goes_when_it_was_sampled_as_often_as_the_new_bound_says(void **state)
{
  (void)state;
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 10);
  config.sampler.kind = RV_SELECTOR_FIFO;
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  for (uint64_t i = 0; i < 2; i++) must(insert_value(store, table, i, 1, (int64_t)i), &err);
  assert_int_equal(draw_all(table, 5), 5); /* all of the oldest */
  change_to(table, RV_UNCHANGED, 2);
  assert_int_equal(draw_all(table, 3), 3); /* once more the oldest, then twice the other */
  rv_table_info info = info_of(table);
  assert_int_equal(info.current_size, 0);
  assert_int_equal(info.max_times_sampled, 2);
  assert_int_equal(info.max_size, 10);
  rv_table_info_fini(&info);
  rv_store_unref(store);
}

static void fails(rv_table *table, int64_t max_size, int32_t max_times_sampled, const char *says)
{
  rv_error err;
  rv_bounds_change change = {.bounds = other_bounds(max_size, max_times_sampled)};
  assert_int_equal(rv_table_change_bounds(table, &change, &err), RV_INVALID_ARGUMENT);
  if (strstr(err.message, says) == NULL || strstr(err.message, "\"replay\"") == NULL) fail_msg("%s", err.message);
}

static void bounds_that_cannot_be_are_refused_and_change_nothing(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("replay", 10);
  config.rate_limiter = rv_rate_limiter_min_size(5);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  fails(table, 0, RV_UNCHANGED, "max_size is 0");
  fails(table, INT64_C(1) << 31, RV_UNCHANGED, "max_size is 2147483648");
  fails(table, 4, 3, "min_size_to_sample is 5");
  rv_table_info info = info_of(table);
  assert_int_equal(info.max_size, 10);
  assert_int_equal(info.max_times_sampled, 0);
  rv_table_info_fini(&info);
  rv_store_unref(store);
}

typedef struct inserting {
  rv_store *store;
  rv_table *table;
  atomic_bool stop;
  atomic_int inserted;
} inserting;

static void *insert_on(void *argument)
{
  inserting *self = argument;
  for (int64_t i = 1000000; !atomic_load(&self->stop); i++) {
    if (insert_value(self->store, self->table, (uint64_t)i, 1, i) != RV_OK) break;
    atomic_fetch_add(&self->inserted, 1);
  }
  return NULL;
}

/* Until so many are in. */
static void wait_for_inserted(const inserting *self, int n)
{
  rv_env env;
  rv_env_fill(&env, NULL);
  const int64_t give_up = rv_monotonic_ns(&env) + INT64_C(60000000000);
  while (atomic_load(&self->inserted) < n) {
    if (rv_monotonic_ns(&env) > give_up) fail_msg("%d are in, not %d", atomic_load(&self->inserted), n);
    sched_yield();
  }
}

static void others_go_on_while_a_table_becomes_smaller(void **state)
{
  (void)state;
  enum { BEFORE = 100000, AFTER = 100 };
  rv_table_config config = rv_table_config_default("replay", BEFORE);
  config.remover.kind = RV_SELECTOR_UNIFORM;
  inserting self = {.store = store_of(&config)};
  self.table = rv_store_table(self.store, 0);
  int64_t *values = calloc(BEFORE, sizeof *values);
  rv_rows rows;
  add_values(self.table, &rows, values, BEFORE, NULL);
  must(rows.waiter.code, &rows.waiter.error);
  free(values);
  pthread_t thread;
  pthread_create(&thread, NULL, insert_on, &self);
  wait_for_inserted(&self, 1);
  rv_error err;
  rv_bounds_change change = {.bounds = other_bounds(AFTER, RV_UNCHANGED)};
  for (int64_t before = BEFORE, now; !change.done; before = now) {
    must(rv_table_change_bounds(self.table, &change, &err), &err);
    now = max_size_of(self.table); /* at no moment more items than that */
    assert_true(now < before && before - now <= 2000);
  }
  wait_for_inserted(&self, atomic_load(&self.inserted) + 10);
  atomic_store(&self.stop, true);
  pthread_join(thread, NULL);
  assert_int_equal(max_size_of(self.table), AFTER);
  rv_store_unref(self.store);
}

static void of_two_changes_the_later_one_holds(void **state)
{
  (void)state;
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", 10000);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  int64_t values[10000] = {0};
  rv_rows rows;
  add_values(table, &rows, values, 10000, NULL);
  rv_bounds_change first = {.bounds = other_bounds(1, RV_UNCHANGED)};
  must(rv_table_change_bounds(table, &first, &err), &err);
  assert_false(first.done);
  change_to(table, 20000, RV_UNCHANGED);
  assert_int_equal(rv_table_change_bounds(table, &first, &err), RV_ABORTED);
  assert_int_equal(max_size_of(table), 20000);
  rv_store_unref(store);
}

static void a_limiter_that_needs_more_items_than_were_to_stay_ends_the_change(void **state)
{
  (void)state;
  enum { BEFORE = 10000, LEAST = 300 };
  rv_error err;
  rv_table_config config = rv_table_config_default("replay", BEFORE);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  int64_t values[BEFORE] = {0};
  rv_rows rows;
  add_values(table, &rows, values, BEFORE, NULL);
  rv_bounds_change change = {.bounds = other_bounds(10, RV_UNCHANGED)};
  must(rv_table_change_bounds(table, &change, &err), &err);
  const rv_rate_limiter_config fits = rv_rate_limiter_min_size(5), needs = rv_rate_limiter_min_size(LEAST);
  must(rv_table_set_rate_limiter(table, &fits, &err), &err);
  must(rv_table_change_bounds(table, &change, &err), &err); /* such a one does not matter */
  assert_false(change.done);
  int64_t reached = max_size_of(table);
  assert_true(reached > LEAST);
  must(rv_table_set_rate_limiter(table, &needs, &err), &err);
  assert_int_equal(rv_table_change_bounds(table, &change, &err), RV_ABORTED);
  if (strstr(err.message, "min_size_to_sample is 300, more than max_size = 10") == NULL) fail_msg("%s", err.message);
  assert_int_equal(max_size_of(table), reached);
  change_to(table, LEAST, RV_UNCHANGED);
  fails(table, LEAST - 1, RV_UNCHANGED, "min_size_to_sample is 300");
  must(rv_table_set_rate_limiter(table, &fits, &err), &err);
  change_to(table, 10, RV_UNCHANGED);
  assert_int_equal(max_size_of(table), 10);
  rv_store_unref(store);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_table_whose_bounds_change_has_the_newest_items_and_finds_all_of_them),
      cmocka_unit_test(an_item_goes_when_it_was_sampled_as_often_as_the_new_bound_says),
      cmocka_unit_test(bounds_that_cannot_be_are_refused_and_change_nothing),
      cmocka_unit_test(others_go_on_while_a_table_becomes_smaller),
      cmocka_unit_test(of_two_changes_the_later_one_holds),
      cmocka_unit_test(a_limiter_that_needs_more_items_than_were_to_stay_ends_the_change),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
