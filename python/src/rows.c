/* Client.add and Client.add_batch: rows into a table, without trajectories. */
#include <stdio.h>

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

static size_t tensor_bytes(const rv_tensor *tensor)
{
  if (tensor->rank == 0) return sizeof(rv_bytes); /* no element is larger */
  size_t bytes = rv_dtype_size(tensor->dtype);
  for (uint32_t i = 0; i < tensor->rank; i++) bytes *= (size_t)tensor->shape[i];
  return bytes;
}

/* The leaves are what the scratch holds from the `first` on. */
static int convert_leaves(handle_object *handle, structure_object *structure, scratch *s, size_t first, flat_rows *out)
{
  size_t n = structure->num_leaves;
  bool typed = handle->num_specs == n;
  *out = (flat_rows){.n = n,
                     .columns = scratch_alloc(s, n, sizeof *out->columns),
                     .structure = structure,
                     .naming = structure_naming(structure)};
  if (out->columns == NULL) return -1;
  for (size_t i = 0; i < n; i++) {
    rv_dtype wanted = typed ? handle->dtypes[i] : RV_DTYPE_INVALID;
    if (tensor_from_leaf(structure, i, s, s->held[first + i], wanted, &out->columns[i]) < 0) return -1;
    out->bytes += tensor_bytes(&out->columns[i]);
  }
  return 0;
}

/* The scratch holds the leaves from the `first` on; 0: the data is of another structure. */
static int flatten_as(const structure_object *structure, PyObject *data, scratch *s, size_t *first)
{
  *first = s->num_held;
  PyObject **leaves = scratch_room(s, structure->num_leaves);
  int found = leaves == NULL ? -1 : tree_flatten(structure->state, structure->root, data, leaves);
  if (found > 0) s->num_held += structure->num_leaves;
  return found;
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
    size_t first;
    int found = flatten_as(structure, data, s, &first);
    if (found < 0) return -1;
    if (found > 0) return convert_leaves(handle, structure, s, first, out);
  }
  PyErr_SetString(PyExc_RuntimeError, "the data changed while it was flattened");
  return -1;
}

/* What is known of the table may be old: before it says no, it is fetched anew. */
static int check_names(client_object *self, handle_object **handle, PyObject *table, const flat_rows *rows, core_time *time)
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
    handle_object *fresh = client_handle(self, table, time, NULL);
    if (fresh == NULL) return -1;
    Py_DECREF((PyObject *)*handle);
    *handle = fresh;
  }
}

/* To the error of data that the signature refuses: of rows where one is taken, and of one where rows are, it is the other call's. */
static void name_other_call(const handle_object *handle, const flat_rows *rows, uint32_t more_dimensions, const char *words,
                            rv_error *err)
{
  if (err->code != RV_INVALID_ARGUMENT || handle->num_specs != rows->n) return;
  for (size_t i = 0; i < rows->n; i++) {
    const rv_tensor *column = &rows->columns[i];
    if (handle->ranks[i] < 0 || column->rank != (uint32_t)handle->ranks[i] + more_dimensions) return;
    if (more_dimensions > 0 && column->shape[0] != rows->columns[0].shape[0]) return;
  }
  size_t length = strlen(err->message);
  snprintf(err->message + length, sizeof err->message - length, "; %s", words);
}

/* ---- add ---- */

static void begin_wait(client_object *self, const flat_rows *rows, core_wait *wait, const core_time *time)
{
  core_wait_begin_rest(wait, time, NULL, self->in_process && rows->bytes <= CLIENT_SMALL_BYTES);
}

static PyObject *add(client_object *self, handle_object *handle, const flat_rows *rows, double priority, const core_time *time)
{
  rv_error err;
  uint64_t key;
  core_wait wait;
  begin_wait(self, rows, &wait, time);
  rv_code code =
      rv_client_add_named(self->client, handle->text, rows->naming, rows->columns, rows->n, priority, &key, &wait.wait, &err);
  core_wait_end(&wait, code);
  if (code == RV_OK) return PyLong_FromUnsignedLongLong(key);
  name_other_call(handle, rows, 1, "add takes one row, and add_batch rows along dimension 0", &err);
  return client_raise(self, handle, &wait, &err);
}

static const char *const add_names[] = {"table", "data", "priority", "timeout"};
static const core_signature add_signature = {"add", add_names, 4, 3, 2};

PyObject *client_add(PyObject *object, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
  client_object *self = (client_object *)object;
  PyObject *given[4];
  core_time time;
  double priority = 1.0;
  if (client_check(self) < 0 || core_parse(&add_signature, args, nargs, kwnames, given) < 0) return NULL;
  if (core_time_begin(given[3], CLIENT_DEFAULT_TIMEOUT, &time) < 0) return NULL;
  if (given[2] != NULL && core_double(given[2], "priority", &priority) < 0) return NULL;
  handle_object *handle = client_handle(self, given[0], &time, NULL);
  if (handle == NULL) return NULL;
  scratch s;
  flat_rows rows;
  scratch_init(&s);
  bool ok = flatten(self, handle, given[1], &s, &rows) == 0 && check_names(self, &handle, given[0], &rows, &time) == 0;
  PyObject *out = ok ? add(self, handle, &rows, priority, &time) : NULL;
  if (out == NULL) client_explain(self, handle, given[1]);
  scratch_fini(&s);
  Py_DECREF((PyObject *)handle);
  return out;
}

/* ---- add_batch ---- */

static bool is_scalar(PyObject *value)
{
  return PyFloat_Check(value) || PyLong_Check(value) || PyComplex_Check(value) || PyUnicode_Check(value) ||
         PyBytes_Check(value) || PyArray_IsScalar(value, Generic);
}

static int has_lists(core_state *state, PyObject *nest, int depth);

static int has_lists_inside(core_state *state, PyObject *container, int depth)
{
  bool is_list = PyList_Check(container);
  PyObject *key, *value;
  Py_ssize_t at = 0;
  int found = 0;
  if (PyDict_Check(container)) {
    while (found == 0 && PyDict_Next(container, &at, &key, &value)) {
      Py_INCREF(value); /* who is asked what it is may do anything */
      found = has_lists(state, value, depth + 1);
      Py_DECREF(value);
    }
    return found;
  }
  for (; found == 0 && at < (is_list ? PyList_Size(container) : PyTuple_Size(container)); at++) {
    value = is_list ? PyList_GetItem(container, at) : PyTuple_GetItem(container, at);
    if (at == 0 && is_scalar(value)) return 1;
    Py_INCREF(value);
    found = has_lists(state, value, depth + 1);
    Py_DECREF(value);
  }
  return found;
}

/* Is there a list that begins with a number or a string, or another sequence, which may? Of rows it can only be an array. -1 with an
 * exception. */
static int has_lists(core_state *state, PyObject *nest, int depth)
{
  int kind = tree_kind_of(state, nest);
  if (kind < 0 || kind == TREE_SEQUENCE) return kind < 0 ? -1 : 1;
  if (!PyList_Check(nest) && !PyTuple_Check(nest) && !PyDict_Check(nest)) return 0;
  return depth > TREE_MAX_DEPTH ? tree_too_deep() : has_lists_inside(state, nest, depth);
}

/* The data with arrays in the place of lists (reverie/_lists.py); NULL with an exception. */
static PyObject *with_arrays(client_object *self, const handle_object *handle, PyObject *data)
{
  PyObject *signature = (PyObject *)handle->signature;
  if (signature == NULL || handle->signature->num_leaves != handle->num_specs) signature = Py_None;
  PyObject *dtypes = PyList_New(0), *module = NULL, *out = NULL;
  bool ok = dtypes != NULL;
  for (size_t i = 0; ok && signature != Py_None && i < handle->num_specs; i++) {
    PyObject *descr = (unsigned)handle->dtypes[i] < CORE_DTYPES ? (PyObject *)self->state->descr[handle->dtypes[i]] : NULL;
    ok = PyList_Append(dtypes, descr == NULL ? Py_None : descr) == 0;
  }
  if (ok) module = PyImport_ImportModule("reverie._lists");
  if (module != NULL) out = PyObject_CallMethod(module, "as_columns", "OOO", data, signature, dtypes);
  Py_XDECREF(dtypes);
  Py_XDECREF(module);
  return out;
}

/* A new reference to what the container has in the place of the signature's child; NULL: nothing, or it is not quickly found, or
 * with an exception. */
static PyObject *find_part(const tree *node, size_t child, int kind, PyObject *container)
{
  PyObject *part = NULL;
  if (kind == TREE_DICT && node->key != NULL && (size_t)PyDict_Size(container) == node->n) {
    part = PyDict_GetItemWithError(container, node->key[child]);
  } else if (kind == TREE_LIST && (size_t)PyList_Size(container) == node->n) {
    part = PyList_GetItem(container, (Py_ssize_t)child);
  } else if ((kind == TREE_TUPLE || (kind == TREE_NAMED && Py_TYPE(container) == node->type)) &&
             (size_t)PyTuple_Size(container) == node->n) {
    part = PyTuple_GetItem(container, (Py_ssize_t)child);
  }
  Py_XINCREF(part);
  return part;
}

/* Has the data the structure of the signature, and nothing that may be a list in the place of a leaf? 0: it has not, or that is
 * not quickly seen. -1 with an exception. */
static int has_arrays_at_leaves(core_state *state, const tree *node, PyObject *data)
{
  int kind = tree_kind_of(state, data);
  if (kind < 0 || kind == TREE_LEAF || node->kind == TREE_LEAF) return kind < 0 ? -1 : kind == (int)node->kind;
  int found = 1;
  for (size_t i = 0; found > 0 && i < node->n; i++) {
    PyObject *part = find_part(node, i, kind, data);
    if (part == NULL) return PyErr_Occurred() ? -1 : 0;
    found = has_arrays_at_leaves(state, node->child[i], part);
    Py_DECREF(part);
  }
  return found;
}

/* Can the data be flattened as it is, without a list that is a column? -1 with an exception. */
static int is_of_arrays(const client_object *self, const handle_object *handle, PyObject *data)
{
  const structure_object *signature = handle->signature;
  if (signature != NULL && signature->num_leaves == handle->num_specs)
    return has_arrays_at_leaves(self->state, signature->root, data);
  int lists = has_lists(self->state, data, 0);
  return lists < 0 ? -1 : lists == 0;
}

static bool is_flat_dict(const tree *root)
{
  bool flat = root->kind == TREE_DICT;
  for (size_t i = 0; flat && i < root->n; i++) flat = root->child[i]->kind == TREE_LEAF;
  return flat;
}

/* Rows of this structure were found to be of arrays. Of dicts with the same keys nothing but the values can make a difference then. */
static void remember_arrays(handle_object *handle, structure_object *structure)
{
  if (handle->arrays == structure || !is_flat_dict(structure->root)) return;
  PyObject *old = (PyObject *)handle->arrays;
  Py_INCREF((PyObject *)structure);
  handle->arrays = structure;
  Py_XDECREF(old);
}

/* A dict with the keys of the one before it, and of arrays: 1; 0: it is not. */
static int flatten_arrays(handle_object *handle, PyObject *data, scratch *s, flat_rows *out)
{
  structure_object *structure = handle->arrays;
  if (structure == NULL || structure != handle->rows) return 0;
  Py_INCREF((PyObject *)structure);
  if (scratch_hold(s, (PyObject *)structure) < 0) return -1;
  size_t first;
  int found = flatten_as(structure, data, s, &first);
  for (size_t i = 0; found > 0 && i < structure->num_leaves; i++) found = PyArray_CheckExact(s->held[first + i]);
  return found > 0 && convert_leaves(handle, structure, s, first, out) < 0 ? -1 : found;
}

/* Flattens what the caller gave, lists as arrays. *data is replaced by what was flattened, which the scratch holds. */
static int flatten_batch(client_object *self, handle_object *handle, PyObject **data, scratch *s, flat_rows *rows)
{
  int done = flatten_arrays(handle, *data, s, rows);
  if (done != 0) return done < 0 ? -1 : 0;
  int as_it_is = is_of_arrays(self, handle, *data);
  if (as_it_is < 0) return -1;
  if (as_it_is == 0) {
    PyObject *arrays = with_arrays(self, handle, *data);
    if (scratch_hold(s, arrays) < 0) return -1;
    *data = arrays;
  }
  if (flatten(self, handle, *data, s, rows) < 0) return -1;
  if (as_it_is > 0) remember_arrays(handle, rows->structure);
  return 0;
}

/* `column 1 "obs"`, without a name where the data is an array. */
static PyObject *column_text(const flat_rows *rows, size_t i)
{
  const char *const *names = structure_names(rows->structure);
  if (names == NULL) return NULL;
  return names[i][0] == '\0' ? PyUnicode_FromFormat("column %zu", i) : PyUnicode_FromFormat("column %zu \"%s\"", i, names[i]);
}

static int bad_leading(const flat_rows *rows, size_t i)
{
  const char *remedy = "add_batch takes arrays with the rows along dimension 0, and add takes one row";
  const rv_tensor *column = &rows->columns[i], *first = &rows->columns[0];
  PyObject *text = column_text(rows, i), *other = text == NULL ? NULL : column_text(rows, 0);
  if (other != NULL && column->rank == 0)
    PyErr_Format(PyExc_ValueError, "%U is a scalar; %s", text, remedy);
  else if (other != NULL)
    PyErr_Format(PyExc_ValueError, "%U has %lld rows, %U has %lld; %s", text, (long long)column->shape[0], other,
                 (long long)first->shape[0], remedy);
  Py_XDECREF(text);
  Py_XDECREF(other);
  return -1;
}

static int check_leading(const flat_rows *rows, size_t *n)
{
  for (size_t i = 0; i < rows->n; i++) {
    const rv_tensor *column = &rows->columns[i];
    if (column->rank == 0 || column->shape[0] != rows->columns[0].shape[0]) return bad_leading(rows, i);
  }
  *n = (size_t)rows->columns[0].shape[0];
  return 0;
}

static PyObject *add_rows(client_object *self, handle_object *handle, const flat_rows *rows, size_t n, const double *priorities,
                          const core_time *time)
{
  rv_error err;
  size_t added = 0;
  core_wait wait;
  begin_wait(self, rows, &wait, time);
  rv_code code = rv_client_add_batch_named(self->client, handle->text, rows->naming, rows->columns, rows->n, n, priorities, NULL,
                                           &added, &wait.wait, &err);
  core_wait_end(&wait, code);
  bool late = code == RV_DEADLINE_EXCEEDED && added > 0;
  if (code == RV_OK || late) return PyLong_FromSize_t(added);
  name_other_call(handle, rows, 0, "add_batch takes rows along dimension 0, and add takes one row", &err);
  return client_raise(self, handle, &wait, &err);
}

static const char *const add_batch_names[] = {"table", "data", "priorities", "timeout"};
static const core_signature add_batch_signature = {"add_batch", add_batch_names, 4, 3, 2};

PyObject *client_add_batch(PyObject *object, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
  client_object *self = (client_object *)object;
  PyObject *given[4];
  core_time time;
  if (client_check(self) < 0 || core_parse(&add_batch_signature, args, nargs, kwnames, given) < 0) return NULL;
  if (core_time_begin(given[3], CLIENT_DEFAULT_TIMEOUT, &time) < 0) return NULL;
  handle_object *handle = client_handle(self, given[0], &time, NULL);
  if (handle == NULL) return NULL;
  scratch s;
  flat_rows rows;
  size_t n;
  PyObject *data = given[1], *out = NULL;
  scratch_init(&s);
  if (flatten_batch(self, handle, &data, &s, &rows) == 0 && check_leading(&rows, &n) == 0 &&
      check_names(self, &handle, given[0], &rows, &time) == 0) {
    const double *priorities = NULL;
    bool wants = given[2] != NULL && given[2] != Py_None;
    if (wants) priorities = client_priorities(given[2], &s, n, "row");
    if (n == 0) {
      out = wants && priorities == NULL ? NULL : PyLong_FromLong(0);
    } else if (!wants || priorities != NULL) {
      out = add_rows(self, handle, &rows, n, priorities, &time);
      if (out == NULL) client_explain(self, handle, data);
    }
  }
  scratch_fini(&s);
  Py_DECREF((PyObject *)handle);
  return out;
}
