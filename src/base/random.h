/* xoshiro256++ (Blackman and Vigna, 2019), seeded by splitmix64. One state belongs to one thread or one lock. */
#ifndef RV_BASE_RANDOM_H
#define RV_BASE_RANDOM_H

#include <stdint.h>

typedef struct rv_random {
  uint64_t s[4];
} rv_random;

static inline void rv_random_init(rv_random *random, uint64_t seed)
{
  for (int i = 0; i < 4; i++) {
    uint64_t z = seed += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    random->s[i] = z ^ (z >> 31);
  }
}

static inline uint64_t rv_rotl64(uint64_t x, int k)
{
  return (x << k) | (x >> (64 - k));
}

static inline uint64_t rv_random_next(rv_random *random)
{
  uint64_t *s = random->s;
  uint64_t result = rv_rotl64(s[0] + s[3], 23) + s[0];
  uint64_t t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = rv_rotl64(s[3], 45);
  return result;
}

/* Uniform in [0, n), n > 0, without bias (Lemire 2019): of 32 random bits, and of more where those do not decide. */
static inline uint32_t rv_random_below_of(rv_random *random, uint32_t bits, uint32_t n)
{
  uint64_t product = (uint64_t)bits * n;
  if ((uint32_t)product < n) {
    uint32_t threshold = (0U - n) % n;
    while ((uint32_t)product < threshold) product = (uint64_t)(uint32_t)rv_random_next(random) * n;
  }
  return (uint32_t)(product >> 32);
}

static inline uint32_t rv_random_below(rv_random *random, uint32_t n)
{
  return rv_random_below_of(random, (uint32_t)rv_random_next(random), n);
}

/* Uniform in [0, 1), 53 bits. */
static inline double rv_random_unit(rv_random *random)
{
  return (double)(rv_random_next(random) >> 11) * 0x1.0p-53;
}

#endif
