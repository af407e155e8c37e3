/* Work that follows its maker: pieces 0, 1, 2, ... are handed over as they are ready, and a thread does them in that order. Where no thread can be
 * had, whoever hands over does it, which takes longer.
 *
 * One thread hands over. A piece is its maker's until it is handed over, then the work's until it is done. */
#ifndef RV_PERSIST_FOLLOWER_H
#define RV_PERSIST_FOLLOWER_H

#include <pthread.h>

#include "base/lock.h"
#include "reverie/status.h"

typedef struct rv_follower {
  rv_code (*work)(void *context, uint64_t piece, rv_error *err);
  void *context;
  const char *name; /* the thread's */
  /* ---- its own ---- */
  bool threaded; /* from the first piece on */
  pthread_t thread;
  rv_mutex lock; /* guards what follows, where there is a thread */
  rv_cond changed;
  uint64_t handed, done; /* pieces */
  bool stop;
  rv_error fault; /* of the first piece that failed; those after it are passed over */
} rv_follower;

/* `work`, `context` and `name` are set. */
void rv_follower_init(rv_follower *follower);
/* The next piece is ready: returns once at most `most` are not done. An error is that of the first piece that failed, this one or one before. */
rv_code rv_follower_hand_over(rv_follower *follower, uint64_t most, rv_error *err);
/* Waits until all is done, and ends the thread: what comes after is its maker's to do. */
rv_code rv_follower_settle(rv_follower *follower, rv_error *err);
/* What was not begun stays undone. */
void rv_follower_fini(rv_follower *follower);

#endif
