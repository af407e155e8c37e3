#include <string.h>

#include "reverie/tensor.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements lie in memory as they stand on the wire: little endian");

typedef struct dtype_row {
  const char *name;
  size_t size;
} dtype_row;

static const dtype_row rows[] = {
    [RV_FLOAT32] = {"float32", 4},
    [RV_FLOAT64] = {"float64", 8},
    [RV_INT32] = {"int32", 4},
    [RV_UINT8] = {"uint8", 1},
    [RV_INT16] = {"int16", 2},
    [RV_INT8] = {"int8", 1},
    [RV_STRING] = {"string", sizeof(rv_bytes)},
    [RV_COMPLEX64] = {"complex64", 8},
    [RV_INT64] = {"int64", 8},
    [RV_BOOL] = {"bool", 1},
    [RV_QINT8] = {"qint8", 1},
    [RV_QUINT8] = {"quint8", 1},
    [RV_QINT32] = {"qint32", 4},
    [RV_BFLOAT16] = {"bfloat16", 2},
    [RV_QINT16] = {"qint16", 2},
    [RV_QUINT16] = {"quint16", 2},
    [RV_UINT16] = {"uint16", 2},
    [RV_COMPLEX128] = {"complex128", 16},
    [RV_FLOAT16] = {"float16", 2},
    [RV_UINT32] = {"uint32", 4},
    [RV_UINT64] = {"uint64", 8},
    [RV_FLOAT8_E5M2] = {"float8_e5m2", 1},
    [RV_FLOAT8_E4M3FN] = {"float8_e4m3fn", 1},
    [RV_INT4] = {"int4", 1},
    [RV_UINT4] = {"uint4", 1},
};

enum { NUM_ROWS = sizeof rows / sizeof rows[0] };

size_t rv_dtype_size(rv_dtype dtype)
{
  size_t index = (size_t)dtype;
  return index < NUM_ROWS ? rows[index].size : 0;
}

const char *rv_dtype_name(rv_dtype dtype)
{
  size_t index = (size_t)dtype;
  return index < NUM_ROWS && rows[index].name != NULL ? rows[index].name : "invalid";
}

rv_dtype rv_dtype_from_name(const char *name)
{
  for (size_t i = 0; name != NULL && i < NUM_ROWS; i++)
    if (rows[i].name != NULL && strcmp(rows[i].name, name) == 0) return (rv_dtype)i;
  return RV_DTYPE_INVALID;
}
