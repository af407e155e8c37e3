/* A server with a journal, or with checkpoints alone, while each allocation of its own, of the journal's, the saver's and the client's
 * fails in turn: through rows, a writer's items, changes, samples, a reset, a checkpoint, an end and a recovery. What was confirmed is
 * there after a kill as soon as the mode promises it, and once; what was confirmed to be gone is not. */
#include "support/held_port.h"
#include "support/lives.h"

#include "persist/journal_testing.h"
#include "support/failing_libraries.h"

enum { ROWS = 8, STEPS = 4, MOST = 64, WRITTEN = 100 /* the values of the writer's rows begin there */ };

static const char token[] = "token-of-whoever-writes";

/* ---- a server over a disk ---- */

typedef struct expected {
  uint64_t key;
  int64_t value;
  double priority;
  bool gone;
} expected;

typedef struct life {
  rv_journal_mode mode; /* 0: no journal */
  disk d;
  journaled j;
  rv_server *server;
  rv_client *client;
  held_port held;
  /* what was confirmed, of table "t" */
  expected items[MOST];
  size_t count;
} life;

static void configure_tables(rv_table_config tables[2])
{
  tables[0] = rv_table_config_default("t", 1000);
  tables[0].sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
  tables[1] = rv_table_config_default("u", 1000);
}

static rv_code open_store(const life *l, const disk *d, journaled *out, rv_error *err)
{
  rv_table_config tables[2];
  configure_tables(tables);
  if (l->mode != 0) return try_open(d, (how){.mode = l->mode, .period_ms = 5}, tables, 2, out, err);
  const rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = 2, .env = &d->f->env};
  *out = (journaled){NULL, NULL};
  return rv_checkpointer_restore(d->checkpointer, &config, NULL, &out->store, NULL, err);
}

static rv_code serve(life *l, rv_error *err)
{
  const char *addresses[] = {l->held.address};
  const rv_grant grant = {.rights = RV_RIGHT_READ | RV_RIGHT_INSERT | RV_RIGHT_UPDATE | RV_RIGHT_ADMIN};
  const rv_identity identity = {.name = "whoever writes", .token = token, .grants = &grant, .num_grants = 1};
  const rv_server_config config = {.size = sizeof config,
                                   .store = l->j.store,
                                   .addresses = addresses,
                                   .num_addresses = 1,
                                   .io_threads = 2,
                                   .checkpointer = l->d.checkpointer,
                                   .journal = l->j.journal,
                                   .identities = &identity,
                                   .num_identities = 1};
  return rv_server_new(&config, &l->server, err);
}

static void stop_server(life *l)
{
  rv_server_free(l->server);
  l->server = NULL;
}

/* ---- what is done, and noted where it was confirmed ---- */

static void note(life *l, uint64_t key, int64_t value)
{
  assert_true(l->count < MOST);
  l->items[l->count++] = (expected){.key = key, .value = value, .priority = 1};
}

static void add(life *l, int64_t first)
{
  uint64_t keys[ROWS];
  add_numbers(l->client, "t", first, ROWS, keys);
  for (int i = 0; i < ROWS; i++) note(l, keys[i], first + i);
}

/* Items of steps i and i + 1; of a writer that says that some were not made, none is noted. */
static void write_items(life *l)
{
  uint64_t keys[STEPS];
  rv_writer *writer = NULL;
  const rv_writer_config config = {.size = sizeof config, .num_keep_alive_refs = 2};
  TRY(rv_writer_new(l->client, &config, &writer, error));
  for (int64_t i = 0; i < STEPS; i++) {
    const int64_t number = WRITTEN + i;
    const rv_cell cell = {.value = {.dtype = RV_INT64, .data = &number}};
    const rv_run run = {.count = 2, .first = i - 1, .stride = 1};
    const rv_item_column column = {.runs = &run, .num_runs = 1};
    TRY_ITEMS(rv_writer_append(writer, &cell, 1, false, error));
    if (i > 0) TRY_ITEMS(rv_writer_create_item(writer, "t", 1, &column, 1, &keys[i], error));
  }
  TRY_ITEMS(rv_writer_flush(writer, 0, &patient, error));
  for (int64_t i = 1; i < STEPS; i++) note(l, keys[i], WRITTEN + i - 1);
said:
  rv_writer_free(writer);
}

static void change(life *l)
{
  expected *items = l->items;
  const rv_key_priority updates[] = {{items[0].key, 7}, {items[1].key, 8}};
  const uint64_t gone[] = {items[2].key, items[3].key};
  size_t unknown;
  TRY(rv_client_mutate(l->client, "t", updates, 2, NULL, 0, NULL, &unknown, &patient, error));
  items[0].priority = 7;
  items[1].priority = 8;
  TRY(rv_client_mutate(l->client, "t", NULL, 0, gone, 2, NULL, &unknown, &patient, error));
  items[2].gone = items[3].gone = true;
  const rv_rate_limiter_config limiter = rv_rate_limiter_min_size(2);
  TRY(rv_client_set_rate_limiter(l->client, "t", &limiter, &patient, error));
  rv_table_bounds bounds = rv_table_bounds_unchanged();
  bounds.max_size = 500;
  TRY(rv_client_set_bounds(l->client, "t", &bounds, &patient, error));
  TRY(rv_client_set_memory_limit(l->client, (size_t)1 << 30, &patient, error));
}

static void sample(life *l)
{
  rv_batch *batch = NULL;
  TRY(rv_client_sample_batch(l->client, "t", 4, RV_UNEQUAL_LIST, &patient, &batch, error));
  assert_in_range(rv_batch_size(batch), 1, 4); /* all that was drawn before memory was out */
  rv_batch_free(batch);
}

static void reset(life *l)
{
  uint64_t keys[ROWS];
  add_numbers(l->client, "u", 0, ROWS, keys);
  TRY(rv_client_reset(l->client, "u", &patient, error));
  add_numbers(l->client, "u", 0, 2, keys);
}

static void look(life *l)
{
  rv_item_info page[MOST];
  uint64_t cursor = 0;
  size_t count;
  rv_server_info *info = NULL;
  TRY(rv_client_server_info(l->client, &patient, &info, error));
  assert_int_equal(info->num_tables, 2);
  rv_server_info_free(info);
  TRY((cursor = 0, rv_client_items(l->client, "u", &cursor, page, MOST, &count, &patient, error)));
  assert_int_equal(count, 2);
}

/* It does not wait for a connection: where that was lost, another call has to make a new one. */
static void checkpoint(life *l)
{
  char *path = NULL;
  rv_error err;
  rv_code code = rv_client_checkpoint(l->client, &path, &patient, &err);
  if (code != RV_OK) {
    if (!found_no_memory(code)) fail_msg("%s: %s", rv_code_name(code), err.message);
    look(l);
    OK(rv_client_checkpoint(l->client, &path, &patient, error));
  }
  free(path);
}

/* ---- what is there ---- */

static int64_t first_value(const rv_draw *draw)
{
  int64_t values[2];
  OK(rv_draw_copy_column(draw, 0, values, error));
  return values[0];
}

static void nothing_is_there_twice(rv_store *store)
{
  rv_table *table = rv_store_table(store, 0);
  rv_item_info items[2 * MOST];
  bool seen[WRITTEN + STEPS] = {false};
  size_t n = list_items(table, items, 2 * MOST);
  for (size_t i = 0; i < n; i++) {
    rv_draw draw;
    OK(rv_table_get(table, items[i].key, &draw, error));
    int64_t value = first_value(&draw);
    assert_true(value >= 0 && value < WRITTEN + STEPS);
    if (seen[value]) fail_msg("%lld is there twice", (long long)value);
    seen[value] = true;
    rv_draw_release(&draw);
  }
}

static void what_was_confirmed_is_there(const life *l, rv_store *store)
{
  rv_table *table = rv_store_table(store, 0);
  for (size_t i = 0; i < l->count; i++) {
    const expected *item = &l->items[i];
    rv_draw draw;
    rv_error err;
    rv_code code = rv_table_get(table, item->key, &draw, &err);
    if (code != (item->gone ? RV_NOT_FOUND : RV_OK))
      fail_msg("item %lld: %s: %s", (long long)item->value, rv_code_name(code), err.message);
    if (item->gone) continue;
    assert_int_equal(first_value(&draw), item->value);
    assert_true(draw.priority == item->priority);
    rv_draw_release(&draw);
  }
  assert_int_equal(size_of(store, 1), 2);
  nothing_is_there_twice(store);
}

/* As if it were killed now. */
static void check_what_a_kill_leaves(const life *l)
{
  long left = lives_pause();
  disk copy = copy_of(&l->d, "copy");
  journaled again;
  OK(open_store(l, &copy, &again, error));
  what_was_confirmed_is_there(l, again.store);
  close_all(&again);
  disk_fini(&copy);
  lives_resume(left);
}

/* ---- a life ---- */

static void live(life *l)
{
  add(l, 0);
  write_items(l);
  change(l);
  sample(l);
  reset(l);
  checkpoint(l);
  if (l->mode != 0) add(l, ROWS); /* is in the journal alone */
  look(l);
  if (l->mode == RV_JOURNAL_PERIODIC) TRY(rv_journal_sync(l->j.journal, 60000, error)); /* a period later */
  check_what_a_kill_leaves(l);
  /* it ends, and goes on where it was */
  stop_server(l);
  rv_store *before = rv_store_ref(l->j.store);
  close_all(&l->j);
  TRY(open_store(l, &l->d, &l->j, error));
  long left = lives_pause();
  same_stores(before, l->j.store);
  lives_resume(left);
  rv_store_unref(before);
  TRY(serve(l, error));
  look(l);
  if (l->mode != 0) add(l, 2 * ROWS);
  sample(l);
}

static void begin(life *l, fixture *f, rv_journal_mode mode)
{
  *l = (life){.mode = mode, .d = disk_of(f, "first")};
  held_port_open(&l->held);
  OK(open_store(l, &l->d, &l->j, error));
  OK(serve(l, error));
  const rv_client_config config = {.size = sizeof config, .address = l->held.address, .token = token};
  OK(rv_client_new(&config, &l->client, error));
}

static void end(life *l)
{
  char command[200];
  rv_client_free(l->client);
  stop_server(l);
  close_all(&l->j);
  OK(open_store(l, &l->d, &l->j, error));
  what_was_confirmed_is_there(l, l->j.store);
  close_all(&l->j);
  held_port_close(&l->held);
  snprintf(command, sizeof command, "rm -rf %s", l->d.dir);
  assert_int_equal(system(command), 0);
  disk_fini(&l->d);
}

static void each_failure(void **state, rv_journal_mode mode)
{
  remote = true;
  lives_begin(mode == 0 ? 60 : 120);
  do {
    life l;
    begin(&l, *state, mode);
    lives_fail();
    live(&l);
    lives_end();
    end(&l);
  } while (lives_go_on());
}

static void nothing_confirmed_is_lost_or_doubled_where_a_confirmation_means_on_disk(void **state)
{
  each_failure(state, RV_JOURNAL_ALWAYS);
}

static void nothing_confirmed_a_period_ago_is_lost_or_doubled(void **state)
{
  each_failure(state, RV_JOURNAL_PERIODIC);
}

static void nothing_confirmed_before_a_checkpoint_is_lost_or_doubled(void **state)
{
  each_failure(state, 0);
}

static void log_nothing(void *context, rv_log_level level, const char *line)
{
  (void)context, (void)level, (void)line;
}

static int set_up_quietly(void **state)
{
  set_up(state);
  ((fixture *)*state)->env.log = log_nothing; /* many threads would write it */
  return 0;
}

static int tell_and_tear_down(void **state)
{
  lives_tell(state);
  return tear_down(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up_quietly, tell_and_tear_down)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(nothing_confirmed_is_lost_or_doubled_where_a_confirmation_means_on_disk),
      TEST(nothing_confirmed_a_period_ago_is_lost_or_doubled),
      TEST(nothing_confirmed_before_a_checkpoint_is_lost_or_doubled),
  };
  fail_libraries();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
