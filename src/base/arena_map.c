#include "base/arena_map.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena_parts.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/machine_memory.h"
#include "base/maker.h"
#include "base/memory_file.h"

struct rv_arena_maps {
  rv_maker maker;   /* whose they are */
  rv_mutex lock;    /* guards all but what is mapped, and atomic counts */
  size_t refs;      /* the owner's, and one of each map */
  size_t most_seen; /* pages of each map */
  rv_link list;
};

enum {
  PAGE = 4096,
  STRETCH = RV_ARENA_STRETCH / PAGE,
  WORD = 64, /* bits, of several stretches */
  WORDS = RV_ARENA_SEGMENT / PAGE / WORD,
  PART = 4 << 20 /* bytes that are forgotten together */
};

typedef struct mapped {
  uint8_t *bytes;
  _Atomic uint64_t seen[WORDS]; /* pages that somebody has asked for, to write to them */
} mapped;

struct rv_arena_map {
  rv_arena_maps *maps;
  rv_link link;
  size_t refs;
  dev_t device;
  ino_t inode;
  rv_arena_access access;
  int file;
  size_t size, most_segments;
  size_t hand;                /* the part that is forgotten next */
  atomic_size_t num_seen;     /* pages of all stretches of which somebody has asked for one */
  atomic_size_t num_mapped;   /* segments */
  _Atomic(mapped *) *segment; /* those that were needed; NULL: it was not */
};

/* Bytes of an arena that this process may map by the descriptor; 0: it is none, or cannot be mapped here. */
static size_t size_of(int fd)
{
  size_t size = rv_memory_file_size(fd);
  return size <= rv_machine_memory() && rv_arena_has_addresses() ? size : 0;
}

rv_arena_maps *rv_arena_maps_new(size_t most_bytes)
{
  rv_arena_maps *maps = calloc(1, sizeof *maps);
  if (maps == NULL) return NULL;
  rv_maker_init(&maps->maker);
  rv_mutex_init(&maps->lock, RV_RANK_ARENA, "arena maps");
  rv_list_init(&maps->list);
  maps->refs = 1;
  maps->most_seen = most_bytes / PAGE;
  return maps;
}

void rv_arena_maps_unref(rv_arena_maps *maps)
{
  if (maps == NULL) return;
  rv_mutex_lock(&maps->lock);
  bool last = --maps->refs == 0;
  rv_mutex_unlock(&maps->lock);
  if (!last) return;
  rv_maker_fini(&maps->maker);
  rv_mutex_fini(&maps->lock);
  free(maps);
}

static size_t num_segments(const rv_arena_map *map)
{
  return (map->size + RV_ARENA_SEGMENT - 1) / RV_ARENA_SEGMENT;
}

static void destroy(rv_arena_map *map)
{
  for (size_t i = 0; map->segment != NULL && i < num_segments(map); i++) {
    mapped *segment = atomic_load_explicit(&map->segment[i], memory_order_relaxed);
    if (segment != NULL) munmap(segment->bytes, rv_arena_segment_size(map->size, i));
    free(segment);
  }
  free((void *)map->segment);
  if (map->file >= 0) close(map->file);
  free(map);
}

/* NULL: out of memory or descriptors. */
static rv_arena_map *make(rv_arena_maps *maps, int fd, const struct stat *info, rv_arena_access access, size_t most_segments)
{
  rv_arena_map *map = calloc(1, sizeof *map);
  if (map == NULL) return NULL;
  *map = (rv_arena_map){.maps = maps,
                        .refs = 1,
                        .device = info->st_dev,
                        .inode = info->st_ino,
                        .access = access,
                        .size = (size_t)info->st_size,
                        .most_segments = most_segments,
                        .file = rv_memory_file_again(fd)};
  map->segment = calloc(num_segments(map), sizeof *map->segment);
  if (map->segment != NULL && map->file >= 0) return map;
  destroy(map);
  return NULL;
}

static rv_arena_map *find(const rv_arena_maps *maps, const struct stat *info, rv_arena_access access)
{
  RV_LIST_EACH(link, &maps->list)
  {
    rv_arena_map *map = RV_CONTAINER(link, rv_arena_map, link);
    if (map->device == info->st_dev && map->inode == info->st_ino && map->access == access) return map;
  }
  return NULL;
}

rv_arena_map *rv_arena_map_open(rv_arena_maps *maps, int fd, rv_arena_access access, size_t most_segments)
{
  struct stat info;
  if (size_of(fd) == 0 || fstat(fd, &info) != 0) return NULL;
  rv_mutex_lock(&maps->lock);
  rv_arena_map *map = find(maps, &info, access);
  if (map != NULL) {
    map->refs++;
  } else {
    map = make(maps, fd, &info, access, most_segments);
    if (map != NULL) rv_list_push_back(&maps->list, &map->link);
    if (map != NULL) maps->refs++;
  }
  rv_mutex_unlock(&maps->lock);
  return map;
}

void rv_arena_map_unref(rv_arena_map *map)
{
  if (map == NULL) return;
  rv_arena_maps *maps = map->maps;
  rv_mutex_lock(&maps->lock);
  bool last = --map->refs == 0;
  if (last) rv_list_remove(&map->link);
  rv_mutex_unlock(&maps->lock);
  if (!last) return;
  destroy(map);
  rv_arena_maps_unref(maps);
}

static mapped *make_segment(const rv_arena_map *map, size_t number)
{
  mapped *segment = calloc(1, sizeof *segment);
  if (segment == NULL) return NULL;
  int how = map->access == RV_ARENA_WRITE ? PROT_READ | PROT_WRITE : PROT_READ;
  segment->bytes =
      rv_arena_map_segment(map->file, how, (uint64_t)number * RV_ARENA_SEGMENT, rv_arena_segment_size(map->size, number));
  if (segment->bytes != NULL) return segment;
  free(segment);
  return NULL;
}

static mapped *map_segment(rv_arena_map *map, size_t number)
{
  rv_mutex_lock(&map->maps->lock);
  mapped *segment = atomic_load_explicit(&map->segment[number], memory_order_relaxed);
  if (segment == NULL && atomic_load_explicit(&map->num_mapped, memory_order_relaxed) < map->most_segments) {
    segment = make_segment(map, number);
    if (segment != NULL) atomic_fetch_add_explicit(&map->num_mapped, 1, memory_order_relaxed);
  }
  atomic_store_explicit(&map->segment[number], segment, memory_order_release);
  rv_mutex_unlock(&map->maps->lock);
  return segment;
}

static bool is_too_much(const rv_arena_map *map)
{
  return atomic_load_explicit(&map->num_seen, memory_order_relaxed) + STRETCH > map->maps->most_seen;
}

/* Of the stretches of which some page was seen; from now on none was. */
static size_t take_seen_pages(_Atomic uint64_t *seen)
{
  size_t pages = 0;
  for (uint64_t bits = atomic_exchange_explicit(seen, 0, memory_order_acquire); bits != 0; bits >>= STRETCH)
    pages += bits << (WORD - STRETCH) != 0 ? STRETCH : 0;
  return pages;
}

/* Of shared memory only the map goes: whoever is just writing there meets his pages again, uncounted until somebody asks for one of that stretch. */
static void forget_part(rv_arena_map *map, mapped *segment, size_t number, size_t from)
{
  size_t forgotten = 0, left = rv_arena_segment_size(map->size, number) - from;
  for (size_t word = from / PAGE / WORD; word < (from + PART) / PAGE / WORD; word++)
    forgotten += take_seen_pages(&segment->seen[word]);
  if (forgotten == 0) return;
  madvise(segment->bytes + from, left < PART ? left : PART, MADV_DONTNEED);
  atomic_fetch_sub_explicit(&map->num_seen, forgotten, memory_order_relaxed);
}

/* Round and round by address: where blocks are met in turn it is what was met longest ago. Under the lock. */
static void forget_some(rv_arena_map *map)
{
  size_t parts = (map->size + PART - 1) / PART;
  for (size_t tried = 0; tried < parts && is_too_much(map); tried++) {
    size_t at = map->hand++ % parts * PART, number = at / RV_ARENA_SEGMENT;
    mapped *segment = atomic_load_explicit(&map->segment[number], memory_order_relaxed);
    if (segment != NULL) forget_part(map, segment, number, at % RV_ARENA_SEGMENT);
  }
}

static void make_room(rv_arena_map *map)
{
  if (!is_too_much(map)) return;
  rv_mutex_lock(&map->maps->lock);
  forget_some(map);
  rv_mutex_unlock(&map->maps->lock);
}

/* Pages of one stretch, as their word has them. */
static uint64_t bits_of(size_t first, size_t end)
{
  return ~UINT64_C(0) >> (WORD - (end - first)) << first % WORD;
}

/* True: nobody had asked for any of their stretch. */
static bool note_seen(_Atomic uint64_t *seen, size_t first, size_t end)
{
  size_t stretch = first / STRETCH * STRETCH;
  uint64_t before = atomic_fetch_or_explicit(seen, bits_of(first, end), memory_order_release);
  return (before & bits_of(stretch, stretch + STRETCH)) == 0;
}

/* Pages of one stretch. A process has a page put into its map when it first touches it. Where that is a read, all of its stretch come that have been
 * written to before, by whomever, and may then be written to: 2 us for a block of 11 pages instead of 9. New pages come one by one, whatever is done. */
static void see_stretch(rv_arena_map *map, mapped *segment, size_t first, size_t end)
{
  _Atomic uint64_t *seen = &segment->seen[first / WORD];
  uint64_t unseen = bits_of(first, end) & ~atomic_load_explicit(seen, memory_order_relaxed);
  if (unseen == 0) return;
  make_room(map);
  atomic_fetch_add_explicit(&map->num_seen, STRETCH, memory_order_relaxed); /* first, as it may be forgotten at once */
  if (!note_seen(seen, first, end)) atomic_fetch_sub_explicit(&map->num_seen, STRETCH, memory_order_relaxed);
  size_t page = first / WORD * WORD + (size_t)__builtin_ctzll(unseen);
  (void)*(const volatile uint8_t *)(segment->bytes + page * PAGE);
}

static void see(rv_arena_map *map, mapped *segment, size_t from, size_t size)
{
  size_t end = (from + size + PAGE - 1) / PAGE;
  for (size_t page = from / PAGE, next; page < end; page = next) {
    next = (page / STRETCH + 1) * STRETCH < end ? (page / STRETCH + 1) * STRETCH : end;
    see_stretch(map, segment, page, next);
  }
}

static uint8_t *find_bytes(rv_arena_map *map, uint64_t offset, uint64_t size)
{
  if (offset >= map->size) return NULL;
  size_t number = (size_t)(offset / RV_ARENA_SEGMENT), within = (size_t)(offset % RV_ARENA_SEGMENT);
  if (size > rv_arena_segment_size(map->size, number) - within) return NULL;
  mapped *segment = atomic_load_explicit(&map->segment[number], memory_order_acquire);
  if (segment == NULL && atomic_load_explicit(&map->num_mapped, memory_order_relaxed) < map->most_segments)
    segment = map_segment(map, number);
  if (segment == NULL) return NULL;
  if (map->access == RV_ARENA_WRITE) see(map, segment, within, (size_t)size);
  return segment->bytes + within;
}

const uint8_t *rv_arena_map_at(rv_arena_map *map, uint64_t offset, uint64_t size)
{
  return find_bytes(map, offset, size);
}

uint8_t *rv_arena_map_to_fill(rv_arena_map *map, uint64_t offset, uint64_t size)
{
  return map->access == RV_ARENA_WRITE ? find_bytes(map, offset, size) : NULL;
}

bool rv_arena_map_is_of_this_process(const rv_arena_map *map)
{
  return rv_maker_is_this_process(&map->maps->maker);
}

size_t rv_arena_map_size(const rv_arena_map *map)
{
  return map->size;
}

int rv_arena_map_file(const rv_arena_map *map)
{
  return map->file;
}

bool rv_arena_map_has(const rv_arena_map *map, const uint8_t *at)
{
  size_t left = atomic_load_explicit(&map->num_mapped, memory_order_relaxed); /* what a caller has been given is among them */
  for (size_t i = 0; left > 0 && i < num_segments(map); i++) {
    const mapped *segment = atomic_load_explicit(&map->segment[i], memory_order_acquire);
    if (segment == NULL) continue;
    if ((uintptr_t)at - (uintptr_t)segment->bytes < rv_arena_segment_size(map->size, i)) return true;
    left--;
  }
  return false;
}
