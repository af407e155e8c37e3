/* A tree of sums over weights by slot, eight children a node, from which a slot is drawn in proportion to its weight.
 *
 * A node is always computed anew from its children, never adjusted by a difference, so that it is right after any number of
 * changes. The eight children of a node fill one cache line; each level stands in a segmented array of its own. Draws and
 * changes in batches go level by level, so that the memory of many is waited for together. */
#ifndef RV_STORE_SELECTORS_SUM_TREE_H
#define RV_STORE_SELECTORS_SUM_TREE_H

#include "base/random.h"
#include "base/segarray.h"

enum { RV_TREE_SHIFT = 3, RV_TREE_FANOUT = 1 << RV_TREE_SHIFT, RV_TREE_LEVELS = 12 };

typedef struct rv_sum_tree {
  rv_segarray level[RV_TREE_LEVELS]; /* doubles; 0: the leaves */
  uint32_t top;                      /* the level with a single node, the root */
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
/* Only while the total is positive. A slot of weight zero is never drawn. `weights`: those of the slots drawn. */
void rv_sum_tree_draw(const rv_sum_tree *tree, rv_random *random, size_t n, uint32_t *slots, double *weights);

static inline double rv_sum_tree_total(const rv_sum_tree *tree)
{
  const rv_segarray *root = &tree->level[tree->top];
  return root->length > 0 ? *RV_SEGARRAY_AT(root, double, 0) : 0;
}

static inline double rv_sum_tree_get(const rv_sum_tree *tree, uint32_t slot)
{
  return *RV_SEGARRAY_AT(&tree->level[0], double, slot);
}

size_t rv_sum_tree_memory(const rv_sum_tree *tree);

#endif
