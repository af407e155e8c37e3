#include "store/books.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/chunk_parts.h"
#include "store/memory.h"

enum {
  SPARE_HOLDS = 16,    /* of a turn's, kept as memory for others */
  UNLINKED_AT_ONCE = 8 /* links of an item that goes, for many may go in one hold of the lock */
};

/* With as few bits as so many need. */
static void name_slots(rv_books *books, uint64_t slots)
{
  while (books->slot_bits < 32 && (UINT64_C(1) << books->slot_bits) < slots) books->slot_bits++;
  books->key_mask = (UINT64_C(1) << books->slot_bits) - 1;
}

void rv_books_init(rv_books *books, rv_memory *memory, uint64_t epoch, int64_t max_size, const uint64_t seeds[6])
{
  memset(books, 0, sizeof *books);
  books->memory = memory;
  books->epoch = epoch;
  rv_slab_init(&books->slab, (uint64_t)max_size + 1);
  name_slots(books, (uint64_t)max_size + 1);
  books->key_tag = seeds[0] & UINT64_C(0x7F00000000000000);
  books->key_count = seeds[1];
  rv_map_init(&books->by_key, seeds[2]);
  rv_map_init(&books->by_chunk, seeds[3]);
  books->hold_tag = (uint32_t)(seeds[3] >> 32) | 1U;
  rv_map_init(&books->episodes, seeds[4]);
  rv_map_init(&books->layouts, seeds[5]);
  rv_segarray_init(&books->holds, sizeof(rv_hold *), 0, 1);
  books->free_hold = RV_NO_SLOT;
  rv_list_init(&books->sparse.list);
  rv_list_init(&books->spilled_sparse.list);
  rv_list_init(&books->cold);
  for (size_t i = 0; i < RV_SIZE_CLASSES; i++) rv_list_init(&books->placed[i]);
}

static void free_loose(rv_loose *loose)
{
  rv_trajectory_unref(loose->trajectory);
  free(loose);
}

void rv_books_fini(rv_books *books)
{
  rv_slab *slab = &books->slab;
  for (uint32_t slot = slab->oldest; slot != RV_NO_SLOT; slot = rv_slab_at(slab, slot)->next) {
    rv_item *item = rv_slab_at(slab, slot);
    if (item->template_number == RV_LOOSE) free_loose(item->data);
  }
  rv_slab_fini(slab);
  while (books->leaving != NULL) {
    rv_loose *loose = books->leaving;
    books->leaving = loose->next_garbage;
    free_loose(loose);
  }
  for (uint32_t i = 0; i < books->num_holds; i++) {
    uintptr_t place = (uintptr_t)*RV_SEGARRAY_AT(&books->holds, rv_hold *, i);
    if ((place & 1U) != 0) continue; /* free */
    rv_hold *hold = (rv_hold *)place;
    rv_books_unmark(books, hold);
    /* the list's head may be another's by now, so that none is taken out of it */
    if (!rv_list_empty(&hold->sparse)) atomic_fetch_sub_explicit(&hold->chunk->num_sparse, 1, memory_order_relaxed);
    rv_chunk_unref(hold->chunk);
    free(hold);
  }
  rv_segarray_fini(&books->holds);
  rv_holds_free(books->spare_holds);
  rv_map_fini(&books->by_key);
  rv_map_fini(&books->by_chunk);
  rv_map_fini(&books->episodes);
  rv_map_fini(&books->layouts);
  for (size_t i = 0; i < RV_MAX_TEMPLATES; i++) rv_trajectory_unref(books->templates.entry[i].trajectory);
}

/* Whoever has seen one key can tell which the next will be, and give many items these. So after a few the count goes on by what he cannot tell. */
uint64_t rv_books_unused_key(rv_books *books, uint32_t slot, uint64_t key)
{
  enum { FEW = 8, JUMP_BITS = 24 };
  for (int met = 1; rv_books_find(books, key) != RV_NO_SLOT; met++) {
    if (met % FEW == 0) books->key_count += rv_hash_of(books->by_key.hash, books->key_count) >> (64 - JUMP_BITS);
    key = rv_books_next_key(books, slot);
  }
  return key;
}

void rv_holds_free(rv_hold *spare)
{
  while (spare != NULL) {
    rv_hold *next = spare->next_garbage;
    free(spare);
    spare = next;
  }
}

void rv_left_chunks_free(rv_left_chunks *left)
{
  for (size_t i = 0; i < left->count; i++) rv_chunk_unref(left->chunk[i]);
  rv_memory_end_way(left->memory, left->on_the_way);
  free(left);
}

void rv_garbage_free(rv_garbage *garbage)
{
  rv_holds_free(rv_garbage_free_but_holds(garbage));
}

rv_hold *rv_garbage_free_but_holds(rv_garbage *garbage)
{
  rv_hold *left = NULL;
  for (const rv_hold *hold = garbage->holds; hold != NULL; hold = hold->next_garbage)
    if (hold->chunk != NULL) rv_chunk_prefetch_owner(hold->chunk); /* waited for once, not by each */
  for (int kept = 0; garbage->holds != NULL; kept++) {
    rv_hold *hold = garbage->holds;
    garbage->holds = hold->next_garbage;
    rv_chunk_unref(hold->chunk);
    if (kept < SPARE_HOLDS) {
      hold->next_garbage = left;
      left = hold;
    } else {
      free(hold);
    }
  }
  rv_chunk_unref(garbage->chunk);
  garbage->chunk = NULL;
  garbage->more = false;
  while (garbage->left != NULL) {
    rv_left_chunks *first = garbage->left;
    garbage->left = first->next;
    rv_left_chunks_free(first);
  }
  while (garbage->looses != NULL) {
    rv_loose *loose = garbage->looses;
    garbage->looses = loose->next_garbage;
    free_loose(loose);
  }
  return left;
}

size_t rv_books_memory(const rv_books *books)
{
  return rv_slab_memory(&books->slab) + rv_segarray_memory(&books->holds) + rv_books_shrinking(books);
}

/* ---- keys ---- */

void rv_books_set_max_size(rv_books *books, int64_t max_size)
{
  uint64_t slots = (uint64_t)max_size + 1;
  unsigned bits = books->slot_bits;
  if (slots <= books->slab.max_slots) return;
  books->slab.max_slots = slots;
  name_slots(books, slots);
  if (bits == books->slot_bits || books->slab.count == 0) return;
  books->old_bits |= UINT32_C(1) << bits;
  books->old_until = books->slab.sequence;
}

static bool is_at(const rv_books *books, uint32_t slot, uint64_t key)
{
  if (slot >= books->slab.used) return false;
  const rv_item *item = rv_slab_at(&books->slab, slot);
  return item->key == key && item->template_number != RV_FREE_SLOT;
}

/* As keys were made when the table's bound was lower. */
static uint32_t find_by_old_name(const rv_books *books, uint64_t key)
{
  if (rv_books_slot_named(books, key) == RV_NO_SLOT) return RV_NO_SLOT;
  for (unsigned bits = 0; bits < books->slot_bits; bits++) {
    uint32_t slot = (uint32_t)(key & ((UINT64_C(1) << bits) - 1));
    if ((books->old_bits >> bits & 1U) != 0 && is_at(books, slot, key)) return slot;
  }
  return RV_NO_SLOT;
}

uint32_t rv_books_find(const rv_books *books, uint64_t key)
{
  uint32_t slot = rv_books_slot_named(books, key);
  if (is_at(books, slot, key)) return slot;
  if (books->old_bits != 0) {
    slot = find_by_old_name(books, key);
    if (slot != RV_NO_SLOT) return slot;
  }
  if (books->by_key.count == 0) return RV_NO_SLOT;
  const uint32_t *found = rv_map_get(&books->by_key, key);
  return found == NULL ? RV_NO_SLOT : *found;
}

rv_code rv_books_take(rv_books *books, uint64_t key, bool choose_key, uint32_t *slot, rv_error *err)
{
  rv_code code = rv_slab_take(&books->slab, slot, err);
  if (code != RV_OK) return code;
  rv_item *item = rv_slab_at(&books->slab, *slot);
  item->key = choose_key ? rv_books_make_key(books, *slot) : key;
  if (choose_key || rv_books_slot_named(books, key) == *slot) return RV_OK;
  if (rv_map_put(&books->by_key, key, *slot) == RV_OK) return RV_OK;
  rv_slab_give(&books->slab, *slot);
  return rv_fail_memory(err, sizeof(rv_map_entry));
}

void rv_books_give(rv_books *books, uint32_t slot)
{
  rv_books_forget_key(books, rv_slab_at(&books->slab, slot)->key, slot);
  rv_slab_give(&books->slab, slot);
}

/* ---- layouts ---- */

static rv_code count_layout(rv_books *books, const rv_layout *layout, rv_error *err)
{
  uint64_t key = (uint64_t)(uintptr_t)layout;
  uint32_t *count = rv_map_get(&books->layouts, key);
  if (count != NULL) {
    ++*count;
    return RV_OK;
  }
  return rv_map_put(&books->layouts, key, 1) == RV_OK ? RV_OK : rv_fail_memory(err, sizeof(rv_map_entry));
}

static void uncount_layout(rv_books *books, const rv_layout *layout)
{
  uint64_t key = (uint64_t)(uintptr_t)layout;
  if (--*rv_map_get(&books->layouts, key) == 0) rv_map_remove(&books->layouts, key);
}

size_t rv_books_num_layouts(const rv_books *books)
{
  return books->layouts.count;
}

/* ---- attaching ---- */

void rv_books_link_compact(rv_books *books, uint32_t slot, rv_hold *hold, int64_t base_row, uint16_t number)
{
  rv_item *item = rv_slab_at(&books->slab, slot);
  item->data = hold;
  item->base_row = (int32_t)base_row;
  item->template_number = number;
  item->hold_prev = RV_NO_SLOT;
  item->hold_next = hold->first;
  if (hold->first != RV_NO_SLOT) rv_slab_at(&books->slab, hold->first)->hold_prev = slot;
  hold->first = slot;
  hold->items++;
  hold->live_rows += rv_trajectory_box_of(books->templates.entry[number].trajectory)->span;
}

void rv_books_unlink_compact(rv_books *books, uint32_t slot)
{
  rv_item *item = rv_slab_at(&books->slab, slot);
  rv_hold *hold = item->data;
  *(item->hold_prev != RV_NO_SLOT ? &rv_slab_at(&books->slab, item->hold_prev)->hold_next : &hold->first) = item->hold_next;
  if (item->hold_next != RV_NO_SLOT) rv_slab_at(&books->slab, item->hold_next)->hold_prev = item->hold_prev;
  hold->items--;
  hold->live_rows -= rv_trajectory_box_of(books->templates.entry[item->template_number].trajectory)->span;
}

static int64_t rows_of(const rv_loose_link *link)
{
  return link->reach.end - link->reach.first;
}

/* Of the loose item's links the last that is linked. */
static void unlink_last(rv_books *books, rv_loose *loose, rv_garbage *garbage)
{
  rv_loose_link *link = &loose->links[--loose->num_links];
  const int64_t episodes_gone = books->episodes_gone;
  rv_list_remove(&link->link);
  link->hold->items--;
  link->hold->num_loose--;
  link->hold->live_rows -= rows_of(link);
  rv_books_note_sparse(books, link->hold);
  rv_books_drop_if_unused(books, link->hold, garbage);
  if (loose->slot == RV_NO_SLOT) books->episodes_gone = episodes_gone;
}

static void free_later(rv_loose *loose, rv_garbage *garbage)
{
  loose->next_garbage = garbage->looses;
  garbage->looses = loose;
}

void rv_books_leave_loose(rv_books *books, rv_loose *owned_loose, uint32_t linked, rv_garbage *garbage)
{
  if (owned_loose->slot != RV_NO_SLOT) owned_loose->slot = RV_PAST_SLOT;
  owned_loose->num_links = linked;
  if (linked > UNLINKED_AT_ONCE) {
    owned_loose->next_garbage = books->leaving;
    books->leaving = owned_loose;
    garbage->more = true;
    return;
  }
  while (owned_loose->num_links > 0) unlink_last(books, owned_loose, garbage);
  free_later(owned_loose, garbage);
}

int rv_books_unlink_some(rv_books *books, rv_garbage *garbage)
{
  rv_loose *loose = books->leaving;
  int gone = 0;
  if (loose == NULL) return 0;
  for (; loose->num_links > 0 && gone < RV_LINKS_AT_ONCE; gone++) unlink_last(books, loose, garbage);
  if (loose->num_links == 0) {
    books->leaving = loose->next_garbage;
    free_later(loose, garbage);
  }
  return RV_UNLINK_STEPS * (gone + 1);
}

static size_t loose_bytes(const rv_loose *loose)
{
  return rv_loose_memory(loose->trajectory, loose->num_links);
}

rv_code rv_loose_new(rv_trajectory *trajectory, rv_loose **out, rv_error *err)
{
  const rv_reach *reaches = rv_trajectory_box_of(trajectory)->reaches;
  size_t bytes = sizeof(rv_loose) + trajectory->num_chunks * sizeof(rv_loose_link);
  rv_loose *loose = malloc(bytes);
  if (loose == NULL) return rv_fail_memory(err, bytes);
  *loose = (rv_loose){.trajectory = rv_trajectory_ref(trajectory), .slot = RV_NO_SLOT, .num_links = trajectory->num_chunks};
  for (uint32_t i = 0; i < loose->num_links; i++) loose->links[i] = (rv_loose_link){.loose = loose, .reach = reaches[i]};
  *out = loose;
  return RV_OK;
}

static rv_code link_next(rv_books *books, rv_loose *loose, uint32_t number, rv_error *err)
{
  rv_loose_link *link = &loose->links[number];
  rv_code code = rv_books_hold(books, loose->trajectory->chunks[number], &link->hold, err);
  if (code != RV_OK) return code;
  rv_list_push_back(&link->hold->loose, &link->link);
  link->hold->items++;
  link->hold->num_loose++;
  link->hold->live_rows += rows_of(link);
  return RV_OK;
}

rv_code rv_books_link_some(rv_books *books, rv_loose *loose, uint32_t *linked, rv_error *err)
{
  for (int made = 0; made < RV_LINKS_AT_ONCE && *linked < loose->num_links; made++, ++*linked) {
    rv_code code = link_next(books, loose, *linked, err);
    if (code != RV_OK) return code;
  }
  return RV_OK;
}

rv_code rv_books_attach_linked(rv_books *books, uint32_t slot, rv_loose *owned_loose, rv_error *err)
{
  rv_code code = count_layout(books, owned_loose->trajectory->layout, err);
  if (code != RV_OK) return code;
  books->num_loose++;
  books->loose_memory += loose_bytes(owned_loose);
  owned_loose->slot = slot;
  rv_item *item = rv_slab_at(&books->slab, slot);
  item->data = owned_loose;
  item->base_row = 0;
  item->template_number = RV_LOOSE;
  return RV_OK;
}

static rv_code attach_loose(rv_books *books, uint32_t slot, rv_trajectory *trajectory, rv_garbage *garbage, rv_error *err)
{
  rv_loose *loose = NULL;
  rv_code code = rv_loose_new(trajectory, &loose, err);
  if (code != RV_OK) return code;
  uint32_t linked = 0;
  while (linked < loose->num_links && (code = link_next(books, loose, linked, err)) == RV_OK) linked++;
  if (code == RV_OK) code = rv_books_attach_linked(books, slot, loose, err);
  if (code != RV_OK) rv_books_leave_loose(books, loose, linked, garbage);
  return code;
}

rv_code rv_books_attach(rv_books *books, uint32_t slot, rv_trajectory *trajectory, rv_garbage *garbage, rv_error *err)
{
  if (rv_trajectory_is_loose(trajectory)) return attach_loose(books, slot, trajectory, garbage, err);
  uint16_t number;
  int64_t base = rv_trajectory_base(trajectory);
  rv_code code = rv_books_template(books, trajectory, base, false, &number, err);
  if (code == RV_OUT_OF_RANGE) return attach_loose(books, slot, trajectory, garbage, err);
  if (code != RV_OK) return code;
  code = rv_books_use_template(books, number, 1, err);
  if (code != RV_OK) return code;
  rv_hold *hold;
  code = rv_books_hold(books, trajectory->chunks[0], &hold, err);
  if (code != RV_OK) {
    rv_books_unuse_template(books, number, 1);
    return code;
  }
  rv_books_link_compact(books, slot, hold, base, number);
  return RV_OK;
}

static void detach_loose(rv_books *books, rv_loose *loose, rv_garbage *garbage)
{
  uncount_layout(books, loose->trajectory->layout);
  books->num_loose--;
  books->loose_memory -= loose_bytes(loose);
  rv_books_leave_loose(books, loose, loose->num_links, garbage);
}

/* Its link with a hold that has another one of it already. */
static void merge_link(rv_loose *loose, uint32_t link)
{
  rv_loose_link *gone = &loose->links[link], *last = &loose->links[--loose->num_links];
  if (last == gone) return;
  *gone = *last;
  gone->link.prev->next = gone->link.next->prev = &gone->link;
}

static rv_loose_link *find_link(rv_loose *loose, const rv_hold *hold)
{
  for (uint32_t i = 0; i < loose->num_links; i++)
    if (loose->links[i].hold == hold) return &loose->links[i];
  return NULL;
}

void rv_books_move_loose(rv_books *books, rv_loose *loose, uint32_t link, rv_hold *to, rv_reach reach, rv_trajectory **moved,
                         rv_garbage *garbage)
{
  rv_loose_link *place = &loose->links[link], *other = NULL;
  rv_hold *from = place->hold;
  books->loose_memory -= loose_bytes(loose);
  rv_list_remove(&place->link);
  from->items--;
  from->num_loose--;
  from->live_rows -= rows_of(place);
  if ((*moved)->num_chunks < loose->num_links) {
    merge_link(loose, link);
    other = find_link(loose, to);
    to->live_rows -= rows_of(other);
    other->reach = reach;
    to->live_rows += rows_of(other);
  } else {
    place->hold = to;
    place->reach = reach;
    rv_list_push_back(&to->loose, &place->link);
    to->items++;
    to->num_loose++;
    to->live_rows += rows_of(place);
  }
  rv_trajectory *before = loose->trajectory;
  loose->trajectory = *moved;
  *moved = before;
  books->loose_memory += loose_bytes(loose);
  rv_books_note_sparse(books, from);
  rv_books_drop_if_unused(books, from, garbage);
}

void rv_books_detach(rv_books *books, uint32_t slot, rv_garbage *garbage)
{
  rv_item *item = rv_slab_at(&books->slab, slot);
  if (item->template_number == RV_LOOSE) {
    detach_loose(books, item->data, garbage);
  } else {
    rv_hold *hold = item->data;
    rv_books_unlink_compact(books, slot);
    rv_books_unuse_template(books, item->template_number, 1);
    rv_books_note_sparse(books, hold);
    rv_books_drop_if_unused(books, hold, garbage);
  }
  item->template_number = RV_UNATTACHED;
}

void rv_books_take_back(rv_books *books, uint32_t slot, rv_garbage *garbage)
{
  const rv_item *item = rv_slab_at(&books->slab, slot);
  const int64_t episodes_gone = books->episodes_gone;
  if (item->template_number == RV_LOOSE) ((rv_loose *)item->data)->slot = RV_NO_SLOT; /* its links may go later */
  rv_books_detach(books, slot, garbage);
  books->episodes_gone = episodes_gone;
}

rv_chunk *rv_books_first_chunk(const rv_books *books, const rv_item *item, int64_t *first_row)
{
  const rv_trajectory *trajectory = rv_books_trajectory(books, item);
  const rv_slice *slice = &trajectory->slices[0];
  *first_row = slice->offset + (slice->chunk == NULL ? item->base_row : 0);
  return slice->chunk == NULL ? ((rv_hold *)item->data)->chunk : slice->chunk;
}

/* ---- templates ---- */

static void index_template(rv_templates *templates, uint16_t number)
{
  size_t mask = 2 * RV_MAX_TEMPLATES - 1;
  size_t at = (size_t)rv_trajectory_box_of(templates->entry[number].trajectory)->hash & mask;
  while (templates->by_hash[at] != 0) at = (at + 1) & mask;
  templates->by_hash[at] = (uint16_t)(number + 1);
}

/* A place below `limit` for one more: a free one, or that of a template which no item uses. */
static bool make_place(rv_templates *templates, uint32_t limit, uint16_t *number)
{
  if (templates->count < limit) {
    *number = (uint16_t)templates->count++;
    return true;
  }
  for (uint32_t tried = 0; tried < limit; tried++) {
    uint32_t at = templates->hand++ % limit;
    if (templates->entry[at].items > 0) continue;
    rv_trajectory_unref(templates->entry[at].trajectory);
    templates->entry[at].trajectory = NULL;
    memset(templates->by_hash, 0, sizeof templates->by_hash);
    for (uint16_t i = 0; i < RV_MAX_TEMPLATES; i++)
      if (templates->entry[i].trajectory != NULL) index_template(templates, i);
    *number = (uint16_t)at;
    return true;
  }
  return false;
}

rv_code rv_books_template(rv_books *books, rv_trajectory *trajectory, int64_t base, bool is_template, uint16_t *number,
                          rv_error *err)
{
  rv_templates *templates = &books->templates;
  uint64_t hash = is_template ? rv_trajectory_box_of(trajectory)->hash : rv_template_hash(trajectory, base);
  size_t mask = 2 * RV_MAX_TEMPLATES - 1;
  for (size_t at = (size_t)hash & mask; templates->by_hash[at] != 0; at = (at + 1) & mask) {
    *number = (uint16_t)(templates->by_hash[at] - 1);
    if (rv_template_is_of(templates->entry[*number].trajectory, trajectory, base)) return RV_OK;
  }
  rv_trajectory *template = trajectory;
  rv_code code = is_template ? RV_OK : rv_template_new(trajectory, &template, err);
  if (code != RV_OK) return code;
  if (is_template) rv_trajectory_ref(template);
  if (!make_place(templates, is_template ? RV_MAX_TEMPLATES : RV_MAX_TEMPLATES - RV_ROW_TEMPLATES, number)) {
    rv_trajectory_unref(template);
    return RV_OUT_OF_RANGE;
  }
  templates->entry[*number] = (rv_template){.trajectory = template};
  index_template(templates, *number);
  return RV_OK;
}

rv_code rv_books_use_template(rv_books *books, uint16_t number, uint32_t items, rv_error *err)
{
  rv_template *template = &books->templates.entry[number];
  if (template->items == 0) {
    rv_code code = count_layout(books, template->trajectory->layout, err);
    if (code != RV_OK) return code;
    books->templates.memory += rv_trajectory_box_of(template->trajectory)->memory;
  }
  template->items += items;
  return RV_OK;
}

void rv_books_unuse_template(rv_books *books, uint16_t number, uint32_t items)
{
  rv_template *template = &books->templates.entry[number];
  template->items -= items;
  if (template->items > 0) return;
  uncount_layout(books, template->trajectory->layout);
  books->templates.memory -= rv_trajectory_box_of(template->trajectory)->memory;
}
