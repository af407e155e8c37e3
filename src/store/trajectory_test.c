#include "store/testing.h"

#include "store/chunk_parts.h"
#include "store/trajectory_parts.h"

enum { ROWS = 100 };

typedef struct fixture {
  rv_layouts *layouts;
  rv_chunk *chunks[3]; /* columns: int64 number, float32[2]; row r of chunk c holds c * 1000 + r */
} fixture;

static int set_up(void **state)
{
  rv_error err;
  fixture *f = calloc(1, sizeof *f);
  must(rv_layouts_new(&f->layouts, &err), &err);
  static const int64_t two[] = {2};
  static const rv_spec specs[] = {{.name = "", .dtype = RV_INT64}, {.name = "", .dtype = RV_FLOAT32, .rank = 1, .shape = two}};
  for (int c = 0; c < 3; c++) {
    rv_chunk_meta meta = {.key = (uint64_t)c};
    must(rv_segment_new(specs, 2, ROWS, &meta, &f->chunks[c], &err), &err);
    for (int64_t row = 0; row < ROWS; row++) {
      int64_t number = c * 1000 + row;
      float pair[] = {(float)number, (float)-number};
      rv_tensor cells[] = {{RV_INT64, 0, NULL, &number}, {RV_FLOAT32, 1, two, pair}};
      must(rv_segment_put(f->chunks[c], 0, row, &cells[0], &err), &err);
      must(rv_segment_put(f->chunks[c], 1, row, &cells[1], &err), &err);
    }
    rv_segment_publish(f->chunks[c], 0, ROWS);
    rv_segment_publish(f->chunks[c], 1, ROWS);
  }
  *state = f;
  return 0;
}

static int tear_down(void **state)
{
  fixture *f = *state;
  for (int c = 0; c < 3; c++) {
    assert_int_equal(rv_chunk_refs(f->chunks[c]), 1);
    rv_chunk_unref(f->chunks[c]);
  }
  assert_int_equal(rv_layouts_count(f->layouts), 0);
  rv_layouts_unref(f->layouts);
  free(f);
  return 0;
}

static rv_trajectory *build(fixture *f, const rv_slice *slices, const uint32_t *num_slices, const bool *squeeze, uint32_t columns)
{
  rv_error err;
  rv_trajectory *trajectory;
  rv_trajectory_desc desc = {.slices = slices, .num_slices = num_slices, .squeeze = squeeze, .num_columns = columns};
  must(rv_trajectory_new(f->layouts, &desc, &trajectory, &err), &err);
  return trajectory;
}

static rv_code refused(fixture *f, const rv_slice *slices, const uint32_t *num_slices, const bool *squeeze, uint32_t columns,
                       rv_error *err)
{
  rv_trajectory *trajectory;
  rv_trajectory_desc desc = {.slices = slices, .num_slices = num_slices, .squeeze = squeeze, .num_columns = columns};
  return rv_trajectory_new(f->layouts, &desc, &trajectory, err);
}

static void slices_are_read_one_after_another_in_their_order(void **state)
{
  fixture *f = *state;
  rv_slice slices[] = {{f->chunks[1], 0, 98, 2}, {f->chunks[2], 0, 0, 1}, {f->chunks[0], 0, 5, 1}, {f->chunks[2], 1, 7, 1}};
  rv_trajectory *trajectory = build(f, slices, (uint32_t[]){3, 1}, (bool[]){false, true}, 2);
  assert_int_equal(trajectory->num_chunks, 3);
  assert_ptr_equal(trajectory->chunks[0], f->chunks[1]);
  assert_int_equal(trajectory->columns[0].length, 4);
  rv_draw draw = {.trajectory = trajectory};
  rv_error err;
  int64_t numbers[4];
  float pair[2];
  must(rv_draw_copy_column(&draw, 0, numbers, &err), &err);
  must(rv_draw_copy_column(&draw, 1, pair, &err), &err);
  const int64_t expected[] = {1098, 1099, 2000, 5};
  assert_memory_equal(numbers, expected, sizeof expected);
  assert_true(pair[0] == 2007 && pair[1] == -2007);
  assert_int_equal(rv_draw_copy_column(&draw, 2, pair, &err), RV_OUT_OF_RANGE);
  rv_draw_release(&draw);
}

static void what_cannot_be_read_is_refused_with_its_column(void **state)
{
  fixture *f = *state;
  rv_error err;
  rv_slice good = {f->chunks[0], 0, 0, 1};
  uint32_t one = 1, none = 0;
  bool squeeze = true, loose = false;
  assert_int_equal(refused(f, &good, &one, &loose, 0, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(refused(f, &good, &none, &loose, 1, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "column 0: "));
  rv_slice bad = good;
  bad.tensor = 2;
  assert_int_equal(refused(f, &bad, &one, &loose, 1, &err), RV_INVALID_ARGUMENT);
  const int32_t ranges[][2] = {{-1, 1}, {0, -1}, {99, 2}, {101, 0}, {INT32_MAX, INT32_MAX}, {INT32_MIN, 1}};
  for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
    bad = good;
    bad.offset = ranges[i][0];
    bad.length = ranges[i][1];
    assert_int_equal(refused(f, &bad, &one, &loose, 1, &err), RV_INVALID_ARGUMENT);
  }
  bad = good;
  bad.length = 2;
  assert_int_equal(refused(f, &bad, &one, &squeeze, 1, &err), RV_INVALID_ARGUMENT);
  rv_slice mixed[] = {{f->chunks[0], 0, 0, 1}, {f->chunks[0], 1, 0, 1}};
  uint32_t both = 2;
  assert_int_equal(refused(f, mixed, &both, &loose, 1, &err), RV_INVALID_ARGUMENT);
}

static void equal_layouts_are_the_same_pointer(void **state)
{
  fixture *f = *state;
  rv_slice a[] = {{f->chunks[0], 0, 0, 3}}, b[] = {{f->chunks[1], 0, 5, 1}, {f->chunks[2], 0, 6, 2}},
           c[] = {{f->chunks[0], 0, 0, 4}};
  rv_trajectory *x = build(f, a, (uint32_t[]){1}, (bool[]){false}, 1), *y = build(f, b, (uint32_t[]){2}, (bool[]){false}, 1);
  rv_trajectory *z = build(f, c, (uint32_t[]){1}, (bool[]){false}, 1);
  assert_ptr_equal(x->layout, y->layout);
  assert_ptr_not_equal(x->layout, z->layout);
  assert_int_equal(rv_layouts_count(f->layouts), 2);
  rv_trajectory_unref(x);
  rv_trajectory_unref(y);
  rv_trajectory_unref(z);
}

static void many_chunks_are_listed_once_each_in_order(void **state)
{
  fixture *f = *state;
  enum { CHUNKS = 60, SLICES = 300 };
  rv_chunk *chunks[CHUNKS];
  rv_slice slices[SLICES];
  rv_random random;
  rv_random_init(&random, 1);
  for (int i = 0; i < CHUNKS; i++) chunks[i] = chunk_of(i, 0);
  for (int i = 0; i < SLICES; i++) slices[i] = (rv_slice){.chunk = chunks[rv_random_below(&random, CHUNKS)], .length = 1};
  rv_trajectory *trajectory = build(f, slices, (uint32_t[]){SLICES}, (bool[]){false}, 1);
  uint32_t seen = 0;
  for (int i = 0; i < SLICES; i++) {
    bool known = false;
    for (uint32_t k = 0; k < seen; k++) known |= trajectory->chunks[k] == slices[i].chunk;
    if (!known) assert_ptr_equal(trajectory->chunks[seen++], slices[i].chunk);
  }
  assert_int_equal(trajectory->num_chunks, seen);
  rv_trajectory_unref(trajectory);
  for (int i = 0; i < CHUNKS; i++) {
    assert_int_equal(rv_chunk_refs(chunks[i]), 1);
    rv_chunk_unref(chunks[i]);
  }
}

static void of_each_chunk_it_is_known_which_rows_are_reached(void **state)
{
  fixture *f = *state;
  enum { CHUNKS = 60, SLICES = 200, MOST_ROWS = 50 };
  const uint64_t seed = 20261122;
  print_message("seed %llu\n", (unsigned long long)seed);
  rv_chunk *chunks[CHUNKS];
  rv_slice slices[SLICES];
  rv_random random;
  rv_random_init(&random, seed);
  for (int i = 0; i < CHUNKS; i++) chunks[i] = encoded_numbers(i, MOST_ROWS, 0, false);
  for (uint32_t several = 1; several <= CHUNKS; several++) {
    for (int i = 0; i < SLICES; i++) {
      int32_t first = (int32_t)rv_random_below(&random, MOST_ROWS), most = MOST_ROWS - first;
      slices[i] = (rv_slice){.chunk = chunks[rv_random_below(&random, several)],
                             .offset = first,
                             .length = (int32_t)rv_random_below(&random, (uint32_t)most + 1)};
    }
    rv_trajectory *trajectory = build(f, slices, (uint32_t[]){SLICES}, (bool[]){false}, 1);
    for (uint32_t k = 0; k < trajectory->num_chunks; k++) {
      int32_t least = MOST_ROWS, end = 0;
      for (int i = 0; i < SLICES; i++) {
        if (slices[i].chunk != trajectory->chunks[k]) continue;
        if (slices[i].offset < least) least = slices[i].offset;
        if (slices[i].offset + slices[i].length > end) end = slices[i].offset + slices[i].length;
      }
      assert_int_equal(rv_trajectory_box_of(trajectory)->reaches[k].first, least);
      assert_int_equal(rv_trajectory_box_of(trajectory)->reaches[k].end, end);
    }
    rv_trajectory_unref(trajectory);
  }
  for (int i = 0; i < CHUNKS; i++) rv_chunk_unref(chunks[i]);
}

static void a_template_reads_what_its_trajectory_read(void **state)
{
  fixture *f = *state;
  rv_error err;
  rv_slice slices[] = {{f->chunks[0], 0, 42, 3}, {f->chunks[0], 0, 40, 1}, {f->chunks[0], 1, 44, 1}};
  rv_trajectory *trajectory = build(f, slices, (uint32_t[]){2, 1}, (bool[]){false, true}, 2), *template;
  must(rv_template_new(trajectory, &template, &err), &err);
  assert_int_equal(rv_trajectory_base(trajectory), 40);
  assert_true(rv_template_is_of(template, trajectory, 40));
  assert_int_equal(rv_template_hash(trajectory, 40), rv_trajectory_box_of(template)->hash);
  assert_int_equal(rv_trajectory_box_of(template)->span, 5);
  assert_int_equal(template->num_chunks, 0);
  rv_draw draw = {.trajectory = template, .chunk = rv_chunk_ref(f->chunks[1]), .base_row = 10};
  int64_t numbers[4];
  must(rv_draw_copy_column(&draw, 0, numbers, &err), &err);
  const int64_t expected[] = {1012, 1013, 1014, 1010};
  assert_memory_equal(numbers, expected, sizeof expected);
  rv_draw_release(&draw);
  rv_trajectory_unref(trajectory);
}

/* ---- batches ---- */

static void a_batch_is_gathered_item_by_item_and_padded(void **state)
{
  fixture *f = *state;
  enum { N = 300 };
  rv_error err;
  rv_draw draws[N];
  for (int i = 0; i < N; i++) {
    int32_t length = 1 + i % 3;
    rv_slice slices[] = {{f->chunks[i % 3], 0, i % 90, length}, {f->chunks[i % 2], 1, i % 80, 1}};
    draws[i] = (rv_draw){.trajectory = build(f, slices, (uint32_t[]){1, 1}, (bool[]){false, true}, 2)};
  }
  int64_t *numbers = malloc(N * 3 * sizeof *numbers), lengths[] = {3, 1};
  float *pairs = malloc(N * 2 * sizeof *pairs);
  memset(numbers, 0xAA, N * 3 * sizeof *numbers);
  must(rv_draws_gather_all(draws, N, lengths, (void *const[]){numbers, pairs}, 2, &err), &err);
  for (int i = 0; i < N; i++)
    for (int t = 0; t < 3; t++) assert_int_equal(numbers[i * 3 + t], t < 1 + i % 3 ? i % 3 * 1000 + i % 90 + t : 0);
  for (int i = 0; i < N; i++) assert_true(pairs[i * 2] == (float)(i % 2 * 1000 + i % 80));
  memset(numbers, 0xAA, N * 3 * sizeof *numbers);
  must(rv_draws_gather(draws, N, 0, 3, numbers, &err), &err);
  assert_int_equal(numbers[(N - 1) * 3], (N - 1) % 3 * 1000 + (N - 1) % 90);
  assert_int_equal(rv_draws_gather(draws, N, 0, 2, numbers, &err), RV_FAILED_PRECONDITION);
  assert_int_equal(rv_draws_gather(draws, N, 2, 3, numbers, &err), RV_FAILED_PRECONDITION);
  rv_draws_release(draws, N);
  free(numbers);
  free(pairs);
}

static void over_other_chunks_a_trajectory_reads_their_rows(void **state)
{
  fixture *f = *state;
  rv_slice slices[] = {{f->chunks[0], 0, 98, 2}, {f->chunks[1], 0, 3, 1}, {f->chunks[0], 1, 7, 1}};
  const uint32_t num_slices[] = {2, 1}, chunk_of[] = {0, 1, 0};
  rv_trajectory *first = build(f, slices, num_slices, (bool[]){false, true}, 2), *spare = NULL;
  for (int round = 0; round < 3; round++) {
    rv_chunk *chunks[] = {f->chunks[round], f->chunks[(round + 1) % 3]};
    rv_trajectory *other;
    rv_error err;
    must(rv_trajectory_renew(first, chunk_of, chunks, NULL, spare, &other, &err), &err);
    if (spare != NULL) assert_ptr_equal(other, spare);
    assert_ptr_equal(other->layout, first->layout);
    assert_int_equal(other->num_chunks, 2);
    assert_ptr_equal(other->chunks[0], chunks[0]);
    int64_t numbers[3];
    float pair[2];
    rv_draw draw = {.trajectory = rv_trajectory_ref(other)};
    must(rv_draw_copy_column(&draw, 0, numbers, &err), &err);
    must(rv_draw_copy_column(&draw, 1, pair, &err), &err);
    int64_t base = 1000 * round, next = 1000 * ((round + 1) % 3);
    assert_true(numbers[0] == base + 98 && numbers[1] == base + 99 && numbers[2] == next + 3);
    assert_true(pair[0] == (float)(base + 7) && pair[1] == -(float)(base + 7));
    rv_draw_release(&draw);
    spare = rv_trajectory_empty(other);
    assert_ptr_equal(spare, other);
  }
  rv_trajectory_unref(spare);
  rv_trajectory_ref(first);
  assert_null(rv_trajectory_empty(first)); /* somebody else has it */
  rv_trajectory_unref(first);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(slices_are_read_one_after_another_in_their_order, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_cannot_be_read_is_refused_with_its_column, set_up, tear_down),
      cmocka_unit_test_setup_teardown(equal_layouts_are_the_same_pointer, set_up, tear_down),
      cmocka_unit_test_setup_teardown(many_chunks_are_listed_once_each_in_order, set_up, tear_down),
      cmocka_unit_test_setup_teardown(over_other_chunks_a_trajectory_reads_their_rows, set_up, tear_down),
      cmocka_unit_test_setup_teardown(of_each_chunk_it_is_known_which_rows_are_reached, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_template_reads_what_its_trajectory_read, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_batch_is_gathered_item_by_item_and_padded, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
