#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <string.h>

#include "client/receive.h"

static rv_client *client;

static int make_client(void **state)
{
  (void)state;
  rv_client_config config = {.size = sizeof config, .address = "localhost:1"};
  return rv_client_new(&config, &client, NULL);
}

static int drop_client(void **state)
{
  (void)state;
  rv_client_free(client);
  return 0;
}

/* ---- messages ---- */

typedef struct entry {
  bool info;
  uint64_t item_key;
  const rv_wire_slice *slices; /* of the one column */
  uint32_t num_slices;
  const uint64_t *chunks; /* each int64[4], {key * 10, key * 10 + 1, ...} */
  size_t num_chunks;
  bool end;
} entry;

static void put_chunk(rv_writer_buf *out, uint64_t key)
{
  rv_spec spec = {.name = "", .dtype = RV_INT64, .rank = 0};
  rv_chunk_meta meta = {.key = key, .last_step = 3};
  rv_chunk *chunk;
  assert_int_equal(rv_segment_new(&spec, 1, 4, &meta, &chunk, NULL), RV_OK);
  for (int64_t i = 0; i < 4; i++) {
    int64_t value = (int64_t)key * 10 + i;
    rv_tensor row = {.dtype = RV_INT64, .data = &value};
    assert_int_equal(rv_segment_put(chunk, 0, i, &row, NULL), RV_OK);
  }
  rv_segment_publish(chunk, 0, 4);
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  rv_chunk_encoding encoding = {.key = key, .column = SIZE_MAX, .count = 4};
  assert_int_equal(rv_chunk_serialize(&pieces, chunk, &encoding, NULL), RV_OK);
  uint8_t flat[512];
  size_t size = 0;
  for (size_t i = 0; i < pieces.count; i++) {
    memcpy(flat + size, pieces.piece[i].data, pieces.piece[i].size);
    size += pieces.piece[i].size;
  }
  rv_put_bytes_always(out, 2, flat, size);
  rv_pieces_fini(&pieces);
  rv_chunk_unref(chunk);
}

static void put_info(rv_writer_buf *out, const entry *from)
{
  bool squeeze = false;
  rv_wire_item item = {.key = from->item_key,
                       .table = {.data = (const uint8_t *)"t", .size = 1},
                       .priority = 2,
                       .times_sampled = 3,
                       .slices = (rv_wire_slice *)(uintptr_t)from->slices,
                       .num_slices = (uint32_t[]){from->num_slices},
                       .squeeze = &squeeze,
                       .num_columns = 1,
                       .total_slices = from->num_slices};
  size_t info = rv_put_open(out, 1);
  size_t mark = rv_put_open(out, 1);
  rv_wire_item_serialize(out, &item);
  rv_put_close(out, mark);
  rv_put_double(out, 2, 0.5);
  rv_put_varint(out, 3, 7);
  rv_put_close(out, info);
}

static rv_buf *message_of(const entry *entries, size_t n)
{
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  for (size_t i = 0; i < n; i++) {
    size_t mark = rv_put_open(&out, 1);
    if (entries[i].info) put_info(&out, &entries[i]);
    for (size_t j = 0; j < entries[i].num_chunks; j++) put_chunk(&out, entries[i].chunks[j]);
    rv_put_varint(&out, 3, entries[i].end);
    rv_put_close(&out, mark);
  }
  rv_buf *buf = rv_buf_copy(out.data, out.size);
  rv_writer_buf_fini(&out);
  return buf;
}

static rv_code take(rv_receiver *receiver, const entry *entries, size_t n, rv_draw *out, size_t capacity, size_t *count,
                    rv_error *err)
{
  rv_buf *buf = message_of(entries, n);
  rv_code code = rv_receiver_take(receiver, buf, (rv_span){buf->data, buf->size}, out, capacity, count, err);
  rv_buf_unref(buf);
  return code;
}

/* ---- tests ---- */

static const uint64_t chunk_keys[] = {1, 2};
static const rv_wire_slice over_both[] = {{.chunk_key = 1, .offset = 2, .length = 2}, {.chunk_key = 2, .length = 1}};

static void a_sample_may_spread_over_messages(void **state)
{
  (void)state;
  rv_error err;
  for (int copy = 0; copy < 2; copy++) {
    rv_receiver receiver;
    rv_receiver_init(&receiver, client, copy == 1);
    rv_draw draws[2];
    size_t count = 0;
    entry first = {.info = true, .item_key = 9, .slices = over_both, .num_slices = 2, .chunks = chunk_keys, .num_chunks = 1};
    entry second[] = {
        {.chunks = chunk_keys + 1, .num_chunks = 1},
        {.end = true},
        {.info = true, .item_key = 10, .slices = over_both, .num_slices = 1, .chunks = chunk_keys, .num_chunks = 1, .end = true}};
    assert_int_equal(take(&receiver, &first, 1, draws, 2, &count, &err), RV_OK);
    assert_int_equal(count, 0);
    assert_int_equal(take(&receiver, second, 3, draws, 2, &count, &err), RV_OK);
    assert_int_equal(count, 2);
    assert_int_equal(draws[0].key, 9);
    assert_int_equal(draws[0].times_sampled, 3);
    assert_int_equal(draws[0].table_size, 7);
    assert_true(draws[0].probability == 0.5 && draws[0].priority == 2);
    int64_t rows[3];
    assert_int_equal(rv_draw_copy_column(&draws[0], 0, rows, &err), RV_OK);
    assert_int_equal(rows[0], 12);
    assert_int_equal(rows[1], 13);
    assert_int_equal(rows[2], 20);
    for (size_t i = 0; i < count; i++) rv_draw_release(&draws[i]);
    rv_receiver_fini(&receiver);
  }
}

static void a_sample_may_have_many_chunks(void **state)
{
  (void)state;
  rv_error err;
  enum { N = 100 };
  uint64_t keys[N];
  rv_wire_slice slices[N];
  for (uint32_t i = 0; i < N; i++) {
    keys[i] = 1000 + i;
    slices[i] = (rv_wire_slice){.chunk_key = 1000 + (i * 37) % N, .offset = 1, .length = 1};
  }
  rv_receiver receiver;
  rv_receiver_init(&receiver, client, true);
  for (int round = 0; round < 2; round++) {
    rv_draw draw;
    size_t count = 0;
    entry all = {.info = true, .slices = slices, .num_slices = N, .chunks = keys, .num_chunks = N, .end = true};
    assert_int_equal(take(&receiver, &all, 1, &draw, 1, &count, &err), RV_OK);
    int64_t rows[N];
    assert_int_equal(rv_draw_copy_column(&draw, 0, rows, &err), RV_OK);
    for (uint32_t i = 0; i < N; i++) assert_int_equal(rows[i], (1000 + (i * 37) % N) * 10 + 1);
    rv_draw_release(&draw);
  }
  rv_receiver_fini(&receiver);
}

/* The good samples before the bad one stay; the error names the item. */
static void expect_loss(const entry *entries, size_t n, size_t capacity, size_t good, const char *says)
{
  rv_error err;
  rv_receiver receiver;
  rv_receiver_init(&receiver, client, false);
  rv_draw draws[4];
  size_t count = 0;
  assert_int_equal(take(&receiver, entries, n, draws, capacity, &count, &err), RV_DATA_LOSS);
  if (strstr(err.message, says) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.message, says);
  assert_int_equal(count, good);
  for (size_t i = 0; i < count; i++) rv_draw_release(&draws[i]);
  rv_receiver_fini(&receiver);
}

static void what_does_not_fit_together_is_data_loss(void **state)
{
  (void)state;
  entry good = {
      .info = true, .item_key = 5, .slices = over_both, .num_slices = 1, .chunks = chunk_keys, .num_chunks = 1, .end = true};
  entry missing = good;
  missing.item_key = 77;
  missing.num_slices = 2;
  expect_loss((entry[]){good, missing}, 2, 4, 1, "item 77");
  rv_wire_slice too_far = {.chunk_key = 1, .offset = 3, .length = 2}, negative = {.chunk_key = 1, .offset = -1, .length = 2},
                no_tensor = {.chunk_key = 1, .length = 1, .index = 4};
  const rv_wire_slice *bad[] = {&too_far, &negative, &no_tensor};
  for (size_t i = 0; i < 3; i++) {
    entry wrong = good;
    wrong.slices = bad[i];
    expect_loss(&wrong, 1, 4, 0, "item 5");
  }
  entry rest = {.end = true};
  expect_loss((entry[]){good, rest}, 2, 4, 1, "belongs to no sample");
  entry begun = good;
  begun.end = false;
  expect_loss((entry[]){begun, good}, 2, 4, 0, "begins within another");
  expect_loss((entry[]){good, good, good}, 3, 2, 2, "more samples");
}

/* Its chunk lies in the message: who keeps the sample keeps the message. */
static void one_sample_is_handed_over_whole_or_not_at_all(void **state)
{
  (void)state;
  rv_error err;
  rv_draw draw;
  entry good = {
      .info = true, .item_key = 5, .slices = over_both, .num_slices = 1, .chunks = chunk_keys, .num_chunks = 1, .end = true};
  entry rest = {.end = true}, begun = good;
  begun.end = false;
  const struct {
    entry entries[2];
    size_t n;
    rv_code code;
  } answers[] = {
      {{good}, 1, RV_OK}, {{begun}, 1, RV_DATA_LOSS}, {{good, rest}, 2, RV_DATA_LOSS}, {{good, good}, 2, RV_DATA_LOSS}};
  for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
    rv_buf *buf = message_of(answers[i].entries, answers[i].n);
    assert_int_equal(rv_receive_one(client, buf, (rv_span){buf->data, buf->size}, &draw, &err), answers[i].code);
    if (answers[i].code == RV_OK) rv_draw_release(&draw);
    assert_int_equal(atomic_load(&buf->refs), 1);
    rv_buf_unref(buf);
  }
}

static void cut_and_changed_messages_are_survived(void **state)
{
  (void)state;
  rv_error err;
  entry good = {
      .info = true, .item_key = 5, .slices = over_both, .num_slices = 2, .chunks = chunk_keys, .num_chunks = 2, .end = true};
  rv_buf *whole = message_of(&good, 1);
  for (size_t i = 0; i < whole->size * 2; i++) {
    size_t size = i < whole->size ? i : whole->size;
    rv_buf *buf = rv_buf_copy(whole->data, size);
    if (i >= whole->size) buf->data[i - whole->size] ^= 0x55;
    rv_receiver receiver;
    rv_receiver_init(&receiver, client, i % 2 == 0);
    rv_draw draw;
    size_t count = 0;
    rv_receiver_take(&receiver, buf, (rv_span){buf->data, buf->size}, &draw, 1, &count, &err);
    if (count == 1) {
      int64_t rows[64];
      if (draw.trajectory->columns[0].length <= 64 && draw.trajectory->columns[0].spec->row_bytes == 8)
        rv_draw_copy_column(&draw, 0, rows, &err);
      rv_draw_release(&draw);
    }
    rv_receiver_fini(&receiver);
    rv_buf_unref(buf);
  }
  rv_buf_unref(whole);
}

static void an_endless_sample_is_bounded(void **state)
{
  (void)state;
  rv_error err;
  rv_receiver receiver;
  rv_receiver_init(&receiver, client, true);
  receiver.max_bytes = 1000;
  rv_draw draw;
  size_t count = 0;
  entry first = {.info = true, .slices = over_both, .num_slices = 1};
  entry more = {.chunks = chunk_keys, .num_chunks = 2};
  assert_int_equal(take(&receiver, &first, 1, &draw, 1, &count, &err), RV_OK);
  rv_code code = RV_OK;
  for (int i = 0; i < 100 && code == RV_OK; i++) code = take(&receiver, &more, 1, &draw, 1, &count, &err);
  assert_int_equal(code, RV_RESOURCE_EXHAUSTED);
  rv_receiver_fini(&receiver);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_sample_may_spread_over_messages),       cmocka_unit_test(a_sample_may_have_many_chunks),
      cmocka_unit_test(what_does_not_fit_together_is_data_loss), cmocka_unit_test(one_sample_is_handed_over_whole_or_not_at_all),
      cmocka_unit_test(cut_and_changed_messages_are_survived),   cmocka_unit_test(an_endless_sample_is_bounded)};
  return cmocka_run_group_tests(tests, make_client, drop_client);
}
