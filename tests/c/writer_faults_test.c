/* A remote writer when the server is not there yet, goes away, comes back, or the line is cut: nothing hangs, nothing is lost,
 * nothing is inserted twice. */
#include <sched.h>
#include <unistd.h>

#include "client/client.h"
#include "support/place.h"
#include "support/proxy.h"

static const rv_wait soon = {.timeout_ms = 200};
static const rv_wait patient = {.timeout_ms = 60000};

typedef struct remote_place {
  test_place place; /* whose client goes through the proxy */
  test_proxy proxy;
} remote_place;

static void remote_open(remote_place *remote, const rv_table_config *tables, size_t num_tables, int64_t budget, uint64_t seed)
{
  memset(remote, 0, sizeof *remote);
  rv_store_config store = {.size = sizeof store, .tables = tables, .num_tables = num_tables};
  OK(rv_store_new(&store, &remote->place.store, error));
  proxy_start(&remote->proxy, place_serve(&remote->place), budget, seed);
  remote->place.client = place_connect(remote->proxy.address);
}

static void remote_close(remote_place *remote)
{
  rv_client_free(remote->place.client);
  remote->place.client = NULL;
  proxy_stop(&remote->proxy);
  place_close(&remote->place);
}

/* Until then it goes by what it knows of the server's tables. */
static void wait_until_it_knows(rv_client *client)
{
  char state[64] = "";
  for (int ms = 0; ms < 60000; ms++, usleep(1000)) {
    rv_client_state(client, state, sizeof state);
    if (strncmp(state, "connected", 9) != 0) return;
  }
  fail_msg("%s, although the line was cut", state);
}

/* The server dies, as a process does: its store goes too. */
static void kill_server(remote_place *remote)
{
  atomic_store(&remote->proxy.server_port, 0);
  proxy_cut(&remote->proxy);
  rv_server_free(remote->place.server);
  rv_store_unref(remote->place.store);
  remote->place.server = NULL;
  wait_until_it_knows(remote->place.client);
}

static void start_server(remote_place *remote, const rv_table_config *tables, size_t num_tables)
{
  rv_store_config store = {.size = sizeof store, .tables = tables, .num_tables = num_tables};
  OK(rv_store_new(&store, &remote->place.store, error));
  atomic_store(&remote->proxy.server_port, place_serve(&remote->place));
}

static void create_numbers(rv_writer *writer, const char *table, int32_t first, int32_t count)
{
  for (int32_t i = 0; i < count; i++) {
    append_number(writer, first + i);
    OK(item_of_rows(writer, table, rv_writer_num_rows(writer) - 1, 1, 1, 1, NULL, error));
  }
}

/* Until nothing is in flight; a flush would end at the first failure. */
static rv_writer_status wait_settled(rv_writer *writer)
{
  rv_writer_status status = {.size = sizeof status};
  do {
    rv_writer_get_status(writer, &status);
    sched_yield();
  } while (status.items_in_flight > 0);
  return status;
}

/* ---- not there, gone, back ---- */

static void items_wait_for_a_server_that_is_not_there_yet(void **state)
{
  (void)state;
  rv_table_config tables[1] = {place_queue_like("table", 100)};
  remote_place remote;
  remote_open(&remote, tables, 1, -1, 1);
  kill_server(&remote);
  rv_writer *writer = place_writer(&remote.place, (rv_writer_config){0});
  FAILS(RV_DEADLINE_EXCEEDED, "expect", rv_writer_wait_ready(writer, &soon, error));
  create_numbers(writer, "table", 0, 5);
  FAILS(RV_DEADLINE_EXCEEDED, "5 items", rv_writer_flush(writer, 0, &soon, error));
  FAILS(RV_DEADLINE_EXCEEDED, "5 items", rv_writer_end_episode(writer, true, &soon, error));
  assert_int_equal(rv_writer_num_rows(writer), 5);
  start_server(&remote, tables, 1);
  OK(rv_writer_end_episode(writer, true, &patient, error));
  assert_int_equal(place_size(&remote.place, "table"), 5);
  rv_writer_free(writer);
  remote_close(&remote);
}

static void what_an_absent_server_expects_is_checked_when_it_comes(void **state)
{
  (void)state;
  static const struct {
    const char *name, *error;
    bool squeeze, steps;
  } items[] = {{"number", NULL, true, false},
               {NULL, NULL, true, false},
               {"nummer", "column 0 of the item is called \"nummer\", the table's signature calls it \"number\"", true, false},
               {"number", "squeeze", false, false},
               {"number", NULL, false, true}};
  for (size_t i = 0; i < sizeof items / sizeof items[0]; i++) {
    const rv_spec spec = {.name = "number", .dtype = RV_INT32};
    rv_signature signature = {.specs = &spec, .num_specs = 1};
    rv_table_config tables[1] = {place_queue_like("table", 100)};
    tables[0].signature = &signature;
    remote_place remote;
    remote_open(&remote, tables, 1, -1, 1);
    kill_server(&remote);
    rv_writer *writer = place_writer(&remote.place, (rv_writer_config){.signatures_of_steps = items[i].steps});
    append_number(writer, 0);
    rv_run run = {.column = 0, .count = 1, .stride = 1};
    char name[16] = "";
    if (items[i].name != NULL) snprintf(name, sizeof name, "%s", items[i].name);
    rv_item_column column = {
        .runs = &run, .num_runs = 1, .squeeze = items[i].squeeze, .name = items[i].name != NULL ? name : NULL};
    OK(rv_writer_create_item(writer, "table", 1, &column, 1, NULL, error));
    memset(name, 'x', sizeof name - 1); /* it was read */
    start_server(&remote, tables, 1);
    if (items[i].error == NULL)
      OK(rv_writer_flush(writer, 0, &patient, error));
    else
      FAILS(RV_INVALID_ARGUMENT, items[i].error, rv_writer_flush(writer, 0, &patient, error));
    assert_int_equal(place_size(&remote.place, "table"), items[i].error == NULL);
    rv_writer_free(writer);
    remote_close(&remote);
  }
}

static void a_server_killed_during_a_flush_is_an_error_within_the_deadline(void **state)
{
  (void)state;
  rv_table_config tables[1] = {place_queue("queue", 2)};
  remote_place remote;
  remote_open(&remote, tables, 1, -1, 1);
  rv_writer *writer = place_writer(&remote.place, (rv_writer_config){0});
  OK(rv_writer_wait_ready(writer, NULL, error));
  create_numbers(writer, "queue", 0, 10); /* two go in, eight wait */
  OK(rv_writer_flush(writer, 8, NULL, error));
  kill_server(&remote);
  FAILS(RV_DEADLINE_EXCEEDED, "8 items", rv_writer_flush(writer, 0, &soon, error));
  append_number(writer, 10); /* keeps working */
  tables[0] = place_queue("queue", 100);
  start_server(&remote, tables, 1);
  OK(rv_writer_flush(writer, 0, &patient, error));
  assert_int_equal(place_size(&remote.place, "queue"), 8); /* the two went with the server that had them */
  rv_writer_status status = {.size = sizeof status};
  rv_writer_get_status(writer, &status);
  assert_true(status.reconnects >= 1);
  assert_int_equal(status.items_confirmed, 10);
  rv_writer_free(writer);
  remote_close(&remote);
}

static void a_writer_can_be_freed_while_nobody_is_there(void **state)
{
  (void)state;
  rv_table_config tables[1] = {place_queue_like("table", 100)};
  remote_place remote;
  remote_open(&remote, tables, 1, -1, 1);
  kill_server(&remote);
  for (int i = 0; i < 20; i++) {
    rv_writer *writer = place_writer(&remote.place, (rv_writer_config){.no_validation = i % 2 == 0});
    create_numbers(writer, "table", 0, i);
    rv_writer_free(writer);
  }
  start_server(&remote, tables, 1);
  remote_close(&remote);
}

static void the_step_writer_gives_up_where_it_was_told_to(void **state)
{
  (void)state;
  rv_table_config tables[1] = {place_queue_like("table", 100)};
  remote_place remote;
  remote_open(&remote, tables, 1, -1, 1);
  kill_server(&remote);
  rv_step_writer *writer = NULL;
  rv_step_writer_config config = {.size = sizeof config, .max_sequence_length = 2};
  OK(rv_step_writer_new(remote.place.client, &config, &writer, error));
  int32_t one = 1;
  OK(rv_step_writer_append(writer, &(rv_tensor){.dtype = RV_INT32, .data = &one}, 1, NULL, error));
  OK(rv_step_writer_create_item(writer, "table", 1, 1, NULL, NULL, error));
  OK(rv_step_writer_close(writer, false, &patient, error));
  rv_step_writer_free(writer);
  start_server(&remote, tables, 1);
  remote_close(&remote);
}

typedef struct told_world {
  rv_env real;
  _Atomic int64_t put_forward_ns;
  atomic_int lines;
  char last[1024];
} told_world;

static int64_t forward_clock(void *context)
{
  told_world *world = context;
  return world->real.monotonic_ns(world->real.context) + atomic_load(&world->put_forward_ns);
}

static void keep_line(void *context, rv_log_level level, const char *line)
{
  told_world *world = context;
  (void)level;
  snprintf(world->last, sizeof world->last, "%s", line);
  atomic_fetch_add(&world->lines, 1);
}

static void who_only_creates_items_is_told_once_that_nobody_is_there(void **state)
{
  (void)state;
  told_world world = {.lines = 0};
  rv_env_default(&world.real);
  const rv_env env = {
      .size = sizeof env, .context = &world, .monotonic_ns = forward_clock, .log = keep_line, .log_level = RV_LOG_WARNING};
  rv_client_config config = {.size = sizeof config, .address = "127.0.0.1:1", .env = &env};
  test_place place = {.server = NULL};
  OK(rv_client_new(&config, &place.client, error));
  rv_writer *writer = place_writer(&place, (rv_writer_config){.max_in_flight_items = 8});
  create_numbers(writer, "table", 0, 3);
  assert_int_equal(world.lines, 0);
  atomic_fetch_add(&world.put_forward_ns, INT64_C(11000000000));
  create_numbers(writer, "table", 3, 5);
  assert_int_equal(world.lines, 1);
  assert_non_null(strstr(world.last, "no item confirmed for 1"));
  assert_non_null(strstr(world.last, "127.0.0.1:1"));
  append_number(writer, 8);
  FAILS(RV_RESOURCE_EXHAUSTED, "127.0.0.1:1", item_of_rows(writer, "table", 8, 1, 1, 1, NULL, error));
  assert_int_equal(world.lines, 1);
  rv_writer_free(writer);
  assert_int_equal(world.lines, 2);
  assert_non_null(strstr(world.last, "8 of its items"));
  rv_client_free(place.client);
}

/* ---- what the server refuses later ---- */

static void an_item_for_an_unknown_table_fails_when_the_tables_are_known(void **state)
{
  (void)state;
  rv_table_config tables[1] = {place_queue_like("table", 100)};
  remote_place remote;
  remote_open(&remote, tables, 1, -1, 1);
  kill_server(&remote);
  rv_writer *writer = place_writer(&remote.place, (rv_writer_config){0});
  create_numbers(writer, "nowhere", 0, 2);
  create_numbers(writer, "table", 2, 3);
  start_server(&remote, tables, 1);
  FAILS(RV_NOT_FOUND, "nowhere", rv_writer_flush(writer, 0, &patient, error));
  wait_settled(writer);
  FAILS(RV_NOT_FOUND, "1 more", rv_writer_flush(writer, 0, &patient, error)); /* again */
  append_number(writer, 5);                                                   /* told once, then goes on */
  assert_int_equal(rv_writer_discard_failed(writer), 2);
  OK(rv_writer_flush(writer, 0, &patient, error));
  assert_int_equal(place_size(&remote.place, "table"), 3);
  rv_writer_free(writer);
  remote_close(&remote);
}

static void a_failure_is_told_by_the_next_call_once(void **state)
{
  (void)state;
  rv_table_config tables[2] = {place_queue_like("table", 100), place_queue_like("weighted", 100)};
  tables[1].sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
  remote_place remote;
  remote_open(&remote, tables, 2, -1, 1);
  rv_writer *writer = place_writer(&remote.place, (rv_writer_config){.no_validation = true});
  append_number(writer, 0);
  OK(item_of_rows(writer, "weighted", 0, 1, 1, -1, NULL, error)); /* refused over there */
  OK(item_of_rows(writer, "nowhere", 0, 1, 1, 1, NULL, error));
  OK(item_of_rows(writer, "table", 0, 1, 1, 1, NULL, error));
  rv_writer_status status = wait_settled(writer);
  assert_int_equal(status.items_confirmed, 1); /* the others' fate is their own */
  FAILS(RV_INVALID_ARGUMENT, "weighted", item_of_rows(writer, "table", 0, 1, 1, 1, NULL, error));
  OK(item_of_rows(writer, "table", 0, 1, 1, 1, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "1 more", rv_writer_flush(writer, 0, &patient, error));
  assert_int_equal(rv_writer_discard_failed(writer), 2);
  OK(rv_writer_flush(writer, 0, &patient, error));
  assert_int_equal(place_size(&remote.place, "table"), 2);
  rv_writer_free(writer);
  remote_close(&remote);
}

static void take(remote_place *remote, const char *table, int items)
{
  for (int i = 0; i < items; i++) {
    rv_batch *batch = NULL;
    OK(rv_client_sample_batch(remote->place.client, table, 1, RV_UNEQUAL_LIST, &patient, &batch, error));
    rv_batch_free(batch);
  }
}

static void a_step_writer_goes_on_after_an_item_that_was_refused(void **state)
{
  (void)state;
  enum { ITEMS = 6, IN_FLIGHT = 2, MOST = 100 };
  rv_table_config tables[1] = {place_queue("queue", 1)};
  remote_place remote;
  remote_open(&remote, tables, 1, -1, 1);
  kill_server(&remote);
  rv_step_writer *writer = NULL;
  rv_step_writer_config config = {.size = sizeof config, .max_sequence_length = 1, .max_in_flight_items = IN_FLIGHT};
  OK(rv_step_writer_new(remote.place.client, &config, &writer, error));
  int32_t one = 1;
  rv_tensor step = {.dtype = RV_INT32, .data = &one};
  OK(rv_step_writer_append(writer, &step, 1, NULL, error));
  OK(rv_step_writer_create_item(writer, "nowhere", 1, 1, NULL, NULL, error));
  start_server(&remote, tables, 1);
  FAILS(RV_NOT_FOUND, "nowhere", rv_step_writer_flush(writer, &patient, error));
  for (int i = 0; i < IN_FLIGHT + 1; i++) OK(rv_step_writer_create_item(writer, "queue", 1, 1, &patient, NULL, error));
  rv_error err = {.message = ""};
  int items = IN_FLIGHT + 1;
  /* each stays queued; a busy server may not say in time what it waits for */
  for (bool said = false; items < ITEMS || (items < MOST && !said); items++) {
    assert_int_equal(rv_step_writer_create_item(writer, "queue", 1, 1, &soon, NULL, &err), RV_DEADLINE_EXCEEDED);
    said = said || strstr(err.message, "queue") != NULL;
    if (items == MOST - 1 && !said) fail_msg("%s", err.message);
  }
  FAILS(RV_NOT_FOUND, "nowhere", rv_step_writer_flush(writer, &patient, error));
  assert_int_equal(rv_step_writer_discard_failed(writer), 1);
  FAILS(RV_DEADLINE_EXCEEDED, "items", rv_step_writer_flush(writer, &soon, error));
  take(&remote, "queue", items);
  OK(rv_step_writer_close(writer, true, &patient, error));
  rv_step_writer_free(writer);
  remote_close(&remote);
}

static rv_code add_one(rv_transitions *writer, rv_error *error)
{
  static const int64_t shape[1] = {1};
  int32_t value = 7;
  rv_tensor column = {.dtype = RV_INT32, .rank = 1, .shape = shape, .data = &value};
  return rv_transitions_add(writer, &column, 1, NULL, NULL, &patient, error);
}

static void a_transitions_writer_goes_on_after_an_item_that_was_refused(void **state)
{
  (void)state;
  enum { ITEMS = 100 };
  rv_table_config queue[1] = {place_queue("queue", 1)}, other[1] = {place_queue("other", 1)};
  remote_place remote;
  remote_open(&remote, queue, 1, -1, 1);
  rv_transitions *writer = NULL;
  rv_transitions_config config = {
      .size = sizeof config, .table = "queue", .num_envs = 1, .columns = &(rv_transitions_column){0}, .num_columns = 1};
  OK(rv_transitions_new(remote.place.client, &config, &writer, error));
  assert_int_equal(rv_transitions_discard_failed(writer), 0);
  OK(add_one(writer, error));
  OK(rv_transitions_flush(writer, &patient, error));
  kill_server(&remote);
  OK(add_one(writer, error));
  start_server(&remote, other, 1);
  FAILS(RV_NOT_FOUND, "queue", rv_transitions_flush(writer, &patient, error));
  kill_server(&remote);
  start_server(&remote, queue, 1);
  for (int i = 0; i < ITEMS; i++) OK(add_one(writer, error));
  FAILS(RV_NOT_FOUND, "queue", rv_transitions_flush(writer, &patient, error)); /* again */
  assert_int_equal(rv_transitions_discard_failed(writer), 1);
  FAILS(RV_DEADLINE_EXCEEDED, "items", rv_transitions_flush(writer, &soon, error));
  take(&remote, "queue", ITEMS);
  OK(rv_transitions_flush(writer, &patient, error));
  assert_int_equal(rv_transitions_close(writer), 0);
  assert_int_equal(rv_transitions_discard_failed(writer), 0);
  rv_transitions_free(writer);
  remote_close(&remote);
}

/* ---- refusals that no call has returned ---- */

enum { REFUSED_BESIDE = 3 };

typedef struct refused_world {
  told_world told;
  rv_env env;
  remote_place remote;
  rv_client *client; /* whose log is kept */
} refused_world;

static void refused_open(refused_world *world, const rv_table_config *table)
{
  memset(world, 0, sizeof *world);
  rv_env_default(&world->told.real);
  world->env = (rv_env){.size = sizeof world->env,
                        .context = &world->told,
                        .monotonic_ns = forward_clock,
                        .log = keep_line,
                        .log_level = RV_LOG_WARNING};
  remote_open(&world->remote, table, 1, -1, 1);
  rv_client_config config = {.size = sizeof config, .address = world->remote.proxy.address, .env = &world->env};
  OK(rv_client_new(&config, &world->client, error));
}

static void refused_close(refused_world *world)
{
  rv_client_free(world->client);
  remote_close(&world->remote);
}

/* An item that is refused and, beside it, some for a queue of one. */
static rv_writer *refused_writer(refused_world *world)
{
  test_place place = {.client = world->client};
  rv_writer *writer = place_writer(&place, (rv_writer_config){.no_validation = true});
  append_number(writer, 0);
  OK(item_of_rows(writer, "nowhere", 0, 1, 1, 1, NULL, error));
  for (int i = 0; i < REFUSED_BESIDE; i++) OK(item_of_rows(writer, "queue", 0, 1, 1, 1, NULL, error));
  return writer;
}

static void settling_waits_for_the_other_items_and_leaves_the_refusal_to_be_taken_once(void **state)
{
  (void)state;
  rv_table_config queue[1] = {place_queue("queue", 1)};
  refused_world world;
  refused_open(&world, queue);
  rv_writer *writer = refused_writer(&world);
  FAILS(RV_DEADLINE_EXCEEDED, "items", rv_writer_settle(writer, &soon, error));
  take(&world.remote, "queue", REFUSED_BESIDE);
  OK(rv_writer_settle(writer, &patient, error));
  FAILS(RV_NOT_FOUND, "nowhere", rv_writer_take_failure(writer, error));
  OK(rv_writer_take_failure(writer, error));
  append_number(writer, 1);                                                    /* the next call does not return it */
  FAILS(RV_NOT_FOUND, "nowhere", rv_writer_flush(writer, 0, &patient, error)); /* a flush does */
  assert_int_equal(rv_writer_discard_failed(writer), 1);
  rv_writer_free(writer);
  assert_int_equal(world.told.lines, 0);
  refused_close(&world);
}

static void what_no_call_has_returned_is_logged_once_by_close_and_free(void **state)
{
  (void)state;
  rv_table_config table[1] = {place_queue_like("queue", 100)};
  refused_world world;
  refused_open(&world, table);
  for (int closes = 0; closes < 2; closes++) {
    rv_writer *writer = refused_writer(&world);
    OK(rv_writer_settle(writer, &patient, error));
    if (closes) rv_writer_close(writer);
    rv_writer_free(writer);
    assert_int_equal(world.told.lines, closes + 1);
    assert_non_null(strstr(world.told.last, "an item for table \"nowhere\" was not inserted"));
  }
  rv_writer *writer = refused_writer(&world);
  FAILS(RV_NOT_FOUND, "nowhere", rv_writer_flush(writer, 0, &patient, error));
  OK(rv_writer_settle(writer, &patient, error));
  rv_writer_free(writer);
  assert_int_equal(world.told.lines, 2);
  refused_close(&world);
}

/* Items that were made while nobody said what the tables are: the first is refused. */
static rv_step_writer *refused_step_writer(refused_world *world, const rv_table_config *tables, const rv_tensor *step)
{
  kill_server(&world->remote);
  wait_until_it_knows(world->client);
  rv_step_writer *writer = NULL;
  rv_step_writer_config config = {.size = sizeof config, .max_sequence_length = 1};
  OK(rv_step_writer_new(world->client, &config, &writer, error));
  OK(rv_step_writer_append(writer, step, 1, NULL, error));
  OK(rv_step_writer_create_item(writer, "nowhere", 1, 1, NULL, NULL, error));
  for (int i = 0; i < REFUSED_BESIDE; i++) OK(rv_step_writer_create_item(writer, "table", 1, 1, NULL, NULL, error));
  start_server(&world->remote, tables, 1);
  return writer;
}

static void a_step_writers_close_returns_what_no_call_has_when_the_other_items_are_in(void **state)
{
  (void)state;
  int32_t one = 1;
  const rv_tensor step = {.dtype = RV_INT32, .data = &one};
  rv_table_config table[1] = {place_queue_like("table", 100)};
  refused_world world;
  refused_open(&world, table);
  for (int retries = 0; retries < 2; retries++) {
    rv_step_writer *writer = refused_step_writer(&world, table, &step);
    OK(rv_step_writer_settle(writer, true, &patient, error));
    FAILS(RV_NOT_FOUND, "nowhere", rv_step_writer_close(writer, retries, &patient, error));
    assert_int_equal(place_size(&world.remote.place, "table"), REFUSED_BESIDE);
    FAILS(RV_FAILED_PRECONDITION, "after Close", rv_step_writer_settle(writer, true, &patient, error));
    rv_step_writer_free(writer);

    writer = refused_step_writer(&world, table, &step);
    FAILS(RV_NOT_FOUND, "nowhere", rv_step_writer_flush(writer, &patient, error));
    OK(rv_step_writer_close(writer, true, &patient, error)); /* a call has returned it */
    assert_int_equal(place_size(&world.remote.place, "table"), REFUSED_BESIDE);
    rv_step_writer_free(writer);
  }
  assert_int_equal(world.told.lines, 0);
  rv_step_writer *writer = refused_step_writer(&world, table, &step);
  OK(rv_step_writer_settle(writer, true, &patient, error));
  assert_int_equal(rv_step_writer_abandon(writer), 0);
  rv_step_writer_free(writer);
  assert_int_equal(world.told.lines, 1);
  assert_non_null(strstr(world.told.last, "nowhere"));
  refused_close(&world);
}

static void a_closed_transitions_writer_has_what_no_call_has_returned(void **state)
{
  (void)state;
  rv_table_config table[1] = {place_queue_like("table", 100)}, other[1] = {place_queue_like("other", 1)};
  refused_world world;
  for (int takes = 0; takes < 2; takes++) {
    refused_open(&world, table);
    rv_transitions *writer = NULL;
    rv_transitions_config config = {
        .size = sizeof config, .table = "table", .num_envs = 1, .columns = &(rv_transitions_column){0}, .num_columns = 1};
    OK(rv_transitions_new(world.client, &config, &writer, error));
    OK(rv_transitions_take_failure(writer, error));
    OK(add_one(writer, error));
    OK(rv_transitions_settle(writer, &patient, error));
    kill_server(&world.remote);
    wait_until_it_knows(world.client);
    OK(add_one(writer, error));
    start_server(&world.remote, other, 1);
    OK(rv_transitions_settle(writer, &patient, error));
    assert_int_equal(rv_transitions_close(writer), 0);
    FAILS(RV_FAILED_PRECONDITION, "lose", rv_transitions_settle(writer, &patient, error));
    if (takes) FAILS(RV_NOT_FOUND, "table", rv_transitions_take_failure(writer, error));
    if (takes) OK(rv_transitions_take_failure(writer, error));
    rv_transitions_free(writer);
    assert_int_equal(world.told.lines, !takes);
    refused_close(&world);
  }
}

/* ---- exactly once ---- */

static void every_item_arrives_once_however_often_the_line_is_cut(void **state)
{
  (void)state;
  enum { ITEMS = 10000 };
  for (uint64_t seed = 1; seed <= 3; seed++) {
    print_message("seed %llu\n", (unsigned long long)seed);
    /* Small, so that an item that is sent again has often left already: it must not come back. */
    rv_table_config tables[1] = {place_queue_like("table", 20)};
    remote_place remote;
    remote_open(&remote, tables, 1, 150000, seed);
    rv_random random;
    rv_random_init(&random, seed);
    rv_writer *writer = place_writer(&remote.place, (rv_writer_config){.num_keep_alive_refs = 8});
    for (int32_t i = 0; i < ITEMS; i++) {
      append_number(writer, i);
      uint32_t length = 1 + rv_random_below(&random, 8);
      if (length > (uint32_t)i + 1) length = (uint32_t)i + 1;
      OK(item_of_rows(writer, "table", i + 1 - (int32_t)length, length, 1, 1, NULL, error));
      if (rv_random_below(&random, 50) == 0) OK(rv_writer_flush(writer, rv_random_below(&random, 60), &patient, error));
    }
    OK(rv_writer_flush(writer, 0, &patient, error));
    proxy_calm(&remote.proxy);
    rv_server_info *info;
    rv_table_info table = place_info(&remote.place, &info, "table");
    assert_int_equal(table.inserts, ITEMS);
    rv_server_info_free(info);
    print_message("  %zu cuts\n", atomic_load(&remote.proxy.cuts));
    assert_true(atomic_load(&remote.proxy.cuts) > 5);
    rv_writer_free(writer);
    remote_close(&remote);
  }
}

static void what_a_blocked_table_holds_back_goes_in_once(void **state)
{
  (void)state;
  enum { ITEMS = 400 };
  rv_table_config tables[1] = {place_queue("queue", 3)};
  remote_place remote;
  remote_open(&remote, tables, 1, -1, 1);
  rv_writer *writer = place_writer(&remote.place, (rv_writer_config){0});
  create_numbers(writer, "queue", 0, ITEMS);
  rv_client_config config = {.size = sizeof config, .store = remote.place.store};
  rv_client *reader = NULL;
  OK(rv_client_new(&config, &reader, error));
  for (int32_t i = 0; i < ITEMS; i++) {
    if (i % 40 == 7) proxy_cut(&remote.proxy); /* inserts that wait are taken back, and sent again */
    rv_batch *batch = NULL;
    OK(rv_client_sample_batch(reader, "queue", 1, RV_UNEQUAL_LIST, &patient, &batch, error));
    int32_t value = -1;
    OK(rv_batch_gather(batch, 0, &value, sizeof value, error));
    assert_int_equal(value, i); /* in order, none twice, none missing */
    rv_batch_free(batch);
  }
  OK(rv_writer_flush(writer, 0, &patient, error));
  rv_writer_free(writer);
  rv_client_free(reader);
  remote_close(&remote);
}

static void items_larger_than_any_window_are_not_lost_with_the_line(void **state)
{
  (void)state;
  rv_table_config tables[1] = {place_queue_like("table", 1000)};
  remote_place remote;
  remote_open(&remote, tables, 1, 2000000, 5);
  static uint8_t frame[200000];
  int64_t shape[1] = {sizeof frame};
  rv_writer *writer =
      place_writer(&remote.place, (rv_writer_config){.num_keep_alive_refs = 4, .compression = RV_COMPRESSION_NONE});
  for (int32_t i = 0; i < 40; i++) {
    memset(frame, i, sizeof frame);
    rv_cell cell = {.column = 0, .value = {.dtype = RV_UINT8, .rank = 1, .shape = shape, .data = frame}};
    OK(rv_writer_append(writer, &cell, 1, false, error));
    OK(item_of_rows(writer, "table", i < 3 ? 0 : i - 3, i < 3 ? (uint32_t)i + 1 : 4, 1, 1, NULL, error));
  }
  OK(rv_writer_flush(writer, 0, &patient, error));
  proxy_calm(&remote.proxy);
  assert_int_equal(place_size(&remote.place, "table"), 40);
  rv_writer_free(writer);
  remote_close(&remote);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(items_wait_for_a_server_that_is_not_there_yet),
      cmocka_unit_test(what_an_absent_server_expects_is_checked_when_it_comes),
      cmocka_unit_test(a_server_killed_during_a_flush_is_an_error_within_the_deadline),
      cmocka_unit_test(a_writer_can_be_freed_while_nobody_is_there),
      cmocka_unit_test(the_step_writer_gives_up_where_it_was_told_to),
      cmocka_unit_test(who_only_creates_items_is_told_once_that_nobody_is_there),
      cmocka_unit_test(an_item_for_an_unknown_table_fails_when_the_tables_are_known),
      cmocka_unit_test(a_failure_is_told_by_the_next_call_once),
      cmocka_unit_test(a_step_writer_goes_on_after_an_item_that_was_refused),
      cmocka_unit_test(a_transitions_writer_goes_on_after_an_item_that_was_refused),
      cmocka_unit_test(settling_waits_for_the_other_items_and_leaves_the_refusal_to_be_taken_once),
      cmocka_unit_test(what_no_call_has_returned_is_logged_once_by_close_and_free),
      cmocka_unit_test(a_step_writers_close_returns_what_no_call_has_when_the_other_items_are_in),
      cmocka_unit_test(a_closed_transitions_writer_has_what_no_call_has_returned),
      cmocka_unit_test(every_item_arrives_once_however_often_the_line_is_cut),
      cmocka_unit_test(what_a_blocked_table_holds_back_goes_in_once),
      cmocka_unit_test(items_larger_than_any_window_are_not_lost_with_the_line),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
