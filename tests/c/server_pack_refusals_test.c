/* Packs of items that are none, that take much more than they bring, and mangled ones. */
#include "support/packs.h"

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
      cmocka_unit_test_setup_teardown(packs_that_do_not_fit_together_end_the_stream_with_a_sentence, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_chunk_that_others_cannot_be_like_is_refused, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_all_items_of_a_pack_have_in_common_is_bounded, set_up, tear_down),
      cmocka_unit_test_setup_teardown(packs_that_wait_stay_below_the_memory_limit_and_go_in_later, set_up_limited, tear_down),
      cmocka_unit_test_setup_teardown(mangled_packs_harm_nobody, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
