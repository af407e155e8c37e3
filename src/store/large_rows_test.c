/* Large rows, and large batches of rows: copied before the table is entered, into segments that are lent and used again. */
#include <pthread.h>

#include "base/past_caches.h"
#include "store/testing.h"

enum { WIDE = 9000, MOST = 400 };

static void ignore(rv_waiter *waiter)
{
  (void)waiter;
}

/* n rows; each has its number everywhere. */
typedef struct wide_rows {
  rv_rows rows;
  rv_tensor columns[2];
  int64_t shape, shape_wide[2];
  int64_t *numbers, *wide;
} wide_rows;

static rv_submitted add_wide(rv_table *table, wide_rows *w, int64_t number, size_t n, uint64_t *keys)
{
  w->numbers = malloc(n * sizeof *w->numbers);
  w->wide = malloc(n * WIDE);
  w->shape = w->shape_wide[0] = (int64_t)n;
  w->shape_wide[1] = WIDE / 8;
  for (size_t i = 0; i < n; i++) {
    w->numbers[i] = number + (int64_t)i;
    for (size_t k = 0; k < WIDE / 8; k++) w->wide[i * (WIDE / 8) + k] = w->numbers[i];
  }
  w->columns[0] = (rv_tensor){RV_INT64, 1, &w->shape, w->numbers};
  w->columns[1] = (rv_tensor){RV_INT64, 2, w->shape_wide, w->wide};
  w->rows = (rv_rows){.columns = w->columns, .num_columns = 2, .n = n, .keys = keys};
  w->rows.waiter.deadline_ns = INT64_MAX;
  w->rows.waiter.complete = ignore;
  return rv_table_insert_rows(table, &w->rows);
}

static void free_wide(wide_rows *w)
{
  free(w->numbers);
  free(w->wide);
}

static void assert_wide(const rv_draw *draw, int64_t number)
{
  static _Thread_local int64_t wide[WIDE / 8];
  rv_error err;
  assert_int_equal(value_of(draw), number);
  must(rv_draw_copy_column(draw, 1, wide, &err), &err);
  for (size_t k = 0; k < WIDE / 8; k++) assert_int_equal(wide[k], number);
}

static void batches_of_all_sizes_leave_the_newest_rows_in_the_table(void **state)
{
  (void)state;
  enum { SIZE = 500, ROUNDS = 120 };
  uint64_t seed = 7, *keys = calloc(ROUNDS * MOST, sizeof *keys);
  rv_random random;
  rv_random_init(&random, seed);
  rv_table_config config = rv_table_config_default("t", SIZE);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  int64_t total = 0, most_memory = 0;
  for (int round = 0; round < ROUNDS; round++) {
    size_t n = rv_random_next(&random) % 3 == 0 ? 1 : 1 + rv_random_next(&random) % MOST;
    wide_rows w;
    assert_int_equal(add_wide(table, &w, total, n, keys + total), RV_SUBMIT_DONE);
    must(w.rows.waiter.code, &w.rows.waiter.error);
    free_wide(&w);
    total += (int64_t)n;
    rv_table_info info = info_of(table);
    assert_int_equal(info.current_size, total < SIZE ? total : SIZE);
    if (info.memory_bytes > most_memory) most_memory = info.memory_bytes;
    for (int64_t i = total - info.current_size; i < total; i += 1 + (int64_t)(rv_random_next(&random) % 50)) {
      rv_draw draw;
      rv_error err;
      must(rv_table_get(table, keys[i], &draw, &err), &err);
      assert_wide(&draw, i);
      rv_draw_release(&draw);
    }
    rv_table_info_fini(&info);
  }
  assert_true(most_memory < (int64_t)(SIZE + 2 * MOST) * (WIDE + 8) * 5 / 4);
  rv_store_unref(store);
  free(keys);
}

typedef struct adder {
  rv_table *table;
  int64_t first;
} adder;

static void *add_some(void *context)
{
  const adder *a = context;
  int64_t number = a->first;
  for (size_t i = 0; i < 40; i++) {
    wide_rows w;
    size_t n = 1 + i % 23;
    assert_int_equal(add_wide(a->table, &w, number, n, NULL), RV_SUBMIT_DONE);
    assert_int_equal(w.rows.waiter.code, RV_OK);
    free_wide(&w);
    number += (int64_t)n;
  }
  return NULL;
}

static void threads_that_add_and_sample_large_rows_never_see_a_torn_one(void **state)
{
  (void)state;
  enum { THREADS = 3, BATCH = 64 };
  rv_table_config config = rv_table_config_default("t", 150);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  pthread_t threads[THREADS];
  adder adders[THREADS];
  wide_rows begin;
  add_wide(table, &begin, 0, 100, NULL);
  free_wide(&begin);
  for (int i = 0; i < THREADS; i++) {
    adders[i] = (adder){table, (int64_t)(i + 1) << 32};
    assert_int_equal(pthread_create(&threads[i], NULL, add_some, &adders[i]), 0);
  }
  static int64_t numbers[BATCH], wide[BATCH][WIDE / 8];
  for (int round = 0; round < 60; round++) {
    static rv_draw draws[BATCH];
    rv_sampling sampling = {.want = BATCH, .draws = draws};
    assert_int_equal(rv_table_sample(table, &sampling), RV_SUBMIT_DONE);
    const int64_t lengths[] = {1, 1};
    rv_error err;
    must(rv_draws_gather_together(rv_store_crew(store), draws, BATCH, lengths, (void *const[]){numbers, wide}, 2, &err), &err);
    for (int i = 0; i < BATCH; i++)
      for (size_t k = 0; k < WIDE / 8; k++) assert_int_equal(wide[i][k], numbers[i]);
    rv_draws_release(draws, BATCH);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  rv_store_unref(store);
}

/* The copies were made when the rows came; by the time the limiter lets them in, others have used the segment too. */
static void large_rows_that_had_to_wait_are_inserted_unchanged(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("t", 100);
  config.rate_limiter = rv_rate_limiter_queue(10);
  config.max_times_sampled = 1;
  config.sampler.kind = RV_SELECTOR_FIFO;
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  static wide_rows rows[3];
  assert_int_equal(add_wide(table, &rows[0], 0, 8, NULL), RV_SUBMIT_DONE);
  assert_int_equal(add_wide(table, &rows[1], 8, 20, NULL), RV_SUBMIT_PENDING);
  assert_int_equal(add_wide(table, &rows[2], 28, 5, NULL), RV_SUBMIT_PENDING);
  for (int64_t i = 0; i < 33; i++) {
    rv_draw draw;
    rv_sampling sampling = {.want = 1, .draws = &draw};
    assert_int_equal(rv_table_sample(table, &sampling), RV_SUBMIT_DONE);
    must(sampling.waiter.code, &sampling.waiter.error);
    assert_wide(&draw, i);
    rv_draw_release(&draw);
  }
  for (int i = 0; i < 3; i++) free_wide(&rows[i]);
  rv_store_unref(store);
}

/* ---- more rows than are copied at one time ---- */

enum { PIECES_BOUND = 32 << 20, MANY = 1000 };

static void go_on(rv_waiter *waiter)
{
  rv_rows *rows = RV_CONTAINER(waiter, rv_rows, waiter);
  if (rv_rows_are_left(rows)) rv_table_insert_rows_left(waiter->table, rows);
}

static void more_rows_than_one_piece_go_in_in_order(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("t", 10000);
  config.max_bytes = PIECES_BOUND;
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  uint64_t keys[MANY];
  static wide_rows w;
  for (int round = 0; round < 4; round++) {
    assert_int_equal(add_wide(table, &w, round * MANY, MANY, keys), RV_SUBMIT_DONE);
    must(w.rows.waiter.code, &w.rows.waiter.error);
    assert_int_equal(w.rows.done, MANY);
    assert_true(w.rows.begun > 0); /* else it was one piece */
    free_wide(&w);
    for (int64_t i = 0; i < MANY; i++) {
      rv_draw draw;
      rv_error err;
      must(rv_table_get(table, keys[i], &draw, &err), &err);
      assert_wide(&draw, round * MANY + i);
      rv_draw_release(&draw);
    }
  }
  rv_table_info info = info_of(table);
  assert_int_equal(info.inserts, 4 * MANY);
  rv_table_info_fini(&info);
  rv_store_unref(store);
}

/* Whoever lets them in copies nothing: what is pending was copied by who brought it. */
static void what_waits_is_copied_and_what_does_not_wait_yet_follows(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("t", 10000);
  config.max_bytes = PIECES_BOUND;
  config.rate_limiter = rv_rate_limiter_queue(10);
  config.max_times_sampled = 1;
  config.sampler.kind = RV_SELECTOR_FIFO;
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  static wide_rows many, other;
  assert_int_equal(add_wide(table, &many, 0, MANY, NULL), RV_SUBMIT_PENDING);
  many.rows.waiter.complete = go_on;
  assert_int_equal(add_wide(table, &other, MANY, 1, NULL), RV_SUBMIT_PENDING);
  int64_t next = 0;
  bool others = false;
  for (int i = 0; i < MANY + 1; i++) {
    size_t copied = 0;
    for (size_t p = 0; many.rows.done < MANY && p < many.rows.num_prepared; p++) copied += many.rows.prepared[p].rows;
    if (many.rows.done < MANY && many.rows.prepared != NULL) assert_int_equal(many.rows.begun + copied, many.rows.end);
    rv_draw draw;
    rv_sampling sampling = {.want = 1, .draws = &draw};
    assert_int_equal(rv_table_sample(table, &sampling), RV_SUBMIT_DONE);
    must(sampling.waiter.code, &sampling.waiter.error);
    if (value_of(&draw) == MANY) {
      assert_false(others);
      others = true;
    } else {
      assert_wide(&draw, next++);
    }
    rv_draw_release(&draw);
  }
  assert_true(others);
  assert_int_equal(next, MANY);
  assert_int_equal(many.rows.waiter.code, RV_OK);
  free_wide(&many);
  free_wide(&other);
  rv_store_unref(store);
}

static void a_piece_that_is_taken_back_leaves_those_before_it(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("t", 10000);
  config.max_bytes = PIECES_BOUND;
  config.rate_limiter = rv_rate_limiter_queue(600);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  static wide_rows many;
  assert_int_equal(add_wide(table, &many, 0, MANY, NULL), RV_SUBMIT_PENDING);
  assert_int_equal(many.rows.done, 600);
  assert_true(rv_waiter_cancel(&many.rows.waiter));
  rv_table_info info = info_of(table);
  assert_int_equal(info.current_size, 600);
  assert_int_equal(info.num_waiting, 0);
  rv_table_info_fini(&info);
  free_wide(&many);
  rv_store_unref(store);
}

/* Such rows are written past the caches (rv_copy_past_caches), one by one and in batches. */
static void rows_of_a_table_that_no_cache_holds_are_what_was_added(void **state)
{
  (void)state;
  enum { SIZE = 5000 };
  _Static_assert((size_t)SIZE * WIDE > RV_PAST_CACHES_FROM, "a table that is larger than caches");
  static const size_t counts[] = {1, 7, 130};
  uint64_t *keys = calloc(2 * SIZE, sizeof *keys);
  rv_table_config config = rv_table_config_default("t", SIZE);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  int64_t total = 0;
  for (int round = 0; total < SIZE + SIZE / 2; round++) {
    wide_rows w;
    assert_int_equal(add_wide(table, &w, total, counts[round % 3], keys + total), RV_SUBMIT_DONE);
    must(w.rows.waiter.code, &w.rows.waiter.error);
    free_wide(&w);
    total += (int64_t)counts[round % 3];
  }
  for (int64_t i = total - SIZE; i < total; i++) {
    rv_draw draw;
    rv_error err;
    must(rv_table_get(table, keys[i], &draw, &err), &err);
    assert_wide(&draw, i);
    rv_draw_release(&draw);
  }
  rv_store_unref(store);
  free(keys);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(batches_of_all_sizes_leave_the_newest_rows_in_the_table),
      cmocka_unit_test(threads_that_add_and_sample_large_rows_never_see_a_torn_one),
      cmocka_unit_test(large_rows_that_had_to_wait_are_inserted_unchanged),
      cmocka_unit_test(more_rows_than_one_piece_go_in_in_order),
      cmocka_unit_test(what_waits_is_copied_and_what_does_not_wait_yet_follows),
      cmocka_unit_test(a_piece_that_is_taken_back_leaves_those_before_it),
      cmocka_unit_test(rows_of_a_table_that_no_cache_holds_are_what_was_added),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
