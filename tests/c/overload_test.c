/* More than a server can take: it says so, to whom it concerns, and the others do not notice. */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

#include "store/idle_selector_testing.h"
#include "support/rig.h"

enum { BURST = 150, WORK_MS = 10, CROWD = 2000, READERS = 5, WIDTH = 4096, ROUNDS = 50 };
enum { PAGE = 10000, CALLS = 200, MOST_KEPT = 12 << 20 };

#define ITEMS "/reverie.Reverie/Items"

static const rv_wait patient = {.timeout_ms = 60000};

/* ---- a selector that takes its time for an update ---- */

static atomic_int updates;
static atomic_bool all_are_sent;

/* The first waits for the whole burst: on a busy machine the server could otherwise keep up with who sends it. */
static rv_code update(void *selector, uint32_t slot, uint64_t key, double priority, rv_error *err)
{
  (void)selector, (void)slot, (void)key, (void)priority, (void)err;
  atomic_fetch_add(&updates, 1);
  for (int ms = 0; ms < 60000 && !atomic_load(&all_are_sent); ms++) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  nanosleep(&(struct timespec){.tv_nsec = WORK_MS * 1000000}, NULL); /* the work */
  return RV_OK;
}

static const rv_selector_ops slow = IDLE_SELECTOR_OPS(update);

/* ---- worlds ---- */

typedef struct world {
  rv_registry *registry;
  test_rig rig;
  uint64_t key; /* of the one item of "t" */
} world;

static rv_client *client_of(const char *address, rv_io *io)
{
  rv_error err = {.message = ""};
  const rv_client_config config = {.size = sizeof config, .address = address, .io = io};
  rv_client *client;
  if (rv_client_new(&config, &client, &err) != RV_OK) fail_msg("%s", err.message);
  return client;
}

static void fine(rv_code code, const rv_error *err)
{
  if (code != RV_OK) fail_msg("%s: %s", rv_code_name(code), err->message);
}

static void add_one(rv_client *client, uint64_t *key)
{
  static const float values[WIDTH];
  static const int64_t shape[] = {WIDTH};
  const rv_tensor row = {.dtype = RV_FLOAT32, .rank = 1, .shape = shape, .data = values};
  rv_error err;
  fine(rv_client_add(client, "t", &row, 1, 1, key, &patient, &err), &err);
}

/* One table, "t", whose updates are slow, or not; one I/O thread. */
static void open_world(world *w, bool slowly)
{
  rv_error err;
  *w = (world){.registry = NULL};
  atomic_store(&updates, 0);
  atomic_store(&all_are_sent, false);
  fine(rv_registry_new(&w->registry, &err), &err);
  fine(rv_registry_add_selector(w->registry, "slow", &slow, &err), &err);
  rv_table_config table = rig_table("t");
  if (slowly) table.sampler = (rv_selector_config){.kind = RV_SELECTOR_CUSTOM, .name = "slow"};
  const rv_store_config store = {.size = sizeof store, .registry = w->registry, .tables = &table, .num_tables = 1};
  fine(rv_store_new(&store, &w->rig.store, &err), &err);
  const char *addresses[] = {"127.0.0.1:0"};
  const rv_server_config config = {
      .size = sizeof config, .store = w->rig.store, .addresses = addresses, .num_addresses = 1, .io_threads = 1};
  fine(rv_server_new(&config, &w->rig.server, &err), &err);
  snprintf(w->rig.address, sizeof w->rig.address, "127.0.0.1:%u", (unsigned)rv_server_port(w->rig.server, 0));
  rv_client *client = client_of(w->rig.address, NULL);
  add_one(client, &w->key);
  rv_client_free(client);
}

static void close_world(world *w)
{
  rv_server_free(w->rig.server);
  rv_store_unref(w->rig.store);
  rv_registry_free(w->registry);
}

/* ---- more calls than can be answered ---- */

typedef struct caller {
  const world *w;
  rv_code code;
  rv_error err;
  pthread_t thread;
} caller;

/* Calls while the server is busy with the burst. */
static void *call_meanwhile(void *argument)
{
  caller *self = argument;
  const double priority = 2;
  rv_client *client = client_of(self->w->rig.address, NULL);
  while (atomic_load(&updates) == 0) sched_yield();
  self->code = rv_client_update_priorities(client, "t", &self->w->key, &priority, 1, NULL, NULL, &patient, &self->err);
  rv_client_free(client);
  return NULL;
}

/* One call, sent whole. */
typedef struct sent_call {
  test_peer *peer;
  const char *path;
  rv_writer_buf body;
  test_stream *call;
} sent_call;

static void send_on_loop(void *argument)
{
  sent_call *self = argument;
  self->call = stream_open(self->peer, self->path, NULL, 0);
  stream_send(self->call, &self->body);
  stream_half_close(self->call);
}

static test_stream *send_call(test_peer *peer, const char *path, const rv_writer_buf *owned_body)
{
  sent_call sent = {.peer = peer, .path = path, .body = *owned_body};
  rv_loop_call(peer->loop, send_on_loop, &sent);
  return sent.call;
}

/* Calls that wait for a connection are all announced on it before the first one's message. */
static void connect_first(test_peer *peer)
{
  rv_writer_buf body;
  rv_buf *response = NULL;
  char message[RV_ERROR_MESSAGE_MAX];
  rv_writer_buf_init(&body);
  if (unary(peer, HEALTH_CHECK, &body, &response, message) != RV_OK) fail_msg("%s", message);
  rv_buf_unref(response);
}

/* Many calls at once. All of them are announced before the first one's message. */
typedef struct burst {
  test_peer *peer;
  const char *path;
  const rv_writer_buf *body; /* of each */
  test_stream **calls;
  int count;
} burst;

static void send_burst_on_loop(void *argument)
{
  burst *self = argument;
  for (int i = 0; i < self->count; i++) {
    self->calls[i] = stream_open(self->peer, self->path, NULL, 0);
    stream_send_bytes(self->calls[i], self->body->data, self->body->size);
    stream_half_close(self->calls[i]);
  }
}

static void do_nothing(void *argument)
{
  (void)argument;
}

/* They are sent in one piece, which the server reads in one. */
static void send_burst(test_peer *peer, const char *path, rv_writer_buf *owned_body, test_stream **calls, int count)
{
  burst sent = {.peer = peer, .path = path, .body = owned_body, .calls = calls, .count = count};
  rv_loop_call(peer->loop, send_burst_on_loop, &sent);
  rv_loop_call(peer->loop, do_nothing, NULL); /* now they are on their way */
  rv_writer_buf_fini(owned_body);
}

typedef struct outcome {
  int answered, late, unread;
} outcome;

static outcome outcome_of(test_stream **calls, int count)
{
  outcome all = {0};
  for (int i = 0; i < count; i++) {
    char message[RV_ERROR_MESSAGE_MAX];
    rv_code code = stream_end(calls[i], message);
    if (code == RV_OK) {
      all.answered++;
    } else {
      assert_int_equal(code, RV_RESOURCE_EXHAUSTED);
      assert_string_equal(stream_pushback(calls[i]), "250");
      bool unread = strstr(message, "bytes of answers wait for this connection to take them") != NULL;
      if (!unread) assert_non_null(strstr(message, "the server gets more calls than it can answer; try again in 250 ms"));
      all.unread += unread;
      all.late += !unread;
    }
    stream_free(calls[i]);
  }
  return all;
}

static void put_update(rv_writer_buf *out, const world *w)
{
  const rv_key_priority change = {.key = w->key, .priority = 2};
  rv_writer_buf_init(out);
  rv_mutate_request_serialize(out, "t", &change, 1, NULL, 0);
}

static void what_cannot_be_answered_in_time_is_put_off_and_our_client_comes_again_by_itself(void **state)
{
  (void)state;
  world w;
  test_peer peer;
  open_world(&w, true);
  peer_open(&peer, w.rig.address);
  connect_first(&peer);
  caller meanwhile = {.w = &w};
  assert_int_equal(pthread_create(&meanwhile.thread, NULL, call_meanwhile, &meanwhile), 0);
  test_stream *calls[BURST];
  for (int i = 0; i < BURST; i++) {
    rv_writer_buf body;
    put_update(&body, &w);
    calls[i] = send_call(&peer, MUTATE, &body);
  }
  atomic_store(&all_are_sent, true);
  outcome all = outcome_of(calls, BURST);
  pthread_join(meanwhile.thread, NULL);
  fine(meanwhile.code, &meanwhile.err);
  assert_true(all.answered > 0 && all.late > 0);
  assert_int_equal(atomic_load(&updates), all.answered + 1); /* what was put off had no effect */
  rv_client *client = client_of(w.rig.address, NULL);
  const double priority = 3;
  rv_error err;
  fine(rv_client_update_priorities(client, "t", &w.key, &priority, 1, NULL, NULL, &patient, &err), &err);
  rv_client_free(client);
  peer_close(&peer);
  close_world(&w);
}

static void calls_that_came_in_time_and_are_not_answered_in_time_are_put_off(void **state)
{
  (void)state;
  world w;
  test_peer peer;
  rv_writer_buf body;
  test_stream *calls[BURST];
  open_world(&w, true);
  peer_open(&peer, w.rig.address);
  connect_first(&peer);
  put_update(&body, &w);
  send_burst(&peer, MUTATE, &body, calls, BURST);
  atomic_store(&all_are_sent, true);
  outcome all = outcome_of(calls, BURST);
  assert_true(all.late > 0);
  assert_int_equal(atomic_load(&updates), all.answered); /* what was put off had no effect */
  peer_close(&peer);
  close_world(&w);
}

/* ---- answers that nobody takes ---- */

typedef struct standstill {
  rv_task task;
  sem_t over;
} standstill;

static void stand_still(rv_task *task)
{
  while (sem_wait(&RV_CONTAINER(task, standstill, task)->over) != 0) continue;
}

static void fill_table(const world *w, int64_t n)
{
  rv_error err;
  rv_client *client = client_of(w->rig.address, NULL);
  rv_table_bounds bounds = rv_table_bounds_unchanged();
  bounds.max_size = n;
  fine(rv_client_set_bounds(client, "t", &bounds, &patient, &err), &err);
  int8_t *values = calloc(1, (size_t)n);
  const rv_tensor rows = {.dtype = RV_INT8, .rank = 1, .shape = &n, .data = values};
  size_t added;
  fine(rv_client_add_batch(client, "t", &rows, 1, (size_t)n, NULL, NULL, &added, &patient, &err), &err);
  free(values);
  rv_client_free(client);
}

static void put_page(rv_writer_buf *out, uint64_t items)
{
  const rv_items_request request = {.table = {(const uint8_t *)"t", 1}, .capacity = items};
  rv_writer_buf_init(out);
  rv_items_request_serialize(out, &request);
}

/* Asks for one page of a table, and takes it; its size. */
static size_t take_page(test_peer *peer, uint64_t items)
{
  rv_writer_buf body;
  rv_buf *response = NULL;
  char message[RV_ERROR_MESSAGE_MAX];
  put_page(&body, items);
  if (unary(peer, ITEMS, &body, &response, message) != RV_OK) fail_msg("%s", message);
  size_t size = response->size;
  rv_buf_unref(response);
  return size;
}

static void ask_one_by_one(test_peer *peer, test_stream **calls)
{
  for (int i = 0; i < CALLS; i++) {
    rv_writer_buf body;
    put_page(&body, PAGE);
    calls[i] = send_call(peer, ITEMS, &body);
  }
}

static void ask_at_once(test_peer *peer, test_stream **calls)
{
  rv_writer_buf body;
  put_page(&body, PAGE);
  send_burst(peer, ITEMS, &body, calls, CALLS);
}

static void check_what_is_kept(void (*ask)(test_peer *peer, test_stream **calls))
{
  world w;
  test_peer peer;
  rv_error err;
  test_stream *calls[CALLS];
  open_world(&w, false);
  fill_table(&w, PAGE);
  peer_open(&peer, w.rig.address);
  take_page(&peer, PAGE); /* it is answered; and the connection stands: what follows is sent at once */
  ask(&peer, calls);
  rv_loop_call(peer.loop, do_nothing, NULL);
  standstill still = {.task = {.run = stand_still}};
  sem_init(&still.over, 0, 0);
  rv_loop_post(peer.loop, &still.task);
  rv_client *other = client_of(w.rig.address, NULL); /* is answered as ever */
  for (int i = 0; i < ROUNDS; i++) {
    rv_server_info *info;
    fine(rv_client_server_info(other, &patient, &info, &err), &err);
    assert_true(info->memory.connection_bytes < MOST_KEPT);
    rv_server_info_free(info);
  }
  sem_post(&still.over);
  rv_loop_call(peer.loop, do_nothing, NULL); /* it goes on */
  sem_destroy(&still.over);
  outcome all = outcome_of(calls, CALLS);
  assert_true(all.unread + all.late > 0);
  rv_client_free(other);
  peer_close(&peer);
  close_world(&w);
}

static void a_peer_that_takes_no_answers_makes_the_server_keep_some_megabytes_of_them_and_no_more(void **state)
{
  (void)state;
  check_what_is_kept(ask_one_by_one);
}

static void nor_does_one_that_asks_for_all_of_them_at_once(void **state)
{
  (void)state;
  check_what_is_kept(ask_at_once);
}

/* One call more than make 8 MiB of answers: they wait only because the server reads what was sent with them. */
static void nobody_is_put_off_for_answers_that_his_connection_was_not_asked_to_take(void **state)
{
  (void)state;
  enum { PART = 2500, BOUND = 8 << 20 };
  world w;
  test_peer peer;
  rv_writer_buf body;
  test_stream *calls[1000];
  open_world(&w, false);
  fill_table(&w, PAGE);
  peer_open(&peer, w.rig.address);
  size_t size = take_page(&peer, PART);
  int count = (int)(BOUND / size) + 2;
  assert_true(size < 128 << 10 && count < 1000);
  put_page(&body, PART);
  send_burst(&peer, ITEMS, &body, calls, count);
  outcome all = outcome_of(calls, count);
  assert_int_equal(all.unread, 0);
  assert_int_equal(all.answered + all.late, count); /* late: on a machine that is behind itself */
  peer_close(&peer);
  close_world(&w);
}

/* ---- those who only are there ---- */

/* As many as there may be files here, for both ends are in this process. */
static size_t most_idle(void)
{
  struct rlimit files;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
  size_t most = files.rlim_max < 1000 ? 100 : (size_t)files.rlim_max / 2 - 300;
  return most < CROWD ? most : CROWD;
}

static void many_who_are_idle_and_some_who_stopped_reading_harm_nobody(void **state)
{
  (void)state;
  world w;
  rv_io *io;
  rv_error err;
  open_world(&w, false);
  fine(rv_io_new(&io, &err), &err);
  size_t n = most_idle();
  rv_client **idle = calloc(n, sizeof(rv_client *));
  for (size_t i = 0; i < n; i++) {
    rv_server_info *info;
    idle[i] = client_of(w.rig.address, io);
    fine(rv_client_server_info(idle[i], &patient, &info, &err), &err);
    rv_server_info_free(info);
  }
  test_peer peer;
  peer_open(&peer, w.rig.address);
  test_stream *readers[READERS];
  for (int i = 0; i < READERS; i++) {
    readers[i] = stream_open(&peer, SAMPLE, NULL, 0);
    ask_samples(readers[i], "t", 1000000, -1);
    rv_buf_unref(stream_next(readers[i]));
    stream_pause(readers[i], true);
  }
  rv_client *active = client_of(w.rig.address, NULL);
  const rv_wait deadline = {.timeout_ms = 20000};
  for (int i = 0; i < ROUNDS; i++) {
    uint64_t key;
    const double priority = 2;
    rv_batch *batch;
    add_one(active, &key);
    fine(rv_client_sample_batch(active, "t", 1, RV_UNEQUAL_ERROR, &deadline, &batch, &err), &err);
    rv_batch_free(batch);
    fine(rv_client_update_priorities(active, "t", &key, &priority, 1, NULL, NULL, &deadline, &err), &err);
    rv_server_info *info; /* one of the idle ones wakes */
    fine(rv_client_server_info(idle[(size_t)i * n / ROUNDS], &deadline, &info, &err), &err);
    rv_server_info_free(info);
  }
  print_message("beside %zu idle clients and %d readers that stopped\n", n, READERS);
  for (int i = 0; i < READERS; i++) stream_free(readers[i]);
  peer_close(&peer);
  rv_client_free(active);
  for (size_t i = 0; i < n; i++) rv_client_free(idle[i]);
  free(idle);
  rv_io_unref(io);
  close_world(&w);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_cannot_be_answered_in_time_is_put_off_and_our_client_comes_again_by_itself),
      cmocka_unit_test(calls_that_came_in_time_and_are_not_answered_in_time_are_put_off),
      cmocka_unit_test(a_peer_that_takes_no_answers_makes_the_server_keep_some_megabytes_of_them_and_no_more),
      cmocka_unit_test(nor_does_one_that_asks_for_all_of_them_at_once),
      cmocka_unit_test(nobody_is_put_off_for_answers_that_his_connection_was_not_asked_to_take),
      cmocka_unit_test(many_who_are_idle_and_some_who_stopped_reading_harm_nobody),
  };
  return cmocka_run_group_tests_name("overload", tests, NULL, NULL);
}
