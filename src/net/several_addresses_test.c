/* A name that stands for two addresses: at the first one listens something that is no server of ours. */
#include "net/echo_testing.h"
#include "net/loop.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

int __real_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **out);

int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
  const struct addrinfo numeric = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
  if (strcmp(host, "two.test") != 0) return __real_getaddrinfo(host, service, hints, out);
  int status = __real_getaddrinfo("127.0.0.1", service, &numeric, out);
  return status != 0 ? status : __real_getaddrinfo("127.0.0.2", service, &numeric, &(*out)->ai_next);
}

typedef struct stranger {
  int listening, over[2]; /* a pipe that is closed when it is to end */
  size_t callers;
  pthread_t thread;
} stranger;

/* Hangs up on whoever comes. */
static void *hang_up(void *argument)
{
  stranger *s = argument;
  for (;;) {
    struct pollfd either[] = {{.fd = s->listening, .events = POLLIN}, {.fd = s->over[0], .events = POLLIN}};
    if (poll(either, 2, -1) <= 0) continue;
    if (either[1].revents != 0) return NULL;
    int caller = accept(s->listening, NULL, NULL);
    if (caller < 0) continue;
    s->callers++;
    close(caller);
  }
}

/* False: somebody has that port there. */
static bool stranger_begin(stranger *s, uint16_t port)
{
  const struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  *s = (stranger){.listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (bind(s->listening, (const struct sockaddr *)&at, sizeof at) != 0) {
    close(s->listening);
    return false;
  }
  assert_int_equal(listen(s->listening, 16), 0);
  assert_int_equal(pipe(s->over), 0);
  assert_int_equal(pthread_create(&s->thread, NULL, hang_up, s), 0);
  return true;
}

static void stranger_end(stranger *s)
{
  close(s->over[1]);
  pthread_join(s->thread, NULL);
  close(s->over[0]);
  close(s->listening);
}

static rv_code call_patiently(echo_client *client)
{
  test_call call;
  call_init(&call, client, "/echo/unary");
  call.config.wait_for_ready = true;
  call.config.deadline_ns = rv_monotonic_ns(&client->loop->env) + INT64_C(60000000000);
  call_start(&call);
  call_send(&call, "abc", 3);
  call_half_close(&call);
  call_wait(&call);
  rv_code code = call.code;
  if (code != RV_OK) print_message("%s\n", call.message);
  call_fini(&call);
  return code;
}

static void where_a_stranger_listens_at_the_first_the_second_is_tried(void **state)
{
  (void)state;
  enum { PORTS = 20 };
  echo_server server;
  stranger first;
  bool begun = false;
  for (int i = 0; i < PORTS && !begun; i++) {
    echo_start(&server, "127.0.0.2:0", 1);
    begun = stranger_begin(&first, rv_grpc_server_port(server.grpc, 0));
    if (!begun) echo_stop(&server);
  }
  assert_true(begun);
  char address[64];
  snprintf(address, sizeof address, "two.test:%u", (unsigned)rv_grpc_server_port(server.grpc, 0));
  echo_client client;
  client_open(&client, address);
  assert_int_equal(call_patiently(&client), RV_OK);
  client_close(&client);
  stranger_end(&first);
  assert_in_range(first.callers, 1, 2); /* and is not asked again and again */
  echo_stop(&server);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(where_a_stranger_listens_at_the_first_the_second_is_tried)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
