#include "persist/checkpoint_mark.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "persist/checkpoint_dir.h"
#include "persist/checkpoint_files.h"

enum { LOOK_NS = 20000000 };
#define WAIT_NS INT64_C(10000000000)

static int lock_mark(const char *path, int mode, int operation, bool *taken)
{
  *taken = false;
  char *mark = rv_path_join(path, RV_OURS_FILE);
  int file = mark == NULL ? -1 : open(mark, mode | O_NOFOLLOW | O_CLOEXEC);
  bool unknown = file < 0 && (mark == NULL || errno == EMFILE || errno == ENFILE || errno == ENOMEM);
  if (operation == LOCK_EX) *taken = unknown; /* who would remove it leaves it; who reads it finds out */
  free(mark);
  while (file >= 0 && flock(file, operation | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    *taken = errno == EWOULDBLOCK;
    close(file);
    file = -1;
  }
  return file;
}

int rv_checkpoint_mark_try(const char *path, bool *taken)
{
  return lock_mark(path, O_RDWR, LOCK_EX, taken);
}

int rv_checkpoint_mark_share(const char *path)
{
  bool taken;
  return lock_mark(path, O_RDONLY, LOCK_SH, &taken);
}

int rv_checkpoint_mark_lower(int mark, const char *path)
{
  if (mark < 0 || flock(mark, LOCK_SH | LOCK_NB) == 0) return mark;
  rv_checkpoint_mark_release(mark);
  return rv_checkpoint_mark_share(path);
}

void rv_checkpoint_mark_release(int mark)
{
  if (mark < 0) return;
  flock(mark, LOCK_UN);
  close(mark);
}

/* DONE is the first that a removal takes. */
static rv_code wait_for_mark(const char *path, const rv_env *env, const rv_checkpoint_watch *watch, int *hold, rv_error *err)
{
  const rv_checkpoint_progress none = {.size = sizeof none, .total_items = -1};
  const struct timespec pause = {.tv_nsec = LOOK_NS};
  int64_t begun_ns = rv_monotonic_ns(env);
  bool taken;
  while ((*hold = lock_mark(path, O_RDONLY, LOCK_SH, &taken)) < 0 && taken && rv_checkpoint_is_done(path)) {
    if (rv_monotonic_ns(env) - begun_ns >= WAIT_NS) {
      rv_log(env, RV_LOG_WARNING,
             "%s is read without a lock: for 10 s another process has had it (a child, perhaps, of one that was killed while it "
             "saved or removed it)",
             path);
      return RV_OK;
    }
    rv_code code = rv_checkpoint_ask(watch, &none, err);
    if (code != RV_OK) {
      rv_error_prefix(err, "%s is locked by another process, which writes or removes it", path);
      return code;
    }
    nanosleep(&pause, NULL);
  }
  return RV_OK;
}

rv_code rv_checkpoint_hold(const char *path, const rv_env *env, const rv_checkpoint_watch *watch, int *hold, rv_error *err)
{
  rv_code code = wait_for_mark(path, env, watch, hold, err);
  if (code != RV_OK || rv_checkpoint_is_done(path)) return code; /* looked for under the lock */
  rv_checkpoint_mark_release(*hold);
  *hold = -1;
  return rv_fail(err, RV_NOT_FOUND, "%s is no whole checkpoint: there is no " RV_DONE_FILE " in it", path);
}
