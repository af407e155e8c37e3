/* A server that may open no more files: it serves those who are connected, says so, and lets others in when it can. */
#include "net/echo_testing.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/loop.h"
#include "net/raw_testing.h"

/* This process, server and clients, gets no other file until the limit is as before. */
static struct rlimit let_files_run_out(void)
{
  struct rlimit before, none;
  int next = dup(STDIN_FILENO);
  assert_true(next >= 0);
  close(next);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  none = before;
  none.rlim_cur = (rlim_t)next;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  return before;
}

static void connect_to(int fd, const rv_grpc_server *server)
{
  struct sockaddr_in name = {
      .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(rv_grpc_server_port(server, 0))};
  assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof name), 0);
}

/* ---- what the log says ---- */

typedef struct failures {
  rv_grpc_server *server;
  _Atomic int64_t now;
  bool paused; /* it has failed, and is to be tried again */
  atomic_int lines, minutes;
  char last[200];
} failures;

static int64_t clock_of(void *context)
{
  return ((failures *)context)->now;
}

static void keep_failure(void *context, rv_log_level level, const char *line)
{
  failures *all = context;
  if (level < RV_LOG_WARNING) return;
  all->lines++;
  snprintf(all->last, sizeof all->last, "%s", line);
}

static void count_minute(void *context)
{
  ((failures *)context)->minutes++;
}

static void look_whether_paused(void *argument)
{
  failures *all = argument;
  all->paused = rv_grpc_server_loop(all->server, 0)->timers->at_ns == all->now + 100000000;
}

static void fire_what_is_due(void *argument)
{
  const failures *all = argument;
  const rv_loop *loop = rv_grpc_server_loop(all->server, 0);
  for (rv_timer *first; (first = loop->timers)->at_ns <= all->now;) {
    rv_timer_stop(first);
    first->fire(first);
  }
}

static void pass(failures *all, int64_t ns)
{
  all->now += ns;
  rv_loop_call(rv_grpc_server_loop(all->server, 0), fire_what_is_due, all);
}

static void wait_for_failure(failures *all)
{
  for (all->paused = false; !all->paused;) rv_loop_call(rv_grpc_server_loop(all->server, 0), look_whether_paused, all);
}

static void that_files_have_run_out_is_logged_once_a_minute_with_a_count(void **state)
{
  (void)state;
  failures all = {.now = 1000};
  const char *address = "127.0.0.1:0";
  rv_env env = {.size = sizeof env, .context = &all, .monotonic_ns = clock_of, .log = keep_failure};
  rv_grpc_server_config config = {.env = &env,
                                  .addresses = &address,
                                  .num_addresses = 1,
                                  .io_threads = 1,
                                  .on_call = echo_on_call,
                                  .on_minute = count_minute,
                                  .context = &all};
  assert_int_equal(rv_grpc_server_new(&config, &all.server, NULL), RV_OK);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  const struct rlimit before = let_files_run_out();
  connect_to(fd, all.server);
  for (int i = 0; i < 4; i++) {
    wait_for_failure(&all);
    assert_int_equal(all.lines, 1);
    if (i < 3) pass(&all, 100000000);
  }
  assert_non_null(strstr(all.last, "could not be accepted: Too many open files; raise the limit"));
  assert_int_equal(all.minutes, 0);
  pass(&all, INT64_C(60000000000));
  assert_int_equal(all.minutes, 1);
  wait_for_failure(&all);
  assert_int_equal(all.lines, 2);
  assert_non_null(strstr(all.last, "(before it 3 more that are not in the log)"));
  pass(&all, 100000000);
  wait_for_failure(&all);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
  pass(&all, 100000000);
  for (int i = 0; i < 3; i++) pass(&all, INT64_C(60000000000));
  assert_int_equal(all.lines, 3); /* also when no other comes */
  assert_string_equal(all.last, "of tries to accept connections 1 more failed that are not in the log");
  rv_grpc_server_free(all.server);
  close(fd);
}

/* ---- who is served ---- */

static void while_files_have_run_out_those_connected_are_served_and_others_once_there_are_some(void **state)
{
  enum { OTHERS = 50, CALLS = 200 };
  (void)state;
  echo_server server;
  echo_client client;
  int others[OTHERS];
  echo_start(&server, "127.0.0.1:0", 2);
  client_open_server(&client, &server);
  assert_int_equal(call_unary(&client, "/echo/unary", "x", NULL), RV_OK);
  for (int i = 0; i < OTHERS; i++) others[i] = socket(AF_INET, SOCK_STREAM, 0);
  const struct rlimit before = let_files_run_out();
  for (int i = 0; i < OTHERS; i++) connect_to(others[i], server.grpc);
  for (int i = 0; i < CALLS; i++) assert_int_equal(call_unary(&client, "/echo/unary", "x", NULL), RV_OK);
  uint8_t head[9], payload[256];
  assert_int_equal(recv(others[0], head, sizeof head, MSG_DONTWAIT), -1); /* nobody has let it in */
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
  for (int i = 0; i < OTHERS; i++) {
    assert_true(read_frame(others[i], head, payload, sizeof payload) >= 0);
    assert_int_equal(head[3], NGHTTP2_SETTINGS);
    close(others[i]);
  }
  client_close(&client);
  echo_stop(&server);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(that_files_have_run_out_is_logged_once_a_minute_with_a_count),
      cmocka_unit_test(while_files_have_run_out_those_connected_are_served_and_others_once_there_are_some),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
