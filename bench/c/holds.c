/* The longest that a table's lock is held by single odd calls, in a build that measures locks (build/locks):
 *
 *   bench-holds [NAME]...
 *
 * Prints for each case {"case": ..., "longest_us": ..., "p99.9_us": ..., "holds": ...}: the longest hold in processor time, least of a few tries, for a try may
 * have been interrupted. Without names: all cases. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common.h"
#include "store/cold.h"
#include "store/store.h"
#include "store/trajectory.h"
#include "tensor/codec.h"

enum { COUNTERS = 64 * 16, TRIES = 3 };

/* ---- the histogram of src/base/lock_times.h ---- */

static uint64_t *counters;

static void open_counters(void)
{
  char path[] = "/tmp/bench-holds-XXXXXX";
  int fd = mkstemp(path);
  const size_t size = 2 * COUNTERS * sizeof *counters;
  if (fd < 0 || ftruncate(fd, (off_t)size) != 0) bench_die("no file to count in");
  counters = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (counters == MAP_FAILED) bench_die("no memory to count in");
  setenv("RV_MEASURE_LOCKS_FILE", path, 1);
  rv_store *store;
  rv_error err;
  rv_table_config config = rv_table_config_default("t", 1);
  rv_store_config whole = {.size = sizeof whole, .tables = &config, .num_tables = 1};
  bench_check(rv_store_new(&whole, &store, &err), &err);
  rv_table_can_insert(rv_store_table(store, 0), 1); /* so that it is opened before it goes */
  rv_store_unref(store);
  unlink(path);
  for (size_t i = 0; i < COUNTERS && counters[i] == 0; i++)
    if (i + 1 == COUNTERS) bench_die("this build does not measure locks; build with the preset \"locks\"");
}

static double microseconds(size_t counter)
{
  size_t row = counter / 16, part = counter % 16;
  return (row == 0 ? (double)part : (double)((16 + part) << (row - 1))) / 1000;
}

typedef struct measured {
  double longest_us, usual_us; /* p99.9 */
  uint64_t holds;
} measured;

static measured read_counters(void)
{
  measured found = {0};
  uint64_t below = 0;
  for (size_t i = 0; i < COUNTERS; i++) {
    if (counters[i] == 0) continue;
    found.longest_us = microseconds(i);
    found.holds += counters[i];
  }
  for (size_t i = 0; i < COUNTERS && below * 1000 < found.holds * 999; i++) {
    below += counters[i];
    found.usual_us = microseconds(i);
  }
  return found;
}

static void clear_counters(void)
{
  memset(counters, 0, 2 * COUNTERS * sizeof *counters);
}

/* ---- what the cases share ---- */

static rv_store *store_of(const rv_table_config *config, size_t memory_limit)
{
  rv_error err;
  rv_store *store;
  rv_store_config whole = {.size = sizeof whole, .tables = config, .num_tables = 1, .memory_limit = memory_limit};
  bench_check(rv_store_new(&whole, &store, &err), &err);
  return store;
}

/* n rows of an int64 column, as they came over the wire. */
static rv_chunk *encoded(int64_t first, size_t n)
{
  rv_error err;
  rv_chunk *chunk;
  rv_pieces pieces;
  int64_t shape = (int64_t)n, *numbers = bench_alloc(n * sizeof *numbers);
  for (size_t i = 0; i < n; i++) numbers[i] = first + (int64_t)i;
  rv_pieces_init(&pieces);
  bench_check(rv_encode(&pieces, RV_INT64, 0, NULL, numbers, sizeof *numbers, n, false, false, &err), &err);
  rv_buf *buf = rv_buf_new(pieces.bytes);
  for (size_t i = 0; i < pieces.count; buf->size += pieces.piece[i++].size)
    memcpy(buf->data + buf->size, pieces.piece[i].data, pieces.piece[i].size);
  rv_encoded tensor = {.dtype = RV_INT64, .rank = 1, .shape = &shape, .content = buf->data, .content_size = buf->size};
  rv_chunk_meta meta = {.key = (uint64_t)first, .episode_id = 1, .last_step = (int32_t)n - 1};
  bench_check(rv_chunk_new_encoded(&meta, &tensor, 1, buf, buf->data, buf->size, &chunk, &err), &err);
  rv_pieces_fini(&pieces);
  rv_buf_unref(buf);
  free(numbers);
  return chunk;
}

/* One column of so many slices of one row, over the chunks in turns. */
static rv_trajectory *trajectory(rv_store *store, rv_chunk *const *chunks, size_t num_chunks, size_t num_slices)
{
  rv_error err;
  rv_trajectory *made;
  rv_slice *slices = bench_alloc(num_slices * sizeof *slices);
  for (size_t i = 0; i < num_slices; i++) slices[i] = (rv_slice){.chunk = chunks[i % num_chunks], .length = 1};
  uint32_t n = (uint32_t)num_slices;
  bool squeeze = false;
  rv_trajectory_desc desc = {.slices = slices, .num_slices = &n, .squeeze = &squeeze, .num_columns = 1};
  bench_check(rv_trajectory_new(rv_store_layouts(store), &desc, &made, &err), &err);
  free(slices);
  return made;
}

static void insert(rv_table *table, rv_trajectory *owned, double priority, uint64_t *key)
{
  rv_insert one = {.waiter.deadline_ns = INT64_MAX, .choose_key = true, .priority = priority, .trajectory = owned};
  if (rv_table_insert(table, &one) != RV_SUBMIT_DONE) bench_die("an insert waits");
  bench_check(one.waiter.code, &one.waiter.error);
  if (key != NULL) *key = one.key;
  rv_trajectory_unref(owned);
}

/* ---- the cases: each makes what it needs, clears the counters, calls, and returns what they then show ---- */

typedef struct whole_item {
  rv_store *store;
  rv_table *table;
  rv_trajectory *item;
} whole_item;

static whole_item begin_item(const rv_table_config *config, size_t num_chunks, size_t num_slices)
{
  whole_item made = {.store = store_of(config, 0)};
  made.table = rv_store_table(made.store, 0);
  rv_chunk **chunks = bench_alloc(num_chunks * sizeof *chunks);
  for (size_t i = 0; i < num_chunks; i++) chunks[i] = encoded((int64_t)i, 1);
  made.item = trajectory(made.store, chunks, num_chunks, num_slices);
  for (size_t i = 0; i < num_chunks; i++) rv_chunk_unref(chunks[i]);
  free(chunks);
  return made;
}

static measured insert_item(size_t num_chunks, size_t num_slices)
{
  rv_table_config config = rv_table_config_default("t", 100);
  whole_item made = begin_item(&config, num_chunks, num_slices);
  clear_counters();
  insert(made.table, made.item, 1, NULL);
  measured found = read_counters();
  rv_store_unref(made.store);
  return found;
}

static measured insert_chunks(void)
{
  return insert_item(100000, 100000);
}

static measured insert_slices(void)
{
  return insert_item(1, 10000000);
}

static measured evict_chunks(void)
{
  rv_table_config config = rv_table_config_default("t", 1);
  whole_item made = begin_item(&config, 100000, 100000);
  insert(made.table, made.item, 1, NULL);
  rv_chunk *small = encoded(-1, 1);
  rv_trajectory *next = trajectory(made.store, &small, 1, 1);
  rv_chunk_unref(small);
  clear_counters();
  insert(made.table, next, 1, NULL);
  measured found = read_counters();
  rv_store_unref(made.store);
  return found;
}

static measured sample_chunks(void)
{
  rv_table_config config = rv_table_config_default("t", 100);
  whole_item made = begin_item(&config, 100000, 100000);
  insert(made.table, made.item, 1, NULL);
  rv_draw draws[2];
  rv_sampling sampling = {.waiter.deadline_ns = INT64_MAX, .want = 2, .partial = true, .draws = draws, .max_bytes = 1 << 20};
  clear_counters();
  rv_table_sample(made.table, &sampling);
  measured found = read_counters();
  for (size_t i = 0; i < sampling.count; i++) rv_draw_release(&draws[i]);
  rv_store_unref(made.store);
  return found;
}

static void never(rv_waiter *waiter)
{
  (void)waiter;
}

/* Rows of 64 MiB wait and are taken back. */
static measured cancel_rows(void)
{
  enum { ROWS = 1024, ROW = 1 << 16 };
  rv_table_config config = rv_table_config_default("t", 100000);
  config.rate_limiter = rv_rate_limiter_queue(1);
  config.max_times_sampled = 1;
  rv_store *store = store_of(&config, 0);
  rv_table *table = rv_store_table(store, 0);
  rv_chunk *small = encoded(-1, 1);
  insert(table, trajectory(store, &small, 1, 1), 1, NULL);
  rv_chunk_unref(small);
  int64_t shape[2] = {ROWS, ROW};
  rv_tensor column = {.dtype = RV_UINT8, .rank = 2, .shape = shape, .data = bench_alloc((size_t)ROWS * ROW)};
  rv_rows rows = {.columns = &column, .num_columns = 1, .n = ROWS, .waiter = {.complete = never, .deadline_ns = INT64_MAX}};
  if (rv_table_insert_rows(table, &rows) != RV_SUBMIT_PENDING) bench_die("the rows do not wait");
  clear_counters();
  if (!rv_waiter_cancel(&rows.waiter)) bench_die("the rows were in");
  measured found = read_counters();
  free((void *)(uintptr_t)column.data);
  rv_store_unref(store);
  return found;
}

/* 2,048 updates, each of which raises the items of 100 steps on either side. */
static measured diffuse(void)
{
  enum { ITEMS = 4096, UPDATES = 2048 };
  rv_extension_config extension = {.name = "diffusion", .options = "steps=100,decay=1"};
  rv_table_config config = rv_table_config_default("t", ITEMS);
  config.sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
  config.extensions = &extension;
  config.num_extensions = 1;
  rv_store *store = store_of(&config, 0);
  rv_table *table = rv_store_table(store, 0);
  static uint64_t keys[ITEMS];
  static double priorities[UPDATES];
  rv_error err;
  rv_chunk *chunk = encoded(0, ITEMS / 16);
  for (size_t i = 0; i < ITEMS; i++) {
    rv_trajectory *item;
    rv_slice slice = {.chunk = chunk, .offset = (int32_t)(i / 16), .length = 1};
    uint32_t n = 1;
    bool squeeze = true;
    rv_trajectory_desc desc = {.slices = &slice, .num_slices = &n, .squeeze = &squeeze, .num_columns = 1};
    bench_check(rv_trajectory_new(rv_store_layouts(store), &desc, &item, &err), &err);
    insert(table, item, 1, &keys[i]);
  }
  rv_chunk_unref(chunk);
  for (size_t i = 0; i < UPDATES; i++) priorities[i] = 2 + (double)i;
  size_t unknown;
  clear_counters();
  bench_check(rv_table_update_priorities(table, keys, priorities, UPDATES, NULL, &unknown, &err), &err);
  measured found = read_counters();
  rv_store_unref(store);
  return found;
}

static rv_table_config narrow(void)
{
  rv_table_config config = rv_table_config_default("t", 12);
  config.max_times_sampled = 1000000;
  config.sampler.kind = RV_SELECTOR_UNIFORM;
  config.rate_limiter = (rv_rate_limiter_config){
      .samples_per_insert = 3.0001220703125, .min_size_to_sample = 1, .min_diff = -1000, .max_diff = 1000};
  return config;
}

static measured set_limiter(void)
{
  rv_table_config config = narrow();
  rv_store *store = store_of(&config, 0);
  rv_error err;
  rv_rate_limiter_config limiter = config.rate_limiter;
  limiter.min_diff = -1;
  limiter.max_diff = 4;
  clear_counters();
  rv_code code = rv_table_set_rate_limiter(rv_store_table(store, 0), &limiter, &err); /* that it is refused may be */
  (void)code;
  measured found = read_counters();
  rv_store_unref(store);
  return found;
}

static measured set_bounds(void)
{
  rv_table_config config = narrow();
  config.rate_limiter.min_diff = -1;
  config.rate_limiter.max_diff = 2;
  rv_error err;
  rv_store_config whole = {.size = sizeof whole, .tables = &config, .num_tables = 1};
  rv_store *store = NULL;
  while (rv_store_new(&whole, &store, &err) != RV_OK) config.rate_limiter.max_diff += 0.1; /* the narrowest that is let pass */
  rv_bounds_change change = {.bounds = rv_table_bounds_unchanged()};
  change.bounds.max_times_sampled = 999999;
  clear_counters();
  rv_code code = rv_table_change_bounds(rv_store_table(store, 0), &change, &err);
  (void)code;
  measured found = read_counters();
  rv_store_unref(store);
  return found;
}

/* 64 chunks with 512 loose items each, the last of which is being read. */
static measured take_cold(void)
{
  enum { CHUNKS = 128, ITEMS = 500 };
  rv_table_config config = rv_table_config_default("t", CHUNKS * ITEMS);
  rv_store *store = store_of(&config, (size_t)1 << 30);
  rv_table *table = rv_store_table(store, 0);
  rv_table_keep_cold(table);
  rv_trajectory *read[CHUNKS / 2];
  for (size_t i = 0; i < CHUNKS / 2; i++) {
    rv_chunk *chunks[2] = {encoded((int64_t)(2 * i * 1000), 128), encoded((int64_t)((2 * i + 1) * 1000), 128)};
    for (size_t k = 0; k < ITEMS; k++) {
      rv_trajectory *item = trajectory(store, chunks, 2, 2);
      if (k + 1 == ITEMS) read[i] = rv_trajectory_ref(item);
      insert(table, item, 1, NULL);
    }
    for (size_t k = 0; k < 2; k++) rv_chunk_unref(chunks[k]);
  }
  rv_cold cold[64];
  clear_counters();
  size_t n = rv_table_take_cold(table, cold, 64, 1 << 20);
  measured found = read_counters();
  rv_table_move_cold(table, cold, n);
  for (size_t i = 0; i < CHUNKS / 2; i++) rv_trajectory_unref(read[i]);
  rv_store_unref(store);
  return found;
}

/* 2^20 rows of 44 bytes, so many at a time, come to a table that has had none. */
static measured fill(rv_selector_config sampler, int64_t at_once)
{
  enum { ROWS = 1 << 20, ROW = 11, MOST = 128 };
  rv_table_config config = rv_table_config_default("t", ROWS);
  config.sampler = sampler;
  rv_store *store = store_of(&config, 0);
  rv_table *table = rv_store_table(store, 0);
  static float values[MOST * ROW];
  int64_t shape[2] = {at_once, ROW};
  rv_tensor column = {.dtype = RV_FLOAT32, .rank = 2, .shape = shape, .data = values};
  clear_counters();
  for (int64_t i = 0; i < ROWS; i += at_once) {
    rv_rows rows = {.columns = &column, .num_columns = 1, .n = (size_t)at_once, .waiter = {.deadline_ns = INT64_MAX}};
    if (rv_table_insert_rows(table, &rows) != RV_SUBMIT_DONE) bench_die("the rows wait");
    bench_check(rows.waiter.code, &rows.waiter.error);
  }
  measured found = read_counters();
  rv_store_unref(store);
  return found;
}

static measured fill_uniform(void)
{
  return fill((rv_selector_config){.kind = RV_SELECTOR_UNIFORM}, 128);
}

static measured fill_prioritized(void)
{
  return fill((rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 0.6}, 128);
}

static measured fill_one_by_one(void)
{
  return fill((rv_selector_config){.kind = RV_SELECTOR_UNIFORM}, 1);
}

static const struct {
  const char *name;
  measured (*measure)(void);
} cases[] = {
    {"insert 100,000 chunks", insert_chunks},
    {"insert 10,000,000 slices", insert_slices},
    {"evict 100,000 chunks", evict_chunks},
    {"sample 100,000 chunks", sample_chunks},
    {"cancel 64 MiB of rows", cancel_rows},
    {"diffuse 2,048 updates", diffuse},
    {"set_rate_limiter", set_limiter},
    {"change_bounds", set_bounds},
    {"take_cold", take_cold},
    {"fill, 128 rows at a time", fill_uniform},
    {"fill, prioritized", fill_prioritized},
    {"fill, row by row", fill_one_by_one},
};

static bool is_asked(int argc, char **argv, const char *name)
{
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], name) == 0) return true;
  return argc == 1;
}

int main(int argc, char **argv)
{
  bench_die_with_parent();
  open_counters();
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    if (!is_asked(argc, argv, cases[i].name)) continue;
    measured least = cases[i].measure();
    for (int tried = 1; tried < TRIES; tried++) {
      measured again = cases[i].measure();
      if (again.longest_us < least.longest_us) least = again;
    }
    printf("{\"case\": \"%s\", \"longest_us\": %.1f, \"p99.9_us\": %.1f, \"holds\": %llu}\n", cases[i].name, least.longest_us,
           least.usual_us, (unsigned long long)least.holds);
    fflush(stdout);
  }
}
