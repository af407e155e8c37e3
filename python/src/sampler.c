/* The iterator behind Client.sample: one ReplaySample, or the list of its steps, at a time. */
#include "sampler.h"

#include "client/sampler.h"

static PyObject *sampler_tp_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
  static char *names[] = {"client", "table", "max_samples", "emit_timesteps", "unpack", "copy", "timeout", "ahead", NULL};
  core_state *state = core_state_of_type(type);
  if (state == NULL) return NULL;
  PyObject *client, *table, *timeout = NULL, *ahead = NULL;
  long long max_samples, samples_per_stream = 0, limiter_timeout_ms = RV_FOREVER;
  unsigned max_in_flight = 0, streams = 0;
  int64_t timeout_ms;
  int emit_timesteps, unpack, copy;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OLppp|OO!:Sampler", names, state->client_type, &client, &table, &max_samples,
                                   &emit_timesteps, &unpack, &copy, &timeout, &PyTuple_Type, &ahead) ||
      (ahead != NULL && !PyArg_ParseTuple(ahead, "IILL", &max_in_flight, &streams, &samples_per_stream, &limiter_timeout_ms)) ||
      client_check((client_object *)client) < 0 || core_text(table, "table") == NULL ||
      core_timeout(timeout, RV_FOREVER, &timeout_ms) < 0) {
    return NULL;
  }
  sampler_object *self = PyObject_GC_New(sampler_object, type);
  if (self == NULL) return NULL;
  self->state = state;
  self->sampler = NULL;
  self->cancel = NULL;
  self->max_samples = max_samples;
  self->timeout_ms = timeout_ms;
  self->ahead.max_in_flight = max_in_flight;
  self->ahead.streams = streams;
  self->ahead.samples_per_stream = samples_per_stream;
  self->ahead.limiter_timeout_ms = limiter_timeout_ms;
  self->of_dataset = ahead != NULL;
  self->emit_timesteps = emit_timesteps;
  self->unpack = unpack;
  self->copy = copy;
  self->ended = false;
  Py_INCREF(client);
  self->client = (client_object *)client;
  Py_INCREF(table);
  self->table = table;
  self->structure = NULL;
  self->named = false;
  self->losses = 0;
  self->held = NULL;
  rv_error err;
  bool ok = core_mutex_init(&self->mutex, state, self->client->client) == 0;
  if (ok && rv_cancel_new(&self->cancel, &err) != RV_OK) {
    core_raise(state, &err);
    ok = false;
  }
  if (!ok) {
    Py_DECREF((PyObject *)self);
    return NULL;
  }
  PyObject_GC_Track((PyObject *)self);
  return (PyObject *)self;
}

static void free_sampler(sampler_object *self)
{
  rv_sampler *sampler = self->sampler;
  self->sampler = NULL;
  if (self->held != NULL) rv_sample_unref(self->held);
  self->held = NULL;
  if (sampler == NULL) return;
  Py_BEGIN_ALLOW_THREADS
  rv_sampler_free(sampler);
  Py_END_ALLOW_THREADS
}

static int sampler_traverse(PyObject *object, visitproc visit, void *arg)
{
  sampler_object *self = (sampler_object *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT((PyObject *)self->client);
  Py_VISIT(self->table);
  Py_VISIT((PyObject *)self->structure);
  return 0;
}

static void sampler_dealloc(PyObject *object)
{
  sampler_object *self = (sampler_object *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  free_sampler(self);
  rv_cancel_free(self->cancel);
  core_mutex_fini(&self->mutex);
  Py_XDECREF((PyObject *)self->client);
  Py_XDECREF(self->table);
  Py_XDECREF((PyObject *)self->structure);
  PyObject_GC_Del(object);
  Py_DECREF((PyObject *)type);
}

/* ---- one sample ---- */

/* A view of one row of an array with a time dimension. */
static PyObject *row_of(PyArrayObject *whole, int64_t row)
{
  char *at = PyArray_BYTES(whole) + row * PyArray_STRIDE(whole, 0);
  Py_INCREF((PyObject *)PyArray_DESCR(whole));
  PyArrayObject *step = (PyArrayObject *)PyArray_NewFromDescr(
      &PyArray_Type, PyArray_DESCR(whole), PyArray_NDIM(whole) - 1, PyArray_DIMS(whole) + 1, PyArray_STRIDES(whole) + 1, at,
      PyArray_FLAGS(whole) & (NPY_ARRAY_WRITEABLE | NPY_ARRAY_ALIGNED), NULL);
  if (step == NULL) return NULL;
  Py_INCREF((PyObject *)whole); /* which the call takes, also where it fails */
  if (PyArray_SetBaseObject(step, (PyObject *)whole) < 0) {
    Py_DECREF((PyObject *)step);
    return NULL;
  }
  PyArray_UpdateFlags(step, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS);
  return (PyObject *)step;
}

static PyObject *timestep(core_state *state, const sampler_object *self, PyObject *info, PyObject *columns, int64_t row)
{
  Py_ssize_t n = PyList_Size(columns);
  PyObject *data = PyList_New(n);
  for (Py_ssize_t i = 0; data != NULL && i < n; i++) {
    PyObject *step = row_of((PyArrayObject *)PyList_GetItem(columns, i), row);
    if (step == NULL || PyList_SetItem(data, i, step) < 0) Py_CLEAR(data);
  }
  Py_INCREF(info);
  return replay_sample_object(state, info, into_structure(self->structure, data));
}

/* A view with a time dimension of one step in front. */
static PyObject *one_step(PyArrayObject *column)
{
  npy_intp sizes[NPY_MAXDIMS] = {1};
  int rank = PyArray_NDIM(column);
  if (rank + 1 > NPY_MAXDIMS)
    return PyErr_Format(PyExc_ValueError, "a column of %d dimensions has no room for that of time", rank);
  for (int d = 0; d < rank; d++) sizes[d + 1] = PyArray_DIM(column, d);
  PyArray_Dims shape = {.ptr = sizes, .len = rank + 1};
  return PyArray_Newshape(column, &shape, NPY_CORDER);
}

/* For a dataset: columns without a time dimension get one of one step. -1 with an exception. */
static int add_time(core_state *state, const rv_sample *sample, PyObject *columns)
{
  for (Py_ssize_t i = 0; i < PyList_Size(columns); i++) {
    rv_sample_column column;
    rv_error err;
    if (rv_sample_get_column(sample, (size_t)i, &column, &err) != RV_OK) {
      core_raise(state, &err);
      return -1;
    }
    if (!column.squeezed) continue;
    PyObject *step = one_step((PyArrayObject *)PyList_GetItem(columns, i));
    if (step == NULL || PyList_SetItem(columns, i, step) < 0) return -1;
  }
  return 0;
}

/* "column 1", and what it is called, if that is known; NULL with an exception. */
static PyObject *column_text(const sampler_object *self, Py_ssize_t i)
{
  const char *const *names = self->structure == NULL ? NULL : structure_names(self->structure);
  if (self->structure != NULL && names == NULL) return NULL;
  if (names == NULL || names[i][0] == '\0') return PyUnicode_FromFormat("column %zd", i);
  return PyUnicode_FromFormat("column %zd \"%s\"", i, names[i]);
}

static void refuse_lengths(const sampler_object *self, int64_t first_rows, Py_ssize_t i, int64_t rows)
{
  PyObject *first = column_text(self, 0), *other = first == NULL ? NULL : column_text(self, i);
  const char *remedy =
      self->of_dataset ? "read it whole, with TrajectoryDataset (reverie.jax: trajectories)" : "use emit_timesteps=False";
  if (other != NULL)
    PyErr_Format(PyExc_ValueError, "Can't split the item into steps: %U has %lld rows, %U has %lld; %s", first,
                 (long long)first_rows, other, (long long)rows, remedy);
  Py_XDECREF(first);
  Py_XDECREF(other);
}

static void refuse_scalar(const sampler_object *self, Py_ssize_t i)
{
  PyObject *column = column_text(self, i);
  if (column != NULL)
    PyErr_Format(PyExc_TypeError, "%U is a scalar and cannot be split into steps; use emit_timesteps=False", column);
  Py_XDECREF(column);
}

/* The rows of all columns, of which there must be equally many; -1 with an exception. */
static int64_t num_timesteps(const sampler_object *self, PyObject *columns)
{
  int64_t rows = -1;
  for (Py_ssize_t i = 0; i < PyList_Size(columns); i++) {
    PyArrayObject *column = (PyArrayObject *)PyList_GetItem(columns, i);
    if (PyArray_NDIM(column) == 0) {
      refuse_scalar(self, i);
      return -1;
    }
    int64_t length = PyArray_DIM(column, 0);
    if (rows >= 0 && length != rows) {
      refuse_lengths(self, rows, i, length);
      return -1;
    }
    rows = length;
  }
  return rows < 0 ? 0 : rows;
}

static PyObject *into_timesteps(const sampler_object *self, const rv_sample *sample, PyObject *info, PyObject *columns)
{
  if (self->of_dataset && add_time(self->state, sample, columns) < 0) return NULL;
  int64_t rows = num_timesteps(self, columns);
  if (rows < 0) return NULL;
  PyObject *out = PyList_New(rows);
  for (int64_t row = 0; out != NULL && row < rows; row++) {
    PyObject *step = timestep(self->state, self, info, columns, row);
    if (step == NULL || PyList_SetItem(out, row, step) < 0) Py_CLEAR(out);
  }
  return out;
}

static PyObject *wrap(sampler_object *self, rv_sample *sample)
{
  core_state *state = self->state;
  if (self->structure != NULL && self->structure->num_leaves != rv_sample_num_columns(sample)) {
    return PyErr_Format(PyExc_ValueError, "the item has %zu columns, the table's signature has %zu",
                        rv_sample_num_columns(sample), self->structure->num_leaves);
  }
  PyObject *columns = sample_columns(state, sample, self->copy, self->client->buffers);
  PyObject *info = columns == NULL ? NULL : sample_info_object(state, rv_sample_get_info(sample));
  if (info == NULL) {
    Py_XDECREF(columns);
    return NULL;
  }
  if (!self->emit_timesteps) return replay_sample_object(state, info, into_structure(self->structure, columns));
  PyObject *out = into_timesteps(self, sample, info, columns);
  Py_DECREF(info);
  Py_DECREF(columns);
  return out;
}

/* ---- iteration ---- */

static int look_at_signature(sampler_object *self)
{
  core_time time = {.given_ms = self->timeout_ms, .left_ms = self->timeout_ms};
  handle_object *handle = client_handle(self->client, self->table, &time, self->cancel);
  if (handle == NULL) return -1;
  structure_object *old = self->structure;
  Py_XINCREF((PyObject *)handle->signature);
  self->structure = handle->signature;
  self->losses = handle->losses;
  self->named = true;
  Py_DECREF((PyObject *)handle);
  Py_XDECREF((PyObject *)old);
  return 0;
}

/* A sample that came on another connection may be of a server whose tables call their columns otherwise. */
static bool is_named(const sampler_object *self)
{
  return !self->named || rv_client_losses(self->client->client) == self->losses ||
         rv_sampler_losses(self->sampler) == self->losses;
}

int sampler_open(sampler_object *self)
{
  if (self->sampler != NULL) return 0;
  bool endless = self->of_dataset && self->max_samples == RV_UNLIMITED;
  if (self->max_samples < 1 && !endless) {
    PyErr_Format(PyExc_ValueError, "num_samples (max_samples) must be at least 1, got %lld", (long long)self->max_samples);
    return -1;
  }
  if (self->unpack && !self->named && look_at_signature(self) < 0) return -1;
  rv_sampler_config config = {
      .size = sizeof config,
      .table = core_text(self->table, "table"),
      .max_samples = self->max_samples,
      .max_in_flight_samples = self->ahead.max_in_flight,
      .num_streams = self->ahead.streams,
      .max_samples_per_stream = self->ahead.samples_per_stream,
      .rate_limiter_timeout_ms = self->ahead.limiter_timeout_ms,
  };
  rv_sampler *sampler = NULL; /* close looks at ours meanwhile */
  rv_error err;
  rv_code code;
  Py_BEGIN_ALLOW_THREADS
  code = rv_sampler_new(self->client->client, &config, &sampler, &err);
  Py_END_ALLOW_THREADS
  self->sampler = sampler;
  if (code != RV_OK) core_raise(self->state, &err);
  return code == RV_OK ? 0 : -1;
}

/* At the end, or after an error, what was fetched ahead is given back. */
static void leave(sampler_object *self)
{
  if (self->ended) free_sampler(self);
  core_unlock(&self->mutex);
}

/* Takes the sample. */
static PyObject *wrap_named(sampler_object *self, rv_sample *owned_sample)
{
  self->held = owned_sample;
  if (!is_named(self) && look_at_signature(self) < 0) return NULL;
  self->held = NULL;
  PyObject *out = wrap(self, owned_sample);
  rv_sample_unref(owned_sample);
  return out;
}

static PyObject *next_locked(sampler_object *self, const core_time *time)
{
  if (self->ended || sampler_open(self) < 0) return NULL;
  if (self->ended) return NULL; /* closed while it was opened */
  rv_sample *sample = self->held;
  if (sample != NULL) return wrap_named(self, sample);
  rv_error err;
  core_wait wait;
  core_wait_begin_rest(&wait, time, NULL, true); /* what was fetched ahead is there at once */
  rv_code code = rv_sampler_next(self->sampler, &wait.wait, &sample, &err);
  core_wait_end(&wait, code);
  if (code == RV_OK) return wrap_named(self, sample);
  if (wait.raised) return NULL; /* by a signal handler; the sequence goes on */
  if (code != RV_DEADLINE_EXCEEDED) self->ended = true;
  if (code != RV_OUT_OF_RANGE) core_raise(self->state, &err);
  return NULL;
}

static PyObject *sampler_next(PyObject *object)
{
  sampler_object *self = (sampler_object *)object;
  core_time time = {.given_ms = self->timeout_ms, .left_ms = self->timeout_ms};
  if (core_lock_within(&self->mutex, &time) < 0) return NULL;
  PyObject *out = next_locked(self, &time);
  leave(self);
  return out;
}

/* ---- a sample as it lies in the table ---- */

/* Of each column, whether it has no time dimension. */
static PyObject *list_squeezed(core_state *state, const rv_sample *sample)
{
  size_t n = rv_sample_num_columns(sample);
  PyObject *out = PyList_New((Py_ssize_t)n);
  for (size_t c = 0; out != NULL && c < n; c++) {
    rv_sample_column column;
    rv_error err;
    if (rv_sample_get_column(sample, c, &column, &err) != RV_OK) {
      Py_DECREF(out);
      return core_raise(state, &err);
    }
    if (PyList_SetItem(out, (Py_ssize_t)c, PyBool_FromLong(column.squeezed)) < 0) Py_CLEAR(out);
  }
  return out;
}

static PyObject *raw_locked(sampler_object *self)
{
  if (sampler_open(self) < 0) return NULL;
  rv_sample *sample = NULL;
  rv_error err;
  core_wait wait;
  core_wait_begin(&wait, self->timeout_ms, NULL);
  rv_code code = rv_sampler_next(self->sampler, &wait.wait, &sample, &err);
  core_wait_end(&wait, code);
  if (code != RV_OK) return core_wait_raise(self->state, &wait, &err);
  PyObject *info = sample_info_object(self->state, rv_sample_get_info(sample));
  PyObject *columns = info == NULL ? NULL : sample_columns(self->state, sample, true, NULL);
  PyObject *squeezed = columns == NULL ? NULL : list_squeezed(self->state, sample);
  rv_sample_unref(sample);
  if (squeezed != NULL) return Py_BuildValue("(NNN)", info, columns, squeezed);
  Py_XDECREF(info);
  Py_XDECREF(columns);
  return NULL;
}

static PyObject *sampler_raw(PyObject *object, PyObject *none)
{
  (void)none;
  sampler_object *self = (sampler_object *)object;
  if (core_lock(&self->mutex) < 0) return NULL;
  PyObject *out = raw_locked(self);
  leave(self);
  return out;
}

PyObject *sampler_close(PyObject *object, PyObject *none)
{
  (void)none;
  sampler_object *self = (sampler_object *)object;
  self->ended = true;
  rv_cancel_fire(self->cancel);
  if (self->sampler != NULL) rv_sampler_cancel(self->sampler);
  if (core_locked_here(&self->mutex)) Py_RETURN_NONE; /* a signal handler's: the call that it interrupted ends, and lets go */
  if (core_lock(&self->mutex) < 0) return NULL;
  leave(self);
  Py_RETURN_NONE;
}

static PyObject *sampler_iter(PyObject *object)
{
  Py_INCREF(object);
  return object;
}

static PyMethodDef sampler_methods[] = {
    {"raw", sampler_raw, METH_NOARGS,
     "raw($self, /)\n--\n\nThe next sample: its info, its columns, and of each whether it is squeezed."},
    {"close", sampler_close, METH_NOARGS, "close($self, /)\n--\n\nEnds the sequence and gives back what was fetched ahead."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot sampler_slots[] = {
    {Py_tp_doc, "Sampler(client, table, max_samples, emit_timesteps, unpack, copy, timeout=None, ahead=None)\n--\n\n"
                "Samples one after another; what Client.sample returns. `ahead` is (samples in flight a stream, streams, "
                "samples a stream, the limiter's timeout in ms); with it, max_samples may be -1: no bound."},
    {Py_tp_new, CORE_SLOT(sampler_tp_new)},
    {Py_tp_dealloc, CORE_SLOT(sampler_dealloc)},
    {Py_tp_traverse, CORE_SLOT(sampler_traverse)},
    {Py_tp_iter, CORE_SLOT(sampler_iter)},
    {Py_tp_iternext, CORE_SLOT(sampler_next)},
    {Py_tp_methods, sampler_methods},
    {0, NULL}};

PyType_Spec sampler_spec = {
    .name = "reverie._core.Sampler",
    .basicsize = sizeof(sampler_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = sampler_slots,
};
