/* Small chunks that came over the wire, side by side: a chunk by itself costs some 600 bytes of books, which for a transition is ten times its
 * rows.
 *
 * A stream of inserts copies the rows of such chunks into segments of its own, one after another as they come: chunks of the same columns and of
 * one episode, as long as their steps go on. Items then refer to the segments' rows: what was several chunks' may be one run of one segment.
 * Nobody else sees a difference: of a segment whatever is sent, saved or moved is what items need. Where such runs are short, as episodes of one
 * step are, chunks stay by themselves. */
#ifndef RV_STORE_JOINED_H
#define RV_STORE_JOINED_H

#include "base/random.h"
#include "store/chunk.h"

typedef struct rv_table rv_table;

enum {
  RV_JOINED_RUNS = 16,           /* that a stream has side by side: plain Reverb has a chunk for each column */
  RV_JOINED_BYTES = 1 << 14,     /* of a segment's rows, at most */
  RV_JOINED_ROW_BYTES = 512,     /* larger rows are worth their books, and one that lives would keep too much */
  RV_JOINED_CHUNK_BYTES = 4096,  /* of a chunk's rows together */
  RV_JOINED_DECODED_BYTES = 1024 /* and of one that has to be decoded for it */
};

/* Chunks of the same columns whose steps go on. */
typedef struct rv_joined_run {
  rv_chunk *kind;    /* has those columns; one reference; NULL: the run is free */
  rv_chunk *segment; /* the newest, one reference, be it of a run before; NULL: none yet */
  int64_t rows;      /* in it */
  int64_t seen;      /* rows of the run, joined or not */
  int64_t before;    /* and of the run before it; 0: there was none */
  uint64_t episode;
  uint64_t used;     /* when, as a count of chunks */
  int32_t last_step; /* of the newest chunk */
  bool gaps;         /* it leaves steps out: each row's is kept, as it is of rows of no episode */
} rv_joined_run;

/* One stream's. One thread at a time. */
typedef struct rv_joined {
  rv_joined_run run[RV_JOINED_RUNS];
  uint32_t next; /* the one that is expected: chunks of several columns come in turns */
  uint64_t chunks;
  rv_random random;
  rv_memory *memory; /* where segments are counted */
  /* What its rows are for, which says how many a segment may have: the table, and how many streams there are. NULL: it is not known yet, and nothing is
   * joined. */
  rv_table *table;
  size_t streams;
  size_t coming; /* so many chunks like the next follow it, though not all need be of its run */
} rv_joined;

void rv_joined_init(rv_joined *joined, rv_memory *memory, uint64_t seed);
/* Lets its segments go; what refers to them stays. Again is fine. */
void rv_joined_fini(rv_joined *joined);

/* What it has besides segments of which chunks are kept (rv_joined_keep), in bytes. */
size_t rv_joined_bytes(const rv_joined *joined);

/* May chunks like this one, which came encoded, be joined? Those with few bytes of rows, of no strings; fewer where they have to be decoded. */
bool rv_joined_takes(const rv_chunk *like);

/* Where a chunk's rows are. */
typedef struct rv_chunk_place {
  uint64_t key; /* as it was sent */
  rv_chunk *chunk;
  int64_t first, rows; /* all that the chunk has; of a joined one its own, in a segment that is `chunk` here */
  bool is_joined;
} rv_chunk_place;

static inline rv_chunk_place rv_chunk_place_whole(rv_chunk *chunk)
{
  return (rv_chunk_place){.key = rv_chunk_get_meta(chunk)->key, .chunk = chunk, .rows = rv_chunk_num_rows(chunk, 0)};
}

/* Copies the rows of a chunk like `like`, which may be joined: one pointer for each of its columns, where all of the column's rows lie. False: it
 * is to be a chunk of its own (its steps are not its rows', runs are short, a segment has no room for two such, there is no memory). The caller gets a
 * reference. */
bool rv_joined_put(rv_joined *joined, rv_chunk *like, const rv_chunk_meta *meta, const uint8_t *const *columns,
                   rv_chunk_place *out);

/* How many a stream keeps that lie in one segment: true where there was none before, or is none left. One thread at a time. */
bool rv_joined_keep(rv_chunk *segment);
bool rv_joined_let_go(rv_chunk *segment);

#endif
