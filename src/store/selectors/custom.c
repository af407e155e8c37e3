/* A selector that was registered: C functions of the user's own. What they return is checked, since a table must be able to go on
 * with it: a slot that is not present, or a probability that is none, is counted and replaced by a uniform choice. */
#include <stdlib.h>

#include "base/error.h"
#include "store/selectors/dense.h"

typedef struct custom {
  rv_selector base;
  rv_selector_ops ops;
  void *state;
  rv_dense dense;
  rv_segarray keys; /* uint64_t by slot */
} custom;

static uint64_t *key_of(const custom *self, uint32_t slot)
{
  return RV_SEGARRAY_AT(&self->keys, uint64_t, slot);
}

/* The user's functions always get an rv_error to fill, and where they left it empty there is a sentence all the same. */
static rv_code outcome(rv_code code, rv_error *theirs, rv_error *err)
{
  if (code == RV_OK) return code;
  if (theirs->message[0] == '\0') return rv_fail(err, code, "the registered selector refused with %s", rv_code_name(code));
  theirs->code = code;
  theirs->message[RV_ERROR_MESSAGE_MAX - 1] = '\0';
  return rv_error_copy(err, theirs);
}

static void custom_free(rv_selector *base)
{
  custom *self = (custom *)base;
  self->ops.destroy(self->state);
  rv_dense_fini(&self->dense);
  rv_segarray_fini(&self->keys);
  free(self);
}

static rv_code custom_insert(rv_selector *base, uint32_t slot, uint64_t key, double priority, rv_error *err)
{
  custom *self = (custom *)base;
  if (rv_dense_has(&self->dense, slot)) return rv_selector_misused(err, slot, true);
  if (rv_dense_reserve(&self->dense, slot, err) != RV_OK) return RV_RESOURCE_EXHAUSTED;
  if (rv_segarray_grow(&self->keys, (uint64_t)slot + 1, err) != RV_OK) return RV_RESOURCE_EXHAUSTED;
  rv_error theirs = {0};
  rv_code code = outcome(self->ops.insert(self->state, slot, key, priority, &theirs), &theirs, err);
  if (code != RV_OK) return code;
  *key_of(self, slot) = key;
  rv_dense_add(&self->dense, slot);
  base->count++;
  return RV_OK;
}

static void custom_remove(rv_selector *base, uint32_t slot)
{
  custom *self = (custom *)base;
  if (!rv_dense_has(&self->dense, slot)) return;
  self->ops.remove(self->state, slot, *key_of(self, slot));
  rv_dense_remove(&self->dense, slot);
  base->count--;
}

static rv_code custom_update(rv_selector *base, uint32_t slot, double priority, rv_error *err)
{
  custom *self = (custom *)base;
  if (!rv_dense_has(&self->dense, slot)) return rv_selector_misused(err, slot, false);
  rv_error theirs = {0};
  return outcome(self->ops.update(self->state, slot, *key_of(self, slot), priority, &theirs), &theirs, err);
}

static uint32_t custom_select(rv_selector *base, rv_random *random, double *probability)
{
  custom *self = (custom *)base;
  uint32_t slot = self->ops.select(self->state, rv_random_next(random), probability);
  if (rv_dense_has(&self->dense, slot) && *probability >= 0 && *probability <= 1) return slot;
  base->faults++;
  *probability = 1.0 / base->count;
  return rv_dense_draw(&self->dense, random);
}

static void custom_clear(rv_selector *base, rv_blocks *garbage)
{
  custom *self = (custom *)base;
  self->ops.clear(self->state);
  rv_dense_clear(&self->dense, garbage);
  rv_segarray_clear(&self->keys, garbage);
  base->count = 0;
}

/* What the user's state takes is not known. */
static size_t custom_memory(const rv_selector *base)
{
  const custom *self = (const custom *)base;
  return sizeof *self + rv_dense_memory(&self->dense) + rv_segarray_memory(&self->keys);
}

static const rv_selector_class custom_class = {
    .free = custom_free,
    .insert = custom_insert,
    .remove = custom_remove,
    .update = custom_update,
    .select = custom_select,
    .clear = custom_clear,
    .memory = custom_memory,
};

rv_code rv_selector_custom_new(const rv_selector_ops *ops, const char *options, uint64_t expected, rv_selector **out,
                               rv_error *err)
{
  custom *self = malloc(sizeof *self);
  if (self == NULL) return rv_fail_memory(err, sizeof *self);
  *self = (custom){.base = {.class = &custom_class}, .ops = *ops};
  rv_error theirs = {0};
  rv_code code = outcome(ops->create(options, &self->state, &theirs), &theirs, err);
  if (code != RV_OK) {
    free(self);
    return code;
  }
  rv_dense_init(&self->dense, expected);
  rv_segarray_init(&self->keys, sizeof(uint64_t), 0, expected);
  *out = &self->base;
  return RV_OK;
}
