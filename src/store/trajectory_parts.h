/* What stands behind a trajectory and its layout. For the files of the store only. */
#ifndef RV_STORE_TRAJECTORY_PARTS_H
#define RV_STORE_TRAJECTORY_PARTS_H

#include <stdatomic.h>

#include "base/list.h"
#include "reverie/sampler.h" /* rv_layout_ref and rv_layout_unref */
#include "store/trajectory.h"

/* ---- layouts ---- */

typedef struct rv_layout_column {
  rv_chunk_column spec;
  int64_t length;
  bool squeeze;
} rv_layout_column;

struct rv_layout {
  atomic_size_t refs;
  rv_layouts *owner; /* one reference */
  uint64_t hash;
  rv_layout *next; /* of the same hash */
  uint32_t num_columns;
  rv_layout_column columns[];
};

/* The one layout of these columns; the caller gets a reference. Columns are copied. */
rv_code rv_layout_intern(rv_layouts *layouts, const rv_layout_column *columns, uint32_t num_columns, rv_layout **out,
                         rv_error *err);
bool rv_layout_is_of(const rv_layout *layout, const rv_layout_column *columns, uint32_t num_columns);
size_t rv_layouts_count(rv_layouts *layouts);

/* ---- trajectories ---- */

/* The rows of one chunk from the first that some slice names to the end of the one that ends last. */
typedef struct rv_reach {
  int32_t first, end;
} rv_reach;

typedef struct rv_trajectory_box {
  rv_trajectory shown; /* first: the two pointers are the same */
  atomic_size_t refs;
  rv_reach *reaches;  /* of its chunks, one each */
  int64_t max_length; /* rows of the longest column */
  int64_t span;       /* a template: rows from the base row to the end of the slice that ends last */
  size_t bytes;       /* of all rows */
  size_t memory;      /* of the box, with everything behind it: room for a chunk for each slice, as many as there may be */
  uint64_t hash;      /* a template: of everything in it */
} rv_trajectory_box;

/* Of one of more than RV_TRAJECTORY_FEW slices, and no template, summed when it was made, so that nobody has to look at each under a table's lock. */
typedef struct rv_trajectory_sums {
  size_t encoded;     /* of its chunks that came over the wire */
  size_t shares;      /* of its chunks, as far as they are its slices' and no rows (rv_slice_share) */
  bool some_segments; /* there are chunks that are segments */
} rv_trajectory_sums;

enum { RV_TRAJECTORY_FEW = 64 };
/* NULL: it has few slices, or is a template. They stand at the end of its memory. */
static inline const rv_trajectory_sums *rv_trajectory_get_sums(const rv_trajectory *trajectory)
{
  const rv_trajectory_box *box = (const rv_trajectory_box *)trajectory;
  if (trajectory->num_slices <= RV_TRAJECTORY_FEW || trajectory->num_chunks == 0) return NULL;
  return (const rv_trajectory_sums *)(const void *)((const char *)box + box->memory) - 1;
}

/* Of the slice's chunk the share that it has, beyond the rows. A segment is nearly all rows, and the strings that they point to; a received chunk of
 * one row is nearly all books. */
size_t rv_slice_share(const rv_slice *slice);

static inline rv_trajectory_box *rv_trajectory_box_of(rv_trajectory *trajectory)
{
  return (rv_trajectory_box *)trajectory;
}
static inline const rv_trajectory_box *rv_trajectory_box_of_const(const rv_trajectory *trajectory)
{
  return (const rv_trajectory_box *)trajectory;
}

void rv_trajectory_ref_many(rv_trajectory *trajectory, size_t n);
void rv_trajectory_unref_many(rv_trajectory *trajectory, size_t n);

/* A trajectory with all its slices in one chunk, as a template: the lowest row becomes *base. */
rv_code rv_template_new(const rv_trajectory *trajectory, rv_trajectory **out, rv_error *err);
int64_t rv_trajectory_base(const rv_trajectory *trajectory);
/* The hash of the template that the trajectory would have, and whether `known` is that one. */
uint64_t rv_template_hash(const rv_trajectory *trajectory, int64_t base);
bool rv_template_is_of(const rv_trajectory *known, const rv_trajectory *trajectory, int64_t base);
/* One column of a template: rows [first, first + length) of a tensor, counted from the base row. */
typedef struct rv_template_column {
  rv_spec row; /* dtype and shape */
  uint32_t tensor, first, length;
  bool squeeze;
} rv_template_column;
rv_code rv_template_of(rv_layouts *layouts, const rv_template_column *columns, uint32_t num_columns, rv_trajectory **out,
                       rv_error *err);
/* Single rows of every column of a chunk, squeezed: what rows that are inserted without a trajectory look like. */
rv_code rv_template_of_rows(rv_layouts *layouts, const rv_spec *columns, uint32_t num_columns, rv_trajectory **out,
                            rv_error *err);

/* The same trajectory with the slices of one chunk in another one, `shift` rows further on. */
rv_code rv_trajectory_move(const rv_trajectory *from, rv_chunk *old_chunk, rv_chunk *new_chunk, int64_t shift,
                           rv_trajectory **out, rv_error *err);

#endif
