/* Memory under control: what is counted, and what becomes of inserts near a limit. */
#include "store/chunk_parts.h"
#include "store/table_parts.h"
#include "store/testing.h"

enum { KIB = 1 << 10, ROW = 64, PAYLOAD = 8 * KIB };

/* ---- worlds ---- */

static rv_store *limited_store(const rv_table_config *tables, size_t num_tables, size_t limit)
{
  rv_error err;
  rv_store *store = NULL;
  rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = num_tables, .memory_limit = limit};
  must(rv_store_new(&config, &store, &err), &err);
  return store;
}

static rv_table_config table_named(const char *name, rv_selector_kind remover, int64_t max_size, int64_t max_bytes)
{
  rv_table_config config = rv_table_config_default(name, max_size);
  config.remover.kind = remover;
  config.max_bytes = max_bytes;
  return config;
}

/* A chunk with n rows of ROW bytes. */
static rv_chunk *large_chunk(uint64_t key, size_t n)
{
  rv_error err;
  rv_chunk *chunk = NULL;
  const int64_t shape = ROW;
  rv_spec spec = {.name = "", .dtype = RV_UINT8, .rank = 1, .shape = &shape};
  rv_chunk_meta meta = {.key = key, .episode_id = key};
  uint8_t bytes[ROW];
  memset(bytes, (int)(key & 255), sizeof bytes);
  rv_tensor cell = {.dtype = RV_UINT8, .rank = 1, .shape = &shape, .data = bytes};
  must(rv_segment_new(&spec, 1, n, &meta, &chunk, &err), &err);
  for (size_t i = 0; i < n; i++) must(rv_segment_put(chunk, 0, (int64_t)i, &cell, &err), &err);
  rv_segment_publish(chunk, 0, (int64_t)n);
  return chunk;
}

typedef struct offer {
  rv_insert insert;
  int completed;
} offer;

static void on_complete(rv_waiter *waiter)
{
  ((offer *)waiter->context)->completed++;
}

static rv_submitted offer_rows(rv_store *store, rv_table *table, offer *o, rv_chunk *chunk, int32_t first, int32_t rows)
{
  *o = (offer){.insert = {.choose_key = true, .priority = 1, .trajectory = trajectory_of(store, chunk, first, rows)}};
  o->insert.waiter = (rv_waiter){.complete = on_complete, .context = o, .deadline_ns = INT64_MAX};
  return rv_table_insert(table, &o->insert);
}

/* An item with a chunk of its own, of PAYLOAD bytes. */
static rv_submitted offer_payload(rv_store *store, rv_table *table, offer *o)
{
  static uint64_t key;
  rv_chunk *chunk = large_chunk(++key, PAYLOAD / ROW);
  rv_submitted submitted = offer_rows(store, table, o, chunk, 0, PAYLOAD / ROW);
  rv_chunk_unref(chunk);
  return submitted;
}

/* As its submitter: what refers to the item is the table alone. */
static void end_offer(offer *o)
{
  rv_trajectory_unref(o->insert.trajectory);
}

static rv_code delete_one(rv_table *table, uint64_t key)
{
  rv_error err;
  size_t unknown;
  return rv_table_mutate(table, NULL, 0, &key, 1, NULL, &unknown, &err);
}

/* Inserts until one waits; how many are in. */
static size_t fill(rv_store *store, rv_table *table, uint64_t *keys, size_t most, offer *waiting)
{
  for (size_t n = 0; n < most; n++) {
    if (offer_payload(store, table, waiting) == RV_SUBMIT_PENDING) return n;
    assert_int_equal(waiting->insert.waiter.code, RV_OK);
    keys[n] = waiting->insert.key;
    end_offer(waiting);
  }
  fail_msg("%zu items of %d bytes are in, and none waits", most, PAYLOAD);
  return 0;
}

static size_t used(rv_store *store)
{
  rv_memory_info info;
  rv_store_memory_info(store, &info);
  return (size_t)info.used_bytes;
}

/* ---- the store's limit ---- */

static void near_the_limit_inserts_wait_and_say_why(void **state)
{
  (void)state;
  enum { LIMIT = 1024 * KIB, MOST = LIMIT / PAYLOAD };
  rv_table_config config = table_named("replay", RV_SELECTOR_FIFO, 1000000, 0);
  rv_store *store = limited_store(&config, 1, LIMIT);
  rv_table *table = rv_store_table(store, 0);
  uint64_t keys[MOST];
  offer waiting;
  size_t n = fill(store, table, keys, MOST, &waiting);
  assert_true(n > MOST / 4);
  assert_true(used(store) <= LIMIT);
  char why[256];
  assert_int_equal(rv_waiter_explain(&waiting.insert.waiter, why, sizeof why), RV_WAIT_MEMORY);
  if (strstr(why, "table \"replay\": inserting waits for memory (0.") != why || strstr(why, " of 1.0 MiB used)") == NULL)
    fail_msg("%s", why);
  rv_table_info info = info_of(table);
  assert_int_equal(info.num_waiting, 1);
  assert_int_equal(info.waiting[0].reason, RV_WAIT_MEMORY);
  rv_table_info_fini(&info);
  assert_int_equal(delete_one(table, keys[0]), RV_OK);
  assert_int_equal(delete_one(table, keys[1]), RV_OK);
  assert_int_equal(waiting.completed, 1);
  assert_int_equal(waiting.insert.waiter.code, RV_OK);
  end_offer(&waiting);
  rv_store_unref(store);
}

static void those_who_wait_for_memory_go_on_in_the_order_they_came(void **state)
{
  (void)state;
  enum { LIMIT = 1024 * KIB, MOST = LIMIT / PAYLOAD, WAITING = 5 };
  rv_table_config config = table_named("replay", RV_SELECTOR_FIFO, 1000000, 0);
  rv_store *store = limited_store(&config, 1, LIMIT);
  rv_table *table = rv_store_table(store, 0);
  uint64_t keys[MOST];
  offer offers[WAITING];
  size_t n = fill(store, table, keys, MOST, &offers[0]);
  for (int i = 1; i < WAITING; i++) assert_int_equal(offer_payload(store, table, &offers[i]), RV_SUBMIT_PENDING);
  assert_true(rv_waiter_cancel(&offers[2].insert.waiter));
  for (size_t i = 0, in = 0; i < n && in < WAITING; i++) {
    assert_int_equal(delete_one(table, keys[i]), RV_OK);
    for (in = 0; in < WAITING && (in == 2 || offers[in].completed == 1); in++) continue;
    for (size_t k = in; k < WAITING; k++) assert_int_equal(offers[k].completed, 0);
  }
  for (int i = 0; i < WAITING; i++) {
    assert_int_equal(offers[i].completed, i == 2 ? 0 : 1);
    end_offer(&offers[i]);
  }
  rv_store_unref(store);
}

static void what_one_table_lets_go_another_takes(void **state)
{
  (void)state;
  enum { LIMIT = 1024 * KIB, MOST = LIMIT / PAYLOAD };
  rv_table_config configs[2] = {table_named("a", RV_SELECTOR_FIFO, 1000000, 0), table_named("b", RV_SELECTOR_FIFO, 1000000, 0)};
  rv_store *store = limited_store(configs, 2, LIMIT);
  rv_table *a = rv_store_table(store, 0), *b = rv_store_table(store, 1);
  uint64_t keys[MOST];
  offer of_a, of_b;
  fill(store, a, keys, MOST, &of_a);
  assert_int_equal(offer_payload(store, b, &of_b), RV_SUBMIT_PENDING);
  rv_error err;
  must(rv_table_reset(a, &err), &err);
  assert_int_equal(of_a.completed, 1);
  assert_int_equal(of_b.completed, 1);
  end_offer(&of_a);
  end_offer(&of_b);
  rv_store_unref(store);
}

static void a_sample_that_is_let_go_elsewhere_makes_room(void **state)
{
  (void)state;
  enum { LIMIT = 1024 * KIB, MOST = LIMIT / PAYLOAD };
  rv_table_config config = table_named("replay", RV_SELECTOR_FIFO, 1000000, 0);
  config.sampler.kind = RV_SELECTOR_FIFO;
  config.max_times_sampled = 1;
  rv_store *store = limited_store(&config, 1, LIMIT);
  rv_table *table = rv_store_table(store, 0);
  uint64_t keys[MOST];
  offer waiting;
  fill(store, table, keys, MOST, &waiting);
  rv_draw draws[2];
  rv_sampling ask = {.want = 2, .draws = draws};
  ask.waiter.deadline_ns = INT64_MAX;
  assert_int_equal(rv_table_sample(table, &ask), RV_SUBMIT_DONE);
  assert_int_equal(ask.count, 2);
  assert_int_equal(waiting.completed, 0); /* the caller has their rows still */
  rv_draws_release(draws, 2);
  rv_memory_serve(rv_store_memory(store)); /* as those do who wait, now and then */
  assert_int_equal(waiting.completed, 1);
  end_offer(&waiting);
  rv_store_unref(store);
}

static void a_full_table_goes_on_at_the_limit_of_those_that_grow(void **state)
{
  (void)state;
  enum { LIMIT = 1024 * KIB, MOST = LIMIT / PAYLOAD, RING = 10 };
  rv_table_config configs[2] = {table_named("ring", RV_SELECTOR_FIFO, RING, 0),
                                table_named("grows", RV_SELECTOR_FIFO, 1000000, 0)};
  rv_store *store = limited_store(configs, 2, LIMIT);
  offer o, waiting;
  for (int i = 0; i < RING; i++, end_offer(&o))
    assert_int_equal(offer_payload(store, rv_store_table(store, 0), &o), RV_SUBMIT_DONE);
  uint64_t keys[MOST];
  fill(store, rv_store_table(store, 1), keys, MOST, &waiting);
  for (int i = 0; i < 5 * RING; i++, end_offer(&o)) {
    assert_int_equal(offer_payload(store, rv_store_table(store, 0), &o), RV_SUBMIT_DONE);
    assert_int_equal(o.insert.waiter.code, RV_OK);
  }
  assert_int_equal(waiting.completed, 0);
  assert_true(rv_waiter_cancel(&waiting.insert.waiter));
  end_offer(&waiting);
  rv_store_unref(store);
}

static void what_streams_bring_never_stops_tables_that_hold_little(void **state)
{
  (void)state;
  enum { LIMIT = 1024 * KIB };
  rv_table_config config = table_named("replay", RV_SELECTOR_FIFO, 1000000, 0);
  rv_store *store = limited_store(&config, 1, LIMIT);
  rv_memory *memory = rv_store_memory(store);
  rv_memory_add(memory, 2 * LIMIT);
  rv_memory_begin_way(memory, 2 * LIMIT);
  offer o;
  for (int i = 0; i < 20; i++, end_offer(&o))
    assert_int_equal(offer_payload(store, rv_store_table(store, 0), &o), RV_SUBMIT_DONE);
  rv_memory_end_way(memory, 2 * LIMIT);
  assert_int_equal(offer_payload(store, rv_store_table(store, 0), &o), RV_SUBMIT_PENDING);
  rv_memory_take_away(memory, 2 * LIMIT);
  rv_memory_serve(memory);
  assert_int_equal(o.completed, 1);
  end_offer(&o);
  rv_store_unref(store);
}

/* ---- limits that change ---- */

static void a_higher_limit_lets_those_go_on_who_wait(void **state)
{
  (void)state;
  enum { LIMIT = 1024 * KIB, MOST = LIMIT / PAYLOAD };
  for (size_t higher = 0; higher <= 2 * LIMIT; higher += 2 * LIMIT) { /* 0: none */
    rv_table_config configs[2] = {table_named("a", RV_SELECTOR_FIFO, 1000000, 0), table_named("b", RV_SELECTOR_FIFO, 1000000, 0)};
    rv_store *store = limited_store(configs, 2, LIMIT);
    uint64_t keys[MOST];
    offer of_a, of_b;
    fill(store, rv_store_table(store, 0), keys, MOST, &of_a);
    assert_int_equal(offer_payload(store, rv_store_table(store, 1), &of_b), RV_SUBMIT_PENDING);
    rv_memory_set_limit(rv_store_memory(store), higher);
    assert_int_equal(of_a.completed, 1);
    assert_int_equal(of_b.completed, 1);
    end_offer(&of_a);
    end_offer(&of_b);
    rv_memory_info info;
    rv_store_memory_info(store, &info);
    assert_int_equal(info.limit_bytes, higher);
    rv_store_unref(store);
  }
}

static void below_what_is_held_a_new_limit_throws_nothing_away_and_inserts_wait(void **state)
{
  (void)state;
  enum { ITEMS = 50, LIMIT = 200 * KIB };
  rv_table_config config = table_named("replay", RV_SELECTOR_FIFO, 1000000, 0);
  rv_store *store = limited_store(&config, 1, 0);
  rv_table *table = rv_store_table(store, 0);
  uint64_t keys[ITEMS];
  offer o;
  for (int i = 0; i < ITEMS; i++, end_offer(&o)) {
    assert_int_equal(offer_payload(store, table, &o), RV_SUBMIT_DONE);
    keys[i] = o.insert.key;
  }
  rv_memory_set_limit(rv_store_memory(store), LIMIT);
  assert_int_equal(offer_payload(store, table, &o), RV_SUBMIT_PENDING);
  int gone = 0;
  for (; o.completed == 0; gone++) {
    rv_table_info info = info_of(table);
    assert_int_equal(info.current_size, ITEMS - gone);
    rv_table_info_fini(&info);
    assert_true(gone < ITEMS);
    assert_int_equal(delete_one(table, keys[gone]), RV_OK);
  }
  assert_int_equal(o.insert.waiter.code, RV_OK);
  assert_true(gone > ITEMS - LIMIT / PAYLOAD && used(store) <= LIMIT);
  end_offer(&o);
  rv_store_unref(store);
}

static void what_fits_no_more_under_a_lower_limit_is_refused_instead_of_waiting(void **state)
{
  (void)state;
  enum { ROWS = 3, WIDTH = 16 * KIB };
  rv_error err;
  for (int own = 0; own < 2; own++) {
    rv_table_config config = table_named("replay", RV_SELECTOR_FIFO, 1000, 0);
    config.rate_limiter = (rv_rate_limiter_config){
        .samples_per_insert = 1, .min_size_to_sample = 1, .min_diff = -100, .max_diff = 1}; /* one is in, others wait */
    rv_store *store = limited_store(&config, 1, 0);
    rv_table *table = rv_store_table(store, 0);
    offer first, item;
    assert_int_equal(offer_payload(store, table, &first), RV_SUBMIT_DONE);
    end_offer(&first);
    assert_int_equal(offer_payload(store, table, &item), RV_SUBMIT_PENDING);
    static uint8_t bytes[ROWS * WIDTH];
    const int64_t shape[] = {ROWS, WIDTH};
    rv_tensor column = {.dtype = RV_UINT8, .rank = 2, .shape = shape, .data = bytes};
    offer counts = {.completed = 0};
    rv_rows rows = {.columns = &column, .num_columns = 1, .n = ROWS};
    rows.waiter = (rv_waiter){.complete = on_complete, .context = &counts, .deadline_ns = INT64_MAX};
    assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_PENDING);
    rv_bounds_change change = {.bounds = rv_table_bounds_unchanged()};
    change.bounds.max_bytes = 4 * KIB;
    if (own)
      must(rv_table_change_bounds(table, &change, &err), &err);
    else
      rv_memory_set_limit(rv_store_memory(store), 4 * KIB);
    const rv_rate_limiter_config open = rv_rate_limiter_min_size(1);
    must(rv_table_set_rate_limiter(table, &open, &err), &err);
    assert_int_equal(item.completed + counts.completed, 2);
    assert_int_equal(item.insert.waiter.code, RV_INVALID_ARGUMENT);
    assert_int_equal(rows.waiter.code, RV_INVALID_ARGUMENT);
    const char *name = own ? "max_bytes leaves room for 4.0 KiB" : "the store's memory_limit leaves room for 3.8 KiB";
    const char *said = item.insert.waiter.error.message;
    if (strncmp(said, "table \"replay\": an item with its chunks takes ", 44) != 0 || strstr(said, name) == NULL)
      fail_msg("%s", said);
    if (strstr(rows.waiter.error.message, "a row takes 16.0 KiB") == NULL) fail_msg("%s", rows.waiter.error.message);
    end_offer(&item);
    rv_store_unref(store);
  }
}

static void a_lower_bound_of_a_table_is_come_down_to_by_its_remover(void **state)
{
  (void)state;
  enum { ITEMS = 3000, STAY = 40 };
  const rv_selector_kind removers[] = {RV_SELECTOR_FIFO, RV_SELECTOR_LIFO, RV_SELECTOR_UNIFORM};
  for (size_t r = 0; r < 3; r++) {
    rv_table_config config = table_named("replay", removers[r], 1000000, 0);
    rv_store *store = limited_store(&config, 1, 0);
    rv_table *table = rv_store_table(store, 0);
    uint64_t keys[ITEMS];
    offer o;
    for (int i = 0; i < ITEMS; i++, end_offer(&o)) {
      rv_chunk *chunk = large_chunk((uint64_t)i + 1, 2);
      assert_int_equal(offer_rows(store, table, &o, chunk, 0, 2), RV_SUBMIT_DONE);
      rv_chunk_unref(chunk);
      keys[i] = o.insert.key;
    }
    rv_table_info before = info_of(table);
    rv_error err;
    rv_bounds_change change = {.bounds = rv_table_bounds_unchanged()};
    change.bounds.max_bytes = before.item_bytes * STAY / ITEMS;
    int steps = 0;
    for (; !change.done; steps++) must(rv_table_change_bounds(table, &change, &err), &err);
    assert_true(steps > 1); /* others came in between */
    rv_table_info info = info_of(table);
    assert_true(info.item_bytes <= change.bounds.max_bytes);
    assert_true(info.current_size >= STAY - 3 && info.current_size <= STAY);
    assert_int_equal(info.max_bytes, change.bounds.max_bytes);
    assert_int_equal(info.inserts - info.deletes, info.current_size);
    if (removers[r] == RV_SELECTOR_FIFO) assert_int_equal(delete_one(table, keys[ITEMS - 1]), RV_OK);
    if (removers[r] == RV_SELECTOR_LIFO) assert_int_equal(delete_one(table, keys[0]), RV_OK);
    rv_table_info_fini(&info);
    rv_table_info_fini(&before);
    change = (rv_bounds_change){.bounds = rv_table_bounds_unchanged()};
    change.bounds.max_bytes = 0;
    must(rv_table_change_bounds(table, &change, &err), &err);
    int64_t size = info.current_size;
    for (int i = 0; i < 200; i++, end_offer(&o)) assert_int_equal(offer_payload(store, table, &o), RV_SUBMIT_DONE);
    info = info_of(table);
    assert_true(info.current_size >= size + 199);
    rv_table_info_fini(&info);
    rv_store_unref(store);
  }
}

/* ---- what is too large ---- */

static void what_never_fits_is_refused_at_once(void **state)
{
  (void)state;
  for (int own = 0; own < 2; own++) {
    rv_table_config config = table_named("replay", RV_SELECTOR_FIFO, 1000, own == 0 ? 0 : 64 * KIB);
    rv_store *store = limited_store(&config, 1, own == 0 ? 64 * KIB : 0);
    rv_table *table = rv_store_table(store, 0);
    rv_chunk *chunk = large_chunk(1, 100 * KIB / ROW);
    offer o;
    assert_int_equal(offer_rows(store, table, &o, chunk, 0, 1), RV_SUBMIT_DONE);
    assert_int_equal(o.insert.waiter.code, RV_INVALID_ARGUMENT);
    const char *name = own == 0 ? "the store's memory_limit leaves room for 60.0 KiB" : "max_bytes leaves room for 64.0 KiB";
    const char *said = o.insert.waiter.error.message;
    if (strstr(said, "table \"replay\": an item with its chunks takes 100.") == NULL || strstr(said, name) == NULL)
      fail_msg("%s", said);
    end_offer(&o);
    rv_chunk_unref(chunk);
    const int64_t shape[] = {1, 100 * KIB};
    uint8_t *bytes = calloc(1, 100 * KIB);
    rv_tensor column = {.dtype = RV_UINT8, .rank = 2, .shape = shape, .data = bytes};
    rv_rows rows = {.columns = &column, .num_columns = 1, .n = 1};
    assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_DONE);
    assert_int_equal(rows.waiter.code, RV_INVALID_ARGUMENT);
    if (strstr(rows.waiter.error.message, "a row takes 10") == NULL) fail_msg("%s", rows.waiter.error.message);
    free(bytes);
    rv_store_unref(store);
  }
}

/* ---- a table's bound ---- */

static void a_table_keeps_its_bound_by_its_remover(void **state)
{
  (void)state;
  enum { BOUND = 512 * KIB, FITS = BOUND / (PAYLOAD + 512) };
  const rv_selector_kind removers[] = {RV_SELECTOR_FIFO, RV_SELECTOR_LIFO, RV_SELECTOR_UNIFORM};
  for (size_t r = 0; r < 3; r++) {
    rv_table_config config = table_named("ring", removers[r], 1000000, BOUND);
    rv_store *store = limited_store(&config, 1, 0);
    rv_table *table = rv_store_table(store, 0);
    offer o;
    for (int i = 0; i < 400; i++, end_offer(&o)) {
      assert_int_equal(offer_payload(store, table, &o), RV_SUBMIT_DONE);
      assert_int_equal(o.insert.waiter.code, RV_OK);
      rv_table_info info = info_of(table);
      assert_true(info.item_bytes <= BOUND);
      assert_int_equal(info.max_bytes, BOUND);
      assert_int_equal(info.inserts - info.deletes, info.current_size);
      if (i >= FITS) assert_true(info.current_size >= FITS - 2);
      rv_table_info_fini(&info);
    }
    rv_store_unref(store);
  }
}

/* Rows stand in segments: what the items that went leave behind there is won back, not paid for by more items. */
static void rows_keep_a_tables_bound_too(void **state)
{
  (void)state;
  enum { BOUND = 1024 * KIB, WIDTH = 1024, N = 50 };
  const rv_selector_kind removers[] = {RV_SELECTOR_FIFO, RV_SELECTOR_UNIFORM};
  static uint8_t bytes[N * WIDTH];
  for (size_t r = 0; r < 2; r++) {
    rv_table_config config = table_named("ring", removers[r], 1000000, BOUND);
    rv_store *store = limited_store(&config, 1, 0);
    rv_table *table = rv_store_table(store, 0);
    int64_t least = INT64_MAX;
    for (int i = 0; i < 200; i++) {
      const int64_t shape[] = {N, WIDTH};
      rv_tensor column = {.dtype = RV_UINT8, .rank = 2, .shape = shape, .data = bytes};
      rv_rows rows = {.columns = &column, .num_columns = 1, .n = i % 3 == 0 ? N : 1};
      int64_t one[] = {1, WIDTH};
      if (rows.n == 1) column.shape = one;
      assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_DONE);
      assert_int_equal(rows.waiter.code, RV_OK);
      rv_table_info info = info_of(table);
      if (info.item_bytes > BOUND + BOUND / 8) fail_msg("%lld bytes of %d", (long long)info.item_bytes, BOUND);
      if (i > 100 && info.current_size < least) least = info.current_size;
      rv_table_info_fini(&info);
    }
    if (least < BOUND / WIDTH * 2 / 3)
      fail_msg("remover %zu: %lld items of %d where %d would fit", r, (long long)least, WIDTH, BOUND / WIDTH);
    rv_store_unref(store);
  }
}

/* ---- what is counted, beside a plain model ---- */

enum { TABLES = 3, CHUNKS = 24, HELD = 16, MOST_ALIVE = 65536 };

typedef struct model {
  rv_store *store;
  rv_random random;
  rv_chunk *chunks[CHUNKS]; /* a stream's */
  rv_draw draws[HELD];
  size_t num_draws;
  rv_chunk **alive;
  size_t num_alive;
  uint64_t next_key;
} model;

static uint32_t below(model *m, uint32_t n)
{
  return (uint32_t)(rv_random_next(&m->random) % n);
}

static void note(model *m, rv_chunk *chunk)
{
  if (chunk == NULL || rv_chunk_counted(chunk) == 0) return;
  for (size_t i = 0; i < m->num_alive; i++)
    if (m->alive[i] == chunk) return;
  assert_true(m->num_alive < MOST_ALIVE);
  m->alive[m->num_alive++] = chunk;
}

/* Everything that anybody refers to, once. */
static void count_and_compare(model *m)
{
  m->num_alive = 0;
  size_t books = 0;
  for (size_t t = 0; t < TABLES; t++) {
    rv_table *table = rv_store_table(m->store, t);
    rv_table_info info = info_of(table);
    rv_table_info_fini(&info);
    size_t held = 0, loose = 0;
    for (uint32_t i = 0; i < table->books.num_holds; i++) {
      uintptr_t place = (uintptr_t)*RV_SEGARRAY_AT(&table->books.holds, rv_hold *, i);
      if ((place & 1U) != 0) continue;
      rv_chunk *chunk = ((rv_hold *)place)->chunk;
      held += rv_chunk_memory(chunk);
      note(m, chunk);
    }
    for (uint32_t slot = 0; slot < table->books.slab.used; slot++) {
      const rv_item *item = rv_slab_at(&table->books.slab, slot);
      if (item->template_number != RV_LOOSE) continue;
      const rv_loose *of = item->data;
      loose += sizeof *of + of->num_links * sizeof(rv_loose_link) + sizeof(rv_trajectory_box) +
               of->trajectory->num_columns * sizeof(rv_trajectory_column) + of->trajectory->num_slices * sizeof(rv_slice) +
               of->trajectory->num_chunks * sizeof(rv_chunk *);
    }
    assert_int_equal(table->books.chunk_memory, held);
    assert_int_equal(table->books.loose_memory, loose);
    for (size_t i = 0; i < RV_MAX_SPARES; i++) note(m, table->spares[i]);
    books += table->counted_books;
  }
  for (size_t i = 0; i < CHUNKS; i++) note(m, m->chunks[i]);
  for (size_t i = 0; i < m->num_draws; i++) {
    note(m, m->draws[i].chunk);
    for (uint32_t k = 0; k < m->draws[i].trajectory->num_chunks; k++) note(m, m->draws[i].trajectory->chunks[k]);
  }
  size_t bytes = 0;
  for (size_t i = 0; i < m->num_alive; i++) bytes += rv_chunk_memory(m->alive[i]);
  assert_int_equal(used(m->store), bytes + books);
}

static void bring_chunk(model *m)
{
  size_t i = below(m, CHUNKS);
  rv_chunk_unref(m->chunks[i]);
  uint64_t key = ++m->next_key;
  m->chunks[i] = below(m, 2) == 0 ? large_chunk(key, 1 + below(m, 200))
                                  : encoded_numbers((int64_t)key, 1 + below(m, 500), key, below(m, 2) == 0);
  rv_chunk_count(m->chunks[i], rv_store_memory(m->store));
}

static void insert_some(model *m, rv_table *table)
{
  rv_chunk *chunk = m->chunks[below(m, CHUNKS)];
  if (chunk == NULL) return;
  int32_t rows = (int32_t)rv_chunk_num_rows(chunk, 0), first = (int32_t)below(m, (uint32_t)rows);
  offer o;
  assert_int_equal(offer_rows(m->store, table, &o, chunk, first, 1 + (int32_t)below(m, (uint32_t)(rows - first))),
                   RV_SUBMIT_DONE);
  assert_int_equal(o.insert.waiter.code, RV_OK);
  end_offer(&o);
}

/* Slices of two chunks. */
static void insert_loose(model *m, rv_table *table)
{
  rv_chunk *a = m->chunks[below(m, CHUNKS)], *b = m->chunks[below(m, CHUNKS)];
  if (a == NULL || b == NULL || !rv_chunk_same_columns(a, b)) return;
  rv_error err;
  rv_slice slices[2] = {{.chunk = a, .length = 1}, {.chunk = b, .length = 1}};
  uint32_t num_slices = 2;
  bool squeeze = false;
  rv_trajectory_desc desc = {.slices = slices, .num_slices = &num_slices, .squeeze = &squeeze, .num_columns = 1};
  rv_insert insert = {.choose_key = true, .priority = 1};
  must(rv_trajectory_new(rv_store_layouts(m->store), &desc, &insert.trajectory, &err), &err);
  assert_int_equal(rv_table_insert(table, &insert), RV_SUBMIT_DONE);
  assert_int_equal(insert.waiter.code, RV_OK);
  rv_trajectory_unref(insert.trajectory);
}

static void insert_rows(model *m, rv_table *table)
{
  static uint8_t bytes[300 * 512];
  const int64_t shape[] = {1 + below(m, 300), below(m, 2) == 0 ? 8 : 512};
  rv_tensor column = {.dtype = RV_UINT8, .rank = 2, .shape = shape, .data = bytes};
  rv_rows rows = {.columns = &column, .num_columns = 1, .n = (size_t)shape[0]};
  assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_DONE);
  assert_int_equal(rows.waiter.code, RV_OK);
}

static void insert_strings(model *m, rv_table *table)
{
  static const char text[] = "a text that is as long as it is, and no longer than that";
  rv_bytes strings[40];
  const int64_t shape = 1 + below(m, 40);
  for (int64_t i = 0; i < shape; i++) strings[i] = (rv_bytes){(const uint8_t *)text, below(m, sizeof text)};
  rv_tensor column = {.dtype = RV_STRING, .rank = 1, .shape = &shape, .data = strings};
  rv_rows rows = {.columns = &column, .num_columns = 1, .n = (size_t)shape};
  assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_DONE);
  assert_int_equal(rows.waiter.code, RV_OK);
}

static void let_go(model *m)
{
  while (m->num_draws > 0) rv_draw_release(&m->draws[--m->num_draws]);
}

static void sample_some(model *m, rv_table *table)
{
  let_go(m);
  rv_sampling ask = {.want = 1 + below(m, HELD), .draws = m->draws, .partial = true};
  ask.waiter.deadline_ns = INT64_MAX;
  if (table->books.slab.count == 0 || rv_table_sample(table, &ask) != RV_SUBMIT_DONE) return;
  m->num_draws = ask.count;
}

static void delete_some(model *m, rv_table *table)
{
  for (size_t i = 0; i < 20 && table->books.slab.count > 0; i++) {
    uint32_t slot = below(m, table->books.slab.used);
    if (rv_slab_has(&table->books.slab, slot))
      assert_int_equal(delete_one(table, rv_slab_at(&table->books.slab, slot)->key), RV_OK);
  }
}

static void the_account_is_what_is_there(void **state)
{
  (void)state;
  const char *given = getenv("RV_TEST_SEED");
  for (uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 1, last = given != NULL ? seed : 4; seed <= last; seed++) {
    print_message("seed %llu\n", (unsigned long long)seed);
    rv_table_config configs[TABLES] = {table_named("fifo", RV_SELECTOR_FIFO, 2000, 0),
                                       table_named("uniform", RV_SELECTOR_UNIFORM, 300, 0),
                                       table_named("bytes", RV_SELECTOR_UNIFORM, 5000, 256 * KIB)};
    configs[1].max_times_sampled = 3;
    model m = {.store = limited_store(configs, TABLES, 0), .alive = malloc(MOST_ALIVE * sizeof(rv_chunk *))};
    rv_random_init(&m.random, seed);
    for (int i = 0; i < 3000; i++) {
      rv_table *table = rv_store_table(m.store, below(&m, TABLES));
      switch (below(&m, 12)) {
      case 0: bring_chunk(&m); break;
      case 1: insert_rows(&m, table); break;
      case 2: insert_strings(&m, table); break;
      case 3: insert_loose(&m, table); break;
      case 4: sample_some(&m, table); break;
      case 5: delete_some(&m, table); break;
      case 6: let_go(&m); break;
      case 7:
        if (below(&m, 40) == 0) assert_int_equal(rv_table_reset(table, NULL), RV_OK);
        break;
      default: insert_some(&m, table); break;
      }
      if (i % 10 == 0) count_and_compare(&m);
    }
    let_go(&m);
    for (size_t i = 0; i < CHUNKS; i++) rv_chunk_unref(m.chunks[i]);
    free(m.alive);
    rv_store_unref(
        m.store); /* and the account goes with the last of its bytes: what is counted wrongly leaks, or is freed twice */
  }
}

static void a_chunk_counts_once_whoever_refers_to_it(void **state)
{
  (void)state;
  rv_table_config configs[2] = {table_named("a", RV_SELECTOR_FIFO, 100, 0), table_named("b", RV_SELECTOR_FIFO, 100, 0)};
  rv_store *store = limited_store(configs, 2, 0);
  rv_chunk *chunk = large_chunk(1, 100 * KIB / ROW);
  offer o;
  size_t before = used(store), bytes = rv_chunk_memory(chunk);
  for (size_t i = 0; i < 20; i++, end_offer(&o))
    assert_int_equal(offer_rows(store, rv_store_table(store, i % 2), &o, chunk, (int32_t)i, 2), RV_SUBMIT_DONE);
  size_t with = used(store) - before;
  assert_true(with >= bytes && with < bytes + 600 * KIB); /* the books of both */
  rv_error err;
  must(rv_table_reset(rv_store_table(store, 0), &err), &err);
  assert_true(used(store) >= before + bytes);
  must(rv_table_reset(rv_store_table(store, 1), &err), &err);
  rv_store_unref(store);
  assert_int_equal(rv_chunk_memory(chunk), bytes); /* it outlives the store and its account */
  rv_chunk_unref(chunk);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(near_the_limit_inserts_wait_and_say_why),
      cmocka_unit_test(those_who_wait_for_memory_go_on_in_the_order_they_came),
      cmocka_unit_test(what_one_table_lets_go_another_takes),
      cmocka_unit_test(a_sample_that_is_let_go_elsewhere_makes_room),
      cmocka_unit_test(a_full_table_goes_on_at_the_limit_of_those_that_grow),
      cmocka_unit_test(what_streams_bring_never_stops_tables_that_hold_little),
      cmocka_unit_test(a_higher_limit_lets_those_go_on_who_wait),
      cmocka_unit_test(below_what_is_held_a_new_limit_throws_nothing_away_and_inserts_wait),
      cmocka_unit_test(what_fits_no_more_under_a_lower_limit_is_refused_instead_of_waiting),
      cmocka_unit_test(a_lower_bound_of_a_table_is_come_down_to_by_its_remover),
      cmocka_unit_test(what_never_fits_is_refused_at_once),
      cmocka_unit_test(a_table_keeps_its_bound_by_its_remover),
      cmocka_unit_test(rows_keep_a_tables_bound_too),
      cmocka_unit_test(the_account_is_what_is_there),
      cmocka_unit_test(a_chunk_counts_once_whoever_refers_to_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
