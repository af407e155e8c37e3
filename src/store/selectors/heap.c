/* MaxHeap and MinHeap: the item with the highest or lowest priority; among equals the one that was inserted or updated longest
 * ago. A heap of four children a node, whose entries hold what is compared, so that a step down looks at one place in memory. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/selectors/selector.h"

enum { CHILDREN = 4 };

/* In halves of words, so that nothing is lost to padding. */
typedef struct entry {
  uint16_t rank[4];  /* a double; the lowest goes first */
  uint16_t order[3]; /* the low 48 bits, which last nine years at a million a second: of the last insert or update */
  uint16_t slot[2];
} entry;

_Static_assert(sizeof(entry) == 18, "without gaps");

typedef struct heap {
  rv_selector base;
  bool highest_first;
  uint64_t next_order;
  rv_segarray entries; /* by place */
  rv_segarray places;  /* uint32_t by slot; RV_NO_SLOT: absent */
} heap;

static entry *at(const heap *self, uint32_t place)
{
  return RV_SEGARRAY_AT(&self->entries, entry, place);
}
static uint32_t *place_of(const heap *self, uint32_t slot)
{
  return RV_SEGARRAY_AT(&self->places, uint32_t, slot);
}
static bool has(const heap *self, uint32_t slot)
{
  return slot < self->places.length && *place_of(self, slot) != RV_NO_SLOT;
}
static double rank_of(const heap *self, double priority)
{
  return self->highest_first ? -priority : priority;
}

static entry entry_of(double rank, uint64_t order, uint32_t slot)
{
  entry made;
  memcpy(made.rank, &rank, sizeof made.rank);
  for (int i = 0; i < 3; i++) made.order[i] = (uint16_t)(order >> (16 * i));
  memcpy(made.slot, &slot, sizeof made.slot);
  return made;
}

static double rank_in(const entry *e)
{
  double rank;
  memcpy(&rank, e->rank, sizeof rank);
  return rank;
}

static uint64_t order_in(const entry *e)
{
  return (uint64_t)e->order[2] << 32 | (uint64_t)e->order[1] << 16 | e->order[0];
}

static uint32_t slot_in(const entry *e)
{
  uint32_t slot;
  memcpy(&slot, e->slot, sizeof slot);
  return slot;
}

static bool before(const entry *a, const entry *b)
{
  double x = rank_in(a), y = rank_in(b);
  return x < y || (x == y && order_in(a) < order_in(b));
}

static void put(heap *self, uint32_t place, entry moved)
{
  *at(self, place) = moved;
  *place_of(self, slot_in(&moved)) = place;
}

static void sift_up(heap *self, uint32_t place, entry moved)
{
  while (place > 0) {
    uint32_t parent = (place - 1) / CHILDREN;
    if (!before(&moved, at(self, parent))) break;
    put(self, place, *at(self, parent));
    place = parent;
  }
  put(self, place, moved);
}

static void sift_down(heap *self, uint32_t place, entry moved)
{
  for (;;) {
    uint64_t child = (uint64_t)place * CHILDREN + 1;
    if (child >= self->base.count) break;
    uint32_t first = (uint32_t)child;
    uint32_t end = child + CHILDREN < self->base.count ? first + CHILDREN : self->base.count;
    for (uint32_t i = first + 1; i < end; i++)
      if (before(at(self, i), at(self, first))) first = i;
    if (!before(at(self, first), &moved)) break;
    put(self, place, *at(self, first));
    place = first;
  }
  put(self, place, moved);
}

/* Puts an entry where the one at `place` was. */
static void replace(heap *self, uint32_t place, entry moved)
{
  if (place > 0 && before(&moved, at(self, (place - 1) / CHILDREN)))
    sift_up(self, place, moved);
  else
    sift_down(self, place, moved);
}

static void heap_free(rv_selector *base)
{
  heap *self = (heap *)base;
  rv_segarray_fini(&self->entries);
  rv_segarray_fini(&self->places);
  free(self);
}

static rv_code heap_insert(rv_selector *base, uint32_t slot, uint64_t key, double priority, rv_error *err)
{
  (void)key;
  heap *self = (heap *)base;
  if (has(self, slot)) return rv_selector_misused(err, slot, true);
  if (rv_segarray_grow(&self->entries, (uint64_t)base->count + 1, err) != RV_OK) return RV_RESOURCE_EXHAUSTED;
  if (rv_segarray_grow(&self->places, (uint64_t)slot + 1, err) != RV_OK) return RV_RESOURCE_EXHAUSTED;
  sift_up(self, base->count++, entry_of(rank_of(self, priority), self->next_order++, slot));
  return RV_OK;
}

static void heap_remove(rv_selector *base, uint32_t slot)
{
  heap *self = (heap *)base;
  if (!has(self, slot)) return;
  uint32_t place = *place_of(self, slot);
  entry last = *at(self, --base->count);
  if (place < base->count) replace(self, place, last);
  *place_of(self, slot) = RV_NO_SLOT;
}

static rv_code heap_update(rv_selector *base, uint32_t slot, double priority, rv_error *err)
{
  heap *self = (heap *)base;
  if (!has(self, slot)) return rv_selector_misused(err, slot, false);
  replace(self, *place_of(self, slot), entry_of(rank_of(self, priority), self->next_order++, slot));
  return RV_OK;
}

static uint32_t heap_select(rv_selector *base, rv_random *random, double *probability)
{
  (void)random;
  *probability = 1;
  return slot_in(at((heap *)base, 0));
}

/* Nothing changes between them. */
static void heap_select_many(rv_selector *base, rv_random *random, size_t n, uint32_t *slots, double *probabilities)
{
  for (size_t i = 0; i < n; i++) slots[i] = heap_select(base, random, &probabilities[i]);
}

static void heap_clear(rv_selector *base, rv_blocks *garbage)
{
  heap *self = (heap *)base;
  rv_segarray_clear(&self->entries, garbage);
  rv_segarray_clear(&self->places, garbage);
  base->count = 0;
}

static size_t heap_memory(const rv_selector *base)
{
  const heap *self = (const heap *)base;
  return sizeof *self + rv_segarray_memory(&self->entries) + rv_segarray_memory(&self->places);
}

/* Of the end that it does not know a heap says nothing. */
static bool heap_min(const rv_selector *base, double *priority)
{
  const heap *self = (const heap *)base;
  if (self->highest_first) return false;
  *priority = rank_in(at(self, 0));
  return true;
}

static bool heap_max(const rv_selector *base, double *priority)
{
  const heap *self = (const heap *)base;
  if (!self->highest_first) return false;
  *priority = -rank_in(at(self, 0));
  return true;
}

static const rv_selector_class heap_class = {
    .free = heap_free,
    .insert = heap_insert,
    .remove = heap_remove,
    .update = heap_update,
    .select = heap_select,
    .select_many = heap_select_many,
    .clear = heap_clear,
    .memory = heap_memory,
    .min_priority = heap_min,
    .max_priority = heap_max,
};

rv_code rv_selector_heap_new(bool highest_first, uint64_t expected, rv_selector **out, rv_error *err)
{
  heap *self = malloc(sizeof *self);
  if (self == NULL) return rv_fail_memory(err, sizeof *self);
  *self = (heap){.base = {.class = &heap_class}, .highest_first = highest_first};
  rv_segarray_init(&self->entries, sizeof(entry), 0, expected);
  rv_segarray_init(&self->places, sizeof(uint32_t), 0xFF, expected);
  *out = &self->base;
  return RV_OK;
}
