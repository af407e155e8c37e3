#include "store/extremes.h"

#include <math.h>

#include "store/table_parts.h"

enum {
  SLICE = 512,        /* slots looked at in one hold, */
  SLICES_AT_ONCE = 64 /* and such holds for one who asks, who may be a server's I/O thread: a fifth of a millisecond */
};

/* What all items have becomes known at their end. */
static void look_at_slice(rv_table *table)
{
  rv_extremes *extremes = &table->extremes;
  const rv_slab *slab = &table->books.slab;
  if (extremes->num_seen == 0) rv_extreme_pair_clear(&extremes->seen);
  uint32_t slot = extremes->num_seen, end = slab->used - slot > SLICE ? slot + SLICE : slab->used;
  for (; slot < end; slot++)
    if (rv_slab_has(slab, slot)) rv_extreme_pair_add(&extremes->seen, rv_slab_at(slab, slot)->priority);
  extremes->num_seen = end;
  if (end < slab->used) return;
  extremes->all = extremes->seen;
  extremes->num_seen = 0;
}

static bool know(const rv_table *table, double *lowest, double *highest)
{
  *lowest = *highest = NAN;
  if (table->books.slab.count == 0) return true;
  const rv_extreme_pair *all = &table->extremes.all;
  *lowest = all->lowest.priority;
  *highest = all->highest.priority;
  return (all->lowest.count > 0 || rv_pick_min_priority(&table->sampler, lowest) ||
          rv_pick_min_priority(&table->remover, lowest)) &&
         (all->highest.count > 0 || rv_pick_max_priority(&table->sampler, highest) ||
          rv_pick_max_priority(&table->remover, highest));
}

void rv_table_find_extremes(rv_turn *turn, double *lowest, double *highest)
{
  for (int slices = 0; !know(turn->table, lowest, highest) && slices < SLICES_AT_ONCE; slices++) {
    if (slices > 0) rv_turn_pause(turn);
    if (turn->table->books.slab.count > 0) look_at_slice(turn->table);
  }
}
