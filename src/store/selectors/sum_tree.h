/* A tree of sums over weights by slot, eight children a node, from which a slot is drawn in proportion to its weight.
 *
 * A node is always computed anew from its children, never adjusted by a difference, so that it is right after any number of
 * changes. The eight leaves of a node fill one cache line. Above the leaves a group of eight stands in two: their sums, and where
 * each of them ends when they stand end to end, which is all that a draw looks at. Draws and changes in batches go level by level,
 * so that the memory of many is waited for together. What is done for each of a batch is compiled for several processors
 * (sum_tree_steps.h), to the same result on all. */
#ifndef RV_STORE_SELECTORS_SUM_TREE_H
#define RV_STORE_SELECTORS_SUM_TREE_H

#include "base/random.h"
#include "base/segarray.h"

enum { RV_TREE_SHIFT = 3, RV_TREE_FANOUT = 1 << RV_TREE_SHIFT, RV_TREE_LEVELS = 11 };

/* Eight neighbours of one level above the leaves. */
typedef struct rv_sum_group {
  double sum[RV_TREE_FANOUT];
  double end[RV_TREE_FANOUT]; /* sum[0] + ... + sum[i], or infinite if that is all of them; never below the one before */
} rv_sum_group;

typedef struct rv_sum_tree_steps rv_sum_tree_steps;

typedef struct rv_sum_tree {
  rv_segarray leaves;                 /* doubles by slot */
  rv_segarray groups[RV_TREE_LEVELS]; /* rv_sum_group by level from 1; [0] is not used */
  uint32_t last_slot;                 /* the highest reserved */
  uint32_t top;                       /* the level that is one group; 0: the leaves are */
  double total;
  const rv_sum_tree_steps *steps; /* for this processor */
} rv_sum_tree;

void rv_sum_tree_init(rv_sum_tree *tree, uint64_t expected);
void rv_sum_tree_fini(rv_sum_tree *tree);
/* Makes leaves [0, slot] exist; new ones are 0. RV_RESOURCE_EXHAUSTED: the tree is as it was. */
rv_code rv_sum_tree_reserve(rv_sum_tree *tree, uint32_t slot, rv_error *err);
void rv_sum_tree_clear(rv_sum_tree *tree, rv_blocks *garbage);

/* Weights are finite and not negative. -0.0 is a weight of zero that can be told from a leaf nobody set. */
void rv_sum_tree_set(rv_sum_tree *tree, uint32_t slot, double weight);
/* Where a slot stands twice the last counts. */
void rv_sum_tree_set_many(rv_sum_tree *tree, const uint32_t *slots, const double *weights, size_t n);
/* Only while the total is positive. A slot of weight zero is never drawn. Probabilities: weight / total. */
void rv_sum_tree_draw(const rv_sum_tree *tree, rv_random *random, size_t n, uint32_t *slots, double *probabilities);

static inline double rv_sum_tree_total(const rv_sum_tree *tree)
{
  return tree->total;
}

static inline double rv_sum_tree_get(const rv_sum_tree *tree, uint32_t slot)
{
  return *RV_SEGARRAY_AT(&tree->leaves, double, slot);
}

size_t rv_sum_tree_memory(const rv_sum_tree *tree);

#endif
