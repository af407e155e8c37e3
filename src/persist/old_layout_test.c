/* Checkpoints as Reverb wrote them in earlier years, and others that no writer of today makes. */
#include <math.h>

#include "base/crc32c.h"
#include "persist/frame.h"
#include "persist/record_file.h"
#include "persist/testing.h"
#include "wire/messages.h"
#include "wire/put.h"
#include "wire/tensor_proto.h"

/* ---- a checkpoint by hand ---- */

typedef struct by_hand {
  fixture *f;
  char dir[200];
  bool plain; /* without compression */
} by_hand;

static void begin(fixture *f, by_hand *out, bool plain)
{
  char above[200];
  out->f = f;
  out->plain = plain;
  snprintf(above, sizeof above, "%s/a", f->top);
  mkdir(above, 0777);
  mkdir(f->root, 0777);
  snprintf(out->dir, sizeof out->dir, "%s/2020-05-01T00:00:00+00:00", f->root);
  mkdir(out->dir, 0777);
  write_bytes(out->dir, RV_DONE_FILE, "", 0);
}

static void write_plain(const char *dir, const char *name, const rv_writer_buf *records, size_t n)
{
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  for (size_t i = 0; i < n; i++) {
    uint8_t frame[RV_FRAME_HEADER];
    rv_frame_put64(frame, records[i].size);
    rv_frame_put32(frame + 8, rv_frame_mask(rv_crc32c(0, frame, 8)));
    rv_put_raw(&out, frame, sizeof frame);
    rv_put_raw(&out, records[i].data, records[i].size);
    rv_frame_put32(frame, rv_frame_mask(rv_crc32c(0, records[i].data, records[i].size)));
    rv_put_raw(&out, frame, RV_FRAME_FOOTER);
  }
  write_bytes(dir, name, out.data == NULL ? (const uint8_t *)"" : out.data, out.size);
  rv_writer_buf_fini(&out);
}

/* Frees the records. */
static void write_file(const by_hand *to, const char *name, rv_writer_buf *records, size_t n)
{
  rv_error err;
  rv_record_writer *writer;
  char path[300];
  snprintf(path, sizeof path, "%s/%s", to->dir, name);
  unlink(path);
  if (to->plain) {
    write_plain(to->dir, name, records, n);
  } else {
    must(rv_record_writer_new(path, 6, &rv_files_of_system, &writer, &err), &err);
    for (size_t i = 0; i < n; i++) must(rv_record_writer_put(writer, records[i].data, records[i].size, &err), &err);
    must(rv_record_writer_finish(writer, &err), &err);
    rv_record_writer_free(writer);
  }
  for (size_t i = 0; i < n; i++) rv_writer_buf_fini(&records[i]);
}

/* A record of a table called "replay", for fields to be added. */
static rv_writer_buf table_record(int64_t max_size, int64_t inserts, int64_t deletes)
{
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_put_string(&out, 1, "replay");
  size_t limiter = rv_put_open(&out, 3);
  rv_put_double(&out, 2, 1);
  rv_put_double(&out, 3, -1e300);
  rv_put_double(&out, 4, 1e300);
  rv_put_varint(&out, 5, 1);
  rv_put_varint(&out, 7, (uint64_t)inserts);
  rv_put_varint(&out, 8, (uint64_t)deletes);
  rv_put_close(&out, limiter);
  for (uint32_t field = 4; field <= 5; field++) {
    size_t selector = rv_put_open(&out, field);
    rv_put_varint_always(&out, 1, 1);
    rv_put_close(&out, selector);
  }
  rv_put_varint(&out, 6, (uint64_t)max_size);
  return out;
}

/* `rows` rows of two tensors, int32 first, first + 1, ... and twice that; in `data` (5), in deprecated_data (3), or in both. */
static rv_writer_buf chunk_record(uint64_t key, int32_t first, int32_t rows, bool now, bool before)
{
  rv_writer_buf out, tensors[2];
  rv_error err;
  rv_writer_buf_init(&out);
  for (int32_t t = 0; t < 2; t++) {
    int32_t values[16];
    rv_pieces content;
    for (int32_t i = 0; i < rows; i++) values[i] = (first + i) * (t + 1);
    rv_pieces_init(&content);
    must(rv_encode(&content, RV_INT32, 0, NULL, values, sizeof values[0], (size_t)rows, false, true, &err), &err);
    rv_writer_buf_init(&tensors[t]);
    rv_put_varint(&tensors[t], 1, RV_INT32);
    int64_t shape = rows;
    rv_shape_proto_put(&tensors[t], 2, 1, &shape);
    rv_put_header(&tensors[t], 4, content.bytes);
    for (size_t i = 0; i < content.count; i++) rv_put_raw(&tensors[t], content.piece[i].data, content.piece[i].size);
    rv_pieces_fini(&content);
  }
  rv_put_varint(&out, 1, key);
  size_t range = rv_put_open(&out, 2);
  rv_put_varint(&out, 1, 8);
  rv_put_varint(&out, 2, (uint64_t)first);
  rv_put_varint(&out, 3, (uint64_t)(first + rows - 1));
  rv_put_close(&out, range);
  for (int t = 0; t < 2 && before; t++) rv_put_bytes(&out, 3, tensors[t].data, tensors[t].size);
  if (now) {
    size_t data = rv_put_open(&out, 5);
    for (int t = 0; t < 2; t++) rv_put_bytes(&out, 1, tensors[t].data, tensors[t].size);
    rv_put_close(&out, data);
  }
  for (int t = 0; t < 2; t++) rv_writer_buf_fini(&tensors[t]);
  return out;
}

/* An item with chunk keys and a range of rows. */
static rv_writer_buf old_item(uint64_t key, const uint64_t *chunks, size_t n, int32_t offset, int32_t length)
{
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_put_varint(&out, 1, key);
  rv_put_string(&out, 2, "replay");
  rv_put_packed(&out, 3, chunks, n);
  size_t range = rv_put_open(&out, 4);
  rv_put_int32(&out, 1, offset);
  rv_put_int32(&out, 2, length);
  rv_put_close(&out, range);
  rv_put_double(&out, 5, (double)key / 2);
  rv_put_varint(&out, 6, key % 3);
  return out;
}

static rv_writer_buf new_item(uint64_t key, uint64_t chunk, double priority)
{
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_wire_slice slice = {.chunk_key = chunk, .length = 2};
  uint32_t num_slices = 1;
  bool squeeze = false;
  rv_wire_item item = {.key = key,
                       .table = {(const uint8_t *)"replay", 6},
                       .priority = priority,
                       .slices = &slice,
                       .num_slices = &num_slices,
                       .squeeze = &squeeze,
                       .num_columns = 1,
                       .total_slices = 1};
  rv_wire_item_serialize(&out, &item);
  return out;
}

static rv_store *load(fixture *f)
{
  rv_table_config config = rv_table_config_default("replay", 100);
  rv_store *store = NULL;
  rv_error err;
  must(restore(f, &config, 1, &store, NULL, &err), &err);
  return store;
}

static void refuses(fixture *f, rv_code expected, const char *sentence)
{
  rv_table_config config = rv_table_config_default("replay", 100);
  rv_store *store = NULL;
  rv_error err;
  rv_code code = restore(f, &config, 1, &store, NULL, &err);
  assert_int_equal(code, expected);
  if (strstr(err.message, sentence) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.message, sentence);
}

/* ---- before 0.8, and before January 2021 ---- */

static void check_old_items(rv_store *store)
{
  rv_table *table = rv_store_table(store, 0);
  rv_error err;
  rv_draw draw;
  int32_t first[6], second[6];
  must(rv_table_get(table, 4, &draw, &err), &err);
  assert_int_equal(draw.trajectory->num_columns, 2);
  assert_int_equal(draw.trajectory->columns[0].length, 6);
  assert_true(draw.priority == 2);
  assert_int_equal(draw.times_sampled, 1);
  must(rv_draw_copy_column(&draw, 0, first, &err), &err);
  must(rv_draw_copy_column(&draw, 1, second, &err), &err);
  for (int32_t i = 0; i < 6; i++) {
    assert_int_equal(first[i], 2 + i);
    assert_int_equal(second[i], 2 * (2 + i));
  }
  rv_draw_release(&draw);
  must(rv_table_get(table, 5, &draw, &err), &err);
  assert_int_equal(draw.trajectory->columns[1].length, 1);
  must(rv_draw_copy_column(&draw, 0, first, &err), &err);
  assert_int_equal(first[0], 9);
  rv_draw_release(&draw);
}

static void items_inside_their_tables_with_chunk_keys_and_ranges_are_read(void **state)
{
  for (int plain = 0; plain < 2; plain++) {
    by_hand old;
    begin(*state, &old, plain != 0);
    const uint64_t keys[] = {11, 12, 13};
    rv_writer_buf table = table_record(10, 2, 0), items[] = {old_item(4, keys, 3, 2, 6), old_item(5, keys + 2, 1, 1, 1)};
    rv_writer_buf chunks[] = {chunk_record(11, 0, 4, false, true), chunk_record(12, 4, 4, true, false),
                              chunk_record(13, 8, 4, false, true)};
    for (int i = 0; i < 2; i++) {
      rv_put_bytes(&table, 2, items[i].data, items[i].size);
      rv_writer_buf_fini(&items[i]);
    }
    write_file(&old, RV_TABLES_FILE, &table, 1);
    write_file(&old, RV_CHUNKS_FILE, chunks, 3);
    rv_store *store = load(*state);
    check_old_items(store);
    free(save(*state, store)); /* and written as today */
    rv_store *back = load(*state);
    same_stores(store, back);
    rv_store_unref(back);
    rv_store_unref(store);
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s", ((fixture *)*state)->root);
    assert_int_equal(system(command), 0);
  }
}

/* ---- what contradicts itself ---- */

static void write_one_item(const by_hand *to, rv_writer_buf table, rv_writer_buf chunk, rv_writer_buf item)
{
  write_file(to, RV_TABLES_FILE, &table, 1);
  write_file(to, RV_CHUNKS_FILE, &chunk, 1);
  write_file(to, RV_ITEMS_FILE, &item, 1);
}

static void items_in_both_places_are_refused(void **state)
{
  by_hand bad;
  begin(*state, &bad, false);
  rv_writer_buf table = table_record(10, 2, 0), item = new_item(1, 11, 1);
  rv_put_bytes(&table, 2, item.data, item.size);
  rv_writer_buf_fini(&item);
  write_one_item(&bad, table, chunk_record(11, 0, 4, true, false), new_item(2, 11, 1));
  refuses(*state, RV_DATA_LOSS, "has items in its record, beside those of items.tfrecord");
}

static void tensors_in_both_places_are_refused(void **state)
{
  by_hand bad;
  begin(*state, &bad, false);
  write_one_item(&bad, table_record(10, 1, 0), chunk_record(11, 0, 4, true, true), new_item(2, 11, 1));
  refuses(*state, RV_DATA_LOSS, "both in data and in deprecated_data");
}

static void an_item_of_both_forms_is_refused(void **state)
{
  by_hand bad;
  begin(*state, &bad, false);
  rv_writer_buf item = new_item(2, 11, 1);
  const uint64_t key = 11;
  rv_put_packed(&item, 3, &key, 1);
  write_one_item(&bad, table_record(10, 1, 0), chunk_record(11, 0, 4, true, false), item);
  refuses(*state, RV_DATA_LOSS, "both of today's and of the old form");
}

static void rows_that_the_chunks_do_not_have_are_refused(void **state)
{
  const int32_t ranges[][2] = {{3, 2}, {-1, 2}, {0, 0}, {4, 1}, {0, INT32_MAX}};
  for (size_t i = 0; i < 5; i++) {
    by_hand bad;
    begin(*state, &bad, false);
    const uint64_t key = 11;
    write_one_item(&bad, table_record(10, 1, 0), chunk_record(11, 0, 4, true, false),
                   old_item(2, &key, 1, ranges[i][0], ranges[i][1]));
    refuses(*state, RV_INVALID_ARGUMENT, "do not have rows");
  }
}

static void more_items_than_max_size_and_double_keys_are_refused(void **state)
{
  by_hand bad;
  begin(*state, &bad, false);
  rv_writer_buf table = table_record(1, 2, 0), chunk = chunk_record(11, 0, 4, true, false);
  rv_writer_buf items[] = {new_item(1, 11, 1), new_item(2, 11, 1)};
  write_file(&bad, RV_TABLES_FILE, &table, 1);
  write_file(&bad, RV_CHUNKS_FILE, &chunk, 1);
  write_file(&bad, RV_ITEMS_FILE, items, 2);
  refuses(*state, RV_FAILED_PRECONDITION, "more items than its max_size, which is 1");
  table = table_record(5, 2, 0);
  rv_writer_buf doubles[] = {new_item(1, 11, 1), new_item(1, 11, 1)};
  write_file(&bad, RV_TABLES_FILE, &table, 1);
  write_file(&bad, RV_ITEMS_FILE, doubles, 2);
  refuses(*state, RV_FAILED_PRECONDITION, "two items have the key 1");
}

static void a_refused_priority_and_an_item_of_no_table_are_refused(void **state)
{
  by_hand bad;
  begin(*state, &bad, false);
  write_one_item(&bad, table_record(10, 1, 0), chunk_record(11, 0, 4, true, false), new_item(2, 11, (double)NAN));
  refuses(*state, RV_INVALID_ARGUMENT, "priority must not be NaN");
  rv_writer_buf item = new_item(2, 11, 1), none;
  rv_put_string(&item, 2, "elsewhere");
  write_one_item(&bad, table_record(10, 1, 0), chunk_record(11, 0, 4, true, false), item);
  refuses(*state, RV_DATA_LOSS, "is of table \"elsewhere\", which has no record");
  rv_writer_buf_init(&none);
  rv_put_string(&none, 1, "replay"); /* no selectors, no sizes */
  write_file(&bad, RV_TABLES_FILE, &none, 1);
  refuses(*state, RV_INVALID_ARGUMENT, "was saved without a sampler");
}

static void two_records_of_one_table_are_refused(void **state)
{
  by_hand bad;
  begin(*state, &bad, false);
  rv_writer_buf tables[] = {table_record(10, 0, 0), table_record(10, 0, 0)};
  write_file(&bad, RV_TABLES_FILE, tables, 2);
  refuses(*state, RV_DATA_LOSS, "the second record of table \"replay\"");
}

/* Reverb's process ends where these are restored or first used. */
static void counters_and_limiters_that_are_impossible_are_corrected(void **state)
{
  by_hand odd;
  fixture *f = *state;
  begin(f, &odd, false);
  write_one_item(&odd, table_record(10, 7, 1), chunk_record(11, 0, 4, true, false), new_item(2, 11, 1));
  rv_store *store = load(f);
  rv_table_info info = info_of(rv_store_table(store, 0));
  assert_int_equal(info.inserts - info.deletes, 1);
  logged(f, "the counters were corrected");
  rv_table_info_fini(&info);
  rv_store_unref(store);
  rv_writer_buf table = table_record(10, 1, 0);
  size_t limiter = rv_put_open(&table, 3);
  rv_put_double(&table, 2, -4);
  rv_put_close(&table, limiter);
  write_file(&odd, RV_TABLES_FILE, &table, 1);
  store = load(f);
  info = info_of(rv_store_table(store, 0));
  assert_true(info.rate_limiter.samples_per_insert == 1);
  assert_int_equal(info.current_size, 1);
  logged(f, "the configured rate limiter is used, for the saved one is impossible: samples_per_insert is -4");
  rv_table_info_fini(&info);
  rv_store_unref(store);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(items_inside_their_tables_with_chunk_keys_and_ranges_are_read),
      TEST(items_in_both_places_are_refused),
      TEST(tensors_in_both_places_are_refused),
      TEST(an_item_of_both_forms_is_refused),
      TEST(rows_that_the_chunks_do_not_have_are_refused),
      TEST(more_items_than_max_size_and_double_keys_are_refused),
      TEST(a_refused_priority_and_an_item_of_no_table_are_refused),
      TEST(two_records_of_one_table_are_refused),
      TEST(counters_and_limiters_that_are_impossible_are_corrected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
