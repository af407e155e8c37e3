/* Patterns: which rows of a stream of steps make an item, and when.
 *
 * A config lists nodes, one for each column of the items it makes: rows of one of the steps' columns, counted from the newest.
 * Whenever a step was appended, wholly or in part, each config is looked at in turn; it is applied, at most once a step, if
 * all its conditions hold and all its rows are there. (A step without a value in any column that some config refers to is a
 * row like others, but nothing is looked at in it.) rv_patterns does just that and hands the items to a sink: it keeps which
 * rows there are, not the rows themselves. rv_structured_writer (reverie/structured_writer.h) is one with a writer under it. */
#ifndef REVERIE_PATTERNS_H
#define REVERIE_PATTERNS_H

#include "reverie/writer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows that a pattern may reach back, and so the longest history that it asks for. */
#define RV_PATTERN_MAX_ROWS (1 << 24)

/* Rows of one column. -1 is the newest row, -2 the one before it. With `start`: rows start, start + step ... below `stop` (0
 * or not given: up to the newest). Without: the one row `stop`, which is read without the time dimension. */
typedef struct rv_pattern_node {
  int32_t column; /* of the steps, >= 0 */
  bool has_start, has_stop, has_step;
  int32_t start; /* < 0 */
  int32_t stop;  /* <= 0 and above start; < 0 without start */
  int32_t step;  /* >= 1, only with start; 1 if not given */
} rv_pattern_node;

/* column[row], one row without the time dimension: rv_pattern_row(0, -1) is the newest. */
static inline rv_pattern_node rv_pattern_row(int32_t column, int32_t row)
{
  rv_pattern_node node = {column, false, true, false, 0, row, 0};
  return node;
}
/* column[start:stop:step]; stop 0: up to the newest. rv_pattern_rows(0, -3, 0, 1) is the last three. */
static inline rv_pattern_node rv_pattern_rows(int32_t column, int32_t start, int32_t stop, int32_t step)
{
  rv_pattern_node node = {column, true, stop != 0, true, start, stop, step};
  return node;
}

typedef enum rv_condition_of {
  RV_CONDITION_OF_NOTHING = 0,
  RV_CONDITION_OF_STEP_INDEX = 1,          /* of the newest step in its episode, from 0 */
  RV_CONDITION_OF_STEPS_SINCE_APPLIED = 2, /* of this config; 1 in the first step that is looked at, and after an application */
  RV_CONDITION_OF_BUFFER_LENGTH = 3,       /* rows since the buffers were cleared, at most as many as are kept */
  RV_CONDITION_OF_END_EPISODE = 4,         /* 1 while the episode is being ended, else 0; only to be tested for 1 */
  RV_CONDITION_OF_COLUMN = 5 /* the newest row, one integer or bool; where it is missing or anything else nothing holds */
} rv_condition_of;

typedef enum rv_condition_test {
  RV_CONDITION_TEST_NOTHING = 0,
  RV_CONDITION_TEST_EQ = 1,
  RV_CONDITION_TEST_GE = 2,
  RV_CONDITION_TEST_MOD_EQ = 3 /* the remainder by `mod`, of the sign of what is divided, is `value` */
} rv_condition_test;

typedef struct rv_condition {
  rv_condition_of of;
  int32_t column; /* for RV_CONDITION_OF_COLUMN */
  rv_condition_test test;
  int32_t value;
  int32_t mod;  /* > 0 for RV_CONDITION_TEST_MOD_EQ; `value` is >= 0 then */
  bool inverse; /* holds if the test does not */
} rv_condition;

typedef enum rv_priority_kind { RV_PRIORITY_NONE = 0, RV_PRIORITY_CONSTANT = 1, RV_PRIORITY_TD_ERROR = 2 } rv_priority_kind;

/* RV_PRIORITY_TD_ERROR: max_weight * max|x| + (1 - max_weight) * mean|x| over the item's rows x of `column` (Kapturowski et al.,
 * "Recurrent experience replay in distributed reinforcement learning", 2019, section 2.3); one float32, float64, int32 or int64
 * a row. A column that several nodes refer to: the rows of the last of them. */
typedef struct rv_priority_rule {
  rv_priority_kind kind;
  double constant;
  double max_weight;
  int32_t column;
} rv_priority_rule;

typedef struct rv_pattern_config {
  size_t size; /* sizeof(rv_pattern_config) */
  const char *table;
  const rv_pattern_node *nodes; /* the item's columns, in order */
  size_t num_nodes;
  const rv_condition *conditions; /* all must hold */
  size_t num_conditions;
  rv_priority_rule priority;
  const char *const *names; /* rv_item_column.name of each node; NULL: none */
  uint64_t naming;          /* rv_writer_set_naming */
} rv_pattern_config;

typedef struct rv_patterns rv_patterns;

/* Copies the configs. RV_INVALID_ARGUMENT names the config, the node or condition, and the remedy: rows that cannot be (start
 * >= 0, stop > 0, start >= stop, further back than RV_PATTERN_MAX_ROWS), a step without start, no nodes, no table, no
 * priority, conditions that are incomplete or that no value meets, a TD error of a column that is not in the pattern. */
RV_API rv_code rv_patterns_new(const rv_pattern_config *configs, size_t num_configs, rv_patterns **out, rv_error *err);
RV_API void rv_patterns_free(rv_patterns *patterns);

RV_API size_t rv_patterns_num_configs(const rv_patterns *patterns);
/* How far back the oldest reference of all configs reaches: rows of history that must be kept. */
RV_API uint32_t rv_patterns_window(const rv_patterns *patterns);
/* The same for one column; 0: no node refers to it. */
RV_API uint32_t rv_patterns_column_window(const rv_patterns *patterns, uint32_t column);
/* The column's name in error messages. Copied; nothing happens for a column that no config refers to. */
RV_API rv_code rv_patterns_name_column(rv_patterns *patterns, uint32_t column, const char *name, rv_error *err);
/* RV_INVALID_ARGUMENT: a config refers to a column that steps of so many columns do not have. */
RV_API rv_code rv_patterns_check_columns(const rv_patterns *patterns, size_t num_columns, rv_error *err);

/* An item that a config asks for. Everything in it belongs to the patterns and is valid until the sink returns. */
typedef struct rv_pattern_item {
  size_t config;
  const char *table;
  double priority;
  const rv_item_column *columns; /* one run each; rows are numbered as in rv_run, the newest is rv_patterns_num_rows - 1 */
  size_t num_columns;
  uint64_t naming;
} rv_pattern_item;

typedef rv_code (*rv_pattern_sink)(void *context, const rv_pattern_item *item, rv_error *err);

/* Adds the cells to the open step and, unless `partial_step`, closes it; then gives the sink the items of every config that is
 * applied, in the order of the configs. Cells of columns that nobody refers to are passed over. RV_INVALID_ARGUMENT (another
 * dtype or shape than the column's first cell, no TD error) and RV_FAILED_PRECONDITION (a column's second cell in one step):
 * nothing was added. A sink's first error is returned when all configs were looked at; the config counts as applied all the
 * same. */
RV_API rv_code rv_patterns_append(rv_patterns *patterns, const rv_cell *cells, size_t num_cells, bool partial_step,
                                  rv_pattern_sink sink, void *context, rv_error *err);
/* Looks at every config that was not applied in the newest step once more, now at the end of the episode, and begins a new
 * one; with clear_buffers no pattern reaches back across it. An open step is closed. Without steps since the last one nothing
 * is looked at. */
RV_API rv_code rv_patterns_end_episode(rv_patterns *patterns, bool clear_buffers, rv_pattern_sink sink, void *context,
                                       rv_error *err);

RV_API int64_t rv_patterns_num_rows(const rv_patterns *patterns); /* since buffers were cleared, incl. an open step */
RV_API bool rv_patterns_step_is_open(const rv_patterns *patterns);

#ifdef __cplusplus
}
#endif
#endif
