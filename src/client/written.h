/* A chunk as its writer sees it: a segment that rows are put into, complete one day, and encoded when an item that goes to a
 * server needs it.
 *
 * It is pinned by whatever may still lead to a new reference (spans of history, being open, items that wait for it), by the
 * writer's thread alone, and referenced besides by items in flight, from any thread. */
#ifndef RV_CLIENT_WRITTEN_H
#define RV_CLIENT_WRITTEN_H

#include "client/chunk_rule.h"
#include "client/insert_stream.h"

typedef struct rv_column rv_column;

typedef struct rv_written {
  atomic_size_t refs; /* one for all pins together */
  uint32_t pins;
  rv_chunk *segment;        /* NULL once no pin is left */
  rv_stream_chunk *encoded; /* NULL until needed; only of a complete chunk */
  uint64_t key;
  rv_chunk_rule *rule;           /* of its column, or of the writer where columns share chunks */
  bool complete;                 /* no more rows come */
  uint32_t rows;                 /* of its longest column */
  int64_t first_step, last_step; /* of the episode */
  /* Items that are not settled. Changed under the writer's mutex, from 0 by the writer's thread alone: there it may be read
   * without, and as long as it is 0 nobody else looks at `bytes`. */
  atomic_uint in_flight;
  size_t bytes;                  /* of rows put in so far */
  uint64_t mark;                 /* serial of the item that is being made, once it was seen to need this chunk, */
  uint32_t place;                /* which is that one among those it needs, */
  uint32_t item_rows;            /* and the longest run of its rows that it needs */
  struct rv_written *next_spare; /* of its column's */
  uint64_t group; /* number of the columns that share it (rv_group); 0: it has one column, or no other is like it */
  bool as_is;     /* not compressed where that is left to us */
  uint32_t num_columns;
  rv_column *columns[]; /* tensor i of the chunk is a run of rows of this column */
} rv_written;

/* Others of its columns may be made of what it leaves. */
static inline bool rv_written_has_likes(const rv_written *written)
{
  return written->num_columns == 1 || written->group != 0;
}

/* A segment with room for `rows` rows of the columns, whose dtypes and shapes are known: of a buffer for one use, where the source has one; the last
 * segment of these columns, if it fits; or of spares. One reference, one pin. */
rv_code rv_written_new(rv_column *const *columns, uint32_t num_columns, uint64_t group, uint32_t rows, uint64_t key,
                       uint64_t episode_id, int64_t step, const rv_segment_source *source, rv_written **out, rv_error *err);
rv_written *rv_written_ref(rv_written *written);
void rv_written_unref(rv_written *written); /* any thread */
/* The same on the writer's thread: if it was the last reference, the column may use the memory again. */
void rv_written_recycle(rv_written *written);
void rv_written_free_spares(rv_column *column);
void rv_written_pin(rv_written *written);
void rv_written_unpin(rv_written *written);
/* What the chunk's range of steps says from now on. */
void rv_written_set_steps(rv_written *written);

/* Memory that encoding uses again. */
typedef struct rv_encode_room {
  rv_pieces pieces;
  rv_writer_buf scratch;
  rv_stream_spares spares;
  uint64_t forms; /* of chunks, so far */
} rv_encode_room;
void rv_encode_room_init(rv_encode_room *room);
void rv_encode_room_fini(rv_encode_room *room);

/* Makes `encoded` of a complete chunk; fine when it is there. `delta` and `compression` as in the writer's config. */
rv_code rv_written_encode(rv_written *written, bool delta, int compression, rv_encode_room *room, rv_error *err);

#endif
