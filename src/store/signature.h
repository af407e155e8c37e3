/* Does what is inserted fit what a table expects? And how dtypes and shapes are spelled in sentences. */
#ifndef RV_STORE_SIGNATURE_H
#define RV_STORE_SIGNATURE_H

#include "reverie/tensor.h"
#include "store/trajectory.h"

/* A deep copy in one allocation (free()), its specs right behind it (at copy + 1, also when there are none); NULL when memory is
 * out. `from` may be NULL: then a copy without specs. */
rv_signature *rv_signature_copy(const rv_signature *from);
/* RV_INVALID_ARGUMENT: a spec with an unknown dtype, a rank out of range, a size below -1. The sentence names the column. */
rv_code rv_signature_check(const rv_signature *signature, rv_error *err);

/* A column fits a spec if its dtype is the same and its shape, [length, ...row] or, squeezed, [...row], is compatible; an
 * unsqueezed column also if its row shape alone is (signatures of single steps). Of each column `spec`, `length` and `squeeze`
 * are read. A signature without specs takes anything. RV_INVALID_ARGUMENT: `table "replay": signature of column 0 "obs" is
 * float32[84,84], got uint8[84,84,1], which is inconsistent with it`, for Reverb's users look for that word. Before the row's shape
 * stands the length where the signature has as many dimensions. */
rv_code rv_signature_fits(const rv_signature *signature, const char *table, const rv_trajectory_column *columns,
                          uint32_t num_columns, rv_error *err);
/* The same for items of whoever knows whether a column is squeezed: an unsqueezed one must fit with its length. */
rv_code rv_signature_fits_exactly(const rv_signature *signature, const char *table, const rv_trajectory_column *columns,
                                  uint32_t num_columns, rv_error *err);

/* "float32[84,84]", "int64[]", "uint8[?,3]", "float32[...]" for an unknown rank; cut where it does not fit. Returns out. */
const char *rv_format_spec(char *out, size_t capacity, rv_dtype dtype, int32_t rank, const int64_t *shape);

#endif
