/* Draws that end at a bound of bytes, as a server asks for them. */
#include "store/chunk_parts.h"
#include "store/idle_selector_testing.h"
#include "store/testing.h"

enum { ITEMS = 24, WANT = 100, BOUND = 4000, ASKS = 4000 };

/* Always the same, so that a failure comes again. */
static void same_entropy(void *context, void *out, size_t n)
{
  (void)context;
  memset(out, 0x5A, n);
}

/* Item i has i + 1 times 8 numbers. The registry may be NULL. */
static rv_store *store_of_sizes(rv_selector_config sampler, const rv_registry *registry)
{
  rv_error err;
  rv_store *store = NULL;
  rv_table_config config = rv_table_config_default("sizes", ITEMS);
  config.sampler = sampler;
  rv_env env = {.size = sizeof env, .entropy = same_entropy};
  rv_store_config whole = {.size = sizeof whole, .tables = &config, .num_tables = 1, .env = &env, .registry = registry};
  must(rv_store_new(&whole, &store, &err), &err);
  for (int64_t i = 0; i < ITEMS; i++) {
    rv_chunk *chunk = encoded_numbers(1000 * i, 8 * ((size_t)i + 1), 1, false);
    rv_insert insert = {
        .key = (uint64_t)i + 1, .priority = 1, .trajectory = trajectory_of(store, chunk, 0, 8 * ((int32_t)i + 1))};
    insert.waiter.deadline_ns = INT64_MAX;
    assert_int_equal(rv_table_insert(rv_store_table(store, 0), &insert), RV_SUBMIT_DONE);
    rv_trajectory_unref(insert.trajectory);
    rv_chunk_unref(chunk);
  }
  return store;
}

static size_t bytes_of(const rv_draw *draw)
{
  return rv_chunk_memory(draw->chunk != NULL ? draw->chunk : draw->trajectory->chunks[0]);
}

/* Asks again and again: each ends with the draw that reaches the bound, and what is counted of an item is what was handed out. */
static void draw_often(rv_store *store, double counts[ITEMS])
{
  int32_t times[ITEMS] = {0};
  for (int ask = 0; ask < ASKS; ask++) {
    rv_draw draws[WANT];
    rv_sampling sampling = {.want = WANT, .max_bytes = BOUND, .draws = draws};
    assert_int_equal(rv_table_sample(rv_store_table(store, 0), &sampling), RV_SUBMIT_DONE);
    size_t bytes = 0;
    for (size_t i = 0; i < sampling.count; i++) {
      size_t item = draws[i].key - 1;
      assert_true(bytes < BOUND);
      bytes += bytes_of(&draws[i]);
      assert_int_equal(draws[i].times_sampled, ++times[item]);
      counts[item]++;
    }
    assert_true(bytes >= BOUND);
    rv_draws_release(draws, sampling.count);
  }
  rv_table_info info = info_of(rv_store_table(store, 0));
  double all = 0;
  for (size_t i = 0; i < ITEMS; i++) all += counts[i];
  assert_true((double)info.samples == all);
  rv_table_info_fini(&info);
}

/* Were those that did not fit drawn again, or kept for the next ask, small items would come more often than large ones. */
static void draws_of_a_random_sampler_stay_as_likely(void **state)
{
  rv_store *store = store_of_sizes(*(rv_selector_config *)*state, NULL);
  double counts[ITEMS] = {0}, expected = 0, chi2 = 0;
  draw_often(store, counts);
  for (size_t i = 0; i < ITEMS; i++) expected += counts[i] / ITEMS;
  for (size_t i = 0; i < ITEMS; i++) chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
  assert_true(chi2 < 80); /* 23 degrees of freedom: once in thirty million */
  rv_store_unref(store);
}

static void draws_of_one_item_end_there_too(void **state)
{
  rv_store *store = store_of_sizes(*(rv_selector_config *)*state, NULL);
  double counts[ITEMS] = {0};
  draw_often(store, counts);
  size_t drawn = 0;
  for (size_t i = 0; i < ITEMS; i++) drawn += counts[i] > 0;
  assert_int_equal(drawn, 1);
  rv_store_unref(store);
}

/* ---- a selector of the user's: one item after another, from the first on ---- */

static uint32_t turn; /* how often it was asked */

static rv_code take_update(void *selector, uint32_t slot, uint64_t key, double priority, rv_error *err)
{
  (void)selector, (void)slot, (void)key, (void)priority, (void)err;
  return RV_OK;
}

static uint32_t next_in_turn(void *selector, uint64_t random, double *probability)
{
  (void)selector, (void)random;
  *probability = 1.0 / ITEMS;
  return turn++ % ITEMS;
}

static void a_registered_selector_is_asked_once_for_each_item_handed_out(void **state)
{
  (void)state;
  rv_error err;
  rv_registry *registry;
  rv_selector_ops ops = IDLE_SELECTOR_OPS(take_update);
  ops.select = next_in_turn;
  must(rv_registry_new(&registry, &err), &err);
  must(rv_registry_add_selector(registry, "in turn", &ops, &err), &err);
  rv_store *store = store_of_sizes((rv_selector_config){.kind = RV_SELECTOR_CUSTOM, .name = "in turn"}, registry);
  double counts[ITEMS] = {0};
  turn = 0;
  draw_often(store, counts);
  for (uint32_t i = 0; i < ITEMS; i++) assert_true(counts[i] == turn / ITEMS + (i < turn % ITEMS));
  rv_store_unref(store);
  rv_registry_free(registry);
}

int main(void)
{
  static rv_selector_config uniform = {.kind = RV_SELECTOR_UNIFORM}, fifo = {.kind = RV_SELECTOR_FIFO},
                            max_heap = {.kind = RV_SELECTOR_MAX_HEAP},
                            prioritized = {.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 0.6};
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_prestate(draws_of_a_random_sampler_stay_as_likely, &uniform),
      cmocka_unit_test_prestate(draws_of_a_random_sampler_stay_as_likely, &prioritized),
      cmocka_unit_test_prestate(draws_of_one_item_end_there_too, &fifo),
      cmocka_unit_test_prestate(draws_of_one_item_end_there_too, &max_heap),
      cmocka_unit_test(a_registered_selector_is_asked_once_for_each_item_handed_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
