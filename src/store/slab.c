#include "store/slab.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

_Static_assert(sizeof(rv_item) == 64, "an item is one cache line");

enum { SMALLEST_BLOCK = 64 };

void rv_slab_init(rv_slab *slab, uint64_t max_slots)
{
  *slab = (rv_slab){.max_slots = max_slots, .free_slot = RV_NO_SLOT, .oldest = RV_NO_SLOT, .newest = RV_NO_SLOT};
}

void rv_slab_fini(rv_slab *slab)
{
  for (size_t i = 0; i < slab->num_blocks; i++) free(slab->block[i]);
  free(slab->block);
  rv_slab_init(slab, slab->max_slots);
}

size_t rv_slab_memory(const rv_slab *slab)
{
  if (slab->num_blocks == 0) return 0;
  return ((slab->num_blocks - 1) * RV_SLAB_LENGTH + slab->last_capacity) * sizeof(rv_item) +
         slab->directory_capacity * sizeof(rv_item *);
}

static rv_code grow_directory(rv_slab *slab, rv_error *err)
{
  if (slab->num_blocks < slab->directory_capacity) return RV_OK;
  size_t capacity = slab->directory_capacity == 0 ? 4 : slab->directory_capacity * 2;
  rv_item **grown = realloc(slab->block, capacity * sizeof *grown);
  if (grown == NULL) return rv_fail_memory(err, capacity * sizeof *grown);
  slab->block = grown;
  slab->directory_capacity = capacity;
  return RV_OK;
}

/* The first block of a table that is still small doubles, at most six times; from then on nothing moves. */
static rv_code grow_first_block(rv_slab *slab, rv_error *err)
{
  size_t capacity = slab->num_blocks == 0 ? SMALLEST_BLOCK : slab->last_capacity * 2;
  rv_item *grown = aligned_alloc(sizeof(rv_item), capacity * sizeof(rv_item));
  if (grown == NULL) return rv_fail_memory(err, capacity * sizeof(rv_item));
  if (slab->num_blocks == 1) {
    memcpy(grown, slab->block[0], slab->last_capacity * sizeof(rv_item));
    free(slab->block[0]);
  }
  slab->block[0] = grown;
  slab->num_blocks = 1;
  slab->last_capacity = capacity;
  return RV_OK;
}

rv_code rv_slab_grow(rv_slab *slab, rv_error *err)
{
  if (slab->used >= slab->max_slots)
    return rv_fail(err, RV_RESOURCE_EXHAUSTED, "%llu items are all that the table has room for",
                   (unsigned long long)slab->max_slots);
  rv_code code = grow_directory(slab, err);
  if (code != RV_OK) return code;
  if (slab->num_blocks == 0 || (slab->num_blocks == 1 && slab->last_capacity < RV_SLAB_LENGTH))
    return grow_first_block(slab, err);
  rv_item *block = aligned_alloc(sizeof(rv_item), RV_SLAB_LENGTH * sizeof(rv_item));
  if (block == NULL) return rv_fail_memory(err, RV_SLAB_LENGTH * sizeof(rv_item));
  slab->block[slab->num_blocks++] = block;
  slab->last_capacity = RV_SLAB_LENGTH;
  return RV_OK;
}
