#include "store/selectors/selector.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "store/registry.h"

static rv_code not_registered(const char *name, const rv_registry *registry, rv_error *err)
{
  char names[256];
  rv_registry_list_selectors(registry, names, sizeof names);
  return rv_fail(err, RV_NOT_FOUND, "no selector is registered as \"%s\" (registered: %s); add it with rv_registry_add_selector",
                 name, names[0] != '\0' ? names : "none");
}

rv_code rv_selector_check(const rv_selector_config *config, const rv_registry *registry, rv_error *err)
{
  switch (config->kind) {
  case RV_SELECTOR_FIFO:
  case RV_SELECTOR_LIFO:
  case RV_SELECTOR_UNIFORM:
  case RV_SELECTOR_MAX_HEAP:
  case RV_SELECTOR_MIN_HEAP: return RV_OK;
  case RV_SELECTOR_PRIORITIZED:
    if (isfinite(config->priority_exponent)) return RV_OK;
    return rv_fail(
        err, RV_INVALID_ARGUMENT,
        "priority_exponent is %g; give a finite number (0: every positive priority counts the same; below: low ones count more)",
        config->priority_exponent);
  case RV_SELECTOR_CUSTOM:
    if (config->name == NULL) return rv_fail(err, RV_INVALID_ARGUMENT, "a registered selector needs its name");
    if (rv_registry_selector(registry, config->name) != NULL) return RV_OK;
    return not_registered(config->name, registry, err);
  }
  return rv_fail(err, RV_INVALID_ARGUMENT, "selector kind %d is unknown", (int)config->kind);
}

rv_code rv_selector_new(const rv_selector_config *config, const rv_registry *registry, int64_t max_size, rv_selector **out,
                        rv_error *err)
{
  rv_code code = rv_selector_check(config, registry, err);
  if (code != RV_OK) return code;
  /* one more than the table's bound, since an insert comes before the removal it causes */
  uint64_t expected = max_size < 0 ? 0 : max_size > RV_MAX_SLOT ? RV_MAX_SLOT : (uint64_t)max_size + 1;
  switch (config->kind) {
  case RV_SELECTOR_FIFO: return rv_selector_order_new(true, expected, out, err);
  case RV_SELECTOR_LIFO: return rv_selector_order_new(false, expected, out, err);
  case RV_SELECTOR_UNIFORM: return rv_selector_uniform_new(expected, out, err);
  case RV_SELECTOR_MAX_HEAP: return rv_selector_heap_new(true, expected, out, err);
  case RV_SELECTOR_MIN_HEAP: return rv_selector_heap_new(false, expected, out, err);
  case RV_SELECTOR_PRIORITIZED: return rv_selector_prioritized_new(config->priority_exponent, expected, out, err);
  case RV_SELECTOR_CUSTOM: break;
  }
  return rv_selector_custom_new(rv_registry_selector(registry, config->name), config->options, expected, out, err);
}

void rv_selector_free(rv_selector *selector)
{
  if (selector != NULL) selector->class->free(selector);
}

rv_code rv_selector_accepts(const rv_selector *selector, double priority, rv_error *err)
{
  if (isnan(priority)) return rv_fail(err, RV_INVALID_ARGUMENT, "priority must not be NaN; give a number");
  if (!selector->class->weighs || (priority >= 0 && isfinite(priority))) return RV_OK;
  return rv_fail(err, RV_INVALID_ARGUMENT,
                 "priority must not be negative or infinite where a prioritized selector is attached; it is %g", priority);
}

rv_code rv_selector_insert(rv_selector *selector, uint32_t slot, uint64_t key, double priority, rv_error *err)
{
  if (slot > RV_MAX_SLOT) return rv_fail(err, RV_RESOURCE_EXHAUSTED, "a table holds at most %u items", RV_MAX_SLOT + 1);
  return selector->class->insert(selector, slot, key, priority, err);
}

void rv_selector_remove(rv_selector *selector, uint32_t slot)
{
  selector->class->remove(selector, slot);
}

rv_code rv_selector_update(rv_selector *selector, uint32_t slot, double priority, rv_error *err)
{
  return selector->class->update(selector, slot, priority, err);
}

rv_code rv_selector_update_many(rv_selector *selector, const uint32_t *slots, const double *priorities, size_t n, size_t *done,
                                rv_error *err)
{
  size_t unused;
  if (done == NULL) done = &unused;
  *done = 0;
  if (selector->class->update_many != NULL) {
    rv_code code = selector->class->update_many(selector, slots, priorities, n, err);
    if (code == RV_OK) *done = n;
    return code;
  }
  for (; *done < n; ++*done) {
    rv_code code = selector->class->update(selector, slots[*done], priorities[*done], err);
    if (code != RV_OK) return code;
  }
  return RV_OK;
}

uint32_t rv_selector_select(rv_selector *selector, rv_random *random, double *probability)
{
  *probability = 0;
  return selector->count > 0 ? selector->class->select(selector, random, probability) : RV_NO_SLOT;
}

size_t rv_selector_select_many(rv_selector *selector, rv_random *random, size_t n, uint32_t *slots, double *probabilities)
{
  if (selector->count == 0) return 0;
  if (selector->class->select_many != NULL)
    selector->class->select_many(selector, random, n, slots, probabilities);
  else
    for (size_t i = 0; i < n; i++) {
      probabilities[i] = 0; /* of who forgets to say it */
      slots[i] = selector->class->select(selector, random, &probabilities[i]);
    }
  return n;
}

bool rv_selector_draws_many(const rv_selector *selector)
{
  return selector->class->select_many != NULL;
}

void rv_selector_clear(rv_selector *selector, rv_blocks *garbage)
{
  selector->class->clear(selector, garbage);
}
uint32_t rv_selector_count(const rv_selector *selector)
{
  return selector->count;
}
size_t rv_selector_memory(const rv_selector *selector)
{
  return selector->class->memory(selector);
}
uint64_t rv_selector_faults(const rv_selector *selector)
{
  return selector->faults;
}

bool rv_selector_min_priority(const rv_selector *selector, double *priority)
{
  return selector->count > 0 && selector->class->min_priority != NULL && selector->class->min_priority(selector, priority);
}

bool rv_selector_max_priority(const rv_selector *selector, double *priority)
{
  return selector->count > 0 && selector->class->max_priority != NULL && selector->class->max_priority(selector, priority);
}

rv_code rv_selector_misused(rv_error *err, uint32_t slot, bool present)
{
  return rv_fail(err, RV_INTERNAL, "the selector has %s item in slot %u", present ? "already an" : "no", slot);
}
