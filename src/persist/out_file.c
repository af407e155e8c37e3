#include "persist/out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/lock.h"
#include "persist/past_cache.h"
#include "persist/record_file.h"

enum {
  ALIGNED = 4096, /* what goes past the cache: its memory, its place in the file and its size */
  PIECE_BYTES = 1 << 20,
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
  uint64_t put;
  piece filling;
  /* ---- of whoever writes: the thread, where there is one and it has something to write ---- */
  int file;
  bool past_cache;
  uint64_t written;
  bool pushes;              /* the file system can begin early with what is in the cache: */
  uint64_t pushed, settled; /* of that is on its way to the disk; is there */
  piece writing;
  /* ---- shared ---- */
  bool threaded; /* from the first full piece on */
  pthread_t thread;
  rv_mutex lock; /* guards what follows, where there is a thread */
  rv_cond changed;
  bool busy, stop; /* `writing` is to be written; nothing comes any more */
  rv_error fault;  /* of the first piece that could not be written */
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
    posix_fadvise(file->file, (off_t)file->settled, STEP_BYTES, POSIX_FADV_DONTNEED);
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
    } else if (wrote < 0) {
      if (errno != EINTR) return rv_fail_system(err, errno, "write", file->path);
    } else {
      at += (size_t)wrote;
      file->written += (uint64_t)wrote;
      if (file->past_cache && at % ALIGNED != 0) go_through_cache(file);
    }
  }
  return push(file, err);
}

/* While one piece is on its way to the disk, the next is filled. */
static void *write_pieces(void *context)
{
  rv_out_file *file = context;
  rv_mutex_lock(&file->lock);
  while (!file->stop) {
    if (!file->busy) {
      rv_cond_wait(&file->changed, &file->lock);
      continue;
    }
    rv_error fault = {.code = RV_OK};
    rv_mutex_unlock(&file->lock);
    write_piece(file, &file->writing, &fault);
    rv_mutex_lock(&file->lock);
    file->fault = fault;
    file->busy = false;
    rv_cond_signal(&file->changed);
  }
  rv_mutex_unlock(&file->lock);
  return NULL;
}

/* Without one it takes longer. */
static void start_thread(rv_out_file *file)
{
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  file->threaded = pthread_create(&file->thread, NULL, write_pieces, file) == 0;
#ifdef __linux__
  if (file->threaded) pthread_setname_np(file->thread, "rv-write");
#endif
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void end_thread(rv_out_file *file)
{
  if (!file->threaded) return;
  rv_mutex_lock(&file->lock);
  file->stop = true;
  rv_cond_signal(&file->changed);
  rv_mutex_unlock(&file->lock);
  pthread_join(file->thread, NULL);
  file->threaded = false;
}

/* Waits for the piece before; the lock is held. */
static rv_code settle(rv_out_file *file, rv_error *err)
{
  while (file->busy) rv_cond_wait(&file->changed, &file->lock);
  return file->fault.code == RV_OK ? RV_OK : rv_error_copy(err, &file->fault);
}

static rv_code hand_over(rv_out_file *file, rv_error *err)
{
  if (file->writing.data == NULL) file->writing.data = aligned_alloc(ALIGNED, PIECE_BYTES);
  if (file->writing.data == NULL) return rv_fail_memory(err, PIECE_BYTES);
  if (!file->threaded) start_thread(file);
  rv_mutex_lock(&file->lock);
  rv_code code = settle(file, err);
  if (code == RV_OK) {
    piece full = file->filling;
    file->filling = (piece){.data = file->writing.data};
    file->writing = full;
    file->busy = file->threaded;
    rv_cond_signal(&file->changed);
  }
  rv_mutex_unlock(&file->lock);
  return code == RV_OK && !file->threaded ? write_piece(file, &file->writing, err) : code;
}

rv_code rv_out_file_put(rv_out_file *file, const void *data, size_t size, rv_error *err)
{
  const uint8_t *from = data;
  while (size > 0) {
    size_t room = PIECE_BYTES - file->filling.used, part = room < size ? room : size;
    memcpy(file->filling.data + file->filling.used, from, part);
    file->filling.used += part;
    file->put += part;
    from += part;
    size -= part;
    rv_code code = file->filling.used == PIECE_BYTES ? hand_over(file, err) : RV_OK;
    if (code != RV_OK) return code;
  }
  return RV_OK;
}

uint64_t rv_out_file_bytes(const rv_out_file *file)
{
  return file->put;
}

/* ---- life ---- */

rv_code rv_out_file_new(const char *path, const rv_files *files, rv_out_file **out, rv_error *err)
{
  rv_out_file *file = calloc(1, sizeof *file);
  if (file == NULL) return rv_fail_memory(err, sizeof *file);
  *file = (rv_out_file){
      .file = -1, .files = files, .path = strdup(path), .pushes = true, .filling = {aligned_alloc(ALIGNED, PIECE_BYTES), 0}};
  rv_mutex_init(&file->lock, RV_RANK_WAIT, "file that is written");
  rv_cond_init(&file->changed);
  rv_code code = file->path == NULL || file->filling.data == NULL ? rv_fail_memory(err, PIECE_BYTES) : RV_OK;
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
  rv_mutex_lock(&file->lock);
  rv_code code = settle(file, err);
  rv_mutex_unlock(&file->lock);
  end_thread(file);
  if (file->filling.used % ALIGNED != 0) go_through_cache(file);
  if (code == RV_OK) code = write_piece(file, &file->filling, err);
  if (code == RV_OK && file->files->sync(file->files->context, file->file) != 0)
    code = rv_fail_system(err, errno, "write", file->path);
  posix_fadvise(file->file, 0, 0, POSIX_FADV_DONTNEED);
  if (close(file->file) != 0 && code == RV_OK) code = rv_fail_system(err, errno, "write", file->path);
  file->file = -1;
  return code;
}

void rv_out_file_free(rv_out_file *file)
{
  if (file == NULL) return;
  end_thread(file);
  if (file->file >= 0) close(file->file);
  rv_cond_fini(&file->changed);
  rv_mutex_fini(&file->lock);
  free(file->filling.data);
  free(file->writing.data);
  free(file->path);
  free(file);
}

const char *rv_out_file_path(const rv_out_file *file)
{
  return file->path;
}
