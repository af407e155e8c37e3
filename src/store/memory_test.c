/* What becomes of inserts near a limit, of the store or of a table. */
#include "store/memory_testing.h"

/* An item with a chunk of its own, of PAYLOAD bytes. */
static rv_submitted offer_payload(rv_store *store, rv_table *table, offer *o)
{
  static uint64_t key;
  rv_chunk *chunk = large_chunk(++key, PAYLOAD / ROW);
  rv_submitted submitted = offer_rows(store, table, o, chunk, 0, PAYLOAD / ROW);
  rv_chunk_unref(chunk);
  return submitted;
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

/* Whoever asks may hold what a completion needs. */
static void saying_what_is_waited_for_completes_nothing(void **state)
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
  rv_draws_release(draws, 2);
  char why[256];
  assert_int_equal(rv_waiter_explain(&waiting.insert.waiter, why, sizeof why), RV_WAIT_MEMORY);
  assert_int_equal(waiting.completed, 0);
  rv_memory_serve(rv_store_memory(store));
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

static void fill_ring(rv_store *store, rv_table *table, int items)
{
  offer o;
  for (int i = 0; i < items; i++, end_offer(&o)) {
    assert_int_equal(offer_payload(store, table, &o), RV_SUBMIT_DONE);
    assert_int_equal(o.insert.waiter.code, RV_OK);
  }
}

static void a_full_table_goes_on_whatever_streams_bring(void **state)
{
  (void)state;
  enum { LIMIT = 1024 * KIB, MOST = LIMIT / PAYLOAD * 3 / 4 };
  for (int in_bytes = 0; in_bytes < 2; in_bytes++) {
    rv_table_config configs[2] = {table_named("ring", RV_SELECTOR_FIFO, in_bytes ? 1000000 : MOST, in_bytes ? LIMIT / 10 * 8 : 0),
                                  table_named("grows", RV_SELECTOR_FIFO, 1000000, 0)};
    rv_store *store = limited_store(configs, 2, LIMIT);
    rv_memory *memory = rv_store_memory(store);
    fill_ring(store, rv_store_table(store, 0), 2 * MOST);
    size_t held = used(store);
    assert_true(held > LIMIT - LIMIT / 4 && held < LIMIT - LIMIT / 10);
    const size_t brought[] = {LIMIT / 100 * 22, LIMIT}; /* less than their share, and more */
    for (size_t i = 0; i < 2; i++) {
      rv_memory_add(memory, brought[i]);
      rv_memory_begin_way(memory, brought[i]);
      assert_true(used(store) > LIMIT);
      offer grows;
      assert_int_equal(offer_payload(store, rv_store_table(store, 1), &grows), RV_SUBMIT_PENDING);
      fill_ring(store, rv_store_table(store, 0), 2 * MOST);
      assert_true(used(store) <= held + brought[i] + 4 * PAYLOAD); /* the table that grows has books, too */
      assert_int_equal(grows.completed, 0);
      assert_true(rv_waiter_cancel(&grows.insert.waiter));
      end_offer(&grows);
      rv_memory_end_way(memory, brought[i]);
      rv_memory_take_away(memory, brought[i]);
    }
    rv_store_unref(store);
  }
}

static void a_full_table_that_waited_goes_on_when_tables_hold_less_whatever_streams_bring(void **state)
{
  (void)state;
  enum { LIMIT = 1024 * KIB, LOWER = 400 * KIB, RING = 36, MORE = 50, BROUGHT = 95 * KIB };
  rv_table_config configs[2] = {table_named("ring", RV_SELECTOR_FIFO, RING, 0),
                                table_named("grows", RV_SELECTOR_FIFO, 1000000, 0)};
  rv_store *store = limited_store(configs, 2, LIMIT);
  rv_memory *memory = rv_store_memory(store);
  fill_ring(store, rv_store_table(store, 0), RING);
  fill_ring(store, rv_store_table(store, 1), MORE);
  rv_memory_add(memory, BROUGHT);
  rv_memory_begin_way(memory, BROUGHT);
  rv_memory_set_limit(memory, LOWER);
  offer waiting;
  assert_int_equal(offer_payload(store, rv_store_table(store, 0), &waiting), RV_SUBMIT_PENDING);
  assert_true(rv_memory_is_awaited(memory));
  rv_error err;
  must(rv_table_reset(rv_store_table(store, 1), &err), &err);
  assert_true(used(store) > LOWER);
  assert_int_equal(waiting.completed, 1);
  assert_int_equal(waiting.insert.waiter.code, RV_OK);
  assert_false(rv_memory_is_awaited(memory));
  end_offer(&waiting);
  rv_memory_end_way(memory, BROUGHT);
  rv_memory_take_away(memory, BROUGHT);
  rv_store_unref(store);
}

/* ---- what tables need besides ---- */

enum { BOOKS_LIMIT = 16384 * KIB, ROWS_AT_ONCE = 1000000 };

/* Rows of a byte each: nearly all that they take is books. */
static rv_submitted submit_bytes(rv_table *table, rv_rows *rows, offer *counts, int64_t n)
{
  static const uint8_t bytes[ROWS_AT_ONCE];
  static rv_tensor column;
  static int64_t shape[1];
  shape[0] = n;
  column = (rv_tensor){.dtype = RV_UINT8, .rank = 1, .shape = shape, .data = bytes};
  *counts = (offer){.completed = 0};
  *rows = (rv_rows){.columns = &column, .num_columns = 1, .n = (size_t)n};
  rows->waiter = (rv_waiter){.complete = on_complete, .context = counts, .deadline_ns = INT64_MAX};
  return rv_table_insert_rows(table, rows);
}

static void one_insert_of_many_rows_waits_at_the_limit_too(void **state)
{
  (void)state;
  rv_table_config config = table_named("replay", RV_SELECTOR_FIFO, 50000000, 0);
  config.sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
  rv_store *store = limited_store(&config, 1, BOOKS_LIMIT);
  rv_table *table = rv_store_table(store, 0);
  rv_rows rows;
  offer counts;
  assert_int_equal(submit_bytes(table, &rows, &counts, ROWS_AT_ONCE), RV_SUBMIT_PENDING);
  rv_table_info info = info_of(table);
  assert_int_equal(info.num_waiting, 1);
  assert_int_equal(info.waiting[0].reason, RV_WAIT_MEMORY);
  assert_true(info.current_size > 0);
  rv_table_info_fini(&info);
  if (used(store) > BOOKS_LIMIT) fail_msg("%zu of %d bytes", used(store), BOOKS_LIMIT);
  assert_true(rv_waiter_cancel(&rows.waiter));
  rv_store_unref(store);
}

static void what_a_tables_books_needed_is_free_for_others_after_a_reset(void **state)
{
  (void)state;
  rv_table_config configs[2] = {table_named("a", RV_SELECTOR_FIFO, 50000000, 0), table_named("b", RV_SELECTOR_FIFO, 50000000, 0)};
  rv_store *store = limited_store(configs, 2, BOOKS_LIMIT);
  rv_table *a = rv_store_table(store, 0), *b = rv_store_table(store, 1);
  rv_rows of_a, of_b;
  offer counts_a, counts_b;
  assert_int_equal(submit_bytes(a, &of_a, &counts_a, ROWS_AT_ONCE), RV_SUBMIT_PENDING);
  assert_true(rv_waiter_cancel(&of_a.waiter));
  assert_int_equal(submit_bytes(b, &of_b, &counts_b, 1), RV_SUBMIT_PENDING);
  rv_error err;
  must(rv_table_reset(a, &err), &err);
  assert_int_equal(counts_b.completed, 1);
  assert_int_equal(of_b.waiter.code, RV_OK);
  assert_int_equal(submit_bytes(a, &of_a, &counts_a, 1000), RV_SUBMIT_DONE);
  rv_store_unref(store);
}

/* A table remembers how such items looked. */
static void how_items_looked_that_have_gone_keeps_nobody_waiting(void **state)
{
  (void)state;
  enum { SLICES = RV_TEMPLATE_SLICES, SHAPES = 2 * RV_MAX_TEMPLATES };
  rv_table_config config = table_named("a", RV_SELECTOR_FIFO, 1000, 0);
  rv_store *store = limited_store(&config, 1, 2048 * KIB);
  rv_table *table = rv_store_table(store, 0);
  rv_chunk *chunk = large_chunk(1, 2 * SLICES);
  static rv_slice slices[SLICES];
  uint32_t num_slices = SLICES;
  bool squeeze = false;
  rv_error err;
  rv_trajectory_desc desc = {.slices = slices, .num_slices = &num_slices, .squeeze = &squeeze, .num_columns = 1};
  for (int32_t shape = 0; shape < SHAPES; shape++) {
    for (int32_t i = 0; i < SLICES; i++) slices[i] = (rv_slice){.chunk = chunk, .offset = i == 1 ? 1 + shape : i, .length = 1};
    offer item = {.insert = {.choose_key = true, .priority = 1}};
    item.insert.waiter = (rv_waiter){.complete = on_complete, .context = &item, .deadline_ns = INT64_MAX};
    must(rv_trajectory_new(rv_store_layouts(store), &desc, &item.insert.trajectory, &err), &err);
    assert_int_equal(rv_table_insert(table, &item.insert), RV_SUBMIT_DONE);
    must(item.insert.waiter.code, &item.insert.waiter.error);
    assert_int_equal(delete_one(table, item.insert.key), RV_OK);
    end_offer(&item);
  }
  rv_chunk_unref(chunk);
  rv_store_unref(store);
}

/* Items of many slices take more of the books than of chunks. */
static void what_a_tables_books_needed_is_free_for_others_after_deletes(void **state)
{
  (void)state;
  enum { SLICES = 2000, LIMIT = 4096 * KIB, MOST = 1000 };
  rv_table_config configs[2] = {table_named("a", RV_SELECTOR_FIFO, 1000000, 0), table_named("b", RV_SELECTOR_FIFO, 1000000, 0)};
  rv_store *store = limited_store(configs, 2, LIMIT);
  rv_table *a = rv_store_table(store, 0), *b = rv_store_table(store, 1);
  rv_chunk *chunks[2] = {large_chunk(1, SLICES), large_chunk(2, SLICES)};
  rv_slice slices[SLICES];
  for (int32_t i = 0; i < SLICES; i++) slices[i] = (rv_slice){.chunk = chunks[i % 2], .offset = i, .length = 1};
  uint32_t num_slices = SLICES;
  bool squeeze = false;
  rv_error err;
  rv_trajectory_desc desc = {.slices = slices, .num_slices = &num_slices, .squeeze = &squeeze, .num_columns = 1};
  offer items[MOST], of_b;
  size_t n = 0;
  rv_submitted submitted = RV_SUBMIT_DONE;
  for (; n < MOST && submitted == RV_SUBMIT_DONE; n++) {
    items[n] = (offer){.insert = {.choose_key = true, .priority = 1}};
    items[n].insert.waiter = (rv_waiter){.complete = on_complete, .context = &items[n], .deadline_ns = INT64_MAX};
    must(rv_trajectory_new(rv_store_layouts(store), &desc, &items[n].insert.trajectory, &err), &err);
    submitted = rv_table_insert(a, &items[n].insert);
  }
  assert_int_equal(submitted, RV_SUBMIT_PENDING);
  assert_true(rv_waiter_cancel(&items[n - 1].insert.waiter));
  uint64_t keys[MOST];
  fill(store, b, keys, MOST, &of_b); /* less than such an item was left */
  for (size_t i = 0; i + 1 < n; i++) assert_int_equal(delete_one(a, items[i].insert.key), RV_OK);
  assert_int_equal(of_b.completed, 1);
  assert_int_equal(of_b.insert.waiter.code, RV_OK);
  end_offer(&of_b);
  for (size_t i = 0; i < n; i++) end_offer(&items[i]);
  for (size_t i = 0; i < 2; i++) rv_chunk_unref(chunks[i]);
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

/* Rows go into segments that are there before them; what such a one takes beyond a lower limit's share comes back when its rows have gone. */
static void below_a_lower_limit_no_segment_waits_for_more_rows(void **state)
{
  (void)state;
  enum { LIMIT = 512 * KIB, WIDTH = 1024, N = 1000 };
  static uint8_t bytes[N * WIDTH];
  static uint64_t keys[N];
  const int64_t shape[] = {N, WIDTH}, one[] = {1, WIDTH};
  rv_table_config config = table_named("replay", RV_SELECTOR_FIFO, 1000000, 0);
  rv_store *store = limited_store(&config, 1, 0);
  rv_table *table = rv_store_table(store, 0);
  rv_tensor column = {.dtype = RV_UINT8, .rank = 2, .shape = shape, .data = bytes};
  for (int i = 0; i < 8; i++) {
    rv_rows rows = {.columns = &column, .num_columns = 1, .n = N, .keys = keys};
    rows.waiter.deadline_ns = INT64_MAX;
    assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_DONE);
    assert_int_equal(rows.waiter.code, RV_OK);
    if (i == 7) rv_memory_set_limit(rv_store_memory(store), LIMIT);
    rv_error err;
    size_t unknown;
    must(rv_table_mutate(table, NULL, 0, keys, N, NULL, &unknown, &err), &err);
    assert_int_equal(unknown, 0);
  }
  rv_table_info info = info_of(table);
  assert_int_equal(info.current_size, 0);
  rv_table_info_fini(&info);
  assert_true(used(store) < LIMIT / 2);
  column.shape = one;
  rv_rows rows = {.columns = &column, .num_columns = 1, .n = 1};
  rows.waiter.deadline_ns = INT64_MAX;
  assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_DONE);
  assert_int_equal(rows.waiter.code, RV_OK);
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
int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(near_the_limit_inserts_wait_and_say_why),
      cmocka_unit_test(those_who_wait_for_memory_go_on_in_the_order_they_came),
      cmocka_unit_test(what_one_table_lets_go_another_takes),
      cmocka_unit_test(a_sample_that_is_let_go_elsewhere_makes_room),
      cmocka_unit_test(saying_what_is_waited_for_completes_nothing),
      cmocka_unit_test(a_full_table_goes_on_at_the_limit_of_those_that_grow),
      cmocka_unit_test(what_streams_bring_never_stops_tables_that_hold_little),
      cmocka_unit_test(a_full_table_goes_on_whatever_streams_bring),
      cmocka_unit_test(a_full_table_that_waited_goes_on_when_tables_hold_less_whatever_streams_bring),
      cmocka_unit_test(one_insert_of_many_rows_waits_at_the_limit_too),
      cmocka_unit_test(how_items_looked_that_have_gone_keeps_nobody_waiting),
      cmocka_unit_test(what_a_tables_books_needed_is_free_for_others_after_a_reset),
      cmocka_unit_test(how_items_looked_that_have_gone_keeps_nobody_waiting),
      cmocka_unit_test(what_a_tables_books_needed_is_free_for_others_after_deletes),
      cmocka_unit_test(a_higher_limit_lets_those_go_on_who_wait),
      cmocka_unit_test(below_what_is_held_a_new_limit_throws_nothing_away_and_inserts_wait),
      cmocka_unit_test(below_a_lower_limit_no_segment_waits_for_more_rows),
      cmocka_unit_test(what_fits_no_more_under_a_lower_limit_is_refused_instead_of_waiting),
      cmocka_unit_test(a_lower_bound_of_a_table_is_come_down_to_by_its_remover),
      cmocka_unit_test(what_never_fits_is_refused_at_once),
      cmocka_unit_test(a_table_keeps_its_bound_by_its_remover),
      cmocka_unit_test(rows_keep_a_tables_bound_too),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
