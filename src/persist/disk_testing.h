/* A disk in a test: its folder, where one write fails, which takes only a part of each, which refuses to write past the system's cache, which
 * uses it all the same, which fails when it is to be written, or which says that it is of another kind, and which counts what came past the
 * cache. One thread at a time writes. */
#ifndef RV_PERSIST_DISK_TESTING_H
#define RV_PERSIST_DISK_TESTING_H

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "persist/files.h"
#include "persist/past_cache.h"

enum { TEST_DISK_NFS = 0x6969 };

typedef struct test_disk {
  rv_files files;
  char directory[64];
  size_t fails_at; /* the write that fails, from 1; 0: none */
  int number;      /* with what */
  size_t takes;    /* at most so much of a write; 0: all */
  bool only_cache, uses_cache;
  uint32_t kind;              /* that it says it is */
  int push_fails, wait_fails; /* with what; 0: neither */
  size_t writes, past_cache;
  /* bytes: of what was written, those that a wait saw on the disk; the most that none had seen there */
  size_t written, waited_for, most_waiting;
} test_disk;

static inline bool test_disk_is_past_cache(int file)
{
#ifdef O_DIRECT
  return (fcntl(file, F_GETFL) & O_DIRECT) != 0;
#else
  (void)file;
  return false;
#endif
}

static inline uint32_t test_disk_kind(void *context, int file)
{
  const test_disk *disk = context;
  return disk->kind != 0 ? disk->kind : rv_files_of_system.file_system(NULL, file);
}

static inline ssize_t test_disk_write(void *context, int file, const struct iovec *pieces, int count)
{
  test_disk *disk = context;
  assert_int_equal(count, 1);
  struct iovec piece = *pieces;
  bool past_cache = test_disk_is_past_cache(file), refused = past_cache && disk->only_cache;
  if (refused || ++disk->writes == disk->fails_at) {
    errno = refused ? EINVAL : disk->number;
    return -1;
  }
  if (disk->takes > 0 && piece.iov_len > disk->takes) {
    piece.iov_len = disk->takes;
    if (past_cache) piece.iov_len -= piece.iov_len % 512; /* the system writes no other part */
  }
  if (past_cache) disk->past_cache++;
  if (past_cache && disk->uses_cache) rv_past_cache_set(file, false);
  ssize_t wrote = rv_files_of_system.write(NULL, file, &piece, 1);
  if (past_cache && disk->uses_cache) rv_past_cache_set(file, true);
  if (wrote > 0) disk->written += (size_t)wrote;
  size_t waiting = disk->written - disk->waited_for;
  if (waiting > disk->most_waiting) disk->most_waiting = waiting;
  return wrote;
}

static inline int test_disk_push(void *context, int file, off_t at, off_t size, bool wait)
{
  test_disk *disk = context;
  if (wait) disk->waited_for += (size_t)size;
  errno = wait ? disk->wait_fails : disk->push_fails;
  return errno != 0 ? -1 : rv_files_of_system.push(NULL, file, at, size, wait);
}

/* In the folder where the tests run, which is on a disk: /tmp may be memory. */
static inline void test_disk_init(test_disk *disk)
{
  *disk = (test_disk){.files = rv_files_of_system, .directory = "disk.XXXXXX"};
  disk->files.file_system = test_disk_kind;
  disk->files.write = test_disk_write;
  disk->files.push = test_disk_push;
  disk->files.context = disk;
  assert_non_null(mkdtemp(disk->directory));
}

/* Its files are gone. */
static inline void test_disk_fini(test_disk *disk)
{
  assert_int_equal(rmdir(disk->directory), 0);
}

/* Whether its file system can write so many bytes past the cache, at a multiple of them, and gains by it: a disk of large sectors takes no
 * part of one. */
static inline bool test_disk_passes_cache(const test_disk *disk, size_t bytes)
{
#ifdef O_DIRECT
  int file = open(disk->directory, O_RDWR | O_TMPFILE | O_DIRECT, 0600);
  if (file < 0) return false;
  void *data = aligned_alloc(RV_PAST_CACHE_ALIGNED, bytes);
  memset(data, 0, bytes);
  bool passes = rv_past_cache_is_gain(rv_files_of_system.file_system(NULL, file)) &&
                pwrite(file, data, bytes, (off_t)bytes) == (ssize_t)bytes;
  free(data);
  close(file);
  return passes;
#else
  (void)disk, (void)bytes;
  return false;
#endif
}

#endif
