/* The inner loops of the tree of sums, compiled once for each kind of processor that has vectors worth it: sum_tree_plain.c,
 * sum_tree_avx2.c and sum_tree_avx512.c. Each defines STEPS (the name of its table of functions), TARGET (the attribute that
 * names the processor) and the functions below, then includes sum_tree_loops.h. All add in the same order and so come to the
 * same result, to the last bit.
 *
 *   double sum_of(const double *c)                 ((c0 + c1) + (c2 + c3)) + ((c4 + c5) + (c6 + c7))
 *   double ends_of(const double *c, double *end)   the group's ends, from its sums; returns what they come to
 *   double sum_with(double *c, uint32_t lane, double x), double ends_with(double *c, double *end, uint32_t lane, double x)
 *                                                  the same two after c[lane] = x
 *   size_t place_of(const double *end, double *u)  how many ends `u` has reached; *u becomes its distance from the last of them
 *   size_t leaf_of(const double *c, double u)      how many ends of the leaves `c` it has reached
 *
 * Ends are counted, not searched, since nobody could predict the branches. Adding in pairs of pairs,
 *   c0, c0 + c1 = two, two + c2, two + (c2 + c3) = four, four + c4, four + (c4 + c5), four + ((c4 + c5) + c6), ...
 * gives ends that do not decrease, so that a child of weight zero is passed over. Rounding may lead a draw beyond the last end: so
 * the ends that nothing comes after are kept as infinite, and the last child that has a weight takes it. */
#ifndef RV_STORE_SELECTORS_SUM_TREE_STEPS_H
#define RV_STORE_SELECTORS_SUM_TREE_STEPS_H

#include "base/fetches.h"
#include "store/selectors/sum_tree.h"

enum { RV_TREE_BATCH = 256 };

struct rv_sum_tree_steps {
  const char *name;
  /* n <= RV_TREE_BATCH. `u` in [0, total), used up. */
  void (*draw)(const rv_sum_tree *tree, size_t n, double *u, uint32_t *slots, double *probabilities);
  /* n <= RV_TREE_BATCH. `index` comes with the slots and is used up. */
  void (*set)(rv_sum_tree *tree, size_t n, uint32_t *index, const double *weights);
  void (*set_one)(rv_sum_tree *tree, uint32_t slot, double weight);
};

extern const rv_sum_tree_steps rv_sum_tree_steps_plain;
#if defined(__GNUC__) && defined(__x86_64__)
#define RV_SUM_TREE_X86
extern const rv_sum_tree_steps rv_sum_tree_steps_avx2, rv_sum_tree_steps_avx512;
#endif

/* Those that this processor can run, best first; how many. */
size_t rv_sum_tree_steps_here(const rv_sum_tree_steps *out[3]);

/* Groups in use on a level; level 0: of leaves. Some slot was reserved. */
static inline uint32_t rv_sum_tree_width(const rv_sum_tree *tree, uint32_t level)
{
  return (tree->last_slot >> ((level + 1) * RV_TREE_SHIFT)) + 1;
}

/* The last of eight that has a weight. */
size_t rv_sum_tree_last(const double *c);

static inline double *rv_sum_tree_leaves(const rv_sum_tree *tree, uint32_t group)
{
  return RV_SEGARRAY_AT(&tree->leaves, double, group << RV_TREE_SHIFT);
}

static inline rv_sum_group *rv_sum_tree_group(const rv_sum_tree *tree, uint32_t level, uint32_t group)
{
  return RV_SEGARRAY_AT(&tree->groups[level], rv_sum_group, group);
}

#endif
