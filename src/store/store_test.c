#include "store/testing.h"

#include <math.h>

#include "base/utf8.h"

/* ---- configurations ---- */

static void refuses(const rv_table_config *tables, size_t n, rv_code expected, const char *sentence)
{
  rv_error err = {0};
  rv_store *store;
  rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = n};
  assert_int_equal(rv_store_new(&config, &store, &err), expected);
  if (strstr(err.message, sentence) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.message, sentence);
}

static void a_configuration_that_is_wrong_names_table_and_field(void **state)
{
  (void)state;
  rv_table_config good = rv_table_config_default("replay", 10), bad = good, two[2] = {good, good};
  refuses(NULL, 0, RV_INVALID_ARGUMENT, "at least one table");
  refuses(two, 2, RV_INVALID_ARGUMENT, "table \"replay\": tables 0 and 1 have that name");
  bad.name = "";
  refuses(&bad, 1, RV_INVALID_ARGUMENT, "table 0: the name is empty");
  bad = good;
  char name[2050];
  memset(name, 'x', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  bad.name = name;
  refuses(&bad, 1, RV_INVALID_ARGUMENT, "xxx\": the name has 2049 bytes; give one of 2048 at most");
  bad = good;
  bad.name = "\x80name";
  refuses(&bad, 1, RV_INVALID_ARGUMENT, "the name \"?name\" is not valid UTF-8");
  bad = good;
  bad.remover.options = "a=\xFF";
  refuses(&bad, 1, RV_INVALID_ARGUMENT, "table \"replay\": remover: the options' text \"a=?\" is not valid UTF-8");
  bad = good;
  const rv_spec no_text = {.name = "obs\xFF", .dtype = RV_FLOAT32};
  const rv_signature unreadable = {.specs = &no_text, .num_specs = 1};
  bad.signature = &unreadable;
  refuses(&bad, 1, RV_INVALID_ARGUMENT, "the name of a column in the signature \"obs?\" is not valid UTF-8");
  bad = good;
  bad.max_size = 0;
  refuses(&bad, 1, RV_INVALID_ARGUMENT, "table \"replay\": max_size is 0");
  bad.max_size = INT64_C(1) << 31;
  refuses(&bad, 1, RV_INVALID_ARGUMENT, "max_size is 2147483648");
  bad = good;
  bad.sampler.kind = (rv_selector_kind)99;
  refuses(&bad, 1, RV_INVALID_ARGUMENT, "table \"replay\": sampler");
  bad = good;
  bad.remover = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = NAN};
  refuses(&bad, 1, RV_INVALID_ARGUMENT, "table \"replay\": remover");
  bad = good;
  bad.sampler = (rv_selector_config){.kind = RV_SELECTOR_CUSTOM, .name = "nobody"};
  refuses(&bad, 1, RV_NOT_FOUND, "nobody");
  bad = good;
  bad.rate_limiter.samples_per_insert = 0;
  refuses(&bad, 1, RV_INVALID_ARGUMENT, "table \"replay\": rate_limiter");
  bad = good;
  bad.rate_limiter.min_diff = 100;
  bad.rate_limiter.max_diff = 1;
  refuses(&bad, 1, RV_INVALID_ARGUMENT, "table \"replay\": rate_limiter");
  bad = good;
  bad.rate_limiter = rv_rate_limiter_min_size(11);
  refuses(&bad, 1, RV_INVALID_ARGUMENT, "min_size_to_sample is 11");
  bad = good;
  bad.size = 0;
  refuses(&bad, 1, RV_INVALID_ARGUMENT, "sizeof(rv_table_config)");
  bad = good;
  const rv_extension_config nobody = {.name = "nobody"};
  bad.extensions = &nobody;
  bad.num_extensions = 1;
  refuses(&bad, 1, RV_NOT_FOUND, "nobody");
  const int64_t shape[] = {-2};
  const rv_spec spec = {.name = "obs", .dtype = RV_FLOAT32, .rank = 1, .shape = shape};
  const rv_signature signature = {.specs = &spec, .num_specs = 1};
  bad = good;
  bad.signature = &signature;
  refuses(&bad, 1, RV_INVALID_ARGUMENT, "signature of column 0 \"obs\"");
  const rv_spec shapeless = {.name = "obs", .dtype = RV_FLOAT32, .rank = 2};
  const rv_signature without_shape = {.specs = &shapeless, .num_specs = 1};
  bad.signature = &without_shape;
  refuses(&bad, 1, RV_INVALID_ARGUMENT, "signature of column 0 \"obs\": its rank is 2 and its shape NULL");
}

static void tables_are_found_by_name(void **state)
{
  (void)state;
  rv_table_config tables[] = {rv_table_config_default("a", 1), rv_table_config_default("ab", 1)};
  rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = 2};
  rv_store *store;
  rv_error err;
  rv_table *table;
  must(rv_store_new(&config, &store, &err), &err);
  must(rv_store_find(store, "ab", 2, &table, &err), &err);
  assert_string_equal(rv_table_name(table), "ab");
  must(rv_store_find(store, "ab", 1, &table, &err), &err);
  assert_string_equal(rv_table_name(table), "a");
  assert_int_equal(rv_store_find(store, "abc", 3, &table, &err), RV_NOT_FOUND);
  assert_non_null(strstr(err.message, "the store has \"a\", \"ab\""));
  uint64_t id[2];
  rv_store_state_id(store, id);
  assert_true(id[0] != 0 || id[1] != 0);
  rv_store_unref(store);
}

static void a_closed_store_takes_nothing_and_can_be_looked_at(void **state)
{
  (void)state;
  rv_table_config config = rv_table_config_default("replay", 10);
  rv_store *store = store_of(&config);
  rv_table *table = rv_store_table(store, 0);
  assert_int_equal(insert_value(store, table, 1, 1, 1), RV_OK);
  rv_store_close(store);
  assert_true(rv_store_is_closed(store));
  assert_int_equal(insert_value(store, table, 2, 1, 2), RV_CANCELLED);
  rv_error err;
  uint64_t key = 1;
  size_t num_unknown;
  int64_t value = 3;
  rv_rows rows;
  assert_int_equal(add_values(table, &rows, &value, 1, NULL), RV_SUBMIT_DONE);
  assert_int_equal(rows.waiter.code, RV_CANCELLED);
  assert_int_equal(rv_table_mutate(table, NULL, 0, &key, 1, NULL, &num_unknown, &err), RV_CANCELLED);
  assert_int_equal(rv_table_reset(table, &err), RV_CANCELLED);
  rv_table_info info = info_of(table);
  assert_int_equal(info.current_size, 1);
  rv_table_info_fini(&info);
  rv_store_unref(store);
}

/* ---- extensions ---- */

typedef struct witness {
  rv_event events[400];
  size_t count;
  size_t batches;
} witness;

static witness *shared_witness; /* `create` has no other way to its test */

static rv_code witness_create(const char *table, const char *options, void **extension, rv_error *err)
{
  (void)table, (void)options, (void)err;
  *extension = shared_witness;
  return RV_OK;
}

static void witness_destroy(void *extension)
{
  (void)extension;
}

/* Doubles what is inserted with priority 3, which must raise no event. */
static void witness_events(void *extension, const rv_event *events, size_t n, rv_edit *edit)
{
  witness *w = extension;
  w->batches++;
  for (size_t i = 0; i < n; i++) {
    w->events[w->count++] = events[i];
    if (events[i].kind != RV_EVENT_INSERT || events[i].priority != 3) continue;
    double priority;
    assert_int_equal(rv_edit_priority(edit, events[i].key, &priority), RV_OK);
    assert_int_equal(rv_edit_set_priority(edit, events[i].key, 2 * priority), RV_OK);
    assert_int_equal(rv_edit_set_priority(edit, events[i].key, NAN), RV_INVALID_ARGUMENT);
    assert_int_equal(rv_edit_set_priority(edit, UINT64_C(0xABCDEF), 1), RV_NOT_FOUND);
  }
}

static size_t witness_describe(void *extension, char *out, size_t capacity)
{
  return (size_t)snprintf(out, capacity, "events=%zu", ((witness *)extension)->count);
}

/* Of a table with extensions of these names, which all tell `w` what they see. The registry is to go after it. */
static rv_store *store_with_witnesses(witness *w, const rv_extension_config *extensions, size_t n, rv_table_config config,
                                      size_t (*describe)(void *extension, char *out, size_t capacity), rv_registry **registry)
{
  rv_error err;
  rv_store *store;
  const rv_extension_ops ops = {.size = sizeof ops,
                                .create = witness_create,
                                .destroy = witness_destroy,
                                .on_events = witness_events,
                                .describe = describe};
  shared_witness = w;
  must(rv_registry_new(registry, &err), &err);
  for (size_t i = 0; i < n; i++) must(rv_registry_add_extension(*registry, extensions[i].name, &ops, &err), &err);
  config.extensions = extensions;
  config.num_extensions = n;
  rv_store_config whole = {.size = sizeof whole, .registry = *registry, .tables = &config, .num_tables = 1};
  must(rv_store_new(&whole, &store, &err), &err);
  return store;
}

static void extensions_see_events_in_order_and_may_edit(void **state)
{
  (void)state;
  rv_error err;
  rv_registry *registry;
  witness w = {.count = 0};
  const rv_extension_config extension = {.name = "witness"};
  rv_table_config config = rv_table_config_default("replay", 3);
  config.sampler.kind = RV_SELECTOR_MAX_HEAP;
  config.max_times_sampled = 2;
  rv_store *store = store_with_witnesses(&w, &extension, 1, config, witness_describe, &registry);
  rv_table *table = rv_store_table(store, 0);
  for (uint64_t key = 1; key <= 4; key++) assert_int_equal(insert_value(store, table, key, (double)key, (int64_t)key * 4), RV_OK);
  assert_int_equal(insert_value(store, table, 4, 4.5, 0), RV_OK);
  rv_draw draws[2];
  rv_sampling sampling = {.want = 2, .draws = draws};
  rv_table_sample(table, &sampling);
  assert_int_equal(draws[0].key, 3); /* 6 beats 4.5 */
  rv_draws_release(draws, 2);
  must(rv_table_reset(table, &err), &err);
  const struct {
    rv_event_kind kind;
    uint64_t key;
    double priority, old;
  } expected[] = {{RV_EVENT_INSERT, 1, 1, 1}, {RV_EVENT_INSERT, 2, 2, 2}, {RV_EVENT_INSERT, 3, 3, 3},
                  {RV_EVENT_INSERT, 4, 4, 4}, {RV_EVENT_DELETE, 1, 1, 1}, {RV_EVENT_UPDATE, 4, 4.5, 4},
                  {RV_EVENT_SAMPLE, 3, 6, 6}, {RV_EVENT_SAMPLE, 3, 6, 6}, {RV_EVENT_DELETE, 3, 6, 6},
                  {RV_EVENT_RESET, 0, 0, 0}};
  assert_int_equal(w.count, sizeof expected / sizeof expected[0]);
  for (size_t i = 0; i < w.count; i++) {
    assert_int_equal(w.events[i].kind, expected[i].kind);
    assert_int_equal(w.events[i].key, expected[i].key);
    assert_true(w.events[i].priority == expected[i].priority);
    if (w.events[i].kind == RV_EVENT_UPDATE) assert_true(w.events[i].old_priority == expected[i].old);
  }
  assert_int_equal(w.events[6].times_sampled, 1);
  assert_int_equal(w.events[7].times_sampled, 2);
  assert_int_equal(w.events[1].episode_id, 2);
  assert_int_equal(w.events[1].episode_step, 0);
  rv_table_info info = info_of(table);
  assert_string_equal(info.extensions, "witness: events=10\n");
  rv_table_info_fini(&info);
  w.count = w.batches = 0;
  int64_t values[100] = {0};
  rv_rows rows;
  add_values(table, &rows, values, 100, NULL);
  assert_int_equal(w.count, 197); /* 100 inserts, 97 deletes */
  assert_true(w.batches < 10);
  assert_int_equal(w.events[0].episode_step, -1); /* rows belong to no episode */
  rv_store_unref(store);
  rv_registry_free(registry);
}

static size_t wordy_describe(void *extension, char *out, size_t capacity)
{
  (void)extension;
  char text[3001] = "";
  for (size_t at = 0; at + 2 < sizeof text; at += 2) memcpy(text + at, "\xC3\xA9", 3);
  return (size_t)snprintf(out, capacity, "%s", text);
}

/* As by snprintf, which asks for no character's end. */
static void what_an_extension_says_is_cut_between_characters(void **state)
{
  (void)state;
  rv_registry *registry;
  witness w = {.count = 0};
  const rv_extension_config extensions[] = {{.name = "even"}, {.name = "odd"}};
  rv_store *store = store_with_witnesses(&w, extensions, 2, rv_table_config_default("replay", 3), wordy_describe, &registry);
  rv_table_info info = info_of(rv_store_table(store, 0));
  const char *at = info.extensions;
  size_t lines = 0;
  while (*at != '\0') {
    size_t n = rv_utf8_character((const uint8_t *)at, strlen(at));
    assert_true(n > 0);
    lines += *at == '\n';
    at += n;
  }
  assert_int_equal(lines, 2);
  rv_table_info_fini(&info);
  rv_store_unref(store);
  rv_registry_free(registry);
}

/* ---- selectors of somebody else's ---- */

typedef struct fussy {
  uint32_t slots[16];
  uint32_t count;
} fussy;

static rv_code fussy_create(const char *options, void **selector, rv_error *err)
{
  (void)options, (void)err;
  *selector = calloc(1, sizeof(fussy));
  return *selector == NULL ? RV_RESOURCE_EXHAUSTED : RV_OK;
}

static rv_code fussy_check(double priority, rv_error *err)
{
  if (priority != 13) return RV_OK;
  if (err != NULL) snprintf(err->message, sizeof err->message, "13 is not wanted");
  return RV_INVALID_ARGUMENT;
}

static rv_code fussy_insert(void *selector, uint32_t slot, uint64_t key, double priority, rv_error *err)
{
  (void)key;
  fussy *f = selector;
  if (fussy_check(priority, err) != RV_OK) return RV_INVALID_ARGUMENT;
  f->slots[f->count++] = slot;
  return RV_OK;
}

static void fussy_remove(void *selector, uint32_t slot, uint64_t key)
{
  (void)key;
  fussy *f = selector;
  for (uint32_t i = 0; i < f->count; i++)
    if (f->slots[i] == slot) {
      f->slots[i] = f->slots[--f->count];
      return;
    }
}

static rv_code fussy_update(void *selector, uint32_t slot, uint64_t key, double priority, rv_error *err)
{
  (void)selector, (void)slot, (void)key;
  return fussy_check(priority, err);
}

static void fussy_clear(void *selector)
{
  ((fussy *)selector)->count = 0;
}

static uint32_t fussy_select(void *selector, uint64_t random, double *probability)
{
  fussy *f = selector;
  *probability = 1.0 / f->count;
  return f->slots[random % f->count];
}

static uint32_t lost_select(void *selector, uint64_t random, double *probability)
{
  (void)selector, (void)random;
  *probability = 1;
  return 1000;
}

static void a_registered_selector_that_chooses_what_is_not_there_shows_in_the_tables_info(void **state)
{
  (void)state;
  rv_error err;
  rv_registry *registry;
  const rv_selector_ops ops = {.size = sizeof ops,
                               .create = fussy_create,
                               .destroy = free,
                               .insert = fussy_insert,
                               .remove = fussy_remove,
                               .update = fussy_update,
                               .clear = fussy_clear,
                               .select = lost_select};
  must(rv_registry_new(&registry, &err), &err);
  must(rv_registry_add_selector(registry, "lost", &ops, &err), &err);
  rv_table_config config = rv_table_config_default("replay", 2);
  config.remover = (rv_selector_config){.kind = RV_SELECTOR_CUSTOM, .name = "lost"};
  rv_store_config whole = {.size = sizeof whole, .registry = registry, .tables = &config, .num_tables = 1};
  rv_store *store;
  must(rv_store_new(&whole, &store, &err), &err);
  rv_table *table = rv_store_table(store, 0);
  int64_t values[5] = {0};
  rv_rows rows;
  add_values(table, &rows, values, 2, NULL);
  rv_table_info info = info_of(table);
  assert_string_equal(info.extensions, "");
  rv_table_info_fini(&info);
  add_values(table, &rows, values, 3, NULL);
  info = info_of(table);
  assert_non_null(strstr(info.extensions, "of the remover 3 times"));
  rv_table_info_fini(&info);
  rv_store_unref(store);
  rv_registry_free(registry);
}

static void a_registered_selector_that_refuses_leaves_all_as_it_was(void **state)
{
  (void)state;
  rv_error err;
  rv_registry *registry;
  const rv_selector_ops ops = {.size = sizeof ops,
                               .create = fussy_create,
                               .destroy = free,
                               .insert = fussy_insert,
                               .remove = fussy_remove,
                               .update = fussy_update,
                               .clear = fussy_clear,
                               .select = fussy_select};
  must(rv_registry_new(&registry, &err), &err);
  must(rv_registry_add_selector(registry, "fussy", &ops, &err), &err);
  rv_table_config config = rv_table_config_default("replay", 5);
  config.sampler.kind = RV_SELECTOR_MAX_HEAP;
  config.remover = (rv_selector_config){.kind = RV_SELECTOR_CUSTOM, .name = "fussy"};
  rv_store_config whole = {.size = sizeof whole, .registry = registry, .tables = &config, .num_tables = 1};
  rv_store *store;
  must(rv_store_new(&whole, &store, &err), &err);
  rv_table *table = rv_store_table(store, 0);
  for (uint64_t key = 1; key <= 3; key++) assert_int_equal(insert_value(store, table, key, (double)key, 0), RV_OK);
  assert_int_equal(insert_value(store, table, 4, 13, 4 * 7), RV_INVALID_ARGUMENT); /* of an episode that no other item has */
  assert_int_equal(insert_value(store, table, 1, 13, 0), RV_INVALID_ARGUMENT);
  rv_key_priority updates[] = {{1, 50}, {2, 40}, {3, 13}};
  uint64_t deletes[] = {2}, unknown[4];
  size_t num_unknown;
  assert_int_equal(rv_table_mutate(table, updates, 3, deletes, 1, unknown, &num_unknown, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "13 is not wanted"));
  rv_draw draw;
  rv_sampling sampling = {.want = 1, .draws = &draw};
  rv_table_sample(table, &sampling);
  assert_int_equal(draw.key, 3);
  rv_draw_release(&draw);
  rv_table_info info = info_of(table);
  assert_int_equal(info.current_size, 3);
  assert_int_equal(info.num_deleted_episodes, 0);
  assert_true(info.min_priority == 1 && info.max_priority == 3);
  rv_table_info_fini(&info);
  updates[2].priority = 1;
  must(rv_table_mutate(table, updates, 3, deletes, 1, unknown, &num_unknown, &err), &err);
  assert_int_equal(num_unknown, 1);
  assert_int_equal(unknown[0], 2);
  double priorities[] = {7, 13};
  const int64_t shape = 2, values[2] = {0};
  rv_tensor column = {RV_INT64, 1, &shape, values};
  rv_rows rows = {.columns = &column, .num_columns = 1, .n = 2, .priorities = priorities};
  assert_int_equal(rv_table_insert_rows(table, &rows), RV_SUBMIT_DONE);
  assert_int_equal(rows.waiter.code, RV_INVALID_ARGUMENT);
  assert_int_equal(rows.done, 1);
  rv_store_unref(store);
  rv_registry_free(registry);
}

/* ---- seeds ---- */

enum { SEEDED_ITEMS = 64, SEEDED_DRAWS = 256 };

/* Of a store with that seed (NULL: none): the keys of its items, and of those that were drawn, in order. */
static void keys_with(const uint64_t *seed, uint64_t keys[SEEDED_ITEMS], uint64_t drawn[SEEDED_DRAWS])
{
  rv_error err;
  rv_store *store;
  rv_table_config table = rv_table_config_default("t", 2 * SEEDED_ITEMS);
  table.sampler = (rv_selector_config){.kind = RV_SELECTOR_UNIFORM};
  rv_store_config config = {.size = sizeof config, .tables = &table, .num_tables = 1, .seed = seed};
  must(rv_store_new(&config, &store, &err), &err);
  int64_t values[SEEDED_ITEMS] = {0};
  const int64_t shape = SEEDED_ITEMS;
  rv_tensor column = {RV_INT64, 1, &shape, values};
  rv_rows rows = {.columns = &column, .num_columns = 1, .n = SEEDED_ITEMS, .keys = keys};
  assert_int_equal(rv_table_insert_rows(rv_store_table(store, 0), &rows), RV_SUBMIT_DONE);
  assert_int_equal(rows.done, SEEDED_ITEMS);
  rv_draw draws[SEEDED_DRAWS];
  rv_sampling sampling = {.want = SEEDED_DRAWS, .draws = draws};
  assert_int_equal(rv_table_sample(rv_store_table(store, 0), &sampling), RV_SUBMIT_DONE);
  for (size_t i = 0; i < SEEDED_DRAWS; i++) drawn[i] = draws[i].key;
  rv_draws_release(draws, SEEDED_DRAWS);
  rv_store_unref(store);
}

static void stores_of_one_seed_give_and_draw_the_same_keys_and_others_do_not(void **state)
{
  (void)state;
  const uint64_t seed = 5, other = 6, *seeds[] = {&seed, &seed, &other, NULL, NULL};
  enum { STORES = sizeof seeds / sizeof *seeds };
  uint64_t keys[STORES][SEEDED_ITEMS], drawn[STORES][SEEDED_DRAWS];
  for (size_t i = 0; i < STORES; i++) {
    keys_with(seeds[i], keys[i], drawn[i]);
    for (size_t k = 0; k < i; k++) {
      assert_int_equal(memcmp(keys[i], keys[k], sizeof *keys) == 0, seeds[i] == seeds[k] && seeds[i] != NULL);
      assert_int_equal(memcmp(drawn[i], drawn[k], sizeof *drawn) == 0, seeds[i] == seeds[k] && seeds[i] != NULL);
    }
  }
}

static void stores_of_one_seed_are_different_stores(void **state)
{
  (void)state;
  const uint64_t seed = 5;
  uint64_t ids[2][2];
  for (int i = 0; i < 2; i++) {
    rv_error err;
    rv_store *store;
    rv_table_config table = rv_table_config_default("t", 1);
    rv_store_config config = {.size = sizeof config, .tables = &table, .num_tables = 1, .seed = &seed};
    must(rv_store_new(&config, &store, &err), &err);
    rv_store_state_id(store, ids[i]);
    rv_store_unref(store);
  }
  assert_memory_not_equal(ids[0], ids[1], sizeof ids[0]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_configuration_that_is_wrong_names_table_and_field),
      cmocka_unit_test(tables_are_found_by_name),
      cmocka_unit_test(a_closed_store_takes_nothing_and_can_be_looked_at),
      cmocka_unit_test(extensions_see_events_in_order_and_may_edit),
      cmocka_unit_test(what_an_extension_says_is_cut_between_characters),
      cmocka_unit_test(a_registered_selector_that_chooses_what_is_not_there_shows_in_the_tables_info),
      cmocka_unit_test(a_registered_selector_that_refuses_leaves_all_as_it_was),
      cmocka_unit_test(stores_of_one_seed_give_and_draw_the_same_keys_and_others_do_not),
      cmocka_unit_test(stores_of_one_seed_are_different_stores),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
