/* One checkpoint's files: a store into a directory, and back. */
#ifndef RV_PERSIST_CHECKPOINT_FILES_H
#define RV_PERSIST_CHECKPOINT_FILES_H

#include "base/env.h"
#include "reverie/checkpoint.h"

/* Writes tables, items and chunks into a directory that has none of them. `watch` may be NULL. */
rv_code rv_checkpoint_write(rv_store *store, const char *dir, int level, const rv_checkpoint_watch *watch, rv_error *err);

typedef struct rv_checkpoint_source {
  const char *dir;
  const rv_store_config *config;
  const rv_checkpoint_watch *watch; /* may be NULL */
  const rv_env *env;                /* for its log */
} rv_checkpoint_source;

/* Makes a store of it. *damaged: the fault is in the checkpoint, so that another one may do; otherwise none will. */
rv_code rv_checkpoint_read(const rv_checkpoint_source *source, rv_store **out, bool *damaged, rv_error *err);

/* Which of the store's tables, in its order, the checkpoint has. */
rv_code rv_checkpoint_tables(const char *dir, rv_store *store, bool *held, rv_error *err);

/* Is it one of those that this checkpointer saves? Otherwise it is the fallback. */
bool rv_checkpointer_has(const rv_checkpointer *checkpointer, const char *checkpoint);

/* Asks the watch, with a shorter struct where it is an older caller's. */
rv_code rv_checkpoint_ask(const rv_checkpoint_watch *watch, const rv_checkpoint_progress *progress, rv_error *err);

#endif
