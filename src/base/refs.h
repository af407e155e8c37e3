/* References to what threads share, counted.
 *
 * A locked instruction waits until whatever its thread wrote before has left it: hundreds of nanoseconds after a row was copied to a
 * place that no cache has. Mostly there is one reference; whoever has that one is alone, since only who has a reference gives or drops
 * one, and needs no such instruction. */
#ifndef RV_BASE_REFS_H
#define RV_BASE_REFS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* True: these n were the last, and all that was done with the others happened before. */
static inline bool rv_refs_drop(atomic_size_t *refs, size_t n)
{
  if (atomic_load_explicit(refs, memory_order_acquire) != n) return atomic_fetch_sub_explicit(refs, n, memory_order_acq_rel) == n;
  atomic_store_explicit(refs, 0, memory_order_release);
  return true;
}

/* Drops one, unless it is the last: false. Then it is the caller's still. */
static inline bool rv_refs_drop_unless_last(atomic_size_t *refs)
{
  size_t n = atomic_load_explicit(refs, memory_order_acquire);
  while (n > 1)
    if (atomic_compare_exchange_weak_explicit(refs, &n, n - 1, memory_order_acq_rel, memory_order_acquire)) return true;
  return false;
}

/* One more, by a thread that has one to itself: not one that it may only use because somebody else keeps it, for he may give one at the
 * same time. */
static inline void rv_refs_add_to_own(atomic_size_t *refs)
{
  if (atomic_load_explicit(refs, memory_order_acquire) == 1)
    atomic_store_explicit(refs, 2, memory_order_relaxed);
  else
    atomic_fetch_add_explicit(refs, 1, memory_order_relaxed);
}

#endif
