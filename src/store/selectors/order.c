/* Fifo and Lifo: the items in order of insertion, linked through their slots. Priorities do not matter. */
#include <stdlib.h>

#include "base/error.h"
#include "store/selectors/selector.h"

typedef struct node {
  uint32_t previous, next; /* ABSENT in both: not here */
} node;

#define ABSENT UINT32_MAX
#define END (UINT32_MAX - 1)

typedef struct order {
  rv_selector base;
  bool oldest_first;
  uint32_t oldest, newest;
  rv_segarray nodes;
} order;

static node *at(const order *self, uint32_t slot)
{
  return RV_SEGARRAY_AT(&self->nodes, node, slot);
}
static bool has(const order *self, uint32_t slot)
{
  return slot < self->nodes.length && at(self, slot)->next != ABSENT;
}

static void order_free(rv_selector *base)
{
  rv_segarray_fini(&((order *)base)->nodes);
  free(base);
}

static rv_code order_insert(rv_selector *base, uint32_t slot, uint64_t key, double priority, rv_error *err)
{
  (void)key, (void)priority;
  order *self = (order *)base;
  if (has(self, slot)) return rv_selector_misused(err, slot, true);
  if (rv_segarray_grow(&self->nodes, (uint64_t)slot + 1, err) != RV_OK) return RV_RESOURCE_EXHAUSTED;
  *at(self, slot) = (node){.previous = self->newest, .next = END};
  if (self->newest != END)
    at(self, self->newest)->next = slot;
  else
    self->oldest = slot;
  self->newest = slot;
  base->count++;
  return RV_OK;
}

static void order_remove(rv_selector *base, uint32_t slot)
{
  order *self = (order *)base;
  if (!has(self, slot)) return;
  node *gone = at(self, slot);
  *(gone->previous != END ? &at(self, gone->previous)->next : &self->oldest) = gone->next;
  *(gone->next != END ? &at(self, gone->next)->previous : &self->newest) = gone->previous;
  *gone = (node){ABSENT, ABSENT};
  base->count--;
}

static rv_code order_update(rv_selector *base, uint32_t slot, double priority, rv_error *err)
{
  (void)base, (void)slot, (void)priority, (void)err;
  return RV_OK;
}

static rv_code order_update_many(rv_selector *base, const uint32_t *slots, const double *priorities, size_t n, rv_error *err)
{
  (void)base, (void)slots, (void)priorities, (void)n, (void)err;
  return RV_OK;
}

static uint32_t order_select(rv_selector *base, rv_random *random, double *probability)
{
  (void)random;
  const order *self = (order *)base;
  *probability = 1;
  return self->oldest_first ? self->oldest : self->newest;
}

static void order_clear(rv_selector *base, rv_blocks *garbage)
{
  order *self = (order *)base;
  rv_segarray_clear(&self->nodes, garbage);
  self->oldest = self->newest = END;
  base->count = 0;
}

static size_t order_memory(const rv_selector *base)
{
  return sizeof(order) + rv_segarray_memory(&((const order *)base)->nodes);
}

static const rv_selector_class order_class = {
    .free = order_free,
    .insert = order_insert,
    .remove = order_remove,
    .update = order_update,
    .select = order_select,
    .clear = order_clear,
    .memory = order_memory,
    .update_many = order_update_many,
};

rv_code rv_selector_order_new(bool oldest_first, uint64_t expected, rv_selector **out, rv_error *err)
{
  order *self = malloc(sizeof *self);
  if (self == NULL) return rv_fail_memory(err, sizeof *self);
  *self = (order){.base = {.class = &order_class}, .oldest_first = oldest_first, .oldest = END, .newest = END};
  rv_segarray_init(&self->nodes, sizeof(node), 0xFF, expected);
  *out = &self->base;
  return RV_OK;
}
