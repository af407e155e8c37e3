/* One InsertStream call to a server, kept alive across lost connections: the way of every item that leaves this process.
 *
 * Items are handed over in order, with the encoded chunks they refer to. The stream numbers them, sends each chunk once per
 * connection, puts many items into one request when many wait (as a pack those that look alike, where the server takes packs; one
 * large row where it is lent), tells the server which chunks to keep, and completes each item exactly once: when the server has
 * confirmed it, when it was refused, or when the stream is freed. When the connection is lost it is opened again and whatever was not
 * confirmed is sent again in order, with its chunks.
 *
 * Exactly once: the call carries the metadata `reverie-writer` (32 hexadecimal digits, drawn when the stream is made), and each
 * item its number (PrioritizedItem, field 1000: 1, 2, 3, ... without gaps, the same when it is sent again). A Reverie server
 * answers with the header `reverie-server-state` and never inserts a number twice; after a reconnect the stream sends the state
 * it last saw as request metadata of the same name, so that a server which has forgotten the writer can tell "I have expired you"
 * (it ends the call with FAILED_PRECONDITION) from "I am another server" (it accepts). A plain Reverb server sends no headers
 * before its first message: the stream never waits for them. There an item that was inserted but not confirmed becomes a priority
 * update when it is sent again, or, if it has left its table by then, a second insert: at least once.
 *
 * A refused item completes with its error and the others go on (between Reverie's own ends). A status that ends the whole
 * call and is not OK, UNAVAILABLE, CANCELLED or ABORTED, and names no chunk that there was no room for (`reverie-refused-chunk`: the item
 * that brought it is tried once more, then fails alone), fails every item that was sent and not confirmed, but for RESOURCE_EXHAUSTED of a call
 * that has answered some: the others are tried by the next, for which nothing is kept yet. The stream then takes a new
 * writer id, begins to number at 1 again and goes on with what was not sent. But whoever hears RESOURCE_EXHAUSTED takes it that nothing
 * was inserted: while an item that an earlier call left in doubt is not answered, that status is no more than UNAVAILABLE. Where a server says
 * nothing else for 30 s, items in doubt fail with RV_UNKNOWN: they may be in.
 *
 * Everything may be called from any thread unless said otherwise; nothing blocks. */
#ifndef RV_CLIENT_INSERT_STREAM_H
#define RV_CLIENT_INSERT_STREAM_H

#include <stdatomic.h>

#include "base/list.h"
#include "client/item_form.h"
#include "client/wait.h"
#include "net/net.h"
#include "wire/chunk_stamp.h"
#include "wire/messages.h"

typedef struct rv_insert_stream rv_insert_stream;

/* ---- chunks ---- */

/* Chunks, and pieces of longer ones, up to this size are copied into the request: cheaper than a reference each. */
#define RV_STREAM_COPY_BYTES ((size_t)4096)
/* Rows from this size on go in a pack only where they lie in blocks of the server's: else it would have to copy them out of it, where it keeps those of
 * 16 KiB and more in their message. */
#define RV_STREAM_PACKED_ROWS_BELOW ((size_t)15 << 10)

/* An encoded chunk on its way. It belongs to one stream. Refcounted; besides that it is pinned by whoever may still make new
 * items that refer to it (a writer's history): when neither a pin nor an unsent item is left, the server is told to let it go. */
typedef struct rv_stream_chunk {
  atomic_size_t refs;
  atomic_uint pins; /* the loop gives one without having one, when it queues what was sent again */
  uint64_t key;
  /* The serialized ChunkData: behind the struct if it is short; there, but for its rows, if it is one piece of them (`rows`, that stands before the
   * last flat_size - rows_at bytes; no owner: it is not); else in `data`. */
  rv_pieces data;
  rv_piece rows;
  size_t flat_size; /* bytes behind the struct */
  size_t flat_room;
  /* Chunks of one form differ in key, range and rows alone (rv_chunk_stamp): of those these bytes, and `rows` where it has an owner, are all that
   * a pack of items needs. 0: it has none. */
  uint64_t form;
  uint32_t own_size, rows_at, row_bytes; /* key and range stand first; row_bytes are of all rows */
  uint32_t num_runs;                     /* of rows, one a column; of several rows_at is the first's */
  /* the loop's */
  uint64_t sent_on; /* number of the connection whose server holds it; 0: none */
  rv_link link;     /* in the stream's list of those */
  uint8_t flat[];
} rv_stream_chunk;

/* Memory of what is flat of chunks, to be used again; one thread's. */
typedef struct rv_stream_spares {
  rv_link chunks;
  size_t count;
} rv_stream_spares;
void rv_stream_spares_init(rv_stream_spares *spares);
void rv_stream_spares_fini(rv_stream_spares *spares);

/* Takes the pieces, or copies and clears them where they are short: empty afterwards, also on failure, and to be finished by whoever
 * made them. It may be given a form with so many runs. `spares` may be NULL. The caller owns one reference and one pin. */
rv_code rv_stream_chunk_new(uint64_t key, rv_pieces *owned_data, uint32_t num_runs, rv_stream_spares *spares,
                            rv_stream_chunk **out, rv_error *err);
/* Whose flat_size bytes the caller writes: a short one, at most RV_STREAM_COPY_BYTES, or what stands around the rows of a long one. */
rv_code rv_stream_chunk_new_flat(uint64_t key, size_t size, uint32_t num_runs, rv_stream_spares *spares, rv_stream_chunk **out,
                                 rv_error *err);
/* It is of that form, and its rows lie as the stamp says, which has as many runs as the chunk was made for. */
void rv_stream_chunk_set_form(rv_stream_chunk *chunk, uint64_t form, size_t own_size, const rv_chunk_stamp *stamp);
/* Where its runs lie, behind key and range; of one that has a form, and several. */
const rv_chunk_run *rv_stream_chunk_runs(const rv_stream_chunk *chunk);
/* Of the serialized ChunkData. */
static inline size_t rv_stream_chunk_bytes(const rv_stream_chunk *chunk)
{
  return chunk->flat_size + chunk->rows.size + chunk->data.bytes;
}
rv_stream_chunk *rv_stream_chunk_ref(rv_stream_chunk *chunk);
void rv_stream_chunk_unref(rv_stream_chunk *chunk);
/* The same, and keeps the memory, if it was the last reference, of what is flat. */
void rv_stream_chunk_recycle(rv_stream_chunk *chunk, rv_stream_spares *spares);
void rv_stream_chunk_unpin(rv_stream_chunk *chunk); /* no item that is added later refers to it */

/* ---- items ---- */

/* The memory is the caller's and must stay until `complete`. */
typedef struct rv_stream_item {
  /* Exactly once for each item that was added, on the loop's thread or a guest's in its place, with no lock held; it may free the item. It must
   * not block. RV_OK: it is in the table. RV_CANCELLED: the stream was freed. Otherwise the server's error. */
  void (*complete)(struct rv_stream_item *item, rv_code code, const char *message);
  uint64_t key;
  uint8_t *body; /* the serialized PrioritizedItem, without a sequence number; NULL: it is to be made of `like` */
  size_t body_size;
  rv_item_form *like; /* one reference, or NULL */
  /* The bodies of items of one form differ in key, priority and chunks alone; 0: it has none. */
  uint64_t form;
  double priority;
  rv_stream_chunk **chunks; /* distinct; one reference each */
  uint32_t num_chunks;
  /* the stream's */
  uint32_t slot;
  bool indexed;      /* it has a slot */
  bool sent;         /* on the present connection */
  bool in_doubt;     /* it was sent on an earlier one, and may be in */
  bool had_no_room;  /* a server had none for its chunks, beside what it kept for others; */
  bool gathers;      /* it may wait for others that it goes in a pack with */
  uint64_t sequence; /* 0 until it is first sent */
  rv_link link;
} rv_stream_item;

/* Serializes `wire` (key, table, priority, slices; its sequence is ignored) and takes a reference to each chunk. `complete` is
 * the caller's to set. */
rv_code rv_stream_item_init(rv_stream_item *item, const rv_wire_item *wire, rv_stream_chunk *const *chunks, uint32_t num_chunks,
                            rv_error *err);
void rv_stream_item_fini(rv_stream_item *item); /* frees the body, drops the chunks; not while it is in a stream */
/* Pins on the item's chunks, which it has while it is not sent: they keep the server from dropping what is needed by items on this side. */
void rv_stream_item_pin(const rv_stream_item *item);
void rv_stream_item_unpin(const rv_stream_item *item);

/* ---- the stream ---- */

typedef struct rv_insert_stream_config {
  const rv_env *env;   /* borrowed */
  rv_loop *loop;       /* the channel's */
  rv_channel *channel; /* must outlive the stream */
  /* The items that one answer of the server confirmed or refused have completed. On the loop's thread, with no lock held. May be
   * NULL. */
  void (*answered)(void *context);
  void *context;
} rv_insert_stream_config;

/* Opens no call yet: the first item does. */
rv_code rv_insert_stream_new(const rv_insert_stream_config *config, rv_insert_stream **out, rv_error *err);
/* On the loop's thread, not from a `complete`: cancels the call and frees the stream; items that are not complete complete with RV_CANCELLED
 * before this returns (those that were sent may or may not have been inserted). */
void rv_insert_stream_shut(rv_insert_stream *owned_stream);
/* The same from any thread: as soon as the loop's thread comes to it, before it does anything that is posted after this. */
void rv_insert_stream_free(rv_insert_stream *stream);

/* Hands over a list of items (linked by `link`; *items is empty afterwards), of which no two have the same key. Each chunk must
 * have a pin while this runs. The stream sets no bound: the caller counts what it has in flight. */
void rv_insert_stream_add(rv_insert_stream *stream, rv_link *items);
void rv_insert_stream_add_one(rv_insert_stream *stream, rv_stream_item *item);
/* The same of large rows, by their writer: where rows are lent (rv_channel_lends) he sends them as a guest of the loop (net/guest.h), and where its
 * thread is busy they are found by it. No lock may be held; what cannot be sent may complete, on this thread, before this returns. */
void rv_insert_stream_add_at_once(rv_insert_stream *stream, rv_link *items);
/* The same of large rows that lie in blocks of the server's (rv_channel_take_block): where the loop's thread will look for them soon they wait until some
 * have gathered. */
void rv_insert_stream_add_gathered(rv_insert_stream *stream, rv_link *items);
/* The same, by who then calls rv_insert_stream_ask: they may wait for that. */
void rv_insert_stream_add_asked(rv_insert_stream *stream, rv_link *items);
/* Added items may be left to be found by the loop's thread for a millisecond. Whoever waits until no more than `others` are not
 * complete lets those go at once that it waits for. */
void rv_insert_stream_hurry(rv_insert_stream *stream, size_t others);
/* The same for all, by who then waits for them at the gate, made for this stream's channel: where they are few he sends them, and reads the answer,
 * as a guest (net/guest.h). No lock may be held. */
void rv_insert_stream_ask(rv_insert_stream *stream, rv_gate *gate, rv_patience *patience);
typedef enum rv_peer_kind { RV_PEER_UNKNOWN = 0, RV_PEER_REVERIE = 1, RV_PEER_REVERB = 2 } rv_peer_kind;

typedef struct rv_insert_stream_status {
  rv_peer_kind peer; /* of the present or last connection */
  uint64_t unsent, unconfirmed;
  uint64_t bytes_sent;
  uint64_t reconnects;
  char state[512]; /* "connected to ...", "connecting to ... (connection refused, attempt 3)", "idle" */
} rv_insert_stream_status;
void rv_insert_stream_get_status(rv_insert_stream *stream, rv_insert_stream_status *out);

#endif
