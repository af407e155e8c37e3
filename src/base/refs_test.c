#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <pthread.h>

#include "base/refs.h"

enum { THREADS = 4, ROUNDS = 2000, MORE = 3 };

static void one_of_one_is_the_last(void **state)
{
  (void)state;
  atomic_size_t refs;
  atomic_init(&refs, 1);
  assert_true(rv_refs_drop(&refs, 1));
  assert_int_equal(atomic_load(&refs), 0);
}

static void the_last_of_several_is_told(void **state)
{
  (void)state;
  atomic_size_t refs;
  atomic_init(&refs, 1);
  rv_refs_add_to_own(&refs);
  rv_refs_add_to_own(&refs);
  assert_int_equal(atomic_load(&refs), 3);
  assert_false(rv_refs_drop(&refs, 2));
  assert_true(rv_refs_drop(&refs, 1));
  atomic_init(&refs, 5);
  assert_true(rv_refs_drop(&refs, 5));
}

/* What is counted, with what each thread wrote while it had a reference, which the last one reads. */
typedef struct shared {
  atomic_size_t refs;
  int written[THREADS];
  int ended; /* plain: only who is the last writes it */
} shared;

typedef struct user {
  shared *all;
  size_t number;
} user;

static void *use(void *context)
{
  user *self = context;
  for (int round = 0; round < ROUNDS; round++) {
    shared *one = &self->all[round];
    for (int i = 0; i < MORE; i++) rv_refs_add_to_own(&one->refs);
    one->written[self->number] = round + 1;
    bool last = rv_refs_drop(&one->refs, MORE) || rv_refs_drop(&one->refs, 1);
    if (!last) continue;
    for (size_t i = 0; i < THREADS; i++) one->ended += one->written[i] == round + 1;
  }
  return NULL;
}

static void one_thread_is_the_last_and_sees_what_all_wrote(void **state)
{
  (void)state;
  static shared all[ROUNDS];
  for (int round = 0; round < ROUNDS; round++) atomic_init(&all[round].refs, THREADS);
  pthread_t threads[THREADS];
  user users[THREADS];
  for (size_t i = 0; i < THREADS; i++) {
    users[i] = (user){.all = all, .number = i};
    assert_int_equal(pthread_create(&threads[i], NULL, use, &users[i]), 0);
  }
  for (size_t i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  for (int round = 0; round < ROUNDS; round++) assert_int_equal(all[round].ended, THREADS);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_of_one_is_the_last),
      cmocka_unit_test(the_last_of_several_is_told),
      cmocka_unit_test(one_thread_is_the_last_and_sees_what_all_wrote),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
