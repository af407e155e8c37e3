#include "persist/late_close.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"
#include "persist/past_cache.h"

void rv_late_close_init(rv_late_close *late, const rv_files *system)
{
  *late = (rv_late_close){.system = system};
}

/* A small one is freed at once, and one with another name is not freed at all: neither takes the place of one that takes long. */
static bool is_worth_it(const rv_late_close *late, int file)
{
  struct stat info;
  return fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 1 && info.st_size >= RV_LATE_CLOSE_BYTES &&
         rv_past_cache_is_gain(late->system->file_system(late->system->context, file));
}

void rv_late_close_hold(rv_late_close *late, int dir, const char *name)
{
  if (late->count == RV_LATE_CLOSE_FILES) return;
  int file = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return;
  if (is_worth_it(late, file))
    late->files[late->count++] = file, late->pid = getpid();
  else
    close(file);
}

static void close_all(rv_late_close *late)
{
  for (size_t i = 0; i < late->count; i++) close(late->files[i]);
  late->count = 0;
}

static void *close_held(void *context)
{
  close_all(context);
  return NULL;
}

void rv_late_close_begin(rv_late_close *late)
{
  if (late->count == 0) return;
  late->threaded = rv_thread_start(&late->thread, "rv-remove", close_held, late) == 0;
  if (!late->threaded) close_all(late);
}

void rv_late_close_settle(rv_late_close *late)
{
  bool threaded = late->threaded;
  late->threaded = false;
  if (late->pid != getpid()) { /* also where nothing was ever held */
    late->count = 0;
    return;
  }
  if (threaded) pthread_join(late->thread, NULL);
  close_all(late); /* where nothing was begun */
}
