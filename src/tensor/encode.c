#include <snappy-c.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tensor/codec.h"
#include "tensor/delta.h"
#include "tensor/literal.h"
#include "tensor/strings.h"

enum { SMALL_BYTES = 1024, PIECE_BYTES = 256 * 1024, TRIAL_BYTES = 16 * 1024, TRIALS = 4 };

typedef struct source {
  const unsigned char *rows;
  size_t stride, row_bytes, width;
  bool delta;
} source;

/* Writes bytes [first, first + n) of the tensor as it is before compression. `first` is a multiple of the width. */
static void gather(const source *from, size_t first, size_t n, unsigned char *out)
{
  if (from->stride == from->row_bytes && !from->delta) {
    memcpy(out, from->rows + first, n);
    return;
  }
  size_t row = first / from->row_bytes, skip = first % from->row_bytes;
  while (n > 0) {
    size_t part = from->row_bytes - skip < n ? from->row_bytes - skip : n;
    const unsigned char *at = from->rows + row * from->stride + skip;
    if (from->delta && row > 0)
      rv_delta_row(out, at, at - from->stride, part, from->width);
    else
      memcpy(out, at, part);
    out += part;
    n -= part;
    row++;
    skip = 0;
  }
}

static rv_code share_owned(rv_pieces *out, rv_buf *owned_buf, rv_error *err)
{
  size_t size = owned_buf->size;
  rv_code code = rv_pieces_share(out, owned_buf, owned_buf->data, size);
  rv_buf_unref(owned_buf);
  return code == RV_OK ? RV_OK : rv_fail_memory(err, size);
}

static rv_code put_literal(rv_pieces *out, const source *from, size_t bytes, rv_error *err)
{
  uint8_t small[RV_LITERAL_HEADER_MAX + SMALL_BYTES];
  size_t header = rv_literal_header(small, bytes);
  if (bytes <= SMALL_BYTES) {
    if (bytes > 0) gather(from, 0, bytes, small + header);
    return rv_pieces_copy(out, small, header + bytes) == RV_OK ? RV_OK : rv_fail_memory(err, header + bytes);
  }
  if (rv_pieces_copy(out, small, header) != RV_OK) return rv_fail_memory(err, header);
  for (size_t first = 0; first < bytes; first += PIECE_BYTES) {
    size_t n = bytes - first < PIECE_BYTES ? bytes - first : PIECE_BYTES;
    rv_buf *buf = rv_buf_new(n);
    if (buf == NULL) return rv_fail_memory(err, n);
    gather(from, first, n, buf->data);
    buf->size = n;
    rv_code code = share_owned(out, buf, err);
    if (code != RV_OK) return code;
  }
  return RV_OK;
}

static rv_code compress_flat(rv_pieces *out, const void *flat, size_t bytes, rv_error *err)
{
  size_t room = snappy_max_compressed_length(bytes);
  rv_buf *buf = rv_buf_new(room);
  if (buf == NULL) return rv_fail_memory(err, room);
  size_t size = room;
  if (snappy_compress(flat, bytes, (char *)buf->data, &size) != SNAPPY_OK) {
    rv_buf_unref(buf);
    return rv_fail(err, RV_INTERNAL, "snappy refused to compress %zu bytes", bytes);
  }
  buf->size = size;
  if (size <= room / 2) { /* do not let the message hold the room that it did not need */
    rv_buf *tight = rv_buf_copy(buf->data, size);
    if (tight != NULL) {
      rv_buf_unref(buf);
      buf = tight;
    }
  }
  return share_owned(out, buf, err);
}

static rv_code put_compressed(rv_pieces *out, const source *from, size_t bytes, rv_error *err)
{
  if (from->stride == from->row_bytes && !from->delta) return compress_flat(out, from->rows, bytes, err);
  unsigned char *flat = malloc(bytes);
  if (flat == NULL) return rv_fail_memory(err, bytes);
  gather(from, 0, bytes, flat);
  rv_code code = compress_flat(out, flat, bytes, err);
  free(flat);
  return code;
}

rv_code rv_encode(rv_pieces *out, rv_dtype dtype, uint32_t row_rank, const int64_t *row_shape, const void *rows,
                  size_t row_stride, size_t num_rows, bool delta, bool compress, rv_error *err)
{
  size_t row_elements = 0, row_bytes = 0, bytes = 0;
  rv_code code = rv_shape_elements(dtype, row_rank, row_shape, &row_elements, &row_bytes, err);
  if (code != RV_OK) return code;
  if (__builtin_mul_overflow(row_bytes, num_rows, &bytes) || bytes > INT64_MAX)
    return rv_fail(err, RV_INVALID_ARGUMENT, "%zu rows of %zu bytes are more than 63 bits count", num_rows, row_bytes);
  if (dtype == RV_STRING) return rv_strings_encode(out, rows, row_stride, num_rows, row_elements, err);
  if (bytes > RV_BLOCK_MAX_BYTES)
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "a chunk's tensor of %zu bytes; at most 4 GiB - 1 are possible: use fewer rows a chunk", bytes);
  source from = {.rows = rows,
                 .stride = num_rows == 1 ? row_bytes : row_stride,
                 .row_bytes = row_bytes,
                 .width = rv_dtype_size(dtype),
                 .delta = delta && num_rows > 1 && rv_delta_applies(dtype, row_rank + 1)};
  return compress && bytes > 0 ? put_compressed(out, &from, bytes, err) : put_literal(out, &from, bytes, err);
}

bool rv_compression_pays(const void *rows, size_t bytes)
{
  /* A few windows spread over the rows: enough to tell pictures from noise, cheap enough to ask now and then. */
  enum { ROOM = 32 + TRIAL_BYTES + TRIAL_BYTES / 6 };
  char compressed[ROOM];
  size_t windows = bytes <= TRIAL_BYTES ? 1 : bytes < (size_t)TRIALS * TRIAL_BYTES ? bytes / TRIAL_BYTES : TRIALS;
  size_t window = bytes < TRIAL_BYTES ? bytes : TRIAL_BYTES;
  size_t apart = windows > 1 ? (bytes - window) / (windows - 1) : 0;
  size_t before = 0, after = 0;
  if (snappy_max_compressed_length(window) > sizeof compressed) return false;
  for (size_t i = 0; i < windows; i++) {
    size_t size = sizeof compressed;
    if (snappy_compress((const char *)rows + i * apart, window, compressed, &size) != SNAPPY_OK) return false;
    before += window;
    after += size;
  }
  return before > 0 && after <= before - before / 5;
}
