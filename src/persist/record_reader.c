#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "persist/frame.h"
#include "persist/record_file.h"
#include "persist/record_stream.h"

enum {
  FIRST_BYTES = 1 << 20,
  IN_PLACE_BYTES = 1 << 14 /* records up to that size are given as they lie in the stream, where they lie in one block */
};

/* A record's bytes inside a block. */
typedef struct view {
  rv_buf buf;
  rv_buf *block; /* a reference; NULL: none */
} view;

struct rv_record_reader {
  rv_record_stream *stream;
  rv_buf *block;   /* borrowed from the stream */
  size_t at;       /* in it */
  view *view;      /* of the small record read last; again of the next one, if nobody keeps it */
  uint64_t offset; /* in the stream */
  uint64_t record_offset;
  uint64_t record; /* number of the one read last, or that is being read; from 1 */
  char *path;
};

/* ---- errors ---- */

static rv_code damaged(const rv_record_reader *reader, rv_error *err, const char *what)
{
  return rv_fail(err, RV_DATA_LOSS, "%s: record %llu (at byte %llu of its contents): %s", reader->path,
                 (unsigned long long)reader->record, (unsigned long long)reader->record_offset, what);
}

void rv_record_reader_prefix(const rv_record_reader *reader, rv_error *err)
{
  rv_error_prefix(err, "%s: record %llu (at byte %llu of its contents)", reader->path, (unsigned long long)reader->record,
                  (unsigned long long)reader->record_offset);
}

/* ---- life ---- */

rv_code rv_record_reader_new(const char *path, rv_record_reader **out, rv_error *err)
{
  rv_record_reader *reader = calloc(1, sizeof *reader);
  if (reader == NULL) return rv_fail_memory(err, sizeof *reader);
  reader->path = strdup(path);
  rv_code code = reader->path == NULL ? rv_fail_memory(err, strlen(path)) : rv_record_stream_new(path, &reader->stream, err);
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
  if (reader->view != NULL) rv_buf_unref(&reader->view->buf);
  rv_record_stream_free(reader->stream);
  free(reader->path);
  free(reader);
}

/* ---- bytes of the records ---- */

static void view_release(rv_buf *buf)
{
  view *ended = (view *)(void *)buf;
  rv_buf_unref(ended->block);
  free(ended);
}

/* Lets go of the small record before, unless somebody else has it: that one keeps it, and its block. */
static void leave_view(rv_record_reader *reader)
{
  if (reader->view == NULL) return;
  if (atomic_load_explicit(&reader->view->buf.refs, memory_order_acquire) > 1) {
    rv_buf_unref(&reader->view->buf);
    reader->view = NULL;
    return;
  }
  rv_buf_unref(reader->view->block);
  reader->view->block = NULL;
}

/* The next `size` bytes of the block. */
static rv_buf *view_of(rv_record_reader *reader, size_t size)
{
  if (reader->view == NULL) {
    reader->view = calloc(1, sizeof *reader->view);
    if (reader->view == NULL) return NULL;
    atomic_init(&reader->view->buf.refs, 1);
    reader->view->buf.release = view_release;
  }
  reader->view->block = rv_buf_ref(reader->block);
  reader->view->buf.data = reader->block->data + reader->at;
  reader->view->buf.size = reader->view->buf.capacity = size;
  reader->at += size;
  reader->offset += size;
  return rv_buf_ref(&reader->view->buf);
}

/* A next block, where nothing is left of the one at hand; NULL at the end. */
static rv_code next_block(rv_record_reader *reader, rv_error *err)
{
  rv_error fault;
  if (reader->block != NULL && reader->at < reader->block->size) return RV_OK;
  reader->at = 0;
  rv_code code = rv_record_stream_next(reader->stream, &reader->block, &fault);
  if (code == RV_OK) return RV_OK;
  return code == RV_DATA_LOSS ? damaged(reader, err, fault.message) : rv_error_copy(err, &fault);
}

/* Up to `size` bytes; *got is less only at the end. */
static rv_code read_some(rv_record_reader *reader, uint8_t *out, size_t size, size_t *got, rv_error *err)
{
  for (*got = 0; *got < size;) {
    rv_code code = next_block(reader, err);
    if (code != RV_OK) return code;
    if (reader->block == NULL) break;
    size_t left = reader->block->size - reader->at, part = size - *got < left ? size - *got : left;
    memcpy(out + *got, reader->block->data + reader->at, part);
    reader->at += part;
    reader->offset += part;
    *got += part;
  }
  return RV_OK;
}

static rv_code read_all(rv_record_reader *reader, uint8_t *out, size_t size, rv_error *err)
{
  size_t got;
  rv_code code = read_some(reader, out, size, &got, err);
  return code != RV_OK || got == size ? code
                                      : damaged(reader, err, "the file ends in the middle of the record: it was cut short");
}

/* The contents come in steps, so that a length that was announced costs nothing by itself. */
static rv_code read_contents(rv_record_reader *reader, size_t size, rv_buf **out, rv_error *err)
{
  if (size <= IN_PLACE_BYTES && reader->block != NULL && reader->block->size - reader->at >= size) {
    *out = view_of(reader, size);
    return *out != NULL ? RV_OK : rv_fail_memory(err, sizeof(view));
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
  leave_view(reader);
  reader->record_offset = reader->offset;
  reader->record++;
  uint8_t header[RV_FRAME_HEADER], footer[RV_FRAME_FOOTER];
  size_t got;
  rv_code code = read_some(reader, header, sizeof header, &got, err);
  if (code != RV_OK) return code;
  if (got == 0) return RV_OK;
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

rv_span rv_record_reader_peek(const rv_record_reader *reader)
{
  const rv_buf *block = reader->block;
  if (block == NULL || block->size - reader->at <= RV_FRAME_HEADER) return (rv_span){NULL, 0};
  return (rv_span){block->data + reader->at + RV_FRAME_HEADER, block->size - reader->at - RV_FRAME_HEADER};
}
