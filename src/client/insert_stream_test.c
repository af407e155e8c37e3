/* The insert stream against a server of the test's own, which keeps the protocol's rules as strictly as Reverb does. */
#include "client/insert_stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/lock.h"
#include "wire/insert_pack.h"

enum { MAX_SEEN = 4096, MAX_CHUNKS = 1024 };

/* ---- the server ---- */

typedef struct seen_item {
  uint64_t key, sequence;
  unsigned call;
} seen_item;

typedef struct fake_server {
  rv_grpc_server *grpc;
  char address[32];
  rv_mutex mutex;
  rv_cond changed;
  /* set by the test before the call they hold for */
  const char *state_header; /* NULL: a plain Reverb server */
  size_t end_after;         /* items, then the call ends; 0: never */
  rv_code end_code;
  size_t confirm_until; /* items of the call below this place are confirmed, newest of each request first */
  uint64_t refuse;      /* key that is refused */
  bool garbage;         /* answers that are no message */
  /* what happened */
  unsigned calls;
  char writer[8][64], state[8][64];
  seen_item items[MAX_SEEN];
  size_t num_items, num_chunks;
  char broken_rule[128];
  bool packs; /* it takes packs, and says so */
  size_t num_packed;
} fake_server;

typedef struct fake_call {
  fake_server *server;
  unsigned number;
  uint64_t chunks[MAX_CHUNKS];
  size_t num_chunks, num_items;
} fake_call;

static bool holds(const fake_call *call, uint64_t key)
{
  for (size_t i = 0; i < call->num_chunks; i++)
    if (call->chunks[i] == key) return true;
  return false;
}

static uint64_t chunk_key(rv_span chunk)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, chunk);
  while (rv_reader_next(&reader, &field))
    if (field.number == 1) return field.value;
  return 0;
}

static void break_rule(fake_server *server, const char *rule)
{
  snprintf(server->broken_rule, sizeof server->broken_rule, "%s", rule);
}

static void keep(fake_call *call, const rv_insert_request *request)
{
  size_t kept = 0;
  for (size_t i = 0; i < call->num_chunks; i++) {
    bool wanted = false;
    for (size_t j = 0; j < request->num_keep_chunk_keys; j++) wanted = wanted || request->keep_chunk_keys[j] == call->chunks[i];
    if (wanted) call->chunks[kept++] = call->chunks[i];
  }
  call->num_chunks = kept;
  if (kept != request->num_keep_chunk_keys) break_rule(call->server, "keep_chunk_keys names what is not there");
}

static void take_chunks(fake_call *call, const rv_insert_request *request)
{
  for (size_t i = 0; i < request->num_chunks; i++) {
    uint64_t key = chunk_key(request->chunks[i]);
    if (holds(call, key)) break_rule(call->server, "a chunk was sent twice on one connection");
    if (call->num_chunks < MAX_CHUNKS) call->chunks[call->num_chunks++] = key;
    call->server->num_chunks++;
  }
}

static void take_item(fake_call *call, const rv_wire_item *item, rv_insert_response *response)
{
  fake_server *server = call->server;
  for (uint32_t i = 0; i < item->total_slices; i++)
    if (!holds(call, item->slices[i].chunk_key)) break_rule(server, "an item needs a chunk that is not there");
  if (server->num_items < MAX_SEEN)
    server->items[server->num_items++] = (seen_item){.key = item->key, .sequence = item->sequence, .call = call->number};
  if (item->key == server->refuse) {
    static const char why[] = "refused";
    response->failures[response->num_failures++] =
        (rv_insert_failure){.key = item->key, .code = RV_INVALID_ARGUMENT, .message = {(const uint8_t *)why, sizeof why - 1}};
  } else if (call->num_items < server->confirm_until) {
    memmove(response->keys + 1, response->keys, response->num_keys * sizeof *response->keys); /* in no particular order */
    response->keys[0] = item->key;
    response->num_keys++;
  }
  call->num_items++;
}

static void answer(rv_call *net_call, fake_server *server, const rv_insert_response *response)
{
  rv_writer_buf body;
  rv_pieces pieces;
  rv_writer_buf_init(&body);
  rv_pieces_init(&pieces);
  rv_insert_response_serialize(&body, response);
  assert_int_equal(
      rv_pieces_copy(&pieces, server->garbage ? (const void *)"\xff\xff\xff" : body.data, server->garbage ? 3 : body.size),
      RV_OK);
  rv_call_send(net_call, &pieces);
  rv_pieces_fini(&pieces);
  rv_writer_buf_fini(&body);
}

/* Of its own chunks nobody else hears. */
static void take_pack(fake_call *call, rv_span message, rv_insert_response *response)
{
  rv_insert_pack pack;
  rv_error err;
  if (!call->server->packs) break_rule(call->server, "a pack that was not asked for");
  if (rv_insert_pack_begin(&pack, message, false, &err) != RV_OK) fail_msg("%s", err.message);
  call->server->num_packed += pack.count;
  while (pack.next < pack.count) {
    if (rv_insert_pack_next(&pack, &err) != RV_OK) fail_msg("%s", err.message);
    size_t before = call->num_chunks;
    for (size_t i = 0; i < pack.num_chunks; i++) {
      rv_encoded tensor;
      uint64_t key = rv_chunk_get_meta(pack.chunks[i])->key;
      if (!rv_chunk_encoded(pack.chunks[i], 0, &tensor) || tensor.content[2] != (uint8_t)key)
        break_rule(call->server, "a packed chunk has other rows than its own");
      call->chunks[call->num_chunks++] = key;
    }
    take_item(call, &pack.item, response);
    call->num_chunks = before;
  }
  rv_insert_pack_fini(&pack);
}

static void on_message(rv_call *net_call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  (void)buf;
  fake_call *call = user;
  fake_server *server = call->server;
  rv_insert_request request;
  assert_int_equal(rv_insert_request_parse((rv_span){data, size}, &request, NULL), RV_OK);
  uint64_t keys[MAX_SEEN];
  rv_insert_failure failures[8];
  rv_insert_response response = {.keys = keys, .failures = failures};
  rv_mutex_lock(&server->mutex);
  if (request.num_chunks + request.num_items == 0 && request.pack.data == NULL) break_rule(server, "an empty request");
  if (request.pack.data != NULL) take_pack(call, request.pack, &response);
  take_chunks(call, &request);
  for (size_t i = 0; i < request.num_items; i++) {
    rv_wire_item item;
    assert_int_equal(rv_wire_item_parse(request.items[i], &item, NULL), RV_OK);
    take_item(call, &item, &response);
    rv_wire_item_fini(&item);
  }
  if (request.num_items > 0 || request.pack.data != NULL) keep(call, &request);
  bool end = server->end_after > 0 && call->num_items >= server->end_after;
  rv_code code = server->end_code;
  rv_cond_broadcast(&server->changed);
  rv_mutex_unlock(&server->mutex);
  rv_insert_request_fini(&request);
  if (response.num_keys + response.num_failures > 0) answer(net_call, server, &response);
  if (end) rv_call_finish(net_call, code, "as the test wanted");
}

static void on_close(rv_call *net_call, void *user, rv_code code, const char *message)
{
  (void)net_call, (void)code, (void)message;
  free(user);
}

static void note(char to[64], const char *value)
{
  snprintf(to, 64, "%s", value == NULL ? "" : value);
}

static bool on_call(void *context, rv_call *net_call, const char *path, const rv_call_events **events, void **user)
{
  static const rv_call_events call_events = {.on_message = on_message, .on_close = on_close};
  fake_server *server = context;
  assert_string_equal(path, "/deepmind.reverb.ReverbService/InsertStream");
  fake_call *call = calloc(1, sizeof *call);
  assert_non_null(call);
  rv_mutex_lock(&server->mutex);
  call->server = server;
  call->number = server->calls++;
  note(server->writer[call->number % 8], rv_call_metadata(net_call, "reverie-writer"));
  note(server->state[call->number % 8], rv_call_metadata(net_call, "reverie-server-state"));
  if (server->state_header != NULL) rv_call_set_header(net_call, "reverie-server-state", server->state_header);
  if (server->packs) rv_call_set_header(net_call, "reverie-packs", "1");
  rv_mutex_unlock(&server->mutex);
  *events = &call_events;
  *user = call;
  return true;
}

/* ---- the client ---- */

typedef struct test_bench {
  fake_server server;
  rv_env env;
  rv_loop *loop;
  rv_channel *channel;
  rv_insert_stream *stream;
} test_bench;

static void set_up(test_bench *bench, const char *state_header)
{
  rv_error err = {.message = ""};
  memset(bench, 0, sizeof *bench);
  rv_env_fill(&bench->env, NULL);
  fake_server *server = &bench->server;
  rv_mutex_init(&server->mutex, RV_RANK_WAIT, "fake server");
  rv_cond_init(&server->changed);
  server->state_header = state_header;
  server->confirm_until = SIZE_MAX;
  const char *any = "127.0.0.1:0";
  rv_grpc_server_config config = {.env = &bench->env,
                                  .addresses = &any,
                                  .num_addresses = 1,
                                  .io_threads = 1,
                                  .max_message_bytes = (size_t)1 << 28,
                                  .max_connections = 100,
                                  .max_streams_per_connection = 100,
                                  .on_call = on_call,
                                  .context = server};
  if (rv_grpc_server_new(&config, &server->grpc, &err) != RV_OK) fail_msg("%s", err.message);
  snprintf(server->address, sizeof server->address, "127.0.0.1:%u", (unsigned)rv_grpc_server_port(server->grpc, 0));
  assert_int_equal(rv_loop_new(&bench->env, "test", &bench->loop, NULL), RV_OK);
  rv_channel_config channel = {
      .env = &bench->env, .loop = bench->loop, .address = server->address, .max_message_bytes = (size_t)1 << 28};
  assert_int_equal(rv_channel_new(&channel, &bench->channel, NULL), RV_OK);
  rv_insert_stream_config stream = {.env = &bench->env, .loop = bench->loop, .channel = bench->channel};
  assert_int_equal(rv_insert_stream_new(&stream, &bench->stream, NULL), RV_OK);
}

static void tear_down(test_bench *bench)
{
  rv_insert_stream_free(bench->stream);
  rv_channel_free(bench->channel);
  rv_loop_free(bench->loop);
  rv_grpc_server_stop(bench->server.grpc, 0);
  rv_grpc_server_free(bench->server.grpc);
  assert_string_equal(bench->server.broken_rule, "");
  rv_cond_fini(&bench->server.changed);
  rv_mutex_fini(&bench->server.mutex);
}

typedef struct test_item {
  rv_stream_item item;
  test_bench *bench;
  bool done;
  rv_code code;
  char message[128];
} test_item;

static void on_complete(rv_stream_item *stream_item, rv_code code, const char *message)
{
  test_item *item = RV_CONTAINER(stream_item, test_item, item);
  rv_mutex_lock(&item->bench->server.mutex);
  assert_false(item->done);
  item->done = true;
  item->code = code;
  snprintf(item->message, sizeof item->message, "%s", message);
  rv_cond_broadcast(&item->bench->server.changed);
  rv_mutex_unlock(&item->bench->server.mutex);
}

static rv_stream_chunk *make_chunk(uint64_t key, size_t padding)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  rv_put_varint(&body, 1, key);
  uint8_t *zeros = calloc(1, padding + 1);
  rv_put_bytes(&body, 100, zeros, padding);
  free(zeros);
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  assert_int_equal(rv_pieces_copy(&pieces, body.data, body.size), RV_OK);
  rv_writer_buf_fini(&body);
  rv_stream_chunk *chunk = NULL;
  assert_int_equal(rv_stream_chunk_new(key, &pieces, NULL, &chunk, NULL), RV_OK);
  rv_pieces_fini(&pieces);
  return chunk;
}

static void add(test_bench *bench, test_item *item, uint64_t key, rv_stream_chunk **chunks, uint32_t num_chunks)
{
  rv_wire_slice slices[64];
  for (uint32_t i = 0; i < num_chunks; i++) slices[i] = (rv_wire_slice){.chunk_key = chunks[i]->key, .length = 1};
  bool squeeze = false;
  rv_wire_item wire = {.key = key,
                       .table = {(const uint8_t *)"table", 5},
                       .priority = 1,
                       .sequence = 777, /* not the caller's business */
                       .slices = slices,
                       .num_slices = &num_chunks,
                       .squeeze = &squeeze,
                       .num_columns = 1,
                       .total_slices = num_chunks};
  *item = (test_item){.bench = bench};
  assert_int_equal(rv_stream_item_init(&item->item, &wire, chunks, num_chunks, NULL), RV_OK);
  item->item.complete = on_complete;
  rv_insert_stream_add_one(bench->stream, &item->item);
}

static void wait_done(test_item *item)
{
  fake_server *server = &item->bench->server;
  rv_mutex_lock(&server->mutex);
  while (!item->done)
    if (!rv_cond_wait_for(&server->changed, &server->mutex, INT64_C(30000000000))) break;
  bool done = item->done;
  rv_mutex_unlock(&server->mutex);
  assert_true(done);
}

static void wait_seen(test_bench *bench, size_t num_items)
{
  fake_server *server = &bench->server;
  rv_mutex_lock(&server->mutex);
  while (server->num_items < num_items)
    if (!rv_cond_wait_for(&server->changed, &server->mutex, INT64_C(30000000000))) break;
  size_t seen = server->num_items;
  rv_mutex_unlock(&server->mutex);
  assert_true(seen >= num_items);
}

static void drop_chunk(rv_stream_chunk *chunk)
{
  rv_stream_chunk_unpin(chunk);
  rv_stream_chunk_unref(chunk);
}

/* ---- tests ---- */

static void a_chunk_is_sent_once_and_kept_while_it_is_pinned(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, "s1");
  rv_stream_chunk *window[8] = {NULL};
  static test_item items[300];
  for (uint64_t i = 0; i < 300; i++) { /* each item needs the last eight chunks */
    if (window[i % 8] != NULL) drop_chunk(window[i % 8]);
    window[i % 8] = make_chunk(1000 + i, i % 50 == 0 ? 300000 : 10);
    add(&bench, &items[i], 1 + i, window, i < 8 ? (uint32_t)i + 1 : 8);
  }
  for (int i = 0; i < 300; i++) {
    wait_done(&items[i]);
    assert_int_equal(items[i].code, RV_OK);
    rv_stream_item_fini(&items[i].item);
  }
  assert_int_equal(bench.server.num_chunks, 300);
  for (size_t i = 0; i < 300; i++) assert_int_equal(bench.server.items[i].sequence, i + 1);
  for (int i = 0; i < 8; i++) drop_chunk(window[i]);
  tear_down(&bench);
}

static void sent_again_after(rv_code code)
{
  test_bench bench;
  set_up(&bench, "s1");
  bench.server.end_after = 5;
  bench.server.end_code = code;
  bench.server.confirm_until = 2;
  rv_stream_chunk *chunk = make_chunk(9, 10);
  test_item items[5];
  for (uint64_t i = 0; i < 5; i++) add(&bench, &items[i], 100 + i, &chunk, 1);
  drop_chunk(chunk); /* the items keep it */
  wait_seen(&bench, 5);
  rv_mutex_lock(&bench.server.mutex);
  bench.server.end_after = 0;
  bench.server.confirm_until = SIZE_MAX;
  rv_mutex_unlock(&bench.server.mutex);
  for (int i = 0; i < 5; i++) {
    wait_done(&items[i]);
    if (items[i].code != RV_OK) fail_msg("%d %s", items[i].code, items[i].message);
    rv_stream_item_fini(&items[i].item);
  }
  const fake_server *server = &bench.server;
  assert_true(server->calls >= 2);
  assert_string_equal(server->writer[0], server->writer[1]);
  assert_int_equal(strlen(server->writer[0]), 32);
  assert_string_equal(server->state[0], "");
  assert_string_equal(server->state[1], "s1");
  for (size_t i = 5; i < server->num_items; i++) {
    assert_int_equal(server->items[i].sequence, server->items[i].key - 99);
    if (i > 5 && server->items[i].call == server->items[i - 1].call)
      assert_true(server->items[i].sequence > server->items[i - 1].sequence);
  }
  tear_down(&bench);
}

static void what_was_not_confirmed_is_sent_again_in_order_under_the_same_numbers(void **state)
{
  (void)state;
  sent_again_after(RV_UNAVAILABLE);
}

/* A call that was held up on a connection that is lost may reach the server after the one that followed it, and take its place. */
static void a_stream_that_an_older_one_was_preferred_to_goes_on(void **state)
{
  (void)state;
  sent_again_after(RV_ABORTED);
}

static void a_plain_server_is_not_waited_for(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, NULL);
  bench.server.confirm_until = 0;
  rv_stream_chunk *chunk = make_chunk(9, 10);
  test_item items[2];
  add(&bench, &items[0], 1, &chunk, 1);
  wait_seen(&bench, 1); /* without headers or any answer */
  add(&bench, &items[1], 2, &chunk, 1);
  wait_seen(&bench, 2);
  rv_insert_stream_free(bench.stream);
  assert_true(items[0].done && items[1].done);
  assert_int_equal(items[0].code, RV_CANCELLED);
  for (int i = 0; i < 2; i++) rv_stream_item_fini(&items[i].item);
  drop_chunk(chunk);
  bench.stream = NULL;
  tear_down(&bench);
}

static void items_that_are_left_to_be_found_are_found_whatever_the_server_does(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, "s1");
  bench.server.confirm_until = 0; /* an answer is due all the time, and never comes */
  rv_stream_chunk *chunk = make_chunk(9, 10);
  static test_item items[200];
  for (uint64_t i = 0; i < 200; i++) {
    add(&bench, &items[i], 1 + i, &chunk, 1);
    if (i % 3 == 0) wait_seen(&bench, i + 1); /* nothing else wakes the loop meanwhile */
    if (i % 7 == 0) rv_insert_stream_hurry(bench.stream, 0);
  }
  wait_seen(&bench, 200);
  drop_chunk(chunk);
  rv_insert_stream_free(bench.stream);
  for (int i = 0; i < 200; i++) {
    assert_int_equal(items[i].code, RV_CANCELLED);
    rv_stream_item_fini(&items[i].item);
  }
  bench.stream = NULL;
  tear_down(&bench);
}

/* More than any window, in items that one after another leave the inbox only because the loop has promised to look. */
static void items_that_fill_every_buffer_all_arrive(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, "s1");
  static test_item items[300];
  for (uint64_t i = 0; i < 300; i++) {
    rv_stream_chunk *chunk = make_chunk(1000 + i, 40000);
    add(&bench, &items[i], 1 + i, &chunk, 1);
    drop_chunk(chunk);
  }
  for (int i = 0; i < 300; i++) {
    wait_done(&items[i]);
    assert_int_equal(items[i].code, RV_OK);
    rv_stream_item_fini(&items[i].item);
  }
  for (size_t i = 0; i < 300; i++) assert_int_equal(bench.server.items[i].sequence, i + 1);
  tear_down(&bench);
}

static void a_status_that_is_final_fails_what_was_sent_and_the_rest_goes_on_under_a_new_name(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, NULL);
  bench.server.confirm_until = 0;
  rv_stream_chunk *chunk = make_chunk(9, 10);
  test_item items[3];
  add(&bench, &items[0], 1, &chunk, 1);
  wait_seen(&bench, 1);
  rv_mutex_lock(&bench.server.mutex);
  bench.server.end_after = 2;
  bench.server.end_code = RV_NOT_FOUND;
  rv_mutex_unlock(&bench.server.mutex);
  add(&bench, &items[1], 2, &chunk, 1);
  wait_done(&items[0]);
  wait_done(&items[1]);
  assert_int_equal(items[0].code, RV_NOT_FOUND);
  assert_string_equal(items[1].message, "as the test wanted");
  rv_mutex_lock(&bench.server.mutex);
  bench.server.end_after = 0;
  bench.server.confirm_until = SIZE_MAX;
  rv_mutex_unlock(&bench.server.mutex);
  add(&bench, &items[2], 3, &chunk, 1);
  wait_done(&items[2]);
  assert_int_equal(items[2].code, RV_OK);
  assert_int_equal(bench.server.items[2].sequence, 1);
  assert_string_not_equal(bench.server.writer[0], bench.server.writer[1]);
  for (int i = 0; i < 3; i++) rv_stream_item_fini(&items[i].item);
  drop_chunk(chunk);
  tear_down(&bench);
}

static void a_refused_item_fails_alone(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, "s1");
  bench.server.refuse = 2;
  rv_stream_chunk *chunk = make_chunk(9, 10);
  test_item items[3];
  for (uint64_t i = 0; i < 3; i++) add(&bench, &items[i], 1 + i, &chunk, 1);
  for (int i = 0; i < 3; i++) wait_done(&items[i]);
  assert_int_equal(items[0].code, RV_OK);
  assert_int_equal(items[1].code, RV_INVALID_ARGUMENT);
  assert_string_equal(items[1].message, "refused");
  assert_int_equal(items[2].code, RV_OK);
  for (int i = 0; i < 3; i++) rv_stream_item_fini(&items[i].item);
  drop_chunk(chunk);
  tear_down(&bench);
}

static void an_answer_that_cannot_be_read_is_an_error(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, "s1");
  bench.server.garbage = true;
  rv_stream_chunk *chunk = make_chunk(9, 10);
  test_item item;
  add(&bench, &item, 1, &chunk, 1);
  wait_done(&item);
  assert_int_equal(item.code, RV_INTERNAL);
  rv_stream_item_fini(&item.item);
  drop_chunk(chunk);
  tear_down(&bench);
}

typedef struct test_withdrawal {
  rv_insert_stream *stream;
  test_item *item;
  bool taken;
} test_withdrawal;

static void withdraw_on_loop(void *argument)
{
  test_withdrawal *withdrawal = argument;
  withdrawal->taken = rv_insert_stream_withdraw(withdrawal->stream, &withdrawal->item->item);
}

static void an_item_that_was_not_sent_can_be_taken_back(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, "s1");
  rv_grpc_server_stop(bench.server.grpc, 0);
  rv_stream_chunk *chunk = make_chunk(9, 10);
  test_item item;
  add(&bench, &item, 1, &chunk, 1);
  test_withdrawal withdrawal = {.stream = bench.stream, .item = &item};
  rv_loop_call(bench.loop, withdraw_on_loop, &withdrawal);
  rv_insert_stream_status status;
  rv_insert_stream_get_status(bench.stream, &status);
  if (withdrawal.taken) {
    assert_int_equal(status.unsent + status.unconfirmed, 0);
    assert_false(item.done);
  } else {
    assert_int_equal(status.unsent + status.unconfirmed, 1); /* it was in a call that waits for the server */
    rv_insert_stream_free(bench.stream);
    bench.stream = NULL;
    assert_true(item.done);
  }
  rv_stream_item_fini(&item.item);
  drop_chunk(chunk);
  tear_down(&bench);
}

/* ---- packs ---- */

enum { ALIKE = 60 };

typedef struct alike {
  test_bench *bench;
  test_item items[ALIKE];
  uint64_t first_key;
} alike;

/* One row of one byte, which is the lowest of the key. */
static rv_stream_chunk *make_own_chunk(uint64_t key)
{
  static const uint8_t before[] = {0x2A, 0x0F, 0x0A, 0x0D, 0x08, 0x04, 0x12, 0x04,
                                   0x12, 0x02, 0x08, 0x01, 0x22, 0x03, 0x01, 0x00};
  static const uint8_t behind[] = {0x30, 0x01, 0x38, 0x01};
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  rv_put_varint(&body, 1, key);
  rv_put_bytes(&body, 2, "\x10\x07", 2);
  uint32_t own = (uint32_t)body.size;
  rv_put_raw(&body, before, sizeof before);
  rv_put_raw(&body, &(uint8_t){(uint8_t)key}, 1);
  rv_put_raw(&body, behind, sizeof behind);
  rv_stream_chunk *chunk = NULL;
  assert_int_equal(rv_stream_chunk_new_flat(key, body.size, NULL, &chunk, NULL), RV_OK);
  memcpy(chunk->flat, body.data, body.size);
  rv_writer_buf_fini(&body);
  chunk->form = 1;
  chunk->own_size = own;
  chunk->rows_at = own + (uint32_t)sizeof before;
  chunk->row_bytes = 1;
  return chunk;
}

/* On the loop's thread, so that nothing is sent before all are there. Every tenth item is of another form, and the last one's chunk is
 * still wanted by others. */
static void add_alike(void *context)
{
  alike *all = context;
  for (uint64_t i = 0; i < ALIKE; i++) {
    rv_stream_chunk *chunk = make_own_chunk(1000 + all->first_key + i);
    add(all->bench, &all->items[i], all->first_key + i, &chunk, 1);
    all->items[i].item.form = i % 10 == 9 ? 2 : 1;
    all->items[i].item.priority = 1;
    if (i + 1 < ALIKE)
      drop_chunk(chunk);
    else
      rv_stream_chunk_unref(chunk);
  }
}

static void send_alike(test_bench *bench, alike *all, uint64_t first_key)
{
  *all = (alike){.bench = bench, .first_key = first_key};
  rv_loop_call(bench->loop, add_alike, all);
  for (int i = 0; i < ALIKE; i++) {
    wait_done(&all->items[i]);
    if (all->items[i].code != RV_OK) fail_msg("%d %s", all->items[i].code, all->items[i].message);
    rv_stream_item_fini(&all->items[i].item);
  }
}

static void items_that_look_alike_come_in_packs_where_the_server_takes_them(void **state)
{
  (void)state;
  static alike all;
  for (int packs = 0; packs < 2; packs++) {
    test_bench bench;
    set_up(&bench, "s1");
    bench.server.packs = packs == 1;
    rv_stream_chunk *chunk = make_chunk(9, 10);
    test_item first;
    add(&bench, &first, 1, &chunk, 1); /* the server is known by its first answer */
    wait_done(&first);
    send_alike(&bench, &all, 100);
    assert_int_equal(bench.server.num_packed, packs == 1 ? ALIKE / 10 * 9 : 0);
    assert_int_equal(bench.server.num_items, 1 + ALIKE);
    for (size_t i = 0; i < 1 + ALIKE; i++) { /* in their order, each with its number */
      assert_int_equal(bench.server.items[i].sequence, i + 1);
      assert_int_equal(bench.server.items[i].key, i == 0 ? 1 : 99 + i);
    }
    rv_stream_item_fini(&first.item);
    drop_chunk(chunk);
    tear_down(&bench);
  }
}

static void items_of_a_pack_that_were_not_confirmed_are_sent_again_under_the_same_numbers(void **state)
{
  (void)state;
  static alike all;
  test_bench bench;
  set_up(&bench, "s1");
  bench.server.packs = true;
  bench.server.end_after = 21; /* each call ends when one item more has come than it confirms */
  bench.server.end_code = RV_UNAVAILABLE;
  bench.server.confirm_until = 20;
  rv_stream_chunk *chunk = make_chunk(9, 10);
  test_item first;
  add(&bench, &first, 1, &chunk, 1);
  wait_done(&first);
  send_alike(&bench, &all, 100);
  const fake_server *server = &bench.server;
  assert_true(server->calls >= 2 && server->num_packed > 0);
  for (size_t i = 0; i < server->num_items; i++)
    assert_int_equal(server->items[i].sequence, server->items[i].key == 1 ? 1 : server->items[i].key - 98);
  rv_stream_item_fini(&first.item);
  drop_chunk(chunk);
  tear_down(&bench);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_chunk_is_sent_once_and_kept_while_it_is_pinned),
      cmocka_unit_test(what_was_not_confirmed_is_sent_again_in_order_under_the_same_numbers),
      cmocka_unit_test(a_stream_that_an_older_one_was_preferred_to_goes_on),
      cmocka_unit_test(a_plain_server_is_not_waited_for),
      cmocka_unit_test(items_that_are_left_to_be_found_are_found_whatever_the_server_does),
      cmocka_unit_test(items_that_fill_every_buffer_all_arrive),
      cmocka_unit_test(a_status_that_is_final_fails_what_was_sent_and_the_rest_goes_on_under_a_new_name),
      cmocka_unit_test(a_refused_item_fails_alone),
      cmocka_unit_test(an_answer_that_cannot_be_read_is_an_error),
      cmocka_unit_test(an_item_that_was_not_sent_can_be_taken_back),
      cmocka_unit_test(items_that_look_alike_come_in_packs_where_the_server_takes_them),
      cmocka_unit_test(items_of_a_pack_that_were_not_confirmed_are_sent_again_under_the_same_numbers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
