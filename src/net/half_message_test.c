/* Messages of which a part has come, and the rest does not: what a server's connections have of them together is bounded. The clock stands
 * still but where a test moves it, and the test looks at the connections itself. */
#include "net/echo_testing.h"

#include "base/env.h"
#include "net/raw_testing.h"
#include "net/reader.h"
#include "net/session.h"

enum { WHOLE = 20 << 20, FRAME = 16 << 10, LITTLE = 1 << 20, LOOK_SECONDS = 2 };

typedef struct world {
  echo_server server;
  atomic_int_least64_t now_ns;
  atomic_bool runs; /* at the end, since connections have their time to end in */
  atomic_size_t memory_limit;
  size_t half_bytes; /* of all connections, as each has counted itself; of the loop that was asked */
} world;

static int64_t now(void *context)
{
  world *w = context;
  if (!atomic_load(&w->runs)) return atomic_load(&w->now_ns);
  rv_env env;
  rv_env_default(&env);
  return atomic_load(&w->now_ns) + rv_monotonic_ns(&env);
}

static size_t memory_limit(void *context)
{
  world *w = RV_CONTAINER(context, world, server);
  return atomic_load(&w->memory_limit);
}

/* Of one loop, so that all that has come is in one count. */
static int set_up(void **state)
{
  static const char *const address = "127.0.0.1:0";
  world *w = calloc(1, sizeof *w);
  const rv_env env = {.size = sizeof env, .context = w, .monotonic_ns = now, .log_level = RV_LOG_ERROR};
  atomic_init(&w->now_ns, INT64_C(1000000000000));
  atomic_init(&w->memory_limit, LITTLE);
  rv_mutex_init(&w->server.lock, RV_RANK_CLIENT, "echo server");
  rv_cond_init(&w->server.changed);
  rv_grpc_server_config config = {.env = &env,
                                  .addresses = &address,
                                  .num_addresses = 1,
                                  .io_threads = 1,
                                  .max_message_bytes = WHOLE,
                                  .memory_limit = memory_limit,
                                  .on_call = echo_on_call,
                                  .context = &w->server};
  assert_int_equal(rv_grpc_server_new(&config, &w->server.grpc, NULL), RV_OK);
  *state = w;
  return 0;
}

static int tear_down(void **state)
{
  world *w = *state;
  atomic_store(&w->runs, true);
  echo_stop(&w->server);
  free(w);
  return 0;
}

/* ---- what comes ---- */

static void send_part(int fd, uint32_t stream, size_t size)
{
  static uint8_t bytes[9 + FRAME];
  for (size_t n; size > 0; size -= n) {
    n = size < FRAME ? size : FRAME;
    frame(bytes, n, NGHTTP2_DATA, 0, stream);
    assert_true(send_raw(fd, bytes, 9 + n));
  }
}

static int connect_raw(const world *w)
{
  int fd = connect_port(rv_grpc_server_port(w->server.grpc, 0));
  uint8_t bytes[9];
  frame(bytes, 0, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0); /* for credit goes by the settings that were acknowledged */
  assert_true(send_raw(fd, preface, PREFACE) && send_raw(fd, bytes, 9));
  return fd;
}

static void announce_message(int fd, uint32_t stream, size_t size)
{
  uint8_t bytes[400];
  size_t n = request(bytes, "/echo/hang", stream, NGHTTP2_FLAG_END_HEADERS);
  n += frame(bytes + n, RV_MESSAGE_PREFIX, NGHTTP2_DATA, 0, stream);
  const uint8_t prefix[RV_MESSAGE_PREFIX] = {0, (uint8_t)(size >> 24), (uint8_t)(size >> 16), (uint8_t)(size >> 8),
                                             (uint8_t)size};
  memcpy(bytes + n, prefix, sizeof prefix);
  assert_true(send_raw(fd, bytes, n + sizeof prefix));
}

/* A call whose message has come as far as that; the server has given credit for the rest of it. */
static int begin_message(const world *w, size_t part)
{
  int fd = connect_raw(w);
  uint8_t head[9], payload[1024];
  announce_message(fd, 1, WHOLE);
  do assert_true(read_frame(fd, head, payload, sizeof payload) >= 0);
  while (head[3] != NGHTTP2_WINDOW_UPDATE || head[8] != 1);
  send_part(fd, 1, part);
  return fd;
}

static void count_on_loop(void *argument)
{
  world *w = argument;
  w->half_bytes = 0;
  RV_LIST_EACH(node, &rv_grpc_server_loop(w->server.grpc, 0)->connections)
  w->half_bytes += RV_CONTAINER(node, rv_session, link)->half_bytes;
}

static size_t half_bytes(world *w)
{
  rv_loop_call(rv_grpc_server_loop(w->server.grpc, 0), count_on_loop, w);
  return w->half_bytes;
}

static void wait_for_half_bytes(world *w, size_t bytes)
{
  while (half_bytes(w) != bytes) usleep(1000);
}

static size_t count_ended(world *w)
{
  return echo_count(&w->server, &w->server.closed_by_code[RV_UNAVAILABLE]);
}

/* ---- looks ---- */

static void look_on_loop(void *argument)
{
  const world *w = argument;
  RV_LIST_EACH(node, &rv_grpc_server_loop(w->server.grpc, 0)->connections)
  {
    rv_session *session = RV_CONTAINER(node, rv_session, link);
    session->pulse.fire(&session->pulse);
  }
}

static void look(world *w)
{
  atomic_fetch_add(&w->now_ns, LOOK_SECONDS * INT64_C(1000000000));
  rv_loop_call(rv_grpc_server_loop(w->server.grpc, 0), look_on_loop, w);
}

/* ---- what is promised ---- */

enum { MOST_OF_IT = 12 << 20, LESS_THAN_HALF = 9 << 20 };

static void a_half_message_that_stalls_ends_where_connections_have_too_much_and_one_that_comes_does_not(void **state)
{
  world *w = *state;
  int stalls = begin_message(w, MOST_OF_IT), comes = begin_message(w, MOST_OF_IT);
  wait_for_half_bytes(w, 2 * MOST_OF_IT);
  look(w);
  assert_int_equal(count_ended(w), 0);
  send_part(comes, 1, 1 << 20);
  wait_for_half_bytes(w, 2 * MOST_OF_IT + (1 << 20));
  look(w);
  echo_wait(&w->server, &w->server.closed, 1);
  assert_int_equal(count_ended(w), 1);
  send_part(comes, 1, WHOLE - MOST_OF_IT - (1 << 20));
  echo_wait(&w->server, &w->server.messages, 1);
  assert_int_equal(echo_count(&w->server, &w->server.closed), 1);
  close(stalls);
  close(comes);
}

/* Whoever is slow, on a slow network, is not in the way. */
static void a_half_message_that_stalls_stays_where_there_is_memory(void **state)
{
  world *w = *state;
  int fd = begin_message(w, MOST_OF_IT);
  wait_for_half_bytes(w, MOST_OF_IT);
  for (int i = 0; i < 4; i++) look(w);
  send_part(fd, 1, WHOLE - MOST_OF_IT);
  echo_wait(&w->server, &w->server.messages, 1);
  close(fd);
}

static void the_bound_of_half_messages_follows_the_memory_limit(void **state)
{
  world *w = *state;
  atomic_store(&w->memory_limit, 0); /* there is none: what the machine has */
  int fd[2] = {begin_message(w, MOST_OF_IT), begin_message(w, MOST_OF_IT)};
  wait_for_half_bytes(w, 2 * MOST_OF_IT);
  for (int i = 0; i < 4; i++) look(w);
  assert_int_equal(half_bytes(w), 2 * MOST_OF_IT);
  atomic_store(&w->memory_limit, LITTLE);
  look(w);
  echo_wait(&w->server, &w->server.closed, 1);
  assert_int_equal(count_ended(w), 1);
  for (size_t i = 0; i < 2; i++) close(fd[i]);
}

/* Within a look nobody is slow, and two of the largest messages always find room. */
static void of_many_half_messages_at_once_those_come_whole_for_which_there_is_room(void **state)
{
  enum { COUNT = 5 };
  world *w = *state;
  int fd[COUNT];
  for (size_t i = 0; i + 1 < COUNT; i++) {
    fd[i] = begin_message(w, LESS_THAN_HALF);
    wait_for_half_bytes(w, (i + 1) * LESS_THAN_HALF);
  }
  fd[COUNT - 1] = begin_message(w, LESS_THAN_HALF);
  echo_wait(&w->server, &w->server.closed_by_code[RV_UNAVAILABLE], 1);
  send_part(fd[0], 1, WHOLE - LESS_THAN_HALF);
  echo_wait(&w->server, &w->server.messages, 1);
  assert_int_equal(half_bytes(w), (COUNT - 2) * LESS_THAN_HALF);
  for (size_t i = 0; i < COUNT; i++) close(fd[i]);
}

/* Each is nearly whole, so that none of them alone would be in the way. */
static void a_flood_of_small_half_messages_is_bounded(void **state)
{
  enum { COUNT = 1800, SIZE = 64 << 10, PART = SIZE - 1000, BOUND = 4 * WHOLE };
  world *w = *state;
  int fd = connect_raw(w);
  for (uint32_t i = 0; i < COUNT; i++) {
    announce_message(fd, 2 * i + 1, SIZE);
    send_part(fd, 2 * i + 1, PART);
  }
  echo_wait(&w->server, &w->server.closed_by_code[RV_UNAVAILABLE], COUNT - BOUND / PART - 1);
  assert_true(half_bytes(w) <= BOUND);
  close(fd);
}

int main(void)
{
#define IN_WORLD(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      IN_WORLD(a_half_message_that_stalls_ends_where_connections_have_too_much_and_one_that_comes_does_not),
      IN_WORLD(a_half_message_that_stalls_stays_where_there_is_memory),
      IN_WORLD(the_bound_of_half_messages_follows_the_memory_limit),
      IN_WORLD(of_many_half_messages_at_once_those_come_whole_for_which_there_is_room),
      IN_WORLD(a_flood_of_small_half_messages_is_bounded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
