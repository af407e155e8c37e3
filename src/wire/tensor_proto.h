/* tensorflow.TensorProto as chunks hold it: dtype, shape, content, and for strings also string_val. */
#ifndef RV_WIRE_TENSOR_PROTO_H
#define RV_WIRE_TENSOR_PROTO_H

#include "tensor/codec.h"
#include "wire/proto.h"

#define RV_TENSOR_MAX_DIMS (RV_MAX_RANK + 1)

typedef struct rv_shape_proto {
  uint32_t rank;
  bool unknown_rank;
  int64_t sizes[RV_TENSOR_MAX_DIMS];
} rv_shape_proto;

/* Adds a TensorShapeProto's dimensions to those there are. RV_INVALID_ARGUMENT for more than RV_TENSOR_MAX_DIMS. */
rv_code rv_shape_proto_parse(rv_span message, rv_shape_proto *out, rv_error *err);
void rv_shape_proto_put(rv_writer_buf *out, uint32_t field, uint32_t rank, const int64_t *sizes);

typedef struct rv_tensor_proto {
  int32_t dtype;
  rv_shape_proto shape;
  rv_span content;
  size_t num_strings; /* values of string_val */
} rv_tensor_proto;

rv_code rv_tensor_proto_parse(rv_span message, rv_tensor_proto *out, rv_error *err);
/* The tensor has its strings in string_val and not in its content. */
bool rv_tensor_proto_in_values(const rv_tensor_proto *tensor);
/* Writes it (without the field header) with the strings of string_val as content; where there are fewer values than elements, the
 * last is repeated. RV_INVALID_ARGUMENT if that takes more than `max_bytes`. */
rv_code rv_tensor_proto_rewrite(rv_writer_buf *out, rv_span message, const rv_tensor_proto *tensor, size_t max_bytes,
                                rv_error *err);

#endif
