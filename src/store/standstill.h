/* Whether inserts and samples of a table can come to wait for each other for ever. This is tried, before the table is made: with each
 * standstill that is found comes a way to it that the table's selectors can take, so a limiter that works is never refused. (Fifo and Lifo have
 * one way; others, also heaps and registered ones, may take any item: their priorities are the users'.)
 *
 * With max_diff - min_diff of at least samples_per_insert + 1 there is none; nor where samples_per_insert is an integer (or one with few
 * binary places) and no balance of inserts and samples that it can come to lies where neither side may proceed. Of others is found:
 * - what is reached within 100,000 inserts and samples, all together, while no item was sampled often enough to go (or each goes with its first
 *   sample);
 * - what is reached within 10,000 where those items are sampled first that were sampled least, or in the sampler's order where it has one
 *   (Fifo, Lifo);
 * - in tables of at most RV_STANDSTILL_FEW items, what any order of sampling and removing reaches that the selectors let happen, within a
 *   bounded search: of each number of inserts and samples, 128 of the tables that there can be by then, and 6,000 altogether.
 * Not found is what lies beyond; of larger tables what only another order reaches; and what deletes by hand, bounds of bytes, or other bounds
 * of a table in use bring about. Who waits in such a table is told that the other side waits, too (rv_rate_limiter_explain). */
#ifndef RV_STORE_STANDSTILL_H
#define RV_STORE_STANDSTILL_H

#include "store/rate_limiter.h"

#define RV_STANDSTILL_FEW 12

typedef struct rv_standstill {
  int64_t inserts, samples; /* so many, and neither side may proceed */
} rv_standstill;

/* True when one is found. Of the table's configuration its limiter is looked at, which passes rv_rate_limiter_check, its max_size, at
 * least min_size_to_sample, max_times_sampled, sampler and remover. */
bool rv_standstill_find(const rv_table_config *table, rv_standstill *found);

#endif
