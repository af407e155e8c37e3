/* Live rows move out of chunks that are mostly dead, so that a few long-lived items do not keep whole chunks.
 *
 * A segment is sparse when its items reach fewer than three quarters of its rows, or half where the oldest items go first; a chunk that
 * came encoded, when these rows take less than half of its bytes. A few sparse chunks among many are left alone (a table whose oldest items go first always has some, and they
 * die by themselves soon); else items are moved a few at a time. Rows are copied, and decoded where they must be, without the
 * table's lock: the source is held by a reference and never changes, and an item that went or moved in the meantime is left as it
 * is. Chunks that lie in a spill's file (cold.h) are left to its thread: whoever compacts them waits for the disk. */
#include <stdlib.h>

#include "store/chunk_parts.h"
#include "store/forms.h"
#include "store/table_parts.h"

enum {
  ITEMS = 64,             /* in one stay */
  STAY_BYTES = 1 << 16,   /* copied for one stay, at least one item */
  TARGET_BYTES = 1 << 18, /* of a segment for rows of others' chunks */
  VICTIMS_TRIED = 64,
  PAUSE_MIN = 16, /* turns to let pass when nothing could be moved, at first and in the end */
  PAUSE = 1024
};

typedef struct rv_move {
  uint32_t slot;
  uint64_t sequence;
  int64_t from, to, rows;
  rv_trajectory *trajectory; /* a loose item's, one reference; NULL: compact */
  rv_trajectory *moved;      /* what it becomes, and in the end what it was */
  uint32_t link;             /* of the loose item's */
  rv_reach reach;            /* of it, in the target */
} rv_move;

typedef struct rv_compaction {
  bool of_spilled;
  uint64_t epoch;
  rv_chunk *source; /* one reference */
  rv_chunk *target; /* one reference */
  rv_buf **decoded; /* by column, NULL where rows lie as they are; NULL: all do */
  bool whole;       /* the source was decoded: worth many stays */
  size_t bytes;     /* of the rows that move */
  size_t n;
  rv_move moves[ITEMS];
} rv_compaction;

/* Would it die if this table's items left it? Rows of the table's own go nowhere else, however many samples are looked at just now. A
 * writer's segment may still be written to, and a stream may yet refer to a chunk that it sent. Where several tables hold it, it must be
 * mostly dead for all: each moves what is its own. */
static bool is_movable(const rv_hold *hold)
{
  const rv_chunk *chunk = hold->chunk;
  if (hold->own || rv_chunk_refs(chunk) == (size_t)hold->num_loose + 1) return true;
  unsigned holds = rv_chunk_holds(chunk);
  return holds > 1 && atomic_load_explicit(&chunk->num_sparse, memory_order_relaxed) >= holds;
}

/* May rows of both stand in one segment? */
static bool are_alike(const rv_hold *a, const rv_hold *b)
{
  return a->own == b->own && a->chunk->meta.episode_id == b->chunk->meta.episode_id && rv_chunk_same_columns(a->chunk, b->chunk);
}

static bool suits_target(const rv_hold *target, const rv_hold *hold)
{
  const rv_chunk_meta *to = &target->chunk->meta, from = rv_chunk_load_meta(hold->chunk); /* its stream may add to it */
  return are_alike(target, hold) && from.first_step >= to->first_step && from.last_step <= to->last_step;
}

static rv_sparse_holds *holds_of(rv_table *table, const rv_compaction *work)
{
  return work->of_spilled ? &table->books.spilled_sparse : &table->books.sparse;
}

/* One whose rows may join those in the open target, if there is one. */
static rv_hold *find_victim(rv_table *table, rv_link *list)
{
  rv_books *books = &table->books;
  rv_hold *found = NULL;
  rv_link *link = list->next;
  for (size_t tried = 0; tried < VICTIMS_TRIED && link != list; tried++) {
    rv_hold *hold = RV_CONTAINER(link, rv_hold, sparse);
    link = link->next;
    if (hold->live_rows >= hold->sparse_below) { /* items came to it again */
      rv_books_forget_sparse(books, hold);
    } else if (!is_movable(hold)) {
      rv_list_remove(&hold->sparse);
      rv_list_push_back(list, &hold->sparse);
    } else if (table->compact_into == NULL || suits_target(table->compact_into, hold)) {
      return hold;
    } else if (found == NULL) {
      found = hold;
    }
  }
  return found;
}

/* ---- choosing, under the lock ---- */

static void close_target(rv_turn *turn)
{
  rv_table *table = turn->table;
  rv_hold *hold = table->compact_into;
  table->compact_into = NULL;
  if (hold != NULL) rv_books_leave(&table->books, hold, &turn->garbage);
}

/* One that takes no more is as dense as such rows can be, however many it was made for: it pays to move them again when some of these have
 * gone. Else rows that fill no segment by the rule would be moved for ever. */
static void close_full_target(rv_turn *turn)
{
  const rv_books *books = &turn->table->books;
  rv_hold *hold = turn->table->compact_into;
  int64_t live = hold->live_rows, below = books->oldest_first ? live / 2 : live - live / 4;
  if (hold->sparse_below > below) hold->sparse_below = below;
  close_target(turn);
}

/* Of its columns; strings count as what points to them. */
static size_t row_bytes_of(const rv_chunk *chunk)
{
  if (chunk->is_segment) return rv_segment_row_bytes(chunk);
  size_t bytes = 0;
  for (uint32_t i = 0; i < chunk->num_columns; i++) bytes += chunk->lanes[i].row_bytes;
  return bytes;
}

/* How many rows the next target has, and the range of their steps: as many as will soon come from this chunk and from those like it,
 * so that no room is kept for rows that never come. */
static int64_t target_rows(const rv_table *table, const rv_link *list, const rv_hold *victim, int64_t rows, rv_chunk_meta *meta)
{
  size_t row_bytes = row_bytes_of(victim->chunk), tried = 0;
  if (victim->own) {
    size_t capacity = (size_t)rv_segment_capacity(victim->chunk), share = rv_table_share(table) / (row_bytes + 1);
    if (capacity > share && rv_table_is_large(table, victim->chunk)) capacity = share;
    return (int64_t)capacity > rows ? (int64_t)capacity / rows * rows : rows; /* most items have as many */
  }
  int64_t wanted = 0, most = (int64_t)(TARGET_BYTES / (row_bytes + 1)) + 1;
  RV_LIST_EACH(link, list)
  {
    const rv_hold *hold = RV_CONTAINER(link, rv_hold, sparse);
    if (wanted >= most || tried++ == VICTIMS_TRIED) break;
    if (hold != victim && (hold->live_rows >= hold->sparse_below || !are_alike(victim, hold))) continue;
    rv_chunk_meta other = rv_chunk_load_meta(hold->chunk);
    if (other.first_step < meta->first_step) meta->first_step = other.first_step;
    if (other.last_step > meta->last_step) meta->last_step = other.last_step;
    wanted += hold->live_rows;
  }
  if (wanted > most) wanted = most;
  return wanted > rows ? wanted : rows;
}

static rv_code new_target(rv_table *table, const rv_link *list, const rv_hold *victim, int64_t rows, rv_chunk **out)
{
  rv_chunk *source = victim->chunk;
  rv_chunk_meta meta = rv_chunk_load_meta(source);
  int64_t capacity = target_rows(table, list, victim, rows > 0 ? rows : 1, &meta);
  rv_spec *specs = malloc(source->num_columns * sizeof *specs);
  if (specs == NULL) return RV_RESOURCE_EXHAUSTED;
  for (uint32_t i = 0; i < source->num_columns; i++)
    specs[i] = (rv_spec){.name = "",
                         .dtype = source->columns[i].dtype,
                         .rank = (int32_t)source->columns[i].rank,
                         .shape = source->columns[i].shape};
  meta.key = rv_random_next(&table->unseeded);
  meta.sparse = true; /* rows move together, so that a row's number says nothing about its step any more */
  /* laid out as what it takes rows from, so that they go on to be found by the plan */
  const bool by_rows = source->is_segment ? rv_segment_is_by_rows(source) : meta.episode_id == RV_NO_EPISODE;
  rv_code code = rv_segment_new_from(specs, source->num_columns, (size_t)capacity, &meta,
                                     &(rv_segment_source){.by_rows = by_rows}, out, NULL);
  free(specs);
  if (code != RV_OK || meta.episode_id == RV_NO_EPISODE) return code;
  code = rv_segment_keep_steps(*out, NULL);
  if (code != RV_OK) rv_chunk_unref(*out);
  return code;
}

/* Makes sure that there is one with room for `rows` of the victim. */
static bool open_target(rv_turn *turn, const rv_link *list, rv_hold *victim, int64_t rows)
{
  rv_table *table = turn->table;
  rv_hold *hold = table->compact_into;
  rv_chunk *segment;
  bool suits = hold != NULL && suits_target(hold, victim);
  if (suits && table->compact_fill + rows <= rv_segment_capacity(hold->chunk)) return true;
  if (suits)
    close_full_target(turn);
  else
    close_target(turn);
  rv_code code = new_target(table, list, victim, rows, &segment);
  if (code == RV_OK) {
    code = rv_books_hold(&table->books, segment, &hold, NULL);
    rv_chunk_unref(segment);
  }
  if (code != RV_OK) return false;
  rv_books_open(&table->books, hold);
  hold->own = victim->own;
  table->compact_into = hold;
  table->compact_fill = 0;
  return true;
}

static bool add_move(rv_turn *turn, rv_compaction *work, rv_hold *victim, rv_move move)
{
  rv_table *table = turn->table;
  size_t size = (size_t)move.rows * row_bytes_of(victim->chunk);
  if (work->n == ITEMS || (work->n > 0 && work->bytes + size > STAY_BYTES)) return false;
  if (work->n > 0 && table->compact_fill + move.rows > rv_segment_capacity(table->compact_into->chunk)) return false;
  if (work->n == 0 && !open_target(turn, &holds_of(table, work)->list, victim, move.rows)) return false;
  move.to = table->compact_fill;
  table->compact_fill += move.rows;
  work->bytes += size;
  work->moves[work->n++] = move;
  return true;
}

/* What an item is of which nothing moves. */
typedef enum rv_stays { NONE_STAYS, SOME_LEAVE, SOME_STAY } rv_stays;

/* One that is no item yet, or no more, is soon; one of very many chunks would be copied for each of them. */
static rv_stays stays(const rv_loose *loose)
{
  if (loose->num_links > RV_LINKS_MOVED) return SOME_STAY;
  return loose->slot >= RV_PAST_SLOT ? SOME_LEAVE : NONE_STAYS;
}

static rv_stays choose_items(rv_turn *turn, rv_compaction *work, rv_hold *victim)
{
  const rv_books *books = &turn->table->books;
  size_t links = 0;
  rv_stays passed_over = NONE_STAYS;
  for (uint32_t slot = victim->first; slot != RV_NO_SLOT; slot = rv_slab_at(&books->slab, slot)->hold_next) {
    const rv_item *item = rv_slab_at(&books->slab, slot);
    rv_move move = {.slot = slot,
                    .sequence = rv_item_sequence(item),
                    .from = item->base_row,
                    .rows = rv_trajectory_box_of(books->templates.entry[item->template_number].trajectory)->span};
    if (!add_move(turn, work, victim, move)) return passed_over;
  }
  RV_LIST_EACH(link, &victim->loose)
  {
    const rv_loose_link *loose = RV_CONTAINER(link, rv_loose_link, link);
    const rv_stays this_one = stays(loose->loose);
    if (this_one > passed_over) passed_over = this_one;
    if (this_one != NONE_STAYS) continue;
    if (work->n > 0 && links + loose->loose->num_links > RV_LINKS_MOVED) return passed_over;
    links += loose->loose->num_links;
    rv_move move = {.slot = loose->loose->slot,
                    .sequence = rv_item_sequence(rv_slab_at(&books->slab, loose->loose->slot)),
                    .from = loose->reach.first,
                    .rows = loose->reach.end - loose->reach.first,
                    .link = (uint32_t)(loose - loose->loose->links)};
    if (!add_move(turn, work, victim, move)) return passed_over;
    work->moves[work->n - 1].trajectory = rv_trajectory_ref(loose->loose->trajectory);
  }
  return passed_over;
}

/* ---- copying, without it ---- */

static rv_code decode_columns(rv_compaction *work, rv_error *err)
{
  rv_chunk *source = work->source;
  rv_code code = RV_OK;
  for (uint32_t i = 0; i < source->num_columns && code == RV_OK; i++) {
    if (source->lanes[i].base != NULL) continue;
    if (work->decoded == NULL) work->decoded = calloc(source->num_columns, sizeof *work->decoded);
    code = work->decoded == NULL ? RV_RESOURCE_EXHAUSTED : rv_chunk_decode(source, i, &work->decoded[i], err);
  }
  return code;
}

static void forget_decoded(rv_compaction *work)
{
  for (uint32_t i = 0; work->decoded != NULL && i < work->source->num_columns; i++) rv_buf_unref(work->decoded[i]);
  free(work->decoded);
}

static rv_code copy_encoded(const rv_compaction *work, const rv_move *move)
{
  rv_code code = RV_OK;
  for (uint32_t i = 0; i < work->source->num_columns && code == RV_OK; i++) {
    const rv_lane *lane = &work->source->lanes[i];
    const uint8_t *base = lane->base != NULL ? lane->base : work->decoded[i]->data;
    code = rv_segment_fill(work->target, i, move->to, base + (size_t)move->from * lane->row_bytes, (size_t)move->rows, NULL);
  }
  return code;
}

/* From the first to the last that is copied: all together before the first is read. */
static void ask_for_rows(const rv_compaction *work)
{
  int64_t first = INT64_MAX, end = 0;
  for (size_t i = 0; i < work->n; i++) {
    const rv_move *move = &work->moves[i];
    if (move->from < first) first = move->from;
    if (move->from + move->rows > end) end = move->from + move->rows;
  }
  for (uint32_t c = 0; c < work->source->num_columns; c++) rv_chunk_ask_for_rows(work->source, c, first, end - first);
}

static rv_reach reach_in(const rv_trajectory *trajectory, const rv_chunk *chunk)
{
  uint32_t i = 0;
  while (trajectory->chunks[i] != chunk) i++;
  return rv_trajectory_box_of_const(trajectory)->reaches[i];
}

static rv_code copy_rows(rv_compaction *work, rv_error *err)
{
  rv_chunk *source = work->source, *target = work->target;
  if (work->of_spilled) ask_for_rows(work);
  rv_code code = source->is_segment ? RV_OK : decode_columns(work, err);
  for (size_t i = 0; i < work->n && code == RV_OK; i++) {
    rv_move *move = &work->moves[i];
    code = source->is_segment ? rv_segment_copy_rows(target, move->to, source, move->from, move->rows, err)
                              : copy_encoded(work, move);
    for (int64_t row = 0; row < move->rows && target->steps != NULL; row++) {
      int64_t step = rv_chunk_row_step(source, move->from + row);
      target->steps[move->to + row] = step > INT32_MAX ? INT32_MAX : (int32_t)step;
    }
    if (code == RV_OK && move->trajectory != NULL)
      code = rv_trajectory_move(move->trajectory, source, target, move->to - move->from, &move->moved, NULL);
    if (code == RV_OK && move->trajectory != NULL) move->reach = reach_in(move->moved, target);
  }
  return code;
}

/* ---- moving, under the lock again ---- */

static void move_item(rv_turn *turn, rv_move *move)
{
  rv_table *table = turn->table;
  rv_books *books = &table->books;
  if (!rv_slab_has(&books->slab, move->slot)) return;
  rv_item *item = rv_slab_at(&books->slab, move->slot);
  if (rv_item_sequence(item) != move->sequence) return;
  if (move->trajectory != NULL) {
    rv_books_move_loose(books, item->data, move->link, table->compact_into, move->reach, &move->moved, &turn->garbage);
    return;
  }
  rv_hold *hold = item->data;
  uint16_t number = (uint16_t)item->template_number;
  rv_books_unlink_compact(books, move->slot);
  rv_books_link_compact(books, move->slot, table->compact_into, move->to, number);
  rv_books_drop_if_unused(books, hold, &turn->garbage);
}

static void publish(rv_table *table)
{
  rv_chunk *chunk = table->compact_into->chunk;
  for (uint32_t c = 0; c < chunk->num_columns; c++) rv_segment_publish(chunk, c, table->compact_fill);
  if (chunk->has_strings) rv_books_measure(&table->books, table->compact_into);
}

/* Nothing can be moved now: others hold the chunks. */
static void wait_longer(rv_table *table)
{
  if (table->compact_wait < PAUSE_MIN) table->compact_wait = PAUSE_MIN;
  table->compact_pause = table->compact_wait;
  table->compact_stuck = table->books.sparse.num;
  if (table->compact_wait < PAUSE) table->compact_wait *= 2;
}

static void wait_for_memory(rv_table *table)
{
  table->compact_pause = PAUSE;
  table->compact_stuck = SIZE_MAX;
}

/* It is not compacted, however few of its rows live. */
static void leave_alone(rv_table *table, rv_hold *hold)
{
  hold->sparse_below = 0;
  rv_books_forget_sparse(&table->books, hold);
}

/* A chunk whose rows cannot be had stays as it is. */
static void give_up(rv_table *table, const rv_chunk *source)
{
  rv_hold *hold = rv_books_find_hold(&table->books, source);
  if (hold != NULL) leave_alone(table, hold);
}

/* Under the lock: false, nothing can be done. Whoever compacts what lies in a file comes again when he likes. */
static bool choose(rv_turn *turn, rv_compaction *work)
{
  rv_table *table = turn->table;
  if (table->compacting) return false;
  rv_hold *victim = find_victim(table, &holds_of(table, work)->list);
  if (victim == NULL) {
    if (!work->of_spilled) wait_longer(table);
    return false;
  }
  rv_stays passed_over = choose_items(turn, work, victim);
  if (work->n == 0) {
    if (passed_over == SOME_STAY) {
      leave_alone(table, victim);
    } else if (passed_over == SOME_LEAVE) {
      rv_list_remove(&victim->sparse);
      rv_list_push_back(&holds_of(table, work)->list, &victim->sparse);
      if (!work->of_spilled) wait_longer(table);
    } else if (!work->of_spilled) {
      wait_for_memory(table);
    }
    return false;
  }
  table->compacting = true;
  if (!work->of_spilled) table->compact_pause = table->compact_wait = 0;
  work->epoch = table->books.epoch;
  work->source = rv_chunk_ref(victim->chunk);
  work->target = rv_chunk_ref(table->compact_into->chunk);
  return true;
}

static rv_code apply(rv_turn *turn, rv_compaction *work, rv_code code)
{
  rv_table *table = turn->table;
  if (work->epoch == table->books.epoch) {
    if (code == RV_OK) {
      publish(table);
      for (size_t i = 0; i < work->n; i++) move_item(turn, &work->moves[i]);
    } else {
      table->compact_fill = work->moves[0].to; /* what may not have been copied is not published with what comes next */
      if (code != RV_RESOURCE_EXHAUSTED) give_up(table, work->source);
    }
    const rv_chunk *target = table->compact_into->chunk;
    if (table->compact_fill == rv_segment_capacity(target) || rv_table_is_large(table, target)) close_full_target(turn);
  }
  if (code == RV_RESOURCE_EXHAUSTED && !work->of_spilled) wait_for_memory(table);
  table->compacting = false;
  return code;
}

/* Where one chunk cannot be read others cannot be either, mostly: it is said once. */
static void tell_lost(const rv_table *table, const rv_error *err)
{
  if (!atomic_exchange(&table->memory->told_lost, true))
    rv_log(table->env, RV_LOG_WARNING, "table \"%s\": a chunk that is mostly dead goes on taking room: %s", table->name,
           err->message);
}

typedef bool is_due(const rv_table *table);

/* One stay; false: no more can be done now. */
static bool work_once(rv_table *table, is_due *due, rv_compaction *work)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  bool chosen = due(table) && choose(&turn, work);
  rv_turn_leave(&turn);
  if (!chosen) return false;

  rv_error err;
  rv_code code = copy_rows(work, &err);
  if (code == RV_DATA_LOSS && work->of_spilled) tell_lost(table, &err);
  work->whole = work->decoded != NULL;
  forget_decoded(work);

  rv_turn_begin(&turn, table);
  code = apply(&turn, work, code);
  /* before the turn ends, so that the table may use them again; whose last reference that would be is freed after it */
  if (rv_chunk_unref_unless_last(work->source)) work->source = NULL;
  if (rv_chunk_unref_unless_last(work->target)) work->target = NULL;
  rv_turn_leave(&turn);
  rv_chunk_unref(work->source);
  rv_chunk_unref(work->target);
  for (size_t i = 0; i < work->n; i++) {
    rv_trajectory_unref(work->moves[i].trajectory);
    rv_trajectory_unref(work->moves[i].moved);
  }
  return code != RV_RESOURCE_EXHAUSTED;
}

void rv_table_compact(rv_table *table, size_t stays)
{
  while (stays > 0) {
    rv_compaction work = {.n = 0};
    if (!work_once(table, rv_table_is_sparse, &work)) return;
    size_t worth = work.whole ? RV_COMPACT_STAYS : 1;
    stays -= worth < stays ? worth : stays;
  }
}

static bool has_sparse_in_file(const rv_table *table)
{
  return table->books.spilled_sparse.num > 0;
}

static bool has_many_sparse_in_file(const rv_table *table)
{
  return rv_books_spilled_are_sparse(&table->books);
}

size_t rv_table_compact_spilled(rv_table *table, size_t bytes, bool at_once)
{
  size_t moved = 0;
  while (moved < bytes) {
    rv_compaction work = {.of_spilled = true};
    if (!work_once(table, at_once ? has_sparse_in_file : has_many_sparse_in_file, &work)) break;
    moved += work.bytes + 1; /* a row may have none */
  }
  return moved;
}
