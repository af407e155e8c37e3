/* What a table is: its selectors, its rate limiter, its bounds, its signature, and what can be read off it.
 *
 * A table holds items. Its sampler chooses which item is sampled next, its remover which one goes when the table is full,
 * and its rate limiter decides when an insert or a sample may proceed. */
#ifndef REVERIE_TABLE_H
#define REVERIE_TABLE_H

#include "reverie/env.h"
#include "reverie/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- selectors ---- */

typedef enum rv_selector_kind {
  RV_SELECTOR_FIFO = 1,        /* the oldest inserted; probability 1 */
  RV_SELECTOR_LIFO = 2,        /* the newest inserted; probability 1 */
  RV_SELECTOR_UNIFORM = 3,     /* any, 1/n */
  RV_SELECTOR_MAX_HEAP = 4,    /* the highest priority; ties: the one inserted or updated longest ago */
  RV_SELECTOR_MIN_HEAP = 5,    /* the lowest priority; same ties */
  RV_SELECTOR_PRIORITIZED = 6, /* proportional to priority^exponent (Schaul et al. 2016, eq. 1), which is kept between 2^-1022 and
                                  2^960 (about 1e289), so that all of them have a sum; zero is never drawn while another is positive */
  RV_SELECTOR_CUSTOM = 7       /* one that was registered under `name` */
} rv_selector_kind;

typedef struct rv_selector_config {
  rv_selector_kind kind;
  double priority_exponent; /* RV_SELECTOR_PRIORITIZED: finite; else 0 */
  const char *name;         /* RV_SELECTOR_CUSTOM: the name it was registered under; else NULL */
  const char *options;      /* RV_SELECTOR_CUSTOM: text handed to its `create`; may be NULL */
} rv_selector_config;

/* ---- rate limiters ----
 * With I inserts, S samples and D deletes so far, an insert may proceed iff I+1-D <= min_size_to_sample or
 * (I+1)*samples_per_insert - S <= max_diff; a sample iff I-D >= min_size_to_sample and
 * I*samples_per_insert - S - 1 >= min_diff (Cassirer et al. 2021, section 3). */

typedef struct rv_rate_limiter_config {
  double samples_per_insert;  /* > 0 */
  int64_t min_size_to_sample; /* >= 1 */
  double min_diff;
  double max_diff;
} rv_rate_limiter_config;

/* Samples wait until the table holds `min_size` items; inserts never wait. */
RV_API rv_rate_limiter_config rv_rate_limiter_min_size(int64_t min_size);
/* Keeps samples/inserts near samples_per_insert, within `error_buffer` samples either way. */
RV_API rv_rate_limiter_config rv_rate_limiter_sample_to_insert_ratio(double samples_per_insert, int64_t min_size,
                                                                     double error_buffer);
/* Each item is sampled once; an insert waits while `size` items wait to be sampled. Use with max_times_sampled 1. */
RV_API rv_rate_limiter_config rv_rate_limiter_queue(int64_t size);
RV_API rv_rate_limiter_config rv_rate_limiter_stack(int64_t size);
/* RV_INVALID_ARGUMENT, with the number to change, if the parameters are out of range, NaN, or can never let anybody
 * through (no sample at the insert count at which inserts stop). */
RV_API rv_code rv_rate_limiter_check(const rv_rate_limiter_config *config, rv_error *err);

/* ---- registered selectors and extensions ---- */

/* A selector of the caller's own. Each function runs under the table's lock: it must not block, call back into Reverie, or
 * take long. `slot` is a small dense number that stands for the item as long as it lives and is used again afterwards. */
typedef struct rv_selector_ops {
  size_t size; /* sizeof(rv_selector_ops) */
  rv_code (*create)(const char *options, void **selector, rv_error *err);
  void (*destroy)(void *selector);
  rv_code (*insert)(void *selector, uint32_t slot, uint64_t key, double priority, rv_error *err);
  void (*remove)(void *selector, uint32_t slot, uint64_t key);
  rv_code (*update)(void *selector, uint32_t slot, uint64_t key, double priority, rv_error *err);
  void (*clear)(void *selector);
  /* Chooses one item of the n > 0 present; `random` is 64 fresh uniform bits. */
  uint32_t (*select)(void *selector, uint64_t random, double *probability);
} rv_selector_ops;

typedef enum rv_event_kind {
  RV_EVENT_INSERT = 1,
  RV_EVENT_SAMPLE = 2,
  RV_EVENT_UPDATE = 3,
  RV_EVENT_DELETE = 4,
  RV_EVENT_RESET = 5
} rv_event_kind;

typedef struct rv_event {
  rv_event_kind kind;
  uint64_t key;          /* 0 for RV_EVENT_RESET */
  double priority;       /* after the event */
  double old_priority;   /* RV_EVENT_UPDATE: before it */
  uint64_t episode_id;   /* of the item's first chunk */
  int64_t episode_step;  /* episode step of the item's first row; -1 when unknown */
  int32_t times_sampled; /* after the event */
} rv_event;

typedef struct rv_edit rv_edit; /* valid only during the hook that it was given to */

/* An extension sees what happens to a table. `on_events` runs under the table's lock with a batch of events, in order, and
 * may edit priorities through `edit`; it must not block or call any other function of Reverie. Edits are not events. All of the
 * batch has happened when it is told: an item that was sampled or inserted may be gone again (its RV_EVENT_DELETE is in this batch
 * or the next, and editing it is RV_NOT_FOUND), and an edit counts for what comes after the batch, not for draws within it. */
typedef struct rv_extension_ops {
  size_t size; /* sizeof(rv_extension_ops) */
  rv_code (*create)(const char *table, const char *options, void **extension, rv_error *err);
  void (*destroy)(void *extension);
  void (*on_events)(void *extension, const rv_event *events, size_t n, rv_edit *edit);
  /* Text for people (one line of name=value pairs) about what the extension has gathered; optional. Writes at most
   * `capacity` bytes with the NUL and returns the full length. */
  size_t (*describe)(void *extension, char *out, size_t capacity);
  /* Goes on with what `on_events` left undone, for a few microseconds; optional. True: there is more. It is called until it returns false, others are
   * let at the table in between, and the call whose events they were returns after that. */
  bool (*go_on)(void *extension, rv_edit *edit);
} rv_extension_ops;

/* Sets the priority of a present item. RV_NOT_FOUND for a key that is not in the table, RV_INVALID_ARGUMENT for a priority
 * that the table's selectors refuse. */
RV_API rv_code rv_edit_set_priority(rv_edit *edit, uint64_t key, double priority);
/* The priority of a present item; RV_NOT_FOUND otherwise. */
RV_API rv_code rv_edit_priority(rv_edit *edit, uint64_t key, double *priority);

/* Names for selectors and extensions. Made by the caller, read by the stores that are given it, and not changed once a store
 * uses it. "statistics" and "diffusion" are always there (docs/architecture.md, Extensions). */
typedef struct rv_registry rv_registry;
RV_API rv_code rv_registry_new(rv_registry **out, rv_error *err);
RV_API void rv_registry_free(rv_registry *registry);
RV_API rv_code rv_registry_add_selector(rv_registry *registry, const char *name, const rv_selector_ops *ops, rv_error *err);
RV_API rv_code rv_registry_add_extension(rv_registry *registry, const char *name, const rv_extension_ops *ops, rv_error *err);

typedef struct rv_extension_config {
  const char *name;    /* as registered */
  const char *options; /* "name=value,name=value"; may be NULL. "diffusion": "steps=N,decay=F" */
} rv_extension_config;

/* ---- tables ---- */

typedef struct rv_table_config {
  size_t size;      /* sizeof(rv_table_config) */
  const char *name; /* UTF-8, not empty, 2,048 bytes at most */
  rv_selector_config sampler;
  rv_selector_config remover;
  int64_t max_size;          /* items, >= 1, <= 2^31 - 1 */
  int32_t max_times_sampled; /* the item goes when it was sampled so often; <= 0: no bound */
  rv_rate_limiter_config rate_limiter;
  const rv_signature *signature; /* NULL: anything goes */
  const rv_extension_config *extensions;
  size_t num_extensions;
  /* Bytes that items may take, with their chunks and what is written down of both (rv_table_info.item_bytes); 0: no bound. Where one
   * more would take it beyond that, the remover takes items away first, as at max_size. */
  int64_t max_bytes;
} rv_table_config;

/* Bounds for a table that is in use (rv_client_set_bounds); each may be RV_UNCHANGED. */
#define RV_UNCHANGED (-1)
typedef struct rv_table_bounds {
  size_t size;               /* sizeof(rv_table_bounds) */
  int64_t max_size;          /* items, 1 to 2^31 - 1 */
  int64_t max_bytes;         /* as in rv_table_config; 0: none */
  int32_t max_times_sampled; /* 0: none */
} rv_table_bounds;
/* All as they are, to be adjusted. */
RV_API rv_table_bounds rv_table_bounds_unchanged(void);

/* An unbounded-sampling uniform table with a FIFO remover and min size 1: the usual replay buffer, to be adjusted. */
RV_API rv_table_config rv_table_config_default(const char *name, int64_t max_size);

/* What a waiting caller waits for. */
typedef enum rv_wait_reason {
  RV_WAIT_NONE = 0,
  RV_WAIT_MIN_SIZE = 1,         /* sample: the table holds fewer than min_size_to_sample items */
  RV_WAIT_TOO_MANY_SAMPLES = 2, /* sample: samples are ahead of inserts (min_diff) */
  RV_WAIT_TOO_MANY_INSERTS = 3, /* insert: inserts are ahead of samples (max_diff) */
  RV_WAIT_TURN = 4,             /* others of its kind came first */
  RV_WAIT_EMPTY = 5,            /* sample: no item is present */
  RV_WAIT_JOURNAL =
      6, /* too much waits to be written to the store's journal (reverie/journal.h); or, of a server elsewhere, an insert
                                   or a change is in, and its confirmation has waited for the journal's disk for a second */
  RV_WAIT_MEMORY = 7 /* insert: the store's memory is near its limit (rv_store_config.memory_limit) */
} rv_wait_reason;

/* A call, or a writer's stream: however many of its inserts wait, it is one caller. */
typedef struct rv_waiting_caller {
  uint64_t id; /* of the oldest of what waits; the next two times are, too */
  bool is_insert;
  bool
      is_change; /* neither an insert nor a sample, but a call that changes the table otherwise, whose answer waits for the journal */
  rv_wait_reason reason;
  int64_t waiting_ns; /* since it asked */
  /* Until the deadline that the table was told; INT64_MAX: none, or only the caller knows it (a writer's items, a remote sampler). */
  int64_t remaining_ns;
  int64_t wanted; /* samples or inserts still wanted; of a change: 1 */
  char peer[64];  /* who asks, cut off: "ipv4:10.0.0.7:4711", "unix:process 4711 of user 1000 to /path", "in process" */
} rv_waiting_caller;

typedef struct rv_table_info {
  size_t size; /* sizeof(rv_table_info) */
  char *name;
  rv_selector_config sampler;
  rv_selector_config remover;
  int64_t max_size;
  int32_t max_times_sampled;
  rv_rate_limiter_config rate_limiter;
  rv_signature signature; /* num_specs 0 and structure.size 0: none */
  int64_t current_size;
  int64_t num_episodes;                          /* distinct episodes that present items' chunks come from */
  int64_t num_deleted_episodes;                  /* episodes no longer referenced, since reset; rows without one are none */
  int64_t num_unique_samples;                    /* items sampled for the first time, since reset */
  int64_t inserts, samples, deletes;             /* the limiter's counters, since reset */
  int64_t updates;                               /* priorities changed, since reset */
  double inserts_per_second, samples_per_second; /* over the last ten seconds or so */
  int64_t memory_bytes; /* of the chunks that this table's items hold (a chunk counts in each table that holds it) and its
                            own books */
  /* Cumulative time, ns: what Reverb calls table_worker_time. */
  int64_t running_ns, sampling_ns, inserting_ns, sleeping_ns, waiting_for_sampling_ns, waiting_for_inserts_ns;
  rv_waiting_caller *waiting;                       /* callers, in the order they will be served: the first 100, about */
  size_t num_waiting;                               /* entries of `waiting` */
  int64_t num_waiting_inserts, num_waiting_samples; /* all of them */
  double min_priority,
      max_priority; /* of present items, or, for a few calls after the last that had it has gone from a table of more than
                                      * 32,768, beyond all of them; NaN for an empty table */
  char *
      extensions; /* what the table's extensions describe and what its registered selectors did wrong, a line each; "" for none */
  int64_t max_bytes;  /* 0: no bound */
  int64_t item_bytes; /* what max_bytes bounds: memory_bytes without what the table keeps for items to come */
} rv_table_info;

/* One item, as listings give it. */
typedef struct rv_item_info {
  uint64_t key;
  double priority;
  int32_t times_sampled;
  int64_t inserted_at_ns; /* since 1970 */
  int64_t length;         /* rows of its longest column */
} rv_item_info;

#ifdef __cplusplus
}
#endif
#endif
