/* Many calls of all kinds at once from several loops, paused, resumed, cancelled and timed out at random: every call ends exactly
 * once, and what it gets before is what was sent, in order. */
#include "net/burst_testing.h"

#include "base/env.h"
#include "base/random.h"

enum { LOOPS = 3, SLOTS = 24, CALLS = 300, SEEDS = 4 };

typedef struct storm storm;

typedef struct slot {
  storm *of;
  rv_call *call;
  rv_timer timer;
  bool echoes;        /* each message comes back */
  uint32_t sent, got; /* messages */
  uint32_t to_send;
  uint64_t seed; /* of the sizes */
  bool half_closed;
} slot;

struct storm {
  rv_loop *loop;
  rv_channel *channel;
  rv_random random;
  slot slot[SLOTS];
  size_t started, ended, open, by_code[RV_UNAUTHENTICATED + 1];
  rv_mutex lock;
  rv_cond changed;
  bool done;
};

static size_t size_of_message(const slot *s, uint32_t number)
{
  rv_random random;
  rv_random_init(&random, s->seed + number);
  uint32_t kind = rv_random_below(&random, 10);
  return 4 + rv_random_below(&random, kind < 6 ? 400 : kind < 9 ? 40000 : 600000);
}

static void send_one(slot *s)
{
  size_t size = size_of_message(s, s->sent);
  rv_buf *buf = rv_buf_new(size);
  assert_non_null(buf);
  memset(buf->data, (int)(s->sent & 255), size);
  memcpy(buf->data, &s->sent, 4);
  buf->size = size;
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  rv_pieces_share(&pieces, buf, buf->data, size / 2);
  rv_pieces_share(&pieces, buf, buf->data + size / 2, size - size / 2);
  rv_buf_unref(buf);
  s->sent++;
  rv_call_send(s->call, &pieces);
}

static void go_on(slot *s)
{
  while (s->sent < s->to_send && rv_call_queued(s->call) < 300000) send_one(s);
  if (s->sent == s->to_send && !s->half_closed) {
    s->half_closed = true;
    rv_call_half_close(s->call);
  }
}

static void on_message(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  (void)buf;
  slot *s = user;
  if (s->echoes) {
    uint32_t number;
    assert_int_equal(size, size_of_message(s, s->got));
    memcpy(&number, data, 4);
    assert_int_equal(number, s->got);
    if (size > 4) assert_int_equal(data[size - 1], number & 255);
  }
  s->got++;
  uint32_t dice = rv_random_below(&s->of->random, 40);
  if (dice == 0) rv_call_cancel(call);
  if (dice == 1 || dice == 2) {
    rv_call_pause(call);
    rv_env env;
    rv_env_default(&env);
    rv_timer_start(&s->timer, rv_monotonic_ns(&env) + rv_random_below(&s->of->random, 3000000));
  }
}

static void on_timer(rv_timer *timer)
{
  slot *s = RV_CONTAINER(timer, slot, timer);
  if (s->call == NULL) return;
  if (rv_random_below(&s->of->random, 8) == 0)
    rv_call_cancel(s->call);
  else
    rv_call_resume(s->call);
}

static void on_writable(rv_call *call, void *user)
{
  (void)call;
  go_on(user);
}

static void start_one(slot *s);

static void on_close(rv_call *call, void *user, rv_code code, const char *message)
{
  slot *s = user;
  storm *of = s->of;
  assert_ptr_equal(call, s->call);
  if (code != RV_OK && code != RV_CANCELLED && code != RV_DEADLINE_EXCEEDED) fail_msg("%d: %s", (int)code, message);
  if (code == RV_OK && s->echoes) assert_int_equal(s->got, s->to_send);
  s->call = NULL;
  rv_timer_stop(&s->timer);
  of->by_code[code]++;
  of->ended++;
  of->open--;
  if (of->started < CALLS) {
    start_one(s);
  } else if (of->open == 0) {
    rv_mutex_lock(&of->lock);
    of->done = true;
    rv_cond_signal(&of->changed);
    rv_mutex_unlock(&of->lock);
  }
}

static void start_one(slot *s)
{
  static const rv_call_events storm_events = {.on_message = on_message, .on_writable = on_writable, .on_close = on_close};
  static const char *const paths[] = {"/echo/stream", "/echo/slow", "/echo/unary", "/echo/source"};
  static const rv_metadata metadata[] = {{"echo-count", "40"}, {"echo-size", "30000"}};
  rv_random *random = &s->of->random;
  rv_env env;
  rv_env_default(&env);
  uint32_t path = rv_random_below(random, 4);
  s->echoes = path < 3;
  s->sent = s->got = 0;
  s->to_send = path < 2 ? rv_random_below(random, 30) : 1;
  s->seed = rv_random_next(random);
  s->half_closed = false;
  rv_call_config config = {
      .path = paths[path], .deadline_ns = INT64_MAX, .metadata = metadata, .num_metadata = path == 3 ? 2 : 0};
  if (rv_random_below(random, 10) == 0) config.deadline_ns = rv_monotonic_ns(&env) + rv_random_below(random, 20000000);
  s->of->started++;
  s->of->open++;
  s->call = rv_channel_call(s->of->channel, &config, &storm_events, s);
  assert_non_null(s->call);
  go_on(s);
  if (rv_random_below(random, 20) == 0) rv_call_cancel(s->call);
}

static void start_all(void *argument)
{
  storm *of = argument;
  for (size_t i = 0; i < SLOTS; i++) {
    of->slot[i].of = of;
    rv_timer_init(&of->slot[i].timer, of->loop, on_timer);
    start_one(&of->slot[i]);
  }
}

static void every_call_ends_once_and_gets_what_was_sent(void **state)
{
  (void)state;
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    bool over_rings = seed % 2 == 0;
    echo_server server;
    socket_place place;
    place_init(&place);
    echo_start(&server, over_rings ? place.address : "127.0.0.1:0", 2);
    storm *storms = calloc(LOOPS, sizeof *storms);
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)rv_grpc_server_port(server.grpc, 0));
    if (over_rings) snprintf(address, sizeof address, "%s", place.address);
    for (size_t i = 0; i < LOOPS; i++) {
      storm *of = &storms[i];
      rv_random_init(&of->random, seed * 100 + i);
      rv_mutex_init(&of->lock, RV_RANK_CLIENT, "storm");
      rv_cond_init(&of->changed);
      assert_int_equal(rv_loop_new(NULL, "storm", &of->loop, NULL), RV_OK);
      rv_channel_config config = {.loop = of->loop, .address = address, .shares_memory = true};
      assert_int_equal(rv_channel_new(&config, &of->channel, NULL), RV_OK);
      rv_loop_call(of->loop, start_all, of);
    }
    size_t ok = 0;
    for (size_t i = 0; i < LOOPS; i++) {
      storm *of = &storms[i];
      rv_mutex_lock(&of->lock);
      while (!of->done) rv_cond_wait(&of->changed, &of->lock);
      rv_mutex_unlock(&of->lock);
      rv_channel_free(of->channel);
      rv_loop_free(of->loop);
      assert_int_equal(of->started, of->ended);
      ok += of->by_code[RV_OK];
      rv_cond_fini(&of->changed);
      rv_mutex_fini(&of->lock);
    }
    print_message("seed %d: %zu of %d calls ended well\n", (int)seed, ok, LOOPS * CALLS);
    assert_true(ok > 0);
    free(storms);
    echo_stop(&server);
    place_fini(&place);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_call_ends_once_and_gets_what_was_sent)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
