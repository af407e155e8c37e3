#include "base/pages.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LINE = 64, PAGE = 4096 };

/* Huge pages are taken whole where that wastes little. */
static size_t unit(size_t size)
{
  if (size > SIZE_MAX - 2 * (size_t)RV_HUGE_PAGE) return 0;
  size_t rest = size % RV_HUGE_PAGE;
  return size > 0 && (rest == 0 || RV_HUGE_PAGE - rest <= size / 8) ? RV_HUGE_PAGE : LINE;
}

static size_t round_up(size_t size, size_t to)
{
  return (size + to - 1) / to * to;
}

size_t rv_pages_size(size_t size)
{
  size_t to = unit(size);
  if (to == 0) return 0;
  return size == 0 ? LINE : round_up(size, to);
}

void rv_pages_touch(void *block, size_t size)
{
  volatile uint8_t *bytes = block;
  for (size_t at = 0; at < size; at += PAGE) bytes[at] = 0;
}

/* A process may have only so many mappings (vm.max_map_count, 65,530 mostly). Those that touch each other are one, and the system places each below
 * the one before, so that one which has begun at such a place is followed by others: only the first must be cut out of a larger one. */
void *rv_pages_map(size_t bytes, size_t to, int how)
{
  uint8_t *mapped = mmap(NULL, bytes, how, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return NULL;
  if ((uintptr_t)mapped % to == 0) return mapped;
  munmap(mapped, bytes);
  mapped = mmap(NULL, bytes + to, how, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return NULL;
  size_t before = round_up((uintptr_t)mapped, to) - (uintptr_t)mapped; /* that goes back, and what is behind */
  if (before > 0) munmap(mapped, before);
  if (before < to) munmap(mapped + before + bytes, to - before);
  return mapped + before;
}

static void *map_huge(size_t bytes)
{
  void *mapped = rv_pages_map(bytes, RV_HUGE_PAGE, PROT_READ | PROT_WRITE);
#ifdef MADV_HUGEPAGE
  if (mapped != NULL) madvise(mapped, bytes, MADV_HUGEPAGE);
#endif
  return mapped;
}

void *rv_pages_alloc(size_t size)
{
  size_t bytes = rv_pages_size(size);
  if (bytes == 0) return NULL;
  return bytes < RV_HUGE_PAGE ? aligned_alloc(LINE, bytes) : map_huge(round_up(bytes, PAGE));
}

void rv_pages_free(void *block, size_t size)
{
  size_t bytes = rv_pages_size(size);
  if (block == NULL) return;
  if (bytes < RV_HUGE_PAGE)
    free(block);
  else if (munmap(block, round_up(bytes, PAGE)) != 0)
    madvise(block, round_up(bytes, PAGE),
            MADV_DONTNEED); /* no mapping is left to cut another in two: its memory goes, at least */
}

/* Pages of a system are 4 KiB mostly, 16 or 64 on some of ARM. */
size_t rv_pages_whole(uintptr_t at, size_t size, size_t page, size_t *skip)
{
  *skip = (page - at % page) % page;
  return size <= *skip ? 0 : (size - *skip) / page * page;
}

bool rv_pages_drop_shared(void *bytes, size_t size)
{
#ifdef MADV_REMOVE
  size_t skip, whole = rv_pages_whole((uintptr_t)bytes, size, (size_t)sysconf(_SC_PAGESIZE), &skip);
  return whole > 0 && madvise((uint8_t *)bytes + skip, whole, MADV_REMOVE) == 0;
#else
  (void)bytes, (void)size;
  return false;
#endif
}
