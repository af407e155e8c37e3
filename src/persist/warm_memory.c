#include "persist/warm_memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCK_BYTES = 112 << 10 }; /* less than what malloc maps by itself, or gives back at once */

#ifdef MADV_POPULATE_WRITE

/* What malloc keeps at the block's ends is none of its pages. */
static rv_code take(void *context, uint64_t number, rv_error *err)
{
  (void)err;
  const rv_warm_memory *warm = context;
  uint8_t *block = warm->blocks[number % RV_WARM_BLOCKS];
  size_t page = (size_t)sysconf(_SC_PAGESIZE), skip = page - (uintptr_t)block % page;
  madvise(block + skip, (BLOCK_BYTES - skip) / page * page, MADV_POPULATE_WRITE);
  return RV_OK;
}

/* One more is on its way, and its place's one before, which is taken, is malloc's. */
static bool next_block(rv_warm_memory *warm)
{
  void **place = &warm->blocks[warm->made % RV_WARM_BLOCKS];
  void *taken = *place;
  *place = malloc(BLOCK_BYTES); /* first: else it would be the same once more */
  free(taken);
  if (*place == NULL) return false;
  warm->made++;
  return rv_follower_hand_over(&warm->taker, RV_WARM_BLOCKS - 1, NULL) == RV_OK;
}

void rv_warm_memory_need(rv_warm_memory *warm, size_t size)
{
  warm->left = warm->left > size ? warm->left - size : 0;
  if (warm->left > 0) return;
  bool more = true;
  while (more && warm->made < RV_WARM_BLOCKS) more = next_block(warm);
  if (more) next_block(warm);
  warm->left = BLOCK_BYTES;
}

#else

static rv_code take(void *context, uint64_t number, rv_error *err)
{
  (void)context, (void)number, (void)err;
  return RV_OK;
}

void rv_warm_memory_need(rv_warm_memory *warm, size_t size)
{
  (void)warm, (void)size;
}

#endif

/* As much as would be taken at once first goes without: for less a thread is not worth starting. */
void rv_warm_memory_init(rv_warm_memory *warm)
{
  *warm = (rv_warm_memory){.left = (size_t)RV_WARM_BLOCKS * BLOCK_BYTES,
                           .taker = {.work = take, .context = warm, .name = "rv-memory"}};
  rv_follower_init(&warm->taker);
}

void rv_warm_memory_fini(rv_warm_memory *warm)
{
  rv_follower_fini(&warm->taker);
  for (size_t i = 0; i < RV_WARM_BLOCKS; i++) free(warm->blocks[i]);
}
