/* A journal: every change of a store's tables, on disk soon after it happened, so that a server which is killed loses nothing that it
 * confirmed (docs/journal.md).
 *
 * A store's state after a crash is its last checkpoint and what the journal says happened since. Inserts, deletes, priorities, sampled
 * counts, resets, limiters and which items of which writer are in are written by a thread of the journal's, many together, with
 * checksums. Nobody else does file I/O: a change costs its table a record in memory. When more waits to be written than
 * `max_queued_bytes`, inserts wait until the disk has caught up.
 *
 *     rv_journal_recover(&config, checkpointer, &store_config, NULL, &store, &journal, &err);   // instead of rv_checkpointer_restore
 *     rv_server_new(&(rv_server_config){..., .store = store, .checkpointer = checkpointer, .journal = journal}, &server, &err);
 *     ...
 *     rv_server_free(server); rv_journal_unref(journal); rv_store_unref(store); */
#ifndef REVERIE_JOURNAL_H
#define REVERIE_JOURNAL_H

#include "reverie/checkpoint.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rv_journal rv_journal;

typedef enum rv_journal_mode {
  /* A server confirms at once; the disk has everything that is older than `period_ms`, and the time that one fsync takes. */
  RV_JOURNAL_PERIODIC = 1,
  /* A server confirms to a writer, and answers updates, deletes and resets, when they are on the disk. */
  RV_JOURNAL_ALWAYS = 2
} rv_journal_mode;

typedef struct rv_journal_config {
  size_t size;      /* sizeof(rv_journal_config) */
  const char *path; /* the journal's own directory, not the checkpoints'; made if need be. One process has it at a time */
  rv_journal_mode mode;
  int64_t period_ms;       /* periodic; 0: 1,000 */
  size_t max_queued_bytes; /* changes that are not on the disk yet, with their rows; 0: 256 MiB. Beyond it inserts wait */
  /* Where the journal is damaged other than at its end, rv_journal_recover fails and says what it would cost to go on; true: go on. */
  bool salvage;
  const rv_env *env; /* copied; NULL: the store's */
} rv_journal_config;

/* Makes the store as rv_checkpointer_restore does, and then again what the journal says happened after that checkpoint; from then on
 * everything that happens in the store is written down. Where there is no checkpoint that belongs to the journal (the first time), one
 * is saved before this returns. A line of the log says what was recovered, or warns that there was neither checkpoint nor journal. A group of changes that was half written when the process
 * went is left out: nobody was told that it was in. RV_DATA_LOSS: the journal, or the checkpoint that it goes on from, is damaged or
 * missing; the sentence says what is lost, and nothing was changed on the disk. RV_INVALID_ARGUMENT: a setting, or more than 65,536 tables. RV_FAILED_PRECONDITION: another process has it; the
 * newest checkpoint does not belong to it. RV_PERMISSION_DENIED, RV_RESOURCE_EXHAUSTED. The caller owns one reference to each. */
RV_API rv_code rv_journal_recover(const rv_journal_config *config, rv_checkpointer *checkpointer,
                                  const rv_store_config *store_config, const rv_checkpoint_watch *watch, rv_store **store,
                                  rv_journal **journal, rv_error *err);

RV_API rv_journal *rv_journal_ref(rv_journal *journal);
/* The last reference writes what is left, waits for the disk, and ends the journal; the store, if it lives on, has none any more. Where the
 * disk takes nothing it is tried for two seconds more. NULL is fine. */
RV_API void rv_journal_unref(rv_journal *journal);

/* Returns when everything that happened in the store before the call is on the disk: what a process that adds items to its own store
 * calls. RV_DEADLINE_EXCEEDED after timeout_ms (negative: never), with the reason where the disk takes nothing. */
RV_API rv_code rv_journal_sync(rv_journal *journal, int64_t timeout_ms, rv_error *err);

typedef struct rv_journal_stats {
  size_t size;          /* sizeof(rv_journal_stats), set by the caller */
  int64_t changes;      /* written since the journal was opened, and as */
  int64_t groups;       /* so many groups, each written at once, and */
  int64_t bytes;        /* so many bytes */
  int64_t fsyncs;       /* that succeeded */
  int64_t errors;       /* writes, fsyncs and the like that failed and were tried again */
  int64_t queued_bytes; /* that wait now */
  int64_t lag_ns;       /* how long the oldest change that is not on the disk has waited; 0: all are */
  int64_t max_fsync_ns; /* the longest so far */
  int64_t disk_bytes;   /* of the segments that recovery would read now */
  int64_t segment;      /* that is being written */
  char fault[256];      /* what keeps it from writing now; "": nothing */
} rv_journal_stats;

/* Fills as much of *out as its size says. Any thread. */
RV_API void rv_journal_get_stats(rv_journal *journal, rv_journal_stats *out);

#ifdef __cplusplus
}
#endif
#endif
