#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/place.h"
#include "support/rig.h"

#define WRITER "000102030405060708090a0b0c0d0e0f"

static test_rig rig;
static test_peer peer;
static char state_id[33];

/* A clock that tests can put forward. */
static _Atomic int64_t skipped_ns;
static int64_t read_clock(void *context)
{
  (void)context;
  rv_env env;
  rv_env_fill(&env, NULL);
  return rv_monotonic_ns(&env) + skipped_ns;
}

static int set_up(void **state)
{
  (void)state;
  rv_table_config tables[] = {rig_table("t"), place_queue("q", 1)};
  rv_env env;
  rv_env_default(&env);
  env.monotonic_ns = read_clock;
  skipped_ns = 0;
  rig_start_with(&rig, tables, 2, (rv_server_config){.io_threads = 4, .env = &env, .writer_session_ttl_ms = 60000});
  uint64_t id[2];
  rv_store_state_id(rig.store, id);
  snprintf(state_id, sizeof state_id, "%016" PRIx64 "%016" PRIx64, id[0], id[1]);
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

static test_stream *open_writer(test_peer *from, const char *writer, const char *seen)
{
  rv_metadata metadata[] = {{"reverie-writer", writer}, {"reverie-server-state", seen}};
  return stream_open(from, INSERT, metadata, seen == NULL ? 1 : 2);
}

static void delete_item(const char *table, uint64_t key)
{
  size_t unknown;
  assert_int_equal(rv_table_mutate(rig_find(&rig, table), NULL, 0, &key, 1, NULL, &unknown, NULL), RV_OK);
  assert_int_equal(unknown, 0);
}

static int64_t inserts(const char *table)
{
  rv_table_info info = {.size = sizeof info};
  assert_int_equal(rv_table_get_info(rig_find(&rig, table), &info, NULL), RV_OK);
  int64_t n = info.inserts;
  rv_table_info_fini(&info);
  return n;
}

static void the_headers_come_before_the_first_message(void **state)
{
  (void)state;
  test_stream *call = open_writer(&peer, WRITER, NULL);
  assert_string_equal(stream_header(call, "reverie-server-state"), state_id);
  assert_string_equal(stream_header(call, "reverie-version"), RV_VERSION);
  stream_free(call);
}

static void an_item_that_is_sent_again_is_confirmed_and_not_inserted_again(void **state)
{
  (void)state;
  uint64_t key;
  test_stream *call = open_writer(&peer, WRITER, NULL);
  insert_numbered(call, "t", 5, 1);
  expect_keys(call, &key, 1);
  stream_free(call);
  delete_item("t", 5); /* a second insert would be seen */
  call = open_writer(&peer, WRITER, state_id);
  insert_numbered(call, "t", 5, 1);
  expect_keys(call, &key, 1);
  assert_int_equal(key, 5);
  assert_int_equal(rig_size(&rig, "t"), 0);
  insert_numbered(call, "t", 6, 2);
  expect_keys(call, &key, 1);
  assert_int_equal(rig_size(&rig, "t"), 1);
  assert_int_equal(inserts("t"), 2);
  stream_free(call);
}

static void an_item_that_was_refused_is_refused_again_with_its_sentence(void **state)
{
  (void)state;
  char first[RV_ERROR_MESSAGE_MAX], again[RV_ERROR_MESSAGE_MAX];
  uint64_t key;
  for (int round = 0; round < 2; round++) {
    test_stream *call = open_writer(&peer, WRITER, round == 0 ? NULL : state_id);
    insert_numbered(call, "nowhere", 5, 1);
    assert_int_equal(expect_failure(call, &key, round == 0 ? first : again), RV_NOT_FOUND);
    assert_int_equal(key, 5);
    stream_free(call);
  }
  assert_string_equal(first, again);
}

static void a_newer_stream_takes_over_what_the_older_one_waits_for(void **state)
{
  (void)state;
  uint64_t key;
  test_peer other;
  peer_open(&other, rig.address); /* another connection: very likely another thread of the server */
  test_stream *old = open_writer(&peer, WRITER, NULL);
  insert_numbered(old, "q", 1, 1);
  expect_keys(old, &key, 1);
  insert_numbered(old, "q", 2, 2);
  rig_wait_for_waiting(&rig, "q", 1, 0);
  test_stream *new = open_writer(&other, WRITER, state_id);
  insert_numbered(new, "q", 1, 1);
  insert_numbered(new, "q", 2, 2);
  expect_keys(new, &key, 1);
  assert_int_equal(key, 1);
  assert_int_equal(stream_end(old, NULL), RV_ABORTED);
  rig_wait_for_waiting(&rig, "q", 1, 0);
  test_stream *sampler = stream_open(&other, SAMPLE, NULL, 0);
  uint64_t keys[2];
  ask_samples(sampler, "q", 2, -1);
  assert_int_equal(read_samples(sampler, keys, 2), 2);
  expect_keys(new, &key, 1);
  assert_int_equal(key, 2);
  assert_int_equal(inserts("q"), 2);
  stream_free(sampler);
  stream_free(old);
  stream_free(new);
  peer_close(&other);
}

static void a_writer_whose_session_has_expired_is_told_so(void **state)
{
  (void)state;
  uint64_t key;
  test_stream *call = open_writer(&peer, WRITER, NULL);
  insert_numbered(call, "t", 5, 1);
  expect_keys(call, &key, 1);
  stream_half_close(call);
  assert_int_equal(stream_end(call, NULL), RV_OK);
  stream_free(call);
  skipped_ns = INT64_C(61000000000);
  char text[RV_ERROR_MESSAGE_MAX];
  call = open_writer(&peer, WRITER, state_id);
  assert_int_equal(stream_end(call, text), RV_FAILED_PRECONDITION);
  assert_non_null(strstr(text, "expired"));
  stream_free(call);
}

static void a_writer_that_comes_from_another_server_begins_anew(void **state)
{
  (void)state;
  uint64_t key;
  test_stream *call = open_writer(&peer, WRITER, "ffffffffffffffffffffffffffffffff");
  insert_numbered(call, "t", 5, 5001);
  expect_keys(call, &key, 1);
  assert_int_equal(rig_size(&rig, "t"), 1);
  stream_free(call);
}

static void a_writer_id_that_is_none_is_refused(void **state)
{
  (void)state;
  test_stream *call = open_writer(&peer, "me", NULL);
  assert_int_equal(stream_end(call, NULL), RV_INVALID_ARGUMENT);
  stream_free(call);
}

static void a_store_that_closes_ends_the_writers_stream(void **state)
{
  (void)state;
  uint64_t key;
  test_stream *call = open_writer(&peer, WRITER, NULL);
  insert_numbered(call, "q", 1, 1);
  expect_keys(call, &key, 1);
  for (uint64_t i = 2; i < 10; i++) insert_numbered(call, "q", i, i);
  rig_wait_for_waiting(&rig, "q", 8, 0);
  rv_store_close(rig.store);
  assert_int_equal(stream_end(call, NULL), RV_CANCELLED);
  stream_free(call);
}

static void writers_beyond_the_bound_are_refused_while_all_are_here(void **state)
{
  (void)state;
  test_rig small;
  test_peer own;
  rv_table_config table = rig_table("t");
  rig_start_with(&small, &table, 1, (rv_server_config){.max_writer_sessions = 1});
  peer_open(&own, small.address);
  test_stream *first = open_writer(&own, WRITER, NULL);
  assert_non_null(stream_header(first, "reverie-version"));
  test_stream *second = open_writer(&own, "100102030405060708090a0b0c0d0e0f", NULL);
  assert_int_equal(stream_end(second, NULL), RV_RESOURCE_EXHAUSTED);
  stream_free(second);
  stream_half_close(first);
  assert_int_equal(stream_end(first, NULL), RV_OK);
  stream_free(first);
  second = open_writer(&own, "100102030405060708090a0b0c0d0e0f", NULL); /* takes the place of the one that is idle */
  uint64_t key;
  insert_numbered(second, "t", 1, 1);
  expect_keys(second, &key, 1);
  stream_free(second);
  peer_close(&own);
  rig_stop(&small);
}

/* ---- many hand-overs while a sampler makes room ---- */

typedef struct draining_sampler {
  uint64_t wanted, drawn;
  bool in_order;
} draining_sampler;

static void *drain_queue(void *argument)
{
  draining_sampler *self = argument;
  test_peer own;
  peer_open(&own, rig.address);
  test_stream *call = stream_open(&own, SAMPLE, NULL, 0);
  ask_samples(call, "q", (int64_t)self->wanted, -1);
  self->in_order = true;
  for (uint64_t key; self->drawn < self->wanted && read_samples(call, &key, 1) == 1;)
    if (key != ++self->drawn) self->in_order = false;
  stream_free(call);
  peer_close(&own);
  return NULL;
}

/* Marks what a stream has confirmed, as far as it has come. */
static uint64_t take_confirmed(test_stream *call, bool *confirmed)
{
  uint64_t n = 0;
  for (rv_buf *message = stream_poll(call); message != NULL; message = stream_poll(call)) {
    rv_insert_response response;
    assert_int_equal(rv_insert_response_parse((rv_span){message->data, message->size}, &response, NULL), RV_OK);
    for (size_t i = 0; i < response.num_keys; i++) {
      n += !confirmed[response.keys[i]];
      confirmed[response.keys[i]] = true;
    }
    rv_insert_response_fini(&response);
    rv_buf_unref(message);
  }
  return n;
}

static void no_item_is_lost_or_doubled_over_many_broken_streams(void **state)
{
  (void)state;
  enum { N = 300, STREAMS = 60 };
  bool confirmed[N + 1] = {false};
  uint64_t done = 0;
  draining_sampler sampler = {.wanted = N};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, drain_queue, &sampler), 0);
  test_peer peers[3];
  for (int i = 0; i < 3; i++) peer_open(&peers[i], rig.address);
  test_stream *calls[STREAMS];
  int opened = 0;
  while (done < N) {
    /* Each stream sends whatever is unconfirmed, and is left half-dead for the next, but for the last. */
    test_stream *call = open_writer(&peers[opened % 3], WRITER, opened == 0 ? NULL : state_id);
    for (uint64_t key = 1; key <= N; key++)
      if (!confirmed[key]) insert_numbered(call, "q", key, key);
    calls[opened++] = call;
    rv_buf *first = stream_next(call);
    if (first != NULL) {
      rv_insert_response response;
      assert_int_equal(rv_insert_response_parse((rv_span){first->data, first->size}, &response, NULL), RV_OK);
      for (size_t i = 0; i < response.num_keys; i++) {
        done += !confirmed[response.keys[i]];
        confirmed[response.keys[i]] = true;
      }
      rv_insert_response_fini(&response);
      rv_buf_unref(first);
    }
    while (opened == STREAMS && done < N) {
      done += take_confirmed(call, confirmed);
      if (done < N) assert_false(stream_is_over(call));
      sched_yield();
    }
  }
  pthread_join(thread, NULL);
  assert_int_equal(sampler.drawn, N);
  assert_true(sampler.in_order);
  assert_int_equal(inserts("q"), N);
  for (int i = 0; i < opened; i++) stream_free(calls[i]);
  for (int i = 0; i < 3; i++) peer_close(&peers[i]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(the_headers_come_before_the_first_message),
      TEST(an_item_that_is_sent_again_is_confirmed_and_not_inserted_again),
      TEST(an_item_that_was_refused_is_refused_again_with_its_sentence),
      TEST(a_newer_stream_takes_over_what_the_older_one_waits_for),
      TEST(a_writer_whose_session_has_expired_is_told_so),
      TEST(a_writer_that_comes_from_another_server_begins_anew),
      TEST(a_writer_id_that_is_none_is_refused),
      TEST(a_store_that_closes_ends_the_writers_stream),
      TEST(writers_beyond_the_bound_are_refused_while_all_are_here),
      TEST(no_item_is_lost_or_doubled_over_many_broken_streams),
  };
  return cmocka_run_group_tests_name("server exactly once", tests, NULL, NULL);
}
