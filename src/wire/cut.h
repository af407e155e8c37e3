/* Cuts: a run of a chunk's rows, planned (so that its size is known) and then written as a ChunkData.
 *
 * Rows are sent as literals, where they lie in place or from a copy that is made when the cut is planned, large ones by reference; the rest is encoded then. A
 * cut holds no reference: the chunk must stay until it is written; what is written then holds the chunk for as long as it refers
 * to it. */
#ifndef RV_WIRE_CUT_H
#define RV_WIRE_CUT_H

#include "store/chunk.h"
#include "wire/proto.h"

typedef struct rv_cut_column {
  const rv_chunk_column *spec;
  const void *rows; /* in place, or in `copy` */
  size_t stride;
  rv_buf *copy; /* one reference, or NULL */
  size_t bytes; /* of all rows */
  size_t content_size;
  size_t tensor_size; /* the TensorProto's */
  rv_pieces content;  /* where it had to be encoded to know its size; else empty */
} rv_cut_column;

/* Columns of several cuts, one array for all. */
typedef struct rv_cut_room {
  rv_cut_column few[12], *columns;
  size_t count, capacity;
} rv_cut_room;

void rv_cut_room_init(rv_cut_room *room);
void rv_cut_room_fini(rv_cut_room *room);

typedef struct rv_cut {
  rv_chunk *chunk;
  uint64_t key;
  rv_chunk_meta meta; /* of the rows cut */
  int64_t first, count;
  bool delta;
  size_t first_column, num_columns; /* in the room */
  size_t data_size;                 /* of the tensors */
  size_t uncompressed;
  size_t size; /* of the ChunkData */
} rv_cut;

/* What to cut: rows [first, first + count) of one column, or of all (SIZE_MAX). Rows that a column does not have yet are sent as
 * zeros, which is only right for columns that no slice refers to; rv_chunk_serialize refuses them. `snappy`: one byte a column,
 * or empty. */
typedef struct rv_cut_order {
  uint64_t key;
  size_t column;
  int64_t first, count;
  bool delta;
  rv_span snappy;
} rv_cut_order;

rv_code rv_cut_plan(rv_cut_room *room, rv_chunk *chunk, const rv_cut_order *order, rv_cut *out, rv_error *err);
/* Forgets the cut that was planned last. */
void rv_cut_drop(rv_cut_room *room, const rv_cut *cut);
/* Appends the ChunkData. `scratch` is used for headers, and left empty. */
rv_code rv_cut_write(rv_pieces *out, rv_cut_room *room, const rv_cut *cut, rv_writer_buf *scratch, rv_error *err);

/* A buffer that holds the chunk, for sending parts of it by reference; NULL when memory is out. */
rv_buf *rv_chunk_hold(rv_chunk *chunk);

/* Copies what was written so far to the pieces and empties the buffer. */
rv_code rv_writer_buf_flush(rv_writer_buf *from, rv_pieces *to, rv_error *err);

#endif
