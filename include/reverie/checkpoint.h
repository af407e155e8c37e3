/* Checkpoints: what a store holds, in files of Reverb's format, and stores made of them (docs/checkpoints.md).
 *
 * A checkpoint is a directory in the checkpointer's root, named by its time: tables, items in the order of insertion with their
 * priorities and times sampled, the limiters' counters, and the chunks. Saving stops nobody: each table is saved as it was when
 * saving began, while inserts and samples go on. */
#ifndef REVERIE_CHECKPOINT_H
#define REVERIE_CHECKPOINT_H

#include "reverie/spill.h"
#include "reverie/store.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rv_checkpointer rv_checkpointer;

typedef struct rv_checkpointer_config {
  size_t size;      /* sizeof(rv_checkpointer_config) */
  const char *path; /* the root; made, with what is above it, when it is first needed */
  /* One checkpoint's own directory, for stores that begin while the root has no checkpoint; NULL: none. One that cannot be used is
   * passed over with a warning. */
  const char *fallback_path;
  /* Of zlib's compression: 1 (fast) to 9 (small); -1: none; 0: the default, which is 1 where samples of the data shrink by a quarter, and none
   * elsewhere, where the disk is faster, and for items. */
  int32_t level;
  uint32_t keep; /* checkpoints of Reverie's that stay in the root, the newest ones; 0: 1. What others wrote always stays */
  const char
      *group; /* Reverb's, which does not know any either: one that is not empty makes saving fail with RV_INVALID_ARGUMENT */
  const rv_env *env; /* copied: the time in names, the log; NULL: the default */
  /* Each checkpoint writes only the chunks that the one before it has not, and refers to that one's files for the others (hard links: it is
   * whole by itself all the same). Reverb does not read these; rv_checkpoint_export makes one that it does. Any checkpointer restores either
   * kind. About 60 bytes of memory a chunk. */
  bool incremental;
  /* No store begins empty: where there is no checkpoint (nor the fallback), a start and rv_checkpointer_prepare fail with
   * RV_FAILED_PRECONDITION, and nothing is made on the disk, so that a volume that is not mounted is no new beginning. */
  bool required;
  bool fresh; /* the root was made for this start: that it begins empty is no warning of the log's */
} rv_checkpointer_config;

/* Strings are copied; a relative path is taken from the current directory now. Nothing is looked at yet. RV_INVALID_ARGUMENT. */
RV_API rv_code rv_checkpointer_new(const rv_checkpointer_config *config, rv_checkpointer **out, rv_error *err);
RV_API rv_checkpointer *rv_checkpointer_ref(rv_checkpointer *checkpointer);
RV_API void rv_checkpointer_unref(rv_checkpointer *checkpointer); /* NULL is fine */
RV_API const char *rv_checkpointer_path(const rv_checkpointer *checkpointer);

/* Whether checkpoints could be saved there, as far as that can be seen without making anything: the root, or what there is of the way to it,
 * is a directory that this process may write to. RV_PERMISSION_DENIED, RV_FAILED_PRECONDITION (a file is in the way), ... */
RV_API rv_code rv_checkpointer_check(const rv_checkpointer *checkpointer, rv_error *err);
/* The same by doing it: makes the root, with what is above it, and writes a file there that goes again. RV_FAILED_PRECONDITION: what is
 * `required` is not there. A full disk is no error but a line of
 * the log: it may have room by the time that it is needed. Blocks for as long as the disk does. */
RV_API rv_code rv_checkpointer_prepare(rv_checkpointer *checkpointer, rv_error *err);

/* How far saving or restoring has come. */
typedef struct rv_checkpoint_progress {
  size_t size;           /* sizeof(rv_checkpoint_progress) */
  int64_t items;         /* so far */
  int64_t total_items;   /* saving: of all tables; restoring: -1, not known before the end */
  int64_t bytes_written; /* saving, in files so far */
} rv_checkpoint_progress;

typedef struct rv_checkpoint_watch {
  size_t size; /* sizeof(rv_checkpoint_watch) */
  /* Asked every few hundred items and every few megabytes; false ends it with RV_CANCELLED. NULL: nobody is. Called without locks, on the thread that saves
   * or restores; with the checkpointer that does, nothing can be saved from there (RV_FAILED_PRECONDITION). */
  bool (*go_on)(void *context, const rv_checkpoint_progress *progress);
  void *context;
  /* For restoring (rv_journal_recover, too): the spill that the store gets before anything is loaded into it, so that what is more than its memory_limit has
   * room. NULL: none; a spill that is begun later finds all of it in memory. *spilled, which is to be given then, is the caller's to free, as
   * rv_spill_new's; NULL after an error, which may be rv_spill_new's. */
  const rv_spill_config *spill;
  rv_spill **spilled;
} rv_checkpoint_watch;

/* Writes a checkpoint and returns its absolute path (the caller's to free(); `path` may be NULL). Blocks until it is on the disk.
 * Older ones of Reverie's beyond `keep` are then removed (meanwhile another may be saved). On an error nothing of it stays, and older ones
 * stay as they are; it stays only where its name could not be forced to the disk, and the sentence says so. Of a store's journal it covers
 * what came before only in the directory that the journal was recovered with; anywhere else it is a copy.
 * RV_RESOURCE_EXHAUSTED: the disk is full, or memory, or the store's journal could not be written for 5 s while this waited for it, since
 * its disk is (RV_UNKNOWN: it fails), so that this gives it the room back; RV_PERMISSION_DENIED; RV_CANCELLED; RV_FAILED_PRECONDITION: another checkpointer
 * is saving this store; or another journal than the store's (which has none any more when that has ended) goes on from the newest
 * checkpoint of the directory, whose place this one would take. While this checkpointer saves for another thread the call waits as long
 * as the watch lets it; without one it fails with RV_FAILED_PRECONDITION, as it does where this thread itself is saving. `watch` may be
 * NULL. Any thread. */
RV_API rv_code rv_checkpointer_save(rv_checkpointer *checkpointer, rv_store *store, const rv_checkpoint_watch *watch, char **path,
                                    rv_error *err);

/* rv_store_new with what the newest whole checkpoint of the root holds (or the fallback's, or nothing where there is none). Tables are
 * found by name. Of a table that was saved everything but its name and extensions comes from the checkpoint: selectors, max_size,
 * max_times_sampled, limiter, signature; where that differs from `config` a line of the log says so. Tables that were not saved are
 * made as configured. A store that begins empty is a warning, which names the directory, unless that is `fresh`. A checkpoint that is damaged is passed over for the one before it, with a warning that names file and fault; if
 * none is left the error is that of the newest (RV_DATA_LOSS, RV_FAILED_PRECONDITION, ...), and no store is made. Likewise, at once,
 * where there is nothing and something is `required` (RV_FAILED_PRECONDITION), a journal goes on from the checkpoint (RV_FAILED_PRECONDITION: rv_journal_recover takes it; so does this, as the fallback),
 * where a saved table is none of `config`, or the root is a checkpoint itself (RV_INVALID_ARGUMENT), or the files cannot be read (RV_PERMISSION_DENIED). *loaded is the
 * directory (the caller's to free(); `loaded` may be NULL), or NULL where the store begins empty. */
RV_API rv_code rv_checkpointer_restore(rv_checkpointer *checkpointer, const rv_store_config *config,
                                       const rv_checkpoint_watch *watch, rv_store **out, char **loaded, rv_error *err);

/* Writes a checkpoint of Reverb's format, which Reverb's servers read too, into the root of `to` under a name of its own, made of the whole
 * checkpoint in the directory `checkpoint`, of either kind. Nothing is removed there, and no journal goes on from it. Returns its absolute
 * path (the caller's to free(); `path` may be NULL). RV_NOT_FOUND: no whole checkpoint is there; RV_DATA_LOSS: it is damaged;
 * RV_INVALID_ARGUMENT: it is in that root itself, whose newest the copy would be;
 * RV_FAILED_PRECONDITION: a journal goes on from the newest checkpoint of that root; else as rv_checkpointer_save. `watch` may be NULL. */
RV_API rv_code rv_checkpoint_export(const char *checkpoint, rv_checkpointer *to, const rv_checkpoint_watch *watch, char **path,
                                    rv_error *err);

/* ---- saving by itself ---- */

/* A thread that saves a store as often as configured. A server has one of its own (rv_server_config.checkpoint_every_ms); this is for
 * stores that none serves. Each save is logged (level info), and so is one that fails; then the
 * next is tried when it is due by time, and after a minute where it is due for anything else. */
typedef struct rv_saver rv_saver;

typedef struct rv_saver_config {
  size_t size;     /* sizeof(rv_saver_config) */
  rv_store *store; /* a reference is taken, of its journal (if any), and of this one: */
  rv_checkpointer *checkpointer;
  const rv_env *env;     /* copied; NULL: the store's */
  int64_t every_ms;      /* from the beginning of one to the next; 0: not by time */
  int64_t every_inserts; /* into all tables together, looked at once a second; 0: not by inserts */
  /* Where the store has a journal (reverie/journal.h): when so many bytes were written to it since the last checkpoint, looked at once a
   * second; 0: 4 GiB. The checkpointer must then be of the directory that the journal was recovered with. */
  int64_t every_journal_bytes;
} rv_saver_config;

/* RV_INVALID_ARGUMENT: something is missing or negative; RV_RESOURCE_EXHAUSTED: no thread, no memory. One that is to save by time, by inserts
 * or for a journal fails as rv_checkpointer_prepare does; any other logs that (a warning). */
RV_API rv_code rv_saver_new(const rv_saver_config *config, rv_saver **out, rv_error *err);
/* Ends what is being saved (nothing of it stays), and waits for the thread. NULL is fine. */
RV_API void rv_saver_free(rv_saver *saver);

#ifdef __cplusplus
}
#endif
#endif
