/* Chunks that lie elsewhere than in memory (persist/spill.c): which ones may, and how they get there.
 *
 * A table that is told to keeps a list of the chunks it holds, the one that it took first at the head: that is the coldest. What moves is
 * a chunk's bytes, to where its mover has written them; its books stay, and its readers see no difference. A chunk moves under the locks
 * of the tables that hold it, when nobody but these and the mover refers to it: nobody else can be reading it then, and everybody who comes
 * later comes through one of these locks. It never moves back; its rows may, when few of them are left (compact.c). */
#ifndef RV_STORE_COLD_H
#define RV_STORE_COLD_H

#include "store/chunk.h"

typedef struct rv_table rv_table;
typedef struct rv_store rv_store;

/* Where a chunk's bytes lie in a file. buf.data names them, as whoever wrote them knows; they are read by these alone, in any thread. Those that say
 * how it went: 0, or an errno. */
typedef struct rv_cold_place {
  rv_buf buf;
  const char *directory; /* of the file; as long as the place is there */
  int (*read)(const struct rv_cold_place *place, const uint8_t *from, void *to, size_t size);
  /* They can be read at `from` for now, as strings are that point there. */
  int (*bring)(const struct rv_cold_place *place, const uint8_t *from, size_t size);
  void (*ask)(const struct rv_cold_place *place, const uint8_t *from, size_t size); /* the disk for them, and waits for nothing */
} rv_cold_place;

enum { RV_COLD_OTHERS = 7 }; /* a chunk that more tables hold stays where it is */

typedef struct rv_cold {
  rv_chunk *chunk; /* one reference */
  const uint8_t *bytes;
  size_t size;
  rv_cold_place *place; /* set by the mover: the same bytes elsewhere, its reference; NULL: they could not be written */
  rv_table *others[RV_COLD_OTHERS]; /* tables that hold it, too; set by rv_table_leave_busy */
  size_t num_others;
} rv_cold;

/* The table keeps the list from now on. */
void rv_table_keep_cold(rv_table *table);
/* The coldest, at most `most` and, after the first, `most_bytes`. Among them are chunks that other tables hold, too, whoever reads them there. */
size_t rv_table_take_cold(rv_table *table, rv_cold *cold, size_t most, size_t most_bytes);
/* Of those, which other tables of the store hold, too: only what can be moved, as far as is known now, is left, in the same order; how many. Where it is
 * not called, such chunks are not moved. */
size_t rv_table_leave_busy(rv_table *table, rv_store *store, rv_cold *cold, size_t n);
/* Moves those with a place, drops all references, and returns how many bytes of memory were won. */
size_t rv_table_move_cold(rv_table *table, rv_cold *cold, size_t n);
/* Live rows move back into memory from chunks that lie elsewhere and are mostly dead, so that these go: a little more than `bytes` of rows,
 * for which the caller waits where they lie. `at_once`: as soon as there is one such chunk, not only where there are many. How many bytes
 * were moved; 0: nothing is to be done. */
size_t rv_table_compact_spilled(rv_table *table, size_t bytes, bool at_once);

/* ---- for the files of chunks ---- */

enum { RV_COLD_LEAST = 512 /* smaller ones are worth no move; rows of no more share segments (joined.h) */ };

/* What may move of it; false: nothing. */
bool rv_chunk_movable(const rv_chunk *chunk, const uint8_t **bytes, size_t *size);
/* Nobody reads it meanwhile. The reference to the place is the chunk's; where the bytes lay before is *old's to free. */
typedef struct rv_moved {
  rv_buf *buf; /* one reference, or NULL */
  void *block; /* of `size`, from rv_pages_alloc, or NULL */
  size_t size;
} rv_moved;
void rv_chunk_move(rv_chunk *chunk, rv_cold_place *owned_place, rv_moved *old);

/* ---- reading one that lies elsewhere (spilled.c) ----
 *
 * No lane says where its rows are, so that everybody who reads in place does as with compressed ones: he asks for a copy. */

/* The disk is told to bring these rows, which are in the chunk, if it has not; of compressed ones all. */
void rv_chunk_ask_for_rows(const rv_chunk *chunk, size_t column, int64_t first, int64_t count);
void rv_chunk_ask_for_all(const rv_chunk *chunk);
/* Rows that are not compressed, and are in the chunk. RV_DATA_LOSS: the disk does not give them back. */
rv_code rv_chunk_read_rows(const rv_chunk *chunk, size_t column, int64_t first, int64_t count, void *out, rv_error *err);
/* A copy of bytes that lie with it. RV_DATA_LOSS. */
rv_code rv_chunk_read_back(const rv_chunk *chunk, const uint8_t *bytes, size_t size, rv_buf **out, rv_error *err);
/* They can be read where they lie, for now. RV_DATA_LOSS. */
rv_code rv_chunk_bring(const rv_chunk *chunk, const uint8_t *bytes, size_t size, rv_error *err);

#endif
