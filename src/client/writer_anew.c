/* Where columns share chunks: a step of another form than those before it, whose columns begin anew.
 *
 * No item has rows of two forms, so that all that was known of the columns, and all their rows, go with the first step of the other form: memory does not grow
 * with the number of forms. Until that step is in, everything stands aside, and comes back if it fails. */
#include "client/writer.h"

static void set_aside(rv_writer *writer)
{
  rv_writer_complete_all(writer);
  if (writer->num_waiting > 0) rv_writer_dispatch(writer); /* what is encoded later would be by the columns' new form */
  for (uint32_t i = 0; i < writer->num_columns; i++) {
    rv_column *column = writer->columns[i];
    if (column == NULL || !column->known) continue;
    rv_writer_ungroup(writer, column);
    rv_column_set_aside(column);
  }
}

rv_code rv_writer_append_anew(rv_writer *writer, const rv_cell *cells, size_t num_cells, rv_error *err)
{
  rv_code code = rv_writer_check(writer, err);
  if (code == RV_OK) code = rv_writer_failure(writer, false, err);
  if (code != RV_OK) return code;
  set_aside(writer);
  writer->begins_anew = true;
  code = rv_writer_append(writer, cells, num_cells, false, err);
  writer->begins_anew = false;
  for (uint32_t i = 0; i < writer->num_columns; i++) {
    rv_column *column = writer->columns[i];
    if (column == NULL) continue;
    if (code == RV_OK)
      rv_column_forget_aside(column, writer->num_rows - 1);
    else
      rv_column_bring_back(column);
  }
  return code;
}
