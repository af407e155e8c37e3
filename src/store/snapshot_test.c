#include "store/snapshot.h"

#include <pthread.h>

#include "base/error.h"
#include "store/testing.h"

enum { ITEMS_MAX = 6000 };

/* ---- what a table holds, by listing it ---- */

typedef struct model_item {
  uint64_t key;
  double priority;
  int32_t times_sampled;
  int64_t inserted_at_ns, value;
} model_item;

typedef struct model {
  model_item items[ITEMS_MAX];
  size_t n;
  rv_table_info info;
} model;

static void look(rv_table *table, model *out)
{
  rv_error err;
  rv_item_info page[500];
  uint64_t cursor = 0;
  out->n = 0;
  do {
    size_t count;
    must(rv_table_items(table, &cursor, page, 500, &count, &err), &err);
    assert_true(out->n + count <= ITEMS_MAX);
    for (size_t i = 0; i < count; i++) {
      rv_draw draw;
      must(rv_table_get(table, page[i].key, &draw, &err), &err);
      out->items[out->n++] = (model_item){.key = page[i].key,
                                          .priority = page[i].priority,
                                          .times_sampled = page[i].times_sampled,
                                          .inserted_at_ns = page[i].inserted_at_ns,
                                          .value = value_of(&draw)};
      rv_draw_release(&draw);
    }
  } while (cursor != 0);
  out->info = info_of(table);
}

static void check_item(const rv_draw *draw, const model_item *expected, size_t i)
{
  int64_t value = value_of(draw);
  if (draw->key != expected->key || draw->priority != expected->priority || draw->times_sampled != expected->times_sampled ||
      draw->inserted_at_ns != expected->inserted_at_ns || value != expected->value)
    fail_msg("item %zu: key %llu, priority %g, sampled %d, value %lld; expected %llu, %g, %d, %lld", i,
             (unsigned long long)draw->key, draw->priority, (int)draw->times_sampled, (long long)value,
             (unsigned long long)expected->key, expected->priority, (int)expected->times_sampled, (long long)expected->value);
}

static void check_head(const rv_snapshot *snapshot, const model *m)
{
  const rv_snapshot_head *head = rv_snapshot_get_head(snapshot);
  assert_int_equal(head->num_items, m->n);
  assert_int_equal(head->limiter.inserts, m->info.inserts);
  assert_int_equal(head->limiter.samples, m->info.samples);
  assert_int_equal(head->limiter.deletes, m->info.deletes);
  assert_int_equal(head->limiter.inserts - head->limiter.deletes, m->n);
  assert_int_equal(head->num_unique_samples, m->info.num_unique_samples);
  assert_int_equal(head->num_deleted_episodes, m->info.num_deleted_episodes);
}

/* ---- random changes ---- */

typedef struct shaker {
  rv_store *store;
  rv_table *table;
  rv_random random;
  uint64_t next_key;  /* of those the test chooses */
  uint64_t known[64]; /* some keys that are or were there */
} shaker;

static uint64_t some_key(shaker *s)
{
  return s->known[rv_random_below(&s->random, 64)];
}

static void know(shaker *s, uint64_t key)
{
  s->known[rv_random_below(&s->random, 64)] = key;
}

static void sample_some(shaker *s)
{
  rv_draw draws[300];
  rv_sampling sampling = {.want = 1 + rv_random_below(&s->random, 300), .partial = true, .draws = draws};
  sampling.waiter.deadline_ns = INT64_MAX;
  if (rv_table_sample(s->table, &sampling) == RV_SUBMIT_PENDING) assert_true(rv_waiter_cancel(&sampling.waiter));
  for (size_t i = 0; i < sampling.count; i++) {
    if (i % 16 == 0) know(s, draws[i].key);
    rv_draw_release(&draws[i]);
  }
}

static void shake(shaker *s)
{
  rv_error err;
  size_t unknown;
  switch (rv_random_below(&s->random, 8)) {
  case 0:
  case 1: {
    rv_rows rows;
    int64_t values[70];
    uint64_t keys[70];
    size_t n = 1 + rv_random_below(&s->random, 70);
    for (size_t i = 0; i < n; i++) values[i] = (int64_t)(rv_random_next(&s->random) >> 20);
    add_values(s->table, &rows, values, n, keys);
    assert_int_equal(rows.waiter.code, RV_OK);
    know(s, keys[0]);
    break;
  }
  case 2:
  case 3:
    assert_int_equal(
        insert_value(s->store, s->table, ++s->next_key, rv_random_unit(&s->random), (int64_t)(rv_random_next(&s->random) >> 20)),
        RV_OK);
    know(s, s->next_key);
    break;
  case 4:
  case 5: {
    rv_key_priority updates[20];
    for (size_t i = 0; i < 20; i++) updates[i] = (rv_key_priority){some_key(s), rv_random_unit(&s->random)};
    must(rv_table_mutate(s->table, updates, 20, NULL, 0, NULL, &unknown, &err), &err);
    break;
  }
  case 6: {
    uint64_t gone[3] = {some_key(s), some_key(s), some_key(s)};
    if (gone[0] == gone[1] || gone[1] == gone[2] || gone[0] == gone[2]) break;
    must(rv_table_mutate(s->table, NULL, 0, gone, 3, NULL, &unknown, &err), &err);
    break;
  }
  default: sample_some(s);
  }
}

static rv_table_config config_of(int kind)
{
  rv_table_config config = rv_table_config_default("replay", kind % 2 == 0 ? 1500 : 5000);
  if (kind == 1) config.sampler.kind = config.remover.kind = RV_SELECTOR_UNIFORM;
  if (kind == 2) config.sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 0.7};
  if (kind == 3) config.remover.kind = RV_SELECTOR_MIN_HEAP;
  if (kind == 4) config.max_times_sampled = 3;
  if (kind == 5) config.remover.kind = RV_SELECTOR_LIFO;
  return config;
}

static shaker shaker_of(rv_store *store, uint64_t seed)
{
  shaker s = {.store = store, .table = rv_store_table(store, 0), .next_key = seed << 32};
  rv_random_init(&s.random, seed);
  return s;
}

/* ---- one thread ---- */

/* What is written early of an item: what the model knows of it. */
static rv_code write_early(void *context, const rv_draw *draw, rv_buf **record, rv_error *err)
{
  (void)err;
  const model_item written = {.key = draw->key,
                              .priority = draw->priority,
                              .times_sampled = draw->times_sampled,
                              .inserted_at_ns = draw->inserted_at_ns,
                              .value = value_of(draw)};
  *record = rv_buf_copy(&written, sizeof written);
  ++*(size_t *)context;
  return RV_OK;
}

static void check_record(const rv_buf *record, const rv_draw *draw, const model_item *expected, size_t i)
{
  model_item written;
  assert_int_equal(record->size, sizeof written);
  memcpy(&written, record->data, sizeof written);
  assert_null(draw->trajectory); /* its rows are not kept */
  assert_null(draw->chunk);
  if (written.key != expected->key || written.priority != expected->priority ||
      written.times_sampled != expected->times_sampled || written.inserted_at_ns != expected->inserted_at_ns ||
      written.value != expected->value)
    fail_msg("item %zu was written early as another one: key %llu, expected %llu", i, (unsigned long long)written.key,
             (unsigned long long)expected->key);
}

/* How many items were written early. */
static size_t walk_while_shaking(int kind, uint64_t seed, bool reset, bool early)
{
  rv_table_config config = config_of(kind);
  rv_store *store = store_of(&config);
  shaker s = shaker_of(store, seed);
  model *m = malloc(sizeof *m);
  rv_error err;
  print_message("kind %d, seed %llu\n", kind, (unsigned long long)seed);
  for (int i = 0; i < 400; i++) shake(&s);
  look(s.table, m);
  rv_snapshot *snapshot;
  must(rv_snapshot_new(s.table, &snapshot, &err), &err);
  check_head(snapshot, m);
  size_t at = 0, count, steps = 0, num_early = 0;
  if (early) rv_snapshot_write_early(snapshot, write_early, &num_early);
  do {
    const rv_draw *items;
    int changes = (int)rv_random_below(&s.random, 12);
    for (int i = 0; i < changes; i++) shake(&s);
    if (reset && steps++ == 2) must(rv_table_reset(s.table, &err), &err);
    if (early && changes % 4 == 0) must(rv_snapshot_gather(snapshot, &err), &err);
    must(rv_snapshot_next(snapshot, &items, &count, &err), &err);
    rv_buf *const *records = rv_snapshot_records(snapshot);
    assert_true(at + count <= m->n);
    for (size_t i = 0; i < count; i++, at++)
      if (records[i] != NULL)
        check_record(records[i], &items[i], &m->items[at], at);
      else
        check_item(&items[i], &m->items[at], at);
  } while (count > 0);
  assert_int_equal(at, m->n);
  rv_snapshot_free(snapshot);
  rv_table_info_fini(&m->info);
  free(m);
  rv_store_unref(store);
  return num_early;
}

static void a_snapshot_is_the_table_as_it_was_whatever_changes_meanwhile(void **state)
{
  (void)state;
  for (int kind = 0; kind < 6; kind++)
    for (uint64_t seed = 1; seed <= 3; seed++) assert_int_equal(walk_while_shaking(kind, seed, false, false), 0);
}

static void a_reset_takes_nothing_from_it(void **state)
{
  (void)state;
  for (int kind = 0; kind < 6; kind++) walk_while_shaking(kind, 9, true, false);
  assert_true(walk_while_shaking(1, 9, true, true) > 0);
}

static void items_that_go_before_their_turn_are_written_at_once_and_come_in_their_turn(void **state)
{
  (void)state;
  for (int kind = 0; kind < 6; kind++) {
    size_t written = 0;
    for (uint64_t seed = 11; seed <= 13; seed++) written += walk_while_shaking(kind, seed, false, true);
    if (written == 0) fail_msg("kind %d: none went before its turn", kind);
  }
}

static rv_code fail_to_write(void *context, const rv_draw *draw, rv_buf **record, rv_error *err)
{
  (void)draw, (void)record;
  return --*(int *)context < 0 ? rv_fail(err, RV_UNKNOWN, "the disk is gone") : write_early(&(size_t){0}, draw, record, err);
}

static void what_cannot_be_written_early_is_an_error_and_nothing_stays(void **state)
{
  (void)state;
  rv_table_config config = config_of(1);
  rv_store *store = store_of(&config);
  shaker s = shaker_of(store, 21);
  for (int i = 0; i < 400; i++) shake(&s);
  for (int fine = 0; fine < 40; fine += 13) {
    rv_snapshot *snapshot;
    rv_error err;
    int left = fine;
    rv_code code = RV_OK;
    must(rv_snapshot_new(s.table, &snapshot, &err), &err);
    rv_snapshot_write_early(snapshot, fail_to_write, &left);
    while (code == RV_OK) {
      for (int i = 0; i < 20; i++) shake(&s);
      code = rv_snapshot_gather(snapshot, &err);
    }
    assert_int_equal(code, RV_UNKNOWN);
    rv_snapshot_free(snapshot);
  }
  rv_store_unref(store);
}

static void one_that_is_given_up_anywhere_leaves_nothing_behind(void **state)
{
  (void)state;
  rv_table_config config = config_of(0);
  rv_store *store = store_of(&config);
  shaker s = shaker_of(store, 4);
  for (int i = 0; i < 200; i++) shake(&s);
  for (int stop = 0; stop < 12; stop++) {
    rv_snapshot *snapshot, *second;
    rv_error err;
    must(rv_snapshot_new(s.table, &snapshot, &err), &err);
    assert_int_equal(rv_snapshot_new(s.table, &second, &err), RV_FAILED_PRECONDITION);
    for (int i = 0; i < stop; i++) {
      const rv_draw *items;
      size_t count;
      for (int k = 0; k < 5; k++) shake(&s);
      must(rv_snapshot_next(snapshot, &items, &count, &err), &err);
    }
    if (stop % 3 == 0) must(rv_table_reset(s.table, &err), &err);
    rv_snapshot_free(snapshot);
    for (int i = 0; i < 50; i++) shake(&s);
  }
  rv_store_unref(store);
}

static void an_empty_table_gives_no_items(void **state)
{
  (void)state;
  rv_table_config config = config_of(0);
  rv_store *store = store_of(&config);
  rv_snapshot *snapshot;
  rv_error err;
  const rv_draw *items;
  size_t count = 1;
  must(rv_snapshot_new(rv_store_table(store, 0), &snapshot, &err), &err);
  assert_int_equal(insert_value(store, rv_store_table(store, 0), 1, 1, 1), RV_OK);
  must(rv_snapshot_next(snapshot, &items, &count, &err), &err);
  assert_int_equal(count, 0);
  rv_snapshot_free(snapshot);
  rv_store_unref(store);
}

/* ---- many threads ---- */

typedef struct crowd {
  rv_store *store;
  pthread_rwlock_t gate; /* held for reading while an operation is carried out */
  atomic_bool stop;
  atomic_int number;
} crowd;

static void *shake_on(void *context)
{
  crowd *c = context;
  shaker s = shaker_of(c->store, 100 + (uint64_t)atomic_fetch_add(&c->number, 1));
  while (!atomic_load(&c->stop)) {
    pthread_rwlock_rdlock(&c->gate);
    shake(&s);
    pthread_rwlock_unlock(&c->gate);
  }
  return NULL;
}

static void a_snapshot_under_four_threads_is_the_table_of_the_moment_it_began(void **state)
{
  (void)state;
  for (int kind = 0; kind < 5; kind++) {
    rv_table_config config = config_of(kind);
    crowd c = {.store = store_of(&config)};
    pthread_rwlockattr_t fair; /* or the one that wants to write never gets in */
    pthread_rwlockattr_init(&fair);
    pthread_rwlockattr_setkind_np(&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&c.gate, &fair);
    pthread_rwlockattr_destroy(&fair);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, shake_on, &c);
    rv_table *table = rv_store_table(c.store, 0);
    model *m = malloc(sizeof *m);
    for (int round = 0; round < 6; round++) {
      rv_snapshot *snapshot;
      rv_error err;
      size_t at = 0, count;
      pthread_rwlock_wrlock(&c.gate);
      look(table, m);
      must(rv_snapshot_new(table, &snapshot, &err), &err);
      pthread_rwlock_unlock(&c.gate);
      check_head(snapshot, m);
      do {
        const rv_draw *items;
        must(rv_snapshot_next(snapshot, &items, &count, &err), &err);
        assert_true(at + count <= m->n);
        for (size_t i = 0; i < count; i++, at++) check_item(&items[i], &m->items[at], at);
      } while (count > 0);
      assert_int_equal(at, m->n);
      rv_snapshot_free(snapshot);
      rv_table_info_fini(&m->info);
    }
    atomic_store(&c.stop, true);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    pthread_rwlock_destroy(&c.gate);
    free(m);
    rv_store_unref(c.store);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_snapshot_is_the_table_as_it_was_whatever_changes_meanwhile),
      cmocka_unit_test(a_reset_takes_nothing_from_it),
      cmocka_unit_test(items_that_go_before_their_turn_are_written_at_once_and_come_in_their_turn),
      cmocka_unit_test(what_cannot_be_written_early_is_an_error_and_nothing_stays),
      cmocka_unit_test(one_that_is_given_up_anywhere_leaves_nothing_behind),
      cmocka_unit_test(an_empty_table_gives_no_items),
      cmocka_unit_test(a_snapshot_under_four_threads_is_the_table_of_the_moment_it_began),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
