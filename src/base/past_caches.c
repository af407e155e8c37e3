#include "base/past_caches.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__

#include <emmintrin.h>

enum { LINE = 64, AHEAD = 2048 /* bytes: what is read comes from memory too, and is fetched meanwhile */ };

typedef struct rv_line {
  __m128i part[4];
} rv_line;

static inline rv_line load(const uint8_t *from)
{
  const __m128i *in = (const __m128i *)(const void *)from;
  return (rv_line){{_mm_loadu_si128(in), _mm_loadu_si128(in + 1), _mm_loadu_si128(in + 2), _mm_loadu_si128(in + 3)}};
}

static inline void stream(uint8_t *to, rv_line line)
{
  for (int i = 0; i < 4; i++) _mm_stream_si128((__m128i *)(void *)to + i, line.part[i]);
}

static inline void store(uint8_t *to, rv_line line)
{
  for (int i = 0; i < 4; i++) _mm_storeu_si128((__m128i *)(void *)to + i, line.part[i]);
}

static inline void fetch(const uint8_t *from)
{
  __builtin_prefetch(from, 0, 2);
}

/* Up to the first whole line of `out`. */
static size_t head_of(const uint8_t *out, size_t size)
{
  return size < RV_PAST_CACHES_LEAST ? size : (size_t)(-(uintptr_t)out) % LINE;
}

void rv_copy_past_caches(void *to, const void *from, size_t size)
{
  uint8_t *out = to;
  const uint8_t *in = from;
  size_t i = head_of(out, size);
  memcpy(out, in, i);
  for (; size - i >= AHEAD + LINE; i += LINE) {
    fetch(in + i + AHEAD);
    stream(out + i, load(in + i));
  }
  for (; size - i >= LINE; i += LINE) stream(out + i, load(in + i));
  memcpy(out + i, in + i, size - i);
  _mm_sfence(); /* such stores are not ordered before a release by themselves */
}

void rv_copy_past_caches_and_to(void *to, void *near, const void *from, size_t size)
{
  uint8_t *out = to, *copy = near;
  const uint8_t *in = from;
  size_t i = head_of(out, size);
  memcpy(out, in, i);
  memcpy(copy, in, i);
  for (; size - i >= LINE; i += LINE) {
    rv_line line = load(in + i);
    stream(out + i, line);
    store(copy + i, line);
  }
  memcpy(out + i, in + i, size - i);
  memcpy(copy + i, in + i, size - i);
  _mm_sfence();
}

#else

void rv_copy_past_caches(void *to, const void *from, size_t size)
{
  memcpy(to, from, size);
}

void rv_copy_past_caches_and_to(void *to, void *near, const void *from, size_t size)
{
  memcpy(to, from, size);
  memcpy(near, from, size);
}

#endif
