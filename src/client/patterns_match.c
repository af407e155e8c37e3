/* Steps: which configs are applied, and their items. */
#include <string.h>

#include "base/error.h"
#include "client/patterns.h"
#include "store/signature.h"

/* ---- what a step may be ---- */

static rv_code fail_cell(const rv_pattern_source *source, rv_code code, const char *what, const char *why, rv_error *err)
{
  if (source->name == NULL) return rv_fail(err, code, "%s for column %u: %s", what, (unsigned)source->column, why);
  return rv_fail(err, code, "%s for column %u (path=%.120s): %s", what, (unsigned)source->column, source->name, why);
}

static bool is_same_shape(const rv_pattern_source *source, const rv_tensor *value)
{
  return source->rank == value->rank &&
         (value->rank == 0 || memcmp(source->shape, value->shape, value->rank * sizeof *value->shape) == 0);
}

static rv_code fail_kind(const rv_pattern_source *source, const rv_tensor *value, rv_error *err)
{
  char got[96], want[96];
  rv_error why;
  rv_fail(&why, RV_INVALID_ARGUMENT, "got %s, its first row was %s",
          rv_format_spec(got, sizeof got, value->dtype, (int32_t)value->rank, value->shape),
          rv_format_spec(want, sizeof want, source->dtype, (int32_t)source->rank, source->shape));
  const char *what = source->dtype != value->dtype ? "wrong dtype" : "incompatible shape";
  return fail_cell(source, RV_INVALID_ARGUMENT, what, why.message, err);
}

static rv_code fail_td_error(const rv_pattern_source *source, const rv_tensor *value, rv_error *err)
{
  char got[96];
  rv_format_spec(got, sizeof got, value->dtype, (int32_t)value->rank, value->shape);
  rv_code code = fail_cell(source, RV_INVALID_ARGUMENT, "wrong kind of row", got, err);
  rv_error_prefix(err, "TD Error needs one float32, float64, int32 or int64 a row");
  return code;
}

static bool is_td_error(const rv_tensor *value)
{
  for (uint32_t d = 0; d < value->rank; d++) {
    if (value->shape[d] != 1) return false;
  }
  return value->data != NULL &&
         (value->dtype == RV_FLOAT32 || value->dtype == RV_FLOAT64 || value->dtype == RV_INT32 || value->dtype == RV_INT64);
}

static bool has_elements(const rv_tensor *value)
{
  for (uint32_t d = 0; d < value->rank; d++) {
    if (value->shape[d] == 0) return false;
  }
  return true;
}

static rv_code check_cell(const rv_patterns *patterns, const rv_pattern_source *source, const rv_tensor *value, rv_error *err)
{
  if (value->rank > RV_MAX_RANK || (value->rank > 0 && value->shape == NULL))
    return fail_cell(source, RV_INVALID_ARGUMENT, "bad shape", "more than 32 dimensions, or no sizes", err);
  if (source->known && (source->dtype != value->dtype || !is_same_shape(source, value))) return fail_kind(source, value, err);
  if (value->data == NULL && has_elements(value))
    return fail_cell(source, RV_INVALID_ARGUMENT, "no data", "the cell has elements", err);
  if (!source->known && source->read_number && !is_td_error(value)) return fail_td_error(source, value, err);
  bool open_row_has_it = patterns->step_open && source->present[(uint64_t)(patterns->num_rows - 1) & source->mask] != 0;
  if (source->mark == patterns->serial || open_row_has_it)
    return fail_cell(source, RV_FAILED_PRECONDITION, "a second value",
                     "it has already been set, and cannot be provided by multiple appends to one step; close the step first",
                     err);
  return RV_OK;
}

rv_code rv_patterns_check(rv_patterns *patterns, const rv_cell *cells, size_t num_cells, rv_error *err)
{
  patterns->serial++;
  for (size_t i = 0; i < num_cells; i++) {
    rv_pattern_source *source = rv_patterns_source(patterns, cells[i].column);
    if (source == NULL) continue;
    rv_code code = check_cell(patterns, source, &cells[i].value, err);
    if (code != RV_OK) return code;
    source->mark = patterns->serial;
  }
  return RV_OK;
}

/* ---- steps ---- */

static void begin_step(rv_patterns *patterns)
{
  int64_t row = patterns->num_rows++;
  patterns->step_index++;
  patterns->step_has_values = false;
  for (uint32_t i = 0; i < patterns->num_sources; i++) rv_pattern_source_add_row(&patterns->sources[i], row);
}

/* The step has its first value: from here on configs are looked at, and it counts for them. */
static void begin_looking(rv_patterns *patterns)
{
  patterns->step_has_values = true;
  for (size_t i = 0; i < patterns->num_patterns; i++) {
    patterns->patterns[i].since_applied++;
    patterns->patterns[i].applied = false;
  }
}

void rv_patterns_take(rv_patterns *patterns, const rv_cell *cells, size_t num_cells, bool partial_step)
{
  if (!patterns->step_open) begin_step(patterns);
  patterns->step_open = partial_step;
  for (size_t i = 0; i < num_cells; i++) {
    rv_pattern_source *source = rv_patterns_source(patterns, cells[i].column);
    if (source == NULL) continue;
    rv_pattern_source_put(patterns, source, &cells[i].value, patterns->num_rows - 1);
    if (!patterns->step_has_values) begin_looking(patterns);
  }
}

void rv_patterns_begin_episode(rv_patterns *patterns, bool clear_buffers)
{
  patterns->step_open = false;
  patterns->step_index = -1;
  if (!clear_buffers) return;
  patterns->num_rows = 0;
  for (uint32_t i = 0; i < patterns->num_sources; i++) patterns->sources[i].last_missing = -1;
}

/* ---- configs ---- */

static bool condition_holds(const rv_patterns *patterns, const rv_pattern *pattern, const rv_condition *condition,
                            bool end_episode)
{
  int64_t value = 0;
  switch (condition->of) {
  case RV_CONDITION_OF_STEP_INDEX: value = patterns->step_index; break;
  case RV_CONDITION_OF_STEPS_SINCE_APPLIED: value = pattern->since_applied; break;
  case RV_CONDITION_OF_BUFFER_LENGTH:
    value = patterns->num_rows < patterns->window ? patterns->num_rows : (int64_t)patterns->window;
    break;
  case RV_CONDITION_OF_END_EPISODE: return end_episode;
  case RV_CONDITION_OF_COLUMN: {
    const rv_pattern_source *source = &patterns->sources[condition->column];
    if (!source->has_integer) return false;
    value = source->integer;
    break;
  }
  case RV_CONDITION_OF_NOTHING: return false;
  }
  return rv_condition_holds(condition, value);
}

static bool is_due(const rv_patterns *patterns, const rv_pattern *pattern, bool end_episode)
{
  if (pattern->applied || patterns->num_rows < pattern->reach) return false;
  for (size_t i = 0; i < pattern->num_conditions; i++) {
    if (!condition_holds(patterns, pattern, &pattern->conditions[i], end_episode)) return false;
  }
  for (size_t i = 0; i < pattern->num_nodes; i++) {
    const rv_pattern_span *rows = &pattern->rows[i];
    if (!rv_pattern_source_has(&patterns->sources[rows->source], rows, patterns->num_rows + rows->start)) return false;
  }
  return true;
}

static rv_code apply(rv_patterns *patterns, size_t position, rv_pattern_sink sink, void *context, rv_error *err)
{
  rv_pattern *pattern = &patterns->patterns[position];
  for (size_t i = 0; i < pattern->num_nodes; i++) pattern->runs[i].first = patterns->num_rows + pattern->rows[i].start;
  rv_pattern_item item = {.config = position,
                          .table = pattern->table,
                          .priority = pattern->priority.constant,
                          .columns = pattern->columns,
                          .num_columns = pattern->num_nodes,
                          .naming = pattern->naming};
  if (pattern->priority.kind == RV_PRIORITY_TD_ERROR) {
    size_t node = pattern->priority_node;
    item.priority = rv_pattern_source_td_error(&patterns->sources[pattern->rows[node].source], &pattern->rows[node],
                                               pattern->runs[node].first, pattern->priority.max_weight);
  }
  pattern->applied = true;
  pattern->since_applied = 0;
  return sink(context, &item, err);
}

rv_code rv_patterns_match(rv_patterns *patterns, bool end_episode, rv_pattern_sink sink, void *context, rv_error *err)
{
  rv_code first = RV_OK;
  if (patterns->step_index < 0 || !patterns->step_has_values) return RV_OK; /* no step in this episode, or an empty one */
  for (size_t i = 0; i < patterns->num_patterns; i++) {
    if (!is_due(patterns, &patterns->patterns[i], end_episode)) continue;
    rv_code code = apply(patterns, i, sink, context, first == RV_OK ? err : NULL);
    if (first == RV_OK) first = code;
  }
  return first;
}

/* ---- for those who keep rows themselves ---- */

rv_code rv_patterns_append(rv_patterns *patterns, const rv_cell *cells, size_t num_cells, bool partial_step, rv_pattern_sink sink,
                           void *context, rv_error *err)
{
  rv_code code = rv_patterns_check(patterns, cells, num_cells, err);
  if (code != RV_OK) return code;
  rv_patterns_take(patterns, cells, num_cells, partial_step);
  return rv_patterns_match(patterns, false, sink, context, err);
}

rv_code rv_patterns_end_episode(rv_patterns *patterns, bool clear_buffers, rv_pattern_sink sink, void *context, rv_error *err)
{
  rv_code code = rv_patterns_match(patterns, true, sink, context, err);
  rv_patterns_begin_episode(patterns, clear_buffers);
  return code;
}
