/* Allocations that fail when a test says so: the linker puts these functions in the place of the real ones (CMakeLists.txt). Included by one
 * file of a test's program. RV_TEST_ALLOCATION: where one fails, its stack is shown, if there is a sanitizer that can. */
#ifndef RV_BASE_FAILING_TESTING_H
#define RV_BASE_FAILING_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include "reverie/status.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
char *__real_strdup(const char *text);
void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__wrap_strdup(const char *text);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);

static atomic_long until_failure = -1; /* counts down, over all threads; below zero: never */
static atomic_bool stays_out;          /* and those after it fail, too */
static _Thread_local bool spared;      /* a thread whose allocations do not fail, and are not counted */

void __sanitizer_print_stack_trace(void) __attribute__((weak));

static bool fails(void)
{
  if (spared) return false;
  long left = until_failure < 0 ? -1 : atomic_fetch_sub(&until_failure, 1);
  if (left > 0 || (left < 0 && !stays_out)) return false;
  if (__sanitizer_print_stack_trace != NULL && getenv("RV_TEST_ALLOCATION") != NULL) __sanitizer_print_stack_trace();
  return true;
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
char *__wrap_strdup(const char *text)
{
  return fails() ? NULL : __real_strdup(text);
}
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
  return fails() ? MAP_FAILED : __real_mmap(at, size, protection, flags, fd, offset);
}

/* From here on the (n + 1)-th allocation fails, and no other. */
static inline void fail_allocation(long n)
{
  until_failure = n;
}

/* The same, and each after it fails as well. */
static inline void fail_allocations_from(long n)
{
  stays_out = true;
  until_failure = n;
}

/* Ends that; true: one failed. */
static inline bool allocation_failed(void)
{
  stays_out = false;
  return atomic_exchange(&until_failure, -1) < 0;
}

/* Runs `call` with its first, second, third ... allocation failing, until none does; how many there are. An allocation that was only wanted (a
 * spare, compaction) may fail without harm; any other makes the call say RV_RESOURCE_EXHAUSTED. */
static inline int with_each_failure(rv_code (*call)(void *context), void *context)
{
  for (int n = 0; n < 20000; n++) {
    fail_allocation(n);
    rv_code code = call(context);
    bool failed = allocation_failed();
    if (!failed) {
      assert_int_equal(code, RV_OK);
      return n;
    }
    if (code != RV_OK) assert_int_equal(code, RV_RESOURCE_EXHAUSTED);
  }
  fail_msg("20,000 allocations in one call");
  return 0;
}

/* A call's code, the call made once more where memory was out: then it must do what it would have done. */
#define ONCE_MORE(code, call)                                                                                                    \
  do {                                                                                                                           \
    (code) = (call);                                                                                                             \
    if ((code) == RV_RESOURCE_EXHAUSTED && until_failure < 0) (code) = (call);                                                   \
  } while (0)

#endif
