/* What the files of the checkpointer share: checkpointer.c makes one, saves and exports, checkpointer_load.c finds what a server begins with. */
#ifndef RV_PERSIST_CHECKPOINTER_PARTS_H
#define RV_PERSIST_CHECKPOINTER_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/env.h"
#include "base/lock.h"
#include "persist/checkpoint_files.h"

struct rv_checkpointer {
  atomic_size_t refs;
  rv_env env;
  char *path, *fallback;
  int level; /* of files (persist/record_file.h) */
  uint32_t keep;
  const rv_files *files;
  rv_increments *increments; /* NULL: each checkpoint is whole by itself. Whoever set `saving` has it */
  bool has_group, required, fresh;
  atomic_bool made; /* the root, by rv_checkpointer_prepare */
  atomic_bool told_of_others;
  rv_mutex lock; /* guards: */
  bool saving;
  pthread_t by; /* whom, while `saving` */
  rv_cond saved;
  unsigned holders; /* who want the newest held */
  int hold;         /* on `newest`, where there are such; -1: none */
  char *newest;     /* what was restored or saved last; NULL: nothing, or memory was out */
};

/* What a save returns is easily given where the directory that it is in is meant: nothing would be found in it, and more be saved into it. */
rv_code rv_checkpointer_check_root(const char *path, rv_error *err);
bool rv_checkpointer_any_in(const char *path); /* a whole checkpoint */
/* There is none, and one is required. */
rv_code rv_checkpointer_fail_empty(const rv_checkpointer *checkpointer, rv_error *err);

/* What was restored or saved last, with the mark that is had on it (-1: none), which is the checkpointer's from then on. */
void rv_checkpointer_note_newest(rv_checkpointer *checkpointer, const char *path, int hold);
/* When the save or the load that noted it is over: lets the mark go where nobody wants it held. */
void rv_checkpointer_hold_for_holders(rv_checkpointer *checkpointer);

/* Warns once of another server that uses the root: whoever restores, or saves `own`, is to know that the two do not share what they have. A journal
 * keeps others away by itself. */
void rv_checkpointer_tell_others(rv_checkpointer *checkpointer, const char *own);

/* For restoring, which goes on without the increments where somebody saves; true: rv_checkpointer_end_saving must follow. */
bool rv_checkpointer_try_saving(rv_checkpointer *checkpointer);
void rv_checkpointer_end_saving(rv_checkpointer *checkpointer);

#endif
