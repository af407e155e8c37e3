/* Draws that are copied at once: small rows go from the table straight into the caller's arrays, under the table's lock, without a
 * reference or a record for each.
 *
 * An operation that samples may carry a fill. What it fills comes first. Items lie as those of one template do that many have; a few
 * others (of another template, in several chunks or in encoded ones) are copied slice by slice where their rows are in place. From the first
 * item on that cannot be copied (large, compressed, on the disk, or one of too many others) the rest is drawn as usual. */
#ifndef RV_STORE_FILL_H
#define RV_STORE_FILL_H

#include "store/draw_sizes.h"

typedef struct rv_fill {
  const rv_layout *layout; /* what `columns` have room for; the caller holds it. NULL: none known, nothing is drawn */
  void *const *columns;    /* of the layout's items, [want, ...] each; NULL: left out */
  uint64_t *keys;          /* [want], and so the next three */
  double *probabilities, *priorities;
  int32_t *times_sampled;
  /* out */
  size_t done;         /* items filled so far */
  rv_draw_sizes sizes; /* of these; its `each` is the caller's, [want] */
  uint64_t naming;     /* that the items in the table had at these draws; 0: they differed, or nobody said */
  rv_layout *found;    /* the items have another layout, and none was drawn: a reference to theirs */
} rv_fill;

#endif
