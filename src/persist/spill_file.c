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

enum { ALIGNMENT = 16 };

struct rv_spill_file {
  atomic_size_t refs; /* the owner's, and each place's */
  int fd;
  uint8_t *base; /* all of it is mapped, also what is not written yet */
  size_t num_pieces;
  atomic_size_t used;
  /* the owner's */
  size_t current, fill; /* the piece that places are cut from; fill 0: none */
  rv_mutex lock;        /* guards the rest */
  uint32_t *places;     /* in use, by piece */
  size_t *idle;         /* pieces that were used and are not */
  size_t num_idle, num_begun;
};

typedef struct place {
  rv_buf buf;
  rv_spill_file *file;
  size_t first, count; /* pieces */
} place;

/* ---- the file ---- */

static int make_file(const char *directory)
{
  int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
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
  if (file->base != MAP_FAILED) munmap(file->base, file->num_pieces * RV_SPILL_PIECE);
  if (file->fd >= 0) close(file->fd);
  rv_mutex_fini(&file->lock);
  free(file->places);
  free(file->idle);
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
  atomic_init(&file->used, 0);
  rv_mutex_init(&file->lock, RV_RANK_WAIT, "spill file");
  file->fd = -1;
  file->base = MAP_FAILED;
  file->num_pieces = max_bytes / RV_SPILL_PIECE;
  file->places = calloc(file->num_pieces + 1, sizeof *file->places);
  file->idle = malloc((file->num_pieces + 1) * sizeof *file->idle);
  rv_code code = file->places == NULL || file->idle == NULL ? rv_fail_memory(err, file->num_pieces * sizeof *file->idle) : RV_OK;
  const char *what = not_made;
  if (code == RV_OK) file->fd = make_file(directory);
  if (file->fd >= 0) {
    what = "a file there cannot be mapped";
    file->base = mmap(NULL, file->num_pieces * RV_SPILL_PIECE, PROT_READ, MAP_SHARED | MAP_NORESERVE, file->fd, 0);
  }
  if (code == RV_OK && file->base == MAP_FAILED) code = fail_there(directory, what, errno, err);
  if (code != RV_OK) {
    destroy(file);
    return code;
  }
  madvise(file->base, file->num_pieces * RV_SPILL_PIECE, MADV_RANDOM); /* samples come from everywhere */
  *out = file;
  return RV_OK;
}

static void unref(rv_spill_file *file)
{
  if (atomic_fetch_sub_explicit(&file->refs, 1, memory_order_acq_rel) == 1) destroy(file);
}

/* ---- places ---- */

static void leave(rv_spill_file *file, size_t first, size_t count)
{
  rv_mutex_lock(&file->lock);
  for (size_t i = first; i < first + count; i++)
    if (--file->places[i] == 0) file->idle[file->num_idle++] = i;
  rv_mutex_unlock(&file->lock);
}

void rv_spill_file_close(rv_spill_file *file)
{
  if (file == NULL) return;
  if (file->fill > 0) leave(file, file->current, 1);
  unref(file);
}

static void release(rv_buf *buf)
{
  place *of = (place *)buf;
  rv_spill_file *file = of->file;
  atomic_fetch_sub_explicit(&file->used, buf->size, memory_order_relaxed);
  leave(file, of->first, of->count);
  free(of);
  unref(file);
}

/* Pieces in a row, each in use once; under the lock. */
static bool take_pieces(rv_spill_file *file, size_t count, size_t *first)
{
  if (count == 1 && file->num_idle > 0) {
    *first = file->idle[--file->num_idle];
  } else if (file->num_pieces - file->num_begun >= count) {
    *first = file->num_begun;
    file->num_begun += count;
  } else {
    return false;
  }
  for (size_t i = *first; i < *first + count; i++) file->places[i]++;
  return true;
}

/* Many pieces lie side by side only behind all others, or where such were before: those that are idle are sorted out of the list. */
static bool take_row(rv_spill_file *file, size_t count, size_t *first)
{
  if (take_pieces(file, count, first)) return true;
  size_t run = 0;
  for (size_t i = 0; i < file->num_begun; i++) {
    run = file->places[i] == 0 ? run + 1 : 0;
    if (run < count) continue;
    *first = i + 1 - count;
    size_t left = 0;
    for (size_t k = 0; k < file->num_idle; k++)
      if (file->idle[k] < *first || file->idle[k] > i) file->idle[left++] = file->idle[k];
    file->num_idle = left;
    for (size_t k = *first; k <= i; k++) file->places[k]++;
    return true;
  }
  return false;
}

/* Where so many bytes go: a place in the current piece, a new one, or pieces of their own. */
static bool find_place(rv_spill_file *file, const uint8_t *bytes, size_t size, place *of, size_t *offset)
{
  size_t skew = (uintptr_t)bytes % ALIGNMENT;
  if (size > RV_SPILL_PIECE - ALIGNMENT) {
    of->count = (size + skew + RV_SPILL_PIECE - 1) / RV_SPILL_PIECE;
    rv_mutex_lock(&file->lock);
    bool found = take_row(file, of->count, &of->first);
    rv_mutex_unlock(&file->lock);
    *offset = of->first * RV_SPILL_PIECE + skew;
    return found;
  }
  size_t at = (file->fill + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + skew;
  if (file->fill == 0 || at + size > RV_SPILL_PIECE) {
    size_t next;
    rv_mutex_lock(&file->lock);
    bool found = take_pieces(file, 1, &next);
    rv_mutex_unlock(&file->lock);
    if (!found) return false;
    if (file->fill > 0) leave(file, file->current, 1);
    file->current = next;
    at = skew;
  }
  file->fill = at + size;
  of->first = file->current;
  of->count = 1;
  rv_mutex_lock(&file->lock);
  file->places[of->first]++;
  rv_mutex_unlock(&file->lock);
  *offset = file->current * RV_SPILL_PIECE + at;
  return true;
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

rv_buf *rv_spill_file_put(rv_spill_file *file, const uint8_t *bytes, size_t size)
{
  place *of = malloc(sizeof *of);
  size_t offset;
  if (of == NULL) {
    errno = ENOMEM;
    return NULL;
  }
  if (!find_place(file, bytes, size, of, &offset)) {
    free(of);
    errno = ENOSPC;
    return NULL;
  }
  if (!write_all(file->fd, bytes, size, offset)) {
    int error = errno;
    leave(file, of->first, of->count);
    free(of);
    errno = error;
    return NULL;
  }
  of->buf = (rv_buf){.size = size, .capacity = size, .release = release, .data = file->base + offset};
  atomic_init(&of->buf.refs, 1);
  of->file = file;
  atomic_fetch_add_explicit(&file->refs, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&file->used, size, memory_order_relaxed);
  return &of->buf;
}

size_t rv_spill_file_used(const rv_spill_file *file)
{
  return atomic_load_explicit(&file->used, memory_order_relaxed);
}
