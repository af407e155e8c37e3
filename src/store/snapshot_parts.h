/* A snapshot as the files that change items see it. Everything here under the table's lock. */
#ifndef RV_STORE_SNAPSHOT_PARTS_H
#define RV_STORE_SNAPSHOT_PARTS_H

#include "store/snapshot.h"
#include "store/table_parts.h"

/* What an item had at the moment of the snapshot: of items that are still there. */
typedef struct rv_kept_values {
  double priority;
  int32_t times_sampled; /* -1: nothing is kept */
} rv_kept_values;

/* An item and its place in the order. */
typedef struct rv_snapshot_item {
  uint64_t sequence;
  rv_draw draw;
  rv_buf *record; /* it was written early: the draw has no references; NULL: it was not */
} rv_snapshot_item;

enum { RV_KEPT_SHIFT = 8, RV_KEPT_BLOCK = 1 << RV_KEPT_SHIFT, RV_GONE_BLOCK = 64 };

/* Items that went before they were walked. */
typedef struct rv_gone_block {
  struct rv_gone_block *next; /* older ones */
  size_t count;
  rv_snapshot_item items[RV_GONE_BLOCK];
} rv_gone_block;

struct rv_snapshot {
  rv_table *table;
  rv_snapshot_head head;
  /* ---- under the table's lock ---- */
  rv_books *books;              /* the table's, or `own` */
  rv_books *own;                /* after a reset: the books that the table had before */
  uint32_t cursor;              /* the next item; RV_NO_SLOT: none */
  uint64_t next_sequence;       /* those below were walked */
  uint64_t last_sequence;       /* those above came later */
  uint64_t naming, named_since; /* of the newest items, and the first of them, where others have another */
  rv_kept_values **kept;        /* blocks by slot, NULL until something is kept there */
  size_t num_blocks;            /* of `kept` */
  rv_gone_block *gone;          /* newest first */
  bool failed;                  /* memory was out */
  /* ---- the walker's ---- */
  rv_snapshot_item *slice; /* walked, in order */
  size_t slice_count, slice_at;
  rv_snapshot_item *heap; /* of those that went: the lowest sequence first */
  size_t heap_count, heap_capacity;
  uint64_t horizon; /* everything below it is in the slice or the heap */
  rv_draw *out;
  rv_buf **out_records;
  size_t out_count;
  rv_snapshot_put put_early; /* NULL: nothing is written early */
  void *put_context;
};

/* Before the item's priority or times_sampled changes; before it goes. */
void rv_snapshot_keep_values(rv_snapshot *snapshot, uint32_t slot);
void rv_snapshot_keep_item(rv_snapshot *snapshot, uint32_t slot);
/* The table has new books: the snapshot takes over the old ones, of which the struct is its own from here on. */
void rv_snapshot_take_books(rv_snapshot *snapshot, rv_books *owned_books);

static inline void rv_snapshot_changes(const rv_table *table, uint32_t slot)
{
  if (__builtin_expect(table->snapshot != NULL, 0)) rv_snapshot_keep_values(table->snapshot, slot);
}
static inline void rv_snapshot_leaves(const rv_table *table, uint32_t slot)
{
  if (__builtin_expect(table->snapshot != NULL, 0)) rv_snapshot_keep_item(table->snapshot, slot);
}

#endif
