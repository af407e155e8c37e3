/* For the insert stream's tests: a server of their own, which keeps the protocol's rules as strictly as Reverb does, and a client. */
#ifndef RV_CLIENT_INSERT_STREAM_TESTING_H
#define RV_CLIENT_INSERT_STREAM_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/lock.h"
#include "client/insert_stream.h"
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
  rv_code second_code; /* the second call is ended with it as it begins; RV_OK: it is not */
  rv_code later_code;  /* every call but the first is, */
  int64_t later_ns;    /* and lasts so long by the bench's clock */
  _Atomic int64_t skipped_ns;
  size_t confirm_until; /* items of the call below this place are confirmed, newest of each request first */
  bool only_first;      /* those hold for the first call: the others do not end, and confirm all */
  uint64_t refuse;      /* key that is refused */
  bool garbage;         /* answers that are no message */
  /* what happened */
  unsigned calls;
  char writer[8][64], state[8][64];
  seen_item items[MAX_SEEN];
  size_t num_items, num_chunks, num_requests;
  char broken_rule[128];
  bool packs;                    /* it takes packs, and says so */
  size_t max_message;            /* what it takes in one message, and says; 0: much, and it says nothing */
  size_t num_packed, num_placed; /* of those, items whose rows were named by their place */
} fake_server;

typedef struct fake_call {
  fake_server *server;
  unsigned number;
  uint64_t chunks[MAX_CHUNKS];
  size_t num_chunks, num_items;
} fake_call;

static inline bool holds(const fake_call *call, uint64_t key)
{
  for (size_t i = 0; i < call->num_chunks; i++)
    if (call->chunks[i] == key) return true;
  return false;
}

static inline uint64_t chunk_key(rv_span chunk)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, chunk);
  while (rv_reader_next(&reader, &field))
    if (field.number == 1) return field.value;
  return 0;
}

static inline void break_rule(fake_server *server, const char *rule)
{
  snprintf(server->broken_rule, sizeof server->broken_rule, "%s", rule);
}

static inline void keep(fake_call *call, const rv_insert_request *request)
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

static inline void take_chunks(fake_call *call, const rv_insert_request *request)
{
  for (size_t i = 0; i < request->num_chunks; i++) {
    uint64_t key = chunk_key(request->chunks[i]);
    if (holds(call, key)) break_rule(call->server, "a chunk was sent twice on one connection");
    if (call->num_chunks < MAX_CHUNKS) call->chunks[call->num_chunks++] = key;
    call->server->num_chunks++;
  }
}

static inline bool is_free(const fake_call *call)
{
  return call->server->only_first && call->number > 0;
}

static inline void take_item(fake_call *call, const rv_wire_item *item, rv_insert_response *response)
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
  } else if (call->num_items < (is_free(call) ? SIZE_MAX : server->confirm_until)) {
    memmove(response->keys + 1, response->keys, response->num_keys * sizeof *response->keys); /* in no particular order */
    response->keys[0] = item->key;
    response->num_keys++;
  }
  call->num_items++;
}

static inline void answer(rv_call *net_call, fake_server *server, const rv_insert_response *response)
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
static inline rv_code take_row(void *net_call, const uint8_t *place, size_t before, size_t rows, size_t behind, rv_buf **out,
                               rv_error *err)
{
  return rv_call_take_place(net_call, place, before, rows, behind, out, err);
}

static inline void fetch_row(void *net_call, const uint8_t *place, size_t rows)
{
  rv_call_fetch_place(net_call, place, rows);
}

/* Every byte of their rows is the lowest of the key. */
static inline void check_packed_rows(fake_server *server, rv_chunk *chunk)
{
  size_t stride, size = rv_chunk_get_column(chunk, 0)->row_bytes;
  const uint8_t *row = rv_chunk_rows_in_place(chunk, 0, 0, 1, &stride);
  for (size_t i = 0; row != NULL && i < size; i++)
    if (row[i] != (uint8_t)rv_chunk_get_meta(chunk)->key) break_rule(server, "a packed chunk has other rows than its own");
  if (row == NULL) break_rule(server, "a packed chunk has no rows");
}

static inline void take_pack(fake_call *call, rv_call *net_call, rv_span message, rv_insert_response *response)
{
  const rv_placed_rows rows = {.take = take_row, .fetch = fetch_row, .context = net_call};
  rv_insert_pack pack;
  rv_error err;
  if (!call->server->packs) break_rule(call->server, "a pack that was not asked for");
  if (rv_insert_pack_begin(&pack, message, false, &rows, &err) != RV_OK) fail_msg("%s", err.message);
  call->server->num_packed += pack.count;
  if (pack.num_chunks > 0 && pack.placed[0].row_bytes > 0) call->server->num_placed += pack.count;
  while (pack.next < pack.count) {
    if (rv_insert_pack_next(&pack, &err) != RV_OK) fail_msg("%s", err.message);
    size_t before = call->num_chunks;
    for (size_t i = 0; i < pack.num_chunks; i++) {
      check_packed_rows(call->server, pack.chunks[i]);
      call->chunks[call->num_chunks++] = rv_chunk_get_meta(pack.chunks[i])->key;
    }
    take_item(call, &pack.item, response);
    call->num_chunks = before;
  }
  rv_insert_pack_fini(&pack);
}

static inline void on_message(rv_call *net_call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
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
  server->num_requests++;
  if (request.num_chunks + request.num_items == 0 && request.pack.data == NULL) break_rule(server, "an empty request");
  if (request.pack.data != NULL) take_pack(call, net_call, request.pack, &response);
  take_chunks(call, &request);
  for (size_t i = 0; i < request.num_items; i++) {
    rv_wire_item item;
    assert_int_equal(rv_wire_item_parse(request.items[i], &item, NULL), RV_OK);
    take_item(call, &item, &response);
    rv_wire_item_fini(&item);
  }
  if (request.num_items > 0 || request.pack.data != NULL) keep(call, &request);
  bool end = server->end_after > 0 && !is_free(call) && call->num_items >= server->end_after;
  rv_code code = server->end_code;
  rv_cond_broadcast(&server->changed);
  rv_mutex_unlock(&server->mutex);
  rv_insert_request_fini(&request);
  if (response.num_keys + response.num_failures > 0) answer(net_call, server, &response);
  if (end) rv_call_finish(net_call, code, "as the test wanted");
}

static inline void on_close(rv_call *net_call, void *user, rv_code code, const char *message)
{
  (void)net_call, (void)code, (void)message;
  free(user);
}

static inline void note(char to[64], const char *value)
{
  snprintf(to, 64, "%s", value == NULL ? "" : value);
}

static inline bool on_call(void *context, rv_call *net_call, const char *path, const rv_call_events **events, void **user)
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
  if (server->max_message > 0) {
    char most[24];
    snprintf(most, sizeof most, "%zu", server->max_message);
    rv_call_set_header(net_call, "reverie-max-message", most);
  }
  rv_code code = call->number == 0                                  ? RV_OK
                 : call->number == 1 && server->later_code == RV_OK ? server->second_code
                                                                    : server->later_code;
  if (call->number > 0) atomic_fetch_add(&server->skipped_ns, server->later_ns);
  rv_mutex_unlock(&server->mutex);
  *events = &call_events;
  *user = call;
  if (code != RV_OK) rv_call_finish(net_call, code, "as the test wanted");
  return true;
}

static inline int64_t read_clock(void *context)
{
  fake_server *server = context;
  rv_env env;
  rv_env_fill(&env, NULL);
  return rv_monotonic_ns(&env) + atomic_load(&server->skipped_ns);
}

/* ---- the client ---- */

typedef struct test_bench {
  fake_server server;
  rv_env env;
  rv_loop *loop;
  rv_channel *channel;
  rv_insert_stream *stream;
} test_bench;

/* shares: both ends have memory in common, and the server gives blocks. */
static inline void set_up_with(test_bench *bench, const char *state_header, bool shares, size_t max_message)
{
  rv_error err = {.message = ""};
  memset(bench, 0, sizeof *bench);
  rv_env_fill(&bench->env, NULL);
  bench->env.monotonic_ns = read_clock;
  bench->env.context = &bench->server;
  fake_server *server = &bench->server;
  rv_mutex_init(&server->mutex, RV_RANK_WAIT, "fake server");
  rv_cond_init(&server->changed);
  server->state_header = state_header;
  server->confirm_until = SIZE_MAX;
  server->max_message = max_message;
  const char *any = "127.0.0.1:0";
  rv_grpc_server_config config = {.env = &bench->env,
                                  .addresses = &any,
                                  .num_addresses = 1,
                                  .io_threads = 1,
                                  .max_message_bytes = max_message > 0 ? max_message : (size_t)1 << 28,
                                  .max_connections = 100,
                                  .max_streams_per_connection = 100,
                                  .shares_memory = shares,
                                  .lends_memory = shares,
                                  .on_call = on_call,
                                  .context = server};
  if (rv_grpc_server_new(&config, &server->grpc, &err) != RV_OK) fail_msg("%s", err.message);
  snprintf(server->address, sizeof server->address, "127.0.0.1:%u", (unsigned)rv_grpc_server_port(server->grpc, 0));
  assert_int_equal(rv_loop_new(&bench->env, "test", &bench->loop, NULL), RV_OK);
  rv_channel_config channel = {.env = &bench->env,
                               .loop = bench->loop,
                               .address = server->address,
                               .max_message_bytes = (size_t)1 << 28,
                               .shares_memory = shares};
  assert_int_equal(rv_channel_new(&channel, &bench->channel, NULL), RV_OK);
  rv_insert_stream_config stream = {.env = &bench->env, .loop = bench->loop, .channel = bench->channel};
  assert_int_equal(rv_insert_stream_new(&stream, &bench->stream, NULL), RV_OK);
}

static inline void set_up_sharing(test_bench *bench, const char *state_header, bool shares)
{
  set_up_with(bench, state_header, shares, 0);
}

static inline void set_up(test_bench *bench, const char *state_header)
{
  set_up_sharing(bench, state_header, false);
}

static inline void shut_stream(void *stream)
{
  rv_insert_stream_shut(stream);
}

/* All its items are complete when this returns. */
static inline void close_stream(test_bench *bench)
{
  rv_loop_call(bench->loop, shut_stream, bench->stream);
}

static inline void tear_down(test_bench *bench)
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

static inline void on_complete(rv_stream_item *stream_item, rv_code code, const char *message)
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

static inline rv_stream_chunk *make_chunk(uint64_t key, size_t padding)
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
  assert_int_equal(rv_stream_chunk_new(key, &pieces, 1, NULL, &chunk, NULL), RV_OK);
  rv_pieces_fini(&pieces);
  return chunk;
}

static inline void make_item(test_bench *bench, test_item *item, uint64_t key, rv_stream_chunk **chunks, uint32_t num_chunks)
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
}

static inline void add(test_bench *bench, test_item *item, uint64_t key, rv_stream_chunk **chunks, uint32_t num_chunks)
{
  make_item(bench, item, key, chunks, num_chunks);
  rv_insert_stream_add_one(bench->stream, &item->item);
}

static inline void wait_done(test_item *item)
{
  fake_server *server = &item->bench->server;
  rv_mutex_lock(&server->mutex);
  while (!item->done)
    if (!rv_cond_wait_for(&server->changed, &server->mutex, INT64_C(30000000000))) break;
  bool done = item->done;
  rv_mutex_unlock(&server->mutex);
  assert_true(done);
}

static inline void wait_seen(test_bench *bench, size_t num_items)
{
  fake_server *server = &bench->server;
  rv_mutex_lock(&server->mutex);
  while (server->num_items < num_items)
    if (!rv_cond_wait_for(&server->changed, &server->mutex, INT64_C(30000000000))) break;
  size_t seen = server->num_items;
  rv_mutex_unlock(&server->mutex);
  assert_true(seen >= num_items);
}

static inline void drop_chunk(rv_stream_chunk *chunk)
{
  rv_stream_chunk_unpin(chunk);
  rv_stream_chunk_unref(chunk);
}

#endif
