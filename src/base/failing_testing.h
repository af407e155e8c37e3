/* Allocations that fail when a test says so: the linker puts these functions in the place of the real ones (CMakeLists.txt). Included by one
 * file of a test's program. */
#ifndef RV_BASE_FAILING_TESTING_H
#define RV_BASE_FAILING_TESTING_H

#include <stdbool.h>
#include <stddef.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static long until_failure = -1; /* counts down; below zero: never */

static bool fails(void)
{
  if (until_failure < 0) return false;
  return until_failure-- == 0;
}

void *__wrap_malloc(size_t size)
{
  return fails() ? NULL : __real_malloc(size);
}
void *__wrap_calloc(size_t n, size_t size)
{
  return fails() ? NULL : __real_calloc(n, size);
}
void *__wrap_realloc(void *old, size_t size)
{
  return fails() ? NULL : __real_realloc(old, size);
}
void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
  return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

#endif
