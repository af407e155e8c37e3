/* A server near its memory limit, and clients that keep its memory: who waits, who is told to go, and what the statistics say. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/env.h"
#include "store/memory.h"
#include "support/rig.h"

enum { LIMIT = 8 << 20, WIDTH = 16384, CHUNK = WIDTH * 4 };

static test_rig rig;
static test_peer peer;

/* Tables: "t" grows; "ring" has at most 1 MiB; "queue" lets an item go when it was sampled; "shut" takes the next when the one before was. */
static int set_up(void **state)
{
  (void)state;
  rv_table_config tables[] = {rig_table("t"), rig_table("ring"), rig_table("queue"), rig_table("shut")};
  tables[1].max_bytes = 1 << 20;
  tables[2].max_times_sampled = 1;
  tables[3].max_times_sampled = 1;
  tables[3].sampler.kind = RV_SELECTOR_FIFO;
  tables[3].rate_limiter = rv_rate_limiter_queue(1);
  rig_start_limited(&rig, tables, 4, LIMIT);
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

static rv_memory_info memory_of(test_peer *of)
{
  const rv_memory_info memory = peer_memory(of);
  assert_int_equal(memory.limit_bytes, LIMIT);
  return memory;
}

/* What a client that has gone had is given back soon after. */
static void wait_for_streams_and_connections(int64_t stream_bytes, int64_t connection_bytes)
{
  rv_env env;
  rv_env_fill(&env, NULL);
  int64_t give_up = rv_monotonic_ns(&env) + INT64_C(30000000000);
  for (;;) {
    rv_memory_info memory = memory_of(&peer);
    if (memory.stream_bytes <= stream_bytes && memory.connection_bytes <= connection_bytes) return;
    if (rv_monotonic_ns(&env) > give_up)
      fail_msg("%lld bytes in streams and %lld in connections", (long long)memory.stream_bytes,
               (long long)memory.connection_bytes);
    sched_yield();
  }
}

static void send_item(test_stream *call, const char *table, uint64_t key, int64_t width)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_chunk(&body, key, 0, 1, width);
  put_item(&body, key, (item_options){.table = table, .priority = 1, .chunk = key});
  stream_send(call, &body);
}

static void send_chunk_alone(test_stream *call, uint64_t key)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_chunk(&body, key, 0, 1, WIDTH);
  stream_send(call, &body);
}

/* Sends items until some wait; the stream goes on to hold them. */
static test_stream *fill(const char *table, uint64_t *num_sent)
{
  enum { MORE = 4 };
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  *num_sent = LIMIT / CHUNK + MORE;
  for (uint64_t key = 1; key <= *num_sent; key++) send_item(call, table, key, WIDTH);
  return call;
}

static void wait_until_some_wait(const char *table)
{
  rv_env env;
  rv_env_fill(&env, NULL);
  int64_t give_up = rv_monotonic_ns(&env) + INT64_C(30000000000);
  for (int64_t waiting = 0; waiting == 0; sched_yield()) {
    rv_table_info info = {.size = sizeof info};
    assert_int_equal(rv_table_get_info(rig_find(&rig, table), &info, NULL), RV_OK);
    waiting = info.num_waiting_inserts;
    if (waiting > 0) assert_int_equal(info.waiting[0].reason, RV_WAIT_MEMORY);
    rv_table_info_fini(&info);
    if (rv_monotonic_ns(&env) > give_up) fail_msg("no insert waits");
  }
}

static void near_the_limit_writers_wait_and_go_on_when_items_go(void **state)
{
  (void)state;
  uint64_t sent, keys[LIMIT / CHUNK + 8], sampled;
  test_stream *call = fill("queue", &sent);
  wait_until_some_wait("queue");
  assert_true(memory_of(&peer).used_bytes <= LIMIT);
  test_stream *samples = stream_open(&peer, SAMPLE, NULL, 0);
  for (uint64_t i = 0; i < sent; i++) {
    ask_samples(samples, "queue", 1, 30000);
    assert_int_equal(read_samples(samples, &sampled, 1), 1);
  }
  expect_keys(call, keys, sent);
  stream_free(samples);
  stream_free(call);
}

static void a_table_with_a_bound_in_bytes_makes_room_by_itself(void **state)
{
  (void)state;
  uint64_t sent, keys[LIMIT / CHUNK + 8];
  test_stream *call = fill("ring", &sent);
  expect_keys(call, keys, sent);
  rv_table_info info = {.size = sizeof info};
  assert_int_equal(rv_table_get_info(rig_find(&rig, "ring"), &info, NULL), RV_OK);
  assert_true(info.item_bytes <= 1 << 20 && info.current_size >= (1 << 20) / CHUNK - 2);
  rv_table_info_fini(&info);
  stream_free(call);
}

static void an_item_that_never_fits_is_refused_at_once(void **state)
{
  (void)state;
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  char text[RV_ERROR_MESSAGE_MAX];
  send_item(call, "ring", 1, (2 << 20) / 4);
  assert_int_equal(stream_end(call, text), RV_INVALID_ARGUMENT);
  if (strstr(text, "never fits: max_bytes leaves room for 1.0 MiB") == NULL) fail_msg("%s", text);
  stream_free(call);
}

static void a_writer_that_never_makes_items_is_ended_and_stops_nobody(void **state)
{
  (void)state;
  test_stream *greedy = stream_open(&peer, INSERT, NULL, 0), *modest = stream_open(&peer, INSERT, NULL, 0);
  uint64_t key;
  send_item(modest, "t", 1, WIDTH);
  expect_keys(modest, &key, 1);
  for (uint64_t i = 0; i < LIMIT / CHUNK && !stream_is_over(greedy); i++) send_chunk_alone(greedy, 100 + i);
  char text[RV_ERROR_MESSAGE_MAX];
  assert_int_equal(stream_end(greedy, text), RV_RESOURCE_EXHAUSTED);
  if (strstr(text, "insert streams together may keep 2.0 MiB") == NULL) fail_msg("%s", text);
  for (uint64_t i = 2; i < 20; i++) {
    send_item(modest, "t", i, WIDTH);
    expect_keys(modest, &key, 1);
  }
  stream_free(greedy);
  stream_free(modest);
  wait_for_streams_and_connections(0, 4096);
}

static void what_a_vanished_writer_kept_is_counted_and_given_back(void **state)
{
  (void)state;
  enum { N = 10 };
  test_peer gone;
  peer_open(&gone, rig.address);
  test_stream *call = stream_open(&gone, INSERT, NULL, 0);
  for (uint64_t i = 0; i < N; i++) send_chunk_alone(call, 100 + i);
  uint64_t key;
  send_item(call, "t", 1, 1);
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  expect_keys(call, &key, 1);
  for (uint64_t i = 0; i < N; i++) send_chunk_alone(call, 200 + i);
  rv_env env;
  rv_env_fill(&env, NULL);
  int64_t give_up = rv_monotonic_ns(&env) + INT64_C(30000000000);
  while (memory_of(&peer).stream_bytes < N * CHUNK) {
    if (rv_monotonic_ns(&env) > give_up) fail_msg("the statistics say nothing of what the stream keeps");
    sched_yield();
  }
  int64_t used = memory_of(&peer).used_bytes;
  stream_free(call);
  peer_close(&gone);
  wait_for_streams_and_connections(0, 4096);
  assert_true(memory_of(&peer).used_bytes <= used - N * CHUNK);
}

static void what_waits_for_a_sampler_that_does_not_read_is_counted_and_given_back(void **state)
{
  (void)state;
  test_stream *writer = stream_open(&peer, INSERT, NULL, 0);
  uint64_t key;
  for (uint64_t i = 1; i <= 20; i++) {
    send_item(writer, "t", i, WIDTH);
    expect_keys(writer, &key, 1);
  }
  test_peer gone;
  peer_open(&gone, rig.address);
  test_stream *call = stream_open(&gone, SAMPLE, NULL, 0);
  stream_pause(call, true);
  ask_samples(call, "t", 100000, 60000);
  rv_env env;
  rv_env_fill(&env, NULL);
  int64_t give_up = rv_monotonic_ns(&env) + INT64_C(30000000000);
  while (memory_of(&peer).connection_bytes < CHUNK) {
    if (rv_monotonic_ns(&env) > give_up)
      fail_msg("the statistics say %lld bytes wait to be read", (long long)memory_of(&peer).connection_bytes);
    sched_yield();
  }
  assert_true(memory_of(&peer).connection_bytes < 4 << 20);
  stream_free(call);
  peer_close(&gone);
  wait_for_streams_and_connections(1 << 20, 4096);
  stream_free(writer);
}

/* Takes so many items from a table, which lets them go. */
static void sample_all(const char *table, uint64_t count)
{
  uint64_t sampled;
  test_stream *samples = stream_open(&peer, SAMPLE, NULL, 0);
  for (uint64_t i = 0; i < count; i++) {
    ask_samples(samples, table, 1, 30000);
    assert_int_equal(read_samples(samples, &sampled, 1), 1);
  }
  stream_free(samples);
}

static void what_waits_for_a_limiter_stays_below_the_memory_limit_and_goes_on(void **state)
{
  enum { STREAMS = 20, EACH = 8, LOOKS = 300 };
  (void)state;
  test_stream *calls[STREAMS];
  uint64_t keys[EACH];
  for (uint64_t i = 0; i < STREAMS; i++) {
    calls[i] = stream_open(&peer, INSERT, NULL, 0);
    for (uint64_t k = 0; k < EACH; k++) send_item(calls[i], "shut", 1 + i * EACH + k, WIDTH);
  }
  for (int i = 0; i < LOOKS; i++) assert_true(memory_of(&peer).used_bytes <= LIMIT);
  sample_all("shut", STREAMS * EACH);
  for (int i = 0; i < STREAMS; i++) {
    expect_keys(calls[i], keys, EACH);
    stream_free(calls[i]);
  }
}

static void a_stream_with_an_item_that_waits_for_its_limiter_is_read_on_when_memory_is_there_again(void **state)
{
  (void)state;
  uint64_t sent, keys[LIMIT / CHUNK + 8], key;
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  insert_one(call, "shut", 1001, 1);
  expect_keys(call, &key, 1);
  insert_one(call, "shut", 1002, 1); /* waits for the limiter */
  test_stream *filling = fill("queue", &sent);
  wait_until_some_wait("queue");
  insert_one(call, "shut", 1003, 1); /* now nothing more of the stream is read */
  insert_one(call, "ring", 1004, 1);
  sample_all("queue", sent);
  expect_keys(filling, keys, sent);
  expect_keys(call, &key, 1);
  assert_int_equal(key, 1004);
  stream_free(filling);
  stream_free(call);
}

/* What is freed elsewhere tells nobody. */
static void an_item_that_waits_for_its_limiter_and_then_for_memory_goes_in_also_when_its_client_has_gone(void **state)
{
  (void)state;
  rv_memory *memory = rv_store_memory(rig.store);
  for (int gone = 0; gone < 2; gone++) {
    uint64_t key;
    test_peer client;
    peer_open(&client, rig.address);
    test_stream *call = stream_open(&client, INSERT, NULL, 0);
    insert_one(call, "shut", 2001, 1);
    expect_keys(call, &key, 1);
    insert_one(call, "shut", 2002, 1);
    for (int64_t waiting = 0; waiting == 0; sched_yield()) {
      rv_table_info info = {.size = sizeof info};
      assert_int_equal(rv_table_get_info(rig_find(&rig, "shut"), &info, NULL), RV_OK);
      waiting = info.num_waiting_inserts;
      rv_table_info_fini(&info);
    }
    rv_memory_add(memory, LIMIT);
    if (gone == 1) {
      stream_free(call);
      peer_close(&client);
    }
    sample_all("shut", 1);
    wait_until_some_wait("shut");
    rv_memory_take_away(memory, LIMIT);
    if (gone == 0) {
      expect_keys(call, &key, 1);
      stream_free(call);
      peer_close(&client);
    }
    rv_env env;
    rv_env_fill(&env, NULL);
    int64_t give_up = rv_monotonic_ns(&env) + INT64_C(30000000000);
    while (rig_size(&rig, "shut") == 0)
      if (rv_monotonic_ns(&env) > give_up) fail_msg("it still waits");
    sample_all("shut", 1);
  }
}

static void one_writers_items_that_wait_do_not_stop_others(void **state)
{
  (void)state;
  enum { MANY = LIMIT / 2 / CHUNK };
  uint64_t key, keys[MANY];
  test_stream *large = stream_open(&peer, INSERT, NULL, 0), *small = stream_open(&peer, INSERT, NULL, 0);
  for (uint64_t i = 0; i < MANY; i++) send_item(large, "shut", 1 + i, WIDTH);
  expect_keys(large, &key, 1);
  while (memory_of(&peer).stream_bytes < LIMIT / 4) sched_yield();
  insert_one(small, "shut", 3001, 1); /* waits for the limiter */
  insert_one(small, "ring", 3002, 1);
  expect_keys(small, &key, 1);
  assert_int_equal(key, 3002);
  sample_all("shut", MANY + 1);
  expect_keys(large, keys, MANY - 1);
  expect_keys(small, &key, 1);
  stream_free(large);
  stream_free(small);
}

/* Of a few bytes on the wire each, they take twenty times as much when they are read. */
static void an_item_of_many_slices_that_waits_is_counted_with_what_it_takes(void **state)
{
  (void)state;
  enum { SLICES = 50000, BYTES_OF_ONE = sizeof(void *) + 4 * sizeof(int32_t) };
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  uint64_t key;
  send_item(call, "shut", 1, 1);
  expect_keys(call, &key, 1);
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_chunk(&body, 0, 0, 1, 0);
  size_t item = rv_put_open(&body, 2);
  rv_put_varint(&body, 1, 2);
  rv_put_string(&body, 2, "shut");
  size_t trajectory = rv_put_open(&body, 8), column = rv_put_open(&body, 1);
  for (int i = 0; i < SLICES; i++) rv_put_close(&body, rv_put_open(&body, 1)); /* of chunk 0, without rows */
  rv_put_close(&body, column);
  rv_put_close(&body, trajectory);
  rv_put_close(&body, item);
  assert_true(body.size < SLICES * BYTES_OF_ONE / 4);
  stream_send(call, &body);
  rig_wait_for_waiting(&rig, "shut", 1, 0);
  assert_true(memory_of(&peer).stream_bytes >= SLICES * BYTES_OF_ONE);
  stream_free(call);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(near_the_limit_writers_wait_and_go_on_when_items_go),
      TEST(a_table_with_a_bound_in_bytes_makes_room_by_itself),
      TEST(what_waits_for_a_limiter_stays_below_the_memory_limit_and_goes_on),
      TEST(a_stream_with_an_item_that_waits_for_its_limiter_is_read_on_when_memory_is_there_again),
      TEST(an_item_that_waits_for_its_limiter_and_then_for_memory_goes_in_also_when_its_client_has_gone),
      TEST(one_writers_items_that_wait_do_not_stop_others),
      TEST(an_item_of_many_slices_that_waits_is_counted_with_what_it_takes),
      TEST(an_item_that_never_fits_is_refused_at_once),
      TEST(a_writer_that_never_makes_items_is_ended_and_stops_nobody),
      TEST(what_a_vanished_writer_kept_is_counted_and_given_back),
      TEST(what_waits_for_a_sampler_that_does_not_read_is_counted_and_given_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
