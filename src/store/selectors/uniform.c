/* Uniform: any item, 1/n. */
#include <stdlib.h>

#include "base/error.h"
#include "store/selectors/dense.h"

typedef struct uniform {
  rv_selector base;
  rv_dense dense;
} uniform;

static void uniform_free(rv_selector *base)
{
  rv_dense_fini(&((uniform *)base)->dense);
  free(base);
}

static rv_code uniform_insert(rv_selector *base, uint32_t slot, uint64_t key, double priority, rv_error *err)
{
  (void)key, (void)priority;
  rv_dense *dense = &((uniform *)base)->dense;
  if (rv_dense_has(dense, slot)) return rv_selector_misused(err, slot, true);
  if (rv_dense_reserve(dense, slot, err) != RV_OK) return RV_RESOURCE_EXHAUSTED;
  rv_dense_add(dense, slot);
  base->count++;
  return RV_OK;
}

static void uniform_remove(rv_selector *base, uint32_t slot)
{
  rv_dense *dense = &((uniform *)base)->dense;
  if (!rv_dense_has(dense, slot)) return;
  rv_dense_remove(dense, slot);
  base->count--;
}

static rv_code uniform_update(rv_selector *base, uint32_t slot, double priority, rv_error *err)
{
  (void)base, (void)slot, (void)priority, (void)err;
  return RV_OK;
}

static rv_code uniform_update_many(rv_selector *base, const uint32_t *slots, const double *priorities, size_t n, rv_error *err)
{
  (void)base, (void)slots, (void)priorities, (void)n, (void)err;
  return RV_OK;
}

static uint32_t uniform_select(rv_selector *base, rv_random *random, double *probability)
{
  *probability = 1.0 / base->count;
  return rv_dense_draw(&((uniform *)base)->dense, random);
}

/* Places first, then the slots that stand there: the loads of a batch then wait for memory together, not one after another. */
static void uniform_select_many(rv_selector *base, rv_random *random, size_t n, uint32_t *slots, double *probabilities)
{
  const rv_dense *dense = &((uniform *)base)->dense;
  double probability = 1.0 / base->count;
  for (size_t i = 0; i < n; i++) {
    slots[i] = rv_random_below(random, base->count);
    probabilities[i] = probability;
  }
  for (size_t i = 0; i < n; i++) slots[i] = *rv_dense_slot(dense, slots[i]);
}

static void uniform_clear(rv_selector *base, rv_blocks *garbage)
{
  rv_dense_clear(&((uniform *)base)->dense, garbage);
  base->count = 0;
}

static size_t uniform_memory(const rv_selector *base)
{
  return sizeof(uniform) + rv_dense_memory(&((const uniform *)base)->dense);
}

static const rv_selector_class uniform_class = {
    .free = uniform_free,
    .insert = uniform_insert,
    .remove = uniform_remove,
    .update = uniform_update,
    .select = uniform_select,
    .clear = uniform_clear,
    .memory = uniform_memory,
    .update_many = uniform_update_many,
    .select_many = uniform_select_many,
};

rv_code rv_selector_uniform_new(uint64_t expected, rv_selector **out, rv_error *err)
{
  uniform *self = malloc(sizeof *self);
  if (self == NULL) return rv_fail_memory(err, sizeof *self);
  *self = (uniform){.base = {.class = &uniform_class}};
  rv_dense_init(&self->dense, expected);
  *out = &self->base;
  return RV_OK;
}
