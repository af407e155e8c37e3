/* Writers of this process whose table, or store, may take little memory: what they fill ahead of their rows is a small part of it, so that items
 * get in, and stay as long as there is room for them. */
#include "support/place.h"

enum { ROW = 1024 };

static test_place place;

static void open_bounded(int64_t max_bytes)
{
  rv_table_config table = rv_table_config_default("t", 1000000);
  table.max_bytes = max_bytes;
  place_open(&place, false, &table, 1);
}

/* One step of one column, and an item of it. */
static void put_row(rv_writer *writer, rv_tensor value)
{
  rv_cell cell = {.column = 0, .value = value};
  OK(rv_writer_append(writer, &cell, 1, false, error));
  OK(item_of_rows(writer, "t", rv_writer_num_rows(writer) - 1, 1, 1, 1, NULL, error));
}

static void put_bytes(rv_writer *writer)
{
  static const uint8_t bytes[ROW];
  static const int64_t shape[1] = {ROW};
  put_row(writer, (rv_tensor){.dtype = RV_UINT8, .rank = 1, .shape = shape, .data = bytes});
}

/* What its rows take, of what the table may take. */
static double part_of_rows(int64_t row_bytes, int64_t max_bytes)
{
  return (double)(place_size(&place, "t") * row_bytes) / (double)max_bytes;
}

static void many_writers_fill_a_tables_bytes_with_rows(void **state)
{
  (void)state;
  enum { WRITERS = 32, MAX_BYTES = 16 << 20, TIMES = 3 };
  open_bounded(MAX_BYTES);
  rv_writer *writers[WRITERS];
  for (int i = 0; i < WRITERS; i++) writers[i] = place_writer(&place, (rv_writer_config){.num_keep_alive_refs = 1});
  for (int step = 0; step < TIMES * MAX_BYTES / ROW / WRITERS; step++) {
    for (int i = 0; i < WRITERS; i++) put_bytes(writers[i]);
    if (step > MAX_BYTES / ROW / WRITERS && step % 64 == 0) assert_true(part_of_rows(ROW, MAX_BYTES) > 0.75);
  }
  for (int i = 0; i < WRITERS; i++) rv_writer_free(writers[i]);
  place_close(&place);
}

/* A writer that goes leaves the others its part. */
static void a_writer_that_was_one_of_many_fills_them_alone(void **state)
{
  (void)state;
  enum { BEFORE = 200, MAX_BYTES = 1 << 20 };
  open_bounded(MAX_BYTES);
  for (int i = 0; i < BEFORE; i++) rv_writer_free(place_writer(&place, (rv_writer_config){0}));
  rv_writer *writer = place_writer(&place, (rv_writer_config){.num_keep_alive_refs = 1});
  for (int i = 0; i < 3 * MAX_BYTES / ROW; i++) put_bytes(writer);
  assert_true(part_of_rows(ROW, MAX_BYTES) > 0.75);
  rv_writer_free(writer);
  place_close(&place);
}

static void no_item_is_refused_for_what_its_writer_fills_ahead(void **state)
{
  (void)state;
  enum { MAX_BYTES = 512 << 10 };
  open_bounded(MAX_BYTES);
  rv_writer *writer = place_writer(&place, (rv_writer_config){.num_keep_alive_refs = 1});
  for (int i = 0; i < 4000; i++) put_bytes(writer); /* it had doubled its chunks up to a megabyte */
  OK(rv_writer_flush(writer, 0, NULL, error));
  assert_true(part_of_rows(ROW, MAX_BYTES) > 0.75);
  rv_writer_free(writer);
  place_close(&place);
}

static void strings_of_one_chunk_do_not_fill_a_table(void **state)
{
  (void)state;
  enum { LENGTH = 8192, MAX_BYTES = 32 << 20 };
  open_bounded(MAX_BYTES);
  static const char text[LENGTH];
  const rv_bytes string = {.data = (const uint8_t *)text, .size = LENGTH};
  rv_writer *writer = place_writer(&place, (rv_writer_config){.num_keep_alive_refs = 1});
  for (int i = 0; i < 3 * MAX_BYTES / LENGTH; i++) put_row(writer, (rv_tensor){.dtype = RV_STRING, .data = &string});
  OK(rv_writer_flush(writer, 0, NULL, error));
  assert_true(part_of_rows(LENGTH, MAX_BYTES) > 0.75);
  rv_writer_free(writer);
  place_close(&place);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(many_writers_fill_a_tables_bytes_with_rows),
      cmocka_unit_test(a_writer_that_was_one_of_many_fills_them_alone),
      cmocka_unit_test(no_item_is_refused_for_what_its_writer_fills_ahead),
      cmocka_unit_test(strings_of_one_chunk_do_not_fill_a_table),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
