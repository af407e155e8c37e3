/* Rows with strings, whose bytes stand elsewhere: bounds and limits see them before they are in. */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include "base/part_testing.h"
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

/* All rows, or an error: what comes piece by piece goes on here. */
static void completed(rv_waiter *waiter)
{
  rv_rows *rows = RV_CONTAINER(waiter, rv_rows, waiter);
  if (rv_rows_are_left(rows) && rv_table_insert_rows_left(waiter->table, rows) == RV_SUBMIT_PENDING) return;
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

/* Nor does what a segment keeps free for strings take up a small table. */
static void small_tables_have_most_of_the_strings_that_fit(void **state)
{
  (void)state;
  static const size_t sizes[] = {10, 100, 1000};
  for (int64_t bound = 16 * KIB; bound <= 1024 * KIB; bound *= 4)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
      for (size_t n = 1; n <= MOST_ROWS; n *= 8) {
        rv_store *store = store_of_one(bound, 0);
        rv_table *table = rv_store_table(store, 0);
        int64_t fits = bound / (int64_t)(sizes[s] + sizeof(rv_bytes) + sizeof(rv_item));
        texts t;
        for (int64_t in = 0; in < 4 * fits; in += (int64_t)n) {
          assert_int_equal(add(table, &t, n, sizes[s]), RV_SUBMIT_DONE);
          assert_int_equal(t.rows.waiter.code, RV_OK);
          rv_table_info info = info_of(table);
          if (info.item_bytes > bound + bound / 16)
            fail_msg("%zu strings of %zu bytes: %lld bytes of %lld", n, sizes[s], (long long)info.item_bytes, (long long)bound);
          if (in >= 2 * fits && info.current_size < fits * 2 / 5)
            fail_msg("%zu strings of %zu bytes in %lld: %lld items of %lld", n, sizes[s], (long long)bound,
                     (long long)info.current_size, (long long)fits);
          rv_table_info_fini(&info);
        }
        rv_store_unref(store);
      }
}

/* ---- who looks at the strings ---- */

enum { PAGE = 4096, PAGES = 64 };

/* An array of strings whose pages cannot be read: whoever reads one first is noted, and reads it. */
static struct {
  uint8_t *memory;
  pthread_mutex_t *lock;
  volatile int reads, locked;
} watched;

static void on_read(int signal, siginfo_t *info, void *context)
{
  (void)signal;
  (void)context;
  uint8_t *page = (uint8_t *)((uintptr_t)info->si_addr / PAGE * PAGE);
  if (page < watched.memory || page >= watched.memory + PAGES * PAGE) abort();
  watched.reads++;
  if (pthread_mutex_trylock(watched.lock) != 0)
    watched.locked++;
  else
    pthread_mutex_unlock(watched.lock);
  mprotect(page, PAGE, PROT_READ);
}

static void strings_of_many_rows_are_read_without_the_tables_lock(void **state)
{
  (void)state;
  enum { ROWS = PAGES * PAGE / sizeof(rv_bytes) };
  for (int bounded = 0; bounded < 2; bounded++) {
    rv_store *store = store_of_one(0, bounded ? (size_t)1 << 30 : 0);
    rv_table *table = rv_store_table(store, 0);
    watched.memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(watched.memory != MAP_FAILED);
    rv_bytes *strings = (rv_bytes *)(void *)watched.memory;
    for (size_t i = 0; i < ROWS; i++) strings[i] = (rv_bytes){(const uint8_t *)"text", 4};
    watched.lock = &table->mutex.mutex;
    watched.reads = watched.locked = 0;
    struct sigaction action = {.sa_sigaction = on_read, .sa_flags = SA_SIGINFO}, before;
    sigaction(SIGSEGV, &action, &before);
    mprotect(watched.memory, PAGES * PAGE, PROT_NONE);
    const int64_t shape = ROWS;
    rv_tensor column = {.dtype = RV_STRING, .rank = 1, .shape = &shape, .data = strings};
    rv_rows rows = {.columns = &column, .num_columns = 1, .n = ROWS};
    rv_submitted submitted = rv_table_insert_rows(table, &rows);
    sigaction(SIGSEGV, &before, NULL);
    assert_int_equal(submitted, RV_SUBMIT_DONE);
    assert_int_equal(rows.waiter.code, RV_OK);
    assert_int_equal(watched.reads, PAGES);
    assert_int_equal(watched.locked, 0);
    assert_int_equal(size_of(table), ROWS);
    munmap(watched.memory, PAGES * PAGE);
    rv_store_unref(store);
  }
}

static void a_row_among_many_whose_strings_never_fit_is_refused_when_those_before_are_in(void **state)
{
  (void)state;
  enum { BOUND = 256 * KIB, ROWS = 40, LONG = 17 };
  static uint8_t bytes[1024 * KIB];
  rv_bytes strings[ROWS];
  for (size_t i = 0; i < ROWS; i++) strings[i] = (rv_bytes){bytes, i == LONG ? sizeof bytes : 4 * KIB};
  rv_store *store = store_of_one(BOUND, 0);
  const int64_t shape = ROWS;
  rv_tensor column = {.dtype = RV_STRING, .rank = 1, .shape = &shape, .data = strings};
  rv_rows rows = {.columns = &column, .num_columns = 1, .n = ROWS};
  assert_int_equal(rv_table_insert_rows(rv_store_table(store, 0), &rows), RV_SUBMIT_DONE);
  assert_int_equal(rows.waiter.code, RV_INVALID_ARGUMENT);
  if (strstr(rows.waiter.error.message, "row 17") == NULL) fail_msg("%s", rows.waiter.error.message);
  assert_int_equal(rows.done, LONG);
  assert_int_equal(size_of(rv_store_table(store, 0)), LONG);
  rv_store_unref(store);
}

static void rows_of_no_strings_are_rows_like_others(void **state)
{
  (void)state;
  enum { ROWS = 100000, SIZE = 30000 };
  rv_table_config config = rv_table_config_default("replay", SIZE);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  const int64_t shape[] = {ROWS, 0}, shape_numbers = ROWS;
  int64_t *numbers = malloc(ROWS * sizeof *numbers);
  uint64_t *keys = malloc(ROWS * sizeof *keys);
  for (int64_t i = 0; i < ROWS; i++) numbers[i] = i;
  rv_tensor columns[] = {{.dtype = RV_INT64, .rank = 1, .shape = &shape_numbers, .data = numbers},
                         {.dtype = RV_STRING, .rank = 2, .shape = shape}};
  for (size_t first = 0; first < 2; first++) { /* alone, and beside numbers */
    rv_rows rows = {.columns = columns + 1 - first, .num_columns = 1 + first, .n = ROWS, .keys = keys};
    assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_DONE);
    assert_int_equal(rows.waiter.code, RV_OK);
    assert_int_equal(rows.done, ROWS);
    assert_int_equal(size_of(table), SIZE);
  }
  for (size_t i = ROWS - SIZE; i < ROWS; i += 777) {
    rv_draw draw;
    rv_error err;
    must(rv_table_get(table, keys[i], &draw, &err), &err);
    assert_int_equal(value_of(&draw), i);
    rv_draw_release(&draw);
  }
  rv_store_unref(store);
  free(numbers);
  free(keys);
}

/* What a chunk of strings can take is not what it was made for: rows that fill it must not be moved again and again for that. */
/* `least` items stay. */
static void fill_until_nothing_moves(int64_t bound, size_t row, int64_t least)
{
  enum { TURNS = 10000 };
  rv_error err;
  rv_store *store = NULL;
  rv_table_config config = rv_table_config_default("replay", 10000000);
  config.max_bytes = bound;
  config.remover.kind = RV_SELECTOR_UNIFORM;
  must(rv_store_new(&(rv_store_config){.size = sizeof(rv_store_config), .tables = &config, .num_tables = 1}, &store, &err), &err);
  rv_table *table = rv_store_table(store, 0);
  texts t;
  for (int64_t i = 0; i < 4 * bound / (int64_t)row; i++) {
    assert_int_equal(add(table, &t, 1, row), RV_SUBMIT_DONE);
    assert_int_equal(t.rows.waiter.code, RV_OK);
  }
  int turns = 0;
  for (; rv_table_is_sparse(table) && turns < TURNS; turns++) {
    rv_turn turn;
    rv_turn_begin(&turn, table);
    rv_turn_end(&turn);
  }
  if (turns == TURNS) fail_msg("strings of %zu bytes are moved for ever in %lld", row, (long long)bound);
  rv_table_info info = info_of(table);
  assert_true(info.item_bytes <= bound + bound / 16);
  if (info.current_size <= least)
    fail_msg("strings of %zu bytes in %lld: %lld items", row, (long long)bound, (long long)info.current_size);
  rv_table_info_fini(&info);
  rv_store_unref(store);
}

static void rows_that_were_moved_together_stay_there(void **state)
{
  (void)state;
  enum { BOUND = 16384 * KIB, ROW = 10000 };
  fill_until_nothing_moves(BOUND, ROW, BOUND / 2 / ROW);
  static const size_t rows[] = {10, 100, 1000};
  for (int64_t bound = 32 * KIB; bound <= 2048 * KIB / ONE_PART_OF; bound *= 8)
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
      fill_until_nothing_moves(bound, rows[i], bound / 8 / (int64_t)(rows[i] + sizeof(rv_item)));
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
      cmocka_unit_test(small_tables_have_most_of_the_strings_that_fit),
      cmocka_unit_test(strings_of_many_rows_are_read_without_the_tables_lock),
      cmocka_unit_test(a_row_among_many_whose_strings_never_fit_is_refused_when_those_before_are_in),
      cmocka_unit_test(rows_of_no_strings_are_rows_like_others),
      cmocka_unit_test(rows_that_were_moved_together_stay_there),
      cmocka_unit_test(near_the_limit_rows_with_strings_wait),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
