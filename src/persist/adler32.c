#include "persist/adler32.h"

#include <zlib.h>

uint32_t rv_adler32_plain(uint32_t sum, const void *data, size_t size)
{
  return size == 0 ? sum : (uint32_t)adler32_z(sum, data, size); /* zlib begins anew where there are no data */
}

#if defined(__x86_64__)

#include <immintrin.h>

enum {
  MODULUS = 65521,
  STEP = 32,
  STEPS = 5552 / STEP /* after which neither sum has left 32 bits: zlib's NMAX */
};

__attribute__((target("avx2"))) static uint32_t sum_of(__m256i lanes)
{
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1));
  return (uint32_t)_mm_cvtsi128_si32(four);
}

/* The second sum has each byte as often as it has bytes from it to the end: within a step 32 to 1 times, and once more for each byte of
 * the steps that follow. */
__attribute__((target("avx2"))) static uint32_t with_vectors(uint32_t sum, const uint8_t *at, size_t size)
{
  const __m256i zero = _mm256_setzero_si256(), ones = _mm256_set1_epi16(1);
  const __m256i times = _mm256_set_epi8(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
                                        26, 27, 28, 29, 30, 31, 32);
  uint32_t first = sum & 0xFFFF, second = sum >> 16;
  while (size >= STEP) {
    size_t steps = size / STEP < STEPS ? size / STEP : STEPS;
    __m256i bytes = zero, before = zero, within = zero;
    size -= steps * STEP;
    second += first * (uint32_t)(steps * STEP);
    for (size_t i = 0; i < steps; i++, at += STEP) {
      __m256i step = _mm256_loadu_si256((const __m256i *)(const void *)at);
      before = _mm256_add_epi32(before, bytes);
      bytes = _mm256_add_epi32(bytes, _mm256_sad_epu8(step, zero));
      within = _mm256_add_epi32(within, _mm256_madd_epi16(_mm256_maddubs_epi16(step, times), ones));
    }
    first = (first + sum_of(bytes)) % MODULUS;
    second = (uint32_t)(((uint64_t)second + (uint64_t)STEP * sum_of(before) + sum_of(within)) % MODULUS);
  }
  return rv_adler32_plain(second << 16 | first, at, size);
}

uint32_t rv_adler32(uint32_t sum, const void *data, size_t size)
{
  return __builtin_cpu_supports("avx2") ? with_vectors(sum, data, size) : rv_adler32_plain(sum, data, size);
}

#else

uint32_t rv_adler32(uint32_t sum, const void *data, size_t size)
{
  return rv_adler32_plain(sum, data, size);
}

#endif
