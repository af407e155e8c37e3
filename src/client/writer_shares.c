/* Which columns share a chunk: a chunk costs some hundred bytes of books at either end, whatever it has of a column, and each has to be described, sent and
 * found. So columns of small rows that come in the same appends go into one together, on their way to a server, as long as it is the same items that need
 * them. Groups are only ever divided: by an append that has some of a group's columns and not the others, by an item that needs some much less than
 * others, or at other steps, and by what compresses. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/writer.h"

enum {
  ROW_BYTES_BELOW = 1024, /* of a column that shares */
  GROUP_ROW_BYTES = 2048, /* of a group: what is sent of a row or two is then still copied as one piece */
  WASTED_BYTES_MAX = 512, /* rows that an item takes along and does not need: about what a chunk more would cost */
  COMPRESSES_AFTER = 2    /* trials in a row: the first rows are often all zeros */
};

/* ---- groups ---- */

static rv_group *new_group(rv_writer *writer, uint32_t room, rv_error *err)
{
  size_t bytes = sizeof(rv_group) + room * sizeof(rv_column *);
  rv_group *group = calloc(1, bytes);
  if (group == NULL) {
    rv_fail_memory(err, bytes);
    return NULL;
  }
  group->room = room;
  rv_chunk_rule_init(&group->rule, writer->config.chunk_length, writer->config.num_keep_alive_refs);
  group->rule.at_once = writer->rows_at_once;
  rv_list_push_back(&writer->groups, &group->link);
  return group;
}

static void add(rv_writer *writer, rv_group *group, rv_column *column)
{
  group->columns[group->num_columns++] = column;
  group->number = ++writer->group_numbers;
  column->group = group;
}

static void complete_open(rv_group *group)
{
  if (group->open != NULL) rv_writer_complete_chunk(group->open);
}

/* From now on they have chunks of their own. A group without columns stays: chunks may refer to its rule. */
static void leave(rv_writer *writer, rv_column *column)
{
  rv_group *group = column->group;
  uint32_t at = 0;
  if (group == NULL) return;
  complete_open(group);
  while (group->columns[at] != column) at++;
  memmove(&group->columns[at], &group->columns[at + 1], (--group->num_columns - at) * sizeof(rv_column *));
  group->number = ++writer->group_numbers;
  column->group = NULL;
}

/* Those of its columns that leave it (rv_column.leaves) are a group of their own. Without memory for that, each is alone. */
static void divide(rv_writer *writer, rv_group *group)
{
  uint32_t leaving = 0;
  for (uint32_t i = 0; i < group->num_columns; i++) leaving += group->columns[i]->leaves;
  if (leaving == 0 || leaving == group->num_columns) return;
  complete_open(group);
  rv_group *other = leaving > 1 ? new_group(writer, leaving, NULL) : NULL;
  if (other != NULL) {
    other->rule = group->rule;
    other->by_itself = true;
  }
  for (uint32_t i = 0; i < group->num_columns;) {
    rv_column *column = group->columns[i];
    if (!column->leaves) {
      i++;
      continue;
    }
    leave(writer, column);
    if (other != NULL) add(writer, other, column);
  }
}

void rv_writer_free_groups(rv_writer *writer)
{
  for (rv_link *link; (link = rv_list_pop_front(&writer->groups)) != NULL;) free(RV_CONTAINER(link, rv_group, link));
}

/* ---- in process, and where it was asked for: all columns are one group ---- */

static rv_code make_room(rv_writer *writer, rv_error *err)
{
  rv_group *old = writer->all, *grown;
  if (old != NULL && old->room >= writer->num_columns) return RV_OK;
  grown = new_group(writer, old == NULL ? writer->num_columns : 2 * writer->num_columns, err);
  if (grown == NULL) return RV_RESOURCE_EXHAUSTED;
  writer->all = grown;
  if (old == NULL) return RV_OK;
  complete_open(old);
  grown->rule = old->rule;
  for (uint32_t i = 0; i < old->num_columns; i++) add(writer, grown, old->columns[i]);
  old->num_columns = 0;
  return RV_OK;
}

static rv_code join_all(rv_writer *writer, const rv_cell *cells, size_t num_cells, rv_error *err)
{
  rv_code code = make_room(writer, err);
  for (size_t i = 0; i < num_cells && code == RV_OK; i++) {
    rv_column *column = writer->columns[cells[i].column];
    if (column->group == NULL) add(writer, writer->all, column);
  }
  return code;
}

/* ---- elsewhere: those that come together ---- */

static bool can_share(const rv_column *column)
{
  const rv_chunk_column *spec = &column->spec;
  return !column->apart && spec->dtype != RV_STRING && spec->row_bytes > 0 && spec->row_bytes < ROW_BYTES_BELOW;
}

/* The columns that come for the first time: as many as fit are a group, from cell number *next on, which moves on behind them. */
static rv_code group_newcomers(rv_writer *writer, const rv_cell *cells, size_t num_cells, size_t *next, rv_error *err)
{
  rv_column *member[RV_CHUNK_STAMP_RUNS];
  uint32_t n = 0;
  size_t bytes = 0;
  for (; *next < num_cells; ++*next) {
    rv_column *column = writer->columns[cells[*next].column];
    const bool joins = !column->grouped && can_share(column);
    if (joins && (n == RV_CHUNK_STAMP_RUNS || bytes + column->spec.row_bytes > GROUP_ROW_BYTES)) break;
    column->grouped = true;
    if (!joins) continue;
    bytes += column->spec.row_bytes;
    member[n++] = column;
  }
  rv_group *group = n > 1 ? new_group(writer, n, err) : NULL;
  if (n > 1 && group == NULL) return RV_RESOURCE_EXHAUSTED;
  if (group == NULL) return RV_OK;
  group->by_itself = true;
  for (uint32_t i = 0; i < n; i++) add(writer, group, member[i]);
  return RV_OK;
}

/* The append has some of its columns, and not the others. */
static void divide_by_append(rv_writer *writer, rv_group *group)
{
  group->seen = writer->serial;
  for (uint32_t i = 0; i < group->num_columns; i++) group->columns[i]->leaves = group->columns[i]->mark != writer->serial;
  divide(writer, group);
}

rv_code rv_writer_group_cells(rv_writer *writer, const rv_cell *cells, size_t num_cells, rv_error *err)
{
  if (writer->one_chunk) return join_all(writer, cells, num_cells, err);
  bool some_new = false;
  for (size_t i = 0; i < num_cells; i++) {
    rv_column *column = writer->columns[cells[i].column];
    some_new |= !column->grouped;
    if (column->group != NULL && column->group->seen != writer->serial) divide_by_append(writer, column->group);
  }
  for (size_t next = 0; some_new && next < num_cells;) {
    rv_code code = group_newcomers(writer, cells, num_cells, &next, err);
    if (code != RV_OK) return code;
  }
  return RV_OK;
}

void rv_writer_ungroup(rv_writer *writer, rv_column *column)
{
  rv_group *group = column->group;
  column->grouped = false;
  if (group == NULL) return;
  leave(writer, column);
  if (group == writer->all || group->num_columns > 0) return;
  rv_list_remove(&group->link); /* all of its columns began with this append, and no chunk has rows */
  free(group);
}

void rv_writer_set_apart(rv_writer *writer, rv_column *column)
{
  column->apart = true;
  if (!writer->one_chunk) leave(writer, column);
}

void rv_writer_check_trials(rv_writer *writer, rv_group *group)
{
  if (!group->by_itself) return;
  for (uint32_t i = group->num_columns; i > 0; i--)
    if (group->columns[i - 1]->trial.in_a_row >= COMPRESSES_AFTER) leave(writer, group->columns[i - 1]);
}

/* ---- items ---- */

/* What the item over the present parts needs of each column of a group, and of each group: of each of its chunks the most rows of one column. */
static void count_rows(rv_writer *writer)
{
  const rv_parts *parts = &writer->parts;
  for (size_t i = 0; i < parts->num_slices; i++) {
    rv_written *chunk = parts->owners[i];
    const uint32_t length = (uint32_t)parts->slices[i].length;
    rv_column *column = chunk->columns[parts->slices[i].tensor];
    rv_group *group = column->group;
    if (group == NULL) continue;
    if (group->seen_item != writer->serial) group->most_rows = 0;
    group->seen_item = writer->serial;
    if (column->item_mark != writer->serial) column->item_rows = 0;
    column->item_mark = writer->serial;
    column->item_rows += length;
    column->used = true;
    if (length <= chunk->item_rows) continue;
    group->most_rows += length - chunk->item_rows;
    chunk->item_rows = length;
  }
}

/* Bytes of the column that the item takes along for others. */
static size_t wasted(const rv_writer *writer, const rv_group *group, const rv_column *column)
{
  const uint32_t rows = column->item_mark == writer->serial ? column->item_rows : 0;
  return rows < group->most_rows ? (size_t)(group->most_rows - rows) * column->spec.row_bytes : 0;
}

/* The columns that no item has needed leave it, then those of which most is wasted, until little is. */
static void divide_by_item(rv_writer *writer, rv_group *group)
{
  size_t total = 0;
  uint32_t stay = group->num_columns;
  for (uint32_t i = 0; i < group->num_columns; i++) {
    rv_column *column = group->columns[i];
    column->leaves = !column->used;
    stay -= column->leaves;
    if (column->used) total += wasted(writer, group, column);
  }
  while (total > WASTED_BYTES_MAX && stay > 1) { /* one by itself takes along nobody's */
    rv_column *worst = NULL;
    for (uint32_t i = 0; i < group->num_columns; i++) {
      rv_column *column = group->columns[i];
      if (!column->leaves && (worst == NULL || wasted(writer, group, column) > wasted(writer, group, worst))) worst = column;
    }
    total -= wasted(writer, group, worst);
    worst->leaves = true;
    stay--;
  }
  divide(writer, group);
}

void rv_writer_check_item(rv_writer *writer)
{
  if (rv_list_empty(&writer->groups) || writer->one_chunk) return;
  count_rows(writer);
  const rv_link *last = writer->groups.prev; /* what is made of a group is not looked at */
  for (rv_link *link = writer->groups.next;; link = link->next) {
    rv_group *group = RV_CONTAINER(link, rv_group, link);
    if (group->seen_item == writer->serial && group->num_columns > 0) divide_by_item(writer, group);
    if (link == last) break;
  }
}
