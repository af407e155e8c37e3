/* A server that stops and another one over the same store: to writers it is the same place, and no item is lost or doubled. */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>

#include "support/place.h"
#include "support/proxy.h"
#include "support/rig.h"

#define WRITER "000102030405060708090a0b0c0d0e0f"

static void replace_server(rv_store *store, rv_server **server, const char *address, rv_server_config config)
{
  rv_server_free(*server);
  config.size = sizeof config;
  config.store = store;
  config.addresses = &address;
  config.num_addresses = 1;
  config.io_threads = 2;
  OK(rv_server_new(&config, server, error));
}

static test_stream *open_writer(test_peer *peer, const char *seen)
{
  rv_metadata metadata[] = {{"reverie-writer", WRITER}, {"reverie-server-state", seen}};
  return stream_open(peer, INSERT, metadata, seen == NULL ? 1 : 2);
}

static void items_in_doubt_are_settled_by_the_next_server(void **state)
{
  (void)state;
  rv_table_config tables[] = {place_queue("q", 2)};
  test_rig rig;
  test_peer peer;
  rig_start(&rig, tables, 1);
  peer_open(&peer, rig.address);
  test_stream *call = open_writer(&peer, NULL);
  char id[64];
  snprintf(id, sizeof id, "%s", stream_header(call, "reverie-server-state"));
  for (uint64_t i = 1; i <= 4; i++) insert_numbered(call, "q", i, i); /* two go in, two wait */
  rig_wait_for_waiting(&rig, "q", 2, 0);
  replace_server(rig.store, &rig.server, rig.address, (rv_server_config){0});
  assert_int_not_equal(stream_end(call, NULL), RV_OK); /* whatever was confirmed is not looked at: it is in doubt */
  stream_free(call);
  call = open_writer(&peer, id);
  assert_string_equal(stream_header(call, "reverie-server-state"), id);
  for (uint64_t i = 1; i <= 4; i++) insert_numbered(call, "q", i, i);
  rig_wait_for_waiting(&rig, "q", 2, 0);
  test_stream *sampler = stream_open(&peer, SAMPLE, NULL, 0);
  uint64_t keys[4];
  ask_samples(sampler, "q", 4, -1);
  assert_int_equal(read_samples(sampler, keys, 4), 4);
  for (uint64_t i = 0; i < 4; i++) assert_int_equal(keys[i], i + 1);
  expect_keys(call, keys, 4);
  for (uint64_t i = 0; i < 4; i++) assert_int_equal(keys[i], i + 1);
  assert_int_equal(rig_size(&rig, "q"), 0);
  stream_free(sampler);
  stream_free(call);
  peer_close(&peer);
  rig_stop(&rig);
}

static void two_servers_over_one_store_know_the_same_writers(void **state)
{
  (void)state;
  rv_table_config table = rig_table("t");
  test_rig first;
  rig_start(&first, &table, 1);
  rv_server *second = NULL;
  replace_server(first.store, &second, "127.0.0.1:0", (rv_server_config){0});
  char address[64];
  snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)rv_server_port(second, 0));
  test_peer peers[2];
  peer_open(&peers[0], first.address);
  peer_open(&peers[1], address);
  test_stream *calls[2];
  uint64_t key = 0;
  calls[0] = open_writer(&peers[0], NULL);
  char id[64];
  snprintf(id, sizeof id, "%s", stream_header(calls[0], "reverie-server-state"));
  insert_numbered(calls[0], "t", 7, 1);
  expect_keys(calls[0], &key, 1);
  calls[1] = open_writer(&peers[1], id);
  insert_numbered(calls[1], "t", 7, 1);
  expect_keys(calls[1], &key, 1);
  assert_int_equal(key, 7);
  assert_int_equal(stream_end(calls[0], NULL), RV_ABORTED); /* the other server's stream has taken over */
  rv_table_info info = {.size = sizeof info};
  OK(rv_table_get_info(rig_find(&first, "t"), &info, error));
  assert_true(info.inserts == 1 && info.updates == 0);
  rv_table_info_fini(&info);
  for (int i = 0; i < 2; i++) {
    stream_free(calls[i]);
    peer_close(&peers[i]);
  }
  rv_server_free(second);
  rig_stop(&first);
}

static void a_server_with_a_lower_bound_keeps_no_more_writers_than_that(void **state)
{
  (void)state;
  rv_table_config table = rig_table("t");
  test_rig rig;
  test_peer peer;
  rig_start(&rig, &table, 1);
  peer_open(&peer, rig.address);
  test_stream *call = open_writer(&peer, NULL);
  char id[64];
  snprintf(id, sizeof id, "%s", stream_header(call, "reverie-server-state"));
  stream_half_close(call);
  assert_int_equal(stream_end(call, NULL), RV_OK);
  stream_free(call);
  replace_server(rig.store, &rig.server, rig.address, (rv_server_config){.max_writer_sessions = 1});
  const rv_metadata other[] = {{"reverie-writer", "f00102030405060708090a0b0c0d0e0f"}};
  call = stream_open(&peer, INSERT, other, 1);
  assert_non_null(stream_header(call, "reverie-version"));
  stream_half_close(call);
  assert_int_equal(stream_end(call, NULL), RV_OK);
  stream_free(call);
  call = open_writer(&peer, id);
  assert_int_equal(stream_end(call, NULL), RV_FAILED_PRECONDITION);
  stream_free(call);
  peer_close(&peer);
  rig_stop(&rig);
}

/* ---- another server at the same address ---- */

static rv_code item_of_last(rv_writer *writer, const char *table, uint32_t column, double priority, rv_error *error)
{
  rv_run run = {.column = column, .first = rv_writer_num_rows(writer) - 1, .count = 1, .stride = 1};
  rv_item_column item = {.runs = &run, .num_runs = 1};
  return rv_writer_create_item(writer, table, priority, &item, 1, NULL, error);
}

static void append_pair(rv_writer *writer, int32_t number, float real)
{
  rv_cell cells[] = {{.column = 0, .value = {.dtype = RV_INT32, .data = &number}},
                     {.column = 1, .value = {.dtype = RV_FLOAT32, .data = &real}}};
  OK(rv_writer_append(writer, cells, 2, false, error));
}

/* With other tables, of which the last one shows the client that it is another. */
static void put_another_server(test_place *place, const rv_table_config *tables, size_t num_tables)
{
  rv_server_free(place->server);
  rv_store_unref(place->store);
  rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = num_tables};
  OK(rv_store_new(&config, &place->store, error));
  place_serve(place);
  uint64_t cursor = 0;
  rv_item_info none;
  size_t count;
  OK(rv_client_items(place->client, tables[num_tables - 1].name, &cursor, &none, 1, &count, NULL, error));
}

/* Of writers that were used before, that were only made before, and that are made now; `first` is the first to meet the other server. */
static void meet_another_server(int first)
{
  const rv_spec specs[] = {{.name = "a", .dtype = RV_INT32, .rank = 1, .shape = (const int64_t[]){1}},
                           {.name = "a", .dtype = RV_FLOAT32, .rank = 1, .shape = (const int64_t[]){1}}};
  const rv_signature signatures[] = {{.specs = &specs[0], .num_specs = 1}, {.specs = &specs[1], .num_specs = 1}};
  rv_table_config before[] = {place_queue_like("a", 100), place_queue_like("weighted", 100)},
                  after[] = {place_queue_like("a", 100), place_queue_like("weighted", 100), place_queue_like("b", 100)};
  before[0].signature = &signatures[0];
  after[0].signature = &signatures[1];
  before[1].sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
  test_place place;
  place_open(&place, true, before, 2);
  rv_writer *writers[2] = {place_writer(&place, (rv_writer_config){0}), place_writer(&place, (rv_writer_config){0})};
  OK(rv_writer_wait_ready(writers[0], NULL, error));
  OK(rv_writer_wait_ready(writers[1], NULL, error));
  append_pair(writers[0], 1, 0.5F);
  OK(item_of_last(writers[0], "a", 0, 1, error));
  OK(rv_writer_flush(writers[0], 0, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "\"a\"", item_of_last(writers[0], "a", 1, 1, error));
  FAILS(RV_INVALID_ARGUMENT, "\"weighted\"", item_of_last(writers[0], "weighted", 0, -1, error));
  FAILS(RV_NOT_FOUND, "\"b\"", item_of_last(writers[0], "b", 0, 1, error));

  put_another_server(&place, after, 3);
  for (int i = first; i < first + 3; i++) {
    rv_writer *writer = i % 3 < 2 ? writers[i % 3] : place_writer(&place, (rv_writer_config){0});
    append_pair(writer, 2, 1.5F);
    OK(item_of_last(writer, "b", 0, 1, error));
    OK(item_of_last(writer, "weighted", 0, -1, error));
    OK(item_of_last(writer, "a", 1, 1, error));
    OK(rv_writer_flush(writer, 0, NULL, error));
    OK(rv_writer_wait_ready(writer, NULL, error)); /* and what does not fit this one is refused at once */
    FAILS(RV_INVALID_ARGUMENT, "\"a\"", item_of_last(writer, "a", 0, 1, error));
    FAILS(RV_NOT_FOUND, "\"nowhere\"", item_of_last(writer, "nowhere", 0, 1, error));
    rv_writer_free(writer);
  }
  for (size_t i = 0; i < 3; i++) assert_int_equal(place_size(&place, after[i].name), 3);
  place_close(&place);
}

static void what_does_not_fit_the_server_before_but_this_one_is_taken(void **state)
{
  (void)state;
  for (int first = 0; first < 3; first++) meet_another_server(first);
}

static void a_priority_that_the_server_before_forbade_is_taken_in_a_step_of_transitions(void **state)
{
  (void)state;
  rv_table_config table = place_queue_like("t", 100);
  table.sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
  test_place place;
  place_open(&place, true, &table, 1);
  const float values[] = {1, 2};
  const int64_t shape[] = {2};
  const rv_tensor step = {.dtype = RV_FLOAT32, .rank = 1, .shape = shape, .data = values};
  const double fit[] = {1, 1}, negative[] = {1, -1};
  const rv_transitions_column column = {.name = "x"};
  const rv_transitions_config config = {.size = sizeof config, .table = "t", .num_envs = 2, .columns = &column, .num_columns = 1};
  rv_transitions *writer = NULL;
  OK(rv_transitions_new(place.client, &config, &writer, error));
  OK(rv_transitions_add(writer, &step, 1, fit, NULL, NULL, error));
  OK(rv_transitions_flush(writer, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "environment 1", rv_transitions_add(writer, &step, 1, negative, NULL, NULL, error));

  table.sampler = (rv_selector_config){.kind = RV_SELECTOR_FIFO};
  put_another_server(&place, &table, 1);
  OK(rv_transitions_add(writer, &step, 1, negative, NULL, NULL, error));
  OK(rv_transitions_flush(writer, NULL, error));
  assert_int_equal(place_size(&place, "t"), 2);
  rv_transitions_free(writer);
  place_close(&place);
}

/* ---- a whole writer ---- */

enum { ITEMS = 3000, REPLACEMENTS = 12 };

typedef struct writing {
  rv_client *client;
  atomic_int created;
  rv_code code;
  rv_error error;
} writing;

static void *write_items(void *argument)
{
  writing *self = argument;
  static const rv_wait patient = {.timeout_ms = 120000};
  rv_writer_config config = {.size = sizeof config, .num_keep_alive_refs = 4};
  rv_writer *writer = NULL;
  self->code = rv_writer_new(self->client, &config, &writer, &self->error);
  for (int32_t i = 0; i < ITEMS && self->code == RV_OK; i++) {
    rv_cell cell = {.column = 0, .value = {.dtype = RV_INT32, .data = &i}};
    self->code = rv_writer_append(writer, &cell, 1, false, &self->error);
    if (self->code == RV_OK) self->code = item_of_rows(writer, "t", i, 1, 1, 1, NULL, &self->error);
    if (self->code == RV_OK) self->code = rv_writer_flush(writer, 50, &patient, &self->error);
    atomic_store(&self->created, i + 1);
  }
  if (self->code == RV_OK) self->code = rv_writer_flush(writer, 0, &patient, &self->error);
  atomic_store(&self->created, ITEMS);
  rv_writer_free(writer);
  return NULL;
}

/* The line is cut at random bytes, and now and then the server is replaced. */
static void a_writer_notices_nothing_but_a_pause(void **state)
{
  (void)state;
  const uint64_t seed = 20240607;
  print_message("seed %" PRIu64 "\n", seed);
  rv_table_config table = place_queue_like("t", 2 * ITEMS);
  test_rig rig;
  rig_start(&rig, &table, 1);
  test_proxy proxy;
  proxy_start(&proxy, rv_server_port(rig.server, 0), 20000, seed);
  writing self = {.client = place_connect(proxy.address), .code = RV_UNKNOWN};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, write_items, &self), 0);
  for (int i = 1; i <= REPLACEMENTS; i++) {
    while (atomic_load(&self.created) < ITEMS * i / (REPLACEMENTS + 1)) sched_yield();
    if (i % 2 == 0) proxy_cut(&proxy); /* confirmations on the way are lost */
    replace_server(rig.store, &rig.server, rig.address, (rv_server_config){0});
  }
  pthread_join(thread, NULL);
  proxy_calm(&proxy);
  if (self.code != RV_OK) fail_msg("%s: %s", rv_code_name(self.code), self.error.message);
  assert_true(atomic_load(&proxy.cuts) > 0);
  rv_table_info info = {.size = sizeof info};
  OK(rv_table_get_info(rig_find(&rig, "t"), &info, error));
  assert_int_equal(info.inserts, ITEMS);
  assert_int_equal(info.updates, 0);
  assert_int_equal(info.current_size, ITEMS);
  rv_table_info_fini(&info);
  rv_client_free(self.client);
  proxy_stop(&proxy);
  rig_stop(&rig);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(items_in_doubt_are_settled_by_the_next_server),
      cmocka_unit_test(two_servers_over_one_store_know_the_same_writers),
      cmocka_unit_test(a_server_with_a_lower_bound_keeps_no_more_writers_than_that),
      cmocka_unit_test(what_does_not_fit_the_server_before_but_this_one_is_taken),
      cmocka_unit_test(a_priority_that_the_server_before_forbade_is_taken_in_a_step_of_transitions),
      cmocka_unit_test(a_writer_notices_nothing_but_a_pause),
  };
  return cmocka_run_group_tests_name("server restart", tests, NULL, NULL);
}
