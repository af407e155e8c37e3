#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <snappy-c.h>

#include "base/random.h"
#include "tensor/codec.h"
#include "tensor/literal.h"

/* ---- helpers ---- */

/* All pieces one after another, in a block of exactly that size, so that a read past its end is caught. */
static uint8_t *flatten(rv_pieces *pieces, size_t *size)
{
  *size = pieces->bytes;
  uint8_t *flat = malloc(pieces->bytes > 0 ? pieces->bytes : 1);
  assert_non_null(flat);
  size_t at = 0;
  for (size_t i = 0; i < pieces->count; i++) {
    memcpy(flat + at, pieces->piece[i].data, pieces->piece[i].size);
    at += pieces->piece[i].size;
  }
  assert_int_equal(at, pieces->bytes);
  rv_pieces_fini(pieces);
  return flat;
}

static uint8_t *encode(rv_dtype dtype, uint32_t row_rank, const int64_t *row_shape, const void *rows, size_t stride,
                       size_t num_rows, bool delta, bool compress, size_t *size)
{
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  rv_error err;
  assert_int_equal(rv_encode(&pieces, dtype, row_rank, row_shape, rows, stride, num_rows, delta, compress, &err), RV_OK);
  return flatten(&pieces, size);
}

static uint64_t seed_of_the_run(void)
{
  const char *given = getenv("RV_TEST_SEED");
  uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
  print_message("seed %llu (RV_TEST_SEED repeats it)\n", (unsigned long long)seed);
  return seed;
}

/* ---- literals ---- */

static void a_literal_header_is_what_snappy_reads(void **state)
{
  (void)state;
  const size_t sizes[] = {0,   1,     59,    60,    61,    62,    127,   128,     255,          256,
                          257, 16383, 16384, 65535, 65536, 65537, 70000, 1 << 24, (1 << 24) + 1};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    size_t bytes = sizes[i];
    uint8_t header[RV_LITERAL_HEADER_MAX];
    size_t n = rv_literal_header(header, bytes);
    assert_int_equal(rv_literal_size(bytes), n + bytes);
    uint8_t *block = malloc(n + bytes);
    uint8_t *back = malloc(bytes + 1);
    memcpy(block, header, n);
    for (size_t j = 0; j < bytes; j++) block[n + j] = (uint8_t)(j * 7 + j / 251);
    size_t size = bytes;
    assert_int_equal(snappy_uncompress((char *)block, n + bytes, (char *)back, &size), SNAPPY_OK);
    assert_int_equal(size, bytes);
    assert_memory_equal(back, block + n, bytes);
    assert_ptr_equal(rv_literal_find(block, n + bytes, bytes), block + n);
    assert_null(rv_literal_find(block, n + bytes, bytes + 1));
    if (bytes > 0) assert_null(rv_literal_find(block, n + bytes - 1, bytes));
    free(block);
    free(back);
  }
}

static void headers_of_literals_over_2_gib_have_four_length_bytes(void **state)
{
  (void)state;
  uint8_t header[RV_LITERAL_HEADER_MAX];
  static const uint8_t expected[] = {0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 63 << 2, 0xFE, 0xFF, 0xFF, 0xFF};
  assert_int_equal(rv_literal_header(header, UINT32_MAX), sizeof expected);
  assert_memory_equal(header, expected, sizeof expected);
}

static void an_empty_tensor_is_one_zero_byte(void **state)
{
  (void)state;
  const int64_t shape[] = {3, 0};
  for (int compress = 0; compress < 2; compress++) {
    size_t size = 0;
    uint8_t *content = encode(RV_FLOAT32, 2, shape, NULL, 0, 5, true, compress == 1, &size);
    assert_int_equal(size, 1);
    assert_int_equal(content[0], 0);
    const int64_t whole[] = {5, 3, 0};
    rv_encoded tensor = {.dtype = RV_FLOAT32, .rank = 3, .shape = whole, .content = content, .content_size = size};
    assert_int_equal(rv_encoded_check(&tensor, NULL), RV_OK);
    assert_int_equal(rv_decode(&tensor, NULL, 0, NULL), RV_OK);
    assert_non_null(rv_encoded_raw(&tensor));
    free(content);
  }
}

/* ---- round trips ---- */

static const rv_dtype numeric[] = {RV_FLOAT32,   RV_FLOAT64,    RV_INT32,  RV_UINT8,    RV_INT16,       RV_INT8,
                                   RV_COMPLEX64, RV_INT64,      RV_BOOL,   RV_BFLOAT16, RV_QINT32,      RV_UINT16,
                                   RV_FLOAT16,   RV_COMPLEX128, RV_UINT32, RV_UINT64,   RV_QINT8,       RV_QUINT16,
                                   RV_INT4,      RV_UINT4,      RV_QINT16, RV_QUINT8,   RV_FLOAT8_E5M2, RV_FLOAT8_E4M3FN};

static void numbers_come_back_as_they_went_whatever_the_stride(void **state)
{
  (void)state;
  rv_random random;
  rv_random_init(&random, seed_of_the_run());
  for (int round = 0; round < 600; round++) {
    rv_dtype dtype = numeric[rv_random_below(&random, sizeof numeric / sizeof numeric[0])];
    uint32_t row_rank = rv_random_below(&random, 4);
    int64_t shape[5];
    size_t row_bytes = rv_dtype_size(dtype);
    for (uint32_t i = 0; i < row_rank; i++) {
      shape[i + 1] = rv_random_below(&random, 9);
      row_bytes *= (size_t)shape[i + 1];
    }
    size_t num_rows = rv_random_below(&random, round % 50 == 0 ? 20000 : 40);
    shape[0] = (int64_t)num_rows;
    size_t stride = row_bytes + rv_random_below(&random, 3) * 5;
    unsigned char *rows = malloc(num_rows * stride + 1);
    for (size_t i = 0; i < num_rows * stride; i++)
      rows[i] = (unsigned char)(rv_random_below(&random, 8) == 0 ? rv_random_next(&random) : i / 64);
    bool delta = rv_random_below(&random, 2) == 1, compress = rv_random_below(&random, 2) == 1;
    size_t size = 0;
    uint8_t *content = encode(dtype, row_rank, shape + 1, rows, stride, num_rows, delta, compress, &size);
    rv_encoded tensor = {
        .dtype = dtype, .rank = row_rank + 1, .shape = shape, .delta = delta, .content = content, .content_size = size};
    rv_error err;
    assert_int_equal(rv_encoded_check(&tensor, &err), RV_OK);
    unsigned char *back = malloc(num_rows * row_bytes + 1);
    assert_int_equal(rv_decode(&tensor, back, num_rows * row_bytes, &err), RV_OK);
    for (size_t i = 0; i < num_rows; i++) assert_memory_equal(back + i * row_bytes, rows + i * stride, row_bytes);
    assert_int_equal(rv_decode(&tensor, back, num_rows * row_bytes + 1, &err), RV_INVALID_ARGUMENT);
    const uint8_t *raw = rv_encoded_raw(&tensor);
    if (!compress && !delta) assert_non_null(raw);
    if (raw != NULL) assert_memory_equal(raw, back, num_rows * row_bytes);
    free(back);
    free(content);
    free(rows);
  }
}

static void delta_coding_is_the_difference_to_the_row_before(void **state)
{
  (void)state;
  const uint8_t rows[] = {250, 1, 2, 4, 2, 1};
  const int64_t row_shape[] = {2};
  size_t size = 0;
  uint8_t *content = encode(RV_UINT8, 1, row_shape, rows, 2, 3, true, false, &size);
  static const uint8_t expected[] = {6, 5 << 2, 250, 1, 8, 3, 0, 253};
  assert_int_equal(size, sizeof expected);
  assert_memory_equal(content, expected, sizeof expected);
  free(content);
  content = encode(RV_BOOL, 1, row_shape, rows, 2, 3, true, false, &size); /* the flag does nothing to other dtypes */
  assert_memory_equal(content + 2, rows, sizeof rows);
  free(content);
  content = encode(RV_UINT8, 0, NULL, rows, 1, 6, true, false, &size); /* nor to scalar rows */
  assert_memory_equal(content + 2, rows, sizeof rows);
  free(content);
}

static void strings_come_back_with_nul_bytes_and_empty_ones(void **state)
{
  (void)state;
  char long_one[300];
  memset(long_one, 'x', sizeof long_one);
  const rv_bytes rows[] = {{"a", 1}, {NULL, 0}, {"b\0c", 3}, {long_one, sizeof long_one}};
  const int64_t row_shape[] = {2};
  size_t size = 0;
  uint8_t *content = encode(RV_STRING, 1, row_shape, rows, 2 * sizeof(rv_bytes), 2, true, true, &size);
  static const uint8_t head[] = {1, 0, 3, 0xAC, 2, 'a', 'b', 0, 'c', 'x'};
  assert_int_equal(size, 5 + 304);
  assert_memory_equal(content, head, sizeof head);
  const int64_t shape[] = {2, 2};
  rv_encoded tensor = {.dtype = RV_STRING, .rank = 2, .shape = shape, .content = content, .content_size = size};
  assert_int_equal(rv_encoded_check(&tensor, NULL), RV_OK);
  assert_null(rv_encoded_raw(&tensor));
  rv_bytes back[4];
  assert_int_equal(rv_decode(&tensor, back, sizeof back, NULL), RV_OK);
  for (int i = 0; i < 4; i++) {
    assert_int_equal(back[i].size, rows[i].size);
    if (rows[i].size > 0) assert_memory_equal(back[i].data, rows[i].data, rows[i].size);
  }
  free(content);
}

/* ---- what others may send ---- */

static rv_code check(rv_dtype dtype, uint32_t rank, const int64_t *shape, const void *content, size_t size)
{
  uint8_t *exact = malloc(size > 0 ? size : 1);
  if (size > 0) memcpy(exact, content, size);
  rv_encoded tensor = {.dtype = dtype, .rank = rank, .shape = shape, .content = exact, .content_size = size};
  rv_error err = {0};
  rv_code code = rv_encoded_check(&tensor, &err);
  if (code != RV_OK) assert_true(strlen(err.message) > 10 && err.code == code);
  free(exact);
  return code;
}

static void broken_contents_are_refused_before_memory_is_taken(void **state)
{
  (void)state;
  const int64_t four[] = {4}, none[] = {0}, large[] = {1 << 30};
  assert_int_equal(check(RV_UINT8, 1, four, "\4\14abcd", 6), RV_OK);
  assert_int_equal(check(RV_UINT8, 1, four, "\5\20abcde", 7), RV_INVALID_ARGUMENT);
  assert_int_equal(check(RV_UINT8, 1, four, "", 0), RV_INVALID_ARGUMENT);
  assert_int_equal(check(RV_UINT8, 1, none, "", 0), RV_INVALID_ARGUMENT);
  assert_int_equal(check(RV_UINT8, 1, none, "\0", 1), RV_OK);
  assert_int_equal(check(RV_UINT8, 0, NULL, "\1\0a", 3), RV_INVALID_ARGUMENT);
  assert_int_equal(check(RV_UINT8, 1, four, "\xFF\xFF\xFF\xFF\xFF\xFF", 6), RV_INVALID_ARGUMENT);
  /* 2^30 announced by ten bytes */
  assert_int_equal(check(RV_UINT8, 1, large, "\x80\x80\x80\x80\x04\0\0\0\0\0", 10), RV_INVALID_ARGUMENT);
  /* strings: too many, cut off, too long, too short, varint of more than 32 bits */
  assert_int_equal(check(RV_STRING, 1, large, "\0\0\0", 3), RV_INVALID_ARGUMENT);
  assert_int_equal(check(RV_STRING, 1, four, "\0\0\0\x80", 4), RV_INVALID_ARGUMENT);
  assert_int_equal(check(RV_STRING, 1, four, "\0\1\0\1a", 5), RV_INVALID_ARGUMENT);
  assert_int_equal(check(RV_STRING, 1, four, "\0\1\0\1abc", 7), RV_INVALID_ARGUMENT);
  assert_int_equal(check(RV_STRING, 1, four, "\0\1\0\1ab", 6), RV_OK);
  assert_int_equal(check(RV_STRING, 1, four, "\xFF\xFF\xFF\xFF\x1F\0\0\0", 8), RV_INVALID_ARGUMENT);
  assert_int_equal(check(RV_STRING, 1, none, "", 0), RV_OK);
}

static void a_block_that_breaks_inside_is_data_loss(void **state)
{
  (void)state;
  const int64_t shape[] = {8};
  /* announces 8 bytes; a literal of 2 and then a copy from before the beginning */
  static const uint8_t content[] = {8, 1 << 2, 'a', 'b', (2 << 2) | 1, 200};
  rv_encoded tensor = {.dtype = RV_UINT8, .rank = 1, .shape = shape, .content = content, .content_size = sizeof content};
  uint8_t out[8];
  rv_error err;
  assert_int_equal(rv_encoded_check(&tensor, &err), RV_OK);
  assert_int_equal(rv_decode(&tensor, out, sizeof out, &err), RV_DATA_LOSS);
}

static void mangled_contents_never_crash(void **state)
{
  (void)state;
  rv_random random;
  rv_random_init(&random, seed_of_the_run());
  uint8_t rows[256];
  for (size_t i = 0; i < sizeof rows; i++) rows[i] = (uint8_t)(i / 9);
  const int64_t shape[] = {16, 16}, row_shape[] = {16};
  uint8_t out[256];
  rv_bytes strings[16];
  for (int round = 0; round < 20000; round++) {
    size_t size = 0;
    uint8_t *content = encode(RV_UINT8, 1, row_shape, rows, 16, 16, true, round % 2 == 0, &size);
    for (uint32_t n = 1 + rv_random_below(&random, 4); n > 0; n--)
      content[rv_random_below(&random, (uint32_t)size)] = (uint8_t)rv_random_next(&random);
    size_t cut = rv_random_below(&random, 3) == 0 ? rv_random_below(&random, (uint32_t)size) : size;
    uint8_t *exact = malloc(cut + 1);
    memcpy(exact, content, cut);
    rv_encoded tensor = {.dtype = RV_UINT8, .rank = 2, .shape = shape, .delta = true, .content = exact, .content_size = cut};
    (void)rv_encoded_check(&tensor, NULL);
    (void)rv_decode(&tensor, out, sizeof out, NULL);
    tensor.dtype = RV_STRING;
    tensor.rank = 1;
    (void)rv_encoded_check(&tensor, NULL);
    (void)rv_decode(&tensor, strings, sizeof strings, NULL);
    free(exact);
    free(content);
  }
}

static void large_literals_are_put_together_from_pieces(void **state)
{
  (void)state;
  enum { ROW = 300000, ROWS = 5 };
  unsigned char *rows = malloc((size_t)ROW * ROWS);
  for (size_t i = 0; i < (size_t)ROW * ROWS; i++) rows[i] = (unsigned char)(i * 31 + i / 997);
  const int64_t row_shape[] = {ROW / 4}, shape[] = {ROWS, ROW / 4};
  for (int delta = 0; delta < 2; delta++) {
    size_t size = 0;
    uint8_t *content = encode(RV_INT32, 1, row_shape, rows, ROW, ROWS, delta == 1, false, &size);
    assert_int_equal(size, rv_literal_size((size_t)ROW * ROWS));
    rv_encoded tensor = {
        .dtype = RV_INT32, .rank = 2, .shape = shape, .delta = delta == 1, .content = content, .content_size = size};
    unsigned char *back = malloc((size_t)ROW * ROWS);
    assert_int_equal(rv_decode(&tensor, back, (size_t)ROW * ROWS, NULL), RV_OK);
    assert_memory_equal(back, rows, (size_t)ROW * ROWS);
    free(back);
    free(content);
  }
  free(rows);
}

static void compression_pays_for_zeros_and_not_for_noise(void **state)
{
  (void)state;
  enum { N = 1 << 20 };
  uint8_t *bytes = calloc(1, N);
  assert_true(rv_compression_pays(bytes, N));
  assert_true(rv_compression_pays(bytes, 1000));
  assert_false(rv_compression_pays(bytes, 0));
  rv_random random;
  rv_random_init(&random, 1);
  for (size_t i = 0; i < N; i++) bytes[i] = (uint8_t)rv_random_next(&random);
  assert_false(rv_compression_pays(bytes, N));
  assert_false(rv_compression_pays(bytes, 40000));
  free(bytes);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_literal_header_is_what_snappy_reads),
      cmocka_unit_test(headers_of_literals_over_2_gib_have_four_length_bytes),
      cmocka_unit_test(an_empty_tensor_is_one_zero_byte),
      cmocka_unit_test(numbers_come_back_as_they_went_whatever_the_stride),
      cmocka_unit_test(delta_coding_is_the_difference_to_the_row_before),
      cmocka_unit_test(strings_come_back_with_nul_bytes_and_empty_ones),
      cmocka_unit_test(broken_contents_are_refused_before_memory_is_taken),
      cmocka_unit_test(a_block_that_breaks_inside_is_data_loss),
      cmocka_unit_test(mangled_contents_never_crash),
      cmocka_unit_test(large_literals_are_put_together_from_pieces),
      cmocka_unit_test(compression_pays_for_zeros_and_not_for_noise),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
