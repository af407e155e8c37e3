/* Every allocation fails in turn: the call returns RV_RESOURCE_EXHAUSTED, nothing is lost or leaked, and the same call succeeds
 * afterwards. */
#include "store/testing.h"

#include "base/failing_testing.h"
#include "store/chunk_parts.h"
#include "store/joined.h"
#include "store/memory.h"
#include "store/table_parts.h"

static rv_code new_store(void *context)
{
  (void)context;
  static const int64_t shape[] = {3};
  static const rv_spec spec = {.name = "obs", .dtype = RV_FLOAT32, .rank = 1, .shape = shape};
  static const rv_signature signature = {.specs = &spec, .num_specs = 1};
  static const rv_extension_config extensions[] = {{.name = "statistics"}, {.name = "diffusion", .options = "steps=2,decay=0.5"}};
  rv_table_config tables[2] = {rv_table_config_default("a", 1000), rv_table_config_default("b", 1000)};
  tables[0].signature = &signature;
  tables[0].sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
  tables[1].extensions = extensions;
  tables[1].num_extensions = 2;
  rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = 2};
  rv_store *store;
  rv_error err;
  rv_code code = rv_store_new(&config, &store, &err);
  if (code == RV_OK) rv_store_unref(store);
  return code;
}

static void a_store_is_made_whole_or_not_at_all(void **state)
{
  (void)state;
  assert_true(with_each_failure(new_store, NULL) > 10);
}

typedef struct world {
  rv_store *store;
  rv_table *table;
  rv_trajectory *trajectory;
  uint64_t key;
} world;

static world make_world(void)
{
  rv_table_config config = rv_table_config_default("t", 100000);
  config.sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
  world w = {.store = store_of(&config)};
  w.table = rv_store_table(w.store, 0);
  return w;
}

static size_t size_of(rv_table *table)
{
  rv_table_info info = info_of(table);
  size_t size = (size_t)info.current_size;
  assert_int_equal(info.inserts, info.current_size);
  assert_int_equal(info.num_deleted_episodes, 0); /* no item goes */
  rv_table_info_fini(&info);
  return size;
}

static rv_code insert_item(void *context)
{
  world *w = context;
  rv_insert insert = {.key = w->key, .priority = 1, .trajectory = w->trajectory};
  assert_int_equal(rv_table_insert(w->table, &insert), RV_SUBMIT_DONE);
  return insert.waiter.code;
}

static void an_insert_that_finds_no_memory_leaves_the_table_as_it_was(void **state)
{
  (void)state;
  world w = make_world();
  /* compact, in another chunk each time, then loose over two chunks */
  for (uint64_t round = 0; round < 300; round++) {
    w.key = round;
    rv_chunk *a = chunk_of((int64_t)round, round), *b = chunk_of(-(int64_t)round, round);
    rv_slice slices[] = {{a, 0, 0, 1}, {round % 2 == 0 ? a : b, 0, 0, 1}};
    rv_trajectory_desc desc = {.slices = slices, .num_slices = (uint32_t[]){2}, .squeeze = (bool[]){false}, .num_columns = 1};
    rv_error err;
    must(rv_trajectory_new(rv_store_layouts(w.store), &desc, &w.trajectory, &err), &err);
    size_t before = size_of(w.table);
    assert_int_equal(before, round);
    until_failure = 0;
    rv_code code = insert_item(&w);
    bool failed = until_failure < 0;
    until_failure = -1;
    if (failed && code != RV_OK) {
      assert_int_equal(code, RV_RESOURCE_EXHAUSTED);
      assert_int_equal(size_of(w.table), before);
    }
    if (code != RV_OK) with_each_failure(insert_item, &w);
    rv_trajectory_unref(w.trajectory);
    rv_chunk_unref(a);
    rv_chunk_unref(b);
  }
  rv_store_unref(w.store);
}

/* It is linked in several holds of the lock, and allocates in each. */
static void an_item_of_many_chunks_that_finds_no_memory_leaves_nothing(void **state)
{
  (void)state;
  enum { CHUNKS = 5 * RV_LINKS_AT_ONCE };
  world w = make_world();
  rv_chunk *chunks[CHUNKS];
  rv_slice slices[CHUNKS];
  for (int64_t i = 0; i < CHUNKS; i++) {
    chunks[i] = chunk_of(i, (uint64_t)i);
    slices[i] = (rv_slice){.chunk = chunks[i], .length = 1};
  }
  rv_trajectory_desc desc = {.slices = slices, .num_slices = (uint32_t[]){CHUNKS}, .squeeze = (bool[]){false}, .num_columns = 1};
  rv_error err;
  must(rv_trajectory_new(rv_store_layouts(w.store), &desc, &w.trajectory, &err), &err);
  rv_code code = RV_RESOURCE_EXHAUSTED;
  for (long n = 0; code != RV_OK; n++) {
    until_failure = n;
    code = insert_item(&w);
    until_failure = -1;
    if (code != RV_OK) assert_int_equal(code, RV_RESOURCE_EXHAUSTED);
    assert_int_equal(w.table->books.present_holds, code == RV_OK ? CHUNKS : 0);
    assert_int_equal(size_of(w.table), code == RV_OK ? 1 : 0);
    if (code != RV_OK) assert_true(n < 10 * CHUNKS);
  }
  rv_trajectory_unref(w.trajectory);
  for (size_t i = 0; i < CHUNKS; i++) rv_chunk_unref(chunks[i]);
  rv_store_unref(w.store);
}

static void rows_that_find_no_memory_say_how_many_are_in(void **state)
{
  (void)state;
  world w = make_world();
  size_t inserted = 0;
  for (long n = 0; n < 60; n++) {
    int64_t values[1000];
    for (int i = 0; i < 1000; i++) values[i] = i;
    rv_rows rows;
    until_failure = n;
    assert_int_equal(add_values(w.table, &rows, values, 1000, NULL), RV_SUBMIT_DONE);
    until_failure = -1;
    if (rows.waiter.code != RV_OK) assert_int_equal(rows.waiter.code, RV_RESOURCE_EXHAUSTED);
    assert_true((rows.waiter.code == RV_OK) == (rows.done == 1000));
    inserted += rows.done;
    assert_int_equal(size_of(w.table), inserted);
  }
  assert_true(inserted > 20000);
  rv_draw draws[100];
  rv_sampling sampling = {.want = 100, .draws = draws};
  rv_table_sample(w.table, &sampling);
  for (int i = 0; i < 100; i++) assert_in_range(value_of(&draws[i]), 0, 999);
  rv_draws_release(draws, 100);
  rv_store_unref(w.store);
}

static rv_code delete_most(void *context)
{
  world *w = context;
  rv_item_info page[1000];
  uint64_t cursor = 0, keys[1000];
  size_t count, num_unknown, n = 0;
  rv_error err;
  rv_code code = rv_table_items(w->table, &cursor, page, 1000, &count, &err);
  for (size_t i = 0; i < count; i++)
    if (i % 20 != 0) keys[n++] = page[i].key;
  if (code == RV_OK) code = rv_table_mutate(w->table, NULL, 0, keys, n, NULL, &num_unknown, &err);
  return code;
}

static void compaction_without_memory_loses_nothing(void **state)
{
  (void)state;
  world w = make_world();
  int64_t values[1000];
  rv_rows rows;
  for (int64_t round = 0; round < 40; round++) {
    for (int i = 0; i < 1000; i++) values[i] = round;
    add_values(w.table, &rows, values, 1000, NULL);
    must(rows.waiter.code, &rows.waiter.error);
    until_failure = round % 10;
    delete_most(&w);
    until_failure = -1;
  }
  rv_table_info info = info_of(w.table);
  rv_item_info *page = malloc((size_t)info.current_size * sizeof *page);
  uint64_t cursor = 0;
  size_t count;
  rv_error err;
  must(rv_table_items(w.table, &cursor, page, (size_t)info.current_size, &count, &err), &err);
  assert_int_equal(count, info.current_size);
  int64_t last = 0;
  for (size_t i = 0; i < count; i++) {
    rv_draw draw;
    must(rv_table_get(w.table, page[i].key, &draw, &err), &err);
    assert_true(value_of(&draw) >= last);
    last = value_of(&draw);
    rv_draw_release(&draw);
  }
  free(page);
  rv_table_info_fini(&info);
  rv_store_unref(w.store);
}

/* ---- items over two chunks, whose rows move while memory is out and stays out ---- */

enum { ROWS = 400, KEPT_ONE_IN = 4, OTHER = 1000 }; /* more are kept than move at one time: these do all or none */

/* Item i has row i of two chunks, which hold i and OTHER + i. */
static void insert_pairs(world *w, rv_chunk *chunks[2])
{
  for (int32_t i = 0; i < ROWS; i++) {
    rv_error err;
    rv_slice slices[] = {{chunks[0], 0, i, 1}, {chunks[1], 0, i, 1}};
    rv_trajectory_desc desc = {.slices = slices, .num_slices = (uint32_t[]){2}, .squeeze = (bool[]){false}, .num_columns = 1};
    must(rv_trajectory_new(rv_store_layouts(w->store), &desc, &w->trajectory, &err), &err);
    w->key = (uint64_t)i;
    assert_int_equal(insert_item(w), RV_OK);
    rv_trajectory_unref(w->trajectory);
  }
}

static void keep_few(world *w)
{
  rv_error err;
  uint64_t deletes[ROWS];
  size_t n = 0, num_unknown;
  for (uint64_t key = 0; key < ROWS; key++)
    if (key % KEPT_ONE_IN != 0) deletes[n++] = key;
  must(rv_table_mutate(w->table, NULL, 0, deletes, n, NULL, &num_unknown, &err), &err);
}

/* Those that are kept are there, and read as they did; how many of their slices have moved? */
static int check_pairs(world *w)
{
  rv_error err;
  int moved = 0;
  rv_table_info info = info_of(w->table);
  assert_int_equal(info.current_size, ROWS / KEPT_ONE_IN);
  rv_table_info_fini(&info);
  for (int64_t i = 0; i < ROWS; i += KEPT_ONE_IN) {
    rv_draw draw;
    int64_t pair[2];
    must(rv_table_get(w->table, (uint64_t)i, &draw, &err), &err);
    must(rv_draw_copy_column(&draw, 0, pair, &err), &err);
    assert_int_equal(pair[0], i);
    assert_int_equal(pair[1], OTHER + i);
    for (uint32_t k = 0; k < 2; k++) {
      rv_chunk *chunk = rv_draw_slice(&draw, k).chunk;
      moved += chunk->is_segment;
      /* no item has gone since, and what was not written for one is not there to be read */
      if (chunk->is_segment)
        assert_int_equal(rv_chunk_num_rows(chunk, 0), rv_books_find_hold(&w->table->books, chunk)->live_rows);
    }
    rv_draw_release(&draw);
  }
  return moved;
}

static void while_memory_stays_out_no_item_over_several_chunks_is_lost(void **state)
{
  (void)state;
  bool failed = true, in_part = false;
  for (long n = 0; failed; n++) {
    world w = make_world();
    rv_chunk *chunks[] = {encoded_numbers(0, ROWS, 7, false), encoded_numbers(OTHER, ROWS, 7, false)};
    insert_pairs(&w, chunks);
    keep_few(&w);
    assert_int_equal(check_pairs(&w), 0); /* somebody else has the chunks */
    rv_chunk_unref(chunks[0]);
    rv_chunk_unref(chunks[1]);
    fail_allocations_from(n);
    rv_table_compact(w.table, ROWS);
    failed = allocation_failed();
    int moved = check_pairs(&w);
    in_part |= moved > 0 && moved < ROWS / KEPT_ONE_IN;
    rv_table_compact(w.table, ROWS);
    assert_true(check_pairs(&w) >= ROWS / KEPT_ONE_IN); /* the last sparse chunk is left alone */
    rv_store_unref(w.store);
  }
  assert_true(in_part);
}

/* A chunk of one int64, as it came. */
static rv_chunk *copied_number(void)
{
  rv_encoded tensor;
  rv_error err;
  rv_chunk *lent = encoded_numbers(0, 1, 1, false), *own = NULL;
  const uint8_t *wire;
  size_t size;
  rv_chunk_wire(lent, &wire, &size);
  assert_true(rv_chunk_encoded(lent, 0, &tensor));
  must(rv_chunk_new_encoded_copy(rv_chunk_get_meta(lent), &tensor, 1, wire, size, &own, &err), &err);
  rv_chunk_unref(lent);
  return own;
}

typedef struct joining {
  world w;
  rv_chunk *like;
} joining;

/* Steps 0, 1, 2 ... 19, 21, 23 ...: such that each row's step is to be kept, too. */
static rv_code join_rows(void *context)
{
  joining *j = context;
  rv_joined joined;
  rv_joined_init(&joined, rv_store_memory(j->w.store), 1);
  joined.table = j->w.table;
  for (int64_t i = 0; i < 60; i++) {
    const int32_t step = (int32_t)(i < 20 ? i : 2 * i - 19);
    const rv_chunk_meta meta = {.key = 1, .episode_id = 1, .first_step = step, .last_step = step};
    const uint8_t *rows[] = {(const uint8_t *)&i};
    rv_chunk_place place;
    if (!rv_joined_put(&joined, j->like, &meta, rows, &place)) continue;
    int64_t value = -1;
    assert_int_equal(rv_chunk_copy_rows(place.chunk, 0, place.first, 1, &value, NULL), RV_OK);
    assert_true(value == i && rv_chunk_meta_of_rows(place.chunk, place.first, 1).first_step == step);
    rv_chunk_unref(place.chunk);
  }
  rv_joined_fini(&joined);
  return RV_OK;
}

static void chunks_that_find_no_memory_for_a_segment_stay_by_themselves(void **state)
{
  (void)state;
  joining j = {.w = make_world(), .like = copied_number()};
  const size_t before = rv_memory_used(rv_store_memory(j.w.store));
  assert_true(with_each_failure(join_rows, &j) > 5);
  rv_chunk_unref(j.like);
  assert_int_equal(rv_memory_used(rv_store_memory(j.w.store)), before);
  rv_store_unref(j.w.store);
}

static void wake(rv_change_log *log, bool urgent)
{
  (void)log, (void)urgent;
}

/* As many changes as there are in a block, but for a few: of the items that go there is no room to write it down. */
static void bounds_that_find_no_memory_are_told_without_a_place_for_the_sentence(void **state)
{
  (void)state;
  rv_error err;
  int refused = 0;
  for (long n = 0, failed = 1; failed; n++) {
    world w = make_world();
    rv_change_log log;
    rv_change_log_init(&log, SIZE_MAX / 8, wake);
    must(rv_table_keep_changes(w.table, &log, &err), &err);
    for (int i = 1; i < RV_CHANGE_BLOCK - 10; i++) assert_int_equal(insert_value(w.store, w.table, (uint64_t)i, 1, i), RV_OK);
    rv_bounds_change change = {.bounds = rv_table_bounds_unchanged()};
    change.bounds.max_bytes = 1 << 14;
    fail_allocation(n);
    rv_code code = rv_table_change_bounds(w.table, &change, NULL);
    failed = allocation_failed();
    assert_true(code == RV_OK || (code == RV_RESOURCE_EXHAUSTED && failed));
    refused += code != RV_OK;
    while (!change.done) must(rv_table_change_bounds(w.table, &change, &err), &err);
    rv_table_drop_changes(w.table);
    rv_store_unref(w.store);
  }
  assert_true(refused > 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_store_is_made_whole_or_not_at_all),
      cmocka_unit_test(an_insert_that_finds_no_memory_leaves_the_table_as_it_was),
      cmocka_unit_test(an_item_of_many_chunks_that_finds_no_memory_leaves_nothing),
      cmocka_unit_test(rows_that_find_no_memory_say_how_many_are_in),
      cmocka_unit_test(compaction_without_memory_loses_nothing),
      cmocka_unit_test(chunks_that_find_no_memory_for_a_segment_stay_by_themselves),
      cmocka_unit_test(while_memory_stays_out_no_item_over_several_chunks_is_lost),
      cmocka_unit_test(bounds_that_find_no_memory_are_told_without_a_place_for_the_sentence),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
