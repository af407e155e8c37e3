#include "base/map.h"

#include <stdlib.h>

enum {
  BLOCK_SHIFT = 9, /* two pages: what one put may have to take */
  BLOCK_LENGTH = 1 << BLOCK_SHIFT,
  CAPACITY_MIN = 16,
  /* Old slots moved by each put or remove: enough to be done before the next rebuilding can begin. An array of C slots grows at
   * 3C/4 entries and may take 3C/4 more; one that shrinks to C/4 slots may take C/16 more. */
  GROW_STEP = 8,
  SHRINK_STEP = 32
};

static bool present(const rv_map_array *array)
{
  return array->single != NULL || array->block != NULL;
}
static size_t capacity(const rv_map_array *array)
{
  return present(array) ? array->mask + 1 : 0;
}
static size_t num_blocks(const rv_map_array *array)
{
  return capacity(array) >> BLOCK_SHIFT;
}

/* NULL where no block is: then nothing was written there, or it has been left behind. */
static rv_map_entry *at(const rv_map_array *array, size_t index)
{
  if (array->single != NULL) return &array->single[index];
  rv_map_entry *block = array->block[index >> BLOCK_SHIFT];
  return block != NULL ? &block[index & (BLOCK_LENGTH - 1)] : NULL;
}

static bool array_new(rv_map *map, rv_map_array *array, size_t slots)
{
  *array = (rv_map_array){.mask = slots - 1};
  size_t bytes = slots <= BLOCK_LENGTH ? slots * sizeof(rv_map_entry) : (slots >> BLOCK_SHIFT) * sizeof(rv_map_entry *);
  if (slots <= BLOCK_LENGTH)
    array->single = calloc(1, bytes);
  else
    array->block = calloc(1, bytes);
  if (!present(array)) return false;
  map->memory += bytes;
  return true;
}

static void free_block(rv_map *map, rv_map_array *array, size_t index)
{
  if (array->block[index] == NULL) return;
  free(array->block[index]);
  array->block[index] = NULL;
  map->memory -= BLOCK_LENGTH * sizeof(rv_map_entry);
}

/* All blocks are free already. */
static void free_directory(rv_map *map, rv_map_array *array)
{
  if (array->single != NULL) map->memory -= capacity(array) * sizeof(rv_map_entry);
  if (array->block != NULL) map->memory -= num_blocks(array) * sizeof(rv_map_entry *);
  free(array->single);
  free(array->block);
  *array = (rv_map_array){0};
}

void rv_map_init(rv_map *map, uint64_t seed)
{
  *map = (rv_map){.hash = rv_hash_by(seed)};
}

bool rv_map_fini_some(rv_map *map, size_t n)
{
  rv_map_array *const arrays[] = {&map->now, &map->old};
  for (size_t i = 0; i < 2; i++) {
    rv_map_array *array = arrays[i];
    for (; array->block != NULL && array->mask + 1 >= BLOCK_LENGTH; array->mask -= BLOCK_LENGTH) {
      size_t last = (array->mask >> BLOCK_SHIFT);
      if (array->block[last] != NULL && n-- == 0) return true;
      free(array->block[last]);
      array->block[last] = NULL;
    }
    free(array->single);
    free(array->block);
    *array = (rv_map_array){0};
  }
  map->count = map->memory = 0;
  return false;
}

void rv_map_fini(rv_map *map)
{
  rv_map_fini_some(map, SIZE_MAX);
  map->moved = 0;
}

void rv_map_clear(rv_map *map)
{
  rv_map_fini(map);
}

static rv_map_entry *find_now(const rv_map *map, uint64_t key, uint64_t hashed, size_t *index)
{
  if (!present(&map->now)) return NULL;
  for (size_t i = hashed & map->now.mask;; i = (i + 1) & map->now.mask) {
    rv_map_entry *entry = at(&map->now, i);
    if (entry == NULL || entry->used == 0) return NULL;
    if (entry->key != key) continue;
    *index = i;
    return entry;
  }
}

/* In the array that is being left, slots below `moved` are no more; what they held stands in the new one. A run that began there
 * goes on at `moved`, since nothing was taken out of it: removed entries stay marked. */
static rv_map_entry *find_old(const rv_map *map, uint64_t key, uint64_t hashed)
{
  if (!present(&map->old)) return NULL;
  size_t home = hashed & map->old.mask;
  size_t begin = home > map->moved ? home : map->moved;
  size_t i = begin;
  do {
    rv_map_entry *entry = at(&map->old, i);
    if (entry == NULL || entry->used == 0) return NULL;
    if (entry->used == 1 && entry->key == key) return entry;
    i = i == map->old.mask ? map->moved : i + 1;
  } while (i != begin);
  return NULL;
}

uint32_t *rv_map_get(const rv_map *map, uint64_t key)
{
  if (map->count == 0) return NULL;
  size_t index;
  uint64_t hashed = rv_hash_of(map->hash, key);
  rv_map_entry *entry = find_now(map, key, hashed, &index);
  if (entry == NULL) entry = find_old(map, key, hashed);
  return entry != NULL ? &entry->value : NULL;
}

void rv_map_prefetch(const rv_map *map, uint64_t key)
{
  if (!present(&map->now)) return;
  uint64_t hashed = rv_hash_of(map->hash, key);
  __builtin_prefetch(at(&map->now, hashed & map->now.mask), 1);
  if (present(&map->old)) __builtin_prefetch(at(&map->old, hashed & map->old.mask), 1);
}

/* The key is absent, and a slot is free somewhere. */
static bool insert_now(rv_map *map, uint64_t key, uint64_t hashed, uint32_t value)
{
  for (size_t i = hashed & map->now.mask;; i = (i + 1) & map->now.mask) {
    rv_map_entry *entry = at(&map->now, i);
    if (entry == NULL) {
      rv_map_entry *block = calloc(BLOCK_LENGTH, sizeof *block);
      if (block == NULL) return false;
      map->memory += BLOCK_LENGTH * sizeof *block;
      map->now.block[i >> BLOCK_SHIFT] = block;
      entry = &block[i & (BLOCK_LENGTH - 1)];
    }
    if (entry->used != 0) continue;
    *entry = (rv_map_entry){.key = key, .value = value, .used = 1};
    return true;
  }
}

/* Moves the entries of the next `slots` slots of the old array; stops early where memory is out, to go on the next time. */
static void move_some(rv_map *map, size_t slots)
{
  if (!present(&map->old)) return;
  bool in_blocks = map->old.block != NULL;
  while (slots > 0 && map->moved <= map->old.mask) {
    rv_map_entry *entry = at(&map->old, map->moved);
    if (entry == NULL) {
      map->moved = (map->moved | (BLOCK_LENGTH - 1)) + 1;
      slots--;
      continue;
    }
    if (entry->used == 1 && !insert_now(map, entry->key, rv_hash_of(map->hash, entry->key), entry->value)) return;
    map->moved++;
    slots--;
    if (in_blocks && (map->moved & (BLOCK_LENGTH - 1)) == 0) free_block(map, &map->old, (map->moved >> BLOCK_SHIFT) - 1);
  }
  if (map->moved <= map->old.mask) return;
  free_directory(map, &map->old);
  map->moved = 0;
}

static void move_step(rv_map *map)
{
  move_some(map, map->old.mask > map->now.mask ? SHRINK_STEP : GROW_STEP);
}

static bool rebuild(rv_map *map, size_t slots)
{
  rv_map_array next;
  if (!array_new(map, &next, slots)) return false;
  map->old = map->now;
  map->now = next;
  map->moved = 0;
  return true;
}

static bool make_room(rv_map *map)
{
  size_t slots = capacity(&map->now);
  if (map->count + 1 <= slots / 4 * 3) return true;
  move_some(map, SIZE_MAX); /* does nothing unless memory was out before */
  if (present(&map->old) || slots > SIZE_MAX / 4 / sizeof(rv_map_entry)) return false;
  return rebuild(map, slots == 0 ? CAPACITY_MIN : slots * 2);
}

rv_code rv_map_put(rv_map *map, uint64_t key, uint32_t value)
{
  uint64_t hashed = rv_hash_of(map->hash, key);
  size_t index;
  rv_map_entry *entry = find_now(map, key, hashed, &index);
  if (entry == NULL) entry = find_old(map, key, hashed);
  if (entry != NULL) {
    entry->value = value;
    return RV_OK;
  }
  if (!make_room(map) || !insert_now(map, key, hashed, value)) return RV_RESOURCE_EXHAUSTED;
  map->count++;
  move_step(map);
  return RV_OK;
}

/* Closes the gap, so that no mark of a removed entry ever lengthens a search. */
static void remove_now(rv_map *map, size_t gap)
{
  for (size_t i = gap;;) {
    i = (i + 1) & map->now.mask;
    rv_map_entry *entry = at(&map->now, i);
    if (entry == NULL || entry->used == 0) break;
    size_t home = rv_hash_of(map->hash, entry->key) & map->now.mask;
    if (((i - home) & map->now.mask) < ((i - gap) & map->now.mask)) continue;
    *at(&map->now, gap) = *entry;
    gap = i;
  }
  at(&map->now, gap)->used = 0;
}

bool rv_map_remove(rv_map *map, uint64_t key)
{
  uint64_t hashed = rv_hash_of(map->hash, key);
  size_t index;
  rv_map_entry *entry = find_now(map, key, hashed, &index);
  if (entry != NULL) {
    remove_now(map, index);
  } else {
    entry = find_old(map, key, hashed);
    if (entry == NULL) return false;
    entry->used = 2;
  }
  map->count--;
  if (present(&map->old))
    move_step(map);
  else if (map->now.mask + 1 >= 4 * CAPACITY_MIN && map->count < (map->now.mask + 1) / 8)
    rebuild(map, (map->now.mask + 1) / 4);
  return true;
}
