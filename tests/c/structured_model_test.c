/* Structured writers with random patterns, their items read back from the tables and compared with a plain model: in process
 * and through a server. */
#include "support/pattern_model.h"

static double read_number(int32_t column, const uint8_t *data)
{
  switch (column) {
  case 0: {
    int32_t number;
    memcpy(&number, data, sizeof number);
    return number;
  }
  case 1: {
    float error;
    memcpy(&error, data, sizeof error);
    return (double)error;
  }
  case 2: {
    int64_t wide;
    memcpy(&wide, data, sizeof wide);
    return (double)wide;
  }
  case 3: return *data;
  default: {
    int16_t triple[3];
    memcpy(triple, data, sizeof triple);
    assert_int_equal(triple[1], triple[0] + 1);
    assert_int_equal(triple[2], triple[0] + 2);
    return triple[0];
  }
  }
}

static void check_item(test_place *place, const pattern_model *m, const model_item *expected, const rv_item_info *info)
{
  const rv_pattern_config *config = &m->configs[expected->config];
  assert_true(info->priority == expected->priority);
  rv_sample *sample = NULL;
  OK(rv_client_get(place->client, config->table, info->key, NULL, &sample, error));
  assert_int_equal(rv_sample_num_columns(sample), config->num_nodes);
  for (size_t j = 0; j < config->num_nodes; j++) {
    rv_sample_column column;
    uint8_t rows[10 * 8];
    OK(rv_sample_get_column(sample, j, &column, error));
    assert_int_equal(column.dtype, model_dtypes[config->nodes[j].column]);
    assert_int_equal(column.length, expected->lengths[j]);
    assert_int_equal(column.squeezed, !config->nodes[j].has_start);
    assert_true(column.bytes <= sizeof rows);
    OK(rv_sample_copy(sample, j, rows, column.bytes, error));
    for (size_t k = 0; k < expected->lengths[j]; k++)
      assert_true(read_number(config->nodes[j].column, rows + k * (column.bytes / expected->lengths[j])) ==
                  expected->values[j][k]);
  }
  rv_sample_unref(sample);
}

static void check_table(test_place *place, const pattern_model *m, const char *table)
{
  static rv_item_info infos[MODEL_ITEMS];
  size_t count, found = 0;
  uint64_t cursor = 0;
  OK(rv_client_items(place->client, table, &cursor, infos, MODEL_ITEMS, &count, NULL, error));
  for (size_t i = 0; i < m->num_items; i++) {
    if (strcmp(m->configs[m->items[i].config].table, table) != 0) continue;
    assert_true(found < count);
    check_item(place, m, &m->items[i], &infos[found++]);
  }
  assert_int_equal(found, count);
}

static void run(uint64_t seed, bool remote)
{
  pattern_model *m = calloc(1, sizeof *m);
  assert_non_null(m);
  rv_random_init(&m->random, seed);
  test_place place;
  rv_table_config tables[2] = {place_queue_like("a", 10000), place_queue_like("b", 10000)};
  place_open(&place, remote, tables, 2);
  rv_structured_writer *writer = NULL;
  do { /* configs that can be applied */
    model_choose(m);
    rv_structured_writer_config config = {.size = sizeof config,
                                          .patterns = m->configs,
                                          .num_patterns = m->num_configs,
                                          .delta_encoded = model_below(m, 2) == 0,
                                          .compression = (rv_compression)model_below(m, 3)};
    rv_error err;
    if (rv_structured_writer_new(place.client, &config, &writer, &err) != RV_OK) writer = NULL;
  } while (writer == NULL);
  OK(rv_structured_writer_set_num_columns(writer, MODEL_COLUMNS, error));
  for (int i = 0; i < 300; i++) {
    uint32_t what = model_below(m, 30);
    if (what < 2) {
      bool clear = what == 0;
      model_end_episode(m, clear);
      OK(rv_structured_writer_end_episode(writer, clear, NULL, error));
    } else if (what < 4) {
      OK(rv_structured_writer_flush(writer, model_below(m, 10), NULL, error));
    } else {
      model_step step;
      model_append(m, &step);
      OK(rv_structured_writer_append(writer, step.cells, step.num_cells, step.partial, error));
    }
    assert_int_equal(rv_structured_writer_step_is_open(writer), m->open);
  }
  OK(rv_structured_writer_flush(writer, 0, NULL, error));
  check_table(&place, m, "a");
  check_table(&place, m, "b");
  rv_structured_writer_free(writer);
  place_close(&place);
  free(m);
}

static void items_in_process_are_those_of_the_model(void **state)
{
  (void)state;
  print_message("seeds 1 to 40\n");
  for (uint64_t seed = 1; seed <= 40; seed++) run(seed, false);
}

static void items_through_a_server_are_those_of_the_model(void **state)
{
  (void)state;
  print_message("seeds 101 to 140\n");
  for (uint64_t seed = 101; seed <= 140; seed++) run(seed, true);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(items_in_process_are_those_of_the_model),
      cmocka_unit_test(items_through_a_server_are_those_of_the_model),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
