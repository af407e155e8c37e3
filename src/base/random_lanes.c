#include "base/random_lanes.h"

#include <stdbool.h>
#include <string.h>

#if defined(__GNUC__) && defined(__x86_64__)
#define RV_RANDOM_X86
#include <immintrin.h>
#endif

enum { GROUP = 2 * RV_RANDOM_LANES }; /* each generator's number makes two: of its lower half, and of its upper half */

void rv_random_lanes_init(rv_random_lanes *lanes, uint64_t seed)
{
  rv_random seeds;
  rv_random_init(&seeds, seed);
  for (size_t i = 0; i < RV_RANDOM_LANES; i++) {
    rv_random one;
    rv_random_init(&one, rv_random_next(&seeds));
    for (size_t k = 0; k < 4; k++) lanes->s[k][i] = one.s[k];
  }
  rv_random_init(&lanes->again, rv_random_next(&seeds));
}

/* Products of 32 random bits and `below`: the upper half of each is the number drawn, and by the lower half some are too many to be fair
 * (Lemire 2019). Mostly there is none to look at. */
static void draw_again(rv_random_lanes *lanes, uint32_t below, uint32_t *out, const uint32_t *lower)
{
  const uint32_t threshold = (0U - below) % below;
  for (size_t i = 0; i < GROUP; i++)
    if (lower[i] < threshold) out[i] = rv_random_below(&lanes->again, below);
}

/* The last group of n numbers, of which fewer are wanted. */
static void draw_rest(rv_random_lanes *lanes, uint32_t below, uint32_t *out, size_t n,
                      void (*draw)(rv_random_lanes *lanes, uint32_t below, uint32_t *out, size_t n))
{
  uint32_t group[GROUP];
  if (n == 0) return;
  draw(lanes, below, group, GROUP);
  memcpy(out, group, n * sizeof *out);
}

static void below_plain(rv_random_lanes *lanes, uint32_t below, uint32_t *out, size_t n)
{
  for (; n >= GROUP; n -= GROUP, out += GROUP) {
    uint32_t lower[GROUP];
    bool again = false;
    for (size_t i = 0; i < RV_RANDOM_LANES; i++) {
      rv_random one = {{lanes->s[0][i], lanes->s[1][i], lanes->s[2][i], lanes->s[3][i]}};
      uint64_t bits = rv_random_next(&one);
      for (size_t k = 0; k < 4; k++) lanes->s[k][i] = one.s[k];
      uint64_t first = (uint64_t)(uint32_t)bits * below, second = (bits >> 32) * below;
      out[2 * i] = (uint32_t)(first >> 32);
      out[2 * i + 1] = (uint32_t)(second >> 32);
      lower[2 * i] = (uint32_t)first;
      lower[2 * i + 1] = (uint32_t)second;
      again |= (uint32_t)first < below || (uint32_t)second < below;
    }
    if (again) draw_again(lanes, below, out, lower);
  }
  draw_rest(lanes, below, out, n, below_plain);
}

#ifdef RV_RANDOM_X86

__attribute__((target("avx512f"))) static void below_avx512(rv_random_lanes *lanes, uint32_t below, uint32_t *out, size_t n)
{
  const __m512i bound = _mm512_set1_epi64(below), bounds = _mm512_set1_epi32((int)below);
  __m512i a = _mm512_loadu_si512(lanes->s[0]), b = _mm512_loadu_si512(lanes->s[1]);
  __m512i c = _mm512_loadu_si512(lanes->s[2]), d = _mm512_loadu_si512(lanes->s[3]);
  for (; n >= GROUP; n -= GROUP, out += GROUP) {
    __m512i bits = _mm512_add_epi64(_mm512_rol_epi64(_mm512_add_epi64(a, d), 23), a), t = _mm512_slli_epi64(b, 17);
    c = _mm512_xor_si512(c, a);
    d = _mm512_xor_si512(d, b);
    b = _mm512_xor_si512(b, c);
    a = _mm512_xor_si512(a, d);
    c = _mm512_xor_si512(c, t);
    d = _mm512_rol_epi64(d, 45);
    __m512i first = _mm512_mul_epu32(bits, bound), second = _mm512_mul_epu32(_mm512_srli_epi64(bits, 32), bound);
    const __mmask16 odd = 0xAAAA;
    _mm512_storeu_si512(out, _mm512_mask_blend_epi32(odd, _mm512_srli_epi64(first, 32), second));
    __m512i lower = _mm512_mask_blend_epi32(odd, first, _mm512_slli_epi64(second, 32));
    if (_mm512_cmplt_epu32_mask(lower, bounds) != 0) {
      uint32_t looked_at[GROUP];
      _mm512_storeu_si512(looked_at, lower);
      draw_again(lanes, below, out, looked_at);
    }
  }
  _mm512_storeu_si512(lanes->s[0], a);
  _mm512_storeu_si512(lanes->s[1], b);
  _mm512_storeu_si512(lanes->s[2], c);
  _mm512_storeu_si512(lanes->s[3], d);
  draw_rest(lanes, below, out, n, below_avx512);
}

#endif

size_t rv_random_lanes_steps_here(rv_random_lanes_steps out[3])
{
  size_t n = 0;
#ifdef RV_RANDOM_X86
  if (__builtin_cpu_supports("avx512f")) out[n++] = (rv_random_lanes_steps){"avx512", below_avx512};
#endif
  out[n++] = (rv_random_lanes_steps){"plain", below_plain};
  return n;
}

void rv_random_lanes_below(rv_random_lanes *lanes, uint32_t below, uint32_t *out, size_t n)
{
#ifdef RV_RANDOM_X86
  if (__builtin_cpu_supports("avx512f")) {
    below_avx512(lanes, below, out, n);
    return;
  }
#endif
  below_plain(lanes, below, out, n);
}
