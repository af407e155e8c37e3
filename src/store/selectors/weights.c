#include "store/selectors/weights.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { BLOCK = 64 };

/* 2^52 and 1.5 * 2^52: added to a small number they bring its integer part into the low bits of the sum. */
#define TWO52 0x1p52
#define ROUND 0x1.8p52
#define SQRT_HALF_BITS UINT64_C(0x3FE6A09E667F3BCD)
#define EXPONENT_MASK UINT64_C(0xFFF0000000000000)

static uint64_t bits_of(double x)
{
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static double of_bits(uint64_t bits)
{
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* x = 2^k * m with m in [sqrt(1/2), sqrt(2)); log2(m) = 2/ln(2) * artanh((m - 1) / (m + 1)), by its series. x > 0 and normal. */
static inline double log2_of(double x)
{
  uint64_t offset = bits_of(x) - SQRT_HALF_BITS;
  uint64_t biased = (offset + (UINT64_C(2048) << 52)) >> 52; /* k + 2048 */
  double k = of_bits(biased | UINT64_C(0x4330000000000000)) - (TWO52 + 2048);
  double m = of_bits(bits_of(x) - (offset & EXPONENT_MASK));
  double t = (m - 1) / (m + 1);
  double s = t * t;
  double p = 1.0 / 21;
  p = p * s + 1.0 / 19;
  p = p * s + 1.0 / 17;
  p = p * s + 1.0 / 15;
  p = p * s + 1.0 / 13;
  p = p * s + 1.0 / 11;
  p = p * s + 1.0 / 9;
  p = p * s + 1.0 / 7;
  p = p * s + 1.0 / 5;
  p = p * s + 1.0 / 3;
  return k + 0x1.71547652b82fep+1 * (t + t * s * p);
}

/* 2^y = 2^n * 2^f with f in [-1/2, 1/2], by the series of e^(f ln 2). y in [-1022, 960]. */
static inline double exp2_of(double y)
{
  double shifted = y + ROUND;
  double f = (y - (shifted - ROUND)) * 0x1.62e42fefa39efp-1;
  double p = 1.0 / 6227020800;
  p = p * f + 1.0 / 479001600;
  p = p * f + 1.0 / 39916800;
  p = p * f + 1.0 / 3628800;
  p = p * f + 1.0 / 362880;
  p = p * f + 1.0 / 40320;
  p = p * f + 1.0 / 5040;
  p = p * f + 1.0 / 720;
  p = p * f + 1.0 / 120;
  p = p * f + 1.0 / 24;
  p = p * f + 1.0 / 6;
  p = p * f + 1.0 / 2;
  p = p * f + 1;
  p = p * f + 1;
  return p * of_bits((bits_of(shifted) + 1023) << 52); /* n stands in the low bits */
}

static void power(double exponent, const double *restrict in, double *restrict out, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    double x = in[i] < RV_WEIGHT_MIN ? RV_WEIGHT_MIN : in[i];
    double y = exponent * log2_of(x);
    y = y < -1022 ? -1022 : y;
    y = y > 960 ? 960 : y;
    out[i] = in[i] > 0 ? exp2_of(y) : 0;
  }
  for (size_t i = 0; i < n; i++) { /* below the normal numbers the bits mean something else */
    if (in[i] >= RV_WEIGHT_MIN || in[i] <= 0) continue;
    double w = pow(in[i], exponent);
    out[i] = w < RV_WEIGHT_MIN ? RV_WEIGHT_MIN : w;
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
