/* The library's step writer, which reverie.Writer is made of. */
#include "client.h"
#include "convert.h"

typedef struct step_writer_object {
  PyObject_HEAD
  core_state *state;
  client_object *client;
  rv_step_writer *writer;
  PyObject *structure; /* of the newest step; NULL: there is none */
  core_mutex mutex;    /* a writer belongs to one thread at a time */
} step_writer_object;

static PyObject *step_writer_tp_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
  static char *names[] = {"client", "max_sequence_length", "chunk_length", "max_in_flight_items", "delta_encoded", "timeout",
                          NULL};
  core_state *state = core_state_of_type(type);
  PyObject *client, *timeout = NULL;
  int delta_encoded;
  int64_t timeout_ms;
  rv_step_writer_config config = {.size = sizeof config};
  if (state == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, "O!IIIp|O:StepWriter", names, state->client_type, &client,
                                                    &config.max_sequence_length, &config.chunk_length,
                                                    &config.max_in_flight_items, &delta_encoded, &timeout)) {
    return NULL;
  }
  config.delta_encoded = delta_encoded != 0;
  if (client_check((client_object *)client) < 0 || core_timeout(timeout, RV_FOREVER, &timeout_ms) < 0) return NULL;
  step_writer_object *self = PyObject_GC_New(step_writer_object, type);
  if (self == NULL) return NULL;
  self->state = state;
  self->writer = NULL;
  self->structure = NULL;
  Py_INCREF(client);
  self->client = (client_object *)client;
  if (core_mutex_init(&self->mutex, state, self->client->client) < 0) {
    Py_DECREF((PyObject *)self);
    return NULL;
  }
  rv_error err;
  core_wait wait;
  core_wait_begin(&wait, timeout_ms, NULL);
  rv_code code = rv_step_writer_new(self->client->client, &config, &self->writer, &err);
  if (code == RV_OK) code = rv_step_writer_wait_ready(self->writer, &wait.wait, &err);
  core_wait_end(&wait, code);
  if (code != RV_OK) {
    core_wait_raise(state, &wait, &err);
    Py_DECREF((PyObject *)self);
    return NULL;
  }
  PyObject_GC_Track((PyObject *)self);
  return (PyObject *)self;
}

static int step_writer_traverse(PyObject *object, visitproc visit, void *arg)
{
  step_writer_object *self = (step_writer_object *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT((PyObject *)self->client);
  Py_VISIT(self->structure);
  return 0;
}

static void step_writer_dealloc(PyObject *object)
{
  step_writer_object *self = (step_writer_object *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  rv_step_writer *writer = self->writer;
  if (writer != NULL) {
    Py_BEGIN_ALLOW_THREADS
    rv_step_writer_free(writer);
    Py_END_ALLOW_THREADS
  }
  core_mutex_fini(&self->mutex);
  Py_XDECREF(self->structure);
  Py_DECREF((PyObject *)self->client);
  PyObject_GC_Del(object);
  Py_DECREF((PyObject *)type);
}

typedef rv_code (*append_function)(rv_step_writer *writer, const rv_tensor *columns, size_t num_columns, const rv_wait *wait,
                                   rv_error *err);

/* Under the mutex: it is that of the newest step. Returns the one before, for the caller to let go of without the mutex. */
static PyObject *exchange_structure(step_writer_object *self, PyObject *structure)
{
  PyObject *before = self->structure;
  Py_INCREF(structure);
  self->structure = structure;
  return before;
}

static PyObject *append(step_writer_object *self, PyObject *args, append_function function)
{
  PyObject *list, *structure, *timeout;
  core_time time;
  if (!PyArg_ParseTuple(args, "O!O!O:append", &PyList_Type, &list, self->state->structure_type, &structure, &timeout))
    return NULL;
  if (core_time_begin(timeout, RV_FOREVER, &time) < 0) return NULL;
  scratch s;
  scratch_init(&s);
  size_t n = (size_t)PyList_Size(list);
  rv_tensor *columns = scratch_alloc(&s, n, sizeof *columns);
  const char *const *names = structure_names((structure_object *)structure);
  bool ok = columns != NULL && names != NULL;
  for (size_t i = 0; ok && i < n; i++) {
    PyObject *value = PyList_GetItem(list, (Py_ssize_t)i);
    Py_INCREF(value);
    ok = scratch_hold(&s, value) == 0 &&
         tensor_from_leaf((structure_object *)structure, i, &s, value, RV_DTYPE_INVALID, &columns[i]) == 0;
  }
  if (ok && (ok = core_lock_within(&self->mutex, &time) == 0)) {
    rv_error err;
    core_wait wait;
    PyObject *before = NULL;
    const int64_t steps = rv_step_writer_num_steps(self->writer);
    core_wait_begin_rest(&wait, &time, NULL, false);
    rv_step_writer_name_columns(self->writer, names, ((structure_object *)structure)->num_leaves);
    rv_code code = function(self->writer, columns, n, &wait.wait, &err);
    rv_step_writer_name_columns(self->writer, NULL, 0);
    core_wait_end(&wait, code);
    if (rv_step_writer_num_steps(self->writer) > steps) before = exchange_structure(self, structure);
    core_unlock(&self->mutex);
    Py_XDECREF(before);
    ok = code == RV_OK;
    if (!ok) core_wait_raise(self->state, &wait, &err);
  }
  scratch_fini(&s);
  if (!ok) return NULL;
  Py_RETURN_NONE;
}

static PyObject *step_writer_append(PyObject *object, PyObject *args)
{
  return append((step_writer_object *)object, args, rv_step_writer_append);
}

static PyObject *step_writer_append_sequence(PyObject *object, PyObject *args)
{
  return append((step_writer_object *)object, args, rv_step_writer_append_sequence);
}

/* The lock was not to be had. A deadline's own error says that the item is queued. */
static PyObject *raise_not_made(const step_writer_object *self)
{
  if (!PyErr_ExceptionMatches(self->state->errors[RV_DEADLINE_EXCEEDED])) return NULL;
  PyErr_Clear();
  return PyErr_Format(self->state->errors[RV_RESOURCE_EXHAUSTED],
                      "the item was not made: another thread is in a call of this writer, which belongs to one thread at a time");
}

static PyObject *step_writer_create_item(PyObject *object, PyObject *args)
{
  step_writer_object *self = (step_writer_object *)object;
  PyObject *table, *given_priority, *structure, *timeout;
  unsigned num_timesteps;
  double priority;
  core_time time;
  if (!PyArg_ParseTuple(args, "OIOOO:create_item", &table, &num_timesteps, &given_priority, &structure, &timeout)) return NULL;
  if (core_time_begin(timeout, RV_FOREVER, &time) < 0) return NULL;
  const char *const *names = NULL;
  uint64_t naming = 0;
  size_t num_names = 0;
  if (PyObject_TypeCheck(structure, self->state->structure_type)) {
    if ((names = structure_names((structure_object *)structure)) == NULL) return NULL;
    num_names = ((structure_object *)structure)->num_leaves;
    naming = structure_naming((structure_object *)structure);
  }
  const char *text = core_text(table, "table");
  if (text == NULL || core_double(given_priority, "priority", &priority) < 0) return NULL;
  if (core_lock_within(&self->mutex, &time) < 0) return raise_not_made(self);
  rv_error err;
  core_wait wait;
  core_wait_begin_rest(&wait, &time, NULL, false);
  rv_step_writer_name_columns(self->writer, names, num_names);
  rv_step_writer_set_naming(self->writer, naming);
  rv_code code = rv_step_writer_create_item(self->writer, text, num_timesteps, priority, &wait.wait, NULL, &err);
  rv_step_writer_name_columns(self->writer, NULL, 0);
  core_wait_end(&wait, code);
  core_unlock(&self->mutex);
  if (code != RV_OK) return core_wait_raise(self->state, &wait, &err);
  Py_RETURN_NONE;
}

static PyObject *step_writer_flush(PyObject *object, PyObject *timeout)
{
  step_writer_object *self = (step_writer_object *)object;
  core_time time;
  if (core_time_begin(timeout, RV_FOREVER, &time) < 0 || core_lock_within(&self->mutex, &time) < 0) return NULL;
  rv_error err;
  core_wait wait;
  core_wait_begin_rest(&wait, &time, NULL, false);
  rv_code code = rv_step_writer_flush(self->writer, &wait.wait, &err);
  core_wait_end(&wait, code);
  core_unlock(&self->mutex);
  if (code != RV_OK) return core_wait_raise(self->state, &wait, &err);
  Py_RETURN_NONE;
}

static PyObject *step_writer_settle(PyObject *object, PyObject *args)
{
  step_writer_object *self = (step_writer_object *)object;
  int retry;
  PyObject *timeout;
  core_time time;
  if (!PyArg_ParseTuple(args, "pO:settle", &retry, &timeout) || core_time_begin(timeout, RV_FOREVER, &time) < 0) return NULL;
  if (core_lock_within(&self->mutex, &time) < 0) return NULL;
  rv_error err;
  core_wait wait;
  core_wait_begin_rest(&wait, &time, NULL, false);
  rv_code code = rv_step_writer_settle(self->writer, retry != 0, &wait.wait, &err);
  core_wait_end(&wait, code);
  core_unlock(&self->mutex);
  if (code != RV_OK) return core_wait_raise(self->state, &wait, &err);
  Py_RETURN_NONE;
}

/* Takes no lock: another thread may be waiting with it. */
static PyObject *step_writer_take_failure(PyObject *object, PyObject *none)
{
  (void)none;
  rv_error err;
  if (rv_step_writer_take_failure(((step_writer_object *)object)->writer, &err) == RV_OK) Py_RETURN_NONE;
  return core_sentence(&err);
}

static PyObject *step_writer_discard(PyObject *object, PyObject *none)
{
  (void)none;
  step_writer_object *self = (step_writer_object *)object;
  if (core_lock(&self->mutex) < 0) return NULL;
  size_t n = rv_step_writer_discard_failed(self->writer);
  core_unlock(&self->mutex);
  return PyLong_FromSize_t(n);
}

static PyObject *step_writer_close(PyObject *object, PyObject *args)
{
  step_writer_object *self = (step_writer_object *)object;
  int retry;
  PyObject *timeout;
  core_time time;
  if (!PyArg_ParseTuple(args, "pO:close", &retry, &timeout) || core_time_begin(timeout, RV_FOREVER, &time) < 0) return NULL;
  if (core_lock_within(&self->mutex, &time) < 0) return NULL;
  rv_error err;
  core_wait wait;
  core_wait_begin_rest(&wait, &time, NULL, false);
  rv_code code = rv_step_writer_close(self->writer, retry != 0, &wait.wait, &err);
  core_wait_end(&wait, code);
  core_unlock(&self->mutex);
  if (code != RV_OK) return core_wait_raise(self->state, &wait, &err);
  Py_RETURN_NONE;
}

static PyObject *step_writer_abandon(PyObject *object, PyObject *none)
{
  (void)none;
  step_writer_object *self = (step_writer_object *)object;
  if (core_lock(&self->mutex) < 0) return NULL;
  size_t lost;
  Py_BEGIN_ALLOW_THREADS
  lost = rv_step_writer_abandon(self->writer);
  Py_END_ALLOW_THREADS
  core_unlock(&self->mutex);
  return PyLong_FromSize_t(lost);
}

static PyObject *step_writer_attribute(PyObject *object, void *closure)
{
  step_writer_object *self = (step_writer_object *)object;
  if (core_lock(&self->mutex) < 0) return NULL;
  int64_t steps = rv_step_writer_num_steps(self->writer);
  uint64_t episode_id = rv_step_writer_episode_id(self->writer);
  bool begins_chunk = rv_step_writer_begins_chunk(self->writer), closed = rv_step_writer_is_closed(self->writer);
  core_unlock(&self->mutex);
  switch ((uintptr_t)closure) {
  case 0: return PyLong_FromLongLong(steps);
  case 1: return PyLong_FromUnsignedLongLong(episode_id);
  case 3: return PyBool_FromLong(begins_chunk);
  default: return PyBool_FromLong(closed);
  }
}

/* Takes no lock: another thread may be waiting with it. */
static PyObject *step_writer_structure(PyObject *object, void *closure)
{
  (void)closure;
  PyObject *structure = ((step_writer_object *)object)->structure;
  if (structure == NULL) Py_RETURN_NONE;
  Py_INCREF(structure);
  return structure;
}

static PyGetSetDef step_writer_getset[] = {
    {"num_steps", step_writer_attribute, NULL, "Steps appended.", (void *)0},
    {"episode_id", step_writer_attribute, NULL, "Of the one episode that it writes.", (void *)1},
    {"closed", step_writer_attribute, NULL, "Was close called?", (void *)2},
    {"structure", step_writer_structure, NULL, "Of the newest step; None: there is none.", NULL},
    {"begins_chunk", step_writer_attribute, NULL, "Does the next step begin a chunk, so that it may have other leaves?",
     (void *)3},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef step_writer_methods[] = {
    {"append", step_writer_append, METH_VARARGS,
     "append($self, leaves, structure, timeout, /)\n--\n\nLeaf i of the structure is column i of the step."},
    {"append_sequence", step_writer_append_sequence, METH_VARARGS,
     "append_sequence($self, leaves, structure, timeout, /)\n--\n\nLeaves are [T, ...]."},
    {"create_item", step_writer_create_item, METH_VARARGS,
     "create_item($self, table, num_timesteps, priority, structure, timeout, /)\n--\n\n"},
    {"flush", step_writer_flush, METH_O, "flush($self, timeout, /)\n--\n\n"},
    {"discard_failed", step_writer_discard, METH_NOARGS,
     "discard_failed($self, /)\n--\n\nForgets items that failed for good, so that the writer can go on. Returns how many."},
    {"settle", step_writer_settle, METH_VARARGS,
     "settle($self, retry_on_unavailable, timeout, /)\n--\n\nWaits as close does, whether or not items were refused."},
    {"take_failure", step_writer_take_failure, METH_NOARGS,
     "take_failure($self, /)\n--\n\nWhat the server refused and no call has raised, in words, or None; it is told then."},
    {"close", step_writer_close, METH_VARARGS, "close($self, retry_on_unavailable, timeout, /)\n--\n\n"},
    {"abandon", step_writer_abandon, METH_NOARGS,
     "abandon($self, /)\n--\n\nCloses without waiting; how many items were given up."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot step_writer_slots[] = {
    {Py_tp_doc, "StepWriter(client, max_sequence_length, chunk_length, max_in_flight_items, delta_encoded, timeout=None)\n--\n\n"
                "The C part of reverie.Writer. Waits until the server has said what its tables expect."},
    {Py_tp_new, CORE_SLOT(step_writer_tp_new)},
    {Py_tp_dealloc, CORE_SLOT(step_writer_dealloc)},
    {Py_tp_traverse, CORE_SLOT(step_writer_traverse)},
    {Py_tp_methods, step_writer_methods},
    {Py_tp_getset, step_writer_getset},
    {0, NULL}};

PyType_Spec step_writer_spec = {
    .name = "reverie._core.StepWriter",
    .basicsize = sizeof(step_writer_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = step_writer_slots,
};
