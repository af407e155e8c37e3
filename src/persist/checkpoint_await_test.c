/* A start beside somebody who is still writing his last checkpoint. */
#include <pthread.h>
#include <sys/file.h>
#include <sys/syscall.h>

#include "persist/stores_testing.h"

/* Who saves when it is looked whether a checkpoint is whole: as another process does when the names have been read already. */
typedef struct quick_saver {
  rv_checkpointer *checkpointer; /* NULL: nobody */
  rv_store *store;
  int times;
} quick_saver;

static quick_saver quick;

static void save_at_once(void)
{
  quick_saver now = quick;
  if (now.checkpointer == NULL) return;
  quick.checkpointer = NULL; /* what it looks at itself */
  free(save_with(now.checkpointer, now.store));
  if (--now.times > 0) quick = now;
}

/* In the place of the system's. */
int access(const char *path, int mode)
{
  if (strstr(path, "/" RV_DONE_FILE) != NULL) save_at_once();
  return (int)syscall(SYS_faccessat, AT_FDCWD, path, mode);
}

/* A checkpoint that is not whole yet, and who writes it. */
typedef struct writing {
  char partial[300], *whole;
  int lock;
  pthread_t thread;
} writing;

static void rename_to(const char *from, const char *to)
{
  assert_int_equal(rename(from, to), 0);
}

/* Makes of one that is whole one that is being written. */
static void begin_writing(writing *w, char *whole)
{
  char mark[400];
  const char *slash = strrchr(whole, '/');
  snprintf(w->partial, sizeof w->partial, "%.*s/" RV_PARTIAL_PREFIX "0123456789abcdef", (int)(slash - whole), whole);
  w->whole = whole;
  rename_to(whole, w->partial);
  snprintf(mark, sizeof mark, "%s/" RV_OURS_FILE, w->partial);
  w->lock = open(mark, O_RDWR | O_CLOEXEC);
  assert_true(w->lock >= 0 && flock(w->lock, LOCK_EX | LOCK_NB) == 0);
}

static void *write_on(void *argument)
{
  writing *w = argument;
  char path[400];
  snprintf(path, sizeof path, "%s/" RV_OURS_FILE, w->partial);
  for (int i = 0; i < 20; i++) {
    FILE *file = fopen(path, "a");
    fputs("more\n", file);
    fclose(file);
    usleep(20000);
  }
  rename(w->partial, w->whole);
  close(w->lock);
  return NULL;
}

static void a_start_waits_for_a_last_checkpoint_that_is_being_written(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  fill(store);
  rv_error err;
  writing w;
  begin_writing(&w, save(f, store));
  assert_int_equal(pthread_create(&w.thread, NULL, write_on, &w), 0);
  must(restore(f, tables, TABLES, &back, NULL, &err), &err);
  assert_int_equal(pthread_join(w.thread, NULL), 0);
  logged(f, "waits for another process that writes a checkpoint");
  same_stores(store, back);
  rv_store_unref(back);
  rv_store_unref(store);
  free(w.whole);
}

static void a_start_goes_on_where_nothing_is_written_for_a_while_and_that_is_told(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  rv_error err;
  writing w;
  begin_writing(&w, save(f, store));
  f->env.monotonic_ns = later; /* each look at the clock is a second later */
  rv_checkpointer *patient = checkpointer_of(f, 1, NULL);
  rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = TABLES};
  must(rv_checkpointer_restore(patient, &config, NULL, &back, NULL, &err), &err);
  logged(f, "nothing was written to it for 5 s");
  logged(f, w.partial);
  close(w.lock);
  rv_checkpointer_unref(patient);
  rv_store_unref(back);
  rv_store_unref(store);
  free(w.whole);
}

static void a_start_that_waits_can_be_given_up(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  rv_error err;
  writing w;
  begin_writing(&w, save(f, store));
  const rv_checkpoint_watch watch = {.size = sizeof watch, .go_on = give_up};
  rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = TABLES};
  assert_int_equal(rv_checkpointer_restore(f->checkpointer, &config, &watch, &back, NULL, &err), RV_CANCELLED);
  assert_non_null(strstr(err.message, "another process writes a checkpoint to"));
  close(w.lock);
  rv_store_unref(store);
  free(w.whole);
}

/* The one that the start found has gone then, and the other had no name yet when it read them. */
static void a_start_finds_what_is_saved_while_it_looks(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_error err;
  rv_checkpointer *one = checkpointer_of(f, 1, NULL);
  for (int times = 1; times < 5; times++) {
    rv_store *store = new_store(tables, TABLES), *back = NULL;
    fill(store);
    free(save_with(one, store));
    const rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = TABLES};
    rv_checkpointer *starts = checkpointer_of(f, 1, NULL);
    f->log[0] = '\0';
    quick = (quick_saver){.checkpointer = one, .store = store, .times = times};
    must(rv_checkpointer_restore(starts, &config, NULL, &back, NULL, &err), &err);
    quick.checkpointer = NULL;
    assert_null(strstr(f->log, "begins empty"));
    same_stores(store, back);
    rv_checkpointer_unref(starts);
    rv_store_unref(back);
    rv_store_unref(store);
  }
  rv_checkpointer_unref(one);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(a_start_waits_for_a_last_checkpoint_that_is_being_written),
      TEST(a_start_goes_on_where_nothing_is_written_for_a_while_and_that_is_told),
      TEST(a_start_finds_what_is_saved_while_it_looks),
      TEST(a_start_that_waits_can_be_given_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
