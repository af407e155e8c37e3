/* How a new item takes the place of the oldest one of a full table: what replace.c and add_row.c share. */
#ifndef RV_STORE_REPLACE_H
#define RV_STORE_REPLACE_H

#include "store/chunk_parts.h"
#include "store/table_parts.h"

enum { RV_REPLACE_AHEAD = 32 }; /* items that are fetched before their turn */

/* What the key of an item looks like that the table named by its slot: these bits of it are `tag | slot`. */
static inline uint64_t rv_replace_named_bits(const rv_books *books)
{
  return UINT64_C(0xFF00000000000000) | books->key_mask;
}

/* The next key of the item at `slot`, the `count`-th that the table makes. */
static inline uint64_t rv_replace_key(uint64_t tag, uint64_t count, unsigned slot_bits, uint32_t slot)
{
  return tag | ((count << slot_bits) & UINT64_C(0x00FFFFFFFFFFFFFF)) | slot;
}

/* Nobody needs to look at an item before it goes: no new key might be there already, and no snapshot is being taken. */
static inline bool rv_replace_unseen(const rv_table *table)
{
  return table->books.by_key.count == 0 && table->books.old_bits == 0 && table->snapshot == NULL;
}

/* It was a row of the same form, is found by its own key, and has somebody behind it in the table. */
static inline bool rv_replace_is_plain(const rv_item *item, uint16_t number, uint64_t named_bits, uint64_t name)
{
  return item->template_number == number && item->next != RV_NO_SLOT && !item->marked && (item->key & named_bits) == name;
}

/* All but the links. */
static inline void rv_replace_renew(rv_item *item, rv_hold *hold, int32_t row, uint64_t key, double priority, int64_t now_ns,
                                    uint64_t sequence)
{
  item->data = hold;
  item->key = key;
  item->priority = priority;
  item->inserted_at_ns = now_ns;
  item->base_row = row;
  item->times_sampled = 0;
  rv_item_set_sequence(item, sequence);
}

/* Items that stand beside each other in both lists, in the order that their successors will have: a run of them is cut out at one
 * end and put in at the other, and no link inside it changes. They are the oldest, and not all. */
static inline void rv_replace_move(rv_slab *slab, rv_hold *old, rv_hold *hold, uint32_t first_slot, rv_item *first,
                                   uint32_t last_slot, rv_item *last)
{
  *(last->hold_prev != RV_NO_SLOT ? &rv_slab_at(slab, last->hold_prev)->hold_next : &old->first) = first->hold_next;
  if (first->hold_next != RV_NO_SLOT) rv_slab_at(slab, first->hold_next)->hold_prev = last->hold_prev;
  first->hold_next = hold->first;
  if (hold->first != RV_NO_SLOT) rv_slab_at(slab, hold->first)->hold_prev = first_slot;
  last->hold_prev = RV_NO_SLOT;
  hold->first = last_slot;
  slab->oldest = last->next;
  rv_slab_at(slab, slab->oldest)->prev = RV_NO_SLOT;
  first->prev = slab->newest;
  rv_slab_at(slab, slab->newest)->next = first_slot;
  last->next = RV_NO_SLOT;
  slab->newest = last_slot;
}

/* n items that reach `span` rows each went from one hold to the other. */
static inline void rv_replace_count(rv_books *books, rv_hold *old, rv_hold *hold, uint32_t n, int64_t span, rv_garbage *garbage)
{
  hold->items += n;
  hold->live_rows += n * span;
  old->items -= n;
  old->live_rows -= n * span;
  rv_books_note_sparse(books, old);
  if (old->items == 0) rv_books_drop_if_unused(books, old, garbage);
}

#endif
