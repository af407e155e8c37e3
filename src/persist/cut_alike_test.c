/* Columns that were cut alike in a table are cut alike in a file, whatever pieces it has their rows in. */
#include "persist/cut_alike.h"

#include "base/env.h"
#include "base/random.h"
#include "persist/item_record.h"
#include "persist/stores_testing.h"
#include "store/chunk_parts.h"

enum { SEED = 20261128, CASES = 2000, COLUMNS = 5, ROWS = 12 };

/* Each row of a column is another, wherever it is. */
static int32_t row_of(const rv_wire_slice *slices, uint32_t n, int32_t row, uint64_t *key)
{
  for (uint32_t i = 0; i < n; i++) {
    if (row < slices[i].length) {
      *key = slices[i].chunk_key;
      return slices[i].offset + row;
    }
    row -= slices[i].length;
  }
  fail_msg("there is no row %d", (int)row);
  return -1;
}

static uint32_t cut_somehow(rv_random *random, uint32_t column, int32_t rows, rv_wire_slice *out)
{
  uint32_t n = 0;
  for (int32_t done = 0; done < rows; n++) {
    const int32_t length = (int32_t)rv_random_below(random, (uint32_t)(rows - done) + 1);
    out[n] = (rv_wire_slice){.chunk_key = rv_random_next(random), .offset = done * 7, .length = length, .index = (int32_t)column};
    done += length;
  }
  return n;
}

static void check_cut(const rv_slice_list *now, const uint32_t *num_now, const rv_wire_slice *before, const uint32_t *num_before,
                      uint32_t columns, int32_t rows)
{
  const rv_wire_slice *cut = now->slices;
  for (uint32_t c = 0; c < columns; cut += num_now[c], before += num_before[c++]) {
    assert_int_equal(num_now[c], num_now[0]);
    for (uint32_t i = 0; i < num_now[c]; i++) assert_int_equal(cut[i].length, now->slices[i].length);
    for (int32_t row = 0; row < rows; row++) {
      uint64_t key, was;
      assert_int_equal(row_of(cut, num_now[c], row, &key), row_of(before, num_before[c], row, &was));
      assert_true(key == was);
    }
    for (uint32_t i = 0; i < num_now[c]; i++) assert_int_equal(cut[i].index, c);
  }
  assert_int_equal(cut - now->slices, now->count);
}

static void every_column_has_the_rows_it_had_cut_where_any_was(void **state)
{
  (void)state;
  rv_random random;
  rv_cutting cutting = {0};
  rv_slice_list list = {0};
  rv_random_init(&random, SEED);
  for (int i = 0; i < CASES; i++) {
    rv_wire_slice before[COLUMNS * 64];
    uint32_t num_before[COLUMNS], num_now[COLUMNS], columns = 1 + rv_random_below(&random, COLUMNS), count = 0;
    const int32_t rows = (int32_t)rv_random_below(&random, ROWS + 1);
    for (uint32_t c = 0; c < columns; count += num_before[c++]) {
      do num_before[c] = cut_somehow(&random, c, rows, before + count);
      while (num_before[c] > 60);
    }
    list.count = 0;
    if (list.capacity < count) {
      free(list.slices);
      list.slices = malloc(count * sizeof *list.slices);
      list.capacity = count;
    }
    if (count > 0) memcpy(list.slices, before, count * sizeof *before);
    list.count = count;
    memcpy(num_now, num_before, sizeof num_now);
    if (count == 0) continue;
    assert_int_equal(rv_cut_alike(&cutting, &list, num_now, columns, NULL), RV_OK);
    if (rows > 0) check_cut(&list, num_now, before, num_before, columns, rows);
  }
  free(list.slices);
  rv_cutting_fini(&cutting);
}

static rv_code put_nowhere(void *context, rv_pieces *chunk, rv_error *err)
{
  (void)context, (void)chunk, (void)err;
  return RV_OK;
}

/* A segment of six rows of one column, of which three are there for all to see. */
static rv_chunk *six_rows(void)
{
  rv_error err;
  rv_chunk *segment;
  const rv_spec spec = {.name = "", .dtype = RV_INT64};
  const rv_chunk_meta meta = {.key = 5, .episode_id = 1, .last_step = 5};
  must(rv_segment_new(&spec, 1, 6, &meta, &segment, &err), &err);
  for (int64_t i = 0; i < 6; i++) must(rv_segment_put(segment, 0, i, &(rv_tensor){.dtype = RV_INT64, .data = &i}, &err), &err);
  rv_segment_publish(segment, 0, 3);
  return segment;
}

/* The file has three rows already, and now those behind them, in another piece. */
static void an_observation_and_the_next_one_of_one_segment_stay_alike(void **state)
{
  (void)state;
  rv_error err;
  rv_env env;
  rv_env_fill(&env, NULL);
  rv_table_config config = rv_table_config_default("t", 10);
  rv_store *store = new_store(&config, 1);
  rv_chunk_log *log;
  rv_item_scratch scratch = {0};
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  must(rv_chunk_log_new((rv_chunk_sink){put_nowhere, NULL}, &env, &log, &err), &err);
  rv_chunk *segment = six_rows();
  rv_slice_list first = {0};
  must(rv_chunk_log_put(log, &(rv_slice){.chunk = segment, .length = 3}, &first, &err), &err);
  free(first.slices);
  rv_segment_publish(segment, 0, 6);
  const rv_slice slices[] = {{segment, 0, 1, 4}, {segment, 0, 0, 4}};
  const uint32_t num_slices[] = {1, 1};
  const bool squeeze[] = {false, false};
  insert_trajectory(store, rv_store_table(store, 0), 1, 1, slices, num_slices, squeeze, 2);
  rv_draw draw;
  must(rv_table_get(rv_store_table(store, 0), 1, &draw, &err), &err);
  must(rv_item_record_put(&scratch, log, "t", 0, &draw, &out, &err), &err);
  rv_wire_item item;
  must(rv_wire_item_parse((rv_span){out.data, out.size}, &item, &err), &err);
  assert_int_equal(item.num_slices[0], 3); /* 2 and 2, 3 and 1: cut at both */
  assert_int_equal(item.num_slices[0], item.num_slices[1]);
  for (uint32_t i = 0; i < item.num_slices[0]; i++)
    assert_int_equal(item.slices[i].length, item.slices[item.num_slices[0] + i].length);
  rv_wire_item_fini(&item);
  rv_draw_release(&draw);
  rv_writer_buf_fini(&out);
  rv_item_scratch_fini(&scratch);
  rv_chunk_log_free(log);
  rv_chunk_unref(segment);
  rv_store_unref(store);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_column_has_the_rows_it_had_cut_where_any_was),
                                     cmocka_unit_test(an_observation_and_the_next_one_of_one_segment_stay_alike)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
