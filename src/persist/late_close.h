/* Files that go from their directory at once, and give back their place on the disk later.
 *
 * Removing a file, its file system finds and frees its blocks, which takes 0.1 s a GB; where somebody has it open whoever closes it last does that.
 * So a file that is held here is removed in no time, and a thread closes it. One thread at a time calls these. */
#ifndef RV_PERSIST_LATE_CLOSE_H
#define RV_PERSIST_LATE_CLOSE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "persist/files.h"

enum { RV_LATE_CLOSE_FILES = 8, RV_LATE_CLOSE_BYTES = 1 << 20 };

typedef struct rv_late_close {
  int files[RV_LATE_CLOSE_FILES]; /* the thread's, while there is one */
  size_t count;
  const rv_files *system;
  bool threaded;
  pthread_t thread;
  pid_t pid; /* a forked child has no thread to wait for, and whose its descriptors are nobody can say */
} rv_late_close;

void rv_late_close_init(rv_late_close *late, const rv_files *system);
/* `name` in the directory `dir` is about to be removed; what was held before is settled. What cannot be held (more files, no descriptor left, a file system whose
 * server is elsewhere: it would keep a name for what is open) is freed by its removal, and so is what is not worth it: a file of less than RV_LATE_CLOSE_BYTES,
 * or with another name, which keeps its blocks. */
void rv_late_close_hold(rv_late_close *late, int dir, const char *name);
/* The files that are held are removed: they are closed, by a thread where one can be had. */
void rv_late_close_begin(rv_late_close *late);
/* Waits until all is closed: what comes next finds the place free. */
void rv_late_close_settle(rv_late_close *late);

#endif
