#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "base/spares.h"

static bool trim(rv_spares *spares)
{
  return rv_spares_trim(spares, 1);
}

static void a_buffer_is_used_again(void **state)
{
  (void)state;
  rv_spares *spares = rv_spares_new(1 << 20);
  rv_buf *first = rv_spares_take(spares, 1000);
  assert_int_equal(first->size, 0);
  assert_true(first->capacity >= 1000);
  assert_int_equal((uintptr_t)first->data % 64, 0);
  memset(first->data, 7, 1000);
  first->size = 1000;
  rv_buf_unref(rv_buf_ref(first));
  rv_buf_unref(first);
  rv_buf *again = rv_spares_take(spares, 950);
  assert_ptr_equal(again, first);
  assert_int_equal(again->size, 0);
  rv_buf *larger = rv_spares_take(spares, 2000);
  assert_true(larger->capacity >= 2000);
  rv_spares_close(spares);
  memset(larger->data, 1, 2000); /* it outlives the others' owner */
  rv_buf_unref(again);
  rv_buf_unref(larger);
}

static void a_small_request_does_not_get_a_large_buffer(void **state)
{
  (void)state;
  rv_spares *spares = rv_spares_new(1 << 20);
  rv_buf *large = rv_spares_take(spares, 100000);
  rv_buf_unref(large);
  rv_buf *small = rv_spares_take(spares, 50000);
  assert_true(small->capacity < 60000);
  rv_buf *again = rv_spares_take(spares, 100000);
  assert_ptr_equal(again, large);
  rv_buf_unref(small);
  rv_buf_unref(again);
  rv_spares_close(spares);
}

/* What is kept is seen by what is used again: each of these has a size of its own. */
static size_t count_kept(rv_spares *spares, rv_buf *const *were, const size_t *sizes, size_t n)
{
  rv_buf *now[32];
  size_t kept = 0;
  for (size_t i = 0; i < n; i++) {
    now[i] = rv_spares_take(spares, sizes[i]);
    kept += now[i] == were[i];
  }
  for (size_t i = 0; i < n; i++) rv_buf_unref(now[i]);
  return kept;
}

static void more_bytes_than_the_bound_are_not_kept(void **state)
{
  (void)state;
  rv_spares *spares = rv_spares_new(10240);
  rv_buf *buf[20];
  for (size_t i = 0; i < 20; i++) buf[i] = rv_spares_take(spares, 1024);
  for (size_t i = 0; i < 20; i++) rv_buf_unref(buf[i]);
  /* the ten that came back last, the last first */
  rv_buf *now[10];
  for (size_t i = 0; i < 10; i++) {
    now[i] = rv_spares_take(spares, 1024);
    assert_ptr_equal(now[i], buf[19 - i]);
  }
  for (size_t i = 0; i < 10; i++) rv_buf_unref(now[i]);
  rv_buf *huge = rv_spares_take(spares, 20480);
  rv_buf_unref(huge);
  assert_true(trim(spares)); /* the ten are there still */
  while (trim(spares)) continue;
  rv_spares_set_max(spares, 1000);
  rv_buf_unref(rv_spares_take(spares, 1024));
  assert_false(trim(spares));
  rv_spares_close(spares);
  rv_spares_close(NULL);
}

static void what_two_trims_did_not_see_used_is_freed(void **state)
{
  (void)state;
  rv_spares *spares = rv_spares_new(1 << 20);
  const size_t sizes[3] = {1024, 2048, 4096};
  rv_buf *buf[3];
  for (size_t i = 0; i < 3; i++) buf[i] = rv_spares_take(spares, sizes[i]);
  for (size_t i = 0; i < 3; i++) rv_buf_unref(buf[i]);
  assert_true(trim(spares));
  assert_int_equal(count_kept(spares, buf, sizes, 3), 3); /* all were of use */
  assert_true(trim(spares));
  assert_false(trim(spares));
  rv_spares_close(spares);
}

static void count_call(void *context)
{
  ++*(int *)context;
}

static void the_watch_is_told_once_until_nothing_is_left(void **state)
{
  (void)state;
  int told = 0;
  rv_spares *spares = rv_spares_new(1 << 20);
  rv_spares_watch(spares, count_call, &told);
  rv_buf *one = rv_spares_take(spares, 1024), *other = rv_spares_take(spares, 1024);
  assert_int_equal(told, 0);
  rv_buf_unref(one);
  rv_buf_unref(other);
  assert_int_equal(told, 1);
  while (trim(spares)) continue;
  assert_int_equal(told, 1);
  rv_buf_unref(rv_spares_take(spares, 1024));
  assert_int_equal(told, 2);
  one = rv_spares_take(spares, 1024);
  rv_spares_close(spares);
  rv_buf_unref(one);
  assert_int_equal(told, 2);
}

static void one_that_began_later_begins_at_its_beginning_again(void **state)
{
  (void)state;
  rv_spares *spares = rv_spares_new(4096);
  rv_buf *one = rv_spares_take(spares, 1024);
  const uint8_t *data = one->data;
  rv_buf_begin_later(one, 100);
  assert_ptr_equal(one->data, data + 100);
  assert_int_equal(one->capacity, 924);
  rv_buf_unref(one);
  one = rv_spares_take(spares, 1024);
  assert_ptr_equal(one->data, data);
  assert_int_equal(one->capacity, 1024);
  rv_buf_unref(one);
  rv_spares_close(spares);
}

static void *take_and_drop(void *argument)
{
  for (size_t i = 0; i < 2000; i++) {
    rv_buf *buf = rv_spares_take(argument, 64 + i % 7 * 64);
    memset(buf->data, (int)i, buf->capacity);
    rv_buf_unref(buf);
  }
  return NULL;
}

static void threads_share_them(void **state)
{
  (void)state;
  rv_spares *spares = rv_spares_new(400);
  pthread_t thread[3];
  for (size_t i = 0; i < 3; i++) assert_int_equal(pthread_create(&thread[i], NULL, take_and_drop, spares), 0);
  for (size_t i = 0; i < 3; i++) pthread_join(thread[i], NULL);
  rv_spares_close(spares);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_buffer_is_used_again),
      cmocka_unit_test(a_small_request_does_not_get_a_large_buffer),
      cmocka_unit_test(more_bytes_than_the_bound_are_not_kept),
      cmocka_unit_test(what_two_trims_did_not_see_used_is_freed),
      cmocka_unit_test(the_watch_is_told_once_until_nothing_is_left),
      cmocka_unit_test(one_that_began_later_begins_at_its_beginning_again),
      cmocka_unit_test(threads_share_them),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
