#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "support/rig.h"

static test_rig rig;
static test_peer peer;

static const char *const methods[] = {INSERT,
                                      SAMPLE,
                                      MUTATE,
                                      RESET,
                                      SERVER_INFO,
                                      CHECKPOINT,
                                      INITIALIZE,
                                      "/reverie.Reverie/Items",
                                      "/reverie.Reverie/Get",
                                      "/reverie.Reverie/SetRateLimiter",
                                      "/reverie.Reverie/SetBounds",
                                      "/reverie.Reverie/SetMemoryLimit",
                                      HEALTH_CHECK,
                                      HEALTH_WATCH};
enum { NUM_METHODS = sizeof methods / sizeof methods[0] };

static int set_up(void **state)
{
  (void)state;
  rv_table_config table = rig_table("t");
  rig_start_with(&rig, &table, 1, (rv_server_config){.max_message_bytes = 1 << 20});
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

static void expect_alive(void)
{
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  uint64_t key;
  insert_one(call, "t", 1, 1);
  expect_keys(call, &key, 1);
  stream_free(call);
}

static void a_malformed_message_ends_its_call_and_no_other(void **state)
{
  (void)state;
  static const uint8_t broken[] = {0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2, 3}; /* a field longer than the message */
  test_stream *other = stream_open(&peer, INSERT, NULL, 0);
  uint64_t key;
  for (size_t i = 0; i < NUM_METHODS; i++) {
    if (strcmp(methods[i], SERVER_INFO) == 0 || strcmp(methods[i], CHECKPOINT) == 0) continue; /* their requests are not read */
    test_stream *call = stream_open(&peer, methods[i], NULL, 0);
    stream_send_bytes(call, broken, sizeof broken);
    rv_code code = stream_end(call, NULL);
    if (code != RV_INVALID_ARGUMENT) fail_msg("%s: %s", methods[i], rv_code_name(code));
    stream_free(call);
  }
  insert_one(other, "t", 1, 1);
  expect_keys(other, &key, 1);
  stream_free(other);
}

/* No answer would fit, and whoever asks again gets the same. */
static void a_bound_below_what_the_protocol_needs_is_refused_at_both_ends(void **state)
{
  (void)state;
  rv_error err;
  const char *address = "127.0.0.1:0";
  for (size_t bound = 1; bound < RV_LEAST_MAX_MESSAGE; bound = bound * 128 - 1) {
    char given[80];
    snprintf(given, sizeof given, "max_message_bytes is %zu; give at least 16384", bound);
    rv_server *server = NULL;
    rv_server_config of_server = {
        .size = sizeof of_server, .store = rig.store, .addresses = &address, .num_addresses = 1, .max_message_bytes = bound};
    assert_int_equal(rv_server_new(&of_server, &server, &err), RV_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, given));
    rv_client *client = NULL;
    rv_client_config of_client = {.size = sizeof of_client, .address = rig.address, .max_message_bytes = bound};
    assert_int_equal(rv_client_new(&of_client, &client, &err), RV_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, given));
  }
  rv_client *client = NULL;
  rv_client_config least = {.size = sizeof least, .address = rig.address, .max_message_bytes = RV_LEAST_MAX_MESSAGE};
  assert_int_equal(rv_client_new(&least, &client, &err), RV_OK);
  rv_server_info *info;
  assert_int_equal(rv_client_server_info(client, NULL, &info, &err), RV_OK);
  rv_server_info_free(info);
  rv_client_free(client);
}

static void a_message_over_the_bound_ends_its_call(void **state)
{
  (void)state;
  uint8_t *large = calloc(1, 2 << 20);
  for (size_t i = 0; i < NUM_METHODS; i++) {
    test_stream *call = stream_open(&peer, methods[i], NULL, 0);
    stream_send_bytes(call, large, 2 << 20);
    rv_code code = stream_end(call, NULL);
    if (code != RV_RESOURCE_EXHAUSTED) fail_msg("%s: %s", methods[i], rv_code_name(code));
    stream_free(call);
  }
  free(large);
  expect_alive();
}

static void what_came_before_a_message_over_the_bound_is_confirmed(void **state)
{
  (void)state;
  enum { ITEMS = 100 };
  uint64_t keys[ITEMS];
  rv_metadata writer = {"reverie-writer", "000102030405060708090a0b0c0d0e0f"};
  uint8_t *large = calloc(1, 2 << 20);
  test_stream *call = stream_open(&peer, INSERT, &writer, 1);
  for (uint64_t i = 1; i <= ITEMS; i++) insert_numbered(call, "t", i, i);
  stream_send_bytes(call, large, 2 << 20);
  expect_keys(call, keys, ITEMS);
  assert_int_equal(stream_end(call, NULL), RV_RESOURCE_EXHAUSTED);
  stream_free(call);
  free(large);
  expect_alive();
}

static void a_chunk_whose_tensor_lies_about_itself_is_refused(void **state)
{
  (void)state;
  /* shape [2^62], rows of other sizes, unknown dtype, content that is no snappy */
  static const struct lie {
    uint64_t dtype, size;
    const char *content;
    size_t content_size;
  } lies[] = {
      {RV_INT32, UINT64_C(1) << 62, "\x04\x0c\1\0\0\0", 6},
      {RV_INT32, UINT64_MAX, "\x04\x0c\1\0\0\0", 6},
      {99, 1, "\x04\x0c\1\0\0\0", 6},
      {RV_INT32, 1, "garbage", 7},
      {RV_INT32, 1, "", 0},
      {RV_STRING, 3, "\xff\xff\xff\xff\x0f", 5},
  };
  for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
    rv_writer_buf body;
    rv_writer_buf_init(&body);
    size_t chunk = rv_put_open(&body, 1), data = rv_put_open(&body, 5), tensor = rv_put_open(&body, 1);
    rv_put_varint(&body, 1, lies[i].dtype);
    size_t shape = rv_put_open(&body, 2), dim = rv_put_open(&body, 2);
    rv_put_varint(&body, 1, lies[i].size);
    rv_put_close(&body, dim);
    rv_put_close(&body, shape);
    rv_put_bytes_always(&body, 4, lies[i].content, lies[i].content_size);
    rv_put_close(&body, tensor);
    rv_put_close(&body, data);
    rv_put_close(&body, chunk);
    test_stream *call = stream_open(&peer, INSERT, NULL, 0);
    stream_send(call, &body);
    stream_half_close(call);
    rv_code code = stream_end(call, NULL);
    if (code != RV_INVALID_ARGUMENT) fail_msg("lie %d: %s", (int)i, rv_code_name(code));
    stream_free(call);
  }
  expect_alive();
}

/* A right request with some of its bytes changed. */
static void make_noise(rv_random *random, uint8_t *bytes, size_t *size)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_chunk(&body, 1, 0, 3, 2);
  put_item(&body, 1, (item_options){.table = "t", .priority = 1, .chunk = 1, .sequence = 1});
  put_keep(&body, (const uint64_t[]){1}, 1);
  *size = body.size;
  memcpy(bytes, body.data, body.size);
  rv_writer_buf_fini(&body);
  uint32_t changes = rv_random_below(random, 6);
  for (uint32_t i = 0; i < changes; i++) bytes[rv_random_below(random, (uint32_t)*size)] = (uint8_t)rv_random_next(random);
  if (rv_random_below(random, 4) == 0) *size = rv_random_below(random, (uint32_t)*size);
}

static void noise_on_every_method_ends_calls_only(void **state)
{
  (void)state;
  const uint64_t seed = 20261121;
  rv_random random;
  rv_random_init(&random, seed);
  for (int i = 0; i < 1500; i++) {
    uint8_t bytes[512];
    size_t size;
    make_noise(&random, bytes, &size);
    const rv_metadata metadata[] = {{"reverie-writer", "000102030405060708090a0b0c0d0e0f"}};
    test_stream *call = stream_open(&peer, methods[rv_random_below(&random, NUM_METHODS)], metadata, rv_random_below(&random, 2));
    stream_send_bytes(call, bytes, size);
    if (rv_random_below(&random, 2) == 0) stream_send_bytes(call, bytes, size);
    stream_half_close(call);
    if (rv_random_below(&random, 2) == 0) {
      rv_buf *answer = stream_next(call);
      rv_buf_unref(answer);
    }
    stream_free(call);
  }
  expect_alive();
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(a_malformed_message_ends_its_call_and_no_other),
      TEST(a_bound_below_what_the_protocol_needs_is_refused_at_both_ends),
      TEST(a_message_over_the_bound_ends_its_call),
      TEST(what_came_before_a_message_over_the_bound_is_confirmed),
      TEST(a_chunk_whose_tensor_lies_about_itself_is_refused),
      TEST(noise_on_every_method_ends_calls_only),
  };
  return cmocka_run_group_tests_name("server hostile", tests, NULL, NULL);
}
