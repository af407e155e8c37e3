/* Columns that share chunks on their way to a server: which do, which do no more, and that every item is what it would be without. */
#include "support/place.h"

#include "client/writer.h"
#include "reverie/writer.h"
#include "store/chunk_parts.h"
#include "store/store.h"
#include "store/table.h"

enum { COLUMNS = 5, KEPT = 8, LARGE = 4 };

/* Elements of each column's rows: float32. The last is too large to share. */
static const int64_t width[COLUMNS] = {4, 1, 100, 2, 300};
static const rv_wait wait_long = {.timeout_ms = 20000};
static test_place place;
static uint32_t constant; /* a column whose rows compress; COLUMNS: none does */

static int set_up(void **state)
{
  (void)state;
  constant = COLUMNS;
  rv_table_config table = {
      .size = sizeof table,
      .name = "t",
      .sampler = {.kind = RV_SELECTOR_UNIFORM},
      .remover = {.kind = RV_SELECTOR_FIFO},
      .max_size = 1000,
      .rate_limiter = {.samples_per_insert = 1, .min_size_to_sample = 1, .min_diff = -1e300, .max_diff = 1e300}};
  place_open(&place, true, &table, 1);
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  place_close(&place);
  return 0;
}

static rv_writer *new_writer(uint32_t chunk_length)
{
  rv_writer_config config = {.size = sizeof config, .num_keep_alive_refs = KEPT, .chunk_length = chunk_length};
  rv_writer *writer = NULL;
  OK(rv_writer_new(place.client, &config, &writer, error));
  return writer;
}

static float value_of(uint32_t column, int64_t row, int64_t i)
{
  if (column == constant) return (float)row;
  uint32_t mixed = (column * 1000003U + (uint32_t)row * 7919U + (uint32_t)i * 104729U) * 2654435761U;
  return (float)(mixed ^ mixed >> 15);
}

/* A bit for each column that the step, or a part of it, has. */
static void append(rv_writer *writer, int64_t row, unsigned columns, bool partial)
{
  static float values[COLUMNS][300];
  rv_cell cells[COLUMNS];
  size_t n = 0;
  for (uint32_t c = 0; c < COLUMNS; c++) {
    if ((columns & 1U << c) == 0) continue;
    for (int64_t i = 0; i < width[c]; i++) values[c][i] = value_of(c, row, i);
    cells[n++] = (rv_cell){.column = c, .value = {.dtype = RV_FLOAT32, .rank = 1, .shape = &width[c], .data = values[c]}};
  }
  OK(rv_writer_append(writer, cells, n, partial, error));
}

/* Rows of an item's columns, by the columns' numbers; count 0: not in it. */
typedef struct rows_of {
  int64_t first;
  uint32_t count;
} rows_of;

static uint64_t put_item(rv_writer *writer, const rows_of rows[COLUMNS])
{
  rv_run runs[COLUMNS];
  rv_item_column columns[COLUMNS];
  size_t n = 0;
  uint64_t key = 0;
  for (uint32_t c = 0; c < COLUMNS; c++) {
    if (rows[c].count == 0) continue;
    runs[n] = (rv_run){.column = c, .count = rows[c].count, .first = rows[c].first, .stride = 1};
    columns[n] = (rv_item_column){.runs = &runs[n], .num_runs = 1};
    n++;
  }
  OK(rv_writer_create_item(writer, "t", 1, columns, n, &key, error));
  return key;
}

static void check_rows(uint64_t key, const rows_of rows[COLUMNS])
{
  rv_sample *sample = NULL;
  OK(rv_client_get(place.client, "t", key, &wait_long, &sample, error));
  for (uint32_t c = 0, n = 0; c < COLUMNS; c++) {
    static float got[KEPT * 300];
    if (rows[c].count == 0) continue;
    OK(rv_sample_copy(sample, n++, got, rows[c].count * (size_t)width[c] * sizeof(float), error));
    for (int64_t r = 0; r < rows[c].count; r++)
      for (int64_t i = 0; i < width[c]; i++)
        if (got[r * width[c] + i] != value_of(c, rows[c].first + r, i))
          fail_msg("column %u, row %d: %g", c, (int)(rows[c].first + r), (double)got[r * width[c] + i]);
  }
  rv_sample_unref(sample);
}

/* Of an item whose columns are those of `rows`, of an episode that began with row 0: each row is of its own step, as far as that is known. */
static void check_steps(const rv_draw *draw, const rows_of rows[COLUMNS])
{
  const rv_trajectory *trajectory = draw->trajectory;
  for (uint32_t c = 0, n = 0; c < COLUMNS; c++) {
    if (rows[c].count == 0) continue;
    const rv_trajectory_column *column = &trajectory->columns[n++];
    int64_t step = rows[c].first;
    for (uint32_t i = 0; i < column->num_slices; i++) {
      const rv_slice slice = rv_draw_slice(draw, column->first_slice + i);
      for (int64_t row = slice.offset; row < slice.offset + slice.length; row++, step++) {
        int64_t said = rv_chunk_row_step(slice.chunk, row);
        if (said != step && said != -1) fail_msg("column %u, step %d: the server says %d", c, (int)step, (int)said);
        if (said == -1) assert_true(rv_chunk_get_meta(slice.chunk)->sparse);
      }
    }
  }
}

/* The number of the item's chunks; `newest`: of each of its columns, the chunk of its last row. */
static size_t look_at_chunks(uint64_t key, const rows_of rows[COLUMNS], const rv_chunk *newest[COLUMNS])
{
  rv_table *table;
  rv_draw draw;
  OK(rv_store_find_named(place.store, "t", &table, error));
  OK(rv_table_get(table, key, &draw, error));
  const rv_trajectory *trajectory = draw.trajectory;
  const rv_chunk *seen[64];
  size_t num_seen = 0;
  if (rows != NULL) check_steps(&draw, rows);
  for (uint32_t c = 0; c < trajectory->num_columns; c++) {
    const rv_trajectory_column *column = &trajectory->columns[c];
    for (uint32_t s = 0; s < column->num_slices; s++) {
      const rv_chunk *chunk = rv_draw_slice(&draw, column->first_slice + s).chunk;
      size_t known = 0;
      while (known < num_seen && seen[known] != chunk) known++;
      if (known == num_seen) seen[num_seen++] = chunk;
      if (newest != NULL) newest[c] = chunk;
    }
  }
  rv_draw_release(&draw);
  return num_seen;
}

static void end(rv_writer *writer)
{
  OK(rv_writer_flush(writer, 0, &wait_long, error));
  rv_writer_free(writer);
}

/* ---- who shares ---- */

#define ROWS(...) ((rows_of[COLUMNS]){__VA_ARGS__})
/* The same rows of the first n columns. */
#define SAME(n, first, count) (const rows_of *)same_rows((rows_of[COLUMNS]){{0}}, n, first, count)

static const rows_of *same_rows(rows_of rows[COLUMNS], uint32_t n, int64_t first, uint32_t count)
{
  for (uint32_t c = 0; c < n; c++) rows[c] = (rows_of){first, count};
  return rows;
}

static void columns_of_small_rows_share_one_chunk_a_step(void **state)
{
  (void)state;
  rv_writer *writer = new_writer(0);
  uint64_t keys[20];
  for (int64_t step = 0; step < 20; step++) {
    append(writer, step, 31, false);
    keys[step] = put_item(writer, SAME(5, step, 1));
  }
  end(writer);
  for (int64_t step = 0; step < 20; step++) {
    check_rows(keys[step], SAME(5, step, 1));
    const rv_chunk *chunk[COLUMNS];
    assert_int_equal(look_at_chunks(keys[step], SAME(5, step, 1), chunk), 2);
    assert_true(chunk[0] == chunk[1] && chunk[1] == chunk[2] && chunk[2] == chunk[3] && chunk[3] != chunk[LARGE]);
    assert_int_equal(chunk[LARGE]->num_columns, 1);
  }
}

static void sequences_that_overlap_share_chunks_too(void **state)
{
  (void)state;
  rv_writer *writer = new_writer(0);
  uint64_t keys[40];
#define SEQUENCE(step) ROWS({(step)-7, 8}, {(step)-7, 7}, {(step)-7, 7}, {(step), 1})
  for (int64_t step = 0; step < 40; step++) {
    append(writer, step, 15, false);
    if (step % 2 == 1 && step >= 7) keys[step] = put_item(writer, SEQUENCE(step));
  }
  end(writer);
  for (int64_t step = 7; step < 40; step += 2) {
    const rv_chunk *chunk[COLUMNS];
    check_rows(keys[step], SEQUENCE(step));
    look_at_chunks(keys[step], SEQUENCE(step), chunk);
    assert_ptr_equal(chunk[0], chunk[3]);
    assert_int_equal(chunk[0]->num_columns, 4);
  }
#undef SEQUENCE
}

/* ---- who does no more ---- */

/* Of 240 bytes a row an item takes one of eight: seven would come along for nothing. */
static void a_column_of_which_items_need_little_has_chunks_of_its_own(void **state)
{
  (void)state;
  rv_writer *writer = new_writer(0);
  uint64_t key = 0;
  for (int64_t step = 0; step < 40; step++) {
    append(writer, step, 15, false);
    if (step % 8 == 7) key = put_item(writer, ROWS({step - 7, 8}, {step - 7, 8}, {step, 1}, {step, 1}));
  }
  end(writer);
  const rv_chunk *chunk[COLUMNS];
  check_rows(key, ROWS({32, 8}, {32, 8}, {39, 1}, {39, 1}));
  look_at_chunks(key, ROWS({32, 8}, {32, 8}, {39, 1}, {39, 1}), chunk);
  assert_true(chunk[0] == chunk[1] && chunk[0] == chunk[3]); /* 8 bytes a row are no reason */
  assert_ptr_not_equal(chunk[0], chunk[2]);
  assert_int_equal(chunk[2]->num_columns, 1);
  assert_int_equal(chunk[0]->num_columns, 3);
}

/* As many rows of each, but of other steps: each would bring the other's. */
static void columns_that_items_need_of_other_steps_part(void **state)
{
  (void)state;
  rv_writer *writer = new_writer(0);
  uint64_t key = 0;
#define FAR(step) ROWS({(step)-7, 3}, {(step)-7, 3}, {(step)-2, 3}, {(step)-7, 3})
  for (int64_t step = 0; step < 40; step++) {
    append(writer, step, 15, false);
    if (step % 8 == 7) key = put_item(writer, FAR(step));
  }
  end(writer);
  const rv_chunk *chunk[COLUMNS];
  check_rows(key, FAR(39));
  look_at_chunks(key, FAR(39), chunk);
  assert_int_equal(chunk[2]->num_columns, 1);
  assert_int_equal(chunk[0]->num_columns, 3);
#undef FAR
}

/* Of two there is none that the other could stay with. */
static void two_columns_that_items_need_of_other_steps_part(void **state)
{
  (void)state;
  rv_writer *writer = new_writer(0);
  uint64_t key = 0;
  for (int64_t step = 0; step < 40; step++) {
    append(writer, step, 5, false);
    if (step % 8 == 7) key = put_item(writer, ROWS({step - 7, 3}, {0}, {step - 2, 3}));
  }
  end(writer);
  const rv_chunk *chunk[COLUMNS];
  check_rows(key, ROWS({32, 3}, {0}, {37, 3}));
  look_at_chunks(key, ROWS({32, 3}, {0}, {37, 3}), chunk);
  assert_int_equal(chunk[0]->num_columns, 1);
  assert_int_equal(chunk[1]->num_columns, 1);
}

/* Observations, and the next ones, of one column: rows that an item names twice are there once. */
static void a_column_that_items_name_twice_goes_on_sharing(void **state)
{
  (void)state;
  rv_writer *writer = new_writer(0);
  uint64_t key = 0;
  for (int64_t step = 0; step < 40; step++) {
    append(writer, step, 5, false);
    if (step < 7) continue;
    rv_run runs[] = {{.column = 0, .count = 7, .first = step - 7, .stride = 1},
                     {.column = 0, .count = 7, .first = step - 6, .stride = 1},
                     {.column = 2, .count = 7, .first = step - 7, .stride = 1}};
    rv_item_column columns[] = {
        {.runs = &runs[0], .num_runs = 1}, {.runs = &runs[1], .num_runs = 1}, {.runs = &runs[2], .num_runs = 1}};
    OK(rv_writer_create_item(writer, "t", 1, columns, 3, &key, error));
  }
  end(writer);
  const rv_chunk *chunk[COLUMNS];
  look_at_chunks(key, NULL, chunk);
  assert_int_equal(chunk[0]->num_columns, 2);
  assert_int_equal(chunk[2]->num_columns, 2);
}

/* What no item needs is not sent. */
static void columns_that_items_do_without_stay_here(void **state)
{
  (void)state;
  rv_writer *writer = new_writer(0);
  uint64_t keys[10];
  for (int64_t step = 0; step < 10; step++) {
    append(writer, step, 15, false);
    keys[step] = put_item(writer, SAME(2, step, 1));
  }
  append(writer, 10, 15, false);
  uint64_t whole = put_item(writer, SAME(4, 10, 1));
  end(writer);
  for (int64_t step = 1; step < 10; step++) {
    const rv_chunk *chunk[COLUMNS];
    check_rows(keys[step], SAME(2, step, 1));
    assert_int_equal(look_at_chunks(keys[step], SAME(2, step, 1), chunk), 1);
    assert_int_equal(chunk[0]->num_columns, 2);
  }
  check_rows(whole, SAME(4, 10, 1));
  assert_int_equal(look_at_chunks(whole, SAME(4, 10, 1), NULL), 2); /* those two share, too */
}

static void columns_of_which_steps_have_some_and_some_not_part(void **state)
{
  (void)state;
  rv_writer *writer = new_writer(0);
  uint64_t keys[12];
  for (int64_t step = 0; step < 12; step++) {
    append(writer, step, step == 4 ? 12 : 15, false);
    keys[step] = put_item(writer, step == 4 ? ROWS({0}, {0}, {4, 1}, {4, 1}) : SAME(4, step, 1));
  }
  end(writer);
  for (int64_t step = 0; step < 12; step++) {
    const rows_of *rows = step == 4 ? ROWS({0}, {0}, {4, 1}, {4, 1}) : SAME(4, step, 1);
    check_rows(keys[step], rows);
    assert_int_equal(look_at_chunks(keys[step], rows, NULL), step <= 4 ? 1 : 2);
  }
}

static void a_column_that_comes_late_leaves_the_others_as_they_were(void **state)
{
  (void)state;
  rv_writer *writer = new_writer(0);
  for (int64_t step = 0; step < 8; step++) append(writer, step, step < 3 ? 14 : 15, false);
  uint64_t early = put_item(writer, ROWS({0}, {0, 8}, {0, 8}, {0, 8})),
           late = put_item(writer, ROWS({7, 1}, {7, 1}, {7, 1}, {7, 1}));
  end(writer);
  const rv_chunk *chunk[COLUMNS];
  check_rows(early, ROWS({0}, {0, 8}, {0, 8}, {0, 8}));
  check_rows(late, SAME(4, 7, 1));
  assert_int_equal(look_at_chunks(late, SAME(4, 7, 1), chunk), 2);
  assert_true(chunk[1] == chunk[2] && chunk[1] == chunk[3]);
}

static void a_column_that_was_configured_has_chunks_of_its_own(void **state)
{
  (void)state;
  rv_writer *writer = new_writer(0);
  uint64_t keys[8];
  OK(rv_writer_configure_column(writer, 1, 2, 0, error));
  for (int64_t step = 0; step < 8; step++) {
    if (step == 4) OK(rv_writer_configure_column(writer, 3, 4, 0, error));
    append(writer, step, 15, false);
    keys[step] = put_item(writer, SAME(4, step, 1));
  }
  end(writer);
  for (int64_t step = 0; step < 8; step++) {
    const rv_chunk *chunk[COLUMNS];
    check_rows(keys[step], SAME(4, step, 1));
    assert_int_equal(look_at_chunks(keys[step], SAME(4, step, 1), chunk), step < 4 ? 2 : 3);
    assert_ptr_equal(chunk[0], chunk[2]);
  }
}

/* The others' bytes then stand where they stood in the chunk before. One trial is not enough: the first rows may be zeros. */
static void what_compresses_has_chunks_of_its_own(void **state)
{
  (void)state;
  constant = 2;
  rv_writer *writer = new_writer(0);
  uint64_t keys[200];
  for (int64_t step = 0; step < 200; step++) {
    append(writer, step, 15, false);
    keys[step] = put_item(writer, SAME(4, step, 1));
  }
  end(writer);
  for (int64_t step = 0; step < 200; step++) {
    check_rows(keys[step], SAME(4, step, 1));
    assert_int_equal(look_at_chunks(keys[step], SAME(4, step, 1), NULL),
                     step <= 64 ? 1 : 2); /* the second is of the 65th chunk */
  }
}

/* A chunk by itself costs more than that. */
static void what_compression_saves_few_bytes_of_goes_on_sharing(void **state)
{
  (void)state;
  constant = 0;
  rv_writer *writer = new_writer(0);
  uint64_t key = 0;
  for (int64_t step = 0; step < 200; step++) {
    append(writer, step, 15, false);
    key = put_item(writer, SAME(4, step, 1));
  }
  end(writer);
  check_rows(key, SAME(4, 199, 1));
  assert_int_equal(look_at_chunks(key, SAME(4, 199, 1), NULL), 1);
}

static void columns_that_begin_with_zeros_go_on_sharing(void **state)
{
  (void)state;
  rv_writer *writer = new_writer(0);
  uint64_t key = 0;
  for (int64_t step = 0; step < 200; step++) {
    constant = step < 10 ? 2 : COLUMNS;
    append(writer, step, 15, false);
    key = put_item(writer, SAME(4, step, 1));
  }
  end(writer);
  check_rows(key, SAME(4, 199, 1));
  assert_int_equal(look_at_chunks(key, SAME(4, 199, 1), NULL), 1);
}

/* ---- steps that come in parts ---- */

/* An observation comes before the action that answers it, and what they led to with the next: items are made in between. */
static void columns_of_one_part_of_a_step_share(void **state)
{
  (void)state;
  rv_writer *writer = new_writer(0);
  uint64_t keys[20];
  append(writer, 0, 6, true);
#define TWO_STEPS(step) ROWS({(step), 1}, {(step), 2}, {(step), 2}, {(step), 1})
  for (int64_t step = 0; step < 20; step++) {
    append(writer, step, 9, false);
    append(writer, step + 1, 6, true);
    keys[step] = put_item(writer, TWO_STEPS(step));
  }
  end(writer);
  for (int64_t step = 0; step < 20; step++) {
    const rv_chunk *chunk[COLUMNS];
    check_rows(keys[step], TWO_STEPS(step));
    assert_true(look_at_chunks(keys[step], TWO_STEPS(step), chunk) <= 3); /* of the first part two, of the second one */
    assert_true(chunk[0] == chunk[3] && chunk[1] == chunk[2] && chunk[0] != chunk[1]);
  }
#undef TWO_STEPS
}

static void parts_of_steps_fill_chunks_of_a_fixed_length(void **state)
{
  (void)state;
  rv_writer *writer = new_writer(4);
  uint64_t keys[30];
  append(writer, 0, 6, true);
#define FIVE_STEPS(step) ROWS({(step)-3, 4}, {(step), 1}, {(step)-3, 5}, {(step)-3, 4})
  for (int64_t step = 0; step < 30; step++) {
    append(writer, step, 9, false);
    append(writer, step + 1, 6, true);
    if (step >= 3) keys[step] = put_item(writer, FIVE_STEPS(step));
    if (step % 11 == 10) OK(rv_writer_flush(writer, 0, &wait_long, error)); /* cuts between the parts of a step */
  }
  end(writer);
  for (int64_t step = 3; step < 30; step++) {
    check_rows(keys[step], FIVE_STEPS(step));
    look_at_chunks(keys[step], FIVE_STEPS(step), NULL);
  }
#undef FIVE_STEPS
}

/* ---- appends that fail ---- */

/* What was known of a column is not true of another that takes its place after an append that failed. */
static void a_column_that_did_not_begin_may_begin_otherwise(void **state)
{
  (void)state;
  rv_writer *writer = new_writer(0);
  const int64_t four = 4, two = 2;
  float floats[4] = {1, 2, 3, 4};
  double doubles[2] = {5, 6};
  rv_cell cells[] = {{.column = 0, .value = {.dtype = RV_FLOAT32, .rank = 1, .shape = &four, .data = floats}},
                     {.column = 1, .value = {.dtype = RV_FLOAT32, .rank = 1, .shape = &four, .data = floats}}};
  for (int i = 0; i < 3; i++) {
    cells[1].value = (rv_tensor){.dtype = RV_FLOAT32, .rank = 1, .shape = &four, .data = NULL};
    FAILS(RV_INVALID_ARGUMENT, "no data", rv_writer_append(writer, cells, 2, false, error));
  }
  cells[1].value = (rv_tensor){.dtype = RV_FLOAT64, .rank = 1, .shape = &two, .data = doubles};
  OK(rv_writer_append(writer, cells, 2, false, error));
  rv_run runs[] = {{.column = 0, .count = 1, .first = 0, .stride = 1}, {.column = 1, .count = 1, .first = 0, .stride = 1}};
  rv_item_column columns[] = {{.runs = &runs[0], .num_runs = 1}, {.runs = &runs[1], .num_runs = 1}};
  uint64_t key;
  OK(rv_writer_create_item(writer, "t", 1, columns, 2, &key, error));
  end(writer);
  rv_sample *sample = NULL;
  double got[2];
  OK(rv_client_get(place.client, "t", key, &wait_long, &sample, error));
  OK(rv_sample_copy(sample, 1, got, sizeof got, error));
  assert_memory_equal(got, doubles, sizeof got);
  rv_sample_unref(sample);
  assert_int_equal(look_at_chunks(key, NULL, NULL), 1);
}

/* A writer that is at its bound, say, is refused appends again and again. */
static void an_append_that_is_refused_changes_no_group(void **state)
{
  (void)state;
  rv_writer *writer = new_writer(0);
  append(writer, 0, 15, false);
  put_item(writer, SAME(4, 0, 1));
  const uint64_t before = writer->group_numbers;
  const int64_t one = 1;
  for (int i = 0; i < 20; i++) {
    float value = 1;
    double other = 1;
    rv_cell cells[] = {{.column = 1, .value = {.dtype = RV_FLOAT32, .rank = 1, .shape = &one, .data = &value}},
                       {.column = 0, .value = {.dtype = RV_FLOAT64, .rank = 1, .shape = &one, .data = &other}}};
    FAILS(RV_INVALID_ARGUMENT, "wrong dtype", rv_writer_append(writer, cells, 2, false, error));
  }
  append(writer, 1, 15, false);
  uint64_t key = put_item(writer, SAME(4, 1, 1));
  assert_int_equal(writer->group_numbers, before);
  end(writer);
  check_rows(key, SAME(4, 1, 1));
  assert_int_equal(look_at_chunks(key, SAME(4, 1, 1), NULL), 1);
}

int main(void)
{
#define ON_A_SERVER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      ON_A_SERVER(columns_of_small_rows_share_one_chunk_a_step),
      ON_A_SERVER(sequences_that_overlap_share_chunks_too),
      ON_A_SERVER(a_column_of_which_items_need_little_has_chunks_of_its_own),
      ON_A_SERVER(columns_that_items_need_of_other_steps_part),
      ON_A_SERVER(two_columns_that_items_need_of_other_steps_part),
      ON_A_SERVER(a_column_that_items_name_twice_goes_on_sharing),
      ON_A_SERVER(columns_that_items_do_without_stay_here),
      ON_A_SERVER(columns_of_which_steps_have_some_and_some_not_part),
      ON_A_SERVER(a_column_that_comes_late_leaves_the_others_as_they_were),
      ON_A_SERVER(a_column_that_was_configured_has_chunks_of_its_own),
      ON_A_SERVER(what_compresses_has_chunks_of_its_own),
      ON_A_SERVER(what_compression_saves_few_bytes_of_goes_on_sharing),
      ON_A_SERVER(columns_that_begin_with_zeros_go_on_sharing),
      ON_A_SERVER(columns_of_one_part_of_a_step_share),
      ON_A_SERVER(parts_of_steps_fill_chunks_of_a_fixed_length),
      ON_A_SERVER(a_column_that_did_not_begin_may_begin_otherwise),
      ON_A_SERVER(an_append_that_is_refused_changes_no_group),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
