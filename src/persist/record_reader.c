#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "persist/frame.h"
#include "persist/record_file.h"

enum {
  IN_BYTES = 1 << 17,
  FIRST_BYTES = 1 << 20,
  KEPT_BYTES = 1 << 14, /* records up to that size share one buffer, if nobody keeps it */
  STEP_BYTES = 8 << 20  /* are fetched from the disk ahead, and leave the system's cache behind */
};

struct rv_record_reader {
  int file;
  bool plain;    /* no zlib stream around the records */
  bool ended;    /* the zlib stream's end marker was met */
  bool file_end; /* nothing is left in the file */
  z_stream zlib;
  uint64_t offset; /* in the uncompressed stream */
  uint64_t record_offset;
  uint64_t record;      /* number of the one read last, or that is being read; from 1 */
  uint64_t read, asked; /* of the file; up to where it is fetched */
  rv_buf *kept;
  char *path;
  uint8_t in[IN_BYTES];
};

/* ---- errors ---- */

static rv_code damaged(const rv_record_reader *reader, rv_error *err, const char *what)
{
  return rv_fail(err, RV_DATA_LOSS, "%s: record %llu (at byte %llu of its contents): %s", reader->path,
                 (unsigned long long)reader->record, (unsigned long long)reader->record_offset, what);
}

rv_code rv_record_reader_fail(const rv_record_reader *reader, rv_error *err, const char *format, ...)
{
  rv_error inner;
  va_list args;
  va_start(args, format);
  rv_vfail(&inner, RV_DATA_LOSS, format, args);
  va_end(args);
  return damaged(reader, err, inner.message);
}

void rv_record_reader_prefix(const rv_record_reader *reader, rv_error *err)
{
  rv_error_prefix(err, "%s: record %llu (at byte %llu of its contents)", reader->path, (unsigned long long)reader->record,
                  (unsigned long long)reader->record_offset);
}

/* ---- bytes of the file ---- */

/* The disk works while this process does; two steps behind, nobody needs the pages any more. */
static void fetch_ahead(rv_record_reader *reader)
{
  for (; reader->read + STEP_BYTES >= reader->asked; reader->asked += STEP_BYTES) {
    posix_fadvise(reader->file, (off_t)reader->asked, STEP_BYTES, POSIX_FADV_WILLNEED);
    if (reader->asked >= (uint64_t)3 * STEP_BYTES)
      posix_fadvise(reader->file, (off_t)(reader->asked - (uint64_t)3 * STEP_BYTES), STEP_BYTES, POSIX_FADV_DONTNEED);
  }
}

/* More of the file, where none of what was read is left. */
static rv_code fill(rv_record_reader *reader, rv_error *err)
{
  while (reader->zlib.avail_in == 0 && !reader->file_end) {
    fetch_ahead(reader);
    ssize_t got = read(reader->file, reader->in, sizeof reader->in);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return rv_fail_system(err, errno, "read", reader->path);
    reader->zlib.next_in = reader->in;
    reader->zlib.avail_in = (uInt)got;
    reader->read += (uint64_t)got;
    reader->file_end = got == 0;
  }
  return RV_OK;
}

/* Is this how a file of records without compression begins? */
static bool begins_with_frame(const uint8_t *in, size_t size)
{
  return size >= RV_FRAME_HEADER && rv_frame_get32(in + 8) == rv_frame_mask(rv_crc32c(0, in, 8));
}

static rv_code recognise(rv_record_reader *reader, rv_error *err)
{
  size_t have = 0; /* a pipe or a slow disk may give less at once */
  while (have < RV_FRAME_HEADER) {
    ssize_t got = read(reader->file, reader->in + have, sizeof reader->in - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return rv_fail_system(err, errno, "read", reader->path);
    if (got == 0) break;
    have += (size_t)got;
  }
  reader->zlib.next_in = reader->in;
  reader->zlib.avail_in = (uInt)have;
  reader->read = have;
  reader->plain = have == 0 || begins_with_frame(reader->in, have);
  if (!reader->plain && have >= 2 && reader->in[0] == 0x1F && reader->in[1] == 0x8B)
    return rv_fail(err, RV_DATA_LOSS, "%s: a gzip file; the records of a checkpoint stand in a zlib stream", reader->path);
  return RV_OK;
}

rv_code rv_record_reader_new(const char *path, rv_record_reader **out, rv_error *err)
{
  rv_record_reader *reader = calloc(1, sizeof *reader);
  if (reader == NULL) return rv_fail_memory(err, sizeof *reader);
  reader->file = -1;
  reader->path = strdup(path);
  if (reader->path == NULL || inflateInit(&reader->zlib) != Z_OK) {
    free(reader->path);
    free(reader);
    return rv_fail_memory(err, sizeof *reader);
  }
  reader->file = open(path, O_RDONLY | O_CLOEXEC);
  rv_code code = reader->file < 0 ? rv_fail_system(err, errno, "open", path) : recognise(reader, err);
  if (code != RV_OK) {
    rv_record_reader_free(reader);
    return code;
  }
  *out = reader;
  return RV_OK;
}

void rv_record_reader_free(rv_record_reader *reader)
{
  if (reader == NULL) return;
  if (reader->file >= 0) close(reader->file);
  inflateEnd(&reader->zlib);
  rv_buf_unref(reader->kept);
  free(reader->path);
  free(reader);
}

/* ---- bytes of the records ---- */

static rv_code inflate_failed(const rv_record_reader *reader, int state, rv_error *err)
{
  if (state == Z_MEM_ERROR) return rv_fail_memory(err, 1 << 16);
  char what[160];
  snprintf(what, sizeof what, "the compressed stream is damaged (zlib: %s)",
           state == Z_NEED_DICT       ? "it asks for a dictionary"
           : reader->zlib.msg != NULL ? reader->zlib.msg
                                      : "data error");
  return damaged(reader, err, what);
}

/* Up to `size` bytes; *got is less only at the end. */
static rv_code read_some(rv_record_reader *reader, uint8_t *out, size_t size, size_t *got, rv_error *err)
{
  *got = 0;
  while (*got < size) {
    rv_code code = fill(reader, err);
    if (code != RV_OK) return code;
    if (reader->ended || (reader->plain && reader->zlib.avail_in == 0)) break;
    if (reader->plain) {
      size_t part = size - *got < reader->zlib.avail_in ? size - *got : reader->zlib.avail_in;
      memcpy(out + *got, reader->zlib.next_in, part);
      reader->zlib.next_in += part;
      reader->zlib.avail_in -= (uInt)part;
      *got += part;
      continue;
    }
    size_t want = size - *got < UINT32_MAX / 2 ? size - *got : UINT32_MAX / 2;
    reader->zlib.next_out = out + *got;
    reader->zlib.avail_out = (uInt)want;
    int state = inflate(&reader->zlib, Z_NO_FLUSH);
    *got += want - reader->zlib.avail_out;
    if (state == Z_STREAM_END) {
      reader->ended = true;
    } else if (state == Z_BUF_ERROR || (state == Z_OK && reader->zlib.avail_out > 0 && reader->file_end)) {
      if (reader->file_end && reader->zlib.avail_in == 0)
        return damaged(reader, err, "the file ends in the middle of the compressed stream: it was cut short");
    } else if (state != Z_OK) {
      return inflate_failed(reader, state, err);
    }
  }
  reader->offset += *got;
  return RV_OK;
}

static rv_code read_all(rv_record_reader *reader, uint8_t *out, size_t size, rv_error *err)
{
  size_t got;
  rv_code code = read_some(reader, out, size, &got, err);
  return code != RV_OK || got == size ? code
                                      : damaged(reader, err, "the file ends in the middle of the record: it was cut short");
}

/* Nothing may follow the end marker, which read_some meets only when it is asked for more than there is. */
static rv_code check_end(rv_record_reader *reader, rv_error *err)
{
  rv_code code = fill(reader, err);
  if (code == RV_OK && reader->zlib.avail_in > 0)
    code = damaged(reader, err, "something follows the end of the compressed stream");
  return code;
}

/* A buffer for a small record: the one of the record before, if nobody else has it. */
static rv_buf *kept_buffer(rv_record_reader *reader)
{
  if (reader->kept != NULL && atomic_load_explicit(&reader->kept->refs, memory_order_acquire) > 1) {
    rv_buf_unref(reader->kept);
    reader->kept = NULL;
  }
  if (reader->kept == NULL) reader->kept = rv_buf_new(KEPT_BYTES);
  return reader->kept == NULL ? NULL : rv_buf_ref(reader->kept);
}

/* The contents come in steps, so that a length that was announced costs nothing by itself. */
static rv_code read_contents(rv_record_reader *reader, size_t size, rv_buf **out, rv_error *err)
{
  if (size <= KEPT_BYTES) {
    rv_buf *kept = kept_buffer(reader);
    if (kept == NULL) return rv_fail_memory(err, KEPT_BYTES);
    rv_code code = read_all(reader, kept->data, size, err);
    kept->size = size;
    if (code == RV_OK)
      *out = kept;
    else
      rv_buf_unref(kept);
    return code;
  }
  size_t capacity = size < FIRST_BYTES ? size : FIRST_BYTES;
  rv_buf *buf = rv_buf_new(capacity);
  if (buf == NULL) return rv_fail_memory(err, capacity);
  for (;;) {
    rv_code code = read_all(reader, buf->data + buf->size, capacity - buf->size, err);
    if (code != RV_OK) {
      rv_buf_unref(buf);
      return code;
    }
    buf->size = capacity;
    if (capacity == size) break;
    capacity = size / 2 < capacity ? size : 2 * capacity;
    rv_buf *grown = rv_buf_new(capacity);
    if (grown != NULL) memcpy(grown->data, buf->data, buf->size);
    if (grown != NULL) grown->size = buf->size;
    rv_buf_unref(buf);
    if (grown == NULL) return rv_fail_memory(err, capacity);
    buf = grown;
  }
  *out = buf;
  return RV_OK;
}

rv_code rv_record_reader_next(rv_record_reader *reader, rv_buf **out, rv_error *err)
{
  *out = NULL;
  reader->record_offset = reader->offset;
  reader->record++;
  uint8_t header[RV_FRAME_HEADER], footer[RV_FRAME_FOOTER];
  size_t got;
  rv_code code = read_some(reader, header, sizeof header, &got, err);
  if (code != RV_OK) return code;
  if (got == 0) return check_end(reader, err);
  if (got < sizeof header) return damaged(reader, err, "the file ends in the middle of a record's header: it was cut short");
  if (rv_frame_get32(header + 8) != rv_frame_mask(rv_crc32c(0, header, 8)))
    return damaged(reader, err, "the checksum of its length does not match: the file is damaged");
  uint64_t size = rv_frame_get64(header);
  if (size > RV_RECORD_MAX_BYTES) {
    char what[128];
    snprintf(what, sizeof what, "it says to have %llu bytes; at most %llu are possible", (unsigned long long)size,
             (unsigned long long)RV_RECORD_MAX_BYTES);
    return damaged(reader, err, what);
  }
  rv_buf *buf = NULL;
  code = read_contents(reader, (size_t)size, &buf, err);
  if (code == RV_OK) code = read_all(reader, footer, sizeof footer, err);
  if (code == RV_OK && rv_frame_get32(footer) != rv_frame_mask(rv_crc32c(0, buf->data, buf->size)))
    code = damaged(reader, err, "its checksum does not match: the file is damaged");
  if (code != RV_OK) {
    rv_buf_unref(buf);
    return code;
  }
  *out = buf;
  return RV_OK;
}
