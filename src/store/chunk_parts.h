/* How a chunk is built. For the files that make chunks and those that read many of them at once; everybody else has chunk.h. */
#ifndef RV_STORE_CHUNK_PARTS_H
#define RV_STORE_CHUNK_PARTS_H

#include <stdatomic.h>
#include <string.h>

#include "base/list.h"
#include "store/chunk.h"
#include "store/cold.h"

/* Where the rows of a column lie: row i at base + i * stride. */
typedef struct rv_lane {
  const uint8_t *base; /* NULL: not here (cold.h), or compressed, see rv_chunk_decode */
  size_t stride;       /* 0: not here, and compressed */
  size_t row_bytes;
  atomic_int_least64_t published;
} rv_lane;

/* What is asked of every chunk that is drawn or inserted comes first: these bytes are mostly in one line of the caches. */
struct rv_chunk {
  atomic_size_t refs;
  rv_lane *lanes;
  uint32_t num_columns;
  bool is_segment;
  bool has_strings;
  bool in_owner;              /* of an encoded one: its books stand behind its bytes, */
  bool decodes;               /* and some tensor is read by decoding it */
  atomic_uint_least64_t held; /* where the first table that holds it finds its hold (holds.c); 0: none does */
  atomic_uint more_holds;     /* other tables that hold it */
  atomic_uint num_sparse;     /* of all these: those for which it is mostly dead */
  rv_chunk_column *columns;
  _Atomic(rv_memory *) account; /* where its bytes are counted; NULL: nowhere yet */
  atomic_size_t counted;
  size_t spilled;               /* of its bytes: those that lie elsewhere (cold.h) */
  atomic_uint_least64_t logged; /* the mark of a log of chunks (persist/chunk_log.c); 0: none */
  rv_chunk_meta meta;           /* a segment's last_step and sparse change: read and written with __atomic */
  int32_t *steps;      /* of each row, -1: unknown; only where rows were moved here from other chunks (compact.c), else NULL */
  atomic_uint kept;    /* references of those who only know it by its key (rv_chunk_keep) */
  atomic_uint written; /* so many rows, of an encoded one 1, stand in a file or stood once (persist/chunk_log.c) */
};

/* One allocation holds `size` bytes of the kind's own struct (which begins with rv_chunk), lanes, columns and shapes; 0 on
 * overflow. */
size_t rv_chunk_books_size(size_t size, size_t num_columns, size_t num_sizes);
/* Lays lanes and columns out behind the struct; returns where the shapes go. */
int64_t *rv_chunk_books_init(rv_chunk *chunk, size_t size, size_t num_columns, const rv_chunk_meta *meta, bool is_segment);

/* The step of the episode that a row belongs to; -1: unknown. */
int64_t rv_chunk_row_step(const rv_chunk *chunk, int64_t row);

/* Are its rows as they are, here or in a file? */
bool rv_chunk_is_raw(const rv_chunk *chunk, size_t column);
/* Decoded rows of a column whose lane has no base, of no segment; the caller drops the reference. */
rv_code rv_chunk_decode(rv_chunk *chunk, size_t column, rv_buf **out, rv_error *err);

/* Many references at once. */
void rv_chunk_ref_many(rv_chunk *chunk, size_t n);
void rv_chunk_unref_many(rv_chunk *chunk, size_t n);
/* False: it was the last reference, and is the caller's still, who drops it where freeing rows takes nobody's time. */
bool rv_chunk_unref_unless_last(rv_chunk *chunk);
/* A reference of whoever loads a store, from which none of its bytes is read: it may move meanwhile (cold.h). Other references are made of it only
 * between rv_memory_begin_claiming and the end of that. */
void rv_chunk_keep(rv_chunk *chunk);
void rv_chunk_end_keeping(rv_chunk *chunk);
/* How many tables hold it; others' may come and go meanwhile. */
static inline unsigned rv_chunk_holds(const rv_chunk *chunk)
{
  unsigned first = atomic_load_explicit(&chunk->held, memory_order_relaxed) != 0;
  return first + atomic_load_explicit(&chunk->more_holds, memory_order_relaxed);
}
static inline size_t rv_chunk_refs(const rv_chunk *chunk)
{
  return atomic_load_explicit(&chunk->refs, memory_order_acquire);
}

/* ---- segments ---- */

/* A segment that nobody else refers to, made empty for new rows under another identity. False: it cannot be used again (strings).
 */
bool rv_segment_reuse(rv_chunk *segment, const rv_chunk_meta *meta);
/* Copies rows of every column of `from` (same columns) to row `to` of the segment; those that a column has not published are cleared there.
 * Unpublished until rv_segment_publish. */
rv_code rv_segment_copy_rows(rv_chunk *segment, int64_t to, rv_chunk *from, int64_t first, int64_t count, rv_error *err);
/* Copies n rows of a column that lie one after another (strings: their bytes too) to row `to` and those behind it. Sizes are the
 * caller's to check. */
rv_code rv_segment_fill(rv_chunk *segment, size_t column, int64_t to, const void *rows, size_t n, rv_error *err);
/* Halves of rv_chunk_movable and rv_chunk_move. */
bool rv_segment_movable(const rv_chunk *chunk, const uint8_t **bytes, size_t *size);
void rv_segment_move(rv_chunk *chunk, rv_cold_place *owned_place, rv_moved *old);
bool rv_encoded_movable(const rv_chunk *chunk, const uint8_t **bytes, size_t *size);
void rv_encoded_move(rv_chunk *chunk, rv_cold_place *owned_place, rv_moved *old);
/* Of one that has moved: where, and where in there row 0 of a column is that has rows of some bytes, and is not compressed. */
const rv_cold_place *rv_segment_place(const rv_chunk *chunk);
const rv_cold_place *rv_encoded_place(const rv_chunk *chunk);
const uint8_t *rv_segment_rows_there(const rv_chunk *chunk, size_t column);
const uint8_t *rv_encoded_rows_there(const rv_chunk *chunk, size_t column);
bool rv_chunk_same_columns(const rv_chunk *a, const rv_chunk *b);
/* Room for the steps of rows that come from other chunks; before the segment is shared. */
rv_code rv_segment_keep_steps(rv_chunk *segment, rv_error *err);
size_t rv_segment_row_bytes(const rv_chunk *segment); /* of all columns, a string as an rv_bytes */
/* Of the strings of one published row; 0: the column has none. */
size_t rv_segment_string_bytes(const rv_chunk *segment, size_t column, int64_t row);
void rv_segment_free(rv_chunk *segment);
/* A stream's, for the rows of chunks that it brings (joined.h); by whom it is filled. */
void rv_segment_set_joined(rv_chunk *segment);
bool rv_segment_is_joined(const rv_chunk *segment);
uint32_t *rv_segment_kept(rv_chunk *segment); /* how many such chunks their stream keeps */
size_t rv_segment_memory(const rv_chunk *segment);
void rv_segment_touch(rv_chunk *segment); /* one without rows (rv_pages_touch) */

/* ---- encoded chunks ---- */

void rv_encoded_free(rv_chunk *chunk);
/* Tells the chunk from one that was at its address, with its key, before: `fresh` where it has no number yet, and keeps it; 0: none. Segments
 * have none, and need none: their keys are not chosen by others. Any thread. */
uint32_t rv_chunk_number(rv_chunk *chunk, uint32_t fresh);
/* Fetches what letting go of the chunk, or sharing its bytes, needs and is not in its books. */
void rv_chunk_prefetch_owner(const rv_chunk *chunk);
size_t rv_encoded_memory(const rv_chunk *chunk);

/* A column of an encoded chunk in the decode cache. */
typedef struct rv_decoded {
  rv_link link; /* in the cache's list, used longest ago first; by itself while buf is NULL */
  rv_buf *buf;
  bool joined; /* it ever was in the list: set by whoever holds the chunk, so that its last holder need not ask */
} rv_decoded;

/* The caller gets a reference, or NULL. */
rv_buf *rv_decode_cache_get(rv_decode_cache *cache, rv_decoded *entry);
/* Keeps `buf` if there is room; if the entry was filled meanwhile, hands that one back and drops the caller's. Returns the one to
 * use. */
rv_buf *rv_decode_cache_put(rv_decode_cache *cache, rv_decoded *entry, rv_buf *owned_buf);
void rv_decode_cache_forget(rv_decode_cache *cache, rv_decoded *entry);
size_t rv_decode_cache_bytes(rv_decode_cache *cache);

#endif
