/* A client's end. */
#include "net/landing.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/memory_file.h"

enum { SIZE_UNUSED_AFTER = 64 /* rows of other sizes */, PAGES = 1024, SLACK = 8 };

/* A buffer in a block. */
typedef struct landed_buf {
  rv_buf buf;          /* first: the two pointers are the same */
  rv_landing *landing; /* one reference */
  uint32_t slot;
} landed_buf;

typedef struct filled {
  const uint8_t *block; /* NULL: not ours */
  size_t size;
  landed_buf *buf;
  uint32_t turn;
} filled;

struct rv_landing {
  atomic_size_t refs;
  rv_landing_shared *shared;
  rv_arena_map *map;
  rv_mutex lock; /* guards the rest */
  bool closed;
  uint32_t pages[RV_LANDING_SIZES], last_use[RV_LANDING_SIZES], uses;
  uint16_t by_page[PAGES]; /* the slot that last had a block whose first page has such a number */
  filled slot[RV_LANDING_SLOTS];
};

_Static_assert(RV_LANDING_SLOTS <= UINT16_MAX, "a slot's number has 16 bits");
_Static_assert(sizeof(rv_landing_shared) <= RV_LANDING_SHARED, "both ends map all of it");

rv_landing *rv_landing_join(int shared_fd, int arena_fd, rv_arena_maps *maps)
{
  if (rv_memory_file_size(shared_fd) != RV_LANDING_SHARED) return NULL;
  rv_landing *landing = calloc(1, sizeof *landing);
  if (landing == NULL) return NULL;
  void *memory = mmap(NULL, RV_LANDING_SHARED, PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);
  landing->map = memory != MAP_FAILED ? rv_arena_map_open(maps, arena_fd, RV_ARENA_WRITE, SIZE_MAX) : NULL;
  if (landing->map == NULL) {
    if (memory != MAP_FAILED) munmap(memory, RV_LANDING_SHARED);
    free(landing);
    return NULL;
  }
  landing->shared = memory;
  atomic_init(&landing->refs, 1);
  rv_mutex_init(&landing->lock, RV_RANK_LANDING, "landing");
  return landing;
}

rv_landing *rv_landing_ref(rv_landing *landing)
{
  atomic_fetch_add_explicit(&landing->refs, 1, memory_order_relaxed);
  return landing;
}

void rv_landing_unref(rv_landing *landing)
{
  if (landing == NULL || atomic_fetch_sub_explicit(&landing->refs, 1, memory_order_acq_rel) != 1) return;
  munmap(landing->shared, RV_LANDING_SHARED);
  rv_arena_map_unref(landing->map);
  rv_mutex_fini(&landing->lock);
  free(landing);
}

void rv_landing_close(rv_landing *landing)
{
  rv_mutex_lock(&landing->lock);
  landing->closed = true;
  rv_mutex_unlock(&landing->lock);
}

/* ---- taking ---- */

/* Which of the sizes it is; RV_LANDING_SIZES: of none, as all are in use. */
static uint32_t find_size(rv_landing *landing, uint32_t pages)
{
  uint32_t now = ++landing->uses, oldest = 0;
  for (uint32_t i = 0; i < RV_LANDING_SIZES; i++) {
    if (landing->pages[i] == pages) {
      landing->last_use[i] = now;
      return i;
    }
    if (now - landing->last_use[i] > now - landing->last_use[oldest]) oldest = i;
  }
  if (landing->pages[oldest] != 0 && now - landing->last_use[oldest] <= SIZE_UNUSED_AFTER) return RV_LANDING_SIZES;
  landing->pages[oldest] = pages;
  landing->last_use[oldest] = now;
  atomic_store(&landing->shared->wanted[oldest], pages);
  return oldest;
}

static void let_go(rv_landing *landing, uint32_t slot)
{
  atomic_fetch_or_explicit(&landing->shared->let_go[slot / 64], UINT64_C(1) << slot % 64, memory_order_acq_rel);
}

/* A slot of that size; RV_LANDING_SLOTS: there is none. */
static uint32_t take_given(rv_landing *landing, uint32_t size)
{
  for (uint32_t word = 0; word < RV_LANDING_WORDS; word++) {
    _Atomic uint64_t *given = &landing->shared->given[size][word];
    for (uint64_t bits; (bits = atomic_load_explicit(given, memory_order_relaxed)) != 0;) {
      uint64_t bit = bits & (0 - bits);
      if ((atomic_fetch_and_explicit(given, ~bit, memory_order_acq_rel) & bit) != 0)
        return word * 64 + (uint32_t)__builtin_ctzll(bit);
    }
  }
  return RV_LANDING_SLOTS;
}

static void on_release(rv_buf *buf)
{
  landed_buf *landed = (landed_buf *)(void *)buf;
  rv_landing *landing = landed->landing;
  if (rv_arena_map_is_of_this_process(landing->map)) { /* a child that was forked has none of it, and perhaps the lock for ever */
    rv_mutex_lock(&landing->lock);
    landing->slot[landed->slot] = (filled){.block = NULL};
    rv_mutex_unlock(&landing->lock);
    let_go(landing, landed->slot);
    rv_landing_unref(landing);
  }
  free(landed);
}

static uint16_t *by_page(rv_landing *landing, const uint8_t *data)
{
  return &landing->by_page[(uintptr_t)data / RV_LANDING_PAGE % PAGES];
}

/* The block of a slot that was given; NULL: that was for a size that was wanted before, or it cannot be mapped. */
static uint8_t *find_block(rv_landing *landing, uint32_t slot, uint32_t pages)
{
  const struct rv_landing_slot *given = &landing->shared->slot[slot];
  uint64_t offset = atomic_load_explicit(&given->offset, memory_order_relaxed);
  bool as_wanted = atomic_load_explicit(&given->pages, memory_order_relaxed) == pages;
  return as_wanted ? rv_arena_map_to_fill(landing->map, offset, (size_t)pages * RV_LANDING_PAGE) : NULL;
}

/* A slot with a block of so many pages; RV_LANDING_SLOTS: there is none. */
static uint32_t take_slot(rv_landing *landing, uint32_t pages, uint32_t *size)
{
  uint32_t slot = RV_LANDING_SLOTS;
  rv_mutex_lock(&landing->lock);
  *size = landing->closed ? RV_LANDING_SIZES : find_size(landing, pages);
  if (*size < RV_LANDING_SIZES) slot = take_given(landing, *size);
  rv_mutex_unlock(&landing->lock);
  return slot;
}

static rv_buf *fill_slot(rv_landing *landing, uint32_t slot, uint8_t *block, uint32_t pages, size_t bytes)
{
  landed_buf *landed = malloc(sizeof *landed);
  if (landed == NULL) return NULL;
  *landed = (landed_buf){.landing = rv_landing_ref(landing), .slot = slot};
  landed->buf.data = block + RV_LANDING_BEFORE;
  landed->buf.capacity = bytes;
  landed->buf.release = on_release;
  atomic_init(&landed->buf.refs, 1);
  rv_mutex_lock(&landing->lock);
  landing->slot[slot] = (filled){.block = block,
                                 .size = (size_t)pages * RV_LANDING_PAGE,
                                 .buf = landed,
                                 .turn = atomic_load_explicit(&landing->shared->slot[slot].turn, memory_order_relaxed)};
  *by_page(landing, block) = (uint16_t)slot;
  rv_mutex_unlock(&landing->lock);
  return &landed->buf;
}

/* 0: they are too few, or too many, or more than an eighth would be lost. */
static uint32_t pages_for(size_t bytes)
{
  if (bytes < RV_LANDING_LEAST || bytes > RV_SPARE_MAX) return 0;
  size_t pages = (RV_LANDING_BEFORE + bytes + RV_LANDING_BEHIND + RV_LANDING_PAGE - 1) / RV_LANDING_PAGE;
  return pages * RV_LANDING_PAGE - bytes <= bytes / SLACK ? (uint32_t)pages : 0;
}

rv_buf *rv_landing_take(rv_landing *landing, size_t bytes)
{
  uint32_t pages = pages_for(bytes), size;
  if (pages == 0) return NULL;
  uint32_t slot = take_slot(landing, pages, &size);
  uint8_t *block = slot < RV_LANDING_SLOTS ? find_block(landing, slot, pages) : NULL;
  rv_buf *taken = block != NULL ? fill_slot(landing, slot, block, pages, bytes) : NULL;
  if (taken != NULL) return taken;
  if (slot < RV_LANDING_SLOTS) let_go(landing, slot);
  if (size < RV_LANDING_SIZES) atomic_fetch_add_explicit(&landing->shared->missed[size], 1, memory_order_release);
  return NULL;
}

/* ---- sending ---- */

static bool lies_in(const filled *slot, const uint8_t *data, size_t size)
{
  uintptr_t at = (uintptr_t)data, begin = (uintptr_t)slot->block;
  return slot->block != NULL && at >= begin && at - begin <= slot->size && size <= slot->size - (at - begin);
}

/* The slot in which the bytes lie; RV_LANDING_SLOTS: in none. Mostly they begin in the block's first page. */
static uint32_t find_slot(rv_landing *landing, const uint8_t *data, size_t size)
{
  uint32_t slot = *by_page(landing, data);
  if (lies_in(&landing->slot[slot], data, size)) return slot;
  for (slot = 0; slot < RV_LANDING_SLOTS && !lies_in(&landing->slot[slot], data, size); slot++) continue;
  return slot;
}

rv_buf *rv_landing_find(rv_landing *landing, const uint8_t *data, size_t size, rv_landing_place *place)
{
  rv_buf *found = NULL;
  if (!rv_arena_map_has(landing->map, data)) return NULL;
  rv_mutex_lock(&landing->lock);
  uint32_t slot = find_slot(landing, data, size);
  if (slot < RV_LANDING_SLOTS) {
    const filled *in = &landing->slot[slot];
    found = &in->buf->buf;
    *place = (rv_landing_place){.slot = slot, .turn = in->turn, .offset = (uint64_t)(data - in->block)};
  }
  rv_mutex_unlock(&landing->lock);
  return found;
}
