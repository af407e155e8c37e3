/* ReplayBatch: what sample_batch returns. */
#include "batch.h"
#include "convert.h"

/* Of each item, in this order. */
enum { KEYS, PROBABILITIES, PRIORITIES, TIMES_SAMPLED, LENGTHS, TABLE_SIZES, NUM_ARRAYS };

_Static_assert(sizeof((batch_object *)0)->wrapped == NUM_ARRAYS * sizeof(PyObject *), "one is wrapped for each");

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
  for (size_t i = 0; i < NUM_ARRAYS; i++) Py_XDECREF(self->wrapped[i]);
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
  self->block = buffer_new(state, buffers, n * ((lengths ? 5 : 4) * sizeof(int64_t) + sizeof(int32_t)), &memory);
  if (self->block == NULL) {
    Py_DECREF((PyObject *)self);
    return NULL;
  }
  self->keys = memory;
  self->probabilities = (double *)(self->keys + n);
  self->priorities = self->probabilities + n;
  self->table_sizes = (int64_t *)(self->priorities + n);
  self->lengths = lengths ? self->table_sizes + n : NULL;
  self->times_sampled = (int32_t *)(self->table_sizes + (lengths ? n + n : n));
  PyObject_GC_Track(self);
  return self;
}

/* ---- reading a batch ---- */

static const rv_dtype array_dtypes[] = {RV_UINT64, RV_FLOAT64, RV_FLOAT64, RV_INT32, RV_INT64, RV_INT64};

static void *memory_of(const batch_object *self, size_t which)
{
  void *const memory[] = {self->keys,          self->probabilities, self->priorities,
                          self->times_sampled, self->lengths,       self->table_sizes};
  return memory[which];
}

static void write_sizes(batch_object *self)
{
  for (size_t i = 0; !self->has_sizes && i < self->n; i++) self->table_sizes[i] = self->table_size;
  self->has_sizes = true;
}

static PyObject *batch_array(PyObject *object, void *closure)
{
  batch_object *self = (batch_object *)object;
  size_t which = (size_t)(uintptr_t)closure;
  if (self->wrapped[which] == NULL) {
    void *memory = memory_of(self, which);
    if (memory == NULL) Py_RETURN_NONE;
    if (which == TABLE_SIZES) write_sizes(self);
    int64_t shape[1] = {(int64_t)self->n};
    self->wrapped[which] = (PyObject *)array_over(self->state, array_dtypes[which], 1, shape, memory, self->block, true);
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
  PyObject *arrays[NUM_ARRAYS] = {NULL};
  PyObject *data = make == NULL ? NULL : batch_data(object, NULL);
  bool ok = data != NULL;
  for (size_t i = 0; ok && i < NUM_ARRAYS; i++) ok = (arrays[i] = batch_array(object, (void *)(uintptr_t)i)) != NULL;
  if (ok)
    out = Py_BuildValue("O(OLOOOOOO)", make, data, (long long)self->table_size, arrays[0], arrays[1], arrays[2], arrays[3],
                        arrays[4], arrays[5]);
  for (size_t i = 0; i < NUM_ARRAYS; i++) Py_XDECREF(arrays[i]);
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
  PyObject *data, *arrays[NUM_ARRAYS];
  arrays[TABLE_SIZES] = Py_None; /* of one that was pickled when batches had none */
  long long table_size;
  if (!PyArg_ParseTuple(args, "OLOOOOO|O:replay_batch", &data, &table_size, &arrays[0], &arrays[1], &arrays[2], &arrays[3],
                        &arrays[4], &arrays[5])) {
    return NULL;
  }
  Py_ssize_t n = PyObject_Length(arrays[0]);
  if (n < 0) return NULL;
  bool has_lengths = arrays[LENGTHS] != Py_None;
  batch_object *batch = batch_new(state, NULL, (size_t)n, has_lengths);
  if (batch == NULL) return NULL;
  batch->table_size = table_size;
  batch->has_sizes = arrays[TABLE_SIZES] != Py_None;
  bool ok = true;
  for (size_t i = 0; ok && i < NUM_ARRAYS; i++) {
    bool is_left_out = (i == LENGTHS || i == TABLE_SIZES) && arrays[i] == Py_None;
    ok = is_left_out || copy_array(arrays[i], array_dtypes[i], state, (size_t)n, memory_of(batch, i)) == 0;
  }
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
    {"keys", batch_array, NULL, "The items' keys: uint64 [B].", (void *)KEYS},
    {"probabilities", batch_array, NULL, "Of each draw: float64 [B].", (void *)PROBABILITIES},
    {"priorities", batch_array, NULL, "At the draw: float64 [B].", (void *)PRIORITIES},
    {"times_sampled", batch_array, NULL, "Draws of each item so far, this one included: int32 [B].", (void *)TIMES_SAMPLED},
    {"lengths", batch_array, NULL,
     "Rows of each item's longest column, int64 [B], with unequal=\"pad\"; else None. An item of add is one row, whatever its "
     "shape.",
     (void *)LENGTHS},
    {"table_sizes", batch_array, NULL,
     "Items in the table at each draw, int64 [B], which its probability goes with. All are table_size, unless the table grew or\n"
     "shrank between the draws: items go with theirs (max_times_sampled), or the batch waited for inserts.",
     (void *)TABLE_SIZES},
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
