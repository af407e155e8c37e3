/* One table as it was at one moment, read in slices while everybody else goes on.
 *
 * Beginning costs the table no more than a look; its items are then walked in the order of insertion, a slice in each hold of the
 * lock. An item not yet walked that changes has its priority and times_sampled put aside first, and one that goes is put aside
 * whole (its rows stay in memory until they were read): constant time for whoever changes it, 16 bytes for each item changed and
 * about 100 for each that went. Items that come later are not in it. A table has at most one snapshot at a time; whoever has it
 * keeps the store alive, and one thread uses it. */
#ifndef RV_STORE_SNAPSHOT_H
#define RV_STORE_SNAPSHOT_H

#include "store/rate_limiter.h"
#include "store/table.h"
#include "store/trajectory.h"

typedef struct rv_snapshot rv_snapshot;

/* Of that moment. Strings are the table's. */
typedef struct rv_snapshot_head {
  const char *name;
  rv_selector_config sampler, remover;
  int64_t max_size, max_bytes; /* max_bytes 0: none */
  int32_t max_times_sampled;
  const rv_signature *signature; /* num_specs 0: none */
  rv_rate_limiter limiter;       /* configuration and counters */
  int64_t num_items, num_deleted_episodes, num_unique_samples;
  uint64_t naming; /* of all items; 0: they differ, or nobody said */
} rv_snapshot_head;

/* RV_FAILED_PRECONDITION: the table has a snapshot already. */
rv_code rv_snapshot_new(rv_table *table, rv_snapshot **out, rv_error *err);
/* At any time: the rest is then not read. NULL is fine. Drops what is left with its rows: not under a lock. */
void rv_snapshot_free(rv_snapshot *snapshot);

const rv_snapshot_head *rv_snapshot_get_head(const rv_snapshot *snapshot);
/* The next items in the order of insertion: at least one, borrowed until the next call. None at the end. Probability, table_size
 * and the like are not set. RV_RESOURCE_EXHAUSTED: memory was out when something had to be put aside; the snapshot is no good. */
rv_code rv_snapshot_next(rv_snapshot *snapshot, const rv_draw **items, size_t *count, rv_error *err);

#endif
