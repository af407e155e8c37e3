/* create_item: rows into slices, and what is checked before anything is queued. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/writer.h"
#include "store/signature.h"
#include "store/table.h"

enum { MAX_SLICES = 1 << 20 };

/* ---- room ---- */

static bool grow(void **array, size_t size, size_t room)
{
  void *grown = realloc(*array, size * room);
  if (grown == NULL) return false;
  *array = grown;
  return true;
}

static rv_code need_slice(rv_parts *parts, rv_error *err)
{
  if (parts->num_slices < parts->slice_room) return RV_OK;
  if (parts->num_slices >= MAX_SLICES)
    return rv_fail(err, RV_INVALID_ARGUMENT, "the item's rows lie in more than %d separate places", MAX_SLICES);
  size_t room = parts->slice_room == 0 ? 32 : 2 * parts->slice_room;
  if (!grow((void **)&parts->slices, sizeof *parts->slices, room) || !grow((void **)&parts->owners, sizeof(rv_written *), room))
    return rv_fail_memory(err, room * sizeof *parts->slices);
  parts->slice_room = room;
  return RV_OK;
}

static rv_code need_columns(rv_parts *parts, size_t num_columns, rv_error *err)
{
  if (num_columns > RV_MAX_COLUMNS)
    return rv_fail(err, RV_INVALID_ARGUMENT, "an item of %zu columns; at most %d are possible", num_columns, RV_MAX_COLUMNS);
  if (num_columns <= parts->column_room) return RV_OK;
  if (!grow((void **)&parts->columns, sizeof *parts->columns, num_columns) ||
      !grow((void **)&parts->column_slices, sizeof *parts->column_slices, num_columns) ||
      !grow((void **)&parts->squeeze, sizeof *parts->squeeze, num_columns))
    return rv_fail_memory(err, num_columns * sizeof *parts->columns);
  parts->column_room = (uint32_t)num_columns;
  return RV_OK;
}

void rv_parts_fini(rv_parts *parts)
{
  free(parts->slices);
  free(parts->owners);
  free(parts->columns);
  free(parts->column_slices);
  free(parts->squeeze);
  free(parts->wire);
  free(parts->chunks);
}

/* ---- rows into slices ---- */

static rv_code fail_row(const rv_writer *writer, uint32_t number, int64_t row, rv_error *err)
{
  char label[RV_LABEL_MAX];
  const rv_column *column = rv_writer_column(writer, number);
  if (column == NULL || !column->known)
    return rv_fail(err, RV_INVALID_ARGUMENT, "column %u has no rows: nothing was appended to it", (unsigned)number);
  rv_column_label(column, label);
  if (row < 0 || row >= writer->num_rows)
    return rv_fail(err, RV_INVALID_ARGUMENT, "row %" PRId64 " of %s does not exist; there are rows 0 to %" PRId64, row, label,
                   writer->num_rows - 1);
  int64_t first = rv_writer_first_row(writer, column);
  if (row < first)
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "row %" PRId64 " of %s has expired: the last %" PRId64 " rows are kept (num_keep_alive_refs)", row, label,
                   writer->num_rows - first);
  return rv_fail(err, RV_INVALID_ARGUMENT, "row %" PRId64 " of %s is missing: that step has no cell for it", row, label);
}

/* Rows that lie one behind the other in their chunk join the slice before them; rows across a gap never do. */
static rv_code add_slice(rv_parts *parts, size_t first_slice, const rv_row_span *span, uint32_t offset, uint32_t length,
                         rv_error *err)
{
  if (parts->num_slices > first_slice) {
    rv_slice *last = &parts->slices[parts->num_slices - 1];
    if (parts->owners[parts->num_slices - 1] == span->chunk && last->tensor == span->tensor &&
        last->offset + last->length == (int32_t)offset) {
      last->length += (int32_t)length;
      return RV_OK;
    }
  }
  rv_code code = need_slice(parts, err);
  if (code != RV_OK) return code;
  parts->slices[parts->num_slices] =
      (rv_slice){.chunk = span->chunk->segment, .tensor = span->tensor, .offset = (int32_t)offset, .length = (int32_t)length};
  parts->owners[parts->num_slices++] = span->chunk;
  return RV_OK;
}

static rv_code add_run(rv_writer *writer, const rv_run *run, size_t first_slice, rv_error *err)
{
  const rv_column *column = rv_writer_column(writer, run->column);
  int64_t row = run->first, oldest = column != NULL ? rv_writer_first_row(writer, column) : 0; /* a span may begin before it */
  for (uint32_t left = run->count; left > 0;) {
    const rv_row_span *span = column != NULL && row >= oldest ? rv_column_find(column, row) : NULL;
    if (span == NULL) return fail_row(writer, run->column, row, err);
    uint32_t at = (uint32_t)(row - span->first), length = run->stride == 1 ? span->count - at : 1;
    if (length > left) length = left;
    rv_code code = add_slice(&writer->parts, first_slice, span, span->offset + at, length, err);
    if (code != RV_OK) return code;
    left -= length;
    int64_t step;
    if (left > 0 && (__builtin_mul_overflow(run->stride, (int64_t)length, &step) || __builtin_add_overflow(row, step, &row)))
      return fail_row(writer, run->column, INT64_MAX, err);
  }
  return RV_OK;
}

static rv_code check_same_kind(const rv_writer *writer, const rv_chunk_column *spec, uint32_t number, rv_error *err)
{
  const rv_column *column = rv_writer_column(writer, number);
  const rv_chunk_column *other = &column->spec;
  bool same = spec->rank == other->rank;
  for (uint32_t d = 0; same && d < spec->rank; d++) same = spec->shape[d] == other->shape[d];
  if (same && spec->dtype == other->dtype) return RV_OK;
  char a[96], b[96];
  return rv_fail(err, RV_INVALID_ARGUMENT, "its runs have %s: %s and %s",
                 spec->dtype != other->dtype ? "different dtypes" : "incompatible shapes",
                 rv_format_spec(a, sizeof a, spec->dtype, (int32_t)spec->rank, spec->shape),
                 rv_format_spec(b, sizeof b, other->dtype, (int32_t)other->rank, other->shape));
}

static rv_code add_column(rv_writer *writer, const rv_item_column *from, rv_error *err)
{
  rv_parts *parts = &writer->parts;
  rv_trajectory_column column = {.first_slice = (uint32_t)parts->num_slices, .squeeze = from->squeeze};
  for (size_t i = 0; i < from->num_runs; i++) {
    const rv_run *run = &from->runs[i];
    if (run->count == 0) continue;
    rv_code code = add_run(writer, run, column.first_slice, err);
    if (code == RV_OK && column.spec != NULL) code = check_same_kind(writer, column.spec, run->column, err);
    if (code != RV_OK) return code;
    column.spec = &writer->columns[run->column]->spec;
    column.length += run->count;
    if (column.length > INT32_MAX) return rv_fail(err, RV_INVALID_ARGUMENT, "it has more than 2^31 - 1 rows");
  }
  if (column.length == 0)
    return rv_fail(err, RV_INVALID_ARGUMENT, "it has no rows; a trajectory must not be empty in any column");
  if (from->squeeze && column.length != 1)
    return rv_fail(err, RV_INVALID_ARGUMENT, "a squeezed column has exactly one row, this one has %" PRId64, column.length);
  column.num_slices = (uint32_t)parts->num_slices - column.first_slice;
  parts->columns[parts->num_columns] = column;
  parts->column_slices[parts->num_columns] = column.num_slices;
  parts->squeeze[parts->num_columns++] = from->squeeze;
  return RV_OK;
}

static rv_code list_chunks(rv_writer *writer, rv_error *err)
{
  rv_parts *parts = &writer->parts;
  writer->serial++;
  parts->num_chunks = 0;
  for (size_t i = 0; i < parts->num_slices; i++) {
    rv_written *chunk = parts->owners[i];
    if (chunk->mark == writer->serial) continue;
    chunk->mark = writer->serial;
    if (parts->num_chunks == parts->chunk_room) {
      uint32_t room = parts->chunk_room == 0 ? 16 : 2 * parts->chunk_room;
      if (!grow((void **)&parts->chunks, sizeof(rv_written *), room)) return rv_fail_memory(err, room * sizeof(rv_written *));
      parts->chunk_room = room;
    }
    chunk->place = parts->num_chunks;
    chunk->item_rows = 0;
    parts->chunks[parts->num_chunks++] = chunk;
  }
  return RV_OK;
}

static rv_code make_parts(rv_writer *writer, const rv_item_column *columns, size_t num_columns, rv_error *err)
{
  rv_parts *parts = &writer->parts;
  parts->num_slices = 0;
  parts->num_columns = 0;
  if (num_columns == 0) return rv_fail(err, RV_INVALID_ARGUMENT, "a trajectory must not be empty: the item has no columns");
  rv_code code = need_columns(parts, num_columns, err);
  for (size_t i = 0; i < num_columns && code == RV_OK; i++) {
    code = add_column(writer, &columns[i], err);
    if (code == RV_INVALID_ARGUMENT) rv_error_prefix(err, "Error in column %zu", i);
  }
  return code == RV_OK ? list_chunks(writer, err) : code;
}

/* How long chunks should be: an item shows what it will be read in. */
static void learn_run(rv_column *column, uint32_t rows)
{
  if (column->group == NULL)
    rv_chunk_rule_saw_run(&column->rule, rows);
  else if (rows > column->group->longest)
    column->group->longest = rows;
}

static void learn_runs(rv_writer *writer, const rv_item_column *columns, size_t num_columns)
{
  for (size_t i = 0; i < num_columns; i++) {
    for (size_t j = 0; j < columns[i].num_runs; j++) {
      const rv_run *run = &columns[i].runs[j];
      if (run->count == 0) continue;
      int64_t rows = 1;
      if (run->count > 1)
        rows += (run->stride < 0 ? -run->stride : run->stride) * (run->count - 1); /* they exist, so this is small */
      learn_run(writer->columns[run->column], (uint32_t)rows);
    }
  }
  RV_LIST_EACH(link, &writer->groups) /* once an item, whatever it needs of one */
  {
    rv_group *group = RV_CONTAINER(link, rv_group, link);
    if (group->longest > 0) rv_chunk_rule_saw_run(&group->rule, group->longest);
    group->longest = 0;
  }
}

/* ---- tables ---- */

static const rv_signature *signature_of(const rv_writer_table *table)
{
  if (table->local != NULL) return rv_table_signature(table->local);
  return table->info != NULL ? &table->info->signature : NULL;
}

/* Asks the server what its tables expect, unless that is done already, or it does not say. Out of memory for that: it checks by itself. */
static void ask(rv_writer *writer)
{
  rv_mutex_lock(&writer->mutex);
  bool may = writer->fetch == NULL && writer->tables_error.code == RV_OK;
  rv_mutex_unlock(&writer->mutex);
  if (may) rv_writer_fetch_tables(writer, NULL);
}

bool rv_writer_renew_tables(rv_writer *writer)
{
  if (writer->snapshot == NULL || rv_tables_are_present(writer->snapshot, writer->client)) return false;
  for (size_t i = 0; i < writer->num_tables; i++) writer->tables[i]->info = NULL;
  rv_tables_unref(writer->snapshot);
  writer->snapshot = rv_client_present_tables(writer->client);
  if (writer->snapshot == NULL) ask(writer);
  return true;
}

/* Finds the table here, or in what is known of the server. */
static rv_code find(rv_writer *writer, rv_writer_table *table, rv_error *err)
{
  if (writer->stream == NULL) return rv_store_find_named(writer->client->store, table->name, &table->local, err);
  if (writer->config.no_validation) return RV_OK;
  if (writer->snapshot == NULL) writer->snapshot = rv_client_present_tables(writer->client);
  if (writer->snapshot == NULL) { /* checked when they are known */
    ask(writer);
    return RV_OK;
  }
  rv_code code = rv_tables_find(writer->snapshot, table->name, &table->info, err);
  return code != RV_OK && rv_writer_renew_tables(writer) ? find(writer, table, err) : code;
}

static rv_code look_up(rv_writer *writer, rv_writer_table *table, rv_error *err)
{
  rv_code code = find(writer, table, err);
  if (code != RV_OK || writer->config.no_validation || signature_of(table) == NULL) return code;
  rv_column_names_free(table->names); /* of a server that was there before */
  return rv_column_names_new(signature_of(table), &table->names, err);
}

static rv_code note_table(rv_writer *writer, rv_writer_table *table, rv_error *err)
{
  if (writer->num_tables == writer->table_room) {
    size_t room = writer->table_room == 0 ? 4 : 2 * writer->table_room;
    if (!grow((void **)&writer->tables, sizeof(rv_writer_table *), room))
      return rv_fail_memory(err, room * sizeof(rv_writer_table *));
    writer->table_room = room;
  }
  writer->tables[writer->num_tables++] = table;
  return RV_OK;
}

/* A server that came after the one that was asked may have tables of the same form with other names, which it cannot check: what is
 * known of the tables goes with the connection. */
rv_code rv_writer_find_table(rv_writer *writer, const char *name, rv_writer_table **out, rv_error *err)
{
  if (name == NULL) return rv_fail(err, RV_INVALID_ARGUMENT, "no table was named");
  bool complete = writer->stream == NULL || writer->config.no_validation;
  if (!complete) rv_writer_renew_tables(writer);
  for (size_t i = 0; i < writer->num_tables; i++) {
    if (strcmp(writer->tables[i]->name, name) != 0) continue;
    *out = writer->tables[i];
    return complete || (*out)->info != NULL ? RV_OK : look_up(writer, *out, err);
  }
  rv_code code = rv_client_check_name(name, err);
  if (code != RV_OK) return code;
  rv_writer_table *table = calloc(1, sizeof *table);
  if (table == NULL || (table->name = strdup(name)) == NULL) {
    free(table);
    return rv_fail_memory(err, sizeof *table + strlen(name));
  }
  code = look_up(writer, table, err);
  if (code == RV_OK) code = note_table(writer, table, err);
  if (code != RV_OK) {
    rv_column_names_free(table->names);
    free(table->name);
    free(table);
    return code;
  }
  *out = table;
  return RV_OK;
}

rv_code rv_writer_priority_fits(const rv_table_info *info, double priority, rv_error *err)
{
  if (priority >= 0 && !isinf(priority)) return RV_OK;
  if (info->sampler.kind != RV_SELECTOR_PRIORITIZED && info->remover.kind != RV_SELECTOR_PRIORITIZED) return RV_OK;
  return rv_fail(err, RV_INVALID_ARGUMENT, "table \"%s\" chooses by priority, which must not be negative or infinite; it is %g",
                 info->name, priority);
}

static rv_code check_priority(const rv_writer_table *table, double priority, rv_error *err)
{
  if (isnan(priority)) return rv_fail(err, RV_INVALID_ARGUMENT, "the priority is nan (not a number)");
  return table->info == NULL ? RV_OK
                             : rv_writer_priority_fits(table->info, priority, err); /* in process the table looks itself */
}

static rv_code check_signature(const rv_writer *writer, const rv_writer_table *table, rv_error *err)
{
  const rv_signature *signature = signature_of(table);
  if (signature == NULL || writer->config.no_validation) return RV_OK;
  const rv_parts *parts = &writer->parts;
  rv_code code = writer->config.signatures_of_steps
                     ? rv_signature_fits(signature, table->name, parts->columns, parts->num_columns, err)
                     : rv_signature_fits_exactly(signature, table->name, parts->columns, parts->num_columns, err);
  for (uint32_t i = 0; i < parts->num_columns && code == RV_OK; i++)
    code = rv_column_name_fits(table->names, table->name, i, parts->given[i].name, err);
  return code;
}

/* ---- create_item ---- */

void rv_writer_set_naming(rv_writer *writer, uint64_t naming)
{
  writer->naming = naming;
}

static rv_code check(const rv_writer *writer, const rv_writer_table *table, double priority, rv_error *err)
{
  rv_code code = check_priority(table, priority, err);
  return code == RV_OK ? check_signature(writer, table, err) : code;
}

static rv_code put_item(rv_writer *writer, const char *table_name, double priority, const rv_item_column *columns,
                        size_t num_columns, uint64_t *key, rv_error *err)
{
  rv_writer_table *table;
  rv_code code = rv_writer_find_table(writer, table_name, &table, err);
  if (code == RV_OK) code = make_parts(writer, columns, num_columns, err);
  if (code != RV_OK) return code;
  writer->parts.given = columns;
  code = check(writer, table, priority, err);
  if (code != RV_OK && rv_writer_renew_tables(writer)) {
    code = look_up(writer, table, err);
    if (code == RV_OK) code = check(writer, table, priority, err);
  }
  if (code != RV_OK) return code;
  if (writer->stream == NULL) return rv_writer_insert_local(writer, table, priority, key, err);
  learn_runs(writer, columns, num_columns);
  rv_writer_check_item(writer);
  code = rv_writer_insert_remote(writer, table, priority, key, err);
  if (code != RV_OK && writer->num_waiting > 0) rv_writer_dispatch(writer); /* chunks that others wait for may be complete now */
  return code;
}

rv_code rv_writer_create_item(rv_writer *writer, const char *table, double priority, const rv_item_column *columns,
                              size_t num_columns, uint64_t *key, rv_error *err)
{
  rv_code code = rv_writer_check(writer, err);
  if (code == RV_OK) code = rv_writer_failure(writer, false, err);
  return code == RV_OK ? put_item(writer, table, priority, columns, num_columns, key, err) : code;
}

rv_code rv_writer_put_item(rv_writer *writer, const char *table, double priority, const rv_item_column *columns,
                           size_t num_columns, rv_error *err)
{
  writer->admitted = true;
  rv_code code = put_item(writer, table, priority, columns, num_columns, NULL, err);
  writer->admitted = false;
  return code;
}
