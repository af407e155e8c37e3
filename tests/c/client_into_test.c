/* Batches straight into the caller's arrays, in process and remote. */
#include "client/client.h"
#include "client_fixture.h"
#include "reverie/writer.h"

enum { B = 300 };

static int64_t samples_counted(fixture *f, const char *table)
{
  rv_error err;
  rv_table *found;
  assert_ok(rv_store_find(f->store, table, strlen(table), &found, &err));
  rv_table_info info = {.size = sizeof info};
  assert_ok(rv_table_get_info(found, &info, &err));
  int64_t samples = info.samples;
  rv_table_info_fini(&info);
  return samples;
}

/* What a server elsewhere drew comes back; in process nothing was drawn. */
static void drop_drawn(fixture *f, rv_batch_arrays *arrays, size_t n)
{
  assert_int_equal(arrays->drawn != NULL, f->way != IN_PROCESS);
  if (arrays->drawn == NULL) return;
  assert_int_equal(rv_batch_size(arrays->drawn), n);
  assert_ptr_equal(rv_batch_layout(arrays->drawn), arrays->found);
  rv_batch_free(arrays->drawn);
}

/* Arrays for the layout of the table's items, which the first call finds out. */
static rv_batch_arrays arrays_for(fixture *f, const char *table, void *const *columns)
{
  rv_error err;
  rv_batch_arrays arrays = {.size = sizeof arrays};
  assert_code(rv_client_sample_into(f->client, table, 1, &arrays, &long_enough, &err), RV_FAILED_PRECONDITION);
  assert_non_null(arrays.found);
  drop_drawn(f, &arrays, 1);
  arrays.layout = arrays.found;
  arrays.columns = columns;
  return arrays;
}

TEST(what_the_items_look_like_is_found_out_before_anything_is_drawn)
{
  rv_error err;
  add_values(f->client, "replay", 3);
  rv_batch_arrays arrays = arrays_for(f, "replay", NULL);
  if (f->way == IN_PROCESS) assert_int_equal(samples_counted(f, "replay"), 0);
  assert_int_equal(rv_layout_num_columns(arrays.layout), 1);
  rv_sample_column column;
  assert_ok(rv_layout_get_column(arrays.layout, 0, 10, &column, &err));
  assert_int_equal(column.dtype, RV_FLOAT32);
  assert_int_equal(column.rank, 1);
  assert_int_equal(column.shape[0], 2);
  assert_true(column.squeezed);
  assert_int_equal(column.bytes, 80);
  assert_code(rv_layout_get_column(arrays.layout, 1, 10, &column, &err), RV_OUT_OF_RANGE);
  rv_layout_unref(arrays.found);
}

TEST(a_batch_lands_in_the_callers_arrays)
{
  rv_error err;
  enum { N = 64 };
  static uint64_t keys[N];
  for (int i = 0; i < N; i++) assert_ok(add_value(f->client, "replay", (float)i, i, &keys[i], &long_enough, &err));
  static float data[B][2];
  void *columns[] = {data};
  rv_batch_arrays arrays = arrays_for(f, "replay", columns);
  static uint64_t drawn[B];
  static double probabilities[B], priorities[B];
  static int32_t times[B];
  int32_t seen[N] = {0};
  int64_t before = samples_counted(f, "replay");
  arrays.keys = drawn;
  arrays.probabilities = probabilities;
  arrays.priorities = priorities;
  arrays.times_sampled = times;
  assert_ok(rv_client_sample_into(f->client, "replay", B, &arrays, &long_enough, &err));
  assert_int_equal(arrays.count, B);
  assert_int_equal(arrays.table_size, N);
  assert_null(arrays.found);
  for (size_t i = 0; i < B; i++) {
    int value = (int)data[i][0];
    assert_true(data[i][1] == data[i][0] + 0.5f);
    assert_true(drawn[i] == keys[value]);
    assert_true(priorities[i] == (double)value);
    assert_true(probabilities[i] == 1.0 / N);
    if (f->way == IN_PROCESS) assert_int_equal(times[i], ++seen[value]);
  }
  if (f->way == IN_PROCESS) assert_int_equal(samples_counted(f, "replay"), before + B);
  arrays.keys = NULL;
  arrays.probabilities = arrays.priorities = NULL;
  arrays.times_sampled = NULL;
  memset(data, 0, sizeof data);
  assert_ok(rv_client_sample_into(f->client, "replay", B, &arrays, &long_enough, &err));
  for (size_t i = 0; i < B; i++) assert_true(data[i][1] == data[i][0] + 0.5f);
  rv_layout_unref((rv_layout *)arrays.layout);
}

TEST(rows_that_a_small_table_lets_go_of_are_never_seen)
{
  rv_error err;
  float next = 0;
  add_values(f->client, "replay", 1);
  static float data[B][2];
  void *columns[] = {data};
  rv_batch_arrays arrays = arrays_for(f, "replay", columns);
  for (int round = 0; round < 5; round++) {
    for (int i = 0; i < 1700; i++) assert_ok(add_value(f->client, "replay", next++, 1.0, NULL, &long_enough, &err));
    assert_ok(rv_client_sample_into(f->client, "replay", B, &arrays, &long_enough, &err));
    for (size_t i = 0; i < B; i++) {
      assert_true(data[i][1] == data[i][0] + 0.5f);
      assert_true(data[i][0] >= next - 1000 && data[i][0] < next);
    }
  }
  rv_layout_unref((rv_layout *)arrays.layout);
}

TEST(sequences_land_in_arrays_too)
{
  rv_error err;
  for (int64_t i = 0; i < 20; i++) put_sequence(f, "replay", 100 * i, 7);
  static int64_t data[B][7];
  void *columns[] = {data};
  rv_batch_arrays arrays = arrays_for(f, "replay", columns);
  assert_ok(rv_client_sample_into(f->client, "replay", B, &arrays, &long_enough, &err));
  for (size_t i = 0; i < B; i++)
    for (int j = 0; j < 7; j++) assert_int_equal(data[i][j], data[i][0] + j);
  rv_layout_unref((rv_layout *)arrays.layout);
}

/* So many that in process their crew is asked whether a batch of nothing is worth its help. */
TEST(columns_may_all_be_left_out)
{
  rv_error err;
  const size_t many = f->way == IN_PROCESS ? (1 << 19) + 1 : B;
  put_sequence(f, "replay", 0, 300);
  void *columns[] = {NULL};
  rv_batch_arrays arrays = arrays_for(f, "replay", columns);
  uint64_t *keys = calloc(many, sizeof *keys);
  assert_non_null(keys);
  arrays.keys = keys;
  assert_ok(rv_client_sample_into(f->client, "replay", many, &arrays, &long_enough, &err));
  assert_int_equal(arrays.count, many);
  for (size_t i = 0; i < many; i++) assert_true(keys[i] == keys[0] && keys[i] != 0);
  free(keys);
  rv_layout_unref((rv_layout *)arrays.layout);
}

/* Steps of three columns, each with its number in them; an item of the last LONG ends with every one. */
enum { LONG = 9 };
static void put_overlapping(rv_client *client, const char *table, int64_t steps)
{
  rv_error err;
  static const int64_t three[] = {3};
  rv_writer *writer;
  rv_writer_config config = {.size = sizeof config, .num_keep_alive_refs = LONG};
  assert_ok(rv_writer_new(client, &config, &writer, &err));
  for (int64_t step = 0; step < steps; step++) {
    const float obs[3] = {(float)step, (float)step + 0.25f, (float)step + 0.5f};
    const uint8_t parity = (uint8_t)(step % 2);
    const rv_cell cells[] = {{0, {.dtype = RV_UINT8, .data = &parity}},
                             {1, {.dtype = RV_FLOAT32, .rank = 1, .shape = three, .data = obs}},
                             {2, {.dtype = RV_INT64, .data = &step}}};
    assert_ok(rv_writer_append(writer, cells, 3, false, &err));
    if (step + 1 < LONG) continue;
    rv_run runs[3];
    rv_item_column columns[3];
    for (uint32_t c = 0; c < 3; c++) {
      runs[c] = (rv_run){c, LONG, step + 1 - LONG, 1};
      columns[c] = (rv_item_column){.runs = &runs[c], .num_runs = 1};
    }
    assert_ok(rv_writer_create_item(writer, table, (double)(step + 1 - LONG), columns, 3, NULL, &err));
    assert_ok(rv_writer_flush(writer, 0, &long_enough, &err));
  }
  rv_writer_free(writer);
}

static struct {
  uint8_t parity[B][LONG];
  float obs[B][LONG][3];
  int64_t number[B][LONG];
  double priorities[B];
  void *columns[3];
} overlapping;

static rv_batch_arrays arrays_for_overlapping(fixture *f)
{
  overlapping.columns[0] = overlapping.parity;
  overlapping.columns[1] = overlapping.obs;
  overlapping.columns[2] = overlapping.number;
  rv_batch_arrays arrays = arrays_for(f, "replay", overlapping.columns);
  arrays.priorities = overlapping.priorities;
  return arrays;
}

/* A batch of them, whole. */
static void sample_overlapping(rv_client *client, rv_batch_arrays *arrays)
{
  rv_error err;
  assert_ok(rv_client_sample_into(client, "replay", B, arrays, &long_enough, &err));
  assert_int_equal(arrays->count, B);
  for (size_t i = 0; i < B; i++) {
    const int64_t *number = overlapping.number[i];
    assert_true((double)number[0] == overlapping.priorities[i]);
    for (int j = 0; j < LONG; j++) {
      assert_int_equal(number[j], number[0] + j);
      assert_int_equal(overlapping.parity[i][j], number[j] % 2);
      for (int k = 0; k < 3; k++) assert_true(overlapping.obs[i][j][k] == (float)number[j] + 0.25f * (float)k);
    }
  }
}

TEST(sequences_that_overlap_and_lie_in_two_chunks_land_whole)
{
  enum { STEPS = 700 };
  put_overlapping(f->client, "replay", STEPS);
  rv_batch_arrays arrays = arrays_for_overlapping(f);
  bool seen[STEPS] = {false};
  for (int round = 0; round < 20; round++) {
    sample_overlapping(f->client, &arrays);
    for (size_t i = 0; i < B; i++) seen[overlapping.number[i][0]] = true;
  }
  int missing = 0; /* 6,000 draws of 692: one is left out with a chance of 2 in 10,000 */
  for (int i = 0; i + LONG <= STEPS; i++) missing += seen[i] ? 0 : 1;
  assert_true(missing <= 5);
  rv_layout_unref((rv_layout *)arrays.layout);
}

/* Those of a server's callers lie in chunks that are encoded: a few among the others, then as many, then nothing else. */
TEST(sequences_in_this_process_and_from_elsewhere_stand_in_one_batch)
{
  rv_error err;
  fixture here = *f;
  here.way = IN_PROCESS;
  rv_client_config config = {.size = sizeof config, .store = f->store};
  assert_ok(rv_client_new(&config, &here.client, &err));
  put_overlapping(here.client, "replay", 500);
  rv_batch_arrays arrays = arrays_for_overlapping(&here);
  sample_overlapping(here.client, &arrays);
  static const int64_t steps[] = {60, 80, 150, 250, 1100};
  for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
    put_overlapping(f->client, "replay", steps[i]);
    for (int round = 0; round < 4; round++) sample_overlapping(here.client, &arrays);
  }
  int64_t before = samples_counted(f, "replay");
  sample_overlapping(here.client, &arrays);
  assert_int_equal(samples_counted(f, "replay"), before + B);
  rv_client_free(here.client);
  rv_layout_unref((rv_layout *)arrays.layout);
}

/* They stand in chunks beside large columns, which the items do not have. */
TEST(items_of_no_bytes_are_drawn_like_any_other)
{
  rv_error err;
  enum { SIZE = 128 << 10, STEPS = 160 }; /* 20 MiB */
  static const int64_t size[] = {SIZE}, nothing[] = {0};
  static uint8_t large[SIZE];
  static double priorities[B];
  rv_writer *writer;
  rv_writer_config config = {.size = sizeof config, .num_keep_alive_refs = 2, .columns_share_chunks = true};
  assert_ok(rv_writer_new(f->client, &config, &writer, &err));
  for (int64_t step = 0; step < STEPS; step++) {
    const rv_cell cells[] = {{0, {.dtype = RV_UINT8, .rank = 1, .shape = size, .data = large}},
                             {1, {.dtype = RV_FLOAT32, .rank = 1, .shape = nothing, .data = large}}};
    assert_ok(rv_writer_append(writer, cells, 2, false, &err));
    const rv_run run = {1, 1, step, 1};
    const rv_item_column column = {.runs = &run, .num_runs = 1};
    assert_ok(rv_writer_create_item(writer, "replay", (double)step, &column, 1, NULL, &err));
  }
  assert_ok(rv_writer_flush(writer, 0, &long_enough, &err));
  void *columns[] = {large};
  rv_batch_arrays arrays = arrays_for(f, "replay", columns);
  arrays.priorities = priorities;
  assert_ok(rv_client_sample_into(f->client, "replay", B, &arrays, &long_enough, &err));
  assert_int_equal(arrays.count, B);
  for (size_t i = 0; i < B; i++) assert_true(priorities[i] >= 0 && priorities[i] < STEPS);
  rv_writer_free(writer);
  rv_layout_unref((rv_layout *)arrays.layout);
}

TEST(large_rows_land_in_arrays_too)
{
  rv_error err;
  enum { SIZE = 5000, SOME = 40 };
  static const int64_t shape[] = {SIZE};
  static int32_t row[SIZE], data[SOME][SIZE];
  rv_tensor column = {.dtype = RV_INT32, .rank = 1, .shape = shape, .data = row};
  for (int i = 0; i < SOME; i++) {
    for (int j = 0; j < SIZE; j++) row[j] = i * SIZE + j;
    assert_ok(rv_client_add(f->client, "replay", &column, 1, 1.0, NULL, &long_enough, &err));
  }
  void *columns[] = {data};
  rv_batch_arrays arrays = arrays_for(f, "replay", columns);
  assert_ok(rv_client_sample_into(f->client, "replay", SOME, &arrays, &long_enough, &err));
  for (int i = 0; i < SOME; i++)
    for (int j = 0; j < SIZE; j++) assert_int_equal(data[i][j], data[i][0] + j);
  rv_code code = rv_client_sample_into(f->client, "queue", SOME, &arrays, &shortly, &err);
  assert_true(code == RV_DEADLINE_EXCEEDED);
  if (f->way != IN_PROCESS) assert_int_equal(rv_loop_count_awaited(f->client->loop, 0), 0); /* nobody waits any more */
  rv_layout_unref((rv_layout *)arrays.layout);
}

TEST(a_short_batch_says_how_many)
{
  rv_error err;
  add_values(f->client, "queue", 3);
  static float data[B][2];
  void *columns[] = {data};
  rv_batch_arrays arrays = arrays_for(f, "queue", columns);
  int first = f->way == IN_PROCESS ? 0 : 1; /* a server has counted the draw that told the layout */
  rv_code code = rv_client_sample_into(f->client, "queue", 10, &arrays, &shortly, &err);
  for (int i = 1; i < GROWING && code == RV_DEADLINE_EXCEEDED; i++, first = 0) {
    assert_ok(rv_client_reset(f->client, "queue", &long_enough, &err));
    add_values(f->client, "queue", 3);
    code = rv_client_sample_into(f->client, "queue", 10, &arrays, &growing[i], &err);
  }
  assert_ok(code);
  assert_int_equal(arrays.count, 3 - first);
  for (int i = first; i < 3; i++) assert_true(data[i - first][0] == (float)i);
  assert_code(rv_client_sample_into(f->client, "queue", 10, &arrays, &shortly, &err), RV_DEADLINE_EXCEEDED);
  assert_says("queue");
  assert_int_equal(arrays.count, 0);
  rv_layout_unref((rv_layout *)arrays.layout);
}

enum { FEW = 20 };

static void each_draw_is_one_of_as_many(const rv_batch_arrays *arrays)
{
  for (size_t i = 0; i < arrays->count; i++) {
    double weight = arrays->probabilities[i] * (double)arrays->table_sizes[i];
    assert_true(weight > 1.0 - 1e-9 && weight < 1.0 + 1e-9);
  }
}

TEST(of_items_that_go_with_their_draws_each_has_the_size_at_its_own)
{
  rv_error err;
  static float data[FEW][2];
  static double probabilities[FEW];
  static int64_t sizes[FEW];
  void *columns[] = {data};
  add_values(f->client, "per", FEW);
  rv_batch_arrays arrays = arrays_for(f, "per", columns);
  arrays.probabilities = probabilities;
  arrays.table_sizes = sizes;
  sizes[0] = -7;
  assert_ok(rv_client_sample_into(f->client, "per", FEW, &arrays, &long_enough, &err));
  assert_false(arrays.sizes_differ);
  assert_int_equal(arrays.table_size, FEW);
  assert_int_equal(sizes[0], -7);
  rv_table_bounds once = {.size = sizeof once, .max_size = 1000, .max_times_sampled = 1};
  assert_ok(rv_client_set_bounds(f->client, "per", &once, &long_enough, &err));
  assert_ok(rv_client_reset(f->client, "per", &long_enough, &err));
  add_values(f->client, "per", FEW);
  assert_ok(rv_client_sample_into(f->client, "per", FEW, &arrays, &long_enough, &err));
  assert_int_equal(arrays.count, FEW);
  assert_true(arrays.sizes_differ);
  assert_int_equal(arrays.table_size, 1);
  for (int i = 0; i < FEW; i++) assert_int_equal(sizes[i], FEW - i);
  each_draw_is_one_of_as_many(&arrays);
  rv_layout_unref((rv_layout *)arrays.layout);
}

static void *add_few(void *context)
{
  fixture *f = context;
  wait_for_waiting(f, "per", 0, 1);
  add_values(f->client, "per", FEW);
  return NULL;
}

TEST(of_a_batch_that_waits_for_inserts_each_draw_has_the_size_at_its_own)
{
  rv_error err;
  static float data[FEW][2];
  static double probabilities[FEW];
  static int64_t sizes[FEW];
  void *columns[] = {data};
  add_values(f->client, "per", 5);
  rv_batch_arrays arrays = arrays_for(f, "per", columns);
  arrays.probabilities = probabilities;
  arrays.table_sizes = sizes;
  assert_ok(rv_client_reset(f->client, "per", &long_enough, &err));
  rv_rate_limiter_config one_each = rv_rate_limiter_sample_to_insert_ratio(1.0, 1, 100.0);
  one_each.max_diff = 100.0;
  one_each.min_diff = 0.0;
  assert_ok(rv_client_set_rate_limiter(f->client, "per", &one_each, &long_enough, &err));
  add_values(f->client, "per", 5);
  pthread_t thread;
  pthread_create(&thread, NULL, add_few, f);
  assert_ok(rv_client_sample_into(f->client, "per", FEW, &arrays, &long_enough, &err));
  pthread_join(thread, NULL);
  assert_int_equal(arrays.count, FEW);
  assert_true(arrays.sizes_differ);
  assert_int_equal(sizes[0], 5);
  assert_int_equal(sizes[FEW - 1], arrays.table_size);
  assert_true(arrays.table_size > 5);
  each_draw_is_one_of_as_many(&arrays);
  rv_layout_unref((rv_layout *)arrays.layout);
}

TEST(items_of_another_layout_are_not_drawn)
{
  rv_error err;
  add_values(f->client, "replay", 3);
  static float data[B][2];
  static int64_t rows[B][4];
  void *columns[] = {data};
  rv_batch_arrays arrays = arrays_for(f, "replay", columns);
  rv_layout *old = arrays.found;
  assert_ok(rv_client_reset(f->client, "replay", &long_enough, &err));
  put_sequence(f, "replay", 1000, 4);
  assert_code(rv_client_sample_into(f->client, "replay", B, &arrays, &long_enough, &err), RV_FAILED_PRECONDITION);
  assert_says("layout");
  assert_non_null(arrays.found);
  assert_true(arrays.found != old);
  drop_drawn(f, &arrays, B);
  if (f->way == IN_PROCESS) assert_int_equal(samples_counted(f, "replay"), 0);
  columns[0] = rows;
  arrays.layout = arrays.found;
  assert_ok(rv_client_sample_into(f->client, "replay", B, &arrays, &long_enough, &err));
  assert_int_equal(rows[B - 1][3], 1003);
  rv_layout_unref((rv_layout *)arrays.layout);
  add_values(f->client, "replay", 1);
  arrays.layout = old;
  columns[0] = data;
  assert_code(rv_client_sample_into(f->client, "replay", B, &arrays, &long_enough, &err), RV_FAILED_PRECONDITION);
  assert_says("column 0 is float32[2] in some and int64[4] in others");
  if (arrays.found != NULL) drop_drawn(f, &arrays, B);
  rv_layout_unref(arrays.found);
  rv_layout_unref(old);
}

TEST(strings_are_left_out_or_refused)
{
  rv_error err;
  rv_bytes text = {.data = "text", .size = 4};
  int64_t number = 7;
  rv_tensor row[] = {{.dtype = RV_STRING, .data = &text}, {.dtype = RV_INT64, .data = &number}};
  assert_ok(rv_client_add(f->client, "replay", row, 2, 1.0, NULL, &long_enough, &err));
  static int64_t numbers[B];
  static rv_bytes strings[B];
  void *columns[] = {NULL, numbers};
  rv_batch_arrays arrays = arrays_for(f, "replay", columns);
  assert_ok(rv_client_sample_into(f->client, "replay", B, &arrays, &long_enough, &err));
  assert_int_equal(numbers[B - 1], 7);
  columns[0] = strings;
  assert_code(rv_client_sample_into(f->client, "replay", B, &arrays, &long_enough, &err), RV_UNIMPLEMENTED);
  assert_says("column 0");
  rv_layout_unref((rv_layout *)arrays.layout);
}

TEST(what_cannot_be_a_batch_is_refused)
{
  rv_error err;
  rv_batch_arrays arrays = {.size = sizeof arrays};
  assert_code(rv_client_sample_into(f->client, "nowhere", 1, &arrays, &long_enough, &err), RV_NOT_FOUND);
  assert_code(rv_client_sample_into(f->client, "replay", 0, &arrays, &long_enough, &err), RV_INVALID_ARGUMENT);
  assert_says("batch_size");
  assert_code(rv_client_sample_into(f->client, "five", 1, &arrays, &at_once, &err), RV_DEADLINE_EXCEEDED);
  arrays.size = 8;
  assert_code(rv_client_sample_into(f->client, "replay", 1, &arrays, &at_once, &err), RV_INVALID_ARGUMENT);
  assert_says("size");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      EVERY_WAY(what_the_items_look_like_is_found_out_before_anything_is_drawn),
      EVERY_WAY(a_batch_lands_in_the_callers_arrays),
      EVERY_WAY(rows_that_a_small_table_lets_go_of_are_never_seen),
      EVERY_WAY(sequences_land_in_arrays_too),
      EVERY_WAY(columns_may_all_be_left_out),
      EVERY_WAY(sequences_that_overlap_and_lie_in_two_chunks_land_whole),
      EVERY_WAY(sequences_in_this_process_and_from_elsewhere_stand_in_one_batch),
      EVERY_WAY(items_of_no_bytes_are_drawn_like_any_other),
      EVERY_WAY(large_rows_land_in_arrays_too),
      EVERY_WAY(a_short_batch_says_how_many),
      EVERY_WAY(of_items_that_go_with_their_draws_each_has_the_size_at_its_own),
      EVERY_WAY(of_a_batch_that_waits_for_inserts_each_draw_has_the_size_at_its_own),
      EVERY_WAY(items_of_another_layout_are_not_drawn),
      EVERY_WAY(strings_are_left_out_or_refused),
      EVERY_WAY(what_cannot_be_a_batch_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
