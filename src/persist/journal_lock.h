/* Whose the journal in a directory is. */
#ifndef RV_PERSIST_JOURNAL_LOCK_H
#define RV_PERSIST_JOURNAL_LOCK_H

#include "base/env.h"

typedef struct rv_journal_lock rv_journal_lock;

/* The directory is this process's until it frees the lock or ends, however it ends and whatever children it forked live on.
 * RV_FAILED_PRECONDITION: another process has it, or this one already. Where the file system has no locks a line of the log says so. */
rv_code rv_journal_lock_new(const char *dir, const rv_env *env, rv_journal_lock **out, rv_error *err);
/* Whether the lock's file could be opened, without making it. */
rv_code rv_journal_lock_check(const char *dir, rv_error *err);
void rv_journal_lock_free(rv_journal_lock *lock); /* NULL is fine */
/* Takes the file away, and the directory where nothing else is in it: of a start that failed, and made them. NULL is fine. */
void rv_journal_lock_remove(rv_journal_lock *lock, const char *dir);

#endif
