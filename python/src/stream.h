/* A writer of the library with what Python needs around it: a lock, for it belongs to one thread at a time, and a generation, for
 * rows are numbered from 0 again when the history is cleared. Trajectory writers, their columns and references, structured writers
 * and Client.insert are all made of it. */
#ifndef RV_PYTHON_STREAM_H
#define RV_PYTHON_STREAM_H

#include "client.h"
#include "scratch.h"

typedef struct stream_object {
  PyObject_HEAD
  core_state *state;
  client_object *client;
  rv_structured_writer *structured; /* whose the writer is; NULL: the writer is this object's own */
  rv_writer *writer;
  bool closed;       /* changed and read with the GIL; the mutex is taken after it */
  rv_cancel *cancel; /* fired by close; NULL: a stream that nobody else can close */
  core_mutex mutex;
  bool close_on_leaving; /* close was called inside a call of the same thread, by a signal handler, say */
  uint64_t generation;   /* times the history was cleared */
} stream_object;

stream_object *stream_new(core_state *state, client_object *client, const rv_writer_config *config);
stream_object *stream_new_structured(core_state *state, client_object *client, const rv_structured_writer_config *config);
/* Gives it to the writer that was made for it. -1 with an exception: there is none; or RuntimeError, the writer has one already,
 * which a call of it may be using. */
int stream_give(stream_object **writers, stream_object *owned_stream);
/* Takes the lock; -1 with RuntimeError ("Close has been called") if the stream is closed. */
int stream_enter(stream_object *self);
/* Takes the lock to read what was appended, also of a closed stream. */
int stream_enter_to_read(stream_object *self);
void stream_leave(stream_object *self);

/* With the lock taken; -1 or NULL with an exception. */
int stream_append(stream_object *self, const rv_cell *cells, size_t n, size_t bytes, bool partial_step);

/* Take the lock themselves. */
PyObject *stream_flush(stream_object *self, uint32_t keep, int64_t timeout_ms);
PyObject *stream_end_episode(stream_object *self, bool clear_buffers, int64_t timeout_ms);
PyObject *stream_settle(stream_object *self, int64_t timeout_ms);
/* The sentence of what the server refused and no call has raised, or None. Takes no lock, and may be asked of a closed stream. */
PyObject *stream_take_failure(stream_object *self);
/* Takes no lock: another thread may be waiting with it. */
PyObject *stream_status(stream_object *self);
/* Drops what was not sent or confirmed; a call that waits is cancelled, be it another thread's or one of this thread that a signal handler
 * interrupted, which then closes as it ends. The history can still be read while somebody holds a column of it. */
PyObject *stream_close(stream_object *self);
/* As stream_close, but logs nothing: how many items were given up, for the caller to tell; inside a call that is interrupted, 0. */
PyObject *stream_abandon(stream_object *self);

/* ---- rows that items refer to ---- */

/* Most are one run, which needs no memory of its own. */
typedef struct run_list {
  rv_run only;
  rv_run *more; /* all of them, where they are or were several; NULL: `only` has the first */
  size_t count, room;
  size_t rows;
} run_list;

static inline const rv_run *run_list_runs(const run_list *list)
{
  return list->more == NULL ? &list->only : list->more;
}

void run_list_fini(run_list *list);
/* -1 with MemoryError. */
int run_list_add(run_list *list, uint32_t column, int64_t row);
/* The n-th row. */
void run_list_get(const run_list *list, size_t n, uint32_t *column, int64_t *row);

/* TrajectoryColumn: rows of one stream. */
typedef struct column_object {
  PyObject_HEAD
  core_state *state;
  stream_object *stream; /* NULL: of no rows */
  uint64_t generation;
  run_list list;
  bool squeeze;
  PyObject *path;
} column_object;

/* A new column of generation 0 without rows, for the caller to set both where they lie; nobody else sees it before column_end. `stream` and
 * `path` are borrowed and may be NULL. */
column_object *column_begin(core_state *state, stream_object *stream, bool squeeze, PyObject *path);
/* The column as an object; with `bad` it is dropped, and NULL returned for the exception that is set. */
PyObject *column_end(column_object *owned_column, int bad);
/* A column of a writer's history. */
PyObject *history_new(stream_object *stream, uint32_t column, PyObject *path);

#endif
