/* A resolver that does not answer keeps nobody. This file's getaddrinfo takes the system's place: it answers when the gate is opened. */
#include "net/echo_testing.h"

#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "net/loop.h"

enum { PATIENCE_S = 60 }; /* instead of a test that hangs */

static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool open;
  size_t asked, answered, given_up;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

__attribute__((visibility("default"))) int /* also for libraries that ask */
getaddrinfo(const char *restrict node, const char *restrict service, const struct addrinfo *restrict hints,
            struct addrinfo **restrict list)
{
  (void)node, (void)service, (void)hints, (void)list;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += PATIENCE_S;
  pthread_mutex_lock(&gate.lock);
  gate.asked++;
  pthread_cond_broadcast(&gate.changed);
  while (!gate.open)
    if (pthread_cond_timedwait(&gate.changed, &gate.lock, &until) != 0) {
      gate.given_up++;
      break;
    }
  gate.answered++;
  pthread_cond_broadcast(&gate.changed);
  pthread_mutex_unlock(&gate.lock);
  return EAI_AGAIN;
}

static void set_gate(bool open)
{
  pthread_mutex_lock(&gate.lock);
  gate.open = open;
  pthread_cond_broadcast(&gate.changed);
  pthread_mutex_unlock(&gate.lock);
}

static void gate_wait(const size_t *what, size_t count)
{
  pthread_mutex_lock(&gate.lock);
  while (*what < count) pthread_cond_wait(&gate.changed, &gate.lock);
  pthread_mutex_unlock(&gate.lock);
}

static int close_gate(void **state)
{
  (void)state;
  set_gate(false);
  gate.asked = gate.answered = gate.given_up = 0;
  return 0;
}

/* A call to a host whose lookup is under way. */
static void start_to_call(echo_client *client, test_call *call)
{
  client_open(client, "a-host.invalid:1");
  call_init(call, client, "/echo/unary");
  call_start(call);
  gate_wait(&gate.asked, 1);
}

static void closing_a_client_does_not_wait_for_the_resolver(void **state)
{
  (void)state;
  echo_client client;
  test_call call;
  start_to_call(&client, &call);
  client_close(&client);
  assert_int_equal(gate.given_up, 0);
  assert_int_equal(gate.answered, 0);
  assert_true(call.closed);
  assert_int_equal(call.code, RV_CANCELLED);
  call_fini(&call);
  set_gate(true);
  gate_wait(&gate.answered, 1);
}

/* The answer is on its way to the loop when the channel goes. */
static void close_as_it_answers(void *argument)
{
  echo_client *client = argument;
  set_gate(true);
  for (bool posted = false; !posted; sched_yield()) {
    rv_mutex_lock(&client->loop->lock);
    posted = !rv_list_empty(&client->loop->inbox);
    rv_mutex_unlock(&client->loop->lock);
  }
  rv_channel_free(client->channel);
}

static void an_answer_that_nobody_waits_for_any_more_is_dropped(void **state)
{
  (void)state;
  echo_client client;
  test_call call;
  start_to_call(&client, &call);
  rv_loop_call(client.loop, close_as_it_answers, &client);
  rv_loop_free(client.loop);
  assert_true(call.closed);
  assert_int_equal(call.code, RV_CANCELLED);
  call_fini(&call);
}

static void what_the_resolver_says_is_told(void **state)
{
  (void)state;
  echo_client client;
  test_call call;
  start_to_call(&client, &call);
  set_gate(true);
  call_wait(&call);
  assert_int_equal(call.code, RV_UNAVAILABLE);
  assert_non_null(strstr(call.message, "cannot resolve the host \"a-host.invalid\": "));
  assert_non_null(strstr(call.message, gai_strerror(EAI_AGAIN)));
  call_fini(&call);
  client_close(&client);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(closing_a_client_does_not_wait_for_the_resolver, close_gate),
      cmocka_unit_test_setup(an_answer_that_nobody_waits_for_any_more_is_dropped, close_gate),
      cmocka_unit_test_setup(what_the_resolver_says_is_told, close_gate),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
