#include "wire/tensor_proto.h"

#include "base/error.h"
#include "wire/parse.h"

static bool parse_dim(rv_span message, int64_t *size)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  *size = 0;
  while (rv_reader_next(&reader, &field))
    if (rv_field_is(&field, 1, RV_WIRE_VARINT)) *size = (int64_t)field.value;
  return !reader.broken;
}

rv_code rv_shape_proto_parse(rv_span message, rv_shape_proto *out, rv_error *err)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 2, RV_WIRE_BYTES)) {
      if (out->rank == RV_TENSOR_MAX_DIMS)
        return rv_fail(err, RV_INVALID_ARGUMENT, "a tensor of more than %d dimensions", RV_TENSOR_MAX_DIMS);
      if (!parse_dim(field.bytes, &out->sizes[out->rank++])) return rv_fail_parse(err, "TensorShapeProto");
    } else if (rv_field_is(&field, 3, RV_WIRE_VARINT)) {
      out->unknown_rank = field.value != 0;
    }
  }
  return reader.broken ? rv_fail_parse(err, "TensorShapeProto") : RV_OK;
}

void rv_shape_proto_put(rv_writer_buf *out, uint32_t field, uint32_t rank, const int64_t *sizes)
{
  size_t shape = rv_put_open(out, field);
  for (uint32_t i = 0; i < rank; i++) {
    size_t dim = rv_put_open(out, 2);
    rv_put_varint(out, 1, (uint64_t)sizes[i]);
    rv_put_close(out, dim);
  }
  rv_put_close(out, shape);
}

rv_code rv_tensor_proto_parse(rv_span message, rv_tensor_proto *out, rv_error *err)
{
  out->dtype = 0;
  out->shape.rank = 0;
  out->shape.unknown_rank = false;
  out->content = (rv_span){0};
  out->num_strings = 0;
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  rv_code code = RV_OK;
  while (code == RV_OK && rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_VARINT))
      out->dtype = rv_field_int32(&field);
    else if (rv_field_is(&field, 2, RV_WIRE_BYTES))
      code = rv_shape_proto_parse(field.bytes, &out->shape, err);
    else if (rv_field_is(&field, 4, RV_WIRE_BYTES))
      out->content = field.bytes;
    else if (rv_field_is(&field, 8, RV_WIRE_BYTES))
      out->num_strings++;
  }
  if (code != RV_OK) return code;
  if (reader.broken) return rv_fail_parse(err, "TensorProto");
  if (out->shape.unknown_rank) return rv_fail(err, RV_INVALID_ARGUMENT, "a chunk's tensor without a known rank");
  return RV_OK;
}

bool rv_tensor_proto_in_values(const rv_tensor_proto *tensor)
{
  return tensor->dtype == RV_STRING && tensor->num_strings > 0 && tensor->content.size == 0;
}

/* Sizes of the lengths and of the bytes of `elements` strings. */
static bool measure(rv_span message, size_t elements, size_t max_bytes, size_t *lengths, size_t *bytes)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  size_t left = elements, last = 0;
  *lengths = *bytes = 0;
  while (left > 0 && rv_reader_next(&reader, &field)) {
    if (!rv_field_is(&field, 8, RV_WIRE_BYTES)) continue;
    last = field.bytes.size;
    *lengths += rv_varint_size(last);
    *bytes += last;
    left--;
  }
  if (left > max_bytes || (last > 0 && left > max_bytes / last)) return false;
  *lengths += left * rv_varint_size(last);
  *bytes += left * last;
  return *lengths <= max_bytes && *bytes <= max_bytes - *lengths;
}

typedef void put_string(rv_writer_buf *out, rv_span text);

static void put_length(rv_writer_buf *out, rv_span text)
{
  uint8_t varint[10];
  size_t n = 0, value = text.size;
  for (; value >= 0x80; value >>= 7) varint[n++] = (uint8_t)(value | 0x80);
  varint[n++] = (uint8_t)value;
  rv_put_raw(out, varint, n);
}

static void put_text(rv_writer_buf *out, rv_span text)
{
  rv_put_raw(out, text.data, text.size);
}

static void put_each(rv_writer_buf *out, rv_span message, size_t elements, put_string *put)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  rv_span last = {0};
  while (elements > 0 && rv_reader_next(&reader, &field)) {
    if (!rv_field_is(&field, 8, RV_WIRE_BYTES)) continue;
    last = field.bytes;
    put(out, last);
    elements--;
  }
  for (; elements > 0 && !out->failed; elements--) put(out, last);
}

rv_code rv_tensor_proto_rewrite(rv_writer_buf *out, rv_span message, const rv_tensor_proto *tensor, size_t max_bytes,
                                rv_error *err)
{
  size_t elements = 0, size = 0, lengths = 0, bytes = 0;
  rv_code code = rv_shape_elements(RV_STRING, tensor->shape.rank, tensor->shape.sizes, &elements, &size, err);
  if (code != RV_OK) return code;
  if (!measure(message, elements, max_bytes, &lengths, &bytes))
    return rv_fail(err, RV_INVALID_ARGUMENT, "a string tensor of %zu elements made of %zu values takes more than %zu bytes",
                   elements, tensor->num_strings, max_bytes);
  rv_put_varint(out, 1, RV_STRING);
  rv_shape_proto_put(out, 2, tensor->shape.rank, tensor->shape.sizes);
  rv_put_header(out, 4, lengths + bytes);
  put_each(out, message, elements, put_length);
  put_each(out, message, elements, put_text);
  return RV_OK;
}
