#include "tensor/strings.h"

#include <string.h>

#include "base/error.h"

enum { LENGTHS_BUFFER = 1024, VARINT32_MAX = 5 };

static rv_bytes element(const void *rows, size_t row_stride, size_t row, size_t index)
{
  rv_bytes value;
  memcpy(&value, (const char *)rows + row * row_stride + index * sizeof value, sizeof value);
  return value;
}

static rv_code encode_lengths(rv_pieces *out, const void *rows, size_t row_stride, size_t num_rows, size_t per_row, rv_error *err)
{
  uint8_t buffer[LENGTHS_BUFFER];
  size_t used = 0;
  for (size_t row = 0; row < num_rows; row++)
    for (size_t i = 0; i < per_row; i++) {
      size_t length = element(rows, row_stride, row, i).size;
      if (length > UINT32_MAX)
        return rv_fail(err, RV_INVALID_ARGUMENT, "a string of %zu bytes; one element holds at most 4 GiB - 1", length);
      if (sizeof buffer - used < VARINT32_MAX) {
        if (rv_pieces_copy(out, buffer, used) != RV_OK) return rv_fail_memory(err, used);
        used = 0;
      }
      for (; length >= 0x80; length >>= 7) buffer[used++] = (uint8_t)(length | 0x80);
      buffer[used++] = (uint8_t)length;
    }
  return rv_pieces_copy(out, buffer, used) == RV_OK ? RV_OK : rv_fail_memory(err, used);
}

rv_code rv_strings_encode(rv_pieces *out, const void *rows, size_t row_stride, size_t num_rows, size_t per_row, rv_error *err)
{
  rv_code code = encode_lengths(out, rows, row_stride, num_rows, per_row, err);
  if (code != RV_OK) return code;
  for (size_t row = 0; row < num_rows; row++)
    for (size_t i = 0; i < per_row; i++) {
      rv_bytes value = element(rows, row_stride, row, i);
      if (rv_pieces_copy(out, value.data, value.size) != RV_OK) return rv_fail_memory(err, value.size);
    }
  return RV_OK;
}

/* Bytes taken; 0 if it is cut off or does not fit 32 bits. */
static size_t get_length(const uint8_t *at, size_t size, uint32_t *out)
{
  uint64_t value = 0;
  for (size_t i = 0; i < size && i < VARINT32_MAX; i++) {
    value |= (uint64_t)(at[i] & 0x7F) << (7 * i);
    if (at[i] < 0x80) {
      *out = (uint32_t)value;
      return value <= UINT32_MAX ? i + 1 : 0;
    }
  }
  return 0;
}

rv_code rv_strings_decode(const uint8_t *content, size_t size, size_t count, rv_bytes *out, rv_error *err)
{
  if (count > size)
    return rv_fail(err, RV_DATA_LOSS, "%zu strings cannot have their lengths in %zu bytes of content", count, size);
  size_t at = 0, total = 0;
  for (size_t i = 0; i < count; i++) {
    uint32_t length = 0;
    size_t n = get_length(content + at, size - at, &length);
    if (n == 0) return rv_fail(err, RV_DATA_LOSS, "the length of string %zu of %zu is cut off or too large", i, count);
    at += n;
    total += length;
    if (total > size)
      return rv_fail(err, RV_DATA_LOSS, "the first %zu strings announce %zu bytes, but the content has %zu", i + 1, total, size);
    if (out != NULL) out[i].size = length;
  }
  if (size - at != total)
    return rv_fail(err, RV_DATA_LOSS, "the strings announce %zu bytes, but %zu follow their lengths", total, size - at);
  for (size_t i = 0; out != NULL && i < count; i++) {
    out[i].data = content + at;
    at += out[i].size;
  }
  return RV_OK;
}
