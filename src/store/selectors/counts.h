/* How many slots are present, by groups of 64 neighbours, in partial sums (Fenwick 1994, "A new data structure for cumulative
 * frequency tables"): to change a group's count, and to find the group of the k-th present slot, takes a logarithm of steps. Four
 * bytes for 64 slots, where a list of the present ones takes eight for each. Which of a group's slots they are its owner knows. */
#ifndef RV_STORE_SELECTORS_COUNTS_H
#define RV_STORE_SELECTORS_COUNTS_H

#include "base/segarray.h"

enum { RV_COUNTED_SHIFT = 6 };

typedef struct rv_counts {
  rv_segarray sums;    /* uint32_t; that of group i is of as many groups, up to i, as the lowest set bit of i + 1 says */
  uint32_t num_groups; /* that were reserved */
} rv_counts;

/* `expected`: slots. */
static inline void rv_counts_init(rv_counts *counts, uint64_t expected)
{
  rv_segarray_init(&counts->sums, sizeof(uint32_t), 0, (expected >> RV_COUNTED_SHIFT) + 1);
  counts->num_groups = 0;
}

static inline void rv_counts_fini(rv_counts *counts)
{
  rv_segarray_fini(&counts->sums);
}

static inline uint32_t *rv_counts_sum(const rv_counts *counts, uint32_t group)
{
  return RV_SEGARRAY_AT(&counts->sums, uint32_t, group);
}

static inline uint32_t rv_counts_width(uint32_t group)
{
  return (group + 1) & (0 - (group + 1));
}

/* Makes the groups up to the slot's exist; new ones count nothing. RV_RESOURCE_EXHAUSTED: nothing has changed. */
static inline rv_code rv_counts_reserve(rv_counts *counts, uint32_t slot, rv_error *err)
{
  uint32_t needed = (slot >> RV_COUNTED_SHIFT) + 1;
  if (needed <= counts->num_groups) return RV_OK;
  if (rv_segarray_grow(&counts->sums, needed, err) != RV_OK) return RV_RESOURCE_EXHAUSTED;
  for (; counts->num_groups < needed; counts->num_groups++) {
    uint32_t group = counts->num_groups, width = rv_counts_width(group), sum = 0;
    for (uint32_t before = 1; before < width; before *= 2) sum += *rv_counts_sum(counts, group - before);
    *rv_counts_sum(counts, group) = sum;
  }
  return RV_OK;
}

/* The slot's group has `change` more: 1, or UINT32_MAX for one less. */
static inline void rv_counts_change(rv_counts *counts, uint32_t slot, uint32_t change)
{
  for (uint32_t group = slot >> RV_COUNTED_SHIFT; group < counts->num_groups; group += rv_counts_width(group))
    *rv_counts_sum(counts, group) += change;
}

/* The group of the k-th present slot, counted from 0; *k becomes its number in the group. There are more than k. */
static inline uint32_t rv_counts_find(const rv_counts *counts, uint32_t *k)
{
  uint32_t group = 0, step = 1; /* groups before `group` are passed */
  while (step <= counts->num_groups / 2) step *= 2;
  for (; step > 0; step /= 2) {
    if (step > counts->num_groups - group) continue;
    uint32_t sum = *rv_counts_sum(counts, group + step - 1);
    if (sum > *k) continue;
    *k -= sum;
    group += step;
  }
  return group;
}

static inline void rv_counts_clear(rv_counts *counts, rv_blocks *garbage)
{
  rv_segarray_clear(&counts->sums, garbage);
  counts->num_groups = 0;
}

static inline size_t rv_counts_memory(const rv_counts *counts)
{
  return rv_segarray_memory(&counts->sums);
}

#endif
