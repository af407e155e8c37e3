/* What of a store is counted, and that it is what is there. */
#include "store/memory_testing.h"

#include "base/part_testing.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

/* ---- what is counted, beside a plain model ---- */

enum { TABLES = 3, CHUNKS = 24, HELD = 16, MOST_ALIVE = 65536, STEPS = 3000 / ONE_PART_OF };

typedef struct model {
  rv_store *store;
  bool limited; /* then the account knows at once, of tables that were entered */
  rv_random random;
  rv_chunk *chunks[CHUNKS]; /* a stream's */
  rv_draw draws[HELD];
  size_t num_draws;
  rv_chunk **alive;
  size_t num_alive;
  uint64_t next_key;
} model;

static uint32_t below(model *m, uint32_t n)
{
  return (uint32_t)(rv_random_next(&m->random) % n);
}

static void note(model *m, rv_chunk *chunk)
{
  if (chunk == NULL || rv_chunk_counted(chunk) == 0) return;
  for (size_t i = 0; i < m->num_alive; i++)
    if (m->alive[i] == chunk) return;
  assert_true(m->num_alive < MOST_ALIVE);
  m->alive[m->num_alive++] = chunk;
}

/* Everything that anybody refers to, once. */
static void count_and_compare(model *m)
{
  m->num_alive = 0;
  size_t books = 0;
  for (size_t t = 0; t < TABLES; t++) {
    rv_table *table = rv_store_table(m->store, t);
    size_t counted = table->counted_books;
    rv_turn turn;
    rv_turn_begin(&turn, table);
    rv_table_count_books(table);
    rv_turn_end_look(&turn);
    if (m->limited && counted > 0) assert_int_equal(counted, table->counted_books);
    size_t held = 0, loose = 0;
    for (uint32_t i = 0; i < table->books.num_holds; i++) {
      uintptr_t place = (uintptr_t)*RV_SEGARRAY_AT(&table->books.holds, rv_hold *, i);
      if ((place & 1U) != 0) continue;
      rv_chunk *chunk = ((rv_hold *)place)->chunk;
      held += rv_chunk_memory(chunk);
      note(m, chunk);
    }
    for (uint32_t slot = 0; slot < table->books.slab.used; slot++) {
      const rv_item *item = rv_slab_at(&table->books.slab, slot);
      if (item->template_number != RV_LOOSE) continue;
      const rv_loose *of = item->data;
      loose += sizeof *of + of->num_links * sizeof(rv_loose_link) + rv_trajectory_box_of_const(of->trajectory)->memory;
    }
    assert_int_equal(table->books.chunk_memory, held);
    assert_int_equal(table->books.loose_memory, loose);
    for (size_t i = 0; i < RV_MAX_SPARES; i++) note(m, table->spares[i]);
    books += table->counted_books;
  }
  for (size_t i = 0; i < CHUNKS; i++) note(m, m->chunks[i]);
  for (size_t i = 0; i < m->num_draws; i++) {
    note(m, m->draws[i].chunk);
    for (uint32_t k = 0; k < m->draws[i].trajectory->num_chunks; k++) note(m, m->draws[i].trajectory->chunks[k]);
  }
  size_t bytes = 0;
  for (size_t i = 0; i < m->num_alive; i++) bytes += rv_chunk_memory(m->alive[i]);
  assert_int_equal(used(m->store), bytes + books);
}

static void bring_chunk(model *m)
{
  size_t i = below(m, CHUNKS);
  rv_chunk_unref(m->chunks[i]);
  uint64_t key = ++m->next_key;
  m->chunks[i] = below(m, 2) == 0 ? large_chunk(key, 1 + below(m, 200))
                                  : encoded_numbers((int64_t)key, 1 + below(m, 500), key, below(m, 2) == 0);
  rv_chunk_count(m->chunks[i], rv_store_memory(m->store));
}

static void insert_some(model *m, rv_table *table)
{
  rv_chunk *chunk = m->chunks[below(m, CHUNKS)];
  if (chunk == NULL) return;
  int32_t rows = (int32_t)rv_chunk_num_rows(chunk, 0), first = (int32_t)below(m, (uint32_t)rows);
  offer o;
  assert_int_equal(offer_rows(m->store, table, &o, chunk, first, 1 + (int32_t)below(m, (uint32_t)(rows - first))),
                   RV_SUBMIT_DONE);
  assert_int_equal(o.insert.waiter.code, RV_OK);
  end_offer(&o);
}

/* Slices of two chunks. */
static void insert_loose(model *m, rv_table *table)
{
  rv_chunk *a = m->chunks[below(m, CHUNKS)], *b = m->chunks[below(m, CHUNKS)];
  if (a == NULL || b == NULL || !rv_chunk_same_columns(a, b)) return;
  rv_error err;
  rv_slice slices[2] = {{.chunk = a, .length = 1}, {.chunk = b, .length = 1}};
  uint32_t num_slices = 2;
  bool squeeze = false;
  rv_trajectory_desc desc = {.slices = slices, .num_slices = &num_slices, .squeeze = &squeeze, .num_columns = 1};
  rv_insert insert = {.choose_key = true, .priority = 1};
  must(rv_trajectory_new(rv_store_layouts(m->store), &desc, &insert.trajectory, &err), &err);
  assert_int_equal(rv_table_insert(table, &insert), RV_SUBMIT_DONE);
  assert_int_equal(insert.waiter.code, RV_OK);
  rv_trajectory_unref(insert.trajectory);
}

static void insert_rows(model *m, rv_table *table)
{
  static uint8_t bytes[300 * 512];
  const int64_t shape[] = {1 + below(m, 300), below(m, 2) == 0 ? 8 : 512};
  rv_tensor column = {.dtype = RV_UINT8, .rank = 2, .shape = shape, .data = bytes};
  rv_rows rows = {.columns = &column, .num_columns = 1, .n = (size_t)shape[0]};
  assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_DONE);
  assert_int_equal(rows.waiter.code, RV_OK);
}

static void insert_strings(model *m, rv_table *table)
{
  static const char text[] = "a text that is as long as it is, and no longer than that";
  rv_bytes strings[40];
  const int64_t shape = 1 + below(m, 40);
  for (int64_t i = 0; i < shape; i++) strings[i] = (rv_bytes){(const uint8_t *)text, below(m, sizeof text)};
  rv_tensor column = {.dtype = RV_STRING, .rank = 1, .shape = &shape, .data = strings};
  rv_rows rows = {.columns = &column, .num_columns = 1, .n = (size_t)shape};
  assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_DONE);
  assert_int_equal(rows.waiter.code, RV_OK);
}

static void let_go(model *m)
{
  while (m->num_draws > 0) rv_draw_release(&m->draws[--m->num_draws]);
}

static void sample_some(model *m, rv_table *table)
{
  let_go(m);
  rv_sampling ask = {.want = 1 + below(m, HELD), .draws = m->draws, .partial = true};
  ask.waiter.deadline_ns = INT64_MAX;
  if (table->books.slab.count == 0 || rv_table_sample(table, &ask) != RV_SUBMIT_DONE) return;
  m->num_draws = ask.count;
}

static void delete_some(model *m, rv_table *table)
{
  for (size_t i = 0; i < 20 && table->books.slab.count > 0; i++) {
    uint32_t slot = below(m, table->books.slab.used);
    if (rv_slab_has(&table->books.slab, slot))
      assert_int_equal(delete_one(table, rv_slab_at(&table->books.slab, slot)->key), RV_OK);
  }
}

static void the_account_is_what_is_there(void **state)
{
  (void)state;
  const char *given = getenv("RV_TEST_SEED");
  for (uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 1, last = given != NULL ? seed : 4; seed <= last; seed++) {
    print_message("seed %llu\n", (unsigned long long)seed);
    rv_table_config configs[TABLES] = {table_named("fifo", RV_SELECTOR_FIFO, 2000, 0),
                                       table_named("uniform", RV_SELECTOR_UNIFORM, 300, 0),
                                       table_named("bytes", RV_SELECTOR_UNIFORM, 5000, 256 * KIB)};
    configs[1].max_times_sampled = 3;
    bool limited = seed % 2 == 0;
    model m = {.store = limited_store(configs, TABLES, limited ? SIZE_MAX - 1 : 0),
               .limited = limited,
               .alive = malloc(MOST_ALIVE * sizeof(rv_chunk *))};
    rv_random_init(&m.random, seed);
    for (int i = 0; i < STEPS; i++) {
      rv_table *table = rv_store_table(m.store, below(&m, TABLES));
      switch (below(&m, 12)) {
      case 0: bring_chunk(&m); break;
      case 1: insert_rows(&m, table); break;
      case 2: insert_strings(&m, table); break;
      case 3: insert_loose(&m, table); break;
      case 4: sample_some(&m, table); break;
      case 5: delete_some(&m, table); break;
      case 6: let_go(&m); break;
      case 7:
        if (below(&m, 40) == 0) assert_int_equal(rv_table_reset(table, NULL), RV_OK);
        break;
      default: insert_some(&m, table); break;
      }
      if (i % 10 == 0) count_and_compare(&m);
    }
    let_go(&m);
    for (size_t i = 0; i < CHUNKS; i++) rv_chunk_unref(m.chunks[i]);
    free(m.alive);
    rv_store_unref(
        m.store); /* and the account goes with the last of its bytes: what is counted wrongly leaks, or is freed twice */
  }
}

static void a_chunk_counts_once_whoever_refers_to_it(void **state)
{
  (void)state;
  rv_table_config configs[2] = {table_named("a", RV_SELECTOR_FIFO, 100, 0), table_named("b", RV_SELECTOR_FIFO, 100, 0)};
  rv_store *store = limited_store(configs, 2, 0);
  rv_chunk *chunk = large_chunk(1, 100 * KIB / ROW);
  offer o;
  size_t before = used(store), bytes = rv_chunk_memory(chunk);
  for (size_t i = 0; i < 20; i++, end_offer(&o))
    assert_int_equal(offer_rows(store, rv_store_table(store, i % 2), &o, chunk, (int32_t)i, 2), RV_SUBMIT_DONE);
  size_t with = used(store) - before;
  assert_true(with >= bytes && with < bytes + 600 * KIB); /* the books of both */
  rv_error err;
  must(rv_table_reset(rv_store_table(store, 0), &err), &err);
  assert_true(used(store) >= before + bytes);
  must(rv_table_reset(rv_store_table(store, 1), &err), &err);
  rv_store_unref(store);
  assert_int_equal(rv_chunk_memory(chunk), bytes); /* it outlives the store and its account */
  rv_chunk_unref(chunk);
}

#ifdef __GLIBC__
static void an_item_of_many_slices_counts_with_all_the_memory_that_was_taken_for_it(void **state)
{
  (void)state;
  enum { SLICES = 1000 };
  rv_table_config config = table_named("a", RV_SELECTOR_FIFO, 100, 0);
  rv_store *store = limited_store(&config, 1, 0);
  rv_table *table = rv_store_table(store, 0);
  rv_chunk *chunks[2] = {large_chunk(1, SLICES), large_chunk(2, SLICES)};
  rv_slice slices[SLICES];
  for (int32_t i = 0; i < SLICES; i++) slices[i] = (rv_slice){.chunk = chunks[i % 2], .offset = i, .length = 1};
  uint32_t num_slices = SLICES;
  bool squeeze = false;
  rv_error err;
  rv_trajectory_desc desc = {.slices = slices, .num_slices = &num_slices, .squeeze = &squeeze, .num_columns = 1};
  rv_insert insert = {.choose_key = true, .priority = 1};
  must(rv_trajectory_new(rv_store_layouts(store), &desc, &insert.trajectory, &err), &err);
  assert_int_equal(rv_table_insert(table, &insert), RV_SUBMIT_DONE);
  assert_int_equal(insert.waiter.code, RV_OK);
  rv_loose *loose = rv_slab_at(&table->books.slab, 0)->data;
  size_t taken = malloc_usable_size(insert.trajectory) + malloc_usable_size(loose);
  assert_in_range(taken - table->books.loose_memory, 0, 64); /* what malloc rounds up */
  rv_trajectory_unref(insert.trajectory);
  for (size_t i = 0; i < 2; i++) rv_chunk_unref(chunks[i]);
  rv_store_unref(store);
}
#endif

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_account_is_what_is_there),
      cmocka_unit_test(a_chunk_counts_once_whoever_refers_to_it),
#ifdef __GLIBC__
      cmocka_unit_test(an_item_of_many_slices_counts_with_all_the_memory_that_was_taken_for_it),
#endif
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
