/* A server that is killed again and again while a writer of the C library sends to it: what flush said is in, is in, once.
 *
 * RV_TEST_KILLS: how often (default 6); RV_TEST_SEED. The server is this very program, started anew with other arguments. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "reverie/reverie.h"
#include "support/held_port.h"

enum { MAX_ITEMS = 1 << 20, PAGE = 1000, KEYS_BEFORE_KILL = 50 };

static const char table_name[] = "t";
static char program[4096];

/* ---- the server ---- */

static void must(rv_code code, const rv_error *err)
{
  if (code == RV_OK) return;
  fprintf(stderr, "%s: %s\n", rv_code_name(code), err->message);
  abort();
}

static int serve(const char *dir, const char *address)
{
  char checkpoints[300], journal[300];
  snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", dir);
  snprintf(journal, sizeof journal, "%s/journal", dir);
  rv_error err;
  rv_table_config table = rv_table_config_default(table_name, MAX_ITEMS);
  rv_checkpointer_config saved = {.size = sizeof saved, .path = checkpoints};
  rv_store_config config = {.size = sizeof config, .tables = &table, .num_tables = 1};
  rv_journal_config journaled = {.size = sizeof journaled, .path = journal, .mode = RV_JOURNAL_ALWAYS};
  rv_checkpointer *checkpointer;
  rv_store *store;
  rv_journal *made;
  rv_server *server;
  must(rv_checkpointer_new(&saved, &checkpointer, &err), &err);
  must(rv_journal_recover(&journaled, checkpointer, &config, NULL, &store, &made, &err), &err);
  rv_server_config served = {.size = sizeof served,
                             .store = store,
                             .addresses = &address,
                             .num_addresses = 1,
                             .io_threads = 2,
                             .checkpointer = checkpointer,
                             .checkpoint_every_ms = 500,
                             .journal = made};
  must(rv_server_new(&served, &server, &err), &err);
  if (write(STDOUT_FILENO, "!", 1) != 1) abort();
  for (;;) pause(); /* until it is killed */
}

typedef struct victim {
  char dir[64];
  held_port held;
  pid_t process;
} victim;

extern char **environ;

static void start(victim *v)
{
  int ready[2];
  char sign;
  char *arguments[] = {program, "serve", v->dir, v->held.address, NULL};
  assert_int_equal(pipe(ready), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ready[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ready[0]);
  posix_spawn_file_actions_addclose(&actions, ready[1]);
  assert_int_equal(posix_spawn(&v->process, program, &actions, NULL, arguments, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(ready[1]);
  assert_int_equal(read(ready[0], &sign, 1), 1); /* it listens */
  close(ready[0]);
}

static void end(victim *v)
{
  int status;
  kill(v->process, SIGKILL);
  assert_int_equal(waitpid(v->process, &status, 0), v->process);
}

/* ---- the writer ---- */

typedef struct writing {
  rv_client *client;
  rv_random random;
  atomic_bool stop;
  uint64_t *keys; /* that were confirmed */
  _Atomic(size_t) count;
} writing;

static void *write_items(void *argument)
{
  writing *w = argument;
  rv_error err;
  rv_writer *writer;
  const rv_wait wait = {.timeout_ms = 120000};
  rv_writer_config config = {.size = sizeof config, .num_keep_alive_refs = 4};
  must(rv_writer_new(w->client, &config, &writer, &err), &err);
  int64_t step = 0;
  while (!atomic_load(&w->stop) && atomic_load(&w->count) + 32 < MAX_ITEMS) {
    size_t n = 1 + rv_random_below(&w->random, 30), count = atomic_load(&w->count);
    for (size_t i = 0; i < n; i++, step++) {
      rv_cell cell = {.column = 0, .value = {.dtype = RV_INT64, .data = &step}};
      rv_run run = {.column = 0, .count = 1, .first = step};
      rv_item_column column = {.runs = &run, .num_runs = 1, .squeeze = true};
      must(rv_writer_append(writer, &cell, 1, false, &err), &err);
      must(rv_writer_create_item(writer, table_name, 1, &column, 1, &w->keys[count + i], &err), &err);
    }
    must(rv_writer_flush(writer, 0, &wait, &err), &err);
    atomic_store(&w->count, count + n);
  }
  rv_writer_free(writer);
  return NULL;
}

/* ---- the check ---- */

static int compare(const void *a, const void *b)
{
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

static size_t list(rv_client *client, uint64_t *keys)
{
  rv_error err;
  rv_item_info page[PAGE];
  const rv_wait wait = {.timeout_ms = 120000};
  uint64_t cursor = 0;
  size_t n = 0, count;
  do {
    must(rv_client_items(client, table_name, &cursor, page, PAGE, &count, &wait, &err), &err);
    for (size_t i = 0; i < count; i++) keys[n++] = page[i].key;
  } while (cursor != 0);
  qsort(keys, n, sizeof *keys, compare);
  return n;
}

static void what_was_confirmed_is_there_once_however_often_the_server_is_killed(void **state)
{
  (void)state;
  const char *given = getenv("RV_TEST_SEED"), *wanted = getenv("RV_TEST_KILLS");
  uint64_t seed = given == NULL ? (uint64_t)time(NULL) : strtoull(given, NULL, 10);
  int kills = wanted == NULL ? 6 : atoi(wanted);
  print_message("seed %llu, %d kills\n", (unsigned long long)seed, kills);
  rv_error err;
  rv_random moments;
  rv_random_init(&moments, seed);
  victim v = {.dir = "/tmp/rv_kill.XXXXXX"};
  assert_non_null(mkdtemp(v.dir));
  held_port_open(&v.held);
  start(&v);
  writing w = {.keys = malloc(MAX_ITEMS * sizeof *w.keys)};
  uint64_t *there = malloc(MAX_ITEMS * sizeof *there);
  rv_client_config config = {.size = sizeof config, .address = v.held.address};
  rv_random_init(&w.random, seed + 1);
  must(rv_client_new(&config, &w.client, &err), &err);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, write_items, &w), 0);
  for (int i = 0; i < kills; i++) {
    size_t before = atomic_load(&w.count);
    while (atomic_load(&w.count) < before + KEYS_BEFORE_KILL) usleep(500); /* something was confirmed since */
    usleep((useconds_t)rv_random_below(&moments, 100000));
    end(&v);
    start(&v);
  }
  atomic_store(&w.stop, true);
  pthread_join(thread, NULL);
  end(&v); /* and once more, with nothing under way */
  start(&v);
  size_t confirmed = atomic_load(&w.count), n = list(w.client, there);
  qsort(w.keys, confirmed, sizeof *w.keys, compare);
  print_message("%zu items confirmed, %zu are there\n", confirmed, n);
  assert_int_equal(n, confirmed); /* the writer had nothing else on its way */
  assert_memory_equal(there, w.keys, n * sizeof *there);
  rv_client_free(w.client);
  end(&v);
  held_port_close(&v.held);
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", v.dir);
  assert_int_equal(system(command), 0);
  free(w.keys);
  free(there);
}

int main(int argc, char **argv)
{
  if (argc == 4 && strcmp(argv[1], "serve") == 0) return serve(argv[2], argv[3]);
  ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);
  if (size < 0) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_was_confirmed_is_there_once_however_often_the_server_is_killed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
