/* What a restored table is made of: its saved record over what was configured for it. */
#ifndef RV_PERSIST_TABLE_MERGE_H
#define RV_PERSIST_TABLE_MERGE_H

#include "base/env.h"
#include "persist/table_record.h"
#include "reverie/table.h"

/* `*table` is the configuration, and becomes the merged one, which borrows from the record. What differs is logged as a warning, and
 * so is a saved limiter that could never let anybody through: then the configured one stays. RV_INVALID_ARGUMENT: no selector, or a
 * size that is none. */
rv_code rv_table_merge(const rv_table_record *record, rv_table_config *table, const rv_env *env, rv_error *err);

#endif
