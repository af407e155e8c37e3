/* The patterns behind the opaque rv_patterns, compiled, and what their files share.
 *
 *   patterns.c         life; configs into what a step needs
 *   patterns_check.c   configs that cannot be applied
 *   patterns_contradict.c  conditions that no value meets
 *   patterns_source.c  cells of the columns that somebody refers to: which rows there are, and the few values that are read
 *   patterns_match.c   steps: which configs are applied, and their items
 *
 * A step costs no allocation: rings and runs are made with the configs. */
#ifndef RV_CLIENT_PATTERNS_H
#define RV_CLIENT_PATTERNS_H

#include "reverie/patterns.h"

enum { RV_COMPLAINT_MAX = 256 };

/* A column that some config refers to. */
typedef struct rv_pattern_source {
  uint32_t column;
  char *name;             /* NULL: called by its number */
  uint32_t window;        /* rows that nodes reach back; 0: only conditions refer to it */
  bool read_integer;      /* by a condition */
  bool read_number;       /* by a TD error */
  uint32_t mask;          /* of the rings, whose size is a power of two */
  uint8_t *present;       /* ring: is there such a row? */
  double *numbers;        /* ring; NULL without read_number */
  int64_t last_missing;   /* newest row that is not there; -1 */
  int64_t missing_before; /* what that was before the open step */
  bool has_integer;       /* the newest row is one: */
  int64_t integer;
  uint64_t mark; /* of the step that has a cell for it */
  /* The first cell's. */
  bool known;
  rv_dtype dtype;
  uint32_t rank;
  int64_t shape[RV_MAX_RANK];
} rv_pattern_source;

typedef struct rv_pattern_span {
  uint32_t source;
  int32_t start; /* the first row, counted from the newest + 1 */
  uint32_t count, step;
} rv_pattern_span;

/* A config, compiled. */
typedef struct rv_pattern {
  char *table;
  char **names; /* NULL: none */
  uint64_t naming;
  size_t num_nodes;
  rv_pattern_span *rows; /* of each node */
  rv_run *runs;
  rv_item_column *columns; /* one run each */
  uint32_t reach;          /* rows back to the oldest reference */
  size_t num_conditions;
  rv_condition *conditions; /* `column` is a source's number */
  rv_priority_rule priority;
  size_t priority_node; /* whose rows a TD error reads */
  int64_t since_applied;
  bool applied; /* in this step */
} rv_pattern;

struct rv_patterns {
  size_t num_patterns;
  rv_pattern *patterns;
  uint32_t num_sources, num_columns;
  rv_pattern_source *sources;
  uint32_t *source_of; /* by column, up to the last that somebody refers to; UINT32_MAX: nobody does */
  uint32_t window;
  int64_t num_rows;   /* since buffers were cleared, incl. an open step */
  int64_t step_index; /* of the newest step; -1: none in this episode */
  bool step_open;
  bool step_has_values; /* the newest step, in a column that somebody refers to */
  uint64_t serial;
  char complaint[RV_COMPLAINT_MAX]; /* what should be said once, and by whoever has a log; "" if nothing */
};

/* ---- patterns_check.c, patterns_contradict.c ---- */

/* RV_INVALID_ARGUMENT: the config cannot be applied, whatever the others are. */
rv_code rv_pattern_config_check(const rv_pattern_config *config, size_t position, rv_error *err);
/* RV_INVALID_ARGUMENT: no value meets all conditions on one thing. `reach` and `window` bound the buffer's length. */
rv_code rv_conditions_check(const rv_pattern_config *config, size_t position, uint32_t reach, uint32_t window, rv_error *err);
/* RV_INVALID_ARGUMENT, "Invalid configuration at position 1 (table "replay"): ..." */
rv_code rv_fail_pattern(rv_error *err, size_t position, const char *table, const char *format, ...) RV_PRINTF(4, 5);
/* Rows from the oldest that the node refers to up to the newest. */
uint32_t rv_pattern_node_reach(const rv_pattern_node *node);
bool rv_condition_holds(const rv_condition *condition, int64_t value);

/* ---- patterns_source.c ---- */

static inline rv_pattern_source *rv_patterns_source(const rv_patterns *patterns, uint32_t column)
{
  uint32_t source = column < patterns->num_columns ? patterns->source_of[column] : UINT32_MAX;
  return source == UINT32_MAX ? NULL : &patterns->sources[source];
}
/* Makes the rings. */
rv_code rv_pattern_source_begin(rv_pattern_source *source, rv_error *err);
void rv_pattern_source_fini(rv_pattern_source *source);
/* The row is the newest and has no cell yet. */
void rv_pattern_source_add_row(rv_pattern_source *source, int64_t row);
/* It has one now, which was checked. */
void rv_pattern_source_put(rv_patterns *patterns, rv_pattern_source *source, const rv_tensor *value, int64_t row);
/* Are all of the node's rows there? `first` is the number of the first. */
bool rv_pattern_source_has(const rv_pattern_source *source, const rv_pattern_span *rows, int64_t first);
double rv_pattern_source_td_error(const rv_pattern_source *source, const rv_pattern_span *rows, int64_t first, double weight);

/* ---- steps, in the pieces that a writer needs (patterns_match.c) ---- */

/* May these cells join the open step, or be a new one? Changes nothing. */
rv_code rv_patterns_check(rv_patterns *patterns, const rv_cell *cells, size_t num_cells, rv_error *err);
/* They do; they were checked. */
void rv_patterns_take(rv_patterns *patterns, const rv_cell *cells, size_t num_cells, bool partial_step);
/* Applies what is due. */
rv_code rv_patterns_match(rv_patterns *patterns, bool end_episode, rv_pattern_sink sink, void *context, rv_error *err);
void rv_patterns_begin_episode(rv_patterns *patterns, bool clear_buffers);

#endif
