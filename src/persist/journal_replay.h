/* The journal's groups, made again in the store that a checkpoint left. */
#ifndef RV_PERSIST_JOURNAL_REPLAY_H
#define RV_PERSIST_JOURNAL_REPLAY_H

#include "persist/journal_format.h"
#include "persist/journal_writers.h"
#include "store/store.h"

typedef struct rv_journal_replay rv_journal_replay;

/* What was done, and what could not be. */
typedef struct rv_replay_counts {
  int64_t groups, changes, inserts; /* read; made again */
  int64_t lost_items;               /* inserts whose chunks are missing */
  int64_t unknown;                  /* changes of items that are not there */
  int64_t unnamed;                  /* changes of tables whose names are missing */
  int64_t unfit;                    /* rate limiters for bounds that are missing */
  int64_t not_begun;                /* tables of which nothing was made again */
} rv_replay_counts;

/* Of each table that the checkpoint has (`held`, one a table) only what stands behind its snapshot of that number is made again, of others
 * all; NULL: of every one. Writers are noted in `writers` (borrowed) from the first group on. */
rv_code rv_journal_replay_new(rv_store *store, uint64_t snapshot, const bool *held, rv_journal_writers *writers,
                              rv_journal_replay **out, rv_error *err);
void rv_journal_replay_free(rv_journal_replay *replay);
/* Before the first group of each segment: which tables its numbers mean is in that segment alone. */
void rv_journal_replay_begin_segment(rv_journal_replay *replay);
/* Something is missing here: items behind it are not made of the chunks so far, whose keys may have been used for other rows in it. */
void rv_journal_replay_gap(rv_journal_replay *replay);
/* `lossy`: groups before this one are missing, so that what refers to them may be, too. RV_DATA_LOSS: the records are none. */
rv_code rv_journal_replay_group(rv_journal_replay *replay, rv_span records, bool lossy, rv_error *err);
/* After the last group; what was corrected in the tables is logged. RV_DATA_LOSS: where the journal goes on from a table's checkpoint was
 * not found, so that nothing of it was made again; with `salvage` that is logged, and counted. */
rv_code rv_journal_replay_end(rv_journal_replay *replay, bool salvage, rv_error *err);
const rv_replay_counts *rv_journal_replay_get_counts(const rv_journal_replay *replay);
/* Changes that were read and are lost all the same if no more groups come: of those that are counted, and of tables whose snapshot was not
 * found. Of the latter (*at_most) the checkpoint may have some. */
int64_t rv_journal_replay_lost(const rv_journal_replay *replay, bool *at_most);

#endif
