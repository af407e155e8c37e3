/* A server whose journal's disk takes nothing any more, and must end all the same. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "persist/journal.h"
#include "support/place.h"
#include "support/rig.h"

enum { ITEMS = 300000, AT_ONCE = 10000, PATIENCE_S = 60 };

static test_rig rig;
static test_peer peer;
static rv_checkpointer *checkpointer;
static char root[64];
static atomic_bool broken;

static ssize_t write_unless_broken(void *context, int file, const struct iovec *pieces, int count)
{
  if (!atomic_load(&broken)) return rv_files_of_system.write(context, file, pieces, count);
  errno = ENOSPC;
  return -1;
}

static int sync_unless_broken(void *context, int file)
{
  if (!atomic_load(&broken)) return rv_files_of_system.sync(context, file);
  errno = EIO;
  return -1;
}

static void ignore_line(void *context, rv_log_level level, const char *line)
{
  (void)context, (void)level, (void)line;
}

static rv_journal *recover(const rv_env *env)
{
  static rv_files files;
  char path[100];
  rv_journal *journal;
  files = rv_files_of_system;
  files.write = write_unless_broken;
  files.sync = sync_unless_broken;
  snprintf(root, sizeof root, "/tmp/rv_server.XXXXXX");
  assert_non_null(mkdtemp(root));
  snprintf(path, sizeof path, "%s/checkpoints", root);
  rv_checkpointer_config saving = {.size = sizeof saving, .path = path, .env = env};
  OK(rv_checkpointer_new(&saving, &checkpointer, error));
  snprintf(path, sizeof path, "%s/journal", root);
  const rv_journal_config writing = {.size = sizeof writing, .path = path, .mode = RV_JOURNAL_ALWAYS, .env = env};
  const rv_table_config table = rv_table_config_default("t", ITEMS);
  const rv_store_config store = {.size = sizeof store, .tables = &table, .num_tables = 1, .env = env};
  OK(rv_journal_recover_with(&writing, &files, checkpointer, &store, NULL, &rig.store, &journal, error));
  return journal;
}

static void fill(void)
{
  rv_client_config config = {.size = sizeof config, .store = rig.store};
  rv_client *client;
  OK(rv_client_new(&config, &client, error));
  static uint8_t values[AT_ONCE];
  static double priorities[AT_ONCE];
  static uint64_t keys[AT_ONCE];
  int64_t n = AT_ONCE;
  const rv_tensor column = {.dtype = RV_UINT8, .rank = 1, .shape = &n, .data = values};
  for (int i = 0; i < ITEMS / AT_ONCE; i++) {
    size_t added = 0;
    OK(rv_client_add_batch(client, "t", &column, 1, AT_ONCE, priorities, keys, &added, NULL, error));
    assert_int_equal(added, AT_ONCE);
  }
  rv_client_free(client);
}

static int set_up(void **state)
{
  (void)state;
  static const char *const address = "127.0.0.1:0";
  static const rv_env env = {.size = sizeof env, .log = ignore_line};
  atomic_store(&broken, false);
  rv_journal *journal = recover(&env);
  const rv_server_config config = {.size = sizeof config,
                                   .store = rig.store,
                                   .addresses = &address,
                                   .num_addresses = 1,
                                   .io_threads = 1,
                                   .journal = journal,
                                   .env = &env};
  OK(rv_server_new(&config, &rig.server, error));
  rv_journal_unref(journal);
  snprintf(rig.address, sizeof rig.address, "127.0.0.1:%u", (unsigned)rv_server_port(rig.server, 0));
  peer_open(&peer, rig.address);
  fill();
  return 0;
}

static int tear_down(void **state)
{
  char command[100];
  (void)state;
  peer_close(&peer);
  rig_stop(&rig);
  rv_checkpointer_unref(checkpointer);
  snprintf(command, sizeof command, "rm -rf %s", root);
  return system(command);
}

static test_stream *lower_max_size(int64_t to)
{
  rv_table_bounds bounds = rv_table_bounds_unchanged();
  bounds.max_size = to;
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  rv_set_bounds_serialize(&body, "t", &bounds);
  test_stream *call = stream_open(&peer, "/reverie.Reverie/SetBounds", NULL, 0);
  stream_send(call, &body);
  return call;
}

static void *stop(void *argument)
{
  rv_server_stop(rig.server, 0);
  return argument;
}

static void expect_stop(void)
{
  pthread_t thread;
  struct timespec until;
  assert_int_equal(pthread_create(&thread, NULL, stop, NULL), 0);
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += PATIENCE_S;
  if (pthread_timedjoin_np(thread, NULL, &until) != 0) {
    fprintf(stderr, "the server does not end\n");
    abort();
  }
}

/* It goes on all the same, and is done when nobody waits for it. */
static void a_change_whose_caller_has_gone_while_it_was_made_does_not_hold_up_a_stop(void **state)
{
  (void)state;
  atomic_store(&broken, true);
  test_stream *call = lower_max_size(1);
  while (rig_size(&rig, "t") == ITEMS) sched_yield();
  stream_cancel(call);
  assert_int_equal(stream_end(call, NULL), RV_CANCELLED);
  while (rig_size(&rig, "t") > 1) sched_yield();
  stream_free(call);
  expect_stop();
}

static void a_change_that_waits_for_the_disk_does_not_hold_up_a_stop(void **state)
{
  (void)state;
  atomic_store(&broken, true);
  test_stream *call = lower_max_size(1);
  while (rig_size(&rig, "t") > 1) sched_yield();
  expect_stop();
  assert_int_equal(stream_end(call, NULL), RV_UNAVAILABLE);
  stream_free(call);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_change_whose_caller_has_gone_while_it_was_made_does_not_hold_up_a_stop, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(a_change_that_waits_for_the_disk_does_not_hold_up_a_stop, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
