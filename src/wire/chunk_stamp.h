/* A ChunkData written after the pattern of one before it: chunks of the same columns that have equally many rows, sent as they are, differ only in
 * the key, the range of steps and the rows. */
#ifndef RV_WIRE_CHUNK_STAMP_H
#define RV_WIRE_CHUNK_STAMP_H

#include "store/chunk.h"
#include "wire/proto.h"

enum {
  RV_CHUNK_STAMP_RUNS = 64,
  RV_CHUNK_STAMP_BYTES = 64 /* that stand around the rows of a column, on average at most: others are not learnt */
};

/* The rows of one column in a ChunkData, seen from behind key and range. */
typedef struct rv_chunk_run {
  uint32_t at, size;
} rv_chunk_run;

/* Where they come from: row i at data + i * stride. */
typedef struct rv_run_rows {
  const void *data;
  size_t stride, row_bytes;
} rv_run_rows;

/* Zeroed, it is empty. */
typedef struct rv_chunk_stamp {
  int64_t num_rows; /* of each column; 0: none was learnt */
  uint32_t num_runs;
  size_t row_bytes;   /* of all rows of all columns */
  size_t fixed_bytes; /* what stands around the runs, behind key and range */
  rv_chunk_run *runs; /* in one block with `fixed` */
  uint8_t *fixed;
} rv_chunk_stamp;

void rv_chunk_stamp_fini(rv_chunk_stamp *stamp);

/* What stands before each run, and behind the last, in fixed[0 .. num_runs]: all that rv_chunk_serialize has put around the rows of a chunk of which
 * no column is compressed, of strings, without bytes, or, with more than one row, delta coded; sizes[i] bytes are the rows of column i. `meta` is that
 * of these rows, with the key that was written. Without memory, or of more than fits above, nothing is learnt. */
void rv_chunk_stamp_learn(rv_chunk_stamp *stamp, const rv_span *fixed, const size_t *sizes, uint32_t num_runs,
                          const rv_chunk_meta *meta, int64_t num_rows);
/* What stands behind so many bytes of rows of a chunk that has one column. */
size_t rv_chunk_stamp_tail_size(size_t row_bytes);
/* Of a chunk with as many rows, which are in it. */
size_t rv_chunk_stamp_size(const rv_chunk_stamp *stamp, const rv_chunk_meta *meta);
/* Of its key and range, which stand first. */
size_t rv_chunk_stamp_own_size(const rv_chunk_meta *meta);
/* The rows of run i are those of rows[i]. Returns the size of key and range. */
size_t rv_chunk_stamp_write(const rv_chunk_stamp *stamp, const rv_chunk_meta *meta, const rv_run_rows *rows, uint8_t *out);
/* Of a chunk that has one run, all but the rows; returns where they belong. */
size_t rv_chunk_stamp_write_around(const rv_chunk_stamp *stamp, const rv_chunk_meta *meta, uint8_t *out);

#endif
