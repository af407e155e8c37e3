/* What a client does when the server is not there, goes away and comes back, and after fork. */
#include "client_fixture.h"

#include <sys/wait.h>

#include "reverie/writer.h"

REMOTE_TEST(without_a_server_every_verb_ends_in_its_time)
{
  rv_error err;
  stop_server(f);
  rv_server_info *info;
  assert_code(rv_client_server_info(f->client, &shortly, &info, &err), RV_DEADLINE_EXCEEDED);
  assert_says(f->address);
  assert_says("is one running there?");
  assert_code(rv_client_reset(f->client, "replay", &shortly, &err), RV_DEADLINE_EXCEEDED);
  rv_batch *batch;
  assert_code(rv_client_sample_batch(f->client, "replay", 1, RV_UNEQUAL_ERROR, &shortly, &batch, &err), RV_DEADLINE_EXCEEDED);
  assert_says(f->address);
  assert_code(add_value(f->client, "replay", 1, 1, NULL, &shortly, &err), RV_DEADLINE_EXCEEDED);
  char *path;
  assert_code(rv_client_checkpoint(f->client, &path, &long_enough, &err), RV_UNAVAILABLE);
  rv_sampler_config config = {
      .size = sizeof config, .table = "replay", .max_samples = RV_UNLIMITED, .rate_limiter_timeout_ms = RV_FOREVER};
  rv_sampler *sampler;
  rv_sample *sample;
  assert_ok(rv_sampler_new(f->client, &config, &sampler, &err));
  assert_code(rv_sampler_next(sampler, &shortly, &sample, &err), RV_DEADLINE_EXCEEDED);
  assert_says(f->address);
  rv_sampler_free(sampler);
  start_server(f);
}

REMOTE_TEST(every_verb_goes_on_when_the_server_is_back)
{
  rv_error err;
  add_values(f->client, "replay", 3);
  rv_batch *batch;
  assert_ok(rv_client_sample_batch(f->client, "replay", 4, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
  rv_batch_free(batch);
  for (int round = 0; round < 2; round++) {
    stop_server(f);
    start_server(f);
    assert_ok(rv_client_sample_batch(f->client, "replay", 4, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
    assert_int_equal(rv_batch_size(batch), 4);
    rv_batch_free(batch);
    assert_ok(add_value(f->client, "replay", 1, 1, NULL, &long_enough, &err));
    rv_server_info *info;
    assert_ok(rv_client_server_info(f->client, &long_enough, &info, &err));
    rv_server_info_free(info);
  }
  assert_int_equal(table_size(f, "replay"), 5);
}

REMOTE_TEST(a_sampler_goes_on_when_the_server_is_back)
{
  rv_error err;
  add_values(f->client, "replay", 3);
  rv_sampler_config config = {.size = sizeof config,
                              .table = "replay",
                              .max_samples = RV_UNLIMITED,
                              .max_in_flight_samples = 4,
                              .num_streams = 2,
                              .rate_limiter_timeout_ms = RV_FOREVER};
  rv_sampler *sampler;
  assert_ok(rv_sampler_new(f->client, &config, &sampler, &err));
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 20; i++) {
      rv_sample *sample;
      assert_ok(rv_sampler_next(sampler, &long_enough, &sample, &err));
      sample_value(sample);
      rv_sample_unref(sample);
    }
    stop_server(f);
    start_server(f);
  }
  rv_sampler_free(sampler);
}

REMOTE_TEST(another_server_with_another_signature_is_believed)
{
  rv_error err;
  rv_server_info *info;
  assert_ok(rv_client_server_info(f->client, &long_enough, &info, &err)); /* the signature is known from here on */
  rv_server_info_free(info);
  assert_code(add_value(f->client, "signed", 1, 1.0, NULL, &long_enough, &err), RV_INVALID_ARGUMENT);
  stop_server(f);
  rv_store_unref(f->store);
  f->anything_goes = true;
  new_store(f);
  start_server(f);
  put_sequence(f, "signed", 5, 2);
  rv_batch *batch;
  assert_ok(rv_client_sample_batch(f->client, "signed", 1, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
  rv_batch_free(batch);
  assert_ok(add_value(f->client, "signed", 1, 1.0, NULL, &long_enough, &err));
}

/* The server goes, and one comes whose tables "signed" has columns of the same form that are called otherwise. */
static void change_names(fixture *f)
{
  static const int64_t three[] = {3};
  static const rv_spec specs[] = {{.name = "next_obs", .dtype = RV_FLOAT32, .rank = 1, .shape = three},
                                  {.name = "reward", .dtype = RV_INT64, .rank = 0}};
  static const rv_signature signature = {.specs = specs, .num_specs = 2};
  rv_error err;
  stop_server(f);
  rv_store_unref(f->store);
  rv_table_config tables[] = {rv_table_config_default("signed", 1000), rv_table_config_default("replay", 1000)};
  tables[0].signature = &signature;
  rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = 2};
  assert_ok(rv_store_new(&config, &f->store, &err));
  start_server(f);
  assert_ok(rv_client_reset(f->client, "replay", &long_enough, &err)); /* the new connection is there */
}

static rv_code write_signed(rv_writer *writer, rv_error *err)
{
  static const int64_t three[] = {3};
  static const float obs[3];
  static const int64_t action;
  const rv_cell cells[] = {{.column = 0, .value = {.dtype = RV_FLOAT32, .rank = 1, .shape = three, .data = obs}},
                           {.column = 1, .value = {.dtype = RV_INT64, .data = &action}}};
  rv_code code = rv_writer_append(writer, cells, 2, false, err);
  if (code != RV_OK) return code;
  int64_t last = rv_writer_num_rows(writer) - 1;
  const rv_run runs[] = {{.column = 0, .count = 1, .first = last, .stride = 1},
                         {.column = 1, .count = 1, .first = last, .stride = 1}};
  const rv_item_column columns[] = {{.runs = &runs[0], .num_runs = 1, .squeeze = true, .name = "obs"},
                                    {.runs = &runs[1], .num_runs = 1, .squeeze = true, .name = "action"}};
  code = rv_writer_create_item(writer, "signed", 1.0, columns, 2, NULL, err);
  return code == RV_OK ? rv_writer_flush(writer, 0, &long_enough, err) : code;
}

REMOTE_TEST(a_writer_compares_its_names_with_those_of_the_next_server)
{
  rv_error err;
  const rv_writer_config config = {.size = sizeof config, .num_keep_alive_refs = 4};
  rv_writer *writer;
  assert_ok(rv_writer_new(f->client, &config, &writer, &err));
  assert_ok(rv_writer_wait_ready(writer, &long_enough, &err));
  assert_ok(write_signed(writer, &err));
  change_names(f);
  assert_code(write_signed(writer, &err), RV_INVALID_ARGUMENT);
  assert_says("is called \"obs\", the table's signature calls it \"next_obs\"");
  assert_int_equal(table_size(f, "signed"), 0);
  rv_writer_discard_failed(writer);
  assert_code(write_signed(writer, &err), RV_INVALID_ARGUMENT);
  rv_writer_free(writer);
}

REMOTE_TEST(a_listing_does_not_go_on_at_a_server_that_counts_anew)
{
  rv_error err;
  rv_item_info page[3];
  size_t count;
  uint64_t cursor = 0;
  add_values(f->client, "replay", 8);
  assert_ok(rv_client_items(f->client, "replay", &cursor, page, 3, &count, &long_enough, &err));
  assert_int_equal(count, 3);
  stop_server(f);
  start_server(f); /* the same store, which goes on counting */
  assert_ok(rv_client_items(f->client, "replay", &cursor, page, 3, &count, &long_enough, &err));
  assert_int_equal(count, 3);
  stop_server(f);
  rv_store_unref(f->store);
  new_store(f);
  start_server(f);
  add_values(f->client, "replay", 8);
  assert_code(rv_client_items(f->client, "replay", &cursor, page, 3, &count, &long_enough, &err), RV_ABORTED);
  assert_says("list again from the start");
}

typedef struct waiting_call {
  fixture *f;
  const char *table;
  rv_code code;
  size_t size;
} waiting_call;

static void *run_batch(void *context)
{
  waiting_call *waiting = context;
  rv_error err;
  rv_batch *batch;
  waiting->code = rv_client_sample_batch(waiting->f->client, waiting->table, 2, RV_UNEQUAL_ERROR, &long_enough, &batch, &err);
  if (waiting->code != RV_OK) return NULL;
  waiting->size = rv_batch_size(batch);
  rv_batch_free(batch);
  return NULL;
}

REMOTE_TEST(a_waiting_batch_survives_a_restart)
{
  add_values(f->client, "five", 3);
  waiting_call waiting = {.f = f, .table = "five"};
  pthread_t thread;
  pthread_create(&thread, NULL, run_batch, &waiting);
  wait_for_waiting(f, "five", 0, 1);
  stop_server(f);
  start_server(f);
  add_values(f->client, "five", 2);
  pthread_join(thread, NULL);
  assert_int_equal(waiting.code, RV_OK);
  assert_int_equal(waiting.size, 2);
}

/* The stream that the first one left open ended with the server. */
REMOTE_TEST(a_sampler_finds_the_server_that_came_after_the_last_ones)
{
  rv_error err;
  for (int i = 0; i < 3; i++) {
    add_values(f->client, "fifo", 1);
    rv_sampler_config config = {.size = sizeof config, .table = "fifo", .max_samples = 1, .rate_limiter_timeout_ms = RV_FOREVER};
    rv_sampler *sampler;
    rv_sample *sample;
    assert_ok(rv_sampler_new(f->client, &config, &sampler, &err));
    assert_ok(rv_sampler_next(sampler, &long_enough, &sample, &err));
    rv_sample_unref(sample);
    rv_sampler_free(sampler);
    stop_server(f);
    start_server(f);
  }
}

static void *run_add(void *context)
{
  waiting_call *waiting = context;
  rv_error err;
  waiting->code = add_value(waiting->f->client, waiting->table, 77, 1.0, NULL, &long_enough, &err);
  return NULL;
}

REMOTE_TEST(a_waiting_add_goes_on_at_the_next_server)
{
  add_values(f->client, "queue", 4);
  waiting_call waiting = {.f = f, .table = "queue"};
  pthread_t thread;
  pthread_create(&thread, NULL, run_add, &waiting);
  wait_for_waiting(f, "queue", 1, 0);
  stop_server(f);
  rv_store_unref(f->store);
  new_store(f);
  start_server(f);
  pthread_join(thread, NULL);
  assert_int_equal(waiting.code, RV_OK);
  assert_int_equal(table_size(f, "queue"), 1);
}

REMOTE_TEST(a_waiting_add_goes_on_at_the_next_server_of_the_same_store)
{
  add_values(f->client, "queue", 4);
  waiting_call waiting = {.f = f, .table = "queue"};
  pthread_t thread;
  pthread_create(&thread, NULL, run_add, &waiting);
  wait_for_waiting(f, "queue", 1, 0);
  stop_server(f); /* the store stays */
  start_server(f);
  wait_for_waiting(f, "queue", 1, 0);
  rv_error err;
  rv_batch *batch = NULL;
  assert_ok(rv_client_sample_batch(f->client, "queue", 1, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
  rv_batch_free(batch);
  pthread_join(thread, NULL);
  assert_int_equal(waiting.code, RV_OK);
  assert_int_equal(table_size(f, "queue"), 4);
}

static void another_kind_of_address_is_refused(void **state)
{
  (void)state;
  rv_error err;
  rv_client *client;
  static const char *const bad[] = {"", "localhost", "localhost:", "localhost:99999", "[::1:80", ":80x"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    rv_client_config config = {.size = sizeof config, .address = bad[i]};
    assert_code(rv_client_new(&config, &client, &err), RV_INVALID_ARGUMENT);
  }
  rv_client_config neither = {.size = sizeof neither};
  assert_code(rv_client_new(&neither, &client, &err), RV_INVALID_ARGUMENT);
  rv_client_config small = {.size = 1, .address = "localhost:1"};
  assert_code(rv_client_new(&small, &client, &err), RV_INVALID_ARGUMENT);
}

TEST(a_forked_child_is_told_to_make_a_new_client)
{
  rv_error err;
  add_values(f->client, "replay", 1);
  rv_sampler_config config = {.size = sizeof config, .table = "replay", .max_samples = 5};
  rv_sampler *sampler;
  assert_ok(rv_sampler_new(f->client, &config, &sampler, &err));
  pid_t child = fork();
  if (child == 0) {
    rv_batch *batch;
    rv_sample *sample;
    bool good =
        rv_client_sample_batch(f->client, "replay", 1, RV_UNEQUAL_ERROR, &shortly, &batch, &err) == RV_FAILED_PRECONDITION &&
        strstr(err.message, "fork") != NULL && rv_client_reset(f->client, "replay", NULL, NULL) == RV_FAILED_PRECONDITION &&
        rv_sampler_next(sampler, &shortly, &sample, &err) == RV_FAILED_PRECONDITION &&
        add_value(f->client, "replay", 1, 1, NULL, &shortly, &err) == RV_FAILED_PRECONDITION;
    rv_sampler_free(sampler);
    rv_client_free(f->client); /* does not hang */
    _exit(good ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  rv_sample *sample;
  assert_ok(rv_sampler_next(sampler, &long_enough, &sample, &err));
  rv_sample_unref(sample);
  rv_sampler_free(sampler);
}

static void a_closed_store_ends_what_waits(void **state)
{
  (void)state;
  rv_error err;
  fixture f;
  set_up(&f, IN_PROCESS);
  waiting_call waiting = {.f = &f, .table = "five"};
  pthread_t thread;
  pthread_create(&thread, NULL, run_batch, &waiting);
  wait_for_waiting(&f, "five", 0, 1);
  rv_store_close(f.store);
  pthread_join(thread, NULL);
  assert_int_equal(waiting.code, RV_CANCELLED);
  assert_code(add_value(f.client, "replay", 1, 1, NULL, &shortly, &err), RV_CANCELLED);
  tear_down(&f);
}

int main(void)
{
  const struct CMUnitTest tests[] = {EVERY_REMOTE_WAY(without_a_server_every_verb_ends_in_its_time),
                                     EVERY_REMOTE_WAY(every_verb_goes_on_when_the_server_is_back),
                                     EVERY_REMOTE_WAY(a_sampler_goes_on_when_the_server_is_back),
                                     EVERY_REMOTE_WAY(another_server_with_another_signature_is_believed),
                                     EVERY_REMOTE_WAY(a_writer_compares_its_names_with_those_of_the_next_server),
                                     EVERY_REMOTE_WAY(a_listing_does_not_go_on_at_a_server_that_counts_anew),
                                     EVERY_REMOTE_WAY(a_waiting_batch_survives_a_restart),
                                     EVERY_REMOTE_WAY(a_sampler_finds_the_server_that_came_after_the_last_ones),
                                     EVERY_REMOTE_WAY(a_waiting_add_goes_on_at_the_next_server),
                                     EVERY_REMOTE_WAY(a_waiting_add_goes_on_at_the_next_server_of_the_same_store),
                                     cmocka_unit_test(another_kind_of_address_is_refused),
                                     EVERY_WAY(a_forked_child_is_told_to_make_a_new_client),
                                     cmocka_unit_test(a_closed_store_ends_what_waits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
