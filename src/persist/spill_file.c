#include "persist/spill_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/lock.h"
#include "base/maker.h"
#include "base/off_streams.h"
#include "persist/file_cache.h"
#include "persist/files.h"
#include "persist/ranges.h"
#include "persist/read_at.h"

enum { ALIGNMENT = RV_RANGE_UNIT };
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

struct rv_spill_file {
  atomic_size_t refs; /* the owner's, and each place's */
  rv_maker maker;     /* whose places they are */
  int fd;
  char *directory;
  uint8_t *base; /* all of it is mapped, also what is not written yet */
  size_t max_bytes;
  size_t written; /* the owner's: the end of what the disk has room for */
  rv_mutex lock;  /* guards the rest */
  rv_ranges ranges;
};

typedef struct place {
  rv_cold_place cold;
  rv_spill_file *file;
  rv_range *range;
} place;

/* ---- the file ---- */

static int make_file(const char *directory)
{
  int fd = -1;
#ifdef O_TMPFILE
  fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
#endif
  char path[4096];
  int length = snprintf(path, sizeof path, "%s/reverie-spill-XXXXXX", directory);
  if (length < 0 || (size_t)length >= sizeof path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  fd = mkostemp(path, O_CLOEXEC);
  if (fd >= 0) unlink(path);
  return fd;
}

static void destroy(rv_spill_file *file)
{
  free(file->directory);
  if (file->base != MAP_FAILED) munmap(file->base, file->max_bytes);
  if (file->fd >= 0) close(file->fd);
  if (rv_maker_is_this_process(&file->maker)) rv_ranges_fini(&file->ranges); /* as below */
  rv_mutex_fini(&file->lock);
  rv_maker_fini(&file->maker);
  free(file);
}

static rv_code code_of(int error)
{
  switch (error) {
  case ENOENT: return RV_NOT_FOUND;
  case EACCES:
  case EROFS:
  case EPERM: return RV_PERMISSION_DENIED;
  case ENOSPC:
  case EDQUOT:
  case EFBIG:
  case ENOMEM:
  case EMFILE:
  case ENFILE: return RV_RESOURCE_EXHAUSTED;
  default: return RV_INVALID_ARGUMENT;
  }
}

static rv_code fail_there(const char *directory, const char *what, int error, rv_error *err)
{
  return rv_fail(err, code_of(error), "spill \"%s\": %s: %s", directory, what, strerror(error));
}

static const char not_made[] = "a file cannot be made there";

rv_code rv_spill_file_check(const char *directory, rv_error *err)
{
  struct stat info;
  int error = stat(directory, &info) != 0 ? errno : !S_ISDIR(info.st_mode) ? ENOTDIR : 0;
  if (error == 0 && access(directory, W_OK | X_OK) != 0) error = errno;
  return error == 0 ? RV_OK : fail_there(directory, not_made, error, err);
}

rv_code rv_spill_file_new(const char *directory, size_t max_bytes, rv_spill_file **out, rv_error *err)
{
  rv_spill_file *file = calloc(1, sizeof *file);
  if (file == NULL) return rv_fail_memory(err, sizeof *file);
  atomic_init(&file->refs, 1);
  rv_mutex_init(&file->lock, RV_RANK_WAIT, "spill file");
  file->fd = -1;
  rv_maker_init(&file->maker);
  file->base = MAP_FAILED;
  file->max_bytes = max_bytes / RV_SPILL_PIECE * RV_SPILL_PIECE;
  rv_ranges_init(&file->ranges, file->max_bytes, RV_SPILL_PIECE);
  const char *what = not_made;
  file->fd = rv_off_streams(make_file(directory));
  if (file->fd >= 0) {
    what = "a file there cannot be mapped";
    file->base = mmap(NULL, file->max_bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file->fd, 0);
  }
  if (file->base == MAP_FAILED) {
    rv_code code = fail_there(directory, what, errno, err);
    destroy(file);
    return code;
  }
  file->directory = strdup(directory);
  if (file->directory == NULL) {
    destroy(file);
    return rv_fail_memory(err, strlen(directory));
  }
#ifdef POSIX_FADV_RANDOM
  (void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM); /* samples come from everywhere */
#endif
  madvise(file->base, file->max_bytes, MADV_RANDOM);
  *out = file;
  return RV_OK;
}

static void unref(rv_spill_file *file)
{
  if (atomic_fetch_sub_explicit(&file->refs, 1, memory_order_acq_rel) == 1) destroy(file);
}

/* ---- places ---- */

void rv_spill_file_close(rv_spill_file *file)
{
  if (file != NULL) unref(file);
}

static void leave(rv_spill_file *file, rv_range *range)
{
  rv_mutex_lock(&file->lock);
  rv_ranges_give(&file->ranges, range);
  rv_mutex_unlock(&file->lock);
}

static void release(rv_buf *buf)
{
  place *of = (place *)buf;
  rv_spill_file *file = of->file;
  /* not a child that was forked, perhaps while another thread had the lock */
  if (rv_maker_is_this_process(&file->maker)) leave(file, of->range);
  free(of);
  unref(file);
}

static bool write_all(int fd, const uint8_t *bytes, size_t size, size_t offset)
{
  while (size > 0) {
    ssize_t n = pwrite(fd, bytes, size, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes += n;
    size -= (size_t)n;
    offset += (size_t)n;
  }
  return true;
}

/* NULL, with errno. */
static rv_range *take_and_write(rv_spill_file *file, const uint8_t *bytes, size_t size, size_t skew)
{
  rv_mutex_lock(&file->lock);
  rv_range *range = rv_ranges_take(&file->ranges, size + skew);
  int error = errno;
  rv_mutex_unlock(&file->lock);
  if (range != NULL) {
    if (write_all(file->fd, bytes, size, range->begin + skew)) return range;
    error = errno;
    leave(file, range);
  }
  errno = error;
  return NULL;
}

bool rv_spill_is_full(int error)
{
  return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

/* What the file has room for already, where the disk has none for more. */
static rv_range *put_below(rv_spill_file *file, const uint8_t *bytes, size_t size, size_t skew)
{
  rv_mutex_lock(&file->lock);
  size_t limit = file->ranges.limit;
  rv_ranges_cut(&file->ranges, file->written);
  file->ranges.limit = file->ranges.end;
  rv_mutex_unlock(&file->lock);
  rv_range *range = take_and_write(file, bytes, size, skew);
  file->ranges.limit = limit; /* which only the owner looks at; there may be room another time */
  return range;
}

/* Its being there when the power fails is of no use, so its length and where it lies are not waited for. */
int rv_spill_file_settle(rv_spill_file *file)
{
  if (rv_files_of_system.push(NULL, file->fd, 0, 0, true) == 0) return 0;
  if (errno != ENOSYS && errno != EINVAL) return errno;
  return fsync(file->fd) == 0 ? 0 : errno;
}

/* ---- reading them ---- */

static int read_place(const rv_cold_place *cold, const uint8_t *from, void *to, size_t size)
{
  const rv_spill_file *file = ((const place *)(const void *)cold)->file;
  size_t got;
  const int error = rv_read_at(file->fd, to, size, (off_t)(from - file->base), &got);
  return error == 0 && got < size ? EIO : error; /* the file is shorter than it was */
}

/* A system that cannot do it without a read has its pages read when they are looked at. */
static int bring(const rv_cold_place *cold, const uint8_t *from, size_t size)
{
  (void)cold;
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)from / page * page;
  if (size == 0 || madvise((void *)begin, (uintptr_t)from + size - begin, MADV_POPULATE_READ) == 0 || errno == EINVAL) return 0;
  return errno == EFAULT ? EIO : errno; /* what a signal would have told */
}

static void ask(const rv_cold_place *cold, const uint8_t *from, size_t size)
{
  const rv_spill_file *file = ((const place *)(const void *)cold)->file;
  rv_file_cache_fetch(file->fd, (uint64_t)(from - file->base), size);
}

rv_cold_place *rv_spill_file_put(rv_spill_file *file, const uint8_t *bytes, size_t size)
{
  size_t skew = (uintptr_t)bytes % ALIGNMENT;
  place *of = malloc(sizeof *of);
  if (of == NULL) {
    errno = ENOMEM;
    return NULL;
  }
  of->range = take_and_write(file, bytes, size, skew);
  int error = errno;
  if (of->range == NULL && rv_spill_is_full(error)) of->range = put_below(file, bytes, size, skew);
  if (of->range == NULL) {
    free(of);
    errno = error;
    return NULL;
  }
  size_t begin = of->range->begin + skew;
  if (begin + size > file->written) file->written = begin + size;
  of->cold = (rv_cold_place){.buf = {.size = size, .capacity = size, .release = release, .data = file->base + begin},
                             .directory = file->directory,
                             .read = read_place,
                             .bring = bring,
                             .ask = ask};
  atomic_init(&of->cold.buf.refs, 1);
  of->file = file;
  atomic_fetch_add_explicit(&file->refs, 1, memory_order_relaxed);
  return &of->cold;
}
