/* Rows with strings, whose bytes stand elsewhere: bounds and limits see them before they are in. */
#include "store/table_parts.h"
#include "store/testing.h"

enum { KIB = 1 << 10, MOST_ROWS = 64 };

static rv_store *store_of_one(int64_t max_bytes, size_t limit)
{
  rv_error err;
  rv_store *store = NULL;
  rv_table_config table = rv_table_config_default("replay", 10000000);
  table.max_bytes = max_bytes;
  rv_store_config config = {.size = sizeof config, .tables = &table, .num_tables = 1, .memory_limit = limit};
  must(rv_store_new(&config, &store, &err), &err);
  return store;
}

static void completed(rv_waiter *waiter)
{
  ++*(int *)waiter->context;
}

/* Rows of a string each. */
typedef struct texts {
  rv_rows rows;
  rv_tensor column;
  int64_t shape;
  rv_bytes strings[MOST_ROWS];
  int completed;
} texts;

static rv_submitted add(rv_table *table, texts *t, size_t n, size_t size)
{
  static uint8_t bytes[1024 * KIB];
  assert_true(n <= MOST_ROWS && size <= sizeof bytes);
  *t = (texts){.shape = (int64_t)n};
  for (size_t i = 0; i < n; i++) t->strings[i] = (rv_bytes){bytes, size};
  t->column = (rv_tensor){.dtype = RV_STRING, .rank = 1, .shape = &t->shape, .data = t->strings};
  t->rows = (rv_rows){.columns = &t->column, .num_columns = 1, .n = n};
  t->rows.waiter = (rv_waiter){.complete = completed, .context = &t->completed, .deadline_ns = INT64_MAX};
  return rv_table_insert_rows(table, &t->rows);
}

static int64_t size_of(rv_table *table)
{
  rv_table_info info = info_of(table);
  int64_t size = info.current_size;
  rv_table_info_fini(&info);
  return size;
}

static void a_row_whose_strings_never_fit_is_refused(void **state)
{
  (void)state;
  for (int own = 0; own < 2; own++) {
    rv_store *store = store_of_one(own ? 256 * KIB : 0, own ? 0 : 256 * KIB);
    rv_table *table = rv_store_table(store, 0);
    const char *name = own ? "max_bytes leaves room for" : "the store's memory_limit leaves room for";
    texts t;
    for (int known = 0; known < 2; known++) { /* whether rows of this form were there before or not */
      assert_int_equal(add(table, &t, 1, 1024 * KIB), RV_SUBMIT_DONE);
      assert_int_equal(t.rows.waiter.code, RV_INVALID_ARGUMENT);
      if (strstr(t.rows.waiter.error.message, "table \"replay\": a row takes 1.0 MiB") == NULL ||
          strstr(t.rows.waiter.error.message, name) == NULL)
        fail_msg("%s", t.rows.waiter.error.message);
      assert_int_equal(size_of(table), known);
      assert_int_equal(add(table, &t, 1, KIB), RV_SUBMIT_DONE);
      assert_int_equal(t.rows.waiter.code, RV_OK);
    }
    rv_store_unref(store);
  }
}

static void strings_keep_a_tables_bound(void **state)
{
  (void)state;
  enum { BOUND = 2048 * KIB };
  static const size_t sizes[] = {100, 1000, 20 * KIB, 200 * KIB};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (size_t n = 1; n <= MOST_ROWS; n *= 8) {
      rv_store *store = store_of_one(BOUND, 0);
      rv_table *table = rv_store_table(store, 0);
      int64_t fits = BOUND / (int64_t)(sizes[s] + 200);
      texts t;
      for (int64_t in = 0; in < 3 * fits; in += (int64_t)n) {
        assert_int_equal(add(table, &t, n, sizes[s]), RV_SUBMIT_DONE);
        assert_int_equal(t.rows.waiter.code, RV_OK);
        rv_table_info info = info_of(table);
        if (info.item_bytes > BOUND + BOUND / 16)
          fail_msg("%zu strings of %zu bytes: %lld bytes of %d", n, sizes[s], (long long)info.item_bytes, BOUND);
        if (in >= 2 * fits && info.current_size < fits * 2 / 3)
          fail_msg("%zu strings of %zu bytes: %lld items of %lld", n, sizes[s], (long long)info.current_size, (long long)fits);
        rv_table_info_fini(&info);
      }
      rv_store_unref(store);
    }
}

/* What a chunk of strings can take is not what it was made for: rows that fill it must not be moved again and again for that. */
static void rows_that_were_moved_together_stay_there(void **state)
{
  (void)state;
  enum { BOUND = 16384 * KIB, ROW = 10000, ROWS = 4 * BOUND / ROW, TURNS = 10000 };
  rv_error err;
  rv_store *store = NULL;
  rv_table_config config = rv_table_config_default("replay", 10000000);
  config.max_bytes = BOUND;
  config.remover.kind = RV_SELECTOR_UNIFORM;
  must(rv_store_new(&(rv_store_config){.size = sizeof(rv_store_config), .tables = &config, .num_tables = 1}, &store, &err), &err);
  rv_table *table = rv_store_table(store, 0);
  texts t;
  for (int i = 0; i < ROWS; i++) {
    assert_int_equal(add(table, &t, 1, ROW), RV_SUBMIT_DONE);
    assert_int_equal(t.rows.waiter.code, RV_OK);
  }
  int turns = 0;
  for (; rv_table_is_sparse(table) && turns < TURNS; turns++) {
    rv_turn turn;
    rv_turn_begin(&turn, table);
    rv_turn_end(&turn);
  }
  assert_true(turns < TURNS);
  rv_table_info info = info_of(table);
  assert_true(info.item_bytes <= BOUND + BOUND / 16);
  assert_true(info.current_size * ROW > BOUND / 2);
  rv_table_info_fini(&info);
  rv_store_unref(store);
}

static void near_the_limit_rows_with_strings_wait(void **state)
{
  (void)state;
  enum { LIMIT = 16384 * KIB };
  static const size_t sizes[] = {1000, 20 * KIB, 200 * KIB};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    rv_store *store = store_of_one(0, LIMIT);
    rv_table *table = rv_store_table(store, 0);
    texts t;
    rv_submitted submitted = RV_SUBMIT_DONE;
    for (size_t i = 0; submitted == RV_SUBMIT_DONE; i += MOST_ROWS) {
      assert_true(i * sizes[s] < 2 * (size_t)LIMIT);
      submitted = add(table, &t, MOST_ROWS, sizes[s]);
    }
    int64_t size = size_of(table);
    rv_memory_info info;
    rv_store_memory_info(store, &info);
    assert_true(info.used_bytes <= LIMIT);
    if ((size_t)size * sizes[s] < LIMIT / 2)
      fail_msg("%lld strings of %zu bytes are in, and %lld bytes used", (long long)size, sizes[s], (long long)info.used_bytes);
    rv_error err;
    for (int resets = 0; t.completed == 0; resets++) { /* the rest goes on, as far as there is room */
      assert_true(resets < 10);
      must(rv_table_reset(table, &err), &err);
    }
    assert_int_equal(t.rows.waiter.code, RV_OK);
    assert_int_equal(t.rows.done, MOST_ROWS);
    rv_store_unref(store);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_row_whose_strings_never_fit_is_refused),
      cmocka_unit_test(strings_keep_a_tables_bound),
      cmocka_unit_test(rows_that_were_moved_together_stay_there),
      cmocka_unit_test(near_the_limit_rows_with_strings_wait),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
