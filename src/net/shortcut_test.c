#include "net/shortcut.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/wait.h>
#include <time.h>

#include "net/pair_testing.h"
#include "net/ring_transport.h"

static rv_code try_start(echo_server *server, const char *address, bool shares, size_t most_of_one, const rv_env *env,
                         rv_error *err)
{
  memset(server, 0, sizeof *server);
  rv_mutex_init(&server->lock, RV_RANK_CLIENT, "echo server");
  rv_cond_init(&server->changed);
  rv_grpc_server_config config = {.env = env,
                                  .addresses = &address,
                                  .num_addresses = 1,
                                  .max_connections_per_address = most_of_one,
                                  .shares_memory = shares,
                                  .on_call = echo_on_call,
                                  .context = server};
  return rv_grpc_server_new(&config, &server->grpc, err);
}

static void start(echo_server *server, const char *address, bool shares)
{
  rv_error error;
  if (try_start(server, address, shares, 0, NULL, &error) != RV_OK) fail_msg("%s: %s", address, error.message);
}

static void connect_to(echo_client *client, const echo_server *server, const char *host, bool shares)
{
  rv_error error;
  memset(client, 0, sizeof *client);
  snprintf(client->address, sizeof client->address, "%s:%u", host, (unsigned)rv_grpc_server_port(server->grpc, 0));
  if (rv_loop_new(NULL, "client", &client->loop, &error) != RV_OK) fail_msg("%s", error.message);
  rv_channel_config config = {.loop = client->loop, .address = client->address, .shares_memory = shares};
  if (rv_channel_new(&config, &client->channel, &error) != RV_OK) fail_msg("%s", error.message);
}

static bool came_from(echo_server *server, const char *beginning)
{
  rv_mutex_lock(&server->lock);
  bool did = strncmp(server->peer, beginning, strlen(beginning)) == 0;
  rv_mutex_unlock(&server->lock);
  return did;
}

/* By the short way, which a server that takes a second to answer does not give. */
static bool goes_short(echo_server *server, const char *host)
{
  bool is_short = false;
  for (int i = 0; i < 20 && !is_short; i++) {
    echo_client client;
    connect_to(&client, server, host, true);
    assert_int_equal(call_unary(&client, "/echo/unary", "hello", NULL), RV_OK);
    is_short = count_mappings() >= 2 && came_from(server, "unix:process ");
    client_close(&client);
  }
  return is_short;
}

static bool goes_over_tcp(echo_server *server, const char *host, bool client_shares)
{
  echo_client client;
  connect_to(&client, server, host, client_shares);
  assert_int_equal(call_unary(&client, "/echo/unary", "hello", NULL), RV_OK);
  bool is_tcp = count_mappings() == 0 && came_from(server, "ipv4:127.");
  client_close(&client);
  return is_tcp;
}

static bool machine_has_v6(void)
{
  struct sockaddr_in6 here = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  int fd = socket(AF_INET6, SOCK_STREAM, 0);
  bool has = fd >= 0 && bind(fd, (const struct sockaddr *)&here, sizeof here) == 0;
  if (fd >= 0) close(fd);
  return has;
}

static void a_client_of_the_machine_goes_by_memory(void **state)
{
  (void)state;
  static const struct {
    const char *bound, *host;
    bool v6;
  } cases[] = {{"127.0.0.1:0", "127.0.0.1", false}, {"127.0.0.1:0", "localhost", false}, {"0.0.0.0:0", "127.0.0.1", false},
               {"0.0.0.0:0", "127.0.0.7", false},   {"0.0.0.0:0", "0.0.0.0", false},     {"[::]:0", "127.0.0.1", false},
               {"[::]:0", "[::1]", true},           {"[::1]:0", "[::1]", true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (cases[i].v6 && !machine_has_v6()) continue;
    echo_server server;
    start(&server, cases[i].bound, true);
    if (!goes_short(&server, cases[i].host)) fail_msg("%s to %s", cases[i].host, cases[i].bound);
    echo_stop(&server);
  }
  assert_int_equal(count_mappings(), 0);
}

static void either_end_can_do_without(void **state)
{
  (void)state;
  echo_server shares, does_not;
  start(&shares, "127.0.0.1:0", true);
  start(&does_not, "127.0.0.1:0", false);
  assert_true(goes_over_tcp(&shares, "127.0.0.1", false));
  assert_true(goes_over_tcp(&does_not, "127.0.0.1", true));
  echo_stop(&shares);
  echo_stop(&does_not);
}

typedef struct place_of_own {
  char host[20], address[40];
  uint16_t port;
} place_of_own;

/* At a loopback address of this process's, whose ports hardly anybody else is given: another server can have the same one afterwards. */
static void start_at_own(echo_server *server, place_of_own *at, bool shares)
{
  unsigned id = (unsigned)getpid();
  snprintf(at->host, sizeof at->host, "127.%u.%u.%u", 1 + (id >> 16 & 63), id >> 8 & 255, 1 + (id & 127));
  snprintf(at->address, sizeof at->address, "%s:0", at->host);
  start(server, at->address, shares);
  at->port = rv_grpc_server_port(server->grpc, 0);
  snprintf(at->address, sizeof at->address, "%s:%u", at->host, (unsigned)at->port);
}

static void a_new_server_at_the_same_address_is_met_again(void **state)
{
  (void)state;
  echo_server server;
  place_of_own at;
  start_at_own(&server, &at, true);
  assert_true(goes_short(&server, at.host));
  echo_stop(&server);
  start(&server, at.address, true);
  assert_true(goes_short(&server, at.host));
  echo_stop(&server);
}

/* ---- others who have the name ---- */

static rv_sockaddr socket_address(const char *host, uint16_t port)
{
  rv_address address = {.port = port};
  rv_sockaddr at;
  snprintf(address.host, sizeof address.host, "%s", host);
  assert_true(rv_sockaddr_of_address(&address, &at));
  return at;
}

static int listen_beside(const char *host, uint16_t port, unsigned number)
{
  rv_sockaddr bound = socket_address(host, port), name;
  assert_true(rv_shortcut_name(&bound, number, &name));
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  assert_int_equal(bind(fd, (const struct sockaddr *)&name.storage, name.length), 0);
  assert_int_equal(listen(fd, 4), 0);
  return fd;
}

typedef struct stranger {
  int listener;
  const char *says; /* NULL: ends the connection */
} stranger;

static void *meet(void *argument)
{
  const stranger *self = argument;
  int fd = accept(self->listener, NULL, NULL);
  if (self->says != NULL) (void)!send(fd, self->says, strlen(self->says), MSG_NOSIGNAL); /* to one that may have gone on */
  char end;
  while (self->says != NULL && recv(fd, &end, 1, 0) > 0) continue;
  close(fd);
  return NULL;
}

static void a_name_that_a_fork_keeps_is_left_to_it(void **state)
{
  (void)state;
  echo_server server;
  place_of_own at;
  start_at_own(&server, &at, true);
  echo_stop(&server);
  int kept = listen_beside(at.host, at.port, 0);
  assert_int_equal(shutdown(kept, SHUT_RDWR), 0); /* as a server that stops does with its own, of which the fork has a copy */
  start(&server, at.address, true);
  assert_true(goes_short(&server, at.host));
  echo_stop(&server);
  close(kept);
}

static void who_meets_somebody_else_goes_on_over_tcp(void **state)
{
  (void)state;
  static const char *const says[] = {NULL, "-", "+", "nonsense", ""}; /* the last: nothing at all, for a second */
  for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
    echo_server server;
    start(&server, "127.0.0.1:0", false);
    stranger other = {.listener = listen_beside("127.0.0.1", rv_grpc_server_port(server.grpc, 0), 0), .says = says[i]};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, meet, &other), 0);
    assert_true(goes_over_tcp(&server, "127.0.0.1", true));
    pthread_join(thread, NULL);
    close(other.listener);
    echo_stop(&server);
  }
}

static void note_line(void *context, rv_log_level level, const char *message)
{
  if (level == RV_LOG_WARNING && strstr(message, "may be taken for this server") != NULL) *(bool *)context = true;
}

static void a_server_whose_names_are_taken_says_so_and_listens(void **state)
{
  (void)state;
  echo_server server;
  place_of_own at;
  start_at_own(&server, &at, false);
  echo_stop(&server);
  int taken[RV_SHORTCUT_NAMES];
  for (unsigned i = 0; i < RV_SHORTCUT_NAMES; i++) taken[i] = listen_beside(at.host, at.port, i);
  bool said = false;
  rv_error error;
  const rv_env env = {.size = sizeof env, .context = &said, .log = note_line, .log_level = RV_LOG_WARNING};
  assert_int_equal(try_start(&server, at.address, true, 0, &env, &error), RV_OK);
  assert_true(said);
  for (unsigned i = 0; i < RV_SHORTCUT_NAMES; i++) close(taken[i]);
  assert_true(goes_over_tcp(&server, at.host, true));
  echo_stop(&server);
}

/* In a child, until `over` is closed. */
static _Noreturn void listen_as_another(const rv_sockaddr *name, int ready, const int over[2])
{
  char byte = 0;
  close(over[1]);
  int fd = setuid(12345) == 0 ? socket(AF_UNIX, SOCK_STREAM, 0) : -1;
  bool listens = fd >= 0 && bind(fd, (const struct sockaddr *)&name->storage, name->length) == 0 && listen(fd, 4) == 0;
  if (listens) (void)!write(ready, &byte, 1);
  close(ready);
  (void)!read(over[0], &byte, 1);
  _exit(0);
}

/* Only root can be somebody else: others have shown that they go to themselves. */
static void another_user_is_not_trusted(void **state)
{
  (void)state;
  if (geteuid() != 0) return;
  echo_server server;
  start(&server, "127.0.0.1:0", false);
  int ready[2], over[2];
  assert_int_equal(pipe(ready), 0);
  assert_int_equal(pipe(over), 0);
  rv_sockaddr to = socket_address("127.0.0.1", rv_grpc_server_port(server.grpc, 0)), name;
  assert_true(rv_shortcut_name(&to, 0, &name));
  pid_t child = fork();
  if (child == 0) listen_as_another(&name, ready[1], over);
  char byte;
  int status;
  close(over[0]);
  close(ready[1]);
  bool listens = read(ready[0], &byte, 1) == 1; /* a root that may not become another has shown as much as others */
  if (listens) assert_int_equal(rv_shortcut_connect(&to), -1);
  assert_true(goes_over_tcp(&server, "127.0.0.1", true));
  close(over[1]);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  close(ready[0]);
  echo_stop(&server);
}

/* ---- who comes ---- */

static int bound_to(const char *name)
{
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  size_t length = strlen(name);
  memcpy(at.sun_path + 1, name, length); /* the abstract name space */
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  assert_int_equal(bind(fd, (const struct sockaddr *)&at, (socklen_t)(sizeof at.sun_family + 1 + length)), 0);
  return fd;
}

static void who_comes_is_called_what_the_system_says(void **state)
{
  (void)state;
  char taken[60], given[60], is[100], name[RV_PEER_MAX];
  snprintf(given, sizeof given, "caf\303\251\n%ld", (long)getpid());
  snprintf(taken, sizeof taken, "process 1 of user 0 to nothing\n%ld", (long)getpid());
  int listener = bound_to(given), client = bound_to(taken);
  assert_int_equal(listen(listener, 1), 0);
  rv_sockaddr to = {.length = sizeof to.storage};
  assert_int_equal(getsockname(listener, (struct sockaddr *)&to.storage, &to.length), 0);
  assert_int_equal(connect(client, (const struct sockaddr *)&to.storage, to.length), 0);
  int server = accept(listener, NULL, NULL);
  rv_socket_peer(server, name);
  snprintf(is, sizeof is, "unix:process %ld of user %lu to @caf???%ld", (long)getpid(), (unsigned long)getuid(), (long)getpid());
  assert_string_equal(name, is);
  close(server);
  close(client);
  close(listener);
}

/* ---- descriptors ---- */

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

static bool system_can_refuse_descriptors(void)
{
  int fd = socket(AF_UNIX, SOCK_STREAM, 0), off = 0;
  bool can = setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof off) == 0;
  close(fd);
  return can;
}

/* What it has sent nobody ever takes, and whoever closes it waits an hour for that. */
static int make_lingering(void)
{
  const struct linger linger = {.l_onoff = 1, .l_linger = 3600};
  static const char bytes[1 << 16];
  rv_sockaddr at = socket_address("127.0.0.1", 0);
  int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
  bool fine = bind(listener, (const struct sockaddr *)&at.storage, at.length) == 0 && listen(listener, 1) == 0 &&
              getsockname(listener, (struct sockaddr *)&at.storage, &at.length) == 0 &&
              connect(fd, (const struct sockaddr *)&at.storage, at.length) == 0 &&
              setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0;
  while (fine && send(fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) continue;
  return fine ? fd : -1;
}

/* False: it could not. */
static bool send_descriptor(int to, int what)
{
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof what)] = {0};
  struct iovec vec = {.iov_base = (void *)(uintptr_t)preface, .iov_len = PREFACE};
  struct msghdr message = {.msg_iov = &vec, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof what)};
  memcpy(CMSG_DATA(head), &what, sizeof what);
  return sendmsg(to, &message, MSG_NOSIGNAL) > 0;
}

/* In a child, until `over` is closed: before the server has let it in, and when it has been heard there. */
static _Noreturn void send_as_another(const rv_sockaddr *name, int ready, const int over[2])
{
  char byte;
  close(over[1]);
  if (setuid(12345) != 0) _exit(0); /* a root that may not become another */
  int fd = socket(AF_UNIX, SOCK_STREAM, 0), lingering = make_lingering();
  if (lingering < 0 || connect(fd, (const struct sockaddr *)&name->storage, name->length) != 0) _exit(1);
  bool sent = send_descriptor(fd, lingering);
  if (sent) close(lingering); /* the server has the last one */
  (void)!write(ready, &sent, 1);
  if (!sent) {
    sent = !send_raw(fd, preface, PREFACE) || recv(fd, &byte, 1, 0) != 1 || send_descriptor(fd, over[0]);
    (void)!write(ready, &sent, 1);
  }
  (void)!read(over[0], &byte, 1);
  _exit(0);
}

typedef struct child_says {
  int ready;
  bool sent;
} child_says;

static void hear_child(void *argument)
{
  child_says *said = argument;
  if (read(said->ready, &said->sent, 1) != 1) said->sent = false;
}

static rv_code call_within_a_minute(const echo_server *server)
{
  echo_client client;
  test_call call;
  rv_env env;
  rv_env_fill(&env, NULL);
  connect_to(&client, server, "127.0.0.1", true);
  call_init(&call, &client, "/echo/unary");
  call.config.deadline_ns = rv_monotonic_ns(&env) + INT64_C(60000000000); /* instead of a test that hangs */
  call_start(&call);
  call_send(&call, "hello", 5);
  call_half_close(&call);
  call_wait(&call);
  rv_code code = call.code;
  call_fini(&call);
  client_close(&client);
  return code;
}

/* Such as one that the server would have to close, and wait for. */
static void no_descriptors_are_taken_from_another_user(void **state)
{
  (void)state;
  if (geteuid() != 0 || !system_can_refuse_descriptors()) return;
  echo_server server;
  start(&server, "127.0.0.1:0", true);
  int ready[2], over[2], status;
  assert_int_equal(pipe(ready), 0);
  assert_int_equal(pipe(over), 0);
  rv_sockaddr to = socket_address("127.0.0.1", rv_grpc_server_port(server.grpc, 0)), name;
  assert_true(rv_shortcut_name(&to, 0, &name));
  pid_t child = fork();
  if (child == 0) send_as_another(&name, ready[1], over);
  close(over[0]);
  close(ready[1]);
  child_says first = {.ready = ready[0]}, second = {.ready = ready[0]};
  rv_loop_call(rv_grpc_server_loop(server.grpc, 0), hear_child, &first); /* which lets nobody in meanwhile */
  if (!first.sent) hear_child(&second);
  rv_code code = call_within_a_minute(&server);
  close(over[1]);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  close(ready[0]);
  echo_stop(&server);
  assert_int_equal(code, RV_OK);
  assert_false(first.sent || second.sent);
}

/* ---- bounds ---- */

static void who_comes_the_short_way_counts_as_of_this_machine(void **state)
{
  (void)state;
  echo_server server;
  rv_error error;
  assert_int_equal(try_start(&server, "127.0.0.1:0", true, 1, NULL, &error), RV_OK);
  echo_client first, second;
  bool is_in = false;
  for (int i = 0; i < 20 && !is_in; i++) { /* who was not answered within a second comes again while he still counts */
    if (i > 0) client_close(&first);
    connect_to(&first, &server, "127.0.0.1", true);
    is_in = call_unary(&first, "/echo/unary", "hello", NULL) == RV_OK;
  }
  assert_true(is_in);
  connect_to(&second, &server, "127.0.0.1", true);
  test_call call;
  call_init(&call, &second, "/echo/unary");
  call_start(&call);
  call_wait(&call);
  assert_int_equal(call.code, RV_UNAVAILABLE);
  assert_non_null(strstr(call.message, "too many connections from this address"));
  call_fini(&call);
  client_close(&second);
  client_close(&first);
  echo_stop(&server);
}

/* Of whoever is first: RV_MOST_RINGS have them. */
static void take_all_rings(const echo_server *server, int fd[RV_MOST_RINGS])
{
  rv_sockaddr at = socket_address("127.0.0.1", rv_grpc_server_port(server->grpc, 0));
  for (size_t i = 0; i < RV_MOST_RINGS; i++) {
    rv_rings rings = {.map = NULL};
    fd[i] = rv_shortcut_connect(&at);
    assert_true(fd[i] >= 0);
    bool told;
    assert_int_equal(rv_rings_ask(fd[i], NULL, &told), 0);
    assert_int_equal(poll(&(struct pollfd){.fd = fd[i], .events = POLLIN}, 1, 30000), 1);
    assert_int_equal(rv_rings_answer_read(fd[i], NULL, NULL, &rings), RV_RINGS_GIVEN);
    rv_rings_unmap(&rings);
  }
}

static void who_gets_no_rings_stays_on_the_socket_beside_the_address(void **state)
{
  (void)state;
  static int fd[RV_MOST_RINGS];
  echo_server server;
  echo_client client;
  start(&server, "127.0.0.1:0", true);
  take_all_rings(&server, fd);
  int mappings = count_mappings();
  bool is_short = false;
  time_t begun = time(NULL);
  while (!is_short &&
         time(NULL) - begun <
             10) { /* a server that takes a second to answer is reached by its address; peers who say nothing go after 20 */
    connect_to(&client, &server, "127.0.0.1", true);
    assert_int_equal(call_unary(&client, "/echo/unary", "hello", NULL), RV_OK);
    is_short = came_from(&server, "unix:process ");
    if (is_short) assert_int_equal(count_mappings(), mappings);
    client_close(&client);
  }
  assert_true(is_short);
  for (size_t i = 0; i < RV_MOST_RINGS; i++) close(fd[i]);
  echo_stop(&server);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_client_of_the_machine_goes_by_memory),
      cmocka_unit_test(either_end_can_do_without),
      cmocka_unit_test(a_new_server_at_the_same_address_is_met_again),
      cmocka_unit_test(a_name_that_a_fork_keeps_is_left_to_it),
      cmocka_unit_test(who_meets_somebody_else_goes_on_over_tcp),
      cmocka_unit_test(a_server_whose_names_are_taken_says_so_and_listens),
      cmocka_unit_test(another_user_is_not_trusted),
      cmocka_unit_test(who_comes_is_called_what_the_system_says),
      cmocka_unit_test(no_descriptors_are_taken_from_another_user),
      cmocka_unit_test(who_comes_the_short_way_counts_as_of_this_machine),
      cmocka_unit_test(who_gets_no_rings_stays_on_the_socket_beside_the_address),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
