/* Client.sample_batch. The library writes straight into the arrays, once it is known what a table's items look like; otherwise a
 * batch is drawn first, and gathered into arrays made for it. */
#include <stdio.h>
#include <time.h>

#include "batch.h"
#include "convert.h"

enum { LOOK_AGAIN_MS = 1000 };

typedef struct batch_call {
  size_t batch_size;
  rv_unequal unequal;
  bool copy;
  const batch_out *out; /* NULL: none */
  PyObject *maker;
  core_time time;
  rv_cancel *cancel;
  bool looked; /* what the table's items look like was seen within this call */
} batch_call;

static int64_t now_ms(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- items that differ ---- */

/* Where the sentence speaks of a column by its number, it gets the name by which this client inserts it. */
static void name_column(const handle_object *handle, rv_error *err)
{
  static const char before[] = "column ";
  const char *at = err->code == RV_FAILED_PRECONDITION ? strstr(err->message, before) : NULL;
  char *end = NULL;
  unsigned long column = at == NULL ? 0 : strtoul(at + sizeof before - 1, &end, 10);
  structure_object *rows = handle->rows;
  if (end == NULL || strncmp(end, " is ", 4) != 0 || rows == NULL || column >= rows->num_leaves) return;
  Py_INCREF((PyObject *)rows); /* a key's __str__ may let another thread in, which inserts other rows */
  const char *const *names = structure_names(rows);
  if (names == NULL) {
    PyErr_Clear(); /* of a key that cannot be shown */
  } else if (names[column][0] != '\0') {
    char rest[sizeof err->message];
    snprintf(rest, sizeof rest, "%s", end);
    snprintf(end, sizeof err->message - (size_t)(end - err->message), " \"%s\"%s", names[column], rest);
  }
  Py_DECREF((PyObject *)rows);
}

/* ---- a batch that was drawn ---- */

static int gather_strings(gathering *g, rv_batch *drawn, size_t i)
{
  const rv_sample_column *column = &g->columns[i];
  rv_error err;
  rv_bytes *strings = PyMem_Malloc(column->bytes + 1);
  if (strings == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  int bad = 0;
  if (rv_batch_gather(drawn, i, strings, column->bytes, &err) != RV_OK) {
    core_raise(g->client->state, &err);
    bad = -1;
  } else {
    bad = array_set_strings((PyArrayObject *)g->arrays[i], 0, strings, column->bytes / sizeof *strings);
  }
  PyMem_Free(strings);
  return bad;
}

static int gather(gathering *g, rv_batch *drawn)
{
  rv_error err;
  rv_code code;
  if (g->bytes <= CLIENT_SMALL_BYTES) {
    code = rv_batch_gather_all(drawn, g->outs, g->sizes, g->num_columns, &err);
  } else {
    Py_BEGIN_ALLOW_THREADS
    code = rv_batch_gather_all(drawn, g->outs, g->sizes, g->num_columns, &err);
    Py_END_ALLOW_THREADS
  }
  if (code != RV_OK) {
    core_raise(g->client->state, &err);
    return -1;
  }
  for (size_t i = 0; i < g->num_columns; i++) {
    if (g->columns[i].dtype == RV_STRING && gather_strings(g, drawn, i) < 0) return -1;
  }
  return 0;
}

static int describe(gathering *g, const rv_batch *drawn, const handle_object *handle)
{
  rv_error err;
  for (size_t i = 0; i < g->num_columns; i++) {
    if (rv_batch_column(drawn, i, &g->columns[i], &err) == RV_OK) continue;
    name_column(handle, &err);
    core_raise(g->client->state, &err);
    return -1;
  }
  return 0;
}

/* `out` has other keys than the items: the first that differs. 0: it has their names all the same. */
static int raise_other_keys(const batch_call *call, const handle_object *handle, structure_object *items)
{
  const char *const *given = structure_names(call->out->structure), *const *names = given == NULL ? NULL : structure_names(items);
  if (names == NULL) return -1;
  size_t i = 0;
  while (i < items->num_leaves && strcmp(given[i], names[i]) == 0) i++;
  if (i == items->num_leaves) return 0;
  PyObject *where = batch_out_place(call->out, i);
  if (where == NULL) return -1;
  PyErr_Format(PyExc_ValueError,
               "%U is for column %zu, which is \"%s\" in the items of table \"%s\"; give a nest with their keys, or a list of "
               "arrays in column order",
               where, i, names[i], handle->text);
  Py_DECREF(where);
  return -1;
}

/* Arrays in a nest go by its keys, where the items' are known (`items`; NULL: they are not); in a flat list by their numbers. -1 with an
 * exception. */
static int check_keys(const batch_call *call, const handle_object *handle, structure_object *items)
{
  structure_object *given = call->out == NULL ? NULL : call->out->structure;
  if (given == NULL || items == NULL || given->num_leaves != items->num_leaves || tree_is_flat(given->root)) return 0;
  int alike = tree_keys_are_alike(given->root, items->root);
  return alike == 0 ? raise_other_keys(call, handle, items) : alike < 0 ? -1 : 0;
}

/* The arrays, which are taken, in the nest of items with this naming. */
static PyObject *nest(gathering *g, const batch_call *call, const handle_object *handle, uint64_t naming)
{
  structure_object *structure = client_structure(handle, g->num_columns, naming);
  PyObject *out = NULL;
  if (check_keys(call, handle, structure) < 0) {
    gathering_drop(g);
  } else {
    out = gathering_nest(g, structure);
  }
  Py_XDECREF((PyObject *)structure);
  return out;
}

static PyObject *gathered(client_object *self, rv_batch *drawn, scratch *s, const batch_call *call, const handle_object *handle)
{
  gathering g;
  size_t num_columns = rv_batch_num_columns(drawn);
  if (gathering_init(&g, self, s, rv_batch_size(drawn), num_columns, call->out) < 0) return NULL;
  g.maker = call->maker;
  if (describe(&g, drawn, handle) == 0 && gathering_make(&g) == 0 && gather(&g, drawn) == 0)
    return nest(&g, call, handle, rv_batch_naming(drawn));
  gathering_drop(&g);
  return NULL;
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

/* A list has a list for each column: FAILED_PRECONDITION where items have more or fewer than the first. */
static int check_num_columns(client_object *self, rv_batch *drawn)
{
  size_t n = rv_batch_size(drawn), num_columns = rv_batch_num_columns(drawn);
  for (size_t i = 1; i < n; i++) {
    rv_sample *sample = rv_batch_sample(drawn, i);
    if (sample == NULL) {
      PyErr_NoMemory();
      return -1;
    }
    size_t other = rv_sample_num_columns(sample);
    rv_sample_unref(sample);
    if (other == num_columns) continue;
    rv_error err = {.code = RV_FAILED_PRECONDITION};
    snprintf(err.message, sizeof err.message,
             "items 0 and %zu of the batch have %zu and %zu columns; sample them one by one (Client.sample), or give the table a "
             "signature, which refuses the wrong ones when they are inserted",
             i, num_columns, other);
    core_raise(self->state, &err);
    return -1;
  }
  return 0;
}

/* Lists of arrays, column by column. */
static PyObject *list_columns(client_object *self, rv_batch *drawn, bool copy)
{
  size_t n = rv_batch_size(drawn), num_columns = rv_batch_num_columns(drawn);
  if (rv_batch_layout(drawn) == NULL && check_num_columns(self, drawn) < 0) return NULL;
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
    PyObject *columns = sample_columns(self->state, sample, copy, self->buffers);
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

static batch_object *describe_draws(client_object *self, const rv_batch *drawn, bool lengths)
{
  batch_object *batch = batch_new(self->state, self->buffers, rv_batch_size(drawn), lengths);
  for (size_t i = 0; batch != NULL && i < batch->n; i++) {
    const rv_sample_info *info = rv_batch_info(drawn, i);
    batch->keys[i] = info->key;
    batch->probabilities[i] = info->probability;
    batch->priorities[i] = info->priority;
    batch->times_sampled[i] = info->times_sampled;
    batch->table_sizes[i] = batch->table_size = info->table_size;
  }
  if (batch != NULL) batch->has_sizes = true;
  return batch;
}

/* Takes the batch over. */
static PyObject *wrap(client_object *self, scratch *s, const batch_call *call, handle_object *handle, rv_batch *owned_drawn)
{
  bool pad = call->unequal == RV_UNEQUAL_PAD;
  batch_object *out = describe_draws(self, owned_drawn, pad);
  if (out != NULL && (!pad || set_lengths(out, owned_drawn) == 0)) {
    if (call->unequal == RV_UNEQUAL_LIST) {
      structure_object *structure = client_structure(handle, rv_batch_num_columns(owned_drawn), rv_batch_naming(owned_drawn));
      out->data = into_structure(structure, list_columns(self, owned_drawn, call->copy));
      Py_XDECREF((PyObject *)structure);
    } else {
      out->data = gathered(self, owned_drawn, s, call, handle);
    }
  }
  if (out != NULL && out->data == NULL) Py_CLEAR(out);
  rv_batch_free(owned_drawn);
  return (PyObject *)out;
}

static PyObject *draw(client_object *self, scratch *s, const batch_call *call, handle_object *handle)
{
  rv_batch *drawn = NULL;
  rv_error err;
  core_wait wait;
  core_wait_begin_rest(&wait, &call->time, call->cancel, self->in_process);
  rv_code code = rv_client_sample_batch(self->client, handle->text, call->batch_size, call->unequal, &wait.wait, &drawn, &err);
  core_wait_end(&wait, code);
  if (code == RV_OK) return wrap(self, s, call, handle, drawn);
  name_column(handle, &err);
  return client_raise(self, handle, &wait, &err);
}

/* ---- straight into arrays ---- */

/* Columns for as many items of this layout; 0: it is not known (NULL). */
static int known_columns(gathering *g, client_object *self, scratch *s, const batch_call *call, const rv_layout *layout)
{
  if (layout == NULL) {
    *g = (gathering){.client = self};
    return 0;
  }
  size_t num_columns = rv_layout_num_columns(layout);
  if (gathering_init(g, self, s, call->batch_size, num_columns, call->out) < 0) return -1;
  g->maker = call->maker;
  rv_error err;
  for (size_t i = 0; i < num_columns; i++) {
    if (rv_layout_get_column(layout, i, call->batch_size, &g->columns[i], &err) == RV_OK) continue;
    core_raise(self->state, &err);
    return -1;
  }
  if (gathering_make(g) == 0) return 1;
  gathering_drop(g);
  return -1;
}

static rv_code sample_into(gathering *g, const batch_call *call, const handle_object *handle, const rv_layout *layout,
                           batch_object *batch, rv_batch_arrays *arrays, core_wait *wait, rv_error *err)
{
  *arrays = (rv_batch_arrays){.size = sizeof *arrays, .columns = g->outs};
  if (layout != NULL) {
    arrays->layout = layout;
    arrays->keys = batch->keys;
    arrays->probabilities = batch->probabilities;
    arrays->priorities = batch->priorities;
    arrays->times_sampled = batch->times_sampled;
    arrays->table_sizes = batch->table_sizes;
  }
  core_wait_begin_rest(wait, &call->time, call->cancel, g->bytes <= CLIENT_SMALL_BYTES);
  rv_code code = rv_client_sample_into(g->client->client, handle->text, call->batch_size, arrays, &wait->wait, err);
  core_wait_end(wait, code);
  return code;
}

static PyObject *finished(gathering *g, const batch_call *call, batch_object *owned_batch, const rv_batch_arrays *arrays,
                          const handle_object *handle)
{
  bool whole = arrays->count == g->n;
  owned_batch->n = arrays->count;
  owned_batch->table_size = arrays->table_size;
  owned_batch->has_sizes = arrays->sizes_differ;
  if (whole || gathering_shorten(g, arrays->count) == 0) {
    owned_batch->data = nest(g, call, handle, arrays->naming);
  } else {
    gathering_drop(g);
  }
  if (owned_batch->data == NULL) Py_CLEAR(owned_batch);
  return (PyObject *)owned_batch;
}

/* No arrays of the known layout could be made, which is what items looked like the last time, and may be long gone: the next call
 * looks first. The caller's arrays may fit what is there now: true, then this one does, and the exception is gone. */
static bool forget_if_old(const batch_call *call, handle_object *handle, const rv_layout *layout)
{
  bool may_fit = call->out != NULL && !call->looked && PyErr_ExceptionMatches(PyExc_ValueError);
  if (may_fit || PyErr_ExceptionMatches(PyExc_MemoryError)) handle_forget_layout(handle, layout);
  if (may_fit) PyErr_Clear();
  return may_fit;
}

/* One try. *again: the items looked otherwise than was known, and none was drawn. From a server they are then drawn already. */
static PyObject *try_layout(client_object *self, scratch *s, const batch_call *call, handle_object *handle,
                            const rv_layout *layout, bool *again)
{
  gathering g;
  rv_batch_arrays arrays;
  core_wait wait;
  rv_error err;
  batch_object *batch = NULL;
  int known = known_columns(&g, self, s, call, layout);
  if (known < 0) {
    *again = forget_if_old(call, handle, layout);
    return NULL;
  }
  if (known > 0 && (batch = batch_new(self->state, self->buffers, call->batch_size, false)) == NULL) {
    gathering_drop(&g);
    return NULL;
  }
  rv_code code = sample_into(&g, call, handle, layout, batch, &arrays, &wait, &err);
  if (code == RV_OK) return finished(&g, call, batch, &arrays, handle);
  gathering_drop(&g);
  Py_XDECREF((PyObject *)batch);
  if (arrays.found == NULL || wait.raised) {
    rv_layout_unref(arrays.found);
    rv_batch_free(arrays.drawn);
    name_column(handle, &err);
    return client_raise(self, handle, &wait, &err);
  }
  handle_see_layout(handle, arrays.found);
  if (arrays.drawn != NULL) return wrap(self, s, call, handle, arrays.drawn);
  *again = true;
  return NULL;
}

static PyObject *try_into(client_object *self, scratch *s, const batch_call *call, handle_object *handle, bool *again)
{
  rv_layout *layout = handle->layout; /* another thread, or a maker of arrays, may replace the handle's meanwhile */
  if (layout != NULL) rv_layout_ref(layout);
  *again = false;
  PyObject *out = try_layout(self, s, call, handle, layout, again);
  rv_layout_unref(layout);
  return out;
}

static PyObject *draw_into(client_object *self, scratch *s, const batch_call *call, handle_object *handle)
{
  batch_call rest = *call;
  int64_t begun_ms = 0;
  for (;;) {
    if (handle->has_strings) return draw(self, s, &rest, handle);
    if (handle->layout == NULL && begun_ms == 0) begun_ms = now_ms();
    bool again;
    PyObject *out = try_into(self, s, &rest, handle, &again);
    if (!again) return out;
    rest.looked = handle->layout != NULL;
    if (begun_ms == 0) begun_ms = now_ms();
    if (call->time.left_ms > 0) {
      int64_t spent_ms = now_ms() - begun_ms;
      rest.time.left_ms = spent_ms < call->time.left_ms ? call->time.left_ms - spent_ms : 0;
    }
  }
}

static PyObject *sample(client_object *self, scratch *s, const batch_call *call, handle_object *handle)
{
  if (check_keys(call, handle, handle->signature) < 0) return NULL;
  /* one item of any kind will do, whatever else the table holds, unless it is for arrays that are there */
  bool any_will_do = self->in_process && call->batch_size == 1 && call->out == NULL;
  if (call->unequal == RV_UNEQUAL_ERROR && !any_will_do) return draw_into(self, s, call, handle);
  return draw(self, s, call, handle);
}

/* After a call in which the connection was lost: 1: the items may be of a table whose columns are called otherwise; 0: they are not. The
 * server may be gone for good behind its last batch, so this takes a second at most. -1 with an exception, a signal handler's. */
static int may_be_called_otherwise(client_object *self, const batch_call *call, const handle_object *handle, PyObject *table)
{
  core_time time = call->time;
  if (time.left_ms < 0 || time.left_ms > LOOK_AGAIN_MS) time.left_ms = LOOK_AGAIN_MS;
  handle_object *fresh = client_handle(self, table, &time, call->cancel);
  if (fresh == NULL) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
    PyErr_Clear();
    return 0;
  }
  int same = handle_has_names_of(handle, fresh);
  Py_DECREF((PyObject *)fresh);
  return same < 0 ? -1 : !same;
}

/* Names are the table's of when the items were drawn: where another server came within the call, it draws again. */
static PyObject *sample_under_present_names(client_object *self, scratch *s, batch_call *call, PyObject *table)
{
  for (;;) {
    handle_object *handle = client_handle(self, table, &call->time, call->cancel);
    int64_t begun_ms = self->in_process ? 0 : now_ms(); /* what asking for the handle took is off the time already */
    PyObject *out = handle == NULL ? NULL : sample(self, s, call, handle);
    int otherwise = out == NULL || handle_is_present(handle, self) ? 0 : may_be_called_otherwise(self, call, handle, table);
    Py_XDECREF((PyObject *)handle);
    if (otherwise == 0) return out;
    Py_DECREF(out);
    if (otherwise < 0) return NULL;
    int64_t spent_ms = now_ms() - begun_ms;
    if (call->time.left_ms > 0) call->time.left_ms = spent_ms < call->time.left_ms ? call->time.left_ms - spent_ms : 0;
  }
}

/* ---- the call ---- */

/* What is wrong with one of the caller's arrays, whatever the items look like: 0; -1 with an exception. */
static int check_out(const batch_out *out, size_t i, size_t batch_size)
{
  PyObject *leaf = out->arrays[i];
  PyArrayObject *array = (PyArrayObject *)leaf;
  bool is_array = PyArray_Check(leaf), is_plain = is_array && PyArray_ISCARRAY(array);
  if (is_plain && PyArray_NDIM(array) >= 1 && (size_t)PyArray_DIM(array, 0) == batch_size) return 0;
  PyObject *where = batch_out_place(out, i);
  if (where == NULL) return -1;
  if (!is_array) {
    PyErr_Format(PyExc_TypeError, "%U is a %S, not an array", where, (PyObject *)Py_TYPE(leaf));
  } else if (!is_plain) {
    PyErr_Format(PyExc_ValueError, "%U must be C-contiguous, writable, aligned and of native byte order", where);
  } else {
    PyErr_Format(PyExc_ValueError, "%U must have batch_size = %zu rows along dimension 0", where, batch_size);
  }
  Py_DECREF(where);
  return -1;
}

/* The arrays of `out`, with everything checked that can be before something is drawn. 0; -1 with an exception. */
static int parse_out(client_object *self, scratch *s, PyObject *given, size_t batch_size, batch_out *out)
{
  structure_object *structure = structure_new(self->state, given);
  if (scratch_hold(s, (PyObject *)structure) < 0) return -1;
  size_t n = structure->num_leaves;
  *out = (batch_out){.structure = structure, .arrays = scratch_alloc(s, n, sizeof *out->arrays)};
  int found = out->arrays == NULL ? -1 : tree_flatten(self->state, structure->root, given, out->arrays);
  if (found == 0) PyErr_SetString(PyExc_RuntimeError, "out changed while it was flattened");
  if (found <= 0 || scratch_hold_all(s, out->arrays, n) < 0) return -1;
  for (size_t i = 0; i < n; i++) {
    if (check_out(out, i, batch_size) < 0) return -1;
  }
  return 0;
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

static const char *const names[] = {"table", "batch_size", "timeout", "out", "unequal", "copy", "cancel"};
static const core_signature signature = {"sample_batch", names, 7, 2, 2};

PyObject *client_sample_batch(PyObject *object, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
  client_object *self = (client_object *)object;
  PyObject *given[7];
  batch_call call = {.copy = true};
  if (client_check(self) < 0 || core_parse(&signature, args, nargs, kwnames, given) < 0) return NULL;
  if (core_size(given[1], "batch_size", 1, &call.batch_size) < 0) return NULL;
  if (core_time_begin(given[2], CLIENT_DEFAULT_TIMEOUT, &call.time) < 0 || parse_unequal(given[4], &call.unequal) < 0)
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
  batch_out arrays;
  if (has_out && PyCallable_Check(given[3])) call.maker = given[3];
  bool into_arrays = has_out && call.maker == NULL;
  if (into_arrays) call.out = &arrays;
  PyObject *out = into_arrays && parse_out(self, &s, given[3], call.batch_size, &arrays) < 0
                      ? NULL
                      : sample_under_present_names(self, &s, &call, given[0]);
  scratch_fini(&s);
  return out;
}
