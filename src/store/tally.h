/* Counts how often each thing comes in a batch, so that its references are taken or dropped in one step: few chunks and
 * templates stand behind many items. A small table forgets the others early, which costs time and nothing else. */
#ifndef RV_STORE_TALLY_H
#define RV_STORE_TALLY_H

#include <stddef.h>
#include <stdint.h>

enum { RV_TALLY_SIZE = 32 };

typedef struct rv_tally {
  void *thing[RV_TALLY_SIZE];
  uint32_t count[RV_TALLY_SIZE];
} rv_tally;

typedef void (*rv_tally_settle)(void *thing, size_t n);

static inline void rv_tally_init(rv_tally *tally)
{
  for (size_t i = 0; i < RV_TALLY_SIZE; i++) {
    tally->thing[i] = NULL;
    tally->count[i] = 0;
  }
}

static inline void rv_tally_add(rv_tally *tally, void *thing, rv_tally_settle settle)
{
  size_t at = ((uintptr_t)thing >> 6 ^ (uintptr_t)thing >> 12) % RV_TALLY_SIZE;
  if (tally->thing[at] != thing) {
    if (tally->count[at] > 0) settle(tally->thing[at], tally->count[at]);
    tally->thing[at] = thing;
    tally->count[at] = 0;
  }
  tally->count[at]++;
}

static inline void rv_tally_end(rv_tally *tally, rv_tally_settle settle)
{
  for (size_t i = 0; i < RV_TALLY_SIZE; i++)
    if (tally->count[i] > 0) settle(tally->thing[i], tally->count[i]);
}

#endif
