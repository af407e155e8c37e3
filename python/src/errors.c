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

PyObject *core_take_refusal(void)
{
  if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_ValueError)) return NULL;
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
  PyObject *text = core_take_refusal();
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
