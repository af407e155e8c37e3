/* Small chunks whose rows the server joins: what items over them are, and what they take. */
#include "support/packs.h"

enum { ITEMS = 600, FEW = 20 };

/* Chunk number `step` of episode 1, with one row. */
static one step_of(int32_t step)
{
  return (one){
      .key = 1000 + (uint64_t)step, .chunks = {5000 + (uint64_t)step}, .episode = 1, .first_step = step, .value = 10 * step};
}

static void put_step(rv_writer_buf *body, const one *step)
{
  rv_buf *chunk = chunk_of(step, &plain, 0);
  rv_put_bytes_always(body, 1, chunk->data, chunk->size);
  rv_buf_unref(chunk);
}

/* An item over these slices: those of the first column, then those of the second, if it has one. */
static void put_columns_in(rv_writer_buf *body, const char *table, uint64_t key, rv_wire_slice *slices, uint32_t *num_slices,
                           uint32_t num_columns, uint64_t sequence)
{
  bool squeeze[2] = {false, false};
  rv_wire_item item = {.key = key,
                       .table = {(const uint8_t *)table, strlen(table)},
                       .priority = 1,
                       .sequence = sequence,
                       .slices = slices,
                       .num_slices = num_slices,
                       .squeeze = squeeze,
                       .num_columns = num_columns,
                       .total_slices = num_slices[0] + (num_columns > 1 ? num_slices[1] : 0)};
  size_t mark = rv_put_open(body, 2);
  rv_wire_item_serialize(body, &item);
  rv_put_close(body, mark);
}

static void put_slices_in(rv_writer_buf *body, const char *table, uint64_t key, rv_wire_slice *slices, uint32_t n,
                          uint64_t sequence)
{
  put_columns_in(body, table, key, slices, &n, 1, sequence);
}

static void put_slices(rv_writer_buf *body, uint64_t key, rv_wire_slice *slices, uint32_t n, uint64_t sequence)
{
  put_slices_in(body, "alone", key, slices, n, sequence);
}

/* A stream that has sent its first items, so that it is known which table they are for, and the chunk of step 0, which it keeps. */
static test_stream *open_steps(void)
{
  test_stream *call = open_writer();
  uint64_t key;
  one first = {.key = 1, .chunks = {1}, .episode = 9};
  like alone = plain;
  alone.table = "alone";
  insert_alone(call, &first, &alone, 1);
  expect_keys(call, &key, 1);
  one step = step_of(0);
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_step(&body, &step);
  stream_send(call, &body);
  return call;
}

/* The chunk of the step, and an item over it and the one before; only the new chunk is kept. */
static void insert_two_steps(test_stream *call, int32_t number)
{
  const one before = step_of(number - 1), step = step_of(number);
  rv_wire_slice slices[] = {{.chunk_key = before.chunks[0], .length = 1}, {.chunk_key = step.chunks[0], .length = 1}};
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_step(&body, &step);
  put_slices(&body, step.key, slices, 2, 1 + (uint64_t)number);
  rv_put_varint_always(&body, 3, step.chunks[0]);
  stream_send(call, &body);
}

static void check_two_steps(int32_t number)
{
  rv_draw draw;
  int32_t rows[4];
  assert_int_equal(rv_table_get(rig_find(&rig, "alone"), step_of(number).key, &draw, NULL), RV_OK);
  assert_int_equal(draw.trajectory->columns[0].length, 2);
  assert_int_equal(rv_draw_copy_column(&draw, 0, rows, NULL), RV_OK);
  const int32_t value = step_of(number - 1).value;
  assert_true(rows[0] == value && rows[1] == value + 1 && rows[2] == value + 10 && rows[3] == value + 11);
  const rv_slice first = rv_draw_slice(&draw, 0);
  const rv_chunk_meta meta = rv_chunk_meta_of_rows(first.chunk, first.offset, 1);
  assert_true(meta.episode_id == 1 && meta.first_step == number - 1);
  rv_draw_release(&draw);
}

/* Items number 1 to n of such a stream. */
static test_stream *open_with_items(int32_t n)
{
  uint64_t keys[ITEMS];
  test_stream *call = open_steps();
  for (int32_t i = 1; i <= n; i++) insert_two_steps(call, i);
  expect_keys(call, keys, (size_t)n);
  return call;
}

static void items_over_chunks_that_follow_each_other_take_little_more_than_their_rows(void **state)
{
  (void)state;
  test_stream *call = open_with_items(ITEMS);
  for (int32_t i = 1; i <= ITEMS; i++) check_two_steps(i);
  assert_true(info_of("alone").item_bytes / ITEMS < 160); /* a chunk and a trajectory by themselves take more than 1,000 */
  stream_free(call);
}

/* Reverb's timestep dataset takes an item apart only where its columns have as many slices of the same lengths: a column that is joined stays cut as one
 * beside it that is not. */
static void columns_that_were_cut_alike_stay_so(void **state)
{
  (void)state;
  test_stream *call = open_with_items(FEW);
  one large[2];
  like wide = {.table = "alone", .num_chunks = 1, .rows = {1}, .width = {62}};
  wide.more_tensors[0] = 2; /* 62 + 63 + 64 numbers: more than is joined */
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  for (int32_t i = 0; i < 2; i++) {
    large[i] = (one){.chunks = {9000 + (uint64_t)i}, .episode = 1, .first_step = FEW - 1 + i};
    rv_buf *chunk = chunk_of(&large[i], &wide, 0);
    rv_put_bytes_always(&body, 1, chunk->data, chunk->size);
    rv_buf_unref(chunk);
  }
  rv_wire_slice slices[] = {{.chunk_key = large[0].chunks[0], .length = 1},
                            {.chunk_key = large[1].chunks[0], .length = 1},
                            {.chunk_key = step_of(FEW).chunks[0], .length = 1},
                            {.chunk_key = step_of(FEW + 1).chunks[0], .length = 1}}; /* which go on */
  uint32_t num_slices[] = {2, 2};
  one next = step_of(FEW + 1);
  put_step(&body, &next);
  put_columns_in(&body, "alone", 77, slices, num_slices, 2, FEW + 2);
  stream_send(call, &body);
  uint64_t key;
  expect_keys(call, &key, 1);
  rv_draw draw;
  assert_int_equal(rv_table_get(rig_find(&rig, "alone"), 77, &draw, NULL), RV_OK);
  assert_int_equal(draw.trajectory->columns[0].num_slices, 2);
  assert_int_equal(draw.trajectory->columns[1].num_slices, 2);
  rv_draw_release(&draw);
  stream_free(call);
}

static void an_item_reaches_no_further_than_its_chunk(void **state)
{
  (void)state;
  test_stream *call = open_with_items(FEW); /* the newest chunk is joined */
  uint64_t key;
  char message[RV_ERROR_MESSAGE_MAX];
  rv_wire_slice beyond[] = {{.chunk_key = step_of(FEW).chunks[0], .length = 2},
                            {.chunk_key = step_of(FEW).chunks[0], .offset = -1, .length = 1}};
  for (size_t i = 0; i < 2; i++) {
    rv_writer_buf body;
    rv_writer_buf_init(&body);
    put_slices(&body, 77 + i, &beyond[i], 1, FEW + 2 + i);
    rv_put_varint_always(&body, 3, step_of(FEW).chunks[0]);
    stream_send(call, &body);
    assert_int_equal(expect_failure(call, &key, message), RV_INVALID_ARGUMENT);
    assert_int_equal(key, 77 + i);
    assert_non_null(strstr(message, i == 0 ? "column 0: 2 rows from row 0 of a chunk that has 1"
                                           : "column 0: 1 rows from row -1 of a chunk that has 1"));
  }
  stream_free(call);
}

/* Nor if another slice of the column goes on where it would have ended, beside a column of joined rows. */
static void slices_that_are_wrong_are_not_made_right_by_others(void **state)
{
  (void)state;
  static const struct {
    rv_wire_slice slices[3];
    const char *says;
  } cases[] = {{{{.offset = 5, .length = -2}, {.offset = 3, .length = 1}, {.offset = 4, .length = 1}},
                "column 1: -2 rows from row 5 of a chunk that has 10"},
               {{{.length = INT32_MAX}, {.offset = INT32_MAX, .length = INT32_MAX}, {.offset = -2, .length = 3}},
                "column 1: 2147483647 rows from row 0 of a chunk that has 10"}};
  like ten = {.table = "alone", .num_chunks = 1, .rows = {10}, .width = {60}};
  ten.more_tensors[0] = 1; /* more than is joined */
  for (size_t i = 0; i < 2; i++) {
    test_stream *call = open_with_items(FEW);
    const one whole = {.chunks = {9000 + i}, .episode = 3};
    rv_writer_buf body;
    rv_writer_buf_init(&body);
    rv_buf *chunk = chunk_of(&whole, &ten, 0);
    rv_put_bytes_always(&body, 1, chunk->data, chunk->size);
    rv_buf_unref(chunk);
    rv_wire_slice slices[4] = {{.chunk_key = step_of(FEW).chunks[0], .length = 1}};
    for (size_t k = 0; k < 3; k++) {
      slices[1 + k] = cases[i].slices[k];
      slices[1 + k].chunk_key = whole.chunks[0];
    }
    uint32_t num_slices[] = {1, 3};
    put_columns_in(&body, "alone", 77, slices, num_slices, 2, FEW + 2);
    stream_send(call, &body);
    uint64_t key;
    char message[RV_ERROR_MESSAGE_MAX];
    assert_int_equal(expect_failure(call, &key, message), RV_INVALID_ARGUMENT);
    if (strstr(message, cases[i].says) == NULL) fail_msg("%s", message);
    stream_free(call);
    tear_down(state);
    set_up(state);
  }
}

static void a_chunk_that_is_kept_no_longer_is_not_there_for_items(void **state)
{
  (void)state;
  test_stream *call = open_with_items(FEW); /* the newest chunk is joined */
  uint64_t key;
  char message[RV_ERROR_MESSAGE_MAX];
  rv_wire_slice gone = {.chunk_key = step_of(FEW - 1).chunks[0], .length = 1};
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_slices(&body, 77, &gone, 1, FEW + 2);
  stream_send(call, &body);
  assert_int_equal(expect_failure(call, &key, message), RV_INTERNAL);
  assert_non_null(strstr(message, "refers to chunk 5019, which is not there"));
  check_two_steps(FEW - 1);
  stream_free(call);
}

static void rows_that_were_joined_stay_when_their_stream_has_gone(void **state)
{
  (void)state;
  stream_free(open_with_items(FEW));
  for (int32_t i = 1; i <= FEW; i++) check_two_steps(i);
}

static void bound_bytes(const char *table, int64_t max_bytes)
{
  rv_table_bounds bounds = rv_table_bounds_unchanged();
  bounds.max_bytes = max_bytes;
  rv_bounds_change change = {.bounds = bounds};
  while (!change.done) assert_int_equal(rv_table_change_bounds(rig_find(&rig, table), &change, NULL), RV_OK);
}

/* Though its rows lie in a segment with those of another, which may take any number. */
static void an_item_fits_into_a_small_table_beside_a_large_one(void **state)
{
  (void)state;
  bound_bytes("packed", 4 << 10);
  test_stream *call = open_with_items(ITEMS);
  uint64_t key;
  rv_wire_slice last = {.chunk_key = step_of(ITEMS).chunks[0], .length = 1};
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_slices_in(&body, "packed", 77, &last, 1, ITEMS + 2);
  stream_send(call, &body);
  expect_keys(call, &key, 1);
  assert_int_equal(key, 77);
  stream_free(call);
}

/* A table that may take few bytes has as many items as it can, whatever segments its rows are in. */
static void segments_leave_a_small_table_its_items(void **state)
{
  (void)state;
  bound_bytes("alone", 16 << 10);
  test_stream *call = open_with_items(ITEMS);
  rv_table_info info = info_of("alone");
  assert_true(info.item_bytes <= 16 << 10);
  assert_true(info.current_size > 80);
  for (int64_t i = ITEMS - info.current_size + 1; i <= ITEMS; i++) check_two_steps((int32_t)i);
  stream_free(call);
}

enum { PAIRS = 24, KNOWN = 30 };

/* Chunk c of item i: their steps go on, so that all lie in one segment. The second item's two have one key. */
static one of_pair(int i, int c)
{
  return (one){.chunks = {1000 + 10 * (uint64_t)i + (i == 1 ? 0 : (uint64_t)c)},
               .episode = 1,
               .first_step = 2 * i + c,
               .value = 100000 * (i + 1) + 1000 * c};
}

/* Items of one column, whose rows are two chunks' of their own. */
static void insert_pack_of_pairs(test_stream *call)
{
  const like as = {.table = "packed", .num_chunks = 1, .rows = {1}, .width = {2}};
  uint64_t keys[PAIRS - 1];
  double priorities[PAIRS - 1];
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  size_t pack = rv_put_open(&body, RV_INSERT_PACK), mark = rv_put_open(&body, RV_PACK_ITEM);
  rv_wire_slice slices[] = {{.chunk_key = of_pair(0, 0).chunks[0], .length = 1},
                            {.chunk_key = of_pair(0, 1).chunks[0], .length = 1}};
  uint32_t n = 2;
  bool squeeze = false;
  rv_wire_item_serialize(&body, &(rv_wire_item){.key = 100,
                                                .table = {(const uint8_t *)"packed", 6},
                                                .priority = 1,
                                                .sequence = 1 + KNOWN,
                                                .slices = slices,
                                                .num_slices = &n,
                                                .squeeze = &squeeze,
                                                .num_columns = 1,
                                                .total_slices = 2});
  rv_put_close(&body, mark);
  for (int c = 0; c < 2; c++) {
    one pair = of_pair(0, c);
    rv_buf *chunk = chunk_of(&pair, &as, 0);
    rv_put_bytes_always(&body, RV_PACK_CHUNKS, chunk->data, chunk->size);
    rv_buf_unref(chunk);
  }
  mark = rv_put_open(&body, RV_PACK_REST);
  for (int i = 1; i < PAIRS; i++) {
    keys[i - 1] = 100 + (uint64_t)i;
    priorities[i - 1] = 1;
    for (int c = 0; c < 2; c++) {
      one pair = of_pair(i, c);
      rv_buf *chunk = chunk_of(&pair, &as, 0);
      put_own_parts(&body, chunk);
      rv_buf_unref(chunk);
    }
  }
  rv_put_close(&body, mark);
  rv_put_bytes_always(&body, RV_PACK_KEYS, keys, sizeof keys);
  rv_put_bytes_always(&body, RV_PACK_PRIORITIES, priorities, sizeof priorities);
  rv_put_close(&body, pack);
  stream_send(call, &body);
}

/* Of which chunk such an item's rows are is its own affair: the others' are theirs. */
static void chunks_of_one_key_leave_the_items_behind_them_their_rows(void **state)
{
  (void)state;
  test_stream *call = open_writer();
  uint64_t keys[PAIRS + KNOWN];
  one before[KNOWN]; /* so that the run is known to be long, and its first rows are joined */
  for (int32_t i = 0; i < KNOWN; i++)
    before[i] = (one){.key = 500 + (uint64_t)i, .chunks = {7000 + (uint64_t)i}, .episode = 5, .priority = 1, .first_step = i};
  insert_packed(call, before, KNOWN, &plain, 1);
  expect_keys(call, keys, KNOWN);
  insert_pack_of_pairs(call);
  expect_keys(call, keys, PAIRS);
  for (int i = 0; i < PAIRS; i++) {
    rv_draw draw;
    int32_t rows[4];
    assert_int_equal(rv_table_get(rig_find(&rig, "packed"), 100 + (uint64_t)i, &draw, NULL), RV_OK);
    assert_int_equal(draw.trajectory->columns[0].length, 2);
    assert_int_equal(rv_draw_copy_column(&draw, 0, rows, NULL), RV_OK);
    if (i != 1) assert_true(rows[0] == of_pair(i, 0).value && rows[2] == of_pair(i, 1).value);
    rv_draw_release(&draw);
  }
  stream_free(call);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(items_over_chunks_that_follow_each_other_take_little_more_than_their_rows, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(columns_that_were_cut_alike_stay_so, set_up, tear_down),
      cmocka_unit_test_setup_teardown(an_item_reaches_no_further_than_its_chunk, set_up, tear_down),
      cmocka_unit_test_setup_teardown(slices_that_are_wrong_are_not_made_right_by_others, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_chunk_that_is_kept_no_longer_is_not_there_for_items, set_up, tear_down),
      cmocka_unit_test_setup_teardown(rows_that_were_joined_stay_when_their_stream_has_gone, set_up, tear_down),
      cmocka_unit_test_setup_teardown(an_item_fits_into_a_small_table_beside_a_large_one, set_up, tear_down),
      cmocka_unit_test_setup_teardown(chunks_of_one_key_leave_the_items_behind_them_their_rows, set_up, tear_down),
      cmocka_unit_test_setup_teardown(segments_leave_a_small_table_its_items, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
