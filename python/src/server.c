/* A store, offered to other processes. */
#include <sys/types.h>
#include <unistd.h>

#include "scratch.h"
#include "security.h"
#include "types.h"

typedef struct server_object {
  PyObject_HEAD
  core_state *state;
  rv_server *server;
  size_t num_addresses;
  pid_t pid; /* of the process whose threads serve it */
} server_object;

/* Serves by that configuration, with what Python has given for the rest of it. -1 with an exception. */
static int begin(server_object *self, rv_server_config config, PyObject *addresses, PyObject *tls, PyObject *identities)
{
  scratch s;
  scratch_init(&s);
  self->num_addresses = config.num_addresses = (size_t)PyList_Size(addresses);
  const char **texts = scratch_alloc(&s, config.num_addresses, sizeof *texts);
  bool ok = texts != NULL;
  for (size_t i = 0; ok && i < config.num_addresses; i++) {
    texts[i] = core_text(PyList_GetItem(addresses, (Py_ssize_t)i), "an address");
    ok = texts[i] != NULL;
  }
  config.addresses = texts;
  rv_tls_config files;
  if (ok && tls != Py_None) {
    ok = security_tls(tls, &files);
    config.tls = &files;
  }
  if (ok && identities != Py_None) ok = security_identities(&s, identities, &config.identities, &config.num_identities);
  if (ok) {
    rv_error err;
    rv_code code;
    Py_BEGIN_ALLOW_THREADS
    code = rv_server_new(&config, &self->server, &err);
    Py_END_ALLOW_THREADS
    ok = code == RV_OK;
    if (!ok) core_raise(self->state, &err);
  }
  scratch_fini(&s);
  return ok ? 0 : -1;
}

static PyObject *server_tp_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
  static char *names[] = {"store",
                          "addresses",
                          "io_threads",
                          "max_message_bytes",
                          "max_connections",
                          "max_streams",
                          "max_writers",
                          "writer_ttl_ms",
                          "checkpointer",
                          "checkpoint_every_ms",
                          "checkpoint_every_inserts",
                          "checkpoint_journal_bytes",
                          "tls",
                          "identities",
                          "peer_timeout_ms",
                          "max_connections_per_address",
                          "max_streams_per_identity",
                          "max_bytes_per_identity",
                          "shared_memory",
                          NULL};
  core_state *state = core_state_of_type(type);
  if (state == NULL) return NULL;
  PyObject *store, *addresses, *checkpointer = Py_None, *tls = Py_None, *identities = Py_None;
  rv_server_config config = {.size = sizeof config};
  int shared_memory = 1;
  Py_ssize_t message = 0, connections = 0, streams = 0, writers = 0, each = 0, identity_streams = 0, identity_bytes = 0;
  long long ttl = 0, every_ms = 0, every_inserts = 0, journal_bytes = 0, peer_timeout_ms = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!|InnnnLOLLLOOLnnnp:Server", names, state->store_type, &store, &PyList_Type,
                                   &addresses, &config.io_threads, &message, &connections, &streams, &writers, &ttl,
                                   &checkpointer, &every_ms, &every_inserts, &journal_bytes, &tls, &identities, &peer_timeout_ms,
                                   &each, &identity_streams, &identity_bytes, &shared_memory)) {
    return NULL;
  }
  if (message < 0 || connections < 0 || streams < 0 || writers < 0 || ttl < 0 || each < 0 || identity_streams < 0 ||
      identity_bytes < 0) {
    PyErr_SetString(PyExc_ValueError, "a server's limits must not be negative; 0 means the default");
    return NULL;
  }
  if (checkpointer != Py_None && !PyObject_TypeCheck(checkpointer, state->checkpointer_type)) {
    PyErr_SetString(PyExc_TypeError, "checkpointer must be a Checkpointer or None");
    return NULL;
  }
  config.checkpointer = checkpointer == Py_None ? NULL : ((checkpointer_object *)checkpointer)->checkpointer;
  config.checkpoint_every_ms = every_ms;
  config.checkpoint_every_inserts = every_inserts;
  config.journal = ((store_object *)store)->journal;
  config.checkpoint_journal_bytes = journal_bytes;
  config.store = ((store_object *)store)->store;
  config.max_message_bytes = (size_t)message;
  config.max_connections = (size_t)connections;
  config.max_streams_per_connection = (size_t)streams;
  config.max_writer_sessions = (size_t)writers;
  config.writer_session_ttl_ms = ttl;
  config.peer_timeout_ms = peer_timeout_ms;
  config.max_connections_per_address = (size_t)each;
  config.max_streams_per_identity = (size_t)identity_streams;
  config.max_bytes_per_identity = (size_t)identity_bytes;
  config.no_shared_memory = !shared_memory;
  server_object *self = PyObject_New(server_object, type);
  if (self == NULL) return NULL;
  self->state = state;
  self->server = NULL;
  self->pid = getpid();
  if (begin(self, config, addresses, tls, identities) < 0) Py_CLEAR(self);
  return (PyObject *)self;
}

static void server_dealloc(PyObject *object)
{
  PyTypeObject *type = Py_TYPE(object);
  rv_server *server = ((server_object *)object)->server;
  if (((server_object *)object)->pid != getpid()) server = NULL; /* a forked child: its threads are not here */
  PyObject_Free(object);
  Py_DECREF(type);
  Py_BEGIN_ALLOW_THREADS /* joins threads */
  if (server != NULL) rv_server_free(server);
  Py_END_ALLOW_THREADS
}

static PyObject *server_ports(PyObject *object, PyObject *none)
{
  (void)none;
  server_object *self = (server_object *)object;
  PyObject *out = PyList_New(0);
  for (size_t i = 0; out != NULL && i < self->num_addresses; i++) {
    PyObject *port = PyLong_FromLong(rv_server_port(self->server, i));
    if (port == NULL || PyList_Append(out, port) < 0) Py_CLEAR(out);
    Py_XDECREF(port);
  }
  return out;
}

static PyObject *server_stop(PyObject *object, PyObject *args)
{
  long long drain_ms = 0;
  if (!PyArg_ParseTuple(args, "|L:stop", &drain_ms)) return NULL;
  rv_server *server = ((server_object *)object)->server;
  if (((server_object *)object)->pid != getpid()) Py_RETURN_NONE;
  Py_BEGIN_ALLOW_THREADS
  rv_server_stop(server, drain_ms);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

/* True: with an error. A forked child's copy has no threads, and would wait for them. */
static bool is_elsewhere(const server_object *self)
{
  if (self->pid == getpid()) return false;
  PyErr_SetString(PyExc_RuntimeError, "the server is that of the process that forked this one: it is changed there");
  return true;
}

static PyObject *server_reload_tls(PyObject *object, PyObject *none)
{
  (void)none;
  server_object *self = (server_object *)object;
  if (is_elsewhere(self)) return NULL;
  rv_error err;
  rv_code code;
  Py_BEGIN_ALLOW_THREADS
  code = rv_server_reload_tls(self->server, &err);
  Py_END_ALLOW_THREADS
  if (code == RV_OK) Py_RETURN_NONE;
  core_raise(self->state, &err);
  return NULL;
}

static PyObject *server_set_identities(PyObject *object, PyObject *list)
{
  server_object *self = (server_object *)object;
  if (is_elsewhere(self)) return NULL;
  rv_error err = {.code = RV_OK};
  const rv_identity *identities;
  size_t count;
  scratch s;
  scratch_init(&s);
  rv_code code = RV_OK;
  bool ok = security_identities(&s, list, &identities, &count);
  if (ok) {
    Py_BEGIN_ALLOW_THREADS
    code = rv_server_set_identities(self->server, identities, count, &err);
    Py_END_ALLOW_THREADS
    if (code != RV_OK) core_raise(self->state, &err);
  }
  scratch_fini(&s);
  if (!ok || code != RV_OK) return NULL;
  Py_RETURN_NONE;
}

static PyMethodDef server_methods[] = {
    {"reload_tls", server_reload_tls, METH_NOARGS, "reload_tls($self, /)\n--\n\nReads the files of its TLS again."},
    {"set_identities", server_set_identities, METH_O,
     "set_identities($self, identities, /)\n--\n\nTakes the place of those that it has."},
    {"ports", server_ports, METH_NOARGS, "ports($self, /)\n--\n\nThe port each address is bound to; 0 for a unix socket."},
    {"stop", server_stop, METH_VARARGS,
     "stop($self, drain_ms=0, /)\n--\n\nStops serving; calls in progress get drain_ms to finish."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot server_slots[] = {
    {Py_tp_doc, "Server(store, addresses, io_threads=0, max_message_bytes=0, max_connections=0, max_streams=0, max_writers=0, "
                "writer_ttl_ms=0, "
                "checkpointer=None, checkpoint_every_ms=0, checkpoint_every_inserts=0, checkpoint_journal_bytes=0, tls=None, "
                "identities=None, "
                "peer_timeout_ms=0, max_connections_per_address=0, max_streams_per_identity=0, max_bytes_per_identity=0, "
                "shared_memory=True)\n--\n\nOffers a store to other processes."},
    {Py_tp_new, CORE_SLOT(server_tp_new)},
    {Py_tp_dealloc, CORE_SLOT(server_dealloc)},
    {Py_tp_methods, server_methods},
    {0, NULL}};

PyType_Spec server_spec = {
    .name = "reverie._core.Server",
    .basicsize = sizeof(server_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = server_slots,
};
