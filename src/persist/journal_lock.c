/* flock() is of an open file, which a forked child has, too: a child that outlived a killed server would keep the journal. Record locks
 * are not inherited, but go when the process closes any other descriptor of the file. So the file is opened by a thread with a table
 * of descriptors of its own, which fork() in any other thread does not copy, and which ends with the process. */
#include "persist/journal_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/lock.h"
#include "base/thread.h"
#include "persist/checkpoint_dir.h"
#include "persist/record_file.h"

static const char LOCK_FILE[] = "LOCK";

struct rv_journal_lock {
  const rv_env *env; /* until it is answered, and so are these two */
  const char *dir;
  rv_error err;
  char *path;
  pthread_t thread;
  rv_mutex lock; /* guards what follows */
  rv_cond changed;
  rv_code code;
  bool answered, over;
};

/* False: who had it has taken the file away meanwhile (rv_journal_lock_remove), and another may be there. */
static bool is_there(int file, const char *path)
{
  struct stat ours, there;
  if (stat(path, &there) != 0) return errno != ENOENT;
  return fstat(file, &ours) != 0 || (ours.st_dev == there.st_dev && ours.st_ino == there.st_ino);
}

/* The file, locked; -1: it failed. */
static int take(rv_journal_lock *lock, rv_code *code)
{
  *code = RV_OK;
  int file = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  while (file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0) {
    if (is_there(file, lock->path)) return file;
    close(file);
    file = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  }
  if (file < 0) {
    *code = rv_fail_system(&lock->err, errno, "open", lock->path);
    return -1;
  }
  if (errno != EWOULDBLOCK) {
    rv_log(lock->env, RV_LOG_WARNING, "journal: nothing keeps another process from writing to %s at the same time: flock: %s",
           lock->dir, rv_system_error(errno));
    return file;
  }
  close(file);
  *code =
      rv_fail(&lock->err, RV_FAILED_PRECONDITION,
              "another process has the journal in %s, or this one already; end that one, or give another directory", lock->dir);
  return -1;
}

static void *hold(void *argument)
{
  rv_journal_lock *lock = argument;
  rv_code code;
#ifdef CLOSE_RANGE_UNSHARE /* a system that does not let us has the lock with children, too */
  close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_UNSHARE);
#endif
  int file = take(lock, &code);
  rv_mutex_lock(&lock->lock);
  lock->code = code;
  lock->answered = true;
  rv_cond_signal(&lock->changed);
  while (!lock->over) rv_cond_wait(&lock->changed, &lock->lock);
  rv_mutex_unlock(&lock->lock);
  if (file >= 0) close(file);
  return NULL;
}

static void destroy(rv_journal_lock *lock)
{
  rv_cond_fini(&lock->changed);
  rv_mutex_fini(&lock->lock);
  free(lock->path);
  free(lock);
}

rv_code rv_journal_lock_check(const char *dir, rv_error *err)
{
  char *path = rv_path_join(dir, LOCK_FILE);
  if (path == NULL) return rv_fail_memory(err, strlen(dir));
  rv_code code = RV_OK;
  if (access(path, R_OK | W_OK) != 0 && errno != ENOENT) code = rv_fail_system(err, errno, "open", path);
  free(path);
  return code;
}

rv_code rv_journal_lock_new(const char *dir, const rv_env *env, rv_journal_lock **out, rv_error *err)
{
  rv_journal_lock *lock = calloc(1, sizeof *lock);
  if (lock == NULL) return rv_fail_memory(err, sizeof *lock);
  lock->env = env;
  lock->dir = dir;
  rv_mutex_init(&lock->lock, RV_RANK_WAIT, "journal's directory");
  rv_cond_init(&lock->changed);
  lock->path = rv_path_join(dir, LOCK_FILE);
  int failed = lock->path == NULL ? ENOMEM : rv_thread_start(&lock->thread, "rv-lock", hold, lock);
  if (failed != 0) {
    destroy(lock);
    return rv_fail(err, RV_RESOURCE_EXHAUSTED, "no thread could be started for the lock of the journal in %s", dir);
  }
  rv_mutex_lock(&lock->lock);
  while (!lock->answered) rv_cond_wait(&lock->changed, &lock->lock);
  rv_code code = lock->code;
  rv_mutex_unlock(&lock->lock);
  if (code == RV_OK) {
    *out = lock;
    return RV_OK;
  }
  rv_error_copy(err, &lock->err);
  rv_journal_lock_free(lock);
  return code;
}

void rv_journal_lock_remove(rv_journal_lock *lock, const char *dir)
{
  if (lock == NULL) return;
  unlink(lock->path); /* while it is ours */
  rmdir(dir);
  rv_journal_lock_free(lock);
}

void rv_journal_lock_free(rv_journal_lock *lock)
{
  if (lock == NULL) return;
  rv_mutex_lock(&lock->lock);
  lock->over = true;
  rv_cond_signal(&lock->changed);
  rv_mutex_unlock(&lock->lock);
  pthread_join(lock->thread, NULL);
  destroy(lock);
}
