/* What the files of the log of chunks share: chunk_log.c writes what is not written yet, chunk_log_rounds.c goes from one round to the next. */
#ifndef RV_PERSIST_CHUNK_LOG_PARTS_H
#define RV_PERSIST_CHUNK_LOG_PARTS_H

#include "base/map.h"
#include "persist/chunk_log.h"
#include "persist/key_set.h"

#define RV_LOG_NONE UINT32_MAX

/* What a chunk, or a piece of one, is written as. */
typedef struct rv_log_place {
  uint64_t key;
  uint32_t file, record; /* of a lasting log; RV_LOG_NONE: it is not written, it has no key */
} rv_log_place;

/* Rows of a segment that are written, as one chunk. */
typedef struct rv_log_piece {
  rv_log_place at;
  int64_t first, rows;
} rv_log_piece;

/* By first row, without overlaps. */
typedef struct rv_log_pieces {
  rv_log_piece *pieces;
  uint32_t count, capacity;
} rv_log_pieces;

/* What is written of a segment. */
typedef struct rv_log_rows {
  rv_log_pieces all; /* rows of all its columns */
  uint32_t num_columns;
  rv_log_pieces by_column[]; /* rows that some columns do not have: of each column alone */
} rv_log_rows;

typedef struct rv_log_entry {
  uint64_t
      identity; /* the chunk's address, or in a log that does not last its own key and number: see find_number; 0: it is free */
  rv_log_place at;   /* of a chunk that is no segment; of a free entry, `record` is the next free one */
  rv_log_rows *rows; /* of a segment, once some are written */
} rv_log_entry;

struct rv_chunk_log {
  rv_chunk_sink sink;
  const rv_env *env;
  rv_map by_address; /* to the entry's number; where it lasts, unused */
  rv_key_set keys;   /* that are taken */
  rv_log_entry *entries;
  size_t count, capacity;
  uint32_t next_number; /* of chunks that have none (rv_chunk_number) */
  rv_writer_buf scratch;
  size_t bytes_again; /* rv_chunk_log_bytes_again */
  uint64_t mark;      /* of chunks that are written by their own keys, and have no entries; 0: none are */
  /* where it lasts */
  rv_chunk_files *files; /* NULL: it does not */
  uint32_t tag;          /* of its marks in chunks */
  uint32_t file;         /* that the round writes to */
  uint32_t free_entry;   /* the first; RV_LOG_NONE: none */
};

/* It is taken from here on. */
rv_code rv_chunk_log_keep_key(rv_chunk_log *log, uint64_t key, rv_error *err);
/* The chunk has none yet. */
rv_code rv_chunk_log_add(rv_chunk_log *log, rv_chunk *chunk, uint32_t *number, rv_error *err);
void rv_log_rows_free(rv_log_rows *rows); /* NULL is fine */

#endif
