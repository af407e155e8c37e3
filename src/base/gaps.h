/* Bytes of a message that were not copied into it: they still lie where its sender lends them (net/ring.h).
 *
 * Whoever only wants them somewhere else copies them from there, and nobody reads the message where it has gaps. What was copied is good only
 * if they were still lent afterwards. */
#ifndef RV_BASE_GAPS_H
#define RV_BASE_GAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/crew.h"

enum {
  RV_MOST_GAPS = 128,
  RV_GAPS_WORTH_HELP = 128 << 10 /* bytes: a message of 256 KiB is worth a helper who is awake */
};

typedef struct rv_gap {
  uint8_t *to; /* where they belong */
  const uint8_t *from;
  size_t size;
} rv_gap;

typedef struct rv_gaps {
  size_t count;
  rv_gap gap[RV_MOST_GAPS]; /* by rising `to` */
} rv_gaps;

/* Copies `size` bytes of the message, from `in` on, to `out`, which is elsewhere. `past_caches`: it is not read soon (base/past_caches.h). */
void rv_gaps_copy(const rv_gaps *gaps, bool past_caches, uint8_t *out, const uint8_t *in, size_t size);
/* The same, and `crew` helps; NULL: nobody does. */
void rv_gaps_copy_together(rv_crew *crew, const rv_gaps *gaps, bool past_caches, uint8_t *out, const uint8_t *in, size_t size);
/* Copies all to where they belong. */
void rv_gaps_fill(const rv_gaps *gaps);

#endif
