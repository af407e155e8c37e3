/* Reverie in process, as a C program uses it: a table of transitions, or of items made of several steps, and batches sampled from it. */
#ifndef BENCH_BUFFER_H
#define BENCH_BUFFER_H

#include "common.h"

enum { BUFFER_POOL = 1024, BUFFER_EPISODE = 256, BUFFER_ADD_BATCH = 128, BUFFER_COLUMNS_MAX = 5 };

typedef enum buffer_kind { BUFFER_TRANSITION, BUFFER_SEQUENCE, BUFFER_NSTEP, BUFFER_NEXT, BUFFER_FRAMESTACK } buffer_kind;

typedef struct buffer_shape {
  buffer_kind kind;
  int64_t obs_bytes, capacity, batch, length, period;
} buffer_shape;

/* The kind of that name; dies for another. */
buffer_kind buffer_kind_of(const char *name);
/* Items that `capacity` steps make. */
int64_t buffer_items(const buffer_shape *shape);
/* Bytes of the data that a full buffer keeps: each row of each step once. */
int64_t buffer_stored_bytes(const buffer_shape *shape);
/* Bytes of one sampled item. */
int64_t buffer_item_bytes(const buffer_shape *shape);

typedef struct bench_buffer {
  buffer_shape shape;
  rv_store *store;
  rv_client *client;
  rv_writer *writer;                       /* of the kinds with several steps */
  rv_transitions *shared;                  /* of those whose steps go on from one another */
  unsigned char *pool[BUFFER_COLUMNS_MAX]; /* BUFFER_POOL rows of each column */
  rv_tensor (
      *rows)[BUFFER_COLUMNS_MAX]; /* of the pool, as a program keeps descriptions of its own arrays; of BUFFER_TRANSITION */
  int64_t *row_shapes;
  int64_t added;
  int64_t episode_step;
  void *outs[BUFFER_COLUMNS_MAX];
  uint64_t *keys;
  double *probabilities, *priorities, *new_priorities;
  int32_t *times_sampled;
  rv_layout *layout;
} bench_buffer;

/* An empty buffer with one table "t" of that sampler and remover. */
void buffer_init(bench_buffer *buffer, const buffer_shape *shape, rv_selector_kind sampler, rv_selector_kind remover);
void buffer_fini(bench_buffer *buffer);
/* One transition, or one step with the items that it completes (of BUFFER_NEXT and BUFFER_FRAMESTACK always one). Fits bench_time_calls, as the others do. */
void buffer_add(void *buffer);
/* BUFFER_ADD_BATCH transitions. */
void buffer_add_batch(void *buffer);
/* A batch, all columns and what is known of each item. */
void buffer_sample(void *buffer);
/* New priorities for the batch sampled last. */
void buffer_update(void *buffer);
void buffer_fill(bench_buffer *buffer, int64_t steps);

#endif
