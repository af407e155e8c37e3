#include "client/stream_slots.h"

#include <stdlib.h>
#include <string.h>

void rv_stream_slots_init(rv_stream_slots *slots, uint64_t seed)
{
  memset(slots, 0, sizeof *slots);
  rv_map_init(&slots->map, seed);
}

void rv_stream_slots_fini(rv_stream_slots *slots)
{
  rv_map_fini(&slots->map);
  free(slots->items);
  free(slots->free_slots);
}

static bool grow(rv_stream_slots *slots)
{
  uint32_t capacity = slots->capacity == 0 ? 64 : 2 * slots->capacity;
  if (capacity <= slots->capacity) return false;
  rv_stream_item **items = realloc(slots->items, capacity * sizeof(rv_stream_item *));
  if (items == NULL) return false;
  slots->items = items;
  uint32_t *free_slots = realloc(slots->free_slots, capacity * sizeof *free_slots);
  if (free_slots == NULL) return false;
  slots->free_slots = free_slots;
  slots->capacity = capacity;
  return true;
}

rv_code rv_stream_slots_put(rv_stream_slots *slots, rv_stream_item *item)
{
  bool reuse = slots->num_free > 0;
  if (!reuse && slots->num_slots == slots->capacity && !grow(slots)) return RV_RESOURCE_EXHAUSTED;
  uint32_t slot = reuse ? slots->free_slots[slots->num_free - 1] : slots->num_slots;
  rv_code code = rv_map_put(&slots->map, item->key, slot);
  if (code != RV_OK) return code;
  if (reuse)
    slots->num_free--;
  else
    slots->num_slots++;
  slots->items[slot] = item;
  item->slot = slot;
  return RV_OK;
}

rv_stream_item *rv_stream_slots_find(const rv_stream_slots *slots, uint64_t key)
{
  const uint32_t *slot = rv_map_get(&slots->map, key);
  return slot == NULL ? NULL : slots->items[*slot];
}

void rv_stream_slots_remove(rv_stream_slots *slots, const rv_stream_item *item)
{
  rv_map_remove(&slots->map, item->key);
  slots->items[item->slot] = NULL;
  slots->free_slots[slots->num_free++] = item->slot;
}
