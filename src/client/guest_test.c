/* Who waits for an answer is his loop's guest: he asks and reads by himself where the loop's thread has nothing to do, and is woken as ever
 * where somebody else opens his gate. */

#include "client/wait.h"
#include "net/burst_testing.h"

enum { ROUNDS = 200, STORM_THREADS = 4, STORM_CALLS = 400 };

/* One call whose end opens a gate. */
typedef struct asked {
  echo_client *client;
  const char *path;
  bool fails_fast; /* where no server is there, instead of waiting for one */
  rv_gate gate;
  rv_task task;
  rv_call *call; /* of the loop */
  size_t ends;
  rv_code code;
  char text[16];
  pthread_t begun_by, read_by;
} asked;

static void on_message(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  (void)call, (void)buf;
  asked *self = user;
  self->read_by = pthread_self();
  memcpy(self->text, data, size < sizeof self->text ? size : sizeof self->text - 1);
}

static void on_close(rv_call *call, void *user, rv_code code, const char *message)
{
  (void)call, (void)message;
  asked *self = user;
  self->call = NULL;
  self->code = code;
  self->ends++;
  rv_gate_open(&self->gate);
}

static void ask(rv_task *task)
{
  static const rv_call_events events = {.on_message = on_message, .on_close = on_close};
  asked *self = RV_CONTAINER(task, asked, task);
  rv_call_config config = {.path = self->path, .deadline_ns = INT64_MAX, .wait_for_ready = !self->fails_fast};
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  assert_int_equal(rv_pieces_copy(&pieces, "hello", 5), RV_OK);
  self->begun_by = pthread_self();
  self->call = rv_channel_call(self->client->channel, &config, &events, self);
  rv_call_send(self->call, &pieces);
  rv_call_half_close(self->call);
}

static void asked_init(asked *self, echo_client *client, const char *path)
{
  *self = (asked){.client = client, .path = path, .task = {.run = ask}};
  rv_gate_init_at(&self->gate, client->loop, client->channel);
}

static void cancel_call(void *context)
{
  asked *self = context;
  if (self->call != NULL) rv_call_cancel(self->call);
}

static rv_code wait_for(asked *self, const rv_wait *wait)
{
  rv_env env;
  rv_error err;
  rv_patience patience;
  rv_env_default(&env);
  rv_patience_begin(&patience, &env, wait, NULL, NULL);
  rv_gate_ask(&self->gate, &self->task, &patience);
  return rv_gate_wait(&self->gate, &patience, &err);
}

/* The answer is in it when this returns. */
static void round_trip(asked *self)
{
  *self->text = '\0';
  self->ends = 0;
  assert_int_equal(wait_for(self, NULL), RV_OK);
  assert_int_equal(self->ends, 1);
  assert_int_equal(self->code, RV_OK);
  assert_string_equal(self->text, "hello");
}

static void end_by_cancel(asked *self)
{
  rv_loop_call(self->client->loop, cancel_call, self);
  rv_gate_wait_forever(&self->gate);
  assert_int_equal(self->ends, 1);
}

/* A server, and a client that is connected. */
typedef struct both {
  echo_server server;
  echo_client client;
} both;

static int set_up(void **state)
{
  both *b = calloc(1, sizeof *b);
  assert_non_null(b);
  *state = b;
  echo_start(&b->server, "127.0.0.1:0", 1);
  client_open_server(&b->client, &b->server);
  asked first;
  asked_init(&first, &b->client, "/echo/unary");
  round_trip(&first);
  return 0;
}

static int tear_down(void **state)
{
  both *b = *state;
  client_close(&b->client);
  echo_stop(&b->server);
  free(b);
  return 0;
}

/* ---- tests ---- */

static void who_waits_asks_and_reads_by_himself(void **state)
{
  both *b = *state;
  asked self;
  asked_init(&self, &b->client, "/echo/unary");
  bool begun = false, read = false; /* now and then the loop's thread is the first */
  while (!begun || !read) {
    round_trip(&self);
    begun = begun || pthread_equal(self.begun_by, pthread_self());
    read = read || pthread_equal(self.read_by, pthread_self());
  }
}

/* The loop's thread is awake then, and mostly the first to read: whoever it is, the answer comes. */
static void who_did_not_ask_by_himself_waits_at_the_socket_all_the_same(void **state)
{
  both *b = *state;
  for (int i = 0; i < ROUNDS; i++) {
    rv_env env;
    rv_error err;
    rv_patience patience;
    asked self;
    asked_init(&self, &b->client, "/echo/unary");
    rv_env_default(&env);
    rv_patience_begin(&patience, &env, NULL, NULL, NULL);
    rv_loop_post(b->client.loop, &self.task);
    rv_gate_visit(&self.gate, NULL, &patience);
    assert_int_equal(rv_gate_wait(&self.gate, &patience, &err), RV_OK);
    assert_string_equal(self.text, "hello");
    if (i % 2 == 0) usleep(100); /* until it sleeps */
  }
}

static void *open_gate(void *context)
{
  rv_gate_open(context);
  return NULL;
}

static void a_gate_that_another_thread_opens_ends_the_wait(void **state)
{
  both *b = *state;
  for (int i = 0; i < ROUNDS; i++) {
    asked self;
    pthread_t thread;
    asked_init(&self, &b->client, "/echo/hang");
    pthread_create(&thread, NULL, open_gate, &self.gate);
    assert_int_equal(wait_for(&self, NULL), RV_OK);
    pthread_join(thread, NULL);
    assert_int_equal(self.ends, 0);
    end_by_cancel(&self);
  }
}

static void *fire(void *context)
{
  rv_cancel_fire(context);
  return NULL;
}

static void cancelling_and_a_deadline_end_the_wait(void **state)
{
  both *b = *state;
  asked self;
  for (int i = 0; i < ROUNDS; i++) {
    rv_cancel *cancel;
    rv_error err;
    pthread_t thread;
    assert_int_equal(rv_cancel_new(&cancel, &err), RV_OK);
    asked_init(&self, &b->client, "/echo/hang");
    pthread_create(&thread, NULL, fire, cancel);
    assert_int_equal(wait_for(&self, &(rv_wait){.timeout_ms = RV_FOREVER, .cancel = cancel}), RV_CANCELLED);
    pthread_join(thread, NULL);
    end_by_cancel(&self);
    rv_cancel_free(cancel);
  }
  asked_init(&self, &b->client, "/echo/hang");
  assert_int_equal(wait_for(&self, &(rv_wait){.timeout_ms = 2}), RV_DEADLINE_EXCEEDED);
  end_by_cancel(&self);
}

static void *stop_server(void *context)
{
  echo_stop(context);
  return NULL;
}

/* What has to be closed and made anew is the loop's thread's to do. */
static void a_connection_that_is_lost_meanwhile_is_made_anew(void **state)
{
  (void)state;
  socket_place place;
  place_init(&place);
  echo_server server;
  echo_client client;
  echo_start(&server, place.address, 1);
  client_open(&client, place.address);
  for (int i = 0; i < 20; i++) {
    asked self;
    asked_init(&self, &client, "/echo/unary");
    round_trip(&self);
    asked_init(&self, &client, "/echo/hang");
    self.fails_fast = true; /* the server may have gone before it is asked */
    pthread_t thread;
    pthread_create(&thread, NULL, stop_server, &server);
    assert_int_equal(wait_for(&self, NULL), RV_OK);
    assert_int_equal(self.ends, 1);
    assert_int_equal(self.code, RV_UNAVAILABLE);
    pthread_join(thread, NULL);
    echo_start(&server, place.address, 1);
  }
  client_close(&client);
  echo_stop(&server);
  place_fini(&place);
}

typedef struct storm_thread {
  pthread_t thread;
  echo_client *client;
  unsigned number;
} storm_thread;

static void *ask_much(void *context)
{
  storm_thread *storm = context;
  for (unsigned i = 0; i < STORM_CALLS; i++) {
    asked self;
    bool hangs = (i + storm->number) % 3 == 0;
    asked_init(&self, storm->client, hangs ? "/echo/hang" : "/echo/unary");
    rv_wait wait = {.timeout_ms = hangs ? i % 2 : RV_FOREVER};
    rv_code code = wait_for(&self, &wait);
    if (code != RV_OK) end_by_cancel(&self);
    if (self.ends != 1 || (!hangs && strcmp(self.text, "hello") != 0)) return storm;
  }
  return NULL;
}

static void many_guests_of_one_loop_each_get_their_answer(void **state)
{
  both *b = *state;
  storm_thread storm[STORM_THREADS];
  for (unsigned i = 0; i < STORM_THREADS; i++) {
    storm[i] = (storm_thread){.client = &b->client, .number = i};
    pthread_create(&storm[i].thread, NULL, ask_much, &storm[i]);
  }
  for (unsigned i = 0; i < STORM_THREADS; i++) {
    void *failed;
    pthread_join(storm[i].thread, &failed);
    assert_null(failed);
  }
}

int main(void)
{
#define WITH_BOTH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
  const struct CMUnitTest tests[] = {WITH_BOTH(who_waits_asks_and_reads_by_himself),
                                     WITH_BOTH(who_did_not_ask_by_himself_waits_at_the_socket_all_the_same),
                                     WITH_BOTH(a_gate_that_another_thread_opens_ends_the_wait),
                                     WITH_BOTH(cancelling_and_a_deadline_end_the_wait),
                                     cmocka_unit_test(a_connection_that_is_lost_meanwhile_is_made_anew),
                                     WITH_BOTH(many_guests_of_one_loop_each_get_their_answer)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
