#include "persist/checkpoint_await.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/error.h"
#include "persist/checkpoint_dir.h"
#include "persist/checkpoint_files.h"
#include "persist/checkpoint_mark.h"
#include "persist/dir_names.h"

enum { LOOK_NS = 20000000 };
#define STANDSTILL_NS INT64_C(5000000000)

#ifdef __APPLE__
#define st_mtim st_mtimespec
#endif

static bool is_being_written(const char *path)
{
  bool taken;
  rv_checkpoint_mark_release(rv_checkpoint_mark_try(path, &taken));
  return taken;
}

/* Something that changes whenever a file of it is written to. */
static uint64_t state_of(const char *path)
{
  rv_dir_names files;
  uint64_t state = 0;
  (void)rv_dir_names_read(path, &files, NULL);
  for (size_t i = 0; i < files.count; i++) {
    struct stat st;
    char *file = rv_path_join(path, files.names[i]);
    if (file != NULL && stat(file, &st) == 0)
      state += (uint64_t)st.st_size + (uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec;
    free(file);
  }
  rv_dir_names_fini(&files);
  return state;
}

static rv_code await_one(const char *path, const rv_env *env, const rv_checkpoint_watch *watch, rv_error *err)
{
  const rv_checkpoint_progress none = {.size = sizeof none, .total_items = -1};
  const struct timespec pause = {.tv_nsec = LOOK_NS};
  if (!is_being_written(path)) return RV_OK;
  rv_log(env, RV_LOG_WARNING, "waits for another process that writes a checkpoint, as one that was told to end does: %s", path);
  uint64_t state = state_of(path);
  int64_t since_ns = rv_monotonic_ns(env);
  do {
    rv_code code = rv_checkpoint_ask(watch, &none, err);
    if (code != RV_OK) {
      rv_error_prefix(err, "another process writes a checkpoint to %s", path);
      return code;
    }
    nanosleep(&pause, NULL);
    uint64_t now = state_of(path);
    if (now != state) since_ns = rv_monotonic_ns(env);
    state = now;
    if (rv_monotonic_ns(env) - since_ns >= STANDSTILL_NS) {
      rv_log(
          env, RV_LOG_WARNING,
          "goes on without %s: nothing was written to it for 5 s, so a child may have its lock of a process that was killed; if "
          "another server does write it, what that has is not in this one",
          path);
      return RV_OK;
    }
  } while (is_being_written(path));
  return RV_OK;
}

rv_code rv_checkpoint_await_writers(const char *root, const rv_env *env, const rv_checkpoint_watch *watch, rv_error *err)
{
  rv_dir_names found;
  rv_code code = RV_OK;
  (void)rv_dir_names_read(root, &found, NULL);
  for (size_t i = 0; i < found.count && code == RV_OK; i++) {
    if (strncmp(found.names[i], RV_PARTIAL_PREFIX, strlen(RV_PARTIAL_PREFIX)) != 0) continue;
    char *path = rv_path_join(root, found.names[i]);
    code = path == NULL ? rv_fail_memory(err, strlen(root)) : await_one(path, env, watch, err);
    free(path);
  }
  rv_dir_names_fini(&found);
  return code;
}
