#include <math.h>

#include "core.h"

static int find_name(const core_signature *signature, PyObject *name)
{
  for (int i = 0; i < signature->count; i++) {
    if (PyUnicode_CompareWithASCIIString(name, signature->names[i]) == 0) return i;
  }
  PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", signature->function, name);
  return -1;
}

/* Whoever gives too many mostly means the next one that has to be named. */
static int too_many(const core_signature *signature, Py_ssize_t given)
{
  const char *plural = signature->positional == 1 ? "" : "s";
  if (signature->count > signature->positional)
    PyErr_Format(PyExc_TypeError, "%s() takes at most %d positional argument%s (%zd given); give the next by its name: %s=...",
                 signature->function, signature->positional, plural, given, signature->names[signature->positional]);
  else
    PyErr_Format(PyExc_TypeError, "%s() takes at most %d positional argument%s (%zd given)", signature->function,
                 signature->positional, plural, given);
  return -1;
}

int core_parse(const core_signature *signature, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **out)
{
  if (nargs > signature->positional) return too_many(signature, nargs);
  for (int i = 0; i < signature->count; i++) out[i] = i < nargs ? args[i] : NULL;
  if (kwnames == NULL && nargs >= signature->required) return 0;
  Py_ssize_t num_keywords = kwnames == NULL ? 0 : PyTuple_Size(kwnames);
  for (Py_ssize_t i = 0; i < num_keywords; i++) {
    int at = find_name(signature, PyTuple_GetItem(kwnames, i));
    if (at < 0) return -1;
    if (out[at] != NULL) {
      PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%s'", signature->function, signature->names[at]);
      return -1;
    }
    out[at] = args[nargs + i];
  }
  for (int i = 0; i < signature->required; i++) {
    if (out[i] != NULL) continue;
    PyErr_Format(PyExc_TypeError, "%s() missing required argument: '%s'", signature->function, signature->names[i]);
    return -1;
  }
  return 0;
}

int core_timeout(PyObject *seconds, int64_t otherwise, int64_t *out)
{
  *out = otherwise;
  if (seconds == NULL) return 0;
  *out = RV_FOREVER;
  if (seconds == Py_None) return 0;
  double value = core_is_complex(seconds) ? -1.0 : PyFloat_AsDouble(seconds);
  if (value == -1.0 && (PyErr_Occurred() || core_is_complex(seconds))) {
    bool too_large = PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_OverflowError);
    if (PyErr_Occurred() && !core_clear_refusal()) return -1;
    PyErr_Format(too_large ? PyExc_ValueError : PyExc_TypeError,
                 too_large ? "timeout is too large for a float: %R" : "timeout must be a number of seconds or None, got %R",
                 seconds);
    return -1;
  }
  if (isnan(value) || value < 0) {
    PyErr_Format(PyExc_ValueError, "timeout must be a number of seconds >= 0, or None to wait for ever, got %R", seconds);
    return -1;
  }
  if (value < 9e12) *out = (int64_t)ceil(value * 1000.0);
  return 0;
}

/* NULL with ValueError if it is not in UTF-8. */
static PyObject *decode(PyObject *bytes, const char *what)
{
  PyObject *text = PyUnicode_DecodeUTF8(PyBytes_AsString(bytes), PyBytes_Size(bytes), NULL);
  if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeError)) {
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "%s must be a str, or bytes of UTF-8, got %R; decode() it from the encoding that it has", what,
                 bytes);
  }
  return text;
}

const char *core_text(PyObject *text, const char *what)
{
  Py_ssize_t size;
  const char *utf8;
  if (PyBytes_Check(text)) {
    PyObject *decoded = decode(text, what);
    if (decoded == NULL) return NULL;
    Py_DECREF(decoded);
    utf8 = PyBytes_AsString(text);
    size = PyBytes_Size(text);
  } else if (PyUnicode_Check(text)) {
    utf8 = PyUnicode_AsUTF8AndSize(text, &size);
  } else {
    PyErr_Format(PyExc_TypeError, "%s must be a str, got %R", what, text);
    return NULL;
  }
  if (utf8 == NULL && PyErr_ExceptionMatches(PyExc_UnicodeError)) {
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "%s must be text that UTF-8 can encode, got %R", what, text);
  }
  if (utf8 != NULL && strlen(utf8) != (size_t)size) {
    PyErr_Format(PyExc_ValueError, "%s must not contain a NUL character, got %R", what, text);
    return NULL;
  }
  return utf8;
}

PyObject *core_str(PyObject *text, const char *what)
{
  if (core_text(text, what) == NULL) return NULL;
  if (PyBytes_Check(text)) return decode(text, what);
  Py_INCREF(text);
  return text;
}

bool core_path(PyObject *bytes, const char *what, const char **out)
{
  *out = NULL;
  if (bytes == Py_None) return true;
  if (!PyBytes_Check(bytes)) {
    PyErr_Format(PyExc_TypeError, "%s must be a path in bytes or None, got %R", what, bytes);
    return false;
  }
  *out = PyBytes_AsString(bytes);
  if (strlen(*out) == (size_t)PyBytes_Size(bytes)) return true;
  PyErr_Format(PyExc_ValueError, "%s must not contain a NUL character, got %R", what, bytes);
  return false;
}

int core_size(PyObject *value, const char *what, size_t least, size_t *out)
{
  PyObject *index = PyNumber_Index(value);
  if (index == NULL) {
    if (!core_clear_refusal()) return -1;
    PyErr_Format(PyExc_TypeError, "%s must be an integer, got %R", what, value);
    return -1;
  }
  int overflow;
  long long number = PyLong_AsLongLongAndOverflow(index, &overflow);
  Py_DECREF(index);
  if (overflow != 0 || number < (long long)least) {
    PyErr_Format(PyExc_ValueError, "%s must be %s, got %R", what,
                 least == 0 ? "an integer >= 0" : "a positive integer (and below 2**63)", value);
    return -1;
  }
  *out = (size_t)number;
  return 0;
}

int core_check_mask(PyArrayObject *array, const char *what)
{
  if (PyArray_CheckExact((PyObject *)array)) return 0;
  PyObject *module = PyImport_ImportModule("numpy.ma");
  PyObject *masked = module == NULL ? NULL : PyObject_CallMethod(module, "is_masked", "O", (PyObject *)array);
  const int is = masked == NULL ? -1 : PyObject_IsTrue(masked);
  Py_XDECREF(masked);
  Py_XDECREF(module);
  if (is <= 0) return is;
  PyErr_Format(
      PyExc_ValueError,
      "%s with masked elements, and no mask is kept: give array.filled(value), and the mask as an array of its own where it is "
      "needed",
      what);
  return -1;
}

bool core_holds_reals(PyArrayObject *array)
{
  const char kind = PyArray_DESCR(array)->kind;
  PyObject *const *objects = PyArray_DATA(array);
  for (npy_intp i = 0; kind == 'O' && i < PyArray_SIZE(array); i++) {
    if (objects[i] != NULL && core_is_complex(objects[i])) return false;
  }
  return strchr("biufO", kind) != NULL || (kind == 'V' && PyTypeNum_ISUSERDEF(PyArray_TYPE(array))); /* V: those of ml_dtypes */
}

/* The one number of an array, or of what NumPy makes one of. 0: it has none; -1 with an exception. */
static int one_number(PyObject *value, double *out)
{
  if (PyUnicode_Check(value) || PyBytes_Check(value) || value == Py_None) return 0;
  PyObject *given = PyArray_FromAny(value, NULL, 0, 0, NPY_ARRAY_CARRAY_RO, NULL), *array = NULL;
  if (given != NULL && PyArray_SIZE((PyArrayObject *)given) == 1 && core_holds_reals((PyArrayObject *)given))
    array =
        PyArray_FromArray((PyArrayObject *)given, PyArray_DescrFromType(NPY_DOUBLE), NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST);
  if (array != NULL) *out = *(const double *)PyArray_DATA((PyArrayObject *)array);
  Py_XDECREF(given);
  Py_XDECREF(array);
  if (array != NULL) return 1;
  return PyErr_Occurred() && !core_clear_refusal() ? -1 : 0;
}

int core_double(PyObject *value, const char *what, double *out)
{
  if (!core_is_complex(value)) {
    *out = PyFloat_AsDouble(value);
    if (*out != -1.0 || !PyErr_Occurred()) return 0;
    bool too_large = PyErr_ExceptionMatches(PyExc_OverflowError);
    if (!core_clear_refusal()) return -1;
    if (too_large) {
      PyErr_Format(PyExc_ValueError, "%s is too large for a float: %R", what, value);
      return -1;
    }
    int found = one_number(value, out);
    if (found != 0) return found < 0 ? -1 : 0;
  }
  PyErr_Format(PyExc_TypeError, "%s must be a number, got %R", what, value);
  return -1;
}
