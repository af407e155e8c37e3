/* Calls whose messages lie in blocks of the server's: they arrive as they were sent, and most of them without being copied. */
#include "net/pair_testing.h"

#include "base/random.h"
#include "net/landing.h"

enum { MESSAGES = 400, KEPT = 40, AT_ONCE = 8, ROWS = 3 };

static const size_t row_sizes[ROWS] = {19000, 40000, 300000}; /* the last one's frames are two */

/* A server that looks at what comes, and keeps the last few messages; what it has is its loop's. */
typedef struct taker {
  rv_grpc_server *grpc;
  rv_call *call;
  rv_buf *kept[KEPT];
  size_t number[KEPT]; /* of the message */
  rv_mutex lock;
  rv_cond changed;
  size_t messages, landed, closed, next;
} taker;

static void on_message(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  taker *t = user;
  size_t number = t->messages, place = number % KEPT;
  check(data, size, number);
  if (t->kept[place] != NULL) check(t->kept[place]->data, t->kept[place]->size, t->number[place]);
  rv_buf_unref(t->kept[place]);
  t->kept[place] = rv_buf_ref(buf);
  t->number[place] = number;
  rv_mutex_lock(&t->lock);
  t->messages++;
  t->landed += (uintptr_t)data % RV_LANDING_PAGE != 0; /* it begins somewhere before the row */
  rv_cond_broadcast(&t->changed);
  rv_mutex_unlock(&t->lock);
  rv_pieces answer;
  rv_pieces_init(&answer);
  rv_call_send(call, &answer);
}

static void on_close(rv_call *call, void *user, rv_code code, const char *message)
{
  (void)call, (void)code, (void)message;
  taker *t = user;
  rv_mutex_lock(&t->lock);
  t->closed++;
  rv_cond_broadcast(&t->changed);
  rv_mutex_unlock(&t->lock);
}

static void on_half_close(rv_call *call, void *user)
{
  (void)user;
  rv_call_finish(call, RV_OK, NULL);
}

static bool on_call(void *context, rv_call *call, const char *path, const rv_call_events **events, void **user)
{
  static const rv_call_events taker_events = {.on_message = on_message, .on_half_close = on_half_close, .on_close = on_close};
  (void)path;
  taker *t = context;
  t->call = call;
  *events = &taker_events;
  *user = t;
  return true;
}

typedef struct setting {
  socket_place place;
  taker server;
  echo_client client;
} setting;

static void start_server(setting *s)
{
  s->server.grpc = start_lending(s->place.address, on_call, &s->server);
}

static int set_up(void **state)
{
  setting *s = calloc(1, sizeof *s);
  assert_non_null(s);
  place_init(&s->place);
  rv_mutex_init(&s->server.lock, RV_RANK_CLIENT, "taker");
  rv_cond_init(&s->server.changed);
  start_server(s);
  client_open(&s->client, s->place.address);
  *state = s;
  return 0;
}

static void drop_kept_on_loop(void *argument)
{
  taker *t = argument;
  for (size_t i = 0; i < KEPT; i++) {
    if (t->kept[i] != NULL) check(t->kept[i]->data, t->kept[i]->size, t->number[i]);
    rv_buf_unref(t->kept[i]);
    t->kept[i] = NULL;
  }
}

static void drop_kept(taker *t)
{
  rv_loop_call(rv_grpc_server_loop(t->grpc, 0), drop_kept_on_loop, t);
}

static void count_from_on_loop(void *argument)
{
  taker *t = argument;
  rv_mutex_lock(&t->lock);
  t->messages = t->next;
  rv_mutex_unlock(&t->lock);
}

/* The next message is taken for that one. */
static void count_from(taker *t, size_t number)
{
  t->next = number;
  rv_loop_call(rv_grpc_server_loop(t->grpc, 0), count_from_on_loop, t);
}

static int tear_down(void **state)
{
  setting *s = *state;
  client_close(&s->client);
  drop_kept(&s->server);
  rv_grpc_server_free(s->server.grpc);
  rv_cond_fini(&s->server.changed);
  rv_mutex_fini(&s->server.lock);
  place_fini(&s->place);
  free(s);
  return 0;
}

/* ---- the client ---- */

/* A message with a row, in a block where there is one: NULL, and then it is in memory of its own. */
typedef struct sent {
  rv_buf *row;
  size_t before, behind, number;
} sent;

static sent make(setting *s, rv_random *random, size_t number)
{
  size_t size = row_sizes[rv_random_below(random, ROWS)];
  sent one = {.before = 1 + rv_random_below(random, 250), .behind = rv_random_below(random, 500), .number = number};
  one.row = rv_channel_take_block(s->client.channel, size);
  if (one.row == NULL) one.row = rv_buf_new(size);
  assert_non_null(one.row);
  one.row->size = size;
  for (size_t i = 0; i < size; i++) one.row->data[i] = byte_of(number, one.before + i);
  return one;
}

static void send_again(test_call *call, const sent *one)
{
  uint8_t bytes[500];
  size_t begin = one->before + one->row->size;
  rv_pieces_init(&call->pieces);
  for (size_t i = 0; i < one->before; i++) bytes[i] = byte_of(one->number, i);
  assert_int_equal(rv_pieces_copy(&call->pieces, bytes, one->before), RV_OK);
  assert_int_equal(rv_pieces_share(&call->pieces, one->row, one->row->data, one->row->size), RV_OK);
  for (size_t i = 0; i < one->behind; i++) bytes[i] = byte_of(one->number, begin + i);
  assert_int_equal(rv_pieces_copy(&call->pieces, bytes, one->behind), RV_OK);
  rv_loop_call(call->client->loop, call_send_on_loop, call);
}

static void send_many(setting *s, test_call *call, rv_random *random, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    sent one = make(s, random, i);
    send_again(call, &one);
    rv_buf_unref(one.row);
    if (i >= AT_ONCE) call_wait_messages(call, i - AT_ONCE);
  }
}

static size_t count_landed(taker *t)
{
  rv_mutex_lock(&t->lock);
  size_t landed = t->landed;
  rv_mutex_unlock(&t->lock);
  return landed;
}

static void rows_land(void **state)
{
  setting *s = *state;
  rv_random random;
  rv_random_init(&random, 1);
  test_call call;
  call_init(&call, &s->client, "/take");
  call_start(&call);
  send_many(s, &call, &random, MESSAGES);
  call_wait_messages(&call, MESSAGES);
  call_half_close(&call);
  call_wait(&call);
  assert_int_equal(call.code, RV_OK);
  assert_in_range(count_landed(&s->server), MESSAGES / 2, MESSAGES);
  call_fini(&call);
}

/* The first answer comes when the connection stands. */
static void connect_with(setting *s, test_call *call, rv_random *random)
{
  call_init(call, &s->client, "/take");
  call_start(call);
  send_many(s, call, random, AT_ONCE);
  call_wait_messages(call, AT_ONCE);
}

static void a_row_is_sent_again_by_the_same_connection(void **state)
{
  setting *s = *state;
  rv_random random;
  rv_random_init(&random, 2);
  test_call call;
  connect_with(s, &call, &random);
  size_t before = count_landed(&s->server);
  sent one = make(s, &random, AT_ONCE);
  send_again(&call, &one);
  call_wait_messages(&call, AT_ONCE + 1);
  drop_kept(&s->server);
  count_from(&s->server, AT_ONCE);
  send_again(&call, &one);
  call_wait_messages(&call, AT_ONCE + 2);
  assert_int_equal(count_landed(&s->server) - before, 1);
  rv_buf_unref(one.row);
  call_cancel(&call);
  call_wait(&call);
  call_fini(&call);
}

/* Rows that a server had, and that another gets, which began in its place. */
static void rows_are_sent_again_to_the_next_server(void **state)
{
  enum { ROWS_AGAIN = 20 };
  setting *s = *state;
  rv_random random;
  rv_random_init(&random, 3);
  test_call call, again;
  connect_with(s, &call, &random);
  sent rows[ROWS_AGAIN];
  for (size_t i = 0; i < ROWS_AGAIN; i++) {
    rows[i] = make(s, &random, AT_ONCE + i);
    send_again(&call, &rows[i]);
    call_wait_messages(&call, AT_ONCE + i + 1);
  }
  assert_true(count_landed(&s->server) > 0);
  drop_kept(&s->server);
  rv_grpc_server_free(s->server.grpc);
  call_wait(&call);
  call_fini(&call);
  start_server(s);
  count_from(&s->server, AT_ONCE);
  call_init(&again, &s->client, "/take");
  again.config.wait_for_ready = true;
  call_start(&again);
  for (size_t i = 0; i < ROWS_AGAIN; i++) send_again(&again, &rows[i]);
  call_wait_messages(&again, ROWS_AGAIN);
  assert_int_equal(again.messages, ROWS_AGAIN);
  for (size_t i = 0; i < ROWS_AGAIN; i++) rv_buf_unref(rows[i].row);
  call_cancel(&again);
  call_wait(&again);
  call_fini(&again);
}

static void what_landed_stays_when_its_client_has_gone(void **state)
{
  setting *s = *state;
  rv_random random;
  rv_random_init(&random, 4);
  for (int clients = 0; clients < 5; clients++) {
    test_call call;
    count_from(&s->server, 0);
    connect_with(s, &call, &random);
    sent unsent = make(s, &random, 0);
    call_cancel(&call);
    call_wait(&call);
    call_fini(&call);
    client_close(&s->client);
    rv_buf_unref(unsent.row);
    client_open(&s->client, s->place.address);
    drop_kept(&s->server);
  }
}

int main(void)
{
#define CALLS_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      CALLS_TEST(rows_land),
      CALLS_TEST(a_row_is_sent_again_by_the_same_connection),
      CALLS_TEST(rows_are_sent_again_to_the_next_server),
      CALLS_TEST(what_landed_stays_when_its_client_has_gone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
