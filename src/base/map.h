/* A hash map from 64-bit keys to 32-bit values, seeded so that a peer who chooses keys cannot make it slow, growing in small
 * steps so that no insert pays for all the others: while it grows, each call moves a few entries from the old array. */
#ifndef RV_BASE_MAP_H
#define RV_BASE_MAP_H

#include "reverie/status.h"

typedef struct rv_map_entry {
  uint64_t key;
  uint32_t value;
  uint32_t used; /* 0 free, 1 used */
} rv_map_entry;

typedef struct rv_map {
  rv_map_entry *entries, *old;
  size_t mask, old_mask; /* capacity - 1 */
  size_t count;          /* in both arrays */
  size_t moved;          /* entries of `old` already moved */
  uint64_t seed;
} rv_map;

/* No memory is taken until the first put. */
void rv_map_init(rv_map *map, uint64_t seed);
void rv_map_fini(rv_map *map);
/* Finds the key's value; NULL when it is absent. Valid until the next put or remove. */
uint32_t *rv_map_get(const rv_map *map, uint64_t key);
/* Sets the key's value. RV_RESOURCE_EXHAUSTED: the map is as it was. */
rv_code rv_map_put(rv_map *map, uint64_t key, uint32_t value);
/* false: it was absent. */
bool rv_map_remove(rv_map *map, uint64_t key);
void rv_map_clear(rv_map *map); /* keeps nothing */

#endif
