/* Whoever makes a table's changes again has the same table. */
#include "store/changes.h"

#include "store/replay.h"
#include "store/snapshot.h"
#include "store/testing.h"

enum { ROUNDS = 3000, KEYS = 300 };

static int wakes;
static void wake(rv_change_log *log, bool urgent)
{
  (void)log, (void)urgent;
  wakes++;
}

/* ---- making changes again ---- */

static void replay_insert(rv_table *to, const rv_change_extra *extra)
{
  rv_error err;
  rv_trajectory *trajectory = NULL;
  const rv_draw *draw = &extra->draw;
  rv_slice slice = rv_draw_slice(draw, 0);
  uint32_t num_slices = 1;
  bool squeeze = draw->trajectory->columns[0].squeeze;
  rv_trajectory_desc desc = {.slices = &slice, .num_slices = &num_slices, .squeeze = &squeeze, .num_columns = 1};
  rv_layouts *layouts;
  must(rv_layouts_new(&layouts, &err), &err);
  must(rv_trajectory_new(layouts, &desc, &trajectory, &err), &err);
  rv_restored_item item = {.key = draw->key,
                           .priority = draw->priority,
                           .times_sampled = draw->times_sampled,
                           .inserted_at_ns = draw->inserted_at_ns,
                           .trajectory = trajectory};
  must(rv_table_replay_insert(to, &item, draw->naming, &err), &err);
  rv_trajectory_unref(trajectory);
  rv_layouts_unref(layouts);
}

static size_t replay(rv_table *from, rv_change_log *log, rv_table *to)
{
  rv_error err;
  rv_change_list list;
  size_t n = 0, at = 0;
  rv_table_take_changes(from, &list);
  const rv_extra_block *extras = list.extras;
  for (const rv_change_block *block = list.blocks; block != NULL; block = block->next) {
    for (size_t i = 0; i < block->count; i++, n++) {
      const rv_change *change = &block->changes[i];
      const rv_change_extra *extra = NULL;
      if (change->kind == RV_CHANGE_INSERT || change->kind == RV_CHANGE_LIMITER || change->kind == RV_CHANGE_DONE) {
        if (at == extras->count) {
          extras = extras->next;
          at = 0;
        }
        extra = &extras->extras[at++];
      }
      switch ((rv_change_kind)change->kind) {
      case RV_CHANGE_INSERT: replay_insert(to, extra); break;
      case RV_CHANGE_DELETE: assert_int_equal(rv_table_replay_delete(to, change->key), RV_OK); break;
      case RV_CHANGE_UPDATE: must(rv_table_replay_update(to, change->key, change->priority, &err), &err); break;
      case RV_CHANGE_SAMPLE: assert_int_equal(rv_table_replay_sample(to, change->key, change->times_sampled), RV_OK); break;
      case RV_CHANGE_RESET: must(rv_table_reset(to, &err), &err); break;
      case RV_CHANGE_LIMITER: must(rv_table_set_rate_limiter(to, &extra->limiter, &err), &err); break;
      case RV_CHANGE_BOUNDS: {
        rv_bounds_change bounds = {.bounds = rv_table_bounds_unchanged()};
        bounds.bounds.max_size = (int64_t)change->key;
        bounds.bounds.max_times_sampled = change->times_sampled;
        must(rv_table_change_bounds(to, &bounds, &err), &err);
        assert_true(bounds.done); /* in one step: what went was deleted one by one before */
        break;
      }
      case RV_CHANGE_MAX_BYTES: rv_table_replay_max_bytes(to, (int64_t)change->key); break;
      case RV_CHANGE_DONE:
      case RV_CHANGE_SNAPSHOT: break;
      }
    }
  }
  atomic_fetch_sub(&log->bytes, list.bytes);
  rv_change_list_fini(&list);
  return n;
}

/* ---- comparing ---- */

static void same_tables(rv_table *a, rv_table *b)
{
  rv_error err;
  rv_snapshot *x, *y;
  must(rv_snapshot_new(a, &x, &err), &err);
  must(rv_snapshot_new(b, &y, &err), &err);
  const rv_snapshot_head *p = rv_snapshot_get_head(x), *q = rv_snapshot_get_head(y);
  assert_int_equal(p->limiter.inserts, q->limiter.inserts);
  assert_int_equal(p->limiter.samples, q->limiter.samples);
  assert_int_equal(p->limiter.deletes, q->limiter.deletes);
  assert_int_equal(p->limiter.config.min_size_to_sample, q->limiter.config.min_size_to_sample);
  assert_int_equal(p->num_unique_samples, q->num_unique_samples);
  assert_int_equal(p->num_items, q->num_items);
  assert_int_equal(p->max_size, q->max_size);
  assert_int_equal(p->max_times_sampled, q->max_times_sampled);
  for (;;) {
    const rv_draw *s, *t;
    size_t n, m;
    must(rv_snapshot_next(x, &s, &n, &err), &err);
    must(rv_snapshot_next(y, &t, &m, &err), &err);
    assert_int_equal(n, m);
    if (n == 0) break;
    for (size_t i = 0; i < n; i++) {
      assert_int_equal(s[i].key, t[i].key);
      assert_true(s[i].priority == t[i].priority);
      assert_int_equal(s[i].times_sampled, t[i].times_sampled);
      assert_int_equal(s[i].inserted_at_ns, t[i].inserted_at_ns);
      assert_int_equal(value_of(&s[i]), value_of(&t[i]));
    }
  }
  rv_snapshot_free(x);
  rv_snapshot_free(y);
}

/* ---- doing something of everything ---- */

static void draw(rv_table *table, size_t n)
{
  rv_draw draws[64];
  rv_sampling sampling = {.want = n, .partial = true, .draws = draws};
  sampling.waiter.deadline_ns = INT64_MAX;
  if (rv_table_sample(table, &sampling) == RV_SUBMIT_PENDING) {
    assert_true(rv_waiter_cancel(&sampling.waiter));
  }
  for (size_t i = 0; i < sampling.count; i++) rv_draw_release(&draws[i]);
}

static void something(rv_store *store, rv_table *table, rv_random *random)
{
  rv_error err;
  rv_rows rows;
  uint64_t keys[8];
  double priorities[8];
  int64_t values[40];
  size_t unknown, n = 1 + rv_random_below(random, 8);
  for (size_t i = 0; i < 8; i++) keys[i] = rv_random_below(random, KEYS), priorities[i] = (double)rv_random_below(random, 100);
  for (size_t i = 0; i < 40; i++) values[i] = (int64_t)rv_random_below(random, 1000000);
  rv_mutation *mutation;
  switch (rv_random_below(random, 14)) {
  case 13:
    must(rv_mutation_new(table, 2 * n, &mutation, &err), &err);
    must(rv_mutation_delete(mutation, keys, n / 2, NULL, &unknown, &err), &err);
    assert_int_equal(add_values(table, &rows, values, 1, NULL), RV_SUBMIT_DONE); /* somebody else, in between */
    for (size_t i = 0; i < n; i++)
      must(rv_mutation_update(mutation, &(rv_key_priority){keys[i], priorities[i]}, 1, NULL, &unknown, &err), &err);
    rv_mutation_free(mutation);
    break;
  case 0: must(rv_table_mutate(table, NULL, 0, keys, n, NULL, &unknown, &err), &err); break;
  case 1: must(rv_table_update_priorities(table, keys, priorities, n, NULL, &unknown, &err), &err); break;
  case 2:
  case 3: draw(table, 1 + rv_random_below(random, 60)); break;
  case 4:
  case 5: assert_int_equal(add_values(table, &rows, values, 1 + rv_random_below(random, 40), NULL), RV_SUBMIT_DONE); break;
  case 6:
    if (rv_random_below(random, 50) == 0) must(rv_table_reset(table, &err), &err);
    break;
  case 7: {
    rv_rate_limiter_config limiter = rv_rate_limiter_min_size(1 + (int64_t)rv_random_below(random, 3));
    must(rv_table_set_rate_limiter(table, &limiter, &err), &err);
    break;
  }
  case 8: {
    rv_bounds_change bounds = {.bounds = rv_table_bounds_unchanged()};
    bounds.bounds.max_size = 3 + (int64_t)rv_random_below(random, 3 * KEYS);
    if (rv_random_below(random, 2) == 0) bounds.bounds.max_times_sampled = (int32_t)rv_random_below(random, 5);
    if (rv_random_below(random, 2) == 0) bounds.bounds.max_bytes = (int64_t)rv_random_below(random, 3) << 16;
    while (!bounds.done) must(rv_table_change_bounds(table, &bounds, &err), &err);
    break;
  }
  default: must(insert_value(store, table, keys[0], priorities[0], values[0]), &err); break;
  }
}

static void made_again(rv_table_config config)
{
  rv_error err;
  rv_change_log log;
  uint64_t seed = 20261121;
  const char *given = getenv("RV_TEST_SEED");
  if (given != NULL) seed = strtoull(given, NULL, 10);
  print_message("seed %llu\n", (unsigned long long)seed);
  rv_random random;
  rv_random_init(&random, seed);
  rv_store *from = store_of(&config), *to = store_of(&config);
  rv_table *table = rv_store_table(from, 0), *copy = rv_store_table(to, 0);
  char corrected[256];
  rv_change_log_init(&log, (size_t)1 << 40, wake);
  must(rv_table_keep_changes(table, &log, &err), &err);
  size_t changes = 0;
  for (int i = 0; i < ROUNDS; i++) {
    something(from, table, &random);
    if (rv_random_below(&random, 40) != 0) continue;
    changes += replay(table, &log, copy);
    same_tables(table, copy);
  }
  changes += replay(table, &log, copy);
  rv_table_replay_end(copy, corrected, sizeof corrected);
  assert_string_equal(corrected, "");
  same_tables(table, copy);
  assert_true(changes > ROUNDS);
  rv_table_drop_changes(table);
  rv_store_unref(from);
  rv_store_unref(to);
}

static void changes_made_again_give_the_same_table(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("replay", 200);
  made_again(config);
  config.sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
  config.remover.kind = RV_SELECTOR_UNIFORM;
  made_again(config);
  config.max_times_sampled = 2;
  made_again(config);
}

static void what_the_newest_items_columns_are_called_is_made_again(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("replay", 10);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  rv_error err;
  char corrected[200];
  const uint64_t namings[] = {0, 0xABCDEF};
  for (uint64_t key = 1; key <= 2; key++) {
    rv_restored_item item = {.key = key, .priority = 1, .trajectory = single(store, 1, 1)};
    must(rv_table_replay_insert(table, &item, namings[key - 1], &err), &err);
    rv_trajectory_unref(item.trajectory);
  }
  rv_table_replay_end(table, corrected, sizeof corrected);
  for (uint64_t gone = 0; gone < 2; gone++) {
    if (gone > 0) assert_int_equal(rv_table_replay_delete(table, gone), RV_OK);
    rv_draw draw;
    must(rv_table_get(table, 2, &draw, &err), &err);
    assert_int_equal(draw.naming, namings[gone]);
    rv_draw_release(&draw);
  }
  rv_store_unref(store);
}

static void extensions_edits_are_among_the_changes(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("replay", 200);
  static const rv_extension_config extension = {.name = "diffusion", .options = "steps=2,decay=0.5"};
  config.sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
  config.extensions = &extension;
  config.num_extensions = 1;
  rv_error err;
  rv_change_log log;
  size_t unknown;
  uint64_t key = 2;
  double priority = 8;
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  rv_change_log_init(&log, (size_t)1 << 40, wake);
  must(rv_table_keep_changes(table, &log, &err), &err);
  rv_table_config plain = rv_table_config_default("replay", 200);
  plain.sampler = config.sampler;
  rv_store *to = store_of(&plain);
  for (int64_t i = 0; i < 4; i++) must(insert_value(store, table, (uint64_t)i, 1, i), &err);
  must(rv_table_update_priorities(table, &key, &priority, 1, NULL, &unknown, &err), &err);
  replay(table, &log, rv_store_table(to, 0));
  same_tables(table, rv_store_table(to, 0));
  rv_table_drop_changes(table);
  rv_store_unref(store);
  rv_store_unref(to);
}

/* ---- too much waits ---- */

static void completed(rv_waiter *waiter)
{
  (void)waiter;
}

static void inserts_wait_for_room_say_so_and_go_on_when_there_is(void **state)
{
  (void)state;
  rv_error err;
  rv_change_log log;
  char why[256];
  rv_table_config config = rv_table_config_default("replay", 100);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  rv_change_log_init(&log, 1000, wake);
  must(rv_table_keep_changes(table, &log, &err), &err);
  wakes = 0;
  uint64_t key = 0;
  while (atomic_load(&log.bytes) < 1000) must(insert_value(store, table, ++key, 1, 1), &err);
  assert_true(wakes >= 1);
  rv_insert insert = {.key = 1000, .priority = 1, .trajectory = single(store, 5, 1)};
  insert.waiter.deadline_ns = INT64_MAX;
  insert.waiter.complete = completed;
  assert_int_equal(rv_table_insert(table, &insert), RV_SUBMIT_PENDING);
  atomic_store(&log.fault, 28);
  assert_int_equal(rv_waiter_explain(&insert.waiter, why, sizeof why), RV_WAIT_JOURNAL);
  assert_non_null(strstr(why, "table \"replay\": inserting waits for the journal"));
  assert_non_null(strstr(why, "No space left on device"));
  draw(table, 1); /* samples go on a while longer */
  rv_change_list list;
  rv_table_take_changes(table, &list);
  atomic_fetch_sub(&log.bytes, list.bytes);
  rv_change_list_fini(&list);
  rv_table_serve_changes(table);
  assert_int_equal(insert.waiter.code, RV_OK);
  rv_table_info info = info_of(table);
  assert_int_equal(info.current_size, (int64_t)key + 1);
  rv_table_info_fini(&info);
  rv_trajectory_unref(insert.trajectory);
  rv_table_drop_changes(table);
  rv_store_unref(store);
}

/* Received chunks of one row are books rather than rows: a replaced item's are kept by nobody but its change. */
static void chunks_that_only_changes_keep_are_counted_whole(void **state)
{
  (void)state;
  rv_error err;
  rv_change_log log;
  rv_table_config config = rv_table_config_default("replay", 1);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  rv_change_log_init(&log, (size_t)1 << 40, wake);
  must(rv_table_keep_changes(table, &log, &err), &err);
  size_t kept = 0;
  for (uint64_t key = 1; key <= 100; key++) {
    rv_chunk *chunk = encoded_numbers((int64_t)key, 1, key, false);
    rv_insert insert = {.key = key, .priority = 1, .trajectory = trajectory_of(store, chunk, 0, 1)};
    kept += rv_chunk_memory(chunk);
    insert.waiter.deadline_ns = INT64_MAX;
    assert_int_equal(rv_table_insert(table, &insert), RV_SUBMIT_DONE);
    rv_trajectory_unref(insert.trajectory);
    rv_chunk_unref(chunk);
  }
  assert_true(atomic_load(&log.bytes) >= kept);
  rv_table_drop_changes(table);
  rv_store_unref(store);
}

static void what_cannot_wait_is_refused_when_far_too_much_waits(void **state)
{
  (void)state;
  rv_error err;
  rv_change_log log;
  size_t unknown;
  uint64_t key = 1;
  double priority = 2;
  rv_table_config config = rv_table_config_default("replay", 100);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  rv_change_log_init(&log, 1000, wake);
  must(rv_table_keep_changes(table, &log, &err), &err);
  must(insert_value(store, table, key, 1, 1), &err);
  rv_code code = RV_OK;
  for (int i = 0; i < 1000 && code == RV_OK; i++)
    code = rv_table_update_priorities(table, &key, &priority, 1, NULL, &unknown, &err);
  assert_int_equal(code, RV_RESOURCE_EXHAUSTED);
  assert_non_null(strstr(err.message, "not on the disk yet"));
  assert_true(atomic_load(&log.bytes) < 4100);
  assert_int_equal(rv_table_reset(table, &err), RV_RESOURCE_EXHAUSTED);
  rv_table_drop_changes(table);
  must(rv_table_reset(table, &err), &err);
  rv_store_unref(store);
}

static void a_table_has_one_log_at_a_time(void **state)
{
  (void)state;
  rv_error err;
  rv_change_log log;
  rv_table_config config = rv_table_config_default("replay", 100);
  rv_store *store = store_of(&config);
  rv_change_log_init(&log, 1000, wake);
  must(rv_table_keep_changes(rv_store_table(store, 0), &log, &err), &err);
  assert_int_equal(rv_table_keep_changes(rv_store_table(store, 0), &log, &err), RV_FAILED_PRECONDITION);
  rv_table_drop_changes(rv_store_table(store, 0));
  rv_store_unref(store);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(changes_made_again_give_the_same_table),
      cmocka_unit_test(what_the_newest_items_columns_are_called_is_made_again),
      cmocka_unit_test(extensions_edits_are_among_the_changes),
      cmocka_unit_test(inserts_wait_for_room_say_so_and_go_on_when_there_is),
      cmocka_unit_test(chunks_that_only_changes_keep_are_counted_whole),
      cmocka_unit_test(what_cannot_wait_is_refused_when_far_too_much_waits),
      cmocka_unit_test(a_table_has_one_log_at_a_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
