/* The insert stream against a server that keeps the rules. */
#include "client/insert_stream_testing.h"

static void a_chunk_is_sent_once_and_kept_while_it_is_pinned(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, "s1");
  rv_stream_chunk *window[8] = {NULL};
  static test_item items[300];
  for (uint64_t i = 0; i < 300; i++) { /* each item needs the last eight chunks */
    if (window[i % 8] != NULL) drop_chunk(window[i % 8]);
    window[i % 8] = make_chunk(1000 + i, i % 50 == 0 ? 300000 : 10);
    add(&bench, &items[i], 1 + i, window, i < 8 ? (uint32_t)i + 1 : 8);
  }
  for (int i = 0; i < 300; i++) {
    wait_done(&items[i]);
    assert_int_equal(items[i].code, RV_OK);
    rv_stream_item_fini(&items[i].item);
  }
  assert_int_equal(bench.server.num_chunks, 300);
  for (size_t i = 0; i < 300; i++) assert_int_equal(bench.server.items[i].sequence, i + 1);
  for (int i = 0; i < 8; i++) drop_chunk(window[i]);
  tear_down(&bench);
}

/* The first call ends with `code`, and the second, as it begins, with `second_code`. */
static void sent_again_after(rv_code code, rv_code second_code)
{
  test_bench bench;
  set_up(&bench, "s1");
  bench.server.end_after = 5;
  bench.server.end_code = code;
  bench.server.second_code = second_code;
  bench.server.confirm_until = 2;
  bench.server.only_first = true;
  rv_stream_chunk *chunk = make_chunk(9, 10);
  test_item items[5];
  for (uint64_t i = 0; i < 5; i++) add(&bench, &items[i], 100 + i, &chunk, 1);
  drop_chunk(chunk); /* the items keep it */
  for (int i = 0; i < 5; i++) {
    wait_done(&items[i]);
    if (items[i].code != RV_OK) fail_msg("%d %s", items[i].code, items[i].message);
    rv_stream_item_fini(&items[i].item);
  }
  const fake_server *server = &bench.server;
  assert_true(server->calls >= 2);
  assert_string_equal(server->writer[0], server->writer[1]);
  assert_int_equal(strlen(server->writer[0]), 32);
  assert_string_equal(server->state[0], "");
  assert_string_equal(server->state[1], "s1");
  if (second_code != RV_OK) assert_string_equal(server->writer[2], server->writer[0]);
  for (size_t i = 5; i < server->num_items; i++) {
    assert_int_equal(server->items[i].sequence, server->items[i].key - 99);
    if (i > 5 && server->items[i].call == server->items[i - 1].call)
      assert_true(server->items[i].sequence > server->items[i - 1].sequence);
  }
  tear_down(&bench);
}

static void what_was_not_confirmed_is_sent_again_in_order_under_the_same_numbers(void **state)
{
  (void)state;
  sent_again_after(RV_UNAVAILABLE, RV_OK);
}

/* A call that was held up on a connection that is lost may reach the server after the one that followed it, and take its place. */
static void a_stream_that_an_older_one_was_preferred_to_goes_on(void **state)
{
  (void)state;
  sent_again_after(RV_ABORTED, RV_OK);
}

/* RESOURCE_EXHAUSTED says that nothing was inserted, which a caller may do again: it is not said of what may be in since the call before. */
static void what_is_in_doubt_is_not_said_to_have_failed_for_want_of_memory(void **state)
{
  (void)state;
  sent_again_after(RV_UNAVAILABLE, RV_RESOURCE_EXHAUSTED);
}

/* It had room for some: the others may be in by the next call, for which it keeps nothing yet. */
static void what_was_not_confirmed_is_sent_again_when_a_server_has_no_more_room(void **state)
{
  (void)state;
  sent_again_after(RV_RESOURCE_EXHAUSTED, RV_OK);
}

static void what_no_call_before_has_sent_fails_for_want_of_memory(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, "s1");
  bench.server.end_after = 1;
  bench.server.end_code = RV_RESOURCE_EXHAUSTED;
  bench.server.confirm_until = 0;
  rv_stream_chunk *chunk = make_chunk(9, 10);
  test_item item;
  add(&bench, &item, 1, &chunk, 1);
  wait_done(&item);
  assert_int_equal(item.code, RV_RESOURCE_EXHAUSTED);
  rv_stream_item_fini(&item.item);
  drop_chunk(chunk);
  tear_down(&bench);
}

/* There is an end to asking, too. */
static void what_is_in_doubt_is_told_so_when_a_server_has_no_room_for_half_a_minute(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, "s1");
  bench.server.end_after = 2;
  bench.server.end_code = RV_UNAVAILABLE;
  bench.server.confirm_until = 1;
  bench.server.later_code = RV_RESOURCE_EXHAUSTED;
  bench.server.later_ns = INT64_C(12000000000);
  rv_stream_chunk *chunk = make_chunk(9, 10);
  test_item items[2];
  for (uint64_t i = 0; i < 2; i++) add(&bench, &items[i], 1 + i, &chunk, 1);
  wait_done(&items[0]);
  wait_done(&items[1]);
  assert_int_equal(items[0].code, RV_OK);
  assert_int_equal(items[1].code, RV_UNKNOWN);
  for (size_t i = 0; i < 2; i++) rv_stream_item_fini(&items[i].item);
  drop_chunk(chunk);
  tear_down(&bench);
}

static void a_plain_server_is_not_waited_for(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, NULL);
  bench.server.confirm_until = 0;
  rv_stream_chunk *chunk = make_chunk(9, 10);
  test_item items[2];
  add(&bench, &items[0], 1, &chunk, 1);
  wait_seen(&bench, 1); /* without headers or any answer */
  add(&bench, &items[1], 2, &chunk, 1);
  wait_seen(&bench, 2);
  close_stream(&bench);
  assert_true(items[0].done && items[1].done);
  assert_int_equal(items[0].code, RV_CANCELLED);
  for (int i = 0; i < 2; i++) rv_stream_item_fini(&items[i].item);
  drop_chunk(chunk);
  bench.stream = NULL;
  tear_down(&bench);
}

static void items_that_are_left_to_be_found_are_found_whatever_the_server_does(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, "s1");
  bench.server.confirm_until = 0; /* an answer is due all the time, and never comes */
  rv_stream_chunk *chunk = make_chunk(9, 10);
  static test_item items[200];
  for (uint64_t i = 0; i < 200; i++) {
    add(&bench, &items[i], 1 + i, &chunk, 1);
    if (i % 3 == 0) wait_seen(&bench, i + 1); /* nothing else wakes the loop meanwhile */
    if (i % 7 == 0) rv_insert_stream_hurry(bench.stream, 0);
  }
  wait_seen(&bench, 200);
  drop_chunk(chunk);
  close_stream(&bench);
  for (int i = 0; i < 200; i++) {
    assert_int_equal(items[i].code, RV_CANCELLED);
    rv_stream_item_fini(&items[i].item);
  }
  bench.stream = NULL;
  tear_down(&bench);
}

/* More than any window, in items that one after another leave the inbox only because the loop has promised to look. */
static void items_that_fill_every_buffer_all_arrive(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, "s1");
  static test_item items[300];
  for (uint64_t i = 0; i < 300; i++) {
    rv_stream_chunk *chunk = make_chunk(1000 + i, 40000);
    add(&bench, &items[i], 1 + i, &chunk, 1);
    drop_chunk(chunk);
  }
  for (int i = 0; i < 300; i++) {
    wait_done(&items[i]);
    assert_int_equal(items[i].code, RV_OK);
    rv_stream_item_fini(&items[i].item);
  }
  for (size_t i = 0; i < 300; i++) assert_int_equal(bench.server.items[i].sequence, i + 1);
  tear_down(&bench);
}

static void a_status_that_is_final_fails_what_was_sent_and_the_rest_goes_on_under_a_new_name(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, NULL);
  bench.server.confirm_until = 0;
  rv_stream_chunk *chunk = make_chunk(9, 10);
  test_item items[3];
  add(&bench, &items[0], 1, &chunk, 1);
  wait_seen(&bench, 1);
  rv_mutex_lock(&bench.server.mutex);
  bench.server.end_after = 2;
  bench.server.end_code = RV_NOT_FOUND;
  rv_mutex_unlock(&bench.server.mutex);
  add(&bench, &items[1], 2, &chunk, 1);
  wait_done(&items[0]);
  wait_done(&items[1]);
  assert_int_equal(items[0].code, RV_NOT_FOUND);
  assert_string_equal(items[1].message, "as the test wanted");
  rv_mutex_lock(&bench.server.mutex);
  bench.server.end_after = 0;
  bench.server.confirm_until = SIZE_MAX;
  rv_mutex_unlock(&bench.server.mutex);
  add(&bench, &items[2], 3, &chunk, 1);
  wait_done(&items[2]);
  assert_int_equal(items[2].code, RV_OK);
  assert_int_equal(bench.server.items[2].sequence, 1);
  assert_string_not_equal(bench.server.writer[0], bench.server.writer[1]);
  for (int i = 0; i < 3; i++) rv_stream_item_fini(&items[i].item);
  drop_chunk(chunk);
  tear_down(&bench);
}

static void a_refused_item_fails_alone(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, "s1");
  bench.server.refuse = 2;
  rv_stream_chunk *chunk = make_chunk(9, 10);
  test_item items[3];
  for (uint64_t i = 0; i < 3; i++) add(&bench, &items[i], 1 + i, &chunk, 1);
  for (int i = 0; i < 3; i++) wait_done(&items[i]);
  assert_int_equal(items[0].code, RV_OK);
  assert_int_equal(items[1].code, RV_INVALID_ARGUMENT);
  assert_string_equal(items[1].message, "refused");
  assert_int_equal(items[2].code, RV_OK);
  for (int i = 0; i < 3; i++) rv_stream_item_fini(&items[i].item);
  drop_chunk(chunk);
  tear_down(&bench);
}

static void an_answer_that_cannot_be_read_is_an_error(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, "s1");
  bench.server.garbage = true;
  rv_stream_chunk *chunk = make_chunk(9, 10);
  test_item item;
  add(&bench, &item, 1, &chunk, 1);
  wait_done(&item);
  assert_int_equal(item.code, RV_INTERNAL);
  rv_stream_item_fini(&item.item);
  drop_chunk(chunk);
  tear_down(&bench);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_chunk_is_sent_once_and_kept_while_it_is_pinned),
      cmocka_unit_test(what_was_not_confirmed_is_sent_again_in_order_under_the_same_numbers),
      cmocka_unit_test(a_stream_that_an_older_one_was_preferred_to_goes_on),
      cmocka_unit_test(what_is_in_doubt_is_not_said_to_have_failed_for_want_of_memory),
      cmocka_unit_test(what_was_not_confirmed_is_sent_again_when_a_server_has_no_more_room),
      cmocka_unit_test(what_no_call_before_has_sent_fails_for_want_of_memory),
      cmocka_unit_test(what_is_in_doubt_is_told_so_when_a_server_has_no_room_for_half_a_minute),
      cmocka_unit_test(a_plain_server_is_not_waited_for),
      cmocka_unit_test(items_that_are_left_to_be_found_are_found_whatever_the_server_does),
      cmocka_unit_test(items_that_fill_every_buffer_all_arrive),
      cmocka_unit_test(a_status_that_is_final_fails_what_was_sent_and_the_rest_goes_on_under_a_new_name),
      cmocka_unit_test(a_refused_item_fails_alone),
      cmocka_unit_test(an_answer_that_cannot_be_read_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
