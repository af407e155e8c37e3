/* Sampled items as arrays. */
#include <string.h>

#include "client.h"
#include "convert.h"

enum { POOLED_BYTES = 131072 }; /* pages that are touched for the first time cost more than the copy */

/* What keeps a sample alive while views of it are. */
typedef struct sample_object {
  PyObject_HEAD
  rv_sample *sample;
} sample_object;

static void sample_dealloc(PyObject *object)
{
  PyTypeObject *type = Py_TYPE(object);
  rv_sample_unref(((sample_object *)object)->sample);
  PyObject_Free(object);
  Py_DECREF((PyObject *)type);
}

static PyType_Slot sample_slots[] = {
    {Py_tp_doc, "A sampled item that arrays are views of."}, {Py_tp_dealloc, CORE_SLOT(sample_dealloc)}, {0, NULL}};

PyType_Spec sample_spec = {
    .name = "reverie._core.Sample",
    .basicsize = sizeof(sample_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = sample_slots,
};

static PyObject *hold_sample(core_state *state, rv_sample *sample)
{
  sample_object *self = PyObject_New(sample_object, state->sample_type);
  if (self != NULL) self->sample = rv_sample_ref(sample);
  return (PyObject *)self;
}

static PyArrayObject *copy_strings(rv_sample *sample, size_t i, const rv_sample_column *column, PyArrayObject *owned_array,
                                   rv_error *err, rv_code *code)
{
  rv_bytes *strings = PyMem_Malloc(column->bytes + 1);
  if (strings == NULL) {
    PyErr_NoMemory();
    Py_DECREF(owned_array);
    return NULL;
  }
  *code = rv_sample_copy(sample, i, strings, column->bytes, err);
  if (*code == RV_OK && array_set_strings(owned_array, 0, strings, column->bytes / sizeof *strings) < 0) Py_CLEAR(owned_array);
  PyMem_Free(strings);
  return owned_array;
}

static PyObject *one_column(core_state *state, rv_sample *sample, size_t i, PyObject *holder, pool *buffers)
{
  rv_error err;
  rv_sample_column column;
  if (rv_sample_get_column(sample, i, &column, &err) != RV_OK) return core_raise(state, &err);
  int64_t shape[RV_MAX_RANK + 2];
  uint32_t rank = 0;
  if (column.rank > RV_MAX_RANK + 1) return PyErr_Format(PyExc_SystemError, "a column has rank %u", column.rank);
  if (!column.squeezed) shape[rank++] = column.length;
  for (uint32_t d = 0; d < column.rank; d++) shape[rank++] = column.shape[d];
  if (holder != NULL && column.dtype != RV_STRING) {
    const void *view = rv_sample_view(sample, i);
    if (view != NULL) return (PyObject *)array_over(state, column.dtype, rank, shape, (void *)(uintptr_t)view, holder, false);
  }
  PyArrayObject *array = result_array(state, buffers, POOLED_BYTES, column.dtype, rank, shape, column.bytes);
  if (array == NULL) return NULL;
  rv_code code = RV_OK;
  if (column.dtype == RV_STRING) {
    array = copy_strings(sample, i, &column, array, &err, &code);
  } else if (column.bytes <= CLIENT_SMALL_BYTES) {
    code = rv_sample_copy(sample, i, PyArray_DATA(array), column.bytes, &err);
  } else {
    void *data = PyArray_DATA(array);
    Py_BEGIN_ALLOW_THREADS
    code = rv_sample_copy(sample, i, data, column.bytes, &err);
    Py_END_ALLOW_THREADS
  }
  if (array != NULL && code != RV_OK) {
    Py_DECREF(array);
    return core_raise(state, &err);
  }
  if (array != NULL && holder != NULL) PyArray_CLEARFLAGS(array, NPY_ARRAY_WRITEABLE); /* as the views beside it */
  return (PyObject *)array;
}

PyObject *sample_columns(core_state *state, rv_sample *sample, bool copy, pool *buffers)
{
  PyObject *holder = NULL;
  if (!copy && (holder = hold_sample(state, sample)) == NULL) return NULL;
  size_t n = rv_sample_num_columns(sample);
  PyObject *out = PyList_New((Py_ssize_t)n);
  for (size_t i = 0; out != NULL && i < n; i++) {
    PyObject *array = one_column(state, sample, i, holder, buffers);
    if (array == NULL || PyList_SetItem(out, (Py_ssize_t)i, array) < 0) Py_CLEAR(out);
  }
  Py_XDECREF(holder);
  return out;
}

#define TUPLES_HAVE_HASHES 0x030E0000 /* Python 3.14: a tuple has room for its hash, which only its own __new__ leaves unset */

/* An instance of a named tuple without fields yet. Its __new__ takes a tuple of the fields in a tuple of arguments, which is dear. */
static PyObject *new_named(PyObject *class, Py_ssize_t n)
{
  if (Py_Version < TUPLES_HAVE_HASHES) return PyType_GenericAlloc((PyTypeObject *)class, n);
  newfunc new_tuple;
  void *slot = PyType_GetSlot(&PyTuple_Type, Py_tp_new);
  memcpy(&new_tuple, &slot, sizeof new_tuple); /* ISO C has no conversion of one to the other */
  PyObject *fields = PyTuple_New(n);
  for (Py_ssize_t i = 0; fields != NULL && i < n; i++) PyTuple_SetItem(fields, i, Py_NewRef(Py_None));
  PyObject *arguments = fields == NULL ? NULL : PyTuple_Pack(1, fields);
  PyObject *out = arguments == NULL ? NULL : new_tuple((PyTypeObject *)class, arguments, NULL);
  Py_XDECREF(arguments);
  Py_XDECREF(fields);
  return out;
}

/* Its fields are set one by one. */
static PyObject *fill_named(PyObject *class, PyObject *const *owned_fields, Py_ssize_t n)
{
  PyObject *out = new_named(class, n);
  for (Py_ssize_t i = 0; i < n; i++) {
    if (owned_fields[i] == NULL) Py_CLEAR(out);
    if (out == NULL) {
      Py_XDECREF(owned_fields[i]);
    } else {
      PyTuple_SetItem(out, i, owned_fields[i]);
    }
  }
  return out;
}

PyObject *sample_info_object(core_state *state, const rv_sample_info *info)
{
  PyObject *const fields[] = {PyLong_FromUnsignedLongLong(info->key), PyFloat_FromDouble(info->probability),
                              PyLong_FromLongLong(info->table_size), PyFloat_FromDouble(info->priority),
                              PyLong_FromLong(info->times_sampled)};
  return fill_named(state->sample_info, fields, 5);
}

PyObject *replay_sample_object(core_state *state, PyObject *owned_info, PyObject *owned_data)
{
  PyObject *const fields[] = {owned_info, owned_data};
  return fill_named(state->replay_sample, fields, 2);
}

PyObject *into_structure(const structure_object *structure, PyObject *owned_list)
{
  if (owned_list == NULL || structure == NULL) return owned_list;
  size_t n = (size_t)PyList_Size(owned_list);
  PyObject **leaves = PyMem_Calloc(n + 1, sizeof *leaves);
  PyObject *out = NULL;
  if (leaves == NULL) {
    PyErr_NoMemory();
  } else {
    for (size_t i = 0; i < n; i++) leaves[i] = PyList_GetItem(owned_list, (Py_ssize_t)i);
    out = tree_unflatten(structure->root, leaves, n);
  }
  PyMem_Free(leaves);
  Py_DECREF(owned_list);
  return out;
}
