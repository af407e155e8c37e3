/* Which of a writer's numbered items are done: exact, and small where they are done nearly in order, for it keeps runs of
 * numbers. They stand in blocks, so that one more costs little wherever it goes. Nothing is locked here: the owner of a set is one at
 * a time. */
#ifndef RV_PERSIST_DONE_SET_H
#define RV_PERSIST_DONE_SET_H

#include <stdatomic.h>

#include "reverie/status.h"

enum {
  RV_DONE_RUNS_MAX = 100000,       /* of one set, */
  RV_DONE_RUNS_OWN = 1024,         /* which may have so many while sets of one account have no more than */
  RV_DONE_RUNS_ALL = 4 * (1 << 20) /* together: 64 MiB, twice as much at worst */
};

typedef struct rv_done_run {
  uint64_t first, last;
} rv_done_run;

typedef struct rv_done_block {
  rv_done_run *runs;
  uint32_t count, capacity;
} rv_done_block;

typedef struct rv_done_set {
  rv_done_block *blocks; /* ascending, as their runs are, with at least one missing number between two; none is empty */
  size_t num_blocks, blocks_capacity;
  size_t count;           /* runs */
  atomic_size_t *account; /* runs of all sets that share it; NULL: it has none */
} rv_done_set;

/* Where a walk over all runs is; begin with zeros. */
typedef struct rv_done_place {
  size_t block, run;
} rv_done_place;

/* The account, if any, outlives the set. */
void rv_done_set_init(rv_done_set *set, atomic_size_t *account);
/* Its account is somewhere else now, as it was. */
static inline void rv_done_set_move_account(rv_done_set *set, atomic_size_t *account)
{
  set->account = account;
}
/* What it had is gone; it may be used again. */
void rv_done_set_fini(rv_done_set *set);
bool rv_done_set_has(const rv_done_set *set, uint64_t number);
/* Can no further run be in it? Numbers that join one still can. */
bool rv_done_set_is_full(const rv_done_set *set);
/* RV_RESOURCE_EXHAUSTED: it is full, or no memory; the set is as it was. */
rv_code rv_done_set_add(rv_done_set *set, uint64_t number, rv_error *err);
/* Drops the first so many runs; returns the last number of them, 0: none. */
uint64_t rv_done_set_drop_first(rv_done_set *set, size_t runs);
/* A run behind all that are in. RV_INVALID_ARGUMENT: it is none, or not behind them. */
rv_code rv_done_set_append(rv_done_set *set, uint64_t first, uint64_t last, rv_error *err);
/* A copy, into a set that has nothing yet. */
rv_code rv_done_set_copy(rv_done_set *set, const rv_done_set *from, rv_error *err);
/* The next run, ascending; false: there is none. */
bool rv_done_set_next(const rv_done_set *set, rv_done_place *place, rv_done_run *out);

#endif
