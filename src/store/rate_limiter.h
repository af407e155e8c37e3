/* When an insert or a sample may proceed: three counters and four parameters (reverie/table.h has the two formulas). The caller's
 * lock guards a limiter; it neither waits nor wakes anybody, it only says yes or no, and why not, in numbers. */
#ifndef RV_STORE_RATE_LIMITER_H
#define RV_STORE_RATE_LIMITER_H

#include "reverie/table.h"

typedef struct rv_rate_limiter {
  rv_rate_limiter_config config;
  int64_t inserts, samples, deletes; /* since reset; deletes <= inserts */
} rv_rate_limiter;

/* rv_rate_limiter_check of a table's limiter: besides, min_size_to_sample is within max_size, and inserts and samples do not come to wait
 * for each other, as far as that can be found (store/standstill.h). Of the rest of the configuration max_size, max_times_sampled and the
 * kinds of the selectors are looked at. */
rv_code rv_rate_limiter_check_table(const rv_table_config *table, rv_error *err);

/* Checks the configuration; counters begin at 0. */
rv_code rv_rate_limiter_init(rv_rate_limiter *limiter, const rv_rate_limiter_config *config, rv_error *err);
/* Another configuration for the counters as they are. On an error nothing changes. */
rv_code rv_rate_limiter_configure(rv_rate_limiter *limiter, const rv_rate_limiter_config *config, rv_error *err);

/* May `n` more proceed, one after the other, with nothing else (no delete either) between? */
static inline bool rv_rate_limiter_can_insert(const rv_rate_limiter *limiter, int64_t n)
{
  const rv_rate_limiter_config *config = &limiter->config;
  /* each makes the next one harder, so the last one decides: the table holds so many items after it, and so many samples are owed */
  if (n <= 0 || n <= config->min_size_to_sample - (limiter->inserts - limiter->deletes)) return true;
  return ((double)limiter->inserts + (double)n) * config->samples_per_insert - (double)limiter->samples <= config->max_diff;
}
bool rv_rate_limiter_can_sample(const rv_rate_limiter *limiter, int64_t n);
/* How many of `want` may proceed so: 0 to want. */
int64_t rv_rate_limiter_inserts_allowed(const rv_rate_limiter *limiter, int64_t want);
int64_t rv_rate_limiter_samples_allowed(const rv_rate_limiter *limiter, int64_t want);

static inline void rv_rate_limiter_inserted(rv_rate_limiter *limiter, int64_t n)
{
  limiter->inserts += n;
}
static inline void rv_rate_limiter_sampled(rv_rate_limiter *limiter, int64_t n)
{
  limiter->samples += n;
}
static inline void rv_rate_limiter_deleted(rv_rate_limiter *limiter, int64_t n)
{
  limiter->deletes += n;
}

void rv_rate_limiter_reset(rv_rate_limiter *limiter);
/* Counters from a checkpoint. RV_INVALID_ARGUMENT: negative, or deletes > inserts. */
rv_code rv_rate_limiter_restore(rv_rate_limiter *limiter, int64_t inserts, int64_t samples, int64_t deletes, rv_error *err);

/* What the next insert or sample waits for, as part of a sentence: "waits for 10 items, has 7 (min_size_to_sample)".
 * RV_WAIT_NONE and "may proceed" when it need not wait. NUL-terminated for capacity > 0. */
rv_wait_reason rv_rate_limiter_explain(const rv_rate_limiter *limiter, bool insert, char *out, size_t capacity);

#endif
