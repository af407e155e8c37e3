/* Segments that more rows go into, beside a table's bound in bytes: as many items as fit stay, and what is over it is a sixteenth at most. */
#include "store/chunk_parts.h"
#include "store/placed.h"
#include "store/table_parts.h"
#include "store/testing.h"

enum { KIB = 1 << 10 };

/* The remover takes the oldest; max_bytes 0: no bound. */
static rv_store *store_of_one(int64_t max_bytes)
{
  rv_error err;
  rv_store *store = NULL;
  rv_table_config table = rv_table_config_default("replay", 10000000);
  table.max_bytes = max_bytes;
  rv_store_config config = {.size = sizeof config, .tables = &table, .num_tables = 1};
  must(rv_store_new(&config, &store, &err), &err);
  return store;
}

/* ---- rows ---- */

enum { WIDTH = 40, BATCH = 1000 };

static void add_rows(rv_table *table, size_t n, int64_t width)
{
  static uint8_t bytes[BATCH * 4 * WIDTH];
  const int64_t shape[] = {(int64_t)n, width};
  rv_tensor column = {.dtype = RV_UINT8, .rank = 2, .shape = shape, .data = bytes};
  rv_rows rows = {.columns = &column, .num_columns = 1, .n = n};
  assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_DONE);
  assert_int_equal(rows.waiter.code, RV_OK);
}

static void lower(rv_table *table, int64_t max_bytes)
{
  rv_error err;
  rv_bounds_change change = {.bounds = rv_table_bounds_unchanged()};
  change.bounds.max_bytes = max_bytes;
  while (!change.done) must(rv_table_change_bounds(table, &change, &err), &err);
}

static void check(rv_table *table, int64_t bound, int64_t least)
{
  rv_table_info info = info_of(table);
  if (info.item_bytes > bound + bound / 16) fail_msg("%lld bytes of %lld", (long long)info.item_bytes, (long long)bound);
  if (info.current_size < least) fail_msg("%lld items, and %lld would fit", (long long)info.current_size, (long long)least);
  rv_table_info_fini(&info);
}

static void a_much_lower_bound_keeps_as_many_rows_as_fit(void **state)
{
  (void)state;
  enum { BOUND = 1024 * KIB, FITS = BOUND / (WIDTH + sizeof(rv_item)) };
  rv_store *store = store_of_one(0);
  rv_table *table = rv_store_table(store, 0);
  for (int i = 0; i < 200; i++) add_rows(table, BATCH, WIDTH); /* in segments that are larger than the bound */
  lower(table, BOUND);
  check(table, BOUND, FITS * 3 / 4);
  for (int i = 0; i < 30000; i++) {
    add_rows(table, 1, WIDTH);
    if (i % 100 == 0) check(table, BOUND, FITS * 3 / 4);
  }
  for (int i = 0; i < 30; i++) {
    add_rows(table, BATCH, WIDTH);
    check(table, BOUND, FITS * 3 / 4);
  }
  rv_store_unref(store);
}

static void several_kinds_of_rows_share_the_bound(void **state)
{
  (void)state;
  enum { BOUND = 256 * KIB, FITS = BOUND / (3 * WIDTH + sizeof(rv_item)) };
  rv_store *store = store_of_one(BOUND);
  rv_table *table = rv_store_table(store, 0);
  for (int i = 0; i < 20000; i++) {
    add_rows(table, 1, WIDTH * (1 + i % 4));
    if (i % 1000 == 999) add_rows(table, BATCH / 2, 4 * WIDTH);
    check(table, BOUND, i < 4000 ? 0 : FITS / 2);
  }
  rv_store_unref(store);
}

/* ---- rows that writers place ---- */

enum { STREAMS = 32, ROW_BYTES = 1024 };

typedef struct placing {
  rv_table *table;
  rv_form *form;
  rv_chunk *segments[STREAMS];
} placing;

static void begin_placing(placing *p, rv_table *table)
{
  rv_error err;
  const int64_t shape = ROW_BYTES;
  rv_spec spec = {.name = "", .dtype = RV_UINT8, .rank = 1, .shape = &shape};
  rv_placed_column column = {.tensor = 0, .first = 0, .length = 1, .squeeze = true};
  *p = (placing){.table = table};
  must(rv_placed_form_new(table, &spec, 1, &column, 1, &p->form, &err), &err);
  rv_placed_begin(table, STREAMS);
  size_t rows = rv_placed_segment_rows(table, p->form, STREAMS, 1);
  for (int i = 0; i < STREAMS; i++) must(rv_placed_segment_new(table, p->form, rows, &p->segments[i], &err), &err);
}

static void place_rows(placing *p, int64_t row)
{
  rv_place places[STREAMS];
  for (int i = 0; i < STREAMS; i++) {
    places[i] = (rv_place){.segment = p->segments[i], .base = row};
    memset((uint8_t *)(uintptr_t)p->segments[i]->lanes[0].base + row * ROW_BYTES, 1, ROW_BYTES);
    rv_segment_publish(p->segments[i], 0, row + 1);
  }
  rv_rows rows = {.n = STREAMS, .placed = places};
  assert_int_equal(rv_table_insert_placed(p->table, p->form, &rows), RV_SUBMIT_DONE);
  assert_int_equal(rows.waiter.code, RV_OK);
}

static void end_placing(placing *p)
{
  for (int i = 0; i < STREAMS; i++) rv_placed_segment_close(p->table, p->segments[i]);
  rv_placed_end(p->table, STREAMS);
  rv_placed_form_free(p->table, p->form);
}

static void what_idle_writers_have_begun_is_not_in_the_way_of_items(void **state)
{
  (void)state;
  enum { BOUND = 2048 * KIB, FITS = BOUND / (WIDTH + sizeof(rv_item)) };
  rv_store *store = store_of_one(0);
  rv_table *table = rv_store_table(store, 0);
  placing idle;
  begin_placing(&idle, table);
  assert_true(STREAMS * rv_chunk_memory(idle.segments[0]) > 2 * BOUND);
  place_rows(&idle, 0);
  for (int i = 0; i < 100; i++) add_rows(table, BATCH, WIDTH);
  lower(table, BOUND);
  check(table, BOUND, FITS * 3 / 4);
  for (int i = 0; i < 100; i++) {
    add_rows(table, BATCH, WIDTH);
    check(table, BOUND, FITS * 3 / 4);
  }
  place_rows(&idle, 1); /* it was about to, and looks at the bound for the next */
  rv_table_info info = info_of(table);
  assert_true(info.current_size >= FITS / 2);
  rv_table_info_fini(&info);
  end_placing(&idle);
  for (int i = 0; i < 100; i++) add_rows(table, BATCH, WIDTH);
  check(table, BOUND, FITS * 3 / 4);
  rv_store_unref(store);
}

static void writers_that_come_share_with_those_that_are_there(void **state)
{
  (void)state;
  enum { BOUND = 8192 * KIB, WRITERS = 12, FITS = BOUND / (WIDTH + sizeof(rv_item)) };
  rv_store *store = store_of_one(BOUND);
  rv_table *table = rv_store_table(store, 0);
  placing writers[WRITERS];
  for (int i = 0; i < 120; i++) add_rows(table, BATCH, WIDTH);
  for (int w = 0; w < WRITERS; w++) {
    begin_placing(&writers[w], table);
    place_rows(&writers[w], 0);
    check(table, BOUND, FITS * 3 / 4);
    for (int i = 0; i < 100; i++) add_rows(table, BATCH, WIDTH);
    check(table, BOUND, FITS * 3 / 4);
  }
  for (int w = 0; w < WRITERS; w++) end_placing(&writers[w]);
  for (int i = 0; i < 100; i++) add_rows(table, BATCH, WIDTH);
  check(table, BOUND, FITS * 3 / 4);
  rv_store_unref(store);
}

/* ---- very many ---- */

enum { MANY = 500, MANY_ROW = 64, MANY_ROWS = 8 };

typedef struct many {
  rv_table *table;
  rv_form *form;
  rv_chunk *segments[MANY];
} many;

static void begin_many(many *m, rv_table *table)
{
  rv_error err;
  const int64_t shape = MANY_ROW;
  rv_spec spec = {.name = "", .dtype = RV_UINT8, .rank = 1, .shape = &shape};
  rv_placed_column column = {.tensor = 0, .first = 0, .length = 1, .squeeze = true};
  *m = (many){.table = table};
  must(rv_placed_form_new(table, &spec, 1, &column, 1, &m->form, &err), &err);
  rv_placed_begin(table, MANY);
  for (int i = 0; i < MANY; i++) must(rv_placed_segment_new(table, m->form, MANY_ROWS, &m->segments[i], &err), &err);
}

static void step_many(many *m, int64_t row)
{
  rv_place places[MANY];
  for (int i = 0; i < MANY; i++) {
    places[i] = (rv_place){.segment = m->segments[i], .base = row};
    memset((uint8_t *)(uintptr_t)m->segments[i]->lanes[0].base + row * MANY_ROW, 1, MANY_ROW);
    rv_segment_publish(m->segments[i], 0, row + 1);
  }
  rv_rows rows = {.n = MANY, .placed = places};
  assert_int_equal(rv_table_insert_placed(m->table, m->form, &rows), RV_SUBMIT_DONE);
  assert_int_equal(rows.waiter.code, RV_OK);
}

static int open_of_many(const many *m)
{
  int open = 0;
  for (int i = 0; i < MANY; i++) {
    const rv_hold *hold = rv_books_find_hold(&m->table->books, m->segments[i]);
    if (hold != NULL && hold->open) open++;
  }
  return open;
}

static void end_many(many *m)
{
  for (int i = 0; i < MANY; i++) rv_placed_segment_close(m->table, m->segments[i]);
  rv_placed_end(m->table, MANY);
  rv_placed_form_free(m->table, m->form);
}

/* A segment that is large already when its writer goes on with it is as small as he can have it: those that come do not look at it again and
 * again. */
static void segments_that_have_become_large_are_left_once_until_the_share_is_half_of_that(void **state)
{
  (void)state;
  enum { BOUND = 16 * MANY * MANY_ROW * MANY_ROWS }; /* for so many segments of that size */
  rv_store *store = store_of_one(BOUND);
  rv_table *table = rv_store_table(store, 0);
  many m;
  begin_many(&m, table);
  assert_int_equal(rv_placed_share(table), MANY_ROW * MANY_ROWS);
  step_many(&m, 0);
  assert_int_equal(open_of_many(&m), MANY);
  rv_placed_begin(table, MANY / 4); /* none is twice as large as its part */
  assert_int_equal(open_of_many(&m), MANY);
  rv_placed_begin(table, MANY);
  assert_true(rv_table_is_large(table, m.segments[0]));
  assert_int_equal(open_of_many(&m), 0);
  step_many(&m, 1);
  assert_int_equal(open_of_many(&m), MANY);
  for (int i = 0; i < MANY / 4; i++) rv_placed_begin(table, 1);
  assert_int_equal(open_of_many(&m), MANY);
  rv_placed_begin(table, 4 * MANY);
  assert_int_equal(open_of_many(&m), 0);
  step_many(&m, 2);
  assert_int_equal(open_of_many(&m), MANY);
  rv_placed_end(table, 4 * MANY + MANY / 4 + MANY + MANY / 4);
  end_many(&m);
  rv_store_unref(store);
}

static void a_lower_bound_leaves_all_that_have_become_large(void **state)
{
  (void)state;
  rv_store *store = store_of_one(0);
  rv_table *table = rv_store_table(store, 0);
  many m;
  begin_many(&m, table);
  step_many(&m, 0);
  assert_int_equal(open_of_many(&m), MANY);
  lower(table, 1024 * KIB);
  assert_int_equal(open_of_many(&m), 0);
  rv_error err;
  step_many(&m, 1);
  must(rv_table_reset(table, &err), &err);
  assert_int_equal(open_of_many(&m), 0);
  rv_placed_begin(table, 8 * MANY); /* what was open before the reset is in no list any more */
  step_many(&m, 2);
  assert_int_equal(open_of_many(&m), MANY);
  rv_placed_end(table, 8 * MANY);
  end_many(&m);
  rv_store_unref(store);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_much_lower_bound_keeps_as_many_rows_as_fit),
      cmocka_unit_test(several_kinds_of_rows_share_the_bound),
      cmocka_unit_test(what_idle_writers_have_begun_is_not_in_the_way_of_items),
      cmocka_unit_test(writers_that_come_share_with_those_that_are_there),
      cmocka_unit_test(segments_that_have_become_large_are_left_once_until_the_share_is_half_of_that),
      cmocka_unit_test(a_lower_bound_leaves_all_that_have_become_large),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
