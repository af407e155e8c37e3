/* A spill whose disk does not give back what it took: its file is cut short, so that nothing of what lay there can be read. Whoever
 * reads such rows gets an error, in every way there is to read them; the process, other rows and other tables go on. */
#include <dirent.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "client_fixture.h"
#include "reverie/checkpoint.h"
#include "reverie/spill.h"
#include "reverie/writer.h"
#include "store/cold.h"
#include "store/trajectory.h"

enum { MIB = 1 << 20, LIMIT = 4 * MIB, ROW = 4096, ROWS = 3 * LIMIT / ROW, AT_ONCE = 32, LENGTH = 4 };

typedef struct place {
  fixture at; /* its store, server and client are of this file's making */
  rv_spill *spill;
  rv_checkpointer *checkpointer;
  char disk[64], root[64];
  atomic_int compactions_told;
} place;

static void note_line(void *context, rv_log_level level, const char *line)
{
  place *p = context;
  (void)level;
  if (strstr(line, "a chunk that is mostly dead") != NULL) atomic_fetch_add(&p->compactions_told, 1);
}

static void make_disk(place *p)
{
  snprintf(p->disk, sizeof p->disk, "/tmp/rv-lost-XXXXXX");
  assert_non_null(mkdtemp(p->disk));
  snprintf(p->root, sizeof p->root, "/tmp/rv-lost-XXXXXX");
  assert_non_null(mkdtemp(p->root));
}

/* The file has no name, but a number. */
static int file_in(const char *directory)
{
  char link[300], path[300];
  DIR *all = opendir("/proc/self/fd");
  assert_non_null(all);
  int file = -1;
  for (const struct dirent *entry; file < 0 && (entry = readdir(all)) != NULL;) {
    snprintf(link, sizeof link, "/proc/self/fd/%s", entry->d_name);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size > 0 && strncmp(path, directory, strlen(directory)) == 0) file = atoi(entry->d_name);
  }
  closedir(all);
  assert_true(file >= 0);
  return file;
}

static rv_memory_info memory_of(const place *p)
{
  rv_memory_info info;
  rv_store_memory_info(p->at.store, &info);
  return info;
}

/* From here on nothing that lay there can be read. Nothing more is written there, behind the end: what is before it would read as zeros. */
static void lose(place *p)
{
  while (memory_of(p).used_bytes > LIMIT / 8 * 7) sched_yield();
  rv_spill_free(p->spill);
  p->spill = NULL;
  assert_int_equal(ftruncate(file_in(p->disk), 0), 0);
}

static rv_client *client_of(place *p, bool shared_memory)
{
  rv_error err;
  rv_client_config config = {.size = sizeof config, .no_shared_memory = !shared_memory};
  if (p->at.way == IN_PROCESS)
    config.store = p->at.store;
  else
    config.address = p->at.address;
  rv_client *client;
  assert_ok(rv_client_new(&config, &client, &err));
  return client;
}

/* Small rows: they never go to the file. */
static void add_small(place *p, const char *table, uint64_t *key)
{
  rv_error err;
  static const uint8_t row[16] = {5};
  const int64_t shape = sizeof row;
  const rv_tensor column = {.dtype = RV_UINT8, .rank = 1, .shape = &shape, .data = row};
  assert_ok(rv_client_add(p->at.client, table, &column, 1, 1.0, key, &long_enough, &err));
}

static void begin(place *p, transport way, bool shared_memory)
{
  rv_error err;
  *p = (place){.at = {.way = way}};
  make_disk(p);
  rv_env env = {.size = sizeof env, .log = note_line, .context = p};
  rv_table_config tables[] = {rv_table_config_default("t", 1000000), rv_table_config_default("other", 1000)};
  rv_store_config store = {.size = sizeof store, .tables = tables, .num_tables = 2, .memory_limit = LIMIT, .env = &env};
  assert_ok(rv_store_new(&store, &p->at.store, &err));
  const rv_spill_config spill = {.size = sizeof spill, .path = p->disk};
  assert_ok(rv_spill_new(&spill, p->at.store, &p->spill, &err));
  rv_checkpointer_config saving = {.size = sizeof saving, .path = p->root, .env = &env};
  assert_ok(rv_checkpointer_new(&saving, &p->checkpointer, &err));
  if (way != IN_PROCESS) {
    snprintf(p->at.address, sizeof p->at.address, "127.0.0.1:0");
    start_server(&p->at);
    snprintf(p->at.address, sizeof p->at.address, "127.0.0.1:%u", (unsigned)p->at.port);
  }
  p->at.client = client_of(p, shared_memory);
  add_small(p, "other", NULL);
}

static void end(place *p)
{
  char command[160];
  rv_client_free(p->at.client);
  if (p->at.server != NULL) stop_server(&p->at);
  rv_spill_free(p->spill);
  rv_store_unref(p->at.store);
  rv_checkpointer_unref(p->checkpointer);
  snprintf(command, sizeof command, "rm -rf %s %s", p->disk, p->root);
  assert_int_equal(system(command), 0);
}

/* Rows without a trajectory, into segments of the store's. */
static void add_rows(place *p, int n)
{
  rv_error err;
  static uint8_t rows[AT_ONCE * ROW];
  const int64_t shape[] = {AT_ONCE, ROW};
  const rv_tensor column = {.dtype = RV_UINT8, .rank = 2, .shape = shape, .data = rows};
  for (int i = 0; i < n; i += AT_ONCE) {
    size_t added;
    for (size_t k = 0; k < sizeof rows; k++) rows[k] = (uint8_t)rand(); /* else they would be compressed to nothing */
    assert_ok(rv_client_add_batch(p->at.client, "t", &column, 1, AT_ONCE, NULL, NULL, &added, &long_enough, &err));
    assert_int_equal(added, AT_ONCE);
  }
}

static rv_code read_sample(rv_sample *owned_sample, rv_error *err)
{
  static uint8_t row[LENGTH * ROW];
  rv_sample_column column;
  rv_code code = rv_sample_get_column(owned_sample, 0, &column, err);
  if (code == RV_OK) code = rv_sample_copy(owned_sample, 0, row, column.bytes, err);
  if (code == RV_OK && rv_sample_view(owned_sample, 0) != NULL) memcpy(row, rv_sample_view(owned_sample, 0), column.bytes);
  rv_sample_unref(owned_sample);
  return code;
}

static rv_code get(place *p, uint64_t key, rv_error *err)
{
  rv_sample *sample;
  rv_code code = rv_client_get(p->at.client, "t", key, &long_enough, &sample, err);
  return code == RV_OK ? read_sample(sample, err) : code;
}

/* A batch of many, most of which lie in the file. */
static rv_code sample_batch(place *p, rv_error *err)
{
  enum { N = 256 };
  rv_batch *batch;
  rv_code code = rv_client_sample_batch(p->at.client, "t", N, RV_UNEQUAL_ERROR, &long_enough, &batch, err);
  if (code != RV_OK) return code;
  if (rv_batch_size(batch) < N) { /* what failed on the way is told by the next */
    rv_batch_free(batch);
    return sample_batch(p, err);
  }
  rv_sample_column column;
  code = rv_batch_column(batch, 0, &column, err);
  void *out = malloc(column.bytes);
  if (code == RV_OK) code = rv_batch_gather(batch, 0, out, column.bytes, err);
  if (code == RV_DATA_LOSS) { /* the other way to gather says the same */
    rv_error same;
    assert_int_equal(rv_batch_gather_all(batch, &out, &column.bytes, 1, &same), RV_DATA_LOSS);
  }
  free(out);
  rv_batch_free(batch);
  return code;
}

static rv_code iterate(place *p, rv_error *err)
{
  enum { N = 256 };
  const rv_sampler_config config = {.size = sizeof config,
                                    .table = "t",
                                    .max_samples = RV_UNLIMITED,
                                    .max_in_flight_samples = 16,
                                    .rate_limiter_timeout_ms = RV_FOREVER};
  rv_sampler *sampler;
  rv_code code = rv_sampler_new(p->at.client, &config, &sampler, err);
  assert_int_equal(code, RV_OK);
  for (int i = 0; i < N && code == RV_OK; i++) {
    rv_sample *sample;
    code = rv_sampler_next(sampler, &long_enough, &sample, err);
    if (code == RV_OK) code = read_sample(sample, err);
  }
  rv_sampler_free(sampler);
  return code;
}

static void expect_told(place *p, rv_code code, const rv_error *given)
{
  const rv_error err = *given;
  if (code != RV_DATA_LOSS) fail_msg("%s: %s", rv_code_name(code), err.message);
  assert_says(p->disk);
  assert_says("item ");
  if (p->at.way != IN_PROCESS) assert_says("table \"t\": ");
  assert_says("delete the item");
}

static void expect_other_table(place *p)
{
  rv_error err;
  rv_batch *batch;
  assert_ok(rv_client_sample_batch(p->at.client, "other", 4, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
  rv_batch_free(batch);
}

/* The other table is as it was, and this one takes items, and gives them. */
static void expect_others(place *p)
{
  rv_error err;
  uint64_t key;
  expect_other_table(p);
  add_small(p, "t", &key);
  assert_ok(get(p, key, &err));
}

/* The key of an item that lies in the file. */
static uint64_t find_spilled(place *p)
{
  rv_error err;
  rv_item_info items[ROWS];
  uint64_t cursor = 0;
  size_t count;
  assert_ok(rv_client_items(p->at.client, "t", &cursor, items, ROWS, &count, &long_enough, &err));
  for (size_t i = 0; i < count; i++) {
    rv_draw draw;
    assert_ok(rv_table_get(rv_store_table(p->at.store, 0), items[i].key, &draw, &err));
    bool found = rv_chunk_is_spilled(rv_draw_slice(&draw, 0).chunk);
    rv_draw_release(&draw);
    if (found) return items[i].key;
  }
  fail_msg("nothing lies in the file");
  return 0;
}

static void expect_all_told(place *p)
{
  rv_error err;
  assert_true(memory_of(p).spilled_bytes > LIMIT / 2);
  uint64_t key = find_spilled(p);
  assert_ok(get(p, key, &err));
  assert_ok(sample_batch(p, &err));
  assert_ok(iterate(p, &err));
  lose(p);
  expect_told(p, get(p, key, &err), &err);
  expect_told(p, sample_batch(p, &err), &err);
  expect_told(p, iterate(p, &err), &err);
  expect_others(p);
  /* what is lost can be deleted */
  size_t unknown;
  assert_ok(rv_client_mutate(p->at.client, "t", NULL, 0, &key, 1, NULL, &unknown, &long_enough, &err));
  assert_code(get(p, key, &err), RV_NOT_FOUND);
}

#define WAYS(name)                                                                                                               \
  static void name##_in_process(void **state)                                                                                    \
  {                                                                                                                              \
    (void)state;                                                                                                                 \
    name(IN_PROCESS, false);                                                                                                     \
  }                                                                                                                              \
  static void name##_over_loopback(void **state)                                                                                 \
  {                                                                                                                              \
    (void)state;                                                                                                                 \
    name(LOOPBACK, false);                                                                                                       \
  }                                                                                                                              \
  static void name##_over_shared_memory(void **state)                                                                            \
  {                                                                                                                              \
    (void)state;                                                                                                                 \
    name(LOOPBACK, true);                                                                                                        \
  }
#define EACH(name)                                                                                                               \
  cmocka_unit_test(name##_in_process), cmocka_unit_test(name##_over_loopback), cmocka_unit_test(name##_over_shared_memory)

static void rows_that_are_lost_are_an_error_of_who_reads_them(transport way, bool shared_memory)
{
  place p;
  begin(&p, way, shared_memory);
  add_rows(&p, ROWS);
  expect_all_told(&p);
  end(&p);
}
WAYS(rows_that_are_lost_are_an_error_of_who_reads_them)

/* Items of several steps, by a writer: from elsewhere their chunks come over the wire, compressed or as they are. */
static void write_items(place *p, rv_compression compression, rv_dtype dtype)
{
  rv_error err;
  rv_writer *writer;
  const rv_writer_config config = {
      .size = sizeof config, .num_keep_alive_refs = LENGTH, .chunk_length = LENGTH, .compression = compression};
  static uint8_t row[ROW];
  const rv_bytes string = {.data = row, .size = ROW};
  const int64_t shape = ROW;
  rv_cell cell = {.value = {.dtype = dtype, .rank = dtype == RV_STRING ? 0 : 1, .shape = &shape, .data = row}};
  if (dtype == RV_STRING) cell.value.data = &string;
  assert_ok(rv_writer_new(p->at.client, &config, &writer, &err));
  for (int64_t step = 0; step < ROWS; step++) {
    for (size_t k = 0; k < ROW; k++) row[k] = compression == RV_COMPRESSION_NONE || k % 2 != 0 ? (uint8_t)step : (uint8_t)rand();
    assert_ok(rv_writer_append(writer, &cell, 1, false, &err));
    if (step % LENGTH != LENGTH - 1) continue;
    const rv_run run = {.first = step - LENGTH + 1, .stride = 1, .count = LENGTH};
    const rv_item_column column = {.runs = &run, .num_runs = 1};
    assert_ok(rv_writer_create_item(writer, "t", 1.0, &column, 1, NULL, &err));
    assert_ok(rv_writer_flush(writer, 8, &long_enough, &err));
  }
  assert_ok(rv_writer_flush(writer, 0, &long_enough, &err));
  rv_writer_free(writer);
}

static void written(transport way, bool shared_memory, rv_compression compression, rv_dtype dtype)
{
  place p;
  begin(&p, way, shared_memory);
  write_items(&p, compression, dtype);
  expect_all_told(&p);
  end(&p);
}

static void chunks_that_are_lost_are_too(transport way, bool shared_memory)
{
  written(way, shared_memory, RV_COMPRESSION_NONE, RV_UINT8);
}
WAYS(chunks_that_are_lost_are_too)

static void compressed_chunks_that_are_lost_are_too(transport way, bool shared_memory)
{
  written(way, shared_memory, RV_COMPRESSION_SNAPPY, RV_UINT8);
}
WAYS(compressed_chunks_that_are_lost_are_too)

static void strings_that_are_lost_are_too(void **state)
{
  (void)state;
  written(LOOPBACK, false, RV_COMPRESSION_AUTO, RV_STRING);
}

/* The newest checkpoint is then the one before. */
static void a_checkpoint_fails_and_the_one_before_stays(void **state)
{
  (void)state;
  for (int of = 0; of < 2; of++) {
    place p;
    rv_error err;
    char *path, *again;
    begin(&p, LOOPBACK, false);
    if (of == 0)
      add_rows(&p, ROWS);
    else
      write_items(&p, RV_COMPRESSION_SNAPPY, RV_UINT8);
    assert_ok(rv_checkpointer_save(p.checkpointer, p.at.store, NULL, &path, &err));
    lose(&p);
    assert_code(rv_checkpointer_save(p.checkpointer, p.at.store, NULL, &again, &err), RV_DATA_LOSS);
    expect_told(&p, RV_DATA_LOSS, &err);
    assert_int_equal(access(path, F_OK), 0);
    expect_others(&p);
    const rv_table_config table = rv_table_config_default("t", 1000000), other = rv_table_config_default("other", 1000);
    const rv_table_config tables[] = {table, other};
    const rv_store_config store = {.size = sizeof store, .tables = tables, .num_tables = 2};
    rv_store *restored;
    assert_ok(rv_checkpointer_restore(p.checkpointer, &store, NULL, &restored, NULL, &err));
    rv_store_unref(restored);
    free(path);
    end(&p);
  }
}

static void delete_most(place *p)
{
  enum { STAYS = 8 };
  rv_error err;
  rv_item_info items[ROWS];
  uint64_t keys[ROWS], cursor = 0;
  size_t count, unknown, n = 0;
  assert_ok(rv_client_items(p->at.client, "t", &cursor, items, ROWS, &count, &long_enough, &err));
  for (size_t i = 0; i < count; i++)
    if (i % STAYS != 0) keys[n++] = items[i].key;
  assert_ok(rv_client_mutate(p->at.client, "t", NULL, 0, keys, n, NULL, &unknown, &long_enough, &err));
}

/* Chunks that are mostly dead stay where they are; what is alive in memory goes on. */
static void compaction_leaves_what_is_lost_and_says_so_once(void **state)
{
  (void)state;
  for (int of = 0; of < 2; of++) {
    place p;
    begin(&p, of == 0 ? IN_PROCESS : LOOPBACK, false);
    add_rows(&p, ROWS);
    lose(&p);
    delete_most(&p);
    rv_table *table = rv_store_table(p.at.store, 0);
    assert_true(rv_table_compact_spilled(table, SIZE_MAX, true) > 0);
    assert_int_equal(atomic_load(&p.compactions_told), 1);
    assert_int_equal(rv_table_compact_spilled(table, SIZE_MAX, true), 0);
    expect_other_table(&p);
    end(&p);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      EACH(rows_that_are_lost_are_an_error_of_who_reads_them),
      EACH(chunks_that_are_lost_are_too),
      EACH(compressed_chunks_that_are_lost_are_too),
      cmocka_unit_test(strings_that_are_lost_are_too),
      cmocka_unit_test(a_checkpoint_fails_and_the_one_before_stays),
      cmocka_unit_test(compaction_leaves_what_is_lost_and_says_so_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
