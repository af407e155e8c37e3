/* Client.update_priorities, mutate, get, items: by key. */
#include "client.h"
#include "scratch.h"

static const uint64_t *bad_keys(PyObject *given)
{
  if (PyErr_Occurred() && !core_clear_refusal()) return NULL;
  PyErr_Format(PyExc_TypeError, "keys must be integers from 0 to 2**64 - 1, got %R", given);
  return NULL;
}

/* One dimension of this type, as C has it: read where it is. */
static bool is_plain(PyObject *given, int type)
{
  if (!PyArray_CheckExact(given)) return false;
  PyArrayObject *array = (PyArrayObject *)given;
  return PyArray_TYPE(array) == type && PyArray_NDIM(array) == 1 && PyArray_ISCARRAY_RO(array);
}

/* What stands in it, for as long as the scratch keeps it. */
static const void *read_plain(PyObject *array, scratch *s, size_t *n)
{
  Py_INCREF(array);
  if (scratch_hold(s, array) < 0) return NULL;
  *n = (size_t)PyArray_DIM((PyArrayObject *)array, 0);
  return PyArray_DATA((PyArrayObject *)array);
}

static const uint64_t *keys_of_array(PyArrayObject *given, scratch *s, size_t *n)
{
  if (PyArray_SIZE(given) > 0 && !PyArray_ISINTEGER(given)) return bad_keys((PyObject *)given);
  if (PyArray_NDIM(given) != 1) {
    PyObject *shape = PyObject_GetAttrString((PyObject *)given, "shape");
    if (shape != NULL) PyErr_Format(PyExc_ValueError, "keys must have one dimension, got shape %S", shape);
    Py_XDECREF(shape);
    return NULL;
  }
  if (core_check_mask(given, "keys") < 0) return NULL;
  PyArray_Descr *descr = PyArray_DescrFromType(NPY_UINT64);
  PyObject *array = PyArray_FromArray(given, descr, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST);
  if (scratch_hold(s, array) < 0) return NULL;
  *n = (size_t)PyArray_SIZE((PyArrayObject *)array);
  return PyArray_DATA((PyArrayObject *)array);
}

static bool makes_arrays(PyObject *given)
{
  return !PyList_CheckExact(given) && !PyTuple_CheckExact(given) && PyObject_HasAttrString(given, "__array__");
}

/* One key. PyTorch makes no int of a uint64 from 2**63 on, but an array. */
static bool read_key(PyObject *given, uint64_t *key)
{
  PyObject *index = PyNumber_Index(given);
  if (index == NULL && PyErr_ExceptionMatches(PyExc_RuntimeError) && makes_arrays(given)) {
    PyErr_Clear();
    PyObject *array = PyArray_FromAny(given, NULL, 0, 0, 0, NULL);
    index = array == NULL ? NULL : PyNumber_Index(array);
    Py_XDECREF(array);
  }
  *key = index == NULL ? 0 : PyLong_AsUnsignedLongLong(index);
  Py_XDECREF(index);
  return !PyErr_Occurred();
}

static const uint64_t *keys_of_sequence(PyObject *given, scratch *s, size_t *n)
{
  if (PyAnySet_Check(given)) {
    PyErr_Format(PyExc_TypeError, "keys must have an order, by which priorities go with them: give a list, got %R", given);
    return NULL;
  }
  PyObject *list = PyUnicode_Check(given) ? NULL : PySequence_List(given);
  if (list == NULL) return bad_keys(given);
  if (scratch_hold(s, list) < 0) return NULL;
  *n = (size_t)PyList_Size(list);
  uint64_t *keys = scratch_alloc(s, *n, sizeof *keys);
  for (size_t i = 0; keys != NULL && i < *n; i++) {
    if (!read_key(PyList_GetItem(list, (Py_ssize_t)i), &keys[i])) return bad_keys(given);
  }
  return keys;
}

/* Keys as uint64 [n]: arrays of integers, what NumPy makes such an array of, or sequences of ints. A tensor on a device, of which NumPy
 * makes none, is such a sequence, too. */
static const uint64_t *parse_keys(PyObject *given, scratch *s, size_t *n)
{
  if (is_plain(given, NPY_UINT64)) return read_plain(given, s, n);
  if (PyArray_Check(given)) return keys_of_array((PyArrayObject *)given, s, n);
  if (makes_arrays(given)) {
    PyObject *array = PyArray_FromAny(given, NULL, 0, 0, 0, NULL);
    if (array == NULL && !core_clear_refusal()) return NULL;
    if (array != NULL && scratch_hold(s, array) < 0) return NULL;
    if (array != NULL && PyArray_ISINTEGER((PyArrayObject *)array)) return keys_of_array((PyArrayObject *)array, s, n);
  }
  return keys_of_sequence(given, s, n);
}

static const double *of_floats(const float *given, scratch *s, size_t n)
{
  double *priorities = scratch_alloc(s, n, sizeof *priorities);
  for (size_t i = 0; priorities != NULL && i < n; i++) priorities[i] = given[i];
  return priorities;
}

/* Of a list of Python's floats, as most are that are no arrays: 1; 0: it is none; -1 with an exception. */
static int floats_of_list(PyObject *given, scratch *s, size_t n, const double **out)
{
  if (!PyList_CheckExact(given) || (size_t)PyList_Size(given) != n) return 0;
  double *priorities = scratch_alloc(s, n, sizeof *priorities);
  if (priorities == NULL) return -1;
  for (size_t i = 0; i < n; i++) {
    PyObject *each = PyList_GetItem(given, (Py_ssize_t)i);
    if (!PyFloat_CheckExact(each)) return 0;
    priorities[i] = PyFloat_AsDouble(each);
  }
  *out = priorities;
  return 1;
}

/* It has no such method, or makes a list that is none: true, and the exception is gone. */
static bool clear_lack(void)
{
  if (PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
  return !PyErr_Occurred() || core_clear_refusal();
}

/* What NumPy makes of it. Of a tensor on a device, one that requires grad, or of a dtype that it does not have, it makes nothing, and its
 * list of numbers is taken: one copy for all. NULL with an exception, which says why. */
static PyObject *as_array(PyObject *given)
{
  bool may_have_list = makes_arrays(given); /* looked at while no exception is set */
  PyObject *array = PyArray_FromAny(given, NULL, 0, 0, NPY_ARRAY_CARRAY_RO, NULL);
  if (array != NULL || !may_have_list) return array;
  if (!PyErr_ExceptionMatches(PyExc_TypeError) && !(PyErr_ExceptionMatches(PyExc_RuntimeError) && core_is_tensor(given)))
    return NULL;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *list = PyObject_CallMethod(given, "tolist", NULL);
  if (list != NULL) array = PyArray_FromAny(list, NULL, 0, 0, NPY_ARRAY_CARRAY_RO, NULL);
  Py_XDECREF(list);
  if (array == NULL && clear_lack()) {
    PyErr_Restore(type, value, traceback);
    return NULL;
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return array;
}

static void refuse_priorities(PyObject *given, const char *each)
{
  if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_OverflowError)) {
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "priorities must be numbers, one for each %s, and one is too large for a float: %R", each,
                 given);
    return;
  }
  PyObject *reason = PyErr_Occurred() ? core_take_refusal(false) : NULL;
  if (PyErr_Occurred()) return;
  if (reason == NULL)
    PyErr_Format(PyExc_TypeError, "priorities must be numbers, one for each %s, got %R", each, given);
  else
    PyErr_Format(PyExc_TypeError, "priorities must be numbers, one for each %s, got %R (%U)", each, given, reason);
  Py_XDECREF(reason);
}

/* As an array of float64; NULL with an exception. */
static PyObject *as_doubles(PyObject *given, const char *each)
{
  if (PyArray_Check(given) && core_check_mask((PyArrayObject *)given, "priorities") < 0) return NULL;
  PyObject *array = as_array(given), *doubles = NULL;
  if (array != NULL && PyArray_ISCOMPLEX((PyArrayObject *)array)) {
    PyErr_Format(PyExc_TypeError,
                 "priorities must be real numbers, one for each %s, got dtype %S; give numpy.real or numpy.abs of them", each,
                 (PyObject *)PyArray_DESCR((PyArrayObject *)array));
    Py_DECREF(array);
    return NULL;
  }
  if (array != NULL && core_holds_reals((PyArrayObject *)array)) {
    PyArray_Descr *descr = PyArray_DescrFromType(NPY_DOUBLE);
    doubles = PyArray_FromArray((PyArrayObject *)array, descr, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST);
  }
  Py_XDECREF(array);
  if (doubles == NULL) refuse_priorities(given, each);
  return doubles;
}

/* What a network gives is often [n, 1]. */
static void refuse_shape(PyArrayObject *array, size_t n, const char *each)
{
  PyObject *shape = PyObject_GetAttrString((PyObject *)array, "shape");
  const char *remedy = (size_t)PyArray_SIZE(array) == n && PyArray_NDIM(array) > 1 ? "; reshape(-1) makes it so" : "";
  if (shape != NULL)
    PyErr_Format(PyExc_ValueError, "priorities must have shape (%zu,), one for each %s, got %S%s", n, each, shape, remedy);
  Py_XDECREF(shape);
}

const double *client_priorities(PyObject *given, scratch *s, size_t n, const char *each)
{
  bool doubles = is_plain(given, NPY_DOUBLE), floats = !doubles && is_plain(given, NPY_FLOAT);
  if ((doubles || floats) && (size_t)PyArray_SIZE((PyArrayObject *)given) == n) {
    const void *data = read_plain(given, s, &n);
    return data == NULL || doubles ? data : of_floats(data, s, n);
  }
  const double *listed = NULL;
  int found = floats_of_list(given, s, n, &listed);
  if (found != 0) return listed;
  PyObject *array = as_doubles(given, each);
  if (scratch_hold(s, array) < 0) return NULL;
  if (PyArray_NDIM((PyArrayObject *)array) != 1 || (size_t)PyArray_SIZE((PyArrayObject *)array) != n) {
    refuse_shape((PyArrayObject *)array, n, each);
    return NULL;
  }
  return PyArray_DATA((PyArrayObject *)array);
}

static PyObject *unknown_array(const uint64_t *unknown, size_t num_unknown)
{
  if (num_unknown == SIZE_MAX) Py_RETURN_NONE;
  npy_intp shape[1] = {(npy_intp)num_unknown};
  PyObject *out = PyArray_SimpleNew(1, shape, NPY_UINT64);
  if (out != NULL && num_unknown > 0) memcpy(PyArray_DATA((PyArrayObject *)out), unknown, num_unknown * sizeof *unknown);
  return out;
}

/* ---- update_priorities ---- */

static const char *const update_names[] = {"table", "keys", "priorities", "timeout"};
static const core_signature update_signature = {"update_priorities", update_names, 4, 3, 3};

static PyObject *update(client_object *self, const char *table, scratch *s, PyObject *const *given, int64_t timeout_ms)
{
  size_t n = 0, num_unknown = 0;
  const uint64_t *keys = parse_keys(given[1], s, &n);
  const double *priorities = keys == NULL ? NULL : client_priorities(given[2], s, n, "key");
  uint64_t *unknown = priorities == NULL ? NULL : scratch_alloc(s, n, sizeof *unknown);
  if (unknown == NULL) return NULL;
  rv_error err;
  core_wait wait;
  if (self->in_process && n <= 1024) {
    core_wait_begin_short(&wait, timeout_ms, NULL);
  } else {
    core_wait_begin(&wait, timeout_ms, NULL);
  }
  rv_code code = rv_client_update_priorities(self->client, table, keys, priorities, n, unknown, &num_unknown, &wait.wait, &err);
  core_wait_end(&wait, code);
  return code == RV_OK ? unknown_array(unknown, num_unknown) : core_wait_raise(self->state, &wait, &err);
}

PyObject *client_update_priorities(PyObject *object, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
  client_object *self = (client_object *)object;
  PyObject *given[4];
  int64_t timeout_ms;
  if (client_check(self) < 0 || core_parse(&update_signature, args, nargs, kwnames, given) < 0) return NULL;
  const char *table = core_text(given[0], "table");
  if (table == NULL || core_timeout(given[3], CLIENT_DEFAULT_TIMEOUT, &timeout_ms) < 0) return NULL;
  scratch s;
  scratch_init(&s);
  PyObject *out = update(self, table, &s, given, timeout_ms);
  scratch_fini(&s);
  return out;
}

/* ---- mutate ---- */

static PyObject *mutate(client_object *self, const char *table, scratch *s, PyObject *given_keys, PyObject *given_priorities,
                        PyObject *given_deletes, int64_t timeout_ms)
{
  size_t n = 0, num_deletes = 0, num_unknown = 0;
  const uint64_t *keys = parse_keys(given_keys, s, &n);
  const double *priorities = keys == NULL ? NULL : client_priorities(given_priorities, s, n, "key");
  const uint64_t *deletes = priorities == NULL ? NULL : parse_keys(given_deletes, s, &num_deletes);
  rv_key_priority *updates = deletes == NULL ? NULL : scratch_alloc(s, n, sizeof *updates);
  uint64_t *unknown = updates == NULL ? NULL : scratch_alloc(s, n + num_deletes, sizeof *unknown);
  if (unknown == NULL) return NULL;
  for (size_t i = 0; i < n; i++) updates[i] = (rv_key_priority){keys[i], priorities[i]};
  rv_error err;
  core_wait wait;
  core_wait_begin(&wait, timeout_ms, NULL);
  rv_code code = rv_client_mutate(self->client, table, updates, n, deletes, num_deletes, unknown, &num_unknown, &wait.wait, &err);
  core_wait_end(&wait, code);
  return code == RV_OK ? unknown_array(unknown, num_unknown) : core_wait_raise(self->state, &wait, &err);
}

PyObject *client_mutate(PyObject *object, PyObject *args)
{
  client_object *self = (client_object *)object;
  PyObject *table, *keys, *priorities, *deletes, *timeout;
  int64_t timeout_ms;
  if (client_check(self) < 0 || !PyArg_ParseTuple(args, "OOOOO:_mutate", &table, &keys, &priorities, &deletes, &timeout))
    return NULL;
  const char *text = core_text(table, "table");
  if (text == NULL || core_timeout(timeout, RV_FOREVER, &timeout_ms) < 0) return NULL;
  scratch s;
  scratch_init(&s);
  PyObject *out = mutate(self, text, &s, keys, priorities, deletes, timeout_ms);
  scratch_fini(&s);
  return out;
}

/* ---- looking at items ---- */

static const char *const get_names[] = {"table", "key", "copy", "timeout"};
static const core_signature get_signature = {"get", get_names, 4, 2, 2};

PyObject *client_get(PyObject *object, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
  client_object *self = (client_object *)object;
  PyObject *given[4];
  core_time time;
  if (client_check(self) < 0 || core_parse(&get_signature, args, nargs, kwnames, given) < 0) return NULL;
  if (core_time_begin(given[3], CLIENT_DEFAULT_TIMEOUT, &time) < 0) return NULL;
  int copy = given[2] == NULL ? 1 : PyObject_IsTrue(given[2]);
  uint64_t key;
  if (copy < 0) return NULL;
  if (!read_key(given[1], &key)) {
    if (!core_clear_refusal()) return NULL;
    return PyErr_Format(PyExc_TypeError, "key must be an integer from 0 to 2**64 - 1, got %R", given[1]);
  }
  handle_object *handle = client_handle(self, given[0], &time, NULL);
  if (handle == NULL) return NULL;
  rv_sample *sample = NULL;
  rv_error err;
  core_wait wait;
  core_wait_begin_rest(&wait, &time, NULL, false);
  rv_code code = rv_client_get(self->client, handle->text, key, &wait.wait, &sample, &err);
  core_wait_end(&wait, code);
  PyObject *out = NULL;
  if (code == RV_OK) {
    structure_object *structure = client_structure(handle, rv_sample_num_columns(sample), rv_sample_naming(sample));
    PyObject *columns = sample_columns(self->state, sample, copy != 0, self->buffers);
    PyObject *data = into_structure(structure, columns);
    Py_XDECREF((PyObject *)structure);
    out = replay_sample_object(self->state, data == NULL ? NULL : sample_info_object(self->state, rv_sample_get_info(sample)),
                               data);
    rv_sample_unref(sample);
  } else {
    core_wait_raise(self->state, &wait, &err); /* an unknown key says nothing about the table */
  }
  Py_DECREF((PyObject *)handle);
  return out;
}

static PyObject *items_list(const rv_item_info *items, size_t n)
{
  PyObject *out = PyList_New((Py_ssize_t)n);
  for (size_t i = 0; out != NULL && i < n; i++) {
    PyObject *entry = Py_BuildValue("(KdidL)", (unsigned long long)items[i].key, items[i].priority, (int)items[i].times_sampled,
                                    (double)items[i].inserted_at_ns / 1e9, (long long)items[i].length);
    if (entry == NULL || PyList_SetItem(out, (Py_ssize_t)i, entry) < 0) Py_CLEAR(out);
  }
  return out;
}

static PyObject *keys_array(const rv_item_info *items, size_t n)
{
  npy_intp shape[1] = {(npy_intp)n};
  PyObject *out = PyArray_SimpleNew(1, shape, NPY_UINT64);
  uint64_t *keys = out == NULL ? NULL : PyArray_DATA((PyArrayObject *)out);
  for (size_t i = 0; out != NULL && i < n; i++) keys[i] = items[i].key;
  return out;
}

PyObject *client_items_page(PyObject *object, PyObject *args)
{
  client_object *self = (client_object *)object;
  PyObject *table, *timeout;
  unsigned long long start;
  Py_ssize_t capacity;
  int only_keys;
  int64_t timeout_ms;
  if (client_check(self) < 0 || !PyArg_ParseTuple(args, "OKnpO:_items_page", &table, &start, &capacity, &only_keys, &timeout)) {
    return NULL;
  }
  const char *text = core_text(table, "table");
  if (text == NULL || core_timeout(timeout, CLIENT_DEFAULT_TIMEOUT, &timeout_ms) < 0) return NULL;
  if (capacity < 1 || capacity > 1000000) {
    return PyErr_Format(PyExc_ValueError, "page_size must be from 1 to 1,000,000, got %zd", capacity);
  }
  rv_item_info *items = PyMem_Malloc((size_t)capacity * sizeof *items);
  if (items == NULL) return PyErr_NoMemory();
  uint64_t cursor = start;
  size_t count = 0;
  rv_error err;
  core_wait wait;
  core_wait_begin(&wait, timeout_ms, NULL);
  rv_code code = rv_client_items(self->client, text, &cursor, items, (size_t)capacity, &count, &wait.wait, &err);
  core_wait_end(&wait, code);
  PyObject *page = NULL;
  if (code != RV_OK) {
    core_wait_raise(self->state, &wait, &err);
  } else {
    page = only_keys ? keys_array(items, count) : items_list(items, count);
  }
  PyMem_Free(items);
  return page == NULL ? NULL : Py_BuildValue("(NK)", page, (unsigned long long)cursor);
}
