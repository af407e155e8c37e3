/* Chunks that several tables hold, each under its own lock. */
#include "store/testing.h"

#include <pthread.h>

#include "store/chunk_parts.h"
#include "store/table_parts.h"

enum { TABLES = 3, CHUNKS = 64, ROUNDS = 3000, ITEMS = 8 };

typedef struct user {
  rv_store *store;
  rv_table *table;
  rv_chunk **chunks;
  uint64_t seed;
} user;

static void insert_over(rv_store *store, rv_table *table, rv_chunk *chunk, uint64_t key)
{
  rv_insert insert = {.key = key, .priority = 1, .trajectory = trajectory_of(store, chunk, 0, 1)};
  insert.waiter.deadline_ns = INT64_MAX;
  rv_submitted submitted = rv_table_insert(table, &insert);
  rv_trajectory_unref(insert.trajectory);
  assert_int_equal(submitted, RV_SUBMIT_DONE);
  assert_int_equal(insert.waiter.code, RV_OK);
}

/* The table has room for few items, so that chunks are held and let go again and again. */
static void *use(void *context)
{
  user *self = context;
  rv_random random;
  rv_random_init(&random, self->seed);
  for (uint64_t i = 0; i < ROUNDS; i++)
    insert_over(self->store, self->table, self->chunks[rv_random_below(&random, CHUNKS)], 1 + i);
  return NULL;
}

static void delete_from(rv_table *table, uint64_t key)
{
  rv_error err;
  size_t unknown = 1;
  must(rv_table_mutate(table, NULL, 0, &key, 1, NULL, &unknown, &err), &err);
  assert_int_equal(unknown, 0);
}

static rv_store *three_tables(void)
{
  rv_error err;
  rv_store *store = NULL;
  rv_table_config tables[TABLES];
  static const char *const names[TABLES] = {"a", "b", "c"};
  for (size_t i = 0; i < TABLES; i++) {
    tables[i] = rv_table_config_default(names[i], ITEMS);
    tables[i].remover.kind = RV_SELECTOR_FIFO;
  }
  rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = TABLES};
  must(rv_store_new(&config, &store, &err), &err);
  return store;
}

static size_t count_holds(rv_store *store, const rv_chunk *chunk)
{
  size_t holds = 0;
  for (size_t i = 0; i < TABLES; i++) {
    const rv_hold *hold = rv_books_find_hold(&rv_store_table(store, i)->books, chunk);
    assert_true(hold == NULL || hold->chunk == chunk);
    holds += hold != NULL;
  }
  return holds;
}

static void a_chunk_knows_how_many_tables_hold_it_whichever_lets_it_go_first(void **state)
{
  (void)state;
  for (size_t first = 0; first < TABLES; first++) {
    rv_store *store = three_tables();
    rv_chunk *chunk = chunk_of(7, 1);
    for (size_t i = 0; i < TABLES; i++) {
      insert_over(store, rv_store_table(store, i), chunk, 1);
      assert_int_equal(rv_chunk_holds(chunk), i + 1);
    }
    for (size_t i = 0; i < TABLES; i++) {
      delete_from(rv_store_table(store, (first + i) % TABLES), 1);
      assert_int_equal(rv_chunk_holds(chunk), TABLES - 1 - i);
      assert_int_equal(count_holds(store, chunk), TABLES - 1 - i);
      insert_over(store, rv_store_table(store, first), chunk, 2); /* there again, and gone again */
      delete_from(rv_store_table(store, first), 2);
      assert_int_equal(count_holds(store, chunk), TABLES - 1 - i);
    }
    rv_chunk_unref(chunk);
    rv_store_unref(store);
  }
}

static void tables_that_share_chunks_each_find_their_own(void **state)
{
  (void)state;
  rv_store *store = three_tables();
  rv_chunk *chunks[CHUNKS];
  for (int64_t i = 0; i < CHUNKS; i++) chunks[i] = chunk_of(i, 1);
  pthread_t threads[TABLES];
  user users[TABLES];
  for (size_t i = 0; i < TABLES; i++) {
    users[i] = (user){.store = store, .table = rv_store_table(store, i), .chunks = chunks, .seed = i};
    assert_int_equal(pthread_create(&threads[i], NULL, use, &users[i]), 0);
  }
  for (size_t i = 0; i < TABLES; i++) pthread_join(threads[i], NULL);
  for (size_t i = 0; i < CHUNKS; i++) assert_int_equal(rv_chunk_holds(chunks[i]), count_holds(store, chunks[i]));
  rv_store_unref(store);
  for (size_t i = 0; i < CHUNKS; i++) {
    assert_int_equal(rv_chunk_holds(chunks[i]), 0);
    assert_int_equal(rv_chunk_refs(chunks[i]), 1);
    rv_chunk_unref(chunks[i]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_chunk_knows_how_many_tables_hold_it_whichever_lets_it_go_first),
      cmocka_unit_test(tables_that_share_chunks_each_find_their_own),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
