/* Steps into columns, columns into chunks. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/writer.h"

/* In process a chunk is shared by all columns and read while it grows: long ones save books, short ones save memory that one old
 * item holds. */
#define LOCAL_CHUNK_BYTES ((size_t)1 << 20)
enum { LOCAL_MAX_ROWS = 8192, LOCAL_FIRST_ROWS = 8 };
#define LOCAL_FULL_BYTES ((size_t)64 << 20) /* strings may be longer than their room tells */

static uint64_t key_of(rv_random *random)
{
  uint64_t key = rv_random_next(random);
  return key == UINT64_MAX ? 0 : key;
}

uint64_t rv_writer_random_key(rv_writer *writer)
{
  return key_of(&writer->random);
}

uint64_t rv_writer_local_item_key(rv_writer *writer)
{
  return key_of(&writer->item_random);
}

/* ---- columns ---- */

rv_column *rv_writer_column(const rv_writer *writer, uint32_t number)
{
  return number < writer->num_columns ? writer->columns[number] : NULL;
}

rv_code rv_writer_make_column(rv_writer *writer, uint32_t number, rv_column **out, rv_error *err)
{
  *out = rv_writer_column(writer, number);
  if (*out != NULL) return RV_OK;
  if (number >= RV_MAX_COLUMNS)
    return rv_fail(err, RV_INVALID_ARGUMENT, "column %u: a writer has at most %d columns", (unsigned)number, RV_MAX_COLUMNS);
  if (number >= writer->column_room) {
    uint32_t room = 2 * writer->column_room > number ? 2 * writer->column_room : number + 8;
    rv_column **columns = realloc(writer->columns, room * sizeof(rv_column *));
    if (columns == NULL) return rv_fail_memory(err, room * sizeof(rv_column *));
    memset(columns + writer->column_room, 0, (room - writer->column_room) * sizeof(rv_column *));
    writer->columns = columns;
    writer->column_room = room;
  }
  rv_code code = rv_column_new(number, writer->config.num_keep_alive_refs, writer->config.chunk_length, out, err);
  if (code != RV_OK) return code;
  writer->columns[number] = *out;
  if (number >= writer->num_columns) writer->num_columns = number + 1;
  return RV_OK;
}

int64_t rv_writer_first_row(const rv_writer *writer, const rv_column *column)
{
  int64_t row = writer->num_rows > column->keep ? writer->num_rows - column->keep : 0;
  return row > column->first_row ? row : column->first_row; /* fewer were kept before it was configured */
}

/* ---- chunks ---- */

void rv_writer_complete_chunk(rv_written *chunk)
{
  chunk->complete = true;
  for (uint32_t i = 0; i < chunk->num_columns; i++) {
    rv_column *column = chunk->columns[i];
    if (column->open == chunk) column->open = NULL;
    if (column->group != NULL && column->group->open == chunk) column->group->open = NULL;
  }
  if (chunk->rows > 0) {
    rv_chunk_rule_saw_chunk(chunk->rule, chunk->rows);
    rv_written_set_steps(chunk);
  }
  rv_written_unpin(chunk);
}

void rv_writer_complete_all(rv_writer *writer)
{
  for (uint32_t i = 0; i < writer->num_columns; i++) {
    rv_column *column = writer->columns[i];
    if (column != NULL && column->open != NULL) rv_writer_complete_chunk(column->open);
  }
}

static size_t count_open_chunks(const rv_writer *writer)
{
  size_t open = 0;
  for (uint32_t i = 0; i < writer->num_columns; i++) {
    const rv_column *column = writer->columns[i];
    open += column != NULL && column->open != NULL && column->open->columns[0] == column;
  }
  return open;
}

/* Bytes that one of its chunks may take, beside those that are open. */
static size_t local_share(const rv_writer *writer)
{
  size_t share = rv_memory_writer_share(rv_store_memory(writer->client->store)) / (count_open_chunks(writer) + 1);
  return share == 0 ? 1 : share < LOCAL_FULL_BYTES ? share : LOCAL_FULL_BYTES;
}

static uint32_t room_of_local_chunk(const rv_writer *writer, const rv_chunk_rule *rule, size_t row_bytes)
{
  const size_t share = writer->local_full;
  size_t most = share < LOCAL_CHUNK_BYTES ? share : LOCAL_CHUNK_BYTES;
  size_t rows = rule->last_rows < LOCAL_FIRST_ROWS / 2 ? LOCAL_FIRST_ROWS : (size_t)2 * rule->last_rows;
  if (writer->begins_anew) rows = rule->last_rows; /* columns that change in every chunk leave nothing unused */
  if (rows > LOCAL_MAX_ROWS) rows = LOCAL_MAX_ROWS;
  if (row_bytes > 0 && rows > most / row_bytes) rows = most / row_bytes;
  return rows > 0 ? (uint32_t)rows : 1;
}

_Static_assert(RV_STREAM_PACKED_ROWS_BELOW == (size_t)15 << 10, "chunk_rule.c gives such rows no more room than they use");

/* Large rows that are sent as they are, and not read here (but for trials, now and then). */
static bool is_sent_raw(const rv_writer *writer, const rv_column *column)
{
  const rv_writer_config *config = &writer->config;
  return writer->stream != NULL && column->spec.row_bytes >= RV_STREAM_PACKED_ROWS_BELOW && column->spec.dtype != RV_STRING &&
         !config->delta_encoded && config->compression != RV_COMPRESSION_SNAPPY && !column->trial.snappy;
}

static rv_buf *take_block(void *context, size_t bytes)
{
  rv_writer *writer = context;
  return rv_channel_take_block(writer->client->channel, bytes);
}

static rv_segment_source source_of(rv_writer *writer, rv_column *const *columns, uint32_t num_columns)
{
  if (writer->stream == NULL) return (rv_segment_source){.spares = NULL};
  rv_segment_source source = {.spares = rv_loop_spares(writer->client->loop)};
  bool lands = num_columns == 1 && is_sent_raw(writer, columns[0]) && rv_channel_gives_blocks(writer->client->channel);
  if (!lands) return source;
  source.once = take_block;
  source.context = writer;
  return source;
}

static rv_code open_chunk(rv_writer *writer, rv_column *const *columns, uint32_t num_columns, uint64_t group, rv_chunk_rule *rule,
                          rv_error *err)
{
  size_t row_bytes = 0;
  for (uint32_t i = 0; i < num_columns; i++) row_bytes += columns[i]->spec.row_bytes;
  if (writer->stream == NULL) writer->local_full = local_share(writer);
  uint32_t rows = writer->stream == NULL ? room_of_local_chunk(writer, rule, row_bytes) : rv_chunk_rule_room(rule, row_bytes);
  rv_written *chunk;
  rv_segment_source source = source_of(writer, columns, num_columns);
  rv_code code = rv_written_new(columns, num_columns, group, rows, rv_writer_random_key(writer), writer->episode_id,
                                writer->episode_steps, &source, &chunk, err);
  if (code != RV_OK) return code;
  chunk->rule = rule;
  for (uint32_t i = 0; i < num_columns; i++) {
    columns[i]->open = chunk;
    columns[i]->tensor = i;
    columns[i]->open_rows = 0;
  }
  return RV_OK;
}

static bool has_room(const rv_writer *writer, const rv_column *column)
{
  const rv_written *open = column->open;
  if (open == NULL || column->open_rows >= rv_segment_capacity(open->segment)) return false;
  return open->bytes < (writer->stream == NULL ? writer->local_full : rv_chunk_rule_most_bytes(open->rule));
}

/* A new chunk for the columns of a group. */
static rv_code roll(rv_writer *writer, rv_group *group, rv_error *err)
{
  if (group->open != NULL) rv_writer_complete_chunk(group->open);
  rv_writer_check_trials(writer, group);
  if (group->num_columns == 0) return RV_OK;
  rv_code code =
      open_chunk(writer, group->columns, group->num_columns, writer->stream == NULL ? 0 : group->number, &group->rule, err);
  if (code != RV_OK) return code;
  group->open = group->columns[0]->open;
  group->open->as_is = group->by_itself;
  return RV_OK;
}

static rv_code open_chunks(rv_writer *writer, const rv_cell *cells, size_t num_cells, rv_error *err)
{
  rv_code code = RV_OK;
  for (size_t i = 0; i < num_cells && code == RV_OK; i++) {
    rv_column *column = writer->columns[cells[i].column];
    if (column->group != NULL && !has_room(writer, column)) code = roll(writer, column->group, err);
  }
  for (size_t i = 0; i < num_cells && code == RV_OK; i++) { /* also those that have just left their group */
    rv_column *column = writer->columns[cells[i].column];
    if (has_room(writer, column)) continue;
    if (column->open != NULL) rv_writer_complete_chunk(column->open);
    code = open_chunk(writer, &column, 1, 0, &column->rule, err);
  }
  return code;
}

/* ---- append ---- */

static size_t string_bytes(const rv_column *column, const rv_tensor *value)
{
  size_t total = 0;
  const rv_bytes *strings = value->data;
  for (size_t i = 0; i < column->spec.row_bytes / sizeof(rv_bytes); i++) total += strings[i].size;
  return total;
}

static rv_code check_cell(rv_writer *writer, const rv_cell *cell, size_t *bytes, rv_error *err)
{
  rv_column *column;
  char label[RV_LABEL_MAX];
  rv_code code = rv_writer_make_column(writer, cell->column, &column, err);
  if (code != RV_OK) return code;
  if (column->mark == writer->serial || (writer->step_open && column->last_row == writer->num_rows - 1))
    return rv_fail(err, RV_INVALID_ARGUMENT, "%s has already been set in this step", rv_column_label(column, label));
  if (cell->value.rank > 0 && cell->value.shape == NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT, "%s: the cell has dimensions but no shape", rv_column_label(column, label));
  column->mark = writer->serial;
  code = column->known ? rv_column_check(column, &cell->value, err) : rv_column_fix(column, &cell->value, err);
  if (code != RV_OK) return code;
  if (column->spec.row_bytes > 0 && cell->value.data == NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT, "%s: the cell has elements but no data", rv_column_label(column, label));
  size_t size = column->spec.row_bytes;
  if (column->spec.dtype == RV_STRING && size > 0) size += string_bytes(column, &cell->value);
  *bytes += size;
  return RV_OK;
}

static size_t count_known(const rv_writer *writer)
{
  size_t known = 0;
  for (uint32_t i = 0; i < writer->num_columns; i++) known += writer->columns[i] != NULL && writer->columns[i]->known;
  return known;
}

/* Where columns share chunks every step has the columns of the first. */
static rv_code check_whole_step(const rv_writer *writer, const rv_cell *cells, size_t num_cells, bool partial_step, rv_error *err)
{
  if (partial_step)
    return rv_fail(err, RV_INVALID_ARGUMENT, "columns that share chunks take whole steps only; append all cells at once");
  size_t known = count_known(writer);
  if (known == 0) return RV_OK;
  if (known != num_cells)
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "the step has %zu columns, which is inconsistent with the %zu of the steps before it", num_cells, known);
  for (size_t i = 0; i < num_cells; i++) {
    rv_column *column = rv_writer_column(writer, cells[i].column);
    if (column == NULL || !column->known)
      return rv_fail(err, RV_INVALID_ARGUMENT, "column %u is new, which is inconsistent with the steps before it",
                     (unsigned)cells[i].column);
  }
  return RV_OK;
}

static rv_code check_cells(rv_writer *writer, const rv_cell *cells, size_t num_cells, bool partial_step, size_t *bytes,
                           rv_error *err)
{
  rv_code code = RV_OK;
  if (writer->config.columns_share_chunks) code = check_whole_step(writer, cells, num_cells, partial_step, err);
  for (size_t i = 0; i < num_cells && code == RV_OK; i++) code = check_cell(writer, &cells[i], bytes, err);
  return code;
}

enum { OUTGROWS_CACHES = 48 << 20 /* a lone writer with 32 MiB on his way was slower past them */ };

/* In a block of the server's it is read by nobody until it is sampled; elsewhere, with so much before it, it has left the caches when the server
 * reads it. */
static bool is_for_later(const rv_writer *writer, const rv_column *column)
{
  if (!is_sent_raw(writer, column)) return false;
  return rv_segment_is_for_once(column->open->segment) || rv_loop_unconfirmed_bytes(writer->client->loop) > OUTGROWS_CACHES;
}

static rv_code put_cell(const rv_writer *writer, const rv_column *column, const rv_tensor *value, rv_error *err)
{
  rv_chunk *segment = column->open->segment;
  return is_for_later(writer, column) ? rv_segment_put_for_later(segment, column->tensor, column->open_rows, value, err)
                                      : rv_segment_put(segment, column->tensor, column->open_rows, value, err);
}

static rv_code put_cells(rv_writer *writer, const rv_cell *cells, size_t num_cells, rv_error *err)
{
  for (size_t i = 0; i < num_cells; i++) {
    rv_column *column = writer->columns[cells[i].column];
    rv_code code = rv_column_reserve(column, err);
    if (code == RV_OK) code = put_cell(writer, column, &cells[i].value, err);
    if (code != RV_OK) return code;
  }
  return RV_OK;
}

/* Columns that were to begin in this append have not; chunks that were opened for it go. */
static void undo(rv_writer *writer, const rv_cell *cells, size_t num_cells)
{
  for (size_t i = 0; i < num_cells; i++) {
    rv_column *column = rv_writer_column(writer, cells[i].column);
    if (column == NULL) continue;
    if (column->open != NULL && column->open->rows == 0) rv_writer_complete_chunk(column->open);
    if (column->tentative) rv_writer_ungroup(writer, column);
    rv_column_unfix(column);
  }
}

static void add_bytes(rv_writer *writer, rv_written *chunk, size_t bytes)
{
  if (atomic_load_explicit(&chunk->in_flight, memory_order_acquire) == 0) {
    chunk->bytes += bytes;
    return;
  }
  rv_mutex_lock(&writer->mutex);
  /* in process whoever samples may have settled the last item meanwhile, and taken off what the chunk had */
  if (atomic_load_explicit(&chunk->in_flight, memory_order_relaxed) > 0)
    atomic_fetch_add_explicit(&writer->bytes_in_flight, bytes, memory_order_relaxed);
  chunk->bytes += bytes;
  rv_mutex_unlock(&writer->mutex);
}

static void commit_cell(rv_writer *writer, const rv_cell *cell, int64_t row)
{
  rv_column *column = writer->columns[cell->column];
  rv_written *chunk = column->open;
  size_t bytes = column->spec.row_bytes;
  if (column->spec.dtype == RV_STRING && bytes > 0) bytes += string_bytes(column, &cell->value);
  column->tentative = false;
  rv_column_add_row(column, row);
  rv_segment_publish(chunk->segment, column->tensor, column->open_rows);
  if (column->open_rows > chunk->rows) chunk->rows = column->open_rows;
  chunk->last_step = writer->episode_steps;
  add_bytes(writer, chunk, bytes);
}

/* So that items need not wait for the next append. */
static void complete_full(rv_writer *writer, const rv_cell *cells, size_t num_cells)
{
  for (size_t i = 0; i < num_cells; i++) {
    rv_column *column = writer->columns[cells[i].column];
    if (column->open != NULL && !has_room(writer, column)) rv_writer_complete_chunk(column->open);
  }
}

static void commit(rv_writer *writer, const rv_cell *cells, size_t num_cells, bool partial_step)
{
  if (!writer->step_open) writer->num_rows++;
  for (size_t i = 0; i < num_cells; i++) commit_cell(writer, &cells[i], writer->num_rows - 1);
  writer->step_open = partial_step;
  if (!partial_step) {
    writer->episode_steps++;
    /* in process it is read while it grows */
    if (writer->stream == NULL && writer->all != NULL && writer->all->open != NULL) rv_written_set_steps(writer->all->open);
  }
  for (uint32_t i = 0; i < writer->num_columns; i++) {
    rv_column *column = writer->columns[i];
    if (column != NULL && column->num_spans > 0) rv_column_expire(column, rv_writer_first_row(writer, column));
  }
  if (writer->stream != NULL) complete_full(writer, cells, num_cells);
  if (writer->num_waiting > 0) rv_writer_dispatch(writer);
}

rv_code rv_writer_append(rv_writer *writer, const rv_cell *cells, size_t num_cells, bool partial_step, rv_error *err)
{
  rv_code code = rv_writer_check(writer, err);
  if (code == RV_OK) code = rv_writer_failure(writer, false, err);
  if (code != RV_OK) return code;
  size_t bytes = 0;
  writer->serial++;
  code = check_cells(writer, cells, num_cells, partial_step, &bytes, err);
  if (code == RV_OK) code = rv_writer_room(writer, bytes, err);
  if (code == RV_OK) code = rv_writer_group_cells(writer, cells, num_cells, err);
  if (code == RV_OK) code = open_chunks(writer, cells, num_cells, err);
  if (code == RV_OK) code = put_cells(writer, cells, num_cells, err);
  if (code != RV_OK) {
    undo(writer, cells, num_cells);
    return code;
  }
  commit(writer, cells, num_cells, partial_step);
  return RV_OK;
}
