/* Random patterns over random streams of steps, against a plain model: which items are made, of which rows, with what
 * priority. */
#include "support/pattern_model.h"

typedef struct seen {
  pattern_model model;
  size_t num_items;
} seen;

static rv_code see(void *context, const rv_pattern_item *item, rv_error *err)
{
  (void)err;
  seen *s = context;
  assert_true(s->num_items < s->model.num_items);
  const model_item *expected = &s->model.items[s->num_items++];
  assert_int_equal(item->config, expected->config);
  const rv_pattern_config *config = &s->model.configs[item->config];
  assert_string_equal(item->table, config->table);
  assert_true(item->priority == expected->priority);
  assert_int_equal(item->num_columns, config->num_nodes);
  for (size_t j = 0; j < item->num_columns; j++) {
    assert_int_equal(item->columns[j].squeeze, !config->nodes[j].has_start);
    const rv_run *run = item->columns[j].runs;
    assert_int_equal(item->columns[j].num_runs, 1);
    assert_int_equal(run->column, config->nodes[j].column);
    assert_int_equal(run->count, expected->lengths[j]);
    for (uint32_t k = 0; k < run->count; k++)
      assert_true(s->model.value[run->first + run->stride * k][run->column] == expected->values[j][k]);
  }
  return RV_OK;
}

/* New patterns, or NULL where one of them can never be applied; which the model agrees with. */
static rv_patterns *make_patterns(pattern_model *m)
{
  rv_patterns *patterns = NULL;
  rv_error err;
  rv_code code = rv_patterns_new(m->configs, m->num_configs, &patterns, &err);
  bool possible = true;
  for (size_t i = 0; i < m->num_configs; i++) possible = possible && model_possible(m, i);
  if (possible && code != RV_OK) fail_msg("refused although all conditions can hold: %s", err.message);
  if (!possible) {
    assert_int_equal(code, RV_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "Invalid configuration at position "));
    return NULL;
  }
  assert_int_equal(rv_patterns_window(patterns), model_window(m));
  return patterns;
}

/* Returns how many items were made. */
static size_t run(uint64_t seed)
{
  seen *s = calloc(1, sizeof *s);
  assert_non_null(s);
  pattern_model *m = &s->model;
  rv_random_init(&m->random, seed);
  model_choose(m);
  rv_patterns *patterns = make_patterns(m);
  for (int i = 0; patterns != NULL && i < 500; i++) {
    if (model_below(m, 15) == 0) {
      bool clear = model_below(m, 2) == 0;
      model_end_episode(m, clear);
      OK(rv_patterns_end_episode(patterns, clear, see, s, error));
    } else {
      model_step step;
      model_append(m, &step);
      OK(rv_patterns_append(patterns, step.cells, step.num_cells, step.partial, see, s, error));
    }
    assert_int_equal(s->num_items, m->num_items);
    assert_int_equal(rv_patterns_num_rows(patterns), m->rows);
    assert_int_equal(rv_patterns_step_is_open(patterns), m->open);
  }
  size_t num_items = s->num_items;
  rv_patterns_free(patterns);
  free(s);
  return num_items;
}

static void patterns_make_the_items_of_the_model(void **state)
{
  (void)state;
  const char *given = getenv("RV_TEST_SEED");
  uint64_t first = given != NULL ? strtoull(given, NULL, 10) : 1, last = given != NULL ? first : 400;
  print_message("seeds %llu to %llu\n", (unsigned long long)first, (unsigned long long)last);
  size_t items = 0;
  for (uint64_t seed = first; seed <= last; seed++) items += run(seed);
  print_message("%zu items\n", items);
  assert_true(given != NULL || items > 10000);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(patterns_make_the_items_of_the_model)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
