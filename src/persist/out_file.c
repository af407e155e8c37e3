#include "persist/out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/past_caches.h"
#include "persist/file_cache.h"
#include "persist/follower.h"
#include "persist/past_cache.h"
#include "persist/record_file.h"

enum {
  ALIGNED = 4096, /* what goes past the cache: its memory, its place in the file and its size */
  PIECE_BYTES = 1 << 20,
  PIECES = 4,           /* that there are: filled, waiting, written */
  STEP_BYTES = 8 << 20, /* are given to the disk at once, where they are in the cache; */
  STEPS_AHEAD = 4       /* so many may be on their way */
};

typedef struct piece {
  uint8_t *data;
  size_t used;
} piece;

struct rv_out_file {
  const rv_files *files;
  char *path;
  /* ---- of whoever writes ---- */
  int file;
  bool past_cache;
  uint64_t written;
  bool pushes;              /* the file system can begin early with what is in the cache: */
  uint64_t pushed, settled; /* of that is on its way to the disk; is there */
  /* ---- of whoever fills ---- */
  uint64_t filling; /* the number of the piece at hand */
  /* ---- shared ---- */
  piece pieces[PIECES]; /* each has the number that is its place modulo PIECES */
  rv_follower writer;
};

/* ---- the cache ---- */

static void go_through_cache(rv_out_file *file)
{
  if (file->past_cache) rv_past_cache_set(file->file, false);
  file->past_cache = false;
}

/* Also past the cache, where it costs nothing: some file systems (ext4 with data=journal or encrypted, for one) take O_DIRECT and use the cache all
 * the same.
 *
 * A file system that cannot begin early leaves all to the sync at the end, which tells what a beginning could not do. What a wait could not
 * do nobody tells again: there is no error of it that may be passed over. */
static rv_code push(rv_out_file *file, rv_error *err)
{
  const rv_files *files = file->files;
  for (; file->pushes && file->written - file->pushed >= STEP_BYTES; file->pushed += STEP_BYTES) {
    file->pushes = files->push(files->context, file->file, (off_t)file->pushed, STEP_BYTES, false) == 0;
    if (!file->pushes || file->pushed - file->settled < STEPS_AHEAD * (uint64_t)STEP_BYTES) continue;
    if (files->push(files->context, file->file, (off_t)file->settled, STEP_BYTES, true) != 0)
      return rv_fail_system(err, errno, "write", file->path);
    rv_file_cache_drop(file->file, file->settled, STEP_BYTES);
    file->settled += STEP_BYTES;
  }
  return RV_OK;
}

/* ---- writing ---- */

/* A disk that is nearly full takes a part; what is left then begins where only the cache can write. */
static rv_code write_piece(rv_out_file *file, const piece *full, rv_error *err)
{
  for (size_t at = 0; at < full->used;) {
    struct iovec rest = {full->data + at, full->used - at};
    ssize_t wrote = file->files->write(file->files->context, file->file, &rest, 1);
    if (wrote < 0 && errno == EINVAL && file->past_cache) {
      go_through_cache(file);
    } else if (wrote <= 0) {
      int number = wrote == 0 ? ENOSPC : errno;
      if (number != EINTR) return rv_fail_system(err, number, "write", file->path);
    } else {
      at += (size_t)wrote;
      file->written += (uint64_t)wrote;
      if (file->past_cache && at % ALIGNED != 0) go_through_cache(file);
    }
  }
  return push(file, err);
}

static rv_code write_number(void *context, uint64_t number, rv_error *err)
{
  rv_out_file *file = context;
  return write_piece(file, &file->pieces[number % PIECES], err);
}

/* In the place that is to be filled. */
static rv_code begin_piece(rv_out_file *file, rv_error *err)
{
  piece *next = &file->pieces[file->filling % PIECES];
  if (next->data == NULL) next->data = aligned_alloc(ALIGNED, PIECE_BYTES);
  if (next->data == NULL) return rv_fail_memory(err, PIECE_BYTES);
  next->used = 0;
  return RV_OK;
}

/* While pieces are on their way to the disk, the next is filled. */
static rv_code hand_over(rv_out_file *file, rv_error *err)
{
  rv_code code = rv_follower_hand_over(&file->writer, PIECES - 1, err);
  if (code != RV_OK) return code;
  file->filling++;
  return begin_piece(file, err);
}

rv_code rv_out_file_put(rv_out_file *file, const void *data, size_t size, rv_error *err)
{
  const uint8_t *from = data;
  while (size > 0) {
    piece *filling = &file->pieces[file->filling % PIECES];
    size_t room = PIECE_BYTES - filling->used, part = room < size ? room : size;
    rv_copy_past_caches(filling->data + filling->used, from, part);
    filling->used += part;
    from += part;
    size -= part;
    rv_code code = filling->used == PIECE_BYTES ? hand_over(file, err) : RV_OK;
    if (code != RV_OK) return code;
  }
  return RV_OK;
}

/* ---- life ---- */

rv_code rv_out_file_new(const char *path, const rv_files *files, rv_out_file **out, rv_error *err)
{
  rv_out_file *file = calloc(1, sizeof *file);
  if (file == NULL) return rv_fail_memory(err, sizeof *file);
  file->file = -1;
  file->files = files;
  file->path = strdup(path);
  file->pushes = true;
  file->writer = (rv_follower){.work = write_number, .context = file, .name = "rv-write"};
  rv_follower_init(&file->writer);
  rv_code code = file->path == NULL ? rv_fail_memory(err, strlen(path)) : begin_piece(file, err);
  if (code == RV_OK) {
    file->file = files->create(files->context, path);
    if (file->file < 0) code = rv_fail_system(err, errno, "create", path);
  }
  if (code != RV_OK) {
    rv_out_file_free(file);
    return code;
  }
  file->past_cache = rv_past_cache_is_gain(files->file_system(files->context, file->file)) && rv_past_cache_set(file->file, true);
  *out = file;
  return RV_OK;
}

rv_code rv_out_file_finish(rv_out_file *file, rv_error *err)
{
  rv_code code = rv_follower_settle(&file->writer, err);
  const piece *last = &file->pieces[file->filling % PIECES];
  if (last->used % ALIGNED != 0) go_through_cache(file);
  if (code == RV_OK) code = write_piece(file, last, err);
  if (code == RV_OK && file->files->sync(file->files->context, file->file) != 0)
    code = rv_fail_system(err, errno, "write", file->path);
  rv_file_cache_drop(file->file, 0, 0);
  if (close(file->file) != 0 && code == RV_OK) code = rv_fail_system(err, errno, "write", file->path);
  file->file = -1;
  return code;
}

void rv_out_file_free(rv_out_file *file)
{
  if (file == NULL) return;
  rv_follower_fini(&file->writer);
  if (file->file >= 0) close(file->file);
  for (size_t i = 0; i < PIECES; i++) free(file->pieces[i].data);
  free(file->path);
  free(file);
}

const char *rv_out_file_path(const rv_out_file *file)
{
  return file->path;
}
