/* A step writer whose columns become others: where a chunk begins they may, and no item has steps of two kinds. */
#include "support/place.h"

enum { MAX_ELEMENTS = 64 };

static const rv_wait patient = {.timeout_ms = 60000};

/* A row of so many elements, all of them `value`; 0: a scalar. */
typedef struct row {
  rv_dtype dtype;
  int64_t elements;
  int32_t value;
} row;

typedef struct room {
  union {
    float floats[MAX_ELEMENTS];
    int32_t integers[MAX_ELEMENTS];
  };
  int64_t shape;
} room;

static rv_tensor tensor_of(row from, room *out)
{
  for (int64_t i = 0; i < MAX_ELEMENTS; i++) {
    if (from.dtype == RV_FLOAT32)
      out->floats[i] = (float)from.value;
    else
      out->integers[i] = from.value;
  }
  out->shape = from.elements;
  return (rv_tensor){.dtype = from.dtype, .rank = from.elements > 0, .shape = &out->shape, .data = out->floats};
}

static rv_code append(rv_step_writer *writer, const row *rows, size_t num_rows, rv_error *error)
{
  room rooms[4];
  rv_tensor step[4];
  for (size_t i = 0; i < num_rows; i++) step[i] = tensor_of(rows[i], &rooms[i]);
  return rv_step_writer_append(writer, step, num_rows, &patient, error);
}

static rv_code append_one(rv_step_writer *writer, rv_dtype dtype, int64_t elements, int32_t value, rv_error *error)
{
  const row one = {dtype, elements, value};
  return append(writer, &one, 1, error);
}

static void check_column(rv_sample *sample, size_t column, const row *rows, int64_t num_rows)
{
  rv_sample_column found;
  OK(rv_sample_get_column(sample, column, &found, error));
  assert_int_equal(found.dtype, rows->dtype);
  assert_int_equal(found.rank, rows->elements > 0);
  assert_int_equal(found.length, num_rows);
  if (rows->elements > 0) assert_int_equal(found.shape[0], rows->elements);
  int32_t out[8 * MAX_ELEMENTS];
  const size_t elements = rows->elements > 0 ? (size_t)rows->elements : 1;
  assert_int_equal(found.bytes, (size_t)num_rows * elements * sizeof *out);
  OK(rv_sample_copy(sample, column, out, found.bytes, error));
  for (int64_t i = 0; i < num_rows; i++) {
    room expected;
    tensor_of(rows[i], &expected);
    assert_memory_equal(out + (size_t)i * elements, expected.integers, elements * sizeof *out);
  }
}

/* The item has these rows, column by column. */
static void check_item(test_place *place, uint64_t key, const row *rows, int64_t num_rows, size_t num_columns)
{
  rv_sample *sample = NULL;
  OK(rv_client_get(place->client, "plain", key, &patient, &sample, error));
  assert_int_equal(rv_sample_num_columns(sample), num_columns);
  for (size_t i = 0; i < num_columns; i++) check_column(sample, i, rows + i * (size_t)num_rows, num_rows);
  rv_sample_unref(sample);
}

static void open_tables(test_place *place, bool remote)
{
  static const int64_t shape[] = {-1, 2};
  static const rv_spec spec = {.name = "x", .dtype = RV_FLOAT32, .rank = 2, .shape = shape};
  static const rv_signature signature = {.specs = &spec, .num_specs = 1};
  rv_table_config tables[2] = {place_queue_like("plain", 10000), place_queue_like("typed", 10000)};
  tables[1].signature = &signature;
  place_open(place, remote, tables, 2);
}

static rv_step_writer *open_writer(test_place *place, uint32_t length, uint32_t chunk_length)
{
  const rv_step_writer_config config = {.size = sizeof config, .max_sequence_length = length, .chunk_length = chunk_length};
  rv_step_writer *writer = NULL;
  OK(rv_step_writer_new(place->client, &config, &writer, error));
  OK(rv_step_writer_wait_ready(writer, &patient, error));
  return writer;
}

static uint64_t create(rv_step_writer *writer, uint32_t steps)
{
  uint64_t key = 0;
  OK(rv_step_writer_create_item(writer, "plain", steps, 1, &patient, &key, error));
  return key;
}

static void close_all(test_place *place, rv_step_writer *writer)
{
  rv_step_writer_free(writer);
  place_close(place);
}

static void a_column_begins_anew_where_a_chunk_does(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  rv_step_writer *writer = open_writer(&place, 4, 2);
  static const row rows[] = {{RV_FLOAT32, 2, 1}, {RV_FLOAT32, 2, 2}, {RV_FLOAT32, 3, 3}, {RV_FLOAT32, 3, 4}, {RV_INT32, 3, 5},
                             {RV_INT32, 3, 6},   {RV_INT32, 0, 7},   {RV_INT32, 0, 8},   {RV_FLOAT32, 2, 9}, {RV_FLOAT32, 2, 10}};
  enum { PAIRS = sizeof rows / sizeof *rows / 2 };
  uint64_t keys[PAIRS], last[PAIRS];
  for (int i = 0; i < PAIRS; i++) {
    assert_true(rv_step_writer_begins_chunk(writer));
    OK(append(writer, &rows[2 * i], 1, error));
    assert_false(rv_step_writer_begins_chunk(writer));
    OK(append(writer, &rows[2 * i + 1], 1, error));
    keys[i] = create(writer, 2);
    last[i] = create(writer, 1);
  }
  OK(rv_step_writer_close(writer, true, &patient, error));
  for (int i = 0; i < PAIRS; i++) {
    check_item(&place, keys[i], &rows[2 * i], 2, 1);
    check_item(&place, last[i], &rows[2 * i + 1], 1, 1);
  }
  close_all(&place, writer);
}

static void items_that_wait_for_their_chunk_are_of_its_steps(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  rv_step_writer *writer = open_writer(&place, 4, 4);
  static const row before[] = {{RV_FLOAT32, 2, 1}, {RV_FLOAT32, 2, 2}}, after = {RV_INT32, 5, 3};
  for (int i = 0; i < 2; i++) OK(append(writer, &before[i], 1, error));
  const uint64_t key = create(writer, 2);
  OK(rv_step_writer_flush(writer, &patient, error)); /* it waited: the chunk ends here */
  assert_true(rv_step_writer_begins_chunk(writer));
  OK(append(writer, &after, 1, error));
  const uint64_t later = create(writer, 1);
  OK(rv_step_writer_close(writer, true, &patient, error));
  check_item(&place, key, before, 2, 1);
  check_item(&place, later, &after, 1, 1);
  close_all(&place, writer);
}

static void within_a_chunk_steps_are_alike(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  rv_step_writer *writer = open_writer(&place, 4, 3);
  OK(append_one(writer, RV_FLOAT32, 2, 1, error));
  FAILS(RV_INVALID_ARGUMENT,
        "incompatible shape for column 0: got float32[3], the steps before it have float32[2]; a column may change where a chunk "
        "begins, 2 more of those steps on (chunk_length 3)",
        append_one(writer, RV_FLOAT32, 3, 2, error));
  rv_step_writer_name_columns(writer, (const char *const[]){"image"}, 1);
  FAILS(RV_INVALID_ARGUMENT, "wrong dtype for column 0 \"image\": got int32[2]", append_one(writer, RV_INT32, 2, 2, error));
  rv_step_writer_name_columns(writer, NULL, 0);
  static const row two[] = {{RV_FLOAT32, 2, 2}, {RV_FLOAT32, 2, 2}};
  FAILS(RV_INVALID_ARGUMENT, "has 2 columns, which is inconsistent with the 1 of the steps before it",
        append(writer, two, 2, error));
  OK(rv_step_writer_flush(writer, &patient, error)); /* nothing waits for the chunk: it goes on */
  FAILS(RV_INVALID_ARGUMENT, "incompatible shape", append_one(writer, RV_FLOAT32, 3, 2, error));
  assert_int_equal(rv_step_writer_num_steps(writer), 1);
  OK(append(writer, &two[0], 1, error));
  static const row rows[] = {{RV_FLOAT32, 2, 1}, {RV_FLOAT32, 2, 2}};
  const uint64_t key = create(writer, 2);
  OK(rv_step_writer_close(writer, true, &patient, error));
  check_item(&place, key, rows, 2, 1);
  close_all(&place, writer);
}

static void no_item_reaches_back_over_a_change(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  rv_step_writer *writer = open_writer(&place, 4, 2);
  static const char *const names[] = {"image"};
  static const row rows[] = {{RV_FLOAT32, 3, 3}, {RV_FLOAT32, 3, 4}};
  for (int i = 0; i < 2; i++) OK(append_one(writer, RV_FLOAT32, 2, i + 1, error));
  for (int i = 0; i < 2; i++) OK(append(writer, &rows[i], 1, error));
  uint64_t key = 1;
  FAILS(RV_INVALID_ARGUMENT, "Error in column 0: the last 3 steps have incompatible shapes in it: float32[2] before step 2",
        rv_step_writer_create_item(writer, "plain", 3, 1, &patient, &key, error));
  assert_true(key == 0);
  rv_step_writer_name_columns(writer, names, 1);
  FAILS(
      RV_INVALID_ARGUMENT,
      "Error in column 0 \"image\": the last 4 steps have incompatible shapes in it: float32[2] before step 2, and float32[3] "
      "from it "
      "on; the rows of an item's column have one dtype and shape, so make it of the last 2 at most, or before the column changes",
      rv_step_writer_create_item(writer, "plain", 4, 1, &patient, NULL, error));
  key = create(writer, 2);
  OK(append_one(writer, RV_INT32, 3, 5, error));
  FAILS(RV_INVALID_ARGUMENT, "different dtypes in it: float32[3] before step 4, and int32[3] from it on",
        rv_step_writer_create_item(writer, "plain", 2, 1, &patient, NULL, error));
  OK(rv_step_writer_close(writer, true, &patient, error));
  check_item(&place, key, rows, 2, 1);
  assert_int_equal(place_size(&place, "plain"), 1);
  close_all(&place, writer);
}

static void the_number_of_columns_may_change_there_too(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  rv_step_writer *writer = open_writer(&place, 2, 1);
  static const row steps[4][3] = {{{RV_FLOAT32, 2, 1}},
                                  {{RV_FLOAT32, 2, 2}, {RV_INT32, 4, 3}, {RV_INT32, 0, 4}},
                                  {{RV_INT32, 4, 5}, {RV_INT32, 4, 6}},
                                  {{RV_INT32, 4, 7}, {RV_INT32, 4, 8}, {RV_FLOAT32, 1, 9}}};
  static const size_t columns[4] = {1, 3, 2, 3};
  uint64_t keys[4];
  for (int i = 0; i < 4; i++) {
    OK(append(writer, steps[i], columns[i], error));
    keys[i] = create(writer, 1);
    if (i != 1) continue;
    FAILS(RV_INVALID_ARGUMENT,
          "the last 2 steps are inconsistent: the number of their columns is 1 before step 1, and 3 from it on",
          rv_step_writer_create_item(writer, "plain", 2, 1, &patient, NULL, error));
  }
  OK(rv_step_writer_close(writer, true, &patient, error));
  for (int i = 0; i < 4; i++) check_item(&place, keys[i], steps[i], 1, columns[i]);
  close_all(&place, writer);
}

static void a_signature_holds_for_columns_that_have_changed(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  rv_step_writer *writer = open_writer(&place, 2, 1);
  OK(append_one(writer, RV_FLOAT32, 2, 1, error));
  OK(rv_step_writer_create_item(writer, "typed", 1, 1, &patient, NULL, error));
  OK(append_one(writer, RV_FLOAT32, 3, 2, error));
  FAILS(RV_INVALID_ARGUMENT, "is float32[?,2], got float32[1,3], which is inconsistent with it",
        rv_step_writer_create_item(writer, "typed", 1, 1, &patient, NULL, error));
  OK(append_one(writer, RV_FLOAT32, 2, 3, error));
  OK(rv_step_writer_create_item(writer, "typed", 1, 1, &patient, NULL, error));
  OK(rv_step_writer_close(writer, true, &patient, error));
  assert_int_equal(place_size(&place, "typed"), 2);
  close_all(&place, writer);
}

static void a_step_that_fails_leaves_the_columns_as_they_were(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  rv_step_writer *writer = open_writer(&place, 4, 2);
  static const row rows[] = {{RV_FLOAT32, 2, 1}, {RV_FLOAT32, 2, 2}, {RV_FLOAT32, 2, 3}, {RV_FLOAT32, 2, 4}};
  for (int i = 0; i < 2; i++) OK(append(writer, &rows[i], 1, error));
  const int64_t shape[] = {3}, negative[] = {-3};
  room good;
  rv_tensor step[2] = {tensor_of((row){RV_INT32, 4, 0}, &good), {.dtype = RV_FLOAT32, .rank = 1, .shape = shape, .data = NULL}};
  FAILS(RV_INVALID_ARGUMENT, "no data", rv_step_writer_append(writer, step, 2, &patient, error));
  FAILS(RV_INVALID_ARGUMENT, "no data", rv_step_writer_append(writer, &step[1], 1, &patient, error));
  step[1].rank = 99;
  FAILS(RV_INVALID_ARGUMENT, "column 0", rv_step_writer_append(writer, &step[1], 1, &patient, error));
  step[1] = (rv_tensor){.dtype = RV_FLOAT32, .rank = 1, .shape = negative, .data = &good};
  FAILS(RV_INVALID_ARGUMENT, "column 0", rv_step_writer_append(writer, &step[1], 1, &patient, error));
  step[1] = (rv_tensor){.dtype = RV_FLOAT32, .rank = 1, .data = &good};
  FAILS(RV_INVALID_ARGUMENT, "no shape", rv_step_writer_append(writer, &step[1], 1, &patient, error));
  step[1] = (rv_tensor){.dtype = (rv_dtype)77, .data = &good};
  FAILS(RV_INVALID_ARGUMENT, "dtype", rv_step_writer_append(writer, &step[1], 1, &patient, error));
  assert_int_equal(rv_step_writer_num_steps(writer), 2);
  const uint64_t key = create(writer, 2);
  for (int i = 2; i < 4; i++) OK(append(writer, &rows[i], 1, error));
  const uint64_t all = create(writer, 4);
  OK(rv_step_writer_close(writer, true, &patient, error));
  check_item(&place, key, rows, 2, 1);
  check_item(&place, all, rows, 4, 1);
  close_all(&place, writer);
}

static void every_step_may_be_of_another_shape(bool remote)
{
  enum { STEPS = 2000 };
  test_place place;
  open_tables(&place, remote);
  rv_step_writer *writer = open_writer(&place, 1, 1);
  static uint64_t keys[STEPS];
  static row rows[STEPS];
  for (int i = 0; i < STEPS; i++) {
    rows[i] = (row){i % 3 == 0 ? RV_FLOAT32 : RV_INT32, i * 7 % MAX_ELEMENTS, i};
    OK(append(writer, &rows[i], 1, error));
    keys[i] = create(writer, 1);
  }
  OK(rv_step_writer_close(writer, true, &patient, error));
  for (int i = 0; i < STEPS; i++) check_item(&place, keys[i], &rows[i], 1, 1);
  close_all(&place, writer);
}

/* What the item's columns were is kept for the check. */
static void an_item_made_before_the_tables_were_known_is_checked_as_it_was(void **state)
{
  (void)state;
  test_place place;
  open_tables(&place, true);
  rv_client_free(place.client);
  rv_server_free(place.server);
  place.server = NULL;
  place.client = place_connect(place.held.address);
  const rv_step_writer_config config = {.size = sizeof config, .max_sequence_length = 1};
  rv_step_writer *writer = NULL;
  OK(rv_step_writer_new(place.client, &config, &writer, error));
  OK(append_one(writer, RV_FLOAT32, 2, 1, error));
  OK(rv_step_writer_create_item(writer, "typed", 1, 1, &patient, NULL, error));
  OK(append_one(writer, RV_INT32, 40, 2, error));
  OK(rv_step_writer_create_item(writer, "typed", 1, 1, &patient, NULL, error));
  static const row two[] = {{RV_FLOAT32, 2, 3}, {RV_INT32, 0, 3}};
  OK(append(writer, two, 2, error));
  uint64_t key;
  OK(rv_step_writer_create_item(writer, "plain", 1, 1, &patient, &key, error));
  OK(append_one(writer, RV_FLOAT32, 2, 4, error));
  OK(rv_step_writer_create_item(writer, "typed", 1, 1, &patient, NULL, error));
  place_serve(&place);
  FAILS(RV_INVALID_ARGUMENT, "int32[1,40], which is inconsistent with it", rv_step_writer_close(writer, true, &patient, error));
  check_item(&place, key, two, 1, 2);
  assert_int_equal(place_size(&place, "typed"), 2);
  close_all(&place, writer);
}

BOTH(a_column_begins_anew_where_a_chunk_does)
BOTH(items_that_wait_for_their_chunk_are_of_its_steps)
BOTH(within_a_chunk_steps_are_alike)
BOTH(no_item_reaches_back_over_a_change)
BOTH(the_number_of_columns_may_change_there_too)
BOTH(a_signature_holds_for_columns_that_have_changed)
BOTH(a_step_that_fails_leaves_the_columns_as_they_were)
BOTH(every_step_may_be_of_another_shape)

int main(void)
{
  const struct CMUnitTest tests[] = {
      BOTH_TESTS(a_column_begins_anew_where_a_chunk_does),
      BOTH_TESTS(items_that_wait_for_their_chunk_are_of_its_steps),
      BOTH_TESTS(within_a_chunk_steps_are_alike),
      BOTH_TESTS(no_item_reaches_back_over_a_change),
      BOTH_TESTS(the_number_of_columns_may_change_there_too),
      BOTH_TESTS(a_signature_holds_for_columns_that_have_changed),
      BOTH_TESTS(a_step_that_fails_leaves_the_columns_as_they_were),
      BOTH_TESTS(every_step_may_be_of_another_shape),
      cmocka_unit_test(an_item_made_before_the_tables_were_known_is_checked_as_it_was),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
