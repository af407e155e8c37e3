/* The writer behind the opaque rv_writer, and what its files share.
 *
 *   writer.c         life, flush, end_episode, what it knows
 *   writer_append.c  steps into columns, columns into chunks
 *   writer_anew.c    columns that begin anew, with other dtypes and shapes
 *   writer_shares.c  which columns share a chunk
 *   writer_item.c    create_item: rows into slices, what is checked before anything is queued
 *   writer_local.c   items into tables of this process
 *   writer_remote.c  items into the insert stream, once their chunks are complete and the tables are known
 *   writer_tables.c  asking the server what its tables expect, without waiting for it
 *   writer_describe.c what they wait for, in words
 *   writer_flight.c  items between create_item and their end: counts, bounds, failures
 *
 * Everything belongs to the writer's thread but what stands below `mutex`, and `stream`, which has its own ways. */
#ifndef RV_CLIENT_WRITER_H
#define RV_CLIENT_WRITER_H

#include "base/random.h"
#include "client/client.h"
#include "client/column.h"
#include "client/item_form.h"
#include "reverie/writer.h"
#include "wire/column_names.h"

typedef struct rv_tables_fetch rv_tables_fetch;
typedef struct rv_remote_item rv_remote_item;

/* A table that items were created for. */
typedef struct rv_writer_table {
  char *name;
  rv_table *local;           /* in process */
  const rv_table_info *info; /* elsewhere; in the writer's snapshot; NULL: not known */
  rv_column_names *names;    /* of its signature; NULL: none, or not known */
} rv_writer_table;

/* The trajectory that is being made; its arrays are used again. */
typedef struct rv_parts {
  rv_slice *slices;
  rv_written **owners; /* of each slice */
  size_t num_slices, slice_room;
  rv_trajectory_column *columns; /* spec, length, squeeze, slices of each */
  const rv_item_column *given;   /* while create_item runs */
  uint32_t *column_slices;       /* the number of slices again, and the squeeze, as rv_trajectory_desc wants them */
  bool *squeeze;
  rv_wire_slice *wire;
  size_t wire_room;
  uint32_t num_columns, column_room;
  rv_written **chunks; /* distinct */
  uint32_t num_chunks, chunk_room;
} rv_parts;

/* How long nothing has been heard of a remote writer's items. */
typedef struct rv_silence {
  size_t num_flights; /* in flight when the last item was made */
  bool began, told;
  int64_t since_ns;
} rv_silence;

struct rv_writer {
  atomic_uint refs; /* its owner's, and its end's while the loop has that to do */
  rv_client *client;
  rv_writer_config config; /* with defaults filled in */
  bool one_chunk;          /* all columns go into one open chunk: in process, or columns_share_chunks */
  rv_column **columns;     /* by number; NULL: nothing known of it */
  uint32_t num_columns, column_room;
  rv_link groups; /* of columns that share chunks */
  rv_group *all;  /* with one_chunk: the group of all columns; NULL: there is none yet */
  uint64_t group_numbers;
  size_t local_full;     /* in process: a chunk with so many bytes takes no more rows */
  uint32_t rows_at_once; /* that come before items are made of them; 0: not known */
  int64_t num_rows, episode_steps;
  bool step_open;
  bool begins_anew; /* in this append, in which a chunk gets no more room than the one before came to */
  bool admitted;    /* items in the making: room for them was asked before their step was taken (rv_writer_admits) */
  uint64_t episode_id;
  uint64_t naming; /* of the next items */
  uint64_t serial; /* of appends and items, to mark what one of them has seen */
  rv_random random;
  rv_random item_random; /* in process: the store's seed, where it has one */
  rv_parts parts;
  rv_encode_room encode_room;
  rv_item_form *item_form; /* of the item before; NULL: none yet */
  uint64_t item_forms;     /* so far */
  rv_writer_table **tables;
  size_t num_tables, table_room;
  rv_tables *snapshot; /* NULL: not known */
  void *string_row;    /* what rv_writer_row gave for a column of strings */
  rv_link waiting;     /* remote items in order, the first of which waits for a chunk */
  size_t num_waiting;
  rv_silence silence;
  bool ask_server; /* the flush that waits has the patience to have its wait explained */
  rv_insert_stream
      *stream;           /* remote; set and read by the writer's thread, taken away under status_mutex, read by others under it */
  rv_mutex status_mutex; /* RV_RANK_STATUS */
  rv_insert_stream *sender; /* the same stream, for the loop, until `end` has run */
  rv_task end;
  rv_link ended;      /* the loop's: remote items that the answer in hand has confirmed */
  rv_link free_items; /* remote items to be used again */
  size_t num_free_items;

  rv_mutex mutex;  /* RV_RANK_CLIENT: what follows */
  rv_gate gate;    /* opened for a flush */
  int64_t wake_at; /* open the gate when so few items are in flight; -1: nobody waits */
  bool wakes_at_failure;
  rv_link flights; /* oldest first */
  int64_t created, confirmed, failed;
  atomic_size_t num_flights;     /* changed under the mutex, read without: a failure is counted before its flight has ended */
  atomic_size_t bytes_in_flight; /* the same */
  size_t counted_bytes;          /* of those, in the loop's count of what is unconfirmed, about */
  atomic_size_t failures;        /* not discarded; changed under the mutex, read without */
  atomic_bool failure_untold;    /* likewise; one that came after another that is not discarded is only counted */
  rv_error failure;              /* the first */
  size_t num_refused; /* that nobody was told of or could count, for whoever ends the writer; a closed table refuses nothing */
  rv_error refused;   /* the first of them */
  bool closing;
  bool at_end;        /* `end` has run: nothing is in flight any more */
  atomic_bool closed; /* by the writer's thread: there is no stream any more; `end` settles what is in flight */
  atomic_bool
      tables_known; /* or never to be known: items go straight to the stream. Changed under the mutex; false while `fetch` runs */
  rv_error tables_error; /* code not RV_OK: why not */
  rv_link unchecked;     /* items that wait for the tables */
  rv_link
      done_items; /* remote items that are over: this thread takes them back, which is cheaper than freeing another's memory */
  atomic_size_t num_done_items; /* changed under the mutex, read without */
  size_t done_bytes;            /* of those that are large */
  rv_tables_fetch *fetch;       /* the loop's, but for its beginning; NULL: none runs */
};

/* RV_FAILED_PRECONDITION in a forked child, and when the writer is closed. */
rv_code rv_writer_check(const rv_writer *writer, rv_error *err);

/* As rv_writer_close, but says nothing: returns how many items were given up, for a caller who tells of them. */
size_t rv_writer_abandon(rv_writer *writer);
/* As rv_writer_settle, but what failed and no call has returned ends the wait. */
rv_code rv_writer_settle_or_fail(rv_writer *writer, const rv_wait *wait, rv_error *err);
void rv_writer_unref(rv_writer *writer);

/* ---- chunks (writer_append.c) ---- */

uint64_t rv_writer_random_key(rv_writer *writer);
uint64_t rv_writer_local_item_key(rv_writer *writer);
/* No more rows come into it. */
void rv_writer_complete_chunk(rv_written *chunk);
/* All that are open. */
void rv_writer_complete_all(rv_writer *writer);
/* NULL: no cell, name or configuration has come. */
rv_column *rv_writer_column(const rv_writer *writer, uint32_t number);
rv_code rv_writer_make_column(rv_writer *writer, uint32_t number, rv_column **out, rv_error *err);
/* As rv_writer_append of a whole step, whose cells may be of other columns, dtypes and shapes than the rows before: those no item can refer to
 * any more. If it fails, nothing has changed but that chunks are complete. Only where columns share chunks. */
rv_code rv_writer_append_anew(rv_writer *writer, const rv_cell *cells, size_t num_cells, rv_error *err);
/* First row that is still kept. */
int64_t rv_writer_first_row(const rv_writer *writer, const rv_column *column);

/* ---- which columns share a chunk (writer_shares.c) ---- */

/* Columns that come in the same appends, whose rows so stand beside each other, of the same steps, and that the same items need. */
struct rv_group {
  uint64_t number; /* of its columns, one after another: no others have the same */
  rv_chunk_rule rule;
  rv_written *open;   /* its chunk that takes the next rows; NULL: none */
  bool by_itself;     /* nobody asked for it: it gives way to what compresses */
  uint64_t seen;      /* serial of the append that was looked at last, */
  uint64_t seen_item; /* and of the item; */
  uint32_t most_rows; /* that one of its columns needs in that item, of all its chunks together */
  uint32_t longest;   /* run of them; 0 between items */
  rv_link link;       /* in the writer's list, to its end: chunks may refer to its rule */
  uint32_t num_columns, room;
  rv_column *columns[];
};

/* Columns that come for the first time find their group, and those that no longer come together part. */
rv_code rv_writer_group_cells(rv_writer *writer, const rv_cell *cells, size_t num_cells, rv_error *err);
/* The column did not come after all; its chunk is complete. */
void rv_writer_ungroup(rv_writer *writer, rv_column *column);
/* From now on it has chunks of its own. */
void rv_writer_set_apart(rv_writer *writer, rv_column *column);
/* Of a group whose chunk is complete: what compresses leaves it. */
void rv_writer_check_trials(rv_writer *writer, rv_group *group);
/* The item over the present parts is made: columns that it needs much less than others of their group part from these. */
void rv_writer_check_item(rv_writer *writer);
void rv_writer_free_groups(rv_writer *writer);

/* ---- items in flight (writer_flight.c) ---- */

typedef struct rv_flight {
  rv_writer *writer;
  const rv_writer_table *table;
  rv_link link;
  size_t own_bytes;
  uint64_t key;
  uint32_t num_chunks;
  rv_written **chunks; /* a reference each */
} rv_flight;

/* Begins the flight of an item over the present parts: counts it and takes references. RV_RESOURCE_EXHAUSTED: over a bound. */
rv_code rv_flight_begin(rv_writer *writer, rv_flight *flight, rv_error *err);
/* Any thread. True: the caller frees the item. False: it touches nothing any more, for the writer is being freed and waits for
 * *done, which is set here. `done` may be NULL. */
bool rv_flight_end(rv_flight *flight, rv_code code, const char *message, bool *done);
/* The pieces of it, under the mutex: no longer counted, returns how many are left; and whether somebody waits for that, whose gate is
 * then to be opened. */
size_t rv_flight_take_off(rv_flight *flight);
bool rv_writer_is_to_wake(rv_writer *writer, size_t left);
/* It was refused at once, which create_item says: as if it had never begun. */
void rv_flight_undo(rv_flight *flight);
/* Drops the references. */
void rv_flight_fini(rv_flight *flight);
/* RV_OK, or what the server found later and nobody was told yet. `again`: also if somebody was. */
rv_code rv_writer_failure(rv_writer *writer, bool again, rv_error *err);
/* RV_RESOURCE_EXHAUSTED: so many more bytes would be over the bound. */
rv_code rv_writer_room(rv_writer *writer, size_t bytes, rv_error *err);
/* RV_RESOURCE_EXHAUSTED: so many more items would be over the bound, or something is over its bound already. */
rv_code rv_writer_admits(rv_writer *writer, size_t items, rv_error *err);

/* Waits until no more than so many items are sent and not confirmed; items that wait for their chunks do not count (writer.c). */
rv_code rv_writer_wait_for_sent(rv_writer *writer, size_t max_sent, const rv_wait *wait, rv_error *err);

/* ---- items (writer_item.c) ---- */

/* Finds or notes the table. */
rv_code rv_writer_find_table(rv_writer *writer, const char *name, rv_writer_table **out, rv_error *err);
/* If what the writer knows of the tables is of a server that is gone, it is from now on what is known of the one that is there, or what that one
 * will say (and nothing until then); after a table's info refused something, it is then worth looking again. False: it is not so. */
bool rv_writer_renew_tables(rv_writer *writer);
rv_code rv_writer_priority_fits(const rv_table_info *info, double priority, rv_error *err);
void rv_parts_fini(rv_parts *parts);
/* create_item for a writer whose step is in already: it may go over the bounds in flight by one step's items, and what the
 * server found later is left to the next call. */
rv_code rv_writer_put_item(rv_writer *writer, const char *table, double priority, const rv_item_column *columns,
                           size_t num_columns, rv_error *err);

/* ---- in process (writer_local.c) ---- */

rv_code rv_writer_insert_local(rv_writer *writer, rv_writer_table *table, double priority, uint64_t *key, rv_error *err);
/* Takes back what waits. */
void rv_writer_close_local(rv_writer *writer);
/* What the oldest item waits for. */
void rv_writer_describe_local(rv_writer *writer, char *out, size_t capacity);

/* ---- elsewhere (writer_remote.c, writer_tables.c) ---- */

rv_code rv_writer_insert_remote(rv_writer *writer, rv_writer_table *table, double priority, uint64_t *key, rv_error *err);
/* The server's answer has been read (rv_insert_stream_config.answered); `context` is the writer. */
void rv_writer_take_confirmed(void *context);
/* Takes back what the items that are over hold. */
void rv_writer_reclaim(rv_writer *writer);
/* Hands over the items whose chunks are complete. */
void rv_writer_dispatch(rv_writer *writer);
/* Completes what all but the last `keep` items wait for, and hands them over. What that takes, mostly encoding, is of the caller's time: *rest is
 * what is left of `wait` for him to wait. */
void rv_writer_complete_for_items(rv_writer *writer, size_t keep, const rv_wait *wait, rv_wait *rest);
/* The tables are known now, or never: checks what waited for them. On the loop's thread. */
void rv_writer_release_unchecked(rv_writer *writer, const rv_tables *tables);
void rv_writer_close_remote(rv_writer *writer);
/* After an item was made: logs, once, that none has been confirmed for ten seconds because the writer is not connected. */
void rv_writer_notice_silence(rv_writer *writer);
/* "; the writer is connecting to ...", and its length; "" in process, and where it is connected. */
size_t rv_writer_explain_unconnected(rv_writer *writer, char *out, size_t capacity);
/* May ask the server, briefly. */
void rv_writer_describe_remote(rv_writer *writer, char *out, size_t capacity);
/* From now on, until the server has answered, what the tables expect is not known. Not while it is being asked. */
rv_code rv_writer_fetch_tables(rv_writer *writer, rv_error *err);
/* On the loop's thread. */
void rv_writer_stop_fetching(rv_writer *writer);

#endif
