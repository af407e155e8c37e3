/* Cache lines from one place to another, for loops over many. On x86-64 such a loop is compiled twice, for any processor and for those with AVX2, which
 * move half a line at a time, and rv_lines_are_wide() says which to run. Elsewhere there is only rv_copy_line. */
#ifndef RV_BASE_LINES_H
#define RV_BASE_LINES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#define RV_LINES_X86
#include <immintrin.h>
#endif

enum { RV_LINE = 64 /* bytes */ };

/* A loop that is told which of these moves a line: it becomes a part of it. */
#define RV_LINES_LOOP static inline __attribute__((always_inline))

static inline void rv_copy_line(uint8_t *to, const uint8_t *from)
{
  memcpy(to, from, RV_LINE);
}

#ifdef RV_LINES_X86

#define RV_LINES_WIDE __attribute__((target("avx2")))

static inline bool rv_lines_are_wide(void)
{
  return __builtin_cpu_supports("avx2") != 0;
}

RV_LINES_WIDE static inline void rv_copy_line_wide(uint8_t *to, const uint8_t *from)
{
  const __m256i *in = (const __m256i *)(const void *)from;
  __m256i *out = (__m256i *)(void *)to, low = _mm256_loadu_si256(in), high = _mm256_loadu_si256(in + 1);
  _mm256_storeu_si256(out, low);
  _mm256_storeu_si256(out + 1, high);
}

/* Past the caches, to where a line begins (past_caches.h). */
static inline void rv_stream_line(uint8_t *to, const uint8_t *from)
{
  const __m128i *in = (const __m128i *)(const void *)from;
  __m128i *out = (__m128i *)(void *)to;
  for (int i = 0; i < 4; i++) _mm_stream_si128(out + i, _mm_loadu_si128(in + i));
}

RV_LINES_WIDE static inline void rv_stream_line_wide(uint8_t *to, const uint8_t *from)
{
  const __m256i *in = (const __m256i *)(const void *)from;
  __m256i *out = (__m256i *)(void *)to;
  _mm256_stream_si256(out, _mm256_loadu_si256(in));
  _mm256_stream_si256(out + 1, _mm256_loadu_si256(in + 1));
}
#endif

#endif
