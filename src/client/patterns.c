/* Life, and configs into what a step needs: columns that somebody refers to, runs whose places only have to be moved on. */
#include "client/patterns.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Callers may be older than this library: theirs are as far apart as their size says. */
static const rv_pattern_config *config_at(const rv_pattern_config *configs, size_t i)
{
  return (const rv_pattern_config *)(const void *)((const char *)configs + i * configs[0].size);
}

static rv_code check_configs(const rv_pattern_config *configs, size_t num_configs, rv_error *err)
{
  if (num_configs == 0 || configs == NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT, "At least one config is needed: a writer without patterns makes no items");
  if (configs[0].size < sizeof(rv_pattern_config))
    return rv_fail(err, RV_INVALID_ARGUMENT, "pattern config: size must be sizeof(rv_pattern_config)");
  for (size_t i = 0; i < num_configs; i++) {
    const rv_pattern_config *config = config_at(configs, i);
    if (config->size != configs[0].size)
      return rv_fail(err, RV_INVALID_ARGUMENT, "pattern config: size must be the same in all configs of an array");
    rv_code code = rv_pattern_config_check(config, i, err);
    if (code != RV_OK) return code;
  }
  return RV_OK;
}

/* ---- columns ---- */

static uint32_t last_column(const rv_pattern_config *configs, size_t num_configs)
{
  int32_t last = 0;
  for (size_t i = 0; i < num_configs; i++) {
    const rv_pattern_config *config = config_at(configs, i);
    for (size_t j = 0; j < config->num_nodes; j++) {
      if (config->nodes[j].column > last) last = config->nodes[j].column;
    }
    for (size_t j = 0; j < config->num_conditions; j++) {
      const rv_condition *condition = &config->conditions[j];
      if (condition->of == RV_CONDITION_OF_COLUMN && condition->column > last) last = condition->column;
    }
  }
  return (uint32_t)last;
}

static rv_pattern_source *refer(rv_patterns *patterns, int32_t column)
{
  uint32_t *source = &patterns->source_of[column];
  if (*source == UINT32_MAX) {
    *source = patterns->num_sources++;
    patterns->sources[*source].column = (uint32_t)column;
  }
  return &patterns->sources[*source];
}

static rv_code make_sources(rv_patterns *patterns, const rv_pattern_config *configs, size_t num_configs, rv_error *err)
{
  patterns->num_columns = last_column(configs, num_configs) + 1;
  patterns->source_of = malloc(patterns->num_columns * sizeof *patterns->source_of);
  patterns->sources = calloc(patterns->num_columns, sizeof *patterns->sources);
  if (patterns->source_of == NULL || patterns->sources == NULL)
    return rv_fail_memory(err, patterns->num_columns * sizeof *patterns->sources);
  memset(patterns->source_of, 0xff, patterns->num_columns * sizeof *patterns->source_of);
  for (size_t i = 0; i < num_configs; i++) {
    const rv_pattern_config *config = config_at(configs, i);
    for (size_t j = 0; j < config->num_nodes; j++) {
      rv_pattern_source *source = refer(patterns, config->nodes[j].column);
      uint32_t reach = rv_pattern_node_reach(&config->nodes[j]);
      if (reach > source->window) source->window = reach;
      if (reach > patterns->window) patterns->window = reach;
    }
    for (size_t j = 0; j < config->num_conditions; j++) {
      if (config->conditions[j].of == RV_CONDITION_OF_COLUMN) refer(patterns, config->conditions[j].column)->read_integer = true;
    }
    if (config->priority.kind == RV_PRIORITY_TD_ERROR) refer(patterns, config->priority.column)->read_number = true;
  }
  rv_code code = RV_OK;
  for (uint32_t i = 0; i < patterns->num_sources && code == RV_OK; i++)
    code = rv_pattern_source_begin(&patterns->sources[i], err);
  return code;
}

/* ---- configs ---- */

static rv_code copy_names(rv_pattern *pattern, const rv_pattern_config *config, rv_error *err)
{
  if (config->names == NULL) return RV_OK;
  pattern->names = calloc(config->num_nodes, sizeof *pattern->names);
  if (pattern->names == NULL) return rv_fail_memory(err, config->num_nodes * sizeof *pattern->names);
  for (size_t i = 0; i < config->num_nodes; i++) {
    if (config->names[i] == NULL) continue;
    pattern->names[i] = strdup(config->names[i]);
    if (pattern->names[i] == NULL) return rv_fail_memory(err, strlen(config->names[i]) + 1);
    pattern->columns[i].name = pattern->names[i];
  }
  return RV_OK;
}

static rv_code allocate(rv_pattern *pattern, const rv_pattern_config *config, rv_error *err)
{
  size_t n = config->num_nodes, room = config->num_conditions > 0 ? config->num_conditions : 1;
  pattern->table = strdup(config->table);
  pattern->num_nodes = n;
  pattern->rows = calloc(n, sizeof *pattern->rows);
  pattern->runs = calloc(n, sizeof *pattern->runs);
  pattern->columns = calloc(n, sizeof *pattern->columns);
  pattern->conditions = calloc(room, sizeof *pattern->conditions);
  bool ok = pattern->table != NULL && pattern->rows != NULL && pattern->runs != NULL && pattern->columns != NULL &&
            pattern->conditions != NULL;
  return ok ? RV_OK : rv_fail_memory(err, n * sizeof *pattern->columns);
}

static void compile_node(rv_patterns *patterns, rv_pattern *pattern, size_t i, const rv_pattern_node *node)
{
  rv_pattern_span *rows = &pattern->rows[i];
  rows->source = patterns->source_of[node->column];
  rows->start = node->has_start ? node->start : node->stop;
  rows->step = node->has_step ? (uint32_t)node->step : 1;
  uint32_t length = 1;
  if (node->has_start) length = (uint32_t)((node->has_stop ? node->stop : 0) - node->start);
  rows->count = (length - 1) / rows->step + 1;
  uint32_t reach = rv_pattern_node_reach(node);
  if (reach > pattern->reach) pattern->reach = reach;
  pattern->runs[i] = (rv_run){.column = (uint32_t)node->column, .count = rows->count, .stride = rows->step};
  pattern->columns[i] = (rv_item_column){.runs = &pattern->runs[i], .num_runs = 1, .squeeze = !node->has_start};
}

static rv_code compile(rv_patterns *patterns, size_t position, const rv_pattern_config *config, rv_error *err)
{
  rv_pattern *pattern = &patterns->patterns[position];
  rv_code code = allocate(pattern, config, err);
  if (code != RV_OK) return code;
  pattern->naming = config->naming;
  pattern->priority = config->priority;
  for (size_t i = 0; i < config->num_nodes; i++) {
    compile_node(patterns, pattern, i, &config->nodes[i]);
    if (config->nodes[i].column == config->priority.column) pattern->priority_node = i;
  }
  pattern->num_conditions = config->num_conditions;
  for (size_t i = 0; i < config->num_conditions; i++) {
    rv_condition *condition = &pattern->conditions[i];
    *condition = config->conditions[i];
    if (condition->of == RV_CONDITION_OF_COLUMN) condition->column = (int32_t)patterns->source_of[condition->column];
  }
  code = rv_conditions_check(config, position, pattern->reach, patterns->window, err);
  return code == RV_OK ? copy_names(pattern, config, err) : code;
}

/* ---- life ---- */

static rv_code fill(rv_patterns *patterns, const rv_pattern_config *configs, size_t num_configs, rv_error *err)
{
  patterns->step_index = -1;
  rv_code code = make_sources(patterns, configs, num_configs, err);
  if (code != RV_OK) return code;
  patterns->patterns = calloc(num_configs, sizeof *patterns->patterns);
  if (patterns->patterns == NULL) return rv_fail_memory(err, num_configs * sizeof *patterns->patterns);
  patterns->num_patterns = num_configs;
  for (size_t i = 0; i < num_configs && code == RV_OK; i++) code = compile(patterns, i, config_at(configs, i), err);
  return code;
}

rv_code rv_patterns_new(const rv_pattern_config *configs, size_t num_configs, rv_patterns **out, rv_error *err)
{
  rv_code code = check_configs(configs, num_configs, err);
  if (code != RV_OK) return code;
  rv_patterns *patterns = calloc(1, sizeof *patterns);
  if (patterns == NULL) return rv_fail_memory(err, sizeof *patterns);
  code = fill(patterns, configs, num_configs, err);
  if (code == RV_OK) {
    *out = patterns;
  } else {
    rv_patterns_free(patterns);
  }
  return code;
}

static void free_pattern(rv_pattern *pattern)
{
  for (size_t i = 0; pattern->names != NULL && i < pattern->num_nodes; i++) free(pattern->names[i]);
  free(pattern->names);
  free(pattern->table);
  free(pattern->rows);
  free(pattern->runs);
  free(pattern->columns);
  free(pattern->conditions);
}

void rv_patterns_free(rv_patterns *patterns)
{
  if (patterns == NULL) return;
  for (size_t i = 0; i < patterns->num_patterns; i++) free_pattern(&patterns->patterns[i]);
  for (uint32_t i = 0; i < patterns->num_sources; i++) rv_pattern_source_fini(&patterns->sources[i]);
  free(patterns->patterns);
  free(patterns->sources);
  free(patterns->source_of);
  free(patterns);
}

/* ---- what it knows ---- */

size_t rv_patterns_num_configs(const rv_patterns *patterns)
{
  return patterns->num_patterns;
}
uint32_t rv_patterns_window(const rv_patterns *patterns)
{
  return patterns->window;
}
uint32_t rv_patterns_column_window(const rv_patterns *patterns, uint32_t column)
{
  const rv_pattern_source *source = rv_patterns_source(patterns, column);
  return source == NULL ? 0 : source->window;
}
int64_t rv_patterns_num_rows(const rv_patterns *patterns)
{
  return patterns->num_rows;
}
bool rv_patterns_step_is_open(const rv_patterns *patterns)
{
  return patterns->step_open;
}

rv_code rv_patterns_name_column(rv_patterns *patterns, uint32_t column, const char *name, rv_error *err)
{
  rv_pattern_source *source = rv_patterns_source(patterns, column);
  if (source == NULL) return RV_OK;
  char *copy = strdup(name);
  if (copy == NULL) return rv_fail_memory(err, strlen(name) + 1);
  free(source->name);
  source->name = copy;
  return RV_OK;
}

rv_code rv_patterns_check_columns(const rv_patterns *patterns, size_t num_columns, rv_error *err)
{
  for (size_t i = 0; i < patterns->num_patterns; i++) {
    const rv_pattern *pattern = &patterns->patterns[i];
    for (size_t j = 0; j < pattern->num_nodes; j++) {
      if (pattern->runs[j].column >= num_columns)
        return rv_fail_pattern(err, i, pattern->table,
                               "node %zu refers to column %u, but steps have %zu; make the pattern from a step "
                               "of the same structure",
                               j, (unsigned)pattern->runs[j].column, num_columns);
    }
    for (size_t j = 0; j < pattern->num_conditions; j++) {
      const rv_condition *condition = &pattern->conditions[j];
      if (condition->of != RV_CONDITION_OF_COLUMN || patterns->sources[condition->column].column < num_columns) continue;
      return rv_fail_pattern(err, i, pattern->table,
                             "condition %zu refers to column %u, but steps have %zu; make the condition from a "
                             "step of the same structure",
                             j, (unsigned)patterns->sources[condition->column].column, num_columns);
    }
  }
  return RV_OK;
}
