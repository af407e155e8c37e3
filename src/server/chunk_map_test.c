#include "server/chunk_map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"

static rv_chunk *make_chunk(uint64_t key)
{
  const rv_spec spec = {.name = "", .dtype = RV_UINT8};
  const rv_chunk_meta meta = {.key = key};
  rv_chunk *chunk = NULL;
  assert_int_equal(rv_segment_new(&spec, 1, 1, &meta, &chunk, NULL), RV_OK);
  return chunk;
}

static rv_code put(rv_chunk_map *map, rv_chunk *owned_chunk)
{
  const rv_chunk_place place = rv_chunk_place_whole(owned_chunk);
  return rv_chunk_map_put(map, &place, NULL);
}

static rv_chunk *get(const rv_chunk_map *map, uint64_t key)
{
  rv_chunk_place place;
  return rv_chunk_map_get(map, key, &place) ? place.chunk : NULL;
}

static void chunks_are_found_by_key(void **state)
{
  (void)state;
  rv_chunk_map map;
  rv_chunk_map_init(&map, 7, SIZE_MAX);
  assert_null(get(&map, 0));
  for (uint64_t key = 0; key < 100; key++) assert_int_equal(put(&map, make_chunk(key)), RV_OK);
  for (uint64_t key = 0; key < 100; key++) assert_int_equal(rv_chunk_get_meta(get(&map, key))->key, key);
  assert_null(get(&map, 100));
  rv_chunk_map_fini(&map);
}

static void the_first_of_two_chunks_with_one_key_stays(void **state)
{
  (void)state;
  rv_chunk_map map;
  rv_chunk_map_init(&map, 7, SIZE_MAX);
  rv_chunk *first = make_chunk(5);
  assert_int_equal(put(&map, first), RV_OK);
  assert_int_equal(put(&map, make_chunk(5)), RV_OK);
  assert_ptr_equal(get(&map, 5), first);
  assert_int_equal(map.count, 1);
  rv_chunk_map_fini(&map);
}

static void a_bound_of_bytes_holds_and_what_is_dropped_counts_no_more(void **state)
{
  (void)state;
  rv_chunk *chunk = make_chunk(1);
  size_t one = rv_chunk_memory(chunk) + RV_CHUNK_ENTRY_BYTES;
  rv_chunk_map map;
  rv_chunk_map_init(&map, 7, 2 * one);
  assert_int_equal(put(&map, chunk), RV_OK);
  assert_int_equal(put(&map, make_chunk(2)), RV_OK);
  assert_int_equal(put(&map, make_chunk(3)), RV_RESOURCE_EXHAUSTED);
  assert_int_equal(rv_chunk_map_keep(&map, (const uint64_t[]){2}, 1, NULL), RV_OK);
  assert_int_equal(map.bytes, one);
  assert_int_equal(put(&map, make_chunk(3)), RV_OK);
  rv_chunk_map_fini(&map);
}

/* However many of its chunks are kept, a segment is there once, and all of it as long as one is. */
static void chunks_that_are_joined_count_as_their_segment(void **state)
{
  (void)state;
  rv_chunk *segment = make_chunk(77);
  rv_chunk_map map;
  rv_chunk_map_init(&map, 7, SIZE_MAX);
  for (uint64_t key = 1; key <= 4; key++) { /* of the last the key is there */
    const rv_chunk_place place = {.key = key == 4 ? 3 : key, .chunk = rv_chunk_ref(segment), .rows = 1, .is_joined = true};
    assert_int_equal(rv_chunk_map_put(&map, &place, NULL), RV_OK);
  }
  assert_int_equal(map.bytes, rv_chunk_memory(segment) + 3 * RV_CHUNK_ENTRY_BYTES);
  assert_int_equal(rv_chunk_map_keep(&map, (const uint64_t[]){2}, 1, NULL), RV_OK);
  assert_int_equal(map.bytes, rv_chunk_memory(segment) + RV_CHUNK_ENTRY_BYTES);
  assert_int_equal(rv_chunk_map_keep(&map, NULL, 0, NULL), RV_OK);
  assert_int_equal(map.bytes, 0);
  rv_chunk_map_fini(&map);
  rv_chunk_unref(segment);
}

static void keeping_unknown_or_repeated_keys_fails(void **state)
{
  (void)state;
  rv_chunk_map map;
  rv_chunk_map_init(&map, 7, SIZE_MAX);
  for (uint64_t key = 1; key <= 3; key++) assert_int_equal(put(&map, make_chunk(key)), RV_OK);
  assert_int_equal(rv_chunk_map_keep(&map, (const uint64_t[]){1, 2, 2}, 3, NULL), RV_FAILED_PRECONDITION);
  assert_int_equal(rv_chunk_map_keep(&map, (const uint64_t[]){1, 9}, 2, NULL), RV_FAILED_PRECONDITION);
  assert_int_equal(rv_chunk_map_keep(&map, NULL, 0, NULL), RV_OK);
  assert_int_equal(map.count, 0);
  assert_int_equal(map.bytes, 0);
  rv_chunk_map_fini(&map);
}

static void keeping_any_of_them_agrees_with_plain_flags(void **state)
{
  (void)state;
  enum { N = 200 };
  rv_random random;
  rv_random_init(&random, 11);
  rv_chunk_map map;
  rv_chunk_map_init(&map, 7, SIZE_MAX);
  bool present[N] = {false};
  for (int round = 0; round < 100; round++) {
    for (int i = 0; i < 20; i++) {
      uint32_t key = rv_random_below(&random, N);
      present[key] = true;
      assert_int_equal(put(&map, make_chunk(key)), RV_OK);
    }
    uint64_t keep[N];
    size_t kept = 0;
    for (uint64_t key = 0; key < N; key++) {
      if (present[key] && rv_random_below(&random, 3) > 0)
        keep[kept++] = key;
      else
        present[key] = false;
    }
    assert_int_equal(rv_chunk_map_keep(&map, keep, kept, NULL), RV_OK);
    for (uint64_t key = 0; key < N; key++) assert_int_equal(get(&map, key) != NULL, present[key]);
  }
  rv_chunk_map_fini(&map);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chunks_are_found_by_key),
      cmocka_unit_test(the_first_of_two_chunks_with_one_key_stays),
      cmocka_unit_test(a_bound_of_bytes_holds_and_what_is_dropped_counts_no_more),
      cmocka_unit_test(chunks_that_are_joined_count_as_their_segment),
      cmocka_unit_test(keeping_unknown_or_repeated_keys_fails),
      cmocka_unit_test(keeping_any_of_them_agrees_with_plain_flags),
  };
  return cmocka_run_group_tests_name("chunk_map", tests, NULL, NULL);
}
