/* Rows that lie in blocks of the server's: they are gathered and go in packs, by their place, and nobody who waits for one waits for others. */
#include "client/insert_stream_testing.h"
#include "wire/chunk_stamp.h"

enum { ROWS = 400, ROW = 40000, AT_ONCE = 60 };

typedef struct rows {
  test_bench *bench;
  test_item items[ROWS];
  size_t in_blocks;
} rows;

static void begin(rows *r, test_bench *bench, bool packs)
{
  set_up_sharing(bench, "s1", true);
  bench->server.packs = packs;
  *r = (rows){.bench = bench};
}

/* A chunk of one row, each byte of it the lowest of the key; in a block where there is one, else where lent rows lie, or it is small. */
static rv_stream_chunk *make_row(rows *r, uint64_t key)
{
  const int64_t width = ROW;
  const rv_spec spec = {"", RV_UINT8, 1, (int64_t *)(uintptr_t)&width};
  const rv_chunk_meta meta = {.key = key, .episode_id = 3, .first_step = 5, .last_step = 5};
  rv_buf *room = rv_channel_take_block(r->bench->channel, ROW);
  r->in_blocks += room != NULL;
  if (room == NULL) room = rv_spares_take_lendable(rv_loop_spares(r->bench->loop), ROW);
  assert_non_null(room);
  memset(room->data, (int)(key & 255), ROW);
  rv_chunk *segment = NULL;
  assert_int_equal(rv_segment_new(&spec, 1, 1, &meta, &segment, NULL), RV_OK);
  rv_segment_publish(segment, 0, 1);
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  const rv_chunk_encoding encoding = {.key = key, .column = SIZE_MAX, .count = 1};
  assert_int_equal(rv_chunk_serialize(&pieces, segment, &encoding, NULL), RV_OK);
  assert_true(pieces.count == 3 && pieces.piece[1].size == ROW);
  const rv_piece *before = &pieces.piece[0], *behind = &pieces.piece[2];
  rv_stream_chunk *chunk = NULL;
  assert_int_equal(rv_stream_chunk_new_flat(key, before->size + behind->size, 1, NULL, &chunk, NULL), RV_OK);
  memcpy(chunk->flat, before->data, before->size);
  memcpy(chunk->flat + before->size, behind->data, behind->size);
  chunk->form = 1;
  chunk->own_size = (uint32_t)rv_chunk_stamp_own_size(&meta);
  chunk->rows_at = (uint32_t)before->size;
  chunk->row_bytes = ROW;
  chunk->rows = (rv_piece){.data = room->data, .size = ROW, .owner = room};
  rv_pieces_fini(&pieces);
  rv_chunk_unref(segment);
  return chunk;
}

/* As its writer does; who keeps the pin may still refer to the row. */
static rv_stream_chunk *put_row(rows *r, size_t i)
{
  rv_stream_chunk *chunk = make_row(r, 1000 + i);
  make_item(r->bench, &r->items[i], i + 1, &chunk, 1);
  r->items[i].item.form = 1;
  r->items[i].item.priority = 1;
  rv_link items;
  rv_list_init(&items);
  rv_list_push_back(&items, &r->items[i].item.link);
  rv_insert_stream_add_gathered(r->bench->stream, &items);
  return chunk;
}

static void expect_done(rows *r, size_t i)
{
  wait_done(&r->items[i]);
  if (r->items[i].code != RV_OK) fail_msg("row %zu: %d %s", i, r->items[i].code, r->items[i].message);
  rv_stream_item_fini(&r->items[i].item);
}

/* A writer that keeps one row, and has a bounded number on their way. */
static void put_rows(rows *r, size_t first, size_t count)
{
  rv_stream_chunk *newest = NULL;
  for (size_t i = first; i < first + count; i++) {
    if (newest != NULL) drop_chunk(newest);
    newest = put_row(r, i);
    if (i >= first + AT_ONCE) expect_done(r, i - AT_ONCE);
  }
  drop_chunk(newest);
  for (size_t i = count > AT_ONCE ? first + count - AT_ONCE : first; i < first + count; i++) expect_done(r, i);
}

static void expect_in_order(const fake_server *server)
{
  assert_int_equal(server->num_items, ROWS);
  for (size_t i = 0; i < ROWS; i++) {
    assert_int_equal(server->items[i].key, i + 1);
    assert_int_equal(server->items[i].sequence, i + 1);
  }
}

static void rows_in_blocks_go_in_packs_by_their_place(void **state)
{
  (void)state;
  static rows r;
  size_t placed = 0;
  for (int turn = 0; turn < 20 && placed == 0; turn++) { /* how many is a matter of who is awake */
    test_bench bench;
    begin(&r, &bench, true);
    put_rows(&r, 0, ROWS);
    expect_in_order(&bench.server);
    placed = bench.server.num_placed;
    assert_in_range(placed, 0, r.in_blocks);
    assert_int_equal(bench.server.num_packed, placed); /* others would have to be copied out of their packs */
    tear_down(&bench);
  }
  assert_int_not_equal(placed, 0);
}

/* Another server, or an older one. */
static void rows_go_by_themselves_where_the_server_takes_no_packs(void **state)
{
  (void)state;
  static rows r;
  test_bench bench;
  begin(&r, &bench, false);
  put_rows(&r, 0, ROWS);
  expect_in_order(&bench.server);
  assert_int_equal(bench.server.num_packed, 0);
  tear_down(&bench);
}

/* It may be referred to by more items, so it cannot go in a pack; and nobody adds another that would take it along. */
static void the_newest_row_arrives_while_its_writer_keeps_it(void **state)
{
  (void)state;
  static rows r;
  test_bench bench;
  begin(&r, &bench, true);
  for (size_t i = 0; i < 50; i += 10) {
    put_rows(&r, i, 9);
    rv_stream_chunk *kept = put_row(&r, i + 9);
    if (i % 20 == 0) rv_insert_stream_hurry(bench.stream, 0);
    wait_done(&r.items[i + 9]);
    drop_chunk(kept);
    expect_done(&r, i + 9);
  }
  tear_down(&bench);
}

/* By a call of the same connection, whose server has them already. */
static void rows_that_were_not_confirmed_are_sent_again(void **state)
{
  (void)state;
  static rows r;
  test_bench bench;
  begin(&r, &bench, true);
  bench.server.end_after = 100; /* each call ends when it has brought so many, of which some are not confirmed */
  bench.server.end_code = RV_UNAVAILABLE;
  bench.server.confirm_until = 90;
  put_rows(&r, 0, ROWS);
  const fake_server *server = &bench.server;
  assert_true(server->calls >= 4 && server->num_placed > 0);
  for (size_t i = 0; i < server->num_items; i++) assert_int_equal(server->items[i].sequence, server->items[i].key);
  tear_down(&bench);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_in_blocks_go_in_packs_by_their_place),
      cmocka_unit_test(rows_go_by_themselves_where_the_server_takes_no_packs),
      cmocka_unit_test(the_newest_row_arrives_while_its_writer_keeps_it),
      cmocka_unit_test(rows_that_were_not_confirmed_are_sent_again),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
