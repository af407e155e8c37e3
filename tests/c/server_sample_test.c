#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "support/place.h"
#include "support/rig.h"

#define TIMEOUT_TEXT "Rate Limiter: Timeout exceeded before the right to insert was acquired."

static test_rig rig;
static test_peer peer;

/* "t": anything, FIFO; "q": a queue of 4. */
static int set_up(void **state)
{
  (void)state;
  rv_table_config tables[] = {place_queue_like("t", 1000), place_queue("q", 4)};
  rig_start(&rig, tables, 2);
  peer_open(&peer, rig.address);
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  peer_close(&peer);
  rig_stop(&rig);
  return 0;
}

static void fill(const char *table, uint64_t first, uint64_t n)
{
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  uint64_t keys[64];
  for (uint64_t i = 0; i < n; i++) insert_one(call, table, first + i, 1);
  expect_keys(call, keys, n);
  stream_free(call);
}

static int64_t samples(const char *table)
{
  rv_table_info info = {.size = sizeof info};
  assert_int_equal(rv_table_get_info(rig_find(&rig, table), &info, NULL), RV_OK);
  int64_t n = info.samples;
  rv_table_info_fini(&info);
  return n;
}

/* ---- requests ---- */

static void a_request_for_no_samples_is_refused_before_its_table_is_looked_up(void **state)
{
  (void)state;
  const int64_t bad[] = {0, -1, INT64_MIN};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    test_stream *call = stream_open(&peer, SAMPLE, NULL, 0);
    ask_samples(call, "nowhere", bad[i], -1);
    assert_int_equal(stream_end(call, NULL), RV_INVALID_ARGUMENT);
    stream_free(call);
  }
}

static void an_unknown_table_is_not_found(void **state)
{
  (void)state;
  char text[RV_ERROR_MESSAGE_MAX];
  test_stream *call = stream_open(&peer, SAMPLE, NULL, 0);
  ask_samples(call, "nowhere", 1, -1);
  assert_int_equal(stream_end(call, text), RV_NOT_FOUND);
  assert_non_null(strstr(text, "was not found"));
  stream_free(call);
}

static void more_samples_than_32_bits_can_count_are_served(void **state)
{
  (void)state;
  fill("t", 1, 1);
  const int64_t many[] = {INT64_C(1) << 31, INT64_C(1) << 32, (INT64_C(1) << 32) + 1, INT64_MAX};
  for (size_t i = 0; i < sizeof many / sizeof many[0]; i++) {
    test_stream *call = stream_open(&peer, SAMPLE, NULL, 0);
    uint64_t keys[300];
    ask_samples(call, "t", many[i], -1);
    for (size_t n = 0; n < 300; n++) assert_int_equal(read_samples(call, keys, 1), 1);
    stream_free(call);
  }
}

static void requests_that_are_written_ahead_are_served_in_turn(void **state)
{
  (void)state;
  fill("t", 1, 1);
  fill("q", 10, 4);
  test_stream *call = stream_open(&peer, SAMPLE, NULL, 0);
  uint64_t keys[9];
  ask_samples(call, "t", 2, -1);
  ask_samples(call, "q", 4, -1);
  ask_samples(call, "t", 3, -1);
  stream_half_close(call);
  assert_int_equal(read_samples(call, keys, 9), 9);
  const uint64_t expected[] = {1, 1, 10, 11, 12, 13, 1, 1, 1};
  assert_memory_equal(keys, expected, sizeof expected);
  assert_null(stream_next(call));
  assert_int_equal(stream_end(call, NULL), RV_OK);
  stream_free(call);
}

static void a_half_close_without_a_request_ends_with_ok(void **state)
{
  (void)state;
  test_stream *call = stream_open(&peer, SAMPLE, NULL, 0);
  stream_half_close(call);
  assert_int_equal(stream_end(call, NULL), RV_OK);
  stream_free(call);
}

/* ---- waiting ---- */

static void what_is_there_is_sent_at_once_and_then_the_time_runs_out(void **state)
{
  (void)state;
  fill("q", 1, 3);
  test_stream *call = stream_open(&peer, SAMPLE, NULL, 0);
  uint64_t keys[3];
  char text[RV_ERROR_MESSAGE_MAX];
  ask_samples(call, "q", 10, 20);
  assert_int_equal(read_samples(call, keys, 3), 3);
  assert_int_equal(stream_end(call, text), RV_DEADLINE_EXCEEDED);
  assert_non_null(strstr(text, TIMEOUT_TEXT));
  assert_true(strlen(text) > strlen(TIMEOUT_TEXT) + 10); /* and what it waited for */
  assert_int_equal(samples("q"), 3);
  rig_wait_for_waiting(&rig, "q", 0, 0);
  stream_free(call);
}

static void a_timeout_of_zero_means_for_ever(void **state)
{
  (void)state;
  test_stream *call = stream_open(&peer, SAMPLE, NULL, 0);
  uint64_t key;
  ask_samples(call, "q", 1, 0);
  rig_wait_for_waiting(&rig, "q", 0, 1);
  fill("q", 1, 1);
  assert_int_equal(read_samples(call, &key, 1), 1);
  stream_free(call);
}

static void a_cancelled_ask_consumes_nothing(void **state)
{
  (void)state;
  test_stream *call = stream_open(&peer, SAMPLE, NULL, 0);
  ask_samples(call, "q", 2, -1);
  rig_wait_for_waiting(&rig, "q", 0, 1);
  stream_free(call);
  rig_wait_for_waiting(&rig, "q", 0, 0);
  fill("q", 1, 2);
  assert_int_equal(rig_size(&rig, "q"), 2);
  assert_int_equal(samples("q"), 0);
}

static void an_ask_whose_call_is_past_its_deadline_consumes_nothing(void **state)
{
  (void)state;
  test_stream *call = stream_open_deadline(&peer, SAMPLE, 20000000);
  ask_samples(call, "q", 2, -1);
  assert_int_equal(stream_end(call, NULL), RV_DEADLINE_EXCEEDED);
  rig_wait_for_waiting(&rig, "q", 0, 0);
  fill("q", 1, 2);
  assert_int_equal(rig_size(&rig, "q"), 2);
  stream_free(call);
}

static void poll_request(test_stream *call, int64_t n)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  rv_sample_request request = {.table = {(const uint8_t *)"q", 1}, .num_samples = n, .poll = true};
  rv_sample_request_serialize(&body, &request);
  stream_send(call, &body);
}

static void a_poll_takes_what_is_there_and_does_not_wait(void **state)
{
  (void)state;
  uint64_t keys[2];
  fill("q", 1, 2);
  test_stream *call = stream_open(&peer, SAMPLE, NULL, 0);
  poll_request(call, 5);
  assert_int_equal(read_samples(call, keys, 2), 2);
  assert_int_equal(stream_end(call, NULL), RV_DEADLINE_EXCEEDED);
  stream_free(call);
}

static void a_request_bounded_as_a_whole_ends_in_time_though_samples_keep_coming(void **state)
{
  (void)state;
  test_stream *call = stream_open(&peer, SAMPLE, NULL, 0), *writer = stream_open(&peer, INSERT, NULL, 0);
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  rv_sample_request request = {.table = {(const uint8_t *)"q", 1}, .num_samples = 1 << 30, .timeout_ms = 50, .whole = true};
  rv_sample_request_serialize(&body, &request);
  stream_send(call, &body);
  uint64_t sampled, key = 0;
  do insert_one(writer, "q", ++key, 1);
  while (read_samples(call, &sampled, 1) == 1 && sampled == key);
  assert_int_equal(stream_end(call, NULL), RV_DEADLINE_EXCEEDED);
  stream_free(call);
  stream_free(writer);
}

static void a_closed_table_ends_waiting_asks_with_cancelled(void **state)
{
  (void)state;
  test_stream *call = stream_open(&peer, SAMPLE, NULL, 0);
  ask_samples(call, "q", 1, -1);
  rig_wait_for_waiting(&rig, "q", 0, 1);
  rv_store_close(rig.store);
  assert_int_equal(stream_end(call, NULL), RV_CANCELLED);
  stream_free(call);
}

/* ---- responses ---- */

static void a_large_item_comes_in_several_responses(void **state)
{
  (void)state;
  enum { CHUNKS = 5, WIDTH = 1 << 18 }; /* a row of 1 MiB each */
  test_stream *writer = stream_open(&peer, INSERT, NULL, 0);
  rv_writer_buf body;
  uint64_t key;
  rv_writer_buf_init(&body);
  for (uint64_t chunk = 1; chunk <= CHUNKS; chunk++) put_chunk(&body, chunk, (int32_t)chunk, 1, WIDTH);
  rv_wire_slice slices[CHUNKS];
  for (int i = 0; i < CHUNKS; i++) slices[i] = (rv_wire_slice){.chunk_key = (uint64_t)i + 1, .length = 1};
  uint32_t num_slices = CHUNKS;
  bool squeeze = false;
  rv_wire_item item = {.key = 9,
                       .table = {(const uint8_t *)"t", 1},
                       .priority = 1,
                       .slices = slices,
                       .num_slices = &num_slices,
                       .squeeze = &squeeze,
                       .num_columns = 1,
                       .total_slices = CHUNKS};
  size_t field = rv_put_open(&body, 2);
  rv_wire_item_serialize(&body, &item);
  rv_put_close(&body, field);
  stream_send(writer, &body);
  expect_keys(writer, &key, 1);
  stream_free(writer);

  test_stream *call = stream_open(&peer, SAMPLE, NULL, 0);
  ask_samples(call, "t", 1, -1);
  stream_half_close(call);
  size_t responses = 0, chunks = 0, infos = 0, ends = 0;
  for (rv_buf *message = stream_next(call); message != NULL; message = stream_next(call), responses++) {
    rv_sample_response response;
    assert_int_equal(rv_sample_response_parse((rv_span){message->data, message->size}, &response, NULL), RV_OK);
    for (size_t i = 0; i < response.num_entries; i++) {
      assert_int_equal(ends, 0);
      infos += response.entries[i].has_info;
      ends += response.entries[i].end_of_sequence;
      chunks += response.entries[i].num_chunks;
    }
    rv_sample_response_fini(&response);
    rv_buf_unref(message);
  }
  assert_int_equal(stream_end(call, NULL), RV_OK);
  assert_true(responses >= 2);
  assert_int_equal(chunks, CHUNKS);
  assert_int_equal(infos, 1);
  assert_int_equal(ends, 1);
  stream_free(call);
}

static void insert_wide(test_stream *call, const char *table, uint64_t key, int64_t width)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_chunk(&body, key, 0, 1, width);
  put_item(&body, key, (item_options){.table = table, .priority = 1, .chunk = key});
  stream_send(call, &body);
}

static void a_client_that_does_not_read_is_not_drawn_for_without_end(void **state)
{
  (void)state;
  uint64_t key;
  test_stream *writer = stream_open(&peer, INSERT, NULL, 0);
  insert_wide(writer, "t", 1, 1 << 18);
  expect_keys(writer, &key, 1);
  test_stream *call = stream_open(&peer, SAMPLE, NULL, 0);
  stream_pause(call, true);
  ask_samples(call, "t", 500, -1);
  while (samples("t") == 0) {
  }
  for (int i = 0; i < 20; i++) { /* round trips, in which it could go on */
    insert_wide(writer, "t", 1, 1 << 18);
    expect_keys(writer, &key, 1);
  }
  assert_true(samples("t") < 200);
  stream_pause(call, false);
  uint64_t keys[500];
  assert_int_equal(read_samples(call, keys, 500), 500);
  stream_free(call);
  stream_free(writer);
}

/* Many are asked for at a time where those before were small. */
static void large_items_after_small_ones_are_sent_as_the_client_reads(void **state)
{
  (void)state;
  enum { SMALL = 4000, LARGE = 300, MIB = 1 << 20 };
  uint64_t key = 1, keys[SMALL];
  size_t unknown;
  test_stream *writer = stream_open(&peer, INSERT, NULL, 0), *call = stream_open(&peer, SAMPLE, NULL, 0);
  fill("t", 1, 1);
  ask_samples(call, "t", SMALL, -1);
  assert_int_equal(read_samples(call, keys, SMALL), SMALL);
  insert_wide(writer, "t", 2, MIB / sizeof(int32_t));
  expect_keys(writer, &key, 1);
  key = 1;
  assert_int_equal(rv_table_mutate(rig_find(&rig, "t"), NULL, 0, &key, 1, NULL, &unknown, NULL), RV_OK);
  stream_pause(call, true);
  ask_samples(call, "t", LARGE, -1);
  while (samples("t") == SMALL) continue;
  for (int i = 0; i < 20; i++) { /* round trips, in which it could go on */
    insert_one(writer, "t", 100 + (uint64_t)i, 1);
    expect_keys(writer, &key, 1);
  }
  assert_true(peer_memory(&peer).connection_bytes < 40 * (int64_t)MIB);
  stream_pause(call, false);
  assert_int_equal(read_samples(call, keys, LARGE), LARGE);
  for (size_t i = 0; i < LARGE; i++) assert_int_equal(keys[i], 2);
  stream_free(call);
  stream_free(writer);
}

/* What was drawn and is not sent is let go of. */
static void a_client_that_goes_before_it_has_read_large_items_leaves_nothing(void **state)
{
  (void)state;
  enum { MIB = 1 << 20 };
  uint64_t key = 1, keys[4000];
  size_t unknown;
  test_stream *writer = stream_open(&peer, INSERT, NULL, 0), *call = stream_open(&peer, SAMPLE, NULL, 0);
  fill("t", 1, 1);
  ask_samples(call, "t", 4000, -1);
  assert_int_equal(read_samples(call, keys, 4000), 4000);
  insert_wide(writer, "t", 2, MIB / sizeof(int32_t));
  expect_keys(writer, &key, 1);
  key = 1;
  assert_int_equal(rv_table_mutate(rig_find(&rig, "t"), NULL, 0, &key, 1, NULL, &unknown, NULL), RV_OK);
  stream_pause(call, true);
  ask_samples(call, "t", 300, -1);
  while (samples("t") == 4000) continue;
  stream_free(call); /* it is cancelled */
  insert_one(writer, "t", 3, 1);
  expect_keys(writer, &key, 1);
  stream_free(writer);
}

static void items_that_cannot_stand_in_one_batch_are_refused_before_they_are_counted(void **state)
{
  (void)state;
  uint64_t key;
  test_stream *writer = stream_open(&peer, INSERT, NULL, 0);
  insert_wide(writer, "t", 1, 3);
  expect_keys(writer, &key, 1);
  for (int round = 0; round < 2; round++) {
    test_stream *call = stream_open(&peer, SAMPLE, NULL, 0);
    rv_writer_buf body;
    rv_writer_buf_init(&body);
    rv_sample_request request = {.table = {(const uint8_t *)"t", 1}, .num_samples = 4, .same_layout = true};
    rv_sample_request_serialize(&body, &request);
    stream_send(call, &body);
    if (round == 0) {
      uint64_t keys[4];
      assert_int_equal(read_samples(call, keys, 4), 4);
      insert_wide(writer, "t", 2, 4);
      expect_keys(writer, &key, 1);
    } else {
      assert_int_equal(stream_end(call, NULL), RV_FAILED_PRECONDITION);
    }
    stream_free(call);
  }
  assert_int_equal(samples("t"), 4);
  stream_free(writer);
}

/* ---- one connection ---- */

static void a_blocked_insert_of_any_size_does_not_stop_the_sample_that_unblocks_it(void **state)
{
  (void)state;
  enum { N = 7, WIDTH = 5 << 18 }; /* messages of 5 MiB, larger than any window */
  test_stream *writer = stream_open(&peer, INSERT, NULL, 0), *sampler = stream_open(&peer, SAMPLE, NULL, 0);
  for (uint64_t key = 1; key <= N; key++) insert_wide(writer, "q", key, WIDTH);
  uint64_t keys[N];
  ask_samples(sampler, "q", N, -1);
  assert_int_equal(read_samples(sampler, keys, N), N);
  for (uint64_t key = 1; key <= N; key++) assert_int_equal(keys[key - 1], key);
  expect_keys(writer, keys, N);
  stream_free(writer);
  stream_free(sampler);
}

static void thousands_of_samplers_may_be_opened_and_reset(void **state)
{
  (void)state;
  fill("t", 1, 1);
  for (int i = 0; i < 5000; i++) {
    test_stream *call = stream_open(&peer, SAMPLE, NULL, 0);
    uint64_t key;
    ask_samples(call, "t", 3, -1);
    if (i % 2 == 0) assert_int_equal(read_samples(call, &key, 1), 1);
    stream_free(call);
  }
  fill("t", 2, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(a_request_for_no_samples_is_refused_before_its_table_is_looked_up),
      TEST(an_unknown_table_is_not_found),
      TEST(more_samples_than_32_bits_can_count_are_served),
      TEST(requests_that_are_written_ahead_are_served_in_turn),
      TEST(a_half_close_without_a_request_ends_with_ok),
      TEST(what_is_there_is_sent_at_once_and_then_the_time_runs_out),
      TEST(a_timeout_of_zero_means_for_ever),
      TEST(a_cancelled_ask_consumes_nothing),
      TEST(an_ask_whose_call_is_past_its_deadline_consumes_nothing),
      TEST(a_poll_takes_what_is_there_and_does_not_wait),
      TEST(a_request_bounded_as_a_whole_ends_in_time_though_samples_keep_coming),
      TEST(a_closed_table_ends_waiting_asks_with_cancelled),
      TEST(a_large_item_comes_in_several_responses),
      TEST(large_items_after_small_ones_are_sent_as_the_client_reads),
      TEST(a_client_that_goes_before_it_has_read_large_items_leaves_nothing),
      TEST(a_client_that_does_not_read_is_not_drawn_for_without_end),
      TEST(items_that_cannot_stand_in_one_batch_are_refused_before_they_are_counted),
      TEST(a_blocked_insert_of_any_size_does_not_stop_the_sample_that_unblocks_it),
      TEST(thousands_of_samplers_may_be_opened_and_reset),
  };
  return cmocka_run_group_tests_name("server sample", tests, NULL, NULL);
}
