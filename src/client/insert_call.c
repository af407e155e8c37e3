/* The call of an insert stream: opened, answered, ended, opened again. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/backoff.h"
#include "client/explain.h"
#include "client/insert_stream_parts.h"

#define REQUEST_BYTES_MIN ((size_t)2 << 10)

#define PATH "/deepmind.reverb.ReverbService/InsertStream"
#define SERVER_STATE "reverie-server-state"
#define WRITER_ID "reverie-writer"
#define PACKS "reverie-packs"
#define MAX_MESSAGE "reverie-max-message"
#define REFUSED_CHUNK "reverie-refused-chunk"
#define REFUSED_AFTER "reverie-refused-after"

/* So far a confirmation's item is looked for from the oldest on. */
enum { LOOK_AHEAD = 8 };

/* A server that for so long ends every call for want of room, without an answer, has not that much room. */
#define EXHAUSTED_NS INT64_C(30000000000)

static void break_call(rv_insert_stream *stream, rv_code code, const char *message)
{
  if (stream->broken != RV_OK) return;
  stream->broken = code;
  snprintf(stream->broken_message, sizeof stream->broken_message, "%.120s", message);
  rv_call_cancel(stream->call);
}

/* ---- confirmations ---- */

void rv_insert_stream_finish(rv_stream_item *item, rv_code code, const char *message)
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
  stream->answers = true;
  forget_slot(stream, item);
  stream->sent_count--;
  rv_insert_stream_finish(item, code, message);
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
    break_call(stream, err.code == RV_RESOURCE_EXHAUSTED ? RV_UNAVAILABLE : RV_INTERNAL,
               err.message); /* or it is asked for again */
    return;
  }
  stream->backoff_ns = RV_STREAM_BACKOFF_NS;
  stream->exhausted_ns = INT64_MAX;
  if (stream->request_bytes < RV_STREAM_REQUEST_BYTES) stream->request_bytes *= 2;
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
  if (stream->answered != NULL) stream->answered(stream->context);
  rv_insert_stream_look(stream);
}

/* ---- calls ---- */

void rv_insert_stream_take_writer_id(rv_insert_stream *stream)
{
  snprintf(stream->writer_id, sizeof stream->writer_id, "%016" PRIx64 "%016" PRIx64, rv_entropy64(stream->env),
           rv_entropy64(stream->env));
  stream->next_sequence = 1;
  stream->server_state[0] = '\0'; /* no server has answered this id yet: one that does not know it has not forgotten it */
}

/* False: the server has not said it, or no number of so many digits at most. */
static bool get_number(rv_call *call, const char *name, size_t most_digits, uint64_t *out)
{
  const char *text = rv_call_metadata(call, name);
  const size_t digits = text != NULL ? strspn(text, "0123456789") : 0;
  if (digits == 0 || digits > most_digits || text[digits] != '\0') return false;
  *out = strtoull(text, NULL, 10);
  return true;
}

/* What the server takes in one message; 0: it has not said it, or nonsense. */
static size_t message_bound_of(rv_call *call)
{
  uint64_t bound;
  return get_number(call, MAX_MESSAGE, 18, &bound) && bound >= RV_LEAST_MAX_MESSAGE ? bound : 0;
}

static void on_headers(rv_call *call, void *user)
{
  rv_insert_stream *stream = user;
  const char *state = rv_call_metadata(call, SERVER_STATE);
  snprintf(stream->server_state, sizeof stream->server_state, "%s", state == NULL ? "" : state);
  const char *packs = rv_call_metadata(call, PACKS);
  stream->packs = packs != NULL;
  stream->packs_columns = packs != NULL && strcmp(packs, "1") != 0;
  stream->max_message = message_bound_of(call);
  stream->bound_heard = true;
  rv_mutex_lock(&stream->mutex);
  stream->status.peer = state == NULL ? RV_PEER_REVERB : RV_PEER_REVERIE;
  stream->last_error[0] = '\0';
  rv_mutex_unlock(&stream->mutex);
}

static void on_writable(rv_call *call, void *user)
{
  (void)call;
  rv_insert_stream_pump(user);
}

void rv_insert_stream_requeue(rv_insert_stream *stream)
{
  RV_LIST_EACH(link, &stream->sent)
  {
    rv_stream_item *item = RV_CONTAINER(link, rv_stream_item, link);
    item->sent = false;
    rv_stream_item_pin(item);
  }
  rv_list_splice(&stream->sent, &stream->queue);
  rv_list_splice(&stream->queue, &stream->sent);
  stream->queue_count += stream->sent_count;
  stream->sent_count = 0;
}

void rv_insert_stream_give_up(rv_insert_stream *stream, rv_stream_item *item, rv_code code, const char *message)
{
  char doubt[RV_ERROR_MESSAGE_MAX];
  forget_slot(stream, item);
  rv_stream_item_unpin(item);
  stream->queue_count--;
  bool unknown = item->in_doubt && code == RV_RESOURCE_EXHAUSTED; /* which says that nothing came in */
  if (unknown)
    snprintf(doubt, sizeof doubt,
             "it is not known whether the item is in: an earlier call was lost, and its server now says %s: %s",
             rv_code_name(code), message);
  rv_insert_stream_finish(item, unknown ? RV_UNKNOWN : code, unknown ? doubt : message);
}

/* Every item that the server may have seen, and, so that something is given up each time, at least the first. */
static void fail_sent(rv_insert_stream *stream, rv_code code, const char *message)
{
  for (bool any = false; !rv_list_empty(&stream->queue); any = true) {
    rv_stream_item *first = RV_CONTAINER(stream->queue.next, rv_stream_item, link);
    if (any && first->sequence == 0) break;
    rv_insert_stream_give_up(stream, first, code, message);
  }
}

static void doubt_sent(rv_insert_stream *stream)
{
  RV_LIST_EACH(link, &stream->sent) RV_CONTAINER(link, rv_stream_item, link)->in_doubt = true;
}

/* The server said RESOURCE_EXHAUSTED: of what it did not confirm on this call, nothing came in by it. */
static bool is_exhausted(const rv_call *call, rv_code code)
{
  return code == RV_RESOURCE_EXHAUSTED && rv_call_has_status(call);
}

/* Those in doubt were sent before all others, and stand before them. */
static bool has_doubts(const rv_insert_stream *stream)
{
  return !rv_list_empty(&stream->queue) && RV_CONTAINER(stream->queue.next, rv_stream_item, link)->in_doubt;
}

/* ABORTED: a server lets the stream of a writer go that it believes to be the older one. Where a call of a connection that is lost was
 * held up on its way, and reaches the server after the next connection's, that is the wrong one; the next call puts it right, and the
 * numbers of the items see to it that none is inserted twice. */
static bool is_transient(const rv_insert_stream *stream, const rv_call *call, rv_code code, const char *message)
{
  if (stream->resized) return true;
  if (is_exhausted(call, code) && stream->answers) return true; /* fewer are left */
  if (is_exhausted(call, code)) return has_doubts(stream) && rv_monotonic_ns(stream->env) - stream->exhausted_ns < EXHAUSTED_NS;
  if (code == RV_RESOURCE_EXHAUSTED) return true; /* memory was out here, or for the call's beginning */
  return code == RV_OK || code == RV_UNAVAILABLE || code == RV_CANCELLED || code == RV_ABORTED ||
         (code == RV_UNKNOWN && strcmp(message, "Stream removed") == 0);
}

/* A message was larger than the server takes, which it had not said before that was made. The next call's are not: so one item costs no others. */
static void note_size(rv_insert_stream *stream, rv_call *call, rv_code code)
{
  const size_t bound = message_bound_of(call);
  const bool too_large = is_exhausted(call, code) && bound > 0 && stream->largest_message > bound;
  stream->resized = too_large && !stream->resized;
  if (bound > 0) stream->max_message = bound;
}

/* Behind the item of that number. */
static rv_stream_item *first_with_chunk(const rv_link *list, uint64_t key, uint64_t after)
{
  for (const rv_link *link = list->next; link != list; link = link->next) {
    rv_stream_item *item = RV_CONTAINER(link, rv_stream_item, link);
    if (item->sequence != 0 && item->sequence <= after) continue;
    for (uint32_t i = 0; i < item->num_chunks; i++)
      if (item->chunks[i]->key == key) return item;
  }
  return NULL;
}

/* The item that brought the chunk for which the server had no room, by which it ended the call. NULL: it ended otherwise. */
static rv_stream_item *find_refused(rv_insert_stream *stream, rv_call *call)
{
  uint64_t key, after = 0; /* not said: of those that have the chunk, the first */
  if (!get_number(call, REFUSED_CHUNK, 20, &key)) return NULL;
  get_number(call, REFUSED_AFTER, 20, &after);
  rv_stream_item *item = first_with_chunk(&stream->sent, key, after);
  return item != NULL ? item : first_with_chunk(&stream->queue, key, after);
}

/* What the server kept for other items may have left this one no room: it is tried once more, and nothing is kept beside it then. The server has
 * answered, so that many of them do not wait for each other longer and longer. */
static void try_again_or_give_up(rv_insert_stream *stream, rv_stream_item *refused, const char *message)
{
  stream->backoff_ns = RV_STREAM_BACKOFF_NS;
  if (refused->had_no_room)
    rv_insert_stream_give_up(stream, refused, RV_RESOURCE_EXHAUSTED, message);
  else
    refused->had_no_room = true;
}

static void retry_later(rv_insert_stream *stream)
{
  stream->request_bytes = stream->request_bytes / 4 > REQUEST_BYTES_MIN ? stream->request_bytes / 4 : REQUEST_BYTES_MIN;
  rv_timer_start(&stream->retry, rv_monotonic_ns(stream->env) + rv_backoff_next(&stream->backoff_ns, stream->env));
}

static void on_close(rv_call *call, void *user, rv_code code, const char *message)
{
  rv_insert_stream *stream = user;
  stream->call = NULL;
  if (stream->closing) {
    if (!stream->posted) rv_insert_stream_destroy(stream);
    return;
  }
  if (message == NULL) message = "";
  if (stream->broken != RV_OK) {
    code = stream->broken;
    message = stream->broken_message;
  }
  char unknown[RV_EXPLAINED_UNKNOWN];
  if (code == RV_UNIMPLEMENTED) {
    rv_explain_unknown(PATH, message, unknown, sizeof unknown);
    message = unknown;
  }
  rv_insert_stream_drop_held(stream);
  note_size(stream, call, code);
  rv_stream_item *refused = find_refused(stream, call);
  const bool in_doubt = refused != NULL && refused->in_doubt;
  if (!is_exhausted(call, code))
    doubt_sent(stream);
  else if (stream->exhausted_ns == INT64_MAX && !stream->resized && refused == NULL)
    stream->exhausted_ns = rv_monotonic_ns(stream->env);
  if (refused != NULL) refused->in_doubt = in_doubt; /* it is not in by this call */
  rv_insert_stream_requeue(stream);
  char why[128];
  snprintf(why, sizeof why, "%s%s%.90s", rv_code_name(code), message[0] == '\0' ? "" : ": ", message);
  rv_mutex_lock(&stream->mutex);
  memcpy(stream->last_error, why, sizeof why);
  rv_mutex_unlock(&stream->mutex);
  if (refused != NULL) {
    try_again_or_give_up(stream, refused, message);
  } else if (!is_transient(stream, call, code, message)) {
    fail_sent(stream, code, message);
    rv_insert_stream_take_writer_id(stream);
    stream->exhausted_ns = INT64_MAX;
  }
  retry_later(stream);
}

static void open_call(rv_insert_stream *stream)
{
  static const rv_call_events events = {
      .on_headers = on_headers, .on_message = on_message, .on_writable = on_writable, .on_close = on_close};
  /* When nothing has a number there is nothing for the server to remember: a new id cannot have expired. */
  bool numbered = RV_CONTAINER(stream->queue.next, rv_stream_item, link)->sequence != 0;
  if (stream->connection > 0 && !numbered) rv_insert_stream_take_writer_id(stream);
  rv_metadata metadata[2] = {{WRITER_ID, stream->writer_id}, {SERVER_STATE, stream->server_state}};
  rv_call_config config = {.path = PATH,
                           .metadata = metadata,
                           .num_metadata = numbered && stream->server_state[0] != '\0' ? 2 : 1,
                           .deadline_ns = INT64_MAX,
                           .wait_for_ready = true};
  stream->connection++;
  stream->packs = stream->packs_columns = false; /* until this server has said so */
  stream->answers = stream->bound_heard = false;
  stream->largest_message = 0;
  stream->broken = RV_OK;
  stream->call = rv_channel_call(stream->channel, &config, &events, stream);
  if (stream->call == NULL) retry_later(stream); /* out of memory */
  rv_mutex_lock(&stream->mutex);
  if (stream->connection > 1) stream->status.reconnects++;
  rv_mutex_unlock(&stream->mutex);
}

void rv_insert_stream_pump(rv_insert_stream *stream)
{
  if (!rv_list_empty(&stream->queue)) {
    if (stream->call == NULL && !stream->retry.runs) open_call(stream);
    if (stream->call != NULL && stream->broken == RV_OK && !rv_insert_stream_send(stream))
      break_call(stream, RV_UNAVAILABLE, "out of memory on this side");
  }
  rv_mutex_lock(&stream->mutex);
  stream->status.unsent = stream->queue_count;
  stream->status.unconfirmed = stream->sent_count;
  stream->status.bytes_sent = stream->bytes_sent;
  rv_mutex_unlock(&stream->mutex);
}
