/* The lowest and the highest priority of a table's items. Each is exact as long as some item is known to have it. When the last of these has gone,
 * nothing is beyond it still, and whoever asks looks at some of the items, until all have been seen (extremes.c). */
#ifndef RV_STORE_EXTREMES_H
#define RV_STORE_EXTREMES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct rv_extreme {
  double priority;
  uint32_t count; /* present items that have it; 0: no item is beyond it, but nobody knows how near one comes */
} rv_extreme;

typedef struct rv_extreme_pair {
  rv_extreme lowest, highest;
} rv_extreme_pair;

typedef struct rv_extremes {
  rv_extreme_pair all;
  uint32_t num_seen;    /* items of slots below it have been looked at; 0: nobody looks */
  rv_extreme_pair seen; /* of these, as they are by now */
} rv_extremes;

static inline void rv_extreme_pair_clear(rv_extreme_pair *pair)
{
  pair->lowest = (rv_extreme){.priority = __builtin_inf()};
  pair->highest = (rv_extreme){.priority = -__builtin_inf()};
}

static inline void rv_extreme_pair_add(rv_extreme_pair *pair, double priority)
{
  if (priority == pair->lowest.priority)
    pair->lowest.count++;
  else if (priority < pair->lowest.priority)
    pair->lowest = (rv_extreme){.priority = priority, .count = 1};
  if (priority == pair->highest.priority)
    pair->highest.count++;
  else if (priority > pair->highest.priority)
    pair->highest = (rv_extreme){.priority = priority, .count = 1};
}

static inline void rv_extreme_pair_remove(rv_extreme_pair *pair, double priority)
{
  if (priority == pair->lowest.priority && pair->lowest.count > 0) pair->lowest.count--;
  if (priority == pair->highest.priority && pair->highest.count > 0) pair->highest.count--;
}

/* Most priorities that come and go are neither the lowest nor the highest. */
static inline void rv_extreme_pair_change(rv_extreme_pair *pair, double old, double priority)
{
  double lowest = pair->lowest.priority, highest = pair->highest.priority;
  bool inside = (old > lowest) & (old < highest) & (priority > lowest) & (priority < highest);
  if (__builtin_expect(inside, 1)) return;
  rv_extreme_pair_remove(pair, old);
  rv_extreme_pair_add(pair, priority);
}

/* There is no item. */
static inline void rv_extremes_clear(rv_extremes *extremes)
{
  rv_extreme_pair_clear(&extremes->all);
  extremes->num_seen = 0;
}

static inline void rv_extremes_add(rv_extremes *extremes, uint32_t slot, double priority)
{
  rv_extreme_pair_add(&extremes->all, priority);
  if (slot < extremes->num_seen) rv_extreme_pair_add(&extremes->seen, priority);
}

static inline void rv_extremes_remove(rv_extremes *extremes, uint32_t slot, double priority)
{
  rv_extreme_pair_remove(&extremes->all, priority);
  if (slot < extremes->num_seen) rv_extreme_pair_remove(&extremes->seen, priority);
}

static inline void rv_extremes_change(rv_extremes *extremes, uint32_t slot, double old, double priority)
{
  rv_extreme_pair_change(&extremes->all, old, priority);
  if (slot < extremes->num_seen) rv_extreme_pair_change(&extremes->seen, old, priority);
}

typedef struct rv_turn rv_turn;

/* Both, exact where that is known, or found out by looking at no more than some tens of thousands of items; else as far as they are known: at least as
 * far out as an item's. NaN: there is none. The lock may be let go and taken again meanwhile. */
void rv_table_find_extremes(rv_turn *turn, double *lowest, double *highest);

#endif
