#include "wire/messages.h"
#include "wire/testing.h"

/* Written by another implementation (protobuf, from the published schema): uint8 [2, 6] delta coded, and two strings. */
static const uint8_t golden[] = {0x08, 0x4D, 0x12, 0x06, 0x08, 0x09, 0x10, 0x04, 0x18, 0x05, 0x20, 0x01, 0x2A,
                                 0x2F, 0x0A, 0x1C, 0x08, 0x04, 0x12, 0x08, 0x12, 0x02, 0x08, 0x02, 0x12, 0x02,
                                 0x08, 0x06, 0x22, 0x0E, 0x0C, 0x2C, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x01,
                                 0x01, 0x01, 0x01, 0x01, 0xFA, 0x0A, 0x0F, 0x08, 0x07, 0x12, 0x04, 0x12, 0x02,
                                 0x08, 0x02, 0x22, 0x05, 0x01, 0x02, 0x61, 0x62, 0x63, 0x30, 0x02, 0x38, 0x3F};
static const uint8_t golden_rows[2][6] = {{1, 2, 3, 4, 5, 6}, {2, 3, 4, 5, 6, 0}};

static rv_chunk *parse(rv_span message, bool copy)
{
  rv_buf *owner = buf_of(message);
  rv_chunk *chunk = NULL;
  rv_error err;
  rv_code code = rv_chunk_parse(owner, span_of(owner), copy, &chunk, &err);
  if (code != RV_OK) fail_msg("%s", err.message);
  rv_buf_unref(owner);
  return chunk;
}

static void check_golden(rv_chunk *chunk)
{
  const rv_chunk_meta *meta = rv_chunk_get_meta(chunk);
  assert_true(meta->key == 77 && meta->episode_id == 9 && meta->first_step == 4 && meta->last_step == 5);
  assert_int_equal(rv_chunk_num_columns(chunk), 2);
  uint8_t rows[2][6];
  assert_int_equal(rv_chunk_copy_rows(chunk, 0, 0, 2, rows, NULL), RV_OK);
  assert_memory_equal(rows, golden_rows, sizeof rows);
  rv_bytes strings[2];
  assert_int_equal(rv_chunk_copy_rows(chunk, 1, 0, 2, strings, NULL), RV_OK);
  assert_true(strings[0].size == 1 && memcmp(strings[0].data, "a", 1) == 0);
  assert_true(strings[1].size == 2 && memcmp(strings[1].data, "bc", 2) == 0);
}

static void a_chunk_is_read_and_sent_again_as_it_came(void **state)
{
  (void)state;
  for (int copy = 0; copy < 2; copy++) {
    rv_chunk *chunk = parse((rv_span){golden, sizeof golden}, copy == 1);
    check_golden(chunk);
    const uint8_t *wire = NULL;
    size_t size = 0;
    assert_non_null(rv_chunk_wire(chunk, &wire, &size));
    assert_int_equal(size, sizeof golden);
    assert_memory_equal(wire, golden, size);
    rv_chunk_unref(chunk);
  }
}

static rv_chunk *golden_segment(void)
{
  const int64_t shape[] = {6};
  const rv_spec specs[] = {{"", RV_UINT8, 1, shape}, {"", RV_STRING, 0, NULL}};
  const rv_chunk_meta meta = {.key = 77, .episode_id = 9, .first_step = 4, .last_step = 5};
  rv_chunk *segment = NULL;
  assert_int_equal(rv_segment_new(specs, 2, 4, &meta, &segment, NULL), RV_OK);
  const rv_bytes strings[] = {{"a", 1}, {"bc", 2}};
  for (int64_t i = 0; i < 2; i++) {
    rv_tensor row = {.dtype = RV_UINT8, .rank = 1, .shape = shape, .data = golden_rows[i]};
    assert_int_equal(rv_segment_put(segment, 0, i, &row, NULL), RV_OK);
    rv_tensor text = {.dtype = RV_STRING, .data = &strings[i]};
    assert_int_equal(rv_segment_put(segment, 1, i, &text, NULL), RV_OK);
  }
  rv_segment_publish(segment, 0, 2);
  rv_segment_publish(segment, 1, 2);
  return segment;
}

static void a_segment_is_written_as_protobuf_writes_it(void **state)
{
  (void)state;
  rv_chunk *segment = golden_segment();
  rv_pieces out;
  rv_pieces_init(&out);
  const rv_chunk_encoding encoding = {.key = 77, .column = SIZE_MAX, .first = 0, .count = 2, .delta = true};
  assert_int_equal(rv_chunk_serialize(&out, segment, &encoding, NULL), RV_OK);
  rv_buf *buf = flatten(&out);
  assert_bytes(buf, golden, sizeof golden);
  rv_chunk *chunk = parse(span_of(buf), false);
  check_golden(chunk);
  rv_chunk_unref(chunk);
  rv_buf_unref(buf);
  rv_chunk_unref(segment);
}

static void rows_outside_the_segment_are_refused(void **state)
{
  (void)state;
  rv_chunk *segment = golden_segment();
  rv_pieces out;
  rv_pieces_init(&out);
  const rv_chunk_encoding wrong[] = {{.column = SIZE_MAX, .first = 1, .count = 2},
                                     {.column = SIZE_MAX, .first = -1, .count = 1},
                                     {.column = 0, .first = 0, .count = INT64_MAX},
                                     {.column = 2, .first = 0, .count = 1}};
  for (size_t i = 0; i < 4; i++) assert_int_not_equal(rv_chunk_serialize(&out, segment, &wrong[i], NULL), RV_OK);
  assert_int_equal(out.bytes, 0);
  rv_pieces_fini(&out);
  rv_chunk_unref(segment);
}

/* ---- other places for tensors ---- */

static size_t begin_chunk(rv_writer_buf *out, uint64_t key)
{
  rv_writer_buf_init(out);
  rv_put_varint(out, 1, key);
  return rv_put_open(out, 5);
}

static void put_dim(rv_writer_buf *out, uint64_t size)
{
  size_t dim = rv_put_open(out, 2);
  rv_put_varint(out, 1, size);
  rv_put_close(out, dim);
}

static void put_strings(rv_writer_buf *out, uint32_t field, uint64_t elements, uint32_t values)
{
  static const char *const text[] = {"x", "", "yz"};
  size_t tensor = rv_put_open(out, field);
  rv_put_varint(out, 1, RV_STRING);
  size_t shape = rv_put_open(out, 2);
  put_dim(out, elements);
  rv_put_close(out, shape);
  for (uint32_t i = 0; i < values; i++) rv_put_bytes_always(out, 8, text[i], strlen(text[i]));
  rv_put_close(out, tensor);
}

static void strings_in_string_val_become_content_and_the_last_repeats(void **state)
{
  (void)state;
  rv_writer_buf out;
  size_t data = begin_chunk(&out, 5);
  put_strings(&out, 1, 5, 3);
  rv_put_close(&out, data);
  rv_buf *message = written(&out);
  rv_chunk *chunk = parse(span_of(message), false);
  rv_buf_unref(message);
  rv_bytes strings[5];
  assert_int_equal(rv_chunk_copy_rows(chunk, 0, 0, 5, strings, NULL), RV_OK);
  static const size_t sizes[] = {1, 0, 2, 2, 2};
  for (int i = 0; i < 5; i++) assert_int_equal(strings[i].size, sizes[i]);
  assert_memory_equal(strings[4].data, "yz", 2);
  const uint8_t *wire = NULL;
  size_t size = 0;
  assert_non_null(rv_chunk_wire(chunk, &wire, &size)); /* what is sent again has them where every reader looks */
  rv_chunk *again = parse((rv_span){wire, size}, true);
  assert_int_equal(rv_chunk_num_rows(again, 0), 5);
  assert_int_equal(rv_chunk_get_meta(again)->key, 5);
  rv_chunk_unref(again);
  rv_chunk_unref(chunk);
}

static void repeating_a_string_is_no_way_to_fill_memory(void **state)
{
  (void)state;
  rv_writer_buf out;
  size_t data = begin_chunk(&out, 5);
  put_strings(&out, 1, UINT64_C(1) << 40, 1);
  rv_put_close(&out, data);
  rv_buf *message = written(&out);
  rv_chunk *chunk = NULL;
  rv_error err;
  assert_int_equal(rv_chunk_parse(message, span_of(message), false, &chunk, &err), RV_INVALID_ARGUMENT);
  rv_buf_unref(message);
}

static void tensors_in_the_deprecated_place_are_read_and_moved(void **state)
{
  (void)state;
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_put_varint(&out, 1, 6);
  put_strings(&out, 3, 3, 3);
  size_t tensor = rv_put_open(&out, 3);
  rv_put_varint(&out, 1, RV_UINT8);
  size_t shape = rv_put_open(&out, 2);
  put_dim(&out, 3);
  rv_put_close(&out, shape);
  rv_put_bytes(&out, 4, "\3\10abc", 5);
  rv_put_close(&out, tensor);
  rv_buf *message = written(&out);
  rv_chunk *chunk = parse(span_of(message), false);
  rv_buf_unref(message);
  assert_int_equal(rv_chunk_num_columns(chunk), 2);
  char bytes[3];
  assert_int_equal(rv_chunk_copy_rows(chunk, 1, 0, 3, bytes, NULL), RV_OK);
  assert_memory_equal(bytes, "abc", 3);
  rv_chunk_unref(chunk);
}

static void put_bytes_tensor(rv_writer_buf *out, uint32_t field, const char *content)
{
  size_t tensor = rv_put_open(out, field);
  rv_put_varint(out, 1, RV_UINT8);
  size_t shape = rv_put_open(out, 2);
  put_dim(out, 3);
  rv_put_close(out, shape);
  rv_put_bytes(out, 4, content, 5);
  rv_put_close(out, tensor);
}

static void of_tensors_in_both_places_those_in_the_deprecated_one_are_ignored(void **state)
{
  (void)state;
  for (int last = 0; last < 2; last++) {
    rv_writer_buf out;
    rv_writer_buf_init(&out);
    rv_put_varint(&out, 1, 6);
    if (!last) put_bytes_tensor(&out, 3, "\3\10old");
    size_t data = rv_put_open(&out, 5);
    put_bytes_tensor(&out, 1, "\3\10new");
    rv_put_close(&out, data);
    if (last) put_bytes_tensor(&out, 3, "\3\10old");
    rv_buf *message = written(&out);
    rv_chunk *chunk = parse(span_of(message), false);
    rv_buf_unref(message);
    assert_int_equal(rv_chunk_num_columns(chunk), 1);
    char bytes[3];
    assert_int_equal(rv_chunk_copy_rows(chunk, 0, 0, 3, bytes, NULL), RV_OK);
    assert_memory_equal(bytes, "new", 3);
    rv_chunk_unref(chunk);
  }
}

/* ---- what others may send ---- */

static rv_code parse_code(rv_span message)
{
  rv_buf *owner = buf_of(message);
  rv_chunk *chunk = NULL;
  rv_error err = {0};
  rv_code code = rv_chunk_parse(owner, span_of(owner), false, &chunk, &err);
  if (code == RV_OK)
    rv_chunk_unref(chunk);
  else
    assert_true(err.code == code && strlen(err.message) > 10);
  rv_buf_unref(owner);
  return code;
}

static void chunks_that_cannot_be_are_refused(void **state)
{
  (void)state;
  assert_int_equal(parse_code(SPAN("")), RV_INVALID_ARGUMENT);                         /* no tensors */
  assert_int_equal(parse_code(SPAN("\x2A\x02\x0A\x00")), RV_INVALID_ARGUMENT);         /* no dtype */
  assert_int_equal(parse_code(SPAN("\x2A\x04\x0A\x02\x08\x04")), RV_INVALID_ARGUMENT); /* no time dimension */
  assert_int_equal(parse_code(SPAN("\x2A\x03\x0A\x02\x08")), RV_INVALID_ARGUMENT);     /* cut off */
  rv_writer_buf out;
  for (int i = 0; i < 4; i++) {
    size_t data = begin_chunk(&out, 1), tensor = rv_put_open(&out, 1);
    rv_put_varint(&out, 1, RV_UINT8);
    size_t shape = rv_put_open(&out, 2);
    for (int j = 0; j < (i == 0 ? 34 : 2); j++) put_dim(&out, i == 1 ? UINT64_MAX : i == 2 ? UINT64_C(1) << 40 : 1);
    if (i == 3) rv_put_varint(&out, 3, 1); /* unknown rank */
    rv_put_close(&out, shape);
    rv_put_bytes(&out, 4, "\1\0x", 3);
    rv_put_close(&out, tensor);
    rv_put_close(&out, data);
    rv_buf *buf = written(&out);
    assert_int_equal(parse_code(span_of(buf)), RV_INVALID_ARGUMENT);
    rv_buf_unref(buf);
  }
}

static void mangled_chunks_never_crash(void **state)
{
  (void)state;
  rv_random random;
  rv_random_init(&random, seed_of_the_run());
  for (int round = 0; round < 30000; round++) {
    uint8_t bytes[sizeof golden];
    memcpy(bytes, golden, sizeof bytes);
    for (uint32_t n = 1 + rv_random_below(&random, 3); n > 0; n--)
      bytes[rv_random_below(&random, sizeof bytes)] = (uint8_t)rv_random_next(&random);
    rv_buf *owner =
        buf_of((rv_span){bytes, rv_random_below(&random, 4) == 0 ? rv_random_below(&random, sizeof bytes) : sizeof bytes});
    rv_chunk *chunk = NULL;
    if (rv_chunk_parse(owner, span_of(owner), round % 2 == 0, &chunk, NULL) == RV_OK) {
      for (size_t i = 0; i < rv_chunk_num_columns(chunk); i++) {
        int64_t rows = rv_chunk_num_rows(chunk, i);
        size_t size = rv_chunk_get_column(chunk, i)->row_bytes;
        if (rows > 1000 || size > 100000) continue;
        void *copy = malloc((size_t)rows * size + 1);
        (void)rv_chunk_copy_rows(chunk, i, 0, rows, copy, NULL);
        free(copy);
      }
      rv_chunk_unref(chunk);
    }
    rv_buf_unref(owner);
  }
}

/* ---- random chunks ---- */

static void random_segments_come_back_whatever_their_encoding(void **state)
{
  (void)state;
  static const rv_dtype dtypes[] = {RV_UINT8, RV_INT16, RV_FLOAT32, RV_FLOAT64, RV_INT64, RV_BOOL, RV_COMPLEX128, RV_STRING};
  rv_random random;
  rv_random_init(&random, seed_of_the_run());
  for (int round = 0; round < 300; round++) {
    rv_spec specs[20];
    int64_t shapes[20][2];
    uint8_t snappy[20];
    size_t num_columns = 1 + rv_random_below(&random, 20);
    int64_t capacity = 1 + rv_random_below(&random, 12);
    for (size_t i = 0; i < num_columns; i++) {
      shapes[i][0] = rv_random_below(&random, 30);
      shapes[i][1] = rv_random_below(&random, round % 10 == 0 ? 400 : 5);
      specs[i] = (rv_spec){"", dtypes[rv_random_below(&random, 8)], (int32_t)rv_random_below(&random, 3), shapes[i]};
      snappy[i] = rv_random_below(&random, 2) == 1;
    }
    rv_chunk *segment = NULL;
    const rv_chunk_meta meta = {.key = 1, .episode_id = 2, .first_step = 10};
    assert_int_equal(rv_segment_new(specs, num_columns, (size_t)capacity, &meta, &segment, NULL), RV_OK);
    for (size_t i = 0; i < num_columns; i++) {
      size_t bytes = rv_chunk_get_column(segment, i)->row_bytes;
      for (int64_t row = 0; row < capacity; row++) {
        uint8_t *data = malloc(bytes + 1);
        for (size_t j = 0; j < bytes; j++) data[j] = (uint8_t)(rv_random_below(&random, 4) == 0 ? rv_random_next(&random) : 7);
        if (specs[i].dtype == RV_STRING)
          for (size_t j = 0; j + sizeof(rv_bytes) <= bytes; j += sizeof(rv_bytes))
            memcpy(data + j, &(rv_bytes){"some text, or a part of it", rv_random_below(&random, 27)}, sizeof(rv_bytes));
        rv_tensor value = {.dtype = specs[i].dtype, .rank = (uint32_t)specs[i].rank, .shape = specs[i].shape, .data = data};
        assert_int_equal(rv_segment_put(segment, i, row, &value, NULL), RV_OK);
        free(data);
      }
      rv_segment_publish(segment, i, capacity);
    }
    int64_t first = rv_random_below(&random, (uint32_t)capacity),
            count = rv_random_below(&random, (uint32_t)(capacity - first) + 1);
    bool one = rv_random_below(&random, 3) == 0;
    const rv_chunk_encoding encoding = {.key = some_number(&random),
                                        .column = one ? rv_random_below(&random, (uint32_t)num_columns) : SIZE_MAX,
                                        .first = first,
                                        .count = count,
                                        .delta = rv_random_below(&random, 2) == 1,
                                        .snappy = {snappy, rv_random_below(&random, 2) == 1 ? num_columns : 0}};
    rv_pieces out;
    rv_pieces_init(&out);
    assert_int_equal(rv_chunk_serialize(&out, segment, &encoding, NULL), RV_OK);
    rv_buf *buf = flatten(&out);
    rv_chunk *chunk = parse(span_of(buf), false);
    rv_buf_unref(buf);
    assert_true(rv_chunk_get_meta(chunk)->key == encoding.key && rv_chunk_get_meta(chunk)->episode_id == 2);
    assert_int_equal(rv_chunk_get_meta(chunk)->first_step, 10 + first);
    assert_int_equal(rv_chunk_num_columns(chunk), one ? 1 : num_columns);
    for (size_t i = 0; i < rv_chunk_num_columns(chunk); i++) {
      size_t from = one ? encoding.column : i, bytes = rv_chunk_get_column(chunk, i)->row_bytes;
      assert_int_equal(rv_chunk_num_rows(chunk, i), count);
      uint8_t *expected = malloc((size_t)count * bytes + 1), *got = malloc((size_t)count * bytes + 1);
      assert_int_equal(rv_chunk_copy_rows(segment, from, first, count, expected, NULL), RV_OK);
      assert_int_equal(rv_chunk_copy_rows(chunk, i, 0, count, got, NULL), RV_OK);
      if (specs[from].dtype != RV_STRING) {
        assert_memory_equal(got, expected, (size_t)count * bytes);
      } else {
        for (size_t j = 0; j < (size_t)count * bytes; j += sizeof(rv_bytes)) {
          rv_bytes a, b;
          memcpy(&a, expected + j, sizeof a);
          memcpy(&b, got + j, sizeof b);
          assert_int_equal(a.size, b.size);
          if (a.size > 0) assert_memory_equal(a.data, b.data, a.size);
        }
      }
      free(expected);
      free(got);
    }
    rv_chunk_unref(chunk);
    rv_chunk_unref(segment);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_chunk_is_read_and_sent_again_as_it_came),
      cmocka_unit_test(a_segment_is_written_as_protobuf_writes_it),
      cmocka_unit_test(rows_outside_the_segment_are_refused),
      cmocka_unit_test(strings_in_string_val_become_content_and_the_last_repeats),
      cmocka_unit_test(repeating_a_string_is_no_way_to_fill_memory),
      cmocka_unit_test(tensors_in_the_deprecated_place_are_read_and_moved),
      cmocka_unit_test(of_tensors_in_both_places_those_in_the_deprecated_one_are_ignored),
      cmocka_unit_test(chunks_that_cannot_be_are_refused),
      cmocka_unit_test(mangled_chunks_never_crash),
      cmocka_unit_test(random_segments_come_back_whatever_their_encoding),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
