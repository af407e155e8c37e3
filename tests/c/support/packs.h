/* Packs of items as a writer sends them, to a server with a table for them and one for the same items alone. Header only. */
#ifndef RV_TEST_PACKS_H
#define RV_TEST_PACKS_H

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/random.h"
#include "place.h"
#include "rig.h"
#include "store/chunk_parts.h"
#include "store/memory.h"
#include "store/table.h"
#include "wire/insert_pack.h"
#include "wire/messages.h"

#define WRITER "000102030405060708090a0b0c0d0e0f"

enum { MANY = 40, MAX_OWN = 3, MAX_TENSORS = 4 };

static test_rig rig;
static test_peer peer;

static inline int set_up(void **state)
{
  (void)state;
  rv_table_config tables[] = {rig_table("alone"), rig_table("packed"), place_queue("q", 2)};
  rig_start(&rig, tables, 3);
  peer_open(&peer, rig.address);
  return 0;
}

static inline int tear_down(void **state)
{
  (void)state;
  peer_close(&peer);
  rig_stop(&rig);
  return 0;
}

static inline test_stream *open_writer(void)
{
  static const rv_metadata metadata[] = {{"reverie-writer", WRITER}};
  return stream_open(&peer, INSERT, metadata, 1);
}

typedef struct like {
  const char *table;
  size_t num_chunks;
  int64_t rows[MAX_OWN], width[MAX_OWN]; /* of the first tensor: each further one is wider by one */
  size_t more_tensors[MAX_OWN];
  bool squeeze;
} like;

typedef struct one {
  uint64_t key, chunks[MAX_OWN], episode;
  double priority;
  int32_t first_step, value;
} one;

static inline one some_item(rv_random *random, uint64_t key)
{
  one item = {.key = key,
              .episode = rv_random_next(random) >> rv_random_below(random, 64),
              .priority = rv_random_below(random, 4) == 0 ? 0 : rv_random_unit(random),
              .first_step = (int32_t)rv_random_below(random, 1000),
              .value = (int32_t)rv_random_below(random, 1 << 30)};
  for (size_t i = 0; i < MAX_OWN; i++) /* their last bits tell them apart: no writer gives two chunks one key */
    item.chunks[i] = (rv_random_next(random) >> rv_random_below(random, 60) & ~UINT64_C(3)) | i;
  return item;
}

/* The ChunkData of an item's chunk. */
static inline rv_buf *chunk_of(const one *item, const like *as, size_t chunk)
{
  const size_t tensors = 1 + as->more_tensors[chunk];
  int64_t rows = as->rows[chunk], widths[MAX_TENSORS];
  rv_spec specs[MAX_TENSORS];
  for (size_t t = 0; t < tensors; t++) {
    widths[t] = as->width[chunk] + (int64_t)t;
    specs[t] = (rv_spec){"", RV_INT32, 1, &widths[t]};
  }
  rv_chunk_meta meta = {.key = item->chunks[chunk],
                        .episode_id = item->episode,
                        .first_step = item->first_step,
                        .last_step = item->first_step + (int32_t)rows - 1};
  rv_chunk *segment = NULL;
  assert_int_equal(rv_segment_new(specs, tensors, (size_t)rows, &meta, &segment, NULL), RV_OK);
  int32_t values[64];
  assert_true(widths[tensors - 1] <= 64);
  for (size_t t = 0; t < tensors; t++) {
    for (int64_t row = 0; row < rows; row++) {
      for (int64_t i = 0; i < widths[t]; i++) values[i] = item->value + (int32_t)(row * widths[t] + i) + (int32_t)t * 1000;
      rv_tensor tensor = {.dtype = RV_INT32, .rank = 1, .shape = &widths[t], .data = values};
      assert_int_equal(rv_segment_put(segment, t, row, &tensor, NULL), RV_OK);
    }
    rv_segment_publish(segment, t, rows);
  }
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  const rv_chunk_encoding encoding = {.key = meta.key, .column = SIZE_MAX, .count = rows};
  assert_int_equal(rv_chunk_serialize(&pieces, segment, &encoding, NULL), RV_OK);
  rv_buf *flat = rv_buf_new(pieces.bytes);
  for (size_t i = 0; i < pieces.count; i++) {
    memcpy(flat->data + flat->size, pieces.piece[i].data, pieces.piece[i].size);
    flat->size += pieces.piece[i].size;
  }
  rv_pieces_fini(&pieces);
  rv_chunk_unref(segment);
  return flat;
}

static inline void put_own_item(rv_writer_buf *out, uint32_t field, const one *item, const like *as, uint64_t sequence)
{
  rv_wire_slice slices[MAX_OWN * MAX_TENSORS];
  uint32_t num_slices[MAX_OWN * MAX_TENSORS], n = 0;
  bool squeeze[MAX_OWN * MAX_TENSORS];
  for (size_t i = 0; i < as->num_chunks; i++) {
    for (size_t t = 0; t <= as->more_tensors[i]; t++, n++) {
      slices[n] = (rv_wire_slice){.chunk_key = item->chunks[i], .length = (int32_t)as->rows[i], .index = (int32_t)t};
      num_slices[n] = 1;
      squeeze[n] = as->squeeze;
    }
  }
  rv_wire_item wire = {.key = item->key,
                       .table = {(const uint8_t *)as->table, strlen(as->table)},
                       .priority = item->priority,
                       .sequence = sequence,
                       .slices = slices,
                       .num_slices = num_slices,
                       .squeeze = squeeze,
                       .num_columns = n,
                       .total_slices = n};
  size_t mark = rv_put_open(out, field);
  rv_wire_item_serialize(out, &wire);
  rv_put_close(out, mark);
}

static inline void insert_alone(test_stream *call, const one *item, const like *as, uint64_t sequence)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  for (size_t i = 0; i < as->num_chunks; i++) {
    rv_buf *chunk = chunk_of(item, as, i);
    rv_put_bytes_always(&body, 1, chunk->data, chunk->size);
    rv_buf_unref(chunk);
  }
  put_own_item(&body, 2, item, as, sequence);
  stream_send(call, &body);
}

/* Key and range, as they stand first, and the rows of each tensor. */
static inline void put_own_parts(rv_writer_buf *out, const rv_buf *message)
{
  rv_span rest, whole = {message->data, message->size};
  rv_chunk_meta meta;
  rv_chunk *chunk;
  assert_true(rv_chunk_head_read(whole, &meta, &rest));
  rv_put_raw(out, message->data, message->size - rest.size);
  assert_int_equal(rv_chunk_parse(NULL, whole, true, &chunk, NULL), RV_OK);
  for (uint32_t i = 0; i < chunk->num_columns; i++)
    rv_put_raw(out, chunk->lanes[i].base, chunk->lanes[i].row_bytes * (size_t)rv_chunk_num_rows(chunk, i));
  rv_chunk_unref(chunk);
}

static inline void put_pack(rv_writer_buf *out, const one *items, size_t n, const like *as, uint64_t sequence)
{
  size_t pack = rv_put_open(out, RV_INSERT_PACK);
  put_own_item(out, RV_PACK_ITEM, &items[0], as, sequence);
  for (size_t i = 0; i < as->num_chunks; i++) {
    rv_buf *chunk = chunk_of(&items[0], as, i);
    rv_put_bytes_always(out, RV_PACK_CHUNKS, chunk->data, chunk->size);
    rv_buf_unref(chunk);
  }
  uint64_t keys[MANY];
  double priorities[MANY];
  size_t rest = rv_put_open(out, RV_PACK_REST);
  for (size_t i = 1; i < n; i++) {
    keys[i - 1] = items[i].key;
    priorities[i - 1] = items[i].priority;
    for (size_t c = 0; c < as->num_chunks; c++) {
      rv_buf *chunk = chunk_of(&items[i], as, c);
      put_own_parts(out, chunk);
      rv_buf_unref(chunk);
    }
  }
  rv_put_close(out, rest);
  rv_put_bytes_always(out, RV_PACK_KEYS, keys, (n - 1) * sizeof *keys);
  rv_put_bytes_always(out, RV_PACK_PRIORITIES, priorities, (n - 1) * sizeof *priorities);
  rv_put_close(out, pack);
}

static inline void insert_packed(test_stream *call, const one *items, size_t n, const like *as, uint64_t sequence)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_pack(&body, items, n, as, sequence);
  stream_send(call, &body);
}

static inline rv_table_info info_of(const char *table)
{
  rv_table_info info = {.size = sizeof info};
  assert_int_equal(rv_table_get_info(rig_find(&rig, table), &info, NULL), RV_OK);
  rv_table_info numbers = info;
  rv_table_info_fini(&info);
  return numbers;
}

static const like plain = {.table = "packed", .num_chunks = 1, .rows = {1}, .width = {2}, .squeeze = true};

static inline void make_items(one *items, size_t n, uint64_t first_key)
{
  for (size_t i = 0; i < n; i++)
    items[i] = (one){.key = first_key + i, .chunks = {1000 + i}, .episode = 1, .priority = 1, .value = (int32_t)i};
}

/* A pack of these items that more fields may follow, of which what comes last counts. Returns what rv_put_close takes. */
static inline size_t put_open_pack(rv_writer_buf *body, const one *items, size_t n, const like *as)
{
  rv_writer_buf whole;
  rv_reader reader;
  rv_field pack;
  rv_writer_buf_init(&whole);
  put_pack(&whole, items, n, as, 1);
  rv_reader_init(&reader, (rv_span){whole.data, whole.size});
  assert_true(rv_reader_next(&reader, &pack));
  size_t mark = rv_put_open(body, RV_INSERT_PACK);
  rv_put_raw(body, pack.bytes.data, pack.bytes.size);
  rv_writer_buf_fini(&whole);
  return mark;
}

#endif
