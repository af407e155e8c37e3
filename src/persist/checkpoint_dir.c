#include "persist/checkpoint_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/off_streams.h"
#include "persist/checkpoint_mark.h"
#include "persist/chunk_files.h"
#include "persist/dir_names.h"
#include "persist/record_file.h"
#include "reverie/version.h"

enum { LIST_TRIES = 20, BEGIN_TRIES = 3, LOCK_TRIES = 1000, LOCK_PAUSE_NS = 1000000 };

char *rv_path_join(const char *dir, const char *name)
{
  size_t size = strlen(dir) + strlen(name) + 2;
  char *path = malloc(size);
  if (path != NULL) snprintf(path, size, "%s/%s", dir, name);
  return path;
}

/* ---- listing ---- */

/* Is the file there? 0, or why nobody can say. */
static int look_for(const char *path, const char *name, bool *there)
{
  char *file = rv_path_join(path, name);
  if (file == NULL) return ENOMEM;
  *there = access(file, F_OK) == 0;
  int number = *there || errno == ENOENT || errno == ENOTDIR ? 0 : errno;
  free(file);
  return number;
}

bool rv_checkpoint_is_done(const char *path)
{
  bool there = false;
  return look_for(path, RV_DONE_FILE, &there) != 0 || there;
}

static int newest_first(const void *a, const void *b)
{
  const rv_checkpoint_entry *x = a, *y = b;
  if (x->wall_ns != y->wall_ns) return x->wall_ns < y->wall_ns ? 1 : -1;
  return strcmp(y->name, x->name);
}

static void note_gone(rv_checkpoint_list *list, const char *name)
{
  int64_t wall_ns;
  if (rv_checkpoint_name_parse(name, &wall_ns) && wall_ns > list->newest_gone) list->newest_gone = wall_ns;
}

static rv_code add_entry(const char *root, const char *name, rv_checkpoint_list *list, rv_error *err)
{
  char *path = rv_path_join(root, name);
  struct stat info;
  if (path == NULL) return rv_fail_memory(err, strlen(root));
  rv_checkpoint_entry added = {.unknown = stat(path, &info) == 0 ? 0 : errno};
  if (added.unknown == ENOENT || (added.unknown == 0 && !S_ISDIR(info.st_mode))) { /* gone meanwhile, or a file */
    if (added.unknown == ENOENT) note_gone(list, name);
    free(path);
    return RV_OK;
  }
  rv_checkpoint_entry *grown = realloc(list->entries, (list->count + 1) * sizeof *grown);
  if (grown != NULL) list->entries = grown;
  added.name = strdup(name);
  if (added.unknown == 0) added.unknown = look_for(path, RV_DONE_FILE, &added.done);
  if (added.unknown == 0) added.unknown = look_for(path, RV_OURS_FILE, &added.ours);
  free(path);
  if (grown == NULL || added.name == NULL) {
    free(added.name);
    return rv_fail_memory(err, sizeof *grown);
  }
  if (!rv_checkpoint_name_parse(name, &added.wall_ns)) added.wall_ns = INT64_MIN;
  if (added.unknown == 0 && !added.done) note_gone(list, name);
  list->entries[list->count++] = added;
  return RV_OK;
}

rv_code rv_checkpoint_list_read(const char *root, rv_checkpoint_list *out, rv_error *err)
{
  *out = (rv_checkpoint_list){.newest_gone = INT64_MIN};
  rv_dir_names found;
  rv_code code = rv_dir_names_read(root, &found, err);
  for (size_t i = 0; code == RV_OK && i < found.count; i++)
    if (found.names[i][0] != '.') code = add_entry(root, found.names[i], out, err);
  rv_dir_names_fini(&found);
  if (code != RV_OK) {
    rv_checkpoint_list_fini(out);
    return code;
  }
  if (out->count > 0) qsort(out->entries, out->count, sizeof *out->entries, newest_first);
  return RV_OK;
}

/* Once more is enough, unless yet another has gone meanwhile. */
rv_code rv_checkpoint_list_read_whole(const char *root, rv_checkpoint_list *out, rv_error *err)
{
  int64_t known = INT64_MIN;
  for (int tries = 1;; tries++) {
    rv_code code = rv_checkpoint_list_read(root, out, err);
    if (code != RV_OK || out->newest_gone <= known || tries == LIST_TRIES) return code;
    known = out->newest_gone;
    rv_checkpoint_list_fini(out);
  }
}

void rv_checkpoint_list_fini(rv_checkpoint_list *list)
{
  for (size_t i = 0; i < list->count; i++) free(list->entries[i].name);
  free(list->entries);
  *list = (rv_checkpoint_list){0};
}

/* ---- removing ---- */

static rv_code remove_named(int dir, const char *name, const char *path, rv_error *err)
{
  return unlinkat(dir, name, 0) == 0 || errno == ENOENT ? RV_OK : rv_fail_system(err, errno, "remove a file in", path);
}

/* Those of an incremental checkpoint. What other checkpoints need of them stays there. */
static rv_code remove_chunk_files(int dir, const char *path, rv_error *err)
{
  rv_dir_names found;
  rv_code code = rv_dir_names_read(path, &found, err);
  for (size_t i = 0; code == RV_OK && i < found.count; i++)
    if (rv_chunk_file_is_name(found.names[i])) code = remove_named(dir, found.names[i], path, err);
  rv_dir_names_fini(&found);
  return code;
}

static rv_code open_ours(const char *path, int *dir, rv_error *err)
{
  *dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  return *dir >= 0 ? RV_OK : rv_fail_system(err, errno, "open", path);
}

/* What makes it a checkpoint, and a journal's segments needed: what is half removed is none any more. */
static rv_code retire_in(int dir, const char *path, rv_error *err)
{
  rv_code code = remove_named(dir, RV_DONE_FILE, path, err);
  return code == RV_OK ? remove_named(dir, RV_LINK_FILE, path, err) : code;
}

static rv_code retire_ours(const char *path, rv_error *err)
{
  int dir;
  rv_code code = open_ours(path, &dir, err);
  if (code != RV_OK) return code;
  code = retire_in(dir, path, err);
  close(dir);
  return code;
}

/* The mark last: what is left of it is still known to be ours. Anything else in the directory is not ours, and keeps it. *mark is given back
 * before the directory goes: NFS keeps a name of what is open in it. */
static rv_code remove_ours(const char *path, int *mark, rv_error *err)
{
  static const char *const files[] = {RV_INDEX_FILE, RV_CHUNKS_FILE, RV_ITEMS_FILE, RV_TABLES_FILE, RV_OURS_FILE};
  int dir;
  rv_code code = open_ours(path, &dir, err);
  if (code != RV_OK) return code;
  code = retire_in(dir, path, err);
  if (code == RV_OK) code = remove_chunk_files(dir, path, err);
  for (size_t i = 0; i < sizeof files / sizeof files[0] && code == RV_OK; i++) code = remove_named(dir, files[i], path, err);
  close(dir);
  if (code != RV_OK) return code;
  rv_checkpoint_mark_release(*mark);
  *mark = -1;
  return rmdir(path) == 0 || errno == ENOENT ? RV_OK : rv_fail_system(err, errno, "remove", path);
}

/* A process that is killed when it has removed all that was in a checkpoint leaves its directory. */
static void remove_empty(const char *root, const char *name)
{
  char *path = rv_path_join(root, name);
  if (path != NULL) rmdir(path);
  free(path);
}

/* One that is locked and no checkpoint any more is somebody else's to remove, who is at it. */
static void remove_outdated(const char *root, uint32_t keep, bool wholly, const rv_env *env)
{
  rv_checkpoint_list list;
  rv_error err;
  if (rv_checkpoint_list_read(root, &list, &err) != RV_OK) {
    if (wholly) rv_log(env, RV_LOG_WARNING, "older checkpoints stay: %s", err.message);
    return;
  }
  uint32_t kept = 0;
  for (size_t i = 0; i < list.count; i++) {
    const rv_checkpoint_entry *entry = &list.entries[i];
    if (entry->unknown != 0 || entry->wall_ns == INT64_MIN) continue; /* renamed: somebody wants to keep it */
    if (!entry->ours) {
      if (!entry->done && kept > 0 && wholly) remove_empty(root, entry->name);
      continue;
    }
    if (entry->done && kept++ < keep) continue;
    char *path = rv_path_join(root, entry->name);
    bool is_read = false;
    int lock = path == NULL ? -1 : rv_checkpoint_mark_try(path, &is_read);
    bool failed = !is_read && (path == NULL || (wholly ? remove_ours(path, &lock, &err) : retire_ours(path, &err)) != RV_OK);
    if (is_read && entry->done && wholly)
      rv_log(
          env, RV_LOG_WARNING,
          "an older checkpoint stays until a later save, with what a journal has since then: somebody reads %s, or a child of a "
          "process that did lives on, or it is the last of another server, which should save to a directory of its own",
          path);
    if (failed && wholly)
      rv_log(env, RV_LOG_WARNING, "an older checkpoint stays: %s", path == NULL ? "out of memory" : err.message);
    rv_checkpoint_mark_release(lock);
    free(path);
  }
  rv_checkpoint_list_fini(&list);
}

void rv_checkpoints_retire(const char *root, uint32_t keep, const rv_env *env)
{
  remove_outdated(root, keep, false, env);
}

void rv_checkpoints_retain(const char *root, uint32_t keep, const rv_env *env)
{
  remove_outdated(root, keep, true, env);
}

/* ---- writing ---- */

static rv_code sync_directory(const rv_files *files, const char *path, rv_error *err)
{
  return files->sync_directory(files->context, path) == 0 ? RV_OK : rv_fail_system(err, errno, "write", path);
}

/* `slash` is where the last name of `path` begins; what is above it learns of it. */
static rv_code sync_above(char *path, char *slash, rv_error *err)
{
  const rv_files *files = &rv_files_of_system;
  if (slash == NULL) return sync_directory(files, ".", err);
  if (slash == path) return sync_directory(files, "/", err);
  *slash = '\0';
  rv_code code = sync_directory(files, path, err);
  *slash = '/';
  return code;
}

/* A directory that is made is known to the one above before anything in it counts. */
static rv_code make_directory(char *path, rv_error *err)
{
  if (mkdir(path, 0777) == 0) return sync_above(path, strrchr(path, '/'), err);
  const int refused = errno; /* which access() would take the place of by a reason of its own */
  if (refused == EEXIST || (refused == EACCES && access(path, F_OK) == 0)) return RV_OK;
  return rv_fail_system(err, refused, "make the directory", path);
}

rv_code rv_make_directories(const char *path, rv_error *err)
{
  char *copy = strdup(path);
  if (copy == NULL) return rv_fail_memory(err, strlen(path));
  rv_code code = RV_OK;
  for (char *at = copy + 1; code == RV_OK; at++) {
    char c = *at;
    if (c != '/' && c != '\0') continue;
    *at = '\0';
    code = make_directory(copy, err);
    *at = c;
    if (c == '\0') break;
  }
  free(copy);
  return code;
}

static size_t without_slashes(const char *path)
{
  size_t size = strlen(path);
  while (size > 1 && path[size - 1] == '/') size--;
  return size;
}

bool rv_is_same_directory(const char *a, const char *b)
{
  struct stat x, y;
  size_t size = without_slashes(a);
  if (size == without_slashes(b) && memcmp(a, b, size) == 0) return true;
  return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

rv_code rv_check_directories(const char *path, rv_error *err)
{
  char *copy = strdup(path);
  if (copy == NULL) return rv_fail_memory(err, strlen(path));
  struct stat info;
  int number = stat(copy, &info) == 0 ? 0 : errno;
  while (number == ENOENT) { /* up to the first that is there: the root of all is */
    char *slash = strrchr(copy, '/');
    if (slash == NULL || copy[1] == '\0') break;
    slash[slash == copy] = '\0';
    number = stat(copy, &info) == 0 ? 0 : errno;
  }
  if (number == 0 && !S_ISDIR(info.st_mode)) number = ENOTDIR;
  if (number == 0 && access(copy, W_OK | X_OK) != 0) number = errno;
  rv_code code = number == 0 ? RV_OK : rv_fail_system(err, number, "write to the directory", copy);
  free(copy);
  return code;
}

void rv_partials_remove(const char *root, const rv_env *env)
{
  rv_dir_names found;
  rv_error err;
  if (rv_dir_names_read(root, &found, &err) != RV_OK) rv_log(env, RV_LOG_WARNING, "what was left behind stays: %s", err.message);
  for (size_t i = 0; i < found.count; i++) {
    if (strncmp(found.names[i], RV_PARTIAL_PREFIX, strlen(RV_PARTIAL_PREFIX)) != 0) continue;
    char *path = rv_path_join(root, found.names[i]);
    bool is_written = false;
    int lock = path == NULL ? -1 : rv_checkpoint_mark_try(path, &is_written);
    if (lock >= 0) {
      if (remove_ours(path, &lock, &err) == RV_OK)
        rv_log(env, RV_LOG_INFO, "removed %s: a checkpoint whose writer had gone before it was whole", path);
      else
        rv_log(env, RV_LOG_WARNING, "%s", err.message);
      rv_checkpoint_mark_release(lock);
    } else if (is_written) {
      rv_log(env, RV_LOG_INFO, "%s stays: somebody writes it, or a child of a process that did lives on", path);
    } else if (path != NULL && rmdir(path) == 0) { /* empty: its writer had gone before the mark, or makes another */
      rv_log(env, RV_LOG_INFO, "removed %s: a checkpoint whose writer had gone before it was begun", path);
    }
    free(path);
  }
  rv_dir_names_fini(&found);
}

/* All of it; false, with errno. */
static bool write_text(const rv_files *files, int file, const char *text)
{
  for (size_t left = strlen(text); left > 0;) {
    struct iovec piece = {(void *)(uintptr_t)text, left};
    ssize_t wrote = files->write(files->context, file, &piece, 1);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote == 0) errno = ENOSPC;
    if (wrote <= 0) return false;
    text += wrote;
    left -= (size_t)wrote;
  }
  return true;
}

/* Whoever looks whether somebody writes has the lock for a moment. True also where a file system has no locks: there what a crash leaves
 * behind stays. */
static bool lock_own(int file)
{
  const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
  for (int tries = 0; flock(file, LOCK_EX | LOCK_NB) != 0; tries++) {
    if (errno != EWOULDBLOCK && errno != EINTR) return true;
    if (tries == LOCK_TRIES) {
      errno = EWOULDBLOCK;
      return false;
    }
    nanosleep(&pause, NULL);
  }
  return true;
}

/* Open for reading, too: only then NFS lets a lock that was had alone be shared. As it was where a file system opens none twice. */
static int open_for_both(int file, const char *path)
{
  int both = rv_off_streams(open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (both < 0) return file;
  close(file);
  return both;
}

/* A file of one line, on the disk; *keep (may be NULL) gets it open, and locked. */
static rv_code write_small(const rv_partial *partial, const char *name, const char *text, int *keep, rv_error *err)
{
  const rv_files *files = partial->files;
  char *path = rv_path_join(partial->path, name);
  if (path == NULL) return rv_fail_memory(err, strlen(partial->path));
  int file = files->create(files->context, path);
  rv_code code = RV_OK;
  if (file < 0) {
    code = rv_fail_system(err, errno, "create", path);
  } else {
    if (keep != NULL) file = open_for_both(file, path);
    if (keep != NULL && !lock_own(file)) code = rv_fail_system(err, errno, "lock", path);
    if (code == RV_OK && (!write_text(files, file, text) || files->sync(files->context, file) != 0))
      code = rv_fail_system(err, errno, "write", path);
    if (keep != NULL && code == RV_OK)
      *keep = file;
    else if (keep != NULL)
      rv_checkpoint_mark_release(file);
    else
      close(file);
  }
  free(path);
  return code;
}

/* *taken: another process took the directory, before its mark was locked, for one that was left behind; what is left of it is its to remove. It
 * takes the mark away while it has the lock. */
static rv_code begin_partial(const char *root, const rv_env *env, rv_partial *out, bool *taken, rv_error *err)
{
  char name[64];
  snprintf(name, sizeof name, RV_PARTIAL_PREFIX "%016" PRIx64, rv_entropy64(env));
  char *path = rv_path_join(root, name);
  if (path == NULL) return rv_fail_memory(err, strlen(root));
  if (mkdir(path, 0777) != 0) {
    rv_code code = rv_fail_system(err, errno, "make the directory", path);
    free(path);
    return code;
  }
  out->path = path;
  rv_code code = write_small(out, RV_OURS_FILE, "written by Reverie " RV_VERSION "\n", &out->lock, err);
  bool there = true;
  *taken = code == RV_OK ? look_for(path, RV_OURS_FILE, &there) == 0 && !there : access(path, F_OK) != 0 && errno == ENOENT;
  if (!*taken) return code;
  rv_checkpoint_mark_release(out->lock);
  return rv_fail_system(err, ENOENT, "write to", path);
}

rv_code rv_partial_begin(const char *root, const rv_env *env, const rv_files *files, rv_partial *out, rv_error *err)
{
  *out = (rv_partial){.lock = -1, .files = files};
  rv_code code = rv_make_directories(root, err);
  if (code != RV_OK) return code;
  rv_partials_remove(root, env);
  for (int tries = 0; tries < BEGIN_TRIES; tries++) {
    bool taken = false;
    code = begin_partial(root, env, out, &taken, err);
    if (!taken) break;
    free(out->path);
    *out = (rv_partial){.lock = -1, .files = files};
  }
  if (code != RV_OK) rv_partial_drop(out, env);
  return code;
}

rv_code rv_partial_put(const rv_partial *partial, const char *name, const char *text, rv_error *err)
{
  return write_small(partial, name, text, NULL, err);
}

/* Later than all that are there, whatever the clock says. */
static rv_code choose_time(const char *root, const rv_env *env, int64_t *wall_ns, rv_error *err)
{
  rv_checkpoint_list list;
  rv_code code = rv_checkpoint_list_read(root, &list, err);
  if (code != RV_OK) return code;
  *wall_ns = rv_wall_ns(env);
  if (list.count > 0 && list.entries[0].wall_ns >= *wall_ns && list.entries[0].wall_ns < INT64_MAX)
    *wall_ns = list.entries[0].wall_ns + 1;
  rv_checkpoint_list_fini(&list);
  return RV_OK;
}

rv_code rv_partial_finish(rv_partial *partial, const char *root, const rv_env *env, char **path, rv_error *err)
{
  int64_t wall_ns;
  char name[RV_CHECKPOINT_NAME_MAX];
  rv_code code = write_small(partial, RV_DONE_FILE, "", NULL, err);
  if (code == RV_OK) code = sync_directory(partial->files, partial->path, err);
  if (code == RV_OK) code = choose_time(root, env, &wall_ns, err);
  if (code != RV_OK) return code;
  for (int tries = 0;; tries++) {
    rv_checkpoint_name(wall_ns, name);
    *path = rv_path_join(root, name);
    if (*path == NULL) return rv_fail_memory(err, strlen(root));
    /* where another process has just taken the name, its directory is not empty */
    if (partial->files->rename(partial->files->context, partial->path, *path) == 0) break;
    int number = errno;
    if ((number != EEXIST && number != ENOTEMPTY) || tries == 100) {
      code = rv_fail_system(err, number, "rename to its final name", partial->path);
      free(*path);
      *path = NULL;
      return code;
    }
    free(*path);
    wall_ns++;
  }
  free(partial->path);
  partial->path = NULL;
  partial->lock = rv_checkpoint_mark_lower(partial->lock, *path);
  code = sync_directory(partial->files, root, err);
  if (code == RV_OK) return RV_OK;
  rv_error_prefix(err, "%s is whole, but a power cut may take it away, so older ones stay", *path);
  free(*path);
  *path = NULL;
  return code;
}

void rv_partial_drop(rv_partial *partial, const rv_env *env)
{
  rv_error err;
  if (partial->path != NULL && remove_ours(partial->path, &partial->lock, &err) != RV_OK)
    rv_log(env, RV_LOG_WARNING, "%s", err.message);
  rv_checkpoint_mark_release(partial->lock);
  free(partial->path);
  *partial = (rv_partial){.lock = -1};
}
