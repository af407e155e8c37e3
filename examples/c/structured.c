/* Items made by patterns: a transition from every step, and at the end of each episode its last four rewards. */
#include <reverie/reverie.h>
#include <stdio.h>
#include <stdlib.h>

static void check(rv_code code, const rv_error *error)
{
  if (code == RV_OK) return;
  fprintf(stderr, "%s: %s\n", rv_code_name(code), error->message);
  exit(1);
}

enum { OBSERVATION, REWARD };

int main(void)
{
  rv_error error;
  rv_table_config tables[] = {rv_table_config_default("transitions", 10000), rv_table_config_default("ends", 10000)};
  rv_store *store;
  check(rv_store_new(&(rv_store_config){.size = sizeof(rv_store_config), .tables = tables, .num_tables = 2}, &store, &error),
        &error);
  rv_client *client;
  check(rv_client_new(&(rv_client_config){.size = sizeof(rv_client_config), .store = store}, &client, &error), &error);

  const rv_pattern_node transition[] = {rv_pattern_row(OBSERVATION, -2), rv_pattern_row(REWARD, -2),
                                        rv_pattern_row(OBSERVATION, -1)};
  const rv_pattern_node last_four[] = {rv_pattern_rows(REWARD, -5, -1, 1)};
  const rv_condition at_the_end = {.of = RV_CONDITION_OF_END_EPISODE, .test = RV_CONDITION_TEST_EQ, .value = 1};
  const rv_priority_rule one = {.kind = RV_PRIORITY_CONSTANT, .constant = 1.0};
  const rv_pattern_config patterns[] = {
      {.size = sizeof patterns[0], .table = "transitions", .nodes = transition, .num_nodes = 3, .priority = one},
      {.size = sizeof patterns[0],
       .table = "ends",
       .nodes = last_four,
       .num_nodes = 1,
       .conditions = &at_the_end,
       .num_conditions = 1,
       .priority = one}};
  rv_structured_writer_config config = {.size = sizeof config, .patterns = patterns, .num_patterns = 2};
  rv_structured_writer *writer;
  check(rv_structured_writer_new(client, &config, &writer, &error), &error);

  const int64_t shape[] = {4};
  for (int episode = 0; episode < 5; episode++) {
    for (int step = 0; step < 20; step++) {
      float observation[4] = {(float)step, 0, 0, 0}, reward = (float)step;
      const rv_cell cells[] = {{OBSERVATION, {RV_FLOAT32, 1, shape, observation}}, {REWARD, {RV_FLOAT32, 0, NULL, &reward}}};
      check(rv_structured_writer_append(writer, cells, 2, false, &error), &error);
    }
    /* The last step's transition needs the observation after it; a row without a reward has that. Where episodes terminate or are cut, a
     * column with the step's discount tells which, as in docs/structured-writer.md. */
    float last[4] = {20, 0, 0, 0};
    const rv_cell after = {OBSERVATION, {RV_FLOAT32, 1, shape, last}};
    check(rv_structured_writer_append(writer, &after, 1, false, &error), &error);
    check(rv_structured_writer_end_episode(writer, true, NULL, &error), &error);
  }
  rv_structured_writer_free(writer);

  rv_server_info *info;
  check(rv_client_server_info(client, NULL, &info, &error), &error);
  for (size_t i = 0; i < info->num_tables; i++)
    printf("%s: %lld items\n", info->tables[i].name, (long long)info->tables[i].current_size);
  rv_server_info_free(info);
  rv_client_free(client);
  rv_store_unref(store);
  return 0;
}
