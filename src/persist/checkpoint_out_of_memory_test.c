/* Every allocation of saving and restoring fails in turn: RV_RESOURCE_EXHAUSTED, nothing half written is left, what was saved before stays,
 * and the same call succeeds afterwards. */
#include <limits.h>

#include "base/failing_testing.h"
#include "persist/testing.h"
#include "store/snapshot.h"

typedef struct scene {
  fixture *f;
  rv_store *store;
  rv_table_config tables[2];
} scene;

static void begin(scene *s, fixture *f)
{
  rv_error err;
  s->f = f;
  s->tables[0] = rv_table_config_default("rows", 100);
  s->tables[1] = rv_table_config_default("items", 100);
  s->tables[1].sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
  rv_store_config config = {.size = sizeof config, .tables = s->tables, .num_tables = 2};
  must(rv_store_new(&config, &s->store, &err), &err);
  int64_t values[20] = {0};
  rv_rows rows;
  add_values(rv_store_table(s->store, 0), &rows, values, 20, NULL);
  for (uint64_t key = 1; key < 6; key++)
    assert_int_equal(insert_value(s->store, rv_store_table(s->store, 1), key, 1, (int64_t)key), RV_OK);
}

static rv_code save_once(void *context)
{
  scene *s = context;
  char *path;
  rv_error err;
  rv_code code = rv_checkpointer_save(s->f->checkpointer, s->store, NULL, &path, &err);
  free(path);
  long left = atomic_exchange(&until_failure, LONG_MAX);
  rv_checkpoints_retain(s->f->root, 3, &s->f->env); /* where memory was out for it, more stay until the next is saved */
  until_failure = left;
  return code;
}

static void saving_leaves_nothing_half_done(void **state)
{
  scene s;
  begin(&s, *state);
  free(save(s.f, s.store));
  with_each_failure(save_once, &s);
  rv_store *back = NULL;
  rv_error err;
  must(restore(s.f, s.tables, 2, &back, NULL, &err), &err);
  same_stores(s.store, back);
  rv_store_unref(back);
  rv_store_unref(s.store);
  assert_in_range(count_entries(s.f->root), 1, 4);
}

static rv_code restore_once(void *context)
{
  scene *s = context;
  rv_store *back = NULL;
  rv_error err;
  rv_code code = restore(s->f, s->tables, 2, &back, NULL, &err);
  assert_true((code == RV_OK) == (back != NULL));
  long left = atomic_exchange(&until_failure, LONG_MAX);
  if (code == RV_OK) same_stores(s->store, back); /* never an older one, or none, for want of memory */
  rv_store_unref(back);
  until_failure = left;
  return code;
}

static rv_code save_and_forget(void *context)
{
  scene *s = context;
  rv_error err;
  return rv_checkpointer_save(s->f->checkpointer, s->store, NULL, NULL, &err);
}

static void incremental_saving_goes_on_after_any_failure(void **state)
{
  scene s;
  fixture *f = *state;
  rv_error err;
  begin(&s, f);
  rv_checkpointer_unref(f->checkpointer);
  rv_checkpointer_config config = {.size = sizeof config, .path = f->root, .env = &f->env, .incremental = true};
  must(rv_checkpointer_new(&config, &f->checkpointer, &err), &err);
  for (uint64_t key = 100; key < 103; key++) {
    with_each_failure(save_and_forget, &s);
    assert_int_equal(insert_value(s.store, rv_store_table(s.store, 1), key, 1, (int64_t)key), RV_OK);
    free(save(f, s.store));
    rv_store *back = NULL;
    must(restore(f, s.tables, 2, &back, NULL, &err), &err);
    same_stores(s.store, back);
    rv_store_unref(back);
  }
  with_each_failure(restore_once, &s);
  rv_store_unref(s.store);
}

static void restoring_makes_the_store_whole_or_not_at_all(void **state)
{
  scene s;
  begin(&s, *state);
  free(save(s.f, s.store));
  with_each_failure(restore_once, &s);
  rv_store_unref(s.store);
}

/* Whoever changes an item does not suffer from it that there is no memory for what a checkpoint wants to know. */
static void changes_are_carried_out_where_they_cannot_be_kept(void **state)
{
  for (int kind = 0; kind < 2; kind++) {
    scene s;
    rv_error err;
    rv_snapshot *snapshot;
    const rv_draw *items;
    size_t count, unknown;
    begin(&s, *state);
    rv_table *table = rv_store_table(s.store, 1);
    must(rv_snapshot_new(table, &snapshot, &err), &err);
    const rv_key_priority update = {1, 7.5};
    const uint64_t gone = 2;
    until_failure = 0;
    rv_code code = kind == 0 ? rv_table_mutate(table, &update, 1, NULL, 0, NULL, &unknown, &err)
                             : rv_table_mutate(table, NULL, 0, &gone, 1, NULL, &unknown, &err);
    bool failed = until_failure < 0;
    until_failure = -1;
    assert_true(failed);
    must(code, &err);
    do code = rv_snapshot_next(snapshot, &items, &count, &err);
    while (code == RV_OK && count > 0);
    assert_int_equal(code, RV_RESOURCE_EXHAUSTED);
    rv_snapshot_free(snapshot);
    rv_table_info info = info_of(table);
    assert_int_equal(info.current_size, kind == 0 ? 5 : 4);
    assert_true(kind == 1 || info.max_priority == 7.5);
    rv_table_info_fini(&info);
    rv_store_unref(s.store);
  }
}

static rv_code make_a_saver(void *context)
{
  scene *s = context;
  rv_error err;
  rv_checkpointer *checkpointer = NULL;
  rv_saver *saver = NULL;
  const rv_checkpointer_config root = {.size = sizeof root, .path = s->f->root, .fallback_path = "somewhere/else"};
  rv_code code = rv_checkpointer_new(&root, &checkpointer, &err);
  if (code != RV_OK) return code;
  const rv_saver_config config = {.size = sizeof config, .store = s->store, .checkpointer = checkpointer, .every_ms = 1000000};
  code = rv_saver_new(&config, &saver, &err);
  if (code == RV_OK) rv_saver_free(saver);
  rv_checkpointer_unref(checkpointer);
  return code;
}

static void checkpointers_and_savers_are_made_whole_or_not_at_all(void **state)
{
  scene s;
  begin(&s, *state);
  assert_true(with_each_failure(make_a_saver, &s) > 3);
  rv_store_unref(s.store);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
  const struct CMUnitTest tests[] = {TEST(saving_leaves_nothing_half_done), TEST(restoring_makes_the_store_whole_or_not_at_all),
                                     TEST(incremental_saving_goes_on_after_any_failure),
                                     TEST(changes_are_carried_out_where_they_cannot_be_kept),
                                     TEST(checkpointers_and_savers_are_made_whole_or_not_at_all)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
