/* A column of a writer's history: what has been appended since the history was cleared, by row number. */
#include "stream.h"

typedef struct history_object {
  PyObject_HEAD
  stream_object *stream;
  uint32_t column;
  PyObject *path;
} history_object;

PyObject *history_new(stream_object *stream, uint32_t column, PyObject *path)
{
  history_object *self = PyObject_GC_New(history_object, stream->state->history_type);
  if (self == NULL) return NULL;
  Py_INCREF((PyObject *)stream);
  self->stream = stream;
  self->column = column;
  Py_INCREF(path);
  self->path = path;
  PyObject_GC_Track((PyObject *)self);
  return (PyObject *)self;
}

static int history_traverse(PyObject *object, visitproc visit, void *arg)
{
  history_object *self = (history_object *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT((PyObject *)self->stream);
  Py_VISIT(self->path);
  return 0;
}

static void history_dealloc(PyObject *object)
{
  history_object *self = (history_object *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  Py_DECREF((PyObject *)self->stream);
  Py_DECREF(self->path);
  PyObject_GC_Del(object);
  Py_DECREF((PyObject *)type);
}

static Py_ssize_t history_length(PyObject *object)
{
  stream_object *stream = ((history_object *)object)->stream;
  if (stream_enter_to_read(stream) < 0) return -1;
  int64_t rows = rv_writer_num_rows(stream->writer);
  stream_leave(stream);
  return (Py_ssize_t)rows;
}

/* ---- choosing rows; the lock is taken ---- */

/* The first row that is still kept: expired rows come before all others. */
static int64_t oldest_kept(const history_object *self, int64_t rows)
{
  int64_t low = 0, high = rows;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (rv_writer_row_state(self->stream->writer, self->column, middle) == RV_ROW_EXPIRED) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static int add_row(const history_object *self, int64_t row, run_list *list)
{
  rv_row_state state = row < 0 ? RV_ROW_EXPIRED : rv_writer_row_state(self->stream->writer, self->column, row);
  if (state == RV_ROW_PRESENT) return run_list_add(list, self->column, row);
  if (row >= 0 && state == RV_ROW_EXPIRED) {
    int64_t rows = rv_writer_num_rows(self->stream->writer);
    PyErr_Format(
        PyExc_ValueError,
        "history of %R: a TrajectoryColumn cannot contain any None, but row %lld is no longer kept, of %lld rows only the "
        "last %lld; make the writer with a larger num_keep_alive_refs",
        self->path, (long long)row, (long long)rows, (long long)(rows - oldest_kept(self, rows)));
    return -1;
  }
  PyErr_Format(PyExc_ValueError, "history of %R: a TrajectoryColumn cannot contain any None, but row %lld %s", self->path,
               (long long)row, row < 0 ? "lies before the first" : "was not set in its step");
  return -1;
}

static int add_index(const history_object *self, PyObject *key, int64_t rows, run_list *list)
{
  int overflow;
  long long index = PyLong_AsLongLongAndOverflow(key, &overflow);
  if (overflow > 0 || index >= rows) {
    PyErr_Format(PyExc_IndexError, "history of %R: index %S is out of range, there are %lld rows", self->path, key,
                 (long long)rows);
    return -1;
  }
  if (overflow < 0) index = -1 - rows;
  return add_row(self, index < 0 ? index + rows : index, list);
}

/* -1 with an exception. */
static int slice_field_is_none(PyObject *slice, const char *name)
{
  PyObject *value = PyObject_GetAttrString(slice, name);
  if (value == NULL) return -1;
  int none = value == Py_None;
  Py_DECREF(value);
  return none;
}

static int add_slice(const history_object *self, PyObject *slice, int64_t rows, run_list *list)
{
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(slice, &start, &stop, &step) < 0) return -1;
  int open_start = slice_field_is_none(slice, "start");
  int open_stop = open_start > 0 ? slice_field_is_none(slice, "stop") : 0;
  if (open_start < 0 || open_stop < 0) return -1;
  if (open_start == 0 && (start > rows || start < -rows)) { /* fewer rows than were asked for would be another item */
    PyErr_Format(PyExc_ValueError, "history of %R: the slice starts at row %zd, there are %lld rows", self->path, start,
                 (long long)rows);
    return -1;
  }
  if (open_start > 0 && step > 0 && open_stop == 0) start = (Py_ssize_t)oldest_kept(self, rows);
  Py_ssize_t count = PySlice_AdjustIndices((Py_ssize_t)rows, &start, &stop, step);
  for (Py_ssize_t i = 0; i < count; i++) {
    if (add_row(self, start + i * step, list) < 0) return -1;
  }
  return 0;
}

static int bad_index(const history_object *self, PyObject *key)
{
  PyErr_Format(PyExc_TypeError, "history of %R: indices must be integers, slices or lists of integers, not %S", self->path,
               (PyObject *)Py_TYPE(key));
  return -1;
}

static int add_rows(const history_object *self, PyObject *key, run_list *list)
{
  int64_t rows = rv_writer_num_rows(self->stream->writer);
  if (PyLong_Check(key)) return add_index(self, key, rows, list);
  if (PySlice_Check(key)) return add_slice(self, key, rows, list);
  if (!PyList_Check(key)) return bad_index(self, key);
  for (Py_ssize_t i = 0; i < PyList_Size(key); i++) {
    PyObject *index = PyList_GetItem(key, i);
    if (!PyLong_Check(index)) return bad_index(self, index);
    if (add_index(self, index, rows, list) < 0) return -1;
  }
  return 0;
}

static PyObject *history_subscript(PyObject *object, PyObject *key)
{
  history_object *self = (history_object *)object;
  /* before the lock is taken: making it may run the collector, and so a finaliser that looks at the history, too */
  column_object *column = column_begin(self->stream->state, self->stream, PyLong_Check(key), self->path);
  if (column == NULL) return NULL;
  int bad = stream_enter_to_read(self->stream);
  if (bad == 0) {
    column->generation = self->stream->generation;
    bad = add_rows(self, key, &column->list);
    stream_leave(self->stream);
  }
  return column_end(column, bad);
}

/* ---- the rest ---- */

/* References and None, as a list. */
static PyObject *references(history_object *self)
{
  Py_ssize_t rows = history_length((PyObject *)self);
  PyObject *out = rows < 0 ? NULL : PyList_New(0);
  for (Py_ssize_t row = 0; out != NULL && row < rows; row++) {
    PyObject *entry = NULL;
    bool present = false;
    if (stream_enter_to_read(self->stream) == 0) {
      present = rv_writer_row_state(self->stream->writer, self->column, row) == RV_ROW_PRESENT;
      stream_leave(self->stream);
      if (present) {
        PyObject *index = PyLong_FromSsize_t(row);
        PyObject *column = index == NULL ? NULL : history_subscript((PyObject *)self, index);
        PyObject *iterator = column == NULL ? NULL : PyObject_GetIter(column);
        entry = iterator == NULL ? NULL : PyIter_Next(iterator);
        Py_XDECREF(index);
        Py_XDECREF(column);
        Py_XDECREF(iterator);
      } else {
        Py_INCREF(Py_None);
        entry = Py_None;
      }
    }
    if (entry == NULL || PyList_Append(out, entry) < 0) Py_CLEAR(out);
    Py_XDECREF(entry);
  }
  return out;
}

static PyObject *history_iter(PyObject *object)
{
  PyObject *list = references((history_object *)object);
  PyObject *iterator = list == NULL ? NULL : PyObject_GetIter(list);
  Py_XDECREF(list);
  return iterator;
}

static PyObject *history_repr(PyObject *object)
{
  history_object *self = (history_object *)object;
  Py_ssize_t rows = history_length(object);
  if (rows < 0) {
    PyErr_Clear();
    return PyUnicode_FromFormat("<history of %R, closed>", self->path);
  }
  return PyUnicode_FromFormat("<history of %R, %zd rows>", self->path, rows);
}

static PyObject *history_path(PyObject *object, PyObject *none)
{
  (void)none;
  PyObject *path = ((history_object *)object)->path;
  Py_INCREF(path);
  return path;
}

static PyMethodDef history_methods[] = {
    {"path", history_path, METH_NOARGS, "path($self, /)\n--\n\nWhere the column is in the data: keys, indices and field names."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot history_slots[] = {
    {Py_tp_doc,
     "A column of a writer's history. Rows are numbered from the episode's start, or negative from the end; an int gives a\n"
     "squeezed TrajectoryColumn, a slice or a list of ints one with a time dimension. Of the rows only the last\n"
     "num_keep_alive_refs are kept; an open start (`col[:-1]`) begins at the first that is, and any other must be at a row."},
    {Py_tp_dealloc, CORE_SLOT(history_dealloc)},
    {Py_tp_traverse, CORE_SLOT(history_traverse)},
    {Py_tp_repr, CORE_SLOT(history_repr)},
    {Py_tp_iter, CORE_SLOT(history_iter)},
    {Py_tp_methods, history_methods},
    {Py_mp_length, CORE_SLOT(history_length)},
    {Py_mp_subscript, CORE_SLOT(history_subscript)},
    {0, NULL}};

PyType_Spec history_spec = {
    .name = "reverie._core.ColumnHistory",
    .basicsize = sizeof(history_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = history_slots,
};
