/* What TLS has decrypted the socket does not tell of any more: it is looked at all the same, also when the connection was not read for a while. */
#include "net/echo_testing.h"

#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/ioctl.h>

#include "net/certificates_testing.h"
#include "net/raw_testing.h"
#include "net/session.h"

/* A read takes all that there is room for: all but the last request. It is so many frames that the turn is over with it, and so many requests
 * that no more are taken while their answers wait; but for the last 4 KiB they are few enough. */
enum { READ = RV_LOOP_SCRATCH, UPDATES = 4617, REQUESTS = 393, FIRST_RECORD = 10000, UNKNOWN = 0xfa /* kind of frame */ };

typedef struct ends {
  char path[64];
  test_authority authority;
  echo_server server;
  SSL_CTX *context;
  SSL *client;
  int fd;
  bool taken;   /* by the server, from its socket */
  bool blocked; /* the server's socket takes no more */
  size_t unsent, size;
  uint8_t data[READ + 100];
} ends;

static void set_room(int fd, int which, int bytes)
{
  assert_int_equal(setsockopt(fd, SOL_SOCKET, which, &bytes, sizeof bytes), 0);
}

static int set_up(void **state)
{
  ends *e = calloc(1, sizeof *e);
  rv_error error;
  rv_tls *tls;
  snprintf(e->path, sizeof e->path, "/tmp/reverie-tls-rest-XXXXXX");
  const int file = mkstemp(e->path);
  assert_true(file >= 0);
  close(file);
  authority_init(&e->authority, "our authority");
  authority_issue(&e->authority, e->path, "server", "IP:127.0.0.1", 3600);
  rv_tls_config config = {.size = sizeof config, .certificate_file = e->path};
  if (rv_tls_new(&config, true, &tls, &error) != RV_OK) fail_msg("%s", error.message);
  if (echo_try_start_tls(&e->server, "127.0.0.1:0", 1, 0, tls, &error) != RV_OK) fail_msg("%s", error.message);
  rv_tls_unref(tls);
  e->fd = connect_port(rv_grpc_server_port(e->server.grpc, 0));
  set_room(e->fd, SO_RCVBUF, 1 << 16); /* for answers, */
  set_room(e->fd, SO_SNDBUF, 1 << 19); /* and for all that is sent at once */
  const int on = 1;
  assert_int_equal(setsockopt(e->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
  e->context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_alpn_protos(e->context, (const unsigned char *)"\x02h2", 3);
  e->client = SSL_new(e->context);
  SSL_set_fd(e->client, e->fd);
  assert_int_equal(SSL_connect(e->client), 1);
  *state = e;
  return 0;
}

static int tear_down(void **state)
{
  ends *e = *state;
  SSL_free(e->client);
  SSL_CTX_free(e->context);
  close(e->fd);
  echo_stop(&e->server);
  authority_fini(&e->authority);
  unlink(e->path);
  free(e);
  return 0;
}

static void send_at(ends *e, size_t at, size_t size)
{
  assert_int_equal(SSL_write(e->client, e->data + at, (int)size), size);
}

static void add_update(ends *e, uint32_t credit)
{
  e->size += frame(e->data + e->size, 4, NGHTTP2_WINDOW_UPDATE, 0, 0);
  for (int shift = 24; shift >= 0; shift -= 8) e->data[e->size++] = (uint8_t)(credit >> shift);
}

static void add_request(ends *e, const void *headers, size_t size, uint32_t stream)
{
  e->size += frame(e->data + e->size, size, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, stream);
  memcpy(e->data + e->size, headers, size);
  e->size += size;
}

static rv_session *session_of(const ends *e)
{
  return RV_CONTAINER(rv_grpc_server_loop(e->server.grpc, 0)->connections.next, rv_session, link);
}

static void see_whether_blocked(void *argument)
{
  ends *e = argument;
  rv_session *session = session_of(e);
  e->blocked = session->write_blocked && session->counted_unsent == e->unsent;
  e->unsent = session->counted_unsent;
  set_room(session->transport.fd, SO_RCVBUF, 1 << 19);
  rv_session_touch(session); /* there may be room of which the system does not tell, since it is little */
}

/* The system takes as much at once as it has seen come. */
static void widen(ends *e)
{
  e->size = frame(e->data, 16000, UNKNOWN, 0, 0) + 16000;
  for (int i = 0; i < 64; i++) send_at(e, 0, e->size);
}

/* An answer of 8 MiB, which nobody reads as yet; and a request whose headers are remembered. */
static void fill_the_socket(ends *e)
{
  static const char first[] = "\x83\x86\x44\3/no\x41\1x\x5f\x10"
                              "application/grpc";
  memcpy(e->data, preface, PREFACE - 9);
  e->size = PREFACE - 9;
  e->size += frame(e->data + e->size, 6, NGHTTP2_SETTINGS, 0, 0);
  memcpy(e->data + e->size, "\0\4\x7f\xff\xff\xff", 6); /* the window of each stream */
  e->size += 6;
  e->size += frame(e->data + e->size, 0, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0);
  send_at(e, 0, e->size);
  widen(e);
  e->size = 0;
  add_update(e, 1U << 30);
  add_request(e, first, sizeof first - 1, 1);
  const size_t at = e->size;
  e->size += request(e->data + at, "/echo/source", 3, NGHTTP2_FLAG_END_HEADERS);
  e->size += header(e->data + e->size, "echo-count", "8");
  e->size += header(e->data + e->size, "echo-size", "1048576");
  frame(e->data + at, e->size - at - 9, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 3);
  e->size += frame(e->data + e->size, 5, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 3);
  memset(e->data + e->size, 0, 5);
  e->size += 5;
  send_at(e, 0, e->size);
  do { /* what the client sends says, too, what has come to it, which makes room */
    e->size = 0;
    add_update(e, 1);
    send_at(e, 0, e->size);
    usleep(10000);
    rv_loop_call(rv_grpc_server_loop(e->server.grpc, 0), see_whether_blocked, e);
  } while (!e->blocked);
}

static void send_all_at_once(void *argument)
{
  ends *e = argument;
  send_at(e, 0, FIRST_RECORD);
  send_at(e, FIRST_RECORD, e->size - FIRST_RECORD);
}

static void see_whether_taken(void *argument)
{
  ends *e = argument;
  int left;
  assert_int_equal(ioctl(session_of(e)->transport.fd, FIONREAD, &left), 0);
  e->taken = left == 0;
}

static void read_whole(ends *e, uint8_t *to, size_t size)
{
  for (size_t have = 0; have < size;) {
    int n = SSL_read(e->client, to + have, (int)(size - have));
    assert_true(n > 0);
    have += (size_t)n;
  }
}

/* The stream that a frame is of; what else it has is left out. */
static uint32_t read_one(ends *e)
{
  static uint8_t payload[1 << 20];
  uint8_t head[9];
  read_whole(e, head, 9);
  size_t size = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
  assert_true(size <= sizeof payload);
  read_whole(e, payload, size);
  return head[3] == NGHTTP2_HEADERS ? (uint32_t)head[6] << 16 | (uint32_t)head[7] << 8 | head[8] : 0;
}

static void a_request_behind_many_whose_answers_wait_is_answered(void **state)
{
  ends *e = *state;
  fill_the_socket(e);
  e->size = 0;
  for (int i = 0; i < UPDATES; i++) add_update(e, 1);
  e->size += frame(e->data + e->size, 10, UNKNOWN, 0, 0) + 10; /* so that all is as long as a read */
  uint32_t stream = 5;
  for (int i = 0; i < REQUESTS; i++, stream += 2) add_request(e, "\x83\x86\xc0\xbf\xbe", 5, stream);
  assert_true(e->size > READ && e->size <= READ + 14);
  rv_loop_call(rv_grpc_server_loop(e->server.grpc, 0), send_all_at_once, e);
  while (!e->taken) rv_loop_call(rv_grpc_server_loop(e->server.grpc, 0), see_whether_taken, e);
  rv_loop_call(rv_grpc_server_loop(e->server.grpc, 0), see_whether_taken, e); /* what it has put off is done, too */
  while (read_one(e) != stream - 2) continue;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_request_behind_many_whose_answers_wait_is_answered, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
