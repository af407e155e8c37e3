/* Items by key, and in pages. A page that is not the last leaves a mark on the item that the next one begins with; the mark moves
 * on when that item goes, so that a listing neither misses nor repeats an item that stayed, whatever happens in between. */
#include "base/error.h"
#include "store/table_parts.h"

enum { SLICE = 256, SEARCHES = 16, SEQUENCE_BITS = 47 };
#define SEARCHING (UINT64_C(1) << 63) /* cursors of marks that only this file knows */

/* A cursor outside: an item's sequence, and above it which life of the table that is of. Items that come back with a server have other
 * sequences. */
#define SEQUENCE_MASK ((UINT64_C(1) << SEQUENCE_BITS) - 1)
#define LIFE_MASK (~SEARCHING & ~SEQUENCE_MASK)

uint64_t rv_listing_new_life(const rv_env *env)
{
  return rv_entropy64(env) & LIFE_MASK;
}

static rv_code read_cursor(const rv_table *table, uint64_t cursor, uint64_t *sequence, rv_error *err)
{
  *sequence = cursor & SEQUENCE_MASK;
  if (cursor == 0 || (cursor & LIFE_MASK) == table->listing_life) return RV_OK;
  return rv_fail(
      err, RV_ABORTED,
      "table \"%s\": the server was started again since the page before, and items are counted anew; list again from the "
      "start",
      table->name);
}

rv_code rv_table_get(rv_table *table, uint64_t key, rv_draw *out, rv_error *err)
{
  rv_turn turn;
  rv_code code = RV_OK;
  rv_turn_begin(&turn, table);
  uint32_t slot = rv_books_find(&table->books, key);
  if (slot == RV_NO_SLOT) {
    code = rv_fail(err, RV_NOT_FOUND, "table \"%s\" has no item with key %llu; it may have been removed", table->name,
                   (unsigned long long)key);
  } else {
    const rv_item *item = rv_slab_at(&table->books.slab, slot);
    bool loose = item->template_number == RV_LOOSE;
    *out = (rv_draw){.key = key,
                     .priority = item->priority,
                     .table_size = (int64_t)table->books.slab.count,
                     .inserted_at_ns = item->inserted_at_ns,
                     .times_sampled = item->times_sampled,
                     .trajectory = rv_trajectory_ref(rv_books_trajectory(&table->books, item)),
                     .chunk = loose ? NULL : rv_chunk_ref(((const rv_hold *)item->data)->chunk),
                     .base_row = loose ? 0 : item->base_row,
                     .naming = rv_naming_of_all(table)};
  }
  rv_turn_end(&turn);
  return code;
}

/* ---- marks ---- */

static rv_mark *find_mark(rv_table *table, uint64_t cursor)
{
  for (size_t i = 0; i < RV_MAX_MARKS; i++)
    if (table->marks[i].cursor == cursor) return &table->marks[i];
  return NULL;
}

static void unmark(rv_table *table, rv_mark *mark)
{
  uint32_t slot = mark->slot;
  mark->cursor = 0;
  mark->slot = RV_NO_SLOT;
  if (slot == RV_NO_SLOT) return;
  for (size_t i = 0; i < RV_MAX_MARKS; i++)
    if (table->marks[i].cursor != 0 && table->marks[i].slot == slot) return;
  rv_slab_at(&table->books.slab, slot)->marked = 0;
}

/* The listing's own mark, a free one, or the one that was used longest ago. */
static rv_mark *place_for_mark(rv_table *table, uint64_t cursor)
{
  rv_mark *place = find_mark(table, cursor);
  if (place == NULL) place = find_mark(table, 0);
  if (place != NULL) return place;
  place = &table->marks[0];
  for (size_t i = 1; i < RV_MAX_MARKS; i++)
    if (table->marks[i].used < place->used) place = &table->marks[i];
  return place;
}

static void set_mark(rv_table *table, uint64_t cursor, uint32_t slot)
{
  rv_mark *mark = place_for_mark(table, cursor);
  unmark(table, mark);
  *mark = (rv_mark){.cursor = cursor, .slot = slot, .used = ++table->pages};
  rv_slab_at(&table->books.slab, slot)->marked = 1;
}

void rv_marks_leave(rv_table *table, uint32_t slot)
{
  uint32_t next = rv_slab_at(&table->books.slab, slot)->next;
  for (size_t i = 0; i < RV_MAX_MARKS; i++) {
    if (table->marks[i].cursor == 0 || table->marks[i].slot != slot) continue;
    table->marks[i].slot = next;
    if (next != RV_NO_SLOT) rv_slab_at(&table->books.slab, next)->marked = 1;
  }
}

/* ---- pages ---- */

/* Where an item with at least that sequence begins, when no mark tells: others came between this listing's pages. In slices.
 * False: disturbed too often. */
static bool search(rv_turn *turn, uint64_t sequence, uint32_t *out)
{
  rv_table *table = turn->table;
  uint64_t own = SEARCHING | ++table->pages;
  for (int tries = 0; tries < SEARCHES; tries++) {
    uint32_t slot = table->books.slab.oldest;
    for (size_t steps = 1; slot != RV_NO_SLOT; steps++) {
      const rv_item *item = rv_slab_at(&table->books.slab, slot);
      if (rv_item_sequence(item) >= sequence) break;
      slot = item->next;
      if (steps % SLICE != 0 || slot == RV_NO_SLOT) continue;
      set_mark(table, own, slot);
      rv_turn_pause(turn);
      rv_mark *mark = find_mark(table, own);
      if (mark == NULL) goto again;
      slot = mark->slot;
      unmark(table, mark);
    }
    *out = slot;
    return true;
  again:;
  }
  return false;
}

static void show(const rv_books *books, const rv_item *item, rv_item_info *out)
{
  *out = (rv_item_info){.key = item->key,
                        .priority = item->priority,
                        .times_sampled = item->times_sampled,
                        .inserted_at_ns = item->inserted_at_ns,
                        .length = rv_trajectory_box_of_const(rv_books_trajectory(books, item))->max_length};
}

/* Up to a slice of items from *slot on, which moves. */
static size_t show_some(rv_table *table, uint32_t *slot, rv_item_info *out, size_t capacity)
{
  size_t n = 0;
  while (n < capacity && n < SLICE && *slot != RV_NO_SLOT) {
    const rv_item *item = rv_slab_at(&table->books.slab, *slot);
    show(&table->books, item, &out[n++]);
    *slot = item->next;
  }
  return n;
}

rv_code rv_table_items(rv_table *table, uint64_t *cursor, rv_item_info *out, size_t capacity, size_t *count, rv_error *err)
{
  *count = 0;
  if (capacity == 0) return RV_OK;
  uint64_t at, next = 0;
  rv_code code = read_cursor(table, *cursor, &at, err);
  if (code != RV_OK) return code;
  rv_turn turn;
  rv_turn_begin(&turn, table);
  for (;;) {
    uint32_t slot = table->books.slab.oldest;
    const rv_mark *mark = at == 0 ? NULL : find_mark(table, at);
    if (mark != NULL) {
      slot = mark->slot;
    } else if (at != 0 && !search(&turn, at, &slot)) {
      code = rv_fail(err, RV_UNAVAILABLE, "table \"%s\": too many listings at once; list again from the start", table->name);
      break;
    }
    *count += show_some(table, &slot, out + *count, capacity - *count);
    if (slot == RV_NO_SLOT) {
      next = 0;
      break;
    }
    next = at = rv_item_sequence(rv_slab_at(&table->books.slab, slot));
    set_mark(table, at, slot);
    if (*count == capacity) break;
    rv_turn_pause(&turn);
  }
  rv_turn_end(&turn);
  if (code == RV_OK) *cursor = next == 0 ? 0 : table->listing_life | next;
  return code;
}
