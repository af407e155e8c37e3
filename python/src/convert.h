/* Python values <-> tensors. */
#ifndef RV_PYTHON_CONVERT_H
#define RV_PYTHON_CONVERT_H

#include "scratch.h"
#include "types.h"

/* A view of the value: an array, a NumPy or Python scalar, str, bytes, or whatever NumPy makes an array of. Data is native,
 * contiguous and aligned, converted into the scratch where it is not so already; the value itself is the caller's to keep alive.
 * A Python int or float takes the dtype `wanted` if that is a numeric one, and a complex one if that is complex, ValueError where it is
 * larger than that holds (RV_DTYPE_INVALID: int64, float64 and complex128). -1 with TypeError, which names the dtype or type that cannot be stored, ValueError, or what
 * the value raised when it was asked. */
int tensor_from_object(core_state *state, scratch *s, PyObject *value, rv_dtype wanted, rv_tensor *out);

/* The same of leaf i of a structure: an error begins with its path. */
int tensor_from_leaf(const structure_object *structure, size_t i, scratch *s, PyObject *value, rv_dtype wanted, rv_tensor *out);

/* The dtype of an array; RV_DTYPE_INVALID if it is none that can be stored. Strings of any kind: RV_STRING. */
rv_dtype dtype_of_array(const core_state *state, PyArrayObject *array);
int tensor_bad_dtype(PyObject *array); /* raises the TypeError; -1 */

/* A new array for `rank` sizes; its elements are not set (objects: None). */
PyArrayObject *array_new(core_state *state, rv_dtype dtype, uint32_t rank, const int64_t *shape);
/* An array over memory that `base` keeps alive (a reference is taken). */
PyArrayObject *array_over(core_state *state, rv_dtype dtype, uint32_t rank, const int64_t *shape, void *data, PyObject *base,
                          bool writable);
/* Writes n strings into an object array's memory, as bytes objects. -1 with MemoryError. */
int array_set_strings(PyArrayObject *array, size_t first, const rv_bytes *strings, size_t n);

#endif
