/* One zlib stream, put together of units: each is compressed by itself, or stored as it is where that saves too little or nobody wants it. */
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "persist/adler32.h"
#include "persist/frame.h"
#include "persist/out_file.h"
#include "persist/record_file.h"

enum {
  BLOCK_BYTES = 65535, /* of what is stored, behind a header of five bytes */
  UNIT_BLOCKS = 4,
  UNIT_BYTES = UNIT_BLOCKS * BLOCK_BYTES,
  PROBE_BYTES = 1 << 14, /* that tell whether compressing pays */
  PROBE_UNITS = 64,      /* from one probe to the next: 16 MiB */
  RAW_WINDOW = -15,      /* deflate without zlib's own header */
  DEFAULT_MEMORY = 8
};

struct rv_record_writer {
  rv_out_file *file;
  int level;
  bool compresses; /* at RV_LEVEL_WHERE_IT_PAYS: until the next probe */
  z_stream zlib;   /* where level is not 0 */
  uint64_t units;
  uint32_t sum; /* Adler's, of all that was put */
  size_t used;  /* of the unit at hand */
  uint8_t unit[UNIT_BYTES], packed[UNIT_BYTES];
};

rv_code rv_record_writer_new(const char *path, int level, const rv_files *files, rv_record_writer **out, rv_error *err)
{
  if (level < RV_LEVEL_WHERE_IT_PAYS || level > 9)
    return rv_fail(err, RV_INVALID_ARGUMENT, "compression level %d: give 0 (none) to 9 (smallest, slowest)", level);
  rv_record_writer *writer = calloc(1, sizeof *writer);
  if (writer == NULL) return rv_fail_memory(err, sizeof *writer);
  writer->level = level;
  writer->sum = 1;
  int deflated = level == 0 ? 0 : level > 0 ? level : 1;
  if (deflated > 0 && deflateInit2(&writer->zlib, deflated, Z_DEFLATED, RAW_WINDOW, DEFAULT_MEMORY, Z_DEFAULT_STRATEGY) != Z_OK) {
    free(writer);
    return rv_fail_memory(err, sizeof *writer);
  }
  rv_code code = rv_out_file_new(path, files, &writer->file, err);
  if (code != RV_OK) {
    rv_record_writer_free(writer);
    return code;
  }
  *out = writer;
  return RV_OK;
}

void rv_record_writer_free(rv_record_writer *writer)
{
  if (writer == NULL) return;
  rv_out_file_free(writer->file);
  if (writer->level != 0) deflateEnd(&writer->zlib);
  free(writer);
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
  rv_code code = RV_OK;
  for (size_t at = 0; at < writer->used && code == RV_OK; at += BLOCK_BYTES) {
    size_t size = writer->used - at < BLOCK_BYTES ? writer->used - at : BLOCK_BYTES;
    uint8_t header[5];
    block_header(header, size);
    code = rv_out_file_put(writer->file, header, sizeof header, err);
    if (code == RV_OK) code = rv_out_file_put(writer->file, writer->unit + at, size, err);
  }
  return code;
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
    rv_code code = rv_out_file_put(writer->file, header, sizeof header, err);
    if (code != RV_OK) return code;
  }
  writer->sum = rv_adler32(writer->sum, writer->unit, writer->used);
  size_t packed = writer->used > 0 && wants_compression(writer) ? shrink(writer, writer->unit, writer->used) : 0;
  rv_code code = packed > 0 ? rv_out_file_put(writer->file, writer->packed, packed, err) : write_stored(writer, err);
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
    return rv_fail(err, RV_INVALID_ARGUMENT, "%s: a record of %llu bytes; readers take at most %llu",
                   rv_out_file_path(writer->file), (unsigned long long)size, (unsigned long long)RV_RECORD_MAX_BYTES);
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
  return code == RV_OK ? rv_out_file_put(writer->file, end, sizeof end, err) : code;
}

rv_code rv_record_writer_finish(rv_record_writer *writer, rv_error *err)
{
  rv_code code = write_end(writer, err);
  return code == RV_OK ? rv_out_file_finish(writer->file, err) : code;
}

uint64_t rv_record_writer_bytes(const rv_record_writer *writer)
{
  return rv_out_file_bytes(writer->file) + writer->used;
}
