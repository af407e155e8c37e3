/* The arrays that a batch's columns are gathered into. */
#include "batch.h"
#include "convert.h"
#include "place.h"

PyObject *batch_out_place(const batch_out *out, size_t column)
{
  return place_of_leaf(out->structure->root, "out", column);
}

int gathering_init(gathering *g, client_object *client, scratch *s, size_t n, size_t num_columns, const batch_out *given)
{
  *g = (gathering){.client = client, .n = n, .num_columns = num_columns, .given = given};
  if (given != NULL && given->structure->num_leaves != num_columns) {
    PyErr_Format(PyExc_ValueError, "out has %zu arrays, the items have %zu columns", given->structure->num_leaves, num_columns);
    return -1;
  }
  g->columns = scratch_alloc(s, num_columns, sizeof *g->columns);
  g->arrays = scratch_alloc(s, num_columns, sizeof *g->arrays);
  g->outs = scratch_alloc(s, num_columns, sizeof *g->outs);
  g->sizes = scratch_alloc(s, num_columns, sizeof *g->sizes);
  if (g->columns == NULL || g->arrays == NULL || g->outs == NULL || g->sizes == NULL) {
    g->num_columns = 0;
    return -1;
  }
  for (size_t i = 0; i < num_columns; i++) g->arrays[i] = NULL;
  return 0;
}

/* Is the array of the dtype that the column is shown as? That of quantized integers is the one that they are stored as. */
static bool has_dtype_of(const core_state *state, PyArrayObject *array, rv_dtype dtype)
{
  const PyArray_Descr *shown = state->descr[dtype & (CORE_DTYPES - 1)];
  const rv_dtype has = dtype_of_array(state, array);
  if (has == RV_STRING) return dtype == RV_STRING && PyArray_TYPE(array) == NPY_OBJECT;
  return has != RV_DTYPE_INVALID && shown != NULL && state->descr[has] == shown;
}

static uint32_t batch_shape(const gathering *g, size_t i, int64_t *shape)
{
  const rv_sample_column *column = &g->columns[i];
  uint32_t rank = 0;
  shape[rank++] = (int64_t)g->n;
  if (!column->squeezed) shape[rank++] = column->length;
  for (uint32_t d = 0; d < column->rank; d++) shape[rank++] = column->shape[d];
  return rank;
}

static PyObject *shape_tuple(const int64_t *shape, uint32_t rank)
{
  PyObject *sizes = PyTuple_New((Py_ssize_t)rank);
  for (uint32_t d = 0; sizes != NULL && d < rank; d++) {
    PyObject *size = PyLong_FromLongLong(shape[d]);
    if (size == NULL || PyTuple_SetItem(sizes, (Py_ssize_t)d, size) < 0) Py_CLEAR(sizes);
  }
  return sizes;
}

static PyObject *fresh_array(gathering *g, size_t i)
{
  int64_t shape[RV_MAX_RANK + 4];
  uint32_t rank = batch_shape(g, i, shape);
  const rv_sample_column *column = &g->columns[i];
  return (PyObject *)result_array(g->client->state, g->client->buffers, CLIENT_SMALL_BYTES, column->dtype, rank, shape,
                                  column->bytes);
}

/* What the caller's function makes: memory of a kind that we know nothing of. */
static PyObject *made_array(gathering *g, size_t i)
{
  int64_t shape[RV_MAX_RANK + 4];
  uint32_t rank = batch_shape(g, i, shape);
  core_state *state = g->client->state;
  rv_dtype dtype = g->columns[i].dtype;
  PyObject *sizes = shape_tuple(shape, rank);
  PyObject *descr = (PyObject *)state->descr[dtype & (CORE_DTYPES - 1)];
  PyObject *made = sizes == NULL ? NULL : PyObject_CallFunctionObjArgs(g->maker, sizes, descr, NULL);
  Py_XDECREF(sizes);
  if (made == NULL) return NULL;
  PyArrayObject *array = (PyArrayObject *)made;
  bool fits =
      PyArray_Check(made) && PyArray_ISCARRAY(array) && has_dtype_of(state, array, dtype) && PyArray_NDIM(array) == (int)rank;
  for (uint32_t d = 0; fits && d < rank; d++) fits = PyArray_DIM(array, (int)d) == shape[d];
  if (fits) return made;
  PyErr_Format(
      PyExc_ValueError,
      "out: the function must return a writable, C-contiguous array of the shape and dtype (%S) that it is called with, got %R",
      descr, (PyObject *)Py_TYPE(made));
  Py_DECREF(made);
  return NULL;
}

/* That the caller's array for this column does not fit; both references, which say what it has and should have, are taken. */
static PyObject *refuse_array(const gathering *g, size_t i, const char *what, PyObject *owned_has, PyObject *owned_should)
{
  PyObject *where = owned_has == NULL || owned_should == NULL ? NULL : batch_out_place(g->given, i);
  if (where != NULL)
    PyErr_Format(PyExc_ValueError, "%U has %s %S, but should have %S, as column %zu of the items", where, what, owned_has,
                 owned_should, i);
  Py_XDECREF(where);
  Py_XDECREF(owned_has);
  Py_XDECREF(owned_should);
  return NULL;
}

/* The caller's array, or, when fewer items were drawn, a view of its first rows. */
static PyObject *given_array(gathering *g, size_t i)
{
  int64_t shape[RV_MAX_RANK + 4];
  uint32_t rank = batch_shape(g, i, shape);
  core_state *state = g->client->state;
  PyArrayObject *array = (PyArrayObject *)g->given->arrays[i];
  rv_dtype dtype = g->columns[i].dtype;
  if (!has_dtype_of(state, array, dtype)) {
    PyObject *should = (PyObject *)state->descr[dtype & (CORE_DTYPES - 1)];
    if (should == NULL) return PyErr_Format(PyExc_TypeError, "dtype %s has no NumPy equivalent", rv_dtype_name(dtype));
    return refuse_array(g, i, "dtype", Py_NewRef((PyObject *)PyArray_DESCR(array)), Py_NewRef(should));
  }
  bool fits = PyArray_NDIM(array) == (int)rank && PyArray_DIM(array, 0) >= shape[0];
  for (uint32_t d = 1; fits && d < rank; d++) fits = PyArray_DIM(array, (int)d) == shape[d];
  if (!fits) return refuse_array(g, i, "shape", PyObject_GetAttrString((PyObject *)array, "shape"), shape_tuple(shape, rank));
  if (PyArray_DIM(array, 0) == shape[0]) {
    Py_INCREF((PyObject *)array);
    return (PyObject *)array;
  }
  return (PyObject *)array_over(state, dtype, rank, shape, PyArray_DATA(array), (PyObject *)array, true);
}

int gathering_make(gathering *g)
{
  for (size_t i = 0; i < g->num_columns; i++) {
    rv_sample_column *column = &g->columns[i];
    if (column->rank > RV_MAX_RANK + 1) {
      PyErr_Format(PyExc_SystemError, "column %zu has rank %u", i, column->rank);
      return -1;
    }
    if (g->given != NULL) {
      g->arrays[i] = given_array(g, i);
    } else if (g->maker != NULL && column->dtype != RV_STRING &&
               g->client->state->descr[column->dtype & (CORE_DTYPES - 1)] != NULL) {
      g->arrays[i] = made_array(g, i);
    } else {
      g->arrays[i] = fresh_array(g, i);
    }
    if (g->arrays[i] == NULL) return -1;
    bool strings = column->dtype == RV_STRING;
    g->outs[i] = strings ? NULL : PyArray_DATA((PyArrayObject *)g->arrays[i]);
    g->sizes[i] = column->bytes;
    if (!strings) g->bytes += column->bytes;
  }
  return 0;
}

void gathering_drop(gathering *g)
{
  for (size_t i = 0; i < g->num_columns; i++) Py_CLEAR(g->arrays[i]);
}

int gathering_shorten(gathering *g, size_t count)
{
  g->n = count;
  for (size_t i = 0; i < g->num_columns; i++) {
    int64_t shape[RV_MAX_RANK + 4];
    uint32_t rank = batch_shape(g, i, shape);
    PyArrayObject *whole = (PyArrayObject *)g->arrays[i];
    PyObject *part =
        (PyObject *)array_over(g->client->state, g->columns[i].dtype, rank, shape, PyArray_DATA(whole), (PyObject *)whole, true);
    if (part == NULL) return -1;
    Py_DECREF((PyObject *)whole);
    g->arrays[i] = part;
  }
  return 0;
}

PyObject *gathering_nest(gathering *g, const structure_object *structure)
{
  PyObject *out = NULL;
  if (structure != NULL) {
    out = tree_unflatten(structure->root, g->arrays, g->num_columns);
    gathering_drop(g);
    return out;
  }
  out = PyList_New((Py_ssize_t)g->num_columns);
  for (size_t i = 0; out != NULL && i < g->num_columns; i++) {
    PyList_SetItem(out, (Py_ssize_t)i, g->arrays[i]);
    g->arrays[i] = NULL;
  }
  gathering_drop(g);
  return out;
}
