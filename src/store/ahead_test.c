/* What a growing table needs next is there before it is needed, and found without its lock. The linker puts functions of the test's before those that
 * take and give locks and that find memory (CMakeLists.txt). */
#include "base/pages.h"
#include "store/audit_testing.h"
#include "store/table_parts.h"
#include "store/testing.h"

enum { ROW = 32, AT_ONCE = 100, ITEMS = 1 << 17 }; /* rows of 256 bytes: with so many the largest segments are huge pages */

static struct {
  rv_table *table;
  bool held;             /* its lock */
  size_t under, without; /* huge pages that were taken with it, and without */
  void (*once)(void);    /* is called when the next one is taken without it */
} watched;

void __real_rv_mutex_lock(rv_mutex *mutex);
void __wrap_rv_mutex_lock(rv_mutex *mutex);
void __wrap_rv_mutex_lock(rv_mutex *mutex)
{
  __real_rv_mutex_lock(mutex);
  if (watched.table != NULL && mutex == &watched.table->mutex) watched.held = true;
}

bool __real_rv_mutex_trylock(rv_mutex *mutex);
bool __wrap_rv_mutex_trylock(rv_mutex *mutex);
bool __wrap_rv_mutex_trylock(rv_mutex *mutex)
{
  bool taken = __real_rv_mutex_trylock(mutex);
  if (taken && watched.table != NULL && mutex == &watched.table->mutex) watched.held = true;
  return taken;
}

void __real_rv_mutex_unlock(rv_mutex *mutex);
void __wrap_rv_mutex_unlock(rv_mutex *mutex);
void __wrap_rv_mutex_unlock(rv_mutex *mutex)
{
  if (watched.table != NULL && mutex == &watched.table->mutex) watched.held = false;
  __real_rv_mutex_unlock(mutex);
}

void *__real_rv_pages_alloc(size_t size);
void *__wrap_rv_pages_alloc(size_t size);
void *__wrap_rv_pages_alloc(size_t size)
{
  if (rv_pages_size(size) >= RV_HUGE_PAGE) ++*(watched.held ? &watched.under : &watched.without);
  if (watched.once != NULL && !watched.held && watched.table != NULL) {
    void (*once)(void) = watched.once;
    watched.once = NULL;
    once();
  }
  return __real_rv_pages_alloc(size);
}

static rv_store *begin(const rv_table_config *config)
{
  rv_store *store = store_of(config);
  memset(&watched, 0, sizeof watched);
  watched.table = rv_store_table(store, 0);
  return store;
}

static void end(rv_store *store)
{
  watched.table = NULL;
  rv_store_unref(store);
}

/* Rows that begin with the numbers from `first` on. */
static void add_rows_of(rv_dtype dtype, int64_t first, int64_t n, uint64_t *keys)
{
  static int64_t values[AT_ONCE][ROW];
  for (int64_t done = 0; done < n; done += AT_ONCE) {
    int64_t shape[2] = {n - done < AT_ONCE ? n - done : AT_ONCE, ROW};
    for (int64_t i = 0; i < shape[0]; i++) values[i][0] = first + done + i;
    rv_tensor column = {.dtype = dtype, .rank = 2, .shape = shape, .data = values};
    rv_rows rows = {.columns = &column, .num_columns = 1, .n = (size_t)shape[0], .keys = keys == NULL ? NULL : keys + done};
    rows.waiter.deadline_ns = INT64_MAX;
    assert_int_equal(rv_table_insert_rows(watched.table, &rows), RV_SUBMIT_DONE);
    must(rows.waiter.code, &rows.waiter.error);
  }
}

static void add_rows(int64_t first, int64_t n, uint64_t *keys)
{
  add_rows_of(RV_INT64, first, n, keys);
}

static void expect(uint64_t key, int64_t number)
{
  rv_error err;
  rv_draw draw;
  int64_t row[ROW];
  must(rv_table_get(watched.table, key, &draw, &err), &err);
  must(rv_draw_copy_column(&draw, 0, row, &err), &err);
  assert_int_equal(row[0], number);
  rv_draw_release(&draw);
}

static void a_table_that_fills_takes_huge_pages_without_its_lock(void **state)
{
  (void)state;
  static uint64_t keys[ITEMS];
  rv_table_config config = rv_table_config_default("t", ITEMS);
  rv_store *store = begin(&config);
  add_rows(0, ITEMS, keys);
  assert_int_equal(watched.under, 0);
  assert_in_range(watched.without, ITEMS / 8192 + ITEMS / 32768 - 2, ITEMS / 8192 + ITEMS / 32768 + 1); /* as many as it needs */
  for (size_t i = 0; i < ITEMS; i += 997) expect(keys[i], (int64_t)i);
  watched.without = 0;
  add_rows(0, ITEMS, NULL); /* the first segments, which go now, were small */
  assert_int_equal(watched.under, 0);
  assert_int_equal(watched.without, 1);
  watched.without = 0;
  add_rows(0, ITEMS, NULL); /* from here on they are used again */
  assert_int_equal(watched.under + watched.without, 0);
  end(store);
}

static void two_kinds_of_rows_by_turns_have_each_their_own(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("t", ITEMS);
  rv_store *store = begin(&config);
  for (int64_t i = 0; i < ITEMS / 2; i += AT_ONCE) {
    add_rows_of(RV_INT64, i, AT_ONCE, NULL);
    add_rows_of(RV_FLOAT64, i, AT_ONCE, NULL);
  }
  assert_int_equal(watched.under, 0);
  assert_in_range(watched.without, ITEMS / 8192 + ITEMS / 32768 - 4, ITEMS / 8192 + ITEMS / 32768 + 2);
  end(store);
}

/* Chunks that came from elsewhere say nothing about the segments of rows. */
static void rows_may_follow_items_of_chunks(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("t", ITEMS);
  rv_store *store = begin(&config);
  rv_chunk *chunk = encoded_numbers(0, ROW, 1, false);
  rv_trajectory *item = trajectory_of(store, chunk, 0, ROW);
  for (int i = 0; i < 10000; i++) {
    rv_insert one = {.choose_key = true, .priority = 1, .trajectory = item};
    one.waiter.deadline_ns = INT64_MAX;
    assert_int_equal(rv_table_insert(watched.table, &one), RV_SUBMIT_DONE);
  }
  add_rows(0, ITEMS, NULL);
  add_rows(0, ITEMS, NULL);
  audit_table(watched.table);
  rv_trajectory_unref(item);
  rv_chunk_unref(chunk);
  end(store);
}

static void items_of_chunks_have_their_room_made_too(void **state)
{
  (void)state;
  enum { MANY = 50000 };
  rv_table_config config = rv_table_config_default("t", MANY);
  rv_store *store = begin(&config);
  rv_chunk *chunk = encoded_numbers(0, 8, 1, false);
  rv_trajectory *item = trajectory_of(store, chunk, 0, 1);
  for (int i = 0; i < MANY / 2; i++) {
    rv_insert one[2] = {{.choose_key = true, .priority = 1, .trajectory = item},
                        {.choose_key = true, .priority = 1, .trajectory = item}};
    rv_insert *both[2] = {&one[0], &one[1]};
    rv_submitted submitted[2];
    for (int k = 0; k < 2; k++) one[k].waiter.deadline_ns = INT64_MAX;
    assert_int_equal(rv_table_insert_many(watched.table, both, 2, submitted), 2);
    assert_int_equal(submitted[0] == RV_SUBMIT_DONE && submitted[1] == RV_SUBMIT_DONE, 1);
  }
  assert_int_equal(watched.under, 0);
  assert_int_equal(watched.without, 1); /* 4,096 and 32,768 slots, and single blocks for what is left */
  rv_trajectory_unref(item);
  rv_chunk_unref(chunk);
  end(store);
}

/* A table that has only begun, or may hold few bytes, has nothing more than it needs. */
static void others_have_nothing_ahead(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("t", ITEMS);
  rv_store *store = begin(&config);
  add_rows(0, 1000, NULL);
  assert_int_equal(watched.under + watched.without, 0);
  end(store);
  config.max_bytes = (int64_t)ITEMS * 400;
  store = begin(&config);
  add_rows(0, 3 * 8192, NULL);
  assert_null(watched.table->books.slab.ahead);
  assert_int_equal(watched.without, 0);
  end(store);
}

static void reset(void)
{
  rv_error err;
  must(rv_table_reset(watched.table, &err), &err);
}

static void close_it(void)
{
  rv_table_close(watched.table);
}

/* Whatever became of the table meanwhile. */
static void what_is_made_in_vain_goes(void **state)
{
  (void)state;
  void (*const meanwhile[])(void) = {reset, close_it};
  for (size_t m = 0; m < 2; m++) {
    for (int64_t before = 3000; before <= 6000; before += 3000) { /* before items, or rows, are made */
      rv_table_config config = rv_table_config_default("t", ITEMS);
      rv_store *store = begin(&config);
      add_rows(0, before, NULL);
      watched.once = meanwhile[m];
      for (int64_t n = before; watched.once != NULL; n += AT_ONCE) add_rows(n, AT_ONCE, NULL);
      if (m == 0) {
        audit_table(watched.table);
        add_rows(0, 20000, NULL);
        audit_table(watched.table);
      }
      end(store);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_table_that_fills_takes_huge_pages_without_its_lock),
      cmocka_unit_test(two_kinds_of_rows_by_turns_have_each_their_own),
      cmocka_unit_test(rows_may_follow_items_of_chunks),
      cmocka_unit_test(items_of_chunks_have_their_room_made_too),
      cmocka_unit_test(others_have_nothing_ahead),
      cmocka_unit_test(what_is_made_in_vain_goes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
