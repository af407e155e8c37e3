#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/past_caches.h"

typedef struct way {
  void (*copy)(void *to, const void *from, size_t size);
  void (*copy_and_to)(void *to, void *near, const void *from, size_t size);
} way;

static const way here = {rv_stream_past_caches, rv_stream_past_caches_and_to},
                 anywhere = {rv_stream_past_caches_narrow, rv_stream_past_caches_and_to_narrow};

static void every_size_and_place_is_copied_and_nothing_beside_it(void **state)
{
  const way *the = *state;
  enum { MOST = 3000, ROOM = MOST + 256 };
  static uint8_t from[ROOM], to[ROOM], near[ROOM];
  for (size_t i = 0; i < ROOM; i++) from[i] = (uint8_t)(i * 7 % 251);
  for (size_t size = 0; size <= MOST; size += size < 1100 ? 13 : 61) /* with and without lines that are fetched ahead */
    for (size_t place = 0; place < 70; place += 3) {
      size_t source = (place * 5 + size) % 64;
      memset(to, 255, sizeof to);
      the->copy(to + place, from + source, size);
      assert_memory_equal(to + place, from + source, size);
      for (size_t i = 0; i < place; i++) assert_int_equal(to[i], 255);
      for (size_t i = place + size; i < ROOM; i++) assert_int_equal(to[i], 255);
      memset(to, 255, sizeof to);
      memset(near, 255, sizeof near);
      the->copy_and_to(to + place, near + source, from + source, size);
      assert_memory_equal(to + place, from + source, size);
      assert_memory_equal(near + source, from + source, size);
      for (size_t i = 0; i < ROOM; i++) {
        if (i < place || i >= place + size) assert_int_equal(to[i], 255);
        if (i < source || i >= source + size) assert_int_equal(near[i], 255);
      }
    }
}

static void what_is_copied_at_once_is_there(void **state)
{
  (void)state;
  enum { MOST = 5000 };
  static uint8_t from[MOST], to[MOST];
  for (size_t i = 0; i < MOST; i++) from[i] = (uint8_t)(i * 13 % 247);
  for (size_t size = 0; size <= MOST; size += 250) {
    memset(to, 255, sizeof to);
    rv_copy_past_caches(to, from, size);
    assert_memory_equal(to, from, size);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_prestate(every_size_and_place_is_copied_and_nothing_beside_it, (void *)(uintptr_t)&here),
      cmocka_unit_test_prestate(every_size_and_place_is_copied_and_nothing_beside_it, (void *)(uintptr_t)&anywhere),
      cmocka_unit_test(what_is_copied_at_once_is_there),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
