/* The client: one object for a store in this process or a server elsewhere, and what it remembers of the tables it uses. */
#ifndef RV_PYTHON_CLIENT_H
#define RV_PYTHON_CLIENT_H

#include "scratch.h"
#include "types.h"

#define CLIENT_DEFAULT_TIMEOUT RV_DEFAULT_TIMEOUT_MS
#define CLIENT_IDLE_WRITERS 8
/* Calls that move no more than this keep the GIL where they cannot block. */
#define CLIENT_SMALL_BYTES 65536

/* ---- buffers for results, used again ---- */

typedef struct pool pool;
pool *pool_new(void);
pool *pool_ref(pool *p); /* NULL is fine, here and below */
void pool_unref(pool *p);
/* `size` bytes, 64-aligned; NULL: no memory. Any thread, without the GIL. */
void *pool_take(pool *p, size_t size);
void pool_give(pool *p, void *data, size_t size);
/* An object that owns `size` bytes (64-aligned) and gives them back to the pool when it goes. `p` may be NULL. */
PyObject *buffer_new(core_state *state, pool *p, size_t size, void **data);
/* A new array of `bytes` bytes for a result. From `pooled` bytes on its memory comes from the pool (NULL: there is none), unless it is
 * of strings. Its elements are not set. */
PyArrayObject *result_array(core_state *state, pool *p, size_t pooled, rv_dtype dtype, uint32_t rank, const int64_t *shape,
                            size_t bytes);

/* ---- tables ---- */

/* What a client remembers of a table. */
typedef struct handle_object {
  PyObject_HEAD
  PyObject *name;
  const char *text;
  structure_object *signature; /* the signature's nest; NULL: no signature */
  structure_object *rows;      /* of the last row inserted through this client; NULL: none yet */
  structure_object *named;     /* of rows, found to be called as in the signature; NULL: none yet */
  structure_object *arrays;    /* of rows for add_batch, found to have arrays where the signature has columns; NULL: none yet */
  rv_dtype *dtypes;            /* of the signature's specs */
  int32_t *ranks;              /* likewise; -1: not said */
  rv_spec *specs;              /* with their names alone */
  size_t num_specs;
  PyObject *nest;    /* the signature's encoding: bytes */
  bool stale;        /* a call was refused: ask again before the next */
  uint64_t losses;   /* rv_client_losses of before it was asked for */
  rv_layout *layout; /* of the items sampled last, in process; NULL: not known yet */
  bool has_strings;  /* some column of them */
} handle_object;

typedef struct client_object {
  PyObject_HEAD
  core_state *state;
  rv_client *client;
  bool in_process;
  PyObject *handles;   /* dict: name -> handle */
  PyObject *rows;      /* dict: name -> structure of the last item made without a handle */
  handle_object *last; /* the one used last */
  pool *buffers;
  rv_writer *idle[CLIENT_IDLE_WRITERS]; /* of insert, used again */
  size_t num_idle;
  PyObject *plain; /* has the rv_client since client_plain was called; NULL: it was not, and this has it */
} client_object;

/* RuntimeError and -1 for an object whose __init__ did not run; FailedPreconditionError after its close. */
int client_check(client_object *self);
/* A new reference to the table's handle; asks the server the first time, and takes the time that this needs off what is left. The
 * cancel may be NULL. NULL with an exception. */
handle_object *client_handle(client_object *self, PyObject *table, core_time *time, rv_cancel *cancel);
/* It is of the server that is connected now. */
bool handle_is_present(const handle_object *handle, const client_object *client);
/* Both call their columns alike. -1 with an exception. */
int handle_has_names_of(const handle_object *handle, const handle_object *other);
/* The table's items were seen to have this layout. Takes the reference. */
void handle_see_layout(handle_object *handle, rv_layout *owned_layout);
/* It is not to be relied on, unless another was seen since. */
void handle_forget_layout(handle_object *handle, const rv_layout *layout);
/* RV_INVALID_ARGUMENT where rows of this structure are called otherwise than in the table's signature. -1 with an exception (not
 * that one), else the code. */
int client_check_names(handle_object *handle, structure_object *structure, rv_error *err);
/* A new reference to the structure of items with so many columns: the signature's; else, if their naming says that they were
 * inserted with it, that of the last row. NULL: a flat list. */
structure_object *client_structure(const handle_object *handle, size_t num_columns, uint64_t naming);
/* Items of this structure were made for the table. -1 with an exception. */
int client_remember(client_object *self, PyObject *table, structure_object *structure);
/* Raises the error, or what a signal handler raised (`wait` may be NULL); the handle (may be NULL) is asked for again where it
 * may be out of date. Returns NULL. */
PyObject *client_raise(client_object *self, handle_object *handle, const core_wait *wait, const rv_error *err);

/* To an InvalidArgumentError that is set for data with more or fewer leaves than the table's signature: where they differ. */
void client_explain(const client_object *self, const handle_object *handle, PyObject *data);

/* Priorities as float64 [n], one for each row or key (`each` names it); NULL with an exception. */
const double *client_priorities(PyObject *given, scratch *s, size_t n, const char *each);

/* ---- methods that have files of their own ---- */
PyObject *client_add(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *client_add_batch(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *client_sample_batch(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *client_update_priorities(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *client_mutate(PyObject *self, PyObject *args);
PyObject *client_get(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *client_items_page(PyObject *self, PyObject *args);
PyObject *client_take_idle(PyObject *self, PyObject *none);
PyObject *client_give_idle(PyObject *self, PyObject *stream);

/* ---- samples ---- */

/* A list of the sample's columns as arrays: the caller's own, or with copy=false read-only views that hold the sample. */
PyObject *sample_columns(core_state *state, rv_sample *sample, bool copy, pool *buffers);
/* SampleInfo. */
PyObject *sample_info_object(core_state *state, const rv_sample_info *info);
/* ReplaySample of an info and data. Takes both references. */
PyObject *replay_sample_object(core_state *state, PyObject *owned_info, PyObject *owned_data);
/* The list's arrays in the structure, which the caller holds: a class of its own may do anything when it is made. Without one the
 * list itself. Takes the list. */
PyObject *into_structure(const structure_object *structure, PyObject *owned_list);

#endif
