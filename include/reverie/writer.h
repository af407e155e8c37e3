/* Trajectory writer: a stream of steps, and items that refer to any of the recent ones.
 *
 * Append steps cell by cell; each step adds a row to every column it gives. Items are trajectories: for each of their columns a
 * list of rows of the writer's columns, in any order, with gaps, overlapping other items at will; data is sent once. An append or
 * create_item never waits. A writer belongs to one thread at a time; rv_writer_get_status may be called from any, also
 * while the writer is being closed. */
#ifndef REVERIE_WRITER_H
#define REVERIE_WRITER_H

#include "reverie/client.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rv_writer rv_writer;

typedef enum rv_compression {
  RV_COMPRESSION_AUTO = 0, /* snappy if a trial saves 20 % and 256 bytes a chunk, tried again now and then */
  RV_COMPRESSION_NONE = 1, /* one snappy literal: every reader takes it, nothing is compressed */
  RV_COMPRESSION_SNAPPY = 2
} rv_compression;

typedef struct rv_writer_config {
  size_t size;                  /* sizeof(rv_writer_config) */
  uint32_t num_keep_alive_refs; /* rows of each column that items may still refer to, >= 1 */
  uint32_t chunk_length;        /* rows a chunk; 0: chosen by the writer, <= num_keep_alive_refs. Ignored in process */
  /* Every step has every column, and a chunk holds them all; no partial steps. Without it columns of small rows share chunks while the same
   * items need them. */
  bool columns_share_chunks;
  bool delta_encoded; /* integer columns of rank >= 1 are sent as differences from row to row */
  rv_compression compression;
  size_t max_in_flight_bytes;   /* of what was appended for items that are not confirmed; 0: 64 MiB */
  uint32_t max_in_flight_items; /* 0: 100,000 */
  bool no_validation;           /* do not fetch or check table signatures on this side */
  bool signatures_of_steps;     /* a signature may also describe one row of each column instead of the whole (Reverb's Writer) */
} rv_writer_config;

/* Does not wait: a remote writer begins to ask the server what its tables expect. Items that are created before the answer is
 * there are checked when it comes, and then fail like items that the server refused. */
RV_API rv_code rv_writer_new(rv_client *client, const rv_writer_config *config, rv_writer **out, rv_error *err);
/* Waits until the tables' signatures are known, so that create_item can tell at once what does not fit. What is known goes until the connection
 * is lost: items that come after that are checked by what the server says that is there then, as above. Items that were checked before go to that
 * server as they are: it looks at their dtypes and shapes, and has no names to compare. */
RV_API rv_code rv_writer_wait_ready(rv_writer *writer, const rv_wait *wait, rv_error *err);
/* Drops what was not sent or confirmed, without waiting for the server, and logs a warning with how many items those were, and one with what rv_writer_take_failure
 * has. What was appended can still be read (rv_writer_row); appending, creating and flushing is RV_FAILED_PRECONDITION from then on. Idempotent. */
RV_API void rv_writer_close(rv_writer *writer);
/* Closes it if need be. */
RV_API void rv_writer_free(rv_writer *writer);

/* One cell of a step. Columns are numbered by the caller, 0, 1, 2 ... without gaps (at most 65,535); a new number may come late.
 * The first cell fixes the column's dtype and shape for the writer's life. */
typedef struct rv_cell {
  uint32_t column;
  rv_tensor value;
} rv_cell;

/* The column's name in error messages ("('obs', 'pixels')"); without it, its number. */
RV_API rv_code rv_writer_name_column(rv_writer *writer, uint32_t column, const char *name, rv_error *err);
/* Keep-alive references and chunk length (0: chosen) of one column, also one that has not come yet. RV_FAILED_PRECONDITION
 * on a column whose chunk length was given, and that has unfinished rows: flush first. */
RV_API rv_code rv_writer_configure_column(rv_writer *writer, uint32_t column, uint32_t num_keep_alive_refs, uint32_t chunk_length,
                                          rv_error *err);

/* Adds the cells to the open step and, unless `partial_step`, closes it. Columns without a cell have no row in that step. All or
 * nothing: on RV_INVALID_ARGUMENT (wrong dtype or shape, a cell already set in the open step) the writer is as it was.
 * RV_RESOURCE_EXHAUSTED: max_in_flight_bytes. Data is copied. */
RV_API rv_code rv_writer_append(rv_writer *writer, const rv_cell *cells, size_t num_cells, bool partial_step, rv_error *err);

/* Rows are numbered by step: 0 is the first step since the writer was made or its buffers were cleared. `first`, then
 * first + stride, ... `count` of them; stride may be negative or zero. */
typedef struct rv_run {
  uint32_t column;
  uint32_t count;
  int64_t first;
  int64_t stride;
} rv_run;

typedef struct rv_item_column {
  const rv_run *runs; /* one after another along dimension 0 */
  size_t num_runs;
  bool squeeze; /* exactly one row in all; read without the time dimension */
  /* Its place in the item's nest, "obs/pixels" or "actions/0"; compared with the signature's (rv_signature_check_names). NULL: the
   * column is matched by its order alone. Read during create_item only. */
  const char *name;
} rv_item_column;

/* The naming (reverie/client.h) of the items created from now on; 0, with which a writer begins, says nothing. */
RV_API void rv_writer_set_naming(rv_writer *writer, uint64_t naming);
/* Queues an item. It is sent as soon as the chunks it needs are complete: at once where the chunk length is chosen and no run
 * is longer than 15 rows; else possibly some steps later, or at the next flush. Items of one writer are inserted in the order of
 * their creation, table by table. *key may be NULL. RV_INVALID_ARGUMENT: a row that is
 * missing or no longer kept, columns that do not fit the table's signature, a priority that is NaN, an empty trajectory;
 * RV_NOT_FOUND: no such table; RV_RESOURCE_EXHAUSTED: over max_in_flight_*: flush, or slow down. Errors that the server found
 * later (a refused priority, a table that is gone) are returned by the next call on the writer, once, and again by flush until
 * the item is dropped with rv_writer_discard_failed. What no call has returned is told by the writer's end (rv_writer_take_failure). */
RV_API rv_code rv_writer_create_item(rv_writer *writer, const char *table, double priority, const rv_item_column *columns,
                                     size_t num_columns, uint64_t *key, rv_error *err);

/* Completes the chunks that all but the last keep_in_flight items need, and waits until at most that many are unconfirmed.
 * RV_DEADLINE_EXCEEDED says what it waits for; items go on in the background. */
RV_API rv_code rv_writer_flush(rv_writer *writer, uint32_t keep_in_flight, const rv_wait *wait, rv_error *err);
/* Flushes everything, then begins a new episode; with clear_buffers the history is emptied and row numbers start again at 0. On
 * failure nothing is reset. An open step is closed. */
RV_API rv_code rv_writer_end_episode(rv_writer *writer, bool clear_buffers, const rv_wait *wait, rv_error *err);
/* Forgets items that failed for good, so that the writer can go on. Returns how many. */
RV_API size_t rv_writer_discard_failed(rv_writer *writer);

/* For whoever leaves: as a flush of everything, but an item that the server refused does not end the wait for the others, and is not returned. */
RV_API rv_code rv_writer_settle(rv_writer *writer, const rv_wait *wait, rv_error *err);
/* The error of the first refused item that no call has returned or counted ("and 3 more"), and how many more there are; RV_OK: there is none.
 * Flush goes on returning such items until they are discarded, the next call does not. Waits for nothing; any thread, also after close.
 * What nobody takes is logged as a warning by close and free. */
RV_API rv_code rv_writer_take_failure(rv_writer *writer, rv_error *err);

/* ---- what the writer knows ---- */

RV_API int64_t rv_writer_num_rows(const rv_writer *writer);      /* incl. an open step */
RV_API int64_t rv_writer_episode_steps(const rv_writer *writer); /* completed steps of this episode */
RV_API uint64_t rv_writer_episode_id(const rv_writer *writer);
RV_API bool rv_writer_step_is_open(const rv_writer *writer);

typedef enum rv_row_state { RV_ROW_PRESENT = 0, RV_ROW_MISSING = 1, RV_ROW_EXPIRED = 2 } rv_row_state;
RV_API rv_row_state rv_writer_row_state(const rv_writer *writer, uint32_t column, int64_t row);
/* dtype and shape of a column's rows; shape points into the writer. RV_NOT_FOUND: no cell has come yet. */
RV_API rv_code rv_writer_column_spec(const rv_writer *writer, uint32_t column, rv_spec *out);
/* The row's value; data and shape point into the writer and are valid until its next append, end_episode or free (strings until
 * the next rv_writer_row). RV_INVALID_ARGUMENT for a row that is missing or expired; RV_FAILED_PRECONDITION in a forked child, which need
 * not have its memory. */
RV_API rv_code rv_writer_row(rv_writer *writer, uint32_t column, int64_t row, rv_tensor *out, rv_error *err);

typedef struct rv_writer_status {
  size_t size; /* sizeof(rv_writer_status) */
  int64_t items_created;
  int64_t items_confirmed;
  int64_t items_in_flight; /* queued or sent, not confirmed */
  int64_t items_failed;
  int64_t bytes_in_flight;
  int64_t bytes_sent; /* encoded */
  int64_t reconnects;
  char state[512]; /* for people: "connected", "reconnecting to host:port (connection refused)", "in process" */
} rv_writer_status;
RV_API void rv_writer_get_status(rv_writer *writer, rv_writer_status *out);

#ifdef __cplusplus
}
#endif
#endif
