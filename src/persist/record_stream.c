#include "persist/record_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/thread.h"
#include "persist/files.h"
#include "persist/frame.h"
#include "persist/past_cache.h"
#include "persist/record_file.h"

enum {
  IN_BYTES = 1 << 20,
  BLOCK_BYTES = 1 << 18,
  BLOCKS = 8,            /* that there are: made ahead, and the one in use */
  LARGE_BYTES = 2 << 20, /* a file for which a thread is worth starting */
  STEP_BYTES = 8 << 20   /* through the cache: are fetched from the disk ahead, and leave it behind */
};

struct rv_record_stream {
  int file;
  char *path;
  /* ---- of whoever makes blocks: the thread, where there is one ---- */
  bool plain;    /* no zlib stream around the records */
  bool ended;    /* the zlib stream's end marker was met */
  bool file_end; /* nothing is left in the file */
  bool past_cache;
  z_stream zlib;
  uint64_t read, asked, left; /* of the file; up to where it is fetched; up to where it has left the cache */
  /* ---- shared ---- */
  rv_buf *blocks[BLOCKS]; /* block n is number n mod BLOCKS; it is its maker's until it is made, then its user's */
  bool threaded;
  pthread_t thread;
  rv_mutex lock; /* guards what follows, where there is a thread */
  rv_cond changed;
  uint64_t made, taken; /* blocks; the last one taken is in use */
  bool over, stop;      /* no more are made; none is to be made */
  rv_error fault;       /* why, if not at the end of the file */
  uint8_t *in;
};

/* ---- bytes of the file ---- */

/* Through the cache: the disk works while this process does. */
static void fetch_ahead(rv_record_stream *stream)
{
  if (stream->past_cache) return;
  for (; stream->read + STEP_BYTES >= stream->asked; stream->asked += STEP_BYTES)
    posix_fadvise(stream->file, (off_t)stream->asked, STEP_BYTES, POSIX_FADV_WILLNEED);
}

/* What was read nobody needs any more. Also past the cache: some file systems take O_DIRECT and use the cache all the same. */
static void leave_behind(rv_record_stream *stream)
{
  if (stream->read - stream->left < STEP_BYTES && !stream->file_end) return;
  posix_fadvise(stream->file, (off_t)stream->left, (off_t)(stream->read - stream->left), POSIX_FADV_DONTNEED);
  stream->left = stream->read - stream->read % STEP_BYTES;
}

/* What was just read, to the file's end most often, is not fetched once more. */
static void go_through_cache(rv_record_stream *stream, size_t got)
{
  uint64_t next = stream->read + got;
  rv_past_cache_set(stream->file, false);
  stream->past_cache = false;
  stream->asked = (next + RV_PAST_CACHE_ALIGNED - 1) / RV_PAST_CACHE_ALIGNED * RV_PAST_CACHE_ALIGNED;
}

/* Up to `size` bytes; *got is 0 at the end. The file's last part, and what a slow disk gives less of, is followed by what only the cache can
 * read. */
static rv_code read_file(rv_record_stream *stream, void *out, size_t size, size_t *got, rv_error *err)
{
  for (;;) {
    ssize_t count = read(stream->file, out, size);
    if (count < 0 && errno == EINTR) continue;
    if (stream->past_cache && (count < 0 ? errno == EINVAL : count % RV_PAST_CACHE_ALIGNED != 0))
      go_through_cache(stream, count < 0 ? 0 : (size_t)count);
    else if (count < 0)
      return rv_fail_system(err, errno, "read", stream->path);
    if (count < 0) continue;
    *got = (size_t)count;
    return RV_OK;
  }
}

/* More of the file, where none of what was read is left. */
static rv_code fill(rv_record_stream *stream, rv_error *err)
{
  if (stream->zlib.avail_in > 0 || stream->file_end) return RV_OK;
  size_t got = 0;
  fetch_ahead(stream);
  rv_code code = read_file(stream, stream->in, IN_BYTES, &got, err);
  if (code != RV_OK) return code;
  stream->zlib.next_in = stream->in;
  stream->zlib.avail_in = (uInt)got;
  stream->read += got;
  stream->file_end = got == 0;
  leave_behind(stream);
  return RV_OK;
}

/* ---- bytes of the records ---- */

static rv_code inflate_failed(const rv_record_stream *stream, int state, rv_error *err)
{
  if (state == Z_MEM_ERROR) return rv_fail_memory(err, 1 << 16);
  return rv_fail(err, RV_DATA_LOSS, "the compressed stream is damaged (zlib: %s)",
                 state == Z_NEED_DICT       ? "it asks for a dictionary"
                 : stream->zlib.msg != NULL ? stream->zlib.msg
                                            : "data error");
}

static rv_code inflate_some(rv_record_stream *stream, rv_buf *out, rv_error *err)
{
  size_t room = BLOCK_BYTES - out->size;
  stream->zlib.next_out = out->data + out->size;
  stream->zlib.avail_out = (uInt)room;
  int state = inflate(&stream->zlib, Z_NO_FLUSH);
  out->size += room - stream->zlib.avail_out;
  if (state == Z_STREAM_END) {
    stream->ended = true;
    return RV_OK;
  }
  if (state != Z_OK && state != Z_BUF_ERROR) return inflate_failed(stream, state, err);
  if (stream->file_end && stream->zlib.avail_in == 0 && stream->zlib.avail_out > 0)
    return rv_fail(err, RV_DATA_LOSS, "the file ends in the middle of the compressed stream: it was cut short");
  return RV_OK;
}

/* Fills it as far as there is something: what comes before an error is there. Nothing may follow the end marker. */
static rv_code make(rv_record_stream *stream, rv_buf *out, rv_error *err)
{
  rv_code code = RV_OK;
  while (code == RV_OK && out->size < BLOCK_BYTES) {
    code = fill(stream, err);
    if (code != RV_OK || (stream->file_end && (stream->plain || stream->ended))) break;
    if (stream->ended) {
      code = rv_fail(err, RV_DATA_LOSS, "something follows the end of the compressed stream");
    } else if (stream->plain) {
      size_t room = BLOCK_BYTES - out->size, part = room < stream->zlib.avail_in ? room : stream->zlib.avail_in;
      memcpy(out->data + out->size, stream->zlib.next_in, part);
      out->size += part;
      stream->zlib.next_in += part;
      stream->zlib.avail_in -= (uInt)part;
    } else {
      code = inflate_some(stream, out, err);
    }
  }
  return code;
}

/* ---- blocks ---- */

/* The next one's place, with nothing in it. Memory is not taken again where nobody kept what was in it. */
static rv_buf *empty_block(rv_record_stream *stream)
{
  rv_buf **block = &stream->blocks[stream->made % BLOCKS];
  if (*block != NULL && atomic_load_explicit(&(*block)->refs, memory_order_acquire) > 1) {
    rv_buf_unref(*block);
    *block = NULL;
  }
  if (*block == NULL) *block = rv_buf_new(BLOCK_BYTES);
  if (*block != NULL) (*block)->size = 0;
  return *block;
}

/* One more, or the end. The lock is held, and let go while the file is read. */
static void make_one(rv_record_stream *stream)
{
  rv_error fault = {.code = RV_OK};
  rv_mutex_unlock(&stream->lock);
  rv_buf *block = empty_block(stream);
  rv_code code = block == NULL ? rv_fail_memory(&fault, BLOCK_BYTES) : make(stream, block, &fault);
  bool over = code != RV_OK || block->size < BLOCK_BYTES;
  rv_mutex_lock(&stream->lock);
  if (block != NULL && block->size > 0) stream->made++;
  stream->over = over;
  stream->fault = fault;
}

static void *make_ahead(void *context)
{
  rv_record_stream *stream = context;
  rv_mutex_lock(&stream->lock);
  while (!stream->over && !stream->stop) {
    uint64_t in_use = stream->taken > 0;
    if (stream->made - stream->taken + in_use == BLOCKS) {
      rv_cond_wait(&stream->changed, &stream->lock);
    } else {
      make_one(stream);
      rv_cond_signal(&stream->changed);
    }
  }
  rv_mutex_unlock(&stream->lock);
  return NULL;
}

rv_code rv_record_stream_next(rv_record_stream *stream, rv_buf **block, rv_error *err)
{
  rv_mutex_lock(&stream->lock);
  while (stream->made == stream->taken && !stream->over) {
    if (stream->threaded)
      rv_cond_wait(&stream->changed, &stream->lock);
    else
      make_one(stream);
  }
  bool more = stream->made > stream->taken;
  *block = more ? stream->blocks[stream->taken++ % BLOCKS] : NULL;
  if (more) rv_cond_signal(&stream->changed);
  rv_mutex_unlock(&stream->lock);
  return more || stream->fault.code == RV_OK ? RV_OK : rv_error_copy(err, &stream->fault);
}

/* ---- life ---- */

/* Is this how a file of records without compression begins? */
static bool begins_with_frame(const uint8_t *in, size_t size)
{
  return size >= RV_FRAME_HEADER && rv_frame_get32(in + 8) == rv_frame_mask(rv_crc32c(0, in, 8));
}

static rv_code recognise(rv_record_stream *stream, rv_error *err)
{
  size_t have = 0, got = 1; /* a pipe or a slow disk may give less at once */
  rv_code code = RV_OK;
  for (; code == RV_OK && have < RV_FRAME_HEADER && got > 0; have += got)
    code = read_file(stream, stream->in + have, IN_BYTES - have, &got, err);
  if (code != RV_OK) return code;
  stream->zlib.next_in = stream->in;
  stream->zlib.avail_in = (uInt)have;
  stream->read = have;
  stream->plain = have == 0 || begins_with_frame(stream->in, have);
  if (!stream->plain && have >= 2 && stream->in[0] == 0x1F && stream->in[1] == 0x8B)
    return rv_fail(err, RV_DATA_LOSS, "%s: a gzip file; the records of a checkpoint stand in a zlib stream", stream->path);
  return RV_OK;
}

/* Without one it takes longer. */
static void start_thread(rv_record_stream *stream)
{
  struct stat info;
  if (fstat(stream->file, &info) != 0 || info.st_size < LARGE_BYTES) return;
  stream->threaded = rv_thread_start(&stream->thread, "rv-read", make_ahead, stream) == 0;
}

rv_code rv_record_stream_new(const char *path, rv_record_stream **out, rv_error *err)
{
  rv_record_stream *stream = calloc(1, sizeof *stream);
  if (stream == NULL) return rv_fail_memory(err, sizeof *stream);
  stream->path = strdup(path);
  stream->in = aligned_alloc(RV_PAST_CACHE_ALIGNED, IN_BYTES);
  if (stream->path == NULL || stream->in == NULL || inflateInit(&stream->zlib) != Z_OK) {
    free(stream->in);
    free(stream->path);
    free(stream);
    return rv_fail_memory(err, sizeof *stream);
  }
  rv_mutex_init(&stream->lock, RV_RANK_WAIT, "record stream");
  rv_cond_init(&stream->changed);
  stream->file = open(path, O_RDONLY | O_CLOEXEC);
  stream->past_cache = stream->file >= 0 && rv_past_cache_is_gain(rv_files_of_system.file_system(NULL, stream->file)) &&
                       rv_past_cache_set(stream->file, true);
  rv_code code = stream->file < 0 ? rv_fail_system(err, errno, "open", path) : recognise(stream, err);
  if (code != RV_OK) {
    rv_record_stream_free(stream);
    return code;
  }
  start_thread(stream);
  *out = stream;
  return RV_OK;
}

void rv_record_stream_free(rv_record_stream *stream)
{
  if (stream == NULL) return;
  rv_mutex_lock(&stream->lock);
  stream->stop = true;
  rv_cond_signal(&stream->changed);
  rv_mutex_unlock(&stream->lock);
  if (stream->threaded) pthread_join(stream->thread, NULL);
  for (size_t i = 0; i < BLOCKS; i++) rv_buf_unref(stream->blocks[i]);
  if (stream->file >= 0) close(stream->file);
  inflateEnd(&stream->zlib);
  rv_cond_fini(&stream->changed);
  rv_mutex_fini(&stream->lock);
  free(stream->in);
  free(stream->path);
  free(stream);
}
