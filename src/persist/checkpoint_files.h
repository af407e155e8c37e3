/* One checkpoint's files: a store into a directory, and back. */
#ifndef RV_PERSIST_CHECKPOINT_FILES_H
#define RV_PERSIST_CHECKPOINT_FILES_H

#include "base/env.h"
#include "persist/checkpoint_dir.h"
#include "persist/increments.h"
#include "reverie/checkpoint.h"

typedef struct rv_checkpoint_target {
  const char *dir; /* that has no files of a checkpoint */
  int level;       /* of the files (persist/record_file.h) */
  const rv_files *files;
  rv_increments *increments;        /* NULL: all chunks are written, in Reverb's format */
  const rv_checkpoint_watch *watch; /* may be NULL */
} rv_checkpoint_target;

/* Writes tables, items and chunks. Where there are increments, rv_increments_end must follow. */
rv_code rv_checkpoint_write(const rv_checkpoint_target *target, rv_store *store, rv_error *err);

typedef struct rv_checkpoint_source {
  const char *dir;
  const rv_store_config *config;
  const rv_checkpoint_watch *watch; /* may be NULL */
  const rv_env *env;                /* for its log */
  rv_increments *increments;        /* may be NULL: who goes on from it */
} rv_checkpoint_source;

/* Makes a store of it. *damaged: the fault is in the checkpoint, so that another one may do; otherwise none will. */
rv_code rv_checkpoint_read(const rv_checkpoint_source *source, rv_store **out, bool *damaged, rv_error *err);

/* Writes what the checkpoint `from` holds, of either kind, as files of Reverb's format. `watch` may be NULL. */
rv_code rv_checkpoint_copy(const char *from, const rv_partial *to, int level, const rv_checkpoint_watch *watch, rv_error *err);

/* What the file of items is written at where `level` is the checkpointer's. Packing items rarely pays: some 75 bytes each would be 30, beside rows of hundreds
 * and more, and take as long as all else that saving does. Who wants the smallest files, or has long trajectories of small chunks, gives a level. */
int rv_checkpoint_items_level(int level);

/* Which of the store's tables, in its order, the checkpoint has. */
rv_code rv_checkpoint_tables(const char *dir, rv_store *store, bool *held, rv_error *err);

/* rv_checkpointer_new over other files (for tests), which are borrowed. */
rv_code rv_checkpointer_new_with(const rv_checkpointer_config *config, const rv_files *files, rv_checkpointer **out,
                                 rv_error *err);

/* Who is told of a checkpoint once it is on the disk, before older ones are removed, which may take long. */
typedef struct rv_saved_hook {
  void (*saved)(void *context, const char *path); /* NULL: nobody is */
  void *context;
} rv_saved_hook;

/* rv_checkpointer_save, with the hook called if, and only if, it returns RV_OK. */
rv_code rv_checkpointer_save_telling(rv_checkpointer *checkpointer, rv_store *store, const rv_checkpoint_watch *watch,
                                     rv_saved_hook hook, char **path, rv_error *err);

/* rv_checkpointer_restore; or, for a journal, which goes on from what is restored: then it may be a checkpoint that one goes on from. */
rv_code rv_checkpointer_load(rv_checkpointer *checkpointer, const rv_store_config *config, const rv_checkpoint_watch *watch,
                             bool for_journal, rv_store **out, char **loaded, rv_error *err);

/* What was restored last, and then what is saved last, is held as if it were read: another server that saves to the same directory, by mistake or
 * because this one is about to end, does not remove it. Until as many ends as beginnings. */
void rv_checkpointer_begin_holding(rv_checkpointer *checkpointer);
void rv_checkpointer_end_holding(rv_checkpointer *checkpointer);

/* RV_FAILED_PRECONDITION: there must be a checkpoint, and there is none. Makes nothing. */
rv_code rv_checkpointer_has_required(const rv_checkpointer *checkpointer, rv_error *err);
/* Of a root from which nothing was restored: "was not there" (it may be by now, and empty), "has no checkpoint". */
const char *rv_checkpointer_lacks(const rv_checkpointer *checkpointer);
bool rv_checkpointer_is_fresh(const rv_checkpointer *checkpointer);

/* Is it one of those that this checkpointer saves? Otherwise it is the fallback. */
bool rv_checkpointer_has(const rv_checkpointer *checkpointer, const char *checkpoint);

/* Asks the watch, with a shorter struct where it is an older caller's. */
rv_code rv_checkpoint_ask(const rv_checkpoint_watch *watch, const rv_checkpoint_progress *progress, rv_error *err);

/* ---- for restoring (checkpoint_spill.c) ---- */

/* First: nothing is begun yet. An error where a spill is wanted that could not be (rv_spill_check), or not where it goes (RV_INVALID_ARGUMENT). */
rv_code rv_checkpoint_expect_spill(const rv_checkpoint_watch *watch, rv_error *err);
/* The store is empty: it gets its spill, if one is wanted, in place of that which a store had before that came to nothing. */
rv_code rv_checkpoint_begin_spill(const rv_checkpoint_watch *watch, rv_store *store, rv_error *err);
void rv_checkpoint_drop_spill(const rv_checkpoint_watch *watch);
/* Waits, as inserts do, while the store's memory is short and its spill makes room: for as long as the watch lets it. */
rv_code rv_checkpoint_await_spill(const rv_checkpoint_watch *watch, const rv_checkpoint_progress *progress, rv_store *store,
                                  rv_error *err);

#endif
