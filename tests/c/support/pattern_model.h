/* A plain model of patterns: it keeps every row that was ever appended and asks each config anew after each append. Header
 * only, for the tests of patterns alone and of whole writers. */
#ifndef RV_TEST_PATTERN_MODEL_H
#define RV_TEST_PATTERN_MODEL_H

#include "place.h"

enum { MODEL_COLUMNS = 5, MODEL_CONFIGS = 4, MODEL_NODES = 4, MODEL_CONDITIONS = 3, MODEL_ROWS = 700, MODEL_ITEMS = 2400 };

/* int32 numbers, float32 errors, int64 and bool for conditions, int16[3]; a cell's value is one number that all follow from. */
static const rv_dtype model_dtypes[MODEL_COLUMNS] = {RV_INT32, RV_FLOAT32, RV_INT64, RV_BOOL, RV_INT16};
static const int64_t model_shape[1] = {3};

typedef struct model_item {
  size_t config;
  double priority;
  size_t lengths[MODEL_NODES];
  double values[MODEL_NODES][10];
} model_item;

typedef struct pattern_model {
  rv_random random;
  size_t num_configs;
  rv_pattern_config configs[MODEL_CONFIGS];
  rv_pattern_node nodes[MODEL_CONFIGS][MODEL_NODES];
  rv_condition conditions[MODEL_CONFIGS][MODEL_CONDITIONS];
  int64_t since[MODEL_CONFIGS];
  bool applied[MODEL_CONFIGS];
  int64_t rows, steps; /* since cleared; of the episode; both with the open step */
  bool open;
  bool there[MODEL_ROWS][MODEL_COLUMNS];
  double value[MODEL_ROWS][MODEL_COLUMNS];
  double next_value;
  size_t num_items;
  model_item items[MODEL_ITEMS];
} pattern_model;

static inline uint32_t model_below(pattern_model *m, uint32_t n)
{
  return rv_random_below(&m->random, n);
}

static inline int32_t model_first(const rv_pattern_node *node)
{
  return node->has_start ? node->start : node->stop;
}

/* ---- configs ---- */

static inline rv_pattern_node model_node(pattern_model *m)
{
  int32_t column = (int32_t)model_below(m, MODEL_COLUMNS), start = -1 - (int32_t)model_below(m, 6);
  switch (model_below(m, 4)) {
  case 0: return rv_pattern_row(column, start);
  case 1: return rv_pattern_rows(column, start, 0, 1);
  case 2: return rv_pattern_rows(column, start, 0, 1 + (int32_t)model_below(m, 4));
  default: return rv_pattern_rows(column, start - 2, start + 1 < 0 ? start + 1 : -1, 1 + (int32_t)model_below(m, 2));
  }
}

static inline rv_condition model_condition(pattern_model *m)
{
  static const rv_condition_of things[] = {RV_CONDITION_OF_STEP_INDEX,  RV_CONDITION_OF_STEPS_SINCE_APPLIED,
                                           RV_CONDITION_OF_STEP_INDEX,  RV_CONDITION_OF_BUFFER_LENGTH,
                                           RV_CONDITION_OF_END_EPISODE, RV_CONDITION_OF_COLUMN};
  rv_condition condition = {.of = things[model_below(m, 6)]};
  if (condition.of == RV_CONDITION_OF_END_EPISODE) {
    condition.test = RV_CONDITION_TEST_EQ;
    condition.value = 1;
    return condition;
  }
  if (condition.of == RV_CONDITION_OF_COLUMN) condition.column = model_below(m, 10) == 0 ? 1 : 2 + (int32_t)model_below(m, 2);
  condition.test = (rv_condition_test)(1 + model_below(m, 3));
  condition.value = (int32_t)model_below(m, 5);
  condition.mod = 1 + (int32_t)model_below(m, 4);
  condition.inverse = model_below(m, 3) == 0;
  return condition;
}

static inline void model_choose(pattern_model *m)
{
  m->num_configs = 1 + model_below(m, MODEL_CONFIGS);
  for (size_t i = 0; i < m->num_configs; i++) {
    rv_pattern_config *config = &m->configs[i];
    *config = (rv_pattern_config){.size = sizeof *config,
                                  .table = model_below(m, 3) == 0 ? "b" : "a",
                                  .nodes = m->nodes[i],
                                  .num_nodes = 1 + model_below(m, MODEL_NODES),
                                  .conditions = m->conditions[i],
                                  .num_conditions = model_below(m, MODEL_CONDITIONS + 1)};
    bool has_errors = false;
    for (size_t j = 0; j < config->num_nodes; j++) {
      m->nodes[i][j] = model_node(m);
      has_errors = has_errors || m->nodes[i][j].column == 1;
    }
    for (size_t j = 0; j < config->num_conditions; j++) m->conditions[i][j] = model_condition(m);
    config->priority = (rv_priority_rule){.kind = RV_PRIORITY_CONSTANT, .constant = (double)i + 0.5};
    if (has_errors && model_below(m, 2) == 0)
      config->priority = (rv_priority_rule){.kind = RV_PRIORITY_TD_ERROR, .max_weight = 0.75, .column = 1};
  }
}

static inline int64_t model_window(const pattern_model *m)
{
  int32_t oldest = 0;
  for (size_t i = 0; i < m->num_configs; i++) {
    for (size_t j = 0; j < m->configs[i].num_nodes; j++) {
      if (model_first(&m->nodes[i][j]) < oldest) oldest = model_first(&m->nodes[i][j]);
    }
  }
  return -(int64_t)oldest;
}

static inline bool model_tests(const rv_condition *condition, int64_t value)
{
  bool yes = condition->test == RV_CONDITION_TEST_EQ   ? value == condition->value
             : condition->test == RV_CONDITION_TEST_GE ? value >= condition->value
                                                       : value % condition->mod == condition->value;
  return yes != condition->inverse;
}

/* Could the config be applied one day? Conditions are of small numbers, so trying some hundred decides it. */
static inline bool model_possible(const pattern_model *m, size_t i)
{
  const rv_pattern_config *config = &m->configs[i];
  int64_t reach = 0;
  for (size_t j = 0; j < config->num_nodes; j++) {
    if (-model_first(&m->nodes[i][j]) > reach) reach = -model_first(&m->nodes[i][j]);
  }
  for (size_t j = 0; j < config->num_conditions; j++) {
    const rv_condition *thing = &m->conditions[i][j];
    if (thing->of == RV_CONDITION_OF_END_EPISODE) continue;
    int64_t low = 0, high = 300;
    if (thing->of == RV_CONDITION_OF_STEPS_SINCE_APPLIED) low = 1;
    if (thing->of == RV_CONDITION_OF_COLUMN) low = -300;
    if (thing->of == RV_CONDITION_OF_BUFFER_LENGTH) {
      low = reach;
      high = model_window(m);
    }
    bool met = false;
    for (int64_t value = low; value <= high && !met; value++) {
      met = true;
      for (size_t k = 0; k < config->num_conditions; k++) {
        const rv_condition *other = &m->conditions[i][k];
        bool same = other->of == thing->of && (thing->of != RV_CONDITION_OF_COLUMN || other->column == thing->column);
        met = met && (!same || model_tests(other, value));
      }
    }
    if (!met) return false;
  }
  return true;
}

/* ---- steps ---- */

static inline bool model_holds(const pattern_model *m, size_t i, const rv_condition *condition, bool ending)
{
  int64_t window = model_window(m), value = 0;
  const bool *there = m->there[m->rows - 1];
  switch (condition->of) {
  case RV_CONDITION_OF_STEP_INDEX: value = m->steps - 1; break;
  case RV_CONDITION_OF_STEPS_SINCE_APPLIED: value = m->since[i]; break;
  case RV_CONDITION_OF_BUFFER_LENGTH: value = m->rows < window ? m->rows : window; break;
  case RV_CONDITION_OF_END_EPISODE: return ending;
  default:
    if (!there[condition->column] || condition->column == 1) return false;
    value = (int64_t)m->value[m->rows - 1][condition->column];
  }
  return model_tests(condition, value);
}

/* Fills the item; false if a row is missing. */
static inline bool model_rows(const pattern_model *m, size_t i, model_item *item)
{
  for (size_t j = 0; j < m->configs[i].num_nodes; j++) {
    const rv_pattern_node *node = &m->nodes[i][j];
    int64_t stop = node->has_start ? (node->has_stop ? node->stop : 0) : node->stop + 1;
    item->lengths[j] = 0;
    for (int64_t back = model_first(node); back < stop; back += node->has_step ? node->step : 1) {
      int64_t row = m->rows + back;
      if (row < 0 || !m->there[row][node->column]) return false;
      item->values[j][item->lengths[j]++] = m->value[row][node->column];
    }
  }
  return true;
}

static inline double model_priority(const pattern_model *m, size_t i, const model_item *item)
{
  const rv_pattern_config *config = &m->configs[i];
  if (config->priority.kind == RV_PRIORITY_CONSTANT) return config->priority.constant;
  double greatest = 0, sum = 0, count = 0;
  for (size_t j = 0; j < config->num_nodes; j++) {
    if (m->nodes[i][j].column != 1) continue;
    greatest = sum = count = 0;
    for (size_t k = 0; k < item->lengths[j]; k++) {
      double error = item->values[j][k] < 0 ? -item->values[j][k] : item->values[j][k];
      greatest = error > greatest ? error : greatest;
      sum += error;
      count++;
    }
  }
  return 0.75 * greatest + 0.25 * (sum / count);
}

/* Has the newest row a value in a column that some config refers to? */
static inline bool model_has_values(const pattern_model *m)
{
  const bool *there = m->there[m->rows - 1];
  for (size_t i = 0; i < m->num_configs; i++) {
    for (size_t j = 0; j < m->configs[i].num_nodes; j++) {
      if (there[m->nodes[i][j].column]) return true;
    }
    for (size_t j = 0; j < m->configs[i].num_conditions; j++) {
      if (m->conditions[i][j].of == RV_CONDITION_OF_COLUMN && there[m->conditions[i][j].column]) return true;
    }
  }
  return false;
}

static inline void model_match(pattern_model *m, bool ending)
{
  if (m->steps == 0 || !model_has_values(m)) return;
  for (size_t i = 0; i < m->num_configs; i++) {
    bool due = !m->applied[i];
    for (size_t j = 0; j < m->configs[i].num_conditions; j++) due = due && model_holds(m, i, &m->conditions[i][j], ending);
    assert_true(m->num_items < MODEL_ITEMS);
    model_item *item = &m->items[m->num_items];
    if (!due || !model_rows(m, i, item)) continue;
    item->config = i;
    item->priority = model_priority(m, i, item);
    m->num_items++;
    m->applied[i] = true;
    m->since[i] = 0;
  }
}

/* Cells of one append, and the memory that they point to. */
typedef struct model_step {
  rv_cell cells[MODEL_COLUMNS];
  size_t num_cells;
  bool partial;
  uint8_t data[MODEL_COLUMNS][8];
} model_step;

static inline void model_put(uint8_t *out, int column, double value)
{
  int16_t triple[3] = {(int16_t)value, (int16_t)(value + 1), (int16_t)(value + 2)};
  int32_t number = (int32_t)value;
  float error = (float)value;
  int64_t wide = (int64_t)value;
  switch (column) {
  case 0: memcpy(out, &number, sizeof number); break;
  case 1: memcpy(out, &error, sizeof error); break;
  case 2: memcpy(out, &wide, sizeof wide); break;
  case 3: *out = value != 0; break;
  default: memcpy(out, triple, sizeof triple);
  }
}

static inline double model_new_value(pattern_model *m, int column)
{
  if (column == 1) return ((double)model_below(m, 41) - 20) / 4;
  if (column == 2) return (double)model_below(m, 7) - 2;
  if (column == 3) return (double)model_below(m, 2);
  m->next_value += 1;
  return m->next_value;
}

static inline void model_append(pattern_model *m, model_step *step)
{
  if (!m->open) {
    memset(m->there[m->rows], 0, sizeof m->there[0]);
    m->rows++;
    m->steps++;
  }
  bool counted = model_has_values(m); /* in an earlier part of the step */
  int64_t row = m->rows - 1;
  step->partial = model_below(m, 3) == 0;
  step->num_cells = 0;
  bool calm = model_below(m, 3) > 0; /* every column that is missing, as most steps are */
  for (int i = 0; i < MODEL_COLUMNS; i++) {
    if (m->there[row][i] || (!calm && model_below(m, 2) == 0) || model_below(m, 30) == 0) continue;
    double value = model_new_value(m, i);
    m->there[row][i] = true;
    m->value[row][i] = value;
    model_put(step->data[i], i, value);
    step->cells[step->num_cells++] = (rv_cell){
        .column = (uint32_t)i,
        .value = {.dtype = model_dtypes[i], .rank = i == 4, .shape = i == 4 ? model_shape : NULL, .data = step->data[i]}};
  }
  m->open = step->partial;
  for (size_t i = 0; i < m->num_configs && !counted && model_has_values(m); i++) {
    m->since[i]++;
    m->applied[i] = false;
  }
  model_match(m, false);
}

static inline void model_end_episode(pattern_model *m, bool clear)
{
  model_match(m, true);
  m->steps = 0;
  m->open = false;
  if (clear) m->rows = 0;
}

#endif
