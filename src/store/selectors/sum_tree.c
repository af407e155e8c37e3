#include "store/selectors/sum_tree.h"

enum { BATCH = 256, FEW = 4, BITMAP_NODES = 1024 };

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

/* Keeps each parent once where the level is so small that many of a batch meet in one. On larger levels they seldom do, and to
 * compute a node twice is only a waste. */
static size_t parents(const rv_sum_tree *tree, uint32_t level, uint32_t *index, size_t n)
{
  if (tree->level[level].length > BITMAP_NODES) {
    for (size_t i = 0; i < n; i++) index[i] >>= RV_TREE_SHIFT;
    return n;
  }
  uint64_t seen[BITMAP_NODES / 64] = {0};
  size_t kept = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t parent = index[i] >> RV_TREE_SHIFT;
    uint64_t *word = &seen[parent >> 6];
    index[kept] = parent;
    kept += (~*word >> (parent & 63)) & 1U;
    *word |= UINT64_C(1) << (parent & 63);
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

/* Rounding led to a child without length: to the last that has one. */
static uint32_t last_positive(const double *c, double *u)
{
  uint32_t chosen = RV_TREE_FANOUT - 1;
  while (chosen > 0 && !(c[chosen] > 0)) chosen--;
  *u = c[chosen];
  return chosen;
}

/* The child in which `u` falls when the children stand end to end; `u` becomes the offset within it. As many children lie before
 * it as there are ends that `u` has reached: counted, not searched, since nobody could predict the branches. Ends do not
 * decrease, rounded as they are, so that a child of weight zero is passed over; only the last one `u` may reach by rounding. */
static inline uint32_t choose(const double *c, double *u)
{
  double two = c[0] + c[1], four = two + (c[2] + c[3]), six = four + (c[4] + c[5]);
  const double begin[RV_TREE_FANOUT] = {0, c[0], two, two + c[2], four, four + c[4], six, six + c[6]};
  uint32_t chosen = 0;
  for (int i = 1; i < RV_TREE_FANOUT; i++) chosen += *u >= begin[i];
  *u -= begin[chosen];
  return c[chosen] > 0 ? chosen : last_positive(c, u);
}

/* One level down, for all of a batch. */
static void descend(const rv_sum_tree *tree, uint32_t level, uint32_t *restrict index, double *restrict u, size_t n)
{
  if (tree->level[level - 1].num_blocks == 1) { /* the upper levels, which are in the cache */
    const double *nodes = at(tree, level - 1, 0);
    for (size_t i = 0; i < n; i++) index[i] = index[i] << RV_TREE_SHIFT | choose(nodes + (index[i] << RV_TREE_SHIFT), &u[i]);
  } else {
    for (size_t i = 0; i < n; i++) index[i] = index[i] << RV_TREE_SHIFT | choose(children(tree, level, index[i]), &u[i]);
  }
  if (level > 1 && tree->level[level - 2].num_blocks > 1)
    for (size_t i = 0; i < n; i++) __builtin_prefetch(children(tree, level - 1, index[i]));
}

static void draw_batch(const rv_sum_tree *tree, rv_random *random, size_t n, uint32_t *slots, double *weights)
{
  double u[BATCH];
  double total = rv_sum_tree_total(tree);
  for (size_t i = 0; i < n; i++) {
    u[i] = rv_random_unit(random) * total;
    slots[i] = 0;
  }
  for (uint32_t level = tree->top; level > 0; level--) descend(tree, level, slots, u, n);
  for (size_t i = 0; i < n; i++) weights[i] = rv_sum_tree_get(tree, slots[i]);
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
