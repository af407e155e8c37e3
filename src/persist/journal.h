/* The journal behind the opaque rv_journal, for the layers above and for checkpoints.
 *
 * A thread of the journal's goes round: it counts `cycle` up, takes what has changed from every table, encodes it, writes it, waits for
 * the disk, and says that this cycle is written. In the mode `always` it does so whenever there is something, and what comes meanwhile
 * goes together in the next round; in `periodic` once a period, or earlier when much waits. Where writing fails it says so once, keeps
 * what it has, and tries again in a new segment; tables let inserts wait when too much has gathered.
 *
 * Who must not answer before the disk has it takes a ticket after the change and waits for that: rv_journal_wait calls back from the
 * journal's thread, without locks, when it is time. */
#ifndef RV_PERSIST_JOURNAL_H
#define RV_PERSIST_JOURNAL_H

#include "base/list.h"
#include "persist/files.h"
#include "persist/journal_file.h"
#include "persist/journal_lock.h"
#include "persist/journal_writers.h"
#include "reverie/journal.h"
#include "store/store.h"

/* ---- for servers ---- */

bool rv_journal_is_always(const rv_journal *journal);
const rv_store *rv_journal_store(const rv_journal *journal);

/* Covers every change that was made before the call. */
uint64_t rv_journal_ticket(const rv_journal *journal);
bool rv_journal_is_written(const rv_journal *journal, uint64_t ticket);

typedef struct rv_journal_waiter {
  void (*done)(struct rv_journal_waiter *waiter); /* once, on the journal's thread, without locks */
  uint64_t ticket;
  /* Inserts into a table, so many, or a change of it, of a peer, both of which stay until it is done or cancelled: to be shown. NULL:
   * something else */
  const rv_table *table;
  const char *peer;
  size_t wanted;
  bool is_change;   /* other than inserts */
  int64_t since_ns; /* the journal's */
  rv_link link;
} rv_journal_waiter;

/* False: it is written, and `done` will not be called. */
bool rv_journal_wait(rv_journal *journal, rv_journal_waiter *waiter);
/* True: `done` will not be called. False: it was or will be. */
bool rv_journal_cancel(rv_journal *journal, rv_journal_waiter *waiter);
/* A waiter that may be queued is of inserts into this table, so many, after all. */
void rv_journal_show(rv_journal *journal, rv_journal_waiter *waiter, const rv_table *table, size_t wanted);
/* Callers whose inserts into the table, or other changes of it, have waited for the disk longer than it takes: a second. Up to `capacity`
 * of them in *out, the oldest first; returns how many there are in all, and how many of these are inserts. */
size_t rv_journal_list_waiting(rv_journal *journal, const rv_table *table, rv_waiting_caller *out, size_t capacity,
                               size_t *num_inserts);

/* A writer's session begins, or is over. Without memory for it the writer is as if it were unknown after a crash. */
void rv_journal_note_writer(rv_journal *journal, const uint64_t id[2], bool forgotten);
/* False: so much waits for the disk that no session may begin. */
bool rv_journal_takes_writers(const rv_journal *journal);
/* What the journal knew of writers when it was recovered; begin with NULL. Until the first rv_journal_note_writer. */
const rv_journal_writer *rv_journal_recovered_writer(const rv_journal *journal, const rv_journal_writer *after);

/* That were written since the last checkpoint began: what the next one would cover. */
int64_t rv_journal_fresh_bytes(rv_journal *journal);

/* ---- for checkpoints ---- */

/* The store's journal, with a reference; NULL: none, or it is ending. */
rv_journal *rv_journal_of(rv_store *store);
/* Begins a new generation: what a checkpoint whose snapshots are taken from here on goes on from. One at a time, until
 * rv_journal_end_checkpoint. RV_FAILED_PRECONDITION: another one is being saved. */
rv_code rv_journal_begin_checkpoint(rv_journal *journal, const rv_checkpoint_watch *watch, uint64_t *segment, rv_error *err);
void rv_journal_end_checkpoint(rv_journal *journal);
/* Waits until all so far is on the disk. RV_RESOURCE_EXHAUSTED, RV_UNKNOWN, ..., as from rv_journal_begin_checkpoint: the disk has taken
 * nothing for some seconds, and may lack the very room that the checkpoint has. */
rv_code rv_journal_settle(rv_journal *journal, const rv_checkpoint_watch *watch, rv_error *err);
/* The checkpoints in that directory are those that the journal goes on from. */
bool rv_journal_goes_on_from(const rv_journal *journal, const char *checkpoints);
/* The checkpoint that was begun is on the disk, in that directory, with the path `checkpoint`: before rv_journal_end_checkpoint. */
void rv_journal_note_checkpoint(rv_journal *journal, const char *checkpoints, const char *checkpoint);
/* Removes the segments that no checkpoint in that directory goes on from, where that is the directory that the journal goes on from. A
 * checkpoint that may have a link that cannot be read keeps all of them; a directory that is called otherwise and may not be looked into is
 * none. Others may save meanwhile. */
void rv_journal_prune(rv_journal *journal, const char *checkpoints);

/* The time in the name of the newest checkpoint there that is whole; INT64_MIN: there is none, or none whose name is a time. */
rv_code rv_journal_newest_checkpoint(const char *checkpoints, int64_t *wall_ns, rv_error *err);
/* May the store of this journal (NULL: of none) be saved into that directory? RV_FAILED_PRECONDITION: another journal goes on from the
 * checkpoint that a start would take there, and a newer one would cut it off. In the journal's own directory that is so where another
 * store was saved there since the journal was recovered: what was there then has been looked at. */
rv_code rv_journal_lets_save(const rv_journal *journal, const char *checkpoints, rv_error *err);

/* RV_LINK_FILE: which journal goes on from the checkpoint, and with which segment. */
typedef struct rv_journal_link {
  uint64_t id[2], segment;
} rv_journal_link;
void rv_journal_get_link(const rv_journal *journal, uint64_t segment, rv_journal_link *out);
void rv_journal_link_text(const rv_journal_link *link, char out[128]);
/* *found false: there is none. RV_DATA_LOSS: it is damaged; others where it cannot be read. */
rv_code rv_journal_link_read(const char *checkpoint, bool *found, rv_journal_link *out, rv_error *err);

/* As rv_journal_unref; false: it was the last reference, and changes are left that the disk did not take. */
bool rv_journal_end(rv_journal *owned_journal);

/* Whether a journal could be written in that directory, as far as that can be seen without making anything. Whoever has it now does not
 * matter. RV_PERMISSION_DENIED, RV_FAILED_PRECONDITION, ...: what the system says. */
rv_code rv_journal_check_directory(const char *path, rv_error *err);

/* ---- for recovery and tests ---- */

/* RV_INVALID_ARGUMENT: a store of so many tables can have no journal. */
rv_code rv_journal_check_tables(size_t num_tables, rv_error *err);

typedef struct rv_journal_start {
  const rv_journal_config *config; /* whole, with nothing left to default but the environment */
  const char *dir;
  const char *checkpoints; /* the directory that it goes on from */
  rv_journal_lock *lock;   /* the directory's; the journal's from here on, whatever is returned */
  rv_store *store;
  uint64_t id[2], segment, generation, next_group; /* the last segment that is there, and what comes next */
  uint32_t salt;                                   /* of the segments that are there; 0: they have none */
  rv_journal_writers *writers;                     /* taken over */
  int64_t disk_bytes;                              /* of the segments that are there */
  int64_t fresh_bytes;                             /* of those that its checkpoint does not cover */
  bool goes_on;                                    /* with the segments that are there */
  int64_t newest_ns;                               /* rv_journal_newest_checkpoint, before anything was restored */
} rv_journal_start;

rv_code rv_journal_open(const rv_journal_start *start, const rv_files *files, rv_journal **out, rv_error *err);
/* The start that opened it failed: gives back its only reference, and removes the segments that it made, unless a checkpoint goes on from
 * them. */
void rv_journal_abandon(rv_journal *owned_journal);
/* The same as rv_journal_recover with files of the caller's. */
rv_code rv_journal_recover_with(const rv_journal_config *config, const rv_files *files, rv_checkpointer *checkpointer,
                                const rv_store_config *store_config, const rv_checkpoint_watch *watch, rv_store **store,
                                rv_journal **journal, rv_error *err);

#endif
