/* Live rows move out of segments that are mostly dead, so that a few long-lived items do not keep whole segments.
 *
 * A segment is sparse when its items reach fewer than half of its rows. A few sparse segments are left alone (a table whose
 * oldest items go first always has one, and it dies by itself soon); when there are more, items are moved a few at a time. Rows are
 * copied without the table's lock: the source is held by a reference and never changes, and an item that went or moved in the
 * meantime is left as it is. */
#include <stdlib.h>

#include "base/error.h"
#include "store/chunk_parts.h"
#include "store/forms.h"
#include "store/table_parts.h"

enum {
  ITEMS = 64,           /* in one stay */
  STAY_BYTES = 1 << 16, /* copied for one stay, at least one item */
  VICTIMS_TRIED = 64,
  PAUSE = 1024 /* turns to let pass when nothing could be moved */
};

typedef struct rv_move {
  uint32_t slot;
  uint64_t sequence;
  int64_t from, to, rows;
  rv_trajectory *trajectory; /* a loose item's, one reference; NULL: compact */
  rv_trajectory *moved;      /* what it becomes */
} rv_move;

typedef struct rv_compaction {
  uint64_t epoch;
  rv_chunk *source; /* one reference */
  rv_chunk *target; /* one reference */
  size_t n;
  rv_move moves[ITEMS];
} rv_compaction;

/* Is it this table alone that keeps the chunk? Rows of its own go nowhere else, however many samples are looked at just now; a
 * writer's segment may still be written to, or hold another table's items. */
static bool only_ours(const rv_hold *hold)
{
  return hold->own || rv_chunk_refs(hold->chunk) == (size_t)hold->num_loose + 1;
}

static rv_hold *find_victim(rv_table *table)
{
  rv_books *books = &table->books;
  for (size_t tried = 0; tried < VICTIMS_TRIED && books->num_sparse > 0; tried++) {
    rv_hold *hold = RV_CONTAINER(books->sparse.next, rv_hold, sparse);
    if (hold->live_rows >= hold->sparse_below) { /* items came to it again */
      rv_books_forget_sparse(books, hold);
      continue;
    }
    if (only_ours(hold)) return hold;
    rv_list_remove(&hold->sparse);
    rv_list_push_back(&books->sparse, &hold->sparse);
  }
  return NULL;
}

/* ---- choosing, under the lock ---- */

static void close_target(rv_turn *turn)
{
  rv_table *table = turn->table;
  rv_hold *hold = table->compact_into;
  table->compact_into = NULL;
  if (hold == NULL) return;
  hold->open = false;
  rv_books_note_sparse(&table->books, hold);
  rv_books_drop_if_unused(&table->books, hold, &turn->garbage);
}

/* A segment like the source with room for `rows`. */
static bool open_target(rv_turn *turn, const rv_hold *victim, int64_t rows)
{
  rv_table *table = turn->table;
  rv_hold *hold = table->compact_into;
  rv_chunk *source = victim->chunk, *segment;
  if (hold != NULL && rv_chunk_same_columns(hold->chunk, source) && hold->chunk->meta.episode_id == source->meta.episode_id &&
      table->compact_fill + rows <= rv_segment_capacity(hold->chunk))
    return true;
  close_target(turn);
  int64_t capacity = rv_segment_capacity(source);
  if (capacity < rows) capacity = rows;
  rv_spec *specs = malloc(source->num_columns * sizeof *specs);
  if (specs == NULL) return false;
  for (uint32_t i = 0; i < source->num_columns; i++)
    specs[i] = (rv_spec){.name = "",
                         .dtype = source->columns[i].dtype,
                         .rank = (int32_t)source->columns[i].rank,
                         .shape = source->columns[i].shape};
  rv_chunk_meta meta = rv_chunk_load_meta(source);
  meta.key = rv_random_next(&table->random);
  meta.sparse = true; /* rows move together, so that a row's number says nothing about its step any more */
  rv_code code = rv_segment_new(specs, source->num_columns, (size_t)capacity, &meta, &segment, NULL);
  free(specs);
  if (code != RV_OK) return false;
  code = rv_books_hold(&table->books, segment, &hold, NULL);
  rv_chunk_unref(segment);
  if (code != RV_OK) return false;
  hold->open = true;
  hold->own = victim->own;
  table->compact_into = hold;
  table->compact_fill = 0;
  return true;
}

static bool add_move(rv_turn *turn, rv_compaction *work, const rv_hold *victim, rv_move move, size_t *bytes)
{
  rv_table *table = turn->table;
  size_t size = (size_t)move.rows * rv_segment_row_bytes(victim->chunk);
  if (work->n == ITEMS || (work->n > 0 && *bytes + size > STAY_BYTES)) return false;
  if (work->n > 0 && table->compact_fill + move.rows > rv_segment_capacity(table->compact_into->chunk)) return false;
  if (work->n == 0 && !open_target(turn, victim, move.rows)) return false;
  move.to = table->compact_fill;
  table->compact_fill += move.rows;
  *bytes += size;
  work->moves[work->n++] = move;
  return true;
}

static void choose_items(rv_turn *turn, rv_compaction *work, const rv_hold *victim)
{
  const rv_books *books = &turn->table->books;
  size_t bytes = 0;
  for (uint32_t slot = victim->first; slot != RV_NO_SLOT; slot = rv_slab_at(&books->slab, slot)->hold_next) {
    const rv_item *item = rv_slab_at(&books->slab, slot);
    rv_move move = {.slot = slot,
                    .sequence = rv_item_sequence(item),
                    .from = item->base_row,
                    .rows = rv_trajectory_box_of(books->templates.entry[item->template_number].trajectory)->span};
    if (!add_move(turn, work, victim, move, &bytes)) return;
  }
  RV_LIST_EACH(link, &victim->loose)
  {
    const rv_loose_link *loose = RV_CONTAINER(link, rv_loose_link, link);
    rv_move move = {.slot = loose->loose->slot,
                    .sequence = rv_item_sequence(rv_slab_at(&books->slab, loose->loose->slot)),
                    .from = loose->first_row,
                    .rows = loose->rows};
    if (!add_move(turn, work, victim, move, &bytes)) return;
    work->moves[work->n - 1].trajectory = rv_trajectory_ref(loose->loose->trajectory);
  }
}

/* ---- copying, without it ---- */

static bool copy_rows(rv_compaction *work)
{
  for (size_t i = 0; i < work->n; i++) {
    rv_move *move = &work->moves[i];
    if (rv_segment_copy_rows(work->target, move->to, work->source, move->from, move->rows, NULL) != RV_OK) return false;
    if (move->trajectory != NULL &&
        rv_trajectory_move(move->trajectory, work->source, work->target, move->to - move->from, &move->moved, NULL) != RV_OK)
      return false;
  }
  return true;
}

/* ---- moving, under the lock again ---- */

static void move_item(rv_turn *turn, const rv_move *move)
{
  rv_table *table = turn->table;
  rv_books *books = &table->books;
  if (!rv_slab_has(&books->slab, move->slot)) return;
  rv_item *item = rv_slab_at(&books->slab, move->slot);
  if (rv_item_sequence(item) != move->sequence) return;
  if (move->trajectory == NULL) {
    rv_hold *hold = item->data;
    uint16_t number = (uint16_t)item->template_number;
    rv_books_unlink_compact(books, move->slot);
    rv_books_link_compact(books, move->slot, table->compact_into, move->to, number);
    rv_books_drop_if_unused(books, hold, &turn->garbage);
    return;
  }
  /* Attaching first would need two records of one item; should memory be out for the second, the first is attached again, for
   * which its own just went free. */
  rv_trajectory *old = move->trajectory;
  rv_books_detach(books, move->slot, &turn->garbage);
  if (rv_books_attach(books, move->slot, move->moved, &turn->garbage, NULL) == RV_OK) return;
  if (rv_books_attach(books, move->slot, old, &turn->garbage, NULL) != RV_OK) rv_table_remove(turn, move->slot);
}

static void publish(rv_table *table)
{
  rv_chunk *chunk = table->compact_into->chunk;
  for (uint32_t c = 0; c < chunk->num_columns; c++) rv_segment_publish(chunk, c, table->compact_fill);
}

static bool work_once(rv_table *table)
{
  rv_compaction work = {.n = 0};
  rv_turn turn;
  rv_turn_begin(&turn, table);
  if (table->books.num_sparse < 2 || table->compacting) {
    rv_turn_leave(&turn);
    return false;
  }
  rv_hold *victim = find_victim(table);
  if (victim != NULL) choose_items(&turn, &work, victim);
  if (work.n == 0) {
    table->compact_pause = PAUSE;
    rv_turn_leave(&turn);
    return false;
  }
  table->compacting = true;
  work.epoch = table->books.epoch;
  work.source = rv_chunk_ref(victim->chunk);
  work.target = rv_chunk_ref(table->compact_into->chunk);
  rv_turn_leave(&turn);

  bool copied = copy_rows(&work);

  rv_turn_begin(&turn, table);
  if (work.epoch == table->books.epoch) {
    if (copied) {
      publish(table);
      for (size_t i = 0; i < work.n; i++) move_item(&turn, &work.moves[i]);
    }
    if (table->compact_fill == rv_segment_capacity(table->compact_into->chunk)) close_target(&turn);
  }
  table->compacting = false;
  if (!copied) table->compact_pause = PAUSE;
  rv_chunk_unref(work.source);
  rv_chunk_unref(work.target);
  rv_turn_leave(&turn);
  for (size_t i = 0; i < work.n; i++) {
    rv_trajectory_unref(work.moves[i].trajectory);
    rv_trajectory_unref(work.moves[i].moved);
  }
  return copied;
}

void rv_table_compact(rv_table *table, size_t stays)
{
  while (stays-- > 0 && work_once(table)) {
  }
}
