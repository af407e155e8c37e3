/* Copies of small pieces, as rows of one column that stand beside those of others: memcpy, without the call. */
#ifndef RV_BASE_SMALL_COPIES_H
#define RV_BASE_SMALL_COPIES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Sizes that rows of a column mostly have: loops over many pieces are written out for each, as by `each(4)`. */
#define RV_COMMON_SIZES(each)                                                                                                    \
  each(1);                                                                                                                       \
  each(2);                                                                                                                       \
  each(4);                                                                                                                       \
  each(8);                                                                                                                       \
  each(12);                                                                                                                      \
  each(16);                                                                                                                      \
  each(24);                                                                                                                      \
  each(32)

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
#define RV_COPY_ONE(bytes)                                                                                                       \
  case bytes: memcpy(to, from, bytes); break
  switch (size) {
    RV_COMMON_SIZES(RV_COPY_ONE);
  case 0: break;
  default: rv_copy_odd(to, from, size); break;
  }
#undef RV_COPY_ONE
}

/* n pieces of `size` bytes, from one stride to another. */
void rv_copy_strided(void *to, size_t to_stride, const void *from, size_t from_stride, size_t size, size_t n);

#endif
