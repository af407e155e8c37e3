#include "persist/in_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "persist/file_cache.h"
#include "persist/files.h"
#include "persist/follower.h"
#include "persist/past_cache.h"
#include "persist/record_file.h"

enum {
  PIECE_BYTES = 1 << 20,
  PIECES = 4,            /* that there are: the one in use, and those on their way */
  LARGE_BYTES = 2 << 20, /* a file for which a thread is worth starting */
  STEP_BYTES = 8 << 20   /* through the cache: are fetched from the disk ahead, and leave it behind */
};

typedef struct piece {
  uint8_t *data;
  size_t size;
  bool failed; /* nothing is in it: an error was met before it */
} piece;

struct rv_in_file {
  char *path;
  uint64_t next; /* the number of the piece that is used next */
  rv_follower reader;
  size_t num_pieces;    /* 1: nothing is read ahead */
  piece pieces[PIECES]; /* each has the number that is its place modulo num_pieces */
  /* ---- of whoever reads ---- */
  int file;
  bool past_cache;
  uint64_t read, asked, left; /* bytes; up to where it is fetched; up to where it has left the cache */
  rv_error fault;             /* the first; nothing is read after it */
};

/* ---- the cache ---- */

/* Through the cache: the disk works while this process does. */
static void fetch_ahead(rv_in_file *file)
{
  if (file->past_cache) return;
  for (; file->read + STEP_BYTES >= file->asked; file->asked += STEP_BYTES)
    rv_file_cache_fetch(file->file, file->asked, STEP_BYTES);
}

/* What was read nobody needs any more. Also past the cache: some file systems take O_DIRECT and use the cache all the same. */
static void leave_behind(rv_in_file *file, bool at_end)
{
  if (file->read - file->left < STEP_BYTES && !at_end) return;
  rv_file_cache_drop(file->file, file->left, file->read - file->left);
  file->left = file->read - file->read % STEP_BYTES;
}

/* What was just read, to the file's end most often, is not fetched once more. */
static void go_through_cache(rv_in_file *file, size_t got)
{
  uint64_t next = file->read + got;
  rv_past_cache_set(file->file, false);
  file->past_cache = false;
  file->asked = (next + RV_PAST_CACHE_ALIGNED - 1) / RV_PAST_CACHE_ALIGNED * RV_PAST_CACHE_ALIGNED;
}

/* ---- reading ---- */

/* As much as it may, or 0 at the end. The file's last part, and what a slow disk gives less of, is followed by what only the cache can read. */
static rv_code read_some(rv_in_file *file, uint8_t *out, size_t size, size_t *got, rv_error *err)
{
  for (;;) {
    ssize_t count = read(file->file, out, size);
    if (count < 0 && errno == EINTR) continue;
    if (file->past_cache && (count < 0 ? errno == EINVAL : count % RV_PAST_CACHE_ALIGNED != 0))
      go_through_cache(file, count < 0 ? 0 : (size_t)count);
    else if (count < 0)
      return rv_fail_system(err, errno, "read", file->path);
    if (count < 0) continue;
    *got = (size_t)count;
    return RV_OK;
  }
}

/* What was read before an error is in the piece, the error in those that follow. */
static void read_piece(rv_in_file *file, piece *to)
{
  size_t got = 1;
  for (to->size = 0; file->fault.code == RV_OK && to->size < PIECE_BYTES && got > 0;) {
    fetch_ahead(file);
    if (read_some(file, to->data + to->size, PIECE_BYTES - to->size, &got, &file->fault) != RV_OK) break;
    file->read += got;
    to->size += got;
  }
  if (file->fault.code == RV_OK) leave_behind(file, got == 0);
  to->failed = file->fault.code != RV_OK && to->size == 0;
}

static rv_code read_number(void *context, uint64_t number, rv_error *err)
{
  (void)err;
  rv_in_file *file = context;
  read_piece(file, &file->pieces[number % file->num_pieces]);
  return RV_OK;
}

/* The place of the piece that was used last is free for one that is PIECES - 1 further on. */
static rv_code next_ahead(rv_in_file *file, rv_error *err)
{
  rv_code code = RV_OK;
  for (uint64_t n = 0; file->next == 0 && n < PIECES - 1 && code == RV_OK; n++)
    code = rv_follower_hand_over(&file->reader, PIECES, err);
  return code == RV_OK ? rv_follower_hand_over(&file->reader, PIECES - 1, err) : code;
}

rv_code rv_in_file_next(rv_in_file *file, const uint8_t **data, size_t *size, rv_error *err)
{
  rv_code code = file->num_pieces > 1 ? next_ahead(file, err) : read_number(file, file->next, err);
  if (code != RV_OK) return code;
  const piece *got = &file->pieces[file->next++ % file->num_pieces];
  if (got->failed) return rv_error_copy(err, &file->fault);
  *data = got->data;
  *size = got->size;
  return RV_OK;
}

bool rv_in_file_is_large(const rv_in_file *file)
{
  return file->num_pieces > 1;
}

/* ---- life ---- */

static rv_code open_it(rv_in_file *file, rv_error *err)
{
  struct stat info;
  file->file = open(file->path, O_RDONLY | O_CLOEXEC);
  if (file->file < 0) return rv_fail_system(err, errno, "open", file->path);
  file->past_cache =
      rv_past_cache_is_gain(rv_files_of_system.file_system(NULL, file->file)) && rv_past_cache_set(file->file, true);
  file->num_pieces = fstat(file->file, &info) == 0 && info.st_size >= LARGE_BYTES ? PIECES : 1;
  return RV_OK;
}

static rv_code make_pieces(rv_in_file *file, rv_error *err)
{
  for (size_t i = 0; i < file->num_pieces; i++) {
    file->pieces[i].data = aligned_alloc(RV_PAST_CACHE_ALIGNED, PIECE_BYTES);
    if (file->pieces[i].data == NULL) return rv_fail_memory(err, PIECE_BYTES);
  }
  return RV_OK;
}

rv_code rv_in_file_new(const char *path, rv_in_file **out, rv_error *err)
{
  rv_in_file *file = calloc(1, sizeof *file);
  if (file == NULL) return rv_fail_memory(err, sizeof *file);
  file->file = -1;
  file->reader = (rv_follower){.work = read_number, .context = file, .name = "rv-fetch"};
  rv_follower_init(&file->reader);
  file->path = strdup(path);
  rv_code code = file->path == NULL ? rv_fail_memory(err, strlen(path)) : open_it(file, err);
  if (code == RV_OK) code = make_pieces(file, err);
  if (code != RV_OK) {
    rv_in_file_free(file);
    return code;
  }
  *out = file;
  return RV_OK;
}

void rv_in_file_free(rv_in_file *file)
{
  if (file == NULL) return;
  rv_follower_fini(&file->reader);
  if (file->file >= 0) close(file->file);
  for (size_t i = 0; i < PIECES; i++) free(file->pieces[i].data);
  free(file->path);
  free(file);
}
