/* Delta coding: each row of integers as the difference from the row before, modulo the width. The first row stands as it is. */
#ifndef RV_TENSOR_DELTA_H
#define RV_TENSOR_DELTA_H

#include <stdbool.h>
#include <stddef.h>

#include "reverie/tensor.h"

/* Does a chunk's delta flag take effect on a tensor of this rank (time included)? */
bool rv_delta_applies(rv_dtype dtype, uint32_t rank);
/* out = row - previous, for `bytes` bytes of elements `width` bytes wide; out overlaps neither. */
void rv_delta_row(void *out, const void *row, const void *previous, size_t bytes, size_t width);
/* The inverse, in place, over num_rows rows of row_bytes each, one after another. */
void rv_delta_undo(void *rows, size_t num_rows, size_t row_bytes, size_t width);

#endif
