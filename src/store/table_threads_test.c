/* Many threads on one table. */
#include "store/audit_testing.h"
#include "store/testing.h"

#include <pthread.h>
#include <sched.h>

#include "base/lock.h"

enum { SIDES = 4, EACH = 1500 };

typedef struct blocker {
  rv_mutex mutex;
  rv_cond cond;
  int completed;
} blocker;

static void wake(rv_waiter *waiter)
{
  blocker *b = waiter->context;
  rv_mutex_lock(&b->mutex);
  b->completed++;
  rv_cond_signal(&b->cond);
  rv_mutex_unlock(&b->mutex);
}

typedef struct crowd {
  rv_store *store;
  rv_table *table;
  atomic_int inserted[SIDES * EACH]; /* times each value was confirmed */
  atomic_int sampled[SIDES * EACH];
  atomic_int left; /* values still to be sampled */
  atomic_int number;
} crowd;

/* Waits for the completion, or gives up at once now and then. True: the operation is over (complete or not, see `code`); false:
 * taken back. */
static bool settle(rv_waiter *waiter, blocker *b, rv_submitted submitted, bool impatient)
{
  if (submitted == RV_SUBMIT_DONE) {
    assert_int_equal(b->completed, 0);
    return true;
  }
  if (impatient && rv_waiter_cancel(waiter)) {
    rv_mutex_lock(&b->mutex);
    assert_int_equal(b->completed, 0);
    rv_mutex_unlock(&b->mutex);
    return false;
  }
  rv_mutex_lock(&b->mutex);
  while (b->completed == 0) rv_cond_wait(&b->cond, &b->mutex);
  assert_int_equal(b->completed, 1);
  rv_mutex_unlock(&b->mutex);
  return true;
}

static void *produce(void *context)
{
  crowd *c = context;
  int side = atomic_fetch_add(&c->number, 1);
  rv_random random;
  rv_random_init(&random, (uint64_t)side);
  for (int i = 0; i < EACH; i++) {
    int64_t value = side * EACH + i;
    rv_trajectory *trajectory = single(c->store, value, 0);
    for (bool over = false; !over;) {
      blocker b = {.completed = 0};
      rv_mutex_init(&b.mutex, RV_RANK_WAIT, "test");
      rv_cond_init(&b.cond);
      rv_insert insert = {.key = (uint64_t)value, .priority = 1, .trajectory = trajectory};
      insert.waiter = (rv_waiter){.complete = wake, .context = &b, .deadline_ns = INT64_MAX};
      over = settle(&insert.waiter, &b, rv_table_insert(c->table, &insert), rv_random_below(&random, 3) == 0);
      if (over) assert_int_equal(insert.waiter.code, RV_OK);
      rv_cond_fini(&b.cond);
      rv_mutex_fini(&b.mutex);
      if (!over) sched_yield();
    }
    atomic_fetch_add(&c->inserted[value], 1);
    rv_trajectory_unref(trajectory);
  }
  return NULL;
}

static void *consume(void *context)
{
  crowd *c = context;
  rv_random random;
  rv_random_init(&random, 77);
  while (atomic_load(&c->left) > 0) {
    blocker b = {.completed = 0};
    rv_mutex_init(&b.mutex, RV_RANK_WAIT, "test");
    rv_cond_init(&b.cond);
    rv_draw draws[4];
    rv_sampling sampling = {.want = 1 + rv_random_below(&random, 4), .partial = true, .draws = draws};
    sampling.waiter = (rv_waiter){.complete = wake, .context = &b, .deadline_ns = INT64_MAX};
    /* the last values may go to others: never wait without end */
    settle(&sampling.waiter, &b, rv_table_sample(c->table, &sampling), true);
    for (size_t i = 0; i < sampling.count; i++) {
      atomic_fetch_add(&c->sampled[value_of(&draws[i])], 1);
      atomic_fetch_sub(&c->left, 1);
    }
    rv_draws_release(draws, sampling.count);
    rv_cond_fini(&b.cond);
    rv_mutex_fini(&b.mutex);
    if (sampling.count == 0) sched_yield();
  }
  return NULL;
}

static void eight_threads_insert_and_sample_every_value_exactly_once(void **state)
{
  (void)state;
  crowd *c = calloc(1, sizeof *c);
  rv_table_config config = rv_table_config_default("queue", 5);
  config.sampler.kind = RV_SELECTOR_FIFO;
  config.rate_limiter = rv_rate_limiter_queue(5);
  config.max_times_sampled = 1;
  c->store = store_of(&config);
  c->table = rv_store_table(c->store, 0);
  atomic_init(&c->left, SIDES * EACH);
  pthread_t threads[2 * SIDES];
  for (int i = 0; i < SIDES; i++) {
    assert_int_equal(pthread_create(&threads[i], NULL, produce, c), 0);
    assert_int_equal(pthread_create(&threads[SIDES + i], NULL, consume, c), 0);
  }
  for (int i = 0; i < 2 * SIDES; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < SIDES * EACH; i++) {
    assert_int_equal(atomic_load(&c->inserted[i]), 1);
    assert_int_equal(atomic_load(&c->sampled[i]), 1);
  }
  rv_store_unref(c->store);
  free(c);
}

static void *add_rows_until_closed(void *context)
{
  crowd *c = context;
  int64_t values[200] = {0};
  rv_rows rows;
  do {
    blocker b = {.completed = 0};
    rv_mutex_init(&b.mutex, RV_RANK_WAIT, "test");
    rv_cond_init(&b.cond);
    int64_t shape = 200;
    rv_tensor column = {.dtype = RV_INT64, .rank = 1, .shape = &shape, .data = values};
    rows = (rv_rows){.columns = &column, .num_columns = 1, .n = 200};
    rows.waiter = (rv_waiter){.complete = wake, .context = &b, .deadline_ns = INT64_MAX};
    settle(&rows.waiter, &b, rv_table_insert_rows(c->table, &rows), false);
    rv_cond_fini(&b.cond);
    rv_mutex_fini(&b.mutex);
  } while (rows.waiter.code == RV_OK);
  assert_int_equal(rows.waiter.code, RV_CANCELLED);
  return NULL;
}

static void *sample_until_closed(void *context)
{
  crowd *c = context;
  rv_draw draws[32];
  rv_sampling sampling;
  do {
    blocker b = {.completed = 0};
    rv_mutex_init(&b.mutex, RV_RANK_WAIT, "test");
    rv_cond_init(&b.cond);
    sampling = (rv_sampling){.want = 32, .draws = draws};
    sampling.waiter = (rv_waiter){.complete = wake, .context = &b, .deadline_ns = INT64_MAX};
    settle(&sampling.waiter, &b, rv_table_sample(c->table, &sampling), false);
    for (size_t i = 0; i < sampling.count; i++) value_of(&draws[i]);
    rv_draws_release(draws, sampling.count);
    rv_cond_fini(&b.cond);
    rv_mutex_fini(&b.mutex);
    atomic_fetch_add(&c->number, 1);
  } while (sampling.waiter.code == RV_OK);
  assert_int_equal(sampling.waiter.code, RV_CANCELLED);
  return NULL;
}

static void *disturb(void *context)
{
  crowd *c = context;
  rv_error err;
  rv_item_info page[50];
  uint64_t cursor = 0, deletes[50];
  size_t count, num_unknown;
  while (atomic_load(&c->number) < 2000) {
    must(rv_table_items(c->table, &cursor, page, 50, &count, &err), &err);
    for (size_t i = 0; i < count; i++) deletes[i] = page[i].key;
    must(rv_table_mutate(c->table, NULL, 0, deletes, count / 2, NULL, &num_unknown, &err), &err);
    rv_table_info info = info_of(c->table);
    assert_true(info.current_size <= 1000);
    rv_table_info_fini(&info);
    if (atomic_load(&c->number) % 50 == 0) must(rv_table_reset(c->table, &err), &err);
  }
  rv_store_close(c->store);
  return NULL;
}

static void rows_samples_deletes_listings_and_resets_go_on_side_by_side(void **state)
{
  (void)state;
  crowd *c = calloc(1, sizeof *c);
  rv_table_config config = rv_table_config_default("busy", 1000);
  config.remover.kind = RV_SELECTOR_UNIFORM;
  c->store = store_of(&config);
  c->table = rv_store_table(c->store, 0);
  pthread_t threads[8];
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, add_rows_until_closed, c), 0);
  for (int i = 3; i < 7; i++) assert_int_equal(pthread_create(&threads[i], NULL, sample_until_closed, c), 0);
  assert_int_equal(pthread_create(&threads[7], NULL, disturb, c), 0);
  for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  rv_store_unref(c->store);
  free(c);
}

/* ---- items over many chunks, which are linked and unlinked in turns ---- */

enum { LONG_CHUNKS = 150, LONG_LEAST = 20, LONG_ROUNDS = 60 };

typedef struct long_crowd {
  rv_store *store;
  rv_table *table;
  rv_chunk *chunks[LONG_CHUNKS]; /* chunk i has the number i */
  atomic_int begun, working;
} long_crowd;

/* Chunks first, first + 1, ... in a ring. */
static rv_trajectory *over_chunks(long_crowd *c, size_t first, size_t n)
{
  rv_error err;
  rv_trajectory *made;
  rv_slice slices[LONG_CHUNKS];
  for (size_t i = 0; i < n; i++) slices[i] = (rv_slice){.chunk = c->chunks[(first + i) % LONG_CHUNKS], .length = 1};
  uint32_t num_slices = (uint32_t)n;
  bool squeeze = false;
  rv_trajectory_desc desc = {.slices = slices, .num_slices = &num_slices, .squeeze = &squeeze, .num_columns = 1};
  must(rv_trajectory_new(rv_store_layouts(c->store), &desc, &made, &err), &err);
  return made;
}

static void *insert_long_items(void *context)
{
  long_crowd *c = context;
  rv_random random;
  rv_random_init(&random, (uint64_t)atomic_fetch_add(&c->begun, 1) + 1);
  for (int round = 0; round < LONG_ROUNDS; round++) {
    rv_error err;
    size_t n = LONG_LEAST + rv_random_below(&random, LONG_CHUNKS - LONG_LEAST), unknown;
    rv_insert insert = {.choose_key = true, .priority = 1};
    insert.trajectory = over_chunks(c, rv_random_below(&random, LONG_CHUNKS), n);
    insert.waiter.deadline_ns = INT64_MAX;
    assert_int_equal(rv_table_insert(c->table, &insert), RV_SUBMIT_DONE);
    must(insert.waiter.code, &insert.waiter.error);
    rv_trajectory_unref(insert.trajectory);
    if (round % 4 == 0) must(rv_table_mutate(c->table, NULL, 0, &insert.key, 1, NULL, &unknown, &err), &err);
    if (round % 20 == 19) must(rv_table_reset(c->table, &err), &err);
  }
  atomic_fetch_sub(&c->working, 1);
  return NULL;
}

static void *read_long_items(void *context)
{
  long_crowd *c = context;
  while (atomic_load(&c->working) > 0) {
    rv_error err;
    rv_item_info page[50];
    uint64_t cursor = 0;
    size_t count;
    must(rv_table_items(c->table, &cursor, page, 50, &count, &err), &err);
    for (size_t i = 0; i < count; i++) {
      rv_draw draw;
      int64_t numbers[LONG_CHUNKS];
      if (rv_table_get(c->table, page[i].key, &draw, &err) != RV_OK) continue; /* it has gone since */
      int64_t length = draw.trajectory->columns[0].length;
      must(rv_draw_copy_column(&draw, 0, numbers, &err), &err);
      for (int64_t k = 1; k < length; k++) assert_int_equal(numbers[k], (numbers[k - 1] + 1) % LONG_CHUNKS);
      rv_draw_release(&draw);
    }
    sched_yield();
  }
  return NULL;
}

static void items_of_many_chunks_come_and_go_side_by_side(void **state)
{
  (void)state;
  long_crowd c = {.working = 3};
  rv_table_config config = rv_table_config_default("long", 20);
  config.remover.kind = RV_SELECTOR_UNIFORM;
  c.store = store_of(&config);
  c.table = rv_store_table(c.store, 0);
  for (int64_t i = 0; i < LONG_CHUNKS; i++) c.chunks[i] = encoded_numbers(i, 1, (uint64_t)i % 7, false);
  pthread_t threads[4];
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, insert_long_items, &c), 0);
  assert_int_equal(pthread_create(&threads[3], NULL, read_long_items, &c), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  audit_table(c.table);
  for (size_t i = 0; i < LONG_CHUNKS; i++) rv_chunk_unref(c.chunks[i]);
  rv_store_unref(c.store);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(eight_threads_insert_and_sample_every_value_exactly_once),
      cmocka_unit_test(items_of_many_chunks_come_and_go_side_by_side),
      cmocka_unit_test(rows_samples_deletes_listings_and_resets_go_on_side_by_side),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
