/* Bare copies: what moving the same bytes from the same random places costs one thread without any store. */
#ifndef BENCH_COPIES_H
#define BENCH_COPIES_H

#include "buffer.h"

typedef struct bench_copies {
  unsigned char *rows, *row, *out;
  size_t row_bytes;   /* of what one add writes */
  size_t piece_bytes; /* that lie one after another */
  int64_t num_rows, num_pieces, next;
  uint32_t *places; /* so many batches of pieces that caches do not know the next one's rows from the last time */
  int64_t turn, num_turns;
  unsigned char *columns[BUFFER_COLUMNS_MAX], *outs[BUFFER_COLUMNS_MAX]; /* of the gather; made by its first call */
  size_t column_bytes[BUFFER_COLUMNS_MAX], column_rows;                  /* of a row; rows of an item */
} bench_copies;

/* The bytes of the buffer's items, in a plain array. */
void copies_init(bench_copies *copies, const buffer_shape *shape);
void copies_fini(bench_copies *copies);
/* One row to the next place; BUFFER_ADD_BATCH rows; a batch into memory that is used again. */
void copies_add(void *copies);
void copies_add_batch(void *copies);
void copies_sample(void *copies);
/* A batch out of one plain array a column into one array a column, as the store gives it: of transitions and sequences. */
void copies_gather(void *copies);

#endif
