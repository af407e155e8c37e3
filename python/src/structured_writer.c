/* The StructuredWriter type: nests of steps into columns; the library makes the items. */
#include "configs.h"
#include "convert.h"
#include "writer_calls.h"

typedef struct structured_object {
  writer_base base;
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
  self->base.state = state;
  self->base.stream = NULL;
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
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!:StructuredWriter", names, self->base.state->client_type, &client,
                                   &PyList_Type, &list)) {
    return -1;
  }
  scratch s;
  scratch_init(&s);
  size_t n = (size_t)PyList_Size(list);
  rv_pattern_config *configs = configs_read(self->base.state, &s, list);
  rv_structured_writer_config config = {.size = sizeof config, .patterns = configs, .num_patterns = n};
  stream_object *stream = configs == NULL ? NULL : stream_new_structured(self->base.state, (client_object *)client, &config);
  scratch_fini(&s);
  for (size_t i = 0; stream != NULL && i < n; i++) {
    if (remember((client_object *)client, PyList_GetItem(list, (Py_ssize_t)i)) < 0) Py_CLEAR(stream);
  }
  return stream_give(&self->base.stream, stream);
}

static int structured_traverse(PyObject *object, visitproc visit, void *arg)
{
  structured_object *self = (structured_object *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT((PyObject *)self->base.stream);
  Py_VISIT((PyObject *)self->step);
  return 0;
}

static void structured_dealloc(PyObject *object)
{
  structured_object *self = (structured_object *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  Py_XDECREF((PyObject *)self->base.stream);
  Py_XDECREF((PyObject *)self->step);
  freefunc release = (freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free);
  release(object);
  Py_DECREF((PyObject *)type);
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
  if (rv_structured_writer_set_num_columns(self->base.stream->structured, step->num_leaves, &err) != RV_OK) {
    core_raise(self->base.state, &err);
    return -1;
  }
  return configs_name_columns(step, name_column, self->base.stream->structured);
}

static int take_structure(structured_object *self, PyObject *data)
{
  structure_object *step = structure_new(self->base.state, data);
  if (step == NULL) return -1;
  bool ok = true;
  if (self->step == NULL) {
    ok = begin(self, step) == 0;
  } else if (step->num_leaves != self->num_leaves) {
    PyErr_Format(
        self->base.state->errors[RV_INVALID_ARGUMENT],
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
    int found = leaves == NULL ? -1 : tree_flatten(self->base.state, self->step->root, data, leaves);
    if (found < 0) return NULL;
    if (found > 0) return scratch_hold_all(s, leaves, self->num_leaves) < 0 ? NULL : leaves;
  }
  PyErr_SetString(self->base.state->structure_error, "the data changed while it was appended");
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
    if (tensor_from_object(self->base.state, s, leaves[i], RV_DTYPE_INVALID, &cells[n].value) < 0) {
      tree_prefix_path(self->step->root, self->num_leaves, i);
      return -1;
    }
    if (PyArray_Check(leaves[i])) bytes += (size_t)PyArray_NBYTES((PyArrayObject *)leaves[i]);
    n++;
  }
  rv_error err;
  rv_code code;
  if (bytes <= CLIENT_SMALL_BYTES) {
    code = rv_structured_writer_append(self->base.stream->structured, cells, n, partial, &err);
  } else {
    Py_BEGIN_ALLOW_THREADS
    code = rv_structured_writer_append(self->base.stream->structured, cells, n, partial, &err);
    Py_END_ALLOW_THREADS
  }
  if (code != RV_OK) core_raise(self->base.state, &err);
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
  if (partial < 0 || writer_enter(object) < 0) return NULL;
  scratch s;
  scratch_init(&s);
  bool first = self->step == NULL;
  int bad = append(self, given[0], partial != 0, &s);
  if (bad < 0 && first && rv_writer_num_rows(self->base.stream->writer) == 0) forget_step(self);
  stream_leave(self->base.stream);
  scratch_fini(&s);
  if (bad < 0) return NULL;
  Py_RETURN_NONE;
}

/* ---- attributes ---- */

static PyObject *structured_step_is_open(PyObject *object, void *closure)
{
  (void)closure;
  structured_object *self = (structured_object *)object;
  if (writer_enter(object) < 0) return NULL;
  bool open = rv_structured_writer_step_is_open(self->base.stream->structured);
  stream_leave(self->base.stream);
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
    {"append", CORE_METHOD(structured_append), CORE_FAST, append_doc}, WRITER_CALLS, {NULL, NULL, 0, NULL}};

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
