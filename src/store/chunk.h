/* Chunks: refcounted runs of rows of one or more columns. Bytes are written once.
 *
 * A segment is a chunk in the making, for rows that are written in this process: rows are put at their place, then published,
 * column by column; published rows never change. An encoded chunk came over the wire or from disk and is kept as it came. Readers do
 * not care which they have. All functions may be called from any thread; rv_segment_put and rv_segment_publish by one writer at a time. */
#ifndef RV_STORE_CHUNK_H
#define RV_STORE_CHUNK_H

#include "base/spares.h"
#include "reverie/tensor.h"
#include "tensor/codec.h"

typedef struct rv_chunk rv_chunk;
typedef struct rv_memory rv_memory; /* memory.h */

typedef struct rv_chunk_column {
  rv_dtype dtype;
  uint32_t rank;        /* of a row */
  const int64_t *shape; /* of a row; lives as long as the chunk */
  size_t row_bytes;     /* strings: sizeof(rv_bytes) an element */
} rv_chunk_column;

typedef struct rv_chunk_meta {
  uint64_t key; /* identity on the wire */
  uint64_t episode_id;
  int32_t first_step, last_step; /* of the episode, inclusive */
  bool sparse;                   /* some step between them has no row */
} rv_chunk_meta;

/* The episode of rows that belong to none: those that are added without a trajectory. */
#define RV_NO_EPISODE UINT64_C(0)

rv_chunk *rv_chunk_ref(rv_chunk *chunk);
void rv_chunk_unref(rv_chunk *chunk);

/* ---- making one ---- */

/* A segment with room for `capacity` rows of each column. Columns under 256 bytes a row are interleaved by row, and under 768 where the rows are of no
 * episode, and of 2 KiB at most: items have one of them each then. Specs (rank and sizes known) are copied. */
rv_code rv_segment_new(const rv_spec *columns, size_t num_columns, size_t capacity, const rv_chunk_meta *meta, rv_chunk **out,
                       rv_error *err);
/* Where the rows of a segment that soon goes lie: in a buffer of spares, where they are of a size that those keep; or in one for one use, which is not
 * read here soon, and nowhere else. */
typedef struct rv_segment_source {
  rv_spares *spares;                            /* NULL: none */
  rv_buf *(*once)(void *context, size_t bytes); /* NULL: nobody is asked */
  void *context;
  bool by_rows; /* items have one row of each column */
} rv_segment_source;
/* *out: NULL, and RV_OK, where somebody was asked for a buffer for one use, and had none. */
rv_code rv_segment_new_from(const rv_spec *columns, size_t num_columns, size_t capacity, const rv_chunk_meta *meta,
                            const rv_segment_source *source, rv_chunk **out, rv_error *err);
bool rv_segment_is_by_rows(const rv_chunk *segment);
/* Its rows lie in such a buffer. */
bool rv_segment_is_for_once(const rv_chunk *segment);
/* Writes one row of one column at its place; row >= the published length, < capacity. String bytes are copied into the segment. */
rv_code rv_segment_put(rv_chunk *segment, size_t column, int64_t row, const rv_tensor *value, rv_error *err);
/* The same of a row that is not read soon, past the caches (base/past_caches.h); strings go as by rv_segment_put. */
rv_code rv_segment_put_for_later(rv_chunk *segment, size_t column, int64_t row, const rv_tensor *value, rv_error *err);
/* Rows below `rows` of that column may now be read, by any thread. Never goes back. */
void rv_segment_publish(rv_chunk *segment, size_t column, int64_t rows);
/* Where a row lies, to write it in place before it is published; not for strings. Rows of a column lie *stride bytes apart. */
void *rv_segment_row(rv_chunk *segment, size_t column, int64_t row, size_t *stride);
int64_t rv_segment_capacity(const rv_chunk *segment);

/* A chunk of encoded tensors. `wire`..`wire_size` is the serialized ChunkData (inside `owner`, of which a reference is taken), sent
 * again as it is; each tensor's content lies inside it too. Shapes are copied. RV_INVALID_ARGUMENT where rv_encoded_check fails or the
 * tensors' numbers of rows differ. */
rv_code rv_chunk_new_encoded(const rv_chunk_meta *meta, const rv_encoded *tensors, size_t num_tensors, rv_buf *owner,
                             const uint8_t *wire, size_t wire_size, rv_chunk **out, rv_error *err);
/* The same with a copy of the wire bytes, in one block of memory with the chunk: for small ones, which then pin no message. */
rv_code rv_chunk_new_encoded_copy(const rv_chunk_meta *meta, const rv_encoded *tensors, size_t num_tensors, const uint8_t *wire,
                                  size_t wire_size, rv_chunk **out, rv_error *err);
/* Was it made so, and do all its rows lie there as they are? */
bool rv_chunk_is_plain_copy(const rv_chunk *chunk);
/* A plain copy like `model`, which is one: its serialized ChunkData, which is given in parts, differs from the model's only in the rows and
 * in what stands before the tensors, as the caller has seen. Nothing is checked again. What does not differ they have together. One thread at a time
 * makes chunks like a model. */
rv_code rv_chunk_new_alike(rv_chunk *model, const rv_chunk_meta *meta, const rv_bytes *wire, size_t num_parts, rv_chunk **out,
                           rv_error *err);

/* ---- reading it ---- */

const rv_chunk_meta *rv_chunk_get_meta(const rv_chunk *chunk);
void rv_chunk_set_last_step(rv_chunk *segment, int32_t last_step, bool sparse); /* a segment's, by its writer */
/* The meta as it stands now: last_step and sparse of a segment move while its writer appends, the rest never does. */
rv_chunk_meta rv_chunk_load_meta(const rv_chunk *chunk);
/* The meta of some of its rows, with their own steps as far as they are known. */
rv_chunk_meta rv_chunk_meta_of_rows(const rv_chunk *chunk, int64_t first, int64_t count);
size_t rv_chunk_num_columns(const rv_chunk *chunk);
const rv_chunk_column *rv_chunk_get_column(const rv_chunk *chunk, size_t column);
int64_t rv_chunk_num_rows(const rv_chunk *chunk, size_t column); /* published */
size_t rv_chunk_memory(const rv_chunk *chunk);                   /* bytes it pins, books included */
/* Counts them in the account until the chunk goes, unless it is in one; later, what it has grown by. The chunk's store is there. */
void rv_chunk_count(rv_chunk *chunk, rv_memory *memory);
void rv_chunk_count_new(rv_chunk *chunk,
                        rv_memory *memory);      /* the same of one that only this thread has yet, in this account if in any */
bool rv_chunk_is_spilled(const rv_chunk *chunk); /* its bytes lie elsewhere (cold.h) */
size_t rv_chunk_counted(const rv_chunk *chunk);  /* in an account; 0: it is in none */

/* Copies rows [first, first + count) of a column one after another. Strings are copied as rv_bytes that point into the chunk.
 * RV_OUT_OF_RANGE; RV_DATA_LOSS: they are broken, or a spill's disk does not give them back. Encoded chunks are decoded once and kept decoded while the cache has room (rv_decode_cache). */
rv_code rv_chunk_copy_rows(rv_chunk *chunk, size_t column, int64_t first, int64_t count, void *out, rv_error *err);
/* The rows in place if they lie in memory, uncompressed, `*stride` bytes apart; NULL otherwise. Valid while the chunk is held. */
const void *rv_chunk_rows_in_place(rv_chunk *chunk, size_t column, int64_t first, int64_t count, size_t *stride);

/* For sending: the serialized ChunkData as it came, or NULL for a segment (the wire layer encodes its rows). */
rv_buf *rv_chunk_wire(const rv_chunk *chunk, const uint8_t **wire, size_t *wire_size);
/* The same of an encoded chunk that may be spilled: then of a copy. RV_DATA_LOSS: its disk does not give it back. */
rv_code rv_chunk_hold_wire(const rv_chunk *chunk, const uint8_t **wire, size_t *wire_size, rv_buf **owned_owner, rv_error *err);
/* An encoded chunk's tensor as it came; false for a segment. Borrowed from the chunk. */
bool rv_chunk_encoded(const rv_chunk *chunk, size_t column, rv_encoded *out);

/* ---- the decode cache ---- */

/* Bounds the memory of decoded chunks; one per store or client. A chunk that is decoded joins the cache it was attached to. */
typedef struct rv_decode_cache rv_decode_cache;
rv_code rv_decode_cache_new(size_t max_bytes, rv_decode_cache **out, rv_error *err);
rv_decode_cache *rv_decode_cache_ref(rv_decode_cache *cache);
void rv_decode_cache_unref(rv_decode_cache *cache);
/* Before the chunk is shared; of one that needs no decoding nothing comes of it. */
void rv_chunk_attach_cache(rv_chunk *chunk, rv_decode_cache *cache);

#endif
