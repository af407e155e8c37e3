/* The messages that stream: chunks, items, samples (reference: docs/protocol.md). Parsed structs borrow from the message's bytes.
 *
 * Every parse function returns RV_INVALID_ARGUMENT with a sentence for bytes that are not that message. Unknown fields are
 * ignored, and so are fields whose wire type is not the expected one. What a parse function allocates is one block for all arrays
 * of a struct, in proportion to the message's size: only a struct that was parsed may be given to its fini, which may be called
 * again. */
#ifndef RV_WIRE_MESSAGES_H
#define RV_WIRE_MESSAGES_H

#include "reverie/tensor.h"
#include "store/joined.h"
#include "store/trajectory.h"
#include "wire/proto.h"

/* ---- ChunkData ---- */

/* Parses a serialized ChunkData that lies inside `owner` and makes the chunk. With `copy`, its bytes are copied into a buffer of
 * their own (small chunks, which would otherwise pin their message), and the owner is not looked at. Also reads `deprecated_data` and
 * strings in string_val: such a chunk is written anew, as readers expect it today. */
rv_code rv_chunk_parse(rv_buf *owner, rv_span message, bool copy, rv_chunk **out, rv_error *err);
/* The same with a copy of its bytes in memory of their own, apart from what is written down of it, so that they can move (store/cold.h). */
rv_code rv_chunk_parse_apart(rv_span message, rv_chunk **out, rv_error *err);

/* Appends a ChunkData (without the field header around it) for rows [first, first + count) of all or one column of a segment
 * (column SIZE_MAX: all), with the given key. `compression` per column: true = snappy. Sizes under 2^31. */
typedef struct rv_chunk_encoding {
  uint64_t key;
  size_t column;
  int64_t first, count;
  bool delta;
  rv_span snappy;         /* one byte a column, 0 or 1; empty: none */
  rv_writer_buf *scratch; /* empty, and left so, for callers who have one to use again; may be NULL */
} rv_chunk_encoding;
rv_code rv_chunk_serialize(rv_pieces *out, rv_chunk *segment, const rv_chunk_encoding *encoding, rv_error *err);

/* ---- PrioritizedItem ---- */

typedef struct rv_wire_slice {
  uint64_t chunk_key;
  int32_t offset, length, index;
} rv_wire_slice;

enum { RV_ITEM_SLICES_MAX = UINT32_MAX / 64 }; /* of all columns together, and as many columns */

typedef struct rv_wire_item {
  uint64_t key;
  rv_span table;
  double priority;
  int32_t times_sampled;
  int64_t inserted_at_ns;
  uint64_t sequence; /* extension 1000: number of the item within its writer, from 1; 0: none */
  uint64_t naming;   /* extension 1001: what its columns are called (reverie/client.h); 0: not said */
  /* the flat trajectory; arrays are owned by the struct */
  rv_wire_slice *slices;
  uint32_t *num_slices; /* per column */
  bool *squeeze;        /* per column */
  uint32_t num_columns, total_slices;
} rv_wire_item;

rv_code rv_wire_item_parse(rv_span message, rv_wire_item *out, rv_error *err);
void rv_wire_item_fini(rv_wire_item *item);

/* Room for one item's arrays, to be used again by the next; zeroed, it has none yet. */
typedef struct rv_item_room {
  rv_wire_slice *slices; /* owned, and all there is */
  uint32_t *slices_of;   /* per column */
  bool *squeeze;
  size_t num_slices, num_columns;
} rv_item_room;
void rv_item_room_fini(rv_item_room *room);
/* The same with the arrays in `room`, until it is used again: no rv_wire_item_fini. */
rv_code rv_wire_item_parse_in(rv_item_room *room, rv_span message, rv_wire_item *out, rv_error *err);
void rv_wire_item_serialize(rv_writer_buf *out, const rv_wire_item *item); /* without the field header */

/* ---- InsertStream ---- */

typedef struct rv_insert_request {
  rv_span *chunks;
  size_t num_chunks;
  rv_span *items;
  size_t num_items;
  uint64_t *keep_chunk_keys;
  size_t num_keep_chunk_keys;
  rv_span pack; /* extension 1000: items that come in before the others (wire/insert_pack.h); data NULL: none */
} rv_insert_request;
rv_code rv_insert_request_parse(rv_span message, rv_insert_request *out, rv_error *err);
void rv_insert_request_fini(rv_insert_request *request);

/* InsertStreamResponse: 1 `keys`. Extension 1000: `failures` { 1 key, 2 code, 3 message } between Reverie's own ends, so that one
 * refused item need not end the stream. */
typedef struct rv_insert_failure {
  uint64_t key;
  rv_code code;
  rv_span message;
} rv_insert_failure;
typedef struct rv_insert_response {
  uint64_t *keys;
  size_t num_keys;
  rv_insert_failure *failures;
  size_t num_failures;
} rv_insert_response;
rv_code rv_insert_response_parse(rv_span message, rv_insert_response *out, rv_error *err);
void rv_insert_response_fini(rv_insert_response *response);
void rv_insert_response_serialize(rv_writer_buf *out, const rv_insert_response *response);

/* ---- SampleStream ---- */

typedef struct rv_sample_request {
  rv_span table;
  int64_t num_samples;
  int64_t timeout_ms; /* <= 0 on the wire: for ever */
  bool same_layout;   /* extension 1000 */
  bool poll;          /* extension 1001: do not wait at all */
  bool whole;         /* extension 1002: the timeout is the whole request's, not each batch's */
  bool packed;        /* extension 1003: the samples may come in packs (wire/sample_pack.h) */
} rv_sample_request;
rv_code rv_sample_request_parse(rv_span message, rv_sample_request *out, rv_error *err);
void rv_sample_request_serialize(rv_writer_buf *out, const rv_sample_request *request);

typedef struct rv_wire_sample_info {
  rv_wire_item item;
  double probability;
  int64_t table_size;
  bool rate_limited;
} rv_wire_sample_info;

/* A SampleEntry, or a pack of whole samples (extension 1000 of the response): then `pack` is all there is. */
typedef struct rv_sample_entry {
  rv_span pack; /* size 0: none */
  bool has_info;
  rv_wire_sample_info info; /* owned: fini */
  rv_span *chunks;
  size_t num_chunks;
  bool end_of_sequence;
} rv_sample_entry;
typedef struct rv_sample_response {
  rv_sample_entry *entries;
  size_t num_entries;
  uint64_t naming; /* extension 1001: of all items in the table, when these were drawn; 0: none */
} rv_sample_response;
rv_code rv_sample_response_parse(rv_span message, rv_sample_response *out, rv_error *err);
void rv_sample_response_fini(rv_sample_response *response);
/* Appends the naming to a response; 0: nothing. */
rv_code rv_sample_response_put_naming(rv_pieces *response, uint64_t naming, rv_error *err);

/* Server: appends one SampleEntry (with its field header) for a drawn item, chunks first_chunk.. as far as they fit `max_bytes`
 * (at least one). Encoded chunks go by reference as they came; of segments and of raw single-literal chunks only the rows the
 * item needs are sent (with the slices' offsets rewritten in `info`). *next_chunk is where the next entry goes on, or the number
 * of chunks at the end. The entry has info iff first_chunk is 0. */
rv_code rv_sample_entry_serialize(rv_pieces *out, const rv_draw *draw, const char *table, uint32_t first_chunk, size_t max_bytes,
                                  uint32_t *next_chunk, rv_error *err);

/* ---- turning a wire item into a trajectory ---- */

/* Says where a chunk's rows are, borrowed; false: it knows none of that key. */
typedef bool (*rv_find_chunk)(void *context, uint64_t key, rv_chunk_place *out);
/* Looks up each slice's chunk by key and builds the trajectory. A key that `find` does not know is RV_INTERNAL, as in Reverb. Slices that follow
 * each other, and in one segment by now, are one, but where columns that were cut alike would not be any more. `like`: as in rv_trajectory_desc; may be
 * NULL. */
rv_code rv_wire_item_trajectory(const rv_wire_item *item, rv_layouts *layouts, rv_layout *like, rv_find_chunk find, void *context,
                                rv_trajectory **out, rv_error *err);

#endif
