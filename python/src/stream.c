#include "stream.h"

#include "client/structured_writer.h"
#include "client/writer.h"
#include "convert.h"

/* Without a writer yet, and so not tracked. */
static stream_object *stream_around(core_state *state, client_object *client)
{
  stream_object *self = PyObject_GC_New(stream_object, state->stream_type);
  if (self == NULL) return NULL;
  self->state = state;
  self->structured = NULL;
  self->writer = NULL;
  self->closed = self->close_on_leaving = false;
  self->cancel = NULL;
  self->generation = 0;
  Py_INCREF((PyObject *)client);
  self->client = client;
  if (core_mutex_init(&self->mutex, state, client->client) == 0) return self;
  Py_DECREF((PyObject *)self);
  return NULL;
}

/* The stream whose writer was made, or could not be. */
static stream_object *made(stream_object *self, rv_code code, const rv_error *err)
{
  if (code == RV_OK) {
    PyObject_GC_Track((PyObject *)self);
    return self;
  }
  core_state *state = self->state;
  Py_DECREF((PyObject *)self);
  core_raise(state, err);
  return NULL;
}

stream_object *stream_new(core_state *state, client_object *client, const rv_writer_config *config)
{
  stream_object *self = client_check(client) < 0 ? NULL : stream_around(state, client);
  if (self == NULL) return NULL;
  rv_error err;
  rv_code code;
  Py_BEGIN_ALLOW_THREADS
  code = rv_cancel_new(&self->cancel, &err);
  if (code == RV_OK) code = rv_writer_new(client->client, config, &self->writer, &err);
  Py_END_ALLOW_THREADS
  return made(self, code, &err);
}

stream_object *stream_new_structured(core_state *state, client_object *client, const rv_structured_writer_config *config)
{
  stream_object *self = client_check(client) < 0 ? NULL : stream_around(state, client);
  if (self == NULL) return NULL;
  rv_error err;
  rv_code code;
  Py_BEGIN_ALLOW_THREADS
  code = rv_cancel_new(&self->cancel, &err);
  if (code == RV_OK) code = rv_structured_writer_new(client->client, config, &self->structured, &err);
  if (code == RV_OK) self->writer = rv_structured_writer_inner(self->structured);
  Py_END_ALLOW_THREADS
  return made(self, code, &err);
}

int stream_give(stream_object **writers, stream_object *owned_stream)
{
  if (owned_stream == NULL) return -1;
  if (*writers == NULL) {
    *writers = owned_stream;
    return 0;
  }
  Py_DECREF((PyObject *)owned_stream);
  PyErr_SetString(PyExc_RuntimeError, "the writer is initialised already");
  return -1;
}

static void free_writer(stream_object *self)
{
  rv_structured_writer *structured = self->structured;
  rv_writer *writer = self->writer;
  if (writer == NULL) return;
  Py_BEGIN_ALLOW_THREADS
  if (structured != NULL) {
    rv_structured_writer_free(structured);
  } else {
    rv_writer_free(writer);
  }
  Py_END_ALLOW_THREADS
}

static int stream_traverse(PyObject *object, visitproc visit, void *arg)
{
  stream_object *self = (stream_object *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT((PyObject *)self->client);
  return 0;
}

static void stream_dealloc(PyObject *object)
{
  stream_object *self = (stream_object *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  free_writer(self);
  if (self->cancel != NULL) rv_cancel_free(self->cancel);
  core_mutex_fini(&self->mutex);
  Py_XDECREF((PyObject *)self->client);
  PyObject_GC_Del(object);
  Py_DECREF((PyObject *)type);
}

static int raise_closed(stream_object *self)
{
  PyErr_SetString(self->state->errors[RV_FAILED_PRECONDITION], "Close has been called on this writer; make a new one");
  return -1;
}

static int enter_within(stream_object *self, core_time *time)
{
  if (core_lock_within(&self->mutex, time) < 0) return -1;
  if (!self->closed) return 0;
  core_unlock(&self->mutex);
  return raise_closed(self);
}

int stream_enter(stream_object *self)
{
  return enter_within(self, NULL);
}

int stream_enter_to_read(stream_object *self)
{
  return core_lock(&self->mutex);
}

/* How many items were given up. */
static size_t abandon_writer(stream_object *self)
{
  if (self->writer == NULL) return 0;
  size_t given_up;
  Py_BEGIN_ALLOW_THREADS
  given_up = rv_writer_abandon(self->writer);
  Py_END_ALLOW_THREADS
  return given_up;
}

static void close_writer(stream_object *self)
{
  if (self->writer == NULL) return;
  Py_BEGIN_ALLOW_THREADS
  rv_writer_close(self->writer);
  Py_END_ALLOW_THREADS
}

void stream_leave(stream_object *self)
{
  if (self->close_on_leaving) close_writer(self);
  self->close_on_leaving = false;
  core_unlock(&self->mutex);
}

int stream_append(stream_object *self, const rv_cell *cells, size_t n, size_t bytes, bool partial_step)
{
  rv_error err;
  rv_code code;
  if (bytes <= CLIENT_SMALL_BYTES) {
    code = rv_writer_append(self->writer, cells, n, partial_step, &err);
  } else {
    Py_BEGIN_ALLOW_THREADS
    code = rv_writer_append(self->writer, cells, n, partial_step, &err);
    Py_END_ALLOW_THREADS
  }
  if (code != RV_OK) core_raise(self->state, &err);
  return code == RV_OK ? 0 : -1;
}

/* ---- waiting ---- */

PyObject *stream_flush(stream_object *self, uint32_t keep, int64_t timeout_ms)
{
  core_time time = {.given_ms = timeout_ms, .left_ms = timeout_ms};
  if (enter_within(self, &time) < 0) return NULL;
  rv_error err;
  core_wait wait;
  /* A flush a step seldom waits; with many threads, letting others have the GIL costs more than the whole step. */
  core_wait_begin_rest(&wait, &time, self->cancel, keep > 0);
  rv_code code = rv_writer_flush(self->writer, keep, &wait.wait, &err);
  core_wait_end(&wait, code);
  stream_leave(self);
  if (code != RV_OK) return core_wait_raise_of_writer(self->state, &wait, self->closed, &err);
  Py_RETURN_NONE;
}

PyObject *stream_settle(stream_object *self, int64_t timeout_ms)
{
  core_time time = {.given_ms = timeout_ms, .left_ms = timeout_ms};
  if (enter_within(self, &time) < 0) return NULL;
  rv_error err;
  core_wait wait;
  core_wait_begin_rest(&wait, &time, self->cancel, false);
  rv_code code = rv_writer_settle(self->writer, &wait.wait, &err);
  core_wait_end(&wait, code);
  stream_leave(self);
  if (code != RV_OK) return core_wait_raise_of_writer(self->state, &wait, self->closed, &err);
  Py_RETURN_NONE;
}

PyObject *stream_take_failure(stream_object *self)
{
  rv_error err;
  if (self->writer == NULL || rv_writer_take_failure(self->writer, &err) == RV_OK) Py_RETURN_NONE;
  return core_sentence(&err);
}

PyObject *stream_end_episode(stream_object *self, bool clear_buffers, int64_t timeout_ms)
{
  core_time time = {.given_ms = timeout_ms, .left_ms = timeout_ms};
  if (enter_within(self, &time) < 0) return NULL;
  rv_error err;
  core_wait wait;
  core_wait_begin_rest(&wait, &time, self->cancel, false);
  rv_code code = self->structured != NULL ? rv_structured_writer_end_episode(self->structured, clear_buffers, &wait.wait, &err)
                                          : rv_writer_end_episode(self->writer, clear_buffers, &wait.wait, &err);
  core_wait_end(&wait, code);
  if (code == RV_OK && clear_buffers) self->generation++;
  stream_leave(self);
  if (code != RV_OK) return core_wait_raise_of_writer(self->state, &wait, self->closed, &err);
  Py_RETURN_NONE;
}

PyObject *stream_status(stream_object *self)
{
  if (self->closed) return raise_closed(self), NULL;
  rv_error err;
  if (rv_writer_check(self->writer, &err) != RV_OK) return core_raise(self->state, &err);
  rv_writer_status status = {.size = sizeof status};
  rv_writer_get_status(self->writer, &status); /* with the GIL, so that nobody closes it meanwhile */
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:s}", "items_created", (long long)status.items_created, "items_confirmed",
                       (long long)status.items_confirmed, "items_in_flight", (long long)status.items_in_flight, "items_failed",
                       (long long)status.items_failed, "bytes_in_flight", (long long)status.bytes_in_flight, "bytes_sent",
                       (long long)status.bytes_sent, "reconnects", (long long)status.reconnects, "state", status.state);
}

static PyObject *end(stream_object *self, bool quietly)
{
  size_t given_up = 0;
  self->closed = true;
  if (self->cancel != NULL) rv_cancel_fire(self->cancel);
  if (core_locked_here(&self->mutex)) {
    self->close_on_leaving = true; /* which tells itself what is given up */
    return PyLong_FromSize_t(0);
  }
  if (core_lock(&self->mutex) < 0) return NULL;
  if (quietly)
    given_up = abandon_writer(self);
  else
    close_writer(self);
  core_unlock(&self->mutex);
  return PyLong_FromSize_t(given_up);
}

PyObject *stream_abandon(stream_object *self)
{
  return end(self, true);
}

PyObject *stream_close(stream_object *self)
{
  PyObject *given_up = end(self, false);
  if (given_up == NULL) return NULL;
  Py_DECREF(given_up);
  Py_RETURN_NONE;
}

/* ---- writers of Client.insert, kept by the client between calls ---- */

PyObject *client_take_idle(PyObject *object, PyObject *none)
{
  (void)none;
  client_object *client = (client_object *)object;
  if (client_check(client) < 0) return NULL;
  if (client->num_idle == 0) Py_RETURN_NONE;
  stream_object *self = stream_around(client->state, client);
  if (self == NULL) return NULL;
  if (client->num_idle == 0) { /* a finaliser that ran meanwhile, or another thread that it let in, took the last one */
    Py_DECREF((PyObject *)self);
    Py_RETURN_NONE;
  }
  self->writer = client->idle[--client->num_idle];
  PyObject_GC_Track((PyObject *)self);
  return (PyObject *)self;
}

PyObject *client_give_idle(PyObject *object, PyObject *stream)
{
  client_object *client = (client_object *)object;
  if (!PyObject_TypeCheck(stream, client->state->stream_type)) return PyErr_Format(PyExc_TypeError, "a Stream is needed");
  stream_object *self = (stream_object *)stream;
  if (self->client != client || client_check(client) < 0) {
    PyErr_Clear(); /* what is closed keeps none */
    return stream_close(self);
  }
  if (core_lock(&self->mutex) < 0) return NULL; /* which may wait, while others give theirs */
  bool kept = self->closed || client->num_idle < CLIENT_IDLE_WRITERS;
  if (!self->closed && kept) {
    client->idle[client->num_idle++] = self->writer;
    self->writer = NULL;
    self->closed = true;
  }
  core_unlock(&self->mutex);
  if (!kept) return stream_close(self);
  Py_RETURN_NONE;
}

/* ---- as Python sees it ---- */

static PyObject *stream_tp_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
  static char *names[] = {"client", NULL};
  core_state *state = core_state_of_type(type);
  if (state == NULL) return NULL;
  PyObject *client;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!:Stream", names, state->client_type, &client)) return NULL;
  rv_writer_config config = {.size = sizeof config,
                             .num_keep_alive_refs = 1,
                             .chunk_length = 1,
                             .columns_share_chunks = true,
                             .signatures_of_steps = true};
  return (PyObject *)stream_new(state, (client_object *)client, &config);
}

/* append(leaves, structure): leaf i of it is the next row of column i. */
static PyObject *stream_py_append(PyObject *object, PyObject *args)
{
  stream_object *self = (stream_object *)object;
  PyObject *list, *structure;
  if (!PyArg_ParseTuple(args, "O!O!:append", &PyList_Type, &list, self->state->structure_type, &structure)) return NULL;
  scratch s;
  scratch_init(&s);
  size_t n = (size_t)PyList_Size(list), bytes = 0;
  rv_cell *cells = scratch_alloc(&s, n, sizeof *cells);
  bool ok = cells != NULL;
  for (size_t i = 0; ok && i < n; i++) {
    PyObject *value = PyList_GetItem(list, (Py_ssize_t)i);
    Py_INCREF(value);
    cells[i].column = (uint32_t)i;
    ok = scratch_hold(&s, value) == 0 &&
         tensor_from_leaf((structure_object *)structure, i, &s, value, RV_DTYPE_INVALID, &cells[i].value) == 0;
    if (ok && PyArray_Check(value)) bytes += (size_t)PyArray_NBYTES((PyArrayObject *)value);
  }
  if (ok && (ok = stream_enter(self) == 0)) {
    ok = stream_append(self, cells, n, bytes, false) == 0;
    stream_leave(self);
  }
  scratch_fini(&s);
  if (!ok) return NULL;
  Py_RETURN_NONE;
}

/* create_item(table, priority, structure): the newest row of the first columns, as many as the structure has leaves. */
static PyObject *stream_py_create_item(PyObject *object, PyObject *args)
{
  stream_object *self = (stream_object *)object;
  PyObject *table, *given_priority;
  PyObject *structure;
  double priority;
  if (!PyArg_ParseTuple(args, "OOO!:create_item", &table, &given_priority, self->state->structure_type, &structure)) return NULL;
  const char *const *names = structure_names((structure_object *)structure);
  uint32_t num_columns = (uint32_t)((structure_object *)structure)->num_leaves;
  const char *text = core_text(table, "table");
  if (names == NULL || text == NULL || core_double(given_priority, "priority", &priority) < 0) return NULL;
  scratch s;
  scratch_init(&s);
  rv_run *runs = scratch_alloc(&s, num_columns, sizeof *runs);
  rv_item_column *columns = scratch_alloc(&s, num_columns, sizeof *columns);
  PyObject *out = NULL;
  if (runs != NULL && columns != NULL && stream_enter(self) == 0) {
    int64_t first = rv_writer_num_rows(self->writer) - 1;
    for (uint32_t i = 0; i < num_columns; i++) {
      runs[i] = (rv_run){.column = i, .count = 1, .first = first, .stride = 1};
      columns[i] = (rv_item_column){.runs = &runs[i], .num_runs = 1, .name = names[i]};
    }
    uint64_t key;
    rv_error err;
    rv_writer_set_naming(self->writer, structure_naming((structure_object *)structure));
    rv_code code = rv_writer_create_item(self->writer, text, priority, columns, num_columns, &key, &err);
    stream_leave(self);
    out = code == RV_OK ? PyLong_FromUnsignedLongLong(key) : core_raise(self->state, &err);
  }
  scratch_fini(&s);
  return out;
}

static PyObject *stream_py_end_episode(PyObject *object, PyObject *args)
{
  int clear_buffers;
  PyObject *timeout;
  int64_t timeout_ms;
  if (!PyArg_ParseTuple(args, "pO:end_episode", &clear_buffers, &timeout)) return NULL;
  if (core_timeout(timeout, RV_FOREVER, &timeout_ms) < 0) return NULL;
  return stream_end_episode((stream_object *)object, clear_buffers != 0, timeout_ms);
}

static PyObject *stream_py_close(PyObject *object, PyObject *none)
{
  (void)none;
  PyObject *given_up = stream_abandon((stream_object *)object);
  if (given_up == NULL) return NULL;
  Py_DECREF(given_up);
  Py_RETURN_NONE;
}

static PyMethodDef stream_methods[] = {
    {"append", stream_py_append, METH_VARARGS,
     "append($self, leaves, structure, /)\n--\n\nLeaf i of the structure is the next row of column i."},
    {"create_item", stream_py_create_item, METH_VARARGS,
     "create_item($self, table, priority, structure, /)\n--\n\nAn item of the newest row; its key."},
    {"end_episode", stream_py_end_episode, METH_VARARGS, "end_episode($self, clear_buffers, timeout, /)\n--\n\n"},
    {"close", stream_py_close, METH_NOARGS,
     "close($self, /)\n--\n\nDrops what was not sent or confirmed, silently: whoever waited for it has been told."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot stream_slots[] = {{Py_tp_doc, "Stream(client)\n--\n\nA writer of single steps, for Client.insert."},
                                     {Py_tp_new, CORE_SLOT(stream_tp_new)},
                                     {Py_tp_dealloc, CORE_SLOT(stream_dealloc)},
                                     {Py_tp_traverse, CORE_SLOT(stream_traverse)},
                                     {Py_tp_methods, stream_methods},
                                     {0, NULL}};

PyType_Spec stream_spec = {
    .name = "reverie._core.Stream",
    .basicsize = sizeof(stream_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = stream_slots,
};
