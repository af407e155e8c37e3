/* Bytes that several owners share: received messages, encoded chunks, messages to send. */
#ifndef RV_BASE_BUF_H
#define RV_BASE_BUF_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "reverie/status.h"

/* Refcounted, immutable once shared. */
typedef struct rv_buf {
  atomic_size_t refs;
  size_t size; /* bytes in use */
  size_t capacity;
  void (*release)(struct rv_buf *buf); /* called at the last unref; NULL: free() */
  uint8_t *data;                       /* points behind the header, or to memory that `release` knows */
} rv_buf;

/* A buffer of size 0 with room for `capacity` bytes; NULL when memory is out. The caller owns one reference. */
rv_buf *rv_buf_new(size_t capacity);
rv_buf *rv_buf_copy(const void *data, size_t size);
rv_buf *rv_buf_ref(rv_buf *buf);
void rv_buf_unref(rv_buf *buf); /* NULL is fine */

/* A message to send, as pieces: bytes copied in one after another, and ranges of shared buffers by reference. */
typedef struct rv_piece {
  const uint8_t *data;
  size_t size;
  rv_buf *owner; /* one reference */
} rv_piece;

typedef struct rv_pieces {
  rv_piece *piece;
  size_t count, capacity;
  size_t bytes;  /* of all pieces */
  rv_buf *tail;  /* the buffer that small bytes are appended to; owned through the pieces that point into it */
  rv_buf *spare; /* the next tail, or NULL */
} rv_pieces;

void rv_pieces_init(rv_pieces *pieces);
void rv_pieces_fini(rv_pieces *pieces); /* drops the references */
/* Empties them, and keeps what memory nobody else refers to for the next use. */
void rv_pieces_clear(rv_pieces *pieces);
/* Copies bytes in. RV_RESOURCE_EXHAUSTED when memory is out; the pieces are then as they were. */
rv_code rv_pieces_copy(rv_pieces *pieces, const void *data, size_t size);
/* Adds a range of `owner` by reference (takes one of its own). */
rv_code rv_pieces_share(rv_pieces *pieces, rv_buf *owner, const void *data, size_t size);
/* The same with a reference of the caller's, which is gone in any case. */
rv_code rv_pieces_give(rv_pieces *pieces, rv_buf *owned_owner, const void *data, size_t size);
/* Moves all pieces of `from` to the end of `to`; `from` is then empty. */
rv_code rv_pieces_append(rv_pieces *to, rv_pieces *from);

#endif
