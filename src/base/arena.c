#include "base/arena.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/arena_parts.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/machine_memory.h"
#include "base/maker.h"
#include "base/memory_file.h"
#include "base/pages.h"

/* Runs of free pages hang in lists by their lengths: one list for each length below 64, eight for each doubling from there on. A list is
 * found by its bit, so taking and giving back cost the same however many runs there are. Runs whose pages take memory (idle) and runs whose
 * pages take none (bare) hang in different lists and do not grow together. */
enum {
  PAGE = 4096,
  SEGMENT_PAGES = RV_ARENA_SEGMENT / PAGE,
  EXACT = 64,
  EXACT_BITS = 6,
  STEPS = 8,
  STEP_BITS = 3,
  SEGMENT_BITS = 16
};
enum { LISTS = EXACT + (SEGMENT_BITS + 1 - EXACT_BITS) * STEPS, WORD = 64, WORDS = (LISTS + WORD - 1) / WORD };
enum { IDLE_PAGES = (32 << 20) / PAGE }; /* that may lie idle, besides those of rv_arena_keep_idle */
/* Of what is more the longest run goes, up to so many pages at a time: each time all processes and processors that may have seen them are told. */
enum { DROPPED_PAGES = (1 << 20) / PAGE };
/* Of what was not needed in a second so great a part goes, and so many pages: those who write now and then find what they need, and who trims loses
 * some milliseconds. A GiB has gone after 70 seconds. */
enum { TRIMMED_PART = 32, TRIMMED_PAGES = (4 << 20) / PAGE };
#define TRIMMED_EVERY_NS INT64_C(900000000) /* a second's timers may be early */

_Static_assert(SEGMENT_PAGES == 1 << SEGMENT_BITS, "a page's number has its segment and its place there");

typedef enum page_state { PAGE_OUTSIDE, PAGE_IN_USE, PAGE_IDLE, PAGE_BARE } page_state;

/* A page's: of a block every page knows its first one; of a free run the first and the last know the first. */
typedef struct page_info {
  uint32_t first;
  uint32_t length;       /* the run's, at its first page, as are the next three */
  uint32_t next, before; /* a free one's in its list */
  void *owner;           /* a block's */
  page_state state;      /* at the last page, too */
} page_info;

/* The first page of each is nobody's: no run goes on into the next segment, and page 0 is the end of every list. */
typedef struct segment {
  uint8_t *bytes;
  page_info *page;
} segment;

typedef struct by_address {
  uintptr_t begin;
  uint32_t number;
} by_address;

typedef struct run_lists {
  uint32_t head[LISTS];
  uint64_t filled[WORDS];
} run_lists;

struct rv_arena {
  atomic_size_t refs;
  rv_maker maker; /* whose it is */
  int file, file_for_readers;
  uint32_t most_segments, pages_of_last;
  rv_mutex lock; /* guards the rest */
  segment *segment;
  by_address *sorted;
  uint32_t num_segments;
  run_lists idle, bare;
  size_t used_pages, idle_pages, most_idle_pages;
  size_t unneeded_pages; /* idle ones at the fewest since the last trim */
  int64_t trimmed_ns;    /* when that was */
  size_t retry_above;    /* idle pages: with fewer the system took no memory back; 0: it did the last time */
};

static page_info *info(const rv_arena *arena, uint32_t page)
{
  return &arena->segment[page / SEGMENT_PAGES].page[page % SEGMENT_PAGES];
}

static uint8_t *bytes_of(const rv_arena *arena, uint32_t page)
{
  return arena->segment[page / SEGMENT_PAGES].bytes + (size_t)(page % SEGMENT_PAGES) * PAGE;
}

/* ---- free runs ---- */

static uint32_t list_of(uint32_t length)
{
  if (length < EXACT) return length;
  unsigned log = 31 - (unsigned)__builtin_clz(length);
  return EXACT + (log - EXACT_BITS) * STEPS + (length >> (log - STEP_BITS)) % STEPS;
}

static run_lists *lists_of(rv_arena *arena, page_state state)
{
  return state == PAGE_IDLE ? &arena->idle : &arena->bare;
}

static void put_in(rv_arena *arena, uint32_t first, uint32_t length, page_state state)
{
  run_lists *lists = lists_of(arena, state);
  uint32_t list = list_of(length), next = lists->head[list];
  page_info *run = info(arena, first), *last = info(arena, first + length - 1);
  *run = (page_info){.first = first, .length = length, .next = next, .state = state};
  last->first = first;
  last->state = state;
  if (next != 0) info(arena, next)->before = first;
  lists->head[list] = first;
  lists->filled[list / WORD] |= UINT64_C(1) << list % WORD;
  if (state == PAGE_IDLE) arena->idle_pages += length;
}

static void take_out(rv_arena *arena, uint32_t first)
{
  page_info *run = info(arena, first);
  run_lists *lists = lists_of(arena, run->state);
  uint32_t list = list_of(run->length);
  if (run->next != 0) info(arena, run->next)->before = run->before;
  if (run->before != 0)
    info(arena, run->before)->next = run->next;
  else
    lists->head[list] = run->next;
  if (lists->head[list] == 0) lists->filled[list / WORD] &= ~(UINT64_C(1) << list % WORD);
  if (run->state == PAGE_IDLE) arena->idle_pages -= run->length;
}

/* The first of any list from `list` on; 0: none. */
static uint32_t first_from(const run_lists *lists, uint32_t list)
{
  uint64_t mask = ~UINT64_C(0) << list % WORD;
  for (size_t word = list / WORD; word < WORDS; word++, mask = ~UINT64_C(0)) {
    uint64_t filled = lists->filled[word] & mask;
    if (filled != 0) return lists->head[word * WORD + (size_t)__builtin_ctzll(filled)];
  }
  return 0;
}

/* One of the longest list. 0: none. */
static uint32_t longest_run(const run_lists *lists)
{
  for (size_t word = WORDS; word > 0; word--) {
    uint64_t filled = lists->filled[word - 1];
    if (filled != 0) return lists->head[(word - 1) * WORD + WORD - 1 - (size_t)__builtin_clzll(filled)];
  }
  return 0;
}

/* Runs in the length's own list may be shorter; the one that came last is often of just this length. 0: none is found. */
static uint32_t find_run(rv_arena *arena, uint32_t length, page_state state)
{
  const run_lists *lists = lists_of(arena, state);
  uint32_t list = list_of(length), own = lists->head[list];
  return own != 0 && info(arena, own)->length >= length ? own : first_from(lists, list + 1);
}

/* A run joins those of its kind beside it. */
static void free_run(rv_arena *arena, uint32_t first, uint32_t length, page_state state)
{
  uint32_t end = first + length;
  if (end % SEGMENT_PAGES != 0 && info(arena, end)->state == state) {
    take_out(arena, end);
    length += info(arena, end)->length;
  }
  if (info(arena, first - 1)->state == state) {
    first = info(arena, first - 1)->first;
    take_out(arena, first);
    length += info(arena, first)->length;
  }
  put_in(arena, first, length, state);
}

/* Of a free run of `has` pages that hangs in no list any more the first `length` are a block; the others are free as before. */
static void use_run(rv_arena *arena, uint32_t first, uint32_t has, uint32_t length, page_state state, void *owner)
{
  if (has > length) put_in(arena, first + length, has - length, state);
  for (uint32_t i = 0; i < length; i++) info(arena, first + i)->first = first;
  page_info *run = info(arena, first);
  run->length = length;
  run->owner = owner;
  run->state = info(arena, first + length - 1)->state = PAGE_IN_USE;
  arena->used_pages += length;
}

/* 0: there is none. */
static uint32_t take_run(rv_arena *arena, uint32_t length, page_state state, void *owner)
{
  uint32_t first = find_run(arena, length, state);
  if (first == 0) return 0;
  uint32_t has = info(arena, first)->length;
  take_out(arena, first);
  use_run(arena, first, has, length, state, owner);
  return first;
}

/* ---- segments ---- */

static size_t pages_of(const rv_arena *arena, uint32_t number)
{
  return number + 1 < arena->most_segments ? SEGMENT_PAGES : arena->pages_of_last;
}

/* A child that was forked has no use for it, and neither has who looks at a dead process. */
static bool keep_to_this_process(void *bytes, size_t size)
{
  bool kept = true;
  (void)bytes, (void)size;
#ifdef MADV_DONTFORK
  kept = madvise(bytes, size, MADV_DONTFORK) == 0;
#endif
#ifdef MADV_DONTDUMP
  kept = kept && madvise(bytes, size, MADV_DONTDUMP) == 0; /* else all of the file would be in the dump, and made for it */
#endif
  return kept;
}

void *rv_arena_map_segment(int fd, int how, uint64_t offset, size_t size)
{
  size_t pages = (size + PAGE - 1) / PAGE * PAGE;
  void *there = rv_pages_map(pages, RV_ARENA_STRETCH, PROT_NONE);
  if (there == NULL) return NULL;
  void *bytes = mmap(there, size, how, MAP_SHARED | MAP_FIXED, fd, (off_t)offset);
  if (bytes != MAP_FAILED && keep_to_this_process(bytes, size)) return bytes;
  munmap(there, pages);
  return NULL;
}

static void sort_in(rv_arena *arena, uint32_t number)
{
  by_address new = {.begin = (uintptr_t)arena->segment[number].bytes, .number = number};
  uint32_t at = number;
  for (; at > 0 && arena->sorted[at - 1].begin > new.begin; at--) arena->sorted[at] = arena->sorted[at - 1];
  arena->sorted[at] = new;
}

static bool add_segment(rv_arena *arena)
{
  uint32_t number = arena->num_segments;
  if (number == arena->most_segments) return false;
  size_t pages = pages_of(arena, number);
  segment *new = &arena->segment[number];
  new->bytes = rv_arena_map_segment(arena->file, PROT_READ | PROT_WRITE, (uint64_t)number * RV_ARENA_SEGMENT, pages * PAGE);
  if (new->bytes == NULL) return false;
  new->page = calloc(SEGMENT_PAGES, sizeof *new->page);
  if (new->page == NULL) {
    munmap(new->bytes, pages * PAGE);
    return false;
  }
  sort_in(arena, number);
  arena->num_segments++;
  if (pages > 1) put_in(arena, number * SEGMENT_PAGES + 1, (uint32_t)pages - 1, PAGE_BARE);
  return true;
}

/* The segment of an address; NULL: it is of none. */
static const by_address *segment_at(const rv_arena *arena, const void *data)
{
  uint32_t low = 0, high = arena->num_segments;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (arena->sorted[middle].begin <= (uintptr_t)data)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == 0) return NULL;
  const by_address *found = &arena->sorted[low - 1];
  return (uintptr_t)data - found->begin < pages_of(arena, found->number) * PAGE ? found : NULL;
}

/* ---- life ---- */

bool rv_arena_has_addresses(void)
{
  struct rlimit limit;
  return sizeof(void *) >= 8 && getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
}

static bool is_forked_child(const rv_arena *arena)
{
  return !rv_maker_is_this_process(&arena->maker);
}

static void destroy(rv_arena *arena)
{
  for (uint32_t i = 0; i < arena->num_segments; i++) {
    if (!is_forked_child(arena)) munmap(arena->segment[i].bytes, pages_of(arena, i) * PAGE);
    free(arena->segment[i].page);
  }
  free(arena->segment);
  free(arena->sorted);
  if (arena->file >= 0) close(arena->file);
  if (arena->file_for_readers >= 0) close(arena->file_for_readers);
  rv_maker_fini(&arena->maker);
  rv_mutex_fini(&arena->lock);
  free(arena);
}

static rv_code make_tables(rv_arena *arena, size_t segments, rv_error *err)
{
  arena->segment = calloc(segments, sizeof *arena->segment);
  arena->sorted = calloc(segments, sizeof *arena->sorted);
  bool made = arena->segment != NULL && arena->sorted != NULL;
  return made ? RV_OK : rv_fail_memory(err, segments * (sizeof *arena->segment + sizeof *arena->sorted));
}

static rv_code make_files(rv_arena *arena, size_t size, rv_error *err)
{
  arena->file = rv_memory_file_new("reverie-arena", size);
  if (arena->file == -ENOTSUP)
    return rv_fail(
        err, RV_UNAVAILABLE,
        "this system has no memory for files that is there when it is touched (vm.overcommit_memory = 2 is such a one), or "
        "bounds their size (ulimit -f)");
  if (arena->file >= 0) arena->file_for_readers = rv_memory_file_for_readers(arena->file);
  int error = arena->file < 0 ? arena->file : arena->file_for_readers;
  return error >= 0 ? RV_OK : rv_fail(err, RV_UNAVAILABLE, "a file in memory cannot be made: %s", strerror(-error));
}

static rv_code check_machine(rv_error *err)
{
  if (!rv_arena_has_addresses()) return rv_fail(err, RV_UNAVAILABLE, "this process's addresses are bounded (ulimit -v)");
  if (sysconf(_SC_PAGESIZE) != PAGE)
    return rv_fail(err, RV_UNAVAILABLE, "this system's pages have %ld bytes instead of %d", sysconf(_SC_PAGESIZE), PAGE);
  return RV_OK;
}

rv_code rv_arena_new(size_t size, rv_arena **out, rv_error *err)
{
  const size_t most = (size_t)(UINT32_MAX / SEGMENT_PAGES) * RV_ARENA_SEGMENT; /* that pages have numbers for */
  rv_code code = check_machine(err);
  if (code != RV_OK) return code;
  if (size == 0 || size > rv_machine_memory()) size = rv_machine_memory();
  size_t pages = (size < most ? size : most) / PAGE, segments = (pages + SEGMENT_PAGES - 1) / SEGMENT_PAGES;
  if (segments == 0) return rv_fail(err, RV_INVALID_ARGUMENT, "an arena of %zu bytes has no page", size);
  rv_arena *arena = calloc(1, sizeof *arena);
  if (arena == NULL) return rv_fail_memory(err, sizeof *arena);
  atomic_init(&arena->refs, 1);
  rv_mutex_init(&arena->lock, RV_RANK_ARENA, "arena");
  rv_maker_init(&arena->maker);
  arena->most_idle_pages = IDLE_PAGES;
  arena->file = arena->file_for_readers = -1;
  arena->most_segments = (uint32_t)segments;
  arena->pages_of_last = (uint32_t)(pages - (segments - 1) * SEGMENT_PAGES);
  code = make_tables(arena, segments, err);
  if (code == RV_OK) code = make_files(arena, pages * PAGE, err);
  if (code == RV_OK)
    *out = arena;
  else
    destroy(arena);
  return code;
}

rv_arena *rv_arena_ref(rv_arena *arena)
{
  atomic_fetch_add_explicit(&arena->refs, 1, memory_order_relaxed);
  return arena;
}

void rv_arena_unref(rv_arena *arena)
{
  if (arena != NULL && atomic_fetch_sub_explicit(&arena->refs, 1, memory_order_acq_rel) == 1) destroy(arena);
}

/* ---- blocks ---- */

size_t rv_arena_waste(size_t size)
{
  return size % PAGE == 0 ? 0 : PAGE - size % PAGE;
}

void *rv_arena_take(rv_arena *arena, size_t size, void *owner)
{
  bool bare;
  return rv_arena_take_telling(arena, size, owner, &bare);
}

/* Takes pages of the longest idle run as a block of nobody's; of no idle page there is none. Under the lock. */
static uint32_t take_idle(rv_arena *arena, uint32_t *length)
{
  uint32_t longest = longest_run(&arena->idle), has = info(arena, longest)->length;
  *length = has < DROPPED_PAGES ? has : DROPPED_PAGES;
  take_out(arena, longest);
  use_run(arena, longest, has, *length, PAGE_IDLE, NULL);
  return longest;
}

/* Gives memory back until no more than so many pages lie idle, or it cannot be, but not what others give back all the while. Under the lock, which is
 * let go of meanwhile. */
static void drop_more_than(rv_arena *arena, size_t pages)
{
  size_t left = arena->idle_pages > pages ? arena->idle_pages - pages : 0;
  bool dropped = true;
  while (dropped && left > 0 && arena->idle_pages > pages) {
    uint32_t length, first = take_idle(arena, &length);
    rv_mutex_unlock(&arena->lock);
    dropped = rv_pages_drop_shared(bytes_of(arena, first), (size_t)length * PAGE); /* it is in use, as far as others can see */
    rv_mutex_lock(&arena->lock);
    arena->used_pages -= length;
    free_run(arena, first, length, dropped ? PAGE_BARE : PAGE_IDLE);
    left -= length < left ? length : left;
  }
  arena->retry_above = dropped ? 0 : arena->idle_pages + IDLE_PAGES;
}

void *rv_arena_take_telling(rv_arena *arena, size_t size, void *owner, bool *bare)
{
  if (size == 0 || size > RV_ARENA_SEGMENT - PAGE) return NULL;
  uint32_t pages = (uint32_t)((size + rv_arena_waste(size)) / PAGE);
  rv_mutex_lock(&arena->lock);
  uint32_t first = take_run(arena, pages, PAGE_IDLE, owner);
  *bare = first == 0;
  if (first == 0) first = take_run(arena, pages, PAGE_BARE, owner);
  if (first == 0 && add_segment(arena)) first = take_run(arena, pages, PAGE_BARE, owner);
  if (arena->idle_pages < arena->unneeded_pages) arena->unneeded_pages = arena->idle_pages;
  void *block = first == 0 ? NULL : bytes_of(arena, first);
  rv_mutex_unlock(&arena->lock);
  if (block != NULL) rv_arena_ref(arena);
  return block;
}

static void give_back(rv_arena *arena, const void *block, page_state state)
{
  if (is_forked_child(arena)) return; /* it has something else at those addresses, or nothing, and perhaps the lock for ever */
  rv_mutex_lock(&arena->lock);
  const by_address *at = segment_at(arena, block);
  uint32_t first = at->number * SEGMENT_PAGES + (uint32_t)(((uintptr_t)block - at->begin) / PAGE),
           length = info(arena, first)->length;
  arena->used_pages -= length;
  free_run(arena, first, length, state);
  if (arena->idle_pages > arena->retry_above) drop_more_than(arena, arena->most_idle_pages);
  rv_mutex_unlock(&arena->lock);
  rv_arena_unref(arena);
}

void rv_arena_give_back(rv_arena *arena, void *block)
{
  give_back(arena, block, PAGE_IDLE);
}

void rv_arena_give_back_bare(rv_arena *arena, void *block)
{
  give_back(arena, block, PAGE_BARE);
}

void rv_arena_abandon(rv_arena *arena, const void *block)
{
  if (is_forked_child(arena)) return;
  rv_mutex_lock(&arena->lock);
  const by_address *at = segment_at(arena, block);
  info(arena, at->number * SEGMENT_PAGES + (uint32_t)(((uintptr_t)block - at->begin) / PAGE))->owner = NULL;
  rv_mutex_unlock(&arena->lock); /* its pages stay in use */
  rv_arena_unref(arena);
}

void rv_arena_keep_idle(rv_arena *arena, size_t bytes)
{
  rv_mutex_lock(&arena->lock);
  arena->most_idle_pages = IDLE_PAGES + bytes / PAGE;
  rv_mutex_unlock(&arena->lock);
}

bool rv_arena_trim(rv_arena *arena, int64_t now_ns)
{
  if (is_forked_child(arena)) return false;
  rv_mutex_lock(&arena->lock);
  if (now_ns - arena->trimmed_ns >= TRIMMED_EVERY_NS) {
    size_t unneeded = arena->unneeded_pages < arena->idle_pages ? arena->unneeded_pages : arena->idle_pages,
           part = unneeded / TRIMMED_PART + TRIMMED_PAGES;
    arena->trimmed_ns = now_ns; /* first: others may trim while memory is given back */
    if (unneeded > 0) drop_more_than(arena, arena->idle_pages - (part < unneeded ? part : unneeded));
    arena->unneeded_pages = arena->idle_pages;
  }
  bool again = arena->idle_pages > 0 && arena->retry_above == 0; /* else who gives back next asks the system again */
  rv_mutex_unlock(&arena->lock);
  return again;
}

void *rv_arena_find(rv_arena *arena, const void *data, size_t size, uint64_t *offset)
{
  void *owner = NULL;
  rv_mutex_lock(&arena->lock);
  const by_address *at = segment_at(arena, data);
  if (at != NULL) {
    size_t within = (uintptr_t)data - at->begin;
    const page_info *page = &arena->segment[at->number].page[within / PAGE];
    *offset = (uint64_t)at->number * RV_ARENA_SEGMENT + within;
    if (size <= pages_of(arena, at->number) * PAGE - within) owner = info(arena, page->first)->owner;
  }
  rv_mutex_unlock(&arena->lock);
  return owner;
}

void rv_arena_usage(rv_arena *arena, size_t *used, size_t *idle)
{
  rv_mutex_lock(&arena->lock);
  *used = arena->used_pages * PAGE;
  *idle = arena->idle_pages * PAGE;
  rv_mutex_unlock(&arena->lock);
}

int rv_arena_file(const rv_arena *arena)
{
  return arena->file_for_readers;
}
int rv_arena_file_to_write(const rv_arena *arena)
{
  return arena->file;
}
