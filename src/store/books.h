/* A table's books: its items, the keys they are found by, the chunks they hold, and what they look like.
 *
 * An item whose slices all lie in one chunk is compact: a hold (the table's own record of that chunk), a base row and the number
 * of a template. Any other is loose: its trajectory stands out of line, linked to the hold of each of its chunks. A chunk is
 * referred to once by its hold, however many items need it. Nothing here takes time in proportion to the number of items; what is
 * to be freed joins an rv_garbage, for the caller to free outside the table's lock, which guards all of this. */
#ifndef RV_STORE_BOOKS_H
#define RV_STORE_BOOKS_H

#include "base/list.h"
#include "base/map.h"
#include "base/segarray.h"
#include "base/size_class.h"
#include "store/selectors/selector.h"
#include "store/slab.h"
#include "store/trajectory_parts.h"

enum {
  RV_MAX_TEMPLATES = 256,
  RV_ROW_TEMPLATES = 16,     /* kept for rows, which cannot be loose */
  RV_TEMPLATE_SLICES = 1024, /* of an item that is compared with templates */
  RV_LINKS_AT_ONCE = 32,     /* of a loose item with the holds of its chunks, made in one step */
  RV_LOOKS_AT_ONCE = 64,     /* at chunks that it may be linked with, */
  RV_LINK_STEPS = 8,         /* small steps that each is worth, */
  RV_UNLINK_STEPS = 4,       /* and its going */
  RV_LINKS_MOVED = 1024,     /* an item of more stays where it is (compact.c) */
  RV_RECENT_HOLDS = 8
};

/* ---- holds ---- */

typedef struct rv_hold {
  rv_chunk *chunk;     /* one reference; NULL once it was taken out of the garbage */
  uint64_t plan;       /* serial of the plan that the chunk's rows lie as; 0: not looked at */
  const uint8_t *rows; /* by that plan: where they begin */
  uint32_t index;      /* in rv_books.holds */
  uint32_t items;      /* that need it */
  uint32_t first;      /* compact items, linked by hold_next */
  uint32_t num_loose;
  uint32_t drawn;       /* references to the chunk that a step under way still owes */
  rv_link loose;        /* of rv_loose_link */
  rv_link sparse;       /* in rv_books.sparse or .spilled_sparse, or by itself */
  rv_link cold;         /* in rv_books.cold, or by itself */
  rv_link placed;       /* in one of rv_books.placed, or by itself */
  int64_t live_rows;    /* sum over items of the rows they reach; rows that several reach count for each */
  int64_t sparse_below; /* compaction pays when fewer are live; 0: never */
  size_t memory;        /* as counted in rv_books.chunk_memory */
  bool open;            /* more rows come into it: it stays without items, too */
  bool own;             /* the table made it */
  struct rv_hold *next_garbage;
} rv_hold;

/* Holds that are worth compacting. */
typedef struct rv_sparse_holds {
  rv_link list;
  size_t num;
  size_t memory; /* of their chunks */
} rv_sparse_holds;

#define RV_PAST_SLOT (RV_NO_SLOT - 1)

typedef struct rv_loose_link {
  rv_link link; /* in the hold's list */
  rv_hold *hold;
  struct rv_loose *loose;
  rv_reach reach; /* of the item in this chunk */
} rv_loose_link;

typedef struct rv_loose {
  rv_trajectory *trajectory;     /* one reference */
  struct rv_loose *next_garbage; /* or the next of those that leave */
  uint32_t slot;                 /* RV_NO_SLOT: it was no item yet; RV_PAST_SLOT: it is none any more */
  uint32_t num_links;            /* of one that leaves: those that still have to */
  rv_loose_link links[];
} rv_loose;

/* Chunks that were made for a table and came into none. */
typedef struct rv_left_chunks {
  struct rv_left_chunks *next;
  rv_memory *memory; /* where they are counted as being on the way */
  size_t on_the_way; /* as so many bytes */
  size_t count;
  rv_chunk *chunk[]; /* one reference each */
} rv_left_chunks;
void rv_left_chunks_free(rv_left_chunks *left); /* this one */

typedef struct rv_garbage {
  rv_hold *holds;
  rv_loose *looses;
  bool more;       /* there is more: what follows, or in the books, loose items that leave. One question of every turn */
  rv_chunk *chunk; /* one that no table holds any more; NULL: none */
  rv_left_chunks *left;
} rv_garbage;

static inline bool rv_garbage_is_some(const rv_garbage *garbage)
{
  return garbage->holds != NULL || garbage->looses != NULL || garbage->more;
}
static inline void rv_garbage_put_chunk(rv_garbage *garbage, rv_chunk *owned_chunk)
{
  garbage->chunk = owned_chunk;
  garbage->more |= owned_chunk != NULL;
}

void rv_garbage_free(rv_garbage *garbage);
/* The same, but that the memory of a few holds is left, linked by next_garbage; NULL: of none. */
rv_hold *rv_garbage_free_but_holds(rv_garbage *garbage);
void rv_holds_free(rv_hold *spare); /* such a list; NULL is fine */

/* ---- templates ---- */

typedef struct rv_template {
  rv_trajectory *trajectory; /* NULL: free */
  uint32_t items;
  uint64_t plan; /* serial of the plan made for it; 0: none */
} rv_template;

typedef struct rv_templates {
  rv_template entry[RV_MAX_TEMPLATES];
  uint16_t by_hash[2 * RV_MAX_TEMPLATES]; /* number + 1; 0: free; linear probing */
  uint32_t count, hand;
  size_t memory; /* of those that items use: the others, which nobody waits for, make room for new ones */
} rv_templates;

/* ---- the books ---- */

typedef struct rv_books {
  uint64_t epoch; /* of this set of books; another after each reset */
  rv_slab slab;
  rv_map by_key;              /* of items whose key does not name their slot */
  uint64_t key_tag, key_mask; /* see rv_books_make_key */
  uint64_t key_count;
  unsigned slot_bits;
  uint32_t old_bits;  /* what slot_bits was before the table's bound grew, a bit each: keys of then name their slots so */
  uint64_t old_until; /* the newest item that may have such a key, in the order of insertion */
  rv_map by_chunk;    /* of chunks that another table had first */
  uint32_t hold_tag;  /* marks chunks as held here, see holds.c */
  rv_segarray holds;  /* rv_hold * by index; a free place holds the next free one */
  uint32_t num_holds, free_hold; /* places ever taken; the first free one */
  uint32_t present_holds;
  rv_hold *spare_holds; /* memory for the next ones, linked by next_garbage */
  rv_memory *memory;    /* the store's account */
  size_t chunk_memory;
  size_t open_memory;  /* of these: chunks whose holds are open */
  uint32_t num_loose;  /* items */
  size_t loose_memory; /* theirs */
  bool oldest_first;   /* the remover takes the oldest item: what is partly dead mostly dies by itself soon */
  rv_sparse_holds sparse;
  rv_sparse_holds spilled_sparse; /* those whose chunks lie elsewhere (cold.h) */
  rv_link cold;                   /* holds in the order in which they were taken, where `keeps_cold` (cold.h) */
  bool keeps_cold;
  size_t spilled_memory; /* part of chunk_memory: of chunks that lie elsewhere */
  /* Open holds whose segments their writers fill (placed.h), and may go on filling when they are closed, by size (open.c). Where a list's bit is
   * not set it is empty. */
  rv_link placed[RV_SIZE_CLASSES];
  uint64_t placed_some[RV_SIZE_CLASSES / 64];
  uint32_t
      recent[RV_RECENT_HOLDS]; /* a ring of indices: chunks that came from elsewhere, not yet looked at for rows no item wants */
  uint32_t next_recent;
  rv_map episodes; /* to the number of holds */
  int64_t episodes_gone;
  rv_map layouts; /* address of a layout to the number of templates in use and loose items that have it */
  rv_templates templates;
  rv_loose *leaving; /* of items that have gone: links that still have to, a few in each step; linked by next_garbage */
} rv_books;

void rv_books_init(rv_books *books, rv_memory *memory, uint64_t epoch, int64_t max_size, const uint64_t seeds[6]);
/* Everything; not under a lock. */
void rv_books_fini(rv_books *books);
size_t rv_books_memory(const rv_books *books); /* without chunks */
/* The part of it that also shrinks. */
static inline size_t rv_books_shrinking(const rv_books *books)
{
  return rv_map_memory(&books->by_key) + rv_map_memory(&books->by_chunk) + rv_map_memory(&books->episodes) +
         rv_map_memory(&books->layouts) + books->present_holds * sizeof(rv_hold) + books->loose_memory + books->templates.memory;
}
/* What the rest, and the selectors, grow with. */
static inline uint64_t rv_books_places(const rv_books *books)
{
  return (uint64_t)books->slab.used + books->num_holds;
}
/* What would go if all items went: their chunks, and what is written down of both. */
static inline size_t rv_books_of_items(const rv_books *books)
{
  return books->chunk_memory + books->loose_memory + books->present_holds * sizeof(rv_hold) + books->slab.count * sizeof(rv_item);
}

/* Another bound, of at least as many items as there are. */
void rv_books_set_max_size(rv_books *books, int64_t max_size);
/* RV_NO_SLOT: no item has that key. */
uint32_t rv_books_find(const rv_books *books, uint64_t key);
/* ---- keys ---- */

/* The slot that a key names, if the table made it; else RV_NO_SLOT or a slot that has another key. */
static inline uint32_t rv_books_slot_named(const rv_books *books, uint64_t key)
{
  return (key & UINT64_C(0xFF00000000000000)) == books->key_tag ? (uint32_t)(key & books->key_mask) : RV_NO_SLOT;
}

/* The item that has the key goes from the slot, or gets another key. */
static inline void rv_books_forget_key(rv_books *books, uint64_t key, uint32_t slot)
{
  if (rv_books_slot_named(books, key) != slot || books->old_bits != 0) rv_map_remove(&books->by_key, key);
}

/* No item is left whose key names its slot in an older way. */
static inline void rv_books_forget_old_names(rv_books *books)
{
  const rv_slab *slab = &books->slab;
  if (books->old_bits == 0) return;
  if (slab->count == 0 || rv_item_sequence(rv_slab_at(slab, slab->oldest)) > books->old_until) books->old_bits = 0;
}

static inline uint64_t rv_books_next_key(rv_books *books, uint32_t slot)
{
  return books->key_tag | ((++books->key_count << books->slot_bits) & UINT64_C(0x00FFFFFFFFFFFFFF)) | slot;
}
/* Where items have keys that the table did not make: the key, or, where one of them has that, another. */
uint64_t rv_books_unused_key(rv_books *books, uint32_t slot, uint64_t key);

/* A key that no item has and that names the slot: seven random bits, a count, the slot. */
static inline uint64_t rv_books_make_key(rv_books *books, uint32_t slot)
{
  uint64_t key = rv_books_next_key(books, slot);
  return books->by_key.count > 0 || books->old_bits != 0 ? rv_books_unused_key(books, slot, key) : key;
}

/* ---- putting in and taking out: selectors and counters are the table's ---- */

/* A slot with its item at the end of the order of insertion, holding nothing yet. With `choose_key` the table's own key, else
 * `key`, which must be absent. RV_RESOURCE_EXHAUSTED: nothing has changed. */
rv_code rv_books_take(rv_books *books, uint64_t key, bool choose_key, uint32_t *slot, rv_error *err);
/* Gives the slot back; the item must hold nothing. */
void rv_books_give(rv_books *books, uint32_t slot);

/* Would an item of that trajectory keep it, since its slices lie in several chunks, or are too many to be compared with templates? */
static inline bool rv_trajectory_is_loose(const rv_trajectory *trajectory)
{
  return trajectory->num_chunks != 1 || trajectory->num_slices > RV_TEMPLATE_SLICES;
}
static inline size_t rv_loose_memory(const rv_trajectory *trajectory, uint32_t num_links)
{
  return sizeof(rv_loose) + num_links * sizeof(rv_loose_link) + rv_trajectory_box_of_const(trajectory)->memory;
}
/* What an item of that trajectory takes, but for its chunks and their holds. */
static inline size_t rv_item_memory(const rv_trajectory *trajectory)
{
  return sizeof(rv_item) + (rv_trajectory_is_loose(trajectory) ? rv_loose_memory(trajectory, trajectory->num_chunks) : 0);
}

/* Lets the item refer to what `trajectory` (with chunks) describes, compactly where it can be. RV_RESOURCE_EXHAUSTED: it holds
 * nothing. */
rv_code rv_books_attach(rv_books *books, uint32_t slot, rv_trajectory *trajectory, rv_garbage *garbage, rv_error *err);
void rv_books_detach(rv_books *books, uint32_t slot, rv_garbage *garbage);
/* The same of an item that nobody has seen: no episode has gone with it. */
void rv_books_take_back(rv_books *books, uint32_t slot, rv_garbage *garbage);

/* ---- loose items of many chunks ----
 *
 * One is made without the lock, linked a few chunks at a time, and becomes the item's when all are; its links go a few at a time, too. So the books
 * may be others between two steps: what was linked to those before is as if it had not been. */

/* Would what it describes be linked in steps? */
static inline bool rv_trajectory_is_long(const rv_trajectory *trajectory)
{
  return trajectory->num_chunks > RV_LINKS_AT_ONCE;
}
/* Without the lock. */
rv_code rv_loose_new(rv_trajectory *trajectory, rv_loose **out, rv_error *err);
/* Behind the first *linked chunks RV_LINKS_AT_ONCE more. */
rv_code rv_books_link_some(rv_books *books, rv_loose *loose, uint32_t *linked, rv_error *err);
/* The item, which holds nothing, refers to what is linked. On an error it is the caller's still. */
rv_code rv_books_attach_linked(rv_books *books, uint32_t slot, rv_loose *owned_loose, rv_error *err);
/* It is no item any more, or becomes none, and has so many links: a few go at once, others join those that leave. */
void rv_books_leave_loose(rv_books *books, rv_loose *owned_loose, uint32_t linked, rv_garbage *garbage);
/* Some of those that leave; how many small steps that was worth. */
int rv_books_unlink_some(rv_books *books, rv_garbage *garbage);
/* Rows that were in the chunk of one of its links are in another one, `moved` is the trajectory over that, and `reach` what it reaches there. What
 * the loose item referred to is *moved. */
void rv_books_move_loose(rv_books *books, rv_loose *loose, uint32_t link, rv_hold *to, rv_reach reach, rv_trajectory **moved,
                         rv_garbage *garbage);

/* The pieces of a compact attachment, for those who have hold and template at hand. */
rv_code rv_books_hold(rv_books *books, rv_chunk *chunk, rv_hold **out, rv_error *err);
/* Counts what the chunk has grown by: strings. */
void rv_books_measure(rv_books *books, rv_hold *hold);
/* The table lets the chunk go: it is no longer marked as held here. */
void rv_books_unmark(rv_books *books, rv_hold *hold);
/* NULL: the table does not hold the chunk. */
rv_hold *rv_books_find_hold(const rv_books *books, const rv_chunk *chunk);
void rv_books_drop_if_unused(rv_books *books, rv_hold *hold, rv_garbage *garbage);
static inline void rv_books_open(rv_books *books, rv_hold *hold)
{
  if (hold->open) return;
  hold->open = true;
  books->open_memory += hold->memory;
}
static inline void rv_books_close(rv_books *books, rv_hold *hold)
{
  if (!hold->open) return;
  hold->open = false;
  books->open_memory -= hold->memory;
  rv_list_remove(&hold->placed);
}
/* No more rows come into it, or only after its writer has opened it again. */
void rv_books_leave(rv_books *books, rv_hold *hold, rv_garbage *garbage);
/* RV_OUT_OF_RANGE, without a sentence: all are in use. Counted in use only by rv_books_use_template. */
rv_code rv_books_template(rv_books *books, rv_trajectory *trajectory, int64_t base, bool is_template, uint16_t *number,
                          rv_error *err);
rv_code rv_books_use_template(rv_books *books, uint16_t number, uint32_t items, rv_error *err);
void rv_books_unuse_template(rv_books *books, uint16_t number, uint32_t items);
void rv_books_link_compact(rv_books *books, uint32_t slot, rv_hold *hold, int64_t base_row, uint16_t number);
void rv_books_unlink_compact(rv_books *books, uint32_t slot);

/* After the rows that live in a hold became fewer: is it worth compacting? */
void rv_books_add_sparse(rv_books *books, rv_hold *hold);
static inline void rv_books_note_sparse(rv_books *books, rv_hold *hold)
{
  if (hold->live_rows >= hold->sparse_below || hold->open || hold->items == 0 || !rv_list_empty(&hold->sparse)) return;
  rv_books_add_sparse(books, hold);
}
void rv_books_forget_sparse(rv_books *books, rv_hold *hold);
/* Its chunk, which is in none of the lists, lies elsewhere now. */
void rv_books_note_spilled(rv_books *books, rv_hold *hold);
static inline void rv_books_note_cold(rv_books *books, rv_hold *hold)
{
  if (books->keeps_cold && rv_list_empty(&hold->cold) && !rv_chunk_is_spilled(hold->chunk))
    rv_list_push_back(&books->cold, &hold->cold);
}
/* One sparse chunk is left alone unless it takes more than `large`, and so are a few among many: those whose oldest items go first die by
 * themselves. */
static inline bool rv_books_are_sparse(const rv_books *books, size_t large)
{
  return books->sparse.num > 0 && (books->sparse.num > 1 || books->sparse.memory > large) &&
         books->sparse.memory >= books->chunk_memory / (books->oldest_first ? 8 : 16);
}
/* Of those that lie elsewhere an eighth may be so: to compact them they are read. */
static inline bool rv_books_spilled_are_sparse(const rv_books *books)
{
  return books->spilled_sparse.num > 1 && books->spilled_sparse.memory >= books->spilled_memory / 8;
}

/* ---- looking ---- */

static inline rv_trajectory *rv_books_trajectory(const rv_books *books, const rv_item *item)
{
  return item->template_number == RV_LOOSE ? ((rv_loose *)item->data)->trajectory
                                           : books->templates.entry[item->template_number].trajectory;
}

/* The item's first chunk, and its first row there. */
rv_chunk *rv_books_first_chunk(const rv_books *books, const rv_item *item, int64_t *first_row);
/* How many layouts the present items have, and the one if it is one. */
size_t rv_books_num_layouts(const rv_books *books);

#endif
