#include "store/testing.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "store/chunk_parts.h"
#include "store/table_parts.h"

static rv_table_config plain(int64_t max_size)
{
  return rv_table_config_default("plain", max_size);
}

static size_t present(rv_table *table, uint64_t key)
{
  rv_draw draw;
  if (rv_table_get(table, key, &draw, NULL) != RV_OK) return 0;
  rv_draw_release(&draw);
  return 1;
}

static int64_t value_at(rv_table *table, uint64_t key)
{
  rv_error err;
  rv_draw draw;
  must(rv_table_get(table, key, &draw, &err), &err);
  int64_t value = value_of(&draw);
  rv_draw_release(&draw);
  return value;
}

/* ---- keys ---- */

static void keys_made_by_the_table_are_found_and_never_come_back(void **state)
{
  (void)state;
  rv_table_config config = plain(3);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  uint64_t keys[100];
  for (int64_t i = 0; i < 100; i++) {
    rv_rows rows;
    assert_int_equal(add_values(table, &rows, &i, 1, &keys[i]), RV_SUBMIT_DONE);
    for (int64_t k = 0; k < i; k++) assert_int_not_equal(keys[k], keys[i]);
    for (int64_t k = 0; k <= i; k++) assert_int_equal(present(table, keys[k]), k + 3 > i);
    assert_int_equal(value_at(table, keys[i]), i);
  }
  uint64_t unknown[100];
  size_t num_unknown;
  double priorities[100] = {0};
  rv_error err;
  must(rv_table_update_priorities(table, keys, priorities, 100, unknown, &num_unknown, &err), &err);
  assert_int_equal(num_unknown, 97);
  assert_memory_equal(unknown, keys, 97 * sizeof *keys);
  rv_store_unref(store);
}

static void a_foreign_key_may_be_any_number(void **state)
{
  (void)state;
  rv_table_config config = plain(100);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  const uint64_t keys[] = {0, 1, UINT64_MAX, UINT64_C(1) << 63, 63, 64};
  for (size_t i = 0; i < 6; i++) assert_int_equal(insert_value(store, table, keys[i], 1, (int64_t)i), RV_OK);
  for (size_t i = 0; i < 6; i++) assert_int_equal(value_at(table, keys[i]), i);
  /* keys of the table's own making, brought back as if they were foreign, in another order */
  uint64_t own[20];
  int64_t values[20];
  rv_rows rows;
  for (int i = 0; i < 20; i++) values[i] = 100 + i;
  add_values(table, &rows, values, 20, own);
  size_t num_unknown;
  rv_error err;
  must(rv_table_mutate(table, NULL, 0, own, 20, NULL, &num_unknown, &err), &err);
  for (int i = 0; i < 20; i++) assert_int_equal(insert_value(store, table, own[i], 1, 200 + i), RV_OK);
  for (int i = 0; i < 20; i++) assert_int_equal(value_at(table, own[i]), 200 + i);
  must(rv_table_mutate(table, NULL, 0, own, 20, NULL, &num_unknown, &err), &err);
  assert_int_equal(num_unknown, 0);
  for (size_t i = 0; i < 6; i++) assert_int_equal(value_at(table, keys[i]), i);
  rv_store_unref(store);
}

/* ---- refusals ---- */

static void a_bad_priority_changes_nothing(void **state)
{
  (void)state;
  rv_table_config config = plain(10);
  config.remover = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  assert_int_equal(insert_value(store, table, 1, 1, 1), RV_OK);
  const double bad[] = {NAN, -1, INFINITY, -INFINITY};
  for (size_t i = 0; i < 4; i++) {
    assert_int_equal(insert_value(store, table, 2, bad[i], 2), RV_INVALID_ARGUMENT);
    assert_int_equal(insert_value(store, table, 1, bad[i], 2), RV_INVALID_ARGUMENT);
    rv_key_priority updates[] = {{1, 5}, {1, bad[i]}};
    uint64_t deletes[] = {1};
    size_t num_unknown;
    rv_error err;
    assert_int_equal(rv_table_mutate(table, updates, 2, deletes, 1, NULL, &num_unknown, &err), RV_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "table \"plain\""));
    int64_t value = 3, shape = 1;
    rv_tensor column = {RV_INT64, 1, &shape, &value};
    rv_rows rows = {.columns = &column, .num_columns = 1, .n = 1, .priorities = &bad[i]};
    assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_DONE);
    assert_int_equal(rows.waiter.code, RV_INVALID_ARGUMENT);
  }
  rv_table_info info = info_of(table);
  assert_int_equal(info.current_size, 1);
  assert_int_equal(info.inserts, 1);
  assert_true(info.max_priority == 1);
  rv_table_info_fini(&info);
  rv_store_unref(store);
}

static void without_a_prioritized_selector_only_nan_is_bad(void **state)
{
  (void)state;
  rv_table_config config = plain(10);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  assert_int_equal(insert_value(store, table, 1, -INFINITY, 1), RV_OK);
  assert_int_equal(insert_value(store, table, 2, INFINITY, 1), RV_OK);
  assert_int_equal(insert_value(store, table, 3, NAN, 1), RV_INVALID_ARGUMENT);
  rv_table_info info = info_of(table);
  assert_true(info.min_priority == -INFINITY && info.max_priority == INFINITY);
  rv_table_info_fini(&info);
  rv_store_unref(store);
}

static void rows_must_fit_the_signature(void **state)
{
  (void)state;
  const int64_t any[] = {-1}, three = 3;
  const rv_spec specs[] = {{"obs", RV_FLOAT32, 1, any}, {"done", RV_BOOL, 0, NULL}};
  const rv_signature signature = {.specs = specs, .num_specs = 2};
  rv_table_config config = plain(10);
  config.signature = &signature;
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  float obs[6] = {0};
  uint8_t done[3] = {0};
  const int64_t two_d[] = {3, 2};
  rv_tensor good[] = {{RV_FLOAT32, 2, two_d, obs}, {RV_BOOL, 1, &three, done}};
  rv_rows rows = {.columns = good, .num_columns = 2, .n = 3};
  assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_DONE);
  must(rows.waiter.code, &rows.waiter.error);
  rv_tensor bad[] = {good[0], {RV_UINT8, 1, &three, done}};
  rows = (rv_rows){.columns = bad, .num_columns = 2, .n = 3};
  assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_DONE);
  assert_int_equal(rows.waiter.code, RV_INVALID_ARGUMENT);
  assert_non_null(strstr(rows.waiter.error.message, "signature of column 1 \"done\" is bool[], got uint8[]"));
  rows = (rv_rows){.columns = good, .num_columns = 1, .n = 3};
  rv_table_insert_rows(table, &rows);
  assert_int_equal(rows.waiter.code, RV_INVALID_ARGUMENT);
  rows = (rv_rows){.columns = good, .num_columns = 2, .n = 4};
  rv_table_insert_rows(table, &rows);
  assert_int_equal(rows.waiter.code, RV_INVALID_ARGUMENT);
  rv_tensor no_data[] = {{RV_FLOAT32, 2, two_d, NULL}, good[1]};
  rows = (rv_rows){.columns = no_data, .num_columns = 2, .n = 3};
  rv_table_insert_rows(table, &rows);
  assert_int_equal(rows.waiter.code, RV_INVALID_ARGUMENT);
  assert_int_equal(insert_value(store, table, 1, 1, 1), RV_INVALID_ARGUMENT);
  rv_table_info info = info_of(table);
  assert_int_equal(info.current_size, 3);
  assert_string_equal(info.signature.specs[0].name, "obs");
  rv_table_info_fini(&info);
  rv_store_unref(store);
}

/* ---- rows ---- */

static void rows_of_changing_kinds_and_strings_read_back(void **state)
{
  (void)state;
  rv_table_config config = plain(2000);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  uint64_t keys[300][4];
  for (int64_t i = 0; i < 300; i++) {
    int64_t numbers[] = {i, i + 1}, two = 2, wide_shape[] = {2, 100};
    rv_bytes texts[] = {{"abcdefghij", (size_t)(i % 11)}, {"z", 1}};
    double wide[200];
    for (int k = 0; k < 200; k++) wide[k] = (double)i;
    rv_tensor columns[] = {{RV_INT64, 1, &two, numbers}, {RV_STRING, 1, &two, texts}, {RV_FLOAT64, 2, wide_shape, wide}};
    rv_rows rows = {.columns = columns, .num_columns = 1 + (size_t)i % 3, .n = 2, .keys = keys[i]};
    assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_DONE);
    must(rows.waiter.code, &rows.waiter.error);
  }
  for (int64_t i = 0; i < 300; i++) {
    rv_draw draw;
    rv_error err;
    must(rv_table_get(table, keys[i][0], &draw, &err), &err);
    assert_int_equal(value_of(&draw), i);
    assert_int_equal(draw.trajectory->num_columns, 1 + i % 3);
    if (i % 3 > 0) {
      rv_bytes text;
      must(rv_draw_copy_column(&draw, 1, &text, &err), &err);
      assert_int_equal(text.size, i % 11);
      assert_memory_equal(text.size == 0 ? "" : text.data, "abcdefghij", text.size);
    }
    if (i % 3 == 2) {
      double wide[100];
      must(rv_draw_copy_column(&draw, 2, wide, &err), &err);
      assert_true(wide[99] == (double)i);
    }
    rv_draw_release(&draw);
  }
  rv_store_unref(store);
}

/* A batch of columns that stand beside each other, and one that does not, over several segments, against the same read one by
 * one. */
static void a_batch_of_rows_is_what_its_items_are(void **state)
{
  (void)state;
  enum { N = 3000, BATCH = 300 };
  rv_table_config config = plain(N);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  static float a[N][3], large[N][80];
  static int64_t b[N];
  static uint8_t c[N];
  for (int i = 0; i < N; i++) {
    for (int k = 0; k < 3; k++) a[i][k] = (float)(i * 3 + k);
    for (int k = 0; k < 80; k++) large[i][k] = (float)(i * 80 + k);
    b[i] = -i;
    c[i] = (uint8_t)(i % 256);
  }
  const int64_t shape_a[] = {N, 3}, shape_large[] = {N, 80}, n = N;
  rv_tensor columns[] = {
      {RV_FLOAT32, 2, shape_a, a}, {RV_INT64, 1, &n, b}, {RV_FLOAT32, 2, shape_large, large}, {RV_UINT8, 1, &n, c}};
  for (int round = 0; round < 3; round++) {
    rv_rows rows = {.columns = columns, .num_columns = 4, .n = N};
    assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_DONE);
    must(rows.waiter.code, &rows.waiter.error);
    static rv_draw draws[BATCH];
    rv_sampling sampling = {.want = BATCH, .draws = draws};
    rv_table_sample(table, &sampling);
    static float out_a[BATCH][3], out_large[BATCH][80];
    static int64_t out_b[BATCH];
    static uint8_t out_c[BATCH];
    const int64_t lengths[] = {1, 1, 1, 1};
    rv_error err;
    must(rv_draws_gather_all(draws, BATCH, lengths, (void *const[]){out_a, out_b, out_large, out_c}, 4, &err), &err);
    for (int i = 0; i < BATCH; i++) {
      int64_t row = -out_b[i], alone;
      must(rv_draw_copy_column(&draws[i], 1, &alone, &err), &err);
      assert_int_equal(alone, out_b[i]);
      assert_memory_equal(out_a[i], a[row], sizeof a[row]);
      assert_memory_equal(out_large[i], large[row], sizeof large[row]);
      assert_int_equal(out_c[i], c[row]);
    }
    rv_draws_release(draws, BATCH);
  }
  rv_store_unref(store);
}

/* Full, with holes after deletes, and nearly empty: three ways of drawing. */
static void uniform_draws_are_uniform_whatever_the_slots_look_like(void **state)
{
  (void)state;
  enum { N = 40, DRAWS = 256, ROUNDS = 400 };
  rv_table_config config = plain(N);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  int64_t values[N];
  uint64_t keys[N];
  for (int64_t i = 0; i < N; i++) values[i] = i;
  rv_rows rows;
  add_values(table, &rows, values, N, keys);
  const size_t deletes[] = {0, 3, 27};
  size_t gone = 0;
  for (int stage = 0; stage < 3; stage++) {
    size_t num_unknown;
    rv_error err;
    must(rv_table_mutate(table, NULL, 0, keys + gone, deletes[stage], NULL, &num_unknown, &err), &err);
    gone += deletes[stage];
    double counts[N] = {0}, expected = (double)DRAWS * ROUNDS / (double)(N - gone), chi2 = 0;
    for (int round = 0; round < ROUNDS; round++) {
      static rv_draw draws[DRAWS];
      rv_sampling sampling = {.want = DRAWS, .draws = draws};
      rv_table_sample(table, &sampling);
      for (int i = 0; i < DRAWS; i++) counts[value_of(&draws[i])]++;
      assert_true(draws[0].probability == 1.0 / (double)(N - gone));
      rv_draws_release(draws, DRAWS);
    }
    for (size_t i = 0; i < N; i++) {
      if (i < gone)
        assert_true(counts[i] == 0);
      else
        chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    assert_true(chi2 < 100); /* 39 degrees of freedom or fewer: once in ten million */
  }
  rv_store_unref(store);
}

static void large_rows_are_inserted_as_the_limiter_allows(void **state)
{
  (void)state;
  enum { N = 600, BYTES = 40000 };
  rv_table_config config = plain(N);
  config.rate_limiter = rv_rate_limiter_sample_to_insert_ratio(1, 1, 100);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  uint8_t *data = malloc((size_t)N * BYTES);
  for (size_t i = 0; i < N; i++) memset(data + i * BYTES, (int)(i % 251), BYTES);
  uint64_t *keys = calloc(N, sizeof *keys);
  const int64_t shape[] = {N, BYTES};
  rv_tensor column = {RV_UINT8, 2, shape, data};
  rv_rows rows = {.columns = &column, .num_columns = 1, .n = N, .keys = keys};
  assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_PENDING);
  size_t first = rows.done;
  assert_true(first > 0 && first < N);
  rv_draw draws[300];
  rv_sampling sampling = {.want = 300, .partial = true, .draws = draws};
  assert_int_equal(rv_table_sample(table, &sampling), RV_SUBMIT_DONE);
  assert_true(rows.done > first);
  uint8_t row[BYTES];
  rv_error err;
  for (size_t i = 0; i < sampling.count; i++) {
    must(rv_draw_copy_column(&draws[i], 0, row, &err), &err);
    size_t at = 0;
    while (at < N && keys[at] != draws[i].key) at++;
    assert_int_equal(row[0], at % 251);
    assert_int_equal(row[BYTES - 1], at % 251);
  }
  rv_draws_release(draws, sampling.count);
  assert_true(rv_waiter_cancel(&rows.waiter));
  rv_table_info info = info_of(table);
  assert_int_equal(info.inserts, rows.done);
  rv_table_info_fini(&info);
  free(keys);
  free(data);
  rv_store_unref(store);
}

static void a_table_of_one_item_keeps_the_newest_row(void **state)
{
  (void)state;
  rv_table_config config = plain(1);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  int64_t values[500];
  uint64_t keys[500];
  for (int64_t i = 0; i < 500; i++) values[i] = i;
  rv_rows rows;
  assert_int_equal(add_values(table, &rows, values, 500, keys), RV_SUBMIT_DONE);
  assert_int_equal(rows.done, 500);
  assert_int_equal(value_at(table, keys[499]), 499);
  rv_table_info info = info_of(table);
  assert_int_equal(info.current_size, 1);
  assert_int_equal(info.deletes, 499);
  assert_true(info.memory_bytes < 200000);
  rv_table_info_fini(&info);
  rv_store_unref(store);
}

/* ---- looking ---- */

static void a_listing_neither_misses_nor_repeats_what_stays(void **state)
{
  (void)state;
  enum { N = 3000 };
  rv_table_config config = plain(2 * N);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  rv_random random;
  rv_random_init(&random, 5);
  uint64_t keys[N];
  int64_t values[N];
  uint8_t seen[N] = {0}, gone[N] = {0};
  rv_rows rows;
  for (int64_t i = 0; i < N; i++) values[i] = i;
  add_values(table, &rows, values, N, keys);
  uint64_t cursor = 0;
  int64_t last = -1;
  rv_error err;
  do {
    rv_item_info page[300];
    size_t count, num_unknown;
    /* many other listings in between push this one's mark out */
    for (uint64_t i = 0, other; i < 100 && last > 1000 && last < 1200; i++) {
      other = 0;
      must(rv_table_items(table, &other, page, 1 + i, &count, &err), &err);
    }
    must(rv_table_items(table, &cursor, page, 7 + rv_random_below(&random, 290), &count, &err), &err);
    for (size_t i = 0; i < count; i++) {
      int64_t value = value_at(table, page[i].key);
      if (value < 0) continue; /* inserted meanwhile */
      assert_true(value > last);
      assert_int_equal(seen[value]++, 0);
      last = value;
    }
    for (int i = 0; i < 40; i++) {
      uint32_t victim = last + 1 < N && i < 10 ? (uint32_t)last + 1 + (uint32_t)i : rv_random_below(&random, N);
      if (victim >= N) continue;
      must(rv_table_mutate(table, NULL, 0, &keys[victim], 1, NULL, &num_unknown, &err), &err);
      gone[victim] = 1;
    }
    int64_t more = -1;
    add_values(table, &rows, &more, 1, NULL);
  } while (cursor != 0);
  for (int i = 0; i < N; i++) assert_true(seen[i] == 1 || gone[i] == 1);
  rv_store_unref(store);
}

/* Who has seen a key of the table's gives many items those that it would make next for the row that comes. */
static void keys_that_were_foreseen_do_not_keep_a_row_out(void **state)
{
  (void)state;
  enum { N = 100000 };
  rv_table_config config = plain(2 * N);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  rv_rows rows;
  const int64_t value = 1;
  uint64_t key, low = UINT64_C(0x00FFFFFFFFFFFFFF);
  add_values(table, &rows, &value, 1, &key);
  unsigned slot_bits = 0;
  while ((1U << slot_bits) < 2 * N + 1) slot_bits++;
  const uint64_t next_slot = N + 1, count = (key & low) >> slot_bits;
  for (uint64_t i = 1; i <= N; i++) insert_value(store, table, (key & ~low) | ((count + i) << slot_bits & low) | next_slot, 1, 2);
  add_values(table, &rows, &value, 1, &key);
  assert_int_equal(key & ((1U << slot_bits) - 1), next_slot); /* they were foreseen rightly, */
  assert_true(((key & low) >> slot_bits) > count + N + 1);    /* but not met one after another */
  rv_store_unref(store);
}

static void info_counts_what_happened(void **state)
{
  (void)state;
  rv_table_config config = plain(4);
  config.sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 0.5};
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  rv_table_info info = info_of(table);
  assert_true(isnan(info.min_priority) && isnan(info.max_priority));
  rv_table_info_fini(&info);
  for (int i = 0; i < 6; i++)
    assert_int_equal(insert_value(store, table, (uint64_t)i, i + 1, (i + 1) * 4), RV_OK); /* of an episode each */
  rv_draw draws[9];
  rv_sampling sampling = {.want = 9, .draws = draws};
  rv_table_sample(table, &sampling);
  rv_draws_release(draws, 9);
  info = info_of(table);
  assert_string_equal(info.name, "plain");
  assert_int_equal(info.current_size, 4);
  assert_int_equal(info.inserts, 6);
  assert_int_equal(info.samples, 9);
  assert_int_equal(info.deletes, 2);
  assert_int_equal(info.num_episodes, 4);
  assert_int_equal(info.num_deleted_episodes, 2);
  assert_true(info.num_unique_samples >= 1 && info.num_unique_samples <= 4);
  assert_true(info.min_priority == 3 && info.max_priority == 6);
  assert_true(info.sampler.priority_exponent == 0.5);
  assert_true(info.inserts_per_second > 0);
  assert_true(info.memory_bytes > 0);
  assert_string_equal(info.extensions, "");
  rv_table_info_fini(&info);
  rv_store_unref(store);
}

/* A clock by whose first reading somebody comes and waits, before the reader goes on, if only the table can be had. */
typedef struct meeting {
  rv_table *table;
  atomic_llong at_ns;
  atomic_bool begun, waits;
  pthread_t other;
  rv_sampling sampling;
  rv_draw draw;
} meeting;

static void *wait_for_an_item(void *argument)
{
  meeting *m = argument;
  m->sampling = (rv_sampling){.want = 1, .draws = &m->draw, .waiter = {.deadline_ns = INT64_MAX}};
  assert_int_equal(rv_table_sample(m->table, &m->sampling), RV_SUBMIT_PENDING);
  atomic_store(&m->waits, true);
  return NULL;
}

static int64_t meeting_ns(void *context)
{
  meeting *m = context;
  int64_t now = atomic_fetch_add(&m->at_ns, 1000);
  if (m->table == NULL || atomic_exchange(&m->begun, true)) return now;
  pthread_create(&m->other, NULL, wait_for_an_item, m);
  for (int i = 0; i < 100 && !atomic_load(&m->waits); i++) usleep(1000);
  return now;
}

static void who_begins_to_wait_while_the_table_is_described_has_not_waited_less_than_no_time(void **state)
{
  (void)state;
  meeting m = {.table = NULL};
  rv_env env = {.size = sizeof env, .context = &m, .monotonic_ns = meeting_ns};
  rv_table_config config = plain(10);
  rv_store_config whole = {.size = sizeof whole, .tables = &config, .num_tables = 1, .env = &env};
  rv_store *store = NULL;
  rv_error err;
  must(rv_store_new(&whole, &store, &err), &err);
  m.table = rv_store_table(store, 0);
  rv_table_info info = info_of(m.table);
  assert_true(atomic_load(&m.begun));
  assert_true(info.waiting_for_inserts_ns >= 0 && info.waiting_for_sampling_ns >= 0);
  assert_true(info.sleeping_ns > 0);
  rv_table_info_fini(&info);
  pthread_join(m.other, NULL);
  assert_true(rv_waiter_cancel(&m.sampling.waiter));
  rv_store_unref(store);
}

static void mixed_layouts_are_refused_before_anything_is_counted(void **state)
{
  (void)state;
  rv_table_config config = plain(10);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  assert_int_equal(insert_value(store, table, 1, 1, 1), RV_OK);
  rv_draw draws[4];
  rv_sampling sampling = {.want = 4, .same_layout = true, .draws = draws};
  rv_table_sample(table, &sampling);
  must(sampling.waiter.code, &sampling.waiter.error);
  rv_draws_release(draws, 4);
  rv_chunk *chunk = chunk_of(5, 1);
  rv_insert insert = {.key = 2, .priority = 1};
  rv_slice slices[] = {{chunk, 0, 0, 1}, {chunk, 0, 0, 1}};
  rv_trajectory_desc desc = {.slices = slices, .num_slices = (uint32_t[]){2}, .squeeze = (bool[]){false}, .num_columns = 1};
  rv_error err;
  must(rv_trajectory_new(rv_store_layouts(store), &desc, &insert.trajectory, &err), &err);
  rv_table_insert(table, &insert);
  must(insert.waiter.code, &insert.waiter.error);
  sampling = (rv_sampling){.want = 4, .same_layout = true, .draws = draws};
  assert_int_equal(rv_table_sample(table, &sampling), RV_SUBMIT_DONE);
  assert_int_equal(sampling.waiter.code, RV_FAILED_PRECONDITION);
  assert_int_equal(sampling.count, 0);
  rv_table_info info = info_of(table);
  assert_int_equal(info.samples, 4);
  rv_table_info_fini(&info);
  size_t num_unknown;
  uint64_t key = 2;
  must(rv_table_mutate(table, NULL, 0, &key, 1, NULL, &num_unknown, &err), &err);
  sampling = (rv_sampling){.want = 4, .same_layout = true, .draws = draws};
  rv_table_sample(table, &sampling);
  must(sampling.waiter.code, &sampling.waiter.error);
  rv_draws_release(draws, 4);
  rv_trajectory_unref(insert.trajectory);
  rv_chunk_unref(chunk);
  rv_store_unref(store);
}

static void items_of_ever_new_shapes_are_kept_and_read(void **state)
{
  (void)state;
  enum { ROWS = 700 };
  rv_table_config config = plain(400);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  rv_error err;
  rv_chunk *chunk;
  rv_spec spec = {.name = "", .dtype = RV_INT64};
  rv_chunk_meta meta = {.key = 1};
  must(rv_segment_new(&spec, 1, ROWS, &meta, &chunk, &err), &err);
  for (int64_t row = 0; row < ROWS; row++) {
    rv_tensor cell = {RV_INT64, 0, NULL, &row};
    must(rv_segment_put(chunk, 0, row, &cell, &err), &err);
  }
  rv_segment_publish(chunk, 0, ROWS);
  for (int32_t length = 1; length <= ROWS; length++) {
    rv_insert insert = {.key = (uint64_t)length, .priority = 1, .trajectory = trajectory_of(store, chunk, ROWS - length, length)};
    rv_table_insert(table, &insert);
    must(insert.waiter.code, &insert.waiter.error);
    rv_trajectory_unref(insert.trajectory);
    rv_rows rows;
    int64_t value = -length;
    if (length % 7 == 0) add_values(table, &rows, &value, 1, NULL);
    if (length % 7 == 0) must(rows.waiter.code, &rows.waiter.error);
  }
  for (uint64_t key = 360; key <= ROWS; key++) {
    rv_draw draw;
    must(rv_table_get(table, key, &draw, &err), &err);
    int64_t values[ROWS];
    must(rv_draw_copy_column(&draw, 0, values, &err), &err);
    assert_int_equal(values[0], ROWS - key);
    assert_int_equal(values[key - 1], ROWS - 1);
    rv_draw_release(&draw);
  }
  must(rv_table_reset(table, &err), &err);
  assert_int_equal(rv_chunk_refs(chunk), 1);
  rv_chunk_unref(chunk);
  rv_store_unref(store);
}

/* One row of an int64, as it came. */
static rv_chunk *small_chunk(int64_t value)
{
  rv_error err;
  rv_chunk *chunk = NULL;
  const int64_t shape = 1;
  uint8_t content[2 + sizeof value] = {sizeof value, (sizeof value - 1) << 2}; /* its size, then one literal */
  memcpy(content + 2, &value, sizeof value);
  rv_encoded tensor = {.dtype = RV_INT64, .rank = 1, .shape = &shape, .content = content, .content_size = sizeof content};
  rv_chunk_meta meta = {.key = (uint64_t)value, .episode_id = 1};
  must(rv_chunk_new_encoded_copy(&meta, &tensor, 1, content, sizeof content, &chunk, &err), &err);
  return chunk;
}

/* What an item refers to is looked at once, under no lock: else this one, some 20 MB of a client's, would keep everybody else from the table
 * for minutes (and this test beyond its time). */
static void an_item_of_very_many_chunks_costs_the_same_in_any_order(void **state)
{
  (void)state;
  enum { CHUNKS = 400000 };
  rv_table_config config = plain(10);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  rv_error err;
  rv_slice *slices = malloc(2 * CHUNKS * sizeof *slices);
  for (size_t i = 0; i < CHUNKS; i++)
    slices[i] = slices[2 * CHUNKS - 1 - i] = (rv_slice){.chunk = small_chunk((int64_t)i), .length = 1};
  rv_insert insert = {.key = 1, .priority = 1};
  rv_trajectory_desc desc = {
      .slices = slices, .num_slices = (uint32_t[]){CHUNKS, CHUNKS}, .squeeze = (bool[]){false, false}, .num_columns = 2};
  must(rv_trajectory_new(rv_store_layouts(store), &desc, &insert.trajectory, &err), &err);
  for (size_t i = 0; i < CHUNKS; i++) rv_chunk_unref(slices[i].chunk);
  free(slices);
  assert_int_equal(rv_table_insert(table, &insert), RV_SUBMIT_DONE);
  must(insert.waiter.code, &insert.waiter.error);
  rv_trajectory_unref(insert.trajectory);
  rv_draw draw;
  int64_t *values = malloc(CHUNKS * sizeof *values);
  must(rv_table_get(table, 1, &draw, &err), &err);
  must(rv_draw_copy_column(&draw, 1, values, &err), &err);
  for (int64_t i = 0; i < CHUNKS; i++) assert_int_equal(values[i], CHUNKS - 1 - i);
  free(values);
  rv_draw_release(&draw);
  rv_store_unref(store);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(keys_made_by_the_table_are_found_and_never_come_back),
      cmocka_unit_test(a_foreign_key_may_be_any_number),
      cmocka_unit_test(a_bad_priority_changes_nothing),
      cmocka_unit_test(without_a_prioritized_selector_only_nan_is_bad),
      cmocka_unit_test(rows_must_fit_the_signature),
      cmocka_unit_test(rows_of_changing_kinds_and_strings_read_back),
      cmocka_unit_test(a_batch_of_rows_is_what_its_items_are),
      cmocka_unit_test(uniform_draws_are_uniform_whatever_the_slots_look_like),
      cmocka_unit_test(large_rows_are_inserted_as_the_limiter_allows),
      cmocka_unit_test(a_table_of_one_item_keeps_the_newest_row),
      cmocka_unit_test(a_listing_neither_misses_nor_repeats_what_stays),
      cmocka_unit_test(keys_that_were_foreseen_do_not_keep_a_row_out),
      cmocka_unit_test(info_counts_what_happened),
      cmocka_unit_test(who_begins_to_wait_while_the_table_is_described_has_not_waited_less_than_no_time),
      cmocka_unit_test(mixed_layouts_are_refused_before_anything_is_counted),
      cmocka_unit_test(items_of_ever_new_shapes_are_kept_and_read),
      cmocka_unit_test(an_item_of_very_many_chunks_costs_the_same_in_any_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
