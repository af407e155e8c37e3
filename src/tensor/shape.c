#include "base/error.h"
#include "tensor/codec.h"

rv_code rv_fail_no_shape(rv_error *err, uint32_t rank)
{
  return rv_fail(err, RV_INVALID_ARGUMENT, "its rank is %u and its shape NULL; give %u size%s, or rank 0 for a scalar",
                 (unsigned)rank, (unsigned)rank, rank == 1 ? "" : "s");
}

rv_code rv_shape_elements(rv_dtype dtype, uint32_t rank, const int64_t *shape, size_t *elements, size_t *bytes, rv_error *err)
{
  size_t size = rv_dtype_size(dtype);
  if (size == 0)
    return rv_fail(err, RV_INVALID_ARGUMENT, "dtype number %d is none that Reverie knows; use one of rv_dtype", (int)dtype);
  if (rank > RV_MAX_RANK + 1)
    return rv_fail(err, RV_INVALID_ARGUMENT, "a tensor of %u dimensions; at most %d are possible", (unsigned)rank,
                   RV_MAX_RANK + 1);
  if (rank > 0 && shape == NULL) return rv_fail_no_shape(err, rank);
  /* A size of zero makes the tensor empty, but the others must still fit: a row's bytes are computed from them alone. */
  int64_t product = (int64_t)size;
  bool empty = false;
  for (uint32_t i = 0; i < rank; i++) {
    if (shape[i] < 0)
      return rv_fail(err, RV_INVALID_ARGUMENT, "dimension %u has the negative size %lld", (unsigned)i, (long long)shape[i]);
    if (shape[i] == 0)
      empty = true;
    else if (__builtin_mul_overflow(product, shape[i], &product))
      return rv_fail(err, RV_INVALID_ARGUMENT, "the sizes of its shape multiply to more bytes than 63 bits count");
  }
  *bytes = empty ? 0 : (size_t)product;
  *elements = *bytes / size;
  return RV_OK;
}
