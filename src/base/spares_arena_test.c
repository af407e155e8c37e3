/* Buffers that lie in an arena: others may read them, they have memory before anybody writes to them, and whoever was forked may let go of them. */
#include "base/spares.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena_testing.h"

static void shown_buffers_lie_in_the_arena_and_others_do_not(void **state)
{
  rv_arena *arena = *state;
  rv_spares *spares = rv_spares_new(1 << 20);
  rv_spares_use_arena(spares, arena);
  uint64_t offset;
  rv_buf *shown = rv_spares_take_lendable(spares, 40000), *own = rv_spares_take(spares, 40000);
  assert_ptr_equal(rv_arena_find(arena, shown->data + 39000, 1000, &offset), shown);
  assert_null(rv_arena_find(arena, own->data, 1000, &offset));
  memset(shown->data, 1, shown->capacity);
  rv_buf_unref(shown);
  rv_buf_unref(own);
  assert_ptr_equal(rv_spares_take_lendable(spares, 40000), shown); /* each kind is used again as what it is */
  assert_ptr_equal(rv_spares_take(spares, 40000), own);
  rv_buf *wasteful = rv_spares_take_lendable(spares, 17000);
  assert_null(rv_arena_find(arena, wasteful->data, 17000, &offset));
  rv_buf_unref(wasteful);
  rv_buf *rest[64];
  size_t n = 0;
  do rest[n] = rv_spares_take_lendable(spares, 1000000);
  while (rv_arena_find(arena, rest[n++]->data, 1, &offset) != NULL);
  memset(rest[n - 1]->data, 1, 1000000); /* a full arena is no lack of memory */
  while (n-- > 0) rv_buf_unref(rest[n]);
  rv_spares_close(spares);
  rv_buf_unref(shown);
  rv_buf_unref(own);
  assert_int_equal(used_bytes(arena), 0);
}

static void a_buffer_has_memory_before_anybody_writes_to_it(void **state)
{
  enum { SIZE = 225 * PAGE };
  rv_spares *spares = rv_spares_new(SIZE);
  rv_spares_use_arena(spares, *state);
  rv_buf *buf = rv_spares_take_lendable(spares, SIZE);
  assert_int_equal(memory_of(*state), 0);
  assert_true(rv_buf_reserve_memory(buf));
  assert_int_equal(memory_of(*state), SIZE);
  for (size_t i = 0; i < SIZE; i += PAGE) assert_int_equal(buf->data[i], 0);
  rv_buf_unref(buf);
  assert_ptr_equal(rv_spares_take_lendable(spares, SIZE), buf);
  assert_true(rv_buf_reserve_memory(buf));
  assert_int_equal(memory_of(*state), SIZE);
  rv_buf_unref(buf);
  rv_spares_close(spares);
}

static void count_call(void *context)
{
  ++*(int *)context;
}

static void trims_go_on_while_the_arena_has_something_idle(void **state)
{
  int told = 0;
  rv_spares *spares = rv_spares_new(0); /* they keep nothing */
  rv_spares_use_arena(spares, *state);
  rv_spares_watch(spares, count_call, &told);
  int64_t now_ns = 0;
  for (int i = 1; i <= 2; i++) {
    rv_buf *one = rv_spares_take_lendable(spares, 900000), *other = rv_spares_take_lendable(spares, 900000);
    assert_int_equal(told, i - 1);
    rv_buf_unref(one);
    rv_buf_unref(other);
    assert_int_equal(told, i);
    assert_true(rv_spares_trim(spares, now_ns += SECOND));
    while (rv_spares_trim(spares, now_ns += SECOND)) continue;
    assert_int_equal(idle_bytes(*state), 0);
    assert_int_equal(told, i);
  }
  rv_spares_close(spares);
}

/* Whoever was forked may let go of what he has, and harms nobody by it: neither those who were before him nor what he maps now, perhaps at the
 * same addresses. */
static void a_forked_child_may_let_go(void **state)
{
  (void)state;
  enum { COUNT = 45, SIZE = 1000000, OWN = 64 << 20 }; /* more than may lie idle */
  rv_arena *arena = new_arena(RV_ARENA_SEGMENT);
  rv_spares *spares = rv_spares_new(0);
  rv_spares_use_arena(spares, arena);
  rv_buf *message[COUNT];
  for (size_t i = 0; i < COUNT; i++) memset((message[i] = rv_spares_take_lendable(spares, SIZE))->data, 7, SIZE);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    uint8_t *own = mmap(message[0]->data, OWN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED) _exit(2);
    memset(own, 9, OWN);
    for (size_t i = 0; i < COUNT; i++) rv_buf_unref(message[i]);
    rv_arena_trim(arena, SECOND);
    rv_spares_close(spares);
    rv_arena_unref(arena);
    for (size_t i = 0; i < OWN; i += 512)
      if (own[i] != 9) _exit(1);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  for (size_t i = 0; i < COUNT; i++)
    for (size_t at = 0; at < SIZE; at += 1000) assert_int_equal(message[i]->data[at], 7);
  for (size_t i = 0; i < COUNT; i++) rv_buf_unref(message[i]);
  rv_spares_close(spares);
  rv_arena_unref(arena);
}

typedef struct busy {
  rv_spares *spares;
  atomic_bool stop;
} busy;

static void *keep_taking(void *argument)
{
  busy *with = argument;
  while (!atomic_load(&with->stop)) rv_buf_unref(rv_spares_take_lendable(with->spares, 40000));
  return NULL;
}

/* Whoever is forked while a thread is in there has the locks as they were then, for ever. */
static void a_child_that_is_forked_in_the_middle_lets_go_without_waiting(void **state)
{
  enum { THREADS = 3, CHILDREN = 50, PATIENCE = 60 };
  busy with = {.spares = rv_spares_new(0)};
  rv_spares_use_arena(with.spares, *state);
  rv_buf *message = rv_spares_take_lendable(with.spares, 40000);
  pthread_t thread[THREADS];
  for (size_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&thread[i], NULL, keep_taking, &with), 0);
  for (int i = 0; i < CHILDREN; i++) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      alarm(PATIENCE);
      rv_buf_unref(message);
      raise(SIGKILL); /* no end of the sanitizers', who would miss the threads */
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
  }
  atomic_store(&with.stop, true);
  for (size_t i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  rv_buf_unref(message);
  rv_spares_close(with.spares);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(shown_buffers_lie_in_the_arena_and_others_do_not),
      TEST(a_buffer_has_memory_before_anybody_writes_to_it),
      TEST(trims_go_on_while_the_arena_has_something_idle),
      cmocka_unit_test(a_forked_child_may_let_go),
      TEST(a_child_that_is_forked_in_the_middle_lets_go_without_waiting),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
