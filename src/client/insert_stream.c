/* The stream itself: hand-over, requests, confirmations, what happens when a call ends. */
#include "client/insert_stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/lock.h"
#include "base/map.h"
#include "client/stream_slots.h"

/* A request is closed once it has so many bytes: less after a call has ended, until confirmations come, or a
 * line that is cut all the time would never let a whole request through. No more are made while so many bytes wait for the
 * socket. */
#define REQUEST_BYTES_MAX ((size_t)256 << 10)
#define REQUEST_BYTES_MIN ((size_t)2 << 10)
#define QUEUED_BYTES ((size_t)1 << 20)
/* Pieces of a chunk up to this size are copied into the request: cheaper than a reference each. */
#define COPY_BYTES ((size_t)4096)

/* So far a confirmation's item is looked for from the oldest on. */
enum { LOOK_AHEAD = 8 };

#define BACKOFF_MIN_NS INT64_C(10000000)
#define BACKOFF_MAX_NS INT64_C(1000000000)

#define PATH "/deepmind.reverb.ReverbService/InsertStream"
#define SERVER_STATE "reverie-server-state"
#define WRITER_ID "reverie-writer"

struct rv_insert_stream {
  const rv_env *env;
  rv_loop *loop;
  rv_channel *channel;

  rv_mutex mutex; /* RV_RANK_CLIENT: the inbox, and what get_status shows */
  rv_link inbox;
  size_t inbox_count;
  bool posted;
  rv_task task;
  rv_insert_stream_status status; /* without `state` */
  char last_error[128];           /* why the last call ended; "" while one is open */

  /* the loop's from here on */
  bool begun, closing;
  rv_call *call;
  uint64_t connection; /* number of the present call; 0: none yet */
  rv_link queue;       /* not sent on this connection, in order */
  rv_link sent;        /* not confirmed, in order */
  size_t queue_count, sent_count;
  uint64_t bytes_sent;
  rv_stream_slots slots; /* by key, items that were sent at least once, as far as they are indexed */
  rv_link held;          /* chunks that the server holds for this call */
  uint64_t next_sequence;
  char writer_id[33];
  char server_state[128]; /* "": not a Reverie server, or not known yet */
  rv_timer retry;
  int64_t backoff_ns;
  size_t request_bytes; /* bound of a request, see REQUEST_BYTES_MAX */
  rv_code broken;       /* why this side ended the call; RV_OK: it did not */
  char broken_message[128];
  rv_writer_buf scratch;
  uint64_t *keep;
  size_t keep_capacity;
};

static void pump(rv_insert_stream *stream);

/* ---- chunks and items ---- */

static void flatten(rv_stream_chunk *chunk, const rv_pieces *pieces)
{
  for (size_t i = 0; i < pieces->count; i++) {
    memcpy(chunk->flat + chunk->flat_size, pieces->piece[i].data, pieces->piece[i].size);
    chunk->flat_size += pieces->piece[i].size;
  }
}

rv_code rv_stream_chunk_new(uint64_t key, rv_pieces *owned_data, rv_stream_chunk **out, rv_error *err)
{
  size_t flat =
      owned_data->bytes <= COPY_BYTES ? owned_data->bytes : 0; /* small ones must not hold a buffer with room for more */
  rv_stream_chunk *chunk = malloc(sizeof *chunk + flat);
  if (chunk != NULL) {
    atomic_init(&chunk->refs, 1);
    atomic_init(&chunk->pins, 1);
    chunk->key = key;
    chunk->sent_on = 0;
    chunk->flat_size = 0;
    rv_list_init(&chunk->link);
    rv_pieces_init(&chunk->data);
    if (flat > 0) {
      flatten(chunk, owned_data);
    } else {
      chunk->data = *owned_data;
      rv_pieces_init(owned_data);
    }
    *out = chunk;
  }
  rv_pieces_fini(owned_data);
  return chunk != NULL ? RV_OK : rv_fail_memory(err, sizeof *chunk + flat);
}

rv_stream_chunk *rv_stream_chunk_ref(rv_stream_chunk *chunk)
{
  atomic_fetch_add_explicit(&chunk->refs, 1, memory_order_relaxed);
  return chunk;
}

void rv_stream_chunk_unref(rv_stream_chunk *chunk)
{
  if (atomic_fetch_sub_explicit(&chunk->refs, 1, memory_order_acq_rel) != 1) return;
  rv_pieces_fini(&chunk->data);
  free(chunk);
}

void rv_stream_chunk_unpin(rv_stream_chunk *chunk)
{
  atomic_fetch_sub_explicit(&chunk->pins, 1, memory_order_release);
}

rv_code rv_stream_item_init(rv_stream_item *item, const rv_wire_item *wire, rv_stream_chunk *const *chunks, uint32_t num_chunks,
                            rv_error *err)
{
  memset(item, 0, sizeof *item);
  rv_list_init(&item->link);
  rv_wire_item plain = *wire;
  plain.sequence = 0;
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  rv_wire_item_serialize(&body, &plain);
  size_t bytes = sizeof(rv_stream_chunk *) * num_chunks;
  item->chunks = num_chunks > 0 ? malloc(bytes) : NULL;
  if (body.failed || (num_chunks > 0 && item->chunks == NULL)) {
    rv_writer_buf_fini(&body);
    free(item->chunks);
    item->chunks = NULL;
    return rv_fail_memory(err, bytes + sizeof(rv_wire_slice) * wire->total_slices);
  }
  item->key = wire->key;
  item->body = body.data;
  item->body_size = body.size;
  item->num_chunks = num_chunks;
  for (uint32_t i = 0; i < num_chunks; i++) item->chunks[i] = rv_stream_chunk_ref(chunks[i]);
  return RV_OK;
}

void rv_stream_item_fini(rv_stream_item *item)
{
  for (uint32_t i = 0; i < item->num_chunks; i++) rv_stream_chunk_unref(item->chunks[i]);
  free(item->chunks);
  free(item->body);
  item->chunks = NULL;
  item->body = NULL;
  item->num_chunks = 0;
}

static void pin_chunks(const rv_stream_item *item)
{
  for (uint32_t i = 0; i < item->num_chunks; i++) {
    atomic_fetch_add_explicit(&item->chunks[i]->pins, 1, memory_order_relaxed);
  }
}

static void unpin_chunks(const rv_stream_item *item)
{
  for (uint32_t i = 0; i < item->num_chunks; i++) rv_stream_chunk_unpin(item->chunks[i]);
}

/* ---- requests ---- */

static void drop_held(rv_insert_stream *stream)
{
  rv_link *link;
  while ((link = rv_list_pop_front(&stream->held)) != NULL) {
    rv_stream_chunk *chunk = RV_CONTAINER(link, rv_stream_chunk, link);
    chunk->sent_on = 0;
    rv_stream_chunk_unref(chunk);
  }
}

static rv_code put_chunk(rv_insert_stream *stream, rv_pieces *message, rv_stream_chunk *chunk)
{
  stream->scratch.size = 0;
  rv_put_header(&stream->scratch, 1, chunk->flat_size + chunk->data.bytes);
  if (stream->scratch.failed) return RV_RESOURCE_EXHAUSTED;
  rv_code code = rv_pieces_copy(message, stream->scratch.data, stream->scratch.size);
  if (code == RV_OK) code = rv_pieces_copy(message, chunk->flat, chunk->flat_size);
  for (size_t i = 0; i < chunk->data.count && code == RV_OK; i++) {
    const rv_piece *piece = &chunk->data.piece[i];
    code = piece->size <= COPY_BYTES || piece->owner == NULL ? rv_pieces_copy(message, piece->data, piece->size)
                                                             : rv_pieces_share(message, piece->owner, piece->data, piece->size);
  }
  if (code != RV_OK) return code;
  chunk->sent_on = stream->connection;
  rv_list_push_back(&stream->held, &rv_stream_chunk_ref(chunk)->link);
  return RV_OK;
}

static rv_code put_item(rv_insert_stream *stream, rv_pieces *message, rv_stream_item *item)
{
  if (item->sequence == 0) item->sequence = stream->next_sequence++;
  rv_writer_buf *scratch = &stream->scratch;
  scratch->size = 0;
  rv_put_varint(scratch, 1000, item->sequence);
  size_t number_size = scratch->size;
  scratch->size = 0;
  rv_put_header(scratch, 2, number_size + item->body_size);
  rv_put_varint(scratch, 1000, item->sequence);
  if (scratch->failed) return RV_RESOURCE_EXHAUSTED;
  rv_code code = rv_pieces_copy(message, scratch->data, scratch->size);
  return code == RV_OK ? rv_pieces_copy(message, item->body, item->body_size) : code;
}

/* The chunks that later items may refer to; the others are let go here as the server lets them go. */
static rv_code put_keep_keys(rv_insert_stream *stream, rv_pieces *message)
{
  size_t count = 0;
  for (rv_link *link = stream->held.next, *next; link != &stream->held; link = next) {
    next = link->next;
    rv_stream_chunk *chunk = RV_CONTAINER(link, rv_stream_chunk, link);
    if (atomic_load_explicit(&chunk->pins, memory_order_acquire) == 0) {
      rv_list_remove(link);
      chunk->sent_on = 0;
      rv_stream_chunk_unref(chunk);
      continue;
    }
    if (count == stream->keep_capacity) {
      size_t capacity = count == 0 ? 64 : 2 * count;
      uint64_t *keep = realloc(stream->keep, capacity * sizeof *keep);
      if (keep == NULL) return RV_RESOURCE_EXHAUSTED;
      stream->keep = keep;
      stream->keep_capacity = capacity;
    }
    stream->keep[count++] = chunk->key;
  }
  stream->scratch.size = 0;
  rv_put_packed(&stream->scratch, 3, stream->keep, count);
  if (stream->scratch.failed) return RV_RESOURCE_EXHAUSTED;
  return rv_pieces_copy(message, stream->scratch.data, stream->scratch.size);
}

/* Takes items from the queue until the request is full. Its first request may be chunks alone, when one item needs that many. */
static rv_code fill_request(rv_insert_stream *stream, rv_pieces *message)
{
  rv_code code = RV_OK;
  size_t num_items = 0;
  while (!rv_list_empty(&stream->queue) && message->bytes < stream->request_bytes) {
    rv_stream_item *item = RV_CONTAINER(stream->queue.next, rv_stream_item, link);
    uint32_t i = 0;
    for (; i < item->num_chunks && message->bytes < stream->request_bytes; i++) {
      if (item->chunks[i]->sent_on == stream->connection) continue;
      code = put_chunk(stream, message, item->chunks[i]);
      if (code != RV_OK) return code;
    }
    if (i < item->num_chunks) break;
    code = put_item(stream, message, item);
    if (code != RV_OK) return code;
    rv_list_remove(&item->link);
    rv_list_push_back(&stream->sent, &item->link);
    item->sent = true;
    stream->queue_count--;
    stream->sent_count++;
    unpin_chunks(item);
    num_items++;
  }
  return num_items > 0 ? put_keep_keys(stream, message) : RV_OK;
}

static void break_call(rv_insert_stream *stream, rv_code code, const char *message)
{
  if (stream->broken != RV_OK) return;
  stream->broken = code;
  snprintf(stream->broken_message, sizeof stream->broken_message, "%.120s", message);
  rv_call_cancel(stream->call);
}

static void send_requests(rv_insert_stream *stream)
{
  while (stream->broken == RV_OK && !rv_list_empty(&stream->queue) && rv_call_queued(stream->call) < QUEUED_BYTES) {
    rv_pieces message;
    rv_pieces_init(&message);
    if (fill_request(stream, &message) != RV_OK) {
      rv_pieces_fini(&message);
      stream->scratch.failed = false;
      break_call(stream, RV_UNAVAILABLE, "out of memory on this side");
      return;
    }
    stream->bytes_sent += message.bytes;
    rv_call_send(stream->call, &message);
    rv_pieces_fini(&message);
  }
}

/* ---- confirmations ---- */

static void finish(rv_stream_item *item, rv_code code, const char *message)
{
  rv_list_remove(&item->link);
  item->complete(item, code, message);
}

/* Items are indexed in the order in which they were sent, so those that are not stand at the end. */
static bool index_sent(rv_insert_stream *stream)
{
  rv_link *last = stream->sent.prev;
  while (last != &stream->sent && !RV_CONTAINER(last, rv_stream_item, link)->indexed) last = last->prev;
  for (rv_link *link = last->next; link != &stream->sent; link = link->next) {
    rv_stream_item *item = RV_CONTAINER(link, rv_stream_item, link);
    if (rv_stream_slots_put(&stream->slots, item) != RV_OK) return false;
    item->indexed = true;
  }
  return true;
}

static void forget_slot(rv_insert_stream *stream, rv_stream_item *item)
{
  if (item->indexed) rv_stream_slots_remove(&stream->slots, item);
  item->indexed = false;
}

/* Most confirmations come in the order of sending: only where they do not are items indexed by key. */
static rv_stream_item *find_sent(rv_insert_stream *stream, uint64_t key)
{
  int looked_at = 0;
  bool by_looking = false;
  for (rv_link *link = stream->sent.next; link != &stream->sent; link = link->next) {
    rv_stream_item *item = RV_CONTAINER(link, rv_stream_item, link);
    if (item->key == key) return item;
    if (++looked_at != LOOK_AHEAD || by_looking) continue;
    if (index_sent(stream)) {
      item = rv_stream_slots_find(&stream->slots, key);
      return item != NULL && item->sent ? item : NULL;
    }
    by_looking = true; /* no memory for an index */
  }
  return NULL;
}

static void finish_key(rv_insert_stream *stream, uint64_t key, rv_code code, const char *message)
{
  rv_stream_item *item = find_sent(stream, key);
  if (item == NULL) return;
  forget_slot(stream, item);
  stream->sent_count--;
  finish(item, code, message);
}

static void on_message(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  (void)call;
  (void)buf;
  rv_insert_stream *stream = user;
  if (stream->closing) return;
  rv_insert_response response;
  rv_error err;
  if (rv_insert_response_parse((rv_span){data, size}, &response, &err) != RV_OK) {
    break_call(stream, RV_INTERNAL, err.message);
    return;
  }
  stream->backoff_ns = BACKOFF_MIN_NS;
  if (stream->request_bytes < REQUEST_BYTES_MAX) stream->request_bytes *= 2;
  for (size_t i = 0; i < response.num_keys; i++) finish_key(stream, response.keys[i], RV_OK, "");
  for (size_t i = 0; i < response.num_failures; i++) {
    const rv_insert_failure *failure = &response.failures[i];
    rv_code code = failure->code == RV_OK ? RV_UNKNOWN : failure->code;
    char message[RV_ERROR_MESSAGE_MAX];
    size_t length = failure->message.size < sizeof message ? failure->message.size : sizeof message - 1;
    if (length > 0) memcpy(message, failure->message.data, length);
    message[length] = '\0';
    finish_key(stream, failure->key, code, message);
  }
  rv_insert_response_fini(&response);
  pump(stream);
}

/* ---- calls ---- */

static void take_writer_id(rv_insert_stream *stream)
{
  snprintf(stream->writer_id, sizeof stream->writer_id, "%016" PRIx64 "%016" PRIx64, rv_entropy64(stream->env),
           rv_entropy64(stream->env));
  stream->next_sequence = 1;
}

static void on_headers(rv_call *call, void *user)
{
  rv_insert_stream *stream = user;
  const char *state = rv_call_metadata(call, SERVER_STATE);
  snprintf(stream->server_state, sizeof stream->server_state, "%s", state == NULL ? "" : state);
  rv_mutex_lock(&stream->mutex);
  stream->status.peer = state == NULL ? RV_PEER_REVERB : RV_PEER_REVERIE;
  rv_mutex_unlock(&stream->mutex);
}

static void on_writable(rv_call *call, void *user)
{
  (void)call;
  pump(user);
}

static void destroy(rv_insert_stream *stream)
{
  rv_stream_slots_fini(&stream->slots);
  rv_writer_buf_fini(&stream->scratch);
  free(stream->keep);
  rv_mutex_fini(&stream->mutex);
  free(stream);
}

/* Puts what was sent and not confirmed before what was not sent. */
static void requeue(rv_insert_stream *stream)
{
  RV_LIST_EACH(link, &stream->sent)
  {
    rv_stream_item *item = RV_CONTAINER(link, rv_stream_item, link);
    item->sent = false;
    pin_chunks(item);
  }
  rv_list_splice(&stream->sent, &stream->queue);
  rv_list_splice(&stream->queue, &stream->sent);
  stream->queue_count += stream->sent_count;
  stream->sent_count = 0;
}

/* Every item that the server may have seen, and, so that something is given up each time, at least the first. */
static void fail_sent(rv_insert_stream *stream, rv_code code, const char *message)
{
  bool any = false;
  while (!rv_list_empty(&stream->queue)) {
    rv_stream_item *item = RV_CONTAINER(stream->queue.next, rv_stream_item, link);
    if (item->sequence == 0 && any) break;
    any = true;
    forget_slot(stream, item);
    unpin_chunks(item);
    stream->queue_count--;
    finish(item, code, message);
  }
}

static bool is_transient(rv_code code, const char *message)
{
  return code == RV_OK || code == RV_UNAVAILABLE || code == RV_CANCELLED ||
         (code == RV_UNKNOWN && strcmp(message, "Stream removed") == 0);
}

static void retry_later(rv_insert_stream *stream)
{
  stream->request_bytes = stream->request_bytes / 4 > REQUEST_BYTES_MIN ? stream->request_bytes / 4 : REQUEST_BYTES_MIN;
  int64_t jitter = (int64_t)(rv_entropy64(stream->env) % (uint64_t)(stream->backoff_ns / 4));
  rv_timer_start(&stream->retry, rv_monotonic_ns(stream->env) + stream->backoff_ns + jitter);
  stream->backoff_ns = 2 * stream->backoff_ns < BACKOFF_MAX_NS ? 2 * stream->backoff_ns : BACKOFF_MAX_NS;
}

static void on_close(rv_call *call, void *user, rv_code code, const char *message)
{
  (void)call;
  rv_insert_stream *stream = user;
  stream->call = NULL;
  if (stream->closing) {
    if (!stream->posted) destroy(stream);
    return;
  }
  if (message == NULL) message = "";
  if (stream->broken != RV_OK) {
    code = stream->broken;
    message = stream->broken_message;
  }
  drop_held(stream);
  requeue(stream);
  char why[128];
  snprintf(why, sizeof why, "%s%s%.90s", rv_code_name(code), message[0] == '\0' ? "" : ": ", message);
  rv_mutex_lock(&stream->mutex);
  memcpy(stream->last_error, why, sizeof why);
  rv_mutex_unlock(&stream->mutex);
  if (!is_transient(code, message)) {
    fail_sent(stream, code, message);
    take_writer_id(stream);
  }
  retry_later(stream);
}

static void on_retry(rv_timer *timer)
{
  pump(RV_CONTAINER(timer, rv_insert_stream, retry));
}

static void open_call(rv_insert_stream *stream)
{
  static const rv_call_events events = {
      .on_headers = on_headers, .on_message = on_message, .on_writable = on_writable, .on_close = on_close};
  /* When nothing is in doubt there is nothing for the server to remember: a new id cannot have expired. */
  bool in_doubt = RV_CONTAINER(stream->queue.next, rv_stream_item, link)->sequence != 0;
  if (stream->connection > 0 && !in_doubt) take_writer_id(stream);
  rv_metadata metadata[2] = {{WRITER_ID, stream->writer_id}, {SERVER_STATE, stream->server_state}};
  rv_call_config config = {.path = PATH,
                           .metadata = metadata,
                           .num_metadata = in_doubt && stream->server_state[0] != '\0' ? 2 : 1,
                           .deadline_ns = INT64_MAX,
                           .wait_for_ready = true};
  stream->connection++;
  stream->broken = RV_OK;
  stream->call = rv_channel_call(stream->channel, &config, &events, stream);
  if (stream->call == NULL) retry_later(stream); /* out of memory */
  rv_mutex_lock(&stream->mutex);
  stream->last_error[0] = '\0';
  if (stream->connection > 1) stream->status.reconnects++;
  rv_mutex_unlock(&stream->mutex);
}

static void pump(rv_insert_stream *stream)
{
  if (!rv_list_empty(&stream->queue)) {
    if (stream->call == NULL && stream->retry.heap_index == SIZE_MAX) open_call(stream);
    if (stream->call != NULL) send_requests(stream);
  }
  rv_mutex_lock(&stream->mutex);
  stream->status.unsent = stream->queue_count;
  stream->status.unconfirmed = stream->sent_count;
  stream->status.bytes_sent = stream->bytes_sent;
  rv_mutex_unlock(&stream->mutex);
}

/* ---- hand-over ---- */

static void drain_inbox(rv_insert_stream *stream)
{
  if (!stream->begun) {
    stream->begun = true;
    rv_timer_init(&stream->retry, stream->loop, on_retry);
  }
  rv_mutex_lock(&stream->mutex);
  rv_list_splice(&stream->queue, &stream->inbox);
  stream->queue_count += stream->inbox_count;
  stream->inbox_count = 0;
  rv_mutex_unlock(&stream->mutex);
}

static void run(rv_task *task)
{
  rv_insert_stream *stream = RV_CONTAINER(task, rv_insert_stream, task);
  rv_mutex_lock(&stream->mutex);
  stream->posted = false;
  rv_mutex_unlock(&stream->mutex);
  if (stream->closing) {
    if (stream->call == NULL) destroy(stream);
    return;
  }
  drain_inbox(stream);
  pump(stream);
}

void rv_insert_stream_add(rv_insert_stream *stream, rv_link *items)
{
  size_t count = 0;
  RV_LIST_EACH(link, items)
  {
    rv_stream_item *item = RV_CONTAINER(link, rv_stream_item, link);
    item->sequence = 0;
    item->sent = item->indexed = false;
    pin_chunks(item);
    count++;
  }
  if (count == 0) return;
  rv_mutex_lock(&stream->mutex);
  rv_list_splice(&stream->inbox, items);
  stream->inbox_count += count;
  bool post = !stream->posted;
  stream->posted = true;
  rv_mutex_unlock(&stream->mutex);
  if (post) rv_loop_post(stream->loop, &stream->task);
}

void rv_insert_stream_add_one(rv_insert_stream *stream, rv_stream_item *item)
{
  rv_link items;
  rv_list_init(&items);
  rv_list_push_back(&items, &item->link);
  rv_insert_stream_add(stream, &items);
}

bool rv_insert_stream_withdraw(rv_insert_stream *stream, rv_stream_item *item)
{
  drain_inbox(stream);
  if (item->sequence != 0) return false;
  rv_list_remove(&item->link);
  stream->queue_count--;
  unpin_chunks(item);
  return true;
}

/* ---- life ---- */

rv_code rv_insert_stream_new(const rv_insert_stream_config *config, rv_insert_stream **out, rv_error *err)
{
  rv_insert_stream *stream = calloc(1, sizeof *stream);
  if (stream == NULL) return rv_fail_memory(err, sizeof *stream);
  stream->env = config->env;
  stream->loop = config->loop;
  stream->channel = config->channel;
  rv_mutex_init(&stream->mutex, RV_RANK_CLIENT, "insert stream");
  rv_list_init(&stream->inbox);
  rv_list_init(&stream->queue);
  rv_list_init(&stream->sent);
  rv_list_init(&stream->held);
  stream->task.run = run;
  stream->backoff_ns = BACKOFF_MIN_NS;
  stream->request_bytes = REQUEST_BYTES_MAX;
  rv_stream_slots_init(&stream->slots, rv_entropy64(stream->env));
  rv_writer_buf_init(&stream->scratch);
  take_writer_id(stream);
  *out = stream;
  return RV_OK;
}

static void shut(void *argument)
{
  rv_insert_stream *stream = argument;
  drain_inbox(stream);
  rv_timer_stop(&stream->retry);
  stream->closing = true;
  requeue(stream);
  drop_held(stream);
  rv_link *link;
  while ((link = stream->queue.next) != &stream->queue) {
    rv_stream_item *item = RV_CONTAINER(link, rv_stream_item, link);
    unpin_chunks(item);
    finish(item, RV_CANCELLED, "the writer was freed");
  }
  if (stream->call != NULL) {
    rv_call_cancel(stream->call); /* on_close destroys */
  } else {
    rv_mutex_lock(&stream->mutex);
    bool posted = stream->posted;
    rv_mutex_unlock(&stream->mutex);
    if (!posted) destroy(stream); /* else the task does */
  }
}

void rv_insert_stream_free(rv_insert_stream *stream)
{
  if (stream != NULL) rv_loop_call(stream->loop, shut, stream);
}

void rv_insert_stream_get_status(rv_insert_stream *stream, rv_insert_stream_status *out)
{
  char channel[160], why[128];
  rv_channel_state(stream->channel, channel, sizeof channel);
  rv_mutex_lock(&stream->mutex);
  *out = stream->status;
  out->unsent += stream->inbox_count;
  memcpy(why, stream->last_error, sizeof why);
  rv_mutex_unlock(&stream->mutex);
  if (why[0] == '\0') {
    snprintf(out->state, sizeof out->state, "%s", channel);
  } else {
    snprintf(out->state, sizeof out->state, "%.80s; the last stream ended with %.100s", channel, why);
  }
}
