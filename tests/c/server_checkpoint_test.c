/* Checkpoints that a server saves: asked for by calls, and by itself. */
#include <dirent.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/env.h"
#include "persist/journal.h"
#include "support/rig.h"

static test_rig rig;
static test_peer peer;
static char root[64];
static rv_checkpointer *checkpointer;

static void open_in(const char *pattern, int64_t every_ms, int64_t every_inserts)
{
  rv_error err;
  rv_table_config tables[] = {rig_table("t"), rig_table("p")};
  snprintf(root, sizeof root, "%s", pattern);
  assert_non_null(mkdtemp(root));
  rv_checkpointer_config config = {.size = sizeof config, .path = root};
  assert_int_equal(rv_checkpointer_new(&config, &checkpointer, &err), RV_OK);
  rig_start_with(&rig, tables, 2,
                 (rv_server_config){
                     .checkpointer = checkpointer, .checkpoint_every_ms = every_ms, .checkpoint_every_inserts = every_inserts});
  peer_open(&peer, rig.address);
}

static void open_with(int64_t every_ms, int64_t every_inserts)
{
  open_in("/tmp/rv_server.XXXXXX", every_ms, every_inserts);
}

static int set_up(void **state)
{
  (void)state;
  open_with(0, 0);
  return 0;
}

static void clean(void)
{
  char command[100];
  rv_checkpointer_unref(checkpointer);
  snprintf(command, sizeof command, "rm -rf %s", root);
  assert_int_equal(system(command), 0);
}

static int tear_down(void **state)
{
  (void)state;
  peer_close(&peer);
  rig_stop(&rig);
  clean();
  return 0;
}

static void fill(const char *table, uint64_t first, uint64_t n)
{
  test_stream *call = stream_open(&peer, INSERT, NULL, 0);
  uint64_t keys[64];
  for (uint64_t key = first; key < first + n; key++) insert_one(call, table, key, (double)key);
  expect_keys(call, keys, n);
  stream_free(call);
}

static rv_code ask(char path[400], char text[RV_ERROR_MESSAGE_MAX])
{
  rv_writer_buf body;
  rv_buf *response;
  rv_span answer;
  rv_writer_buf_init(&body);
  rv_code code = unary(&peer, CHECKPOINT, &body, &response, text);
  if (code != RV_OK) return code;
  assert_int_equal(rv_checkpoint_response_parse((rv_span){response->data, response->size}, &answer, NULL), RV_OK);
  snprintf(path, 400, "%.*s", (int)answer.size, (const char *)answer.data);
  rv_buf_unref(response);
  return RV_OK;
}

static int64_t restored_size(size_t table)
{
  rv_error err;
  rv_store *store = NULL;
  rv_table_info info;
  rv_table_config tables[] = {rig_table("t"), rig_table("p")};
  rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = 2};
  assert_int_equal(rv_checkpointer_restore(checkpointer, &config, NULL, &store, NULL, &err), RV_OK);
  assert_int_equal(rv_table_get_info(rv_store_table(store, table), &info, &err), RV_OK);
  int64_t size = info.current_size;
  rv_table_info_fini(&info);
  rv_store_unref(store);
  return size;
}

static void a_call_saves_and_answers_with_the_absolute_path(void **state)
{
  (void)state;
  char path[400], done[420], text[RV_ERROR_MESSAGE_MAX];
  fill("t", 1, 20);
  fill("p", 100, 3);
  assert_int_equal(ask(path, text), RV_OK);
  assert_true(strncmp(path, root, strlen(root)) == 0);
  snprintf(done, sizeof done, "%s/DONE", path);
  assert_int_equal(access(done, F_OK), 0);
  assert_int_equal(restored_size(0), 20);
  assert_int_equal(restored_size(1), 3);
}

/* A path has any bytes, and the answer's text only characters: other clients would refuse it. */
static void a_path_that_is_no_text_is_used_as_it_is_and_answered_as_text(void **state)
{
  (void)state;
  char path[400], text[RV_ERROR_MESSAGE_MAX];
  open_in("/tmp/rv_server_\xFF_XXXXXX", 0, 0);
  fill("t", 1, 20);
  assert_int_equal(ask(path, text), RV_OK);
  assert_true(strncmp(path, "/tmp/rv_server_?_", strlen("/tmp/rv_server_?_")) == 0);
  assert_int_equal(restored_size(0), 20);
}

static void calls_at_the_same_time_are_all_answered(void **state)
{
  (void)state;
  enum { CALLS = 20 };
  test_stream *calls[CALLS];
  fill("t", 1, 50);
  for (int i = 0; i < CALLS; i++) {
    calls[i] = stream_open(&peer, CHECKPOINT, NULL, 0);
    stream_send_bytes(calls[i], "", 0);
    stream_half_close(calls[i]);
  }
  for (int i = 0; i < CALLS; i++) {
    char text[RV_ERROR_MESSAGE_MAX];
    rv_code code = stream_end(calls[i], text);
    if (code != RV_OK) fail_msg("call %d: %s", i, text);
    stream_free(calls[i]);
  }
  assert_int_equal(restored_size(0), 50);
}

static void what_fails_is_told_and_the_server_goes_on(void **state)
{
  (void)state;
  char path[400], text[RV_ERROR_MESSAGE_MAX];
  rmdir(root);
  FILE *file = fopen(root, "w"); /* in the root's place */
  fclose(file);
  assert_int_not_equal(ask(path, text), RV_OK);
  assert_non_null(strstr(text, root));
  unlink(root);
  assert_int_equal(ask(path, text), RV_OK);
}

static void callers_that_go_and_servers_that_stop_leave_nothing_behind(void **state)
{
  (void)state;
  for (int round = 0; round < 5; round++) {
    test_stream *calls[8];
    open_with(0, 0);
    fill("t", 1, 60);
    for (int i = 0; i < 8; i++) {
      calls[i] = stream_open(&peer, CHECKPOINT, NULL, 0);
      stream_send_bytes(calls[i], "", 0);
      if (i % 2 == 0) stream_cancel(calls[i]);
    }
    rig_stop(&rig);
    for (int i = 0; i < 8; i++) {
      stream_end(calls[i], NULL);
      stream_free(calls[i]);
    }
    peer_close(&peer);
    DIR *dir = opendir(root);
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL)
      if (strncmp(entry->d_name, ".reverie", 8) == 0) fail_msg("%s was left behind", entry->d_name);
    closedir(dir);
    clean();
  }
}

/* The checkpoint is there at once or a little later: waited for without an end, which the test's own time limit is. */
static void wait_for_size(int64_t size)
{
  while (restored_size(0) != size) sched_yield();
}

static void a_server_saves_by_time(void **state)
{
  (void)state;
  open_with(20, 0);
  fill("t", 1, 10);
  wait_for_size(10);
  fill("t", 20, 10);
  wait_for_size(20);
}

static void a_server_saves_by_inserts(void **state)
{
  (void)state;
  open_with(0, 30);
  fill("t", 1, 29);
  assert_int_equal(restored_size(0), 0);
  fill("p", 1, 1);
  wait_for_size(29);
}

static void times_without_a_checkpointer_are_refused(void **state)
{
  (void)state;
  const char *address = "127.0.0.1:0";
  rv_table_config table = rig_table("t");
  rv_store_config store_config = {.size = sizeof store_config, .tables = &table, .num_tables = 1};
  rv_store *store;
  rv_server *server;
  rv_error err;
  assert_int_equal(rv_store_new(&store_config, &store, &err), RV_OK);
  rv_server_config config = {
      .size = sizeof config, .store = store, .addresses = &address, .num_addresses = 1, .checkpoint_every_ms = 5};
  assert_int_equal(rv_server_new(&config, &server, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "no checkpointer"));
  config.checkpoint_every_ms = -1;
  assert_int_equal(rv_server_new(&config, &server, &err), RV_INVALID_ARGUMENT);
  rv_store_unref(store);
}

static rv_checkpointer *checkpointer_in(const char *name)
{
  rv_error err;
  char path[100];
  rv_checkpointer *made = NULL;
  snprintf(path, sizeof path, "%s/%s", root, name);
  const rv_checkpointer_config config = {.size = sizeof config, .path = path};
  assert_int_equal(rv_checkpointer_new(&config, &made, &err), RV_OK);
  return made;
}

static void a_server_takes_its_stores_journal_and_only_the_checkpoints_that_it_goes_on_from(void **state)
{
  (void)state;
  rv_error err;
  rv_store *store;
  rv_journal *journal, *taken;
  rv_server *server;
  char path[100];
  const char *address = "127.0.0.1:0";
  const rv_table_config table = rig_table("t");
  const rv_store_config store_config = {.size = sizeof store_config, .tables = &table, .num_tables = 1};
  strcpy(root, "/tmp/rv_server.XXXXXX");
  assert_non_null(mkdtemp(root));
  checkpointer = checkpointer_in("checkpoints");
  rv_checkpointer *other = checkpointer_in("other");
  snprintf(path, sizeof path, "%s/journal", root);
  const rv_journal_config journaled = {.size = sizeof journaled, .path = path, .mode = RV_JOURNAL_ALWAYS};
  assert_int_equal(rv_journal_recover(&journaled, checkpointer, &store_config, NULL, &store, &journal, &err), RV_OK);
  rv_server_config config = {.size = sizeof config,
                             .store = store,
                             .addresses = &address,
                             .num_addresses = 1,
                             .checkpointer = other,
                             .journal = journal};
  assert_int_equal(rv_server_new(&config, &server, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "give the checkpointer that it was recovered with"));
  config.checkpointer = checkpointer;
  config.journal = NULL;
  assert_int_equal(rv_server_new(&config, &server, &err), RV_OK);
  rv_journal_unref(journal);
  taken = rv_journal_of(store);
  assert_ptr_equal(taken, journal); /* the server has it */
  rv_journal_unref(taken);
  rv_server_free(server);
  rv_store_unref(store);
  rv_checkpointer_unref(other);
  clean();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(a_call_saves_and_answers_with_the_absolute_path),
      cmocka_unit_test_teardown(a_path_that_is_no_text_is_used_as_it_is_and_answered_as_text, tear_down),
      TEST(calls_at_the_same_time_are_all_answered),
      TEST(what_fails_is_told_and_the_server_goes_on),
      cmocka_unit_test(callers_that_go_and_servers_that_stop_leave_nothing_behind),
      cmocka_unit_test_teardown(a_server_saves_by_time, tear_down),
      cmocka_unit_test_teardown(a_server_saves_by_inserts, tear_down),
      cmocka_unit_test(times_without_a_checkpointer_are_refused),
      cmocka_unit_test(a_server_takes_its_stores_journal_and_only_the_checkpoints_that_it_goes_on_from),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
