/* ReplayBatch, and Client.sample_batch which fills it: columns gathered straight into arrays. */
#include "client.h"
#include "convert.h"

/* What was drawn, one array after another in one block; wrapped as NumPy arrays when somebody looks. */
typedef struct batch_object {
  PyObject_HEAD
  core_state *state;
  size_t n;
  int64_t table_size;
  PyObject *block; /* owns the memory of: */
  uint64_t *keys;
  double *probabilities, *priorities;
  int64_t *lengths; /* rows of each item's longest column; NULL: not wanted */
  int32_t *times_sampled;
  PyObject *data;
  PyObject *wrapped[5]; /* arrays over the block, made once */
} batch_object;

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

static batch_object *batch_new(core_state *state, pool *buffers, const rv_batch *drawn, bool lengths)
{
  size_t n = rv_batch_size(drawn);
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
  for (size_t i = 0; i < n; i++) {
    const rv_sample_info *info = rv_batch_info(drawn, i);
    self->keys[i] = info->key;
    self->probabilities[i] = info->probability;
    self->priorities[i] = info->priority;
    self->times_sampled[i] = info->times_sampled;
    self->table_size = info->table_size;
  }
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
    {"data", batch_data, NULL, "The items' columns, each [B, T, ...] or [B, ...], in the nest of the table's signature.", NULL},
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

/* ---- gathering ---- */

typedef struct gathering {
  client_object *client;
  rv_batch *drawn;
  size_t n, num_columns;
  rv_sample_column *columns;
  PyObject **arrays; /* new references */
  void **outs;
  size_t *sizes;
  PyObject **given; /* the caller's arrays (borrowed), or NULL */
} gathering;

static uint32_t batch_shape(const gathering *g, size_t i, int64_t *shape)
{
  const rv_sample_column *column = &g->columns[i];
  uint32_t rank = 0;
  shape[rank++] = (int64_t)g->n;
  if (!column->squeezed) shape[rank++] = column->length;
  for (uint32_t d = 0; d < column->rank; d++) shape[rank++] = column->shape[d];
  return rank;
}

/* An array of its own memory where that is small, else in memory from the pool. */
static PyObject *fresh_array(gathering *g, size_t i)
{
  int64_t shape[RV_MAX_RANK + 4];
  uint32_t rank = batch_shape(g, i, shape);
  core_state *state = g->client->state;
  const rv_sample_column *column = &g->columns[i];
  if (column->dtype == RV_STRING || column->bytes < CLIENT_SMALL_BYTES ||
      state->descr[column->dtype & (CORE_DTYPES - 1)] == NULL) {
    return (PyObject *)array_new(state, column->dtype, rank, shape);
  }
  void *data;
  PyObject *buffer = buffer_new(state, g->client->buffers, column->bytes, &data);
  if (buffer == NULL) return NULL;
  PyObject *array = (PyObject *)array_over(state, column->dtype, rank, shape, data, buffer, true);
  Py_DECREF(buffer);
  return array;
}

/* The caller's array, or, when fewer items were drawn, a view of its first rows. */
static PyObject *given_array(gathering *g, size_t i)
{
  int64_t shape[RV_MAX_RANK + 4];
  uint32_t rank = batch_shape(g, i, shape);
  core_state *state = g->client->state;
  PyArrayObject *array = (PyArrayObject *)g->given[i];
  rv_dtype dtype = g->columns[i].dtype;
  if (dtype_of_array(state, array) != dtype || (dtype == RV_STRING && PyArray_TYPE(array) != NPY_OBJECT)) {
    PyErr_Format(PyExc_ValueError, "out: column %zu is %s, the array is %S", i, rv_dtype_name(dtype),
                 (PyObject *)PyArray_DESCR(array));
    return NULL;
  }
  bool fits = PyArray_NDIM(array) == (int)rank && PyArray_DIM(array, 0) >= shape[0];
  for (uint32_t d = 1; fits && d < rank; d++) fits = PyArray_DIM(array, (int)d) == shape[d];
  if (!fits) {
    PyObject *expected = PyList_New(0);
    for (uint32_t d = 0; expected != NULL && d < rank; d++) {
      PyObject *size = PyLong_FromLongLong(shape[d]);
      if (size == NULL || PyList_Append(expected, size) < 0) Py_CLEAR(expected);
      Py_XDECREF(size);
    }
    PyObject *got = PyObject_GetAttrString((PyObject *)array, "shape");
    if (expected != NULL && got != NULL) {
      PyErr_Format(PyExc_ValueError, "out: column %zu has shape %S, the array has shape %S", i, expected, got);
    }
    Py_XDECREF(expected);
    Py_XDECREF(got);
    return NULL;
  }
  if (PyArray_DIM(array, 0) == shape[0]) {
    Py_INCREF((PyObject *)array);
    return (PyObject *)array;
  }
  return (PyObject *)array_over(state, dtype, rank, shape, PyArray_DATA(array), (PyObject *)array, true);
}

static int gather_strings(gathering *g, size_t i)
{
  const rv_sample_column *column = &g->columns[i];
  rv_error err;
  rv_bytes *strings = PyMem_Malloc(column->bytes + 1);
  if (strings == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  int bad = 0;
  if (rv_batch_gather(g->drawn, i, strings, column->bytes, &err) != RV_OK) {
    core_raise(g->client->state, &err);
    bad = -1;
  } else {
    bad = array_set_strings((PyArrayObject *)g->arrays[i], 0, strings, column->bytes / sizeof *strings);
  }
  PyMem_Free(strings);
  return bad;
}

static int make_arrays(gathering *g, size_t *bytes)
{
  rv_error err;
  for (size_t i = 0; i < g->num_columns; i++) {
    rv_sample_column *column = &g->columns[i];
    if (rv_batch_column(g->drawn, i, column, &err) != RV_OK) {
      core_raise(g->client->state, &err);
      return -1;
    }
    if (column->rank > RV_MAX_RANK + 1) {
      PyErr_Format(PyExc_SystemError, "column %zu has rank %u", i, column->rank);
      return -1;
    }
    g->arrays[i] = g->given == NULL ? fresh_array(g, i) : given_array(g, i);
    if (g->arrays[i] == NULL) return -1;
    bool strings = column->dtype == RV_STRING;
    g->outs[i] = strings ? NULL : PyArray_DATA((PyArrayObject *)g->arrays[i]);
    g->sizes[i] = column->bytes;
    if (!strings) *bytes += column->bytes;
  }
  return 0;
}

static int gather(gathering *g)
{
  size_t bytes = 0;
  rv_error err;
  rv_code code;
  if (make_arrays(g, &bytes) < 0) return -1;
  if (bytes <= CLIENT_SMALL_BYTES) {
    code = rv_batch_gather_all(g->drawn, g->outs, g->sizes, g->num_columns, &err);
  } else {
    Py_BEGIN_ALLOW_THREADS
    code = rv_batch_gather_all(g->drawn, g->outs, g->sizes, g->num_columns, &err);
    Py_END_ALLOW_THREADS
  }
  if (code != RV_OK) {
    core_raise(g->client->state, &err);
    return -1;
  }
  for (size_t i = 0; i < g->num_columns; i++) {
    if (g->columns[i].dtype == RV_STRING && gather_strings(g, i) < 0) return -1;
  }
  return 0;
}

static int set_lengths(batch_object *batch, const rv_batch *drawn)
{
  rv_error err;
  int64_t *column = PyMem_Malloc((batch->n + 1) * sizeof *column);
  if (column == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  memset(batch->lengths, 0, batch->n * sizeof *batch->lengths);
  rv_code code = RV_OK;
  for (size_t c = 0; c < rv_batch_num_columns(drawn) && code == RV_OK; c++) {
    code = rv_batch_lengths(drawn, c, column, &err);
    for (size_t i = 0; i < batch->n && code == RV_OK; i++) {
      if (column[i] > batch->lengths[i]) batch->lengths[i] = column[i];
    }
  }
  PyMem_Free(column);
  if (code != RV_OK) core_raise(batch->state, &err);
  return code == RV_OK ? 0 : -1;
}

/* Lists of arrays, column by column. */
static PyObject *list_columns(client_object *self, rv_batch *drawn, bool copy)
{
  size_t n = rv_batch_size(drawn), num_columns = rv_batch_num_columns(drawn);
  PyObject *out = PyList_New((Py_ssize_t)num_columns);
  for (size_t c = 0; out != NULL && c < num_columns; c++) {
    PyObject *column = PyList_New((Py_ssize_t)n);
    if (column == NULL || PyList_SetItem(out, (Py_ssize_t)c, column) < 0) Py_CLEAR(out);
  }
  for (size_t i = 0; out != NULL && i < n; i++) {
    rv_sample *sample = rv_batch_sample(drawn, i);
    if (sample == NULL) {
      Py_DECREF(out);
      return PyErr_NoMemory();
    }
    PyObject *columns = sample_columns(self->state, sample, copy);
    rv_sample_unref(sample);
    for (size_t c = 0; columns != NULL && c < num_columns; c++) {
      PyObject *array = PyList_GetItem(columns, (Py_ssize_t)c);
      Py_INCREF(array);
      PyList_SetItem(PyList_GetItem(out, (Py_ssize_t)c), (Py_ssize_t)i, array);
    }
    if (columns == NULL) Py_CLEAR(out);
    Py_XDECREF(columns);
  }
  return out;
}

/* ---- the caller's arrays ---- */

/* The leaves of `out`, with everything checked that can be before something is drawn. */
static PyObject **parse_out(client_object *self, scratch *s, PyObject *out, size_t batch_size, size_t *count)
{
  structure_object *structure = structure_new(self->state, out);
  if (scratch_hold(s, (PyObject *)structure) < 0) return NULL;
  size_t n = structure->num_leaves;
  PyObject **leaves = scratch_alloc(s, n, sizeof *leaves);
  if (leaves == NULL || tree_flatten(structure->root, out, leaves) <= 0) return NULL;
  for (size_t i = 0; i < n; i++) {
    if (scratch_hold(s, leaves[i]) < 0) return NULL;
  }
  for (size_t i = 0; i < n; i++) {
    PyArrayObject *array = (PyArrayObject *)leaves[i];
    if (!PyArray_Check(leaves[i])) {
      PyErr_Format(PyExc_TypeError, "out: leaf %zu is a %S, not an array", i, (PyObject *)Py_TYPE(leaves[i]));
    } else if (!PyArray_ISCARRAY(array)) {
      PyErr_Format(PyExc_ValueError, "out: array %zu must be C-contiguous, writable, aligned and of native byte order", i);
    } else if (PyArray_NDIM(array) < 1 || (size_t)PyArray_DIM(array, 0) != batch_size) {
      PyErr_Format(PyExc_ValueError, "out: array %zu must have batch_size = %zu rows along dimension 0", i, batch_size);
    } else {
      continue;
    }
    return NULL;
  }
  *count = n;
  return leaves;
}

static int parse_unequal(PyObject *given, rv_unequal *out)
{
  static const char *const names[] = {"error", "pad", "list"};
  *out = RV_UNEQUAL_ERROR;
  if (given == NULL) return 0;
  for (int i = 0; i < 3 && PyUnicode_Check(given); i++) {
    if (PyUnicode_CompareWithASCIIString(given, names[i]) == 0) {
      *out = (rv_unequal)i;
      return 0;
    }
  }
  PyErr_Format(PyExc_ValueError, "unequal must be \"error\", \"pad\" or \"list\", got %R", given);
  return -1;
}

static PyObject *columns_of(client_object *self, rv_batch *drawn, scratch *s, PyObject **given, size_t num_given)
{
  gathering g = {.client = self, .drawn = drawn, .n = rv_batch_size(drawn), .num_columns = rv_batch_num_columns(drawn)};
  g.given = given;
  if (given != NULL && num_given != g.num_columns) {
    return PyErr_Format(PyExc_ValueError, "out has %zu arrays, the items have %zu columns", num_given, g.num_columns);
  }
  g.columns = scratch_alloc(s, g.num_columns, sizeof *g.columns);
  g.arrays = scratch_alloc(s, g.num_columns, sizeof *g.arrays);
  g.outs = scratch_alloc(s, g.num_columns, sizeof *g.outs);
  g.sizes = scratch_alloc(s, g.num_columns, sizeof *g.sizes);
  if (g.columns == NULL || g.arrays == NULL || g.outs == NULL || g.sizes == NULL) return NULL;
  for (size_t i = 0; i < g.num_columns; i++) g.arrays[i] = NULL;
  PyObject *out = gather(&g) < 0 ? NULL : PyList_New((Py_ssize_t)g.num_columns);
  for (size_t i = 0; i < g.num_columns; i++) {
    if (out != NULL) {
      PyList_SetItem(out, (Py_ssize_t)i, g.arrays[i]);
    } else {
      Py_XDECREF(g.arrays[i]);
    }
  }
  return out;
}

typedef struct batch_call {
  size_t batch_size;
  rv_unequal unequal;
  bool copy;
  PyObject **out;
  size_t num_out;
  int64_t timeout_ms;
  rv_cancel *cancel;
} batch_call;

static PyObject *draw(client_object *self, scratch *s, const batch_call *call, handle_object *handle)
{
  rv_batch *drawn = NULL;
  rv_error err;
  core_wait wait;
  if (self->in_process) {
    core_wait_begin_short(&wait, call->timeout_ms, call->cancel);
  } else {
    core_wait_begin(&wait, call->timeout_ms, call->cancel);
  }
  rv_code code = rv_client_sample_batch(self->client, handle->text, call->batch_size, call->unequal, &wait.wait, &drawn, &err);
  core_wait_end(&wait);
  if (code != RV_OK) return client_raise(self, handle, &wait, &err);
  bool pad = call->unequal == RV_UNEQUAL_PAD;
  batch_object *out = batch_new(self->state, self->buffers, drawn, pad);
  if (out != NULL && (!pad || set_lengths(out, drawn) == 0)) {
    PyObject *columns = call->unequal == RV_UNEQUAL_LIST ? list_columns(self, drawn, call->copy)
                                                         : columns_of(self, drawn, s, call->out, call->num_out);
    out->data = into_structure(client_structure(handle, rv_batch_num_columns(drawn)), columns);
  }
  if (out != NULL && out->data == NULL) Py_CLEAR(out);
  rv_batch_free(drawn);
  return (PyObject *)out;
}

static const char *const names[] = {"table", "batch_size", "timeout", "out", "unequal", "copy", "cancel"};
static const core_signature signature = {"sample_batch", names, 7, 2, 2};

PyObject *client_sample_batch(PyObject *object, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
  client_object *self = (client_object *)object;
  PyObject *given[7];
  batch_call call = {.copy = true};
  if (client_check(self) < 0 || core_parse(&signature, args, nargs, kwnames, given) < 0) return NULL;
  if (core_size(given[1], "batch_size", 1, &call.batch_size) < 0) return NULL;
  if (core_timeout(given[2], CLIENT_DEFAULT_TIMEOUT, &call.timeout_ms) < 0 || parse_unequal(given[4], &call.unequal) < 0)
    return NULL;
  if (given[5] != NULL && (call.copy = PyObject_IsTrue(given[5]) == 1, PyErr_Occurred())) return NULL;
  if (given[6] != NULL && given[6] != Py_None) {
    if (!PyObject_TypeCheck(given[6], self->state->cancel_type)) return PyErr_Format(PyExc_TypeError, "cancel must be a Cancel");
    call.cancel = ((cancel_object *)given[6])->cancel;
  }
  bool has_out = given[3] != NULL && given[3] != Py_None;
  if (has_out && call.unequal == RV_UNEQUAL_LIST) {
    PyErr_SetString(PyExc_ValueError, "out cannot be filled with unequal=\"list\": each item has an array of its own");
    return NULL;
  }
  scratch s;
  scratch_init(&s);
  PyObject *out = NULL;
  if (!has_out || (call.out = parse_out(self, &s, given[3], call.batch_size, &call.num_out)) != NULL) {
    handle_object *handle = client_handle(self, given[0], &call.timeout_ms, call.cancel);
    if (handle != NULL) out = draw(self, &s, &call, handle);
    Py_XDECREF((PyObject *)handle);
  }
  scratch_fini(&s);
  return out;
}
