/* Requests: as many items as wait, up to a bound, with the chunks that the server does not hold yet; where rows are lent, one large
 * row. */
#include <stdio.h>
#include <stdlib.h>

#include "client/insert_stream_parts.h"

/* No more requests are made while so many bytes wait for the socket. */
#define QUEUED_BYTES ((size_t)1 << 20)
/* gRPC tells their size in 32 bits. */
#define MESSAGE_BOUND ((size_t)UINT32_MAX)

enum {
  HEADER = 11, /* a field's tag and length, at most */
  KEPT = 10    /* a chunk's key, at most, where the server is to keep it */
};

void rv_insert_stream_drop_held(rv_insert_stream *stream)
{
  rv_link *link;
  stream->held_count = 0;
  while ((link = rv_list_pop_front(&stream->held)) != NULL) {
    rv_stream_chunk *chunk = RV_CONTAINER(link, rv_stream_chunk, link);
    chunk->sent_on = 0;
    rv_stream_chunk_unref(chunk);
  }
}

static rv_code put_piece(rv_pieces *message, const rv_piece *piece)
{
  return piece->size <= RV_STREAM_COPY_BYTES ? rv_pieces_copy(message, piece->data, piece->size)
                                             : rv_pieces_share(message, piece->owner, piece->data, piece->size);
}

static rv_code put_content(rv_pieces *message, const rv_stream_chunk *chunk)
{
  size_t before = rv_stream_chunk_before(chunk);
  rv_code code = rv_pieces_copy(message, chunk->flat, before);
  if (code == RV_OK) code = put_piece(message, &chunk->rows);
  if (code == RV_OK) code = rv_pieces_copy(message, chunk->flat + before, chunk->flat_size - before);
  for (size_t i = 0; i < chunk->data.count && code == RV_OK; i++) code = put_piece(message, &chunk->data.piece[i]);
  return code;
}

static rv_code put_chunk(rv_insert_stream *stream, rv_pieces *message, rv_stream_chunk *chunk)
{
  stream->scratch.size = 0;
  rv_put_header(&stream->scratch, 1, rv_stream_chunk_bytes(chunk));
  if (stream->scratch.failed) return RV_RESOURCE_EXHAUSTED;
  rv_code code = rv_pieces_copy(message, stream->scratch.data, stream->scratch.size);
  if (code == RV_OK) code = put_content(message, chunk);
  if (code != RV_OK) return code;
  chunk->sent_on = stream->connection;
  rv_list_push_back(&stream->held, &rv_stream_chunk_ref(chunk)->link);
  stream->held_count++;
  return RV_OK;
}

static rv_code put_item(rv_insert_stream *stream, rv_pieces *message, rv_stream_item *item)
{
  if (item->sequence == 0) item->sequence = stream->next_sequence++;
  stream->scratch.size = 0;
  rv_stream_item_put(&stream->scratch, 2, item);
  return stream->scratch.failed ? RV_RESOURCE_EXHAUSTED : rv_pieces_copy(message, stream->scratch.data, stream->scratch.size);
}

/* The server had no room for the next item beside what it kept for others. */
static bool next_needs_all_room(const rv_insert_stream *stream)
{
  return !rv_list_empty(&stream->queue) && RV_CONTAINER(stream->queue.next, rv_stream_item, link)->had_no_room;
}

/* The chunks that later items may refer to; the others are let go here as the server lets them go. None, where the next item needs all the room: what
 * is needed again is sent again. */
static rv_code put_keep_keys(rv_insert_stream *stream, rv_pieces *message)
{
  size_t count = 0;
  const bool keeps = !next_needs_all_room(stream);
  for (rv_link *link = stream->held.next, *next; link != &stream->held; link = next) {
    next = link->next;
    rv_stream_chunk *chunk = RV_CONTAINER(link, rv_stream_chunk, link);
    if (!keeps || atomic_load_explicit(&chunk->pins, memory_order_acquire) == 0) {
      rv_list_remove(link);
      stream->held_count--;
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

/* The first of the queue is in the message. */
static void note_sent(rv_insert_stream *stream, rv_stream_item *item)
{
  rv_list_remove(&item->link);
  rv_list_push_back(&stream->sent, &item->link);
  item->sent = true;
  stream->queue_count--;
  stream->sent_count++;
  rv_stream_item_unpin(item);
}

static rv_code put_pack(rv_insert_stream *stream, rv_pieces *message, size_t *num_items)
{
  rv_code code = rv_insert_stream_put_pack(stream, message, num_items);
  for (size_t i = 0; i < *num_items && code == RV_OK; i++)
    note_sent(stream, RV_CONTAINER(stream->queue.next, rv_stream_item, link));
  return code;
}

/* What an item would bring that the server does not hold yet. */
typedef enum brings {
  NOTHING,
  SMALL,
  LARGE /* a chunk that is worth a block of the server's own */
} brings;

static brings what_comes(const rv_insert_stream *stream, const rv_stream_item *item)
{
  brings most = NOTHING;
  for (uint32_t i = 0; i < item->num_chunks && most != LARGE; i++) {
    const rv_stream_chunk *chunk = item->chunks[i];
    if (chunk->sent_on == stream->connection) continue;
    most = rv_stream_chunk_bytes(chunk) >= RV_SPARE_MIN ? LARGE : SMALL;
  }
  return most;
}

/* Where rows are lent, a large one's request is its own: the server's block is then as large as the row, goes when the row does, and
 * has the size that the next one needs. Items of the same rows come along. Over a socket one request with several costs both ends
 * less. */
static bool begins_a_request(brings before, brings now)
{
  return now == LARGE || (now == SMALL && before == LARGE);
}

/* ---- how large a message may be ---- */

size_t rv_insert_stream_message_bound(const rv_insert_stream *stream)
{
  return stream->max_message > 0 && stream->max_message < MESSAGE_BOUND ? stream->max_message : MESSAGE_BOUND;
}

size_t rv_insert_stream_besides(const rv_insert_stream *stream)
{
  return 3 * HEADER + stream->held_count * KEPT;
}

static size_t bytes_of_chunk(const rv_stream_chunk *chunk)
{
  const size_t bytes = rv_stream_chunk_bytes(chunk);
  return 1 + rv_varint_size(bytes) + bytes;
}

/* So many bytes may follow what is in the message, which is never sent empty: what is too large by itself goes by itself. */
static bool has_room(const rv_insert_stream *stream, const rv_pieces *message, size_t more)
{
  const size_t bound = rv_insert_stream_message_bound(stream);
  return message->bytes == 0 || message->bytes + more + rv_insert_stream_besides(stream) <= bound;
}

/* The largest of the messages that the item cannot do without: each of its chunks may go by itself. */
static size_t least_message(const rv_insert_stream *stream, const rv_stream_item *item)
{
  size_t own = rv_stream_item_most_bytes(item) + rv_insert_stream_besides(stream), largest = 0;
  for (uint32_t i = 0; i < item->num_chunks; i++) {
    if (item->chunks[i]->sent_on == stream->connection) continue;
    const size_t bytes = bytes_of_chunk(item->chunks[i]);
    if (bytes > largest) largest = bytes;
    own += KEPT;
  }
  return own > largest ? own : largest;
}

/* True: the first of the queue is larger than the server takes, and has failed. Where this server has not said yet what it takes, it is asked:
 * another one may have been there before. */
static bool refuse_first(rv_insert_stream *stream)
{
  const size_t bound = stream->bound_heard || stream->resized ? rv_insert_stream_message_bound(stream) : MESSAGE_BOUND;
  rv_stream_item *first = RV_CONTAINER(stream->queue.next, rv_stream_item, link);
  const size_t least = least_message(stream, first);
  if (least <= bound) return false;
  char text[RV_ERROR_MESSAGE_MAX];
  if (bound < MESSAGE_BOUND)
    snprintf(text, sizeof text,
             "the item needs a message of %zu bytes, which is larger than this server takes (%zu); raise the server's "
             "max_message_bytes, or, where its chunks have several rows, make them of fewer",
             least, bound);
  else
    snprintf(text, sizeof text,
             "the item needs a message of %zu bytes, and gRPC's messages are smaller than 4 GiB; make its chunks of fewer rows",
             least);
  rv_insert_stream_give_up(stream, first, RV_RESOURCE_EXHAUSTED, text);
  return true;
}

/* Takes items from the queue until the request is full. Its first request may be chunks alone, when one item needs that many. */
static rv_code fill_request(rv_insert_stream *stream, rv_pieces *message)
{
  size_t num_items = 0;
  brings before = SMALL;
  const bool lends = rv_channel_lends(stream->channel);
  rv_code code = stream->packs ? put_pack(stream, message, &num_items) : RV_OK;
  if (code != RV_OK) return code;
  while (!rv_list_empty(&stream->queue) && message->bytes < stream->request_bytes) {
    rv_stream_item *item = RV_CONTAINER(stream->queue.next, rv_stream_item, link);
    if (num_items > 0 && item->had_no_room) break;
    brings now = lends ? what_comes(stream, item) : SMALL;
    if (num_items > 0 && begins_a_request(before, now)) break;
    if (now != NOTHING) before = now;
    uint32_t i = 0;
    for (; i < item->num_chunks && message->bytes < stream->request_bytes; i++) {
      if (item->chunks[i]->sent_on == stream->connection) continue;
      if (!has_room(stream, message, bytes_of_chunk(item->chunks[i]) + KEPT)) break;
      code = put_chunk(stream, message, item->chunks[i]);
      if (code != RV_OK) return code;
    }
    if (i < item->num_chunks || !has_room(stream, message, rv_stream_item_most_bytes(item))) break;
    code = put_item(stream, message, item);
    if (code != RV_OK) return code;
    note_sent(stream, item);
    num_items++;
    if (rv_insert_stream_has_pack(stream)) break;
  }
  return num_items > 0 ? put_keep_keys(stream, message) : RV_OK;
}

bool rv_insert_stream_send(rv_insert_stream *stream)
{
  while (!rv_list_empty(&stream->queue) && rv_call_queued(stream->call) < QUEUED_BYTES && !rv_call_is_over(stream->call)) {
    rv_pieces message;
    if (refuse_first(stream)) continue;
    rv_pieces_init(&message);
    if (fill_request(stream, &message) != RV_OK) {
      rv_pieces_fini(&message);
      stream->scratch.failed = false;
      return false;
    }
    stream->bytes_sent += message.bytes;
    if (message.bytes > stream->largest_message) stream->largest_message = message.bytes;
    rv_call_send(stream->call, &message);
    rv_pieces_fini(&message);
  }
  return true;
}
