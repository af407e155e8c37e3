/* Where the small columns of a template's items lie, seen from the item's first row in the first of them: the same in every
 * segment of equal columns that is laid out for rows, or for runs of them, as that one is (segment.c). Many items' rows are then found by one pointer
 * each, and copied column by column. */
#ifndef RV_STORE_ROW_PLAN_H
#define RV_STORE_ROW_PLAN_H

#include "store/chunk_parts.h"
#include "store/row_shuffle.h"
#include "store/trajectory.h"

enum { RV_PLAN_COLUMNS = 32 };

typedef struct rv_row_plan {
  bool any;             /* some column is planned */
  bool whole;           /* all are, some row has bytes, and none holds strings: an item can be copied by its plan alone */
  uint32_t num_columns; /* of the items; those beyond RV_PLAN_COLUMNS are not planned */
  uint32_t num_tensors; /* of the chunk */
  uint32_t first;       /* the first planned tensor */
  size_t stride;        /* from row to row, in every planned tensor */
  size_t
      beside_bytes; /* of a row of all tensors that lie beside each other at this stride, planned or not; 0: too many to be asked */
  size_t item_bytes; /* of all planned columns */
  int64_t longest;   /* rows of the longest of them */
  struct {
    bool planned;
    uint32_t tensor;
    ptrdiff_t offset; /* of the tensor's row from the first planned tensor's */
    ptrdiff_t delta;  /* from the item's base row in the first planned tensor to the column's first row */
    size_t row_bytes;
    int64_t length; /* rows */
  } column[RV_PLAN_COLUMNS];
} rv_row_plan;

/* For items of `template` in segments like this one. */
void rv_row_plan_make(rv_row_plan *plan, const rv_trajectory *template, const rv_chunk *like);
/* Do the rows of this chunk lie as planned? */
bool rv_row_plan_fits(const rv_row_plan *plan, const rv_chunk *chunk);
/* Row 0 of the first planned tensor: an item's rows begin `base_row` strides further on. */
static inline const uint8_t *rv_row_plan_base(const rv_row_plan *plan, const rv_chunk *chunk)
{
  return chunk->lanes[plan->first].base;
}
/* The planned columns of n items, each found by its pointer, into outs[column][n, length, ...]; NULL: left out. `shuffle` is of the plan, or empty. */
void rv_row_plan_copy(const rv_row_plan *plan, const rv_row_shuffle *shuffle, const uint8_t *const *items, size_t n,
                      uint8_t *const *outs);

#endif
