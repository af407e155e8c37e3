/* The arena: its blocks do not meet, others read in them what was written, and what is given back is used again or goes. */
#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena_map.h"
#include "base/arena_testing.h"
#include "base/random.h"

/* Trims once a second until nothing is left to do: so many seconds. */
static int be_quiet(rv_arena *arena, int64_t *now_ns)
{
  int seconds = 1;
  while (rv_arena_trim(arena, *now_ns += SECOND)) seconds++;
  return seconds;
}

static void drop_idle(rv_arena *arena)
{
  static int64_t now_ns;
  be_quiet(arena, &now_ns);
  assert_int_equal(idle_bytes(arena), 0);
}

/* By maps of its own; NULL: it cannot be. */
static rv_arena_map *map_to_read(int file, size_t most_segments)
{
  rv_arena_maps *maps = rv_arena_maps_new((size_t)1 << 30);
  rv_arena_map *map = rv_arena_map_open(maps, file, RV_ARENA_READ, most_segments);
  rv_arena_maps_unref(maps);
  return map;
}

/* ---- blocks ---- */

static void whoever_maps_it_reads_what_was_written(void **state)
{
  rv_arena *arena = *state;
  int owner;
  char *block = rv_arena_take(arena, 20000, &owner);
  assert_non_null(block);
  memset(block, 'x', 20000);
  rv_arena_map *map = map_to_read(rv_arena_file(arena), SIZE_MAX);
  assert_non_null(map);
  uint64_t offset;
  assert_ptr_equal(rv_arena_find(arena, block + 15000, 5000, &offset), &owner);
  const uint8_t *there = rv_arena_map_at(map, offset, 5000);
  assert_non_null(there);
  assert_memory_equal(there, block + 15000, 5000);
  strcpy(block + 15000, "changed");
  assert_string_equal((const char *)there, "changed");
  assert_null(rv_arena_map_at(map, rv_arena_map_size(map), 1));
  assert_null(rv_arena_map_at(map, UINT64_MAX, 2));
  assert_null(rv_arena_map_at(map, 0, rv_arena_map_size(map) + 1));
  assert_null(rv_arena_map_at(map, offset, UINT64_MAX));
  char elsewhere[100];
  assert_null(rv_arena_find(arena, elsewhere, sizeof elsewhere, &offset));
  assert_null(rv_arena_find(arena, block, (size_t)PAGES * PAGE, &offset)); /* longer than all that lies behind it */
  rv_arena_give_back(arena, block);
  rv_arena_map_unref(map);
  rv_arena_map_unref(NULL);
}

static void what_is_abandoned_stays_as_it_is(void **state)
{
  rv_arena *arena = *state;
  int owner;
  size_t used, idle;
  uint64_t offset;
  char *block = rv_arena_take(arena, 20000, &owner);
  memset(block, 'x', 20000);
  assert_ptr_equal(rv_arena_find(arena, block, 20000, &offset), &owner);
  rv_arena_abandon(arena, block);
  drop_idle(arena);
  static char *others[PAGES];
  size_t count = 0;
  while ((others[count] = rv_arena_take(arena, PAGE, &owner)) != NULL) memset(others[count++], 0, PAGE);
  for (size_t i = 0; i < 20000; i++) assert_int_equal(block[i], 'x');
  while (count > 0) rv_arena_give_back(arena, others[--count]);
  rv_arena_usage(arena, &used, &idle);
  assert_int_equal(used, 5 * PAGE);
}

static void more_may_lie_idle_where_that_was_asked_for(void **state)
{
  (void)state;
  rv_arena *arena = new_arena(64 << 20);
  int owner;
  size_t used, idle;
  size_t more = 40 << 20; /* than lie idle usually */
  char *block = rv_arena_take(arena, more, &owner);
  assert_non_null(block);
  rv_arena_keep_idle(arena, more);
  rv_arena_give_back(arena, block);
  rv_arena_usage(arena, &used, &idle);
  assert_int_equal(idle, more);
  drop_idle(arena);
  rv_arena_usage(arena, &used, &idle);
  assert_int_equal(idle, 0);
  rv_arena_unref(arena);
}

/* For memory that is touched anew costs more than what is written to it: who comes again within a minute finds some. */
static void what_nobody_needs_goes_bit_by_bit(void **state)
{
  (void)state;
  enum { SIZE = 250 << 20, NEEDED = 100 << 20 };
  rv_arena *arena = new_arena(RV_ARENA_SEGMENT);
  int64_t now_ns = 5 * SECOND;
  int owner;
  rv_arena_keep_idle(arena, SIZE);
  rv_arena_give_back(arena, rv_arena_take(arena, SIZE, &owner));
  assert_true(rv_arena_trim(arena, now_ns));
  assert_int_equal(idle_bytes(arena), SIZE); /* it was in use since the last */
  for (int i = 0; i < 100; i++) {            /* what is needed stays */
    rv_arena_give_back(arena, rv_arena_take(arena, NEEDED, &owner));
    assert_true(rv_arena_trim(arena, now_ns += SECOND));
  }
  assert_in_range(idle_bytes(arena), NEEDED, NEEDED + (1 << 20));
  size_t before = idle_bytes(arena);
  for (int loop = 0; loop < 8; loop++) assert_true(rv_arena_trim(arena, now_ns + loop)); /* the same second's */
  assert_int_equal(idle_bytes(arena), before);
  assert_in_range(be_quiet(arena, &now_ns), 10, 60);
  assert_int_equal(idle_bytes(arena), 0);
  rv_arena_give_back(arena, rv_arena_take(arena, SIZE, &owner));
  for (int i = 0; i < 20; i++) assert_true(rv_arena_trim(arena, now_ns += SECOND));
  assert_in_range(idle_bytes(arena), SIZE / 4, SIZE - 1);
  assert_in_range(be_quiet(arena, &now_ns), 10, 60);
  assert_int_equal(idle_bytes(arena), 0);
  rv_arena_unref(arena);
}

static void who_reads_cannot_write(void **state)
{
  rv_arena *arena = *state;
  int file = rv_arena_file(arena);
  assert_ptr_equal(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), MAP_FAILED);
  assert_int_equal(write(file, "x", 1), -1);
  assert_int_equal(ftruncate(file, 0), -1);
  struct stat info;
  assert_int_equal(fstat(file, &info), 0);
  assert_int_equal(info.st_mode & 0777, 0600);
}

static void only_an_arena_is_mapped(void **state)
{
  (void)state;
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  assert_null(map_to_read(ends[0], SIZE_MAX));
  close(ends[0]);
  close(ends[1]);
}

typedef struct held {
  uint8_t *block;
  size_t size;
  uint8_t mark;
} held;

static void check(const held *one)
{
  for (size_t i = 0; i < one->size; i += 997)
    if (one->block[i] != one->mark) fail_msg("a block of %zu bytes was written to by others", one->size);
  if (one->size > 0 && one->block[one->size - 1] != one->mark) fail_msg("the end of a block was written to by others");
}

/* Against a list of what is held: blocks lie apart, and once all are given back one block has it all. */
static void blocks_of_all_sizes_come_and_go(void **state)
{
  rv_arena *arena = *state;
  enum { MOST = 200, ROUNDS = 20000 };
  held *all = calloc(MOST, sizeof *all);
  rv_random random;
  rv_random_init(&random, 5);
  size_t n = 0, used = 0;
  int owner;
  for (int round = 0; round < ROUNDS; round++) {
    bool grows = n == 0 || (n < MOST && rv_random_below(&random, 100) < (round / 1000 % 2 == 0 ? 60 : 40));
    if (grows) {
      size_t size = (size_t)rv_random_below(&random, (uint32_t)1 << (1 + rv_random_below(&random, 20))) + 1;
      held one = {.block = rv_arena_take(arena, size, &owner), .size = size, .mark = (uint8_t)(round | 1)};
      if (one.block == NULL) continue;
      assert_int_equal((uintptr_t)one.block % PAGE, 0);
      memset(one.block, one.mark, size);
      used += size + rv_arena_waste(size);
      all[n++] = one;
    } else {
      size_t at = (size_t)rv_random_below(&random, (uint32_t)n);
      check(&all[at]);
      used -= all[at].size + rv_arena_waste(all[at].size);
      rv_arena_give_back(arena, all[at].block);
      all[at] = all[--n];
    }
    assert_int_equal(used_bytes(arena), used);
  }
  while (n-- > 0) {
    check(&all[n]);
    rv_arena_give_back(arena, all[n].block);
  }
  free(all);
  assert_int_equal(used_bytes(arena), 0);
  assert_int_equal(idle_bytes(arena) % PAGE, 0);
}

static void a_full_arena_says_so_and_has_room_again(void **state)
{
  rv_arena *arena = *state;
  void *all[PAGES];
  size_t n = 0;
  int owner;
  while (n < PAGES && (all[n] = rv_arena_take(arena, PAGE, &owner)) != NULL) n++;
  assert_int_equal(n, PAGES - 1); /* the first page is nobody's */
  assert_null(rv_arena_take(arena, 1, &owner));
  for (size_t i = 0; i < n; i += 2) rv_arena_give_back(arena, all[i]);
  assert_null(rv_arena_take(arena, (size_t)2 * PAGE, &owner)); /* all that is free are single pages */
  for (size_t i = 1; i < n; i += 2) rv_arena_give_back(arena, all[i]);
  void *half = rv_arena_take(arena, (size_t)PAGES / 2 * PAGE, &owner); /* they have joined */
  assert_non_null(half);
  rv_arena_give_back(arena, half);
  assert_null(rv_arena_take(arena, (size_t)PAGES * PAGE, &owner));
  assert_null(rv_arena_take(arena, SIZE_MAX / 4, &owner));
}

static void what_was_given_back_is_used_again(void **state)
{
  rv_arena *arena = *state;
  int owner;
  for (size_t size = PAGE; size < (size_t)2 << 20; size += 7 * PAGE) {
    void *first = rv_arena_take(arena, size, &owner), *second = rv_arena_take(arena, size, &owner);
    rv_arena_give_back(arena, first);
    assert_ptr_equal(rv_arena_take(arena, size, &owner), first);
    rv_arena_give_back(arena, first);
    rv_arena_give_back(arena, second);
    drop_idle(arena);
  }
}

static void blocks_lie_in_as_many_segments_as_they_need(void **state)
{
  (void)state;
  enum { COUNT = 7, SIZE = 100 << 20 }; /* two in each segment, one more in none: the last is shorter */
  rv_arena *arena = new_arena((size_t)3 * RV_ARENA_SEGMENT + (50 << 20));
  rv_arena_map *map = map_to_read(rv_arena_file(arena), SIZE_MAX);
  assert_non_null(map);
  int owners[COUNT];
  char *blocks[COUNT];
  size_t n = 0;
  while (n < COUNT && (blocks[n] = rv_arena_take(arena, SIZE, &owners[n])) != NULL) n++;
  assert_int_equal(n, 6);
  for (size_t i = 0; i < n; i++) blocks[i][SIZE - 1] = (char)('a' + i);
  for (size_t i = n; i-- > 0;) {
    uint64_t offset;
    assert_ptr_equal(rv_arena_find(arena, blocks[i] + SIZE - 1, 1, &offset), &owners[i]);
    assert_int_equal(*rv_arena_map_at(map, offset, 1), 'a' + i);
    assert_null(rv_arena_map_at(map, offset, SIZE * UINT64_C(2))); /* beyond its segment */
  }
  rv_arena_map *little = map_to_read(rv_arena_file(arena), 1);
  assert_non_null(little); /* the rest can be read from the file */
  assert_non_null(rv_arena_map_at(little, PAGE, 1));
  assert_null(rv_arena_map_at(little, RV_ARENA_SEGMENT + PAGE, 1));
  assert_non_null(rv_arena_map_at(little, PAGE, 1));
  rv_arena_map_unref(little);
  char *small = rv_arena_take(arena, (size_t)40 << 20, &owners[6]);
  assert_non_null(small);
  rv_arena_give_back(arena, small);
  for (size_t i = 0; i < n; i++) rv_arena_give_back(arena, blocks[i]);
  drop_idle(arena);                                                        /* what lies idle joins only its like */
  char *whole = rv_arena_take(arena, RV_ARENA_SEGMENT - PAGE, &owners[0]); /* they have joined, within a segment */

  assert_non_null(whole);
  rv_arena_give_back(arena, whole);
  rv_arena_map_unref(map);
  rv_arena_unref(arena);
}

/* ---- memory ---- */

static void much_that_lies_idle_goes_back_to_the_system(void **state)
{
  (void)state;
  enum { COUNT = 200, SIZE = 400000 }; /* 80 MB */
  rv_arena *arena = new_arena((size_t)100 << 20);
  int owner;
  void *all[COUNT];
  for (size_t i = 0; i < COUNT; i++) {
    all[i] = rv_arena_take(arena, SIZE, &owner);
    assert_non_null(all[i]);
    memset(all[i], 1, SIZE);
  }
  assert_true(memory_of(arena) >= (size_t)COUNT * SIZE);
  for (size_t i = 0; i < COUNT; i++) rv_arena_give_back(arena, all[i]);
  assert_true(idle_bytes(arena) <= (size_t)32 << 20);
  assert_true(memory_of(arena) <= (size_t)32 << 20);
  for (size_t i = 0; i < COUNT; i++)
    assert_non_null(all[i] = rv_arena_take(arena, SIZE, &owner)); /* and is there when it is needed */
  for (size_t i = 0; i < COUNT; i++) rv_arena_give_back(arena, all[i]);
  drop_idle(arena);
  assert_int_equal(idle_bytes(arena), 0);
  assert_int_equal(memory_of(arena), 0);
  rv_arena_unref(arena);
}

/* In any order, at any time: what is more than may lie idle has gone when who gives back comes back. */
static void no_more_than_that_ever_lies_idle(void **state)
{
  (void)state;
  enum { COUNT = 1600, SIZE = 40000, STEP = 7 /* no divisor of the count */, MORE = 8 << 20 };
  rv_arena *arena = new_arena((size_t)100 << 20);
  int owner;
  void *all[COUNT];
  rv_arena_keep_idle(arena, MORE);
  for (size_t i = 0; i < COUNT; i++) {
    assert_non_null(all[i] = rv_arena_take(arena, SIZE, &owner));
    memset(all[i], 1, SIZE);
  }
  for (size_t i = 0; i < COUNT; i++) {
    rv_arena_give_back(arena, all[i * STEP % COUNT]);
    assert_true(idle_bytes(arena) <= ((size_t)32 << 20) + MORE);
  }
  assert_true(memory_of(arena) <= ((size_t)32 << 20) + MORE);
  rv_arena_unref(arena);
}

/* The memory of what came back last may still be in a cache, and each time that some is given back costs others a pause. */
static void the_longest_idle_run_goes_first(void **state)
{
  (void)state;
  enum { MOST = 32 << 20, SIZE = 40000 };
  rv_arena *arena = new_arena((size_t)100 << 20);
  int owner;
  char *longest = rv_arena_take(arena, MOST, &owner), *between = rv_arena_take(arena, SIZE, &owner);
  char *last = rv_arena_take(arena, SIZE, &owner);
  assert_true(longest != NULL && between != NULL && last != NULL);
  memset(longest, 1, MOST);
  memset(last, 2, SIZE);
  rv_arena_give_back(arena, longest);
  assert_int_equal(idle_bytes(arena), MOST);
  rv_arena_give_back(arena, last);
  assert_in_range(idle_bytes(arena), MOST / 2, MOST);
  bool bare = true;
  assert_ptr_equal(rv_arena_take_telling(arena, SIZE, &owner, &bare), last);
  assert_false(bare);
  assert_int_equal(*last, 2);
  rv_arena_give_back(arena, last);
  rv_arena_give_back(arena, between);
  rv_arena_unref(arena);
}

static void a_block_outlives_the_owner(void **state)
{
  (void)state;
  rv_arena *arena = new_arena((size_t)PAGES * PAGE);
  int owner;
  char *block = rv_arena_take(arena, 50000, &owner);
  rv_arena_unref(arena);
  memset(block, 1, 50000);
  rv_arena_give_back(arena, block);
  rv_arena_unref(NULL);
}

static void where_the_process_is_limited_there_is_none(void **state)
{
  rv_arena *arena = *state;
  const struct {
    int resource;
    rlim_t limit;
    const char *named;
  } limits[] = {{RLIMIT_FSIZE, 1 << 20, "ulimit -f"}, {RLIMIT_AS, (rlim_t)1 << 60, "ulimit -v"}};
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    struct rlimit before, now;
    assert_int_equal(getrlimit(limits[i].resource, &before), 0);
    now = (struct rlimit){.rlim_cur = limits[i].limit, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(limits[i].resource, &now), 0);
    rv_arena *none;
    rv_error error;
    assert_int_equal(rv_arena_new((size_t)PAGES * PAGE, &none, &error), RV_UNAVAILABLE);
    assert_non_null(strstr(error.message, limits[i].named));
    if (limits[i].resource == RLIMIT_AS) assert_null(map_to_read(rv_arena_file(arena), SIZE_MAX));
    assert_int_equal(setrlimit(limits[i].resource, &before), 0);
  }
}

/* What a dump of a process has of it: nothing; and a child that was forked has nothing mapped. */
static void neither_children_nor_dumps_have_it(void **state)
{
  rv_arena *arena = *state;
  int owner;
  uint64_t offset;
  void *block = rv_arena_take(arena, 5000, &owner);
  rv_arena_map *map = map_to_read(rv_arena_file(arena), SIZE_MAX);
  assert_non_null(map);
  assert_ptr_equal(rv_arena_find(arena, block, 5000, &offset), &owner);
  assert_non_null(rv_arena_map_at(map, offset, 5000));
  FILE *maps = fopen("/proc/self/smaps", "r");
  assert_non_null(maps);
  int mappings = 0, kept = 0;
  bool ours = false;
  for (char line[500]; fgets(line, sizeof line, maps) != NULL;) {
    bool begins = strchr(line, '-') != NULL && strstr(line, " rw-s ") != NULL;
    begins = begins || strstr(line, " r--s ") != NULL;
    if (begins) ours = strstr(line, "reverie-arena") != NULL;
    mappings += begins && ours;
    if (ours && strncmp(line, "VmFlags:", 8) == 0) {
      kept += strstr(line, " dc") != NULL && strstr(line, " dd") != NULL;
      ours = false;
    }
  }
  fclose(maps);
  assert_int_equal(mappings, 2);
  assert_int_equal(kept, 2);
  rv_arena_map_unref(map);
  rv_arena_give_back(arena, block);
}

/* ---- threads ---- */

typedef struct taker {
  rv_arena *arena;
  uint64_t seed;
  int rounds;
  uint32_t most; /* bytes of a block */
} taker;

static void *take_and_give(void *argument)
{
  const taker *given = argument;
  rv_arena *arena = given->arena;
  rv_random random;
  rv_random_init(&random, given->seed);
  held mine[16] = {{0}};
  for (int i = 0; i < given->rounds; i++) {
    held *one = &mine[rv_random_below(&random, 16)];
    if (one->block != NULL) {
      uint64_t offset;
      assert_ptr_equal(rv_arena_find(arena, one->block + one->size - 1, 1, &offset), one);
      check(one);
      rv_arena_give_back(arena, one->block);
      one->block = NULL;
      continue;
    }
    one->size = (size_t)rv_random_below(&random, given->most) + 1;
    one->mark = (uint8_t)i;
    one->block = rv_arena_take(arena, one->size, one);
    if (one->block != NULL) memset(one->block, one->mark, one->size);
  }
  for (size_t i = 0; i < 16; i++)
    if (mine[i].block != NULL) rv_arena_give_back(arena, mine[i].block);
  return NULL;
}

static void share(rv_arena *arena, int rounds, uint32_t most)
{
  pthread_t thread[3];
  taker takers[3];
  for (size_t i = 0; i < 3; i++) {
    takers[i] = (taker){.arena = arena, .seed = i, .rounds = rounds, .most = most};
    assert_int_equal(pthread_create(&thread[i], NULL, take_and_give, &takers[i]), 0);
  }
  for (int i = 1; i <= 100; i++) rv_arena_trim(arena, i * SECOND); /* each ends, however much comes back meanwhile */
  for (size_t i = 0; i < 3; i++) pthread_join(thread[i], NULL);
  assert_int_equal(used_bytes(arena), 0);
}

static void threads_share_it(void **state)
{
  share(*state, 5000, 60000);
}

/* Memory goes back to the system while others take and give back. */
static void threads_share_more_than_may_lie_idle(void **state)
{
  (void)state;
  rv_arena *arena = new_arena((size_t)200 << 20);
  share(arena, 200, 4 << 20);
  assert_true(idle_bytes(arena) <= (size_t)32 << 20);
  rv_arena_unref(arena);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(whoever_maps_it_reads_what_was_written),
      TEST(what_is_abandoned_stays_as_it_is),
      cmocka_unit_test(more_may_lie_idle_where_that_was_asked_for),
      cmocka_unit_test(what_nobody_needs_goes_bit_by_bit),
      TEST(who_reads_cannot_write),
      cmocka_unit_test(only_an_arena_is_mapped),
      TEST(blocks_of_all_sizes_come_and_go),
      TEST(a_full_arena_says_so_and_has_room_again),
      TEST(what_was_given_back_is_used_again),
      cmocka_unit_test(blocks_lie_in_as_many_segments_as_they_need),
      cmocka_unit_test(much_that_lies_idle_goes_back_to_the_system),
      cmocka_unit_test(no_more_than_that_ever_lies_idle),
      cmocka_unit_test(the_longest_idle_run_goes_first),
      cmocka_unit_test(a_block_outlives_the_owner),
      TEST(where_the_process_is_limited_there_is_none),
      TEST(neither_children_nor_dumps_have_it),
      TEST(threads_share_it),
      cmocka_unit_test(threads_share_more_than_may_lie_idle),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
