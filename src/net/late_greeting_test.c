/* A connection that is not answered in time is given up. But a thread may itself have stood still, with its process or its machine, and the
 * answer be in the socket. */
#include "net/echo_testing.h"

#include "net/burst_testing.h"
#include "net/session.h"

typedef struct ends {
  socket_place place;
  echo_client client;
  test_call call;
  int listener, fd;
} ends;

static int set_up(void **state)
{
  ends *e = calloc(1, sizeof *e);
  place_init(&e->place);
  e->listener = place_listen(&e->place);
  client_open(&e->client, e->place.address);
  call_init(&e->call, &e->client, "/echo/unary");
  call_start(&e->call);
  e->fd = accept_without_question(e->listener);
  assert_true(e->fd >= 0);
  *state = e;
  return 0;
}

static int tear_down(void **state)
{
  ends *e = *state;
  call_cancel(&e->call);
  call_wait(&e->call);
  call_fini(&e->call);
  client_close(&e->client);
  close(e->fd);
  close(e->listener);
  place_fini(&e->place);
  free(e);
  return 0;
}

static void be_late_on_loop(void *argument)
{
  const ends *e = argument;
  rv_session *session = RV_CONTAINER(e->client.loop->connections.next, rv_session, link);
  assert_true(send_raw(e->fd, preface + PREFACE - 9, 9)); /* SETTINGS */
  session->timer.fire(&session->timer);
}

static void a_greeting_that_has_come_counts_however_late_it_is_looked_at(void **state)
{
  ends *e = *state;
  uint8_t first[1];
  assert_int_equal(recv(e->fd, first, 1, 0), 1); /* the connection stands */
  rv_loop_call(e->client.loop, be_late_on_loop, e);
  char text[200];
  rv_channel_state(e->client.channel, text, sizeof text);
  assert_non_null(strstr(text, "connected to"));
  assert_null(strstr(text, "not connected"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_greeting_that_has_come_counts_however_late_it_is_looked_at, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
