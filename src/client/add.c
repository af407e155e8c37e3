/* add and add_batch: rows, for those who need no trajectories. */
#include <stdio.h>
#include <stdlib.h>

#include "client/add_remote.h"
#include "client/await.h"
#include "tensor/codec.h"

enum { STACK_COLUMNS = 16, STACK_SIZES = 64 };

/* ---- in process: piece by piece (store/waiter.h) ---- */

static void describe_left(void *context, char *out, size_t capacity)
{
  const rv_rows *rows = context;
  snprintf(out, capacity, "%zu of %zu rows are in", rows->done, rows->n);
}

/* A piece is in, though the caller may just have given up. */
static rv_code may_go_on(rv_rows *rows, rv_patience *patience, rv_error *err)
{
  if (patience->interrupted)
    return rv_fail(err, RV_CANCELLED, "interrupted by the caller: %zu of %zu rows are in", rows->done, rows->n);
  patience->describe = describe_left;
  patience->context = rows;
  rv_code code = rv_patience_check(patience, err);
  patience->describe = NULL;
  return code;
}

static rv_code await_rows(rv_client *client, rv_table *table, rv_rows *rows, rv_gate *gate, const rv_wait *wait, rv_error *err)
{
  rv_patience patience;
  rv_client_begin_patience(client, &patience, wait, NULL, NULL);
  for (;;) {
    rv_code code = rv_await(&rows->waiter, gate, &patience, err);
    if (code == RV_OK && rv_rows_are_left(rows)) code = may_go_on(rows, &patience, err);
    if (code != RV_OK || !rv_rows_are_left(rows) || rv_table_insert_rows_left(table, rows) == RV_SUBMIT_DONE) return code;
  }
}

static rv_code add_local(rv_client *client, const rv_add *add, size_t *added, const rv_wait *wait, rv_error *err)
{
  rv_table *table;
  rv_code code = rv_client_find_table(client, add->table, &table, err);
  if (code != RV_OK) return code;
  rv_gate gate; /* initialised although it is hardly ever needed: another thread may complete the operation at once */
  rv_gate_init(&gate);
  rv_rows rows; /* not cleared: its error is large, and set only when there is one */
  rv_await_prepare(&rows.waiter, &gate, INT64_MAX);
  rows.columns = add->columns;
  rows.num_columns = add->num_columns;
  rows.n = add->n;
  rows.priorities = add->priorities;
  rows.keys = add->keys;
  rows.naming = add->naming;
  rows.done = 0;
  if (rv_table_insert_rows(table, &rows) == RV_SUBMIT_PENDING) code = await_rows(client, table, &rows, &gate, wait, err);
  *added = rows.done;
  if (code != RV_OK) return code;
  return rows.waiter.code == RV_OK ? RV_OK : rv_error_copy(err, &rows.waiter.error);
}

static rv_code add_rows(rv_client *client, const rv_add *add, size_t *added, const rv_wait *wait, rv_error *err)
{
  return client->store != NULL ? add_local(client, add, added, wait, err) : rv_add_remote(client, add, added, wait, err);
}

/* ---- one row: where it cannot be taken in at once, its columns get a leading dimension of 1 ---- */

static bool add_at_once(rv_client *client, const char *name, rv_row *row, uint64_t *key)
{
  rv_table *table;
  if (rv_client_find_table(client, name, &table, NULL) != RV_OK || !rv_table_add_row(table, row)) return false;
  if (key != NULL) *key = row->key;
  return true;
}

typedef struct stretched {
  rv_tensor few[STACK_COLUMNS];
  int64_t few_sizes[STACK_SIZES];
  void *memory; /* when those do not suffice */
} stretched;

static rv_code fail_no_shape(const rv_tensor *column, size_t index, rv_error *err)
{
  rv_code code = rv_fail_no_shape(err, column->rank);
  rv_error_prefix(err, "column %zu", index);
  return code;
}

static rv_code count_sizes(const rv_tensor *columns, size_t num_columns, size_t *sizes, rv_error *err)
{
  *sizes = num_columns;
  for (size_t i = 0; i < num_columns; i++) {
    if (columns[i].rank > RV_MAX_RANK)
      return rv_fail(err, RV_INVALID_ARGUMENT, "column %zu: rank %u is more than %d", i, (unsigned)columns[i].rank, RV_MAX_RANK);
    if (columns[i].rank > 0 && columns[i].shape == NULL) return fail_no_shape(&columns[i], i, err);
    *sizes += columns[i].rank;
  }
  return RV_OK;
}

static rv_code stretch(stretched *memory, const rv_tensor *columns, size_t num_columns, rv_tensor **out, rv_error *err)
{
  size_t num_sizes;
  rv_code code = count_sizes(columns, num_columns, &num_sizes, err);
  if (code != RV_OK) return code;
  rv_tensor *to = memory->few;
  int64_t *sizes = memory->few_sizes;
  memory->memory = NULL;
  if (num_columns > STACK_COLUMNS || num_sizes > STACK_SIZES) {
    if (num_columns > RV_MAX_COLUMNS)
      return rv_fail(err, RV_INVALID_ARGUMENT, "%zu columns are more than %d", num_columns, RV_MAX_COLUMNS);
    memory->memory = malloc(num_columns * sizeof *to + num_sizes * sizeof *sizes);
    if (memory->memory == NULL) return rv_fail_memory(err, num_columns * sizeof *to + num_sizes * sizeof *sizes);
    to = memory->memory;
    sizes = (int64_t *)(void *)(to + num_columns);
  }
  *out = to;
  for (size_t i = 0; i < num_columns; i++) {
    to[i] = (rv_tensor){.dtype = columns[i].dtype, .rank = columns[i].rank + 1, .shape = sizes, .data = columns[i].data};
    *sizes++ = 1;
    for (uint32_t j = 0; j < columns[i].rank; j++) *sizes++ = columns[i].shape[j];
  }
  return RV_OK;
}

/* RV_INVALID_ARGUMENT, which a row came back with that had got a dimension: where one of its shapes was refused, in terms of that shape as
 * it was given. */
static rv_code explain_row(const char *table, const rv_tensor *columns, size_t num_columns, rv_error *err)
{
  for (size_t i = 0; i < num_columns; i++) {
    size_t elements, bytes;
    rv_error given;
    if (rv_shape_elements(columns[i].dtype, columns[i].rank, columns[i].shape, &elements, &bytes, &given) == RV_OK) continue;
    rv_error_prefix(&given, "table \"%s\": column %zu", table, i);
    return rv_error_copy(err, &given);
  }
  return RV_INVALID_ARGUMENT;
}

rv_code rv_client_add(rv_client *client, const char *table, const rv_tensor *columns, size_t num_columns, double priority,
                      uint64_t *key, const rv_wait *wait, rv_error *err)
{
  return rv_client_add_named(client, table, 0, columns, num_columns, priority, key, wait, err);
}

rv_code rv_client_add_named(rv_client *client, const char *table, uint64_t naming, const rv_tensor *columns, size_t num_columns,
                            double priority, uint64_t *key, const rv_wait *wait, rv_error *err)
{
  rv_code code = rv_client_check_table(client, table, err);
  if (code != RV_OK) return code;
  if (num_columns == 0) return rv_fail(err, RV_INVALID_ARGUMENT, "a row needs at least one column");
  rv_row row = {.columns = columns, .num_columns = num_columns, .priority = priority, .naming = naming};
  if (client->store != NULL && add_at_once(client, table, &row, key)) return RV_OK;
  stretched memory;
  rv_tensor *rows = NULL;
  code = stretch(&memory, columns, num_columns, &rows, err);
  if (code != RV_OK) return code;
  rv_add add = {.table = table,
                .columns = rows,
                .num_columns = num_columns,
                .n = 1,
                .priorities = &priority,
                .keys = key,
                .naming = naming};
  size_t added;
  code = add_rows(client, &add, &added, wait, err);
  if (memory.memory != NULL) free(memory.memory);
  return code == RV_INVALID_ARGUMENT ? explain_row(table, columns, num_columns, err) : code;
}

/* ---- many ---- */

static rv_code check_columns(const rv_tensor *columns, size_t num_columns, size_t n, rv_error *err)
{
  if (num_columns == 0) return rv_fail(err, RV_INVALID_ARGUMENT, "a row needs at least one column");
  if (num_columns > RV_MAX_COLUMNS)
    return rv_fail(err, RV_INVALID_ARGUMENT, "%zu columns are more than %d", num_columns, RV_MAX_COLUMNS);
  for (size_t i = 0; i < num_columns; i++) {
    if (columns[i].rank == 0 || columns[i].rank > RV_MAX_RANK + 1)
      return rv_fail(err, RV_INVALID_ARGUMENT, "column %zu: rank %u is not between 1 and %d; the first dimension counts the rows",
                     i, (unsigned)columns[i].rank, RV_MAX_RANK + 1);
    if (columns[i].shape == NULL) return fail_no_shape(&columns[i], i, err);
    if (columns[i].shape[0] < 0 || (uint64_t)columns[i].shape[0] != n)
      return rv_fail(err, RV_INVALID_ARGUMENT, "column %zu has %lld rows, not %zu", i, (long long)columns[i].shape[0], n);
  }
  return RV_OK;
}

rv_code rv_client_add_batch(rv_client *client, const char *table, const rv_tensor *columns, size_t num_columns, size_t n,
                            const double *priorities, uint64_t *keys, size_t *added, const rv_wait *wait, rv_error *err)
{
  return rv_client_add_batch_named(client, table, 0, columns, num_columns, n, priorities, keys, added, wait, err);
}

rv_code rv_client_add_batch_named(rv_client *client, const char *table, uint64_t naming, const rv_tensor *columns,
                                  size_t num_columns, size_t n, const double *priorities, uint64_t *keys, size_t *added,
                                  const rv_wait *wait, rv_error *err)
{
  size_t ignored;
  if (added == NULL) added = &ignored;
  *added = 0;
  rv_code code = rv_client_check_table(client, table, err);
  if (code == RV_OK) code = check_columns(columns, num_columns, n, err);
  if (code != RV_OK || n == 0) return code;
  rv_add add = {.table = table,
                .columns = columns,
                .num_columns = num_columns,
                .n = n,
                .priorities = priorities,
                .keys = keys,
                .naming = naming};
  return add_rows(client, &add, added, wait, err);
}
