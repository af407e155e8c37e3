/* The present slots, one after another in no order, so that one of them can be drawn uniformly; each slot knows its place. */
#ifndef RV_STORE_SELECTORS_DENSE_H
#define RV_STORE_SELECTORS_DENSE_H

#include "store/selectors/selector.h"

typedef struct rv_dense {
  rv_segarray slots;  /* uint32_t by place */
  rv_segarray places; /* uint32_t by slot; RV_NO_SLOT: absent */
  uint32_t count;
} rv_dense;

static inline void rv_dense_init(rv_dense *dense, uint64_t expected)
{
  rv_segarray_init(&dense->slots, sizeof(uint32_t), 0, expected);
  rv_segarray_init(&dense->places, sizeof(uint32_t), 0xFF, expected);
  dense->count = 0;
}

static inline void rv_dense_fini(rv_dense *dense)
{
  rv_segarray_fini(&dense->slots);
  rv_segarray_fini(&dense->places);
}

static inline uint32_t *rv_dense_place(const rv_dense *dense, uint32_t slot)
{
  return RV_SEGARRAY_AT(&dense->places, uint32_t, slot);
}

static inline uint32_t *rv_dense_slot(const rv_dense *dense, uint32_t place)
{
  return RV_SEGARRAY_AT(&dense->slots, uint32_t, place);
}

static inline bool rv_dense_has(const rv_dense *dense, uint32_t slot)
{
  return slot < dense->places.length && *rv_dense_place(dense, slot) != RV_NO_SLOT;
}

/* Room for the slot, so that rv_dense_add cannot fail. */
static inline rv_code rv_dense_reserve(rv_dense *dense, uint32_t slot, rv_error *err)
{
  if (rv_segarray_grow(&dense->slots, (uint64_t)dense->count + 1, err) != RV_OK) return RV_RESOURCE_EXHAUSTED;
  return rv_segarray_grow(&dense->places, (uint64_t)slot + 1, err);
}

static inline void rv_dense_add(rv_dense *dense, uint32_t slot)
{
  *rv_dense_place(dense, slot) = dense->count;
  *rv_dense_slot(dense, dense->count++) = slot;
}

static inline void rv_dense_remove(rv_dense *dense, uint32_t slot)
{
  uint32_t place = *rv_dense_place(dense, slot);
  uint32_t last = *rv_dense_slot(dense, --dense->count);
  *rv_dense_slot(dense, place) = last;
  *rv_dense_place(dense, last) = place;
  *rv_dense_place(dense, slot) = RV_NO_SLOT;
}

static inline uint32_t rv_dense_draw(const rv_dense *dense, rv_random *random)
{
  return *rv_dense_slot(dense, rv_random_below(random, dense->count));
}

static inline void rv_dense_clear(rv_dense *dense, rv_blocks *garbage)
{
  rv_segarray_clear(&dense->slots, garbage);
  rv_segarray_clear(&dense->places, garbage);
  dense->count = 0;
}

static inline size_t rv_dense_memory(const rv_dense *dense)
{
  return rv_segarray_memory(&dense->slots) + rv_segarray_memory(&dense->places);
}

#endif
