/* Which columns share a chunk: a chunk costs some hundred bytes of books at either end, whatever it has of a column, and each has to be described, sent and
 * found. So columns of small rows go into one together, on their way to a server, as long as it is the same items that need them. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/writer.h"

enum {
  ROW_BYTES_BELOW = 1024, /* of a column that shares */
  GROUP_ROW_BYTES = 2048, /* of all that do: what is sent of a row or two is then still copied as one piece */
  WASTED_BYTES_MAX =
      512 /* rows of a column that an item takes along and does not need: about what a chunk of its own would cost */
};

/* What compresses goes by itself: others' bytes would not be where the chunk before has them. */
static bool can_share(const rv_writer *writer, const rv_column *column)
{
  const rv_chunk_column *spec = &column->spec;
  if (writer->one_chunk) return column->known;
  return column->known && !column->apart && spec->dtype != RV_STRING && spec->row_bytes > 0 &&
         spec->row_bytes < ROW_BYTES_BELOW && !column->trial.snappy;
}

bool rv_writer_column_shares(const rv_writer *writer, const rv_column *column)
{
  if (writer->one_chunk) return true;
  if (writer->num_columns < 2) return false;
  return column->looked_at ? column->shares : can_share(writer, column);
}

static rv_code need_room(rv_writer *writer, rv_error *err)
{
  if (writer->group_room >= writer->num_columns) return RV_OK;
  rv_column **grown = realloc(writer->group_columns, writer->num_columns * sizeof(rv_column *));
  if (grown == NULL) return rv_fail_memory(err, writer->num_columns * sizeof(rv_column *));
  writer->group_columns = grown;
  writer->group_room = writer->num_columns;
  return RV_OK;
}

rv_code rv_writer_regroup(rv_writer *writer, rv_error *err)
{
  rv_code code = need_room(writer, err);
  if (code != RV_OK) return code;
  uint32_t n = 0;
  size_t bytes = 0;
  bool same = true;
  for (uint32_t i = 0; i < writer->num_columns; i++) {
    rv_column *column = writer->columns[i];
    if (column == NULL || !column->known) continue;
    column->looked_at = true;
    column->shares = can_share(writer, column);
    if (column->shares && !writer->one_chunk)
      column->shares = n < RV_CHUNK_STAMP_RUNS && bytes + column->spec.row_bytes <= GROUP_ROW_BYTES;
    if (!column->shares) continue;
    bytes += column->spec.row_bytes;
    same &= n < writer->num_group && writer->group_columns[n] == column;
    writer->group_columns[n++] = column;
  }
  if (!same || n != writer->num_group) writer->group++;
  writer->num_group = n;
  return RV_OK;
}

void rv_writer_forget_group(rv_writer *writer)
{
  writer->num_group = 0;
}

/* Its rows go into chunks of its own, once the open one is complete. */
static void set_apart(rv_column *column, bool *any)
{
  column->apart = true;
  *any = true;
}

void rv_writer_check_step(rv_writer *writer)
{
  bool any = false;
  if (writer->one_chunk || writer->open == NULL) return;
  for (uint32_t i = 0; i < writer->open->num_columns; i++)
    if (writer->open->columns[i]->last_row != writer->num_rows - 1) set_apart(writer->open->columns[i], &any);
  if (any) rv_writer_complete_chunk(writer, writer->open);
}

/* The most rows of any sharing column that the item over the present parts needs. */
static uint32_t count_rows(const rv_writer *writer)
{
  const rv_parts *parts = &writer->parts;
  uint32_t most = 0;
  for (size_t i = 0; i < parts->num_slices; i++) {
    rv_column *column = parts->owners[i]->columns[parts->slices[i].tensor];
    if (!column->shares) continue;
    if (column->item_mark != writer->serial) column->item_rows = 0;
    column->item_mark = writer->serial;
    column->item_rows += (uint32_t)parts->slices[i].length;
    if (column->item_rows > most) most = column->item_rows;
  }
  return most;
}

void rv_writer_check_item(rv_writer *writer)
{
  bool any = false;
  if (writer->one_chunk || writer->num_group == 0) return;
  const uint32_t most = count_rows(writer);
  for (uint32_t i = 0; i < writer->num_group && most > 0; i++) {
    rv_column *column = writer->group_columns[i];
    const uint32_t rows = column->item_mark == writer->serial ? column->item_rows : 0;
    if ((size_t)(most - rows) * column->spec.row_bytes > WASTED_BYTES_MAX) set_apart(column, &any);
  }
  if (any && writer->open != NULL) rv_writer_complete_chunk(writer, writer->open);
}

void rv_writer_set_apart(rv_writer *writer, rv_column *column)
{
  column->apart = true;
  if (!writer->one_chunk && column->open != NULL && column->open == writer->open) rv_writer_complete_chunk(writer, writer->open);
}
