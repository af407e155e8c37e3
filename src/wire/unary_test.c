#include "wire/unary.h"

#include <math.h>

#include "wire/testing.h"

static void a_mutation_comes_back_as_it_went(void **state)
{
  (void)state;
  rv_random random;
  rv_random_init(&random, seed_of_the_run());
  for (int round = 0; round < 500; round++) {
    rv_key_priority updates[20];
    uint64_t deletes[20];
    size_t num_updates = rv_random_below(&random, 21), num_deletes = rv_random_below(&random, 21);
    for (size_t i = 0; i < num_updates; i++)
      updates[i] = (rv_key_priority){some_number(&random), rv_random_below(&random, 4) == 0 ? 0 : rv_random_unit(&random) - 0.5};
    for (size_t i = 0; i < num_deletes; i++) deletes[i] = some_number(&random);
    rv_writer_buf out;
    rv_writer_buf_init(&out);
    rv_mutate_request_serialize(&out, "replay", updates, num_updates, deletes, num_deletes);
    rv_buf *buf = written(&out);
    rv_mutate_request back;
    assert_int_equal(rv_mutate_request_parse(span_of(buf), &back, NULL), RV_OK);
    assert_true(span_is(back.table, "replay") && back.num_updates == num_updates && back.num_deletes == num_deletes);
    for (size_t i = 0; i < num_updates; i++)
      assert_true(back.updates[i].key == updates[i].key && back.updates[i].priority == updates[i].priority);
    for (size_t i = 0; i < num_deletes; i++) assert_true(back.deletes[i] == deletes[i]);
    rv_mutate_request_fini(&back);
    rv_buf_unref(buf);
  }
}

static void a_mutation_has_the_bytes_that_protobuf_writes(void **state)
{
  (void)state;
  const rv_key_priority updates[] = {{300, 1.5}, {0, 0}};
  const uint64_t deletes[] = {1, 128};
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_mutate_request_serialize(&out, "t", updates, 2, deletes, 2);
  rv_buf *buf = written(&out);
  static const uint8_t expected[] = {0x0A, 0x01, 0x74, 0x12, 0x0C, 0x08, 0xAC, 0x02, 0x11, 0,    0,    0,
                                     0,    0,    0,    0xF8, 0x3F, 0x12, 0x00, 0x1A, 0x03, 0x01, 0x80, 0x01};
  assert_bytes(buf, expected, sizeof expected);
  rv_buf_unref(buf);
}

static void malformed_mutations_are_refused(void **state)
{
  (void)state;
  rv_mutate_request request;
  assert_int_equal(rv_mutate_request_parse(SPAN("\x0A\x01\x80"), &request, NULL), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_mutate_request_parse(SPAN("\x12\x02\x09\x01"), &request, NULL), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_mutate_request_parse(SPAN("\x1A\x01\x80"), &request, NULL), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_mutate_request_parse(SPAN("\x18"), &request, NULL), RV_INVALID_ARGUMENT);
}

static void unknown_keys_are_reported_only_by_servers_that_know_how(void **state)
{
  (void)state;
  uint64_t unknown[4] = {0};
  size_t n = 7;
  assert_int_equal(rv_mutate_response_parse(SPAN(""), unknown, 4, &n, NULL), RV_OK);
  assert_true(n == SIZE_MAX);
  const uint64_t keys[] = {5, 600, UINT64_MAX};
  for (size_t count = 0; count <= 3; count++) {
    rv_writer_buf out;
    rv_writer_buf_init(&out);
    rv_mutate_response_serialize(&out, keys, count);
    rv_buf *buf = written(&out);
    assert_int_equal(rv_mutate_response_parse(span_of(buf), unknown, 4, &n, NULL), RV_OK);
    assert_int_equal(n, count);
    for (size_t i = 0; i < count; i++) assert_true(unknown[i] == keys[i]);
    assert_int_equal(rv_mutate_response_parse(span_of(buf), NULL, 4, &n, NULL), RV_OK);
    if (count > 0) assert_int_equal(rv_mutate_response_parse(span_of(buf), unknown, count - 1, &n, NULL), RV_INVALID_ARGUMENT);
    rv_buf_unref(buf);
  }
}

static void small_requests_come_back_as_they_went(void **state)
{
  (void)state;
  rv_writer_buf out;
  rv_span text;
  rv_writer_buf_init(&out);
  rv_reset_request_serialize(&out, "replay");
  rv_buf *buf = written(&out);
  assert_int_equal(rv_reset_request_parse(span_of(buf), &text, NULL), RV_OK);
  assert_true(span_is(text, "replay"));
  rv_buf_unref(buf);
  rv_writer_buf_init(&out);
  rv_checkpoint_response_serialize(&out, "/a/b");
  buf = written(&out);
  assert_int_equal(rv_checkpoint_response_parse(span_of(buf), &text, NULL), RV_OK);
  assert_true(span_is(text, "/a/b"));
  rv_buf_unref(buf);
  uint64_t key = 0;
  rv_writer_buf_init(&out);
  rv_get_request_serialize(&out, "replay", UINT64_MAX);
  buf = written(&out);
  assert_int_equal(rv_get_request_parse(span_of(buf), &text, &key, NULL), RV_OK);
  assert_true(span_is(text, "replay") && key == UINT64_MAX);
  rv_buf_unref(buf);
  int64_t pid = 0;
  assert_int_equal(rv_initialize_connection_parse(SPAN("\x08\xB9\x0A\x12\x01t"), &pid, &text, NULL), RV_OK);
  assert_true(pid == 1337 && span_is(text, "t"));
  assert_int_equal(rv_reset_request_parse(SPAN("\x0A\x01\xC0"), &text, NULL), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_get_request_parse(SPAN("\x0A\x01\xC0"), &text, &key, NULL), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_initialize_connection_parse(SPAN("\x12\x01\xC0"), &pid, &text, NULL), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_checkpoint_response_parse(SPAN("\x0A\x01\xC0"), &text, NULL), RV_INVALID_ARGUMENT);
}

static void a_page_of_items_comes_back(void **state)
{
  (void)state;
  const rv_items_request request = {.table = SPAN("replay"), .cursor = 7, .capacity = 100};
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_items_request_serialize(&out, &request);
  rv_buf *buf = written(&out);
  rv_items_request asked;
  assert_int_equal(rv_items_request_parse(span_of(buf), &asked, NULL), RV_OK);
  assert_true(span_is(asked.table, "replay") && asked.cursor == 7 && asked.capacity == 100);
  rv_buf_unref(buf);
  const rv_item_info items[] = {{1, 0.5, 3, 1234567890, 9}, {0, -1, -2, -5, 0}};
  rv_writer_buf_init(&out);
  rv_items_response_serialize(&out, 99, items, 2);
  buf = written(&out);
  rv_item_info back[2];
  uint64_t cursor = 0;
  size_t count = 0;
  assert_int_equal(rv_items_response_parse(span_of(buf), &cursor, back, 2, &count, NULL), RV_OK);
  assert_true(cursor == 99 && count == 2);
  for (int i = 0; i < 2; i++) {
    assert_true(back[i].key == items[i].key && back[i].priority == items[i].priority && back[i].length == items[i].length);
    assert_true(back[i].times_sampled == items[i].times_sampled && back[i].inserted_at_ns == items[i].inserted_at_ns);
  }
  assert_int_equal(rv_items_response_parse(span_of(buf), &cursor, back, 1, &count, NULL), RV_INVALID_ARGUMENT);
  rv_buf_unref(buf);
}

static void a_rate_limiter_comes_back(void **state)
{
  (void)state;
  const rv_rate_limiter_config limiter = {
      .samples_per_insert = 4, .min_size_to_sample = 100, .min_diff = -INFINITY, .max_diff = 1e300};
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_set_rate_limiter_serialize(&out, "replay", &limiter);
  rv_buf *buf = written(&out);
  rv_span table;
  rv_rate_limiter_config back;
  assert_int_equal(rv_set_rate_limiter_parse(span_of(buf), &table, &back, NULL), RV_OK);
  assert_true(span_is(table, "replay") && back.samples_per_insert == 4 && back.min_size_to_sample == 100);
  assert_true(back.min_diff == -INFINITY && back.max_diff == 1e300);
  rv_buf_unref(buf);
  assert_int_equal(rv_set_rate_limiter_parse(SPAN("\x12\x02\x09\x01"), &table, &back, NULL), RV_INVALID_ARGUMENT);
}

static void bounds_come_back_and_what_is_absent_stays_as_it_is(void **state)
{
  (void)state;
  const rv_table_bounds all[] = {{.max_size = 5000000000, .max_bytes = RV_UNCHANGED, .max_times_sampled = 0},
                                 {.max_size = RV_UNCHANGED, .max_bytes = 0, .max_times_sampled = 7},
                                 {.max_size = 3, .max_bytes = 6000000000, .max_times_sampled = RV_UNCHANGED}};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    rv_writer_buf out;
    rv_writer_buf_init(&out);
    rv_set_bounds_serialize(&out, "replay", &all[i]);
    rv_buf *buf = written(&out);
    rv_span table;
    rv_table_bounds back;
    assert_int_equal(rv_set_bounds_parse(span_of(buf), &table, &back, NULL), RV_OK);
    assert_true(span_is(table, "replay") && back.max_size == all[i].max_size);
    assert_int_equal(back.max_times_sampled, all[i].max_times_sampled);
    assert_int_equal(back.max_bytes, all[i].max_bytes);
    rv_buf_unref(buf);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_mutation_comes_back_as_it_went),
      cmocka_unit_test(a_mutation_has_the_bytes_that_protobuf_writes),
      cmocka_unit_test(malformed_mutations_are_refused),
      cmocka_unit_test(unknown_keys_are_reported_only_by_servers_that_know_how),
      cmocka_unit_test(small_requests_come_back_as_they_went),
      cmocka_unit_test(a_page_of_items_comes_back),
      cmocka_unit_test(a_rate_limiter_comes_back),
      cmocka_unit_test(bounds_come_back_and_what_is_absent_stays_as_it_is),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
