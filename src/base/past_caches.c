#include "base/past_caches.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__

#include <emmintrin.h>

enum { LINE = 64 };

void rv_copy_past_caches(void *to, const void *from, size_t size)
{
  uint8_t *out = to;
  const uint8_t *in = from;
  size_t head = (size_t)(-(uintptr_t)out) % LINE;
  if (size < RV_PAST_CACHES_LEAST) head = size;
  memcpy(out, in, head);
  size_t i = head;
  for (; size - i >= LINE; i += LINE) {
    const __m128i *line = (const __m128i *)(const void *)(in + i);
    __m128i *place = (__m128i *)(void *)(out + i);
    __m128i a = _mm_loadu_si128(line), b = _mm_loadu_si128(line + 1), c = _mm_loadu_si128(line + 2),
            d = _mm_loadu_si128(line + 3);
    _mm_stream_si128(place, a);
    _mm_stream_si128(place + 1, b);
    _mm_stream_si128(place + 2, c);
    _mm_stream_si128(place + 3, d);
  }
  memcpy(out + i, in + i, size - i);
  _mm_sfence(); /* such stores are not ordered before a release by themselves */
}

#else

void rv_copy_past_caches(void *to, const void *from, size_t size)
{
  memcpy(to, from, size);
}

#endif
