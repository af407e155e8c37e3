/* Items that come in packs: what they are once they are in, how they are answered, and packs that are none. */
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
#include "store/chunk_parts.h"
#include "store/memory.h"
#include "store/table.h"
#include "support/place.h"
#include "support/rig.h"
#include "wire/insert_pack.h"
#include "wire/messages.h"

#define WRITER "000102030405060708090a0b0c0d0e0f"

enum { MANY = 40, MAX_OWN = 3, MAX_TENSORS = 4 };

static test_rig rig;
static test_peer peer;

static int set_up(void **state)
{
  (void)state;
  rv_table_config tables[] = {rig_table("alone"), rig_table("packed"), place_queue("q", 2)};
  rig_start(&rig, tables, 3);
  peer_open(&peer, rig.address);
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  peer_close(&peer);
  rig_stop(&rig);
  return 0;
}

static test_stream *open_writer(void)
{
  static const rv_metadata metadata[] = {{"reverie-writer", WRITER}};
  return stream_open(&peer, INSERT, metadata, 1);
}

/* ---- items of chunks of their own ---- */

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

static one some_item(rv_random *random, uint64_t key)
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
static rv_buf *chunk_of(const one *item, const like *as, size_t chunk)
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

static void put_own_item(rv_writer_buf *out, uint32_t field, const one *item, const like *as, uint64_t sequence)
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

static void insert_alone(test_stream *call, const one *item, const like *as, uint64_t sequence)
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
static void put_own_parts(rv_writer_buf *out, const rv_buf *message)
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

static void put_pack(rv_writer_buf *out, const one *items, size_t n, const like *as, uint64_t sequence)
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

static void insert_packed(test_stream *call, const one *items, size_t n, const like *as, uint64_t sequence)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_pack(&body, items, n, as, sequence);
  stream_send(call, &body);
}

static rv_table_info info_of(const char *table)
{
  rv_table_info info = {.size = sizeof info};
  assert_int_equal(rv_table_get_info(rig_find(&rig, table), &info, NULL), RV_OK);
  rv_table_info numbers = info;
  rv_table_info_fini(&info);
  return numbers;
}

/* ---- what is in ---- */

static void check_same_item(uint64_t key, const like *as)
{
  rv_draw a, b;
  assert_int_equal(rv_table_get(rig_find(&rig, "alone"), key, &a, NULL), RV_OK);
  assert_int_equal(rv_table_get(rig_find(&rig, "packed"), key, &b, NULL), RV_OK);
  assert_true(a.priority == b.priority && a.times_sampled == b.times_sampled && a.naming == b.naming);
  assert_ptr_equal(a.trajectory->layout, b.trajectory->layout);
  size_t num_slices = 0;
  for (size_t i = 0; i < as->num_chunks; i++) num_slices += 1 + as->more_tensors[i];
  assert_int_equal(a.trajectory->num_slices, num_slices);
  assert_int_equal(b.trajectory->num_slices, num_slices);
  for (uint32_t i = 0; i < a.trajectory->num_slices; i++) {
    rv_slice x = rv_draw_slice(&a, i), y = rv_draw_slice(&b, i);
    assert_true(x.tensor == y.tensor && x.offset == y.offset && x.length == y.length);
    assert_ptr_not_equal(x.chunk, y.chunk);
    const rv_chunk_meta *p = rv_chunk_get_meta(x.chunk), *q = rv_chunk_get_meta(y.chunk);
    assert_true(p->key == q->key && p->episode_id == q->episode_id && p->first_step == q->first_step &&
                p->last_step == q->last_step && p->sparse == q->sparse);
    const uint8_t *wire_x, *wire_y; /* what is sent, saved and journaled */
    size_t size_x, size_y;
    assert_true(rv_chunk_wire(x.chunk, &wire_x, &size_x) != NULL && rv_chunk_wire(y.chunk, &wire_y, &size_y) != NULL);
    assert_int_equal(size_x, size_y);
    assert_memory_equal(wire_x, wire_y, size_x);
    size_t memory_x = rv_chunk_memory(x.chunk),
           memory_y = rv_chunk_memory(y.chunk); /* what several have in common is counted once */
    assert_true(memory_x > size_x && memory_y > size_y && memory_x <= 2 * memory_y && memory_y <= 2 * memory_x);
  }
  rv_draw_release(&a);
  rv_draw_release(&b);
}

static void the_items_of_a_pack_are_what_each_would_be_alone(void **state)
{
  (void)state;
  rv_random random;
  uint64_t seed = (uint64_t)time(NULL), next_key = 1;
  const char *given = getenv("RV_TEST_SEED");
  if (given != NULL) seed = strtoull(given, NULL, 0);
  print_message("seed %" PRIu64 " (RV_TEST_SEED repeats it)\n", seed);
  rv_random_init(&random, seed);
  test_stream *call = open_writer();
  assert_string_equal(stream_header(call, "reverie-packs"), "2");
  uint64_t sequence = 1, confirmed[2 * MANY];
  for (int round = 0; round < 12; round++) {
    like as = {.num_chunks = 1 + rv_random_below(&random, MAX_OWN), .squeeze = rv_random_below(&random, 2) == 0};
    for (size_t i = 0; i < as.num_chunks; i++) {
      as.rows[i] = as.squeeze ? 1 : 1 + rv_random_below(&random, 4);
      as.width[i] = rv_random_below(&random, 33);
      as.more_tensors[i] = rv_random_below(&random, 3) == 0 ? rv_random_below(&random, MAX_TENSORS) : 0;
    }
    one items[MANY];
    size_t n = 1 + rv_random_below(&random, MANY);
    for (size_t i = 0; i < n; i++) items[i] = some_item(&random, next_key++);
    as.table = "alone";
    for (size_t i = 0; i < n; i++) insert_alone(call, &items[i], &as, sequence++);
    as.table = "packed";
    insert_packed(call, items, n, &as, sequence);
    sequence += n;
    expect_keys(call, confirmed, 2 * n);
    for (size_t i = 0; i < n; i++) {
      assert_int_equal(confirmed[2 * i], items[i].key);
      check_same_item(items[i].key, &as);
    }
  }
  rv_table_info alone = info_of("alone"), packed = info_of("packed");
  assert_true(alone.inserts == packed.inserts && alone.updates == packed.updates && alone.current_size == packed.current_size &&
              alone.num_episodes == packed.num_episodes && alone.num_unique_samples == packed.num_unique_samples);
  uint64_t cursors[2] = {0, 0};
  do { /* and in the same order */
    rv_item_info a[7], b[7];
    size_t counts[2];
    assert_int_equal(rv_table_items(rig_find(&rig, "alone"), &cursors[0], a, 7, &counts[0], NULL), RV_OK);
    assert_int_equal(rv_table_items(rig_find(&rig, "packed"), &cursors[1], b, 7, &counts[1], NULL), RV_OK);
    assert_int_equal(counts[0], counts[1]);
    for (size_t i = 0; i < counts[0]; i++) assert_true(a[i].key == b[i].key && a[i].length == b[i].length);
  } while (cursors[0] != 0);
  assert_int_equal(cursors[1], 0);
  stream_free(call);
}

/* ---- answers ---- */

static const like plain = {.table = "packed", .num_chunks = 1, .rows = {1}, .width = {2}, .squeeze = true};

static void make_items(one *items, size_t n, uint64_t first_key)
{
  for (size_t i = 0; i < n; i++)
    items[i] = (one){.key = first_key + i, .chunks = {1000 + i}, .episode = 1, .priority = 1, .value = (int32_t)i};
}

static void items_of_a_pack_that_were_in_are_confirmed_and_not_inserted_again(void **state)
{
  (void)state;
  one items[6];
  uint64_t keys[6];
  make_items(items, 6, 1);
  test_stream *call = open_writer();
  insert_packed(call, items, 3, &plain, 1);
  expect_keys(call, keys, 3);
  size_t unknown;
  assert_int_equal(rv_table_mutate(rig_find(&rig, "packed"), NULL, 0, &items[1].key, 1, NULL, &unknown, NULL), RV_OK);
  insert_packed(call, items, 6, &plain, 1);
  expect_keys(call, keys, 6);
  for (size_t i = 0; i < 6; i++) assert_int_equal(keys[i], i + 1);
  rv_table_info info = info_of("packed");
  assert_true(info.inserts == 6 && info.updates == 0 && info.current_size == 5);
  stream_free(call);
}

static void an_item_of_a_pack_that_is_refused_leaves_the_others(void **state)
{
  (void)state;
  one items[5];
  uint64_t keys[5], key;
  char message[RV_ERROR_MESSAGE_MAX];
  make_items(items, 5, 1);
  items[2].priority = (double)NAN;
  test_stream *call = open_writer();
  insert_packed(call, items, 5, &plain, 1);
  assert_int_equal(expect_failure(call, &key, message), RV_INVALID_ARGUMENT);
  assert_int_equal(key, 3);
  assert_int_equal(info_of("packed").inserts, 4);
  like nowhere = plain;
  nowhere.table = "nowhere";
  make_items(items, 1, 20);
  insert_packed(call, items, 1, &nowhere, 6);
  assert_int_equal(expect_failure(call, &key, message), RV_NOT_FOUND);
  assert_int_equal(key, 20);
  make_items(items, 2, 30);
  insert_packed(call, items, 2, &plain, 7); /* and the stream goes on */
  expect_keys(call, keys, 2);
  stream_free(call);
}

static void items_of_a_pack_wait_for_the_limiter_one_by_one(void **state)
{
  (void)state;
  one items[6];
  uint64_t keys[6];
  make_items(items, 6, 1);
  like queued = plain;
  queued.table = "q";
  test_stream *call = open_writer();
  insert_packed(call, items, 6, &queued, 1);
  rig_wait_for_waiting(&rig, "q", 4, 0);
  test_stream *sampler = stream_open(&peer, SAMPLE, NULL, 0);
  ask_samples(sampler, "q", 6, -1);
  assert_int_equal(read_samples(sampler, keys, 6), 6);
  for (size_t i = 0; i < 6; i++) assert_int_equal(keys[i], i + 1);
  expect_keys(call, keys, 6);
  stream_free(sampler);
  stream_free(call);
}

static void items_of_a_pack_that_wait_are_in_the_account_of_memory(void **state)
{
  (void)state;
  one items[MANY];
  uint64_t keys[2];
  like queued = plain;
  queued.table = "q";
  queued.width[0] = 64;
  const rv_memory *memory = rv_store_memory(rig.store);
  test_stream *call = open_writer();
  make_items(items, 2, 1);
  insert_packed(call, items, 2, &queued, 1);
  expect_keys(call, keys, 2);
  size_t before = rv_memory_used(memory);
  make_items(items, MANY, 3);
  insert_packed(call, items, MANY, &queued, 3);
  rig_wait_for_waiting(&rig, "q", MANY, 0);
  assert_true(rv_memory_used(memory) >= before + MANY * 64 * sizeof(int32_t));
  stream_free(call);
}

/* As those of single items do in a store that keeps cold chunks elsewhere. */
static void chunks_of_a_pack_can_move_where_a_store_moves_them(void **state)
{
  (void)state;
  one items[MANY];
  like large = plain;
  large.squeeze = false;
  large.rows[0] = 5;
  large.width[0] = 64;
  make_items(items, MANY, 1);
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_pack(&body, items, MANY, &large, 1);
  rv_insert_request request;
  rv_insert_pack pack;
  assert_int_equal(rv_insert_request_parse((rv_span){body.data, body.size}, &request, NULL), RV_OK);
  assert_int_equal(rv_insert_pack_begin(&pack, request.pack, true, NULL, NULL), RV_OK);
  for (size_t i = 0; i < MANY; i++) {
    const uint8_t *bytes;
    size_t size;
    assert_int_equal(rv_insert_pack_next(&pack, NULL), RV_OK);
    assert_true(rv_chunk_movable(pack.chunks[0], &bytes, &size));
    rv_buf *expected = chunk_of(&items[i], &large, 0);
    assert_int_equal(size, expected->size);
    assert_memory_equal(bytes, expected->data, size);
    rv_buf_unref(expected);
  }
  rv_insert_pack_fini(&pack);
  rv_insert_request_fini(&request);
  rv_writer_buf_fini(&body);
}

/* A pack's chunks are its items' own. */
static void no_other_item_can_have_the_chunks_of_a_pack(void **state)
{
  (void)state;
  one items[2];
  uint64_t keys[2], key;
  char message[RV_ERROR_MESSAGE_MAX];
  make_items(items, 2, 1);
  test_stream *call = open_writer();
  insert_packed(call, items, 2, &plain, 1);
  expect_keys(call, keys, 2);
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_item(&body, 9, (item_options){.table = "packed", .priority = 1, .chunk = 1000, .sequence = 3});
  stream_send(call, &body);
  assert_int_equal(expect_failure(call, &key, message), RV_INTERNAL);
  stream_free(call);
}

/* A pack of these items that more fields may follow, of which what comes last counts. Returns what rv_put_close takes. */
static size_t put_open_pack(rv_writer_buf *body, const one *items, size_t n, const like *as)
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

/* Found by key, the first item's first slice lies in the last chunk, which has the rows; its place is that of the first, which has not. */
static void chunks_of_one_key_in_a_pack_give_no_rows_that_are_not_there(void **state)
{
  (void)state;
  one items[2];
  uint64_t key;
  char message[RV_ERROR_MESSAGE_MAX];
  like as = {.table = "packed", .num_chunks = 3, .rows = {1, 1, 4}, .width = {2, 2, 2}}, said = as;
  said.rows[0] = 4;
  make_items(items, 2, 1);
  memcpy(items[0].chunks, (const uint64_t[]){5, 7, 5}, sizeof items[0].chunks);
  memcpy(items[1].chunks, (const uint64_t[]){15, 17, 18}, sizeof items[1].chunks);
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  size_t mark = put_open_pack(&body, items, 2, &as);
  put_own_item(&body, RV_PACK_ITEM, &items[0], &said, 1);
  rv_put_close(&body, mark);
  test_stream *call = open_writer();
  stream_send(call, &body);
  assert_int_equal(expect_failure(call, &key, message), RV_INVALID_ARGUMENT);
  assert_int_equal(key, 2);
  assert_int_equal(info_of("packed").inserts, 1);
  stream_free(call);
}

/* ---- packs that are none ---- */

static void expect_refusal(const void *bytes, size_t size, const char *why)
{
  char message[RV_ERROR_MESSAGE_MAX];
  test_stream *call = open_writer();
  stream_send_bytes(call, bytes, size);
  assert_int_equal(stream_end(call, message), RV_INVALID_ARGUMENT);
  if (strstr(message, why) == NULL) fail_msg("\"%s\" does not say \"%s\"", message, why);
  stream_free(call);
}

static void refuse_fields(const one *items, size_t n, const like *as, uint32_t field, const void *bytes, size_t size,
                          const char *why)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  size_t mark = put_open_pack(&body, items, n, as);
  rv_put_bytes_always(&body, field, bytes, size);
  rv_put_close(&body, mark);
  expect_refusal(body.data, body.size, why);
  rv_writer_buf_fini(&body);
}

static void packs_that_do_not_fit_together_end_the_stream_with_a_sentence(void **state)
{
  (void)state;
  one items[3];
  make_items(items, 3, 1);
  static const uint8_t zeros[256];
  refuse_fields(items, 3, &plain, RV_PACK_KEYS, zeros, 15, "8 an item");
  refuse_fields(items, 3, &plain, RV_PACK_PRIORITIES, zeros, 8, "8 an item");
  refuse_fields(items, 3, &plain, RV_PACK_REST, zeros, 0, "are not there");
  refuse_fields(items, 1, &plain, RV_PACK_REST, zeros, 9, "behind the last");
  refuse_fields(items, 3, &plain, RV_PACK_ITEM, "\x08\x05\x42\x06\x0A\x04\x0A\x02\x08\x63", 10, "which is not in the pack");
  refuse_fields(items, 3, &plain, RV_PACK_ITEM, "\x12\x02\xC3\x28", 4, "UTF-8");
  refuse_fields(items, 3, &plain, RV_PACK_CHUNKS, "\x08\x05", 2, "without tensors");
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_pack(&body, items, 2, &plain, 1);
  put_pack(&body, items, 2, &plain, 3);
  expect_refusal(body.data, body.size, "one or none");
  rv_writer_buf_fini(&body);
}

static void a_chunk_that_others_cannot_be_like_is_refused(void **state)
{
  (void)state;
  one items[2];
  make_items(items, 2, 1);
  /* a tensor of one uint8, and one of five that is compressed: a literal, and a copy of it */
#define TENSOR 0x0A, 0x0D, 0x08, 0x04, 0x12, 0x04, 0x12, 0x02, 0x08, 0x01, 0x22, 0x03, 0x01, 0x00, 0x61
#define COMPRESSED                                                                                                               \
  0x0A, 0x13, 0x08, 0x04, 0x12, 0x08, 0x12, 0x02, 0x08, 0x01, 0x12, 0x02, 0x08, 0x05, 0x22, 0x05, 0x05, 0x00, 0x61, 0x01, 0x01
  static const uint8_t one_compressed[] = {0x08, 0x05, 0x12, 0x02, 0x10, 0x01, 0x2A, 0x24, TENSOR, COMPRESSED};
  static const uint8_t no_range[] = {0x08, 0x05, 0x2A, 0x0F, TENSOR};
  static const uint8_t tensor[] = {TENSOR};
#undef COMPRESSED
#undef TENSOR
  refuse_fields(items, 2, &plain, RV_PACK_CHUNKS, one_compressed, sizeof one_compressed, "not compressed");
  refuse_fields(items, 2, &plain, RV_PACK_CHUNKS, no_range, sizeof no_range, "behind its key and its range");
  for (int tensors = 33; tensors <= 65; tensors += 32) { /* twice 33 are too many, and 65 of one chunk */
    rv_writer_buf chunk, twice;
    rv_writer_buf_init(&chunk);
    rv_writer_buf_init(&twice);
    rv_put_varint(&chunk, 1, 5);
    rv_put_bytes_always(&chunk, 2, "\x10\x01", 2);
    size_t data = rv_put_open(&chunk, 5);
    for (int i = 0; i < tensors; i++) rv_put_raw(&chunk, tensor, sizeof tensor);
    rv_put_close(&chunk, data);
    size_t mark = put_open_pack(&twice, items, 1, &plain);
    for (int i = 0; i < 2; i++) rv_put_bytes_always(&twice, RV_PACK_CHUNKS, chunk.data, chunk.size);
    rv_put_close(&twice, mark);
    expect_refusal(twice.data, twice.size, tensors == 33 ? "more than 64 tensors together" : "one to 64 tensors");
    rv_writer_buf_fini(&twice);
    rv_writer_buf_fini(&chunk);
  }
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  size_t pack = rv_put_open(&body, RV_INSERT_PACK);
  for (int i = 0; i <= RV_PACK_CHUNKS_MAX; i++) rv_put_bytes_always(&body, RV_PACK_CHUNKS, no_range, sizeof no_range);
  rv_put_close(&body, pack);
  expect_refusal(body.data, body.size, "at most 64");
  rv_writer_buf_fini(&body);
}

/* ---- packs that take much more than they bring ---- */

/* `n` items of `chunks` chunks, each one uint8 and so many bytes that nobody knows; slices go over them in turn, a column each. A further
 * item has 16 bytes of its own, and 6 a chunk. */
static void put_heavy_pack(rv_writer_buf *out, const char *table, uint64_t first_key, size_t n, size_t chunks, size_t unknown,
                           size_t slices)
{
  static const uint8_t range[] = {0x12, 0x00}, row[] = {0x07}, nothing[100000];
  static const uint8_t data[] = {0x2A, 0x0F, 0x0A, 0x0D, 0x08, 0x04, 0x12, 0x04, 0x12,
                                 0x02, 0x08, 0x01, 0x22, 0x03, 0x01, 0x00, 0x07};
  size_t pack = rv_put_open(out, RV_INSERT_PACK);
  size_t item = rv_put_open(out, RV_PACK_ITEM);
  rv_put_varint(out, 1, first_key);
  rv_put_string(out, 2, table);
  rv_put_double(out, 5, 1);
  size_t trajectory = rv_put_open(out, 8);
  for (size_t i = 0; i < slices; i++) {
    size_t column = rv_put_open(out, 1), slice = rv_put_open(out, 1);
    rv_put_varint(out, 1, 1 + i % chunks);
    rv_put_varint(out, 3, 1);
    rv_put_close(out, slice);
    rv_put_close(out, column);
  }
  rv_put_close(out, trajectory);
  rv_put_close(out, item);
  for (size_t i = 0; i < chunks; i++) {
    size_t chunk = rv_put_open(out, RV_PACK_CHUNKS);
    rv_put_varint(out, 1, 1 + i);
    rv_put_raw(out, range, sizeof range);
    rv_put_raw(out, data, sizeof data);
    if (unknown > 0) rv_put_bytes(out, 99, nothing, unknown - 3 - (unknown > 130));
    rv_put_close(out, chunk);
  }
  size_t words = rv_put_open(out, RV_PACK_KEYS);
  for (uint64_t i = 1; i < n; i++) rv_put_raw(out, &(uint64_t){first_key + i}, sizeof(uint64_t));
  rv_put_close(out, words);
  words = rv_put_open(out, RV_PACK_PRIORITIES);
  for (size_t i = 1; i < n; i++) rv_put_raw(out, &(double){1}, sizeof(double));
  rv_put_close(out, words);
  size_t rest = rv_put_open(out, RV_PACK_REST);
  for (uint64_t i = 0; i < (n - 1) * chunks; i++) {
    rv_put_varint(out, 1, 1000 + i);
    rv_put_raw(out, range, sizeof range);
    rv_put_raw(out, row, sizeof row);
  }
  rv_put_close(out, rest);
  rv_put_close(out, pack);
}

static void refuse_heavy(size_t chunks, size_t unknown, size_t slices, const char *why)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_heavy_pack(&body, "packed", 1, 3, chunks, unknown, slices);
  expect_refusal(body.data, body.size, why);
  rv_writer_buf_fini(&body);
}

/* Each further item would have a copy of what the first one's sender sent once. */
static void what_all_items_of_a_pack_have_in_common_is_bounded(void **state)
{
  (void)state;
  refuse_heavy(1, 100000, 1, "besides key, range and rows");
  refuse_heavy(2, 300, 2, "besides key, range and rows");
  refuse_heavy(2, 0, RV_PACK_SLICES_MAX + 1, "257 slices");
  uint64_t keys[3];
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_heavy_pack(&body, "packed", 1, 3, RV_PACK_CHUNKS_MAX, 200, RV_PACK_SLICES_MAX);
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  stream_send(call, &body);
  expect_keys(call, keys, 3);
  assert_int_equal(rig_size(&rig, "packed"), 3);
  stream_free(call);
}

enum { HEAVY_LIMIT = 4 << 20, HEAVY_STREAMS = 4, HEAVY_ITEMS = 64 };

static int set_up_limited(void **state)
{
  (void)state;
  rv_table_config tables[] = {place_queue("q", 1)};
  rig_start_limited(&rig, tables, 1, HEAVY_LIMIT);
  peer_open(&peer, rig.address);
  return 0;
}

static void packs_that_wait_stay_below_the_memory_limit_and_go_in_later(void **state)
{
  (void)state;
  const rv_memory *memory = rv_store_memory(rig.store);
  test_stream *calls[HEAVY_STREAMS];
  uint64_t keys[HEAVY_ITEMS], key;
  for (uint64_t i = 0; i < HEAVY_STREAMS; i++) {
    rv_writer_buf body;
    rv_writer_buf_init(&body);
    put_heavy_pack(&body, "q", 1 + i * HEAVY_ITEMS, HEAVY_ITEMS, RV_PACK_CHUNKS_MAX, 200, RV_PACK_CHUNKS_MAX);
    assert_true(body.size * HEAVY_STREAMS < HEAVY_LIMIT / 2);
    calls[i] = stream_open(&peer, INSERT, NULL, 0);
    stream_send(calls[i], &body);
  }
  test_stream *samples = stream_open(&peer, SAMPLE, NULL, 0);
  for (size_t i = 0; i < (size_t)HEAVY_STREAMS * HEAVY_ITEMS; i++) {
    assert_true(rv_memory_used(memory) <= HEAVY_LIMIT);
    ask_samples(samples, "q", 1, -1);
    assert_int_equal(read_samples(samples, &key, 1), 1);
  }
  for (size_t i = 0; i < HEAVY_STREAMS; i++) {
    expect_keys(calls[i], keys, HEAVY_ITEMS);
    stream_free(calls[i]);
  }
  stream_free(samples);
}

/* Cut and changed anywhere: an answer of some kind, and a server that goes on. */
static void mangled_packs_harm_nobody(void **state)
{
  (void)state;
  rv_random random;
  rv_random_init(&random, 5);
  one items[4];
  make_items(items, 4, 1);
  for (int round = 0; round < 150; round++) {
    rv_writer_buf body;
    rv_writer_buf_init(&body);
    put_pack(&body, items, 4, &plain, 1);
    for (uint32_t n = rv_random_below(&random, 3); n > 0; n--)
      body.data[rv_random_below(&random, (uint32_t)body.size)] = (uint8_t)rv_random_next(&random);
    if (rv_random_below(&random, 3) == 0) body.size = rv_random_below(&random, (uint32_t)body.size) + 1;
    test_stream *call = stream_open(&peer, INSERT, NULL, 0);
    stream_send(call, &body);
    stream_half_close(call);
    (void)stream_end(call, NULL);
    stream_free(call);
  }
  uint64_t keys[4];
  make_items(items, 4, 500);
  test_stream *call = open_writer();
  insert_packed(call, items, 4, &plain, 1);
  expect_keys(call, keys, 4);
  stream_free(call);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(the_items_of_a_pack_are_what_each_would_be_alone, set_up, tear_down),
      cmocka_unit_test_setup_teardown(items_of_a_pack_that_were_in_are_confirmed_and_not_inserted_again, set_up, tear_down),
      cmocka_unit_test_setup_teardown(an_item_of_a_pack_that_is_refused_leaves_the_others, set_up, tear_down),
      cmocka_unit_test_setup_teardown(items_of_a_pack_wait_for_the_limiter_one_by_one, set_up, tear_down),
      cmocka_unit_test_setup_teardown(items_of_a_pack_that_wait_are_in_the_account_of_memory, set_up, tear_down),
      cmocka_unit_test_setup_teardown(chunks_of_a_pack_can_move_where_a_store_moves_them, set_up, tear_down),
      cmocka_unit_test_setup_teardown(no_other_item_can_have_the_chunks_of_a_pack, set_up, tear_down),
      cmocka_unit_test_setup_teardown(chunks_of_one_key_in_a_pack_give_no_rows_that_are_not_there, set_up, tear_down),
      cmocka_unit_test_setup_teardown(packs_that_do_not_fit_together_end_the_stream_with_a_sentence, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_chunk_that_others_cannot_be_like_is_refused, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_all_items_of_a_pack_have_in_common_is_bounded, set_up, tear_down),
      cmocka_unit_test_setup_teardown(packs_that_wait_stay_below_the_memory_limit_and_go_in_later, set_up_limited, tear_down),
      cmocka_unit_test_setup_teardown(mangled_packs_harm_nobody, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
