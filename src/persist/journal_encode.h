/* Changes as groups of records. What is encoded stays with the encoder until it is on the disk, so that it can be written again
 * elsewhere. One thread uses it. */
#ifndef RV_PERSIST_JOURNAL_ENCODE_H
#define RV_PERSIST_JOURNAL_ENCODE_H

#include "persist/item_record.h"
#include "persist/journal_format.h"
#include "persist/journal_writers.h"
#include "store/changes.h"
#include "store/store.h"

typedef struct rv_journal_group {
  rv_pieces records;
  uint32_t changes;
} rv_journal_group;

typedef struct rv_journal_encoder {
  rv_store *store; /* borrowed */
  rv_chunk_log *chunks;
  rv_item_scratch scratch;
  rv_writer_buf item, flat; /* of the item at hand; small records before they join the group */
  rv_journal_group *groups;
  size_t num_groups, capacity;
  size_t chunk_bytes;                 /* of chunks since they were forgotten last */
  size_t max_chunks, max_chunk_bytes; /* remembered; then all are forgotten */
  size_t usual_chunk_bytes;           /* max_chunk_bytes, unless most of them would be written again and again */
} rv_journal_encoder;

rv_code rv_journal_encoder_init(rv_journal_encoder *encoder, rv_store *store, rv_error *err);
void rv_journal_encoder_fini(rv_journal_encoder *encoder);

/* No groups, for the next changes. */
void rv_journal_encoder_clear(rv_journal_encoder *encoder);
/* The chunks so far cannot be referred to any more. */
void rv_journal_encoder_forget_chunks(rv_journal_encoder *encoder);

/* Each of these appends. RV_RESOURCE_EXHAUSTED: memory was out, and what was appended since the last clear must be cleared and encoded
 * again, with rv_journal_encoder_forget_chunks before. */
rv_code rv_journal_encode_tables(rv_journal_encoder *encoder, rv_error *err);
rv_code rv_journal_encode_forget_chunks(rv_journal_encoder *encoder, rv_error *err);
rv_code rv_journal_encode_writer(rv_journal_encoder *encoder, const uint64_t id[2], const rv_done_set *done, rv_error *err);
/* Until the writer is encoded again, its numbers say nothing. */
rv_code rv_journal_encode_forget_writer(rv_journal_encoder *encoder, const uint64_t id[2], rv_error *err);
/* Of table number `table`; what is done is noted in `writers`. */
rv_code rv_journal_encode_changes(rv_journal_encoder *encoder, uint32_t table, const rv_change_list *list,
                                  rv_journal_writers *writers, rv_error *err);

#endif
