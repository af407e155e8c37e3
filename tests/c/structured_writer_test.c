/* What a structured writer promises beyond its items (structured_model_test.c): errors, bounds, timeouts, memory. */
#include "support/place.h"

typedef struct setup {
  test_place place;
  rv_structured_writer *writer;
} setup;

static const rv_wait shortly = {.timeout_ms = 20};
static const rv_wait at_once = {.timeout_ms = 0};
static const rv_priority_rule one = {.kind = RV_PRIORITY_CONSTANT, .constant = 1};

static rv_pattern_config config_of(const char *table, const rv_pattern_node *nodes, size_t num_nodes)
{
  return (rv_pattern_config){
      .size = sizeof(rv_pattern_config), .table = table, .nodes = nodes, .num_nodes = num_nodes, .priority = one};
}

static void open_writer(setup *s, bool remote, rv_structured_writer_config config)
{
  rv_table_config tables[3] = {place_queue_like("a", 10000), place_queue("queue", 2), place_queue_like("per", 10000)};
  tables[2].sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
  place_open(&s->place, remote, tables, 3);
  config.size = sizeof config;
  OK(rv_structured_writer_new(s->place.client, &config, &s->writer, error));
}

static void close_writer(setup *s)
{
  rv_structured_writer_free(s->writer);
  place_close(&s->place);
}

/* A step of an int32 in column 0. */
static rv_code append(setup *s, int32_t number, bool partial, rv_error *err)
{
  rv_cell cell = {.column = 0, .value = {.dtype = RV_INT32, .data = &number}};
  return rv_structured_writer_append(s->writer, &cell, 1, partial, err);
}

static rv_code append_error(setup *s, float td_error, rv_error *err)
{
  rv_cell cell = {.column = 0, .value = {.dtype = RV_FLOAT32, .data = &td_error}};
  return rv_structured_writer_append(s->writer, &cell, 1, false, err);
}

static void an_append_that_fails_leaves_the_writer_as_it_was(bool remote)
{
  setup s;
  const rv_pattern_node node = rv_pattern_rows(0, -2, 0, 1);
  rv_pattern_config config = config_of("a", &node, 1);
  open_writer(&s, remote, (rv_structured_writer_config){.patterns = &config, .num_patterns = 1});
  OK(rv_structured_writer_name_column(s.writer, 0, "('x',)", error));
  OK(append(&s, 1, false, error));
  FAILS(RV_INVALID_ARGUMENT, "wrong dtype for column 0 (path=('x',)): got float32[], its first row was int32[]",
        append_error(&s, 1.5f, error));
  assert_false(rv_structured_writer_step_is_open(s.writer));
  OK(append(&s, 2, true, error));
  FAILS(RV_FAILED_PRECONDITION, "provided by multiple appends", append(&s, 3, false, error));
  assert_true(rv_structured_writer_step_is_open(s.writer));
  int32_t number = 4;
  rv_cell twice[2] = {{.column = 0, .value = {.dtype = RV_INT32, .data = &number}},
                      {.column = 0, .value = {.dtype = RV_INT32, .data = &number}}};
  OK(rv_structured_writer_append(s.writer, NULL, 0, false, error));
  FAILS(RV_FAILED_PRECONDITION, "provided by multiple appends", rv_structured_writer_append(s.writer, twice, 2, false, error));
  OK(rv_structured_writer_flush(s.writer, 0, NULL, error));
  assert_int_equal(rv_structured_writer_episode_steps(s.writer), 2);
  assert_int_equal(place_size(&s.place, "a"), 1);
  close_writer(&s);
}

static void an_item_that_cannot_be_made_does_not_keep_the_others_from_being_made(bool remote)
{
  setup s;
  const rv_pattern_node node = rv_pattern_row(0, -1);
  rv_pattern_config configs[2] = {config_of("a", &node, 1), config_of("a", &node, 1)};
  configs[0].priority = (rv_priority_rule){.kind = RV_PRIORITY_TD_ERROR, .max_weight = 1};
  open_writer(&s, remote, (rv_structured_writer_config){.patterns = configs, .num_patterns = 2});
  OK(append_error(&s, 2, error));
  const float nan = strtof("nan", NULL);
  FAILS(RV_INVALID_ARGUMENT, "the configuration at position 0 (table \"a\") made no item: the priority is nan",
        append_error(&s, nan, error));
  OK(append_error(&s, 3, error));
  OK(rv_structured_writer_end_episode(s.writer, true, NULL, error));
  assert_int_equal(place_size(&s.place, "a"), 5);
  close_writer(&s);
}

static void rows_without_a_td_error_are_refused(bool remote)
{
  setup s;
  const rv_pattern_node node = rv_pattern_row(0, -1);
  rv_pattern_config config = config_of("a", &node, 1);
  config.priority = (rv_priority_rule){.kind = RV_PRIORITY_TD_ERROR, .max_weight = 1};
  open_writer(&s, remote, (rv_structured_writer_config){.patterns = &config, .num_patterns = 1});
  const int16_t small = 1;
  rv_cell cell = {.column = 0, .value = {.dtype = RV_INT16, .data = &small}};
  FAILS(RV_INVALID_ARGUMENT, "TD Error", rv_structured_writer_append(s.writer, &cell, 1, false, error));
  const float pair[2] = {1, 2};
  const int64_t two[] = {2};
  cell.value = (rv_tensor){.dtype = RV_FLOAT32, .rank = 1, .shape = two, .data = pair};
  FAILS(RV_INVALID_ARGUMENT, "TD Error", rv_structured_writer_append(s.writer, &cell, 1, false, error));
  OK(append_error(&s, 2, error));
  close_writer(&s);
}

static void a_priority_that_the_table_refuses_is_told(bool remote)
{
  setup s;
  const rv_pattern_node node = rv_pattern_row(0, -1);
  rv_pattern_config config = config_of("per", &node, 1);
  config.priority.constant = -1;
  open_writer(&s, remote, (rv_structured_writer_config){.patterns = &config, .num_patterns = 1});
  rv_error err = {.message = ""};
  rv_code code = append(&s, 1, false, &err); /* in process at once, through a server when it has answered */
  if (code == RV_OK) code = rv_structured_writer_flush(s.writer, 0, NULL, &err);
  assert_int_equal(code, RV_INVALID_ARGUMENT);
  assert_int_equal(rv_structured_writer_discard_failed(s.writer), remote ? 1 : 0);
  OK(rv_structured_writer_flush(s.writer, 0, NULL, error));
  close_writer(&s);
}

static void a_table_that_is_not_there_is_told(bool remote)
{
  setup s;
  const rv_pattern_node node = rv_pattern_row(0, -1);
  rv_pattern_config config = config_of("nowhere", &node, 1);
  open_writer(&s, remote, (rv_structured_writer_config){.patterns = &config, .num_patterns = 1});
  rv_error err = {.message = ""};
  rv_code code = append(&s, 1, false, &err);
  if (code == RV_OK) code = rv_structured_writer_end_episode(s.writer, true, NULL, &err);
  assert_int_equal(code, RV_NOT_FOUND);
  assert_non_null(strstr(err.message, "nowhere"));
  close_writer(&s);
}

static void an_episode_whose_end_times_out_is_ended_again_without_a_second_item(bool remote)
{
  setup s;
  const rv_pattern_node node = rv_pattern_rows(0, -2, 0, 1);
  rv_condition ended = {.of = RV_CONDITION_OF_END_EPISODE, .test = RV_CONDITION_TEST_EQ, .value = 1};
  rv_pattern_config configs[2] = {config_of("queue", &node, 1), config_of("queue", &node, 1)};
  configs[1].conditions = &ended;
  configs[1].num_conditions = 1;
  open_writer(&s, remote, (rv_structured_writer_config){.patterns = configs, .num_patterns = 2});
  for (int32_t i = 0; i < 3; i++) OK(append(&s, i, false, error));
  for (int i = 0; i < 3; i++)
    FAILS(RV_DEADLINE_EXCEEDED, "", rv_structured_writer_end_episode(s.writer, true, i == 0 ? &shortly : &at_once, error));
  assert_int_equal(rv_structured_writer_episode_steps(s.writer), 3);
  rv_sampler_config sampling = {
      .size = sizeof sampling, .table = "queue", .max_samples = 3, .rate_limiter_timeout_ms = RV_FOREVER};
  rv_sampler *sampler;
  OK(rv_sampler_new(s.place.client, &sampling, &sampler, error));
  for (int i = 0; i < 3; i++) {
    rv_sample *sample;
    OK(rv_sampler_next(sampler, NULL, &sample, error));
    int32_t rows[2];
    OK(rv_sample_copy(sample, 0, rows, sizeof rows, error));
    assert_int_equal(rows[1], i < 2 ? i + 1 : 2); /* 0 1, 1 2, and 1 2 at the end */
    rv_sample_unref(sample);
  }
  rv_sampler_free(sampler);
  OK(rv_structured_writer_end_episode(s.writer, true, NULL, error));
  assert_int_equal(rv_structured_writer_episode_steps(s.writer), 0);
  assert_int_equal(place_size(&s.place, "queue"), 0);
  close_writer(&s);
}

static void over_its_bounds_a_step_is_not_taken_and_no_item_is_lost(bool remote)
{
  setup s;
  const rv_pattern_node node = rv_pattern_row(0, -1);
  rv_pattern_config configs[2] = {config_of("queue", &node, 1), config_of("queue", &node, 1)};
  open_writer(&s, remote, (rv_structured_writer_config){.patterns = configs, .num_patterns = 2, .max_in_flight_items = 6});
  int32_t taken = 0;
  rv_error err = {.message = ""};
  while (append(&s, taken, false, &err) == RV_OK) taken++;
  assert_int_equal(err.code, RV_RESOURCE_EXHAUSTED);
  assert_int_equal(rv_structured_writer_episode_steps(s.writer), taken);
  rv_writer_status status = {.size = sizeof status};
  rv_structured_writer_get_status(s.writer, &status);
  assert_int_equal(status.items_created, 2 * taken);
  assert_in_range(status.items_in_flight, 5, 6);
  close_writer(&s);
}

static void a_closed_writer_takes_nothing(bool remote)
{
  setup s;
  const rv_pattern_node node = rv_pattern_row(0, -1);
  rv_pattern_config config = config_of("a", &node, 1);
  open_writer(&s, remote, (rv_structured_writer_config){.patterns = &config, .num_patterns = 1});
  OK(append(&s, 1, false, error));
  rv_structured_writer_close(s.writer);
  rv_structured_writer_close(s.writer);
  FAILS(RV_FAILED_PRECONDITION, "Close has been called", append(&s, 2, false, error));
  FAILS(RV_FAILED_PRECONDITION, "Close has been called", rv_structured_writer_flush(s.writer, 0, NULL, error));
  FAILS(RV_FAILED_PRECONDITION, "Close has been called", rv_structured_writer_end_episode(s.writer, true, NULL, error));
  close_writer(&s);
}

/* A hundred rows of 8 KiB with overlapping items in two tables, and a column that no pattern refers to: what is sent stays
 * near the rows themselves. */
static void rows_that_items_share_are_sent_once(void **state)
{
  (void)state;
  enum { STEPS = 100, ELEMENTS = 2048 };
  setup s;
  const rv_pattern_node two = rv_pattern_rows(0, -2, 0, 1), four = rv_pattern_rows(0, -7, 0, 2);
  rv_pattern_config configs[2] = {config_of("a", &two, 1), config_of("per", &four, 1)};
  open_writer(&s, true,
              (rv_structured_writer_config){.patterns = configs, .num_patterns = 2, .compression = RV_COMPRESSION_NONE});
  static float row[ELEMENTS];
  const int64_t shape[] = {ELEMENTS};
  for (int i = 0; i < STEPS; i++) {
    row[0] = (float)i;
    rv_cell cells[2] = {{.column = 0, .value = {.dtype = RV_FLOAT32, .rank = 1, .shape = shape, .data = row}},
                        {.column = 1, .value = {.dtype = RV_FLOAT32, .rank = 1, .shape = shape, .data = row}}};
    OK(rv_structured_writer_append(s.writer, cells, 2, false, error));
  }
  OK(rv_structured_writer_flush(s.writer, 0, NULL, error));
  rv_writer_status status = {.size = sizeof status};
  rv_structured_writer_get_status(s.writer, &status);
  assert_int_equal(status.items_confirmed, 2 * STEPS - 1 - 6);
  assert_in_range(status.bytes_sent, STEPS * sizeof row, STEPS * sizeof row * 5 / 4);
  close_writer(&s);
}

static void columns_that_steps_do_not_have_are_refused(void **state)
{
  (void)state;
  setup s;
  const rv_pattern_node node = rv_pattern_row(2, -1);
  rv_pattern_config config = config_of("a", &node, 1);
  open_writer(&s, false, (rv_structured_writer_config){.patterns = &config, .num_patterns = 1});
  OK(rv_structured_writer_set_num_columns(s.writer, 3, error));
  FAILS(RV_INVALID_ARGUMENT, "node 0 refers to column 2, but steps have 2",
        rv_structured_writer_set_num_columns(s.writer, 2, error));
  close_writer(&s);
}

BOTH(an_append_that_fails_leaves_the_writer_as_it_was)
BOTH(an_item_that_cannot_be_made_does_not_keep_the_others_from_being_made)
BOTH(rows_without_a_td_error_are_refused)
BOTH(a_priority_that_the_table_refuses_is_told)
BOTH(a_table_that_is_not_there_is_told)
BOTH(an_episode_whose_end_times_out_is_ended_again_without_a_second_item)
BOTH(over_its_bounds_a_step_is_not_taken_and_no_item_is_lost)
BOTH(a_closed_writer_takes_nothing)

int main(void)
{
  const struct CMUnitTest tests[] = {
      BOTH_TESTS(an_append_that_fails_leaves_the_writer_as_it_was),
      BOTH_TESTS(an_item_that_cannot_be_made_does_not_keep_the_others_from_being_made),
      BOTH_TESTS(rows_without_a_td_error_are_refused),
      BOTH_TESTS(a_priority_that_the_table_refuses_is_told),
      BOTH_TESTS(a_table_that_is_not_there_is_told),
      BOTH_TESTS(an_episode_whose_end_times_out_is_ended_again_without_a_second_item),
      BOTH_TESTS(over_its_bounds_a_step_is_not_taken_and_no_item_is_lost),
      BOTH_TESTS(a_closed_writer_takes_nothing),
      cmocka_unit_test(rows_that_items_share_are_sent_once),
      cmocka_unit_test(columns_that_steps_do_not_have_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
