#include "server/chunk_map.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"

void rv_chunk_map_init(rv_chunk_map *map, uint64_t seed, size_t max_bytes)
{
  *map = (rv_chunk_map){.max_bytes = max_bytes};
  rv_map_init(&map->index, seed);
}

/* How many bytes are no longer kept. */
static size_t let_go(const rv_chunk_place *owned_place)
{
  rv_chunk *chunk = owned_place->chunk;
  size_t bytes = !owned_place->is_joined || rv_joined_let_go(chunk) ? rv_chunk_memory(chunk) : 0;
  rv_chunk_unref(chunk);
  return bytes;
}

void rv_chunk_map_fini(rv_chunk_map *map)
{
  for (size_t i = 0; i < map->count; i++) let_go(&map->entries[i].place);
  free(map->entries);
  rv_map_fini(&map->index);
  *map = (rv_chunk_map){0};
}

bool rv_chunk_map_get(const rv_chunk_map *map, uint64_t key, rv_chunk_place *out)
{
  const uint32_t *number = rv_map_get(&map->index, key);
  if (number != NULL) *out = map->entries[*number].place;
  return number != NULL;
}

static rv_code make_room(rv_chunk_map *map, rv_error *err)
{
  if (map->count < map->capacity) return RV_OK;
  if (map->count >= UINT32_MAX) return rv_fail_memory(err, map->count);
  size_t capacity = map->capacity == 0 ? 8 : map->capacity * 2;
  rv_chunk_entry *grown = realloc(map->entries, capacity * sizeof *grown);
  if (grown == NULL) return rv_fail_memory(err, capacity * sizeof *grown);
  map->entries = grown;
  map->capacity = capacity;
  return RV_OK;
}

rv_code rv_chunk_map_put(rv_chunk_map *map, const rv_chunk_place *owned_place, rv_error *err)
{
  const uint64_t key = owned_place->key;
  rv_code code = RV_OK;
  bool more = !owned_place->is_joined || rv_joined_keep(owned_place->chunk);
  size_t bytes = RV_CHUNK_ENTRY_BYTES + (more ? rv_chunk_memory(owned_place->chunk) : 0);
  if (rv_map_get(&map->index, key) != NULL) goto drop;
  if (bytes > map->max_bytes || map->bytes > map->max_bytes - bytes) {
    code = rv_fail(err, RV_RESOURCE_EXHAUSTED,
                   "chunk %" PRIu64
                   " (%zu bytes) and the stream's %zu chunks for items to come (%zu bytes) are more than the %zu bytes "
                   "that a stream may keep; make items of fewer steps, or keep fewer chunks, or raise the server's "
                   "max_stream_chunk_bytes",
                   key, bytes, map->count, map->bytes, map->max_bytes);
    goto drop;
  }
  code = make_room(map, err);
  if (code != RV_OK) goto drop;
  code = rv_map_put(&map->index, key, (uint32_t)map->count);
  if (code != RV_OK) {
    rv_fail_memory(err, sizeof(rv_map_entry));
    goto drop;
  }
  map->entries[map->count++] = (rv_chunk_entry){.place = *owned_place, .kept = map->trims};
  map->bytes += bytes;
  return RV_OK;
drop:
  let_go(owned_place);
  return code;
}

static void drop_entry(rv_chunk_map *map, size_t number)
{
  rv_chunk_entry *entry = &map->entries[number];
  map->bytes -= let_go(&entry->place) + RV_CHUNK_ENTRY_BYTES;
  rv_map_remove(&map->index, entry->place.key);
  *entry = map->entries[--map->count];
  if (number < map->count) *rv_map_get(&map->index, entry->place.key) = (uint32_t)number;
}

rv_code rv_chunk_map_keep(rv_chunk_map *map, const uint64_t *keys, size_t n, rv_error *err)
{
  uint32_t trim = ++map->trims;
  uint64_t unknown = 0;
  bool any_unknown = false;
  for (size_t i = 0; i < n; i++) {
    const uint32_t *place = rv_map_get(&map->index, keys[i]);
    if (place != NULL) {
      map->entries[*place].kept = trim;
    } else if (!any_unknown) {
      any_unknown = true;
      unknown = keys[i];
    }
  }
  for (size_t i = map->count; i > 0; i--)
    if (map->entries[i - 1].kept != trim) drop_entry(map, i - 1);
  if (map->count == n) return RV_OK;
  if (any_unknown)
    return rv_fail(err, RV_FAILED_PRECONDITION,
                   "keep_chunk_keys names chunk %" PRIu64 ", which this stream does not hold; send a chunk before keeping it",
                   unknown);
  return rv_fail(err, RV_FAILED_PRECONDITION, "keep_chunk_keys names %zu chunks, of which only %zu differ; name each once", n,
                 map->count);
}
