/* Where a dataset's tensors come from: samples whose rows are copied into the memory that TensorFlow gets, as they arrive once their kind is
 * known; until then, and where that cannot be (strings, steps, kinds that change), they are held, and gathered column by column. It needs
 * neither Python nor its GIL, since TensorFlow's threads call it. */
#ifndef RV_PYTHON_TF_SOURCE_H
#define RV_PYTHON_TF_SOURCE_H

#include "client.h"

typedef struct tf_source_config {
  const char *table;
  const rv_spec *specs; /* what the dataset was made for */
  size_t num_specs;
  size_t batch;        /* samples; 0: single ones, of which a block has many */
  bool drop_remainder; /* a batch too short is left out */
  bool alone;          /* a block is one batch, not several */
  bool timesteps;      /* a block has the steps of its samples; no batch */
  int64_t timeout_ms;  /* to wait for a sample; RV_FOREVER */
} tf_source_config;

typedef struct tf_source tf_source;

/* The sampler and the pool are the caller's until tf_source_close. The config is copied. NULL: no memory. */
tf_source *tf_source_new(const tf_source_config *config, rv_sampler *sampler, pool *buffers);
tf_source *tf_source_ref(tf_source *source);
void tf_source_unref(tf_source *source);
/* Ends a tf_source_next that waits; later ones say that the sequence has ended. */
void tf_source_close(tf_source *source);

enum { TF_INFOS = 5, TF_MAX_RANK = RV_MAX_RANK + 4 };

size_t tf_source_columns(const tf_source *source);
rv_dtype tf_source_dtype(const tf_source *source, size_t column);

/* Samples that are there to be written: `n` of them, of `steps` rows each (1 but for timesteps). */
typedef struct tf_block {
  bool going; /* false: the sequence has ended, and this is empty */
  size_t n;
  size_t steps;
  bool in_rows; /* they were copied as they arrived */
} tf_block;

/* The next block; an empty one (n is 0) when there is none for 100 ms. RV_OK: the source is the caller's alone until tf_source_done.
 * RV_DEADLINE_EXCEEDED: no sample came within timeout_ms, in one call or many; RV_CANCELLED: Ctrl-C came (interrupts.h). After these two the
 * sequence goes on, as it does after samples that are not what the dataset was made for, or that cannot be put into one batch: those are left
 * out, and there may be one error more than there are such batches. After what the server answers, also a deadline that it says has passed, the
 * sequence has ended. */
rv_code tf_source_next(tf_source *source, tf_block *out, rv_error *err);
/* The leading sizes of all tensors of a block; returns how many. */
int tf_source_leading(const tf_source *source, const tf_block *block, int64_t *sizes);
/* All sizes of a column; returns how many. `sizes` holds TF_MAX_RANK. */
int tf_source_shape(const tf_source *source, const tf_block *block, size_t column, int64_t *sizes);
/* What the infos' tensors hold, in the order of reverie.SampleInfo. */
void tf_source_infos(const tf_source *source, const tf_block *block, void *const out[TF_INFOS]);
/* Where the block is in_rows: the column's memory, which begins with its rows, for the caller to keep; *size bytes, to be given back to
 * tf_source_buffers. */
void *tf_source_hand_out(tf_source *source, size_t column, size_t *size);
/* A column's rows, `size` bytes; of strings, rv_bytes that live until tf_source_done. */
rv_code tf_source_gather(tf_source *source, const tf_block *block, size_t column, void *out, size_t size, rv_error *err);
void tf_source_done(tf_source *source, const tf_block *block);
pool *tf_source_buffers(tf_source *source); /* between next and done */

#endif
