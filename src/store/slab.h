/* Items by slot: 64 bytes each, in blocks of 4096 that never move, linked in the order of insertion. Of a larger table eight blocks are
 * a huge page, for it is looked up in places far apart.
 *
 * A slot is used again soon after it was given back, so that the books of a table at its bound stay in few cache lines. */
#ifndef RV_STORE_SLAB_H
#define RV_STORE_SLAB_H

#include "store/selectors/selector.h"

enum { RV_SLAB_SHIFT = 12, RV_SLAB_LENGTH = 1 << RV_SLAB_SHIFT };

#define RV_LOOSE 0xFFFFU      /* template_number of an item that is not compact; data is an rv_loose */
#define RV_FREE_SLOT 0xFFFEU  /* template_number of a slot without an item */
#define RV_UNATTACHED 0xFFFDU /* template_number of an item that refers to nothing yet */

typedef struct rv_item {
  void *data; /* rv_hold of a compact item, rv_loose of any other */
  uint64_t key;
  double priority;
  int64_t inserted_at_ns;
  uint32_t sequence_low; /* 47 bits that grow with every insert */
  unsigned sequence_high : 15;
  unsigned marked : 1; /* a page of a listing begins here */
  unsigned template_number : 16;
  int32_t base_row;
  int32_t times_sampled;
  uint32_t next, prev;           /* in the order of insertion; next of a free slot: the next free one */
  uint32_t hold_next, hold_prev; /* compact items of one hold */
} rv_item;

typedef struct rv_slab {
  rv_item **block;
  size_t num_blocks, directory_capacity;
  size_t num_groups;    /* of blocks that share a huge page: from the second block on */
  size_t last_capacity; /* items of the last block: fewer in a small table */
  uint64_t max_slots;
  uint32_t used; /* slots that were ever taken */
  uint32_t free_slot;
  uint32_t oldest, newest;
  uint32_t count;
  uint64_t sequence;   /* of the last insert */
  rv_item *ahead;      /* the next huge page, touched (ahead.c); NULL: it is taken when it is needed */
  uint64_t ahead_from; /* with so many slots used it is worth having; UINT64_MAX: it is not */
} rv_slab;

/* At most `max_slots` at a time. No memory is taken yet. */
void rv_slab_init(rv_slab *slab, uint64_t max_slots);
void rv_slab_fini(rv_slab *slab);
size_t rv_slab_memory(const rv_slab *slab);

rv_code rv_slab_grow(rv_slab *slab, rv_error *err);

/* Is the next huge page near, and nobody makes it? Whoever is told so is asked to. */
static inline bool rv_slab_wants_ahead(const rv_slab *slab)
{
  return slab->used >= slab->ahead_from;
}
static inline void rv_slab_promise_ahead(rv_slab *slab)
{
  slab->ahead_from = UINT64_MAX;
}
/* A block of RV_HUGE_PAGE bytes from rv_pages_alloc. False: it is the caller's still, for it is not needed any more. */
bool rv_slab_put_ahead(rv_slab *slab, void *owned_block);

static inline rv_item *rv_slab_at(const rv_slab *slab, uint32_t slot)
{
  return &slab->block[slot >> RV_SLAB_SHIFT][slot & (RV_SLAB_LENGTH - 1)];
}

static inline bool rv_slab_has(const rv_slab *slab, uint32_t slot)
{
  return slot < slab->used && rv_slab_at(slab, slot)->template_number != RV_FREE_SLOT;
}

static inline uint64_t rv_item_sequence(const rv_item *item)
{
  return (uint64_t)item->sequence_high << 32 | item->sequence_low;
}

static inline void rv_item_set_sequence(rv_item *item, uint64_t sequence)
{
  item->sequence_low = (uint32_t)sequence;
  item->sequence_high = (unsigned)(sequence >> 32) & 0x7FFFU;
}

/* The slot's item stands last in the order of insertion; its links and sequence are set, nothing else. */
static inline rv_code rv_slab_take(rv_slab *slab, uint32_t *out, rv_error *err)
{
  uint32_t slot = slab->free_slot;
  if (slot != RV_NO_SLOT) {
    slab->free_slot = rv_slab_at(slab, slot)->next;
  } else {
    slot = slab->used;
    if (slot >> RV_SLAB_SHIFT >= slab->num_blocks ||
        (slot >> RV_SLAB_SHIFT == slab->num_blocks - 1 && (slot & (RV_SLAB_LENGTH - 1)) >= slab->last_capacity)) {
      rv_code code = rv_slab_grow(slab, err);
      if (code != RV_OK) return code;
    }
    slab->used++;
  }
  rv_item *item = rv_slab_at(slab, slot);
  rv_item_set_sequence(item, ++slab->sequence);
  item->marked = 0;
  item->template_number = RV_UNATTACHED;
  item->prev = slab->newest;
  item->next = RV_NO_SLOT;
  if (slab->newest != RV_NO_SLOT)
    rv_slab_at(slab, slab->newest)->next = slot;
  else
    slab->oldest = slot;
  slab->newest = slot;
  slab->count++;
  *out = slot;
  return RV_OK;
}

static inline void rv_slab_give(rv_slab *slab, uint32_t slot)
{
  rv_item *item = rv_slab_at(slab, slot);
  *(item->prev != RV_NO_SLOT ? &rv_slab_at(slab, item->prev)->next : &slab->oldest) = item->next;
  *(item->next != RV_NO_SLOT ? &rv_slab_at(slab, item->next)->prev : &slab->newest) = item->prev;
  item->template_number = RV_FREE_SLOT;
  item->next = slab->free_slot;
  slab->free_slot = slot;
  slab->count--;
}

/* The slot's item moves to the end of the order of insertion. */
static inline void rv_slab_renew(rv_slab *slab, uint32_t slot)
{
  if (slot == slab->newest) return;
  rv_item *item = rv_slab_at(slab, slot);
  *(item->prev != RV_NO_SLOT ? &rv_slab_at(slab, item->prev)->next : &slab->oldest) = item->next;
  rv_slab_at(slab, item->next)->prev = item->prev;
  rv_slab_at(slab, slab->newest)->next = slot;
  item->prev = slab->newest;
  item->next = RV_NO_SLOT;
  slab->newest = slot;
}

#endif
