/* Calls between our own client and our own server: what each kind of call promises. */
#include "net/pair_testing.h"

#include <unistd.h>

#include "base/env.h"
#include "net/session.h"

static void a_unary_call_is_answered(void **state)
{
  both *b = *state;
  char answer[64];
  assert_int_equal(call_unary(&b->client, "/echo/unary", "hello", answer), RV_OK);
  assert_string_equal(answer, "hello");
  assert_non_null(strstr(b->server.peer, b->place.directory[0] == '\0' ? "ipv4:127.0.0.1:" : "unix:"));
  char text[200];
  rv_channel_state(b->client.channel, text, sizeof text);
  assert_int_equal(strncmp(text, "connected to ", 13), 0);
  assert_non_null(strstr(text, b->client.address));
}

static void an_empty_message_is_a_message(void **state)
{
  both *b = *state;
  test_call call;
  call_init(&call, &b->client, "/echo/unary");
  call_start(&call);
  call_send(&call, "", 0);
  call_wait(&call);
  assert_int_equal(call.code, RV_OK);
  assert_int_equal(call.messages, 1);
  assert_int_equal(call.bytes, 0);
  call_fini(&call);
}

static void a_stream_goes_both_ways_until_half_closed(void **state)
{
  both *b = *state;
  test_call call;
  call_init(&call, &b->client, "/echo/stream");
  call_start(&call);
  for (size_t i = 1; i <= 100; i++) {
    char text[32];
    snprintf(text, sizeof text, "message %zu", i);
    call_send(&call, text, strlen(text));
    call_wait_messages(&call, i);
    assert_string_equal(call.text, text);
  }
  assert_false(call.closed);
  call_half_close(&call);
  call_wait(&call);
  assert_int_equal(call.code, RV_OK);
  assert_int_equal(call.messages, 100);
  assert_int_equal(call.headers, 1);
  call_fini(&call);
}

static void status_and_message_arrive_as_they_were_given(void **state)
{
  both *b = *state;
  test_call call;
  for (int code = 0; code <= RV_UNAUTHENTICATED; code++) {
    char number[8];
    snprintf(number, sizeof number, "%d", code);
    call_init(&call, &b->client, "/echo/status");
    call_add(&call, "echo-code", number);
    call_add(&call, "echo-message", "100% of \"obs\" is wr\xc3\xb6ng");
    call_start(&call);
    call_send(&call, "x", 1); /* not half-closed: the server resets the stream after its trailers */
    call_wait(&call);
    assert_int_equal(call.code, code);
    assert_string_equal(call.message, "100% of \"obs\" is wr\xc3\xb6ng");
    assert_int_equal(call.messages, 0);
    call_fini(&call);
  }
}

static void an_unknown_method_is_unimplemented(void **state)
{
  both *b = *state;
  test_call call;
  call_init(&call, &b->client, "/nobody/knows");
  call_start(&call);
  call_wait(&call);
  assert_int_equal(call.code, RV_UNIMPLEMENTED);
  assert_string_equal(call.message, "the server has no method \"/nobody/knows\"");
  call_fini(&call);
}

static void headers_can_come_before_the_first_message(void **state)
{
  both *b = *state;
  test_call call;
  call_init(&call, &b->client, "/echo/stream");
  call_add(&call, "echo-header", "value 1");
  call_start(&call);
  rv_mutex_lock(&call.lock);
  while (call.headers == 0) rv_cond_wait(&call.changed, &call.lock);
  rv_mutex_unlock(&call.lock);
  assert_string_equal(call.header, "value 1");
  assert_int_equal(call.messages, 0);
  call_half_close(&call);
  call_wait(&call);
  assert_int_equal(call.code, RV_OK);
  call_fini(&call);
}

static void metadata_that_http_forbids_is_refused(void **state)
{
  both *b = *state;
  static const char *const names[] = {"Upper", "with space", ":path", "", "new\nline"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    test_call call;
    call_init(&call, &b->client, "/echo/unary");
    call_add(&call, names[i], "x");
    call_start(&call);
    call_wait(&call);
    assert_int_equal(call.code, RV_INVALID_ARGUMENT);
    call_fini(&call);
  }
}

static int64_t now(void)
{
  rv_env env;
  rv_env_default(&env);
  return rv_monotonic_ns(&env);
}

static void a_deadline_ends_the_call_at_both_ends(void **state)
{
  both *b = *state;
  size_t others = 0;
  for (int64_t ns = 30000000; echo_count(&b->server, &b->server.opened) == others; ns *= 2) {
    test_call call;
    call_init(&call, &b->client, "/echo/hang");
    call.config.deadline_ns = now() + ns;
    call_start(&call);
    call_send(&call, "x", 1);
    call_wait(&call);
    assert_int_equal(call.code, RV_DEADLINE_EXCEEDED);
    assert_non_null(strstr(call.message, "Deadline Exceeded"));
    call_fini(&call);
    /* The server gets this one after it, if it got it at all: on a busy machine a short deadline passes before the call is sent. */
    assert_int_equal(call_unary(&b->client, "/echo/unary", "x", NULL), RV_OK);
    others++;
  }
  echo_wait(&b->server, &b->server.closed, others + 1); /* by its own timer, or by the client's reset */
  assert_int_equal(b->server.closed_by_code[RV_DEADLINE_EXCEEDED] + b->server.closed_by_code[RV_CANCELLED], 1);
}

static void a_deadline_in_the_past_ends_at_once(void **state)
{
  both *b = *state;
  test_call call;
  call_init(&call, &b->client, "/echo/hang");
  call.config.deadline_ns = now() - 1;
  call_start(&call);
  call_wait(&call);
  assert_int_equal(call.code, RV_DEADLINE_EXCEEDED);
  call_fini(&call);
}

static void cancelling_ends_the_call_at_both_ends(void **state)
{
  both *b = *state;
  test_call call;
  call_init(&call, &b->client, "/echo/hang");
  call_start(&call);
  call_send(&call, "x", 1);
  echo_wait(&b->server, &b->server.messages, 1);
  call_cancel(&call);
  call_wait(&call);
  assert_int_equal(call.code, RV_CANCELLED);
  echo_wait(&b->server, &b->server.closed, 1);
  assert_int_equal(b->server.closed_by_code[RV_CANCELLED], 1);
  call_fini(&call);
}

static void cancelling_before_the_connection_stands_ends_the_call(void **state)
{
  both *b = *state;
  test_call call;
  call_init(&call, &b->client, "/echo/unary");
  call_start(&call);
  call_cancel(&call);
  call_wait(&call);
  assert_int_equal(call.code, RV_CANCELLED);
  call_fini(&call);
  assert_int_equal(call_unary(&b->client, "/echo/unary", "still alive", NULL), RV_OK);
}

static void a_server_may_cancel_from_within_a_callback(void **state)
{
  both *b = *state;
  test_call call;
  call_init(&call, &b->client, "/echo/cancel");
  call_start(&call);
  call_send(&call, "x", 1);
  call_wait(&call);
  assert_int_equal(call.code, RV_CANCELLED);
  call_fini(&call);
}

enum { MANY = 10000 };

static void start_many(void *argument)
{
  test_call *calls = argument;
  for (size_t i = 0; i < MANY; i++) {
    call_start_on_loop(&calls[i]);
    rv_pieces_init(&calls[i].pieces);
    rv_pieces_copy(&calls[i].pieces, "x", 1);
    call_send_on_loop(&calls[i]);
  }
}

static void ten_thousand_calls_are_open_on_one_connection(void **state)
{
  both *b = *state;
  test_call *calls = calloc(MANY, sizeof *calls);
  for (size_t i = 0; i < MANY; i++) call_init(&calls[i], &b->client, "/echo/stream");
  rv_loop_call(b->client.loop, start_many, calls);
  for (size_t i = 0; i < MANY; i++) call_wait_messages(&calls[i], 1);
  assert_int_equal(echo_count(&b->server, &b->server.opened) - echo_count(&b->server, &b->server.closed), MANY);
  for (size_t i = 0; i < MANY; i++) call_half_close(&calls[i]);
  for (size_t i = 0; i < MANY; i++) {
    call_wait(&calls[i]);
    assert_int_equal(calls[i].code, RV_OK);
    call_fini(&calls[i]);
  }
  free(calls);
}

static void five_thousand_calls_opened_and_reset_leave_the_connection_alone(void **state)
{
  both *b = *state;
  test_call witness, call;
  call_init(&witness, &b->client, "/echo/stream");
  call_start(&witness);
  call_send(&witness, "1", 1);
  call_wait_messages(&witness, 1);
  for (int i = 0; i < 5000; i++) {
    call_init(&call, &b->client, "/echo/hang");
    call_start(&call);
    call_send(&call, "x", 1);
    call_cancel(&call);
    call_wait(&call);
    call_fini(&call);
  }
  echo_wait(&b->server, &b->server.opened, 5001);
  call_send(&witness, "2", 1); /* on the same connection as before */
  call_wait_messages(&witness, 2);
  call_half_close(&witness);
  call_wait(&witness);
  assert_int_equal(witness.code, RV_OK);
  call_fini(&witness);
}

static void almost_spend_stream_ids(void *argument)
{
  const rv_loop *loop = argument;
  rv_session *session = RV_CONTAINER(loop->connections.next, rv_session, link);
  assert_int_equal(nghttp2_session_set_next_stream_id(session->http, INT32_MAX - 4), 0);
}

typedef struct connections {
  const rv_loop *loop;
  size_t count;
} connections;

static void count_on_loop(void *argument)
{
  connections *counted = argument;
  counted->count = 0;
  RV_LIST_EACH(link, &counted->loop->connections) counted->count++;
}

static size_t count_connections(echo_client *client)
{
  connections counted = {.loop = client->loop};
  rv_loop_call(client->loop, count_on_loop, &counted);
  return counted.count;
}

static void a_connection_whose_stream_ids_are_spent_is_replaced_and_its_calls_go_on(void **state)
{
  both *b = *state;
  rv_env env;
  rv_env_default(&env);
  test_call open;
  call_init(&open, &b->client, "/echo/stream");
  call_start(&open);
  call_send(&open, "1", 1);
  call_wait_messages(&open, 1);
  rv_loop_call(b->client.loop, almost_spend_stream_ids, b->client.loop);
  for (int i = 0; i < 10; i++) {
    test_call call;
    call_init(&call, &b->client, "/echo/unary");
    call.config.deadline_ns = rv_monotonic_ns(&env) + INT64_C(60000000000); /* instead of a test that hangs */
    call_start(&call);
    call_send(&call, "hello", 5);
    call_wait(&call);
    assert_int_equal(call.code, RV_OK);
    call_fini(&call);
  }
  assert_int_equal(count_connections(&b->client), 2);
  call_send(&open, "2", 1);
  call_wait_messages(&open, 2);
  call_half_close(&open);
  call_wait(&open);
  assert_int_equal(open.code, RV_OK);
  call_fini(&open);
  while (count_connections(&b->client) > 1) /* the old one ends with its last call */
    assert_int_equal(call_unary(&b->client, "/echo/unary", "x", NULL), RV_OK);
}

static void freeing_the_channel_cancels_its_calls(void **state)
{
  both *b = *state;
  test_call open, paused, waiting;
  call_init(&open, &b->client, "/echo/hang");
  call_start(&open);
  call_init(&paused, &b->client, "/echo/source");
  paused.pause_at_once = true;
  call_add(&paused, "echo-count", "3");
  call_add(&paused, "echo-size", "10");
  call_start(&paused);
  call_send(&paused, "x", 1);
  call_wait_messages(&paused, 1);
  echo_wait(&b->server, &b->server.closed, 1); /* its trailers are on their way: the status waits behind two messages */
  call_init(&waiting, &b->client, "/echo/hang");
  call_start(&waiting);
  rv_channel_free(b->client.channel);
  assert_true(open.closed && paused.closed && waiting.closed);
  assert_int_equal(open.code, RV_CANCELLED);
  assert_int_equal(waiting.code, RV_CANCELLED);
  call_fini(&open);
  call_fini(&paused);
  call_fini(&waiting);
  rv_channel_config config = {.loop = b->client.loop, .address = b->client.address, .shares_memory = true};
  assert_int_equal(rv_channel_new(&config, &b->client.channel, NULL), RV_OK);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      EACH_WAY(a_unary_call_is_answered),
      EACH_WAY(an_empty_message_is_a_message),
      EACH_WAY(a_stream_goes_both_ways_until_half_closed),
      EACH_WAY(status_and_message_arrive_as_they_were_given),
      EACH_WAY(an_unknown_method_is_unimplemented),
      EACH_WAY(headers_can_come_before_the_first_message),
      EACH_WAY(metadata_that_http_forbids_is_refused),
      EACH_WAY(a_deadline_ends_the_call_at_both_ends),
      EACH_WAY(a_deadline_in_the_past_ends_at_once),
      EACH_WAY(cancelling_ends_the_call_at_both_ends),
      EACH_WAY(cancelling_before_the_connection_stands_ends_the_call),
      EACH_WAY(a_server_may_cancel_from_within_a_callback),
      EACH_WAY(ten_thousand_calls_are_open_on_one_connection),
      EACH_WAY(five_thousand_calls_opened_and_reset_leave_the_connection_alone),
      EACH_WAY(a_connection_whose_stream_ids_are_spent_is_replaced_and_its_calls_go_on),
      EACH_WAY(freeing_the_channel_cancels_its_calls),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
