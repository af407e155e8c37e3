/* The chunks that one InsertStream may refer to: private to the stream, bounded in bytes, trimmed by each request's
 * keep_chunk_keys. */
#ifndef RV_SERVER_CHUNK_MAP_H
#define RV_SERVER_CHUNK_MAP_H

#include "base/map.h"
#include "store/joined.h"

typedef struct rv_chunk_entry {
  rv_chunk_place place; /* one reference to its chunk */
  uint32_t kept;        /* number of the last trim that named it */
} rv_chunk_entry;

/* What is counted of an entry beside its chunk: itself, and its place in the index, half of whose places are free. */
enum { RV_CHUNK_ENTRY_BYTES = sizeof(rv_chunk_entry) + 2 * sizeof(rv_map_entry) };

typedef struct rv_chunk_map {
  rv_map index; /* key to place in `entries` */
  rv_chunk_entry *entries;
  size_t count, capacity;
  size_t bytes, max_bytes;
  uint32_t trims;
} rv_chunk_map;

void rv_chunk_map_init(rv_chunk_map *map, uint64_t seed, size_t max_bytes);
void rv_chunk_map_fini(rv_chunk_map *map);
/* Borrowed; false when absent. */
bool rv_chunk_map_get(const rv_chunk_map *map, uint64_t key, rv_chunk_place *out);
/* Takes the reference to the chunk, also on failure. A chunk whose key is there already is dropped. One that was joined counts as its segment does, and
 * further ones in the same segment as nothing. RV_RESOURCE_EXHAUSTED: over the bound. */
rv_code rv_chunk_map_put(rv_chunk_map *map, const rv_chunk_place *owned_place, rv_error *err);
/* Drops all chunks but those. RV_FAILED_PRECONDITION if the number left is not the number of keys: an unknown or repeated key. */
rv_code rv_chunk_map_keep(rv_chunk_map *map, const uint64_t *keys, size_t n, rv_error *err);

#endif
