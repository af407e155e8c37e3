/* The lock on a checkpoint's REVERIE file: its writer and its remover have it alone, readers share it.
 *
 * flock() is of an open file, which a process that is forked meanwhile has, too, for as long as it lives: closing the file here then gives
 * nothing back. So what was locked is unlocked, which counts for all who have it. Of a process that was killed its children keep the lock:
 * nobody waits for one without end. */
#ifndef RV_PERSIST_CHECKPOINT_MARK_H
#define RV_PERSIST_CHECKPOINT_MARK_H

#include <stdbool.h>

#include "base/env.h"
#include "reverie/checkpoint.h"

/* Locks it, alone, if nobody else has it. -1: it has none, there are no locks, or, with *taken, somebody else's; or this process has no memory or
 * descriptor left to find that out. */
int rv_checkpoint_mark_try(const char *path, bool *taken);
/* The same beside others that share it. */
int rv_checkpoint_mark_share(const char *path);
/* Shares from now on what was had alone, without a moment in which another could have it, where the system can do that (NFS only with one that
 * is open for reading, too). The mark; -1: there is none any more. */
int rv_checkpoint_mark_lower(int mark, const char *path);
void rv_checkpoint_mark_release(int mark); /* -1 is fine */

/* A checkpoint of ours is not removed while somebody holds it, whichever process would: savers leave it to the next of them. Waits
 * while another process has it alone, as long as `watch` (may be NULL) lets it, and 10 s at most, which is logged: what goes on for longer
 * is nobody's removal, and the checkpoint can be read all the same. RV_NOT_FOUND: there is no DONE in it, or not any more; RV_CANCELLED.
 * *hold is for rv_checkpoint_mark_release(); it may be -1 (the checkpoint is not ours, stayed locked, or its file system has no locks: then
 * it can go while it is read). */
rv_code rv_checkpoint_hold(const char *path, const rv_env *env, const rv_checkpoint_watch *watch, int *hold, rv_error *err);

#endif
