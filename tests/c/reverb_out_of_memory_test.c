/* Reverb's own calls, without anything of Reverie's in them, while each allocation of the server's fails in turn (the client has memory):
 * a call ends with what says so, or is answered as if nothing had happened; what was confirmed is there, what was not confirmed can be
 * sent again over another call, and is there once. */
#include <unistd.h>

#include "support/lives.h"

#include "support/failing_libraries.h"
#include "support/rig.h"

enum { ITEMS = 6, MOST = 16, TRIES = 3 };

typedef struct world {
  char root[64];
  rv_checkpointer *checkpointer;
  test_rig rig;
  test_peer peer;
} world;

static void spare_this_thread(void *unused)
{
  (void)unused;
  spared = true;
}

static void open_world(world *w)
{
  const rv_table_config tables[] = {place_queue_like("t", 100), rig_table("u")};
  strcpy(w->root, "/tmp/rv-reverb.XXXXXX");
  assert_non_null(mkdtemp(w->root));
  const rv_checkpointer_config config = {.size = sizeof config, .path = w->root};
  OK(rv_checkpointer_new(&config, &w->checkpointer, error));
  rig_start_with(&w->rig, tables, 2, (rv_server_config){.checkpointer = w->checkpointer});
  peer_open(&w->peer, w->rig.address);
  rv_loop_call(w->peer.loop, spare_this_thread, NULL);
}

static void close_world(world *w)
{
  char command[100];
  peer_close(&w->peer);
  rig_stop(&w->rig);
  rv_checkpointer_unref(w->checkpointer);
  snprintf(command, sizeof command, "rm -rf %s", w->root);
  assert_int_equal(system(command), 0);
}

static void for_want_of_memory(rv_code code, const char *message)
{
  if (!found_no_memory(code)) fail_msg("%s: %s", rv_code_name(code), message);
}

static void end_for_want_of_memory(test_stream *call)
{
  char message[RV_ERROR_MESSAGE_MAX];
  rv_code code = stream_end(call, message);
  for_want_of_memory(code, message);
  stream_free(call);
}

/* ---- items ---- */

/* Item `key` over a chunk of its own; the last three share another, which the server keeps for one that comes in the next message. */
static void send_items(test_stream *call, const uint64_t *keys, size_t n)
{
  rv_writer_buf body;
  for (size_t i = 0; i + 3 < n; i++) insert_one(call, "t", keys[i], 1);
  if (n < 3) return;
  rv_writer_buf_init(&body);
  put_chunk(&body, 1000, 1000, 3, 0);
  put_item(&body, keys[n - 3], (item_options){.table = "t", .priority = 1, .chunk = 1000, .length = 2});
  put_item(&body, keys[n - 2], (item_options){.table = "t", .priority = 1, .chunk = 1000, .offset = 1, .length = 2});
  put_keep(&body, (const uint64_t[]){1000}, 1);
  stream_send(call, &body);
  rv_writer_buf_init(&body);
  put_item(&body, keys[n - 1], (item_options){.table = "t", .priority = 1, .chunk = 1000, .length = 3});
  put_keep(&body, NULL, 0);
  stream_send(call, &body);
}

/* As Reverb's writers do: what is not confirmed when a call ends goes over the next, all of it. */
static void insert_items(world *w, uint64_t first)
{
  uint64_t keys[ITEMS], confirmed[MOST];
  for (uint64_t i = 0; i < ITEMS; i++) keys[i] = first + i;
  for (int tries = 0;; tries++) {
    assert_true(tries < TRIES);
    test_stream *call = stream_open(&w->peer, INSERT, NULL, 0);
    send_items(call, keys, ITEMS);
    size_t n = read_keys(call, confirmed, ITEMS);
    for (size_t i = 0; i < n; i++) {
      rv_draw draw;
      OK(rv_table_get(rig_find(&w->rig, "t"), confirmed[i], &draw, error));
      rv_draw_release(&draw);
    }
    if (n < ITEMS) {
      end_for_want_of_memory(call);
      continue;
    }
    char message[RV_ERROR_MESSAGE_MAX];
    stream_half_close(call);
    rv_code code = stream_end(call, message);
    if (code != RV_OK) for_want_of_memory(code, message);
    stream_free(call);
    return;
  }
}

/* ---- samples ---- */

static void read_all(world *w, test_stream *call, size_t n)
{
  uint64_t keys[MOST];
  for (int tries = 0;; tries++) {
    assert_true(tries < TRIES && n <= MOST);
    size_t got = read_samples(call, keys, n);
    for (size_t i = 0; i < got; i++) assert_true(keys[i] >= 1 && keys[i] <= 2 * ITEMS);
    if (got == n) break;
    end_for_want_of_memory(call);
    call = stream_open(&w->peer, SAMPLE, NULL, 0);
    ask_samples(call, "t", (int64_t)n, -1);
  }
  stream_free(call);
}

/* ---- unary calls ---- */

static void ask(world *w, const char *path, void (*put)(rv_writer_buf *body))
{
  char message[RV_ERROR_MESSAGE_MAX];
  for (int tries = 0;; tries++) {
    rv_writer_buf body;
    rv_buf *response;
    assert_true(tries < TRIES);
    rv_writer_buf_init(&body);
    if (put != NULL) put(&body);
    rv_code code = unary(&w->peer, path, &body, &response, message);
    if (code == RV_OK) {
      assert_non_null(response);
      rv_buf_unref(response);
      return;
    }
    for_want_of_memory(code, message);
  }
}

static void put_updates(rv_writer_buf *body)
{
  const rv_key_priority updates[] = {{1, 5}, {2, 6}};
  const uint64_t gone[] = {3};
  rv_mutate_request_serialize(body, "t", updates, 2, gone, 1);
}

static void put_reset(rv_writer_buf *body)
{
  rv_reset_request_serialize(body, "t");
}

static void put_connection(rv_writer_buf *body)
{
  rv_put_varint(body, 1, (uint64_t)getpid());
  rv_put_string(body, 2, "t");
}

/* ---- a life ---- */

static void live(world *w)
{
  test_stream *waits = stream_open(&w->peer, SAMPLE, NULL, 0);
  ask_samples(waits, "t", 4, -1); /* there are none yet */
  insert_items(w, 1);
  assert_int_equal(rig_size(&w->rig, "t"), ITEMS);
  read_all(w, waits, 4);
  insert_items(w, 1); /* all of them again, as priorities */
  assert_int_equal(rig_size(&w->rig, "t"), ITEMS);
  insert_items(w, 1 + ITEMS);
  assert_int_equal(rig_size(&w->rig, "t"), 2 * ITEMS);
  test_stream *more = stream_open(&w->peer, SAMPLE, NULL, 0);
  ask_samples(more, "t", MOST, -1);
  read_all(w, more, MOST);
  ask(w, INITIALIZE, put_connection);
  ask(w, MUTATE, put_updates);
  assert_int_equal(rig_size(&w->rig, "t"), 2 * ITEMS - 1);
  ask(w, SERVER_INFO, NULL);
  ask(w, HEALTH_CHECK, NULL);
  ask(w, CHECKPOINT, NULL);
  ask(w, RESET, put_reset);
  assert_int_equal(rig_size(&w->rig, "t"), 0);
}

static void check_checkpoint(world *w)
{
  const rv_table_config tables[] = {place_queue_like("t", 100), rig_table("u")};
  const rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = 2};
  rv_table_info info;
  rv_store *store = NULL;
  OK(rv_checkpointer_restore(w->checkpointer, &config, NULL, &store, NULL, error));
  OK(rv_table_get_info(rv_store_table(store, 0), &info, error));
  assert_int_equal(info.current_size, 2 * ITEMS - 1);
  assert_true(info.max_priority == 6);
  rv_table_info_fini(&info);
  rv_store_unref(store);
}

static void what_reverbs_clients_ask_of_a_server_that_finds_no_memory_is_done_whole_or_not_at_all(void **state)
{
  (void)state;
  remote = spared = true;
  lives_begin(10);
  do {
    world w;
    open_world(&w);
    lives_fail();
    live(&w);
    lives_end();
    check_checkpoint(&w);
    close_world(&w);
  } while (lives_go_on());
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(what_reverbs_clients_ask_of_a_server_that_finds_no_memory_is_done_whole_or_not_at_all,
                                lives_tell),
  };
  fail_libraries();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
