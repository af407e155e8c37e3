/* Chunks whose rows lie where their reader has them already: only what stands around the rows comes as bytes, and is put around them there, so
 * that the serialized ChunkData is whole in one place. A pack of items brings such chunks (insert_pack.h). */
#ifndef RV_WIRE_CHUNK_PLACED_H
#define RV_WIRE_CHUNK_PLACED_H

#include "store/chunk.h"
#include "wire/proto.h"

enum { RV_ROWS_PLACE_BYTES = 16 }; /* that name a place; what they say is their reader's affair */

typedef struct rv_placed_rows {
  /* A buffer with the rows of that place in it, behind `before` bytes and before `behind` bytes that are to be written; the caller's reference. */
  rv_code (*take)(void *context, const uint8_t *place, size_t before, size_t rows, size_t behind, rv_buf **out, rv_error *err);
  /* Rows of that place are taken soon: what is to be written around them may be fetched. NULL: it is not. */
  void (*fetch)(void *context, const uint8_t *place, size_t rows);
  void *context;
} rv_placed_rows;

/* Chunks that differ in key, range and rows alone. */
typedef struct rv_placed_form {
  rv_span before, behind; /* the rows, but for key and range: in the message that brought the first */
  size_t row_bytes;       /* of all rows; 0: no chunk has been read */
  int64_t num_rows;       /* of each chunk */
} rv_placed_form;

/* The first chunk: `chunk` is its ChunkData without its rows, which take row_bytes and belong behind its first rows_at bytes. RV_INVALID_ARGUMENT:
 * it is no chunk with these as the rows of its one tensor, or they are not there. */
rv_code rv_placed_form_begin(rv_placed_form *form, rv_span chunk, size_t rows_at, size_t row_bytes, const rv_placed_rows *rows,
                             const uint8_t *place, rv_chunk **out, rv_error *err);
/* The next, whose key and range are next in `bytes`, which moves on behind them. */
rv_code rv_placed_form_next(const rv_placed_form *form, rv_span *bytes, const rv_placed_rows *rows, const uint8_t *place,
                            rv_chunk **out, rv_error *err);

#endif
