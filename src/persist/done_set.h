/* Which of a writer's numbered items are done: exact, and small where they are done nearly in order, for it keeps runs of
 * numbers. Nothing is locked here: its owner is one at a time. */
#ifndef RV_PERSIST_DONE_SET_H
#define RV_PERSIST_DONE_SET_H

#include "reverie/status.h"

enum { RV_DONE_RUNS_MAX = 100000 };

typedef struct rv_done_run {
  uint64_t first, last;
} rv_done_run;

typedef struct rv_done_set {
  rv_done_run *runs; /* ascending, with at least one missing number between two */
  size_t count, capacity;
} rv_done_set;

void rv_done_set_init(rv_done_set *set);
void rv_done_set_fini(rv_done_set *set);
bool rv_done_set_has(const rv_done_set *set, uint64_t number);
/* RV_RESOURCE_EXHAUSTED: more than RV_DONE_RUNS_MAX runs, or no memory; the set is as it was. */
rv_code rv_done_set_add(rv_done_set *set, uint64_t number, rv_error *err);
/* Drops the first so many runs; returns the last number of them, 0: none. */
uint64_t rv_done_set_drop_first(rv_done_set *set, size_t runs);
/* A run behind all that are in. RV_INVALID_ARGUMENT: it is none, or not behind them. */
rv_code rv_done_set_append(rv_done_set *set, uint64_t first, uint64_t last, rv_error *err);
/* A copy, into a set that has nothing yet. */
rv_code rv_done_set_copy(rv_done_set *set, const rv_done_set *from, rv_error *err);

#endif
