/* Where a client cannot lend its memory, since no descriptors reach the server, it shares the server's all the same, and does not wait at each connection. The
 * linker puts what is here in the place of the system's calls. */
#include <errno.h>
#include <sched.h>
#include <sys/wait.h>

#include "net/pair_testing.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

static atomic_bool forbidden, is_old; /* a security module forbids it; the system is older than Linux 6.16 */
static atomic_size_t tries;           /* to send one with a question */

ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
int __real_getsockopt(int fd, int level, int option, void *value, socklen_t *size);
int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *size);

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
  bool asks = message->msg_controllen > 0 && message->msg_iov[0].iov_len > 1; /* an answer has one byte */
  if (asks) atomic_fetch_add(&tries, 1);
  if (!asks || !forbidden) return __real_sendmsg(fd, message, flags);
  errno = EPERM;
  return -1;
}

int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *size)
{
  if (level != SOL_SOCKET || option != SO_PASSRIGHTS) return __real_getsockopt(fd, level, option, value, size);
  if (is_old) errno = ENOPROTOOPT;
  return is_old ? -1 : 0;
}

/* One connection more of the client's loop. How often it tried; `mappings` are those of a connection that this process sees. */
static size_t connect_and_count(echo_client *client, int mappings)
{
  for (int i = 0; i < 20; i++) { /* a server that takes a second to answer is spoken to without */
    rv_channel_config config = {.loop = client->loop, .address = client->address, .shares_memory = true};
    rv_channel_free(client->channel);
    assert_int_equal(rv_channel_new(&config, &client->channel, NULL), RV_OK);
    atomic_store(&tries, 0);
    assert_int_equal(call_unary(client, "/echo/unary", "hello", NULL), RV_OK);
    if (count_mappings() >= mappings) return atomic_load(&tries);
  }
  fail_msg("it has no rings");
  return 0;
}

/* ---- a server that sees no process but its own ---- */

static _Noreturn void serve_until_closed(const char *address, int ready, int over)
{
  echo_server server;
  char byte = 1;
  echo_start(&server, address, 1);
  (void)!write(ready, &byte, 1);
  (void)!read(over, &byte, 1);
  rv_grpc_server_free(server.grpc);
  _exit(0);
}

static void a_server_in_a_namespace_of_its_own_is_lent_nothing_and_not_waited_for(void **state)
{
  (void)state;
  socket_place place;
  int ready[2], over[2];
  char byte;
  place_init(&place);
  assert_int_equal(pipe(ready), 0);
  assert_int_equal(pipe(over), 0);
  pid_t child = fork();
  if (child == 0) {
    close(over[1]);
    if (unshare(CLONE_NEWPID) != 0) _exit(0); /* who is not root may not */
    pid_t server = fork();
    if (server == 0) serve_until_closed(place.address, ready[1], over[0]);
    waitpid(server, NULL, 0);
    _exit(0);
  }
  close(ready[1]);
  if (read(ready[0], &byte, 1) == 1) {
    echo_client client;
    client_open(&client, place.address);
    assert_int_equal(connect_and_count(&client, 1), 0);
    client_close(&client);
  }
  close(over[1]);
  assert_int_equal(waitpid(child, NULL, 0), child);
  close(over[0]);
  close(ready[0]);
  place_fini(&place);
}

/* ---- a system that does not let them through ---- */

static size_t tries_of[2]; /* by the first connection, and by the second one */

static void connect_twice(void)
{
  socket_place place;
  echo_server server;
  echo_client client;
  place_init(&place);
  echo_start(&server, place.address, 1);
  client_open(&client, place.address);
  for (int i = 0; i < 2; i++) tries_of[i] = connect_and_count(&client, 2);
  client_close(&client);
  echo_stop(&server);
  place_fini(&place);
}

static void who_may_not_send_descriptors_waits_for_that_once(void **state)
{
  (void)state;
  forbidden = true;
  connect_twice();
  forbidden = false;
  assert_true(tries_of[0] >= 1);
  assert_in_range(tries_of[1], 1, 21); /* one each millisecond, of which there are 20 */
}

static void where_no_server_refuses_descriptors_it_is_not_waited_for_one_that_takes_them(void **state)
{
  (void)state;
  forbidden = is_old = true;
  connect_twice();
  forbidden = is_old = false;
  assert_int_equal(tries_of[0], 1);
  assert_int_equal(tries_of[1], 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_server_in_a_namespace_of_its_own_is_lent_nothing_and_not_waited_for),
      cmocka_unit_test(who_may_not_send_descriptors_waits_for_that_once),
      cmocka_unit_test(where_no_server_refuses_descriptors_it_is_not_waited_for_one_that_takes_them),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
