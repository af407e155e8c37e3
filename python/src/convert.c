#include "convert.h"

#include <math.h>
#include <stddef.h>

#include <numpy/arrayscalars.h>

#if NPY_SIZEOF_INTP != 8
#error "npy_intp must have 64 bits: shapes are passed on without a copy"
#endif

rv_dtype dtype_of_array(const core_state *state, PyArrayObject *array)
{
  int type = PyArray_TYPE(array);
  if ((unsigned)type < 32) return state->dtype_of_builtin[type];
  for (size_t i = 0; i < sizeof state->ml_type / sizeof state->ml_type[0]; i++) {
    if (state->ml_type[i] == type) return state->ml_dtype[i];
  }
  char kind = PyArray_DESCR(array)->kind;
  return kind == 'T' ? RV_STRING : RV_DTYPE_INVALID;
}

int tensor_bad_dtype(PyObject *array)
{
  PyErr_Format(PyExc_TypeError,
               "dtype %S cannot be stored; use bool, int8 to int64, uint8 to uint64, float16 to float64, complex64, complex128, "
               "bfloat16, float8_e5m2, float8_e4m3fn, str or bytes",
               (PyObject *)PyArray_DESCR((PyArrayObject *)array));
  return -1;
}

static int scalar(scratch *s, rv_dtype dtype, const void *value, size_t size, rv_tensor *out)
{
  void *data = scratch_alloc(s, 1, size);
  if (data == NULL) return -1;
  memcpy(data, value, size);
  *out = (rv_tensor){.dtype = dtype, .rank = 0, .shape = NULL, .data = data};
  return 0;
}

/* ---- strings ---- */

static int copy_string(scratch *s, PyObject *object, rv_bytes *out)
{
  const char *data;
  Py_ssize_t size;
  if (PyUnicode_Check(object)) {
    data = PyUnicode_AsUTF8AndSize(object, &size);
    if (data == NULL) return -1;
  } else if (PyBytes_Check(object)) {
    char *bytes;
    if (PyBytes_AsStringAndSize(object, &bytes, &size) < 0) return -1;
    data = bytes;
  } else {
    const bool has_fields = PyObject_HasAttrString((PyObject *)Py_TYPE(object), "__dataclass_fields__");
    PyErr_Format(PyExc_TypeError, "an object of type %S cannot be stored; of objects only str and bytes can%s",
                 (PyObject *)Py_TYPE(object), has_fields ? "; give a dict of the dataclass's fields, as vars() makes it" : "");
    return -1;
  }
  /* Copied: somebody else may change the array while the GIL is released. */
  char *copy = scratch_alloc(s, 1, (size_t)size);
  if (copy == NULL) return -1;
  memcpy(copy, data, (size_t)size);
  *out = (rv_bytes){.data = copy, .size = (size_t)size};
  return 0;
}

static int tensor_from_string(scratch *s, PyObject *value, rv_tensor *out)
{
  rv_bytes *string = scratch_alloc(s, 1, sizeof *string);
  if (string == NULL || copy_string(s, value, string) < 0) return -1;
  *out = (rv_tensor){.dtype = RV_STRING, .rank = 0, .shape = NULL, .data = string};
  return 0;
}

static int tensor_from_strings(scratch *s, PyArrayObject *array, rv_tensor *out)
{
  PyArray_Descr *objects = PyArray_DescrFromType(NPY_OBJECT);
  PyArrayObject *plain = (PyArrayObject *)PyArray_FromArray(array, objects, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST);
  if (scratch_hold(s, (PyObject *)plain) < 0) return -1;
  size_t n = (size_t)PyArray_SIZE(plain);
  rv_bytes *strings = scratch_alloc(s, n, sizeof *strings);
  if (strings == NULL) return -1;
  PyObject **items = PyArray_DATA(plain);
  for (size_t i = 0; i < n; i++) {
    if (copy_string(s, items[i] == NULL ? Py_None : items[i], &strings[i]) < 0) return -1;
  }
  out->data = strings;
  return 0;
}

/* ---- arrays ---- */

/* A copy of the array's: it keeps its data as long as anybody refers to it, but whoever sets its shape frees the one before. */
static inline int shape_of(scratch *s, PyArrayObject *array, rv_tensor *out)
{
  const size_t rank = (size_t)PyArray_NDIM(array);
  const npy_intp *dims = PyArray_DIMS(array);
  out->rank = (uint32_t)rank;
  if (rank == 0) return 0;
  int64_t *shape = scratch_alloc(s, rank, sizeof *shape);
  if (shape == NULL) return -1;
  shape[0] = dims[0];
  if (rank > 1) memcpy(shape + 1, dims + 1, (rank - 1) * sizeof *shape); /* a call that most need not make */
  out->shape = shape;
  return 0;
}

static int tensor_from_array(core_state *state, scratch *s, PyArrayObject *array, rv_tensor *out)
{
  rv_dtype dtype = dtype_of_array(state, array);
  if (dtype == RV_DTYPE_INVALID) return tensor_bad_dtype((PyObject *)array);
  if (core_check_mask(array, "an array") < 0) return -1;
  int rank = PyArray_NDIM(array);
  if (rank > RV_MAX_RANK + 1) { /* a batch's leading dimension is no part of a row; the library knows the rest */
    PyErr_Format(PyExc_ValueError, "an array of %d dimensions cannot be stored; at most %d can", rank, RV_MAX_RANK);
    return -1;
  }
  *out = (rv_tensor){.dtype = dtype};
  if (shape_of(s, array, out) < 0) return -1;
  if (dtype == RV_STRING) return tensor_from_strings(s, array, out);
  if (!PyArray_ISCARRAY_RO(array)) {
    Py_INCREF((PyObject *)state->descr[dtype]);
    array = (PyArrayObject *)PyArray_FromArray(array, state->descr[dtype], NPY_ARRAY_CARRAY_RO);
    if (scratch_hold(s, (PyObject *)array) < 0 || shape_of(s, array, out) < 0) return -1;
  }
  out->data = PyArray_DATA(array);
  return 0;
}

/* ---- Python's own numbers ---- */

static bool integer_range(rv_dtype dtype, long long *least, unsigned long long *most)
{
  switch (dtype) {
  case RV_INT4: *least = -8, *most = 7; return true;
  case RV_UINT4: *least = 0, *most = 15; return true;
  case RV_INT8: *least = INT8_MIN, *most = INT8_MAX; return true;
  case RV_INT16: *least = INT16_MIN, *most = INT16_MAX; return true;
  case RV_INT32: *least = INT32_MIN, *most = INT32_MAX; return true;
  case RV_INT64: *least = INT64_MIN, *most = INT64_MAX; return true;
  case RV_UINT8: *least = 0, *most = UINT8_MAX; return true;
  case RV_UINT16: *least = 0, *most = UINT16_MAX; return true;
  case RV_UINT32: *least = 0, *most = UINT32_MAX; return true;
  case RV_UINT64: *least = 0, *most = UINT64_MAX; return true;
  default: return false;
  }
}

static int tensor_from_converted(core_state *state, scratch *s, PyObject *value, rv_dtype dtype, rv_tensor *out)
{
  Py_INCREF((PyObject *)state->descr[dtype]);
  PyObject *array = PyArray_FromAny(value, state->descr[dtype], 0, 0, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST, NULL);
  if (scratch_hold(s, array) < 0) return -1;
  return tensor_from_array(state, s, (PyArrayObject *)array, out);
}

/* Does the dtype have a finite number next to this one? From the bounds on they are rounded to infinity, or NaN where there is none. */
static bool holds_float(rv_dtype dtype, double number)
{
  if (!isfinite(number)) return true;
  double narrow = fabs((double)(float)number); /* through which all but float16 are made */
  switch (dtype) {
  case RV_FLOAT32:
  case RV_COMPLEX64: return isfinite(narrow);
  case RV_FLOAT16: return fabs(number) < 65520.0;
  case RV_BFLOAT16: return narrow < 0x1.ffp+127;
  case RV_FLOAT8_E5M2: return narrow < 61440.0;
  case RV_FLOAT8_E4M3FN: return narrow <= 464.0;
  default: return true;
  }
}

static int tensor_from_float(core_state *state, scratch *s, PyObject *value, double number, rv_dtype wanted, rv_tensor *out)
{
  if (!holds_float(wanted, number)) {
    PyErr_Format(PyExc_ValueError, "the number %R does not fit into %s", value, rv_dtype_name(wanted));
    return -1;
  }
  switch (wanted) {
  case RV_FLOAT32: {
    float narrow = (float)number;
    return scalar(s, RV_FLOAT32, &narrow, sizeof narrow, out);
  }
  case RV_FLOAT16:
  case RV_BFLOAT16:
  case RV_FLOAT8_E5M2:
  case RV_FLOAT8_E4M3FN:
  case RV_COMPLEX64:
  case RV_COMPLEX128: return tensor_from_converted(state, s, value, wanted, out);
  default: return scalar(s, RV_FLOAT64, &number, sizeof number, out);
  }
}

static int tensor_from_long(core_state *state, scratch *s, PyObject *value, rv_dtype wanted, rv_tensor *out)
{
  int overflow;
  long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  unsigned long long large = (unsigned long long)number;
  if (overflow > 0) {
    large = PyLong_AsUnsignedLongLong(value);
    if (large == (unsigned long long)-1 && PyErr_Occurred()) overflow = -1;
  }
  if (overflow < 0) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "the integer %S has more than 64 bits and cannot be stored", value);
    return -1;
  }
  long long least;
  unsigned long long most;
  if (integer_range(wanted, &least, &most)) {
    bool fits = overflow == 0 ? number >= least && (number < 0 || (unsigned long long)number <= most) : large <= most;
    if (!fits) {
      PyErr_Format(PyExc_ValueError, "the integer %S does not fit into %s", value, rv_dtype_name(wanted));
      return -1;
    }
    /* what ml_dtypes has in the other half of the byte is its own affair */
    if (wanted == RV_INT4 || wanted == RV_UINT4) return tensor_from_converted(state, s, value, wanted, out);
    return scalar(s, wanted, &large, rv_dtype_size(wanted), out); /* little-endian: the low bytes come first */
  }
  bool floating = wanted == RV_FLOAT32 || wanted == RV_FLOAT64 || wanted == RV_FLOAT16 || wanted == RV_BFLOAT16 ||
                  wanted == RV_FLOAT8_E5M2 || wanted == RV_FLOAT8_E4M3FN || wanted == RV_COMPLEX64 || wanted == RV_COMPLEX128;
  if (floating) return tensor_from_float(state, s, value, overflow == 0 ? (double)number : (double)large, wanted, out);
  return scalar(s, overflow == 0 ? RV_INT64 : RV_UINT64, &large, sizeof large, out);
}

static int tensor_from_complex(core_state *state, scratch *s, PyObject *value, rv_dtype wanted, rv_tensor *out)
{
  const double parts[] = {PyComplex_RealAsDouble(value), PyComplex_ImagAsDouble(value)};
  if (wanted != RV_COMPLEX64) return scalar(s, RV_COMPLEX128, parts, sizeof parts, out);
  if (holds_float(wanted, parts[0]) && holds_float(wanted, parts[1])) return tensor_from_converted(state, s, value, wanted, out);
  PyErr_Format(PyExc_ValueError, "the number %R does not fit into %s", value, rv_dtype_name(wanted));
  return -1;
}

/* A scalar of NumPy's of a numeric type, in place: it never changes. False: the value is none. */
static bool tensor_from_scalar(const core_state *state, PyObject *value, rv_tensor *out)
{
  _Static_assert(offsetof(PyByteScalarObject, obval) == sizeof(PyObject) &&
                     offsetof(PyDoubleScalarObject, obval) == sizeof(PyObject) &&
                     offsetof(PyCDoubleScalarObject, obval) == sizeof(PyObject),
                 "the value stands behind the head, whatever its type");
  size_t slot = core_scalar_slot(state, Py_TYPE(value));
  if (state->scalar_type[slot] == NULL) return false;
  *out =
      (rv_tensor){.dtype = state->scalar_dtype[slot], .rank = 0, .shape = NULL, .data = (const char *)value + sizeof(PyObject)};
  return true;
}

/* The TypeError for what NumPy makes no array of, with the reason; other errors on the way to it are told as they are. NumPy has no dtype
 * for some of PyTorch's, such as bfloat16, which can be stored all the same. -1. */
static int no_array(PyObject *value)
{
  const bool of_torch = core_is_tensor(value);
  PyObject *reason = core_take_refusal(of_torch);
  if (reason != NULL) {
    PyErr_Format(PyExc_TypeError, "a %S cannot be made an array of: %U%s", (PyObject *)Py_TYPE(value), reason,
                 of_torch ? "; reverie.torch.as_array makes one of a tensor on the host" : "");
    Py_DECREF(reason);
  }
  return -1;
}

/* Numbers in an array of NumPy's own, as C has them: nothing is converted. 0: it is none; 1: it is; -1: there is no memory. */
static int tensor_in_place(const core_state *state, scratch *s, PyObject *value, rv_tensor *out)
{
  PyArrayObject *array = (PyArrayObject *)value;
  if (!PyArray_CheckExact(value) || (unsigned)PyArray_TYPE(array) >= 32 || !PyArray_ISCARRAY_RO(array)) return 0;
  rv_dtype dtype = state->dtype_of_builtin[PyArray_TYPE(array)];
  if (dtype == RV_DTYPE_INVALID || dtype == RV_STRING || PyArray_NDIM(array) > RV_MAX_RANK + 1) return 0;
  *out = (rv_tensor){.dtype = dtype, .data = PyArray_DATA(array)};
  return shape_of(s, array, out) < 0 ? -1 : 1;
}

/* Any other value; apart, for what it needs on the stack is not for those above. */
static __attribute__((noinline)) int tensor_from_any(core_state *state, scratch *s, PyObject *value, rv_dtype wanted,
                                                     rv_tensor *out)
{
  if (PyArray_Check(value)) return tensor_from_array(state, s, (PyArrayObject *)value, out);
  if (PyFloat_Check(value) && !PyArray_IsScalar(value, Generic))
    return tensor_from_float(state, s, value, PyFloat_AsDouble(value), wanted, out);
  if (PyBool_Check(value)) {
    unsigned char truth = value == Py_True;
    return scalar(s, RV_BOOL, &truth, 1, out);
  }
  if (PyLong_Check(value)) return tensor_from_long(state, s, value, wanted, out);
  if (PyComplex_CheckExact(value)) return tensor_from_complex(state, s, value, wanted, out);
  if (PyUnicode_Check(value) || PyBytes_Check(value)) return tensor_from_string(s, value, out);
  if (value == Py_None) {
    PyErr_SetString(PyExc_TypeError, "None cannot be stored");
    return -1;
  }
  PyObject *array = PyArray_FromAny(value, NULL, 0, 0, NPY_ARRAY_CARRAY_RO, NULL);
  if (array == NULL) return no_array(value);
  if (scratch_hold(s, array) < 0) return -1;
  return tensor_from_array(state, s, (PyArrayObject *)array, out);
}

int tensor_from_object(core_state *state, scratch *s, PyObject *value, rv_dtype wanted, rv_tensor *out)
{
  const int in_place = tensor_in_place(state, s, value, out);
  if (in_place != 0) return in_place < 0 ? -1 : 0;
  if (tensor_from_scalar(state, value, out)) return 0;
  return tensor_from_any(state, s, value, wanted, out);
}

int tensor_from_leaf(const structure_object *structure, size_t i, scratch *s, PyObject *value, rv_dtype wanted, rv_tensor *out)
{
  if (tensor_from_object(structure->state, s, value, wanted, out) == 0) return 0;
  if (i < structure->num_leaves) tree_prefix_path(structure->root, structure->num_leaves, i);
  return -1;
}

/* ---- arrays out of tensors ---- */

/* Ours is more than NumPy 1 can show (32) and less than NumPy 2 can (64). */
static int check_rank(uint32_t rank)
{
  uint32_t most = PyArray_GetNDArrayCFeatureVersion() < 0x12 ? 32 : 64;
  if (rank <= most) return 0;
  PyErr_Format(PyExc_ValueError, "this NumPy shows arrays of at most %u dimensions, the data has %u", most, rank);
  return -1;
}

PyArrayObject *array_new(core_state *state, rv_dtype dtype, uint32_t rank, const int64_t *shape)
{
  if (check_rank(rank) < 0) return NULL;
  PyArray_Descr *descr = (unsigned)dtype < CORE_DTYPES ? state->descr[dtype] : NULL;
  if (descr == NULL) {
    PyErr_Format(PyExc_TypeError, "dtype %s has no NumPy equivalent", rv_dtype_name(dtype));
    return NULL;
  }
  Py_INCREF((PyObject *)descr);
  return (PyArrayObject *)PyArray_NewFromDescr(&PyArray_Type, descr, (int)rank, (const npy_intp *)shape, NULL, NULL, 0, NULL);
}

PyArrayObject *array_over(core_state *state, rv_dtype dtype, uint32_t rank, const int64_t *shape, void *data, PyObject *base,
                          bool writable)
{
  if (check_rank(rank) < 0) return NULL;
  Py_INCREF((PyObject *)state->descr[dtype]);
  PyArrayObject *array =
      (PyArrayObject *)PyArray_NewFromDescr(&PyArray_Type, state->descr[dtype], (int)rank, (const npy_intp *)shape, NULL, data,
                                            writable ? NPY_ARRAY_CARRAY : NPY_ARRAY_CARRAY_RO, NULL);
  if (array == NULL) return NULL;
  Py_INCREF(base);
  if (PyArray_SetBaseObject(array, base) < 0) {
    Py_DECREF(array);
    return NULL;
  }
  return array;
}

int array_set_strings(PyArrayObject *array, size_t first, const rv_bytes *strings, size_t n)
{
  PyObject **items = (PyObject **)PyArray_DATA(array) + first;
  for (size_t i = 0; i < n; i++) {
    PyObject *bytes = PyBytes_FromStringAndSize(strings[i].data, (Py_ssize_t)strings[i].size);
    if (bytes == NULL) return -1;
    PyObject *old = items[i];
    items[i] = bytes;
    Py_XDECREF(old);
  }
  return 0;
}
