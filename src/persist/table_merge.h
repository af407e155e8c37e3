/* What a restored table is made of: its saved record over what was configured for it. */
#ifndef RV_PERSIST_TABLE_MERGE_H
#define RV_PERSIST_TABLE_MERGE_H

#include "base/env.h"
#include "persist/table_record.h"
#include "store/store.h"

/* `*table` is the configuration, and becomes the merged one, which borrows from the record. What differs is logged as a warning, and
 * so is a saved limiter that could never let anybody through: then the configured one stays. RV_INVALID_ARGUMENT: no selector, or a
 * size that is none. */
rv_code rv_table_merge(const rv_table_record *record, rv_table_config *table, const rv_env *env, rv_error *err);

/* Of a table, those that calls can change while it is in use (rv_client_set_bounds, rv_client_set_rate_limiter). */
typedef struct rv_table_settings {
  int64_t max_size, max_bytes, max_times_sampled;
  rv_rate_limiter_config rate_limiter;
} rv_table_settings;

/* Of each of the store's tables, in their order; *out is the caller's to free(). RV_RESOURCE_EXHAUSTED. */
rv_code rv_table_settings_read(rv_store *store, rv_table_settings **out, rv_error *err);
/* Logs what is not as `configured`, as rv_table_merge does, of each table whose settings are not as they were `before` any more. */
void rv_table_settings_compare(rv_store *store, const rv_table_settings *before, const rv_store_config *configured,
                               const rv_env *env);

#endif
