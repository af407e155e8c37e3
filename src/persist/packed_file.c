#include "persist/packed_file.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "persist/adler32.h"
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

struct rv_packed_file {
  rv_out_file *file;
  int level;
  bool compresses; /* at RV_LEVEL_WHERE_IT_PAYS: until the next probe */
  z_stream zlib;   /* where level is not 0 */
  uint64_t bytes;  /* of the stream so far */
  uint64_t units;
  uint32_t sum; /* Adler's, of all units */
  size_t used;  /* of the unit at hand */
  uint8_t unit[UNIT_BYTES], packed[UNIT_BYTES];
};

/* ---- units into the stream ---- */

static rv_code write_bytes(rv_packed_file *file, const void *data, size_t size, rv_error *err)
{
  file->bytes += size;
  return rv_out_file_put(file->file, data, size, err);
}

static void block_header(uint8_t out[5], size_t size)
{
  out[0] = 0; /* stored, and not the last */
  out[1] = (uint8_t)size;
  out[2] = (uint8_t)(size >> 8);
  out[3] = (uint8_t)~size;
  out[4] = (uint8_t)(~size >> 8);
}

static rv_code write_stored(rv_packed_file *file, rv_error *err)
{
  rv_code code = RV_OK;
  for (size_t at = 0; at < file->used && code == RV_OK; at += BLOCK_BYTES) {
    size_t size = file->used - at < BLOCK_BYTES ? file->used - at : BLOCK_BYTES;
    uint8_t header[5];
    block_header(header, size);
    code = write_bytes(file, header, sizeof header, err);
    if (code == RV_OK) code = write_bytes(file, file->unit + at, size, err);
  }
  return code;
}

/* Into `packed`, ending at a whole byte; 0: it would not be smaller. deflate itself cannot fail: its state is sound. */
static size_t shrink(rv_packed_file *file, const uint8_t *data, size_t size)
{
  z_stream *zlib = &file->zlib;
  deflateReset(zlib);
  zlib->next_in = (Bytef *)(uintptr_t)data;
  zlib->avail_in = (uInt)size;
  zlib->next_out = file->packed;
  zlib->avail_out = (uInt)size;
  deflate(zlib, Z_SYNC_FLUSH);
  return zlib->avail_out == 0 ? 0 : size - zlib->avail_out;
}

/* A sample says it for the next units: a quarter less is worth a core that is ten times slower than the disk. */
static bool wants_compression(rv_packed_file *file)
{
  if (file->level != RV_LEVEL_WHERE_IT_PAYS) return file->level > 0;
  if (file->units % PROBE_UNITS != 0) return file->compresses;
  size_t size = file->used < PROBE_BYTES ? file->used : PROBE_BYTES;
  size_t packed = shrink(file, file->unit + (file->used - size) / 2, size);
  file->compresses = packed > 0 && packed <= size - size / 4;
  return file->compresses;
}

static rv_code write_unit(rv_packed_file *file, rv_error *err)
{
  if (file->units == 0) { /* zlib's header */
    static const uint8_t header[] = {0x78, 0x9C};
    rv_code code = write_bytes(file, header, sizeof header, err);
    if (code != RV_OK) return code;
  }
  file->sum = rv_adler32(file->sum, file->unit, file->used);
  size_t packed = file->used > 0 && wants_compression(file) ? shrink(file, file->unit, file->used) : 0;
  rv_code code = packed > 0 ? write_bytes(file, file->packed, packed, err) : write_stored(file, err);
  file->units++;
  file->used = 0;
  return code;
}

static rv_code write_end(rv_packed_file *file, rv_error *err)
{
  uint8_t end[6] = {0x03, 0x00}; /* a last block with nothing in it */
  for (int i = 0; i < 4; i++) end[2 + i] = (uint8_t)(file->sum >> (24 - 8 * i));
  return write_bytes(file, end, sizeof end, err);
}

/* ---- the verbs ---- */

rv_code rv_packed_file_put(rv_packed_file *file, const void *data, size_t size, rv_error *err)
{
  const uint8_t *from = data;
  while (size > 0) {
    size_t room = UNIT_BYTES - file->used, part = room < size ? room : size;
    memcpy(file->unit + file->used, from, part);
    file->used += part;
    from += part;
    size -= part;
    rv_code code = file->used == UNIT_BYTES ? write_unit(file, err) : RV_OK;
    if (code != RV_OK) return code;
  }
  return RV_OK;
}

uint64_t rv_packed_file_bytes(const rv_packed_file *file)
{
  return file->bytes + file->used;
}

const char *rv_packed_file_path(const rv_packed_file *file)
{
  return rv_out_file_path(file->file);
}

/* ---- life ---- */

rv_code rv_packed_file_new(const char *path, int level, const rv_files *files, rv_packed_file **out, rv_error *err)
{
  if (level < RV_LEVEL_WHERE_IT_PAYS || level > 9)
    return rv_fail(err, RV_INVALID_ARGUMENT, "compression level %d: give 0 (none) to 9 (smallest, slowest)", level);
  rv_packed_file *file = calloc(1, sizeof *file);
  if (file == NULL) return rv_fail_memory(err, sizeof *file);
  file->sum = 1;
  int deflated = level == RV_LEVEL_WHERE_IT_PAYS ? 1 : level;
  bool fine =
      deflated == 0 || deflateInit2(&file->zlib, deflated, Z_DEFLATED, RAW_WINDOW, DEFAULT_MEMORY, Z_DEFAULT_STRATEGY) == Z_OK;
  file->level = fine ? level : 0;
  rv_code code = fine ? RV_OK : rv_fail_memory(err, sizeof file->zlib);
  if (code == RV_OK) code = rv_out_file_new(path, files, &file->file, err);
  if (code != RV_OK) {
    rv_packed_file_free(file);
    return code;
  }
  *out = file;
  return RV_OK;
}

rv_code rv_packed_file_finish(rv_packed_file *file, rv_error *err)
{
  rv_code code = file->used > 0 || file->units == 0 ? write_unit(file, err) : RV_OK;
  if (code == RV_OK) code = write_end(file, err);
  return code == RV_OK ? rv_out_file_finish(file->file, err) : code;
}

void rv_packed_file_free(rv_packed_file *file)
{
  if (file == NULL) return;
  rv_out_file_free(file->file);
  if (file->level != 0) deflateEnd(&file->zlib);
  free(file);
}
