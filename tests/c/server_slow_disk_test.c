/* A server whose journal's disk takes its time, and streams that keep more than their share of the memory meanwhile. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/env.h"
#include "persist/journal.h"
#include "store/memory.h"
#include "support/place.h"
#include "support/rig.h"

enum { LIMIT = 8 << 20, SHARE = LIMIT / 4, WIDTH = 16384, CHUNK = WIDTH * 4, MORE = SHARE / CHUNK + 8 };

#define TOKEN "token-of-the-actors"

static test_rig rig;
static test_peer peer;
static rv_checkpointer *checkpointer;
static char root[64];
static atomic_bool held;

static int sync_when_it_may(void *context, int file)
{
  const struct timespec pause = {.tv_nsec = 1000000};
  while (atomic_load(&held)) nanosleep(&pause, NULL);
  return rv_files_of_system.sync(context, file);
}

static rv_journal *recover(void)
{
  static rv_files files;
  char path[100];
  rv_journal *journal;
  files = rv_files_of_system;
  files.sync = sync_when_it_may;
  snprintf(root, sizeof root, "/tmp/rv_server.XXXXXX");
  assert_non_null(mkdtemp(root));
  snprintf(path, sizeof path, "%s/checkpoints", root);
  rv_checkpointer_config saving = {.size = sizeof saving, .path = path};
  OK(rv_checkpointer_new(&saving, &checkpointer, error));
  snprintf(path, sizeof path, "%s/journal", root);
  const rv_journal_config writing = {.size = sizeof writing, .path = path, .mode = RV_JOURNAL_ALWAYS};
  const rv_table_config table = rig_table("t");
  const rv_store_config store = {.size = sizeof store, .tables = &table, .num_tables = 1, .memory_limit = LIMIT};
  OK(rv_journal_recover_with(&writing, &files, checkpointer, &store, NULL, &rig.store, &journal, error));
  return journal;
}

static int set_up(void **state)
{
  (void)state;
  static const char *const address = "127.0.0.1:0";
  atomic_store(&held, false);
  rv_journal *journal = recover();
  const rv_server_config config = {.size = sizeof config,
                                   .store = rig.store,
                                   .addresses = &address,
                                   .num_addresses = 1,
                                   .io_threads = 1,
                                   .max_bytes_per_identity = SHARE / 2,
                                   .journal = journal};
  OK(rv_server_new(&config, &rig.server, error));
  rv_journal_unref(journal);
  snprintf(rig.address, sizeof rig.address, "127.0.0.1:%u", (unsigned)rv_server_port(rig.server, 0));
  peer_open(&peer, rig.address);
  return 0;
}

static int tear_down(void **state)
{
  char command[100];
  (void)state;
  atomic_store(&held, false);
  peer_close(&peer);
  rig_stop(&rig);
  rv_checkpointer_unref(checkpointer);
  snprintf(command, sizeof command, "rm -rf %s", root);
  return system(command);
}

/* Whose session is on the disk. */
static test_stream *open_writer(void)
{
  const rv_metadata writer[] = {{"reverie-writer", "0123456789abcdef0123456789abcdef"}, {"authorization", "Bearer " TOKEN}};
  test_stream *call = stream_open(&peer, INSERT, writer, 2);
  assert_non_null(stream_header(call, "reverie-packs"));
  return call;
}

static void bring(test_stream *call, uint64_t key, bool with_item, uint64_t num_kept)
{
  rv_writer_buf body;
  uint64_t kept[MORE];
  rv_writer_buf_init(&body);
  put_chunk(&body, key, 0, 1, WIDTH);
  if (with_item) put_item(&body, key, (item_options){.table = "t", .priority = 1, .chunk = key, .sequence = key});
  for (uint64_t i = 0; i < num_kept; i++) kept[i] = i + 1;
  if (num_kept > 0) put_keep(&body, kept, num_kept);
  stream_send(call, &body);
}

static void wait_until_it_keeps(test_stream *call, int64_t bytes)
{
  rv_env env;
  rv_env_fill(&env, NULL);
  const int64_t give_up = rv_monotonic_ns(&env) + INT64_C(30000000000);
  while (!stream_is_over(call) && peer_memory(&peer).stream_bytes <= bytes) {
    if (rv_monotonic_ns(&env) > give_up) fail_msg("the stream keeps %lld bytes", (long long)peer_memory(&peer).stream_bytes);
    sched_yield();
  }
}

/* Else its writer would send all of them again, to be told no earlier. */
static void expect_all_confirmed_and_the_end(test_stream *call, const char *why)
{
  char text[RV_ERROR_MESSAGE_MAX];
  uint64_t keys[MORE];
  atomic_store(&held, false);
  size_t confirmed = read_keys(call, keys, MORE);
  assert_int_equal(stream_end(call, text), RV_RESOURCE_EXHAUSTED);
  if (strstr(text, why) == NULL) fail_msg("%s", text);
  assert_int_equal(confirmed, rig_size(&rig, "t"));
  stream_free(call);
}

static void one_that_keeps_too_much_for_items_ends_when_those_that_wait_for_the_disk_are_confirmed(void **state)
{
  (void)state;
  test_stream *call = open_writer();
  atomic_store(&held, true);
  for (uint64_t key = 1; key <= MORE; key++) bring(call, key, true, key);
  wait_until_it_keeps(call, SHARE);
  expect_all_confirmed_and_the_end(call, "insert streams together may keep 2.0 MiB");
}

static void one_that_brings_too_much_for_an_item_ends_when_those_that_wait_for_the_disk_are_confirmed(void **state)
{
  (void)state;
  test_stream *call = open_writer();
  atomic_store(&held, true);
  bring(call, 1, true, 0);
  for (uint64_t key = 2; key <= MORE; key++) bring(call, key, false, 0);
  wait_until_it_keeps(call, SHARE);
  expect_all_confirmed_and_the_end(call, "insert streams together may keep 2.0 MiB");
}

/* The bound of an identity is lower than that of the streams here. */
static void one_whose_caller_keeps_too_much_ends_when_items_that_wait_for_the_disk_are_confirmed(void **state)
{
  (void)state;
  const rv_grant may = {NULL, RV_RIGHT_INSERT | RV_RIGHT_READ};
  const rv_identity identity = {.name = "actors", .token = TOKEN, .grants = &may, .num_grants = 1};
  OK(rv_server_set_identities(rig.server, &identity, 1, error));
  test_stream *call = open_writer();
  atomic_store(&held, true);
  for (uint64_t key = 1; key <= MORE; key++) bring(call, key, true, key);
  while (!stream_is_over(call) && rig_size(&rig, "t") < SHARE / 2 / CHUNK) sched_yield();
  expect_all_confirmed_and_the_end(call, "max_bytes_per_identity");
}

/* Nothing is left of it that waits for the disk. */
static void one_that_waits_so_can_be_given_up(void **state)
{
  (void)state;
  test_stream *call = open_writer();
  atomic_store(&held, true);
  for (uint64_t key = 1; key <= MORE; key++) bring(call, key, true, key);
  wait_until_it_keeps(call, SHARE);
  assert_false(stream_is_over(call));
  stream_cancel(call);
  assert_int_equal(stream_end(call, NULL), RV_CANCELLED);
  stream_free(call);
  while (peer_memory(&peer).stream_bytes > 0) sched_yield();
}

static void one_that_waits_so_goes_on_where_more_memory_is_given(void **state)
{
  (void)state;
  uint64_t keys[MORE];
  test_stream *call = open_writer();
  atomic_store(&held, true);
  for (uint64_t key = 1; key <= MORE; key++) bring(call, key, true, key);
  wait_until_it_keeps(call, SHARE);
  rv_memory_set_limit(rv_store_memory(rig.store), 4 * (size_t)LIMIT);
  atomic_store(&held, false);
  expect_keys(call, keys, MORE);
  stream_free(call);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(one_that_keeps_too_much_for_items_ends_when_those_that_wait_for_the_disk_are_confirmed),
      TEST(one_that_brings_too_much_for_an_item_ends_when_those_that_wait_for_the_disk_are_confirmed),
      TEST(one_whose_caller_keeps_too_much_ends_when_items_that_wait_for_the_disk_are_confirmed),
      TEST(one_that_waits_so_can_be_given_up),
      TEST(one_that_waits_so_goes_on_where_more_memory_is_given),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
