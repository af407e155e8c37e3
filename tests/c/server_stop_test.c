#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/wait.h"
#include "support/place.h"
#include "support/rig.h"

#define WRITER "000102030405060708090a0b0c0d0e0f"

static test_rig rig;
static test_peer peer;

/* "q": a queue of 1. */
static int set_up(void **state)
{
  (void)state;
  rv_table_config tables[] = {rig_table("t"), place_queue("q", 1)};
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

static test_stream *blocked_insert(const rv_metadata *metadata, size_t num_metadata)
{
  test_stream *call = stream_open(&peer, INSERT, metadata, num_metadata);
  uint64_t key;
  insert_numbered(call, "q", 1, 1);
  expect_keys(call, &key, 1);
  insert_numbered(call, "q", 2, 2);
  rig_wait_for_waiting(&rig, "q", 1, 0);
  return call;
}

static void waiting_callers_are_released(void **state)
{
  (void)state;
  const rv_metadata reverie[] = {{"reverie-writer", WRITER}};
  test_stream *plain = blocked_insert(NULL, 0);
  test_stream *numbered = stream_open(&peer, INSERT, reverie, 1);
  insert_numbered(numbered, "q", 7, 1);
  test_stream *sampler = stream_open(&peer, SAMPLE, NULL, 0);
  ask_samples(sampler, "t", 1, -1);
  test_stream *idle = stream_open(&peer, SAMPLE, NULL, 0);
  rig_wait_for_waiting(&rig, "q", 2, 0);
  rig_wait_for_waiting(&rig, "t", 0, 1);
  rv_server_stop(rig.server, 0);
  assert_int_equal(stream_end(plain, NULL), RV_UNAVAILABLE);
  assert_int_equal(stream_end(numbered, NULL), RV_UNAVAILABLE);
  assert_int_equal(stream_end(sampler, NULL), RV_CANCELLED);
  assert_int_equal(stream_end(idle, NULL), RV_UNAVAILABLE);
  rig_wait_for_waiting(&rig, "q", 0, 0);
  rig_wait_for_waiting(&rig, "t", 0, 0);
  assert_int_equal(rig_size(&rig, "q"), 1); /* the store is as it was */
  stream_free(plain);
  stream_free(numbered);
  stream_free(sampler);
  stream_free(idle);
}

static void inserts_of_clients_that_have_gone_do_not_hold_up_a_stop(void **state)
{
  (void)state;
  stream_free(blocked_insert(NULL, 0));
  rig_wait_for_waiting(&rig, "q", 1, 0);
  rv_server_stop(rig.server, 0);
  rig_wait_for_waiting(&rig, "q", 0, 0);
}

static void stopping_twice_is_fine(void **state)
{
  (void)state;
  rv_server_stop(rig.server, 0);
  rv_server_stop(rig.server, 1000);
}

/* ---- draining ---- */

static void *stop_slowly(void *argument)
{
  (void)argument;
  rv_server_stop(rig.server, 60000);
  return NULL;
}

static uint8_t next_status(test_stream *watch)
{
  rv_buf *message = stream_next(watch);
  assert_non_null(message);
  assert_int_equal(message->size, 2);
  uint8_t status = message->data[1];
  rv_buf_unref(message);
  return status;
}

static test_stream *open_watch(void)
{
  test_stream *watch = stream_open(&peer, HEALTH_WATCH, NULL, 0);
  stream_send_bytes(watch, "", 0);
  assert_int_equal(next_status(watch), 1);
  return watch;
}

static void a_drain_lets_calls_finish_refuses_new_ones_and_tells_watchers(void **state)
{
  (void)state;
  test_stream *writer = blocked_insert(NULL, 0), *watch = open_watch();
  test_stream *sampler = stream_open(&peer, SAMPLE, NULL, 0);
  ask_samples(sampler, "t", 1, -1);
  rig_wait_for_waiting(&rig, "t", 0, 1);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, stop_slowly, NULL), 0);
  assert_int_equal(next_status(watch), 2); /* it drains */
  test_stream *late = stream_open(&peer, SAMPLE, NULL, 0);
  assert_int_equal(stream_end(late, NULL), RV_UNAVAILABLE);
  /* Both waits end by what an embedded caller does with the store. */
  rv_draw draw;
  rv_sampling sampling = {.want = 1, .draws = &draw, .waiter = {.deadline_ns = INT64_MAX}};
  assert_int_equal(rv_table_sample(rig_find(&rig, "q"), &sampling), RV_SUBMIT_DONE);
  assert_int_equal(sampling.waiter.code, RV_OK);
  uint64_t key;
  expect_keys(writer, &key, 1);
  assert_int_equal(key, 2);
  assert_int_equal(stream_end(writer, NULL), RV_UNAVAILABLE);
  rv_draw_release(&draw);
  const int64_t one = 1;
  const rv_tensor column = {.dtype = RV_INT64, .rank = 1, .shape = &one, .data = &one};
  uint64_t added;
  rv_rows rows = {.columns = &column, .num_columns = 1, .n = 1, .keys = &added, .waiter = {.deadline_ns = INT64_MAX}};
  assert_int_equal(rv_table_insert_rows(rig_find(&rig, "t"), &rows), RV_SUBMIT_DONE);
  assert_int_equal(rows.waiter.code, RV_OK);
  assert_int_equal(read_samples(sampler, &key, 1), 1);
  assert_int_equal(key, added);
  assert_int_equal(stream_end(sampler, NULL), RV_UNAVAILABLE);
  pthread_join(thread, NULL); /* long before its 60 s: a watcher does not hold it up */
  assert_int_equal(stream_end(watch, NULL), RV_UNAVAILABLE);
  stream_free(writer);
  stream_free(watch);
  stream_free(sampler);
  stream_free(late);
}

static void a_second_stop_cuts_the_drain_short(void **state)
{
  (void)state;
  test_stream *writer = blocked_insert(NULL, 0), *watch = open_watch();
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, stop_slowly, NULL), 0);
  assert_int_equal(next_status(watch), 2);
  rv_server_stop(rig.server, 0);
  pthread_join(thread, NULL);
  assert_int_equal(stream_end(writer, NULL), RV_UNAVAILABLE);
  stream_free(writer);
  stream_free(watch);
}

/* A clock that the test puts forward, and the last line of the log. */
static atomic_llong put_forward_ns;
static rv_env real;
static rv_gate has_logged;
static char logged[256];

static int64_t forward_clock(void *context)
{
  (void)context;
  return rv_monotonic_ns(&real) + atomic_load(&put_forward_ns);
}

static void keep_line(void *context, rv_log_level level, const char *line)
{
  (void)context, (void)level;
  if (strstr(line, "stopping") == NULL) return;
  snprintf(logged, sizeof logged, "%s", line);
  rv_gate_open(&has_logged);
}

static int set_up_with_clock(void **state)
{
  (void)state;
  const rv_env env = {.size = sizeof env, .monotonic_ns = forward_clock, .log = keep_line, .log_level = RV_LOG_WARNING};
  rv_table_config table = rig_table("q");
  table.rate_limiter = rv_rate_limiter_min_size(5);
  atomic_store(&put_forward_ns, 0);
  rv_env_fill(&real, NULL);
  rv_gate_init(&has_logged);
  rig_start_with(&rig, &table, 1, (rv_server_config){.env = &env, .peer_timeout_ms = -1});
  peer_open(&peer, rig.address);
  return 0;
}

static void a_drain_that_lasts_says_in_the_log_what_it_waits_for(void **state)
{
  (void)state;
  test_stream *sampler = stream_open(&peer, SAMPLE, NULL, 0), *watch = open_watch();
  ask_samples(sampler, "q", 1, -1);
  rig_wait_for_waiting(&rig, "q", 0, 1);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, stop_slowly, NULL), 0);
  assert_int_equal(next_status(watch), 2);
  atomic_store(&put_forward_ns, INT64_C(11000000000));
  const rv_wait half_a_minute = {.timeout_ms = 30000};
  rv_patience patience;
  rv_patience_begin(&patience, &real, &half_a_minute, NULL, NULL);
  assert_int_equal(rv_gate_wait(&has_logged, &patience, NULL), RV_OK);
  assert_non_null(strstr(logged, "calls in progress, 1 of them"));
  rv_server_stop(rig.server, 0);
  pthread_join(thread, NULL);
  assert_int_equal(stream_end(sampler, NULL), RV_CANCELLED);
  stream_free(sampler);
  stream_free(watch);
}

/* ---- embedded callers complete what the server's calls wait for, while it stops ---- */

static atomic_bool stop_embedded;

static void *use_table(void *argument)
{
  rv_table *table = argument;
  while (!atomic_load(&stop_embedded)) {
    rv_draw draw;
    rv_sampling sampling = {.want = 1, .draws = &draw, .waiter = {.deadline_ns = INT64_MAX}};
    if (!rv_table_can_sample(table, 1)) continue;
    sampling.waiter.complete = NULL;
    sampling.partial = true;
    if (rv_table_sample(table, &sampling) == RV_SUBMIT_PENDING && !rv_waiter_cancel(&sampling.waiter)) abort();
    for (size_t i = 0; i < sampling.count; i++) rv_draw_release(&draw);
  }
  return NULL;
}

static void a_stop_in_the_middle_of_completions_from_other_threads_is_clean(void **state)
{
  (void)state;
  enum { CALLS = 8, ITEMS = 100 };
  atomic_store(&stop_embedded, false);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, use_table, rig_find(&rig, "q")), 0);
  test_stream *calls[CALLS];
  for (int i = 0; i < CALLS; i++) {
    char writer[33];
    snprintf(writer, sizeof writer, "%032d", i);
    const rv_metadata metadata[] = {{"reverie-writer", writer}};
    calls[i] = stream_open(&peer, INSERT, metadata, (size_t)(i % 2));
    for (uint64_t k = 1; k <= ITEMS; k++) insert_numbered(calls[i], "q", (uint64_t)i * 1000 + k, k);
  }
  rv_buf_unref(stream_next(calls[0])); /* it is under way */
  rv_server_stop(rig.server, 0);
  atomic_store(&stop_embedded, true);
  pthread_join(thread, NULL);
  for (int i = 0; i < CALLS; i++) stream_free(calls[i]);
}

/* ---- addresses ---- */

static void a_port_in_use_is_told(void **state)
{
  (void)state;
  const char *addresses[] = {rig.address};
  rv_server_config config = {.size = sizeof config, .store = rig.store, .addresses = addresses, .num_addresses = 1};
  rv_server *second = NULL;
  rv_error err = {.message = ""};
  assert_int_equal(rv_server_new(&config, &second, &err), RV_UNAVAILABLE);
  assert_non_null(strstr(err.message, "in use"));
}

static void an_address_that_is_none_is_refused(void **state)
{
  (void)state;
  const char *addresses[] = {"nonsense"};
  rv_server_config config = {.size = sizeof config, .store = rig.store, .addresses = addresses, .num_addresses = 1};
  rv_server *second = NULL;
  assert_int_equal(rv_server_new(&config, &second, NULL), RV_INVALID_ARGUMENT);
  config.num_addresses = 0;
  assert_int_equal(rv_server_new(&config, &second, NULL), RV_INVALID_ARGUMENT);
}

static void a_server_may_be_started_again_on_the_same_port_and_store(void **state)
{
  (void)state;
  uint64_t key;
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  insert_one(call, "t", 1, 1);
  expect_keys(call, &key, 1);
  rv_server_free(rig.server);
  assert_int_equal(stream_end(call, NULL), RV_UNAVAILABLE);
  const char *addresses[] = {rig.address};
  rv_server_config config = {.size = sizeof config, .store = rig.store, .addresses = addresses, .num_addresses = 1};
  rv_error err = {.message = ""};
  if (rv_server_new(&config, &rig.server, &err) != RV_OK) fail_msg("%s", err.message);
  test_stream *sampler = stream_open(&peer, SAMPLE, NULL, 0);
  ask_samples(sampler, "t", 1, -1);
  assert_int_equal(read_samples(sampler, &key, 1), 1);
  stream_free(call);
  stream_free(sampler);
}

static void a_unix_socket_serves_as_well(void **state)
{
  (void)state;
  char directory[] = "/tmp/reverie-test-XXXXXX", address[64];
  assert_non_null(mkdtemp(directory));
  snprintf(address, sizeof address, "unix:%s/socket", directory);
  const char *addresses[] = {address};
  rv_server_config config = {.size = sizeof config, .store = rig.store, .addresses = addresses, .num_addresses = 1};
  rv_server *second;
  rv_error err = {.message = ""};
  if (rv_server_new(&config, &second, &err) != RV_OK) fail_msg("%s", err.message);
  assert_int_equal(rv_server_port(second, 0), 0);
  test_peer local;
  peer_open(&local, address);
  test_stream *call = stream_open(&local, INSERT, NULL, 0);
  uint64_t key;
  insert_one(call, "t", 1, 1);
  expect_keys(call, &key, 1);
  stream_free(call);
  peer_close(&local);
  rv_server_free(second);
  assert_int_equal(rmdir(directory), 0);
}

static void a_forked_child_leaves_its_parents_server_alone(void **state)
{
  (void)state;
  pid_t child = fork();
  if (child == 0) {
    alarm(30);
    rv_server_stop(rig.server, 0);
    rv_server_free(rig.server);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  uint64_t key;
  insert_one(call, "t", 1, 1);
  expect_keys(call, &key, 1);
  stream_free(call);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(waiting_callers_are_released),
      TEST(inserts_of_clients_that_have_gone_do_not_hold_up_a_stop),
      TEST(stopping_twice_is_fine),
      TEST(a_drain_lets_calls_finish_refuses_new_ones_and_tells_watchers),
      TEST(a_second_stop_cuts_the_drain_short),
      cmocka_unit_test_setup_teardown(a_drain_that_lasts_says_in_the_log_what_it_waits_for, set_up_with_clock, tear_down),
      TEST(a_stop_in_the_middle_of_completions_from_other_threads_is_clean),
      TEST(a_port_in_use_is_told),
      TEST(an_address_that_is_none_is_refused),
      TEST(a_server_may_be_started_again_on_the_same_port_and_store),
      TEST(a_unix_socket_serves_as_well),
      TEST(a_forked_child_leaves_its_parents_server_alone),
  };
  return cmocka_run_group_tests_name("server stop", tests, NULL, NULL);
}
