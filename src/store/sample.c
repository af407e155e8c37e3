/* Items go out: drawn one by one as the limiter allows, many in one step where a draw does not change the next one's odds. */
#include "base/error.h"
#include "base/fetches.h"
#include "store/changes_parts.h"
#include "store/chunk_parts.h"
#include "store/snapshot_parts.h"
#include "store/unequal.h"

/* A draw waits for its item, then for the item's hold, then for the chunk's references: each is fetched that many draws ahead. */
enum { AHEAD = 32, HOLD_AHEAD = 20, CHUNK_AHEAD = 8 };

enum {
  AT_ONCE = 32,                           /* drawn in one step, with references of their own: 2 to 5 us */
  DRAW_STEPS = 8,                         /* small steps that one of them is worth, */
  FORGOTTEN_STEPS = 4,                    /* one that does not fit after all, */
  ALONE_STEPS = 16,                       /* and one that waits for its memory alone, up to 1 us, */
  IN_TURN = RV_TURN_BUDGET / ALONE_STEPS, /* of which a hold makes so many; */
  FEW = 4,                                /* so few hardly wait together */
  UNEQUAL_LOOKED_AT = 256
};

/* Fills a draw from an item, with references of its own. */
static void fill_draw(rv_table *table, const rv_item *item, rv_draw *draw)
{
  draw->key = item->key;
  draw->priority = item->priority;
  draw->inserted_at_ns = item->inserted_at_ns;
  draw->times_sampled = item->times_sampled;
  draw->trajectory = rv_trajectory_ref(rv_books_trajectory(&table->books, item));
  draw->chunk = item->template_number == RV_LOOSE ? NULL : rv_chunk_ref(((const rv_hold *)item->data)->chunk);
  draw->base_row = item->base_row;
  draw->naming = rv_naming_of_all(table);
}

/* What sending an item would take: encoded chunks whole, rows of segments alone. `chunk`: NULL for an item whose trajectory has all of them. */
static size_t bytes_to_send(const rv_trajectory *trajectory, const rv_chunk *chunk)
{
  size_t rows = rv_trajectory_box_of_const(trajectory)->bytes, bytes = 0;
  bool some_rows = chunk != NULL && chunk->is_segment;
  const rv_trajectory_sums *sums = rv_trajectory_get_sums(trajectory);
  if (sums != NULL) return sums->encoded + (sums->some_segments ? rows : 0);
  if (chunk != NULL && !some_rows) bytes += rv_chunk_memory(chunk);
  for (uint32_t i = 0; i < trajectory->num_chunks; i++) {
    if (trajectory->chunks[i]->is_segment)
      some_rows = true;
    else
      bytes += rv_chunk_memory(trajectory->chunks[i]);
  }
  return bytes + (some_rows ? rows : 0);
}

static size_t item_bytes(const rv_table *table, const rv_item *item)
{
  const rv_chunk *chunk = item->template_number == RV_LOOSE ? NULL : ((const rv_hold *)item->data)->chunk;
  return bytes_to_send(rv_books_trajectory(&table->books, item), chunk);
}

static void count_draw(rv_table *table, rv_item *item)
{
  if (item->times_sampled == 0) table->num_unique_samples++;
  if (item->times_sampled < INT32_MAX) item->times_sampled++;
}

RV_FETCHES void fetch_hold(const rv_item *item)
{
  __builtin_prefetch(item->data, 1);
}

RV_FETCHES void fetch_chunk(const rv_item *item)
{
  if (item->template_number != RV_LOOSE) __builtin_prefetch(((const rv_hold *)item->data)->chunk, 1);
}

/* How many may fit below the bound of bytes, if they are like those so far, or the newest. */
static size_t most_fitting(const rv_table *table, const rv_sampling *sampling, size_t k)
{
  if (sampling->max_bytes == 0) return k;
  size_t bytes = sampling->count > 0 ? sampling->bytes / sampling->count
                                     : item_bytes(table, rv_slab_at(&table->books.slab, table->books.slab.newest));
  size_t whole = (sampling->max_bytes - sampling->bytes) / (bytes + 1);
  return k <= whole ? k : whole + 1;
}

/* Counts the bytes of those that fit below it, and how many they are; those behind them are as if they had not been drawn, since no draw depends on
 * another. */
static size_t take_fitting(rv_turn *turn, rv_sampling *sampling, const uint32_t *slots, size_t k)
{
  const rv_table *table = turn->table;
  const rv_slab *slab = &table->books.slab;
  size_t fitting = 0;
  if (sampling->max_bytes == 0) return k;
  for (size_t i = 0; i < k; i++) fetch_hold(rv_slab_at(slab, slots[i]));
  for (size_t i = 0; i < k; i++) fetch_chunk(rv_slab_at(slab, slots[i]));
  while (fitting < k && sampling->bytes < sampling->max_bytes) {
    const rv_item *item = rv_slab_at(slab, slots[fitting++]);
    sampling->bytes += item_bytes(table, item);
    uint32_t chunks = rv_books_trajectory(&table->books, item)->num_chunks;
    turn->budget -= chunks <= RV_TRAJECTORY_FEW ? (int)chunks : 1; /* each was looked at */
  }
  turn->budget -= FORGOTTEN_STEPS * (int)(k - fitting);
  return fitting;
}

static void draw_slots(rv_table *table, rv_sampling *sampling, const uint32_t *slots, const double *probabilities, size_t k)
{
  const rv_slab *slab = &table->books.slab;
  const rv_template *templates = table->books.templates.entry;
  rv_draw *draws = sampling->draws + sampling->count;
  rv_hold *touched[RV_DRAWS_STEP];
  size_t num_touched = 0;
  int64_t size = (int64_t)slab->count, unique = 0;
  uint64_t naming = rv_naming_of_all(table);
  bool rate_limited = sampling->rate_limited;
  rv_trajectory *last = NULL;
  size_t run = 0;
  for (size_t i = 0; i < k && i < HOLD_AHEAD; i++) fetch_hold(rv_slab_at(slab, slots[i]));
  for (size_t i = 0; i < k && i < CHUNK_AHEAD; i++) fetch_chunk(rv_slab_at(slab, slots[i]));
  for (size_t i = 0; i < k; i++) {
    if (i + AHEAD < k) __builtin_prefetch(rv_slab_at(slab, slots[i + AHEAD]), 1);
    if (i + HOLD_AHEAD < k) fetch_hold(rv_slab_at(slab, slots[i + HOLD_AHEAD]));
    if (i + CHUNK_AHEAD < k) fetch_chunk(rv_slab_at(slab, slots[i + CHUNK_AHEAD]));
    rv_item *item = rv_slab_at(slab, slots[i]);
    rv_draw *draw = &draws[i];
    rv_snapshot_changes(table, slots[i]);
    int32_t times = item->times_sampled;
    unique += times == 0 ? 1 : 0;
    item->times_sampled = times += times < INT32_MAX ? 1 : 0;
    rv_changes_note(table, RV_CHANGE_SAMPLE, item);
    bool loose = item->template_number == RV_LOOSE;
    rv_trajectory *trajectory = loose ? ((rv_loose *)item->data)->trajectory : templates[item->template_number].trajectory;
    if (trajectory != last) {
      if (run > 0) rv_trajectory_ref_many(last, run);
      last = trajectory;
      run = 0;
    }
    run++;
    rv_chunk *chunk = NULL;
    if (!loose) {
      rv_hold *hold = item->data;
      chunk = hold->chunk;
      if (hold->drawn++ == 0) touched[num_touched++] = hold;
    }
    draw->key = item->key;
    draw->probability = probabilities[i];
    draw->priority = item->priority;
    draw->table_size = size;
    draw->inserted_at_ns = item->inserted_at_ns;
    draw->times_sampled = times;
    draw->rate_limited = rate_limited;
    draw->trajectory = trajectory;
    draw->chunk = chunk;
    draw->base_row = item->base_row;
    draw->naming = naming;
  }
  if (run > 0) rv_trajectory_ref_many(last, run);
  for (size_t i = 0; i < num_touched; i++) {
    rv_chunk_ref_many(touched[i]->chunk, touched[i]->drawn);
    touched[i]->drawn = 0;
  }
  table->num_unique_samples += unique;
}

static void note_draws(rv_turn *turn, const rv_sampling *sampling, const uint32_t *slots, size_t k)
{
  for (size_t i = 0; i < k && turn->table->num_extensions > 0; i++) {
    const rv_draw *draw = &sampling->draws[sampling->count + i];
    rv_table_note(turn, RV_EVENT_SAMPLE, rv_slab_at(&turn->table->books.slab, slots[i]), draw->priority, draw->priority);
    turn->table->events[turn->table->num_events - 1].times_sampled = draw->times_sampled;
  }
}

/* Draws up to k items that all stay, as far as the bound of bytes lets them in; how many. */
static size_t draw_some(rv_turn *turn, rv_sampling *sampling, size_t k)
{
  rv_table *table = turn->table;
  uint32_t slots[RV_DRAWS_STEP];
  double probabilities[RV_DRAWS_STEP];
  const rv_slab *slab = &table->books.slab;
  size_t fillable = rv_fill_most(turn, sampling, k);
  if (fillable == 0) k = most_fitting(table, sampling, k < AT_ONCE ? k : AT_ONCE);
  double *chances = fillable > 0 ? sampling->fill->probabilities + sampling->count : probabilities;
  if (fillable > 0) k = fillable;
  rv_pick_select_many(&table->sampler, slab, &table->random, &table->lanes, k, slots, chances);
  size_t filled = fillable > 0 ? rv_fill_slots(turn, sampling, slots, k) : 0;
  const uint32_t *others = slots + filled;
  for (size_t i = 0; i < k - filled && i < AHEAD; i++) __builtin_prefetch(rv_slab_at(slab, others[i]), 1);
  size_t rest = take_fitting(turn, sampling, others, k - filled);
  if (rest == 0) return filled;
  draw_slots(table, sampling, others, chances + filled, rest);
  note_draws(turn, sampling, others, rest);
  turn->budget -= (k - filled <= FEW ? ALONE_STEPS : DRAW_STEPS) * (int)rest;
  sampling->count += rest;
  return filled + rest;
}

/* Draws one item; true: it went with that. */
static bool draw_one(rv_turn *turn, rv_sampling *sampling)
{
  rv_table *table = turn->table;
  rv_draw *draw = &sampling->draws[sampling->count];
  uint32_t slot = rv_pick_select(&table->sampler, &table->books.slab, &table->random, &draw->probability);
  rv_item *item = rv_slab_at(&table->books.slab, slot);
  draw->table_size = (int64_t)table->books.slab.count;
  draw->rate_limited = sampling->rate_limited;
  rv_snapshot_changes(table, slot);
  count_draw(table, item);
  rv_changes_note(table, RV_CHANGE_SAMPLE, item);
  fill_draw(table, item, draw);
  rv_table_note(turn, RV_EVENT_SAMPLE, item, item->priority, item->priority);
  if (table->config.max_times_sampled <= 0 || item->times_sampled < table->config.max_times_sampled) return false;
  rv_table_remove(turn, slot);
  return true;
}

/* Where items may go with their draws, or what a sampler of the user's does at each is not known: one by one, as long as something is there and the
 * bound of bytes lets more in. */
static size_t draw_in_turn(rv_turn *turn, rv_sampling *sampling, size_t k, int64_t *removed)
{
  size_t drawn = 0;
  while (drawn < k && drawn < IN_TURN && turn->table->books.slab.count > 0) {
    if (draw_one(turn, sampling)) ++*removed;
    drawn++;
    const rv_draw *draw = &sampling->draws[sampling->count];
    if (sampling->max_bytes > 0) sampling->bytes += bytes_to_send(draw->trajectory, draw->chunk);
    sampling->count++;
    if (sampling->max_bytes > 0 && sampling->bytes >= sampling->max_bytes) break;
    /* a deletion may end the limiter's permission: what it said held while nothing else happened */
    if (*removed > 0) break;
  }
  turn->budget -= ALONE_STEPS * (int)drawn;
  return drawn;
}

/* All that are drawn look alike: the table's one layout, and that of those drawn before it waited. A single item always does. */
static bool one_layout(const rv_table *table, const rv_sampling *sampling)
{
  if (sampling->want == 1 && sampling->fill == NULL) return true;
  if (rv_books_num_layouts(&table->books) > 1) return false;
  if (sampling->count == 0 || sampling->fill != NULL || table->books.slab.count == 0) return true;
  const rv_item *item = rv_slab_at(&table->books.slab, table->books.slab.newest);
  return rv_books_trajectory(&table->books, item)->layout == sampling->draws[0].trajectory->layout;
}

/* For the sentence: a layout of an older item that is not `newest`; best one with which padding does not help. NULL: none is found soon. */
static const rv_layout *other_layout(const rv_table *table, const rv_layout *newest)
{
  const rv_slab *slab = &table->books.slab;
  const rv_layout *other = NULL;
  uint32_t slot = slab->newest;
  for (int i = 0; i < UNEQUAL_LOOKED_AT && slot != RV_NO_SLOT; i++) {
    const rv_item *item = rv_slab_at(slab, slot);
    const rv_layout *layout = rv_books_trajectory(&table->books, item)->layout;
    if (layout != newest && layout != other && !rv_layouts_can_be_padded(layout, newest)) return layout;
    if (layout != newest && other == NULL) other = layout;
    slot = item->prev;
  }
  return other;
}

static rv_code fail_unequal(const rv_table *table, const rv_sampling *sampling, rv_error *err)
{
  if (sampling->count > 0) return RV_OK;
  const rv_item *item = rv_slab_at(&table->books.slab, table->books.slab.newest);
  const rv_layout *newest = rv_books_trajectory(&table->books, item)->layout, *other = other_layout(table, newest);
  if (other != NULL) return rv_fail_unequal(err, table->name, table->signature, newest, other);
  return rv_fail(
      err, RV_FAILED_PRECONDITION,
      "table \"%s\" holds items of %zu different layouts (dtype, shape or length of some column), which cannot stand in "
      "one batch; sample with padding (unequal=\"pad\") or item by item (unequal=\"list\")",
      table->name, rv_books_num_layouts(&table->books));
}

static bool blocked(rv_turn *turn, rv_sampling *sampling)
{
  if (sampling->partial && sampling->count > 0) {
    rv_turn_complete(turn, &sampling->waiter, RV_OK);
    return true;
  }
  sampling->rate_limited = true;
  return false;
}

bool rv_sampling_step(rv_turn *turn, rv_sampling *sampling)
{
  rv_table *table = turn->table;
  if (sampling->waiter.state == RV_WAITER_PENDING) sampling->rate_limited = true;
  size_t k = sampling->want - sampling->count;
  if (k > RV_DRAWS_STEP) k = RV_DRAWS_STEP;
  int64_t allowed = table->books.slab.count == 0 ? 0 : rv_rate_limiter_samples_allowed(&table->limiter, (int64_t)k), removed = 0;
  if (allowed <= 0) return blocked(turn, sampling);
  if (sampling->same_layout && !one_layout(table, sampling)) {
    rv_code code = fail_unequal(table, sampling, &sampling->waiter.error);
    rv_turn_complete(turn, &sampling->waiter, code);
    return true;
  }
  if (sampling->fill != NULL && rv_fill_mismatch(turn, sampling)) return true;
  if (!rv_changes_have_room(table, 2)) return blocked(turn, sampling);
  rv_code reserved = rv_changes_reserve(table, RV_DRAWS_STEP, 0, &sampling->waiter.error);
  if (reserved != RV_OK) {
    rv_turn_complete(turn, &sampling->waiter, sampling->count > 0 ? RV_OK : reserved);
    return true;
  }
  k = (size_t)allowed;
  bool together = table->config.max_times_sampled <= 0 && (sampling->max_bytes == 0 || rv_pick_draws_many(&table->sampler));
  size_t drawn = together ? draw_some(turn, sampling, k) : draw_in_turn(turn, sampling, k, &removed);
  rv_rate_limiter_sampled(&table->limiter, (int64_t)drawn);
  rv_rate_limiter_deleted(&table->limiter, removed);
  table->rates.samples += (int64_t)drawn;
  bool enough = sampling->count == sampling->want || (sampling->max_bytes > 0 && sampling->bytes >= sampling->max_bytes);
  if (enough) rv_turn_complete(turn, &sampling->waiter, RV_OK);
  return true;
}

rv_submitted rv_table_sample(rv_table *table, rv_sampling *sampling)
{
  rv_waiter *waiter = &sampling->waiter;
  waiter->table = table;
  waiter->kind = RV_OPERATION_SAMPLE;
  waiter->state = RV_WAITER_DONE;
  waiter->code = RV_OK;
  sampling->count = 0;
  sampling->bytes = 0;
  sampling->rate_limited = false;
  if (sampling->fill != NULL) {
    sampling->fill->done = 0;
    rv_draw_sizes_begin(&sampling->fill->sizes);
    sampling->fill->naming = 0;
    sampling->fill->found = NULL;
  }
  if (sampling->want == 0 || sampling->want > INT64_MAX / 2) {
    waiter->code = rv_fail(&waiter->error, RV_INVALID_ARGUMENT, "table \"%s\": %zu samples wanted; ask for at least one",
                           table->name, sampling->want);
    return RV_SUBMIT_DONE;
  }
  rv_turn turn;
  rv_turn_begin(&turn, table);
  waiter->code = rv_table_is_closed(table, &waiter->error);
  if (waiter->code == RV_OK) return rv_turn_submit(&turn, waiter, RV_OPERATION_SAMPLE);
  rv_turn_end(&turn);
  return RV_SUBMIT_DONE;
}
