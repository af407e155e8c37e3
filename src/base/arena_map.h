/* Arenas (arena.h) as other processes map them: once for all who have the same maps, however many connections told of them. Thread-safe. */
#ifndef RV_BASE_ARENA_MAP_H
#define RV_BASE_ARENA_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rv_arena_maps rv_arena_maps;
typedef struct rv_arena_map rv_arena_map;

typedef enum rv_arena_access { RV_ARENA_READ, RV_ARENA_WRITE } rv_arena_access;

/* Of each that is written to about so many bytes are in this process's memory at a time, as the system counts it: or all who write to many blocks would
 * seem as large as the process whose they are. NULL: out of memory. */
rv_arena_maps *rv_arena_maps_new(size_t most_bytes);
void rv_arena_maps_unref(rv_arena_maps *maps); /* the owner's; what is mapped stays until nobody has it. NULL is fine */

/* Of what rv_arena_file gave, or rv_arena_file_to_write; the descriptor stays the caller's. At most so many segments are mapped, as the first says who
 * opens it. One reference. NULL: it is no arena's, or memory or descriptors are out. */
rv_arena_map *rv_arena_map_open(rv_arena_maps *maps, int fd, rv_arena_access access, size_t most_segments);
void rv_arena_map_unref(rv_arena_map *map); /* NULL is fine */
/* Bytes of all of it; and its file, the map's. */
size_t rv_arena_map_size(const rv_arena_map *map);
int rv_arena_map_file(const rv_arena_map *map);
/* Bytes of one block. NULL: there can be none, or they cannot be mapped (they can be read from the file then). */
const uint8_t *rv_arena_map_at(rv_arena_map *map, uint64_t offset, uint64_t size);
/* The same of a map that was opened for writing; of another NULL. */
uint8_t *rv_arena_map_to_fill(rv_arena_map *map, uint64_t offset, uint64_t size);
/* Not in a forked child, which has nothing of it. */
bool rv_arena_map_is_of_this_process(const rv_arena_map *map);
/* Does that address lie in what is mapped? */
bool rv_arena_map_has(const rv_arena_map *map, const uint8_t *at);

#endif
