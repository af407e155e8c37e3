/* Steps of a step writer that are of another form than those before them: other columns, or another dtype or shape in one.
 *
 * Such a step may begin a chunk, never join one; and no item has steps of two forms. */
#ifndef RV_CLIENT_STEP_CHANGE_H
#define RV_CLIENT_STEP_CHANGE_H

#include "client/writer.h"

typedef struct rv_step_change {
  int64_t first; /* step of the new form; 0: there is none, all are alike */
  size_t num_columns, num_before;
  uint32_t column; /* where there are as many as before: the first that is another, */
  bool other_dtype;
  char spec[96], spec_before[96]; /* its rows now and before: "float32[3]" */
} rv_step_change;

/* False: the step of these cells is like those before it, which have `num_before` columns (0: there are none), or no step could be like it, which
 * the writer says. */
bool rv_step_change_find(const rv_writer *writer, const rv_cell *cells, size_t num_cells, size_t num_before, rv_step_change *out);
/* What the columns are called (rv_step_writer_name_columns). */
typedef struct rv_step_names {
  const char *const *name;
  size_t count;
} rv_step_names;
/* RV_INVALID_ARGUMENT: it would join a chunk of `length` steps that has `steps`. */
rv_code rv_step_change_fail_within_chunk(const rv_step_change *change, uint32_t steps, uint32_t length,
                                         const rv_step_names *names, rv_error *err);
/* RV_INVALID_ARGUMENT: an item of the last `num_timesteps` of `num_rows` steps reaches back over it. */
rv_code rv_step_change_fail_across(const rv_step_change *change, uint32_t num_timesteps, int64_t num_rows,
                                   const rv_step_names *names, rv_error *err);

#endif
