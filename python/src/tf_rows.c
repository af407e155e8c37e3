#include "tf_rows.h"

#include <stdlib.h>

/* Puts the sink's arrays of what is said about each sample one after another. */
static void place_infos(tf_rows *rows)
{
  rv_fill *fill = &rows->sink.fill;
  size_t n = rows->capacity;
  fill->keys = (uint64_t *)(void *)rows->infos;
  fill->probabilities = (double *)(fill->keys + n);
  fill->priorities = fill->probabilities + n;
  fill->sizes = (rv_draw_sizes){.each = (int64_t *)(fill->priorities + n), .always = true};
  fill->times_sampled = (int32_t *)(fill->sizes.each + n);
}

static bool describe_columns(tf_rows *rows)
{
  for (size_t c = 0; c < rows->num_columns; c++) {
    rv_sample_column all;
    if (rv_layout_get_column(rows->layout, c, rows->capacity, &all, NULL) != RV_OK ||
        rv_layout_get_column(rows->layout, c, 1, &rows->columns[c].shown, NULL) != RV_OK)
      return false;
    rows->columns[c].size = all.bytes;
  }
  return true;
}

tf_rows *tf_rows_new(rv_layout *layout, size_t capacity, pool *buffers)
{
  enum { INFO_BYTES = 4 * sizeof(uint64_t) + sizeof(int32_t) };
  tf_rows *rows = calloc(1, sizeof *rows + capacity * INFO_BYTES);
  if (rows == NULL) return NULL;
  rows->layout = rv_layout_ref(layout);
  rows->capacity = capacity;
  rows->num_columns = rv_layout_num_columns(layout);
  rows->buffers = buffers;
  rows->columns = calloc(rows->num_columns + 1, sizeof *rows->columns);
  rows->data = calloc(rows->num_columns + 1, sizeof *rows->data);
  if (rows->columns == NULL || rows->data == NULL || !describe_columns(rows)) {
    tf_rows_free(rows);
    return NULL;
  }
  rows->sink.fill.layout = layout;
  rows->sink.fill.columns = rows->data;
  place_infos(rows);
  return rows;
}

void tf_rows_free(tf_rows *rows)
{
  if (rows == NULL) return;
  for (size_t c = 0; rows->data != NULL && c < rows->num_columns; c++)
    if (rows->data[c] != NULL) pool_give(rows->buffers, rows->data[c], rows->columns[c].size);
  rv_layout_unref(rows->layout);
  free(rows->columns);
  free(rows->data);
  free(rows);
}

bool tf_rows_prepare(tf_rows *rows)
{
  bool all = true;
  for (size_t c = 0; c < rows->num_columns && all; c++) {
    if (rows->data[c] == NULL) rows->data[c] = pool_take(rows->buffers, rows->columns[c].size);
    all = rows->data[c] != NULL;
  }
  return all;
}

void *tf_rows_hand_out(tf_rows *rows, size_t column, size_t *size)
{
  void *data = rows->data[column];
  rows->data[column] = NULL;
  *size = rows->columns[column].size;
  return data;
}
