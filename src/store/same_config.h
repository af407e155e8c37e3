/* Whether two settings of tables are the same. A text that is not there is as good as an empty one. */
#ifndef RV_STORE_SAME_CONFIG_H
#define RV_STORE_SAME_CONFIG_H

#include <string.h>

#include "reverie/table.h"

static inline bool rv_same_text(const char *a, const char *b)
{
  return strcmp(a != NULL ? a : "", b != NULL ? b : "") == 0;
}

static inline bool rv_same_selector(const rv_selector_config *a, const rv_selector_config *b)
{
  return a->kind == b->kind && a->priority_exponent == b->priority_exponent && rv_same_text(a->name, b->name) &&
         rv_same_text(a->options, b->options);
}

static inline bool rv_same_limiter(const rv_rate_limiter_config *a, const rv_rate_limiter_config *b)
{
  return a->samples_per_insert == b->samples_per_insert && a->min_size_to_sample == b->min_size_to_sample &&
         a->min_diff == b->min_diff && a->max_diff == b->max_diff;
}

static inline bool rv_same_spec(const rv_spec *a, const rv_spec *b)
{
  if (!rv_same_text(a->name, b->name) || a->dtype != b->dtype || a->rank != b->rank) return false;
  return a->rank <= 0 || memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0;
}

/* NULL: there is none. */
static inline bool rv_same_signature(const rv_signature *a, const rv_signature *b)
{
  if (a == NULL || b == NULL) return a == b;
  if (a->num_specs != b->num_specs || a->structure.size != b->structure.size) return false;
  for (size_t i = 0; i < a->num_specs; i++)
    if (!rv_same_spec(&a->specs[i], &b->specs[i])) return false;
  return a->structure.size == 0 || memcmp(a->structure.data, b->structure.data, a->structure.size) == 0;
}

#endif
