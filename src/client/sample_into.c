/* Batches straight into the caller's arrays. In process small rows are copied while they are drawn, under the table's lock; what is
 * not goes through a batch. From a server they are copied as they arrive. */
#include <string.h>

#include "base/error.h"
#include "client/batch.h"
#include "client/sample.h"
#include "store/gather.h"

rv_code rv_layout_get_column(const rv_layout *layout, size_t column, size_t num_items, rv_sample_column *out, rv_error *err)
{
  size_t num_columns = rv_layout_num_columns(layout);
  if (column >= num_columns) return rv_fail(err, RV_OUT_OF_RANGE, "column %zu: the layout has %zu columns", column, num_columns);
  rv_trajectory_column found = rv_layout_get(layout, (uint32_t)column);
  return rv_sample_column_fill(out, &found, found.length, found.squeeze, num_items, err);
}

/* ---- what the caller gave ---- */

static rv_code check_columns(const rv_batch_arrays *arrays, rv_error *err)
{
  for (uint32_t c = 0; arrays->layout != NULL && c < rv_layout_num_columns(arrays->layout); c++)
    if (arrays->columns[c] != NULL && rv_layout_get(arrays->layout, c).spec->dtype == RV_STRING)
      return rv_fail(err, RV_UNIMPLEMENTED,
                     "column %u holds strings, which cannot be copied into an array; leave it out, or use rv_client_sample_batch",
                     (unsigned)c);
  return RV_OK;
}

static rv_code check(rv_client *client, const char *table, size_t batch_size, rv_batch_arrays *arrays, rv_error *err)
{
  if (arrays == NULL || arrays->size < sizeof *arrays)
    return rv_fail(err, RV_INVALID_ARGUMENT, "arrays.size must be sizeof(rv_batch_arrays)");
  arrays->count = 0;
  arrays->table_size = 0;
  arrays->sizes_differ = false;
  arrays->naming = 0;
  arrays->found = NULL;
  arrays->drawn = NULL;
  rv_code code = rv_client_check_table(client, table, err);
  if (code != RV_OK) return code;
  if (batch_size == 0 || batch_size > INT32_MAX)
    return rv_fail(err, RV_INVALID_ARGUMENT, "batch_size must be between 1 and 2147483647, got %zu", batch_size);
  return check_columns(arrays, err);
}

/* ---- what was drawn ---- */

/* Where the caller does not want them, keys and the like go into memory that the batch has for its own. */
static void prepare_fill(rv_fill *fill, const rv_batch_arrays *arrays, const rv_batch *batch)
{
  _Static_assert(sizeof(rv_sample_info) >= 4 * sizeof(uint64_t), "four arrays fit into the infos");
  uint64_t *own = (uint64_t *)(void *)batch->infos;
  size_t n = batch->capacity;
  fill->layout = arrays->layout;
  fill->columns = arrays->columns;
  fill->keys = arrays->keys != NULL ? arrays->keys : own;
  fill->probabilities = arrays->probabilities != NULL ? arrays->probabilities : (double *)(own + n);
  fill->priorities = arrays->priorities != NULL ? arrays->priorities : (double *)(own + 2 * n);
  fill->times_sampled = arrays->times_sampled != NULL ? arrays->times_sampled : (int32_t *)(own + 3 * n);
  fill->sizes = (rv_draw_sizes){.each = arrays->table_sizes};
  fill->done = 0;
  fill->found = NULL;
}

static void tell_sizes(const rv_draw_sizes *sizes, rv_batch_arrays *arrays)
{
  arrays->table_size = sizes->last;
  arrays->sizes_differ = sizes->differ;
}

static rv_code sample_local(rv_batch *batch, const char *table, size_t want, rv_batch_arrays *arrays, rv_patience *patience,
                            rv_error *err)
{
  rv_fill fill;
  prepare_fill(&fill, arrays, batch);
  rv_code code = rv_batch_draw_local(batch, table, want, true, &fill, patience, err);
  size_t drawn = batch->size, rest = drawn - fill.done;
  batch->size = 0; /* the draws are released here: those before fill.done were never made */
  if (code == RV_OK) code = rv_fill_copy(rv_client_crew(batch->client), &fill, batch->draws + fill.done, rest, fill.done, err);
  arrays->found = fill.found;
  rv_draw_sizes_note(&fill.sizes, fill.done, batch->draws + fill.done, rest);
  tell_sizes(&fill.sizes, arrays);
  if (drawn > 0) {
    uint64_t naming = fill.done > 0 ? fill.naming : batch->draws[0].naming;
    arrays->naming = rest == 0 || rv_draws_naming(batch->draws + fill.done, rest) == naming ? naming : 0;
  }
  if (rest > 0) rv_draws_release(batch->draws + fill.done, rest);
  if (code == RV_OK) arrays->count = drawn;
  return code;
}

/* The items look otherwise than the arrays. They are drawn and counted, so the caller gets them. */
static rv_code hand_over(rv_batch *batch, const char *table, rv_batch_arrays *arrays, rv_error *err)
{
  rv_code code = rv_batch_finish(batch, table, RV_UNEQUAL_ERROR, err);
  if (code != RV_OK) {
    rv_batch_free(batch);
    return code;
  }
  arrays->found = rv_layout_ref(rv_batch_layout(batch));
  arrays->drawn = batch;
  return rv_fail(err, RV_FAILED_PRECONDITION,
                 "the items of table \"%s\" have another layout (dtype, shape or length of some column) than the arrays given",
                 table);
}

static rv_code sample_remote(rv_batch *batch, const char *table, size_t want, rv_batch_arrays *arrays, rv_patience *patience,
                             rv_error *err)
{
  rv_sink into = {0};
  bool known = arrays->layout != NULL;
  if (known) prepare_fill(&into.fill, arrays, batch);
  rv_code code = rv_batch_draw_remote(batch, table, want, true, known ? &into : NULL, patience, err);
  if (code == RV_OK && into.taken == 0) return hand_over(batch, table, arrays, err);
  rv_batch_free(batch);
  if (code != RV_OK) return code;
  arrays->count = into.taken;
  tell_sizes(&into.fill.sizes, arrays);
  arrays->naming = into.naming;
  return RV_OK;
}

rv_code rv_client_sample_into(rv_client *client, const char *table, size_t batch_size, rv_batch_arrays *arrays,
                              const rv_wait *wait, rv_error *err)
{
  rv_code code = check(client, table, batch_size, arrays, err);
  if (code != RV_OK) return code;
  rv_batch *batch = NULL;
  code = rv_batch_take(client, batch_size, &batch, err);
  if (code != RV_OK) return code;
  rv_patience patience;
  rv_client_begin_patience(client, &patience, wait, NULL, NULL);
  if (client->store == NULL) return sample_remote(batch, table, batch_size, arrays, &patience, err);
  code = sample_local(batch, table, batch_size, arrays, &patience, err);
  rv_batch_free(batch);
  return code;
}
