/* Patterns are made whole or not at all, whichever allocation fails; and steps make none. */
#include "base/failing_testing.h"
#include "reverie/patterns.h"

static rv_code make(rv_patterns **out, rv_error *err)
{
  const rv_pattern_node nodes[] = {rv_pattern_rows(0, -5, 0, 2), rv_pattern_row(1, -3)};
  const char *const names[] = {"x", "y"};
  const rv_condition condition = {.of = RV_CONDITION_OF_COLUMN, .column = 2, .test = RV_CONDITION_TEST_GE, .value = 1};
  const rv_pattern_config config = {.size = sizeof config,
                                    .table = "replay",
                                    .nodes = nodes,
                                    .num_nodes = 2,
                                    .conditions = &condition,
                                    .num_conditions = 1,
                                    .priority = {.kind = RV_PRIORITY_TD_ERROR, .max_weight = 0.9, .column = 1},
                                    .names = names};
  return rv_patterns_new(&config, 1, out, err);
}

static void patterns_are_made_whole_or_not_at_all(void **state)
{
  (void)state;
  for (long n = 0;; n++) {
    rv_patterns *patterns = NULL;
    rv_error err;
    until_failure = n;
    rv_code code = make(&patterns, &err);
    bool failed = until_failure < 0;
    until_failure = -1;
    if (code == RV_OK) {
      assert_false(failed);
      rv_patterns_free(patterns);
      assert_in_range(n, 8, 100);
      return;
    }
    assert_int_equal(code, RV_RESOURCE_EXHAUSTED);
    assert_null(patterns);
  }
}

static rv_code count(void *context, const rv_pattern_item *item, rv_error *err)
{
  (void)err;
  assert_int_equal(item->num_columns, 2);
  ++*(int *)context;
  return RV_OK;
}

static void steps_allocate_nothing(void **state)
{
  (void)state;
  rv_patterns *patterns = NULL;
  assert_int_equal(make(&patterns, NULL), RV_OK);
  int items = 0;
  for (int32_t i = 0; i < 100; i++) {
    const float error = (float)i;
    const rv_cell cells[] = {{.column = 0, .value = {.dtype = RV_INT32, .data = &i}},
                             {.column = 1, .value = {.dtype = RV_FLOAT32, .data = &error}},
                             {.column = 2, .value = {.dtype = RV_INT32, .data = &i}}};
    until_failure = 0;
    rv_code code = rv_patterns_append(patterns, cells, 3, false, count, &items, NULL);
    if (i % 40 == 39) code = rv_patterns_end_episode(patterns, true, count, &items, NULL);
    assert_int_equal(until_failure, 0); /* nobody asked */
    until_failure = -1;
    assert_int_equal(code, RV_OK);
  }
  assert_int_equal(items, 36 + 36 + 16);
  rv_patterns_free(patterns);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(patterns_are_made_whole_or_not_at_all),
                                     cmocka_unit_test(steps_allocate_nothing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
