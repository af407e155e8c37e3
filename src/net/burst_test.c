/* A peer may have thousands of calls on their way at once. As long as it reads, they are answered as they are read, and none of them is taken
 * for one that has waited; but it does not keep others waiting. */
#include "net/burst_testing.h"
#include "net/session.h"

enum { CALLS = 600 };
_Static_assert(CALLS > 2 * RV_SERVER_OUTBOUND_FRAMES, "their answers are to be more than may wait for a peer that does not read");

typedef struct burst_read {
  raw_burst *burst;
  rv_loop *loop;
  bool emptied;
} burst_read;

static void send_and_read(void *argument)
{
  burst_read *read = argument;
  send_on_loop(read->burst);
  rv_session *session = RV_CONTAINER(read->loop->connections.next, rv_session, link);
  rv_session_receive(session);
  read->emptied = session->emptied;
}

/* Until the server has answered so many calls, each with "hello". */
static void read_answers(int fd, size_t calls)
{
  uint8_t head[9], payload[16384];
  for (size_t answers = 0, ends = 0; answers < calls || ends < calls;) {
    int64_t size = read_frame(fd, head, payload, sizeof payload);
    assert_true(size >= 0);
    assert_int_not_equal(head[3], NGHTTP2_RST_STREAM);
    assert_int_not_equal(head[3], NGHTTP2_GOAWAY);
    ends += head[3] == NGHTTP2_HEADERS && (head[4] & NGHTTP2_FLAG_END_STREAM) != 0;
    if (head[3] != NGHTTP2_DATA) continue;
    assert_int_equal(size, HELLO);
    assert_memory_equal(payload, hello, HELLO);
    answers++;
  }
}

/* A server, and a connection to it that it knows of. */
static int greet(const socket_place *place, echo_server *server)
{
  echo_start(server, place->address, 1);
  int fd = place_connect(place);
  assert_true(send_raw(fd, preface, PREFACE));
  uint8_t head[9], payload[16384];
  do assert_true(read_frame(fd, head, payload, sizeof payload) >= 0);
  while (head[3] != NGHTTP2_SETTINGS);
  return fd;
}

static raw_burst *burst_of_settings(int fd)
{
  raw_burst *burst = burst_new(fd);
  burst->size = frame(burst->data, 0, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0);
  return burst;
}

static void add_call(raw_burst *burst, uint32_t stream)
{
  assert_true(burst->size + 256 <= BURST);
  burst->size += request(burst->data + burst->size, "/echo/unary", stream, NGHTTP2_FLAG_END_HEADERS);
  add_data(burst, stream, NGHTTP2_FLAG_END_STREAM, hello, HELLO, HELLO);
}

/* In one turn; was that all? */
static bool read_in_one_turn(const echo_server *server, raw_burst *owned_burst)
{
  burst_read read = {.burst = owned_burst, .loop = rv_grpc_server_loop(server->grpc, 0)};
  rv_loop_call(read.loop, send_and_read, &read);
  assert_int_equal(owned_burst->sent, owned_burst->size);
  free(owned_burst);
  return read.emptied;
}

static void a_burst_of_calls_is_read_and_answered_in_one_turn(void **state)
{
  (void)state;
  socket_place place;
  place_init(&place);
  echo_server server;
  int fd = greet(&place, &server);
  raw_burst *burst = burst_of_settings(fd);
  for (uint32_t i = 0; i < CALLS; i++) add_call(burst, 2 * i + 1);
  assert_true(read_in_one_turn(&server, burst));
  read_answers(fd, CALLS);
  close(fd);
  echo_stop(&server);
  place_fini(&place);
}

/* Each takes as long as a large one: others would wait for as long as megabytes of them take. */
static void who_sends_thousands_of_small_frames_lets_others_have_their_turn(void **state)
{
  (void)state;
  socket_place place;
  place_init(&place);
  echo_server server;
  int fd = greet(&place, &server);
  raw_burst *burst = burst_of_settings(fd);
  while (burst->size + 512 <= BURST) {
    burst->size += frame(burst->data + burst->size, 4, NGHTTP2_WINDOW_UPDATE, 0, 0);
    burst->data[burst->size + 3] = 1;
    burst->size += 4;
  }
  add_call(burst, 1);
  assert_false(read_in_one_turn(&server, burst));
  read_answers(fd, 1); /* the rest is read in turns to come */
  close(fd);
  echo_stop(&server);
  place_fini(&place);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_burst_of_calls_is_read_and_answered_in_one_turn),
                                     cmocka_unit_test(who_sends_thousands_of_small_frames_lets_others_have_their_turn)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
