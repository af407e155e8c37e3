/* Listening, stopping, and what a client sees of servers that are not there, go away, or come back. */
#include "net/echo_testing.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/loop.h"
#include "net/raw_testing.h"
#include "net/session.h"

static void check_message(const test_call *call, const char *part)
{
  if (strstr(call->message, part) == NULL) fail_msg("\"%s\" does not contain \"%s\"", call->message, part);
}

static void a_port_in_use_is_said_so(void **state)
{
  (void)state;
  echo_server first, second;
  echo_start(&first, "127.0.0.1:0", 1);
  static const char *const hosts[] = {"127.0.0.1", "localhost", "[::]", "0.0.0.0"};
  for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
    char address[64], part[64];
    snprintf(address, sizeof address, "%s:%u", hosts[i], (unsigned)rv_grpc_server_port(first.grpc, 0));
    rv_error error = {0};
    assert_int_equal(echo_try_start(&second, address, 1, 0, &error), RV_UNAVAILABLE);
    snprintf(part, sizeof part, "port %u on ", (unsigned)rv_grpc_server_port(first.grpc, 0));
    if (strstr(error.message, part) == NULL || strstr(error.message, "in use by another process") == NULL)
      fail_msg("%s", error.message);
    rv_cond_fini(&second.changed);
    rv_mutex_fini(&second.lock);
  }
  echo_stop(&first);
}

static void every_way_to_listen_can_be_reached(void **state)
{
  (void)state;
  static const char *const ways[][2] = {{"[::]:0", "127.0.0.1"},
                                        {"[::]:0", "localhost"},
                                        {"localhost:0", "localhost"},
                                        {"localhost:0", "127.0.0.1"},
                                        {"0.0.0.0:0", "127.0.0.1"}};
  for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
    echo_server server;
    echo_client client;
    char address[64];
    echo_start(&server, ways[i][0], 1);
    snprintf(address, sizeof address, "%s:%u", ways[i][1], (unsigned)rv_grpc_server_port(server.grpc, 0));
    client_open(&client, address);
    assert_int_equal(call_unary(&client, "/echo/unary", "x", NULL), RV_OK);
    client_close(&client);
    echo_stop(&server);
  }
}

static void an_address_that_cannot_be_listened_on_is_said_so(void **state)
{
  (void)state;
  static const char *const wrong[][2] = {{"192.0.2.1:0", "no such address"},
                                         {"unix:/nonexistent/directory/socket", "does not exist"},
                                         {"no-such-host.invalid:0", "cannot be resolved"},
                                         {"localhost", "no port"}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    echo_server server;
    rv_error error = {0};
    assert_int_not_equal(echo_try_start(&server, wrong[i][0], 1, 0, &error), RV_OK);
    if (strstr(error.message, wrong[i][1]) == NULL) fail_msg("%s", error.message);
    rv_cond_fini(&server.changed);
    rv_mutex_fini(&server.lock);
  }
}

static void a_unix_socket_works_and_its_file_goes_with_the_server(void **state)
{
  (void)state;
  char directory[] = "/tmp/reverie-net-XXXXXX", address[64];
  assert_non_null(mkdtemp(directory));
  snprintf(address, sizeof address, "unix:%s/socket", directory);
  echo_server server, second;
  echo_client client;
  for (int round = 0; round < 2; round++) {
    echo_start(&server, address, 2);
    rv_error error = {0};
    assert_int_equal(echo_try_start(&second, address, 1, 0, &error), RV_UNAVAILABLE);
    assert_non_null(strstr(error.message, "in use by another process"));
    rv_cond_fini(&second.changed);
    rv_mutex_fini(&second.lock);
    client_open(&client, address);
    assert_int_equal(call_unary(&client, "/echo/unary", "x", NULL), RV_OK);
    assert_int_equal(strncmp(server.peer, "unix:", 5), 0);
    client_close(&client);
    echo_stop(&server);
    assert_int_not_equal(access(address + 5, F_OK), 0);
    if (round == 0) { /* a file that a server left which was killed */
      int fd = socket(AF_UNIX, SOCK_STREAM, 0);
      struct sockaddr_un name = {.sun_family = AF_UNIX};
      snprintf(name.sun_path, sizeof name.sun_path, "%s", address + 5);
      assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
      close(fd);
      assert_int_equal(access(address + 5, F_OK), 0);
    }
  }
  FILE *file = fopen(address + 5, "w"); /* no socket: it is not ours to remove */
  assert_non_null(file);
  fclose(file);
  rv_error error = {0};
  assert_int_equal(echo_try_start(&server, address, 1, 0, &error), RV_UNAVAILABLE);
  assert_non_null(strstr(error.message, "is a file, not a socket; remove it or choose another path"));
  assert_int_equal(access(address + 5, F_OK), 0);
  rv_cond_fini(&server.changed);
  rv_mutex_fini(&server.lock);
  unlink(address + 5);
  rmdir(directory);
}

static void one_failed_call(const char *address, const char *part)
{
  echo_client client;
  client_open(&client, address);
  test_call call;
  call_init(&call, &client, "/echo/unary");
  call_start(&call);
  call_wait(&call);
  assert_int_equal(call.code, RV_UNAVAILABLE);
  check_message(&call, part);
  call_fini(&call);
  client_close(&client);
}

/* A bound socket, and its port: nobody else is given it, and nobody is there until a server comes, or it listens itself. */
static int bind_anywhere(uint16_t *port)
{
  const int on = 1;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof name;
  assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
  assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &length), 0);
  *port = ntohs(name.sin_port);
  return fd;
}

static void a_server_that_is_not_there_is_unavailable_and_says_why(void **state)
{
  (void)state;
  uint16_t port;
  char address[64];
  int held = bind_anywhere(&port);
  snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)port);
  one_failed_call(address, "connection refused");
  one_failed_call(address, "is the port right?");
  close(held);
  one_failed_call("unix:/tmp/reverie-no-such-socket", "no such socket file");
  one_failed_call("no-such-host.invalid:1", "cannot resolve the host");
}

static void who_may_not_connect_to_a_socket_is_told_what_lets_him(void **state)
{
  (void)state;
  char directory[] = "/tmp/reverie-net-XXXXXX", address[64];
  assert_non_null(mkdtemp(directory));
  assert_int_equal(chmod(directory, 0), 0);
  snprintf(address, sizeof address, "unix:%s/socket", directory);
  const bool is_root = geteuid() == 0;
  if (is_root) assert_int_equal(seteuid(12345), 0);
  one_failed_call(address, "Permission denied (this user may not write to the socket, whose mode follows the server's umask");
  if (is_root) assert_int_equal(seteuid(0), 0);
  rmdir(directory);
}

/* A call is told that its server, which answers with these bytes and no more, is unavailable, and this of why. */
static void check_told(const char *answer, size_t size, const char *part)
{
  uint16_t port;
  int listener = bind_anywhere(&port);
  assert_int_equal(listen(listener, 16), 0);
  echo_client client;
  char address[64];
  snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)port);
  client_open(&client, address);
  test_call call;
  call_init(&call, &client, "/echo/unary");
  call_start(&call);
  int fd = accept(listener, NULL, NULL);
  char said[24];
  assert_int_equal(recv(fd, said, sizeof said, MSG_WAITALL), sizeof said);
  assert_int_equal(send(fd, answer, size, MSG_NOSIGNAL), size);
  shutdown(fd, SHUT_WR);
  call_wait(&call);
  assert_int_equal(call.code, RV_UNAVAILABLE);
  check_message(&call, part);
  check_message(&call, address);
  call_fini(&call);
  client_close(&client);
  close(fd);
  close(listener);
}

static void what_is_no_grpc_server_is_said_so(void **state)
{
  (void)state;
  static const struct {
    const char *greeting;
    size_t size;
    const char *part;
  } kinds[] = {{"HTTP/1.1 400 Bad Request\r\n\r\n", 28, "HTTP/1"},
               {"\x15\x03\x01\0\x02\x02\x46", 7, "TLS"},
               {"SSH-2.0-OpenSSH_9.2\r\n", 21, "does not speak HTTP/2"},
               {"", 0, "closed the connection before"}};
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) check_told(kinds[i].greeting, kinds[i].size, kinds[i].part);
}

/* It ends in logs and exceptions. */
static void why_a_server_closes_the_connection_is_told_without_control_characters(void **state)
{
  (void)state;
  static const char goaway[] = "\0\0\0\x04\0\0\0\0\0"
                               "\0\0\x18\x07\0\0\0\0\0"
                               "\0\0\0\0\0\0\0\x02"
                               "no\n\x1B[31mmore\xFF \xC3\xA9";
  check_told(goaway, sizeof goaway - 1, "closed the connection: INTERNAL_ERROR, no??[31mmore? \xC3\xA9");
}

static void a_call_that_waits_for_ready_gets_through_when_the_server_comes(void **state)
{
  (void)state;
  uint16_t port;
  char address[64];
  int held = bind_anywhere(&port);
  snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)port);
  echo_client client;
  client_open(&client, address);
  test_call patient, call;
  call_init(&patient, &client, "/echo/unary");
  patient.config.wait_for_ready = true;
  call_start(&patient);
  call_send(&patient, "early", 5);
  call_init(&call, &client, "/echo/unary");
  call_start(&call);
  call_wait(&call);
  assert_int_equal(call.code, RV_UNAVAILABLE);
  call_fini(&call);
  char text[300];
  rv_channel_state(client.channel, text, sizeof text);
  if (strstr(text, "connecting to 127.0.0.1") == NULL || strstr(text, "refused") == NULL) fail_msg("%s", text);
  echo_server server;
  echo_start(&server, address, 1);
  call_wait(&patient);
  assert_int_equal(patient.code, RV_OK);
  assert_string_equal(patient.text, "early");
  call_fini(&patient);
  client_close(&client);
  echo_stop(&server);
  close(held);
}

static void a_waiting_calls_deadline_says_what_it_waited_for(void **state)
{
  (void)state;
  uint16_t port;
  char address[64];
  int held = bind_anywhere(&port);
  snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)port);
  echo_client client;
  client_open(&client, address);
  rv_env env;
  rv_env_default(&env);
  for (int i = 0; i < 2; i++) { /* by the second time it was refused, however busy the machine is */
    test_call call;
    call_init(&call, &client, "/echo/unary");
    call.config.wait_for_ready = i == 1;
    call.config.deadline_ns = i == 0 ? INT64_MAX : env.monotonic_ns(NULL) + 100000000;
    call_start(&call);
    call_wait(&call);
    assert_int_equal(call.code, i == 0 ? RV_UNAVAILABLE : RV_DEADLINE_EXCEEDED);
    if (i == 1) check_message(&call, "Deadline Exceeded");
    check_message(&call, "refused");
    call_fini(&call);
  }
  client_close(&client);
  close(held);
}

static void a_client_finds_a_server_that_was_started_again(void **state)
{
  (void)state;
  echo_server server;
  echo_client client;
  uint16_t port;
  char address[64];
  int held = bind_anywhere(&port);
  snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)port);
  echo_start(&server, address, 1);
  client_open(&client, address);
  assert_int_equal(call_unary(&client, "/echo/unary", "x", NULL), RV_OK);
  for (int i = 0; i < 3; i++) {
    echo_stop(&server);
    echo_start(&server, address, 1);
    test_call call;
    call_init(&call, &client, "/echo/unary");
    call.config.wait_for_ready = true;
    call_start(&call);
    call_send(&call, "again", 5);
    call_wait(&call);
    assert_int_equal(call.code, RV_OK);
    assert_string_equal(call.text, "again");
    call_fini(&call);
  }
  client_close(&client);
  echo_stop(&server);
  close(held);
}

static void stopping_ends_open_calls_with_unavailable(void **state)
{
  (void)state;
  echo_server server;
  echo_client client;
  echo_start(&server, "127.0.0.1:0", 2);
  client_open_server(&client, &server);
  enum { OPEN = 20 };
  test_call call[OPEN];
  for (size_t i = 0; i < OPEN; i++) {
    call_init(&call[i], &client, i % 2 == 0 ? "/echo/hang" : "/echo/stream");
    call_start(&call[i]);
    call_send(&call[i], "x", 1);
  }
  echo_wait(&server, &server.messages, OPEN);
  rv_grpc_server_stop(server.grpc, 0);
  for (size_t i = 0; i < OPEN; i++) {
    call_wait(&call[i]);
    assert_int_equal(call[i].code, RV_UNAVAILABLE);
    assert_string_equal(call[i].message, "Cancelling all calls");
    call_fini(&call[i]);
  }
  assert_int_equal(server.closed_by_code[RV_UNAVAILABLE], OPEN);
  echo_stop(&server);
  client_close(&client);
}

static void draining_lets_open_calls_end_well(void **state)
{
  (void)state;
  echo_server server;
  echo_client client;
  echo_start(&server, "127.0.0.1:0", 1);
  client_open_server(&client, &server);
  test_call call;
  call_init(&call, &client, "/echo/source");
  call_add(&call, "echo-count", "300");
  call_add(&call, "echo-size", "100000");
  call_start(&call);
  call_send(&call, "go", 2);
  call_wait_messages(&call, 1);
  rv_grpc_server_stop(server.grpc, INT64_MAX);
  call_wait(&call);
  assert_int_equal(call.code, RV_OK);
  assert_int_equal(call.messages, 300);
  call_fini(&call);
  echo_stop(&server);
  client_close(&client);
}

static void who_does_not_say_gets_a_loop_for_two_cores(void **state)
{
  (void)state;
  const char *address = "127.0.0.1:0";
  rv_grpc_server_config config = {.addresses = &address, .num_addresses = 1, .on_call = echo_on_call};
  rv_grpc_server *server;
  assert_int_equal(rv_grpc_server_new(&config, &server, NULL), RV_OK);
  long half = sysconf(_SC_NPROCESSORS_ONLN) / 2;
  assert_int_equal(rv_grpc_server_num_loops(server), half < 1 ? 1 : half > 8 ? 8 : half);
  rv_grpc_server_free(server);
}

/* A connection of before may still be about to go, and until then this one is refused. */
static void get_in(echo_client *client)
{
  rv_env env;
  rv_env_default(&env);
  const int64_t until = rv_monotonic_ns(&env) + INT64_C(60000000000);
  rv_code code = RV_UNAVAILABLE;
  while (code == RV_UNAVAILABLE && rv_monotonic_ns(&env) < until) code = call_unary(client, "/echo/unary", "x", NULL);
  assert_int_equal(code, RV_OK);
}

static void takes_three_connections(size_t max_connections, size_t max_connections_per_address, const char *says)
{
  echo_server server = {0};
  rv_mutex_init(&server.lock, RV_RANK_CLIENT, "echo server");
  rv_cond_init(&server.changed);
  const char *address = "127.0.0.1:0";
  rv_grpc_server_config config = {.addresses = &address,
                                  .num_addresses = 1,
                                  .io_threads = 3,
                                  .max_connections = max_connections,
                                  .max_connections_per_address = max_connections_per_address,
                                  .on_call = echo_on_call,
                                  .context = &server};
  rv_env env;
  rv_env_default(&env);
  env.log_level = RV_LOG_ERROR;
  config.env = &env;
  assert_int_equal(rv_grpc_server_new(&config, &server.grpc, NULL), RV_OK);
  assert_int_equal(rv_grpc_server_num_loops(server.grpc), 3);
  echo_client client[4];
  for (int i = 0; i < 3; i++) {
    client_open_server(&client[i], &server);
    assert_int_equal(call_unary(&client[i], "/echo/unary", "x", NULL), RV_OK);
  }
  client_open_server(&client[3], &server);
  test_call call;
  call_init(&call, &client[3], "/echo/unary");
  call_start(&call);
  call_send(&call, "x", 1);
  call_wait(&call);
  assert_int_equal(call.code, RV_UNAVAILABLE);
  if (strstr(call.message, says) == NULL) fail_msg("%s", call.message);
  call_fini(&call);
  char why[300]; /* for those who wait until there is room */
  rv_channel_state(client[3].channel, why, sizeof why);
  if (strstr(why, says) == NULL) fail_msg("%s", why);
  client_close(&client[0]);
  get_in(&client[3]);
  for (int i = 1; i < 4; i++) client_close(&client[i]);
  echo_stop(&server);
}

static void connections_are_spread_over_the_loops_and_bounded(void **state)
{
  (void)state;
  takes_three_connections(3, 0, "too many connections");
}

static void connections_of_one_address_are_bounded(void **state)
{
  (void)state;
  takes_three_connections(10, 3, "too many connections from this address (max_connections_per_address)");
}

static int64_t still_clock(void *context)
{
  (void)context;
  return 1000;
}

static void count_full(void *context, rv_log_level level, const char *line)
{
  (void)level;
  if (strstr(line, "connections are open, and more are refused") != NULL ||
      strstr(line, "connections of one address are open, and more of") != NULL)
    ++*(atomic_int *)context;
}

/* Until the fourth is refused. */
static void fill_up(echo_server *server, echo_client clients[3])
{
  for (int i = 0; i < 3; i++) {
    client_open_server(&clients[i], server);
    get_in(&clients[i]);
  }
  echo_client more;
  client_open_server(&more, server);
  for (int i = 0; i < 3; i++) assert_int_equal(call_unary(&more, "/echo/unary", "x", NULL), RV_UNAVAILABLE);
  client_close(&more);
}

/* Until so many lines are written. */
static int lines_of_rounds(size_t max_connections, size_t max_connections_per_address, int rounds, int enough)
{
  echo_server server = {0};
  atomic_int lines = 0;
  rv_mutex_init(&server.lock, RV_RANK_CLIENT, "echo server");
  rv_cond_init(&server.changed);
  const char *address = "127.0.0.1:0";
  rv_env env = {.size = sizeof env, .context = &lines, .monotonic_ns = still_clock, .log = count_full};
  rv_grpc_server_config config = {.env = &env,
                                  .addresses = &address,
                                  .num_addresses = 1,
                                  .io_threads = 1,
                                  .max_connections = max_connections,
                                  .max_connections_per_address = max_connections_per_address,
                                  .on_call = echo_on_call,
                                  .context = &server};
  assert_int_equal(rv_grpc_server_new(&config, &server.grpc, NULL), RV_OK);
  for (int round = 0; round < rounds && lines < enough; round++) {
    echo_client clients[3];
    fill_up(&server, clients);
    if (round == 0) assert_int_equal(lines, 1); /* not three */
    for (int i = 0; i < 3; i++) client_close(&clients[i]);
  }
  echo_stop(&server);
  return lines;
}

static void that_a_bound_of_connections_is_met_is_logged_each_time(void **state)
{
  (void)state;
  assert_int_equal(lines_of_rounds(3, 0, 200, 2), 2);
  assert_int_equal(lines_of_rounds(10, 3, 200, 2), 2);
}

static void who_comes_and_goes_at_a_bound_of_connections_cannot_fill_the_log(void **state)
{
  (void)state;
  assert_true(lines_of_rounds(3, 0, 20, 20) <= 10);
  assert_true(lines_of_rounds(10, 3, 20, 20) <= 10);
}

typedef struct silence {
  rv_grpc_server *server;
  size_t connections;
  int64_t begins_within_ns;
  char log[200];
} silence;

static void keep_last_line(void *context, rv_log_level level, const char *line)
{
  (void)level;
  silence *silent = context;
  snprintf(silent->log, sizeof silent->log, "%s", line);
}

/* The handshake's time is up, if there is a connection. */
static void end_handshake(void *argument)
{
  silence *silent = argument;
  const rv_loop *loop = rv_grpc_server_loop(silent->server, 0);
  silent->connections = 0;
  RV_LIST_EACH(link, &loop->connections)
  {
    rv_timer *timer = &RV_CONTAINER(link, rv_session, link)->timer;
    silent->connections++;
    silent->begins_within_ns = timer->at_ns - still_clock(NULL);
    rv_timer_stop(timer);
    timer->fire(timer);
  }
}

static void a_client_that_says_nothing_has_20_s_whatever_the_peer_timeout_is(void **state)
{
  (void)state;
  const char *address = "127.0.0.1:0";
  static const int64_t peer_timeouts_ms[] = {-1, 1000, 0};
  for (size_t i = 0; i < sizeof peer_timeouts_ms / sizeof peer_timeouts_ms[0]; i++) {
    silence silent = {0};
    rv_env env = {.size = sizeof env, .context = &silent, .monotonic_ns = still_clock, .log = keep_last_line};
    rv_grpc_server_config config = {.env = &env,
                                    .addresses = &address,
                                    .num_addresses = 1,
                                    .io_threads = 1,
                                    .peer_timeout_ms = peer_timeouts_ms[i],
                                    .on_call = echo_on_call};
    assert_int_equal(rv_grpc_server_new(&config, &silent.server, NULL), RV_OK);
    int fd = connect_port(rv_grpc_server_port(silent.server, 0));
    while (silent.connections == 0) rv_loop_call(rv_grpc_server_loop(silent.server, 0), end_handshake, &silent);
    assert_int_equal(silent.begins_within_ns, INT64_C(20000000000));
    read_to_end(fd);
    close(fd);
    rv_grpc_server_free(silent.server);
    if (strstr(silent.log, "did not begin to speak HTTP/2 within 20 s") == NULL) fail_msg("%s", silent.log);
  }
}

static void a_loop_that_ends_closes_what_is_open(void **state)
{
  (void)state;
  echo_server server;
  echo_client client;
  echo_start(&server, "127.0.0.1:0", 1);
  client_open_server(&client, &server);
  assert_int_equal(call_unary(&client, "/echo/unary", "x", NULL), RV_OK);
  rv_channel_free(client.channel); /* its connection is still saying good-bye */
  rv_loop_free(client.loop);
  echo_stop(&server);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_port_in_use_is_said_so),
      cmocka_unit_test(every_way_to_listen_can_be_reached),
      cmocka_unit_test(an_address_that_cannot_be_listened_on_is_said_so),
      cmocka_unit_test(a_unix_socket_works_and_its_file_goes_with_the_server),
      cmocka_unit_test(a_server_that_is_not_there_is_unavailable_and_says_why),
      cmocka_unit_test(who_may_not_connect_to_a_socket_is_told_what_lets_him),
      cmocka_unit_test(what_is_no_grpc_server_is_said_so),
      cmocka_unit_test(why_a_server_closes_the_connection_is_told_without_control_characters),
      cmocka_unit_test(a_call_that_waits_for_ready_gets_through_when_the_server_comes),
      cmocka_unit_test(a_waiting_calls_deadline_says_what_it_waited_for),
      cmocka_unit_test(a_client_finds_a_server_that_was_started_again),
      cmocka_unit_test(stopping_ends_open_calls_with_unavailable),
      cmocka_unit_test(draining_lets_open_calls_end_well),
      cmocka_unit_test(who_does_not_say_gets_a_loop_for_two_cores),
      cmocka_unit_test(connections_are_spread_over_the_loops_and_bounded),
      cmocka_unit_test(connections_of_one_address_are_bounded),
      cmocka_unit_test(that_a_bound_of_connections_is_met_is_logged_each_time),
      cmocka_unit_test(who_comes_and_goes_at_a_bound_of_connections_cannot_fill_the_log),
      cmocka_unit_test(a_client_that_says_nothing_has_20_s_whatever_the_peer_timeout_is),
      cmocka_unit_test(a_loop_that_ends_closes_what_is_open),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
