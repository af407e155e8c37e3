/* What tests of an arena, of those who map it and of those who take buffers of it have in common. Tests only. */
#ifndef RV_BASE_ARENA_TESTING_H
#define RV_BASE_ARENA_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <sys/stat.h>

#include "base/arena.h"

enum { PAGE = 4096, PAGES = 4096 };
#define SECOND INT64_C(1000000000)

static inline rv_arena *new_arena(size_t size)
{
  rv_arena *arena = NULL;
  rv_error error;
  if (rv_arena_new(size, &arena, &error) != RV_OK) fail_msg("%s", error.message);
  return arena;
}

static inline int set_up(void **state)
{
  *state = new_arena((size_t)PAGES * PAGE);
  return 0;
}

static inline int tear_down(void **state)
{
  rv_arena_unref(*state);
  return 0;
}

static inline size_t used_bytes(rv_arena *arena)
{
  size_t used, idle;
  rv_arena_usage(arena, &used, &idle);
  return used;
}

static inline size_t idle_bytes(rv_arena *arena)
{
  size_t used, idle;
  rv_arena_usage(arena, &used, &idle);
  return idle;
}

/* Bytes that the file takes. */
static inline size_t memory_of(rv_arena *arena)
{
  struct stat info;
  assert_int_equal(fstat(rv_arena_file(arena), &info), 0);
  return (size_t)info.st_blocks * 512;
}

#endif
