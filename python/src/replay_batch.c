/* ReplayBatch: what sample_batch returns. */
#include "batch.h"
#include "convert.h"

static int batch_traverse(PyObject *object, visitproc visit, void *arg)
{
  batch_object *self = (batch_object *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->data);
  return 0;
}

static int batch_clear(PyObject *object)
{
  Py_CLEAR(((batch_object *)object)->data);
  return 0;
}

static void batch_dealloc(PyObject *object)
{
  batch_object *self = (batch_object *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  Py_XDECREF(self->data);
  for (size_t i = 0; i < 5; i++) Py_XDECREF(self->wrapped[i]);
  Py_XDECREF(self->block);
  PyObject_GC_Del(object);
  Py_DECREF((PyObject *)type);
}

batch_object *batch_new(core_state *state, pool *buffers, size_t n, bool lengths)
{
  batch_object *self = PyObject_GC_New(batch_object, state->batch_type);
  if (self == NULL) return NULL;
  memset((char *)self + sizeof(PyObject), 0, sizeof *self - sizeof(PyObject));
  self->state = state;
  self->n = n;
  void *memory;
  self->block = buffer_new(state, buffers, n * (4 * sizeof(int64_t) + sizeof(int32_t)), &memory);
  if (self->block == NULL) {
    Py_DECREF((PyObject *)self);
    return NULL;
  }
  self->keys = memory;
  self->probabilities = (double *)(self->keys + n);
  self->priorities = self->probabilities + n;
  self->lengths = lengths ? (int64_t *)(self->priorities + n) : NULL;
  self->times_sampled = (int32_t *)(self->priorities + n + n);
  PyObject_GC_Track(self);
  return self;
}

/* ---- reading a batch ---- */

static const rv_dtype array_dtypes[] = {RV_UINT64, RV_FLOAT64, RV_FLOAT64, RV_INT32, RV_INT64}; /* of keys, probabilities, ... */

static PyObject *batch_array(PyObject *object, void *closure)
{
  batch_object *self = (batch_object *)object;
  size_t which = (size_t)(uintptr_t)closure;
  if (self->wrapped[which] == NULL) {
    void *const memory[] = {self->keys, self->probabilities, self->priorities, self->times_sampled, self->lengths};
    if (memory[which] == NULL) Py_RETURN_NONE;
    int64_t shape[1] = {(int64_t)self->n};
    self->wrapped[which] = (PyObject *)array_over(self->state, array_dtypes[which], 1, shape, memory[which], self->block, true);
  }
  Py_XINCREF(self->wrapped[which]);
  return self->wrapped[which];
}

static PyObject *batch_data(PyObject *object, void *closure)
{
  (void)closure;
  PyObject *data = ((batch_object *)object)->data;
  if (data == NULL) PyErr_SetString(PyExc_RuntimeError, "this batch has no data: it is just being made, or being collected");
  Py_XINCREF(data);
  return data;
}

static PyObject *batch_table_size(PyObject *object, void *closure)
{
  (void)closure;
  return PyLong_FromLongLong(((batch_object *)object)->table_size);
}

static Py_ssize_t batch_length(PyObject *object)
{
  return (Py_ssize_t)((batch_object *)object)->n;
}

static PyObject *batch_repr(PyObject *object)
{
  batch_object *self = (batch_object *)object;
  return PyUnicode_FromFormat("<ReplayBatch of %zu items from a table of %lld>", self->n, (long long)self->table_size);
}

/* ---- to other processes ---- */

/* The arrays, and what makes a batch of them again. */
static PyObject *batch_reduce(PyObject *object, PyObject *none)
{
  (void)none;
  batch_object *self = (batch_object *)object;
  PyObject *module = PyImport_ImportModule("reverie._core"), *make = NULL, *out = NULL;
  if (module != NULL) make = PyObject_GetAttrString(module, "replay_batch");
  Py_XDECREF(module);
  PyObject *arrays[5] = {NULL};
  PyObject *data = make == NULL ? NULL : batch_data(object, NULL);
  bool ok = data != NULL;
  for (size_t i = 0; ok && i < 5; i++) ok = (arrays[i] = batch_array(object, (void *)(uintptr_t)i)) != NULL;
  if (ok)
    out = Py_BuildValue("O(OLOOOOO)", make, data, (long long)self->table_size, arrays[0], arrays[1], arrays[2], arrays[3],
                        arrays[4]);
  for (size_t i = 0; i < 5; i++) Py_XDECREF(arrays[i]);
  Py_XDECREF(data);
  Py_XDECREF(make);
  return out;
}

/* Copies one of a batch's arrays, of as many entries. */
static int copy_array(PyObject *given, rv_dtype dtype, const core_state *state, size_t n, void *to)
{
  PyArray_Descr *descr = state->descr[dtype];
  Py_INCREF((PyObject *)descr); /* which the call takes */
  PyArrayObject *array = (PyArrayObject *)PyArray_FromAny(given, descr, 1, 1, NPY_ARRAY_CARRAY_RO, NULL);
  if (array == NULL) return -1;
  bool fits = (size_t)PyArray_DIM(array, 0) == n;
  if (fits && n > 0) memcpy(to, PyArray_DATA(array), (size_t)PyArray_NBYTES(array));
  if (!fits) PyErr_Format(PyExc_ValueError, "a batch of %zu items has an array of %zd", n, (Py_ssize_t)PyArray_DIM(array, 0));
  Py_DECREF((PyObject *)array);
  return fits ? 0 : -1;
}

PyObject *replay_batch_make(PyObject *module, PyObject *args)
{
  core_state *state = PyModule_GetState(module);
  PyObject *data, *arrays[5];
  long long table_size;
  if (!PyArg_ParseTuple(args, "OLOOOOO:replay_batch", &data, &table_size, &arrays[0], &arrays[1], &arrays[2], &arrays[3],
                        &arrays[4])) {
    return NULL;
  }
  Py_ssize_t n = PyObject_Length(arrays[0]);
  if (n < 0) return NULL;
  bool has_lengths = arrays[4] != Py_None;
  batch_object *batch = batch_new(state, NULL, (size_t)n, has_lengths);
  if (batch == NULL) return NULL;
  void *const memory[] = {batch->keys, batch->probabilities, batch->priorities, batch->times_sampled, batch->lengths};
  bool ok = true;
  for (size_t i = 0; ok && i < (has_lengths ? 5 : 4); i++)
    ok = copy_array(arrays[i], array_dtypes[i], state, (size_t)n, memory[i]) == 0;
  batch->table_size = table_size;
  batch->data = Py_NewRef(data);
  if (!ok) Py_CLEAR(batch);
  return (PyObject *)batch;
}

static PyMethodDef batch_methods[] = {
    {"__reduce__", batch_reduce, METH_NOARGS, "__reduce__($self, /)\n--\n\nFor pickle: its arrays, copied."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef batch_getset[] = {
    {"data", batch_data, NULL,
     "The items' columns, each [B, T, ...] or [B, ...], in a nest where sample_batch knows it, else in a list.", NULL},
    {"keys", batch_array, NULL, "The items' keys: uint64 [B].", (void *)0},
    {"probabilities", batch_array, NULL, "Of each draw: float64 [B].", (void *)1},
    {"priorities", batch_array, NULL, "At the draw: float64 [B].", (void *)2},
    {"times_sampled", batch_array, NULL, "Draws of each item so far, this one included: int32 [B].", (void *)3},
    {"lengths", batch_array, NULL,
     "Rows of each item's longest column, int64 [B], with unequal=\"pad\"; else None. An item of add is one row, whatever its "
     "shape.",
     (void *)4},
    {"table_size", batch_table_size, NULL, "Items in the table at the last draw.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot batch_slots[] = {
    {Py_tp_doc, "Sampled items, gathered column by column; what Client.sample_batch returns. Its length is the number of items."},
    {Py_tp_dealloc, CORE_SLOT(batch_dealloc)},
    {Py_tp_traverse, CORE_SLOT(batch_traverse)},
    {Py_tp_clear, CORE_SLOT(batch_clear)},
    {Py_tp_getset, batch_getset},
    {Py_tp_methods, batch_methods},
    {Py_tp_repr, CORE_SLOT(batch_repr)},
    {Py_sq_length, CORE_SLOT(batch_length)},
    {0, NULL}};

PyType_Spec batch_spec = {
    .name = "reverie.ReplayBatch",
    .basicsize = sizeof(batch_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = batch_slots,
};
