/* The library's transitions writer, which reverie.Transitions is made of. */
#include "base/env.h"
#include "client.h"
#include "client/client.h"
#include "convert.h"

typedef struct transitions_object {
  PyObject_HEAD
  core_state *state;
  client_object *client;
  structure_object *structure;
  rv_transitions *transitions;
  size_t num_envs;
  bool closed;           /* changed and read with the GIL; the mutex is taken after it */
  bool close_on_leaving; /* close was called inside a call of the same thread, by a signal handler, say */
  rv_cancel *cancel;     /* fired by close */
  core_mutex mutex;      /* a writer belongs to one thread at a time */
} transitions_object;

/* ---- new and free ---- */

/* Element i of a list of ints, at least `least`. */
static int number_at(PyObject *list, size_t i, long long least, long long *out)
{
  *out = PyLong_AsLongLong(PyList_GetItem(list, (Py_ssize_t)i));
  if (*out == -1 && PyErr_Occurred()) return -1;
  if (*out >= least && *out <= UINT32_MAX) return 0;
  PyErr_Format(PyExc_ValueError, "element %zu is %lld", i, *out);
  return -1;
}

static rv_transitions_column *columns_of(scratch *s, structure_object *structure, PyObject *next, PyObject *stack)
{
  size_t n = structure->num_leaves;
  const char *const *names = structure_names(structure);
  rv_transitions_column *columns = names == NULL ? NULL : scratch_alloc(s, n, sizeof *columns);
  if (columns == NULL) return NULL;
  if ((size_t)PyList_Size(next) != n || (size_t)PyList_Size(stack) != n) {
    PyErr_Format(PyExc_ValueError, "next and stack must have %zu elements, one for each leaf", n);
    return NULL;
  }
  for (size_t i = 0; i < n; i++) {
    long long of, frames;
    if (number_at(next, i, -1, &of) < 0 || number_at(stack, i, 0, &frames) < 0) return NULL;
    columns[i] = (rv_transitions_column){
        .name = names[i], .stack = (uint32_t)frames, .is_next = of >= 0, .of = of >= 0 ? (uint32_t)of : 0};
  }
  return columns;
}

static PyObject *transitions_tp_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
  static char *names[] = {"client", "table", "num_envs", "structure", "following", "stack", NULL};
  core_state *state = core_state_of_type(type);
  PyObject *client, *table, *structure, *next, *stack;
  Py_ssize_t num_envs;
  if (state == NULL ||
      !PyArg_ParseTupleAndKeywords(args, kwargs, "O!OnO!O!O!:Transitions", names, state->client_type, &client, &table, &num_envs,
                                   state->structure_type, &structure, &PyList_Type, &next, &PyList_Type, &stack)) {
    return NULL;
  }
  const char *text = core_text(table, "table");
  if (text == NULL || client_check((client_object *)client) < 0) return NULL;
  transitions_object *self = PyObject_GC_New(transitions_object, type);
  if (self == NULL) return NULL;
  self->state = state;
  self->transitions = NULL;
  self->closed = self->close_on_leaving = false;
  self->cancel = NULL;
  self->num_envs = (size_t)num_envs;
  Py_INCREF(client);
  self->client = (client_object *)client;
  Py_INCREF(structure);
  self->structure = (structure_object *)structure;
  scratch s;
  scratch_init(&s);
  rv_error err;
  rv_transitions_config config = {
      .size = sizeof config, .table = text, .num_envs = self->num_envs, .num_columns = self->structure->num_leaves};
  bool ok = core_mutex_init(&self->mutex, state, self->client->client) == 0 &&
            (config.columns = columns_of(&s, self->structure, next, stack)) != NULL;
  if (ok) config.naming = structure_naming(self->structure);
  if (ok && (rv_cancel_new(&self->cancel, &err) != RV_OK ||
             rv_transitions_new(self->client->client, &config, &self->transitions, &err) != RV_OK)) {
    core_raise(state, &err);
    ok = false;
  }
  scratch_fini(&s);
  if (!ok) {
    Py_DECREF((PyObject *)self);
    return NULL;
  }
  PyObject_GC_Track((PyObject *)self);
  return (PyObject *)self;
}

static int transitions_traverse(PyObject *object, visitproc visit, void *arg)
{
  transitions_object *self = (transitions_object *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT((PyObject *)self->client);
  Py_VISIT((PyObject *)self->structure);
  return 0;
}

static void transitions_dealloc(PyObject *object)
{
  transitions_object *self = (transitions_object *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  rv_transitions *transitions = self->transitions;
  if (transitions != NULL) {
    Py_BEGIN_ALLOW_THREADS
    rv_transitions_free(transitions);
    Py_END_ALLOW_THREADS
  }
  if (self->cancel != NULL) rv_cancel_free(self->cancel);
  core_mutex_fini(&self->mutex);
  Py_DECREF((PyObject *)self->structure);
  Py_DECREF((PyObject *)self->client);
  PyObject_GC_Del(object);
  Py_DECREF((PyObject *)type);
}

/* ---- one thread at a time ---- */

/* -1 with FailedPreconditionError if it is closed. */
static int enter(transitions_object *self, core_time *time)
{
  if (core_lock_within(&self->mutex, time) < 0) return -1;
  if (!self->closed) return 0;
  core_unlock(&self->mutex);
  PyErr_SetString(self->state->errors[RV_FAILED_PRECONDITION],
                  "close has been called on this transitions writer; make a new one");
  return -1;
}

/* How many items were given up. */
static size_t close_writer(transitions_object *self)
{
  size_t lost;
  Py_BEGIN_ALLOW_THREADS
  lost = rv_transitions_close(self->transitions);
  Py_END_ALLOW_THREADS
  return lost;
}

static void leave(transitions_object *self)
{
  size_t lost = self->close_on_leaving ? close_writer(self) : 0;
  if (lost > 0) /* in the words of _leaving.tell_closed */
    rv_log(&self->client->client->env, RV_LOG_WARNING,
           "a writer was closed with %zu of its items unconfirmed, which are given up: flush it first", lost);
  self->close_on_leaving = false;
  core_unlock(&self->mutex);
}

/* ---- steps ---- */

/* The data's leaves as tensors in column order, held by the scratch; NULL with an exception. */
static rv_tensor *tensors_of(transitions_object *self, PyObject *data, scratch *s, size_t *bytes)
{
  size_t n = self->structure->num_leaves;
  PyObject **leaves = scratch_alloc(s, n, sizeof *leaves);
  rv_tensor *columns = scratch_alloc(s, n, sizeof *columns);
  if (leaves == NULL || columns == NULL) return NULL;
  int found = tree_flatten(self->state, self->structure->root, data, leaves);
  if (found == 0) { /* flatten says where it differs */
    PyObject *list = PyObject_CallMethod((PyObject *)self->structure, "flatten", "O", data);
    Py_XDECREF(list);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "the data changed while it was flattened");
  }
  if (found <= 0 || scratch_hold_all(s, leaves, n) < 0) return NULL;
  bool ok = true;
  for (size_t i = 0; i < n && ok; i++) {
    ok = tensor_from_leaf(self->structure, i, s, leaves[i], RV_DTYPE_INVALID, &columns[i]) == 0;
    if (!ok) break;
    size_t size = rv_dtype_size(columns[i].dtype);
    for (uint32_t d = 0; d < columns[i].rank; d++) size *= (size_t)columns[i].shape[d];
    *bytes += size;
  }
  return ok ? columns : NULL;
}

/* Python's, NumPy's, or an array or tensor without dimensions: 1, else 0. -1 with an exception. */
static int is_one_number(PyObject *given)
{
  if (PyFloat_Check(given) || PyLong_Check(given) || PyArray_CheckScalar(given)) return 1;
  PyObject *dimensions = PyObject_GetAttrString(given, "ndim");
  if (dimensions == NULL) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    PyErr_Clear();
    return 0;
  }
  bool none = PyLong_Check(dimensions) && PyLong_AsLong(dimensions) == 0;
  Py_DECREF(dimensions);
  PyErr_Clear(); /* so many that they are none of ours */
  return none;
}

/* One for each environment: all the same, or as given. 0; -1 with an exception. */
static int priorities_of(const transitions_object *self, PyObject *given, scratch *s, const double **out)
{
  *out = NULL;
  if (given == Py_None) return 0;
  int one_number = is_one_number(given);
  if (one_number < 0) return -1;
  if (one_number == 0) {
    *out = client_priorities(given, s, self->num_envs, "environment");
    return *out == NULL ? -1 : 0;
  }
  double one;
  double *all = scratch_alloc(s, self->num_envs, sizeof *all);
  if (all == NULL || core_double(given, "priority", &one) < 0) return -1;
  for (size_t i = 0; i < self->num_envs; i++) all[i] = one;
  *out = all;
  return 0;
}

/* A bool for each environment; NULL for None. 0; -1 with an exception. */
static int where_of(const transitions_object *self, PyObject *given, scratch *s, const bool **out)
{
  *out = NULL;
  if (given == Py_None) return 0;
  if (PyArray_Check(given) && core_check_mask((PyArrayObject *)given, "where") < 0) return -1;
  PyObject *object = PyArray_FromAny(given, NULL, 0, 0, NPY_ARRAY_CARRAY_RO, NULL);
  if (object == NULL && !core_clear_refusal()) return -1;
  PyArrayObject *array = (PyArrayObject *)object;
  if (array == NULL || PyArray_TYPE(array) != NPY_BOOL) {
    PyErr_Format(PyExc_TypeError, "where must be bools, one for each environment, got %R", given);
  } else if (PyArray_NDIM(array) != 1 || (size_t)PyArray_DIM(array, 0) != self->num_envs) {
    PyObject *shape = PyObject_GetAttrString(object, "shape");
    if (shape != NULL)
      PyErr_Format(PyExc_ValueError, "where must have shape (%zu,), one bool for each environment, got %S", self->num_envs,
                   shape);
    Py_XDECREF(shape);
  } else {
    bool *where = scratch_alloc(s, self->num_envs, sizeof *where);
    const npy_bool *bytes = PyArray_DATA(array); /* a view of other bytes may have more than 0 and 1 */
    for (size_t i = 0; where != NULL && i < self->num_envs; i++) where[i] = bytes[i] != 0;
    *out = where;
  }
  Py_XDECREF(object);
  return *out == NULL ? -1 : 0;
}

static const char *const add_names[] = {"data", "priority", "where", "timeout"};
static const core_signature add_signature = {"add", add_names, 4, 4, 4};

static PyObject *transitions_add(PyObject *object, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
  transitions_object *self = (transitions_object *)object;
  PyObject *given[4];
  core_time time;
  if (core_parse(&add_signature, args, nargs, kwnames, given) < 0) return NULL;
  if (core_time_begin(given[3], CLIENT_DEFAULT_TIMEOUT, &time) < 0) return NULL;
  scratch s;
  scratch_init(&s);
  size_t bytes = 0;
  const double *priorities;
  const bool *where;
  rv_tensor *columns = tensors_of(self, given[0], &s, &bytes);
  bool ok = columns != NULL && priorities_of(self, given[1], &s, &priorities) == 0 && where_of(self, given[2], &s, &where) == 0;
  if (ok && (ok = enter(self, &time) == 0)) {
    rv_error err;
    core_wait wait;
    core_wait_begin_rest(&wait, &time, self->cancel, self->client->in_process && bytes <= CLIENT_SMALL_BYTES);
    rv_code code = rv_transitions_add_where(self->transitions, columns, self->structure->num_leaves, priorities, where, NULL,
                                            &wait.wait, &err);
    core_wait_end(&wait, code);
    leave(self);
    ok = code == RV_OK;
    if (!ok) core_wait_raise_of_writer(self->state, &wait, self->closed, &err);
  }
  scratch_fini(&s);
  if (!ok) return NULL;
  Py_RETURN_NONE;
}

typedef rv_code waiting_call(rv_transitions *transitions, const rv_wait *wait, rv_error *err);

static PyObject *wait_in(PyObject *object, PyObject *timeout, waiting_call *call)
{
  transitions_object *self = (transitions_object *)object;
  core_time time;
  if (core_time_begin(timeout, RV_FOREVER, &time) < 0 || enter(self, &time) < 0) return NULL;
  rv_error err;
  core_wait wait;
  core_wait_begin_rest(&wait, &time, self->cancel, false);
  rv_code code = call(self->transitions, &wait.wait, &err);
  core_wait_end(&wait, code);
  leave(self);
  if (code != RV_OK) return core_wait_raise_of_writer(self->state, &wait, self->closed, &err);
  Py_RETURN_NONE;
}

static PyObject *transitions_flush(PyObject *object, PyObject *timeout)
{
  return wait_in(object, timeout, rv_transitions_flush);
}

static PyObject *transitions_settle(PyObject *object, PyObject *timeout)
{
  return wait_in(object, timeout, rv_transitions_settle);
}

static PyObject *transitions_take_failure(PyObject *object, PyObject *none)
{
  (void)none;
  transitions_object *self = (transitions_object *)object;
  if (core_locked_here(&self->mutex)) Py_RETURN_NONE; /* that call may tell it */
  if (core_lock(&self->mutex) < 0) return NULL;
  rv_error err;
  rv_code code = rv_transitions_take_failure(self->transitions, &err);
  core_unlock(&self->mutex);
  if (code == RV_OK) Py_RETURN_NONE;
  return core_sentence(&err);
}

static PyObject *transitions_discard(PyObject *object, PyObject *none)
{
  (void)none;
  transitions_object *self = (transitions_object *)object;
  if (core_lock(&self->mutex) < 0) return NULL;
  size_t n = rv_transitions_discard_failed(self->transitions);
  core_unlock(&self->mutex);
  return PyLong_FromSize_t(n);
}

static PyObject *transitions_close(PyObject *object, PyObject *none)
{
  (void)none;
  transitions_object *self = (transitions_object *)object;
  self->closed = true;
  rv_cancel_fire(self->cancel);
  if (core_locked_here(&self->mutex)) {
    self->close_on_leaving = true;
    return PyLong_FromLong(0);
  }
  if (core_lock(&self->mutex) < 0) return NULL;
  size_t lost = close_writer(self);
  core_unlock(&self->mutex);
  return PyLong_FromSize_t(lost);
}

static PyMethodDef transitions_methods[] = {
    {"add", CORE_METHOD(transitions_add), CORE_FAST,
     "add($self, data, priority, where, timeout, /)\n--\n\nOne step: leaves are [num_envs, ...]."},
    {"flush", transitions_flush, METH_O, "flush($self, timeout, /)\n--\n\n"},
    {"discard_failed", transitions_discard, METH_NOARGS,
     "discard_failed($self, /)\n--\n\nForgets items that failed for good, so that the writer can go on. Returns how many."},
    {"settle", transitions_settle, METH_O,
     "settle($self, timeout, /)\n--\n\nWaits as flush does, but for every item, whether or not others were refused."},
    {"take_failure", transitions_take_failure, METH_NOARGS,
     "take_failure($self, /)\n--\n\nWhat the server refused and no call has raised, in words, or None (also inside a call)."},
    {"close", transitions_close, METH_NOARGS,
     "close($self, /)\n--\n\nCloses without waiting, and ends a call that waits; how many items were given up (0 inside a "
     "call)."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot transitions_slots[] = {
    {Py_tp_doc,
     "Transitions(client, table, num_envs, structure, following, stack)\n--\n\n"
     "The C part of reverie.Transitions. following[i] is the leaf that leaf i is the next of, or -1; stack[i] its frames."},
    {Py_tp_new, CORE_SLOT(transitions_tp_new)},
    {Py_tp_dealloc, CORE_SLOT(transitions_dealloc)},
    {Py_tp_traverse, CORE_SLOT(transitions_traverse)},
    {Py_tp_methods, transitions_methods},
    {0, NULL}};

PyType_Spec transitions_spec = {
    .name = "reverie._core.Transitions",
    .basicsize = sizeof(transitions_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = transitions_slots,
};
