/* Packs of items whose rows are named by their place: each chunk is what it would be if its rows had come with it, and packs whose places do not
 * fit their items are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "wire/insert_pack.h"

enum {
  ITEMS = 21, /* some more than have their places fetched together, twice */
  CHUNKS = 2,
  WIDTH = 50,
  ROW = WIDTH * sizeof(int32_t),
  AT_MOST = 4096
};

/* Rows that lie somewhere, and how often one was asked for. */
typedef struct somewhere {
  int32_t rows[ITEMS][WIDTH];
  size_t placed;         /* chunks of each item */
  size_t fetched, taken; /* places */
  size_t none_after;     /* so many may be taken */
  rv_code code;          /* of the next */
} somewhere;

static void fill_rows(somewhere *there)
{
  *there = (somewhere){.placed = 1, .none_after = SIZE_MAX, .code = RV_INVALID_ARGUMENT};
  for (int i = 0; i < ITEMS; i++)
    for (int e = 0; e < WIDTH; e++) there->rows[i][e] = 1000 * i + e;
}

static rv_code take(void *context, const uint8_t *place, size_t before, size_t rows, size_t behind, rv_buf **out, rv_error *err)
{
  somewhere *there = context;
  if (there->taken == there->none_after) return rv_fail(err, there->code, "there is no such row");
  there->taken++;
  if (place[0] >= ITEMS || rows > ROW) return rv_fail(err, RV_INVALID_ARGUMENT, "no row lies at %d", place[0]);
  *out = rv_buf_new(before + rows + behind);
  assert_non_null(*out);
  memset((*out)->data, 0xEE, (*out)->capacity);
  memcpy((*out)->data + before, there->rows[place[0]], rows);
  (*out)->size = (*out)->capacity;
  return RV_OK;
}

/* Each once, in the order in which they are taken, but for the first item's, and none long before it is needed. */
static void fetch(void *context, const uint8_t *place, size_t rows)
{
  somewhere *there = context;
  const size_t before = there->placed + there->fetched++;
  assert_int_equal(place[0], before / there->placed);
  assert_int_equal(place[1], before % there->placed);
  assert_int_equal(rows, ROW);
  assert_in_range(before, there->taken, there->taken + 10);
}

/* ---- chunks and packs ---- */

static uint64_t chunk_key(size_t item, size_t chunk)
{
  return 100 * (item + 1) + chunk;
}

/* The ChunkData; *own and *rows_at: how many bytes key and range take, and what stands before the row. */
static void put_chunk(rv_writer_buf *out, const somewhere *there, size_t item, size_t chunk, size_t *own, size_t *rows_at)
{
  const int64_t width = WIDTH;
  const rv_spec spec = {"", RV_INT32, 1, (int64_t *)(uintptr_t)&width};
  const rv_chunk_meta meta = {
      .key = chunk_key(item, chunk), .episode_id = 7 << item, .first_step = (int32_t)item, .last_step = (int32_t)item};
  rv_chunk *segment = NULL;
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  assert_int_equal(rv_segment_new(&spec, 1, 1, &meta, &segment, NULL), RV_OK);
  rv_tensor row = {.dtype = RV_INT32, .rank = 1, .shape = &width, .data = there->rows[item]};
  assert_int_equal(rv_segment_put(segment, 0, 0, &row, NULL), RV_OK);
  rv_segment_publish(segment, 0, 1);
  const rv_chunk_encoding encoding = {.key = meta.key, .column = SIZE_MAX, .count = 1};
  assert_int_equal(rv_chunk_serialize(&pieces, segment, &encoding, NULL), RV_OK);
  size_t begin = out->size;
  for (size_t i = 0; i < pieces.count; i++) rv_put_raw(out, pieces.piece[i].data, pieces.piece[i].size);
  rv_pieces_fini(&pieces);
  rv_chunk_unref(segment);
  const uint8_t *bytes = out->data + begin, *found = memmem(bytes, out->size - begin, there->rows[item], ROW);
  assert_non_null(found);
  *rows_at = (size_t)(found - bytes);
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, (rv_span){bytes, out->size - begin});
  while (rv_reader_next(&reader, &field) && field.number <= 2) *own = (size_t)(reader.at - bytes);
}

static void put_item(rv_writer_buf *out)
{
  rv_wire_slice slices[CHUNKS];
  uint32_t num_slices[CHUNKS];
  bool squeeze[CHUNKS];
  for (size_t i = 0; i < CHUNKS; i++) {
    slices[i] = (rv_wire_slice){.chunk_key = chunk_key(0, i), .length = 1};
    num_slices[i] = 1;
    squeeze[i] = true;
  }
  rv_wire_item item = {.key = 1,
                       .table = {(const uint8_t *)"t", 1},
                       .priority = 1,
                       .sequence = 10,
                       .slices = slices,
                       .num_slices = num_slices,
                       .squeeze = squeeze,
                       .num_columns = CHUNKS,
                       .total_slices = CHUNKS};
  size_t mark = rv_put_open(out, RV_PACK_ITEM);
  rv_wire_item_serialize(out, &item);
  rv_put_close(out, mark);
}

/* What is wrong with a pack. */
typedef enum fault {
  NOTHING,
  A_PLACE_LESS,
  A_PLACE_MORE,
  HALF_A_PLACE,
  A_SIZE_LESS,
  NO_STARTS,
  TOO_SHORT_ROWS,
  TOO_LONG_ROWS,
  BEHIND_ALL,
  IN_THE_HEAD,
  ONE_PLACE_TWICE
} fault;

/* Of each item the rows of its first `placed` chunks are named by their place; the others' come with them. */
static void put_pack_of(rv_writer_buf *out, const somewhere *there, size_t placed, fault wrong)
{
  uint64_t sizes[CHUNKS] = {ROW, placed > 1 ? ROW : 0}, starts[CHUNKS] = {0}, keys[ITEMS];
  double priorities[ITEMS];
  rv_writer_buf rest, chunk, places;
  rv_writer_buf_init(&rest);
  rv_writer_buf_init(&chunk);
  rv_writer_buf_init(&places);
  put_item(out);
  for (size_t i = 0; i < ITEMS; i++) {
    const uint8_t place[RV_ROWS_PLACE_BYTES] = {(uint8_t)i};
    for (size_t c = 0; c < placed; c++) rv_put_raw(&places, (uint8_t[RV_ROWS_PLACE_BYTES]){(uint8_t)i, (uint8_t)c}, sizeof place);
    if (wrong == ONE_PLACE_TWICE) rv_put_raw(&places, place, sizeof place);
    if (i > 0) keys[i - 1] = i + 1;
    if (i > 0) priorities[i - 1] = (double)i;
    for (size_t c = 0; c < CHUNKS; c++) {
      size_t own = 0, at = 0;
      chunk.size = 0;
      put_chunk(&chunk, there, i, c, &own, &at);
      if (i > 0) {
        rv_put_raw(&rest, chunk.data, own);
        if (c >= placed) rv_put_raw(&rest, chunk.data + at, ROW);
        continue;
      }
      if (c >= placed) at += ROW; /* all of it */
      if (c < placed) starts[c] = wrong == IN_THE_HEAD ? own - 1 : wrong == BEHIND_ALL ? chunk.size : at;
      rv_put_header(out, RV_PACK_CHUNKS, c >= placed ? chunk.size : chunk.size - ROW);
      rv_put_raw(out, chunk.data, at);
      size_t behind = c >= placed ? at : at + ROW;
      rv_put_raw(out, chunk.data + behind, chunk.size - behind);
    }
  }
  if (wrong == TOO_SHORT_ROWS) sizes[0] = ROW - 4;
  if (wrong == TOO_LONG_ROWS) sizes[0] = ROW + 4;
  if (wrong == ONE_PLACE_TWICE) sizes[1] = ROW;
  size_t all = places.size;
  const uint8_t more[RV_ROWS_PLACE_BYTES] = {0};
  if (wrong == A_PLACE_MORE) rv_put_raw(&places, more, sizeof more);
  if (wrong == A_PLACE_LESS) places.size = all - RV_ROWS_PLACE_BYTES;
  if (wrong == HALF_A_PLACE) places.size = all - RV_ROWS_PLACE_BYTES / 2;
  rv_put_packed(out, RV_PACK_PLACED, sizes, wrong == A_SIZE_LESS ? 1 : CHUNKS);
  if (wrong != NO_STARTS) rv_put_packed(out, RV_PACK_ROWS_AT, starts, wrong == A_SIZE_LESS ? 1 : CHUNKS);
  rv_put_bytes_always(out, RV_PACK_PLACES, places.data, places.size);
  rv_put_bytes_always(out, RV_PACK_REST, rest.data, rest.size);
  rv_put_bytes_always(out, RV_PACK_KEYS, keys, (ITEMS - 1) * sizeof *keys);
  rv_put_bytes_always(out, RV_PACK_PRIORITIES, priorities, (ITEMS - 1) * sizeof *priorities);
  assert_false(out->failed || rest.failed || places.failed || chunk.failed);
  rv_writer_buf_fini(&rest);
  rv_writer_buf_fini(&chunk);
  rv_writer_buf_fini(&places);
}

static void put_pack(rv_writer_buf *out, const somewhere *there, fault wrong)
{
  put_pack_of(out, there, 1, wrong);
}

static rv_span span_of(const rv_writer_buf *out)
{
  return (rv_span){out->data, out->size};
}

static void expect_chunk(rv_chunk *chunk, const somewhere *there, size_t item, size_t number)
{
  rv_writer_buf whole;
  rv_writer_buf_init(&whole);
  size_t own, at;
  put_chunk(&whole, there, item, number, &own, &at);
  const uint8_t *wire;
  size_t size;
  assert_non_null(rv_chunk_wire(chunk, &wire, &size));
  assert_int_equal(size, whole.size);
  assert_memory_equal(wire, whole.data, size);
  int32_t row[WIDTH];
  assert_int_equal(rv_chunk_copy_rows(chunk, 0, 0, 1, row, NULL), RV_OK);
  assert_memory_equal(row, there->rows[item], ROW);
  rv_writer_buf_fini(&whole);
}

/* ---- tests ---- */

static void read_pack_of(size_t placed, bool apart)
{
  somewhere there;
  fill_rows(&there);
  there.placed = placed;
  const rv_placed_rows rows = {.take = take, .fetch = fetch, .context = &there};
  rv_writer_buf message;
  rv_writer_buf_init(&message);
  put_pack_of(&message, &there, placed, NOTHING);
  rv_insert_pack pack;
  rv_error err;
  if (rv_insert_pack_begin(&pack, span_of(&message), apart, &rows, &err) != RV_OK) fail_msg("%s", err.message);
  assert_int_equal(pack.count, ITEMS);
  for (size_t i = 0; i < ITEMS; i++) {
    if (rv_insert_pack_next(&pack, &err) != RV_OK) fail_msg("item %zu: %s", i, err.message);
    assert_int_equal(pack.item.key, i + 1);
    assert_int_equal(pack.item.sequence, 10 + i);
    for (size_t c = 0; c < CHUNKS; c++) expect_chunk(pack.chunks[c], &there, i, c);
    assert_int_equal(there.taken, (i + 1) * placed);
  }
  assert_int_equal(there.fetched, (ITEMS - 1) * placed);
  rv_insert_pack_fini(&pack);
  rv_writer_buf_fini(&message);
}

static void a_chunk_is_what_it_would_be_with_its_rows(void **state)
{
  (void)state;
  for (size_t placed = 1; placed <= CHUNKS; placed++) {
    read_pack_of(placed, false);
    read_pack_of(placed, true);
  }
}

/* *items: how many came before it was refused. */
static rv_code read_all(const rv_writer_buf *message, const rv_placed_rows *rows, size_t *items, rv_error *err)
{
  rv_insert_pack pack;
  rv_code code = rv_insert_pack_begin(&pack, span_of(message), false, rows, err);
  for (*items = 0; code == RV_OK && pack.next < pack.count; *items += code == RV_OK) code = rv_insert_pack_next(&pack, err);
  rv_insert_pack_fini(&pack);
  return code;
}

static void places_that_do_not_fit_their_items_are_refused(void **state)
{
  (void)state;
  static const struct {
    fault wrong;
    const char *says;
  } faults[] = {
      {A_PLACE_LESS, "which do not belong together"},
      {A_PLACE_MORE, "which do not belong together"},
      {HALF_A_PLACE, "which do not belong together"},
      {A_SIZE_LESS, "which do not belong together"},
      {NO_STARTS, "which do not belong together"},
      {TOO_SHORT_ROWS, ""}, /* what the chunk says of its tensor is then not there */
      {TOO_LONG_ROWS, ""},
      {BEHIND_ALL, ""},
      {IN_THE_HEAD, "does not begin with key and range"},
      {ONE_PLACE_TWICE, "has the rows of one place twice"},
  };
  somewhere there;
  fill_rows(&there);
  const rv_placed_rows rows = {.take = take, .context = &there};
  for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
    rv_writer_buf message;
    rv_writer_buf_init(&message);
    put_pack(&message, &there, faults[i].wrong);
    rv_error err;
    size_t items;
    rv_code code = read_all(&message, &rows, &items, &err);
    if (code != RV_INVALID_ARGUMENT || strstr(err.message, faults[i].says) == NULL)
      fail_msg("fault %d: %d %s", (int)faults[i].wrong, (int)code, code != RV_OK ? err.message : "");
    assert_int_equal(items, 0);
    rv_writer_buf_fini(&message);
  }
}

static void rows_that_are_not_there_end_the_pack_where_they_are_missed(void **state)
{
  (void)state;
  somewhere there;
  fill_rows(&there);
  const rv_placed_rows rows = {.take = take, .context = &there};
  rv_writer_buf message;
  rv_writer_buf_init(&message);
  put_pack(&message, &there, NOTHING);
  for (size_t have = 0; have < ITEMS; have++) {
    rv_error err;
    size_t items;
    there.taken = 0;
    there.none_after = have;
    there.code = have % 2 == 0 ? RV_INVALID_ARGUMENT : RV_RESOURCE_EXHAUSTED;
    assert_int_equal(read_all(&message, &rows, &items, &err), there.code);
    assert_non_null(strstr(err.message, "there is no such row"));
    assert_int_equal(items, have);
  }
  rv_error err;
  size_t items;
  assert_int_equal(read_all(&message, NULL, &items, &err), RV_INVALID_ARGUMENT); /* a connection without any */
  assert_non_null(strstr(err.message, "none has a place"));
  rv_writer_buf_fini(&message);
}

/* What all have in common is put around each row. */
static void what_stands_around_the_rows_is_bounded(void **state)
{
  (void)state;
  somewhere there;
  fill_rows(&there);
  const rv_placed_rows rows = {.take = take, .context = &there};
  uint8_t bytes[AT_MOST] = {0x08, 0x01, 0x12, 0x02, 0x08, 0x01};
  const uint8_t place[RV_ROWS_PLACE_BYTES] = {0};
  rv_placed_form form;
  rv_chunk *chunk;
  rv_error err;
  assert_int_equal(rv_placed_form_begin(&form, (rv_span){bytes, sizeof bytes}, 6, ROW, &rows, place, &chunk, &err),
                   RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "bytes besides key, range and rows"));
  assert_int_equal(there.taken, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_chunk_is_what_it_would_be_with_its_rows),
      cmocka_unit_test(places_that_do_not_fit_their_items_are_refused),
      cmocka_unit_test(rows_that_are_not_there_end_the_pack_where_they_are_missed),
      cmocka_unit_test(what_stands_around_the_rows_is_bounded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
