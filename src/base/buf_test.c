#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"

enum { LONGEST = 700, ROUNDS = 3000 };

/* What the pieces hold should be these bytes, one after another. */
static void assert_holds(const rv_pieces *pieces, const uint8_t *bytes, size_t size)
{
  assert_int_equal(pieces->bytes, size);
  for (size_t i = 0, at = 0; i < pieces->count; at += pieces->piece[i++].size)
    assert_memory_equal(pieces->piece[i].data, bytes + at, pieces->piece[i].size);
}

static void random_bytes(rv_random *random, uint8_t *out, size_t size)
{
  for (size_t i = 0; i < size; i++) out[i] = (uint8_t)rv_random_next(random);
}

static void copies_shares_and_appended_pieces_stay_in_order(void **state)
{
  (void)state;
  const char *given = getenv("RV_TEST_SEED");
  uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 1;
  print_message("seed %llu\n", (unsigned long long)seed);
  rv_random random;
  rv_random_init(&random, seed);
  uint8_t *model = malloc((size_t)ROUNDS * LONGEST), bytes[LONGEST];
  assert_non_null(model);
  rv_pieces whole, part;
  rv_pieces_init(&whole);
  rv_pieces_init(&part);
  size_t size = 0, part_size = 0; /* the part's bytes stand behind the whole's in the model */
  for (int round = 0; round < ROUNDS; round++) {
    size_t n = rv_random_below(&random, LONGEST + 1);
    random_bytes(&random, bytes, n);
    uint32_t what = rv_random_below(&random, 6);
    if (what == 5) {
      assert_int_equal(rv_pieces_append(&whole, &part), RV_OK);
      assert_int_equal(part.bytes, 0);
      size += part_size;
      part_size = 0;
    } else if (what == 4) {
      rv_buf *shared = rv_buf_copy(bytes, n);
      assert_non_null(shared);
      if (round % 2 == 0) {
        assert_int_equal(rv_pieces_share(&part, shared, shared->data, n), RV_OK);
        rv_buf_unref(shared);
      } else {
        assert_int_equal(rv_pieces_give(&part, shared, shared->data, n), RV_OK);
      }
    } else if (what < 2 && part_size == 0) {
      assert_int_equal(rv_pieces_copy(&whole, bytes, n), RV_OK);
      memcpy(model + size, bytes, n);
      size += n;
      continue;
    } else {
      assert_int_equal(rv_pieces_copy(&part, bytes, n), RV_OK);
    }
    if (what == 5) continue;
    memcpy(model + size + part_size, bytes, n);
    part_size += n;
  }
  assert_holds(&whole, model, size);
  assert_holds(&part, model + size, part_size);
  rv_pieces_fini(&part);
  rv_pieces_fini(&whole);
  free(model);
}

/* Of all buffers that the pieces hold, each counted once: copies fill theirs in turn, so that pieces of one follow each other or come
 * back to the one before. */
static size_t bytes_held(const rv_pieces *pieces)
{
  size_t bytes = 0;
  for (size_t i = 0; i < pieces->count; i++) {
    bool known = false;
    for (size_t j = 0; j < i && !known; j++) known = pieces->piece[j].owner == pieces->piece[i].owner;
    if (!known) bytes += pieces->piece[i].owner->capacity;
  }
  return bytes;
}

static void small_copies_between_appended_pieces_take_little_more_than_their_bytes(void **state)
{
  (void)state;
  enum { CHUNKS = 1000, HEAD = 20, CHUNK = 300 };
  uint8_t bytes[CHUNK] = {0};
  rv_pieces whole, part;
  rv_pieces_init(&whole);
  for (int i = 0; i < CHUNKS; i++) {
    rv_buf *chunk = rv_buf_copy(bytes, CHUNK);
    assert_non_null(chunk);
    rv_pieces_init(&part);
    assert_int_equal(rv_pieces_share(&part, chunk, chunk->data, CHUNK), RV_OK);
    rv_buf_unref(chunk);
    assert_int_equal(rv_pieces_copy(&whole, bytes, HEAD), RV_OK);
    assert_int_equal(rv_pieces_append(&whole, &part), RV_OK);
  }
  assert_int_equal(whole.bytes, CHUNKS * (HEAD + CHUNK));
  assert_true(bytes_held(&whole) < 2 * whole.bytes);
  rv_pieces_fini(&whole);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(copies_shares_and_appended_pieces_stay_in_order),
      cmocka_unit_test(small_copies_between_appended_pieces_take_little_more_than_their_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
