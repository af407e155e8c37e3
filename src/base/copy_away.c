#include "base/copy_away.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__ /* every x86-64 has it */

#include <emmintrin.h>

enum { STORE_BYTES = 16, LINE_BYTES = 64, WORTH_BYTES = 512 };

/* `to` begins a store's place; returns how much was copied. */
static size_t copy_lines(uint8_t *to, const uint8_t *from, size_t size)
{
  size_t at = 0;
  for (; size - at >= LINE_BYTES; at += LINE_BYTES) {
    __m128i line[LINE_BYTES / STORE_BYTES];
    memcpy(line, from + at, sizeof line);
    for (size_t i = 0; i < LINE_BYTES / STORE_BYTES; i++) _mm_stream_si128((__m128i *)(void *)(to + at) + i, line[i]);
  }
  _mm_sfence(); /* whoever is told of it sees it */
  return at;
}

void rv_copy_away(void *to, const void *from, size_t size)
{
  uint8_t *out = to;
  const uint8_t *in = from;
  if (size >= WORTH_BYTES) {
    size_t head = (size_t)(-(uintptr_t)to % STORE_BYTES);
    memcpy(out, in, head);
    size_t copied = head + copy_lines(out + head, in + head, size - head);
    out += copied;
    in += copied;
    size -= copied;
  }
  memcpy(out, in, size);
}

#else

void rv_copy_away(void *to, const void *from, size_t size)
{
  memcpy(to, from, size);
}

#endif
