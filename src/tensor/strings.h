/* String tensors' contents: every element's length as a varint, then every element's bytes. */
#ifndef RV_TENSOR_STRINGS_H
#define RV_TENSOR_STRINGS_H

#include "tensor/codec.h"

/* Appends the content for num_rows rows of `per_row` strings; row i's rv_bytes[] begin at rows + i * row_stride. */
rv_code rv_strings_encode(rv_pieces *out, const void *rows, size_t row_stride, size_t num_rows, size_t per_row, rv_error *err);
/* Reads `count` elements; `out` receives them, borrowed from content, or is NULL to check only. RV_DATA_LOSS says what is off. */
rv_code rv_strings_decode(const uint8_t *content, size_t size, size_t count, rv_bytes *out, rv_error *err);

#endif
