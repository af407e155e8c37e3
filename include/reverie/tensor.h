/* Tensors as callers see them: a dtype, a shape and row-major little-endian elements that somebody else owns.
 *
 * dtype numbers are TensorFlow's DataType values, as they stand on the wire and in checkpoints. A string tensor's data is an
 * array of rv_bytes, one per element, row-major. */
#ifndef REVERIE_TENSOR_H
#define REVERIE_TENSOR_H

#include "reverie/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RV_MAX_RANK 32 /* of one step's cell; with time, a column has up to 33 dimensions */

typedef enum rv_dtype {
  RV_DTYPE_INVALID = 0,
  RV_FLOAT32 = 1,
  RV_FLOAT64 = 2,
  RV_INT32 = 3,
  RV_UINT8 = 4,
  RV_INT16 = 5,
  RV_INT8 = 6,
  RV_STRING = 7,
  RV_COMPLEX64 = 8,
  RV_INT64 = 9,
  RV_BOOL = 10,
  RV_QINT8 = 11,
  RV_QUINT8 = 12,
  RV_QINT32 = 13,
  RV_BFLOAT16 = 14,
  RV_QINT16 = 15,
  RV_QUINT16 = 16,
  RV_UINT16 = 17,
  RV_COMPLEX128 = 18,
  RV_FLOAT16 = 19,
  RV_UINT32 = 22,
  RV_UINT64 = 23,
  RV_FLOAT8_E5M2 = 24,
  RV_FLOAT8_E4M3FN = 25,
  RV_INT4 = 29,
  RV_UINT4 = 30
} rv_dtype;

typedef struct rv_bytes {
  const void *data;
  size_t size;
} rv_bytes;

/* A borrowed view of a tensor: shape and data must outlive the call it is passed to, no longer. */
typedef struct rv_tensor {
  rv_dtype dtype;
  uint32_t rank;        /* 0..RV_MAX_RANK for a step's cell */
  const int64_t *shape; /* rank sizes, each >= 0; may be NULL when rank is 0 */
  const void *data;     /* contiguous, row-major; rv_bytes[] for RV_STRING; may be NULL when there are no elements */
} rv_tensor;

/* What a table expects of one column. */
typedef struct rv_spec {
  const char *name; /* UTF-8, "" when unnamed */
  rv_dtype dtype;
  int32_t rank;         /* -1: unknown */
  const int64_t *shape; /* rank sizes; -1: any size */
} rv_spec;

/* A table's signature: the flat specs in column order, and the nest they came from (a serialized tensorflow.StructuredValue,
 * which the store keeps and hands back unread; size 0 when there is none). Whoever takes an rv_signature copies it. */
typedef struct rv_signature {
  const rv_spec *specs;
  size_t num_specs;
  rv_bytes structure;
} rv_signature;

/* Are the columns of an item called as in the signature? A name is the column's place in its nest, "obs/pixels" or "actions/0"; NULL
 * where there is none. Columns are matched by order, and names are compared only where both sides have one (indices are none) at
 * the same depth; another number of columns is not looked at. RV_INVALID_ARGUMENT: the sentence names the column and what the
 * signature calls it. */
RV_API rv_code rv_signature_check_names(const rv_signature *signature, const char *table, const char *const *names,
                                        size_t num_names, rv_error *err);

/* Bytes of one element: 4 for RV_FLOAT32; sizeof(rv_bytes) for RV_STRING; 0 for a number that is no dtype. */
RV_API size_t rv_dtype_size(rv_dtype dtype);

/* "float32", "bfloat16", "string"; "invalid" for a number that is no dtype. Static storage. */
RV_API const char *rv_dtype_name(rv_dtype dtype);

/* The dtype of a name that rv_dtype_name gives; RV_DTYPE_INVALID for any other. */
RV_API rv_dtype rv_dtype_from_name(const char *name);

#ifdef __cplusplus
}
#endif
#endif
