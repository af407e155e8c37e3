/* A hash map from 64-bit keys to 32-bit values, seeded so that a peer who chooses keys cannot make it slow, growing and shrinking
 * in small steps so that no put pays for all the others: while it is rebuilt, each put and remove moves a few entries from the
 * old array. The arrays stand in blocks that are allocated when first written and freed as they are left behind. A map may be
 * moved by copying the struct: whoever must not free much at once copies it away, makes a new one, and frees the copy later. */
#ifndef RV_BASE_MAP_H
#define RV_BASE_MAP_H

#include "base/hash.h"
#include "reverie/status.h"

typedef struct rv_map_entry {
  uint64_t key;
  uint32_t value;
  uint32_t used; /* 0 free, 1 used, 2 no more (only in an array that is being left) */
} rv_map_entry;

typedef struct rv_map_array {
  rv_map_entry *single; /* all entries, if they are at most a block's */
  rv_map_entry **block; /* else; NULL where nothing was written yet */
  size_t mask;          /* capacity - 1 */
} rv_map_array;

typedef struct rv_map {
  rv_map_array now, old;
  size_t count;  /* in both arrays */
  size_t moved;  /* entries of `old` left behind */
  size_t memory; /* bytes of both */
  rv_hash hash;
} rv_map;

/* No memory is taken until the first put. */
void rv_map_init(rv_map *map, uint64_t seed);
void rv_map_fini(rv_map *map);
/* Frees at most `n` blocks of a map that was copied away; false when nothing is left. Only fini may follow. */
bool rv_map_fini_some(rv_map *map, size_t n);
/* Finds the key's value; NULL when it is absent. Valid until the next put or remove. */
uint32_t *rv_map_get(const rv_map *map, uint64_t key);
/* Fetches what finding the key will need from memory, without waiting for it. */
void rv_map_prefetch(const rv_map *map, uint64_t key);
/* Sets the key's value. RV_RESOURCE_EXHAUSTED: the map is as it was. */
rv_code rv_map_put(rv_map *map, uint64_t key, uint32_t value);
/* false: it was absent. */
bool rv_map_remove(rv_map *map, uint64_t key);
void rv_map_clear(rv_map *map); /* keeps nothing */
static inline size_t rv_map_memory(const rv_map *map)
{
  return map->memory;
}

#endif
