/* What both sides of an arena share: the process that has it, and those that map it. */
#ifndef RV_BASE_ARENA_PARTS_H
#define RV_BASE_ARENA_PARTS_H

#include "base/arena.h"

/* Bytes that the system puts into a map together, where they are read: it looks at addresses that are multiples of it. */
enum { RV_ARENA_STRETCH = 64 << 10 };

/* Whose addresses are few, by a limit or by nature, has other uses for them. */
bool rv_arena_has_addresses(void);
/* Bytes of that segment, the last of which may be shorter. */
static inline size_t rv_arena_segment_size(size_t arena_size, size_t number)
{
  size_t left = arena_size - number * RV_ARENA_SEGMENT;
  return left < RV_ARENA_SEGMENT ? left : RV_ARENA_SEGMENT;
}
/* A segment of the file, mapped with PROT_... `how`, from a stretch's beginning on, for this process alone: not for its children, nor for its dump.
 * NULL: it cannot be. */
void *rv_arena_map_segment(int fd, int how, uint64_t offset, size_t size);

#endif
