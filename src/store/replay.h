/* Changes that were written down (changes.h), made again one by one in a table that nobody else uses yet. No limiter is asked, nothing
 * waits, and the remover takes nothing away: what went is among the changes. Extensions hear of inserts and deletes. */
#ifndef RV_STORE_REPLAY_H
#define RV_STORE_REPLAY_H

#include "store/restore.h"

/* The newest item of the table from here on; counted as an insert. An item that has the key gets the priority instead. */
rv_code rv_table_replay_insert(rv_table *table, const rv_restored_item *item, uint64_t naming, rv_error *err);
/* RV_NOT_FOUND, without a sentence: no item has the key, and nothing was changed. */
rv_code rv_table_replay_delete(rv_table *table, uint64_t key);
rv_code rv_table_replay_update(rv_table *table, uint64_t key, double priority, rv_error *err);
rv_code rv_table_replay_sample(rv_table *table, uint64_t key, int32_t times_sampled);
/* Items beyond max_size (1 to 2^31 - 1) stay until the next insert, or rv_table_replay_come_down: what went was written
 * down. */
void rv_table_replay_bounds(rv_table *table, int64_t max_size, int32_t max_times_sampled);
/* Items beyond it stay: what went was written down. 0: none. */
void rv_table_replay_max_bytes(rv_table *table, int64_t max_bytes);
/* After the last one: counters are corrected as by rv_table_restore_counters. */
void rv_table_replay_end(rv_table *table, char *corrected, size_t capacity);
/* Then, when the table keeps its changes again: items beyond max_size, whose deletes were not written down any more, go. That is written down,
 * too, since whoever makes the changes again would have the remover take others. RV_RESOURCE_EXHAUSTED. */
rv_code rv_table_replay_come_down(rv_table *table, rv_error *err);

#endif
