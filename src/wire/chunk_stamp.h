/* A ChunkData written after the pattern of one before it: chunks of one column that have equally many rows, sent as they are, differ
 * only in the key, the range of steps and the rows. */
#ifndef RV_WIRE_CHUNK_STAMP_H
#define RV_WIRE_CHUNK_STAMP_H

#include "store/chunk.h"
#include "wire/proto.h"

enum { RV_CHUNK_STAMP_BYTES = 64 };

typedef struct rv_chunk_stamp {
  int64_t num_rows; /* 0: none was learnt */
  size_t row_bytes; /* of all rows */
  size_t head_size, tail_size;
  uint8_t fixed[RV_CHUNK_STAMP_BYTES]; /* what stands before the rows, and behind them */
} rv_chunk_stamp;

/* `before` and `behind`: what rv_chunk_serialize has put before and behind the rows, all of a chunk with one column, which is neither compressed nor
 * of strings nor, with more than one row, delta coded; they are bytes of their own there, or of one message. `meta` is that of these rows, with the
 * key that was written. */
void rv_chunk_stamp_learn(rv_chunk_stamp *stamp, rv_span before, rv_span behind, const rv_chunk_meta *meta, int64_t num_rows,
                          size_t row_bytes);
/* What stands behind so many bytes of rows. */
size_t rv_chunk_stamp_tail_size(size_t row_bytes);
/* Of a chunk with as many rows, which are in it. */
size_t rv_chunk_stamp_size(const rv_chunk_stamp *stamp, const rv_chunk_meta *meta);
/* Of its key and range, which stand first. */
size_t rv_chunk_stamp_own_size(const rv_chunk_meta *meta);
/* Returns the size of key and range. */
size_t rv_chunk_stamp_write(const rv_chunk_stamp *stamp, const rv_chunk_meta *meta, const void *rows, uint8_t *out);
/* All but the rows; returns where they belong. */
size_t rv_chunk_stamp_write_around(const rv_chunk_stamp *stamp, const rv_chunk_meta *meta, uint8_t *out);

#endif
