/* A child that was forked has what its parent had drawn. It reads that and lets it go without waiting for a thread which is not there. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/chunk_parts.h"
#include "store/testing.h"

enum { ROWS = 100, CHILDREN = 60, SECONDS = 20 };

typedef struct world {
  rv_store *store;
  rv_chunk *chunk; /* decoded to be read */
  atomic_bool over;
} world;

/* Takes the locks of layouts and of the decode cache all the time. */
static void *be_busy(void *argument)
{
  world *w = argument;
  rv_error err;
  int64_t rows[ROWS];
  for (int32_t i = 0; !atomic_load(&w->over); i++) {
    rv_trajectory_unref(trajectory_of(w->store, w->chunk, 0, 2 + i % 7));
    for (int k = 0; k < 50; k++) must(rv_chunk_copy_rows(w->chunk, 0, 0, ROWS, rows, &err), &err);
  }
  return NULL;
}

static void read_and_let_go(rv_trajectory *trajectory, rv_chunk *chunk)
{
  int64_t rows[ROWS];
  rv_error err;
  alarm(SECONDS);
  if (rv_chunk_copy_rows(chunk, 0, 0, ROWS, rows, &err) != RV_OK || rows[ROWS - 1] != ROWS - 1) _exit(1);
  rv_trajectory_unref(trajectory);
  rv_chunk_unref(chunk);
  _exit(0);
}

static void a_child_reads_and_drops_what_it_inherited(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("replay", 100);
  world w = {.store = store_of(&config), .chunk = encoded_numbers(0, ROWS, 1, true)};
  rv_chunk *own = encoded_numbers(0, ROWS, 2, true);
  int64_t rows[ROWS];
  rv_error err;
  pthread_t busy;
  rv_chunk_attach_cache(w.chunk, rv_store_decode_cache(w.store));
  rv_chunk_attach_cache(own, rv_store_decode_cache(w.store));
  must(rv_chunk_copy_rows(own, 0, 0, ROWS, rows, &err), &err);
  rv_trajectory *trajectory = trajectory_of(w.store, own, 0, 1); /* nobody else has its layout */
  assert_int_equal(pthread_create(&busy, NULL, be_busy, &w), 0);
  for (int i = 0; i < CHILDREN; i++) {
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) read_and_let_go(trajectory, own);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("child %d ended with status %#x", i, (unsigned)status);
  }
  atomic_store(&w.over, true);
  pthread_join(busy, NULL);
  rv_trajectory_unref(trajectory);
  rv_chunk_unref(own);
  rv_chunk_unref(w.chunk);
  rv_store_unref(w.store);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_child_reads_and_drops_what_it_inherited),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
