/* TableInfo and the messages inside it, which the calls for operators use too. */
#ifndef RV_WIRE_TABLE_INFO_H
#define RV_WIRE_TABLE_INFO_H

#include "wire/unary.h"

/* How much memory a message's waiting callers and tables may take; refused beyond, since they take more than their bytes. */
typedef struct rv_info_budget {
  size_t left;
} rv_info_budget;
bool rv_info_budget_take(rv_info_budget *budget, size_t bytes);

/* `out` is zeroed first, and is the caller's to rv_table_info_fini whatever is returned. */
rv_code rv_table_info_parse(rv_span message, rv_info_budget *budget, rv_table_info *out, rv_error *err);
/* As field `field` of the message at hand. */
void rv_table_info_put(rv_writer_buf *out, uint32_t field, const rv_table_info *info);

/* KeyDistributionOptions; kind 0 where it has none. Strings are owned by `out`. */
rv_code rv_selector_parse(rv_span message, rv_selector_config *out, rv_error *err);
void rv_selector_put(rv_writer_buf *out, uint32_t field, const rv_selector_config *selector);

/* RateLimiterInfo; the counters may be NULL. */
rv_code rv_rate_limiter_parse(rv_span message, rv_rate_limiter_config *out, int64_t *inserts, int64_t *samples, rv_error *err);
void rv_rate_limiter_put(rv_writer_buf *out, uint32_t field, const rv_rate_limiter_config *limiter, int64_t inserts,
                         int64_t samples);

#endif
