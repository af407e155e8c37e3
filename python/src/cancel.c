/* What ends calls that wait, from another thread. */
#include "types.h"

static PyObject *cancel_tp_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
  static char *names[] = {NULL};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":Cancel", names)) return NULL;
  core_state *state = core_state_of_type(type);
  cancel_object *self = state == NULL ? NULL : PyObject_New(cancel_object, type);
  if (self == NULL) return NULL;
  rv_error err;
  self->cancel = NULL;
  if (rv_cancel_new(&self->cancel, &err) != RV_OK) {
    Py_DECREF((PyObject *)self);
    return core_raise(state, &err);
  }
  return (PyObject *)self;
}

static void cancel_dealloc(PyObject *object)
{
  PyTypeObject *type = Py_TYPE(object);
  rv_cancel_free(((cancel_object *)object)->cancel);
  PyObject_Free(object);
  Py_DECREF((PyObject *)type);
}

static PyObject *cancel_fire(PyObject *object, PyObject *none)
{
  (void)none;
  rv_cancel_fire(((cancel_object *)object)->cancel);
  Py_RETURN_NONE;
}

static PyMethodDef cancel_methods[] = {
    {"fire", cancel_fire, METH_NOARGS, "fire($self, /)\n--\n\nEnds every call that waits with it, and every later one."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot cancel_slots[] = {
    {Py_tp_doc, "Cancel()\n--\n\nEnds calls from another thread, with CancelledError. Fires once."},
    {Py_tp_new, CORE_SLOT(cancel_tp_new)},
    {Py_tp_dealloc, CORE_SLOT(cancel_dealloc)},
    {Py_tp_methods, cancel_methods},
    {0, NULL}};

PyType_Spec cancel_spec = {
    .name = "reverie.Cancel",
    .basicsize = sizeof(cancel_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = cancel_slots,
};
