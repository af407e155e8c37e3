/* How many items were in the table at each draw of a batch: what a draw's probability is to be compared with. At nearly all times
 * it is one number for the whole batch, and no array is written for that; it is from the first draw on at which there was another. */
#ifndef RV_STORE_DRAW_SIZES_H
#define RV_STORE_DRAW_SIZES_H

#include "store/trajectory.h"

typedef struct rv_draw_sizes {
  int64_t *each; /* of every draw; NULL: not wanted */
  bool always;   /* `each` is written in any case */
  /* out */
  bool differ;  /* some are not like the others; else `each` is left as it was */
  int64_t last; /* at the last draw */
} rv_draw_sizes;

/* No draw yet; 0 is the last one's size. */
void rv_draw_sizes_begin(rv_draw_sizes *sizes);
/* n draws, which come behind `first` others. */
void rv_draw_sizes_note(rv_draw_sizes *sizes, size_t first, const rv_draw *draws, size_t n);
/* The same, all at one size. */
void rv_draw_sizes_note_one(rv_draw_sizes *sizes, size_t first, size_t n, int64_t size);

#endif
