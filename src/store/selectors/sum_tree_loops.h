/* The loops of sum_tree_steps.h, for the processor that the file which includes this is for. No include guard: it is code. */

/* ---- drawing ---- */

/* A level of more bytes than this is fetched ahead; a smaller one is mostly in the cache. */
enum { FETCH_BYTES = 1 << 18 };

TARGET static inline void descend_one(const rv_sum_group *group, uint32_t *index, double *u)
{
  size_t above = *index, child = place_of(group->end, u);
  if (__builtin_expect(child == RV_TREE_FANOUT, 0)) child = rv_sum_tree_last(group->sum, u);
  *index = (uint32_t)(above * RV_TREE_FANOUT + child);
}

/* One level down, for all of a batch. */
TARGET static void descend(const rv_sum_tree *tree, uint32_t level, size_t n, uint32_t *restrict index, double *restrict u)
{
  if (tree->groups[level].num_blocks == 1) {
    const rv_sum_group *groups = rv_sum_tree_group(tree, level, 0);
    for (size_t i = 0; i < n; i++) descend_one(groups + index[i], &index[i], &u[i]);
  } else {
    for (size_t i = 0; i < n; i++) descend_one(rv_sum_tree_group(tree, level, index[i]), &index[i], &u[i]);
  }
}

TARGET static void fetch(const rv_sum_tree *tree, uint32_t level, size_t n, const uint32_t *index)
{
  if (level > 0) {
    if (tree->groups[level].length * sizeof(rv_sum_group) <= FETCH_BYTES) return;
    for (size_t i = 0; i < n; i++) __builtin_prefetch(rv_sum_tree_group(tree, level, index[i])->end);
  } else {
    if (tree->leaves.length * sizeof(double) <= FETCH_BYTES) return;
    for (size_t i = 0; i < n; i++) __builtin_prefetch(rv_sum_tree_leaves(tree, index[i]));
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
  for (size_t i = 0; i < n; i++) {
    size_t above = slots[i];
    const double *c = rv_sum_tree_leaves(tree, slots[i]);
    size_t child = leaf_of(c, u[i]);
    if (__builtin_expect(child == RV_TREE_FANOUT, 0)) child = rv_sum_tree_last(c, &u[i]);
    slots[i] = (uint32_t)(above * RV_TREE_FANOUT + child);
    probabilities[i] = c[child];
  }
  const double total = tree->total;
  for (size_t i = 0; i < n; i++) probabilities[i] /= total;
}

/* ---- changing ---- */

/* What the groups come to, told to their parents on the next level. */
TARGET static void compute_some(rv_sum_tree *tree, uint32_t level, const uint32_t *groups, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    uint32_t at = groups[i];
    double sum;
    if (level == 0) {
      sum = sum_of(rv_sum_tree_leaves(tree, at));
    } else {
      rv_sum_group *group = rv_sum_tree_group(tree, level, at);
      sum = ends_of(group->sum, group->end);
    }
    rv_sum_tree_group(tree, level + 1, at >> RV_TREE_SHIFT)->sum[at & (RV_TREE_FANOUT - 1)] = sum;
  }
}

/* The same for all groups of a level that has no more than a batch could change: quicker than to see which it did. */
TARGET static void compute_all(rv_sum_tree *tree, uint32_t level, size_t n)
{
  rv_sum_group *parent = rv_sum_tree_group(tree, level + 1, 0);
  rv_sum_group *groups = level > 0 ? rv_sum_tree_group(tree, level, 0) : NULL;
  for (size_t at = 0; at < n; at++) {
    double sum = level == 0 ? sum_of(rv_sum_tree_leaves(tree, (uint32_t)at)) : ends_of(groups[at].sum, groups[at].end);
    parent[at >> RV_TREE_SHIFT].sum[at & (RV_TREE_FANOUT - 1)] = sum;
  }
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

const rv_sum_tree_steps STEPS = {.name = NAME, .draw = draw, .set = set};
