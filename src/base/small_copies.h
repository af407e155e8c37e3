/* Copies of small pieces, as rows of one column that stand beside those of others: memcpy, without the call. */
#ifndef RV_BASE_SMALL_COPIES_H
#define RV_BASE_SMALL_COPIES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A size that is nothing in particular: from 4 to 64 bytes as two pieces, which overlap. Of more the C library's copy is as quick. */
static inline void rv_copy_odd(void *to, const void *from, size_t size)
{
  uint8_t *out = to;
  const uint8_t *in = from;
#define RV_COPY_ENDS(piece) memcpy(out, in, piece), memcpy(out + size - (piece), in + size - (piece), piece)
  if (size > 64 || size < 4)
    memcpy(out, in, size);
  else if (size > 32)
    RV_COPY_ENDS(32);
  else if (size > 16)
    RV_COPY_ENDS(16);
  else if (size > 8)
    RV_COPY_ENDS(8);
  else
    RV_COPY_ENDS(4);
#undef RV_COPY_ENDS
}

/* A size that is mostly one of few. */
static inline void rv_copy_small(void *to, const void *from, size_t size)
{
  switch (size) {
  case 0: break;
  case 1: memcpy(to, from, 1); break;
  case 2: memcpy(to, from, 2); break;
  case 4: memcpy(to, from, 4); break;
  case 8: memcpy(to, from, 8); break;
  case 12: memcpy(to, from, 12); break;
  case 16: memcpy(to, from, 16); break;
  case 24: memcpy(to, from, 24); break;
  case 32: memcpy(to, from, 32); break;
  default: rv_copy_odd(to, from, size); break;
  }
}

/* n pieces of `size` bytes, from one stride to another. */
void rv_copy_strided(void *to, size_t to_stride, const void *from, size_t from_stride, size_t size, size_t n);

#endif
