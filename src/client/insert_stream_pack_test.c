/* Packs of items: what is sent in them, and that each item in one is an item like any other. */
#include "client/insert_stream_testing.h"

enum { ALIKE = 60 };

typedef struct alike {
  test_bench *bench;
  test_item items[ALIKE];
  uint64_t first_key;
  bool apart; /* the chunks' rows are not among their other bytes */
} alike;

/* One row of one byte, which is the lowest of the key. */
static rv_stream_chunk *make_own_chunk(uint64_t key, bool apart)
{
  static const uint8_t before[] = {0x2A, 0x0F, 0x0A, 0x0D, 0x08, 0x04, 0x12, 0x04,
                                   0x12, 0x02, 0x08, 0x01, 0x22, 0x03, 0x01, 0x00};
  static const uint8_t behind[] = {0x30, 0x01, 0x38, 0x01};
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  rv_put_varint(&body, 1, key);
  rv_put_bytes(&body, 2, "\x10\x07", 2);
  uint32_t own = (uint32_t)body.size;
  rv_put_raw(&body, before, sizeof before);
  uint8_t row = (uint8_t)key;
  if (!apart) rv_put_raw(&body, &row, 1);
  rv_put_raw(&body, behind, sizeof behind);
  rv_stream_chunk *chunk = NULL;
  assert_int_equal(rv_stream_chunk_new_flat(key, body.size, 1, NULL, &chunk, NULL), RV_OK);
  memcpy(chunk->flat, body.data, body.size);
  rv_writer_buf_fini(&body);
  chunk->form = 1;
  chunk->own_size = own;
  chunk->rows_at = own + (uint32_t)sizeof before;
  chunk->row_bytes = 1;
  if (apart) {
    rv_buf *owner = rv_buf_copy(&row, 1);
    chunk->rows = (rv_piece){.data = owner->data, .size = 1, .owner = owner};
  }
  return chunk;
}

/* On the loop's thread, so that nothing is sent before all are there. Every tenth item is of another form, and the last one's chunk is
 * still wanted by others. */
static void add_alike(void *context)
{
  alike *all = context;
  for (uint64_t i = 0; i < ALIKE; i++) {
    rv_stream_chunk *chunk = make_own_chunk(1000 + all->first_key + i, all->apart);
    add(all->bench, &all->items[i], all->first_key + i, &chunk, 1);
    all->items[i].item.form = i % 10 == 9 ? 2 : 1;
    all->items[i].item.priority = 1;
    if (i + 1 < ALIKE)
      drop_chunk(chunk);
    else
      rv_stream_chunk_unref(chunk);
  }
}

static void send_alike(test_bench *bench, alike *all, uint64_t first_key, bool apart)
{
  *all = (alike){.bench = bench, .first_key = first_key, .apart = apart};
  rv_loop_call(bench->loop, add_alike, all);
  for (int i = 0; i < ALIKE; i++) {
    wait_done(&all->items[i]);
    if (all->items[i].code != RV_OK) fail_msg("%d %s", all->items[i].code, all->items[i].message);
    rv_stream_item_fini(&all->items[i].item);
  }
}

static void items_that_look_alike_come_in_packs_where_the_server_takes_them(void **state)
{
  (void)state;
  static alike all;
  for (int way = 0; way < 4; way++) {
    bool packs = way % 2 == 1, apart = way >= 2;
    test_bench bench;
    set_up(&bench, "s1");
    bench.server.packs = packs;
    rv_stream_chunk *chunk = make_chunk(9, 10);
    test_item first;
    add(&bench, &first, 1, &chunk, 1); /* the server is known by its first answer */
    wait_done(&first);
    send_alike(&bench, &all, 100, apart);
    assert_int_equal(bench.server.num_packed, packs ? ALIKE / 10 * 9 : 0);
    assert_int_equal(bench.server.num_items, 1 + ALIKE);
    for (size_t i = 0; i < 1 + ALIKE; i++) { /* in their order, each with its number */
      assert_int_equal(bench.server.items[i].sequence, i + 1);
      assert_int_equal(bench.server.items[i].key, i == 0 ? 1 : 99 + i);
    }
    rv_stream_item_fini(&first.item);
    drop_chunk(chunk);
    tear_down(&bench);
  }
}

static void items_of_a_pack_that_were_not_confirmed_are_sent_again_under_the_same_numbers(void **state)
{
  (void)state;
  static alike all;
  test_bench bench;
  set_up(&bench, "s1");
  bench.server.packs = true;
  bench.server.end_after = 21; /* each call ends when one item more has come than it confirms */
  bench.server.end_code = RV_UNAVAILABLE;
  bench.server.confirm_until = 20;
  rv_stream_chunk *chunk = make_chunk(9, 10);
  test_item first;
  add(&bench, &first, 1, &chunk, 1);
  wait_done(&first);
  send_alike(&bench, &all, 100, true);
  const fake_server *server = &bench.server;
  assert_true(server->calls >= 2 && server->num_packed > 0);
  for (size_t i = 0; i < server->num_items; i++)
    assert_int_equal(server->items[i].sequence, server->items[i].key == 1 ? 1 : server->items[i].key - 98);
  rv_stream_item_fini(&first.item);
  drop_chunk(chunk);
  tear_down(&bench);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(items_that_look_alike_come_in_packs_where_the_server_takes_them),
      cmocka_unit_test(items_of_a_pack_that_were_not_confirmed_are_sent_again_under_the_same_numbers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
