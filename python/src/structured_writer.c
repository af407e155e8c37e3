/* The StructuredWriter type: nests of steps into columns; the library makes the items. */
#include "configs.h"
#include "convert.h"
#include "stream.h"

typedef struct structured_object {
  PyObject_HEAD
  core_state *state;
  stream_object *stream;  /* NULL: not initialised */
  structure_object *step; /* of the last step; NULL: none yet */
  size_t num_leaves;      /* of every step; with `step` */
} structured_object;

/* ---- life ---- */

static PyObject *structured_tp_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
  (void)args;
  (void)kwargs;
  core_state *state = core_state_of_type(type);
  allocfunc alloc = (allocfunc)(uintptr_t)PyType_GetSlot(type, Py_tp_alloc);
  structured_object *self = state == NULL ? NULL : (structured_object *)alloc(type, 0);
  if (self == NULL) return NULL;
  self->state = state;
  self->stream = NULL;
  self->step = NULL;
  self->num_leaves = 0;
  return (PyObject *)self;
}

/* Samples of a table get the nest that its items are made in. */
static int remember(client_object *client, PyObject *config)
{
  PyObject *table = PyTuple_GetItem(config, 0), *structure = PyTuple_GetItem(config, 4);
  return client_remember(client, table, (structure_object *)structure);
}

static int structured_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
  static char *names[] = {"client", "configs", NULL};
  structured_object *self = (structured_object *)object;
  PyObject *client, *list;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!:StructuredWriter", names, self->state->client_type, &client, &PyList_Type,
                                   &list)) {
    return -1;
  }
  scratch s;
  scratch_init(&s);
  size_t n = (size_t)PyList_Size(list);
  rv_pattern_config *configs = configs_read(self->state, &s, list);
  rv_structured_writer_config config = {.size = sizeof config, .patterns = configs, .num_patterns = n};
  stream_object *stream = configs == NULL ? NULL : stream_new_structured(self->state, (client_object *)client, &config);
  scratch_fini(&s);
  for (size_t i = 0; stream != NULL && i < n; i++) {
    if (remember((client_object *)client, PyList_GetItem(list, (Py_ssize_t)i)) < 0) Py_CLEAR(stream);
  }
  return stream_give(&self->stream, stream);
}

static int structured_traverse(PyObject *object, visitproc visit, void *arg)
{
  structured_object *self = (structured_object *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT((PyObject *)self->stream);
  Py_VISIT((PyObject *)self->step);
  return 0;
}

static void structured_dealloc(PyObject *object)
{
  structured_object *self = (structured_object *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  Py_XDECREF((PyObject *)self->stream);
  Py_XDECREF((PyObject *)self->step);
  freefunc release = (freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free);
  release(object);
  Py_DECREF((PyObject *)type);
}

static int check_made(const structured_object *self)
{
  if (self->stream != NULL) return 0;
  PyErr_SetString(PyExc_RuntimeError, "the writer was not initialised; writers are made by Client.structured_writer");
  return -1;
}

static int structured_enter(structured_object *self)
{
  return check_made(self) < 0 ? -1 : stream_enter(self->stream);
}

/* ---- append ---- */

static rv_code name_column(void *writer, uint32_t column, const char *name, rv_error *err)
{
  return rv_structured_writer_name_column(writer, column, name, err);
}

/* What the first step says of all: how many columns there are, and what they are called. */
static int begin(structured_object *self, const structure_object *step)
{
  rv_error err;
  if (rv_structured_writer_set_num_columns(self->stream->structured, step->num_leaves, &err) != RV_OK) {
    core_raise(self->state, &err);
    return -1;
  }
  return configs_name_columns(step, name_column, self->stream->structured);
}

static int take_structure(structured_object *self, PyObject *data)
{
  structure_object *step = structure_new(self->state, data);
  if (step == NULL) return -1;
  bool ok = true;
  if (self->step == NULL) {
    ok = begin(self, step) == 0;
  } else if (step->num_leaves != self->num_leaves) {
    PyErr_Format(
        self->state->errors[RV_INVALID_ARGUMENT],
        "the flattened data has an unexpected length: %zu leaves, and the first step had %zu; give None for leaves that a "
        "step lacks",
        step->num_leaves, self->num_leaves);
    ok = false;
  }
  if (!ok) {
    Py_DECREF((PyObject *)step);
    return -1;
  }
  PyObject *old = (PyObject *)self->step;
  self->num_leaves = step->num_leaves;
  self->step = step;
  Py_XDECREF(old);
  return 0;
}

static PyObject **flatten(structured_object *self, PyObject *data, scratch *s)
{
  for (int attempt = 0; attempt < 2; attempt++) {
    if ((self->step == NULL || attempt > 0) && take_structure(self, data) < 0) return NULL;
    PyObject **leaves = scratch_alloc(s, self->num_leaves, sizeof *leaves);
    int found = leaves == NULL ? -1 : tree_flatten(self->state, self->step->root, data, leaves);
    if (found < 0) return NULL;
    if (found > 0) return scratch_hold_all(s, leaves, self->num_leaves) < 0 ? NULL : leaves;
  }
  PyErr_SetString(self->state->structure_error, "the data changed while it was appended");
  return NULL;
}

static int append(structured_object *self, PyObject *data, bool partial, scratch *s)
{
  PyObject **leaves = flatten(self, data, s);
  rv_cell *cells = leaves == NULL ? NULL : scratch_alloc(s, self->num_leaves, sizeof *cells);
  if (cells == NULL) return -1;
  size_t n = 0, bytes = 0;
  for (size_t i = 0; i < self->num_leaves; i++) {
    if (leaves[i] == Py_None) continue;
    cells[n].column = (uint32_t)i;
    if (tensor_from_object(self->state, s, leaves[i], RV_DTYPE_INVALID, &cells[n].value) < 0) {
      tree_prefix_path(self->step->root, self->num_leaves, i);
      return -1;
    }
    if (PyArray_Check(leaves[i])) bytes += (size_t)PyArray_NBYTES((PyArrayObject *)leaves[i]);
    n++;
  }
  rv_error err;
  rv_code code;
  if (bytes <= CLIENT_SMALL_BYTES) {
    code = rv_structured_writer_append(self->stream->structured, cells, n, partial, &err);
  } else {
    Py_BEGIN_ALLOW_THREADS
    code = rv_structured_writer_append(self->stream->structured, cells, n, partial, &err);
    Py_END_ALLOW_THREADS
  }
  if (code != RV_OK) core_raise(self->state, &err);
  return code == RV_OK ? 0 : -1;
}

static const char *const append_names[] = {"data", "partial_step"};
static const core_signature append_signature = {"append", append_names, 2, 1, 1};

/* An append without a step that is in has said nothing of how many leaves steps have. */
static void forget_step(structured_object *self)
{
  PyObject *step = (PyObject *)self->step;
  self->step = NULL;
  self->num_leaves = 0;
  Py_XDECREF(step);
}

static PyObject *structured_append(PyObject *object, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
  structured_object *self = (structured_object *)object;
  PyObject *given[2];
  if (core_parse(&append_signature, args, nargs, kwnames, given) < 0) return NULL;
  int partial = given[1] == NULL ? 0 : PyObject_IsTrue(given[1]);
  if (partial < 0 || structured_enter(self) < 0) return NULL;
  scratch s;
  scratch_init(&s);
  bool first = self->step == NULL;
  int bad = append(self, given[0], partial != 0, &s);
  if (bad < 0 && first && rv_writer_num_rows(self->stream->writer) == 0) forget_step(self);
  stream_leave(self->stream);
  scratch_fini(&s);
  if (bad < 0) return NULL;
  Py_RETURN_NONE;
}

/* ---- flush, end_episode, close ---- */

static PyObject *structured_flush(PyObject *object, PyObject *args)
{
  structured_object *self = (structured_object *)object;
  unsigned keep;
  PyObject *timeout;
  int64_t timeout_ms;
  if (!PyArg_ParseTuple(args, "IO:_flush", &keep, &timeout) || core_timeout(timeout, RV_FOREVER, &timeout_ms) < 0) return NULL;
  return check_made(self) < 0 ? NULL : stream_flush(self->stream, keep, timeout_ms);
}

static PyObject *structured_settle(PyObject *object, PyObject *timeout)
{
  structured_object *self = (structured_object *)object;
  int64_t timeout_ms;
  if (core_timeout(timeout, RV_FOREVER, &timeout_ms) < 0 || check_made(self) < 0) return NULL;
  return stream_settle(self->stream, timeout_ms);
}

static PyObject *structured_take_failure(PyObject *object, PyObject *none)
{
  (void)none;
  structured_object *self = (structured_object *)object;
  if (self->stream == NULL) Py_RETURN_NONE;
  return stream_take_failure(self->stream);
}

static PyObject *structured_end_episode(PyObject *object, PyObject *args)
{
  structured_object *self = (structured_object *)object;
  int clear_buffers;
  PyObject *timeout;
  int64_t timeout_ms;
  if (!PyArg_ParseTuple(args, "pO:_end_episode", &clear_buffers, &timeout)) return NULL;
  if (core_timeout(timeout, RV_FOREVER, &timeout_ms) < 0 || check_made(self) < 0) return NULL;
  return stream_end_episode(self->stream, clear_buffers != 0, timeout_ms);
}

static PyObject *structured_close(PyObject *object, PyObject *none)
{
  (void)none;
  structured_object *self = (structured_object *)object;
  if (self->stream == NULL) Py_RETURN_NONE;
  return stream_close(self->stream);
}

static PyObject *structured_abandon(PyObject *object, PyObject *none)
{
  (void)none;
  structured_object *self = (structured_object *)object;
  return self->stream == NULL ? PyLong_FromLong(0) : stream_abandon(self->stream);
}

static PyObject *structured_status(PyObject *object, PyObject *none)
{
  (void)none;
  structured_object *self = (structured_object *)object;
  return check_made(self) < 0 ? NULL : stream_status(self->stream);
}

static PyObject *structured_discard(PyObject *object, PyObject *none)
{
  (void)none;
  structured_object *self = (structured_object *)object;
  if (structured_enter(self) < 0) return NULL;
  size_t n = rv_structured_writer_discard_failed(self->stream->structured);
  stream_leave(self->stream);
  return PyLong_FromSize_t(n);
}

static PyObject *structured_step_is_open(PyObject *object, void *closure)
{
  (void)closure;
  structured_object *self = (structured_object *)object;
  if (structured_enter(self) < 0) return NULL;
  bool open = rv_structured_writer_step_is_open(self->stream->structured);
  stream_leave(self->stream);
  return PyBool_FromLong(open);
}

PyDoc_STRVAR(
    append_doc,
    "append($self, /, data, *, partial_step=False)\n--\n\n"
    "Adds a step, or a part of one, and makes the items that are due. Never waits; the data is copied.\n\n"
    "Parameters\n----------\n"
    "data : nest of arrays and scalars\n    The first step says how many leaves every step has. A leaf that is None has no "
    "row in this step.\n"
    "partial_step : bool\n    Leaves the step open: later appends fill other leaves of the same step.\n\n"
    "Raises\n------\n"
    "InvalidArgumentError\n    Another number of leaves than the first step, another dtype or shape than a leaf's first "
    "value, a pattern that refers to\n    a leaf that steps do not have: nothing was added. An item whose priority is nan: "
    "the step is in, the item is not.\n"
    "FailedPreconditionError\n    A leaf that was already set in the open step; nothing was added.\n"
    "ResourceExhaustedError\n    Too much is in flight: flush, or slow down; nothing was added.");

static PyMethodDef structured_methods[] = {
    {"append", CORE_METHOD(structured_append), CORE_FAST, append_doc},
    {"_flush", structured_flush, METH_VARARGS, "_flush($self, keep, timeout, /)\n--\n\n"},
    {"_end_episode", structured_end_episode, METH_VARARGS, "_end_episode($self, clear_buffers, timeout, /)\n--\n\n"},
    {"_settle", structured_settle, METH_O,
     "_settle($self, timeout, /)\n--\n\nWaits as a flush does, but for every item, whether or not others were refused."},
    {"_take_failure", structured_take_failure, METH_NOARGS,
     "_take_failure($self, /)\n--\n\nWhat the server refused and no call has raised, in words, or None; it is told then."},
    {"_status", structured_status, METH_NOARGS, "_status($self, /)\n--\n\n"},
    {"discard_failed", structured_discard, METH_NOARGS,
     "discard_failed($self, /)\n--\n\nForgets items that failed for good, so that the writer can go on. Returns how many."},
    {"_abandon", structured_abandon, METH_NOARGS,
     "_abandon($self, /)\n--\n\nCloses without a word in the log; how many items were given up (0 inside a call)."},
    {"close", structured_close, METH_NOARGS,
     "close($self, /)\n--\n\nReturns at once; items that were not sent and confirmed are dropped, which is logged, as is what "
     "the "
     "server refused\n"
     "and no call has raised. A flush or end_episode that another thread is in, or that this one is in while a signal handler\n"
     "calls close, ends with CancelledError. Idempotent."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef structured_getset[] = {
    {"step_is_open", structured_step_is_open, NULL, "Was the last append a partial step?", NULL}, {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot structured_slots[] = {
    {Py_tp_doc, "StructuredWriter(client, configs)\n--\n\nThe C part of reverie.structured_writer.StructuredWriter."},
    {Py_tp_new, CORE_SLOT(structured_tp_new)},
    {Py_tp_init, CORE_SLOT(structured_init)},
    {Py_tp_dealloc, CORE_SLOT(structured_dealloc)},
    {Py_tp_traverse, CORE_SLOT(structured_traverse)},
    {Py_tp_methods, structured_methods},
    {Py_tp_getset, structured_getset},
    {0, NULL}};

PyType_Spec structured_spec = {
    .name = "reverie._core.StructuredWriter",
    .basicsize = sizeof(structured_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = structured_slots,
};
