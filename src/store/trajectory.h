/* What an item refers to: for each of its columns a list of slices, each a run of rows of one tensor of one chunk.
 *
 * A trajectory is immutable and refcounted. Its slices either name their chunks, or, in a template, leave them open: then all are
 * relative to the one chunk and base row of the item that uses the template. Items of a writer that look alike share a template. */
#ifndef RV_STORE_TRAJECTORY_H
#define RV_STORE_TRAJECTORY_H

#include "store/chunk.h"

typedef struct rv_slice {
  rv_chunk *chunk; /* NULL in a template */
  uint32_t tensor; /* column of the chunk */
  int32_t offset;  /* first row; in a template relative to the item's base row */
  int32_t length;  /* rows, >= 0 */
} rv_slice;

typedef struct rv_trajectory_column {
  uint32_t first_slice, num_slices;
  bool squeeze;
  int64_t length;              /* rows of all slices */
  const rv_chunk_column *spec; /* dtype and row shape; owned by the trajectory's layout */
} rv_trajectory_column;

/* dtype, row shape, length and squeeze of every column: two items with the same layout can stand in one contiguous batch. Interned
 * per store: equal layouts are the same pointer. */
typedef struct rv_layout rv_layout;
/* Column of a layout as a trajectory has it; its spec belongs to the layout. */
rv_trajectory_column rv_layout_get(const rv_layout *layout, uint32_t column);

typedef struct rv_trajectory {
  rv_layout *layout;
  uint32_t num_columns, num_slices, num_chunks;
  rv_trajectory_column *columns;
  rv_slice *slices;
  rv_chunk **chunks; /* distinct, in order of first appearance, one reference each; none in a template */
} rv_trajectory;

rv_trajectory *rv_trajectory_ref(rv_trajectory *trajectory);
void rv_trajectory_unref(rv_trajectory *trajectory);

/* How a trajectory is described before it exists: flat slices with their chunks, and how many belong to each column. */
typedef struct rv_trajectory_desc {
  const rv_slice *slices;     /* chunk is set in each */
  const uint32_t *num_slices; /* per column */
  const bool *squeeze;        /* per column */
  uint32_t num_columns;
  rv_layout *like; /* the layout that it probably has, held by the caller; NULL: nothing is known */
} rv_trajectory_desc;

/* Builds one that refers to its chunks (a reference is taken to each). RV_INVALID_ARGUMENT: no columns, a column without slices, an offset or
 * length outside the chunk's published rows, a tensor number that the chunk does not have, slices of a column that differ in
 * dtype or row shape, squeeze of a length other than 1. The sentence begins "column N: ". */
typedef struct rv_layouts rv_layouts;
rv_code rv_trajectory_new(rv_layouts *layouts, const rv_trajectory_desc *desc, rv_trajectory **out, rv_error *err);

/* The same over other chunks, slice i over chunks[chunk_of[i]], rows_on[chunk_of[i]] rows further on (NULL: none), which has the columns and the rows
 * of the one in its place, or more rows, and of which the caller has a reference. The memory of `owned_spare` (rv_trajectory_empty) is used where it has the size; NULL:
 * there is none. */
rv_code rv_trajectory_renew(const rv_trajectory *like, const uint32_t *chunk_of, rv_chunk *const *chunks, const int32_t *rows_on,
                            rv_trajectory *owned_spare, rv_trajectory **out, rv_error *err);
/* Drops the reference. Where it was the last of a small one, what is left refers to no chunk and is good for rv_trajectory_renew, or
 * for rv_trajectory_unref; else NULL. */
rv_trajectory *rv_trajectory_empty(rv_trajectory *owned);

/* A store's or client's interned layouts; thread-safe. */
rv_code rv_layouts_new(rv_layouts **out, rv_error *err);
rv_layouts *rv_layouts_ref(rv_layouts *layouts);
void rv_layouts_unref(rv_layouts *layouts);

/* A drawn item, held: what samplers hand on and servers send. */
typedef struct rv_draw {
  uint64_t key;
  double probability, priority;
  int64_t table_size, inserted_at_ns;
  int32_t times_sampled;
  bool rate_limited;
  rv_trajectory *trajectory; /* one reference */
  rv_chunk *chunk;           /* with a template: one reference; else NULL */
  int64_t base_row;          /* with a template */
  uint64_t naming;           /* that all items in the table had at the draw; 0: they differed, or nobody said */
} rv_draw;

/* The one naming of n draws; 0: they differ, or nobody said. */
static inline uint64_t rv_draws_naming(const rv_draw *draws, size_t n)
{
  uint64_t naming = n > 0 ? draws[0].naming : 0;
  for (size_t i = 1; i < n; i++)
    if (draws[i].naming != naming) return 0;
  return naming;
}

void rv_draw_release(rv_draw *draw); /* drops what it holds */

/* Slice number `index` of the trajectory with its chunk and absolute offset, template or not. */
static inline rv_slice rv_draw_slice(const rv_draw *draw, uint32_t index)
{
  rv_slice slice = draw->trajectory->slices[index];
  if (slice.chunk == NULL) {
    slice.chunk = draw->chunk;
    slice.offset += (int32_t)draw->base_row;
  }
  return slice;
}

/* Copies a column's rows one after another into out (row bytes x length). RV_DATA_LOSS names the item. */
rv_code rv_draw_copy_column(const rv_draw *draw, uint32_t column, void *out, rv_error *err);

/* Puts the item's key before a sentence of RV_DATA_LOSS; of another code nothing. */
void rv_draw_name_lost(const rv_draw *draw, rv_code code, rv_error *err);

#endif
