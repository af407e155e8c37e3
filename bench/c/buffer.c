#include "buffer.h"

#include <stdlib.h>
#include <string.h>

typedef struct pool_column {
  rv_dtype dtype;
  size_t bytes; /* of a row */
} pool_column;

enum { OBS = 0, ACTION = 1, REWARD = 2, DONE = 3, NEXT_OBS = 4, NUM_STEP_COLUMNS = 4 };

static pool_column column_of(const buffer_shape *shape, int which)
{
  switch (which) {
  case ACTION: return (pool_column){RV_INT64, 8};
  case REWARD: return (pool_column){RV_FLOAT32, 4};
  case DONE: return (pool_column){RV_BOOL, 1};
  default: return (pool_column){shape->obs_bytes < 64 ? RV_FLOAT32 : RV_UINT8, (size_t)shape->obs_bytes};
  }
}

/* `rows` rows from `place` of the pool, as the tensor of n rows, or of one row without the time dimension when n is 0. */
static rv_tensor tensor_of(bench_buffer *buffer, int which, int64_t place, int64_t n, int64_t shape[2])
{
  pool_column column = column_of(&buffer->shape, which);
  bool is_obs = which == OBS || which == NEXT_OBS;
  uint32_t rank = 0;
  if (n > 0) shape[rank++] = n;
  if (is_obs) shape[rank++] = (int64_t)(column.bytes / rv_dtype_size(column.dtype));
  return (rv_tensor){column.dtype, rank, shape, buffer->pool[which] + (size_t)place * column.bytes};
}

buffer_kind buffer_kind_of(const char *name)
{
  static const char *const names[] = {"transition", "sequence", "nstep", "next", "framestack"};
  for (int i = 0; i < 5; i++)
    if (strcmp(name, names[i]) == 0) return (buffer_kind)i;
  bench_die("no rows of kind \"%s\"", name);
}

int64_t buffer_items(const buffer_shape *shape)
{
  return shape->kind == BUFFER_SEQUENCE ? shape->capacity / shape->period : shape->capacity;
}

int64_t buffer_stored_bytes(const buffer_shape *shape)
{
  return shape->capacity * (shape->obs_bytes * (shape->kind == BUFFER_TRANSITION ? 2 : 1) + 13);
}

int64_t buffer_item_bytes(const buffer_shape *shape)
{
  switch (shape->kind) {
  case BUFFER_SEQUENCE: return shape->length * (shape->obs_bytes + 13);
  case BUFFER_NSTEP: return 2 * shape->obs_bytes + 8 + 4 * shape->length + 1;
  case BUFFER_FRAMESTACK: return 2 * shape->length * shape->obs_bytes + 13;
  default: return 2 * shape->obs_bytes + 13;
  }
}

static const int transition_order[BUFFER_COLUMNS_MAX] = {OBS, ACTION, REWARD, NEXT_OBS, DONE};

static bool shares(const buffer_shape *shape)
{
  return shape->kind == BUFFER_NEXT || shape->kind == BUFFER_FRAMESTACK;
}

static void describe_rows(bench_buffer *buffer)
{
  buffer->rows = bench_alloc(BUFFER_POOL * sizeof *buffer->rows);
  buffer->row_shapes = bench_alloc(2 * BUFFER_COLUMNS_MAX * sizeof *buffer->row_shapes);
  for (int64_t row = 0; row < BUFFER_POOL; row++)
    for (int i = 0; i < BUFFER_COLUMNS_MAX; i++)
      buffer->rows[row][i] = tensor_of(buffer, transition_order[i], row, 0, buffer->row_shapes + 2 * i);
}

static void begin_shared(bench_buffer *buffer)
{
  rv_transitions_column columns[BUFFER_COLUMNS_MAX] = {
      {.stack = (uint32_t)buffer->shape.length}, {0}, {0}, {.is_next = true}, {0}};
  rv_transitions_config config = {
      .size = sizeof config, .table = "t", .num_envs = 1, .columns = columns, .num_columns = BUFFER_COLUMNS_MAX};
  rv_error error;
  bench_check(rv_transitions_new(buffer->client, &config, &buffer->shared, &error), &error);
}

void buffer_init(bench_buffer *buffer, const buffer_shape *shape, rv_selector_kind sampler, rv_selector_kind remover)
{
  *buffer = (bench_buffer){.shape = *shape};
  rv_error error;
  rv_table_config table = rv_table_config_default("t", buffer_items(shape));
  table.sampler = (rv_selector_config){.kind = sampler, .priority_exponent = sampler == RV_SELECTOR_PRIORITIZED ? 0.6 : 0};
  table.remover = (rv_selector_config){.kind = remover};
  bench_check(rv_store_new(&(rv_store_config){.size = sizeof(rv_store_config), .tables = &table, .num_tables = 1}, &buffer->store,
                           &error),
              &error);
  bench_check(
      rv_client_new(&(rv_client_config){.size = sizeof(rv_client_config), .store = buffer->store}, &buffer->client, &error),
      &error);
  if (shares(shape)) {
    begin_shared(buffer);
  } else if (shape->kind != BUFFER_TRANSITION) {
    rv_writer_config config = {.size = sizeof config, .num_keep_alive_refs = (uint32_t)shape->length + 1};
    bench_check(rv_writer_new(buffer->client, &config, &buffer->writer, &error), &error);
  }
  bench_random random = bench_random_of(1);
  for (int c = 0; c < BUFFER_COLUMNS_MAX; c++) {
    size_t bytes = column_of(shape, c).bytes;
    buffer->pool[c] = bench_alloc(BUFFER_POOL * bytes);
    bench_random_fill(&random, buffer->pool[c], BUFFER_POOL * bytes);
  }
  for (int i = 0; i < BUFFER_POOL; i++) buffer->pool[DONE][i] = i % BUFFER_EPISODE == BUFFER_EPISODE - 1;
  bench_random_floats(&random, (float *)buffer->pool[REWARD], BUFFER_POOL);
  if (shape->kind == BUFFER_TRANSITION) describe_rows(buffer);
  size_t batch = (size_t)shape->batch;
  buffer->keys = bench_alloc(batch * sizeof *buffer->keys);
  buffer->probabilities = bench_alloc(batch * sizeof(double));
  buffer->priorities = bench_alloc(batch * sizeof(double));
  buffer->new_priorities = bench_alloc(batch * sizeof(double));
  buffer->times_sampled = bench_alloc(batch * sizeof(int32_t));
  for (size_t i = 0; i < batch; i++) buffer->new_priorities[i] = (double)bench_random_below(&random, 1000) / 1000 + 0.001;
}

void buffer_fini(bench_buffer *buffer)
{
  free(buffer->rows);
  free(buffer->row_shapes);
  rv_layout_unref(buffer->layout);
  if (buffer->writer != NULL) rv_writer_free(buffer->writer);
  rv_transitions_free(buffer->shared);
  rv_client_free(buffer->client);
  rv_store_unref(buffer->store);
  for (int c = 0; c < BUFFER_COLUMNS_MAX; c++) {
    free(buffer->pool[c]);
    free(buffer->outs[c]);
  }
  free(buffer->keys);
  free(buffer->probabilities);
  free(buffer->priorities);
  free(buffer->new_priorities);
  free(buffer->times_sampled);
}

/* Some spread, so that a MinHeap remover and a Prioritized sampler have something to do. */
static double priority_of(int64_t number)
{
  return 1.0 + (double)((uint64_t)number * UINT64_C(2654435761) % 1024) / 1024;
}

static void add_transition(bench_buffer *buffer)
{
  const rv_tensor *row = buffer->rows[buffer->added % BUFFER_POOL];
  rv_error error;
  bench_check(rv_client_add(buffer->client, "t", row, BUFFER_COLUMNS_MAX, priority_of(buffer->added), NULL, NULL, &error),
              &error);
  buffer->added++;
}

static void create_item(bench_buffer *buffer)
{
  const buffer_shape *shape = &buffer->shape;
  int64_t n = shape->length, now = buffer->episode_step; /* steps of the episode */
  rv_run runs[BUFFER_COLUMNS_MAX];
  size_t count = 0;
  if (shape->kind == BUFFER_SEQUENCE) {
    if (now < n || (now - n) % shape->period != 0) return;
    for (uint32_t c = 0; c < NUM_STEP_COLUMNS; c++) runs[count++] = (rv_run){c, (uint32_t)n, now - n, 1};
  } else {
    if (now < n + 1) return;
    int64_t acted = now - n - 1; /* the step whose action and rewards belong to the item */
    runs[count++] = (rv_run){OBS, 1, acted, 1};
    runs[count++] = (rv_run){ACTION, 1, acted, 1};
    runs[count++] = (rv_run){REWARD, (uint32_t)n, acted, 1};
    runs[count++] = (rv_run){OBS, 1, now - 1, 1};
    runs[count++] = (rv_run){DONE, 1, now - 2, 1};
  }
  rv_item_column columns[BUFFER_COLUMNS_MAX];
  for (size_t i = 0; i < count; i++)
    columns[i] = (rv_item_column){.runs = &runs[i], .num_runs = 1, .squeeze = runs[i].count == 1};
  rv_error error;
  bench_check(rv_writer_create_item(buffer->writer, "t", priority_of(buffer->added), columns, count, NULL, &error), &error);
}

static void add_step(bench_buffer *buffer)
{
  rv_cell cells[NUM_STEP_COLUMNS];
  int64_t shapes[NUM_STEP_COLUMNS][2];
  for (uint32_t c = 0; c < NUM_STEP_COLUMNS; c++)
    cells[c] = (rv_cell){c, tensor_of(buffer, (int)c, buffer->added % BUFFER_POOL, 0, shapes[c])};
  rv_error error;
  bench_check(rv_writer_append(buffer->writer, cells, NUM_STEP_COLUMNS, false, &error), &error);
  buffer->added++;
  buffer->episode_step++;
  create_item(buffer);
  if (buffer->added % BUFFER_EPISODE == 0) {
    bench_check(rv_writer_end_episode(buffer->writer, true, NULL, &error), &error);
    buffer->episode_step = 0;
  } else {
    bench_check(rv_writer_flush(buffer->writer, 200, NULL, &error), &error);
  }
}

/* Frames stand one after another in the pool, and so do stacks of them. */
static void add_shared(bench_buffer *buffer)
{
  int64_t frames = buffer->shape.length, place = buffer->added % (BUFFER_POOL - frames);
  rv_tensor row[BUFFER_COLUMNS_MAX];
  int64_t shapes[BUFFER_COLUMNS_MAX][3];
  for (int i = 0; i < BUFFER_COLUMNS_MAX; i++) {
    int which = transition_order[i] == NEXT_OBS ? OBS : transition_order[i];
    bool obs = which == OBS, stack = obs && frames > 1;
    shapes[i][0] = 1;
    shapes[i][1] = frames;
    row[i] = tensor_of(buffer, which, place + (transition_order[i] == NEXT_OBS ? 1 : 0), 1, shapes[i]);
    if (!stack) continue;
    shapes[i][2] = shapes[i][1];
    shapes[i][1] = frames;
    row[i].rank = 3;
  }
  rv_error error;
  bench_check(rv_transitions_add(buffer->shared, row, BUFFER_COLUMNS_MAX, NULL, NULL, NULL, &error), &error);
  buffer->added++;
}

void buffer_add(void *context)
{
  bench_buffer *buffer = context;
  if (buffer->shared != NULL)
    add_shared(buffer);
  else if (buffer->shape.kind == BUFFER_TRANSITION)
    add_transition(buffer);
  else
    add_step(buffer);
}

void buffer_add_batch(void *context)
{
  bench_buffer *buffer = context;
  int64_t place = buffer->added % BUFFER_POOL / BUFFER_ADD_BATCH * BUFFER_ADD_BATCH;
  rv_tensor rows[BUFFER_COLUMNS_MAX];
  int64_t shapes[BUFFER_COLUMNS_MAX][2];
  for (int i = 0; i < BUFFER_COLUMNS_MAX; i++)
    rows[i] = tensor_of(buffer, transition_order[i], place, BUFFER_ADD_BATCH, shapes[i]);
  rv_error error;
  size_t added;
  bench_check(
      rv_client_add_batch(buffer->client, "t", rows, BUFFER_COLUMNS_MAX, BUFFER_ADD_BATCH, NULL, NULL, &added, NULL, &error),
      &error);
  buffer->added += BUFFER_ADD_BATCH;
}

static void make_arrays(bench_buffer *buffer, rv_layout *owned_layout)
{
  rv_layout_unref(buffer->layout);
  buffer->layout = owned_layout;
  for (size_t c = 0; c < rv_layout_num_columns(owned_layout); c++) {
    rv_sample_column column;
    rv_error error;
    bench_check(rv_layout_get_column(owned_layout, c, (size_t)buffer->shape.batch, &column, &error), &error);
    free(buffer->outs[c]);
    buffer->outs[c] = bench_alloc(column.bytes);
  }
}

void buffer_sample(void *context)
{
  bench_buffer *buffer = context;
  for (int turn = 0; turn < 2; turn++) {
    rv_batch_arrays arrays = {.size = sizeof arrays,
                              .layout = buffer->layout,
                              .columns = buffer->outs,
                              .keys = buffer->keys,
                              .probabilities = buffer->probabilities,
                              .priorities = buffer->priorities,
                              .times_sampled = buffer->times_sampled};
    rv_error error;
    rv_code code = rv_client_sample_into(buffer->client, "t", (size_t)buffer->shape.batch, &arrays, NULL, &error);
    if (code != RV_FAILED_PRECONDITION || arrays.found == NULL) {
      bench_check(code, &error);
      return;
    }
    make_arrays(buffer, arrays.found); /* once, at the first batch */
  }
  bench_die("the items have no one layout");
}

void buffer_update(void *context)
{
  bench_buffer *buffer = context;
  rv_error error;
  bench_check(rv_client_update_priorities(buffer->client, "t", buffer->keys, buffer->new_priorities, (size_t)buffer->shape.batch,
                                          NULL, NULL, NULL, &error),
              &error);
}

void buffer_fill(bench_buffer *buffer, int64_t steps)
{
  for (int64_t i = 0; i < steps; i++) buffer_add(buffer);
}
