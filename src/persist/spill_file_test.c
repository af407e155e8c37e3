/* Places in a spill's file: what was put there is read there, and their room is used again. */
#include "persist/spill_file.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/random.h"
#include "store/testing.h"

static void places_hold_what_was_put_there_until_they_are_let_go(void **state)
{
  (void)state;
  enum { PLACES = 40, PIECES = 6 };
  rv_error err;
  rv_spill_file *file = NULL;
  must(rv_spill_file_new("/tmp", PIECES * (size_t)RV_SPILL_PIECE, &file, &err), &err);
  rv_random random;
  rv_random_init(&random, 7);
  rv_cold_place *places[PLACES] = {NULL};
  uint8_t *bytes = malloc(3 * (size_t)RV_SPILL_PIECE + 16);
  size_t put = 0, refused = 0;
  for (int i = 0; i < 3000; i++) {
    size_t at = rv_random_next(&random) % PLACES;
    if (places[at] != NULL) {
      const size_t size = places[at]->buf.size;
      assert_int_equal(places[at]->read(places[at], places[at]->buf.data, bytes, size), 0);
      for (size_t k = 0; k < size; k += 4097) assert_int_equal(bytes[k], (uint8_t)(at * 5 + size));
      rv_buf_unref(&places[at]->buf);
      places[at] = NULL;
      continue;
    }
    size_t skew = rv_random_next(&random) % 16,
           size = 1 + rv_random_next(&random) % (i % 20 == 0 ? 2 * (size_t)RV_SPILL_PIECE : 300000);
    memset(bytes, (int)(uint8_t)(at * 5 + size), size + 16);
    errno = 0;
    places[at] = rv_spill_file_put(file, bytes + skew, size);
    if (places[at] == NULL) {
      assert_int_equal(errno, ENOSPC);
      refused++;
      continue;
    }
    put++;
    assert_int_equal((uintptr_t)places[at]->buf.data % 16, (uintptr_t)(bytes + skew) % 16);
  }
  assert_true(put > 800 && refused > 0);
  rv_spill_file_close(file);
  for (size_t at = 0; at < PLACES; at++)
    if (places[at] != NULL) rv_buf_unref(&places[at]->buf);
  free(bytes);
}

/* A quota, or a limit for files, ends a file as a full disk does. */
static void a_file_that_may_not_grow_has_its_room_used_again(void **state)
{
  (void)state;
  enum { SIZE = 1 << 16, MAY_HAVE = RV_SPILL_PIECE + RV_SPILL_PIECE / 2, FITS = MAY_HAVE / SIZE };
  rv_error err;
  rv_spill_file *file = NULL;
  rv_cold_place *places[FITS + 1];
  struct rlimit before, small;
  size_t n = 0;
  uint8_t *bytes = malloc(SIZE);
  memset(bytes, 7, SIZE);
  must(rv_spill_file_new("/tmp", 8 * (size_t)RV_SPILL_PIECE, &file, &err), &err);
  signal(SIGXFSZ, SIG_IGN);
  getrlimit(RLIMIT_FSIZE, &before);
  small = before;
  small.rlim_cur = MAY_HAVE;
  setrlimit(RLIMIT_FSIZE, &small);
  while (n <= FITS && (places[n] = rv_spill_file_put(file, bytes, SIZE)) != NULL) n++;
  int error = errno;
  const rv_cold_place *again[2] = {NULL, NULL};
  for (size_t i = 0; i < 2 && n == FITS; i++) {
    rv_buf_unref(&places[i * 20]->buf);
    again[i] = places[i * 20] = rv_spill_file_put(file, bytes, SIZE);
  }
  setrlimit(RLIMIT_FSIZE, &before);
  assert_int_equal(n, FITS);
  assert_int_equal(error, EFBIG);
  assert_non_null(again[0]);
  assert_non_null(again[1]);
  places[n++] = rv_spill_file_put(file, bytes, SIZE); /* now it may */
  assert_non_null(places[n - 1]);
  uint8_t *found = malloc(SIZE);
  for (size_t i = 0; i < n; i++) {
    assert_int_equal(places[i]->read(places[i], places[i]->buf.data, found, SIZE), 0);
    assert_memory_equal(found, bytes, SIZE);
    rv_buf_unref(&places[i]->buf);
  }
  free(found);
  rv_spill_file_close(file);
  free(bytes);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(places_hold_what_was_put_there_until_they_are_let_go),
      cmocka_unit_test(a_file_that_may_not_grow_has_its_room_used_again),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
