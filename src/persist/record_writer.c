#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "persist/frame.h"
#include "persist/record_file.h"

enum { OUT_BYTES = 1 << 18 };

struct rv_record_writer {
  int file;
  z_stream zlib;
  char *path;
  uint64_t bytes;
  uint8_t out[OUT_BYTES];
};

rv_code rv_record_writer_new(const char *path, int level, rv_record_writer **out, rv_error *err)
{
  if (level < 0 || level > 9)
    return rv_fail(err, RV_INVALID_ARGUMENT, "compression level %d: give 0 (none) to 9 (smallest, slowest)", level);
  rv_record_writer *writer = calloc(1, sizeof *writer);
  if (writer == NULL) return rv_fail_memory(err, sizeof *writer);
  writer->path = strdup(path);
  writer->file = -1;
  if (writer->path == NULL || deflateInit(&writer->zlib, level) != Z_OK) {
    free(writer->path);
    free(writer);
    return rv_fail_memory(err, OUT_BYTES);
  }
  writer->zlib.next_out = writer->out;
  writer->zlib.avail_out = OUT_BYTES;
  writer->file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (writer->file < 0) {
    rv_code code = rv_fail_system(err, errno, "create", path);
    rv_record_writer_free(writer);
    return code;
  }
  *out = writer;
  return RV_OK;
}

void rv_record_writer_free(rv_record_writer *writer)
{
  if (writer == NULL) return;
  if (writer->file >= 0) close(writer->file);
  deflateEnd(&writer->zlib);
  free(writer->path);
  free(writer);
}

static rv_code write_out(rv_record_writer *writer, rv_error *err)
{
  const uint8_t *at = writer->out;
  while (at != writer->zlib.next_out) {
    ssize_t wrote = write(writer->file, at, (size_t)(writer->zlib.next_out - at));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return rv_fail_system(err, errno, "write", writer->path);
    at += wrote;
    writer->bytes += (uint64_t)wrote;
  }
  writer->zlib.next_out = writer->out;
  writer->zlib.avail_out = OUT_BYTES;
  return RV_OK;
}

/* deflate itself cannot fail: its state is sound and there is always room. */
static rv_code put(rv_record_writer *writer, const void *data, size_t size, int flush, rv_error *err)
{
  writer->zlib.next_in = (Bytef *)(uintptr_t)data;
  for (;;) {
    uInt part = size > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uInt)size;
    writer->zlib.avail_in = part;
    int state = deflate(&writer->zlib, part < size ? Z_NO_FLUSH : flush);
    size -= part - writer->zlib.avail_in;
    bool full = writer->zlib.avail_out == 0;
    if (full || state == Z_STREAM_END) {
      rv_code code = write_out(writer, err);
      if (code != RV_OK) return code;
    }
    if (state == Z_STREAM_END || (size == 0 && !full && flush == Z_NO_FLUSH)) return RV_OK;
  }
}

static rv_code begin(rv_record_writer *writer, uint64_t size, rv_error *err)
{
  if (size > RV_RECORD_MAX_BYTES)
    return rv_fail(err, RV_INVALID_ARGUMENT, "%s: a record of %llu bytes; readers take at most %llu", writer->path,
                   (unsigned long long)size, (unsigned long long)RV_RECORD_MAX_BYTES);
  uint8_t header[RV_FRAME_HEADER];
  rv_frame_put64(header, size);
  rv_frame_put32(header + 8, rv_frame_mask(rv_crc32c(0, header, 8)));
  return put(writer, header, sizeof header, Z_NO_FLUSH, err);
}

static rv_code end(rv_record_writer *writer, uint32_t crc, rv_error *err)
{
  uint8_t footer[RV_FRAME_FOOTER];
  rv_frame_put32(footer, rv_frame_mask(crc));
  return put(writer, footer, sizeof footer, Z_NO_FLUSH, err);
}

rv_code rv_record_writer_put(rv_record_writer *writer, const void *data, size_t size, rv_error *err)
{
  rv_code code = begin(writer, size, err);
  if (code == RV_OK && size > 0) code = put(writer, data, size, Z_NO_FLUSH, err);
  return code == RV_OK ? end(writer, rv_crc32c(0, data, size), err) : code;
}

rv_code rv_record_writer_put_pieces(rv_record_writer *writer, const rv_pieces *pieces, rv_error *err)
{
  rv_code code = begin(writer, pieces->bytes, err);
  uint32_t crc = 0;
  for (size_t i = 0; i < pieces->count && code == RV_OK; i++) {
    const rv_piece *piece = &pieces->piece[i];
    crc = rv_crc32c(crc, piece->data, piece->size);
    if (piece->size > 0) code = put(writer, piece->data, piece->size, Z_NO_FLUSH, err);
  }
  return code == RV_OK ? end(writer, crc, err) : code;
}

rv_code rv_record_writer_finish(rv_record_writer *writer, rv_error *err)
{
  rv_code code = put(writer, NULL, 0, Z_FINISH, err);
  if (code == RV_OK && fsync(writer->file) != 0) code = rv_fail_system(err, errno, "write", writer->path);
  int file = writer->file;
  writer->file = -1;
  if (close(file) != 0 && code == RV_OK) code = rv_fail_system(err, errno, "write", writer->path);
  return code;
}

uint64_t rv_record_writer_bytes(const rv_record_writer *writer)
{
  return writer->bytes;
}
