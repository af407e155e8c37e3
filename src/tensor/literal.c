#include "tensor/literal.h"

enum { LITERAL_INLINE_MAX = 60, LENGTH_BYTES_1 = 60 };

static size_t put_varint32(uint8_t *out, uint32_t value)
{
  size_t n = 0;
  for (; value >= 0x80; value >>= 7) out[n++] = (uint8_t)(value | 0x80);
  out[n++] = (uint8_t)value;
  return n;
}

/* Bytes taken; 0 if it is cut off or does not fit 32 bits. */
static size_t get_varint32(const uint8_t *at, size_t size, uint32_t *out)
{
  uint64_t value = 0;
  for (size_t i = 0; i < size && i < 5; i++) {
    value |= (uint64_t)(at[i] & 0x7F) << (7 * i);
    if (at[i] < 0x80) {
      *out = (uint32_t)value;
      return value <= UINT32_MAX ? i + 1 : 0;
    }
  }
  return 0;
}

size_t rv_literal_header(uint8_t out[RV_LITERAL_HEADER_MAX], size_t bytes)
{
  size_t n = put_varint32(out, (uint32_t)bytes);
  if (bytes == 0) return n;
  uint32_t length = (uint32_t)(bytes - 1);
  if (length < LITERAL_INLINE_MAX) {
    out[n++] = (uint8_t)(length << 2);
    return n;
  }
  uint32_t count = length < 0x100 ? 1 : length < 0x10000 ? 2 : length < 0x1000000 ? 3 : 4;
  out[n++] = (uint8_t)((LENGTH_BYTES_1 - 1 + count) << 2);
  for (; count > 0; count--, length >>= 8) out[n++] = (uint8_t)length;
  return n;
}

size_t rv_literal_size(size_t bytes)
{
  uint8_t header[RV_LITERAL_HEADER_MAX];
  return rv_literal_header(header, bytes) + bytes;
}

const uint8_t *rv_literal_find(const uint8_t *block, size_t block_size, size_t bytes)
{
  uint32_t announced = 0;
  size_t n = get_varint32(block, block_size, &announced);
  if (n == 0 || announced != bytes || block_size - n < bytes) return NULL;
  if (bytes == 0) return block_size == n ? block + n : NULL;
  if (block_size == n) return NULL;
  uint8_t tag = block[n++];
  if ((tag & 3) != 0) return NULL;
  uint32_t length = tag >> 2;
  if (length >= LENGTH_BYTES_1) {
    size_t count = length - LENGTH_BYTES_1 + 1;
    if (block_size - n < count) return NULL;
    length = 0;
    for (size_t i = 0; i < count; i++) length |= (uint32_t)block[n++] << (8 * i);
  }
  return (size_t)length + 1 == bytes && block_size - n == bytes ? block + n : NULL;
}

bool rv_block_announces(const uint8_t *block, size_t block_size, size_t bytes)
{
  uint32_t announced = 0;
  size_t n = get_varint32(block, block_size, &announced);
  return n != 0 && announced == bytes && bytes / 64 <= (block_size - n) / 3 + 1;
}
