/* Clients of servers elsewhere that share their I/O threads: each behaves as if it had its own. */
#include "client_fixture.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include "reverie/writer.h"

enum { TEAM = 8, ROUNDS = 12 };

static rv_client *new_sharing_client(fixture *f, rv_io *io)
{
  rv_error err;
  rv_client_config config = {.size = sizeof config, .address = f->address, .io = io};
  rv_client *client;
  assert_ok(rv_client_new(&config, &client, &err));
  return client;
}

typedef struct member {
  pthread_t thread;
  fixture *f;
  rv_io *io;
} member;

static void *come_and_go(void *argument)
{
  member *m = argument;
  rv_error err;
  for (int round = 0; round < ROUNDS; round++) {
    rv_batch *batch;
    rv_client *client = new_sharing_client(m->f, m->io);
    assert_ok(add_value(client, "replay", 1, 1.0, NULL, &long_enough, &err));
    for (int i = 0; i < 20; i++) {
      assert_ok(rv_client_sample_batch(client, "replay", 3, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
      assert_int_equal(rv_batch_size(batch), 3);
      rv_batch_free(batch);
    }
    rv_client_free(client);
  }
  return NULL;
}

static void clients_come_and_go_while_others_work(fixture *f)
{
  rv_error err;
  rv_io *io;
  member team[TEAM];
  assert_ok(rv_io_new(&io, &err));
  for (int i = 0; i < TEAM; i++) {
    team[i] = (member){.f = f, .io = io};
    assert_int_equal(pthread_create(&team[i].thread, NULL, come_and_go, &team[i]), 0);
  }
  for (int i = 0; i < TEAM; i++) pthread_join(team[i].thread, NULL);
  rv_io_unref(io);
}

typedef struct sleeper {
  pthread_t thread;
  rv_client *client;
  float value;
} sleeper;

static void *wait_for_an_item(void *argument)
{
  sleeper *s = argument;
  rv_error err;
  rv_batch *batch;
  float data[2];
  assert_ok(rv_client_sample_batch(s->client, "queue", 1, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
  assert_ok(rv_batch_gather(batch, 0, data, sizeof data, &err));
  s->value = data[0];
  rv_batch_free(batch);
  return NULL;
}

static void one_that_waits_holds_up_nobody_and_outlives_the_others(fixture *f)
{
  rv_error err;
  rv_io *io;
  assert_ok(rv_io_new(&io, &err));
  sleeper s = {.client = new_sharing_client(f, io)};
  assert_int_equal(pthread_create(&s.thread, NULL, wait_for_an_item, &s), 0);
  wait_for_waiting(f, "queue", 0, 1);
  for (int i = 0; i < 5; i++) {
    rv_client *other = new_sharing_client(f, io);
    add_values(other, "replay", 2);
    rv_client_free(other);
  }
  rv_client *last = new_sharing_client(f, io);
  rv_io_unref(io);
  assert_ok(add_value(last, "queue", 5, 1.0, NULL, &long_enough, &err));
  pthread_join(s.thread, NULL);
  assert_true(s.value == 5);
  rv_client_free(last);
  rv_client_free(s.client);
}

/* ---- clients that stand still ----
 * Each holds the shared thread's attention in another way: samples that nobody takes, items that no limiter lets in, a server that takes the
 * connection and says nothing, one that is not there. */

enum { IDLERS = 20, TAKEN = 300 };

/* A port on which connections are taken and nothing is ever said. */
static int listen_silently(uint16_t *port)
{
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof name;
  assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
  assert_int_equal(listen(fd, IDLERS), 0);
  assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &length), 0);
  *port = ntohs(name.sin_port);
  return fd;
}

static rv_client *new_client_of(uint16_t port, rv_io *io)
{
  rv_error err;
  char address[32];
  snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)port);
  rv_client_config config = {.size = sizeof config, .address = address, .io = io};
  rv_client *client;
  assert_ok(rv_client_new(&config, &client, &err));
  return client;
}

static rv_sampler *begin_sampling(rv_client *client, const char *table)
{
  rv_error err;
  rv_sampler *sampler;
  rv_sampler_config config = {
      .size = sizeof config, .table = table, .max_samples = RV_UNLIMITED, .rate_limiter_timeout_ms = RV_FOREVER};
  assert_ok(rv_sampler_new(client, &config, &sampler, &err));
  return sampler;
}

static void take_samples(rv_sampler *sampler, int n)
{
  rv_error err;
  for (int i = 0; i < n; i++) {
    rv_sample *sample;
    assert_ok(rv_sampler_next(sampler, &long_enough, &sample, &err));
    sample_value(sample);
    rv_sample_unref(sample);
  }
}

static rv_writer *begin_writing(rv_client *client)
{
  rv_error err;
  rv_writer *writer;
  rv_writer_config config = {.size = sizeof config, .num_keep_alive_refs = 1};
  assert_ok(rv_writer_new(client, &config, &writer, &err));
  return writer;
}

static void write_rows(rv_writer *writer, const char *table, int n)
{
  rv_error err;
  static const int64_t two[] = {2};
  for (int i = 0; i < n; i++) {
    float data[2] = {(float)i, (float)i + 0.5f};
    int64_t row = rv_writer_num_rows(writer);
    rv_cell cell = {0, {RV_FLOAT32, 1, two, data}};
    rv_run run = {.column = 0, .count = 1, .first = row, .stride = 1};
    rv_item_column column = {.runs = &run, .num_runs = 1};
    assert_ok(rv_writer_append(writer, &cell, 1, false, &err));
    assert_ok(rv_writer_create_item(writer, table, 1.0, &column, 1, NULL, &err));
  }
}

static void clients_that_stand_still_hold_up_nobody_who_shares_their_threads(fixture *f)
{
  rv_error err;
  rv_io *io;
  uint16_t port;
  rv_batch *batch;
  int silent = listen_silently(&port);
  assert_ok(rv_io_new(&io, &err));
  rv_client *idle[IDLERS];
  rv_sampler *samplers[IDLERS];
  rv_writer *writers[IDLERS];
  add_values(f->client, "replay", 10);
  add_values(f->client, "queue", 4);
  for (int i = 0; i < IDLERS; i++) { /* every second one of a server that answers */
    idle[i] = i % 2 == 0 ? new_sharing_client(f, io) : new_client_of(port, io);
    samplers[i] = begin_sampling(idle[i], "replay");
    if (i % 2 == 0) take_samples(samplers[i], TAKEN);
    writers[i] = begin_writing(idle[i]);
    write_rows(writers[i], "queue", TAKEN); /* which is full */
    rv_code code = rv_writer_flush(writers[i], 0, &(rv_wait){.timeout_ms = 1}, &err);
    assert_int_equal(code, RV_DEADLINE_EXCEEDED);
  }
  rv_client *busy = new_sharing_client(f, io);
  rv_sampler *sampler = begin_sampling(busy, "replay");
  rv_writer *writer = begin_writing(busy);
  for (int i = 0; i < IDLERS; i++) {
    write_rows(writer, "per", TAKEN);
    assert_ok(rv_writer_flush(writer, 0, &long_enough, &err));
    take_samples(sampler, TAKEN);
    assert_ok(rv_client_sample_batch(busy, "replay", 64, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
    rv_batch_free(batch);
    rv_sampler_free(samplers[i]); /* and now one of them comes to an end in the middle of what it does */
    rv_writer_free(writers[i]);
    rv_client_free(idle[i]);
  }
  rv_sampler_free(sampler);
  rv_writer_free(writer);
  rv_client_free(busy);
  rv_io_unref(io);
  close(silent);
}

static void with(transport way, void (*body)(fixture *f))
{
  fixture f;
  set_up(&f, way);
  body(&f);
  tear_down(&f);
}

static void clients_come_and_go_over_loopback(void **state)
{
  (void)state;
  with(LOOPBACK, clients_come_and_go_while_others_work);
}

static void clients_come_and_go_over_a_unix_socket(void **state)
{
  (void)state;
  with(UNIX_SOCKET, clients_come_and_go_while_others_work);
}

static void one_that_waits_holds_up_nobody(void **state)
{
  (void)state;
  with(LOOPBACK, one_that_waits_holds_up_nobody_and_outlives_the_others);
}

static void clients_that_stand_still_hold_up_nobody(void **state)
{
  (void)state;
  with(LOOPBACK, clients_that_stand_still_hold_up_nobody_who_shares_their_threads);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(clients_come_and_go_over_loopback), cmocka_unit_test(clients_come_and_go_over_a_unix_socket),
      cmocka_unit_test(one_that_waits_holds_up_nobody), cmocka_unit_test(clients_that_stand_still_hold_up_nobody)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
