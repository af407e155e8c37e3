#include "wire/testing.h"

static rv_field only_field(rv_span message, bool *broken)
{
  rv_reader reader;
  rv_field field = {0};
  rv_reader_init(&reader, message);
  if (!rv_reader_next(&reader, &field)) field.number = 0;
  rv_field more;
  if (!reader.broken) assert_false(rv_reader_next(&reader, &more));
  *broken = reader.broken;
  return field;
}

static void what_is_written_is_read_again(void **state)
{
  (void)state;
  rv_random random;
  rv_random_init(&random, seed_of_the_run());
  for (int round = 0; round < 2000; round++) {
    rv_writer_buf out;
    rv_writer_buf_init(&out);
    uint32_t number = 1 + rv_random_below(&random, (1U << 29) - 1);
    uint64_t value = some_number(&random);
    double real = rv_random_unit(&random);
    size_t size = rv_random_below(&random, 300);
    uint8_t *bytes = calloc(1, size + 1);
    rv_put_varint_always(&out, number, value);
    rv_put_double_always(&out, number, real);
    rv_put_bytes_always(&out, number, bytes, size);
    size_t outer = rv_put_open(&out, number), inner = rv_put_open(&out, 7);
    rv_put_bytes(&out, 9, bytes, size);
    rv_put_close(&out, inner);
    rv_put_close(&out, outer);
    rv_buf *buf = written(&out);
    rv_reader reader;
    rv_field field;
    rv_reader_init(&reader, span_of(buf));
    assert_true(rv_reader_next(&reader, &field) && field.number == number && field.type == RV_WIRE_VARINT &&
                field.value == value);
    assert_true(rv_reader_next(&reader, &field) && field.type == RV_WIRE_FIXED64);
    assert_memory_equal(&field.value, &real, sizeof real);
    assert_true(rv_reader_next(&reader, &field) && field.type == RV_WIRE_BYTES && field.bytes.size == size);
    assert_true(rv_reader_next(&reader, &field) && field.number == number);
    rv_span nested = field.bytes;
    assert_false(rv_reader_next(&reader, &field));
    assert_false(reader.broken);
    rv_reader_init(&reader, nested);
    assert_true(rv_reader_next(&reader, &field) && field.number == 7);
    rv_reader_init(&reader, field.bytes);
    assert_int_equal(rv_reader_next(&reader, &field), size > 0);
    if (size > 0) assert_int_equal(field.bytes.size, size);
    free(bytes);
    rv_buf_unref(buf);
  }
}

static void varints_of_every_length_are_read_wherever_they_end(void **state)
{
  (void)state;
  for (unsigned bits = 0; bits <= 64; bits++)
    for (int low = 0; low < 3; low++)
      for (size_t behind = 0; behind < 12; behind++) {
        uint64_t top = bits == 0 ? 0 : UINT64_MAX >> (64 - bits), value = low == 0   ? top
                                                                          : low == 1 ? top ^ (top >> 1)
                                                                                     : top & UINT64_C(0x5A5A5A5A5A5A5A5A);
        rv_writer_buf out;
        rv_writer_buf_init(&out);
        rv_put_varint_always(&out, 1, value);
        assert_int_equal(out.size, 1 + rv_varint_size(value));
        for (size_t i = 0; i < behind; i++) rv_put_varint_always(&out, 2, 1);
        rv_buf *buf = written(&out);
        rv_reader reader;
        rv_field field;
        rv_reader_init(&reader, span_of(buf));
        assert_true(rv_reader_next(&reader, &field) && field.number == 1 && field.value == value);
        for (size_t i = 0; i < behind; i++) assert_true(rv_reader_next(&reader, &field) && field.number == 2 && field.value == 1);
        assert_false(rv_reader_next(&reader, &field) || reader.broken);
        rv_buf_unref(buf);
      }
}

static void default_values_are_left_out_unless_they_are_members_of_a_oneof(void **state)
{
  (void)state;
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_put_varint(&out, 1, 0);
  rv_put_double(&out, 2, 0.0);
  rv_put_bytes(&out, 3, NULL, 0);
  rv_put_string(&out, 4, NULL);
  rv_put_string(&out, 4, "");
  rv_put_packed(&out, 5, NULL, 0);
  assert_int_equal(out.size, 0);
  rv_put_double(&out, 2, -0.0);
  assert_int_equal(out.size, 9);
  rv_put_varint_always(&out, 1, 0);
  rv_put_bytes_always(&out, 3, NULL, 0);
  rv_buf *buf = written(&out);
  static const uint8_t expected[] = {0x11, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x08, 0, 0x1A, 0};
  assert_bytes(buf, expected, sizeof expected);
  rv_buf_unref(buf);
}

static void malformed_messages_are_noticed(void **state)
{
  (void)state;
  static const struct {
    const char *bytes;
    size_t size;
  } bad[] = {
      {"\x08", 1},                                                  /* no value */
      {"\x08\x80", 2},                                              /* a varint cut off */
      {"\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 12},     /* of eleven bytes */
      {"\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x81\x00\x00", 13}, /* of eleven, and more behind */
      {"\x00\x00", 2},                                              /* field 0 */
      {"\x0E\x00", 2},                                              /* wire type 6 */
      {"\x0F\x00", 2},                                              /* wire type 7 */
      {"\x0C", 1},                                                  /* end of a group that was not begun */
      {"\x0B\x08\x01", 3},                                          /* a group without end */
      {"\x0B\x14", 2},                                              /* another group's end */
      {"\x0A\x05\x61", 3},                                          /* longer than the message */
      {"\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 11},         /* longer than memory */
      {"\x09\x01\x02", 3},                                          /* fixed64 cut off */
      {"\x0D\x01\x02", 3},                                          /* fixed32 cut off */
      {"\xF8\xFF\xFF\xFF\x1F\x00", 6},                              /* field number over 2^29 - 1 */
  };
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    rv_buf *buf = buf_of((rv_span){(const uint8_t *)bad[i].bytes, bad[i].size});
    bool broken = false;
    (void)only_field(span_of(buf), &broken);
    if (!broken) fail_msg("case %zu was taken for good", i);
    rv_buf_unref(buf);
  }
}

static void groups_are_skipped_but_not_for_ever(void **state)
{
  (void)state;
  bool broken = true;
  rv_field field = only_field(SPAN("\x0B\x13\x08\x01\x14\x12\x01\x61\x0C\x10\x05"), &broken);
  assert_false(broken);
  assert_int_equal(field.number, 2);
  assert_int_equal(field.value, 5);
  char deep[1000];
  memset(deep, 0x0B, sizeof deep / 2);
  memset(deep + sizeof deep / 2, 0x0C, sizeof deep / 2);
  (void)only_field((rv_span){(const uint8_t *)deep, sizeof deep}, &broken);
  assert_true(broken);
}

static void repeated_numbers_are_read_packed_and_unpacked(void **state)
{
  (void)state;
  rv_span message = SPAN("\x18\x05\x1A\x03\x01\xAC\x02\x18\x07\x1A\x00");
  static const uint64_t expected[] = {5, 1, 300, 7};
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  size_t n = 0, counted = 0;
  while (rv_reader_next(&reader, &field)) {
    size_t at = 0;
    uint64_t value;
    counted += rv_field_count_values(&field, RV_WIRE_VARINT);
    while (rv_field_next_value(&reader, &field, RV_WIRE_VARINT, &at, &value)) assert_int_equal(value, expected[n++]);
  }
  assert_int_equal(n, 4);
  assert_int_equal(counted, 4);
  assert_false(reader.broken);
  rv_reader_init(&reader, SPAN("\x1A\x02\x01\x80")); /* the last number is cut off */
  size_t at = 0;
  uint64_t value;
  assert_true(rv_reader_next(&reader, &field));
  assert_true(rv_field_next_value(&reader, &field, RV_WIRE_VARINT, &at, &value));
  assert_false(rv_field_next_value(&reader, &field, RV_WIRE_VARINT, &at, &value));
  assert_true(reader.broken);
}

static void text_is_utf_8_or_refused(void **state)
{
  (void)state;
  assert_true(rv_utf8_valid(SPAN("")));
  assert_true(rv_utf8_valid(SPAN("plain \0 text, longer than eight")));
  assert_true(rv_utf8_valid(SPAN("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xEE\x80\x80\xF4\x8F\xBF\xBF")));
  assert_false(rv_utf8_valid(SPAN("\x80")));
  assert_false(rv_utf8_valid(SPAN("12345678\xFF")));
  assert_false(rv_utf8_valid(SPAN("\xC3")));
  assert_false(rv_utf8_valid(SPAN("\xC0\x80")));         /* overlong */
  assert_false(rv_utf8_valid(SPAN("\xE0\x9F\xBF")));     /* overlong */
  assert_false(rv_utf8_valid(SPAN("\xED\xA0\x80")));     /* surrogate */
  assert_false(rv_utf8_valid(SPAN("\xF4\x90\x80\x80"))); /* over U+10FFFF */
  assert_false(rv_utf8_valid(SPAN("\xF0\x9F\x98")));
}

static void random_bytes_never_crash_the_reader(void **state)
{
  (void)state;
  rv_random random;
  rv_random_init(&random, seed_of_the_run());
  for (int round = 0; round < 100000; round++) {
    uint8_t bytes[32];
    size_t size = rv_random_below(&random, sizeof bytes + 1);
    for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)rv_random_next(&random);
    rv_reader reader;
    rv_field field;
    rv_reader_init(&reader, (rv_span){bytes, size});
    while (rv_reader_next(&reader, &field)) {
      size_t at = 0;
      uint64_t value;
      while (rv_field_next_value(&reader, &field, RV_WIRE_VARINT, &at, &value)) {
      }
    }
    (void)rv_utf8_valid((rv_span){bytes, size});
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_written_is_read_again),
      cmocka_unit_test(varints_of_every_length_are_read_wherever_they_end),
      cmocka_unit_test(default_values_are_left_out_unless_they_are_members_of_a_oneof),
      cmocka_unit_test(malformed_messages_are_noticed),
      cmocka_unit_test(groups_are_skipped_but_not_for_ever),
      cmocka_unit_test(repeated_numbers_are_read_packed_and_unpacked),
      cmocka_unit_test(text_is_utf_8_or_refused),
      cmocka_unit_test(random_bytes_never_crash_the_reader),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
