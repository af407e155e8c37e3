#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "base/spares.h"

static void a_buffer_is_used_again(void **state)
{
  (void)state;
  rv_spares *spares = rv_spares_new();
  rv_buf *first = rv_spares_take(spares, 1000);
  assert_int_equal(first->size, 0);
  assert_int_equal(first->capacity, 1000);
  memset(first->data, 7, 1000);
  first->size = 1000;
  rv_buf_unref(rv_buf_ref(first));
  rv_buf_unref(first);
  rv_buf *again = rv_spares_take(spares, 900);
  assert_ptr_equal(again, first);
  assert_int_equal(again->size, 0);
  assert_int_equal(again->capacity, 1000);
  rv_buf *larger = rv_spares_take(spares, 2000);
  assert_int_equal(larger->capacity, 2000);
  rv_spares_unref(spares);
  memset(larger->data, 1, 2000); /* it outlives the others' owner */
  rv_buf_unref(again);
  rv_buf_unref(larger);
}

static void more_than_a_few_are_not_kept(void **state)
{
  (void)state;
  rv_spares *spares = rv_spares_new();
  rv_buf *buf[20];
  for (size_t i = 0; i < 20; i++) buf[i] = rv_spares_take(spares, 100);
  for (size_t i = 0; i < 20; i++) rv_buf_unref(buf[i]);
  rv_spares_unref(spares);
  rv_spares_unref(NULL);
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
  rv_spares *spares = rv_spares_new();
  pthread_t thread[3];
  for (size_t i = 0; i < 3; i++) assert_int_equal(pthread_create(&thread[i], NULL, take_and_drop, spares), 0);
  for (size_t i = 0; i < 3; i++) pthread_join(thread[i], NULL);
  rv_spares_unref(spares);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_buffer_is_used_again), cmocka_unit_test(more_than_a_few_are_not_kept),
                                     cmocka_unit_test(threads_share_them)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
