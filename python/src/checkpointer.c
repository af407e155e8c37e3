/* Where a server's checkpoints go, and saving one from this process. */
#include "reverie/checkpoint.h"

#include <time.h>

#include "log.h"
#include "types.h"

/* ---- waiting ---- */

static int64_t now_ns(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static bool checkpoint_go_on(void *context, const rv_checkpoint_progress *progress)
{
  checkpoint_wait *self = context;
  (void)progress;
  int64_t now = now_ns();
  self->late = now >= self->deadline_ns;
  if (self->late) return false;
  if (now < self->next_look_ns) return true;
  self->next_look_ns = now + 50000000;
  return !self->wait.wait.interrupted(self->wait.wait.context);
}

void checkpoint_wait_begin(checkpoint_wait *self, int64_t timeout_ms)
{
  int64_t now = now_ns();
  self->watch = (rv_checkpoint_watch){.size = sizeof self->watch, .go_on = checkpoint_go_on, .context = self};
  self->deadline_ns = timeout_ms < 0 || timeout_ms > (INT64_MAX - now) / 1000000 ? INT64_MAX : now + timeout_ms * 1000000;
  self->next_look_ns = now;
  self->late = false;
  core_wait_begin(&self->wait, RV_FOREVER, NULL);
}

/* ---- the type ---- */

static PyObject *checkpointer_tp_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
  static char *names[] = {"path", "group", "fallback_path", "keep", "level", "incremental", "required", "fresh", NULL};
  rv_checkpointer_config config = {.size = sizeof config};
  unsigned int keep = 0;
  int level = 0, incremental = 0, required = 0, fresh = 0;
  PyObject *path, *fallback = NULL;
  core_state *state = core_state_of_type(type);
  if (state == NULL) return NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|sO&Iippp:Checkpointer", names, PyUnicode_FSConverter, &path, &config.group,
                                   PyUnicode_FSConverter, &fallback, &keep, &level, &incremental, &required, &fresh)) {
    return NULL;
  }
  rv_env env;
  checkpointer_object *self = log_env(state, &env) < 0 ? NULL : PyObject_New(checkpointer_object, type);
  if (self != NULL) {
    self->state = state;
    self->checkpointer = NULL;
    config.path = PyBytes_AsString(path);
    config.fallback_path = fallback == NULL ? NULL : PyBytes_AsString(fallback);
    config.keep = keep;
    config.level = level;
    config.incremental = incremental != 0;
    config.required = required != 0;
    config.fresh = fresh != 0;
    config.env = &env;
    rv_error err;
    if (rv_checkpointer_new(&config, &self->checkpointer, &err) != RV_OK) {
      core_raise(state, &err);
      Py_CLEAR(self);
    }
  }
  Py_DECREF(path);
  Py_XDECREF(fallback);
  return (PyObject *)self;
}

static void checkpointer_dealloc(PyObject *object)
{
  PyTypeObject *type = Py_TYPE(object);
  rv_checkpointer_unref(((checkpointer_object *)object)->checkpointer);
  PyObject_Free(object);
  Py_DECREF(type);
}

/* Ends the wait; the path, or the exception. */
static PyObject *saved_path(checkpointer_object *self, checkpoint_wait *wait, rv_code code, char *owned_path, rv_error *err)
{
  core_wait_end(&wait->wait, code);
  if (code == RV_CANCELLED && wait->late) {
    PyErr_Format(self->state->errors[RV_DEADLINE_EXCEEDED], "the timeout passed: %s", err->message);
    return NULL;
  }
  if (code != RV_OK) return core_wait_raise(self->state, &wait->wait, err);
  PyObject *out = PyUnicode_DecodeFSDefault(owned_path);
  free(owned_path);
  return out;
}

static PyObject *checkpointer_save(PyObject *object, PyObject *args)
{
  checkpointer_object *self = (checkpointer_object *)object;
  PyObject *store, *timeout = Py_None;
  int64_t timeout_ms;
  if (!PyArg_ParseTuple(args, "O!|O:save", self->state->store_type, &store, &timeout)) return NULL;
  if (core_timeout(timeout, RV_FOREVER, &timeout_ms) < 0 || store_check((store_object *)store) < 0) return NULL;
  checkpoint_wait wait;
  rv_error err;
  char *path = NULL;
  checkpoint_wait_begin(&wait, timeout_ms);
  rv_code code = rv_checkpointer_save(self->checkpointer, ((store_object *)store)->store, &wait.watch, &path, &err);
  return saved_path(self, &wait, code, path, &err);
}

static PyObject *checkpointer_export(PyObject *object, PyObject *args)
{
  checkpointer_object *self = (checkpointer_object *)object;
  PyObject *checkpoint, *timeout = Py_None;
  int64_t timeout_ms;
  if (!PyArg_ParseTuple(args, "O&|O:export", PyUnicode_FSConverter, &checkpoint, &timeout)) return NULL;
  if (core_timeout(timeout, RV_FOREVER, &timeout_ms) < 0) {
    Py_DECREF(checkpoint);
    return NULL;
  }
  checkpoint_wait wait;
  rv_error err;
  char *path = NULL;
  const char *text = PyBytes_AsString(checkpoint);
  checkpoint_wait_begin(&wait, timeout_ms);
  rv_code code = rv_checkpoint_export(text, self->checkpointer, &wait.watch, &path, &err);
  PyObject *out = saved_path(self, &wait, code, path, &err);
  Py_DECREF(checkpoint);
  return out;
}

static PyMethodDef checkpointer_methods[] = {
    {"save", checkpointer_save, METH_VARARGS,
     "save($self, store, timeout=None, /)\n--\n\nSaves a store of this process; returns the checkpoint's path."},
    {"export", checkpointer_export, METH_VARARGS,
     "export($self, checkpoint, timeout=None, /)\n--\n\nMakes one of Reverb's format of a checkpoint; returns its path."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot checkpointer_slots[] = {
    {Py_tp_doc, "Checkpointer(path, group='', fallback_path='', keep=0, level=0, incremental=False, required=False, "
                "fresh=False)\n--\n\nSaves and restores stores."},
    {Py_tp_new, CORE_SLOT(checkpointer_tp_new)},
    {Py_tp_dealloc, CORE_SLOT(checkpointer_dealloc)},
    {Py_tp_methods, checkpointer_methods},
    {0, NULL}};

PyType_Spec checkpointer_spec = {
    .name = "reverie._core.Checkpointer",
    .basicsize = sizeof(checkpointer_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = checkpointer_slots,
};
