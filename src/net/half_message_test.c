/* Messages of which a part has come, and the rest does not: what a server's connections have of them together is bounded. */
#include "net/echo_testing.h"

#include "net/raw_testing.h"
#include "net/session.h"

enum { WHOLE = 20 << 20, HALF = 12 << 20, FRAME = 16 << 10, LITTLE = 1 << 20 };

static void start(echo_server *server, size_t memory_limit, int64_t peer_timeout_ms)
{
  static const char *const address = "127.0.0.1:0";
  memset(server, 0, sizeof *server);
  rv_mutex_init(&server->lock, RV_RANK_CLIENT, "echo server");
  rv_cond_init(&server->changed);
  rv_grpc_server_config config = {.addresses = &address,
                                  .num_addresses = 1,
                                  .io_threads = 2,
                                  .memory_limit = memory_limit,
                                  .peer_timeout_ms = peer_timeout_ms,
                                  .on_call = echo_on_call,
                                  .context = server};
  assert_int_equal(rv_grpc_server_new(&config, &server->grpc, NULL), RV_OK);
}

static void send_part(int fd, size_t size)
{
  static uint8_t bytes[9 + FRAME];
  for (size_t n; size > 0; size -= n) {
    n = size < FRAME ? size : FRAME;
    frame(bytes, n, NGHTTP2_DATA, 0, 1);
    assert_true(send_raw(fd, bytes, 9 + n));
  }
}

/* A call whose message has come as far as HALF; the server has given credit for the rest of it. */
static int begin_message(const echo_server *server)
{
  int fd = connect_port(rv_grpc_server_port(server->grpc, 0));
  uint8_t bytes[400], head[9], payload[1024];
  send_raw(fd, preface, PREFACE);
  size_t n = frame(bytes, 0, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0); /* for credit goes by the settings that were acknowledged */
  n += request(bytes + n, "/echo/hang", 1, 4);
  n += frame(bytes + n, 5, NGHTTP2_DATA, 0, 1);
  memcpy(bytes + n, (const uint8_t[5]){0, WHOLE >> 24, WHOLE >> 16 & 255, WHOLE >> 8 & 255, WHOLE & 255}, 5);
  send_raw(fd, bytes, n + 5);
  do assert_true(read_frame(fd, head, payload, sizeof payload) >= 0);
  while (head[3] != NGHTTP2_WINDOW_UPDATE || head[8] != 1);
  send_part(fd, HALF);
  return fd;
}

static void a_half_message_that_stalls_ends_where_connections_have_too_much_and_one_that_comes_does_not(void **state)
{
  (void)state;
  echo_server server;
  start(&server, LITTLE, 6000);
  int stalls = begin_message(&server), comes = begin_message(&server);
  size_t left = WHOLE - HALF;
  for (; left > FRAME && echo_count(&server, &server.closed) == 0; left -= FRAME) {
    send_part(comes, FRAME);
    usleep(50000);
  }
  echo_wait(&server, &server.closed_by_code[RV_UNAVAILABLE], 1);
  assert_int_equal(echo_count(&server, &server.closed), 1);
  send_part(comes, left);
  echo_wait(&server, &server.messages, 1);
  close(stalls);
  close(comes);
  echo_stop(&server);
}

/* Whoever is slow, on a slow network, is not in the way. */
static void a_half_message_that_stalls_stays_where_there_is_memory(void **state)
{
  (void)state;
  echo_server server;
  start(&server, LITTLE, 3000);
  int fd = begin_message(&server);
  sleep(4); /* four looks */
  send_part(fd, WHOLE - HALF);
  echo_wait(&server, &server.messages, 1);
  close(fd);
  echo_stop(&server);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_half_message_that_stalls_ends_where_connections_have_too_much_and_one_that_comes_does_not),
      cmocka_unit_test(a_half_message_that_stalls_stays_where_there_is_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
