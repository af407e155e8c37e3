/* Chunks while they are written to a file: each once, whatever refers to it.
 *
 * A chunk that came over the wire is written as it came. Of a segment the rows are written that items need, a few before them, and those behind
 * them that are there by then; should a later item need more, those follow under a key of their own. Two chunks that have the same key get
 * different ones. The log holds no references: whoever puts a slice has its chunk.
 *
 * A log of the usual kind is made for one file. One that lasts (of incremental checkpoints) is used in rounds, each of which writes to a new
 * file what no file has that earlier rounds wrote; it takes about 60 bytes a chunk. */
#ifndef RV_PERSIST_CHUNK_LOG_H
#define RV_PERSIST_CHUNK_LOG_H

#include "base/buf.h"
#include "base/env.h"
#include "persist/chunk_files.h"
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
/* One that marks the chunks it has written, and takes hardly any memory for most. `number`: no other such log of the same store has it
 * (rv_store_new_mark). Where two go on at a time over the same chunks, each may write one twice, under another key. */
rv_code rv_chunk_log_new_marking(rv_chunk_sink sink, const rv_env *env, uint64_t number, rv_chunk_log **out, rv_error *err);
/* One that lasts: of `files` (borrowed) it says which records are needed, and rewrites what stands in those that are retired. */
rv_code rv_chunk_log_new_lasting(rv_chunk_files *files, const rv_env *env, rv_chunk_log **out, rv_error *err);
void rv_chunk_log_free(rv_chunk_log *log); /* NULL is fine */

/* A growing array of slices as they stand in a record. */
typedef struct rv_slice_list {
  rv_wire_slice *slices;
  size_t count, capacity;
} rv_slice_list;

size_t rv_chunk_log_count(const rv_chunk_log *log); /* chunks it remembers, about 100 bytes each; not those that are marked */
void rv_chunk_log_clear(rv_chunk_log *log); /* remembers none, and marks none: what is still needed will be written again */

/* Bytes that went to the sink since the log was made or cleared of chunks that a log which does not last had written before: what having
 * forgotten them costs. */
size_t rv_chunk_log_bytes_again(const rv_chunk_log *log);

/* A round of a log that lasts: what is put goes to `sink`, and counts as the file of that number. */
void rv_chunk_log_begin(rv_chunk_log *log, rv_chunk_sink sink, uint32_t file);
/* The chunk stands in a file of an earlier process as that record, which has the chunk's own key. */
rv_code rv_chunk_log_adopt(rv_chunk_log *log, rv_chunk *chunk, uint32_t file, uint32_t record, rv_error *err);
/* The round is over. `whole`: only what it needed is remembered; otherwise what it wrote is forgotten. */
void rv_chunk_log_end(rv_chunk_log *log, bool whole);

/* Fetches from memory what rv_chunk_log_put will look for, without waiting for it. */
void rv_chunk_log_prefetch(const rv_chunk_log *log, const rv_chunk *chunk);
/* Where the chunk lies in a spill's file, and would be written, the disk is told to bring it. */
void rv_chunk_log_ask(const rv_chunk_log *log, rv_chunk *chunk);

/* Writes what the slice needs and is not written yet, and appends what refers to it: mostly one slice. */
rv_code rv_chunk_log_put(rv_chunk_log *log, const rv_slice *slice, rv_slice_list *out, rv_error *err);

#endif
