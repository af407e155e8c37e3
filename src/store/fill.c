#include "store/fill.h"

#include "base/error.h"
#include "base/fetches.h"
#include "base/small_copies.h"
#include "store/changes_parts.h"
#include "store/chunk_parts.h"
#include "store/snapshot_parts.h"

enum {
  ITEM_BYTES_MAX = 2048,    /* more is better copied outside the lock */
  ITEM_BYTES_OF_FEW = 4096, /* and more than this where a batch is so small that nobody would help with it there: */
  FEW_BYTES = 1 << 19,      /* of less than so many (gather.c) */
  STEP_BYTES = 1 << 15,     /* copied in one step */
  STEP_ITEMS = 128,
  BLOCK = 64,         /* at most, looked up while those before it are copied */
  BLOCK_BYTES = 4096, /* of a block that comes from memory: more than that is not on its way at a time */
  LOOKED_BACK = 64,   /* items, for one whose rows lie in one chunk */
  LINE = 64,
  AT_HAND_BYTES = 1 << 20, /* of chunks */
  BYTES_A_BUDGET_STEP = 128,
  /* in small steps */
  ITEM_STEPS = 2,                     /* an item, without its bytes */
  ODD_STEPS = 8,                      /* one that lies otherwise than planned, more */
  SLICE_STEPS = 3,                    /* and each slice of it */
  ODD_STEPS_MAX = 2 * RV_TURN_BUDGET, /* of all such items in one step */
  PLAN_STEPS = 64                     /* another plan */
};

/* The plan for items of this template takes the place of any other: mostly a table has one template. */
static void plan_for(rv_turn *turn, uint16_t number, const rv_chunk *like)
{
  rv_table *table = turn->table;
  rv_template *template = &table->books.templates.entry[number];
  table->plan_template = number;
  if (template->plan != 0 && template->plan == table->plan_serial) return;
  rv_row_plan_make(&table->plan, template->trajectory, like);
  rv_row_shuffle_make(&table->shuffle, &table->plan);
  template->plan = ++table->plan_serial;
  turn->budget -= PLAN_STEPS;
}

/* Where the chunk's rows begin, if they lie as planned. */
static bool hold_fits(const rv_table *table, rv_hold *hold)
{
  if (hold->plan == table->plan_serial) return true;
  if (!rv_row_plan_fits(&table->plan, hold->chunk)) return false;
  hold->rows = rv_row_plan_base(&table->plan, hold->chunk);
  hold->plan = table->plan_serial;
  return true;
}

/* Sequences over the end of a chunk are loose, many in a row where they overlap. */
static const rv_item *newest_compact(rv_turn *turn)
{
  const rv_slab *slab = &turn->table->books.slab;
  uint32_t slot = slab->newest;
  for (int i = 0; i < LOOKED_BACK && slot != RV_NO_SLOT; i++) {
    const rv_item *item = rv_slab_at(slab, slot);
    if (item->template_number != RV_LOOSE) return item;
    slot = item->prev;
    turn->budget--;
  }
  return NULL;
}

/* The plan is that of a template which many items have: it stays as long as those of the newest item's are no more. False: there is
 * none, or most items are loose, and would end the filling soon. */
static bool choose_plan(rv_turn *turn)
{
  const rv_table *table = turn->table;
  const rv_slab *slab = &table->books.slab;
  const rv_template *templates = table->books.templates.entry, *planned = &templates[table->plan_template];
  if (table->books.num_loose > slab->count / 2) return false;
  const bool stays = planned->plan != 0 && planned->plan == table->plan_serial && planned->items > 0 && table->plan.whole;
  const rv_item *item = rv_slab_at(slab, slab->newest);
  if (item->template_number == RV_LOOSE) {
    if (stays) return true;
    item = newest_compact(turn);
    if (item == NULL) return false;
  }
  if (stays && planned->items >= templates[item->template_number].items) return true;
  plan_for(turn, (uint16_t)item->template_number, ((const rv_hold *)item->data)->chunk);
  return table->plan.whole;
}

/* Of a batch that is large altogether, only smaller items: outside the lock others help with the rest. */
static size_t most_item_bytes(const rv_sampling *sampling, size_t item_bytes)
{
  return sampling->want < FEW_BYTES / (item_bytes + 1) ? ITEM_BYTES_OF_FEW : ITEM_BYTES_MAX;
}

size_t rv_fill_most(rv_turn *turn, const rv_sampling *sampling, size_t k)
{
  const rv_table *table = turn->table;
  const rv_fill *fill = sampling->fill;
  if (fill == NULL || fill->done < sampling->count || sampling->max_bytes > 0 || table->config.max_times_sampled > 0) return 0;
  if (!choose_plan(turn)) return 0;
  size_t bytes = table->plan.item_bytes;
  if (bytes > most_item_bytes(sampling, bytes)) return 0;
  size_t most = STEP_BYTES / (bytes + 1);
  if (most > STEP_ITEMS) most = STEP_ITEMS;
  return k < most ? k : most;
}

/* Each item, and where its rows begin; NULL: they lie otherwise than planned, in several chunks for example. */
typedef struct rv_filled {
  rv_item *item[BLOCK];
  const uint8_t *rows[BLOCK];
  bool some_odd;
} rv_filled;

/* Are the table's rows mostly in the second cache? Others are fetched: whether the third has them, or other programs have driven them out of it, cannot be
 * known. */
static bool is_at_hand(const rv_table *table)
{
  return table->books.chunk_memory < AT_HAND_BYTES;
}

/* The first and the last line of an item's rows. */
RV_FETCHES void fetch_ends(const uint8_t *rows, size_t last)
{
  RV_FETCH(rows);
  RV_FETCH(rows + last);
}

/* Of the slots from number i on: those whose items are of the template and lie in holds that were seen to be as planned. Returns the first
 * that is not such a one. No call stands in this loop, so that all it needs is in registers. */
static size_t find_planned(const rv_table *table, uint16_t number, const uint32_t *slots, size_t i, size_t k, rv_filled *filled)
{
  const rv_slab *slab = &table->books.slab;
  const ptrdiff_t stride = (ptrdiff_t)table->plan.stride;
  const size_t last = table->plan.stride * (size_t)table->plan.longest - 1;
  const uint64_t serial = table->plan_serial;
  const bool at_hand = is_at_hand(table);
  for (; i < k; i++) {
    rv_item *item = rv_slab_at(slab, slots[i]);
    if (item->template_number != number) return i;
    const rv_hold *hold = item->data;
    if (hold->plan != serial) return i;
    const uint8_t *rows = hold->rows + item->base_row * stride;
    filled->item[i] = item;
    filled->rows[i] = rows;
    if (!at_hand) fetch_ends(rows, last);
  }
  return k;
}

/* The lines between an item's first and last one. What is in the caches comes by itself, in order. */
RV_FETCHES void fetch_between(const rv_table *table, const uint8_t *const *rows, size_t k)
{
  const size_t last = table->plan.stride * (size_t)table->plan.longest - 1;
  if (last < 2 * LINE || is_at_hand(table)) return;
  for (size_t i = 0; i < k; i++)
    for (size_t at = LINE; rows[i] != NULL && at < last; at += LINE) RV_FETCH(rows[i] + at);
}

/* A slice's rows, in place; the disk is not waited for under the lock, nor is anything decoded. */
static const uint8_t *rows_of(const rv_item *item, const rv_slice *slice, const rv_lane **lane)
{
  const rv_chunk *chunk = slice->chunk == NULL ? ((const rv_hold *)item->data)->chunk : slice->chunk;
  const int64_t row = slice->offset + (slice->chunk == NULL ? item->base_row : 0);
  *lane = &chunk->lanes[slice->tensor];
  return (*lane)->base == NULL ? NULL : (*lane)->base + (size_t)row * (*lane)->stride;
}

/* What copying the item slice by slice costs; its rows are fetched. More than `most`: that, or something of it is not in place. */
static size_t odd_steps(const rv_table *table, const rv_item *item, size_t most)
{
  const bool at_hand = is_at_hand(table);
  const rv_trajectory *trajectory = rv_books_trajectory(&table->books, item);
  const size_t steps = ODD_STEPS + SLICE_STEPS * (size_t)trajectory->num_slices;
  for (uint32_t i = 0; i < trajectory->num_slices && steps <= most; i++) {
    const rv_slice *slice = &trajectory->slices[i];
    const rv_lane *lane;
    const uint8_t *rows = rows_of(item, slice, &lane);
    if (rows == NULL) return most + 1;
    if (!at_hand) fetch_ends(rows, slice->length > 0 ? lane->stride * (size_t)(slice->length - 1) : 0);
  }
  return steps;
}

/* The item's rows are as planned, which was not known yet of its hold. */
static bool is_planned(rv_table *table, uint16_t number, const rv_item *item)
{
  rv_hold *hold = item->data;
  return item->template_number == number && hold_fits(table, hold);
}

/* How many of the slots' items, from the first on, can be copied; their rows are fetched. *odd: steps for those that lie otherwise than
 * planned, in all blocks so far. */
static size_t find_rows(rv_table *table, const uint32_t *slots, size_t k, rv_filled *filled, size_t *odd)
{
  const uint16_t number = table->plan_template;
  size_t i = 0;
  filled->some_odd = false;
  while ((i = find_planned(table, number, slots, i, k, filled)) < k) {
    rv_item *item = rv_slab_at(&table->books.slab, slots[i]);
    if (is_planned(table, number, item)) continue;
    size_t most = ODD_STEPS_MAX - *odd, steps = odd_steps(table, item, most);
    if (steps > most) break;
    *odd += steps;
    filled->item[i] = item;
    filled->rows[i++] = NULL;
    filled->some_odd = true;
  }
  fetch_between(table, filled->rows, i);
  return i;
}

/* The items are drawn: counted, and told to the caller. */
static void count(rv_table *table, rv_item *const *items, size_t k, rv_fill *fill)
{
  uint64_t *keys = fill->keys + fill->done;
  double *priorities = fill->priorities + fill->done;
  int32_t *times_sampled = fill->times_sampled + fill->done;
  int64_t unique = 0;
  /* array by array: a core commits two stores a cycle where they go to one line */
  for (size_t i = 0; i < k; i++) keys[i] = items[i]->key;
  for (size_t i = 0; i < k; i++) priorities[i] = items[i]->priority;
  for (size_t i = 0; i < k; i++) {
    int32_t times = items[i]->times_sampled;
    unique += times == 0 ? 1 : 0;
    times += times < INT32_MAX ? 1 : 0;
    times_sampled[i] = items[i]->times_sampled = times;
  }
  table->num_unique_samples += unique;
}

/* Item number `at` of the caller's: slice by slice. */
static void copy_slices(const rv_table *table, const rv_fill *fill, const rv_item *item, size_t at)
{
  const rv_trajectory *trajectory = rv_books_trajectory(&table->books, item);
  for (uint32_t c = 0; c < trajectory->num_columns; c++) {
    const rv_trajectory_column *column = &trajectory->columns[c];
    const size_t row_bytes = column->spec->row_bytes;
    uint8_t *out = fill->columns[c];
    if (out == NULL) continue;
    out += at * row_bytes * (size_t)column->length;
    for (uint32_t i = 0; i < column->num_slices; i++) {
      const rv_slice *slice = &trajectory->slices[column->first_slice + i];
      const rv_lane *lane;
      const uint8_t *rows = rows_of(item, slice, &lane);
      rv_copy_strided(out, row_bytes, rows, lane->stride, row_bytes, (size_t)slice->length);
      out += row_bytes * (size_t)slice->length;
    }
  }
}

/* Items number `at` and behind it. */
static void copy_planned(const rv_table *table, const rv_fill *fill, const uint8_t *const *rows, size_t k, size_t at)
{
  uint8_t *outs[RV_PLAN_COLUMNS];
  for (uint32_t c = 0; c < table->plan.num_columns; c++) {
    size_t bytes = table->plan.column[c].row_bytes * (size_t)table->plan.column[c].length;
    outs[c] = fill->columns[c] == NULL ? NULL : (uint8_t *)fill->columns[c] + at * bytes;
  }
  rv_row_plan_copy(&table->plan, &table->shuffle, rows, k, outs);
}

static void copy_items(const rv_table *table, const rv_fill *fill, const rv_filled *filled, size_t k)
{
  for (size_t i = 0, end; i < k; i = end) {
    end = i + 1;
    if (filled->rows[i] == NULL) {
      copy_slices(table, fill, filled->item[i], fill->done + i);
      continue;
    }
    while (end < k && filled->rows[end] != NULL) end++;
    copy_planned(table, fill, filled->rows + i, end - i, fill->done + i);
  }
}

static void fill_block(rv_turn *turn, rv_fill *fill, const uint32_t *slots, const rv_filled *filled, size_t k)
{
  rv_table *table = turn->table;
  for (size_t i = 0; i < k && table->snapshot != NULL; i++) rv_snapshot_changes(table, slots[i]);
  count(table, filled->item, k, fill);
  if (!filled->some_odd)
    copy_planned(table, fill, filled->rows, k, fill->done);
  else
    copy_items(table, fill, filled, k);
  for (size_t i = 0; i < k && table->log != NULL; i++) rv_changes_note(table, RV_CHANGE_SAMPLE, filled->item[i]);
  for (size_t i = 0; i < k && table->num_extensions > 0; i++) {
    const double priority = fill->priorities[fill->done + i]; /* all are drawn before extensions hear of the first, and edit */
    rv_table_note(turn, RV_EVENT_SAMPLE, filled->item[i], priority, priority);
    table->events[table->num_events - 1].times_sampled = fill->times_sampled[fill->done + i];
  }
  fill->done += k;
}

static size_t at_most(size_t n, size_t most)
{
  return n < most ? n : most;
}

static size_t block_of(const rv_table *table)
{
  return is_at_hand(table) ? BLOCK : at_most(BLOCK_BYTES / (table->plan.item_bytes + 1) + 1, BLOCK);
}

size_t rv_fill_slots(rv_turn *turn, rv_sampling *sampling, const uint32_t *slots, size_t k)
{
  rv_table *table = turn->table;
  rv_fill *fill = sampling->fill;
  rv_filled filled[2];
  const size_t block = block_of(table);
  size_t begun = fill->done, done = 0, odd = 0, ready = find_rows(table, slots, at_most(k, block), &filled[0], &odd);
  /* the next block's rows are on their way while this one's are copied */
  for (unsigned i = 0; ready > 0; i ^= 1) {
    size_t next = done + ready, wanted = ready < block ? 0 : at_most(k - next, block);
    size_t found = find_rows(table, slots + next, wanted, &filled[i ^ 1], &odd);
    fill_block(turn, fill, slots + done, &filled[i], ready);
    done = next;
    ready = found;
  }
  if (done == 0) return 0;
  turn->budget -= (int)(ITEM_STEPS * done + table->plan.item_bytes * done / BYTES_A_BUDGET_STEP + odd);
  uint64_t naming = rv_naming_of_all(table);
  fill->naming = begun == 0 || fill->naming == naming ? naming : 0;
  rv_draw_sizes_note_one(&fill->sizes, begun, done, (int64_t)table->books.slab.count);
  sampling->count += done;
  return done;
}

/* The items are of another layout than the caller's arrays: it is told which, and makes new ones. */
bool rv_fill_mismatch(rv_turn *turn, rv_sampling *sampling)
{
  rv_table *table = turn->table;
  rv_fill *fill = sampling->fill;
  const rv_item *item = rv_slab_at(&table->books.slab, table->books.slab.newest);
  rv_layout *layout = rv_books_trajectory(&table->books, item)->layout;
  if (layout == fill->layout) return false;
  if (sampling->count > 0) { /* what was filled is returned as a short batch */
    rv_turn_complete(turn, &sampling->waiter, RV_OK);
    return true;
  }
  fill->found = rv_layout_ref(layout);
  rv_code code = rv_fail(
      &sampling->waiter.error, RV_FAILED_PRECONDITION,
      "the items of table \"%s\" have another layout (dtype, shape or length of some column) than the arrays given", table->name);
  rv_turn_complete(turn, &sampling->waiter, code);
  return true;
}
