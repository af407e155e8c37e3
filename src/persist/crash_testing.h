/* A machine that goes at the n-th call with which this process changes files. The linker puts these functions in the place of the system's
 * (`-Wl,--wrap`, CMakeLists.txt), so that no call is missed, whoever makes it.
 *
 * A process that is killed leaves what it wrote, for the next one, whose power may be cut. After a power cut a file has what it had at its last fsync, and of what was written later
 * nothing, a part, or zeros; names that were made, changed or taken away are as they were at their directory's last fsync, or as they came to be
 * after one of the changes since. No fsync goes to the disk here. Include it in one file of a program alone. */
#ifndef RV_PERSIST_CRASH_TESTING_H
#define RV_PERSIST_CRASH_TESTING_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"

enum { CRASH_STATUS = 9, CRASH_NAMES = 4096, CRASH_FILES = 1024, CRASH_PATH = 400 };

typedef enum crash_kind {
  CRASH_NOTHING,
  CRASH_MADE,
  CRASH_MADE_DIRECTORY,
  CRASH_RENAMED,
  CRASH_GONE,
  CRASH_GONE_DIRECTORY
} crash_kind;

/* A name that is not known to be on the disk as it is. */
typedef struct crash_name {
  crash_kind kind;
  char path[CRASH_PATH], before[CRASH_PATH]; /* as it is now, and where it was or its file is kept */
} crash_name;

typedef struct crash_file {
  int file; /* of our own */
  ino_t inode;
  off_t synced;
  char path[CRASH_PATH];
} crash_file;

/* What is not known to be on the disk; it outlives a process. */
typedef struct crash_cache {
  char kept[CRASH_PATH]; /* a directory for files whose names were taken away */
  size_t num_names, num_kept, num_files;
  crash_name names[CRASH_NAMES];
  crash_file files[CRASH_FILES];
} crash_cache;

static struct {
  pthread_mutex_t lock;
  bool armed, power;
  long left; /* calls before the one at which it goes */
  rv_random random;
  crash_cache *cache;
} crash = {.lock = PTHREAD_MUTEX_INITIALIZER};

int __real_open(const char *path, int flags, ...);
ssize_t __real_writev(int file, const struct iovec *pieces, int count);
int __real_ftruncate(int file, off_t size);
int __real_fdatasync(int file);
int __real_fsync(int file);
int __real_link(const char *from, const char *to);
int __real_mkdir(const char *path, mode_t mode);
int __real_rename(const char *from, const char *to);
int __real_rmdir(const char *path);
int __real_unlink(const char *path);
int __real_unlinkat(int dir, const char *name, int flags);

static uint64_t crash_draw(uint64_t below)
{
  return below == 0 ? 0 : rv_random_next(&crash.random) % below;
}

static void crash_copy(char out[CRASH_PATH], const char *path)
{
  const size_t size = strnlen(path, CRASH_PATH - 1);
  memcpy(out, path, size);
  out[size] = '\0';
}

/* ---- the power cut ---- */

static void crash_parent(const char *path, char out[CRASH_PATH])
{
  crash_copy(out, path);
  char *slash = strrchr(out, '/');
  if (slash != NULL) *slash = '\0';
}

static bool crash_is_in(const crash_name *name, const char *dir)
{
  char parent[CRASH_PATH];
  crash_parent(name->path, parent);
  return strcmp(parent, dir) == 0;
}

static void crash_undo(const crash_name *name)
{
  switch (name->kind) {
  case CRASH_MADE: __real_unlink(name->path); break;
  case CRASH_MADE_DIRECTORY: __real_rmdir(name->path); break;
  case CRASH_RENAMED: __real_rename(name->path, name->before); break;
  case CRASH_GONE: __real_link(name->before, name->path); break;
  case CRASH_GONE_DIRECTORY: __real_mkdir(name->path, 0777); break;
  case CRASH_NOTHING: break;
  }
}

/* How many of the changes in the directory of the i-th name stay: the same for all of them. */
static size_t crash_stay(size_t i, size_t stay[CRASH_NAMES])
{
  char dir[CRASH_PATH];
  size_t in_dir = 0;
  crash_parent(crash.cache->names[i].path, dir);
  for (size_t k = 0; k < i; k++)
    if (crash_is_in(&crash.cache->names[k], dir)) return stay[i] = stay[k];
  for (size_t k = i; k < crash.cache->num_names; k++) in_dir += crash_is_in(&crash.cache->names[k], dir);
  return stay[i] = (size_t)crash_draw(in_dir + 1);
}

static void crash_names(void)
{
  static size_t stay[CRASH_NAMES];
  static bool stays[CRASH_NAMES];
  for (size_t i = 0; i < crash.cache->num_names; i++) {
    char dir[CRASH_PATH];
    size_t before = 0;
    crash_parent(crash.cache->names[i].path, dir);
    for (size_t k = 0; k < i; k++) before += crash_is_in(&crash.cache->names[k], dir);
    stays[i] = before < crash_stay(i, stay);
  }
  for (size_t i = crash.cache->num_names; i-- > 0;)
    if (!stays[i]) crash_undo(&crash.cache->names[i]);
}

static void crash_files(void)
{
  static const uint8_t zeros[4096];
  for (size_t i = 0; i < crash.cache->num_files; i++) {
    struct stat info;
    const crash_file *of = &crash.cache->files[i];
    if (fstat(of->file, &info) != 0 || info.st_size <= of->synced) continue;
    fcntl(of->file, F_SETFL, fcntl(of->file, F_GETFL) & ~O_DIRECT);
    off_t size = of->synced + (off_t)crash_draw((uint64_t)(info.st_size - of->synced) + 1);
    switch (crash_draw(4)) {
    case 0: break;             /* all of it is there */
    case 1: size = of->synced; /* fall through */
    case 2: __real_ftruncate(of->file, size); break;
    default: /* its length is there, and not all that it had */
      for (off_t at = size; at < info.st_size; at += (off_t)sizeof zeros)
        if (pwrite(of->file, zeros, (size_t)(info.st_size - at) < sizeof zeros ? (size_t)(info.st_size - at) : sizeof zeros, at) <
            0)
          break;
    }
  }
}

/* At once: a sanitizer would first wait for other threads. */
static _Noreturn void crash_exit(int status)
{
  syscall(SYS_exit_group, status);
  abort();
}

/* Holding the lock; true: it goes now. */
static bool crash_is_due(void)
{
  return crash.armed && crash.left-- <= 0;
}

static void crash_now(void)
{
  if (crash.power) {
    crash_names();
    crash_files();
    crash.cache->num_names = crash.cache->num_files = 0;
  }
  crash_exit(CRASH_STATUS);
}

static void crash_begin_call(void)
{
  pthread_mutex_lock(&crash.lock);
  if (crash_is_due()) crash_now();
}

static int crash_end_call(int result)
{
  int number = errno;
  pthread_mutex_unlock(&crash.lock);
  errno = number;
  return result;
}

/* ---- what is noted ---- */

static void crash_note(crash_kind kind, const char *path, const char *before)
{
  if (!crash.armed || crash.cache->num_names == CRASH_NAMES) return;
  crash_name *name = &crash.cache->names[crash.cache->num_names++];
  name->kind = kind;
  crash_copy(name->path, path);
  crash_copy(name->before, before);
}

static void crash_path_of(int file, char out[CRASH_PATH])
{
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t size = readlink(link, out, CRASH_PATH - 1);
  out[size < 0 ? 0 : size] = '\0';
}

static void crash_synced(int file)
{
  struct stat info;
  char path[CRASH_PATH];
  if (!crash.armed || fstat(file, &info) != 0) return;
  for (size_t i = 0; i < crash.cache->num_files && !S_ISDIR(info.st_mode); i++)
    if (crash.cache->files[i].inode == info.st_ino) crash.cache->files[i].synced = info.st_size;
  if (!S_ISDIR(info.st_mode)) return;
  crash_path_of(file, path);
  size_t left = 0;
  for (size_t i = 0; i < crash.cache->num_names; i++)
    if (!crash_is_in(&crash.cache->names[i], path)) crash.cache->names[left++] = crash.cache->names[i];
  crash.cache->num_names = left;
}

/* ---- the system's ---- */

int __wrap_open(const char *path, int flags, ...)
{
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  if (!crash.armed || (flags & O_CREAT) == 0 || (flags & O_EXCL) == 0) return __real_open(path, flags, mode);
  crash_begin_call();
  int file = __real_open(path, flags, mode);
  struct stat info;
  if (file >= 0 && crash.cache->num_files < CRASH_FILES && fstat(file, &info) == 0) {
    crash_file *made = &crash.cache->files[crash.cache->num_files++];
    *made = (crash_file){.file = fcntl(file, F_DUPFD_CLOEXEC, 500), .inode = info.st_ino};
    crash_copy(made->path, path);
    crash_note(CRASH_MADE, path, "");
  }
  return crash_end_call(file);
}

ssize_t __wrap_writev(int file, const struct iovec *pieces, int count)
{
  pthread_mutex_lock(&crash.lock);
  if (crash_is_due()) {
    struct iovec half = {pieces[0].iov_base, pieces[0].iov_len / 2};
    __real_writev(file, &half, 1);
    crash_now();
  }
  ssize_t wrote = __real_writev(file, pieces, count);
  crash_end_call(0);
  return wrote;
}

int __wrap_ftruncate(int file, off_t size)
{
  crash_begin_call();
  return crash_end_call(__real_ftruncate(file, size));
}

static int crash_sync(int file)
{
  crash_begin_call();
  crash_synced(file);
  return crash_end_call(0);
}
int __wrap_fdatasync(int file)
{
  return crash_sync(file);
}
int __wrap_fsync(int file)
{
  return crash_sync(file);
}

int __wrap_link(const char *from, const char *to)
{
  crash_begin_call();
  int result = __real_link(from, to);
  if (result == 0) crash_note(CRASH_MADE, to, "");
  return crash_end_call(result);
}

int __wrap_mkdir(const char *path, mode_t mode)
{
  crash_begin_call();
  int result = __real_mkdir(path, mode);
  if (result == 0) crash_note(CRASH_MADE_DIRECTORY, path, "");
  return crash_end_call(result);
}

/* What lies in a directory that has another name now. */
static void crash_move(char path[CRASH_PATH], const char *from, const char *to)
{
  char moved[2 * CRASH_PATH];
  const size_t size = strlen(from);
  if (strncmp(path, from, size) != 0 || path[size] != '/') return;
  snprintf(moved, sizeof moved, "%s%s", to, path + size);
  crash_copy(path, moved);
}

int __wrap_rename(const char *from, const char *to)
{
  crash_begin_call();
  int result = __real_rename(from, to);
  if (result == 0) crash_note(CRASH_RENAMED, to, from);
  for (size_t i = 0; crash.armed && result == 0 && i < crash.cache->num_files; i++)
    crash_move(crash.cache->files[i].path, from, to);
  return crash_end_call(result);
}

int __wrap_rmdir(const char *path)
{
  crash_begin_call();
  int result = __real_rmdir(path);
  if (result == 0) crash_note(CRASH_GONE_DIRECTORY, path, "");
  return crash_end_call(result);
}

/* A second name keeps the file. */
static int crash_unlink(const char *path)
{
  char kept[CRASH_PATH + 32];
  crash_begin_call();
  bool keeps = false;
  if (crash.armed) {
    snprintf(kept, sizeof kept, "%s/%zu", crash.cache->kept, crash.cache->num_kept);
    keeps = __real_link(path, kept) == 0;
  }
  int result = __real_unlink(path);
  if (keeps && result == 0) {
    crash.cache->num_kept++;
    crash_note(CRASH_GONE, path, kept);
  }
  return crash_end_call(result);
}

int __wrap_unlink(const char *path)
{
  return crash_unlink(path);
}

int __wrap_unlinkat(int dir, const char *name, int flags)
{
  char path[2 * CRASH_PATH];
  (void)flags;
  crash_path_of(dir, path);
  size_t size = strlen(path);
  snprintf(path + size, sizeof path - size, "/%s", name);
  return crash_unlink(path);
}

/* For processes that are forked from here on. */
static crash_cache *crash_cache_new(const char *kept)
{
  crash_cache *cache = mmap(NULL, sizeof *cache, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(cache != MAP_FAILED);
  crash_copy(cache->kept, kept);
  assert_int_equal(mkdir(kept, 0777), 0);
  return cache;
}

static void crash_cache_free(crash_cache *cache)
{
  munmap(cache, sizeof *cache);
}

/* From here on, at the call behind so many: the power goes, or sometimes the process alone. */
static void crash_arm(crash_cache *cache, long calls, bool power, uint64_t seed)
{
  size_t left = 0;
  for (size_t i = 0; i < cache->num_files; i++) {
    crash_file *of = &cache->files[i];
    of->file = open(of->path, O_WRONLY | O_CLOEXEC);
    if (of->file >= 0) cache->files[left++] = *of;
  }
  cache->num_files = left;
  rv_random_init(&crash.random, seed);
  crash.cache = cache;
  crash.left = calls;
  crash.power = power && crash_draw(3) != 0;
  crash.armed = true;
}

#endif
