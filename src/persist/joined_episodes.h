/* Joins the rows of small chunks that a journal has (store/joined.h): of each group it has a row or two of every stream that wrote, and each
 * such chunk by itself would take several times the memory that it took before. What a stream knows of itself is not known here: which chunks
 * belong together is told by their episodes. */
#ifndef RV_PERSIST_JOINED_EPISODES_H
#define RV_PERSIST_JOINED_EPISODES_H

#include "base/map.h"
#include "store/joined.h"

typedef struct rv_joined_episode rv_joined_episode;

typedef struct rv_joined_episodes {
  rv_map by_episode; /* to its number in `episodes` */
  rv_joined_episode *episodes;
  size_t count, capacity;
  size_t hand; /* the next that may have to go */
  /* about how many are written side by side: what chunks came of, of the last so many, and of those since */
  size_t side_by_side, seen, chunks;
  uint32_t round; /* of so many */
  rv_memory *memory;
  rv_random random;
} rv_joined_episodes;

void rv_joined_episodes_init(rv_joined_episodes *all, rv_memory *memory, uint64_t seed);
void rv_joined_episodes_fini(rv_joined_episodes *all);
/* For a chunk of the episode, whose rows are for about this table, not NULL. Valid until the next; NULL: there is no memory, and it stays by
 * itself. */
rv_joined *rv_joined_episodes_get(rv_joined_episodes *all, uint64_t episode, rv_table *table);

#endif
