#include "client/idle_calls.h"

#include <sched.h>

#include "net/echo_testing.h"

enum { USERS = RV_IDLE_CALLS_MAX + 2 };

typedef struct world {
  echo_server server;
  echo_client client;
  rv_idle_calls idle;
  test_call user[USERS];
  size_t asked; /* the user whose call the loop's steps below are about */
  bool done;    /* what such a step returned */
} world;

static int set_up(void **state)
{
  world *w = calloc(1, sizeof *w);
  echo_start(&w->server, "127.0.0.1:0", 1);
  client_open_server(&w->client, &w->server);
  for (size_t i = 0; i < USERS; i++) call_init(&w->user[i], &w->client, "/echo/stream");
  *state = w;
  return 0;
}

static int tear_down(void **state)
{
  world *w = *state;
  client_close(&w->client);
  assert_int_equal(w->idle.count, 0);
  for (size_t i = 0; i < USERS; i++) call_fini(&w->user[i]);
  echo_stop(&w->server);
  free(w);
  return 0;
}

static void keep_on_loop(void *argument)
{
  world *w = argument;
  test_call *user = &w->user[w->asked];
  w->done = user->call != NULL && rv_idle_calls_keep(&w->idle, user->call);
  if (w->done) user->call = NULL;
}

static bool keep(world *w, size_t user)
{
  w->asked = user;
  rv_loop_call(w->client.loop, keep_on_loop, w);
  return w->done;
}

static void take_on_loop(void *argument)
{
  static const rv_call_events user_events = {.on_message = call_on_message, .on_close = call_on_close};
  world *w = argument;
  test_call *user = &w->user[w->asked];
  user->call = rv_idle_calls_take(&w->idle, &user_events, user);
  w->done = user->call != NULL;
}

static bool take(world *w, size_t user)
{
  w->asked = user;
  rv_loop_call(w->client.loop, take_on_loop, w);
  return w->done;
}

static void count_on_loop(void *argument)
{
  world *w = argument;
  w->done = w->idle.count > 0;
}

static bool has_some(world *w)
{
  rv_loop_call(w->client.loop, count_on_loop, w);
  return w->done;
}

/* Says so, and hears it. */
static void ask(test_call *user, const char *text)
{
  size_t before = user->messages;
  call_send(user, text, strlen(text));
  call_wait_messages(user, before + 1);
  assert_string_equal(user->text, text);
}

static void the_next_user_has_the_same_stream_and_hears_only_what_he_asked(void **state)
{
  world *w = *state;
  call_start(&w->user[0]);
  ask(&w->user[0], "one");
  for (size_t i = 1; i < USERS; i++) {
    assert_true(keep(w, i - 1));
    assert_true(take(w, i));
    assert_false(take(w, 0));
    ask(&w->user[i], "another");
  }
  assert_int_equal(echo_count(&w->server, &w->server.opened), 1);
  assert_int_equal(w->user[0].messages, 1);
  assert_false(w->user[0].closed);
}

static void so_many_are_kept_and_what_is_not_kept_is_still_its_users(void **state)
{
  world *w = *state;
  for (size_t i = 0; i < USERS; i++) {
    call_start(&w->user[i]);
    ask(&w->user[i], "mine");
    assert_int_equal(keep(w, i), i < RV_IDLE_CALLS_MAX);
  }
  ask(&w->user[USERS - 1], "still mine");
  call_cancel(&w->user[USERS - 1]);
  call_wait(&w->user[USERS - 1]);
  assert_int_equal(w->user[USERS - 1].code, RV_CANCELLED);
}

static void what_is_over_or_half_closed_is_neither_kept_nor_given_out(void **state)
{
  world *w = *state;
  for (size_t i = 0; i < 3; i++) {
    call_start(&w->user[i]);
    ask(&w->user[i], "here");
  }
  call_half_close(&w->user[0]);
  assert_false(keep(w, 0));
  assert_true(keep(w, 1));
  assert_true(keep(w, 2));
  rv_grpc_server_free(w->server.grpc); /* which ends them all */
  w->server.grpc = NULL;
  call_wait(&w->user[0]);
  while (has_some(w)) sched_yield(); /* until the loop has heard of it */
  assert_false(take(w, 3));
}

static void a_message_that_nobody_asked_for_ends_the_call(void **state)
{
  world *w = *state;
  call_start(&w->user[0]);
  ask(&w->user[0], "here");
  call_send(&w->user[0], "and gone", 8);
  assert_true(keep(w, 0)); /* its answer may have come before: then there is another */
  for (bool idle = true; idle;) {
    idle = take(w, 1);
    if (idle) {
      call_send(&w->user[1], "again", 5);
      assert_true(keep(w, 1));
    }
  }
  echo_wait(&w->server, &w->server.closed, 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(the_next_user_has_the_same_stream_and_hears_only_what_he_asked, set_up, tear_down),
      cmocka_unit_test_setup_teardown(so_many_are_kept_and_what_is_not_kept_is_still_its_users, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_is_over_or_half_closed_is_neither_kept_nor_given_out, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_message_that_nobody_asked_for_ends_the_call, set_up, tear_down),
  };
  return cmocka_run_group_tests_name("idle calls", tests, NULL, NULL);
}
