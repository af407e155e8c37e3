/* Things by their size: four classes from one power of two to the next, so that those of a class differ by a quarter at most. */
#ifndef RV_BASE_SIZE_CLASS_H
#define RV_BASE_SIZE_CLASS_H

#include <stddef.h>

enum { RV_SIZE_CLASSES = 256 };

static inline size_t rv_size_class(size_t bytes)
{
  if (bytes < 4) return bytes;
  size_t power = (size_t)(63 - __builtin_clzll(bytes));
  return 4 * (power - 1) + (bytes >> (power - 2) & 3);
}

#endif
