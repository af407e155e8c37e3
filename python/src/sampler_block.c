/* Many samples at once, for whoever passes them on in arrays: drawn one by one, gathered column by column. */
#include "convert.h"
#include "sampler.h"

enum { INFOS = 5, BLOCK_MAX = 1 << 20 };

void sampler_drop_held(sampler_object *self)
{
  for (size_t i = 0; i < self->num_held; i++) rv_sample_unref(self->held[i]);
  PyMem_Free((void *)self->held);
  self->held = NULL;
  self->num_held = self->held_capacity = 0;
}

static int hold(sampler_object *self, rv_sample *owned_sample)
{
  if (self->num_held == self->held_capacity) {
    size_t capacity = self->held_capacity == 0 ? 64 : 2 * self->held_capacity;
    rv_sample **more = PyMem_Realloc((void *)self->held, capacity * sizeof *more);
    if (more == NULL) {
      rv_sample_unref(owned_sample);
      PyErr_NoMemory();
      return -1;
    }
    self->held = more;
    self->held_capacity = capacity;
  }
  self->held[self->num_held++] = owned_sample;
  return 0;
}

/* Draws until `least` are held, and on to `most`, or as many as may be fetched ahead, as far as nobody has to wait. -1 with an exception; what was drawn stays held. */
static int draw(sampler_object *self, size_t least, size_t most, int64_t timeout_ms)
{
  if (self->ended) return 0; /* there may be no sampler */
  int64_t window = rv_sampler_window(self->sampler);
  if ((int64_t)most > window) most = window > (int64_t)least ? (size_t)window : least;
  while (self->num_held < most && !self->ended) {
    bool enough = self->num_held >= least;
    rv_sample *sample = NULL;
    rv_error err;
    core_wait wait;
    core_wait_begin_short(&wait, enough ? 0 : timeout_ms, NULL);
    rv_code code = rv_sampler_next(self->sampler, &wait.wait, &sample, &err);
    core_wait_end(&wait, code);
    if (code == RV_OK) {
      if (hold(self, sample) < 0) return -1;
      continue;
    }
    if (wait.raised) return -1;
    if (code == RV_DEADLINE_EXCEEDED) return 0;
    self->ended = true;
    if (code == RV_OUT_OF_RANGE) return 0;
    core_raise(self->state, &err);
    return -1;
  }
  return 0;
}

static bool alike(const rv_sample_column *a, const rv_sample_column *b)
{
  if (a->dtype != b->dtype || a->rank != b->rank || a->length != b->length || a->squeezed != b->squeezed) return false;
  for (uint32_t d = 0; d < a->rank; d++) {
    if (a->shape[d] != b->shape[d]) return false;
  }
  return true;
}

/* How many of the first `n` that are held look like the first. */
static size_t count_alike(const sampler_object *self, const rv_sample_column *columns, size_t num_columns, size_t n)
{
  size_t count = 1;
  for (; count < n; count++) {
    rv_sample *sample = self->held[count];
    if (rv_sample_num_columns(sample) != num_columns) return count;
    for (size_t c = 0; c < num_columns; c++) {
      rv_sample_column column;
      if (rv_sample_get_column(sample, c, &column, NULL) != RV_OK || !alike(&column, &columns[c])) return count;
    }
  }
  return count;
}

static PyObject *gather_column(const sampler_object *self, size_t c, const rv_sample_column *column, size_t n)
{
  core_state *state = self->state;
  int64_t shape[RV_MAX_RANK + 4];
  uint32_t rank = 0;
  if (column->rank > RV_MAX_RANK + 1) return PyErr_Format(PyExc_SystemError, "a column has rank %u", column->rank);
  shape[rank++] = (int64_t)n;
  if (!column->squeezed) shape[rank++] = column->length;
  for (uint32_t d = 0; d < column->rank; d++) shape[rank++] = column->shape[d];
  PyArrayObject *array =
      result_array(state, self->client->buffers, CLIENT_SMALL_BYTES, column->dtype, rank, shape, n * column->bytes);
  if (array == NULL) return NULL;
  bool strings = column->dtype == RV_STRING;
  char *at = strings ? PyMem_Malloc(column->bytes + 1) : PyArray_BYTES(array);
  rv_error err;
  rv_code code = RV_OK;
  int bad = 0;
  if (at == NULL) {
    PyErr_NoMemory();
    bad = -1;
  } else if (strings) {
    size_t each = column->bytes / sizeof(rv_bytes);
    for (size_t i = 0; i < n && code == RV_OK && bad == 0; i++) {
      code = rv_sample_copy(self->held[i], c, at, column->bytes, &err);
      if (code == RV_OK) bad = array_set_strings(array, i * each, (const rv_bytes *)(const void *)at, each);
    }
    PyMem_Free(at);
  } else {
    Py_BEGIN_ALLOW_THREADS
    for (size_t i = 0; i < n && code == RV_OK; i++)
      code = rv_sample_copy(self->held[i], c, at + i * column->bytes, column->bytes, &err);
    Py_END_ALLOW_THREADS
  }
  if (code != RV_OK) core_raise(state, &err);
  if (code != RV_OK || bad < 0) Py_CLEAR(array);
  return (PyObject *)array;
}

static PyObject *gather_infos(const sampler_object *self, size_t n)
{
  static const rv_dtype dtypes[INFOS] = {RV_UINT64, RV_FLOAT64, RV_INT64, RV_FLOAT64, RV_INT32};
  PyObject *out = PyList_New(INFOS);
  void *data[INFOS];
  int64_t shape[1] = {(int64_t)n};
  for (Py_ssize_t i = 0; out != NULL && i < INFOS; i++) {
    PyArrayObject *array = array_new(self->state, dtypes[i], 1, shape);
    data[i] = array == NULL ? NULL : PyArray_DATA(array);
    if (array == NULL || PyList_SetItem(out, i, (PyObject *)array) < 0) Py_CLEAR(out);
  }
  for (size_t i = 0; out != NULL && i < n; i++) {
    const rv_sample_info *info = rv_sample_get_info(self->held[i]);
    ((uint64_t *)data[0])[i] = info->key;
    ((double *)data[1])[i] = info->probability;
    ((int64_t *)data[2])[i] = info->table_size;
    ((double *)data[3])[i] = info->priority;
    ((int32_t *)data[4])[i] = info->times_sampled;
  }
  return out;
}

/* Of each column, whether it has no time dimension. */
static PyObject *list_squeezed(const rv_sample_column *columns, size_t num_columns)
{
  PyObject *out = PyList_New((Py_ssize_t)num_columns);
  for (size_t c = 0; out != NULL && c < num_columns; c++) {
    if (PyList_SetItem(out, (Py_ssize_t)c, PyBool_FromLong(columns[c].squeezed)) < 0) Py_CLEAR(out);
  }
  return out;
}

static void drop_first(sampler_object *self, size_t n)
{
  for (size_t i = 0; i < n; i++) rv_sample_unref(self->held[i]);
  self->num_held -= n;
  memmove((void *)self->held, (void *)(self->held + n), self->num_held * sizeof *self->held);
}

/* The first that are held, as two lists of arrays, and which columns are squeezed. They are let go of. */
static PyObject *give(sampler_object *self, size_t least, size_t most)
{
  size_t n = self->num_held < most ? self->num_held : most;
  if (n < least && !self->ended) n = 0;
  rv_error err;
  size_t num_columns = n == 0 ? 0 : rv_sample_num_columns(self->held[0]);
  rv_sample_column *columns = PyMem_Calloc(num_columns + 1, sizeof *columns);
  if (columns == NULL) return PyErr_NoMemory();
  PyObject *infos = NULL, *arrays = NULL, *squeezed = NULL;
  for (size_t c = 0; c < num_columns; c++) {
    if (rv_sample_get_column(self->held[0], c, &columns[c], &err) == RV_OK) continue;
    PyMem_Free(columns);
    return core_raise(self->state, &err);
  }
  size_t same = n == 0 ? 0 : count_alike(self, columns, num_columns, n);
  if (least > 1 && same < (n < least ? n : least)) {
    PyErr_SetString(PyExc_ValueError,
                    "items that look different cannot be put into one batch: their columns have other shapes or dtypes");
  } else {
    n = same < least ? same : same / least * least;
    infos = gather_infos(self, n);
    arrays = infos == NULL ? NULL : PyList_New((Py_ssize_t)num_columns);
    for (size_t c = 0; arrays != NULL && c < num_columns; c++) {
      PyObject *array = gather_column(self, c, &columns[c], n);
      if (array == NULL || PyList_SetItem(arrays, (Py_ssize_t)c, array) < 0) Py_CLEAR(arrays);
    }
  }
  if (arrays != NULL) squeezed = list_squeezed(columns, num_columns);
  PyMem_Free(columns);
  if (squeezed == NULL) {
    Py_XDECREF(infos);
    Py_XDECREF(arrays);
    return NULL;
  }
  drop_first(self, n);
  return Py_BuildValue("(NNN)", infos, arrays, squeezed);
}

PyObject *sampler_block(PyObject *object, PyObject *args)
{
  sampler_object *self = (sampler_object *)object;
  Py_ssize_t least, most;
  long long timeout_ms;
  if (!PyArg_ParseTuple(args, "nnL:block", &least, &most, &timeout_ms)) return NULL;
  if (least < 1 || most < least || most > BLOCK_MAX)
    return PyErr_Format(PyExc_ValueError, "a block has from 1 to %d samples, at least as many as `least`", BLOCK_MAX);
  if (core_lock(self->lock) < 0) return NULL;
  PyObject *out = NULL;
  if (!self->ended && sampler_open(self) < 0) {
    self->ended = true;
  } else if (draw(self, (size_t)least, (size_t)most, timeout_ms) == 0) {
    if (self->num_held == 0 && self->ended) {
      Py_INCREF(Py_None);
      out = Py_None;
    } else {
      out = give(self, (size_t)least, (size_t)most);
    }
  }
  PyThread_release_lock(self->lock);
  return out;
}
