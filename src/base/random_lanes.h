/* Eight generators (random.h) beside each other, which a processor with vectors runs as one: for whoever draws many numbers at a time.
 * All processors draw the same. One state belongs to one thread or one lock. */
#ifndef RV_BASE_RANDOM_LANES_H
#define RV_BASE_RANDOM_LANES_H

#include <stddef.h>

#include "base/random.h"

enum { RV_RANDOM_LANES = 8 };

typedef struct rv_random_lanes {
  uint64_t s[4][RV_RANDOM_LANES]; /* of generator i: s[0][i] to s[3][i] */
  rv_random again;                /* for what has to be drawn again */
} rv_random_lanes;

void rv_random_lanes_init(rv_random_lanes *lanes, uint64_t seed);
/* n numbers uniform in [0, below), below > 0, without bias, as rv_random_below. */
void rv_random_lanes_below(rv_random_lanes *lanes, uint32_t below, uint32_t *out, size_t n);

/* ---- for their test ---- */

typedef struct rv_random_lanes_steps {
  const char *name;
  void (*below)(rv_random_lanes *lanes, uint32_t below, uint32_t *out, size_t n);
} rv_random_lanes_steps;
/* Those that this processor can run; how many. */
size_t rv_random_lanes_steps_here(rv_random_lanes_steps out[3]);

#endif
