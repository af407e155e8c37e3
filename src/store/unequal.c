#include "store/unequal.h"

#include <string.h>

#include "base/error.h"
#include "store/signature.h"
#include "store/trajectory_parts.h"

enum { COLUMN_TEXT_MAX = 96 };

static bool same_rows(const rv_chunk_column *a, const rv_chunk_column *b)
{
  return a->dtype == b->dtype && a->rank == b->rank && memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

static bool can_be_padded(const rv_chunk_column *a, const rv_chunk_column *b)
{
  return a->dtype == b->dtype && a->rank == b->rank;
}

bool rv_layouts_can_be_padded(const rv_layout *a, const rv_layout *b)
{
  bool can = a->num_columns == b->num_columns;
  for (uint32_t i = 0; can && i < a->num_columns; i++) can = can_be_padded(&a->columns[i].spec, &b->columns[i].spec);
  return can;
}

static bool same_columns(const rv_layout_column *a, const rv_layout_column *b)
{
  return a->squeeze == b->squeeze && a->length == b->length && same_rows(&a->spec, &b->spec);
}

/* The first column that padding cannot make equal, if there is one; else the first that differs. */
static uint32_t first_different(const rv_layout *a, const rv_layout *b)
{
  uint32_t first = a->num_columns;
  for (uint32_t i = 0; i < a->num_columns; i++) {
    if (!can_be_padded(&a->columns[i].spec, &b->columns[i].spec)) return i;
    if (first == a->num_columns && !same_columns(&a->columns[i], &b->columns[i])) first = i;
  }
  return first;
}

/* "float32[3,4]": three rows of float32[4]. */
static const char *format_column(char *out, const rv_layout_column *column)
{
  int64_t shape[RV_MAX_RANK + 2];
  int32_t rank = 0;
  if (!column->squeeze) shape[rank++] = column->length;
  for (uint32_t d = 0; d < column->spec.rank && d <= RV_MAX_RANK; d++) shape[rank++] = column->spec.shape[d];
  return rv_format_spec(out, COLUMN_TEXT_MAX, column->spec.dtype, rank, shape);
}

rv_code rv_fail_unequal(rv_error *err, const char *table, const rv_signature *signature, const rv_layout *a, const rv_layout *b)
{
  if (a->num_columns != b->num_columns)
    return rv_fail(err, RV_FAILED_PRECONDITION,
                   "table \"%s\": its items cannot stand in one batch: some have %u columns and others %u; give the table a "
                   "signature, which refuses the wrong ones when they are inserted",
                   table, (unsigned)a->num_columns, (unsigned)b->num_columns);
  uint32_t i = first_different(a, b);
  bool named = signature != NULL && i < signature->num_specs && signature->specs[i].name[0] != '\0';
  char one[COLUMN_TEXT_MAX], other[COLUMN_TEXT_MAX];
  format_column(one, &a->columns[i]);
  format_column(other, &b->columns[i]);
  const char *before = named ? "\"" : "", *name = named ? signature->specs[i].name : "", *after = named ? "\" " : "";
  if (strcmp(one, other) == 0)
    return rv_fail(
        err, RV_FAILED_PRECONDITION,
        "table \"%s\": its items cannot stand in one batch: column %u %s%s%sis %s in all, but in some as rows of several "
        "steps (a writer's, or transitions(stack=...)) and in others as one row (add); insert all in one way, or sample item "
        "by item (unequal=\"list\")",
        table, (unsigned)i, before, name, after, one);
  return rv_fail(err, RV_FAILED_PRECONDITION,
                 "table \"%s\": its items cannot stand in one batch: column %u %s%s%sis %s in some and %s in others; %s", table,
                 (unsigned)i, before, name, after, one, other,
                 rv_layouts_can_be_padded(a, b)
                     ? "sample with padding (unequal=\"pad\") or item by item (unequal=\"list\")"
                     : "give the table a signature, which refuses the wrong ones when they are inserted, or sample item by item "
                       "(unequal=\"list\")");
}
