/* Stores with a limit, and inserts of a size that is known. */
#ifndef RV_STORE_MEMORY_TESTING_H
#define RV_STORE_MEMORY_TESTING_H

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

static size_t used(rv_store *store)
{
  rv_memory_info info;
  rv_store_memory_info(store, &info);
  return (size_t)info.used_bytes;
}

#endif
