#include "wire/messages.h"

#include "wire/testing.h"

/* Written by another implementation (protobuf, from the published schema). */
static const uint8_t golden_item[] = {
    0x08, 0x85, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01, 0x12, 0x06, 0x74, 0xC3, 0xA4, 0x62, 0x6C, 0x65, 0x29, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0xF4, 0xBF, 0x30, 0xFD, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01, 0x3A, 0x0B, 0x08,
    0x80, 0xE2, 0xCF, 0xAA, 0x06, 0x10, 0x95, 0x9A, 0xEF, 0x3A, 0x42, 0x31, 0x0A, 0x1A, 0x0A, 0x04, 0x08, 0x0B, 0x18, 0x02, 0x0A,
    0x12, 0x08, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01, 0x10, 0xAC, 0x02, 0x18, 0x01, 0x20, 0x07, 0x0A, 0x13,
    0x0A, 0x0F, 0x08, 0x0B, 0x10, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01, 0x18, 0x01, 0x10, 0x01};

static void an_item_has_the_bytes_that_protobuf_writes(void **state)
{
  (void)state;
  rv_wire_slice slices[] = {{11, 0, 2, 0}, {UINT64_MAX, 300, 1, 7}, {11, -1, 1, 0}};
  uint32_t num_slices[] = {2, 1};
  bool squeeze[] = {false, true};
  rv_wire_item item = {.key = (UINT64_C(1) << 63) + 5,
                       .table = SPAN("t\xC3\xA4"
                                     "ble"),
                       .priority = -1.25,
                       .times_sampled = -3,
                       .inserted_at_ns = 1700000000123456789,
                       .slices = slices,
                       .num_slices = num_slices,
                       .squeeze = squeeze,
                       .num_columns = 2,
                       .total_slices = 3};
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_wire_item_serialize(&out, &item);
  rv_buf *buf = written(&out);
  assert_bytes(buf, golden_item, sizeof golden_item);
  rv_wire_item back;
  rv_error err;
  assert_int_equal(rv_wire_item_parse(span_of(buf), &back, &err), RV_OK);
  assert_true(back.key == item.key && back.priority == item.priority && back.times_sampled == -3);
  assert_int_equal(back.inserted_at_ns, item.inserted_at_ns);
  assert_true(span_is(back.table, "t\xC3\xA4"
                                  "ble"));
  assert_int_equal(back.num_columns, 2);
  assert_int_equal(back.total_slices, 3);
  for (int i = 0; i < 3; i++) {
    assert_true(back.slices[i].chunk_key == slices[i].chunk_key && back.slices[i].offset == slices[i].offset);
    assert_true(back.slices[i].length == slices[i].length && back.slices[i].index == slices[i].index);
  }
  assert_memory_equal(back.num_slices, num_slices, sizeof num_slices);
  assert_memory_equal(back.squeeze, squeeze, sizeof squeeze);
  rv_wire_item_fini(&back);
  rv_buf_unref(buf);
}

static void random_items_come_back_as_they_went(void **state)
{
  (void)state;
  rv_random random;
  rv_random_init(&random, seed_of_the_run());
  for (int round = 0; round < 3000; round++) {
    rv_wire_slice slices[64];
    uint32_t num_slices[16];
    bool squeeze[16];
    rv_wire_item item = {.key = some_number(&random),
                         .table = SPAN("table"),
                         .priority = rv_random_unit(&random),
                         .times_sampled = (int32_t)rv_random_next(&random),
                         .inserted_at_ns = (int64_t)some_number(&random) * (round % 2 == 0 ? 1 : -1),
                         .sequence = some_number(&random),
                         .naming = some_number(&random),
                         .slices = slices,
                         .num_slices = num_slices,
                         .squeeze = squeeze,
                         .num_columns = rv_random_below(&random, 17)};
    for (uint32_t i = 0; i < item.num_columns; i++) {
      num_slices[i] = rv_random_below(&random, 5);
      squeeze[i] = rv_random_below(&random, 2) == 1;
      for (uint32_t j = 0; j < num_slices[i]; j++)
        slices[item.total_slices++] = (rv_wire_slice){.chunk_key = some_number(&random),
                                                      .offset = (int32_t)some_number(&random),
                                                      .length = (int32_t)some_number(&random),
                                                      .index = (int32_t)some_number(&random)};
    }
    rv_writer_buf out;
    rv_writer_buf_init(&out);
    rv_wire_item_serialize(&out, &item);
    rv_buf *buf = written(&out);
    rv_wire_item back;
    assert_int_equal(rv_wire_item_parse(span_of(buf), &back, NULL), RV_OK);
    assert_true(back.key == item.key && back.priority == item.priority && back.sequence == item.sequence);
    assert_true(back.naming == item.naming);
    assert_true(back.times_sampled == item.times_sampled && back.inserted_at_ns == item.inserted_at_ns);
    assert_true(back.num_columns == item.num_columns && back.total_slices == item.total_slices);
    for (uint32_t i = 0; i < item.total_slices; i++) assert_memory_equal(&back.slices[i], &slices[i], 20);
    for (uint32_t i = 0; i < item.num_columns; i++)
      assert_true(back.num_slices[i] == num_slices[i] && back.squeeze[i] == squeeze[i]);
    rv_wire_item_fini(&back);
    rv_buf_unref(buf);
  }
}

static void items_that_are_read_into_the_same_room_are_read_as_alone(void **state)
{
  (void)state;
  /* one column of two slices; two of one; none; one whose table is no text; two columns again, in two parts */
  const rv_span messages[] = {SPAN("\x08\x09\x42\x0A\x0A\x08\x0A\x02\x08\x03\x0A\x02\x08\x04"),
                              SPAN("\x42\x10\x0A\x06\x0A\x02\x08\x05\x10\x01\x0A\x06\x0A\x02\x08\x06\x10\x00"), SPAN("\x08\x07"),
                              SPAN("\x12\x02\xC3\x28"), SPAN("\x42\x06\x0A\x04\x0A\x02\x08\x03\x42\x06\x0A\x04\x0A\x02\x08\x04")};
  rv_item_room room = {0};
  for (size_t round = 0; round < 25; round++) {
    rv_span message = messages[(round * 7 + round / 5) % 5];
    rv_wire_item alone, item;
    rv_error alone_error, error;
    rv_code code = rv_wire_item_parse(message, &alone, &alone_error);
    assert_int_equal(rv_wire_item_parse_in(&room, message, &item, &error), code);
    if (code != RV_OK) {
      assert_string_equal(error.message, alone_error.message);
      continue;
    }
    assert_true(item.key == alone.key && item.num_columns == alone.num_columns && item.total_slices == alone.total_slices);
    for (uint32_t i = 0; i < item.total_slices; i++) assert_memory_equal(&item.slices[i], &alone.slices[i], 20);
    for (uint32_t i = 0; i < item.num_columns; i++)
      assert_true(item.num_slices[i] == alone.num_slices[i] && item.squeeze[i] == alone.squeeze[i]);
    rv_wire_item_fini(&alone);
  }
  rv_item_room_fini(&room);
}

static void hostile_items_are_refused(void **state)
{
  (void)state;
  rv_wire_item item;
  rv_error err;
  assert_int_equal(rv_wire_item_parse(SPAN("\x12\x02\xC3\x28"), &item, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "UTF-8"));
  assert_int_equal(rv_wire_item_parse(SPAN("\x42\x04\x0A\x02\x0A\x01"), &item, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_wire_item_parse(SPAN("\x42\x06\x0A\x04\x0A\x02\x08\x80"), &item, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_wire_item_parse(SPAN("\x3A\x01\x08"), &item, &err), RV_INVALID_ARGUMENT);
  /* a wrong wire type makes a field an unknown one; unknown ones and a later value of the same field are fine */
  assert_int_equal(rv_wire_item_parse(SPAN("\x0A\x01\x61\x08\x05\x08\x07\x52\x01\x61\x28\x03"), &item, &err), RV_OK);
  assert_true(item.key == 7 && item.priority == 0 && item.num_columns == 0);
  /* a time that nanoseconds do not reach */
  assert_int_equal(rv_wire_item_parse(SPAN("\x3A\x0A\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F"), &item, &err), RV_OK);
  assert_true(item.inserted_at_ns == INT64_MAX);
  /* the trajectory in two parts, which protobuf joins */
  assert_int_equal(rv_wire_item_parse(SPAN("\x42\x06\x0A\x04\x0A\x02\x08\x03\x42\x06\x0A\x04\x0A\x02\x08\x04"), &item, &err),
                   RV_OK);
  assert_true(item.num_columns == 2 && item.slices[0].chunk_key == 3 && item.slices[1].chunk_key == 4);
  rv_wire_item_fini(&item);
}

static void an_insert_request_is_its_parts(void **state)
{
  (void)state;
  /* chunk "ab", keys 1 and 300 packed, item "c", chunk "", key 5 alone */
  rv_buf *buf = buf_of(SPAN("\x0A\x02"
                            "ab\x1A\x03\x01\xAC\x02\x12\x01"
                            "c\x0A\x00\x18\x05"));
  rv_insert_request request;
  assert_int_equal(rv_insert_request_parse(span_of(buf), &request, NULL), RV_OK);
  assert_true(request.num_chunks == 2 && request.num_items == 1 && request.num_keep_chunk_keys == 3);
  assert_true(span_is(request.chunks[0], "ab") && request.chunks[1].size == 0 && span_is(request.items[0], "c"));
  assert_true(request.keep_chunk_keys[0] == 1 && request.keep_chunk_keys[1] == 300 && request.keep_chunk_keys[2] == 5);
  rv_insert_request_fini(&request);
  rv_buf_unref(buf);
  assert_int_equal(rv_insert_request_parse(SPAN(""), &request, NULL), RV_OK);
  assert_int_equal(request.num_chunks + request.num_items, 0);
  assert_int_equal(rv_insert_request_parse(SPAN("\x1A\x02\x01\x80"), &request, NULL), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_insert_request_parse(SPAN("\x0A\x09zz"), &request, NULL), RV_INVALID_ARGUMENT);
}

static void an_insert_response_carries_keys_and_failures(void **state)
{
  (void)state;
  uint64_t keys[] = {0, 1, UINT64_MAX};
  rv_insert_failure failures[] = {{7, RV_NOT_FOUND, SPAN("no table \"x\"")}, {0, RV_INTERNAL, SPAN("")}};
  rv_insert_response response = {.keys = keys, .num_keys = 3, .failures = failures, .num_failures = 2};
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_insert_response_serialize(&out, &response);
  rv_buf *buf = written(&out);
  rv_insert_response back;
  assert_int_equal(rv_insert_response_parse(span_of(buf), &back, NULL), RV_OK);
  assert_true(back.num_keys == 3 && back.num_failures == 2);
  assert_memory_equal(back.keys, keys, sizeof keys);
  assert_true(back.failures[0].key == 7 && back.failures[0].code == RV_NOT_FOUND);
  assert_true(span_is(back.failures[0].message, "no table \"x\""));
  assert_true(back.failures[1].code == RV_INTERNAL && back.failures[1].message.size == 0);
  rv_insert_response_fini(&back);
  rv_buf_unref(buf);
  /* a failure without a code is still a failure */
  const char *cut = "\xC2\x3E\x07\x08\x03\x10\x05\x1A\x01\xC3"; /* the message ends within a character */
  assert_int_equal(rv_insert_response_parse((rv_span){(const uint8_t *)cut, 10}, &back, NULL), RV_OK);
  assert_int_equal(back.failures[0].key, 3);
  assert_int_equal(back.failures[0].code, RV_NOT_FOUND);
  assert_memory_equal(back.failures[0].message.data, "the server's reason is not valid UTF-8", back.failures[0].message.size);
  rv_insert_response_fini(&back);
  assert_int_equal(rv_insert_response_parse(SPAN("\xC2\x3E\x02\x08\x03"), &back, NULL), RV_OK);
  assert_true(back.num_failures == 1 && back.failures[0].code == RV_UNKNOWN);
  rv_insert_response_fini(&back);
}

static void a_sample_request_says_how_long_to_wait(void **state)
{
  (void)state;
  const int64_t timeouts[] = {-1, 0, 1, 86400000};
  for (int i = 0; i < 4; i++) {
    rv_sample_request request = {
        .table = SPAN("replay"), .num_samples = 64, .timeout_ms = timeouts[i], .same_layout = i % 2 == 0, .poll = i == 1};
    rv_writer_buf out;
    rv_writer_buf_init(&out);
    rv_sample_request_serialize(&out, &request);
    rv_buf *buf = written(&out);
    rv_sample_request back;
    assert_int_equal(rv_sample_request_parse(span_of(buf), &back, NULL), RV_OK);
    assert_true(span_is(back.table, "replay") && back.num_samples == 64 && back.timeout_ms == timeouts[i]);
    assert_true(back.same_layout == request.same_layout && back.poll == request.poll);
    rv_buf_unref(buf);
  }
  rv_sample_request back;
  assert_int_equal(rv_sample_request_parse(SPAN("\x0A\x02\xFF\xFF"), &back, NULL), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_sample_request_parse(SPAN("\x1A\x02\x08\x80"), &back, NULL), RV_INVALID_ARGUMENT);
}

static void a_sample_response_is_its_entries(void **state)
{
  (void)state;
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  size_t entry = rv_put_open(&out, 1);
  size_t info = rv_put_open(&out, 1);
  rv_put_bytes(&out, 1, golden_item, sizeof golden_item);
  rv_put_double(&out, 2, 0.25);
  rv_put_varint(&out, 3, 1000);
  rv_put_varint(&out, 4, 1);
  rv_put_close(&out, info);
  rv_put_bytes(&out, 2, "one", 3);
  rv_put_bytes(&out, 2, "two", 3);
  rv_put_close(&out, entry);
  entry = rv_put_open(&out, 1);
  rv_put_bytes(&out, 2, "three", 5);
  rv_put_varint(&out, 3, 1);
  rv_put_close(&out, entry);
  rv_buf *buf = written(&out);
  rv_sample_response response;
  assert_int_equal(rv_sample_response_parse(span_of(buf), &response, NULL), RV_OK);
  assert_int_equal(response.num_entries, 2);
  const rv_sample_entry *first = &response.entries[0], *second = &response.entries[1];
  assert_true(first->has_info && !first->end_of_sequence && first->num_chunks == 2);
  assert_true(first->info.probability == 0.25 && first->info.table_size == 1000 && first->info.rate_limited);
  assert_true(first->info.item.key == (UINT64_C(1) << 63) + 5 && first->info.item.total_slices == 3);
  assert_true(span_is(first->chunks[0], "one") && span_is(first->chunks[1], "two"));
  assert_true(!second->has_info && second->end_of_sequence && span_is(second->chunks[0], "three"));
  rv_sample_response_fini(&response);
  rv_buf_unref(buf);
}

static void a_sample_response_says_what_its_items_are_called(void **state)
{
  (void)state;
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  assert_int_equal(rv_pieces_copy(&pieces, "\x0A\x02\x18\x01", 4), RV_OK);
  assert_int_equal(rv_sample_response_put_naming(&pieces, 0, NULL), RV_OK);
  assert_int_equal(pieces.bytes, 4);
  assert_int_equal(rv_sample_response_put_naming(&pieces, UINT64_C(0x8877665544332211), NULL), RV_OK);
  rv_buf *buf = flatten(&pieces);
  assert_bytes(buf, (const uint8_t *)"\x0A\x02\x18\x01\xC9\x3E\x11\x22\x33\x44\x55\x66\x77\x88", 14);
  rv_sample_response response;
  assert_int_equal(rv_sample_response_parse(span_of(buf), &response, NULL), RV_OK);
  assert_int_equal(response.num_entries, 1);
  assert_true(response.naming == UINT64_C(0x8877665544332211));
  rv_sample_response_fini(&response);
  assert_int_equal(rv_sample_response_parse((rv_span){buf->data, 9}, &response, NULL), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_sample_response_parse(SPAN("\xC8\x3E\x07"), &response, NULL), RV_OK); /* of another wire type: unknown */
  assert_true(response.naming == 0);
  rv_buf_unref(buf);
}

static void a_response_of_empty_entries_takes_no_memory(void **state)
{
  (void)state;
  enum { N = 1 << 20 };
  uint8_t *bytes = malloc(2 * N);
  for (size_t i = 0; i < N; i++) {
    bytes[2 * i] = 0x0A;
    bytes[2 * i + 1] = 0;
  }
  rv_sample_response response;
  rv_error err;
  assert_int_equal(rv_sample_response_parse((rv_span){bytes, 2 * N}, &response, &err), RV_INVALID_ARGUMENT);
  free(bytes);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_item_has_the_bytes_that_protobuf_writes),
      cmocka_unit_test(random_items_come_back_as_they_went),
      cmocka_unit_test(items_that_are_read_into_the_same_room_are_read_as_alone),
      cmocka_unit_test(hostile_items_are_refused),
      cmocka_unit_test(an_insert_request_is_its_parts),
      cmocka_unit_test(an_insert_response_carries_keys_and_failures),
      cmocka_unit_test(a_sample_request_says_how_long_to_wait),
      cmocka_unit_test(a_sample_response_is_its_entries),
      cmocka_unit_test(a_sample_response_says_what_its_items_are_called),
      cmocka_unit_test(a_response_of_empty_entries_takes_no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
