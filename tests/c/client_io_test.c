/* Clients of servers elsewhere that share their I/O threads: each behaves as if it had its own. */
#include "client_fixture.h"

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

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(clients_come_and_go_over_loopback),
                                     cmocka_unit_test(clients_come_and_go_over_a_unix_socket),
                                     cmocka_unit_test(one_that_waits_holds_up_nobody)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
