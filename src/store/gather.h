/* Whole batches of drawn items at once: copied into contiguous arrays, and released together.
 *
 * The verbs here do what rv_draw_copy_column and rv_draw_release do, item by item, in a fraction of the time: rows of small
 * columns that stand beside each other are read together and fetched ahead, and references to the same chunk are dropped in one
 * step. */
#ifndef RV_STORE_GATHER_H
#define RV_STORE_GATHER_H

#include "base/crew.h"
#include "store/trajectory.h"

/* Writes `column` of n drawn items into out, [n, length, ...row] without gaps (squeezed columns: length 1); items with fewer rows
 * are followed by zeros (strings: {NULL, 0}). Every item must have that column with the same dtype and row shape, and at most
 * `length` rows of it: RV_FAILED_PRECONDITION otherwise; RV_DATA_LOSS where a chunk does not decode, or a spill's disk
 * does not give it back. */
rv_code rv_draws_gather(const rv_draw *draws, size_t n, uint32_t column, int64_t length, void *out, rv_error *err);

/* The same for all columns of the items' one layout in one pass over the items, which for small rows is several times faster.
 * outs[i] may be NULL: column i is left out. */
rv_code rv_draws_gather_all(const rv_draw *draws, size_t n, const int64_t *lengths, void *const *outs, size_t num_columns,
                            rv_error *err);
/* The same with the help of others where the batch is large (512 KiB). */
rv_code rv_draws_gather_together(rv_crew *crew, const rv_draw *draws, size_t n, const int64_t *lengths, void *const *outs,
                                 size_t num_columns, rv_error *err);

/* Around the reading of many draws, some of which may lie in a spill's file: their rows are asked for together where the disk is waited for, in
 * rv_draws_gather_together, too. */
typedef struct rv_cold_reading {
  rv_memory *account; /* NULL: nothing is to be learned from it */
  long before;
} rv_cold_reading;
rv_cold_reading rv_draws_begin_reading(const rv_draw *draws, size_t n);
void rv_draws_end_reading(const rv_cold_reading *reading);

/* Do all its rows lie somewhere as they are? Then to gather it is to copy, and nothing is decoded. */
bool rv_draw_is_raw(const rv_draw *draw);

/* rv_draw_release for each. */
void rv_draws_release(rv_draw *draws, size_t n);

#endif
