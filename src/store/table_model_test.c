/* Whole tables against a list: every sampler with every remover under every kind of limiter. The list is searched for everything,
 * the limiter is its two formulas; where a selector draws by chance, the list follows the draw and checks that it was possible
 * and how probable it was said to be. RV_TEST_SEED and RV_TEST_OPERATIONS choose other runs. */
#include "store/testing.h"

#include "base/part_testing.h"

#include <math.h>

enum { MOST_ITEMS = 24, LIMITERS = 5, KINDS = 6, CHUNK_ROWS = 300 };

typedef struct model_item {
  uint64_t key;
  double priority;
  int32_t times_sampled;
  int64_t value;
  uint64_t touched; /* inserted or updated */
} model_item;

typedef struct model {
  model_item items[MOST_ITEMS + 1]; /* in order of insertion */
  size_t count;
  int64_t inserts, samples, deletes, unique, updates;
  uint64_t clock;
} model;

typedef struct world {
  rv_store *store;
  rv_table *table;
  rv_table_config config;
  model model;
  rv_random random;
  int64_t next_value;
  rv_chunk *came[2]; /* the same rows twice, as a writer would have sent them for two columns; NULL: none */
  int64_t first_value;
  bool chooses_keys; /* the table does, for all its items */
  size_t at_once;    /* rows that rv_table_add_row took */
} world;

static uint32_t below(world *w, uint32_t n)
{
  return rv_random_below(&w->random, n);
}

/* ---- the model ---- */

static bool may_insert(const world *w)
{
  const rv_rate_limiter_config *c = &w->config.rate_limiter;
  const model *m = &w->model;
  return m->inserts + 1 - m->deletes <= c->min_size_to_sample ||
         (double)(m->inserts + 1) * c->samples_per_insert - (double)m->samples <= c->max_diff;
}

static bool may_sample(const world *w)
{
  const rv_rate_limiter_config *c = &w->config.rate_limiter;
  const model *m = &w->model;
  return m->inserts - m->deletes >= c->min_size_to_sample &&
         (double)m->inserts * c->samples_per_insert - (double)m->samples - 1 >= c->min_diff;
}

static model_item *find(model *m, uint64_t key)
{
  for (size_t i = 0; i < m->count; i++)
    if (m->items[i].key == key) return &m->items[i];
  return NULL;
}

static double weight(const rv_selector_config *config, double priority)
{
  return priority == 0 ? 0 : pow(priority, config->priority_exponent);
}

/* The one choice of a selector without chance; NULL for the others. */
static model_item *only_choice(model *m, const rv_selector_config *config)
{
  model_item *best = &m->items[0];
  switch (config->kind) {
  case RV_SELECTOR_FIFO: return best;
  case RV_SELECTOR_LIFO: return &m->items[m->count - 1];
  case RV_SELECTOR_MAX_HEAP:
  case RV_SELECTOR_MIN_HEAP:
    for (size_t i = 1; i < m->count; i++) {
      model_item *item = &m->items[i];
      bool beats = config->kind == RV_SELECTOR_MAX_HEAP ? item->priority > best->priority : item->priority < best->priority;
      if (beats || (item->priority == best->priority && item->touched < best->touched)) best = item;
    }
    return best;
  default: return NULL;
  }
}

static double chance(const model *m, const rv_selector_config *config, const model_item *item)
{
  if (config->kind == RV_SELECTOR_UNIFORM) return 1.0 / (double)m->count;
  if (config->kind != RV_SELECTOR_PRIORITIZED) return 1;
  double sum = 0;
  for (size_t i = 0; i < m->count; i++) sum += weight(config, m->items[i].priority);
  return sum == 0 ? 1.0 / (double)m->count : weight(config, item->priority) / sum;
}

static void take_out(model *m, model_item *item)
{
  size_t index = (size_t)(item - m->items);
  memmove(item, item + 1, (m->count - index - 1) * sizeof *item);
  m->count--;
  m->deletes++;
}

/* What the remover took, seen by who is missing. */
static void follow_removal(world *w)
{
  model *m = &w->model;
  model_item *gone = only_choice(m, &w->config.remover);
  for (size_t i = 0; i < m->count && gone == NULL; i++) {
    rv_draw draw;
    if (rv_table_get(w->table, m->items[i].key, &draw, NULL) == RV_NOT_FOUND)
      gone = &m->items[i];
    else
      rv_draw_release(&draw);
  }
  assert_non_null(gone);
  assert_true(chance(m, &w->config.remover, gone) > 0);
  assert_int_equal(rv_table_get(w->table, gone->key, NULL, NULL), RV_NOT_FOUND);
  take_out(m, gone);
}

static void model_insert(world *w, uint64_t key, double priority, int64_t value, bool last)
{
  model *m = &w->model;
  m->items[m->count++] = (model_item){.key = key, .priority = priority, .value = value, .touched = ++m->clock};
  m->inserts++;
  (void)last;
  if ((int64_t)m->count > w->config.max_size) follow_removal(w);
}

static void model_update(model *m, model_item *item, double priority)
{
  item->priority = priority;
  item->touched = ++m->clock;
  m->updates++;
}

/* ---- operations ---- */

static double some_priority(world *w)
{
  static const double few[] = {0, 1, 1, 2, 3.5};
  return below(w, 3) == 0 ? rv_random_unit(&w->random) * 10 : few[below(w, 5)];
}

static uint64_t some_key(world *w)
{
  model *m = &w->model;
  if (m->count > 0 && below(w, 4) > 0) return m->items[below(w, (uint32_t)m->count)].key;
  return below(w, 2) == 0 ? below(w, 40) : rv_random_next(&w->random);
}

/* ---- chunks of many rows that came from elsewhere ---- */

static void drop_came(world *w)
{
  for (int i = 0; i < 2; i++) {
    rv_chunk_unref(w->came[i]);
    w->came[i] = NULL;
  }
}

static void renew_came(world *w)
{
  drop_came(w);
  w->first_value = w->next_value;
  w->next_value += CHUNK_ROWS;
  for (int i = 0; i < 2; i++) w->came[i] = encoded_numbers(w->first_value, CHUNK_ROWS, (uint64_t)below(w, 3), below(w, 4) == 0);
}

/* One row, in a column or in two whose rows lie in chunks of their own. */
static rv_trajectory *came_row(world *w, int64_t *value)
{
  if (w->came[0] == NULL || below(w, 8) == 0) renew_came(w);
  int32_t row = (int32_t)below(w, CHUNK_ROWS);
  *value = w->first_value + row;
  rv_slice slices[] = {{.chunk = w->came[0], .offset = row, .length = 1}, {.chunk = w->came[1], .offset = row, .length = 1}};
  rv_trajectory_desc desc = {
      .slices = slices, .num_slices = (uint32_t[]){1, 1}, .squeeze = (bool[]){true, true}, .num_columns = 1 + below(w, 2)};
  rv_trajectory *trajectory;
  rv_error err;
  must(rv_trajectory_new(rv_store_layouts(w->store), &desc, &trajectory, &err), &err);
  if (below(w, 10) == 0) drop_came(w);
  return trajectory;
}

static void try_insert(world *w)
{
  model *m = &w->model;
  bool came = below(w, 2) == 0;
  int64_t value = came ? 0 : w->next_value++;
  rv_insert insert = {.key = some_key(w), .choose_key = w->chooses_keys || below(w, 2) == 0, .priority = some_priority(w)};
  insert.trajectory = came ? came_row(w, &value) : single(w->store, value, (uint64_t)value / 4);
  bool allowed = may_insert(w);
  rv_submitted submitted = rv_table_insert(w->table, &insert);
  rv_trajectory_unref(insert.trajectory);
  assert_int_equal(submitted, allowed ? RV_SUBMIT_DONE : RV_SUBMIT_PENDING);
  if (!allowed) {
    assert_true(rv_waiter_cancel(&insert.waiter));
    return;
  }
  must(insert.waiter.code, &insert.waiter.error);
  model_item *known = find(m, insert.key);
  assert_int_equal(insert.updated, known != NULL);
  if (known != NULL)
    model_update(m, known, insert.priority);
  else
    model_insert(w, insert.key, insert.priority, value, true);
}

/* One row, in the way of those who have one at a time; false: the table wants it in the other. */
static bool add_row(world *w, const int64_t *value, double priority, uint64_t *key)
{
  rv_tensor cell = {.dtype = RV_INT64, .data = value};
  rv_row row = {.columns = &cell, .num_columns = 1, .priority = priority};
  bool added = rv_table_add_row(w->table, &row);
  *key = row.key;
  return added;
}

/* Removers that draw by chance are followed one row at a time. */
static void try_rows(world *w)
{
  bool followed = w->config.remover.kind == RV_SELECTOR_UNIFORM || w->config.remover.kind == RV_SELECTOR_PRIORITIZED;
  size_t n = followed || below(w, 2) == 0 ? 1 : 1 + below(w, 5), expected = 0;
  int64_t values[5], shape = (int64_t)n;
  double priorities[5];
  uint64_t keys[5];
  for (size_t i = 0; i < n; i++) {
    values[i] = w->next_value++;
    priorities[i] = some_priority(w);
  }
  rv_tensor column = {.dtype = RV_INT64, .rank = 1, .shape = &shape, .data = values};
  rv_rows rows = {.columns = &column, .num_columns = 1, .n = n, .priorities = priorities, .keys = keys};
  bool at_once = n == 1 && add_row(w, values, priorities[0], keys);
  if (at_once) rows.done = 1;
  rv_submitted submitted = at_once ? RV_SUBMIT_DONE : rv_table_insert_rows(w->table, &rows);
  if (at_once) w->at_once++;
  while (expected < n && may_insert(w)) {
    assert_true(expected < rows.done);
    model_item *same = find(&w->model, keys[expected]);
    assert_null(same);
    /* the model follows row by row what the table did in one step, so it may only ask who is gone at the end */
    model *m = &w->model;
    m->items[m->count++] =
        (model_item){.key = keys[expected], .priority = priorities[expected], .value = values[expected], .touched = ++m->clock};
    m->inserts++;
    if ((int64_t)m->count > w->config.max_size) {
      if (followed)
        follow_removal(w);
      else
        take_out(m, only_choice(m, &w->config.remover));
    }
    expected++;
  }
  assert_int_equal(rows.done, expected);
  assert_int_equal(submitted, expected == n ? RV_SUBMIT_DONE : RV_SUBMIT_PENDING);
  if (submitted == RV_SUBMIT_PENDING) assert_true(rv_waiter_cancel(&rows.waiter));
}

static void check_draw(world *w, const rv_draw *draw)
{
  model *m = &w->model;
  model_item *item = only_choice(m, &w->config.sampler);
  if (item != NULL) assert_int_equal(draw->key, item->key);
  item = find(m, draw->key);
  assert_non_null(item);
  double p = chance(m, &w->config.sampler, item);
  assert_true(p > 0);
  assert_true(fabs(draw->probability - p) <= 1e-9);
  assert_int_equal(draw->table_size, m->count);
  assert_true(draw->priority == item->priority);
  assert_int_equal(value_of(draw), item->value);
  int64_t second = item->value;
  rv_error err;
  if (draw->trajectory->num_columns > 1) must(rv_draw_copy_column(draw, 1, &second, &err), &err);
  assert_int_equal(second, item->value);
  if (item->times_sampled++ == 0) m->unique++;
  assert_int_equal(draw->times_sampled, item->times_sampled);
  m->samples++;
  if (item->times_sampled == w->config.max_times_sampled) take_out(m, item);
}

static void try_sample(world *w)
{
  rv_draw draws[6];
  rv_sampling sampling = {.want = 1 + below(w, 6), .partial = below(w, 2) == 0, .draws = draws};
  rv_submitted submitted = rv_table_sample(w->table, &sampling);
  size_t seen = 0;
  while (seen < sampling.want && w->model.count > 0 && may_sample(w)) {
    assert_true(seen < sampling.count);
    check_draw(w, &draws[seen++]);
  }
  assert_int_equal(sampling.count, seen);
  bool done = seen == sampling.want || (sampling.partial && seen > 0);
  assert_int_equal(submitted, done ? RV_SUBMIT_DONE : RV_SUBMIT_PENDING);
  if (!done) assert_true(rv_waiter_cancel(&sampling.waiter));
  rv_draws_release(draws, sampling.count);
}

static void try_mutate(world *w)
{
  rv_key_priority updates[6];
  uint64_t deletes[3], unknown[9], expected[9];
  size_t num_updates = below(w, 7), num_deletes = below(w, 8) == 0 ? below(w, 4) : 0, num_unknown, missing = 0;
  for (size_t i = 0; i < num_updates; i++) updates[i] = (rv_key_priority){.key = some_key(w), .priority = some_priority(w)};
  for (size_t i = 0; i < num_deletes; i++) deletes[i] = some_key(w);
  if (num_updates > 0 && below(w, 10) == 0) {
    updates[below(w, (uint32_t)num_updates)].priority = NAN;
    rv_error err;
    assert_int_equal(rv_table_mutate(w->table, updates, num_updates, deletes, num_deletes, unknown, &num_unknown, &err),
                     RV_INVALID_ARGUMENT);
    return;
  }
  rv_error err;
  must(rv_table_mutate(w->table, updates, num_updates, deletes, num_deletes, unknown, &num_unknown, &err), &err);
  for (size_t i = 0; i < num_deletes; i++) {
    model_item *item = find(&w->model, deletes[i]);
    if (item == NULL)
      expected[missing++] = deletes[i];
    else
      take_out(&w->model, item);
  }
  for (size_t i = 0; i < num_updates; i++) {
    model_item *item = find(&w->model, updates[i].key);
    if (item == NULL)
      expected[missing++] = updates[i].key;
    else
      model_update(&w->model, item, updates[i].priority);
  }
  assert_int_equal(num_unknown, missing);
  for (size_t i = 0; i < missing; i++) assert_int_equal(unknown[i], expected[i]);
}

static void reset(world *w)
{
  rv_error err;
  must(rv_table_reset(w->table, &err), &err);
  uint64_t clock = w->model.clock;
  w->model = (model){.clock = clock};
}

/* ---- comparing ---- */

static void compare_items(world *w)
{
  const model *m = &w->model;
  rv_item_info page[7];
  rv_error err;
  uint64_t cursor = 0;
  size_t at = 0;
  do {
    size_t count;
    must(rv_table_items(w->table, &cursor, page, 1 + below(w, 7), &count, &err), &err);
    for (size_t i = 0; i < count; i++, at++) {
      assert_true(at < m->count);
      assert_int_equal(page[i].key, m->items[at].key);
      assert_true(page[i].priority == m->items[at].priority);
      assert_int_equal(page[i].times_sampled, m->items[at].times_sampled);
    }
  } while (cursor != 0);
  assert_int_equal(at, m->count);
}

static void compare_info(world *w)
{
  const model *m = &w->model;
  rv_table_info info = info_of(w->table);
  assert_int_equal(info.current_size, m->count);
  assert_int_equal(info.inserts, m->inserts);
  assert_int_equal(info.samples, m->samples);
  assert_int_equal(info.deletes, m->deletes);
  assert_int_equal(info.updates, m->updates);
  assert_int_equal(info.num_unique_samples, m->unique);
  assert_int_equal(info.num_waiting, 0);
  double lowest = NAN, highest = NAN;
  for (size_t i = 0; i < m->count; i++) {
    if (!(lowest <= m->items[i].priority)) lowest = m->items[i].priority;
    if (!(highest >= m->items[i].priority)) highest = m->items[i].priority;
  }
  assert_true(m->count == 0 ? isnan(info.min_priority) : info.min_priority == lowest);
  assert_true(m->count == 0 ? isnan(info.max_priority) : info.max_priority == highest);
  assert_int_equal(rv_table_can_insert(w->table, 1), may_insert(w));
  assert_int_equal(rv_table_can_sample(w->table, 1), m->count > 0 && may_sample(w));
  rv_table_info_fini(&info);
}

static void operate(world *w)
{
  uint32_t what = below(w, 100);
  if (what < 30)
    try_insert(w);
  else if (what < 45)
    try_rows(w);
  else if (what < 75)
    try_sample(w);
  else if (what < 93)
    try_mutate(w);
  else if (what < 96)
    compare_items(w);
  else if (what < 99)
    compare_info(w);
  else if (below(w, 5) == 0)
    reset(w);
}

/* ---- runs ---- */

static rv_rate_limiter_config limiter_number(world *w, int number, int64_t max_size)
{
  switch (number) {
  case 0: return rv_rate_limiter_min_size(1);
  case 1: return rv_rate_limiter_min_size(1 + (int64_t)below(w, (uint32_t)max_size));
  case 2: return rv_rate_limiter_sample_to_insert_ratio(2.5, 1 + max_size / 2, 10);
  case 3: return rv_rate_limiter_queue(max_size);
  default: return rv_rate_limiter_stack(max_size);
  }
}

/* How many rows came in at once. */
static size_t run(uint64_t seed, int sampler, int remover, int limiter, size_t operations)
{
  world w = {.next_value = 1};
  rv_random_init(&w.random, seed);
  w.config = rv_table_config_default("model", 1 + (int64_t)below(&w, MOST_ITEMS));
  w.config.sampler = (rv_selector_config){.kind = (rv_selector_kind)sampler};
  w.config.remover = (rv_selector_config){.kind = (rv_selector_kind)remover};
  if (sampler == RV_SELECTOR_PRIORITIZED) w.config.sampler.priority_exponent = 0.7;
  if (remover == RV_SELECTOR_PRIORITIZED) w.config.remover.priority_exponent = 1.3;
  w.chooses_keys = below(&w, 2) == 0;
  w.config.max_times_sampled = limiter >= 3 || below(&w, 3) == 0 ? 1 + (int32_t)below(&w, 3) : 0;
  w.config.rate_limiter = limiter_number(&w, limiter, w.config.max_size);
  w.store = store_of(&w.config);
  w.table = rv_store_table(w.store, 0);
  for (size_t i = 0; i < operations; i++) operate(&w);
  compare_items(&w);
  compare_info(&w);
  drop_came(&w);
  rv_store_unref(w.store);
  return w.at_once;
}

enum { SEEDS = 5 };

static uint64_t number_from(const char *name, uint64_t otherwise)
{
  const char *text = getenv(name);
  return text == NULL ? otherwise : strtoull(text, NULL, 0);
}

static void tables_of_one_seed(uint64_t seed, size_t operations)
{
  size_t at_once = 0;
  print_message("seed %llu\n", (unsigned long long)seed);
  for (int sampler = RV_SELECTOR_FIFO; sampler <= RV_SELECTOR_PRIORITIZED; sampler++)
    for (int remover = RV_SELECTOR_FIFO; remover <= RV_SELECTOR_PRIORITIZED; remover++)
      for (int limiter = 0; limiter < LIMITERS; limiter++)
        at_once +=
            run(seed * 1000003 + (uint64_t)(sampler * 100 + remover * 10 + limiter), sampler, remover, limiter, operations);
  assert_true(at_once > 0 || operations < 100);
}

static void tables_do_what_a_list_would_do(void **state)
{
  (void)state;
  uint64_t first = number_from("RV_TEST_SEED", 1);
  size_t operations = number_from("RV_TEST_OPERATIONS", 100000 / ONE_PART_OF) / (KINDS * KINDS * LIMITERS);
  for (uint64_t seed = first; seed < first + SEEDS; seed++) tables_of_one_seed(seed, operations);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(tables_do_what_a_list_would_do)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
