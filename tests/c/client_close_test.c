/* A client that is closed before it is freed: what ends with it, and what its writers and samplers say then. */
#include "client_fixture.h"

#include "client/client.h"
#include "client/writer.h"

static rv_code add_one(rv_client *client, const char *table, const rv_wait *wait, rv_error *err)
{
  float value = 1;
  const rv_tensor row = {.dtype = RV_FLOAT32, .data = &value};
  return rv_client_add(client, table, &row, 1, 1, NULL, wait, err);
}

static rv_writer *writer_of_one_item(fixture *f, const char *table)
{
  rv_error err;
  rv_writer *writer;
  rv_writer_config config = {.size = sizeof config, .num_keep_alive_refs = 1};
  assert_ok(rv_writer_new(f->client, &config, &writer, &err));
  float value = 1;
  const rv_cell cell = {0, {.dtype = RV_FLOAT32, .data = &value}};
  assert_ok(rv_writer_append(writer, &cell, 1, false, &err));
  const rv_run run = {.column = 0, .count = 1, .first = 0, .stride = 1};
  const rv_item_column column = {.runs = &run, .num_runs = 1};
  assert_ok(rv_writer_create_item(writer, table, 1.0, &column, 1, NULL, &err));
  return writer;
}

TEST(calls_after_it_say_so)
{
  rv_error err;
  assert_ok(add_one(f->client, "replay", NULL, &err));
  rv_client_close(f->client);
  rv_client_close(f->client);
  assert_code(add_one(f->client, "replay", NULL, &err), RV_FAILED_PRECONDITION);
  assert_says("was closed; make a new one");
  rv_server_info *info;
  assert_code(rv_client_server_info(f->client, NULL, &info, &err), RV_FAILED_PRECONDITION);
  rv_client *other = new_client(f);
  assert_ok(add_one(other, "replay", NULL, &err));
  rv_client_free(other);
}

TEST(one_that_was_never_used_closes)
{
  rv_error err;
  rv_client_close(f->client);
  assert_code(add_one(f->client, "replay", NULL, &err), RV_FAILED_PRECONDITION);
}

typedef struct waiting {
  rv_client *client;
  rv_writer *writer; /* NULL: a batch is waited for */
  rv_code code;
  rv_error err;
} waiting;

static void *wait_for_ever(void *argument)
{
  waiting *self = argument;
  const rv_wait wait = {.timeout_ms = RV_FOREVER};
  rv_batch *batch;
  self->code = self->writer != NULL
                   ? rv_writer_flush(self->writer, 0, &wait, &self->err)
                   : rv_client_sample_batch(self->client, "five", 1, RV_UNEQUAL_ERROR, &wait, &batch, &self->err);
  return NULL;
}

static void close_while_it_waits(fixture *f, rv_writer *writer)
{
  waiting self = {.client = f->client, .writer = writer};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, wait_for_ever, &self), 0);
  wait_for_waiting(f, writer != NULL ? "queue" : "five", writer != NULL, writer == NULL);
  rv_client_close(f->client);
  assert_int_equal(pthread_join(thread, NULL), 0);
  rv_error err = self.err;
  /* A writer's item waits before its thread does, which may come when the client is closed already. */
  if (writer == NULL || self.code != RV_FAILED_PRECONDITION) assert_code(self.code, RV_CANCELLED);
  assert_says("was closed");
}

TEST(a_call_that_waits_is_cancelled)
{
  close_while_it_waits(f, NULL);
}

TEST(a_writer_that_waits_is_cancelled_and_gives_up_what_it_has)
{
  rv_error err;
  for (int i = 0; i < 4; i++) assert_ok(add_one(f->client, "queue", NULL, &err));
  rv_writer *writer = writer_of_one_item(f, "queue");
  close_while_it_waits(f, writer);
  assert_code(rv_writer_flush(writer, 0, NULL, &err), RV_FAILED_PRECONDITION);
  assert_says("was closed; make a new one");
  assert_int_equal(rv_writer_abandon(writer), 1);
  rv_writer_free(writer);
}

TEST(a_writer_of_which_everything_was_confirmed_ends_after_it)
{
  rv_error err;
  rv_writer *writer = writer_of_one_item(f, "replay");
  assert_ok(rv_writer_flush(writer, 0, NULL, &err));
  rv_client_close(f->client);
  assert_ok(rv_writer_flush(writer, 0, NULL, &err));
  assert_ok(rv_writer_settle(writer, NULL, &err));
  assert_code(rv_writer_end_episode(writer, true, NULL, &err), RV_FAILED_PRECONDITION);
  assert_says("was closed; make a new one");
  rv_writer_free(writer);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      EVERY_WAY(calls_after_it_say_so),
      EVERY_WAY(one_that_was_never_used_closes),
      EVERY_WAY(a_call_that_waits_is_cancelled),
      EVERY_WAY(a_writer_that_waits_is_cancelled_and_gives_up_what_it_has),
      EVERY_WAY(a_writer_of_which_everything_was_confirmed_ends_after_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
