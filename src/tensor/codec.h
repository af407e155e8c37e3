/* Tensor contents as they stand on the wire and on disk (docs/architecture.md; Reverb's format): for strings, the element lengths
 * as varints and then the bytes; for everything else one raw snappy block of the little-endian elements, optionally delta coded
 * from row to row beforehand. Dimension 0 is time. */
#ifndef RV_TENSOR_CODEC_H
#define RV_TENSOR_CODEC_H

#include "base/buf.h"
#include "reverie/tensor.h"

/* A chunk's tensor, still encoded. Everything is borrowed. */
typedef struct rv_encoded {
  rv_dtype dtype;
  uint32_t rank; /* with the time dimension: 1..RV_MAX_RANK + 1 */
  const int64_t *shape;
  bool delta; /* the chunk's flag; it takes effect on integers of rank >= 2 only */
  const uint8_t *content;
  size_t content_size;
} rv_encoded;

/* RV_INVALID_ARGUMENT: so many dimensions, and a shape that is NULL. */
rv_code rv_fail_no_shape(rv_error *err, uint32_t rank);
/* Product of the sizes; RV_INVALID_ARGUMENT for a shape that is NULL, a negative size or an overflow (of elements x dtype size in 63 bits). */
rv_code rv_shape_elements(rv_dtype dtype, uint32_t rank, const int64_t *shape, size_t *elements, size_t *bytes, rv_error *err);

/* Appends the content of a tensor [rows, ...row shape] whose rows lie `row_stride` bytes apart. Strings: rows are rv_bytes[].
 * `delta` and `compress` as named; without `compress` it is one snappy literal. */
rv_code rv_encode(rv_pieces *out, rv_dtype dtype, uint32_t row_rank, const int64_t *row_shape, const void *rows,
                  size_t row_stride, size_t num_rows, bool delta, bool compress, rv_error *err);

/* Checks that the content decodes to exactly the tensor's size, without decoding more than headers where it can: dtype known,
 * shape sane, snappy's announced length equal (strings: lengths add up, in bounds). RV_INVALID_ARGUMENT says what is off. */
rv_code rv_encoded_check(const rv_encoded *tensor, rv_error *err);

/* Decodes all rows into out (exactly the tensor's size). Strings: out receives rv_bytes that point into `content`, which must
 * then outlive them. RV_DATA_LOSS when the content is broken. */
rv_code rv_decode(const rv_encoded *tensor, void *out, size_t out_size, rv_error *err);

/* The content's raw bytes in place, if it is one snappy literal (or several that happen to lie so) without delta; NULL otherwise.
 */
const uint8_t *rv_encoded_raw(const rv_encoded *tensor);

/* Is it worth it? Compresses a sample of the rows; true if that saves at least 20 %. */
bool rv_compression_pays(const void *rows, size_t bytes);

#endif
