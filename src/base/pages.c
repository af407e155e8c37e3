#include "base/pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { LINE = 64, PAGE = 4096 };

/* Huge pages are taken whole where that wastes little. */
static size_t unit(size_t size)
{
  if (size > SIZE_MAX - RV_HUGE_PAGE) return 0;
  size_t rest = size % RV_HUGE_PAGE;
  return size > 0 && (rest == 0 || RV_HUGE_PAGE - rest <= size / 8) ? RV_HUGE_PAGE : LINE;
}

size_t rv_pages_size(size_t size)
{
  size_t to = unit(size);
  if (to == 0) return 0;
  return size == 0 ? LINE : (size + to - 1) / to * to;
}

void *rv_pages_alloc(size_t size)
{
  size_t bytes = rv_pages_size(size);
  void *block = bytes == 0 ? NULL : aligned_alloc(unit(size), bytes);
#ifdef MADV_HUGEPAGE
  if (block != NULL && bytes >= RV_HUGE_PAGE) {
    uintptr_t begin = ((uintptr_t)block + PAGE - 1) / PAGE * PAGE, end = ((uintptr_t)block + bytes) / PAGE * PAGE;
    madvise((void *)begin, end - begin, MADV_HUGEPAGE);
  }
#endif
  return block;
}
