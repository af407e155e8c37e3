/* Memory: it stays level, goes back with the last item, and is not kept by a few rows of many. */
#include "store/testing.h"

#include "store/chunk_parts.h"

static rv_table_config plain(int64_t max_size)
{
  return rv_table_config_default("plain", max_size);
}

static void memory_stays_level_at_the_bound(void **state)
{
  (void)state;
  rv_table_config config = plain(5000);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  int64_t values[100] = {0}, level = 0;
  rv_rows rows;
  for (int i = 0; i < 10000; i++) {
    assert_int_equal(add_values(table, &rows, values, 100, NULL), RV_SUBMIT_DONE);
    if (i != 200 && i != 9999) continue;
    rv_table_info info = info_of(table);
    if (level == 0) level = info.memory_bytes;
    assert_true(info.memory_bytes <= level + 20000);
    assert_true(info.memory_bytes < 5000 * 140 + 100000);
    rv_table_info_fini(&info);
  }
  rv_store_unref(store);
}

static void chunks_go_with_their_last_item_in_any_table(void **state)
{
  (void)state;
  rv_table_config configs[] = {plain(10), plain(10)};
  configs[1].name = "other";
  rv_store_config whole = {.size = sizeof whole, .tables = configs, .num_tables = 2};
  rv_store *store;
  rv_error err;
  must(rv_store_new(&whole, &store, &err), &err);
  rv_table *a = rv_store_table(store, 0), *b = rv_store_table(store, 1);
  rv_chunk *chunk = chunk_of(5, 1);
  for (uint64_t key = 0; key < 2; key++) {
    rv_insert insert = {.key = key, .priority = 1, .trajectory = trajectory_of(store, chunk, 0, 1)};
    rv_table_insert(a, &insert);
    must(insert.waiter.code, &insert.waiter.error);
    if (key == 0) rv_table_insert(b, &insert);
    rv_trajectory_unref(insert.trajectory);
  }
  assert_int_equal(rv_chunk_refs(chunk), 3);
  rv_table_info info = info_of(a);
  assert_int_equal(info.num_episodes, 1);
  rv_table_info_fini(&info);
  uint64_t key = 0;
  size_t num_unknown;
  must(rv_table_mutate(a, NULL, 0, &key, 1, NULL, &num_unknown, &err), &err);
  assert_int_equal(rv_chunk_refs(chunk), 3);
  key = 1;
  must(rv_table_mutate(a, NULL, 0, &key, 1, NULL, &num_unknown, &err), &err);
  assert_int_equal(rv_chunk_refs(chunk), 2);
  info = info_of(a);
  assert_int_equal(info.num_episodes, 0);
  assert_int_equal(info.num_deleted_episodes, 1);
  rv_table_info_fini(&info);
  must(rv_table_reset(b, &err), &err);
  assert_int_equal(rv_chunk_refs(chunk), 1);
  info = info_of(b);
  assert_int_equal(info.num_deleted_episodes, 0);
  rv_table_info_fini(&info);
  rv_chunk_unref(chunk);
  rv_store_unref(store);
}

static void put(rv_store *store, rv_table *table, uint64_t key, rv_chunk *chunk)
{
  rv_insert insert = {.key = key, .priority = 1, .trajectory = trajectory_of(store, chunk, 0, 1)};
  rv_table_insert(table, &insert);
  must(insert.waiter.code, &insert.waiter.error);
  rv_trajectory_unref(insert.trajectory);
}

static void take(rv_table *table, uint64_t key)
{
  rv_error err;
  size_t num_unknown;
  must(rv_table_mutate(table, NULL, 0, &key, 1, NULL, &num_unknown, &err), &err);
  assert_int_equal(num_unknown, 0);
}

/* Their chunks come and go as the table finds it well. */
static void rows_without_an_episode_are_none_that_was_deleted(void **state)
{
  (void)state;
  rv_table_config config = plain(10);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  for (uint64_t key = 1; key <= 3; key++) {
    rv_chunk *chunk = chunk_of((int64_t)key, RV_NO_EPISODE);
    put(store, table, key, chunk);
    rv_chunk_unref(chunk);
    take(table, key);
  }
  rv_table_info info = info_of(table);
  assert_int_equal(info.num_episodes, 0);
  assert_int_equal(info.num_deleted_episodes, 0);
  rv_table_info_fini(&info);
  rv_store_unref(store);
}

static void each_table_holds_a_chunk_once_whichever_had_it_first(void **state)
{
  (void)state;
  rv_table_config configs[] = {plain(10), plain(10), plain(10)};
  configs[1].name = "b";
  configs[2].name = "c";
  rv_store_config whole = {.size = sizeof whole, .tables = configs, .num_tables = 3};
  rv_store *store;
  rv_error err;
  must(rv_store_new(&whole, &store, &err), &err);
  rv_table *a = rv_store_table(store, 0), *b = rv_store_table(store, 1), *c = rv_store_table(store, 2);
  rv_chunk *chunk = chunk_of(5, 1);
  put(store, a, 1, chunk);
  put(store, b, 1, chunk);
  assert_int_equal(rv_chunk_refs(chunk), 3);
  take(a, 1); /* the first one lets it go: the second has it, and is found to have it */
  assert_int_equal(rv_chunk_refs(chunk), 2);
  put(store, b, 2, chunk);
  assert_int_equal(rv_chunk_refs(chunk), 2);
  put(store, c, 1, chunk);
  put(store, a, 2, chunk);
  put(store, b, 3, chunk);
  assert_int_equal(rv_chunk_refs(chunk), 4);
  must(rv_table_reset(c, &err), &err);
  put(store, c, 2, chunk);
  put(store, c, 3, chunk);
  assert_int_equal(rv_chunk_refs(chunk), 4);
  for (uint64_t key = 1; key <= 3; key++) take(b, key);
  assert_int_equal(rv_chunk_refs(chunk), 3);
  put(store, b, 1, chunk);
  take(b, 1);
  take(a, 2);
  take(c, 2);
  take(c, 3);
  assert_int_equal(rv_chunk_refs(chunk), 1);
  rv_chunk_unref(chunk);
  rv_store_unref(store);
}

static void a_draw_outlives_its_table_and_its_store(void **state)
{
  (void)state;
  rv_table_config config = plain(10);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  int64_t values[] = {41, 42};
  uint64_t keys[2];
  rv_rows rows;
  add_values(table, &rows, values, 2, keys);
  rv_draw draw;
  rv_error err;
  must(rv_table_get(table, keys[1], &draw, &err), &err);
  rv_store_unref(store);
  assert_int_equal(value_of(&draw), 42);
  rv_draw_release(&draw);
}

static void sparse_segments_are_compacted_and_rows_stay_right(void **state)
{
  (void)state;
  enum { N = 60000, KEPT_ONE_IN = 50 };
  rv_table_config config = plain(N);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  uint64_t *keys = malloc(N * sizeof *keys), *deletes = malloc(N * sizeof *deletes);
  uint8_t *data = malloc(N * 64);
  for (size_t i = 0; i < N; i++) memcpy(memset(data + i * 64, (int)(i % 253), 64), &i, sizeof i);
  const int64_t shape[] = {N, 64};
  rv_tensor column = {RV_UINT8, 2, shape, data};
  rv_rows rows = {.columns = &column, .num_columns = 1, .n = N, .keys = keys};
  assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_DONE);
  rv_table_info full = info_of(table);
  rv_draw held;
  rv_error err;
  must(rv_table_get(table, keys[KEPT_ONE_IN], &held, &err), &err);
  size_t num_deletes = 0, num_unknown;
  for (size_t i = 0; i < N; i++)
    if (i % KEPT_ONE_IN != 0) deletes[num_deletes++] = keys[i];
  must(rv_table_mutate(table, NULL, 0, deletes, num_deletes, NULL, &num_unknown, &err), &err);
  rv_table_info sparse = info_of(table);
  assert_int_equal(sparse.current_size, N / KEPT_ONE_IN);
  /* books are not given back, the rows' memory is */
  assert_true(full.memory_bytes - sparse.memory_bytes > N * 64 * 3 / 4);
  for (size_t i = 0; i < N; i += KEPT_ONE_IN) {
    rv_draw draw;
    uint8_t row[64];
    size_t number;
    must(rv_table_get(table, keys[i], &draw, &err), &err);
    must(rv_draw_copy_column(&draw, 0, row, &err), &err);
    memcpy(&number, row, sizeof number);
    assert_int_equal(number, i);
    assert_int_equal(row[63], i % 253);
    rv_draw_release(&draw);
  }
  uint8_t row[64];
  size_t number;
  must(rv_draw_copy_column(&held, 0, row, &err), &err);
  memcpy(&number, row, sizeof number);
  assert_int_equal(number, KEPT_ONE_IN);
  rv_draw_release(&held);
  rv_table_info_fini(&full);
  rv_table_info_fini(&sparse);
  free(keys);
  free(deletes);
  free(data);
  rv_store_unref(store);
}

/* A writer's segments: overlapping items of three rows, some across two segments. */
static void a_writers_sparse_segments_are_compacted_too(void **state)
{
  (void)state;
  enum { SEGMENTS = 30, ROWS = 400 };
  rv_table_config config = plain(SEGMENTS * ROWS);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  rv_error err;
  rv_chunk *chunks[SEGMENTS];
  rv_spec specs[] = {{.name = "", .dtype = RV_INT64}, {.name = "", .dtype = RV_STRING}};
  for (int s = 0; s < SEGMENTS; s++) {
    rv_chunk_meta meta = {.key = (uint64_t)s, .episode_id = 9, .last_step = ROWS - 1};
    must(rv_segment_new(specs, 2, ROWS, &meta, &chunks[s], &err), &err);
    for (int64_t row = 0; row < ROWS; row++) {
      int64_t value = s * ROWS + row;
      char text[16];
      snprintf(text, sizeof text, "%lld", (long long)value);
      rv_bytes string = {text, strlen(text)};
      rv_tensor cells[] = {{RV_INT64, 0, NULL, &value}, {RV_STRING, 0, NULL, &string}};
      must(rv_segment_put(chunks[s], 0, row, &cells[0], &err), &err);
      must(rv_segment_put(chunks[s], 1, row, &cells[1], &err), &err);
    }
    rv_segment_publish(chunks[s], 0, ROWS);
    rv_segment_publish(chunks[s], 1, ROWS);
  }
  uint64_t *deletes = malloc(SEGMENTS * ROWS * sizeof *deletes);
  size_t num_deletes = 0, num_unknown;
  for (int64_t at = 0; at + 3 <= SEGMENTS * ROWS; at += 2) {
    rv_slice slices[6];
    uint32_t n = 0;
    for (uint32_t tensor = 0; tensor < 2; tensor++)
      for (int64_t row = at; row < at + 3; row++) slices[n++] = (rv_slice){chunks[row / ROWS], tensor, (int32_t)(row % ROWS), 1};
    rv_trajectory_desc desc = {
        .slices = slices, .num_slices = (uint32_t[]){3, 3}, .squeeze = (bool[]){false, false}, .num_columns = 2};
    rv_insert insert = {.key = (uint64_t)at, .priority = 1};
    must(rv_trajectory_new(rv_store_layouts(store), &desc, &insert.trajectory, &err), &err);
    assert_int_equal(rv_table_insert(table, &insert), RV_SUBMIT_DONE);
    must(insert.waiter.code, &insert.waiter.error);
    rv_trajectory_unref(insert.trajectory);
    bool kept = at % 100 == 0 || at % ROWS == ROWS - 2;
    if (!kept) deletes[num_deletes++] = (uint64_t)at;
  }
  for (int s = 0; s < SEGMENTS; s++) rv_chunk_unref(chunks[s]);
  rv_table_info full = info_of(table);
  must(rv_table_mutate(table, NULL, 0, deletes, num_deletes, NULL, &num_unknown, &err), &err);
  rv_table_info sparse = info_of(table);
  assert_true(sparse.memory_bytes < full.memory_bytes - SEGMENTS * ROWS * 16 / 2);
  assert_int_equal(sparse.num_episodes, 1);
  for (int64_t at = 0; at + 3 <= SEGMENTS * ROWS; at += 2) {
    if (at % 100 != 0 && at % ROWS != ROWS - 2) continue;
    rv_draw draw;
    int64_t values[3];
    rv_bytes texts[3];
    must(rv_table_get(table, (uint64_t)at, &draw, &err), &err);
    must(rv_draw_copy_column(&draw, 0, values, &err), &err);
    must(rv_draw_copy_column(&draw, 1, texts, &err), &err);
    for (int i = 0; i < 3; i++) {
      char text[16];
      snprintf(text, sizeof text, "%lld", (long long)(at + i));
      assert_int_equal(values[i], at + i);
      assert_int_equal(texts[i].size, strlen(text));
      assert_memory_equal(texts[i].data, text, strlen(text));
    }
    rv_draw_release(&draw);
  }
  rv_table_info_fini(&full);
  rv_table_info_fini(&sparse);
  free(deletes);
  rv_store_unref(store);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_stays_level_at_the_bound),
      cmocka_unit_test(chunks_go_with_their_last_item_in_any_table),
      cmocka_unit_test(rows_without_an_episode_are_none_that_was_deleted),
      cmocka_unit_test(each_table_holds_a_chunk_once_whichever_had_it_first),
      cmocka_unit_test(a_draw_outlives_its_table_and_its_store),
      cmocka_unit_test(sparse_segments_are_compacted_and_rows_stay_right),
      cmocka_unit_test(a_writers_sparse_segments_are_compacted_too),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
