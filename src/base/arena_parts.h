/* What both sides of an arena share: the process that has it, and those that map it. */
#ifndef RV_BASE_ARENA_PARTS_H
#define RV_BASE_ARENA_PARTS_H

#include "base/arena.h"

/* Whose addresses are few, by a limit or by nature, has other uses for them. */
bool rv_arena_has_addresses(void);
size_t rv_arena_size_of_machine(void); /* bytes of memory */
/* A segment of the file, mapped with PROT_... `how`, for this process alone: not for its children, nor for its dump. NULL: it cannot be. */
void *rv_arena_map_segment(int fd, int how, uint64_t offset, size_t size);

#endif
