/* How much is done in one hold of a table's lock, in steps counted: the linker puts functions of the test's before those that give the lock back
 * and those that do the work (CMakeLists.txt). */
#include "store/audit_testing.h"
#include "store/chunk_parts.h"
#include "store/cold_testing.h"
#include "store/table_parts.h"
#include "store/testing.h"

static struct {
  const rv_table *table;
  size_t holds;         /* of its lock, that ended */
  size_t work, longest; /* steps in the present hold; the most in one */
} watched;

void __real_rv_mutex_unlock(rv_mutex *mutex);
void __wrap_rv_mutex_unlock(rv_mutex *mutex);
void __wrap_rv_mutex_unlock(rv_mutex *mutex)
{
  if (watched.table != NULL && mutex == &watched.table->mutex) {
    watched.holds++;
    if (watched.work > watched.longest) watched.longest = watched.work;
    watched.work = 0;
  }
  __real_rv_mutex_unlock(mutex);
}

rv_code __real_rv_edit_priority(rv_edit *edit, uint64_t key, double *priority);
rv_code __wrap_rv_edit_priority(rv_edit *edit, uint64_t key, double *priority);
rv_code __wrap_rv_edit_priority(rv_edit *edit, uint64_t key, double *priority)
{
  watched.work++;
  return __real_rv_edit_priority(edit, key, priority);
}

static void watch(const rv_table *table)
{
  watched.table = table;
  watched.holds = watched.work = watched.longest = 0;
}

static void drop(rv_store *store)
{
  watched.table = NULL;
  rv_store_unref(store);
}

/* ---- chunks that may be spilled ---- */

enum { COLD = 64, SHARED_BY = 100 };

/* COLD chunks, two and two with SHARED_BY items over both; of each pair somebody reads the item that came last. */
static void insert_cold(rv_store *store, rv_trajectory *read[COLD / 2])
{
  rv_table *table = rv_store_table(store, 0);
  rv_error err;
  for (int64_t pair = 0; pair < COLD / 2; pair++) {
    rv_chunk *chunks[2] = {encoded_numbers(1000 * pair, 128, 1, false), encoded_numbers(1000 * pair + 500, 128, 1, false)};
    for (size_t i = 0; i < SHARED_BY; i++) {
      rv_slice slices[2] = {{.chunk = chunks[0], .length = 1}, {.chunk = chunks[1], .length = 1}};
      uint32_t num_slices = 2;
      bool squeeze = false;
      rv_trajectory_desc desc = {.slices = slices, .num_slices = &num_slices, .squeeze = &squeeze, .num_columns = 1};
      rv_insert insert = {.choose_key = true, .priority = 1};
      insert.waiter.deadline_ns = INT64_MAX;
      must(rv_trajectory_new(rv_store_layouts(store), &desc, &insert.trajectory, &err), &err);
      assert_int_equal(rv_table_insert(table, &insert), RV_SUBMIT_DONE);
      must(insert.waiter.code, &insert.waiter.error);
      if (i + 1 == SHARED_BY) read[pair] = rv_trajectory_ref(insert.trajectory);
      rv_trajectory_unref(insert.trajectory);
    }
    for (size_t i = 0; i < 2; i++) rv_chunk_unref(chunks[i]);
  }
}

static void looking_for_cold_chunks_counts_the_items_that_share_them(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("t", COLD * SHARED_BY);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  rv_trajectory *read[COLD / 2];
  rv_cold cold[COLD];
  insert_cold(store, read);
  watch(table);
  rv_table_keep_cold(table);
  assert_int_equal(rv_table_take_cold(table, cold, COLD, SIZE_MAX), 0);
  assert_true(watched.holds >= COLD / 2);
  for (size_t i = 0; i < COLD / 2; i++) rv_trajectory_unref(read[i]);
  watch(table);
  assert_int_equal(rv_table_take_cold(table, cold, COLD, SIZE_MAX),
                   COLD); /* each once, though each is looked at again and again */
  assert_true(watched.holds >= COLD / 2);
  for (size_t i = 0; i < COLD; i++)
    for (size_t k = 0; k < i; k++) assert_ptr_not_equal(cold[i].chunk, cold[k].chunk);
  watch(table);
  for (size_t i = 0; i < COLD; i++) cold[i].place = rv_test_place(cold[i].bytes, cold[i].size);
  assert_true(rv_table_move_cold(table, cold, COLD) > 0);
  assert_true(watched.holds >= COLD / 2);
  audit_table(table);
  drop(store);
}

/* ---- extensions ---- */

/* Items of 4 at a step; each update reaches the 32 steps there are. */
static void what_an_update_spreads_to_is_raised_in_turns(void **state)
{
  (void)state;
  enum { STEPS = 32, EACH = 4, ITEMS = STEPS * EACH, MOST = RV_TURN_BUDGET };
  rv_extension_config diffusion = {.name = "diffusion", .options = "steps=100,decay=1"};
  rv_table_config config = rv_table_config_default("t", ITEMS);
  config.extensions = &diffusion;
  config.num_extensions = 1;
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  uint64_t keys[ITEMS];
  double priorities[ITEMS];
  rv_error err;
  rv_chunk *chunk = encoded_numbers(0, STEPS, 1, false);
  for (size_t i = 0; i < ITEMS; i++) {
    rv_insert insert = {.choose_key = true, .priority = 1, .trajectory = trajectory_of(store, chunk, (int32_t)(i / EACH), 1)};
    insert.waiter.deadline_ns = INT64_MAX;
    assert_int_equal(rv_table_insert(table, &insert), RV_SUBMIT_DONE);
    must(insert.waiter.code, &insert.waiter.error);
    rv_trajectory_unref(insert.trajectory);
    keys[i] = insert.key;
    priorities[i] = 2 + (double)i;
  }
  rv_chunk_unref(chunk);
  size_t unknown;
  watch(table);
  must(rv_table_update_priorities(table, keys, priorities, ITEMS, NULL, &unknown, &err), &err);
  assert_true(watched.longest > 0);
  assert_true(watched.longest <= MOST);
  for (size_t i = 0; i < ITEMS;
       i++) { /* all is done when the call returns; those at the step of the highest are not its neighbours */
    rv_draw draw;
    must(rv_table_get(table, keys[i], &draw, &err), &err);
    double highest = i / EACH == STEPS - 1 ? (i + 1 == ITEMS ? 1 + ITEMS : ITEMS + 1 - EACH) : 1 + ITEMS;
    assert_true(draw.priority == (priorities[i] > highest ? priorities[i] : highest));
    rv_draw_release(&draw);
  }
  drop(store);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_an_update_spreads_to_is_raised_in_turns),
      cmocka_unit_test(looking_for_cold_chunks_counts_the_items_that_share_them),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
