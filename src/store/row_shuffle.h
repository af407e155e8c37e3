/* Runs of rows of small columns that stand beside each other, taken apart by permutations of bytes, where the processor has them.
 *
 * Piece by piece a row of four columns is four loads and four stores, and a core stores once a cycle however few the bytes. Here a group of
 * rows is loaded as two vectors of 64 bytes, and a permutation and a store make what one column has of all of them. Nothing is read but
 * columns that the items have, and what pads their rows: no byte that anybody may write meanwhile. */
#ifndef RV_STORE_ROW_SHUFFLE_H
#define RV_STORE_ROW_SHUFFLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rv_row_plan;

enum { RV_SHUFFLE_STRIDE = 64 /* and less, from row to row */, RV_SHUFFLE_PIECES = 16, RV_SHUFFLE_WIDTHS = 7 };

/* What one store writes: of one column, for all rows of a group. */
typedef struct rv_shuffle_piece {
  uint8_t source[64];  /* of each byte: where in the two vectors */
  uint32_t column, at; /* from where on, of the column's bytes of a group */
  uint32_t row_bytes, group_bytes;
  size_t item_bytes;
} rv_shuffle_piece;

typedef struct rv_row_shuffle {
  uint32_t num_pieces;              /* 0: rows are copied piece by piece */
  uint32_t ends[RV_SHUFFLE_WIDTHS]; /* of the pieces that are 64, 32, ... 1 bytes wide, in this order */
  size_t length;                    /* rows of each item that are taken apart */
  size_t rows;                      /* of a group */
  size_t groups;                    /* that are taken apart together: 8, 4, 2 or 1 */
  size_t width;                     /* bytes from a row's first column to the end of its last */
  size_t stride;                    /* from row to row */
  ptrdiff_t first;                  /* from an item's pointer to its first column */
  size_t second;                    /* where the second vector of a group begins: it overlaps the first, or follows it */
  rv_shuffle_piece piece[RV_SHUFFLE_PIECES];
} rv_row_shuffle;

/* Has this processor what it takes? */
bool rv_row_shuffle_here(void);
/* For items whose rows lie by the plan. */
void rv_row_shuffle_make(rv_row_shuffle *shuffle, const struct rv_row_plan *plan);
/* Items as for rv_row_plan_copy. How many rows of each item, from its first on, are in `outs` now: 0 or `length`. */
size_t rv_row_shuffle_copy(const rv_row_shuffle *shuffle, const uint8_t *const *items, size_t n, uint8_t *const *outs);

#endif
