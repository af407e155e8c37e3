/* Which parts of a file are in use. Every byte below `end` is in a range, in use or idle; idle ranges that come to lie beside each other are one.
 *
 * What is taken is cut from the front of one large idle range, then of another, so that the file is written in order as long as there are large
 * ones; while a quarter of the file is idle, small ones are filled before it grows. To take and to give back needs no search: idle ranges
 * are listed by the class of their size. Not thread-safe. */
#ifndef RV_PERSIST_RANGES_H
#define RV_PERSIST_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/size_class.h"

enum { RV_RANGE_UNIT = 16 };

typedef struct rv_range {
  size_t begin, size; /* multiples of RV_RANGE_UNIT */
  bool idle;
  rv_link beside; /* in the order of the file */
  rv_link alike;  /* idle: in the list of its class */
} rv_range;

typedef struct rv_ranges {
  size_t end;    /* of the last range */
  size_t limit;  /* which `end` does not pass */
  size_t step;   /* by which it grows, at least */
  size_t idle;   /* bytes */
  rv_range *run; /* which is being cut from; NULL: none */
  rv_link order;
  rv_link classes[RV_SIZE_CLASSES];
  uint64_t some[RV_SIZE_CLASSES / 64]; /* classes that are not empty */
} rv_ranges;

void rv_ranges_init(rv_ranges *ranges, size_t limit, size_t step);
/* Those in use, too. */
void rv_ranges_fini(rv_ranges *ranges);
/* A range of `size` bytes (at least 1) or a few more, until it is given back. NULL, with errno: ENOSPC where none is so large and the end may not
 * move so far, ENOMEM. */
rv_range *rv_ranges_take(rv_ranges *ranges, size_t size);
void rv_ranges_give(rv_ranges *ranges, rv_range *owned_range);
/* What is idle at the end is none of the file any more, as far down as `end`. */
void rv_ranges_cut(rv_ranges *ranges, size_t end);

#endif
