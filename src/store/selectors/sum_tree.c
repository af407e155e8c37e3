#include "store/selectors/sum_tree.h"

#include <math.h>

#include "store/selectors/sum_tree_steps.h"

enum { FEW = 4 };

size_t rv_sum_tree_steps_here(const rv_sum_tree_steps *out[3])
{
  size_t n = 0;
#ifdef RV_SUM_TREE_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("popcnt")) {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) out[n++] = &rv_sum_tree_steps_avx512;
    if (__builtin_cpu_supports("avx2")) out[n++] = &rv_sum_tree_steps_avx2;
  }
#endif
  out[n++] = &rv_sum_tree_steps_plain;
  return n;
}

void rv_sum_tree_init(rv_sum_tree *tree, uint64_t expected)
{
  const rv_sum_tree_steps *steps[3];
  rv_sum_tree_steps_here(steps);
  tree->last_slot = tree->top = 0;
  tree->total = 0;
  tree->steps = steps[0];
  rv_segarray_init(&tree->leaves, sizeof(double), 0, expected);
  for (uint32_t level = 0; level < RV_TREE_LEVELS; level++)
    rv_segarray_init(&tree->groups[level], sizeof(rv_sum_group), 0, (expected >> ((level + 1) * RV_TREE_SHIFT)) + 1);
}

void rv_sum_tree_fini(rv_sum_tree *tree)
{
  rv_segarray_fini(&tree->leaves);
  for (uint32_t level = 1; level < RV_TREE_LEVELS; level++) rv_segarray_fini(&tree->groups[level]);
}

void rv_sum_tree_clear(rv_sum_tree *tree, rv_blocks *garbage)
{
  rv_segarray_clear(&tree->leaves, garbage);
  for (uint32_t level = 1; level < RV_TREE_LEVELS; level++) rv_segarray_clear(&tree->groups[level], garbage);
  tree->last_slot = tree->top = 0;
  tree->total = 0;
}

static rv_code reserve(rv_segarray *array, uint32_t index, rv_error *err)
{
  return index < array->length ? RV_OK : rv_segarray_grow(array, (uint64_t)index + 1, err);
}

rv_code rv_sum_tree_reserve(rv_sum_tree *tree, uint32_t slot, rv_error *err)
{
  uint32_t level = 0;
  if (reserve(&tree->leaves, slot | (RV_TREE_FANOUT - 1), err) != RV_OK) return RV_RESOURCE_EXHAUSTED;
  for (uint32_t group = slot >> RV_TREE_SHIFT; group > 0 || level < tree->top;) {
    group >>= RV_TREE_SHIFT;
    if (reserve(&tree->groups[++level], group, err) != RV_OK) return RV_RESOURCE_EXHAUSTED;
  }
  for (; tree->top < level; tree->top++) { /* what was all becomes the first of eight */
    rv_sum_group *group = rv_sum_tree_group(tree, tree->top + 1, 0);
    group->sum[0] = tree->total;
    for (int i = 0; i < RV_TREE_FANOUT; i++) group->end[i] = INFINITY;
  }
  if (slot > tree->last_slot) tree->last_slot = slot;
  return RV_OK;
}

void rv_sum_tree_set(rv_sum_tree *tree, uint32_t slot, double weight)
{
  tree->steps->set_one(tree, slot, weight);
}

void rv_sum_tree_set_many(rv_sum_tree *tree, const uint32_t *slots, const double *weights, size_t n)
{
  uint32_t index[RV_TREE_BATCH];
  for (size_t i = 0; n < FEW && i < n; i++) rv_sum_tree_set(tree, slots[i], weights[i]);
  for (size_t begin = 0; n >= FEW && begin < n; begin += RV_TREE_BATCH) {
    size_t count = n - begin < RV_TREE_BATCH ? n - begin : RV_TREE_BATCH;
    for (size_t i = 0; i < count; i++) index[i] = slots[begin + i];
    tree->steps->set(tree, count, index, weights + begin);
  }
}

size_t rv_sum_tree_last(const double *c)
{
  size_t chosen = RV_TREE_FANOUT - 1;
  while (chosen > 0 && !(c[chosen] > 0)) chosen--;
  return chosen;
}

void rv_sum_tree_draw(const rv_sum_tree *tree, rv_random *random, size_t n, uint32_t *slots, double *probabilities)
{
  double u[RV_TREE_BATCH];
  for (size_t begin = 0; begin < n; begin += RV_TREE_BATCH) {
    size_t count = n - begin < RV_TREE_BATCH ? n - begin : RV_TREE_BATCH;
    rv_random own = *random; /* in registers */
    for (size_t i = 0; i < count; i++) u[i] = rv_random_unit(&own) * tree->total;
    *random = own;
    tree->steps->draw(tree, count, u, slots + begin, probabilities + begin);
  }
}

size_t rv_sum_tree_memory(const rv_sum_tree *tree)
{
  size_t memory = rv_segarray_memory(&tree->leaves);
  for (uint32_t level = 1; level < RV_TREE_LEVELS; level++) memory += rv_segarray_memory(&tree->groups[level]);
  return memory;
}
