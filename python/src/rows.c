/* Client.add and Client.add_batch: rows into a table, without trajectories. */
#include "client.h"
#include "convert.h"

/* The data as tensors in column order; everything they point to is held by the scratch. */
typedef struct flat_rows {
  size_t n;
  rv_tensor *columns;
  size_t bytes;
  structure_object *structure;
  uint64_t naming; /* of the structure */
} flat_rows;

/* A new reference to the structure of this data, which is that of the last row from now on. */
static structure_object *flatten_anew(client_object *self, handle_object *handle, PyObject *data)
{
  structure_object *rows = structure_new(self->state, data);
  if (rows == NULL) return NULL;
  if (rows->num_leaves == 0) {
    PyErr_SetString(PyExc_ValueError, "the data has no leaves: there is nothing to insert");
    Py_DECREF((PyObject *)rows);
    return NULL;
  }
  PyObject *old = (PyObject *)handle->rows;
  Py_INCREF((PyObject *)rows);
  handle->rows = rows;
  Py_XDECREF(old);
  return rows;
}

static void prefix_path(const structure_object *structure, size_t leaf)
{
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *paths = tree_paths(structure->root, structure->num_leaves);
  PyErr_Restore(type, value, traceback);
  if (paths != NULL) core_prefix_error(PyList_GetItem(paths, (Py_ssize_t)leaf));
  Py_XDECREF(paths);
}

static size_t tensor_bytes(const rv_tensor *tensor)
{
  size_t bytes = rv_dtype_size(tensor->dtype);
  for (uint32_t i = 0; i < tensor->rank; i++) bytes *= (size_t)tensor->shape[i];
  return bytes;
}

static int convert_leaves(client_object *self, handle_object *handle, structure_object *structure, scratch *s, PyObject **leaves,
                          flat_rows *out)
{
  size_t n = structure->num_leaves;
  bool typed = handle->num_specs == n;
  for (size_t i = 0; i < n; i++) {
    rv_dtype wanted = typed ? handle->dtypes[i] : RV_DTYPE_INVALID;
    if (tensor_from_object(self->state, s, leaves[i], wanted, &out->columns[i]) < 0) {
      prefix_path(structure, i);
      return -1;
    }
    out->bytes += tensor_bytes(&out->columns[i]);
  }
  return 0;
}

static int flatten(client_object *self, handle_object *handle, PyObject *data, scratch *s, flat_rows *out)
{
  for (int attempt = 0; attempt < 2; attempt++) {
    structure_object *structure = attempt == 0 ? handle->rows : NULL;
    if (structure != NULL) {
      Py_INCREF((PyObject *)structure);
    } else {
      structure = flatten_anew(self, handle, data);
    }
    if (scratch_hold(s, (PyObject *)structure) < 0) return -1; /* a mapping that is asked for its values may do anything */
    size_t n = structure->num_leaves;
    PyObject **leaves = scratch_alloc(s, n, sizeof *leaves);
    if (leaves == NULL) return -1;
    int found = tree_flatten(structure->root, data, leaves);
    if (found < 0) return -1;
    if (found == 0) continue;
    for (size_t i = 0; i < n; i++) {
      if (scratch_hold(s, leaves[i]) < 0) return -1;
    }
    *out = (flat_rows){.n = n,
                       .columns = scratch_alloc(s, n, sizeof *out->columns),
                       .structure = structure,
                       .naming = structure_naming(structure)};
    if (out->columns == NULL) return -1;
    return convert_leaves(self, handle, structure, s, leaves, out);
  }
  PyErr_SetString(PyExc_RuntimeError, "the data changed while it was flattened");
  return -1;
}

/* What is known of the table may be old: before it says no, it is fetched anew. */
static int check_names(client_object *self, handle_object **handle, PyObject *table, const flat_rows *rows, int64_t *timeout_ms)
{
  for (int attempt = 0;; attempt++) {
    rv_error err;
    int code = client_check_names(*handle, rows->structure, &err);
    if (code == RV_OK || code < 0) return code;
    (*handle)->stale = true;
    if (attempt > 0) {
      core_raise(self->state, &err);
      return -1;
    }
    handle_object *fresh = client_handle(self, table, timeout_ms, NULL);
    if (fresh == NULL) return -1;
    Py_DECREF((PyObject *)*handle);
    *handle = fresh;
  }
}

/* ---- add ---- */

static void begin_wait(client_object *self, const flat_rows *rows, core_wait *wait, int64_t timeout_ms)
{
  if (self->in_process && rows->bytes <= CLIENT_SMALL_BYTES) {
    core_wait_begin_short(wait, timeout_ms, NULL);
  } else {
    core_wait_begin(wait, timeout_ms, NULL);
  }
}

static PyObject *add(client_object *self, handle_object *handle, const flat_rows *rows, double priority, int64_t timeout_ms)
{
  rv_error err;
  uint64_t key;
  core_wait wait;
  begin_wait(self, rows, &wait, timeout_ms);
  rv_code code =
      rv_client_add_named(self->client, handle->text, rows->naming, rows->columns, rows->n, priority, &key, &wait.wait, &err);
  core_wait_end(&wait, code);
  if (code != RV_OK) return client_raise(self, handle, &wait, &err);
  return PyLong_FromUnsignedLongLong(key);
}

static const char *const add_names[] = {"table", "data", "priority", "timeout"};
static const core_signature add_signature = {"add", add_names, 4, 3, 2};

PyObject *client_add(PyObject *object, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
  client_object *self = (client_object *)object;
  PyObject *given[4];
  int64_t timeout_ms;
  double priority = 1.0;
  if (client_check(self) < 0 || core_parse(&add_signature, args, nargs, kwnames, given) < 0) return NULL;
  if (core_timeout(given[3], CLIENT_DEFAULT_TIMEOUT, &timeout_ms) < 0) return NULL;
  if (given[2] != NULL && core_double(given[2], "priority", &priority) < 0) return NULL;
  handle_object *handle = client_handle(self, given[0], &timeout_ms, NULL);
  if (handle == NULL) return NULL;
  scratch s;
  flat_rows rows;
  scratch_init(&s);
  bool ok = flatten(self, handle, given[1], &s, &rows) == 0 && check_names(self, &handle, given[0], &rows, &timeout_ms) == 0;
  PyObject *out = ok ? add(self, handle, &rows, priority, timeout_ms) : NULL;
  if (out == NULL) client_explain(self, handle, given[1]);
  scratch_fini(&s);
  Py_DECREF((PyObject *)handle);
  return out;
}

/* ---- add_batch ---- */

static int check_leading(const flat_rows *rows, size_t *n)
{
  for (size_t i = 0; i < rows->n; i++) {
    const rv_tensor *column = &rows->columns[i];
    if (column->rank == 0) {
      PyErr_Format(PyExc_ValueError, "column %zu is a scalar; add_batch takes arrays with the rows along dimension 0", i);
      return -1;
    }
    if (i > 0 && column->shape[0] != rows->columns[0].shape[0]) {
      PyErr_Format(PyExc_ValueError, "column %zu has %lld rows, column 0 has %lld", i, (long long)column->shape[0],
                   (long long)rows->columns[0].shape[0]);
      return -1;
    }
  }
  *n = (size_t)rows->columns[0].shape[0];
  return 0;
}

static PyObject *add_rows(client_object *self, handle_object *handle, const flat_rows *rows, size_t n, const double *priorities,
                          int64_t timeout_ms)
{
  rv_error err;
  size_t added = 0;
  core_wait wait;
  begin_wait(self, rows, &wait, timeout_ms);
  rv_code code = rv_client_add_batch_named(self->client, handle->text, rows->naming, rows->columns, rows->n, n, priorities, NULL,
                                           &added, &wait.wait, &err);
  core_wait_end(&wait, code);
  bool late = code == RV_DEADLINE_EXCEEDED && added > 0;
  if (code != RV_OK && !late) return client_raise(self, handle, &wait, &err);
  return PyLong_FromSize_t(added);
}

static const char *const add_batch_names[] = {"table", "data", "priorities", "timeout"};
static const core_signature add_batch_signature = {"add_batch", add_batch_names, 4, 3, 2};

PyObject *client_add_batch(PyObject *object, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
  client_object *self = (client_object *)object;
  PyObject *given[4];
  int64_t timeout_ms;
  if (client_check(self) < 0 || core_parse(&add_batch_signature, args, nargs, kwnames, given) < 0) return NULL;
  if (core_timeout(given[3], CLIENT_DEFAULT_TIMEOUT, &timeout_ms) < 0) return NULL;
  handle_object *handle = client_handle(self, given[0], &timeout_ms, NULL);
  if (handle == NULL) return NULL;
  scratch s;
  flat_rows rows;
  size_t n;
  PyObject *out = NULL;
  scratch_init(&s);
  if (flatten(self, handle, given[1], &s, &rows) == 0 && check_leading(&rows, &n) == 0 &&
      check_names(self, &handle, given[0], &rows, &timeout_ms) == 0) {
    const double *priorities = NULL;
    bool wants = given[2] != NULL && given[2] != Py_None;
    if (wants) priorities = client_priorities(given[2], &s, n, "row");
    if (n == 0) {
      out = wants && priorities == NULL ? NULL : PyLong_FromLong(0);
    } else if (!wants || priorities != NULL) {
      out = add_rows(self, handle, &rows, n, priorities, timeout_ms);
      if (out == NULL) client_explain(self, handle, given[1]);
    }
  }
  scratch_fini(&s);
  Py_DECREF((PyObject *)handle);
  return out;
}
