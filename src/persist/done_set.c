#include "persist/done_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void rv_done_set_init(rv_done_set *set)
{
  *set = (rv_done_set){0};
}

void rv_done_set_fini(rv_done_set *set)
{
  free(set->runs);
  rv_done_set_init(set);
}

/* Index of the first run that ends at or after `number`; count when there is none. */
static size_t find(const rv_done_set *set, uint64_t number)
{
  size_t low = 0, high = set->count;
  if (high > 0 && set->runs[high - 1].last < number) return high; /* nearly always */
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (set->runs[middle].last < number)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

bool rv_done_set_has(const rv_done_set *set, uint64_t number)
{
  size_t i = find(set, number);
  return i < set->count && set->runs[i].first <= number;
}

static rv_code make_room(rv_done_set *set, rv_error *err)
{
  if (set->count < set->capacity) return RV_OK;
  if (set->count == RV_DONE_RUNS_MAX)
    return rv_fail(err, RV_RESOURCE_EXHAUSTED,
                   "the writer's items are done so far out of order that %d gaps would have to be "
                   "remembered; keep fewer items in flight",
                   RV_DONE_RUNS_MAX);
  size_t capacity = set->capacity == 0 ? 4 : set->capacity * 2;
  if (capacity > RV_DONE_RUNS_MAX) capacity = RV_DONE_RUNS_MAX;
  rv_done_run *grown = realloc(set->runs, capacity * sizeof *grown);
  if (grown == NULL) return rv_fail_memory(err, capacity * sizeof *grown);
  set->runs = grown;
  set->capacity = capacity;
  return RV_OK;
}

static void close_gap(rv_done_set *set, size_t i)
{
  set->runs[i - 1].last = set->runs[i].last;
  memmove(set->runs + i, set->runs + i + 1, (set->count - i - 1) * sizeof *set->runs);
  set->count--;
}

rv_code rv_done_set_add(rv_done_set *set, uint64_t number, rv_error *err)
{
  size_t i = find(set, number);
  if (i < set->count && set->runs[i].first <= number) return RV_OK;
  bool joins_left = i > 0 && set->runs[i - 1].last + 1 == number;
  bool joins_right = i < set->count && set->runs[i].first == number + 1;
  if (joins_left) {
    set->runs[i - 1].last = number;
    if (joins_right) close_gap(set, i);
    return RV_OK;
  }
  if (joins_right) {
    set->runs[i].first = number;
    return RV_OK;
  }
  rv_code code = make_room(set, err);
  if (code != RV_OK) return code;
  memmove(set->runs + i + 1, set->runs + i, (set->count - i) * sizeof *set->runs);
  set->runs[i] = (rv_done_run){.first = number, .last = number};
  set->count++;
  return RV_OK;
}

rv_code rv_done_set_append(rv_done_set *set, uint64_t first, uint64_t last, rv_error *err)
{
  if (last < first || (set->count > 0 && (first == 0 || set->runs[set->count - 1].last >= first - 1)))
    return rv_fail(err, RV_INVALID_ARGUMENT, "the runs of a writer's numbers are not in order");
  rv_code code = make_room(set, err);
  if (code == RV_OK) set->runs[set->count++] = (rv_done_run){.first = first, .last = last};
  return code;
}

rv_code rv_done_set_copy(rv_done_set *set, const rv_done_set *from, rv_error *err)
{
  if (from->count == 0) return RV_OK;
  set->runs = malloc(from->count * sizeof *set->runs);
  if (set->runs == NULL) return rv_fail_memory(err, from->count * sizeof *set->runs);
  memcpy(set->runs, from->runs, from->count * sizeof *set->runs);
  set->count = set->capacity = from->count;
  return RV_OK;
}

uint64_t rv_done_set_drop_first(rv_done_set *set, size_t runs)
{
  if (runs > set->count) runs = set->count;
  if (runs == 0) return 0;
  uint64_t last = set->runs[runs - 1].last;
  set->count -= runs;
  memmove(set->runs, set->runs + runs, set->count * sizeof *set->runs);
  return last;
}
