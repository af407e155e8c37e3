#include "store/row_shuffle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "store/row_plan.h"

enum { SEED = 20261122, TENSORS = 6, ROWS = 200, ITEMS = 40 };

/* Tensors that stand beside each other in rows, and items that have some of them. */
typedef struct rv_case {
  rv_random random;
  uint32_t num_tensors;
  size_t offset[TENSORS], row_bytes[TENSORS], all_bytes;
  rv_row_plan plan;
  int64_t reach; /* rows from an item's first one on, of which it has some */
  uint8_t *rows; /* not a byte more than they have */
  size_t num_items;
  const uint8_t *items[ITEMS];
} rv_case;

static uint32_t below(rv_case *c, uint32_t n)
{
  return rv_random_below(&c->random, n);
}

static void lay_tensors(rv_case *c)
{
  static const size_t sizes[] = {0, 1, 2, 3, 4, 4, 8, 8, 12, 16, 16, 24, 40};
  c->num_tensors = 1 + below(c, TENSORS);
  c->all_bytes = 0;
  for (uint32_t t = 0; t < c->num_tensors; t++) {
    c->row_bytes[t] = sizes[below(c, sizeof sizes / sizeof *sizes)];
    c->offset[t] = c->all_bytes;
    c->all_bytes += c->row_bytes[t];
  }
  if (c->all_bytes == 0) c->all_bytes = c->row_bytes[0] = 1;
  c->plan.stride = (c->all_bytes + 7) / 8 * 8 + below(c, 2) * 8;
  c->plan.beside_bytes = c->all_bytes;
}

/* Mostly all tensors in the order in which they lie, one row or one run of rows each; now and then something else. */
static void choose_columns(rv_case *c)
{
  bool odd = below(c, 4) == 0;
  int64_t length = below(c, 2) == 0 ? 1 : 1 + below(c, 40), row = below(c, 3);
  c->plan.any = true;
  c->reach = 0;
  c->plan.num_columns = odd ? 1 + below(c, TENSORS) : c->num_tensors;
  for (uint32_t i = 0; i < c->plan.num_columns; i++) {
    uint32_t t = odd ? below(c, c->num_tensors) : i;
    ptrdiff_t offset = (ptrdiff_t)c->offset[t] - (ptrdiff_t)c->offset[0], at = row + (odd && below(c, 8) == 0 ? 1 : 0);
    c->plan.column[i].planned = !odd || below(c, 8) > 0;
    c->plan.column[i].tensor = t;
    c->plan.column[i].offset = offset;
    c->plan.column[i].delta = offset + at * (ptrdiff_t)c->plan.stride;
    c->plan.column[i].row_bytes = c->row_bytes[t];
    c->plan.column[i].length = odd && length > 1 ? length + below(c, 2) : length;
    if (at + c->plan.column[i].length > c->reach) c->reach = at + c->plan.column[i].length;
  }
}

static void fill_rows(rv_case *c)
{
  const size_t bytes = (ROWS - 1) * c->plan.stride + c->all_bytes;
  c->rows = malloc(bytes);
  assert_non_null(c->rows);
  for (size_t i = 0; i < bytes; i++) c->rows[i] = (uint8_t)below(c, 256);
  c->num_items = 1 + below(c, ITEMS);
  const uint32_t last = (uint32_t)(ROWS - c->reach);
  for (size_t i = 0; i < c->num_items; i++) c->items[i] = c->rows + below(c, last + 1) * c->plan.stride;
  c->items[below(c, (uint32_t)c->num_items)] = c->rows + last * c->plan.stride;
}

static void check_column(const rv_case *c, uint32_t i, const uint8_t *out)
{
  const size_t bytes = c->plan.column[i].row_bytes, length = (size_t)c->plan.column[i].length;
  for (size_t item = 0; item < c->num_items; item++)
    for (size_t row = 0; row < length; row++)
      assert_memory_equal(out + (item * length + row) * bytes,
                          c->items[item] + c->plan.column[i].delta + (ptrdiff_t)(row * c->plan.stride), bytes);
}

/* Each array is as long as it must be, so that whoever writes beyond it is seen to. */
static void check_copy(const rv_case *c, const rv_row_shuffle *shuffle)
{
  uint8_t *outs[RV_PLAN_COLUMNS] = {NULL};
  const uint32_t left_out = c->num_items % 3 == 0 ? 0 : RV_PLAN_COLUMNS;
  for (uint32_t i = 0; i < c->plan.num_columns; i++) {
    size_t bytes = c->num_items * c->plan.column[i].row_bytes * (size_t)c->plan.column[i].length;
    if (c->plan.column[i].planned && i != left_out) outs[i] = malloc(bytes + 1);
    if (outs[i] != NULL) outs[i][bytes] = 0xA5;
  }
  rv_row_plan_copy(&c->plan, shuffle, c->items, c->num_items, outs);
  for (uint32_t i = 0; i < c->plan.num_columns; i++) {
    if (outs[i] == NULL) continue;
    check_column(c, i, outs[i]);
    assert_int_equal(outs[i][c->num_items * c->plan.column[i].row_bytes * (size_t)c->plan.column[i].length], 0xA5);
    free(outs[i]);
  }
}

static void rows_taken_apart_are_those_copied_piece_by_piece(void **state)
{
  (void)state;
  enum { CASES = 3000 };
  size_t taken = 0, together[9] = {0}; /* by how many groups were taken apart together */
  rv_case c;
  rv_random_init(&c.random, SEED);
  for (int i = 0; i < CASES; i++) {
    rv_row_shuffle shuffle;
    lay_tensors(&c);
    choose_columns(&c);
    fill_rows(&c);
    rv_row_shuffle_make(&shuffle, &c.plan);
    if (shuffle.num_pieces > 0) {
      taken++;
      together[shuffle.groups]++;
    }
    check_copy(&c, &shuffle);
    shuffle.num_pieces = 0;
    check_copy(&c, &shuffle);
    free(c.rows);
  }
  print_message("seed %d: of %d, %zu were taken apart\n", SEED, CASES, taken);
  if (!rv_row_shuffle_here()) return;
  assert_true(taken > CASES / 50);
  for (size_t groups = 1; groups <= 8; groups *= 2) assert_true(together[groups] > 0);
}

/* A plan of columns that each lie behind the one before, and after so many bytes of each row. */
static rv_row_plan plan_of(const size_t *row_bytes, uint32_t num_columns, size_t before, int64_t length)
{
  rv_row_plan plan = {.any = true, .num_columns = num_columns};
  size_t at = before;
  for (uint32_t i = 0; i < num_columns; i++) {
    plan.column[i].planned = true;
    plan.column[i].tensor = i + (before > 0 ? 1 : 0);
    plan.column[i].offset = plan.column[i].delta = (ptrdiff_t)(at - before);
    plan.column[i].row_bytes = row_bytes[i];
    plan.column[i].length = length;
    at += row_bytes[i];
  }
  plan.stride = (at + 7) / 8 * 8;
  plan.beside_bytes = at;
  return plan;
}

static const size_t STEP[] = {8, 16, 4, 1};

static void small_sequences_are_taken_apart(void **state)
{
  (void)state;
  rv_row_shuffle shuffle;
  rv_row_plan plan = plan_of(STEP, 4, 0, 32);
  rv_row_shuffle_make(&shuffle, &plan);
  assert_int_equal(shuffle.num_pieces, rv_row_shuffle_here() ? 4 : 0);
}

/* Groups of four rows here; where few are taken apart together, or many twice, rows are copied piece by piece. */
static void as_many_groups_are_taken_apart_together_as_make_an_item_cheapest(void **state)
{
  (void)state;
  static const struct {
    int64_t length;
    size_t groups; /* 0: piece by piece */
  } cases[] = {{1, 0}, {4, 0}, {7, 0}, {8, 2}, {11, 0}, {16, 4}, {31, 4}, {32, 8}, {48, 8}, {64, 8}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases && rv_row_shuffle_here(); i++) {
    rv_row_shuffle shuffle;
    rv_row_plan plan = plan_of(STEP, 4, 0, cases[i].length);
    rv_row_shuffle_make(&shuffle, &plan);
    assert_int_equal(shuffle.num_pieces, cases[i].groups > 0 ? 4 : 0);
    if (shuffle.num_pieces > 0) assert_int_equal(shuffle.groups, cases[i].groups);
  }
}

/* Three rows would fit, but make two pieces of each column. */
static void rows_are_grouped_so_that_columns_are_stored_whole(void **state)
{
  (void)state;
  static const size_t step[] = {20, 8, 4, 1};
  rv_row_shuffle shuffle;
  rv_row_plan plan = plan_of(step, 4, 0, 32);
  rv_row_shuffle_make(&shuffle, &plan);
  if (!rv_row_shuffle_here()) return;
  assert_int_equal(shuffle.num_pieces, 5);
  assert_int_equal(shuffle.rows, 2);
  assert_int_equal(shuffle.groups, 8);
}

/* A column that items do not have may be written while they are read. */
static void rows_with_other_columns_between_are_not_loaded_whole(void **state)
{
  (void)state;
  rv_row_shuffle shuffle;
  rv_row_plan plan = plan_of(STEP, 4, 8, 32);
  rv_row_shuffle_make(&shuffle, &plan);
  assert_int_equal(shuffle.num_pieces, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_taken_apart_are_those_copied_piece_by_piece),
                                     cmocka_unit_test(small_sequences_are_taken_apart),
                                     cmocka_unit_test(as_many_groups_are_taken_apart_together_as_make_an_item_cheapest),
                                     cmocka_unit_test(rows_are_grouped_so_that_columns_are_stored_whole),
                                     cmocka_unit_test(rows_with_other_columns_between_are_not_loaded_whole)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
