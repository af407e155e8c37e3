/* What a table is made of, for its own files: table.c makes and closes it, turn.c serves those who wait, insert.c, rows.c,
 * sample.c and mutate.c do the work, listing.c and info.c look, compact.c and rates.c keep house.
 *
 * Everything below "under the lock" is guarded by the table's mutex. An operation enters (rv_turn_begin), works, and leaves
 * (rv_turn_end): what must happen without the lock (freeing, completions, compaction) is gathered in the turn and done while
 * leaving. */
#ifndef RV_STORE_TABLE_PARTS_H
#define RV_STORE_TABLE_PARTS_H

#include <stdatomic.h>

#include "base/crew.h"
#include "base/env.h"
#include "base/lock.h"
#include "base/past_caches.h"
#include "base/random.h"
#include "store/books.h"
#include "store/changes.h"
#include "store/extensions/extension.h"
#include "store/extremes.h"
#include "store/memory.h"
#include "store/pick.h"
#include "store/rate_limiter.h"
#include "store/restore.h"
#include "store/row_plan.h"
#include "store/stamp.h"
#include "store/table.h"

enum {
  RV_TURN_BUDGET = 256, /* small steps in one hold of the lock: about 5 us */
  RV_ROWS_STEP = 128,   /* rows inserted in one step */
  RV_DRAWS_STEP = 256,  /* items drawn in one step */
  RV_EVENTS_MAX = 64,   /* told to extensions at once */
  RV_MAX_MARKS = 64,    /* listings that may go on where they stopped without searching */
  RV_MAX_SPARES = 40,   /* segments that died and are kept for the next rows */
  RV_MAX_FORMS = 4,     /* kinds of rows that are inserted in turns without closing a segment */
  RV_RATE_SNAPSHOTS = 16,
  RV_SETTINGS_TRIED = 100 /* how often a setting is checked without the lock, against others that change meanwhile */
};

/* Where an operation stands. */
enum {
  RV_WAITER_NEW = 0,
  RV_WAITER_INLINE = 1,     /* queued, its submitter still inside the call */
  RV_WAITER_PENDING = 2,    /* queued */
  RV_WAITER_COMPLETING = 3, /* out of the queue; `complete` is or will be called */
  RV_WAITER_DONE = 4,       /* complete before its submitter left the call */
  RV_WAITER_CANCELLED = 5
};

/* ---- rows without a trajectory ---- */

/* What rows of one kind look like, and the segment that they go into now. */
typedef struct rv_form {
  uint32_t refs; /* the table's list and operations under way; under the lock */
  uint32_t num_columns;
  size_t row_bytes;
  rv_spec *specs;          /* of rows; shapes stand behind them */
  size_t *column_bytes;    /* of a row */
  rv_trajectory *template; /* one reference */
  bool has_strings;        /* a row has one at least */
  uint64_t epoch;          /* of the books that `hold` and `number` belong to */
  rv_hold *hold;           /* open segment; NULL: none */
  int64_t fill, capacity;
  uint64_t large_epoch; /* of the books that `large` belongs to */
  rv_hold *large;       /* open segment for rows that are copied before the lock; NULL: none, or lent to a caller */
  uint16_t number;      /* of the template in the books */
  size_t next_bytes;    /* of the next segment */
} rv_form;

/* ---- listings ---- */

/* Where a listing goes on: it moves to the next item when its own goes. */
typedef struct rv_mark {
  uint64_t cursor; /* 0: free */
  uint32_t slot;   /* RV_NO_SLOT: at the end */
  uint64_t used;   /* when, as a count of pages */
} rv_mark;

/* ---- counting ---- */

typedef struct rv_rate_snapshot {
  int64_t at_ns; /* monotonic */
  int64_t inserts, samples;
} rv_rate_snapshot;

typedef enum rv_idle_kind { RV_IDLE_SLEEPING, RV_IDLE_WANTS_SAMPLES, RV_IDLE_WANTS_INSERTS, RV_IDLE_KINDS } rv_idle_kind;

typedef struct rv_rates {
  rv_rate_snapshot snapshots[RV_RATE_SNAPSHOTS]; /* a ring, about a second apart */
  uint32_t num_snapshots, next_snapshot;
  int64_t inserts, samples;          /* since the table was made */
  int64_t inserting_ns, sampling_ns; /* one operation in RV_TIMED_ONE_IN is timed, and counts for all */
  int64_t idle_ns[RV_IDLE_KINDS];
  rv_idle_kind idle;
  int64_t idle_since_ns;
  uint32_t operations;
} rv_rates;

enum { RV_TIMED_ONE_IN = 64 };

/* ---- the table ---- */

struct rv_table {
  /* never change */
  const rv_env *env;
  rv_layouts *layouts;
  rv_decode_cache *cache;
  rv_crew *crew;     /* the store's */
  rv_memory *memory; /* the store's */
  char *name;
  rv_table_config config; /* name, selector texts and extensions point into copies; signature NULL. Its max_size, max_bytes and
                             max_times_sampled may change, under the lock */
  rv_signature *signature;
  bool weighs; /* some selector takes no negative and no infinite priority */
  rv_extension *extensions;
  size_t num_extensions;
  atomic_uint contenders; /* threads that wait for the mutex */
  /* These change under the lock, and are read without it. */
  atomic_size_t max_bytes; /* of items; SIZE_MAX: no bound */
  atomic_bool bounded;     /* there is a bound in bytes, its own or the store's */

  rv_mutex mutex; /* everything below */
  bool closed;
  rv_pick sampler, remover;
  rv_rate_limiter limiter;
  rv_random random;      /* for draws and keys of items: the seed's, where the store has one */
  rv_random_lanes lanes; /* for many draws at a time; the seed's, too */
  rv_books books;
  int64_t num_unique_samples, updates;
  rv_extremes extremes; /* of priorities */
  uint64_t bounds_changes;
  uint64_t naming;       /* of the items inserted last */
  uint64_t naming_since; /* the first of them, in the order of insertion; 0: no other item is present */

  rv_form *forms[RV_MAX_FORMS]; /* used longest ago last */
  size_t num_streams;           /* these, and those that writers fill with rows of their own (placed.h) */
  atomic_size_t share;          /* rv_table_share; written under the lock */
  /* Memory of holds that the last turn left which let some go, outside the lock. The next rv_table_insert_many takes it (books.spare_holds),
   * or another turn that leaves some frees it. */
  _Atomic(rv_hold *) left_holds;
  rv_chunk *spares[RV_MAX_SPARES]; /* empty segments to be used again; without gaps, the one that died last comes last */

  rv_row_plan plan; /* of a template that many items have (fill.c) */
  rv_row_shuffle shuffle;
  uint64_t plan_serial;
  uint16_t plan_template;

  rv_link inserts, samples;    /* queues */
  rv_link inserters, samplers; /* groups of what is pending in them, in the order in which they began to wait */
  int64_t pending_inserts, pending_samples;
  uint64_t next_waiter;
  rv_link completed;
  bool delivering; /* some thread calls completions, and will look for more */

  rv_event events[RV_EVENTS_MAX];
  size_t num_events;

  rv_mark marks[RV_MAX_MARKS];
  uint64_t listing_life; /* rv_listing_new_life */
  uint64_t pages;

  struct rv_snapshot *snapshot; /* being taken; NULL: none (snapshot.h) */
  rv_changes *log;              /* what changed, for somebody who writes it down; NULL: nobody does (changes.h) */
  bool replaces; /* when it is full, a new item may take the oldest one's slot and its place in the sampler (replace.c) */
  bool replaces_without_changes; /* what `replaces` is when nobody writes down */

  bool compacting;
  rv_hold *compact_into;
  int64_t compact_fill;
  uint32_t compact_pause; /* turns to let pass before the next try */
  uint32_t compact_wait;  /* how long the next pause is where nothing can be moved */
  size_t compact_stuck;   /* sparse chunks when that was found; a pause ends with one more */

  size_t counted_books; /* in the store's account, when the books were as the next three say */
  size_t counted_shrinking;
  uint64_t counted_places, counted_epoch;
  bool keeps_cold;       /* as all its books */
  bool extensions_go_on; /* some have not done yet what they were told */
  bool waits_for_memory; /* the first insert in the queue does, or did when it was looked at last */

  rv_rates rates;
  rv_stamp stamp;
  /* seldom looked at */
  rv_random unseeded;       /* for what must not be foreseen or be the same twice: hashes, and keys of chunks */
  const rv_form *ahead_for; /* the form that will need a large segment which is not there (ahead.c); it may have gone */
};

/* What it draws comes from `seed`. */
rv_code rv_table_new(const rv_table_config *config, uint64_t seed, const rv_env *env, const rv_registry *registry,
                     rv_layouts *layouts, rv_decode_cache *cache, rv_crew *crew, rv_memory *memory, rv_table **out,
                     rv_error *err);
void rv_table_free(rv_table *table);
void rv_table_close(rv_table *table);
rv_code rv_table_is_closed(const rv_table *table, rv_error *err); /* the sentence: RV_CANCELLED */
/* An empty set of books in place of the present one, with counts that go on. */
void rv_table_new_books(rv_table *table, uint64_t epoch, uint64_t key_count, uint64_t sequence);
/* Everything that can be known to be wrong with a configuration, before anything is made of it. */
rv_code rv_table_config_check(const rv_table_config *config, const rv_registry *registry, rv_error *err);

/* What is written into the table now is not expected in the caches when it is sampled. */
static inline bool rv_table_outgrows_caches(const rv_table *table)
{
  return table->books.chunk_memory > RV_PAST_CACHES_FROM;
}

/* ---- turns ---- */

typedef struct rv_turn {
  rv_table *table;
  rv_garbage garbage;
  int budget;
} rv_turn;

void rv_turn_lock(rv_table *table);
static inline void rv_turn_begin(rv_turn *turn, rv_table *table)
{
  *turn = (rv_turn){.table = table, .budget = RV_TURN_BUDGET};
  rv_turn_lock(table);
}
/* Lets others have the table for a moment, and again after each part of what is left to do. */
void rv_turn_pause(rv_turn *turn);
void rv_turn_end_with_rest(rv_turn *turn);
void rv_turn_leave(rv_turn *turn); /* the same without compaction */
static inline void rv_turn_end(rv_turn *turn)
{
  rv_table *table = turn->table;
  /* mostly there is nobody to call, nothing to free, and nothing to compact */
  if (table->num_events == 0 && table->log == NULL && !table->bounded && table->books.sparse.num <= 1 &&
      !rv_garbage_is_some(&turn->garbage) && rv_list_empty(&table->completed))
    rv_mutex_unlock(&table->mutex);
  else
    rv_turn_end_with_rest(turn);
}

/* The same of a turn in which items may have come: what the next ones need is made ready (ahead.c). */
void rv_turn_end_and_make_ahead(rv_turn *turn);
static inline void rv_turn_end_grown(rv_turn *turn)
{
  if (turn->table->ahead_for != NULL || rv_slab_wants_ahead(&turn->table->books.slab))
    rv_turn_end_and_make_ahead(turn);
  else
    rv_turn_end(turn);
}

/* Ends a turn that has only looked: it calls nobody, so that its caller may hold what a completion takes. Whoever did something before has told
 * and delivered it, or delivers still. */
static inline void rv_turn_end_look(rv_turn *turn)
{
  rv_mutex_unlock(&turn->table->mutex);
}

/* Serves until nothing moves, pausing where the budget ends, and ends the turn. */
void rv_turn_finish(rv_turn *turn);
/* Submits an operation whose fields are set, and serves. The lock may be let go and taken again meanwhile. */
rv_submitted rv_turn_place(rv_turn *turn, rv_waiter *waiter, rv_operation_kind kind);
/* As whose it is shown while it is pending. */
rv_waiting_group *rv_waiter_group(rv_waiter *waiter);
/* The same, and ends the turn. */
rv_submitted rv_turn_submit(rv_turn *turn, rv_waiter *waiter, rv_operation_kind kind);
/* The operation is over: it leaves its queue. The code and the error are in the waiter. */
void rv_turn_complete(rv_turn *turn, rv_waiter *waiter, rv_code code);

/* One step of the operation at the head of its queue. False: it cannot move. */
bool rv_insert_step(rv_turn *turn, rv_insert *insert);
void rv_insert_end(rv_turn *turn, rv_insert *insert); /* drops what the table keeps in it */
bool rv_rows_step(rv_turn *turn, rv_rows *rows);
/* Of a segment that its writer goes on filling: it stays open (placed.c). */
rv_code rv_placed_hold(rv_table *table, const rv_place *place, rv_hold **out, rv_error *err);
/* Rows [first, first + k) of the hold become items in the place of the k oldest of a full table. */
void rv_rows_replace(rv_turn *turn, rv_rows *rows, rv_hold *hold, int64_t first, size_t k);
/* The same of the next k placed rows, each in its own of the holds. */
void rv_rows_replace_placed(rv_turn *turn, rv_rows *rows, rv_hold *const *holds, size_t k);
bool rv_sampling_step(rv_turn *turn, rv_sampling *sampling);
void rv_rows_end(rv_table *table, rv_rows *rows, rv_garbage *garbage); /* drops what the table keeps in it */

/* ---- room in memory (room.c) ---- */

typedef enum rv_room {
  RV_ROOM_THERE,
  RV_ROOM_SOON,  /* items have gone, and more may have to: ask again */
  RV_ROOM_NONE,  /* whoever was told so is served when there is room */
  RV_ROOM_FAILED /* the error says why */
} rv_room;

static inline size_t rv_table_max_bytes(const rv_table *table)
{
  return atomic_load_explicit(&table->max_bytes, memory_order_relaxed);
}
static inline bool rv_table_is_bounded(const rv_table *table)
{
  return atomic_load_explicit(&table->bounded, memory_order_relaxed);
}
/* 0: none. Under the lock, or before anybody else has the table. */
void rv_table_set_max_bytes(rv_table *table, int64_t max_bytes);
/* Some items go, as long as all take more than `bound`: RV_ROOM_SOON. */
rv_room rv_table_evict(rv_turn *turn, size_t bound, rv_error *err);
/* Before what takes so many bytes comes to a table that is bounded; `opens` of them are of a segment that stays open, `uncounted` are not in
 * the store's account yet. */
rv_room rv_table_make_room(rv_turn *turn, size_t comes, size_t opens, size_t uncounted, rv_error *err);
/* Makes room in the table's own bound for what takes so many bytes and belongs to chunks that were asked for, and are there. */
rv_room rv_table_make_room_behind(rv_turn *turn, size_t comes, rv_error *err);
/* Adds what comes with a chunk that an item brings: nothing where the table holds it. */
void rv_chunk_comes(const rv_table *table, const rv_chunk *chunk, size_t *comes, size_t *uncounted);
/* How much comes with an item. */
void rv_insert_comes(rv_table *table, const rv_trajectory *trajectory, size_t *comes, size_t *uncounted);
/* The most that anything may take that is to be in the table. Without the lock. */
size_t rv_table_fits(const rv_table *table);
/* RV_INVALID_ARGUMENT: that fits under no circumstances. Without the lock. */
rv_code rv_table_check_bytes(const rv_table *table, size_t bytes, const char *what, rv_error *err);
rv_code rv_insert_check_bytes(const rv_table *table, const rv_trajectory *trajectory, rv_error *err);
/* The most that is taken in one piece for items that may come. */
static inline size_t rv_table_most_at_once(const rv_table *table)
{
  size_t share = rv_memory_limit(table->memory) / 64, own = rv_table_max_bytes(table) / 16;
  return share < own ? share : own;
}
/* ---- open segments (open.c) ---- */

/* The most that one open segment may take: what is taken in one piece is divided among all who have one. */
static inline size_t rv_table_share(const rv_table *table)
{
  return atomic_load_explicit(&table->share, memory_order_relaxed);
}
void rv_table_divide_share(rv_table *table); /* after a bound has changed */
/* The lock may be let go and taken again meanwhile. */
void rv_table_add_streams(rv_turn *turn, size_t streams);
/* Is the segment of a time when they might be larger? */
bool rv_table_is_large(const rv_table *table, const rv_chunk *segment);
/* After the share has become less: such segments are closed. A few at once; true: there are more. */
bool rv_table_leave_large(rv_turn *turn);
/* All of them, and empty ones are not used again. The lock may be let go and taken again meanwhile. */
void rv_table_leave_all_large(rv_turn *turn);
/* Another open hold whose segment its writer fills. */
void rv_table_note_placed(rv_table *table, rv_hold *hold);
/* How much the table's items may take with their chunks, if open segments of `opens` bytes more come: more than max_bytes only where they alone take a
 * large part of it, for then items would go in vain. */
size_t rv_table_may_hold(const rv_table *table, size_t opens);

/* The account learns what the books take now. */
void rv_table_count_books(rv_table *table);
static inline bool rv_table_books_are_counted(const rv_table *table)
{
  return rv_books_shrinking(&table->books) == table->counted_shrinking &&
         rv_books_places(&table->books) == table->counted_places && table->books.epoch == table->counted_epoch;
}

/* ---- draws copied at once (fill.h) ---- */

/* How many of the next k draws may be filled in one step; 0: this table's items cannot. An item is present. */
size_t rv_fill_most(rv_turn *turn, const rv_sampling *sampling, size_t k);
/* Counts and copies the items at these slots, up to the first that cannot be copied this way; how many. fill->probabilities are the
 * caller's to set. After rv_fill_most. */
size_t rv_fill_slots(rv_turn *turn, rv_sampling *sampling, const uint32_t *slots, size_t k);
/* True: the items are not of the layout that the fill has room for, and the operation is complete. */
bool rv_fill_mismatch(rv_turn *turn, rv_sampling *sampling);

/* ---- items ---- */

rv_code rv_priority_check(const rv_table *table, double priority, rv_error *err);
static inline bool rv_priority_fine(const rv_table *table, double priority)
{
  return table->weighs ? priority >= 0 && priority <= 1.7976931348623157e308 : priority == priority;
}

/* An item that the table had before (restore.h), with its trajectory, in the books; nobody sees it yet. On an error it is in neither. */
rv_code rv_restored_into_books(rv_turn *turn, const rv_restored_item *from, uint32_t *slot, rv_error *err);
/* An item that is in the books becomes visible: selectors, bounds, event. On an error it is gone again. The limiter is the caller's. */
rv_code rv_table_show(rv_turn *turn, uint32_t slot, rv_error *err);
/* The same for a new item; it is written down, and over the bound the remover takes one away. */
rv_code rv_table_admit(rv_turn *turn, uint32_t slot, int64_t *removed, rv_error *err);
/* Takes the item out of everything but the limiter's counts. */
void rv_table_remove(rv_turn *turn, uint32_t slot);
/* Sets a present item's priority, for selectors too; raises no event. On an error nothing has changed. */
rv_code rv_table_set_priority(rv_table *table, uint32_t slot, double priority, rv_error *err);

/* ---- what columns are called ---- */

/* Items of this naming came in; `before` is the sequence of the last insert before them. */
static inline void rv_naming_inserted(rv_table *table, uint64_t naming, uint64_t before)
{
  if (naming == table->naming) return;
  table->naming = naming;
  table->naming_since = before + 1;
}

/* The naming of all present items, of which there is one at least; 0: they differ, or nobody said. */
static inline uint64_t rv_naming_of_all(rv_table *table)
{
  if (table->naming_since == 0) return table->naming;
  const rv_slab *slab = &table->books.slab;
  if (rv_item_sequence(rv_slab_at(slab, slab->oldest)) < table->naming_since) return 0;
  table->naming_since = 0;
  return table->naming;
}

/* ---- events ---- */

void rv_table_note(rv_turn *turn, rv_event_kind kind, const rv_item *item, double priority, double old_priority);
void rv_table_tell(rv_turn *turn); /* the events so far, to all extensions; what these edit counts against the budget */
/* Before so many events, RV_EVENTS_MAX at most, of which none is to be told after an edit that came behind it: what extensions then edit is there
 * before any of them happens. */
static inline void rv_table_tell_before(rv_turn *turn, size_t events)
{
  if (turn->table->num_events + events > RV_EVENTS_MAX) rv_table_tell(turn);
}
void rv_table_let_extensions_go_on(rv_turn *turn); /* with what they left undone; extensions_go_on says whether that is all */

/* ---- house-keeping ---- */

/* What is in a table's cursors, so that those of the tables of a server that was there before are known. */
uint64_t rv_listing_new_life(const rv_env *env);
void rv_marks_leave(rv_table *table, uint32_t slot); /* the marked item at `slot` goes */
void rv_forms_free(rv_table *table);
/* Keeps segments that died for the next rows, as far as that is worth their memory. */
void rv_spares_keep(rv_table *table, rv_garbage *garbage);
/* False: there are enough, and it is the caller's still. */
bool rv_spares_put(rv_table *table, rv_chunk *owned_segment);
size_t rv_spares_memory(const rv_table *table);
/* Where there are some, the lock is let go and taken again for each. */
void rv_spares_leave_large(rv_turn *turn);
void rv_spares_free(rv_table *table);

/* Moves live rows out of sparse chunks while there are some, a few dozen items in each stay; without the lock. */
enum { RV_COMPACT_STAYS = 8 };
void rv_table_compact(rv_table *table, size_t stays);
static inline bool rv_table_is_sparse(const rv_table *table)
{
  return rv_books_are_sparse(&table->books, rv_table_max_bytes(table) / 8);
}
static inline bool rv_table_wants_compaction(rv_table *table)
{
  if (!rv_table_is_sparse(table) || table->compacting) return false;
  if (table->compact_pause == 0 || table->books.sparse.num > table->compact_stuck) return true;
  if (table->books.sparse.num < table->compact_stuck) table->compact_stuck = table->books.sparse.num;
  table->compact_pause--;
  return false;
}

void rv_rates_init(rv_rates *rates, int64_t now_ns);
/* What the table does while nobody works on it, from now on. */
void rv_rates_idle(rv_table *table);
/* 0, or the time to hand to rv_rates_worked when the operation is over. */
static inline int64_t rv_rates_begin(rv_table *table)
{
  return table->rates.operations++ % RV_TIMED_ONE_IN != 0 ? 0 : rv_monotonic_ns(table->env);
}
void rv_rates_worked(rv_table *table, bool insert, int64_t begun_ns);
void rv_rates_report(rv_table *table, int64_t now_ns, rv_table_info *out);

#endif
