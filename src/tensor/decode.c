#include <snappy-c.h>
#include <string.h>

#include "base/error.h"
#include "tensor/codec.h"
#include "tensor/delta.h"
#include "tensor/literal.h"
#include "tensor/strings.h"

static rv_code tensor_size(const rv_encoded *tensor, size_t *elements, size_t *bytes, rv_error *err)
{
  if (tensor->rank == 0)
    return rv_fail(err, RV_INVALID_ARGUMENT, "a chunk's tensor without dimensions; dimension 0 must be time");
  return rv_shape_elements(tensor->dtype, tensor->rank, tensor->shape, elements, bytes, err);
}

static rv_code check_block(const rv_encoded *tensor, size_t bytes, rv_code code, rv_error *err)
{
  if (rv_block_announces(tensor->content, tensor->content_size, bytes)) return RV_OK;
  return rv_fail(err, code, "%zu bytes of content are no snappy block of the %zu bytes that %s of this shape takes",
                 tensor->content_size, bytes, rv_dtype_name(tensor->dtype));
}

rv_code rv_encoded_check(const rv_encoded *tensor, rv_error *err)
{
  size_t elements = 0, bytes = 0;
  rv_code code = tensor_size(tensor, &elements, &bytes, err);
  if (code != RV_OK) return code;
  if (tensor->dtype != RV_STRING) return check_block(tensor, bytes, RV_INVALID_ARGUMENT, err);
  code = rv_strings_decode(tensor->content, tensor->content_size, elements, NULL, err);
  if (code == RV_OK) return RV_OK;
  if (err != NULL) err->code = RV_INVALID_ARGUMENT;
  return RV_INVALID_ARGUMENT;
}

static bool is_delta(const rv_encoded *tensor)
{
  return tensor->delta && tensor->shape[0] > 1 && rv_delta_applies(tensor->dtype, tensor->rank);
}

rv_code rv_decode(const rv_encoded *tensor, void *out, size_t out_size, rv_error *err)
{
  size_t elements = 0, bytes = 0;
  rv_code code = tensor_size(tensor, &elements, &bytes, err);
  if (code != RV_OK) return code;
  if (out_size != bytes)
    return rv_fail(err, RV_INVALID_ARGUMENT, "the tensor takes %zu bytes; %zu were given to decode it into", bytes, out_size);
  if (tensor->dtype == RV_STRING) return rv_strings_decode(tensor->content, tensor->content_size, elements, out, err);
  code = check_block(tensor, bytes, RV_DATA_LOSS, err);
  if (code != RV_OK) return code;
  const uint8_t *literal = rv_literal_find(tensor->content, tensor->content_size, bytes);
  if (literal != NULL) {
    if (bytes > 0) memcpy(out, literal, bytes);
  } else {
    char none;
    size_t size = bytes;
    char *to = bytes > 0 ? out : &none;
    if (snappy_uncompress((const char *)tensor->content, tensor->content_size, to, &size) != SNAPPY_OK || size != bytes)
      return rv_fail(err, RV_DATA_LOSS, "the snappy block of a %s tensor of %zu bytes is broken", rv_dtype_name(tensor->dtype),
                     bytes);
  }
  if (is_delta(tensor))
    rv_delta_undo(out, (size_t)tensor->shape[0], bytes / (size_t)tensor->shape[0], rv_dtype_size(tensor->dtype));
  return RV_OK;
}

const uint8_t *rv_encoded_raw(const rv_encoded *tensor)
{
  size_t elements = 0, bytes = 0;
  if (tensor->dtype == RV_STRING || tensor_size(tensor, &elements, &bytes, NULL) != RV_OK || is_delta(tensor)) return NULL;
  return rv_literal_find(tensor->content, tensor->content_size, bytes);
}
