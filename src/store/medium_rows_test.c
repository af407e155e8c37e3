/* Rows of several columns of some hundred bytes, which stand beside each other in a segment (segment.c). */
#include "base/past_caches.h"
#include "store/testing.h"

enum { FIRST = 333, LAST = 500, MOST = 400 };

static void ignore(rv_waiter *waiter)
{
  (void)waiter;
}

/* Column 0 is the row's number; each byte of the others tells where it should be. */
typedef struct medium_rows {
  rv_rows rows;
  rv_tensor columns[3];
  int64_t shapes[3][2];
  int64_t numbers[MOST];
  uint8_t first[MOST][FIRST], last[MOST][LAST];
} medium_rows;

static uint8_t byte_of(int64_t number, size_t at)
{
  return (uint8_t)((uint64_t)number * 31 + at * 7);
}

static void add(rv_table *table, medium_rows *m, int64_t number, size_t n, uint64_t *keys)
{
  for (size_t i = 0; i < n; i++) {
    m->numbers[i] = number + (int64_t)i;
    for (size_t at = 0; at < FIRST; at++) m->first[i][at] = byte_of(m->numbers[i], at);
    for (size_t at = 0; at < LAST; at++) m->last[i][at] = byte_of(m->numbers[i], FIRST + at);
  }
  const int64_t sizes[] = {0, FIRST, LAST};
  for (int c = 0; c < 3; c++) {
    m->shapes[c][0] = (int64_t)n;
    m->shapes[c][1] = sizes[c];
  }
  m->columns[0] = (rv_tensor){RV_INT64, 1, m->shapes[0], m->numbers};
  m->columns[1] = (rv_tensor){RV_UINT8, 2, m->shapes[1], m->first};
  m->columns[2] = (rv_tensor){RV_UINT8, 2, m->shapes[2], m->last};
  m->rows = (rv_rows){.columns = m->columns, .num_columns = 3, .n = n, .keys = keys};
  m->rows.waiter.deadline_ns = INT64_MAX;
  m->rows.waiter.complete = ignore;
  assert_int_equal(rv_table_insert_rows(table, &m->rows), RV_SUBMIT_DONE);
  must(m->rows.waiter.code, &m->rows.waiter.error);
}

static void assert_row(const rv_draw *draw, int64_t number)
{
  uint8_t first[FIRST], last[LAST];
  rv_error err;
  assert_int_equal(value_of(draw), number);
  must(rv_draw_copy_column(draw, 1, first, &err), &err);
  must(rv_draw_copy_column(draw, 2, last, &err), &err);
  for (size_t at = 0; at < FIRST; at++) assert_int_equal(first[at], byte_of(number, at));
  for (size_t at = 0; at < LAST; at++) assert_int_equal(last[at], byte_of(number, FIRST + at));
}

/* In batches that are copied under the table's lock, and in such that are copied before. */
static void check_table_of(int64_t size)
{
  static const size_t counts[] = {1, 7, MOST, 130, 60};
  static medium_rows m;
  const int64_t all = 2 * size;
  uint64_t *keys = calloc((size_t)all + MOST, sizeof *keys);
  rv_table_config config = rv_table_config_default("t", size);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  int64_t total = 0;
  for (int round = 0; total < all; round++) {
    size_t n = counts[round % 5];
    add(table, &m, total, n, keys + total);
    total += (int64_t)n;
  }
  for (int64_t i = total - size; i < total; i += 1 + size / 5000) {
    rv_draw draw;
    rv_error err;
    must(rv_table_get(table, keys[i], &draw, &err), &err);
    assert_row(&draw, i);
    rv_draw_release(&draw);
  }
  rv_store_unref(store);
  free(keys);
}

static void rows_are_what_was_added(void **state)
{
  (void)state;
  check_table_of(1000);
}

static void rows_of_a_table_that_no_cache_holds_are_what_was_added(void **state)
{
  (void)state;
  enum { SIZE = 42000 };
  _Static_assert((size_t)SIZE * (8 + FIRST + LAST) > RV_PAST_CACHES_FROM, "a table that is larger than caches");
  check_table_of(SIZE);
}

/* It has no place of its own in a row, whose only column with bytes stands alone then. Large batches are copied by several threads. */
static void a_column_without_bytes_writes_nothing(void **state)
{
  (void)state;
  enum { SIZE = 400000, BATCH = 40000, BYTES = 100 };
  _Static_assert((size_t)SIZE * BYTES > RV_PAST_CACHES_FROM, "a table that is larger than caches");
  static uint8_t data[BATCH][BYTES], none[1];
  uint64_t *keys = calloc(SIZE, sizeof *keys);
  rv_table_config config = rv_table_config_default("t", SIZE);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  for (int64_t total = 0; total < SIZE; total += BATCH) {
    for (int64_t i = 0; i < BATCH; i++) memset(data[i], 1 + (int)((total + i) % 251), BYTES);
    const int64_t shapes[2][2] = {{BATCH, BYTES}, {BATCH, 0}};
    const rv_tensor columns[] = {{RV_UINT8, 2, shapes[0], data}, {RV_UINT8, 2, shapes[1], none}};
    rv_rows rows = {.columns = columns, .num_columns = 2, .n = BATCH, .keys = keys + total};
    rows.waiter.deadline_ns = INT64_MAX;
    rows.waiter.complete = ignore;
    assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_DONE);
    must(rows.waiter.code, &rows.waiter.error);
  }
  for (int64_t i = 0; i < SIZE; i++) {
    rv_draw draw;
    rv_error err;
    uint8_t row[BYTES];
    must(rv_table_get(table, keys[i], &draw, &err), &err);
    must(rv_draw_copy_column(&draw, 0, row, &err), &err);
    for (size_t at = 0; at < BYTES; at += BYTES - 1) assert_int_equal(row[at], 1 + i % 251);
    rv_draw_release(&draw);
  }
  rv_store_unref(store);
  free(keys);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_what_was_added),
                                     cmocka_unit_test(a_column_without_bytes_writes_nothing),
                                     cmocka_unit_test(rows_of_a_table_that_no_cache_holds_are_what_was_added)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
