/* What items of a writer that look alike have in common: their table, what their columns are called, and their slices, of which of the item's
 * chunks each is. A pack needs of such an item its key, its priority and its chunks alone; the whole message
 * is only made of one that begins a pack, or goes by itself.
 *
 * The writer's thread makes it, and changes it while nobody else has it. It is shared with items, which any thread may let go; shared it
 * says what it says. */
#ifndef RV_CLIENT_ITEM_FORM_H
#define RV_CLIENT_ITEM_FORM_H

#include <stdatomic.h>

#include "wire/messages.h"

enum { RV_FORM_SLICES = 64 }; /* items of more slices, or columns, are of no form */

typedef struct rv_item_form {
  atomic_uint refs;
  uint64_t number;                      /* insert_stream.h, form; 0: it says nothing yet */
  rv_wire_item item;                    /* without key and priority; the table's name is borrowed, the arrays stand below */
  rv_wire_slice slices[RV_FORM_SLICES]; /* without their chunks' keys: */
  uint8_t chunk_of[RV_FORM_SLICES];     /* which of the item's chunks each is of */
  uint32_t num_slices[RV_FORM_SLICES];
  bool squeeze[RV_FORM_SLICES];
} rv_item_form;

/* One reference; NULL: out of memory. */
rv_item_form *rv_item_form_new(void);
void rv_item_form_unref(rv_item_form *form); /* NULL is fine */
/* A reference to `form` stands in *place from now on, and none to what stood there. */
void rv_item_form_share(rv_item_form **place, rv_item_form *form);
bool rv_item_form_is_shared(const rv_item_form *form);

/* The item differs from it in nothing but key, priority and chunks; chunk_of[i] is which of its chunks slice i is of. */
bool rv_item_form_fits(const rv_item_form *form, const rv_wire_item *item, const uint8_t *chunk_of);
/* It says what the item does, whose table's name outlives it and whose sizes are within the bound above. Not of one that is shared. */
void rv_item_form_set(rv_item_form *form, uint64_t number, const rv_wire_item *item, const uint8_t *chunk_of);

#endif
