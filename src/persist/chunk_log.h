/* Chunks while they are written to a file: each once, whatever refers to it.
 *
 * A chunk that came over the wire is written as it came. Of a segment the rows are written that items need, and those behind them
 * that are there by then; should a later item need more, those follow under a key of their own. Two chunks that have the same key get
 * different ones. The log holds no references: whoever puts a slice has its chunk. */
#ifndef RV_PERSIST_CHUNK_LOG_H
#define RV_PERSIST_CHUNK_LOG_H

#include "base/buf.h"
#include "base/env.h"
#include "store/trajectory.h"
#include "wire/messages.h"

typedef struct rv_chunk_log rv_chunk_log;

/* Where a chunk's serialized ChunkData goes; it may take the pieces' references for itself (rv_pieces_append). */
typedef struct rv_chunk_sink {
  rv_code (*put)(void *context, rv_pieces *chunk, rv_error *err);
  void *context;
} rv_chunk_sink;

/* What `sink` says and `env` are borrowed. */
rv_code rv_chunk_log_new(rv_chunk_sink sink, const rv_env *env, rv_chunk_log **out, rv_error *err);
void rv_chunk_log_free(rv_chunk_log *log);

/* A growing array of slices as they stand in a record. */
typedef struct rv_slice_list {
  rv_wire_slice *slices;
  size_t count, capacity;
} rv_slice_list;

size_t rv_chunk_log_count(const rv_chunk_log *log); /* chunks it remembers: about 100 bytes each */
void rv_chunk_log_clear(rv_chunk_log *log);         /* remembers none: what is still needed will be written again */

/* Writes what the slice needs and is not written yet, and appends what refers to it: mostly one slice. */
rv_code rv_chunk_log_put(rv_chunk_log *log, const rv_slice *slice, rv_slice_list *out, rv_error *err);

#endif
