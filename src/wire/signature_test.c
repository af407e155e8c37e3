#include "wire/testing.h"
#include "wire/unary.h"

/* Written by TensorFlow's encoder of nests:
 * {"b": spec [None, 3] float32 "bee", "a": [spec [] int64, (spec of unknown rank string,)], "c": P(z=spec [2] bfloat16, a=spec
 * [1] bool)}. */
static const uint8_t golden[] = {
    0xAA, 0x03, 0x78, 0x0A, 0x21, 0x0A, 0x01, 0x61, 0x12, 0x1C, 0x9A, 0x03, 0x19, 0x0A, 0x07, 0x8A, 0x02, 0x04, 0x12, 0x00, 0x18,
    0x09, 0x0A, 0x0E, 0xA2, 0x03, 0x0B, 0x0A, 0x09, 0x8A, 0x02, 0x06, 0x12, 0x02, 0x18, 0x01, 0x18, 0x07, 0x0A, 0x22, 0x0A, 0x01,
    0x62, 0x12, 0x1D, 0x8A, 0x02, 0x1A, 0x0A, 0x03, 0x62, 0x65, 0x65, 0x12, 0x11, 0x12, 0x0B, 0x08, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
    0xFF, 0xFF, 0xFF, 0xFF, 0x01, 0x12, 0x02, 0x08, 0x03, 0x18, 0x01, 0x0A, 0x2F, 0x0A, 0x01, 0x63, 0x12, 0x2A, 0xB2, 0x03, 0x27,
    0x0A, 0x01, 0x50, 0x12, 0x10, 0x0A, 0x01, 0x7A, 0x12, 0x0B, 0x8A, 0x02, 0x08, 0x12, 0x04, 0x12, 0x02, 0x08, 0x02, 0x18, 0x0E,
    0x12, 0x10, 0x0A, 0x01, 0x61, 0x12, 0x0B, 0x8A, 0x02, 0x08, 0x12, 0x04, 0x12, 0x02, 0x08, 0x01, 0x18, 0x0A};

static void a_nest_is_flattened_in_the_order_of_columns(void **state)
{
  (void)state;
  rv_buf *buf = buf_of((rv_span){golden, sizeof golden});
  rv_signature signature;
  rv_error err;
  assert_int_equal(rv_signature_parse(span_of(buf), &signature, &err), RV_OK);
  rv_buf_unref(buf); /* nothing is borrowed */
  assert_int_equal(signature.num_specs, 5);
  static const struct {
    const char *name;
    rv_dtype dtype;
    int32_t rank;
    int64_t shape[2];
  } expected[] = {{"a/0", RV_INT64, 0, {0}},
                  {"a/1/0", RV_STRING, -1, {0}},
                  {"bee", RV_FLOAT32, 2, {-1, 3}},
                  {"c/z", RV_BFLOAT16, 1, {2}},
                  {"c/a", RV_BOOL, 1, {1}}};
  for (size_t i = 0; i < 5; i++) {
    const rv_spec *spec = &signature.specs[i];
    assert_string_equal(spec->name, expected[i].name);
    assert_int_equal(spec->dtype, expected[i].dtype);
    assert_int_equal(spec->rank, expected[i].rank);
    for (int32_t j = 0; j < spec->rank; j++) assert_int_equal(spec->shape[j], expected[i].shape[j]);
  }
  assert_int_equal(signature.structure.size, sizeof golden);
  assert_memory_equal(signature.structure.data, golden, sizeof golden);
  rv_signature_fini(&signature);
}

static void leaves_are_called_by_their_place_where_names_are_compared(void **state)
{
  (void)state;
  rv_signature signature, places;
  rv_error err;
  assert_int_equal(rv_signature_parse((rv_span){golden, sizeof golden}, &signature, &err), RV_OK);
  assert_int_equal(rv_signature_parse_places((rv_span){golden, sizeof golden}, &places, &err), RV_OK);
  assert_string_equal(signature.specs[2].name, "bee");
  assert_string_equal(places.specs[2].name, "b");
  static const struct {
    const char *names[5];
    size_t misnamed; /* 5: none */
  } items[] = {{{"a/0", "a/1/0", "b", "c/z", "c/a"}, 5}, {{NULL, NULL, NULL, NULL, NULL}, 5},
               {{"0", "1", "2", "3", "4"}, 5},           {{"a/0", "a/1/0", "bee", "c/z", "c/a"}, 2},
               {{"a/0", "a/1/0", "b", "c/a", "c/z"}, 3}, {{"x/0", "a/1/0", "b", "c/z", "c/a"}, 0},
               {{"a/q", "a/p/0", "b", "c/0", "0/a"}, 5}, {{"a", "a/1", "b/b", "z", "a"}, 5},
               {{"", "/", "", "c//z", "c/a/"}, 5},       {{"a/0", "a/1/0", "B", NULL, NULL}, 2}};
  for (size_t i = 0; i < sizeof items / sizeof items[0]; i++) {
    rv_code code = rv_signature_check_names(&signature, "t", items[i].names, 5, &err);
    assert_int_equal(code, items[i].misnamed == 5 ? RV_OK : RV_INVALID_ARGUMENT);
    if (code == RV_OK) continue;
    char words[64];
    snprintf(words, sizeof words, "column %zu of the item is called \"%s\"", items[i].misnamed,
             items[i].names[items[i].misnamed]);
    if (strstr(err.message, words) == NULL) fail_msg("\"%s\" lacks %s", err.message, words);
  }
  assert_int_equal(rv_signature_check_names(&signature, "t", items[3].names, 4, &err), RV_OK);
  rv_signature_fini(&signature);
  rv_signature_fini(&places);
}

static void a_nul_in_a_key_does_not_end_the_place(void **state)
{
  (void)state;
  uint8_t bytes[sizeof golden];
  memcpy(bytes, golden, sizeof golden);
  for (size_t i = 0; i + 2 < sizeof bytes; i++) { /* the key "a" of the dict, and that of the named tuple */
    if (bytes[i] == 0x0A && bytes[i + 1] == 1 && bytes[i + 2] == 'a') bytes[i + 2] = '\0';
  }
  rv_signature places;
  rv_error err;
  assert_int_equal(rv_signature_parse_places((rv_span){bytes, sizeof bytes}, &places, &err), RV_OK);
  assert_string_equal(places.specs[0].name, "?/0");
  assert_string_equal(places.specs[4].name, "c/?");
  rv_signature_fini(&places);
}

static void put_spec(rv_writer_buf *out, const char *name, rv_dtype dtype)
{
  size_t mark = rv_put_open(out, 33);
  rv_put_string(out, 1, name);
  rv_put_varint(out, 3, (uint64_t)dtype);
  rv_put_close(out, mark);
}

static void put_entry(rv_writer_buf *out, const char *key, rv_dtype dtype)
{
  size_t entry = rv_put_open(out, 1);
  size_t value = rv_put_open(out, 2); /* the value before the key is legal too */
  put_spec(out, "", dtype);
  rv_put_close(out, value);
  rv_put_string(out, 1, key);
  rv_put_close(out, entry);
}

static rv_code parse_written(rv_writer_buf *out, rv_signature *signature, rv_error *err)
{
  rv_buf *buf = written(out);
  rv_code code = rv_signature_parse(span_of(buf), signature, err);
  rv_buf_unref(buf);
  return code;
}

static void dict_keys_are_sorted_by_their_bytes_and_the_last_of_equal_ones_counts(void **state)
{
  (void)state;
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  size_t dict = rv_put_open(&out, 53);
  put_entry(&out, "b", RV_INT8);
  put_entry(&out, "\xC3\xA4", RV_INT16);
  put_entry(&out, "B", RV_INT32);
  put_entry(&out, "ab", RV_INT64);
  put_entry(&out, "a", RV_UINT8);
  put_entry(&out, "b", RV_FLOAT64);
  put_entry(&out, "", RV_BOOL);
  rv_put_close(&out, dict);
  rv_signature signature;
  assert_int_equal(parse_written(&out, &signature, NULL), RV_OK);
  static const rv_dtype order[] = {RV_BOOL, RV_INT32, RV_UINT8, RV_INT64, RV_FLOAT64, RV_INT16};
  assert_int_equal(signature.num_specs, 6);
  for (size_t i = 0; i < 6; i++) assert_int_equal(signature.specs[i].dtype, order[i]);
  rv_signature_fini(&signature);
}

static void a_list_of_specs_comes_back(void **state)
{
  (void)state;
  const int64_t shape[] = {-1, 84, 84};
  const rv_spec specs[] = {{"obs", RV_UINT8, 3, shape}, {"", RV_FLOAT32, 0, NULL}, {"any", RV_STRING, -1, NULL}};
  const rv_signature signature = {.specs = specs, .num_specs = 3};
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_signature_serialize(&out, &signature);
  rv_signature back;
  assert_int_equal(parse_written(&out, &back, NULL), RV_OK);
  assert_int_equal(back.num_specs, 3);
  assert_string_equal(back.specs[0].name, "obs");
  assert_memory_equal(back.specs[0].shape, shape, sizeof shape);
  assert_string_equal(back.specs[1].name, "1"); /* without a name of its own: its place */
  assert_true(back.specs[1].rank == 0 && back.specs[2].rank == -1);
  rv_signature_fini(&back);
  const rv_signature empty = {0};
  rv_writer_buf_init(&out);
  rv_signature_serialize(&out, &empty);
  assert_int_equal(parse_written(&out, &back, NULL), RV_OK);
  assert_int_equal(back.num_specs, 0);
  rv_signature_fini(&back);
}

static void leaves_that_are_no_specs_are_refused(void **state)
{
  (void)state;
  rv_signature signature;
  rv_error err;
  static const char *const leaves[] = {"\x0A\x00",     "\x60\x02",     "\x6A\x01x",   "\x70\x01",
                                       "\xFA\x01\x00", "\x80\x02\x01", "\x92\x02\x00"};
  static const size_t sizes[] = {2, 2, 3, 2, 3, 3, 3};
  for (size_t i = 0; i < 7; i++) {
    assert_int_equal(rv_signature_parse((rv_span){(const uint8_t *)leaves[i], sizes[i]}, &signature, &err), RV_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "tensor spec"));
  }
  assert_int_equal(rv_signature_parse(SPAN(""), &signature, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_signature_parse(SPAN("\x8A\x02\x02\x18\x14"), &signature, &err), RV_INVALID_ARGUMENT); /* resource */
  assert_int_equal(rv_signature_parse(SPAN("\x8A\x02\x05\x0A\x01\xFF\x18\x01"), &signature, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_signature_parse(SPAN("\x9A\x03\x02\x0A\x05"), &signature, &err), RV_INVALID_ARGUMENT);
}

static void nests_are_only_so_deep(void **state)
{
  (void)state;
  for (int depth = 60; depth < 70; depth++) {
    rv_writer_buf out;
    size_t marks[200];
    rv_writer_buf_init(&out);
    for (int i = 0; i + 1 < depth; i++) {
      marks[2 * i] = rv_put_open(&out, i % 2 == 0 ? 51 : 52);
      marks[2 * i + 1] = rv_put_open(&out, 1);
    }
    put_spec(&out, "leaf", RV_FLOAT32);
    for (int i = depth - 2; i >= 0; i--) {
      rv_put_close(&out, marks[2 * i + 1]);
      rv_put_close(&out, marks[2 * i]);
    }
    rv_signature signature;
    rv_code code = parse_written(&out, &signature, NULL);
    assert_int_equal(code, depth <= 64 ? RV_OK : RV_INVALID_ARGUMENT);
    if (code == RV_OK) rv_signature_fini(&signature);
  }
}

static void long_paths_are_cut_between_characters(void **state)
{
  (void)state;
  char key[301];
  for (size_t i = 0; i < 300; i += 2) memcpy(key + i, "\xC3\xA9", 2);
  key[300] = '\0';
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  size_t dict = rv_put_open(&out, 53), entry = rv_put_open(&out, 1);
  rv_put_string(&out, 1, "x");
  size_t value = rv_put_open(&out, 2), inner = rv_put_open(&out, 53);
  put_entry(&out, key, RV_INT8);
  rv_put_close(&out, inner);
  rv_put_close(&out, value);
  rv_put_close(&out, entry);
  rv_put_close(&out, dict);
  rv_signature signature;
  assert_int_equal(parse_written(&out, &signature, NULL), RV_OK);
  const char *name = signature.specs[0].name;
  assert_true(strlen(name) > 200);
  assert_true(rv_utf8_valid((rv_span){(const uint8_t *)name, strlen(name)}));
  rv_signature_fini(&signature);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_nest_is_flattened_in_the_order_of_columns),
      cmocka_unit_test(leaves_are_called_by_their_place_where_names_are_compared),
      cmocka_unit_test(a_nul_in_a_key_does_not_end_the_place),
      cmocka_unit_test(dict_keys_are_sorted_by_their_bytes_and_the_last_of_equal_ones_counts),
      cmocka_unit_test(a_list_of_specs_comes_back),
      cmocka_unit_test(leaves_that_are_no_specs_are_refused),
      cmocka_unit_test(nests_are_only_so_deep),
      cmocka_unit_test(long_paths_are_cut_between_characters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
