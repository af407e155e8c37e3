/* Batches, in process and remote. */
#include "client_fixture.h"

TEST(a_batch_is_gathered_with_its_keys)
{
  rv_error err;
  enum { N = 64, B = 256 };
  static uint64_t keys[N];
  for (int i = 0; i < N; i++) assert_ok(add_value(f->client, "replay", (float)i, i, &keys[i], &long_enough, &err));
  rv_batch *batch;
  for (int round = 0; round < 3; round++) {
    assert_ok(rv_client_sample_batch(f->client, "replay", B, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
    assert_int_equal(rv_batch_size(batch), B);
    assert_int_equal(rv_batch_num_columns(batch), 1);
    rv_sample_column column;
    assert_ok(rv_batch_column(batch, 0, &column, &err));
    assert_true(column.squeezed);
    assert_int_equal(column.bytes, B * 2 * sizeof(float));
    static float data[B][2], again[B][2];
    assert_ok(rv_batch_gather(batch, 0, data, sizeof data, &err));
    void *outs[] = {again};
    size_t sizes[] = {sizeof again};
    assert_ok(rv_batch_gather_all(batch, outs, sizes, 1, &err));
    assert_memory_equal(data, again, sizeof data);
    for (size_t i = 0; i < B; i++) {
      const rv_sample_info *info = rv_batch_info(batch, i);
      assert_true(info->key == keys[(size_t)data[i][0]]);
      assert_true(info->priority == (double)data[i][0]);
      assert_true(info->probability == 1.0 / N);
      assert_int_equal(info->table_size, N);
      assert_true(info->times_sampled >= 1);
    }
    assert_code(rv_batch_gather(batch, 0, data, 1, &err), RV_INVALID_ARGUMENT);
    assert_code(rv_batch_gather(batch, 1, data, 1, &err), RV_OUT_OF_RANGE);
    rv_sample *sample = rv_batch_sample(batch, 5);
    assert_null(rv_batch_sample(batch, B));
    assert_null(rv_batch_info(batch, B));
    rv_batch_free(batch);
    assert_true(sample_value(sample) == data[5][0]);
    rv_sample_unref(sample);
  }
}

TEST(a_batch_larger_than_a_queue_comes_back_short)
{
  rv_error err;
  rv_batch *batch;
  rv_code code = RV_DEADLINE_EXCEEDED;
  for (int i = 0; i < GROWING && code == RV_DEADLINE_EXCEEDED; i++) {
    assert_ok(rv_client_reset(f->client, "queue", &long_enough, &err));
    add_values(f->client, "queue", 3);
    code = rv_client_sample_batch(f->client, "queue", 10, RV_UNEQUAL_ERROR, &growing[i], &batch, &err);
  }
  assert_ok(code);
  assert_int_equal(rv_batch_size(batch), 3);
  float data[3][2];
  assert_ok(rv_batch_gather(batch, 0, data, sizeof data, &err));
  for (int i = 0; i < 3; i++) assert_true(data[i][0] == (float)i);
  rv_batch_free(batch);
  assert_int_equal(table_size(f, "queue"), 0);
  wait_for_waiting(f, "queue", 0, 0);
  assert_code(rv_client_sample_batch(f->client, "queue", 10, RV_UNEQUAL_ERROR, &shortly, &batch, &err), RV_DEADLINE_EXCEEDED);
  assert_says("queue");
}

static void *feed_the_queue(void *context)
{
  add_values(((fixture *)context)->client, "queue", 25);
  return NULL;
}

TEST(a_batch_larger_than_a_queue_is_filled_as_items_come)
{
  rv_error err;
  pthread_t thread;
  pthread_create(&thread, NULL, feed_the_queue, f);
  rv_batch *batch;
  assert_ok(rv_client_sample_batch(f->client, "queue", 25, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
  assert_int_equal(rv_batch_size(batch), 25);
  float data[25][2];
  assert_ok(rv_batch_gather(batch, 0, data, sizeof data, &err));
  for (int i = 0; i < 25; i++) assert_true(data[i][0] == (float)i);
  rv_batch_free(batch);
  pthread_join(thread, NULL);
}

TEST(a_batch_that_must_not_wait_takes_what_is_there)
{
  rv_error err;
  rv_batch *batch;
  assert_code(rv_client_sample_batch(f->client, "queue", 5, RV_UNEQUAL_ERROR, &at_once, &batch, &err), RV_DEADLINE_EXCEEDED);
  add_values(f->client, "queue", 2);
  assert_ok(rv_client_sample_batch(f->client, "queue", 5, RV_UNEQUAL_ERROR, &at_once, &batch, &err));
  assert_int_equal(rv_batch_size(batch), 2);
  rv_batch_free(batch);
}

TEST(unequal_lengths_are_found_before_anything_is_counted)
{
  rv_error err;
  put_sequence(f, "fifo", 10, 3);
  put_sequence(f, "fifo", 20, 5);
  rv_batch *batch;
  assert_code(rv_client_sample_batch(f->client, "fifo", 4, RV_UNEQUAL_ERROR, &long_enough, &batch, &err), RV_FAILED_PRECONDITION);
  rv_server_info *info;
  assert_ok(rv_client_server_info(f->client, &long_enough, &info, &err));
  for (size_t i = 0; i < info->num_tables; i++) assert_int_equal(info->tables[i].samples, 0);
  rv_server_info_free(info);
}

TEST(a_column_that_a_batch_does_not_have_is_refused)
{
  rv_error err;
  put_sequence(f, "replay", 10, 3);
  rv_batch *batch;
  assert_ok(rv_client_sample_batch(f->client, "replay", 2, RV_UNEQUAL_PAD, &long_enough, &batch, &err));
  const size_t none[] = {rv_batch_num_columns(batch), 100, SIZE_MAX};
  for (int i = 0; i < 3; i++) {
    rv_sample_column column;
    int64_t lengths[2];
    assert_code(rv_batch_column(batch, none[i], &column, &err), RV_OUT_OF_RANGE);
    assert_code(rv_batch_gather(batch, none[i], lengths, 0, &err), RV_OUT_OF_RANGE);
    assert_code(rv_batch_lengths(batch, none[i], lengths, &err), RV_OUT_OF_RANGE);
    assert_says("the batch has 1 columns");
  }
  rv_batch_free(batch);
}

TEST(unequal_lengths_are_padded)
{
  rv_error err;
  put_sequence(f, "replay", 10, 3);
  put_sequence(f, "replay", 20, 5);
  rv_batch *batch;
  assert_ok(rv_client_sample_batch(f->client, "replay", 40, RV_UNEQUAL_PAD, &long_enough, &batch, &err));
  rv_sample_column column;
  assert_ok(rv_batch_column(batch, 0, &column, &err));
  int64_t lengths[40];
  assert_ok(rv_batch_lengths(batch, 0, lengths, &err));
  assert_int_equal(column.length, 5); /* but for one chance in 2^39 */
  int64_t data[40][5];
  assert_ok(rv_batch_gather(batch, 0, data, sizeof data, &err));
  for (int i = 0; i < 40; i++) {
    int64_t base = lengths[i] == 3 ? 10 : 20;
    for (int j = 0; j < 5; j++) assert_int_equal(data[i][j], j < lengths[i] ? base + j : 0);
  }
  rv_batch_free(batch);
}

TEST(rows_of_different_shapes_are_padded_in_each_dimension)
{
  rv_error err;
  static const int64_t shapes[2][2] = {{2, 1}, {1, 3}};
  static const float values[2][3] = {{1, 2}, {3, 4, 5}};
  static const float padded[2][6] = {{1, 0, 0, 2, 0, 0}, {3, 4, 5, 0, 0, 0}};
  for (int kind = 0; kind < 2; kind++) {
    rv_tensor row = {.dtype = RV_FLOAT32, .rank = 2, .shape = shapes[kind], .data = values[kind]};
    assert_ok(rv_client_add(f->client, "replay", &row, 1, 1.0, NULL, &long_enough, &err));
  }
  rv_batch *batch;
  assert_ok(rv_client_sample_batch(f->client, "replay", 40, RV_UNEQUAL_PAD, &long_enough, &batch, &err));
  rv_sample_column column;
  assert_ok(rv_batch_column(batch, 0, &column, &err)); /* of both kinds, but for one chance in 2^39 */
  assert_int_equal(column.shape[0], 2);
  assert_int_equal(column.shape[1], 3);
  float data[40][6];
  assert_int_equal(column.bytes, sizeof data);
  assert_ok(rv_batch_gather(batch, 0, data, sizeof data, &err));
  for (int i = 0; i < 40; i++) assert_memory_equal(data[i], padded[data[i][0] > 1], sizeof data[i]);
  rv_batch_free(batch);
}

TEST(unequal_items_can_be_read_one_by_one)
{
  rv_error err;
  put_sequence(f, "fifo", 10, 3);
  add_values(f->client, "replay", 1);
  put_sequence(f, "replay", 20, 5);
  rv_batch *batch;
  assert_ok(rv_client_sample_batch(f->client, "replay", 40, RV_UNEQUAL_LIST, &long_enough, &batch, &err));
  rv_sample_column column;
  assert_code(rv_batch_column(batch, 0, &column, &err), RV_FAILED_PRECONDITION);
  for (size_t i = 0; i < 40; i++) {
    rv_sample *sample = rv_batch_sample(batch, i);
    assert_ok(rv_sample_get_column(sample, 0, &column, &err));
    if (column.dtype == RV_INT64) {
      int64_t data[5];
      assert_int_equal(column.length, 5);
      assert_ok(rv_sample_copy(sample, 0, data, sizeof data, &err));
      assert_int_equal(data[4], 24);
    } else {
      assert_true(sample_value(sample) == 0);
    }
    rv_sample_unref(sample);
  }
  rv_batch_free(batch);
}

TEST(items_without_rows_can_be_sampled)
{
  rv_error err;
  put_sequence(f, "replay", 10, 0);
  rv_batch *batch;
  assert_ok(rv_client_sample_batch(f->client, "replay", 2, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
  rv_sample_column column;
  assert_ok(rv_batch_column(batch, 0, &column, &err));
  assert_int_equal(column.length, 0);
  assert_int_equal(column.bytes, 0);
  assert_ok(rv_batch_gather(batch, 0, NULL, 0, &err));
  rv_batch_free(batch);
}

TEST(batch_sizes_out_of_range_are_refused)
{
  rv_error err;
  rv_batch *batch;
  assert_code(rv_client_sample_batch(f->client, "replay", 0, RV_UNEQUAL_ERROR, &long_enough, &batch, &err), RV_INVALID_ARGUMENT);
  assert_code(rv_client_sample_batch(f->client, "replay", (size_t)1 << 40, RV_UNEQUAL_ERROR, &long_enough, &batch, &err),
              RV_INVALID_ARGUMENT);
}

typedef struct waiting_batch {
  fixture *f;
  rv_wait wait;
  rv_code code;
  rv_error err;
} waiting_batch;

static void *run_waiting_batch(void *context)
{
  waiting_batch *waiting = context;
  rv_batch *batch;
  waiting->code = rv_client_sample_batch(waiting->f->client, "five", 2, RV_UNEQUAL_ERROR, &waiting->wait, &batch, &waiting->err);
  if (waiting->code == RV_OK) rv_batch_free(batch);
  return NULL;
}

TEST(a_waiting_batch_can_be_cancelled_and_consumes_nothing)
{
  rv_error err;
  add_values(f->client, "five", 3);
  rv_cancel *cancel;
  assert_ok(rv_cancel_new(&cancel, &err));
  waiting_batch waiting = {.f = f, .wait = {.timeout_ms = RV_FOREVER, .cancel = cancel}};
  pthread_t thread;
  pthread_create(&thread, NULL, run_waiting_batch, &waiting);
  wait_for_waiting(f, "five", 0, 1);
  rv_cancel_fire(cancel);
  pthread_join(thread, NULL);
  assert_int_equal(waiting.code, RV_CANCELLED);
  wait_for_waiting(f, "five", 0, 0);
  rv_cancel_free(cancel);
}

static bool after_two(void *context)
{
  int *asked = context;
  return ++*asked == 2;
}

static void *cancel_when_four_are_drawn(void *context)
{
  waiting_batch *w = context;
  rv_error err;
  rv_table *found;
  assert_ok(rv_store_find(w->f->store, "queue", 5, &found, &err));
  for (int64_t samples = 0; samples < 4; usleep(1000)) {
    rv_table_info info = {.size = sizeof info};
    assert_ok(rv_table_get_info(found, &info, &err));
    samples = info.samples;
    rv_table_info_fini(&info);
  }
  wait_for_waiting(w->f, "queue", 0, 1);
  rv_cancel_fire(w->wait.cancel);
  return NULL;
}

TEST(a_cancelled_batch_hands_over_what_it_has_drawn)
{
  rv_error err;
  add_values(f->client, "queue", 4);
  rv_cancel *cancel;
  assert_ok(rv_cancel_new(&cancel, &err));
  waiting_batch w = {.f = f, .wait = {.timeout_ms = 30000, .cancel = cancel}};
  pthread_t thread;
  pthread_create(&thread, NULL, cancel_when_four_are_drawn, &w);
  rv_batch *batch;
  assert_ok(rv_client_sample_batch(f->client, "queue", 8, RV_UNEQUAL_ERROR, &w.wait, &batch, &err));
  pthread_join(thread, NULL);
  assert_int_equal(rv_batch_size(batch), 4);
  float data[4][2];
  assert_ok(rv_batch_gather(batch, 0, data, sizeof data, &err));
  for (int i = 0; i < 4; i++) assert_true(data[i][0] == (float)i);
  rv_batch_free(batch);
  assert_code(rv_client_sample_batch(f->client, "queue", 8, RV_UNEQUAL_ERROR, &w.wait, &batch, &err), RV_CANCELLED);
  rv_cancel_free(cancel);
}

TEST(a_batch_of_one_is_drawn_whatever_else_is_there)
{
  rv_error err;
  put_sequence(f, "fifo", 10, 3);
  put_sequence(f, "fifo", 20, 5);
  rv_batch *batch;
  assert_ok(rv_client_sample_batch(f->client, "fifo", 1, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
  int64_t data[3];
  assert_ok(rv_batch_gather(batch, 0, data, sizeof data, &err));
  assert_int_equal(data[2], 12);
  rv_batch_free(batch);
}

TEST(a_waiting_batch_can_be_interrupted)
{
  int asked = 0;
  waiting_batch waiting = {.f = f, .wait = {.timeout_ms = RV_FOREVER, .interrupted = after_two, .context = &asked}};
  run_waiting_batch(&waiting);
  assert_int_equal(waiting.code, RV_CANCELLED);
  assert_int_equal(asked, 2);
}

TEST(a_timeout_says_what_was_waited_for)
{
  add_values(f->client, "five", 3);
  rv_error err = {.message = ""};
  for (int i = 0; i < GROWING && strstr(err.message, "waits for 5 items") == NULL; i++) {
    waiting_batch waiting = {.f = f, .wait = growing[i]};
    run_waiting_batch(&waiting);
    assert_int_equal(waiting.code, RV_DEADLINE_EXCEEDED);
    err = waiting.err;
  }
  assert_says("five");
  assert_says("sampling waits for 5 items, has 3");
}

enum { THREADS = 4, ROUNDS = 20 };

static void *sample_many(void *context)
{
  fixture *f = context;
  rv_error err;
  for (int i = 0; i < ROUNDS; i++) {
    rv_batch *batch;
    assert_ok(rv_client_sample_batch(f->client, "replay", 32, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
    assert_int_equal(rv_batch_size(batch), 32);
    rv_batch_free(batch);
  }
  return NULL;
}

TEST(many_threads_may_sample)
{
  add_values(f->client, "replay", 10);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, sample_many, f);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {EVERY_WAY(a_batch_is_gathered_with_its_keys),
                                     EVERY_WAY(a_batch_larger_than_a_queue_comes_back_short),
                                     EVERY_WAY(a_batch_larger_than_a_queue_is_filled_as_items_come),
                                     EVERY_WAY(a_batch_that_must_not_wait_takes_what_is_there),
                                     EVERY_WAY(unequal_lengths_are_found_before_anything_is_counted),
                                     EVERY_WAY(a_column_that_a_batch_does_not_have_is_refused),
                                     EVERY_WAY(unequal_lengths_are_padded),
                                     EVERY_WAY(rows_of_different_shapes_are_padded_in_each_dimension),
                                     EVERY_WAY(unequal_items_can_be_read_one_by_one),
                                     EVERY_WAY(items_without_rows_can_be_sampled),
                                     EVERY_WAY(batch_sizes_out_of_range_are_refused),
                                     EVERY_WAY(a_waiting_batch_can_be_cancelled_and_consumes_nothing),
                                     EVERY_WAY(a_cancelled_batch_hands_over_what_it_has_drawn),
                                     EVERY_WAY(a_batch_of_one_is_drawn_whatever_else_is_there),
                                     EVERY_WAY(a_waiting_batch_can_be_interrupted),
                                     EVERY_WAY(a_timeout_says_what_was_waited_for),
                                     EVERY_WAY(many_threads_may_sample)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
