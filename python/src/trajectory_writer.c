/* The TrajectoryWriter type: nests of steps into columns, nests of columns into items. */
#include "convert.h"
#include "writer_calls.h"

typedef struct writer_object {
  writer_base base;
  structure_object *nest; /* of all steps so far, replaced by one that has more; NULL: no step is in */
  unsigned keep, chunk_length;
  size_t configured_end;  /* past the last column that was configured as it came, maybe in a step that was refused */
  PyObject *configs;      /* dict: path -> (num_keep_alive_refs, chunk_length), also for columns that may come */
  PyObject *history;      /* tuple: its columns; NULL: to be made */
  PyObject *flat;         /* a plain dict of them, where that is their nest; NULL: to be made, or another nest */
  structure_object *item; /* of the last item's trajectory */
  PyObject *item_table;   /* the client knows that this table has such items */
} writer_object;

static PyObject *writer_tp_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
  (void)args;
  (void)kwargs;
  core_state *state = core_state_of_type(type);
  PyObject *configs = state == NULL ? NULL : PyDict_New(); /* before the writer, which is tracked from then on */
  if (configs == NULL) return NULL;
  allocfunc alloc = (allocfunc)(uintptr_t)PyType_GetSlot(type, Py_tp_alloc);
  writer_object *self = (writer_object *)alloc(type, 0);
  if (self == NULL) {
    Py_DECREF(configs);
    return NULL;
  }
  self->base.state = state;
  self->base.stream = NULL;
  self->nest = NULL;
  self->keep = self->chunk_length = 0;
  self->configured_end = 0;
  self->history = NULL;
  self->flat = NULL;
  self->item = NULL;
  self->item_table = NULL;
  self->configs = configs;
  return (PyObject *)self;
}

static int writer_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
  static char *names[] = {"client",      "num_keep_alive_refs", "chunk_length",        "delta_encoded",
                          "compression", "max_in_flight_items", "max_in_flight_bytes", "validate_items",
                          NULL};
  writer_object *self = (writer_object *)object;
  PyObject *client;
  unsigned keep, chunk_length = 0, items = 0;
  int delta = 0, compression = RV_COMPRESSION_AUTO, validate = 1;
  Py_ssize_t bytes = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!I|IpiInp:TrajectoryWriter", names, self->base.state->client_type, &client,
                                   &keep, &chunk_length, &delta, &compression, &items, &bytes, &validate)) {
    return -1;
  }
  rv_writer_config config = {
      .size = sizeof config,
      .num_keep_alive_refs = keep,
      .chunk_length = chunk_length,
      .delta_encoded = delta,
      .compression = (rv_compression)compression,
      .max_in_flight_items = items,
      .max_in_flight_bytes = bytes < 0 ? 0 : (size_t)bytes,
      .no_validation = !validate,
  };
  if (stream_give(&self->base.stream, stream_new(self->base.state, (client_object *)client, &config)) < 0) return -1;
  self->keep = keep;
  self->chunk_length = chunk_length;
  return 0;
}

static int writer_traverse(PyObject *object, visitproc visit, void *arg)
{
  writer_object *self = (writer_object *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT((PyObject *)self->base.stream);
  Py_VISIT(self->configs);
  Py_VISIT(self->history);
  Py_VISIT(self->flat);
  Py_VISIT((PyObject *)self->item);
  Py_VISIT(self->item_table);
  Py_VISIT((PyObject *)self->nest);
  return 0;
}

static void writer_dealloc(PyObject *object)
{
  writer_object *self = (writer_object *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  Py_XDECREF(self->history);
  Py_XDECREF(self->flat);
  Py_XDECREF((PyObject *)self->base.stream);
  Py_XDECREF((PyObject *)self->item);
  Py_XDECREF(self->item_table);
  Py_XDECREF(self->configs);
  Py_XDECREF((PyObject *)self->nest);
  freefunc release = (freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free);
  release(object);
  Py_DECREF((PyObject *)type);
}

/* What can be asked of a closed writer, too. */
static int writer_enter_to_read(writer_object *self)
{
  return writer_check_made((PyObject *)self) < 0 ? -1 : stream_enter_to_read(self->base.stream);
}

/* ---- growing ---- */

static int configure_column(writer_object *self, uint32_t column, unsigned keep, unsigned chunk_length)
{
  rv_error err;
  if (rv_writer_configure_column(self->base.stream->writer, column, keep, chunk_length, &err) == RV_OK) return 0;
  core_raise(self->base.state, &err);
  return -1;
}

static int configure_column_by(writer_object *self, uint32_t column, PyObject *config)
{
  unsigned keep, chunk_length;
  if (!PyArg_ParseTuple(config, "II", &keep, &chunk_length)) return -1;
  return configure_column(self, column, keep, chunk_length);
}

static int introduce_column(writer_object *self, uint32_t column, PyObject *path)
{
  PyObject *text = PyObject_Repr(path);
  const char *utf8 = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(text, NULL);
  rv_error err;
  bool ok = utf8 != NULL;
  if (ok && rv_writer_name_column(self->base.stream->writer, column, utf8, &err) != RV_OK) {
    core_raise(self->base.state, &err);
    ok = false;
  }
  Py_XDECREF(text);
  if (!ok) return -1;
  PyObject *config = PyDict_GetItemWithError(self->configs, path);
  if (config == NULL && PyErr_Occurred()) return -1;
  if (config == NULL) /* what another one of this number was configured to, whose step was refused, is not for this one */
    return column < self->configured_end ? configure_column(self, column, self->keep, self->chunk_length) : 0;
  if (column >= self->configured_end) self->configured_end = column + 1;
  return configure_column_by(self, column, config);
}

/* What the nest has more than the steps before it. */
static int introduce(writer_object *self, const structure_object *nest)
{
  const size_t first = self->nest == NULL ? 0 : self->nest->num_leaves;
  PyObject *paths = tree_paths(nest->root, nest->num_leaves);
  int bad = paths == NULL ? -1 : 0;
  for (size_t i = first; bad == 0 && i < nest->num_leaves; i++)
    bad = introduce_column(self, (uint32_t)i, PyList_GetItem(paths, (Py_ssize_t)i));
  Py_XDECREF(paths);
  return bad;
}

/* ---- append ---- */

typedef struct step {
  writer_object *writer;
  structure_object *nest; /* of all steps so far and this one: the writer's once it is in */
  scratch s;
  rv_cell *cells;
  size_t n, room;
  size_t bytes;
} step;

static int add_cell(void *context, size_t leaf, PyObject *value)
{
  step *into = context;
  writer_object *self = into->writer;
  if (into->n == into->room) {
    size_t room = into->nest->num_leaves;
    rv_cell *cells = scratch_alloc(&into->s, room, sizeof *cells);
    if (cells == NULL) return -1;
    into->cells = cells;
    into->room = room;
  }
  Py_INCREF(value);
  rv_cell *cell = &into->cells[into->n];
  cell->column = (uint32_t)leaf;
  if (scratch_hold(&into->s, value) < 0) return -1;
  if (tensor_from_object(self->base.state, &into->s, value, RV_DTYPE_INVALID, &cell->value) < 0) {
    tree_prefix_path(into->nest->root, into->nest->num_leaves, leaf);
    return -1;
  }
  if (PyArray_Check(value)) into->bytes += (size_t)PyArray_NBYTES((PyArrayObject *)value);
  into->n++;
  return 1;
}

static int fill_step(writer_object *self, PyObject *data, step *into)
{
  into->nest = (structure_object *)Py_XNewRef((PyObject *)self->nest);
  for (int attempt = 0; attempt < 2; attempt++) {
    structure_object *nest = into->nest;
    into->n = into->room = into->bytes = 0;
    int found = nest == NULL ? 0 : tree_match(self->base.state, nest->root, data, add_cell, into);
    if (found != 0) return found < 0 ? -1 : 0;
    into->nest = nest == NULL ? structure_new(self->base.state, data) : structure_grown(nest, data);
    Py_XDECREF((PyObject *)nest);
    if (into->nest == NULL) return -1;
  }
  PyErr_SetString(self->base.state->structure_error, "the data changed while it was appended");
  return -1;
}

/* The step is in: what it brought is there. Its nest, or the one before it, is left in the step, to be let go of without the lock. */
static void take_nest(writer_object *self, step *from)
{
  if (from->nest == self->nest) return;
  structure_object *before = self->nest;
  self->nest = from->nest;
  from->nest = before;
  Py_CLEAR(self->history);
  Py_CLEAR(self->flat);
}

static const char *const append_names[] = {"data", "partial_step"};
static const core_signature append_signature = {"append", append_names, 2, 1, 1};

static PyObject *writer_append(PyObject *object, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
  writer_object *self = (writer_object *)object;
  PyObject *given[2];
  if (core_parse(&append_signature, args, nargs, kwnames, given) < 0) return NULL;
  if (given[0] == Py_None) {
    PyErr_SetString(PyExc_TypeError, "append got None, which is no step; does the function that makes it return it?");
    return NULL;
  }
  int partial = given[1] == NULL ? 0 : PyObject_IsTrue(given[1]);
  if (partial < 0 || writer_enter(object) < 0) return NULL;
  step into = {.writer = self};
  scratch_init(&into.s);
  bool ok = fill_step(self, given[0], &into) == 0;
  if (ok && into.nest != self->nest) ok = introduce(self, into.nest) == 0;
  ok = ok && stream_append(self->base.stream, into.cells, into.n, into.bytes, partial != 0) == 0;
  if (ok) take_nest(self, &into);
  stream_leave(self->base.stream);
  Py_XDECREF((PyObject *)into.nest);
  scratch_fini(&into.s);
  if (!ok) return NULL;
  Py_RETURN_NONE;
}

/* ---- create_item ---- */

static PyObject **item_columns(writer_object *self, PyObject *trajectory, scratch *s, size_t *n)
{
  for (int attempt = 0; attempt < 2; attempt++) {
    if (self->item == NULL && (self->item = structure_new(self->base.state, trajectory)) == NULL) return NULL;
    *n = self->item->num_leaves;
    PyObject **leaves = scratch_alloc(s, *n, sizeof *leaves);
    int found = leaves == NULL ? -1 : tree_flatten(self->base.state, self->item->root, trajectory, leaves);
    if (found < 0) return NULL;
    if (found > 0) return scratch_hold_all(s, leaves, *n) < 0 ? NULL : leaves;
    Py_CLEAR(self->item);
    Py_CLEAR(self->item_table);
  }
  PyErr_SetString(PyExc_RuntimeError, "the trajectory changed while it was flattened");
  return NULL;
}

static int item_column(writer_object *self, size_t i, PyObject *leaf, const char *name, rv_item_column *out)
{
  if (!PyObject_TypeCheck(leaf, self->base.state->column_type)) {
    PyErr_Format(PyExc_TypeError,
                 "all leaves of the trajectory must be TrajectoryColumn, rows of the writer's history such as "
                 "writer.history['obs'][-3:]; leaf %zu is a %S",
                 i, (PyObject *)Py_TYPE(leaf));
    return -1;
  }
  column_object *column = (column_object *)leaf;
  if (column->stream != NULL && column->stream != self->base.stream) {
    PyErr_Format(PyExc_ValueError,
                 "Error in column %zu: its rows are another writer's; an item can only refer to its own writer's", i);
    return -1;
  }
  if (column->stream != NULL && column->generation != self->base.stream->generation) {
    PyErr_Format(PyExc_ValueError, "Error in column %zu: its rows have expired, the history was cleared by end_episode", i);
    return -1;
  }
  *out = (rv_item_column){
      .runs = run_list_runs(&column->list), .num_runs = column->list.count, .squeeze = column->squeeze, .name = name};
  return 0;
}

static const char *const create_names[] = {"table", "priority", "trajectory"};
static const core_signature create_signature = {"create_item", create_names, 3, 3, 3};

static PyObject *writer_create_item(PyObject *object, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
  writer_object *self = (writer_object *)object;
  PyObject *given[3];
  double priority;
  if (core_parse(&create_signature, args, nargs, kwnames, given) < 0) return NULL;
  const char *table = core_text(given[0], "table");
  if (table == NULL || core_double(given[1], "priority", &priority) < 0 || writer_enter(object) < 0) return NULL;
  scratch s;
  scratch_init(&s);
  size_t n = 0, rows = 0;
  PyObject **leaves = item_columns(self, given[2], &s, &n);
  rv_item_column *columns = leaves == NULL ? NULL : scratch_alloc(&s, n, sizeof *columns);
  const char *const *names = columns == NULL ? NULL : structure_names(self->item);
  bool ok = names != NULL;
  for (size_t i = 0; ok && i < n; i++) {
    ok = item_column(self, i, leaves[i], names[i], &columns[i]) == 0;
    if (ok) rows += ((column_object *)leaves[i])->list.rows;
  }
  if (ok && rows == 0) {
    PyErr_SetString(PyExc_ValueError, "the trajectory must not be empty: it has no rows");
    ok = false;
  }
  uint64_t key = 0;
  if (ok) {
    rv_error err;
    rv_writer_set_naming(self->base.stream->writer, structure_naming(self->item));
    ok = rv_writer_create_item(self->base.stream->writer, table, priority, columns, n, &key, &err) == RV_OK;
    if (!ok) core_raise(self->base.state, &err);
  }
  if (ok && self->item_table != given[0]) {
    ok = client_remember(self->base.stream->client, given[0], self->item) == 0;
    Py_INCREF(given[0]);
    PyObject *old = self->item_table;
    self->item_table = given[0];
    Py_XDECREF(old);
  }
  stream_leave(self->base.stream);
  scratch_fini(&s);
  return ok ? PyLong_FromUnsignedLongLong(key) : NULL;
}

/* ---- configure ---- */

static PyObject *configure_known(writer_object *self, PyObject *path, PyObject *config)
{
  PyObject *paths = self->nest == NULL ? PyList_New(0) : tree_paths(self->nest->root, self->nest->num_leaves);
  int bad = paths == NULL ? -1 : 0;
  for (Py_ssize_t i = 0; bad == 0 && i < PyList_Size(paths); i++) {
    int same = PyObject_RichCompareBool(PyList_GetItem(paths, i), path, Py_EQ);
    if (same != 0) bad = same < 0 ? -1 : configure_column_by(self, (uint32_t)i, config);
    if (same != 0) break;
  }
  Py_XDECREF(paths);
  if (bad < 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject *writer_configure(PyObject *object, PyObject *args)
{
  writer_object *self = (writer_object *)object;
  PyObject *path, *config;
  if (!PyArg_ParseTuple(args, "OO!:_configure", &path, &PyTuple_Type, &config)) return NULL;
  if (PyDict_SetItem(self->configs, path, config) < 0 || writer_enter(object) < 0) return NULL;
  PyObject *out = configure_known(self, path, config);
  stream_leave(self->base.stream);
  return out;
}

/* ---- attributes ---- */

static PyObject *make_columns(writer_object *self, const structure_object *nest)
{
  PyObject *paths = tree_paths(nest->root, nest->num_leaves);
  Py_ssize_t n = paths == NULL ? 0 : PyList_Size(paths);
  PyObject *columns = paths == NULL ? NULL : PyTuple_New(n);
  for (Py_ssize_t i = 0; columns != NULL && i < n; i++) {
    PyObject *column = history_new(self->base.stream, (uint32_t)i, PyList_GetItem(paths, i));
    if (column == NULL || PyTuple_SetItem(columns, i, column) < 0) Py_CLEAR(columns);
  }
  Py_XDECREF(paths);
  return columns;
}

/* A nest of its own for each caller, who may change it. */
static PyObject *nest_of_columns(const structure_object *nest, PyObject *columns)
{
  size_t n = (size_t)PyTuple_Size(columns);
  PyObject **leaves = PyMem_Malloc((n + 1) * sizeof *leaves);
  if (leaves == NULL) return PyErr_NoMemory();
  for (size_t i = 0; i < n; i++) leaves[i] = PyTuple_GetItem(columns, (Py_ssize_t)i);
  PyObject *out = tree_unflatten(nest->root, leaves, n);
  PyMem_Free(leaves);
  return out;
}

static bool is_flat(const tree *root)
{
  bool flat = root->type == &PyDict_Type;
  for (size_t i = 0; flat && i < root->n; i++) flat = root->child[i]->kind == TREE_LEAF;
  return flat;
}

/* What is made may let others run (the collector does), who read the history as well, or append a step with a new column: then it is not kept. */
static PyObject *columns_of_history(writer_object *self, const structure_object *nest)
{
  if (self->history != NULL && self->nest == nest) return Py_NewRef(self->history);
  PyObject *columns = make_columns(self, nest);
  if (columns != NULL && self->history == NULL && self->nest == nest) self->history = Py_NewRef(columns);
  return columns;
}

static bool keep_flat(writer_object *self, const structure_object *nest, PyObject *history)
{
  PyObject *copy = PyDict_Copy(history);
  if (copy == NULL) return false;
  if (self->flat == NULL && self->nest == nest)
    self->flat = copy;
  else
    Py_DECREF(copy);
  return true;
}

static PyObject *writer_history(PyObject *object, void *closure)
{
  (void)closure;
  writer_object *self = (writer_object *)object;
  if (self->nest == NULL || self->nest->num_leaves == 0) {
    return PyErr_Format(self->base.state->errors[RV_FAILED_PRECONDITION], "the history has no columns yet: append a step first");
  }
  if (self->flat != NULL) return PyDict_Copy(self->flat); /* four times as quick as a new nest */
  for (int attempt = 0; attempt < 2; attempt++) {
    structure_object *nest = self->nest; /* a container of the user's may let another thread append, which replaces it */
    Py_INCREF((PyObject *)nest);
    PyObject *columns = columns_of_history(self, nest);
    PyObject *out = columns == NULL ? NULL : nest_of_columns(nest, columns);
    Py_XDECREF(columns);
    bool whole = self->nest == nest;
    if (out != NULL && whole && is_flat(nest->root) && !keep_flat(self, nest, out)) Py_CLEAR(out);
    Py_DECREF((PyObject *)nest);
    if (out == NULL || whole) return out;
    Py_DECREF(out);
  }
  PyErr_SetString(PyExc_RuntimeError, "the history got new columns while it was read");
  return NULL;
}

static PyObject *writer_episode_steps(PyObject *object, void *closure)
{
  (void)closure;
  writer_object *self = (writer_object *)object;
  if (writer_enter_to_read(self) < 0) return NULL;
  int64_t steps = rv_writer_episode_steps(self->base.stream->writer);
  stream_leave(self->base.stream);
  return PyLong_FromLongLong(steps);
}

static PyObject *writer_step_is_open(PyObject *object, void *closure)
{
  (void)closure;
  writer_object *self = (writer_object *)object;
  if (writer_enter_to_read(self) < 0) return NULL;
  bool open = rv_writer_step_is_open(self->base.stream->writer);
  stream_leave(self->base.stream);
  return PyBool_FromLong(open);
}

PyDoc_STRVAR(
    append_doc,
    "append($self, /, data, *, partial_step=False)\n--\n\n"
    "Adds one row to the columns of the data's leaves. Never waits; the data is copied.\n\n"
    "Parameters\n----------\n"
    "data : nest of arrays and scalars\n    A leaf that is None or missing has no row in this step. The "
    "first value of a column fixes its dtype and shape.\n"
    "partial_step : bool\n    Leaves the step open: later appends fill other columns of the same row. Until then these have None "
    "there in `history`.\n\n"
    "Raises\n------\n"
    "InvalidArgumentError\n    Wrong dtype or shape, or a column that was already set in the open step; the "
    "writer is as it was.\n"
    "ResourceExhaustedError\n    Too many bytes are in flight: flush, or slow down.");
PyDoc_STRVAR(create_doc,
             "create_item($self, /, table, priority, trajectory)\n--\n\n"
             "Queues an item and returns its key. Never waits; the item is sent once the rows it needs are complete.\n\n"
             "Parameters\n----------\n"
             "table : str\n"
             "priority : float\n"
             "trajectory : nest of TrajectoryColumn\n    Columns of `history`, indexed.\n\n"
             "Raises\n------\n"
             "InvalidArgumentError\n    Rows that are missing or no longer kept, columns that do not fit the table's signature, "
             "a NaN priority.\n"
             "NotFoundError\n    No such table.\n"
             "ResourceExhaustedError\n    Too much is in flight: flush, or slow down.");

static PyMethodDef writer_methods[] = {
    {"append", CORE_METHOD(writer_append), CORE_FAST, append_doc},
    {"create_item", CORE_METHOD(writer_create_item), CORE_FAST, create_doc},
    {"_configure", writer_configure, METH_VARARGS, "_configure($self, path, config, /)\n--\n\n"},
    WRITER_CALLS,
    {NULL, NULL, 0, NULL}};

static PyObject *writer_is_initialised(PyObject *object, void *closure)
{
  (void)closure;
  return PyBool_FromLong(((writer_object *)object)->base.stream != NULL);
}

static PyGetSetDef writer_getset[] = {
    {"history", writer_history, NULL,
     "The columns so far, in the nest of the data, a new one each time: index them to make the columns of an item.", NULL},
    {"episode_steps", writer_episode_steps, NULL, "Completed steps of this episode.", NULL},
    {"step_is_open", writer_step_is_open, NULL, "Was the last append a partial step?", NULL},
    {"_is_initialised", writer_is_initialised, NULL, "Was __init__ called?", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot writer_slots[] = {
    {Py_tp_doc,
     "TrajectoryWriter(client, num_keep_alive_refs, chunk_length=0, delta_encoded=False, compression=0, max_in_flight_items=0, "
     "max_in_flight_bytes=0, validate_items=True)\n--\n\nThe C part of reverie.TrajectoryWriter."},
    {Py_tp_new, CORE_SLOT(writer_tp_new)},
    {Py_tp_init, CORE_SLOT(writer_init)},
    {Py_tp_dealloc, CORE_SLOT(writer_dealloc)},
    {Py_tp_traverse, CORE_SLOT(writer_traverse)},
    {Py_tp_methods, writer_methods},
    {Py_tp_getset, writer_getset},
    {0, NULL}};

PyType_Spec writer_spec = {
    .name = "reverie._core.TrajectoryWriter",
    .basicsize = sizeof(writer_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = writer_slots,
};
