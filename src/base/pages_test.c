#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <sys/mman.h>

#include "base/pages.h"

static void blocks_of_every_size_begin_on_a_line_and_large_ones_on_a_huge_page(void **state)
{
  (void)state;
  const size_t sizes[] = {0,      1, 64, 4096, RV_HUGE_PAGE - 1, RV_HUGE_PAGE, RV_HUGE_PAGE + 1, 3 * (size_t)RV_HUGE_PAGE - 5,
                          5000001};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    size_t size = rv_pages_size(sizes[i]);
    assert_true(size >= sizes[i] && size <= sizes[i] + sizes[i] / 8 + 64);
    uint8_t *block = rv_pages_alloc(sizes[i]);
    assert_non_null(block);
    assert_int_equal((uintptr_t)block % (size >= RV_HUGE_PAGE ? RV_HUGE_PAGE : 64), 0);
    memset(block, 7, size);
    rv_pages_free(block, sizes[i]);
  }
}

static void addresses_begin_where_they_are_to(void **state)
{
  (void)state;
  for (size_t to = 4096; to <= RV_HUGE_PAGE; to *= 2) {
    uint8_t *mapped = rv_pages_map(3 * 4096, to, PROT_READ | PROT_WRITE);
    assert_non_null(mapped);
    assert_int_equal((uintptr_t)mapped % to, 0);
    memset(mapped, 7, 3 * (size_t)4096);
    assert_int_equal(munmap(mapped, 3 * (size_t)4096), 0);
  }
}

/* The system makes one mapping of those that touch each other; each by itself would be the most that a process may have at 128 GiB of them. */
static void blocks_lie_beside_each_other(void **state)
{
  (void)state;
  enum { BLOCKS = 2000 };
  static uint8_t *blocks[BLOCKS];
  int apart = 0;
  for (int i = 0; i < BLOCKS; i++) {
    assert_non_null(blocks[i] = rv_pages_alloc(RV_HUGE_PAGE));
    apart += i > 0 && blocks[i] + RV_HUGE_PAGE != blocks[i - 1] && blocks[i - 1] + RV_HUGE_PAGE != blocks[i];
  }
  assert_in_range(apart, 0, BLOCKS / 20);
  for (int i = 0; i < BLOCKS; i++) rv_pages_free(blocks[i], RV_HUGE_PAGE);
}

static void a_size_that_no_memory_has_is_refused(void **state)
{
  (void)state;
  assert_int_equal(rv_pages_size(SIZE_MAX - 100), 0);
  assert_null(rv_pages_alloc(SIZE_MAX - 100));
  assert_null(rv_pages_alloc(SIZE_MAX / 4));
  rv_pages_free(NULL, 100);
}

static void only_pages_with_all_their_bytes_are_whole(void **state)
{
  (void)state;
  const size_t page = 1 << 16;
  const struct {
    uintptr_t at;
    size_t size, skip, whole;
  } cases[] = {{0, page, 0, page},
               {0, page - 1, 0, 0},
               {0, 5 * page + 4096, 0, 5 * page},
               {4096, page, page - 4096, 0},
               {4096, 2 * page - 4096, page - 4096, page},
               {3 * page - 1, page + 1, 1, page},
               {7 * page, 0, 0, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t skip;
    assert_int_equal(rv_pages_whole(cases[i].at, cases[i].size, page, &skip), cases[i].whole);
    assert_int_equal(skip, cases[i].skip);
  }
}

/* What the system takes pages by is more than what blocks are laid out by on some machines: neighbours stay as they are. */
static void what_lies_around_dropped_memory_stays(void **state)
{
  (void)state;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = 8 * page;
  uint8_t *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(bytes != MAP_FAILED);
  memset(bytes, 7, size);
  assert_false(rv_pages_drop_shared(bytes + page, page - 1));
  assert_true(rv_pages_drop_shared(bytes + page - 5, 3 * page));
  for (size_t i = 0; i < size; i++) assert_int_equal(bytes[i], i >= page && i < 3 * page ? 0 : 7);
  assert_int_equal(munmap(bytes, size), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(blocks_of_every_size_begin_on_a_line_and_large_ones_on_a_huge_page),
      cmocka_unit_test(addresses_begin_where_they_are_to),
      cmocka_unit_test(only_pages_with_all_their_bytes_are_whole),
      cmocka_unit_test(what_lies_around_dropped_memory_stays),
      cmocka_unit_test(blocks_lie_beside_each_other),
      cmocka_unit_test(a_size_that_no_memory_has_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
