/* Priorities, many of which are looked at together. */
#ifndef RV_STORE_PRIORITIES_H
#define RV_STORE_PRIORITIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* True: all are finite, and no sign bit is set where `without_sign`. False: one is not, which may be a -0.0 that is fine by itself, so look at
 * each. An exponent of all ones (infinite, NaN) has a carry into the highest bit: whole numbers, in which compilers find vectors for any
 * processor, as they do not in comparisons of floats. */
static inline bool rv_priorities_are_plain(const double *priorities, size_t n, bool without_sign)
{
  const uint64_t exponent = UINT64_C(0x7FF) << 52, one = UINT64_C(1) << 52, sign = UINT64_C(1) << 63;
  const uint64_t asked = without_sign ? sign : 0;
  uint64_t odd = 0;
  for (size_t i = 0; i < n; i++) {
    uint64_t bits;
    memcpy(&bits, &priorities[i], sizeof bits);
    odd |= (bits & asked) | ((bits & exponent) + one);
  }
  return (odd & sign) == 0;
}

#endif
