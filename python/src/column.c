/* What items are made of: a writer's history column by column, TrajectoryColumn, and references to single rows. */
#include "convert.h"
#include "stream.h"

/* ---- lists of rows ---- */

void run_list_fini(run_list *list)
{
  PyMem_Free(list->more);
  *list = (run_list){0};
}

/* Room for one run more. */
static int run_list_grow(run_list *list)
{
  size_t room = list->more == NULL ? 4 : list->room * 2;
  rv_run *runs = PyMem_Realloc(list->more, room * sizeof *runs);
  if (runs == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  if (list->more == NULL) runs[0] = list->only;
  list->more = runs;
  list->room = room;
  return 0;
}

int run_list_add(run_list *list, uint32_t column, int64_t row)
{
  rv_run *runs = list->more == NULL ? &list->only : list->more;
  rv_run *last = list->count > 0 ? &runs[list->count - 1] : NULL;
  list->rows++;
  if (last != NULL && last->column == column && last->count == 1) {
    last->stride = row - last->first;
    last->count = 2;
    return 0;
  }
  if (last != NULL && last->column == column && row == last->first + last->stride * (int64_t)last->count) {
    last->count++;
    return 0;
  }
  if (list->count > 0 && list->count >= list->room) {
    if (run_list_grow(list) < 0) return -1;
    runs = list->more;
  }
  runs[list->count++] = (rv_run){.column = column, .count = 1, .first = row, .stride = 1};
  return 0;
}

void run_list_get(const run_list *list, size_t n, uint32_t *column, int64_t *row)
{
  const rv_run *run = run_list_runs(list);
  while (n >= run->count) {
    n -= run->count;
    run++;
  }
  *column = run->column;
  *row = run->first + run->stride * (int64_t)n;
}

/* ---- values ---- */

/* Takes the stream's lock for reading rows of this generation; -1 with RuntimeError if they are gone. */
static int enter_generation(stream_object *stream, uint64_t generation)
{
  if (stream_enter_to_read(stream) < 0) return -1;
  if (stream->generation == generation) return 0;
  stream_leave(stream);
  PyErr_SetString(stream->state->errors[RV_FAILED_PRECONDITION],
                  "the row has expired: the writer's history was cleared by end_episode");
  return -1;
}

static int raise_row(stream_object *stream, const rv_error *err)
{
  rv_error expired = *err; /* Reverb's RuntimeError, not a ValueError: the argument was right once */
  expired.code = RV_FAILED_PRECONDITION;
  core_raise(stream->state, &expired);
  return -1;
}

static bool same_rows(const rv_tensor *a, rv_dtype dtype, uint32_t rank, const int64_t *shape)
{
  return a->dtype == dtype && a->rank == rank && (rank == 0 || memcmp(a->shape, shape, rank * sizeof *shape) == 0);
}

/* The rows stacked, or the only one when squeezed. With the lock taken. */
static PyObject *stack_rows(stream_object *stream, const run_list *list, bool squeeze)
{
  PyArrayObject *out = NULL;
  rv_dtype dtype = RV_DTYPE_INVALID;
  uint32_t rank = 0;
  int64_t shape[RV_MAX_RANK + 1];
  size_t row_bytes = 0;
  for (size_t i = 0; i < list->rows; i++) {
    uint32_t column;
    int64_t row;
    rv_tensor value;
    rv_error err;
    run_list_get(list, i, &column, &row);
    if (rv_writer_row(stream->writer, column, row, &value, &err) != RV_OK) {
      raise_row(stream, &err);
      Py_XDECREF((PyObject *)out);
      return NULL;
    }
    if (out == NULL) {
      dtype = value.dtype;
      rank = value.rank > RV_MAX_RANK ? RV_MAX_RANK : value.rank;
      shape[0] = (int64_t)list->rows;
      if (rank > 0) memcpy(shape + 1, value.shape, rank * sizeof *shape);
      out = squeeze ? array_new(stream->state, dtype, rank, shape + 1) : array_new(stream->state, dtype, rank + 1, shape);
      if (out == NULL) return NULL;
      row_bytes = (size_t)PyArray_NBYTES(out) / list->rows;
    }
    if (!same_rows(&value, dtype, rank, shape + 1)) {
      PyErr_SetString(PyExc_ValueError, "the rows have different dtypes or shapes and cannot be stacked");
      Py_DECREF(out);
      return NULL;
    }
    if (dtype == RV_STRING) {
      size_t n = row_bytes / sizeof(PyObject *);
      if (array_set_strings(out, i * n, value.data, n) < 0) Py_CLEAR(out);
      if (out == NULL) return NULL;
    } else if (row_bytes > 0) {
      memcpy(PyArray_BYTES(out) + i * row_bytes, value.data, row_bytes);
    }
  }
  return (PyObject *)out;
}

/* The spec of a list's first row; with the lock taken. */
static int first_spec(stream_object *stream, const run_list *list, rv_spec *spec)
{
  uint32_t column;
  int64_t row;
  rv_error err;
  rv_tensor value;
  run_list_get(list, 0, &column, &row);
  if (rv_writer_row_state(stream->writer, column, row) != RV_ROW_PRESENT) {
    rv_code code = rv_writer_row(stream->writer, column, row, &value, &err);
    if (code != RV_OK) return raise_row(stream, &err);
  }
  if (rv_writer_column_spec(stream->writer, column, spec) != RV_OK) {
    PyErr_SetString(PyExc_ValueError, "the column has no values yet");
    return -1;
  }
  return 0;
}

static PyObject *shape_object(const rv_spec *spec, bool squeeze, size_t rows, bool as_list)
{
  PyObject *list = PyList_New(0);
  for (int32_t i = squeeze ? 0 : -1; list != NULL && i < spec->rank; i++) {
    PyObject *size = PyLong_FromLongLong(i < 0 ? (long long)rows : spec->shape[i]);
    if (size == NULL || PyList_Append(list, size) < 0) Py_CLEAR(list);
    Py_XDECREF(size);
  }
  if (as_list || list == NULL) return list;
  PyObject *tuple = PyList_AsTuple(list);
  Py_DECREF(list);
  return tuple;
}

static PyObject *dtype_object(core_state *state, rv_dtype dtype)
{
  PyObject *descr = (PyObject *)state->descr[(unsigned)dtype & (CORE_DTYPES - 1)];
  Py_XINCREF(descr);
  return descr;
}

/* ---- references ---- */

typedef struct reference_object {
  PyObject_HEAD
  stream_object *stream;
  uint64_t generation;
  uint32_t column;
  int64_t row;
} reference_object;

static PyObject *reference_new(stream_object *stream, uint64_t generation, uint32_t column, int64_t row)
{
  reference_object *self = PyObject_GC_New(reference_object, stream->state->reference_type);
  if (self == NULL) return NULL;
  Py_INCREF((PyObject *)stream);
  self->stream = stream;
  self->generation = generation;
  self->column = column;
  self->row = row;
  PyObject_GC_Track((PyObject *)self);
  return (PyObject *)self;
}

static int reference_traverse(PyObject *object, visitproc visit, void *arg)
{
  Py_VISIT(Py_TYPE(object));
  Py_VISIT((PyObject *)((reference_object *)object)->stream);
  return 0;
}

static void reference_dealloc(PyObject *object)
{
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  Py_DECREF((PyObject *)((reference_object *)object)->stream);
  PyObject_GC_Del(object);
  Py_DECREF((PyObject *)type);
}

static PyObject *reference_expired(PyObject *object, void *closure)
{
  (void)closure;
  reference_object *self = (reference_object *)object;
  if (stream_enter_to_read(self->stream) < 0) return NULL;
  bool expired = self->stream->generation != self->generation ||
                 rv_writer_row_state(self->stream->writer, self->column, self->row) == RV_ROW_EXPIRED;
  stream_leave(self->stream);
  return PyBool_FromLong(expired);
}

typedef enum asked { ASKED_NUMPY, ASKED_SHAPE, ASKED_DTYPE } asked;

static PyObject *look(stream_object *stream, uint64_t generation, const run_list *list, bool squeeze, bool as_list, asked what)
{
  if (list->rows == 0) {
    return PyErr_Format(PyExc_IndexError, "the column has no rows: it has no shape, dtype or values");
  }
  if (enter_generation(stream, generation) < 0) return NULL;
  rv_spec spec;
  PyObject *out = NULL;
  if (what == ASKED_NUMPY) {
    out = stack_rows(stream, list, squeeze);
  } else if (first_spec(stream, list, &spec) == 0) {
    out = what == ASKED_SHAPE ? shape_object(&spec, squeeze, list->rows, as_list) : dtype_object(stream->state, spec.dtype);
  }
  stream_leave(stream);
  return out;
}

static PyObject *reference_look(PyObject *object, asked what)
{
  reference_object *self = (reference_object *)object;
  run_list list = {.only = {.column = self->column, .count = 1, .first = self->row, .stride = 1}, .count = 1, .rows = 1};
  return look(self->stream, self->generation, &list, true, true, what);
}

static PyObject *reference_numpy(PyObject *object, PyObject *none)
{
  (void)none;
  return reference_look(object, ASKED_NUMPY);
}

static PyObject *reference_attribute(PyObject *object, void *closure)
{
  return reference_look(object, closure == NULL ? ASKED_SHAPE : ASKED_DTYPE);
}

static PyMethodDef reference_methods[] = {{"numpy", reference_numpy, METH_NOARGS, "numpy($self, /)\n--\n\nA copy of the row."},
                                          {NULL, NULL, 0, NULL}};
static PyGetSetDef reference_getset[] = {{"expired", reference_expired, NULL, "Is the row no longer kept?", NULL},
                                         {"shape", reference_attribute, NULL, "The row's shape, a list.", NULL},
                                         {"dtype", reference_attribute, NULL, "The row's dtype.", (void *)1},
                                         {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot reference_slots[] = {{Py_tp_doc, "A reference to one row of a writer's column; it holds no data."},
                                        {Py_tp_dealloc, CORE_SLOT(reference_dealloc)},
                                        {Py_tp_traverse, CORE_SLOT(reference_traverse)},
                                        {Py_tp_methods, reference_methods},
                                        {Py_tp_getset, reference_getset},
                                        {0, NULL}};
PyType_Spec reference_spec = {
    .name = "reverie._core.RowReference",
    .basicsize = sizeof(reference_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = reference_slots,
};

/* ---- TrajectoryColumn ---- */

column_object *column_begin(core_state *state, stream_object *stream, bool squeeze, PyObject *path)
{
  column_object *self = PyObject_GC_New(column_object, state->column_type);
  if (self == NULL) return NULL;
  self->state = state;
  Py_XINCREF((PyObject *)stream);
  self->stream = stream;
  self->generation = 0;
  self->list = (run_list){0};
  self->squeeze = squeeze;
  Py_XINCREF(path);
  self->path = path;
  return self;
}

PyObject *column_end(column_object *owned_column, int bad)
{
  if (bad == 0) {
    PyObject_GC_Track((PyObject *)owned_column);
    return (PyObject *)owned_column;
  }
  Py_DECREF((PyObject *)owned_column);
  return NULL;
}

/* A client may hold a column, and a key in its path may. */
static int column_traverse(PyObject *object, visitproc visit, void *arg)
{
  column_object *self = (column_object *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT((PyObject *)self->stream);
  Py_VISIT(self->path);
  return 0;
}

static void column_dealloc(PyObject *object)
{
  column_object *self = (column_object *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  run_list_fini(&self->list);
  Py_XDECREF((PyObject *)self->stream);
  Py_XDECREF(self->path);
  PyObject_GC_Del(object);
  Py_DECREF((PyObject *)type);
}

static int add_reference(column_object *self, PyObject *item)
{
  if (item == Py_None) {
    PyErr_SetString(PyExc_ValueError,
                    "a TrajectoryColumn cannot contain any None references: a row is missing or no longer kept");
    return -1;
  }
  if (!PyObject_TypeCheck(item, self->state->reference_type)) {
    PyErr_Format(PyExc_TypeError, "data_references must be references to rows of a writer's history, got %R", item);
    return -1;
  }
  reference_object *reference = (reference_object *)item;
  if (self->stream != NULL && self->stream != reference->stream) {
    PyErr_SetString(PyExc_ValueError, "references of different writers cannot stand in one column");
    return -1;
  }
  if (self->stream != NULL && self->generation != reference->generation) {
    PyErr_SetString(PyExc_ValueError, "references have expired: the writer's history was cleared since");
    return -1;
  }
  if (self->stream == NULL) {
    Py_INCREF((PyObject *)reference->stream);
    self->stream = reference->stream;
    self->generation = reference->generation;
  }
  return run_list_add(&self->list, reference->column, reference->row);
}

static PyObject *column_tp_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
  static char *names[] = {"data_references", "squeeze", "path", NULL};
  PyObject *references, *path = Py_None;
  int squeeze = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$pO:TrajectoryColumn", names, &references, &squeeze, &path)) return NULL;
  core_state *state = core_state_of_type(type);
  PyObject *items = state == NULL ? NULL : PySequence_List(references);
  if (items == NULL) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return NULL;
    PyErr_Clear();
    return PyErr_Format(PyExc_TypeError, "data_references must be a list of references to rows of a writer's history, got %R",
                        references);
  }
  column_object *self = column_begin(state, NULL, squeeze != 0, path == Py_None ? NULL : path);
  int bad = self == NULL ? -1 : 0;
  for (Py_ssize_t i = 0; bad == 0 && i < PyList_Size(items); i++) bad = add_reference(self, PyList_GetItem(items, i));
  Py_DECREF(items);
  if (self == NULL) return NULL;
  if (bad == 0 && squeeze && self->list.rows != 1) {
    PyErr_Format(PyExc_ValueError, "a squeezed column must have exactly one reference, got %zu", self->list.rows);
    bad = -1;
  }
  return column_end(self, bad);
}

static Py_ssize_t column_length(PyObject *object)
{
  return (Py_ssize_t)((column_object *)object)->list.rows;
}

static int add_nth(const column_object *self, Py_ssize_t n, run_list *list)
{
  Py_ssize_t rows = (Py_ssize_t)self->list.rows;
  if (n < 0) n += rows;
  if (n < 0 || n >= rows) {
    PyErr_Format(PyExc_IndexError, "index out of range: the column has %zd rows", rows);
    return -1;
  }
  uint32_t column;
  int64_t row;
  run_list_get(&self->list, (size_t)n, &column, &row);
  return run_list_add(list, column, row);
}

static int bad_index(PyObject *key)
{
  PyErr_Format(PyExc_TypeError, "column indices must be integers, slices or lists of integers, not %S", (PyObject *)Py_TYPE(key));
  return -1;
}

/* An index as a number; one that no size could have stays out of range. */
static Py_ssize_t nth(PyObject *index)
{
  int overflow;
  long long n = PyLong_AsLongLongAndOverflow(index, &overflow);
  return overflow == 0 ? (Py_ssize_t)n : overflow < 0 ? PY_SSIZE_T_MIN : PY_SSIZE_T_MAX;
}

static int select_rows(const column_object *self, PyObject *key, run_list *list)
{
  if (PyLong_Check(key)) {
    return add_nth(self, nth(key), list);
  }
  if (PySlice_Check(key)) {
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(key, &start, &stop, &step) < 0) return -1;
    Py_ssize_t count = PySlice_AdjustIndices((Py_ssize_t)self->list.rows, &start, &stop, step);
    for (Py_ssize_t i = 0; i < count; i++) {
      if (add_nth(self, start + i * step, list) < 0) return -1;
    }
    return 0;
  }
  if (!PyList_Check(key)) return bad_index(key);
  for (Py_ssize_t i = 0; i < PyList_Size(key); i++) {
    PyObject *index = PyList_GetItem(key, i);
    if (!PyLong_Check(index)) return bad_index(index);
    if (add_nth(self, nth(index), list) < 0) return -1;
  }
  return 0;
}

static PyObject *column_subscript(PyObject *object, PyObject *key)
{
  column_object *self = (column_object *)object;
  column_object *column = column_begin(self->state, self->stream, PyLong_Check(key), self->path);
  if (column == NULL) return NULL;
  column->generation = self->generation;
  return column_end(column, select_rows(self, key, &column->list));
}

static PyObject *column_iter(PyObject *object)
{
  column_object *self = (column_object *)object;
  PyObject *list = PyList_New((Py_ssize_t)self->list.rows);
  for (size_t i = 0; list != NULL && i < self->list.rows; i++) {
    uint32_t column;
    int64_t row;
    run_list_get(&self->list, i, &column, &row);
    PyObject *reference = reference_new(self->stream, self->generation, column, row);
    if (reference == NULL || PyList_SetItem(list, (Py_ssize_t)i, reference) < 0) Py_CLEAR(list);
  }
  PyObject *iterator = list == NULL ? NULL : PyObject_GetIter(list);
  Py_XDECREF(list);
  return iterator;
}

static PyObject *column_numpy(PyObject *object, PyObject *none)
{
  (void)none;
  column_object *self = (column_object *)object;
  return look(self->stream, self->generation, &self->list, self->squeeze, false, ASKED_NUMPY);
}

static PyObject *column_attribute(PyObject *object, void *closure)
{
  column_object *self = (column_object *)object;
  return look(self->stream, self->generation, &self->list, self->squeeze, false, closure == NULL ? ASKED_SHAPE : ASKED_DTYPE);
}

static PyObject *column_is_squeezed(PyObject *object, void *closure)
{
  (void)closure;
  return PyBool_FromLong(((column_object *)object)->squeeze);
}

static PyObject *column_repr(PyObject *object)
{
  column_object *self = (column_object *)object;
  return PyUnicode_FromFormat("<TrajectoryColumn of %zu rows%s, path=%R>", self->list.rows, self->squeeze ? ", squeezed" : "",
                              self->path == NULL ? Py_None : self->path);
}

static PyMethodDef column_methods[] = {
    {"numpy", column_numpy, METH_NOARGS,
     "numpy($self, /)\n--\n\nA copy of the rows, stacked along dimension 0; of the one row when squeezed."},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef column_getset[] = {
    {"is_squeezed", column_is_squeezed, NULL, "Is it one row, shown without the time dimension?", NULL},
    {"shape", column_attribute, NULL, "Of the array that numpy() gives.", NULL},
    {"dtype", column_attribute, NULL, "Of the array that numpy() gives.", (void *)1},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot column_slots[] = {{Py_tp_doc, "TrajectoryColumn(data_references, *, squeeze=False, path=None)\n--\n\n"
                                                 "Rows of a writer's history, as a column of an item.\n\n"
                                                 "Columns come from indexing a history (`writer.history['a'][-3:]`); this "
                                                 "constructor puts together references that iterating\n"
                                                 "over columns gives. They must all be of one writer."},
                                     {Py_tp_new, CORE_SLOT(column_tp_new)},
                                     {Py_tp_dealloc, CORE_SLOT(column_dealloc)},
                                     {Py_tp_traverse, CORE_SLOT(column_traverse)},
                                     {Py_tp_repr, CORE_SLOT(column_repr)},
                                     {Py_tp_iter, CORE_SLOT(column_iter)},
                                     {Py_tp_methods, column_methods},
                                     {Py_tp_getset, column_getset},
                                     {Py_mp_length, CORE_SLOT(column_length)},
                                     {Py_mp_subscript, CORE_SLOT(column_subscript)},
                                     {0, NULL}};
PyType_Spec column_spec = {
    .name = "reverie.TrajectoryColumn",
    .basicsize = sizeof(column_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = column_slots,
};
