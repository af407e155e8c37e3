/* Records in their frames, in one zlib stream. */
#include <stdlib.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "persist/frame.h"
#include "persist/packed_file.h"
#include "persist/record_file.h"

struct rv_record_writer {
  rv_packed_file *file;
};

rv_code rv_record_writer_new(const char *path, int level, const rv_files *files, rv_record_writer **out, rv_error *err)
{
  rv_record_writer *writer = calloc(1, sizeof *writer);
  if (writer == NULL) return rv_fail_memory(err, sizeof *writer);
  rv_code code = rv_packed_file_new(path, level, files, &writer->file, err);
  if (code == RV_OK)
    *out = writer;
  else
    free(writer);
  return code;
}

void rv_record_writer_free(rv_record_writer *writer)
{
  if (writer == NULL) return;
  rv_packed_file_free(writer->file);
  free(writer);
}

static rv_code begin(rv_record_writer *writer, uint64_t size, rv_error *err)
{
  if (size > RV_RECORD_MAX_BYTES)
    return rv_fail(err, RV_INVALID_ARGUMENT, "%s: a record of %llu bytes; readers take at most %llu",
                   rv_packed_file_path(writer->file), (unsigned long long)size, (unsigned long long)RV_RECORD_MAX_BYTES);
  uint8_t header[RV_FRAME_HEADER];
  rv_frame_put64(header, size);
  rv_frame_put32(header + 8, rv_frame_mask(rv_crc32c(0, header, 8)));
  return rv_packed_file_put(writer->file, header, sizeof header, err);
}

static rv_code end(rv_record_writer *writer, uint32_t crc, rv_error *err)
{
  uint8_t footer[RV_FRAME_FOOTER];
  rv_frame_put32(footer, rv_frame_mask(crc));
  return rv_packed_file_put(writer->file, footer, sizeof footer, err);
}

rv_code rv_record_writer_put(rv_record_writer *writer, const void *data, size_t size, rv_error *err)
{
  rv_code code = begin(writer, size, err);
  if (code == RV_OK) code = rv_packed_file_put(writer->file, data, size, err);
  return code == RV_OK ? end(writer, rv_crc32c(0, data, size), err) : code;
}

rv_code rv_record_writer_put_pieces(rv_record_writer *writer, const rv_pieces *pieces, rv_error *err)
{
  rv_code code = begin(writer, pieces->bytes, err);
  uint32_t crc = 0;
  for (size_t i = 0; i < pieces->count && code == RV_OK; i++) {
    const rv_piece *piece = &pieces->piece[i];
    crc = rv_crc32c(crc, piece->data, piece->size);
    code = rv_packed_file_put(writer->file, piece->data, piece->size, err);
  }
  return code == RV_OK ? end(writer, crc, err) : code;
}

rv_code rv_record_writer_finish(rv_record_writer *writer, rv_error *err)
{
  return rv_packed_file_finish(writer->file, err);
}

uint64_t rv_record_writer_bytes(const rv_record_writer *writer)
{
  return rv_packed_file_bytes(writer->file);
}
