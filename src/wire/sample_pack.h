/* PackedSamples: many samples that look alike, in one message of arrays (between Reverie's own ends, docs/protocol.md).
 *
 * Keys, probabilities, priorities and so on are one array each, and the rows of a column lie one item after another in one tensor
 * of a ChunkData, however they lie at the server. So a sample costs its bytes and no message, chunk or allocation of its own.
 * Items go into a pack only if their rows can be read in place at the server: what is kept compressed is sent as it is kept. */
#ifndef RV_WIRE_SAMPLE_PACK_H
#define RV_WIRE_SAMPLE_PACK_H

#include "store/trajectory.h"
#include "wire/proto.h"

enum { RV_SAMPLE_PACKS = 1000 }; /* their field in SampleStreamResponse */

/* ---- server ---- */

/* How many of the draws, from the first on, go into one pack of at most about `max_bytes`; 0: the first cannot, or it takes more than
 * eight times as much. */
size_t rv_sample_pack_count(const rv_draw *draws, size_t n, size_t max_bytes);
/* Appends a pack (with its field header in SampleStreamResponse) of so many draws. Large rows go by reference; what is written then
 * holds their chunks. */
rv_code rv_sample_pack_serialize(rv_pieces *out, const rv_draw *draws, size_t n, rv_error *err);

/* ---- client ---- */

typedef struct rv_sample_pack_column {
  uint32_t chunk, tensor; /* where its rows are */
  int32_t length;         /* rows of each item */
  bool squeeze;
} rv_sample_pack_column;

typedef struct rv_sample_pack {
  size_t count;
  const uint8_t *keys, *probabilities, *priorities, *times_sampled, *table_sizes, *inserted_at, *rate_limited;
  rv_sample_pack_column *columns; /* owned, as are the chunks' spans */
  uint32_t num_columns;
  rv_span *chunks; /* ChunkData */
  size_t num_chunks;
} rv_sample_pack;

/* Checks that all arrays have `count` elements and that each column names a chunk; the chunks are not parsed. */
rv_code rv_sample_pack_parse(rv_span message, rv_sample_pack *out, rv_error *err);
void rv_sample_pack_fini(rv_sample_pack *pack);
/* Sets everything of sample `i` but its rows (trajectory, chunk, base_row) and its naming, which the response says. */
void rv_sample_pack_describe(const rv_sample_pack *pack, size_t i, rv_draw *out);

#endif
