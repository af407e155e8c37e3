/* What the store's tests share: stores of one table, items of one number each, and looking at both. */
#ifndef RV_STORE_TESTING_H
#define RV_STORE_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "store/gather.h"
#include "store/store.h"
#include "store/trajectory.h"

static inline void must(rv_code code, const rv_error *err)
{
  if (code != RV_OK) fail_msg("%s: %s", rv_code_name(code), err->message);
}

static inline rv_store *store_of(const rv_table_config *config)
{
  rv_error err;
  rv_store *store = NULL;
  rv_store_config whole = {.size = sizeof whole, .tables = config, .num_tables = 1};
  must(rv_store_new(&whole, &store, &err), &err);
  return store;
}

/* An encoded chunk with rows first, first + 1, ... of an int64 column, as it might have come over the wire. */
static inline rv_chunk *encoded_numbers(int64_t first, size_t n, uint64_t episode, bool compress)
{
  rv_error err;
  rv_chunk *chunk = NULL;
  rv_pieces pieces;
  int64_t shape = (int64_t)n, *numbers = malloc(n * sizeof *numbers);
  for (size_t i = 0; i < n; i++) numbers[i] = first + (int64_t)i;
  rv_pieces_init(&pieces);
  must(rv_encode(&pieces, RV_INT64, 0, NULL, numbers, sizeof *numbers, n, false, compress, &err), &err);
  rv_buf *buf = rv_buf_new(pieces.bytes);
  for (size_t i = 0; i < pieces.count; buf->size += pieces.piece[i++].size)
    memcpy(buf->data + buf->size, pieces.piece[i].data, pieces.piece[i].size);
  rv_encoded tensor = {.dtype = RV_INT64, .rank = 1, .shape = &shape, .content = buf->data, .content_size = buf->size};
  rv_chunk_meta meta = {.key = (uint64_t)first, .episode_id = episode, .last_step = (int32_t)n - 1};
  must(rv_chunk_new_encoded(&meta, &tensor, 1, buf, buf->data, buf->size, &chunk, &err), &err);
  rv_pieces_fini(&pieces);
  rv_buf_unref(buf);
  free(numbers);
  return chunk;
}

/* A chunk with one row of one column: an int64. */
static inline rv_chunk *chunk_of(int64_t value, uint64_t episode)
{
  rv_error err;
  rv_chunk *chunk = NULL;
  rv_spec spec = {.name = "", .dtype = RV_INT64};
  rv_chunk_meta meta = {.key = (uint64_t)value, .episode_id = episode};
  rv_tensor cell = {.dtype = RV_INT64, .data = &value};
  must(rv_segment_new(&spec, 1, 1, &meta, &chunk, &err), &err);
  must(rv_segment_put(chunk, 0, 0, &cell, &err), &err);
  rv_segment_publish(chunk, 0, 1);
  return chunk;
}

static inline rv_trajectory *trajectory_of(rv_store *store, rv_chunk *chunk, int32_t offset, int32_t length)
{
  rv_error err;
  rv_trajectory *trajectory = NULL;
  rv_slice slice = {.chunk = chunk, .offset = offset, .length = length};
  uint32_t num_slices = 1;
  bool squeeze = length == 1;
  rv_trajectory_desc desc = {.slices = &slice, .num_slices = &num_slices, .squeeze = &squeeze, .num_columns = 1};
  must(rv_trajectory_new(rv_store_layouts(store), &desc, &trajectory, &err), &err);
  return trajectory;
}

static inline rv_trajectory *single(rv_store *store, int64_t value, uint64_t episode)
{
  rv_chunk *chunk = chunk_of(value, episode);
  rv_trajectory *trajectory = trajectory_of(store, chunk, 0, 1);
  rv_chunk_unref(chunk);
  return trajectory;
}

static inline int64_t value_of(const rv_draw *draw)
{
  rv_error err;
  int64_t value = 0;
  must(rv_draw_copy_column(draw, 0, &value, &err), &err);
  return value;
}

static inline rv_code insert_value(rv_store *store, rv_table *table, uint64_t key, double priority, int64_t value)
{
  rv_insert insert = {.key = key, .priority = priority, .trajectory = single(store, value, (uint64_t)value / 4)};
  insert.waiter.deadline_ns = INT64_MAX;
  rv_submitted submitted = rv_table_insert(table, &insert);
  rv_trajectory_unref(insert.trajectory);
  assert_int_equal(submitted, RV_SUBMIT_DONE);
  return insert.waiter.code;
}

/* n rows of one int64 column: value, value + 1, ... */
static inline rv_submitted add_values(rv_table *table, rv_rows *rows, const int64_t *values, size_t n, uint64_t *keys)
{
  int64_t shape = (int64_t)n;
  rv_tensor column = {.dtype = RV_INT64, .rank = 1, .shape = &shape, .data = values};
  *rows = (rv_rows){.columns = &column, .num_columns = 1, .n = n, .keys = keys};
  rows->waiter.deadline_ns = INT64_MAX;
  return rv_table_insert_rows(table, rows);
}

static inline rv_table_info info_of(rv_table *table)
{
  rv_error err;
  rv_table_info info;
  must(rv_table_get_info(table, &info, &err), &err);
  return info;
}

#endif
