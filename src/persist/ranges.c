#include "persist/ranges.h"

#include <errno.h>
#include <stdlib.h>

enum {
  RUN = 1 << 18,  /* an idle range of this size is written to in order */
  SPLINTER = 256, /* what would be left of a range, and is worth no range of its own */
  IDLE_PART = 4,  /* while more of the file is idle it does not grow for want of a run */
  LOOKED_AT = 16  /* ranges of a class in which some are too small */
};

/* ---- classes of size ---- */

static void list(rv_ranges *ranges, rv_range *range)
{
  size_t class = rv_size_class(range->size);
  range->idle = true;
  rv_list_push_back(&ranges->classes[class], &range->alike);
  ranges->some[class / 64] |= UINT64_C(1) << class % 64;
}

static void unlist(rv_ranges *ranges, rv_range *range)
{
  size_t class = rv_size_class(range->size);
  range->idle = false;
  rv_list_remove(&range->alike);
  if (rv_list_empty(&ranges->classes[class])) ranges->some[class / 64] &= ~(UINT64_C(1) << class % 64);
}

static rv_range *first_of(const rv_ranges *ranges, size_t class)
{
  return RV_CONTAINER(ranges->classes[class].next, rv_range, alike);
}

/* ---- the order of the file ---- */

void rv_ranges_init(rv_ranges *ranges, size_t limit, size_t step)
{
  *ranges = (rv_ranges){.limit = limit / RV_RANGE_UNIT * RV_RANGE_UNIT, .step = step};
  rv_list_init(&ranges->order);
  for (size_t i = 0; i < RV_SIZE_CLASSES; i++) rv_list_init(&ranges->classes[i]);
}

void rv_ranges_fini(rv_ranges *ranges)
{
  for (rv_link *link; (link = rv_list_pop_front(&ranges->order)) != NULL;) free(RV_CONTAINER(link, rv_range, beside));
}

static rv_range *new_range(size_t begin, size_t size, rv_link *before)
{
  rv_range *range = malloc(sizeof *range);
  if (range == NULL) return NULL;
  *range = (rv_range){.begin = begin, .size = size};
  rv_list_init(&range->alike);
  rv_list_push_back(before, &range->beside);
  return range;
}

/* NULL: it lies at that end of the file, or that one is in use. */
static rv_range *idle_at(const rv_ranges *ranges, rv_link *link)
{
  rv_range *range = link == &ranges->order ? NULL : RV_CONTAINER(link, rv_range, beside);
  return range != NULL && range->idle ? range : NULL;
}

static void forget(rv_ranges *ranges, rv_range *range)
{
  if (ranges->run == range) ranges->run = NULL;
  rv_list_remove(&range->beside);
  free(range);
}

void rv_ranges_give(rv_ranges *ranges, rv_range *owned_range)
{
  rv_range *range = owned_range, *before = idle_at(ranges, range->beside.prev), *after = idle_at(ranges, range->beside.next);
  const bool is_run = ranges->run != NULL && (ranges->run == before || ranges->run == after);
  ranges->idle += range->size;
  if (before != NULL) {
    unlist(ranges, before);
    before->size += range->size;
    forget(ranges, range);
    range = before;
  }
  if (after != NULL) {
    unlist(ranges, after);
    range->size += after->size;
    forget(ranges, after);
  }
  list(ranges, range);
  if (is_run) ranges->run = range;
}

void rv_ranges_cut(rv_ranges *ranges, size_t end)
{
  rv_range *last = idle_at(ranges, ranges->order.prev);
  if (last == NULL || last->begin + last->size <= end) return;
  end = (end + RV_RANGE_UNIT - 1) / RV_RANGE_UNIT * RV_RANGE_UNIT;
  if (end < last->begin) end = last->begin;
  unlist(ranges, last);
  ranges->idle -= ranges->end - end;
  ranges->end = end;
  last->size = end - last->begin;
  if (last->size > 0)
    list(ranges, last);
  else
    forget(ranges, last);
}

/* ---- taking ---- */

/* The front of an idle range. */
static rv_range *cut(rv_ranges *ranges, rv_range *range, size_t size)
{
  if (range->size - size < SPLINTER) {
    unlist(ranges, range);
    ranges->idle -= range->size;
    if (ranges->run == range) ranges->run = NULL;
    return range;
  }
  rv_range *taken = new_range(range->begin, size, &range->beside);
  if (taken == NULL) {
    errno = ENOMEM;
    return NULL;
  }
  unlist(ranges, range);
  range->begin += size;
  range->size -= size;
  list(ranges, range);
  ranges->idle -= size;
  return taken;
}

/* One of the largest, if that is a run; else NULL. */
static rv_range *find_run(const rv_ranges *ranges, size_t size)
{
  for (size_t word = RV_SIZE_CLASSES / 64; word-- > 0;) {
    if (ranges->some[word] == 0) continue;
    rv_range *range = first_of(ranges, word * 64 + (size_t)(63 - __builtin_clzll(ranges->some[word])));
    return range->size >= RUN && range->size >= size ? range : NULL;
  }
  return NULL;
}

/* One of the smallest that are large enough. */
static rv_range *find_hole(const rv_ranges *ranges, size_t size)
{
  size_t class = rv_size_class(size), looked_at = 0;
  RV_LIST_EACH(link, &ranges->classes[class])
  {
    rv_range *range = RV_CONTAINER(link, rv_range, alike);
    if (range->size >= size) return range;
    if (++looked_at == LOOKED_AT) break;
  }
  uint64_t above = class % 64 == 63 ? 0 : ranges->some[class / 64] & ~UINT64_C(0) << (class % 64 + 1);
  for (size_t word = class / 64;;) {
    if (above != 0) return first_of(ranges, word * 64 + (size_t)__builtin_ctzll(above));
    if (++word == RV_SIZE_CLASSES / 64) return NULL;
    above = ranges->some[word];
  }
}

/* The idle range at the end, which has so many bytes now; NULL, with errno. */
static rv_range *grow(rv_ranges *ranges, size_t size)
{
  rv_range *last = idle_at(ranges, ranges->order.prev);
  size_t more = size - (last == NULL ? 0 : last->size < size ? last->size : size), room = ranges->limit - ranges->end;
  if (more < ranges->step) more = ranges->step < room ? ranges->step : room;
  if (more > room || (last == NULL ? 0 : last->size) + more < size) {
    errno = ENOSPC;
    return NULL;
  }
  if (last == NULL) {
    last = new_range(ranges->end, more, &ranges->order);
    if (last == NULL) {
      errno = ENOMEM;
      return NULL;
    }
  } else {
    unlist(ranges, last);
    last->size += more;
  }
  list(ranges, last);
  ranges->end += more;
  ranges->idle += more;
  return last;
}

rv_range *rv_ranges_take(rv_ranges *ranges, size_t size)
{
  if (size > ranges->limit) {
    errno = ENOSPC;
    return NULL;
  }
  size = (size + RV_RANGE_UNIT - 1) / RV_RANGE_UNIT * RV_RANGE_UNIT;
  rv_range *from = ranges->run;
  if (from == NULL || from->size < size) from = find_run(ranges, size);
  if (from == NULL && ranges->idle <= ranges->end / IDLE_PART) from = grow(ranges, size);
  if (from != NULL)
    ranges->run = from;
  else if ((from = find_hole(ranges, size)) == NULL && (from = grow(ranges, size)) == NULL)
    return NULL;
  return cut(ranges, from, size);
}
