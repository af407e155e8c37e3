#include "tensor/delta.h"

#include <string.h>

bool rv_delta_applies(rv_dtype dtype, uint32_t rank)
{
  if (rank < 2) return false;
  switch (dtype) {
  case RV_UINT8:
  case RV_UINT16:
  case RV_UINT32:
  case RV_UINT64:
  case RV_INT8:
  case RV_INT16:
  case RV_INT32:
  case RV_INT64: return true;
  default: return false;
  }
}

/* Rows may lie at any address: elements are loaded and stored by memcpy, which compilers turn into (vector) moves. */
#define DEFINE_WIDTH(type, name)                                                                                                 \
  static void subtract_##name(unsigned char *out, const unsigned char *row, const unsigned char *previous, size_t bytes)         \
  {                                                                                                                              \
    for (size_t i = 0; i < bytes; i += sizeof(type)) {                                                                           \
      type a, b;                                                                                                                 \
      memcpy(&a, row + i, sizeof a);                                                                                             \
      memcpy(&b, previous + i, sizeof b);                                                                                        \
      a = (type)(a - b);                                                                                                         \
      memcpy(out + i, &a, sizeof a);                                                                                             \
    }                                                                                                                            \
  }                                                                                                                              \
  static void add_##name(unsigned char *row, const unsigned char *previous, size_t bytes)                                        \
  {                                                                                                                              \
    for (size_t i = 0; i < bytes; i += sizeof(type)) {                                                                           \
      type a, b;                                                                                                                 \
      memcpy(&a, row + i, sizeof a);                                                                                             \
      memcpy(&b, previous + i, sizeof b);                                                                                        \
      a = (type)(a + b);                                                                                                         \
      memcpy(row + i, &a, sizeof a);                                                                                             \
    }                                                                                                                            \
  }

DEFINE_WIDTH(uint8_t, 8)
DEFINE_WIDTH(uint16_t, 16)
DEFINE_WIDTH(uint32_t, 32)
DEFINE_WIDTH(uint64_t, 64)

void rv_delta_row(void *out, const void *row, const void *previous, size_t bytes, size_t width)
{
  switch (width) {
  case 1: subtract_8(out, row, previous, bytes); break;
  case 2: subtract_16(out, row, previous, bytes); break;
  case 4: subtract_32(out, row, previous, bytes); break;
  default: subtract_64(out, row, previous, bytes); break;
  }
}

static void add_row(unsigned char *row, const unsigned char *previous, size_t bytes, size_t width)
{
  switch (width) {
  case 1: add_8(row, previous, bytes); break;
  case 2: add_16(row, previous, bytes); break;
  case 4: add_32(row, previous, bytes); break;
  default: add_64(row, previous, bytes); break;
  }
}

void rv_delta_undo(void *rows, size_t num_rows, size_t row_bytes, size_t width)
{
  unsigned char *row = rows;
  for (size_t i = 1; i < num_rows && row_bytes > 0; i++, row += row_bytes) add_row(row + row_bytes, row, row_bytes, width);
}
