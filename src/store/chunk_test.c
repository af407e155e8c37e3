#include "store/testing.h"

#include "store/chunk_parts.h"
#include "tensor/codec.h"

enum { ROWS = 50 };

/* ---- segments ---- */

/* Whoever reads what was lent of it may not have read it yet when its chunk needs it no more. */
static void a_segment_is_not_used_again_while_its_memory_is_lent(void **state)
{
  (void)state;
  enum { SIZE = 40000 };
  static const int64_t shape[] = {SIZE};
  const rv_spec spec = {.name = "", .dtype = RV_UINT8, .rank = 1, .shape = shape};
  rv_error err;
  rv_arena *arena;
  rv_chunk *chunk;
  rv_chunk_meta meta = {.key = 7};
  must(rv_arena_new(64 << 20, &arena, &err), &err);
  rv_spares *spares = rv_spares_new(0);
  rv_spares_use_arena(spares, arena);
  must(rv_segment_new_from(&spec, 1, 1, &meta, &(rv_segment_source){.spares = spares}, &chunk, &err), &err);
  rv_segment_publish(chunk, 0, 1);
  uint64_t offset;
  size_t stride;
  const void *row = rv_chunk_rows_in_place(chunk, 0, 0, 1, &stride);
  rv_buf *owner = rv_arena_find(arena, row, SIZE, &offset);
  assert_non_null(owner);
  assert_true(rv_segment_reuse(chunk, &meta));
  rv_buf_ref(owner);
  assert_false(rv_segment_reuse(chunk, &meta));
  rv_buf_unref(owner);
  assert_true(rv_segment_reuse(chunk, &meta));
  rv_chunk_unref(chunk);
  rv_spares_close(spares);
  rv_arena_unref(arena);
}

/* Whatever their size, and wherever they lie. */
static void rows_put_for_later_read_back_as_they_were_put(void **state)
{
  (void)state;
  enum { SIZE = 40001, COUNT = 3 };
  static const int64_t large_shape[] = {SIZE};
  static uint8_t row[SIZE], got[SIZE];
  static const rv_spec specs[] = {{.name = "", .dtype = RV_UINT8, .rank = 1, .shape = large_shape},
                                  {.name = "", .dtype = RV_INT32},
                                  {.name = "", .dtype = RV_STRING}};
  rv_error err;
  rv_chunk *chunk;
  rv_chunk_meta meta = {.key = 7};
  must(rv_segment_new(specs, 3, COUNT, &meta, &chunk, &err), &err);
  for (int32_t r = 0; r < COUNT; r++) {
    rv_bytes string = {"four", 4}, strings[1];
    rv_tensor large = {RV_UINT8, 1, large_shape, row}, small = {RV_INT32, 0, NULL, &r}, text = {RV_STRING, 0, NULL, &string};
    for (size_t i = 0; i < SIZE; i++) row[i] = (uint8_t)(i * 7 + (i >> 9) + (size_t)r);
    must(rv_segment_put_for_later(chunk, 0, r, &large, &err), &err);
    must(rv_segment_put_for_later(chunk, 1, r, &small, &err), &err);
    must(rv_segment_put_for_later(chunk, 2, r, &text, &err), &err);
    for (size_t c = 0; c < 3; c++) rv_segment_publish(chunk, c, r + 1);
    int32_t number;
    must(rv_chunk_copy_rows(chunk, 0, r, 1, got, &err), &err);
    must(rv_chunk_copy_rows(chunk, 1, r, 1, &number, &err), &err);
    must(rv_chunk_copy_rows(chunk, 2, r, 1, strings, &err), &err);
    assert_memory_equal(got, row, SIZE);
    assert_int_equal(number, r);
    assert_int_equal(strings[0].size, 4);
    assert_memory_equal(strings[0].data, "four", 4);
  }
  rv_chunk_unref(chunk);
}

static const int64_t shape4[] = {4}, shape_large[] = {100};
static const rv_spec mixed[] = {{.name = "", .dtype = RV_FLOAT32, .rank = 1, .shape = shape4},
                                {.name = "", .dtype = RV_BOOL},
                                {.name = "", .dtype = RV_FLOAT64, .rank = 1, .shape = shape_large},
                                {.name = "", .dtype = RV_STRING},
                                {.name = "", .dtype = RV_INT64}};
enum { MIXED = sizeof mixed / sizeof mixed[0] };

static rv_chunk *mixed_segment(void)
{
  rv_error err;
  rv_chunk *chunk;
  rv_chunk_meta meta = {.key = 7, .episode_id = 8, .first_step = 2, .last_step = 2};
  must(rv_segment_new(mixed, MIXED, ROWS, &meta, &chunk, &err), &err);
  return chunk;
}

static void put_mixed(rv_chunk *chunk, int64_t row)
{
  rv_error err;
  float small[4];
  double large[100];
  uint8_t flag = (uint8_t)(row % 2);
  char text[32];
  for (int i = 0; i < 4; i++) small[i] = (float)(row * 10 + i);
  for (int i = 0; i < 100; i++) large[i] = (double)(row * 1000 + i);
  snprintf(text, sizeof text, "row %lld", (long long)row);
  rv_bytes string = {text, row == 3 ? 0 : strlen(text)};
  rv_tensor cells[MIXED] = {{RV_FLOAT32, 1, shape4, small},
                            {RV_BOOL, 0, NULL, &flag},
                            {RV_FLOAT64, 1, shape_large, large},
                            {RV_STRING, 0, NULL, &string},
                            {RV_INT64, 0, NULL, &row}};
  for (size_t c = 0; c < MIXED; c++) must(rv_segment_put(chunk, c, row, &cells[c], &err), &err);
}

static void a_row_put_for_later_is_checked_as_any(void **state)
{
  (void)state;
  rv_chunk *chunk = mixed_segment();
  rv_error err;
  uint8_t value = 1;
  rv_tensor wrong = {RV_UINT8, 0, NULL, &value};
  assert_int_equal(rv_segment_put_for_later(chunk, 4, 0, &wrong, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_segment_put_for_later(chunk, MIXED, 0, &wrong, &err), RV_INVALID_ARGUMENT);
  rv_segment_publish(chunk, 4, 1);
  assert_int_equal(rv_segment_put_for_later(chunk, 4, 0, &wrong, &err), RV_OUT_OF_RANGE);
  rv_chunk_unref(chunk);
}

static void rows_of_a_segment_read_back_as_they_were_put(void **state)
{
  (void)state;
  rv_chunk *chunk = mixed_segment();
  rv_error err;
  for (int64_t row = 0; row < ROWS; row++) {
    put_mixed(chunk, row);
    for (size_t c = 0; c < MIXED; c++) rv_segment_publish(chunk, c, row + 1);
  }
  float small[ROWS * 4];
  double large[100];
  rv_bytes strings[ROWS];
  int64_t numbers[10];
  must(rv_chunk_copy_rows(chunk, 0, 0, ROWS, small, &err), &err);
  must(rv_chunk_copy_rows(chunk, 2, 17, 1, large, &err), &err);
  must(rv_chunk_copy_rows(chunk, 3, 0, ROWS, strings, &err), &err);
  must(rv_chunk_copy_rows(chunk, 4, 40, 10, numbers, &err), &err);
  for (int i = 0; i < ROWS * 4; i++) assert_true(small[i] == (float)(i / 4 * 10 + i % 4));
  for (int i = 0; i < 100; i++) assert_true(large[i] == 17000 + i);
  for (int i = 0; i < 10; i++) assert_int_equal(numbers[i], 40 + i);
  assert_int_equal(strings[3].size, 0);
  assert_int_equal(strings[49].size, 6);
  assert_memory_equal(strings[49].data, "row 49", 6);
  rv_chunk_unref(chunk);
}

static void columns_are_published_one_by_one(void **state)
{
  (void)state;
  rv_chunk *chunk = mixed_segment();
  put_mixed(chunk, 0);
  rv_segment_publish(chunk, 1, 1);
  assert_int_equal(rv_chunk_num_rows(chunk, 1), 1);
  assert_int_equal(rv_chunk_num_rows(chunk, 4), 0);
  size_t stride;
  int64_t number;
  rv_error err;
  assert_null(rv_chunk_rows_in_place(chunk, 4, 0, 1, &stride));
  assert_int_equal(rv_chunk_copy_rows(chunk, 4, 0, 1, &number, &err), RV_OUT_OF_RANGE);
  rv_segment_publish(chunk, 4, 1);
  const int64_t *in_place = rv_chunk_rows_in_place(chunk, 4, 0, 1, &stride);
  assert_non_null(in_place);
  assert_int_equal(*in_place, 0);
  rv_chunk_unref(chunk);
}

static void small_columns_stand_beside_each_other_and_large_ones_apart(void **state)
{
  (void)state;
  rv_chunk *chunk = mixed_segment();
  size_t small, flag, large, number;
  uint8_t *a = rv_segment_row(chunk, 0, 5, &small), *b = rv_segment_row(chunk, 1, 5, &flag);
  uint8_t *d = rv_segment_row(chunk, 4, 5, &number);
  rv_segment_row(chunk, 2, 5, &large);
  assert_int_equal(small, flag);
  assert_int_equal(small, number);
  assert_true((size_t)(a > b ? a - b : b - a) < small && (size_t)(a > d ? a - d : d - a) < small);
  assert_int_equal(large, 800);
  assert_null(rv_segment_row(chunk, 3, 5, &small));
  rv_chunk_unref(chunk);
}

static size_t stride_of_first(size_t row_bytes, uint32_t num_columns, uint64_t episode)
{
  const int64_t shape[] = {(int64_t)row_bytes};
  rv_spec specs[4];
  for (uint32_t c = 0; c < num_columns; c++) specs[c] = (rv_spec){.name = "", .dtype = RV_UINT8, .rank = 1, .shape = shape};
  rv_chunk *chunk;
  rv_error err;
  must(rv_segment_new(specs, num_columns, 10, &(rv_chunk_meta){.key = 7, .episode_id = episode}, &chunk, &err), &err);
  size_t stride = chunk->lanes[0].stride;
  rv_chunk_unref(chunk);
  return stride;
}

/* Items have one row each of those of no episode: they are copied together from one place, as far as they are copied at once. */
static void medium_columns_stand_beside_each_other_where_items_are_rows(void **state)
{
  (void)state;
  enum { EPISODE = 5 };
  assert_int_equal(stride_of_first(255, 2, EPISODE), 510);
  assert_int_equal(stride_of_first(256, 2, EPISODE), 256);
  assert_int_equal(stride_of_first(256, 2, RV_NO_EPISODE), 512);
  assert_int_equal(stride_of_first(767, 2, RV_NO_EPISODE), 1534);
  assert_int_equal(stride_of_first(768, 2, RV_NO_EPISODE), 768);
  assert_int_equal(stride_of_first(512, 4, RV_NO_EPISODE), 2048);
  assert_int_equal(stride_of_first(520, 4, RV_NO_EPISODE), 520); /* more than 2 KiB in all */
}

static void what_does_not_fit_a_segment_is_refused(void **state)
{
  (void)state;
  rv_error err;
  rv_chunk *chunk = mixed_segment(), *none;
  float small[4] = {0};
  rv_tensor wrong_dtype = {RV_INT32, 1, shape4, small}, wrong_shape = {RV_FLOAT32, 1, shape_large, small};
  rv_tensor right = {RV_FLOAT32, 1, shape4, small};
  assert_int_equal(rv_segment_put(chunk, 0, 0, &wrong_dtype, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "float32[4]"));
  assert_int_equal(rv_segment_put(chunk, 0, 0, &wrong_shape, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_segment_put(chunk, 9, 0, &right, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_segment_put(chunk, 0, ROWS, &right, &err), RV_OUT_OF_RANGE);
  rv_segment_publish(chunk, 0, 2);
  assert_int_equal(rv_segment_put(chunk, 0, 1, &right, &err), RV_OUT_OF_RANGE);
  rv_chunk_meta meta = {0};
  int64_t negative[] = {-1}, huge[] = {INT64_MAX / 8};
  rv_spec unknown = {.dtype = RV_FLOAT32, .rank = -1}, odd = {.dtype = RV_FLOAT32, .rank = 1, .shape = negative};
  rv_spec large = {.dtype = RV_FLOAT32, .rank = 1, .shape = huge}, no_dtype = {.dtype = (rv_dtype)99};
  assert_int_equal(rv_segment_new(&unknown, 1, 1, &meta, &none, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_segment_new(&odd, 1, 1, &meta, &none, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_segment_new(&large, 1, 1000, &meta, &none, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_segment_new(&no_dtype, 1, 1, &meta, &none, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_segment_new(mixed, 0, 1, &meta, &none, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_segment_new(mixed, MIXED, 0, &meta, &none, &err), RV_INVALID_ARGUMENT);
  rv_chunk_unref(chunk);
}

static void rows_without_bytes_are_rows(void **state)
{
  (void)state;
  rv_error err;
  rv_chunk *chunk;
  int64_t empty[] = {3, 0};
  rv_spec spec = {.dtype = RV_FLOAT32, .rank = 2, .shape = empty};
  rv_chunk_meta meta = {0};
  must(rv_segment_new(&spec, 1, 4, &meta, &chunk, &err), &err);
  rv_tensor cell = {RV_FLOAT32, 2, empty, NULL};
  must(rv_segment_put(chunk, 0, 0, &cell, &err), &err);
  rv_segment_publish(chunk, 0, 1);
  must(rv_chunk_copy_rows(chunk, 0, 0, 1, NULL, &err), &err);
  rv_chunk_unref(chunk);
}

/* ---- encoded chunks ---- */

typedef struct counted_buf {
  rv_buf buf;
  int *freed;
} counted_buf;

static void release_counted(rv_buf *buf)
{
  ++*((counted_buf *)buf)->freed;
  free(buf->data);
  free(buf);
}

/* What rv_encode makes, in a buffer that counts its own end. */
static rv_buf *encoded_rows(rv_dtype dtype, uint32_t rank, const int64_t *shape, const void *rows, size_t row_bytes, size_t n,
                            bool compress, int *freed)
{
  rv_error err;
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  must(rv_encode(&pieces, dtype, rank, shape, rows, row_bytes, n, false, compress, &err), &err);
  counted_buf *counted = malloc(sizeof *counted);
  counted->freed = freed;
  counted->buf =
      (rv_buf){.size = pieces.bytes, .capacity = pieces.bytes, .release = release_counted, .data = malloc(pieces.bytes + 1)};
  atomic_init(&counted->buf.refs, 1);
  size_t at = 0;
  for (size_t i = 0; i < pieces.count; at += pieces.piece[i++].size)
    memcpy(counted->buf.data + at, pieces.piece[i].data, pieces.piece[i].size);
  rv_pieces_fini(&pieces);
  return &counted->buf;
}

static rv_chunk *numbers_chunk(int64_t first, size_t n, bool compress, int *freed)
{
  rv_error err;
  rv_chunk *chunk;
  int64_t *numbers = malloc(n * sizeof *numbers), shape[] = {(int64_t)n};
  for (size_t i = 0; i < n; i++) numbers[i] = compress ? first : first + (int64_t)i;
  rv_buf *buf = encoded_rows(RV_INT64, 0, NULL, numbers, sizeof *numbers, n, compress, freed);
  rv_encoded tensor = {.dtype = RV_INT64, .rank = 1, .shape = shape, .content = buf->data, .content_size = buf->size};
  rv_chunk_meta meta = {.key = (uint64_t)first};
  must(rv_chunk_new_encoded(&meta, &tensor, 1, buf, buf->data, buf->size, &chunk, &err), &err);
  rv_buf_unref(buf);
  free(numbers);
  return chunk;
}

static void an_encoded_chunk_is_kept_as_it_came_and_freed_with_its_buffer(void **state)
{
  (void)state;
  int freed = 0;
  rv_chunk *chunk = numbers_chunk(100, 20, false, &freed);
  const uint8_t *wire;
  size_t wire_size;
  rv_encoded tensor;
  assert_non_null(rv_chunk_wire(chunk, &wire, &wire_size));
  assert_true(rv_chunk_encoded(chunk, 0, &tensor));
  assert_ptr_equal(tensor.content, wire);
  assert_true(rv_chunk_memory(chunk) >= wire_size);
  int64_t numbers[5];
  rv_error err;
  must(rv_chunk_copy_rows(chunk, 0, 15, 5, numbers, &err), &err);
  for (int i = 0; i < 5; i++) assert_int_equal(numbers[i], 115 + i);
  assert_int_equal(rv_chunk_copy_rows(chunk, 0, 15, 6, numbers, &err), RV_OUT_OF_RANGE);
  assert_int_equal(rv_chunk_copy_rows(chunk, 0, -1, 1, numbers, &err), RV_OUT_OF_RANGE);
  assert_int_equal(rv_chunk_copy_rows(chunk, 0, INT64_MAX, INT64_MAX, numbers, &err), RV_OUT_OF_RANGE);
  assert_int_equal(rv_chunk_copy_rows(chunk, 1, 0, 1, numbers, &err), RV_OUT_OF_RANGE);
  rv_chunk_ref(chunk);
  rv_chunk_unref(chunk);
  assert_int_equal(freed, 0);
  rv_chunk_unref(chunk);
  assert_int_equal(freed, 1);
}

static void the_decode_cache_stays_within_its_bytes(void **state)
{
  (void)state;
  enum { CHUNKS = 40, N = 1000, ROOM = 5 };
  rv_error err;
  rv_decode_cache *cache;
  int freed = 0;
  size_t bound = ROOM * (N * sizeof(int64_t) + 256);
  must(rv_decode_cache_new(bound, &cache, &err), &err);
  rv_chunk *chunks[CHUNKS];
  for (int i = 0; i < CHUNKS; i++) {
    chunks[i] = numbers_chunk(i, N, true, &freed);
    rv_chunk_attach_cache(chunks[i], cache);
  }
  for (int round = 0; round < 3; round++)
    for (int i = 0; i < CHUNKS; i++) {
      int64_t number;
      must(rv_chunk_copy_rows(chunks[i], 0, N / 2, 1, &number, &err), &err);
      assert_int_equal(number, i);
      assert_true(rv_decode_cache_bytes(cache) <= bound);
    }
  assert_true(rv_decode_cache_bytes(cache) > bound / 2);
  for (int i = 0; i < CHUNKS; i++) rv_chunk_unref(chunks[i]);
  assert_int_equal(freed, CHUNKS);
  assert_int_equal(rv_decode_cache_bytes(cache), 0);
  rv_decode_cache_unref(cache);
}

static void a_chunk_larger_than_the_cache_is_read_all_the_same(void **state)
{
  (void)state;
  rv_error err;
  rv_decode_cache *cache;
  int freed = 0;
  must(rv_decode_cache_new(100, &cache, &err), &err);
  rv_chunk *chunk = numbers_chunk(9, 1000, true, &freed);
  rv_chunk_attach_cache(chunk, cache);
  rv_decode_cache_unref(cache);
  int64_t number;
  must(rv_chunk_copy_rows(chunk, 0, 999, 1, &number, &err), &err);
  assert_int_equal(number, 9);
  size_t stride;
  assert_null(rv_chunk_rows_in_place(chunk, 0, 0, 1, &stride));
  rv_chunk_unref(chunk);
}

static void strings_live_as_long_as_their_chunk(void **state)
{
  (void)state;
  rv_error err;
  int freed = 0;
  rv_bytes texts[] = {{"one", 3}, {"", 0}, {"three", 5}}, out[3];
  rv_buf *buf = encoded_rows(RV_STRING, 0, NULL, texts, sizeof *texts, 3, true, &freed);
  int64_t shape[] = {3};
  rv_encoded tensor = {.dtype = RV_STRING, .rank = 1, .shape = shape, .content = buf->data, .content_size = buf->size};
  rv_chunk *chunk;
  rv_chunk_meta meta = {0};
  rv_decode_cache *cache;
  must(rv_decode_cache_new(1, &cache, &err), &err);
  must(rv_chunk_new_encoded(&meta, &tensor, 1, buf, buf->data, buf->size, &chunk, &err), &err);
  rv_buf_unref(buf);
  rv_chunk_attach_cache(chunk, cache);
  rv_decode_cache_unref(cache);
  must(rv_chunk_copy_rows(chunk, 0, 0, 3, out, &err), &err);
  assert_int_equal(out[1].size, 0);
  assert_memory_equal(out[2].data, "three", 5);
  rv_chunk_unref(chunk);
  assert_int_equal(freed, 1);
}

static void a_broken_encoded_chunk_is_refused_or_read_with_an_error(void **state)
{
  (void)state;
  rv_error err;
  int freed = 0;
  int64_t numbers[10] = {0}, shape[] = {10}, other[] = {9};
  rv_buf *buf = encoded_rows(RV_INT64, 0, NULL, numbers, sizeof *numbers, 10, true, &freed);
  rv_encoded good = {.dtype = RV_INT64, .rank = 1, .shape = shape, .content = buf->data, .content_size = buf->size};
  rv_chunk_meta meta = {0};
  rv_chunk *chunk;
  rv_encoded bad = good;
  bad.shape = other;
  assert_int_equal(rv_chunk_new_encoded(&meta, &bad, 1, buf, buf->data, buf->size, &chunk, &err), RV_INVALID_ARGUMENT);
  bad = good;
  bad.rank = 0;
  assert_int_equal(rv_chunk_new_encoded(&meta, &bad, 1, buf, buf->data, buf->size, &chunk, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_chunk_new_encoded(&meta, &good, 0, buf, buf->data, buf->size, &chunk, &err), RV_INVALID_ARGUMENT);
  bad = good;
  bad.content_size = 2;
  rv_code code = rv_chunk_new_encoded(&meta, &bad, 1, buf, buf->data, buf->size, &chunk, &err);
  if (code == RV_OK) {
    assert_int_equal(rv_chunk_copy_rows(chunk, 0, 0, 10, numbers, &err), RV_DATA_LOSS);
    rv_chunk_unref(chunk);
  } else {
    assert_int_equal(code, RV_INVALID_ARGUMENT);
  }
  rv_buf_unref(buf);
  assert_int_equal(freed, 1);
}

/* Else they would be whatever was in that memory before, and be saved and sent with the others. */
static void rows_that_a_column_has_not_are_cleared_where_others_are_copied(void **state)
{
  (void)state;
  enum { HAS = 3, MOVED = 4 };
  rv_error err;
  const rv_spec specs[] = {{.name = "", .dtype = RV_INT64}, {.name = "", .dtype = RV_INT64}};
  rv_chunk *from, *to;
  rv_chunk_meta meta = {.key = 1, .episode_id = 1};
  const int64_t numbers[] = {11, 12, 13, 14, 15, 16}, before[] = {-1, -1, -1, -1, -1, -1};
  must(rv_segment_new(specs, 2, 6, &meta, &from, &err), &err);
  must(rv_segment_new(specs, 2, 6, &meta, &to, &err), &err);
  for (size_t c = 0; c < 2; c++) must(rv_segment_fill(to, c, 0, before, 6, &err), &err);
  must(rv_segment_fill(from, 0, 0, numbers, 6, &err), &err);
  must(rv_segment_fill(from, 1, 0, numbers, 6, &err), &err);
  rv_segment_publish(from, 0, 6);
  rv_segment_publish(from, 1, HAS);
  for (int64_t first = 2; first <= HAS; first++) { /* of the second column one row is there, or none */
    must(rv_segment_copy_rows(to, 1, from, first, MOVED - 1, &err), &err);
    for (size_t c = 0; c < 2; c++)
      for (int64_t row = 0; row < 6; row++) {
        size_t stride = to->lanes[c].stride;
        int64_t expected = row < 1 || row > MOVED - 1 ? -1 : c == 0 || first + row - 1 < HAS ? numbers[first + row - 1] : 0;
        assert_int_equal(*(const int64_t *)(const void *)(to->lanes[c].base + (size_t)row * stride), expected);
      }
  }
  rv_chunk_unref(from);
  rv_chunk_unref(to);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_of_a_segment_read_back_as_they_were_put),
      cmocka_unit_test(rows_that_a_column_has_not_are_cleared_where_others_are_copied),
      cmocka_unit_test(a_segment_is_not_used_again_while_its_memory_is_lent),
      cmocka_unit_test(rows_put_for_later_read_back_as_they_were_put),
      cmocka_unit_test(a_row_put_for_later_is_checked_as_any),
      cmocka_unit_test(columns_are_published_one_by_one),
      cmocka_unit_test(small_columns_stand_beside_each_other_and_large_ones_apart),
      cmocka_unit_test(medium_columns_stand_beside_each_other_where_items_are_rows),
      cmocka_unit_test(what_does_not_fit_a_segment_is_refused),
      cmocka_unit_test(rows_without_bytes_are_rows),
      cmocka_unit_test(an_encoded_chunk_is_kept_as_it_came_and_freed_with_its_buffer),
      cmocka_unit_test(the_decode_cache_stays_within_its_bytes),
      cmocka_unit_test(a_chunk_larger_than_the_cache_is_read_all_the_same),
      cmocka_unit_test(strings_live_as_long_as_their_chunk),
      cmocka_unit_test(a_broken_encoded_chunk_is_refused_or_read_with_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
