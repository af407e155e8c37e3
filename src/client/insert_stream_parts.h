/* How the insert stream is built, for its own files:
 *
 *   stream_item.c      chunks and items
 *   insert_requests.c  from the queue into requests
 *   insert_packs.c     items that look alike into a pack
 *   insert_call.c      confirmations, calls that end and are opened again
 *   insert_stream.c    life, and hand-over from the writer's thread
 *   stream_slots.c     items by key */
#ifndef RV_CLIENT_INSERT_STREAM_PARTS_H
#define RV_CLIENT_INSERT_STREAM_PARTS_H

#include "base/lock.h"
#include "client/insert_stream.h"
#include "client/stream_slots.h"

/* A request is closed once it has so many bytes: less after a call has ended, until confirmations come, or a line that is cut all
 * the time would never let a whole request through. */
#define RV_STREAM_REQUEST_BYTES ((size_t)256 << 10)
#define RV_STREAM_BACKOFF_NS INT64_C(10000000)

typedef struct rv_inbox_load {
  size_t items, bytes, rows; /* rows: bytes that lie in blocks of the server's, and are in no message */
} rv_inbox_load;

struct rv_insert_stream {
  const rv_env *env;
  rv_loop *loop;
  rv_channel *channel;

  void (*answered)(void *context); /* may be NULL */
  void *context;

  rv_mutex mutex; /* RV_RANK_CLIENT: the inbox, and what get_status shows */
  rv_link inbox;
  rv_inbox_load waiting, left; /* what is in the inbox; of that, what was left there to go in a pack */
  bool posted;
  bool looks_soon; /* the loop's thread has promised to look into the inbox: `look` runs */
  bool asks_each;  /* who added the items before waited for each alone */
  rv_task task, end;
  rv_task visit;                  /* what `task` does, by a guest */
  rv_task visit_but_newest;       /* and leaves what may go in a pack later */
  rv_insert_stream_status status; /* without `state` */
  char last_error[128];           /* why the last call ended; "" once a server has answered the next */

  /* the loop's from here on */
  bool begun, closing;
  rv_call *call;
  uint64_t connection; /* number of the present call; 0: none yet */
  bool answers;        /* its server has confirmed or refused an item */
  rv_link queue;       /* not sent on this connection, in order */
  rv_link sent;        /* not confirmed, in order */
  size_t queue_count, sent_count;
  uint64_t bytes_sent;
  rv_stream_slots slots; /* by key, items that were sent at least once, as far as they are indexed */
  rv_link held;          /* chunks that the server holds for this call */
  size_t held_count;
  bool packs;         /* the server of this call takes packs of items, */
  bool packs_columns; /* also of chunks that have several columns */
  uint64_t next_sequence;
  char writer_id[33];
  char server_state[128]; /* "": not a Reverie server, or not known yet */
  rv_timer retry;
  rv_timer look; /* keeps the promise of `looks_soon` when nothing else does */
  int64_t backoff_ns;
  int64_t
      exhausted_ns; /* when the first of calls in a row ended with RESOURCE_EXHAUSTED, without an answer; INT64_MAX: none did */
  size_t request_bytes;   /* bound of a request, see RV_STREAM_REQUEST_BYTES */
  size_t max_message;     /* what a server last said that it takes in one; 0: it has not said it */
  bool bound_heard;       /* the server of this call has, */
  bool resized;           /* or that of the call before did as it ended it: a message was larger. Of this one none is */
  size_t largest_message; /* of this call */
  rv_code broken;         /* why this side ended the call; RV_OK: it did not */
  char broken_message[128];
  rv_writer_buf scratch, places;
  uint64_t *keep;
  size_t keep_capacity;
};

/* Of what is flat of the chunk, the bytes before its rows; the rest stands behind them. All of it, where the rows are not apart. */
static inline size_t rv_stream_chunk_before(const rv_stream_chunk *chunk)
{
  return chunk->rows.owner != NULL ? chunk->rows_at : chunk->flat_size;
}
/* Appends it as that field, a PrioritizedItem with its number. */
void rv_stream_item_put(rv_writer_buf *out, uint32_t field, const rv_stream_item *item);

/* Puts the items at the head of the queue that look alike into a pack, as far as the message has room: two at least, or one whose rows are named by
 * their place. 0: there is no pack.
 * They are then to be noted as sent. */
rv_code rv_insert_stream_put_pack(rv_insert_stream *stream, rv_pieces *message, size_t *count);
/* So many at the head of the queue look alike that a request of their own is worth it, or their rows are named by their place. */
bool rv_insert_stream_has_pack(rv_insert_stream *stream);
/* Bytes that no message to the server may be larger than, as far as is known. */
size_t rv_insert_stream_message_bound(const rv_insert_stream *stream);
/* What is in a message beside a pack or its chunks and items, at most: headers, and the keys of the chunks that the server is to keep. */
size_t rv_insert_stream_besides(const rv_insert_stream *stream);
/* At most what the item takes in a message, without chunks. */
size_t rv_stream_item_most_bytes(const rv_stream_item *item);
/* Sends what the call will take; false: out of memory, and the call is of no use any more. */
bool rv_insert_stream_send(rv_insert_stream *stream);
/* Opens the call if need be, and sends. */
void rv_insert_stream_pump(rv_insert_stream *stream);
/* Takes what is in the inbox, sends what the call will take, and promises to look again if something is to be expected. A row that others may still
 * refer to is left there until then, if by then it may go in a pack. */
void rv_insert_stream_look(rv_insert_stream *stream);
/* That item of the queue fails with that status; one that an earlier call left in doubt, where it is RV_RESOURCE_EXHAUSTED, with RV_UNKNOWN. */
void rv_insert_stream_give_up(rv_insert_stream *stream, rv_stream_item *item, rv_code code, const char *message);
/* Takes the item off its list and completes it. */
void rv_insert_stream_finish(rv_stream_item *item, rv_code code, const char *message);
/* Puts what was sent and not confirmed before what was not sent. */
void rv_insert_stream_requeue(rv_insert_stream *stream);
/* Draws a new id and begins to number at 1. */
void rv_insert_stream_take_writer_id(rv_insert_stream *stream);
void rv_insert_stream_destroy(rv_insert_stream *stream);
/* The call is over: its server holds nothing. */
void rv_insert_stream_drop_held(rv_insert_stream *stream);

#endif
