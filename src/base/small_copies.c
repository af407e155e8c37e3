#include "base/small_copies.h"

#define COPY_EACH(bytes)                                                                                                         \
  case bytes:                                                                                                                    \
    _Pragma("GCC unroll 8") for (size_t i = 0; i < n; i++) memcpy(out + i * to_stride, in + i * from_stride, bytes);             \
    return

/* Put together, where no stride has to be multiplied: what sequences are read by. */
#define PACK_EACH(bytes)                                                                                                         \
  case bytes: _Pragma("GCC unroll 8") for (size_t i = 0; i < n; i++) memcpy(out + i * bytes, in + i * from_stride, bytes); return

static void pack(uint8_t *restrict out, const uint8_t *restrict in, size_t from_stride, size_t size, size_t n)
{
  switch (size) {
    RV_COMMON_SIZES(PACK_EACH);
  default: break;
  }
  for (size_t i = 0; i < n; i++) rv_copy_odd(out + i * size, in + i * from_stride, size);
}

static void spread(uint8_t *restrict out, size_t to_stride, const uint8_t *restrict in, size_t from_stride, size_t size, size_t n)
{
  switch (size) {
    RV_COMMON_SIZES(COPY_EACH);
  default: break;
  }
  for (size_t i = 0; i < n; i++) rv_copy_odd(out + i * to_stride, in + i * from_stride, size);
}

void rv_copy_strided(void *to, size_t to_stride, const void *from, size_t from_stride, size_t size, size_t n)
{
  if (size == 0 || n == 0) return;
  if (to_stride == size && from_stride == size)
    memcpy(to, from, size * n);
  else if (to_stride == size)
    pack(to, from, from_stride, size, n);
  else
    spread(to, to_stride, from, from_stride, size, n);
}
