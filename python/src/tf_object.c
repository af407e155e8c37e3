/* The object behind a dataset's iterator: a sampler, and what TensorFlow's threads draw from it, which a graph knows by number. */
#include "sampler.h"
#include "tf_ops.h"

typedef struct source_object {
  PyObject_HEAD
  core_state *state;
  sampler_object *sampler;
  tf_source *source;
  long long number;
} source_object;

/* ---- by number ---- */

tf_source *tf_source_find(int64_t number)
{
  if (!Py_IsInitialized()) return NULL;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *module = PyImport_ImportModule("reverie._core"), *key = PyLong_FromLongLong(number);
  core_state *state = module == NULL ? NULL : PyModule_GetState(module);
  PyObject *found = state == NULL || key == NULL ? NULL : PyDict_GetItemWithError(state->sources, key);
  tf_source *source = found == NULL ? NULL : tf_source_ref(((source_object *)found)->source);
  PyErr_Clear();
  Py_XDECREF(key);
  Py_XDECREF(module);
  PyGILState_Release(gil);
  return source;
}

static int list(source_object *self)
{
  PyObject *key = PyLong_FromLongLong(self->number);
  int bad = key == NULL ? -1 : PyDict_SetItem(self->state->sources, key, (PyObject *)self);
  Py_XDECREF(key);
  return bad;
}

static void unlist(const source_object *self)
{
  PyObject *key = PyLong_FromLongLong(self->number);
  if (key == NULL || PyDict_DelItem(self->state->sources, key) < 0) PyErr_Clear(); /* it may be gone */
  Py_XDECREF(key);
}

/* ---- making and closing ---- */

/* (number of the dtype, sizes, or None where they are unknown) */
static int read_spec(PyObject *item, rv_spec *out, int64_t sizes[RV_MAX_RANK + 1])
{
  int dtype;
  PyObject *shape;
  if (!PyArg_ParseTuple(item, "iO", &dtype, &shape)) return -1;
  *out = (rv_spec){.name = "", .dtype = (rv_dtype)dtype, .rank = -1, .shape = sizes};
  if (rv_dtype_size(out->dtype) == 0) {
    PyErr_Format(PyExc_ValueError, "dtype %d of TensorFlow cannot be sampled", dtype);
    return -1;
  }
  if (shape == Py_None) return 0;
  if (!PyTuple_Check(shape) || PyTuple_Size(shape) > RV_MAX_RANK + 1) {
    PyErr_Format(PyExc_ValueError, "a shape must be a tuple of at most %d sizes, got %R", RV_MAX_RANK + 1, shape);
    return -1;
  }
  out->rank = (int32_t)PyTuple_Size(shape);
  for (int32_t d = 0; d < out->rank; d++) {
    PyObject *size = PyTuple_GetItem(shape, d);
    sizes[d] = size == Py_None ? -1 : PyLong_AsLongLong(size);
    if (PyErr_Occurred()) return -1;
  }
  return 0;
}

static tf_source *make_source(sampler_object *sampler, tf_source_config *config, PyObject *specs)
{
  size_t n = (size_t)PyList_Size(specs);
  rv_spec *read = PyMem_Calloc(n + 1, sizeof *read);
  int64_t(*sizes)[RV_MAX_RANK + 1] = PyMem_Calloc(n + 1, sizeof *sizes);
  tf_source *source = NULL;
  if (read == NULL || sizes == NULL) PyErr_NoMemory();
  for (size_t i = 0; i < n && !PyErr_Occurred(); i++) read_spec(PyList_GetItem(specs, (Py_ssize_t)i), &read[i], sizes[i]);
  if (!PyErr_Occurred()) {
    config->specs = read;
    config->num_specs = n;
    source = tf_source_new(config, sampler->sampler, sampler->client->buffers);
    if (source == NULL) PyErr_NoMemory();
  }
  PyMem_Free(read);
  PyMem_Free(sizes);
  return source;
}

static PyObject *source_tp_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
  static char *names[] = {"sampler", "specs", "timesteps", "batch", "drop_remainder", "alone", NULL};
  core_state *state = core_state_of_type(type);
  if (state == NULL) return NULL;
  PyObject *sampler, *specs;
  int timesteps, drop_remainder, alone;
  Py_ssize_t batch;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!pnpp:TensorSource", names, state->sampler_type, &sampler, &PyList_Type,
                                   &specs, &timesteps, &batch, &drop_remainder, &alone)) {
    return NULL;
  }
  if (batch < 0 || (batch > 0 && timesteps))
    return PyErr_Format(PyExc_ValueError, "steps are not batched, and a batch has items");
  if (sampler_open((sampler_object *)sampler) < 0) return NULL;
  tf_source_config config = {.table = core_text(((sampler_object *)sampler)->table, "table"),
                             .timesteps = timesteps != 0,
                             .batch = (size_t)batch,
                             .drop_remainder = drop_remainder != 0,
                             .alone = alone != 0,
                             .timeout_ms = ((sampler_object *)sampler)->timeout_ms};
  tf_source *source = make_source((sampler_object *)sampler, &config, specs);
  if (source == NULL) return NULL;
  source_object *self = PyObject_GC_New(source_object, type);
  if (self == NULL) {
    tf_source_unref(source);
    return NULL;
  }
  Py_INCREF(sampler);
  self->state = state;
  self->sampler = (sampler_object *)sampler;
  self->source = source;
  self->number = state->next_source++;
  if (list(self) < 0) {
    Py_DECREF((PyObject *)self);
    return NULL;
  }
  PyObject_GC_Track((PyObject *)self);
  return (PyObject *)self;
}

static int source_traverse(PyObject *object, visitproc visit, void *arg)
{
  Py_VISIT(Py_TYPE(object));
  Py_VISIT((PyObject *)((source_object *)object)->sampler);
  return 0;
}

static void close_source(tf_source *source)
{
  Py_BEGIN_ALLOW_THREADS
  tf_source_close(source);
  Py_END_ALLOW_THREADS
}

static PyObject *source_close(PyObject *object, PyObject *none)
{
  source_object *self = (source_object *)object;
  unlist(self);
  close_source(self->source);
  return sampler_close((PyObject *)self->sampler, none);
}

static void source_dealloc(PyObject *object)
{
  source_object *self = (source_object *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  close_source(self->source);
  tf_source_unref(self->source);
  Py_DECREF((PyObject *)self->sampler);
  PyObject_GC_Del(object);
  Py_DECREF((PyObject *)type);
}

static PyObject *source_number(PyObject *object, void *none)
{
  (void)none;
  return PyLong_FromLongLong(((source_object *)object)->number);
}

static PyGetSetDef source_members[] = {{"number", source_number, NULL, "What the operation ReverieSamples calls it by.", NULL},
                                       {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef source_methods[] = {
    {"close", source_close, METH_NOARGS, "close($self, /)\n--\n\nEnds the sequence and gives back what was fetched ahead."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot source_slots[] = {
    {Py_tp_doc,
     "TensorSource(sampler, specs, timesteps, batch, drop_remainder, alone)\n--\n\n"
     "What an iterator in a TensorFlow graph reads: blocks of a sampler's samples.\n\n"
     "`specs` is a list of (dtype's number, sizes with None where they vary, or None) of what the dataset was made for. A "
     "block has single samples (batch=0), or their `timesteps`, or several batches, or, `alone`, one. It lives until it "
     "is closed."},
    {Py_tp_new, CORE_SLOT(source_tp_new)},
    {Py_tp_dealloc, CORE_SLOT(source_dealloc)},
    {Py_tp_traverse, CORE_SLOT(source_traverse)},
    {Py_tp_getset, source_members},
    {Py_tp_methods, source_methods},
    {0, NULL}};

PyType_Spec source_spec = {
    .name = "reverie._core.TensorSource",
    .basicsize = sizeof(source_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = source_slots,
};
