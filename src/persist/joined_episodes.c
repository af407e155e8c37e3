#include "persist/joined_episodes.h"

#include <stdlib.h>

enum {
  EPISODES = 4096, /* at a time: about as many streams may write side by side */
  ROUND = 1024,    /* chunks, by which it is told how many do */
  BELIEVED = 4     /* chunks that are to follow an episode's second: an episode of two is believed to go on */
};

struct rv_joined_episode {
  uint64_t id;
  bool used;      /* since the hand passed it */
  uint32_t round; /* in which a chunk came of it last */
  rv_joined joined;
};

void rv_joined_episodes_init(rv_joined_episodes *all, rv_memory *memory, uint64_t seed)
{
  *all = (rv_joined_episodes){.memory = memory, .round = 1};
  rv_random_init(&all->random, seed);
  rv_map_init(&all->by_episode, rv_random_next(&all->random));
}

void rv_joined_episodes_fini(rv_joined_episodes *all)
{
  for (size_t i = 0; i < all->count; i++) rv_joined_fini(&all->episodes[i].joined);
  free(all->episodes);
  rv_map_fini(&all->by_episode);
  *all = (rv_joined_episodes){0};
}

static bool make_room(rv_joined_episodes *all)
{
  if (all->count < all->capacity) return true;
  const size_t capacity = 2 * all->capacity + 8;
  rv_joined_episode *grown = realloc(all->episodes, capacity * sizeof *grown);
  if (grown == NULL) return false;
  all->episodes = grown;
  all->capacity = capacity;
  return true;
}

/* One that was in no use for a round of the hand. */
static rv_joined_episode *take_back(rv_joined_episodes *all)
{
  rv_joined_episode *episode;
  while ((episode = &all->episodes[all->hand])->used) {
    episode->used = false;
    all->hand = (all->hand + 1) % all->count;
  }
  all->hand = (all->hand + 1) % all->count;
  const uint32_t *number = rv_map_get(&all->by_episode, episode->id);
  if (number != NULL && &all->episodes[*number] == episode) rv_map_remove(&all->by_episode, episode->id);
  rv_joined_fini(&episode->joined);
  return episode;
}

static rv_joined_episode *begin_episode(rv_joined_episodes *all, uint64_t id)
{
  rv_joined_episode *episode = NULL;
  if (all->count == EPISODES)
    episode = take_back(all);
  else if (make_room(all))
    episode = &all->episodes[all->count++];
  if (episode == NULL) return NULL;
  *episode = (rv_joined_episode){.id = id};
  rv_joined_init(&episode->joined, all->memory, rv_random_next(&all->random));
  if (rv_map_put(&all->by_episode, id, (uint32_t)(episode - all->episodes)) != RV_OK) return NULL; /* it is found by nobody */
  return episode;
}

/* Open segments share what they may have in all: as many as there are streams. */
static size_t count_streams(rv_joined_episodes *all, rv_joined_episode *episode)
{
  if (++all->chunks == ROUND) {
    all->side_by_side = all->seen;
    all->chunks = all->seen = 0;
    all->round++;
  }
  if (episode->round != all->round) all->seen++;
  episode->round = all->round;
  return all->seen > all->side_by_side ? all->seen : all->side_by_side;
}

rv_joined *rv_joined_episodes_get(rv_joined_episodes *all, uint64_t episode, rv_table *table)
{
  const uint32_t *number = rv_map_get(&all->by_episode, episode);
  rv_joined_episode *found = number != NULL ? &all->episodes[*number] : begin_episode(all, episode);
  if (found == NULL) return NULL;
  found->used = true;
  found->joined.table = table;
  found->joined.streams = count_streams(all, found);
  found->joined.coming = BELIEVED;
  return &found->joined;
}
