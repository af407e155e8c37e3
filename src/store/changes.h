/* What changes in the tables of a store, in the order in which it happens, for somebody who writes it down (persist/journal.h).
 *
 * A table that keeps changes appends a small record of each, under its own lock, to blocks of its own: an insert with references to
 * its rows, everything else as a key and a number. Whoever writes them down takes the blocks away whole, table by table. A table that
 * keeps none (nearly every one) has none, and looks at no more than that.
 *
 * Room is reserved before a step changes anything, so that a change is never lost for want of memory. How many bytes wait is counted
 * over all tables of the store: at `max_bytes` inserts wait, at twice that samples do, at four times that what cannot wait is refused.
 *
 * When is a change written down? `cycle` counts collections. Whoever has left a table's lock after a change, and then reads `cycle` as
 * c, knows that the change is in the collection of cycle c + 1 or in an earlier one: the collector counts up before it enters the
 * tables. */
#ifndef RV_STORE_CHANGES_H
#define RV_STORE_CHANGES_H

#include <stdatomic.h>

#include "store/rate_limiter.h"
#include "store/trajectory.h"

typedef enum rv_change_kind {
  RV_CHANGE_INSERT = 1, /* with the next extra: draw (probability and the like are not set), writer, number */
  RV_CHANGE_DELETE,     /* key */
  RV_CHANGE_UPDATE,     /* key, priority */
  RV_CHANGE_SAMPLE,     /* key, times_sampled */
  RV_CHANGE_RESET,
  RV_CHANGE_LIMITER,   /* with the next extra: limiter */
  RV_CHANGE_DONE,      /* with the next extra: writer, number; of an insert that found its key, after the update */
  RV_CHANGE_BOUNDS,    /* max_size as key, max_times_sampled as times_sampled */
  RV_CHANGE_MAX_BYTES, /* key; 0: none */
  RV_CHANGE_SNAPSHOT   /* key: which one. A snapshot of the table holds what came before, and nothing that comes after */
} rv_change_kind;

typedef struct rv_change {
  uint64_t key;
  double priority;
  int32_t times_sampled;
  uint32_t kind;
} rv_change;

typedef struct rv_change_extra {
  uint64_t writer[2], number; /* who sent it, and as which of its items; 0: nobody who numbers them */
  rv_draw draw;               /* trajectory NULL: none. References are the extra's */
  rv_rate_limiter_config limiter;
} rv_change_extra;

enum {
  RV_CHANGE_BLOCK = 512,
  RV_EXTRA_BLOCK = 128,
  RV_CHANGE_STEP = 256 /* changes that one step reserves at most */
};

typedef struct rv_change_block {
  struct rv_change_block *next;
  size_t count;
  rv_change changes[RV_CHANGE_BLOCK];
} rv_change_block;

typedef struct rv_extra_block {
  struct rv_extra_block *next;
  size_t count;
  rv_change_extra extras[RV_EXTRA_BLOCK];
} rv_extra_block;

/* Blocks in order, oldest first. */
typedef struct rv_change_list {
  rv_change_block *blocks, *last;
  rv_extra_block *extras, *last_extra;
  size_t bytes; /* as counted in the log */
} rv_change_list;

/* Drops what is left; not under a lock. */
void rv_change_list_fini(rv_change_list *list);

/* What the tables of a store share. Lives until no table has it any more. */
typedef struct rv_change_log {
  size_t max_bytes;
  /* There is something to collect, which there was not before, or much of it (`urgent`). Under the table's lock, so that the log outlives
   * the call. */
  void (*wake)(struct rv_change_log *log, bool urgent);
  atomic_size_t bytes; /* that wait in tables, and with the collector until it says that they are written down */
  _Atomic(uint64_t) cycle;
  _Atomic(uint64_t) snapshot; /* the number of the snapshots that are taken next */
  atomic_int fault;           /* errno of what keeps the collector from writing; 0: nothing does */
  bool waits_on_fault;        /* inserts, since who made them hears that they are in before they are written down */
} rv_change_log;

static inline void rv_change_log_init(rv_change_log *log, size_t max_bytes, void (*wake)(rv_change_log *log, bool urgent))
{
  log->max_bytes = max_bytes;
  log->wake = wake;
  log->waits_on_fault = false;
  atomic_init(&log->bytes, 0);
  atomic_init(&log->cycle, 0);
  atomic_init(&log->snapshot, 0);
  atomic_init(&log->fault, 0);
}

/* A table's own; under its lock. */
typedef struct rv_changes {
  rv_change_log *shared;
  rv_change_list list;
  rv_change_block *spare;
  rv_extra_block *spare_extra;
  bool fresh;   /* the collector is to be told when the lock is given back */
  bool pressed; /* and was told that there is much */
  bool blocked; /* somebody waits for room */
  /* of the inserts that follow */
  uint64_t naming, writer[2], number;
} rv_changes;

/* ---- for who writes down ---- */

typedef struct rv_table rv_table;

/* From now on, or no more; what was not taken goes. A table keeps changes for one log at a time. */
rv_code rv_table_keep_changes(rv_table *table, rv_change_log *log, rv_error *err);
void rv_table_drop_changes(rv_table *table);
/* What has gathered is the caller's. */
void rv_table_take_changes(rv_table *table, rv_change_list *out);
/* What calls can change of the table, as if it had been set just now: whoever makes its changes again then has it, whatever is configured by
 * that time. RV_RESOURCE_EXHAUSTED. */
rv_code rv_table_note_settings(rv_table *table, rv_error *err);
/* There is room again: those who waited for it go on. */
void rv_table_serve_changes(rv_table *table);

#endif
