#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/draw_sizes.h"

enum { ROOM = 16, UNTOUCHED = -7 };

typedef struct fixture {
  int64_t each[ROOM];
  rv_draw_sizes sizes;
} fixture;

static void set_up(fixture *f, bool always)
{
  for (size_t i = 0; i < ROOM; i++) f->each[i] = UNTOUCHED;
  f->sizes = (rv_draw_sizes){.each = f->each, .always = always};
}

static void note(rv_draw_sizes *sizes, size_t first, const int64_t *given, size_t n)
{
  rv_draw draws[ROOM];
  for (size_t i = 0; i < n; i++) draws[i] = (rv_draw){.table_size = given[i]};
  rv_draw_sizes_note(sizes, first, draws, n);
}

static void expect(const fixture *f, const int64_t *sizes, size_t n)
{
  for (size_t i = 0; i < ROOM; i++) assert_int_equal(f->each[i], i < n ? sizes[i] : UNTOUCHED);
}

static void of_draws_at_one_size_nothing_is_written(void **state)
{
  (void)state;
  fixture f;
  set_up(&f, false);
  rv_draw_sizes_note_one(&f.sizes, 0, 3, 9);
  note(&f.sizes, 3, (int64_t[]){9, 9}, 2);
  rv_draw_sizes_note_one(&f.sizes, 5, 4, 9);
  assert_false(f.sizes.differ);
  assert_int_equal(f.sizes.last, 9);
  expect(&f, NULL, 0);
}

static void all_are_written_from_the_first_one_that_differs_on(void **state)
{
  (void)state;
  fixture f;
  set_up(&f, false);
  rv_draw_sizes_note_one(&f.sizes, 0, 3, 9);
  note(&f.sizes, 3, (int64_t[]){9, 8, 9}, 3);
  assert_true(f.sizes.differ);
  assert_int_equal(f.sizes.last, 9);
  rv_draw_sizes_note_one(&f.sizes, 6, 2, 9);
  expect(&f, (int64_t[]){9, 9, 9, 9, 8, 9, 9, 9}, 8);
  set_up(&f, false);
  note(&f.sizes, 0, (int64_t[]){4, 4}, 2);
  rv_draw_sizes_note_one(&f.sizes, 2, 2, 5);
  assert_true(f.sizes.differ);
  assert_int_equal(f.sizes.last, 5);
  expect(&f, (int64_t[]){4, 4, 5, 5}, 4);
}

static void the_first_draws_begin_anew(void **state)
{
  (void)state;
  fixture f;
  set_up(&f, false);
  note(&f.sizes, 0, (int64_t[]){2, 1}, 2);
  assert_true(f.sizes.differ);
  rv_draw_sizes_note_one(&f.sizes, 0, 2, 6);
  assert_false(f.sizes.differ);
  note(&f.sizes, 0, (int64_t[]){3, 3}, 2);
  assert_false(f.sizes.differ);
  assert_int_equal(f.sizes.last, 3);
  note(&f.sizes, 2, NULL, 0);
  assert_int_equal(f.sizes.last, 3);
  rv_draw_sizes_begin(&f.sizes);
  assert_int_equal(f.sizes.last, 0);
}

static void who_wants_them_always_gets_them(void **state)
{
  (void)state;
  fixture f;
  set_up(&f, true);
  note(&f.sizes, 0, (int64_t[]){9, 9}, 2);
  rv_draw_sizes_note_one(&f.sizes, 2, 2, 9);
  assert_false(f.sizes.differ);
  expect(&f, (int64_t[]){9, 9, 9, 9}, 4);
}

static void that_they_differ_is_known_without_an_array(void **state)
{
  (void)state;
  rv_draw_sizes sizes = {.each = NULL};
  note(&sizes, 0, (int64_t[]){2, 1}, 2);
  rv_draw_sizes_note_one(&sizes, 2, 3, 1);
  assert_true(sizes.differ);
  assert_int_equal(sizes.last, 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(of_draws_at_one_size_nothing_is_written),
      cmocka_unit_test(all_are_written_from_the_first_one_that_differs_on),
      cmocka_unit_test(the_first_draws_begin_anew),
      cmocka_unit_test(who_wants_them_always_gets_them),
      cmocka_unit_test(that_they_differ_is_known_without_an_array),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
