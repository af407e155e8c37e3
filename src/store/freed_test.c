/* Chunks are freed while no table's lock is held: their rows may be many megabytes. The linker puts functions of the test's before those that free
 * them (CMakeLists.txt). */
#include "store/chunk_parts.h"
#include "store/table_parts.h"
#include "store/testing.h"

static struct {
  rv_table *table;
  int segments, encoded;
} watched;

static void look(int *count)
{
  if (watched.table == NULL) return;
  if (!rv_mutex_trylock(&watched.table->mutex)) fail_msg("a chunk is freed while the table's lock is held");
  rv_mutex_unlock(&watched.table->mutex);
  ++*count;
}

void __real_rv_segment_free(rv_chunk *segment);
void __wrap_rv_segment_free(rv_chunk *segment);
void __wrap_rv_segment_free(rv_chunk *segment)
{
  look(&watched.segments);
  __real_rv_segment_free(segment);
}

void __real_rv_encoded_free(rv_chunk *chunk);
void __wrap_rv_encoded_free(rv_chunk *chunk);
void __wrap_rv_encoded_free(rv_chunk *chunk)
{
  look(&watched.encoded);
  __real_rv_encoded_free(chunk);
}

static rv_store *watch(const rv_table_config *config)
{
  rv_store *store = store_of(config);
  watched.table = rv_store_table(store, 0);
  watched.segments = watched.encoded = 0;
  return store;
}

static void drop(rv_store *store)
{
  watched.table = NULL;
  rv_store_unref(store);
}

static void ignore(rv_waiter *waiter)
{
  (void)waiter;
}

enum { WIDE = 1 << 15, MANY = 256 };

static rv_submitted add_wide(rv_rows *rows, size_t n)
{
  static uint8_t bytes[MANY][WIDE];
  static int64_t shape[2];
  static rv_tensor column;
  shape[0] = (int64_t)n;
  shape[1] = WIDE;
  column = (rv_tensor){.dtype = RV_UINT8, .rank = 2, .shape = shape, .data = bytes};
  *rows = (rv_rows){.columns = &column, .num_columns = 1, .n = n};
  rows->waiter.deadline_ns = INT64_MAX;
  rows->waiter.complete = ignore;
  return rv_table_insert_rows(watched.table, rows);
}

static void rows_that_wait_and_are_taken_back_are_freed_without_the_lock(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("t", 100000);
  config.rate_limiter = rv_rate_limiter_queue(1);
  config.max_times_sampled = 1;
  rv_store *store = watch(&config);
  assert_int_equal(insert_value(store, watched.table, 1, 1, 1), RV_OK);
  rv_rows rows;
  assert_int_equal(add_wide(&rows, MANY), RV_SUBMIT_PENDING);
  int before = watched.segments;
  assert_true(rv_waiter_cancel(&rows.waiter));
  assert_true(watched.segments > before);
  drop(store);
}

static void rows_whose_items_went_before_they_were_all_in_are_freed_without_the_lock(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("t", 3);
  rv_store *store = watch(&config);
  rv_rows rows;
  for (int round = 0; round < 3; round++) assert_int_equal(add_wide(&rows, MANY), RV_SUBMIT_DONE);
  assert_true(watched.segments > 0);
  drop(store);
}

/* Segments of one kind of rows that nobody brings any more make room for those of another. */
static void segments_that_are_of_no_more_use_are_freed_without_the_lock(void **state)
{
  (void)state;
  enum { ITEMS = 20000, ROUNDS = 4 };
  rv_table_config config = rv_table_config_default("t", ITEMS);
  rv_store *store = watch(&config);
  static int64_t numbers[2 * ITEMS];
  for (int round = 0; round < ROUNDS; round++) {
    int64_t shape[2] = {ITEMS, 2};
    rv_tensor column = {.dtype = RV_INT64, .rank = round % 2 == 0 ? 1 : 2, .shape = shape, .data = numbers};
    rv_rows rows = {.columns = &column, .num_columns = 1};
    rows.waiter.deadline_ns = INT64_MAX;
    for (size_t i = 0; i < 2 * ITEMS; i += (size_t)shape[0]) {
      shape[0] = 128;
      rows.n = 128;
      assert_int_equal(rv_table_insert_rows(watched.table, &rows), RV_SUBMIT_DONE);
      must(rows.waiter.code, &rows.waiter.error);
    }
  }
  assert_true(watched.segments > 0);
  drop(store);
}

/* Rows move out of chunks that are mostly dead, and these go. */
static void chunks_whose_rows_moved_are_freed_without_the_lock(void **state)
{
  (void)state;
  enum { CHUNKS = 64, ROWS = 256 };
  rv_table_config config = rv_table_config_default("t", 100000);
  rv_store *store = watch(&config);
  rv_error err;
  for (int64_t c = 0; c < CHUNKS; c++) {
    rv_chunk *chunk = encoded_numbers(c * ROWS, ROWS, 1, false);
    for (int32_t k = 0; k < 2; k++) {
      rv_insert insert = {.choose_key = true, .priority = 1, .trajectory = trajectory_of(store, chunk, k * 100, 1)};
      insert.waiter.deadline_ns = INT64_MAX;
      assert_int_equal(rv_table_insert(watched.table, &insert), RV_SUBMIT_DONE);
      must(insert.waiter.code, &insert.waiter.error);
      rv_trajectory_unref(insert.trajectory);
    }
    rv_chunk_unref(chunk);
  }
  rv_table_compact(watched.table, 1000);
  assert_true(watched.encoded > 0);
  must(rv_table_reset(watched.table, &err), &err);
  drop(store);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_that_wait_and_are_taken_back_are_freed_without_the_lock),
      cmocka_unit_test(rows_whose_items_went_before_they_were_all_in_are_freed_without_the_lock),
      cmocka_unit_test(segments_that_are_of_no_more_use_are_freed_without_the_lock),
      cmocka_unit_test(chunks_whose_rows_moved_are_freed_without_the_lock),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
