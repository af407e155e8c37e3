/* A table's sampler or remover. Fifo and Lifo need no books of their own, since the slab has the order of insertion; everything
 * else is a selector (selectors/selector.h), which hears of every item. */
#ifndef RV_STORE_PICK_H
#define RV_STORE_PICK_H

#include "base/fetches.h"
#include "base/random_lanes.h"
#include "store/slab.h"

typedef struct rv_pick {
  rv_selector *selector; /* NULL: by the order of insertion */
  bool oldest;           /* then: the oldest or the newest */
  bool uniform;          /* a table that is full has an item in almost every slot: draws then need not ask the selector */
} rv_pick;

static inline rv_code rv_pick_init(rv_pick *pick, const rv_selector_config *config, const rv_registry *registry, int64_t max_size,
                                   rv_error *err)
{
  *pick = (rv_pick){.oldest = config->kind == RV_SELECTOR_FIFO, .uniform = config->kind == RV_SELECTOR_UNIFORM};
  if (pick->oldest || config->kind == RV_SELECTOR_LIFO) return RV_OK;
  return rv_selector_new(config, registry, max_size, &pick->selector, err);
}

static inline uint64_t rv_pick_faults(const rv_pick *pick)
{
  return pick->selector == NULL ? 0 : rv_selector_faults(pick->selector);
}

static inline void rv_pick_fini(rv_pick *pick)
{
  rv_selector_free(pick->selector);
}

static inline rv_code rv_pick_accepts(const rv_pick *pick, double priority, rv_error *err)
{
  return pick->selector == NULL ? RV_OK : rv_selector_accepts(pick->selector, priority, err);
}

static inline rv_code rv_pick_insert(rv_pick *pick, uint32_t slot, uint64_t key, double priority, rv_error *err)
{
  return pick->selector == NULL ? RV_OK : rv_selector_insert(pick->selector, slot, key, priority, err);
}

static inline void rv_pick_remove(rv_pick *pick, uint32_t slot)
{
  if (pick->selector != NULL) rv_selector_remove(pick->selector, slot);
}

static inline rv_code rv_pick_update(rv_pick *pick, uint32_t slot, double priority, rv_error *err)
{
  return pick->selector == NULL ? RV_OK : rv_selector_update(pick->selector, slot, priority, err);
}

static inline void rv_pick_update_many(rv_pick *pick, const uint32_t *slots, const double *priorities, size_t n)
{
  if (pick->selector != NULL) rv_selector_update_many(pick->selector, slots, priorities, n, NULL, NULL);
}

/* Some item is present. */
static inline uint32_t rv_pick_select(rv_pick *pick, const rv_slab *slab, rv_random *random, double *probability)
{
  if (pick->selector != NULL) return rv_selector_select(pick->selector, random, probability);
  *probability = 1;
  return pick->oldest ? slab->oldest : slab->newest;
}

/* Draws that are not used change nothing; what a selector of the user's notes at each is not known. */
static inline bool rv_pick_draws_many(const rv_pick *pick)
{
  return pick->selector == NULL || rv_selector_draws_many(pick->selector);
}

/* The items of slots that were drawn. Of a small table, which the second cache has, into the first. */
RV_FETCHES void rv_pick_fetch(const rv_slab *slab, const uint32_t *slots, size_t n)
{
  enum { SMALL_TABLE = 1 << 14 };
  if (slab->used < SMALL_TABLE) {
    _Pragma("GCC unroll 8") for (size_t i = 0; i < n; i++) __builtin_prefetch(rv_slab_at(slab, slots[i]), 0, 3);
  } else {
    _Pragma("GCC unroll 8") for (size_t i = 0; i < n; i++) RV_FETCH(rv_slab_at(slab, slots[i]));
  }
}

/* Draws slots until one has an item: each item is equally likely. At most one slot in eight is free. */
static inline void rv_pick_any(const rv_slab *slab, rv_random_lanes *random, size_t n, uint32_t *slots, double *probabilities)
{
  const double probability = 1.0 / slab->count;
  const uint32_t used = slab->used;
  const bool holes = slab->count < used;
  rv_random_lanes_below(random, used, slots, n);
  rv_pick_fetch(slab, slots, n);
  for (size_t i = 0; i < n && holes; i++)
    while (!rv_slab_has(slab, slots[i])) slots[i] = rv_random_below(&random->again, used);
  for (size_t i = 0; i < n; i++) probabilities[i] = probability;
}

static inline void rv_pick_select_many(rv_pick *pick, const rv_slab *slab, rv_random *random, rv_random_lanes *lanes, size_t n,
                                       uint32_t *slots, double *probabilities)
{
  if (pick->uniform && slab->used - slab->count <= slab->used / 8) {
    rv_pick_any(slab, lanes, n, slots, probabilities);
    return;
  }
  if (pick->selector != NULL) {
    size_t drawn = rv_selector_select_many(pick->selector, random, n, slots, probabilities);
    rv_pick_fetch(slab, slots, drawn);
    return;
  }
  for (size_t i = 0; i < n; i++) {
    slots[i] = pick->oldest ? slab->oldest : slab->newest;
    probabilities[i] = 1;
  }
}

static inline void rv_pick_clear(rv_pick *pick, rv_blocks *garbage)
{
  if (pick->selector != NULL) rv_selector_clear(pick->selector, garbage);
}

static inline size_t rv_pick_memory(const rv_pick *pick)
{
  return pick->selector == NULL ? 0 : rv_selector_memory(pick->selector);
}

static inline bool rv_pick_min_priority(const rv_pick *pick, double *priority)
{
  return pick->selector != NULL && rv_selector_min_priority(pick->selector, priority);
}

static inline bool rv_pick_max_priority(const rv_pick *pick, double *priority)
{
  return pick->selector != NULL && rv_selector_max_priority(pick->selector, priority);
}

#endif
