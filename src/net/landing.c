/* A client's end. */
#include "net/landing.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

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
} filled;

struct rv_landing {
  atomic_size_t refs;
  pid_t process; /* whose it is */
  atomic_bool closed;
  rv_landing_shared *shared;
  rv_arena_map *map;
  rv_mutex lock; /* guards the rest */
  uint32_t pages[RV_LANDING_SIZES], last_use[RV_LANDING_SIZES], uses;
  uint16_t by_page[PAGES];   /* the slot that last had a block whose first page has such a number */
  uintptr_t lowest, highest; /* that any block has had bytes at */
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
  landing->map = memory != MAP_FAILED ? rv_arena_map_open(maps, arena_fd) : NULL;
  if (landing->map == NULL) {
    if (memory != MAP_FAILED) munmap(memory, RV_LANDING_SHARED);
    free(landing);
    return NULL;
  }
  landing->shared = memory;
  landing->process = getpid();
  atomic_init(&landing->refs, 1);
  atomic_init(&landing->closed, false);
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
  atomic_store_explicit(&landing->closed, true, memory_order_relaxed);
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
  if (landing->process == getpid()) { /* a child that was forked has none of it, and perhaps the lock for ever */
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

/* False: it cannot be had. */
static bool fill_slot(rv_landing *landing, uint32_t slot, uint32_t pages, size_t bytes, landed_buf *out)
{
  uint64_t offset = atomic_load_explicit(&landing->shared->slot[slot].offset, memory_order_relaxed);
  bool as_wanted = atomic_load_explicit(&landing->shared->slot[slot].pages, memory_order_relaxed) == pages;
  size_t size = (size_t)pages * RV_LANDING_PAGE;
  uint8_t *block = as_wanted && landing->slot[slot].block == NULL ? rv_arena_map_at(landing->map, offset, size) : NULL;
  if (block == NULL) return false;
  *out = (landed_buf){.landing = rv_landing_ref(landing), .slot = slot};
  out->buf.data = block + RV_LANDING_BEFORE;
  out->buf.capacity = bytes;
  out->buf.release = on_release;
  atomic_init(&out->buf.refs, 1);
  landing->slot[slot] = (filled){.block = block, .size = size, .buf = out};
  *by_page(landing, block) = (uint16_t)slot;
  uintptr_t begin = (uintptr_t)block;
  if (begin < landing->lowest || landing->highest == 0) landing->lowest = begin;
  if (begin + size > landing->highest) landing->highest = begin + size;
  return true;
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
  uint32_t pages = pages_for(bytes);
  if (pages == 0) return NULL;
  if (atomic_load_explicit(&landing->closed, memory_order_relaxed)) return NULL;
  landed_buf *landed = malloc(sizeof *landed);
  if (landed == NULL) return NULL;
  bool ready = false;
  rv_mutex_lock(&landing->lock);
  uint32_t size = find_size(landing, pages), slot = RV_LANDING_SLOTS;
  if (size < RV_LANDING_SIZES) slot = take_given(landing, size);
  if (slot < RV_LANDING_SLOTS) {
    ready = fill_slot(landing, slot, pages, bytes, landed);
    if (!ready) let_go(landing, slot);
  }
  if (size < RV_LANDING_SIZES && !ready) atomic_fetch_add_explicit(&landing->shared->missed[size], 1, memory_order_release);
  rv_mutex_unlock(&landing->lock);
  if (ready) return &landed->buf;
  free(landed);
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
  if ((uintptr_t)data < landing->lowest || (uintptr_t)data >= landing->highest) return RV_LANDING_SLOTS;
  if (lies_in(&landing->slot[slot], data, size)) return slot;
  for (slot = 0; slot < RV_LANDING_SLOTS && !lies_in(&landing->slot[slot], data, size); slot++) continue;
  return slot;
}

rv_buf *rv_landing_find(rv_landing *landing, const uint8_t *data, size_t size, uint32_t *slot, uint64_t *offset)
{
  rv_buf *found = NULL;
  rv_mutex_lock(&landing->lock);
  *slot = find_slot(landing, data, size);
  if (*slot < RV_LANDING_SLOTS) {
    found = &landing->slot[*slot].buf->buf;
    *offset = (uint64_t)(data - landing->slot[*slot].block);
  }
  rv_mutex_unlock(&landing->lock);
  return found;
}
