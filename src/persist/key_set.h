/* Which keys are taken, in 5 to 11 bytes each: of a key only 32 bits of its hash are kept. A key that is told to be free is free; of
 * those that are free about one in 2^32 / count is told to be taken, and who wants one looks for another. */
#ifndef RV_PERSIST_KEY_SET_H
#define RV_PERSIST_KEY_SET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/hash.h"
#include "reverie/status.h"

typedef struct rv_key_set {
  uint32_t *slots; /* 2^bits parts of hashes, each where its highest bits say or behind that; 0: free */
  unsigned bits;   /* 0: there are none */
  size_t count;
  rv_hash hash;
} rv_key_set;

/* No memory is taken until the first is added. */
void rv_key_set_init(rv_key_set *set, uint64_t seed);
void rv_key_set_clear(rv_key_set *set); /* keeps nothing, no memory either */

bool rv_key_set_may_have(const rv_key_set *set, uint64_t key);
/* Fetches what looking for the key and adding it will need from memory, without waiting for it. */
void rv_key_set_prefetch(const rv_key_set *set, uint64_t key);
/* Once more, where it is in already. RV_RESOURCE_EXHAUSTED: the set is as it was. */
rv_code rv_key_set_add(rv_key_set *set, uint64_t key);
size_t rv_key_set_bytes(const rv_key_set *set); /* of memory */
/* A key that was added: once less. */
void rv_key_set_remove(rv_key_set *set, uint64_t key);

#endif
