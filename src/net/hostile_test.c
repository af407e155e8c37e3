/* Peers that break the rules: each ends its own call or connection, with the right code, and no other. */
#include "net/echo_testing.h"

#include <fcntl.h>
#include <nghttp2/nghttp2.h>

#include "base/env.h"
#include "base/random.h"
#include "net/raw_testing.h"
#include "net/session.h"

typedef struct world {
  echo_server server;
  echo_client client;
  test_call witness; /* a stream on another connection, open all the time */
  size_t steps;
} world;

/* Who is served late, on a busy machine, is served all the same: he does not take the server for dead. */
static void open_patiently(echo_client *client, const echo_server *server)
{
  client_open_server(client, server);
  rv_channel_free(client->channel);
  rv_channel_config config = {.loop = client->loop, .address = client->address, .peer_timeout_ms = -1};
  assert_int_equal(rv_channel_new(&config, &client->channel, NULL), RV_OK);
}

static int set_up(void **state)
{
  world *w = calloc(1, sizeof *w);
  echo_start(&w->server, "127.0.0.1:0", 1);
  open_patiently(&w->client, &w->server);
  call_init(&w->witness, &w->client, "/echo/stream");
  call_start(&w->witness);
  *state = w;
  return 0;
}

/* The witness's stream still answers. */
static void others_go_on(world *w)
{
  call_send(&w->witness, "still here", 10);
  call_wait_messages(&w->witness, ++w->steps);
  if (w->witness.closed) fail_msg("the witness's call ended with %d: %s", (int)w->witness.code, w->witness.message);
}

static int tear_down(void **state)
{
  world *w = *state;
  others_go_on(w);
  call_half_close(&w->witness);
  call_wait(&w->witness);
  assert_int_equal(w->witness.code, RV_OK);
  call_fini(&w->witness);
  client_close(&w->client);
  echo_stop(&w->server);
  free(w);
  return 0;
}

/* ---- raw bytes ---- */

static int connect_raw(const world *w)
{
  return connect_port(rv_grpc_server_port(w->server.grpc, 0));
}

static void garbage_ends_only_its_own_connection(void **state)
{
  world *w = *state;
  for (uint64_t seed = 1; seed <= 60; seed++) {
    rv_random random;
    rv_random_init(&random, seed);
    uint8_t bytes[4096];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)rv_random_next(&random);
    int fd = connect_raw(w);
    if (seed % 3 != 0) send_raw(fd, preface, PREFACE - (seed % 3 == 2 ? rv_random_below(&random, 20) : 0));
    send_raw(fd, bytes, rv_random_below(&random, sizeof bytes));
    end_raw(fd);
    if (seed % 10 == 0) others_go_on(w);
  }
}

static void random_frames_end_only_their_own_connection(void **state)
{
  world *w = *state;
  for (uint64_t seed = 1; seed <= 150; seed++) {
    rv_random random;
    rv_random_init(&random, seed);
    int fd = connect_raw(w);
    send_raw(fd, preface, PREFACE);
    uint8_t bytes[1200];
    for (int i = 0; i < 40; i++) {
      size_t n;
      if (rv_random_below(&random, 3) == 0) {
        n = request(bytes, rv_random_below(&random, 2) == 0 ? "/echo/stream" : "/echo/unary", 2U * (unsigned)i + 1, 4);
        if (rv_random_below(&random, 4) == 0)
          bytes[9 + rv_random_below(&random, (uint32_t)n - 9)] ^= (uint8_t)(1U << rv_random_below(&random, 8));
      } else {
        n = rv_random_below(&random, 60);
        for (size_t k = 0; k < n; k++) bytes[9 + k] = (uint8_t)rv_random_next(&random);
        if (n >= 5 && rv_random_below(&random, 2) == 0) memcpy(bytes + 9, "\0\0\0\0\x09", 5);
        size_t lie = rv_random_below(&random, 10) == 0 ? rv_random_below(&random, 70) : n;
        n += frame(bytes, lie, (uint8_t)rv_random_below(&random, 11), (uint8_t)(1U << rv_random_below(&random, 8)),
                   rv_random_below(&random, 2U * (unsigned)i + 2));
      }
      if (!send_raw(fd, bytes, n)) break;
    }
    end_raw(fd);
    if (seed % 25 == 0) others_go_on(w);
  }
}

static void truncated_requests_end_only_their_own_connection(void **state)
{
  world *w = *state;
  uint8_t whole[400];
  memcpy(whole, preface, PREFACE);
  size_t size = PREFACE + request(whole + PREFACE, "/echo/unary", 1, 4);
  size += frame(whole + size, 10, NGHTTP2_DATA, 1, 1);
  memcpy(whole + size, "\0\0\0\0\5hello", 10);
  size += 10;
  for (size_t n = 0; n <= size; n += 3) {
    int fd = connect_raw(w);
    send_raw(fd, whole, n);
    end_raw(fd);
  }
  int fd = connect_raw(w); /* and a connection that is dropped */
  send_raw(fd, whole, size - 4);
  struct linger hard = {.l_onoff = 1};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  close(fd);
}

static void endless_continuation_frames_end_the_connection(void **state)
{
  world *w = *state;
  int fd = connect_raw(w);
  uint8_t bytes[300];
  send_raw(fd, preface, PREFACE);
  send_raw(fd, bytes, request(bytes, "/echo/unary", 1, 0)); /* no END_HEADERS */
  bool open = true;
  for (int i = 0; open && i < 100000; i++) {
    size_t n = 9 + header(bytes + 9, "name", "value");
    frame(bytes, n - 9, NGHTTP2_CONTINUATION, 0, 1);
    open = send_raw(fd, bytes, n);
  }
  read_to_end(fd);
  close(fd);
}

static void pings_that_are_not_read_end_the_connection(void **state)
{
  world *w = *state;
  int fd = connect_raw(w);
  int small = 4096;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  send_raw(fd, preface, PREFACE);
  uint8_t pings[17 * 1000];
  for (size_t i = 0; i < 1000; i++) {
    memset(pings + i * 17, 0, 17);
    frame(pings + i * 17, 8, NGHTTP2_PING, 0, 0);
  }
  for (int i = 0; i < 10000; i++)
    if (!send_raw(fd, pings, sizeof pings)) break; /* 170 MB would have to be answered by as many */
  close(fd);
}

/* As much as the other end takes, of a flood that goes on until it takes no more, in which time `w` answers others. */
static void flood(world *w, int fd, const uint8_t *bytes, size_t size)
{
  fcntl(fd, F_SETFL, O_NONBLOCK);
  size_t at = 0;
  for (int quiet = 0; at < size && quiet < 50;) {
    ssize_t n = send(fd, bytes + at, size - at, MSG_NOSIGNAL);
    quiet = n > 0 ? 0 : quiet + 1;
    if (n > 0) at += (size_t)n;
    others_go_on(w);
  }
}

static void answers_that_are_not_read_wait_in_small_numbers(void **state)
{
  enum { REQUESTS = 60000, ROOM = 130 };
  world *w = *state;
  uint8_t *bytes = malloc(PREFACE + (size_t)REQUESTS * ROOM);
  memcpy(bytes, preface, PREFACE);
  size_t size = PREFACE;
  for (uint32_t i = 0; i < REQUESTS; i++) size += request(bytes + size, "/echo/refuse", 2 * i + 1, 4);
  assert_true(size <= PREFACE + (size_t)REQUESTS * ROOM);
  int fd = socket(AF_INET, SOCK_STREAM, 0), small = 4096;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  struct sockaddr_in name = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons(rv_grpc_server_port(w->server.grpc, 0))};
  assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof name), 0);
  flood(w, fd, bytes, size);
  size_t opened = echo_count(&w->server, &w->server.opened), closed = echo_count(&w->server, &w->server.closed);
  assert_true(opened < REQUESTS); /* the rest was not answered, nor read */
  assert_true(opened - closed < 1000);
  uint8_t *answers = malloc(1 << 20); /* and when it reads, the rest is */
  fcntl(fd, F_SETFL, 0);
  while (echo_count(&w->server, &w->server.opened) == opened) assert_true(recv(fd, answers, 1 << 20, 0) > 0);
  free(answers);
  free(bytes);
  close(fd);
}

static void a_flood_of_resets_ends_the_connection_but_thousands_do_not(void **state)
{
  world *w = *state;
  rv_env env;
  rv_env_default(&env);
  int fd = connect_raw(w);
  send_raw(fd, preface, PREFACE);
  uint8_t bytes[400];
  int64_t begin = rv_monotonic_ns(&env);
  for (uint32_t stream = 1; stream < 2 * 100000; stream += 2) {
    size_t n = request(bytes, "/echo/hang", stream, 4);
    n += frame(bytes + n, 4, NGHTTP2_RST_STREAM, 0, stream);
    memcpy(bytes + n, "\0\0\0\x08", 4);
    if (!send_raw(fd, bytes, n + 4)) break;
  }
  const bool told = end_raw(fd) != -1;
  size_t opened = echo_count(&w->server, &w->server.opened);
  int64_t seconds = (rv_monotonic_ns(&env) - begin) / 1000000000 + 2;
  bool slow = RV_RESET_BURST + seconds * RV_RESETS_PER_SECOND >= 99000; /* on a busy machine it is no flood */
  assert_true(opened > RV_RESET_BURST);
  assert_true(slow || (told && opened < 99000));
}

static void more_than_the_window_resets_the_stream(void **state)
{
  world *w = *state;
  int fd = connect_raw(w);
  send_raw(fd, preface, PREFACE);
  uint8_t bytes[9 + 16384] = {0};
  send_raw(fd, bytes, request(bytes, "/echo/pause", 1, 4));
  memset(bytes, 0, sizeof bytes);
  frame(bytes, 16384, NGHTTP2_DATA, 0, 1); /* messages of no bytes: the first pauses the call */
  bool open = true;
  for (int i = 0; open && i < 4 * 64; i++) open = send_raw(fd, bytes, sizeof bytes); /* four windows */
  shutdown(fd, SHUT_WR);
  uint8_t reply[4096];
  bool reset = false;
  size_t have = 0;
  for (ssize_t n; have < sizeof reply && (n = recv(fd, reply + have, sizeof reply - have, 0)) > 0;) have += (size_t)n;
  for (size_t at = 0; at + 13 <= have; at += 9 + ((size_t)reply[at] << 16 | (size_t)reply[at + 1] << 8 | reply[at + 2]))
    if (reply[at + 3] == NGHTTP2_RST_STREAM && reply[at + 12] == NGHTTP2_FLOW_CONTROL_ERROR) reset = true;
  assert_true(reset || !open);
  close(fd);
}

/* ---- right HTTP/2, wrong gRPC: with nghttp2 as the client ---- */

typedef struct answer {
  char status[8], grpc_status[8], grpc_message[200], accept[64];
  uint32_t closed_by;
  bool closed, data_sent;
  const uint8_t *body;
  size_t body_size;
} answer;

static int on_answer_header(nghttp2_session *session, const nghttp2_frame *frame_, const uint8_t *name, size_t name_size,
                            const uint8_t *value, size_t value_size, uint8_t flags, void *user)
{
  (void)session, (void)frame_, (void)name_size, (void)value_size, (void)flags;
  answer *to = user;
  if (strcmp((const char *)name, ":status") == 0) snprintf(to->status, sizeof to->status, "%.7s", (const char *)value);
  if (strcmp((const char *)name, "grpc-status") == 0)
    snprintf(to->grpc_status, sizeof to->grpc_status, "%.7s", (const char *)value);
  if (strcmp((const char *)name, "grpc-message") == 0)
    snprintf(to->grpc_message, sizeof to->grpc_message, "%.199s", (const char *)value);
  if (strcmp((const char *)name, "grpc-accept-encoding") == 0)
    snprintf(to->accept, sizeof to->accept, "%.63s", (const char *)value);
  return 0;
}

static int on_answer_closed(nghttp2_session *session, int32_t stream, uint32_t code, void *user)
{
  (void)session, (void)stream;
  answer *to = user;
  to->closed = true;
  to->closed_by = code;
  return 0;
}

static ssize_t read_body(nghttp2_session *session, int32_t stream, uint8_t *to, size_t size, uint32_t *flags,
                         nghttp2_data_source *source, void *user)
{
  (void)session, (void)stream, (void)source;
  answer *from = user;
  size_t n = size < from->body_size ? size : from->body_size;
  memcpy(to, from->body, n);
  from->body += n;
  from->body_size -= n;
  if (from->body_size == 0) *flags |= NGHTTP2_DATA_FLAG_EOF;
  return (ssize_t)n;
}

static nghttp2_nv nv(const char *name, const char *value)
{
  return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name), strlen(value), 0};
}

/* Sends one request; `extra` replaces the header of its name or is added. */
static answer ask(const world *w, const char *path, const char *extra_name, const char *extra_value, const void *body,
                  size_t size)
{
  answer to = {.body = body, .body_size = size};
  nghttp2_session_callbacks *callbacks;
  nghttp2_session *session;
  assert_int_equal(nghttp2_session_callbacks_new(&callbacks), 0);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, on_answer_header);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_answer_closed);
  assert_int_equal(nghttp2_session_client_new(&session, callbacks, &to), 0);
  nghttp2_session_callbacks_del(callbacks);
  nghttp2_submit_settings(session, 0, NULL, 0);
  nghttp2_nv headers[] = {nv(":method", "POST"), nv(":scheme", "http"), nv(":path", path),
                          nv(":authority", "x"), nv("te", "trailers"),  nv("content-type", "application/grpc"),
                          nv("x-spare", "")};
  enum { COUNT = sizeof headers / sizeof headers[0] };
  bool replaced = false;
  for (size_t i = 0; extra_name != NULL && i < COUNT; i++)
    if (strcmp((char *)headers[i].name, extra_name) == 0) {
      headers[i] = nv(extra_name, extra_value);
      replaced = true;
    }
  if (extra_name != NULL && !replaced) headers[COUNT - 1] = nv(extra_name, extra_value);
  nghttp2_data_provider provider = {.read_callback = read_body};
  nghttp2_submit_request(session, NULL, headers, COUNT, &provider, NULL);
  int fd = connect_raw(w);
  while (!to.closed) {
    const uint8_t *out;
    for (ssize_t n; (n = nghttp2_session_mem_send(session, &out)) > 0;) assert_true(send_raw(fd, out, (size_t)n));
    if (to.closed) break;
    uint8_t in[4096];
    ssize_t n = recv(fd, in, sizeof in, 0);
    if (n <= 0) break;
    assert_int_equal(nghttp2_session_mem_recv(session, in, (size_t)n), n);
  }
  nghttp2_session_del(session);
  close(fd);
  return to;
}

static const uint8_t hello[] = "\0\0\0\0\5hello";
enum { HELLO = sizeof hello - 1 };

static void requests_that_are_no_grpc_get_an_http_status(void **state)
{
  world *w = *state;
  assert_string_equal(ask(w, "/echo/unary", NULL, NULL, hello, HELLO).grpc_status, "0");
  assert_string_equal(ask(w, "/echo/unary", ":method", "PUT", hello, HELLO).status, "405");
  assert_string_equal(ask(w, "/echo/unary", "content-type", "text/plain", hello, HELLO).status, "415");
  assert_string_equal(ask(w, "/echo/unary", "content-type", "application/grpc-web", hello, HELLO).status, "415");
  assert_string_equal(ask(w, "/echo/unary", "content-type", "application/grpc+proto", hello, HELLO).grpc_status, "0");
  assert_string_equal(ask(w, "/echo/unary", "trace-bin", "AAECAw==", hello, HELLO).grpc_status, "0");
}

static void compressed_messages_are_unimplemented(void **state)
{
  world *w = *state;
  answer to = ask(w, "/echo/unary", NULL, NULL, "\1\0\0\0\5hello", 10);
  assert_string_equal(to.grpc_status, "12");
  assert_string_equal(to.accept, "identity");
  assert_non_null(strstr(to.grpc_message, "supported encodings: identity"));
  to = ask(w, "/echo/unary", "grpc-encoding", "gzip", hello, HELLO);
  assert_string_equal(to.grpc_status, "12");
  assert_string_equal(to.accept, "identity");
  to = ask(w, "/echo/unary", "grpc-encoding", "identity", hello, HELLO);
  assert_string_equal(to.grpc_status, "0");
}

static void broken_messages_end_their_call(void **state)
{
  world *w = *state;
  assert_string_equal(ask(w, "/echo/stream", NULL, NULL, "\2\0\0\0\5hello", 10).grpc_status, "13");
  assert_string_equal(ask(w, "/echo/stream", NULL, NULL, "\0\0\0\0\6hello", 10).grpc_status, "13"); /* ends within it */
  assert_string_equal(ask(w, "/echo/stream", NULL, NULL, "\0\0\0", 3).grpc_status, "13");
  assert_string_equal(ask(w, "/echo/stream", NULL, NULL, "\0\xff\xff\xff\xff", 5).grpc_status, "8");
  assert_string_equal(ask(w, "/echo/stream", NULL, NULL, "", 0).grpc_status, "0");
}

static void timeouts_are_checked_and_kept(void **state)
{
  world *w = *state;
  assert_string_equal(ask(w, "/echo/unary", "grpc-timeout", "soon", hello, HELLO).grpc_status, "3");
  assert_string_equal(ask(w, "/echo/unary", "grpc-timeout", "123456789S", hello, HELLO).grpc_status, "3");
  assert_string_equal(ask(w, "/echo/unary", "grpc-timeout", "10S", hello, HELLO).grpc_status, "0");
  answer to = ask(w, "/echo/hang", "grpc-timeout", "20m", hello, HELLO);
  assert_string_equal(to.grpc_status, "4");
  assert_non_null(strstr(to.grpc_message, "Deadline Exceeded"));
  to = ask(w, "/echo/hang", "grpc-timeout", "0n", hello, HELLO);
  assert_string_equal(to.grpc_status, "4");
}

static void headers_are_bounded(void **state)
{
  world *w = *state;
  char *value = malloc(60001);
  memset(value, 'v', 60000);
  value[10000] = '\0';
  assert_string_equal(ask(w, "/echo/unary", "large", value, hello, HELLO).grpc_status, "0");
  value[10000] = 'v';
  value[30000] = '\0';
  assert_string_equal(ask(w, "/echo/unary", "large", value, hello, HELLO).grpc_status, "8");
  free(value);
  /* A small block that stands for many headers: a 4000-byte entry of the table, repeated. */
  uint8_t *bytes = calloc(1, 20000);
  size_t n = request(bytes, "/echo/unary", 1, 4);
  bytes[n++] = 0x40; /* a literal, indexed */
  bytes[n++] = 1;
  bytes[n++] = 'x';
  bytes[n++] = 0x7f;
  bytes[n++] = 0xa1; /* 127 + 33 + 128 * 30 = 4000 */
  bytes[n++] = 30;
  memset(bytes + n, 'v', 4000);
  n += 4000;
  memset(bytes + n, 0xbe, 8000); /* 8000 times the newest entry: 32 MB */
  n += 8000;
  frame(bytes, n - 9, NGHTTP2_HEADERS, 4, 1);
  int fd = connect_raw(w);
  send_raw(fd, preface, PREFACE);
  send_raw(fd, bytes, n);
  assert_int_equal(read_to_end(fd), NGHTTP2_ENHANCE_YOUR_CALM);
  close(fd);
  free(bytes);
}

static void what_is_not_http2_ends_with_a_protocol_error(void **state)
{
  world *w = *state;
  int fd = connect_raw(w);
  send_raw(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27);
  assert_int_equal(read_to_end(fd), NGHTTP2_PROTOCOL_ERROR);
  close(fd);
  fd = connect_raw(w);
  send_raw(fd, preface, PREFACE);
  uint8_t bytes[9];
  frame(bytes, 0, NGHTTP2_DATA, 0, 0); /* DATA on stream 0 */
  send_raw(fd, bytes, sizeof bytes);
  assert_int_equal(read_to_end(fd), NGHTTP2_PROTOCOL_ERROR);
  close(fd);
}

int main(void)
{
#define IN_WORLD(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      IN_WORLD(garbage_ends_only_its_own_connection),
      IN_WORLD(random_frames_end_only_their_own_connection),
      IN_WORLD(truncated_requests_end_only_their_own_connection),
      IN_WORLD(endless_continuation_frames_end_the_connection),
      IN_WORLD(pings_that_are_not_read_end_the_connection),
      IN_WORLD(answers_that_are_not_read_wait_in_small_numbers),
      IN_WORLD(a_flood_of_resets_ends_the_connection_but_thousands_do_not),
      IN_WORLD(more_than_the_window_resets_the_stream),
      IN_WORLD(requests_that_are_no_grpc_get_an_http_status),
      IN_WORLD(compressed_messages_are_unimplemented),
      IN_WORLD(broken_messages_end_their_call),
      IN_WORLD(timeouts_are_checked_and_kept),
      IN_WORLD(headers_are_bounded),
      IN_WORLD(what_is_not_http2_ends_with_a_protocol_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
