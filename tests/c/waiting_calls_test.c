/* Every call of the client that may wait: it ends at its deadline, when it is cancelled and when it is interrupted, and says what it waited
 * for. The table below lists them all; each row is walked in process, over loopback, at a server that takes connections and does
 * not answer, and where the thread that does a client's I/O is kept from its work until the call has returned. tests/python/test_waiting_calls.py looks whether every function that takes an rv_wait is here. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "support/place.h"
#include "support/stuck_loop.h"

enum { FEW_MS = 100, ATTEMPTS = 10, HANGS_S = 60 };

/* STUCK: over loopback; STUCK_EARLY: before the client has a connection. */
typedef enum way { IN_PROCESS, LOOPBACK, SILENT, STUCK, STUCK_EARLY, WAYS } way;
static const char *const names[] = {"in process", "over loopback", "at a silent server", "with a stuck loop",
                                    "with a loop stuck early"};

/* Tables: "few" has 3 items and lets none be sampled below 1,005; "full" is a queue of one item, which has it. */
typedef struct world {
  way way;
  test_place place;
  stuck_loop loop;
  int listener; /* of the silent one */
  char address[32];
  rv_sampler *sampler;
  rv_writer *writer;
  rv_step_writer *steps;
  rv_structured_writer *structured;
  rv_transitions *transitions;
} world;

/* ---- the calls ---- */

static const int64_t one_row[] = {1};
static float values[8];
static const rv_tensor row = {.dtype = RV_FLOAT32, .data = values};
static const rv_tensor batch_of_one = {.dtype = RV_FLOAT32, .rank = 1, .shape = one_row, .data = values};

static rv_code add(world *w, const rv_wait *wait, rv_error *err)
{
  return rv_client_add(w->place.client, "full", &row, 1, 1, NULL, wait, err);
}
static rv_code add_batch(world *w, const rv_wait *wait, rv_error *err)
{
  size_t added;
  return rv_client_add_batch(w->place.client, "full", &batch_of_one, 1, 1, NULL, NULL, &added, wait, err);
}
static rv_code add_named(world *w, const rv_wait *wait, rv_error *err)
{
  return rv_client_add_named(w->place.client, "full", 1, &row, 1, 1, NULL, wait, err);
}
static rv_code add_batch_named(world *w, const rv_wait *wait, rv_error *err)
{
  size_t added;
  return rv_client_add_batch_named(w->place.client, "full", 1, &batch_of_one, 1, 1, NULL, NULL, &added, wait, err);
}
static rv_code sample_batch(world *w, const rv_wait *wait, rv_error *err)
{
  rv_batch *batch;
  return rv_client_sample_batch(w->place.client, "few", 2, RV_UNEQUAL_ERROR, wait, &batch, err);
}
static rv_code sample_into(world *w, const rv_wait *wait, rv_error *err)
{
  rv_batch_arrays arrays = {.size = sizeof arrays};
  return rv_client_sample_into(w->place.client, "few", 2, &arrays, wait, err);
}
static rv_code next_sample(world *w, const rv_wait *wait, rv_error *err)
{
  const rv_sampler_config config = {.size = sizeof config,
                                    .table = "few",
                                    .max_samples = RV_UNLIMITED,
                                    .max_samples_per_stream = RV_UNLIMITED,
                                    .rate_limiter_timeout_ms = RV_FOREVER};
  rv_sample *sample;
  if (w->sampler == NULL) OK(rv_sampler_new(w->place.client, &config, &w->sampler, error));
  return rv_sampler_next(w->sampler, wait, &sample, err);
}

/* A writer with one item that cannot get in. */
static void need_writer(world *w)
{
  if (w->writer != NULL) return;
  const rv_writer_config config = {.size = sizeof config, .num_keep_alive_refs = 2};
  const rv_cell cell = {.column = 0, .value = row};
  OK(rv_writer_new(w->place.client, &config, &w->writer, error));
  OK(rv_writer_append(w->writer, &cell, 1, false, error));
  OK(item_of_rows(w->writer, "full", 0, 1, 1, 1, NULL, error));
}
static rv_code writer_wait_ready(world *w, const rv_wait *wait, rv_error *err)
{
  need_writer(w);
  return rv_writer_wait_ready(w->writer, wait, err);
}
static rv_code writer_flush(world *w, const rv_wait *wait, rv_error *err)
{
  need_writer(w);
  return rv_writer_flush(w->writer, 0, wait, err);
}
static rv_code writer_settle(world *w, const rv_wait *wait, rv_error *err)
{
  need_writer(w);
  return rv_writer_settle(w->writer, wait, err);
}
static rv_code writer_end_episode(world *w, const rv_wait *wait, rv_error *err)
{
  need_writer(w);
  return rv_writer_end_episode(w->writer, true, wait, err);
}

static void need_steps(world *w)
{
  if (w->steps != NULL) return;
  const rv_step_writer_config config = {.size = sizeof config, .max_sequence_length = 1, .max_in_flight_items = 1};
  const rv_wait none = {.timeout_ms = 0};
  rv_error err;
  OK(rv_step_writer_new(w->place.client, &config, &w->steps, error));
  OK(rv_step_writer_append(w->steps, &row, 1, &none, error));
  rv_step_writer_create_item(w->steps, "full", 1, 1, &none, NULL, &err); /* it is sent; there is no room for another */
}
static rv_code steps_wait_ready(world *w, const rv_wait *wait, rv_error *err)
{
  need_steps(w);
  return rv_step_writer_wait_ready(w->steps, wait, err);
}
static rv_code steps_create_item(world *w, const rv_wait *wait, rv_error *err)
{
  need_steps(w);
  return rv_step_writer_create_item(w->steps, "full", 1, 1, wait, NULL, err);
}
static rv_code steps_flush(world *w, const rv_wait *wait, rv_error *err)
{
  need_steps(w);
  return rv_step_writer_flush(w->steps, wait, err);
}
static rv_code steps_settle(world *w, const rv_wait *wait, rv_error *err)
{
  need_steps(w);
  return rv_step_writer_settle(w->steps, true, wait, err);
}
static rv_code steps_close(world *w, const rv_wait *wait, rv_error *err)
{
  need_steps(w);
  return rv_step_writer_close(w->steps, true, wait, err);
}
static rv_code steps_close_if_reachable(world *w, const rv_wait *wait, rv_error *err)
{
  need_steps(w);
  return rv_step_writer_close(w->steps, false, wait, err);
}

/* More than half of what may be in flight: one such row waits to get in, and so there is no room for the next. */
static float large[33 << 18];
static const int64_t large_shape[] = {1, sizeof large / sizeof large[0]};
static const rv_tensor large_row = {.dtype = RV_FLOAT32, .rank = 1, .shape = large_shape + 1, .data = large};
static const rv_tensor large_sequence = {.dtype = RV_FLOAT32, .rank = 2, .shape = large_shape, .data = large};

static void need_large_step(world *w)
{
  const rv_step_writer_config config = {.size = sizeof config, .max_sequence_length = 1, .compression = RV_COMPRESSION_NONE};
  const rv_wait none = {.timeout_ms = 0};
  OK(rv_step_writer_new(w->place.client, &config, &w->steps, error));
  OK(rv_step_writer_append(w->steps, &large_row, 1, &none, error));
  OK(rv_step_writer_create_item(w->steps, "full", 1, 1, &none, NULL, error));
}
static rv_code steps_append(world *w, const rv_wait *wait, rv_error *err)
{
  need_large_step(w);
  return rv_step_writer_append(w->steps, &large_row, 1, wait, err);
}
static rv_code steps_append_sequence(world *w, const rv_wait *wait, rv_error *err)
{
  need_large_step(w);
  return rv_step_writer_append_sequence(w->steps, &large_sequence, 1, wait, err);
}

static void need_structured(world *w)
{
  if (w->structured != NULL) return;
  const rv_pattern_node node = rv_pattern_row(0, -1);
  const rv_pattern_config pattern = {.size = sizeof pattern,
                                     .table = "full",
                                     .nodes = &node,
                                     .num_nodes = 1,
                                     .priority = {.kind = RV_PRIORITY_CONSTANT, .constant = 1}};
  const rv_structured_writer_config config = {.size = sizeof config, .patterns = &pattern, .num_patterns = 1};
  const rv_cell cell = {.column = 0, .value = row};
  OK(rv_structured_writer_new(w->place.client, &config, &w->structured, error));
  OK(rv_structured_writer_append(w->structured, &cell, 1, false, error));
}
static rv_code structured_flush(world *w, const rv_wait *wait, rv_error *err)
{
  need_structured(w);
  return rv_structured_writer_flush(w->structured, 0, wait, err);
}
static rv_code structured_settle(world *w, const rv_wait *wait, rv_error *err)
{
  need_structured(w);
  return rv_structured_writer_settle(w->structured, wait, err);
}
static rv_code structured_end_episode(world *w, const rv_wait *wait, rv_error *err)
{
  need_structured(w);
  return rv_structured_writer_end_episode(w->structured, true, wait, err);
}

static void need_transitions(world *w)
{
  if (w->transitions != NULL) return;
  const rv_transitions_column column = {.name = NULL};
  const rv_transitions_config config = {
      .size = sizeof config, .table = "full", .num_envs = 1, .columns = &column, .num_columns = 1};
  OK(rv_transitions_new(w->place.client, &config, &w->transitions, error));
}
static rv_code transitions_add(world *w, const rv_wait *wait, rv_error *err)
{
  need_transitions(w);
  return rv_transitions_add(w->transitions, &batch_of_one, 1, NULL, NULL, wait, err);
}
static rv_code transitions_add_where(world *w, const rv_wait *wait, rv_error *err)
{
  need_transitions(w);
  return rv_transitions_add_where(w->transitions, &batch_of_one, 1, NULL, (bool[]){true}, NULL, wait, err);
}
static void need_transition(world *w)
{
  const rv_wait patient = {.timeout_ms = 30000};
  need_transitions(w);
  if (w->place.client != NULL) OK(rv_transitions_add(w->transitions, &batch_of_one, 1, NULL, NULL, &patient, error));
}
static rv_code transitions_flush(world *w, const rv_wait *wait, rv_error *err)
{
  need_transition(w);
  return rv_transitions_flush(w->transitions, wait, err);
}
static rv_code transitions_settle(world *w, const rv_wait *wait, rv_error *err)
{
  need_transition(w);
  return rv_transitions_settle(w->transitions, wait, err);
}

static rv_code server_info(world *w, const rv_wait *wait, rv_error *err)
{
  rv_server_info *info;
  return rv_client_server_info(w->place.client, wait, &info, err);
}
static rv_code items(world *w, const rv_wait *wait, rv_error *err)
{
  uint64_t cursor = 0;
  rv_item_info item;
  size_t count;
  return rv_client_items(w->place.client, "few", &cursor, &item, 1, &count, wait, err);
}
static rv_code get(world *w, const rv_wait *wait, rv_error *err)
{
  rv_sample *sample;
  return rv_client_get(w->place.client, "few", 1, wait, &sample, err);
}
static rv_code mutate(world *w, const rv_wait *wait, rv_error *err)
{
  const uint64_t key = 1;
  return rv_client_mutate(w->place.client, "few", NULL, 0, &key, 1, NULL, NULL, wait, err);
}
static rv_code update_priorities(world *w, const rv_wait *wait, rv_error *err)
{
  const uint64_t key = 1;
  const double priority = 1;
  return rv_client_update_priorities(w->place.client, "few", &key, &priority, 1, NULL, NULL, wait, err);
}
static rv_code reset(world *w, const rv_wait *wait, rv_error *err)
{
  return rv_client_reset(w->place.client, "few", wait, err);
}
static rv_code set_rate_limiter(world *w, const rv_wait *wait, rv_error *err)
{
  const rv_rate_limiter_config limiter = rv_rate_limiter_min_size(1);
  return rv_client_set_rate_limiter(w->place.client, "few", &limiter, wait, err);
}
static rv_code set_bounds(world *w, const rv_wait *wait, rv_error *err)
{
  const rv_table_bounds bounds = rv_table_bounds_unchanged();
  return rv_client_set_bounds(w->place.client, "few", &bounds, wait, err);
}
static rv_code set_memory_limit(world *w, const rv_wait *wait, rv_error *err)
{
  return rv_client_set_memory_limit(w->place.client, 0, wait, err);
}
static rv_code checkpoint(world *w, const rv_wait *wait, rv_error *err)
{
  char *path;
  return rv_client_checkpoint(w->place.client, &path, wait, err);
}

#define INSERTING "table \"full\": inserting waits for 1 more sample"
#define UNCONFIRMED "1 item is not confirmed by the server" /* it may be large, and still on its way */
#define SAMPLING "table \"few\": sampling waits for 1,005 items, has 3"

static const struct waiting_call {
  const char *name;
  rv_code (*call)(world *w, const rv_wait *wait, rv_error *err);
  const char *in_process, *over_loopback; /* what it waits for; NULL: it does not */
} calls[] = {
    {"add", add, INSERTING, INSERTING},
    {"add_batch", add_batch, INSERTING, INSERTING},
    {"add_named", add_named, INSERTING, INSERTING},
    {"add_batch_named", add_batch_named, INSERTING, INSERTING},
    {"sample_batch", sample_batch, SAMPLING, SAMPLING},
    {"sample_into", sample_into, SAMPLING, SAMPLING},
    {"sampler_next", next_sample, SAMPLING, SAMPLING},
    {"writer_wait_ready", writer_wait_ready, NULL, NULL},
    {"writer_flush", writer_flush, INSERTING, INSERTING},
    {"writer_settle", writer_settle, INSERTING, INSERTING},
    {"writer_end_episode", writer_end_episode, INSERTING, INSERTING},
    {"step_writer_wait_ready", steps_wait_ready, NULL, NULL},
    {"step_writer_append", steps_append, INSERTING, UNCONFIRMED},
    {"step_writer_append_sequence", steps_append_sequence, INSERTING, UNCONFIRMED},
    {"step_writer_create_item", steps_create_item, INSERTING, INSERTING},
    {"step_writer_flush", steps_flush, INSERTING, INSERTING},
    {"step_writer_settle", steps_settle, INSERTING, INSERTING},
    {"step_writer_close", steps_close, INSERTING, INSERTING},
    {"step_writer_close, if anybody is there", steps_close_if_reachable, INSERTING, INSERTING},
    {"structured_writer_flush", structured_flush, INSERTING, INSERTING},
    {"structured_writer_settle", structured_settle, INSERTING, INSERTING},
    {"structured_writer_end_episode", structured_end_episode, INSERTING, INSERTING},
    {"transitions_add", transitions_add, INSERTING, NULL},
    {"transitions_add_where", transitions_add_where, INSERTING, NULL},
    {"transitions_flush", transitions_flush, NULL, INSERTING},
    {"transitions_settle", transitions_settle, NULL, INSERTING},
    {"server_info", server_info, NULL, NULL},
    {"items", items, NULL, NULL},
    {"get", get, NULL, NULL},
    {"mutate", mutate, NULL, NULL},
    {"update_priorities", update_priorities, NULL, NULL},
    {"reset", reset, NULL, NULL},
    {"set_rate_limiter", set_rate_limiter, NULL, NULL},
    {"set_bounds", set_bounds, NULL, NULL},
    {"set_memory_limit", set_memory_limit, NULL, NULL},
    {"checkpoint", checkpoint, NULL, NULL},
};
enum { CALLS = sizeof calls / sizeof calls[0] };

/* ---- the walk ---- */

static void open_world(world *w, way at)
{
  *w = (world){.way = at, .listener = -1};
  if (at == SILENT || at == STUCK_EARLY) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof name;
    w->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(w->listener, (struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(listen(w->listener, 64), 0);
    assert_int_equal(getsockname(w->listener, (struct sockaddr *)&name, &length), 0);
    snprintf(w->address, sizeof w->address, "127.0.0.1:%d", (int)ntohs(name.sin_port));
    w->place.client = place_connect(w->address);
    if (at == STUCK_EARLY) stuck_loop_begin(&w->loop, w->place.client);
    return;
  }
  rv_table_config tables[] = {rv_table_config_default("few", 2000), place_queue("full", 1)};
  tables[0].rate_limiter = rv_rate_limiter_min_size(1005);
  place_open(&w->place, at != IN_PROCESS, tables, 2);
  for (int i = 0; i < 3; i++) OK(rv_client_add(w->place.client, "few", &row, 1, 1, NULL, NULL, error));
  OK(rv_client_add(w->place.client, "full", &row, 1, 1, NULL, NULL, error));
  if (at == STUCK) stuck_loop_begin(&w->loop, w->place.client);
}

static void close_world(world *w)
{
  if (w->way >= STUCK) stuck_loop_end(&w->loop);
  if (w->sampler != NULL) rv_sampler_free(w->sampler);
  rv_writer_free(w->writer);
  rv_step_writer_free(w->steps);
  rv_structured_writer_free(w->structured);
  rv_transitions_free(w->transitions);
  rv_client_free(w->place.client);
  if (w->listener >= 0) {
    close(w->listener);
    return;
  }
  rv_server_free(w->place.server);
  rv_store_unref(w->place.store);
  if (w->way != IN_PROCESS) held_port_close(&w->place.held);
}

/* What a client that has been connected knows already: these do not wait there. */
static bool needs_no_loop(const struct waiting_call *call)
{
  return call->call == writer_wait_ready || call->call == steps_wait_ready || call->call == transitions_add ||
         call->call == transitions_add_where;
}

static const char *reason_of(const struct waiting_call *call, const world *w)
{
  if (w->way == SILENT) return call->call == transitions_flush || call->call == transitions_settle ? NULL : w->address;
  if (w->way == STUCK) return needs_no_loop(call) ? NULL : w->place.held.address;
  if (w->way == STUCK_EARLY) return needs_no_loop(call) ? w->address : NULL;
  return w->way == IN_PROCESS ? call->in_process : call->over_loopback;
}

typedef struct firing {
  rv_cancel *cancel;
  pthread_t thread;
  bool started;
} firing;

static void *fire(void *argument)
{
  rv_cancel_fire(((firing *)argument)->cancel);
  return NULL;
}

/* The call is about to wait. */
static void on_blocking(void *context)
{
  firing *f = context;
  if (f->started) return;
  f->started = true;
  assert_int_equal(pthread_create(&f->thread, NULL, fire, f), 0);
}

static bool yes(void *context)
{
  (void)context;
  return true;
}

/* Whether it says what it waited for. A server has a tenth of a second to tell it, which on a busy machine may be too short: then it is
 * tried again, so often. */
static bool ends(const struct waiting_call *call, way at, const char *how, const rv_wait *wait, rv_code expected, int attempt)
{
  world w;
  open_world(&w, at);
  const char *says = reason_of(call, &w);
  rv_error err = {.message = ""};
  alarm(HANGS_S);
  rv_code code = says == NULL ? expected : call->call(&w, wait, &err);
  alarm(0);
  if (code != expected) fail_msg("%s %s, %s: %s (%s)", call->name, names[at], how, rv_code_name(code), err.message);
  bool said = says == NULL || strstr(err.message, says) != NULL;
  if (!said && attempt == ATTEMPTS)
    fail_msg("%s %s, %s: \"%s\" does not say \"%s\"", call->name, names[at], how, err.message, says);
  close_world(&w);
  return said;
}

static void every_call_ends_at_its_deadline_and_says_what_it_waited_for(void **state)
{
  (void)state;
  for (way at = IN_PROCESS; at < WAYS; at++) {
    for (size_t i = 0; i < CALLS; i++) {
      rv_wait wait = {.timeout_ms = FEW_MS};
      for (int n = 1; !ends(&calls[i], at, "at its deadline", &wait, RV_DEADLINE_EXCEEDED, n); n++) wait.timeout_ms *= 2;
    }
  }
}

static bool ends_when_cancelled(const struct waiting_call *call, way at, int attempt)
{
  firing f = {.started = false};
  OK(rv_cancel_new(&f.cancel, error));
  const rv_wait wait = {.timeout_ms = RV_FOREVER, .cancel = f.cancel, .blocking = on_blocking, .context = &f};
  bool said = ends(call, at, "cancelled", &wait, RV_CANCELLED, attempt);
  if (f.started) pthread_join(f.thread, NULL);
  rv_cancel_free(f.cancel);
  return said;
}

static void every_call_ends_when_it_is_cancelled_and_says_what_it_waited_for(void **state)
{
  (void)state;
  for (way at = IN_PROCESS; at < WAYS; at++)
    for (size_t i = 0; i < CALLS; i++)
      for (int n = 1; !ends_when_cancelled(&calls[i], at, n); n++) continue;
}

static void every_call_ends_when_its_caller_is_interrupted_and_says_what_it_waited_for(void **state)
{
  (void)state;
  const rv_wait wait = {.timeout_ms = RV_FOREVER, .interrupted = yes};
  for (way at = IN_PROCESS; at < WAYS; at++)
    for (size_t i = 0; i < CALLS; i++)
      for (int n = 1; !ends(&calls[i], at, "interrupted", &wait, RV_CANCELLED, n); n++) continue;
}

/* ---- memory that comes while a call waits ---- */

enum { LIMIT = 4 << 20, HELD = 5 << 19, WRITTEN = 2 << 20 };

/* In process: a sample is held, and the item of a writer waits for its memory. */
typedef struct short_of_memory {
  test_place place;
  rv_sampler *sampler;
  rv_sample *held;
  rv_writer *writer;
} short_of_memory;

static rv_sampler *sampler_of(rv_client *client, const char *table)
{
  const rv_sampler_config config = {.size = sizeof config,
                                    .table = table,
                                    .max_samples = 1,
                                    .max_samples_per_stream = RV_UNLIMITED,
                                    .rate_limiter_timeout_ms = RV_FOREVER};
  rv_sampler *sampler;
  OK(rv_sampler_new(client, &config, &sampler, error));
  return sampler;
}

static void open_short_of_memory(short_of_memory *w)
{
  static const uint8_t bytes[HELD];
  const int64_t held_shape[] = {HELD}, written_shape[] = {WRITTEN};
  const rv_tensor held_row = {.dtype = RV_UINT8, .rank = 1, .shape = held_shape, .data = bytes};
  const rv_cell cell = {.column = 0, .value = {.dtype = RV_UINT8, .rank = 1, .shape = written_shape, .data = bytes}};
  const rv_table_config tables[] = {place_queue("once", 10), place_queue_like("replay", 10)};
  const rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = 2, .memory_limit = LIMIT};
  *w = (short_of_memory){.held = NULL};
  OK(rv_store_new(&config, &w->place.store, error));
  OK(rv_client_new(&(rv_client_config){.size = sizeof(rv_client_config), .store = w->place.store}, &w->place.client, error));
  OK(rv_client_add(w->place.client, "once", &held_row, 1, 1, NULL, NULL, error));
  w->sampler = sampler_of(w->place.client, "once");
  OK(rv_sampler_next(w->sampler, NULL, &w->held, error));
  w->writer = place_writer(&w->place, (rv_writer_config){.num_keep_alive_refs = 1});
  OK(rv_writer_append(w->writer, &cell, 1, false, error));
  OK(item_of_rows(w->writer, "replay", 0, 1, 1, 1, NULL, error));
}

static void close_short_of_memory(short_of_memory *w)
{
  rv_writer_free(w->writer);
  rv_sampler_free(w->sampler);
  place_close(&w->place);
}

/* Memory goes where no table is left by it, so that nobody has been told yet. */
static bool let_sample_go(void *context)
{
  rv_sample **held = context;
  if (*held != NULL) rv_sample_unref(*held);
  *held = NULL;
  return false;
}

static bool let_sample_go_and_give_up(void *context)
{
  let_sample_go(context);
  return true;
}

static void a_writer_that_gives_up_just_when_memory_came_ends_and_its_item_gets_in(void **state)
{
  (void)state;
  short_of_memory w;
  open_short_of_memory(&w);
  const rv_wait wait = {.timeout_ms = RV_FOREVER, .interrupted = let_sample_go_and_give_up, .context = &w.held};
  FAILS(RV_CANCELLED, "table \"replay\": inserting waits for memory (", rv_writer_flush(w.writer, 0, &wait, error));
  assert_null(w.held);
  OK(rv_writer_flush(w.writer, 0, NULL, error));
  assert_int_equal(place_size(&w.place, "replay"), 1);
  close_short_of_memory(&w);
}

static void a_sampler_gets_the_item_that_memory_came_for_while_it_waited(void **state)
{
  (void)state;
  short_of_memory w;
  open_short_of_memory(&w);
  const rv_wait wait = {.timeout_ms = 20000, .interrupted = let_sample_go, .context = &w.held};
  rv_sampler *sampler = sampler_of(w.place.client, "replay");
  rv_sample *sample;
  OK(rv_sampler_next(sampler, &wait, &sample, error));
  rv_sample_unref(sample);
  rv_sampler_free(sampler);
  close_short_of_memory(&w);
}

/* ---- calls that wait more than once ---- */

enum { GIVEN_MS = 100000 };

/* A clock that leaps each time that the caller is asked; the first time he makes room. The second leap takes the call beyond what was given, as
 * it sees when it has asked once more; were its second wait given all that time again, it would ask a fourth time, and be interrupted. */
typedef struct leaping {
  test_place place;
  atomic_llong leapt_ns;
  int asked;
} leaping;

static int64_t leaping_ns(void *context)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec + atomic_load(&((leaping *)context)->leapt_ns);
}

static void sample_one(rv_client *client, const char *table)
{
  const rv_wait none = {.timeout_ms = 0};
  rv_batch *batch;
  OK(rv_client_sample_batch(client, table, 1, RV_UNEQUAL_ERROR, &none, &batch, error));
  rv_batch_free(batch);
}

static bool leap(void *context)
{
  leaping *l = context;
  for (int i = 0; l->asked == 0 && i < 2; i++) sample_one(l->place.client, "full");
  l->asked++;
  atomic_fetch_add(&l->leapt_ns, (int64_t)GIVEN_MS * 700000); /* seven tenths of what was given */
  return l->asked > 3;
}

/* Two items that wait to get in, and are more than may be in flight. */
static rv_step_writer *overfull_steps(rv_client *client)
{
  const rv_step_writer_config config = {.size = sizeof config, .max_sequence_length = 2, .compression = RV_COMPRESSION_NONE};
  const rv_wait none = {.timeout_ms = 0};
  rv_step_writer *steps;
  OK(rv_step_writer_new(client, &config, &steps, error));
  for (int i = 0; i < 2; i++) OK(rv_step_writer_append(steps, &large_row, 1, &none, error));
  OK(rv_step_writer_create_item(steps, "full", 1, 1, &none, NULL, error));
  FAILS(RV_DEADLINE_EXCEEDED, INSERTING, rv_step_writer_create_item(steps, "full", 2, 1, &none, NULL, error));
  return steps;
}

static void a_call_that_waits_twice_has_one_deadline(void **state)
{
  (void)state;
  leaping l = {.asked = 0};
  const rv_env env = {.size = sizeof env, .context = &l, .monotonic_ns = leaping_ns};
  const rv_table_config table = place_queue("full", 1);
  const rv_store_config config = {.size = sizeof config, .env = &env, .tables = &table, .num_tables = 1};
  OK(rv_store_new(&config, &l.place.store, error));
  OK(rv_client_new(&(rv_client_config){.size = sizeof(rv_client_config), .store = l.place.store}, &l.place.client, error));
  OK(rv_client_add(l.place.client, "full", &row, 1, 1, NULL, NULL, error));
  rv_step_writer *steps = overfull_steps(l.place.client);
  const rv_wait wait = {.timeout_ms = GIVEN_MS, .interrupted = leap, .context = &l};
  FAILS(RV_DEADLINE_EXCEEDED, "timed out after 100 s", rv_step_writer_create_item(steps, "full", 1, 1, &wait, NULL, error));
  rv_step_writer_free(steps);
  place_close(&l.place);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_call_ends_at_its_deadline_and_says_what_it_waited_for),
      cmocka_unit_test(every_call_ends_when_it_is_cancelled_and_says_what_it_waited_for),
      cmocka_unit_test(every_call_ends_when_its_caller_is_interrupted_and_says_what_it_waited_for),
      cmocka_unit_test(a_writer_that_gives_up_just_when_memory_came_ends_and_its_item_gets_in),
      cmocka_unit_test(a_sampler_gets_the_item_that_memory_came_for_while_it_waited),
      cmocka_unit_test(a_call_that_waits_twice_has_one_deadline),
  };
  return cmocka_run_group_tests_name("waiting calls", tests, NULL, NULL);
}
