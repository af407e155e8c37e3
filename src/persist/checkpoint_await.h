/* A server that was told to end gives its port back before its last checkpoint is whole, so that another may begin in its place meanwhile. */
#ifndef RV_PERSIST_CHECKPOINT_AWAIT_H
#define RV_PERSIST_CHECKPOINT_AWAIT_H

#include "base/env.h"
#include "reverie/checkpoint.h"

/* Returns when nobody is writing a checkpoint into the directory: whoever begins from what is there would begin without it, and remove it before
 * long. Waits as long as its files grow, and 5 s at most while they do not (a child of a process that was killed may have its lock for as long as it
 * lives), and `watch` (may be NULL) lets it: RV_CANCELLED. A directory that is not there, or cannot be read, has none. */
rv_code rv_checkpoint_await_writers(const char *root, const rv_env *env, const rv_checkpoint_watch *watch, rv_error *err);

#endif
