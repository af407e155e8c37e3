/* What a table's signature calls the columns of its items, so that a misspelt or swapped name is refused where dtypes and shapes
 * happen to fit.
 *
 * A column's name is its place in the nest, "obs/pixels" or "actions/0". Columns are matched by order; names are only compared, and
 * only where both sides have one: an index is no name, and nests of different depth are not compared. A leaf that lies in lists
 * alone is called by its spec's own name. */
#ifndef RV_WIRE_COLUMN_NAMES_H
#define RV_WIRE_COLUMN_NAMES_H

#include "reverie/tensor.h"

typedef struct rv_column_names rv_column_names;

/* *out is NULL where the signature has no names. */
rv_code rv_column_names_new(const rv_signature *signature, rv_column_names **out, rv_error *err);
void rv_column_names_free(rv_column_names *names); /* NULL is fine */
/* RV_INVALID_ARGUMENT: the signature calls column `index` otherwise. `names` and `name` may be NULL: then anything fits. */
rv_code rv_column_name_fits(const rv_column_names *names, const char *table, size_t index, const char *name, rv_error *err);

#endif
