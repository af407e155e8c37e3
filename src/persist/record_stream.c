#include "persist/record_stream.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/thread.h"
#include "persist/adler32.h"
#include "persist/frame.h"
#include "persist/in_file.h"

enum {
  BLOCK_BYTES = 1 << 18,
  BLOCKS = 8, /* that there are: made ahead, and the one in use */
  HEADER_BYTES = 2,
  SUM_BYTES = 4,
  WITHOUT_HEADER = -MAX_WBITS /* zlib's own reading of header and sum: its sum takes longer than all else */
};

struct rv_record_stream {
  /* ---- of whoever makes blocks: the thread, where there is one ---- */
  rv_in_file *file;
  bool plain;    /* no zlib stream around the records */
  bool begun;    /* its header was read */
  bool inflated; /* its last block was */
  bool file_end; /* nothing is left in the file */
  z_stream zlib;
  uint32_t sum, told_sum; /* of what was inflated; as the file says it */
  size_t sum_bytes;       /* that were read of it */
  /* ---- shared ---- */
  rv_buf *blocks[BLOCKS]; /* block n is number n mod BLOCKS; it is its maker's until it is made, then its user's */
  bool threaded;
  pthread_t thread;
  rv_mutex lock; /* guards what follows, where there is a thread */
  rv_cond changed;
  uint64_t made, taken; /* blocks; the last one taken is in use */
  bool over, stop;      /* no more are made; none is to be made */
  rv_error fault;       /* why, if not at the end of the file */
};

/* ---- bytes of the file ---- */

/* More of the file, where none of what was read is left. */
static rv_code fill(rv_record_stream *stream, rv_error *err)
{
  if (stream->zlib.avail_in > 0 || stream->file_end) return RV_OK;
  const uint8_t *data;
  size_t size;
  rv_code code = rv_in_file_next(stream->file, &data, &size, err);
  if (code != RV_OK) return code;
  stream->zlib.next_in = (Bytef *)(uintptr_t)data;
  stream->zlib.avail_in = (uInt)size;
  stream->file_end = size == 0;
  return RV_OK;
}

/* ---- bytes of the records ---- */

static rv_code damaged(rv_error *err, const char *what)
{
  return rv_fail(err, RV_DATA_LOSS, "the compressed stream is damaged (zlib: %s)", what);
}

static rv_code cut_short(rv_error *err)
{
  return rv_fail(err, RV_DATA_LOSS, "the file ends in the middle of the compressed stream: it was cut short");
}

/* The two bytes before the first block (RFC 1950). */
static rv_code read_header(rv_record_stream *stream, rv_error *err)
{
  if (stream->zlib.avail_in < HEADER_BYTES) return cut_short(err);
  unsigned method = stream->zlib.next_in[0], flags = stream->zlib.next_in[1];
  stream->zlib.next_in += HEADER_BYTES;
  stream->zlib.avail_in -= HEADER_BYTES;
  stream->begun = true;
  if ((method << 8 | flags) % 31 != 0) return damaged(err, "incorrect header check");
  if ((method & 15) != Z_DEFLATED) return damaged(err, "unknown compression method");
  if (method >> 4 > MAX_WBITS - 8) return damaged(err, "invalid window size");
  return (flags & 32) == 0 ? RV_OK : damaged(err, "it asks for a dictionary");
}

static rv_code inflate_some(rv_record_stream *stream, rv_buf *out, rv_error *err)
{
  uint8_t *begin = out->data + out->size;
  size_t room = BLOCK_BYTES - out->size;
  stream->zlib.next_out = begin;
  stream->zlib.avail_out = (uInt)room;
  int state = inflate(&stream->zlib, Z_NO_FLUSH);
  size_t made = room - stream->zlib.avail_out;
  stream->sum = rv_adler32(stream->sum, begin, made);
  out->size += made;
  stream->inflated = state == Z_STREAM_END;
  if (state == Z_MEM_ERROR) return rv_fail_memory(err, 1 << 16);
  if (!stream->inflated && state != Z_OK && state != Z_BUF_ERROR)
    return damaged(err, stream->zlib.msg != NULL ? stream->zlib.msg : "data error");
  return stream->file_end && made < room && !stream->inflated ? cut_short(err) : RV_OK;
}

/* Where there is no stream around the records. */
static rv_code copy_some(rv_record_stream *stream, rv_buf *out)
{
  size_t room = BLOCK_BYTES - out->size, part = room < stream->zlib.avail_in ? room : stream->zlib.avail_in;
  memcpy(out->data + out->size, stream->zlib.next_in, part);
  out->size += part;
  stream->zlib.next_in += part;
  stream->zlib.avail_in -= (uInt)part;
  return RV_OK;
}

/* Behind the last block there is the sum of all, and nothing else. */
static rv_code read_end(rv_record_stream *stream, rv_error *err)
{
  if (stream->sum_bytes == SUM_BYTES) return rv_fail(err, RV_DATA_LOSS, "something follows the end of the compressed stream");
  if (stream->zlib.avail_in == 0) return cut_short(err);
  stream->told_sum = stream->told_sum << 8 | *stream->zlib.next_in++;
  stream->zlib.avail_in--;
  return ++stream->sum_bytes < SUM_BYTES || stream->told_sum == stream->sum ? RV_OK : damaged(err, "incorrect data check");
}

static rv_code make_some(rv_record_stream *stream, rv_buf *out, rv_error *err)
{
  if (stream->plain) return copy_some(stream, out);
  if (!stream->begun) return read_header(stream, err);
  return stream->inflated ? read_end(stream, err) : inflate_some(stream, out, err);
}

/* Fills it as far as there is something: what comes before an error is there. */
static rv_code make(rv_record_stream *stream, rv_buf *out, rv_error *err)
{
  rv_code code = RV_OK;
  while (code == RV_OK && out->size < BLOCK_BYTES) {
    code = fill(stream, err);
    if (code != RV_OK || (stream->file_end && (stream->plain || stream->sum_bytes == SUM_BYTES))) break;
    code = make_some(stream, out, err);
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

static rv_code recognise(rv_record_stream *stream, const char *path, rv_error *err)
{
  rv_code code = fill(stream, err);
  if (code != RV_OK) return code;
  const uint8_t *in = stream->zlib.next_in;
  size_t size = stream->zlib.avail_in;
  stream->plain = size == 0 || begins_with_frame(in, size);
  if (stream->plain || size < HEADER_BYTES || in[0] != 0x1F || in[1] != 0x8B) return RV_OK;
  return rv_fail(err, RV_DATA_LOSS, "%s: a gzip file; the records of a checkpoint stand in a zlib stream", path);
}

rv_code rv_record_stream_new(const char *path, rv_record_stream **out, rv_error *err)
{
  rv_record_stream *stream = calloc(1, sizeof *stream);
  if (stream == NULL) return rv_fail_memory(err, sizeof *stream);
  if (inflateInit2(&stream->zlib, WITHOUT_HEADER) != Z_OK) {
    free(stream);
    return rv_fail_memory(err, sizeof stream->zlib);
  }
  stream->sum = 1;
  rv_mutex_init(&stream->lock, RV_RANK_WAIT, "record stream");
  rv_cond_init(&stream->changed);
  rv_code code = rv_in_file_new(path, &stream->file, err);
  if (code == RV_OK) code = recognise(stream, path, err);
  if (code != RV_OK) {
    rv_record_stream_free(stream);
    return code;
  }
  if (rv_in_file_is_large(stream->file)) /* without a thread it takes longer */
    stream->threaded = rv_thread_start(&stream->thread, "rv-read", make_ahead, stream) == 0;
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
  rv_in_file_free(stream->file);
  inflateEnd(&stream->zlib);
  rv_cond_fini(&stream->changed);
  rv_mutex_fini(&stream->lock);
  free(stream);
}
