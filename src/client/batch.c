#include "client/batch.h"

#include <stdlib.h>
#include <string.h>

#include "client/await.h"
#include "client/batch_remote.h"
#include "client/check_received.h"
#include "client/sample.h"
#include "store/gather.h"
#include "store/signature.h"
#include "store/unequal.h"

enum { FREE_BATCHES_MAX = 4, KEPT_CAPACITY_MAX = 65536, STACK_COLUMNS = 32 };

/* ---- memory ---- */

static void free_memory(rv_batch *batch)
{
  free(batch->shapes);
  free(batch->draws);
  free(batch->infos);
  free(batch);
}

void rv_batches_free(rv_batch *list)
{
  while (list != NULL) {
    rv_batch *next = list->next;
    free_memory(list);
    list = next;
  }
}

static rv_batch *take_free(rv_client *client, size_t capacity)
{
  rv_mutex_lock(&client->mutex);
  rv_batch **at = &client->free_batches;
  while (*at != NULL && (*at)->capacity < capacity) at = &(*at)->next;
  rv_batch *batch = *at;
  if (batch != NULL) {
    *at = batch->next;
    client->num_free_batches--;
  }
  rv_mutex_unlock(&client->mutex);
  return batch;
}

rv_code rv_batch_take(rv_client *client, size_t capacity, rv_batch **out, rv_error *err)
{
  rv_batch *batch = take_free(client, capacity);
  if (batch == NULL) {
    batch = calloc(1, sizeof *batch);
    if (batch == NULL) return rv_fail_memory(err, sizeof *batch);
    batch->client = client;
    batch->capacity = capacity;
    batch->draws = calloc(capacity, sizeof *batch->draws);
    batch->infos = calloc(capacity, sizeof *batch->infos);
    if (batch->draws == NULL || batch->infos == NULL) {
      free_memory(batch);
      return rv_fail(err, RV_RESOURCE_EXHAUSTED,
                     "out of memory: %zu bytes, for a batch of %zu items without their data, could not be allocated; lower "
                     "batch_size, or add memory",
                     capacity * (sizeof *batch->draws + sizeof *batch->infos), capacity);
    }
  }
  batch->size = 0;
  *out = batch;
  return RV_OK;
}

static void give_back(rv_batch *batch)
{
  rv_client *client = batch->client;
  rv_mutex_lock(&client->mutex);
  bool keep = batch->capacity <= KEPT_CAPACITY_MAX && client->num_free_batches < FREE_BATCHES_MAX;
  if (keep) {
    batch->next = client->free_batches;
    client->free_batches = batch;
    client->num_free_batches++;
  }
  rv_mutex_unlock(&client->mutex);
  if (!keep) free_memory(batch);
}

void rv_batch_free(rv_batch *batch)
{
  if (batch == NULL || !rv_client_is_here(batch->client)) return;
  rv_draws_release(batch->draws, batch->size);
  free(batch->shapes);
  batch->shapes = NULL;
  give_back(batch);
}

/* ---- drawing ---- */

rv_code rv_batch_draw_local(rv_batch *batch, const char *name, size_t want, bool same_layout, rv_fill *fill,
                            rv_patience *patience, rv_error *err)
{
  rv_table *table;
  rv_code code = rv_client_find_table(batch->client, name, &table, err);
  if (code != RV_OK) return code;
  rv_gate gate;
  rv_gate_init(&gate);
  rv_sampling sampling; /* not cleared: its error is large, and set only when there is one */
  rv_await_prepare(&sampling.waiter, &gate, patience->deadline_ns);
  sampling.want = want;
  sampling.partial = false;
  sampling.same_layout = same_layout;
  sampling.fill = fill;
  sampling.max_bytes = 0;
  sampling.draws = batch->draws;
  sampling.count = 0;
  sampling.rate_limited = false;
  rv_submitted submitted = rv_table_sample(table, &sampling);
  rv_code gave_up = submitted == RV_SUBMIT_PENDING ? rv_await(&sampling.waiter, &gate, patience, err) : RV_OK;
  batch->size = sampling.count;
  if (gave_up != RV_OK) return batch->size > 0 && !patience->interrupted ? RV_OK : gave_up;
  code = sampling.waiter.code;
  if (code == RV_OK || (code == RV_CANCELLED && batch->size > 0)) return RV_OK;
  return rv_error_copy(err, &sampling.waiter.error);
}

static rv_code check_all_received(rv_batch *batch, const char *table, rv_patience *patience, rv_error *err)
{
  rv_received_check check = {0};
  rv_code code = RV_OK;
  for (size_t i = 0; i < batch->size && code == RV_OK; i++)
    code = rv_check_received(&check, batch->client, table, &batch->draws[i], patience, err);
  rv_received_check_fini(&check);
  return code;
}

rv_code rv_batch_draw_remote(rv_batch *batch, const char *table, size_t want, bool same_layout, rv_sink *sink,
                             rv_patience *patience, rv_error *err)
{
  rv_code code = rv_sample_remote(batch->client, table, want, same_layout, sink, patience, batch->draws, &batch->size, err);
  if (sink != NULL && sink->taken > 0) batch->size = 0;
  return code == RV_OK ? check_all_received(batch, table, patience, err) : code;
}

static rv_code draw(rv_batch *batch, const char *table, size_t want, bool same_layout, rv_patience *patience, rv_error *err)
{
  if (batch->client->store != NULL) return rv_batch_draw_local(batch, table, want, same_layout, NULL, patience, err);
  return rv_batch_draw_remote(batch, table, want, same_layout, NULL, patience, err);
}

rv_code rv_batch_finish(rv_batch *batch, const char *table, rv_unequal unequal, rv_error *err)
{
  const rv_layout *first = batch->draws[0].trajectory->layout, *other = NULL;
  for (size_t i = 0; i < batch->size; i++) {
    const rv_layout *layout = batch->draws[i].trajectory->layout;
    if (layout != first && (other == NULL || !rv_layouts_can_be_padded(layout, first))) other = layout;
    rv_sample_info_of_draw(&batch->draws[i], &batch->infos[i]);
  }
  batch->one_layout = other == NULL;
  if (batch->one_layout || unequal == RV_UNEQUAL_LIST) return RV_OK;
  if (unequal == RV_UNEQUAL_PAD) {
    size_t bytes = (rv_batch_num_columns(batch) + 1) * RV_MAX_RANK * sizeof *batch->shapes;
    batch->shapes = malloc(bytes);
    return batch->shapes == NULL ? rv_fail_memory(err, bytes) : RV_OK;
  }
  return rv_fail_unequal(err, table, NULL, first, other);
}

rv_code rv_client_sample_batch(rv_client *client, const char *table, size_t batch_size, rv_unequal unequal, const rv_wait *wait,
                               rv_batch **out, rv_error *err)
{
  rv_code code = rv_client_check_table(client, table, err);
  if (code == RV_OK && (batch_size == 0 || batch_size > INT32_MAX))
    code = rv_fail(err, RV_INVALID_ARGUMENT, "batch_size must be between 1 and 2147483647, got %zu", batch_size);
  if (code != RV_OK) return code;
  rv_batch *batch = NULL;
  code = rv_batch_take(client, batch_size, &batch, err);
  if (code != RV_OK) return code;
  rv_patience patience;
  rv_client_begin_patience(client, &patience, wait, NULL, NULL);
  code = draw(batch, table, batch_size, unequal == RV_UNEQUAL_ERROR, &patience, err);
  if (code == RV_OK) code = rv_batch_finish(batch, table, unequal, err);
  if (code != RV_OK) {
    rv_batch_free(batch);
    return code;
  }
  *out = batch;
  return RV_OK;
}

/* ---- reading ---- */

size_t rv_batch_size(const rv_batch *batch)
{
  return batch->size;
}

const rv_sample_info *rv_batch_info(const rv_batch *batch, size_t item)
{
  return item < batch->size ? &batch->infos[item] : NULL;
}

size_t rv_batch_num_columns(const rv_batch *batch)
{
  return batch->draws[0].trajectory->num_columns;
}

uint64_t rv_batch_naming(const rv_batch *batch)
{
  return rv_draws_naming(batch->draws, batch->size);
}

rv_layout *rv_batch_layout(const rv_batch *batch)
{
  return batch->one_layout ? batch->draws[0].trajectory->layout : NULL;
}

/* What is in a batch is only known once it is drawn. */
#define DRAWN "all of the batch count as sampled"

/* Columns of the items at 0 and i that padding cannot make one. */
static rv_code fail_rows(const rv_batch *batch, size_t column, size_t i, rv_error *err)
{
  const rv_trajectory *first = batch->draws[0].trajectory, *other = batch->draws[i].trajectory;
  if (first->num_columns != other->num_columns)
    return rv_fail(err, RV_FAILED_PRECONDITION,
                   "items 0 and %zu of the batch have %u and %u columns, so they cannot be padded (" DRAWN "); give the table a "
                   "signature, which refuses the wrong ones when they are inserted",
                   i, (unsigned)first->num_columns, (unsigned)other->num_columns);
  const rv_chunk_column *a = first->columns[column].spec, *b = other->columns[column].spec;
  char one[96], another[96];
  return rv_fail(err, RV_FAILED_PRECONDITION,
                 "column %zu is of rows %s in item 0 of the batch and %s in item %zu, which padding cannot make one (" DRAWN
                 "); give the table "
                 "a signature, which refuses the wrong ones when they are inserted, or sample item by item (unequal=\"list\")",
                 column, rv_format_spec(one, sizeof one, a->dtype, (int32_t)a->rank, a->shape),
                 rv_format_spec(another, sizeof another, b->dtype, (int32_t)b->rank, b->shape), i);
}

static bool same_rows(const rv_chunk_column *a, const rv_chunk_column *b)
{
  return a == b || (a->dtype == b->dtype && a->rank == b->rank && memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0);
}

static bool can_be_padded(const rv_batch *batch, const rv_chunk_column *a, const rv_chunk_column *b)
{
  return same_rows(a, b) || (batch->shapes != NULL && a->dtype == b->dtype && a->rank == b->rank);
}

static rv_code check_column(const rv_batch *batch, size_t column, rv_error *err)
{
  if (column < rv_batch_num_columns(batch)) return RV_OK;
  return rv_fail(err, RV_OUT_OF_RANGE, "column %zu: the batch has %zu columns", column, rv_batch_num_columns(batch));
}

/* The longest item's column; *squeezed if it is so in all of them. */
static rv_code widest(const rv_batch *batch, size_t column, const rv_trajectory_column **out, bool *squeezed, rv_error *err)
{
  rv_code code = check_column(batch, column, err);
  if (code != RV_OK) return code;
  *out = &batch->draws[0].trajectory->columns[column];
  *squeezed = (*out)->squeeze;
  if (batch->one_layout) return RV_OK;
  for (size_t i = 1; i < batch->size; i++) {
    const rv_trajectory *trajectory = batch->draws[i].trajectory;
    if (trajectory->num_columns != rv_batch_num_columns(batch) ||
        !can_be_padded(batch, trajectory->columns[column].spec, (*out)->spec))
      return fail_rows(batch, column, i, err);
    *squeezed &= trajectory->columns[column].squeeze;
    if (trajectory->columns[column].length > (*out)->length) *out = &trajectory->columns[column];
  }
  return RV_OK;
}

/* What every row of that column fits into; NULL: they are all alike. */
static const int64_t *padded_shape(const rv_batch *batch, size_t column)
{
  if (batch->shapes == NULL) return NULL;
  const rv_chunk_column *first = batch->draws[0].trajectory->columns[column].spec;
  int64_t *shape = &batch->shapes[column * RV_MAX_RANK];
  bool alike = true;
  memcpy(shape, first->shape, first->rank * sizeof *shape);
  for (size_t i = 1; i < batch->size; i++) {
    const rv_chunk_column *spec = batch->draws[i].trajectory->columns[column].spec;
    for (uint32_t d = 0; d < first->rank; d++) {
      alike = alike && spec->shape[d] == shape[d];
      if (spec->shape[d] > shape[d]) shape[d] = spec->shape[d];
    }
  }
  return alike ? NULL : shape;
}

static rv_code set_shape(rv_sample_column *column, const int64_t *shape, size_t num_items, rv_error *err)
{
  size_t bytes = rv_dtype_size(column->dtype);
  bool over = __builtin_mul_overflow(bytes, (size_t)column->length, &bytes) || __builtin_mul_overflow(bytes, num_items, &bytes);
  for (uint32_t d = 0; d < column->rank; d++) over = over || __builtin_mul_overflow(bytes, (size_t)shape[d], &bytes);
  if (over)
    return rv_fail(err, RV_RESOURCE_EXHAUSTED, "%zu items, padded to the largest of them, are more than fits in memory",
                   num_items);
  column->shape = shape;
  column->bytes = bytes;
  return RV_OK;
}

rv_code rv_batch_column(const rv_batch *batch, size_t column, rv_sample_column *out, rv_error *err)
{
  const rv_trajectory_column *found = NULL;
  bool squeezed = false;
  rv_code code = widest(batch, column, &found, &squeezed, err);
  if (code == RV_OK) code = rv_sample_column_fill(out, found, found->length, squeezed, batch->size, err);
  const int64_t *shape = code == RV_OK ? padded_shape(batch, column) : NULL;
  return shape != NULL ? set_shape(out, shape, batch->size, err) : code;
}

rv_code rv_batch_lengths(const rv_batch *batch, size_t column, int64_t *out, rv_error *err)
{
  rv_code code = check_column(batch, column, err);
  if (code != RV_OK) return code;
  for (size_t i = 0; i < batch->size; i++) {
    const rv_trajectory *trajectory = batch->draws[i].trajectory;
    if (column >= trajectory->num_columns) return fail_rows(batch, column, i, err);
    out[i] = trajectory->columns[column].length;
  }
  return RV_OK;
}

static rv_code check_size(const rv_batch *batch, size_t column, size_t size, rv_sample_column *shown, rv_error *err)
{
  rv_code code = rv_batch_column(batch, column, shown, err);
  if (code == RV_OK && size != shown->bytes)
    code = rv_fail(err, RV_INVALID_ARGUMENT, "column %zu of the batch takes %zu bytes, not %zu", column, shown->bytes, size);
  return code;
}

static size_t elements(const int64_t *shape, uint32_t rank)
{
  size_t count = 1;
  for (uint32_t d = 0; d < rank; d++) count *= (size_t)shape[d];
  return count;
}

/* One array into the corner of a larger one of as many dimensions, one or more. */
static void place(uint8_t *into, const int64_t *shape, const uint8_t *from, const int64_t *own, uint32_t rank, size_t size)
{
  if (rank == 1) {
    memcpy(into, from, (size_t)own[0] * size);
    return;
  }
  size_t step = elements(shape + 1, rank - 1) * size, own_step = elements(own + 1, rank - 1) * size;
  for (int64_t i = 0; i < own[0]; i++)
    place(into + (size_t)i * step, shape + 1, from + (size_t)i * own_step, own + 1, rank - 1, size);
}

static rv_code gather_padded(rv_batch *batch, uint32_t column, const rv_sample_column *shown, uint8_t *out, rv_error *err)
{
  size_t size = rv_dtype_size(shown->dtype), row_bytes = elements(shown->shape, shown->rank) * size, largest = 0;
  for (size_t i = 0; i < batch->size; i++) {
    const rv_trajectory_column *own = &batch->draws[i].trajectory->columns[column];
    size_t bytes = (size_t)own->length * own->spec->row_bytes;
    if (bytes > largest) largest = bytes;
  }
  uint8_t *rows = malloc(largest);
  if (rows == NULL && largest > 0) return rv_fail_memory(err, largest);
  memset(out, 0, shown->bytes);
  rv_code code = RV_OK;
  for (size_t i = 0; i < batch->size && code == RV_OK; i++) {
    const rv_trajectory_column *own = &batch->draws[i].trajectory->columns[column];
    const rv_chunk_column *spec = own->spec;
    if (spec->row_bytes == 0) continue;
    code = rv_draws_gather(&batch->draws[i], 1, column, own->length, rows, err);
    for (int64_t r = 0; r < own->length && code == RV_OK; r++)
      place(out + (i * (size_t)shown->length + (size_t)r) * row_bytes, shown->shape, rows + (size_t)r * spec->row_bytes,
            spec->shape, spec->rank, size);
  }
  free(rows);
  return code;
}

rv_code rv_batch_gather(rv_batch *batch, size_t column, void *out, size_t size, rv_error *err)
{
  rv_sample_column shown;
  rv_code code = check_size(batch, column, size, &shown, err);
  if (code != RV_OK || size == 0) return code;
  if (padded_shape(batch, column) != NULL) return gather_padded(batch, (uint32_t)column, &shown, out, err);
  return rv_draws_gather(batch->draws, batch->size, (uint32_t)column, shown.length, out, err);
}

static rv_code gather_in_one_pass(rv_batch *batch, void *const *outs, const size_t *sizes, size_t num_columns, int64_t *lengths,
                                  rv_error *err)
{
  for (size_t i = 0; i < num_columns; i++) {
    rv_sample_column shown;
    rv_code code = rv_batch_column(batch, i, &shown, err);
    if (code == RV_OK && outs[i] != NULL) code = check_size(batch, i, sizes[i], &shown, err);
    if (code != RV_OK) return code;
    lengths[i] = shown.length;
  }
  return rv_draws_gather_together(rv_client_crew(batch->client), batch->draws, batch->size, lengths, outs, num_columns, err);
}

rv_code rv_batch_gather_all(rv_batch *batch, void *const *outs, const size_t *sizes, size_t num_columns, rv_error *err)
{
  if (num_columns != rv_batch_num_columns(batch))
    return rv_fail(err, RV_INVALID_ARGUMENT, "the batch has %zu columns, not %zu", rv_batch_num_columns(batch), num_columns);
  rv_code code = RV_OK;
  if (!batch->one_layout) {
    for (size_t i = 0; i < num_columns && code == RV_OK; i++)
      if (outs[i] != NULL) code = rv_batch_gather(batch, i, outs[i], sizes[i], err);
    return code;
  }
  int64_t few[STACK_COLUMNS];
  int64_t *lengths = num_columns <= STACK_COLUMNS ? few : calloc(num_columns, sizeof *lengths);
  if (lengths == NULL) return rv_fail_memory(err, num_columns * sizeof *lengths);
  code = gather_in_one_pass(batch, outs, sizes, num_columns, lengths, err);
  if (lengths != few) free(lengths);
  return code;
}

rv_sample *rv_batch_sample(rv_batch *batch, size_t item)
{
  rv_sample *sample;
  if (item >= batch->size || rv_sample_new_shared(&batch->draws[item], &sample, NULL) != RV_OK) return NULL;
  return sample;
}
