/* Configs that cannot be applied: the sentence names the config, the node or condition, and the remedy. */
#include <math.h>

#include "base/error.h"
#include "client/column.h"
#include "client/patterns.h"

rv_code rv_fail_pattern(rv_error *err, size_t position, const char *table, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  rv_vfail(err, RV_INVALID_ARGUMENT, format, args);
  va_end(args);
  if (table != NULL && table[0] != '\0')
    rv_error_prefix(err, "Invalid configuration at position %zu (table \"%.80s\")", position, table);
  else
    rv_error_prefix(err, "Invalid configuration at position %zu", position);
  return RV_INVALID_ARGUMENT;
}

uint32_t rv_pattern_node_reach(const rv_pattern_node *node)
{
  return 0U - (uint32_t)(node->has_start ? node->start : node->stop);
}

/* ---- nodes ---- */

static rv_code check_column(const rv_pattern_config *config, size_t position, const char *what, size_t i, int32_t column,
                            rv_error *err)
{
  if (column >= 0 && column < RV_MAX_COLUMNS) return RV_OK;
  return rv_fail_pattern(err, position, config->table,
                         "%s %zu refers to column %d; columns (flat_source_index) are numbered 0 to %d", what, i, (int)column,
                         RV_MAX_COLUMNS - 1);
}

static rv_code check_rows(const rv_pattern_config *config, size_t position, size_t i, const rv_pattern_node *node, rv_error *err)
{
  const char *table = config->table;
  if (!node->has_start && !node->has_stop)
    return rv_fail_pattern(err, position, table,
                           "node %zu has neither start nor stop; give a row (stop) or where rows begin (start)", i);
  if (node->has_start && node->start >= 0)
    return rv_fail_pattern(err, position, table,
                           "node %zu has start %d; rows are counted back from the newest, which is -1, so it "
                           "must be negative",
                           i, (int)node->start);
  if (node->has_stop && node->stop > 0)
    return rv_fail_pattern(err, position, table,
                           "node %zu has stop %d; rows are counted back from the newest, which is -1, so it "
                           "must not be positive",
                           i, (int)node->stop);
  if (!node->has_start && node->stop == 0)
    return rv_fail_pattern(err, position, table, "node %zu is row 0, which does not exist yet; the newest row is -1", i);
  if (node->has_start && node->has_stop && node->start >= node->stop)
    return rv_fail_pattern(err, position, table, "node %zu has no rows: its start %d is not before its stop %d", i,
                           (int)node->start, (int)node->stop);
  if (node->has_step && !node->has_start)
    return rv_fail_pattern(err, position, table, "node %zu has step %d but no start; a step needs rows to step over", i,
                           (int)node->step);
  if (node->has_step && node->step <= 0)
    return rv_fail_pattern(err, position, table, "node %zu has step %d; it must be positive", i, (int)node->step);
  if (rv_pattern_node_reach(node) > RV_PATTERN_MAX_ROWS)
    return rv_fail_pattern(err, position, table, "node %zu reaches %u rows back; at most %d are kept", i,
                           (unsigned)rv_pattern_node_reach(node), RV_PATTERN_MAX_ROWS);
  return RV_OK;
}

/* ---- conditions ---- */

static rv_code check_condition(const rv_pattern_config *config, size_t position, size_t i, rv_error *err)
{
  const rv_condition *condition = &config->conditions[i];
  const char *table = config->table;
  if (condition->of < RV_CONDITION_OF_STEP_INDEX || condition->of > RV_CONDITION_OF_COLUMN)
    return rv_fail_pattern(err, position, table, "condition %zu is on nothing; give it a left side, such as the step index", i);
  if (condition->test < RV_CONDITION_TEST_EQ || condition->test > RV_CONDITION_TEST_MOD_EQ)
    return rv_fail_pattern(err, position, table, "condition %zu tests nothing; give it a comparison (eq, ge or mod_eq)", i);
  if (condition->test == RV_CONDITION_TEST_MOD_EQ && condition->mod <= 0)
    return rv_fail_pattern(err, position, table, "condition %zu divides by %d; mod must be positive", i, (int)condition->mod);
  if (condition->test == RV_CONDITION_TEST_MOD_EQ && condition->value < 0)
    return rv_fail_pattern(err, position, table, "condition %zu expects the remainder %d; mod_eq's eq must not be negative", i,
                           (int)condition->value);
  if (condition->of == RV_CONDITION_OF_END_EPISODE &&
      (condition->test != RV_CONDITION_TEST_EQ || condition->value != 1 || condition->inverse))
    return rv_fail_pattern(err, position, table,
                           "condition %zu is on the end of the episode, which can only be tested for eq 1, not "
                           "inverted",
                           i);
  if (condition->of == RV_CONDITION_OF_COLUMN) return check_column(config, position, "condition", i, condition->column, err);
  return RV_OK;
}

/* ---- priority ---- */

static rv_code check_priority(const rv_pattern_config *config, size_t position, rv_error *err)
{
  const rv_priority_rule *priority = &config->priority;
  switch (priority->kind) {
  case RV_PRIORITY_CONSTANT:
    if (!isnan(priority->constant)) return RV_OK;
    return rv_fail_pattern(err, position, config->table, "the constant priority must not be nan");
  case RV_PRIORITY_TD_ERROR: break;
  default:
    return rv_fail_pattern(err, position, config->table, "the Priority function is not set; give a constant or a TD error");
  }
  if (isnan(priority->max_weight)) return rv_fail_pattern(err, position, config->table, "max_priority_weight must not be nan");
  for (size_t i = 0; i < config->num_nodes; i++) {
    if (config->nodes[i].column == priority->column) return RV_OK;
  }
  return rv_fail_pattern(err, position, config->table,
                         "its priority is the TD error of column %d, to which no node refers; put that field into the pattern",
                         (int)priority->column);
}

rv_code rv_pattern_config_check(const rv_pattern_config *config, size_t position, rv_error *err)
{
  if (config->num_nodes == 0 || config->nodes == NULL)
    return rv_fail_pattern(err, position, config->table, "`flat` must not be empty: the pattern has no nodes");
  if (config->num_nodes > RV_MAX_COLUMNS)
    return rv_fail_pattern(err, position, config->table, "the pattern has %zu nodes; at most %d are possible", config->num_nodes,
                           RV_MAX_COLUMNS);
  if (config->table == NULL || config->table[0] == '\0')
    return rv_fail_pattern(err, position, NULL, "`table` must not be empty: name the table that its items go to");
  rv_code code = RV_OK;
  for (size_t i = 0; i < config->num_nodes && code == RV_OK; i++) {
    code = check_column(config, position, "node", i, config->nodes[i].column, err);
    if (code == RV_OK) code = check_rows(config, position, i, &config->nodes[i], err);
  }
  for (size_t i = 0; i < config->num_conditions && code == RV_OK; i++) code = check_condition(config, position, i, err);
  return code == RV_OK ? check_priority(config, position, err) : code;
}
