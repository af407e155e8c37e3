/* How added rows look on the wire: a chunk that holds a run of rows of all columns, and items of one row each. */
#ifndef RV_CLIENT_ADD_CHUNK_H
#define RV_CLIENT_ADD_CHUNK_H

#include "client/add_remote.h"
#include "client/insert_stream.h"

/* How many rows from `first` on share a chunk: about 1 MiB of them, or one. RV_INVALID_ARGUMENT: a column's dtype or shape is none. */
rv_code rv_add_rows_of_chunk(const rv_add *add, size_t first, size_t *rows, rv_error *err);
/* A chunk of rows [first, first + count), with a key and an episode from `random`, in memory of the spares if that is of their sizes. */
rv_code rv_add_chunk_new(const rv_add *add, size_t first, size_t count, rv_random *random, rv_spares *spares,
                         rv_stream_chunk **out, rv_error *err);

/* What the items of the rows look like to a signature. */
typedef struct rv_add_layout {
  rv_chunk_column *specs;
  rv_trajectory_column *columns;
} rv_add_layout;
rv_code rv_add_layout_init(rv_add_layout *layout, const rv_add *add, rv_error *err);
void rv_add_layout_fini(rv_add_layout *layout);

/* Describes one item after the other, in the same memory. */
typedef struct rv_add_item_maker {
  rv_wire_item item;
} rv_add_item_maker;
rv_code rv_add_item_maker_init(rv_add_item_maker *maker, const rv_add *add, uint64_t chunk_key, rv_error *err);
void rv_add_item_maker_fini(rv_add_item_maker *maker);
/* The item of row `row` of its chunk; valid until the next. */
const rv_wire_item *rv_add_item_make(rv_add_item_maker *maker, uint64_t key, double priority, size_t row);

#endif
