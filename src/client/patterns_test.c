/* Patterns that cannot be, each with its sentence; and conditions that no value meets. What patterns do is in
 * tests/c/patterns_model_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/random.h"
#include "reverie/patterns.h"

static const rv_priority_rule one = {.kind = RV_PRIORITY_CONSTANT, .constant = 1};

static rv_code make(const rv_pattern_config *configs, size_t n, rv_error *err)
{
  rv_patterns *patterns = NULL;
  rv_code code = rv_patterns_new(configs, n, &patterns, err);
  if (code == RV_OK) rv_patterns_free(patterns);
  return code;
}

static rv_pattern_config config_of(const rv_pattern_node *nodes, size_t num_nodes)
{
  return (rv_pattern_config){
      .size = sizeof(rv_pattern_config), .table = "replay", .nodes = nodes, .num_nodes = num_nodes, .priority = one};
}

static void assert_refused(const rv_pattern_config *config, const char *text)
{
  static const rv_pattern_node newest = {.has_stop = true, .stop = -1};
  rv_pattern_config configs[2] = {config_of(&newest, 1), *config};
  rv_error err = {.message = ""};
  assert_int_equal(make(configs, 2, &err), RV_INVALID_ARGUMENT);
  if (strstr(err.message, "Invalid configuration at position 1") == NULL || strstr(err.message, text) == NULL)
    fail_msg("\"%s\" does not say \"%s\"", err.message, text);
}

static void assert_node_refused(rv_pattern_node node, const char *text)
{
  rv_pattern_config config = config_of(&node, 1);
  assert_refused(&config, text);
}

static void rows_that_cannot_be_are_refused(void **state)
{
  (void)state;
  assert_node_refused((rv_pattern_node){.column = 0}, "neither start nor stop");
  assert_node_refused((rv_pattern_node){.has_start = true, .start = 0}, "start 0");
  assert_node_refused((rv_pattern_node){.has_start = true, .start = 3}, "must be negative");
  assert_node_refused((rv_pattern_node){.has_stop = true, .stop = 2}, "must not be positive");
  assert_node_refused(rv_pattern_row(0, 0), "row 0");
  assert_node_refused(rv_pattern_rows(0, -2, -2, 1), "not before its stop -2");
  assert_node_refused(rv_pattern_rows(0, -3, 0, 0), "step 0");
  assert_node_refused(rv_pattern_rows(0, -3, 0, -1), "must be positive");
  assert_node_refused((rv_pattern_node){.has_stop = true, .stop = -1, .has_step = true, .step = 2}, "no start");
  assert_node_refused(rv_pattern_row(-1, -1), "refers to column -1");
  assert_node_refused(rv_pattern_row(65535, -1), "refers to column 65535");
  assert_node_refused(rv_pattern_rows(0, INT32_MIN, 0, 1), "reaches 2147483648 rows back");
  assert_node_refused(rv_pattern_row(0, -RV_PATTERN_MAX_ROWS - 1), "at most 16777216");
}

static void incomplete_configs_are_refused(void **state)
{
  (void)state;
  const rv_pattern_node node = rv_pattern_row(3, -1);
  rv_pattern_config config = config_of(NULL, 0);
  assert_refused(&config, "`flat` must not be empty");
  config = config_of(&node, 1);
  config.table = "";
  assert_refused(&config, "`table` must not be empty");
  config = config_of(&node, 1);
  config.priority.kind = RV_PRIORITY_NONE;
  assert_refused(&config, "Priority function");
  config.priority = (rv_priority_rule){.kind = RV_PRIORITY_CONSTANT, .constant = NAN};
  assert_refused(&config, "nan");
  config.priority = (rv_priority_rule){.kind = RV_PRIORITY_TD_ERROR, .max_weight = 0.9, .column = 2};
  assert_refused(&config, "TD error of column 2, to which no node refers");
  rv_error err = {.message = ""};
  assert_int_equal(make(NULL, 0, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "At least one config"));
  config = config_of(&node, 1);
  config.size = 8;
  assert_int_equal(make(&config, 1, &err), RV_INVALID_ARGUMENT);
}

static void assert_conditions(const rv_condition *conditions, size_t n, const char *refusal)
{
  static const rv_pattern_node last_three = {.has_start = true, .start = -3};
  rv_pattern_config config = config_of(&last_three, 1);
  config.conditions = conditions;
  config.num_conditions = n;
  if (refusal != NULL) {
    assert_refused(&config, refusal);
    return;
  }
  rv_error err = {.message = ""};
  if (make(&config, 1, &err) != RV_OK) fail_msg("%s", err.message);
}

#define STEP RV_CONDITION_OF_STEP_INDEX
#define EQ RV_CONDITION_TEST_EQ
#define GE RV_CONDITION_TEST_GE
#define MOD RV_CONDITION_TEST_MOD_EQ

static void incomplete_conditions_are_refused(void **state)
{
  (void)state;
  assert_conditions(&(rv_condition){.test = EQ, .value = 1}, 1, "condition 0 is on nothing");
  assert_conditions(&(rv_condition){.of = STEP}, 1, "condition 0 tests nothing");
  assert_conditions(&(rv_condition){.of = STEP, .test = MOD, .mod = 0}, 1, "mod must be positive");
  assert_conditions(&(rv_condition){.of = STEP, .test = MOD, .mod = 3, .value = -1}, 1, "must not be negative");
  assert_conditions(&(rv_condition){.of = RV_CONDITION_OF_END_EPISODE, .test = EQ, .value = 0}, 1, "only be tested for eq 1");
  assert_conditions(&(rv_condition){.of = RV_CONDITION_OF_END_EPISODE, .test = EQ, .value = 1, .inverse = true}, 1,
                    "not inverted");
  assert_conditions(&(rv_condition){.of = RV_CONDITION_OF_COLUMN, .column = -2, .test = EQ}, 1,
                    "condition 0 refers to column -2");
}

static void conditions_that_no_value_meets_are_refused(void **state)
{
  (void)state;
  const rv_condition between[] = {{.of = STEP, .test = GE, .value = 5}, {.of = STEP, .test = GE, .value = 5, .inverse = true}};
  assert_conditions(between, 2, "no value of the step index");
  assert_conditions(&(rv_condition){.of = STEP, .test = GE, .value = 0, .inverse = true}, 1, "contradicts itself");
  const rv_condition remainders[] = {{.of = STEP, .test = MOD, .mod = 4, .value = 1},
                                     {.of = STEP, .test = MOD, .mod = 6, .value = 2}};
  assert_conditions(remainders, 2, "no value of the step index");
  assert_conditions(&(rv_condition){.of = STEP, .test = MOD, .mod = 3, .value = 3}, 1, "contradicts itself");
  assert_conditions(&(rv_condition){.of = RV_CONDITION_OF_STEPS_SINCE_APPLIED, .test = EQ, .value = 0}, 1,
                    "steps since it was applied");
  assert_conditions(&(rv_condition){.of = RV_CONDITION_OF_BUFFER_LENGTH, .test = GE, .value = 4}, 1, "can never hold");
  assert_conditions(&(rv_condition){.of = RV_CONDITION_OF_BUFFER_LENGTH, .test = EQ, .value = 2}, 1, "reaches 3 rows back");
  const rv_condition values[] = {{.of = RV_CONDITION_OF_COLUMN, .column = 7, .test = GE, .value = 2},
                                 {.of = RV_CONDITION_OF_COLUMN, .column = 7, .test = EQ, .value = 1}};
  assert_conditions(values, 2, "the value of column 7");
}

static void conditions_that_some_value_meets_are_taken(void **state)
{
  (void)state;
  const rv_condition remainders[] = {{.of = STEP, .test = MOD, .mod = 4, .value = 1},
                                     {.of = STEP, .test = MOD, .mod = 9, .value = 2}};
  assert_conditions(remainders, 2, NULL);
  const rv_condition late[] = {{.of = STEP, .test = GE, .value = INT32_MAX},
                               {.of = STEP, .test = EQ, .value = INT32_MAX, .inverse = true}};
  assert_conditions(late, 2, NULL);
  const rv_condition large[] = {{.of = STEP, .test = MOD, .mod = INT32_MAX, .value = 1},
                                {.of = STEP, .test = MOD, .mod = INT32_MAX - 1, .value = 2}};
  assert_conditions(large, 2, NULL);
  assert_conditions(&(rv_condition){.of = RV_CONDITION_OF_COLUMN, .test = GE, .value = -5, .inverse = true}, 1, NULL);
  assert_conditions(&(rv_condition){.of = RV_CONDITION_OF_COLUMN, .test = EQ, .value = INT32_MIN}, 1, NULL);
  assert_conditions(&(rv_condition){.of = RV_CONDITION_OF_BUFFER_LENGTH, .test = EQ, .value = 3}, 1, NULL);
  const rv_condition apart[] = {{.of = RV_CONDITION_OF_COLUMN, .column = 1, .test = EQ, .value = 1},
                                {.of = RV_CONDITION_OF_COLUMN, .column = 2, .test = EQ, .value = 2}};
  assert_conditions(apart, 2, NULL);
}

/* Numbers from all over the int32s: no config crashes, whatever it says. */
static void configs_of_any_numbers_are_taken_or_refused(void **state)
{
  (void)state;
  static const int32_t numbers[] = {INT32_MIN, INT32_MIN + 1, -70000,        -9,       -3, -2, -1, 0, 1, 2, 3, 7,
                                    65534,     65535,         INT32_MAX - 1, INT32_MAX};
  rv_random random;
  rv_random_init(&random, 7);
  print_message("seed 7\n");
#define ANY numbers[rv_random_below(&random, sizeof numbers / sizeof *numbers)]
#define COIN (rv_random_below(&random, 2) == 0)
  size_t taken = 0;
  for (int i = 0; i < 30000; i++) {
    rv_pattern_node nodes[2];
    rv_condition conditions[2];
    for (int j = 0; j < 2; j++) {
      nodes[j] = (rv_pattern_node){.column = COIN ? 0 : ANY, .has_start = COIN, .has_stop = COIN, .has_step = COIN};
      nodes[j].start = ANY;
      nodes[j].stop = ANY;
      nodes[j].step = ANY;
      conditions[j] = (rv_condition){.of = (rv_condition_of)rv_random_below(&random, 7),
                                     .column = ANY,
                                     .test = (rv_condition_test)rv_random_below(&random, 5),
                                     .value = ANY,
                                     .mod = ANY,
                                     .inverse = COIN};
    }
    rv_pattern_config config = config_of(nodes, 1 + rv_random_below(&random, 2));
    config.conditions = conditions;
    config.num_conditions = rv_random_below(&random, 3);
    if (COIN) config.priority = (rv_priority_rule){.kind = (rv_priority_kind)rv_random_below(&random, 4), .column = ANY};
    rv_error err = {.message = ""};
    rv_code code = make(&config, 1, &err);
    assert_true(code == RV_OK || (code == RV_INVALID_ARGUMENT && err.message[0] != '\0'));
    taken += code == RV_OK;
  }
  assert_true(taken > 100);
}

static void the_window_is_the_oldest_reference(void **state)
{
  (void)state;
  const rv_pattern_node few[] = {rv_pattern_row(0, -1), rv_pattern_rows(2, -4, -1, 2)}, many[] = {rv_pattern_rows(2, -9, -5, 1)};
  rv_pattern_config configs[2] = {config_of(few, 2), config_of(many, 1)};
  rv_condition condition = {.of = RV_CONDITION_OF_COLUMN, .column = 3, .test = EQ, .value = 1};
  configs[1].conditions = &condition;
  configs[1].num_conditions = 1;
  rv_patterns *patterns;
  assert_int_equal(rv_patterns_new(configs, 2, &patterns, NULL), RV_OK);
  assert_int_equal(rv_patterns_num_configs(patterns), 2);
  assert_int_equal(rv_patterns_window(patterns), 9);
  const uint32_t windows[5] = {1, 0, 9, 0, 0};
  for (uint32_t i = 0; i < 5; i++) assert_int_equal(rv_patterns_column_window(patterns, i), windows[i]);
  rv_error err = {.message = ""};
  assert_int_equal(rv_patterns_check_columns(patterns, 4, &err), RV_OK);
  assert_int_equal(rv_patterns_check_columns(patterns, 3, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "condition 0 refers to column 3, but steps have 3"));
  assert_int_equal(rv_patterns_check_columns(patterns, 2, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "at position 0 (table \"replay\"): node 1 refers to column 2, but steps have 2"));
  rv_patterns_free(patterns);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_that_cannot_be_are_refused),
      cmocka_unit_test(incomplete_configs_are_refused),
      cmocka_unit_test(incomplete_conditions_are_refused),
      cmocka_unit_test(conditions_that_no_value_meets_are_refused),
      cmocka_unit_test(conditions_that_some_value_meets_are_taken),
      cmocka_unit_test(configs_of_any_numbers_are_taken_or_refused),
      cmocka_unit_test(the_window_is_the_oldest_reference),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
