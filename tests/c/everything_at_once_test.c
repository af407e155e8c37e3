/* Everything at once, for the sanitizers: two tables behind a server with journal and checkpoints, and threads that add, write, sample,
 * iterate, change, delete, reset, list, save, cancel, connect and go, in process and through the server, while the limiter changes and
 * the server stops and starts again. Nothing is timed: each thread does so many things, and then all are stopped.
 *
 * RV_TEST_ROUNDS: how many things each does (default 100). What must hold: nobody is told anything but what can be, what is sampled is what
 * somebody put there, and what the journal has afterwards is what the store held. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "support/place.h"

#include "store/store.h"

enum { COLUMNS = 2, MOST = 40, WIDTH = 600, SIZE = 400 };

static const char *const names[] = {"replay", "queue"};

typedef struct everything {
  char dir[64], address[80];
  rv_checkpointer *checkpointer;
  rv_store *store;
  rv_journal *journal;
  rv_server *server;
  rv_io *io;
  int rounds;
  atomic_int number, working; /* threads made; those that go on until the others are done are not counted */
  atomic_long added, sampled;
} everything;

typedef struct worker {
  everything *all;
  rv_client *client; /* its own, through the server or in process */
  rv_random random;
} worker;

/* ---- rows ---- */

typedef struct rows {
  int64_t number[MOST];
  uint8_t bytes[MOST][WIDTH];
  int64_t shapes[2];
  rv_tensor columns[COLUMNS];
} rows;

static void make_rows(rows *r, rv_random *random, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    r->number[i] = (int64_t)(rv_random_next(random) >> 8);
    memset(r->bytes[i], (int)(r->number[i] & 255), WIDTH);
  }
  r->shapes[0] = (int64_t)n;
  r->shapes[1] = WIDTH;
  r->columns[0] = (rv_tensor){.dtype = RV_INT64, .rank = 1, .shape = r->shapes, .data = r->number};
  r->columns[1] = (rv_tensor){.dtype = RV_UINT8, .rank = 2, .shape = r->shapes, .data = r->bytes};
}

static void check_row(int64_t number, const uint8_t *bytes)
{
  assert_true(bytes[0] == (uint8_t)number && bytes[WIDTH / 2] == (uint8_t)number && bytes[WIDTH - 1] == (uint8_t)number);
}

static void check_sample(everything *all, rv_sample *sample)
{
  int64_t number;
  uint8_t bytes[WIDTH];
  rv_error err;
  assert_int_equal(rv_sample_copy(sample, 0, &number, sizeof number, &err), RV_OK);
  assert_int_equal(rv_sample_copy(sample, 1, bytes, sizeof bytes, &err), RV_OK);
  check_row(number, bytes);
  atomic_fetch_add(&all->sampled, 1);
}

/* What a caller may be told here; anything else is a fault. */
static void expect(rv_code code, const rv_error *err)
{
  switch (code) {
  case RV_OK:
  case RV_DEADLINE_EXCEEDED:
  case RV_CANCELLED:
  case RV_UNAVAILABLE:          /* the server stops now and then */
  case RV_NOT_FOUND:            /* an item that has gone meanwhile */
  case RV_OUT_OF_RANGE: return; /* the end of a sequence */
  default: fail_msg("%s: %s", rv_code_name(code), err->message);
  }
}

static uint32_t below(worker *w, uint32_t n)
{
  return rv_random_below(&w->random, n);
}

static const char *some_table(worker *w)
{
  return names[below(w, 3) == 0];
}

static rv_wait some_wait(worker *w)
{
  static const int64_t timeouts[] = {0, 1, 5, 20};
  return (rv_wait){.timeout_ms = timeouts[below(w, 4)]};
}

/* ---- what workers do ---- */

static void add(worker *w)
{
  rows r;
  uint64_t keys[MOST];
  size_t n = 1 + below(w, MOST), added = 0;
  rv_error err;
  rv_wait wait = some_wait(w);
  make_rows(&r, &w->random, n);
  expect(rv_client_add_batch(w->client, some_table(w), r.columns, COLUMNS, n, NULL, keys, &added, &wait, &err), &err);
  atomic_fetch_add(&w->all->added, (long)added);
}

static void write_items(worker *w)
{
  rv_writer_config config = {.size = sizeof config, .num_keep_alive_refs = 4, .chunk_length = below(w, 5)};
  rv_writer *writer;
  rv_error err;
  rv_wait wait = {.timeout_ms = 100};
  if (config.chunk_length > 4) config.chunk_length = 0;
  OK(rv_writer_new(w->client, &config, &writer, error));
  for (int64_t i = 0; i < 10; i++) {
    int64_t number = (int64_t)(rv_random_next(&w->random) >> 8), width = WIDTH;
    uint8_t bytes[WIDTH];
    memset(bytes, (int)(number & 255), sizeof bytes);
    const rv_cell cells[] = {{0, {.dtype = RV_INT64, .data = &number}},
                             {1, {.dtype = RV_UINT8, .rank = 1, .shape = &width, .data = bytes}}};
    const rv_run runs[] = {{.column = 0, .count = 1, .first = i}, {.column = 1, .count = 1, .first = i}};
    const rv_item_column columns[] = {{.runs = &runs[0], .num_runs = 1, .squeeze = true},
                                      {.runs = &runs[1], .num_runs = 1, .squeeze = true}};
    rv_code code = rv_writer_append(writer, cells, COLUMNS, false, &err);
    if (code == RV_OK) code = rv_writer_create_item(writer, some_table(w), 1 + below(w, 3), columns, COLUMNS, NULL, &err);
    expect(code, &err);
    if (code != RV_OK) break;
  }
  if (below(w, 4) > 0) expect(rv_writer_flush(writer, 0, &wait, &err), &err);
  rv_writer_status status = {.size = sizeof status};
  rv_writer_get_status(writer, &status);
  atomic_fetch_add(&w->all->added, (long)status.items_confirmed);
  rv_writer_free(writer);
}

static void add_transitions(worker *w)
{
  const rv_transitions_column columns[COLUMNS] = {{.name = "number"}, {.name = "bytes"}};
  const rv_transitions_config config = {
      .size = sizeof config, .table = "replay", .num_envs = 3, .columns = columns, .num_columns = COLUMNS};
  rv_transitions *transitions;
  rv_error err;
  rv_wait wait = {.timeout_ms = 100};
  rows r;
  OK(rv_transitions_new(w->client, &config, &transitions, error));
  for (int i = 0; i < 5; i++) {
    size_t added;
    make_rows(&r, &w->random, 3);
    rv_code code = rv_transitions_add(transitions, r.columns, COLUMNS, NULL, &added, &wait, &err);
    expect(code, &err);
    if (code != RV_OK) break;
  }
  expect(rv_transitions_flush(transitions, &wait, &err), &err);
  rv_transitions_free(transitions);
}

static void sample_batch(worker *w)
{
  rv_batch *batch;
  rv_error err;
  rv_wait wait = some_wait(w);
  size_t n = 1 + below(w, 32);
  rv_code code = rv_client_sample_batch(w->client, some_table(w), n, RV_UNEQUAL_ERROR, &wait, &batch, &err);
  expect(code, &err);
  if (code != RV_OK) return;
  size_t size = rv_batch_size(batch);
  int64_t *numbers = malloc(size * sizeof *numbers);
  uint8_t *bytes = malloc(size * WIDTH);
  void *outs[] = {numbers, bytes};
  const size_t sizes[] = {size * sizeof *numbers, size * WIDTH};
  OK(rv_batch_gather_all(batch, outs, sizes, COLUMNS, error));
  for (size_t i = 0; i < size; i++) check_row(numbers[i], bytes + i * WIDTH);
  atomic_fetch_add(&w->all->sampled, (long)size);
  free(numbers);
  free(bytes);
  rv_batch_free(batch);
}

static void iterate(worker *w)
{
  rv_sampler_config config = {.size = sizeof config,
                              .table = some_table(w),
                              .max_samples = 1 + below(w, 30),
                              .max_in_flight_samples = 1 + below(w, 8),
                              .num_streams = 1 + below(w, 2),
                              .rate_limiter_timeout_ms = 5};
  rv_sampler *sampler;
  rv_sample *sample;
  rv_error err;
  rv_wait wait = {.timeout_ms = 50};
  OK(rv_sampler_new(w->client, &config, &sampler, error));
  rv_code code;
  while ((code = rv_sampler_next(sampler, &wait, &sample, &err)) == RV_OK) {
    check_sample(w->all, sample);
    rv_sample_unref(sample);
    if (below(w, 20) == 0) rv_sampler_cancel(sampler);
  }
  expect(code, &err);
  rv_sampler_free(sampler);
}

/* Keys that are there, or were a moment ago. */
static size_t some_keys(worker *w, const char *table, uint64_t *keys, size_t capacity)
{
  rv_item_info page[MOST];
  uint64_t cursor = 0;
  size_t count = 0;
  rv_error err;
  rv_wait wait = {.timeout_ms = 50};
  rv_code code = rv_client_items(w->client, table, &cursor, page, capacity, &count, &wait, &err);
  expect(code, &err);
  for (size_t i = 0; code == RV_OK && i < count; i++) keys[i] = page[i].key;
  return code == RV_OK ? count : 0;
}

static void change(worker *w)
{
  uint64_t keys[MOST], unknown[2 * MOST];
  rv_key_priority updates[MOST];
  const char *table = some_table(w);
  size_t n = some_keys(w, table, keys, MOST), num_unknown;
  rv_error err;
  rv_wait wait = {.timeout_ms = 50};
  for (size_t i = 0; i < n; i++) updates[i] = (rv_key_priority){keys[i], below(w, 5)};
  expect(rv_client_mutate(w->client, table, updates, n, keys, below(w, 3) == 0 ? n / 2 : 0, unknown, &num_unknown, &wait, &err),
         &err);
}

static void look(worker *w)
{
  rv_server_info *info;
  uint64_t keys[MOST];
  const char *table = some_table(w);
  rv_error err;
  rv_wait wait = {.timeout_ms = 50};
  rv_code code = rv_client_server_info(w->client, &wait, &info, &err);
  expect(code, &err);
  if (code == RV_OK) {
    assert_true(info->num_tables == 2 && info->tables[0].current_size <= SIZE);
    rv_server_info_free(info);
  }
  size_t n = some_keys(w, table, keys, MOST);
  for (size_t i = 0; i < n; i += 8) {
    rv_sample *sample;
    code = rv_client_get(w->client, table, keys[i], &wait, &sample, &err);
    expect(code, &err);
    if (code != RV_OK) continue;
    check_sample(w->all, sample);
    rv_sample_unref(sample);
  }
}

static void govern(worker *w)
{
  rv_error err;
  rv_wait wait = {.timeout_ms = 50};
  rv_journal_stats stats = {.size = sizeof stats};
  char *path = NULL;
  rv_code code;
  rv_rate_limiter_config limiter =
      below(w, 2) == 0 ? rv_rate_limiter_min_size(1 + below(w, 5)) : rv_rate_limiter_sample_to_insert_ratio(2, 5, 100);
  rv_table_bounds bounds = rv_table_bounds_unchanged();
  switch (below(w, 10)) {
  case 0: expect(rv_client_reset(w->client, some_table(w), &wait, &err), &err); break;
  case 1: expect(rv_journal_sync(w->all->journal, 1000, &err), &err); break;
  case 2:
    code = rv_client_checkpoint(w->client, &path, &wait, &err);
    if (code != RV_INVALID_ARGUMENT) expect(code, &err); /* in process there is no checkpointer */
    if (code == RV_OK) free(path);
    break;
  case 3: rv_journal_get_stats(w->all->journal, &stats); break;
  case 4:
    bounds.max_bytes = below(w, 2) == 0 ? 0 : (int64_t)(1 + below(w, 64)) << 14;
    code = rv_client_set_bounds(w->client, some_table(w), &bounds, &wait, &err);
    if (code != RV_ABORTED) expect(code, &err); /* another one's came in between */
    break;
  case 5:
    expect(rv_client_set_memory_limit(w->client, below(w, 2) == 0 ? 0 : (size_t)(1 + below(w, 16)) << 20, &wait, &err), &err);
    break;
  default: expect(rv_client_set_rate_limiter(w->client, "replay", &limiter, &wait, &err), &err);
  }
}

typedef struct firing {
  rv_cancel *cancel;
  everything *all;
} firing;

static void *fire(void *context)
{
  firing *f = context;
  rv_server_info *info;
  rv_error err;
  rv_client_config config = {.size = sizeof config, .address = f->all->address, .io = f->all->io};
  rv_client *client;
  rv_wait wait = {.timeout_ms = 5};
  OK(rv_client_new(&config, &client, error)); /* one that comes and goes */
  if (rv_client_server_info(client, &wait, &info, &err) == RV_OK) rv_server_info_free(info);
  rv_client_free(client);
  rv_cancel_fire(f->cancel);
  return NULL;
}

/* A call that would wait for ever is cancelled by another thread. */
static void be_cancelled(worker *w)
{
  firing f = {.all = w->all};
  pthread_t thread;
  rv_batch *batch;
  rv_error err;
  OK(rv_cancel_new(&f.cancel, error));
  assert_int_equal(pthread_create(&thread, NULL, fire, &f), 0);
  rv_wait wait = {.timeout_ms = RV_FOREVER, .cancel = f.cancel};
  rv_code code = rv_client_sample_batch(w->client, "queue", 200, RV_UNEQUAL_LIST, &wait, &batch, &err);
  expect(code, &err);
  if (code == RV_OK) rv_batch_free(batch);
  pthread_join(thread, NULL);
  rv_cancel_free(f.cancel);
}

static void *work(void *context)
{
  everything *all = context;
  static void (*const verbs[])(worker * w) = {add,          add,          add,          write_items, write_items, add_transitions,
                                              sample_batch, sample_batch, sample_batch, iterate,     iterate,     change,
                                              look,         govern,       be_cancelled};
  int number = atomic_fetch_add(&all->number, 1);
  worker w = {.all = all};
  rv_random_init(&w.random, (uint64_t)number);
  rv_client_config config = {.size = sizeof config};
  if (number % 3 == 0)
    config.store = all->store;
  else
    config.address = all->address;
  if (number % 2 == 0 && number % 3 != 0) config.io = all->io;
  for (int i = 0; i < all->rounds; i++) {
    if (i % 20 == 0) {
      config.no_shared_memory = rv_random_next(&w.random) % 2 == 0;
      rv_client_free(w.client);
      OK(rv_client_new(&config, &w.client, error));
    }
    verbs[below(&w, sizeof verbs / sizeof *verbs)](&w);
  }
  rv_client_free(w.client);
  atomic_fetch_sub(&all->working, 1);
  return NULL;
}

/* ---- the server ---- */

static void serve(everything *all)
{
  const char *addresses[] = {all->address};
  rv_server_config config = {.size = sizeof config,
                             .store = all->store,
                             .addresses = addresses,
                             .num_addresses = 1,
                             .io_threads = 2,
                             .checkpointer = all->checkpointer,
                             .checkpoint_every_inserts = 2000,
                             .journal = all->journal};
  OK(rv_server_new(&config, &all->server, error));
}

static void configure(rv_table_config tables[2])
{
  static const rv_extension_config statistics = {.name = "statistics"};
  tables[0] = rv_table_config_default(names[0], SIZE);
  tables[0].sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 0.5};
  tables[0].extensions = &statistics;
  tables[0].num_extensions = 1;
  tables[1] = place_queue(names[1], 50);
}

static void recover(everything *all)
{
  char path[100];
  rv_table_config tables[2];
  configure(tables);
  rv_store_config store = {.size = sizeof store, .tables = tables, .num_tables = 2};
  snprintf(path, sizeof path, "%s/journal", all->dir);
  rv_journal_config journal = {.size = sizeof journal, .path = path, .mode = RV_JOURNAL_ALWAYS};
  OK(rv_journal_recover(&journal, all->checkpointer, &store, NULL, &all->store, &all->journal, error));
}

/* Keys, priorities and times sampled of all items, as one number for each table; how many. */
static size_t sum_of(rv_store *store, size_t table, uint64_t *sum)
{
  rv_item_info page[100];
  uint64_t cursor = 0;
  size_t count, all = 0;
  *sum = 0;
  do {
    OK(rv_table_items(rv_store_table(store, table), &cursor, page, 100, &count, error));
    for (size_t i = 0; i < count; i++)
      *sum = *sum * 31 + page[i].key + (uint64_t)(page[i].priority * 16) + (uint64_t)page[i].times_sampled;
    all += count;
  } while (cursor != 0);
  return all;
}

static void everything_goes_on_at_once(void **state)
{
  (void)state;
  enum { WORKERS = 9 };
  everything *all = calloc(1, sizeof *all);
  const char *rounds = getenv("RV_TEST_ROUNDS");
  char path[100], command[100];
  pthread_t threads[WORKERS];
  all->rounds = rounds == NULL ? 100 : atoi(rounds);
  strcpy(all->dir, "/tmp/rv-everything.XXXXXX");
  assert_non_null(mkdtemp(all->dir));
  snprintf(path, sizeof path, "%s/checkpoints", all->dir);
  snprintf(all->address, sizeof all->address, "unix:%s/s", all->dir);
  const rv_checkpointer_config saved = {.size = sizeof saved, .path = path};
  OK(rv_checkpointer_new(&saved, &all->checkpointer, error));
  OK(rv_io_new(&all->io, error));
  recover(all);
  serve(all);
  atomic_store(&all->working, WORKERS);
  for (int i = 0; i < WORKERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, all), 0);
  for (int i = 0; atomic_load(&all->working) > 0; i++) {
    usleep(50000); /* how often it stops, not whether anything holds */
    if (i % 4 != 3) continue;
    rv_server_stop(all->server, i % 8 == 3 ? 0 : 20);
    rv_server_free(all->server);
    serve(all);
  }
  for (int i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
  print_message("%ld added, %ld sampled\n", atomic_load(&all->added), atomic_load(&all->sampled));
  assert_true(atomic_load(&all->added) > 0 && atomic_load(&all->sampled) > 0);
  rv_server_free(all->server);
  uint64_t before[2], after[2];
  size_t size = sum_of(all->store, 0, &before[0]) + sum_of(all->store, 1, &before[1]);
  rv_journal_unref(all->journal);
  rv_store_unref(all->store);
  recover(all);
  assert_int_equal(sum_of(all->store, 0, &after[0]) + sum_of(all->store, 1, &after[1]), size);
  assert_true(before[0] == after[0] && before[1] == after[1]);
  rv_journal_unref(all->journal);
  rv_store_unref(all->store);
  rv_checkpointer_unref(all->checkpointer);
  rv_io_unref(all->io);
  snprintf(command, sizeof command, "rm -rf %s", all->dir);
  assert_int_equal(system(command), 0);
  free(all);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(everything_goes_on_at_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
