/* Chunks that came over the wire and are mostly dead: their live rows move, and nobody who looks can tell. */
#include "store/testing.h"

#include <pthread.h>
#include <stdatomic.h>

#include "store/chunk_parts.h"

enum { CHUNKS = 40, ROWS = 64, WIDTH = 256, KEPT_ONE_IN = 16 };

typedef enum coding { AS_THEY_ARE, COMPRESSED, DELTAS, HOWS } coding;

static const int64_t shape[] = {WIDTH};
static const rv_spec specs[] = {{.name = "", .dtype = RV_INT32, .rank = 1, .shape = shape}, {.name = "", .dtype = RV_STRING}};

static void encode_column(rv_pieces *out, size_t column, int64_t first, coding how)
{
  rv_error err;
  int32_t *numbers = malloc(ROWS * WIDTH * sizeof *numbers);
  char text[ROWS][16];
  rv_bytes strings[ROWS];
  for (int64_t i = 0; i < ROWS * WIDTH; i++)
    numbers[i] = (int32_t)((first + i / WIDTH) * 7919 * (how == COMPRESSED ? 1 : i % 13));
  for (int64_t i = 0; i < ROWS; i++) {
    snprintf(text[i], sizeof text[i], "%lld", (long long)(first + i));
    strings[i] = (rv_bytes){text[i], strlen(text[i])};
  }
  if (column == 0)
    must(rv_encode(out, RV_INT32, 1, shape, numbers, WIDTH * sizeof *numbers, ROWS, how == DELTAS, how != AS_THEY_ARE, &err),
         &err);
  else
    must(rv_encode(out, RV_STRING, 0, NULL, strings, sizeof *strings, ROWS, false, how != AS_THEY_ARE, &err), &err);
  free(numbers);
}

/* Rows first, first + 1, ... of columns [column, column + n). */
static rv_chunk *chunk_from_elsewhere(int64_t first, size_t column, uint32_t n, uint64_t episode, coding how)
{
  rv_error err;
  rv_chunk *chunk;
  rv_pieces pieces;
  rv_encoded tensors[2];
  size_t begins[2];
  const int64_t shapes[2][2] = {{ROWS, WIDTH}, {ROWS}};
  rv_pieces_init(&pieces);
  for (uint32_t i = 0; i < n; i++) {
    begins[i] = pieces.bytes;
    encode_column(&pieces, column + i, first, how);
    tensors[i] = (rv_encoded){.dtype = specs[column + i].dtype,
                              .rank = (uint32_t)specs[column + i].rank + 1,
                              .shape = shapes[column + i],
                              .delta = how == DELTAS,
                              .content_size = pieces.bytes - begins[i]};
  }
  rv_buf *buf = rv_buf_new(pieces.bytes);
  for (size_t i = 0; i < pieces.count; buf->size += pieces.piece[i++].size)
    memcpy(buf->data + buf->size, pieces.piece[i].data, pieces.piece[i].size);
  for (uint32_t i = 0; i < n; i++) tensors[i].content = buf->data + begins[i];
  rv_chunk_meta meta = {
      .key = (uint64_t)first, .episode_id = episode, .first_step = (int32_t)first, .last_step = (int32_t)first + ROWS - 1};
  must(rv_chunk_new_encoded(&meta, tensors, n, buf, buf->data, buf->size, &chunk, &err), &err);
  rv_pieces_fini(&pieces);
  rv_buf_unref(buf);
  return chunk;
}

/* `length` rows from one on, of both columns; whose chunk is NULL lies in the other's. */
static void insert_run(rv_store *store, rv_table *table, uint64_t key, rv_chunk *numbers, rv_chunk *strings, int32_t row,
                       int32_t length)
{
  rv_error err;
  rv_slice slices[] = {
      {.chunk = numbers, .offset = row, .length = length},
      {.chunk = strings == NULL ? numbers : strings, .tensor = strings == NULL, .offset = row, .length = length}};
  rv_trajectory_desc desc = {
      .slices = slices, .num_slices = (uint32_t[]){1, 1}, .squeeze = (bool[]){false, false}, .num_columns = 2};
  rv_insert insert = {.key = key, .priority = (double)key};
  must(rv_trajectory_new(rv_store_layouts(store), &desc, &insert.trajectory, &err), &err);
  assert_int_equal(rv_table_insert(table, &insert), RV_SUBMIT_DONE);
  must(insert.waiter.code, &insert.waiter.error);
  rv_trajectory_unref(insert.trajectory);
}

static rv_chunk *chunk_of_column(const rv_draw *draw, uint32_t column, int64_t *row)
{
  rv_slice slice = rv_draw_slice(draw, draw->trajectory->columns[column].first_slice);
  *row = slice.offset;
  return slice.chunk;
}

/* The item's rows begin with number `key`, in steps of that number. */
static void check_item(rv_table *table, uint64_t key, int32_t length, uint64_t episode, coding how, bool steps)
{
  rv_draw draw;
  rv_error err;
  rv_bytes strings[4];
  int32_t *numbers = malloc((size_t)length * WIDTH * sizeof *numbers);
  must(rv_table_get(table, key, &draw, &err), &err);
  must(rv_draw_copy_column(&draw, 0, numbers, &err), &err);
  must(rv_draw_copy_column(&draw, 1, strings, &err), &err);
  for (int64_t i = 0; i < length * WIDTH; i++) {
    int64_t value = (int64_t)key + i / WIDTH, at = ((int64_t)key % ROWS) * WIDTH + i;
    assert_int_equal(numbers[i], (int32_t)(value * 7919 * (how == COMPRESSED ? 1 : at % 13)));
  }
  for (int32_t i = 0; i < length; i++) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)key + i);
    assert_int_equal(strings[i].size, strlen(text));
    assert_memory_equal(strings[i].data, text, strlen(text));
  }
  for (uint32_t column = 0; column < 2; column++) {
    int64_t row;
    const rv_chunk *chunk = chunk_of_column(&draw, column, &row);
    assert_int_equal(rv_chunk_get_meta(chunk)->episode_id, episode);
    if (!steps) continue;
    assert_int_equal(rv_chunk_row_step(chunk, row), key);
    rv_chunk_meta meta = rv_chunk_meta_of_rows(chunk, row, length);
    assert_int_equal(meta.first_step, key);
    assert_int_equal(meta.last_step, (int64_t)key + length - 1);
    assert_false(meta.sparse);
  }
  rv_draw_release(&draw);
  free(numbers);
}

static int64_t memory_of(rv_table *table)
{
  rv_table_info info = info_of(table);
  int64_t bytes = info.memory_bytes;
  rv_table_info_fini(&info);
  return bytes;
}

static void keep_one_in(rv_table *table, int32_t step)
{
  uint64_t deletes[CHUNKS * ROWS];
  size_t n = 0, num_unknown;
  rv_error err;
  for (int64_t at = 0; at < CHUNKS * ROWS; at += step)
    if (at / step % KEPT_ONE_IN != 3) deletes[n++] = (uint64_t)at;
  must(rv_table_mutate(table, NULL, 0, deletes, n, NULL, &num_unknown, &err), &err);
  assert_int_equal(num_unknown, 0);
}

/* Items of one row with both columns in one chunk, or of two rows with a chunk for each column. */
static void run(coding how, bool apart, uint64_t episodes)
{
  rv_table_config config = rv_table_config_default("t", CHUNKS * ROWS);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  int32_t length = apart ? 2 : 1;
  for (int64_t first = 0; first < CHUNKS * ROWS; first += ROWS) {
    uint64_t episode = 5 + (uint64_t)first % episodes;
    rv_chunk *numbers = chunk_from_elsewhere(first, 0, apart ? 1 : 2, episode, how);
    rv_chunk *strings = apart ? chunk_from_elsewhere(first, 1, 1, episode, how) : NULL;
    rv_chunk_attach_cache(numbers, rv_store_decode_cache(store));
    for (int32_t row = 0; row < ROWS; row += length)
      insert_run(store, table, (uint64_t)(first + row), numbers, strings, row, length);
    rv_chunk_unref(numbers);
    rv_chunk_unref(strings);
  }
  rv_table_info info = info_of(table);
  int64_t full = info.memory_bytes, num_episodes = info.num_episodes;
  rv_table_info_fini(&info);
  keep_one_in(table, length);
  for (int i = 0; i < 100; i++) memory_of(table); /* each look is a turn */
  int64_t live = CHUNKS * ROWS / KEPT_ONE_IN * (WIDTH * (int64_t)sizeof(int32_t) + 32), books = CHUNKS * ROWS * 200;
  info = info_of(table);
  assert_true(info.memory_bytes < 4 * live + books);
  if (how == AS_THEY_ARE) assert_true(info.memory_bytes < full / 4);
  assert_int_equal(info.num_episodes, num_episodes);
  rv_table_info_fini(&info);
  for (int64_t at = 3 * length; at < CHUNKS * ROWS; at += length * KEPT_ONE_IN)
    check_item(table, (uint64_t)at, length, 5 + (uint64_t)(at / ROWS * ROWS) % episodes, how, true);
  rv_store_unref(store);
}

static void single_rows_move_out_of_chunks_however_they_are_encoded(void **state)
{
  (void)state;
  for (coding how = 0; how < HOWS; how++) {
    run(how, false, 1);
    run(how, false, 1009);
  }
}

static void runs_of_rows_move_where_each_column_has_its_own_chunks(void **state)
{
  (void)state;
  for (coding how = 0; how < HOWS; how++) {
    run(how, true, 1);
    run(how, true, 1009);
  }
}

static void a_chunk_that_two_tables_hold_goes_when_it_is_mostly_dead_for_both(void **state)
{
  (void)state;
  rv_table_config configs[] = {rv_table_config_default("a", 100000), rv_table_config_default("b", 100000)};
  rv_store_config whole = {.size = sizeof whole, .tables = configs, .num_tables = 2};
  rv_store *store;
  rv_error err;
  must(rv_store_new(&whole, &store, &err), &err);
  rv_table *a = rv_store_table(store, 0), *b = rv_store_table(store, 1);
  for (int64_t first = 0; first < CHUNKS * ROWS; first += ROWS) {
    rv_chunk *chunk = chunk_from_elsewhere(first, 0, 2, 5, AS_THEY_ARE);
    for (int32_t row = 0; row < ROWS; row++) {
      insert_run(store, a, (uint64_t)(first + row), chunk, NULL, row, 1);
      insert_run(store, b, (uint64_t)(first + row), chunk, NULL, row, 1);
    }
    rv_chunk_unref(chunk);
  }
  int64_t full = memory_of(a);
  keep_one_in(a, 1);
  for (int i = 0; i < 100; i++) memory_of(a);
  assert_true(memory_of(a) > full - full / 8); /* b needs them all */
  keep_one_in(b, 1);
  for (int i = 0; i < 3000; i++) memory_of(a), memory_of(b);
  assert_true(memory_of(a) < full / 4);
  assert_true(memory_of(b) < full / 4);
  for (uint64_t key = 3; key < CHUNKS * ROWS; key += KEPT_ONE_IN) {
    check_item(a, key, 1, 5, AS_THEY_ARE, true);
    check_item(b, key, 1, 5, AS_THEY_ARE, true);
  }
  rv_store_unref(store);
}

static void chunks_that_a_stream_may_yet_refer_to_stay_until_it_lets_them_go(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("t", CHUNKS * ROWS);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  rv_chunk *chunks[CHUNKS];
  for (int64_t i = 0; i < CHUNKS; i++) {
    chunks[i] = chunk_from_elsewhere(i * ROWS, 0, 2, 5, AS_THEY_ARE);
    for (int32_t row = 0; row < ROWS; row++) insert_run(store, table, (uint64_t)(i * ROWS + row), chunks[i], NULL, row, 1);
  }
  int64_t full = memory_of(table);
  keep_one_in(table, 1);
  assert_true(memory_of(table) > full / 2);
  insert_run(store, table, 10, chunks[0], NULL, 10, 1);
  for (int64_t i = 0; i < CHUNKS; i++) rv_chunk_unref(chunks[i]);
  for (int i = 0; i < 3000; i++) memory_of(table);
  assert_true(memory_of(table) < full / 4);
  check_item(table, 10, 1, 5, AS_THEY_ARE, true);
  rv_store_unref(store);
}

/* Items that nobody gives rows to: chunks are mostly dead from the beginning. */
static void rows_that_no_item_ever_wanted_are_given_back(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("t", CHUNKS * ROWS);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  int64_t bytes = 0;
  for (int64_t first = 0; first < CHUNKS * ROWS; first += ROWS) {
    rv_chunk *chunk = chunk_from_elsewhere(first, 0, 2, 5, AS_THEY_ARE);
    bytes += (int64_t)rv_chunk_memory(chunk);
    insert_run(store, table, (uint64_t)first + 9, chunk, NULL, 9, 1);
    rv_chunk_unref(chunk);
  }
  for (int i = 0; i < 100; i++) memory_of(table);
  assert_true(memory_of(table) < bytes / 2);
  for (uint64_t first = 0; first < CHUNKS * ROWS; first += ROWS) check_item(table, first + 9, 1, 5, AS_THEY_ARE, true);
  rv_store_unref(store);
}

static void chunks_that_do_not_decode_are_left_alone(void **state)
{
  (void)state;
  enum { BROKEN_ROWS = 1000, PIECES = 4 };
  rv_table_config config = rv_table_config_default("t", PIECES * BROKEN_ROWS);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  rv_error err;
  for (int64_t first = 0; first < PIECES * BROKEN_ROWS; first += BROKEN_ROWS) {
    /* the length of one row more than there are bytes for, then a copy from before the beginning */
    uint8_t content[4000] = {0xC0, 0x3E, 0xFE, 0xFF, 0xFF};
    const int64_t broken_shape = BROKEN_ROWS;
    rv_buf *buf = rv_buf_new(sizeof content);
    memcpy(buf->data, content, buf->size = sizeof content);
    rv_encoded tensor = {
        .dtype = RV_INT64, .rank = 1, .shape = &broken_shape, .content = buf->data, .content_size = sizeof content};
    rv_chunk_meta meta = {.key = (uint64_t)first, .episode_id = 5};
    rv_chunk *chunk;
    must(rv_chunk_new_encoded(&meta, &tensor, 1, buf, buf->data, buf->size, &chunk, &err), &err);
    rv_buf_unref(buf);
    for (int32_t row = 0; row < BROKEN_ROWS; row++) {
      rv_insert insert = {.key = (uint64_t)(first + row), .priority = 1, .trajectory = trajectory_of(store, chunk, row, 1)};
      assert_int_equal(rv_table_insert(table, &insert), RV_SUBMIT_DONE);
      must(insert.waiter.code, &insert.waiter.error);
      rv_trajectory_unref(insert.trajectory);
    }
    rv_chunk_unref(chunk);
  }
  uint64_t deletes[PIECES * BROKEN_ROWS];
  size_t n = 0, num_unknown;
  for (uint64_t key = 0; key < PIECES * BROKEN_ROWS; key++)
    if (key % 100 != 0) deletes[n++] = key;
  must(rv_table_mutate(table, NULL, 0, deletes, n, NULL, &num_unknown, &err), &err);
  for (int i = 0; i < 100; i++) memory_of(table);
  rv_table_info info = info_of(table);
  assert_int_equal(info.current_size, PIECES * BROKEN_ROWS / 100);
  rv_table_info_fini(&info);
  rv_draw draw;
  int64_t value;
  must(rv_table_get(table, 100, &draw, &err), &err);
  assert_false(draw.chunk->is_segment);
  assert_int_equal(rv_draw_copy_column(&draw, 0, &value, &err), RV_DATA_LOSS);
  rv_draw_release(&draw);
  rv_store_unref(store);
}

typedef struct busy_table {
  rv_table *table;
  atomic_bool over;
} busy_table;

static void *sample_until_over(void *context)
{
  busy_table *busy = context;
  while (!atomic_load(&busy->over)) {
    rv_draw draws[16];
    rv_sampling sampling = {.want = 16, .draws = draws};
    assert_int_equal(rv_table_sample(busy->table, &sampling), RV_SUBMIT_DONE);
    for (size_t i = 0; i < sampling.count; i++) assert_int_equal(value_of(&draws[i]), draws[i].key);
    rv_draws_release(draws, sampling.count);
  }
  return NULL;
}

static void items_may_be_sampled_while_their_rows_move(void **state)
{
  (void)state;
  enum { MAX_SIZE = 300, CAME = 300, MANY = 500, SAMPLERS = 2 };
  rv_table_config config = rv_table_config_default("t", MAX_SIZE);
  config.sampler.kind = config.remover.kind = RV_SELECTOR_UNIFORM;
  rv_store *store = store_of(&config);
  busy_table busy = {.table = rv_store_table(store, 0)};
  atomic_init(&busy.over, false);
  pthread_t threads[SAMPLERS];
  size_t moved = 0;
  for (int64_t first = 0; first < CAME * MANY; first += MANY) {
    rv_chunk *chunk = encoded_numbers(first, MANY, (uint64_t)first % 7, first % 3 == 0);
    if (first % 2 == 0) rv_chunk_attach_cache(chunk, rv_store_decode_cache(store));
    for (int32_t row = 0; row < MANY; row += 5) {
      rv_insert insert = {.key = (uint64_t)(first + row), .priority = 1, .trajectory = trajectory_of(store, chunk, row, 1)};
      assert_int_equal(rv_table_insert(busy.table, &insert), RV_SUBMIT_DONE);
      rv_trajectory_unref(insert.trajectory);
    }
    rv_chunk_unref(chunk);
    for (int i = 0; first == 0 && i < SAMPLERS; i++)
      assert_int_equal(pthread_create(&threads[i], NULL, sample_until_over, &busy), 0);
  }
  atomic_store(&busy.over, true);
  for (int i = 0; i < SAMPLERS; i++) pthread_join(threads[i], NULL);
  for (uint64_t key = 0; key < CAME * MANY; key += 5) {
    rv_draw draw;
    if (rv_table_get(busy.table, key, &draw, NULL) != RV_OK) continue;
    assert_int_equal(value_of(&draw), key);
    moved += draw.chunk->is_segment;
    rv_draw_release(&draw);
  }
  assert_true(moved > 0);
  rv_store_unref(store);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(single_rows_move_out_of_chunks_however_they_are_encoded),
      cmocka_unit_test(runs_of_rows_move_where_each_column_has_its_own_chunks),
      cmocka_unit_test(a_chunk_that_two_tables_hold_goes_when_it_is_mostly_dead_for_both),
      cmocka_unit_test(chunks_that_a_stream_may_yet_refer_to_stay_until_it_lets_them_go),
      cmocka_unit_test(rows_that_no_item_ever_wanted_are_given_back),
      cmocka_unit_test(chunks_that_do_not_decode_are_left_alone),
      cmocka_unit_test(items_may_be_sampled_while_their_rows_move),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
