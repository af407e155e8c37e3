#include "client/item_form.h"

#include <stdlib.h>
#include <string.h>

rv_item_form *rv_item_form_new(void)
{
  rv_item_form *form = malloc(sizeof *form);
  if (form == NULL) return NULL;
  atomic_init(&form->refs, 1);
  form->number = 0;
  return form;
}

void rv_item_form_unref(rv_item_form *form)
{
  if (form != NULL && atomic_fetch_sub_explicit(&form->refs, 1, memory_order_acq_rel) == 1) free(form);
}

void rv_item_form_share(rv_item_form **place, rv_item_form *form)
{
  if (*place == form) return;
  rv_item_form_unref(*place);
  atomic_fetch_add_explicit(&form->refs, 1, memory_order_relaxed);
  *place = form;
}

bool rv_item_form_is_shared(const rv_item_form *form)
{
  return atomic_load_explicit(&form->refs, memory_order_acquire) > 1;
}

bool rv_item_form_fits(const rv_item_form *form, const rv_wire_item *item, const uint8_t *chunk_of)
{
  const rv_wire_item *own = &form->item;
  if (form->number == 0 || own->table.data != item->table.data || own->naming != item->naming ||
      own->num_columns != item->num_columns || own->total_slices != item->total_slices)
    return false;
  for (uint32_t i = 0; i < own->num_columns; i++)
    if (form->num_slices[i] != item->num_slices[i] || form->squeeze[i] != item->squeeze[i]) return false;
  for (uint32_t i = 0; i < own->total_slices; i++) {
    const rv_wire_slice *known = &form->slices[i], *slice = &item->slices[i];
    if (known->index != slice->index || known->offset != slice->offset || known->length != slice->length) return false;
    if (form->chunk_of[i] != chunk_of[i]) return false;
  }
  return true;
}

void rv_item_form_set(rv_item_form *form, uint64_t number, const rv_wire_item *item, const uint8_t *chunk_of)
{
  form->number = number;
  form->item = *item;
  form->item.key = 0;
  form->item.priority = 0;
  form->item.slices = form->slices;
  form->item.num_slices = form->num_slices;
  form->item.squeeze = form->squeeze;
  memcpy(form->slices, item->slices, item->total_slices * sizeof *form->slices);
  memcpy(form->chunk_of, chunk_of, item->total_slices);
  memcpy(form->num_slices, item->num_slices, item->num_columns * sizeof *form->num_slices);
  memcpy(form->squeeze, item->squeeze, item->num_columns * sizeof *form->squeeze);
}
