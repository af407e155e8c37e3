/* Samples: one at a time from a sampler that fetches ahead, or batches gathered into contiguous arrays. */
#ifndef REVERIE_SAMPLER_H
#define REVERIE_SAMPLER_H

#include "reverie/client.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- one sampled item ---- */

typedef struct rv_sample rv_sample; /* refcounted; immutable; holds the data it shows, also after client and store are gone */
RV_API rv_sample *rv_sample_ref(rv_sample *sample);
RV_API void rv_sample_unref(rv_sample *sample);

typedef struct rv_sample_info {
  uint64_t key;
  double probability;    /* of this choice, at the draw; 1 for deterministic selectors */
  int64_t table_size;    /* items at the draw, this one included */
  double priority;       /* at the draw */
  int32_t times_sampled; /* this draw included */
  bool rate_limited;     /* somebody had to wait for this draw */
  int64_t inserted_at_ns;
} rv_sample_info;

/* One column of a sampled item: [length, ...row shape], or the row shape alone when squeezed. */
typedef struct rv_sample_column {
  rv_dtype dtype;
  uint32_t rank;        /* of a row */
  const int64_t *shape; /* of a row; valid while the sample is held */
  int64_t length;       /* rows */
  bool squeezed;        /* length is 1 and the time dimension is not shown */
  size_t bytes;         /* what rv_sample_copy writes (sizeof(rv_bytes) an element for strings) */
} rv_sample_column;

RV_API const rv_sample_info *rv_sample_get_info(const rv_sample *sample);
RV_API size_t rv_sample_num_columns(const rv_sample *sample);
/* What all items in the table were called alike by at the draw (reverie/client.h); 0: nothing. */
RV_API uint64_t rv_sample_naming(const rv_sample *sample);
RV_API rv_code rv_sample_get_column(const rv_sample *sample, size_t column, rv_sample_column *out, rv_error *err);
/* Writes the column's rows one after another; `size` must be exactly `bytes`. Strings are written as rv_bytes that point into
 * the sample. RV_DATA_LOSS: a chunk does not decode, or a spill's disk does not give it back. */
RV_API rv_code rv_sample_copy(rv_sample *sample, size_t column, void *out, size_t size, rv_error *err);
/* The column's rows in place, where they lie one after another uncompressed; NULL where they do not, and where they lie in memory that a server
 * shows to clients of its machine, which a forked child would not find. Valid while the sample is held. */
RV_API const void *rv_sample_view(rv_sample *sample, size_t column);

/* ---- a stream of samples ---- */

typedef struct rv_sampler rv_sampler;

typedef struct rv_sampler_config {
  size_t size; /* sizeof(rv_sampler_config) */
  const char *table;
  int64_t max_samples;             /* exactly so many are drawn; RV_UNLIMITED */
  uint32_t max_in_flight_samples;  /* fetched ahead per stream, at most 1,000,000; 0: 1, growing with what was taken. Where nobody
                                           can tell (a random selector, no max_times_sampled, no limit on samples per insert) it is
                                           more: as many as were taken in the last 10 ms, at most 1,024 and 4 MiB. In process
                                           nothing is fetched ahead */
  uint32_t num_streams;            /* 0: 1; with more, order is lost */
  int64_t max_samples_per_stream;  /* then it is opened anew, which spreads load behind a balancer; 0: 10,000 */
  int64_t rate_limiter_timeout_ms; /* the sequence ends when the limiter lets nothing through for so long;
                                           RV_FOREVER; 0: at once. Calls that do not wait (timeout 0) do not end it */
} rv_sampler_config;
#define RV_UNLIMITED INT64_C(-1)

RV_API rv_code rv_sampler_new(rv_client *client, const rv_sampler_config *config, rv_sampler **out, rv_error *err);
/* The next sample, the caller's to unref. RV_OUT_OF_RANGE: the end of the sequence (max_samples, or the limiter's timeout). Samples
 * already fetched are given before either. RV_DEADLINE_EXCEEDED: `wait` ran out; the sequence goes on. One thread at a time. */
RV_API rv_code rv_sampler_next(rv_sampler *sampler, const rv_wait *wait, rv_sample **out, rv_error *err);
/* How many samples are on their way or fetched at most, now: as told, or more (max_in_flight_samples). Who takes many in a row can take so
 * many without being further ahead than was allowed. The caller of rv_sampler_next only. */
RV_API int64_t rv_sampler_window(rv_sampler *sampler);
/* Ends a waiting rv_sampler_next, and every later one, with RV_CANCELLED. Any thread; it returns before rv_sampler_free is called. */
RV_API void rv_sampler_cancel(rv_sampler *sampler);
RV_API void rv_sampler_free(rv_sampler *sampler);

/* ---- batches ---- */

typedef enum rv_unequal {
  RV_UNEQUAL_ERROR =
      0, /* a table with items of different lengths: RV_FAILED_PRECONDITION before anything is counted (a plain Reverb server: after);
            a batch of one is never refused */
  RV_UNEQUAL_PAD =
      1, /* zeros up to the longest, and to the largest rows in each dimension; see rv_batch_lengths. Items that padding cannot make one are found when they are read, and
                         count as sampled */
  RV_UNEQUAL_LIST = 2 /* read item by item with rv_batch_sample */
} rv_unequal;

typedef struct rv_batch rv_batch; /* drawn items, held */

/* Draws `batch_size` items one by one as the limiter allows. At the timeout, when it is cancelled, or when something fails on the way from a
 * server elsewhere (memory is out, an item is too large), what was drawn is returned with RV_OK if it is at least one item (rv_batch_size says how
 * many), for it is counted; RV_DEADLINE_EXCEEDED, RV_CANCELLED or what failed only if it is none. What failed on the way after that is told by
 * the client's next batch of this table, which fails with it before anything is drawn, and is logged if there is no next one: so one that lasts
 * (an item larger than max_message_bytes) does not go unheard. What `interrupted` ends
 * is RV_CANCELLED in any case: what it had drawn is counted and gone. A server elsewhere is given a little less time than there is (a fifth,
 * at most a second), so that its answer is in time.
 * From a server elsewhere, small batches that are asked for again and again are drawn ahead (at most 1,024 samples and 512 KiB), which
 * counts as sampled, where nobody can tell: random selector, no max_times_sampled, no bound on samples per insert. What this client
 * changes is always taken into account; changes by others are as they were when it was drawn, at most a second ago. Where others change the
 * table so that it can be told, no more is drawn ahead from about a second later on, and what was is given out. */
RV_API rv_code rv_client_sample_batch(rv_client *client, const char *table, size_t batch_size, rv_unequal unequal,
                                      const rv_wait *wait, rv_batch **out, rv_error *err);
RV_API void rv_batch_free(rv_batch *batch);
RV_API size_t rv_batch_size(const rv_batch *batch);
RV_API const rv_sample_info *rv_batch_info(const rv_batch *batch, size_t item);
RV_API size_t rv_batch_num_columns(const rv_batch *batch);
/* The same of all its items; 0: nothing, or their samples differ in it. */
RV_API uint64_t rv_batch_naming(const rv_batch *batch);
/* Column of the whole batch: length is the longest item's; bytes is what rv_batch_gather writes: batch size x a padded item. This and
 * rv_batch_gather are for one thread at a time where rows are padded. */
RV_API rv_code rv_batch_column(const rv_batch *batch, size_t column, rv_sample_column *out, rv_error *err);
/* Each item's rows in that column; out has rv_batch_size entries. */
RV_API rv_code rv_batch_lengths(const rv_batch *batch, size_t column, int64_t *out, rv_error *err);
/* Gathers one column into [B, T, ...] (or [B, ...] where squeezed); `size` must be exactly `bytes`. Strings point into the batch.
 * RV_DATA_LOSS: as of rv_sample_copy. */
RV_API rv_code rv_batch_gather(rv_batch *batch, size_t column, void *out, size_t size, rv_error *err);
/* All columns at once, which for small rows is several times faster: outs[i] and sizes[i] are as for rv_batch_gather; a NULL leaves column i
 * out. num_columns is rv_batch_num_columns. */
RV_API rv_code rv_batch_gather_all(rv_batch *batch, void *const *outs, const size_t *sizes, size_t num_columns, rv_error *err);
/* One item, the caller's to unref; NULL when memory is out or there is no such item. */
RV_API rv_sample *rv_batch_sample(rv_batch *batch, size_t item);

/* ---- batches into the caller's arrays ---- */

/* What the items of a table look like: dtype, row shape, length and squeeze of every column. Refcounted, immutable. Of one client,
 * equal layouts are the same pointer. */
typedef struct rv_layout rv_layout;
RV_API rv_layout *rv_layout_ref(rv_layout *layout);
RV_API void rv_layout_unref(rv_layout *layout); /* NULL is fine */
RV_API size_t rv_layout_num_columns(const rv_layout *layout);
/* Column of `num_items` items of this layout; bytes is what all of them take. The shape is valid while the layout is held. */
RV_API rv_code rv_layout_get_column(const rv_layout *layout, size_t column, size_t num_items, rv_sample_column *out,
                                    rv_error *err);
/* The layout that all items of the batch have (the batch's own; take a reference to keep it); NULL: they differ. */
RV_API rv_layout *rv_batch_layout(const rv_batch *batch);

typedef struct rv_batch_arrays {
  size_t size; /* sizeof(rv_batch_arrays) */
  /* what the columns were made for: rv_batch_layout, or `found`; NULL: not known yet */
  const rv_layout *layout;
  void *const *
      columns; /* one for each column: [batch_size, length, ...row], or [batch_size, ...row] where squeezed; NULL leaves it out */
  uint64_t *keys;         /* [batch_size], and so the next four; each may be NULL */
  double *probabilities;  /* of each draw */
  double *priorities;     /* at the draw */
  int32_t *times_sampled; /* this draw included */
  int64_t *table_sizes;   /* at each draw; written only where they differ: see sizes_differ */
  /* what comes back */
  size_t count;       /* items; fewer than batch_size where rv_client_sample_batch gives fewer */
  int64_t table_size; /* at the last draw */
  bool
      sizes_differ; /* the table grew or shrank between the draws: table_sizes has each draw's size, which its probability goes with.
                         false: at every draw it was table_size, and table_sizes is left as it was */
  uint64_t naming;  /* as rv_batch_naming */
  rv_layout *found; /* with RV_FAILED_PRECONDITION: what the items look like, the caller's to unref; NULL: not known, or else */
  rv_batch *drawn;  /* with `found`: what a server elsewhere drew and counted, the caller's to free; else NULL */
} rv_batch_arrays;

/* As rv_client_sample_batch, written straight into the caller's arrays: the fastest way to sample, and nothing to free. Where the
 * items look otherwise than the arrays (or `layout` is NULL), RV_FAILED_PRECONDITION and their layout in `found`: in process nothing was
 * drawn then; what a server elsewhere drew is in `drawn`. Columns of strings are refused (RV_UNIMPLEMENTED): rv_client_sample_batch has
 * them. */
RV_API rv_code rv_client_sample_into(rv_client *client, const char *table, size_t batch_size, rv_batch_arrays *arrays,
                                     const rv_wait *wait, rv_error *err);

/* One item by key, without counting it as sampled. RV_NOT_FOUND: no such item, or no such table; the sentence says
 * which, and which tables there are. RV_UNIMPLEMENTED from a plain Reverb server. */
RV_API rv_code rv_client_get(rv_client *client, const char *table, uint64_t key, const rv_wait *wait, rv_sample **out,
                             rv_error *err);

#ifdef __cplusplus
}
#endif
#endif
