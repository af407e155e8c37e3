/* chunks.tfrecord while it is written: each chunk once, whatever refers to it.
 *
 * A chunk that came over the wire is written as it came. Of a segment the rows are written that items need, and those behind them
 * that are there by then; should a later item need more, those follow under a key of their own. Two chunks that have the same key get
 * different ones. The log holds no references: whoever puts a slice has its chunk. */
#ifndef RV_PERSIST_CHUNK_LOG_H
#define RV_PERSIST_CHUNK_LOG_H

#include "base/env.h"
#include "persist/record_file.h"
#include "store/trajectory.h"
#include "wire/messages.h"

typedef struct rv_chunk_log rv_chunk_log;

/* `writer` and `env` are borrowed. */
rv_code rv_chunk_log_new(rv_record_writer *writer, const rv_env *env, rv_chunk_log **out, rv_error *err);
void rv_chunk_log_free(rv_chunk_log *log);

/* A growing array of slices as they stand in a record. */
typedef struct rv_slice_list {
  rv_wire_slice *slices;
  size_t count, capacity;
} rv_slice_list;

/* Writes what the slice needs and is not written yet, and appends what refers to it: mostly one slice. */
rv_code rv_chunk_log_put(rv_chunk_log *log, const rv_slice *slice, rv_slice_list *out, rv_error *err);

#endif
