/* A writer's column: its dtype and shape, and which chunk holds which of its rows.
 *
 * Rows that are still kept lie in spans: runs of consecutive rows in consecutive places of one chunk. A step in which the column
 * has no cell ends a span. */
#ifndef RV_CLIENT_COLUMN_H
#define RV_CLIENT_COLUMN_H

#include "client/chunk_rule.h"
#include "client/written.h"
#include "reverie/writer.h"
#include "wire/chunk_stamp.h"

enum { RV_MAX_COLUMNS = 65535, RV_LABEL_MAX = 160 };

typedef struct rv_group rv_group; /* writer.h */

typedef struct rv_row_span {
  int64_t first; /* row of the writer */
  uint32_t count;
  uint32_t offset; /* row of the chunk */
  uint32_t tensor;
  rv_written *chunk; /* one pin */
} rv_row_span;

/* Encoded small, or as it is: found out by a trial now and then. */
typedef struct rv_trial {
  bool snappy;
  uint32_t in_a_row;    /* trials that said so */
  uint32_t chunks_left; /* until the next trial */
} rv_trial;

struct rv_column {
  uint32_t number;
  char *name;     /* NULL: called by its number */
  bool known;     /* the first cell has come */
  bool tentative; /* ... in the append that is being made */
  rv_chunk_column spec;
  int64_t *shape;
  bool set_aside; /* while the columns begin anew (writer_anew.c): what it was stands here, */
  rv_chunk_column spec_aside;
  int64_t *shape_aside;
  uint32_t keep;
  rv_chunk_rule rule;
  rv_trial trial;
  rv_group *group;    /* that its next rows go into a chunk with; NULL: it has chunks of its own */
  bool grouped;       /* it has come, and was given a group if it may have one */
  bool apart;         /* it is to be in none, whenever it comes */
  bool leaves;        /* while groups are divided */
  bool used;          /* some item has needed it */
  uint32_t item_rows; /* of the item that is being made, where item_mark is its serial */
  uint64_t item_mark;
  rv_chunk_stamp stamp; /* of the chunks that it has alone, or that it is the first column of */
  uint64_t stamp_form;  /* their form (insert_stream.h), */
  uint64_t stamp_group; /* and their columns (rv_written.group) */
  rv_row_span *spans;   /* oldest first, from `head` on */
  size_t head, num_spans, capacity;
  rv_written *open; /* takes the next row, as tensor `tensor`; NULL: none */
  uint32_t tensor, open_rows;
  rv_chunk *spare;           /* a segment that can be used again, by the same columns */
  uint64_t spare_group;      /* which */
  rv_written *spare_written; /* memory of such chunks, likewise: a list, all for as many columns */
  size_t num_spare_written;
  int64_t last_row;  /* newest row with a cell; -1 */
  int64_t first_row; /* no row before it is left */
  uint64_t mark;     /* serial of the append that has a cell for it */
};

rv_code rv_column_new(uint32_t number, uint32_t keep, uint32_t chunk_length, rv_column **out, rv_error *err);
void rv_column_free(rv_column *column); /* all rows have been forgotten (rv_column_expire) */
/* "column ('a',)" or "column 3". Returns out. */
const char *rv_column_label(const rv_column *column, char out[RV_LABEL_MAX]);
/* Takes the value's dtype and shape for the column's own (known, tentative). */
rv_code rv_column_fix(rv_column *column, const rv_tensor *value, rv_error *err);
void rv_column_unfix(rv_column *column);
/* Nothing is known of it from now on but its rows; what was known comes back, or is forgotten together with the rows before `row`. */
void rv_column_set_aside(rv_column *column);
void rv_column_bring_back(rv_column *column);
void rv_column_forget_aside(rv_column *column, int64_t row);
/* RV_INVALID_ARGUMENT: other dtype or shape than the first cell's. */
rv_code rv_column_check(const rv_column *column, const rv_tensor *value, rv_error *err);
rv_spec rv_column_spec(const rv_column *column);

/* ---- rows ---- */

/* Room for one more span, so that rv_column_add_row cannot fail. */
rv_code rv_column_reserve(rv_column *column, rv_error *err);
/* The row is the next of the open chunk. */
void rv_column_add_row(rv_column *column, int64_t row);
/* Forgets rows below `row`. */
void rv_column_expire(rv_column *column, int64_t row);
const rv_row_span *rv_column_find(const rv_column *column, int64_t row); /* NULL: missing or expired */

#endif
