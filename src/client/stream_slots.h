/* An index of items that a stream has sent, by key, for confirmations that do not come in order. */
#ifndef RV_CLIENT_STREAM_SLOTS_H
#define RV_CLIENT_STREAM_SLOTS_H

#include "base/map.h"
#include "client/insert_stream.h"

typedef struct rv_stream_slots {
  rv_map map;             /* key to slot */
  rv_stream_item **items; /* by slot; a free slot holds NULL */
  uint32_t *free_slots;
  uint32_t num_slots, num_free, capacity;
} rv_stream_slots;

void rv_stream_slots_init(rv_stream_slots *slots, uint64_t seed);
void rv_stream_slots_fini(rv_stream_slots *slots);
/* RV_RESOURCE_EXHAUSTED: nothing has changed. */
rv_code rv_stream_slots_put(rv_stream_slots *slots, rv_stream_item *item);
rv_stream_item *rv_stream_slots_find(const rv_stream_slots *slots, uint64_t key); /* NULL: none */
void rv_stream_slots_remove(rv_stream_slots *slots, const rv_stream_item *item);

#endif
