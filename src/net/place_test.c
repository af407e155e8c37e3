/* Rows that a message names by their place: the server takes each from there, once without copying it, and hears of those that are not there. */
#include "net/pair_testing.h"

#include "net/landing.h"

enum { ROW = 40000, BEFORE = 90, BEHIND = 40, KEPT = 16 };

/* What a client asks a server to take. */
typedef struct question {
  uint8_t place[RV_PLACE_BYTES];
  size_t size, number;
} question;

/* A server that takes rows, looks at them, answers how it got them, and keeps the last few. */
typedef struct taker {
  rv_grpc_server *grpc;
  rv_buf *kept[KEPT];
  size_t number[KEPT], count;
} taker;

static void check_row(const rv_buf *buf, size_t number)
{
  for (size_t i = 0; i < BEFORE; i++) assert_int_equal(buf->data[i], 'b');
  for (size_t i = 0; i < BEHIND; i++) assert_int_equal(buf->data[buf->size - BEHIND + i], 'e');
  check(buf->data + BEFORE, buf->size - BEFORE - BEHIND, number);
}

static const char *take_row(taker *t, rv_call *call, const question *asked)
{
  rv_error err;
  rv_buf *row;
  if (rv_call_take_place(call, asked->place, BEFORE, asked->size, BEHIND, &row, &err) != RV_OK) {
    assert_int_equal(err.code, RV_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "which has none there"));
    return "refused";
  }
  assert_int_equal(row->size, BEFORE + asked->size + BEHIND);
  memset(row->data, 'b', BEFORE);
  memset(row->data + BEFORE + asked->size, 'e', BEHIND);
  check_row(row, asked->number);
  size_t at = t->count++ % KEPT;
  if (t->kept[at] != NULL) check_row(t->kept[at], t->number[at]);
  rv_buf_unref(t->kept[at]);
  t->kept[at] = row;
  t->number[at] = asked->number;
  bool in_block = rv_buf_is_lendable(row) && (uintptr_t)row->data % RV_LANDING_PAGE != 0; /* behind its beginning */
  return in_block ? "as it lies" : "copied";
}

static void on_message(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  (void)buf;
  question asked;
  assert_int_equal(size, sizeof asked);
  memcpy(&asked, data, sizeof asked);
  const char *answer = take_row(user, call, &asked);
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  assert_int_equal(rv_pieces_copy(&pieces, answer, strlen(answer)), RV_OK);
  rv_call_send(call, &pieces);
}

static void on_close(rv_call *call, void *user, rv_code code, const char *message)
{
  (void)call, (void)user, (void)code, (void)message;
}

static bool on_call(void *context, rv_call *call, const char *path, const rv_call_events **events, void **user)
{
  static const rv_call_events taker_events = {.on_message = on_message, .on_close = on_close};
  (void)call, (void)path;
  *events = &taker_events;
  *user = context;
  return true;
}

typedef struct setting {
  socket_place place;
  taker server;
  echo_client client;
  test_call call;
} setting;

static int set_up(void **state)
{
  setting *s = calloc(1, sizeof *s);
  assert_non_null(s);
  place_init(&s->place);
  s->server.grpc = start_lending(s->place.address, on_call, &s->server);
  client_open(&s->client, s->place.address);
  call_init(&s->call, &s->client, "/take");
  call_start(&s->call);
  *state = s;
  return 0;
}

static void drop_kept(void *argument)
{
  taker *t = argument;
  for (size_t i = 0; i < KEPT; i++) {
    if (t->kept[i] != NULL) check_row(t->kept[i], t->number[i]);
    rv_buf_unref(t->kept[i]);
    t->kept[i] = NULL;
  }
}

static int tear_down(void **state)
{
  setting *s = *state;
  call_cancel(&s->call);
  call_wait(&s->call);
  call_fini(&s->call);
  client_close(&s->client);
  rv_loop_call(rv_grpc_server_loop(s->server.grpc, 0), drop_kept, &s->server);
  rv_grpc_server_free(s->server.grpc);
  place_fini(&s->place);
  free(s);
  return 0;
}

/* ---- the client ---- */

typedef struct naming {
  test_call *call;
  const uint8_t *row;
  question *out;
  bool named;
} naming;

static void name_on_loop(void *argument)
{
  naming *n = argument;
  n->named = rv_call_name_place(n->call->call, n->row, n->out->size, n->out->place);
}

static bool name(test_call *call, const uint8_t *row, size_t size, size_t number, question *out)
{
  *out = (question){.size = size, .number = number};
  naming n = {.call = call, .row = row, .out = out};
  rv_loop_call(call->client->loop, name_on_loop, &n);
  return n.named;
}

static void expect_answer(test_call *call, const question *asked, const char *text)
{
  size_t before = call->messages;
  call_send(call, asked, sizeof *asked);
  call_wait_messages(call, before + 1);
  if (strcmp(call->text, text) != 0) fail_msg("\"%s\" instead of \"%s\"", call->text, text);
}

/* A block for it: the first rows of a connection find none, since the server hears of them only then. */
static rv_buf *make_row(setting *s, size_t number)
{
  const question nowhere = {.place = {0xFF}, .size = ROW};
  rv_buf *row = NULL;
  for (int tries = 0; tries < 100 && row == NULL; tries++) {
    row = rv_channel_take_block(s->client.channel, ROW);
    if (row == NULL) expect_answer(&s->call, &nowhere, "refused");
  }
  assert_non_null(row);
  row->size = ROW;
  for (size_t i = 0; i < ROW; i++) row->data[i] = byte_of(number, i);
  return row;
}

static void a_row_is_taken_as_it_lies(void **state)
{
  enum { ROWS = 200 };
  setting *s = *state;
  for (size_t i = 0; i < ROWS; i++) {
    rv_buf *row = make_row(s, i);
    question asked;
    assert_true(name(&s->call, row->data, ROW, i, &asked));
    expect_answer(&s->call, &asked, "as it lies");
    rv_buf_unref(row);
  }
}

/* Who is not sure that it came sends it again. */
static void a_row_that_is_taken_again_is_copied(void **state)
{
  setting *s = *state;
  rv_buf *row = make_row(s, 3);
  question asked;
  assert_true(name(&s->call, row->data, ROW, 3, &asked));
  expect_answer(&s->call, &asked, "as it lies");
  for (int again = 0; again < 3; again++) expect_answer(&s->call, &asked, "copied");
  rv_buf_unref(row);
}

static void a_part_of_a_row_is_copied(void **state)
{
  setting *s = *state;
  rv_buf *row = make_row(s, 0);
  memmove(row->data + 30000, row->data, 10000);
  question asked;
  assert_true(name(&s->call, row->data + 30000, 10000, 0, &asked));
  expect_answer(&s->call, &asked, "copied");
  rv_buf_unref(row);
}

static void what_lies_elsewhere_has_no_place(void **state)
{
  setting *s = *state;
  rv_buf *row = make_row(s, 0);
  question asked;
  uint8_t elsewhere[100];
  assert_false(name(&s->call, elsewhere, sizeof elsewhere, 0, &asked));
  echo_client other; /* another connection to the same server */
  test_call call;
  client_open(&other, s->place.address);
  call_init(&call, &other, "/take");
  call_start(&call);
  assert_false(name(&call, row->data, ROW, 0, &asked)); /* it has not begun */
  assert_true(name(&s->call, row->data, ROW, 0, &asked));
  expect_answer(&call, &asked, "refused");
  assert_false(name(&call, row->data, ROW, 0, &asked));
  call_cancel(&call);
  call_wait(&call);
  call_fini(&call);
  client_close(&other);
  rv_buf_unref(row);
}

/* The block has gone, and another may have its slot. */
static void a_row_that_was_let_go_of_is_not_taken_for_another(void **state)
{
  enum { ROWS = 20 };
  setting *s = *state;
  rv_buf *row = make_row(s, 1);
  question old, asked;
  assert_true(name(&s->call, row->data, ROW, 1, &old));
  rv_buf_unref(row);
  for (size_t i = 0; i < ROWS; i++) {
    row = make_row(s, i);
    assert_true(name(&s->call, row->data, ROW, i, &asked));
    expect_answer(&s->call, &asked, "as it lies");
    rv_buf_unref(row);
  }
  expect_answer(&s->call, &old, "refused");
}

static void places_that_cannot_be_are_refused(void **state)
{
  setting *s = *state;
  rv_buf *row = make_row(s, 2);
  question good, bad;
  assert_true(name(&s->call, row->data, ROW, 2, &good));
  for (size_t i = 0; i < RV_PLACE_BYTES; i++) { /* slot, turn, and an offset that is too large by more than a block */
    if (i == 8 || i == 9) continue;
    bad = good;
    bad.place[i] ^= 0x80;
    expect_answer(&s->call, &bad, "refused");
  }
  bad = good;
  bad.size = SIZE_MAX - 100;
  expect_answer(&s->call, &bad, "refused");
  rv_buf_unref(row);
}

int main(void)
{
#define PLACE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      PLACE_TEST(a_row_is_taken_as_it_lies),         PLACE_TEST(a_row_that_is_taken_again_is_copied),
      PLACE_TEST(a_part_of_a_row_is_copied),         PLACE_TEST(what_lies_elsewhere_has_no_place),
      PLACE_TEST(places_that_cannot_be_are_refused), PLACE_TEST(a_row_that_was_let_go_of_is_not_taken_for_another),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
