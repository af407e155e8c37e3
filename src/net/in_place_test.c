/* Large messages are received in place, in a buffer of their call's. Where HTTP/2 lets the rest of a frame be ignored, what comes behind it
 * is no part of that message: the call may end, and its buffer go, while it is read. */
#include "net/echo_testing.h"

#include "base/random.h"
#include "net/burst_testing.h"

/* The message is announced in the first frame, and larger than a buffer that would be kept when it is given back. The second frame is
 * ignored, since both together are longer than the headers said, and it takes more than one read. */
enum { BEGINNING = 100, IGNORED = 100000 };
static const uint8_t begins[] = "\0\0\x20\0\0";

/* A message begins; the rest of what comes for it is ignored; the call is taken back. */
static void add_ignored(raw_burst *to, uint32_t stream)
{
  add_data(to, stream, 0, begins, sizeof begins - 1, BEGINNING);
  add_data(to, stream, 0, NULL, 0, IGNORED);
  to->size += frame(to->data + to->size, 4, NGHTTP2_RST_STREAM, 0, stream);
  to->data[to->size + 3] = NGHTTP2_CANCEL;
  to->size += 4;
}

/* The header is the last of the HEADERS frame, which begins at `at`. */
static void add_length(raw_burst *to, size_t at, uint32_t stream, size_t length)
{
  char text[24];
  snprintf(text, sizeof text, "%zu", length);
  to->size += header(to->data + to->size, "content-length", text);
  frame(to->data + at, to->size - at - 9, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, stream);
}

static void a_server_answers_what_came_behind_ignored_data(void **state)
{
  (void)state;
  socket_place place;
  place_init(&place);
  echo_server server;
  echo_start(&server, place.address, 1);
  int fd = place_connect(&place);

  raw_burst *burst = burst_new(fd);
  memcpy(burst->data, preface, PREFACE);
  burst->size = PREFACE;
  burst->size += frame(burst->data + burst->size, 0, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0);
  size_t at = burst->size;
  burst->size += request(burst->data + at, "/echo/stream", 1, NGHTTP2_FLAG_END_HEADERS);
  add_length(burst, at, 1, BEGINNING);
  add_ignored(burst, 1);
  burst->size += request(burst->data + burst->size, "/echo/unary", 3, NGHTTP2_FLAG_END_HEADERS);
  add_data(burst, 3, NGHTTP2_FLAG_END_STREAM, hello, HELLO, HELLO);
  send_burst(burst, rv_grpc_server_loop(server.grpc, 0));

  uint8_t head[9], payload[16384];
  int64_t size;
  do {
    size = read_frame(fd, head, payload, sizeof payload);
    assert_true(size >= 0);
  } while (head[3] != NGHTTP2_DATA);
  assert_int_equal(head[8], 3);
  assert_int_equal(size, HELLO);
  assert_memory_equal(payload, hello, HELLO);
  close(fd);
  echo_stop(&server);
  place_fini(&place);
}

static size_t response(uint8_t *to, uint32_t stream)
{
  size_t n = 9;
  n += header(to + n, ":status", "200");
  n += header(to + n, "content-type", "application/grpc");
  frame(to, n - 9, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, stream);
  return n;
}

static void a_client_hears_what_came_behind_ignored_data(void **state)
{
  (void)state;
  socket_place place;
  place_init(&place);
  int listener = place_listen(&place);
  echo_client client;
  client_open(&client, place.address);
  test_call broken, call;
  call_init(&broken, &client, "/echo/stream");
  call_init(&call, &client, "/echo/stream");
  call_start(&broken);
  call_start(&call);

  int fd = accept_without_question(listener);
  uint8_t head[9], payload[16384];
  assert_true(send_raw(fd, preface + NGHTTP2_CLIENT_MAGIC_LEN, PREFACE - NGHTTP2_CLIENT_MAGIC_LEN));
  assert_int_equal(recv(fd, payload, NGHTTP2_CLIENT_MAGIC_LEN, MSG_WAITALL), NGHTTP2_CLIENT_MAGIC_LEN);
  do assert_true(read_frame(fd, head, payload, sizeof payload) >= 0);
  while (head[3] != NGHTTP2_HEADERS || head[8] != 3);

  raw_burst *burst = burst_new(fd);
  burst->size = frame(burst->data, 0, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0);
  size_t at = burst->size;
  burst->size += response(burst->data + at, 1);
  add_length(burst, at, 1, BEGINNING);
  add_ignored(burst, 1);
  burst->size += response(burst->data + burst->size, 3);
  add_data(burst, 3, 0, hello, HELLO, HELLO);
  size_t trailers = header(burst->data + burst->size + 9, "grpc-status", "0");
  burst->size +=
      frame(burst->data + burst->size, trailers, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, 3) +
      trailers;
  send_burst(burst, client.loop);

  call_wait(&call);
  assert_int_equal(call.code, RV_OK);
  assert_int_equal(call.messages, 1);
  assert_string_equal(call.text, "hello");
  call_wait(&broken);
  assert_int_not_equal(broken.code, RV_OK);
  assert_int_equal(broken.messages, 0);
  close(fd);
  close(listener);
  client_close(&client);
  call_fini(&broken);
  call_fini(&call);
  place_fini(&place);
}

/* ---- whatever comes ---- */

static uint32_t add_request(raw_burst *to, rv_random *random, uint32_t stream)
{
  static const char *const paths[] = {"/echo/stream", "/echo/pause", "/echo/unary", "/echo/hang", "/echo/slow", "/echo/cancel"};
  size_t at = to->size;
  to->size += request(to->data + at, paths[rv_random_below(random, 6)], stream, NGHTTP2_FLAG_END_HEADERS);
  if (rv_random_below(random, 2) == 0) add_length(to, at, stream, rv_random_below(random, 2 * IGNORED));
  return stream + 2;
}

/* Of a message that begins, or goes on, or is too long for its headers. */
static void add_random_data(raw_burst *to, rv_random *random, uint32_t stream, size_t most)
{
  size_t size = rv_random_below(random, rv_random_below(random, 3) > 0 ? 100000 : 300);
  if (size > most) size = most;
  bool padded = size > 0 && rv_random_below(random, 5) == 0;
  uint32_t announced = rv_random_below(random, 3) > 0 ? 2 << 20 : rv_random_below(random, 200000);
  uint8_t beginning[] = {(uint8_t)rv_random_below(random, size < 256 ? (uint32_t)size + 1 : 256),
                         0,
                         (uint8_t)(announced >> 24),
                         (uint8_t)(announced >> 16),
                         (uint8_t)(announced >> 8),
                         (uint8_t)announced};
  size_t first = padded ? 0 : 1;
  bool begins_here = size >= sizeof beginning && rv_random_below(random, 2) == 0;
  uint8_t flags = (uint8_t)((padded ? NGHTTP2_FLAG_PADDED : 0) | (rv_random_below(random, 8) == 0 ? NGHTTP2_FLAG_END_STREAM : 0));
  add_data(to, stream, flags, beginning + first, begins_here ? sizeof beginning - first : padded ? 1 : 0, size);
}

/* Frames that a client may send, in any order, on streams that are open or were; large ones so that reads end within them. */
static uint32_t fill_burst(raw_burst *to, rv_random *random, uint32_t next)
{
  while (to->size < IGNORED) {
    uint32_t kind = rv_random_below(random, 12),
             stream = next > 1 ? next - 2 - 2 * rv_random_below(random, next < 9 ? next / 2 : 4) : 1;
    if (next == 1 || kind < 3) {
      next = add_request(to, random, next);
    } else if (kind < 9) {
      add_random_data(to, random, stream, BURST - 1000 - to->size);
    } else if (kind == 9) {
      to->size += frame(to->data + to->size, 4, NGHTTP2_RST_STREAM, 0, stream);
      to->data[to->size + 3] = NGHTTP2_CANCEL;
      to->size += 4;
    } else { /* of a type that nobody knows */
      size_t size = rv_random_below(random, 200);
      to->size += frame(to->data + to->size, size, 0xEE, 0, stream) + size;
    }
  }
  return next;
}

static void whatever_comes_in_large_frames_the_server_goes_on(void **state)
{
  (void)state;
  const char *given = getenv("RV_TEST_SEED");
  uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 1;
  printf("seed %llu\n", (unsigned long long)seed);
  rv_random random;
  rv_random_init(&random, seed);
  socket_place place;
  place_init(&place);
  echo_server server;
  echo_start(&server, place.address, 1);
  for (int connection = 0; connection < 100; connection++) {
    int fd = place_connect(&place);
    assert_true(send_raw(fd, preface, PREFACE));
    uint8_t acknowledged[9];
    assert_true(send_raw(fd, acknowledged, frame(acknowledged, 0, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0)));
    uint32_t next = 1;
    for (int i = 0; i < 6; i++) {
      raw_burst *burst = burst_new(fd);
      next = fill_burst(burst, &random, next);
      rv_loop_call(rv_grpc_server_loop(server.grpc, 0), send_on_loop, burst);
      bool all = burst->sent == (ssize_t)burst->size;
      free(burst);
      if (!all) break; /* the server reads no more, or has closed */
    }
    close(fd);
  }
  echo_client client;
  client_open(&client, place.address);
  assert_int_equal(call_unary(&client, "/echo/unary", "hello", NULL), RV_OK);
  client_close(&client);
  echo_stop(&server);
  place_fini(&place);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_server_answers_what_came_behind_ignored_data),
      cmocka_unit_test(a_client_hears_what_came_behind_ignored_data),
      cmocka_unit_test(whatever_comes_in_large_frames_the_server_goes_on),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
