#include "store/selectors/weights.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Nobody here looks at floating-point exceptions, and a compiler that need not keep them can compare in vectors. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

/* Compiled into each of its callers, for that caller's processor. */
#define INLINE static inline __attribute__((always_inline))

enum { BLOCK = 64 };

/* 2^52 and 1.5 * 2^52: added to a small number they bring its integer part into the low bits of the sum. */
#define TWO52 0x1p52
#define ROUND 0x1.8p52
#define SQRT_HALF_BITS UINT64_C(0x3FE6A09E667F3BCD)
#define EXPONENT_MASK UINT64_C(0xFFF0000000000000)

INLINE uint64_t bits_of(double x)
{
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

INLINE double of_bits(uint64_t bits)
{
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* x = 2^k * m with m in [sqrt(1/2), sqrt(2)); log2(m) = 2/ln(2) * artanh((m - 1) / (m + 1)), by its series. x > 0 and normal. */
INLINE double log2_of(double x)
{
  uint64_t offset = bits_of(x) - SQRT_HALF_BITS;
  uint64_t biased = (offset + (UINT64_C(2048) << 52)) >> 52; /* k + 2048 */
  double k = of_bits(biased | UINT64_C(0x4330000000000000)) - (TWO52 + 2048);
  double m = of_bits(bits_of(x) - (offset & EXPONENT_MASK));
  double t = (m - 1) / (m + 1);
  double s = t * t, s2 = s * s, s4 = s2 * s2;
  double p01 = 1.0 / 3 + s * (1.0 / 5), p23 = 1.0 / 7 + s * (1.0 / 9), p45 = 1.0 / 11 + s * (1.0 / 13);
  double p67 = 1.0 / 15 + s * (1.0 / 17), p89 = 1.0 / 19 + s * (1.0 / 21);
  double p = (p01 + s2 * p23) + s4 * ((p45 + s2 * p67) + s4 * p89);
  return k + 0x1.71547652b82fep+1 * (t + t * s * p);
}

/* 2^y = 2^n * 2^f with f in [-1/2, 1/2], by the series of e^(f ln 2). y in [-1022, 960]. */
INLINE double exp2_of(double y)
{
  double shifted = y + ROUND;
  double f = (y - (shifted - ROUND)) * 0x1.62e42fefa39efp-1;
  double f2 = f * f, f4 = f2 * f2;
  double p23 = 1.0 / 2 + f * (1.0 / 6), p45 = 1.0 / 24 + f * (1.0 / 120), p67 = 1.0 / 720 + f * (1.0 / 5040);
  double p89 = 1.0 / 40320 + f * (1.0 / 362880), pab = 1.0 / 3628800 + f * (1.0 / 39916800);
  double pcd = 1.0 / 479001600 + f * (1.0 / 6227020800);
  double high = (p89 + f2 * pab) + f4 * pcd;
  double p = 1 + (f + f2 * (p23 + f2 * p45 + f4 * (p67 + f2 * high)));
  return p * of_bits((bits_of(shifted) + 1023) << 52); /* n stands in the low bits */
}

/* False: some are below the normal numbers, whose bits mean something else, or zero; `out` is wrong for those. */
INLINE bool power_of_normal(double exponent, const double *restrict in, double *restrict out, size_t n)
{
  uint64_t normal = UINT64_MAX;
  for (size_t i = 0; i < n; i++) {
    normal &= in[i] < RV_WEIGHT_MIN ? 0 : UINT64_MAX;
    double x = in[i] < RV_WEIGHT_MIN ? RV_WEIGHT_MIN : in[i];
    double y = exponent * log2_of(x);
    y = y < -1022 ? -1022 : y;
    y = y > 960 ? 960 : y;
    out[i] = exp2_of(y);
  }
  return normal != 0;
}

/* The same code, for processors that have wider vectors than all of their kind have. */
static bool power_narrow(double exponent, const double *in, double *out, size_t n)
{
  return power_of_normal(exponent, in, out, n);
}
#if defined(__GNUC__) && defined(__x86_64__)
#ifdef __clang__
#define WIDEST "avx512f,avx512dq,avx512vl"
#else
#define WIDEST "avx512f,avx512dq,avx512vl,prefer-vector-width=512"
#endif
__attribute__((target("avx2"))) static bool power_wide(double exponent, const double *in, double *out, size_t n)
{
  return power_of_normal(exponent, in, out, n);
}
__attribute__((target(WIDEST))) static bool power_widest(double exponent, const double *in, double *out, size_t n)
{
  return power_of_normal(exponent, in, out, n);
}

static bool power_here(double exponent, const double *in, double *out, size_t n)
{
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return power_widest(exponent, in, out, n);
  if (__builtin_cpu_supports("avx2")) return power_wide(exponent, in, out, n);
  return power_narrow(exponent, in, out, n);
}
#else
static bool power_here(double exponent, const double *in, double *out, size_t n)
{
  return power_narrow(exponent, in, out, n);
}
#endif

static void power(double exponent, const double *in, double *out, size_t n)
{
  if (power_here(exponent, in, out, n)) return;
  for (size_t i = 0; i < n; i++) {
    if (in[i] >= RV_WEIGHT_MIN) continue;
    double w = in[i] > 0 ? pow(in[i], exponent) : 0;
    w = w > RV_WEIGHT_MAX ? RV_WEIGHT_MAX : w;
    out[i] = in[i] > 0 && w < RV_WEIGHT_MIN ? RV_WEIGHT_MIN : w;
  }
}

static void first_power(const double *restrict in, double *restrict out, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    double x = in[i] < RV_WEIGHT_MIN ? RV_WEIGHT_MIN : in[i];
    x = x > RV_WEIGHT_MAX ? RV_WEIGHT_MAX : x;
    out[i] = in[i] > 0 ? x : 0;
  }
}

static void zeroth_power(const double *restrict in, double *restrict out, size_t n)
{
  for (size_t i = 0; i < n; i++) out[i] = in[i] > 0 ? 1 : 0;
}

void rv_weigh(double exponent, const double *priorities, double *weights, size_t n)
{
  double in[BLOCK];
  for (size_t begin = 0; begin < n; begin += BLOCK) {
    size_t count = n - begin < BLOCK ? n - begin : BLOCK;
    memcpy(in, priorities + begin, count * sizeof *in);
    if (exponent == 1)
      first_power(in, weights + begin, count);
    else if (exponent == 0)
      zeroth_power(in, weights + begin, count);
    else
      power(exponent, in, weights + begin, count);
  }
}
