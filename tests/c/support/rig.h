/* A real server on loopback, and raw gRPC calls to it: what the tests of the server stand on.
 *
 * A stream keeps what it receives until the test asks for it; asking waits, and fails the test after half a minute. */
#ifndef RV_TEST_RIG_H
#define RV_TEST_RIG_H

#include "held_port.h"
#include "net/net.h"
#include "reverie/reverie.h"
#include "store/store.h"
#include "wire/messages.h"
#include "wire/unary.h"

/* ---- server ---- */

typedef struct test_rig {
  rv_store *store;
  rv_server *server;
  char address[64];
  held_port held;
} test_rig;

rv_table_config rig_table(const char *name); /* uniform, fifo, 1000 items, min size 1 */
void rig_start(test_rig *rig, const rv_table_config *tables, size_t num_tables);
/* With other server settings than the defaults; `config` without store, addresses and size. */
void rig_start_with(test_rig *rig, const rv_table_config *tables, size_t num_tables, rv_server_config config);
/* With a store that may take so many bytes. */
void rig_start_limited(test_rig *rig, const rv_table_config *tables, size_t num_tables, size_t memory_limit);
void rig_stop(test_rig *rig);
rv_table *rig_find(test_rig *rig, const char *name);
int64_t rig_size(test_rig *rig, const char *table); /* items now */
/* Waits until the table says so many callers wait. */
void rig_wait_for_waiting(test_rig *rig, const char *table, int64_t inserts, int64_t samples);

/* ---- client ---- */

typedef struct test_peer {
  rv_loop *loop;
  rv_channel *channel;
} test_peer;
void peer_open(test_peer *peer, const char *address);
void peer_close(test_peer *peer);

typedef struct test_stream test_stream;
test_stream *stream_open(test_peer *peer, const char *path, const rv_metadata *metadata, size_t num_metadata);
test_stream *stream_open_deadline(test_peer *peer, const char *path, int64_t timeout_ns);
void stream_send(test_stream *stream, rv_writer_buf *owned_body);
void stream_send_bytes(test_stream *stream, const void *data, size_t size);
void stream_half_close(test_stream *stream);
void stream_cancel(test_stream *stream);
/* While paused the stream takes no messages. */
void stream_pause(test_stream *stream, bool pause);
/* The next message, or NULL when the call is over. The caller unrefs it. */
rv_buf *stream_next(test_stream *stream);
/* The same, without waiting. */
rv_buf *stream_poll(test_stream *stream);
/* Waits for the end, dropping messages. `message` may be NULL. */
rv_code stream_end(test_stream *stream, char message[RV_ERROR_MESSAGE_MAX]);
bool stream_is_over(test_stream *stream);
/* After its end: when the server wants it to be tried again, in milliseconds; "": it did not say. */
const char *stream_pushback(const test_stream *stream);
/* Waits for the server's headers; NULL: no such header. */
const char *stream_header(test_stream *stream, const char *name);
void stream_free(test_stream *stream); /* cancels it */
/* Keys of samples that came and were not read yet: a list that read_samples uses. */
typedef struct sampled_keys {
  uint64_t *keys;
  size_t count, next;
  uint64_t current; /* of the sample whose end has not come yet */
} sampled_keys;
sampled_keys *stream_sampled(test_stream *stream);

/* One unary call; the response is the caller's to unref, NULL unless RV_OK. */
rv_code unary(test_peer *peer, const char *path, rv_writer_buf *owned_body, rv_buf **response,
              char message[RV_ERROR_MESSAGE_MAX]);
/* What the server says of its memory. */
rv_memory_info peer_memory(test_peer *peer);

#define INSERT "/deepmind.reverb.ReverbService/InsertStream"
#define SAMPLE "/deepmind.reverb.ReverbService/SampleStream"
#define MUTATE "/deepmind.reverb.ReverbService/MutatePriorities"
#define RESET "/deepmind.reverb.ReverbService/Reset"
#define SERVER_INFO "/deepmind.reverb.ReverbService/ServerInfo"
#define CHECKPOINT "/deepmind.reverb.ReverbService/Checkpoint"
#define INITIALIZE "/deepmind.reverb.ReverbService/InitializeConnection"
#define HEALTH_CHECK "/grpc.health.v1.Health/Check"
#define HEALTH_WATCH "/grpc.health.v1.Health/Watch"

/* ---- messages ---- */

/* A ChunkData field of an InsertStreamRequest: one int32 column of `rows` rows with `width` elements each (0: scalars), counting
 * from `first`. */
void put_chunk(rv_writer_buf *out, uint64_t key, int32_t first, int64_t rows, int64_t width);

typedef struct item_options {
  const char *table;
  double priority;
  uint64_t chunk, sequence;
  int32_t offset, length, index;
  bool squeeze, no_columns, no_slices;
} item_options;
/* A PrioritizedItem field: one column of one slice. length 0: 1. */
void put_item(rv_writer_buf *out, uint64_t key, item_options options);
void put_keep(rv_writer_buf *out, const uint64_t *keys, size_t n);
/* The usual request: chunk `key` of one scalar row with the value `key`, and item `key` over it. */
void insert_one(test_stream *stream, const char *table, uint64_t key, double priority);
void insert_numbered(test_stream *stream, const char *table, uint64_t key, uint64_t sequence);

/* Reads confirmations until `n` keys have come, or the call ends; returns how many. */
size_t read_keys(test_stream *stream, uint64_t *keys, size_t n);
/* All n of them; order is not promised, so they are sorted. */
void expect_keys(test_stream *stream, uint64_t *keys, size_t n);
/* Reads messages until one has a failure; keys before it are ignored. */
rv_code expect_failure(test_stream *stream, uint64_t *key, char message[RV_ERROR_MESSAGE_MAX]);

void ask_samples(test_stream *stream, const char *table, int64_t n, int64_t timeout_ms);
/* Reads responses until `n` samples are complete; writes their keys. What a response holds beyond them is kept for the next time.
 * Fewer when the call ends; returns how many. */
size_t read_samples(test_stream *stream, uint64_t *keys, size_t n);

#endif
