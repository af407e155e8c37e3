/* Arenas as other processes map them: once for all, for reading or for writing, and not all of it at a time. */
#include "base/arena_map.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/arena_parts.h"
#include "base/arena_testing.h"

/* All who map it through the same maps have it at one place. */
static void who_may_write_maps_it_once(void **state)
{
  rv_arena *arena = *state;
  int owner;
  uint64_t offset;
  char *block = rv_arena_take(arena, 20000, &owner);
  rv_arena_maps *maps = rv_arena_maps_new(1 << 20);
  assert_non_null(maps);
  assert_null(rv_arena_map_open(maps, -1, RV_ARENA_WRITE, SIZE_MAX));
  rv_arena_map *map = rv_arena_map_open(maps, rv_arena_file_to_write(arena), RV_ARENA_WRITE, SIZE_MAX),
               *again = rv_arena_map_open(maps, rv_arena_file_to_write(arena), RV_ARENA_WRITE, SIZE_MAX);
  assert_non_null(map);
  assert_ptr_equal(map, again);
  assert_ptr_equal(rv_arena_find(arena, block, 20000, &offset), &owner);
  uint8_t *there = rv_arena_map_to_fill(map, offset, 20000);
  assert_non_null(there);
  strcpy((char *)there + 19000, "written there");
  assert_string_equal(block + 19000, "written there");
  assert_null(rv_arena_map_to_fill(map, UINT64_MAX, 2));
  assert_null(rv_arena_map_to_fill(map, offset, SIZE_MAX));
  assert_null(rv_arena_map_to_fill(map, (uint64_t)PAGES * PAGE, 1));
  rv_arena_map_unref(again);
  rv_arena_maps_unref(maps);
  there[0] = 'x'; /* it stays as long as somebody has it */
  assert_int_equal(block[0], 'x');
  assert_int_equal((uintptr_t)(there - offset) % RV_ARENA_STRETCH, 0); /* or what is read brings less */
  rv_arena_map_unref(map);
  rv_arena_give_back(arena, block);
}

static size_t count_resident(const uint8_t *bytes, size_t pages)
{
  size_t count = 0;
  int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  assert_true(file >= 0);
  for (size_t i = 0; i < pages; i++) {
    uint64_t entry = 0;
    off_t at = (off_t)(((uintptr_t)bytes / PAGE + i) * sizeof entry);
    assert_int_equal(pread(file, &entry, sizeof entry, at), sizeof entry);
    count += entry >> 63;
  }
  close(file);
  return count;
}

/* Of an arena, and mapped to be written to, at most so many pages at a time. */
typedef struct mapped_block {
  uint8_t *bytes; /* as the arena's owner has them */
  uint64_t offset;
  rv_arena_maps *maps;
  rv_arena_map *map;
} mapped_block;

static mapped_block map_block(rv_arena *arena, size_t pages, size_t most_pages)
{
  int owner;
  mapped_block block = {.bytes = rv_arena_take(arena, pages * PAGE, &owner), .maps = rv_arena_maps_new(most_pages * PAGE)};
  assert_ptr_equal(rv_arena_find(arena, block.bytes, PAGE, &block.offset), &owner);
  block.map = rv_arena_map_open(block.maps, rv_arena_file_to_write(arena), RV_ARENA_WRITE, SIZE_MAX);
  assert_non_null(block.map);
  return block;
}

static void unmap_block(rv_arena *arena, const mapped_block *block)
{
  rv_arena_map_unref(block->map);
  rv_arena_maps_unref(block->maps);
  rv_arena_give_back(arena, block->bytes);
}

/* Pages that the system puts into a map together: more than a stretch's where it was told so. */
static size_t count_around(rv_arena *arena)
{
  enum { MANY = 80 };
  mapped_block block = map_block(arena, MANY, MANY);
  memset(block.bytes, 1, (size_t)MANY * PAGE);
  size_t count = count_resident(rv_arena_map_at(block.map, block.offset, PAGE), MANY);
  unmap_block(arena, &block);
  return count;
}

static void who_writes_to_many_blocks_stays_small(void **state)
{
  enum { SOME = 1000, AT_ONCE = 10, MOST = 100 };
  size_t around = count_around(*state);
  mapped_block block = map_block(*state, SOME, MOST);
  for (int round = 0; round < 2; round++)
    for (size_t i = 0; i < SOME; i += AT_ONCE) {
      uint8_t *there = rv_arena_map_to_fill(block.map, block.offset + i * PAGE, AT_ONCE * PAGE);
      assert_non_null(there);
      for (size_t page = 0; page < AT_ONCE; page++) there[page * PAGE] = (uint8_t)(i + page + (size_t)round);
      assert_in_range(count_resident(there - i * PAGE, SOME), 1, MOST - AT_ONCE + 2 * around);
    }
  for (size_t i = 0; i < SOME; i++) assert_int_equal(block.bytes[i * PAGE], (uint8_t)(i + 1));
  unmap_block(*state, &block);
}

/* Nobody waits for all to go at once, and what is written to now stays. */
static void what_was_met_long_ago_goes_first(void **state)
{
  enum { SOME = 4000, AT_ONCE = 8, RECENT = 900, MOST = 2048 };
  size_t around = count_around(*state);
  mapped_block block = map_block(*state, SOME, MOST);
  for (int round = 0; round < 3; round++)
    for (size_t i = 0; i < SOME; i += AT_ONCE) {
      uint8_t *there = rv_arena_map_to_fill(block.map, block.offset + i * PAGE, AT_ONCE * PAGE);
      assert_non_null(there);
      for (size_t page = 0; page < AT_ONCE; page++) there[page * PAGE] = (uint8_t)round;
      if (i % (8 * AT_ONCE) != 0) continue;
      assert_in_range(count_resident(there - i * PAGE, SOME), 1, MOST + around);
      if (i >= RECENT) assert_int_equal(count_resident(there - (size_t)RECENT * PAGE, RECENT), RECENT);
    }
  unmap_block(*state, &block);
}

/* A server that lends to a process's hundred clients is read by all of them in one place. */
static void who_may_read_maps_it_once_and_elsewhere(void **state)
{
  rv_arena *arena = *state;
  int owner;
  uint64_t offset;
  char *block = rv_arena_take(arena, 20000, &owner);
  strcpy(block, "written here");
  assert_ptr_equal(rv_arena_find(arena, block, 20000, &offset), &owner);
  rv_arena_maps *maps = rv_arena_maps_new(1 << 20);
  rv_arena_map *map = rv_arena_map_open(maps, rv_arena_file(arena), RV_ARENA_READ, SIZE_MAX);
  assert_non_null(map);
  assert_ptr_equal(rv_arena_map_open(maps, rv_arena_file(arena), RV_ARENA_READ, SIZE_MAX), map);
  rv_arena_map *to_write = rv_arena_map_open(maps, rv_arena_file_to_write(arena), RV_ARENA_WRITE, SIZE_MAX);
  assert_ptr_not_equal(to_write, map);
  assert_null(rv_arena_map_to_fill(map, offset, 1));
  const uint8_t *there = rv_arena_map_at(map, offset, 20000);
  assert_string_equal((const char *)there, "written here");
  strcpy((char *)rv_arena_map_to_fill(to_write, offset, 20000), "written there");
  assert_string_equal((const char *)there, "written there");
  assert_true(rv_arena_map_has(map, there) && !rv_arena_map_has(to_write, there));
  rv_arena_map_unref(to_write);
  rv_arena_map_unref(map);
  assert_string_equal((const char *)there, "written there");
  rv_arena_map_unref(map);
  rv_arena_maps_unref(maps);
  rv_arena_give_back(arena, block);
}

/* ---- threads ---- */

enum { THREADS = 3, TURNS = 300, RUN = 7 };

typedef struct user {
  rv_arena_map *to_read, *to_write;
  uint64_t offset; /* of pages of his own */
  int number;
} user;

static void *write_and_read(void *argument)
{
  const user *own = argument;
  for (int turn = 0; turn < TURNS; turn++)
    for (uint64_t at = own->offset; at < own->offset + UINT64_C(40) * RUN * PAGE; at += RUN * PAGE) {
      uint8_t *there = rv_arena_map_to_fill(own->to_write, at, RUN * PAGE);
      for (size_t page = 0; page < RUN; page++) there[page * PAGE] = (uint8_t)(turn + own->number);
      const uint8_t *seen = rv_arena_map_at(own->to_read, at, RUN * PAGE);
      for (size_t page = 0; page < RUN; page++) assert_int_equal(seen[page * PAGE], (uint8_t)(turn + own->number));
    }
  return NULL;
}

/* While one lets go of pages others read and write them. */
static void threads_share_maps_that_forget(void **state)
{
  rv_arena *arena = *state;
  int owner;
  uint64_t offset;
  size_t each = (size_t)2 << 20; /* two share a part that is forgotten, the third has one of his own */
  void *block = rv_arena_take(arena, THREADS * each, &owner);
  assert_ptr_equal(rv_arena_find(arena, block, 1, &offset), &owner);
  rv_arena_maps *maps = rv_arena_maps_new((size_t)50 * PAGE);
  rv_arena_map *to_read = rv_arena_map_open(maps, rv_arena_file(arena), RV_ARENA_READ, SIZE_MAX);
  rv_arena_map *to_write = rv_arena_map_open(maps, rv_arena_file_to_write(arena), RV_ARENA_WRITE, SIZE_MAX);
  pthread_t thread[THREADS];
  user users[THREADS];
  for (int i = 0; i < THREADS; i++) {
    users[i] = (user){.to_read = to_read, .to_write = to_write, .offset = offset + (uint64_t)i * each, .number = i};
    assert_int_equal(pthread_create(&thread[i], NULL, write_and_read, &users[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  rv_arena_map_unref(to_write);
  rv_arena_map_unref(to_read);
  rv_arena_maps_unref(maps);
  rv_arena_give_back(arena, block);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(who_may_write_maps_it_once),       TEST(who_writes_to_many_blocks_stays_small),
      TEST(what_was_met_long_ago_goes_first), TEST(who_may_read_maps_it_once_and_elsewhere),
      TEST(threads_share_maps_that_forget),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
