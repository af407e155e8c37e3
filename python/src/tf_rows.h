/* Memory for a block of samples of one kind, which a sampler copies their rows into as they arrive. The memory of a large column becomes
 * its tensor's, and is replaced. */
#ifndef RV_PYTHON_TF_ROWS_H
#define RV_PYTHON_TF_ROWS_H

#include "client.h"
#include "client/sink.h"

typedef struct tf_rows {
  rv_sink sink;
  rv_layout *layout; /* one reference */
  size_t capacity;   /* samples */
  size_t num_columns;
  pool *buffers; /* the maker's */
  struct tf_rows_column {
    rv_sample_column shown; /* of one sample */
    size_t size;            /* of its memory */
  } * columns;
  void **data;              /* of each column; NULL: its tensor has it */
  _Alignas(8) char infos[]; /* the sink's keys and the like */
} tf_rows;

/* NULL: no memory, or more bytes than there are addresses. Of strings there must be none. */
tf_rows *tf_rows_new(rv_layout *layout, size_t capacity, pool *buffers);
void tf_rows_free(tf_rows *rows); /* NULL is fine */
/* Sees to it that every column has memory. false: there is none. */
bool tf_rows_prepare(tf_rows *rows);
/* The column's memory, from now on the caller's, to be given to the pool with this size. */
void *tf_rows_hand_out(tf_rows *rows, size_t column, size_t *size);

#endif
