#include "store/slab.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/pages.h"

_Static_assert(sizeof(rv_item) == 64, "an item is one cache line");

enum {
  SMALLEST_BLOCK = 64,
  GROUP = RV_HUGE_PAGE / (RV_SLAB_LENGTH * (int)sizeof(rv_item)), /* blocks of a huge page */
  GROUPS_FROM = 1                                                 /* the first block that may be in one */
};

void rv_slab_init(rv_slab *slab, uint64_t max_slots)
{
  *slab = (rv_slab){
      .max_slots = max_slots, .ahead_from = UINT64_MAX, .free_slot = RV_NO_SLOT, .oldest = RV_NO_SLOT, .newest = RV_NO_SLOT};
}

void rv_slab_fini(rv_slab *slab)
{
  size_t grouped = GROUPS_FROM + slab->num_groups * GROUP;
  for (size_t i = 0; i < slab->num_blocks; i++)
    if (i < GROUPS_FROM || i >= grouped) free(slab->block[i]);
  for (size_t i = GROUPS_FROM; i < grouped && slab->num_groups > 0; i += GROUP) rv_pages_free(slab->block[i], RV_HUGE_PAGE);
  rv_pages_free(slab->ahead, RV_HUGE_PAGE);
  free(slab->block);
  rv_slab_init(slab, slab->max_slots);
}

size_t rv_slab_memory(const rv_slab *slab)
{
  if (slab->num_blocks == 0) return 0;
  return ((slab->num_blocks - 1) * RV_SLAB_LENGTH + slab->last_capacity) * sizeof(rv_item) +
         slab->directory_capacity * sizeof(rv_item *) + (slab->ahead == NULL ? 0 : RV_HUGE_PAGE);
}

/* Room for a group's blocks. */
static rv_code grow_directory(rv_slab *slab, rv_error *err)
{
  if (slab->directory_capacity >= slab->num_blocks + GROUP) return RV_OK;
  size_t capacity = slab->directory_capacity == 0 ? 2 * GROUP : slab->directory_capacity * 2;
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

/* Where most of a huge page will be used, and the groups so far are followed by no single block. */
static bool wants_group(const rv_slab *slab)
{
  uint64_t slots = (uint64_t)slab->num_blocks << RV_SLAB_SHIFT;
  return slab->num_blocks == GROUPS_FROM + slab->num_groups * GROUP && slab->max_slots > slots + GROUP / 2 * RV_SLAB_LENGTH;
}

/* When the next one is made: with an eighth of the last left, so that a table which has stopped growing mostly has none. */
static void plan_ahead(rv_slab *slab)
{
  uint64_t slots = (uint64_t)slab->num_blocks << RV_SLAB_SHIFT,
           last = slab->num_groups == 0 ? RV_SLAB_LENGTH : GROUP * RV_SLAB_LENGTH;
  slab->ahead_from = slab->ahead == NULL && wants_group(slab) ? slots - last / 8 : UINT64_MAX;
}

bool rv_slab_put_ahead(rv_slab *slab, void *owned_block)
{
  if (owned_block == NULL || slab->ahead != NULL || !wants_group(slab)) return false;
  slab->ahead = owned_block;
  rv_slab_promise_ahead(slab); /* the slab may have grown meanwhile, and wanted another */
  return true;
}

static rv_code add_group(rv_slab *slab, rv_error *err)
{
  rv_item *items = slab->ahead != NULL ? slab->ahead : rv_pages_alloc(RV_HUGE_PAGE);
  if (items == NULL) return rv_fail_memory(err, RV_HUGE_PAGE);
  slab->ahead = NULL;
  for (size_t i = 0; i < GROUP; i++) slab->block[slab->num_blocks++] = items + (i << RV_SLAB_SHIFT);
  slab->num_groups++;
  slab->last_capacity = RV_SLAB_LENGTH;
  return RV_OK;
}

static rv_code add_block(rv_slab *slab, rv_error *err)
{
  rv_item *block = aligned_alloc(sizeof(rv_item), RV_SLAB_LENGTH * sizeof(rv_item));
  if (block == NULL) return rv_fail_memory(err, RV_SLAB_LENGTH * sizeof(rv_item));
  slab->block[slab->num_blocks++] = block;
  slab->last_capacity = RV_SLAB_LENGTH;
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
    code = grow_first_block(slab, err);
  else
    code = wants_group(slab) ? add_group(slab, err) : add_block(slab, err);
  plan_ahead(slab);
  return code;
}
