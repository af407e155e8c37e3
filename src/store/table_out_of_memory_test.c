/* Every verb of a table, in a random order, with an allocation failing in many of the calls: a call that says RV_RESOURCE_EXHAUSTED has
 * changed nothing (rows: what it says), and the table goes on being what a plain list is. RV_TEST_SEED repeats a run. */
#include "store/testing.h"

#include <limits.h>

#include "base/failing_testing.h"
#include "store/chunk_parts.h"
#include "store/snapshot.h"
#include "store/table_parts.h"

enum { CALLS = 3000, KEYS = 300, MOST_ITEMS = 700, MOST_ROWS = 40, KINDS = 6, SEEDS = 1, DEEP = 6 };

typedef struct model_item {
  uint64_t key;
  double priority;
  int32_t times_sampled;
  int64_t value;
} model_item;

typedef struct world {
  rv_store *store;
  rv_table *table;
  rv_registry *registry;
  rv_random random;
  rv_change_log log; /* of those who write down, in some worlds */
  bool logged;
  model_item items[MOST_ITEMS + 1]; /* in order of insertion */
  size_t count;
  int64_t inserts, samples, deletes, next_value;
  int failures; /* calls that said so */
} world;

static uint32_t below(world *w, uint32_t n)
{
  return rv_random_below(&w->random, n);
}

/* Calls between these two may find no memory. */
static void begin_call(world *w)
{
  fail_allocation(below(w, 3) > 0 ? (long)below(w, DEEP) : LONG_MAX);
}

/* True: it did what it was asked for. */
static bool end_call(world *w, rv_code code, const rv_error *err)
{
  bool failed = allocation_failed();
  if (code == RV_RESOURCE_EXHAUSTED && failed) {
    w->failures++;
    return false;
  }
  must(code, err);
  return true;
}

/* ---- the list ---- */

static model_item *find(world *w, uint64_t key)
{
  for (size_t i = 0; i < w->count; i++)
    if (w->items[i].key == key) return &w->items[i];
  return NULL;
}

static void take_out(world *w, model_item *item)
{
  memmove(item, item + 1, (size_t)(&w->items[w->count] - item - 1) * sizeof *item);
  w->count--;
  w->deletes++;
}

static void put_in(world *w, uint64_t key, double priority, int64_t value)
{
  w->items[w->count++] = (model_item){.key = key, .priority = priority, .value = value};
  w->inserts++;
  if ((int64_t)w->count > w->table->config.max_size) take_out(w, &w->items[0]);
}

static uint64_t some_key(world *w)
{
  return w->count > 0 && below(w, 4) > 0 ? w->items[below(w, (uint32_t)w->count)].key : below(w, KEYS);
}

/* ---- comparing ---- */

static void check_item(const rv_draw *draw, const model_item *item)
{
  assert_int_equal(draw->key, item->key);
  assert_true(draw->priority == item->priority);
  assert_int_equal(draw->times_sampled, item->times_sampled);
  assert_int_equal(value_of(draw), item->value);
}

static void compare(world *w)
{
  rv_error err;
  rv_item_info page[100];
  uint64_t cursor = 0;
  size_t at = 0, count;
  do {
    must(rv_table_items(w->table, &cursor, page, 100, &count, &err), &err);
    for (size_t i = 0; i < count; i++, at++) {
      rv_draw draw;
      assert_true(at < w->count);
      must(rv_table_get(w->table, page[i].key, &draw, &err), &err);
      check_item(&draw, &w->items[at]);
      rv_draw_release(&draw);
    }
  } while (cursor != 0);
  assert_int_equal(at, w->count);
  assert_int_equal(w->table->limiter.inserts, w->inserts);
  assert_int_equal(w->table->limiter.samples, w->samples);
  assert_int_equal(w->table->limiter.deletes, w->deletes);
}

/* ---- inserts ---- */

/* One row: in a chunk, or the same column out of two. */
static rv_trajectory *some_trajectory(world *w, int64_t value)
{
  rv_error err;
  rv_trajectory *trajectory = NULL;
  rv_chunk *chunk = below(w, 2) == 0 ? chunk_of(value, (uint64_t)value / 3) : encoded_numbers(value, 4, 1, below(w, 2) == 0);
  rv_chunk *other = chunk_of(value, 7);
  rv_slice slices[] = {{chunk, 0, 0, 1}, {below(w, 2) == 0 ? chunk : other, 0, 0, 1}};
  uint32_t columns = 1 + below(w, 2);
  rv_trajectory_desc desc = {
      .slices = slices, .num_slices = (uint32_t[]){1, 1}, .squeeze = (bool[]){true, true}, .num_columns = columns};
  must(rv_trajectory_new(rv_store_layouts(w->store), &desc, &trajectory, &err), &err);
  rv_chunk_unref(chunk);
  rv_chunk_unref(other);
  return trajectory;
}

static void inserted(world *w, const rv_insert *insert, int64_t value)
{
  model_item *known = find(w, insert->key);
  assert_int_equal(insert->updated, known != NULL);
  if (known != NULL)
    known->priority = insert->priority;
  else
    put_in(w, insert->key, insert->priority, value);
}

static void insert_items(world *w)
{
  rv_insert inserts[8], *pointers[8];
  rv_submitted submitted[8];
  int64_t values[8];
  size_t n = 1 + below(w, 8);
  for (size_t i = 0; i < n; i++) {
    values[i] = w->next_value++;
    inserts[i] = (rv_insert){.key = below(w, KEYS), .choose_key = below(w, 3) == 0, .priority = 1 + below(w, 5)};
    inserts[i].trajectory = some_trajectory(w, values[i]);
    pointers[i] = &inserts[i];
  }
  begin_call(w);
  size_t taken = n == 1 ? 1 : rv_table_insert_many(w->table, pointers, n, submitted);
  if (n == 1) submitted[0] = rv_table_insert(w->table, &inserts[0]);
  bool failed = allocation_failed();
  for (size_t i = 0; i < taken; i++) {
    rv_insert *insert = &inserts[i];
    assert_int_equal(submitted[i], RV_SUBMIT_DONE);
    if (insert->waiter.code == RV_OK) {
      inserted(w, insert, values[i]);
      continue;
    }
    assert_true(failed);
    assert_int_equal(insert->waiter.code, RV_RESOURCE_EXHAUSTED);
    assert_int_equal(i + 1, taken);
    w->failures++;
  }
  for (size_t i = 0; i < n; i++) rv_trajectory_unref(inserts[i].trajectory);
}

static void insert_rows(world *w)
{
  int64_t values[MOST_ROWS], shapes[2] = {1 + (int64_t)below(w, MOST_ROWS), 1};
  double priorities[MOST_ROWS];
  uint64_t keys[MOST_ROWS];
  size_t n = (size_t)shapes[0];
  for (size_t i = 0; i < n; i++) {
    values[i] = w->next_value++;
    priorities[i] = below(w, 4);
  }
  /* of several forms, so that segments are closed and opened */
  rv_tensor columns[2] = {{.dtype = RV_INT64, .rank = 1 + below(w, 2), .shape = shapes, .data = values}};
  columns[1] = columns[0];
  rv_rows rows = {.columns = columns, .num_columns = 1 + below(w, 2), .n = n, .priorities = priorities, .keys = keys};
  begin_call(w);
  rv_submitted submitted = rv_table_insert_rows(w->table, &rows);
  assert_int_equal(submitted, RV_SUBMIT_DONE);
  bool whole = end_call(w, rows.waiter.code, &rows.waiter.error);
  assert_true(!whole || rows.done == n);
  for (size_t i = 0; i < rows.done; i++) put_in(w, keys[i], priorities[i], values[i]);
}

/* ---- samples and changes ---- */

static void sample(world *w)
{
  rv_draw draws[20];
  rv_sampling sampling = {.want = 1 + below(w, 20), .draws = draws};
  if (w->count == 0) return;
  begin_call(w);
  assert_int_equal(rv_table_sample(w->table, &sampling), RV_SUBMIT_DONE);
  end_call(w, sampling.waiter.code, &sampling.waiter.error);
  for (size_t i = 0; i < sampling.count; i++) {
    model_item *item = find(w, draws[i].key);
    assert_non_null(item);
    item->times_sampled++;
    w->samples++;
    check_item(&draws[i], item);
  }
  rv_draws_release(draws, sampling.count);
}

/* Key by key; only the beginning may fail. */
static rv_code mutate_in_parts(rv_table *table, const rv_key_priority *updates, size_t num_updates, const uint64_t *deletes,
                               size_t num_deletes, uint64_t *unknown, size_t *num_unknown, rv_error *err)
{
  rv_mutation *mutation;
  size_t more = *num_unknown = 0;
  rv_error none = {.message = ""};
  rv_code code = rv_mutation_new(table, num_updates + num_deletes, &mutation, err);
  if (code != RV_OK) return code;
  for (size_t i = 0; i < num_deletes; i++, *num_unknown += more)
    must(rv_mutation_delete(mutation, &deletes[i], 1, unknown + *num_unknown, &more, &none), &none);
  for (size_t i = 0; i < num_updates; i++, *num_unknown += more)
    must(rv_mutation_update(mutation, &updates[i], 1, unknown + *num_unknown, &more, &none), &none);
  rv_mutation_free(mutation);
  return RV_OK;
}

static void mutate(world *w)
{
  rv_key_priority updates[6];
  uint64_t deletes[3], unknown[9];
  size_t num_updates = below(w, 7), num_deletes = below(w, 4), num_unknown;
  rv_error err;
  for (size_t i = 0; i < num_updates; i++) updates[i] = (rv_key_priority){some_key(w), below(w, 6)};
  for (size_t i = 0; i < num_deletes; i++) deletes[i] = some_key(w);
  begin_call(w);
  bool in_parts = rv_table_can_mutate_in_parts(w->table) && below(w, 2) == 0;
  rv_code code = (in_parts ? mutate_in_parts : rv_table_mutate)(w->table, updates, num_updates, deletes, num_deletes, unknown,
                                                                &num_unknown, &err);
  if (!end_call(w, code, &err)) return;
  for (size_t i = 0; i < num_deletes; i++) {
    model_item *item = find(w, deletes[i]);
    if (item != NULL) take_out(w, item);
  }
  for (size_t i = 0; i < num_updates; i++) {
    model_item *item = find(w, updates[i].key);
    if (item != NULL) item->priority = updates[i].priority;
  }
}

static void update(world *w)
{
  uint64_t keys[20];
  double priorities[20];
  size_t n = below(w, 21), num_unknown;
  rv_error err;
  for (size_t i = 0; i < n; i++) {
    keys[i] = some_key(w);
    priorities[i] = below(w, 6);
  }
  begin_call(w);
  if (!end_call(w, rv_table_update_priorities(w->table, keys, priorities, n, NULL, &num_unknown, &err), &err)) return;
  for (size_t i = 0; i < n; i++) {
    model_item *item = find(w, keys[i]);
    if (item != NULL) item->priority = priorities[i];
  }
}

static void reset(world *w)
{
  rv_error err;
  begin_call(w);
  if (!end_call(w, rv_table_reset(w->table, &err), &err)) return;
  w->count = 0;
  w->inserts = w->samples = w->deletes = 0;
}

static void set_limiter(world *w)
{
  rv_error err;
  rv_rate_limiter_config limiter = rv_rate_limiter_min_size(1);
  limiter.samples_per_insert = 1 + below(w, 3);
  begin_call(w);
  if (end_call(w, rv_table_set_rate_limiter(w->table, &limiter, &err), &err))
    assert_true(w->table->limiter.config.samples_per_insert == limiter.samples_per_insert);
}

/* ---- looking ---- */

static void look_at_info(world *w)
{
  rv_table_info info;
  rv_error err;
  begin_call(w);
  if (!end_call(w, rv_table_get_info(w->table, &info, &err), &err)) return;
  assert_int_equal(info.current_size, w->count);
  assert_int_equal(info.inserts, w->inserts);
  rv_table_info_fini(&info);
}

static void look_at_an_item(world *w)
{
  rv_draw draw;
  rv_error err;
  if (w->count == 0) return;
  const model_item *item = &w->items[below(w, (uint32_t)w->count)];
  begin_call(w);
  if (!end_call(w, rv_table_get(w->table, item->key, &draw, &err), &err)) return;
  check_item(&draw, item);
  rv_draw_release(&draw);
}

static void take_snapshot(world *w)
{
  rv_snapshot *snapshot;
  const rv_draw *items;
  size_t count, at = 0;
  rv_error err;
  begin_call(w);
  rv_code code = rv_snapshot_new(w->table, &snapshot, &err);
  if (!end_call(w, code, &err)) return;
  do {
    begin_call(w);
    bool whole = end_call(w, rv_snapshot_next(snapshot, &items, &count, &err), &err);
    if (!whole) break; /* it is no good then, and the table does not mind */
    for (size_t i = 0; i < count; i++) check_item(&items[i], &w->items[at++]);
  } while (count > 0);
  rv_snapshot_free(snapshot);
}

/* What was written down is taken away now and then. */
static void collect(world *w)
{
  rv_change_list list;
  if (!w->logged) return;
  begin_call(w);
  rv_table_take_changes(w->table, &list);
  allocation_failed();
  atomic_fetch_sub(&w->log.bytes, list.bytes);
  rv_change_list_fini(&list);
}

static void call(world *w)
{
  uint32_t what = below(w, 100);
  if (what < 25)
    insert_items(w);
  else if (what < 40)
    insert_rows(w);
  else if (what < 60)
    sample(w);
  else if (what < 72)
    mutate(w);
  else if (what < 82)
    update(w);
  else if (what < 86)
    look_at_info(w);
  else if (what < 90)
    look_at_an_item(w);
  else if (what < 93)
    take_snapshot(w);
  else if (what < 96)
    set_limiter(w);
  else if (what < 99)
    collect(w);
  else if (below(w, 4) == 0)
    reset(w);
}

/* ---- a selector of somebody else's, which finds no memory either ---- */

typedef struct bag {
  uint32_t *slots;
  size_t count, capacity;
} bag;

static rv_code bag_create(const char *options, void **out, rv_error *err)
{
  (void)options;
  *out = calloc(1, sizeof(bag));
  return *out != NULL ? RV_OK : (err->code = RV_RESOURCE_EXHAUSTED);
}

static void bag_destroy(void *selector)
{
  free(((bag *)selector)->slots);
  free(selector);
}

static rv_code bag_insert(void *selector, uint32_t slot, uint64_t key, double priority, rv_error *err)
{
  bag *b = selector;
  (void)key, (void)priority;
  if (b->count == b->capacity) {
    uint32_t *grown = realloc(b->slots, (b->capacity + 8) * sizeof *grown);
    if (grown == NULL) return err->code = RV_RESOURCE_EXHAUSTED;
    b->slots = grown;
    b->capacity += 8;
  }
  b->slots[b->count++] = slot;
  return RV_OK;
}

static void bag_remove(void *selector, uint32_t slot, uint64_t key)
{
  bag *b = selector;
  (void)key;
  for (size_t i = 0; i < b->count; i++)
    if (b->slots[i] == slot) {
      b->slots[i] = b->slots[--b->count];
      return;
    }
}

/* As if it had to grow for it. */
static rv_code bag_update(void *selector, uint32_t slot, uint64_t key, double priority, rv_error *err)
{
  (void)selector, (void)slot, (void)key, (void)priority;
  void *room = malloc(8);
  free(room);
  return room != NULL ? RV_OK : (err == NULL ? RV_RESOURCE_EXHAUSTED : (err->code = RV_RESOURCE_EXHAUSTED));
}

static void bag_clear(void *selector)
{
  ((bag *)selector)->count = 0;
}

static uint32_t bag_select(void *selector, uint64_t random, double *probability)
{
  const bag *b = selector;
  *probability = 1.0 / (double)b->count;
  return b->slots[random % b->count];
}

static const rv_selector_ops bag_ops = {.size = sizeof bag_ops,
                                        .create = bag_create,
                                        .destroy = bag_destroy,
                                        .insert = bag_insert,
                                        .remove = bag_remove,
                                        .update = bag_update,
                                        .clear = bag_clear,
                                        .select = bag_select};

/* ---- runs ---- */

static void wake(rv_change_log *log, bool urgent)
{
  (void)log, (void)urgent;
}

static void run(uint64_t seed, int kind)
{
  static const rv_extension_config extensions[] = {{.name = "statistics"}, {.name = "diffusion", .options = "steps=2,decay=0"}};
  world *w = calloc(1, sizeof *w);
  rv_error err;
  rv_random_init(&w->random, seed * 31 + (uint64_t)kind);
  must(rv_registry_new(&w->registry, &err), &err);
  must(rv_registry_add_selector(w->registry, "bag", &bag_ops, &err), &err);
  rv_table_config config = rv_table_config_default("t", kind == 0 ? 60 : MOST_ITEMS);
  if (kind == 1) config.sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
  if (kind == 2) config.sampler.kind = RV_SELECTOR_MAX_HEAP;
  if (kind == 3) config.sampler = (rv_selector_config){.kind = RV_SELECTOR_CUSTOM, .name = "bag"};
  if (kind == 4) {
    config.extensions = extensions;
    config.num_extensions = 2;
  }
  rv_store_config whole = {.size = sizeof whole, .registry = w->registry, .tables = &config, .num_tables = 1};
  must(rv_store_new(&whole, &w->store, &err), &err);
  w->table = rv_store_table(w->store, 0);
  w->logged = kind == 0 || kind == 5;
  rv_change_log_init(&w->log, SIZE_MAX / 8, wake);
  if (w->logged) must(rv_table_keep_changes(w->table, &w->log, &err), &err);
  for (int i = 0; i < CALLS; i++) {
    call(w);
    if (i % 16 == 0) compare(w);
  }
  compare(w);
  assert_true(w->failures > CALLS / 100);
  print_message("kind %d: %d of %d calls found no memory\n", kind, w->failures, CALLS);
  if (w->logged) rv_table_drop_changes(w->table);
  rv_store_unref(w->store);
  rv_registry_free(w->registry);
  free(w);
}

static void a_call_that_finds_no_memory_changes_nothing(void **state)
{
  (void)state;
  const char *given = getenv("RV_TEST_SEED");
  uint64_t first = given == NULL ? 1 : strtoull(given, NULL, 0);
  for (uint64_t seed = first; seed < first + SEEDS; seed++) {
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int kind = 0; kind < KINDS; kind++) run(seed, kind);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_call_that_finds_no_memory_changes_nothing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
