/* What a client remembers of the tables it uses. */
#include <stdio.h>
#include <time.h>

#include "client.h"
#include "client/client.h"
#include "place.h"

/* The class of a namedtuple that was inserted, say, may refer to the client. */
static int handle_traverse(PyObject *object, visitproc visit, void *arg)
{
  handle_object *self = (handle_object *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->name);
  Py_VISIT((PyObject *)self->signature);
  Py_VISIT((PyObject *)self->rows);
  Py_VISIT((PyObject *)self->named);
  Py_VISIT((PyObject *)self->arrays);
  return 0;
}

static void handle_dealloc(PyObject *object)
{
  handle_object *self = (handle_object *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  Py_XDECREF(self->name);
  Py_XDECREF((PyObject *)self->signature);
  Py_XDECREF((PyObject *)self->rows);
  Py_XDECREF((PyObject *)self->named);
  Py_XDECREF((PyObject *)self->arrays);
  Py_XDECREF(self->nest);
  PyMem_Free(self->dtypes);
  PyMem_Free(self->ranks);
  for (size_t i = 0; self->specs != NULL && i < self->num_specs; i++) PyMem_Free((void *)(uintptr_t)self->specs[i].name);
  PyMem_Free(self->specs);
  rv_layout_unref(self->layout);
  PyObject_GC_Del(object);
  Py_DECREF((PyObject *)type);
}

static PyType_Slot handle_slots[] = {{Py_tp_doc, "What a client remembers of a table."},
                                     {Py_tp_dealloc, CORE_SLOT(handle_dealloc)},
                                     {Py_tp_traverse, CORE_SLOT(handle_traverse)},
                                     {0, NULL}};

PyType_Spec handle_spec = {
    .name = "reverie._core.Handle",
    .basicsize = sizeof(handle_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = handle_slots,
};

/* The nest of a signature, decoded in Python; one that we cannot read, or whose leaves are not the specs, is left out. */
static int set_signature(core_state *state, handle_object *handle, const rv_signature *signature)
{
  if (signature->num_specs == 0 || signature->structure.size == 0) return 0;
  PyObject *module = PyImport_ImportModule("reverie._structured_value");
  if (module == NULL) return -1;
  PyObject *nest =
      PyObject_CallMethod(module, "decode", "y#", (const char *)signature->structure.data, (Py_ssize_t)signature->structure.size);
  Py_DECREF(module);
  if (nest == NULL) {
    if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)) return -1;
    PyErr_Clear();
    return 0;
  }
  handle->signature = structure_new(state, nest);
  Py_DECREF(nest);
  if (handle->signature == NULL) return -1;
  if (handle->signature->num_leaves != signature->num_specs) Py_CLEAR(handle->signature);
  return 0;
}

static int keep_names(handle_object *handle, const rv_signature *signature)
{
  handle->nest = PyBytes_FromStringAndSize(signature->structure.data, (Py_ssize_t)signature->structure.size);
  handle->specs = PyMem_Calloc(signature->num_specs + 1, sizeof *handle->specs);
  if (handle->nest == NULL) return -1;
  for (size_t i = 0; handle->specs != NULL && i < signature->num_specs; i++) {
    size_t size = strlen(signature->specs[i].name) + 1;
    char *name = PyMem_Malloc(size);
    if (name == NULL) break;
    handle->specs[i] = (rv_spec){.name = memcpy(name, signature->specs[i].name, size), .dtype = RV_UINT8, .rank = -1};
    if (i + 1 == signature->num_specs) return 0;
  }
  if (signature->num_specs == 0 && handle->specs != NULL) return 0;
  PyErr_NoMemory();
  return -1;
}

static handle_object *handle_new(core_state *state, PyObject *name, const char *text, const rv_table_info *info, uint64_t losses)
{
  handle_object *self = PyObject_GC_New(handle_object, state->handle_type);
  if (self == NULL) return NULL;
  Py_INCREF(name);
  self->name = name;
  self->text = text;
  self->signature = self->rows = self->named = self->arrays = NULL;
  self->nest = NULL;
  self->specs = NULL;
  self->stale = false;
  self->losses = losses;
  self->layout = NULL;
  self->has_strings = false;
  self->num_specs = info->signature.num_specs;
  self->dtypes = PyMem_Calloc(self->num_specs + 1, sizeof *self->dtypes);
  self->ranks = PyMem_Calloc(self->num_specs + 1, sizeof *self->ranks);
  if (self->dtypes == NULL || self->ranks == NULL) {
    PyErr_NoMemory();
    Py_DECREF((PyObject *)self);
    return NULL;
  }
  for (size_t i = 0; i < self->num_specs; i++) {
    self->dtypes[i] = info->signature.specs[i].dtype;
    self->ranks[i] = info->signature.specs[i].rank;
  }
  if (keep_names(self, &info->signature) < 0 || set_signature(state, self, &info->signature) < 0) {
    Py_DECREF((PyObject *)self);
    return NULL;
  }
  PyObject_GC_Track((PyObject *)self);
  return self;
}

static const rv_table_info *find_info(const rv_server_info *info, const char *name)
{
  for (size_t i = 0; i < info->num_tables; i++) {
    if (strcmp(info->tables[i].name, name) == 0) return &info->tables[i];
  }
  return NULL;
}

static void raise_no_table(core_state *state, const rv_server_info *info, const char *name)
{
  rv_error err = {.code = RV_NOT_FOUND};
  int at = snprintf(err.message, sizeof err.message, "table \"%.100s\" does not exist; the server has: ", name);
  for (size_t i = 0; i < info->num_tables && at > 0 && (size_t)at < sizeof err.message; i++) {
    at += snprintf(err.message + at, sizeof err.message - (size_t)at, "%s\"%s\"", i > 0 ? ", " : "", info->tables[i].name);
  }
  core_raise(state, &err);
}

static int64_t now_ms(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static handle_object *fetch(client_object *self, PyObject *name, const char *text, core_time *time, rv_cancel *cancel)
{
  int64_t begun_ms = now_ms();
  rv_server_info *info = NULL;
  rv_error err;
  core_wait wait;
  uint64_t losses = rv_client_losses(self->client);
  core_wait_begin_rest(&wait, time, cancel, false);
  rv_code code = rv_client_server_info(self->client, &wait.wait, &info, &err);
  core_wait_end(&wait, code);
  if (time->left_ms > 0) {
    int64_t left_ms = time->left_ms - (now_ms() - begun_ms);
    time->left_ms = left_ms > 0 ? left_ms : 0;
  }
  if (code != RV_OK) {
    core_wait_raise(self->state, &wait, &err);
    return NULL;
  }
  const rv_table_info *found = find_info(info, text);
  handle_object *handle = NULL;
  if (found == NULL) {
    raise_no_table(self->state, info, text);
  } else {
    handle = handle_new(self->state, name, text, found, losses);
  }
  rv_server_info_free(info);
  return handle;
}

bool handle_is_present(const handle_object *handle, const client_object *client)
{
  return handle->losses == rv_client_losses(client->client);
}

int handle_has_names_of(const handle_object *handle, const handle_object *other)
{
  if (handle->num_specs != other->num_specs) return 0;
  for (size_t i = 0; i < handle->num_specs; i++) {
    if (strcmp(handle->specs[i].name, other->specs[i].name) != 0) return 0;
  }
  return PyObject_RichCompareBool(handle->nest, other->nest, Py_EQ);
}

/* The fetched handle in the place of the old one, whose last row it takes over; or the one that another thread has put there
 * meanwhile. */
static handle_object *replace_handle(client_object *self, PyObject *table, handle_object *owned_new)
{
  handle_object *old = (handle_object *)PyDict_GetItemWithError(self->handles, table);
  if (old != NULL && !old->stale && old->losses >= owned_new->losses) {
    Py_INCREF((PyObject *)old);
    Py_DECREF((PyObject *)owned_new);
    return old;
  }
  structure_object *rows = old != NULL ? old->rows : (structure_object *)PyDict_GetItemWithError(self->rows, table);
  Py_XINCREF((PyObject *)rows);
  owned_new->rows = rows;
  if (PyDict_SetItem(self->handles, table, (PyObject *)owned_new) == 0) return owned_new;
  Py_DECREF((PyObject *)owned_new);
  return NULL;
}

static handle_object *handle_of(client_object *self, PyObject *table, core_time *time, rv_cancel *cancel)
{
  handle_object *handle = self->last;
  if (handle == NULL || handle->name != table) {
    if (core_text(table, "table") == NULL) return NULL;
    handle = (handle_object *)PyDict_GetItemWithError(self->handles, table);
    if (handle == NULL && PyErr_Occurred()) return NULL;
  }
  if (handle != NULL && !handle->stale && handle_is_present(handle, self)) {
    Py_INCREF((PyObject *)handle);
  } else {
    handle = fetch(self, table, core_text(table, "table"), time, cancel);
    if (handle != NULL) handle = replace_handle(self, table, handle);
    if (handle == NULL) return NULL;
  }
  if (self->last != handle) {
    PyObject *old = (PyObject *)self->last;
    Py_INCREF((PyObject *)handle);
    self->last = handle;
    Py_XDECREF(old);
  }
  return handle;
}

handle_object *client_handle(client_object *self, PyObject *table, core_time *time, rv_cancel *cancel)
{
  if (!PyBytes_Check(table)) return handle_of(self, table, time, cancel);
  PyObject *text = core_str(table, "table"); /* what is remembered of a table goes by its name as a str */
  handle_object *handle = text == NULL ? NULL : handle_of(self, text, time, cancel);
  Py_XDECREF(text);
  return handle;
}

PyObject *client_raise(client_object *self, handle_object *handle, const core_wait *wait, const rv_error *err)
{
  bool doubtful = err->code == RV_NOT_FOUND || err->code == RV_INVALID_ARGUMENT || err->code == RV_FAILED_PRECONDITION;
  if (handle != NULL && doubtful) handle->stale = true;
  if (wait != NULL) return core_wait_raise(self->state, wait, err);
  return core_raise(self->state, err);
}

void handle_see_layout(handle_object *handle, rv_layout *owned_layout)
{
  rv_layout *old = handle->layout;
  handle->layout = owned_layout;
  handle->has_strings = false;
  rv_sample_column column;
  for (size_t i = 0; i < rv_layout_num_columns(owned_layout); i++) {
    if (rv_layout_get_column(owned_layout, i, 1, &column, NULL) == RV_OK && column.dtype == RV_STRING) handle->has_strings = true;
  }
  rv_layout_unref(old);
}

void handle_forget_layout(handle_object *handle, const rv_layout *layout)
{
  if (handle->layout != layout) return; /* another thread has seen another since */
  rv_layout *old = handle->layout;
  handle->layout = NULL;
  rv_layout_unref(old);
}

void client_explain(const client_object *self, const handle_object *handle, PyObject *data)
{
  if (handle->signature == NULL || handle->rows == NULL || handle->signature->num_leaves == handle->rows->num_leaves) return;
  if (!PyErr_ExceptionMatches(self->state->errors[RV_INVALID_ARGUMENT])) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *text = place_difference(handle->signature->root, data);
  if (text == NULL) {
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    return;
  }
  PyErr_Format(type, "%S (%U)", value, text);
  Py_DECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
}

int client_check_names(handle_object *handle, structure_object *structure, rv_error *err)
{
  if (handle->named == structure) return RV_OK;
  const char *const *names = structure_names(structure);
  if (names == NULL) return -1;
  rv_signature signature = {.specs = handle->specs,
                            .num_specs = handle->num_specs,
                            .structure = {PyBytes_AsString(handle->nest), (size_t)PyBytes_Size(handle->nest)}};
  rv_code code = rv_signature_check_names(&signature, handle->text, names, structure->num_leaves, err);
  if (code != RV_OK) return (int)code;
  PyObject *old = (PyObject *)handle->named;
  Py_INCREF((PyObject *)structure);
  handle->named = structure;
  Py_XDECREF(old);
  return RV_OK;
}

structure_object *client_structure(const handle_object *handle, size_t num_columns, uint64_t naming)
{
  structure_object *signature = handle->signature, *rows = handle->rows;
  if (signature != NULL && signature->num_leaves == num_columns) {
    Py_INCREF((PyObject *)signature);
    return signature;
  }
  if (naming == 0 || rows == NULL || rows->num_leaves != num_columns) return NULL;
  Py_INCREF((PyObject *)rows); /* a key's __repr__ may let another thread in, which inserts other rows */
  if (structure_naming(rows) != naming) Py_CLEAR(rows);
  return rows;
}

static int remember(client_object *self, PyObject *table, structure_object *structure)
{
  handle_object *handle = (handle_object *)PyDict_GetItemWithError(self->handles, table);
  if (handle == NULL) return PyErr_Occurred() ? -1 : PyDict_SetItem(self->rows, table, (PyObject *)structure);
  PyObject *old = (PyObject *)handle->rows;
  Py_INCREF((PyObject *)structure);
  handle->rows = structure;
  Py_XDECREF(old);
  return 0;
}

int client_remember(client_object *self, PyObject *table, structure_object *structure)
{
  PyObject *text = core_str(table, "table");
  int bad = text == NULL ? -1 : remember(self, text, structure);
  Py_XDECREF(text);
  return bad;
}
