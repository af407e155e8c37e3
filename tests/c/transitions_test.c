/* Transitions, against a plain list of the rows that were added: in process and through a server. */
#include "support/place.h"

enum { MAX_COLUMNS = 6, MAX_ENVS = 9, MAX_FRAME = 400, MAX_STACK = 4, MAX_ROW = MAX_FRAME * MAX_STACK };

static const rv_wait patient = {.timeout_ms = 30000};

typedef struct one_row {
  uint8_t bytes[MAX_COLUMNS][MAX_ROW];
} one_row;

typedef struct model {
  rv_random random;
  test_place place;
  rv_transitions *writer;
  size_t num_envs, max_size;
  uint32_t num_columns;
  rv_transitions_column columns[MAX_COLUMNS];
  size_t frame[MAX_COLUMNS]; /* elements */
  rv_dtype dtype[MAX_COLUMNS];
  one_row last[MAX_ENVS];
  bool begun[MAX_ENVS];
  one_row *rows;
  size_t num_rows, room_for_rows;
} model;

static uint32_t below(model *m, uint32_t n)
{
  return rv_random_below(&m->random, n);
}

static uint32_t stack_of(const model *m, uint32_t i)
{
  const rv_transitions_column *column = &m->columns[m->columns[i].is_next ? m->columns[i].of : i];
  return column->stack > 1 ? column->stack : 1;
}

static size_t frame_bytes(const model *m, uint32_t i)
{
  return m->frame[i] * rv_dtype_size(m->dtype[i]);
}

static size_t row_bytes(const model *m, uint32_t i)
{
  return stack_of(m, i) * frame_bytes(m, i);
}

/* ---- environments ---- */

/* From few values, so that what differs is alike now and then. */
static void make_frame(model *m, uint32_t i, uint8_t *out)
{
  uint8_t value = (uint8_t)below(m, 3);
  memset(out, value, frame_bytes(m, i));
  if (frame_bytes(m, i) > 0 && below(m, 2) == 0) out[below(m, (uint32_t)frame_bytes(m, i))] = (uint8_t)rv_random_next(&m->random);
}

static void make_row(model *m, uint32_t i, uint8_t *out)
{
  bool copies = below(m, 2) == 0; /* as many wrappers begin an episode */
  make_frame(m, i, out);
  for (uint32_t f = 1; f < stack_of(m, i); f++) {
    uint8_t *frame = out + f * frame_bytes(m, i);
    if (copies)
      memcpy(frame, out, frame_bytes(m, i));
    else
      make_frame(m, i, frame);
  }
}

/* The row's frames one step on. */
static void push_frame(model *m, uint32_t i, const uint8_t *before, uint8_t *out)
{
  size_t bytes = frame_bytes(m, i), kept = (stack_of(m, i) - 1) * bytes;
  memmove(out, before + bytes, kept);
  make_frame(m, i, out + kept);
}

static void step(model *m, size_t env, int64_t id, one_row *out)
{
  one_row *last = &m->last[env];
  bool reset = !m->begun[env] || below(m, 12) == 0;
  bool odd = below(m, 25) == 0; /* the next observation has nothing to do with this one */
  for (uint32_t i = 0; i < m->num_columns; i++) {
    if (m->columns[i].is_next) continue;
    uint32_t next = 0;
    while (next < m->num_columns && !(m->columns[next].is_next && m->columns[next].of == i)) next++;
    if (reset)
      make_row(m, i, out->bytes[i]);
    else if (next < m->num_columns)
      memcpy(out->bytes[i], last->bytes[next], row_bytes(m, i));
    else
      push_frame(m, i, last->bytes[i], out->bytes[i]);
    if (next == m->num_columns) continue;
    if (odd)
      make_row(m, next, out->bytes[next]);
    else
      push_frame(m, next, out->bytes[i], out->bytes[next]);
  }
  memcpy(out->bytes[0], &id, sizeof id);
  m->begun[env] = true;
  *last = *out;
}

/* ---- writing ---- */

/* The columns' tensors for these rows, in memory of their own. */
typedef struct given {
  rv_tensor columns[MAX_COLUMNS];
  int64_t shapes[MAX_COLUMNS][3];
  uint8_t *data[MAX_COLUMNS];
} given;

static void give(const model *m, const one_row *rows, given *out)
{
  for (uint32_t i = 0; i < m->num_columns; i++) {
    size_t bytes = row_bytes(m, i);
    uint32_t rank = 0;
    out->data[i] = malloc(m->num_envs * bytes + 1);
    out->shapes[i][rank++] = (int64_t)m->num_envs;
    if (stack_of(m, i) > 1) out->shapes[i][rank++] = (int64_t)stack_of(m, i);
    if (i > 0) out->shapes[i][rank++] = (int64_t)m->frame[i];
    for (size_t env = 0; env < m->num_envs; env++) memcpy(out->data[i] + env * bytes, rows[env].bytes[i], bytes);
    out->columns[i] = (rv_tensor){.dtype = m->dtype[i], .rank = rank, .shape = out->shapes[i], .data = out->data[i]};
  }
}

static void take_back(const model *m, given *g)
{
  for (uint32_t i = 0; i < m->num_columns; i++) free(g->data[i]);
}

static void remember(model *m, const one_row *rows, size_t n)
{
  if (n == 0) return;
  if (m->num_rows + n > m->room_for_rows) {
    m->room_for_rows = 2 * (m->num_rows + n);
    m->rows = realloc(m->rows, m->room_for_rows * sizeof *rows);
    assert_non_null(m->rows);
  }
  memcpy(m->rows + m->num_rows, rows, n * sizeof *rows);
  m->num_rows += n;
}

static void add_step(model *m)
{
  one_row rows[MAX_ENVS] = {{{{0}}}};
  given g;
  for (size_t env = 0; env < m->num_envs; env++) step(m, env, (int64_t)(m->num_rows + env), &rows[env]);
  give(m, rows, &g);
  size_t added = 0;
  OK(rv_transitions_add(m->writer, g.columns, m->num_columns, NULL, &added, &patient, error));
  assert_int_equal(added, m->num_envs);
  remember(m, rows, added);
  take_back(m, &g);
}

/* Of some environments alone; priorities of the others are none. */
static void add_some(model *m)
{
  one_row rows[MAX_ENVS] = {{{{0}}}}, taken[MAX_ENVS];
  bool where[MAX_ENVS];
  double priorities[MAX_ENVS];
  size_t n = 0, added = 7;
  for (size_t env = 0; env < m->num_envs; env++) {
    where[env] = below(m, 3) != 0;
    priorities[env] = where[env] ? 1.0 : 0.0 / 0.0;
    step(m, env, where[env] ? (int64_t)(m->num_rows + n) : -1, &rows[env]);
    if (where[env]) taken[n++] = rows[env];
  }
  given g;
  give(m, rows, &g);
  const double *given_priorities = below(m, 2) == 0 ? NULL : priorities;
  OK(rv_transitions_add_where(m->writer, g.columns, m->num_columns, given_priorities, where, &added, &patient, error));
  assert_int_equal(added, n);
  remember(m, taken, n);
  take_back(m, &g);
}

/* ---- reading ---- */

static void check_sample(const model *m, rv_sample *sample, const one_row *want)
{
  assert_int_equal(rv_sample_num_columns(sample), m->num_columns);
  uint8_t got[MAX_ROW];
  for (uint32_t i = 0; i < m->num_columns; i++) {
    rv_sample_column column;
    OK(rv_sample_get_column(sample, i, &column, error));
    assert_int_equal(column.dtype, m->dtype[i]);
    assert_int_equal(column.length, stack_of(m, i));
    assert_int_equal(column.squeezed, stack_of(m, i) == 1);
    assert_int_equal(column.bytes, row_bytes(m, i));
    OK(rv_sample_copy(sample, i, got, column.bytes, error));
    if (memcmp(got, want->bytes[i], column.bytes) != 0) fail_msg("column %u differs", (unsigned)i);
  }
}

/* Every item, in the order of insertion: the last rows that were added. */
static void check_all(model *m)
{
  size_t present = m->num_rows < m->max_size ? m->num_rows : m->max_size, seen = 0;
  uint64_t cursor = 0;
  rv_item_info items[64];
  OK(rv_transitions_flush(m->writer, &patient, error));
  do {
    size_t count = 0;
    OK(rv_client_items(m->place.client, "replay", &cursor, items, 64, &count, &patient, error));
    for (size_t i = 0; i < count; i++, seen++) {
      rv_sample *sample = NULL;
      OK(rv_client_get(m->place.client, "replay", items[i].key, &patient, &sample, error));
      check_sample(m, sample, &m->rows[m->num_rows - present + seen]);
      rv_sample_unref(sample);
    }
  } while (cursor != 0);
  assert_int_equal(seen, present);
}

static void check_batch(model *m)
{
  enum { B = 40 };
  rv_batch *batch = NULL;
  OK(rv_transitions_flush(m->writer, &patient, error));
  OK(rv_client_sample_batch(m->place.client, "replay", B, RV_UNEQUAL_ERROR, &patient, &batch, error));
  assert_int_equal(rv_batch_size(batch), B);
  int64_t ids[B];
  OK(rv_batch_gather(batch, 0, ids, sizeof ids, error));
  uint8_t *got = malloc(B * MAX_ROW);
  for (uint32_t i = 0; i < m->num_columns; i++) {
    size_t bytes = row_bytes(m, i);
    OK(rv_batch_gather(batch, i, got, B * bytes, error));
    for (size_t b = 0; b < B; b++) {
      assert_in_range(ids[b], m->num_rows < m->max_size ? 0 : m->num_rows - m->max_size, m->num_rows - 1);
      assert_memory_equal(got + b * bytes, m->rows[ids[b]].bytes[i], bytes);
    }
  }
  free(got);
  rv_batch_free(batch);
}

/* ---- random runs ---- */

static void choose_columns(model *m)
{
  static const size_t frames[] = {1, 3, 64, 300};
  static const rv_dtype dtypes[] = {RV_UINT8, RV_BOOL, RV_INT8};
  m->dtype[0] = RV_INT64;
  m->frame[0] = 1;
  m->columns[0] = (rv_transitions_column){.name = "id"};
  m->num_columns = 1;
  for (uint32_t k = 1 + below(m, 2); k > 0; k--) {
    uint32_t i = m->num_columns++;
    m->dtype[i] = dtypes[below(m, 3)];
    m->frame[i] = frames[below(m, 4)];
    m->columns[i] = (rv_transitions_column){.stack = below(m, 2) == 0 ? 0 : 1 + below(m, MAX_STACK)};
    if (below(m, 4) == 0) continue;
    uint32_t next = m->num_columns++;
    m->dtype[next] = m->dtype[i];
    m->frame[next] = m->frame[i];
    m->columns[next] = (rv_transitions_column){.is_next = true, .of = i};
  }
}

static rv_transitions *writer_of(const model *m)
{
  rv_transitions *writer = NULL;
  rv_transitions_config config = {
      .size = sizeof config, .table = "replay", .num_envs = m->num_envs, .columns = m->columns, .num_columns = m->num_columns};
  OK(rv_transitions_new(m->place.client, &config, &writer, error));
  return writer;
}

static model *begin(uint64_t seed, bool remote, size_t num_envs, size_t max_size)
{
  model *m = calloc(1, sizeof *m);
  rv_random_init(&m->random, seed);
  m->num_envs = num_envs;
  m->max_size = max_size;
  rv_table_config table = rv_table_config_default("replay", (int64_t)max_size);
  table.sampler =
      (rv_selector_config){.kind = below(m, 2) == 0 ? RV_SELECTOR_UNIFORM : RV_SELECTOR_PRIORITIZED, .priority_exponent = 1.0};
  place_open(&m->place, remote, &table, 1);
  return m;
}

static void end(model *m)
{
  rv_transitions_free(m->writer);
  place_close(&m->place);
  free(m->rows);
  free(m);
}

static void run(uint64_t seed, bool remote, bool leaves_out)
{
  print_message("seed %llu\n", (unsigned long long)seed);
  rv_random random;
  rv_random_init(&random, ~seed);
  model *m = begin(seed, remote, 1 + rv_random_below(&random, MAX_ENVS), 5 + rv_random_below(&random, 120));
  choose_columns(m);
  m->writer = writer_of(m);
  for (int i = 0; i < 90; i++) {
    if (leaves_out && below(m, 2) == 0)
      add_some(m);
    else
      add_step(m);
    if (below(m, 15) == 0) check_all(m);
    if (below(m, 10) == 0 && m->num_rows > 0) check_batch(m);
    if (below(m, 40) != 0) continue;
    OK(rv_transitions_flush(m->writer, &patient, error));
    rv_transitions_free(m->writer); /* what is in the table outlives its writer */
    m->writer = writer_of(m);
  }
  check_all(m);
  end(m);
}

static void rows_in_process_read_back_as_they_were_added(void **state)
{
  (void)state;
  for (uint64_t seed = 1; seed <= 60; seed++) run(seed, false, false);
}

static void rows_through_a_server_read_back_as_they_were_added(void **state)
{
  (void)state;
  for (uint64_t seed = 101; seed <= 124; seed++) run(seed, true, false);
}

static void rows_that_are_left_out_are_no_items_and_the_others_read_back(void **state)
{
  (void)state;
  for (uint64_t seed = 201; seed <= 240; seed++) run(seed, false, true);
  for (uint64_t seed = 301; seed <= 316; seed++) run(seed, true, true);
}

static void a_step_that_is_left_out_whole_adds_nothing(void **state)
{
  (void)state;
  for (int remote = 0; remote < 2; remote++) {
    model *m = begin(11, remote, 2, 10);
    m->columns[0] = (rv_transitions_column){.name = "id"};
    m->dtype[0] = RV_INT64;
    m->frame[0] = m->num_columns = 1;
    m->writer = writer_of(m);
    int64_t ids[] = {0, 1}, shape[] = {2};
    const rv_tensor column = {.dtype = RV_INT64, .rank = 1, .shape = shape, .data = ids};
    size_t added = 7;
    OK(rv_transitions_add_where(m->writer, &column, 1, NULL, (bool[]){false, false}, &added, &patient, error));
    assert_int_equal(added, 0);
    OK(rv_transitions_add(m->writer, &column, 1, NULL, &added, &patient, error));
    assert_int_equal(added, 2);
    OK(rv_transitions_flush(m->writer, &patient, error));
    assert_int_equal(place_size(&m->place, "replay"), 2);
    end(m);
  }
}

/* ---- memory ---- */

static int64_t memory_of(test_place *place)
{
  rv_server_info *info;
  int64_t bytes = place_info(place, &info, "replay").memory_bytes;
  rv_server_info_free(info);
  return bytes;
}

/* obs, with its next, of `stack` frames of `pixels` bytes: memory of `rows` rows as a share of what add_batch takes. */
static double share_of_memory(size_t num_envs, size_t max_size, uint32_t stack, size_t pixels)
{
  int64_t memory[2];
  for (int plain = 0; plain < 2; plain++) {
    model *m = begin(7, false, num_envs, max_size);
    int64_t shape[] = {(int64_t)num_envs, (int64_t)stack, (int64_t)pixels};
    size_t row = stack * pixels;
    uint8_t *obs = calloc(num_envs, row), *next = calloc(num_envs, row);
    m->columns[0] = (rv_transitions_column){.name = "obs", .stack = stack};
    m->columns[1] = (rv_transitions_column){.name = "next_obs", .is_next = true, .of = 0};
    m->num_columns = 2;
    m->writer = writer_of(m);
    rv_tensor columns[] = {{.dtype = RV_UINT8, .rank = 3, .shape = shape, .data = obs},
                           {.dtype = RV_UINT8, .rank = 3, .shape = shape, .data = next}};
    for (size_t at = 0; at < 2 * max_size; at += num_envs) {
      for (size_t env = 0; env < num_envs; env++) {
        bool reset = at > 0 && (at / num_envs + 37 * env) % 200 == 0;
        uint8_t *from = obs + env * row, *to = next + env * row;
        if (reset)
          memset(from, (int)(at % 251), row);
        else if (at > 0)
          memcpy(from, to, row);
        memmove(to, from + pixels, row - pixels);
        memset(to + row - pixels, (int)((at / num_envs + 1) % 253), pixels);
      }
      if (plain)
        OK(rv_client_add_batch(m->place.client, "replay", columns, 2, num_envs, NULL, NULL, NULL, &patient, error));
      else
        OK(rv_transitions_add(m->writer, columns, 2, NULL, NULL, &patient, error));
    }
    memory[plain] = memory_of(&m->place);
    free(obs);
    free(next);
    end(m);
  }
  double share = (double)memory[0] / (double)memory[1];
  print_message("%zu environments, %u frames of %zu: %.3f\n", num_envs, (unsigned)stack, pixels, share);
  return share;
}

static void a_next_observation_costs_no_memory_of_its_own(void **state)
{
  (void)state;
  assert_true(share_of_memory(1, 5000, 1, 3072) < 0.55);
  assert_true(share_of_memory(8, 10000, 1, 3072) < 0.55);
  assert_true(share_of_memory(128, 100000, 1, 300) < 0.65); /* 64 bytes of books an item, too */
}

static void a_frame_of_a_stack_is_stored_once(void **state)
{
  (void)state;
  assert_true(share_of_memory(1, 4000, 4, 7056) < 0.2);
  assert_true(share_of_memory(16, 8000, 4, 1764) < 0.2);
}

/* ---- what may go wrong ---- */

/* obs [n, 2, 3] float32 as a stack of 2, next_obs, reward [n]. */
typedef struct small_step {
  float obs[4][2][3], next[4][2][3], reward[4];
  int64_t shape[3], reward_shape[1];
  rv_tensor columns[3];
} small_step;

static const rv_transitions_column small_columns[] = {
    {.name = "obs", .stack = 2}, {.name = "next_obs", .is_next = true, .of = 0}, {.name = "reward"}};

static void make_small(small_step *s, size_t n)
{
  memset(s, 0, sizeof *s);
  s->shape[0] = s->reward_shape[0] = (int64_t)n;
  s->shape[1] = 2;
  s->shape[2] = 3;
  s->columns[0] = (rv_tensor){.dtype = RV_FLOAT32, .rank = 3, .shape = s->shape, .data = s->obs};
  s->columns[1] = (rv_tensor){.dtype = RV_FLOAT32, .rank = 3, .shape = s->shape, .data = s->next};
  s->columns[2] = (rv_tensor){.dtype = RV_FLOAT32, .rank = 1, .shape = s->reward_shape, .data = s->reward};
}

static rv_transitions *small_writer(test_place *place, size_t n)
{
  rv_transitions *writer = NULL;
  rv_transitions_config config = {
      .size = sizeof config, .table = "replay", .num_envs = n, .columns = small_columns, .num_columns = 3};
  OK(rv_transitions_new(place->client, &config, &writer, error));
  return writer;
}

static void refuses_bad_steps(bool remote)
{
  test_place place;
  rv_table_config table = rv_table_config_default("replay", 100);
  table.sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1.0};
  place_open(&place, remote, &table, 1);
  rv_transitions *writer = small_writer(&place, 3);
  small_step s;
  double priorities[] = {1, 2, 3};
  for (int known = 0; known < 2; known++) {
    size_t added = 7;
    make_small(&s, 3);
    FAILS(RV_INVALID_ARGUMENT, "2 columns", rv_transitions_add(writer, s.columns, 2, NULL, &added, &patient, error));
    assert_int_equal(added, 0);
    s.reward_shape[0] = 2;
    FAILS(RV_INVALID_ARGUMENT, "column 2 \"reward\" has 2 rows; this writer has 3 environments",
          rv_transitions_add(writer, s.columns, 3, NULL, NULL, &patient, error));
    make_small(&s, 3);
    s.columns[2].shape = NULL;
    FAILS(RV_INVALID_ARGUMENT, "\"reward\": its rank is 1 and its shape NULL",
          rv_transitions_add(writer, s.columns, 3, NULL, NULL, &patient, error));
    make_small(&s, 3);
    s.shape[1] = 3;
    FAILS(RV_INVALID_ARGUMENT, "column 0 \"obs\": it is a stack of 2 frames",
          rv_transitions_add(writer, s.columns, 3, NULL, NULL, &patient, error));
    make_small(&s, 3);
    s.columns[1].dtype = RV_INT32;
    FAILS(RV_INVALID_ARGUMENT, "column 1 \"next_obs\": got rows of int32[2,3]",
          rv_transitions_add(writer, s.columns, 3, NULL, NULL, &patient, error));
    make_small(&s, 3);
    s.columns[2].data = NULL;
    FAILS(RV_INVALID_ARGUMENT, "\"reward\": it has no data",
          rv_transitions_add(writer, s.columns, 3, NULL, NULL, &patient, error));
    make_small(&s, 3);
    s.columns[2].dtype = RV_STRING;
    FAILS(RV_UNIMPLEMENTED, "strings", rv_transitions_add(writer, s.columns, 3, NULL, NULL, &patient, error));
    make_small(&s, 3);
    priorities[1] = 0.0 / 0.0;
    FAILS(RV_INVALID_ARGUMENT, "environment 1 is nan",
          rv_transitions_add(writer, s.columns, 3, priorities, NULL, &patient, error));
    priorities[1] = -1;
    FAILS(RV_INVALID_ARGUMENT, "1", rv_transitions_add(writer, s.columns, 3, priorities, NULL, &patient, error));
    priorities[1] = 2;
    OK(rv_transitions_add(writer, s.columns, 3, priorities, NULL, &patient, error));
    OK(rv_transitions_flush(writer, &patient, error));
    assert_int_equal(place_size(&place, "replay"), 3 * (known + 1));
  }
  assert_int_equal(rv_transitions_close(writer), 0);
  FAILS(RV_FAILED_PRECONDITION, "close", rv_transitions_add(writer, s.columns, 3, NULL, NULL, &patient, error));
  FAILS(RV_FAILED_PRECONDITION, "close", rv_transitions_flush(writer, &patient, error));
  assert_int_equal(rv_transitions_close(writer), 0);
  rv_transitions_free(writer);
  place_close(&place);
}

static void a_bad_step_adds_nothing_and_says_what_is_wrong(void **state)
{
  (void)state;
  refuses_bad_steps(false);
  refuses_bad_steps(true);
}

static void a_bad_config_is_refused(void **state)
{
  (void)state;
  test_place place;
  rv_table_config table = rv_table_config_default("replay", 100);
  place_open(&place, false, &table, 1);
  rv_transitions *writer = NULL;
  rv_transitions_column columns[3] = {{.name = "a"}, {.name = "b", .is_next = true}, {.name = "c"}};
  rv_transitions_config config = {.size = sizeof config, .table = "replay", .num_envs = 1, .columns = columns, .num_columns = 3};
  columns[1].of = 3;
  FAILS(RV_INVALID_ARGUMENT, "next of column 3", rv_transitions_new(place.client, &config, &writer, error));
  columns[1].of = 1;
  FAILS(RV_INVALID_ARGUMENT, "a next itself", rv_transitions_new(place.client, &config, &writer, error));
  columns[1].of = 0;
  columns[2] = (rv_transitions_column){.is_next = true, .of = 0};
  FAILS(RV_INVALID_ARGUMENT, "another next", rv_transitions_new(place.client, &config, &writer, error));
  columns[2] = (rv_transitions_column){.stack = 5000};
  FAILS(RV_INVALID_ARGUMENT, "5000 frames", rv_transitions_new(place.client, &config, &writer, error));
  columns[2].stack = 0;
  columns[1].stack = 4;
  FAILS(RV_INVALID_ARGUMENT, "a stack of 4 frames", rv_transitions_new(place.client, &config, &writer, error));
  columns[1].stack = 0;
  config.num_envs = 0;
  FAILS(RV_INVALID_ARGUMENT, "num_envs is 0", rv_transitions_new(place.client, &config, &writer, error));
  config.num_envs = 1;
  config.table = "other";
  FAILS(RV_NOT_FOUND, "replay", rv_transitions_new(place.client, &config, &writer, error));
  rv_transitions_free(NULL);
  place_close(&place);
}

static void signature_is_of_the_rows_as_given(bool remote)
{
  test_place place;
  int64_t obs[] = {2, 3};
  rv_spec specs[] = {{.name = "obs", .dtype = RV_FLOAT32, .rank = 2, .shape = obs},
                     {.name = "next_obs", .dtype = RV_FLOAT32, .rank = 2, .shape = obs},
                     {.name = "reward", .dtype = RV_FLOAT32}};
  rv_signature signature = {.specs = specs, .num_specs = 3};
  rv_table_config table = rv_table_config_default("replay", 100);
  table.signature = &signature;
  place_open(&place, remote, &table, 1);
  small_step s;
  make_small(&s, 3);
  rv_transitions *writer = small_writer(&place, 3);
  OK(rv_transitions_add(writer, s.columns, 3, NULL, NULL, &patient, error));
  OK(rv_transitions_flush(writer, &patient, error));
  assert_int_equal(place_size(&place, "replay"), 3);
  rv_transitions_free(writer);
  writer = small_writer(&place, 3);
  s.columns[2].dtype = RV_INT32;
  FAILS(RV_INVALID_ARGUMENT, "signature of column 2 \"reward\" is float32[], got int32[]",
        rv_transitions_add(writer, s.columns, 3, NULL, NULL, &patient, error));
  s.columns[2].dtype = RV_FLOAT32; /* the writer has not begun yet */
  OK(rv_transitions_add(writer, s.columns, 3, NULL, NULL, &patient, error));
  rv_transitions_free(writer);
  place_close(&place);
}

static void a_signature_describes_rows_as_they_are_given(void **state)
{
  (void)state;
  signature_is_of_the_rows_as_given(false);
  signature_is_of_the_rows_as_given(true);
}

static void add_numbered(rv_transitions *writer, small_step *s, float number, size_t *added, rv_code want)
{
  for (size_t env = 0; env < 4; env++) {
    memcpy(s->obs[env], s->next[env], sizeof s->next[env]);
    memcpy(s->next[env][0], s->obs[env][1], sizeof s->obs[env][1]);
    for (int i = 0; i < 3; i++) s->next[env][1][i] = number + (float)env;
    s->reward[env] = number + (float)env;
  }
  rv_wait wait = {.timeout_ms = want == RV_OK ? 30000 : 20};
  rv_error err;
  assert_int_equal(rv_transitions_add(writer, s->columns, 3, NULL, added, &wait, &err), want);
}

static void next_is(test_place *place, float reward, float older, float newer)
{
  rv_batch *batch = NULL;
  float got = 0, next[2][3];
  OK(rv_client_sample_batch(place->client, "replay", 1, RV_UNEQUAL_ERROR, &patient, &batch, error));
  OK(rv_batch_gather(batch, 2, &got, sizeof got, error));
  OK(rv_batch_gather(batch, 1, next, sizeof next, error));
  assert_true(got == reward && next[0][0] == older && next[1][2] == newer);
  rv_batch_free(batch);
}

static void a_step_that_runs_out_of_time_says_how_much_of_it_is_in(void **state)
{
  (void)state;
  test_place place;
  rv_table_config table = place_queue("replay", 6);
  place_open(&place, false, &table, 1);
  rv_transitions *writer = small_writer(&place, 4);
  small_step s;
  size_t added = 0;
  make_small(&s, 4);
  add_numbered(writer, &s, 10, &added, RV_OK);
  add_numbered(writer, &s, 20, &added, RV_DEADLINE_EXCEEDED);
  assert_int_equal(added, 2);
  for (int env = 0; env < 4; env++) next_is(&place, (float)(10 + env), 0, (float)(10 + env));
  add_numbered(writer, &s, 30, &added, RV_OK); /* two go on, two were never stored */
  for (int env = 0; env < 2; env++) next_is(&place, (float)(20 + env), (float)(10 + env), (float)(20 + env));
  for (int env = 0; env < 4; env++) next_is(&place, (float)(30 + env), (float)(20 + env), (float)(30 + env));
  rv_transitions_free(writer);
  place_close(&place);
}

/* ---- many environments with small rows, to a server ---- */

enum { ENVS = 64 };
static float small_obs[ENVS][4], small_reward[ENVS];
static const int64_t small_shape[] = {ENVS, 4};
static const rv_tensor rows_of_a_step[] = {{.dtype = RV_FLOAT32, .rank = 2, .shape = small_shape, .data = small_obs},
                                           {.dtype = RV_FLOAT32, .rank = 1, .shape = small_shape, .data = small_reward}};

static rv_transitions *small_rows_of(test_place *place)
{
  rv_transitions *writer = NULL;
  rv_transitions_column names[] = {{.name = "obs"}, {.name = "reward"}};
  rv_transitions_config config = {.size = sizeof config, .table = "replay", .num_envs = ENVS, .columns = names, .num_columns = 2};
  OK(rv_transitions_new(place->client, &config, &writer, error));
  return writer;
}

/* The items' own bytes are most of what is in flight: room for a step's rows is not room for its items. */
static void a_step_to_a_server_waits_for_room_as_a_whole(void **state)
{
  (void)state;
  test_place place;
  rv_table_config table = place_queue("replay", 1);
  place_open(&place, true, &table, 1);
  rv_transitions *writer = small_rows_of(&place);
  rv_wait wait = patient;
  rv_error err;
  rv_code code;
  size_t steps = 0, added;
  while ((code = rv_transitions_add(writer, rows_of_a_step, 2, NULL, &added, &wait, &err)) == RV_OK && steps < 10000) {
    assert_int_equal(added, ENVS);
    wait.timeout_ms = 200;
    steps++;
  }
  if (code != RV_DEADLINE_EXCEEDED) fail_msg("after %zu steps: %s: %s", steps, rv_code_name(code), err.message);
  assert_int_equal(added, 0);
  assert_in_range(rv_transitions_close(writer), steps * ENVS - 1, steps * ENVS); /* one is in the table */
  rv_transitions_free(writer);
  place_close(&place);
}

/* A chunk has some hundred bytes of books at either end: with one for each row, not for each step, an item would take 800 bytes. */
static void a_step_to_a_server_is_stored_in_one_chunk(void **state)
{
  (void)state;
  enum { STEPS = 20, ITEM_BYTES_MAX = 250 };
  size_t added;
  test_place place;
  rv_table_config table = rv_table_config_default("replay", 10000);
  place_open(&place, true, &table, 1);
  rv_transitions *writer = small_rows_of(&place);
  for (int step = 0; step < STEPS; step++) OK(rv_transitions_add(writer, rows_of_a_step, 2, NULL, &added, &patient, error));
  OK(rv_transitions_flush(writer, &patient, error));
  rv_server_info *info = NULL;
  OK(rv_client_server_info(place.client, &patient, &info, error));
  assert_int_equal(info->tables[0].current_size, ENVS * STEPS);
  assert_true(info->tables[0].item_bytes < ENVS * STEPS * ITEM_BYTES_MAX);
  rv_server_info_free(info);
  rv_transitions_free(writer);
  place_close(&place);
}

static void a_writer_goes_on_after_its_table_was_reset(void **state)
{
  (void)state;
  for (int remote = 0; remote < 2; remote++) {
    model *m = begin(33, remote == 1, 4, 50);
    choose_columns(m);
    m->writer = writer_of(m);
    for (int round = 0; round < 4; round++) {
      for (int i = 0; i < 9; i++) add_step(m);
      check_all(m);
      OK(rv_client_reset(m->place.client, "replay", &patient, error));
      m->num_rows = 0; /* the ids go on: forget what is gone */
    }
    end(m);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_in_process_read_back_as_they_were_added),
      cmocka_unit_test(rows_through_a_server_read_back_as_they_were_added),
      cmocka_unit_test(rows_that_are_left_out_are_no_items_and_the_others_read_back),
      cmocka_unit_test(a_step_that_is_left_out_whole_adds_nothing),
      cmocka_unit_test(a_next_observation_costs_no_memory_of_its_own),
      cmocka_unit_test(a_frame_of_a_stack_is_stored_once),
      cmocka_unit_test(a_bad_step_adds_nothing_and_says_what_is_wrong),
      cmocka_unit_test(a_bad_config_is_refused),
      cmocka_unit_test(a_signature_describes_rows_as_they_are_given),
      cmocka_unit_test(a_step_that_runs_out_of_time_says_how_much_of_it_is_in),
      cmocka_unit_test(a_step_to_a_server_waits_for_room_as_a_whole),
      cmocka_unit_test(a_step_to_a_server_is_stored_in_one_chunk),
      cmocka_unit_test(a_writer_goes_on_after_its_table_was_reset),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
