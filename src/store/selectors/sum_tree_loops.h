/* The loops of sum_tree_steps.h, for the processor that the file which includes this is for. No include guard: it is code. */

#if defined(__GNUC__) && !defined(__clang__)
#define UNROLL _Pragma("GCC unroll 4")
#else
#define UNROLL
#endif

/* ---- drawing ---- */

/* A level of more bytes than this is fetched ahead; the steps below load for themselves where a level is small. */
enum { FETCH_BYTES = 1 << 18 };

/* One level down, for all of a batch. */
TARGET static void descend(const rv_sum_tree *tree, uint32_t level, size_t n, uint32_t *restrict index, double *restrict u)
{
  const rv_sum_group *first = rv_sum_tree_group(tree, level, 0);
  if (tree->groups[level].num_blocks == 1) {
    UNROLL for (size_t i = 0; i < n; i++)
    {
      size_t above = index[i];
      index[i] = (uint32_t)(above * RV_TREE_FANOUT + place_of(first[above].end, &u[i]));
    }
  } else {
    UNROLL for (size_t i = 0; i < n; i++)
    {
      size_t above = index[i];
      index[i] = (uint32_t)(above * RV_TREE_FANOUT + place_of(rv_sum_tree_group(tree, level, index[i])->end, &u[i]));
    }
  }
}

TARGET RV_FETCHES void fetch(const rv_sum_tree *tree, uint32_t level, size_t n, const uint32_t *index)
{
  if (level > 0) {
    if (tree->groups[level].length * sizeof(rv_sum_group) <= FETCH_BYTES) return;
    for (size_t i = 0; i < n; i++) RV_FETCH(rv_sum_tree_group(tree, level, index[i])->end);
  } else {
    if (tree->leaves.length * sizeof(double) <= FETCH_BYTES) return;
    for (size_t i = 0; i < n; i++) RV_FETCH(rv_sum_tree_leaves(tree, index[i]));
  }
}

TARGET static void draw(const rv_sum_tree *tree, size_t n, double *restrict u, uint32_t *restrict slots,
                        double *restrict probabilities)
{
  for (size_t i = 0; i < n; i++) slots[i] = 0;
  for (uint32_t level = tree->top; level > 0; level--) {
    descend(tree, level, n, slots, u);
    fetch(tree, level - 1, n, slots);
  }
  UNROLL for (size_t i = 0; i < n; i++)
  {
    size_t above = slots[i];
    const double *c = rv_sum_tree_leaves(tree, slots[i]);
    size_t child = leaf_of(c, u[i]);
    if (__builtin_expect(child == RV_TREE_FANOUT, 0)) child = rv_sum_tree_last(c);
    slots[i] = (uint32_t)(above * RV_TREE_FANOUT + child);
    probabilities[i] = c[child];
  }
  const double total = tree->total;
  for (size_t i = 0; i < n; i++) probabilities[i] /= total;
}

/* ---- changing ---- */

/* Where a group's sum stands on the next level, whose first block is all that there is if `flat`. */
TARGET static inline double *sum_above(rv_sum_group *const *parents, uint32_t group, bool flat)
{
  uint32_t parent = group >> RV_TREE_SHIFT;
  rv_sum_group *above = flat ? &parents[0][parent] : &parents[parent >> RV_SEGMENT_SHIFT][parent & (RV_SEGMENT_LENGTH - 1)];
  return &above->sum[group & (RV_TREE_FANOUT - 1)];
}

TARGET static inline __attribute__((always_inline)) void compute_these(rv_sum_tree *tree, uint32_t level, const uint32_t *groups,
                                                                       size_t n, bool flat)
{
  rv_sum_group *const *parents = (rv_sum_group *const *)tree->groups[level + 1].block;
  if (level == 0) {
    for (size_t i = 0; i < n; i++) *sum_above(parents, groups[i], flat) = sum_of(rv_sum_tree_leaves(tree, groups[i]));
    return;
  }
  for (size_t i = 0; i < n; i++) {
    rv_sum_group *group = rv_sum_tree_group(tree, level, groups[i]);
    *sum_above(parents, groups[i], flat) = ends_of(group->sum, group->end);
  }
}

TARGET static void compute_some(rv_sum_tree *tree, uint32_t level, const uint32_t *groups, size_t n)
{
  if (tree->groups[level + 1].num_blocks == 1)
    compute_these(tree, level, groups, n, true);
  else
    compute_these(tree, level, groups, n, false);
}

/* The same for all groups of a level that has no more than a batch could change: quicker than to see which it did. */
TARGET static void compute_all(rv_sum_tree *tree, uint32_t level, size_t n)
{
  rv_sum_group *const *parents = (rv_sum_group *const *)tree->groups[level + 1].block; /* one block: a batch is less than that */
  for (uint32_t i = 0; i < n && level == 0; i++) *sum_above(parents, i, true) = sum_of(rv_sum_tree_leaves(tree, i));
  rv_sum_group *groups = level > 0 ? rv_sum_tree_group(tree, level, 0) : NULL;
  for (uint32_t i = 0; i < n && level > 0; i++) *sum_above(parents, i, true) = ends_of(groups[i].sum, groups[i].end);
}

TARGET static void set(rv_sum_tree *tree, size_t n, uint32_t *restrict index, const double *restrict weights)
{
  for (size_t i = 0; i < n; i++) {
    *RV_SEGARRAY_AT(&tree->leaves, double, index[i]) = weights[i];
    index[i] >>= RV_TREE_SHIFT;
  }
  for (uint32_t level = 0; level < tree->top; level++) {
    size_t width = rv_sum_tree_width(tree, level);
    if (width <= n) {
      compute_all(tree, level, width);
      continue;
    }
    compute_some(tree, level, index, n);
    for (size_t i = 0; i < n; i++) index[i] >>= RV_TREE_SHIFT;
  }
  if (tree->top == 0) {
    tree->total = sum_of(rv_sum_tree_leaves(tree, 0));
  } else {
    rv_sum_group *root = rv_sum_tree_group(tree, tree->top, 0);
    tree->total = ends_of(root->sum, root->end);
  }
}

TARGET static void set_one(rv_sum_tree *tree, uint32_t slot, double weight)
{
  uint32_t at = slot >> RV_TREE_SHIFT;
  double sum = sum_with(rv_sum_tree_leaves(tree, at), slot & (RV_TREE_FANOUT - 1), weight);
  for (uint32_t level = 1; level <= tree->top; level++) {
    rv_sum_group *group = rv_sum_tree_group(tree, level, at >> RV_TREE_SHIFT);
    sum = ends_with(group->sum, group->end, at & (RV_TREE_FANOUT - 1), sum);
    at >>= RV_TREE_SHIFT;
  }
  tree->total = sum;
}

const rv_sum_tree_steps STEPS = {.name = NAME, .draw = draw, .set = set, .set_one = set_one};
