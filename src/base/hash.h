/* A hash of 64-bit keys by a secret, so that a peer who chooses keys cannot choose where they fall. */
#ifndef RV_BASE_HASH_H
#define RV_BASE_HASH_H

#include <stdint.h>

typedef struct rv_hash {
  uint64_t seed, multiplier;
} rv_hash;

static inline uint64_t rv_hash_fold(uint64_t a, uint64_t b)
{
  __extension__ typedef unsigned __int128 wide;
  wide product = (wide)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline rv_hash rv_hash_by(uint64_t seed)
{
  return (rv_hash){seed, rv_hash_fold(seed ^ UINT64_C(0xA0761D6478BD642F), UINT64_C(0xE7037ED1A0B428DB)) | 1U};
}

static inline uint64_t rv_hash_of(rv_hash hash, uint64_t key)
{
  uint64_t folded = rv_hash_fold(key ^ hash.seed, hash.multiplier);
  return rv_hash_fold(folded ^ hash.multiplier, UINT64_C(0x9E3779B97F4A7C15));
}

#endif
