#include "persist/journal_writers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { WRITERS = 200 };

/* A number alone is a run. */
static void add_runs(rv_journal_writers *writers, uint64_t first, size_t n)
{
  for (uint64_t i = 0; i < WRITERS; i++) {
    const uint64_t id[2] = {i, 7 * i};
    rv_journal_writer *writer = rv_journal_writers_get(writers, id);
    assert_non_null(writer);
    for (uint64_t k = 0; k < n; k++) assert_int_equal(rv_done_set_add(&writer->done, first + 2 * k, NULL), RV_OK);
  }
}

static size_t runs_of(const rv_journal_writers *writers)
{
  size_t runs = 0;
  for (const rv_journal_writer *writer = NULL; (writer = rv_journal_writers_next(writers, writer)) != NULL;)
    runs += writer->done.count;
  return runs;
}

/* A recovery's writers become its journal's, and what the recovery had is gone by then. */
static void writers_that_were_moved_count_where_they_are(void **state)
{
  (void)state;
  rv_journal_writers *from = malloc(sizeof *from), to;
  assert_non_null(from);
  rv_journal_writers_init(from, 5);
  add_runs(from, 1, 10);
  rv_journal_writers_move(&to, from);
  assert_int_equal(from->count, 0);
  assert_int_equal(from->runs, 0);
  rv_journal_writers_fini(from);
  free(from);
  assert_int_equal(to.count, WRITERS);
  assert_int_equal(to.runs, 10 * WRITERS);
  add_runs(&to, 1001, 5);
  assert_int_equal(to.count, WRITERS);
  assert_int_equal(to.runs, 15 * WRITERS);
  assert_int_equal(to.runs, runs_of(&to));
  const uint64_t id[2] = {3, 21};
  rv_journal_writer_lose(rv_journal_writers_get(&to, id), true);
  rv_journal_writers_drop_over(&to);
  assert_int_equal(to.count, WRITERS - 1);
  assert_int_equal(to.runs, runs_of(&to));
  rv_journal_writers_fini(&to);
}

static void none_are_moved_too(void **state)
{
  (void)state;
  rv_journal_writers from, to;
  rv_journal_writers_init(&from, 1);
  rv_journal_writers_move(&to, &from);
  assert_int_equal(to.count, 0);
  rv_journal_writers_fini(&to);
  rv_journal_writers_fini(&from);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(writers_that_were_moved_count_where_they_are),
      cmocka_unit_test(none_are_moved_too),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
