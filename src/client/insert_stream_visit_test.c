/* Where memory is shared a large row is sent by its writer, as a guest of the loop, and by the loop's thread where he cannot. */
#include "client/insert_stream_testing.h"

enum { ROWS = 300, LARGE = 40000, SMALL = 100, TRIES = 2000, GOING = 20 };

/* Before the channel's own. */
static bool refuses;
static atomic_uint asked, sent;

/* And in its place. */
static bool shares_memory;

bool __wrap_rv_channel_lends(const rv_channel *channel);
bool __wrap_rv_channel_lends(const rv_channel *channel)
{
  (void)channel;
  return shares_memory;
}

bool __real_rv_channel_visit(rv_channel *channel, rv_task *task, int *fd);
bool __wrap_rv_channel_visit(rv_channel *channel, rv_task *task, int *fd);
bool __wrap_rv_channel_visit(rv_channel *channel, rv_task *task, int *fd)
{
  atomic_fetch_add(&asked, 1);
  *fd = -1;
  if (refuses || !__real_rv_channel_visit(channel, task, fd)) return false;
  atomic_fetch_add(&sent, 1);
  return true;
}

/* Of a server that has the stream's first item. */
static void begin(test_bench *bench, bool shared, bool refused)
{
  shares_memory = shared;
  refuses = refused;
  set_up(bench, "s1");
  test_item first;
  rv_stream_chunk *chunk = make_chunk(1, SMALL);
  add(bench, &first, 1, &chunk, 1);
  drop_chunk(chunk);
  wait_done(&first);
  rv_stream_item_fini(&first.item);
  atomic_store(&asked, 0);
  atomic_store(&sent, 0);
}

static void add_row(test_bench *bench, test_item *item, uint64_t key, size_t bytes)
{
  rv_link items;
  rv_list_init(&items);
  rv_stream_chunk *chunk = make_chunk(key, bytes);
  make_item(bench, item, key, &chunk, 1);
  rv_list_push_back(&items, &item->item.link);
  if (bytes == LARGE)
    rv_insert_stream_add_at_once(bench->stream, &items);
  else
    rv_insert_stream_add(bench->stream, &items);
  drop_chunk(chunk);
}

static void finish_all(test_item *items, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    wait_done(&items[i]);
    assert_int_equal(items[i].code, RV_OK);
    rv_stream_item_fini(&items[i].item);
  }
}

/* They come in the order in which they were added, and each is confirmed. */
static void add_rows(test_bench *bench, size_t bytes, size_t odd_bytes)
{
  static test_item items[ROWS];
  for (uint64_t i = 0; i < ROWS; i++) add_row(bench, &items[i], 2 + i, i % 2 == 0 ? bytes : odd_bytes);
  finish_all(items, ROWS);
  assert_int_equal(bench->server.num_items, 1 + ROWS);
  for (size_t i = 0; i < ROWS; i++) assert_int_equal(bench->server.items[1 + i].key, 2 + i);
}

static void a_large_row_is_sent_by_its_writer(void **state)
{
  (void)state;
  test_bench bench;
  begin(&bench, true, false);
  for (uint64_t i = 0; i < TRIES && atomic_load(&sent) == 0; i++) { /* now and then the loop's thread is busy */
    test_item item;
    add_row(&bench, &item, 2 + i, LARGE);
    wait_done(&item);
    assert_int_equal(item.code, RV_OK);
    rv_stream_item_fini(&item.item);
  }
  assert_int_not_equal(atomic_load(&sent), 0);
  tear_down(&bench);
}

/* How often their adder asked to be let in. */
static unsigned visits_of(bool shared, bool refused, size_t bytes, size_t odd_bytes)
{
  test_bench bench;
  begin(&bench, shared, refused);
  add_rows(&bench, bytes, odd_bytes);
  tear_down(&bench);
  return atomic_load(&asked);
}

static void large_rows_arrive_in_order_whoever_sends_them(void **state)
{
  (void)state;
  assert_int_not_equal(visits_of(true, false, LARGE, LARGE), 0);
}

static void a_large_row_that_its_writer_cannot_send_goes_by_the_loop(void **state)
{
  (void)state;
  assert_int_not_equal(visits_of(true, true, LARGE, LARGE), 0);
}

/* How many requests brought them, lent, of whom many waited for the loop's thread at a time. */
static size_t requests_for(size_t bytes, size_t odd_bytes)
{
  test_bench bench;
  begin(&bench, true, true);
  add_rows(&bench, bytes, odd_bytes);
  size_t requests = bench.server.num_requests - 1;
  tear_down(&bench);
  return requests;
}

static void a_lent_row_has_a_request_of_its_own(void **state)
{
  (void)state;
  assert_int_equal(requests_for(LARGE, LARGE), ROWS);
}

/* Between two of them stands a small one, which is in neither's request. */
static void a_lent_row_is_not_behind_small_ones_in_its_request(void **state)
{
  (void)state;
  assert_int_equal(requests_for(LARGE, SMALL), ROWS);
}

static void items_of_one_lent_chunk_share_its_request(void **state)
{
  (void)state;
  enum { ITEMS = 10 };
  test_bench bench;
  test_item items[ITEMS];
  rv_link list;
  begin(&bench, true, true);
  rv_list_init(&list);
  rv_stream_chunk *chunk = make_chunk(2, LARGE);
  for (uint64_t i = 0; i < ITEMS; i++) {
    make_item(&bench, &items[i], 2 + i, &chunk, 1);
    rv_list_push_back(&list, &items[i].item.link);
  }
  rv_insert_stream_add(bench.stream, &list);
  drop_chunk(chunk);
  finish_all(items, ITEMS);
  assert_int_equal(bench.server.num_requests, 2);
  tear_down(&bench);
}

static void large_and_small_rows_arrive_in_order(void **state)
{
  (void)state;
  assert_int_not_equal(visits_of(true, false, LARGE, SMALL), 0);
  assert_int_not_equal(visits_of(true, true, LARGE, SMALL), 0);
}

static void a_small_row_waits_for_others(void **state)
{
  (void)state;
  assert_int_equal(visits_of(true, false, SMALL, SMALL), 0);
}

static void over_a_socket_a_large_row_goes_by_the_loop(void **state)
{
  (void)state;
  assert_int_equal(visits_of(false, false, LARGE, LARGE), 0);
}

/* Items that were not sent when the stream went complete all the same. */
static void a_stream_can_go_right_after_a_large_row(void **state)
{
  (void)state;
  for (int i = 0; i < GOING; i++) {
    test_bench bench;
    test_item item;
    begin(&bench, true, false);
    add_row(&bench, &item, 2, LARGE);
    close_stream(&bench);
    bench.stream = NULL;
    assert_true(item.done);
    assert_true(item.code == RV_OK || item.code == RV_CANCELLED);
    rv_stream_item_fini(&item.item);
    tear_down(&bench);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_large_row_is_sent_by_its_writer),
      cmocka_unit_test(large_rows_arrive_in_order_whoever_sends_them),
      cmocka_unit_test(a_large_row_that_its_writer_cannot_send_goes_by_the_loop),
      cmocka_unit_test(a_lent_row_has_a_request_of_its_own),
      cmocka_unit_test(a_lent_row_is_not_behind_small_ones_in_its_request),
      cmocka_unit_test(items_of_one_lent_chunk_share_its_request),
      cmocka_unit_test(large_and_small_rows_arrive_in_order),
      cmocka_unit_test(a_stream_can_go_right_after_a_large_row),
      cmocka_unit_test(a_small_row_waits_for_others),
      cmocka_unit_test(over_a_socket_a_large_row_goes_by_the_loop),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
