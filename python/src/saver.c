/* Checkpoints of a store that no server listens for, saved by time and by inserts. */
#include <sys/types.h>
#include <unistd.h>

#include "reverie/checkpoint.h"
#include "types.h"

typedef struct saver_object {
  PyObject_HEAD
  rv_saver *saver;
  pid_t pid; /* of the process whose thread saves */
} saver_object;

static PyObject *saver_tp_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
  static char *names[] = {"store", "checkpointer", "every_ms", "every_inserts", "every_journal_bytes", NULL};
  core_state *state = core_state_of_type(type);
  if (state == NULL) return NULL;
  PyObject *store, *checkpointer;
  long long every_ms, every_inserts, journal_bytes = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!LL|L:Saver", names, state->store_type, &store, state->checkpointer_type,
                                   &checkpointer, &every_ms, &every_inserts, &journal_bytes)) {
    return NULL;
  }
  saver_object *self = PyObject_New(saver_object, type);
  if (self == NULL) return NULL;
  self->saver = NULL;
  self->pid = getpid();
  const rv_saver_config config = {.size = sizeof config,
                                  .store = ((store_object *)store)->store,
                                  .checkpointer = ((checkpointer_object *)checkpointer)->checkpointer,
                                  .every_ms = every_ms,
                                  .every_inserts = every_inserts,
                                  .every_journal_bytes = journal_bytes};
  rv_error err;
  rv_code code;
  Py_BEGIN_ALLOW_THREADS /* writes to the directory */
  code = rv_saver_new(&config, &self->saver, &err);
  Py_END_ALLOW_THREADS
  if (code != RV_OK) {
    core_raise(state, &err);
    Py_CLEAR(self);
  }
  return (PyObject *)self;
}

static void stop(saver_object *self)
{
  rv_saver *saver = self->saver;
  self->saver = NULL;
  if (saver == NULL || self->pid != getpid()) return; /* a forked child: its thread is not here */
  Py_BEGIN_ALLOW_THREADS
  rv_saver_free(saver);
  Py_END_ALLOW_THREADS
}

static void saver_dealloc(PyObject *object)
{
  PyTypeObject *type = Py_TYPE(object);
  stop((saver_object *)object);
  PyObject_Free(object);
  Py_DECREF(type);
}

static PyObject *saver_stop(PyObject *object, PyObject *none)
{
  (void)none;
  stop((saver_object *)object);
  Py_RETURN_NONE;
}

static PyMethodDef saver_methods[] = {
    {"stop", saver_stop, METH_NOARGS, "stop($self, /)\n--\n\nEnds what is being saved, and saves no more."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot saver_slots[] = {
    {Py_tp_doc, "Saver(store, checkpointer, every_ms, every_inserts, every_journal_bytes=0)\n--\n\nSaves a store by itself."},
    {Py_tp_new, CORE_SLOT(saver_tp_new)},
    {Py_tp_dealloc, CORE_SLOT(saver_dealloc)},
    {Py_tp_methods, saver_methods},
    {0, NULL}};

PyType_Spec saver_spec = {
    .name = "reverie._core.Saver",
    .basicsize = sizeof(saver_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = saver_slots,
};
