/* Stores with something of everything in them, for the tests of checkpoints. */
#ifndef RV_PERSIST_STORES_TESTING_H
#define RV_PERSIST_STORES_TESTING_H

#include "persist/testing.h"
#include "wire/messages.h"

enum { TABLES = 3 };

static inline void configure(rv_table_config tables[TABLES])
{
  tables[0] = rv_table_config_default("replay", 300);
  tables[0].sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 0.6};
  tables[0].rate_limiter = rv_rate_limiter_sample_to_insert_ratio(4, 10, 1e6);
  tables[1] = rv_table_config_default("mixed", 1000);
  tables[1].remover.kind = RV_SELECTOR_MIN_HEAP;
  tables[2] = rv_table_config_default("empty", 5);
  tables[2].sampler.kind = RV_SELECTOR_LIFO;
  tables[2].max_times_sampled = 2;
}

static inline rv_store *new_store(const rv_table_config *tables, size_t n)
{
  rv_error err;
  rv_store *store = NULL;
  rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = n};
  must(rv_store_new(&config, &store, &err), &err);
  return store;
}

/* A chunk as it comes over the wire. */
static inline rv_chunk *wire_chunk(uint64_t key, uint64_t episode, int64_t first, size_t n, bool snappy, bool delta)
{
  rv_error err;
  rv_chunk *segment, *chunk = NULL;
  rv_spec specs[2] = {{.name = "", .dtype = RV_INT64}, {.name = "", .dtype = RV_STRING}};
  rv_chunk_meta meta = {.key = key, .episode_id = episode, .last_step = (int32_t)n - 1};
  must(rv_segment_new(specs, 2, n, &meta, &segment, &err), &err);
  for (size_t i = 0; i < n; i++) {
    int64_t value = first + (int64_t)i;
    char text[32];
    rv_bytes bytes = {text, (size_t)snprintf(text, sizeof text, "row %lld", (long long)value)};
    rv_tensor number = {.dtype = RV_INT64, .data = &value}, string = {.dtype = RV_STRING, .data = &bytes};
    must(rv_segment_put(segment, 0, (int64_t)i, &number, &err), &err);
    must(rv_segment_put(segment, 1, (int64_t)i, &string, &err), &err);
  }
  rv_segment_publish(segment, 0, (int64_t)n);
  rv_segment_publish(segment, 1, (int64_t)n);
  rv_pieces pieces;
  uint8_t flags[2] = {snappy, snappy};
  rv_chunk_encoding encoding = {.key = key, .column = SIZE_MAX, .count = (int64_t)n, .delta = delta, .snappy = {flags, 2}};
  rv_pieces_init(&pieces);
  must(rv_chunk_serialize(&pieces, segment, &encoding, &err), &err);
  rv_buf *buf = rv_buf_new(pieces.bytes);
  for (size_t i = 0; i < pieces.count; buf->size += pieces.piece[i++].size)
    memcpy(buf->data + buf->size, pieces.piece[i].data, pieces.piece[i].size);
  must(rv_chunk_parse(buf, (rv_span){buf->data, buf->size}, false, &chunk, &err), &err);
  rv_buf_unref(buf);
  rv_pieces_fini(&pieces);
  rv_chunk_unref(segment);
  return chunk;
}

static inline void insert_trajectory(rv_store *store, rv_table *table, uint64_t key, double priority, const rv_slice *slices,
                                     const uint32_t *num_slices, const bool *squeeze, uint32_t columns)
{
  rv_error err;
  rv_insert insert = {.key = key, .priority = priority};
  rv_trajectory_desc desc = {.slices = slices, .num_slices = num_slices, .squeeze = squeeze, .num_columns = columns};
  must(rv_trajectory_new(rv_store_layouts(store), &desc, &insert.trajectory, &err), &err);
  insert.waiter.deadline_ns = INT64_MAX;
  assert_int_equal(rv_table_insert(table, &insert), RV_SUBMIT_DONE);
  must(insert.waiter.code, &insert.waiter.error);
  rv_trajectory_unref(insert.trajectory);
}

static inline void draw_some(rv_table *table, size_t n)
{
  rv_draw *draws = calloc(n, sizeof *draws);
  rv_sampling sampling = {.want = n, .partial = true, .draws = draws};
  sampling.waiter.deadline_ns = INT64_MAX;
  assert_int_equal(rv_table_sample(table, &sampling), RV_SUBMIT_DONE);
  for (size_t i = 0; i < sampling.count; i++) rv_draw_release(&draws[i]);
  free(draws);
}

static inline void add_rows(rv_table *table, size_t n, int64_t first)
{
  int64_t *values = calloc(n, sizeof *values);
  rv_rows rows;
  for (size_t i = 0; i < n; i++) values[i] = first + (int64_t)i;
  add_values(table, &rows, values, n, NULL);
  must(rows.waiter.code, &rows.waiter.error);
  free(values);
}

/* Rows of this process, chunks from elsewhere in every encoding, one in two tables, two with one key, items over several. */
static inline void fill(rv_store *store)
{
  rv_error err;
  rv_table *replay = rv_store_table(store, 0), *mixed = rv_store_table(store, 1);
  size_t unknown;
  add_rows(replay, 450, 0);
  add_rows(mixed, 30, 1000);
  rv_chunk *chunks[5];
  for (uint64_t i = 0; i < 5; i++)
    chunks[i] = wire_chunk(i == 4 ? 900 : 900 + i, 50 + i, 100 * (int64_t)i, 20, i % 2 == 1, i >= 2);
  for (uint64_t i = 0; i < 40; i++) {
    rv_chunk *a = chunks[i % 5], *b = chunks[(i + 1) % 5];
    rv_slice slices[] = {{a, 0, (int32_t)(i % 10), 5}, {b, 0, 0, 1}, {a, 1, (int32_t)(i % 20), 1}};
    uint32_t num_slices[] = {2, 1};
    bool squeeze[] = {false, true};
    insert_trajectory(store, i % 3 == 0 ? replay : mixed, i == 7 ? 0 : 70 + i, 0.5 + (double)i, slices, num_slices, squeeze, 2);
  }
  for (size_t i = 0; i < 5; i++) rv_chunk_unref(chunks[i]);
  draw_some(replay, 200);
  draw_some(mixed, 50);
  rv_item_info *items = calloc(LISTED_MAX, sizeof *items);
  size_t n = list_items(replay, items, LISTED_MAX);
  for (size_t i = 0; i < n; i += 7) {
    rv_key_priority update = {items[i].key, (double)i / 3};
    must(rv_table_mutate(replay, &update, 1, &items[i + 1].key, 1, NULL, &unknown, &err), &err);
  }
  free(items);
}

#endif
