/* One table as it was at one moment, read in slices while everybody else goes on.
 *
 * Beginning costs the table no more than a look; its items are then walked in the order of insertion, a slice in each hold of the
 * lock. An item not yet walked that changes has its priority and times_sampled put aside first, and one that goes is put aside
 * whole (its rows stay in memory until they were read): constant time for whoever changes it, 16 bytes for each item changed and
 * about 100 for each that went. Items that come later are not in it. A table has at most one snapshot at a time; whoever has it
 * keeps the store alive, and one thread uses it.
 *
 * The order of what is read is that of insertion, whatever goes. So that rows of items that went do not stay in memory until their turn
 * comes, whoever reads may write such an item at once (rv_snapshot_write_early); in its turn it is then given as what was written. */
#ifndef RV_STORE_SNAPSHOT_H
#define RV_STORE_SNAPSHOT_H

#include "base/buf.h"
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
 * and the like are not set; naming is where the head has none. RV_RESOURCE_EXHAUSTED: memory was out when something had to be put aside; the snapshot is no good. */
rv_code rv_snapshot_next(rv_snapshot *snapshot, const rv_draw **items, size_t *count, rv_error *err);

/* Makes *record (the snapshot's from then on) of an item whose turn has not come, which lets go of its trajectory and rows. */
typedef rv_code (*rv_snapshot_put)(void *context, const rv_draw *item, rv_buf **record, rv_error *err);
/* Before the first item is read: calls it from rv_snapshot_next and rv_snapshot_gather; their error is its. */
void rv_snapshot_write_early(rv_snapshot *snapshot, rv_snapshot_put put, void *context);
/* Of the items that rv_snapshot_next gave last, each one's record; NULL: it was not written early. An item with a record has neither
 * trajectory nor chunk. Borrowed as they are. */
rv_buf *const *rv_snapshot_records(const rv_snapshot *snapshot);
/* Takes over the items that went, and has them written early; for a snapshot that is not read just now, while another one is. */
rv_code rv_snapshot_gather(rv_snapshot *snapshot, rv_error *err);

#endif
