/* One zlib stream, put together of units: each is compressed by itself, or stored as it is where that saves too little or nobody wants it.
 * What is written goes to the disk at once, and leaves the system's cache: the pages of a checkpoint that nobody reads would take the
 * place of others', and forcing them out all at the end would take as long again. */
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

enum {
  BLOCK_BYTES = 65535, /* of what is stored, behind a header of five bytes */
  UNIT_BLOCKS = 4,
  UNIT_BYTES = UNIT_BLOCKS * BLOCK_BYTES,
  PROBE_BYTES = 1 << 14, /* that tell whether compressing pays */
  PROBE_UNITS = 64,      /* from one probe to the next: 16 MiB */
  RAW_WINDOW = -15,      /* deflate without zlib's own header */
  DEFAULT_MEMORY = 8,
  STEP_BYTES = 8 << 20, /* are given to the disk at once; */
  STEPS_AHEAD = 4       /* so many may be on their way */
};

struct rv_record_writer {
  int file;
  int level;
  bool compresses; /* at RV_LEVEL_WHERE_IT_PAYS: until the next probe */
  const rv_files *files;
  z_stream zlib; /* where level is not 0 */
  char *path;
  uint64_t bytes;           /* in the file */
  uint64_t pushed, settled; /* of them: on their way to the disk; there */
  uint64_t units;
  uLong sum;
  size_t used; /* of the unit at hand */
  uint8_t unit[UNIT_BYTES], packed[UNIT_BYTES];
};

rv_code rv_record_writer_new(const char *path, int level, const rv_files *files, rv_record_writer **out, rv_error *err)
{
  if (level < RV_LEVEL_WHERE_IT_PAYS || level > 9)
    return rv_fail(err, RV_INVALID_ARGUMENT, "compression level %d: give 0 (none) to 9 (smallest, slowest)", level);
  rv_record_writer *writer = calloc(1, sizeof *writer);
  if (writer == NULL) return rv_fail_memory(err, sizeof *writer);
  writer->path = strdup(path);
  writer->file = -1;
  writer->files = files;
  writer->level = level;
  writer->sum = adler32(0, NULL, 0);
  int deflated = level == 0 ? 0 : level > 0 ? level : 1;
  if (writer->path == NULL || (deflated > 0 && deflateInit2(&writer->zlib, deflated, Z_DEFLATED, RAW_WINDOW, DEFAULT_MEMORY,
                                                            Z_DEFAULT_STRATEGY) != Z_OK)) {
    free(writer->path);
    free(writer);
    return rv_fail_memory(err, sizeof *writer);
  }
  writer->file = files->create(files->context, path);
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
  if (writer->level != 0) deflateEnd(&writer->zlib);
  free(writer->path);
  free(writer);
}

/* ---- to the disk ---- */

#ifdef SYNC_FILE_RANGE_WRITE

/* A file system that cannot do it has its pages forced at the end. */
static rv_code sync_range(const rv_record_writer *writer, uint64_t at, unsigned flags, rv_error *err)
{
  if (sync_file_range(writer->file, (off_t)at, STEP_BYTES, flags) == 0) return RV_OK;
  bool failed = errno == EIO || errno == ENOSPC || errno == EDQUOT;
  return failed ? rv_fail_system(err, errno, "write", writer->path) : RV_OK;
}

static rv_code push(rv_record_writer *writer, rv_error *err)
{
  rv_code code = RV_OK;
  for (; code == RV_OK && writer->bytes - writer->pushed >= STEP_BYTES; writer->pushed += STEP_BYTES) {
    code = sync_range(writer, writer->pushed, SYNC_FILE_RANGE_WRITE, err);
    if (code != RV_OK || writer->pushed - writer->settled < STEPS_AHEAD * (uint64_t)STEP_BYTES) continue;
    code = sync_range(writer, writer->settled, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER,
                      err);
    posix_fadvise(writer->file, (off_t)writer->settled, STEP_BYTES, POSIX_FADV_DONTNEED);
    writer->settled += STEP_BYTES;
  }
  return code;
}

#else

static rv_code push(rv_record_writer *writer, rv_error *err)
{
  (void)writer, (void)err;
  return RV_OK;
}

#endif

static rv_code write_all(rv_record_writer *writer, struct iovec *pieces, int count, rv_error *err)
{
  while (count > 0) {
    ssize_t wrote = writer->files->write(writer->files->context, writer->file, pieces, count);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return rv_fail_system(err, errno, "write", writer->path);
    writer->bytes += (uint64_t)wrote;
    for (; count > 0 && (size_t)wrote >= pieces->iov_len; pieces++, count--) wrote -= (ssize_t)pieces->iov_len;
    if (count == 0) break;
    pieces->iov_base = (uint8_t *)pieces->iov_base + wrote;
    pieces->iov_len -= (size_t)wrote;
  }
  return push(writer, err);
}

/* ---- units ---- */

static void block_header(uint8_t out[5], size_t size)
{
  out[0] = 0; /* stored, and not the last */
  out[1] = (uint8_t)size;
  out[2] = (uint8_t)(size >> 8);
  out[3] = (uint8_t)~size;
  out[4] = (uint8_t)(~size >> 8);
}

static rv_code write_stored(rv_record_writer *writer, rv_error *err)
{
  uint8_t headers[UNIT_BLOCKS][5];
  struct iovec pieces[2 * UNIT_BLOCKS];
  int count = 0;
  for (size_t at = 0; at < writer->used; at += BLOCK_BYTES) {
    size_t size = writer->used - at < BLOCK_BYTES ? writer->used - at : BLOCK_BYTES;
    uint8_t *header = headers[at / BLOCK_BYTES];
    block_header(header, size);
    pieces[count++] = (struct iovec){header, sizeof headers[0]};
    pieces[count++] = (struct iovec){writer->unit + at, size};
  }
  return write_all(writer, pieces, count, err);
}

/* Into `packed`, ending at a whole byte; 0: it would not be smaller. deflate itself cannot fail: its state is sound. */
static size_t shrink(rv_record_writer *writer, const uint8_t *data, size_t size)
{
  z_stream *zlib = &writer->zlib;
  deflateReset(zlib);
  zlib->next_in = (Bytef *)(uintptr_t)data;
  zlib->avail_in = (uInt)size;
  zlib->next_out = writer->packed;
  zlib->avail_out = (uInt)size;
  deflate(zlib, Z_SYNC_FLUSH);
  return zlib->avail_out == 0 ? 0 : size - zlib->avail_out;
}

/* A sample says it for the next units: a quarter less is worth a core that is ten times slower than the disk. */
static bool wants_compression(rv_record_writer *writer)
{
  if (writer->level != RV_LEVEL_WHERE_IT_PAYS) return writer->level > 0;
  if (writer->units % PROBE_UNITS != 0) return writer->compresses;
  size_t size = writer->used < PROBE_BYTES ? writer->used : PROBE_BYTES;
  size_t packed = shrink(writer, writer->unit + (writer->used - size) / 2, size);
  writer->compresses = packed > 0 && packed <= size - size / 4;
  return writer->compresses;
}

static rv_code write_unit(rv_record_writer *writer, rv_error *err)
{
  if (writer->units == 0) { /* zlib's header */
    static const uint8_t header[] = {0x78, 0x9C};
    struct iovec piece = {(void *)(uintptr_t)header, sizeof header};
    rv_code code = write_all(writer, &piece, 1, err);
    if (code != RV_OK) return code;
  }
  writer->sum = adler32(writer->sum, writer->unit, (uInt)writer->used);
  size_t packed = writer->used > 0 && wants_compression(writer) ? shrink(writer, writer->unit, writer->used) : 0;
  struct iovec piece = {writer->packed, packed};
  rv_code code = packed > 0 ? write_all(writer, &piece, 1, err) : write_stored(writer, err);
  writer->units++;
  writer->used = 0;
  return code;
}

/* ---- records ---- */

static rv_code put(rv_record_writer *writer, const void *data, size_t size, rv_error *err)
{
  const uint8_t *from = data;
  while (size > 0) {
    size_t part = UNIT_BYTES - writer->used < size ? UNIT_BYTES - writer->used : size;
    memcpy(writer->unit + writer->used, from, part);
    writer->used += part;
    from += part;
    size -= part;
    rv_code code = writer->used == UNIT_BYTES ? write_unit(writer, err) : RV_OK;
    if (code != RV_OK) return code;
  }
  return RV_OK;
}

static rv_code begin(rv_record_writer *writer, uint64_t size, rv_error *err)
{
  if (size > RV_RECORD_MAX_BYTES)
    return rv_fail(err, RV_INVALID_ARGUMENT, "%s: a record of %llu bytes; readers take at most %llu", writer->path,
                   (unsigned long long)size, (unsigned long long)RV_RECORD_MAX_BYTES);
  uint8_t header[RV_FRAME_HEADER];
  rv_frame_put64(header, size);
  rv_frame_put32(header + 8, rv_frame_mask(rv_crc32c(0, header, 8)));
  return put(writer, header, sizeof header, err);
}

static rv_code end(rv_record_writer *writer, uint32_t crc, rv_error *err)
{
  uint8_t footer[RV_FRAME_FOOTER];
  rv_frame_put32(footer, rv_frame_mask(crc));
  return put(writer, footer, sizeof footer, err);
}

rv_code rv_record_writer_put(rv_record_writer *writer, const void *data, size_t size, rv_error *err)
{
  rv_code code = begin(writer, size, err);
  if (code == RV_OK && size > 0) code = put(writer, data, size, err);
  return code == RV_OK ? end(writer, rv_crc32c(0, data, size), err) : code;
}

rv_code rv_record_writer_put_pieces(rv_record_writer *writer, const rv_pieces *pieces, rv_error *err)
{
  rv_code code = begin(writer, pieces->bytes, err);
  uint32_t crc = 0;
  for (size_t i = 0; i < pieces->count && code == RV_OK; i++) {
    const rv_piece *piece = &pieces->piece[i];
    crc = rv_crc32c(crc, piece->data, piece->size);
    if (piece->size > 0) code = put(writer, piece->data, piece->size, err);
  }
  return code == RV_OK ? end(writer, crc, err) : code;
}

static rv_code write_end(rv_record_writer *writer, rv_error *err)
{
  rv_code code = writer->used > 0 || writer->units == 0 ? write_unit(writer, err) : RV_OK;
  uint8_t end[6] = {0x03, 0x00}; /* a last block with nothing in it */
  for (int i = 0; i < 4; i++) end[2 + i] = (uint8_t)(writer->sum >> (24 - 8 * i));
  struct iovec piece = {end, sizeof end};
  return code == RV_OK ? write_all(writer, &piece, 1, err) : code;
}

rv_code rv_record_writer_finish(rv_record_writer *writer, rv_error *err)
{
  rv_code code = write_end(writer, err);
  if (code == RV_OK && writer->files->sync(writer->files->context, writer->file) != 0)
    code = rv_fail_system(err, errno, "write", writer->path);
  int file = writer->file;
  writer->file = -1;
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  if (close(file) != 0 && code == RV_OK) code = rv_fail_system(err, errno, "write", writer->path);
  return code;
}

uint64_t rv_record_writer_bytes(const rv_record_writer *writer)
{
  return writer->bytes + writer->used;
}
