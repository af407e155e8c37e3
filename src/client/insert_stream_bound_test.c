/* The insert stream and messages that are larger than its server takes. */
#include "client/insert_stream_testing.h"

enum { BOUND = 64 << 10, ITEMS = 300 };

static void add_alone(test_bench *bench, test_item *item, uint64_t key, size_t bytes)
{
  rv_stream_chunk *chunk = make_chunk(key, bytes);
  add(bench, item, key, &chunk, 1);
  drop_chunk(chunk);
}

static void end_item(test_item *item, rv_code code, const char *text)
{
  wait_done(item);
  if (item->code != code || strstr(item->message, text) == NULL) fail_msg("%d %s", item->code, item->message);
  rv_stream_item_fini(&item->item);
}

/* Each is in once, by its number: one that came before a message which was too large may have come again, with the number that it had. */
static void expect_each_once(const fake_server *server, size_t count)
{
  uint64_t keys[ITEMS + 1] = {0};
  size_t in = 0;
  for (size_t i = 0; i < server->num_items; i++) {
    const uint64_t sequence = server->items[i].sequence, key = server->items[i].key;
    assert_in_range(sequence, 1, ITEMS);
    if (keys[sequence] == 0) in++;
    assert_true(keys[sequence] == 0 || keys[sequence] == key);
    keys[sequence] = key;
  }
  assert_int_equal(in, count);
}

static void an_item_that_is_too_large_costs_no_other(void **state)
{
  (void)state;
  enum { LARGE = 150 };
  static test_item items[ITEMS];
  test_bench bench;
  set_up_with(&bench, "s1", false, BOUND);
  for (uint64_t i = 0; i < ITEMS; i++) add_alone(&bench, &items[i], 1 + i, i == LARGE ? 2 * BOUND : 1000);
  for (size_t i = 0; i < ITEMS; i++)
    if (i != LARGE) end_item(&items[i], RV_OK, "");
  end_item(&items[LARGE], RV_RESOURCE_EXHAUSTED,
           "which is larger than this server takes (65536); raise the server's max_message_bytes");
  expect_each_once(&bench.server, ITEMS - 1);
  const unsigned calls = bench.server.calls; /* by now the bound is known, and nothing larger is sent */
  add_alone(&bench, &items[0], 1000, 2 * BOUND);
  add_alone(&bench, &items[1], 1001, 1000);
  end_item(&items[0], RV_RESOURCE_EXHAUSTED, "the item needs a message of 131");
  end_item(&items[1], RV_OK, "");
  assert_int_equal(bench.server.calls, calls);
  tear_down(&bench);
}

/* Not one of them is: a request that gathered many was. */
static void small_items_are_in_however_little_the_server_takes(void **state)
{
  (void)state;
  static test_item items[ITEMS];
  test_bench bench;
  set_up_with(&bench, "s1", false, RV_LEAST_MAX_MESSAGE);
  for (uint64_t i = 0; i < ITEMS; i++) add_alone(&bench, &items[i], 1 + i, 1000);
  for (size_t i = 0; i < ITEMS; i++) end_item(&items[i], RV_OK, "");
  expect_each_once(&bench.server, ITEMS);
  assert_true(bench.server.calls <= 2);
  tear_down(&bench);
}

/* Its chunks go in as many messages as they need. */
static void an_item_of_many_chunks_may_be_larger_than_a_message(void **state)
{
  (void)state;
  enum { CHUNKS = 60 };
  test_bench bench;
  rv_stream_chunk *chunks[CHUNKS];
  test_item items[2];
  set_up_with(&bench, "s1", false, BOUND);
  for (uint64_t i = 0; i < CHUNKS; i++) chunks[i] = make_chunk(1 + i, BOUND / 2);
  add(&bench, &items[0], 1, chunks, CHUNKS);
  add(&bench, &items[1], 2, chunks, CHUNKS);
  end_item(&items[0], RV_OK, "");
  end_item(&items[1], RV_OK, "");
  for (size_t i = 0; i < CHUNKS; i++) drop_chunk(chunks[i]);
  tear_down(&bench);
}

/* gRPC has no such message: nobody would ever take it. */
static void an_item_of_four_gigabytes_fails_and_no_other(void **state)
{
  (void)state;
  enum { PIECE = 64 << 20, PIECES = 65 };
  test_bench bench;
  rv_pieces pieces;
  rv_buf *buf = rv_buf_new(PIECE); /* nobody reads it */
  assert_non_null(buf);
  rv_pieces_init(&pieces);
  for (int i = 0; i < PIECES; i++) assert_int_equal(rv_pieces_share(&pieces, buf, buf->data, PIECE), RV_OK);
  rv_stream_chunk *chunk = NULL;
  assert_int_equal(rv_stream_chunk_new(7, &pieces, 1, NULL, &chunk, NULL), RV_OK);
  rv_buf_unref(buf);
  set_up(&bench, "s1");
  test_item items[2];
  add(&bench, &items[0], 1, &chunk, 1);
  drop_chunk(chunk);
  add_alone(&bench, &items[1], 2, 1000);
  end_item(&items[0], RV_RESOURCE_EXHAUSTED, "gRPC's messages are smaller than 4 GiB");
  end_item(&items[1], RV_OK, "");
  tear_down(&bench);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_item_that_is_too_large_costs_no_other),
      cmocka_unit_test(small_items_are_in_however_little_the_server_takes),
      cmocka_unit_test(an_item_of_many_chunks_may_be_larger_than_a_message),
      cmocka_unit_test(an_item_of_four_gigabytes_fails_and_no_other),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
