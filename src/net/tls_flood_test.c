/* A peer may put every byte into a record of its own, or send records without any: one read takes a little of that, so that others of the
 * loop get their turn, and the socket tells of the rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/certificates_testing.h"
#include "net/tls.h"

enum { RECORDS = 2000 };

typedef struct ends {
  char path[64];
  test_authority authority;
  rv_tls *tls;
  rv_transport server;
  SSL_CTX *context;
  SSL *client;
  int fd;
} ends;

static ssize_t read_at_server(ends *e)
{
  static char room[65536];
  const struct iovec vec = {.iov_base = room, .iov_len = sizeof room};
  return e->server.ops->read(&e->server, &vec, 1);
}

static void shake_hands(ends *e)
{
  while (SSL_do_handshake(e->client) != 1) assert_int_equal(read_at_server(e), -EAGAIN);
  assert_int_equal(read_at_server(e), -EAGAIN);
}

static int set_up(void **state)
{
  ends *e = calloc(1, sizeof *e);
  int fd[2];
  rv_error error;
  snprintf(e->path, sizeof e->path, "/tmp/reverie-tls-flood-XXXXXX");
  const int file = mkstemp(e->path);
  assert_true(file >= 0);
  close(file);
  authority_init(&e->authority, "our authority");
  authority_issue(&e->authority, e->path, "server", "DNS:replay.example", 3600);
  rv_tls_config config = {.size = sizeof config, .certificate_file = e->path};
  if (rv_tls_new(&config, true, &e->tls, &error) != RV_OK) fail_msg("%s", error.message);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
  const int room = 1 << 20; /* for the whole flood */
  setsockopt(fd[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  if (rv_transport_init_tls(&e->server, fd[0], e->tls, NULL, &error) != RV_OK) fail_msg("%s", error.message);
  e->fd = fd[1];
  e->context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_alpn_protos(e->context, (const unsigned char *)"\x02h2", 3);
  e->client = SSL_new(e->context);
  SSL_set_fd(e->client, e->fd);
  SSL_set_connect_state(e->client);
  shake_hands(e);
  *state = e;
  return 0;
}

static int tear_down(void **state)
{
  ends *e = *state;
  e->server.ops->close(&e->server);
  SSL_free(e->client);
  SSL_CTX_free(e->context);
  close(e->fd);
  rv_tls_unref(e->tls);
  authority_fini(&e->authority);
  unlink(e->path);
  free(e);
  return 0;
}

static int left_in_socket(const ends *e)
{
  int bytes = 0;
  assert_int_equal(ioctl(e->server.fd, FIONREAD, &bytes), 0);
  return bytes;
}

/* Until the socket has no more; what came. */
static size_t read_rest(ends *e)
{
  size_t all = 0;
  while (left_in_socket(e) > 0) {
    ssize_t n = read_at_server(e);
    assert_true(n > 0 || n == -EAGAIN);
    if (n > 0) all += (size_t)n;
  }
  return all;
}

static void one_read_takes_few_of_a_flood_of_new_keys(void **state)
{
  ends *e = *state;
  for (int i = 0; i < RECORDS; i++) {
    assert_int_equal(SSL_key_update(e->client, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
    assert_int_equal(SSL_do_handshake(e->client), 1);
  }
  assert_int_equal(SSL_write(e->client, "after", 5), 5);
  const int sent = left_in_socket(e);
  assert_int_equal(read_at_server(e), -EAGAIN);
  assert_true(left_in_socket(e) > sent / 2);
  assert_int_equal(read_rest(e), 5);
}

static void one_read_takes_few_of_a_flood_of_records_of_one_byte(void **state)
{
  ends *e = *state;
  for (int i = 0; i < RECORDS; i++) assert_int_equal(SSL_write(e->client, "x", 1), 1);
  const int sent = left_in_socket(e);
  const ssize_t n = read_at_server(e);
  assert_true(n > 0);
  assert_true(left_in_socket(e) > sent / 2);
  assert_false(e->server.ops->pending(&e->server)); /* the socket tells of the rest */
  assert_int_equal((size_t)n + read_rest(e), RECORDS);
}

static void one_read_takes_all_that_there_is_room_for_of_large_records(void **state)
{
  ends *e = *state;
  static char data[65536];
  assert_int_equal(SSL_write(e->client, data, sizeof data), sizeof data);
  assert_int_equal(read_at_server(e), sizeof data);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(one_read_takes_few_of_a_flood_of_new_keys, set_up, tear_down),
      cmocka_unit_test_setup_teardown(one_read_takes_few_of_a_flood_of_records_of_one_byte, set_up, tear_down),
      cmocka_unit_test_setup_teardown(one_read_takes_all_that_there_is_room_for_of_large_records, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
