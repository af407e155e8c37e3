/* Items and counters that a table had elsewhere or before. Into tables that nobody else uses yet: nothing waits, and no limiter is
 * asked. Extensions hear of each item as of an insert. */
#ifndef RV_STORE_RESTORE_H
#define RV_STORE_RESTORE_H

#include "store/table.h"
#include "store/trajectory.h"

typedef struct rv_restored_item {
  uint64_t key;
  double priority;
  int32_t times_sampled;
  int64_t inserted_at_ns;
  rv_trajectory *trajectory; /* borrowed */
} rv_restored_item;

/* The newest item of the table from here on, of this naming (0: of none that was said). The table's signature is not asked: what was saved was let in once.
 * RV_FAILED_PRECONDITION: the table is full, or has the key. RV_INVALID_ARGUMENT: a selector refuses the priority; times_sampled is
 * negative. */
rv_code rv_table_restore_item(rv_table *table, const rv_restored_item *item, uint64_t naming, rv_error *err);

typedef struct rv_restored_counters {
  int64_t inserts, samples, deletes; /* the limiter's */
  int64_t num_deleted_episodes, num_unique_samples;
  uint64_t naming; /* that all items have; 0: they have their own */
} rv_restored_counters;

/* After the items. Counters with which the table would stand still, or believe in items that are not there, are corrected; then
 * `corrected` (capacity > 0) says what was wrong, else it is "". */
void rv_table_restore_counters(rv_table *table, const rv_restored_counters *counters, char *corrected, size_t capacity);

#endif
