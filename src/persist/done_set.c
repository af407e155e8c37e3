#include "persist/done_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum {
  BLOCK_RUNS = 256, /* at most; */
  SPARSE_RUNS = 64  /* with fewer it goes into a neighbour that has as few */
};

void rv_done_set_init(rv_done_set *set, atomic_size_t *account)
{
  *set = (rv_done_set){.account = account};
}

static void count_runs(rv_done_set *set, size_t more, size_t fewer)
{
  set->count += more - fewer;
  if (set->account != NULL) atomic_fetch_add_explicit(set->account, more - fewer, memory_order_relaxed);
}

void rv_done_set_fini(rv_done_set *set)
{
  count_runs(set, 0, set->count);
  for (size_t i = 0; i < set->num_blocks; i++) free(set->blocks[i].runs);
  free(set->blocks);
  rv_done_set_init(set, set->account);
}

/* ---- finding ---- */

static rv_done_run *run_at(const rv_done_set *set, rv_done_place place)
{
  return &set->blocks[place.block].runs[place.run];
}

static bool is_end(const rv_done_set *set, rv_done_place place)
{
  return place.block == set->num_blocks;
}

static uint64_t last_of(const rv_done_block *block)
{
  return block->runs[block->count - 1].last;
}

/* Of the first run that ends at or after `number`; behind the last block when there is none. */
static rv_done_place find(const rv_done_set *set, uint64_t number)
{
  size_t low = 0, high = set->num_blocks;
  if (high == 0 || last_of(&set->blocks[high - 1]) < number) return (rv_done_place){.block = high}; /* nearly always */
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (last_of(&set->blocks[middle]) < number)
      low = middle + 1;
    else
      high = middle;
  }
  const rv_done_block *block = &set->blocks[low];
  size_t run = 0;
  for (size_t end = block->count; run < end;) {
    size_t middle = run + (end - run) / 2;
    if (block->runs[middle].last < number)
      run = middle + 1;
    else
      end = middle;
  }
  return (rv_done_place){.block = low, .run = run};
}

/* Of the run before; false: there is none. */
static bool step_back(const rv_done_set *set, rv_done_place *place)
{
  if (place->run > 0) {
    place->run--;
    return true;
  }
  if (place->block == 0) return false;
  place->block--;
  place->run = set->blocks[place->block].count - 1;
  return true;
}

bool rv_done_set_has(const rv_done_set *set, uint64_t number)
{
  rv_done_place at = find(set, number);
  return !is_end(set, at) && run_at(set, at)->first <= number;
}

bool rv_done_set_next(const rv_done_set *set, rv_done_place *place, rv_done_run *out)
{
  if (is_end(set, *place)) return false;
  *out = *run_at(set, *place);
  if (++place->run == set->blocks[place->block].count) *place = (rv_done_place){.block = place->block + 1};
  return true;
}

bool rv_done_set_is_full(const rv_done_set *set)
{
  if (set->count >= RV_DONE_RUNS_MAX) return true;
  return set->count >= RV_DONE_RUNS_OWN && set->account != NULL &&
         atomic_load_explicit(set->account, memory_order_relaxed) >= RV_DONE_RUNS_ALL;
}

/* ---- blocks ---- */

/* An empty one with room for so many runs. */
static rv_code add_block(rv_done_set *set, size_t at, uint32_t capacity, rv_error *err)
{
  if (set->num_blocks == set->blocks_capacity) {
    size_t grown_capacity = set->blocks_capacity == 0 ? 1 : set->blocks_capacity * 2;
    rv_done_block *grown = realloc(set->blocks, grown_capacity * sizeof *grown);
    if (grown == NULL) return rv_fail_memory(err, grown_capacity * sizeof *grown);
    set->blocks = grown;
    set->blocks_capacity = grown_capacity;
  }
  rv_done_run *runs = malloc(capacity * sizeof *runs);
  if (runs == NULL) return rv_fail_memory(err, capacity * sizeof *runs);
  memmove(set->blocks + at + 1, set->blocks + at, (set->num_blocks - at) * sizeof *set->blocks);
  set->blocks[at] = (rv_done_block){.runs = runs, .capacity = capacity};
  set->num_blocks++;
  return RV_OK;
}

static void remove_block(rv_done_set *set, size_t at)
{
  free(set->blocks[at].runs);
  set->num_blocks--;
  memmove(set->blocks + at, set->blocks + at + 1, (set->num_blocks - at) * sizeof *set->blocks);
}

static rv_code grow_block(rv_done_block *block, uint32_t capacity, rv_error *err)
{
  rv_done_run *grown = realloc(block->runs, capacity * sizeof *grown);
  if (grown == NULL) return rv_fail_memory(err, capacity * sizeof *grown);
  block->runs = grown;
  block->capacity = capacity;
  return RV_OK;
}

/* Its upper half goes into a block behind it. */
static rv_code split_block(rv_done_set *set, size_t at, rv_error *err)
{
  rv_code code = add_block(set, at + 1, BLOCK_RUNS, err);
  if (code != RV_OK) return code;
  rv_done_block *low = &set->blocks[at], *high = &set->blocks[at + 1];
  high->count = low->count - low->count / 2;
  low->count /= 2;
  memcpy(high->runs, low->runs + low->count, high->count * sizeof *high->runs);
  return RV_OK;
}

/* Two that have few become one; without memory they stay two. */
static void join_with_next(rv_done_set *set, size_t at)
{
  if (at + 1 >= set->num_blocks) return;
  rv_done_block *low = &set->blocks[at];
  const rv_done_block *high = &set->blocks[at + 1];
  uint32_t count = low->count + high->count;
  if (low->count > SPARSE_RUNS || high->count > SPARSE_RUNS) return;
  if (low->capacity < count && grow_block(low, BLOCK_RUNS, NULL) != RV_OK) return;
  memcpy(low->runs + low->count, high->runs, high->count * sizeof *high->runs);
  low->count = count;
  remove_block(set, at + 1);
}

/* ---- changing ---- */

/* Makes sure that a run can go to *place, which may become another. Runs that come in order, either way, leave full blocks behind. */
static rv_code make_room(rv_done_set *set, rv_done_place *place, rv_error *err)
{
  if (is_end(set, *place) && set->num_blocks > 0)
    *place = (rv_done_place){.block = place->block - 1, .run = set->blocks[place->block - 1].count};
  if (set->num_blocks == 0) return add_block(set, 0, 4, err);
  rv_done_block *block = &set->blocks[place->block];
  if (block->count < block->capacity) return RV_OK;
  if (block->capacity < BLOCK_RUNS) return grow_block(block, block->capacity * 2, err);
  if (place->run == block->count && place->block + 1 == set->num_blocks) {
    *place = (rv_done_place){.block = place->block + 1};
    return add_block(set, place->block, BLOCK_RUNS, err);
  }
  if (place->run == 0 && place->block == 0) return add_block(set, 0, BLOCK_RUNS, err);
  rv_code code = split_block(set, place->block, err);
  uint32_t half = set->blocks[place->block].count;
  if (code == RV_OK && place->run > half) *place = (rv_done_place){.block = place->block + 1, .run = place->run - half};
  return code;
}

static rv_code insert(rv_done_set *set, rv_done_place place, rv_done_run run, rv_error *err)
{
  if (rv_done_set_is_full(set))
    return rv_fail(err, RV_RESOURCE_EXHAUSTED,
                   "the writer's items are done so far out of order that %zu gaps would have to be "
                   "remembered; keep fewer items in flight",
                   set->count);
  rv_code code = make_room(set, &place, err);
  if (code != RV_OK) return code;
  rv_done_block *block = &set->blocks[place.block];
  rv_done_run *at = block->runs + place.run;
  memmove(at + 1, at, (block->count - place.run) * sizeof *at);
  *at = run;
  block->count++;
  count_runs(set, 1, 0);
  return RV_OK;
}

/* The run at `place` and the one before it have become one. */
static void close_gap(rv_done_set *set, rv_done_place before, rv_done_place place)
{
  run_at(set, before)->last = run_at(set, place)->last;
  rv_done_block *block = &set->blocks[place.block];
  block->count--;
  memmove(block->runs + place.run, block->runs + place.run + 1, (block->count - place.run) * sizeof *block->runs);
  count_runs(set, 0, 1);
  if (block->count == 0)
    remove_block(set, place.block);
  else
    join_with_next(set, place.block);
  if (place.block > 0) join_with_next(set, place.block - 1);
}

rv_code rv_done_set_add(rv_done_set *set, uint64_t number, rv_error *err)
{
  rv_done_place at = find(set, number), before = at;
  rv_done_run *next = is_end(set, at) ? NULL : run_at(set, at);
  if (next != NULL && next->first <= number) return RV_OK;
  rv_done_run *last = step_back(set, &before) ? run_at(set, before) : NULL;
  bool joins_left = last != NULL && last->last + 1 == number;
  bool joins_right = next != NULL && next->first == number + 1;
  if (joins_left && joins_right)
    close_gap(set, before, at);
  else if (joins_left)
    last->last = number;
  else if (joins_right)
    next->first = number;
  else
    return insert(set, at, (rv_done_run){.first = number, .last = number}, err);
  return RV_OK;
}

rv_code rv_done_set_append(rv_done_set *set, uint64_t first, uint64_t last, rv_error *err)
{
  if (last < first || (set->count > 0 && (first == 0 || last_of(&set->blocks[set->num_blocks - 1]) >= first - 1)))
    return rv_fail(err, RV_INVALID_ARGUMENT, "the runs of a writer's numbers are not in order");
  return insert(set, (rv_done_place){.block = set->num_blocks}, (rv_done_run){.first = first, .last = last}, err);
}

rv_code rv_done_set_copy(rv_done_set *set, const rv_done_set *from, rv_error *err)
{
  for (size_t i = 0; i < from->num_blocks; i++) {
    const rv_done_block *block = &from->blocks[i];
    rv_code code = add_block(set, i, block->count, err);
    if (code != RV_OK) {
      rv_done_set_fini(set);
      return code;
    }
    memcpy(set->blocks[i].runs, block->runs, block->count * sizeof *block->runs);
    set->blocks[i].count = block->count;
    count_runs(set, block->count, 0);
  }
  return RV_OK;
}

uint64_t rv_done_set_drop_first(rv_done_set *set, size_t runs)
{
  uint64_t last = 0;
  while (runs > 0 && set->num_blocks > 0) {
    rv_done_block *block = &set->blocks[0];
    size_t here = runs < block->count ? runs : block->count;
    last = block->runs[here - 1].last;
    block->count -= (uint32_t)here;
    memmove(block->runs, block->runs + here, block->count * sizeof *block->runs);
    count_runs(set, 0, here);
    runs -= here;
    if (block->count == 0) remove_block(set, 0);
  }
  return last;
}
