/* Random trajectories, read back byte for byte against a plain model: in process and through a server. */
#include "support/place.h"

enum { MAX_COLUMNS = 6, MAX_ITEMS = 400, MAX_ROWS = 3000 };

/* A value as the model keeps it: bytes, or for strings the strings one after another with their lengths before them. */
typedef struct blob {
  uint8_t *data;
  size_t size, room;
} blob;

typedef struct model_column {
  rv_dtype dtype;
  uint32_t rank;
  int64_t shape[3];
  size_t elements;
  bool begun;
  bool calm;           /* all its rows compress */
  blob rows[MAX_ROWS]; /* data NULL: missing */
} model_column;

typedef struct model_item {
  uint64_t key;
  const char *table;
  uint32_t num_columns;
  blob columns[MAX_COLUMNS];
  uint32_t lengths[MAX_COLUMNS];
} model_item;

typedef struct model {
  rv_random random;
  test_place place;
  rv_writer *writer;
  rv_writer_config config;
  uint32_t num_columns;
  model_column columns[MAX_COLUMNS];
  int64_t num_rows, steps;
  bool step_open;
  bool set[MAX_COLUMNS];
  size_t num_items;
  model_item items[MAX_ITEMS];
} model;

static uint32_t below(model *m, uint32_t n)
{
  return rv_random_below(&m->random, n);
}

static const rv_dtype dtypes[] = {RV_FLOAT32, RV_FLOAT64,   RV_INT32,   RV_UINT8,     RV_INT16,  RV_INT8,
                                  RV_STRING,  RV_COMPLEX64, RV_INT64,   RV_BOOL,      RV_UINT16, RV_UINT32,
                                  RV_UINT64,  RV_BFLOAT16,  RV_FLOAT16, RV_COMPLEX128};

static void blob_append(blob *to, const void *data, size_t size)
{
  if (to->data == NULL || to->size + size > to->room) {
    to->room = 2 * (to->size + size) + 1;
    to->data = realloc(to->data, to->room);
    assert_non_null(to->data);
  }
  if (size > 0) memcpy(to->data + to->size, data, size);
  to->size += size;
}

static void blob_append_tensor(blob *to, rv_dtype dtype, size_t elements, const void *data)
{
  if (dtype != RV_STRING) {
    blob_append(to, data, elements * rv_dtype_size(dtype));
    return;
  }
  const rv_bytes *strings = data;
  for (size_t i = 0; i < elements; i++) {
    blob_append(to, &strings[i].size, sizeof strings[i].size);
    blob_append(to, strings[i].data, strings[i].size);
  }
}

static void choose_columns(model *m)
{
  m->num_columns = 1 + below(m, MAX_COLUMNS);
  for (uint32_t i = 0; i < m->num_columns; i++) {
    model_column *column = &m->columns[i];
    column->calm = below(m, 4) == 0;
    /* Some columns are alike, so that items may join them. */
    if (i > 0 && below(m, 3) == 0) {
      column->dtype = m->columns[i - 1].dtype;
      column->rank = m->columns[i - 1].rank;
      memcpy(column->shape, m->columns[i - 1].shape, sizeof column->shape);
      column->elements = m->columns[i - 1].elements;
      continue;
    }
    column->dtype = dtypes[below(m, sizeof dtypes / sizeof *dtypes)];
    column->rank = below(m, 4);
    column->elements = 1;
    for (uint32_t d = 0; d < column->rank; d++) {
      column->shape[d] = below(m, 20) == 0 ? 0 : 1 + below(m, 9);
      column->elements *= (size_t)column->shape[d];
    }
  }
}

/* Values that repeat often enough for compression to pay now and then. */
static void *make_value(model *m, const model_column *column)
{
  bool calm = column->calm || below(m, 2) == 0;
  if (column->dtype == RV_STRING) {
    rv_bytes *strings = calloc(column->elements + 1, sizeof *strings);
    for (size_t i = 0; i < column->elements; i++) {
      size_t size = below(m, 12) == 0 ? below(m, 5000) : below(m, 7);
      uint8_t *bytes = malloc(size + 1);
      for (size_t j = 0; j < size; j++) bytes[j] = calm ? 'x' : (uint8_t)rv_random_next(&m->random);
      strings[i] = (rv_bytes){bytes, size};
    }
    return strings;
  }
  size_t size = column->elements * rv_dtype_size(column->dtype);
  uint8_t *bytes = malloc(size + 1);
  for (size_t i = 0; i < size; i++) {
    bytes[i] = calm ? 7 : (uint8_t)rv_random_next(&m->random);
    if (column->dtype == RV_BOOL) bytes[i] &= 1;
  }
  return bytes;
}

static void free_value(const model_column *column, void *value)
{
  if (column->dtype == RV_STRING) {
    for (size_t i = 0; i < column->elements; i++) free((void *)(uintptr_t)((rv_bytes *)value)[i].data);
  }
  free(value);
}

static void append(model *m)
{
  if (m->num_rows == MAX_ROWS) return;
  bool whole = m->config.columns_share_chunks, partial = !whole && below(m, 4) == 0;
  rv_cell cells[MAX_COLUMNS];
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->num_columns; i++) {
    bool has_been = m->step_open && m->set[i];
    if (!whole && (has_been || below(m, 5) == 0)) continue;
    model_column *column = &m->columns[i];
    if (!whole && !column->begun && below(m, 3) == 0) continue; /* comes late */
    cells[n++] =
        (rv_cell){.column = i,
                  .value = {.dtype = column->dtype, .rank = column->rank, .shape = column->shape, .data = make_value(m, column)}};
  }
  rv_error err = {.message = ""};
  rv_code code = rv_writer_append(m->writer, cells, n, partial, &err);
  if (code != RV_OK) fail_msg("append: %s", err.message);
  if (!m->step_open) {
    m->num_rows++;
    memset(m->set, 0, sizeof m->set);
  }
  for (uint32_t i = 0; i < n; i++) {
    model_column *column = &m->columns[cells[i].column];
    blob *row = &column->rows[m->num_rows - 1];
    blob_append_tensor(row, column->dtype, column->elements, cells[i].value.data);
    if (row->data == NULL) blob_append(row, "", 0);
    column->begun = true;
    m->set[cells[i].column] = true;
    free_value(column, (void *)(uintptr_t)cells[i].value.data);
  }
  m->step_open = partial;
  if (!partial) m->steps++;
  assert_int_equal(rv_writer_num_rows(m->writer), m->num_rows);
  assert_int_equal(rv_writer_episode_steps(m->writer), m->steps);
  assert_int_equal(rv_writer_step_is_open(m->writer), m->step_open);
}

static rv_row_state state_of(const model *m, uint32_t column, int64_t row)
{
  if (row < 0 || row >= m->num_rows) return RV_ROW_MISSING;
  if (row < m->num_rows - m->config.num_keep_alive_refs) return RV_ROW_EXPIRED;
  return m->columns[column].rows[row].data != NULL ? RV_ROW_PRESENT : RV_ROW_MISSING;
}

static bool same_kind(const model_column *a, const model_column *b)
{
  return a->dtype == b->dtype && a->rank == b->rank && memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

/* One random run; `valid` says whether all its rows are there. */
static rv_run make_run(model *m, uint32_t column, bool *valid)
{
  int64_t oldest = m->num_rows > m->config.num_keep_alive_refs ? m->num_rows - m->config.num_keep_alive_refs : 0;
  uint32_t kept = (uint32_t)(m->num_rows - oldest);
  rv_run run = {.column = column, .first = oldest + below(m, kept), .stride = 1, .count = 1 + below(m, kept)};
  switch (below(m, 6)) {
  case 0: run.stride = -1; break;
  case 1: run.stride = 2 + below(m, 3); break;
  case 2: run.stride = -2 - (int64_t)below(m, 3); break;
  case 3: run.stride = 0; break;
  default: break;
  }
  if (below(m, 30) != 0) { /* as far as it goes */
    uint32_t count = 0;
    while (count < run.count && state_of(m, column, run.first + run.stride * count) == RV_ROW_PRESENT) count++;
    run.count = count;
  }
  for (uint32_t i = 0; i < run.count; i++) *valid = *valid && state_of(m, column, run.first + run.stride * i) == RV_ROW_PRESENT;
  return run;
}

static void create_item(model *m)
{
  if (m->num_items == MAX_ITEMS || m->num_rows == 0) return;
  model_item *item = &m->items[m->num_items];
  memset(item, 0, sizeof *item);
  item->table = below(m, 2) == 0 ? "a" : "b";
  item->num_columns = 1 + below(m, MAX_COLUMNS);
  rv_run runs[MAX_COLUMNS][3];
  rv_item_column columns[MAX_COLUMNS];
  bool valid = true;
  for (uint32_t i = 0; i < item->num_columns; i++) {
    uint32_t source = below(m, m->num_columns), num_runs = 1 + below(m, 3), rows = 0;
    for (uint32_t j = 0; j < num_runs; j++) {
      uint32_t from = source;
      if (below(m, 3) == 0) from = below(m, m->num_columns);
      if (!same_kind(&m->columns[from], &m->columns[source])) from = source;
      runs[i][j] = make_run(m, from, &valid);
      for (uint32_t k = 0; k < runs[i][j].count && valid; k++) {
        blob *row = &m->columns[from].rows[runs[i][j].first + runs[i][j].stride * k];
        blob_append(&item->columns[i], row->data, row->size);
      }
      rows += runs[i][j].count;
    }
    columns[i] = (rv_item_column){.runs = runs[i], .num_runs = num_runs, .squeeze = rows == 1 && below(m, 2) == 0};
    item->lengths[i] = rows;
    if (rows == 0) valid = false;
  }
  rv_error err = {.message = ""};
  rv_code code = rv_writer_create_item(m->writer, item->table, 1 + below(m, 5), columns, item->num_columns, &item->key, &err);
  if (valid && code != RV_OK) fail_msg("create_item: %s", err.message);
  if (!valid) assert_int_equal(code, RV_INVALID_ARGUMENT);
  if (valid) {
    m->num_items++;
  } else {
    for (uint32_t i = 0; i < item->num_columns; i++) free(item->columns[i].data);
  }
}

static void look_at_history(model *m)
{
  if (m->num_rows == 0) return;
  uint32_t number = below(m, m->num_columns);
  int64_t row = (int64_t)below(m, (uint32_t)m->num_rows + 2) - 1;
  rv_row_state state = state_of(m, number, row);
  assert_int_equal(rv_writer_row_state(m->writer, number, row), state);
  rv_tensor value;
  rv_code code = rv_writer_row(m->writer, number, row, &value, NULL);
  assert_int_equal(code, state == RV_ROW_PRESENT ? RV_OK : RV_INVALID_ARGUMENT);
  if (code != RV_OK) return;
  blob got = {0};
  blob_append_tensor(&got, value.dtype, m->columns[number].elements, value.data);
  assert_int_equal(got.size, m->columns[number].rows[row].size);
  if (got.size > 0) assert_memory_equal(got.data, m->columns[number].rows[row].data, got.size);
  free(got.data);
}

static void forget_rows(model *m)
{
  for (uint32_t i = 0; i < m->num_columns; i++) {
    for (int64_t row = 0; row < m->num_rows; row++) {
      free(m->columns[i].rows[row].data);
      m->columns[i].rows[row] = (blob){0};
    }
  }
  m->num_rows = 0;
}

static void end_episode(model *m)
{
  bool clear = below(m, 2) == 0;
  uint64_t before = rv_writer_episode_id(m->writer);
  OK(rv_writer_end_episode(m->writer, clear, NULL, error));
  assert_true(rv_writer_episode_id(m->writer) != before);
  m->steps = 0;
  m->step_open = false;
  if (clear) forget_rows(m);
}

static void check_item(model *m, const model_item *item)
{
  rv_sample *sample = NULL;
  OK(rv_client_get(m->place.client, item->table, item->key, NULL, &sample, error));
  assert_int_equal(rv_sample_num_columns(sample), item->num_columns);
  for (uint32_t i = 0; i < item->num_columns; i++) {
    rv_sample_column column;
    OK(rv_sample_get_column(sample, i, &column, error));
    assert_int_equal(column.length, item->lengths[i]);
    void *out = malloc(column.bytes + 1);
    OK(rv_sample_copy(sample, i, out, column.bytes, error));
    blob got = {0};
    size_t size = rv_dtype_size(column.dtype);
    blob_append_tensor(&got, column.dtype, column.bytes / size, out);
    assert_int_equal(got.size, item->columns[i].size);
    if (got.size > 0) assert_memory_equal(got.data, item->columns[i].data, got.size);
    free(got.data);
    free(out);
  }
  rv_sample_unref(sample);
}

static void check_items(model *m)
{
  size_t in_a = 0;
  for (size_t i = 0; i < m->num_items; i++) {
    check_item(m, &m->items[i]);
    in_a += strcmp(m->items[i].table, "a") == 0;
    for (uint32_t j = 0; j < m->items[i].num_columns; j++) free(m->items[i].columns[j].data);
  }
  assert_int_equal(place_size(&m->place, "a"), in_a);
  assert_int_equal(place_size(&m->place, "b"), m->num_items - in_a);
}

static rv_writer_config choose_config(model *m)
{
  rv_writer_config config = {.num_keep_alive_refs = 1 + below(m, 40)};
  if (below(m, 2) == 0) config.chunk_length = 1 + below(m, config.num_keep_alive_refs);
  config.columns_share_chunks = below(m, 4) == 0;
  config.delta_encoded = below(m, 2) == 0;
  config.compression = (rv_compression)below(m, 3);
  return config;
}

static void run(uint64_t seed, bool remote)
{
  print_message("seed %llu, %s\n", (unsigned long long)seed, remote ? "remote" : "in process");
  model *m = calloc(1, sizeof *m);
  assert_non_null(m);
  rv_random_init(&m->random, seed);
  choose_columns(m);
  m->config = choose_config(m);
  rv_table_config tables[2] = {place_queue_like("a", 10000), place_queue_like("b", 10000)};
  place_open(&m->place, remote, tables, 2);
  m->writer = place_writer(&m->place, m->config);
  for (int i = 0; i < 600; i++) {
    uint32_t what = below(m, 100);
    if (what < 55)
      append(m);
    else if (what < 90)
      create_item(m);
    else if (what < 96)
      look_at_history(m);
    else if (what < 98)
      OK(rv_writer_flush(m->writer, below(m, 10), NULL, error));
    else
      end_episode(m);
  }
  OK(rv_writer_flush(m->writer, 0, NULL, error));
  check_items(m);
  rv_writer_free(m->writer);
  place_close(&m->place);
  forget_rows(m);
  free(m);
}

static void trajectories_in_process_read_back_as_the_model_has_them(void **state)
{
  (void)state;
  for (uint64_t seed = 1; seed <= 24; seed++) run(seed, false);
}

static void trajectories_through_a_server_read_back_as_the_model_has_them(void **state)
{
  (void)state;
  for (uint64_t seed = 101; seed <= 124; seed++) run(seed, true);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(trajectories_in_process_read_back_as_the_model_has_them),
      cmocka_unit_test(trajectories_through_a_server_read_back_as_the_model_has_them),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
