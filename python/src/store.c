/* The tables of this process: made all at once from plain tuples that reverie.table checks and makes. */
#include "store/store.h"

#include <unistd.h>

#include "log.h"
#include "scratch.h"
#include "types.h"

/* ---- table configurations ---- */

static int parse_shape(scratch *s, PyObject *shape, rv_spec *out)
{
  out->rank = -1;
  if (shape == Py_None) return 0;
  Py_ssize_t rank = PyTuple_Size(shape);
  int64_t *sizes = rank < 0 ? NULL : scratch_alloc(s, (size_t)rank, sizeof *sizes);
  if (sizes == NULL) return -1;
  for (Py_ssize_t i = 0; i < rank; i++) {
    sizes[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    if (sizes[i] == -1 && PyErr_Occurred()) return -1;
  }
  out->rank = (int32_t)rank;
  out->shape = sizes;
  return 0;
}

static int parse_signature(scratch *s, PyObject *given, rv_signature *out)
{
  PyObject *list;
  const char *structure;
  Py_ssize_t structure_size;
  if (!PyArg_ParseTuple(given, "y#O!", &structure, &structure_size, &PyList_Type, &list)) return -1;
  size_t n = (size_t)PyList_Size(list);
  rv_spec *specs = scratch_alloc(s, n, sizeof *specs);
  if (specs == NULL) return -1;
  for (size_t i = 0; i < n; i++) {
    PyObject *shape;
    int dtype;
    if (!PyArg_ParseTuple(PyList_GetItem(list, (Py_ssize_t)i), "siO", &specs[i].name, &dtype, &shape)) return -1;
    specs[i].dtype = (rv_dtype)dtype;
    if (parse_shape(s, shape, &specs[i]) < 0) return -1;
  }
  *out = (rv_signature){.specs = specs, .num_specs = n, .structure = {structure, (size_t)structure_size}};
  return 0;
}

static int parse_extensions(scratch *s, PyObject *list, rv_table_config *out)
{
  size_t n = (size_t)PyList_Size(list);
  rv_extension_config *extensions = scratch_alloc(s, n, sizeof *extensions);
  if (extensions == NULL) return -1;
  for (size_t i = 0; i < n; i++) {
    if (!PyArg_ParseTuple(PyList_GetItem(list, (Py_ssize_t)i), "ss", &extensions[i].name, &extensions[i].options)) return -1;
  }
  out->extensions = extensions;
  out->num_extensions = n;
  return 0;
}

static int parse_table(scratch *s, PyObject *given, rv_table_config *out)
{
  PyObject *signature, *extensions;
  int sampler, remover;
  long long max_size, min_size, max_bytes;
  *out = (rv_table_config){.size = sizeof *out};
  if (!PyArg_ParseTuple(given, "s(id)(id)Li(dLdd)OO!L", &out->name, &sampler, &out->sampler.priority_exponent, &remover,
                        &out->remover.priority_exponent, &max_size, &out->max_times_sampled,
                        &out->rate_limiter.samples_per_insert, &min_size, &out->rate_limiter.min_diff,
                        &out->rate_limiter.max_diff, &signature, &PyList_Type, &extensions, &max_bytes)) {
    return -1;
  }
  out->max_bytes = max_bytes;
  out->sampler.kind = (rv_selector_kind)sampler;
  out->remover.kind = (rv_selector_kind)remover;
  out->max_size = max_size;
  out->rate_limiter.min_size_to_sample = min_size;
  if (signature != Py_None) {
    rv_signature *parsed = scratch_alloc(s, 1, sizeof *parsed);
    if (parsed == NULL || parse_signature(s, signature, parsed) < 0) return -1;
    out->signature = parsed;
  }
  return parse_extensions(s, extensions, out);
}

/* Empty, or with what was saved, and with what the journal (path NULL: none) says happened since. */
static int make(store_object *self, const rv_store_config *config, PyObject *checkpointer, const rv_journal_config *journal,
                const rv_spill_config *spill)
{
  rv_error err;
  rv_code code;
  if (checkpointer == Py_None) {
    code = rv_store_new(config, &self->store, &err);
    if (code == RV_OK && spill->path != NULL) code = rv_spill_new(spill, self->store, &self->spill, &err);
    if (code != RV_OK) core_raise(self->state, &err);
    return code == RV_OK ? 0 : -1;
  }
  checkpoint_wait wait;
  checkpoint_wait_begin(&wait, RV_FOREVER);
  if (spill->path != NULL) wait.watch.spill = spill;
  wait.watch.spilled = &self->spill;
  rv_checkpointer *from = ((checkpointer_object *)checkpointer)->checkpointer;
  code = journal->path == NULL ? rv_checkpointer_restore(from, config, &wait.watch, &self->store, NULL, &err)
                               : rv_journal_recover(journal, from, config, &wait.watch, &self->store, &self->journal, &err);
  core_wait_end(&wait.wait, code);
  if (code != RV_OK) core_wait_raise(self->state, &wait.wait, &err);
  return code == RV_OK ? 0 : -1;
}

/* (path, mode, period_ms, max_queued_bytes, salvage), or None. */
static int parse_journal(PyObject *given, rv_journal_config *out)
{
  const char *path;
  int mode, salvage;
  long long period_ms;
  Py_ssize_t queued;
  if (given == Py_None) return 0;
  if (!PyArg_ParseTuple(given, "yiLnp", &path, &mode, &period_ms, &queued, &salvage)) return -1;
  out->path = path;
  out->mode = (rv_journal_mode)mode;
  out->period_ms = period_ms;
  out->max_queued_bytes = queued < 0 ? 0 : (size_t)queued;
  out->salvage = salvage != 0;
  return 0;
}

static int parse_seed(PyObject *given, uint64_t *out)
{
  if (given == Py_None) return 0;
  *out = PyLong_AsUnsignedLongLong(given);
  return PyErr_Occurred() == NULL ? 0 : -1;
}

static PyObject *store_tp_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
  static char *names[] = {"tables", "gather_threads", "checkpointer", "journal", "memory_limit",
                          "spill",  "spill_bytes",    "seed",         NULL};
  PyObject *list, *checkpointer = Py_None, *journal = Py_None, *spill_path = Py_None, *given_seed = Py_None;
  uint64_t seed = 0;
  rv_journal_config journaled = {.size = sizeof journaled};
  unsigned int gather_threads = 0;
  Py_ssize_t memory_limit = 0, spill_bytes = 0;
  rv_spill_config spill = {.size = sizeof spill};
  core_state *state = core_state_of_type(type);
  if (state == NULL) return NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|IOOnOnO:Store", names, &PyList_Type, &list, &gather_threads, &checkpointer,
                                   &journal, &memory_limit, &spill_path, &spill_bytes, &given_seed) ||
      !core_path(spill_path, "spill", &spill.path) || parse_journal(journal, &journaled) < 0 || parse_seed(given_seed, &seed) < 0)
    return NULL;
  rv_env env;
  if (log_env(state, &env) < 0) return NULL;
  if (checkpointer != Py_None && !PyObject_TypeCheck(checkpointer, state->checkpointer_type)) {
    PyErr_SetString(PyExc_TypeError, "checkpointer must be a Checkpointer or None");
    return NULL;
  }
  if (checkpointer == Py_None && journal != Py_None) {
    PyErr_SetString(PyExc_ValueError, "a journal needs a checkpointer");
    return NULL;
  }
  store_object *self = PyObject_New(store_object, type);
  if (self == NULL) return NULL;
  self->state = state;
  self->store = NULL;
  self->journal = NULL;
  self->spill = NULL;
  self->pid = getpid();
  scratch s;
  scratch_init(&s);
  size_t n = (size_t)PyList_Size(list);
  rv_table_config *tables = scratch_alloc(&s, n, sizeof *tables);
  bool ok = tables != NULL;
  for (size_t i = 0; ok && i < n; i++) ok = parse_table(&s, PyList_GetItem(list, (Py_ssize_t)i), &tables[i]) == 0;
  if (ok) {
    rv_store_config config = {.size = sizeof config,
                              .tables = tables,
                              .num_tables = n,
                              .env = &env,
                              .gather_threads = gather_threads,
                              .seed = given_seed == Py_None ? NULL : &seed,
                              .memory_limit = memory_limit < 0 ? 0 : (size_t)memory_limit};
    spill.max_bytes = spill_bytes < 0 ? 0 : (size_t)spill_bytes;
    ok = make(self, &config, checkpointer, &journaled, &spill) == 0;
  }
  scratch_fini(&s);
  if (!ok) Py_CLEAR(self);
  return (PyObject *)self;
}

static void store_dealloc(PyObject *object)
{
  PyTypeObject *type = Py_TYPE(object);
  rv_store *store = ((store_object *)object)->store;
  rv_journal *journal = ((store_object *)object)->journal;
  rv_spill *spill = ((store_object *)object)->spill;
  if (((store_object *)object)->pid != getpid()) { /* a forked child: the threads of journal and spill are not here */
    store = NULL;
    journal = NULL;
    spill = NULL;
  }
  PyObject_Free(object);
  Py_DECREF(type);
  Py_BEGIN_ALLOW_THREADS /* a large store takes a while to free */
  rv_spill_free(spill);
  rv_journal_unref(journal);
  if (store != NULL) rv_store_unref(store);
  Py_END_ALLOW_THREADS
}

/* ---- methods ---- */

int store_check(const store_object *self)
{
  if (self->pid == getpid()) return 0;
  PyErr_SetString(self->state->errors[RV_FAILED_PRECONDITION],
                  "the server was made before a fork and lives in the parent process; make a new client with its address");
  return -1;
}

static rv_table *find(store_object *self, PyObject *name)
{
  rv_table *table;
  rv_error err;
  const char *utf8 = core_text(name, "a table's name");
  if (utf8 == NULL || store_check(self) < 0) return NULL;
  if (rv_store_find(self->store, utf8, strlen(utf8), &table, &err) == RV_OK) return table;
  core_raise(self->state, &err);
  return NULL;
}

static PyObject *store_info(PyObject *object, PyObject *name)
{
  store_object *self = (store_object *)object;
  rv_table *table = find(self, name);
  if (table == NULL) return NULL;
  rv_table_info info = {.size = sizeof info};
  rv_error err;
  rv_code code;
  Py_BEGIN_ALLOW_THREADS
  code = rv_table_get_info(table, &info, &err);
  Py_END_ALLOW_THREADS
  if (code != RV_OK) return core_raise(self->state, &err);
  PyObject *out = table_info_to_dict(&info);
  rv_table_info_fini(&info);
  return out;
}

static PyObject *can(PyObject *object, PyObject *args, const char *format, bool (*ask)(rv_table *table, int64_t n))
{
  PyObject *name;
  long long n;
  if (!PyArg_ParseTuple(args, format, &name, &n)) return NULL;
  rv_table *table = find((store_object *)object, name);
  return table == NULL ? NULL : PyBool_FromLong(ask(table, n));
}

static PyObject *store_can_sample(PyObject *object, PyObject *args)
{
  return can(object, args, "OL:can_sample", rv_table_can_sample);
}

static PyObject *store_can_insert(PyObject *object, PyObject *args)
{
  return can(object, args, "OL:can_insert", rv_table_can_insert);
}

static PyObject *store_close(PyObject *object, PyObject *none)
{
  (void)none;
  rv_store *store = ((store_object *)object)->store;
  if (((store_object *)object)->pid != getpid()) Py_RETURN_NONE;
  rv_journal *journal = ((store_object *)object)->journal;
  ((store_object *)object)->journal = NULL;
  rv_spill *spill = ((store_object *)object)->spill;
  ((store_object *)object)->spill = NULL;
  Py_BEGIN_ALLOW_THREADS
  rv_store_close(store);
  rv_spill_free(spill);
  rv_journal_unref(journal); /* writes what is left */
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

/* ---- the journal ---- */

/* A reference, with which it stays while the GIL is let go; NULL with an exception. */
static rv_journal *take_journal(store_object *self)
{
  if (self->journal != NULL && self->pid == getpid()) return rv_journal_ref(self->journal);
  PyErr_SetString(self->state->errors[RV_FAILED_PRECONDITION], "the server has no journal, or was stopped");
  return NULL;
}

static PyObject *store_sync_journal(PyObject *object, PyObject *args)
{
  enum { SLICE_MS = 100 };
  store_object *self = (store_object *)object;
  PyObject *timeout = Py_None;
  int64_t timeout_ms;
  if (!PyArg_ParseTuple(args, "|O:sync_journal", &timeout) || core_timeout(timeout, RV_FOREVER, &timeout_ms) < 0) return NULL;
  rv_journal *journal = take_journal(self);
  if (journal == NULL) return NULL;
  rv_error err;
  rv_code code;
  bool interrupted = false;
  do {
    int64_t slice = timeout_ms < 0 || timeout_ms > SLICE_MS ? SLICE_MS : timeout_ms;
    if (timeout_ms > 0) timeout_ms -= slice;
    Py_BEGIN_ALLOW_THREADS
    code = rv_journal_sync(journal, slice, &err);
    Py_END_ALLOW_THREADS
    interrupted = PyErr_CheckSignals() < 0;
  } while (code == RV_DEADLINE_EXCEEDED && timeout_ms != 0 && !interrupted);
  Py_BEGIN_ALLOW_THREADS
  rv_journal_unref(journal);
  Py_END_ALLOW_THREADS
  if (interrupted) return NULL;
  if (code != RV_OK) return core_raise(self->state, &err);
  Py_RETURN_NONE;
}

static PyObject *store_journal_stats(PyObject *object, PyObject *none)
{
  (void)none;
  rv_journal *journal = take_journal((store_object *)object);
  if (journal == NULL) return NULL;
  rv_journal_stats stats = {.size = sizeof stats};
  rv_journal_get_stats(journal, &stats);
  Py_BEGIN_ALLOW_THREADS
  rv_journal_unref(journal);
  Py_END_ALLOW_THREADS
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L,s:d,s:d,s:L,s:L,s:s}", "changes", (long long)stats.changes, "groups",
                       (long long)stats.groups, "bytes", (long long)stats.bytes, "fsyncs", (long long)stats.fsyncs, "errors",
                       (long long)stats.errors, "queued_bytes", (long long)stats.queued_bytes, "lag_seconds",
                       (double)stats.lag_ns / 1e9, "max_fsync_seconds", (double)stats.max_fsync_ns / 1e9, "disk_bytes",
                       (long long)stats.disk_bytes, "segment", (long long)stats.segment, "fault", stats.fault);
}

static PyMethodDef store_methods[] = {
    {"info", store_info, METH_O, "info($self, table, /)\n--\n\nThe table's state as a dict."},
    {"can_sample", store_can_sample, METH_VARARGS,
     "can_sample($self, table, n, /)\n--\n\nDoes the limiter let n samples through?"},
    {"can_insert", store_can_insert, METH_VARARGS,
     "can_insert($self, table, n, /)\n--\n\nDoes the limiter let n inserts through?"},
    {"sync_journal", store_sync_journal, METH_VARARGS,
     "sync_journal($self, timeout=None, /)\n--\n\nReturns when all that happened before is on the disk."},
    {"journal_stats", store_journal_stats, METH_NOARGS, "journal_stats($self, /)\n--\n\nThe journal's numbers as a dict."},
    {"close", store_close, METH_NOARGS, "close($self, /)\n--\n\nEnds all waits and refuses new work."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot store_slots[] = {
    {Py_tp_doc, "Store(tables, gather_threads=0, checkpointer=None, journal=None, memory_limit=0, spill=None, spill_bytes=0, "
                "seed=None)\n--\n\nTables in this process's memory."},
    {Py_tp_new, CORE_SLOT(store_tp_new)},
    {Py_tp_dealloc, CORE_SLOT(store_dealloc)},
    {Py_tp_methods, store_methods},
    {0, NULL}};

PyType_Spec store_spec = {
    .name = "reverie._core.Store",
    .basicsize = sizeof(store_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = store_slots,
};
