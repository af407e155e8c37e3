/* The Client type: life, and the verbs that need no data. Rows are in rows.c, batches in batch.c, keys in change.c. */
#include "client.h"

#include <unistd.h>

#include "client/client.h"
#include "log.h"
#include "security.h"

int client_check(client_object *self)
{
  rv_error err;
  if (self->client != NULL && !rv_client_is_closed(self->client)) return 0;
  if (self->client != NULL) {
    rv_client_fail_gone(self->client, &err);
    core_raise(self->state, &err);
    return -1;
  }
  PyErr_SetString(PyExc_RuntimeError, "the client was not initialised: a subclass must call super().__init__(address)");
  return -1;
}

static PyObject *client_tp_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
  (void)args;
  (void)kwargs;
  core_state *state = core_state_of_type(type);
  if (state == NULL) return NULL;
  /* Before there is the client, which is tracked from then on: making a dict may run the collector. */
  PyObject *handles = PyDict_New(), *rows = PyDict_New();
  pool *buffers = pool_new();
  allocfunc alloc = (allocfunc)(uintptr_t)PyType_GetSlot(type, Py_tp_alloc);
  client_object *self = NULL;
  if (buffers == NULL) {
    PyErr_NoMemory();
  } else if (handles != NULL && rows != NULL) {
    self = (client_object *)alloc(type, 0);
  }
  if (self == NULL) {
    Py_XDECREF(handles);
    Py_XDECREF(rows);
    pool_unref(buffers);
    return NULL;
  }
  self->state = state;
  self->client = NULL;
  self->in_process = false;
  self->handles = handles;
  self->rows = rows;
  self->last = NULL;
  self->buffers = buffers;
  self->num_idle = 0;
  self->plain = NULL;
  return (PyObject *)self;
}

/* NULL, and clients then have threads of their own: there is no memory. What a forked child inherits is its parent's, and is left alone. */
static rv_io *client_io(core_state *state)
{
  if (state->io != NULL && state->io_pid == (long)getpid()) return state->io;
  state->io = NULL;
  state->io_pid = (long)getpid();
  if (rv_io_new(&state->io, NULL) != RV_OK) state->io = NULL;
  return state->io;
}

static int client_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
  static char *names[] = {"address", "store", "max_message_bytes", "tls", "token", "peer_timeout_ms", "shared_memory", NULL};
  client_object *self = (client_object *)object;
  const char *address = NULL, *token = NULL;
  PyObject *store = Py_None, *tls = Py_None;
  Py_ssize_t max_message_bytes = 0;
  long long peer_timeout_ms = 0;
  int shared_memory = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|zOnOzLp:Client", names, &address, &store, &max_message_bytes, &tls, &token,
                                   &peer_timeout_ms, &shared_memory))
    return -1;
  if (self->client != NULL) {
    PyErr_SetString(PyExc_RuntimeError, "the client is initialised already");
    return -1;
  }
  if (max_message_bytes < 0 || (store != Py_None && !PyObject_TypeCheck(store, self->state->store_type))) {
    PyErr_SetString(PyExc_TypeError, "store must be a Store or None, max_message_bytes not negative");
    return -1;
  }
  rv_env env;
  if (log_env(self->state, &env) < 0) return -1;
  rv_client_config config = {.size = sizeof config,
                             .address = address,
                             .env = &env,
                             .max_message_bytes = (size_t)max_message_bytes,
                             .io = address == NULL ? NULL : client_io(self->state)};
  rv_tls_config files;
  if (tls != Py_None) {
    if (!security_tls(tls, &files)) return -1;
    config.tls = &files;
  }
  config.token = token;
  config.peer_timeout_ms = peer_timeout_ms;
  config.no_shared_memory = !shared_memory;
  if (store != Py_None) config.store = ((store_object *)store)->store;
  rv_error err;
  if (rv_client_new(&config, &self->client, &err) != RV_OK) {
    core_raise(self->state, &err);
    return -1;
  }
  self->in_process = config.store != NULL;
  return 0;
}

static int client_traverse(PyObject *object, visitproc visit, void *arg)
{
  client_object *self = (client_object *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->handles);
  Py_VISIT(self->rows);
  Py_VISIT((PyObject *)self->last);
  Py_VISIT(self->plain);
  return 0;
}

static void client_dealloc(PyObject *object)
{
  client_object *self = (client_object *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  rv_client *client = self->client;
  PyObject *plain = self->plain;
  rv_writer *idle[CLIENT_IDLE_WRITERS];
  size_t num_idle = self->num_idle;
  memcpy(idle, self->idle, sizeof idle);
  Py_XDECREF(self->handles);
  Py_XDECREF(self->rows);
  Py_XDECREF((PyObject *)self->last);
  pool_unref(self->buffers);
  freefunc release = (freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free);
  release(object);
  Py_DECREF((PyObject *)type);
  if (client == NULL) return;
  Py_BEGIN_ALLOW_THREADS /* joins its thread */
  for (size_t i = 0; i < num_idle; i++) rv_writer_free(idle[i]);
  if (plain == NULL) rv_client_free(client);
  Py_END_ALLOW_THREADS
  Py_XDECREF(plain);
}

/* Streams that insert has kept belong to nobody else. */
static PyObject *client_close(PyObject *object, PyObject *none)
{
  (void)none;
  client_object *self = (client_object *)object;
  rv_client *client = self->client;
  if (client == NULL) Py_RETURN_NONE;
  rv_writer *idle[CLIENT_IDLE_WRITERS];
  size_t num_idle = self->num_idle;
  memcpy(idle, self->idle, sizeof idle);
  self->num_idle = 0;
  Py_BEGIN_ALLOW_THREADS
  rv_client_close(client);
  for (size_t i = 0; i < num_idle; i++) rv_writer_free(idle[i]);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

static PyObject *client_check_open(PyObject *object, PyObject *none)
{
  (void)none;
  if (client_check((client_object *)object) < 0) return NULL;
  Py_RETURN_NONE;
}

/* ---- methods ---- */

static PyObject *info_list(const rv_server_info *info)
{
  PyObject *out = PyList_New(0);
  for (size_t i = 0; out != NULL && i < info->num_tables; i++) {
    PyObject *entry = table_info_to_dict(&info->tables[i]);
    if (entry == NULL || PyList_Append(out, entry) < 0) Py_CLEAR(out);
    Py_XDECREF(entry);
  }
  return out;
}

/* The caller's to free; NULL with an exception. */
static rv_server_info *ask_info(client_object *self, PyObject *timeout)
{
  int64_t timeout_ms;
  if (client_check(self) < 0 || core_timeout(timeout, RV_FOREVER, &timeout_ms) < 0) return NULL;
  rv_server_info *info = NULL;
  rv_error err;
  core_wait wait;
  core_wait_begin(&wait, timeout_ms, NULL);
  rv_code code = rv_client_server_info(self->client, &wait.wait, &info, &err);
  core_wait_end(&wait, code);
  if (code == RV_OK) return info;
  core_wait_raise(self->state, &wait, &err);
  return NULL;
}

static PyObject *client_server_info(PyObject *object, PyObject *timeout)
{
  rv_server_info *info = ask_info((client_object *)object, timeout);
  if (info == NULL) return NULL;
  PyObject *out = info_list(info);
  rv_server_info_free(info);
  return out;
}

static PyObject *client_memory_info(PyObject *object, PyObject *timeout)
{
  rv_server_info *info = ask_info((client_object *)object, timeout);
  if (info == NULL) return NULL;
  rv_memory_info memory = info->memory;
  rv_server_info_free(info);
  return Py_BuildValue("(LLLLLs)", (long long)memory.used_bytes, (long long)memory.limit_bytes, (long long)memory.stream_bytes,
                       (long long)memory.connection_bytes, (long long)memory.spilled_bytes, memory.spill_fault);
}

static PyObject *client_journal_info(PyObject *object, PyObject *timeout)
{
  rv_server_info *info = ask_info((client_object *)object, timeout);
  if (info == NULL) return NULL;
  PyObject *fault = PyUnicode_DecodeUTF8(info->journal_fault, (Py_ssize_t)strlen(info->journal_fault), "replace");
  double lag_seconds = (double)info->journal_lag_ns / 1e9;
  rv_server_info_free(info);
  return fault == NULL ? NULL : Py_BuildValue("(Nd)", fault, lag_seconds);
}

static PyObject *client_reset(PyObject *object, PyObject *args)
{
  client_object *self = (client_object *)object;
  PyObject *table, *timeout;
  int64_t timeout_ms;
  if (client_check(self) < 0 || !PyArg_ParseTuple(args, "OO:_reset", &table, &timeout)) return NULL;
  const char *text = core_text(table, "table");
  if (text == NULL || core_timeout(timeout, RV_FOREVER, &timeout_ms) < 0) return NULL;
  rv_error err;
  core_wait wait;
  core_wait_begin(&wait, timeout_ms, NULL);
  rv_code code = rv_client_reset(self->client, text, &wait.wait, &err);
  core_wait_end(&wait, code);
  if (code != RV_OK) return core_wait_raise(self->state, &wait, &err);
  Py_RETURN_NONE;
}

static PyObject *client_set_rate_limiter(PyObject *object, PyObject *args)
{
  client_object *self = (client_object *)object;
  PyObject *table, *timeout;
  rv_rate_limiter_config limiter;
  long long min_size;
  int64_t timeout_ms;
  if (client_check(self) < 0 || !PyArg_ParseTuple(args, "O(dLdd)O:_set_rate_limiter", &table, &limiter.samples_per_insert,
                                                  &min_size, &limiter.min_diff, &limiter.max_diff, &timeout)) {
    return NULL;
  }
  limiter.min_size_to_sample = min_size;
  const char *text = core_text(table, "table");
  if (text == NULL || core_timeout(timeout, CLIENT_DEFAULT_TIMEOUT, &timeout_ms) < 0) return NULL;
  rv_error err;
  core_wait wait;
  core_wait_begin(&wait, timeout_ms, NULL);
  rv_code code = rv_client_set_rate_limiter(self->client, text, &limiter, &wait.wait, &err);
  core_wait_end(&wait, code);
  if (code != RV_OK) return core_wait_raise(self->state, &wait, &err);
  Py_RETURN_NONE;
}

static PyObject *client_set_bounds(PyObject *object, PyObject *args)
{
  client_object *self = (client_object *)object;
  PyObject *table, *timeout;
  rv_table_bounds bounds = rv_table_bounds_unchanged();
  long long max_size, max_bytes;
  int max_times_sampled;
  int64_t timeout_ms;
  if (client_check(self) < 0 ||
      !PyArg_ParseTuple(args, "OLiLO:_set_bounds", &table, &max_size, &max_times_sampled, &max_bytes, &timeout)) {
    return NULL;
  }
  const char *text = core_text(table, "table");
  if (text == NULL || core_timeout(timeout, CLIENT_DEFAULT_TIMEOUT, &timeout_ms) < 0) return NULL;
  bounds.max_size = max_size;
  bounds.max_bytes = max_bytes;
  bounds.max_times_sampled = max_times_sampled;
  rv_error err;
  core_wait wait;
  core_wait_begin(&wait, timeout_ms, NULL);
  rv_code code = rv_client_set_bounds(self->client, text, &bounds, &wait.wait, &err);
  core_wait_end(&wait, code);
  if (code != RV_OK) return core_wait_raise(self->state, &wait, &err);
  Py_RETURN_NONE;
}

static PyObject *client_set_memory_limit(PyObject *object, PyObject *args)
{
  client_object *self = (client_object *)object;
  PyObject *timeout;
  Py_ssize_t bytes;
  int64_t timeout_ms;
  if (client_check(self) < 0 || !PyArg_ParseTuple(args, "nO:_set_memory_limit", &bytes, &timeout)) return NULL;
  if (core_timeout(timeout, CLIENT_DEFAULT_TIMEOUT, &timeout_ms) < 0) return NULL;
  rv_error err;
  core_wait wait;
  core_wait_begin(&wait, timeout_ms, NULL);
  rv_code code = rv_client_set_memory_limit(self->client, bytes < 0 ? 0 : (size_t)bytes, &wait.wait, &err);
  core_wait_end(&wait, code);
  if (code != RV_OK) return core_wait_raise(self->state, &wait, &err);
  Py_RETURN_NONE;
}

static PyObject *client_checkpoint(PyObject *object, PyObject *timeout)
{
  client_object *self = (client_object *)object;
  int64_t timeout_ms;
  if (client_check(self) < 0 || core_timeout(timeout, RV_FOREVER, &timeout_ms) < 0) return NULL;
  char *path = NULL;
  rv_error err;
  core_wait wait;
  core_wait_begin(&wait, timeout_ms, NULL);
  rv_code code = rv_client_checkpoint(self->client, &path, &wait.wait, &err);
  core_wait_end(&wait, code);
  if (code != RV_OK) return core_wait_raise(self->state, &wait, &err);
  PyObject *out = PyUnicode_DecodeFSDefault(path == NULL ? "" : path);
  free(path);
  return out;
}

static PyObject *client_py_remember(PyObject *object, PyObject *args)
{
  client_object *self = (client_object *)object;
  PyObject *table, *structure;
  if (!PyArg_ParseTuple(args, "OO!:_remember", &table, self->state->structure_type, &structure)) return NULL;
  if (client_remember(self, table, (structure_object *)structure) < 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject *client_py_remembered(PyObject *object, PyObject *table)
{
  client_object *self = (client_object *)object;
  handle_object *handle = (handle_object *)PyDict_GetItemWithError(self->handles, table);
  if (handle == NULL && PyErr_Occurred()) return NULL;
  PyObject *structure = handle == NULL ? PyDict_GetItemWithError(self->rows, table) : (PyObject *)handle->rows;
  if (structure == NULL && PyErr_Occurred()) return NULL;
  return Py_NewRef(structure == NULL ? Py_None : structure);
}

static void share(PyObject **of, PyObject *theirs)
{
  PyObject *old = *of;
  Py_INCREF(theirs);
  *of = theirs;
  Py_DECREF(old);
}

/* What a thread may hold for as long as it waits: the same client, without what a subclass's instance refers to. */
static PyObject *client_plain(PyObject *object, PyObject *none)
{
  (void)none;
  client_object *self = (client_object *)object;
  if (client_check(self) < 0) return NULL;
  client_object *plain = NULL;
  if (self->plain == NULL) {
    plain = (client_object *)client_tp_new(self->state->client_type, NULL, NULL);
    if (plain == NULL) return NULL;
  }
  if (self->plain == NULL) { /* still: another thread may have run meanwhile */
    share(&plain->handles, self->handles);
    share(&plain->rows, self->rows);
    pool_unref(plain->buffers);
    plain->buffers = pool_ref(self->buffers);
    plain->in_process = self->in_process;
    plain->client = self->client;
    self->plain = (PyObject *)plain;
  } else {
    Py_XDECREF((PyObject *)plain);
  }
  Py_INCREF(self->plain);
  return self->plain;
}

/* ---- the type ---- */

PyDoc_STRVAR(add_doc,
             "add($self, /, table, data, priority=1.0, *, timeout=60.0)\n--\n\n"
             "Inserts one item of one row and returns its key.\n\n"
             "Sample it with sample_batch, or with sample(..., emit_timesteps=False): sample's steps are cuts along the first "
             "dimension, which\nare features here.\n\n"
             "Parameters\n----------\n"
             "table : str\n"
             "data : nest of arrays and scalars\n    The row; sampled, each leaf has just this shape (no time "
             "dimension). Python's own numbers take\n"
             "    the dtype of the table's signature.\n"
             "priority : float\n"
             "timeout : float or None\n    Seconds to wait while the rate limiter forbids it; None waits for ever. At "
             "the timeout nothing was\n    inserted; over the network the item may still get in if room appears before the "
             "server learns that the caller gave\n    up, and is in where it waited for the disk of the server's journal alone: "
             "an add that timed out and is "
             "tried again\n    may be there twice.\n\n"
             "Raises\n------\n"
             "DeadlineExceededError, InvalidArgumentError (signature, priority), NotFoundError, TypeError (a dtype that "
             "cannot be stored)");
PyDoc_STRVAR(add_batch_doc, "add_batch($self, /, table, data, priorities=None, *, timeout=60.0)\n--\n\n"
                            "Inserts n rows as n items, in order, and returns how many were inserted.\n\n"
                            "Parameters\n----------\n"
                            "table : str\n"
                            "data : nest of arrays [n, ...]\n    Where the table's signature has a column, what numpy.asarray "
                            "takes, and Python's own numbers take its dtype.\n    Elsewhere a list of numbers is a column, and "
                            "a list of lists or arrays is a list of columns.\n"
                            "priorities : array-like of float [n], optional\n    All 1.0 without it.\n"
                            "timeout : float or None\n    Seconds for all of them. When it runs out, what was inserted stays: "
                            "the number returned is then less than n. Over\n    the network, rows that get in before the server "
                            "learns that the caller gave up,\n    or that waited for the disk of its journal alone, are in the "
                            "table and not counted.\n\n"
                            "Raises\n------\n"
                            "DeadlineExceededError\n    If not even one could be inserted.\n"
                            "InvalidArgumentError\n    Data that does not fit the signature, or is not of its structure so that "
                            "a list may be a column or a container.");
PyDoc_STRVAR(
    sample_batch_doc,
    "sample_batch($self, /, table, batch_size, *, timeout=60.0, out=None, unequal='error', copy=True, cancel=None)\n--\n\n"
    "Draws items one by one as the rate limiter allows and gathers them into arrays.\n\n"
    "From a server, small batches that are asked for again and again are drawn ahead (at most 1,024 samples and 512 KiB), which "
    "counts as\n"
    "sampled, where nobody can tell: random selector, no max_times_sampled, no bound on samples per insert. What this client "
    "changes is\n"
    "always taken into account; changes by others are as they were when it was drawn, at most a second ago.\n\n"
    "Parameters\n----------\n"
    "table : str\n"
    "batch_size : int\n"
    "timeout : float or None\n    Seconds. When it runs out, what was drawn is returned: the batch is then shorter than "
    "batch_size.\n    It is shorter, too, if something fails on the way from a server elsewhere once some items are here, such "
    "as "
    "one that\n    is larger than max_message_bytes: they are returned, and the next call for the table raises what failed, "
    "before "
    "it draws.\n"
    "out : nest of arrays or callable, optional\n    Filled instead of new arrays: C-contiguous, writable, [batch_size, ...] and "
    "of the columns' dtypes, in a nest with\n    the items' keys, or a list in column order. Checked before anything is drawn is "
    "all but the columns' own shapes and\n    dtypes, and keys that come with the items: those of a signature do not (see "
    "Returns). Or a function that is called\n    with shape and dtype of each column but strings and returns such an array, for "
    "memory of a special kind (pinned,\n    shared, mapped).\n"
    "unequal : {'error', 'pad', 'list'}\n    Items of unequal length: an error before anything is counted, zeros up to the "
    "longest (see ReplayBatch.lengths),\n    or lists of one array an item. 'pad' also fills up rows of different "
    "shapes, in each dimension.\n    Items that padding cannot make one (dtypes, dimensions) are found once they are drawn, and "
    "so "
    "count as sampled.\n"
    "copy : bool\n    With unequal='list': False gives read-only views that hold the store's memory.\n"
    "cancel : Cancel, optional\n    Ends the call from another thread.\n\n"
    "Returns\n-------\n"
    "ReplayBatch\n    Its data has the nest of the table's signature. Without one it has the nest that this client inserted "
    "last, if "
    "all items\n    in the table were inserted with the same containers and keys, by whomever; else it is the flat list of "
    "columns.\n\n"
    "Raises\n------\n"
    "DeadlineExceededError\n    If not even one item could be drawn.\n"
    "FailedPreconditionError\n    The items cannot stand in one batch; see `unequal`.\n"
    "KeyboardInterrupt\n    Ctrl-C. What was drawn by then counts as sampled: where max_times_sampled is 1, it is gone.");
PyDoc_STRVAR(
    update_doc,
    "update_priorities($self, /, table, keys, priorities, *, timeout=60.0)\n--\n\n"
    "Sets the priorities of items by key, all or none.\n\n"
    "Parameters\n----------\n"
    "table : str\n"
    "keys : array-like of int [n]\n    An array of int64, as they become where there is no uint64, stands for the keys of the "
    "same bits.\n"
    "priorities : array-like of float [n]\n    NaN is refused everywhere; negative and infinite where a Prioritized selector is "
    "attached.\n\n"
    "Returns\n-------\n"
    "numpy.ndarray or None\n    The keys that are not in the table (uint64); None where a plain Reverb server does not say.");
PyDoc_STRVAR(
    get_doc,
    "get($self, /, table, key, *, copy=True, timeout=60.0)\n--\n\n"
    "The item of this key as a ReplaySample, without counting it as sampled.\n\n"
    "With copy=False its arrays are read-only views of the store's memory, where that is uncompressed; they hold it.\n\n"
    "Raises\n------\n"
    "NotFoundError\n    No such table, and which there are; or no item of this key in it. The sentence says which of the two.\n"
    "UnimplementedError\n    From a plain Reverb server.");

static PyMethodDef client_methods[] = {
    {"add", CORE_METHOD(client_add), CORE_FAST, add_doc},
    {"add_batch", CORE_METHOD(client_add_batch), CORE_FAST, add_batch_doc},
    {"sample_batch", CORE_METHOD(client_sample_batch), CORE_FAST, sample_batch_doc},
    {"update_priorities", CORE_METHOD(client_update_priorities), CORE_FAST, update_doc},
    {"get", CORE_METHOD(client_get), CORE_FAST, get_doc},
    {"_mutate", client_mutate, METH_VARARGS, "_mutate($self, table, keys, priorities, deletes, timeout, /)\n--\n\n"},
    {"_items_page", client_items_page, METH_VARARGS, "_items_page($self, table, cursor, size, only_keys, timeout, /)\n--\n\n"},
    {"_server_info", client_server_info, METH_O, "_server_info($self, timeout, /)\n--\n\n"},
    {"_journal_info", client_journal_info, METH_O, "_journal_info($self, timeout, /)\n--\n\n"},
    {"_memory_info", client_memory_info, METH_O, "_memory_info($self, timeout, /)\n--\n\n"},
    {"_reset", client_reset, METH_VARARGS, "_reset($self, table, timeout, /)\n--\n\n"},
    {"_set_bounds", client_set_bounds, METH_VARARGS,
     "_set_bounds($self, table, max_size, max_times_sampled, max_bytes, timeout, /)\n--\n\n"},
    {"_set_memory_limit", client_set_memory_limit, METH_VARARGS, "_set_memory_limit($self, limit, timeout, /)\n--\n\n"},
    {"_set_rate_limiter", client_set_rate_limiter, METH_VARARGS, "_set_rate_limiter($self, table, limiter, timeout, /)\n--\n\n"},
    {"_checkpoint", client_checkpoint, METH_O, "_checkpoint($self, timeout, /)\n--\n\n"},
    {"_remember", client_py_remember, METH_VARARGS, "_remember($self, table, structure, /)\n--\n\n"},
    {"_remembered", client_py_remembered, METH_O, "_remembered($self, table, /)\n--\n\n"},
    {"_close", client_close, METH_NOARGS, "_close($self, /)\n--\n\n"},
    {"_check_open", client_check_open, METH_NOARGS, "_check_open($self, /)\n--\n\n"},
    {"_plain", client_plain, METH_NOARGS, "_plain($self, /)\n--\n\n"},
    {"_take_idle_writer", client_take_idle, METH_NOARGS, "_take_idle_writer($self, /)\n--\n\n"},
    {"_give_idle_writer", client_give_idle, METH_O, "_give_idle_writer($self, stream, /)\n--\n\n"},
    {NULL, NULL, 0, NULL}};

static PyType_Slot client_slots[] = {{Py_tp_doc, "Client(address=None, store=None, max_message_bytes=0, tls=None, token=None, "
                                                 "peer_timeout_ms=0, shared_memory=True)\n--\n\nThe C part of reverie.Client."},
                                     {Py_tp_new, CORE_SLOT(client_tp_new)},
                                     {Py_tp_init, CORE_SLOT(client_init)},
                                     {Py_tp_dealloc, CORE_SLOT(client_dealloc)},
                                     {Py_tp_traverse, CORE_SLOT(client_traverse)},
                                     {Py_tp_methods, client_methods},
                                     {0, NULL}};

PyType_Spec client_spec = {
    .name = "reverie._core.Client",
    .basicsize = sizeof(client_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = client_slots,
};
