#include "store/selectors/sum_tree.h"

enum { BATCH = 256, FEW = 4, BITMAP_NODES = 8192, BITMAP_WORDS = BITMAP_NODES / 64 };

static double *at(const rv_sum_tree *tree, uint32_t level, uint32_t index)
{
  return RV_SEGARRAY_AT(&tree->level[level], double, index);
}

/* The children of a node stand in one cache line of the level below. */
static const double *children(const rv_sum_tree *tree, uint32_t level, uint32_t index)
{
  return at(tree, level - 1, index << RV_TREE_SHIFT);
}

static void recompute(rv_sum_tree *tree, uint32_t level, uint32_t index)
{
  const double *c = children(tree, level, index);
  *at(tree, level, index) = ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7]));
}

void rv_sum_tree_init(rv_sum_tree *tree, uint64_t expected)
{
  tree->top = 0;
  for (uint32_t level = 0; level < RV_TREE_LEVELS; level++)
    rv_segarray_init(&tree->level[level], sizeof(double), 0, (expected >> (level * RV_TREE_SHIFT)) + 1);
}

void rv_sum_tree_fini(rv_sum_tree *tree)
{
  for (uint32_t level = 0; level < RV_TREE_LEVELS; level++) rv_segarray_fini(&tree->level[level]);
}

void rv_sum_tree_clear(rv_sum_tree *tree, rv_blocks *garbage)
{
  for (uint32_t level = 0; level < RV_TREE_LEVELS; level++) rv_segarray_clear(&tree->level[level], garbage);
  tree->top = 0;
}

rv_code rv_sum_tree_reserve(rv_sum_tree *tree, uint32_t slot, rv_error *err)
{
  uint32_t level = 0;
  for (uint32_t index = slot;; index >>= RV_TREE_SHIFT, level++) {
    rv_segarray *nodes = &tree->level[level];
    if (index >= nodes->length && rv_segarray_grow(nodes, (uint64_t)index + 1, err) != RV_OK) return RV_RESOURCE_EXHAUSTED;
    if (level > 0 && index == 0) break;
  }
  for (; tree->top < level; tree->top++) recompute(tree, tree->top + 1, 0);
  return RV_OK;
}

void rv_sum_tree_set(rv_sum_tree *tree, uint32_t slot, double weight)
{
  *at(tree, 0, slot) = weight;
  for (uint32_t level = 1; level <= tree->top; level++) recompute(tree, level, slot >>= RV_TREE_SHIFT);
}

/* Keeps each parent once where the level is small enough for a bitmap. On larger levels two of a batch seldom meet, and to
 * compute a node twice is only a waste. */
static size_t parents(const rv_sum_tree *tree, uint32_t level, uint32_t *index, size_t n)
{
  uint64_t nodes = tree->level[level].length;
  uint64_t seen[BITMAP_WORDS];
  bool few = nodes <= BITMAP_NODES;
  if (few)
    for (size_t i = 0; i < (nodes + 63) / 64; i++) seen[i] = 0;
  size_t kept = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t parent = index[i] >> RV_TREE_SHIFT;
    if (few) {
      uint64_t bit = UINT64_C(1) << (parent & 63);
      if ((seen[parent >> 6] & bit) != 0) continue;
      seen[parent >> 6] |= bit;
    }
    index[kept++] = parent;
  }
  return kept;
}

static void set_batch(rv_sum_tree *tree, const uint32_t *slots, const double *weights, size_t n)
{
  uint32_t index[BATCH];
  for (size_t i = 0; i < n; i++) {
    index[i] = slots[i];
    *at(tree, 0, slots[i]) = weights[i];
  }
  for (uint32_t level = 1; level <= tree->top; level++) {
    n = parents(tree, level, index, n);
    for (size_t i = 0; i < n; i++) recompute(tree, level, index[i]);
  }
}

void rv_sum_tree_set_many(rv_sum_tree *tree, const uint32_t *slots, const double *weights, size_t n)
{
  for (size_t i = 0; n < FEW && i < n; i++) rv_sum_tree_set(tree, slots[i], weights[i]);
  for (size_t begin = 0; n >= FEW && begin < n; begin += BATCH)
    set_batch(tree, slots + begin, weights + begin, n - begin < BATCH ? n - begin : BATCH);
}

/* The child in which `u` falls when the children stand end to end; `u` becomes the offset within it. A child of weight zero has
 * no length. Rounding may leave `u` beyond the last child's end; it then belongs to the last that has a length. */
static uint32_t choose(const double *c, double *u)
{
  double end[RV_TREE_FANOUT];
  end[0] = c[0];
  for (int i = 1; i < RV_TREE_FANOUT; i++) end[i] = end[i - 1] + c[i];
  uint32_t chosen = 0;
  for (int i = 0; i < RV_TREE_FANOUT; i++) chosen += end[i] <= *u;
  if (chosen < RV_TREE_FANOUT) {
    *u = chosen > 0 ? *u - end[chosen - 1] : *u;
    return chosen;
  }
  do chosen--;
  while (chosen > 0 && !(c[chosen] > 0));
  *u = c[chosen];
  return chosen;
}

static void draw_batch(const rv_sum_tree *tree, rv_random *random, size_t n, uint32_t *index, double *weights)
{
  double u[BATCH];
  double total = rv_sum_tree_total(tree);
  for (size_t i = 0; i < n; i++) {
    u[i] = rv_random_unit(random) * total;
    index[i] = 0;
  }
  for (uint32_t level = tree->top; level > 1; level--)
    for (size_t i = 0; i < n; i++) {
      index[i] = index[i] << RV_TREE_SHIFT | choose(children(tree, level, index[i]), &u[i]);
      __builtin_prefetch(children(tree, level - 1, index[i]));
    }
  for (size_t i = 0; i < n; i++) {
    const double *c = children(tree, 1, index[i]);
    uint32_t chosen = choose(c, &u[i]);
    index[i] = index[i] << RV_TREE_SHIFT | chosen;
    weights[i] = c[chosen];
  }
}

void rv_sum_tree_draw(const rv_sum_tree *tree, rv_random *random, size_t n, uint32_t *slots, double *weights)
{
  for (size_t begin = 0; begin < n; begin += BATCH)
    draw_batch(tree, random, n - begin < BATCH ? n - begin : BATCH, slots + begin, weights + begin);
}

size_t rv_sum_tree_memory(const rv_sum_tree *tree)
{
  size_t memory = 0;
  for (uint32_t level = 0; level < RV_TREE_LEVELS; level++) memory += rv_segarray_memory(&tree->level[level]);
  return memory;
}
