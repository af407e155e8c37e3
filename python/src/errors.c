#include "core.h"

/* A name that was cut within a character, and what another server says, is no reason to fail. */
PyObject *core_sentence(const rv_error *err)
{
  return PyUnicode_DecodeUTF8(err->message, (Py_ssize_t)strlen(err->message), "replace");
}

PyObject *core_raise(core_state *state, const rv_error *err)
{
  size_t code = (size_t)err->code;
  PyObject *type = code < CORE_CODES ? state->errors[code] : state->errors[RV_UNKNOWN];
  PyObject *text = core_sentence(err);
  if (text == NULL) return NULL;
  PyErr_SetObject(type, text);
  Py_DECREF(text);
  return NULL;
}

/* Or of a class of its own that is one, such as Parameter: somewhere among its bases is PyTorch's. */
bool core_is_tensor(PyObject *value)
{
  PyObject *type, *set, *traceback;
  PyErr_Fetch(&type, &set, &traceback);
  PyObject *bases = PyObject_GetAttrString((PyObject *)Py_TYPE(value), "__mro__");
  bool is = false;
  for (Py_ssize_t i = 0; !is && bases != NULL && i < PyTuple_Size(bases); i++) {
    PyObject *module = PyObject_GetAttrString(PyTuple_GetItem(bases, i), "__module__");
    is = module != NULL && PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "torch") == 0;
    Py_XDECREF(module);
  }
  Py_XDECREF(bases);
  PyErr_Restore(type, set, traceback); /* and no other */
  return is;
}

PyObject *core_take_refusal(bool of_tensor)
{
  if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_ValueError) &&
      !(of_tensor && PyErr_ExceptionMatches(PyExc_RuntimeError)))
    return NULL;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyObject *text = PyObject_Str(value);
  if (text == NULL) {
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    return NULL;
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return text;
}

bool core_clear_refusal(void)
{
  if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_ValueError) &&
      !PyErr_ExceptionMatches(PyExc_OverflowError))
    return false;
  PyErr_Clear();
  return true;
}

void core_prefix_error(PyObject *what)
{
  bool is_type_error = PyErr_ExceptionMatches(PyExc_TypeError);
  PyObject *text = core_take_refusal(false);
  if (text == NULL) return;
  PyErr_Format(is_type_error ? PyExc_TypeError : PyExc_ValueError, "%R: %U", what, text);
  Py_DECREF(text);
}

core_state *core_state_of_type(PyTypeObject *type)
{
  for (; type != NULL; type = (PyTypeObject *)PyType_GetSlot(type, Py_tp_base)) {
    void *state = PyType_GetModuleState(type);
    if (state != NULL) return state;
    PyErr_Clear();
  }
  PyErr_SetString(PyExc_SystemError, "a type of reverie._core lost its module");
  return NULL;
}
