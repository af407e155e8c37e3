/* Sampled batches: the object that holds one, and the arrays that its columns are gathered into. */
#ifndef RV_PYTHON_BATCH_H
#define RV_PYTHON_BATCH_H

#include "client.h"

/* ReplayBatch: what was drawn, one array after another in one block; wrapped as NumPy arrays when somebody looks. */
typedef struct batch_object {
  PyObject_HEAD
  core_state *state;
  size_t n;
  int64_t table_size; /* at the last draw */
  PyObject *block;    /* owns the memory of: */
  uint64_t *keys;
  double *probabilities, *priorities;
  int64_t *lengths; /* rows of each item's longest column; NULL: not wanted */
  int32_t *times_sampled;
  int64_t *table_sizes; /* at each draw; */
  bool has_sizes;       /* written: else all are table_size, and it is when somebody looks */
  PyObject *data;
  PyObject *wrapped[6]; /* arrays over the block, made once */
} batch_object;

/* Room for n items, nothing set. */
batch_object *batch_new(core_state *state, pool *buffers, size_t n, bool lengths);

/* The module's replay_batch(data, table_size, keys, probabilities, priorities, times_sampled, lengths, table_sizes=None): a batch of copies,
 * for pickle. */
PyObject *replay_batch_make(PyObject *module, PyObject *args);

/* The arrays that the caller gave for the columns, and the nest that they came in. All borrowed. */
typedef struct batch_out {
  structure_object *structure;
  PyObject **arrays; /* as many as the structure has leaves */
} batch_out;

/* Where in the caller's `out` the array of that column is, for a sentence: "out['obs']". NULL with an exception. */
PyObject *batch_out_place(const batch_out *out, size_t column);

/* Arrays for n items of these columns: the caller's where `given` is set, those that `maker` makes where that is, else fresh ones. */
typedef struct gathering {
  client_object *client;
  size_t n, num_columns;
  rv_sample_column *columns;
  PyObject **arrays; /* new references; NULL: not made */
  void **outs;       /* where the library writes; NULL for strings */
  size_t *sizes, bytes;
  const batch_out *given; /* borrowed; NULL: none */
  PyObject *maker;        /* borrowed; called with shape and dtype it makes an array; NULL: none */
} gathering;

/* Memory for so many columns, in the scratch. -1 with an exception. */
int gathering_init(gathering *g, client_object *client, scratch *s, size_t n, size_t num_columns, const batch_out *given);
/* Makes the arrays, or checks the caller's; `columns` are set, and what their shapes lie in is held: a maker may do anything. On -1 with an
 * exception some may be made. */
int gathering_make(gathering *g);
void gathering_drop(gathering *g); /* all that are made */
/* Fewer items came: each array gives way to a view of its first `count` rows. -1 with an exception. */
int gathering_shorten(gathering *g, size_t count);
/* The arrays, which are taken, in the structure (NULL: a list). The caller holds it: a class of its own may do anything when
 * it is made. */
PyObject *gathering_nest(gathering *g, const structure_object *structure);

#endif
