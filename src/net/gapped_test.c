/* Messages with gaps, over rings: whatever is done with them, what arrives is what was sent, and what was taken back is told. */
#include "net/pair_testing.h"

#include "base/random.h"

enum { CALLS = 3, MESSAGES = 60, AHEAD = 4, MOST = 700000 };

typedef struct talk {
  both *of;
  rv_call *call;
  rv_random random;
  size_t sent, got, gapped;
  rv_buf *kept[MESSAGES]; /* as they came, with nobody having filled anything */
  const rv_call_events *events;
  rv_mutex lock;
  rv_cond changed;
  bool closed, stops, stopped;
  rv_code code;
  uint8_t own[MOST];
} talk;

static void send_one(talk *t)
{
  size_t size = 20000 + rv_random_below(&t->random, MOST - 20000);
  rv_buf *buf = rv_buf_new(size);
  assert_non_null(buf);
  for (size_t i = 0; i < size; i++) buf->data[i] = byte_of(t->sent, i);
  buf->size = size;
  echo_reply(t->call, buf, buf->data, size);
  rv_buf_unref(buf);
  if (++t->sent == MESSAGES) rv_call_half_close(t->call);
}

static void on_message(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  talk *t = user;
  const rv_gaps *gaps = rv_call_gaps(call);
  size_t number = t->got++;
  t->gapped += gaps != NULL;
  if (number % 3 == 0) {
    t->kept[number] = rv_buf_ref(buf);
  } else if (number % 3 == 1 && gaps != NULL) {
    rv_gaps_copy(gaps, number % 2 == 0, t->own, data, size);
    assert_true(rv_call_give_back(call));
    check(t->own, size, number);
  } else {
    assert_true(rv_call_fill_gaps(call));
    check(data, size, number);
  }
  assert_true(number % 3 == 0 || rv_call_gaps(call) == NULL);
  if (t->sent < MESSAGES) send_one(t);
}

static void on_close(rv_call *call, void *user, rv_code code, const char *message)
{
  (void)call, (void)message;
  talk *t = user;
  rv_mutex_lock(&t->lock);
  t->closed = true;
  t->stops = true;
  t->code = code;
  rv_cond_broadcast(&t->changed);
  rv_mutex_unlock(&t->lock);
}

static void begin(void *argument)
{
  talk *t = argument;
  rv_call_config config = {.path = "/echo/stream", .deadline_ns = INT64_MAX};
  t->call = rv_channel_call(t->of->client.channel, &config, t->events, t);
  assert_non_null(t->call);
  for (int i = 0; i < AHEAD; i++) send_one(t);
}

static talk *talk_new(both *b, const rv_call_events *events, uint64_t seed)
{
  talk *t = calloc(1, sizeof *t);
  assert_non_null(t);
  t->of = b;
  t->events = events;
  rv_random_init(&t->random, seed);
  rv_mutex_init(&t->lock, RV_RANK_CLIENT, "talk");
  rv_cond_init(&t->changed);
  rv_loop_call(b->client.loop, begin, t);
  return t;
}

static void wait_for(talk *t, const bool *what)
{
  rv_mutex_lock(&t->lock);
  while (!*what) rv_cond_wait(&t->changed, &t->lock);
  rv_mutex_unlock(&t->lock);
}

static void set(talk *t, bool *what)
{
  rv_mutex_lock(&t->lock);
  *what = true;
  rv_cond_broadcast(&t->changed);
  rv_mutex_unlock(&t->lock);
}

static void talk_free(talk *t)
{
  for (size_t i = 0; i < MESSAGES; i++) rv_buf_unref(t->kept[i]);
  rv_cond_fini(&t->changed);
  rv_mutex_fini(&t->lock);
  free(t);
}

static void whatever_is_done_with_gaps_what_arrives_is_what_was_sent(void **state)
{
  static const rv_call_events events = {.takes_gaps = true, .on_message = on_message, .on_close = on_close};
  talk *talks[CALLS];
  size_t gapped = 0;
  for (uint64_t i = 0; i < CALLS; i++) talks[i] = talk_new(*state, &events, 31 + i);
  for (size_t i = 0; i < CALLS; i++) {
    talk *t = talks[i];
    wait_for(t, &t->closed);
    assert_int_equal(t->code, RV_OK);
    assert_int_equal(t->got, MESSAGES);
    for (size_t k = 0; k < MESSAGES; k++)
      if (t->kept[k] != NULL) check(t->kept[k]->data, t->kept[k]->size, k);
    gapped += t->gapped;
    talk_free(t);
  }
  assert_true(gapped > 0); /* else nothing was shown */
}

/* The first that has gaps is held until the server has gone. */
static void on_last_message(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  (void)buf, (void)data, (void)size;
  talk *t = user;
  t->got++;
  assert_false(t->stopped); /* nothing comes behind what was lost */
  if (rv_call_gaps(call) == NULL) {
    if (t->sent < MESSAGES) send_one(t);
    return;
  }
  t->gapped++;
  set(t, &t->stops);
  wait_for(t, &t->stopped);
  assert_false(rv_call_fill_gaps(call));
  assert_null(rv_call_gaps(call));
  assert_false(rv_call_give_back(call));
}

static void what_was_taken_back_is_told_and_the_call_ends(void **state)
{
  static const rv_call_events events = {.takes_gaps = true, .on_message = on_last_message, .on_close = on_close};
  both *b = *state;
  talk *t = talk_new(b, &events, 77);
  wait_for(t, &t->stops);
  echo_stop(&b->server);
  set(t, &t->stopped);
  wait_for(t, &t->closed);
  assert_int_equal(t->gapped, 1);
  assert_int_equal(t->code, RV_UNAVAILABLE);
  talk_free(t);
  client_close(&b->client);
  place_fini(&b->place);
  free(b);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(whatever_is_done_with_gaps_what_arrives_is_what_was_sent, set_up_over_rings,
                                      tear_down_both),
      cmocka_unit_test_setup(what_was_taken_back_is_told_and_the_call_ends, set_up_over_rings),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
