/* Connections over rings: that Reverie's own ends agree on them, that others are served without, and that a peer who shares memory with a
 * server can harm nobody but himself. */
#include "net/pair_testing.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>

#include "net/reader.h"
#include "net/ring_transport.h"

typedef struct setting {
  socket_place place;
  echo_server server;
} setting;

static int set_up(void **state)
{
  setting *at = calloc(1, sizeof *at);
  place_init(&at->place);
  echo_start(&at->server, at->place.address, 1);
  *state = at;
  return 0;
}

static int tear_down(void **state)
{
  setting *at = *state;
  echo_stop(&at->server);
  place_fini(&at->place);
  free(at);
  return 0;
}

static void check_answers(const socket_place *place)
{
  echo_client client;
  char answer[64];
  client_open(&client, place->address);
  assert_int_equal(call_unary(&client, "/echo/unary", "hello", answer), RV_OK);
  assert_string_equal(answer, "hello");
  client_close(&client);
}

/* ---- a peer of its own choice ---- */

typedef struct raw_peer {
  int fd;
  rv_rings rings;
} raw_peer;

static rv_rings_answer take_answer(raw_peer *peer, rv_arena *arena)
{
  struct pollfd at = {.fd = peer->fd, .events = POLLIN};
  assert_int_equal(poll(&at, 1, 30000), 1);
  rv_rings_answer answer = rv_rings_answer_read(peer->fd, arena, NULL, &peer->rings);
  peer->rings.out.bell = peer->rings.in.bell = peer->fd;
  return answer;
}

static rv_rings_answer ask_and_lend(raw_peer *peer, const socket_place *place, rv_arena *arena)
{
  int error;
  bool told;
  *peer = (raw_peer){.fd = place_connect(place)};
  while ((error = rv_rings_ask(peer->fd, arena, &told)) == EPERM) usleep(1000); /* it is not let in yet */
  assert_int_equal(error, 0);
  return take_answer(peer, arena);
}

static rv_rings_answer ask_for_rings(raw_peer *peer, const socket_place *place)
{
  return ask_and_lend(peer, place, NULL);
}

static void end(raw_peer *peer)
{
  close(peer->fd);
  rv_rings_unmap(&peer->rings);
}

static void say(raw_peer *peer, const void *data, size_t size)
{
  assert_int_equal(rv_ring_write(&peer->rings.out, &(struct iovec){(void *)(uintptr_t)data, size}, 1), size);
}

/* Until the server ends the connection. */
static void wait_for_end(const raw_peer *peer)
{
  char calls[64];
  ssize_t n;
  do {
    struct pollfd at = {.fd = peer->fd, .events = POLLIN};
    assert_int_equal(poll(&at, 1, 30000), 1);
    n = recv(peer->fd, calls, sizeof calls, 0);
  } while (n > 0);
}

/* ---- agreeing ---- */

static void nothing_is_shared_once_nobody_is_connected(void **state)
{
  (void)state;
  assert_int_equal(count_mappings(), 0); /* the tests before have ended all */
  void *connected;
  set_up_over_rings(&connected); /* and asserts that there are */
  tear_down_both(&connected);
  assert_int_equal(count_mappings(), 0);
}

static void no_more_than_so_many_have_rings(void **state)
{
  setting *at = *state;
  raw_peer *peers = calloc(RV_MOST_RINGS + 1, sizeof *peers);
  assert_non_null(peers);
  raw_peer *last = &peers[RV_MOST_RINGS];
  for (size_t i = 0; i < RV_MOST_RINGS; i++) assert_int_equal(ask_for_rings(&peers[i], &at->place), RV_RINGS_GIVEN);
  assert_int_equal(ask_for_rings(last, &at->place), RV_RINGS_DECLINED);
  assert_true(send_raw(last->fd, preface, PREFACE)); /* it is served over its socket */
  uint8_t head[9], payload[200];
  assert_true(read_frame(last->fd, head, payload, sizeof payload) >= 0);
  assert_int_equal(head[3], NGHTTP2_SETTINGS);
  check_answers(&at->place); /* so is whoever asks again */
  end(last);
  end(&peers[0]);
  while (ask_for_rings(&peers[0], &at->place) == RV_RINGS_DECLINED)
    end(&peers[0]); /* the server hears of the end in its own time */
  for (size_t i = 0; i < RV_MOST_RINGS; i++) end(&peers[i]);
  free(peers);
}

/* A server that knows nothing of rings, or gives what is none: by its number. */
typedef struct strange_server {
  int listener, how;
} strange_server;

enum { CLOSES, SAYS_SETTINGS, SAYS_NOTHING, GIVES_NOTHING, GIVES_WHAT_CAN_SHRINK, GIVES_A_SOCKET, NUM_STRANGE };

enum { MOST_GIVEN = 8 };

/* Says it with so many copies of a descriptor. */
static void give(int fd, const char *said, int what, size_t copies)
{
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(MOST_GIVEN * sizeof(int))] = {0};
  struct iovec vec = {.iov_base = (void *)(uintptr_t)said, .iov_len = strlen(said)};
  struct msghdr message = {
      .msg_iov = &vec, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(copies * sizeof(int))};
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(copies * sizeof(int));
  for (size_t i = 0; i < copies; i++) memcpy(CMSG_DATA(head) + i * sizeof what, &what, sizeof what);
  ssize_t n;
  while ((n = sendmsg(fd, &message, MSG_NOSIGNAL)) < 0 && errno == EPERM) usleep(1000); /* it is not let in yet */
  assert_int_equal(n, strlen(said));
}

static void *serve_strangely(void *argument)
{
  const strange_server *server = argument;
  int first = accept(server->listener, NULL, NULL), second;
  if (server->how == CLOSES) close(first);
  if (server->how == SAYS_SETTINGS) assert_true(send_raw(first, "\0\0\0\x04\0\0\0\0\0", 9));
  if (server->how == GIVES_NOTHING) assert_true(send_raw(first, "+", 1));
  if (server->how == GIVES_A_SOCKET) give(first, "+", first, 1);
  if (server->how == GIVES_WHAT_CAN_SHRINK) {
    int memory = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(memory, 8192 + 2 * RV_RING_BYTES), 0);
    give(first, "+", memory, 1);
    close(memory);
  }
  second = accept(server->listener, NULL, NULL);
  if (server->how != CLOSES) close(first);
  uint8_t head[9], payload[16384];
  assert_true(send_raw(second, "\0\0\0\x04\0\0\0\0\0", 9));
  assert_int_equal(recv(second, payload, NGHTTP2_CLIENT_MAGIC_LEN, MSG_WAITALL), NGHTTP2_CLIENT_MAGIC_LEN);
  assert_memory_equal(payload, "PRI * HTTP/2.0", 14);
  do assert_true(read_frame(second, head, payload, sizeof payload) >= 0);
  while (head[3] != NGHTTP2_HEADERS);
  return (void *)(intptr_t)second;
}

static void a_server_of_another_make_is_spoken_to_as_it_expects(void **state)
{
  (void)state;
  for (int how = 0; how < NUM_STRANGE; how++) {
    socket_place place;
    place_init(&place);
    strange_server server = {.listener = place_listen(&place), .how = how};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, serve_strangely, &server), 0);
    echo_client client;
    client_open(&client, place.address);
    test_call call;
    call_init(&call, &client, "/echo/unary");
    call_start(&call);
    void *connection;
    pthread_join(thread, &connection); /* it has the call */
    client_close(&client);
    call_wait(&call);
    assert_int_equal(call.code, RV_CANCELLED);
    call_fini(&call);
    close((int)(intptr_t)connection);
    close(server.listener);
    place_fini(&place);
  }
}

static size_t count_descriptors(void)
{
  size_t n = 0;
  for (int fd = 0; fd < 4096; fd++) n += fcntl(fd, F_GETFD) >= 0;
  return n;
}

/* What a client says it lends and does not is not looked at, and none of its descriptors stays. */
static void a_question_with_anything_is_answered(void **state)
{
  setting *at = *state;
  int ends[2], growing = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING),
               huge = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  assert_int_equal(pipe(ends), 0);
  assert_int_equal(ftruncate(growing, 1 << 20), 0);
  assert_int_equal(ftruncate(huge, INT64_MAX / 2), 0); /* more than any machine has */
  assert_int_equal(fcntl(huge, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  const int strange[] = {ends[0], growing, huge};
  size_t before = count_descriptors();
  for (size_t i = 0; i < 3 * MOST_GIVEN; i++) {
    raw_peer peer = {.fd = place_connect(&at->place)};
    give(peer.fd, "RVrings5", strange[i % 3], i / 3 + 1);
    assert_int_equal(take_answer(&peer, NULL), RV_RINGS_GIVEN);
    assert_int_equal(atomic_load(&peer.rings.out.head->borrows), 0);
    end(&peer);
  }
  raw_peer peer = {.fd = place_connect(&at->place)};
  give(peer.fd, preface, growing, MOST_GIVEN); /* no question */
  end(&peer);
  for (int tries = 0; count_descriptors() > before && tries < 30000; tries++)
    usleep(1000); /* it hears of the ends in its own time */
  assert_true(count_descriptors() <= before);
  close(ends[0]);
  close(ends[1]);
  close(growing);
  close(huge);
}

/* ---- what a client lends ---- */

typedef struct lender {
  raw_peer peer;
  rv_arena *arena;
  rv_spares *spares;
} lender;

static void lender_open(lender *one, const socket_place *place)
{
  rv_error error;
  if (rv_arena_new(64 << 20, &one->arena, &error) != RV_OK) fail_msg("%s", error.message);
  one->spares = rv_spares_new(0);
  rv_spares_use_arena(one->spares, one->arena);
  assert_int_equal(ask_and_lend(&one->peer, place, one->arena), RV_RINGS_GIVEN);
  say(&one->peer, preface, PREFACE);
}

static void lender_close(lender *one)
{
  end(&one->peer);
  rv_spares_close(one->spares);
  rv_arena_unref(one->arena);
}

enum { LENT = 12000 };

/* The whole call, whose message is lent. */
static void lender_call(lender *one)
{
  uint8_t begun[400];
  size_t size = request(begun, "/echo/unary", 1, NGHTTP2_FLAG_END_HEADERS);
  size += frame(begun + size, RV_MESSAGE_PREFIX + LENT, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1);
  const uint8_t prefix[RV_MESSAGE_PREFIX] = {0, 0, 0, LENT >> 8, LENT & 255};
  memcpy(begun + size, prefix, sizeof prefix);
  rv_buf *message = rv_spares_take_lendable(one->spares, 20000);
  memset(message->data, 'x', LENT);
  struct iovec vec[2] = {{begun, size + sizeof prefix}, {message->data, LENT}};
  assert_int_equal(rv_ring_write(&one->peer.rings.out, vec, 2), size + sizeof prefix + LENT);
  rv_buf_unref(message);
}

static void what_a_client_lends_arrives(void **state)
{
  setting *at = *state;
  lender one;
  lender_open(&one, &at->place);
  assert_int_equal(atomic_load(&one.peer.rings.out.head->borrows), 1);
  lender_call(&one);
  echo_wait(&at->server, &at->server.messages, 1);
  assert_int_equal(atomic_load(&one.peer.rings.out.head->returned), 1);
  assert_true(rv_ring_settle(&one.peer.rings.out));
  size_t used, idle;
  rv_arena_usage(one.arena, &used, &idle);
  assert_int_equal(used, 0);
  lender_close(&one);
}

static void who_lends_what_cannot_be_loses_his_connection(void **state)
{
  setting *at = *state;
  const rv_ring_loan wrong[] = {{.at = PREFACE, .offset = UINT64_C(1) << 60, .size = 1},
                                {.at = PREFACE, .offset = 0, .size = UINT64_MAX},
                                {.at = PREFACE, .offset = UINT64_MAX, .size = 2},
                                {.at = PREFACE, .offset = 0, .size = 0},
                                {.at = 1, .offset = 0, .size = 1}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    lender one;
    lender_open(&one, &at->place);
    one.peer.rings.out.loan[0] = wrong[i];
    atomic_store(&one.peer.rings.out.head->lent, 1);
    (void)send(one.peer.fd, "", 1, MSG_NOSIGNAL);
    wait_for_end(&one.peer);
    lender_close(&one);
    check_answers(&at->place);
  }
}

/* ---- the end ---- */

static void a_silent_connection_does_not_keep_the_server_from_stopping(void **state)
{
  setting *at = *state;
  int fd = place_connect(&at->place);
  check_answers(&at->place);                     /* it has been accepted before */
  rv_grpc_server_stop(at->server.grpc, 3600000); /* as long as an hour for calls in progress */
  close(fd);
}

static void a_client_that_vanishes_is_noticed(void **state)
{
  setting *at = *state;
  raw_peer peer;
  uint8_t begun[400];
  assert_int_equal(ask_for_rings(&peer, &at->place), RV_RINGS_GIVEN);
  say(&peer, preface, PREFACE);
  size_t size = request(begun, "/echo/hang", 1, NGHTTP2_FLAG_END_HEADERS);
  size += frame(begun + size, 100000, NGHTTP2_DATA, 0, 1); /* and no more of it */
  say(&peer, begun, size);
  echo_wait(&at->server, &at->server.opened, 1);
  end(&peer);
  echo_wait(&at->server, &at->server.closed, 1);
}

static void what_was_written_before_the_end_is_read(void **state)
{
  setting *at = *state;
  for (int i = 1; i <= 20; i++) {
    raw_peer peer;
    uint8_t all[400];
    assert_int_equal(ask_for_rings(&peer, &at->place), RV_RINGS_GIVEN);
    say(&peer, preface, PREFACE);
    size_t size = request(all, "/echo/unary", 1, NGHTTP2_FLAG_END_HEADERS);
    size += frame(all + size, HELLO, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1);
    memcpy(all + size, hello, HELLO);
    say(&peer, all, size + HELLO);
    end(&peer);
    echo_wait(&at->server, &at->server.messages, (size_t)i);
  }
}

/* ---- harm ---- */

static void who_writes_nonsense_into_the_memory_loses_his_connection(void **state)
{
  setting *at = *state;
  for (int i = 0; i < 3; i++) {
    raw_peer peer;
    assert_int_equal(ask_for_rings(&peer, &at->place), RV_RINGS_GIVEN);
    if (i == 1) atomic_store(&peer.rings.in.head->taken, UINT64_MAX / 2); /* before there is something to answer */
    say(&peer, preface, PREFACE);
    if (i == 0) atomic_store(&peer.rings.out.head->written, UINT64_MAX / 2);
    if (i == 2) memset((uint8_t *)peer.rings.map + 1024, 0xab, 8192); /* no HTTP/2 */
    if (i == 2) atomic_store(&peer.rings.out.head->written, RV_RING_BYTES / 2);
    (void)send(peer.fd, "", 1, MSG_NOSIGNAL);
    wait_for_end(&peer);
    end(&peer);
    check_answers(&at->place);
  }
}

enum { ASKED = 80000 }; /* answers of some 20 bytes */

/* How many of the answers' frames with the end of a stream are in what came. */
typedef struct answers {
  uint8_t data[1 << 16];
  size_t have, count;
} answers;

static void take_answers(answers *got, raw_peer *peer)
{
  for (;;) {
    ssize_t n = rv_ring_read(&peer->rings.in, &(struct iovec){got->data + got->have, sizeof got->data - got->have}, 1);
    assert_true(n >= 0);
    if (n == 0) return;
    got->have += (size_t)n;
    size_t at = 0;
    while (got->have - at >= 9) {
      size_t length = (size_t)got->data[at + 1] << 8 | got->data[at + 2];
      if (got->have - at < 9 + length) break;
      got->count += got->data[at + 3] == NGHTTP2_HEADERS && (got->data[at + 4] & NGHTTP2_FLAG_END_STREAM) != 0;
      at += 9 + length;
    }
    memmove(got->data, got->data + at, got->have - at);
    got->have -= at;
  }
}

/* Asks as long as there is room; the number of the next to ask. */
static uint32_t ask(raw_peer *peer, uint32_t next, uint8_t *rest, size_t *rest_size)
{
  while (next < ASKED || *rest_size > 0) {
    if (*rest_size == 0)
      *rest_size = request(rest, "/nobody/there", 2 * next++ + 1, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM);
    ssize_t n = rv_ring_write(&peer->rings.out, &(struct iovec){rest, *rest_size}, 1);
    assert_true(n >= 0);
    *rest_size -= (size_t)n;
    memmove(rest, rest + n, *rest_size);
    if (n == 0) return next;
  }
  return next;
}

/* What it asks brings more answers than the ring holds: the server stops to take requests, and goes on when answers are taken. */
static void who_does_not_read_is_not_read_until_he_does(void **state)
{
  setting *at = *state;
  raw_peer peer;
  uint8_t rest[400];
  size_t rest_size = 0;
  answers *got = calloc(1, sizeof *got);
  assert_int_equal(ask_for_rings(&peer, &at->place), RV_RINGS_GIVEN);
  say(&peer, preface, PREFACE);
  uint32_t next = 0;
  struct pollfd bell = {.fd = peer.fd, .events = POLLIN};
  char calls[64];
  do { /* room comes as long as the server reads; none does any more once both rings are full */
    next = ask(&peer, next, rest, &rest_size);
    assert_true(next < ASKED);
    while (recv(peer.fd, calls, sizeof calls, MSG_DONTWAIT) > 0) continue;
  } while (!rv_ring_await_room(&peer.rings.out) || poll(&bell, 1, 500) == 1);
  check_answers(&at->place); /* others do not wait for it */
  while (got->count < ASKED) {
    take_answers(got, &peer);
    next = ask(&peer, next, rest, &rest_size);
    if (got->count == ASKED || !rv_ring_await_bytes(&peer.rings.in)) continue;
    assert_int_equal(poll(&bell, 1, 30000), 1);
    assert_true(recv(peer.fd, calls, sizeof calls, MSG_DONTWAIT) != 0);
  }
  assert_int_equal(got->count, ASKED);
  free(got);
  end(&peer);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(no_more_than_so_many_have_rings),
      TEST(a_silent_connection_does_not_keep_the_server_from_stopping),
      cmocka_unit_test(a_server_of_another_make_is_spoken_to_as_it_expects),
      TEST(a_question_with_anything_is_answered),
      TEST(what_a_client_lends_arrives),
      TEST(who_lends_what_cannot_be_loses_his_connection),
      TEST(a_client_that_vanishes_is_noticed),
      TEST(what_was_written_before_the_end_is_read),
      TEST(who_writes_nonsense_into_the_memory_loses_his_connection),
      TEST(who_does_not_read_is_not_read_until_he_does),
      cmocka_unit_test(nothing_is_shared_once_nobody_is_connected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
