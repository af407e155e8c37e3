/* Items over many chunks, which are linked and unlinked a few chunks in one hold of the table's lock. The linker puts functions of the test's before
 * those that give the lock back and that make and end holds of chunks (CMakeLists.txt): they count, and let others in between two holds. */
#include "store/audit_testing.h"
#include "store/chunk_parts.h"
#include "store/cold_testing.h"
#include "store/table_parts.h"
#include "store/testing.h"

enum { CHUNKS = 96, ROWS = 8, MOST = 4 * RV_LINKS_AT_ONCE };

static struct {
  const rv_table *table;
  size_t work, longest; /* links in the present hold; the most in one */
  size_t holds;
  void (*between)(void); /* is called when so many holds more have ended */
  size_t after;
} watched;

void __real_rv_mutex_unlock(rv_mutex *mutex);
void __wrap_rv_mutex_unlock(rv_mutex *mutex);
void __wrap_rv_mutex_unlock(rv_mutex *mutex)
{
  bool ours = watched.table != NULL && mutex == &watched.table->mutex;
  __real_rv_mutex_unlock(mutex);
  if (!ours) return;
  watched.holds++;
  if (watched.work > watched.longest) watched.longest = watched.work;
  watched.work = 0;
  if (watched.between == NULL || watched.after-- > 0) return;
  void (*between)(void) = watched.between;
  watched.between = NULL;
  between();
}

rv_code __real_rv_books_hold(rv_books *books, rv_chunk *chunk, rv_hold **out, rv_error *err);
rv_code __wrap_rv_books_hold(rv_books *books, rv_chunk *chunk, rv_hold **out, rv_error *err);
rv_code __wrap_rv_books_hold(rv_books *books, rv_chunk *chunk, rv_hold **out, rv_error *err)
{
  watched.work++;
  return __real_rv_books_hold(books, chunk, out, err);
}

void __real_rv_books_drop_if_unused(rv_books *books, rv_hold *hold, rv_garbage *garbage);
void __wrap_rv_books_drop_if_unused(rv_books *books, rv_hold *hold, rv_garbage *garbage);
void __wrap_rv_books_drop_if_unused(rv_books *books, rv_hold *hold, rv_garbage *garbage)
{
  watched.work++;
  __real_rv_books_drop_if_unused(books, hold, garbage);
}

static struct {
  size_t moved, merged; /* items of whose chunks one moved to another that they had not, or had */
} compacted;

void __real_rv_books_move_loose(rv_books *books, rv_loose *loose, uint32_t link, rv_hold *to, rv_reach reach,
                                rv_trajectory **moved, rv_garbage *garbage);
void __wrap_rv_books_move_loose(rv_books *books, rv_loose *loose, uint32_t link, rv_hold *to, rv_reach reach,
                                rv_trajectory **moved, rv_garbage *garbage);
void __wrap_rv_books_move_loose(rv_books *books, rv_loose *loose, uint32_t link, rv_hold *to, rv_reach reach,
                                rv_trajectory **moved, rv_garbage *garbage)
{
  ++*((*moved)->num_chunks < loose->num_links ? &compacted.merged : &compacted.moved);
  __real_rv_books_move_loose(books, loose, link, to, reach, moved, garbage);
}

bool __real_rv_template_is_of(const rv_trajectory *known, const rv_trajectory *trajectory, int64_t base);
bool __wrap_rv_template_is_of(const rv_trajectory *known, const rv_trajectory *trajectory, int64_t base);
bool __wrap_rv_template_is_of(const rv_trajectory *known, const rv_trajectory *trajectory, int64_t base)
{
  assert_true(trajectory->num_slices <= RV_TEMPLATE_SLICES);
  return __real_rv_template_is_of(known, trajectory, base);
}

uint64_t __real_rv_template_hash(const rv_trajectory *trajectory, int64_t base);
uint64_t __wrap_rv_template_hash(const rv_trajectory *trajectory, int64_t base);
uint64_t __wrap_rv_template_hash(const rv_trajectory *trajectory, int64_t base)
{
  assert_true(trajectory->num_slices <= RV_TEMPLATE_SLICES);
  return __real_rv_template_hash(trajectory, base);
}

typedef struct world {
  rv_store *store;
  rv_table *table;
  rv_chunk *chunks[CHUNKS];
  rv_random random;
} world;

static world w; /* a test has one at a time */

static void watch(void)
{
  watched.table = w.table;
  watched.work = watched.longest = watched.holds = 0;
}

static void renew(size_t i)
{
  static int64_t next;
  rv_chunk_unref(w.chunks[i]);
  w.chunks[i] = encoded_numbers(next, ROWS * (i % 3 == 0 ? 32 : 1), i % 5, false);
  next += 1000;
}

static void begin(const rv_table_config *config)
{
  memset(&w, 0, sizeof w);
  w.store = store_of(config);
  w.table = rv_store_table(w.store, 0);
  rv_random_init(&w.random, 1);
  for (size_t i = 0; i < CHUNKS; i++) renew(i);
  watch();
}

static void end(void)
{
  watched.table = NULL;
  watched.between = NULL;
  for (size_t i = 0; i < CHUNKS; i++) rv_chunk_unref(w.chunks[i]);
  rv_store_unref(w.store);
}

/* A row of each of n chunks, from number `first` on; the numbers in them. */
static rv_trajectory *over(size_t first, size_t n, int64_t *numbers)
{
  rv_error err;
  rv_trajectory *made;
  rv_slice slices[CHUNKS];
  for (size_t i = 0; i < n; i++) {
    rv_chunk *chunk = w.chunks[(first + i) % CHUNKS];
    slices[i] = (rv_slice){.chunk = chunk, .offset = (int32_t)(i % ROWS), .length = 1};
    numbers[i] = (int64_t)chunk->meta.key + (int64_t)(i % ROWS);
  }
  uint32_t num_slices = (uint32_t)n;
  bool squeeze = false;
  rv_trajectory_desc desc = {.slices = slices, .num_slices = &num_slices, .squeeze = &squeeze, .num_columns = 1};
  must(rv_trajectory_new(rv_store_layouts(w.store), &desc, &made, &err), &err);
  return made;
}

static void reset(void)
{
  rv_error err;
  must(rv_table_reset(w.table, &err), &err);
}

static void ignore(rv_waiter *waiter)
{
  (void)waiter;
}

/* Row after row of n chunks by turns, from number `first` on. */
static rv_trajectory *in_slices(size_t first, size_t n, uint32_t num_slices)
{
  rv_error err;
  rv_trajectory *made;
  rv_slice *slices = malloc(num_slices * sizeof *slices);
  assert_non_null(slices);
  for (uint32_t i = 0; i < num_slices; i++)
    slices[i] = (rv_slice){.chunk = w.chunks[(first + i % n) % CHUNKS], .offset = (int32_t)(i / n % ROWS), .length = 1};
  bool squeeze = false;
  rv_trajectory_desc desc = {.slices = slices, .num_slices = &num_slices, .squeeze = &squeeze, .num_columns = 1};
  must(rv_trajectory_new(rv_store_layouts(w.store), &desc, &made, &err), &err);
  free(slices);
  return made;
}

static rv_code insert_slices(size_t first, size_t n, uint32_t num_slices, rv_error *err)
{
  rv_insert one = {.choose_key = true, .priority = 1, .trajectory = in_slices(first, n, num_slices)};
  one.waiter.deadline_ns = INT64_MAX;
  one.waiter.complete = ignore;
  assert_int_equal(rv_table_insert(w.table, &one), RV_SUBMIT_DONE);
  rv_trajectory_unref(one.trajectory);
  *err = one.waiter.error;
  return one.waiter.code;
}

static rv_insert inserted; /* the last */

static rv_submitted insert(size_t first, size_t n, int64_t *numbers)
{
  inserted = (rv_insert){.choose_key = true, .priority = 1, .trajectory = over(first, n, numbers)};
  inserted.waiter.deadline_ns = INT64_MAX;
  inserted.waiter.complete = ignore;
  rv_submitted submitted = rv_table_insert(w.table, &inserted);
  rv_trajectory_unref(inserted.trajectory);
  return submitted;
}

static void expect(uint64_t key, const int64_t *numbers, size_t n)
{
  int64_t found[CHUNKS];
  rv_draw draw;
  rv_error err;
  must(rv_table_get(w.table, key, &draw, &err), &err);
  assert_int_equal(draw.trajectory->columns[0].length, n);
  must(rv_draw_copy_column(&draw, 0, found, &err), &err);
  assert_memory_equal(found, numbers, n * sizeof *numbers);
  rv_draw_release(&draw);
}

static void delete (uint64_t key)
{
  size_t unknown;
  rv_error err;
  must(rv_table_mutate(w.table, NULL, 0, &key, 1, NULL, &unknown, &err), &err);
}

static void an_item_is_linked_and_unlinked_a_few_chunks_in_one_hold(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("t", 1);
  int64_t numbers[CHUNKS], others[CHUNKS];
  begin(&config);
  assert_int_equal(insert(0, CHUNKS, numbers), RV_SUBMIT_DONE);
  must(inserted.waiter.code, &inserted.waiter.error);
  assert_true(watched.longest > 0 && watched.longest <= MOST);
  expect(inserted.key, numbers, CHUNKS);
  audit_table(w.table);
  watch();
  assert_int_equal(insert(7, CHUNKS, others), RV_SUBMIT_DONE); /* the other one goes */
  assert_true(watched.longest <= MOST);
  expect(inserted.key, others, CHUNKS);
  audit_table(w.table);
  watch();
  delete (inserted.key);
  assert_true(watched.longest <= MOST);
  audit_table(w.table);
  rv_table_info info = info_of(w.table);
  assert_int_equal(info.num_episodes, 0);
  rv_table_info_fini(&info);
  end();
}

/* The slices are looked at by nobody who has the lock, and the items stand in one batch with each other. */
static void items_of_very_many_slices_are_compared_with_nothing(void **state)
{
  (void)state;
  enum { SLICES = RV_TEMPLATE_SLICES + 1 };
  rv_table_config config = rv_table_config_default("t", 10);
  static rv_slice slices[SLICES];
  static int64_t numbers[SLICES];
  rv_error err;
  begin(&config);
  for (uint32_t n = SLICES - 1; n <= SLICES; n++) {
    for (size_t i = 0; i < n; i++) slices[i] = (rv_slice){.chunk = w.chunks[1], .offset = (int32_t)(i % ROWS), .length = 1};
    bool squeeze = false;
    rv_trajectory_desc desc = {.slices = slices, .num_slices = &n, .squeeze = &squeeze, .num_columns = 1};
    for (int k = 0; k < 2; k++) {
      rv_insert one = {.choose_key = true, .priority = 1};
      one.waiter.deadline_ns = INT64_MAX;
      must(rv_trajectory_new(rv_store_layouts(w.store), &desc, &one.trajectory, &err), &err);
      assert_int_equal(rv_table_insert(w.table, &one), RV_SUBMIT_DONE);
      must(one.waiter.code, &one.waiter.error);
      rv_trajectory_unref(one.trajectory);
      rv_draw draw;
      must(rv_table_get(w.table, one.key, &draw, &err), &err);
      must(rv_draw_copy_column(&draw, 0, numbers, &err), &err);
      for (size_t i = 0; i < n; i++) assert_int_equal(numbers[i], (int64_t)w.chunks[1]->meta.key + (int64_t)(i % ROWS));
      rv_draw_release(&draw);
    }
    assert_int_equal(w.table->books.num_loose, n < SLICES ? 0 : 2);
    audit_table(w.table);
    reset();
  }
  end();
}

/* Whether its chunks are looked at one by one, or were when it was made, an item counts as many bytes. */
static void a_bound_of_bytes_counts_what_the_chunks_of_an_item_are(void **state)
{
  (void)state;
  const size_t counts[] = {RV_TRAJECTORY_FEW, RV_TRAJECTORY_FEW + 1, CHUNKS};
  for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
    rv_table_config config = rv_table_config_default("t", 10);
    int64_t numbers[CHUNKS];
    begin(&config);
    size_t bytes = 0;
    for (size_t i = 0; i < counts[c]; i++) bytes += rv_chunk_memory(w.chunks[i]);
    assert_int_equal(insert(0, counts[c], numbers), RV_SUBMIT_DONE);
    for (size_t more = 0; more < 2; more++) {
      rv_draw draws[3];
      rv_sampling sampling = {.want = 3, .draws = draws, .max_bytes = 2 * bytes + more};
      assert_int_equal(rv_table_sample(w.table, &sampling), RV_SUBMIT_DONE);
      assert_int_equal(sampling.count, 2 + more);
      rv_draws_release(draws, sampling.count);
    }
    end();
  }
}

/* What an item says about its rows is as much memory as any, whether its chunks are linked at once or in steps. */
static void a_bound_of_bytes_counts_the_slices_of_an_item(void **state)
{
  (void)state;
  enum { BOUND = 1 << 19, MANY = 5000, TOO_MANY = 20000, ITEMS = 20 };
  const size_t num_chunks[] = {1, 2, RV_LINKS_AT_ONCE + 8};
  for (size_t c = 0; c < sizeof num_chunks / sizeof num_chunks[0]; c++) {
    rv_table_config config = rv_table_config_default("t", 10000);
    config.max_bytes = BOUND;
    rv_error err;
    begin(&config);
    for (size_t i = 0; i < ITEMS; i++) must(insert_slices(i, 1, 2, &err), &err);
    assert_int_equal(insert_slices(0, num_chunks[c], TOO_MANY, &err), RV_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "never fits: max_bytes leaves room for"));
    assert_int_equal(w.table->books.slab.count, ITEMS); /* nobody went for what cannot come */
    for (size_t i = 0; i < ITEMS; i++) {
      must(insert_slices(i, num_chunks[c], MANY, &err), &err);
      assert_in_range(rv_books_of_items(&w.table->books), BOUND / 4, BOUND);
    }
    assert_in_range(w.table->books.slab.count, 1, ITEMS);
    audit_table(w.table);
    end();
  }
}

/* Those of very many chunks stay, and do not stand before others. */
static void chunks_of_an_item_that_stays_do_not_keep_others_from_being_compacted(void **state)
{
  (void)state;
  enum { LONG = RV_LINKS_MOVED + 1, WIDE = 256, OTHERS = 80 };
  rv_table_config config = rv_table_config_default("t", 10000);
  static rv_chunk *chunks[LONG + OTHERS];
  static rv_slice slices[LONG];
  rv_error err;
  begin(&config);
  for (int64_t i = 0; i < LONG + OTHERS; i++) chunks[i] = encoded_numbers(1000 * i, i < 64 || i >= LONG ? WIDE : 1, 1, false);
  rv_insert one = {.choose_key = true, .priority = 1};
  uint64_t key = 0;
  one.waiter.deadline_ns = INT64_MAX;
  for (size_t i = 0; i < LONG; i++) slices[i] = (rv_slice){.chunk = chunks[i], .length = 1};
  rv_trajectory_desc desc = {.slices = slices, .num_slices = (uint32_t[]){LONG}, .squeeze = (bool[]){false}, .num_columns = 1};
  must(rv_trajectory_new(rv_store_layouts(w.store), &desc, &one.trajectory, &err), &err);
  assert_int_equal(rv_table_insert(w.table, &one), RV_SUBMIT_DONE);
  must(one.waiter.code, &one.waiter.error);
  rv_trajectory_unref(one.trajectory);
  for (size_t i = LONG; i < LONG + OTHERS; i++) {
    one.trajectory = trajectory_of(w.store, chunks[i], 7, 1);
    assert_int_equal(rv_table_insert(w.table, &one), RV_SUBMIT_DONE);
    must(one.waiter.code, &one.waiter.error);
    rv_trajectory_unref(one.trajectory);
    if (i == LONG) key = one.key;
  }
  for (size_t i = 0; i < LONG + OTHERS; i++) rv_chunk_unref(chunks[i]);
  rv_draw draw;
  for (int i = 0; i < 10000; i++) { /* turns, for a while */
    rv_table_compact(w.table, RV_COMPACT_STAYS);
    assert_true(rv_table_can_insert(w.table, 1));
  }
  must(rv_table_get(w.table, key, &draw, &err), &err);
  assert_true(draw.chunk->is_segment);
  assert_int_equal(value_of(&draw), 1000 * LONG + 7);
  rv_draw_release(&draw);
  end();
}

/* ---- what may happen between two steps ---- */

static void close_table(void)
{
  rv_table_close(w.table);
}

static void cancel(void)
{
  assert_true(rv_waiter_cancel(&inserted.waiter));
}

static void allow_no_more(void)
{
  rv_error err;
  rv_rate_limiter_config queue = rv_rate_limiter_queue(1);
  must(rv_table_set_rate_limiter(w.table, &queue, &err), &err);
}

static void what_a_reset_took_is_linked_once_more(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("t", 10);
  int64_t numbers[CHUNKS];
  begin(&config);
  for (size_t after = 0; after < CHUNKS / RV_LINKS_AT_ONCE; after++) {
    watched.between = reset;
    watched.after = after;
    assert_int_equal(insert(after, CHUNKS, numbers), RV_SUBMIT_DONE);
    must(inserted.waiter.code, &inserted.waiter.error);
    assert_null(watched.between);
    expect(inserted.key, numbers, CHUNKS);
    audit_table(w.table);
  }
  end();
}

static void an_item_that_is_taken_back_before_it_is_whole_leaves_nothing(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("t", 10);
  int64_t numbers[CHUNKS];
  begin(&config);
  watched.between = cancel;
  watched.after = 1;
  insert(0, CHUNKS, numbers);
  assert_null(watched.between);
  assert_int_equal(w.table->books.present_holds, 0);
  audit_table(w.table);
  watched.between = close_table;
  watched.after = 1;
  insert(0, CHUNKS, numbers);
  assert_int_equal(inserted.waiter.code, RV_CANCELLED);
  assert_int_equal(w.table->books.present_holds, 0);
  end();
}

static void an_item_that_must_wait_before_it_is_whole_comes_later(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("t", 10);
  config.max_times_sampled = 1;
  int64_t numbers[CHUNKS], others[CHUNKS];
  begin(&config);
  assert_int_equal(insert(0, 1, others), RV_SUBMIT_DONE);
  watched.between = allow_no_more;
  watched.after = 1;
  assert_int_equal(insert(0, CHUNKS, numbers), RV_SUBMIT_PENDING);
  assert_true(inserted.linked > 0 && inserted.linked < CHUNKS);
  rv_draw draw;
  rv_sampling sampling = {.want = 1, .draws = &draw};
  assert_int_equal(rv_table_sample(w.table, &sampling), RV_SUBMIT_DONE);
  must(sampling.waiter.code, &sampling.waiter.error);
  rv_draw_release(&draw);
  must(inserted.waiter.code, &inserted.waiter.error);
  expect(inserted.key, numbers, CHUNKS);
  audit_table(w.table);
  end();
}

/* An update of its priority meets the key that it would have. */
static void an_item_whose_key_is_there_changes_that_items_priority(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("t", 10);
  int64_t numbers[CHUNKS], others[CHUNKS];
  begin(&config);
  for (int round = 0; round < 2; round++) {
    rv_insert one = {.key = 5, .priority = 1 + round, .trajectory = over((size_t)round, CHUNKS, round == 0 ? numbers : others)};
    one.waiter.deadline_ns = INT64_MAX;
    assert_int_equal(rv_table_insert(w.table, &one), RV_SUBMIT_DONE);
    must(one.waiter.code, &one.waiter.error);
    assert_int_equal(one.updated, round == 1);
    rv_trajectory_unref(one.trajectory);
    expect(5, numbers, CHUNKS);
    audit_table(w.table);
  }
  end();
}

/* ---- by chance ---- */

enum { ITEMS = 24, OPERATIONS = 1500 };

typedef struct known {
  uint64_t key;
  size_t n;
  int64_t numbers[CHUNKS];
} known;

static struct {
  known items[ITEMS + 1];
  size_t count;
} model;

static void forget(size_t i)
{
  memmove(&model.items[i], &model.items[i + 1], (--model.count - i) * sizeof(known));
}

static void move_to_a_file(void)
{
  rv_cold cold[8];
  size_t n = rv_table_take_cold(w.table, cold, 8, SIZE_MAX);
  for (size_t i = 0; i < n; i++) cold[i].place = rv_test_place(cold[i].bytes, cold[i].size);
  rv_table_move_cold(w.table, cold, n);
}

static void compact(void)
{
  rv_table_compact(w.table, 4);
}

static void delete_one(void)
{
  if (model.count == 0) return;
  size_t i = rv_random_below(&w.random, (uint32_t)model.count);
  uint64_t key = model.items[i].key;
  forget(i);
  delete (key);
}

static void reset_all(void)
{
  model.count = 0;
  reset();
}

/* An item comes; others may go meanwhile. */
static void insert_one(size_t most)
{
  static known item;
  item.n = 1 + rv_random_below(&w.random, (uint32_t)most);
  assert_int_equal(insert(rv_random_below(&w.random, CHUNKS), item.n, item.numbers), RV_SUBMIT_DONE);
  must(inserted.waiter.code, &inserted.waiter.error);
  item.key = inserted.key;
  if (w.table->books.slab.count == 0) return; /* the reset came after it */
  while (model.count >= w.table->books.slab.count) forget(0);
  model.items[model.count++] = item;
}

static void operate(void)
{
  static void (*const others[])(void) = {delete_one, move_to_a_file, compact, reset_all};
  uint32_t dice = rv_random_below(&w.random, 100);
  if (dice % 5 == 0) watched.between = others[rv_random_below(&w.random, dice == 0 ? 4 : 3)];
  watched.after = rv_random_below(&w.random, 6);
  if (dice < 55)
    insert_one(dice < 40 ? CHUNKS : 4);
  else if (dice < 75)
    delete_one();
  else if (dice < 90)
    renew(rv_random_below(&w.random, CHUNKS));
  else
    others[rv_random_below(&w.random, 3)]();
}

static void whatever_happens(int64_t max_bytes)
{
  rv_table_config config = rv_table_config_default("t", ITEMS);
  config.max_bytes = max_bytes;
  begin(&config);
  rv_table_keep_cold(w.table);
  model.count = 0;
  for (int i = 0; i < OPERATIONS; i++) {
    operate();
    watched.between = NULL;
    for (size_t k = 0; k < model.count; k++) expect(model.items[k].key, model.items[k].numbers, model.items[k].n);
    assert_int_equal(w.table->books.slab.count, model.count);
    assert_true(watched.longest <= MOST);
    audit_table(w.table);
  }
  end();
}

static void whatever_happens_between_the_steps_items_are_those_of_a_list(void **state)
{
  (void)state;
  whatever_happens(0);
  assert_true(compacted.moved > 0);
  assert_true(compacted.merged > 0);
}

/* A few of them are as much as the table may hold, so that others go before one comes. */
static void so_are_they_where_the_table_is_bounded_in_bytes(void **state)
{
  (void)state;
  whatever_happens(180000);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_item_is_linked_and_unlinked_a_few_chunks_in_one_hold),
      cmocka_unit_test(items_of_very_many_slices_are_compared_with_nothing),
      cmocka_unit_test(a_bound_of_bytes_counts_what_the_chunks_of_an_item_are),
      cmocka_unit_test(a_bound_of_bytes_counts_the_slices_of_an_item),
      cmocka_unit_test(chunks_of_an_item_that_stays_do_not_keep_others_from_being_compacted),
      cmocka_unit_test(what_a_reset_took_is_linked_once_more),
      cmocka_unit_test(an_item_that_is_taken_back_before_it_is_whole_leaves_nothing),
      cmocka_unit_test(an_item_that_must_wait_before_it_is_whole_comes_later),
      cmocka_unit_test(an_item_whose_key_is_there_changes_that_items_priority),
      cmocka_unit_test(whatever_happens_between_the_steps_items_are_those_of_a_list),
      cmocka_unit_test(so_are_they_where_the_table_is_bounded_in_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
