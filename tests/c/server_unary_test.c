#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "support/rig.h"

static test_rig rig;
static test_peer peer;

static int set_up(void **state)
{
  (void)state;
  rv_table_config tables[] = {rig_table("t"), rig_table("p")};
  tables[1].sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
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

static void fill(const char *table, uint64_t n)
{
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  uint64_t keys[64];
  for (uint64_t key = 1; key <= n; key++) insert_one(call, table, key, (double)key);
  expect_keys(call, keys, n);
  stream_free(call);
}

static double priority_of(const char *table, uint64_t key)
{
  rv_item_info items[64];
  uint64_t cursor = 0;
  size_t count;
  assert_int_equal(rv_table_items(rig_find(&rig, table), &cursor, items, 64, &count, NULL), RV_OK);
  for (size_t i = 0; i < count; i++)
    if (items[i].key == key) return items[i].priority;
  return NAN;
}

static rv_span span(const rv_buf *buf)
{
  return (rv_span){.data = buf->data, .size = buf->size};
}

/* ---- MutatePriorities ---- */

static rv_code mutate(const char *table, const rv_key_priority *updates, size_t num_updates, const uint64_t *deletes,
                      size_t num_deletes, rv_buf **response, char *text)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  rv_mutate_request_serialize(&body, table, updates, num_updates, deletes, num_deletes);
  return unary(&peer, MUTATE, &body, response, text);
}

static void mutate_deletes_then_updates_and_names_unknown_keys(void **state)
{
  (void)state;
  fill("t", 4);
  rv_buf *response;
  const rv_key_priority updates[] = {{1, 10}, {2, 20}, {99, 5}};
  const uint64_t deletes[] = {2, 98};
  assert_int_equal(mutate("t", updates, 3, deletes, 2, &response, NULL), RV_OK);
  uint64_t unknown[5];
  size_t num_unknown = 0;
  assert_int_equal(rv_mutate_response_parse(span(response), unknown, 5, &num_unknown, NULL), RV_OK);
  assert_int_equal(num_unknown, 3); /* 98, 99, and 2, which was deleted just before */
  rv_buf_unref(response);
  assert_float_equal(priority_of("t", 1), 10, 0);
  assert_int_equal(rig_size(&rig, "t"), 3);
}

static void mutate_with_a_bad_priority_changes_nothing(void **state)
{
  (void)state;
  fill("p", 3);
  const double bad[] = {-1, NAN, INFINITY};
  for (size_t i = 0; i < 3; i++) {
    const rv_key_priority updates[] = {{1, 10}, {2, bad[i]}};
    char text[RV_ERROR_MESSAGE_MAX];
    assert_int_equal(mutate("p", updates, 2, (const uint64_t[]){3}, 1, NULL, text), RV_INVALID_ARGUMENT);
    if (strstr(text, "must not be") == NULL) fail_msg("\"%s\" lacks \"must not be\"", text);
  }
  assert_float_equal(priority_of("p", 1), 1, 0);
  assert_int_equal(rig_size(&rig, "p"), 3);
}

/* Larger than what is done at once. */
static void a_mutation_of_many_keys_is_as_one_of_few(void **state)
{
  (void)state;
  enum { MANY = 20000 };
  static rv_key_priority updates[MANY];
  static uint64_t deletes[MANY], unknown[2 * MANY];
  rv_buf *response;
  size_t num_unknown = 0;
  char text[RV_ERROR_MESSAGE_MAX];
  for (uint64_t i = 0; i < MANY; i++) {
    updates[i] = (rv_key_priority){.key = 1 + i, .priority = 100};
    deletes[i] = MANY + 1 + i;
  }
  deletes[MANY - 1] = 2;
  fill("p", 3);
  updates[MANY - 1].priority = -1;
  assert_int_equal(mutate("p", updates, MANY, deletes, MANY, NULL, text), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(text, "must not be"));
  assert_float_equal(priority_of("p", 1), 1, 0);
  assert_int_equal(rig_size(&rig, "p"), 3);
  assert_int_equal(mutate("nowhere", updates, MANY, NULL, 0, NULL, text), RV_NOT_FOUND);
  updates[MANY - 1].priority = 5;
  assert_int_equal(mutate("p", updates, MANY, deletes, MANY, &response, NULL), RV_OK);
  assert_int_equal(rv_mutate_response_parse(span(response), unknown, 2 * MANY, &num_unknown, NULL), RV_OK);
  rv_buf_unref(response);
  assert_int_equal(num_unknown, 2 * MANY - 3); /* 2 was deleted, and then not there to be updated */
  for (size_t i = 0; i < MANY - 1; i++) assert_int_equal(unknown[i], deletes[i]);
  assert_int_equal(unknown[MANY - 1], 2);
  assert_float_equal(priority_of("p", 1), 100, 0);
  assert_float_equal(priority_of("p", 3), 100, 0);
  assert_int_equal(rig_size(&rig, "p"), 2);
}

static void unary_calls_on_an_unknown_table_are_not_found(void **state)
{
  (void)state;
  char text[RV_ERROR_MESSAGE_MAX];
  assert_int_equal(mutate("nowhere", NULL, 0, NULL, 0, NULL, text), RV_NOT_FOUND);
  assert_non_null(strstr(text, "was not found"));
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  rv_reset_request_serialize(&body, "nowhere");
  assert_int_equal(unary(&peer, RESET, &body, NULL, text), RV_NOT_FOUND);
  assert_non_null(strstr(text, "was not found"));
  rv_writer_buf_init(&body);
  rv_get_request_serialize(&body, "nowhere", 1);
  assert_int_equal(unary(&peer, "/reverie.Reverie/Get", &body, NULL, text), RV_NOT_FOUND);
}

/* ---- Reset, ServerInfo, Checkpoint ---- */

static void reset_empties_the_table(void **state)
{
  (void)state;
  fill("t", 5);
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  rv_reset_request_serialize(&body, "t");
  assert_int_equal(unary(&peer, RESET, &body, NULL, NULL), RV_OK);
  assert_int_equal(rig_size(&rig, "t"), 0);
}

static void server_info_tells_of_every_table(void **state)
{
  (void)state;
  fill("p", 5);
  rv_writer_buf body;
  rv_buf *response;
  rv_server_info *info;
  rv_writer_buf_init(&body);
  assert_int_equal(unary(&peer, SERVER_INFO, &body, &response, NULL), RV_OK);
  assert_int_equal(rv_server_info_parse(span(response), &info, NULL), RV_OK);
  uint64_t id[2];
  rv_store_state_id(rig.store, id);
  assert_int_equal(info->state_id[0], id[0]);
  assert_int_equal(info->num_tables, 2);
  size_t p = strcmp(info->tables[0].name, "p") == 0 ? 0 : 1;
  assert_string_equal(info->tables[p].name, "p");
  assert_int_equal(info->tables[p].current_size, 5);
  assert_int_equal(info->tables[p].sampler.kind, RV_SELECTOR_PRIORITIZED);
  assert_int_equal(info->tables[p].inserts, 5);
  assert_int_equal(info->tables[p].max_size, 1000);
  rv_server_info_free(info);
  rv_buf_unref(response);
}

static void a_checkpoint_without_checkpointer_is_an_invalid_argument(void **state)
{
  (void)state;
  rv_writer_buf body;
  char text[RV_ERROR_MESSAGE_MAX];
  rv_writer_buf_init(&body);
  assert_int_equal(unary(&peer, CHECKPOINT, &body, NULL, text), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(text, "no Checkpointer"));
}

/* ---- InitializeConnection ---- */

static void initialize_connection_never_gives_an_address(void **state)
{
  (void)state;
  test_stream *call = stream_open(&peer, INITIALIZE, NULL, 0);
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  rv_put_varint(&body, 1, 1);
  rv_put_string(&body, 2, "t");
  stream_send(call, &body);
  rv_buf *answer = stream_next(call);
  assert_non_null(answer);
  assert_int_equal(answer->size, 0);
  rv_buf_unref(answer);
  assert_null(stream_next(call));
  assert_int_equal(stream_end(call, NULL), RV_OK);
  stream_free(call);
  call = stream_open(&peer, INITIALIZE, NULL, 0);
  stream_half_close(call);
  assert_int_equal(stream_end(call, NULL), RV_INTERNAL);
  stream_free(call);
}

/* ---- reverie.Reverie ---- */

static void items_come_in_pages(void **state)
{
  (void)state;
  fill("t", 7);
  uint64_t cursor = 0, seen = 0;
  do {
    rv_writer_buf body;
    rv_buf *response;
    rv_item_info items[3];
    size_t count;
    rv_writer_buf_init(&body);
    rv_items_request request = {.table = {(const uint8_t *)"t", 1}, .cursor = cursor, .capacity = 3};
    rv_items_request_serialize(&body, &request);
    assert_int_equal(unary(&peer, "/reverie.Reverie/Items", &body, &response, NULL), RV_OK);
    assert_int_equal(rv_items_response_parse(span(response), &cursor, items, 3, &count, NULL), RV_OK);
    for (size_t i = 0; i < count; i++) assert_int_equal(items[i].key, ++seen);
    rv_buf_unref(response);
  } while (cursor != 0);
  assert_int_equal(seen, 7);
}

static void get_gives_an_item_without_counting_it(void **state)
{
  (void)state;
  fill("t", 3);
  rv_writer_buf body;
  rv_buf *response;
  rv_writer_buf_init(&body);
  rv_get_request_serialize(&body, "t", 2);
  assert_int_equal(unary(&peer, "/reverie.Reverie/Get", &body, &response, NULL), RV_OK);
  rv_sample_response sample;
  assert_int_equal(rv_sample_response_parse(span(response), &sample, NULL), RV_OK);
  assert_int_equal(sample.num_entries, 1);
  assert_true(sample.entries[0].has_info);
  assert_true(sample.entries[0].end_of_sequence);
  assert_int_equal(sample.entries[0].info.item.key, 2);
  assert_int_equal(sample.entries[0].info.item.times_sampled, 0);
  rv_sample_response_fini(&sample);
  rv_buf_unref(response);
  rv_writer_buf_init(&body);
  rv_get_request_serialize(&body, "t", 9);
  assert_int_equal(unary(&peer, "/reverie.Reverie/Get", &body, NULL, NULL), RV_NOT_FOUND);
}

static void a_changed_limiter_lets_waiting_asks_through(void **state)
{
  (void)state;
  fill("t", 1);
  rv_rate_limiter_config limiter = rv_rate_limiter_min_size(100);
  for (int round = 0; round < 2; round++) {
    test_stream *call = stream_open(&peer, SAMPLE, NULL, 0);
    rv_writer_buf body;
    if (round == 0) {
      rv_writer_buf_init(&body);
      rv_set_rate_limiter_serialize(&body, "t", &limiter);
      assert_int_equal(unary(&peer, "/reverie.Reverie/SetRateLimiter", &body, NULL, NULL), RV_OK);
      ask_samples(call, "t", 1, -1);
      rig_wait_for_waiting(&rig, "t", 0, 1);
      limiter = rv_rate_limiter_min_size(1);
      rv_writer_buf_init(&body);
      rv_set_rate_limiter_serialize(&body, "t", &limiter);
      assert_int_equal(unary(&peer, "/reverie.Reverie/SetRateLimiter", &body, NULL, NULL), RV_OK);
    } else {
      ask_samples(call, "t", 1, -1);
    }
    uint64_t key;
    assert_int_equal(read_samples(call, &key, 1), 1);
    stream_free(call);
  }
  rv_writer_buf body;
  limiter.samples_per_insert = NAN;
  rv_writer_buf_init(&body);
  rv_set_rate_limiter_serialize(&body, "t", &limiter);
  assert_int_equal(unary(&peer, "/reverie.Reverie/SetRateLimiter", &body, NULL, NULL), RV_INVALID_ARGUMENT);
}

/* ---- health ---- */

static rv_code check_health(const char *service, uint64_t *status)
{
  rv_writer_buf body;
  rv_buf *response;
  rv_writer_buf_init(&body);
  rv_put_string(&body, 1, service);
  rv_code code = unary(&peer, HEALTH_CHECK, &body, &response, NULL);
  if (code != RV_OK) return code;
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, span(response));
  *status = rv_reader_next(&reader, &field) ? field.value : 0;
  rv_buf_unref(response);
  return code;
}

static void health_is_told_of_the_services_there_are(void **state)
{
  (void)state;
  uint64_t status;
  const char *const known[] = {"", "deepmind.reverb.ReverbService", "reverie.Reverie"};
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(check_health(known[i], &status), RV_OK);
    assert_int_equal(status, 1);
  }
  assert_int_equal(check_health("another", &status), RV_NOT_FOUND);
  rv_store_close(rig.store);
  assert_int_equal(check_health("", &status), RV_OK);
  assert_int_equal(status, 2);
}

static void a_watch_begins_with_the_present_health(void **state)
{
  (void)state;
  const char *const services[] = {"", "another"};
  const uint8_t expected[] = {1, 3};
  for (size_t i = 0; i < 2; i++) {
    test_stream *call = stream_open(&peer, HEALTH_WATCH, NULL, 0);
    rv_writer_buf body;
    rv_writer_buf_init(&body);
    rv_put_string(&body, 1, services[i]);
    stream_send(call, &body);
    stream_half_close(call);
    rv_buf *message = stream_next(call);
    assert_non_null(message);
    assert_int_equal(message->size, 2);
    assert_int_equal(message->data[1], expected[i]);
    rv_buf_unref(message);
    assert_false(stream_is_over(call));
    stream_free(call);
  }
}

/* ---- no such thing ---- */

static void an_unknown_method_is_unimplemented(void **state)
{
  (void)state;
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  assert_int_equal(unary(&peer, "/deepmind.reverb.ReverbService/Nothing", &body, NULL, NULL), RV_UNIMPLEMENTED);
}

static void a_unary_call_without_a_message_ends(void **state)
{
  (void)state;
  test_stream *call = stream_open(&peer, RESET, NULL, 0);
  stream_half_close(call);
  assert_int_equal(stream_end(call, NULL), RV_INVALID_ARGUMENT);
  stream_free(call);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(mutate_deletes_then_updates_and_names_unknown_keys),
      TEST(mutate_with_a_bad_priority_changes_nothing),
      TEST(a_mutation_of_many_keys_is_as_one_of_few),
      TEST(unary_calls_on_an_unknown_table_are_not_found),
      TEST(reset_empties_the_table),
      TEST(server_info_tells_of_every_table),
      TEST(a_checkpoint_without_checkpointer_is_an_invalid_argument),
      TEST(initialize_connection_never_gives_an_address),
      TEST(items_come_in_pages),
      TEST(get_gives_an_item_without_counting_it),
      TEST(a_changed_limiter_lets_waiting_asks_through),
      TEST(health_is_told_of_the_services_there_are),
      TEST(a_watch_begins_with_the_present_health),
      TEST(an_unknown_method_is_unimplemented),
      TEST(a_unary_call_without_a_message_ends),
  };
  return cmocka_run_group_tests_name("server unary", tests, NULL, NULL);
}
