/* A selector of somebody else's that keeps nothing and always draws the first slot: a test or a benchmark puts in what it is about. */
#ifndef RV_STORE_IDLE_SELECTOR_TESTING_H
#define RV_STORE_IDLE_SELECTOR_TESTING_H

#include "reverie/reverie.h"

static inline rv_code idle_create(const char *options, void **selector, rv_error *err)
{
  static char none;
  (void)options, (void)err;
  *selector = &none;
  return RV_OK;
}

static inline void idle_nothing(void *selector)
{
  (void)selector;
}

static inline rv_code idle_insert(void *selector, uint32_t slot, uint64_t key, double priority, rv_error *err)
{
  (void)selector, (void)slot, (void)key, (void)priority, (void)err;
  return RV_OK;
}

static inline void idle_remove(void *selector, uint32_t slot, uint64_t key)
{
  (void)selector, (void)slot, (void)key;
}

static inline uint32_t idle_select(void *selector, uint64_t random, double *probability)
{
  (void)selector, (void)random;
  *probability = 1;
  return 0;
}

/* The operations, but for `update`, which is given. */
#define IDLE_SELECTOR_OPS(update_)                                                                                               \
  {                                                                                                                              \
    .size = sizeof(rv_selector_ops), .create = idle_create, .destroy = idle_nothing, .insert = idle_insert,                      \
    .remove = idle_remove, .update = (update_), .clear = idle_nothing, .select = idle_select                                     \
  }

#endif
