/* Who asks for a server's health is answered, whatever others who are not known leave open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/env.h"
#include "support/rig.h"

enum { A_CONNECTION = 99, CONNECTIONS = 102 }; /* 10,098 calls */

static test_rig rig;
static _Atomic int64_t ahead_ns; /* of the server's clock */

static int64_t now_of(void *context)
{
  (void)context;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec + ahead_ns;
}

static int set_up(void **state)
{
  (void)state;
  static rv_env env;
  rv_env_default(&env);
  env.monotonic_ns = now_of;
  ahead_ns = 0;
  rv_table_config table = rig_table("t");
  rig_start_with(&rig, &table, 1, (rv_server_config){.env = &env, .io_threads = 1, .peer_timeout_ms = -1});
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  rig_stop(&rig);
  return 0;
}

static rv_code check(test_peer *peer)
{
  rv_writer_buf body;
  rv_buf *response = NULL;
  rv_writer_buf_init(&body);
  rv_code code = unary(peer, HEALTH_CHECK, &body, &response, NULL);
  rv_buf_unref(response);
  return code;
}

/* Leaves calls of each kind open, with their requests or without. */
static void leave_open(bool asked)
{
  static test_peer peers[CONNECTIONS];
  static test_stream *calls[CONNECTIONS][A_CONNECTION];
  for (int i = 0; i < CONNECTIONS; i++) {
    peer_open(&peers[i], rig.address);
    for (int k = 0; k < A_CONNECTION; k++) {
      calls[i][k] = stream_open(&peers[i], asked || k % 2 == 0 ? HEALTH_WATCH : HEALTH_CHECK, NULL, 0);
      if (asked) stream_send_bytes(calls[i][k], "", 0);
    }
    assert_int_equal(check(&peers[i]), RV_OK); /* by now they have come */
  }
  test_peer probe;
  peer_open(&probe, rig.address);
  assert_int_equal(check(&probe), RV_OK);
  char message[RV_ERROR_MESSAGE_MAX];
  test_stream *too_many = asked ? calls[CONNECTIONS - 1][A_CONNECTION - 1] : calls[0][0];
  assert_int_equal(stream_end(too_many, message), RV_RESOURCE_EXHAUSTED);
  assert_non_null(strstr(message, asked ? "10000 calls of Watch" : "whose request did not"));
  for (int i = 0; i < CONNECTIONS; i++) {
    for (int k = 0; k < A_CONNECTION; k++) stream_free(calls[i][k]);
    peer_close(&peers[i]);
  }
  peer_close(&probe);
}

static void health_is_told_beside_any_number_of_calls_without_a_request(void **state)
{
  (void)state;
  leave_open(false);
}

static void health_is_told_beside_any_number_of_watchers(void **state)
{
  (void)state;
  leave_open(true);
}

static void a_watch_whose_request_does_not_come_ends(void **state)
{
  (void)state;
  test_peer peer;
  char message[RV_ERROR_MESSAGE_MAX];
  peer_open(&peer, rig.address);
  test_stream *silent = stream_open(&peer, HEALTH_WATCH, NULL, 0), *watch = stream_open(&peer, HEALTH_WATCH, NULL, 0);
  stream_send_bytes(watch, "", 0);
  rv_buf_unref(stream_next(watch));
  assert_false(stream_is_over(silent));
  ahead_ns = INT64_C(21000000000);
  assert_int_equal(check(&peer), RV_OK); /* the server looks at its clock */
  assert_int_equal(stream_end(silent, message), RV_DEADLINE_EXCEEDED);
  assert_non_null(strstr(message, "the request of a Watch did not come within 20 s"));
  assert_int_equal(check(&peer), RV_OK);
  assert_false(stream_is_over(watch));
  stream_free(silent);
  stream_free(watch);
  peer_close(&peer);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(health_is_told_beside_any_number_of_calls_without_a_request),
      TEST(health_is_told_beside_any_number_of_watchers),
      TEST(a_watch_whose_request_does_not_come_ends),
  };
  return cmocka_run_group_tests_name("server health", tests, NULL, NULL);
}
