/* add and add_batch, in process and remote. */
#include "client_fixture.h"

#include <math.h>

TEST(a_row_comes_back_as_it_was_added)
{
  rv_error err;
  int64_t shape[] = {2, 3};
  int32_t numbers[] = {1, 2, 3, 4, 5, 6};
  uint8_t flag = 1;
  double nothing[1] = {0};
  int64_t empty[] = {4, 0, 2};
  rv_bytes words[] = {{"", 0}, {"a\0b", 3}};
  int64_t two[] = {2};
  rv_tensor columns[] = {{.dtype = RV_INT32, .rank = 2, .shape = shape, .data = numbers},
                         {.dtype = RV_BOOL, .rank = 0, .data = &flag},
                         {.dtype = RV_FLOAT64, .rank = 3, .shape = empty, .data = nothing},
                         {.dtype = RV_STRING, .rank = 1, .shape = two, .data = words}};
  uint64_t key;
  assert_ok(rv_client_add(f->client, "replay", columns, 4, 3.0, &key, &long_enough, &err));
  rv_batch *batch;
  assert_ok(rv_client_sample_batch(f->client, "replay", 1, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
  rv_sample *sample = rv_batch_sample(batch, 0);
  rv_batch_free(batch);
  assert_true(rv_sample_get_info(sample)->key == key);
  assert_int_equal(rv_sample_num_columns(sample), 4);
  rv_sample_column column;
  assert_ok(rv_sample_get_column(sample, 0, &column, &err));
  assert_int_equal(column.dtype, RV_INT32);
  assert_int_equal(column.rank, 2);
  assert_int_equal(column.shape[1], 3);
  assert_true(column.squeezed);
  int32_t back[6];
  assert_ok(rv_sample_copy(sample, 0, back, sizeof back, &err));
  assert_memory_equal(back, numbers, sizeof back);
  const void *view = rv_sample_view(sample, 0);
  if (view != NULL) assert_memory_equal(view, numbers, sizeof back);
  uint8_t flag_back = 0;
  assert_ok(rv_sample_copy(sample, 1, &flag_back, 1, &err));
  assert_int_equal(flag_back, 1);
  assert_ok(rv_sample_get_column(sample, 2, &column, &err));
  assert_int_equal(column.bytes, 0);
  assert_int_equal(column.shape[1], 0);
  assert_ok(rv_sample_copy(sample, 2, NULL, 0, &err));
  rv_bytes strings[2];
  assert_ok(rv_sample_copy(sample, 3, strings, sizeof strings, &err));
  assert_int_equal(strings[0].size, 0);
  assert_int_equal(strings[1].size, 3);
  assert_memory_equal(strings[1].data, "a\0b", 3);
  assert_code(rv_sample_copy(sample, 0, back, 3, &err), RV_INVALID_ARGUMENT);
  assert_code(rv_sample_get_column(sample, 4, &column, &err), RV_OUT_OF_RANGE);
  rv_sample_unref(sample);
}

TEST(shapes_may_have_32_dimensions)
{
  rv_error err;
  int64_t shape[RV_MAX_RANK + 1];
  for (int i = 0; i < RV_MAX_RANK + 1; i++) shape[i] = 1;
  shape[5] = 2;
  shape[RV_MAX_RANK - 1] = 3;
  int16_t data[] = {1, 2, 3, 4, 5, 6};
  rv_tensor column = {.dtype = RV_INT16, .rank = RV_MAX_RANK, .shape = shape, .data = data};
  assert_ok(rv_client_add(f->client, "replay", &column, 1, 1.0, NULL, &long_enough, &err));
  rv_batch *batch;
  assert_ok(rv_client_sample_batch(f->client, "replay", 2, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
  rv_sample_column shown;
  assert_ok(rv_batch_column(batch, 0, &shown, &err));
  assert_int_equal(shown.rank, RV_MAX_RANK);
  assert_int_equal(shown.shape[5], 2);
  int16_t both[12];
  assert_ok(rv_batch_gather(batch, 0, both, sizeof both, &err));
  assert_memory_equal(both, data, sizeof data);
  assert_memory_equal(both + 6, data, sizeof data);
  rv_batch_free(batch);
  column.rank = RV_MAX_RANK + 1;
  assert_code(rv_client_add(f->client, "replay", &column, 1, 1.0, NULL, &long_enough, &err), RV_INVALID_ARGUMENT);
}

TEST(a_batch_of_rows_is_inserted_in_order)
{
  rv_error err;
  enum { N = 300 };
  static float data[N][2];
  static double priorities[N];
  static uint64_t keys[N];
  for (int i = 0; i < N; i++) {
    data[i][0] = (float)i;
    data[i][1] = (float)i + 0.5f;
    priorities[i] = i + 1;
  }
  int64_t shape[] = {N, 2};
  rv_tensor column = {.dtype = RV_FLOAT32, .rank = 2, .shape = shape, .data = data};
  size_t added;
  assert_ok(rv_client_add_batch(f->client, "fifo", &column, 1, N, priorities, keys, &added, &long_enough, &err));
  assert_int_equal(added, N);
  static rv_item_info items[N];
  uint64_t cursor = 0;
  size_t count;
  assert_ok(rv_client_items(f->client, "fifo", &cursor, items, N, &count, &long_enough, &err));
  assert_int_equal(count, N);
  for (int i = 0; i < N; i++) {
    assert_true(items[i].key == keys[i]);
    assert_true(items[i].priority == priorities[i]);
  }
  rv_sample *sample;
  assert_ok(rv_client_get(f->client, "fifo", keys[123], &long_enough, &sample, &err));
  assert_true(sample_value(sample) == 123);
  rv_sample_unref(sample);
}

TEST(rows_larger_than_a_chunk_are_split)
{
  rv_error err;
  enum { N = 5, ELEMENTS = 400000 };
  uint32_t *data = calloc(N * ELEMENTS, sizeof *data);
  for (uint32_t i = 0; i < N * ELEMENTS; i++) data[i] = i * 2654435761U;
  int64_t shape[] = {N, ELEMENTS};
  rv_tensor column = {.dtype = RV_UINT32, .rank = 2, .shape = shape, .data = data};
  uint64_t keys[N];
  size_t added;
  assert_ok(rv_client_add_batch(f->client, "replay", &column, 1, N, NULL, keys, &added, &long_enough, &err));
  assert_int_equal(added, N);
  uint32_t *back = malloc(ELEMENTS * sizeof *back);
  for (int i = 0; i < N; i++) {
    rv_sample *sample;
    assert_ok(rv_client_get(f->client, "replay", keys[i], &long_enough, &sample, &err));
    assert_ok(rv_sample_copy(sample, 0, back, ELEMENTS * sizeof *back, &err));
    assert_memory_equal(back, data + i * ELEMENTS, ELEMENTS * sizeof *back);
    rv_sample_unref(sample);
  }
  free(back);
  free(data);
}

TEST(at_the_timeout_the_rows_that_fitted_are_counted)
{
  rv_error err;
  float data[6][2] = {{0, 0.5f}, {1, 1.5f}, {2, 2.5f}, {3, 3.5f}, {4, 4.5f}, {5, 5.5f}};
  int64_t shape[] = {6, 2};
  rv_tensor column = {.dtype = RV_FLOAT32, .rank = 2, .shape = shape, .data = data};
  size_t added = 0;
  for (int i = 1; i < GROWING && added < 4; i++) {
    assert_ok(rv_client_reset(f->client, "queue", &long_enough, &err));
    assert_code(rv_client_add_batch(f->client, "queue", &column, 1, 6, NULL, NULL, &added, &growing[i], &err),
                RV_DEADLINE_EXCEEDED);
  }
  assert_int_equal(added, 4);
  assert_int_equal(table_size(f, "queue"), 4);
  wait_for_waiting(f, "queue", 0, 0);
  assert_code(add_value(f->client, "queue", 9, 1.0, NULL, &shortly, &err), RV_DEADLINE_EXCEEDED);
  wait_for_waiting(f, "queue", 0, 0);
  rv_batch *batch; /* nothing that was given up comes in later */
  assert_ok(rv_client_sample_batch(f->client, "queue", 4, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
  assert_int_equal(rv_batch_size(batch), 4);
  rv_batch_free(batch);
  assert_int_equal(table_size(f, "queue"), 0);
}

TEST(a_row_that_must_not_wait_does_not)
{
  rv_error err;
  add_values(f->client, "queue", 4);
  assert_code(add_value(f->client, "queue", 9, 1.0, NULL, &at_once, &err), RV_DEADLINE_EXCEEDED);
  wait_for_waiting(f, "queue", 0, 0);
}

typedef struct blocked_add {
  fixture *f;
  rv_wait wait;
  rv_code code;
} blocked_add;

static void *run_blocked_add(void *context)
{
  blocked_add *blocked = context;
  rv_error err;
  blocked->code = add_value(blocked->f->client, "queue", 7, 1.0, NULL, &blocked->wait, &err);
  return NULL;
}

TEST(a_blocked_add_goes_on_when_there_is_room)
{
  rv_error err;
  add_values(f->client, "queue", 4);
  blocked_add blocked = {.f = f, .wait = long_enough};
  pthread_t thread;
  pthread_create(&thread, NULL, run_blocked_add, &blocked);
  wait_for_waiting(f, "queue", 1, 0);
  rv_batch *batch;
  assert_ok(rv_client_sample_batch(f->client, "queue", 1, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
  rv_batch_free(batch);
  pthread_join(thread, NULL);
  assert_int_equal(blocked.code, RV_OK);
  assert_int_equal(table_size(f, "queue"), 4);
}

TEST(a_blocked_add_can_be_cancelled)
{
  rv_error err;
  rv_cancel *cancel;
  assert_ok(rv_cancel_new(&cancel, &err));
  add_values(f->client, "queue", 4);
  blocked_add blocked = {.f = f, .wait = {.timeout_ms = RV_FOREVER, .cancel = cancel}};
  pthread_t thread;
  pthread_create(&thread, NULL, run_blocked_add, &blocked);
  wait_for_waiting(f, "queue", 1, 0);
  rv_cancel_fire(cancel);
  pthread_join(thread, NULL);
  assert_int_equal(blocked.code, RV_CANCELLED);
  wait_for_waiting(f, "queue", 0, 0);
  rv_cancel_free(cancel);
}

/* ---- more rows than go in at one time ---- */

enum { PIECES = 30, PIECE_VALUES = 16384, PIECE_BOUND = 1 << 20 /* a row is a sixteenth of it */ };

typedef struct large_add {
  fixture *f;
  rv_wait wait;
  rv_code code;
  size_t added;
} large_add;

static void *run_large_add(void *context)
{
  large_add *large = context;
  rv_error err;
  float *data = calloc(PIECES * PIECE_VALUES, sizeof *data);
  for (int i = 0; i < PIECES; i++) data[i * PIECE_VALUES] = (float)i;
  int64_t shape[] = {PIECES, PIECE_VALUES};
  rv_tensor column = {.dtype = RV_FLOAT32, .rank = 2, .shape = shape, .data = data};
  large->code = rv_client_add_batch(large->f->client, "queue", &column, 1, PIECES, NULL, NULL, &large->added, &large->wait, &err);
  free(data);
  return NULL;
}

static void start_large_add(large_add *large, pthread_t *thread)
{
  rv_error err;
  rv_table_bounds bounds = rv_table_bounds_unchanged();
  bounds.max_bytes = PIECE_BOUND;
  assert_ok(rv_client_set_bounds(large->f->client, "queue", &bounds, &long_enough, &err));
  pthread_create(thread, NULL, run_large_add, large);
  for (int i = 0; table_size(large->f, "queue") < 4; i++) {
    assert_true(i < 60000);
    usleep(1000);
  }
}

TEST(rows_that_come_piece_by_piece_come_in_order_as_there_is_room)
{
  rv_error err;
  large_add large = {.f = f, .wait = long_enough};
  pthread_t thread;
  start_large_add(&large, &thread);
  static float row[PIECE_VALUES];
  for (int i = 0; i < PIECES; i++) {
    rv_batch *batch;
    assert_ok(rv_client_sample_batch(f->client, "queue", 1, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
    assert_ok(rv_batch_gather(batch, 0, row, sizeof row, &err));
    assert_true(row[0] == (float)i);
    rv_batch_free(batch);
  }
  pthread_join(thread, NULL);
  assert_int_equal(large.code, RV_OK);
  assert_int_equal(large.added, PIECES);
}

TEST(rows_that_come_piece_by_piece_can_be_cancelled)
{
  rv_error err;
  rv_cancel *cancel;
  assert_ok(rv_cancel_new(&cancel, &err));
  large_add large = {.f = f, .wait = {.timeout_ms = RV_FOREVER, .cancel = cancel}};
  pthread_t thread;
  start_large_add(&large, &thread);
  rv_cancel_fire(cancel);
  pthread_join(thread, NULL);
  assert_int_equal(large.code, RV_CANCELLED);
  assert_true(large.added <= 4);
  wait_for_waiting(f, "queue", 0, 0);
  rv_cancel_free(cancel);
}

enum { FULL = 1000 }; /* rows that the table has room for */

TEST(a_shape_that_cannot_be_is_refused_as_it_was_given)
{
  rv_error err;
  static const int64_t negative[] = {-1}, huge[] = {INT64_MAX}, none[] = {1, -2};
  static float data[FULL][2];
  add_values(f->client, "replay", 1);
  static const int64_t full[] = {FULL, 2};
  rv_tensor rows = {.dtype = RV_FLOAT32, .rank = 2, .shape = full, .data = data};
  for (int is_full = 0; is_full < 2; is_full++) {
    rv_tensor row = {.dtype = RV_FLOAT32, .rank = 1, .shape = NULL, .data = data};
    assert_code(rv_client_add(f->client, "replay", &row, 1, 1.0, NULL, &long_enough, &err), RV_INVALID_ARGUMENT);
    assert_says("column 0");
    assert_says("its rank is 1 and its shape NULL; give 1 size, or rank 0");
    assert_code(rv_client_add_batch(f->client, "replay", &row, 1, 1, NULL, NULL, NULL, &long_enough, &err), RV_INVALID_ARGUMENT);
    assert_says("column 0: its rank is 1 and its shape NULL");
    row.shape = negative;
    assert_code(rv_client_add(f->client, "replay", &row, 1, 1.0, NULL, &long_enough, &err), RV_INVALID_ARGUMENT);
    assert_says("table \"replay\": column 0: dimension 0 has the negative size -1");
    row.shape = huge;
    assert_code(rv_client_add(f->client, "replay", &row, 1, 1.0, NULL, &long_enough, &err), RV_INVALID_ARGUMENT);
    assert_says("table \"replay\": column 0: the sizes of its shape multiply to more bytes than 63 bits count");
    row.shape = none;
    row.rank = 2;
    assert_code(rv_client_add_batch(f->client, "replay", &row, 1, 1, NULL, NULL, NULL, &long_enough, &err), RV_INVALID_ARGUMENT);
    assert_says("column 0: dimension 1 has the negative size -2");
    assert_ok(rv_client_add_batch(f->client, "replay", &rows, 1, FULL, NULL, NULL, NULL, &long_enough, &err));
    add_values(f->client, "replay", 2); /* which take the places of others */
  }
}

TEST(what_does_not_fit_is_refused)
{
  rv_error err;
  size_t added;
  int64_t three[] = {3};
  float obs[3] = {1, 2, 3};
  int64_t action = 1;
  rv_tensor good[] = {{.dtype = RV_FLOAT32, .rank = 1, .shape = three, .data = obs}, {.dtype = RV_INT64, .data = &action}};
  assert_ok(rv_client_add(f->client, "signed", good, 2, 1.0, NULL, &long_enough, &err));
  assert_code(rv_client_add(f->client, "signed", good, 1, 1.0, NULL, &long_enough, &err), RV_INVALID_ARGUMENT);
  good[0].dtype = RV_INT32;
  assert_code(rv_client_add(f->client, "signed", good, 2, 1.0, NULL, &long_enough, &err), RV_INVALID_ARGUMENT);
  assert_says("signed");
  assert_says("obs");
  good[0].dtype = (rv_dtype)77;
  assert_code(rv_client_add(f->client, "replay", good, 2, 1.0, NULL, &long_enough, &err), RV_INVALID_ARGUMENT);
  assert_code(rv_client_add(f->client, "replay", good, 0, 1.0, NULL, &long_enough, &err), RV_INVALID_ARGUMENT);
  good[0] = (rv_tensor){.dtype = RV_FLOAT32, .rank = 1, .shape = three};
  assert_code(rv_client_add(f->client, "replay", good, 2, 1.0, NULL, &long_enough, &err), RV_INVALID_ARGUMENT);
  assert_says("column 0: it has no data");
  good[0].dtype = RV_STRING;
  assert_code(rv_client_add_batch(f->client, "replay", good, 1, 3, NULL, NULL, &added, &long_enough, &err), RV_INVALID_ARGUMENT);
  assert_says("column 0: it has no data");
  assert_int_equal(added, 0);
  assert_code(add_value(f->client, "replay", 1, NAN, NULL, &long_enough, &err), RV_INVALID_ARGUMENT);
  assert_code(add_value(f->client, "per", 1, -1.0, NULL, &long_enough, &err), RV_INVALID_ARGUMENT);
  assert_code(add_value(f->client, "per", 1, INFINITY, NULL, &long_enough, &err), RV_INVALID_ARGUMENT);
  assert_code(rv_client_add_batch(f->client, "replay", good, 2, 2, NULL, NULL, &added, &long_enough, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(added, 0);
  assert_int_equal(table_size(f, "replay"), 0);
  assert_int_equal(table_size(f, "per"), 0);
}

enum { THREADS = 4, PER_THREAD = 50 };

static void *add_many(void *context)
{
  add_values(((fixture *)context)->client, "replay", PER_THREAD);
  return NULL;
}

TEST(many_threads_may_add)
{
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, add_many, f);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  assert_int_equal(table_size(f, "replay"), THREADS * PER_THREAD);
}

TEST(an_add_that_timed_out_is_not_let_in_by_what_the_client_asks_next)
{
  rv_error err;
  const rv_wait moment = {.timeout_ms = 5};
  for (int round = 0; round < 30; round++) {
    add_values(f->client, "queue", 4);
    assert_code(add_value(f->client, "queue", 9, 1.0, NULL, &moment, &err), RV_DEADLINE_EXCEEDED);
    rv_batch *batch;
    assert_ok(rv_client_sample_batch(f->client, "queue", 4, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
    assert_int_equal(rv_batch_size(batch), 4);
    rv_batch_free(batch);
    assert_code(rv_client_sample_batch(f->client, "queue", 1, RV_UNEQUAL_ERROR, &at_once, &batch, &err), RV_DEADLINE_EXCEEDED);
  }
}

TEST(rows_without_trajectories_belong_to_no_episode)
{
  rv_error err;
  add_values(f->client, "replay", 3);
  static const int64_t shape[] = {6, 2};
  static const float data[6][2];
  rv_tensor column = {.dtype = RV_FLOAT32, .rank = 2, .shape = shape, .data = data};
  for (int i = 0; i < 2; i++)
    assert_ok(rv_client_add_batch(f->client, "replay", &column, 1, 6, NULL, NULL, NULL, &long_enough, &err));
  rv_server_info *info;
  assert_ok(rv_client_server_info(f->client, &long_enough, &info, &err));
  for (size_t i = 0; i < info->num_tables; i++)
    if (strcmp(info->tables[i].name, "replay") == 0) assert_int_equal(info->tables[i].num_episodes, 1);
  rv_server_info_free(info);
}

/* ---- messages that a server does not take ---- */

enum { MEGABYTE = 1 << 20, MOST_ROWS = 80 };

/* A clock that the test puts forward, so that time runs out when it says so. */
typedef struct forward_world {
  rv_env real;
  atomic_llong by_ns;
} forward_world;

static int64_t forward_clock(void *context)
{
  forward_world *world = context;
  return world->real.monotonic_ns(world->real.context) + atomic_load(&world->by_ns);
}

static void set_up_small(fixture *f, size_t max_message_bytes)
{
  rv_error err;
  set_up(f, UNIX_SOCKET);
  stop_server(f);
  const char *address = f->address;
  rv_server_config config = {.size = sizeof config,
                             .store = f->store,
                             .addresses = &address,
                             .num_addresses = 1,
                             .max_message_bytes = max_message_bytes};
  assert_ok(rv_server_new(&config, &f->server, &err));
}

/* Rows of one string each: those in [first, first + count) are large. */
static rv_tensor strings_of(rv_bytes *strings, int64_t *n, int64_t first, int64_t count, size_t large)
{
  static const char text[5 * MEGABYTE];
  for (int64_t i = 0; i < *n; i++) strings[i] = (rv_bytes){text, i >= first && i < first + count ? large : 1};
  return (rv_tensor){.dtype = RV_STRING, .rank = 1, .shape = n, .data = strings};
}

static void rows_of_strings_are_split_by_what_each_of_them_takes(void **state)
{
  (void)state;
  rv_error err;
  fixture f;
  set_up_small(&f, 6 * MEGABYTE);
  rv_bytes strings[MOST_ROWS];
  int64_t n = MOST_ROWS;
  rv_tensor column = strings_of(strings, &n, 50, 20, MEGABYTE);
  uint64_t keys[MOST_ROWS];
  size_t added;
  assert_ok(rv_client_add_batch(f.client, "replay", &column, 1, MOST_ROWS, NULL, keys, &added, &long_enough, &err));
  assert_int_equal(added, MOST_ROWS);
  assert_int_equal(table_size(&f, "replay"), MOST_ROWS);
  for (int i = 49; i < 51; i++) {
    rv_sample *sample;
    rv_bytes back;
    assert_ok(rv_client_get(f.client, "replay", keys[i], &long_enough, &sample, &err));
    assert_ok(rv_sample_copy(sample, 0, &back, sizeof back, &err));
    assert_int_equal(back.size, strings[i].size);
    rv_sample_unref(sample);
  }
  tear_down(&f);
}

typedef struct time_keeper {
  fixture *f;
  forward_world *world;
  atomic_bool over;
} time_keeper;

/* Ends the caller's time when the table is full. */
static void *end_time(void *context)
{
  time_keeper *keeper = context;
  while (table_size(keeper->f, "queue") < 4 && !atomic_load(&keeper->over)) usleep(1000);
  atomic_fetch_add(&keeper->world->by_ns, 60000000000);
  return NULL;
}

static void what_was_refused_is_told_although_time_ran_out_for_other_rows(void **state)
{
  (void)state;
  rv_error err;
  fixture f;
  forward_world world;
  set_up_small(&f, MEGABYTE);
  rv_env_default(&world.real);
  atomic_init(&world.by_ns, 0);
  const rv_env env = {.size = sizeof env, .context = &world, .monotonic_ns = forward_clock};
  rv_client_config config = {.size = sizeof config, .env = &env, .peer_timeout_ms = -1, .address = f.address};
  rv_client *client;
  assert_ok(rv_client_new(&config, &client, &err));
  rv_bytes strings[10];
  int64_t n = 10;
  rv_tensor column = strings_of(strings, &n, 0, 1, 5 * MEGABYTE);
  size_t added;
  time_keeper keeper = {.f = &f, .world = &world};
  pthread_t thread;
  pthread_create(&thread, NULL, end_time, &keeper);
  assert_code(rv_client_add_batch(client, "queue", &column, 1, 10, NULL, NULL, &added, &long_enough, &err),
              RV_RESOURCE_EXHAUSTED);
  atomic_store(&keeper.over, true);
  pthread_join(thread, NULL);
  assert_says("); raise the server's max_message_bytes, or"); /* one row cannot be fewer */
  assert_true(added <= 4);
  rv_client_free(client);
  tear_down(&f);
}

int main(void)
{
  const struct CMUnitTest tests[] = {EVERY_WAY(a_row_comes_back_as_it_was_added),
                                     EVERY_WAY(shapes_may_have_32_dimensions),
                                     EVERY_WAY(a_batch_of_rows_is_inserted_in_order),
                                     EVERY_WAY(rows_larger_than_a_chunk_are_split),
                                     EVERY_WAY(at_the_timeout_the_rows_that_fitted_are_counted),
                                     EVERY_WAY(a_row_that_must_not_wait_does_not),
                                     EVERY_WAY(a_blocked_add_goes_on_when_there_is_room),
                                     EVERY_WAY(a_blocked_add_can_be_cancelled),
                                     EVERY_WAY(rows_that_come_piece_by_piece_come_in_order_as_there_is_room),
                                     EVERY_WAY(rows_that_come_piece_by_piece_can_be_cancelled),
                                     EVERY_WAY(a_shape_that_cannot_be_is_refused_as_it_was_given),
                                     EVERY_WAY(what_does_not_fit_is_refused),
                                     EVERY_WAY(many_threads_may_add),
                                     EVERY_WAY(an_add_that_timed_out_is_not_let_in_by_what_the_client_asks_next),
                                     EVERY_WAY(rows_without_trajectories_belong_to_no_episode),
                                     cmocka_unit_test(rows_of_strings_are_split_by_what_each_of_them_takes),
                                     cmocka_unit_test(what_was_refused_is_told_although_time_ran_out_for_other_rows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
