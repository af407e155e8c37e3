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
  PyObject_GC_Track(self);
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
  return self;
}

/* ---- reading a batch ---- */

static PyObject *batch_array(PyObject *object, void *closure)
{
  batch_object *self = (batch_object *)object;
  size_t which = (size_t)(uintptr_t)closure;
  if (self->wrapped[which] == NULL) {
    void *const memory[] = {self->keys, self->probabilities, self->priorities, self->times_sampled, self->lengths};
    static const rv_dtype dtypes[] = {RV_UINT64, RV_FLOAT64, RV_FLOAT64, RV_INT32, RV_INT64};
    if (memory[which] == NULL) Py_RETURN_NONE;
    int64_t shape[1] = {(int64_t)self->n};
    self->wrapped[which] = (PyObject *)array_over(self->state, dtypes[which], 1, shape, memory[which], self->block, true);
  }
  Py_XINCREF(self->wrapped[which]);
  return self->wrapped[which];
}

static PyObject *batch_data(PyObject *object, void *closure)
{
  (void)closure;
  PyObject *data = ((batch_object *)object)->data;
  Py_INCREF(data);
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

static PyGetSetDef batch_getset[] = {
    {"data", batch_data, NULL,
     "The items' columns, each [B, T, ...] or [B, ...], in a nest where sample_batch knows it, else in a list.", NULL},
    {"keys", batch_array, NULL, "The items' keys: uint64 [B].", (void *)0},
    {"probabilities", batch_array, NULL, "Of each draw: float64 [B].", (void *)1},
    {"priorities", batch_array, NULL, "At the draw: float64 [B].", (void *)2},
    {"times_sampled", batch_array, NULL, "Draws of each item so far, this one included: int32 [B].", (void *)3},
    {"lengths", batch_array, NULL, "Rows of each item's longest column, int64 [B], with unequal=\"pad\"; else None.", (void *)4},
    {"table_size", batch_table_size, NULL, "Items in the table at the last draw.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot batch_slots[] = {
    {Py_tp_doc, "Sampled items, gathered column by column; what Client.sample_batch returns. Its length is the number of items."},
    {Py_tp_dealloc, CORE_SLOT(batch_dealloc)},
    {Py_tp_traverse, CORE_SLOT(batch_traverse)},
    {Py_tp_clear, CORE_SLOT(batch_clear)},
    {Py_tp_getset, batch_getset},
    {Py_tp_repr, CORE_SLOT(batch_repr)},
    {Py_sq_length, CORE_SLOT(batch_length)},
    {0, NULL}};

PyType_Spec batch_spec = {
    .name = "reverie.ReplayBatch",
    .basicsize = sizeof(batch_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = batch_slots,
};
