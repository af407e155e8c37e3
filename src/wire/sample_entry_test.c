#include "wire/messages.h"
#include "wire/testing.h"

/* ---- a store of its own, by hand ---- */

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

/* A segment of uint8 columns, `bytes` wide each, whose row i of column c is full of i * 16 + c. */
static rv_chunk *segment_of_rows(uint64_t key, size_t num_columns, int64_t bytes, int64_t rows)
{
  rv_spec specs[4];
  for (size_t i = 0; i < num_columns; i++) specs[i] = (rv_spec){"", RV_UINT8, 1, &bytes};
  const rv_chunk_meta meta = {.key = key, .episode_id = 3, .first_step = 100, .last_step = 100 + (int32_t)rows - 1};
  rv_chunk *segment = NULL;
  assert_int_equal(rv_segment_new(specs, num_columns, (size_t)rows, &meta, &segment, NULL), RV_OK);
  uint8_t *row = malloc((size_t)bytes);
  for (size_t c = 0; c < num_columns; c++) {
    for (int64_t i = 0; i < rows; i++) {
      memset(row, (int)(i * 16 + (int64_t)c), (size_t)bytes);
      rv_tensor value = {.dtype = RV_UINT8, .rank = 1, .shape = &bytes, .data = row};
      assert_int_equal(rv_segment_put(segment, c, i, &value, NULL), RV_OK);
    }
    rv_segment_publish(segment, c, rows);
  }
  free(row);
  return segment;
}

/* The same rows as a chunk that came over the wire. */
static rv_chunk *received(rv_chunk *owned_segment, bool snappy)
{
  uint8_t flags[4] = {snappy, snappy, snappy, snappy};
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

static rv_draw draw_of(fixture *f, const rv_slice *slices, const uint32_t *num_slices, const bool *squeeze, uint32_t num_columns)
{
  const rv_trajectory_desc desc = {.slices = slices, .num_slices = num_slices, .squeeze = squeeze, .num_columns = num_columns};
  rv_trajectory *trajectory = NULL;
  rv_error err;
  if (rv_trajectory_new(f->layouts, &desc, &trajectory, &err) != RV_OK) fail_msg("%s", err.message);
  return (rv_draw){.key = 42,
                   .probability = 0.5,
                   .priority = 2.5,
                   .table_size = 10,
                   .inserted_at_ns = 1234567890123456789,
                   .times_sampled = 3,
                   .rate_limited = true,
                   .trajectory = trajectory};
}

/* ---- the other end ---- */

typedef struct receiver {
  rv_chunk *chunks[64];
  size_t num_chunks, num_entries, bytes, largest;
  bool ended;
  rv_wire_sample_info info;
  rv_buf *first; /* what info borrows from */
} receiver;

static bool find(void *context, uint64_t key, rv_chunk_place *out)
{
  receiver *r = context;
  for (size_t i = 0; i < r->num_chunks; i++) {
    *out = rv_chunk_place_whole(r->chunks[i]);
    if (out->key == key) return true;
  }
  return false;
}

static void receive(receiver *r, rv_buf *owned_message)
{
  rv_sample_response response;
  assert_int_equal(rv_sample_response_parse(span_of(owned_message), &response, NULL), RV_OK);
  assert_int_equal(response.num_entries, 1);
  rv_sample_entry *entry = &response.entries[0];
  assert_int_equal(entry->has_info, r->num_entries == 0);
  assert_false(r->ended);
  assert_true(entry->num_chunks > 0);
  for (size_t i = 0; i < entry->num_chunks; i++) {
    rv_error err;
    if (rv_chunk_parse(owned_message, entry->chunks[i], false, &r->chunks[r->num_chunks++], &err) != RV_OK)
      fail_msg("%s", err.message);
    r->bytes += entry->chunks[i].size;
    if (entry->chunks[i].size > r->largest) r->largest = entry->chunks[i].size;
  }
  r->ended = entry->end_of_sequence;
  if (entry->has_info) {
    r->info = entry->info;
    entry->info.item = (rv_wire_item){0};
    r->first = rv_buf_ref(owned_message);
  }
  r->num_entries++;
  rv_sample_response_fini(&response);
  rv_buf_unref(owned_message);
}

static void receive_all(receiver *r, const rv_draw *draw, size_t max_bytes)
{
  *r = (receiver){0};
  for (uint32_t next = 0; !r->ended;) {
    rv_pieces out;
    rv_pieces_init(&out);
    rv_error err;
    if (rv_sample_entry_serialize(&out, draw, "replay", next, max_bytes, &next, &err) != RV_OK) fail_msg("%s", err.message);
    receive(r, flatten(&out));
  }
}

static void receiver_fini(receiver *r)
{
  for (size_t i = 0; i < r->num_chunks; i++) rv_chunk_unref(r->chunks[i]);
  rv_wire_item_fini(&r->info.item);
  rv_buf_unref(r->first);
}

/* Everything that was received is what was drawn. */
static void check_same(fixture *f, receiver *r, const rv_draw *draw)
{
  const rv_wire_sample_info *info = &r->info;
  assert_true(info->probability == 0.5 && info->table_size == 10 && info->rate_limited);
  assert_true(info->item.key == 42 && info->item.priority == 2.5 && info->item.times_sampled == 3);
  assert_true(info->item.inserted_at_ns == 1234567890123456789 && span_is(info->item.table, "replay"));
  rv_draw back = *draw;
  back.chunk = NULL;
  rv_error err;
  if (rv_wire_item_trajectory(&info->item, f->layouts, NULL, find, r, &back.trajectory, &err) != RV_OK)
    fail_msg("%s", err.message);
  assert_ptr_equal(back.trajectory->layout, draw->trajectory->layout);
  for (uint32_t i = 0; i < draw->trajectory->num_columns; i++) {
    const rv_trajectory_column *column = &draw->trajectory->columns[i];
    size_t size = (size_t)column->length * column->spec->row_bytes;
    uint8_t *expected = malloc(size + 1), *got = malloc(size + 1);
    assert_int_equal(rv_draw_copy_column(draw, i, expected, NULL), RV_OK);
    assert_int_equal(rv_draw_copy_column(&back, i, got, NULL), RV_OK);
    assert_memory_equal(expected, got, size);
    free(expected);
    free(got);
  }
  rv_trajectory_unref(back.trajectory);
}

/* ---- tests ---- */

static void only_the_rows_that_an_item_needs_are_sent_of_a_segment(void **state)
{
  fixture *f = *state;
  const int64_t widths[] = {8, 5000}; /* copied; by reference */
  for (int i = 0; i < 2; i++) {
    rv_chunk *segment = segment_of_rows(7, 2, widths[i], 15);
    const rv_slice slices[] = {{segment, 0, 9, 2}, {segment, 1, 10, 1}};
    rv_draw draw = draw_of(f, slices, (const uint32_t[]){1, 1}, (const bool[]){false, true}, 2);
    rv_chunk_unref(segment);
    receiver r;
    receive_all(&r, &draw, SIZE_MAX);
    assert_int_equal(r.num_chunks, 1);
    assert_int_equal(rv_chunk_num_rows(r.chunks[0], 0), 2);
    assert_int_equal(rv_chunk_get_meta(r.chunks[0])->first_step, 109);
    assert_int_equal(rv_chunk_get_meta(r.chunks[0])->last_step, 110);
    assert_int_equal(r.info.item.slices[0].offset, 0);
    assert_int_equal(r.info.item.slices[1].offset, 1);
    assert_true(r.bytes < (size_t)widths[i] * 4 + 150);
    check_same(f, &r, &draw);
    receiver_fini(&r);
    rv_draw_release(&draw);
  }
}

static void what_was_written_outlives_the_store(void **state)
{
  fixture *f = *state;
  rv_chunk *segment = segment_of_rows(7, 1, 100000, 2);
  const rv_slice slice = {segment, 0, 0, 2};
  rv_draw draw = draw_of(f, &slice, (const uint32_t[]){1}, (const bool[]){false}, 1);
  rv_chunk_unref(segment);
  rv_pieces out;
  rv_pieces_init(&out);
  uint32_t next = 0;
  assert_int_equal(rv_sample_entry_serialize(&out, &draw, "replay", 0, SIZE_MAX, &next, NULL), RV_OK);
  rv_draw_release(&draw);
  assert_true(out.count >= 2); /* the rows are there by reference */
  receiver r = {0};
  receive(&r, flatten(&out));
  assert_true(r.ended);
  receiver_fini(&r);
}

static void a_received_chunk_goes_as_it_came_unless_cutting_it_saves_half(void **state)
{
  fixture *f = *state;
  for (int snappy = 0; snappy < 2; snappy++)
    for (int32_t rows = 1; rows <= 10; rows++) {
      rv_chunk *chunk = received(segment_of_rows(8, 2, 300, 10), snappy == 1);
      const rv_slice slices[] = {{chunk, 0, 10 - rows, rows}, {chunk, 1, 10 - rows, 1}};
      rv_draw draw = draw_of(f, slices, (const uint32_t[]){1, 1}, (const bool[]){false, false}, 2);
      rv_chunk_unref(chunk);
      receiver r;
      receive_all(&r, &draw, SIZE_MAX);
      bool cut = snappy == 0 && rows <= 5;
      assert_int_equal(rv_chunk_num_rows(r.chunks[0], 1), cut ? rows : 10);
      assert_int_equal(r.info.item.slices[0].offset, cut ? 0 : 10 - rows);
      check_same(f, &r, &draw);
      receiver_fini(&r);
      rv_draw_release(&draw);
    }
}

static void chunks_that_do_not_fit_go_into_the_next_entry(void **state)
{
  fixture *f = *state;
  rv_slice slices[10];
  uint32_t num_slices[10];
  bool squeeze[10] = {0};
  for (uint32_t i = 0; i < 10; i++) {
    slices[i] = (rv_slice){received(segment_of_rows(100 + i, 1, 300, 3), true), 0, 1, 2};
    num_slices[i] = 1;
  }
  rv_draw draw = draw_of(f, slices, num_slices, squeeze, 10);
  for (int i = 0; i < 10; i++) rv_chunk_unref(slices[i].chunk);
  receiver r;
  receive_all(&r, &draw, SIZE_MAX);
  assert_int_equal(r.num_entries, 1);
  size_t one = r.largest + 2;
  check_same(f, &r, &draw);
  receiver_fini(&r);
  receive_all(&r, &draw, 3 * one);
  assert_int_equal(r.num_entries, 4);
  check_same(f, &r, &draw);
  receiver_fini(&r);
  receive_all(&r, &draw, 0); /* one chunk at least */
  assert_int_equal(r.num_entries, 10);
  check_same(f, &r, &draw);
  receiver_fini(&r);
  rv_draw_release(&draw);
}

static void rows_that_a_column_does_not_have_yet_are_sent_as_zeros_for_nobody(void **state)
{
  fixture *f = *state;
  const int64_t bytes = 4;
  const rv_spec specs[] = {{"", RV_UINT8, 1, &bytes}, {"", RV_STRING, 0, NULL}, {"", RV_UINT8, 1, &bytes}};
  const rv_chunk_meta meta = {.key = 9};
  rv_chunk *segment = NULL;
  assert_int_equal(rv_segment_new(specs, 3, 5, &meta, &segment, NULL), RV_OK);
  for (int64_t i = 0; i < 3; i++) {
    const uint8_t row[4] = {1, 2, 3, (uint8_t)i};
    rv_tensor value = {.dtype = RV_UINT8, .rank = 1, .shape = &bytes, .data = row};
    assert_int_equal(rv_segment_put(segment, 0, i, &value, NULL), RV_OK);
  }
  rv_segment_publish(segment, 0, 3);
  rv_bytes text = {"text", 4};
  rv_tensor value = {.dtype = RV_STRING, .data = &text};
  assert_int_equal(rv_segment_put(segment, 1, 0, &value, NULL), RV_OK);
  rv_segment_publish(segment, 1, 1);
  const rv_slice slices[] = {{segment, 0, 0, 3}, {segment, 1, 0, 1}};
  rv_draw draw = draw_of(f, slices, (const uint32_t[]){1, 1}, (const bool[]){false, true}, 2);
  rv_chunk_unref(segment);
  receiver r;
  receive_all(&r, &draw, SIZE_MAX);
  assert_int_equal(rv_chunk_num_rows(r.chunks[0], 1), 3);
  assert_int_equal(rv_chunk_num_rows(r.chunks[0], 2), 3);
  uint8_t nothing[12], zeros[12] = {0};
  assert_int_equal(rv_chunk_copy_rows(r.chunks[0], 2, 0, 3, nothing, NULL), RV_OK);
  assert_memory_equal(nothing, zeros, sizeof zeros);
  assert_int_equal(r.info.item.total_slices, 2);
  receiver_fini(&r);
  rv_draw_release(&draw);
}

static void random_items_arrive_as_they_were_drawn(void **state)
{
  fixture *f = *state;
  for (int round = 0; round < 400; round++) {
    rv_slice slices[160];
    uint32_t num_slices[8], total = 0, num_chunks = 1 + rv_random_below(&f->random, round % 8 == 0 ? 40 : 4);
    bool squeeze[8] = {0};
    rv_chunk *chunks[40];
    int64_t width = 1 + rv_random_below(&f->random, round % 4 == 0 ? 3000 : 300);
    for (uint32_t i = 0; i < num_chunks; i++) {
      chunks[i] = segment_of_rows(1000 + i, 3, width, 12);
      if (rv_random_below(&f->random, 2) == 0) chunks[i] = received(chunks[i], rv_random_below(&f->random, 3) == 0);
    }
    uint32_t num_columns = 1 + rv_random_below(&f->random, 8);
    for (uint32_t i = 0; i < num_columns; i++) {
      num_slices[i] = 1 + rv_random_below(&f->random, 20);
      for (uint32_t j = 0; j < num_slices[i]; j++) {
        int32_t offset = (int32_t)rv_random_below(&f->random, 12);
        slices[total++] = (rv_slice){.chunk = chunks[rv_random_below(&f->random, num_chunks)],
                                     .tensor = rv_random_below(&f->random, 3),
                                     .offset = offset,
                                     .length = (int32_t)rv_random_below(&f->random, (uint32_t)(12 - offset) + 1)};
      }
    }
    rv_draw draw = draw_of(f, slices, num_slices, squeeze, num_columns);
    for (uint32_t i = 0; i < num_chunks; i++) rv_chunk_unref(chunks[i]);
    receiver r;
    receive_all(&r, &draw, rv_random_below(&f->random, 2) == 0 ? SIZE_MAX : rv_random_below(&f->random, 20000));
    check_same(f, &r, &draw);
    receiver_fini(&r);
    rv_draw_release(&draw);
  }
}

static void items_that_share_a_template_are_sent_from_their_base_row(void **state)
{
  fixture *f = *state;
  rv_chunk *segment = segment_of_rows(7, 2, 16, 15);
  /* As the table makes templates: slices without chunks, relative to the base row. */
  const rv_slice slices[] = {{segment, 0, 0, 3}, {segment, 1, 2, 1}};
  rv_draw plain = draw_of(f, slices, (const uint32_t[]){1, 1}, (const bool[]){false, true}, 2);
  rv_slice open_slices[] = {{NULL, 0, 0, 3}, {NULL, 1, 2, 1}};
  rv_trajectory template = *plain.trajectory;
  template.slices = open_slices;
  template.num_chunks = 0;
  template.chunks = NULL;
  rv_draw draw = plain;
  draw.trajectory = &template;
  draw.chunk = segment;
  draw.base_row = 11;
  receiver r;
  receive_all(&r, &draw, SIZE_MAX);
  assert_int_equal(rv_chunk_num_rows(r.chunks[0], 0), 3);
  assert_int_equal(rv_chunk_get_meta(r.chunks[0])->first_step, 111);
  check_same(f, &r, &draw);
  receiver_fini(&r);
  rv_draw_release(&plain);
  rv_chunk_unref(segment);
}

static void a_chunk_that_was_not_sent_is_named(void **state)
{
  fixture *f = *state;
  rv_wire_slice slice = {.chunk_key = 4711, .length = 1};
  uint32_t one = 1;
  bool squeeze = false;
  const rv_wire_item item = {
      .key = 5, .slices = &slice, .num_slices = &one, .squeeze = &squeeze, .num_columns = 1, .total_slices = 1};
  receiver r = {0};
  rv_trajectory *trajectory = NULL;
  rv_error err;
  assert_int_equal(rv_wire_item_trajectory(&item, f->layouts, NULL, find, &r, &trajectory, &err), RV_INTERNAL);
  assert_non_null(strstr(err.message, "4711"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(only_the_rows_that_an_item_needs_are_sent_of_a_segment, setup, teardown),
      cmocka_unit_test_setup_teardown(what_was_written_outlives_the_store, setup, teardown),
      cmocka_unit_test_setup_teardown(a_received_chunk_goes_as_it_came_unless_cutting_it_saves_half, setup, teardown),
      cmocka_unit_test_setup_teardown(chunks_that_do_not_fit_go_into_the_next_entry, setup, teardown),
      cmocka_unit_test_setup_teardown(rows_that_a_column_does_not_have_yet_are_sent_as_zeros_for_nobody, setup, teardown),
      cmocka_unit_test_setup_teardown(random_items_arrive_as_they_were_drawn, setup, teardown),
      cmocka_unit_test_setup_teardown(items_that_share_a_template_are_sent_from_their_base_row, setup, teardown),
      cmocka_unit_test_setup_teardown(a_chunk_that_was_not_sent_is_named, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
