#include "store/spread.h"
#include "wire/messages.h"
#include "wire/sample_pack.h"
#include "wire/testing.h"

enum { COLUMNS_MAX = 20 };

/* ---- draws ---- */

typedef struct fixture {
  rv_layouts *layouts;
  rv_random random;
} fixture;

static int setup(void **state)
{
  fixture *f = calloc(1, sizeof *f);
  assert_int_equal(rv_layouts_new(&f->layouts, NULL), RV_OK);
  rv_random_init(&f->random, seed_of_the_run());
  *state = f;
  return 0;
}

static int teardown(void **state)
{
  fixture *f = *state;
  rv_layouts_unref(f->layouts);
  free(f);
  return 0;
}

/* A segment of uint8 columns of these widths with random rows. */
static rv_chunk *segment_of(fixture *f, const int64_t *widths, size_t num_columns, int64_t rows)
{
  rv_spec specs[COLUMNS_MAX];
  for (size_t i = 0; i < num_columns; i++) specs[i] = (rv_spec){"", RV_UINT8, 1, &widths[i]};
  const rv_chunk_meta meta = {.key = 1 + rv_random_next(&f->random) / 2};
  rv_chunk *segment = NULL;
  assert_int_equal(rv_segment_new(specs, num_columns, (size_t)rows, &meta, &segment, NULL), RV_OK);
  for (size_t c = 0; c < num_columns; c++) {
    uint8_t *row = malloc((size_t)widths[c] + 1);
    for (int64_t i = 0; i < rows; i++) {
      for (int64_t b = 0; b < widths[c]; b++) row[b] = (uint8_t)rv_random_next(&f->random);
      rv_tensor value = {.dtype = RV_UINT8, .rank = 1, .shape = &widths[c], .data = row};
      assert_int_equal(rv_segment_put(segment, c, i, &value, NULL), RV_OK);
    }
    rv_segment_publish(segment, c, rows);
    free(row);
  }
  return segment;
}

static rv_chunk *received(rv_chunk *owned_segment, bool snappy)
{
  uint8_t flags[COLUMNS_MAX];
  memset(flags, snappy, sizeof flags);
  const rv_chunk_encoding encoding = {.key = rv_chunk_get_meta(owned_segment)->key,
                                      .column = SIZE_MAX,
                                      .count = rv_chunk_num_rows(owned_segment, 0),
                                      .snappy = {flags, sizeof flags}};
  rv_pieces out;
  rv_pieces_init(&out);
  assert_int_equal(rv_chunk_serialize(&out, owned_segment, &encoding, NULL), RV_OK);
  rv_buf *buf = flatten(&out);
  rv_chunk *chunk = NULL;
  assert_int_equal(rv_chunk_parse(buf, span_of(buf), false, &chunk, NULL), RV_OK);
  rv_buf_unref(buf);
  rv_chunk_unref(owned_segment);
  return chunk;
}

/* An item with columns of these lengths, each cut into two slices from two places where that is possible. */
static rv_draw draw_of(fixture *f, rv_chunk *owned_chunk, const int32_t *lengths, uint32_t num_columns)
{
  rv_slice slices[2 * COLUMNS_MAX];
  uint32_t num_slices[COLUMNS_MAX], total = 0;
  bool squeeze[COLUMNS_MAX];
  for (uint32_t c = 0; c < num_columns; c++) {
    int32_t rows = (int32_t)rv_chunk_num_rows(owned_chunk, c), left = lengths[c];
    int32_t first = left > 1 ? (int32_t)rv_random_below(&f->random, (uint32_t)left) : left;
    num_slices[c] = first < left ? 2 : 1;
    squeeze[c] = left == 1 && c % 2 == 1;
    slices[total++] = (rv_slice){owned_chunk, c, (int32_t)rv_random_below(&f->random, (uint32_t)(rows - first) + 1), first};
    left -= first;
    if (num_slices[c] == 2)
      slices[total++] = (rv_slice){owned_chunk, c, (int32_t)rv_random_below(&f->random, (uint32_t)(rows - left) + 1), left};
  }
  const rv_trajectory_desc desc = {.slices = slices, .num_slices = num_slices, .squeeze = squeeze, .num_columns = num_columns};
  rv_draw draw = {.key = rv_random_next(&f->random),
                  .probability = 1.0 / (1 + rv_random_below(&f->random, 9)),
                  .priority = rv_random_below(&f->random, 100),
                  .table_size = (int64_t)some_number(&f->random),
                  .inserted_at_ns = (int64_t)some_number(&f->random),
                  .times_sampled = (int32_t)rv_random_below(&f->random, 1000),
                  .rate_limited = rv_random_below(&f->random, 2) == 0};
  rv_error err;
  if (rv_trajectory_new(f->layouts, &desc, &draw.trajectory, &err) != RV_OK) fail_msg("%s", err.message);
  rv_chunk_unref(owned_chunk);
  return draw;
}

/* ---- the other end ---- */

static rv_code unpack(fixture *f, rv_buf *buf, rv_span message, rv_draw *out, size_t *count, rv_error *err)
{
  rv_sample_pack pack;
  rv_code code = rv_sample_pack_parse(message, &pack, err);
  if (code != RV_OK) return code;
  rv_chunk *chunks[COLUMNS_MAX] = {NULL};
  rv_slice slices[COLUMNS_MAX];
  uint32_t ones[COLUMNS_MAX];
  bool squeeze[COLUMNS_MAX];
  if (pack.num_chunks > COLUMNS_MAX || pack.num_columns > COLUMNS_MAX || pack.count > 64)
    code = RV_UNIMPLEMENTED; /* fewer were written */
  for (size_t i = 0; i < pack.num_chunks && code == RV_OK; i++)
    code = rv_chunk_parse(buf, pack.chunks[i], false, &chunks[i], err);
  for (uint32_t i = 0; i < pack.num_columns && code == RV_OK; i++) {
    const rv_sample_pack_column *column = &pack.columns[i];
    slices[i] = (rv_slice){chunks[column->chunk], column->tensor, 0, column->length};
    ones[i] = 1;
    squeeze[i] = column->squeeze;
  }
  const rv_trajectory_desc first = {.slices = slices, .num_slices = ones, .squeeze = squeeze, .num_columns = pack.num_columns};
  if (code == RV_OK) code = rv_draws_spread(f->layouts, &first, out, pack.count, err);
  for (size_t i = 0; i < pack.count && code == RV_OK; i++) rv_sample_pack_describe(&pack, i, &out[i]);
  *count = code == RV_OK ? pack.count : 0;
  for (size_t i = 0; i < COLUMNS_MAX; i++) rv_chunk_unref(chunks[i]);
  rv_sample_pack_fini(&pack);
  return code;
}

static rv_span pack_in(const rv_buf *message)
{
  rv_sample_response response;
  assert_int_equal(rv_sample_response_parse(span_of(message), &response, NULL), RV_OK);
  assert_int_equal(response.num_entries, 1);
  rv_span pack = response.entries[0].pack;
  assert_true(pack.size > 0);
  rv_sample_response_fini(&response);
  return pack;
}

static void check_same(const rv_draw *expected, const rv_draw *got)
{
  assert_true(expected->key == got->key && expected->probability == got->probability && expected->priority == got->priority);
  assert_true(expected->table_size == got->table_size && expected->inserted_at_ns == got->inserted_at_ns);
  assert_true(expected->times_sampled == got->times_sampled && expected->rate_limited == got->rate_limited);
  assert_ptr_equal(expected->trajectory->layout, got->trajectory->layout);
  for (uint32_t i = 0; i < expected->trajectory->num_columns; i++) {
    const rv_trajectory_column *column = &expected->trajectory->columns[i];
    size_t size = (size_t)column->length * column->spec->row_bytes;
    uint8_t *x = malloc(size + 1), *y = malloc(size + 1);
    assert_int_equal(rv_draw_copy_column(expected, i, x, NULL), RV_OK);
    assert_int_equal(rv_draw_copy_column(got, i, y, NULL), RV_OK);
    assert_memory_equal(x, y, size);
    free(x);
    free(y);
  }
}

static void check_arrives(fixture *f, rv_draw *draws, size_t n)
{
  rv_pieces out;
  rv_error err;
  rv_pieces_init(&out);
  if (rv_sample_pack_serialize(&out, draws, n, &err) != RV_OK) fail_msg("%s", err.message);
  rv_buf *buf = flatten(&out);
  rv_draw got[64];
  size_t count = 0;
  if (unpack(f, buf, pack_in(buf), got, &count, &err) != RV_OK) fail_msg("%s", err.message);
  rv_buf_unref(buf);
  assert_int_equal(count, n);
  for (size_t i = 0; i < n; i++) {
    check_same(&draws[i], &got[i]);
    rv_draw_release(&got[i]);
    rv_draw_release(&draws[i]);
  }
}

/* ---- tests ---- */

static void random_packs_arrive_as_they_were_drawn(void **state)
{
  fixture *f = *state;
  for (int round = 0; round < 300; round++) {
    uint32_t num_columns = 1 + rv_random_below(&f->random, round % 10 == 0 ? COLUMNS_MAX : 4);
    int64_t widths[COLUMNS_MAX];
    int32_t lengths[COLUMNS_MAX];
    bool even = rv_random_below(&f->random, 2) == 0;
    for (uint32_t c = 0; c < num_columns; c++) {
      widths[c] = (int64_t)rv_random_below(&f->random, c == 0 ? (round % 5 == 0 ? 6000 : 300) : 40) + (c == 0 ? 200 : 0);
      lengths[c] = even && c > 0 ? lengths[0] : (int32_t)rv_random_below(&f->random, 4);
    }
    rv_draw draws[64];
    size_t n = 1 + rv_random_below(&f->random, round % 5 == 0 ? 4 : 40);
    for (size_t i = 0; i < n; i++) {
      rv_chunk *chunk = segment_of(f, widths, num_columns, 5);
      draws[i] = draw_of(f, rv_random_below(&f->random, 2) == 0 ? received(chunk, false) : chunk, lengths, num_columns);
    }
    size_t packed = rv_sample_pack_count(draws, n, SIZE_MAX / 16);
    assert_true(packed == n || packed == 0); /* 0: uneven columns that are mostly empty */
    if (packed == n)
      check_arrives(f, draws, n);
    else
      for (size_t i = 0; i < n; i++) rv_draw_release(&draws[i]);
  }
}

static void a_pack_ends_before_what_cannot_be_in_it(void **state)
{
  fixture *f = *state;
  const int64_t width = 300;
  const int32_t one = 1, two = 2;
  rv_draw draws[4];
  for (int i = 0; i < 4; i++) draws[i] = draw_of(f, segment_of(f, &width, 1, 3), i == 3 ? &two : &one, 1);
  assert_int_equal(rv_sample_pack_count(draws, 4, 1 << 20), 3); /* another layout */
  assert_int_equal(rv_sample_pack_count(draws, 4, 700), 2);
  assert_int_equal(rv_sample_pack_count(draws, 4, 310), 1);
  assert_int_equal(rv_sample_pack_count(draws, 4, 299), 1);
  assert_int_equal(rv_sample_pack_count(draws, 4, 33), 0); /* too large: it goes in several messages */
  rv_draw_release(&draws[1]);
  const int64_t zeros = 300;
  rv_spec spec = {"", RV_UINT8, 1, &zeros};
  const rv_chunk_meta meta = {.key = 5};
  rv_chunk *segment = NULL;
  assert_int_equal(rv_segment_new(&spec, 1, 1, &meta, &segment, NULL), RV_OK);
  uint8_t row[300] = {0};
  rv_tensor value = {.dtype = RV_UINT8, .rank = 1, .shape = &zeros, .data = row};
  assert_int_equal(rv_segment_put(segment, 0, 0, &value, NULL), RV_OK);
  rv_segment_publish(segment, 0, 1);
  draws[1] = draw_of(f, received(segment, true), &one, 1);
  assert_int_equal(rv_sample_pack_count(draws, 4, 1 << 20), 1); /* compressed */
  assert_int_equal(rv_sample_pack_count(draws + 1, 3, 1 << 20), 0);
  for (int i = 0; i < 4; i++) rv_draw_release(&draws[i]);
}

static void large_rows_go_by_reference_and_outlive_the_store(void **state)
{
  fixture *f = *state;
  for (int encoded = 0; encoded < 2; encoded++) {
    const int64_t widths[] = {100000, 10};
    const int32_t lengths[] = {1, 1};
    rv_chunk *chunk = segment_of(f, widths, 2, 2);
    rv_draw draw = draw_of(f, encoded == 1 ? received(chunk, false) : chunk, lengths, 2), got;
    uint8_t *expected = malloc(100000), *sent = malloc(100000);
    assert_int_equal(rv_draw_copy_column(&draw, 0, expected, NULL), RV_OK);
    rv_pieces out;
    rv_pieces_init(&out);
    assert_int_equal(rv_sample_pack_serialize(&out, &draw, 1, NULL), RV_OK);
    assert_int_equal(out.count, 3);
    rv_draw_release(&draw);
    rv_buf *buf = flatten(&out);
    size_t count = 0;
    assert_int_equal(unpack(f, buf, pack_in(buf), &got, &count, NULL), RV_OK);
    rv_buf_unref(buf);
    assert_int_equal(rv_draw_copy_column(&got, 0, sent, NULL), RV_OK);
    assert_memory_equal(expected, sent, 100000);
    free(expected);
    free(sent);
    rv_draw_release(&got);
  }
}

/* ---- packs that are none ---- */

typedef struct forged {
  uint64_t count;
  size_t keys, times; /* bytes */
  uint64_t chunk, tensor, length, columns;
  int64_t rows; /* of the one chunk; < 0: there is none */
} forged;

static rv_buf *forge(fixture *f, const forged *from)
{
  static const uint8_t zeros[4096];
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_put_varint(&out, 1, from->count);
  for (uint32_t field = 2; field <= 7; field++) rv_put_bytes_always(&out, field, zeros, field == 5 ? from->times : from->keys);
  rv_put_bytes_always(&out, 8, zeros, from->times / 4);
  for (uint64_t i = 0; i < from->columns; i++) {
    size_t mark = rv_put_open(&out, 9);
    rv_put_varint(&out, 1, from->chunk);
    rv_put_varint(&out, 2, from->tensor);
    rv_put_varint(&out, 3, from->length);
    rv_put_close(&out, mark);
  }
  if (from->rows >= 0) {
    const int64_t width = 8;
    rv_chunk *chunk = received(segment_of(f, &width, 1, from->rows), false);
    const uint8_t *wire = NULL;
    size_t size = 0;
    (void)rv_chunk_wire(chunk, &wire, &size);
    rv_put_bytes_always(&out, 10, wire, size);
    rv_chunk_unref(chunk);
  }
  return written(&out);
}

static rv_code unpack_forged(fixture *f, const forged *from)
{
  rv_buf *buf = forge(f, from);
  rv_draw draws[64];
  size_t count = 0;
  rv_error err = {0};
  rv_code code = unpack(f, buf, span_of(buf), draws, &count, &err);
  assert_true(code == RV_OK || (err.code == code && err.message[0] != '\0'));
  for (size_t i = 0; i < count; i++) rv_draw_release(&draws[i]);
  rv_buf_unref(buf);
  return code;
}

static void what_does_not_fit_together_is_refused(void **state)
{
  fixture *f = *state;
  const forged good = {.count = 3, .keys = 24, .times = 12, .length = 2, .columns = 1, .rows = 6};
  assert_int_equal(unpack_forged(f, &good), RV_OK);
  forged bad[12];
  for (size_t i = 0; i < 12; i++) bad[i] = good;
  bad[0].count = 0;
  bad[1].count = UINT64_MAX;
  bad[2].count = 2;
  bad[3].keys = 16;
  bad[4].times = 16;
  bad[5].chunk = 1;
  bad[6].tensor = 1;
  bad[7].length = 3; /* more rows than there are */
  bad[8].length = INT32_MAX;
  bad[9].length = UINT64_MAX;
  bad[10].columns = 0;
  bad[11].rows = -1;
  for (size_t i = 0; i < 12; i++)
    if (unpack_forged(f, &bad[i]) != RV_INVALID_ARGUMENT) fail_msg("pack %zu was not refused", i);
}

static void columns_that_cost_more_than_they_bring_are_refused(void **state)
{
  fixture *f = *state;
  forged many = {.count = 50, .keys = 400, .times = 200, .columns = 1000, .rows = 1, .length = 0};
  rv_buf *buf = forge(f, &many);
  rv_buf *two = rv_buf_new(buf->size + 2);
  memcpy(two->data, buf->data, buf->size);
  two->data[buf->size] = 10 << 3 | 2; /* a second chunk: the columns are not in one, and each item would need a trajectory */
  two->data[buf->size + 1] = 0;
  rv_sample_pack pack;
  assert_int_equal(rv_sample_pack_parse((rv_span){two->data, buf->size + 2}, &pack, NULL), RV_INVALID_ARGUMENT);
  rv_buf_unref(two);
  rv_buf_unref(buf);
}

static void cut_and_changed_packs_are_survived(void **state)
{
  fixture *f = *state;
  const forged good = {.count = 3, .keys = 24, .times = 12, .length = 2, .columns = 1, .rows = 6};
  rv_buf *whole = forge(f, &good);
  for (size_t i = 0; i < whole->size * 3; i++) {
    size_t size = i < whole->size ? i : whole->size;
    rv_buf *buf = rv_buf_copy(whole->data, size);
    if (i >= whole->size) buf->data[i % whole->size] ^= (uint8_t)(1 + rv_random_below(&f->random, 255));
    rv_draw draws[64];
    size_t count = 0;
    rv_error err = {0};
    rv_code code = unpack(f, buf, span_of(buf), draws, &count, &err);
    if (code == RV_OK && count <= 64)
      for (size_t k = 0; k < count; k++) rv_draw_release(&draws[k]);
    rv_buf_unref(buf);
  }
  rv_buf_unref(whole);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(random_packs_arrive_as_they_were_drawn, setup, teardown),
      cmocka_unit_test_setup_teardown(a_pack_ends_before_what_cannot_be_in_it, setup, teardown),
      cmocka_unit_test_setup_teardown(large_rows_go_by_reference_and_outlive_the_store, setup, teardown),
      cmocka_unit_test_setup_teardown(what_does_not_fit_together_is_refused, setup, teardown),
      cmocka_unit_test_setup_teardown(columns_that_cost_more_than_they_bring_are_refused, setup, teardown),
      cmocka_unit_test_setup_teardown(cut_and_changed_packs_are_survived, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
