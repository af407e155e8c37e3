/* Prioritized: an item is drawn with probability w / sum of w, where w = priority^exponent (Schaul et al. 2016, eq. 1), and w = 0
 * for priority 0 whatever the exponent. Where no item has a positive weight any of them may be drawn, 1/n. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/priorities.h"
#include "store/selectors/counts.h"
#include "store/selectors/selector.h"
#include "store/selectors/sum_tree.h"
#include "store/selectors/weights.h"

enum { BATCH = 256 };

typedef struct prioritized {
  rv_selector base;
  double exponent;
  double last_priority, last_weight; /* of those that came alone: one by one, items mostly come with the same priority */
  rv_sum_tree tree;
  rv_counts present; /* for the uniform choice */
} prioritized;

/* The leaf of a slot without an item is 0.0, all bits zero. An item of weight zero has -0.0, which counts the same: so an update,
 * which reads the leaf anyway, knows who is here without looking at anything else. */
static inline bool is_here(const prioritized *self, uint32_t slot)
{
  if (slot >= self->tree.leaves.length) return false;
  uint64_t bits;
  memcpy(&bits, RV_SEGARRAY_AT(&self->tree.leaves, double, slot), sizeof bits);
  return bits != 0;
}

static void weigh(const prioritized *self, const double *priorities, double *weights, size_t n)
{
  rv_weigh(self->exponent, priorities, weights, n);
  for (size_t i = 0; i < n; i++) weights[i] = weights[i] > 0 ? weights[i] : -0.0;
}

static double weigh_one(prioritized *self, double priority)
{
  if (priority != self->last_priority) {
    weigh(self, &priority, &self->last_weight, 1);
    self->last_priority = priority;
  }
  return self->last_weight;
}

static void prioritized_free(rv_selector *base)
{
  prioritized *self = (prioritized *)base;
  rv_sum_tree_fini(&self->tree);
  rv_counts_fini(&self->present);
  free(self);
}

static rv_code prioritized_insert(rv_selector *base, uint32_t slot, uint64_t key, double priority, rv_error *err)
{
  (void)key;
  prioritized *self = (prioritized *)base;
  if (is_here(self, slot)) return rv_selector_misused(err, slot, true);
  rv_code code = rv_selector_accepts(base, priority, err);
  if (code != RV_OK) return code;
  if (rv_counts_reserve(&self->present, slot, err) != RV_OK) return RV_RESOURCE_EXHAUSTED;
  if (rv_sum_tree_reserve(&self->tree, slot, err) != RV_OK) return RV_RESOURCE_EXHAUSTED;
  rv_counts_change(&self->present, slot, 1);
  rv_sum_tree_set(&self->tree, slot, weigh_one(self, priority));
  base->count++;
  return RV_OK;
}

static void prioritized_remove(rv_selector *base, uint32_t slot)
{
  prioritized *self = (prioritized *)base;
  if (!is_here(self, slot)) return;
  rv_counts_change(&self->present, slot, UINT32_MAX);
  rv_sum_tree_set(&self->tree, slot, 0);
  base->count--;
}

static rv_code first_refusal(rv_selector *base, const uint32_t *slots, const double *priorities, size_t n, rv_error *err)
{
  for (size_t i = 0; i < n; i++) {
    if (!is_here((prioritized *)base, slots[i])) return rv_selector_misused(err, slots[i], false);
    rv_code code = rv_selector_accepts(base, priorities[i], err);
    if (code != RV_OK) return code;
  }
  return RV_OK;
}

static rv_code prioritized_update_many(rv_selector *base, const uint32_t *slots, const double *priorities, size_t n,
                                       rv_error *err)
{
  prioritized *self = (prioritized *)base;
  bool fine = rv_priorities_are_plain(priorities, n, true);
  for (size_t i = 0; i < n && fine; i++) fine = is_here(self, slots[i]);
  if (!fine) {
    rv_code code = first_refusal(base, slots, priorities, n, err);
    if (code != RV_OK) return code;
  }
  double weights[BATCH];
  for (size_t begin = 0; begin < n; begin += BATCH) {
    size_t count = n - begin < BATCH ? n - begin : BATCH;
    weigh(self, priorities + begin, weights, count);
    rv_sum_tree_set_many(&self->tree, slots + begin, weights, count);
  }
  return RV_OK;
}

static rv_code prioritized_update(rv_selector *base, uint32_t slot, double priority, rv_error *err)
{
  prioritized *self = (prioritized *)base;
  if (!is_here(self, slot)) return rv_selector_misused(err, slot, false);
  rv_code code = rv_selector_accepts(base, priority, err);
  if (code == RV_OK) rv_sum_tree_set(&self->tree, slot, weigh_one(self, priority));
  return code;
}

/* Any of those that are present, each as likely as the others. */
static uint32_t draw_present(const prioritized *self, rv_random *random)
{
  uint32_t k = rv_random_below(random, self->base.count), slot = rv_counts_find(&self->present, &k) << RV_COUNTED_SHIFT;
  for (;; slot++) {
    if (is_here(self, slot) && k-- == 0) return slot;
  }
}

static void prioritized_select_many(rv_selector *base, rv_random *random, size_t n, uint32_t *slots, double *probabilities)
{
  const prioritized *self = (const prioritized *)base;
  double total = rv_sum_tree_total(&self->tree);
  if (total > 0) {
    rv_sum_tree_draw(&self->tree, random, n, slots, probabilities);
    return;
  }
  for (size_t i = 0; i < n; i++) {
    slots[i] = draw_present(self, random);
    probabilities[i] = 1.0 / base->count;
  }
}

static uint32_t prioritized_select(rv_selector *base, rv_random *random, double *probability)
{
  uint32_t slot;
  prioritized_select_many(base, random, 1, &slot, probability);
  return slot;
}

static void prioritized_clear(rv_selector *base, rv_blocks *garbage)
{
  prioritized *self = (prioritized *)base;
  rv_sum_tree_clear(&self->tree, garbage);
  rv_counts_clear(&self->present, garbage);
  base->count = 0;
}

static size_t prioritized_memory(const rv_selector *base)
{
  const prioritized *self = (const prioritized *)base;
  return sizeof *self + rv_sum_tree_memory(&self->tree) + rv_counts_memory(&self->present);
}

static const rv_selector_class prioritized_class = {
    .weighs = true,
    .free = prioritized_free,
    .insert = prioritized_insert,
    .remove = prioritized_remove,
    .update = prioritized_update,
    .select = prioritized_select,
    .clear = prioritized_clear,
    .memory = prioritized_memory,
    .update_many = prioritized_update_many,
    .select_many = prioritized_select_many,
};

rv_code rv_selector_prioritized_new(double exponent, uint64_t expected, rv_selector **out, rv_error *err)
{
  prioritized *self = malloc(sizeof *self);
  if (self == NULL) return rv_fail_memory(err, sizeof *self);
  *self = (prioritized){.base = {.class = &prioritized_class}, .exponent = exponent, .last_priority = NAN};
  rv_sum_tree_init(&self->tree, expected);
  rv_counts_init(&self->present, expected);
  *out = &self->base;
  return RV_OK;
}
