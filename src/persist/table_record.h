/* PriorityTableCheckpoint: a table's record in tables.tfrecord. Reverie's own fields: 1000, the naming of all items
 * (reverie/client.h), and 1001, max_bytes. */
#ifndef RV_PERSIST_TABLE_RECORD_H
#define RV_PERSIST_TABLE_RECORD_H

#include "store/restore.h"
#include "store/snapshot.h"
#include "wire/proto.h"

typedef struct rv_table_record {
  char *name;
  rv_selector_config sampler, remover; /* kind 0: none; texts are owned */
  int64_t max_size;
  int64_t max_bytes; /* 0: none; RV_UNCHANGED: not said, as in Reverb's */
  int32_t max_times_sampled;
  rv_rate_limiter_config rate_limiter;
  rv_restored_counters counters;
  rv_signature signature; /* owned; no specs and no structure: none */
  rv_span *items;         /* deprecated_items, inside the message; the array is owned */
  size_t num_items;
} rv_table_record;

/* `out` is the caller's to fini whatever is returned; it borrows from the message. RV_INVALID_ARGUMENT. */
rv_code rv_table_record_parse(rv_span message, rv_table_record *out, rv_error *err);
void rv_table_record_fini(rv_table_record *record);
void rv_table_record_serialize(rv_writer_buf *out, const rv_snapshot_head *head);

#endif
